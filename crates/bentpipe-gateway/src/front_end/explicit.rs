//! Explicit proxies: clients connect to a listener of the gateway and state whom they want.

use super::{Admission, FrontEnd};
use crate::log_event::{Outcome, Server};
use crate::relay::frame::is_name;
use bentpipe_net::interception::GatewaySockets;
use bentpipe_net::socket::SocketId;
use bentpipe_net::time::{Duration, Instant};
use std::net::{IpAddr, SocketAddr};

/// When a port that could not be opened is tried again.
const REOPEN: Duration = Duration::from_secs(1);

/// State of a negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The request is not complete.
    More,
    /// The client wants to be connected. `rest` was sent after the request: the connection's first bytes.
    Connect {
        /// To whom.
        server: Server,
        /// The bytes after the request.
        rest: Vec<u8>,
    },
    /// No request: the connection is closed once the reply is out.
    Bad,
}

/// The protocol that one client of an explicit proxy speaks until it is connected.
pub trait Negotiation: Send {
    /// The client sent `bytes`; what must be answered is appended to `reply`.
    fn receive(&mut self, bytes: &[u8], reply: &mut Vec<u8>) -> Progress;
    /// Appends the reply to a complete request that `outcome` demands.
    fn reply(&self, outcome: Outcome, into: &mut Vec<u8>);
    /// Bytes that this holds.
    fn memory(&self) -> usize;
}

/// A server by name, or by an address in the place of a name. `None`: it is neither.
#[must_use]
pub fn server(host: &str, port: u16) -> Option<Server> {
    match host.parse::<IpAddr>() {
        Ok(ip) => Some(Server::Address(SocketAddr::new(ip, port))),
        Err(_) => is_name(host).then(|| Server::Name(host.to_owned(), port)),
    }
}

/// A TCP listener that is opened as soon as it can be.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    address: SocketAddr,
    socket: Option<SocketId>,
    /// When it is tried again; `None`: it is open, or closed for good.
    open_at: Option<Instant>,
    reported: bool,
}

impl Listener {
    /// Not open yet. `name` is for the log.
    #[must_use]
    pub fn new(name: &'static str, address: SocketAddr) -> Listener {
        Listener { name, address, socket: None, open_at: Some(Instant::ZERO), reported: false }
    }

    /// The next client that has connected. Opens the listener first if it is not open.
    pub fn accept(&mut self, now: Instant, gateway: &mut dyn Admission) -> Option<SocketId> {
        if self.open_at.is_some_and(|at| at <= now) {
            match gateway.sockets().listen_at(self.address) {
                Ok(socket) => (self.socket, self.open_at) = (Some(socket), None),
                Err(why) => {
                    self.open_at = Some(now + REOPEN);
                    if !std::mem::replace(&mut self.reported, true) {
                        gateway.no_socket(self.name, self.address.port(), why);
                    }
                }
            }
        }
        gateway.sockets().accept(self.socket?).ok().flatten()
    }

    /// When [`Listener::accept`] is due though no socket changes.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        self.open_at
    }

    /// Closes it for good.
    pub fn close(&mut self, sockets: &mut dyn GatewaySockets) {
        self.open_at = None;
        if let Some(socket) = self.socket.take() {
            sockets.close(socket);
        }
    }
}

/// A listener and the protocol of its clients.
pub(super) struct Explicit {
    pub listener: Listener,
    pub negotiation: fn() -> Box<dyn Negotiation>,
}

impl FrontEnd for Explicit {
    fn poll(&mut self, now: Instant, gateway: &mut dyn Admission) {
        while let Some(socket) = self.listener.accept(now, gateway) {
            gateway.accept(socket, (self.negotiation)());
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.listener.next_wake()
    }

    fn close(&mut self, sockets: &mut dyn GatewaySockets) {
        self.listener.close(sockets);
    }
}

/// Feeds `bytes` in pieces of `step`; what came of it and all that was replied.
#[cfg(test)]
pub(super) fn feed(mut negotiation: Box<dyn Negotiation>, bytes: &[u8], step: usize) -> (Progress, Vec<u8>) {
    let (mut reply, mut progress, mut fed) = (Vec::new(), Progress::More, 0);
    for piece in bytes.chunks(step) {
        progress = negotiation.receive(piece, &mut reply);
        fed += piece.len();
        if progress != Progress::More {
            break;
        }
    }
    if let Progress::Connect { rest, .. } = &mut progress {
        rest.extend_from_slice(&bytes[fed..]);
    }
    (progress, reply)
}
