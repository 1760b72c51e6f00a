//! What a port sees of its host's TCP: it holds the advertised window where the kernel cannot, and keeps the facts that
//! the record calls "seen".
//!
//! The kernel takes a receive window as a suggestion only. So packets that leave the host have their advertised window
//! lowered (never raised) to the host's `receive_window`, and packets that reach it to its `send_buffer`: a sender never
//! has more in flight than the lower of the two.

use crate::headers::{TcpView, flag, set_window, syn_options, tcp};
use bentpipe_link::time::Instant;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Connections followed at once; what comes beyond passes with its window field limited as if it were not scaled.
const FLOWS_MAX: usize = 65_536;

/// Limits that a port holds for its host, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowLimits {
    /// Most that the host advertises.
    pub receive_window: Option<u64>,
    /// Most that the host has in flight.
    pub send_buffer: Option<u64>,
}

/// One host's connections, as its port sees them.
#[derive(Debug)]
pub struct Tap {
    addresses: Vec<IpAddr>,
    limits: WindowLimits,
    connections: BTreeMap<(SocketAddr, SocketAddr), Connection>,
}

/// One connection: what the host sent, and what it needs to know of the peer.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// When the host's first packet passed.
    pub start: Instant,
    /// When its last packet passed.
    pub end: Instant,
    /// MSS the host offered.
    pub mss: Option<u16>,
    /// Window scale the host offered.
    pub window_scale: Option<u8>,
    /// SACK offered.
    pub sack: bool,
    /// Timestamps offered.
    pub timestamps: bool,
    /// Largest window the host advertised, after the limit, in bytes.
    pub window_max: u64,
    /// Segments with data the host sent.
    pub data_segments: u64,
    /// Their bytes.
    pub data_bytes: u64,
    /// Bytes of them sent before.
    pub repeated_bytes: u64,
    /// Segments with data before the first acknowledgement of data.
    pub initial_burst: u64,
    /// Acknowledgements without data the host sent.
    pub pure_acks: u64,
    /// Segments with data that reached the host.
    pub segments_received: u64,
    peer_scale: Option<u8>,
    syn_seen: bool,
    peer_syn_seen: bool,
    next_sequence: Option<u32>,
    first_sequence: u32,
    data_acknowledged: bool,
}

impl Connection {
    /// The shift of the host's own window fields, once both ends have offered scaling (RFC 7323 §2.2).
    fn own_shift(&self) -> u8 {
        match (self.window_scale, self.peer_scale) {
            (Some(own), Some(_)) => own,
            _ => 0,
        }
    }
    fn peer_shift(&self) -> u8 {
        match (self.window_scale, self.peer_scale) {
            (Some(_), Some(peer)) => peer,
            _ => 0,
        }
    }
}

impl Tap {
    /// A tap for the host with these addresses.
    #[must_use]
    pub fn new(addresses: Vec<IpAddr>, limits: WindowLimits) -> Tap {
        Tap { addresses, limits, connections: BTreeMap::new() }
    }

    /// A frame leaves the host.
    pub fn leaving(&mut self, now: Instant, frame: &mut [u8]) {
        let Some(view) = tcp(frame) else { return };
        if !self.addresses.contains(&view.source) {
            return; // routed through this site, not its own
        }
        let key =
            (SocketAddr::new(view.source, view.source_port), SocketAddr::new(view.destination, view.destination_port));
        let limit = self.limits.receive_window;
        let Some(connection) = self.connection(key, now) else {
            limit_window(frame, &view, 0, limit);
            return;
        };
        connection.end = now;
        let syn = view.flags & flag::SYN != 0;
        if syn {
            let options = syn_options(frame, &view);
            connection.syn_seen = true;
            connection.mss = options.mss;
            connection.window_scale = options.window_scale;
            connection.sack = options.sack;
            connection.timestamps = options.timestamps;
            connection.first_sequence = view.sequence.wrapping_add(1);
            connection.next_sequence = Some(connection.first_sequence);
        }
        // The window of a SYN is never scaled.
        let shift = if syn { 0 } else { connection.own_shift() };
        let window = limit_window(frame, &view, shift, limit);
        if view.flags & flag::RST == 0 {
            connection.window_max = connection.window_max.max(window);
        }
        if view.data_bytes > 0 {
            let data = view.data_bytes as u64;
            connection.data_segments += 1;
            connection.data_bytes += data;
            let end = view.sequence.wrapping_add(view.data_bytes as u32);
            let next = connection.next_sequence.get_or_insert(view.sequence);
            let ahead = end.wrapping_sub(*next);
            if ahead == 0 || ahead > u32::MAX / 2 {
                connection.repeated_bytes += data;
            } else {
                connection.repeated_bytes += data.saturating_sub(u64::from(ahead));
                *next = end;
            }
            if !connection.data_acknowledged {
                connection.initial_burst += 1;
            }
        } else if view.flags & (flag::SYN | flag::FIN | flag::RST) == 0 && view.flags & flag::ACK != 0 {
            connection.pure_acks += 1;
        }
    }

    /// A frame is about to reach the host.
    pub fn arriving(&mut self, now: Instant, frame: &mut [u8]) {
        let Some(view) = tcp(frame) else { return };
        if !self.addresses.contains(&view.destination) {
            return;
        }
        let key =
            (SocketAddr::new(view.destination, view.destination_port), SocketAddr::new(view.source, view.source_port));
        let limit = self.limits.send_buffer;
        let Some(connection) = self.connection(key, now) else {
            limit_window(frame, &view, 0, limit);
            return;
        };
        let syn = view.flags & flag::SYN != 0;
        if syn {
            connection.peer_syn_seen = true;
            connection.peer_scale = syn_options(frame, &view).window_scale;
        }
        if view.data_bytes > 0 {
            connection.segments_received += 1;
        }
        if view.flags & flag::ACK != 0 && connection.data_segments > 0 {
            let acknowledged = view.acknowledgement.wrapping_sub(connection.first_sequence);
            connection.data_acknowledged |= acknowledged > 0 && acknowledged < u32::MAX / 2;
        }
        let shift = if syn { 0 } else { connection.peer_shift() };
        limit_window(frame, &view, shift, limit);
    }

    /// The connections seen, by (own address, peer address).
    pub fn connections(&self) -> impl Iterator<Item = (&(SocketAddr, SocketAddr), &Connection)> {
        self.connections.iter()
    }

    fn connection(&mut self, key: (SocketAddr, SocketAddr), now: Instant) -> Option<&mut Connection> {
        if self.connections.len() >= FLOWS_MAX && !self.connections.contains_key(&key) {
            return None;
        }
        Some(self.connections.entry(key).or_insert_with(|| Connection { start: now, ..Connection::default() }))
    }
}

/// Lowers the advertised window to `limit` bytes; returns the window then advertised, in bytes.
fn limit_window(frame: &mut [u8], view: &TcpView, shift: u8, limit: Option<u64>) -> u64 {
    let advertised = u64::from(view.window) << shift;
    match limit {
        Some(limit) if advertised > limit => {
            let field = (limit >> shift).min(u64::from(u16::MAX)) as u16;
            set_window(frame, view, field);
            u64::from(field) << shift
        }
        _ => advertised,
    }
}
