//! Runs of one scenario with several seeds, without a grid.

use super::journal::RunLine;
use super::results::Results;
use super::summary::Summary;
use bentpipe_lab::record::Record;
use bentpipe_lab::scenario::Scenario;

/// The measurements of runs that differ only in their seeds.
#[derive(Clone, Debug, Default)]
pub struct SeedResults {
    results: Results,
    count: u32,
}

impl SeedResults {
    /// Takes in the measurements of a run of `scenario`.
    pub fn insert(&mut self, scenario: &Scenario, record: &Record) {
        self.results.insert(&RunLine::of(0, self.count, &[], scenario, record));
        self.count += 1;
    }

    /// Runs taken in.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Their summary. `wanted`: runs that were asked for; `confidence`: of the intervals, in percent.
    #[must_use]
    pub fn summary(&self, title: &str, wanted: u32, confidence: f64) -> Summary {
        Summary {
            complete: self.count == wanted,
            runs: (self.count as usize, wanted as usize),
            ..Summary::of(title, confidence, &[(Vec::new(), self.count)], &self.results)
        }
    }
}
