//! The bytes that a [`Datagram`] stands for: IPv4, TCP, UDP, ICMP and ARP as on the wire, checksums included.

use crate::datagram::Datagram;

/// Appends the datagram's bytes to `out`: exactly [`Datagram::bytes`] of them.
pub fn write(_datagram: &Datagram, _out: &mut Vec<u8>) {
    todo!()
}

/// Reads a datagram from bytes; `ethernet`: they start with an Ethernet header. `None`: not one, or a checksum is wrong,
/// as a host that received it would find.
#[must_use]
pub fn parse(_bytes: &[u8], _ethernet: bool) -> Option<Datagram> {
    todo!()
}
