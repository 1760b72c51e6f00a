//! Runs the points of experiments, several at a time, and collects what was measured. The figures do not depend on how
//! many threads there are: each run has its own seed, and its place is known before it starts.

use super::load::Experiment;
use super::measure::{Measured, measure};
use bentpipe_lab::record::Record;
use bentpipe_lab::scenario::Scenario;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Runs one scenario, live or in virtual time; the flag asks it to stop early.
pub type Runner<'a> = dyn Fn(&Scenario, &AtomicBool) -> Result<Record, String> + Sync + 'a;

/// What came out of one experiment: for each of its points, its runs.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// In the order of the experiment's points.
    pub points: Vec<PointRuns>,
}

/// The runs of a point.
#[derive(Clone, Debug, Default)]
pub struct PointRuns {
    /// What each run measured, or why it could not be done.
    pub runs: Vec<Result<Measured, String>>,
    /// Chance has no part: one run says all.
    pub certain: bool,
}

/// What a progress display may show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Runs done.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads.
    pub jobs: usize,
    /// One run of every point, whatever the scenario asks for: a live run takes as long as it takes.
    pub once: bool,
}

struct Job {
    experiment: usize,
    point: usize,
    run: u32,
}

/// Runs all points of all experiments. Ends early, with nothing, when asked to stop.
pub fn run(
    experiments: &[Experiment],
    options: Options,
    runner: &Runner<'_>,
    stop: &AtomicBool,
    progress: &(dyn Fn(Progress) + Sync),
) -> Option<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut jobs = Vec::new();
    for (number, experiment) in experiments.iter().enumerate() {
        let mut points = Vec::new();
        for (at, point) in experiment.points.iter().enumerate() {
            // The file was read before: a point that cannot be read any more fails as a run.
            let certain = point.scenario(&experiment.scenario, 0).is_ok_and(|one| Experiment::is_certain(&one));
            let seeds = if certain || options.once { 1 } else { experiment.seeds() };
            jobs.extend((0..seeds).map(|run| Job { experiment: number, point: at, run }));
            points.push(PointRuns { runs: vec![Err("not run".to_owned()); seeds as usize], certain });
        }
        outcomes.push(Outcome { points });
    }
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let total = jobs.len();
    let shared = Mutex::new(outcomes);
    progress(Progress { done: 0, total });
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, total.max(1)) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = run_one(&experiments[job.experiment], job, runner, stop);
                    let mut outcomes = shared.lock();
                    outcomes[job.experiment].points[job.point].runs[job.run as usize] = result;
                    drop(outcomes);
                    progress(Progress { done: done.fetch_add(1, Ordering::Relaxed) + 1, total });
                }
            });
        }
    });
    let outcomes = shared.into_inner();
    (!stop.load(Ordering::Relaxed)).then_some(outcomes)
}

fn run_one(experiment: &Experiment, job: &Job, runner: &Runner<'_>, stop: &AtomicBool) -> Result<Measured, String> {
    // A run that brings the simulator down is that run's error, not the end of all others.
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let point = &experiment.points[job.point];
        let scenario = point.scenario(&experiment.scenario, job.run).map_err(|problem| problem.to_string())?;
        let record = runner(&scenario, stop)?;
        let (Some(case), Some(ran)) = (scenario.cases.first(), record.cases.first()) else {
            return Err("the run left no case".to_owned());
        };
        if !ran.validity.valid {
            return Err(format!("the run is invalid: {}", ran.validity.reasons.join("; ")));
        }
        Ok(measure(case, ran))
    }));
    ran.unwrap_or_else(|_| Err("the simulator panicked".to_owned()))
}
