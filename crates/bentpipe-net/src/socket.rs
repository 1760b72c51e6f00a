//! A workload's view of its host: sockets that never block.
//!
//! A [`Program`] is written once against [`Sockets`]; the emulator drives it over kernel sockets, the simulator over
//! its own TCP. Both pass it the time.
//!
//! Contract: after `poll`, the driver calls `poll` again when any socket of the program may have changed state (became
//! readable, writable, connected, closed) or when `next_wake` is due. Changes are announced once: a program works each
//! socket until it would block. Early or extra calls do nothing.

pub use crate::content::{count_wrong, fill_pattern, pattern_byte};
use crate::dscp::Dscp;
use crate::time::Instant;
use std::net::{IpAddr, SocketAddr};

/// A socket of one program; never reused within a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SocketId(pub u32);

/// Why a socket ended or a call was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SocketError {
    /// The peer answered the connection request with a reset.
    #[error("connection refused")]
    Refused,
    /// The peer reset the connection, or wrote to a closed one.
    #[error("connection reset by peer")]
    Reset,
    /// The stack gave up waiting for the peer.
    #[error("connection timed out")]
    TimedOut,
    /// No route to the peer.
    #[error("network unreachable")]
    Unreachable,
    /// The local port is taken.
    #[error("address already in use")]
    AddressInUse,
    /// The operation needs a right that this process lacks.
    #[error("permission denied")]
    Denied,
    /// The socket is not of the kind for this call, or was closed.
    #[error("socket is closed")]
    Closed,
    /// Anything else, as the operating system's error number.
    #[error("operating system error {0}")]
    Other(i32),
}

/// The result of a receive call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// This many bytes, at least one.
    Bytes(usize),
    /// Nothing now; the driver will poll when there is more.
    Nothing,
    /// The peer has finished sending.
    End,
}

/// The result of a pattern receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivedPattern {
    /// `bytes` arrived (at least one), `wrong` of which differ from the pattern.
    Bytes {
        /// Bytes taken from the stream.
        bytes: u64,
        /// The number of them that differ from [`pattern_byte`].
        wrong: u64,
        /// `false`: asking again at once would find [`ReceivedPattern::Nothing`].
        more: bool,
    },
    /// Nothing now.
    Nothing,
    /// The peer has finished sending.
    End,
}

/// Where a connection attempt stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connection {
    /// The handshake is under way.
    Opening,
    /// Data can flow.
    Open,
}

/// A datagram that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Bytes of its data in the caller's buffer; what had no room there is lost.
    pub bytes: usize,
    /// Its sender.
    pub from: SocketAddr,
    /// When the host's stack received it: not later than the poll, and before it by as long as the program was busy.
    pub at: Instant,
    /// The octet of DSCP and ECN in its IP header.
    pub traffic_class: u8,
}

/// Segments of a connection, its opening and its acknowledgements included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segments {
    /// Sent by this end.
    pub sent: u64,
    /// Received by it.
    pub received: u64,
}

/// A setting of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketOption {
    /// TCP: small segments leave at once instead of waiting for the acknowledgement of earlier ones (RFC 9293 §3.7.4).
    NoDelay,
    /// TCP and UDP: what is sent from now on carries this DSCP. A connection's SYN has left before.
    Dscp(Dscp),
}

/// A host's sockets as a program sees them. No call blocks.
pub trait Sockets {
    /// Starts a TCP connection; watch it with [`Sockets::connection`].
    fn connect(&mut self, to: SocketAddr) -> Result<SocketId, SocketError>;
    /// Whether a connection is open yet, or why it failed.
    fn connection(&mut self, socket: SocketId) -> Result<Connection, SocketError>;
    /// Listens for TCP connections on `port`, any address.
    fn listen(&mut self, port: u16) -> Result<SocketId, SocketError>;
    /// The next waiting connection, if any.
    fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, SocketError>;
    /// The address this end of a connection (or a listener) has.
    fn local_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError>;
    /// The address of a connection's other end.
    fn peer_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError>;
    /// Hands bytes to the stack; returns how many it took (fewer than offered: it is full).
    fn send(&mut self, socket: SocketId, data: &[u8]) -> Result<usize, SocketError>;
    /// Sends up to `length` bytes of `pattern` from `offset`; returns how many were taken (fewer: it is full).
    fn send_pattern(&mut self, socket: SocketId, pattern: u64, offset: u64, length: u64) -> Result<u64, SocketError>;
    /// Takes what has arrived, in order.
    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Received, SocketError>;
    /// Takes up to `max` bytes that should be `pattern` from `offset`, and compares them.
    fn receive_pattern(
        &mut self,
        socket: SocketId,
        pattern: u64,
        offset: u64,
        max: u64,
    ) -> Result<ReceivedPattern, SocketError>;
    /// Ends our direction (FIN) after what was sent; receiving goes on.
    fn finish(&mut self, socket: SocketId);
    /// Closes in order; unsent data is still delivered.
    fn close(&mut self, socket: SocketId);
    /// Ends at once with a reset.
    fn abort(&mut self, socket: SocketId);
    /// The segments of a TCP connection so far, as its host counts them.
    fn segments(&mut self, socket: SocketId) -> Result<Segments, SocketError>;
    /// Changes a setting; an error where a socket of its kind does not have it.
    fn set_option(&mut self, socket: SocketId, option: SocketOption) -> Result<(), SocketError>;
    /// Opens a UDP socket; port 0 takes a free one.
    fn open_datagram(&mut self, port: u16) -> Result<SocketId, SocketError>;
    /// Sends one datagram, in fragments where it exceeds the MTU; `false` when the stack had no room and dropped it.
    fn send_to(&mut self, socket: SocketId, to: SocketAddr, data: &[u8]) -> Result<bool, SocketError>;
    /// The next datagram; several may wait. A socket has room for at least 200 kB of them and drops what comes when it is
    /// full. An error is that of an ICMP message about a datagram sent earlier (`Refused`: nobody has the port): it is
    /// reported once and ends nothing.
    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Option<Arrival>, SocketError>;
    /// Opens an ICMP echo socket; replies to its requests come back through [`Sockets::receive_echo`].
    fn open_echo(&mut self) -> Result<SocketId, SocketError>;
    /// Sends an ICMP echo request with this sequence number; `data` follows the eight-byte ICMP header.
    fn send_echo(&mut self, socket: SocketId, to: IpAddr, sequence: u16, data: &[u8]) -> Result<bool, SocketError>;
    /// The next echo reply: sequence number, data length, and when the stack received it.
    fn receive_echo(&mut self, socket: SocketId, into: &mut [u8])
    -> Result<Option<(u16, usize, Instant)>, SocketError>;
}

/// One side of a workload: a passive state machine over [`Sockets`].
pub trait Program: Send {
    /// Does whatever can be done now. The first call starts the program.
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets);
    /// When `poll` must be called at the latest though no socket changes; `None`: never.
    fn next_wake(&self) -> Option<Instant>;
    /// Nothing is left to do. A server that waits for further clients is done when all it was configured to expect came.
    fn is_done(&self) -> bool;
}

impl<P: Program + ?Sized> Program for Box<P> {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        (**self).poll(now, sockets);
    }
    fn next_wake(&self) -> Option<Instant> {
        (**self).next_wake()
    }
    fn is_done(&self) -> bool {
        (**self).is_done()
    }
}
