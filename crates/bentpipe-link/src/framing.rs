//! Framing: how many bits a packet becomes on the wire, and whether a check discards damaged ones.

use bentpipe_net::content::pattern_byte;
use bentpipe_net::hdlc::StuffedBits;
use bentpipe_net::packet::Packet;

/// The framing around a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Nothing at all, and no check: damaged packets are delivered.
    None,
    /// PPP in HDLC-like framing, synchronous (RFC 1661, 1662; bridged frames: RFC 3518).
    Ppp(Ppp),
    /// PPP on an asynchronous line: start and stop bits, escaped octets (RFC 1662 §4).
    AsyncPpp(AsyncPpp),
    /// SDLC: a UDP datagram's data are one frame, address to check sequence.
    Sdlc(Sdlc),
    /// Ethernet (IEEE 802.3).
    Ethernet(Ethernet),
    /// Frame relay (Q.922 core; encapsulation: RFC 2427).
    FrameRelay(FrameRelay),
    /// ATM cells by AAL5 (ITU-T I.363.5; encapsulation: RFC 2684).
    Aal5(Aal5),
}

/// Options of AAL5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aal5 {
    /// Every packet says what it is in an LLC header (RFC 2684 §5); without it the virtual channel does (§6).
    pub llc: bool,
}

/// Options of synchronous PPP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ppp {
    /// Flags a frame: 1 when frames share them (RFC 1662 §3.1), 2 when not.
    pub flag_bytes: u64,
    /// Address and control: 2, or 0 when compressed (RFC 1661 §6.6).
    pub address_control_bytes: u64,
    /// Protocol field: 2, or 1 when compressed (RFC 1661 §6.5).
    pub protocol_bytes: u64,
    /// Frame check sequence: 2 or 4.
    pub fcs_bytes: u64,
    /// Whether to insert a zero after five ones, as the line does (RFC 1662 §5.2). About 1.6 % on random content.
    pub bit_stuffing: bool,
}

/// Options of asynchronous PPP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncPpp {
    /// The octets of a frame.
    pub frame: Ppp,
    /// Bits on the line per octet: 10 with one start and one stop bit.
    pub bits_per_byte: u64,
    /// The async control character map: bit n set, octet n is escaped (RFC 1662 §7.1). All ones until negotiated.
    pub escape_map: u32,
}

/// Options of SDLC.
///
/// The line carries frames of stations, not IP: the sites hand each frame to the link as the data of a UDP datagram, whose IP and
/// UDP headers are not on the line. A packet that is no UDP datagram counts as the information field of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sdlc {
    /// Flags a frame: 1 when frames share them, 2 when not.
    pub flag_bytes: u64,
}

/// Options of Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet {
    /// Count the 8-byte preamble and the 12-byte gap between frames.
    pub preamble_and_gap: bool,
    /// Pad frames to 64 bytes.
    pub minimum: bool,
}

/// Options of frame relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRelay {
    /// Address field: 2, 3 or 4 (Q.922 §3.3).
    pub address_bytes: u64,
    /// Frames cut into trunk units of this payload and overhead, as the ACTS switch did (248 + 8 bytes; NTIA 98-354
    /// §5.3). The units carry the check, so the frame's own flag and check sequence are not sent.
    pub trunk: Option<(u64, u64)>,
}

/// An ATM cell and what of it AAL5 fills (ITU-T I.361, I.363.5).
const CELL: u64 = 53;
const CELL_PAYLOAD: u64 = 48;
/// The trailer of an AAL5 frame: user-to-user and indicator octets, length, 32-bit check (ITU-T I.363.5; RFC 2684 §4).
const AAL5_TRAILER: u64 = 8;

/// Length of an Ethernet header.
const ETHERNET_HEADER: u64 = 14;

impl Framing {
    /// Bits that `packet` occupies on the wire. `ethernet`: it is an Ethernet frame, not an IP packet.
    #[must_use]
    #[inline]
    pub fn bits_of(&self, packet: &impl Packet, ethernet: bool) -> u64 {
        self.count(packet.bytes(), ethernet, |visit| packet.for_each_byte(visit))
    }

    /// Bits that a packet of `length` bytes occupies; where they depend on its content, that of random bytes.
    #[must_use]
    pub fn bits(&self, length: u64, ethernet: bool) -> u64 {
        self.count(length, ethernet, |visit| (0..length).map(|at| pattern_byte(0, at)).for_each(visit))
    }

    #[inline]
    fn count(&self, length: u64, ethernet: bool, each_byte: impl FnOnce(&mut dyn FnMut(u8))) -> u64 {
        match self {
            Framing::None => length * 8,
            Framing::Ppp(ppp) => {
                let octets = (ppp.overhead(ethernet) + length) * 8;
                octets + if ppp.bit_stuffing { stuffed_zeros(ppp, each_byte) } else { 0 }
            }
            Framing::AsyncPpp(line) => {
                let octets = line.frame.overhead(ethernet) + length + escapes(line, each_byte);
                octets * line.bits_per_byte
            }
            Framing::Sdlc(options) => sdlc_bits(options, ethernet, each_byte),
            Framing::Ethernet(options) => {
                let frame = if ethernet { length } else { length + ETHERNET_HEADER } + 4;
                let frame = if options.minimum { frame.max(64) } else { frame };
                (frame + if options.preamble_and_gap { 20 } else { 0 }) * 8
            }
            Framing::FrameRelay(options) => {
                // Control and NLPID; a bridged frame: control, pad, NLPID, OUI and PID (RFC 2427 §4.2).
                let frame = options.address_bytes + if ethernet { 8 } else { 2 } + length;
                match options.trunk {
                    Some((payload, overhead)) => (frame + frame.div_ceil(payload) * overhead) * 8,
                    None => (frame + 3) * 8,
                }
            }
            Framing::Aal5(options) => {
                // LLC, OUI and EtherType (RFC 2684 §5.1); a bridged frame without its check: LLC, OUI, PID and two
                // octets of padding, of which the padding stays without LLC (§5.2, §6.2).
                let header = match (ethernet, options.llc) {
                    (false, true) => 8,
                    (false, false) => 0,
                    (true, true) => 10,
                    (true, false) => 2,
                };
                (header + length + AAL5_TRAILER).div_ceil(CELL_PAYLOAD) * CELL * 8
            }
        }
    }

    /// True if the bits depend on what a packet holds, not only on its length.
    #[must_use]
    pub fn reads_content(&self) -> bool {
        matches!(self, Framing::AsyncPpp(_) | Framing::Sdlc(_) | Framing::Ppp(Ppp { bit_stuffing: true, .. }))
    }

    /// True if a check discards packets with bit errors.
    #[must_use]
    pub fn checks(&self) -> bool {
        !matches!(self, Framing::None)
    }
}

impl Ppp {
    /// The common form: one shared flag, nothing compressed, 16-bit check.
    pub const PLAIN: Ppp =
        Ppp { flag_bytes: 1, address_control_bytes: 2, protocol_bytes: 2, fcs_bytes: 2, bit_stuffing: false };

    /// Octets around a packet. A bridged frame has two more (flags and MAC type, RFC 3518 §4.2).
    fn overhead(&self, ethernet: bool) -> u64 {
        self.flag_bytes
            + self.address_control_bytes
            + self.protocol_bytes
            + self.fcs_bytes
            + if ethernet { 2 } else { 0 }
    }
}

/// Zeros inserted after five ones in a row, least significant bit first, over header and packet. The check sequence is
/// taken as random: one more in 62 bits at most, which is left out.
fn stuffed_zeros(ppp: &Ppp, each_byte: impl FnOnce(&mut dyn FnMut(u8))) -> u64 {
    let mut line = StuffedBits::default();
    let mut octet = |byte: u8| line.add(byte);
    if ppp.address_control_bytes == 2 {
        octet(0xff);
        octet(0x03);
    }
    if ppp.protocol_bytes == 2 {
        octet(0x00);
    }
    octet(0x21);
    each_byte(&mut octet);
    line.zeros()
}

/// Octets of an IPv4 header up to its protocol, and the protocol of UDP (RFC 791, RFC 768).
const TO_PROTOCOL: usize = 10;
const UDP: u8 = 17;
/// Length of a UDP header.
const UDP_HEADER: u64 = 8;
/// Address, control and check sequence around the information field of a frame.
const SDLC_FIELDS: u64 = 4;

/// The flags, and the exact bits of the frame between them. The fields around a packet that is no UDP datagram are taken to have no
/// five ones in a row.
fn sdlc_bits(options: &Sdlc, ethernet: bool, each_byte: impl FnOnce(&mut dyn FnMut(u8))) -> u64 {
    let mut line = StuffedBits::default();
    let mut start = [0; TO_PROTOCOL];
    let mut at = 0u64;
    let mut skipped = 0;
    let mut fields = SDLC_FIELDS * 8;
    each_byte(&mut |byte| {
        let index = at as usize;
        at += 1;
        if index >= TO_PROTOCOL {
            if at > skipped {
                line.add(byte);
            }
            return;
        }
        start[index] = byte;
        if index + 1 == TO_PROTOCOL {
            if !ethernet && start[0] >> 4 == 4 && byte == UDP {
                // Of a datagram's fragments the first alone has its header.
                let is_first = u16::from_be_bytes([start[6], start[7]]) & 0x1fff == 0;
                skipped = u64::from(start[0] & 0xf) * 4 + if is_first { UDP_HEADER } else { 0 };
                fields = 0;
            } else {
                start.iter().for_each(|byte| line.add(*byte));
            }
        }
    });
    if at < TO_PROTOCOL as u64 {
        start[..at as usize].iter().for_each(|byte| line.add(*byte));
    }
    options.flag_bytes * 8 + fields + line.bits()
}

/// Octets that are sent as two: flag, escape and mapped control characters, in header and packet (the address 0xff is
/// never one; control 0x03 and the protocol's 0x00 are when mapped).
fn escapes(line: &AsyncPpp, each_byte: impl FnOnce(&mut dyn FnMut(u8))) -> u64 {
    let escaped = |byte: u8| -> u64 {
        let mapped = byte < 0x20 && line.escape_map >> byte & 1 == 1;
        u64::from(byte == 0x7d || byte == 0x7e || mapped)
    };
    let mut count = 0;
    if line.frame.address_control_bytes == 2 {
        count += escaped(0x03);
    }
    if line.frame.protocol_bytes == 2 {
        count += escaped(0x00);
    }
    each_byte(&mut |byte| count += escaped(byte));
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::buffer::Buffer;

    fn packet(bytes: Vec<u8>) -> Buffer {
        Buffer::from_vec(bytes)
    }

    #[test]
    fn overheads_are_the_published_ones() {
        let p = packet(vec![0xaa; 1500]);
        assert_eq!(Framing::None.bits_of(&p, false), 12_000);
        assert_eq!(Framing::Ppp(Ppp::PLAIN).bits_of(&p, false), (1500 + 7) * 8);
        let ethernet = Framing::Ethernet(Ethernet { preamble_and_gap: true, minimum: true });
        assert_eq!(ethernet.bits_of(&p, false), 1538 * 8);
        assert_eq!(ethernet.bits_of(&packet(vec![0; 46]), false), 84 * 8, "64 bytes, preamble and gap");
        assert_eq!(ethernet.bits_of(&packet(vec![0; 40]), false), 84 * 8, "padded");
        let relay = Framing::FrameRelay(FrameRelay { address_bytes: 2, trunk: None });
        assert_eq!(relay.bits_of(&p, false), (1500 + 7) * 8);
        // A bridged ping of 64 + 8 + 20 + 14 bytes as in NTIA 98-354 §4, with the Ethernet check sequence.
        let plain = Framing::Ethernet(Ethernet { preamble_and_gap: false, minimum: true });
        assert_eq!(plain.bits_of(&packet(vec![0; 106]), true), 110 * 8);
    }

    #[test]
    fn the_acts_trunk_adds_what_ntia_counted() {
        // NTIA 98-354 §5.3: 1400 B of data + TCP 32 + IP 20 + router 4 + FRACS 48 = 1504 B.
        let trunk = Framing::FrameRelay(FrameRelay { address_bytes: 2, trunk: Some((248, 8)) });
        assert_eq!(trunk.bits_of(&packet(vec![0; 1452]), false), 1504 * 8);
        assert_eq!(trunk.bits_of(&packet(vec![0; 244]), false), 256 * 8, "exactly one unit");
        assert_eq!(trunk.bits_of(&packet(vec![0; 245]), false), (249 + 16) * 8, "one byte more, one unit more");
    }

    #[test]
    fn aal5_fills_whole_cells() {
        let llc = Framing::Aal5(Aal5 { llc: true });
        // RFC 2684: an IP packet of 1500 B, 8 + 8 B around it: 1516 B in 32 cells (1536 B).
        assert_eq!(llc.bits_of(&packet(vec![0; 1500]), false), 32 * 53 * 8);
        // An acknowledgement of 40 B just does not fit one cell with LLC, and just does without.
        assert_eq!(llc.bits_of(&packet(vec![0; 40]), false), 2 * 53 * 8);
        let plain = Framing::Aal5(Aal5 { llc: false });
        assert_eq!(plain.bits_of(&packet(vec![0; 40]), false), 53 * 8);
        assert_eq!(plain.bits_of(&packet(vec![0; 41]), false), 2 * 53 * 8);
        assert_eq!(llc.bits_of(&packet(vec![0; 1514]), true), 32 * 53 * 8, "10 + 1514 + 8 = 1532");
        assert_eq!(plain.bits_of(&packet(vec![0; 1527]), true), 33 * 53 * 8, "2 + 1527 + 8 = 1537");
        assert!(llc.checks());
    }

    #[test]
    fn async_ppp_counts_start_stop_and_escapes() {
        let line = AsyncPpp { frame: Ppp::PLAIN, bits_per_byte: 10, escape_map: u32::MAX };
        // Control 0x03 and the protocol's 0x00 are escaped under the full map: 7 + 2 octets of overhead.
        assert_eq!(Framing::AsyncPpp(line).bits_of(&packet(vec![0x55; 100]), false), 109 * 10);
        assert_eq!(Framing::AsyncPpp(line).bits_of(&packet(vec![0x7e, 0x7d, 0x11, 0x20]), false), (4 + 3 + 9) * 10);
        let negotiated = AsyncPpp { escape_map: 0, ..line };
        assert_eq!(Framing::AsyncPpp(negotiated).bits_of(&packet(vec![0x7e, 0x11]), false), (2 + 1 + 7) * 10);
    }

    #[test]
    fn bit_stuffing_counts_runs_across_octets() {
        let ppp = Ppp { bit_stuffing: true, ..Ppp::PLAIN };
        let without = Framing::Ppp(Ppp::PLAIN).bits_of(&packet(vec![0; 10]), false);
        // 0xff 0x03, least significant bit first, is ten ones in a row: two zeros inserted.
        assert_eq!(Framing::Ppp(ppp).bits_of(&packet(vec![0; 10]), false), without + 2);
        // 0xf0 0x01: 1111 then 1: five ones across the boundary.
        assert_eq!(Framing::Ppp(ppp).bits_of(&packet(vec![0xf0, 0x01]), false), (2 + 7) * 8 + 2 + 1);
    }

    #[test]
    fn an_sdlc_frame_is_counted_without_the_headers_that_carry_it() {
        let sdlc = Framing::Sdlc(Sdlc { flag_bytes: 1 });
        let ip = |protocol: u8, offset: u8, data: &[u8]| {
            let mut bytes = vec![0; 20];
            (bytes[0], bytes[7], bytes[9]) = (0x45, offset, protocol);
            bytes.extend_from_slice(data);
            packet(bytes)
        };
        let udp = |frame: &[u8]| ip(17, 0, &[&[0xff; 8], frame].concat());
        // Receive ready with the poll bit to station C1: address, control, check sequence, and the flag.
        assert_eq!(sdlc.bits_of(&udp(&[0xc1, 0x11, 0x12, 0x34]), false), 40);
        assert_eq!(sdlc.bits_of(&udp(&[0xff, 0x03, 0x12, 0x34]), false), 42, "ten ones in a row");
        assert_eq!(Framing::Sdlc(Sdlc { flag_bytes: 2 }).bits_of(&udp(&[0xc1, 0x11, 0x12, 0x34]), false), 48);
        assert_eq!(sdlc.bits_of(&ip(17, 1, &[0; 8]), false), 8 + 64, "a fragment after the first has no UDP header");
        assert_eq!(sdlc.bits_of(&udp(&[]), false), 8);
        // An echo request is an information field.
        assert_eq!(sdlc.bits_of(&ip(1, 0, &[0; 64]), false), 8 + (4 + 84) * 8);
        assert_eq!(sdlc.bits_of(&packet(vec![0; 3]), false), 8 + (4 + 3) * 8);
        assert_eq!(sdlc.bits_of(&udp(&[0; 4]), true), 8 + (4 + 32) * 8 + 64 / 5, "a bridged frame");
        assert!(sdlc.checks() && sdlc.reads_content());
    }
}
