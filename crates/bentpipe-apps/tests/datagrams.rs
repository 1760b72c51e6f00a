//! Datagrams against fates of every kind.

mod support;

use bentpipe_apps::datagrams::{Datagrams, Measured, Names};
use bentpipe_apps::kind::{Keys, Kind, Party, PartyProgram, PartyReport, Setting, Workload};
use bentpipe_apps::quantity::Quantity;
use bentpipe_apps::{Direction, Report, Status};
use bentpipe_net::time::Duration;
use std::sync::Arc;
use support::{CLIENT, DatagramFate, SEED, SERVER, World, address, at_ms};

fn read(keys: &str) -> Result<Arc<dyn Workload>, String> {
    let keys = Keys { kind: "datagrams", table: keys.parse().unwrap(), shared: vec![], spread: Duration::ZERO };
    Datagrams.read(keys).map_err(|problem| format!("{}: {}", problem.key, problem.message))
}

fn start(keys: &str, fate: Option<DatagramFate>) -> (Arc<dyn Workload>, World) {
    let workload = read(keys).unwrap();
    let party = |host: usize, role| Party { role, site: format!("{host}"), address: address(host), ports: vec![5002] };
    let setting = Setting { parties: vec![party(CLIENT, 0), party(SERVER, 1)], seed: SEED };
    let mut world = World::new();
    world.net.datagram = fate;
    // The server first, as the driver has it.
    for (number, host) in [(1, SERVER), (0, CLIENT)] {
        let PartyProgram::App(app) = workload.program(number, &setting) else { panic!("a state machine") };
        world.add(host, app);
    }
    (workload, world)
}

fn combined(workload: &Arc<dyn Workload>, world: &World) -> Report {
    let roles = Datagrams.roles();
    let party = |number: usize, program| PartyReport { role: &roles[number], report: Some(world.report(program)) };
    workload.combine(vec![party(0, 1), party(1, 0)])
}

fn run(keys: &str, fate: Option<DatagramFate>) -> Report {
    let (workload, mut world) = start(keys, fate);
    world.run();
    assert_eq!((world.sockets_open(CLIENT), world.sockets_open(SERVER)), (0, 0));
    combined(&workload, &world)
}

fn plain(measured: Measured) -> Quantity {
    Names::Plain.of(measured)
}

fn values(report: &Report, quantities: &[Measured]) -> Vec<f64> {
    quantities.iter().map(|measured| report.value(plain(*measured)).unwrap_or(f64::NAN)).collect()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const COUNTS: &[Measured] = &[
    Measured::Sent,
    Measured::Received,
    Measured::Pending,
    Measured::Loss,
    Measured::Reordered,
    Measured::Duplicates,
    Measured::Damaged,
    Measured::Unknown,
];
const BURSTS: &[Measured] = &[Measured::LossBursts, Measured::LossBurstMean, Measured::LossBurstMax];

#[test]
fn a_clean_link_gives_its_delay_and_the_offered_rate() {
    // 160 B at 64 kbit/s: every 20 ms, 500 of them.
    let report = run("", None);
    assert_eq!(report.status, Status::Done);
    assert_eq!(values(&report, COUNTS), [500.0, 500.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(values(&report, &[Measured::OfferedRate, Measured::ReceivedRate]), [64_000.0, 64_000.0]);
    assert_eq!(values(&report, &[Measured::DelayMin, Measured::DelayP99, Measured::Jitter]), [0.1, 0.1, 0.0]);
    assert_eq!(values(&report, BURSTS)[..1], [0.0]);
    // The last one leaves 9.98 s after the lead of 0.1 s; the receiver knows that it was the last.
    assert_eq!(report.ended, Some(at_ms(10_180)));
    let delays = report.points(plain(Measured::Delay));
    assert_eq!((delays.len(), delays[0]), (21, (at_ms(600), 0.1)));
    assert_eq!(report.points(plain(Measured::ReceivedRate))[5].1, 64_000.0);
}

#[test]
fn lost_late_doubled_damaged_and_foreign_datagrams() {
    let fate: DatagramFate = Box::new(|index, _, data| {
        let mut broken = data.to_vec();
        broken[20] ^= 1;
        let mut foreign = data.to_vec();
        foreign[0] ^= 1;
        match index {
            3 | 4 | 9 => vec![],
            5 => vec![(ms(130), data.to_vec())],
            6 => vec![(ms(100), data.to_vec()), (ms(101), data.to_vec())],
            7 => vec![(ms(100), broken)],
            8 => vec![(ms(100), foreign)],
            _ => vec![(ms(100), data.to_vec())],
        }
    });
    let report = run("duration = '240 ms'\ndirection = 'upload'", Some(fate));
    assert_eq!(report.status, Status::Done);
    assert_eq!(values(&report, COUNTS), [12.0, 7.0, 0.0, 1.0 - 7.0 / 12.0, 1.0, 1.0, 1.0, 1.0]);
    // 3 and 4; 7, 8 and 9, as neither a damaged nor a foreign one counts as received.
    assert_eq!(values(&report, BURSTS), [2.0, 2.5, 3.0]);
    assert_eq!(report.ended, Some(at_ms(100 + 220 + 10_000)), "the time-out counts from the last departure");
}

#[test]
fn losses_at_the_end_are_a_burst_that_the_sender_knows_of() {
    let fate: DatagramFate = Box::new(|index, _, data| if index < 8 { vec![(ms(100), data.to_vec())] } else { vec![] });
    let report = run("duration = '240 ms'\ntimeout = '1 s'", Some(fate));
    assert_eq!(values(&report, COUNTS)[..4], [12.0, 8.0, 0.0, 1.0 - 8.0 / 12.0]);
    assert_eq!(values(&report, BURSTS), [1.0, 4.0, 4.0]);
    assert_eq!(report.ended, Some(at_ms(1320)));
}

#[test]
fn both_directions_are_measured_for_themselves_and_together() {
    let fate: DatagramFate = Box::new(|_, host, data| {
        let lost = host == CLIENT && data[7].is_multiple_of(4);
        if lost { vec![] } else { vec![(if host == CLIENT { ms(100) } else { ms(300) }, data.to_vec())] }
    });
    let keys = "direction = 'both'\ntraffic = 'poisson'\ninterval = '100 ms'\nduration = '20 s'\ntimeout = '1 s'";
    let report = run(keys, Some(fate));
    let of = |direction, measured| report.value(Names::Of(direction).of(measured)).unwrap();
    let (up, down) = (of(Direction::Upload, Measured::Sent), of(Direction::Download, Measured::Sent));
    assert!(up != down && (150.0..250.0).contains(&up) && (150.0..250.0).contains(&down), "{up} {down}");
    assert_eq!(of(Direction::Upload, Measured::Received), up - (up / 4.0).ceil());
    assert_eq!(of(Direction::Download, Measured::Loss), 0.0);
    assert_eq!(of(Direction::Upload, Measured::DelayMedian), 0.1);
    assert_eq!(of(Direction::Download, Measured::DelayMedian), 0.3);
    assert_eq!(values(&report, &[Measured::Sent]), [up + down]);
    assert_eq!(values(&report, &[Measured::Loss]), [1.0 - (up - (up / 4.0).ceil() + down) / (up + down)]);
    assert_eq!(report.value(plain(Measured::DelayMedian)), None);
}

#[test]
fn nothing_arriving_is_a_failure_with_its_reason() {
    let report = run("duration = '100 ms'", Some(Box::new(|_, _, _| vec![])));
    let failed = |text: &str| Status::Failed(text.to_owned());
    assert_eq!(report.status, failed("download: 5 datagrams sent, none of which arrived"));
    assert_eq!(values(&report, BURSTS), [1.0, 5.0, 5.0]);
    let (workload, mut world) = start("duration = '100 ms'\ndirection = 'upload'", None);
    // Nobody listens.
    world.programs.remove(0);
    world.run();
    let roles = Datagrams.roles();
    let report = workload.combine(vec![
        PartyReport { role: &roles[0], report: Some(world.report(0)) },
        PartyReport { role: &roles[1], report: None },
    ]);
    assert_eq!(report.value(plain(Measured::Sent)), Some(5.0));
    let (workload, mut world) = start("", None);
    world.net.ports_in_use = vec![5002];
    world.run();
    let report = combined(&workload, &world);
    let denied = "cannot open UDP port 5002: address already in use";
    assert_eq!(report.status, failed(&format!("{denied}; server: {denied}")));
}

#[test]
fn a_report_before_the_end_leaves_pending_datagrams_out() {
    let (workload, mut world) = start("", None);
    world.limit = at_ms(1100);
    world.run();
    let report = combined(&workload, &world);
    // Departures from 100 to 1100 ms, arrivals until then.
    assert_eq!((report.status.clone(), report.ended), (Status::Running, None));
    assert_eq!(values(&report, COUNTS)[..4], [51.0, 46.0, 5.0, 0.0]);
    assert_eq!(values(&report, BURSTS)[..1], [0.0]);
}

#[test]
fn sizes_of_a_trace_and_the_extremes() {
    let keys = "traffic = 'trace'\ntrace = [['0 ms', '16 B'], ['10 ms', '65507 B'], ['10 ms', '200 B']]";
    let report = run(keys, None);
    assert_eq!(values(&report, &[Measured::Received, Measured::Bytes]), [3.0, 65_723.0]);
    // More than a turn's worth at once.
    let burst = "traffic = 'trace'\ntrace = [['1 ms', '16 B']]\nduration = '1 s'";
    let (workload, mut world) = start(burst, Some(Box::new(|_, _, data| vec![(ms(2000), data.to_vec())])));
    world.net.one_way_delay = ms(2000);
    world.run();
    assert_eq!(values(&combined(&workload, &world), &[Measured::Received]), [999.0]);
}

#[test]
fn keys_say_what_is_allowed() {
    for (keys, message) in [
        ("bytes = '8 B'", "bytes: is 8 B of data; allowed: 16 B to 65507 B"),
        ("bytes = '65508 B'", "bytes: is 65508 B of data; allowed: 16 B to 65507 B"),
        ("traffic = 'trace'", "trace: is missing; allowed: a list of [time since the one before, size], such as"),
        ("traffic = 'trace'\ntrace = [['1 s', '9 B']]", "trace: is 9 B of data; allowed: 16 B to 65507 B"),
        ("traffic = 'trace'\nrate = '1 kbit/s'", "rate: is for other traffic than a trace"),
        ("trace = []", "trace: is for traffic = \"trace\""),
        ("on = '1 s'", "on: is for traffic = \"on-off\""),
        ("traffic = 'on-off'\non = '1 s'", "off: is missing; allowed: the mean length of an off period"),
        ("rate = '1 kbit/s'\ninterval = '1 s'", "interval: is given besides rate; allowed: one of the two"),
        ("rate = '10 Gbit/s'\nbytes = '100 B'", "rate: means a datagram of 100 B every 80 ns; allowed: every 1 us"),
        ("interval = '1 ms'\nduration = '1 d'", "duration: makes about 86400000 datagrams; allowed: at most 10000000"),
        ("dscp = 64", "dscp: 64 is no DSCP; allowed: 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA or LE"),
        ("timeout = '5 min'", "timeout: is 300 s; allowed: longer than zero, up to 120 s"),
        ("port = 0", "port: is 0; allowed: 1 to 65535"),
        ("direction = 'sideways'", "direction: "),
    ] {
        let problem = read(keys).map(drop).unwrap_err();
        assert!(problem.starts_with(message), "{keys}: {problem}");
    }
}
