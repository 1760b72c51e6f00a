//! Reading and mending the few header fields the emulator's ports need: where TCP lies in a frame, its window, its
//! checksum. All lengths are checked; a frame that does not fit is simply not TCP.

use std::net::IpAddr;

const ETHERNET: usize = crate::port::ETHERNET_HEADER;
const TCP_PROTOCOL: u8 = 6;
const UDP_PROTOCOL: u8 = 17;

/// Where a TCP segment lies in a frame, and what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpView {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Offset of the TCP header in the frame.
    pub offset: usize,
    /// Length of the TCP header.
    pub header_bytes: usize,
    /// Length of the data.
    pub data_bytes: usize,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32.
    pub flags: u8,
    /// Window field, not scaled.
    pub window: u16,
}

/// Flag bits of TCP.
pub mod flag {
    /// No more data.
    pub const FIN: u8 = 1;
    /// Synchronise.
    pub const SYN: u8 = 2;
    /// Reset.
    pub const RST: u8 = 4;
    /// Acknowledgement number is valid.
    pub const ACK: u8 = 16;
}

/// Options of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SynOptions {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale shift.
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack: bool,
    /// Timestamps.
    pub timestamps: bool,
}

/// Where the network header's payload lies: (protocol, offset, end, source, destination).
fn transport(frame: &[u8]) -> Option<(u8, usize, usize, IpAddr, IpAddr)> {
    let ethertype = u16::from_be_bytes(frame.get(12..14)?.try_into().ok()?);
    let ip = frame.get(ETHERNET..)?;
    match ethertype {
        0x0800 => {
            let header = usize::from(ip.first()? & 0x0f) * 4;
            let total = usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?));
            let fragment = u16::from_be_bytes(ip.get(6..8)?.try_into().ok()?) & 0x3fff;
            // A total length of 0 is a super-packet above 64 KiB: take what there is.
            let total = if total == 0 { ip.len() } else { total };
            if ip[0] >> 4 != 4 || header < 20 || total < header || total > ip.len() || fragment != 0 {
                return None;
            }
            let source: [u8; 4] = ip.get(12..16)?.try_into().ok()?;
            let destination: [u8; 4] = ip.get(16..20)?.try_into().ok()?;
            Some((ip[9], ETHERNET + header, ETHERNET + total, source.into(), destination.into()))
        }
        0x86dd => {
            let payload = usize::from(u16::from_be_bytes(ip.get(4..6)?.try_into().ok()?));
            if ip[0] >> 4 != 6 || 40 + payload > ip.len() {
                return None;
            }
            let source: [u8; 16] = ip.get(8..24)?.try_into().ok()?;
            let destination: [u8; 16] = ip.get(24..40)?.try_into().ok()?;
            Some((ip[6], ETHERNET + 40, ETHERNET + 40 + payload, source.into(), destination.into()))
        }
        _ => None,
    }
}

/// The TCP segment in an Ethernet frame (IPv4 without fragments, or IPv6 without extension headers).
#[must_use]
pub fn tcp(frame: &[u8]) -> Option<TcpView> {
    let (protocol, offset, end, source, destination) = transport(frame)?;
    let segment = frame.get(offset..end)?;
    if protocol != TCP_PROTOCOL || segment.len() < 20 {
        return None;
    }
    let header_bytes = usize::from(segment[12] >> 4) * 4;
    if header_bytes < 20 || header_bytes > segment.len() {
        return None;
    }
    let u16_at = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes([segment[at], segment[at + 1], segment[at + 2], segment[at + 3]]);
    Some(TcpView {
        source,
        destination,
        source_port: u16_at(0),
        destination_port: u16_at(2),
        offset,
        header_bytes,
        data_bytes: segment.len() - header_bytes,
        sequence: u32_at(4),
        acknowledgement: u32_at(8),
        flags: segment[13],
        window: u16_at(14),
    })
}

/// The options of a SYN.
#[must_use]
pub fn syn_options(frame: &[u8], view: &TcpView) -> SynOptions {
    let mut options = SynOptions::default();
    let mut rest = frame.get(view.offset + 20..view.offset + view.header_bytes).unwrap_or_default();
    while let [kind, tail @ ..] = rest {
        match (kind, tail) {
            (0, _) => break,
            (1, _) => rest = tail,
            (_, [length, ..]) if (2..=rest.len()).contains(&usize::from(*length)) => {
                let value = &rest[2..usize::from(*length)];
                match (kind, value) {
                    (2, [high, low]) => options.mss = Some(u16::from_be_bytes([*high, *low])),
                    // RFC 7323 §2.3: a shift above 14 counts as 14.
                    (3, [shift]) => options.window_scale = Some((*shift).min(14)),
                    (4, []) => options.sack = true,
                    (8, _) => options.timestamps = true,
                    _ => {}
                }
                rest = &rest[usize::from(*length)..];
            }
            _ => break,
        }
    }
    options
}

/// Writes another window into a segment and corrects the checksum.
pub fn set_window(frame: &mut [u8], view: &TcpView, window: u16) {
    set_word(frame, view, 14, window);
}

/// Writes another window scale shift into a SYN that offers one, and corrects the checksum.
pub fn set_window_scale(frame: &mut [u8], view: &TcpView, shift: u8) {
    let mut at = 20;
    while at < view.header_bytes {
        let option = &frame[view.offset + at..view.offset + view.header_bytes];
        match option {
            [0, ..] => return,
            [1, ..] => at += 1,
            [3, 3, _, ..] => {
                let value = at + 2;
                let even = value & !1;
                let mut word = [frame[view.offset + even], frame[view.offset + even + 1]];
                word[value & 1] = shift;
                set_word(frame, view, even, u16::from_be_bytes(word));
                return;
            }
            [_, length, ..] if *length >= 2 => at += usize::from(*length),
            _ => return,
        }
    }
}

/// Replaces the 16 bits at an even offset of the TCP header and corrects the checksum (RFC 1624, equation 3).
fn set_word(frame: &mut [u8], view: &TcpView, offset: usize, word: u16) {
    let place = view.offset + offset;
    let old = u16::from_be_bytes([frame[place], frame[place + 1]]);
    frame[place..place + 2].copy_from_slice(&word.to_be_bytes());
    let at = view.offset + 16;
    let checksum = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(word);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    frame[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Computes the TCP or UDP checksum that a sender left to an offload.
pub fn complete_checksum(frame: &mut [u8]) {
    let Some((protocol, offset, end, source, destination)) = transport(frame) else { return };
    let at = offset
        + match protocol {
            TCP_PROTOCOL => 16,
            UDP_PROTOCOL => 6,
            _ => return,
        };
    if at + 2 > end {
        return;
    }
    frame[at..at + 2].fill(0);
    let mut sum = Sum::default();
    match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            sum.add(&a.octets());
            sum.add(&b.octets());
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            sum.add(&a.octets());
            sum.add(&b.octets());
        }
        _ => return,
    }
    sum.add(&[0, protocol]);
    sum.add(&((end - offset) as u32).to_be_bytes());
    sum.add(&frame[offset..end]);
    let value = match (sum.finish(), protocol) {
        (0, UDP_PROTOCOL) => 0xffff,
        (value, _) => value,
    };
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Cuts a TCP super-packet (an offload was on) into packets of at most `mtu` bytes, each with its own headers and
/// checksums, and calls `each` with every one. Returns `false` for what cannot be cut.
pub fn split_super_packet(frame: &[u8], mtu: usize, scratch: &mut Vec<u8>, mut each: impl FnMut(&mut [u8])) -> bool {
    let Some(view) = tcp(frame) else { return false };
    let headers = view.offset + view.header_bytes;
    let Some(room) = (ETHERNET + mtu).checked_sub(headers).filter(|room| *room > 0) else { return false };
    let data = &frame[headers..headers + view.data_bytes];
    let pieces = data.chunks(room).count();
    for (i, piece) in data.chunks(room).enumerate() {
        scratch.clear();
        scratch.extend_from_slice(&frame[..headers]);
        scratch.extend_from_slice(piece);
        let length = scratch.len() - ETHERNET;
        if view.source.is_ipv4() {
            scratch[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&(length as u16).to_be_bytes());
            let id = u16::from_be_bytes([frame[ETHERNET + 4], frame[ETHERNET + 5]]).wrapping_add(i as u16);
            scratch[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&id.to_be_bytes());
            scratch[ETHERNET + 10..ETHERNET + 12].fill(0);
            let mut sum = Sum::default();
            sum.add(&scratch[ETHERNET..view.offset]);
            let checksum = sum.finish();
            scratch[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            scratch[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
        }
        let sequence = view.sequence.wrapping_add((i * room) as u32);
        scratch[view.offset + 4..view.offset + 8].copy_from_slice(&sequence.to_be_bytes());
        if i + 1 < pieces {
            scratch[view.offset + 13] &= !(flag::FIN | 8);
        }
        complete_checksum(scratch);
        each(scratch);
    }
    true
}

/// The Internet checksum (RFC 1071).
#[derive(Default)]
pub(crate) struct Sum {
    sum: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(2);
        for word in &mut words {
            self.sum += u64::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [last] = words.remainder() {
            self.sum += u64::from(*last) << 8;
        }
    }

    pub(crate) fn finish(mut self) -> u16 {
        while self.sum > 0xffff {
            self.sum = (self.sum & 0xffff) + (self.sum >> 16);
        }
        !(self.sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An Ethernet frame with an IPv4 TCP segment, SYN options and all, checksums right.
    fn segment(data: &[u8], window: u16) -> Vec<u8> {
        let mut frame = vec![0u8; 12];
        frame.extend([0x08, 0x00]);
        let total = 20 + 32 + data.len();
        let mut ip = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 7, 0x40, 0, 64, 6, 0, 0];
        ip.extend([198, 18, 1, 1, 198, 18, 1, 2]);
        let mut sum = Sum::default();
        sum.add(&ip);
        ip[10..12].copy_from_slice(&sum.finish().to_be_bytes());
        frame.extend(ip);
        frame.extend([0x13, 0x89, 0, 80, 0, 0, 3, 232, 0, 0, 0, 9, 8 << 4, 0x18]);
        frame.extend(window.to_be_bytes());
        frame.extend([0, 0, 0, 0]);
        frame.extend([2, 4, 5, 180, 4, 2, 3, 3, 7, 1, 1, 0]);
        frame.extend(data);
        complete_checksum(&mut frame);
        frame
    }

    fn checksum_is_right(frame: &[u8]) -> bool {
        let mut again = frame.to_vec();
        complete_checksum(&mut again);
        again == frame
    }

    #[test]
    fn reads_a_segment() {
        let frame = segment(b"hello", 4000);
        let view = tcp(&frame).unwrap();
        assert_eq!((view.source_port, view.destination_port, view.data_bytes, view.window), (5001, 80, 5, 4000));
        assert_eq!((view.sequence, view.acknowledgement), (1000, 9));
        let options = syn_options(&frame, &view);
        assert_eq!(options, SynOptions { mss: Some(1460), window_scale: Some(7), sack: true, timestamps: false });
    }

    #[test]
    fn a_super_packet_becomes_packets_that_fit() {
        let data: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
        let frame = segment(&data, 1);
        let mut out = Vec::new();
        let mut sequences = Vec::new();
        assert!(split_super_packet(&frame, 1500, &mut Vec::new(), |piece| {
            assert!(piece.len() <= 1514 && checksum_is_right(piece));
            let view = tcp(piece).unwrap();
            sequences.push(view.sequence);
            out.extend_from_slice(&piece[view.offset + view.header_bytes..]);
        }));
        assert_eq!(out, data);
        assert_eq!(sequences[..2], [1000, 2448]);
    }

    proptest! {
        #[test]
        fn a_changed_window_keeps_the_checksum_right(before: u16, after: u16, data: Vec<u8>) {
            let mut frame = segment(&data, before);
            let view = tcp(&frame).unwrap();
            set_window(&mut frame, &view, after);
            prop_assert!(checksum_is_right(&frame));
            prop_assert_eq!(tcp(&frame).unwrap().window, after);
        }

        #[test]
        fn a_changed_window_scale_keeps_the_checksum_right(shift in 0u8..15, data: Vec<u8>) {
            let mut frame = segment(&data, 100);
            let view = tcp(&frame).unwrap();
            set_window_scale(&mut frame, &view, shift);
            prop_assert!(checksum_is_right(&frame));
            prop_assert_eq!(syn_options(&frame, &view).window_scale, Some(shift));
        }

        #[test]
        fn no_frame_panics(mut frame: Vec<u8>, ipv6: bool) {
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(if ipv6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
            }
            if let Some(view) = tcp(&frame) {
                let _ = syn_options(&frame, &view);
                set_window(&mut frame, &view, 1);
                set_window_scale(&mut frame, &view, 1);
            }
            split_super_packet(&frame, 576, &mut Vec::new(), |_| {});
            complete_checksum(&mut frame);
        }

        #[test]
        fn no_tcp_options_panic(options in proptest::collection::vec(any::<u8>(), 12)) {
            let mut frame = segment(b"", 1);
            frame[54..66].copy_from_slice(&options);
            let view = tcp(&frame).unwrap();
            set_window_scale(&mut frame, &view, 1);
            let _ = syn_options(&frame, &view);
        }
    }
}
