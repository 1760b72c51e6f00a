//! The processing of acknowledgements: delivery, losses and the congestion window. The states and their
//! transitions are those of Linux (tcp_ack, tcp_fastretrans_alert), which are RFC 5681, 6582, 6675, 6937, 8985 and 5682
//! joined into one machine.

use super::congestion::{Ack, Phase};
use super::output::clock;
use super::scoreboard::{Progress, Sent};
use super::{Connection, Output, Prr, Repair, Timer, Undo, unwrap};
use bentpipe_net::datagram::Segment;
use bentpipe_net::stack::Recovery;
use bentpipe_net::time::{Duration, Instant};

/// The facts about an acknowledgement before it is processed.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckFacts {
    /// It came with data.
    pub data: bool,
    /// It changed the window and nothing else.
    pub window_changed: bool,
    /// It echoes congestion (ECN).
    pub echo: bool,
    /// New data may follow at once, and the timer with it: if that is a probe's, it is left to the caller.
    pub data_follows: bool,
}

/// The transmission that follows an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resend {
    Nothing,
    Lost,
    /// New data, to see whether a time-out was too early (F-RTO).
    New,
}

/// Most that reordering may raise the duplicate threshold to (tcp_max_reordering).
const REORDERING_MAX: u32 = 300;
/// Most quarters of a round trip to wait for reordered segments, and recoveries after which it is one again (Linux: the
/// size of reo_wnd_steps, TCP_RACK_RECOVERY_THRESH; RFC 8985 §6.2 step 4).
const REORDERING_STEPS_MAX: u32 = 255;
const REORDERING_PERSISTS: u32 = 16;

impl Connection {
    /// Works on an acknowledgement. Returns whether the timer was left to the caller ([`AckFacts::data_follows`]).
    pub(super) fn process_acknowledgement(
        &mut self,
        segment: &Segment,
        acknowledged: u64,
        facts: AckFacts,
        output: &mut Output<'_>,
    ) -> bool {
        if self.board.is_empty() && acknowledged == self.una && segment.sack.is_none() {
            // Only the peer sends.
            self.answered_when_idle();
            return false;
        }
        if let Some(timer_left) = self.acknowledged_in_order(segment, acknowledged, facts, output.now) {
            return timer_left;
        }
        let now = output.now;
        let before = self.una;
        let in_flight_before = self.board.in_flight();
        let had_outstanding = !self.board.is_empty();
        let mut progress = Progress::default();
        let mut duplicate_reported = false;
        if self.sack
            && let Some(blocks) = &segment.sack
        {
            duplicate_reported = self.learn_blocks(blocks.as_slice(), acknowledged, &mut progress);
        }
        progress.sacked = progress.delivered;
        let advanced = acknowledged > before;
        if advanced {
            self.advance(acknowledged);
        }
        if !had_outstanding {
            self.answered_when_idle();
            return false;
        }
        self.probes_unanswered = 0;
        let oldest = self.board.head().filter(|sent| sent.retransmissions == 0 && !sent.sacked).map(|sent| sent.at);
        let echo = self.learn_echo(segment);
        let older = |sent: &Sent| echo.is_some_and(|echo| (echo.wrapping_sub(clock(sent.at)) as i32) < 0);
        self.board.acknowledge(acknowledged, self.sack, older, &mut progress);
        if !self.sack && progress.acked > 0 {
            self.settle_duplicates(&mut progress);
        }
        let (rtt, newest_rtt) = self.measure(segment, &progress, oldest, advanced, now);
        self.note_reordering(&progress, acknowledged);
        if let Some(newest) = &progress.newest {
            self.rack_advance(newest, now);
            self.rack_adapt(newest, progress.delivered);
        }
        self.probe_answered(acknowledged, advanced, facts, progress.sacked > 0, duplicate_reported, now);
        // RFC 5681 §2: a duplicate carries no data, acknowledges nothing new and changes no window.
        let not_duplicate = facts.data || facts.window_changed || advanced;
        let dubious =
            !not_duplicate || progress.sacked > 0 || facts.echo || duplicate_reported || self.repair != Repair::Open;
        let lost_before = self.flight.lost;
        let mut resend = Resend::Nothing;
        let mut timer_set = false;
        if dubious {
            let duplicates = u32::from(!advanced && !not_duplicate && !duplicate_reported);
            resend = self.alert(duplicates, advanced, facts.echo, &mut progress, &mut timer_set, now);
        }
        if (progress.acked > 0 || self.sack_moves_timer(&progress)) && !timer_set {
            self.restart_after_acknowledgement(now);
        }
        let newly_lost = (self.flight.lost - lost_before) as u32;
        let may_grow = progress.acked > 0 || (self.duplicate_threshold > 3 && progress.delivered > 0);
        let ack = self.ack(&progress, newest_rtt.or(rtt), in_flight_before, newly_lost, now);
        if self.control.paces() {
            self.control.on_ack(&ack, &mut self.window);
        } else if matches!(self.repair, Repair::Reducing | Repair::Recovery) {
            self.reduce(progress.delivered, newly_lost, advanced);
        } else if may_grow {
            self.control.on_ack(&ack, &mut self.window);
        }
        match resend {
            Resend::Nothing => {}
            Resend::Lost => self.retransmit_lost(output),
            Resend::New => {
                self.transmit(output);
                if self.next <= self.high {
                    self.frto = false;
                    self.retransmit_lost(output);
                }
            }
        }
        false
    }

    /// The common acknowledgement, of whole segments in order while nothing is wrong; for it, this does what
    /// [`Connection::process_acknowledgement`] would, and says the same. `None`: it is another one, and nothing was done.
    #[inline]
    fn acknowledged_in_order(
        &mut self,
        segment: &Segment,
        acknowledged: u64,
        facts: AckFacts,
        now: Instant,
    ) -> Option<bool> {
        let default = self.predicts()
            && acknowledged > self.una
            && self.sack
            && segment.sack.is_none()
            && self.repair == Repair::Open
            && self.probe.is_none()
            && !facts.echo
            && self.rack.newest_end <= self.una;
        if !default {
            return None;
        }
        let in_flight_before = self.board.in_flight();
        let (progress, oldest) = self.board.acknowledge_in_order(acknowledged)?;
        let newest = progress.newest.as_ref()?;
        self.advance(acknowledged);
        self.probes_unanswered = 0;
        self.learn_echo(segment);
        let newest_rtt = now.since(newest.at);
        self.flight.min_rtt.measure(now, newest_rtt);
        self.rto.measure(now.since(oldest), self.una, self.next);
        self.rack_advance(newest, now);
        self.rack_adapt(newest, progress.delivered);
        let timer_left = facts.data_follows && self.wants_loss_probe();
        if !timer_left {
            self.restart_after_acknowledgement(now);
        }
        let ack = self.ack(&progress, Some(newest_rtt), in_flight_before, 0, now);
        self.control.on_ack(&ack, &mut self.window);
        Some(timer_left)
    }

    /// Everything below `acknowledged` arrived.
    #[inline]
    fn advance(&mut self, acknowledged: u64) {
        self.retransmissions = 0;
        self.first_retransmission = None;
        self.una = acknowledged;
        self.queue.release(acknowledged.min(self.queue.end()));
    }

    /// Takes note of the timestamp echo of the acknowledgement at work.
    #[inline]
    fn learn_echo(&mut self, segment: &Segment) -> Option<u32> {
        self.echo = match segment.timestamps {
            Some((_, echo)) if self.timestamps && echo != 0 => Some(echo),
            _ => None,
        };
        self.echo
    }

    /// Passes an acknowledgement to congestion control.
    #[inline]
    fn ack(
        &mut self,
        progress: &Progress,
        rtt: Option<Duration>,
        in_flight_before: u32,
        newly_lost: u32,
        now: Instant,
    ) -> Ack {
        let delivery = self.delivery(progress, now);
        Ack {
            now,
            newly_delivered: progress.delivered,
            acked: progress.acked,
            growth_limit: match self.settings.byte_counting {
                None => u32::MAX,
                Some(limit) => limit.max(1),
            },
            avoidance_limit: if self.settings.byte_counting == Some(0) { 1 } else { u32::MAX },
            newly_lost,
            in_flight_before,
            in_flight: self.board.in_flight(),
            rtt,
            smoothed_rtt: self.rto.smoothed(),
            mss: self.mss as u32,
            window_limited: self.is_window_limited(),
            delivery,
            acknowledged: self.una,
            next: self.next,
        }
    }

    /// An acknowledgement while nothing is in flight: it may open the window that is probed.
    fn answered_when_idle(&mut self) {
        self.probes_unanswered = 0;
        if let Some((Timer::WindowProbe, _)) = self.timer
            && self.peer_edge > self.next
        {
            self.timer = None;
            self.rto.forget_backoff();
        }
    }

    /// SACK blocks; whether the first one tells of a duplicate (RFC 2883 §4).
    fn learn_blocks(&mut self, blocks: &[(u32, u32)], acknowledged: u64, progress: &mut Progress) -> bool {
        let position = |wire| unwrap(wire, self.initial_sequence, self.una);
        let mut duplicate = false;
        let mut known = [(0, 0); 4];
        let mut count = 0;
        for (first, past) in blocks.iter().take(4) {
            let (Some(first), Some(past)) = (position(*first), position(*past)) else { continue };
            if first < past && past <= self.next {
                known[count] = (first, past);
                count += 1;
            }
        }
        let known = &known[..count];
        if let Some((first, past)) = known.first() {
            let inside = known.get(1).is_some_and(|(low, high)| first >= low && past <= high);
            if *past <= acknowledged || inside {
                duplicate = true;
                if self.undo.marker.is_some_and(|marker| *past > marker) {
                    self.undo.retransmissions = self.undo.retransmissions.saturating_sub(1);
                }
                // Where nothing is reordered, and after a probe, a needless repetition says nothing about reordering.
                self.rack.duplicate_reported |=
                    self.rack.reordering_seen && self.probe.is_none_or(|probe| probe.high != *past);
            }
        }
        for (first, past) in known.iter().skip(usize::from(duplicate)) {
            if *first >= self.una {
                self.board.sack(*first, *past, progress);
            }
        }
        duplicate
    }

    /// Without SACK, each duplicate acknowledgement stood for a segment; an advance settles them (RFC 6582 §3.2).
    fn settle_duplicates(&mut self, progress: &mut Progress) {
        let stood_for = self.board.sacked;
        progress.delivered += progress.acked.saturating_sub(stood_for).max(1);
        self.board.sacked = stood_for.saturating_sub(progress.acked - 1);
        self.limit_duplicates(progress.acked);
    }

    /// Duplicates stand for segments in flight, but not for those that are missing. More of them than that mean that
    /// segments were reordered or repeated needlessly, and how far (Linux's tcp_check_reno_reordering). `acked`: segments
    /// just acknowledged cumulatively.
    fn limit_duplicates(&mut self, acked: u32) {
        let out = self.board.out();
        let holes = self.board.lost.max(1).min(out);
        if self.board.sacked + holes > out {
            self.board.sacked = out - holes;
            // Older stacks take three for a loss, whatever they see (RFC 5681 §3.2).
            if self.settings.recovery == Recovery::NewReno {
                self.duplicate_threshold = (out + acked).clamp(1, REORDERING_MAX);
            }
        }
    }

    /// Round-trip times: of the oldest segment acknowledged (for the time-out; it may include a delayed acknowledgement)
    /// and of the newest (for congestion control).
    /// `oldest`: when the oldest segment in flight left, if it was sent once and not sacked.
    fn measure(
        &mut self,
        segment: &Segment,
        progress: &Progress,
        oldest: Option<Instant>,
        advanced: bool,
        now: Instant,
    ) -> (Option<Duration>, Option<Duration>) {
        let mut rtt = None;
        let mut newest = None;
        if progress.acked > 0 && !progress.retransmission_acked {
            rtt = oldest.map(|at| now.since(at));
            rtt = rtt.or(progress.newest_original.map(|at| now.since(at)));
            newest = progress.newest_original.map(|at| now.since(at));
        }
        if let Some(at) = progress.newest_sacked {
            newest = Some(now.since(at));
            rtt = rtt.or(newest);
        }
        // RFC 7323 §4.1: the echo counts only if something new is acknowledged.
        if rtt.is_none() && advanced && progress.acked > 0 {
            rtt = self.echoed_rtt(segment, now);
            newest = newest.or(rtt);
        }
        if let Some(sample) = newest {
            self.flight.min_rtt.measure(now, sample);
        }
        if let Some(sample) = rtt {
            self.rto.measure(sample, self.una, self.next);
        } else if advanced && progress.acked > 0 && !progress.retransmission_acked {
            self.rto.forget_backoff();
        }
        (rtt, newest)
    }

    /// A segment sent once arrives after later ones: the network reorders.
    fn note_reordering(&mut self, progress: &Progress, acknowledged: u64) {
        if !self.sack {
            return;
        }
        let Some(low) = progress.lowest_original else { return };
        let high = self.board.sacked_until().max(acknowledged);
        let known = progress.newest.map_or(0, |sent| sent.end);
        if low + self.mss <= known.min(high) && self.rack.newest_end > low + self.mss && progress.acked > 0 {
            let distance = ((self.rack.newest_end - low) / self.mss) as u32;
            if distance > self.duplicate_threshold {
                self.duplicate_threshold = distance.min(REORDERING_MAX);
            }
            if distance > 1 && self.board.sacked + self.board.lost > 0 {
                self.rack.reordering_seen = true;
            }
        }
    }

    /// RFC 8985 §6.2 steps 1 and 2.
    fn rack_advance(&mut self, newest: &Sent, now: Instant) {
        let rtt = now.since(newest.at);
        // Too soon to be the answer to a retransmission.
        if newest.retransmissions > 0 && self.flight.min_rtt.get().is_some_and(|least| rtt < least) {
            return;
        }
        self.rack.advanced = true;
        self.rack.rtt = rtt;
        if newest.order > self.rack.newest {
            self.rack.newest = newest.order;
            self.rack.newest_end = newest.end;
        }
    }

    /// RFC 8985 §6.2 step 4: how long to wait for reordered segments (Linux's tcp_rack_update_reo_wnd).
    fn rack_adapt(&mut self, newest: &Sent, delivered: u32) {
        let reported = std::mem::take(&mut self.rack.duplicate_reported) && newest.delivered >= self.rack.adapted_at;
        if reported {
            self.rack.steps = (self.rack.steps + 1).min(REORDERING_STEPS_MAX);
            self.rack.adapted_at = self.flight.delivered + u64::from(delivered);
            self.rack.persist = REORDERING_PERSISTS;
        } else if self.rack.persist == 0 {
            self.rack.steps = 1;
        }
    }

    /// Judges a tail loss probe by an acknowledgement (RFC 8985 §7.4).
    fn probe_answered(
        &mut self,
        acknowledged: u64,
        advanced: bool,
        facts: AckFacts,
        sacked: bool,
        duplicate_reported: bool,
        now: Instant,
    ) {
        let Some(probe) = self.probe else { return };
        if acknowledged < probe.high {
            return;
        }
        if !probe.repeats || duplicate_reported {
            self.probe = None;
        } else if acknowledged > probe.high {
            // The probe repaired a loss: that is congestion all the same.
            self.begin_reduction(now);
            self.window.cwnd = self.window.ssthresh.min(self.window.cwnd).max(1);
            self.repair = Repair::Open;
            self.control.phase(now, Phase::Open, &mut self.window);
        } else if !advanced && !facts.data && !facts.window_changed && !sacked {
            self.probe = None;
        }
    }

    /// An acknowledgement out of the ordinary.
    fn alert(
        &mut self,
        duplicates: u32,
        advanced: bool,
        echo: bool,
        progress: &mut Progress,
        timer_set: &mut bool,
        now: Instant,
    ) -> Resend {
        if echo {
            self.undo.marker = None;
        }
        if self.board.is_empty() {
            self.board.sacked = 0;
        }
        // Is the repair over?
        if self.repair != Repair::Open && self.una >= self.high {
            match self.repair {
                Repair::Reducing if self.una > self.high => self.end_reduction(now),
                Repair::Recovery => {
                    if !self.sack {
                        self.board.sacked = 0;
                    }
                    let undone = self.try_undo();
                    // RFC 6582 §3.2 step 3: without SACK, wait for something above, or late duplicates start it again.
                    if self.una == self.high && !self.sack {
                        return Resend::Nothing;
                    }
                    if undone {
                        self.repair = Repair::Open;
                        self.control.phase(now, Phase::Open, &mut self.window);
                    } else {
                        self.end_reduction(now);
                    }
                }
                _ => {}
            }
        }
        match self.repair {
            Repair::Recovery => {
                if !advanced {
                    self.count_duplicates(duplicates, progress);
                } else if !self.sack && self.settings.recovery != Recovery::NewReno {
                    // Reno: the first new acknowledgement ends it (RFC 2581 §3.2 step 5).
                    self.board.sacked = 0;
                    self.end_reduction(now);
                    return Resend::Nothing;
                }
                self.find_losses(advanced, timer_set, now);
                Resend::Lost
            }
            Repair::Loss => {
                let resend = self.after_timeout(duplicates, advanced, progress, now);
                let retransmitted = self.board.retransmitted;
                self.find_losses(advanced, timer_set, now);
                if self.repair != Repair::Open && self.board.retransmitted >= retransmitted {
                    return resend;
                }
                if self.board.lost == 0 || !self.settings.fast_retransmit {
                    self.keep_open();
                    return resend;
                }
                if self.repair == Repair::Open {
                    self.begin_recovery(echo, now);
                }
                Resend::Lost
            }
            _ => {
                if !self.sack {
                    if advanced {
                        self.board.sacked = 0;
                    }
                    self.count_duplicates(duplicates, progress);
                }
                if self.repair <= Repair::Disorder {
                    self.try_undo_by_duplicates(now);
                }
                self.find_losses(advanced, timer_set, now);
                if self.board.lost == 0 || !self.settings.fast_retransmit {
                    if echo && self.repair != Repair::Reducing {
                        self.begin_reduction(now);
                        self.repair = Repair::Reducing;
                        self.control.phase(now, Phase::Recovery, &mut self.window);
                        self.cwr_to_send = true;
                    }
                    self.keep_open();
                    return Resend::Lost;
                }
                if !self.sack && self.settings.recovery == Recovery::Tahoe {
                    self.slow_start_from_loss(now);
                } else {
                    self.begin_recovery(echo, now);
                }
                Resend::Lost
            }
        }
    }

    /// Without SACK: a duplicate acknowledgement stands for a segment that arrived.
    fn count_duplicates(&mut self, duplicates: u32, progress: &mut Progress) {
        if self.sack || duplicates == 0 {
            return;
        }
        let before = self.board.sacked;
        self.board.sacked += duplicates;
        self.limit_duplicates(0);
        progress.delivered += self.board.sacked.saturating_sub(before);
    }

    /// Marks what must be held to be lost.
    fn find_losses(&mut self, advanced: bool, timer_set: &mut bool, now: Instant) {
        if self.board.is_empty() || !self.settings.fast_retransmit && self.repair < Repair::Recovery {
            return;
        }
        if !self.sack {
            let enough = self.repair < Repair::Recovery && self.board.sacked >= self.duplicate_threshold;
            if enough || (self.repair == Repair::Recovery && advanced) {
                self.flight.lost += u64::from(self.board.mark_head_lost());
            }
        } else if self.settings.rack {
            if std::mem::take(&mut self.rack.advanced) {
                *timer_set |= self.rack_detect(now);
            }
        } else {
            let marked = self.board.mark_below_sacked(self.duplicate_threshold, self.next);
            self.flight.lost += u64::from(marked);
        }
    }

    /// RFC 8985 §6.2 step 5; whether the reordering timer was set.
    pub(super) fn rack_detect(&mut self, now: Instant) -> bool {
        let patience = self.rack.rtt + self.reordering_window();
        let (marked, next) = self.board.mark_overdue(self.rack.newest, now, patience);
        self.flight.lost += u64::from(marked);
        if let Some(due) = next {
            let wait = ((due + Duration::from_millis(2)).since(now)).min(self.rto.rto());
            self.timer = Some((Timer::Reordering, self.clock.expiry(now, wait)));
            return true;
        }
        false
    }

    /// RFC 8985 §6.2 step 4.
    fn reordering_window(&self) -> Duration {
        if !self.rack.reordering_seen
            && (self.repair >= Repair::Recovery || self.board.sacked >= self.duplicate_threshold)
        {
            return Duration::ZERO;
        }
        let least = self.flight.min_rtt.get().unwrap_or_default();
        Duration { ns: least.ns / 4 * u64::from(self.rack.steps) }.min(self.rto.smoothed())
    }

    /// A loss, or an ECN echo: the threshold falls, and the window will.
    pub(super) fn begin_reduction(&mut self, now: Instant) {
        self.high = self.next;
        self.probe = None;
        self.window.credit = 0;
        self.prr = Prr { delivered: 0, sent: 0, window_before: self.window.cwnd };
        self.window.ssthresh = self.control.ssthresh(now, &self.window);
    }

    fn begin_recovery(&mut self, echo: bool, now: Instant) {
        let reducing = self.repair == Repair::Reducing;
        self.undo = Undo {
            marker: (!echo && !reducing).then_some(self.una),
            retransmissions: 0,
            since: None,
            ssthresh: self.current_threshold(),
            window: self.window.cwnd,
        };
        if !reducing {
            self.begin_reduction(now);
            self.cwr_to_send = self.ecn;
        }
        self.high = self.next;
        self.repair = Repair::Recovery;
        self.control.phase(now, Phase::Recovery, &mut self.window);
        if !self.settings.proportional_rate_reduction && !self.control.paces() {
            // RFC 6675 §5 step 4.2, RFC 5681 §3.2 step 2 (the segments that left the network are not counted in flight).
            self.window.cwnd = self.window.ssthresh;
        }
    }

    /// Tahoe: slow start again from the first lost segment.
    fn slow_start_from_loss(&mut self, now: Instant) {
        self.begin_reduction(now);
        self.flight.lost += u64::from(self.board.mark_lost_if(|_, _| true));
        self.board.sacked = 0;
        self.window.cwnd = 1;
        self.repair = Repair::Loss;
        self.frto = false;
        self.undo.marker = None;
        self.control.phase(now, Phase::Loss, &mut self.window);
    }

    fn end_reduction(&mut self, now: Instant) {
        if !self.control.paces() && self.window.ssthresh < u32::MAX {
            self.window.cwnd = self.window.ssthresh;
        }
        self.repair = Repair::Open;
        self.control.phase(now, Phase::Open, &mut self.window);
    }

    /// RFC 6937 §3, with the slow-start reduction bound while acknowledgements advance and nothing more is lost.
    fn reduce(&mut self, delivered: u32, newly_lost: u32, advanced: bool) {
        if delivered == 0 || self.prr.window_before == 0 || !self.settings.proportional_rate_reduction {
            return;
        }
        self.prr.delivered += delivered;
        let in_flight = self.board.in_flight();
        let threshold = self.window.ssthresh;
        let mut allowed = if in_flight > threshold {
            let share =
                (u64::from(threshold) * u64::from(self.prr.delivered)).div_ceil(u64::from(self.prr.window_before));
            (share as u32).saturating_sub(self.prr.sent)
        } else {
            let mut allowed = self.prr.delivered.saturating_sub(self.prr.sent).max(delivered);
            if advanced && newly_lost == 0 {
                allowed += 1;
            }
            allowed.min(threshold - in_flight)
        };
        // The first retransmission goes whatever the sums say.
        if self.prr.sent == 0 {
            allowed = allowed.max(1);
        }
        self.window.cwnd = (in_flight + allowed).max(1);
    }

    /// The threshold that a reduction leaves (Linux's tcp_current_ssthresh).
    pub(super) fn current_threshold(&self) -> u32 {
        if matches!(self.repair, Repair::Reducing | Repair::Recovery) {
            return self.window.ssthresh;
        }
        self.window.ssthresh.max(self.window.cwnd / 2 + self.window.cwnd / 4)
    }

    /// Open, or Disorder while something is missing.
    fn keep_open(&mut self) {
        if self.repair > Repair::Disorder {
            return;
        }
        let missing = self.board.sacked > 0 || self.board.lost > 0 || self.board.any_retransmitted();
        self.repair = if missing { Repair::Disorder } else { Repair::Open };
        if missing {
            self.high = self.next;
        }
    }

    /// After a time-out: F-RTO (RFC 5682 §3.1), else slow start through what was lost.
    fn after_timeout(&mut self, duplicates: u32, advanced: bool, progress: &mut Progress, now: Instant) -> Resend {
        let recovered = self.una >= self.high;
        if advanced && self.undo_loss(false, now) {
            return Resend::Nothing;
        }
        if self.frto {
            // Step 3b: a segment sent once, before the time-out, was acknowledged, so the time-out came too early. Without
            // SACK, an acknowledgement that reaches a repetition says nothing of those above it.
            let original = progress.lowest_original.is_some_and(|first| first < self.high)
                && (self.sack || !progress.retransmission_acked);
            if original && self.undo_loss(true, now) {
                return Resend::Nothing;
            }
            if self.next > self.high {
                if progress.sacked > 0 || duplicates > 0 {
                    self.frto = false;
                }
            } else if advanced && !recovered {
                self.high = self.next;
                if self.next < self.queue.end() && self.peer_edge > self.next {
                    return Resend::New;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.board.sacked = if self.sack { self.board.sacked } else { 0 };
            if self.una == self.high && !self.sack {
                return Resend::Nothing;
            }
            self.undo.marker = None;
            self.repair = Repair::Open;
            self.control.phase(now, Phase::Open, &mut self.window);
            return Resend::Lost;
        }
        if !self.sack {
            if advanced {
                self.board.sacked = 0;
            } else if self.next > self.high {
                self.count_duplicates(duplicates, progress);
            }
        }
        Resend::Lost
    }

    /// The retransmission timer has fired: everything unacknowledged is lost (Linux's tcp_enter_loss).
    pub(super) fn enter_loss(&mut self, now: Instant) {
        let fresh = self.repair < Repair::Recovery;
        // RACK keeps what was sent too recently to be judged.
        let judge = self.settings.rack && self.sack && self.rack.rtt > Duration::ZERO;
        let rtt = self.rack.rtt;
        if self.board.head().is_some_and(|head| head.sacked) {
            self.board.forget_sacks();
        }
        if !self.sack {
            self.board.sacked = 0;
        }
        let marked = self.board.mark_lost_if(|index, sent| !(index > 0 && judge && sent.at + rtt > now));
        self.flight.lost += u64::from(marked);
        let again = self.repair == Repair::Loss && self.retransmissions == 0;
        if self.repair <= Repair::Disorder || self.high <= self.una || again {
            self.undo = Undo {
                marker: Some(self.una),
                retransmissions: 0,
                since: None,
                ssthresh: self.current_threshold(),
                window: self.window.cwnd,
            };
            self.prr.window_before = self.window.cwnd;
            self.window.ssthresh = self.control.ssthresh(now, &self.window);
            self.control.phase(now, Phase::Loss, &mut self.window);
        }
        self.window.cwnd = self.board.in_flight() + 1;
        self.window.credit = 0;
        self.repair = Repair::Loss;
        self.high = self.next;
        self.probe = None;
        self.cwr_to_send = self.ecn;
        self.frto = self.settings.frto && (fresh || self.retransmissions > 0);
    }

    /// Losses that the reordering timer found (RFC 8985 §6.3).
    pub(super) fn losses_found_by_timer(&mut self, output: &mut Output<'_>) {
        let before = self.board.in_flight();
        self.rack_detect(output.now);
        if self.board.in_flight() != before {
            if self.repair != Repair::Recovery {
                self.begin_recovery(false, output.now);
                if !self.control.paces() {
                    self.reduce(1, 1, false);
                }
            }
            self.retransmit_lost(output);
        }
    }

    /// Sends lost segments again, as far as the window allows; the first one of a recovery goes at once (RFC 5681 §3.2
    /// step 3, RFC 6675 §5 step 4.3).
    pub(super) fn retransmit_lost(&mut self, output: &mut Output<'_>) {
        let paces = self.control.paces();
        while self.in_flight() < self.window.cwnd || (self.repair == Repair::Recovery && self.prr.sent == 0 && !paces) {
            let Some(index) = self.board.next_repair() else { break };
            if self.is_paced(output.now) {
                self.pace_blocks = true;
                break;
            }
            self.send_again(index, output);
            if matches!(self.repair, Repair::Reducing | Repair::Recovery) {
                self.prr.sent += 1;
            }
            if index == 0 && !matches!(self.timer, Some((Timer::Reordering, _))) {
                self.restart_retransmission_timer(output.now);
            }
        }
    }

    /// A selective acknowledgement restarts the timer unless it tells of something sent after the head was: those could put
    /// the time-out off for ever.
    fn sack_moves_timer(&self, progress: &Progress) -> bool {
        match (progress.newest_sacked, self.board.head()) {
            (Some(at), Some(head)) => at < head.at,
            _ => false,
        }
    }
}
