//! An intercepted SYN, and the packets that answer it in place of a server or a router.

use bentpipe_net::datagram::flag;
use bentpipe_net::headers::{self, ECN, IPV6_HEADER, checksum, complete_checksum, protocol, set_ip_checksum, sum};
use std::net::{IpAddr, SocketAddr};

/// A connection request as its client sent it, data left out: a client sends again what was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syn {
    /// Who asks.
    pub client: SocketAddr,
    /// Who is asked.
    pub server: SocketAddr,
    /// Traffic class octet of the IP header.
    pub traffic_class: u8,
    /// The sequence number that a refusal acknowledges: after the SYN and the data that came with it.
    next: u32,
    /// The IP packet, checksums right.
    packet: Vec<u8>,
}

const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
/// Of packets that are made here: RFC 1700's recommendation.
const TTL: u8 = 64;

impl Syn {
    /// Reads an IP packet. `None`: it is no TCP connection request.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Syn> {
        let view = headers::tcp(packet, false)?;
        const KINDS: u8 = flag::SYN | flag::ACK | flag::RST | flag::FIN;
        if view.flags & KINDS != flag::SYN {
            return None;
        }
        let traffic_class = headers::Ip::read(packet)?.traffic_class;
        let mut packet = packet.to_vec();
        headers::strip_data(&mut packet, &view);
        Some(Syn {
            client: view.source,
            server: view.destination,
            traffic_class,
            next: view.sequence.wrapping_add(1).wrapping_add(view.data_bytes as u32),
            packet,
        })
    }

    /// The packet.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// The packet one hop further (RFC 1812 §5.3.1, RFC 8200 §3). `None`: it has come to its last.
    #[must_use]
    pub fn forwarded(&self) -> Option<Vec<u8>> {
        let mut packet = self.packet().to_vec();
        let hops = match self.client {
            SocketAddr::V4(_) => &mut packet[8],
            SocketAddr::V6(_) => &mut packet[7],
        };
        *hops = hops.checked_sub(1).filter(|left| *left > 0)?;
        if self.client.is_ipv4() {
            set_ip_checksum(&mut packet);
        }
        Some(packet)
    }

    /// The answer of a closed port (RFC 9293 §3.5.2), as an IP packet.
    #[must_use]
    pub fn refusal(&self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(IPV6_HEADER + TCP_HEADER);
        let class = self.traffic_class & !ECN;
        match (self.server.ip(), self.client.ip()) {
            (IpAddr::V4(server), IpAddr::V4(client)) => {
                let length = (IPV4_HEADER + TCP_HEADER) as u8;
                // Do not fragment; no identification, which an unfragmented packet needs not (RFC 6864).
                packet.extend([0x45, class, 0, length, 0, 0, 0x40, 0, TTL, protocol::TCP, 0, 0]);
                packet.extend(server.octets());
                packet.extend(client.octets());
                set_ip_checksum(&mut packet);
            }
            (IpAddr::V6(server), IpAddr::V6(client)) => {
                packet.extend([0x60 | class >> 4, class << 4, 0, 0, 0, TCP_HEADER as u8, protocol::TCP, TTL]);
                packet.extend(server.octets());
                packet.extend(client.octets());
            }
            _ => unreachable!("both addresses come from one packet"),
        }
        packet.extend(self.server.port().to_be_bytes());
        packet.extend(self.client.port().to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(self.next.to_be_bytes());
        packet.extend([((TCP_HEADER / 4) << 4) as u8, flag::RST | flag::ACK, 0, 0, 0, 0, 0, 0]);
        complete_checksum(&mut packet, false);
        packet
    }

    /// The ICMP message of a router without a way to the server: "host unreachable" (RFC 792), or "address unreachable"
    /// (RFC 4443 §3.1), whose checksum the kernel fills in.
    #[must_use]
    pub fn unreachable(&self) -> Vec<u8> {
        let is_ipv4 = self.client.is_ipv4();
        let mut message = if is_ipv4 { vec![3, 1] } else { vec![1, 3] };
        message.extend([0; 6]);
        message.extend_from_slice(self.packet());
        if is_ipv4 {
            let checksum = checksum(sum(&message));
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::headers::unreachable_ends;
    use proptest::prelude::*;

    /// A SYN with an MSS option and three bytes of data.
    fn syn(ipv6: bool) -> Vec<u8> {
        let mut packet = if ipv6 {
            let mut header = vec![0x6b, 0x80, 0, 0, 0, 27, 6, 9];
            header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            header
        } else {
            vec![0x45, 0xb8, 0, 47, 0, 0, 0, 0, 9, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]
        };
        packet.extend([0x9c, 0x40, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend([2, 4, 5, 0xb4, b'G', b'E', b'T']);
        packet
    }

    fn ones(parts: &[&[u8]]) -> u16 {
        checksum(parts.iter().map(|part| sum(part)).sum())
    }

    #[test]
    fn a_request_is_kept_without_its_data_and_refused_with_it() {
        for ipv6 in [false, true] {
            let syn = Syn::parse(&syn(ipv6)).unwrap();
            assert_eq!((syn.client.port(), syn.server.port(), syn.traffic_class), (40_000, 80, 0xb8));
            let header = if ipv6 { IPV6_HEADER } else { IPV4_HEADER };
            assert_eq!(syn.packet().len(), header + 24);
            let refusal = syn.refusal();
            let segment = &refusal[header..];
            assert_eq!(segment[..4], [0, 80, 0x9c, 0x40]);
            // Sequence number 0; the SYN at 9 and three bytes are acknowledged; reset and acknowledgement.
            assert_eq!(segment[4..14], [0, 0, 0, 0, 0, 0, 0, 13, 0x50, 0x14]);
            for packet in [syn.packet(), &refusal, &syn.forwarded().unwrap()] {
                let addresses = if ipv6 { &packet[8..40] } else { &packet[12..20] };
                let length = (packet.len() - header) as u16;
                assert_eq!(ones(&[addresses, &[0, 6], &length.to_be_bytes(), &packet[header..]]), 0, "TCP checksum");
                assert!(ipv6 || ones(&[&packet[..header]]) == 0, "IP checksum");
            }
            assert_eq!(syn.forwarded().unwrap()[if ipv6 { 7 } else { 8 }], 8);
            let unreachable = syn.unreachable();
            assert_eq!(unreachable[..2], if ipv6 { [1, 3] } else { [3, 1] });
            assert_eq!(&unreachable[8..], syn.packet());
            assert!(ipv6 || ones(&[&unreachable]) == 0, "ICMP checksum");
            let mut error = syn.packet()[..header].to_vec();
            error[if ipv6 { 6 } else { 9 }] = if ipv6 { 58 } else { 1 };
            error.extend(&unreachable);
            assert_eq!(unreachable_ends(&error), Some((syn.client, syn.server)));
            assert_eq!(unreachable_ends(syn.packet()), None);
        }
    }

    #[test]
    fn what_is_no_request_or_has_no_hop_left_stays() {
        let mut answer = syn(false);
        answer[33] |= flag::ACK;
        assert_eq!(Syn::parse(&answer), None);
        let mut last = syn(true);
        last[7] = 1;
        assert_eq!(Syn::parse(&last).unwrap().forwarded(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), ipv6: bool, at in 0usize..60, cut in 0usize..70) {
            let _ = (Syn::parse(&bytes), unreachable_ends(&bytes));
            let mut packet = syn(ipv6);
            let place = at % packet.len();
            packet[place] = bytes.first().copied().unwrap_or(0);
            packet.truncate(cut);
            let header = if ipv6 { IPV6_HEADER } else { IPV4_HEADER };
            let mut error = packet.get(..header).unwrap_or_default().to_vec();
            error.extend(if ipv6 { [1, 3, 0, 0, 0, 0, 0, 0] } else { [3, 1, 0, 0, 0, 0, 0, 0] });
            error.extend(&packet);
            if let Some(place) = error.get_mut(if ipv6 { 6 } else { 9 }) {
                *place = if ipv6 { 58 } else { 1 };
            }
            let _ = unreachable_ends(&error);
            if let Some(syn) = Syn::parse(&packet) {
                let _ = (syn.refusal(), syn.unreachable(), syn.forwarded());
            }
        }
    }
}
