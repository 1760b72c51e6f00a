//! The satellite side over links in virtual time.

mod support;

use support::*;

const GEO: &str = "rate = \"10 Mbit/s\"\none_way_delay = \"300 ms\"\nqueue = { bytes = \"750 kB\" }\nmtu = \"1500 B\"\nframing = \"none\"\n";

#[test]
fn a_transfer_fills_the_link() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let before = world.link_bytes();
    let times = world.fetch(1, 100, 5_000_000, 30.0);
    let after = world.link_bytes();
    let goodput = 5.0 * 8.0 / times[0];
    eprintln!("{goodput} {} {:?}", (after[0] - before[0]) as f64 / 5e6, (after[1] - before[1]) as f64 / 5e6);
    assert!(goodput > 8.5);
}
