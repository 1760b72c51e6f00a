//! Who is let in, and what a stranger can do.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::keys::{PairKeys, PrivateKey};
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite, SetupError};
use bentpipe_gateway::satellite::{Event, Loss, Satellite};

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed([seed; 32]).unwrap()
}

fn tls(own: u8, peer: u8) -> Crypto {
    Crypto::Tls(PairKeys { own: key(own), peer: key(peer).public() })
}

#[test]
fn a_pair_with_pinned_keys_connects_and_carries_data() {
    let mut world = World::with_cryptos(GEO, 1, [tls(1, 2), tls(2, 1)], |_| {});
    world.connect();
    let times = world.fetch(3, 100, 300_000, 20.0);
    assert!(times.iter().all(|time| *time < 1.5), "{times:?}");
    assert_eq!(world.hub().satellite.statistics().forged, 0);
}

#[test]
fn the_model_handshake_is_as_long_as_the_real_one() {
    let offered = |cryptos: [Crypto; 2]| {
        let mut world = World::with_cryptos(GEO, 1, cryptos, |_| {});
        world.hub().trace = Some(Vec::new());
        world.terminal().trace = Some(Vec::new());
        world.connect();
        let when = world.terminal().saw(&Event::Connected).unwrap().as_secs_f64();
        (world.offered, when)
    };
    let (real, real_at) = offered([tls(1, 2), tls(2, 1)]);
    let (model, model_at) = offered([Crypto::Model(7), Crypto::Model(7)]);
    println!("real {real:?} {real_at:.4}, model {model:?} {model_at:.4}");
    for (real, model) in real.iter().zip(model) {
        assert!(real.abs_diff(model) * 20 < *real, "{real} and {model}");
    }
    assert!((real_at - model_at).abs() < 0.001);
}

#[test]
fn strangers_are_refused_on_both_sides() {
    let cases = [
        ([tls(1, 2), tls(3, 1)], "the hub does not know the terminal"),
        ([tls(1, 2), tls(2, 3)], "the terminal does not know the hub"),
        ([Crypto::Model(1), Crypto::Model(2)], "the model's numbers differ"),
    ];
    for (cryptos, what) in cases {
        let mut world = World::with_cryptos(GEO, 1, cryptos, |_| {});
        world.run(at(30.0), |_| false);
        assert_eq!(world.hub().count(&Event::Connected), 0, "{what}");
        assert!(world.lost(TERMINAL).contains(&Loss::Stranger), "{what}: {:?}", world.stations[TERMINAL].events);
        assert!(world.lost(TERMINAL).len() <= 3, "{what}: it does not try without pause");
        let strangers: u64 = world.stations.iter().map(|s| s.satellite.statistics().strangers).sum();
        assert!(strangers > 0, "{what}");
        assert!(!world.terminal().satellite.is_connected());
    }
}

#[test]
fn a_flood_of_callers_opens_nothing_and_does_not_keep_the_pair_apart() {
    let mut world = World::new(GEO, 1);
    world.connect();
    // First flights of terminals that never go on.
    for caller in 0..300u32 {
        let mut config = configs(&link_config(GEO))[TERMINAL].clone();
        config.rate = None;
        let mut stranger = QuicSatellite::new(world.now, config, Crypto::Model(9), u64::from(caller)).unwrap();
        stranger.wake(world.now);
        let mut datagram = Vec::new();
        while stranger.poll_transmit(world.now, &mut datagram).is_some() {
            let from = std::net::SocketAddr::from(([10, 1, (caller >> 8) as u8, caller as u8], 1000));
            world.hand(HUB, from, datagram.clone());
        }
        let until = world.now + seconds(0.01);
        world.run(until, |_| false);
    }
    assert_eq!(world.hub().count(&Event::Connected), 1);
    assert!(world.hub().events.iter().all(|(_, event)| !matches!(event, Event::Opened(_))));
    assert_eq!(world.fetch(1, 100, 100_000, 10.0).len(), 1);
    // And a restarted terminal gets in while callers keep calling.
    world.restart(TERMINAL);
    let now = world.now;
    world.run(now + seconds(10.0), |world| world.stations[TERMINAL].satellite.is_connected());
    assert!(world.terminal().satellite.is_connected());
}

#[test]
fn impossible_configurations_are_refused() {
    let config = configs(&link_config(GEO))[TERMINAL].clone();
    let with = |change: &dyn Fn(&mut bentpipe_gateway::satellite::SatelliteConfig)| {
        let mut config = config.clone();
        change(&mut config);
        QuicSatellite::new(at(0.0), config, Crypto::Model(1), 1).err()
    };
    assert_eq!(with(&|config| config.mtu = 100), Some(SetupError::Mtu(100)));
    let nowhere = "0.0.0.0:0".parse().unwrap();
    assert_eq!(
        with(&|config| config.side = bentpipe_gateway::satellite::Side::Terminal(nowhere)),
        Some(SetupError::Address(nowhere))
    );
    assert_eq!(with(&|_| {}), None);
}
