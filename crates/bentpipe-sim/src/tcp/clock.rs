//! When a timer that is set really fires: at once, at the tick of a coarse clock, or as Linux's timer wheel has it.

use super::settings::Settings;
use bentpipe_net::time::{Duration, Instant};

/// Linux's tick with CONFIG_HZ=250, which most distributions have.
const JIFFY: u64 = 4_000_000;
/// Ticks of the wheel's finest level; each further level is eight times as coarse (kernel/time/timer.c).
const FINEST: u64 = 63;
/// Levels of the wheel (LVL_DEPTH).
const LEVELS: u32 = 9;

/// The clock of a host's TCP timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerClock {
    /// Timers fire when they are due.
    Exact,
    /// Timers fire at the first tick at which they are due.
    Ticks(Duration),
    /// Linux's timer wheel: a timer of 63 ticks or more is rounded up to 8 ticks, of 504 or more to 64, of 4032 or more to
    /// 512. A retransmission after 3.1 s leaves up to 256 ms late.
    Wheel {
        /// The wheel's phase at time zero.
        phase: Duration,
    },
}

impl TimerClock {
    /// The clock that `settings` ask for. `random` says where a wheel stands at the start.
    #[must_use]
    pub fn new(settings: &Settings, random: u64) -> TimerClock {
        match (settings.rto_granularity, settings.timer_wheel) {
            (Duration::ZERO, true) => {
                // One turn of the fifth level, 65 s: beyond that no time-out reaches.
                let turn = JIFFY << (3 * 4 + 2);
                TimerClock::Wheel { phase: Duration { ns: random % turn } }
            }
            (Duration::ZERO, false) => TimerClock::Exact,
            (tick, _) => TimerClock::Ticks(tick),
        }
    }

    /// When a timer fires that is set at `now` to last `after`.
    #[inline]
    #[must_use]
    pub fn expiry(self, now: Instant, after: Duration) -> Instant {
        match self {
            TimerClock::Exact => now + after,
            TimerClock::Ticks(tick) => Instant { ns: (now + after).ns.div_ceil(tick.ns).saturating_mul(tick.ns) },
            TimerClock::Wheel { phase } => {
                let wait = after.ns.div_ceil(JIFFY);
                let expires = (now.ns.saturating_add(phase.ns)) / JIFFY + wait;
                let mut level = 0;
                while level + 1 < LEVELS && wait >= FINEST << (3 * level) {
                    level += 1;
                }
                // Always the next slot, so that none fires early (calc_index).
                let slot = (expires >> (3 * level)) + 1;
                Instant { ns: (slot << (3 * level)).saturating_mul(JIFFY).saturating_sub(phase.ns) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant { ns: ms * MS }
    }

    #[test]
    fn ticks_round_up() {
        let clock = TimerClock::Ticks(Duration::from_millis(500));
        assert_eq!(clock.expiry(at(100), Duration::from_millis(1000)), at(1500));
        assert_eq!(clock.expiry(at(0), Duration::from_millis(1000)), at(1000));
        assert_eq!(TimerClock::Exact.expiry(at(1), Duration::from_millis(2)), at(3));
    }

    /// `delta` jiffies fire within the granularity of their level, and never early (kernel/time/timer.c, the table of
    /// levels for HZ=250).
    #[test]
    fn the_wheel_has_linux_levels() {
        for (after, granularity) in
            [(40, 4), (248, 4), (252, 32), (1000, 32), (2012, 32), (2016, 256), (16_000, 256), (16_128, 2048)]
        {
            let mut latest = 0;
            let mut earliest = u64::MAX;
            for phase in 0..4096 {
                let clock = TimerClock::Wheel { phase: Duration { ns: phase * MS / 2 } };
                let late = clock.expiry(at(10_000), Duration::from_millis(after)).ns - at(10_000 + after).ns;
                latest = latest.max(late);
                earliest = earliest.min(late);
            }
            assert!(earliest <= 4 * MS && latest > (granularity - 4) * MS, "{after}: {earliest} to {latest}");
            assert!(latest <= granularity * MS, "{after}: {latest}");
        }
    }

    #[test]
    fn far_times_overflow_nothing() {
        let clock = TimerClock::Wheel { phase: Duration { ns: 5 } };
        assert!(clock.expiry(Instant { ns: u64::MAX - 1 }, Duration { ns: u64::MAX }).ns > 0);
        assert!(
            TimerClock::Ticks(Duration::from_millis(10)).expiry(Instant { ns: u64::MAX - 1 }, Duration { ns: 1 }).ns
                > 0
        );
    }
}
