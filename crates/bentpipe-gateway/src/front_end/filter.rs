//! Filters: code that sees and changes the bytes of a relayed connection, at either end of the link.

use crate::log_event::Server;
use bentpipe_net::time::Instant;
use std::net::SocketAddr;

/// The end of a relayed connection at which a gateway stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

/// A connection that is about to be relayed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RelayedConnection<'a> {
    /// Where this gateway stands.
    pub end: End,
    /// The client, where it is known.
    pub client: Option<SocketAddr>,
    /// The server.
    pub server: &'a Server,
    /// Traffic class octet of the client's SYN.
    pub traffic_class: u8,
}

/// Decides which connections have a filter.
pub trait FilterSource: Send {
    /// A filter for this connection; `None`: its bytes pass as they are.
    fn filter(&mut self, connection: &RelayedConnection<'_>) -> Option<Box<dyn Filter>>;
}

/// Bytes that a filter lets pass or makes.
#[derive(Debug, Default)]
pub struct Filtered {
    /// For the other gateway.
    pub to_link: Vec<u8>,
    /// For the host at this gateway's site.
    pub to_host: Vec<u8>,
}

/// Sees and changes the bytes of one connection. Urgent bytes pass it by.
pub trait Filter: Send {
    /// `bytes` came from the host. Whatever is to go on, or back, is appended to `filtered`.
    fn host_sent(&mut self, now: Instant, bytes: &[u8], filtered: &mut Filtered);
    /// `bytes` came over the link.
    fn link_sent(&mut self, now: Instant, bytes: &[u8], filtered: &mut Filtered);
    /// The host has finished sending; the last bytes for the link.
    fn host_ended(&mut self, _now: Instant, _filtered: &mut Filtered) {}
    /// The other end has finished sending; the last bytes for the host.
    fn link_ended(&mut self, _now: Instant, _filtered: &mut Filtered) {}
    /// Does what is due though no bytes came. Early calls do nothing.
    fn wake(&mut self, _now: Instant, _filtered: &mut Filtered) {}
    /// When [`Filter::wake`] is due; `None`: never.
    fn next_wake(&self) -> Option<Instant> {
        None
    }
}
