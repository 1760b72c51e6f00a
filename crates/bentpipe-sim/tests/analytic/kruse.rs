//! Kruse's transfers over ACTS: several connections share a T1.

use crate::pair::{MSS, link, reno, spec};
use crate::table::{self, permille};
use bentpipe_apps::ClientServer as _;
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::report::App;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitRate, DataSize};
use bentpipe_sim::model::kruse::{Transfer, throughput};
use bentpipe_sim::network::{Network, Setup, Stop};
use std::fmt::Write;
use std::net::IpAddr;

const RATE: BitRate = BitRate::from_bps(1_536_000);

/// The time until the last of `connections` has its share of `file`, and segments sent again.
fn simulate(file: u64, connections: u32) -> (Duration, u64) {
    let config = link("rate = '1.536 Mbit/s'\none_way_delay = '250 ms'\nqueue = { bytes = '1 MB' }");
    let tcp = reno("receive_window = '24 KiB'\nack_every = 1");
    let setup = Setup {
        tcp: [("hub".to_owned(), tcp.clone()), ("terminal".to_owned(), tcp)].into(),
        links: vec![(spec(&config), config)],
        seed: 1,
        ..Setup::default()
    };
    let mut network: Network<Box<dyn App>> = Network::new(&setup).unwrap();
    let server = IpAddr::from(network.plan().address(0).unwrap());
    let mut clients = Vec::new();
    for number in 0..connections {
        let amount = Amount::Bytes(file / u64::from(connections));
        let bulk = BulkSpec { amount, port: 5001 + number as u16, ..BulkSpec::default() };
        network.start(0, bulk.server(7));
        clients.push(network.start(1, bulk.client(server, 7)));
    }
    while !clients.iter().all(|client| network.program(*client).unwrap().is_done()) {
        assert_eq!(network.run_until(Instant::ZERO + Duration::from_secs(1000)), Stop::ProgramDone);
    }
    let again = network.connections(0).iter().map(|connection| connection.retransmissions).sum();
    (network.now().since(Instant::ZERO), again)
}

/// Shown without a tolerance: the paper prints no equation, so the model is our reading of it.
#[test]
fn several_connections_share_a_t1() {
    let mut text = String::from("goodput in bit/s; deviation in tenths of a percent\n");
    text.push_str("   file connections   model simulated  dev again\n");
    for file in [500_000u64, 5_000_000] {
        for connections in [1u32, 2, 4, 6, 8, 12, 16] {
            let model = throughput(&Transfer {
                file: DataSize::from_bytes(file),
                mss: DataSize::from_bytes(MSS),
                rtt: Duration::from_millis(500) + RATE.time_for_bits(1500 * 8) + RATE.time_for_bits(40 * 8),
                payload_rate: BitRate::from_bps(RATE.bps * MSS / 1500),
                window: Some(DataSize::from_bytes(24 * 1024)),
                connections,
                initial_window: 1,
                growth: 2.0,
                set_up_round_trips: 1,
            });
            let (time, again) = simulate(file, connections);
            let seen = file as f64 * 8.0 / time.as_secs_f64();
            writeln!(
                text,
                "{file:7} {connections:11} {:7} {:9} {:4} {again:5}",
                model.bps,
                seen as u64,
                permille(seen, model.bps as f64)
            )
            .unwrap();
        }
    }
    table::check("kruse", &text);
}
