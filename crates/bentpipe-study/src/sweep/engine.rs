//! Runs what a plan asks for that a folder does not hold yet.
//!
//! The results do not depend on how many threads ran them, nor in which order: how many seeds a point gets is decided
//! from whole batches of its first seeds alone.

use super::SweepError;
use super::grid::Quantity;
use super::journal::{Folder, RunLine, SweepRequest};
use super::plan::{HalfWidth, Limit, Plan, SEEDS_STEP};
use super::results::Results;
use crate::runner::{Progress, Ran, RunId, Runner, Runs, Subject};
use crate::statistics::{estimate, samples_needed};
use bentpipe_lab::scenario::Scenario;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct SweepOptions {
    /// Where the results go.
    pub out: PathBuf,
    /// Only this part of the runs.
    pub shard: Option<Shard>,
    /// Folders of the same sweep whose runs are taken over first.
    pub merge: Vec<PathBuf>,
}

/// One part of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Which, from 1.
    pub part: u32,
    /// Of how many.
    pub parts: u32,
}

/// The outcome of a sweep.
#[derive(Debug)]
pub struct Outcome {
    /// The measurement's name.
    pub results: Results,
    /// The number of runs that count, of each point.
    pub targets: Vec<u32>,
    /// Every run that counts is done, though maybe with an error.
    pub complete: bool,
    /// Runs done, and runs wanted as far as is known.
    pub done: (usize, usize),
    /// Runs that could not be done, and the first of them.
    pub errors: usize,
    /// The first one's message.
    pub first_error: Option<String>,
}

/// Interval between syncs of the journal.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// When the first so many runs all end in an error, the sweep ends too.
const ERRORS_GIVE_UP: usize = 10;

impl Shard {
    /// Reads `3/16`.
    pub fn parse(text: &str) -> Result<Shard, SweepError> {
        let numbers = text.split_once('/').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match numbers {
            Some((part, parts)) if (1..=parts).contains(&part) => Ok(Shard { part, parts }),
            _ => Err(SweepError::Request(format!(
                "--shard {text}: allowed: PART/PARTS, such as 3/16, with PART from 1 to PARTS"
            ))),
        }
    }

    /// True if a run belongs to it. A stopping rule looks at all runs of a point, so they stay together.
    fn holds(self, plan: &Plan, point: usize, run: u32) -> bool {
        let number = if plan.limits.is_empty() {
            point as u64 * u64::from(plan.seeds().0) + u64::from(run)
        } else {
            point as u64
        };
        number % u64::from(self.parts) == u64::from(self.part - 1)
    }
}

/// Runs the sweep, or what is left of it. When it is stopped, what was measured by then is in the folder.
pub fn run(plan: &Plan, options: &SweepOptions, runner: &mut Runner<'_>) -> Result<Outcome, SweepError> {
    let request = SweepRequest::of(plan);
    let others: Result<Vec<Vec<RunLine>>, _> =
        options.merge.iter().map(|path| Folder::read_other(path, &request)).collect();
    let others = others?;
    let (mut folder, lines) = Folder::open(&options.out, &request)?;
    let mut results = Results::default();
    let known =
        |line: &RunLine| (line.point as usize) < plan.points.len() && line.run < plan.seeds().1 && line.error.is_none();
    for line in lines.iter().filter(|line| known(line)) {
        results.insert(line);
    }
    for line in others.iter().flatten().filter(|line| known(line)) {
        if results.run(line.point, line.run).is_none() {
            folder.append(line)?;
            results.insert(line);
        }
    }
    let mut state = State {
        plan,
        shard: options.shard,
        folder,
        next_sync: Instant::now() + SYNC_EVERY,
        started: Instant::now(),
        results,
        targets: vec![0; plan.points.len()],
        finished: vec![false; plan.points.len()],
        queue: BTreeSet::new(),
        waiting: vec![0; plan.points.len()],
        done_here: 0,
        errors: 0,
        first_error: None,
        failure: None,
    };
    for point in 0..plan.points.len() {
        state.advance(point);
    }
    runner.run(plan, &mut state);
    if let Some(failure) = state.failure.take() {
        return Err(failure);
    }
    state.folder.sync()?;
    let (done, total) = (state.done(), state.wanted());
    Ok(Outcome {
        complete: done == total && state.finished.iter().all(|finished| *finished),
        done: (done, total),
        errors: state.errors,
        first_error: state.first_error,
        targets: state.targets,
        results: state.results,
    })
}

struct State<'a> {
    plan: &'a Plan,
    shard: Option<Shard>,
    folder: Folder,
    /// When the journal is brought to the disk next.
    next_sync: Instant,
    started: Instant,
    results: Results,
    /// For each point, how many runs it gets as far as is known.
    targets: Vec<u32>,
    /// For each point, whether it needs no more than its target.
    finished: Vec<bool>,
    /// (run, point): every point gets its first seed before any gets its second.
    queue: BTreeSet<(u32, u32)>,
    /// For each point, the runs of its target that are queued or running.
    waiting: Vec<u32>,
    done_here: usize,
    errors: usize,
    first_error: Option<String>,
    failure: Option<SweepError>,
}

impl Runs for State<'_> {
    /// (run, point).
    type Key = (u32, u32);
    type Output = RunLine;
    type Shared = Plan;

    fn id(_plan: &Plan, (run, point): (u32, u32)) -> RunId {
        RunId::new(Subject::Point { point }, run + 1)
    }

    fn scenario(plan: &Plan, (run, point): (u32, u32)) -> Result<Scenario, String> {
        plan.scenario(point as usize, run).map_err(|error| error.to_string())
    }

    fn measure(plan: &Plan, (run, point): (u32, u32), scenario: &Scenario, ran: Ran) -> Result<RunLine, String> {
        if !ran.record.complete || ran.record.interrupted {
            return Err("the run did not come to its end".to_owned());
        }
        Ok(RunLine::of(point, run, &plan.request.measure, scenario, &ran.record))
    }

    fn next(&mut self) -> Option<(u32, u32)> {
        self.queue.pop_first()
    }

    fn done(&mut self, (run, point): (u32, u32), result: Result<RunLine, String>, cancelled: bool) {
        match result {
            Ok(line) => self.finish(&line),
            // Cut short by us: the run is done again next time.
            Err(_) if cancelled => {}
            Err(error) => self.finish(&RunLine::failed(point, run, self.plan.run_seed(run), error)),
        }
    }

    fn progress(&self, running: usize) -> Progress {
        let (done, total) = (self.done(), self.wanted());
        let share = (self.done_here > 0).then(|| (total - done) as f64 / self.done_here as f64);
        Progress {
            done,
            total,
            open_ended: !self.plan.limits.is_empty() && self.finished.iter().any(|finished| !finished),
            errors: self.errors,
            running,
            seconds_left: share.map(|share| self.started.elapsed().as_secs_f64() * share),
        }
    }

    fn tick(&mut self) -> bool {
        let now = Instant::now();
        if now >= self.next_sync {
            if let Err(error) = self.folder.sync() {
                self.failure.get_or_insert(error);
            }
            // A twentieth of the time at most goes into waiting for the disk.
            self.next_sync = Instant::now() + SYNC_EVERY.max(now.elapsed() * 20);
        }
        self.failure.is_none()
    }
}

impl State<'_> {
    fn finish(&mut self, line: &RunLine) {
        if let Err(error) = self.folder.append(line) {
            self.failure.get_or_insert(error);
            return;
        }
        self.results.insert(line);
        self.done_here += 1;
        if let Some(error) = &line.error {
            self.errors += 1;
            let settings = self.plan.points[line.point as usize].overrides.join(", ");
            let text = format!("seed {}, {settings}: {error}", line.seed);
            self.first_error.get_or_insert(text);
            if self.errors >= ERRORS_GIVE_UP && self.errors == self.done_here {
                self.failure.get_or_insert(SweepError::AllFailed {
                    count: self.errors,
                    first: self.first_error.clone().unwrap_or_default(),
                });
            }
        }
        let point = line.point as usize;
        self.waiting[point] -= 1;
        if self.waiting[point] == 0 {
            self.advance(point);
        }
    }

    /// All runs of the point's target are done: decides how many more it needs, and queues what is missing.
    fn advance(&mut self, point: usize) {
        let (least, most) = self.plan.seeds();
        while !self.finished[point] && self.waiting[point] == 0 {
            let target = self.targets[point];
            let next = match target {
                0 => least,
                _ => self.more(point, target, most),
            };
            if next == target {
                self.finished[point] = true;
                break;
            }
            self.targets[point] = next;
            let mut missing: Vec<u32> = (target..next).collect();
            missing.retain(|run| self.results.run(point as u32, *run).is_none());
            if let Some(shard) = self.shard {
                missing.retain(|run| shard.holds(self.plan, point, *run));
            }
            self.waiting[point] = missing.len() as u32;
            self.queue.extend(missing.into_iter().map(|run| (run, point as u32)));
        }
    }

    /// The number of runs that the point needs, judged from its first `count`: `count` itself when that is enough.
    fn more(&self, point: usize, count: u32, most: u32) -> u32 {
        let samples = self.results.samples(point as u32, count);
        let mut needed = count;
        for limit in &self.plan.limits {
            let Some(measurement) = self.results.id(&limit.measurement) else { continue };
            for (_, (_, samples)) in samples.iter().filter(|((_, _, name), _)| *name == measurement) {
                needed = needed.max(runs_needed(limit, samples, self.plan.confidence(), count, most));
            }
        }
        if needed == count {
            return count;
        }
        // In steps of five, and at most twice as many: a first estimate of the variance is a poor one.
        let step = |n: u32| n.div_ceil(SEEDS_STEP).saturating_mul(SEEDS_STEP);
        step(needed).min(step(count.saturating_mul(2))).min(most).max(count)
    }

    fn in_shard(&self, point: usize, run: u32) -> bool {
        self.shard.is_none_or(|shard| shard.holds(self.plan, point, run))
    }

    /// Runs wanted, as far as is known.
    fn wanted(&self) -> usize {
        match self.shard {
            None => self.targets.iter().map(|target| *target as usize).sum(),
            Some(_) => (0..self.targets.len())
                .map(|point| (0..self.targets[point]).filter(|run| self.in_shard(point, *run)).count())
                .sum(),
        }
    }

    /// Runs of those that are done.
    fn done(&self) -> usize {
        self.wanted() - self.waiting.iter().map(|waiting| *waiting as usize).sum::<usize>()
    }
}

/// The number of runs that would bring the half-width below the limit, if there are as many samples for each run as until now.
fn runs_needed(limit: &Limit, samples: &[f64], confidence: f64, count: u32, most: u32) -> u32 {
    let Some(known) = estimate(samples, confidence) else { return count };
    let allowed = match limit.half_width {
        HalfWidth::OfMean(share) => known.mean.abs() * share,
        HalfWidth::Absolute(Quantity { value, .. }) => value,
    };
    match known.half_width {
        Some(half_width) if half_width <= allowed => count,
        Some(_) => {
            let needed = samples_needed(known.variance, allowed, confidence, known.n + 1, most as usize);
            let runs = needed as f64 * f64::from(count) / known.n as f64;
            (runs.ceil() as u32).clamp(count + 1, most.max(count + 1)).min(most.max(count))
        }
        // One sample says nothing of the variance.
        None => (count + 1).min(most.max(count)),
    }
}
