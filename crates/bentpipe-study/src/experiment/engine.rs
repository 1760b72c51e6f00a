//! Runs the points of experiments and collects what was measured. The results do not depend on how many threads there are:
//! each run has its own seed, and its place is known before it starts.

use super::load::Experiment;
use super::measure::{Measured, measure};
use crate::runner::{Progress, Ran, RunId, Runner, Runs, Subject};
use bentpipe_lab::scenario::Scenario;
use std::sync::atomic::Ordering;

/// The outcome of one experiment: for each of its points, its runs.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// In the order of the experiment's points.
    pub points: Vec<PointRuns>,
}

/// The runs of a point.
#[derive(Clone, Debug, Default)]
pub struct PointRuns {
    /// The measurements of each run, or the reason why it could not be done.
    pub runs: Vec<Result<Measured, String>>,
    /// Chance has no part: one run says all.
    pub certain: bool,
}

/// A run of a point.
#[derive(Clone, Copy, Debug)]
struct Key {
    experiment: usize,
    point: usize,
    run: u32,
}

/// Runs all points of all experiments; with `once`, one run of each, whatever the scenarios ask for: a live run takes as long
/// as it takes. Ends early, with nothing, when it is stopped.
pub fn run(experiments: &[Experiment], once: bool, runner: &mut Runner<'_>) -> Option<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut keys = Vec::new();
    for (number, experiment) in experiments.iter().enumerate() {
        let mut points = Vec::new();
        for (at, point) in experiment.points.iter().enumerate() {
            // The file was read before: a point that cannot be read any more fails as a run.
            let certain = point.scenario(&experiment.scenario, 0).is_ok_and(|one| Experiment::is_certain(&one));
            let seeds = if certain || once { 1 } else { experiment.seeds() };
            keys.extend((0..seeds).map(|run| Key { experiment: number, point: at, run }));
            points.push(PointRuns { runs: vec![Err("not run".to_owned()); seeds as usize], certain });
        }
        outcomes.push(Outcome { points });
    }
    let mut all = All { total: keys.len(), keys: keys.into_iter(), outcomes, done: 0, errors: 0 };
    runner.run(experiments, &mut all);
    (!runner.stop.load(Ordering::Relaxed)).then_some(all.outcomes)
}

struct All {
    keys: std::vec::IntoIter<Key>,
    outcomes: Vec<Outcome>,
    total: usize,
    done: usize,
    errors: usize,
}

impl Runs for All {
    type Key = Key;
    type Output = Measured;
    type Shared = [Experiment];

    fn id(experiments: &[Experiment], key: Key) -> RunId {
        let id = experiments[key.experiment].id.clone();
        RunId::new(Subject::Experiment { id, point: key.point }, key.run + 1)
    }

    fn scenario(experiments: &[Experiment], key: Key) -> Result<Scenario, String> {
        let experiment = &experiments[key.experiment];
        experiment.points[key.point].scenario(&experiment.scenario, key.run).map_err(|problem| problem.to_string())
    }

    fn measure(_: &[Experiment], _: Key, scenario: &Scenario, ran: Ran) -> Result<Measured, String> {
        let (Some(case), Some(ran)) = (scenario.cases.first(), ran.record.cases.first()) else {
            return Err("the run left no case".to_owned());
        };
        if !ran.validity.valid {
            return Err(format!("the run is invalid: {}", ran.validity.reasons.join("; ")));
        }
        Ok(measure(case, ran))
    }

    fn next(&mut self) -> Option<Key> {
        self.keys.next()
    }

    fn done(&mut self, key: Key, result: Result<Measured, String>, _cancelled: bool) {
        self.done += 1;
        self.errors += usize::from(result.is_err());
        self.outcomes[key.experiment].points[key.point].runs[key.run as usize] = result;
    }

    fn progress(&self, running: usize) -> Progress {
        Progress { done: self.done, total: self.total, errors: self.errors, running, ..Progress::default() }
    }
}
