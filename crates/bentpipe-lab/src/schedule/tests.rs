use super::*;
use std::collections::{BTreeMap, VecDeque};

/// Programs that end when the test says, in a time that jumps.
struct Fake {
    plan: Plan,
    now: Instant,
    /// The scripts of the programs that start next.
    lives: VecDeque<Life>,
    apps: Vec<(Instant, Life)>,
    /// The task of each program whose end was not announced; a world that does not know announces none.
    tasks: Option<BTreeMap<usize, usize>>,
    /// How often it was asked whether a program has ended.
    asked: usize,
    /// Starts and stops.
    log: Vec<(Instant, String)>,
}

#[derive(Clone)]
struct Life {
    lasts: Option<Duration>,
    status: Status,
}

fn lasts(seconds: u64) -> Life {
    Life { lasts: Some(Duration::from_secs(seconds)), status: Status::Done }
}

fn fails_after(seconds: u64) -> Life {
    Life { status: Status::Failed("no".to_owned()), ..lasts(seconds) }
}

const FOR_EVER: Life = Life { lasts: None, status: Status::Running };

impl Fake {
    fn new(case: &Case, lives: impl IntoIterator<Item = Life>) -> Fake {
        let specs: Vec<_> = case.network_links().into_iter().map(|(spec, _)| spec).collect();
        Fake {
            plan: Plan::new(&specs, &case.network_roles()).unwrap(),
            now: Instant::ZERO,
            lives: lives.into_iter().collect(),
            apps: Vec::new(),
            tasks: None,
            asked: 0,
            log: Vec::new(),
        }
    }

    fn end_of(&self, app: usize) -> Option<Instant> {
        let (started, life) = &self.apps[app];
        life.lasts.map(|time| *started + time)
    }
}

impl World for Fake {
    type App = usize;
    type Command = ();
    type Error = String;

    fn now(&self) -> Instant {
        self.now
    }
    fn plan(&self) -> &Plan {
        &self.plan
    }
    fn start_app(&mut self, site: usize, _app: Box<dyn App>, task: Option<usize>) -> Result<usize, String> {
        self.log.push((self.now, format!("start at {}", self.plan.sites[site].name)));
        self.apps.push((self.now, self.lives.pop_front().unwrap_or(FOR_EVER)));
        let app = self.apps.len() - 1;
        if let (Some(tasks), Some(task)) = (&mut self.tasks, task) {
            tasks.insert(app, task);
        }
        Ok(app)
    }
    fn take_ended(&mut self) -> EndedTasks {
        let Some(mut tasks) = self.tasks.take() else { return EndedTasks::Any };
        let ended = tasks.extract_if(.., |app, _| self.end_of(*app).is_some_and(|end| end <= self.now));
        let ended = EndedTasks::These(ended.map(|(_, task)| task).collect());
        self.tasks = Some(tasks);
        ended
    }
    fn has_ended(&mut self, app: &mut usize) -> bool {
        self.asked += 1;
        self.end_of(*app).is_some_and(|end| end <= self.now)
    }
    fn report(&self, app: &usize) -> Option<Report> {
        let ended = self.end_of(*app).filter(|end| *end <= self.now);
        let status = if ended.is_some() { self.apps[*app].1.status.clone() } else { Status::Running };
        Some(Report::new(status, ended))
    }
    fn stop_app(&mut self, app: usize) -> Option<Report> {
        self.log.push((self.now, format!("stop {app}")));
        self.report(&app)
    }
    fn start_command(&mut self, _site: usize, argv: &[String]) -> Result<(), String> {
        Err(format!("cannot start {}", argv[2]))
    }
    fn command_has_ended(&mut self, (): &mut ()) -> bool {
        false
    }
    fn end_command(&mut self, (): (), _end: bool) -> EndedCommand {
        panic!("none was started")
    }
    fn advance(&mut self, until: Instant, _snapshot: Instant) -> Advance {
        let ends = (0..self.apps.len()).filter_map(|app| self.end_of(app)).filter(|end| *end > self.now);
        match ends.min() {
            Some(end) if end <= until => self.now = end,
            None if until == Instant::FAR => return Advance::Idle,
            _ => self.now = until,
        }
        Advance::Went
    }
    fn state(&mut self) -> WorldState {
        WorldState::default()
    }
}

const LINK: &str = "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n";
const PING: &str = "[[workloads]]\nname = 'p'\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\n";
const UPLOAD: &str = "[[workloads]]\nname = 'up'\napp = 'bulk'\nclient = 'pc'\nserver = 'hub'\nbytes = '1 B'\n\
    direction = 'upload'\nobjective = { within = '9 s' }\n";
const COMMAND: &str = "[[workloads]]\nname = 'c'\napp = 'command'\nclient = 'pc'\ncommand = 'true'\nrepeat = 4\n";

fn case(text: &str) -> Case {
    Scenario::parse("x.toml", text, &[]).unwrap().cases.remove(0)
}

/// A run of a workload: its name and number, start, status and error; or a note.
type Reported = (String, f64, String, Option<String>);

/// Runs a case to its end: its reports, and the time then; the same in a world that knows which programs end and in one
/// that does not.
fn run(text: &str, lives: &[Life], stop: bool) -> (Vec<Reported>, f64, Fake) {
    let (reported, end, world) = run_in(text, lives, stop, true);
    let (other, other_end, other_world) = run_in(text, lives, stop, false);
    assert_eq!((&reported, end, &world.log), (&other, other_end, &other_world.log));
    (reported, end, world)
}

fn run_in(text: &str, lives: &[Life], stop: bool, knows: bool) -> (Vec<Reported>, f64, Fake) {
    let case = case(text);
    let mut world = Fake::new(&case, lives.iter().cloned());
    world.tasks = knows.then(BTreeMap::new);
    let mut schedule = Schedule::start(&case, 1, ScheduleOptions::default(), &mut world).unwrap();
    schedule.drive(&mut world, &AtomicBool::new(stop), &mut ());
    let ended = schedule.finish(&mut world);
    let reported = ended
        .workloads
        .into_iter()
        .map(|w| (format!("{} {}", w.label(), w.repeat), w.start, w.status.to_string(), w.error));
    let reported = reported.chain(ended.notes.into_iter().map(|note| (note, 0.0, String::new(), None)));
    (reported.collect(), world.now.as_secs_f64(), world)
}

fn entry(what: &str, start: f64, status: &str) -> Reported {
    (what.to_owned(), start, status.to_owned(), None)
}

fn failed(what: &str, start: f64, status: &str, error: &str) -> Reported {
    (what.to_owned(), start, status.to_owned(), Some(error.to_owned()))
}

#[test]
fn repeats_start_at_their_times() {
    let text = format!("{LINK}{PING}start = '5 s'\nrepeat = 3\npause = '1 s'\n");
    let (reported, end, world) = run(&text, &[lasts(2), lasts(4), lasts(2)], false);
    assert_eq!(reported, [entry("p 1", 5.0, "done"), entry("p 2", 8.0, "done"), entry("p 3", 13.0, "done")]);
    assert_eq!(end, 15.0);
    assert!(world.log.contains(&(Instant { ns: 7_000_000_000 }, "stop 0".to_owned())), "{:?}", world.log);
    let text = format!("{LINK}{PING}repeat = 2\n");
    let (reported, end, _) = run(&text, &[lasts(0), lasts(1)], false);
    assert_eq!((reported, end), (vec![entry("p 1", 0.0, "done"), entry("p 2", 0.0, "done")], 1.0), "no pause");
}

#[test]
fn a_workload_lasts_until_the_end_with_pauses_of_its_own() {
    let pause = "pause = { distribution = 'exponential', mean = '3 s', least = '1 s', most = '9 s' }\n";
    let text = format!("duration = '100 s'\n{LINK}{PING}repeat = 'until the end'\n{pause}");
    let lives = vec![lasts(2); 60];
    let (reported, end, _) = run(&text, &lives, false);
    assert_eq!(end, 100.0);
    let starts: Vec<f64> = reported.iter().map(|reported| reported.1).collect();
    let pauses: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0] - 2.0).collect();
    assert!(pauses.iter().all(|pause| (1.0 - 1e-9..=9.0 + 1e-9).contains(pause)), "{pauses:?}");
    assert!(pauses.len() > 10 && pauses.iter().any(|pause| *pause > 4.0), "{pauses:?}");
    assert!(reported.iter().rev().skip(1).all(|reported| reported.2 == "done"), "{reported:?}");
    assert_eq!(run(&text, &lives, false).0, reported, "the same seed draws the same");
    // Runs that end at once do not hold up time.
    let text = format!("duration = '1 s'\n{LINK}{PING}repeat = 'until the end'\n");
    let (reported, end, _) = run(&text, &vec![lasts(0); 2000], false);
    assert_eq!((reported.len(), end), (1001, 1.0));
}

#[test]
fn copies_start_apart_as_the_seed_says() {
    let text = format!("{LINK}{PING}start = '5 s'\ncopies = 4\nspread = '2 s'\n");
    let starts = |text: &str| -> Vec<f64> {
        let mut reported = run(text, &[lasts(9), lasts(9), lasts(9), lasts(9)], false).0;
        reported.sort_by(|a, b| a.0.cmp(&b.0));
        reported.iter().map(|reported| reported.1).collect()
    };
    let apart = starts(&text);
    assert_eq!(apart[0], 5.0, "the first at its time");
    assert!(apart[1..].iter().all(|start| (5.0..7.0).contains(start)), "{apart:?}");
    assert!(apart[1] != apart[2] && apart[2] != apart[3] && apart[1] != 5.0, "{apart:?}");
    assert_eq!(starts(&text), apart);
    // One more shifts no other.
    assert_eq!(starts(&text.replace("copies = 4", "copies = 3")), apart[..3]);
    assert_eq!(starts(&text.replace("copies = 4\n", "")), [5.0], "one alone has nothing to be spread");
    assert_eq!(starts(&text.replace("spread = '2 s'\n", "")), [5.0; 4]);
}

#[test]
fn the_background_ends_with_the_others() {
    let text = format!("{LINK}{PING}background = true\n{UPLOAD}");
    // Ping, then the upload's server and client.
    let (reported, end, _) = run(&text, &[FOR_EVER, lasts(3), lasts(3)], false);
    assert_eq!((reported, end), (vec![entry("up 1", 0.0, "done"), entry("p 1", 0.0, "done")], 3.0));
    let text = format!("{LINK}{PING}background = true\n");
    let (reported, end, _) = run(&text, &[lasts(3)], false);
    assert_eq!((reported, end), (vec![entry("p 1", 0.0, "done")], 3.0), "only a background: it is waited for");
}

#[test]
fn a_duration_and_a_stop_cut_what_runs() {
    let text = format!("duration = '7 s'\n{LINK}{PING}background = true\n{UPLOAD}");
    let (reported, end, _) = run(&text, &[], false);
    assert_eq!((reported, end), (vec![entry("p 1", 0.0, "done"), entry("up 1", 0.0, "interrupted")], 7.0));
    let (reported, end, _) = run(&text, &[], true);
    assert_eq!((reported, end), (vec![entry("p 1", 0.0, "interrupted"), entry("up 1", 0.0, "interrupted")], 0.0));
}

#[test]
fn a_server_that_still_receives_is_waited_for() {
    let text = format!("{LINK}{UPLOAD}");
    let (reported, end, _) = run(&text, &[lasts(10), lasts(3)], false);
    assert_eq!((reported, end), (vec![entry("up 1", 0.0, "done")], 10.0));
    let (reported, end, _) = run(&text, &[FOR_EVER, lasts(3)], false);
    assert_eq!((reported, end), (vec![entry("up 1", 0.0, "done")], 123.0), "but not for ever");
    let (reported, end, _) = run(&text, &[FOR_EVER, fails_after(3)], false);
    assert_eq!((reported, end), (vec![failed("up 1", 0.0, "failed", "no")], 3.0), "and not after a failure");
}

#[test]
fn what_can_neither_go_on_nor_end_is_reported() {
    let text = format!("{LINK}{UPLOAD}{PING}background = true\nstart = '8 s'\n");
    let case = case(&text);
    let mut world = Fake::new(&case, [FOR_EVER, FOR_EVER, FOR_EVER]);
    let mut schedule = Schedule::start(&case, 1, ScheduleOptions::default(), &mut world).unwrap();
    schedule.drive(&mut world, &AtomicBool::new(false), &mut ());
    let workloads = schedule.finish(&mut world).workloads;
    assert_eq!(workloads.len(), 2);
    for workload in &workloads {
        assert_eq!((workload.status.name(), workload.error.as_deref()), ("interrupted", Some(STUCK)));
    }
    assert_eq!(workloads[0].objective.as_ref().unwrap().met, Some(false));
    assert_eq!(world.now, Instant { ns: 8_000_000_000 }, "what was still to start has started");
}

#[test]
fn what_cannot_start_has_failed() {
    let (reported, end, _) = run(&format!("{LINK}{COMMAND}{PING}"), &[lasts(2)], false);
    assert_eq!(
        (reported, end),
        (vec![failed("c 1", 0.0, "failed", "cannot start true"), entry("p 1", 0.0, "done")], 2.0),
        "once, however often it should have run"
    );
}

#[test]
fn services_start_first_and_say_when_they_failed() {
    let text = format!("{LINK}{PING}[[services]]\nsite = 'hub'\napp = 'http'\n");
    let (reported, end, world) = run(&text, &[fails_after(1), lasts(3)], false);
    let note = "a service at hub failed: no";
    assert_eq!((reported, end), (vec![entry("p 1", 0.0, "done"), entry(note, 0.0, "")], 3.0));
    assert_eq!(world.log[0].1, "start at hub");
    let text = format!("{text}[[services]]\nsite = 'hub'\ncommand = 'true'\n{COMMAND}");
    let case = case(&text);
    let mut world = Fake::new(&case, [FOR_EVER, lasts(3)]);
    let refused = Schedule::start(&case, 1, ScheduleOptions::default(), &mut world);
    assert_eq!(refused.err().as_deref(), Some("cannot start true"));
    let skip = ScheduleOptions { skip_commands: true, ..ScheduleOptions::default() };
    let mut world = Fake::new(&case, [FOR_EVER, lasts(3)]);
    let mut schedule = Schedule::start(&case, 1, skip, &mut world).unwrap();
    schedule.drive(&mut world, &AtomicBool::new(false), &mut ());
    assert_eq!(schedule.finish(&mut world).workloads.len(), 1, "commands are left out");
}

/// Time for a run is linear in its workloads: each is looked at when something of it is due or ends, not whenever another is.
#[test]
fn a_workload_is_looked_at_when_it_ends_and_not_otherwise() {
    let copies = 2_000;
    let text = format!("{LINK}{PING}copies = {copies}\nspread = '60 s'\n");
    let lives: Vec<Life> = (0..copies).map(|copy| lasts(1 + copy % 50)).collect();
    let (reported, _, world) = run_in(&text, &lives, false, true);
    assert_eq!(reported.len(), 2_000);
    assert!(reported.iter().all(|(_, _, status, _)| status == "done"));
    // Once in the pass after its start, once when it ends.
    assert!(world.asked <= 3 * reported.len(), "{} times", world.asked);
}

/// Compares each snapshot with the starts and ends before it, of workloads that run twice each.
#[derive(Default)]
struct Counting {
    workloads: usize,
    running: usize,
    ended: BTreeMap<String, u32>,
    snapshots: usize,
}

impl Sink for Counting {
    fn event(&mut self, event: &Event) {
        match event {
            Event::WorkloadStarted(_) => self.running += 1,
            Event::WorkloadEnded(ended) => {
                self.running -= 1;
                *self.ended.entry(ended.run.workload.to_string()).or_default() += 1;
            }
            Event::Snapshot(snapshot) => {
                let over = self.ended.values().filter(|runs| **runs == 2).count();
                let waiting = self.workloads - over - self.running;
                assert_eq!((snapshot.running, snapshot.waiting), (self.running, waiting), "{} s", snapshot.at);
                assert_eq!(snapshot.workloads.len(), self.running.min(self.workloads_max()));
                self.snapshots += 1;
            }
            _ => {}
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn workloads_max(&self) -> usize {
        2
    }
}

#[test]
fn snapshots_count_what_runs_and_what_waits() {
    let twice = "repeat = 2\npause = '1 s'\n";
    let text =
        format!("{LINK}{PING}copies = 6\nspread = '9 s'\n{twice}{UPLOAD}background = true\nstart = '2 s'\n{twice}");
    let case = case(&text);
    for knows in [true, false] {
        let mut world = Fake::new(&case, (0..14).map(|life| lasts(1 + life % 4)));
        world.tasks = knows.then(BTreeMap::new);
        let mut counting = Counting { workloads: 7, ..Counting::default() };
        let mut schedule = Schedule::start(&case, 1, ScheduleOptions::default(), &mut world).unwrap();
        schedule.drive(&mut world, &AtomicBool::new(false), &mut counting);
        assert!(counting.snapshots > 20 && counting.running == 0, "{}", counting.snapshots);
        assert_eq!(schedule.finish(&mut world).workloads.len(), 14);
    }
}
