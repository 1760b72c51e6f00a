//! Typing into a session, against a link and its faults.

mod support;

use bentpipe_apps::kind::{Keys, Kind, Party, PartyProgram, PartyReport, Setting, Workload};
use bentpipe_apps::quantity::{self, Quantity};
use bentpipe_apps::typing::Type;
use bentpipe_apps::{Report, Status};
use bentpipe_net::time::Duration;
use std::sync::Arc;
use support::{CLIENT, FaultKind, SEED, SERVER, World, address};

fn read(keys: &str) -> Result<Arc<dyn Workload>, String> {
    let keys = Keys { kind: "type", table: keys.parse().unwrap(), shared: vec![], spread: Duration::ZERO };
    Type.read(keys).map_err(|problem| format!("{}: {}", problem.key, problem.message))
}

fn run(keys: &str, mut world: World) -> Report {
    let workload = read(keys).unwrap();
    let party = |host: usize, role| Party { role, site: format!("{host}"), address: address(host), ports: vec![23] };
    let setting = Setting { parties: vec![party(CLIENT, 0), party(SERVER, 1)], seed: SEED };
    for (number, host) in [(1, SERVER), (0, CLIENT)] {
        let PartyProgram::App(app) = workload.program(number, &setting) else { panic!("a state machine") };
        world.add(host, app);
    }
    world.run();
    let roles = Type.roles();
    let party = |number: usize, program| PartyReport { role: &roles[number], report: Some(world.report(program)) };
    let report = workload.combine(vec![party(0, 1), party(1, 0)]);
    if report.status == Status::Done {
        assert_eq!((world.sockets_open(CLIENT), world.sockets_open(SERVER)), (0, 0));
    }
    report
}

fn values(report: &Report, quantities: &[Quantity]) -> Vec<f64> {
    quantities.iter().map(|quantity| report.value(*quantity).unwrap_or(f64::NAN)).collect()
}

const COUNTS: &[Quantity] =
    &[quantity::KEYS, quantity::ECHOED, quantity::WRONG_CHARACTERS, quantity::LOST_CHARACTERS, quantity::LINES];

#[test]
fn an_echo_takes_a_round_trip() {
    let report = run("characters = 205\nline = 40", World::new());
    assert_eq!(report.status, Status::Done);
    assert_eq!(values(&report, COUNTS), [205.0, 205.0, 0.0, 0.0, 5.0]);
    // 100 ms and 8 us each way for a byte at 1 Mbit/s.
    assert_eq!(values(&report, &[quantity::ECHO_MEDIAN]), [0.200016]);
    assert_eq!(values(&report, &[quantity::ECHO_MAX, quantity::LINE_MEDIAN]), [0.200032; 2], "Enter has two bytes");
    let echoes = report.points(quantity::ECHO);
    assert_eq!(echoes.len(), 205);
    let typing = echoes.windows(2).filter(|pair| (0.1..=0.3).contains(&(pair[1].0.since(pair[0].0).as_secs_f64())));
    assert!(typing.count() >= 200);
}

#[test]
fn a_line_leaves_as_a_whole_and_is_echoed_at_home() {
    let report = run("mode = 'line'\ncharacters = 243\nline = 80\noutput = '100 B'", World::new());
    assert_eq!(report.status, Status::Done);
    assert_eq!(values(&report, COUNTS), [243.0, 243.0, 0.0, 0.0, 3.0]);
    assert_eq!(values(&report, &[quantity::ECHO_MAX]), [0.0]);
    // 82 bytes there, 100 back.
    assert_eq!(values(&report, &[quantity::LINE_MEDIAN]), [0.201456]);
    // This world counts no acknowledgements.
    assert_eq!(values(&report, &[quantity::PACKETS_PER_LINE]), [2.0]);
}

#[test]
fn output_follows_the_echo() {
    let report = run("text = '''\nls -l\nexit'''\noutput = '10 kB'", World::new());
    assert_eq!(report.status, Status::Done);
    assert_eq!(values(&report, COUNTS), [11.0, 11.0, 0.0, 0.0, 2.0]);
    let line = report.value(quantity::LINE_MEDIAN).unwrap();
    assert!((line - (0.2 + 10_004.0 * 8e-6)).abs() < 1e-9, "{line}");
}

#[test]
fn damage_is_counted_and_a_broken_session_has_failed() {
    let damaged = World::new().with_fault(0, CLIENT, 10, FaultKind::Damage);
    let report = run("characters = 41", damaged);
    assert_eq!((report.status.clone(), values(&report, COUNTS)[2]), (Status::Done, 1.0));
    let damaged = World::new().with_fault(0, SERVER, 10, FaultKind::Damage);
    let report = run("characters = 41", damaged);
    assert_eq!(values(&report, COUNTS)[2], 2.0, "at the server, and in the echo");
    let reset = World::new().with_fault(0, CLIENT, 10, FaultKind::Reset);
    let report = run("characters = 41", reset);
    let Status::Failed(why) = &report.status else { panic!("{report:?}") };
    assert!(why.starts_with("connection ended: connection reset by peer; "), "{why}");
    assert!(values(&report, COUNTS)[3] > 0.0);
    // The echo of the tenth is lost too.
    let silent = World::new().with_fault(0, SERVER, 10, FaultKind::Blackhole);
    let report = run("characters = 41\ntimeout = '30 s'", silent);
    let why = "gave up after 30 s without progress: 41 of 41 keys typed, 32 not echoed";
    assert_eq!(report.status, Status::Failed(why.to_owned()));
    let ended = World::new().with_fault(0, CLIENT, 10, FaultKind::End);
    let Status::Failed(why) = run("characters = 41", ended).status else { panic!("ended too early") };
    assert!(why.starts_with("the server ended the session: "), "{why}");
}

#[test]
fn keys_say_what_is_allowed() {
    for (keys, message) in [
        ("characters = 0", "characters: is 0; allowed: 1 to 1000000"),
        ("line = 10001", "line: is 10001; allowed: 1 to 10000"),
        ("text = ''", "text: is empty; allowed: at least one character"),
        ("text = 'x'\nline = 3", "line: is given besides text, which has its own; allowed: one of the two"),
        ("interval = '0 s'", "interval: is zero; allowed: longer than zero"),
        ("output = '2 MiB'", "output: is 2097152 B; allowed: 0 B to 1048576 B"),
        ("port = 0", "port: is 0; allowed: 1 to 65535"),
        ("mode = 'word'", "mode: "),
    ] {
        let problem = read(keys).map(drop).unwrap_err();
        assert!(problem.starts_with(message), "{keys}: {problem}");
    }
}
