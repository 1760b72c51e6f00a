//! The wall clock behind model time.

use bentpipe_net::time::Instant;

/// Model time that runs with the wall clock from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start_ns: u64,
}

impl Clock {
    /// A clock that shows zero now.
    #[must_use]
    pub fn start() -> Clock {
        Clock { start_ns: monotonic_ns() }
    }

    /// Model time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant { ns: monotonic_ns().saturating_sub(self.start_ns) }
    }

    /// The offset to subtract from a real-time stamp (nanoseconds since 1970) to get model time, right to about a tenth
    /// of a microsecond. `None` when the thread was interrupted between the two readings: keep the value from before.
    #[must_use]
    pub fn real_time_offset(&self) -> Option<u64> {
        const READINGS_APART_NS: u64 = 250;
        let before = monotonic_ns();
        let real = real_ns();
        let after = monotonic_ns();
        let apart = after - before;
        (apart <= READINGS_APART_NS).then(|| real.saturating_sub(before + apart / 2).saturating_add(self.start_ns))
    }

    /// The same, tried until it succeeds; on a machine with a slow clock, the best of many readings.
    #[must_use]
    pub fn first_real_time_offset(&self) -> u64 {
        const TRIES: usize = 1_000;
        let best = (0..TRIES).find_map(|_| self.real_time_offset());
        best.unwrap_or_else(|| real_ns().saturating_sub(monotonic_ns()).saturating_add(self.start_ns))
    }

    /// The model time of a real-time stamp (nanoseconds since 1970).
    #[must_use]
    pub fn at_real(&self, real_ns: u64) -> Instant {
        Instant { ns: real_ns.saturating_sub(self.first_real_time_offset()) }
    }
}

fn monotonic_ns() -> u64 {
    ns(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

/// Nanoseconds since 1970.
#[must_use]
pub fn real_ns() -> u64 {
    ns(rustix::time::clock_gettime(rustix::time::ClockId::Realtime))
}

fn ns(t: rustix::time::Timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
