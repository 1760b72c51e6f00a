//! Lateness of packets: wall time minus model time. A run that was late says so instead of being quietly wrong.

use bentpipe_net::time::{Duration, Instant};
use hdrhistogram::Histogram;

/// Lateness of every packet of a run.
#[derive(Debug)]
pub struct LatenessRecorder {
    histogram: Histogram<u64>,
    worst: Vec<(Duration, Instant)>,
}

/// Number of the worst that are kept with their times.
const WORST_KEPT: usize = 100;
/// Longest lateness distinguished, in nanoseconds.
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
        // A bucket's upper edge may lie above the worst value in it.
        let worst = self.worst.first().map_or(0, |(late, _)| late.ns);
        Duration { ns: if self.histogram.is_empty() { 0 } else { self.histogram.value_at_quantile(share).min(worst) } }
    }

    /// The worst, with the model times at which they were due, worst first.
    #[must_use]
    pub fn worst(&self) -> &[(Duration, Instant)] {
        &self.worst
    }

    /// (upper edge, packets), the edges doubling from a microsecond; each packet counts once.
    #[must_use]
    pub fn histogram(&self) -> Vec<(Duration, u64)> {
        let mut buckets: Vec<(Duration, u64)> = Vec::new();
        for step in self.histogram.iter_recorded() {
            let edge = Duration { ns: step.value_iterated_to().next_power_of_two().max(1 << 10) };
            match buckets.last_mut() {
                Some((last, count)) if *last == edge => *count += step.count_since_last_iteration(),
                _ => buckets.push((edge, step.count_since_last_iteration())),
            }
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_counts_once_and_the_worst_keep_their_times() {
        let mut recorder = LatenessRecorder::default();
        for i in 0..10_000u64 {
            recorder.record(Instant { ns: i }, Duration { ns: i * 1_000 });
        }
        assert_eq!(recorder.histogram().iter().map(|(_, n)| n).sum::<u64>(), 10_000);
        assert!(recorder.histogram().windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(recorder.worst().len(), WORST_KEPT);
        assert_eq!(recorder.worst()[0], (Duration { ns: 9_999_000 }, Instant { ns: 9_999 }));
        assert!(recorder.worst().windows(2).all(|pair| pair[0].0 >= pair[1].0));
        let median = recorder.quantile(0.5).as_millis_f64();
        assert!((median - 5.0).abs() < 0.1, "{median} ms");
    }
}
