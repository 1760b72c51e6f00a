//! One connection, all or as much as time allows, and everything that can go wrong with it.

mod support;

use bentpipe_apps::ClientServer as _;
use bentpipe_apps::Direction::{self, Download, Upload};
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::{Report, Status, quantity};
use bentpipe_net::time::Duration;
use support::{CLIENT, FaultKind, SEED, SERVER, World, address, at_ms};

fn bytes(direction: Direction, bytes: u64) -> BulkSpec {
    BulkSpec { direction, amount: Amount::Bytes(bytes), ..BulkSpec::default() }
}

fn run(spec: &BulkSpec, world: World) -> Report {
    run_world(spec, world).0
}

fn run_world(spec: &BulkSpec, mut world: World) -> (Report, World) {
    spec.check().unwrap();
    world.add(SERVER, spec.server(SEED));
    world.add(CLIENT, spec.client(address(SERVER), SEED));
    world.run();
    (spec.combine(world.report(1), world.report(0)), world)
}

/// The host that data goes to.
fn receiver(direction: Direction) -> usize {
    if direction == Download { CLIENT } else { SERVER }
}

fn failed(text: &str) -> Status {
    Status::Failed(text.to_owned())
}

fn close_to(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value / expected - 1.0).abs() < 1e-9)
}

#[test]
fn the_closed_form_holds_in_both_directions() {
    // 125 000 bytes at 1 Mbit/s take 1 s. The window never closes: 64 KiB of buffer each side and what is in flight
    // exceed the 25 000 bytes that the link holds.
    for (direction, start) in [(Download, 0.2), (Upload, 0.2)] {
        let (report, world) = run_world(&bytes(direction, 125_000), World::new());
        assert_eq!(report.status, Status::Done, "{direction}");
        assert_eq!(report.value(quantity::BYTES), Some(125_000.0));
        assert_eq!(report.value(quantity::WRONG_BYTES), Some(0.0));
        assert!(close_to(report.value(quantity::CONNECT_TIME), 0.2));
        // Download: the server sends when it accepts, at 0.1 s; the data come behind the answer to the SYN.
        let took = start + 1.0 + if direction == Upload { 0.1 } else { 0.0 };
        assert!((report.value(quantity::COMPLETION_TIME).unwrap() - took).abs() < 1e-6, "{direction}: {report:?}");
        assert!((report.value(quantity::GOODPUT).unwrap() - 1e6 / took).abs() < 10.0);
        assert!((report.value(quantity::GOODPUT_STEADY).unwrap() - 1e6).abs() < 100.0);
        let segment = 1460.0 * 8.0 / 1e6;
        let first = if direction == Upload { 0.3 } else { 0.2 } + segment;
        assert!((report.value(quantity::FIRST_BYTE).unwrap() - first).abs() < 1e-6, "{direction}: {report:?}");
        assert_eq!(report.points(quantity::RECEIVED_BYTES).last().map(|point| point.1), Some(125_000.0));
        assert_eq!(world.sockets_open(CLIENT), 0);
    }
}

#[test]
fn short_writes_and_small_windows_change_nothing_but_the_time() {
    for direction in [Download, Upload] {
        let mut world = World::new();
        world.net.send_call_max = 1;
        let report = run(&bytes(direction, 3000), world);
        assert_eq!((report.status.clone(), report.value(quantity::WRONG_BYTES)), (Status::Done, Some(0.0)));
        let mut world = World::new();
        world.net.buffer_bytes = 1000;
        let report = run(&bytes(direction, 20_000), world);
        assert_eq!((report.status.clone(), report.value(quantity::BYTES)), (Status::Done, Some(20_000.0)));
        // A window of 1000 bytes a round trip of at least 0.1 s (the pipe's window updates take no time).
        assert!(report.value(quantity::GOODPUT).unwrap() < 80_000.0);
    }
}

#[test]
fn one_byte_and_more_than_a_turn() {
    for direction in [Download, Upload] {
        assert_eq!(run(&bytes(direction, 1), World::new()).status, Status::Done);
        let mut world = World::new();
        (world.net.rate_bps, world.net.buffer_bytes) = (1_000_000_000, 32 << 20);
        let report = run(&bytes(direction, 20 << 20), world);
        assert_eq!((report.status.clone(), report.value(quantity::BYTES)), (Status::Done, Some((20 << 20) as f64)));
    }
}

#[test]
fn a_transfer_by_time_counts_all_that_was_received() {
    for direction in [Download, Upload] {
        let spec = BulkSpec { direction, amount: Amount::Time(Duration::from_secs(10)), ..BulkSpec::default() };
        let report = run(&spec, World::new());
        assert_eq!(report.status, Status::Done);
        // 10 s of the link and what was in the buffers when the sender finished.
        let received = report.value(quantity::BYTES).unwrap();
        assert!((1_250_000.0..1_250_000.0 + 2.1 * 65_536.0).contains(&received), "{received}");
        assert!((report.value(quantity::GOODPUT_STEADY).unwrap() - 1e6).abs() < 2000.0, "{report:?}");
        let samples = report.points(quantity::GOODPUT);
        assert!(samples.len() >= 20 && samples[2..20].iter().all(|(_, rate)| (*rate - 1e6).abs() < 25_000.0));
    }
}

#[test]
fn an_early_end_of_data_is_a_failure() {
    for direction in [Download, Upload] {
        let world = World::new().with_fault(0, receiver(direction), 30_000, FaultKind::End);
        let report = run(&bytes(direction, 125_000), world);
        let Status::Failed(error) = &report.status else { panic!("{direction}: {:?}", report.status) };
        assert!(error.contains("connection ended after 30000 of 125000 bytes"), "{direction}: {error}");
        assert_eq!(report.value(quantity::BYTES), Some(30_000.0));
        assert_eq!(report.value(quantity::COMPLETION_TIME), None);
        assert!(report.value(quantity::GOODPUT).is_some());
    }
}

#[test]
fn a_reset_is_a_failure() {
    for direction in [Download, Upload] {
        let world = World::new().with_fault(0, receiver(direction), 30_000, FaultKind::Reset);
        let report = run(&bytes(direction, 125_000), world);
        let Status::Failed(error) = &report.status else { panic!("{direction}: {:?}", report.status) };
        assert!(error.contains("of 125000 bytes: connection reset by peer"), "{direction}: {error}");
    }
}

#[test]
fn a_refusal_and_a_silent_server() {
    let report = run(&bytes(Download, 9), World::new().with_fault(0, SERVER, 0, FaultKind::Refuse));
    assert_eq!(report.status, failed("cannot connect to 10.0.0.2:5001: connection refused"));
    assert_eq!(report.ended, Some(at_ms(200)));
    let spec = BulkSpec { timeout: Some(Duration::from_secs(5)), ..bytes(Upload, 9) };
    let report = run(&spec, World::new().with_fault(0, SERVER, 0, FaultKind::Blackhole));
    assert_eq!(report.status, failed("gave up after 5 s with 0 of 9 bytes sent"));
    assert_eq!(report.ended, Some(at_ms(5000)));
}

#[test]
fn giving_up_says_how_far_it_came() {
    let spec = BulkSpec { timeout: Some(Duration::from_secs(5)), ..bytes(Download, 125_000) };
    let report = run(&spec, World::new().with_fault(0, CLIENT, 20_440, FaultKind::Blackhole));
    assert_eq!(report.status, failed("gave up after 5 s with 20440 of 125000 bytes"));
}

#[test]
fn without_a_timeout_a_blackhole_lasts_as_long_as_the_run() {
    let report = run(&bytes(Download, 125_000), World::new().with_fault(0, CLIENT, 20_440, FaultKind::Blackhole));
    assert_eq!((report.status.clone(), report.ended), (Status::Running, None));
    assert_eq!(report.value(quantity::BYTES), Some(20_440.0));
}

#[test]
fn damage_is_counted_and_is_no_failure() {
    for direction in [Download, Upload] {
        let world = World::new().with_fault(0, receiver(direction), 12_345, FaultKind::Damage);
        let report = run(&bytes(direction, 125_000), world);
        assert_eq!(
            (report.status.clone(), report.value(quantity::WRONG_BYTES)),
            (Status::Done, Some(1.0)),
            "{direction}"
        );
    }
}

#[test]
fn a_taken_port_is_the_servers_failure() {
    let mut world = World::new();
    world.net.ports_in_use.push(5001);
    let report = run(&bytes(Download, 9), world);
    let Status::Failed(error) = &report.status else { panic!("{:?}", report.status) };
    assert!(error.contains("server: cannot listen on port 5001: address already in use"), "{error}");
}

#[test]
fn the_same_run_twice_is_the_same() {
    let spec = bytes(Download, 125_000);
    assert_eq!(run(&spec, World::new()), run(&spec, World::new()));
}
