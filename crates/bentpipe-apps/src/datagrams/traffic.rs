//! Traffic models: when datagrams leave, and how large they are.

use crate::SpecError;
use bentpipe_net::seed::{Seed, Stream, exponential};
use bentpipe_net::time::Duration;
use bentpipe_net::units::BitRate;

/// The time from one datagram to the next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Interval {
    /// So long.
    Time(Duration),
    /// As long as its data take at this rate.
    Rate(BitRate),
}

/// A traffic model.
#[derive(Clone, PartialEq, Debug)]
pub enum Traffic {
    /// At a constant interval.
    Constant(Interval),
    /// A Poisson process: intervals are distributed exponentially around this mean.
    Poisson(Interval),
    /// A source that is on and off by turns, beginning with on, both distributed exponentially around their means (voice with
    /// silence suppression: Brady 1969). Its intervals pass only while it is on, so its mean rate is on ÷ (on + off) of the
    /// rate while on.
    OnOff {
        /// While on.
        interval: Interval,
        /// Mean length of an on period.
        on: Duration,
        /// Mean length of an off period.
        off: Duration,
    },
    /// Departures one after the other; repeated for as long as the traffic lasts.
    Trace(Vec<TraceEntry>),
}

/// A datagram of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEntry {
    /// Time since the datagram before it, or since the start.
    pub gap: Duration,
    /// Bytes of its data.
    pub bytes: usize,
}

/// Traffic of one direction.
#[derive(Clone, PartialEq, Debug)]
pub struct TrafficSpec {
    /// The model.
    pub traffic: Traffic,
    /// Bytes of data of each datagram, but of a trace's.
    pub bytes: usize,
    /// Nothing leaves at or after this time; `None`: a trace once through.
    pub duration: Option<Duration>,
}

/// A datagram that is to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// Time since the start.
    pub at: Duration,
    /// Bytes of its data.
    pub bytes: usize,
}

/// Most datagrams of one direction.
pub const DATAGRAMS_MAX: u64 = 10_000_000;
/// Shortest mean interval.
const INTERVAL_MIN: Duration = Duration::from_micros(1);

impl Interval {
    /// The time of `count` datagrams of so many bytes.
    fn times(self, count: u64, bytes: usize) -> Duration {
        let ns = match self {
            Interval::Time(each) => u128::from(count) * u128::from(each.ns),
            Interval::Rate(rate) => u128::from(count) * bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.bps.max(1)),
        };
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn key(self) -> &'static str {
        match self {
            Interval::Time(_) => "interval",
            Interval::Rate(_) => "rate",
        }
    }

    fn check(self, bytes: usize) -> Result<(), SpecError> {
        let each = self.times(1, bytes);
        let what = format!("means a datagram of {bytes} B every {each}; allowed: every {INTERVAL_MIN} or longer");
        SpecError::unless(each >= INTERVAL_MIN && self != Interval::Rate(BitRate::from_bps(0)), self.key(), what)
    }
}

impl TrafficSpec {
    /// Whether it can be run.
    pub fn check(&self) -> Result<(), SpecError> {
        if let Some(duration) = self.duration {
            SpecError::unless(duration > Duration::ZERO, "duration", "is zero; allowed: longer than zero")?;
        }
        match &self.traffic {
            Traffic::Constant(interval) | Traffic::Poisson(interval) => interval.check(self.bytes)?,
            Traffic::OnOff { interval, on, off } => {
                interval.check(self.bytes)?;
                SpecError::unless(*on > Duration::ZERO, "on", "is zero; allowed: longer than zero")?;
                SpecError::unless(*off > Duration::ZERO, "off", "is zero; allowed: longer than zero")?;
            }
            Traffic::Trace(entries) => {
                SpecError::unless(!entries.is_empty(), "trace", "is empty; allowed: at least one datagram")?;
                let passes = entries.iter().any(|entry| entry.gap > Duration::ZERO);
                let what = "takes no time, so that it cannot be repeated for duration; allowed: a gap longer than zero";
                SpecError::unless(self.duration.is_none() || passes, "trace", what)?;
            }
        }
        let most = self.most();
        let what = format!("makes about {most} datagrams; allowed: at most {DATAGRAMS_MAX} in one direction");
        SpecError::unless(most <= DATAGRAMS_MAX, "duration", what)
    }

    /// About how many datagrams it makes at most.
    fn most(&self) -> u64 {
        let duration = self.duration.unwrap_or_default();
        match &self.traffic {
            Traffic::Constant(interval) | Traffic::Poisson(interval) | Traffic::OnOff { interval, .. } => {
                (duration.ns as f64 / interval.times(1, self.bytes).ns.max(1) as f64) as u64
            }
            Traffic::Trace(entries) => {
                let pass: u64 = entries.iter().map(|entry| entry.gap.ns).fold(0, u64::saturating_add);
                let passes = if self.duration.is_some() { duration.ns / pass.max(1) + 1 } else { 1 };
                passes.saturating_mul(entries.len() as u64)
            }
        }
    }

    /// The datagrams, in order. The same seed makes the same ones.
    #[must_use]
    pub fn departures(&self, seed: u64) -> Departures {
        Departures {
            spec: self.clone(),
            random: Seed(seed).stream("departures"),
            index: 0,
            at: Duration::ZERO,
            off: Duration::ZERO,
            on_until: None,
        }
    }
}

/// The datagrams of a traffic, in order.
#[derive(Clone, Debug)]
pub struct Departures {
    spec: TrafficSpec,
    random: Stream,
    index: u64,
    /// Of the last datagram.
    at: Duration,
    /// Off periods so far.
    off: Duration,
    /// The time on, all periods together, at which the current one ends.
    on_until: Option<Duration>,
}

impl Departures {
    fn exponential(&mut self, mean: Duration) -> Duration {
        let drawn = exponential(&mut self.random) * mean.ns as f64;
        Duration::from_nanos(drawn.round() as u64)
    }
}

impl Iterator for Departures {
    type Item = Departure;

    fn next(&mut self) -> Option<Departure> {
        let (index, bytes) = (self.index, self.spec.bytes);
        let departure = match &self.spec.traffic {
            Traffic::Constant(interval) => Departure { at: interval.times(index, bytes), bytes },
            Traffic::Poisson(interval) => {
                let mean = interval.times(1, bytes);
                Departure { at: self.at + self.exponential(mean), bytes }
            }
            Traffic::OnOff { interval, on, off } => {
                let (on, off, passed) = (*on, *off, interval.times(index, bytes));
                let mut until = match self.on_until {
                    Some(until) => until,
                    None => self.exponential(on),
                };
                while until <= passed {
                    let silence = self.exponential(off);
                    self.off += silence;
                    until += self.exponential(on);
                }
                self.on_until = Some(until);
                Departure { at: passed + self.off, bytes }
            }
            Traffic::Trace(entries) => {
                let count = entries.len() as u64;
                if self.spec.duration.is_none() && index >= count {
                    return None;
                }
                let TraceEntry { gap, bytes } = entries[(index % count) as usize];
                Departure { at: self.at + gap, bytes }
            }
        };
        if self.spec.duration.is_some_and(|duration| departure.at >= duration) {
            return None;
        }
        self.index += 1;
        self.at = departure.at;
        Some(departure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spec(traffic: Traffic, bytes: usize, seconds: u64) -> TrafficSpec {
        let spec = TrafficSpec { traffic, bytes, duration: Some(Duration::from_secs(seconds)) };
        spec.check().unwrap();
        spec
    }

    fn rate(bps: u64) -> Interval {
        Interval::Rate(BitRate::from_bps(bps))
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        // 1000 B at 3 Mbit/s: 2.666… ms each.
        let departures: Vec<Departure> = spec(Traffic::Constant(rate(3_000_000)), 1000, 1000).departures(1).collect();
        assert_eq!(departures.len(), 375_000);
        assert_eq!(departures[1], Departure { at: Duration::from_nanos(2_666_666), bytes: 1000 });
        assert_eq!(departures[374_997].at.ns, 374_997 / 3 * 8_000_000);
    }

    #[test]
    fn poisson_intervals_have_the_mean_and_the_spread_of_an_exponential() {
        let interval = Interval::Time(Duration::from_millis(10));
        let departures: Vec<Departure> = spec(Traffic::Poisson(interval), 100, 1000).departures(3).collect();
        // 100,000 ± 316; five standard deviations.
        assert!(departures.len().abs_diff(100_000) < 1_600, "{}", departures.len());
        let gaps: Vec<f64> = departures.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs_f64() / 0.01).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
        // Of an exponential distribution the mean square is twice the square of the mean.
        assert!((mean - 1.0).abs() < 0.016 && (square - 2.0).abs() < 0.1, "{mean} {square}");
        let longer = gaps.iter().filter(|gap| **gap > 1.0).count() as f64 / gaps.len() as f64;
        assert!((longer - (-1.0f64).exp()).abs() < 0.01, "{longer}");
    }

    #[test]
    fn an_on_off_source_has_the_mean_rate_of_its_share() {
        let (on, off) = (Duration::from_secs(1), Duration::from_secs(3));
        let traffic = Traffic::OnOff { interval: Interval::Time(Duration::from_millis(20)), on, off };
        let departures: Vec<Departure> = spec(traffic, 160, 20_000).departures(5).collect();
        // 5000 cycles: 250,000 datagrams; the share's standard error is near 1.5 %.
        assert!(departures.len().abs_diff(250_000) < 15_000, "{}", departures.len());
        assert!(departures.windows(2).all(|pair| (pair[1].at - pair[0].at).ns >= 20_000_000));
        let gaps = departures.windows(2).filter(|pair| (pair[1].at - pair[0].at).ns > 20_000_000).count();
        // Off periods begin at the rate of one in four seconds; some on periods hold no datagram.
        assert!((4_400..5_400).contains(&gaps), "{gaps}");
    }

    #[test]
    fn a_trace_is_repeated_for_its_duration_or_goes_once_through() {
        let entry = |ms, bytes| TraceEntry { gap: Duration::from_millis(ms), bytes };
        let traffic = Traffic::Trace(vec![entry(100, 200), entry(0, 1200), entry(300, 40)]);
        let once = TrafficSpec { traffic, bytes: 0, duration: None };
        once.check().unwrap();
        let of = |spec: &TrafficSpec| -> Vec<(u64, usize)> {
            spec.departures(9).map(|d| (d.at.ns / 1_000_000, d.bytes)).collect()
        };
        assert_eq!(of(&once), [(100, 200), (100, 1200), (400, 40)]);
        let second = TrafficSpec { duration: Some(Duration::from_nanos(SECOND)), ..once };
        assert_eq!(of(&second)[3..], [(500, 200), (500, 1200), (800, 40), (900, 200), (900, 1200)]);
    }

    #[test]
    fn a_spec_says_what_is_allowed() {
        let second = Some(Duration::from_secs(1));
        let entry = TraceEntry { gap: Duration::ZERO, bytes: 100 };
        for (traffic, bytes, duration, message) in [
            (
                Traffic::Constant(rate(0)),
                100,
                second,
                "rate: means a datagram of 100 B every 800 s; allowed: every 1 us or longer",
            ),
            (
                Traffic::Constant(Interval::Time(Duration::from_nanos(10))),
                100,
                second,
                "interval: means a datagram of 100 B every 10 ns; allowed: every 1 us or longer",
            ),
            (Traffic::Constant(rate(1)), 100, Some(Duration::ZERO), "duration: is zero; allowed: longer than zero"),
            (
                Traffic::Constant(rate(1_000_000_000)),
                125,
                Some(Duration::from_secs(100)),
                "duration: makes about 100000000 datagrams; allowed: at most 10000000 in one direction",
            ),
            (Traffic::Trace(vec![]), 0, None, "trace: is empty; allowed: at least one datagram"),
            (
                Traffic::Trace(vec![entry]),
                0,
                second,
                "trace: takes no time, so that it cannot be repeated for duration; allowed: a gap longer than zero",
            ),
        ] {
            assert_eq!(TrafficSpec { traffic, bytes, duration }.check().unwrap_err().to_string(), message);
        }
    }
}
