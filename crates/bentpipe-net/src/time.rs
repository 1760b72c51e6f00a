//! Model time: nanoseconds since the start of a run.
//!
//! Nothing below the drivers reads a clock; every node is handed an [`Instant`].

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in model time, in nanoseconds since the run's start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant {
    /// Nanoseconds since the run's start.
    pub ns: u64,
}

/// A span of model time, in nanoseconds. Written in files as `"250 ms"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration {
    /// Nanoseconds.
    pub ns: u64,
}

impl Instant {
    /// The start of the run.
    pub const ZERO: Instant = Instant { ns: 0 };
    /// Later than any event: what "never" is wherever packets pass, for a comparison with it costs nothing more. (At the
    /// socket contracts it is `None`.)
    pub const FAR: Instant = Instant { ns: u64::MAX };

    /// The time since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration { ns: self.ns.saturating_sub(earlier.ns) }
    }

    /// Seconds since the run's start, for records and charts.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.ns as f64 / 1e9
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration { ns: 0 };

    /// Whole nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Duration { ns }
    }
    /// Whole microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Duration { ns: us * 1_000 }
    }
    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Duration { ns: ms * 1_000_000 }
    }
    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Duration { ns: s * 1_000_000_000 }
    }
    /// Seconds, rounded to the nearest nanosecond; negative and non-finite values become zero.
    #[must_use]
    pub fn from_secs_f64(s: f64) -> Self {
        Duration { ns: (s * 1e9).round() as u64 }
    }
    /// Seconds as a float.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.ns as f64 / 1e9
    }
    /// Milliseconds as a float.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.ns as f64 / 1e6
    }
    /// The same span for the standard library's interfaces.
    #[must_use]
    pub fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.ns)
    }
}

impl From<std::time::Duration> for Duration {
    fn from(d: std::time::Duration) -> Self {
        Duration { ns: u64::try_from(d.as_nanos()).unwrap_or(u64::MAX) }
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, d: Duration) -> Instant {
        Instant { ns: self.ns.saturating_add(d.ns) }
    }
}
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}
impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}
impl Add for Duration {
    type Output = Duration;
    fn add(self, d: Duration) -> Duration {
        Duration { ns: self.ns.saturating_add(d.ns) }
    }
}
impl AddAssign for Duration {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}
impl Sub for Duration {
    type Output = Duration;
    fn sub(self, d: Duration) -> Duration {
        Duration { ns: self.ns.saturating_sub(d.ns) }
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:.9}s", self.as_secs_f64())
    }
}
impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
