//! Use of the congestion window, and the resulting delivery rate.

use super::congestion::Delivery;
use super::scoreboard::Progress;
use super::{Connection, Flight, Repair};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;

/// Bits delivered in an interval. The quotient is wanted much more rarely than the sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeliveryRate {
    bits: u64,
    interval: Duration,
}

impl DeliveryRate {
    /// Zero before the first sample.
    pub(super) fn per_second(self) -> BitRate {
        let bps = (u128::from(self.bits) * 1_000_000_000).checked_div(u128::from(self.interval.ns)).unwrap_or(0);
        BitRate { bps: u64::try_from(bps).unwrap_or(u64::MAX) }
    }
}

impl Connection {
    /// Before the first segment after a silence.
    pub(super) fn before_first(&mut self, now: Instant) {
        let idle = now.since(self.last_sent);
        let rto = self.rto.rto();
        // RFC 5681 §4.1; Linux halves once for each time-out that passed.
        if self.settings.slow_start_after_idle && idle > rto && !self.control.paces() && self.una > 1 {
            self.window.ssthresh = self.current_threshold();
            let restart = self.settings.initial_window.min(self.window.cwnd);
            let mut left = idle.ns;
            while left > rto.ns && self.window.cwnd > restart {
                left -= rto.ns;
                self.window.cwnd /= 2;
            }
            self.window.cwnd = self.window.cwnd.max(restart);
            self.flight.used = 0;
            self.flight.used_since = now;
        }
        self.control.restart(now, &mut self.window);
    }

    /// After sending: whether the congestion window was what limited it (RFC 7661; Linux's tcp_cwnd_validate).
    pub(super) fn note_usage(&mut self, sent: u32, limited: bool, now: Instant) {
        let limited = limited || self.in_flight() >= self.window.cwnd;
        if sent == 0 && !limited {
            return;
        }
        let out = self.board.out();
        let flight: &mut Flight = &mut self.flight;
        if self.una >= flight.usage_until || limited || out > flight.most_out {
            flight.window_limited = limited;
            flight.most_out = out;
            flight.usage_until = self.next;
        }
        if self.is_window_limited() {
            self.flight.used = 0;
            self.flight.used_since = now;
            return;
        }
        self.flight.used = self.flight.used.max(out);
        let long = now.since(self.flight.used_since) >= self.rto.rto();
        if self.settings.slow_start_after_idle && long && !self.control.paces() {
            // RFC 2861 §3: a window that is not used decays.
            let used = self.flight.used.max(self.settings.initial_window);
            let has_more = self.queue.end() > self.next;
            if self.repair == Repair::Open && !has_more && used < self.window.cwnd {
                self.window.ssthresh = self.current_threshold();
                self.window.cwnd = (self.window.cwnd + used) / 2;
            }
            self.flight.used = 0;
            self.flight.used_since = now;
        }
    }

    pub(super) fn is_window_limited(&self) -> bool {
        self.flight.window_limited || (self.window.in_slow_start() && self.window.cwnd < 2 * self.flight.most_out)
    }

    /// A delivery-rate sample (draft-cheng-iccrg-delivery-rate-estimation §3.3).
    #[inline]
    pub(super) fn delivery(&mut self, progress: &Progress, now: Instant) -> Delivery {
        self.flight.delivered += u64::from(progress.delivered);
        let total = self.flight.delivered;
        if self.flight.app_limited_until > 0 && total > self.flight.app_limited_until {
            self.flight.app_limited_until = 0;
        }
        let mut sample = Delivery { total, ..Delivery::default() };
        if progress.delivered > 0 {
            self.flight.delivered_at = now;
        }
        let Some(newest) = &progress.newest else { return sample };
        self.flight.started = newest.at;
        let sending = newest.at.since(newest.flight_started);
        let acknowledging = now.since(newest.delivered_at);
        sample.prior = Some(newest.delivered);
        sample.segments = (total - newest.delivered) as u32;
        sample.interval = sending.max(acknowledging);
        sample.app_limited = newest.app_limited;
        if sample.interval < self.flight.min_rtt.get().unwrap_or_default() || sample.interval == Duration::ZERO {
            sample.prior = None;
            return sample;
        }
        let rate = DeliveryRate { bits: u64::from(sample.segments) * self.mss * 8, interval: sample.interval };
        if !sample.app_limited || rate.per_second() > self.flight.rate.per_second() {
            self.flight.rate = rate;
        }
        sample
    }
}
