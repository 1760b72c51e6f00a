//! HyStart: leave slow start before it overflows the queue. Ha and Rhee, "Taming the elephants: new TCP slow start",
//! Computer Networks 55 (2011); as Linux has it since 6.14 (`tcp_cubic.c`), which follows rounds from the first one on.

use super::{Ack, Window};
use bentpipe_net::time::{Duration, Instant};

/// Acknowledgements this close to each other are one train.
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// Windows below this are left alone.
const WINDOW_MIN: u32 = 16;
/// Measurements of a round before its lowest counts.
const SAMPLES: u32 = 8;
/// The delay may rise by an eighth of the lowest, but by at least and at most this.
const RISE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
/// Largest burst of Linux's segmentation offload; four of them, at the rate of sending, may pass for a train…
const OFFLOAD_BYTES: u64 = 65_536;
/// … but not more than this.
const OFFLOAD_TIME_MAX: Duration = Duration::from_millis(1);

/// Detection within one slow start.
#[derive(Clone, Debug)]
pub(super) struct HyStart {
    /// Slow start was left; nothing more to detect until [`Self::reset`].
    found: bool,
    /// Start of the round.
    round_start: Instant,
    /// Last acknowledgement of the train.
    train_end: Instant,
    /// The round is over once more than this is acknowledged; `None`: what was sent by the next acknowledgement.
    round_end: Option<u64>,
    /// Lowest round-trip time of the round.
    lowest: Duration,
    samples: u32,
}

impl HyStart {
    /// For a connection that opens at `now`: its first acknowledgement of data starts a round.
    pub(super) fn new(now: Instant) -> HyStart {
        let mut detection = HyStart {
            found: false,
            round_start: now,
            train_end: now,
            round_end: None,
            lowest: Duration::ZERO,
            samples: 0,
        };
        detection.start_round(now, Some(0));
        detection
    }

    /// Slow start begins again, after a time-out.
    pub(super) fn reset(&mut self, now: Instant) {
        self.found = false;
        self.start_round(now, None);
    }

    fn start_round(&mut self, now: Instant, end: Option<u64>) {
        self.round_start = now;
        self.train_end = now;
        self.round_end = end;
        self.lowest = Duration { ns: u64::MAX };
        self.samples = 0;
    }

    /// An acknowledgement that measured `rtt`; `base`: the lowest so far. Ends slow start by setting the threshold.
    pub(super) fn sample(&mut self, ack: &Ack, rtt: Duration, base: Duration, window: &mut Window) {
        if self.found || !window.in_slow_start() {
            return;
        }
        if ack.acknowledged > *self.round_end.get_or_insert(ack.next) {
            self.start_round(ack.now, Some(ack.next));
        }
        if window.cwnd < WINDOW_MIN {
            return;
        }

        if ack.now.since(self.train_end) <= TRAIN_GAP {
            self.train_end = ack.now;
            // A train of half the round-trip time means a full pipe: one way is full. (Linux takes all of it where the
            // sender paces; CUBIC does not here.)
            let allowed = base + offload_time(ack, window);
            if ack.now.since(self.round_start).ns > allowed.ns / 2 {
                self.leave(window);
            }
        }

        self.lowest = self.lowest.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            let rise = Duration::from_nanos(base.ns / 8).clamp(RISE.0, RISE.1);
            if self.lowest > base + rise {
                self.leave(window);
            }
        }
    }

    fn leave(&mut self, window: &mut Window) {
        self.found = true;
        window.ssthresh = window.cwnd;
    }
}

/// Four bursts of offloaded segments at the rate that Linux reckons with in slow start: two windows a round trip.
fn offload_time(ack: &Ack, window: &Window) -> Duration {
    let segments = window.cwnd.max(ack.in_flight_before);
    let bytes_per_trip = 2 * u64::from(ack.mss) * u64::from(segments);
    // In 64 bits up to a round trip of 19 hours; beyond, the limit is reached in any case.
    let time = (4 * OFFLOAD_BYTES).saturating_mul(ack.smoothed_rtt.ns) / bytes_per_trip.max(1);
    Duration { ns: time }.min(OFFLOAD_TIME_MAX)
}
