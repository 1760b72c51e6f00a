//! Headers of packets as bytes: Ethernet with VLAN tags, IPv4, IPv6, TCP with its options, UDP; what they say, and the few
//! changes that are made to packets on their way.
//!
//! Nothing here panics, whatever the bytes: what does not fit is not read. IPv6 extension headers are not followed.

use crate::datagram::{
    Body, Datagram, ETHERNET_HEADER, IP_HEADER, SHORT_HEADER, SackBlocks, Segment, TCP_HEADER, flag,
};
use crate::flow::FlowKey;
use std::net::{IpAddr, SocketAddr};

/// Protocol numbers of the IP header (IANA "Protocol Numbers").
pub mod protocol {
    /// RFC 792.
    pub const ICMP: u8 = 1;
    /// RFC 9293.
    pub const TCP: u8 = 6;
    /// RFC 768.
    pub const UDP: u8 = 17;
    /// RFC 2205.
    pub const RSVP: u8 = 46;
    /// RFC 4443.
    pub const ICMPV6: u8 = 58;
}

/// Numbers of the Ethernet header's type field (IANA "IEEE 802 Numbers").
pub mod ether_type {
    /// RFC 894.
    pub const IPV4: u16 = 0x0800;
    /// RFC 826.
    pub const ARP: u16 = 0x0806;
    /// RFC 2464.
    pub const IPV6: u16 = 0x86dd;
    /// IEEE 802.1Q.
    pub const VLAN: u16 = 0x8100;
    /// IEEE 802.1ad.
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// The two ECN bits of the traffic class (RFC 3168 §5); both set: congestion experienced.
pub const ECN: u8 = 3;
/// Bytes of an IPv6 header (RFC 8200 §3).
pub const IPV6_HEADER: usize = 40;

const IPV4_HEADER: usize = IP_HEADER as usize;
const ETHERNET: usize = ETHERNET_HEADER as usize;
const VLAN_TAG: usize = 4;
/// The word of flags and fragment offset (RFC 791 §3.1).
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Kinds of TCP options (IANA "TCP Option Kind Numbers").
pub(crate) mod option {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const MSS: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
    pub const TIMESTAMPS: u8 = 8;
}

/// The headers that tell flows and classes apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// Addresses, protocol and ports.
    pub flow: FlowKey,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Of a whole TCP segment.
    pub tcp: Option<TcpSummary>,
}

/// A TCP segment as a queue sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSummary {
    /// Of the first data byte.
    pub sequence: u32,
    /// The next byte expected, with ACK.
    pub acknowledgement: u32,
    /// See [`flag`].
    pub flags: u8,
    /// Bytes of data.
    pub data_bytes: u32,
    /// It carries SACK blocks.
    pub has_sack: bool,
}

impl Headers {
    /// Reads a packet; `ethernet`: it starts with an Ethernet header. `None`: not IP.
    #[must_use]
    pub fn read(bytes: &[u8], ethernet: bool) -> Option<Headers> {
        let packet = bytes.get(ip_offset(bytes, ethernet)?..)?;
        let ip = Ip::read(packet)?;
        let ports = if matches!(ip.protocol, protocol::TCP | protocol::UDP) && !ip.is_fragment() {
            ip.ports(packet)
        } else {
            None
        };
        let tcp = tcp(packet, false).map(|view| TcpSummary {
            sequence: view.sequence,
            acknowledgement: view.acknowledgement,
            flags: view.flags,
            data_bytes: view.data_bytes as u32,
            has_sack: options(view.options(packet)).any(|option| option.kind == option::SACK),
        });
        let (source_port, destination_port) = ports.unwrap_or_default();
        let Ip { source, destination, protocol, traffic_class, .. } = ip;
        Some(Headers {
            flow: FlowKey { source, destination, protocol, source_port, destination_port },
            traffic_class,
            tcp,
        })
    }

    /// Those of a datagram, without making its bytes. `None`: not IP.
    #[must_use]
    pub fn of(datagram: &Datagram) -> Option<Headers> {
        let (protocol, source_port, destination_port) = match &datagram.body {
            Body::Tcp(Segment { source_port, destination_port, .. }) => {
                (protocol::TCP, *source_port, *destination_port)
            }
            Body::Udp { source_port, destination_port, .. } => (protocol::UDP, *source_port, *destination_port),
            Body::Echo { .. } | Body::Unreachable { .. } => (protocol::ICMP, 0, 0),
            Body::Fragment { whole, .. } => (Headers::of(whole)?.flow.protocol, 0, 0),
            Body::Arp { .. } => return None,
        };
        let tcp = match &datagram.body {
            Body::Tcp(segment) => Some(TcpSummary {
                sequence: segment.sequence,
                acknowledgement: segment.acknowledgement,
                flags: segment.flags,
                data_bytes: segment.payload.length() as u32,
                has_sack: !segment.sack_blocks().is_empty(),
            }),
            _ => None,
        };
        let (source, destination) = (datagram.source.into(), datagram.destination.into());
        let flow = FlowKey { source, destination, protocol, source_port, destination_port };
        Some(Headers { flow, traffic_class: datagram.traffic_class, tcp })
    }

    /// The differentiated services code point, 0 to 63 (RFC 2474).
    #[must_use]
    pub fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// The sender understands congestion marks (RFC 3168 §5).
    #[must_use]
    pub fn is_ecn_capable(&self) -> bool {
        self.traffic_class & ECN != 0
    }

    /// A TCP segment that does nothing but acknowledge.
    #[must_use]
    pub fn is_pure_ack(&self) -> bool {
        const OTHERS: u8 = flag::SYN | flag::FIN | flag::RST | flag::URG;
        self.tcp.is_some_and(|tcp| tcp.data_bytes == 0 && tcp.flags & (flag::ACK | OTHERS) == flag::ACK)
    }
}

/// What an IP header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ip {
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// See [`protocol`]; of IPv6, the next header.
    pub protocol: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hops left.
    pub hops: u8,
    /// Length of this header.
    pub header_bytes: usize,
    /// Length of the packet by this header. 0: an IPv4 packet above 64 KiB, which only an offload makes.
    pub total_bytes: usize,
    /// Flags and fragment offset; 0 in IPv6.
    fragment: u16,
}

impl Ip {
    /// Reads the header at the start of a packet, of which no more than the header need be there.
    #[must_use]
    #[inline]
    pub fn read(packet: &[u8]) -> Option<Ip> {
        match packet.first()? >> 4 {
            4 => {
                let header_bytes = usize::from(packet[0] & 0x0f) * 4;
                let header = packet.get(..header_bytes.max(IPV4_HEADER))?;
                let total_bytes = usize::from(u16_at(header, 2)?);
                if header_bytes < IPV4_HEADER || (total_bytes != 0 && total_bytes < header_bytes) {
                    return None;
                }
                Some(Ip {
                    source: array_at::<4>(header, 12)?.into(),
                    destination: array_at::<4>(header, 16)?.into(),
                    protocol: header[9],
                    traffic_class: header[1],
                    hops: header[8],
                    header_bytes,
                    total_bytes,
                    fragment: u16_at(header, 6)? & (MORE_FRAGMENTS | FRAGMENT_OFFSET),
                })
            }
            6 => {
                let header = packet.get(..IPV6_HEADER)?;
                Some(Ip {
                    source: array_at::<16>(header, 8)?.into(),
                    destination: array_at::<16>(header, 24)?.into(),
                    protocol: header[6],
                    traffic_class: header[0] << 4 | header[1] >> 4,
                    hops: header[7],
                    header_bytes: IPV6_HEADER,
                    total_bytes: IPV6_HEADER + usize::from(u16_at(header, 4)?),
                    fragment: 0,
                })
            }
            _ => None,
        }
    }

    /// A piece of a packet.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.fragment != 0
    }

    /// A piece of a packet other than the first, without ports.
    #[must_use]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment & FRAGMENT_OFFSET != 0
    }

    /// What follows the header in `packet`. `None`: it is cut short.
    #[must_use]
    #[inline]
    pub fn body<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        packet.get(self.header_bytes..self.end(packet))
    }

    /// The end of the packet, which may be beyond the bytes that are there.
    fn end(&self, packet: &[u8]) -> usize {
        if self.total_bytes == 0 { packet.len() } else { self.total_bytes }
    }

    /// The first two words after the header, where TCP and UDP have their ports; more of the packet need not be there.
    #[must_use]
    pub fn ports(&self, packet: &[u8]) -> Option<(u16, u16)> {
        Some((u16_at(packet, self.header_bytes)?, u16_at(packet, self.header_bytes + 2)?))
    }
}

/// Where the IP header starts. `ethernet`: `bytes` are a frame, in which up to two VLAN tags may come first; else it is the
/// start. `None`: no IP.
#[must_use]
#[inline]
pub fn ip_offset(bytes: &[u8], ethernet: bool) -> Option<usize> {
    if !ethernet {
        return Some(0);
    }
    let mut at = ETHERNET;
    let mut kind = u16_at(bytes, at - 2)?;
    for _ in 0..2 {
        if matches!(kind, ether_type::VLAN | ether_type::SERVICE_VLAN) {
            at += VLAN_TAG;
            kind = u16_at(bytes, at - 2)?;
        }
    }
    let version = bytes.get(at)? >> 4;
    matches!((kind, version), (ether_type::IPV4, 4) | (ether_type::IPV6, 6)).then_some(at)
}

/// Where a TCP segment lies in a run of bytes, and what its header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpView {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// Offset of the IP header.
    pub ip_offset: usize,
    /// Offset of the TCP header.
    pub offset: usize,
    /// Length of the TCP header.
    pub header_bytes: usize,
    /// Length of the data.
    pub data_bytes: usize,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// See [`flag`].
    pub flags: u8,
    /// Window field, not scaled.
    pub window: u16,
}

impl TcpView {
    /// The bytes of its options.
    fn options<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.offset + TCP_HEADER as usize..self.data_offset()).unwrap_or_default()
    }

    /// Offset of the data.
    #[must_use]
    pub fn data_offset(&self) -> usize {
        self.offset + self.header_bytes
    }
}

/// The TCP segment in a whole IP packet or, with `ethernet`, in a frame. `None`: there is none, or it is a fragment.
#[must_use]
pub fn tcp(bytes: &[u8], ethernet: bool) -> Option<TcpView> {
    let ip_offset = ip_offset(bytes, ethernet)?;
    let packet = bytes.get(ip_offset..)?;
    let ip = Ip::read(packet)?;
    let segment = ip.body(packet)?;
    if ip.protocol != protocol::TCP || ip.is_fragment() {
        return None;
    }
    let fixed: &[u8; TCP_HEADER as usize] = segment.first_chunk()?;
    let header_bytes = usize::from(fixed[12] >> 4) * 4;
    if header_bytes < fixed.len() || header_bytes > segment.len() {
        return None;
    }
    Some(TcpView {
        source: SocketAddr::new(ip.source, u16_at(fixed, 0)?),
        destination: SocketAddr::new(ip.destination, u16_at(fixed, 2)?),
        ip_offset,
        offset: ip_offset + ip.header_bytes,
        header_bytes,
        data_bytes: segment.len() - header_bytes,
        sequence: u32_at(fixed, 4)?,
        acknowledgement: u32_at(fixed, 8)?,
        flags: fixed[13],
        window: u16_at(fixed, 14)?,
    })
}

/// One option of a TCP header.
struct TcpOption<'a> {
    kind: u8,
    value: &'a [u8],
    /// Where the value starts among the options' bytes.
    at: usize,
}

/// The options in the bytes after the fixed header. One of unknown kind is among them; one that cannot be skipped ends them
/// (RFC 9293, MUST-6 and MUST-7).
fn options(bytes: &[u8]) -> impl Iterator<Item = TcpOption<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while *bytes.get(at)? == option::NOP {
            at += 1;
        }
        let (kind, length) = (bytes[at], usize::from(*bytes.get(at + 1)?));
        let value = bytes.get(at + 2..at + length).filter(|_| kind != option::END)?;
        let option = TcpOption { kind, value, at: at + 2 };
        at += length;
        Some(option)
    })
}

/// The options that a host heeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpOptions {
    /// Largest segment, of a SYN.
    pub mss: Option<u16>,
    /// Window scale shift, of a SYN. One above 14 counts as 14 (RFC 7323 §2.3).
    pub window_scale: Option<u8>,
    /// SACK permitted, of a SYN.
    pub sack_permitted: bool,
    /// Value and echo.
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks.
    pub sack: Option<SackBlocks>,
}

impl TcpOptions {
    /// The options of a segment that [`tcp`] found in `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8], view: &TcpView) -> TcpOptions {
        TcpOptions::read(view.options(bytes))
    }

    /// Reads the bytes after the fixed header. An option of a wrong length is skipped.
    #[must_use]
    pub fn read(bytes: &[u8]) -> TcpOptions {
        let mut found = TcpOptions::default();
        for TcpOption { kind, value, .. } in options(bytes) {
            match (kind, value) {
                (option::MSS, [high, low]) => found.mss = Some(u16::from_be_bytes([*high, *low])),
                (option::WINDOW_SCALE, [shift]) => found.window_scale = Some((*shift).min(14)),
                (option::SACK_PERMITTED, []) => found.sack_permitted = true,
                (option::TIMESTAMPS, [_, _, _, _, _, _, _, _]) => found.timestamps = pair_at(value, 0),
                (option::SACK, [_, ..]) if value.len().is_multiple_of(8) => {
                    let mut blocks = SackBlocks::default();
                    (0..value.len())
                        .step_by(8)
                        .filter_map(|at| pair_at(value, at))
                        .for_each(|(a, b)| blocks.push(a, b));
                    found.sack = Some(blocks);
                }
                _ => {}
            }
        }
        found
    }
}

/// Writes another window into a segment and corrects the checksum.
pub fn set_window(bytes: &mut [u8], view: &TcpView, window: u16) {
    set_word(bytes, view, 14, window);
}

/// Writes another window scale shift into a SYN that offers one, and corrects the checksum.
pub fn set_window_scale(bytes: &mut [u8], view: &TcpView, shift: u8) {
    let is_scale = |option: &TcpOption<'_>| option.kind == option::WINDOW_SCALE && option.value.len() == 1;
    let found = options(view.options(bytes)).find(is_scale).map(|option| TCP_HEADER as usize + option.at);
    let Some(at) = found else { return };
    let even = at & !1;
    let Some(mut word) = array_at::<2>(bytes, view.offset + even) else { return };
    word[at & 1] = shift;
    set_word(bytes, view, even, u16::from_be_bytes(word));
}

/// Replaces the 16 bits at an even offset of the TCP header and corrects the checksum (RFC 1624, equation 3).
fn set_word(bytes: &mut [u8], view: &TcpView, offset: usize, word: u16) {
    let Some(header) = bytes.get_mut(view.offset..view.offset + view.header_bytes) else { return };
    let (Some(old), Some(before)) = (u16_at(header, offset), u16_at(header, 16)) else { return };
    put_u16(header, offset, word);
    put_u16(header, 16, checksum(u64::from(!before) + u64::from(!old) + u64::from(word)));
}

/// Sets "congestion experienced" in a packet whose sender understands it (RFC 3168 §5), with its header's checksum; whether
/// the sender does. `ethernet`: the bytes are a frame.
pub fn mark_congestion(bytes: &mut [u8], ethernet: bool) -> bool {
    let Some(at) = ip_offset(bytes, ethernet) else { return false };
    let packet = &mut bytes[at..];
    let Some(ip) = Ip::read(packet) else { return false };
    if ip.traffic_class & ECN == 0 {
        return false;
    }
    if ip.source.is_ipv4() {
        packet[1] |= ECN;
        set_ip_checksum(packet);
    } else {
        packet[1] |= ECN << 4;
    }
    true
}

/// Computes the header checksum of an IPv4 packet (RFC 791 §3.1).
pub fn set_ip_checksum(packet: &mut [u8]) {
    let Some(header) =
        packet.first().map(|first| usize::from(first & 0x0f) * 4).and_then(|length| packet.get_mut(..length))
    else {
        return;
    };
    if header.len() >= IPV4_HEADER {
        put_u16(header, 10, 0);
        let checksum = checksum(sum(header));
        put_u16(header, 10, checksum);
    }
}

/// Computes the TCP or UDP checksum, which a sender may have left to an offload. `ethernet`: the bytes are a frame.
pub fn complete_checksum(bytes: &mut [u8], ethernet: bool) {
    let Some(packet) = ip_offset(bytes, ethernet).and_then(|at| bytes.get_mut(at..)) else { return };
    let Some(ip) = Ip::read(packet).filter(|ip| !ip.is_fragment()) else { return };
    let at = match ip.protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => return,
    };
    let end = ip.end(packet);
    let Some(body) = packet.get_mut(ip.header_bytes..end).filter(|body| body.len() >= at + 2) else { return };
    put_u16(body, at, 0);
    let checksum =
        match (checksum(pseudo_header(ip.source, ip.destination, ip.protocol, body.len()) + sum(body)), ip.protocol) {
            // 0 would mean that there is none (RFC 768).
            (0, protocol::UDP) => 0xffff,
            (checksum, _) => checksum,
        };
    put_u16(body, at, checksum);
}

/// Shortens a packet of one TCP segment (`bytes` start with its IP header) to its headers, checksums included.
pub fn strip_data(bytes: &mut Vec<u8>, view: &TcpView) {
    bytes.truncate(view.data_offset());
    set_length(bytes, view);
    complete_checksum(bytes, false);
}

/// Writes the length of a packet of one segment into its IP header.
fn set_length(packet: &mut [u8], view: &TcpView) {
    let length = packet.len();
    if view.source.is_ipv4() {
        put_u16(packet, 2, length as u16);
        set_ip_checksum(packet);
    } else {
        put_u16(packet, 4, (length - IPV6_HEADER) as u16);
    }
}

/// Cuts a TCP super-packet (an offload was on; a frame with Ethernet header) into packets of at most `mtu` bytes, each with
/// its own headers and checksums, and calls `each` with every one. Returns `false` for what cannot be cut.
pub fn split_super_packet(frame: &[u8], mtu: usize, scratch: &mut Vec<u8>, mut each: impl FnMut(&mut [u8])) -> bool {
    let Some(view) = tcp(frame, true) else { return false };
    let headers = view.data_offset();
    let Some(room) = (view.ip_offset + mtu).checked_sub(headers).filter(|room| *room > 0) else { return false };
    let data = &frame[headers..headers + view.data_bytes];
    let pieces = data.chunks(room).count();
    for (i, piece) in data.chunks(room).enumerate() {
        scratch.clear();
        scratch.extend_from_slice(&frame[..headers]);
        scratch.extend_from_slice(piece);
        let packet = &mut scratch[view.ip_offset..];
        if view.source.is_ipv4() {
            let identification = u16_at(packet, 4).unwrap_or(0).wrapping_add(i as u16);
            put_u16(packet, 4, identification);
        }
        set_length(packet, &view);
        let sequence = view.sequence.wrapping_add((i * room) as u32);
        scratch[view.offset + 4..view.offset + 8].copy_from_slice(&sequence.to_be_bytes());
        if i + 1 < pieces {
            scratch[view.offset + 13] &= !(flag::FIN | flag::PSH);
        }
        complete_checksum(scratch, true);
        each(scratch);
    }
    true
}

/// Of an ICMP error (an IP packet) that says that a host or a network cannot be reached: the ends of the TCP connection that it
/// is about, the sender first.
#[must_use]
pub fn unreachable_ends(packet: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let ip = Ip::read(packet)?;
    let message = packet.get(ip.header_bytes..)?;
    let matches = match (ip.protocol, message.first()?, message.get(1)?) {
        // Destination unreachable: network, host (RFC 792).
        (protocol::ICMP, 3, code) => ip.source.is_ipv4() && *code <= 1,
        // Destination unreachable: no route, beyond scope, address (RFC 4443 §3.1).
        (protocol::ICMPV6, 1, code) => ip.source.is_ipv6() && matches!(code, 0 | 2 | 3),
        _ => false,
    };
    let quoted = message.get(SHORT_HEADER as usize..)?;
    let about = Ip::read(quoted)?;
    let fits = matches && about.source.is_ipv4() == ip.source.is_ipv4() && about.protocol == protocol::TCP;
    let (source_port, destination_port) = about.ports(quoted)?;
    fits.then(|| (SocketAddr::new(about.source, source_port), SocketAddr::new(about.destination, destination_port)))
}

/// The sum of what a TCP or UDP checksum covers besides the segment itself (RFC 9293 §3.1, RFC 8200 §8.1).
pub(crate) fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u64 {
    let octets = |address| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    let length = length as u64;
    octets(source) + octets(destination) + u64::from(protocol) + (length >> 16) + (length & 0xffff)
}

/// The sum of the 16-bit words, the last one filled with a zero (RFC 1071).
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    last + words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>()
}

/// The complement of a sum; 0 where a correct checksum was summed too (RFC 1071).
#[must_use]
pub fn checksum(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_be_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_be_bytes)
}

fn pair_at(bytes: &[u8], at: usize) -> Option<(u32, u32)> {
    u32_at(bytes, at).zip(u32_at(bytes, at + 4))
}

/// Writes a word that lies inside `bytes`.
fn put_u16(bytes: &mut [u8], at: usize, word: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}
