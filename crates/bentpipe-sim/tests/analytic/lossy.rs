//! A tap that loses data segments and measures what the models want to know.

use crate::pair::Tap;
use bentpipe_net::datagram::{Segment, flag};
use bentpipe_net::seed::{Seed, Stream, unit};
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;

/// Which packets are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Process {
    /// PFTK's: once a packet of a round is lost, the rest of the round is lost too. A round begins with the first packet
    /// that is sent a round-trip time or more after the last one began.
    Rounds(Duration),
    /// Each one alone.
    Independent,
}

/// Loses data segments and measures what the model wants to know.
pub struct Lossy {
    p: f64,
    process: Process,
    random: Stream,
    round: Option<(Instant, bool)>,
    base: Option<u32>,
    /// Highest byte sent and acknowledged, from the SYN on.
    next: u64,
    una: u64,
    /// (end, when sent, sent again) of what is not acknowledged.
    flight: VecDeque<(u64, Instant, bool)>,
    trigger: Trigger,
    /// When the retransmission timer was last started.
    timer_from: Instant,
    in_timeouts: bool,
    pub seen: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Timer,
    Advance,
    Duplicate,
}

/// Sums over a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    pub sent: u64,
    pub delivered_bytes: u64,
    /// Packets that were first in their round or came after one that was not lost, and those of them that were lost.
    pub exposed: u64,
    pub first_losses: u64,
    pub losses: u64,
    pub fast_retransmissions: u64,
    pub timeout_sequences: u64,
    pub timeouts: u64,
    pub rtt_sum: f64,
    pub rtts: u64,
    pub first_timeout_sum: f64,
}

impl Lossy {
    pub fn new(p: f64, process: Process, seed: u64) -> Lossy {
        Lossy {
            p,
            process,
            random: Seed(seed).stream("lossy"),
            round: None,
            base: None,
            next: 0,
            una: 0,
            flight: VecDeque::new(),
            trigger: Trigger::Timer,
            timer_from: Instant::ZERO,
            in_timeouts: false,
            seen: Seen::default(),
        }
    }

    fn position(&self, wire: u32, near: u64) -> u64 {
        let base = self.base.unwrap_or(wire);
        let offset = wire.wrapping_sub(base).wrapping_sub(near as u32) as i32;
        (near as i64 + i64::from(offset)).max(0) as u64
    }

    fn is_lost(&mut self, now: Instant) -> bool {
        let hit = unit(&mut self.random) < self.p;
        if let Process::Rounds(rtt) = self.process {
            if self.round.is_none_or(|(began, _)| now.since(began) >= rtt) {
                self.round = Some((now, false));
            }
            if self.round.is_some_and(|(_, lossy)| lossy) {
                self.seen.losses += 1;
                return true;
            }
            self.round = self.round.map(|(began, _)| (began, hit));
        }
        self.seen.exposed += 1;
        self.seen.first_losses += u64::from(hit);
        self.seen.losses += u64::from(hit);
        hit
    }

    fn note_sent(&mut self, now: Instant, start: u64, end: u64) {
        self.seen.sent += 1;
        if start >= self.next {
            if self.flight.is_empty() {
                self.timer_from = now;
            }
            self.flight.push_back((end, now, false));
            self.next = end;
            return;
        }
        if let Some(again) = self.flight.iter_mut().find(|(last, _, _)| *last == end) {
            again.2 = true;
        }
        match self.trigger {
            Trigger::Timer => {
                if !self.in_timeouts {
                    self.seen.timeout_sequences += 1;
                    self.seen.first_timeout_sum += now.since(self.timer_from).as_secs_f64();
                }
                self.in_timeouts = true;
                self.seen.timeouts += 1;
            }
            Trigger::Duplicate => self.seen.fast_retransmissions += 1,
            Trigger::Advance => {}
        }
        if start == self.una {
            self.timer_from = now;
        }
    }
}

impl Tap for Lossy {
    fn sent(&mut self, now: Instant, segment: &Segment) -> bool {
        if segment.flags & flag::SYN != 0 {
            self.base = Some(segment.sequence);
            (self.next, self.una) = (1, 1);
            return true;
        }
        let length = segment.payload.length();
        if length == 0 {
            return true;
        }
        let start = self.position(segment.sequence, self.next);
        self.note_sent(now, start, start + length);
        !self.is_lost(now)
    }

    fn arrived(&mut self, now: Instant, segment: &Segment) {
        if self.base.is_none() || segment.flags & flag::ACK == 0 {
            return;
        }
        let acknowledged = self.position(segment.acknowledgement, self.una);
        if acknowledged <= self.una {
            self.trigger = Trigger::Duplicate;
            return;
        }
        self.trigger = Trigger::Advance;
        self.una = acknowledged;
        self.timer_from = now;
        self.in_timeouts = false;
        let mut again = false;
        let mut samples = (0.0, 0);
        while let Some((end, at, sent_again)) = self.flight.front().copied()
            && end <= acknowledged
        {
            self.flight.pop_front();
            again |= sent_again;
            samples = (samples.0 + now.since(at).as_secs_f64(), samples.1 + 1);
        }
        if !again {
            self.seen.rtt_sum += samples.0;
            self.seen.rtts += samples.1;
        }
        self.seen.delivered_bytes = acknowledged;
    }

    fn woken(&mut self, _now: Instant) {
        self.trigger = Trigger::Timer;
    }
}
