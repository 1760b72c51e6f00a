//! What programs see of their host when they come and go.

use crate::pair::{link, spec};
use bentpipe_apps::ClientServer as _;
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::report::App;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_sim::network::{Network, Setup, Stop};
use std::net::IpAddr;

const PORT: u16 = 7;

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

/// A server at the hub and a client at the terminal, 250 ms away.
fn network() -> Network<Box<dyn App>> {
    let config = link("rate = '1 Mbit/s'\none_way_delay = '250 ms'");
    Network::new(&Setup { links: vec![(spec(&config), config)], seed: 1, ..Setup::default() }).unwrap()
}

/// Runs until `until`, whatever becomes done.
fn run(network: &mut Network<Box<dyn App>>, until: Instant) {
    while network.run_until(until) == Stop::ProgramDone {}
}

/// The server ends between the SYN (at 250 ms) and the acknowledgement of its answer (at 750 ms).
#[test]
fn a_listener_takes_its_opening_connections_with_it() {
    let mut network = network();
    let bulk = BulkSpec { port: PORT, ..BulkSpec::default() };
    let hub = IpAddr::from(network.plan().address(0).unwrap());
    let server = network.start(0, bulk.server(1));
    let client = network.start(1, bulk.client(hub, 1));
    run(&mut network, ms(400));
    assert_eq!(network.connections(0).len(), 1);
    assert!(network.connections(0)[0].open);
    network.stop(server);
    assert!(!network.connections(0)[0].open, "it ended with its listener");
    run(&mut network, ms(5_000));
    assert_eq!(network.connections(0).len(), 1);
    assert!(network.connections(1).iter().all(|connection| !connection.open), "the client got the error");
    assert!(network.program(client).unwrap().is_done());
}

/// Three transfers, one after the other: what was seen to have ended need not be asked for again.
#[test]
fn connections_that_ended_are_left_out_on_demand() {
    let mut network = network();
    let bulk = BulkSpec { port: PORT, amount: Amount::Bytes(10_000), ..BulkSpec::default() };
    let hub = IpAddr::from(network.plan().address(0).unwrap());
    network.start(0, bulk.server(1));
    for transfer in 0..3_usize {
        let client = network.start(1, bulk.client(hub, 1));
        let until = network.now() + Duration::from_secs(100);
        run(&mut network, until);
        network.stop(client);
        assert_eq!(network.ended_connections(1, 0).len(), transfer + 1);
        assert_eq!(network.connections(1).len(), transfer + 1);
        assert_eq!(network.ended_connections(1, transfer).len(), 1);
        assert!(network.ended_connections(1, transfer + 1).is_empty());
    }
    assert!(network.ended_connections(9, 0).is_empty());
    assert!(network.connections(9).is_empty());
}
