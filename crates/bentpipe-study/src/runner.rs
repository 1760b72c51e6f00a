//! Runs scenarios for every study, several at a time, in one of two worlds, with one stream of events.

use crate::pool::{self, Queue};
use bentpipe_host::namespace::Privilege;
use bentpipe_lab::events::{self, Sink};
use bentpipe_lab::live::{self, LiveOptions};
use bentpipe_lab::record::Record;
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use bentpipe_lab::thinning::SeriesPoints;
use bentpipe_net::time::Duration;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A world in which scenarios run.
pub trait World: Sync {
    /// Runs one; `stop` ends it early, with an interrupted record of what was measured by then.
    fn run(&self, scenario: &Scenario, stop: &AtomicBool, sink: &mut dyn Sink) -> Result<Record, String>;
}

/// Virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Virtual;

impl World for Virtual {
    fn run(&self, scenario: &Scenario, stop: &AtomicBool, sink: &mut dyn Sink) -> Result<Record, String> {
        let options = SimulatedOptions::default();
        simulated::run_with_events(scenario, &options, stop, sink).map_err(|error| error.to_string())
    }
}

/// Real kernels and the wall clock, with the rights that the process has.
#[derive(Clone, Copy, Debug)]
pub struct Live(pub Privilege);

impl World for Live {
    fn run(&self, scenario: &Scenario, stop: &AtomicBool, sink: &mut dyn Sink) -> Result<Record, String> {
        let options = LiveOptions { privilege: self.0, capture_directory: None, series: SeriesPoints::All };
        live::run(scenario, &options, stop, sink).map_err(|error| error.to_string())
    }
}

/// Something that stands for a world, as tests have it.
impl<F: Fn(&Scenario, &AtomicBool) -> Result<Record, String> + Sync> World for F {
    fn run(&self, scenario: &Scenario, stop: &AtomicBool, _sink: &mut dyn Sink) -> Result<Record, String> {
        self(scenario, stop)
    }
}

/// Something that happened in a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The study's progress.
    Progress(Progress),
    /// A run begins.
    RunStarted {
        /// The run.
        run: RunId,
    },
    /// An event of a run under way.
    Run {
        /// The run.
        run: RunId,
        /// The run's event.
        of: events::Event,
    },
    /// A live run was later than its limits: it is repeated, or fails when it was the last attempt.
    RunInvalid {
        /// The run.
        run: RunId,
        /// The limits.
        reasons: Vec<String>,
    },
    /// A run is over.
    RunEnded {
        /// The run.
        run: RunId,
        /// The reason why it could not be done.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

/// A run of a study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunId {
    /// The subject, of which a study makes several runs.
    pub subject: Subject,
    /// The run's number, from 1.
    pub number: u32,
}

/// A subject of a study's runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Subject {
    /// A point of a sweep.
    Point {
        /// Its number, from 0.
        point: u32,
    },
    /// A point of an experiment.
    Experiment {
        /// The experiment.
        id: String,
        /// The point's number, from 0.
        point: usize,
    },
    /// A scenario live, to be compared with the simulator.
    Measured {
        /// Its name in the list.
        scenario: String,
        /// Copies of its network side by side.
        copies: usize,
    },
    /// The same simulated.
    Modelled {
        /// Its name in the list.
        scenario: String,
        /// Copies of its network side by side.
        copies: usize,
    },
    /// A live transfer between two hosts.
    Transfer {
        /// `download` or `upload`.
        direction: &'static str,
        /// Application bytes.
        bytes: u64,
        /// With the recommended settings, or without.
        tuned: bool,
        /// Runs of this transfer.
        runs: u64,
    },
}

impl RunId {
    /// Run `number`, from 1, of `subject`.
    #[must_use]
    pub fn new(subject: Subject, number: u32) -> RunId {
        RunId { subject, number }
    }
}

/// A study's progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Runs done, those of earlier sessions included.
    pub done: usize,
    /// Runs in all, as far as is known.
    pub total: usize,
    /// More runs may be needed than `total`.
    pub open_ended: bool,
    /// Runs that could not be done.
    pub errors: usize,
    /// Runs under way.
    pub running: usize,
    /// Seconds that are left, once there is something to estimate it from.
    pub seconds_left: Option<f64>,
}

/// The result of running a scenario.
#[derive(Debug)]
pub struct Ran {
    /// The last attempt's record. It is invalid only if all were.
    pub record: Record,
    /// The broken limits of each attempt that was invalid.
    pub invalid: Vec<Vec<String>>,
}

/// The runs of a study. [`Runs::scenario`] and [`Runs::measure`] are called by workers, through [`Runs::Shared`]; all
/// else by the caller's thread.
pub trait Runs {
    /// Identifies a run within the study.
    type Key: Copy + Send;
    /// The part of a run's result that is kept.
    type Output: Send;
    /// Data that workers read.
    type Shared: Sync + ?Sized;

    /// The run's identity in events.
    fn id(shared: &Self::Shared, key: Self::Key) -> RunId;
    /// The scenario of a run.
    fn scenario(shared: &Self::Shared, key: Self::Key) -> Result<Scenario, String>;
    /// Takes the part that is kept from a run's result.
    fn measure(shared: &Self::Shared, key: Self::Key, scenario: &Scenario, ran: Ran) -> Result<Self::Output, String>;

    /// The next run. None: none now, and none later unless one under way leads to more.
    fn next(&mut self) -> Option<Self::Key>;
    /// A run is over. One that was cancelled comes here too, mostly as an error.
    fn done(&mut self, key: Self::Key, result: Result<Self::Output, String>, cancelled: bool);
    /// The study's progress.
    fn progress(&self, running: usize) -> Progress;
    /// Called a few times a second; false: the study cannot go on, and its runs are cancelled.
    fn tick(&mut self) -> bool {
        true
    }
}

/// Runs the scenarios of studies.
pub struct Runner<'a> {
    /// The world.
    pub world: &'a dyn World,
    /// Runs at a time. One for live runs: none may make another late.
    pub workers: NonZeroUsize,
    /// Attempts at a run that is invalid.
    pub attempts: usize,
    /// Ends the study early. Runs under way are cancelled a tenth of a second later at most.
    pub stop: &'a AtomicBool,
    /// Takes the study's events; its interval of snapshots holds for every run.
    pub sink: &'a mut dyn Sink<Event>,
}

impl<'a> Runner<'a> {
    /// Does the runs of a study.
    pub fn run<R: Runs>(&mut self, shared: &R::Shared, runs: &mut R) {
        let cancel = AtomicBool::new(self.stop.load(Ordering::Relaxed));
        let (world, attempts, interval) = (self.world, self.attempts.max(1), self.sink.interval());
        let mut queue = Feed { runs, stop: self.stop, cancel: &cancel, sink: self.sink, last: None };
        pool::run(self.workers, &mut queue, &|key, emit: &mut dyn FnMut(Event)| {
            let id = R::id(shared, key);
            emit(Event::RunStarted { run: id.clone() });
            let result = caught(|| {
                let scenario = R::scenario(shared, key)?;
                let ran = attempt(world, &scenario, attempts, &cancel, &mut Tagged { run: &id, interval, emit })?;
                R::measure(shared, key, &scenario, ran)
            });
            emit(Event::RunEnded { run: id, error: result.as_ref().err().cloned() });
            (key, result)
        });
    }

    /// Does one run.
    pub fn one(&mut self, id: &RunId, scenario: &Scenario) -> Result<Ran, String> {
        let interval = self.sink.interval();
        self.sink.event(&Event::RunStarted { run: id.clone() });
        let mut emit = |event: Event| self.sink.event(&event);
        let mut tagged = Tagged { run: id, interval, emit: &mut emit };
        let result = caught(|| attempt(self.world, scenario, self.attempts.max(1), self.stop, &mut tagged));
        self.sink.event(&Event::RunEnded { run: id.clone(), error: result.as_ref().err().cloned() });
        result
    }
}

/// A run that brings the simulator down is that run's error, not the end of all others.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Err(format!("the simulator panicked: {text}"))
    })
}

/// Runs a scenario, again if it was invalid.
fn attempt(
    world: &dyn World,
    scenario: &Scenario,
    attempts: usize,
    stop: &AtomicBool,
    tagged: &mut Tagged<'_>,
) -> Result<Ran, String> {
    let mut invalid = Vec::new();
    loop {
        let record = world.run(scenario, stop, tagged)?;
        let late = record.cases.iter().find(|case| !case.validity.valid).map(|case| case.validity.reasons.clone());
        let Some(reasons) = late.filter(|_| !record.interrupted) else { return Ok(Ran { record, invalid }) };
        (tagged.emit)(Event::RunInvalid { run: tagged.run.clone(), reasons: reasons.clone() });
        invalid.push(reasons);
        if invalid.len() >= attempts || stop.load(Ordering::Relaxed) {
            return Ok(Ran { record, invalid });
        }
    }
}

/// Passes a run's events on as the study's.
struct Tagged<'a> {
    run: &'a RunId,
    interval: Option<Duration>,
    emit: &'a mut dyn FnMut(Event),
}

impl Sink for Tagged<'_> {
    fn event(&mut self, event: &events::Event) {
        // Without snapshots, a study's own events are enough.
        if self.interval.is_some() {
            (self.emit)(Event::Run { run: self.run.clone(), of: event.clone() });
        }
    }

    fn interval(&self) -> Option<Duration> {
        self.interval
    }
}

/// A study's runs as the pool takes them.
struct Feed<'a, R: Runs> {
    runs: &'a mut R,
    stop: &'a AtomicBool,
    cancel: &'a AtomicBool,
    sink: &'a mut dyn Sink<Event>,
    /// Time of the last progress event.
    last: Option<Instant>,
}

/// Shortest time between two progress events, but for the last.
const PROGRESS_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

impl<R: Runs> Queue for Feed<'_, R> {
    type Job = R::Key;
    type Message = Event;
    type Output = (R::Key, Result<R::Output, String>);

    fn next(&mut self) -> Option<R::Key> {
        if self.cancel.load(Ordering::Relaxed) { None } else { self.runs.next() }
    }

    fn message(&mut self, event: Event) {
        self.sink.event(&event);
    }

    fn done(&mut self, (key, result): Self::Output) {
        self.runs.done(key, result, self.cancel.load(Ordering::Relaxed));
    }

    fn tick(&mut self, running: usize) {
        if !self.runs.tick() || self.stop.load(Ordering::Relaxed) {
            self.cancel.store(true, Ordering::Relaxed);
        }
        if running == 0 || self.last.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY) {
            self.last = Some(Instant::now());
            self.sink.event(&Event::Progress(self.runs.progress(running)));
        }
    }
}
