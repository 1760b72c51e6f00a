//! Reports of the satellite side about a pair that does not connect, or that is configured wrongly.

use super::GEO;
use super::security::tls;
use super::support::*;
use bentpipe_gateway::satellite::keys::PrivateKey;
use bentpipe_gateway::satellite::{DeclaredRates, Event, Satellite, Side};
use bentpipe_net::units::BitRate;

fn mbps(rate: u64) -> Option<BitRate> {
    Some(BitRate::from_bps(rate * 1_000_000))
}

#[test]
fn each_side_learns_the_rates_that_the_other_declares() {
    let mut world = World::new(GEO, 1);
    let now = world.now;
    world.terminal().satellite.set_incoming(now, mbps(1));
    world.hub().satellite.set_incoming(now, None);
    world.connect();
    let declared = |sending, receiving| Event::Declared(DeclaredRates { sending, receiving });
    assert_eq!(world.hub().count(&declared(mbps(10), mbps(1))), 1);
    assert_eq!(world.terminal().count(&declared(mbps(10), None)), 1);
    // Again, with another.
    let now = world.now;
    world.terminal().satellite.set_incoming(now, mbps(10));
    world.terminal().satellite.declare();
    world.run(now + seconds(1.0), |_| false);
    assert_eq!(world.hub().count(&declared(mbps(10), mbps(10))), 1);
}

#[test]
fn an_attempt_without_an_answer_is_reported() {
    let mut world = World::new(GEO, 1);
    world.outage_until = at(10_000.0);
    world.run(at(30.0), |_| false);
    let unanswered = Event::Unanswered { hub: hub_address(), heard: false };
    let count = world.terminal().count(&unanswered);
    assert!((3..=8).contains(&count), "{count}: {:?}", world.stations[TERMINAL].events);
    assert_eq!(world.hub().events, []);
}

#[test]
fn a_terminal_calls_once_it_knows_the_hub_and_follows_it() {
    let mut world = World::with(GEO, 1, bentpipe_gateway::satellite::quic::Crypto::Model(7), |config| {
        if let Side::Terminal(hub) = &mut config.side {
            *hub = "0.0.0.0:4433".parse().unwrap();
        }
    });
    world.run(at(60.0), |_| false);
    assert_eq!(world.offered, [0, 0], "nobody to call");
    // The first address is wrong.
    let now = world.now;
    world.terminal().satellite.set_hub(now, "10.0.0.9:4433".parse().unwrap());
    world.run(at(70.0), |_| false);
    assert!(world.offered[TERMINAL] > 0 && !world.terminal().satellite.is_connected());
    let now = world.now;
    world.terminal().satellite.set_hub(now, hub_address());
    world.connect();
    assert!(world.now < at(90.0), "{:?}", world.now);
}

#[test]
fn the_key_and_the_address_of_a_refused_peer_are_known() {
    let public = |seed: u8| PrivateKey::from_seed([seed; 32]).unwrap().public();
    for (cryptos, presented) in
        [([tls(1, 2), tls(3, 1)], [Some(public(3)), None]), ([tls(1, 2), tls(2, 3)], [None, Some(public(1))])]
    {
        let mut world = World::with_cryptos(GEO, 1, cryptos, |_| {});
        world.run(at(8.0), |_| false);
        let addresses = [world.stations[TERMINAL].address, hub_address()];
        for ((station, presented), from) in world.stations.iter().zip(presented).zip(addresses) {
            let refused = station.satellite.last_refused().unwrap();
            assert_eq!((refused.from, refused.key), (from, presented));
        }
    }
}

#[test]
fn two_terminals_with_one_key_are_suspected_and_a_restarted_one_is_not() {
    let addresses = ["10.0.0.2:40000", "10.0.0.3:40000"].map(|address| address.parse().unwrap());
    let shared = Event::SharedKey([addresses[1], addresses[0]]);
    let mut world = World::new(GEO, 1);
    world.connect();
    // One that takes another port at each start.
    for port in 40_001..40_006 {
        world.stations[TERMINAL].address.set_port(port);
        world.restart(TERMINAL);
        world.connect();
    }
    assert!(world.hub().events.iter().all(|(_, event)| !matches!(event, Event::SharedKey(_))));
    // Two, of which each notices that the other has taken its place.
    for address in [addresses[0], addresses[1], addresses[0]] {
        world.stations[TERMINAL].address = address;
        world.restart(TERMINAL);
        world.connect();
    }
    assert_eq!(world.hub().count(&shared), 1, "{:?}", world.hub().events);
}
