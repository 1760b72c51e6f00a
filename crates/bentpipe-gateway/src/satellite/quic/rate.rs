//! The rate at which packets are pulled out: the declared one until the link says otherwise.
//!
//! Two signs say that it is too high, and bit errors give neither:
//!
//! - *excess*: sent ÷ delivered is above [`EXCESS`] beyond the loss that the link's bit errors explain;
//! - *a standing queue*: for a while no packet took the path in about the shortest time that one of its size ever took.
//!   (Short ones are no measure for long ones: where each goes whole over one slow channel of many, a long one takes
//!   longer.)
//!
//! Then the rate is held near what is delivered, a little less while the queue drains, and raised again in steps. Two
//! tests keep a wrong guess from pressing the rate down for ever: loss that stays when the rate falls is the link's, and
//! delay that stays when the queue should have drained is the path's. What was sent into an outage says nothing about the
//! rate and is left out.

use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;

/// Sent ÷ delivered above which the rate is too high.
const EXCESS: f64 = 1.2;
/// The same while the rate is being raised on trial: each step is smaller than [`EXCESS`].
const EXCESS_ON_TRIAL: f64 = 1.05;
/// Added to the loss that bit errors explain, for its scatter over a couple of seconds.
const LOSS_MARGIN: f64 = 0.01;
/// Judged at least over this time.
const SPAN_MIN: Duration = Duration::from_secs(2);
/// Of what is delivered: leaves the queue a chance to empty.
const HEADROOM: f64 = 0.97;
/// Of what is delivered, while a queue drains.
const DRAIN: f64 = 0.7;
/// Steps upward: the first, and the largest after several that went well.
const STEP: (f64, f64) = (1.05, 1.25);
/// Time between steps: at least, and at most after several that failed.
const STEP_EVERY: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));
/// Without a declared rate: doubled each round trip until the link says stop.
const GROWTH: f64 = 2.0;
/// Without a declared rate the first round trip carries as many packets as a fresh TCP connection (RFC 6928).
const FIRST_PACKETS: u64 = 10;
/// Below this a link is down, not slow.
const RATE_MIN_BPS: u64 = 1_000;
/// Packets without which nothing is judged.
const PACKETS_MIN: u64 = 16;
/// Sent packets are remembered for this long beyond the judged interval.
const KEPT: Duration = Duration::from_secs(8);
/// Nothing delivered for this long is an outage.
const OUTAGE: Duration = Duration::from_millis(250);
/// Sizes of packets that are distinguished, each an eighth of the largest: what two of one size differ in takes 23 ms
/// on a channel of 64 kbit/s, less than any queue that is minded.
const SIZES: usize = 8;

/// Packets sent in an interval and their fate.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    start: Instant,
    sent: u64,
    packets: u64,
    acked: u64,
    /// By size, the shortest time from sending a packet to its acknowledgement.
    delays: [Option<Duration>; SIZES],
}

/// Why the rate is what it is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// As declared.
    Declared,
    /// None is declared: doubling.
    Growing,
    /// Lower for a while, to let a queue drain; then `hold` if the queue was ours.
    Draining { until: Instant, hold: u64, before: u64, queue: Duration, by_delay: bool },
    /// Held near what was delivered; the next step upward is due.
    Held { step_at: Instant },
}

/// The rate, in bits per second on the wire.
#[derive(Debug)]
pub(super) struct RateControl {
    declared: Option<u64>,
    /// Share of packets that bit errors damage, as far as configured.
    loss: f64,
    /// Share that the link was found to lose at any rate.
    learnt_loss: f64,
    /// Share lost when the rate was last lowered for it; zero: it was not.
    loss_before: f64,
    round_trip: Duration,
    packet_bits: u64,
    rate: u64,
    phase: Phase,
    step: f64,
    step_every: Duration,
    /// The last step upward has not been judged.
    on_trial: bool,
    buckets: VecDeque<Bucket>,
    /// Bytes acknowledged, by the time of acknowledgement.
    arrivals: VecDeque<(Instant, u64)>,
    /// Sending time of the latest packet known to have arrived.
    acked_up_to: Instant,
    /// Packets sent earlier belong to another rate, or to an outage.
    judge_from: Instant,
    /// The shortest delay seen.
    base: Option<Duration>,
    /// The shortest of a packet of each size.
    bases: [Option<Duration>; SIZES],
    /// Bits on the wire per byte of a datagram, smoothed.
    bits_per_byte: f64,
    recent_loss: f64,
}

impl RateControl {
    pub(super) fn new(declared: Option<u64>, loss: f64, round_trip: Duration, packet_bits: u64) -> RateControl {
        let mut control = RateControl {
            declared: None,
            loss: loss.clamp(0.0, 0.9),
            learnt_loss: 0.0,
            loss_before: 0.0,
            round_trip,
            packet_bits,
            rate: RATE_MIN_BPS,
            phase: Phase::Declared,
            step: STEP.0,
            step_every: STEP_EVERY.0,
            on_trial: false,
            buckets: VecDeque::new(),
            arrivals: VecDeque::new(),
            acked_up_to: Instant::ZERO,
            judge_from: Instant::ZERO,
            base: None,
            bases: [None; SIZES],
            bits_per_byte: 8.2,
            recent_loss: 0.0,
        };
        control.set_declared(Instant::ZERO, declared);
        control
    }

    /// The rate now.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// The declared rate.
    pub(super) fn declared(&self) -> Option<u64> {
        self.declared
    }

    /// The declared rate was found too high.
    pub(super) fn is_throttled(&self) -> bool {
        self.declared.is_some_and(|declared| self.rate < declared)
    }

    /// Share of packets lost lately.
    pub(super) fn recent_loss(&self) -> f64 {
        self.recent_loss
    }

    /// The shortest round trip measured, or the configured one.
    pub(super) fn base_round_trip(&self) -> Duration {
        self.base.unwrap_or(self.round_trip).max(Duration::from_millis(1))
    }

    /// Takes another rate as declared; `None`: measured.
    pub(super) fn set_declared(&mut self, now: Instant, declared: Option<u64>) {
        let declared = declared.map(|bps| bps.max(RATE_MIN_BPS));
        let unchanged = self.declared == declared && now != Instant::ZERO;
        self.declared = declared;
        match declared {
            Some(_) if unchanged => {}
            Some(bps) => self.change(now, bps, Phase::Declared),
            None if unchanged => {}
            None if now == Instant::ZERO => {
                let first = FIRST_PACKETS as f64 * self.packet_bits as f64 / self.base_round_trip().as_secs_f64();
                self.change(now, (first as u64).max(RATE_MIN_BPS), Phase::Growing);
            }
            None => self.change(now, self.rate, Phase::Growing),
        }
    }

    /// A connection is new: nothing that was learnt about packets before it counts.
    pub(super) fn start(&mut self, now: Instant) {
        self.buckets.clear();
        self.arrivals.clear();
        self.judge_from = now;
        self.acked_up_to = now;
    }

    /// The other side is heard again after a silence: what was sent into it says nothing about the rate.
    pub(super) fn resumed(&mut self, now: Instant) {
        self.judge_from = now;
        self.arrivals.clear();
        if let Phase::Draining { hold, .. } = self.phase {
            self.change(now, hold, Phase::Held { step_at: now + self.step_every });
        }
    }

    /// A packet that asks for an acknowledgement was sent.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, bits: u64) {
        self.bits_per_byte += (bits as f64 / bytes.max(1) as f64 - self.bits_per_byte) / 64.0;
        let width = self.width();
        match self.buckets.back_mut() {
            Some(last) if now < last.start + width => {
                last.sent += bytes;
                last.packets += 1;
            }
            _ => {
                let delays = [None; SIZES];
                self.buckets.push_back(Bucket { start: now, sent: bytes, packets: 1, acked: 0, delays });
            }
        }
        // Until acknowledged, through a queue of several seconds.
        let keep = self.span() + self.span() + self.base_round_trip() + KEPT;
        while self.buckets.len() > 2 && (self.buckets[0].start + keep < now || self.buckets.len() > 512) {
            self.buckets.pop_front();
        }
    }

    /// A packet sent at `sent` has arrived.
    pub(super) fn on_acked(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.acked_up_to = self.acked_up_to.max(sent);
        let delay = now.since(sent);
        let size = self.size(bytes);
        let shorter = |known: Option<Duration>| Some(known.map_or(delay, |known| known.min(delay)));
        let index = self.buckets.partition_point(|bucket| bucket.start <= sent);
        let bucket = index.checked_sub(1).and_then(|i| self.buckets.get_mut(i));
        // The first of its size may have met a queue, which the shorter ones sent with it know of.
        let queue = bucket.as_ref().and_then(|bucket| queue(&self.bases, &bucket.delays[..size])).unwrap_or_default();
        if let Some(bucket) = bucket {
            bucket.acked += bytes;
            bucket.delays[size] = shorter(bucket.delays[size]);
        }
        if sent >= self.judge_from {
            self.base = shorter(self.base);
            if shortest(&self.bases, size).is_none() {
                self.bases[size] = Some(delay - queue);
            }
            self.bases[size] = shorter(self.bases[size]);
        }
        match self.arrivals.back_mut() {
            Some(last) if last.0 == now => last.1 += bytes,
            _ => self.arrivals.push_back((now, bytes)),
        }
        let keep = self.span();
        while self.arrivals.len() > 2 && (self.arrivals[0].0 + keep < now || self.arrivals.len() > 8192) {
            self.arrivals.pop_front();
        }
    }

    /// Judges what is known now. Call after acknowledgements.
    pub(super) fn judge(&mut self, now: Instant) {
        if let Phase::Draining { until, hold, before, queue, by_delay } = self.phase {
            if now < until {
                return;
            }
            let left = self.queue_delay(1);
            if by_delay && left.is_some_and(|left| left > Duration { ns: queue.ns / 2 }) {
                // It should have drained and has not: the path itself is longer now, or the way back waits.
                for base in self.bases.iter_mut().chain([&mut self.base]) {
                    *base = base.zip(left).map(|(base, left)| base + left);
                }
                let phase = self.phase_for(now, before);
                self.change(now, before, phase);
            } else {
                self.change(now, hold, Phase::Held { step_at: now + self.step_every });
            }
            return;
        }
        let Some((excess, lost)) = self.excess() else {
            return;
        };
        self.recent_loss = lost;
        let limit = if self.on_trial { EXCESS_ON_TRIAL } else { EXCESS };
        if excess > limit {
            let same = self.loss_before > 0.0 && (0.8..1.25).contains(&(lost / self.loss_before));
            if same && self.queue_delay(2).is_none_or(|queue| queue <= self.queue_allowed()) {
                // A lower rate lost as much: the link loses that at any rate.
                self.learnt_loss = lost.min(0.5);
                self.loss_before = 0.0;
                let rate = self.declared.unwrap_or(self.rate);
                let phase = self.phase_for(now, rate);
                self.change(now, rate, phase);
                return;
            }
            self.loss_before = if excess > EXCESS { lost } else { 0.0 };
            let explained = 1.0 - self.loss.max(self.learnt_loss);
            let mut hold = self.rate as f64 * (1.0 - lost) / explained;
            if self.is_busy()
                && let Some(delivered) = self.delivered()
            {
                // What was sent while a queue filled says less than what came out of it.
                hold = hold.min(delivered as f64 / explained);
            }
            self.lower(now, (hold * HEADROOM) as u64, false);
            return;
        }
        if let Some(queue) = self.queue_delay(0)
            && queue > self.queue_allowed()
            && let Some(delivered) = self.delivered()
        {
            let explained = 1.0 - self.loss.max(self.learnt_loss);
            let hold = (delivered as f64 / explained).min(self.rate as f64) * HEADROOM;
            self.lower(now, hold as u64, true);
            return;
        }
        self.loss_before = 0.0;
        self.raise(now);
    }

    /// Raises the rate when it is time and the sender uses what it has.
    fn raise(&mut self, now: Instant) {
        match self.phase {
            Phase::Growing => {
                let age = now.since(self.judge_from);
                if age > self.base_round_trip() + self.width() && self.is_busy() {
                    self.change(now, (self.rate as f64 * GROWTH) as u64, Phase::Growing);
                }
            }
            Phase::Held { step_at } if now >= step_at && self.is_busy() => {
                if self.on_trial {
                    self.step = (self.step * self.step).min(STEP.1);
                    self.step_every = STEP_EVERY.0;
                }
                let raised = (self.rate as f64 * self.step) as u64 + 1;
                let rate = self.declared.map_or(raised, |declared| declared.min(raised));
                let phase = self.phase_for(now, rate);
                self.change(now, rate, phase);
                self.on_trial = true;
            }
            Phase::Held { .. } | Phase::Declared | Phase::Draining { .. } => {}
        }
    }

    fn phase_for(&self, now: Instant, rate: u64) -> Phase {
        if self.declared.is_some_and(|declared| rate >= declared) {
            Phase::Declared
        } else {
            let wait = self.step_every.max(self.span() + self.base_round_trip());
            Phase::Held { step_at: now + wait }
        }
    }

    fn lower(&mut self, now: Instant, hold: u64, by_delay: bool) {
        if self.on_trial {
            self.step_every = Duration { ns: (self.step_every.ns * 2).min(STEP_EVERY.1.ns) };
        }
        self.step = STEP.0;
        let before = self.rate;
        let hold = hold.clamp(RATE_MIN_BPS, self.declared.unwrap_or(u64::MAX));
        let queue = self.queue_delay(2).unwrap_or_default();
        // Until the queue is gone, and what is on its way has arrived.
        let seconds = queue.as_secs_f64() / (1.0 - DRAIN);
        let drain = Duration::from_secs_f64(seconds.min(10.0)) + self.base_round_trip() + queue;
        // And has been counted.
        let drain = drain + self.width() + self.width();
        let rate = ((hold as f64 / HEADROOM * DRAIN) as u64).max(RATE_MIN_BPS);
        self.change(now, rate, Phase::Draining { until: now + drain, hold, before, queue, by_delay });
    }

    fn change(&mut self, now: Instant, rate: u64, phase: Phase) {
        self.rate = rate.clamp(RATE_MIN_BPS, u64::MAX / 1024);
        self.phase = phase;
        self.judge_from = now;
        self.on_trial = false;
    }

    /// Length of a bucket: several in a round trip, several packets in each.
    fn width(&self) -> Duration {
        let packets = Duration::from_secs_f64(8.0 * self.packet_bits as f64 / self.rate as f64);
        Duration { ns: self.base_round_trip().ns / 8 }.max(Duration::from_millis(20)).max(packets)
    }

    /// The judged interval of the past.
    fn span(&self) -> Duration {
        let trips = Duration { ns: self.base_round_trip().ns * 2 };
        let span = trips.max(Duration { ns: self.width().ns * 4 });
        if self.phase == Phase::Growing {
            Duration { ns: self.base_round_trip().ns / 2 }.max(Duration { ns: self.width().ns * 2 })
        } else {
            span.max(SPAN_MIN)
        }
    }

    /// Buckets that belong to this rate, of which all is known that will be, newest last.
    fn settled(&self) -> impl DoubleEndedIterator<Item = (&Bucket, Instant)> {
        // Packets may overtake each other by this much.
        let margin = Duration { ns: self.width().ns / 4 };
        let ends = self.buckets.iter().skip(1).map(|bucket| bucket.start);
        self.buckets
            .iter()
            .zip(ends)
            .filter(move |(bucket, end)| bucket.start >= self.judge_from && *end + margin <= self.acked_up_to)
    }

    /// Sent ÷ delivered beyond what bit errors explain, and the share lost. `None`: too little is known.
    fn excess(&self) -> Option<(f64, f64)> {
        let span = self.span();
        let newest = self.settled().next_back()?.1;
        let considered: Vec<(&Bucket, Instant)> = self.settled().filter(|(_, end)| *end + span > newest).collect();
        let first = considered.first()?.0.start;
        if newest.since(first) + self.width() < span {
            return None;
        }
        // Nothing delivered for a while: an outage. It and its edges are left out.
        let mut keep = vec![true; considered.len()];
        let mut i = 0;
        while i < considered.len() {
            let run = considered[i..].iter().take_while(|(bucket, _)| bucket.acked == 0 && bucket.packets >= 2).count();
            if run > 0 && considered[i + run - 1].1.since(considered[i].0.start) >= OUTAGE {
                let last = (i + run).min(considered.len() - 1);
                keep[i.saturating_sub(1)..=last].fill(false);
            }
            i += run.max(1);
        }
        let kept = considered.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(bucket, _)| bucket.0);
        let (sent, acked, packets) = kept.fold((0, 0, 0), |(sent, acked, packets), bucket| {
            (sent + bucket.sent, acked + bucket.acked.min(bucket.sent), packets + bucket.packets)
        });
        if packets < PACKETS_MIN || sent == 0 {
            return None;
        }
        let lost = 1.0 - acked as f64 / sent as f64;
        let explained = (self.loss.max(self.learnt_loss) * 1.5 + LOSS_MARGIN).min(0.9);
        Some((sent as f64 * (1.0 - explained) / (acked as f64).max(1.0), lost))
    }

    /// The shortest time that a packet of the last while spent beyond the shortest ever of its size; over the last `few`
    /// buckets, or (0) over a whole span in which the sender was busy throughout.
    fn queue_delay(&self, few: usize) -> Option<Duration> {
        let delays: Vec<(Duration, bool, Instant)> = self
            .settled()
            .rev()
            .filter_map(|(bucket, end)| {
                Some((queue(&self.bases, &bucket.delays)?, self.fills(bucket, end), bucket.start))
            })
            .collect();
        if few > 0 {
            return delays.iter().take(few).map(|delay| delay.0).min();
        }
        let newest = delays.first()?.2;
        let span = self.span();
        let within: Vec<_> = delays.iter().take_while(|delay| delay.2 + span >= newest).collect();
        let whole = newest.since(within.last()?.2) + self.width() + self.width() >= span;
        let busy = within.iter().filter(|delay| delay.1).count() * 2 >= within.len();
        if !whole || !busy {
            return None;
        }
        within.iter().map(|delay| delay.0).min()
    }

    /// Which of [`SIZES`] a packet is of; `packet_bits` are those of the largest.
    fn size(&self, bytes: u64) -> usize {
        let eighths = bytes.saturating_mul(8 * SIZES as u64) / self.packet_bits.max(1);
        usize::try_from(eighths).unwrap_or(usize::MAX).min(SIZES - 1)
    }

    /// A queue that is none: jitter, and packets that take their time themselves.
    fn queue_allowed(&self) -> Duration {
        let packets = Duration::from_secs_f64(6.0 * self.packet_bits as f64 / self.rate as f64);
        Duration { ns: self.base_round_trip().ns / 8 }.max(Duration::from_millis(50)).max(packets)
    }

    /// The sender used nearly all of the rate in this bucket.
    fn fills(&self, bucket: &Bucket, end: Instant) -> bool {
        let bits = bucket.sent as f64 * self.bits_per_byte;
        bits >= 0.6 * self.rate as f64 * end.since(bucket.start).as_secs_f64()
    }

    /// Nearly all of the rate was used lately.
    fn is_busy(&self) -> bool {
        let recent = self.settled().rev().take(4);
        let (all, full) =
            recent.fold((0, 0), |(all, full), (bucket, end)| (all + 1, full + usize::from(self.fills(bucket, end))));
        all > 0 && full * 2 > all
    }

    /// Bits per second on the wire that arrived lately, by the clock of the acknowledgements.
    fn delivered(&self) -> Option<u64> {
        let last = self.arrivals.back()?.0;
        let within = Duration { ns: self.span().ns / 2 };
        let first = self.arrivals.partition_point(|arrival| arrival.0 + within < last);
        let span = last.since(self.arrivals.get(first)?.0).as_secs_f64();
        if span < 0.2 {
            return None;
        }
        let bytes: u64 = self.arrivals.iter().skip(first + 1).map(|arrival| arrival.1).sum();
        Some((bytes as f64 * self.bits_per_byte / span) as u64)
    }
}

/// The shortest time that a packet of this size, or a longer one, ever took: no packet is slower than a longer one.
fn shortest(bases: &[Option<Duration>; SIZES], size: usize) -> Option<Duration> {
    bases[size..].iter().flatten().min().copied()
}

/// The shortest time beyond that, of packets of the sizes from the smallest on.
fn queue(bases: &[Option<Duration>; SIZES], delays: &[Option<Duration>]) -> Option<Duration> {
    let beyond = |(size, delay): (usize, &Option<Duration>)| Some((*delay)? - shortest(bases, size)?);
    delays.iter().enumerate().filter_map(beyond).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1400;
    const BITS: u64 = 1400 * 8;

    /// A link of `capacity` with a queue of `queue` seconds, packet by packet.
    struct Path {
        capacity: f64,
        /// There and back.
        delay: f64,
        /// Of each packet.
        bytes: u64,
        queue: f64,
        loss: f64,
        free_at: f64,
        /// Arrival of the acknowledgement, sending time, bytes.
        acks: VecDeque<(f64, f64, u64)>,
        down: std::ops::Range<f64>,
        count: u64,
    }

    impl Path {
        fn new(capacity: f64) -> Path {
            let acks = VecDeque::new();
            let (delay, bytes) = (0.6, PACKET);
            Path { capacity, delay, bytes, queue: 0.6, loss: 0.0, free_at: 0.0, acks, down: 0.0..0.0, count: 0 }
        }

        fn send(&mut self, now: f64) {
            self.count += 1;
            self.free_at = self.free_at.max(now);
            let random = (self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64;
            if self.free_at - now > self.queue {
                return;
            }
            self.free_at += self.bits() as f64 / self.capacity;
            if random >= self.loss && !self.down.contains(&now) {
                self.acks.push_back((self.free_at + self.delay, now, self.bytes));
            }
        }

        fn bits(&self) -> u64 {
            self.bytes * 8
        }
    }

    fn at(seconds: f64) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(seconds)
    }

    /// Sends as fast as the control allows from `from` to `to`; the largest queue of the last second.
    fn run(control: &mut RateControl, path: &mut Path, from: f64, to: f64) -> f64 {
        let mut now = from;
        let mut queue: f64 = 0.0;
        while now < to {
            while path.acks.front().is_some_and(|ack| ack.0 <= now) {
                let (ack, sent, bytes) = path.acks.pop_front().unwrap();
                control.on_acked(at(ack), at(sent), bytes);
                control.judge(at(ack));
            }
            control.on_sent(at(now), path.bytes, path.bits());
            path.send(now);
            if now > to - 1.0 {
                queue = queue.max(path.free_at - now);
            }
            assert!(control.rate() < 1_000_000_000, "{control:?}");
            now += path.bits() as f64 / control.rate() as f64;
        }
        queue
    }

    fn control(declared: Option<u64>, loss: f64) -> RateControl {
        let mut control = RateControl::new(declared, loss, Duration::from_millis(600), BITS);
        control.start(Instant::ZERO);
        control
    }

    #[test]
    fn a_true_rate_is_left_alone_whatever_bit_errors_cost() {
        for loss in [0.0, 0.01, 0.1] {
            let mut control = control(Some(10_000_000), loss);
            let mut path = Path { loss, ..Path::new(10_000_000.0) };
            run(&mut control, &mut path, 0.0, 60.0);
            assert_eq!(control.rate(), 10_000_000, "loss {loss}");
        }
    }

    #[test]
    fn three_times_too_much_is_held_near_what_arrives() {
        let mut control = control(Some(30_000_000), 0.0);
        let mut path = Path::new(10_000_000.0);
        run(&mut control, &mut path, 0.0, 5.0);
        assert!(control.is_throttled(), "{control:?}");
        assert!(control.rate() < 11_000_000);
        run(&mut control, &mut path, 5.0, 60.0);
        assert!((9_000_000..11_500_000).contains(&control.rate()), "{}", control.rate());
    }

    #[test]
    fn a_twentieth_too_much_leaves_no_standing_queue() {
        let mut control = control(Some(10_500_000), 0.0);
        let mut path = Path::new(10_000_000.0);
        run(&mut control, &mut path, 0.0, 25.0);
        assert!(control.is_throttled());
    }

    #[test]
    fn a_rate_that_comes_back_is_found_again() {
        let mut control = control(Some(10_000_000), 0.0);
        let mut path = Path::new(10_000_000.0);
        run(&mut control, &mut path, 0.0, 5.0);
        path.capacity = 5_000_000.0;
        run(&mut control, &mut path, 5.0, 12.0);
        assert!((3_000_000..5_500_000).contains(&control.rate()), "{}", control.rate());
        path.capacity = 10_000_000.0;
        run(&mut control, &mut path, 12.0, 90.0);
        assert_eq!(control.rate(), 10_000_000);
        assert!(!control.is_throttled());
    }

    #[test]
    fn full_packets_that_take_longer_than_short_ones_are_no_queue() {
        let mut control = control(Some(1_536_000), 0.0);
        for i in 0..8 {
            let sent = f64::from(i) / 4.0;
            control.on_sent(at(sent), 60, 480);
            control.on_acked(at(sent + 0.4), at(sent), 60);
        }
        let mut path = Path::new(1_600_000.0);
        for second in 3..30 {
            run(&mut control, &mut path, f64::from(second), f64::from(second + 1));
            assert_eq!(control.rate(), 1_536_000, "{second} s: {control:?}");
        }
    }

    #[test]
    fn a_standing_queue_of_packets_of_any_size_is_seen() {
        for bytes in [60, 300, 700, 1000, PACKET] {
            let mut control = control(Some(1_050_000), 0.0);
            let mut path = Path { bytes, queue: f64::INFINITY, ..Path::new(1_000_000.0) };
            run(&mut control, &mut path, 0.0, 40.0);
            assert!(control.is_throttled(), "{bytes} B");
            let queue = run(&mut control, &mut path, 40.0, 80.0);
            assert!(queue < 1.0, "{bytes} B: {queue} s");
        }
    }

    #[test]
    fn a_path_that_became_longer_is_learnt_from_packets_of_any_size() {
        let mut control = control(Some(1_000_000), 0.0);
        let mut path = Path::new(1_050_000.0);
        run(&mut control, &mut path, 0.0, 10.0);
        assert_eq!(control.rate(), 1_000_000);
        (path.delay, path.bytes) = (0.9, 200);
        run(&mut control, &mut path, 10.0, 30.0);
        assert_eq!(control.rate(), 1_000_000, "{control:?}");
        path.bytes = PACKET;
        for second in 30..50 {
            run(&mut control, &mut path, f64::from(second), f64::from(second + 1));
            assert_eq!(control.rate(), 1_000_000, "{second} s: {control:?}");
        }
    }

    #[test]
    fn the_first_long_packets_may_meet_a_queue() {
        let mut control = control(Some(1_000_000), 0.0);
        let mut pass = |sent: f64, delay: f64, bytes: u64| {
            control.on_sent(at(sent), bytes, bytes * 8);
            control.on_acked(at(sent + delay), at(sent), bytes);
        };
        pass(0.0, 0.6, 60);
        for i in 1..8 {
            let sent = f64::from(i) / 8.0;
            pass(sent, 1.0, 60);
            pass(sent + 0.001, 1.1, PACKET);
        }
        pass(3.0, 0.9, PACKET);
        pass(4.0, 0.9, PACKET);
        pass(5.0, 0.9, PACKET);
        // Without a queue a long packet takes 0.7 s.
        let queue = control.queue_delay(1).unwrap().as_secs_f64();
        assert!((queue - 0.2).abs() < 1e-6, "{queue}");
    }

    #[test]
    fn an_outage_is_no_congestion() {
        for down in [0.2, 0.5, 3.0, 30.0] {
            let mut control = control(Some(10_000_000), 0.0);
            let mut path = Path { down: 5.0..5.0 + down, ..Path::new(10_000_000.0) };
            run(&mut control, &mut path, 0.0, 5.0 + down);
            if down > 1.0 {
                control.resumed(at(5.0 + down));
            }
            run(&mut control, &mut path, 5.0 + down, 20.0 + down);
            assert_eq!(control.rate(), 10_000_000, "{down} s");
        }
    }

    #[test]
    fn loss_that_stays_at_a_lower_rate_is_the_links() {
        let mut control = control(Some(10_000_000), 0.0);
        let mut path = Path { loss: 0.3, ..Path::new(10_000_000.0) };
        run(&mut control, &mut path, 0.0, 30.0);
        assert_eq!(control.rate(), 10_000_000, "{control:?}");
    }

    #[test]
    fn an_undeclared_rate_is_found() {
        for capacity in [64_000.0, 2_000_000.0, 50_000_000.0] {
            let mut control = control(None, 0.0);
            let mut path = Path::new(capacity);
            run(&mut control, &mut path, 0.0, 60.0);
            let share = control.rate() as f64 / capacity;
            assert!((0.75..1.3).contains(&share), "{share} of {capacity}");
        }
    }
}
