//! Reads a capture as its format says (pcapng, draft-ietf-opsawg-pcapng), not as its writer is written.

use std::collections::BTreeMap;

/// One packet at one interface.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The interface's name.
    pub interface: String,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// It leaves the host.
    pub outbound: bool,
    /// Source and destination port of a TCP segment.
    pub ports: (u16, u16),
    /// Data bytes of a TCP segment; `None` of anything else.
    pub tcp_data: Option<usize>,
}

/// Every packet of a capture, in its order.
pub fn read(bytes: &[u8]) -> Vec<Packet> {
    let mut interfaces = Vec::new();
    let mut packets = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = word(rest, 4) as usize;
        assert!(length >= 12 && length.is_multiple_of(4) && length <= rest.len(), "a block of {length} bytes");
        assert_eq!(word(rest, length - 4) as usize, length, "the length stands at both ends of a block");
        let body = &rest[8..length - 4];
        match word(rest, 0) {
            0x0a0d_0d0a => assert_eq!(word(body, 0), 0x1a2b_3c4d, "byte order"),
            1 => {
                let options = options(&body[8..]);
                assert_eq!(options.get(&9), Some(&vec![9]), "stamps are nanoseconds");
                interfaces.push(String::from_utf8(options[&2].clone()).unwrap());
            }
            6 => packets.push(packet(body, &interfaces)),
            other => panic!("block type {other:#x}"),
        }
        rest = &rest[length..];
    }
    packets
}

fn packet(body: &[u8], interfaces: &[String]) -> Packet {
    let captured = word(body, 12) as usize;
    let frame = &body[20..20 + captured];
    let flags = &options(&body[20 + captured.next_multiple_of(4)..])[&2];
    let mut seen = Packet {
        interface: interfaces[word(body, 0) as usize].clone(),
        at_ns: u64::from(word(body, 4)) << 32 | u64::from(word(body, 8)),
        outbound: flags[0] & 3 == 2,
        ports: (0, 0),
        tcp_data: None,
    };
    let ip = &frame[14..];
    if frame[12..14] == [8, 0] && ip[9] == 6 {
        let header = usize::from(ip[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp = &ip[header..];
        seen.ports = (u16::from_be_bytes([tcp[0], tcp[1]]), u16::from_be_bytes([tcp[2], tcp[3]]));
        seen.tcp_data = Some(total - header - usize::from(tcp[12] >> 4) * 4);
    }
    seen
}

fn options(mut rest: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let mut options = BTreeMap::new();
    while rest.len() >= 4 {
        let code = u16::from_le_bytes([rest[0], rest[1]]);
        let length = usize::from(u16::from_le_bytes([rest[2], rest[3]]));
        if code == 0 {
            break;
        }
        options.insert(code, rest[4..4 + length].to_vec());
        rest = &rest[4 + length.next_multiple_of(4)..];
    }
    options
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
