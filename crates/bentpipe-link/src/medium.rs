//! The medium: what happens between the transmitter's last bit and the receiver's.

use crate::noise::NoiseProcess;
use bentpipe_net::packet::Packet;
use bentpipe_net::seed::{Stream, unit};
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;

/// Loss of whole packets as a share and a mean burst length (Gilbert 1960, with certain loss in the bad state).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PacketLoss {
    /// Share of packets lost, 0 to 1.
    pub share: f64,
    /// Packets lost in a row, on average; 1 / (1 − share) is what independent losses make.
    pub burst_mean: f64,
}

impl PacketLoss {
    /// Independent losses.
    #[must_use]
    pub fn independent(share: f64) -> Self {
        PacketLoss { share, burst_mean: 1.0 / (1.0 - share).max(f64::MIN_POSITIVE) }
    }
}

/// Times at which nothing gets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it starts.
    pub at: Instant,
    /// How long it lasts.
    pub lasts: Duration,
    /// Time from one start to the next; `None`: once.
    pub every: Option<Duration>,
}

impl Outage {
    /// Whether any part of a transmission from `start` to `end` falls into the outage.
    #[must_use]
    pub fn touches(&self, start: Instant, end: Instant) -> bool {
        let overlaps = |begin: Instant| start < begin + self.lasts && end > begin;
        match self.every {
            None => overlaps(self.at),
            Some(every) => {
                // The last round begun before the transmission, and the one after.
                let round = start.since(self.at).ns / every.ns.max(1);
                let begin = self.at + Duration { ns: round * every.ns };
                overlaps(begin) || overlaps(begin + every)
            }
        }
    }
}

/// What a medium does to packets.
#[derive(Clone, Debug)]
pub struct MediumConfig {
    /// From the transmitter's last bit to the receiver's.
    pub one_way_delay: Duration,
    /// Extra delay of each packet, uniform from zero to this; order is kept.
    pub jitter: Duration,
    /// Times without reception.
    pub outages: Vec<Outage>,
    /// Loss of whole packets.
    pub loss: Option<PacketLoss>,
    /// Deliver packets with bit errors damaged, because the framing has no check.
    pub deliver_damaged: bool,
}

/// What became of the packets that entered a medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MediumCounters {
    /// Discarded by the framing's check.
    pub damaged_packets: u64,
    /// Delivered with bit errors.
    pub delivered_damaged_packets: u64,
    /// Bits inverted.
    pub bit_errors: u64,
    /// Lost to packet loss or outages.
    pub lost_packets: u64,
    /// Delivered, damaged ones included.
    pub delivered_packets: u64,
    /// Bytes delivered, framing not included.
    pub delivered_bytes: u64,
    /// On their way.
    pub in_flight_packets: u64,
}

/// How many packets before its own arrival a packet is fetched from memory.
const PREFETCH_AHEAD: usize = 3;

/// The way to one receiver.
#[derive(Debug)]
pub struct Medium {
    config: MediumConfig,
    noise: NoiseProcess,
    /// `None`: no packet is ever lost as a whole.
    loss: Option<LossProcess>,
    jitter_random: Stream,
    /// Arrival time, packet.
    line: VecDeque<(Instant, Packet)>,
    /// How many packets were taken from the line, and the numbers (counted as they came into it) of the damaged ones that
    /// are in it.
    taken: u64,
    damaged: VecDeque<u64>,
    /// When the first of them arrives; [`Instant::FAR`]: none.
    first_arrival: Instant,
    /// Every packet arrives whole, after the same delay.
    perfect: bool,
    counters: MediumCounters,
}

/// The two-state chain of [`PacketLoss`].
#[derive(Debug)]
struct LossProcess {
    random: Stream,
    losing: bool,
    /// Probability that a packet is the last of a run, of lost packets and of others.
    leave: f64,
    enter: f64,
}

impl LossProcess {
    fn new(loss: PacketLoss, mut random: Stream) -> LossProcess {
        let losing = unit(&mut random) < loss.share;
        let leave = 1.0 / loss.burst_mean;
        let enter = loss.share * leave / (1.0 - loss.share).max(f64::MIN_POSITIVE);
        LossProcess { random, losing, leave, enter }
    }

    /// Decides one packet's fate and moves the chain on.
    fn loses_packet(&mut self) -> bool {
        let lost = self.losing;
        let change = if lost { self.leave } else { self.enter };
        if unit(&mut self.random) < change {
            self.losing = !self.losing;
        }
        lost
    }
}

impl Medium {
    /// A medium with its own random streams.
    #[must_use]
    pub fn new(config: MediumConfig, noise: NoiseProcess, loss_random: Stream, jitter_random: Stream) -> Self {
        let loss = config.loss.filter(|loss| loss.share > 0.0).map(|loss| LossProcess::new(loss, loss_random));
        let perfect = loss.is_none()
            && config.outages.is_empty()
            && config.jitter == Duration::ZERO
            && noise.schedule().is_silent();
        Medium {
            config,
            noise,
            loss,
            jitter_random,
            line: VecDeque::new(),
            taken: 0,
            damaged: VecDeque::new(),
            first_arrival: Instant::FAR,
            perfect,
            counters: MediumCounters::default(),
        }
    }

    /// The delay of every packet, if all arrive whole after the same one.
    pub(crate) fn only_delay(&self) -> Option<Duration> {
        self.perfect.then_some(self.config.one_way_delay)
    }

    /// A packet of `bits` framed bits whose transmission ran from `start` to `end`.
    #[inline]
    pub fn carry(&mut self, start: Instant, end: Instant, bits: u64, packet: Packet) {
        if self.perfect {
            self.put(end + self.config.one_way_delay, packet);
        } else {
            self.carry_through(start, end, bits, packet);
        }
    }

    /// The packet arrives at `due`.
    #[inline]
    fn put(&mut self, due: Instant, packet: Packet) {
        if self.line.is_empty() {
            self.first_arrival = due;
        }
        self.line.push_back((due, packet));
    }

    /// Through errors, losses and jitter.
    fn carry_through(&mut self, start: Instant, end: Instant, bits: u64, mut packet: Packet) {
        let lost = self.loss.as_mut().is_some_and(LossProcess::loses_packet)
            || self.config.outages.iter().any(|outage| outage.touches(start, end));
        let errors = if self.config.deliver_damaged && !lost {
            let mut errors = 0;
            self.noise.positions(start, end, bits, |bit| {
                packet.invert_bit(bit);
                errors += 1;
            });
            errors
        } else {
            self.noise.count(start, end, bits)
        };
        self.counters.bit_errors += errors;
        if lost {
            self.counters.lost_packets += 1;
            return;
        }
        if errors > 0 && !self.config.deliver_damaged {
            self.counters.damaged_packets += 1;
            return;
        }
        let mut due = end + self.config.one_way_delay;
        if self.config.jitter > Duration::ZERO {
            due += Duration { ns: (unit(&mut self.jitter_random) * self.config.jitter.ns as f64) as u64 };
        }
        if let Some((last, _)) = self.line.back() {
            due = due.max(*last);
        }
        if errors > 0 {
            self.damaged.push_back(self.taken + self.line.len() as u64);
        }
        self.put(due, packet);
    }

    /// The next packet that has arrived by `now`.
    #[inline]
    pub fn deliver(&mut self, now: Instant) -> Option<Packet> {
        if self.first_arrival > now { None } else { self.take() }
    }

    #[inline]
    fn take(&mut self) -> Option<Packet> {
        let (_, packet) = self.line.pop_front()?;
        if let Some((_, later)) = self.line.get(PREFETCH_AHEAD) {
            later.prefetch();
        }
        self.first_arrival = self.line.front().map_or(Instant::FAR, |(due, _)| *due);
        if self.damaged.front() == Some(&self.taken) {
            self.damaged.pop_front();
            self.counters.delivered_damaged_packets += 1;
        }
        self.taken += 1;
        self.counters.delivered_bytes += packet.bytes();
        Some(packet)
    }

    /// When the next packet arrives; [`Instant::FAR`]: none is on its way.
    #[must_use]
    #[inline]
    pub fn next_arrival(&self) -> Instant {
        self.first_arrival
    }

    /// What became of the packets so far.
    #[must_use]
    pub fn counters(&self) -> MediumCounters {
        MediumCounters { in_flight_packets: self.line.len() as u64, delivered_packets: self.taken, ..self.counters }
    }

    /// The receiver's bit errors.
    #[must_use]
    pub fn noise(&self) -> &NoiseProcess {
        &self.noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::RatioSchedule;
    use bentpipe_net::seed::Seed;
    use bentpipe_net::units::BitErrorRatio;

    fn medium(config: MediumConfig, ratio: f64) -> Medium {
        let noise = RatioSchedule::Constant(BitErrorRatio::new(ratio).unwrap());
        let seed = Seed(5);
        Medium::new(config, NoiseProcess::new(noise, seed.stream("n")), seed.stream("l"), seed.stream("j"))
    }
    fn config() -> MediumConfig {
        MediumConfig {
            one_way_delay: Duration::from_millis(250),
            jitter: Duration::ZERO,
            outages: vec![],
            loss: None,
            deliver_damaged: false,
        }
    }
    fn ms(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }

    #[test]
    fn loss_has_the_stated_share_and_burst_length() {
        for (share, burst) in [(0.01, 1.0 / 0.99), (0.1, 5.0), (0.3, 2.0)] {
            let mut m = medium(MediumConfig { loss: Some(PacketLoss { share, burst_mean: burst }), ..config() }, 0.0);
            let packets = 400_000u64;
            let (mut lost, mut bursts, mut before) = (0u64, 0u64, false);
            for i in 0..packets {
                let n = m.counters().lost_packets;
                m.carry(ms(i), ms(i + 1), 800, Packet::from_pattern(i, 0, 0, 100));
                while m.deliver(ms(i)).is_some() {}
                let now = m.counters().lost_packets > n;
                lost += u64::from(now);
                bursts += u64::from(now && !before);
                before = now;
            }
            let found = lost as f64 / packets as f64;
            let spread = 4.0 * (share * burst * 2.0 / packets as f64).sqrt();
            assert!((found - share).abs() < spread, "share {share}: {found}");
            let mean = lost as f64 / bursts as f64;
            assert!((mean / burst - 1.0).abs() < 0.05, "burst {burst}: {mean}");
        }
    }

    #[test]
    fn jitter_keeps_order_and_bounds() {
        let mut m = medium(MediumConfig { jitter: Duration::from_millis(30), ..config() }, 0.0);
        for i in 0..1000 {
            m.carry(ms(i * 10), ms(i * 10 + 1), 800, Packet::from_pattern(i, 0, 0, 100));
        }
        let mut next = 0;
        for t in 0..11_000 {
            while let Some(packet) = m.deliver(ms(t)) {
                assert_eq!(packet.id, next);
                let sent = next * 10 + 1;
                assert!(t >= sent + 250 && t <= sent + 281, "packet {next} at {t}");
                next += 1;
            }
        }
        assert_eq!(next, 1000);
    }

    #[test]
    fn outages_take_packets_that_touch_them() {
        let once = Outage { at: ms(100), lasts: Duration::from_millis(50), every: None };
        assert!(!once.touches(ms(90), ms(100)), "the last bit just made it");
        assert!(once.touches(ms(90), ms(101)));
        assert!(once.touches(ms(149), ms(160)));
        assert!(!once.touches(ms(150), ms(160)));
        let again = Outage { every: Some(Duration::from_millis(1000)), ..once };
        assert!(again.touches(ms(5120), ms(5121)) && !again.touches(ms(5200), ms(5201)));
        assert!(again.touches(ms(5090), ms(5101)), "across the start of a round");
    }

    #[test]
    fn without_a_check_packets_arrive_damaged() {
        let mut m = medium(MediumConfig { deliver_damaged: true, ..config() }, 0.01);
        let mut inverted = 0;
        for i in 0..100 {
            m.carry(ms(i), ms(i + 1), 800, Packet::from_pattern(i, 0, 0, 100));
        }
        while let Some(packet) = m.deliver(ms(10_000)) {
            if let bentpipe_net::packet::Content::Pattern(pattern) = packet.content {
                inverted += pattern.inverted.len() as u64;
            }
        }
        assert_eq!(m.counters().delivered_packets, 100);
        assert_eq!(m.counters().bit_errors, inverted);
        assert!((700..900).contains(&inverted), "{inverted}");
    }
}
