//! Front ends: how clients' connections come to a gateway.
//!
//! Each is one file and one line of a [`Registry`]. A front end is polled by its gateway, takes clients in through an
//! [`Admission`], and may have timers of its own; what it needs beyond that (a store, the state of a circuit) it is given when
//! it is built or through the same trait. Explicit proxies are made of a [`Negotiation`] only: see [`FrontEndSettings::read_explicit`].

pub mod connect;
mod explicit;
mod filter;
mod interception;
mod registry;
pub mod socks;

pub use explicit::{Listener, Negotiation, Progress, server};
pub use filter::{End, Filter, FilterSource, Filtered, RelayedConnection};
pub use registry::{FrontEndSettings, Kind, Registry};

use bentpipe_net::interception::{GatewaySockets, Request};
use bentpipe_net::socket::{SocketError, SocketId};
use bentpipe_net::time::Instant;

/// A source of connections to be relayed.
pub trait FrontEnd: Send {
    /// Does whatever can be done now: opens listeners, takes clients in. Called at every poll of the gateway.
    fn poll(&mut self, now: Instant, gateway: &mut dyn Admission);

    /// When [`FrontEnd::poll`] must be called at the latest though no socket changes; `None`: never.
    fn next_wake(&self) -> Option<Instant> {
        None
    }

    /// The gateway shuts down: listeners are closed. It is still polled, for requests that the site intercepts.
    fn close(&mut self, _sockets: &mut dyn GatewaySockets) {}

    /// Filters for relayed connections, whichever front end they came through. Called once.
    fn filters(&mut self) -> Option<Box<dyn FilterSource>> {
        None
    }
}

/// What a front end may do with its gateway.
pub trait Admission {
    /// The site's sockets.
    fn sockets(&mut self) -> &mut dyn GatewaySockets;
    /// Takes in a client that states its request itself. Over a limit, the connection is reset.
    fn accept(&mut self, socket: SocketId, negotiation: Box<dyn Negotiation>);
    /// Takes in an intercepted request. Over a limit, it is refused.
    fn intercept(&mut self, request: Request);
    /// Emits an event: the listener `what` cannot be opened.
    fn no_socket(&mut self, what: &'static str, port: u16, why: SocketError);
}
