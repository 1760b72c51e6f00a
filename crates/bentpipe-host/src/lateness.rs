//! How late packets leave: wall time minus model time. A run that was late says so instead of being quietly wrong.

use bentpipe_link::time::{Duration, Instant};
use hdrhistogram::Histogram;

/// Lateness of every packet of a run.
#[derive(Debug)]
pub struct LatenessRecorder {
    histogram: Histogram<u64>,
    worst: Vec<(Duration, Instant)>,
}

/// How many of the worst are kept with their times.
const WORST_KEPT: usize = 100;
/// Longest lateness told apart, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

impl Default for LatenessRecorder {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("the bounds are constants that fit");
        LatenessRecorder { histogram, worst: Vec::with_capacity(WORST_KEPT + 1) }
    }
}

impl LatenessRecorder {
    /// A packet due at `due` left `late` later.
    pub fn record(&mut self, due: Instant, late: Duration) {
        self.histogram.saturating_record(late.ns.max(1));
        if self.worst.len() < WORST_KEPT || self.worst.last().is_some_and(|(least, _)| late > *least) {
            let at = self.worst.partition_point(|(other, _)| *other >= late);
            self.worst.insert(at, (late, due));
            self.worst.truncate(WORST_KEPT);
        }
    }

    /// Packets recorded.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.histogram.len()
    }

    /// The lateness that `share` (0 to 1) of the packets did not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        Duration { ns: if self.histogram.is_empty() { 0 } else { self.histogram.value_at_quantile(share) } }
    }

    /// The worst, with the model times at which they were due, worst first.
    #[must_use]
    pub fn worst(&self) -> &[(Duration, Instant)] {
        &self.worst
    }

    /// (upper edge, packets), the edges doubling from a microsecond.
    #[must_use]
    pub fn histogram(&self) -> Vec<(Duration, u64)> {
        let mut buckets = Vec::new();
        let (mut low, mut high) = (0, 1_000);
        let mut seen = 0;
        while seen < self.histogram.len() && low < LONGEST_NS * 2 {
            let count = self.histogram.count_between(low, high - 1);
            if count > 0 || seen > 0 {
                buckets.push((Duration { ns: high }, count));
            }
            seen += count;
            (low, high) = (high, high * 2);
        }
        buckets
    }
}
