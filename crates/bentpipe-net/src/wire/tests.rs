use super::*;
use crate::datagram::{BROADCAST, SackBlocks};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::sync::Arc;

fn address() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(Ipv4Addr::from)
}

fn ethernet() -> impl Strategy<Value = Ethernet> {
    any::<([u8; 6], [u8; 6])>().prop_map(|(destination, source)| Ethernet { destination, source })
}

fn data(most: usize) -> impl Strategy<Value = Arc<[u8]>> {
    prop::collection::vec(any::<u8>(), 0..=most).prop_map(Arc::from)
}

fn payload(most: usize) -> impl Strategy<Value = Payload> {
    prop_oneof![
        Just(Payload::Empty),
        (any::<u64>(), 0..u64::MAX / 2, 0..=most as u32).prop_map(|(pattern, offset, length)| Payload::Pattern {
            pattern,
            offset,
            length
        }),
        (data(most), any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(bytes, a, b)| {
            let (a, b) = (a.index(bytes.len() + 1) as u32, b.index(bytes.len() + 1) as u32);
            Payload::Bytes { bytes, start: a.min(b), end: a.max(b) }
        }),
    ]
}

fn syn_options() -> impl Strategy<Value = SynOptions> {
    (any::<Option<u16>>(), prop::option::of(0u8..=14), any::<bool>())
        .prop_map(|(mss, window_scale, sack_permitted)| SynOptions { mss, window_scale, sack_permitted })
}

fn sack_blocks() -> impl Strategy<Value = SackBlocks> {
    prop::collection::vec(any::<(u32, u32)>(), 0..6).prop_map(|pairs| {
        let mut blocks = SackBlocks::default();
        pairs.into_iter().for_each(|(first, past)| blocks.push(first, past));
        blocks
    })
}

fn segment(most: usize) -> impl Strategy<Value = Segment> {
    let header = any::<(u16, u16, u32, u32, u8, u16)>();
    let sack = prop::option::of(sack_blocks().prop_map(Box::new));
    (header, any::<Option<(u32, u32)>>(), syn_options(), sack, payload(most)).prop_map(
        |(
            (source_port, destination_port, sequence, acknowledgement, flags, window),
            timestamps,
            syn,
            sack,
            payload,
        )| {
            let syn = (flags & flag::SYN != 0).then_some(syn);
            Segment {
                source_port,
                destination_port,
                sequence,
                acknowledgement,
                flags,
                window,
                timestamps,
                syn,
                sack,
                payload,
            }
        },
    )
}

/// Payloads of an IP packet.
fn body(most: usize) -> impl Strategy<Value = Body> {
    prop_oneof![
        segment(most).prop_map(Body::Tcp),
        (any::<(u16, u16)>(), data(most)).prop_map(|((source_port, destination_port), data)| Body::Udp {
            source_port,
            destination_port,
            data
        }),
        (any::<(bool, u16, u16)>(), data(most)).prop_map(|((reply, identifier, sequence), data)| Body::Echo {
            reply,
            identifier,
            sequence,
            data
        }),
        any::<(u8, u16, [u8; 28])>().prop_map(|(code, mtu, about)| Body::Unreachable { code, mtu, about }),
    ]
}

fn ip(most: usize) -> impl Strategy<Value = Datagram> {
    (prop::option::of(ethernet()), address(), address(), any::<(u8, u8, u16)>(), body(most)).prop_map(
        |(ethernet, source, destination, (ttl, traffic_class, identification), body)| Datagram {
            ethernet,
            source,
            destination,
            ttl,
            traffic_class,
            identification,
            body,
        },
    )
}

fn arp() -> impl Strategy<Value = Datagram> {
    (ethernet(), address(), address(), any::<(bool, [u8; 6], [u8; 6])>()).prop_map(
        |(ethernet, source, destination, (reply, sender, target))| Datagram {
            ethernet: Some(ethernet),
            source,
            destination,
            ttl: 0,
            traffic_class: 0,
            identification: 0,
            body: Body::Arp { reply, sender, target },
        },
    )
}

fn datagram(most: usize) -> impl Strategy<Value = Datagram> {
    prop_oneof![8 => ip(most), 1 => arp()]
}

/// Options of a TCP header, most of them well formed.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let lengths = [(2u8, 4u8), (3, 3), (4, 2), (5, 10), (5, 26), (5, 34), (8, 10), (99, 5)];
    let option = (prop::sample::select(lengths.to_vec()), any::<[u8; 32]>())
        .prop_map(|((kind, length), value)| [&[kind, length], &value[..usize::from(length) - 2]].concat());
    let piece = prop_oneof![6 => option, 2 => Just(vec![1]), 1 => prop::collection::vec(0u8..12, 1..3)];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| {
        let mut bytes = pieces.concat();
        bytes.truncate(40);
        bytes
    })
}

fn bytes_of(datagram: &Datagram) -> Vec<u8> {
    let mut bytes = vec![];
    write(datagram, &mut bytes);
    bytes
}

fn parsed(bytes: &[u8], like: &Datagram) -> Option<Datagram> {
    parse(bytes, like.ethernet.is_some())
}

/// The same datagram with its data as bytes of its own, and without SACK blocks that the header has no room for.
fn as_received(datagram: &Datagram) -> Datagram {
    let mut datagram = datagram.clone();
    if let Body::Tcp(segment) = &mut datagram.body {
        let mut data = vec![0; segment.payload.length() as usize];
        segment.payload.copy_to(&mut data);
        segment.payload = Payload::from_vec(data);
        let mut blocks = SackBlocks::default();
        segment.sack_blocks().iter().for_each(|(first, past)| blocks.push(*first, *past));
        segment.sack = (!blocks.as_slice().is_empty()).then(|| Box::new(blocks));
    }
    datagram
}

/// As a router cuts a packet for a link of `mtu` (RFC 791 §3.2).
fn fragments(whole: &Datagram, mtu: u64) -> Vec<Datagram> {
    let piece = (mtu - IP_HEADER) / 8 * 8;
    let total = whole.body.bytes();
    let whole = Arc::new(Datagram { ethernet: None, ..whole.clone() });
    (0..total)
        .step_by(piece as usize)
        .map(|offset| Datagram {
            body: Body::Fragment {
                whole: Arc::clone(&whole),
                offset: offset as u16,
                length: piece.min(total - offset) as u16,
                more: offset + piece < total,
            },
            ..(*whole).clone()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(datagram in datagram(1500), before in prop::collection::vec(any::<u8>(), 0..4)) {
        let bytes = bytes_of(&datagram);
        prop_assert_eq!(bytes.len() as u64, datagram.bytes());
        prop_assert_eq!(parsed(&bytes, &datagram), Some(as_received(&datagram)));
        let mut appended = before.clone();
        write(&datagram, &mut appended);
        prop_assert_eq!(appended, [before, bytes].concat());
    }

    #[test]
    fn padding_is_ignored_and_a_cut_packet_is_not_read(datagram in datagram(60), padding in 1usize..50) {
        let bytes = bytes_of(&datagram);
        let padded = [&bytes[..], &vec![0xee; padding]].concat();
        prop_assert_eq!(parsed(&padded, &datagram), Some(as_received(&datagram)));
        for length in 0..bytes.len() {
            prop_assert_eq!(parsed(&bytes[..length], &datagram), None);
        }
    }

    #[test]
    fn one_inverted_bit_is_found(datagram in ip(60)) {
        let mut bytes = bytes_of(&datagram);
        let ip_at = if datagram.ethernet.is_some() { 14 } else { 0 };
        let is_udp = matches!(datagram.body, Body::Udp { .. });
        for bit in ip_at * 8..bytes.len() * 8 {
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            let found = parsed(&bytes, &datagram);
            if is_udp && bytes[ip_at + 26..ip_at + 28] == [0, 0] {
                // The inverted bit was the only one set of the checksum: now the packet says that it has none.
                prop_assert_eq!(found, Some(as_received(&datagram)));
            } else {
                prop_assert_eq!(found, None, "bit {}", bit);
            }
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
        }
    }

    #[test]
    fn an_inverted_bit_in_front_of_ip_changes_addresses_at_most(datagram in datagram(20), bit in 0usize..112) {
        prop_assume!(datagram.ethernet.is_some());
        let mut bytes = bytes_of(&datagram);
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        let found = parsed(&bytes, &datagram);
        if bit < 96 {
            let found = found.unwrap();
            prop_assert_ne!(found.ethernet, datagram.ethernet);
            prop_assert_eq!(Datagram { ethernet: datagram.ethernet, ..found }, as_received(&datagram));
        } else {
            prop_assert_eq!(found, None);
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), ethernet: bool) {
        let _ = parse(&bytes, ethernet);
    }

    /// Past the checksums: what is read from a packet of any content can be written, and reads the same again.
    #[test]
    fn arbitrary_bodies_do_no_harm(mut body in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..3, tidy: bool) {
        let (protocol, checksum_at) = [(protocol::TCP, 16), (protocol::UDP, 6), (protocol::ICMP, 2)][kind];
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        if tidy && body.len() >= 20 {
            let length = body.len() as u8;
            match protocol {
                protocol::TCP => body[12] = (length / 4).min(15) << 4,
                protocol::UDP => body[4..6].copy_from_slice(&[0, length]),
                _ => body[..2].copy_from_slice(&[3, 4]),
            }
        }
        let pseudo = if protocol == protocol::ICMP { 0 } else { pseudo_header(source.into(), destination.into(), protocol, body.len()) };
        if let Some(field) = body.get_mut(checksum_at..checksum_at + 2) {
            field.fill(0);
            let checksum = checksum(pseudo + sum(&body));
            body[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        let mut bytes = vec![0x45, 0, 0, 20 + body.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let checksum = checksum(sum(&bytes));
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend(body);
        if let Some(first) = parse(&bytes, false) {
            prop_assert_eq!(parse(&bytes_of(&first), false), Some(as_received(&first)));
        }
    }

    #[test]
    fn arbitrary_options_do_no_harm(options in options(), flags: u8, like in ip(0)) {
        let words = 5 + options.len().div_ceil(4);
        prop_assume!(words < 16);
        let mut bytes = vec![0; 12];
        bytes.extend([(words as u8) << 4, flags, 0, 0, 0, 0, 0, 0]);
        bytes.extend(&options);
        bytes.resize(words * 4, 0);
        let segment = parse_segment(&bytes).unwrap();
        prop_assert_eq!(segment.syn.is_some(), flags & flag::SYN != 0);
        let datagram = Datagram { body: Body::Tcp(segment), ..like };
        prop_assert_eq!(parsed(&bytes_of(&datagram), &datagram), Some(as_received(&datagram)));
    }

    #[test]
    fn fragments_make_up_the_whole(whole in ip(1500), mtu in 28u64..600) {
        let bytes = bytes_of(&Datagram { ethernet: None, ..whole.clone() });
        let mut joined = vec![];
        let pieces = fragments(&whole, mtu);
        for (index, piece) in pieces.iter().enumerate() {
            let piece_bytes = bytes_of(piece);
            prop_assert_eq!(piece_bytes.len() as u64, piece.bytes());
            prop_assert!(piece.bytes() <= mtu);
            let (header, body) = piece_bytes.split_at(20);
            prop_assert_eq!(checksum(sum(header)), 0);
            prop_assert_eq!(usize::from(u16_at(header, 2).unwrap()), piece_bytes.len());
            prop_assert_eq!(u16_at(header, 4), Some(whole.identification));
            let more = if index + 1 < pieces.len() { MORE_FRAGMENTS } else { 0 };
            prop_assert_eq!(u16_at(header, 6), Some(more | (joined.len() / 8) as u16));
            prop_assert_eq!(header[9], bytes[9]);
            prop_assert!(pieces.len() == 1 || parse(&piece_bytes, false).is_none());
            joined.extend_from_slice(body);
        }
        prop_assert_eq!(&joined[..], &bytes[20..]);
    }

    #[test]
    fn a_quote_says_whose_packet_it_was(datagram in ip(60), mtu in 28u64..60) {
        let expected = |ports: (u16, u16), protocol, sequence| Quoted {
            source: datagram.source,
            destination: datagram.destination,
            protocol,
            source_port: ports.0,
            destination_port: ports.1,
            sequence,
        };
        let expected = match &datagram.body {
            Body::Tcp(segment) => {
                Some(expected((segment.source_port, segment.destination_port), protocol::TCP, segment.sequence))
            }
            Body::Udp { source_port, destination_port, .. } => {
                Some(expected((*source_port, *destination_port), protocol::UDP, 0))
            }
            Body::Echo { identifier, sequence, .. } => Some(expected((*identifier, *sequence), protocol::ICMP, 0)),
            _ => None,
        };
        prop_assert_eq!(quoted_ports(&quote(&datagram)), expected);
        for (index, piece) in fragments(&datagram, mtu).iter().enumerate() {
            prop_assert_eq!(quoted_ports(&quote(piece)), expected.filter(|_| index == 0));
        }
    }

    #[test]
    fn arbitrary_quotes_do_no_harm(mut about: [u8; 28], first in prop_oneof![Just(0x45u8), any::<u8>()]) {
        about[0] = first;
        let _ = quoted_ports(&about);
    }
}

/// The header that Wikipedia, "Internet checksum", works through: its checksum is b861.
#[test]
fn an_ip_header_from_elsewhere() {
    let datagram = Datagram {
        ethernet: None,
        source: Ipv4Addr::new(192, 168, 0, 1),
        destination: Ipv4Addr::new(192, 168, 0, 199),
        ttl: 64,
        traffic_class: 0,
        identification: 0,
        body: Body::Udp { source_port: 53, destination_port: 1024, data: vec![0; 0x73 - 28].into() },
    };
    let expected = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 0x01, 0xc0, 0xa8, 0, 0xc7];
    assert_eq!(bytes_of(&datagram)[..20], expected);
}

/// The words of RFC 1071 §3: their sum is ddf2.
#[test]
fn a_sum_from_elsewhere() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum(sum(&bytes)), !0xddf2);
    assert_eq!(checksum(sum(&bytes[..7])), !(0x0001 + 0xf203 + 0xf4f5 + 0xf600u32 - 2 * 0xffff) as u16);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    let with = |data: [u8; 2]| Datagram {
        ethernet: None,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        ttl: 64,
        traffic_class: 0,
        identification: 0,
        body: Body::Udp { source_port: 1, destination_port: 2, data: data.into() },
    };
    // Data that are the checksum of the rest bring the sum to ones, its complement to zero.
    let bytes = bytes_of(&with([0, 0]));
    let datagram = with([bytes[26], bytes[27]]);
    let bytes = bytes_of(&datagram);
    assert_eq!(bytes[26..28], [0xff, 0xff]);
    assert_eq!(parse(&bytes, false), Some(datagram.clone()));

    // Zeros: the sender made none. The length is held to all the more.
    let mut bytes = bytes;
    bytes[26..28].fill(0);
    assert_eq!(parse(&bytes, false), Some(datagram));
    bytes[25] -= 1;
    assert_eq!(parse(&bytes, false), None);
}

#[test]
fn a_packet_too_long_for_ipv4_is_never_read() {
    let with = |data: usize| Datagram {
        ethernet: None,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        ttl: 64,
        traffic_class: 0,
        identification: 7,
        body: Body::Udp { source_port: 1, destination_port: 2, data: vec![1; data].into() },
    };
    let longest = with(65_535 - 28);
    assert_eq!(parse(&bytes_of(&longest), false), Some(longest));
    for more in [1, 8, 20, 28, 100] {
        let datagram = with(65_535 - 28 + more);
        let bytes = bytes_of(&datagram);
        assert_eq!(bytes.len() as u64, datagram.bytes());
        assert_eq!(u16_at(&bytes, 2), Some(0));
        assert_eq!(parse(&bytes, false), None);
    }
}

#[test]
fn options_stand_as_linux_writes_them() {
    let mut blocks = SackBlocks::default();
    blocks.push(0x0102_0304, 0x0506_0708);
    let options = |segment: Segment| {
        let mut bytes = vec![];
        write_segment(&segment, &mut bytes);
        assert_eq!(bytes.len() as u64, segment.header_bytes());
        bytes.split_off(20)
    };
    let syn = SynOptions { mss: Some(1460), window_scale: Some(7), sack_permitted: true };
    let plain = Segment { flags: flag::SYN, syn: Some(syn), ..Segment::default() };
    assert_eq!(options(plain.clone()), [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7]);
    assert_eq!(
        options(Segment { timestamps: Some((1, 2)), ..plain }),
        [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7]
    );
    let data = Segment { flags: flag::ACK, timestamps: Some((1, 2)), ..Segment::default() };
    assert_eq!(options(data.clone()), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    let sack = Segment { timestamps: None, sack: Some(Box::new(blocks)), ..data };
    assert_eq!(options(sack), [1, 1, 5, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(options(Segment { sack: Some(Box::default()), ..Segment::default() }), []);
}

#[test]
fn options_that_make_no_sense_are_passed_over() {
    let shift = |options: &[u8]| TcpOptions::read(options).window_scale;
    assert_eq!(shift(&[3, 3, 14]), Some(14));
    assert_eq!(shift(&[3, 3, 15]), Some(14), "RFC 7323 §2.3");
    assert_eq!(shift(&[99, 4, 3, 3, 3, 3, 7]), Some(7), "an unknown option is skipped");
    assert_eq!(shift(&[3, 4, 7, 7, 3, 3, 8]), Some(8), "so is one of a wrong length");
    assert_eq!(shift(&[0, 3, 3, 7]), None, "the list has ended");
    for length in [0, 1, 9] {
        assert_eq!(shift(&[99, length, 3, 3, 7]), None, "nobody knows where the next one starts");
    }
    assert_eq!(TcpOptions::read(&[5, 2]).sack, None);
    assert_eq!(TcpOptions::read(&[5, 6, 0, 0, 0, 1]).sack, None);
}

#[test]
fn an_arp_question_as_rfc_826_draws_it() {
    let datagram = Datagram {
        ethernet: Some(Ethernet { destination: BROADCAST, source: [2, 0, 0, 0, 0, 1] }),
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        ttl: 0,
        traffic_class: 0,
        identification: 0,
        body: Body::Arp { reply: false, sender: [2, 0, 0, 0, 0, 1], target: [0; 6] },
    };
    let expected = [
        &[0xff; 6][..],
        &[2, 0, 0, 0, 0, 1, 0x08, 0x06],
        &[0, 1, 8, 0, 6, 4, 0, 1],
        &[2, 0, 0, 0, 0, 1, 10, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
    ];
    assert_eq!(bytes_of(&datagram), expected.concat());
}
