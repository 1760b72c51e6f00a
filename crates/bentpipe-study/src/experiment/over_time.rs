//! The shape of a rate over time: its peak, the time to it, and whether it falls and rises again.

/// The rate at a time is the mean over so many seconds before it: some round trips of a geostationary link.
const MEAN_OVER: f64 = 2.0;
/// A rate that falls below, or rises above, the last turn by this factor has turned.
const TURN: f64 = 1.5;
/// The peak is reached where the rate first has this share of it.
const NEAR_PEAK: f64 = 0.9;

/// Figures of one transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverTime {
    /// The highest rate, in bits per second.
    pub peak: f64,
    /// Seconds from the first sample until the rate has nine tenths of it.
    pub peak_after: f64,
    /// Times that the rate fell to two thirds of its peak, or less, and rose by half again.
    pub cycles: u32,
}

impl OverTime {
    /// Of bytes received by a time, in order; none of a transfer that is shorter than the mean.
    #[must_use]
    pub fn of(received: &[(f64, f64)]) -> Option<OverTime> {
        let (start, _) = *received.first()?;
        let mut rates: Vec<(f64, f64)> = Vec::new();
        let mut from = 0;
        for (at, bytes) in received {
            while received[from + 1..].first().is_some_and(|(next, _)| *next <= at - MEAN_OVER) {
                from += 1;
            }
            let (since, before) = received[from];
            if at - since >= MEAN_OVER {
                rates.push((*at, (bytes - before) * 8.0 / (at - since)));
            }
        }
        let peak = rates.iter().map(|(_, rate)| *rate).reduce(f64::max)?;
        let (reached, _) = *rates.iter().find(|(_, rate)| *rate >= NEAR_PEAK * peak)?;
        // The turn that the rate has come from: a height while it falls, a depth while it rises.
        let (mut cycles, mut falls, mut turn) = (0, false, 0.0);
        for (_, rate) in rates {
            if falls {
                turn = f64::min(turn, rate);
                if rate > turn * TURN {
                    (cycles, falls, turn) = (cycles + 1, false, rate);
                }
            } else {
                turn = f64::max(turn, rate);
                if rate * TURN < turn {
                    (falls, turn) = (true, rate);
                }
            }
        }
        Some(OverTime { peak, peak_after: reached - start, cycles })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes received, sampled each half second, at these rates in bit/s, ten seconds each.
    fn received(rates: &[f64]) -> Vec<(f64, f64)> {
        let mut points = vec![(100.0, 0.0)];
        for rate in rates {
            for _ in 0..20 {
                let (at, bytes) = points[points.len() - 1];
                points.push((at + 0.5, bytes + rate / 16.0));
            }
        }
        points
    }

    #[test]
    fn a_steady_rate_has_its_peak_at_once() {
        let of = OverTime::of(&received(&[8000.0; 3])).unwrap();
        assert_eq!(of, OverTime { peak: 8000.0, peak_after: 2.0, cycles: 0 });
        assert_eq!(OverTime::of(&received(&[8000.0])[..4]), None, "shorter than the mean");
        assert_eq!(OverTime::of(&[]), None);
    }

    #[test]
    fn a_rise_counts_from_the_start() {
        let of = OverTime::of(&received(&[1000.0, 2000.0, 10_000.0])).unwrap();
        // The first mean of 9000 or more is the one over two whole seconds at 10 kbit/s: three quarters give 8000.
        assert_eq!((of.peak, of.peak_after, of.cycles), (10_000.0, 22.0, 0));
    }

    #[test]
    fn a_fall_counts_when_the_rate_rises_again() {
        let cycles = |rates: &[f64]| OverTime::of(&received(rates)).unwrap().cycles;
        assert_eq!(cycles(&[600.0, 300.0]), 0, "it only falls");
        assert_eq!(cycles(&[600.0, 300.0, 600.0]), 1);
        assert_eq!(cycles(&[600.0, 300.0, 600.0, 300.0, 600.0]), 2);
        assert_eq!(cycles(&[600.0, 420.0, 600.0]), 0, "by less than a third");
        assert_eq!(cycles(&[600.0, 0.0, 0.0, 600.0]), 1, "a pause");
    }
}
