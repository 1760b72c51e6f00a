//! The network: links, TCP connections, how late packets left.

use super::{BillRecord, CircuitState, Series};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// One link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LinkRecord {
    /// The link's name in the scenario.
    pub name: String,
    /// The catalogue entry or file it came from; empty for one that the scenario itself describes.
    pub kind: String,
    /// Its title: one line.
    pub summary: String,
    /// Forward first, then one return a terminal.
    pub directions: Vec<DirectionRecord>,
    /// For a circuit: calls and airtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<CircuitRecord>,
    /// For a link with a tariff: what its use cost, and whose part that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bill: Option<BillRecord>,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DirectionRecord {
    /// Sending site.
    pub from: String,
    /// Receiving sites; several on a broadcast.
    pub to: Vec<String>,
    /// Counters at the end of the case.
    pub counters: Counters,
    /// Cumulative counters and the queue over time.
    #[serde(default)]
    pub series: Vec<Series>,
}

/// Packets and bytes through one direction. offered = dropped + sent + still queued;
/// sent × receivers = delivered + damaged + lost + in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Counters {
    /// Packets handed to the queue.
    pub offered_packets: u64,
    /// Their bytes, framing not included.
    pub offered_bytes: u64,
    /// Packets the full queue refused.
    pub dropped_packets: u64,
    /// Packets the transmitter sent.
    pub sent_packets: u64,
    /// Bytes the transmitter sent, framing included, rounded up.
    pub link_bytes: u64,
    /// Packets with bit errors that the framing's check discarded.
    pub damaged_packets: u64,
    /// Packets delivered with bit errors (no check on this framing).
    #[serde(default)]
    pub delivered_damaged_packets: u64,
    /// Bits inverted by the medium.
    pub bit_errors: u64,
    /// Packets lost as a whole: packet loss, outage, a lost circuit.
    pub lost_packets: u64,
    /// Packets delivered.
    pub delivered_packets: u64,
    /// Their bytes, framing not included.
    pub delivered_bytes: u64,
    /// Longest queue, in bytes.
    pub queue_bytes_max: u64,
}

/// A circuit's calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CircuitRecord {
    /// Calls set up.
    pub calls: u64,
    /// Calls that a switch ended because of errors.
    pub calls_lost: u64,
    /// Time spent setting up, in seconds; of several calls, added up.
    pub setting_up: f64,
    /// Time on air, in seconds; of several calls, added up.
    pub on_air: f64,
    /// Cost, rounded; absent when the link has no tariff. Exact: the link's `bill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The currency of `cost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// With a call for each channel: most that were up at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels_most: Option<u64>,
    /// State changes in order of time; the first ten thousand.
    pub changes: Vec<CircuitChange>,
}

/// A change of a circuit's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CircuitChange {
    /// When.
    pub at: f64,
    /// The state since then.
    #[serde(flatten)]
    pub state: CircuitState,
}

/// Lateness of packets: wall time minus model time at their departure, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Lateness {
    /// Packets measured.
    pub packets: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Worst.
    pub worst: f64,
    /// The limit on the 99th percentile and on the worst.
    pub limit_p99: f64,
    /// The limit on the worst.
    pub limit_worst: f64,
    /// Packets lost between a host and the emulator (its ring was full); any makes the case invalid.
    pub missed_packets: u64,
    /// Histogram: (upper edge in seconds, packets).
    pub histogram: Vec<(f64, u64)>,
    /// The worst hundred: (seconds since the case's start, lateness).
    pub worst_hundred: Vec<(f64, f64)>,
}

/// Its host's view of one TCP connection over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TcpFlowSamples {
    /// The site whose kernel (or simulated stack) has the connection.
    pub host: String,
    /// From this host to the other end.
    pub flow: Flow,
    /// Congestion control in force.
    pub congestion_control: String,
    /// cwnd (segments), ssthresh, srtt (s), rto (s), retransmissions, unacknowledged segments, delivery rate (bit/s).
    pub series: Vec<Series>,
}

/// One TCP connection as seen at a site's port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FlowRecord {
    /// The site whose packets these are.
    pub host: String,
    /// From this host to the other end.
    pub flow: Flow,
    /// When its first packet passed.
    pub start: f64,
    /// When its last packet passed.
    pub end: f64,
    /// MSS offered in its SYN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// Window scale shift offered in its SYN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_scale: Option<u8>,
    /// SACK permitted in its SYN.
    pub sack: bool,
    /// Timestamps offered in its SYN.
    pub timestamps: bool,
    /// Largest window it advertised after the port's limit, in bytes.
    pub window_max: u64,
    /// Segments with data it sent.
    pub data_segments: u64,
    /// Data bytes it sent, repeated ones included.
    pub data_bytes: u64,
    /// Data bytes it sent more than once.
    pub repeated_bytes: u64,
    /// Data segments it sent before the first acknowledgement of data came back.
    pub initial_burst: u64,
    /// Acknowledgements without data it sent.
    pub pure_acks: u64,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Flow {
    /// The sender's end.
    pub source: Endpoint,
    /// The receiver's end.
    pub destination: Endpoint,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Endpoint {
    /// IPv4 or IPv6 address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
}

impl DirectionRecord {
    /// `hub → ship, shore`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} → {}", self.from, self.to.join(", "))
    }
}

impl Flow {
    /// From `source` to `destination`.
    #[must_use]
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Flow {
        Flow { source: source.into(), destination: destination.into() }
    }

    /// The other direction of the same connection.
    #[must_use]
    pub fn reversed(self) -> Flow {
        Flow { source: self.destination, destination: self.source }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.source, self.destination)
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        Endpoint { address: address.ip(), port: address.port() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", SocketAddr::from((self.address, self.port)))
    }
}
