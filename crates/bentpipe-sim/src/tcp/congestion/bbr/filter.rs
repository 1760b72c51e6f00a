//! Bandwidth, and the largest of recent rounds.

use bentpipe_net::time::Duration;

/// Segments a second, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Bandwidth(pub(super) u64);

/// Millionths of a segment a second × nanoseconds in one segment.
const SEGMENT: u128 = 1_000_000 * 1_000_000_000;

impl Bandwidth {
    /// `segments` in `time`.
    pub(super) fn of(segments: u32, time: Duration) -> Bandwidth {
        let value = u128::from(segments) * SEGMENT / u128::from(time.ns.max(1));
        Bandwidth(u64::try_from(value).unwrap_or(u64::MAX))
    }

    /// This times `numerator`/`denominator`.
    pub(super) fn scaled(self, numerator: u32, denominator: u32) -> Bandwidth {
        let value = u128::from(self.0) * u128::from(numerator) / u128::from(denominator.max(1));
        Bandwidth(u64::try_from(value).unwrap_or(u64::MAX))
    }

    /// Whole segments in `time`.
    pub(super) fn segments_in(self, time: Duration) -> u32 {
        u32::try_from(u128::from(self.0) * u128::from(time.ns) / SEGMENT).unwrap_or(u32::MAX)
    }

    /// Segments in `time`, rounded up.
    pub(super) fn segments_in_rounded_up(self, time: Duration) -> u32 {
        u32::try_from((u128::from(self.0) * u128::from(time.ns)).div_ceil(SEGMENT)).unwrap_or(u32::MAX)
    }

    /// Bytes a second, with segments of `mss` bytes.
    pub(super) fn bytes_per_second(self, mss: u32) -> u64 {
        u64::try_from(u128::from(self.0) * u128::from(mss) / 1_000_000).unwrap_or(u64::MAX)
    }
}

/// The largest value of a window of rounds, from its three best: Nichols' windowed filter, as in Linux
/// (`lib/win_minmax.c`). The second and third best are younger than the best, to follow it when it is too old.
#[derive(Clone, Debug, Default)]
pub(super) struct MaxFilter {
    best: [Sample; 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    round: u64,
    value: Bandwidth,
}

impl MaxFilter {
    pub(super) fn max(&self) -> Bandwidth {
        self.best[0].value
    }

    /// Takes in `value` of `round`, forgetting what is older than `rounds`.
    pub(super) fn add(&mut self, rounds: u64, round: u64, value: Bandwidth) {
        let sample = Sample { round, value };
        let [first, second, third] = &mut self.best;
        if value >= first.value || round.saturating_sub(third.round) > rounds {
            self.best = [sample; 3];
            return;
        }
        if value >= second.value {
            (*second, *third) = (sample, sample);
        } else if value >= third.value {
            *third = sample;
        }

        let age = round.saturating_sub(first.round);
        if age > rounds {
            (*first, *second, *third) = (*second, *third, sample);
            if round.saturating_sub(first.round) > rounds {
                (*first, *second, *third) = (*second, *third, sample);
            }
        } else if second.round == first.round && age > rounds / 4 {
            // A quarter of the window without a second best: take this one.
            (*second, *third) = (sample, sample);
        } else if third.round == second.round && age > rounds / 2 {
            *third = sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidth_and_segments_agree() {
        let bandwidth = Bandwidth::of(100, Duration::from_millis(100));
        assert_eq!(bandwidth, Bandwidth(1_000_000_000));
        assert_eq!(bandwidth.segments_in(Duration::from_micros(5_999)), 5);
        assert_eq!(bandwidth.segments_in_rounded_up(Duration::from_micros(5_001)), 6);
        assert_eq!(bandwidth.bytes_per_second(1448), 1_448_000);
        assert_eq!(bandwidth.scaled(5, 4), Bandwidth(1_250_000_000));
    }

    /// A peak at round 0, then less: the peak counts for ten rounds, then the best of the rounds since.
    #[test]
    fn a_peak_is_forgotten_after_ten_rounds() {
        let mut filter = MaxFilter::default();
        filter.add(10, 0, Bandwidth(100));
        let seen: Vec<u64> = (1..=14)
            .map(|round| {
                filter.add(10, round, Bandwidth(50 - round));
                filter.max().0
            })
            .collect();
        assert_eq!(seen, [100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 47, 47, 47, 44]);
    }
}
