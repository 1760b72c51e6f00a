//! The size of the receive buffer, tuned to what the program reads in a round trip (Linux 6.18, net/ipv4/tcp_input.c).

use bentpipe_net::time::{Duration, Instant};

/// Tuning of the buffer (tcp_rcv_space_adjust): twice what the program read in the last round trip, and more while that
/// grows.
#[derive(Debug)]
pub struct Autotuning {
    round_trip: RoundTrip,
    /// The most that was read in a round trip.
    space: u64,
    /// The program's position when the current round trip began.
    mark: u64,
    since: Instant,
}

/// The receiver's estimate of the round trip (tcp_rcv_rtt_update).
#[derive(Debug, Default)]
struct RoundTrip {
    /// Zero: none yet.
    estimate: Duration,
    /// The timestamp echo that was seen last.
    echo: u32,
    /// The window that is coming in: its end, and when it began. An end of 0: none yet.
    window_end: u64,
    window_since: Instant,
}

/// The initial estimate of what is read in a round trip, in segments (TCP_INIT_CWND).
const SEGMENTS_FIRST: u64 = 10;
/// A new sample counts for one in so many, if it is not the shortest.
const SMOOTHING: u64 = 8;

impl Default for Autotuning {
    fn default() -> Self {
        Autotuning { round_trip: RoundTrip::default(), space: 1, mark: 0, since: Instant::ZERO }
    }
}

impl Autotuning {
    /// The connection is open: `position` is the first byte of data, `segment` the data of a full segment, `window` what the
    /// peer may send.
    pub fn open(&mut self, now: Instant, position: u64, segment: u64, window: u64) {
        self.space = (SEGMENTS_FIRST * segment).min(window).max(1);
        self.mark = position;
        self.since = now;
    }

    /// The whole buffer has room for so much data.
    pub fn limit(&mut self, clamp: u64) {
        self.space = self.space.min(clamp).max(1);
    }

    /// A segment with this timestamp echo came; `true`: none with it came before.
    #[inline]
    pub fn is_new_echo(&mut self, echo: u32) -> bool {
        std::mem::replace(&mut self.round_trip.echo, echo) != echo
    }

    /// A full segment's timestamp tells the round trip (tcp_rcv_rtt_measure_ts). `drained`: the program has read all that
    /// came before; otherwise the sample may be long because of the program.
    pub fn echoed(&mut self, round_trip: Duration, drained: bool) {
        let estimate = &mut self.round_trip.estimate;
        if *estimate == Duration::ZERO || round_trip < *estimate {
            *estimate = round_trip;
        } else if drained {
            estimate.ns = estimate.ns - estimate.ns / SMOOTHING + round_trip.ns / SMOOTHING;
        }
    }

    /// The next data came, up to `next`, and `window` more may: the time in which a whole window came is no less than a round
    /// trip (tcp_rcv_rtt_measure).
    #[inline]
    pub fn received(&mut self, now: Instant, next: u64, window: u64) {
        let RoundTrip { estimate, window_end, window_since, .. } = &mut self.round_trip;
        if next < *window_end {
            return;
        }
        let took = now.since(*window_since);
        if *window_end > 0 && (*estimate == Duration::ZERO || took < *estimate) {
            *estimate = took;
        }
        *window_end = next + window;
        *window_since = now;
    }

    /// The program has read everything up to `position`; `unread` bytes are left, and `later` lie between the next byte expected
    /// and the end of what waits out of order. Returns the data that the buffer should have room for, if that is to grow.
    pub fn read(&mut self, now: Instant, position: u64, unread: u64, later: u64) -> Option<u64> {
        let round_trip = self.round_trip.estimate;
        if round_trip == Duration::ZERO || now.since(self.since) < round_trip {
            return None;
        }
        let copied = (position - self.mark).saturating_sub(unread);
        self.mark = position;
        self.since = now;
        if copied <= self.space {
            return None;
        }
        let window = u128::from(copied) * 2;
        let growth = window * u128::from(copied - self.space) / u128::from(self.space);
        self.space = copied;
        Some(u64::try_from(window + 2 * growth + u128::from(later)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_shortest_round_trip_counts_at_once_and_longer_ones_are_smoothed() {
        let mut tuning = Autotuning::default();
        assert!(tuning.is_new_echo(7) && !tuning.is_new_echo(7) && tuning.is_new_echo(8));
        for (sample, drained, expected) in
            [(500, true, 500), (900, false, 500), (900, true, 550), (300, false, 300), (380, true, 310)]
        {
            tuning.echoed(ms(sample), drained);
            assert_eq!(tuning.round_trip.estimate, ms(expected), "{sample}");
        }
        // A window that came in less time shows a shorter one; one that took longer shows nothing.
        for (at, next, expected) in [(0, 1, 310), (200, 900, 310), (250, 1001, 250), (900, 2001, 250)] {
            tuning.received(Instant::ZERO + ms(at), next, 1000);
            assert_eq!(tuning.round_trip.estimate, ms(expected), "{at}");
        }
    }

    #[test]
    fn the_buffer_follows_what_is_read_in_a_round_trip() {
        let mut tuning = Autotuning::default();
        let at = |t| Instant::ZERO + ms(t);
        tuning.open(at(0), 1, 1000, 65_535);
        assert_eq!(tuning.read(at(500), 50_001, 0, 0), None, "no round trip is known");
        tuning.echoed(ms(500), true);
        assert_eq!(tuning.read(at(499), 50_001, 0, 0), None, "not over");
        // 20 kB after ten segments of 1 kB: twice that, and twice the growth again.
        assert_eq!(tuning.read(at(500), 20_001, 0, 0), Some(40_000 + 2 * 40_000));
        assert_eq!(tuning.read(at(999), 90_001, 0, 0), None);
        // As much as before. What nobody has read does not count for the program.
        assert_eq!(tuning.read(at(1000), 40_001, 0, 0), None);
        assert_eq!(tuning.read(at(1500), 65_001, 5_000, 0), None);
        assert_eq!(tuning.read(at(2000), 90_001, 0, 7_000), Some(50_000 + 2 * 12_500 + 7_000));
    }
}
