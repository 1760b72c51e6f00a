use super::*;
use crate::events::{Event, Sink, Snapshot};
use crate::record::Status;
use bentpipe_net::time::Duration;

const COMMANDS: &str = "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n\
    [[services]]\nsite = 'hub'\napp = 'http'\n\
    [[services]]\nsite = 'hub'\ncommand = 'nginx'\n\
    [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\ncount = 3\n\
    [[workloads]]\nname = 'fetch'\napp = 'command'\nclient = 'pc'\ncommand = 'curl http://hub/'\n";

const TRANSFERS: &str = "title = 'x'\nduration = '30 s'\n[links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'pc']\n\
    [hosts.pc.tcp]\npreset = 'windows-95'\n\
    [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\ncount = 1000\n\
    [[workloads]]\nname = 'page'\napp = 'page'\nclient = 'pc'\nserver = 'hub'\nbytes = '5 kB'\nrepeat = 2\npause = '1 s'\n\
    [[cases]]\nname = 'Clean!'\n\
    [[cases]]\nname = 'noisy'\nset = { 'links.sat.noise' = 1e-5 }\n";

fn scenario(text: &str) -> Scenario {
    Scenario::parse("s.toml", text, &[]).unwrap()
}

fn run_now(text: &str, options: &SimulatedOptions) -> Result<Record, SimulatedError> {
    run(&scenario(text), options, &AtomicBool::new(false))
}

#[test]
fn commands_are_refused_by_name_or_left_out() {
    let reported = |text: &str| check(&scenario(text), false).unwrap_err().to_string();
    let expected = "s.toml:10: services.1.command: a service at hub runs a command: only a live run can; \
        `bentpipe run --virtual --skip-live` leaves it out";
    assert_eq!(reported(COMMANDS), expected);
    let without_service = COMMANDS.replace("[[services]]\nsite = 'hub'\ncommand = 'nginx'\n", "");
    let expected = "s.toml:18: workloads.1.command: workload \"fetch\" runs a command: only a live run can; \
        `bentpipe run --virtual --skip-live` leaves it out";
    assert_eq!(reported(&without_service), expected);
    let cases = format!("{COMMANDS}[[cases]]\nname = 'a'\n[[cases]]\nname = 'b'\n");
    let left_out = check(&scenario(&cases), true).unwrap();
    assert_eq!(left_out, ["a service at hub", "workload \"fetch\""]);
    assert!(matches!(run_now(COMMANDS, &SimulatedOptions::default()), Err(SimulatedError::Scenario(_))));
    let record = run_now(COMMANDS, &SimulatedOptions { skip_live: true, ..Default::default() }).unwrap();
    assert_eq!(record.left_out, left_out);
    let case = &record.cases[0];
    assert!(case.workloads.iter().all(|workload| workload.name == "echo") && case.workloads.len() == 1);
    let note = "left out: workload \"fetch\", a command, which only a live run can run";
    assert!(case.notes.iter().any(|other| other == note), "{:?}", case.notes);
}

#[test]
fn a_network_that_cannot_be_is_refused_at_once() {
    let bridge = TRANSFERS.replace("[hosts.pc.tcp]", "[hosts.pc]\nrole = 'bridge'\n[hosts.pc.tcp]");
    let reported = check(&scenario(&bridge), false).unwrap_err().to_string();
    assert!(reported.starts_with("s.toml: case \"Clean!\": ") && reported.contains("bridge"), "{reported}");
    let unknown = TRANSFERS.replace("preset = 'windows-95'", "congestion_control = 'vegas-9'");
    let reported = check(&scenario(&unknown), false).unwrap_err().to_string();
    assert!(reported.starts_with("s.toml:7: hosts.pc.tcp.congestion_control: case \"Clean!\": "), "{reported}");
}

#[test]
fn a_workload_without_a_route_is_refused_in_either_world() {
    let workload = "[[workloads]]\napp = 'ping'\nclient = 'pc'\nserver = 'far'\n";
    let links = |second: &str| {
        format!(
            "title = 'x'\n[links.a]\nkind = 'lan'\nbetween = ['hub', 'pc']\n[links.b]\nkind = 'lan'\nbetween = ['{second}', 'far']\n"
        )
    };
    let what = "there is no route between pc and far; allowed: sites that links join, over sites that route or bridge";
    let refused = |text: &str, line: u32, lead: &str| {
        let scenario = scenario(text);
        let expected = format!("s.toml:{line}: workloads.0.server: {lead}{what}");
        assert_eq!(check(&scenario, false).unwrap_err().to_string(), expected);
        assert_eq!(crate::live::check(&scenario).unwrap_err().to_string(), expected);
    };
    refused(&format!("{}{workload}", links("gate")), 11, "");
    let cases = format!(
        "{}{workload}[[cases]]\nname = 'a'\n[[cases]]\nname = 'b'\nset = {{ 'hosts.hub.role' = 'host' }}\n",
        links("hub")
    );
    refused(&cases, 11, "case \"b\": ");
    let joined = scenario(&format!("{}{workload}", links("hub")));
    assert!(check(&joined, false).is_ok() && crate::live::check(&joined).is_ok());
}

#[test]
fn a_ping_over_a_link_that_loses_everything_has_failed() {
    let text = "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\nloss = '100 %'\n\
        [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\ncount = 5\n";
    let record = run_now(text, &SimulatedOptions::default()).unwrap();
    let echo = &record.cases[0].workloads[0];
    assert_eq!((echo.status, echo.error.as_deref()), (Status::Failed, Some("no replies to 5 requests: 100 % lost")));
    let table = crate::report::text(&record, 200, false);
    let row = table.lines().find(|line| line.starts_with("echo")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["echo", "ping", "pc → hub", "100 %", "✗ failed"], "{table}");
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("echo failed (no replies to 5 requests: 100 % lost)"), "{table}");
}

#[test]
fn objectives_that_were_left_out_are_not_called_absent() {
    let objective = "objective = { within = '1 s' }\n";
    let leave_out = SimulatedOptions { skip_live: true, ..Default::default() };
    let record = run_now(&format!("{COMMANDS}{objective}"), &leave_out).unwrap();
    assert_eq!(record.left_out_objectives, ["fetch"]);
    let report = crate::report::text(&record, 200, false);
    assert!(report.contains("The objective of fetch was not judged, for it was left out."), "{report}");
    assert!(!report.contains("no objectives") && report.contains("✓ Valid"), "{report}");
    let (head, rest) = COMMANDS.split_once("[[workloads]]").unwrap();
    let fetch = rest.split_once("[[workloads]]").unwrap().1;
    let alone = run_now(&format!("{head}[[workloads]]{fetch}{objective}"), &leave_out).unwrap();
    let report = crate::report::text(&alone, 200, false);
    assert!(
        report.contains("! No workload ran. Every workload was left out") && !report.contains("✓ Valid"),
        "{report}"
    );
}

#[test]
fn two_runs_leave_the_same_bytes() {
    let record = run_now(TRANSFERS, &SimulatedOptions::default()).unwrap();
    let again = run_now(TRANSFERS, &SimulatedOptions::default()).unwrap();
    assert_eq!(record.to_json().unwrap(), again.to_json().unwrap());
    assert_eq!((record.mode, &record.created), (crate::record::Mode::Virtual, &None));
    assert!(record.complete && !record.interrupted && record.machine.is_none());
    assert_eq!(record.cases.len(), 2);
    for case in &record.cases {
        assert_eq!(case.seconds, 30.0, "exactly the duration");
        assert!(case.validity.valid && case.lateness.is_none());
        assert!(case.workloads.iter().any(|workload| workload.name == "page"));
        assert!(case.workloads.iter().any(|w| w.name == "echo" && w.status == crate::record::Status::Interrupted));
        let window = case.settings.iter().find(|s| s.host == "pc" && s.name == "receive_window").unwrap();
        assert_eq!((window.configured.as_str(), &window.kernel), ("8 KiB", &None));
        let queue = &case.links[0].directions[0].series[0];
        assert_eq!((queue.points[0].0, queue.points[1].0, queue.points.len()), (0.0, 0.1, 301));
    }
}

#[test]
fn a_stopped_run_says_so() {
    let record = run(&scenario(TRANSFERS), &SimulatedOptions::default(), &AtomicBool::new(true)).unwrap();
    assert!(record.interrupted && !record.complete && record.cases.is_empty());
    let stop = AtomicBool::new(false);
    struct StopAtFirst<'a>(&'a AtomicBool, Vec<usize>);
    impl Sink for StopAtFirst<'_> {
        fn event(&mut self, event: &Event) {
            match event {
                Event::CaseStarted(case) => self.1.push(case.number),
                Event::Snapshot(_) => self.0.store(true, std::sync::atomic::Ordering::Relaxed),
                _ => {}
            }
        }
        fn interval(&self) -> Option<Duration> {
            Some(Duration::from_secs(1))
        }
    }
    let mut sink = StopAtFirst(&stop, Vec::new());
    let record = run_with_events(&scenario(TRANSFERS), &SimulatedOptions::default(), &stop, &mut sink);
    let seen = sink.1;
    let record = record.unwrap();
    assert_eq!((seen, record.cases.len()), (vec![1], 1));
    assert!(record.interrupted && record.cases[0].seconds < 30.0);
}

/// Keeps every event.
struct Heard {
    interval: Duration,
    events: Vec<Event>,
}

impl Sink for Heard {
    fn event(&mut self, event: &Event) {
        self.events.push(event.clone());
    }
    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }
}

fn heard(text: &str, interval: Duration) -> (Record, Vec<Event>) {
    let mut sink = Heard { interval, events: Vec::new() };
    let options = SimulatedOptions::default();
    let record = run_with_events(&scenario(text), &options, &AtomicBool::new(false), &mut sink).unwrap();
    (record, sink.events)
}

/// The snapshots of each case.
fn snapshots(events: &[Event]) -> Vec<Vec<&Snapshot>> {
    let mut cases = Vec::new();
    for event in events {
        match event {
            Event::CaseStarted(_) => cases.push(Vec::new()),
            Event::Snapshot(snapshot) => cases.last_mut().unwrap().push(snapshot),
            _ => {}
        }
    }
    cases
}

#[test]
fn snapshots_come_at_the_chosen_interval_and_change_nothing() {
    // With a pause in which nothing at all happens, and no duration.
    let pause = TRANSFERS.replace("duration = '30 s'\n", "").replace("count = 1000", "count = 3\nstart = '20 s'");
    for text in [TRANSFERS, &pause] {
        let plain = run_now(text, &SimulatedOptions::default()).unwrap().to_json().unwrap();
        for interval in [10, 100, 700, 1_000, 2_500].map(Duration::from_millis) {
            let (record, events) = heard(text, interval);
            assert_eq!(record.to_json().unwrap(), plain, "{interval:?}");
            for (case, snapshots) in record.cases.iter().zip(snapshots(&events)) {
                let at: Vec<f64> = snapshots.iter().map(|snapshot| snapshot.at).collect();
                let ns = (case.seconds * 1e9).round() as u64;
                let expected = (0..).map(|n| n * interval.ns).take_while(|at| *at < ns);
                let expected: Vec<f64> = expected.map(|ns| ns as f64 / 1e9).collect();
                assert_eq!(at, expected, "{interval:?} {}", case.name);
            }
        }
    }
}

#[test]
fn snapshots_say_where_links_and_workloads_stand() {
    let (record, events) = heard(TRANSFERS, Duration::from_secs(5));
    let case = &record.cases[0];
    let of_case = &snapshots(&events)[0];
    let last = of_case[of_case.len() - 1];
    let one_way = scenario(TRANSFERS).cases[0].links[0].config.forward.medium.one_way_delay.as_secs_f64();
    for (direction, recorded) in last.links[0].directions.iter().zip(&case.links[0].directions) {
        // Nothing waits, so the delay is the link's own.
        assert!(direction.rate > 0.0 && direction.queue_bytes == 0, "{direction:?}");
        assert_eq!(direction.delay, Some(one_way));
        let delivered = &recorded.series.iter().find(|series| series.quantity == "delivered_bytes").unwrap().points;
        let then = delivered.iter().find(|(at, _)| *at == last.at).unwrap().1;
        assert_eq!(direction.delivered_bytes as f64, then);
    }
    assert!(last.links[0].up && last.links[0].name == "sat" && last.punctuality.is_none());
    let echo = last.workloads.iter().find(|workload| workload.run.workload.name == "echo").unwrap();
    assert!(echo.measurements.iter().any(|m| m.quantity == "received" && m.value > 20.0), "{echo:?}");
    let ended = events.iter().filter(|event| matches!(event, Event::WorkloadEnded(_))).count();
    assert_eq!(ended, record.cases.iter().map(|case| case.workloads.len()).sum::<usize>());
    let json = serde_json::to_value(Event::Snapshot(last.clone())).unwrap();
    assert_eq!((&json["event"], &json["at"]), (&"snapshot".into(), &25.0.into()));
}

#[test]
fn captures_have_the_names_of_live_ones() {
    let folder = std::env::temp_dir().join(format!("bentpipe-simulated-test-{}", std::process::id()));
    let options = SimulatedOptions { capture_directory: Some(folder.clone()), ..Default::default() };
    let reported = run_now(TRANSFERS, &options).unwrap_err().to_string();
    let expected = format!("cannot write {}/1-clean.pcapng: ", folder.display());
    assert!(reported.starts_with(&expected) && reported.contains("No such file"), "{reported}");
    std::fs::create_dir(&folder).unwrap();
    let read = || ["1-clean.pcapng", "2-noisy.pcapng"].map(|name| std::fs::read(folder.join(name)).unwrap());
    run_now(TRANSFERS, &options).unwrap();
    let first = read();
    run_now(TRANSFERS, &options).unwrap();
    assert!(first == read() && first.iter().all(|bytes| bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a])));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// While Linux's window grows it acknowledges every segment, whatever `ack_every` says; the record must not hide that.
#[test]
fn acknowledgements_that_are_not_as_configured_break_the_setting() {
    let seen = |tcp: &str| {
        let text = format!(
            "title = 'x'\n[links.sat]\nkind = 'geo-50-5'\nbetween = ['hub', 'pc']\n\
             [hosts.hub.tcp]\npreset = 'linux-large-buffers'\n\
             [hosts.pc.tcp]\npreset = 'linux-large-buffers'\n{tcp}\n\
             [[workloads]]\napp = 'bulk'\nclient = 'pc'\nserver = 'hub'\nbytes = '5 MB'\n"
        );
        let record = run_now(&text, &SimulatedOptions::default()).unwrap();
        let settings = &record.cases[0].settings;
        let setting = settings.iter().find(|s| s.host == "pc" && s.name == "ack_every").unwrap();
        let Some(crate::record::Observed::SegmentsPerAck { segments }) = setting.observed else {
            panic!("{setting:?}");
        };
        (segments, setting.broken)
    };
    for (tcp, from, to, broken) in [
        ("ack_every = 1", 0.9, 1.1, false),
        ("ack_every = 2", 0.9, 1.2, true),
        ("ack_every = 2\nquick_acks = 0", 1.7, 2.1, false),
        ("ack_every = 10", 7.0, 10.1, false),
        ("ack_every = 10\nquick_acks = 16", 0.9, 1.2, true),
    ] {
        let (segments, found) = seen(tcp);
        assert!((from..to).contains(&segments) && found == broken, "{tcp}: {segments} segments each, broken: {found}");
    }
}

/// F. Michel et al., IMC 2022: round trips of at least 20 ms, 50 ms in the median, with quartiles of 40 and 60 ms.
#[test]
fn low_orbit_round_trips_are_as_users_measured_them() {
    let text = "title = 'x'\n[links.sat]\nkind = 'leo'\nbetween = ['hub', 'pc']\n\
        [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\ncount = 30_000\ninterval = '500 ms'\n";
    let record = run_now(text, &SimulatedOptions::default()).unwrap();
    let rtt = record.cases[0].workloads[0].series.iter().find(|series| series.quantity == "rtt").unwrap();
    let mut all: Vec<f64> = rtt.points.iter().map(|(_, value)| value * 1e3).collect();
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all[(all.len() as f64 * share) as usize];
    let found = [at(0.0), at(0.25), at(0.5), at(0.75)];
    let expected = [20.0..25.0, 38.0..42.0, 48.0..52.0, 58.0..63.0];
    assert!(found.iter().zip(&expected).all(|(found, expected)| expected.contains(found)), "{found:?} ms");
}
