//! One direction of a link: queue discipline → framing → transmitter → medium (one per receiver).

use crate::express::{Express, Way};
use crate::framing::Framing;
use crate::medium::{Medium, MediumCounters};
use crate::queue::{Fifo, QueueLimit};
use crate::transmitter::Transmitter;
use bentpipe_net::packet::Packet;
use bentpipe_net::time::Instant;

/// Counters of the sending side. Every packet offered is dropped, sent, abandoned, waiting or being sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderCounters {
    /// Packets handed to the queue.
    pub offered_packets: u64,
    /// Their bytes, framing not included.
    pub offered_bytes: u64,
    /// Refused by the full queue.
    pub dropped_packets: u64,
    /// Out on the wire, last bit included.
    pub sent_packets: u64,
    /// Bits of those, framing included.
    pub link_bits: u64,
    /// Cut off while being sent (lost circuit), or sent over a channel that carried nothing yet.
    pub abandoned_packets: u64,
    /// Packets waiting now.
    pub queue_packets: u64,
    /// Bytes waiting now.
    pub queue_bytes: u64,
    /// Most bytes that ever waited.
    pub queue_bytes_max: u64,
    /// Packets being sent now.
    pub sending_packets: u64,
}

/// A direction's state at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Bytes waiting.
    pub queue_bytes: u64,
    /// Packets dropped so far.
    pub dropped_packets: u64,
    /// Packets discarded for bit errors so far.
    pub damaged_packets: u64,
    /// Bits inverted so far.
    pub bit_errors: u64,
    /// Bits sent so far, framing included.
    pub link_bits: u64,
    /// Bytes delivered so far.
    pub delivered_bytes: u64,
}

/// A chain from one site to one or more others.
#[derive(Debug)]
pub struct Direction {
    queue: Fifo,
    framing: Framing,
    carries_ethernet: bool,
    transmitter: Transmitter,
    media: Vec<Medium>,
    /// In place of the queue, the transmitter and the medium, where nothing can happen to a packet.
    express: Option<Express>,
    /// See [`Direction::next_event`].
    next: Instant,
    counters: SenderCounters,
}

impl Direction {
    /// An idle chain. `open`: nothing must be set up first; else see [`Direction::open`].
    #[must_use]
    pub fn new(
        limit: QueueLimit,
        framing: Framing,
        carries_ethernet: bool,
        mut transmitter: Transmitter,
        media: Vec<Medium>,
        open: bool,
    ) -> Self {
        let way = |delay, rate| Way { limit, framing, carries_ethernet, rate, delay };
        let express = match &media[..] {
            [medium] if open && !framing.reads_content() => {
                medium.only_delay().zip(transmitter.single_rate()).map(|(delay, rate)| Express::new(way(delay, rate)))
            }
            _ => None,
        };
        if !open {
            transmitter.set_open(0, Instant::ZERO);
        }
        Direction {
            queue: Fifo::new(limit),
            framing,
            carries_ethernet,
            transmitter,
            media,
            express,
            next: Instant::FAR,
            counters: SenderCounters::default(),
        }
    }

    /// A packet comes in at the sender.
    #[inline]
    pub fn offer(&mut self, now: Instant, packet: Packet) {
        if let Some(express) = &mut self.express {
            express.offer(now, packet);
            self.next = express.next_arrival();
        } else {
            self.offer_to_queue(now, packet);
        }
    }

    fn offer_to_queue(&mut self, now: Instant, packet: Packet) {
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += packet.bytes();
        if self.transmitter.has_room() {
            self.start(now, packet, false);
            self.find_next();
        } else if self.queue.push(packet) {
            self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(self.queue.bytes());
        } else {
            self.counters.dropped_packets += 1;
        }
    }

    /// Moves packets whose transmission is over to the media, and the next ones onto the channels. Returns the time of
    /// the last transmission that ended.
    #[inline]
    pub fn advance(&mut self, now: Instant) -> Option<Instant> {
        if let Some(express) = &mut self.express {
            return express.advance(now);
        }
        if self.transmitter.first_end() > now { None } else { self.finish(now) }
    }

    fn finish(&mut self, now: Instant) -> Option<Instant> {
        let mut last_end = None;
        while let Some(sent) = self.transmitter.finish(now) {
            last_end = Some(sent.end);
            if sent.lost {
                self.counters.abandoned_packets += 1;
                self.start_next(sent.end, true);
                continue;
            }
            self.counters.sent_packets += 1;
            self.counters.link_bits += sent.bits;
            if let Some((last, others)) = self.media.split_last_mut() {
                for medium in others {
                    medium.carry(sent.start, sent.end, sent.bits, sent.packet.clone());
                }
                last.carry(sent.start, sent.end, sent.bits, sent.packet);
            }
            self.start_next(sent.end, true);
        }
        self.find_next();
        last_end
    }

    /// The first `channels` channels are up: what waited may leave. Those that were down lose what they send before
    /// `carries_from`; those that are down now finish what they send, and what comes later waits for others.
    pub fn open(&mut self, now: Instant, channels: usize, carries_from: Instant) {
        self.transmitter.set_open(channels, carries_from);
        while self.start_next(now, false) {}
        self.find_next();
    }

    /// The circuit was cut: what is being sent is lost, what comes now waits.
    pub fn cut(&mut self) {
        let lost = self.transmitter.abandon();
        self.counters.abandoned_packets += lost as u64;
        self.transmitter.set_open(0, Instant::ZERO);
        self.find_next();
    }

    /// The next packet that arrived by `now`, and the number of its receiver.
    #[inline]
    pub fn deliver(&mut self, now: Instant) -> Option<(usize, Packet)> {
        if self.next > now {
            return None;
        }
        if let Some(express) = &mut self.express {
            let packet = express.deliver(now);
            self.next = express.next_arrival();
            return Some((0, packet?));
        }
        let arrived = match &mut self.media[..] {
            [medium] => medium.deliver(now).map(|packet| (0, packet)),
            media => media.iter_mut().enumerate().find_map(|(i, medium)| Some((i, medium.deliver(now)?))),
        };
        self.find_next();
        arrived
    }

    /// When something happens next that can be seen outside: the next arrival. Ends of transmissions before it can be
    /// worked off then, at their own times.
    #[must_use]
    #[inline]
    pub fn next_wake(&self) -> Option<Instant> {
        let first = self.next_event();
        (first != Instant::FAR).then_some(first)
    }

    /// The same; [`Instant::FAR`]: nothing.
    #[inline]
    pub(crate) fn next_event(&self) -> Instant {
        self.next
    }

    /// After packets moved: takes note of what happens next.
    #[inline]
    fn find_next(&mut self) {
        self.next = match &self.media[..] {
            [medium] if medium.next_arrival() != Instant::FAR => medium.next_arrival(),
            [_] => self.transmitter.first_end(),
            _ => self.first_of_many(),
        };
    }

    fn first_of_many(&self) -> Instant {
        let (mut first, mut last) = (Instant::FAR, Instant::ZERO);
        for medium in &self.media {
            let at = medium.next_arrival();
            first = first.min(at);
            last = last.max(at);
        }
        if last == Instant::FAR {
            // Nothing is on its way to one of them.
            first = first.min(self.transmitter.first_end());
        }
        first
    }

    /// When the next transmission ends; [`Instant::FAR`]: never.
    fn first_end(&self) -> Instant {
        match &self.express {
            Some(express) => express.first_end(),
            None => self.transmitter.first_end(),
        }
    }

    /// When [`Direction::advance`] must be called next; [`Instant::FAR`]: not for the sake of any packet.
    #[inline]
    pub(crate) fn must_advance(&self) -> Instant {
        self.transmitter.first_end()
    }

    /// When the next transmission ends.
    #[must_use]
    pub fn next_end(&self) -> Option<Instant> {
        let first = self.first_end();
        (first != Instant::FAR).then_some(first)
    }

    /// Whether packets are being sent.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.express.as_ref().map_or(self.transmitter.busy_channels(), Express::sending) > 0
    }

    /// How long the channels have been sending until `now`, their times added up, in nanoseconds. Of a direction that had to
    /// be opened.
    #[must_use]
    pub fn airtime(&self, now: Instant) -> u64 {
        self.transmitter.airtime(now)
    }

    /// Whether packets wait.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.express.as_ref().map_or(self.queue.packets(), |express| express.waiting() as u64) > 0
    }

    /// Counters of the sending side.
    #[must_use]
    pub fn sender_counters(&self) -> SenderCounters {
        if let Some(express) = &self.express {
            return express.sender_counters();
        }
        SenderCounters {
            queue_packets: self.queue.packets(),
            queue_bytes: self.queue.bytes(),
            sending_packets: self.transmitter.busy_channels() as u64,
            ..self.counters
        }
    }

    /// Counters of each receiver.
    pub fn receiver_counters(&self) -> impl Iterator<Item = MediumCounters> + '_ {
        let express = self.express.as_ref();
        self.media.iter().map(move |medium| express.map_or_else(|| medium.counters(), Express::receiver_counters))
    }

    /// Where the direction stands at `now`, all receivers together.
    #[must_use]
    pub fn sample(&self, now: Instant) -> Sample {
        let sender = self.sender_counters();
        let mut sample = Sample {
            at: now,
            queue_bytes: sender.queue_bytes,
            dropped_packets: sender.dropped_packets,
            damaged_packets: 0,
            bit_errors: 0,
            link_bits: sender.link_bits,
            delivered_bytes: 0,
        };
        for receiver in self.receiver_counters() {
            sample.damaged_packets += receiver.damaged_packets;
            sample.bit_errors += receiver.bit_errors;
            sample.delivered_bytes += receiver.delivered_bytes;
        }
        sample
    }

    /// The ways to the receivers.
    #[must_use]
    pub fn media(&self) -> &[Medium] {
        &self.media
    }

    #[inline]
    fn start_next(&mut self, now: Instant, follows: bool) -> bool {
        if !self.transmitter.has_room() {
            return false;
        }
        let Some(packet) = self.queue.pop() else { return false };
        self.start(now, packet, follows);
        true
    }

    #[inline]
    fn start(&mut self, now: Instant, packet: Packet, follows: bool) {
        let bits = self.framing.bits(&packet, self.carries_ethernet);
        self.transmitter.start(now, packet, bits, follows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::{Ethernet, Ppp};
    use crate::medium::MediumConfig;
    use crate::noise::{NoiseProcess, RatioSchedule};
    use crate::transmitter::RateSchedule;
    use bentpipe_net::seed::Seed;
    use bentpipe_net::time::Duration;
    use bentpipe_net::units::{BitErrorRatio, BitRate};
    use proptest::prelude::*;

    /// A direction without errors, as it is made, and one that moves packets from part to part.
    fn both(limit: QueueLimit, framing: Framing, bps: u64, delay: Duration) -> [Direction; 2] {
        [true, false].map(|express| {
            let config = MediumConfig {
                one_way_delay: delay,
                jitter: Duration::ZERO,
                outages: vec![],
                loss: None,
                deliver_damaged: false,
            };
            let seed = Seed(1);
            let noise = NoiseProcess::new(RatioSchedule::Constant(BitErrorRatio::ZERO), seed.stream("noise"));
            let medium = Medium::new(config, noise, seed.stream("loss"), seed.stream("jitter"));
            let transmitter = Transmitter::new(RateSchedule::constant(BitRate::from_bps(bps)), 1);
            let mut direction = Direction::new(limit, framing, false, transmitter, vec![medium], true);
            assert!(direction.express.is_some());
            if !express {
                direction.express = None;
            }
            direction
        })
    }

    /// What is seen of a direction at `now`: its arrivals, its counters, its next end.
    fn seen(direction: &mut Direction, now: Instant) -> impl PartialEq + std::fmt::Debug {
        direction.advance(now);
        let arrivals: Vec<u64> = std::iter::from_fn(|| direction.deliver(now)).map(|(_, packet)| packet.id).collect();
        let receivers: Vec<MediumCounters> = direction.receiver_counters().collect();
        let state = (direction.next_end(), direction.is_sending(), direction.is_waiting());
        (arrivals, direction.sender_counters(), receivers, state)
    }

    proptest! {
        #[test]
        fn the_express_way_is_the_way_from_part_to_part(
            offers in prop::collection::vec((0u64..3_000_000, 20u32..1600), 1..120),
            bytes in 0u64..20_000, packets in any::<bool>(), ppp in any::<bool>(),
            bps in prop::sample::select(vec![9_600, 64_000, 7_000_000, 300_000_000, 999_999_999, u64::MAX / 2]),
            delay_ns in 0u64..5_000_000,
        ) {
            let limit = if packets { QueueLimit::Packets(bytes / 1000) } else { QueueLimit::Bytes(bytes) };
            let framing = match ppp {
                true => Framing::Ppp(Ppp::PLAIN),
                false => Framing::Ethernet(Ethernet { preamble_and_gap: true, minimum: true }),
            };
            let [mut express, mut parts] = both(limit, framing, bps, Duration { ns: delay_ns });
            let mut now = Instant::ZERO;
            for (id, (gap, length)) in offers.into_iter().enumerate() {
                let until = now + Duration { ns: gap };
                // Either is woken when the other one is due, too: that must make no difference.
                while let Some(at) = express.next_wake().into_iter().chain(parts.next_wake()).min().filter(|at| *at <= until) {
                    prop_assert_eq!(seen(&mut express, at), seen(&mut parts, at));
                }
                now = until;
                prop_assert_eq!(seen(&mut express, now), seen(&mut parts, now));
                for direction in [&mut express, &mut parts] {
                    direction.offer(now, Packet::from_pattern(id as u64, 0, 0, length));
                }
                prop_assert_eq!(seen(&mut express, now), seen(&mut parts, now));
            }
            while let Some(at) = express.next_wake().into_iter().chain(parts.next_wake()).min() {
                prop_assert_eq!(seen(&mut express, at), seen(&mut parts, at));
            }
            prop_assert_eq!(express.sender_counters().sending_packets, 0);
        }
    }
}
