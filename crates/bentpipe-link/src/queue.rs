//! Queue disciplines: the order in which packets are transmitted, and which of them are not.
//!
//! A discipline never touches a packet, so that it needs to be written only once for real and virtual ones: the link keeps the
//! packets and hands out a [`Ticket`] for each. First in, first out (`Fifo`) has a short path of its own.
//! [`crate::registry`] says how a discipline gets into link files.

use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::packet::Packet;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::seed::Stream;
use bentpipe_net::time::Instant;
use bentpipe_net::units::DataSize;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

mod backlog;
pub(crate) mod cake;
mod classes;
pub(crate) mod codel;
pub(crate) mod drr;
mod flows;
pub(crate) mod fq_codel;
#[cfg(test)]
mod harness;
pub(crate) mod pie;
pub(crate) mod priority;
pub(crate) mod red;
pub mod reserved;
pub(crate) mod scfq;
mod turns;
mod virtual_time;
pub(crate) mod wfq;

/// The packets that wait before a transmitter, and the choice of the one that leaves next.
///
/// Calls come in the order of time. Each ticket that comes in goes out again exactly once: it is transmitted, or dropped at
/// any later call. A link asks for the next packet whenever a channel is free. [`Any`] lets whoever knows the discipline
/// change it while it runs ([`crate::direction::Direction::discipline_mut`]), as reservations do.
pub trait QueueDiscipline: Any + fmt::Debug + Send {
    /// A packet arrives. It may be dropped at once, or others for it.
    fn enqueue(&mut self, now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops);

    /// The next packet to transmit; `None`: none may leave now. What it passes over for good, it drops.
    fn dequeue(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure>;

    /// When the next packet may leave: any time up to now for "at once", [`Instant::FAR`] when none waits. A discipline that
    /// holds packets back says until when; it is asked for one then.
    fn next_departure(&self) -> Instant;
}

/// Stands for a packet that waits. It cannot be copied, so no packet leaves twice.
#[derive(Debug)]
pub struct Ticket {
    slot: u32,
    /// Length of the packet in bytes, framing not included.
    pub bytes: u32,
    /// When it arrived.
    pub arrival: Instant,
}

/// A packet that leaves a queue.
#[derive(Debug)]
pub struct Departure {
    /// Which one.
    pub ticket: Ticket,
    /// Mark it "congestion experienced" (RFC 3168). A packet whose transport does not understand that is dropped instead.
    pub mark: bool,
}

impl From<Ticket> for Departure {
    /// It leaves as it came.
    fn from(ticket: Ticket) -> Departure {
        Departure { ticket, mark: false }
    }
}

/// The packets that a call drops.
#[derive(Debug, Default)]
pub struct Drops {
    tickets: Vec<Ticket>,
}

impl Drops {
    /// Drops a packet.
    pub fn push(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
    }
}

/// A discipline with its settings, ready to be made for each direction of a link.
#[derive(Clone)]
pub struct QueueSpec {
    kind: &'static str,
    make: Arc<dyn Fn(Stream) -> Box<dyn QueueDiscipline> + Send + Sync>,
}

impl QueueSpec {
    /// `make` gets the random stream of the queue.
    pub fn new(kind: &'static str, make: impl Fn(Stream) -> Box<dyn QueueDiscipline> + Send + Sync + 'static) -> Self {
        QueueSpec { kind, make: Arc::new(make) }
    }

    /// Its name in link files.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// An empty queue.
    #[must_use]
    pub fn build(&self, random: Stream) -> Box<dyn QueueDiscipline> {
        (self.make)(random)
    }
}

impl fmt::Debug for QueueSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueSpec").field(&self.kind).finish()
    }
}

/// The queue of a direction, as its link file says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QueueConfig {
    /// First in, first out.
    Fifo(QueueLimit),
    /// Another discipline.
    Discipline(QueueSpec),
}

impl QueueConfig {
    /// The limit of a FIFO.
    #[must_use]
    pub fn fifo_limit(&self) -> Option<QueueLimit> {
        match self {
            QueueConfig::Fifo(limit) => Some(*limit),
            QueueConfig::Discipline(_) => None,
        }
    }

    /// Bytes that a FIFO has room for, of packets of `packet_bytes`. `None`: another discipline has limits of its own.
    #[must_use]
    pub fn room_bytes(&self, packet_bytes: u64) -> Option<u64> {
        Some(match self.fifo_limit()? {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => packets.saturating_mul(packet_bytes),
        })
    }
}

impl fmt::Display for QueueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueConfig::Fifo(QueueLimit::Bytes(bytes)) => write!(f, "{bytes} B"),
            QueueConfig::Fifo(QueueLimit::Packets(packets)) => write!(f, "{packets} packets"),
            QueueConfig::Discipline(spec) => f.write_str(spec.kind),
        }
    }
}

/// The most that may wait in a FIFO. The packet being transmitted no longer counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueLimit {
    /// Bytes of packets, framing not included.
    Bytes(u64),
    /// Packets of any size.
    Packets(u64),
}

impl QueueLimit {
    /// From the keys `bytes` and `packets`, of which one may be there.
    pub(crate) fn read(
        bytes: Option<DataSize>,
        packets: Option<u64>,
        context: &QueueContext,
    ) -> Result<QueueLimit, KeyProblem> {
        match (bytes, packets) {
            (None, None) => Ok(QueueLimit::Bytes(context.bytes_default)),
            (Some(bytes), None) => {
                let least = context.packet_bytes_max;
                if bytes.bytes < least {
                    let what = format!("{bytes} does not hold one packet of {least} B; allowed: {least} B or more");
                    return Err(KeyProblem::new("bytes", what));
                }
                Ok(QueueLimit::Bytes(bytes.bytes))
            }
            (None, Some(0)) => Err(KeyProblem::new("packets", "0 would drop everything; allowed: 1 or more")),
            (None, Some(packets)) => Ok(QueueLimit::Packets(packets)),
            (Some(_), Some(_)) => Err(KeyProblem::new("", "allowed: either bytes or packets")),
        }
    }

    /// True if a packet of `bytes` fits while so much waits.
    #[inline]
    pub(crate) fn admits(self, waiting_packets: u64, waiting_bytes: u64, bytes: u64) -> bool {
        self.holds(waiting_packets + 1, waiting_bytes + bytes)
    }

    /// True if so much may wait.
    #[inline]
    fn holds(self, packets: u64, bytes: u64) -> bool {
        match self {
            QueueLimit::Bytes(limit) => bytes <= limit,
            QueueLimit::Packets(limit) => packets <= limit,
        }
    }
}

/// First in, first out; a packet that does not fit is dropped (tail drop).
#[derive(Debug)]
struct Fifo<P> {
    waiting: VecDeque<P>,
    bytes: u64,
    limit: QueueLimit,
}

impl<P: Packet> Fifo<P> {
    fn new(limit: QueueLimit) -> Self {
        Fifo { waiting: VecDeque::new(), bytes: 0, limit }
    }

    /// Takes a packet in; `false`: it does not fit and is dropped.
    #[inline]
    fn push(&mut self, packet: P) -> bool {
        let fits = self.limit.admits(self.waiting.len() as u64, self.bytes, packet.bytes());
        if fits {
            self.bytes += packet.bytes();
            self.waiting.push_back(packet);
        }
        fits
    }

    /// The next packet to transmit.
    #[inline]
    fn pop(&mut self) -> Option<P> {
        let packet = self.waiting.pop_front()?;
        self.bytes -= packet.bytes();
        Some(packet)
    }
}

/// A discipline and the packets that wait in it.
#[derive(Debug)]
struct Shelf<P> {
    discipline: Box<dyn QueueDiscipline>,
    carries_ethernet: bool,
    slots: Vec<Option<P>>,
    free: Vec<u32>,
    packets: u64,
    bytes: u64,
    /// Empty between calls; its room is used again.
    drops: Drops,
}

impl<P: Packet> Shelf<P> {
    fn new(discipline: Box<dyn QueueDiscipline>, carries_ethernet: bool) -> Self {
        let (slots, free) = (Vec::new(), Vec::new());
        Shelf { discipline, carries_ethernet, slots, free, packets: 0, bytes: 0, drops: Drops::default() }
    }

    /// Takes a packet in; returns how many were dropped.
    fn push(&mut self, now: Instant, packet: P) -> u64 {
        let headers = packet.headers(self.carries_ethernet);
        let bytes = packet.bytes();
        self.packets += 1;
        self.bytes += bytes;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(packet);
        let ticket = Ticket { slot, bytes: bytes as u32, arrival: now };
        self.discipline.enqueue(now, ticket, headers.as_ref(), &mut self.drops);
        self.discard()
    }

    /// The next packet to transmit, and how many were dropped for it.
    fn pop(&mut self, now: Instant) -> (Option<P>, u64) {
        let mut dropped = 0;
        loop {
            let departure = self.discipline.dequeue(now, &mut self.drops);
            dropped += self.discard();
            let Some(Departure { ticket, mark }) = departure else { return (None, dropped) };
            let Some(mut packet) = self.take(ticket) else { continue };
            if !mark || packet.mark_congestion(self.carries_ethernet) {
                return (Some(packet), dropped);
            }
            dropped += 1;
        }
    }

    /// Lets go of the packets that the discipline dropped; returns how many they were. Mostly there are none.
    #[inline]
    fn discard(&mut self) -> u64 {
        if self.drops.tickets.is_empty() { 0 } else { self.discard_some() }
    }

    #[cold]
    fn discard_some(&mut self) -> u64 {
        let mut count = 0;
        while let Some(ticket) = self.drops.tickets.pop() {
            count += u64::from(self.take(ticket).is_some());
        }
        count
    }

    fn take(&mut self, ticket: Ticket) -> Option<P> {
        let packet = self.slots.get_mut(ticket.slot as usize).and_then(Option::take);
        debug_assert!(packet.is_some(), "a ticket of another queue");
        self.free.push(ticket.slot);
        self.packets -= 1;
        self.bytes -= u64::from(ticket.bytes);
        packet
    }
}

/// The queue of a direction.
#[derive(Debug)]
pub struct Queue<P>(Kind<P>);

#[derive(Debug)]
enum Kind<P> {
    Fifo(Fifo<P>),
    Discipline(Shelf<P>),
}

impl<P: Packet> Queue<P> {
    /// A FIFO.
    #[must_use]
    pub fn fifo(limit: QueueLimit) -> Self {
        Queue(Kind::Fifo(Fifo::new(limit)))
    }

    /// Another discipline. `carries_ethernet`: packets are Ethernet frames.
    #[must_use]
    pub fn discipline(discipline: Box<dyn QueueDiscipline>, carries_ethernet: bool) -> Self {
        Queue(Kind::Discipline(Shelf::new(discipline, carries_ethernet)))
    }

    /// A packet arrives while every channel is busy, or before a discipline; returns how many were dropped.
    #[inline]
    pub(crate) fn push(&mut self, now: Instant, packet: P) -> u64 {
        match &mut self.0 {
            Kind::Fifo(fifo) => u64::from(!fifo.push(packet)),
            Kind::Discipline(shelf) => shelf.push(now, packet),
        }
    }

    /// The next packet to transmit, and how many were dropped for it.
    #[inline]
    pub(crate) fn pop(&mut self, now: Instant) -> (Option<P>, u64) {
        match &mut self.0 {
            Kind::Fifo(fifo) => (fifo.pop(), 0),
            Kind::Discipline(shelf) => shelf.pop(now),
        }
    }

    /// When a packet may leave that is held back while a channel is free; [`Instant::FAR`]: none is.
    #[inline]
    pub(crate) fn next_departure(&self) -> Instant {
        match &self.0 {
            Kind::Fifo(_) => Instant::FAR,
            Kind::Discipline(shelf) => shelf.discipline.next_departure(),
        }
    }

    /// The limit of a FIFO.
    pub(crate) fn fifo_limit(&self) -> Option<QueueLimit> {
        match &self.0 {
            Kind::Fifo(fifo) => Some(fifo.limit),
            Kind::Discipline(_) => None,
        }
    }

    pub(crate) fn is_fifo(&self) -> bool {
        matches!(self.0, Kind::Fifo(_))
    }

    pub(crate) fn discipline_mut(&mut self) -> Option<&mut dyn QueueDiscipline> {
        match &mut self.0 {
            Kind::Fifo(_) => None,
            Kind::Discipline(shelf) => Some(&mut *shelf.discipline),
        }
    }

    /// Bytes waiting.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        match &self.0 {
            Kind::Fifo(fifo) => fifo.bytes,
            Kind::Discipline(shelf) => shelf.bytes,
        }
    }

    /// Packets waiting.
    pub(crate) fn packets(&self) -> u64 {
        match &self.0 {
            Kind::Fifo(fifo) => fifo.waiting.len() as u64,
            Kind::Discipline(shelf) => shelf.packets,
        }
    }
}
