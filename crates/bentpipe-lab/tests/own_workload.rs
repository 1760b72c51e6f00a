//! A kind of workload that exists nowhere else: one file, one line of a registry, run in virtual time and live.

#![allow(missing_docs)]

use bentpipe_apps::kind::{Keys, Kind, Part, Party, PartyProgram, PortNeed, Role, Setting, Shown, Sites, Workload};
use bentpipe_apps::quantity::{COMPLETION_TIME, Quantity, Unit};
use bentpipe_apps::report::{App, Report, Status};
use bentpipe_host::namespace::Privilege;
use bentpipe_lab::live::{self, LiveOptions};
use bentpipe_lab::record::{Record, WorkloadRecord};
use bentpipe_lab::registry::Registry;
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::socket::{Arrival, Program, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A roll call: one site calls the others by datagram, again once all have answered.
#[derive(Debug)]
struct RollCall;

const CALLER: Role =
    Role { name: "caller", key: "caller", what: "the site that calls", sites: Sites::One, part: Part::Leads };
const MEMBERS: Role = Role {
    name: "member",
    key: "members",
    what: "the sites that answer",
    sites: Sites::Several { min: 2, max: 20 },
    part: Part::Serves,
};
/// From a call until all have answered, the longest.
const ROLL_TIME_MAX: Quantity = Quantity::lower("roll_time_max", Unit::Seconds);
/// Answers, of all members.
const ANSWERS: Quantity = Quantity::higher("answers", Unit::Number);
/// Calls that a member heard.
const HEARD: Quantity = Quantity::higher("heard", Unit::Number);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollCallKeys {
    calls: u32,
    port: Option<u16>,
}

#[derive(Debug)]
struct RollCallWorkload {
    keys: RollCallKeys,
}

impl std::fmt::Debug for RollCallKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls", self.calls)
    }
}

impl Kind for RollCall {
    fn name(&self) -> &'static str {
        "roll-call"
    }

    fn roles(&self) -> &'static [Role] {
        const { &[CALLER, MEMBERS] }
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[COMPLETION_TIME, ROLL_TIME_MAX, ANSWERS, HEARD]
    }

    fn shown(&self) -> Shown {
        Shown::new(&[ROLL_TIME_MAX], &[]).with_progress(ANSWERS, "answers")
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        Ok(Arc::new(RollCallWorkload { keys: keys.read()? }))
    }
}

impl Workload for RollCallWorkload {
    fn ports(&self) -> Vec<PortNeed> {
        vec![PortNeed { role: 1, key: "port", chosen: self.keys.port, default: 4242 }]
    }

    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        let party = &setting.parties[number];
        PartyProgram::App(match party.role {
            0 => {
                let members = setting.parties.iter().filter(|party| party.role == 1);
                Box::new(Caller::new(self.keys.calls, members))
            }
            _ => Box::new(Member { port: party.ports[0], calls: self.keys.calls, socket: None, heard: 0 }),
        })
    }
}

struct Caller {
    calls: u32,
    members: Vec<SocketAddr>,
    socket: Option<SocketId>,
    started: Instant,
    called: Vec<Instant>,
    missing: BTreeSet<SocketAddr>,
    answers: u32,
    longest: Duration,
    end: Option<(Instant, Status)>,
}

const PATIENCE: Duration = Duration::from_secs(5);

impl Caller {
    fn new<'a>(calls: u32, members: impl Iterator<Item = &'a Party>) -> Caller {
        let members = members.map(|party| SocketAddr::new(party.address, party.ports[0])).collect();
        Caller {
            calls,
            members,
            socket: None,
            started: Instant::ZERO,
            called: Vec::new(),
            missing: BTreeSet::new(),
            answers: 0,
            longest: Duration::ZERO,
            end: None,
        }
    }
}

impl Program for Caller {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.end.is_some() {
            return;
        }
        let socket = *self.socket.get_or_insert_with(|| {
            self.started = now;
            sockets.open_datagram(0).unwrap()
        });
        while let Ok(Some(Arrival { from, .. })) = sockets.receive_from(socket, &mut [0; 64]) {
            self.answers += u32::from(self.missing.remove(&from));
            if let (true, Some(called)) = (self.missing.is_empty(), self.called.last()) {
                self.longest = self.longest.max(now.since(*called));
            }
        }
        if !self.missing.is_empty() {
            if self.next_wake().is_some_and(|wake| wake <= now) {
                self.end = Some((now, Status::Failed(format!("{:?} did not answer", self.missing))));
            }
            return;
        }
        if self.called.len() as u32 == self.calls {
            self.end = Some((now, Status::Done));
            return;
        }
        self.called.push(now);
        self.missing = self.members.iter().copied().collect();
        for member in &self.members {
            sockets.send_to(socket, *member, b"here?").unwrap();
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match (&self.end, self.called.last()) {
            (Some(_), _) => None,
            (None, Some(called)) => Some(*called + PATIENCE),
            (None, None) => Some(Instant::ZERO),
        }
    }

    fn is_done(&self) -> bool {
        self.end.is_some()
    }
}

impl App for Caller {
    fn report(&self, _now: Instant) -> Report {
        let (ended, status) = self.end.clone().map_or((None, Status::Running), |(at, status)| (Some(at), status));
        let mut report = Report::new(status, ended);
        report.put(ANSWERS, f64::from(self.answers));
        report.put(ROLL_TIME_MAX, self.longest.as_secs_f64());
        if let Some(ended) = ended {
            report.put(COMPLETION_TIME, ended.since(self.started).as_secs_f64());
        }
        report
    }
}

struct Member {
    port: u16,
    calls: u32,
    socket: Option<SocketId>,
    heard: u32,
}

impl Program for Member {
    fn poll(&mut self, _now: Instant, sockets: &mut dyn Sockets) {
        let socket = *self.socket.get_or_insert_with(|| sockets.open_datagram(self.port).unwrap());
        while let Ok(Some(Arrival { from, .. })) = sockets.receive_from(socket, &mut [0; 64]) {
            self.heard += 1;
            sockets.send_to(socket, from, b"here!").unwrap();
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.socket.is_none().then_some(Instant::ZERO)
    }

    fn is_done(&self) -> bool {
        self.heard == self.calls
    }
}

impl App for Member {
    fn report(&self, now: Instant) -> Report {
        let mut report = match self.is_done() {
            true => Report::new(Status::Done, Some(now)),
            false => Report::new(Status::Running, None),
        };
        report.put(HEARD, f64::from(self.heard));
        report
    }
}

/// Two links with a one-way delay of 20 ms; the members' sites are ends of different ones.
const SCENARIO: &str = "title = 'x'\n\
    [links.east]\nkind = 'lan'\nbetween = ['hub', 'ship']\none_way_delay = '20 ms'\n\
    [links.west]\nkind = 'lan'\nbetween = ['hub', 'clinic']\none_way_delay = '20 ms'\n\
    [[workloads]]\nname = 'roll'\napp = 'roll-call'\ncaller = 'hub'\nmembers = ['ship', 'clinic']\ncalls = 3\n\
    objective = { within = '1 s' }\ncopies = 2\n";

fn registry() -> Registry {
    Registry::default().with_workloads(bentpipe_apps::Registry::standard().with(RollCall))
}

fn scenario() -> Scenario {
    Scenario::parse_with(&Arc::new(registry()), "s.toml", SCENARIO, &[]).unwrap()
}

/// Every copy of the workload called the roll three times.
fn check(record: &Record) {
    let workloads = &record.cases[0].workloads;
    assert_eq!(workloads.len(), 2);
    for workload in workloads {
        assert_eq!(workload.objective.as_ref().unwrap().met, Some(true), "{workload:#?}");
        assert_eq!(value(workload, "answers"), 6.0);
        assert_eq!(value(workload, "heard"), 3.0);
        assert!((0.12..0.5).contains(&value(workload, "completion_time")), "{workload:#?}");
    }
}

fn value(workload: &WorkloadRecord, name: &str) -> f64 {
    workload.measurement(name).unwrap().value
}

#[test]
fn in_virtual_time() {
    let record = simulated::run(&scenario(), &SimulatedOptions::default(), &AtomicBool::new(false)).unwrap();
    check(&record);
    let longest = value(&record.cases[0].workloads[0], "roll_time_max");
    assert!((longest - 0.04).abs() < 1e-3, "a round trip, and little on the wire: {longest}");
}

#[test]
fn live() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root (bentpipe itself does not: it enters a user namespace before it has threads)");
        return;
    }
    let options = LiveOptions { privilege: Privilege::Root, capture_directory: None, series: Default::default() };
    let record = live::run(&scenario(), &options, &AtomicBool::new(false), &mut ()).unwrap();
    check(&record);
}

#[test]
fn its_keys_are_checked_like_any_others() {
    for (from, to, parts) in [
        ("calls = 3", "call = 3", &["s.toml:15", "workloads.0.call", "allowed: calls, port", "members", "spread"][..]),
        ("calls = 3", "calls = 'x'", &["s.toml:15", "workloads.0.calls"]),
        ("'clinic']\ncalls", "'moon']\ncalls", &["s.toml:14", "workloads.0.members", "moon", "clinic, hub, ship"]),
        ("['ship', 'clinic']\ncalls", "['ship']\ncalls", &["s.toml:14", "workloads.0.members", "2 to 20"]),
        ("['ship', 'clinic']\ncalls", "['ship', 'hub']\ncalls", &["s.toml:14", "caller already"]),
        ("caller = 'hub'\n", "", &["workloads.0.caller", "is missing; allowed: the site that calls"]),
        ("within = '1 s'", "loss = '1 %'", &["s.toml:16", "loss", "roll-call"]),
        (
            "'roll-call'",
            "'roll'",
            &["s.toml:12", "workloads.0.app", "ping, bulk, ftp, page, datagrams, type, command, roll-call"],
        ),
        ("copies = 2", "copies = 2\nport = 7", &["s.toml:18", "7 is taken at ship already"]),
    ] {
        assert!(SCENARIO.contains(from), "{from}");
        let text = SCENARIO.replacen(from, to, 1);
        let problem = Scenario::parse_with(&Arc::new(registry()), "s.toml", &text, &[]).unwrap_err().to_string();
        for part in parts {
            assert!(problem.contains(part), "{to:?}: {problem:?} lacks {part:?}");
        }
    }
}
