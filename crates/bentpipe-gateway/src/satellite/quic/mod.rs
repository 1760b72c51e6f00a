//! The satellite side over QUIC (RFC 9000): `quinn-proto`, pulled at the link's rate.
//!
//! The library never decides when a packet leaves. `pacer` gives each packet the time that it takes on the link, and only
//! when the link has room is the library asked for the next one; `rate` says how fast that is, `streams` what goes
//! first, `peer` what to do about silence. `controller` takes the place of congestion control.
//!
//! Sans-I/O as everything here is. With [`Crypto::Model`] equal seeds give equal bytes; with [`Crypto::Tls`] the
//! system's random numbers are drawn, as they must be.
//!
//! Relied on in quinn-proto 0.11.19, which is why the version is pinned and `tests/satellite/` holds it: a window above
//! `u32::MAX` switches its pacer off; unordered reads have no limit on gaps; `poll_transmit` with one datagram makes one; a
//! time-out in the data space asks for an acknowledgement at once.

mod clock;
mod control;
mod controller;
mod crypto;
mod hub;
mod pacer;
mod peer;
mod rate;
mod settings;
mod streams;
mod tail;
mod terminal;
mod unauthenticated_peers;

pub use crypto::Crypto;

use super::{
    Class, DeclaredRates, Event, Loss, MTU, Read, RefusedPeer, Satellite, SatelliteConfig, Side, Statistics,
    StreamError, StreamId, Unread,
};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use bytes::{Bytes, BytesMut};
use clock::Clock;
use controller::InFlight;
use crypto::{Counters, Suite};
use hub::Hub;
use pacer::{Pacer, wire_bits};
use peer::{Peer, PeerContext, loss};
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointEvent, Event as QuicEvent, VarInt,
};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use rate::RateControl;
use settings::Sizes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use terminal::Terminal;
use unauthenticated_peers::UnauthenticatedPeers;

/// Of its rate, the pair keeps this much whatever the cross traffic.
const SHARE_MIN: u64 = 20;
/// Why a connection is closed: for something on the control stream that is not the protocol.
const CODE_CONTROL: u32 = 1;
/// Loss below which nothing is sent twice.
const LOSS_MIN: f64 = 1e-4;

/// Why no satellite side can be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The TLS library refused.
    #[error("TLS could not be set up: {0}")]
    Tls(String),
    /// The system gave no random bytes.
    #[error("the system's random generator failed")]
    Random,
    /// The link's packets are too short.
    #[error("the link's largest packet is {0} bytes; allowed: {from} to {to}", from = MTU.start(), to = MTU.end())]
    Mtu(u64),
    /// The hub's address cannot be called.
    #[error("the hub's address {0} cannot be called: it needs a port other than 0")]
    Address(SocketAddr),
}

/// The satellite side over QUIC.
pub struct QuicSatellite {
    config: SatelliteConfig,
    incoming: Option<BitRate>,
    clock: Clock,
    counters: Arc<Counters>,
    endpoint: Endpoint,
    role: Role,
    /// The pair's connection; at a terminal also while it is being made.
    current: Option<Peer>,
    /// At a hub: handshakes that have not ended.
    half_open: Vec<Peer>,
    /// Connections so far; part of every stream's number.
    connections: u64,
    rate: RateControl,
    pacer: Pacer,
    bypass: BitRate,
    /// Something waits for the link.
    blocked: bool,
    unauthenticated_peers: UnauthenticatedPeers,
    last_refused: Option<RefusedPeer>,
    /// The other side's addresses in the last two connections.
    addresses: [Option<SocketAddr>; 2],
    events: VecDeque<Event>,
    /// Ended on request; nothing is begun any more.
    closed: bool,
    totals: Statistics,
}

/// The parts of one side only.
enum Role {
    Hub(Hub),
    Terminal(Box<Terminal>),
}

impl QuicSatellite {
    /// A side that has not sent anything yet; a terminal begins to call with the first `wake`. How fast data comes in is
    /// guessed ([`QuicSatellite::with_incoming`]).
    pub fn new(now: Instant, config: SatelliteConfig, crypto: Crypto, seed: u64) -> Result<Self, SetupError> {
        QuicSatellite::with_incoming(now, config, None, crypto, seed)
    }

    /// The same, with the rate of the direction in which this side receives: receive buffers are sized for it. `None`:
    /// as the other direction, and at least 20 Mbit/s.
    pub fn with_incoming(
        now: Instant,
        config: SatelliteConfig,
        incoming: Option<BitRate>,
        crypto: Crypto,
        seed: u64,
    ) -> Result<Self, SetupError> {
        QuicSatellite::speaking(now, config, incoming, (crypto, crate::protocol::NAME), seed)
    }

    fn speaking(
        now: Instant,
        config: SatelliteConfig,
        incoming: Option<BitRate>,
        (crypto, protocol): (Crypto, &[u8]),
        seed: u64,
    ) -> Result<Self, SetupError> {
        if !MTU.contains(&config.mtu) {
            return Err(SetupError::Mtu(config.mtu));
        }
        if let Side::Terminal(hub) = config.side
            && hub.port() == 0
        {
            return Err(SetupError::Address(hub));
        }
        let suite = Suite::new(&crypto, protocol, config.side, seed)?;
        let counters = Arc::clone(&suite.counters);
        let clock = Clock::new();
        let mut random = ChaCha20Rng::from_seed(suite.random);
        let (role, endpoint) = match config.side {
            Side::Hub => {
                let (hub, endpoint) = Hub::new(suite, &clock, &mut random);
                (Role::Hub(hub), endpoint)
            }
            Side::Terminal(address) => {
                let mut terminal = Terminal::new(now, suite, address, random);
                let endpoint = terminal.endpoint();
                (Role::Terminal(Box::new(terminal)), endpoint)
            }
        };
        let packet_bits = config.mtu * 8;
        let rate = RateControl::new(config.rate.map(|rate| rate.bps), config.loss, config.round_trip, packet_bits);
        let pacer = Pacer::new(now, rate.rate());
        Ok(QuicSatellite {
            config,
            incoming,
            clock,
            counters,
            endpoint,
            role,
            current: None,
            half_open: Vec::new(),
            connections: 0,
            rate,
            pacer,
            bypass: BitRate::default(),
            blocked: false,
            unauthenticated_peers: UnauthenticatedPeers::default(),
            last_refused: None,
            addresses: [None; 2],
            events: VecDeque::new(),
            closed: false,
            totals: Statistics::default(),
        })
    }

    /// When a handshake is given up: after some round trips and some packets, which count from the first answer; until
    /// there is one, a circuit's set-up is added.
    fn handshake_ends(&self, peer: &Peer, (least, trips): (Duration, u64)) -> Instant {
        let packets = self.pacer.time_for(30 * 8 * settings::DATAGRAM_MIN);
        let time = least.max(Duration { ns: self.config.round_trip.ns.saturating_mul(trips) }) + packets;
        let circuit = self.calls_on_circuit() && peer.answered().is_none();
        let begun = peer.answered().unwrap_or(peer.started);
        begun + time + if circuit { settings::CIRCUIT_SET_UP } else { Duration::ZERO }
    }

    /// Whoever is called on a circuit hears of it only when it is up.
    fn calls_on_circuit(&self) -> bool {
        self.config.dial_up && !self.config.dials && self.config.side != Side::Hub
    }

    fn peer_of(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        connection: Connection,
        shared: Arc<InFlight>,
        sizes: Sizes,
    ) -> Peer {
        self.connections += 1;
        let streams = streams::Streams::new(self.connections, &sizes, self.rate.rate());
        Peer::new(now, self.calls_on_circuit(), handle, connection, shared, sizes, streams)
    }

    /// Handles everything that the library has to say about a connection. The peer must be out of its place.
    fn listen(&mut self, now: Instant, peer: &mut Peer) {
        while let Some(event) = peer.connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(peer.handle, event) {
                peer.connection.handle_event(answer);
            }
        }
        while let Some(event) = peer.connection.poll() {
            match event {
                QuicEvent::Connected => self.on_connected(now, peer),
                QuicEvent::ConnectionLost { reason } => {
                    let was = peer.is_connected();
                    peer.set_over();
                    let why = loss(&reason);
                    if why == Some(Loss::Unauthenticated) {
                        self.totals.unauthenticated_peers += 1;
                        let from = peer.connection.remote_address();
                        self.last_refused = Some(RefusedPeer { from, key: self.counters.take_refused() });
                    }
                    self.totals.other_versions += u64::from(why == Some(Loss::Version));
                    if let Some(why) = why {
                        self.on_lost(now, was, why);
                    }
                }
                QuicEvent::Stream(event) => {
                    if peer.is_connected() {
                        peer.streams.on_event(&mut peer.connection, event, &mut self.events);
                    }
                }
                QuicEvent::HandshakeDataReady | QuicEvent::DatagramReceived | QuicEvent::DatagramsUnblocked => {}
            }
        }
        if peer.is_connected() && peer.streams.is_broken() {
            let reason = Bytes::from_static(b"the control stream");
            peer.connection.close(self.clock.at(now), VarInt::from_u32(CODE_CONTROL), reason);
            peer.set_over();
            self.on_lost(now, true, Loss::Protocol);
        }
        let mut around =
            PeerContext { config: &self.config, clock: &self.clock, rate: &mut self.rate, events: &mut self.events };
        peer.settle(now, &mut around);
        self.apply_rate();
    }

    fn on_connected(&mut self, now: Instant, peer: &mut Peer) {
        peer.set_established(now);
        peer.connection.set_max_concurrent_streams(Dir::Bi, settings::window(settings::streams(&self.config)));
        self.totals.connections += 1;
        let address = peer.connection.remote_address();
        self.unauthenticated_peers.set_known(address);
        self.rate.start(now);
        peer.streams.declare(self.declared());
        let [last, before] = self.addresses;
        self.addresses = [Some(address), last];
        if let Some(old) = self.current.take() {
            // Only the pinned peer gets this far: it was restarted, or has given the old connection up.
            let was = old.is_connected();
            if let Some(last) = last
                && was
                && before == Some(address)
                && last != address
            {
                self.events.push_back(Event::SharedKey([last, address]));
            }
            self.retire(old);
            if was {
                self.events.push_back(Event::Lost(Loss::Restarted));
            }
        }
        if let Role::Terminal(terminal) = &mut self.role {
            terminal.on_connected();
        }
        self.events.push_back(Event::Connected);
    }

    /// A connection is over. `was`: the pair was connected by it.
    fn on_lost(&mut self, now: Instant, was: bool, why: Loss) {
        match &mut self.role {
            Role::Hub(_) => {}
            Role::Terminal(terminal) => terminal.on_lost(now, why, self.config.dial_up),
        }
        let refused = matches!(why, Loss::Unauthenticated | Loss::Version);
        let says = was || (refused && matches!(self.role, Role::Terminal(_)));
        if says {
            self.events.push_back(Event::Lost(why));
        }
    }

    /// Counts a connection in and forgets it, without a word to the other side.
    fn retire(&mut self, peer: Peer) {
        self.totals.packets_lost += peer.connection.stats().path.lost_packets;
        self.totals.delivered_bytes += peer.delivered();
        if !peer.connection.is_drained() {
            let _ = self.endpoint.handle_event(peer.handle, EndpointEvent::drained());
        }
    }

    /// Puts a peer where it belongs now.
    fn put_back(&mut self, peer: Peer) {
        let given_up = peer.is_over() && !peer.connection.is_closed();
        if peer.connection.is_drained() || given_up {
            self.retire(peer);
        } else if peer.is_established() && (self.current.is_none() || !peer.is_over()) {
            if let Some(old) = self.current.replace(peer) {
                self.retire(old);
            }
        } else if matches!(self.role, Role::Terminal(_)) {
            self.current = Some(peer);
        } else {
            self.half_open.push(peer);
        }
    }

    /// Runs `work` on each connection, which is out of its place meanwhile, until it gives something.
    fn each<T>(&mut self, now: Instant, mut work: impl FnMut(&mut Self, &mut Peer) -> Option<T>) -> Option<T> {
        let mut found = None;
        if let Some(mut peer) = self.current.take() {
            found = work(self, &mut peer);
            self.listen(now, &mut peer);
            self.put_back(peer);
        }
        let mut left = self.half_open.len();
        while found.is_none() && left > 0 {
            left -= 1;
            let mut peer = self.half_open.remove(0);
            found = work(self, &mut peer);
            self.listen(now, &mut peer);
            self.put_back(peer);
        }
        found
    }

    /// Gives the pacer the rate that is the pair's.
    fn apply_rate(&mut self) {
        let whole = self.rate.rate();
        let own = whole.saturating_sub(self.bypass.bps).max(whole / SHARE_MIN).max(1);
        if own != self.pacer.rate() {
            self.pacer.set_rate(own);
            if let Some(peer) = &mut self.current {
                peer.streams.set_rate(own);
            }
        }
    }

    /// A packet that is not the pair's was answered.
    fn reply(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        self.totals.unauthenticated_packets += 1;
        self.unauthenticated_peers.push(to, bytes);
    }

    /// An answer to an unauthenticated peer, if the pair leaves room for one.
    fn transmit_reply(&mut self, now: Instant, into: &mut Vec<u8>) -> Option<SocketAddr> {
        let (to, bytes) = self.unauthenticated_peers.take(now)?;
        let bits = wire_bits(&self.config.framing, self.config.mtu, to, &bytes);
        *into = bytes;
        self.unauthenticated_peers.on_sent(now, bits, self.pacer.rate(), self.is_connected());
        self.count_sent(now, bits);
        Some(to)
    }

    /// Sizes again, after a rate has changed, what may wait for each connection and on its way.
    fn resize(&mut self) {
        for peer in self.current.iter_mut().chain(&mut self.half_open) {
            let sizes = Sizes::new(&self.config, self.incoming, peer.connection.remote_address());
            peer.resize(&self.config, sizes);
        }
    }

    fn count_sent(&mut self, now: Instant, bits: u64) {
        self.pacer.sent(now, bits);
        self.totals.packets_sent += 1;
        self.totals.link_bytes_sent += bits.div_ceil(8);
    }

    /// The transmission time of a full packet.
    fn packet_time(&self) -> Duration {
        self.pacer.time_for(self.config.mtu * 8)
    }

    /// The last packets of a short exchange go again as soon as nothing follows them.
    fn repeats_tail(&self) -> bool {
        let lossy = self.config.loss >= LOSS_MIN || self.rate.recent_loss() >= LOSS_MIN;
        let quick = self.packet_time().ns * 12 <= self.rate.base_round_trip().ns;
        lossy && quick && !self.config.dial_up
    }

    /// The last packets of a short exchange once more: where it is worth it, or (`overdue`) because no answer has come.
    fn transmit_tail(&mut self, now: Instant, overdue: bool, into: &mut Vec<u8>) -> Option<SocketAddr> {
        let (repeats, packet) = (self.repeats_tail(), self.packet_time());
        let peer = self.current.as_mut().filter(|peer| peer.is_connected())?;
        let (to, datagram) = match overdue {
            true => peer.tail.take_overdue()?,
            false if repeats => peer.tail.take(now, packet)?,
            false => return None,
        };
        let bits = wire_bits(&self.config.framing, self.config.mtu, to, &datagram);
        *into = datagram;
        self.count_sent(now, bits);
        Some(to)
    }

    /// The connected peer.
    fn connected(&mut self) -> Option<&mut Peer> {
        self.current.as_mut().filter(|peer| peer.is_connected())
    }
}

impl Satellite for QuicSatellite {
    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        self.totals.packets_received += 1;
        let at = self.clock.at(now);
        let mut answer = Vec::new();
        let (readable, authentic) = (self.counters.readable(), self.counters.authentic());
        match self.endpoint.handle(at, from, None, None, BytesMut::from(datagram), &mut answer) {
            None => self.totals.unauthenticated_packets += 1,
            Some(DatagramEvent::Response(transmit)) => self.reply(transmit.destination, answer),
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming),
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let mut event = Some(event);
                self.each(now, |satellite, peer| {
                    if peer.handle != handle {
                        return None;
                    }
                    peer.connection.handle_event(event.take()?);
                    if satellite.counters.readable() > readable {
                        peer.on_answered(now);
                    }
                    if satellite.counters.authentic() > authentic {
                        let mut around = PeerContext {
                            config: &satellite.config,
                            clock: &satellite.clock,
                            rate: &mut satellite.rate,
                            events: &mut satellite.events,
                        };
                        peer.on_heard(now, &mut around);
                    }
                    Some(())
                });
            }
        }
    }

    fn wake(&mut self, now: Instant) {
        self.each(now, |satellite, peer| {
            let mut around = PeerContext {
                config: &satellite.config,
                clock: &satellite.clock,
                rate: &mut satellite.rate,
                events: &mut satellite.events,
            };
            if let Some(why) = peer.wake(now, &mut around) {
                peer.set_over();
                satellite.on_lost(now, true, why);
            }
            None::<()>
        });
        self.wake_role(now);
    }

    fn poll_transmit(&mut self, now: Instant, into: &mut Vec<u8>) -> Option<SocketAddr> {
        if !self.pacer.has_room(now) {
            self.blocked = true;
            return None;
        }
        self.blocked = false;
        if let Some(to) = self.transmit_tail(now, true, into) {
            return Some(to);
        }
        let sent = self.each(now, |satellite, peer| {
            let mut around = PeerContext {
                config: &satellite.config,
                clock: &satellite.clock,
                rate: &mut satellite.rate,
                events: &mut satellite.events,
            };
            peer.transmit(now, &mut around, into)
        });
        if let Some(sent) = sent {
            self.count_sent(now, sent.bits);
            return Some(sent.to);
        }
        if let Some(to) = self.transmit_tail(now, false, into) {
            return Some(to);
        }
        if let Some(to) = self.transmit_reply(now, into) {
            return Some(to);
        }
        self.pacer.rest();
        None
    }

    fn next_wake(&self) -> Option<Instant> {
        let peers = self.current.iter().chain(&self.half_open);
        let peers = peers.filter_map(|peer| peer.next_wake(&self.rate, &self.config)).min();
        let link = self.blocked.then(|| self.pacer.next());
        let tail =
            self.current.as_ref().filter(|peer| peer.is_connected()).and_then(|peer| match peer.tail.is_overdue() {
                true => Some(self.pacer.next()),
                false if self.repeats_tail() => peer.tail.due(self.packet_time()),
                false => None,
            });
        let tail = tail.map(|due| due.max(self.pacer.next()));
        let reply = self.unauthenticated_peers.due().map(|due| due.max(self.pacer.next()));
        [peers, link, tail, reply, self.role_wake()].into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn want(&mut self) {
        if let Role::Terminal(terminal) = &mut self.role {
            terminal.want(self.config.dial_up);
        }
    }

    fn call_now(&mut self, now: Instant) {
        self.begin_again(now);
    }

    fn is_connected(&self) -> bool {
        self.current.as_ref().is_some_and(Peer::is_connected)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.current.as_ref().filter(|peer| peer.is_connected()).map(|peer| peer.connection.remote_address())
    }

    fn last_refused(&self) -> Option<RefusedPeer> {
        self.last_refused
    }

    fn declared(&self) -> DeclaredRates {
        DeclaredRates { sending: self.config.rate, receiving: self.incoming }
    }

    fn declare(&mut self) {
        let rates = self.declared();
        if !self.config.dial_up
            && let Some(peer) = self.connected()
        {
            peer.streams.declare(rates);
        }
    }

    fn set_hub(&mut self, now: Instant, hub: SocketAddr) {
        if let Role::Terminal(terminal) = &mut self.role {
            self.config.side = Side::Terminal(hub);
            terminal.set_hub(now, hub, self.current.is_none());
        }
    }

    fn open(&mut self, class: Class) -> Option<StreamId> {
        if let Some(peer) = self.connected() {
            return peer.streams.open(&mut peer.connection, class);
        }
        self.want();
        None
    }

    fn set_class(&mut self, stream: StreamId, class: Class) {
        if let Some(peer) = self.connected() {
            peer.streams.set_class(&mut peer.connection, stream, class);
        }
    }

    fn write(&mut self, _: Instant, stream: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        self.connected().ok_or(StreamError::Unknown)?.streams.write(stream, data)
    }

    fn room(&self, stream: StreamId) -> usize {
        self.current.as_ref().filter(|peer| peer.is_connected()).map_or(0, |peer| peer.streams.room(stream))
    }

    fn finish(&mut self, _: Instant, stream: StreamId) {
        if let Some(peer) = self.connected() {
            peer.streams.finish(stream);
        }
    }

    fn reset(&mut self, _: Instant, stream: StreamId, code: u32) {
        if let Some(peer) = self.connected() {
            peer.streams.reset(&mut peer.connection, stream, code);
        }
    }

    fn stop(&mut self, _: Instant, stream: StreamId, code: u32) {
        if let Some(peer) = self.connected() {
            peer.streams.stop(&mut peer.connection, stream, code);
        }
    }

    fn signal(&mut self, _: Instant, stream: StreamId, word: u32) {
        if let Some(peer) = self.connected() {
            peer.streams.signal(stream, word);
        }
    }

    fn unread(&self, stream: StreamId) -> Unread {
        self.current.as_ref().map_or_else(Unread::default, |peer| peer.streams.unread_of(stream))
    }

    fn unread_bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |peer| peer.streams.unread() as u64)
    }

    fn set_limit(&mut self, stream: StreamId, bytes: u64) {
        if let Some(peer) = self.connected() {
            peer.streams.set_limit(stream, bytes);
        }
    }

    fn read(&mut self, _: Instant, stream: StreamId, into: &mut Vec<u8>, most: usize) -> Result<Read, StreamError> {
        self.connected().ok_or(StreamError::Unknown)?.streams.read(stream, into, most)
    }

    fn round_trip_bytes(&self) -> u64 {
        settings::round_trip_bytes(&self.config, self.incoming)
    }

    fn set_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        self.config.rate = rate;
        self.rate.set_declared(now, rate.map(|rate| rate.bps));
        self.apply_rate();
        self.resize();
    }

    fn set_incoming(&mut self, _: Instant, rate: Option<BitRate>) {
        self.incoming = rate;
        self.resize();
    }

    fn set_bypass(&mut self, _: Instant, rate: BitRate) {
        self.bypass = rate;
        self.apply_rate();
    }

    fn close(&mut self, now: Instant) {
        self.closed = true;
        let at = self.clock.at(now);
        self.each(now, |_, peer| {
            peer.connection.close(at, VarInt::from_u32(0), Bytes::new());
            peer.set_over();
            None::<()>
        });
        if let Role::Hub(_) = self.role {
            self.endpoint.set_server_config(None);
        }
    }

    fn statistics(&self) -> Statistics {
        let peers = || self.current.iter().chain(&self.half_open);
        let lost: u64 = peers().map(|peer| peer.connection.stats().path.lost_packets).sum();
        let round_trip = self.current.as_ref().and_then(Peer::round_trip);
        Statistics {
            packets_lost: self.totals.packets_lost + lost,
            delivered_bytes: self.totals.delivered_bytes + peers().map(Peer::delivered).sum::<u64>(),
            rate_bps: self.pacer.rate(),
            declared_bps: self.rate.declared().unwrap_or(0),
            throttled: self.rate.is_throttled(),
            round_trip: round_trip.unwrap_or(self.config.round_trip),
            forged: self.counters.forged(),
            half_open: self.half_open.len() as u64,
            queued_bytes: peers().map(|peer| peer.streams.queued() as u64).sum(),
            unacknowledged_bytes: peers().map(Peer::unacknowledged).sum(),
            unread_bytes: peers().map(|peer| peer.streams.unread() as u64).sum(),
            ..self.totals
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::satellite::keys::{PairKeys, PrivateKey};
    use bentpipe_link::framing::Framing;
    use bentpipe_net::units::DataSize;

    #[test]
    fn another_version_is_refused_and_named_on_both_sides() {
        let key = |seed: u8| PrivateKey::from_seed([seed; 32]).unwrap();
        let (hub, terminal) = ("10.0.0.1:4433".parse().unwrap(), "10.0.0.2:4433".parse().unwrap());
        for (protocols, same) in [([crate::protocol::NAME; 2], true), ([b"bentpipe/1", crate::protocol::NAME], false)] {
            let side = |own: u8, side: Side, protocol: &[u8]| {
                let config = SatelliteConfig {
                    side,
                    rate: Some(BitRate::from_bps(10_000_000)),
                    framing: Framing::None,
                    round_trip: Duration::from_millis(20),
                    mtu: 1500,
                    loss: 0.0,
                    dial_up: false,
                    dials: false,
                    hold: Duration::from_secs(60),
                    connections: 10,
                    memory: DataSize::from_bytes(8 << 20),
                };
                let tls = Crypto::Tls(PairKeys { own: key(own), peer: key(3 - own).public() });
                QuicSatellite::speaking(Instant::ZERO, config, None, (tls, protocol), 1).unwrap()
            };
            let mut sides = [side(1, Side::Hub, protocols[0]), side(2, Side::Terminal(hub), protocols[1])];
            let mut events = [Vec::new(), Vec::new()];
            for ms in 0..5_000 {
                let now = Instant::ZERO + Duration::from_millis(ms);
                for from in [0, 1] {
                    sides[from].wake(now);
                    let mut datagram = Vec::new();
                    while sides[from].poll_transmit(now, &mut datagram).is_some() {
                        sides[1 - from].receive(now, [hub, terminal][from], &datagram);
                    }
                    events[from].extend(std::iter::from_fn(|| sides[from].poll_event()));
                }
            }
            assert_eq!(sides.each_ref().map(|side| side.is_connected()), [same; 2]);
            let refused = sides.each_ref().map(|side| side.statistics().other_versions > 0);
            assert_eq!(refused, [!same; 2], "{events:?}");
            assert_eq!(events[1].contains(&Event::Lost(Loss::Version)), !same, "{events:?}");
            assert!(sides.iter().all(|side| side.statistics().unauthenticated_peers == 0));
        }
    }
}
