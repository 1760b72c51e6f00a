//! Flows: what tells them apart, and what one TCP connection showed on the wire at one of its hosts.

use crate::time::Instant;
use std::net::IpAddr;

/// Facts of one connection as its host's packets showed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowFacts {
    /// When the host's first packet passed.
    pub start: Instant,
    /// When its last packet passed.
    pub end: Instant,
    /// MSS the host offered.
    pub mss: Option<u16>,
    /// Window scale the host's SYN showed on the wire.
    pub window_scale: Option<u8>,
    /// SACK offered.
    pub sack: bool,
    /// Timestamps offered.
    pub timestamps: bool,
    /// Largest window the host advertised, in bytes.
    pub window_max: u64,
    /// Segments with data the host sent.
    pub data_segments: u64,
    /// Their bytes.
    pub data_bytes: u64,
    /// Bytes of them sent before.
    pub repeated_bytes: u64,
    /// Segments with new data before the first acknowledgement of data.
    pub initial_burst: u64,
    /// Acknowledgements without data the host sent.
    pub pure_acks: u64,
    /// Segments with data that reached the host.
    pub segments_received: u64,
    /// Most data bytes the host had sent and not seen acknowledged.
    pub in_flight_max: u64,
    /// The host opened it (its SYN offers what it would; an answer offers only what was asked).
    pub active: bool,
}

/// What tells flows apart: addresses, protocol and ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// See [`crate::headers::protocol`].
    pub protocol: u8,
    /// The sender's port; 0 where there are no ports, and in fragments.
    pub source_port: u16,
    /// The receiver's port, likewise.
    pub destination_port: u16,
}

impl FlowKey {
    /// The flow in the opposite direction.
    #[must_use]
    pub fn reversed(self) -> FlowKey {
        FlowKey {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }
}
