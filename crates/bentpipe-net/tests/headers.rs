//! The one header parser: real packets, damaged ones, anything.

use bentpipe_net::buffer::Buffer;
use bentpipe_net::datagram::{Body, Datagram, Ethernet, Payload, SackBlocks, Segment, flag};
use bentpipe_net::flow::FlowKey;
use bentpipe_net::headers::{
    Headers, TcpOptions, checksum, complete_checksum, mark_congestion, protocol, set_window, set_window_scale,
    split_super_packet, strip_data, sum, tcp, unreachable_ends,
};
use bentpipe_net::packet::{DatagramPacket, Packet};
use bentpipe_net::wire;
use proptest::prelude::*;

/// An Ethernet frame with a TCP segment, SYN options and all, checksums right; with `tags` VLAN tags.
fn segment(data: &[u8], window: u16, ipv6: bool, tags: usize) -> Vec<u8> {
    let mut frame = vec![0u8; 12];
    for _ in 0..tags {
        frame.extend([0x81, 0x00, 0, 5]);
    }
    let length = 32 + data.len();
    if ipv6 {
        frame.extend([0x86, 0xdd, 0x6b, 0x80, 0, 0, (length >> 8) as u8, length as u8, 6, 64]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    } else {
        let total = 20 + length;
        let mut ip = vec![0x45, 0xb8, (total >> 8) as u8, total as u8, 0, 7, 0x40, 0, 64, 6, 0, 0];
        ip.extend([198, 18, 1, 1, 198, 18, 1, 2]);
        let checksum = checksum(sum(&ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend([0x08, 0x00]);
        frame.extend(ip);
    }
    frame.extend([0x13, 0x89, 0, 80, 0, 0, 3, 232, 0, 0, 0, 9, 8 << 4, 0x18]);
    frame.extend(window.to_be_bytes());
    frame.extend([0, 0, 0, 0]);
    frame.extend([2, 4, 5, 180, 4, 2, 3, 3, 7, 1, 1, 0]);
    frame.extend(data);
    complete_checksum(&mut frame, true);
    frame
}

fn checksum_is_right(frame: &[u8]) -> bool {
    let mut again = frame.to_vec();
    complete_checksum(&mut again, true);
    again == frame
}

#[test]
fn a_segment_is_read_in_any_frame() {
    for (ipv6, tags) in [(false, 0), (false, 1), (true, 0), (true, 2)] {
        let frame = segment(b"hello", 4000, ipv6, tags);
        let view = tcp(&frame, true).unwrap();
        assert_eq!((view.source.port(), view.destination.port(), view.data_bytes, view.window), (5001, 80, 5, 4000));
        assert_eq!((view.sequence, view.acknowledgement, &frame[view.data_offset()..]), (1000, 9, &b"hello"[..]));
        let options = TcpOptions::of(&frame, &view);
        assert_eq!((options.mss, options.window_scale, options.sack_permitted), (Some(1460), Some(7), true));
        assert_eq!((options.timestamps, options.sack), (None, None));
        let headers = Headers::read(&frame, true).unwrap();
        let expected = FlowKey {
            source: view.source.ip(),
            destination: view.destination.ip(),
            protocol: protocol::TCP,
            source_port: 5001,
            destination_port: 80,
        };
        assert_eq!((headers.flow, headers.dscp(), headers.is_ecn_capable()), (expected, 46, false));
        assert!(!headers.is_pure_ack(), "it has data");
        assert_eq!(expected.reversed().reversed(), expected);
        let mut packet = frame[view.ip_offset..].to_vec();
        let view = tcp(&packet, false).unwrap();
        strip_data(&mut packet, &view);
        assert!(Headers::read(&packet, false).unwrap().is_pure_ack());
        assert_eq!(tcp(&packet, false).unwrap().data_bytes, 0);
    }
}

#[test]
fn a_super_packet_becomes_packets_that_fit() {
    for ipv6 in [false, true] {
        let data: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
        let frame = segment(&data, 1, ipv6, 0);
        let (mut out, mut sequences) = (Vec::new(), Vec::new());
        assert!(split_super_packet(&frame, 1500, &mut Vec::new(), |piece| {
            assert!(piece.len() <= 1514 && checksum_is_right(piece));
            let view = tcp(piece, true).unwrap();
            sequences.push(view.sequence);
            out.extend_from_slice(&piece[view.data_offset()..]);
        }));
        assert_eq!(out, data);
        assert_eq!(sequences[..2], [1000, if ipv6 { 2428 } else { 2448 }]);
    }
}

#[test]
fn congestion_is_marked_where_the_sender_understands_it() {
    for ipv6 in [false, true] {
        let mut frame = segment(b"", 1, ipv6, 1);
        assert!(!mark_congestion(&mut frame, true));
        let at = tcp(&frame, true).unwrap().ip_offset;
        // ECT(0).
        frame[at + 1] |= if ipv6 { 2 << 4 } else { 2 };
        assert!(mark_congestion(&mut frame, true));
        let headers = Headers::read(&frame, true).unwrap();
        assert_eq!((headers.traffic_class & 3, headers.dscp()), (3, 46));
        assert!(ipv6 || checksum(sum(&frame[at..at + 20])) == 0);
    }
}

/// Datagrams of every kind.
fn datagrams() -> impl Strategy<Value = Datagram> {
    let ends = (any::<[u8; 4]>(), any::<[u8; 4]>(), any::<u8>(), any::<bool>());
    let body = (0..4u8, any::<u16>(), any::<u16>(), any::<u32>(), any::<u8>(), 0..60usize, any::<bool>());
    (ends, body).prop_map(
        |((source, destination, traffic_class, ethernet), (kind, a, b, number, flags, length, option))| {
            let data: Vec<u8> = vec![7; length];
            let mut blocks = SackBlocks::default();
            blocks.push(number, number.wrapping_add(9));
            let body = match kind {
                0 => Body::Tcp(Segment {
                    source_port: a,
                    destination_port: b,
                    sequence: number,
                    acknowledgement: !number,
                    flags: flags & !flag::SYN,
                    sack: option.then(|| Box::new(blocks)),
                    payload: Payload::from_vec(data),
                    ..Segment::default()
                }),
                1 => Body::Udp { source_port: a, destination_port: b, data: data.into() },
                2 => Body::Echo { reply: option, identifier: a, sequence: b, data: data.into() },
                _ => Body::Arp { reply: option, sender: [1; 6], target: [2; 6] },
            };
            let ethernet = (ethernet || matches!(body, Body::Arp { .. }))
                .then_some(Ethernet { destination: [1; 6], source: [2; 6] });
            Datagram { ethernet, traffic_class, ..Datagram::new(source.into(), destination.into(), body) }
        },
    )
}

proptest! {
    /// A queue sees the same of a virtual packet and of its bytes, before and after a mark.
    #[test]
    fn datagrams_and_their_bytes_have_the_same_headers(datagram in datagrams()) {
        let ethernet = datagram.ethernet.is_some();
        let mut bytes = Vec::new();
        wire::write(&datagram, &mut bytes);
        let (mut real, mut described) = (Buffer::from_vec(bytes), DatagramPacket::new(datagram));
        prop_assert_eq!(real.bytes(), described.bytes());
        prop_assert_eq!(real.headers(ethernet), described.headers(ethernet));
        prop_assert_eq!(real.mark_congestion(ethernet), described.mark_congestion(ethernet));
        let mut marked = Vec::new();
        described.write(&mut marked);
        prop_assert_eq!(real.as_slice(), marked);
    }

    #[test]
    fn a_changed_window_keeps_the_checksum_right(before: u16, after: u16, data: Vec<u8>, ipv6: bool, tags in 0usize..3) {
        let mut frame = segment(&data, before, ipv6, tags);
        let view = tcp(&frame, true).unwrap();
        set_window(&mut frame, &view, after);
        prop_assert!(checksum_is_right(&frame));
        prop_assert_eq!(tcp(&frame, true).unwrap().window, after);
    }

    #[test]
    fn a_changed_window_scale_keeps_the_checksum_right(shift in 0u8..15, data: Vec<u8>, ipv6: bool) {
        let mut frame = segment(&data, 100, ipv6, 0);
        let view = tcp(&frame, true).unwrap();
        set_window_scale(&mut frame, &view, shift);
        prop_assert!(checksum_is_right(&frame));
        prop_assert_eq!(TcpOptions::of(&frame, &view).window_scale, Some(shift));
    }

    #[test]
    fn no_bytes_panic(mut bytes: Vec<u8>, kind in 0usize..4, ethernet: bool) {
        let start: &[u8] = [&[0x08, 0x00, 0x45][..], &[0x86, 0xdd, 0x60], &[0x81, 0x00, 0], &[]][kind];
        if let Some(place) = bytes.get_mut(12..12 + start.len()) {
            place.copy_from_slice(start);
        }
        all_of_it(bytes, ethernet);
    }

    #[test]
    fn no_damaged_segment_panics(ipv6: bool, tags in 0usize..3, at in 0usize..90, value: u8, cut in 0usize..120) {
        let mut frame = segment(b"data", 9, ipv6, tags);
        let place = at % frame.len();
        frame[place] = value;
        frame.truncate(cut);
        all_of_it(frame.clone(), true);
        all_of_it(frame.split_off(frame.len().min(14 + 4 * tags)), false);
    }

    #[test]
    fn no_tcp_options_panic(options in proptest::collection::vec(any::<u8>(), 12)) {
        let mut frame = segment(b"", 1, false, 0);
        frame[54..66].copy_from_slice(&options);
        all_of_it(frame, true);
    }
}

/// Everything that may be done with bytes.
fn all_of_it(mut bytes: Vec<u8>, ethernet: bool) {
    let _ = (Headers::read(&bytes, ethernet), unreachable_ends(&bytes), wire::parse(&bytes, ethernet));
    split_super_packet(&bytes, 576, &mut Vec::new(), |_| {});
    if let Some(view) = tcp(&bytes, ethernet) {
        let _ = TcpOptions::of(&bytes, &view);
        set_window(&mut bytes, &view, 1);
        set_window_scale(&mut bytes, &view, 1);
        if !ethernet {
            strip_data(&mut bytes.clone(), &view);
        }
    }
    mark_congestion(&mut bytes, ethernet);
    complete_checksum(&mut bytes, ethernet);
}
