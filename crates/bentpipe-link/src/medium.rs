//! The medium: between the transmitter's last bit and the receiver's. A delay line, in front of which the
//! [impairments](crate::impairment) decide about each packet.

use crate::impairment::{Fate, Impairment, Outage, PacketLoss, Transmission};
use crate::jitter::JitterConfig;
use crate::noise::RatioSchedule;
use bentpipe_net::packet::Packet;
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;

/// What a link file says of a medium, its bit errors and further impairments aside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MediumConfig {
    /// From the transmitter's last bit to the receiver's.
    pub one_way_delay: Duration,
    /// Extra delay of packets; order is kept.
    pub jitter: Option<JitterConfig>,
    /// Times without reception.
    pub outages: Vec<Outage>,
    /// Loss of whole packets.
    pub loss: Option<PacketLoss>,
    /// Deliver packets with bit errors damaged, because the framing has no check.
    pub deliver_damaged: bool,
}

/// Counters of the packets that entered a medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
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

/// The distance of prefetching, in packets before a packet's arrival.
const PREFETCH_AHEAD: usize = 3;

/// The path to one receiver.
#[derive(Debug)]
pub struct Medium<P> {
    delay: Duration,
    deliver_damaged: bool,
    impairments: Vec<Box<dyn Impairment>>,
    /// Arrival time, packet.
    line: VecDeque<(Instant, P)>,
    /// The number of packets taken from the line, and the numbers (counted as they came into it) of the damaged ones that
    /// are in it.
    taken: u64,
    damaged: VecDeque<u64>,
    /// When the first of them arrives; [`Instant::FAR`]: none.
    first_arrival: Instant,
    counters: MediumCounters,
}

impl<P: Packet> Medium<P> {
    /// A medium with these impairments, in the order in which a packet meets them. `deliver_damaged`: the framing has no check
    /// that would discard packets with bit errors.
    #[must_use]
    pub fn new(delay: Duration, deliver_damaged: bool, impairments: Vec<Box<dyn Impairment>>) -> Self {
        Medium {
            delay,
            deliver_damaged,
            impairments,
            line: VecDeque::new(),
            taken: 0,
            damaged: VecDeque::new(),
            first_arrival: Instant::FAR,
            counters: MediumCounters::default(),
        }
    }

    /// The delay of every packet, if all arrive whole after the same one.
    pub(crate) fn only_delay(&self) -> Option<Duration> {
        self.impairments.is_empty().then_some(self.delay)
    }

    /// A packet of `bits` framed bits whose transmission ran from `start` to `end`.
    #[inline]
    pub fn carry(&mut self, start: Instant, end: Instant, bits: u64, packet: P) {
        if self.impairments.is_empty() {
            self.put(end + self.delay, packet);
        } else {
            self.carry_through(&Transmission { start, end, bits }, packet);
        }
    }

    /// The packet arrives at `due`.
    #[inline]
    fn put(&mut self, due: Instant, packet: P) {
        if self.line.is_empty() {
            self.first_arrival = due;
        }
        self.line.push_back((due, packet));
    }

    fn carry_through(&mut self, transmission: &Transmission, mut packet: P) {
        let mut invert = |bit| packet.invert_bit(bit);
        let mut fate = Fate::new(if self.deliver_damaged { Some(&mut invert) } else { None });
        for impairment in &mut self.impairments {
            impairment.apply(transmission, &mut fate);
        }
        let (errors, delay) = (fate.bit_errors(), fate.added_delay());
        let (lost, discarded) = (fate.is_lost(), fate.is_discarded());
        self.counters.bit_errors += errors;
        if lost {
            self.counters.lost_packets += 1;
            return;
        }
        if discarded {
            self.counters.damaged_packets += 1;
            return;
        }
        let mut due = transmission.end + self.delay + delay;
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
    pub fn deliver(&mut self, now: Instant) -> Option<P> {
        if self.first_arrival > now { None } else { self.take() }
    }

    #[inline]
    fn take(&mut self) -> Option<P> {
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

    /// Counters of the packets so far.
    #[must_use]
    pub fn counters(&self) -> MediumCounters {
        MediumCounters { in_flight_packets: self.line.len() as u64, delivered_packets: self.taken, ..self.counters }
    }

    /// The bit error ratios of its impairments.
    pub fn error_ratios(&self) -> impl Iterator<Item = &RatioSchedule> {
        self.impairments.iter().filter_map(|impairment| impairment.error_ratio())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impairment::LossProcess;
    use crate::jitter::{Jitter, JitterConfig};
    use crate::noise::NoiseProcess;
    use bentpipe_net::packet::Dummy;
    use bentpipe_net::seed::Seed;
    use bentpipe_net::units::BitErrorRatio;

    fn medium(impairments: Vec<Box<dyn Impairment>>) -> Medium<Dummy> {
        Medium::new(Duration::from_millis(250), false, impairments)
    }
    fn ms(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }

    #[test]
    fn loss_has_the_stated_share_and_burst_length() {
        for (share, burst) in [(0.01, 1.0 / 0.99), (0.1, 5.0), (0.3, 2.0)] {
            let mut m =
                medium(vec![Box::new(LossProcess::new(PacketLoss { share, burst_mean: burst }, Seed(5).stream("l")))]);
            let packets = 400_000u64;
            let (mut lost, mut bursts, mut before) = (0u64, 0u64, false);
            for i in 0..packets {
                let n = m.counters().lost_packets;
                m.carry(ms(i), ms(i + 1), 800, Dummy::new(i, 100));
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
        let mut m =
            medium(vec![Box::new(Jitter::new(JitterConfig::up_to(Duration::from_millis(30)), Seed(5).stream("j")))]);
        for i in 0..1000 {
            m.carry(ms(i * 10), ms(i * 10 + 1), 800, Dummy::new(i, 100));
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
    fn without_a_check_packets_arrive_damaged() {
        let noise = RatioSchedule::Constant(BitErrorRatio::new(0.01).unwrap());
        let noise = NoiseProcess::new(noise, Seed(5).stream("n"));
        let mut m = Medium::new(Duration::from_millis(250), true, vec![Box::new(noise)]);
        let mut inverted = 0;
        for i in 0..100 {
            m.carry(ms(i), ms(i + 1), 800, Dummy::new(i, 100));
        }
        while let Some(packet) = m.deliver(ms(10_000)) {
            inverted += packet.inverted.len() as u64;
        }
        assert_eq!(m.counters().delivered_packets, 100);
        assert_eq!(m.counters().bit_errors, inverted);
        assert!((700..900).contains(&inverted), "{inverted}");
    }
}
