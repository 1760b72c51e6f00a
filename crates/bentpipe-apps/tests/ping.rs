//! Echo requests against fates of every kind.

mod support;

use bentpipe_apps::ping::PingSpec;
use bentpipe_apps::quantity::{self, Quantity};
use bentpipe_apps::{Report, Status};
use bentpipe_net::time::Duration;
use support::{CLIENT, EchoFate, SEED, SERVER, World, address, at_ms};

fn run(spec: &PingSpec, fate: Option<EchoFate>) -> Report {
    spec.check().unwrap();
    let mut world = World::new();
    world.net.echo = fate;
    world.add(CLIENT, spec.client(address(SERVER), SEED));
    world.run();
    world.report(0)
}

fn values(report: &Report, quantities: &[Quantity]) -> Vec<f64> {
    quantities.iter().map(|quantity| report.value(*quantity).unwrap_or(f64::NAN)).collect()
}

const COUNTS: &[Quantity] =
    &[quantity::SENT, quantity::RECEIVED, quantity::LOSS, quantity::DUPLICATES, quantity::DAMAGED, quantity::UNKNOWN];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_clean_link_gives_its_round_trip_time_and_ends_with_the_last_reply() {
    let report = run(&PingSpec { count: 5, ..PingSpec::default() }, None);
    assert_eq!(report.status, Status::Done);
    assert_eq!(values(&report, COUNTS), [5.0, 5.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(
        values(
            &report,
            &[quantity::RTT_MIN, quantity::RTT_MEAN, quantity::RTT_MEDIAN, quantity::RTT_P99, quantity::RTT_MAX]
        ),
        [0.2; 5]
    );
    assert_eq!(report.value(quantity::RTT_JITTER), Some(0.0));
    assert_eq!(report.ended, Some(at_ms(4200)));
    assert_eq!(report.points(quantity::RTT).len(), 5);
    assert_eq!(report.points(quantity::RTT)[3], (at_ms(3000), 0.2));
}

#[test]
fn lost_late_doubled_damaged_and_unknown_replies() {
    let fate: EchoFate = Box::new(|index, number, data| match index {
        0 => vec![(ms(200), number, data.to_vec()), (ms(300), number, data.to_vec())],
        1 => vec![],
        2 => vec![(ms(2500), number, data.to_vec())],
        3 => {
            let mut broken = data.to_vec();
            broken[55] ^= 1;
            vec![(ms(200), number, broken), (ms(210), number, data[..40].to_vec())]
        }
        4 => vec![(ms(200), number.wrapping_add(5000), data.to_vec()), (ms(220), number, data.to_vec())],
        _ => vec![(ms(100), number, data.to_vec())],
    });
    let report = run(&PingSpec { count: 6, ..PingSpec::default() }, Some(fate));
    assert_eq!(report.status, Status::Done);
    assert_eq!(values(&report, COUNTS), [6.0, 4.0, 1.0 - 4.0 / 6.0, 1.0, 2.0, 1.0]);
    assert_eq!(values(&report, &[quantity::RTT_MIN, quantity::RTT_MAX]), [0.1, 2.5]);
    assert_eq!(report.ended, Some(at_ms(15_000)), "the time-out counts from the last request");
}

#[test]
fn silence_is_a_failure_with_its_loss() {
    let spec = PingSpec { count: 3, interval: ms(100), timeout: ms(500), ..PingSpec::default() };
    let report = run(&spec, Some(Box::new(|_, _, _| vec![])));
    let failed = Status::Failed("no replies to 3 requests: 100 % lost".to_owned());
    assert_eq!((report.status.clone(), report.ended), (failed, Some(at_ms(700))));
    assert_eq!(values(&report, COUNTS), [3.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(report.value(quantity::RTT_MEAN), None);
}

#[test]
fn sequence_numbers_wrap_and_late_replies_find_their_request() {
    // Request 10 is answered only after its number was used again.
    let fate: EchoFate = Box::new(|index, number, data| match index {
        10 => vec![(ms(66_000), number, data.to_vec())],
        _ => vec![(ms(20), number, data.to_vec())],
    });
    let spec = PingSpec { count: 66_010, interval: ms(1), data_bytes: 16, ..PingSpec::default() };
    let report = run(&spec, Some(fate));
    assert_eq!(values(&report, COUNTS), [66_010.0, 66_010.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(values(&report, &[quantity::RTT_MIN, quantity::RTT_MAX]), [0.02, 66.0]);
    assert_eq!(report.points(quantity::RTT)[10], (at_ms(10), 66.0));
}

#[test]
fn no_data_and_most_data() {
    for data_bytes in [0, 65_507] {
        let report = run(&PingSpec { count: 2, data_bytes, ..PingSpec::default() }, None);
        assert_eq!(values(&report, COUNTS), [2.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
    }
    // A reply that grew is damaged.
    let fate: EchoFate = Box::new(|_, number, data| vec![(ms(9), number, [data, &[0]].concat())]);
    let report = run(&PingSpec { count: 1, data_bytes: 0, ..PingSpec::default() }, Some(fate));
    assert_eq!(values(&report, COUNTS), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
}

#[test]
fn a_missing_right_is_a_failure() {
    let mut world = World::new();
    world.net.echo_denied = true;
    world.add(CLIENT, PingSpec::default().client(address(SERVER), SEED));
    world.run();
    let denied = "cannot open an ICMP echo socket: permission denied".to_owned();
    assert_eq!(world.report(0).status, Status::Failed(denied));
}

#[test]
fn a_report_before_the_end_is_partial() {
    let mut world = World::new();
    world.limit = at_ms(2500);
    world.add(CLIENT, PingSpec::default().client(address(SERVER), SEED));
    world.run();
    let report = world.report(0);
    assert_eq!((report.status.clone(), report.ended), (Status::Running, None));
    assert_eq!(values(&report, COUNTS), [3.0, 3.0, 0.0, 0.0, 0.0, 0.0]);
}
