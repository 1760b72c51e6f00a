//! The handshake on links that damage packets and on circuits that are set up first.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::{Event, Satellite};

/// The links of the catalogue with a circuit, as long as they take to set up, and a GEO link without.
const LINKS: [(&str, &str); 4] = [
    ("10 Mbit/s", GEO),
    ("64 kbit/s, 17 s", "rate = \"64 kbit/s\"\none_way_delay = \"442 ms\"\nqueue = { packets = 40 }\nmtu = \"1500 B\"\n\
        framing = \"ppp\"\n[circuit]\nstages = [{ name = \"set-up\", time = \"17 s\" }]\n"),
    ("9600 bit/s, 50 s", "rate = \"9600 bit/s\"\none_way_delay = \"300 ms\"\nqueue = { bytes = \"20 kB\" }\nmtu = \"1500 B\"\n\
        framing = \"ppp\"\n[circuit]\nstages = [{ name = \"set-up\", time = \"50 s\" }]\n"),
    ("2400 bit/s, 50.73 s", "rate = \"2400 bit/s\"\none_way_delay = \"300 ms\"\nqueue = { bytes = \"20 kB\" }\nmtu = \"1500 B\"\n\
        framing = \"ppp\"\n[circuit]\nstages = [{ name = \"set-up\", time = \"50.73 s\" }]\n"),
];

/// When both are connected, and how long a first exchange of 1.1 kB takes from then on.
fn start(text: &str, seed: u64, doomed: &[(usize, u64)]) -> (f64, f64, u64) {
    let mut world = World::new(text, seed);
    world.doomed = doomed.iter().copied().collect();
    world.run(at(400.0), |world| world.stations.iter().all(|s| s.satellite.is_connected()));
    assert!(world.stations.iter().all(|s| s.satellite.is_connected()), "{doomed:?}");
    let connected = world.now.as_secs_f64();
    let bytes = world.link_bytes().iter().sum();
    let time = world.fetch(1, 100, 1000, 400.0)[0];
    assert!(world.stations.iter().all(|station| station.count(&Event::Connected) == 1), "{doomed:?}");
    (connected, time, bytes)
}

#[test]
fn a_lost_handshake_packet_costs_seconds() {
    for (name, text) in LINKS {
        let (clean, clean_time, bytes) = start(text, 1, &[]);
        println!("{name}: connected at {clean:.2} s with {bytes} bytes, exchange {clean_time:.2} s");
        for side in [HUB, TERMINAL] {
            for k in 0..8 {
                let (connected, time, bytes) = start(text, 1, &[(side, k)]);
                println!("{name}: {side} {k}: +{:.2} s, {bytes} B, exchange +{:.2} s", connected - clean, time - clean_time);
            }
        }
    }
}
