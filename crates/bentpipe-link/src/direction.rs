//! One direction of a link: queue discipline → framing → transmitter → medium (one per receiver).

use crate::fast_path::{FastPath, PathConfig};
use crate::framing::Framing;
use crate::medium::{Medium, MediumCounters};
use crate::queue::{Queue, QueueDiscipline};
use crate::transmitter::Transmitter;
use bentpipe_net::packet::Packet;
use bentpipe_net::time::Instant;

/// Counters of the sending side. Every packet offered is dropped, sent, abandoned, waiting or being sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SenderCounters {
    /// Packets handed to the queue.
    pub offered_packets: u64,
    /// Their bytes, framing not included.
    pub offered_bytes: u64,
    /// Dropped by the queue, at once or after they waited.
    pub dropped_packets: u64,
    /// Out on the wire, last bit included.
    pub sent_packets: u64,
    /// Their bytes, framing not included.
    pub sent_bytes: u64,
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
#[non_exhaustive]
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
pub struct Direction<P> {
    queue: Queue<P>,
    framing: Framing,
    carries_ethernet: bool,
    transmitter: Transmitter<P>,
    media: Vec<Medium<P>>,
    /// In place of the queue, the transmitter and the medium, where nothing can happen to a packet.
    fast_path: Option<FastPath<P>>,
    /// See [`Direction::next_wake`].
    next: Instant,
    /// When a packet leaves the queue that is held back while a channel is free; [`Instant::FAR`]: none is.
    release: Instant,
    counters: SenderCounters,
}

impl<P: Packet> Direction<P> {
    /// An idle chain. `open`: nothing must be set up first; else see [`Direction::open`].
    #[must_use]
    pub fn new(
        queue: Queue<P>,
        framing: Framing,
        carries_ethernet: bool,
        mut transmitter: Transmitter<P>,
        media: Vec<Medium<P>>,
        open: bool,
    ) -> Self {
        let fast_path = match (queue.fifo_limit(), &media[..]) {
            (Some(limit), [medium]) if open && !framing.reads_content() => {
                let path = |delay, rate| PathConfig { limit, framing, carries_ethernet, rate, delay };
                medium.only_delay().zip(transmitter.single_rate()).map(|(delay, rate)| FastPath::new(path(delay, rate)))
            }
            _ => None,
        };
        if !open {
            transmitter.set_open(0, Instant::ZERO);
        }
        Direction {
            queue,
            framing,
            carries_ethernet,
            transmitter,
            media,
            fast_path,
            next: Instant::FAR,
            release: Instant::FAR,
            counters: SenderCounters::default(),
        }
    }

    /// A packet comes in at the sender.
    #[inline]
    pub fn offer(&mut self, now: Instant, packet: P) {
        if let Some(path) = &mut self.fast_path {
            path.offer(now, packet);
            self.next = path.next_arrival();
        } else {
            self.offer_to_queue(now, packet);
        }
    }

    /// A packet comes in that nothing carries.
    pub fn refuse(&mut self, packet: &P) {
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += packet.bytes();
        self.counters.dropped_packets += 1;
    }

    fn offer_to_queue(&mut self, now: Instant, packet: P) {
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += packet.bytes();
        if self.queue.is_fifo() && self.transmitter.has_room() {
            // Nothing waits.
            self.start(now, packet, false);
            self.find_next();
            return;
        }
        self.counters.dropped_packets += self.queue.push(now, packet);
        if !self.queue.is_fifo() {
            self.start_all(now);
        }
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(self.queue.bytes());
    }

    /// Moves packets whose transmission is over to the media, and the next ones onto the channels. Returns the time of
    /// the last transmission that ended.
    #[inline]
    pub fn advance(&mut self, now: Instant) -> Option<Instant> {
        if let Some(path) = &mut self.fast_path {
            return path.advance(now);
        }
        if self.must_advance() > now { None } else { self.work_off(now) }
    }

    fn work_off(&mut self, now: Instant) -> Option<Instant> {
        let mut last_end = None;
        loop {
            while self.release <= now && self.release < self.transmitter.next_end() {
                let at = self.release;
                self.start_all(at);
                debug_assert!(self.release > at, "{:?} lets nothing leave when it said", self.queue);
            }
            let Some(sent) = self.transmitter.finish(now) else { break };
            last_end = Some(sent.end);
            if sent.lost {
                self.counters.abandoned_packets += 1;
            } else {
                self.counters.sent_packets += 1;
                self.counters.sent_bytes += sent.packet.bytes();
                self.counters.link_bits += sent.bits;
                if let Some((last, others)) = self.media.split_last_mut() {
                    for medium in others {
                        medium.carry(sent.start, sent.end, sent.bits, sent.packet.clone());
                    }
                    last.carry(sent.start, sent.end, sent.bits, sent.packet);
                }
            }
            self.start_next(sent.end, true);
            self.find_release();
        }
        self.find_next();
        last_end
    }

    /// The first `channels` channels are up: what waited may leave. Those that were down lose what they send before
    /// `carries_from`; those that are down now finish what they send, and what comes later waits for others.
    pub fn open(&mut self, now: Instant, channels: usize, carries_from: Instant) {
        self.transmitter.set_open(channels, carries_from);
        self.start_all(now);
    }

    /// The circuit was lost: what is being sent is lost, what comes now waits.
    pub fn drop_calls(&mut self) {
        let lost = self.transmitter.abandon();
        self.counters.abandoned_packets += lost as u64;
        self.transmitter.set_open(0, Instant::ZERO);
        self.find_release();
        self.find_next();
    }

    /// The next packet that arrived by `now`, and the number of its receiver.
    #[inline]
    pub fn deliver(&mut self, now: Instant) -> Option<(usize, P)> {
        if self.next > now {
            return None;
        }
        if let Some(path) = &mut self.fast_path {
            let packet = path.deliver(now);
            self.next = path.next_arrival();
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
    pub fn next_wake(&self) -> Instant {
        self.next
    }

    /// After packets moved: takes note of what happens next.
    #[inline]
    fn find_next(&mut self) {
        self.next = match &self.media[..] {
            [medium] if medium.next_arrival() != Instant::FAR => medium.next_arrival(),
            [_] => self.transmitter.next_end().min(self.release),
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
            first = first.min(self.transmitter.next_end()).min(self.release);
        }
        first
    }

    /// When [`Direction::advance`] must be called next; [`Instant::FAR`]: not for the sake of any packet.
    #[inline]
    pub(crate) fn must_advance(&self) -> Instant {
        self.transmitter.next_end().min(self.release)
    }

    /// When the next transmission ends; [`Instant::FAR`]: never.
    #[must_use]
    pub fn next_end(&self) -> Instant {
        self.fast_path.as_ref().map_or(self.transmitter.next_end(), FastPath::first_end)
    }

    /// True if packets are being sent.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.fast_path.as_ref().map_or(self.transmitter.busy_channels(), FastPath::sending) > 0
    }

    /// The channels' sending time until `now`, added up, in nanoseconds. Of a direction that had to
    /// be opened.
    #[must_use]
    pub fn airtime(&self, now: Instant) -> u64 {
        self.transmitter.airtime(now)
    }

    /// True if packets wait.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.fast_path.as_ref().map_or(self.queue.packets(), |path| path.waiting() as u64) > 0
    }

    /// The queue discipline, to change while it runs; `None`: a FIFO. It must not change when a packet that waits may leave.
    pub fn discipline_mut(&mut self) -> Option<&mut dyn QueueDiscipline> {
        self.queue.discipline_mut()
    }

    /// Counters of the sending side.
    #[must_use]
    pub fn sender_counters(&self) -> SenderCounters {
        if let Some(path) = &self.fast_path {
            return path.sender_counters();
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
        let path = self.fast_path.as_ref();
        self.media.iter().map(move |medium| path.map_or_else(|| medium.counters(), FastPath::receiver_counters))
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

    /// The paths to the receivers.
    #[must_use]
    pub fn media(&self) -> &[Medium<P>] {
        &self.media
    }

    /// Fills the free channels.
    fn start_all(&mut self, now: Instant) {
        while self.start_next(now, false) {}
        self.find_release();
        self.find_next();
    }

    /// Starts the next packet, if a channel is free. `follows`: see [`Transmitter::start`].
    #[inline]
    fn start_next(&mut self, now: Instant, follows: bool) -> bool {
        if !self.transmitter.has_room() {
            return false;
        }
        let (packet, dropped) = self.queue.pop(now);
        self.counters.dropped_packets += dropped;
        let Some(packet) = packet else { return false };
        self.start(now, packet, follows);
        true
    }

    #[inline]
    fn start(&mut self, now: Instant, packet: P, follows: bool) {
        let bits = self.framing.bits_of(&packet, self.carries_ethernet);
        self.transmitter.start(now, packet, bits, follows);
    }

    #[inline]
    fn find_release(&mut self) {
        self.release = if self.transmitter.has_room() { self.queue.next_departure() } else { Instant::FAR };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::{Ethernet, Ppp};
    use crate::queue::QueueLimit;
    use crate::transmitter::RateSchedule;
    use bentpipe_net::packet::Dummy;
    use bentpipe_net::time::Duration;
    use bentpipe_net::units::BitRate;
    use proptest::prelude::*;

    /// A direction without errors, as it is made, and one that moves packets from part to part.
    fn both(limit: QueueLimit, framing: Framing, bps: u64, delay: Duration) -> [Direction<Dummy>; 2] {
        [true, false].map(|fast| {
            let medium = Medium::new(delay, false, Vec::new());
            let transmitter = Transmitter::new(RateSchedule::constant(BitRate::from_bps(bps)), 1);
            let mut direction = Direction::new(Queue::fifo(limit), framing, false, transmitter, vec![medium], true);
            assert!(direction.fast_path.is_some());
            if !fast {
                direction.fast_path = None;
            }
            direction
        })
    }

    /// The observable state of a direction at `now`: its arrivals, its counters, its next end.
    fn seen(direction: &mut Direction<Dummy>, now: Instant) -> impl PartialEq + std::fmt::Debug {
        direction.advance(now);
        let arrivals: Vec<u64> = std::iter::from_fn(|| direction.deliver(now)).map(|(_, packet)| packet.id).collect();
        let receivers: Vec<MediumCounters> = direction.receiver_counters().collect();
        let state = (direction.next_end(), direction.is_sending(), direction.is_waiting());
        (arrivals, direction.sender_counters(), receivers, state)
    }

    proptest! {
        #[test]
        fn the_fast_path_does_what_the_parts_do(
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
            let [mut fast, mut parts] = both(limit, framing, bps, Duration { ns: delay_ns });
            let mut now = Instant::ZERO;
            for (id, (gap, length)) in offers.into_iter().enumerate() {
                let until = now + Duration { ns: gap };
                // Either is woken when the other one is due, too: that must make no difference.
                while let Some(at) = Some(fast.next_wake().min(parts.next_wake())).filter(|at| *at <= until) {
                    prop_assert_eq!(seen(&mut fast, at), seen(&mut parts, at));
                }
                now = until;
                prop_assert_eq!(seen(&mut fast, now), seen(&mut parts, now));
                for direction in [&mut fast, &mut parts] {
                    direction.offer(now, Dummy::new(id as u64, length));
                }
                prop_assert_eq!(seen(&mut fast, now), seen(&mut parts, now));
            }
            while let Some(at) = Some(fast.next_wake().min(parts.next_wake())).filter(|at| *at != Instant::FAR) {
                prop_assert_eq!(seen(&mut fast, at), seen(&mut parts, at));
            }
            prop_assert_eq!(fast.sender_counters().sending_packets, 0);
        }
    }
}
