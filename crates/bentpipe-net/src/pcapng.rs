//! Captures in pcapng (IETF draft-ietf-opsawg-pcapng): nanosecond stamps, direction flags. Opens in Wireshark and tshark.
//!
//! A file is one [`section_header`], an [`interface_description`] for each interface, and an [`enhanced_packet`] for each
//! frame.

/// Whether a packet leaves a host or reaches it (the two low bits of `epb_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// Reaches the host.
    Inbound = 1,
    /// Leaves the host.
    Outbound = 2,
}

/// The link type of an interface: the first header of its frames (IETF draft-ietf-opsawg-pcaplinktype).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet = 1,
    /// An IPv4 or IPv6 header (`LINKTYPE_RAW`).
    Ip = 101,
}

/// Appends the block that a file starts with (§4.1).
pub fn section_header(out: &mut Vec<u8>) {
    block(out, 0x0a0d_0d0a, |body| {
        body.extend(0x1a2b_3c4du32.to_le_bytes());
        body.extend(1u16.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        option(body, 4, concat!("bentpipe ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(body, 0, b"");
    });
}

/// Appends the description of the next interface; the first is number 0 (§4.2).
pub fn interface_description(out: &mut Vec<u8>, name: &str, link_type: LinkType) {
    block(out, 1, |body| {
        body.extend((link_type as u16).to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(0u32.to_le_bytes()); // no limit on length
        option(body, 2, name.as_bytes());
        option(body, 9, &[9]); // stamps in nanoseconds
        option(body, 0, b"");
    });
}

/// Appends a frame that passed `interface` at `real_ns` nanoseconds since 1970 (§4.3).
pub fn enhanced_packet(out: &mut Vec<u8>, interface: u32, real_ns: u64, passing: Passing, frame: &[u8]) {
    block(out, 6, |body| {
        body.extend(interface.to_le_bytes());
        body.extend(((real_ns >> 32) as u32).to_le_bytes());
        body.extend((real_ns as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend_from_slice(frame);
        pad(body);
        option(body, 2, &(passing as u32).to_le_bytes());
        option(body, 0, b"");
    });
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = (out.len() - start + 4) as u32;
    out.extend(length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out);
}

/// Blocks are made of 32-bit words and start aligned.
fn pad(out: &mut Vec<u8>) {
    while !out.len().is_multiple_of(4) {
        out.push(0);
    }
}
