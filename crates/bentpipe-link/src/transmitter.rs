//! Transmitters: how long framed bits take to leave.

use bentpipe_net::packet::Packet;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;

/// A rate over time. Zero means that nothing is sent for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSchedule {
    steps: Vec<(Instant, BitRate)>,
    repeat: Option<Duration>,
}

impl RateSchedule {
    /// One rate for ever.
    #[must_use]
    pub fn constant(rate: BitRate) -> Self {
        RateSchedule { steps: vec![(Instant::ZERO, rate)], repeat: None }
    }

    /// (start, rate) steps with rising starts, the first at zero; the last stays, or all start again after `repeat`.
    #[must_use]
    pub fn steps(steps: Vec<(Instant, BitRate)>, repeat: Option<Duration>) -> Self {
        RateSchedule { steps, repeat }
    }

    /// The rate at `now` and when it may change ([`Instant::FAR`]: never).
    #[must_use]
    pub fn at(&self, now: Instant) -> (BitRate, Instant) {
        if self.steps.len() == 1 && self.repeat.is_none() {
            return (self.steps[0].1, Instant::FAR);
        }
        let round = self.repeat.map_or(0, |length| now.ns / length.ns.max(1) * length.ns.max(1));
        let inside = Instant { ns: now.ns - round };
        let next = self.steps.partition_point(|(start, _)| *start <= inside);
        let rate = self.steps[next.saturating_sub(1)].1;
        let until = match (self.steps.get(next), self.repeat) {
            (Some((start, _)), _) => Instant { ns: round.saturating_add(start.ns) },
            (None, Some(length)) => Instant { ns: round.saturating_add(length.ns) },
            (None, None) => Instant::FAR,
        };
        (rate, until)
    }

    /// The highest rate of all steps.
    #[must_use]
    pub fn highest(&self) -> BitRate {
        self.steps.iter().map(|step| step.1).max().unwrap_or_default()
    }

    /// The rate, if it is always the same and something is sent.
    fn only_rate(&self) -> Option<BitRate> {
        match self.steps[..] {
            [(_, rate)] if self.repeat.is_none() && rate.bps > 0 => Some(rate),
            _ => None,
        }
    }

    /// When `work` (bits × 10⁹) started at `start` is done, rounded up to a nanosecond, and the work that still fits
    /// into the rest of that nanosecond. [`Instant::FAR`] when the rate stays zero.
    fn finish(&self, start: Instant, work: u128) -> (Instant, u128) {
        let mut now = start;
        let mut left = work;
        loop {
            let (rate, until) = self.at(now);
            let rate = u128::from(rate.bps);
            let room = rate * u128::from(until.since(now).ns);
            if rate > 0 && (until == Instant::FAR || left <= room) {
                let ns = left.div_ceil(rate);
                let end = now + Duration { ns: u64::try_from(ns).unwrap_or(u64::MAX) };
                return (end, ns * rate - left);
            }
            if until == Instant::FAR {
                return (Instant::FAR, 0);
            }
            left -= room;
            now = until;
        }
    }
}

/// A packet on its way out.
#[derive(Debug)]
pub struct Sent<P> {
    /// The packet.
    pub packet: P,
    /// Its bits on the wire.
    pub bits: u64,
    /// When its first bit left.
    pub start: Instant,
    /// When its last bit left.
    pub end: Instant,
    /// The channel did not carry anything yet when it left.
    pub lost: bool,
}

/// One or several channels; each packet goes whole over one of them, so packets on a bundle may overtake.
#[derive(Debug)]
pub struct Transmitter<P> {
    schedule: RateSchedule,
    channels: Vec<Channel<P>>,
    /// The first so many channels may start packets.
    open: usize,
    /// Of those, so many send.
    busy: usize,
    /// Channels beyond them that still send what they have started.
    leaving: usize,
    /// Time of the packets that are out, all channels added up, in nanoseconds.
    airtime: u64,
    /// When the first of their packets is out; [`Instant::FAR`]: none ever is.
    first_end: Instant,
    /// The rate, if it is always the same.
    only_rate: Option<BitRate>,
    /// With that rate: the last number of bits, and what they take.
    last: (u64, Airtime),
}

/// bits × 10⁹ = `ns` × rate + `rest`, with `rest` below the rate. Most packets are as long as the one before, and the
/// division is what costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Airtime {
    ns: u64,
    rest: u64,
}

#[derive(Debug)]
struct Channel<P> {
    sending: Option<Sent<P>>,
    /// Packets that leave before this time are lost.
    carries_from: Instant,
    /// Work that still fits into the nanosecond in which the last packet ended, less than the rate: a train of packets keeps
    /// the exact rate.
    spare: u64,
}

impl<P: Packet> Transmitter<P> {
    /// `channels` channels (at least one), each at the scheduled rate, all open.
    #[must_use]
    pub fn new(schedule: RateSchedule, channels: usize) -> Self {
        let channel = |_| Channel { sending: None, carries_from: Instant::ZERO, spare: 0 };
        let channels: Vec<Channel<P>> = (0..channels.max(1)).map(channel).collect();
        Transmitter {
            only_rate: schedule.only_rate(),
            schedule,
            open: channels.len(),
            channels,
            busy: 0,
            leaving: 0,
            airtime: 0,
            first_end: Instant::FAR,
            last: (0, Airtime::default()),
        }
    }

    /// Leaves the first `count` channels open (all, if there are fewer). Those that were closed lose what they start before
    /// `carries_from`; those that are closed finish what they send.
    pub fn set_open(&mut self, count: usize, carries_from: Instant) {
        let count = count.min(self.channels.len());
        let opened = self.channels.get_mut(self.open..count).unwrap_or_default();
        opened.iter_mut().for_each(|channel| channel.carries_from = carries_from);
        self.open = count;
        let sending = |channels: &[Channel<P>]| channels.iter().filter(|channel| channel.sending.is_some()).count();
        let (open, closed) = self.channels.split_at(count);
        (self.busy, self.leaving) = (sending(open), sending(closed));
    }

    /// True if an open channel is free.
    #[must_use]
    #[inline]
    pub fn has_room(&self) -> bool {
        self.busy < self.open
    }

    /// Packets being sent.
    #[must_use]
    #[inline]
    pub fn busy_channels(&self) -> usize {
        self.busy + self.leaving
    }

    /// The channels' sending time until `now`, added up, in nanoseconds.
    #[must_use]
    pub fn airtime(&self, now: Instant) -> u64 {
        let sending = self.channels.iter().filter_map(|channel| channel.sending.as_ref());
        let under_way: u64 = sending.map(|sent| now.since(sent.start).ns).sum();
        self.airtime.saturating_add(under_way)
    }

    /// Starts to send on the lowest free channel. `follows`: the packet was waiting when that channel became free at
    /// `now`, so it takes up the fraction of a nanosecond left over.
    #[inline]
    pub fn start(&mut self, now: Instant, packet: P, bits: u64, follows: bool) {
        let Some(channel) = self.channels[..self.open].iter_mut().find(|channel| channel.sending.is_none()) else {
            debug_assert!(false, "start() without a free channel");
            return;
        };
        let before = if follows { channel.spare } else { 0 };
        let airtime = self.only_rate.map(|rate| {
            if self.last.0 != bits {
                self.last = (bits, Airtime::of(bits, rate));
            }
            self.last.1.after(before, rate)
        });
        let (end, spare) = match airtime {
            Some((taken, spare)) => (now + taken, spare),
            None => {
                let work = (u128::from(bits) * 1_000_000_000).saturating_sub(u128::from(before));
                let (end, spare) = self.schedule.finish(now, work);
                // Less than the rate.
                (end, spare as u64)
            }
        };
        channel.spare = spare;
        channel.sending = Some(Sent { packet, bits, start: now, end, lost: now < channel.carries_from });
        self.busy += 1;
        self.first_end = self.first_end.min(end);
    }

    /// When the next packet is out; [`Instant::FAR`]: none ever is.
    #[must_use]
    #[inline]
    pub fn next_end(&self) -> Instant {
        self.first_end
    }

    /// The packet that was out first, if one is by `now`.
    #[inline]
    pub fn finish(&mut self, now: Instant) -> Option<Sent<P>> {
        let end = self.first_end;
        if end > now || end == Instant::FAR {
            return None;
        }
        if let [channel] = &mut self.channels[..] {
            (self.busy, self.leaving) = (0, 0);
            self.first_end = Instant::FAR;
            let sent = channel.sending.take();
            self.airtime += sent.as_ref().map_or(0, |sent| sent.end.since(sent.start).ns);
            return sent;
        }
        let first = self.channels.iter().position(|channel| channel.end() == end)?;
        if first < self.open {
            self.busy -= 1;
        } else {
            self.leaving -= 1;
        }
        let others = self.channels.iter().enumerate().filter(|(number, _)| *number != first);
        self.first_end = others.map(|(_, channel)| channel.end()).fold(Instant::FAR, Instant::min);
        let sent = self.channels[first].sending.take();
        self.airtime += sent.as_ref().map_or(0, |sent| sent.end.since(sent.start).ns);
        sent
    }

    /// Breaks off everything being sent (a lost circuit); returns how many packets that cost.
    pub fn abandon(&mut self) -> usize {
        let cancelled = self.busy_channels();
        for channel in &mut self.channels {
            channel.sending = None;
            channel.spare = 0;
        }
        (self.busy, self.leaving) = (0, 0);
        self.first_end = Instant::FAR;
        cancelled
    }

    /// The rate of a single channel, if it is always the same.
    pub(crate) fn single_rate(&self) -> Option<BitRate> {
        self.only_rate.filter(|_| self.channels.len() == 1)
    }

    /// The rate now, all channels together.
    #[must_use]
    pub fn rate(&self, now: Instant) -> BitRate {
        BitRate { bps: self.schedule.at(now).0.bps.saturating_mul(self.channels.len() as u64) }
    }
}

impl Airtime {
    /// At a rate above zero.
    pub(crate) fn of(bits: u64, rate: BitRate) -> Airtime {
        match bits.checked_mul(1_000_000_000) {
            Some(work) => Airtime { ns: work / rate.bps, rest: work % rate.bps },
            None => {
                let (work, rate) = (u128::from(bits) * 1_000_000_000, u128::from(rate.bps));
                Airtime { ns: u64::try_from(work / rate).unwrap_or(u64::MAX), rest: (work % rate) as u64 }
            }
        }
    }

    /// The time that the bits take when `before` of their work is done already, rounded up to a nanosecond, and the work that
    /// still fits into the rest of that nanosecond.
    #[inline]
    pub(crate) fn after(self, before: u64, rate: BitRate) -> (Duration, u64) {
        if before < self.rest {
            (Duration { ns: self.ns.saturating_add(1) }, rate.bps - (self.rest - before))
        } else if self.ns > 0 || before == self.rest {
            // What is left over is less than a nanosecond's work.
            (Duration { ns: self.ns }, before - self.rest)
        } else {
            (Duration::ZERO, 0)
        }
    }
}

impl<P> Channel<P> {
    #[inline]
    fn end(&self) -> Instant {
        self.sending.as_ref().map_or(Instant::FAR, |sent| sent.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::packet::Dummy;

    fn packet(id: u64) -> Dummy {
        Dummy::new(id, 1500)
    }
    fn ms(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }

    #[test]
    fn a_train_keeps_the_exact_rate() {
        // 12,000 bits at 7 Mbit/s take 1,714,285.714… ns; seven of them take 12 ms to the nanosecond.
        let mut t = Transmitter::new(RateSchedule::constant(BitRate::from_bps(7_000_000)), 1);
        let mut now = Instant::ZERO;
        for i in 0..7 {
            t.start(now, packet(i), 12_000, i > 0);
            now = t.next_end();
            let exact = (u128::from(i + 1) * 12_000_000_000_000).div_ceil(7_000_000);
            assert_eq!(u128::from(now.ns), exact, "packet {i}");
            assert!(t.finish(now).is_some());
        }
        assert_eq!(now, ms(12));
    }

    #[test]
    fn a_train_of_mixed_lengths_keeps_the_exact_rate() {
        for rate in [7_000_000, 300_000_000, 999_999_999] {
            let mut t = Transmitter::new(RateSchedule::constant(BitRate::from_bps(rate)), 1);
            let (mut now, mut work) = (Instant::ZERO, 0u128);
            for (i, bits) in [12_000, 416, 416, 12_000, 1, 1, 1, 8, 12_008, 1].into_iter().enumerate() {
                t.start(now, packet(i as u64), bits, i > 0);
                now = t.next_end();
                work += u128::from(bits) * 1_000_000_000;
                assert_eq!(u128::from(now.ns), work.div_ceil(u128::from(rate)), "packet {i} at {rate} bit/s");
                assert!(t.finish(now).is_some());
            }
        }
    }

    #[test]
    fn a_rate_change_takes_effect_inside_a_packet() {
        let schedule = RateSchedule::steps(
            vec![
                (ms(0), BitRate::from_bps(1_000_000)),
                (ms(6), BitRate::from_bps(0)),
                (ms(100), BitRate::from_bps(2_000_000)),
            ],
            None,
        );
        let mut t = Transmitter::new(schedule, 1);
        t.start(ms(0), packet(0), 12_000, false);
        assert_eq!(t.next_end(), ms(103), "6 ms, a pause, then twice as fast");
    }

    #[test]
    fn a_rate_of_zero_for_ever_never_ends() {
        let mut t = Transmitter::new(RateSchedule::constant(BitRate::from_bps(0)), 1);
        t.start(ms(0), packet(0), 12_000, false);
        assert_eq!(t.next_end(), Instant::FAR);
        assert!(t.finish(Instant::FAR).is_none());
    }

    #[test]
    fn on_a_bundle_a_short_packet_overtakes() {
        // NTIA-5.5: 1504 B on one 64 kbit/s channel takes 188 ms however many channels there are.
        let mut t = Transmitter::new(RateSchedule::constant(BitRate::from_bps(64_000)), 24);
        t.start(ms(0), packet(1), 1504 * 8, false);
        t.start(ms(1), packet(2), 40 * 8, false);
        assert_eq!(t.finish(ms(6)).unwrap().packet.id, 2);
        assert_eq!(t.next_end(), ms(188));
        assert_eq!(t.rate(ms(0)), BitRate::from_bps(1_536_000));
    }
}
