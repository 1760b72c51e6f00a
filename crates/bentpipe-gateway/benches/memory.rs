//! The memory of idle connections: 5,000 of them over the satellite side, in virtual time, both gateways in this process.
//!
//! `cargo bench -p bentpipe-gateway --bench memory [CONNECTIONS]`

#![allow(dead_code)]

#[path = "../tests/relay/pair.rs"]
mod pair;
#[path = "../tests/relay/site.rs"]
mod site;
#[path = "../tests/relay/world.rs"]
mod world;

use bentpipe_net::units::DataSize;
use world::{FAR, NEAR, World, noise, text};

/// Resident memory of this process (proc(5), `statm`: pages), in bytes.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn main() {
    let connections = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(5_000_usize);
    let start = resident();
    // What the first leaves behind the second uses again: the smaller one goes first, and both count from the start.
    for compression in [0, 64] {
        let mut world =
            World::quic(1, 0.0, |config| config.settings.memory.compression = DataSize::from_bytes(compression << 20));
        world.run_ms(3_000);
        // Each has carried a request and a page, then rests.
        for index in 0..connections {
            let (client, server) = world.connect();
            let request = noise(index as u64, 500);
            assert!(world.transfer((NEAR, client), (FAR, server), &request) == request);
            let page = text(4_000);
            assert!(world.transfer((FAR, server), (NEAR, client), &page) == page);
        }
        world.run_ms(10_000);
        let after = resident();
        for gateway in &world.gateways {
            assert_eq!(gateway.metrics().connections_open, connections as u64);
        }
        // The hosts of the test are in this, too.
        println!(
            "{connections} idle connections, {compression} MiB for compression: {:.1} MB for both gateways and their hosts, \
             {:.1} kB a connection",
            (after - start) as f64 / 1e6,
            (after - start) as f64 / 1e3 / connections as f64
        );
        assert!(after - start < 200_000_000, "more than one gateway may take");
    }
}
