//! Authentication, and the limits of unauthenticated peers.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::keys::{PairKeys, PrivateKey};
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite, SetupError};
use bentpipe_gateway::satellite::{Class, Event, Loss, Satellite};

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed([seed; 32]).unwrap()
}

pub fn tls(own: u8, peer: u8) -> Crypto {
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
fn unauthenticated_peers_are_refused_on_both_sides() {
    let cases = [
        ([tls(1, 2), tls(3, 1)], "the hub does not know the terminal"),
        ([tls(1, 2), tls(2, 3)], "the terminal does not know the hub"),
        ([Crypto::Model(1), Crypto::Model(2)], "the model's numbers differ"),
    ];
    for (cryptos, what) in cases {
        let mut world = World::with_cryptos(GEO, 1, cryptos, |_| {});
        world.run(at(30.0), |_| false);
        assert_eq!(world.hub().count(&Event::Connected), 0, "{what}");
        assert!(world.lost(TERMINAL).contains(&Loss::Unauthenticated), "{what}: {:?}", world.stations[TERMINAL].events);
        assert!(world.lost(TERMINAL).len() <= 3, "{what}: it does not try without pause");
        let unauthenticated_peers: u64 =
            world.stations.iter().map(|s| s.satellite.statistics().unauthenticated_peers).sum();
        assert!(unauthenticated_peers > 0, "{what}");
        assert!(!world.terminal().satellite.is_connected());
    }
}

/// One more first flight of a terminal that never goes on.
fn call(world: &mut World, caller: u32) {
    let mut config = world.config_of(TERMINAL).clone();
    config.rate = None;
    let mut unauthenticated_peer = QuicSatellite::new(world.now, config, Crypto::Model(9), u64::from(caller)).unwrap();
    unauthenticated_peer.wake(world.now);
    let mut datagram = Vec::new();
    while unauthenticated_peer.poll_transmit(world.now, &mut datagram).is_some() {
        let from = std::net::SocketAddr::from(([10, 1, (caller >> 8) as u8, caller as u8], 1000));
        world.hand(HUB, from, datagram.clone());
    }
}

/// Runs for so long while a hundred unauthenticated peers a second call; what the hub held of them at most.
fn run_flooded(world: &mut World, callers: &mut u32, time: f64, done: impl Fn(&World) -> bool) -> u64 {
    let (end, mut most) = (world.now + seconds(time), 0);
    while world.now < end && !done(world) {
        call(world, *callers);
        *callers += 1;
        most = most.max(world.hub().satellite.statistics().half_open);
        let until = world.now + seconds(0.01);
        world.run(until, |_| false);
    }
    most
}

#[test]
fn a_flood_of_callers_opens_nothing_and_does_not_keep_the_pair_apart() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let clean = world.fetch(1, 100, 500_000, 10.0)[0];
    let mut callers = 0;
    let mut most = run_flooded(&mut world, &mut callers, 3.0, |_| false);
    assert_eq!(world.hub().count(&Event::Connected), 1);
    let opened = world.hub().events.iter().filter(|(_, event)| matches!(event, Event::Opened(_))).count();
    assert_eq!(opened, 1, "the fetch before the flood");
    // The pair's own fetch takes about as long as without the flood.
    world.hub().answer = 500_000;
    let start = world.now;
    let id = world.terminal().open(start, Class::Bulk, 100);
    let ended = |world: &World| world.stations[TERMINAL].flows[&id].ended;
    most = most.max(run_flooded(&mut world, &mut callers, 10.0, |world| ended(world).is_some()));
    let flooded = ended(&world).expect("within ten seconds").since(start).as_secs_f64();
    println!("clean {clean:.3} s, flooded {flooded:.3} s");
    assert!(flooded < 1.1 * clean, "{clean} and {flooded}");
    // And a restarted terminal gets in while callers keep calling.
    world.restart(TERMINAL);
    let connected = |world: &World| world.stations[TERMINAL].satellite.is_connected();
    let start = world.now;
    most = most.max(run_flooded(&mut world, &mut callers, 15.0, connected));
    println!("back after {:.2} s; {callers} callers, {most} handshakes", world.now.since(start).as_secs_f64());
    assert!(connected(&world));
    assert!((1..=8).contains(&most), "{most} handshakes at once");
    let strange = world.hub().satellite.statistics().unauthenticated_packets;
    assert!(strange > u64::from(callers) / 2, "{strange} of {callers}");
    // Nothing of them is left when they have gone.
    let until = world.now + seconds(60.0);
    world.run(until, |_| false);
    assert_eq!(world.hub().satellite.statistics().half_open, 0);
}

#[test]
fn a_restarted_terminal_gets_in_on_a_thin_link_while_unauthenticated_peers_call() {
    let mut world = World::new(&GEO.replace("10 Mbit/s", "64 kbit/s"), 1);
    world.connect();
    let mut callers = 0;
    run_flooded(&mut world, &mut callers, 5.0, |_| false);
    world.restart(TERMINAL);
    let start = world.now;
    run_flooded(&mut world, &mut callers, 60.0, |world| world.stations[TERMINAL].satellite.is_connected());
    let time = world.now.since(start).as_secs_f64();
    println!("back after {time:.2} s");
    assert!(time < 20.0, "{time}");
}

/// A packet as long as a first flight, of a version that nobody speaks (RFC 9000 §15), from one of many addresses.
fn of_another_version(number: u32) -> (std::net::SocketAddr, Vec<u8>) {
    let mut datagram = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
    datagram.extend([number.to_be_bytes(), [7; 4]].concat());
    datagram.extend([8, 1, 2, 3, 4, 5, 6, 7, 8]);
    datagram.resize(1200, 0);
    (std::net::SocketAddr::from(([10, 2, (number >> 8) as u8, number as u8], 1000)), datagram)
}

#[test]
fn unauthenticated_packets_do_not_starve_a_thin_link() {
    let fetch = |flood: bool| {
        let mut world = World::new(&GEO.replace("10 Mbit/s", "64 kbit/s"), 1);
        world.connect();
        world.hub().answer = 100_000;
        let start = world.now;
        let before = world.offered[HUB];
        let id = world.terminal().open(start, Class::Bulk, 100);
        let mut number = 0;
        while world.stations[TERMINAL].flows[&id].ended.is_none() && world.now < start + seconds(60.0) {
            if flood {
                let (from, datagram) = of_another_version(number);
                world.hand(HUB, from, datagram);
                number += 1;
            }
            let until = world.now + seconds(1.0 / 268.0);
            world.run(until, |_| false);
        }
        let flow = world.stations[TERMINAL].flows[&id];
        assert_eq!((flow.read, flow.wrong), (100_000, 0));
        assert!(world.stations.iter().all(|station| station.count(&Event::Silent) == 0));
        let time = flow.ended.unwrap().since(start).as_secs_f64();
        let sent = world.offered[HUB] - before;
        // While the pair rests, unauthenticated peers get their share and no more.
        let (rest, begin) = (seconds(20.0), world.now);
        let before = world.link_bytes()[HUB];
        while flood && world.now < begin + rest {
            let (from, datagram) = of_another_version(number);
            world.hand(HUB, from, datagram);
            number += 1;
            let until = world.now + seconds(1.0 / 268.0);
            world.run(until, |_| false);
        }
        let answered = world.link_bytes()[HUB] - before;
        (time, sent, answered, number, world.hub().satellite.statistics().unauthenticated_packets)
    };
    let (clean, clean_sent, ..) = fetch(false);
    let (flooded, flooded_sent, answered, number, counted) = fetch(true);
    println!("clean {clean:.2} s, {clean_sent} B; flooded {flooded:.2} s, {flooded_sent} B, then {answered} B in 20 s");
    assert!(flooded < 1.08 * clean, "{clean} and {flooded}");
    assert_eq!(counted, u64::from(number));
    // A twentieth of 8000 B/s for 20 s, two seconds saved up.
    assert!((4_000..=9_000).contains(&answered), "{answered}");
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
    let nowhere = "192.0.2.1:0".parse().unwrap();
    assert_eq!(
        with(&|config| config.side = bentpipe_gateway::satellite::Side::Terminal(nowhere)),
        Some(SetupError::Address(nowhere))
    );
    assert_eq!(with(&|_| {}), None);
}
