//! One direction of a link: queue discipline → framing → transmitter → medium (one per receiver).

use crate::framing::Framing;
use crate::medium::{Medium, MediumCounters};
use crate::packet::Packet;
use crate::queue::{Fifo, QueueLimit};
use crate::time::Instant;
use crate::transmitter::Transmitter;

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
        if !open {
            transmitter.set_open(0, Instant::ZERO);
        }
        Direction {
            queue: Fifo::new(limit),
            framing,
            carries_ethernet,
            transmitter,
            media,
            next: Instant::FAR,
            counters: SenderCounters::default(),
        }
    }

    /// A packet comes in at the sender.
    #[inline]
    pub fn offer(&mut self, now: Instant, packet: Packet) {
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
    #[inline]
    pub(crate) fn first_end(&self) -> Instant {
        self.transmitter.first_end()
    }

    /// When the next transmission ends.
    #[must_use]
    pub fn next_end(&self) -> Option<Instant> {
        self.transmitter.next_end()
    }

    /// Whether packets are being sent.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.transmitter.busy_channels() > 0
    }

    /// How long the channels have been sending until `now`, their times added up, in nanoseconds.
    #[must_use]
    pub fn airtime(&self, now: Instant) -> u64 {
        self.transmitter.airtime(now)
    }

    /// Whether packets wait.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.queue.packets() > 0
    }

    /// Counters of the sending side.
    #[must_use]
    pub fn sender_counters(&self) -> SenderCounters {
        SenderCounters {
            queue_packets: self.queue.packets(),
            queue_bytes: self.queue.bytes(),
            sending_packets: self.transmitter.busy_channels() as u64,
            ..self.counters
        }
    }

    /// Counters of each receiver.
    pub fn receiver_counters(&self) -> impl Iterator<Item = MediumCounters> + '_ {
        self.media.iter().map(Medium::counters)
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
