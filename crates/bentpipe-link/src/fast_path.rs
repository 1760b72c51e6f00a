//! The fast path of a direction whose packets' fate is known when they are offered: a FIFO, one channel at one rate, one receiver,
//! and a medium that delays every packet alike and harms none.
//!
//! Queue, transmitter and medium in one line, which a packet enters with the time of its arrival. It does what
//! [`crate::direction`] does with the parts, without moving the packet from one to the next; a test compares the two.

use crate::direction::SenderCounters;
use crate::framing::Framing;
use crate::medium::MediumCounters;
use crate::queue::QueueLimit;
use crate::transmitter::Airtime;
use bentpipe_net::packet::Packet;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use std::collections::VecDeque;

/// Such a direction.
#[derive(Debug)]
pub(crate) struct FastPath<P> {
    path: PathConfig,
    /// Arrival time, packet: in flight, then the one being sent, then those that wait.
    line: VecDeque<(Instant, P)>,
    /// How many of them have not left by the time of the last [`FastPath::advance`].
    unsent: usize,
    /// When the first of these is out ([`Instant::FAR`]: there is none), and the last.
    first_end: Instant,
    last_end: Instant,
    /// Work that still fits into the nanosecond in which the last one ends.
    spare: u64,
    size: PacketSize,
    sender: SenderCounters,
    receiver: MediumCounters,
}

/// The settings of a fast path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathConfig {
    pub limit: QueueLimit,
    pub framing: Framing,
    pub carries_ethernet: bool,
    pub rate: BitRate,
    pub delay: Duration,
}

/// The length of the packet last asked about, its bits on the wire, and the time that they take: most packets are as
/// long as the one before.
#[derive(Clone, Copy, Debug)]
struct PacketSize {
    bytes: u64,
    bits: u64,
    airtime: Airtime,
}

impl PacketSize {
    #[inline]
    fn set(&mut self, packet: &impl Packet, path: &PathConfig) {
        if self.bytes != packet.bytes() {
            let bits = path.framing.bits_of(packet, path.carries_ethernet);
            *self = PacketSize { bytes: packet.bytes(), bits, airtime: Airtime::of(bits, path.rate) };
        }
    }
}

/// The distance of prefetching, in packets before a packet's arrival.
const PREFETCH_AHEAD: usize = 3;

impl<P: Packet> FastPath<P> {
    /// Nothing on its path.
    pub fn new(path: PathConfig) -> FastPath<P> {
        FastPath {
            path,
            line: VecDeque::new(),
            unsent: 0,
            first_end: Instant::FAR,
            last_end: Instant::ZERO,
            spare: 0,
            size: PacketSize { bytes: u64::MAX, bits: 0, airtime: Airtime::default() },
            sender: SenderCounters::default(),
            receiver: MediumCounters::default(),
        }
    }

    /// A packet comes in at the sender.
    #[inline]
    pub fn offer(&mut self, now: Instant, packet: P) {
        if self.first_end <= now {
            self.advance(now);
        }
        let bytes = packet.bytes();
        self.sender.offered_packets += 1;
        self.sender.offered_bytes += bytes;
        let (start, before) = if self.unsent == 0 {
            (now, 0)
        } else {
            if !self.path.limit.admits(self.unsent as u64 - 1, self.sender.queue_bytes, bytes) {
                self.sender.dropped_packets += 1;
                return;
            }
            self.sender.queue_bytes += bytes;
            self.sender.queue_bytes_max = self.sender.queue_bytes_max.max(self.sender.queue_bytes);
            (self.last_end, self.spare)
        };
        self.size.set(&packet, &self.path);
        let (taken, spare) = self.size.airtime.after(before, self.path.rate);
        let end = start + taken;
        if self.unsent == 0 {
            self.first_end = end;
        }
        self.last_end = end;
        self.spare = spare;
        self.unsent += 1;
        self.line.push_back((end + self.path.delay, packet));
    }

    /// Time has come to `now`: counts what was sent. Returns the time of the last transmission that ended.
    pub fn advance(&mut self, now: Instant) -> Option<Instant> {
        let mut last_end = None;
        let mut unsent = self.line.range(self.line.len() - self.unsent..);
        let mut first = unsent.next();
        while self.first_end <= now
            && let Some((_, packet)) = first
        {
            self.size.set(packet, &self.path);
            last_end = Some(self.first_end);
            self.unsent -= 1;
            self.sender.sent_packets += 1;
            self.sender.sent_bytes += self.size.bytes;
            self.sender.link_bits += self.size.bits;
            first = unsent.next();
            self.first_end = match first {
                Some((due, next)) => {
                    self.sender.queue_bytes -= next.bytes();
                    Instant { ns: due.ns - self.path.delay.ns }
                }
                None => Instant::FAR,
            };
        }
        last_end
    }

    /// The next packet that has arrived by `now`.
    #[inline]
    pub fn deliver(&mut self, now: Instant) -> Option<P> {
        if self.next_arrival() > now {
            return None;
        }
        if self.line.len() == self.unsent {
            // It arrives, so it was sent.
            self.advance(now);
        }
        let (_, packet) = self.line.pop_front()?;
        if let Some((_, later)) = self.line.get(PREFETCH_AHEAD) {
            later.prefetch();
        }
        self.receiver.delivered_packets += 1;
        self.receiver.delivered_bytes += packet.bytes();
        Some(packet)
    }

    /// When the next packet arrives; [`Instant::FAR`]: there is none.
    #[inline]
    pub fn next_arrival(&self) -> Instant {
        self.line.front().map_or(Instant::FAR, |(due, _)| *due)
    }

    /// When the next transmission ends; [`Instant::FAR`]: none does.
    #[inline]
    pub fn first_end(&self) -> Instant {
        self.first_end
    }

    /// Packets being sent.
    pub fn sending(&self) -> usize {
        self.unsent.min(1)
    }

    /// Packets waiting.
    pub fn waiting(&self) -> usize {
        self.unsent.saturating_sub(1)
    }

    /// Counters of the sending side.
    pub fn sender_counters(&self) -> SenderCounters {
        SenderCounters { queue_packets: self.waiting() as u64, sending_packets: self.sending() as u64, ..self.sender }
    }

    /// Counters of the receiver.
    pub fn receiver_counters(&self) -> MediumCounters {
        MediumCounters { in_flight_packets: (self.line.len() - self.unsent) as u64, ..self.receiver }
    }
}
