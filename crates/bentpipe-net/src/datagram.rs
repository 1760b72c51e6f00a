//! Packets of simulated hosts: headers as fields, payload as bytes or as a function of an offset.
//!
//! A datagram stands for exactly the bytes that [`crate::wire`] makes of it, so its length on a link, its bit errors and
//! its capture are those of the real thing; the bytes are made only when something needs them.

use crate::content::{count_wrong, fill_pattern};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// An IPv4 packet, or an ARP message, on a link that may carry Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The Ethernet header, on a link that carries Ethernet.
    pub ethernet: Option<Ethernet>,
    /// Sender.
    pub source: Ipv4Addr,
    /// Receiver.
    pub destination: Ipv4Addr,
    /// Hops left.
    pub ttl: u8,
    /// Differentiated services code point and ECN bits (RFC 2474, RFC 3168).
    pub traffic_class: u8,
    /// For fragments (RFC 6864); 0 in packets that must not be fragmented.
    pub identification: u16,
    /// The payload.
    pub body: Body,
}

/// An Ethernet header's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// To whom.
    pub destination: [u8; 6],
    /// From whom.
    pub source: [u8; 6],
}

/// Every station (IEEE 802.3 §3.2.3).
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The payload of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram.
    Udp {
        /// Sender's port.
        source_port: u16,
        /// Receiver's port.
        destination_port: u16,
        /// Its data.
        data: Arc<[u8]>,
    },
    /// An ICMP echo request or reply (RFC 792).
    Echo {
        /// A reply.
        reply: bool,
        /// Which socket asked.
        identifier: u16,
        /// Which request.
        sequence: u16,
        /// The data after the eight-byte ICMP header.
        data: Arc<[u8]>,
    },
    /// An ICMP "destination unreachable" (RFC 792, RFC 1191).
    Unreachable {
        /// Why: 0 network, 1 host, 3 port, 4 too large.
        code: u8,
        /// Code 4: the largest packet that passes.
        mtu: u16,
        /// The packet that could not pass, as its sender made it: IP header and eight bytes.
        about: [u8; 28],
    },
    /// One piece of a packet that was too large (RFC 791 §3.2).
    Fragment {
        /// The whole packet, without Ethernet header.
        whole: Arc<Datagram>,
        /// Where the piece starts, in bytes after the IP header; a multiple of 8.
        offset: u16,
        /// Its length.
        length: u16,
        /// Pieces follow.
        more: bool,
    },
    /// ARP (RFC 826): who has `destination`, or that `source` is at `ethernet.source`.
    Arp {
        /// An answer.
        reply: bool,
        /// The sender's hardware address.
        sender: [u8; 6],
        /// The target's; zeros in a question.
        target: [u8; 6],
    },
}

/// A TCP segment (RFC 9293 §3.1).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Segment {
    /// Sender's port.
    pub source_port: u16,
    /// Receiver's port.
    pub destination_port: u16,
    /// Of the first data byte (or the SYN).
    pub sequence: u32,
    /// The next byte expected, with ACK.
    pub acknowledgement: u32,
    /// See [`flag`].
    pub flags: u8,
    /// As in the header, not scaled.
    pub window: u16,
    /// Value and echo (RFC 7323 §3).
    pub timestamps: Option<(u32, u32)>,
    /// Options of a SYN.
    pub syn: Option<SynOptions>,
    /// Blocks received out of order, first to last byte + 1, newest first (RFC 2018 §3). The header has room for 4, or 3
    /// besides timestamps; what is more is left out.
    pub sack: Option<Box<SackBlocks>>,
    /// Data.
    pub payload: Payload,
}

/// Options that only a SYN carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SynOptions {
    /// Largest segment that the sender of the SYN accepts (RFC 9293 §3.7.1).
    pub mss: Option<u16>,
    /// Window scale shift (RFC 7323 §2).
    pub window_scale: Option<u8>,
    /// SACK permitted (RFC 2018 §2).
    pub sack_permitted: bool,
}

/// SACK blocks of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SackBlocks {
    blocks: [(u32, u32); 4],
    count: u8,
}

/// Flags of a TCP header.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement field counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// Congestion was experienced (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// Data of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Payload {
    /// None.
    #[default]
    Empty,
    /// `length` bytes of `pattern` from `offset` (see [`crate::content::pattern_byte`]).
    Pattern {
        /// Which pattern.
        pattern: u64,
        /// Offset of the first byte in it.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Real bytes: `range` of `bytes`.
    Bytes {
        /// Shared with whoever keeps them for retransmission.
        bytes: Arc<[u8]>,
        /// First byte.
        start: u32,
        /// Last byte + 1.
        end: u32,
    },
}

/// Bytes of an IPv4 header without options.
pub const IP_HEADER: u64 = 20;
/// Bytes of a TCP header without options.
pub const TCP_HEADER: u64 = 20;
/// Bytes that the options of a TCP header can take: its length is counted in four bits of words (RFC 9293 §3.1).
const TCP_OPTIONS_MAX: u64 = 40;
/// Bytes of an Ethernet header.
pub const ETHERNET_HEADER: u64 = 14;
/// Bytes of a UDP or ICMP echo header.
pub const SHORT_HEADER: u64 = 8;
/// Bytes of an ARP message for IPv4 over Ethernet.
const ARP_MESSAGE: u64 = 28;

/// Hops that a host's packets may make (RFC 1700; Linux's default too).
const TTL: u8 = 64;

impl Datagram {
    /// A packet as a host makes it: whole, not to be fragmented on the way, of no special class, without Ethernet header.
    #[must_use]
    #[inline]
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr, body: Body) -> Datagram {
        Datagram { ethernet: None, source, destination, ttl: TTL, traffic_class: 0, identification: 0, body }
    }

    /// Length in bytes, Ethernet header included where there is one.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        let ethernet = if self.ethernet.is_some() { ETHERNET_HEADER } else { 0 };
        // Most are segments: that is found out at the call.
        ethernet
            + match &self.body {
                Body::Tcp(segment) => IP_HEADER + segment.bytes(),
                body => body.bytes_with_header(),
            }
    }
}

impl Body {
    fn bytes_with_header(&self) -> u64 {
        match self {
            Body::Arp { .. } => ARP_MESSAGE,
            Body::Fragment { length, .. } => IP_HEADER + u64::from(*length),
            body => IP_HEADER + body.bytes(),
        }
    }

    /// Bytes after the IP header, of a whole packet.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Body::Tcp(segment) => segment.bytes(),
            Body::Udp { data, .. } | Body::Echo { data, .. } => SHORT_HEADER + data.len() as u64,
            Body::Unreachable { about, .. } => SHORT_HEADER + about.len() as u64,
            Body::Fragment { whole, .. } => whole.body.bytes(),
            Body::Arp { .. } => ARP_MESSAGE,
        }
    }
}

impl Segment {
    /// Length of header and data.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.header_bytes() + self.payload.length()
    }

    /// Length of the header with its options, padded to words as common stacks do: timestamps take 12 bytes, SACK 4 and 8
    /// a block, a SYN's MSS 4, its window scale 4 and SACK permission 4 (2 shared with the timestamps' padding).
    #[must_use]
    #[inline]
    pub fn header_bytes(&self) -> u64 {
        if self.syn.is_none() && self.sack.is_none() {
            return TCP_HEADER + if self.timestamps.is_some() { 12 } else { 0 };
        }
        self.long_header_bytes()
    }

    fn long_header_bytes(&self) -> u64 {
        let sack = match self.sack_blocks() {
            [] => 0,
            blocks => 4 + 8 * blocks.len() as u64,
        };
        TCP_HEADER + self.options_before_sack() + sack
    }

    /// The SACK blocks that go on the wire: as many as the header has room for besides the other options.
    #[must_use]
    #[inline]
    pub fn sack_blocks(&self) -> &[(u32, u32)] {
        let blocks = self.sack.as_deref().map_or(&[][..], SackBlocks::as_slice);
        let room = (TCP_OPTIONS_MAX - self.options_before_sack() - 4) / 8;
        &blocks[..blocks.len().min(room as usize)]
    }

    /// At most 20.
    #[inline]
    fn options_before_sack(&self) -> u64 {
        let mut options = if self.timestamps.is_some() { 12 } else { 0 };
        if let Some(syn) = &self.syn {
            options += if syn.mss.is_some() { 4 } else { 0 };
            options += if syn.window_scale.is_some() { 4 } else { 0 };
            options += if syn.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
        }
        options
    }

    /// True if all flags of `mask` are set.
    #[must_use]
    #[inline]
    pub fn has(&self, mask: u8) -> bool {
        self.flags & mask == mask
    }

    /// Sequence numbers it takes: data, SYN and FIN.
    #[must_use]
    #[inline]
    pub fn sequence_length(&self) -> u64 {
        self.payload.length() + u64::from(self.has(flag::SYN)) + u64::from(self.has(flag::FIN))
    }
}

impl SackBlocks {
    /// Adds a block unless four are there.
    pub fn push(&mut self, first: u32, past: u32) {
        if let Some(block) = self.blocks.get_mut(usize::from(self.count)) {
            *block = (first, past);
            self.count += 1;
        }
    }

    /// The blocks.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.count)]
    }
}

impl Payload {
    /// Bytes of its own.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Payload {
        if bytes.is_empty() {
            return Payload::Empty;
        }
        let end = bytes.len() as u32;
        Payload::Bytes { bytes: bytes.into(), start: 0, end }
    }

    /// Its length.
    #[must_use]
    #[inline]
    pub fn length(&self) -> u64 {
        match self {
            Payload::Empty => 0,
            Payload::Pattern { length, .. } => u64::from(*length),
            Payload::Bytes { start, end, .. } => u64::from(end - start),
        }
    }

    /// The part from byte `from` (which must not be beyond its end), of at most `most` bytes.
    #[must_use]
    #[inline]
    pub fn part(&self, from: u64, most: u64) -> Payload {
        let length = (self.length() - from).min(most) as u32;
        if length == 0 {
            return Payload::Empty;
        }
        match self {
            Payload::Empty => Payload::Empty,
            Payload::Pattern { pattern, offset, .. } => {
                Payload::Pattern { pattern: *pattern, offset: offset + from, length }
            }
            Payload::Bytes { bytes, start, .. } => {
                let start = start + from as u32;
                Payload::Bytes { bytes: Arc::clone(bytes), start, end: start + length }
            }
        }
    }

    /// True if `next` follows on without a seam, so that the two can be kept as one.
    #[inline]
    pub fn join(&mut self, next: &Payload) -> bool {
        match (self, next) {
            (
                Payload::Pattern { pattern, offset, length },
                Payload::Pattern { pattern: other, offset: from, length: more },
            ) if pattern == other && *offset + u64::from(*length) == *from => match length.checked_add(*more) {
                Some(sum) => {
                    *length = sum;
                    true
                }
                None => false,
            },
            (Payload::Bytes { bytes, end, .. }, Payload::Bytes { bytes: others, start, end: until })
                if Arc::ptr_eq(bytes, others) && end == start =>
            {
                *end = *until;
                true
            }
            (_, Payload::Empty) => true,
            _ => false,
        }
    }

    /// Writes its first bytes to `into`, as many as fit.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.length() as usize);
        match self {
            Payload::Empty => {}
            Payload::Pattern { pattern, offset, .. } => fill_pattern(*pattern, *offset, &mut into[..count]),
            Payload::Bytes { bytes, start, .. } => {
                let start = *start as usize;
                into[..count].copy_from_slice(&bytes[start..start + count]);
            }
        }
        count
    }

    /// The number of its first `count` bytes that differ from `pattern` at `offset`.
    #[must_use]
    pub fn count_wrong(&self, count: u64, pattern: u64, offset: u64) -> u64 {
        match self {
            Payload::Empty => 0,
            Payload::Pattern { pattern: own, offset: at, .. } if *own == pattern && *at == offset => 0,
            Payload::Pattern { .. } => {
                let mut bytes = vec![0; count as usize];
                self.copy_to(&mut bytes);
                count_wrong(pattern, offset, &bytes)
            }
            Payload::Bytes { bytes, start, .. } => {
                let start = *start as usize;
                count_wrong(pattern, offset, &bytes[start..start + count as usize])
            }
        }
    }
}
