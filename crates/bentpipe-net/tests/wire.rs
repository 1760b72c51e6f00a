//! The bytes of datagrams, judged by tshark.

use bentpipe_net::datagram::{BROADCAST, Body, Datagram, Ethernet, Payload, SackBlocks, Segment, SynOptions, flag};
use bentpipe_net::pcapng::{LinkType, Passing, enhanced_packet, interface_description, section_header};
use bentpipe_net::wire;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HUB: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn datagram(body: Body) -> Datagram {
    Datagram {
        ethernet: None,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
        ttl: 64,
        traffic_class: 0,
        identification: 0,
        body,
    }
}

fn segment(flags: u8, payload: Payload) -> Segment {
    Segment {
        source_port: 40_000,
        destination_port: 8_000,
        sequence: 1_000,
        acknowledgement: 2_000,
        flags,
        window: 65_535,
        payload,
        ..Segment::default()
    }
}

fn sack(count: u32) -> Option<Box<SackBlocks>> {
    let mut blocks = SackBlocks::default();
    (0..count).for_each(|i| blocks.push(5_000 + i * 2_000, 6_000 + i * 2_000));
    Some(Box::new(blocks))
}

/// One of each kind. Ports from 40,000: no protocol that tshark would look for in the data.
fn samples() -> Vec<Datagram> {
    let odd = Payload::Pattern { pattern: 1, offset: 3, length: 1_447 };
    let syn = Some(SynOptions { mss: Some(1_460), window_scale: Some(7), sack_permitted: true });
    let udp = datagram(Body::Udp { source_port: 40_000, destination_port: 40_001, data: vec![7; 2_001].into() });
    let echo = Body::Echo { reply: false, identifier: 77, sequence: 3, data: vec![9; 57].into() };
    let refused = datagram(Body::Udp { source_port: 40_000, destination_port: 40_002, data: [][..].into() });
    let mut samples: Vec<_> = [
        Body::Tcp(Segment { syn, timestamps: Some((1, 0)), ..segment(flag::SYN, Payload::Empty) }),
        Body::Tcp(Segment { syn, ..segment(flag::SYN | flag::ECE | flag::CWR, Payload::Empty) }),
        Body::Tcp(Segment { timestamps: Some((5, 6)), ..segment(flag::ACK | flag::PSH, odd) }),
        Body::Tcp(Segment { sack: sack(4), ..segment(flag::ACK, Payload::Empty) }),
        Body::Tcp(Segment { sack: sack(4), timestamps: Some((7, 8)), ..segment(flag::ACK, Payload::Empty) }),
        udp.body.clone(),
        echo,
        Body::Unreachable { code: 4, mtu: 576, about: wire::quote(&udp) },
        Body::Unreachable { code: 3, mtu: 0, about: wire::quote(&refused) },
    ]
    .map(datagram)
    .into();
    let whole = Arc::new(Datagram { identification: 99, traffic_class: 0x2e << 2, ..udp });
    for (offset, length, more) in [(0, 1_480, true), (1_480, 529, false)] {
        let body = Body::Fragment { whole: Arc::clone(&whole), offset, length, more };
        samples.push(Datagram { body, ..(*whole).clone() });
    }
    let question = Body::Arp { reply: false, sender: STATION, target: [0; 6] };
    let ethernet = Some(Ethernet { destination: BROADCAST, source: STATION });
    samples.push(Datagram { ethernet, ..datagram(question) });
    let answer = Body::Arp { reply: true, sender: HUB, target: STATION };
    let ethernet = Some(Ethernet { destination: STATION, source: HUB });
    let last = Body::Tcp(segment(flag::FIN | flag::ACK, Payload::from_vec(b"end".to_vec())));
    samples.push(Datagram { ethernet, ..datagram(answer) });
    samples.push(Datagram { ethernet, ..datagram(last) });
    samples
}

fn capture<'a>(packets: impl Iterator<Item = (LinkType, &'a [u8])>) -> Vec<u8> {
    let mut file = vec![];
    section_header(&mut file);
    interface_description(&mut file, "ip", LinkType::Ip);
    interface_description(&mut file, "ethernet", LinkType::Ethernet);
    for (index, (link_type, bytes)) in packets.enumerate() {
        let interface = u32::from(link_type == LinkType::Ethernet);
        enhanced_packet(&mut file, interface, 1_000_000_000 + index as u64, Passing::Outbound, bytes);
    }
    file
}

/// One line a packet, the fields between bars; `None`: there is no tshark here.
fn tshark(file: &Path, fields: &[&str]) -> Option<String> {
    let mut command = Command::new("tshark");
    command.args(["-r".as_ref(), file.as_os_str()]).args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    match command.output() {
        Ok(ended) => {
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            Some(String::from_utf8(ended.stdout).unwrap())
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "tshark is missing, and `make test` installs it: {error}");
            eprintln!("skipped: there is no tshark here ({error})");
            None
        }
    }
}

#[test]
fn tshark_finds_every_checksum_good() {
    let mut packets: Vec<_> = samples()
        .iter()
        .map(|datagram| {
            let mut bytes = vec![];
            wire::write(datagram, &mut bytes);
            (if datagram.ethernet.is_some() { LinkType::Ethernet } else { LinkType::Ip }, bytes)
        })
        .collect();
    // The last one is damaged, to see that tshark does look.
    let mut damaged = packets[0].clone();
    damaged.1[30] ^= 1;
    packets.push(damaged);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wire.pcapng");
    std::fs::write(&file, capture(packets.iter().map(|(link_type, bytes)| (*link_type, &bytes[..])))).unwrap();

    let fields = [
        "frame.interface_name",
        "frame.len",
        "ip.flags",
        "ip.dsfield.dscp",
        // Of a checksum: 1 good, 0 bad, 2 not checked (of what an ICMP error quotes), nothing where there is none.
        "ip.checksum.status",
        "tcp.checksum.status",
        "udp.checksum.status",
        "icmp.checksum.status",
        "tcp.len",
        "udp.length",
        "icmp.type",
        "icmp.mtu",
        "arp.opcode",
        "tcp.hdr_len",
        "tcp.options.mss_val",
        "tcp.options.wscale.shift",
        "tcp.options.sack_perm",
        "tcp.options.timestamp.tsval",
        "tcp.options.timestamp.tsecr",
        "tcp.options.sack.count",
        "tcp.options.sack_le",
        "tcp.options.sack_re",
        "_ws.malformed",
    ];
    let Some(table) = tshark(&file, &fields) else { return };
    let expected = [
        // SYN with and without timestamps, data, SACK without and with timestamps.
        "ip|60|0x02|0|1|1|||0|||||40|1460|7|0402|1|0||||",
        "ip|52|0x02|0|1|1|||0|||||32|1460|7|0402||||||",
        "ip|1499|0x02|0|1|1|||1447|||||32||||5|6||||",
        "ip|76|0x02|0|1|1|||0|||||56||||||4|3001|4001|",
        "ip|80|0x02|0|1|1|||0|||||60||||7|8|3|3001|4001|",
        // UDP, echo, too large, port unreachable.
        "ip|2029|0x02|0|1||1|||2009|||||||||||||",
        "ip|85|0x02|0|1|||1|||8||||||||||||",
        "ip|56|0x02|0|1||2|1||2009|3|576|||||||||||",
        "ip|56|0x02|0|1||1|1||8|3||||||||||||",
        // Two fragments: with the second, tshark has the whole and checks it.
        "ip|1500|0x01|46|1||||||||||||||||||",
        "ip|549|0x00|46|1||1|||2009|||||||||||||",
        "ethernet|42|||||||||||1||||||||||",
        "ethernet|42|||||||||||2||||||||||",
        "ethernet|57|0x02|0|1|1|||3|||||20|||||||||",
        "ip|60|0x02|0|1|0|||0|||||40|1460|7|0402|1|0||||",
    ];
    assert_eq!(table.lines().collect::<Vec<_>>(), expected);
}
