//! Timers: retransmission (RFC 6298 §5), tail loss probes, window probes (RFC 9293 §3.8.6.1), delayed acknowledgements,
//! keep-alive (RFC 1122 §4.2.3.6), TIME-WAIT.

use super::{Connection, LossProbe, Output, Repair, State, Timer};
use bentpipe_net::socket::SocketError;
use bentpipe_net::stack::RtoEstimator;
use bentpipe_net::time::{Duration, Instant};

/// SYN-ACKs sent again before the opening is given up (Linux: tcp_synack_retries).
const SYN_ACK_RETRIES: u32 = 5;
/// Linux's least delay of a timer that must not fire at once (TCP_TIMEOUT_MIN).
const TIMEOUT_MIN: Duration = Duration::from_millis(2);

impl Connection {
    /// When [`Connection::wake`] must be called at the latest; [`Instant::FAR`]: never.
    #[must_use]
    #[inline]
    pub fn next_wake(&self) -> Instant {
        if self.state == State::Closed {
            return Instant::FAR;
        }
        let next = self.timer.map_or(Instant::FAR, |(_, at)| at);
        let next = next.min(self.acks.fires()).min(self.handshake.due).min(self.ends_at).min(self.paced_wake());
        match self.settings.keep_alive {
            Some(idle) => next.min(self.keep_alive_due(idle)),
            None => next,
        }
    }

    /// Time has come to `now`.
    pub fn wake(&mut self, output: &mut Output<'_>) {
        let now = output.now;
        let due = |at: Instant| at <= now;
        if self.state == State::Closed {
            return;
        }
        if due(self.ends_at) {
            self.end(None);
            return;
        }
        if due(self.handshake.due) {
            self.handshake_timeout(output);
        }
        if let Some((timer, at)) = self.timer
            && at <= now
        {
            match timer {
                Timer::Retransmit => self.retransmission_timeout(output),
                Timer::LossProbe => self.send_loss_probe(output),
                Timer::Reordering => {
                    self.timer = None;
                    self.losses_found_by_timer(output);
                    if self.timer.is_none() {
                        self.restart_retransmission_timer(now);
                    }
                }
                Timer::WindowProbe => self.probe_window(output),
            }
        }
        if due(self.acks.fires()) {
            self.acks.expired(self.rto.rto());
            self.acknowledge_if_owed(output);
        }
        if due(self.paced_wake()) {
            self.pace_blocks = false;
            self.retransmit_lost(output);
            self.transmit(output);
        }
        if let Some(idle) = self.settings.keep_alive
            && due(self.keep_alive_due(idle))
        {
            self.probe_silence(output);
        }
    }

    fn handshake_timeout(&mut self, output: &mut Output<'_>) {
        let answer = self.state == State::SynReceived;
        let linear = if answer { 0 } else { self.settings.syn_linear_timeouts };
        let most = if answer { SYN_ACK_RETRIES } else { self.settings.syn_retries + linear };
        if self.handshake.retries >= most {
            self.end(Some(SocketError::TimedOut));
            return;
        }
        self.handshake.retries += 1;
        if self.handshake.retries > linear {
            let doubled = Duration { ns: self.handshake.interval.ns.saturating_mul(2) };
            self.handshake.interval = doubled.min(self.settings.rto_max);
        }
        self.retransmitted_total += 1;
        self.send_syn(output);
    }

    pub(super) fn restart_retransmission_timer(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.timer = None;
            return;
        }
        let mut rto = self.rto.rto();
        // After another timer, the time since the head left counts (Linux's tcp_rearm_rto).
        if let (Some((Timer::LossProbe | Timer::Reordering, _)), Some(head)) = (self.timer, self.board.head()) {
            rto = Duration { ns: (head.at + rto).since(now).ns.max(1) };
        }
        self.timer = Some((Timer::Retransmit, self.clock.expiry(now, rto)));
    }

    /// An acknowledgement moved things on: the probe's timer, or the retransmission's (RFC 6298 §5.3).
    pub(super) fn restart_after_acknowledgement(&mut self, now: Instant) {
        if !self.schedule_loss_probe(now, true) {
            self.restart_retransmission_timer(now);
        }
    }

    /// The timer is to be that of a tail loss probe.
    #[inline]
    pub(super) fn wants_loss_probe(&self) -> bool {
        self.settings.tail_loss_probe
            && self.sack
            && !self.board.is_empty()
            && matches!(self.repair, Repair::Open | Repair::Reducing)
            && self.board.sacked == 0
            && self.probe.is_none()
    }

    /// RFC 8985 §7.2. `advancing`: the retransmission timer would start afresh now.
    pub(super) fn schedule_loss_probe(&mut self, now: Instant, advancing: bool) -> bool {
        if !self.wants_loss_probe() {
            return false;
        }
        let srtt = self.rto.smoothed();
        let mut after = if srtt == Duration::ZERO {
            Duration::from_secs(1)
        } else {
            let extra = if self.board.out() == 1 { self.settings.rto_min } else { TIMEOUT_MIN };
            Duration { ns: srtt.ns * 2 } + extra
        };
        let rto = match self.board.head() {
            Some(head) if !advancing => (head.at + self.rto.rto()).since(now),
            _ => self.rto.rto(),
        };
        if rto > Duration::ZERO {
            after = after.min(rto);
        }
        self.timer = Some((Timer::LossProbe, self.clock.expiry(now, after)));
        true
    }

    /// RFC 8985 §7.3.
    fn send_loss_probe(&mut self, output: &mut Output<'_>) {
        if self.probe.is_none()
            && let Some(tail) = self.board.tail()
        {
            // A window that was taken back lets nothing but its first segment be repeated.
            let repeatable = tail.start < self.peer_edge || tail.start == self.una;
            let new = self.next < self.queue.end() + u64::from(self.fin_requested) && self.send_new(0, output);
            if !new && repeatable {
                self.send_again(self.board.out() as usize - 1, output);
            }
            if new || repeatable {
                self.probe = Some(LossProbe { high: self.next, repeats: !new });
                // The retransmission timer starts afresh with the probe.
                self.timer = None;
            }
        }
        self.restart_retransmission_timer(output.now);
    }

    /// RFC 6298 §5.4 to §5.7.
    fn retransmission_timeout(&mut self, output: &mut Output<'_>) {
        let now = output.now;
        if self.board.is_empty() {
            self.timer = None;
            return;
        }
        if self.has_given_up(now) {
            self.end(Some(SocketError::TimedOut));
            return;
        }
        self.enter_loss(now);
        self.retransmissions += 1;
        self.send_again(0, output);
        self.rto.back_off();
        let mut rto = self.rto.rto();
        if let (Some(limit), Some(since)) = (self.settings.user_timeout, self.first_retransmission) {
            rto = rto.min(Duration { ns: (since + limit).since(now).ns.max(1) });
        }
        self.timer = Some((Timer::Retransmit, self.clock.expiry(now, rto)));
    }

    /// True if retransmissions have gone on for too long (RFC 1122 §4.2.3.5 R2; RFC 5482).
    fn has_given_up(&self, now: Instant) -> bool {
        let Some(since) = self.first_retransmission else { return self.settings.retries == 0 };
        if let Some(limit) = self.settings.user_timeout {
            return now.since(since) >= limit;
        }
        match self.settings.rto_estimator {
            RtoEstimator::Rfc6298 => self.retransmissions >= self.settings.retries,
            RtoEstimator::Linux => {
                // As long as that many retransmissions from 200 ms on would take (tcp_model_timeout).
                let base = 200_000_000u64;
                let linear = (self.settings.rto_max.ns / base).max(1).ilog2();
                let boundary = self.settings.retries;
                let limit = if boundary <= linear {
                    ((2u64 << boundary) - 1) * base
                } else {
                    ((2u64 << linear) - 1) * base + u64::from(boundary - linear) * self.settings.rto_max.ns
                };
                self.retransmissions > 0 && now.since(since).ns >= limit
            }
        }
    }

    /// Starts or stops the probing of a closed window.
    pub(super) fn check_window_probe(&mut self, now: Instant) {
        let waits = self.next < self.queue.end() + u64::from(self.fin_requested);
        if !waits || !self.board.is_empty() || self.is_paced(now) {
            return;
        }
        if self.timer.is_none() {
            self.timer = Some((Timer::WindowProbe, self.clock.expiry(now, self.rto.rto())));
        }
    }

    fn probe_window(&mut self, output: &mut Output<'_>) {
        self.timer = None;
        if !self.board.is_empty() || self.next >= self.queue.end() + u64::from(self.fin_requested) {
            return;
        }
        // A peer that never answers is gone; one that answers may keep its window closed for ever (RFC 9293 §3.8.6.1).
        let limit = self.settings.user_timeout.is_some_and(|limit| output.now.since(self.last_heard) >= limit);
        if self.probes_unanswered > self.settings.retries || (limit && self.probes_unanswered > 0) {
            self.end(Some(SocketError::TimedOut));
            return;
        }
        self.transmit(output);
        if self.board.is_empty() {
            self.send_probe(output);
            self.probes_unanswered += 1;
            self.rto.back_off();
            self.timer = Some((Timer::WindowProbe, self.clock.expiry(output.now, self.rto.rto())));
        }
    }

    fn keep_alive_due(&self, idle: Duration) -> Instant {
        if !self.is_synchronised() || self.state == State::TimeWait || !self.board.is_empty() {
            return Instant::FAR;
        }
        let intervals = Duration { ns: self.settings.keep_alive_interval.ns * u64::from(self.keep_alive_probes) };
        self.last_heard.max(self.last_sent) + idle + intervals
    }

    fn probe_silence(&mut self, output: &mut Output<'_>) {
        if self.keep_alive_probes >= self.settings.keep_alive_probes {
            self.send_reset(output);
            self.end(Some(SocketError::TimedOut));
            return;
        }
        self.keep_alive_probes += 1;
        self.send_probe(output);
    }
}
