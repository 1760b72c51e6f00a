//! The contract between a link and what crosses it, and the packets of virtual runs.
//!
//! A link is compiled for one kind of packet: real bytes in live runs ([`crate::buffer::Buffer`]), a description of them in
//! virtual ones ([`DatagramPacket`]: 75 MB in flight must not cost 75 MB), a number and a length in tests ([`Dummy`]).

use crate::content::pattern_byte;
use crate::datagram::{Body, Datagram};
use crate::headers::{ECN, Headers};
use crate::wire;

/// An IP packet, or an Ethernet frame without its check sequence on a link that carries Ethernet. A clone stands for the
/// copy that another receiver of a broadcast gets.
pub trait Packet: Clone + std::fmt::Debug {
    /// Length in bytes, framing not included. It never changes.
    fn bytes(&self) -> u64;

    /// Calls `visit` with each byte in order, for framings whose length depends on them.
    fn for_each_byte(&self, visit: impl FnMut(u8));

    /// Inverts one bit (a bit error), counted from the packet's first, most significant bit of a byte first.
    fn invert_bit(&mut self, bit: u64);

    /// The headers, for whoever tells flows and classes apart. `ethernet`: it is a frame. `None`: not IP, or too damaged.
    fn headers(&self, ethernet: bool) -> Option<Headers>;

    /// Sets "congestion experienced" (RFC 3168 §5) and mends the header's checksum. `false`: the packet's transport does not
    /// know of it, and a queue that wants to mark the packet must drop it instead.
    fn mark_congestion(&mut self, ethernet: bool) -> bool;

    /// Asks the processor to bring the packet close: it is needed soon.
    #[inline]
    fn prefetch(&self) {}
}

/// A datagram on a link, whole or with bit errors. Short, because tens of thousands may be in flight.
#[derive(Clone, Debug)]
pub struct DatagramPacket(State);

#[derive(Clone, Debug)]
enum State {
    Whole { length: u32, datagram: Box<Datagram> },
    Damaged { length: u32, damaged: Box<Damaged> },
}

/// A datagram some bits of which have been inverted since it was sent.
#[derive(Clone, Debug)]
struct Damaged {
    datagram: Datagram,
    inverted: Vec<u64>,
}

impl DatagramPacket {
    /// A packet as it is sent.
    #[must_use]
    #[inline]
    pub fn new(datagram: impl Into<Box<Datagram>>) -> Self {
        let datagram = datagram.into();
        let length = datagram.bytes();
        DatagramPacket::of_length(datagram, length)
    }

    /// The same of a datagram whose length ([`Datagram::bytes`]) is known.
    #[must_use]
    #[inline]
    pub fn of_length(datagram: Box<Datagram>, length: u64) -> Self {
        debug_assert_eq!(length, datagram.bytes());
        DatagramPacket(State::Whole { length: length as u32, datagram })
    }

    /// The datagram as it was sent, and the bits that have been inverted since (see [`Packet::invert_bit`]).
    #[must_use]
    #[inline]
    pub fn datagram(&self) -> (&Datagram, &[u64]) {
        match &self.0 {
            State::Whole { datagram, .. } => (datagram, &[]),
            State::Damaged { damaged, .. } => (&damaged.datagram, &damaged.inverted),
        }
    }

    /// The datagram as the receiving host reads it; `None`: damaged so that a checksum shows it.
    #[must_use]
    #[inline]
    pub fn into_datagram(self) -> Option<Box<Datagram>> {
        match self.0 {
            State::Whole { datagram, .. } => Some(datagram),
            State::Damaged { .. } => self.parse_damaged(),
        }
    }

    /// Appends its bytes, bit errors included.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (datagram, inverted) = self.datagram();
        wire::write(datagram, out);
        let bytes = &mut out[start..];
        inverted.iter().for_each(|bit| bytes[(bit / 8) as usize] ^= 0x80 >> (bit % 8));
    }

    #[cold]
    fn parse_damaged(&self) -> Option<Box<Datagram>> {
        let mut bytes = Vec::with_capacity(self.bytes() as usize);
        self.write(&mut bytes);
        wire::parse(&bytes, self.datagram().0.ethernet.is_some()).map(Box::new)
    }
}

impl Packet for DatagramPacket {
    #[inline]
    fn bytes(&self) -> u64 {
        match self.0 {
            State::Whole { length, .. } | State::Damaged { length, .. } => u64::from(length),
        }
    }

    /// As it was sent: a framing is made before any bit errors.
    fn for_each_byte(&self, visit: impl FnMut(u8)) {
        let (datagram, _) = self.datagram();
        let mut bytes = Vec::with_capacity(datagram.bytes() as usize);
        wire::write(datagram, &mut bytes);
        bytes.into_iter().for_each(visit);
    }

    fn invert_bit(&mut self, bit: u64) {
        debug_assert!(bit < self.bytes() * 8, "bit {bit} is outside the packet");
        match &mut self.0 {
            State::Damaged { damaged, .. } => damaged.inverted.push(bit),
            State::Whole { length, datagram } => {
                let damaged = Box::new(Damaged { datagram: (**datagram).clone(), inverted: vec![bit] });
                self.0 = State::Damaged { length: *length, damaged };
            }
        }
    }

    fn headers(&self, _ethernet: bool) -> Option<Headers> {
        Headers::of(self.datagram().0)
    }

    fn mark_congestion(&mut self, _ethernet: bool) -> bool {
        let datagram = match &mut self.0 {
            State::Whole { datagram, .. } => &mut **datagram,
            State::Damaged { damaged, .. } => &mut damaged.datagram,
        };
        let is_capable = datagram.traffic_class & ECN != 0 && !matches!(datagram.body, Body::Arp { .. });
        if is_capable {
            datagram.traffic_class |= ECN;
        }
        is_capable
    }

    #[inline]
    fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        if let State::Whole { datagram, .. } = &self.0 {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let start = std::ptr::from_ref::<Datagram>(datagram).cast::<i8>();
            // It begins anywhere in a cache line, so it may end in a third one.
            // SAFETY: a hint, which reads nothing; all addresses are inside the datagram.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(start);
                _mm_prefetch::<_MM_HINT_T0>(start.add(64));
                _mm_prefetch::<_MM_HINT_T0>(start.add(size_of::<Datagram>() - 1));
            }
        }
    }
}

/// A packet without headers, of random bytes, known by its number: for tests and examples of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dummy {
    /// Its number.
    pub id: u64,
    /// Bytes.
    pub length: u32,
    /// Bits that were inverted, in the order in which they were.
    pub inverted: Vec<u64>,
}

impl Dummy {
    /// A packet of `length` bytes.
    #[must_use]
    pub fn new(id: u64, length: u32) -> Self {
        Dummy { id, length, inverted: Vec::new() }
    }
}

impl Packet for Dummy {
    fn bytes(&self) -> u64 {
        u64::from(self.length)
    }

    fn for_each_byte(&self, visit: impl FnMut(u8)) {
        (0..self.bytes()).map(|at| pattern_byte(0, at)).for_each(visit);
    }

    fn invert_bit(&mut self, bit: u64) {
        self.inverted.push(bit);
    }

    fn headers(&self, _ethernet: bool) -> Option<Headers> {
        None
    }

    fn mark_congestion(&mut self, _ethernet: bool) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_datagram_is_not_received() {
        let body = Body::Udp { source_port: 1, destination_port: 2, data: vec![0; 100].into() };
        let datagram = Datagram::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), body);
        let mut packet = DatagramPacket::new(datagram.clone());
        assert_eq!(packet.clone().into_datagram().as_deref(), Some(&datagram));
        packet.invert_bit(1023);
        assert_eq!(packet.clone().into_datagram(), None);
        let mut bytes = Vec::new();
        packet.write(&mut bytes);
        assert_eq!((bytes.len(), bytes[127]), (128, 1));
        packet.invert_bit(1023);
        assert_eq!(packet.into_datagram().as_deref(), Some(&datagram), "inverted twice");
    }

    #[test]
    fn packets_are_short_wherever_they_wait() {
        assert_eq!(size_of::<DatagramPacket>(), 16);
        assert_eq!(size_of::<crate::buffer::Buffer>(), 16);
    }
}
