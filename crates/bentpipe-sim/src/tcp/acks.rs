//! When the receiver acknowledges: every second full segment, at once, or after a delay (RFC 1122 §4.2.3.2, RFC 5681
//! §4.2), with Linux's quick acknowledgements at the start and after pauses.

use super::clock::TimerClock;
use super::settings::Settings;
use bentpipe_net::time::{Duration, Instant};

/// Linux: least and most delay of an acknowledgement (TCP_DELACK_MIN, TCP_DELACK_MAX), and the start of its estimate.
const DELAY_MIN: Duration = Duration::from_millis(40);
const DELAY_MAX: Duration = Duration::from_millis(200);

/// The policy of acknowledging: pending acknowledgements and their timer.
#[derive(Debug)]
pub struct AckPolicy {
    every: u64,
    fixed_delay: Option<Duration>,
    quick_total: u32,
    quick: u32,
    /// The peer's pace as estimated (Linux's ATO); zero: no data yet.
    pace: Duration,
    /// Data goes both ways: wait for data of our own to carry the acknowledgement.
    interactive: bool,
    /// Size of the peer's full segments.
    segment: u64,
    /// The acknowledgement field that the peer has last been sent.
    acknowledged: u64,
    last_data: Option<Instant>,
    small_segment: bool,
    owed: bool,
    at_once: bool,
    /// When the delay ends; [`Instant::FAR`]: nothing waits for that.
    due: Instant,
    /// When the timer for it fires.
    fires: Instant,
}

impl AckPolicy {
    /// Nothing came yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        AckPolicy {
            every: u64::from(settings.ack_every.max(1)),
            fixed_delay: settings.delayed_ack,
            quick_total: settings.quick_acks,
            quick: 0,
            pace: Duration::ZERO,
            interactive: false,
            segment: 536,
            acknowledged: 0,
            last_data: None,
            small_segment: false,
            owed: false,
            at_once: false,
            due: Instant::FAR,
            fires: Instant::FAR,
        }
    }

    /// Data of `length` bytes came.
    pub fn data(&mut self, now: Instant, length: u64, rto: Duration) {
        if length >= self.segment {
            self.segment = length;
        } else {
            self.small_segment = true;
        }

        self.owed = true;
        if self.pace == Duration::ZERO {
            self.quick = self.quick_total;
            self.pace = DELAY_MIN;
        } else {
            let gap = now.since(self.last_data.unwrap_or(now));
            if gap.ns <= DELAY_MIN.ns / 2 {
                self.pace = Duration { ns: self.pace.ns / 2 + DELAY_MIN.ns / 2 };
            } else if gap < self.pace {
                self.pace = Duration { ns: self.pace.ns / 2 + gap.ns }.min(rto);
            } else if gap > rto {
                // A pause: the sender may be in slow start again.
                self.quick = self.quick_total;
            }
        }
        self.last_data = Some(now);
    }

    /// The window on offer grew with the last segment: Linux acknowledges it at once (tcp_grow_window).
    pub fn window_grew(&mut self) {
        if self.quick_total > 0 {
            self.quick |= 1;
        }
    }

    /// The peer must hear from us now: a hole, a duplicate, the end of a hole, an end.
    pub fn urgent(&mut self) {
        self.owed = true;
        self.at_once = true;
    }

    /// The peer repeats itself, so it may be missing acknowledgements (Linux's quick-ACK mode).
    pub fn quicken(&mut self) {
        self.urgent();
        self.quick = self.quick.max(self.quick_total);
        self.interactive = false;
        self.pace = DELAY_MIN;
    }

    /// Whether to acknowledge now. `next`: the next byte expected; otherwise the timer runs.
    pub fn decide(&mut self, now: Instant, next: u64, smoothed_rtt: Duration, clock: TimerClock) -> bool {
        if !self.owed {
            return false;
        }
        let quick = self.quick > 0 && !self.interactive;
        if self.at_once || quick || next.saturating_sub(self.acknowledged) > (self.every - 1) * self.segment {
            return true;
        }
        // About to expire: not worth waiting (Linux).
        if self.fixed_delay.is_none() && self.due <= now + Duration::from_nanos(self.pace.ns / 4) {
            return true;
        }
        let delay = self.delay(smoothed_rtt);
        let due = now + delay;
        if due < self.due {
            self.due = due;
            // A delay that is set is the stack's own, by a clock of its own.
            self.fires = if self.fixed_delay.is_some() { due } else { clock.expiry(now, delay) };
        }
        false
    }

    fn delay(&self, smoothed_rtt: Duration) -> Duration {
        if let Some(delay) = self.fixed_delay {
            return delay;
        }
        let mut delay = self.pace;
        if delay > DELAY_MIN {
            let mut most = if self.interactive || self.small_segment { DELAY_MAX } else { Duration::from_millis(500) };
            if smoothed_rtt > Duration::ZERO {
                most = most.min(smoothed_rtt.max(DELAY_MIN));
            }
            delay = delay.min(most);
        }
        delay.min(DELAY_MAX)
    }

    /// The program has read everything. Whether to acknowledge now: after a small segment Linux does, unless data goes
    /// both ways.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.owed && self.small_segment && !self.interactive && self.fixed_delay.is_none()
    }

    /// A segment with this acknowledgement leaves.
    pub fn sent(&mut self, next: u64) {
        if self.owed {
            self.quick = self.quick.saturating_sub(1);
        }
        self.acknowledged = self.acknowledged.max(next);
        self.owed = false;
        self.at_once = false;
        self.small_segment = false;
        self.due = Instant::FAR;
        self.fires = Instant::FAR;
    }

    /// Data of our own leaves at `now`: soon after the peer's, it is a conversation.
    pub fn own_data(&mut self, now: Instant) {
        if self.last_data.is_some_and(|at| now.since(at) < self.pace) {
            self.interactive = true;
        }
    }

    /// The acknowledgement field that the peer has last been sent.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// When the timer of the delay fires; [`Instant::FAR`]: nothing waits for that.
    #[must_use]
    pub fn fires(&self) -> Instant {
        self.fires
    }

    /// The delay has ended; an acknowledgement goes out.
    pub fn expired(&mut self, rto: Duration) {
        if self.interactive {
            self.interactive = false;
            self.pace = DELAY_MIN;
        } else {
            self.pace = Duration { ns: self.pace.ns * 2 }.min(rto);
        }
        self.at_once = true;
    }
}
