//! The contract between passive nodes and the drivers that own the clock.

use bentpipe_net::time::Instant;

/// One of a node's attachments, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Port(pub usize);

/// Anything packets cross: a link, a host, whatever wraps one of them. `P` is a [`bentpipe_net::packet::Packet`].
///
/// Contract: after `receive` or `wake`, drain `poll_transmit` until `None`; then ask `next_wake` again, for either call
/// may have changed it. Time never goes back. A late `wake` does what the missed ones would have done, at *their* times.
pub trait Node<P> {
    /// A packet enters through `port`.
    fn receive(&mut self, now: Instant, port: Port, packet: P);
    /// Time has come to `now`; early calls do nothing.
    fn wake(&mut self, now: Instant);
    /// The next packet to leave by now, and through which port.
    fn poll_transmit(&mut self, now: Instant) -> Option<(Port, P)>;
    /// When the node must be woken next; [`Instant::FAR`]: idle until a packet comes. Stale after `receive`, `wake` or
    /// `poll_transmit`.
    fn next_wake(&self) -> Instant;
}
