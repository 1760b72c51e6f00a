//! A port's view of its host's TCP: it limits the advertised window where the kernel cannot, and keeps the facts that
//! the record calls "seen".
//!
//! The kernel takes a receive window as a suggestion only. So packets that leave the host have their advertised window
//! lowered (never raised) to the host's `receive_window`, and packets that reach it to its `send_buffer`: a sender never
//! has more in flight than the lower of the two.

use bentpipe_net::datagram::flag;
use bentpipe_net::flow::FlowFacts;
use bentpipe_net::headers::{TcpOptions, TcpView, set_window, set_window_scale, tcp};
use bentpipe_net::time::Instant;
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
    /// Observations of the host on the wire; windows after the port's limit.
    pub facts: FlowFacts,
    /// Window scale of the host's kernel, before the port lowered it.
    offered_scale: Option<u8>,
    peer_mss: Option<u16>,
    peer_scale: Option<u8>,
    peer_shown_scale: Option<u8>,
    peer_timestamps: bool,
    syn_seen: bool,
    next_sequence: Option<u32>,
    first_sequence: u32,
    acknowledged: u32,
    data_acknowledged: bool,
}

impl Connection {
    fn starting(now: Instant) -> Connection {
        Connection { facts: FlowFacts { start: now, ..FlowFacts::default() }, ..Connection::default() }
    }

    /// The shifts of the host's own window fields: as its kernel means them, as the wire shows them. Scaling is in force
    /// once both ends have offered it (RFC 7323 §2.2).
    fn own_shifts(&self) -> (u8, u8) {
        match (self.offered_scale, self.facts.window_scale, self.peer_scale) {
            (Some(meant), Some(shown), Some(_)) => (meant, shown),
            _ => (0, 0),
        }
    }

    /// The same of what reaches the host: as it came, as the host's kernel reads it.
    fn peer_shifts(&self) -> (u8, u8) {
        match (self.offered_scale, self.peer_scale, self.peer_shown_scale) {
            (Some(_), Some(came), Some(shown)) => (came, shown),
            _ => (0, 0),
        }
    }

    /// Data bytes of a full segment, as far as the SYNs announced.
    fn segment_bytes(&self) -> u64 {
        let mss = [self.facts.mss, self.peer_mss].into_iter().flatten().min().unwrap_or(MSS_DEFAULT);
        // Ten bytes of timestamps, padded to words, in every segment (RFC 7323 §3).
        let timestamps = if self.facts.timestamps && self.peer_timestamps { 12 } else { 0 };
        u64::from(mss).saturating_sub(timestamps).max(1)
    }

    /// The part of `limit` that may be advertised: whole segments, if there is room for one. A sender would fill the
    /// rest of the window with one small segment a round trip (RFC 1122 §4.2.3.3 asks receivers to avoid that, and
    /// stacks without window scaling, Linux among them, advertise whole segments).
    fn whole_segments(&self, limit: u64) -> u64 {
        let segment = self.segment_bytes();
        if limit < segment { limit } else { limit / segment * segment }
    }
}

/// The MSS of a host that offers none (RFC 9293 §3.7.1).
const MSS_DEFAULT: u16 = 536;

impl Tap {
    /// A tap for the host with these addresses.
    #[must_use]
    pub fn new(addresses: Vec<IpAddr>, limits: WindowLimits) -> Tap {
        Tap { addresses, limits, connections: BTreeMap::new() }
    }

    /// A frame leaves the host.
    pub fn leaving(&mut self, now: Instant, frame: &mut [u8]) {
        let Some(view) = tcp(frame, true) else { return };
        if !self.addresses.contains(&view.source.ip()) {
            return; // routed through this site, not its own
        }
        let key = (view.source, view.destination);
        let limit = self.limits.receive_window;
        let Some(connection) = self.connection(key, now) else {
            limit_window(frame, &view, (0, 0), limit);
            return;
        };
        connection.facts.end = now;
        let syn = view.flags & flag::SYN != 0;
        if syn {
            let options = TcpOptions::of(frame, &view);
            connection.syn_seen = true;
            connection.facts.mss = options.mss;
            connection.offered_scale = options.window_scale;
            connection.facts.window_scale = lower_scale(frame, &view, options.window_scale, limit);
            connection.facts.sack = options.sack_permitted;
            connection.facts.timestamps = options.timestamps.is_some();
            connection.facts.active = view.flags & flag::ACK == 0;
            connection.first_sequence = view.sequence.wrapping_add(1);
            connection.acknowledged = connection.first_sequence;
            connection.next_sequence = Some(connection.first_sequence);
        }
        // The window of a SYN is never scaled.
        let shifts = if syn { (0, 0) } else { connection.own_shifts() };
        let limit = limit.map(|limit| connection.whole_segments(limit));
        let window = limit_window(frame, &view, shifts, limit);
        if view.flags & flag::RST == 0 {
            connection.facts.window_max = connection.facts.window_max.max(window);
        }
        if view.data_bytes > 0 {
            let data = view.data_bytes as u64;
            connection.facts.data_segments += 1;
            connection.facts.data_bytes += data;
            let end = view.sequence.wrapping_add(view.data_bytes as u32);
            let next = connection.next_sequence.get_or_insert(view.sequence);
            let ahead = end.wrapping_sub(*next);
            let is_new = ahead > 0 && ahead <= u32::MAX / 2;
            if is_new {
                connection.facts.repeated_bytes += data.saturating_sub(u64::from(ahead));
                *next = end;
            } else {
                connection.facts.repeated_bytes += data;
            }
            let in_flight = connection.next_sequence.unwrap_or(end).wrapping_sub(connection.acknowledged);
            if connection.syn_seen && in_flight < u32::MAX / 2 {
                connection.facts.in_flight_max = connection.facts.in_flight_max.max(u64::from(in_flight));
            }
            if is_new && !connection.data_acknowledged {
                connection.facts.initial_burst += 1;
            }
        } else if view.flags & (flag::SYN | flag::FIN | flag::RST) == 0 && view.flags & flag::ACK != 0 {
            connection.facts.pure_ack(now, u64::from(view.acknowledgement));
        }
    }

    /// A frame is about to reach the host.
    pub fn arriving(&mut self, now: Instant, frame: &mut [u8]) {
        let Some(view) = tcp(frame, true) else { return };
        if !self.addresses.contains(&view.destination.ip()) {
            return;
        }
        let key = (view.destination, view.source);
        let limit = self.limits.send_buffer;
        let Some(connection) = self.connection(key, now) else {
            limit_window(frame, &view, (0, 0), limit);
            return;
        };
        let syn = view.flags & flag::SYN != 0;
        if syn {
            let options = TcpOptions::of(frame, &view);
            connection.peer_mss = options.mss;
            connection.peer_scale = options.window_scale;
            connection.peer_shown_scale = lower_scale(frame, &view, options.window_scale, limit);
            connection.peer_timestamps = options.timestamps.is_some();
        }
        if view.data_bytes > 0 {
            connection.facts.data_arrived(now);
        }
        if view.flags & flag::ACK != 0 && connection.facts.data_segments > 0 {
            let progress = view.acknowledgement.wrapping_sub(connection.acknowledged);
            if progress > 0 && progress < u32::MAX / 2 {
                connection.acknowledged = view.acknowledgement;
                connection.data_acknowledged = true;
            }
        }
        let shifts = if syn { (0, 0) } else { connection.peer_shifts() };
        let limit = limit.map(|limit| connection.whole_segments(limit));
        limit_window(frame, &view, shifts, limit);
    }

    /// The connections seen, by (own address, peer address).
    pub fn connections(&self) -> impl Iterator<Item = (&(SocketAddr, SocketAddr), &Connection)> {
        self.connections.iter()
    }

    fn connection(&mut self, key: (SocketAddr, SocketAddr), now: Instant) -> Option<&mut Connection> {
        if self.connections.len() >= FLOWS_MAX && !self.connections.contains_key(&key) {
            return None;
        }
        Some(self.connections.entry(key).or_insert_with(|| Connection::starting(now)))
    }
}

/// Lowers the window scale that a SYN offers to the least that can express `limit`, so that a window is exact to the
/// byte up to 64 KiB and to a small share of it above. Returns the shift that the SYN then shows.
fn lower_scale(frame: &mut [u8], view: &TcpView, offered: Option<u8>, limit: Option<u64>) -> Option<u8> {
    let (offered, limit) = (offered?, limit);
    let Some(limit) = limit else { return Some(offered) };
    let needed = (0..offered).find(|shift| limit >> shift <= u64::from(u16::MAX)).unwrap_or(offered);
    if needed < offered {
        set_window_scale(frame, view, needed);
    }
    Some(needed)
}

/// Lowers the advertised window to `limit` bytes and writes it with the shift that is shown; `shifts`: as meant by the
/// sender, as read by the receiver. Returns the window then advertised, in bytes.
fn limit_window(frame: &mut [u8], view: &TcpView, shifts: (u8, u8), limit: Option<u64>) -> u64 {
    let (meant, shown) = shifts;
    let advertised = u64::from(view.window) << meant;
    let allowed = limit.map_or(advertised, |limit| advertised.min(limit));
    let field = (allowed >> shown).min(u64::from(u16::MAX)) as u16;
    if field != view.window {
        set_window(frame, view, field);
    }
    u64::from(field) << shown
}

#[cfg(test)]
mod tests;
