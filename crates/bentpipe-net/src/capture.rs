//! What a gateway sees of its site beyond [`Sockets`](crate::socket::Sockets): the connections of other sites, held until
//! the gateway has an answer for them.
//!
//! The emulator and the deployed gateway catch them in the kernel, the simulator in a site's own IP layer. The gateway
//! itself is written once, as a [`Program`](crate::socket::Program).

use crate::socket::{SocketError, SocketId};
use std::net::{IpAddr, SocketAddr};

/// A caught connection request; never reused within a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RequestId(pub u64);

/// Somebody behind this site wants to connect to somebody behind the other one. Nothing has answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Names it in [`Capture::answer`] and [`Capture::refuse`].
    pub id: RequestId,
    /// Who asks.
    pub client: SocketAddr,
    /// Who is asked.
    pub server: SocketAddr,
    /// The traffic class octet of the SYN: DSCP (RFC 2474) and, in the lowest two bits, ECN.
    pub traffic_class: u8,
}

/// How a request ends that is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// As a closed port does: a reset (RFC 9293 §3.5.2).
    Refused,
    /// As a router without a way there does: ICMP "host unreachable" (RFC 1812 §5.2.7.1).
    Unreachable,
    /// As a lost packet: no answer; the client asks again.
    Ignored,
    /// The packets of this connection pass unchanged, now and later.
    Bypassed,
}

/// A server that is asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its port.
    pub port: u16,
    /// As for [`Capture::connect_as`].
    pub traffic_class: u8,
    /// Who asks, so that nobody's look-ups wait for somebody else's; the server does not learn it.
    pub client: Option<IpAddr>,
    /// Which of the name's addresses may be connected to: whoever answers for the name does not decide that.
    pub may_connect: fn(IpAddr) -> bool,
}

/// What went past the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bypassed {
    /// Packets forwarded towards the link, which the gateway does not relay: not TCP, or not for it.
    pub packets: u64,
    /// Their bytes, IP header included.
    pub bytes: u64,
}

/// The sockets of a gateway's site. No call blocks.
pub trait Capture {
    /// Adds the sockets of this program that may have changed since the last call (readable, writable, open, ended), each
    /// once, so that many idle connections cost nothing.
    fn take_changed(&mut self, into: &mut Vec<SocketId>);
    /// The next connection request that was caught. A SYN that is repeated is not caught twice.
    fn next_request(&mut self) -> Option<Request>;
    /// Answers a request in its server's name. The socket is [`Opening`](crate::socket::Connection::Opening) until the
    /// client's handshake ends; its peer address is the client's, its local address the server's.
    fn answer(&mut self, request: RequestId) -> Result<SocketId, SocketError>;
    /// Ends a request without an answer.
    fn refuse(&mut self, request: RequestId, how: Refusal);
    /// Connects to `to`, in the name of `client` where the site can ([`Capture::keeps_addresses`]), with the DSCP of
    /// `traffic_class` on every packet.
    fn connect_as(
        &mut self,
        client: Option<SocketAddr>,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError>;
    /// Looks a name up at this site and connects to the first of its addresses that is allowed and answers;
    /// [`SocketError::Denied`] where none is allowed.
    fn connect_to_name(&mut self, server: Named<'_>) -> Result<SocketId, SocketError>;
    /// Whether [`Capture::connect_as`] shows the client's own address to the server.
    fn keeps_addresses(&self) -> bool;
    /// Whether the next byte that [`receive`](crate::socket::Sockets::receive) gives is urgent (RFC 9293 §3.8.5, RFC 6093).
    /// A receive call never crosses the mark. Asked before each receive.
    fn next_is_urgent(&mut self, socket: SocketId) -> bool;
    /// Sends one urgent byte; `false`: no room now.
    fn send_urgent(&mut self, socket: SocketId, byte: u8) -> Result<bool, SocketError>;
    /// Bytes given to `send` that the peer's stack has not acknowledged yet.
    fn unacknowledged(&mut self, socket: SocketId) -> u64;
    /// What has gone past the gateway so far, on the way that leads to `peer`, the other gateway; `None`: on the last way
    /// that was known. Where requests are caught in a model, the way is known.
    fn bypassed(&mut self, peer: Option<IpAddr>) -> Bypassed;
}
