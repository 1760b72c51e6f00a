//! The gateway of one site.

use crate::asked::Protocol;
use crate::config::{Fail, GatewayConfig};
use crate::figures::Figures;
use crate::notice::{Notice, Outcome};
use crate::relay::class::Policy;
use crate::relay::connection::{Connection, Reach};
use crate::relay::{Shared, Site};
use crate::satellite::{Event, Loss, Satellite, StreamId};
use bentpipe_net::interception::{Bypassed, GatewayProgram, GatewaySockets, Refusal};
use bentpipe_net::socket::{SocketError, SocketId};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// How often traffic beside the pair is measured while there is any traffic.
const BESIDE_EVERY: Duration = Duration::from_millis(100);
/// When a datagram that found no room is tried again, if no socket announces room before.
const RETRY: Duration = Duration::from_millis(1);
/// When a port that could not be opened is tried again.
const REOPEN: Duration = Duration::from_secs(1);
/// How often idle connections are asked for credit, while others want some: every one is looked at.
const ASK_BACK_EVERY: Duration = Duration::from_millis(200);
/// How many at a time.
const ASK_BACK_MAX: usize = 256;
/// Packets of strangers that are worth a line in the log, and the time between two lines.
const STRANGER_PACKETS: (u64, Duration) = (100, Duration::from_secs(60));
/// Datagrams read before other work has its turn.
const BATCH: usize = 64;
/// Rounds of one poll; what is left waits for the next, which is due at once.
const ROUNDS: usize = 64;
/// Largest datagram.
const DATAGRAM_MAX: usize = 65_535;

/// The gateway of one site: a program over the site's [`GatewaySockets`].
pub struct Gateway {
    satellite: Box<dyn Satellite>,
    shared: Shared,
    connections: BTreeMap<Key, Connection>,
    next_key: Key,
    by_socket: BTreeMap<SocketId, Key>,
    by_stream: BTreeMap<StreamId, Key>,
    /// Connections with something to do.
    ready: BTreeSet<Key>,
    /// Connections that wait for the pair or the far side.
    pending: BTreeSet<Key>,
    deadlines: BTreeSet<(Instant, Key)>,
    ports: Ports,
    /// A datagram that found no room.
    unsent: Option<SocketAddr>,
    datagram: Vec<u8>,
    received: Vec<u8>,
    changed: Vec<SocketId>,
    pair: Pair,
    beside: Beside,
    new_rate: Option<Option<BitRate>>,
    new_incoming: Option<Option<BitRate>>,
    ending: Ending,
    limited: bool,
    asks_back_from: Instant,
    /// When the last poll was, and whether it left work behind.
    now: Instant,
    again: bool,
}

/// Names a connection; rises with each.
type Key = u64;

/// The gateway's own ports.
#[derive(Default)]
struct Ports {
    satellite: Option<SocketId>,
    socks: Option<SocketId>,
    connect: Option<SocketId>,
    /// When those that are missing are tried again; `None`: nothing is missing.
    again: Option<Instant>,
    told: BTreeSet<&'static str>,
}

/// What is known of the other gateway.
#[derive(Default)]
struct Pair {
    /// Since when it should be connected at any moment: the start, or the loss of a connection that is soon replaced.
    /// `None`: nobody knows when it will be.
    expected_since: Option<Instant>,
    started: bool,
    silent_since: Option<Instant>,
    failing: bool,
    held_down: bool,
    strangers: u64,
    other_versions: u64,
    stranger_packets: u64,
    stranger_packets_told: Option<Instant>,
    told_addresses: bool,
}

/// What goes past.
#[derive(Default)]
struct Beside {
    last: Option<(Instant, Bypassed)>,
    /// Bits per second on the wire, smoothed.
    bps: u64,
    /// Link bytes sent when it was measured last.
    sent: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Ending {
    #[default]
    No,
    /// When the last connection has ended.
    Drained,
    /// Now.
    Now,
    /// The pair's connection is closed.
    Closed,
}

impl Gateway {
    /// A gateway over this satellite side. It opens its sockets at the first poll.
    #[must_use]
    pub fn new(config: GatewayConfig, satellite: Box<dyn Satellite>) -> Gateway {
        Gateway {
            satellite,
            shared: Shared::new(config),
            connections: BTreeMap::new(),
            next_key: 0,
            by_socket: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            ready: BTreeSet::new(),
            pending: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            ports: Ports { again: Some(Instant::ZERO), ..Ports::default() },
            unsent: None,
            datagram: Vec::new(),
            received: vec![0; DATAGRAM_MAX],
            changed: Vec::new(),
            pair: Pair::default(),
            beside: Beside::default(),
            new_rate: None,
            new_incoming: None,
            ending: Ending::No,
            limited: false,
            asks_back_from: Instant::ZERO,
            now: Instant::ZERO,
            again: true,
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            connected: self.satellite.is_connected(),
            silent: self.pair.silent_since.is_some(),
            contexts: self.shared.contexts.in_use(),
            memory_held: self.shared.figures.memory_held + self.satellite.unread_bytes(),
            satellite: self.satellite.statistics(),
            ..self.shared.figures
        }
    }

    /// What it was told, the rate as it was set last.
    #[must_use]
    pub fn config(&self) -> &GatewayConfig {
        &self.shared.config
    }

    /// The link's rate has changed; `None`: measure it. Takes effect at the next poll.
    pub fn set_rate(&mut self, rate: Option<BitRate>) {
        self.new_rate = Some(rate);
        self.again = true;
    }

    /// The rate of the direction in which this gateway receives has changed; `None`: guessed. Takes effect at the next poll.
    pub fn set_incoming(&mut self, rate: Option<BitRate>) {
        self.new_incoming = Some(rate);
        self.again = true;
    }

    /// Takes no new connections: requests pass by or are refused, as [`GatewayConfig::fail`] says. Once the last
    /// connection has ended, the connection of the pair ends too, and the gateway is done.
    pub fn drain(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Drained;
            self.again = true;
        }
    }

    /// Resets every connection, ends the connection of the pair, and is done: at the next poll.
    pub fn end(&mut self) {
        if self.ending != Ending::Closed {
            self.ending = Ending::Now;
            self.again = true;
        }
    }

    /// What has happened since the last call, for the log.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.shared.notices.take()
    }

    /// Opens what is not open yet.
    fn open_ports(&mut self, sockets: &mut dyn GatewaySockets) {
        if self.ports.again.is_none_or(|at| at > self.now) || self.ending != Ending::No {
            return;
        }
        let config = &self.shared.config;
        let mut open = |slot: &mut Option<SocketId>, what, port, found: Result<SocketId, SocketError>| match found {
            Ok(socket) => {
                *slot = Some(socket);
                true
            }
            Err(why) => {
                if self.ports.told.insert(what) {
                    self.shared.notices.say(Notice::NoSocket { what, port, why });
                }
                false
            }
        };
        let mut complete = true;
        if self.ports.satellite.is_none() {
            let found = sockets.open_datagram(config.local_port);
            complete &= open(&mut self.ports.satellite, "UDP", config.local_port, found);
        }
        for (slot, what, port) in [
            (&mut self.ports.socks, "SOCKS", config.socks_port),
            (&mut self.ports.connect, "CONNECT", config.connect_port),
        ] {
            if let (None, Some(port)) = (*slot, port) {
                let found = sockets.listen(port);
                complete &= open(slot, what, port, found);
            }
        }
        self.ports.again = if complete { None } else { Some(self.now + REOPEN) };
    }

    /// Whether new connections can be relayed.
    fn reach(&self) -> Reach {
        if self.ending != Ending::No {
            return Reach::No;
        }
        let satellite = &self.shared.config.satellite;
        if self.satellite.is_connected() {
            let given_up = self.pair.silent_since.is_some_and(|since| self.now >= since + self.shared.config.grace);
            return if given_up && !satellite.dial_up { Reach::No } else { Reach::Yes };
        }
        let waits = self.pair.expected_since.is_some_and(|since| self.now < since + self.shared.config.grace);
        if waits || satellite.dial_up { Reach::Soon } else { Reach::No }
    }

    /// When [`Gateway::reach`] may change by itself.
    fn reach_changes(&self) -> Option<Instant> {
        if self.shared.config.satellite.dial_up {
            return None;
        }
        let from = if self.satellite.is_connected() { self.pair.silent_since? } else { self.pair.expected_since? };
        let at = from + self.shared.config.grace;
        (at > self.now).then_some(at)
    }

    /// Says so, and lets go of the requests that wait, when the other gateway can no longer be reached.
    fn check_reach(&mut self, sockets: &mut dyn GatewaySockets) {
        let failing = self.reach() == Reach::No;
        if failing != std::mem::replace(&mut self.pair.failing, failing) {
            let bypass = self.shared.config.fail == Fail::Open;
            self.shared.notices.say(if failing { Notice::Failing { bypass } } else { Notice::Relaying });
        }
        if failing {
            for key in std::mem::take(&mut self.pending) {
                self.with(sockets, key, |connection, site| connection.fail(site));
            }
        }
    }

    /// Does `work` with a connection and keeps the tables in step with what it came to.
    fn with(&mut self, sockets: &mut dyn GatewaySockets, key: Key, work: impl FnOnce(&mut Connection, &mut Site<'_>)) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let before = (connection.socket(), connection.stream(), connection.deadline(), connection.other_socket());
        let mut site = Site { now: self.now, sockets, satellite: &mut *self.satellite, shared: &mut self.shared };
        work(connection, &mut site);
        let after = (connection.socket(), connection.stream(), connection.deadline(), connection.other_socket());
        let (gone, pending) = (connection.is_gone(), connection.is_pending());
        for (before, after) in [(before.0, after.0), (before.3, after.3)] {
            if before != after || gone {
                if let Some(socket) = before {
                    self.by_socket.remove(&socket);
                }
                if let (Some(socket), false) = (after, gone) {
                    self.by_socket.insert(socket, key);
                }
            }
        }
        if before.1 != after.1 || gone {
            if let Some(stream) = before.1 {
                self.by_stream.remove(&stream);
            }
            if let (Some(stream), false) = (after.1, gone) {
                self.by_stream.insert(stream, key);
            }
        }
        if before.2 != after.2 || gone {
            if let Some(at) = before.2 {
                self.deadlines.remove(&(at, key));
            }
            if let (Some(at), false) = (after.2, gone) {
                self.deadlines.insert((at, key));
            }
        }
        if pending {
            self.pending.insert(key);
        } else {
            self.pending.remove(&key);
        }
        if gone {
            self.connections.remove(&key);
        }
    }

    fn add(&mut self, connection: Connection) -> Key {
        let key = self.next_key;
        self.next_key += 1;
        if let Some(socket) = connection.socket() {
            self.by_socket.insert(socket, key);
        }
        if let Some(stream) = connection.stream() {
            self.by_stream.insert(stream, key);
        }
        if let Some(at) = connection.deadline() {
            self.deadlines.insert((at, key));
        }
        self.connections.insert(key, connection);
        self.ready.insert(key);
        key
    }

    fn site<'a>(&'a mut self, sockets: &'a mut dyn GatewaySockets) -> Site<'a> {
        Site { now: self.now, sockets, satellite: &mut *self.satellite, shared: &mut self.shared }
    }

    /// Reads datagrams; whether there were any.
    fn receive(&mut self, sockets: &mut dyn GatewaySockets) -> bool {
        let Some(socket) = self.ports.satellite else { return false };
        for count in 0..BATCH {
            match sockets.receive_from(socket, &mut self.received) {
                Ok(Some((length, from))) => self.satellite.receive(self.now, from, &self.received[..length]),
                // An error is an ICMP message about something sent earlier: the satellite side notices by itself.
                Ok(None) | Err(_) => return count > 0,
            }
        }
        true
    }

    /// Sends what the satellite side has room for; whether there was anything.
    fn transmit(&mut self, sockets: &mut dyn GatewaySockets) -> bool {
        let Some(socket) = self.ports.satellite else { return false };
        let mut any = false;
        loop {
            let to = match self.unsent.take() {
                Some(to) => to,
                None => {
                    self.datagram.clear();
                    match self.satellite.poll_transmit(self.now, &mut self.datagram) {
                        Some(to) => to,
                        None => return any,
                    }
                }
            };
            if sockets.send_to(socket, to, &self.datagram) == Ok(false) {
                self.unsent = Some(to);
                return any;
            }
            any = true;
        }
    }

    /// Takes the satellite side's events; whether there were any.
    fn take_events(&mut self, sockets: &mut dyn GatewaySockets) -> bool {
        let mut any = false;
        while let Some(event) = self.satellite.poll_event() {
            any = true;
            match event {
                Event::Connected => {
                    self.pair.silent_since = None;
                    self.shared.notices.say(Notice::Connected);
                    self.ready.extend(self.pending.iter().copied());
                }
                Event::Opened(stream) => self.opened(sockets, stream),
                Event::Readable(stream) | Event::Writable(stream) => {
                    self.ready.extend(self.by_stream.get(&stream).copied());
                }
                Event::Signal(stream, word) => {
                    if let Some(key) = self.by_stream.get(&stream).copied() {
                        self.with(sockets, key, |connection, site| connection.credit(site, word));
                        self.ready.insert(key);
                    }
                }
                Event::Overrun(stream) => {
                    if let Some(key) = self.by_stream.get(&stream).copied() {
                        self.with(sockets, key, |connection, site| connection.overrun(site));
                        self.ready.insert(key);
                    }
                }
                Event::Reset(stream, _) => {
                    if let Some(key) = self.by_stream.get(&stream).copied() {
                        self.with(sockets, key, |connection, site| connection.peer_reset(site));
                    }
                }
                Event::Stopped(stream, _) => {
                    if let Some(key) = self.by_stream.get(&stream).copied() {
                        self.with(sockets, key, |connection, site| connection.peer_stopped(site));
                        self.ready.insert(key);
                    }
                }
                Event::Delivered(_) => {}
                Event::Silent => {
                    self.pair.silent_since.get_or_insert(self.now);
                    self.shared.notices.say(Notice::Silent);
                }
                Event::Heard => {
                    self.pair.silent_since = None;
                    self.shared.notices.say(Notice::Heard);
                }
                Event::Lost(why) => {
                    // Started anew, the other gateway is back. One that was silent for longer than the grace, or has taken
                    // leave, is away for nobody knows how long.
                    let is_back = matches!(why, Loss::Restarted | Loss::Protocol) && !self.pair.failing;
                    self.pair.expected_since = is_back.then_some(self.now);
                    self.pair.silent_since = None;
                    let waits = is_back || self.shared.config.satellite.dial_up;
                    let lost: Vec<Key> = self.by_stream.values().copied().collect();
                    let connections = lost.iter().filter(|key| self.connections[key].is_relayed()).count();
                    for key in lost {
                        self.with(sockets, key, |connection, site| connection.lost(site, waits));
                    }
                    self.shared.notices.say(Notice::Lost { why, connections });
                }
            }
        }
        any
    }

    /// The other gateway opened a stream.
    fn opened(&mut self, sockets: &mut dyn GatewaySockets, stream: StreamId) {
        let room = self.connections.len() < self.shared.config.connections && self.ending == Ending::No;
        let connection = Connection::opened(&mut self.site(sockets), stream);
        let key = self.add(connection);
        if !room {
            self.shared.figures.over_limit += 1;
            self.with(sockets, key, |connection, site| connection.refuse_peer(site, Outcome::Busy));
        }
    }

    /// Takes caught requests; whether there were any.
    fn take_requests(&mut self, sockets: &mut dyn GatewaySockets) -> bool {
        let mut any = false;
        while let Some(request) = sockets.next_request() {
            any = true;
            let pending = self.shared.figures.requests_pending < self.shared.config.pending as u64;
            let what = if !pending {
                "waiting requests"
            } else if self.connections.len() >= self.shared.config.connections {
                "connections"
            } else if self.shared.is_full() {
                "memory"
            } else {
                self.limited = false;
                let connection = Connection::caught(&mut self.site(sockets), request);
                let key = self.add(connection);
                self.pending.insert(key);
                continue;
            };
            // Failing comes first: a full table is no reason to hold up what would pass by anyway.
            let how = match (self.reach(), self.shared.config.fail) {
                (Reach::No, Fail::Open) => Refusal::Bypassed,
                (Reach::No, Fail::Closed) => Refusal::Refused,
                _ => Refusal::Ignored,
            };
            self.shared.figures.requests += 1;
            self.shared.figures.over_limit += 1;
            if !std::mem::replace(&mut self.limited, true) {
                self.shared.notices.say(Notice::LimitReached(what));
            }
            sockets.refuse(request.id, how);
        }
        any
    }

    /// Accepts clients of the proxies; whether there were any.
    fn accept(&mut self, sockets: &mut dyn GatewaySockets) -> bool {
        let mut any = false;
        for (listener, protocol) in [(self.ports.socks, Protocol::Socks), (self.ports.connect, Protocol::Connect)] {
            let Some(listener) = listener else { continue };
            while let Ok(Some(socket)) = sockets.accept(listener) {
                any = true;
                let full = self.connections.len() >= self.shared.config.connections;
                if self.ending != Ending::No || full {
                    self.shared.figures.over_limit += 1;
                    if full && !std::mem::replace(&mut self.limited, true) {
                        self.shared.notices.say(Notice::LimitReached("connections"));
                    }
                    sockets.abort(socket);
                    continue;
                }
                self.limited = false;
                let connection = Connection::asked(&mut self.site(sockets), socket, protocol);
                self.add(connection);
            }
        }
        any
    }

    /// Works every connection that has something to do.
    fn work(&mut self, sockets: &mut dyn GatewaySockets) {
        let reach = self.reach();
        for key in std::mem::take(&mut self.ready) {
            self.with(sockets, key, |connection, site| connection.work(site, reach));
        }
        if self.shared.budget.take_short() && self.now >= self.asks_back_from {
            self.ask_back(sockets);
        }
    }

    /// Asks for credit that idle connections hold, for those that want it.
    fn ask_back(&mut self, sockets: &mut dyn GatewaySockets) {
        self.asks_back_from = self.now + ASK_BACK_EVERY;
        let mut asked = 0;
        for key in self.connections.keys().copied().collect::<Vec<_>>() {
            self.with(sockets, key, |connection, site| asked += usize::from(connection.ask_back(site)));
            if asked == ASK_BACK_MAX {
                break;
            }
        }
    }

    fn expire(&mut self, sockets: &mut dyn GatewaySockets) {
        while let Some((at, key)) = self.deadlines.first().copied()
            && at <= self.now
        {
            self.deadlines.remove(&(at, key));
            self.with(sockets, key, |connection, site| connection.expire(site));
            self.ready.insert(key);
        }
    }

    /// Measures what goes past and tells the satellite side.
    fn measure_beside(&mut self, sockets: &mut dyn GatewaySockets) {
        let peer = self.satellite.peer().map(|peer| peer.ip().to_canonical());
        let (last, before) = match self.beside.last {
            Some((last, _)) if self.now < last + BESIDE_EVERY => return,
            Some(last) => last,
            None => {
                self.beside.last = Some((self.now, sockets.bypassed(peer)));
                return;
            }
        };
        let bypassed = sockets.bypassed(peer);
        let packets = bypassed.packets.saturating_sub(before.packets);
        let bytes = bypassed.bytes.saturating_sub(before.bytes);
        self.shared.figures.beside_packets = bypassed.packets;
        self.shared.figures.beside_bytes = bypassed.bytes;
        // What the packets became on the wire: so many of the mean length.
        let mean = bytes.checked_div(packets).unwrap_or(0);
        let framing = self.shared.config.satellite.framing;
        let bits = if packets == 0 { 0 } else { framing.bits(mean, false) * packets };
        let span = self.now.since(last);
        let seen = u128::from(bits) * 1_000_000_000 / u128::from(span.ns.max(1));
        let seen = u64::try_from(seen).unwrap_or(u64::MAX);
        // Smoothed over about half a second; after a pause the measurement alone counts.
        let bps = if span > Duration::from_millis(500) { seen } else { self.beside.bps / 5 * 4 + seen / 5 };
        let bps = if bps < 100 { 0 } else { bps };
        if bps != self.beside.bps {
            self.beside.bps = bps;
            self.satellite.set_beside(self.now, BitRate::from_bps(bps));
        }
        self.beside.sent = self.satellite.statistics().link_bytes_sent;
        self.beside.last = Some((self.now, bypassed));
    }

    /// When [`Gateway::measure_beside`] is due: only while something is sent.
    fn beside_due(&self) -> Option<Instant> {
        let (last, _) = self.beside.last?;
        let active = self.beside.bps > 0 || self.satellite.statistics().link_bytes_sent != self.beside.sent;
        active.then_some(last + BESIDE_EVERY)
    }

    /// Tells the log what the satellite side's figures show.
    fn watch(&mut self) {
        let statistics = self.satellite.statistics();
        if statistics.strangers > self.pair.strangers {
            self.pair.strangers = statistics.strangers;
            self.shared.notices.say(Notice::Stranger(statistics.strangers));
        }
        if statistics.other_versions > std::mem::replace(&mut self.pair.other_versions, statistics.other_versions) {
            self.shared.notices.say(Notice::OtherVersion(statistics.other_versions));
        }
        let (many, apart) = STRANGER_PACKETS;
        let may_tell = self.pair.stranger_packets_told.is_none_or(|told| self.now >= told + apart);
        if may_tell && statistics.stranger_packets >= self.pair.stranger_packets + many {
            self.pair.stranger_packets = statistics.stranger_packets;
            self.pair.stranger_packets_told = Some(self.now);
            self.shared.notices.say(Notice::StrangerPackets(statistics.stranger_packets));
        }
        if statistics.held_down != std::mem::replace(&mut self.pair.held_down, statistics.held_down) {
            let declared = BitRate::from_bps(statistics.declared_bps);
            let now = BitRate::from_bps(statistics.rate_bps);
            self.shared.notices.say(match statistics.held_down {
                true => Notice::HeldDown { declared, now },
                false => Notice::Released,
            });
        }
    }

    /// Goes on with ending.
    fn wind_up(&mut self, sockets: &mut dyn GatewaySockets) {
        if self.ending == Ending::No || self.ending == Ending::Closed {
            return;
        }
        for listener in [self.ports.socks.take(), self.ports.connect.take()].into_iter().flatten() {
            sockets.close(listener);
        }
        if self.ending == Ending::Now {
            let all: Vec<Key> = self.connections.keys().copied().collect();
            for key in all {
                self.with(sockets, key, |connection, site| connection.end(site));
            }
        }
        if self.connections.is_empty() {
            self.satellite.close(self.now);
            self.ending = Ending::Closed;
        }
    }
}

impl GatewayProgram for Gateway {
    fn poll(&mut self, now: Instant, sockets: &mut dyn GatewaySockets) {
        self.now = self.now.max(now);
        self.again = false;
        if !std::mem::replace(&mut self.pair.told_addresses, true) && !sockets.keeps_addresses() {
            self.shared.notices.say(Notice::AddressesHidden);
        }
        if !std::mem::replace(&mut self.pair.started, true) {
            self.pair.expected_since = Some(self.now);
        }
        self.open_ports(sockets);
        if let Some(rate) = self.new_rate.take() {
            self.shared.config.satellite.rate = rate;
            self.shared.policy = Policy::new(&self.shared.config.interactive, rate);
            self.satellite.set_rate(self.now, rate);
        }
        if let Some(rate) = self.new_incoming.take() {
            self.satellite.set_incoming(self.now, rate);
        }
        self.satellite.wake(self.now);
        for round in 1.. {
            let mut any = self.receive(sockets);
            self.shared.unread = self.satellite.unread_bytes();
            any |= self.take_events(sockets);
            sockets.take_changed(&mut self.changed);
            for socket in self.changed.drain(..) {
                self.ready.extend(self.by_socket.get(&socket).copied());
            }
            any |= self.take_requests(sockets);
            any |= self.accept(sockets);
            self.expire(sockets);
            self.check_reach(sockets);
            any |= !self.ready.is_empty();
            self.work(sockets);
            self.wind_up(sockets);
            any |= self.transmit(sockets);
            if !any {
                break;
            }
            if round == ROUNDS {
                self.again = true;
                break;
            }
        }
        self.measure_beside(sockets);
        self.watch();
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.again {
            return Some(self.now);
        }
        if self.is_done() {
            return None;
        }
        // While the socket is full, what the satellite side would send next waits too.
        let satellite = self.satellite.next_wake();
        let satellite = if self.unsent.is_some() { Some(self.now + RETRY) } else { satellite };
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        [satellite, deadline, self.ports.again, self.reach_changes(), self.beside_due()].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.ending == Ending::Closed && self.unsent.is_none() && !self.again
    }
}
