//! The bytes that a [`Datagram`] stands for: IPv4, TCP, UDP, ICMP and ARP as on the wire, checksums included.

use crate::datagram::{
    Body, Datagram, ETHERNET_HEADER, Ethernet, IP_HEADER, Payload, SHORT_HEADER, Segment, SynOptions, TCP_HEADER, flag,
};
use crate::headers::{
    Ip, TcpOptions, array_at, checksum, ether_type, option, protocol, pseudo_header, sum, u16_at, u32_at,
};
use std::net::{IpAddr, Ipv4Addr};

/// Appends the datagram's bytes to `out`: exactly [`Datagram::bytes`] of them.
///
/// A packet of more than 65,535 bytes has no form in IPv4 (RFC 791 §3.1). It is written with length 0, so no receiver
/// accepts it.
pub fn write(datagram: &Datagram, out: &mut Vec<u8>) {
    if let Some(ethernet) = &datagram.ethernet {
        let ether_type = if matches!(datagram.body, Body::Arp { .. }) { ether_type::ARP } else { ether_type::IPV4 };
        out.extend(ethernet.destination);
        out.extend(ethernet.source);
        out.extend(ether_type.to_be_bytes());
    }
    match &datagram.body {
        Body::Arp { .. } => write_body(datagram, out),
        Body::Fragment { whole, offset, length, more } => {
            debug_assert!(offset.is_multiple_of(8), "a fragment cannot start at {offset}");
            let flags = if *more { MORE_FRAGMENTS } else { 0 };
            write_ip_header(datagram, flags | (offset / 8), out);
            let mut body = Vec::with_capacity(whole.body.bytes() as usize);
            write_body(whole, &mut body);
            let (start, length) = (usize::from(*offset), usize::from(*length));
            debug_assert!(start + length <= body.len(), "the piece is not of the packet");
            body.resize(body.len().max(start + length), 0);
            out.extend_from_slice(&body[start..start + length]);
        }
        _ => {
            let flags = if datagram.identification == 0 { DO_NOT_FRAGMENT } else { 0 };
            write_ip_header(datagram, flags, out);
            write_body(datagram, out);
        }
    }
}

/// Reads a datagram from bytes; `ethernet`: they start with an Ethernet header. `None`: not one, or a checksum is wrong,
/// as a host that received it would find.
///
/// `None` also for a fragment, which holds only a part of what [`Body::Fragment`] names: a fragment that was damaged on
/// its way, and so went through bytes, is lost, and its packet with it. Bytes after the packet are padding. An ARP message
/// has no TTL, traffic class or identification; they are 0.
#[must_use]
pub fn parse(bytes: &[u8], ethernet: bool) -> Option<Datagram> {
    if !ethernet {
        return parse_ip(bytes, None);
    }
    let (header, rest) = bytes.split_at_checked(ETHERNET_HEADER as usize)?;
    let ethernet = Some(Ethernet { destination: array_at(header, 0)?, source: array_at(header, 6)? });
    match u16_at(header, 12)? {
        ether_type::IPV4 => parse_ip(rest, ethernet),
        ether_type::ARP => parse_arp(rest, ethernet),
        _ => None,
    }
}

/// The quotation of a packet in an ICMP error: its IP header and the eight bytes after it (RFC 792). Zeros where the packet
/// is shorter.
#[must_use]
pub fn quote(datagram: &Datagram) -> [u8; 28] {
    let mut bytes = Vec::with_capacity(datagram.bytes() as usize);
    write(datagram, &mut bytes);
    let packet = &bytes[if datagram.ethernet.is_some() { ETHERNET_HEADER as usize } else { 0 }..];
    let mut quote = [0; 28];
    let length = packet.len().min(quote.len());
    quote[..length].copy_from_slice(&packet[..length]);
    quote
}

/// Whose packet an ICMP error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted {
    /// Who sent the packet.
    pub source: Ipv4Addr,
    /// To whom.
    pub destination: Ipv4Addr,
    /// See [`protocol`].
    pub protocol: u8,
    /// The sender's port; of an ICMP echo, its identifier.
    pub source_port: u16,
    /// The receiver's port; of an ICMP echo, its sequence number.
    pub destination_port: u16,
    /// Sequence number of a TCP segment, 0 in other packets. Whoever gets the error can see whether the segment is one
    /// it still waits for (RFC 5927 §4.1).
    pub sequence: u32,
}

/// Reads what [`quote`] wrote. `None`: not TCP, UDP or ICMP echo, or a fragment other than the first, which has no ports.
#[must_use]
pub fn quoted_ports(about: &[u8; 28]) -> Option<Quoted> {
    let (header, start) = about.split_at(IP_HEADER as usize);
    let is_later_fragment = u16_at(header, 6)? & FRAGMENT_OFFSET != 0;
    if header[0] != VERSION_AND_LENGTH || is_later_fragment {
        return None;
    }
    let protocol = header[9];
    let (ports_at, sequence) = match protocol {
        protocol::TCP => (0, u32_at(start, 4)?),
        protocol::UDP => (0, 0),
        protocol::ICMP if matches!(start[0], ICMP_ECHO_REPLY | ICMP_ECHO_REQUEST) => (4, 0),
        _ => return None,
    };
    Some(Quoted {
        source: array_at::<4>(header, 12)?.into(),
        destination: array_at::<4>(header, 16)?.into(),
        protocol,
        source_port: u16_at(start, ports_at)?,
        destination_port: u16_at(start, ports_at + 2)?,
        sequence,
    })
}

fn write_ip_header(datagram: &Datagram, fragment: u16, out: &mut Vec<u8>) {
    let start = out.len();
    let body = match &datagram.body {
        Body::Fragment { length, .. } => u64::from(*length),
        body => body.bytes(),
    };
    let length = u16::try_from(IP_HEADER + body).unwrap_or(0);
    out.extend([VERSION_AND_LENGTH, datagram.traffic_class]);
    out.extend(length.to_be_bytes());
    out.extend(datagram.identification.to_be_bytes());
    out.extend(fragment.to_be_bytes());
    out.extend([datagram.ttl, protocol_of(&datagram.body), 0, 0]);
    out.extend(datagram.source.octets());
    out.extend(datagram.destination.octets());
    let checksum = checksum(sum(&out[start..]));
    out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
}

fn protocol_of(body: &Body) -> u8 {
    match body {
        Body::Tcp(_) => protocol::TCP,
        Body::Udp { .. } => protocol::UDP,
        Body::Echo { .. } | Body::Unreachable { .. } => protocol::ICMP,
        Body::Fragment { whole, .. } => protocol_of(&whole.body),
        // No IP packet carries ARP.
        Body::Arp { .. } => RESERVED_PROTOCOL,
    }
}

/// Everything after the IP header, of a whole packet.
fn write_body(datagram: &Datagram, out: &mut Vec<u8>) {
    let start = out.len();
    match &datagram.body {
        Body::Tcp(segment) => {
            write_segment(segment, out);
            let pseudo =
                pseudo_header(datagram.source.into(), datagram.destination.into(), protocol::TCP, out.len() - start);
            let checksum = checksum(pseudo + sum(&out[start..]));
            out[start + 16..start + 18].copy_from_slice(&checksum.to_be_bytes());
        }
        Body::Udp { source_port, destination_port, data } => {
            let length = u16::try_from(datagram.body.bytes()).unwrap_or(0);
            out.extend(source_port.to_be_bytes());
            out.extend(destination_port.to_be_bytes());
            out.extend(length.to_be_bytes());
            out.extend([0; 2]);
            out.extend_from_slice(data);
            let pseudo =
                pseudo_header(datagram.source.into(), datagram.destination.into(), protocol::UDP, out.len() - start);
            // 0 would mean that there is none (RFC 768).
            let checksum = match checksum(pseudo + sum(&out[start..])) {
                0 => 0xffff,
                checksum => checksum,
            };
            out[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
        }
        Body::Echo { reply, identifier, sequence, data } => {
            out.extend([if *reply { ICMP_ECHO_REPLY } else { ICMP_ECHO_REQUEST }, 0, 0, 0]);
            out.extend(identifier.to_be_bytes());
            out.extend(sequence.to_be_bytes());
            out.extend_from_slice(data);
            set_icmp_checksum(&mut out[start..]);
        }
        Body::Unreachable { code, mtu, about } => {
            out.extend([ICMP_UNREACHABLE, *code, 0, 0, 0, 0]);
            out.extend(mtu.to_be_bytes());
            out.extend_from_slice(about);
            set_icmp_checksum(&mut out[start..]);
        }
        Body::Fragment { whole, .. } => write_body(whole, out),
        Body::Arp { reply, sender, target } => {
            out.extend(ARP_START);
            out.extend((if *reply { ARP_REPLY } else { ARP_REQUEST }).to_be_bytes());
            out.extend(sender);
            out.extend(datagram.source.octets());
            out.extend(target);
            out.extend(datagram.destination.octets());
        }
    }
}

fn set_icmp_checksum(message: &mut [u8]) {
    let checksum = checksum(sum(message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}

/// With checksum 0. The options stand in the order of Linux (`tcp_options_write`).
fn write_segment(segment: &Segment, out: &mut Vec<u8>) {
    let words = (segment.header_bytes() / 4) as u8;
    out.extend(segment.source_port.to_be_bytes());
    out.extend(segment.destination_port.to_be_bytes());
    out.extend(segment.sequence.to_be_bytes());
    out.extend(segment.acknowledgement.to_be_bytes());
    out.extend([words << 4, segment.flags]);
    out.extend(segment.window.to_be_bytes());
    out.extend([0; 4]); // checksum, urgent pointer
    let syn = segment.syn.unwrap_or_default();
    if let Some(mss) = syn.mss {
        out.extend([option::MSS, 4]);
        out.extend(mss.to_be_bytes());
    }
    match (syn.sack_permitted, segment.timestamps.is_some()) {
        (true, true) => out.extend([option::SACK_PERMITTED, 2]),
        (true, false) => out.extend([option::NOP, option::NOP, option::SACK_PERMITTED, 2]),
        (false, true) => out.extend([option::NOP, option::NOP]),
        (false, false) => {}
    }
    if let Some((value, echo)) = segment.timestamps {
        out.extend([option::TIMESTAMPS, 10]);
        out.extend(value.to_be_bytes());
        out.extend(echo.to_be_bytes());
    }
    if let Some(shift) = syn.window_scale {
        out.extend([option::NOP, option::WINDOW_SCALE, 3, shift]);
    }
    let blocks = segment.sack_blocks();
    if !blocks.is_empty() {
        out.extend([option::NOP, option::NOP, option::SACK, 2 + 8 * blocks.len() as u8]);
        for (first, past) in blocks {
            out.extend(first.to_be_bytes());
            out.extend(past.to_be_bytes());
        }
    }
    let data_at = out.len();
    out.resize(data_at + segment.payload.length() as usize, 0);
    segment.payload.copy_to(&mut out[data_at..]);
}

fn parse_ip(bytes: &[u8], ethernet: Option<Ethernet>) -> Option<Datagram> {
    let ip = Ip::read(bytes)?;
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (ip.source, ip.destination) else { return None };
    let body = bytes.get(ip.header_bytes..ip.total_bytes)?;
    if checksum(sum(&bytes[..ip.header_bytes])) != 0 || ip.is_fragment() {
        return None;
    }
    let body = match ip.protocol {
        protocol::TCP => {
            let pseudo = pseudo_header(ip.source, ip.destination, protocol::TCP, body.len());
            if checksum(pseudo + sum(body)) != 0 {
                return None;
            }
            Body::Tcp(parse_segment(body)?)
        }
        protocol::UDP => parse_udp(body, source, destination)?,
        protocol::ICMP => parse_icmp(body)?,
        _ => return None,
    };
    let identification = u16_at(bytes, 4)?;
    Some(Datagram {
        ethernet,
        source,
        destination,
        ttl: ip.hops,
        traffic_class: ip.traffic_class,
        identification,
        body,
    })
}

fn parse_segment(bytes: &[u8]) -> Option<Segment> {
    let header_bytes = usize::from(bytes.get(12)? >> 4) * 4;
    let (header, data) = bytes.split_at_checked(header_bytes)?;
    let (fixed, options) = header.split_at_checked(TCP_HEADER as usize)?;
    let flags = fixed[13];
    let TcpOptions { mss, window_scale, sack_permitted, timestamps, sack } = TcpOptions::read(options);
    Some(Segment {
        source_port: u16_at(fixed, 0)?,
        destination_port: u16_at(fixed, 2)?,
        sequence: u32_at(fixed, 4)?,
        acknowledgement: u32_at(fixed, 8)?,
        flags,
        window: u16_at(fixed, 14)?,
        timestamps,
        // These count in a SYN only.
        syn: (flags & flag::SYN != 0).then_some(SynOptions { mss, window_scale, sack_permitted }),
        sack: sack.map(Box::new),
        payload: Payload::from_vec(data.to_vec()),
    })
}

/// The length must be that of the IP packet's rest. RFC 768 does not ask for that, but all senders make it so, and a
/// damaged length might otherwise pass: it is summed twice, and cuts off data that are then not summed.
fn parse_udp(bytes: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> Option<Body> {
    let (header, data) = bytes.split_at_checked(SHORT_HEADER as usize)?;
    let is_summed = u16_at(header, 6)? != 0;
    let pseudo = pseudo_header(source.into(), destination.into(), protocol::UDP, bytes.len());
    if usize::from(u16_at(header, 4)?) != bytes.len() || is_summed && checksum(pseudo + sum(bytes)) != 0 {
        return None;
    }
    Some(Body::Udp { source_port: u16_at(header, 0)?, destination_port: u16_at(header, 2)?, data: data.into() })
}

fn parse_icmp(bytes: &[u8]) -> Option<Body> {
    if checksum(sum(bytes)) != 0 {
        return None;
    }
    let (header, data) = bytes.split_at_checked(SHORT_HEADER as usize)?;
    match (header[0], header[1]) {
        (kind @ (ICMP_ECHO_REPLY | ICMP_ECHO_REQUEST), 0) => Some(Body::Echo {
            reply: kind == ICMP_ECHO_REPLY,
            identifier: u16_at(header, 4)?,
            sequence: u16_at(header, 6)?,
            data: data.into(),
        }),
        // Others may quote more than eight bytes (RFC 1812 §4.3.2.3).
        (ICMP_UNREACHABLE, code) => {
            Some(Body::Unreachable { code, mtu: u16_at(header, 6)?, about: array_at(data, 0)? })
        }
        _ => None,
    }
}

fn parse_arp(bytes: &[u8], ethernet: Option<Ethernet>) -> Option<Datagram> {
    if array_at(bytes, 0)? != ARP_START {
        return None;
    }
    let reply = match u16_at(bytes, 6)? {
        ARP_REQUEST => false,
        ARP_REPLY => true,
        _ => return None,
    };
    Some(Datagram {
        ethernet,
        source: array_at::<4>(bytes, 14)?.into(),
        destination: array_at::<4>(bytes, 24)?.into(),
        ttl: 0,
        traffic_class: 0,
        identification: 0,
        body: Body::Arp { reply, sender: array_at(bytes, 8)?, target: array_at(bytes, 18)? },
    })
}

/// IPv4, five words of header (RFC 791 §3.1).
const VERSION_AND_LENGTH: u8 = 0x45;
// The word of flags and fragment offset (RFC 791 §3.1).
const DO_NOT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;
const RESERVED_PROTOCOL: u8 = 255;

// RFC 792.
const ICMP_ECHO_REPLY: u8 = 0;
const ICMP_UNREACHABLE: u8 = 3;
const ICMP_ECHO_REQUEST: u8 = 8;

/// Hardware type Ethernet, protocol type IPv4, and the lengths of their addresses (RFC 826).
const ARP_START: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;

#[cfg(test)]
mod tests;
