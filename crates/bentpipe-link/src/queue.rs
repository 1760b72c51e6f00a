//! Queue disciplines: what waits before the transmitter.

use bentpipe_net::packet::Packet;
use std::collections::VecDeque;

/// How much may wait. The packet being transmitted no longer counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueLimit {
    /// Bytes of packets, framing not included.
    Bytes(u64),
    /// Packets of any size.
    Packets(u64),
}

impl QueueLimit {
    /// Whether a packet of `bytes` fits while so much waits.
    #[inline]
    pub(crate) fn admits(self, waiting_packets: u64, waiting_bytes: u64, bytes: u64) -> bool {
        match self {
            QueueLimit::Bytes(limit) => waiting_bytes + bytes <= limit,
            QueueLimit::Packets(limit) => waiting_packets < limit,
        }
    }
}

/// First in, first out; a packet that does not fit is dropped (tail drop).
#[derive(Debug)]
pub struct Fifo {
    waiting: VecDeque<Packet>,
    bytes: u64,
    limit: QueueLimit,
}

impl Fifo {
    /// An empty queue.
    #[must_use]
    pub fn new(limit: QueueLimit) -> Self {
        Fifo { waiting: VecDeque::new(), bytes: 0, limit }
    }

    /// Takes a packet in; `false`: it does not fit and is dropped.
    #[must_use]
    #[inline]
    pub fn push(&mut self, packet: Packet) -> bool {
        let fits = self.limit.admits(self.packets(), self.bytes, packet.bytes());
        if fits {
            self.bytes += packet.bytes();
            self.waiting.push_back(packet);
        }
        fits
    }

    /// The next packet to transmit.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.waiting.pop_front()?;
        self.bytes -= packet.bytes();
        Some(packet)
    }

    /// Bytes waiting.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets waiting.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.waiting.len() as u64
    }
}
