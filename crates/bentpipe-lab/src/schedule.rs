//! When what runs: one schedule for live and virtual runs. A [`World`] starts the programs and lets time pass.

use crate::collect::workloads::{self, EndedCommand};
use crate::events::{
    CaseEnded, CaseStarted, Emitter, Event, Sink, WorkloadProgress, WorkloadRun, WorkloadSnapshot, WorldState,
};
use crate::record::{self, CaseRecord, FORMAT, Mode, Record, VERSION, WorkloadRecord};
use crate::scenario::workload::{Placement, Repeat, Service, Workload};
use crate::scenario::{Case, Scenario};
use crate::thinning::{SeriesPoints, WorkloadRecords};
use bentpipe_apps::kind::{Part, PartyProgram, PartyReport};
use bentpipe_apps::report::{App, Report, Status};
use bentpipe_net::seed::{Seed, unit};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::Plan;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where a case's programs run, and whose time it is.
pub trait World {
    /// One of our programs under way.
    type App;
    /// A command under way.
    type Command;
    /// Why something could not be started.
    type Error: fmt::Display;

    /// Time since the network was made.
    fn now(&self) -> Instant;
    /// Sites and addresses.
    fn plan(&self) -> &Plan;
    /// Starts a program of task number `task` (`None`: a service); it has been polled once when this returns.
    fn start_app(&mut self, site: usize, app: Box<dyn App>, task: Option<usize>) -> Result<Self::App, Self::Error>;
    /// The tasks of which a program may have ended since the last call. With thousands of tasks, most of which go on, this is
    /// what makes the time for a run linear in them.
    fn take_ended(&mut self) -> EndedTasks {
        EndedTasks::Any
    }
    /// True if a program says that it is done (a server may still serve).
    fn has_ended(&mut self, app: &mut Self::App) -> bool;
    /// A program's report so far; `None`: it is gone.
    fn report(&self, app: &Self::App) -> Option<Report>;
    /// Ends a program; its last report.
    fn stop_app(&mut self, app: Self::App) -> Option<Report>;
    /// Starts a command.
    fn start_command(&mut self, site: usize, argv: &[String]) -> Result<Self::Command, Self::Error>;
    /// True if a command has ended.
    fn command_has_ended(&mut self, command: &mut Self::Command) -> bool;
    /// Ends a command if need be (`end`) and says how it went.
    fn end_command(&mut self, command: Self::Command, end: bool) -> EndedCommand;
    /// Lets time pass until a program may have ended, at the latest until `until`, and until `snapshot` if something can
    /// still happen. It may return early.
    fn advance(&mut self, until: Instant, snapshot: Instant) -> Advance;
    /// The network's state; called for a snapshot only.
    fn state(&mut self) -> WorldState;
}

/// Tasks of which a program may have ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndedTasks {
    /// Any of them: the world does not know.
    Any,
    /// Only these, in any order.
    These(Vec<usize>),
}

/// The result of advancing time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advance {
    /// Something may have happened.
    Went,
    /// Nothing happened, and nothing ever will by itself.
    Idle,
}

/// Longest time for a server to finish after its client succeeded.
const SERVER_GRACE: Duration = Duration::from_secs(120);
/// Least time between the starts of two runs of a workload that lasts until the end.
const LEAST_BETWEEN_RUNS: Duration = Duration::from_millis(1);
/// The error of a workload that can neither go on nor end.
const STUCK: &str = "nothing more can happen (no packet is under way and no timer runs)";

/// The programs of one case.
pub struct Schedule<'a, W: World> {
    case: &'a Case,
    seed: Seed,
    tasks: Vec<Task<'a, W>>,
    /// Tasks by the time at which something is to be done though no program ends.
    due: BTreeSet<(Instant, usize)>,
    /// Tasks to look at in the next pass, whatever their time.
    changed: BTreeSet<usize>,
    /// Tasks that are not over: those in the background, and those that are waited for.
    left: Left,
    /// Tasks a run of which is under way.
    running: BTreeSet<usize>,
    services: Vec<RunningService<'a, W>>,
    records: WorkloadRecords,
    interrupted: bool,
}

/// Numbers of tasks that are not over.
#[derive(Clone, Copy, Default)]
struct Left {
    background: usize,
    waited_for: usize,
    /// There are no others than those in the background: they are waited for.
    only_background: bool,
}

/// Options of a case's schedule.
#[derive(Clone, Copy, Default)]
pub struct ScheduleOptions {
    /// Leaves out commands, which a virtual world cannot run.
    pub skip_commands: bool,
    /// The points of series that are kept.
    pub series: SeriesPoints,
}

/// The results of a case's programs.
pub struct Ended {
    /// A record of every run of every workload, in the order of their ends.
    pub workloads: Vec<WorkloadRecord>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

struct RunningService<'a, W: World> {
    site: &'a str,
    party: RunningParty<W>,
}

/// A workload with its place in the schedule.
struct Task<'a, W: World> {
    workload: &'a Workload,
    /// Runs finished.
    done: u32,
    /// When the next run starts.
    next_start: Instant,
    running: Option<Running<W>>,
    /// Its time in [`Schedule::due`].
    due: Option<Instant>,
}

struct Running<W: World> {
    started: Instant,
    /// In the order of the workload's parties.
    parties: Vec<(Part, RunningParty<W>)>,
    /// When the parties that lead were first found to have ended.
    led_until: Option<Instant>,
}

enum RunningParty<W: World> {
    App(W::App),
    Command(W::Command),
    /// Nothing: the host's own stack answers.
    Stack,
}

/// Why a run of a workload is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    ByItself,
    /// The case is over.
    Cancelled,
    /// Nothing more can happen.
    Stuck,
}

impl<'a, W: World> Schedule<'a, W> {
    /// Starts the services; the time of the workloads starts when all stand.
    pub fn start(
        case: &'a Case,
        seed: u64,
        options: ScheduleOptions,
        world: &mut W,
    ) -> Result<Schedule<'a, W>, W::Error> {
        let seed = Seed(seed);
        let skipped = |placement: &Placement| options.skip_commands && placement.workload.command().is_some();
        let mut services = Vec::new();
        for (number, service) in case.services.iter().enumerate() {
            if !skipped(&service.placement) {
                services.extend(start_service(service, seed.child(&format!("services/{number}")).0, world)?);
            }
        }
        let now = world.now();
        let tasks: Vec<Task<'a, W>> = case
            .workloads
            .iter()
            .filter(|workload| !skipped(&workload.placement))
            .map(|workload| {
                let mut drawn = seed.stream(&format!("workloads/{}/start", workload.id));
                let late = Duration::from_secs_f64(workload.spread.as_secs_f64() * unit(&mut drawn));
                Task { workload, done: 0, next_start: now + workload.start + late, running: None, due: None }
            })
            .collect();
        let background = tasks.iter().filter(|task| task.workload.background).count();
        let waited_for = tasks.len() - background;
        let mut schedule = Schedule {
            case,
            seed,
            left: Left { background, waited_for, only_background: waited_for == 0 },
            due: BTreeSet::new(),
            changed: BTreeSet::new(),
            running: BTreeSet::new(),
            tasks,
            services,
            records: WorkloadRecords::new(options.series),
            interrupted: false,
        };
        (0..schedule.tasks.len()).for_each(|i| schedule.set_due(i));
        Ok(schedule)
    }

    /// Starts, watches and ends the workloads until all are done.
    pub fn drive(&mut self, world: &mut W, stop: &AtomicBool, sink: &mut dyn Sink) {
        let mut events = Emitter::new(self.case, sink);
        let end = self.case.duration.map_or(Instant::FAR, |duration| world.now() + duration);
        let why = loop {
            let now = world.now();
            let changed = self.pass(now, world, &mut events);
            let over = self.is_over();
            if over || now >= end || stop.load(Ordering::Relaxed) {
                self.interrupted = !over && now < end;
                break Why::Cancelled;
            }
            if events.is_due(now) {
                let running = self.running.len();
                let waiting = self.left.background + self.left.waited_for - running;
                let workloads = self.running.iter().filter_map(|i| self.tasks[*i].snapshot(world));
                let workloads = workloads.take(events.workloads_max()).collect();
                events.snapshot(now, world.state(), workloads, (running, waiting));
            }
            let next_due = self.due.first().map_or(Instant::FAR, |(at, _)| *at);
            let until = if changed { now } else { next_due.min(end) };
            if world.advance(until, events.next_snapshot()) == Advance::Idle && until == Instant::FAR {
                break Why::Stuck;
            }
        };
        let now = world.now();
        for i in std::mem::take(&mut self.running) {
            if let Some(running) = self.tasks[i].running.take() {
                self.end(i, running, now, why, world, &mut events);
            }
        }
    }

    /// Ends the services.
    pub fn finish(self, world: &mut W) -> Ended {
        let mut notes = Vec::new();
        for service in self.services {
            match service.party {
                RunningParty::App(app) => {
                    if let Some(Report { status: Status::Failed(why), .. }) = world.stop_app(app) {
                        notes.push(format!("a service at {} failed: {why}", service.site));
                    }
                }
                RunningParty::Command(command) => {
                    let ended = world.end_command(command, true);
                    if let Some(exit) = ended.ended_by_itself {
                        let why = ended.stderr.lines().last().unwrap_or_default();
                        notes.push(format!("the service {:?} ended early with {exit}: {why}", ended.command));
                    }
                }
                RunningParty::Stack => {}
            }
        }
        Ended { workloads: self.records.finish(), notes }
    }

    /// Nothing is left to wait for.
    fn is_over(&self) -> bool {
        self.left.waited_for == 0 && (!self.left.only_background || self.left.background == 0)
    }

    /// Starts and ends what is due, in the order of the tasks; true if anything was.
    fn pass(&mut self, now: Instant, world: &mut W, events: &mut Emitter<'_>) -> bool {
        let mut changed = false;
        let mut ended = world.take_ended();
        if ended == EndedTasks::Any {
            for i in 0..self.tasks.len() {
                changed |= self.step_and_note(i, now, world, events);
            }
            self.changed.clear();
            return changed;
        }
        let mut pending = std::mem::take(&mut self.changed);
        pending.extend(self.due.range(..=(now, usize::MAX)).map(|(_, i)| *i));
        let mut from = 0;
        loop {
            if let EndedTasks::These(tasks) = ended {
                // A task that this pass is beyond is for the next one, which follows at once.
                for i in tasks {
                    if i >= from {
                        pending.insert(i)
                    } else {
                        self.changed.insert(i)
                    };
                }
            }
            let Some(i) = pending.pop_first() else { break };
            from = i + 1;
            changed |= self.step_and_note(i, now, world, events);
            ended = world.take_ended();
        }
        changed || !self.changed.is_empty()
    }

    /// As [`Schedule::step`]; keeps the agenda of what is due, the tasks that run and the numbers of what is left.
    fn step_and_note(&mut self, i: usize, now: Instant, world: &mut W, events: &mut Emitter<'_>) -> bool {
        let was_left = self.tasks[i].is_left();
        let changed = self.step(i, now, world, events);
        if changed {
            self.changed.insert(i);
        }
        self.set_due(i);
        let task = &self.tasks[i];
        if task.running.is_some() {
            self.running.insert(i);
        } else {
            self.running.remove(&i);
        }
        if was_left && !task.is_left() {
            let left = if task.workload.background { &mut self.left.background } else { &mut self.left.waited_for };
            *left -= 1;
        }
        changed
    }

    fn set_due(&mut self, i: usize) {
        let task = &mut self.tasks[i];
        let due = match &task.running {
            Some(running) => running.due(),
            None => task.runs_left().then_some(task.next_start),
        };
        if due != task.due {
            let before = std::mem::replace(&mut task.due, due);
            if let Some(at) = before {
                self.due.remove(&(at, i));
            }
            self.due.extend(due.map(|at| (at, i)));
        }
    }

    /// Starts or ends workload `i` if its time has come, and says whether it did.
    fn step(&mut self, i: usize, now: Instant, world: &mut W, events: &mut Emitter<'_>) -> bool {
        let task = &mut self.tasks[i];
        if let Some(running) = &mut task.running {
            if running.is_over(now, world)
                && let Some(running) = task.running.take()
            {
                self.end(i, running, now, Why::ByItself, world, events);
                return true;
            }
        } else if task.runs_left() && now >= task.next_start {
            let (workload, done) = (task.workload, task.done);
            match begin(i, workload, done, self.seed, world) {
                Ok(running) => {
                    events.started(now, &workload.id, done + 1);
                    self.tasks[i].running = Some(running);
                }
                Err(error) => {
                    self.tasks[i].done = workload.repeat.most();
                    let mut record = workloads::workload_record(workload, 1, now);
                    (record.status, record.error) = (record::Status::Failed, Some(error.to_string()));
                    self.keep(record, now, events);
                }
            }
            return true;
        }
        false
    }

    fn keep(&mut self, record: WorkloadRecord, now: Instant, events: &mut Emitter<'_>) {
        events.ended(now, &record);
        self.records.push(record);
    }

    /// Records how a run of workload `i` went.
    fn end(&mut self, i: usize, running: Running<W>, now: Instant, why: Why, world: &mut W, events: &mut Emitter<'_>) {
        let task = &mut self.tasks[i];
        task.done += 1;
        let workload = task.workload;
        let pause = workload.pause.draw(|| self.seed.stream(&format!("workloads/{}/pause/{}", workload.id, task.done)));
        task.next_start = now + pause;
        if workload.repeat == Repeat::UntilTheEnd {
            // Runs that end at once must not hold up time.
            task.next_start = task.next_start.max(running.started + LEAST_BETWEEN_RUNS);
        }
        let mut record = workloads::workload_record(task.workload, task.done, running.started);
        let stopped = why != Why::ByItself;
        let Running { started, mut parties, .. } = running;
        let placement = &task.workload.placement;
        let mut reports: Vec<PartyReport> =
            (0..parties.len()).map(|number| PartyReport { role: placement.role(number), report: None }).collect();
        let mut gone = false;
        for part in [Part::Serves, Part::Leads] {
            for (number, (_, party)) in parties.iter_mut().enumerate().filter(|(_, (own, _))| *own == part) {
                match std::mem::replace(party, RunningParty::Stack) {
                    RunningParty::App(app) => {
                        reports[number].report = world.stop_app(app);
                        gone |= part == Part::Leads && reports[number].report.is_none();
                    }
                    RunningParty::Command(command) => {
                        let ended = world.end_command(command, stopped);
                        reports[number].report = Some(workloads::command_report(&ended, started, stopped));
                        record.command = Some(workloads::command_record(ended));
                    }
                    RunningParty::Stack => {}
                }
            }
        }
        if gone {
            (record.status, record.error) = (record::Status::Failed, Some("its thread ended".to_owned()));
            self.keep(record, now, events);
            return;
        }
        let report = placement.workload.combine(reports);
        // Background traffic that stops with the others has done what it was there for.
        let done = task.workload.background && !self.interrupted && why == Why::Cancelled;
        match &report.status {
            Status::Done => record.status = record::Status::Done,
            Status::Running if done => record.status = record::Status::Done,
            Status::Running => record.status = record::Status::Interrupted,
            Status::Failed(why) => (record.status, record.error) = (record::Status::Failed, Some(why.clone())),
        }
        workloads::put_report(&mut record, &report);
        workloads::judge(&mut record, task.workload);
        if why == Why::Stuck && record.status == record::Status::Interrupted {
            record.error = Some(STUCK.to_owned());
            // However long one waited, it would not be met.
            record.objective.iter_mut().for_each(|objective| objective.met = Some(false));
        }
        self.keep(record, now, events);
    }
}

/// Starts a service; `None`: it has nothing to run.
fn start_service<'a, W: World>(
    service: &'a Service,
    seed: u64,
    world: &mut W,
) -> Result<Option<RunningService<'a, W>>, W::Error> {
    let party = start_parties(&service.placement, seed, None, world)?.into_iter().next();
    Ok(party.map(|(_, party)| RunningService { site: &service.placement.parties[0].site, party }))
}

/// Starts a run of the workload of task number `task`, of which `done` are done.
fn begin<W: World>(
    task: usize,
    workload: &Workload,
    done: u32,
    seed: Seed,
    world: &mut W,
) -> Result<Running<W>, W::Error> {
    let seed = seed.child(&format!("workloads/{}/{done}", workload.id)).0;
    let parties = start_parties(&workload.placement, seed, Some(task), world)?;
    Ok(Running { started: world.now(), parties, led_until: None })
}

/// Starts every party, those that serve first; the answer is in the parties' order.
fn start_parties<W: World>(
    placement: &Placement,
    seed: u64,
    task: Option<usize>,
    world: &mut W,
) -> Result<Vec<(Part, RunningParty<W>)>, W::Error> {
    let setting = placement.setting(world.plan(), seed);
    let numbers = 0..placement.parties.len();
    let mut parties: Vec<_> = numbers.clone().map(|i| (placement.role(i).part, RunningParty::Stack)).collect();
    for part in [Part::Serves, Part::Leads] {
        for number in numbers.clone().filter(|number| placement.role(*number).part == part) {
            let site = site(world, &placement.parties[number].site);
            let started = match placement.workload.program(number, &setting) {
                PartyProgram::App(app) => world.start_app(site, app, task).map(RunningParty::App),
                PartyProgram::Command(argv) => world.start_command(site, &argv).map(RunningParty::Command),
                PartyProgram::Stack => Ok(RunningParty::Stack),
            };
            match started {
                Ok(party) => parties[number].1 = party,
                Err(error) => {
                    parties.into_iter().for_each(|(_, party)| party.stop(world));
                    return Err(error);
                }
            }
        }
    }
    Ok(parties)
}

/// The number of a site that the scenario has checked to exist.
fn site<W: World>(world: &W, name: &str) -> usize {
    world.plan().site(name).unwrap_or_else(|| unreachable!("site {name} was checked when the file was read"))
}

impl<W: World> Task<'_, W> {
    fn runs_left(&self) -> bool {
        self.done < self.workload.repeat.most()
    }

    fn is_left(&self) -> bool {
        self.running.is_some() || self.runs_left()
    }

    /// The state of its run; none while it does not run.
    fn snapshot(&self, world: &W) -> Option<WorkloadSnapshot> {
        let running = self.running.as_ref()?;
        let workload = self.workload;
        let placement = &workload.placement;
        let (quantity, noun) = placement.kind.shown().progress;
        let mut progress: Option<WorkloadProgress> = None;
        let parties = running.parties.iter().enumerate().map(|(number, (_, party))| {
            let RunningParty::App(app) = party else {
                return PartyReport { role: placement.role(number), report: None };
            };
            let report = world.report(app);
            // Progress is known where data is received.
            let value = report.as_ref().and_then(|report| report.value(quantity)).unwrap_or(0.0);
            let most = progress.map_or(value, |progress| progress.value.max(value));
            progress = Some(WorkloadProgress { value: most, noun });
            PartyReport { role: placement.role(number), report }
        });
        let report = placement.workload.combine(parties.collect());
        let mut record = WorkloadRecord::default();
        workloads::put_report(&mut record, &report);
        let run = WorkloadRun { workload: workload.id.clone(), repeat: self.done + 1 };
        Some(WorkloadSnapshot { run, progress, measurements: record.measurements })
    }
}

impl<W: World> RunningParty<W> {
    /// Nothing is left for it to do.
    fn has_ended(&mut self, world: &mut W) -> bool {
        match self {
            RunningParty::App(app) => world.has_ended(app),
            RunningParty::Command(command) => world.command_has_ended(command),
            RunningParty::Stack => true,
        }
    }

    fn has_failed(&self, world: &W) -> bool {
        match self {
            RunningParty::App(app) => world.report(app).is_none_or(|r| matches!(r.status, Status::Failed(_))),
            RunningParty::Command(_) | RunningParty::Stack => false,
        }
    }

    fn stop(self, world: &mut W) {
        match self {
            RunningParty::App(app) => drop(world.stop_app(app)),
            RunningParty::Command(command) => drop(world.end_command(command, true)),
            RunningParty::Stack => {}
        }
    }
}

impl<W: World> Running<W> {
    /// Nothing is left to wait for.
    fn is_over(&mut self, now: Instant, world: &mut W) -> bool {
        if !self.of(Part::Leads).all(|party| party.has_ended(world)) {
            return false;
        }
        let since = *self.led_until.get_or_insert(now);
        // Where a leading party failed there is nothing to wait for; an upload's server may still be receiving.
        self.of(Part::Leads).any(|party| party.has_failed(world))
            || self.of(Part::Serves).all(|party| party.has_ended(world))
            || now.since(since) >= SERVER_GRACE
    }

    fn of(&mut self, part: Part) -> impl Iterator<Item = &mut RunningParty<W>> {
        self.parties.iter_mut().filter(move |(own, _)| *own == part).map(|(_, party)| party)
    }

    /// When it is over though no program ends.
    fn due(&self) -> Option<Instant> {
        self.led_until.map(|since| since + SERVER_GRACE)
    }
}

/// A record of a scenario before anything ran.
pub fn empty_record(scenario: &Scenario, mode: Mode) -> Record {
    Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        bentpipe: env!("CARGO_PKG_VERSION").to_owned(),
        mode,
        title: scenario.title.clone(),
        scenario_file: scenario.source_name.clone(),
        scenario: scenario.text.clone(),
        overrides: scenario.overrides.clone(),
        chosen_cases: scenario.chosen_cases.clone(),
        seed: scenario.seed,
        ..Record::default()
    }
}

/// Runs every case with `run` and puts what each left into the record. `stop` ends the run early.
pub fn run_cases<E: fmt::Display>(
    scenario: &Scenario,
    mut record: Record,
    stop: &AtomicBool,
    sink: &mut dyn Sink,
    mut run: impl FnMut(usize, &Case, &mut dyn Sink) -> Result<CaseRecord, E>,
) -> Result<Record, E> {
    for (number, case) in scenario.cases.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (cases, name) = (scenario.cases.len(), case.name.clone());
        sink.event(&Event::CaseStarted(CaseStarted { number: number + 1, cases, name }));
        match run(number, case, sink) {
            Ok(case) => {
                let (at, valid) = (case.seconds, case.validity.valid);
                record.cases.push(case);
                sink.event(&Event::CaseEnded(CaseEnded { at, number: number + 1, valid }));
            }
            // What earlier cases measured must not be lost.
            Err(error) if !record.cases.is_empty() => {
                let mut failed = CaseRecord {
                    name: case.name.clone(),
                    notes: vec![format!("could not run: {error}")],
                    ..CaseRecord::default()
                };
                failed.validity.reasons.push(error.to_string());
                record.cases.push(failed);
                return Ok(record);
            }
            Err(error) => return Err(error),
        }
    }
    record.interrupted = stop.load(Ordering::Relaxed);
    record.complete = !record.interrupted && record.cases.len() == scenario.cases.len();
    Ok(record)
}

#[cfg(test)]
mod tests;
