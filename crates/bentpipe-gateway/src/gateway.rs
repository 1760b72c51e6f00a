//! The gateway of one site.

use crate::config::GatewayConfig;
use crate::front_end::{Admission, FrontEnd, FrontEndSettings, Negotiation};
use crate::log_event::{LinkDirection, LogEvent, Outcome, Unanswered};
use crate::metrics::Metrics;
use crate::relay::class::Policy;
use crate::relay::connection::{Connection, Reach};
use crate::relay::table::{ConnectionTable, Key};
use crate::relay::{Shared, Site};
use crate::satellite::{DeclaredRates, Event, Loss, Satellite, Side, StreamId};
use crate::settings::Fail;
use bentpipe_net::interception::{Bypassed, GatewayProgram, GatewaySockets, Refusal, Request};
use bentpipe_net::socket::{SocketError, SocketId};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use line::DialledLine;
use std::net::SocketAddr;

mod line;

/// Interval between measurements of bypassing traffic while there is any traffic.
const BYPASS_EVERY: Duration = Duration::from_millis(100);
/// When a datagram that found no room is tried again, if no socket announces room before.
const RETRY: Duration = Duration::from_millis(1);
/// When a port that could not be opened is tried again.
const REOPEN: Duration = Duration::from_secs(1);
/// Interval at which idle connections are asked to return credit while others need some: every one is polled.
const ASK_BACK_EVERY: Duration = Duration::from_millis(200);
/// Most connections at a time.
const ASK_BACK_MAX: usize = 256;
/// Unauthenticated packets that are worth a line in the log, and the time between two lines.
const UNAUTHENTICATED_PACKETS: (u64, Duration) = (100, Duration::from_secs(60));
/// Time between two lines in the log that the hub cannot be reached, for the same reason, or that a key seems to be used twice.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Rates differ if one is above the other by more than this part: less has no effect, and a file may round.
const RATES_DIFFER: u64 = 10;
/// Errors of the UDP socket that are taken in one round: each is about a packet sent earlier.
const ERRORS_MAX: usize = 8;
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
    /// A line that this side dials.
    line: Option<DialledLine>,
    table: ConnectionTable,
    front_ends: Vec<Box<dyn FrontEnd>>,
    port: PairPort,
    /// A datagram that found no room.
    unsent: Option<SocketAddr>,
    datagram: Vec<u8>,
    received: Vec<u8>,
    changed: Vec<SocketId>,
    pair: Pair,
    bypass: Bypass,
    new_rate: Option<Option<BitRate>>,
    new_incoming: Option<Option<BitRate>>,
    new_hub: Option<SocketAddr>,
    declares: bool,
    ending: Ending,
    /// The front ends are closed.
    closed: bool,
    limited: bool,
    asks_back_from: Instant,
    /// When the last poll was, and whether it left work behind.
    now: Instant,
    again: bool,
}

/// The satellite side's UDP socket.
#[derive(Default)]
struct PairPort {
    socket: Option<SocketId>,
    /// When it is tried again; `None`: it is open.
    open_at: Option<Instant>,
    reported: bool,
}

/// The state of the other gateway.
#[derive(Default)]
struct Pair {
    /// Since when it should be connected at any moment: the start, or the loss of a connection that is soon replaced.
    /// `None`: nobody knows when it will be.
    expected_since: Option<Instant>,
    started: bool,
    silent_since: Option<Instant>,
    failing: bool,
    throttled: bool,
    unauthenticated_peers: u64,
    other_versions: u64,
    unauthenticated_packets: u64,
    unauthenticated_packets_reported: Option<Instant>,
    reported_addresses: bool,
    /// The last ICMP error, or failure to send, since the pair was connected last or an attempt to connect ended.
    socket_error: Option<SocketError>,
    /// When and why the lack of a connection was logged last.
    unanswered: Option<(Instant, Unanswered)>,
    shared_key_reported: Option<Instant>,
}

/// Traffic that bypasses the relay.
#[derive(Default)]
struct Bypass {
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
        let (satellite, line) = DialledLine::around(&config, satellite);
        let mut shared = Shared::new(config);
        let mut front_ends: Vec<_> = shared.config.front_ends.iter().map(FrontEndSettings::build).collect();
        shared.filters = front_ends.iter_mut().filter_map(|front_end| front_end.filters()).collect();
        Gateway {
            satellite,
            shared,
            line,
            table: ConnectionTable::default(),
            front_ends,
            port: PairPort { open_at: Some(Instant::ZERO), ..PairPort::default() },
            unsent: None,
            datagram: Vec::new(),
            received: vec![0; DATAGRAM_MAX],
            changed: Vec::new(),
            pair: Pair::default(),
            bypass: Bypass::default(),
            new_rate: None,
            new_incoming: None,
            new_hub: None,
            declares: false,
            ending: Ending::No,
            closed: false,
            limited: false,
            asks_back_from: Instant::ZERO,
            now: Instant::ZERO,
            again: true,
        }
    }

    /// Its counters so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics {
            connected: self.satellite.is_connected(),
            silent: self.pair.silent_since.is_some(),
            contexts: self.shared.contexts.in_use(),
            memory_buffered: self.shared.metrics.memory_buffered + self.satellite.unread_bytes(),
            satellite: self.satellite.statistics(),
            line: self.line.as_ref().map(|line| line.metrics(self.now)).unwrap_or_default(),
            ..self.shared.metrics
        }
    }

    /// Its configuration, with the rate as it was set last.
    #[must_use]
    pub fn config(&self) -> &GatewayConfig {
        &self.shared.config
    }

    /// The link's rate has changed; `None`: measure it. Takes effect at the next poll.
    pub fn set_rate(&mut self, rate: Option<BitRate>) {
        self.new_rate = Some(rate);
        self.again = true;
    }

    /// The rate of the direction in which this gateway receives has changed; `None`: guessed. Takes effect at the next
    /// poll.
    pub fn set_incoming(&mut self, rate: Option<BitRate>) {
        self.new_incoming = Some(rate);
        self.again = true;
    }

    /// Declares the rates again to the other gateway, which compares them with its own: at the next poll.
    pub fn declare_rates(&mut self) {
        self.declares = true;
        self.again = true;
    }

    /// A terminal: the hub's address is known, or has changed.
    pub fn set_hub(&mut self, hub: SocketAddr) {
        self.new_hub = Some(hub);
        self.again = true;
    }

    /// The UDP port of the satellite side is open.
    #[must_use]
    pub fn has_port(&self) -> bool {
        self.port.socket.is_some()
    }

    /// Takes no new connections: requests pass by or are refused, as [`Settings::fail`](crate::Settings::fail) says.
    /// Once the last connection has ended, the connection of the pair ends too, and the gateway is done.
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

    /// The events since the last call, for the log.
    pub fn take_log(&mut self) -> Vec<LogEvent> {
        self.shared.log.take()
    }

    /// Opens the satellite side's socket, if it is not open.
    fn open_port(&mut self, sockets: &mut dyn GatewaySockets) {
        if self.port.open_at.is_none_or(|at| at > self.now) || self.ending != Ending::No {
            return;
        }
        let port = self.shared.config.local_port;
        match sockets.open_datagram(port) {
            Ok(socket) => (self.port.socket, self.port.open_at) = (Some(socket), None),
            Err(why) => {
                self.port.open_at = Some(self.now + REOPEN);
                if !std::mem::replace(&mut self.port.reported, true) {
                    self.shared.log.emit(LogEvent::NoSocket { what: "UDP", port, why });
                }
            }
        }
    }

    /// Whether new connections can be relayed.
    fn reach(&self) -> Reach {
        if self.ending != Ending::No || self.line.as_ref().is_some_and(DialledLine::refuses) {
            return Reach::No;
        }
        let satellite = &self.shared.config.satellite;
        if self.satellite.is_connected() {
            let given_up =
                self.pair.silent_since.is_some_and(|since| self.now >= since + self.shared.config.settings.grace);
            return if given_up && !satellite.dial_up { Reach::No } else { Reach::Yes };
        }
        let waits = self.pair.expected_since.is_some_and(|since| self.now < since + self.shared.config.settings.grace);
        if waits || satellite.dial_up { Reach::Soon } else { Reach::No }
    }

    /// When [`Gateway::reach`] may change by itself.
    fn reach_changes(&self) -> Option<Instant> {
        if self.shared.config.satellite.dial_up {
            return None;
        }
        let from = if self.satellite.is_connected() { self.pair.silent_since? } else { self.pair.expected_since? };
        let at = from + self.shared.config.settings.grace;
        (at > self.now).then_some(at)
    }

    /// Says so, and lets go of the requests that wait, when the other gateway can no longer be reached.
    fn check_reach(&mut self, sockets: &mut dyn GatewaySockets) {
        let failing = self.reach() == Reach::No;
        if failing != std::mem::replace(&mut self.pair.failing, failing) {
            let bypass = self.shared.config.settings.fail == Fail::Open;
            self.shared.log.emit(if failing { LogEvent::Failing { bypass } } else { LogEvent::Relaying });
        }
        if failing {
            for key in self.table.pending() {
                self.with(sockets, key, |connection, site| connection.fail(site));
            }
        }
    }

    /// Does `work` with a connection.
    fn with(&mut self, sockets: &mut dyn GatewaySockets, key: Key, work: impl FnOnce(&mut Connection, &mut Site<'_>)) {
        let mut site = Site { now: self.now, sockets, satellite: &mut *self.satellite, shared: &mut self.shared };
        self.table.with(key, &mut site, work);
    }

    fn site<'a>(&'a mut self, sockets: &'a mut dyn GatewaySockets) -> Site<'a> {
        Site { now: self.now, sockets, satellite: &mut *self.satellite, shared: &mut self.shared }
    }

    /// Reads datagrams; whether there were any.
    fn receive(&mut self, sockets: &mut dyn GatewaySockets) -> bool {
        let Some(socket) = self.port.socket else { return false };
        let (mut datagrams, mut errors) = (0, 0);
        while datagrams < BATCH {
            match sockets.receive_from(socket, &mut self.received) {
                Ok(Some(arrival)) => {
                    datagrams += 1;
                    self.satellite.receive(self.now, arrival.from, &self.received[..arrival.bytes]);
                }
                Ok(None) => break,
                // An ICMP message about something sent earlier: it explains why there is no connection, and ends none.
                Err(why) => {
                    self.pair.socket_error = Some(why);
                    errors += 1;
                    if errors == ERRORS_MAX {
                        break;
                    }
                }
            }
        }
        datagrams > 0
    }

    /// Sends what the satellite side has room for; whether there was anything.
    fn transmit(&mut self, sockets: &mut dyn GatewaySockets) -> bool {
        let Some(socket) = self.port.socket else { return false };
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
            match sockets.send_to(socket, to, &self.datagram) {
                Ok(true) => {}
                Ok(false) => {
                    self.unsent = Some(to);
                    return any;
                }
                Err(why) => self.pair.socket_error = Some(why),
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
                    (self.pair.unanswered, self.pair.socket_error) = (None, None);
                    self.shared.log.emit(LogEvent::Connected);
                    self.table.mark_pending();
                }
                Event::Declared(peer) => self.compare_rates(peer),
                Event::Unanswered { hub, heard } => self.report_unanswered(hub, heard),
                Event::SharedKey(addresses) => {
                    if self.pair.shared_key_reported.is_none_or(|at| self.now >= at + REPORT_EVERY) {
                        self.pair.shared_key_reported = Some(self.now);
                        self.shared.log.emit(LogEvent::SharedKey(addresses));
                    }
                }
                Event::Opened(stream) => self.opened(sockets, stream),
                Event::Readable(stream) | Event::Writable(stream) => self.table.mark_stream(stream),
                Event::Signal(stream, word) => {
                    if let Some(key) = self.table.of_stream(stream) {
                        self.with(sockets, key, |connection, site| connection.credit(site, word));
                        self.table.mark(key);
                    }
                }
                Event::Overrun(stream) => {
                    if let Some(key) = self.table.of_stream(stream) {
                        self.with(sockets, key, |connection, site| connection.overrun(site));
                        self.table.mark(key);
                    }
                }
                Event::Reset(stream, _) => {
                    if let Some(key) = self.table.of_stream(stream) {
                        self.with(sockets, key, |connection, site| connection.peer_reset(site));
                    }
                }
                Event::Stopped(stream, _) => {
                    if let Some(key) = self.table.of_stream(stream) {
                        self.with(sockets, key, |connection, site| connection.peer_stopped(site));
                        self.table.mark(key);
                    }
                }
                Event::Delivered(_) => {}
                Event::Silent => {
                    self.pair.silent_since.get_or_insert(self.now);
                    self.shared.log.emit(LogEvent::Silent);
                }
                Event::Heard => {
                    self.pair.silent_since = None;
                    self.shared.log.emit(LogEvent::Heard);
                }
                Event::Lost(why) => {
                    // Restarted, the other gateway is back. One that was silent for longer than the grace, or has taken
                    // leave, is away for nobody knows how long.
                    let is_back = matches!(why, Loss::Restarted | Loss::Protocol) && !self.pair.failing;
                    self.pair.expected_since = is_back.then_some(self.now);
                    self.pair.silent_since = None;
                    // What was said while the pair was connected explains no attempt that comes now.
                    self.pair.socket_error = None;
                    let waits = is_back || self.shared.config.satellite.dial_up;
                    let (lost, connections) = self.table.with_streams();
                    for key in lost {
                        self.with(sockets, key, |connection, site| connection.lost(site, waits));
                    }
                    self.shared.log.emit(LogEvent::Lost { why, connections });
                }
            }
        }
        any
    }

    /// The other gateway declares its rates: those of one direction must be about the same at both.
    fn compare_rates(&mut self, peer: DeclaredRates) {
        let own = self.satellite.declared();
        let (sending, receiving) = match self.shared.config.satellite.side {
            Side::Hub => (LinkDirection::Forward, LinkDirection::Return),
            Side::Terminal(_) => (LinkDirection::Return, LinkDirection::Forward),
        };
        for (direction, here, there) in
            [(sending, own.sending, peer.receiving), (receiving, own.receiving, peer.sending)]
        {
            let (Some(here), Some(there)) = (here, there) else { continue };
            if here.bps.abs_diff(there.bps) > here.bps.max(there.bps) / RATES_DIFFER {
                self.shared.log.emit(LogEvent::RatesDiffer { direction, here, there });
            }
        }
    }

    /// An attempt to connect has failed: logged at once, for another reason, and then at intervals.
    fn report_unanswered(&mut self, hub: SocketAddr, heard: bool) {
        let why = match (heard, self.pair.socket_error.take()) {
            (true, _) => Unanswered::Incomplete,
            (false, Some(why)) => Unanswered::Icmp(why),
            (false, None) => Unanswered::Silent,
        };
        if self.pair.unanswered.is_none_or(|(at, last)| last != why || self.now >= at + REPORT_EVERY) {
            self.pair.unanswered = Some((self.now, why));
            self.shared.log.emit(LogEvent::Unanswered { hub, why });
        }
    }

    /// The other gateway opened a stream.
    fn opened(&mut self, sockets: &mut dyn GatewaySockets, stream: StreamId) {
        let room = self.table.len() < self.shared.config.settings.connections && self.ending == Ending::No;
        let connection = Connection::opened(&mut self.site(sockets), stream);
        let key = self.table.add(connection);
        if !room {
            self.shared.metrics.over_limit += 1;
            self.with(sockets, key, |connection, site| connection.refuse_peer(site, Outcome::Busy));
        }
    }

    /// Lets the front ends take clients in; whether there were any.
    fn poll_front_ends(&mut self, sockets: &mut dyn GatewaySockets) -> bool {
        let mut front_ends = std::mem::take(&mut self.front_ends);
        let mut entrance = Entrance { gateway: self, sockets, admitted: false };
        for front_end in &mut front_ends {
            front_end.poll(entrance.gateway.now, &mut entrance);
        }
        let admitted = entrance.admitted;
        self.front_ends = front_ends;
        admitted
    }

    /// Works every connection that has something to do.
    fn work(&mut self, sockets: &mut dyn GatewaySockets) {
        let reach = self.reach();
        for key in self.table.take_ready() {
            self.with(sockets, key, |connection, site| connection.work(site, reach));
        }
        if self.shared.budget.take_short() && self.now >= self.asks_back_from {
            self.ask_back(sockets);
        }
    }

    /// Asks for credit that idle connections hold, for those that want it.
    fn ask_back(&mut self, sockets: &mut dyn GatewaySockets) {
        self.asks_back_from = self.now + ASK_BACK_EVERY;
        let mut requested = 0;
        for key in self.table.keys() {
            self.with(sockets, key, |connection, site| requested += usize::from(connection.ask_back(site)));
            if requested == ASK_BACK_MAX {
                break;
            }
        }
    }

    fn expire(&mut self, sockets: &mut dyn GatewaySockets) {
        while let Some(key) = self.table.take_due(self.now) {
            self.with(sockets, key, |connection, site| connection.expire(site));
            self.table.mark(key);
        }
    }

    /// Measures the traffic that bypasses the relay and tells the satellite side.
    fn measure_bypass(&mut self, sockets: &mut dyn GatewaySockets) {
        let peer = self.satellite.peer().map(|peer| peer.ip().to_canonical());
        let (last, before) = match self.bypass.last {
            Some((last, _)) if self.now < last + BYPASS_EVERY => return,
            Some(last) => last,
            None => {
                self.bypass.last = Some((self.now, sockets.bypassed(peer)));
                return;
            }
        };
        let bypassed = sockets.bypassed(peer);
        let packets = bypassed.packets.saturating_sub(before.packets);
        let bytes = bypassed.bytes.saturating_sub(before.bytes);
        self.shared.metrics.bypass_packets = bypassed.packets;
        self.shared.metrics.bypass_bytes = bypassed.bytes;
        // What the packets became on the wire: so many of the mean length.
        let mean = bytes.checked_div(packets).unwrap_or(0);
        let framing = self.shared.config.satellite.framing;
        let bits = if packets == 0 { 0 } else { framing.bits(mean, false) * packets };
        let span = self.now.since(last);
        let seen = u128::from(bits) * 1_000_000_000 / u128::from(span.ns.max(1));
        let seen = u64::try_from(seen).unwrap_or(u64::MAX);
        // Smoothed over about half a second; after a pause the measurement alone counts.
        let bps = if span > Duration::from_millis(500) { seen } else { self.bypass.bps / 5 * 4 + seen / 5 };
        let bps = if bps < 100 { 0 } else { bps };
        if bps != self.bypass.bps {
            self.bypass.bps = bps;
            self.satellite.set_bypass(self.now, BitRate::from_bps(bps));
        }
        self.bypass.sent = self.satellite.statistics().link_bytes_sent;
        self.bypass.last = Some((self.now, bypassed));
    }

    /// When [`Gateway::measure_bypass`] is due: only while something is sent.
    fn bypass_due(&self) -> Option<Instant> {
        let (last, _) = self.bypass.last?;
        let active = self.bypass.bps > 0 || self.satellite.statistics().link_bytes_sent != self.bypass.sent;
        active.then_some(last + BYPASS_EVERY)
    }

    /// Logs what the satellite side's statistics show.
    fn watch(&mut self) {
        let statistics = self.satellite.statistics();
        if statistics.unauthenticated_peers > self.pair.unauthenticated_peers {
            self.pair.unauthenticated_peers = statistics.unauthenticated_peers;
            let (count, peer) = (statistics.unauthenticated_peers, self.satellite.last_refused());
            self.shared.log.emit(LogEvent::Unauthenticated { count, peer });
        }
        if statistics.other_versions > std::mem::replace(&mut self.pair.other_versions, statistics.other_versions) {
            self.shared.log.emit(LogEvent::OtherVersion(statistics.other_versions));
        }
        let (many, apart) = UNAUTHENTICATED_PACKETS;
        let may_report = self.pair.unauthenticated_packets_reported.is_none_or(|reported| self.now >= reported + apart);
        if may_report && statistics.unauthenticated_packets >= self.pair.unauthenticated_packets + many {
            self.pair.unauthenticated_packets = statistics.unauthenticated_packets;
            self.pair.unauthenticated_packets_reported = Some(self.now);
            self.shared.log.emit(LogEvent::UnauthenticatedPackets(statistics.unauthenticated_packets));
        }
        if statistics.throttled != std::mem::replace(&mut self.pair.throttled, statistics.throttled) {
            let declared = BitRate::from_bps(statistics.declared_bps);
            let now = BitRate::from_bps(statistics.rate_bps);
            self.shared.log.emit(match statistics.throttled {
                true => LogEvent::Throttled { declared, now },
                false => LogEvent::Released,
            });
        }
    }

    /// Goes on with shutting down.
    fn shut_down(&mut self, sockets: &mut dyn GatewaySockets) {
        if self.ending == Ending::No || self.ending == Ending::Closed {
            return;
        }
        if !std::mem::replace(&mut self.closed, true) {
            for front_end in &mut self.front_ends {
                front_end.close(sockets);
            }
        }
        if self.ending == Ending::Now {
            for key in self.table.keys() {
                self.with(sockets, key, |connection, site| connection.end(site));
            }
        }
        if self.table.is_empty() {
            self.satellite.close(self.now);
            self.stop_line();
            self.ending = Ending::Closed;
        }
    }
}

impl GatewayProgram for Gateway {
    fn poll(&mut self, now: Instant, sockets: &mut dyn GatewaySockets) {
        self.now = self.now.max(now);
        self.again = false;
        if !std::mem::replace(&mut self.pair.reported_addresses, true) && !sockets.keeps_addresses() {
            self.shared.log.emit(LogEvent::AddressesHidden);
        }
        if !std::mem::replace(&mut self.pair.started, true) {
            self.pair.expected_since = Some(self.now);
        }
        self.open_port(sockets);
        if let Some(rate) = self.new_rate.take() {
            self.shared.config.satellite.rate = rate;
            self.shared.policy = Policy::new(&self.shared.config.settings.interactive, rate);
            self.satellite.set_rate(self.now, rate);
        }
        if let Some(rate) = self.new_incoming.take() {
            self.satellite.set_incoming(self.now, rate);
        }
        if let Some(hub) = self.new_hub.take() {
            self.satellite.set_hub(self.now, hub);
        }
        if std::mem::take(&mut self.declares) {
            self.satellite.declare();
        }
        self.satellite.wake(self.now);
        for round in 1.. {
            let mut any = self.receive(sockets);
            self.shared.unread = self.satellite.unread_bytes();
            any |= self.take_events(sockets);
            sockets.take_changed(&mut self.changed);
            for socket in self.changed.drain(..) {
                self.table.mark_socket(socket);
            }
            any |= self.poll_front_ends(sockets);
            self.expire(sockets);
            self.check_reach(sockets);
            any |= self.table.has_ready();
            self.work(sockets);
            self.work_line(sockets);
            self.shut_down(sockets);
            any |= self.transmit(sockets);
            if !any {
                break;
            }
            if round == ROUNDS {
                self.again = true;
                break;
            }
        }
        self.measure_bypass(sockets);
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
        let front_ends = self.front_ends.iter().filter_map(|front_end| front_end.next_wake()).min();
        let line = self.line.as_ref().and_then(DialledLine::next_wake);
        let own = [line, self.table.next_deadline(), self.port.open_at, self.reach_changes(), self.bypass_due()];
        own.into_iter().chain([satellite, front_ends]).flatten().min()
    }

    fn is_done(&self) -> bool {
        let is_down = self.line.as_ref().is_none_or(DialledLine::is_down);
        self.ending == Ending::Closed && self.unsent.is_none() && !self.again && is_down
    }
}

/// The gateway as its front ends see it.
struct Entrance<'a> {
    gateway: &'a mut Gateway,
    sockets: &'a mut dyn GatewaySockets,
    /// A client was taken in, or refused.
    admitted: bool,
}

impl Entrance<'_> {
    /// A limit is reached, which is logged once.
    fn over_limit(&mut self, what: &'static str) {
        self.gateway.shared.metrics.over_limit += 1;
        if !std::mem::replace(&mut self.gateway.limited, true) {
            self.gateway.shared.log.emit(LogEvent::LimitReached(what));
        }
    }
}

impl Admission for Entrance<'_> {
    fn sockets(&mut self) -> &mut dyn GatewaySockets {
        self.sockets
    }

    fn accept(&mut self, socket: SocketId, negotiation: Box<dyn Negotiation>) {
        self.admitted = true;
        let gateway = &mut *self.gateway;
        if gateway.table.len() >= gateway.shared.config.settings.connections {
            self.over_limit("connections");
            return self.sockets.abort(socket);
        }
        if gateway.ending != Ending::No {
            gateway.shared.metrics.over_limit += 1;
            return self.sockets.abort(socket);
        }
        gateway.limited = false;
        let connection = Connection::explicit(&mut gateway.site(self.sockets), socket, negotiation);
        gateway.table.add(connection);
    }

    fn intercept(&mut self, request: Request) {
        self.admitted = true;
        let gateway = &mut *self.gateway;
        let config = &gateway.shared.config;
        let what = if gateway.shared.metrics.requests_pending >= config.settings.pending as u64 {
            "waiting requests"
        } else if gateway.table.len() >= config.settings.connections {
            "connections"
        } else if gateway.shared.is_full() {
            "memory"
        } else {
            gateway.limited = false;
            let connection = Connection::intercepted(&mut gateway.site(self.sockets), request);
            gateway.table.add(connection);
            return;
        };
        // Failing comes first: a full table is no reason to hold up what would pass by anyway.
        let how = match (gateway.reach(), config.settings.fail) {
            (Reach::No, Fail::Open) => Refusal::Bypassed,
            (Reach::No, Fail::Closed) => Refusal::Refused,
            _ => Refusal::Ignored,
        };
        gateway.shared.metrics.requests += 1;
        self.over_limit(what);
        self.sockets.refuse(request.id, how);
    }

    fn no_socket(&mut self, what: &'static str, port: u16, why: SocketError) {
        self.gateway.shared.log.emit(LogEvent::NoSocket { what, port, why });
    }
}
