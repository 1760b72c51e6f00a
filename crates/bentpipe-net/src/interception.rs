//! The sockets of a gateway's site: what [`Sockets`] lacks for relaying other hosts' connections, and the connection requests
//! of those hosts, intercepted and held until the gateway decides.
//!
//! The emulator and the deployed gateway intercept in the kernel, the simulator in a site's own IP layer. The gateway itself
//! is written once, as a [`GatewayProgram`].

use crate::line::Line;
use crate::socket::{SocketError, SocketId, Sockets};
use crate::time::Instant;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

/// An intercepted connection request; never reused within a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct RequestId(pub u64);

/// A host behind this site wants to connect to one behind the other. Nothing has answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Names it in [`Interception::answer`] and [`Interception::refuse`].
    pub id: RequestId,
    /// Source of the SYN.
    pub client: SocketAddr,
    /// Destination of the SYN.
    pub server: SocketAddr,
    /// The traffic class octet of the SYN: DSCP (RFC 2474) and, in the lowest two bits, ECN.
    pub traffic_class: u8,
}

/// The end of a request that is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// As a closed port does: a reset (RFC 9293 §3.5.2).
    Refused,
    /// As a router without a route does: ICMP "host unreachable" (RFC 1812 §5.2.7.1).
    Unreachable,
    /// As a lost packet: no answer; the client asks again.
    Ignored,
    /// The packets of this connection pass unchanged, now and later.
    Bypassed,
}

/// A server that is requested by name.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its port.
    pub port: u16,
    /// As for [`GatewaySockets::connect_as`].
    pub traffic_class: u8,
    /// Whose request it is, so that nobody's look-ups wait for somebody else's; the server does not learn it.
    pub client: Option<IpAddr>,
    /// Which of the name's addresses may be connected to: whoever answers for the name does not decide that.
    pub may_connect: fn(IpAddr) -> bool,
}

/// Traffic that bypassed the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bypassed {
    /// Packets forwarded towards the link, which the gateway does not relay: not TCP, or not for it.
    pub packets: u64,
    /// Their bytes, IP header included.
    pub bytes: u64,
}

/// Connection requests between other hosts, held at this site. No call blocks.
pub trait Interception {
    /// The next intercepted request. A SYN that is repeated makes no second one.
    fn next_request(&mut self) -> Option<Request>;
    /// Answers a request in its server's name. The socket is [`Opening`](crate::socket::Connection::Opening) until the
    /// client's handshake ends; its peer address is the client's, its local address the server's.
    fn answer(&mut self, request: RequestId) -> Result<SocketId, SocketError>;
    /// Ends a request without an answer.
    fn refuse(&mut self, request: RequestId, how: Refusal);
    /// Traffic that has bypassed the gateway so far, on the route that leads to `peer`, the other gateway; `None`: on the
    /// last route that was known. Where requests are intercepted in a model, the route is known.
    fn bypassed(&mut self, peer: Option<IpAddr>) -> Bypassed;
}

/// The sockets of a gateway's site. No call blocks.
pub trait GatewaySockets: Sockets + Interception {
    /// Adds the sockets of this program that may have changed since the last call (readable, writable, open, ended), each
    /// once, so that many idle connections cost nothing.
    fn take_changed(&mut self, into: &mut Vec<SocketId>);
    /// Listens for TCP connections at one of the site's addresses. A modelled site listens at all of them.
    fn listen_at(&mut self, address: SocketAddr) -> Result<SocketId, SocketError> {
        self.listen(address.port())
    }
    /// Connects to `to`, in the name of `client` where the site can ([`GatewaySockets::keeps_addresses`]), with the DSCP of
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
    /// True if [`GatewaySockets::connect_as`] shows the client's own address to the server.
    fn keeps_addresses(&self) -> bool;
    /// True if the next byte that [`receive`](Sockets::receive) gives is urgent (RFC 9293 §3.8.5, RFC 6093). A receive call
    /// never crosses the mark. Called before each receive.
    fn next_is_urgent(&mut self, socket: SocketId) -> bool;
    /// Sends one urgent byte; `false`: no room now.
    fn send_urgent(&mut self, socket: SocketId, byte: u8) -> Result<bool, SocketError>;
    /// The line that the gateway dials; `None`: it has none.
    fn line(&mut self) -> Option<&mut dyn Line> {
        None
    }
    /// Bytes given to `send` that the peer's stack has not acknowledged yet.
    fn unacknowledged(&mut self, socket: SocketId) -> u64;
}

/// A program that runs at a gateway's site: as [`Program`](crate::socket::Program), over [`GatewaySockets`].
pub trait GatewayProgram: Send {
    /// Does whatever can be done now. The first call starts the program.
    fn poll(&mut self, now: Instant, sockets: &mut dyn GatewaySockets);
    /// When `poll` must be called at the latest though no socket changes; `None`: never.
    fn next_wake(&self) -> Option<Instant>;
    /// Nothing is left to do.
    fn is_done(&self) -> bool;
}

impl<P: GatewayProgram + ?Sized> GatewayProgram for Box<P> {
    fn poll(&mut self, now: Instant, sockets: &mut dyn GatewaySockets) {
        (**self).poll(now, sockets);
    }
    fn next_wake(&self) -> Option<Instant> {
        (**self).next_wake()
    }
    fn is_done(&self) -> bool {
        (**self).is_done()
    }
}

/// A network without gateways.
impl GatewayProgram for Infallible {
    fn poll(&mut self, _: Instant, _: &mut dyn GatewaySockets) {
        match *self {}
    }
    fn next_wake(&self) -> Option<Instant> {
        match *self {}
    }
    fn is_done(&self) -> bool {
        match *self {}
    }
}

/// Implements methods of [`Sockets`] by calling the same methods of a field: for types that wrap sockets and change a few
/// of their calls.
///
/// ```ignore
/// impl Sockets for Wrapper<'_> {
///     bentpipe_net::delegate_sockets!(inner: connect connection send receive);
///     // … the others, written out
/// }
/// ```
#[macro_export]
macro_rules! delegate_sockets {
    ($field:ident: $($method:ident)*) => { $($crate::delegate_sockets!(@ $method $field);)* };
    (@ connect $f:ident) => {
        fn connect(&mut self, to: std::net::SocketAddr) -> Result<$crate::socket::SocketId, $crate::socket::SocketError> {
            self.$f.connect(to)
        }
    };
    (@ connection $f:ident) => {
        fn connection(
            &mut self,
            socket: $crate::socket::SocketId,
        ) -> Result<$crate::socket::Connection, $crate::socket::SocketError> {
            self.$f.connection(socket)
        }
    };
    (@ listen $f:ident) => {
        fn listen(&mut self, port: u16) -> Result<$crate::socket::SocketId, $crate::socket::SocketError> {
            self.$f.listen(port)
        }
    };
    (@ accept $f:ident) => {
        fn accept(
            &mut self,
            listener: $crate::socket::SocketId,
        ) -> Result<Option<$crate::socket::SocketId>, $crate::socket::SocketError> {
            self.$f.accept(listener)
        }
    };
    (@ local_address $f:ident) => {
        fn local_address(
            &mut self,
            socket: $crate::socket::SocketId,
        ) -> Result<std::net::SocketAddr, $crate::socket::SocketError> {
            self.$f.local_address(socket)
        }
    };
    (@ peer_address $f:ident) => {
        fn peer_address(
            &mut self,
            socket: $crate::socket::SocketId,
        ) -> Result<std::net::SocketAddr, $crate::socket::SocketError> {
            self.$f.peer_address(socket)
        }
    };
    (@ send $f:ident) => {
        fn send(&mut self, socket: $crate::socket::SocketId, data: &[u8]) -> Result<usize, $crate::socket::SocketError> {
            self.$f.send(socket, data)
        }
    };
    (@ receive $f:ident) => {
        fn receive(
            &mut self,
            socket: $crate::socket::SocketId,
            into: &mut [u8],
        ) -> Result<$crate::socket::Received, $crate::socket::SocketError> {
            self.$f.receive(socket, into)
        }
    };
    (@ finish $f:ident) => {
        fn finish(&mut self, socket: $crate::socket::SocketId) {
            self.$f.finish(socket);
        }
    };
    (@ close $f:ident) => {
        fn close(&mut self, socket: $crate::socket::SocketId) {
            self.$f.close(socket);
        }
    };
    (@ abort $f:ident) => {
        fn abort(&mut self, socket: $crate::socket::SocketId) {
            self.$f.abort(socket);
        }
    };
    (@ patterns $f:ident) => {
        fn send_pattern(
            &mut self,
            socket: $crate::socket::SocketId,
            pattern: u64,
            offset: u64,
            length: u64,
        ) -> Result<u64, $crate::socket::SocketError> {
            self.$f.send_pattern(socket, pattern, offset, length)
        }
        fn receive_pattern(
            &mut self,
            socket: $crate::socket::SocketId,
            pattern: u64,
            offset: u64,
            max: u64,
        ) -> Result<$crate::socket::ReceivedPattern, $crate::socket::SocketError> {
            self.$f.receive_pattern(socket, pattern, offset, max)
        }
    };
    (@ segments $f:ident) => {
        fn segments(
            &mut self,
            socket: $crate::socket::SocketId,
        ) -> Result<$crate::socket::Segments, $crate::socket::SocketError> {
            self.$f.segments(socket)
        }
    };
    (@ set_option $f:ident) => {
        fn set_option(
            &mut self,
            socket: $crate::socket::SocketId,
            option: $crate::socket::SocketOption,
        ) -> Result<(), $crate::socket::SocketError> {
            self.$f.set_option(socket, option)
        }
    };
    (@ open_datagram $f:ident) => {
        fn open_datagram(&mut self, port: u16) -> Result<$crate::socket::SocketId, $crate::socket::SocketError> {
            self.$f.open_datagram(port)
        }
    };
    (@ send_to $f:ident) => {
        fn send_to(
            &mut self,
            socket: $crate::socket::SocketId,
            to: std::net::SocketAddr,
            data: &[u8],
        ) -> Result<bool, $crate::socket::SocketError> {
            self.$f.send_to(socket, to, data)
        }
    };
    (@ receive_from $f:ident) => {
        fn receive_from(
            &mut self,
            socket: $crate::socket::SocketId,
            into: &mut [u8],
        ) -> Result<Option<$crate::socket::Arrival>, $crate::socket::SocketError> {
            self.$f.receive_from(socket, into)
        }
    };
    (@ echoes $f:ident) => {
        fn open_echo(&mut self) -> Result<$crate::socket::SocketId, $crate::socket::SocketError> {
            self.$f.open_echo()
        }
        fn send_echo(
            &mut self,
            socket: $crate::socket::SocketId,
            to: std::net::IpAddr,
            sequence: u16,
            data: &[u8],
        ) -> Result<bool, $crate::socket::SocketError> {
            self.$f.send_echo(socket, to, sequence, data)
        }
        fn receive_echo(
            &mut self,
            socket: $crate::socket::SocketId,
            into: &mut [u8],
        ) -> Result<Option<(u16, usize, $crate::time::Instant)>, $crate::socket::SocketError> {
            self.$f.receive_echo(socket, into)
        }
    };
}
