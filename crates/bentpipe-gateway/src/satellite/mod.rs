//! The warm connection between the two gateways of a pair: streams over a link whose rate the sender knows.
//!
//! [`Satellite`] is what the relay needs of it.

pub mod frozen;
pub mod keys;
pub mod quic;

use crate::protocol::VERSION;
use bentpipe_link::framing::Framing;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitRate, DataSize};
use keys::PublicKey;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// Link MTUs that the pair's packets can have, in bytes.
pub const MTU: RangeInclusive<u64> = 256..=65_535;

/// Which of the pair a gateway is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The well-connected side: it waits for the terminal.
    Hub,
    /// The remote side: it calls the hub at this address. Unspecified (`0.0.0.0`): not known yet ([`Satellite::set_hub`]).
    Terminal(SocketAddr),
}

/// A gateway's knowledge of the link and its use of it.
#[derive(Clone, PartialEq, Debug)]
pub struct SatelliteConfig {
    /// Which side this is.
    pub side: Side,
    /// Bits per second on the wire, framing included, of the direction in which this side sends. `None`: measured.
    pub rate: Option<BitRate>,
    /// The link's framing; its overhead counts against the rate.
    pub framing: Framing,
    /// Without queues; a first guess until it is measured.
    pub round_trip: Duration,
    /// Largest IP packet on the link.
    pub mtu: u64,
    /// Share of packets of [`SatelliteConfig::mtu`] that the link's bit errors damage. Loss beyond it (and a margin) means
    /// that the declared rate is too high.
    pub loss: f64,
    /// The link is a circuit that is set up when there is something to send: nothing is sent while nothing waits, and
    /// silence during a set-up is no fault.
    pub dial_up: bool,
    /// The gateway sets the circuit up itself ([`crate::dial`]): while anything is sent, it is up.
    pub dials: bool,
    /// The time that streams outlive silence of the other side.
    pub hold: Duration,
    /// Connections that the other gateway may have relayed at once: as many streams, and some for those that end.
    pub connections: usize,
    /// Bytes that may be on their way to this side, and wait on this side to be sent or acknowledged.
    pub memory: DataSize,
}

/// One relayed connection on the satellite side; never reused within a [`Satellite`]'s life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct StreamId(pub u64);

/// The rates that a gateway declares to the other, bits per second on the wire; `None`: measured, or not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeclaredRates {
    /// Of the direction in which it sends.
    pub sending: Option<BitRate>,
    /// Of the direction in which it receives.
    pub receiving: Option<BitRate>,
}

/// A peer that failed the authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedPeer {
    /// Where its packets came from.
    pub from: SocketAddr,
    /// The key that it presented, of which it has proved nothing. `None`: the refusal was the peer's, which does not know
    /// this side's key; or it presented no Ed25519 key.
    pub key: Option<PublicKey>,
}

/// Bytes of a stream that may be unread unless [`Satellite::set_limit`] says otherwise.
pub const UNREAD_FIRST: u64 = (64 << 10) + 1024;

/// What has come of a stream and was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unread {
    /// Bytes in order, which [`Satellite::read`] gives.
    pub ready: u64,
    /// All bytes, those behind a gap included.
    pub all: u64,
    /// Everything up to the stream's end is here: nothing more will come.
    pub complete: bool,
}

/// Which stream goes first when several have something to send.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Class {
    /// The pair's own messages, openings and refusals.
    Control,
    /// Short or marked: before bulk.
    #[default]
    Interactive,
    /// The rest; streams of one class share evenly.
    Bulk,
}

/// Something the relay must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Both sides have proved who they are; streams may be opened.
    Connected,
    /// The other side opened a stream.
    Opened(StreamId),
    /// [`Satellite::read`] may give something.
    Readable(StreamId),
    /// The other side has sent more of the stream than may be unread: reading fails with [`StreamError::Overrun`].
    Overrun(StreamId),
    /// The other side says this of the stream: a word of [`Satellite::signal`].
    Signal(StreamId, u32),
    /// [`Satellite::write`] takes something again, after it had refused.
    Writable(StreamId),
    /// The other side ended its direction of the stream abruptly; what was sent before may be missing.
    Reset(StreamId, u32),
    /// The other side no longer reads this stream.
    Stopped(StreamId, u32),
    /// All that was written, and the end, has arrived at the other side.
    Delivered(StreamId),
    /// Nothing has been heard for so long that something must be wrong, though something was expected.
    Silent,
    /// The other side is heard again.
    Heard,
    /// The other side declares these rates: after [`Event::Connected`], and whenever it declares them again.
    Declared(DeclaredRates),
    /// An attempt to connect has ended without a connection.
    Unanswered {
        /// The address that was called.
        hub: SocketAddr,
        /// Something came back that could be read, so the hub is there.
        heard: bool,
    },
    /// Two gateways call in turns from these addresses, each ending the other's connection: they have one key.
    SharedKey([SocketAddr; 2]),
    /// The connection is over and every stream with it; a terminal tries again by itself.
    Lost(Loss),
}

/// Why a pair's connection is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Loss {
    /// Silence for longer than the hold time.
    #[error("the other gateway was silent for longer than the hold time")]
    Silence,
    /// The other side was restarted and knows nothing of this connection.
    #[error("the other gateway was restarted")]
    Restarted,
    /// The other side ended it in order.
    #[error("the other gateway ended the connection")]
    Closed,
    /// The other side's key is not the one that is pinned here, or ours is not known there.
    #[error("the other gateway's key is not the configured one, or the other does not know ours")]
    Unauthenticated,
    /// The other side speaks another version of the protocol.
    #[error(
        "the other gateway is of another version: both need one that speaks version {VERSION} of the pair's protocol"
    )]
    Version,
    /// Something else that the protocol does not allow.
    #[error("the other gateway broke the protocol")]
    Protocol,
}

/// Why a stream took no bytes or gave none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The other side reset it or no longer reads it.
    #[error("the other gateway ended the stream with code {0}")]
    Ended(u32),
    /// The other side has sent more than may be unread.
    #[error("the other gateway sent more than it may")]
    Overrun,
    /// There is no such stream (any more).
    #[error("no such stream")]
    Unknown,
}

/// The result of [`Satellite::read`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The other side has finished; everything was read.
    End,
}

/// Statistics of the connection.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Statistics {
    /// IP packets sent, and their bytes on the wire, framing included.
    pub packets_sent: u64,
    /// Bytes on the wire.
    pub link_bytes_sent: u64,
    /// IP packets received.
    pub packets_received: u64,
    /// Packets that had to be sent again.
    pub packets_lost: u64,
    /// Bytes of streams written here and known to have arrived.
    pub delivered_bytes: u64,
    /// The rate at which packets are pulled out now, bits per second on the wire.
    pub rate_bps: u64,
    /// The rate that was declared; zero: none.
    pub declared_bps: u64,
    /// The declared rate is too high: sent ÷ delivered was above 1.2, and the rate is throttled.
    pub throttled: bool,
    /// Smoothed round-trip time.
    pub round_trip: Duration,
    /// Packets that failed the cryptographic check.
    pub forged: u64,
    /// Handshakes refused because of the key.
    pub unauthenticated_peers: u64,
    /// Handshakes refused because the other side speaks another version of the protocol.
    pub other_versions: u64,
    /// Packets that belong to no connection: of an unknown version or connection, without sense, or calls that were not
    /// taken up.
    pub unauthenticated_packets: u64,
    /// Handshakes under way now, at a hub.
    pub half_open: u64,
    /// Bytes of streams that wait now to be sent for the first time.
    pub queued_bytes: u64,
    /// Bytes of streams that were sent, or soon are, and are kept now until they are known to have arrived; estimated.
    pub unacknowledged_bytes: u64,
    /// Bytes of streams that have come and wait now to be read, those behind a gap included.
    pub unread_bytes: u64,
    /// Connections of the pair so far.
    pub connections: u64,
}

/// The warm connection. After `receive`, `wake` or any work on streams, drain `poll_transmit` and `poll_event`.
pub trait Satellite: Send {
    /// A datagram came from `from`.
    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]);
    /// The time has come; early calls do nothing.
    fn wake(&mut self, now: Instant);
    /// The next datagram that the link has room for *now*, written to `into`, and where it goes.
    fn poll_transmit(&mut self, now: Instant, into: &mut Vec<u8>) -> Option<SocketAddr>;
    /// When [`Satellite::wake`] is due, or the link has room for the next datagram.
    fn next_wake(&self) -> Option<Instant>;
    /// The next event.
    fn poll_event(&mut self) -> Option<Event>;
    /// A stream is wanted while there is no connection: an attempt to connect need not wait as long as the last ones
    /// failed.
    fn want(&mut self) {}
    /// A terminal that is not connected begins an attempt to connect now: its line has just come up.
    fn call_now(&mut self, _: Instant) {}
    /// The line, where one is dialled.
    fn line(&mut self) -> Option<&mut frozen::Frozen> {
        None
    }
    /// The pair is connected.
    fn is_connected(&self) -> bool;
    /// Where the other gateway is, while the pair is connected.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }
    /// The peer that failed the authentication last ([`Statistics::unauthenticated_peers`]).
    fn last_refused(&self) -> Option<RefusedPeer> {
        None
    }
    /// The rates that this side declares.
    fn declared(&self) -> DeclaredRates {
        DeclaredRates::default()
    }
    /// Declares them again to the other side, which learns them at each connection; not on a circuit, which that would set up.
    fn declare(&mut self) {}
    /// The hub's address is known from now on, or another: for the next attempt to connect.
    fn set_hub(&mut self, _: Instant, _: SocketAddr) {}
    /// Opens a stream; `None`: not connected, or too many.
    fn open(&mut self, class: Class) -> Option<StreamId>;
    /// Moves a stream to another class.
    fn set_class(&mut self, stream: StreamId, class: Class);
    /// Takes bytes as far as they will soon be sent (little is kept, so that interactive data never waits behind bulk).
    fn write(&mut self, now: Instant, stream: StreamId, data: &[u8]) -> Result<usize, StreamError>;
    /// Bytes that [`Satellite::write`] would take now.
    fn room(&self, stream: StreamId) -> usize;
    /// No more will be written; what was written still arrives.
    fn finish(&mut self, now: Instant, stream: StreamId);
    /// Ends our direction abruptly.
    fn reset(&mut self, now: Instant, stream: StreamId, code: u32);
    /// Asks the other side to send no more on the stream.
    fn stop(&mut self, now: Instant, stream: StreamId, code: u32);
    /// Sends a word about a stream to the other side, which gets it as [`Event::Signal`]: reliable, in the order of all
    /// words, and before any data that waits. One about a stream that the other side does not know (yet) is lost.
    fn signal(&mut self, now: Instant, stream: StreamId, word: u32);
    /// What has come of the stream and was not read.
    fn unread(&self, stream: StreamId) -> Unread;
    /// Bytes that have come and were not read, of all streams.
    fn unread_bytes(&self) -> u64;
    /// Bytes of the stream that may be unread from now on: if the other side sends more, nothing more is kept of it and
    /// reading fails with [`StreamError::Overrun`].
    fn set_limit(&mut self, stream: StreamId, bytes: u64);
    /// Appends up to `most` bytes in order to `into`.
    fn read(&mut self, now: Instant, stream: StreamId, into: &mut Vec<u8>, most: usize) -> Result<Read, StreamError>;
    /// Bytes that the link carries towards this side in a round trip: what one stream at full speed has on its way.
    fn round_trip_bytes(&self) -> u64;
    /// The link's rate has changed; `None`: measure it.
    fn set_rate(&mut self, now: Instant, rate: Option<BitRate>);
    /// The rate of the direction in which this side receives has changed; `None`: guessed.
    fn set_incoming(&mut self, _: Instant, _: Option<BitRate>) {}
    /// The share of the link, bits per second on the wire, that traffic which bypasses the pair uses now; the pair
    /// leaves it free.
    fn set_bypass(&mut self, now: Instant, rate: BitRate);
    /// Ends the connection in order.
    fn close(&mut self, now: Instant);
    /// Its statistics.
    fn statistics(&self) -> Statistics;
}
