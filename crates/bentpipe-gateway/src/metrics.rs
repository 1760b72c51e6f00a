//! A gateway's counters: the source of its metrics, records and reports.

use crate::dial::LineMetrics;
use crate::satellite::Statistics;

/// A gateway's counters so far. Every field counts up, except those that say "now".
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Metrics {
    /// Relayed connections that are open now.
    pub connections_open: u64,
    /// Requests that wait for an answer now.
    pub requests_pending: u64,
    /// Requests intercepted, or made to a proxy here.
    pub requests: u64,
    /// Connections that were relayed: opened at the server's side.
    pub relayed: u64,
    /// Requests that the server refused.
    pub refused: u64,
    /// Requests to servers that could not be reached, or whose names nobody knows.
    pub unreachable: u64,
    /// Requests that nobody answered in time.
    pub timed_out: u64,
    /// Requests that passed the gateway by (`fail = "open"`).
    pub bypassed: u64,
    /// Requests refused here because the other gateway could not be reached (`fail = "closed"`).
    pub turned_away: u64,
    /// Requests that the other gateway or this one did not allow.
    pub denied: u64,
    /// Requests over the limits of [`GatewayConfig`](crate::GatewayConfig): pending ones, connections.
    pub over_limit: u64,
    /// Requests that the client gave up.
    pub abandoned: u64,
    /// Connections that ended in order: both directions to their end.
    pub ended: u64,
    /// Connections that ended with a reset of the client or the server.
    pub reset: u64,
    /// Connections that were reset because the connection of the pair was lost.
    pub lost: u64,
    /// Connections that were reset because the other gateway sent something that is not the protocol.
    pub malformed: u64,
    /// SOCKS and CONNECT clients that asked for something that is no request.
    pub bad_requests: u64,
    /// Bytes taken from sockets at this site.
    pub bytes_taken: u64,
    /// Bytes given to sockets at this site.
    pub bytes_given: u64,
    /// Bytes of frames given to the satellite side for what was taken: after compression, framing of streams included.
    pub bytes_sent: u64,
    /// Bytes of frames that came from the satellite side.
    pub bytes_received: u64,
    /// Of the bytes taken, those that went through compression.
    pub compressed_from: u64,
    /// The bytes after compression.
    pub compressed_to: u64,
    /// Packets that passed the gateway by.
    pub bypass_packets: u64,
    /// Their bytes.
    pub bypass_bytes: u64,
    /// Bytes that wait in the relay now.
    pub memory_buffered: u64,
    /// Compression contexts that exist now.
    pub contexts: u64,
    /// The pair is connected now.
    pub connected: bool,
    /// The other gateway is silent now, though something was expected.
    pub silent: bool,
    /// Of the line that it dials.
    pub line: LineMetrics,
    /// The satellite side's statistics.
    pub satellite: Statistics,
}

impl Metrics {
    /// Bytes before compression ÷ bytes after: 1 when nothing went through it.
    #[must_use]
    pub fn compression_ratio(&self) -> f64 {
        if self.compressed_to == 0 { 1.0 } else { self.compressed_from as f64 / self.compressed_to as f64 }
    }
}
