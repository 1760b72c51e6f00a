//! One seed, one run: the same packets at the same times, whoever looks on and whoever else is there.

use crate::pair::{link, spec};
use bentpipe_apps::ClientServer as _;
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::report::App;
use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::LinkSpec;
use bentpipe_sim::network::{Network, Observer, ProgramId, Setup, Stop};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Every packet of the first interface of the first two sites, as text.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<String>>);

impl Observer for Recorder {
    fn packet(&mut self, now: Instant, site: usize, interface: usize, outbound: bool, packet: &DatagramPacket) {
        if site < 2 && interface == 0 {
            writeln!(self.0.lock().unwrap(), "{now:?} {site} {outbound} {packet:?}").unwrap();
        }
    }
}

struct Blind;

impl Observer for Blind {
    fn packet(&mut self, _: Instant, _: usize, _: usize, _: bool, _: &DatagramPacket) {}
}

/// A noisy, jittering link with losses, so that every random stream is used.
fn setup(seed: u64) -> Setup {
    let config = link(
        "rate = '2 Mbit/s'\none_way_delay = '250 ms'\njitter = '5 ms'\nnoise = 1e-6\nloss = '1 %'\n\
         queue = { bytes = '100 kB' }",
    );
    Setup { links: vec![(spec(&config), config)], seed, ..Setup::default() }
}

fn network(setup: &Setup) -> (Network<Box<dyn App>>, ProgramId) {
    let mut network: Network<Box<dyn App>> = Network::new(setup).unwrap();
    let bulk = BulkSpec { amount: Amount::Bytes(1_000_000), ..BulkSpec::default() };
    let server = IpAddr::from(network.plan().address(0).unwrap());
    network.start(0, bulk.server(7));
    let client = network.start(1, bulk.client(server, 7));
    (network, client)
}

/// Runs until the client is done, looking every `pause`.
fn finish(network: &mut Network<Box<dyn App>>, client: ProgramId, pause: Duration) -> Instant {
    let mut until = Instant::ZERO;
    while !network.program(client).unwrap().is_done() {
        if network.run_until(until) != Stop::ProgramDone {
            until += pause;
        }
        assert!(until < Instant::ZERO + Duration::from_secs(1000));
    }
    network.now()
}

const RARELY: Duration = Duration::from_secs(100);

fn trace(setup: &Setup, pause: Duration) -> String {
    let recorder = Recorder::default();
    let (mut network, client) = network(setup);
    network.observe(Box::new(recorder.clone()));
    finish(&mut network, client, pause);
    let text = recorder.0.lock().unwrap().clone();
    assert!(text.lines().count() > 1500, "a megabyte has many packets");
    text
}

fn assert_same(a: &str, b: &str) {
    if let Some((line, (a, b))) = a.lines().zip(b.lines()).enumerate().find(|(_, (a, b))| a != b) {
        panic!("packet {line} differs:\n{a}\n{b}");
    }
    assert_eq!(a.lines().count(), b.lines().count());
}

#[test]
fn one_seed_gives_one_trace() {
    assert_same(&trace(&setup(1), RARELY), &trace(&setup(1), RARELY));
    assert_ne!(trace(&setup(1), RARELY), trace(&setup(2), RARELY));
}

#[test]
fn an_idle_site_changes_no_packet() {
    let alone = trace(&setup(1), RARELY);
    // On a link of its own, behind the hub.
    let mut more = setup(1);
    let config = more.links[0].1.clone();
    let other = LinkSpec { name: "other".into(), sites: vec!["hub".into(), "idle".into()], ..spec(&config) };
    more.links.push((other, config));
    assert_same(&alone, &trace(&more, RARELY));
    // Elsewhere.
    let mut more = setup(1);
    let config = more.links[0].1.clone();
    let other = LinkSpec { name: "other".into(), sites: vec!["far".into(), "idle".into()], ..spec(&config) };
    more.links.push((other, config));
    assert_same(&alone, &trace(&more, RARELY));
}

/// Another client of the same server, which connects first: its connection draws from streams of its own.
#[test]
fn another_connection_changes_no_packet() {
    let with_other = |connects: bool| {
        let mut setup = setup(1);
        let config = setup.links[0].1.clone();
        let other = LinkSpec { name: "other".into(), sites: vec!["hub".into(), "other".into()], ..spec(&config) };
        setup.links.push((other, config));
        let recorder = Recorder::default();
        let mut network: Network<Box<dyn App>> = Network::new(&setup).unwrap();
        network.observe(Box::new(recorder.clone()));
        let bulk = BulkSpec { amount: Amount::Bytes(1_000_000), ..BulkSpec::default() };
        let server = IpAddr::from(network.plan().address(0).unwrap());
        network.start(0, bulk.server(7));
        if connects {
            network.start(2, bulk.client(server, 7));
        }
        network.run_until(Instant::ZERO + Duration::from_secs(1));
        let client = network.start(1, bulk.client(server, 7));
        finish(&mut network, client, RARELY);
        recorder.0.lock().unwrap().clone()
    };
    assert_same(&with_other(false), &with_other(true));
}

/// A second terminal that hears the forward direction: it has its own noise, and the first one's stays.
#[test]
fn an_idle_terminal_changes_no_packet() {
    let alone = trace(&setup(1), RARELY);
    let mut more = setup(1);
    more.links[0].0.sites.push("idle".into());
    assert_same(&alone, &trace(&more, RARELY));
}

#[test]
fn observers_change_nothing() {
    let end = |observers: usize| {
        let (mut network, client) = network(&setup(1));
        (0..observers).for_each(|_| network.observe(Box::new(Blind)));
        let end = finish(&mut network, client, RARELY);
        let report = network.program(client).unwrap().report(end);
        let values: Vec<(String, u64)> =
            report.measurements.iter().map(|m| (m.quantity.name.to_string(), m.value.to_bits())).collect();
        let counters: Vec<String> =
            network.links()[0].directions().iter().map(|d| format!("{:?}", d.sender_counters())).collect();
        (end, values, counters)
    };
    assert_eq!(end(0), end(1));
    assert_eq!(end(0), end(3));
}

/// Stopping often to look is no event.
#[test]
fn pauses_change_nothing() {
    assert_same(&trace(&setup(1), RARELY), &trace(&setup(1), Duration::from_millis(37)));
}
