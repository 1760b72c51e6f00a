//! One connection to the other gateway, from the first handshake packet to the last.

use super::clock::Clock;
use super::controller::{Fate, InFlight};
use super::pacer::wire_bits;
use super::rate::RateControl;
use super::settings::{CIRCUIT_SET_UP, DATAGRAM_MIN, Sizes, ack_delay, send_window, window};
use super::streams::Streams;
use super::tail::Tail;
use crate::satellite::{Event, Loss, SatelliteConfig, Side};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use quinn_proto::{Connection, ConnectionError, ConnectionHandle, FrameStats, TransportErrorCode};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant as StdInstant;

/// A smoothed round trip counts up to this many times the base round trip: the rest is a queue that goes away.
const QUEUED_MAX: u64 = 4;
/// Between questions into silence: at least. Below a second, so that a transfer goes on soon after an outage.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// At most, after minutes.
const PROBE_EVERY_MAX: Duration = Duration::from_secs(2);
/// On a circuit that may just be being set up.
const PROBE_EVERY_DIAL_UP: Duration = Duration::from_secs(5);
/// A circuit may have hung up when nothing was heard for this long.
const CIRCUIT_SILENT: Duration = Duration::from_secs(10);
/// While a circuit may be being set up, calls wait for it one behind the other, and what follows waits for them: each has
/// so many packets' time, but at most so long.
const CALLS_APART: (u64, Duration) = (16, Duration::from_secs(30));
/// Silence is said when it has lasted this long.
const SILENT_AFTER: Duration = Duration::from_secs(3);
/// The other side is not given up before it was asked so often: after this side itself has slept, time alone proves
/// nothing.
const PROBES_BEFORE_LOSS: u32 = 3;
/// A terminal that is not on a circuit asks this rarely whether the hub is still there. A hub asks when it has missed two
/// of these questions: it would not notice that the terminal is gone while it has nothing to send.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// And once when data has stopped coming on an open stream for so long: a receiver that waits for nothing of its own would
/// not notice that the hub was restarted.
const KEEP_ALIVE_PAUSED: Duration = Duration::from_secs(3);
/// Bytes of a datagram that no further frame fits into.
const FULL: u64 = 48;
/// TLS alerts as error codes of QUIC (RFC 9001 §4.8).
const ALERTS: std::ops::Range<u64> = 0x100..0x200;
/// The other side offers no protocol that this one speaks (RFC 7301 §3.2).
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// One connection.
pub(super) struct Peer {
    pub(super) handle: ConnectionHandle,
    pub(super) connection: Connection,
    pub(super) streams: Streams,
    pub(super) started: Instant,
    pub(super) tail: Tail,
    shared: Arc<InFlight>,
    sizes: Sizes,
    established: Option<Instant>,
    over: bool,
    timeout: Option<Instant>,
    heard: Instant,
    sent: Instant,
    /// When the oldest of what is unanswered was sent.
    waiting_since: Option<Instant>,
    probed: Option<Instant>,
    probes: u32,
    probe: bool,
    /// A message that the other side did not answer in time was sent again.
    repeated: bool,
    silent: bool,
    /// Frames with stream data received, now and when the other side was last asked for a sign of life.
    received: u64,
    received_at_request: u64,
    /// A circuit may be being set up until then.
    circuit_until: Option<Instant>,
    /// When the other side was heard first.
    answered: Option<Instant>,
    /// The other side has all it needs of our handshake.
    confirmed: bool,
    /// Datagrams with a part of the handshake: when the last was sent, and how many before the first was sent again.
    shaken: Option<Instant>,
    first_flight: u32,
    again: bool,
    delivered: u64,
    /// From a packet to its acknowledgement, smoothed as in RFC 9002 §5.3. The library's own value has the handshake in it,
    /// which on a circuit includes the set-up.
    round_trip: Option<Duration>,
    fates: Vec<Fate>,
}

/// State that a peer shares with the rest of the satellite side.
pub(super) struct PeerContext<'a> {
    pub(super) config: &'a SatelliteConfig,
    pub(super) clock: &'a Clock,
    pub(super) rate: &'a mut RateControl,
    pub(super) events: &'a mut VecDeque<Event>,
}

/// A datagram was written.
pub(super) struct Sent {
    pub(super) to: SocketAddr,
    pub(super) bits: u64,
}

impl Peer {
    /// `calls`: on a circuit that may have to be set up first.
    pub(super) fn new(
        now: Instant,
        calls: bool,
        handle: ConnectionHandle,
        connection: Connection,
        shared: Arc<InFlight>,
        sizes: Sizes,
        streams: Streams,
    ) -> Peer {
        Peer {
            handle,
            connection,
            streams,
            started: now,
            tail: Tail::default(),
            shared,
            sizes,
            established: None,
            over: false,
            timeout: None,
            heard: now,
            sent: now,
            waiting_since: None,
            probed: None,
            probes: 0,
            probe: false,
            repeated: false,
            silent: false,
            received: 0,
            received_at_request: 0,
            circuit_until: calls.then(|| now + CIRCUIT_SET_UP),
            answered: None,
            confirmed: false,
            shaken: None,
            first_flight: 0,
            again: false,
            delivered: 0,
            round_trip: None,
            fates: Vec::new(),
        }
    }

    /// The handshake is complete and the connection not over.
    pub(super) fn is_connected(&self) -> bool {
        self.established.is_some() && !self.over
    }

    /// The handshake is complete.
    pub(super) fn is_established(&self) -> bool {
        self.established.is_some()
    }

    /// It has ended, one way or another.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Bytes of streams known to have arrived, estimated from the packets while some are on their way.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered.min(self.streams.written())
    }

    /// Bytes of streams that the library keeps until they have arrived, estimated as [`Peer::delivered`] is.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.streams.written() - self.delivered()
    }

    /// Smoothed; none before the first packet after the handshake is acknowledged.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    pub(super) fn set_established(&mut self, now: Instant) {
        self.established = Some(now);
        self.heard = now;
    }

    /// The link's rates have changed. A stream's window stays as it was: the library cannot change it.
    pub(super) fn resize(&mut self, config: &SatelliteConfig, sizes: Sizes) {
        self.connection.set_receive_window(window(sizes.receive_window));
        self.connection.set_send_window(send_window(config));
        self.sizes = sizes;
    }

    pub(super) fn set_over(&mut self) {
        self.over = true;
    }

    /// When the other side was heard first, be it by a packet that proves nothing.
    pub(super) fn answered(&self) -> Option<Instant> {
        self.answered
    }

    /// A packet came that could be read: a circuit is up.
    pub(super) fn on_answered(&mut self, now: Instant) {
        if self.answered.is_none() {
            self.answered = Some(now);
            self.circuit_until = None;
        }
    }

    /// An authenticated packet came.
    pub(super) fn on_heard(&mut self, now: Instant, around: &mut PeerContext<'_>) {
        let missing = self.probes > 0;
        self.heard = now;
        self.received = self.connection.stats().frame_rx.stream;
        self.probes = 0;
        self.probed = None;
        self.probe = false;
        self.repeated = false;
        self.circuit_until = None;
        if missing {
            around.rate.resumed(now);
        }
        if self.silent {
            self.silent = false;
            around.events.push_back(Event::Heard);
        }
        if self.waiting_since.is_some() {
            self.waiting_since = Some(now);
        }
    }

    /// After anything was done to the connection: what became of packets, and when it must be woken.
    pub(super) fn settle(&mut self, now: Instant, around: &mut PeerContext<'_>) {
        self.shared.take(&mut self.fates);
        let mut newest = None;
        for fate in self.fates.drain(..) {
            match fate {
                Fate::Acked(sent, bytes) => {
                    let sent = around.clock.model(sent);
                    // The handshake's packets may have waited for a circuit's set-up.
                    if self.established.is_some_and(|at| at <= sent) {
                        around.rate.on_acked(now, sent, bytes);
                        self.delivered += bytes.saturating_sub(super::settings::OVERHEAD - 12);
                        newest = newest.max(Some(sent));
                    }
                }
                Fate::Lost(bytes) => self.streams.on_lost(bytes),
            }
        }
        if let Some(sent) = newest {
            // The earlier ones waited for it to be acknowledged with them.
            let trip = now.since(sent);
            let smoothed = self.round_trip.map_or(trip.ns, |old| old.ns - old.ns / 8 + trip.ns / 8);
            self.round_trip = Some(Duration { ns: smoothed });
            self.tail.on_acked(sent);
            around.rate.judge(now);
        }
        if self.shared.in_flight() == 0 {
            self.waiting_since = None;
            self.tail.clear();
            if !self.streams.is_sending() {
                self.delivered = self.streams.written();
            }
        }
        self.timeout = self.connection.poll_timeout().map(|at| around.clock.model(at));
        if self.established.is_some() && !self.confirmed {
            let terminal = around.config.side != Side::Hub;
            self.confirmed = !terminal || self.connection.stats().frame_rx.handshake_done > 0;
        }
    }

    /// When an unanswered part of the handshake is sent again. The library doubles its time-out each time, from one that
    /// a circuit's set-up has made long; here a lost packet costs as much the second time as the first.
    fn again_due(&self, rate: &RateControl) -> Option<Instant> {
        // No time-out: nothing is on its way, or an unauthenticated peer has been sent all that it may be (RFC 9000 §8.1).
        let last = self.shaken.filter(|_| !self.confirmed && !self.over && self.timeout.is_some())?;
        let trips = Duration { ns: self.sizes.first_round_trip.ns * 2 };
        if self.circuit_until.is_none() {
            return Some(last + trips);
        }
        let packets = BitRate::from_bps(rate.rate()).time_for_bits(CALLS_APART.0 * 8 * DATAGRAM_MIN);
        Some(last + trips.max(packets).clamp(PROBE_EVERY_DIAL_UP, CALLS_APART.1))
    }

    /// Sends again what is unanswered of the handshake.
    fn send_again(&mut self, now: Instant) {
        self.shaken = Some(now);
        self.again = true;
        self.expire();
    }

    /// Has the library send again what is unanswered, by telling it that its time-out has come.
    fn expire(&mut self) {
        if let Some(at) = self.connection.poll_timeout() {
            self.connection.handle_timeout(at);
        }
    }

    /// Longest time to an answer when nothing is wrong.
    fn patience(&self, around_rate: &RateControl, config: &SatelliteConfig) -> Duration {
        let smoothed = self.smoothed(around_rate, config);
        let delays = Duration { ns: ack_delay(config).ns * 2 };
        PROBE_EVERY.max(Duration { ns: smoothed.ns / 2 * 3 } + delays + four_packets(around_rate, config))
    }

    fn smoothed(&self, rate: &RateControl, config: &SatelliteConfig) -> Duration {
        let base = rate.base_round_trip().max(config.round_trip);
        self.round_trip.map_or(base, |smoothed| smoothed.clamp(base, Duration { ns: base.ns * QUEUED_MAX }))
    }

    /// When the expected answer is overdue: a round trip, an acknowledgement put off as long as it may be, and
    /// half as much for jitter. The last packets of a short exchange are sent again then, and with them a packet that asks
    /// for an acknowledgement at once. Without that, a receiver that has not acknowledged anything since the handshake may
    /// put the first acknowledgement off until its packet threshold: quinn-proto 0.11.19 stops the timer for it whenever
    /// it acknowledges a packet of the handshake.
    fn repeat_due(&self, rate: &RateControl, config: &SatelliteConfig) -> Option<Instant> {
        // An answer to something else, such as a keep-alive just before, does not put it off.
        let waiting = self.waiting_since.filter(|_| !self.repeated && self.probed.is_none());
        let since = self.tail.since().or(waiting).filter(|_| self.is_connected())?;
        let delay = ack_delay(config);
        let base = rate.base_round_trip();
        let trip = match self.round_trip {
            // The first packets have measured it, whatever the file states.
            Some(smoothed) => (base + delay).max(smoothed.min(Duration { ns: base.ns * QUEUED_MAX })),
            None => self.sizes.first_round_trip + delay,
        };
        let due = since + trip + Duration { ns: delay.ns / 2 } + four_packets(rate, config);
        Some(self.circuit_until.map_or(due, |until| due.max(until)))
    }

    fn probe_spacing(&self, now: Instant, config: &SatelliteConfig) -> Duration {
        if config.dial_up {
            return PROBE_EVERY_DIAL_UP;
        }
        let silence = now.since(self.heard);
        Duration { ns: silence.ns / 60 }.clamp(PROBE_EVERY, PROBE_EVERY_MAX)
    }

    /// The time by which an answer should have come, and then of the next question.
    fn probe_due(&self, rate: &RateControl, config: &SatelliteConfig) -> Option<Instant> {
        let since = self.waiting_since.filter(|_| self.is_connected())?;
        match self.probed {
            Some(at) => Some(at + self.probe_spacing(at, config)),
            None => Some(since + self.patience(rate, config)),
        }
    }

    fn keep_alive_due(&self, config: &SatelliteConfig) -> Option<Instant> {
        let asks = self.is_connected() && !config.dial_up && self.waiting_since.is_none();
        if config.side == Side::Hub {
            return asks.then(|| self.heard.max(self.sent) + KEEP_ALIVE + KEEP_ALIVE);
        }
        let paused = !self.streams.is_empty() && self.received > self.received_at_request;
        asks.then(|| self.heard.max(self.sent) + if paused { KEEP_ALIVE_PAUSED } else { KEEP_ALIVE })
    }

    /// When the library's timers are due; on a circuit that may be being set up they wait.
    fn timeout(&self) -> Option<Instant> {
        self.timeout.map(|at| self.circuit_until.map_or(at, |until| at.max(until)))
    }

    /// When `wake` is due.
    pub(super) fn next_wake(&self, rate: &RateControl, config: &SatelliteConfig) -> Option<Instant> {
        let probe = self.probe_due(rate, config).filter(|_| !self.probe);
        let keep_alive = self.keep_alive_due(config);
        let again = [self.again_due(rate), self.repeat_due(rate, config)];
        [self.timeout(), probe, keep_alive].into_iter().chain(again).flatten().min()
    }

    /// Timers and silence. `Some`: the other side is given up.
    pub(super) fn wake(&mut self, now: Instant, around: &mut PeerContext<'_>) -> Option<Loss> {
        if self.timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(around.clock.at(now));
        }
        if self.again_due(around.rate).is_some_and(|at| at <= now) {
            self.send_again(now);
        }
        if self.repeat_due(around.rate, around.config).is_some_and(|at| at <= now) {
            self.repeated = true;
            self.tail.set_overdue();
            self.expire();
        }
        if self.keep_alive_due(around.config).is_some_and(|at| at <= now) {
            self.sent = now;
            self.received_at_request = self.received;
            self.connection.ping();
        }
        if self.probe_due(around.rate, around.config).is_some_and(|at| at <= now) {
            let silence = now.since(self.waiting_since.unwrap_or(now));
            if silence >= around.config.hold && self.probes >= PROBES_BEFORE_LOSS {
                return Some(Loss::Silence);
            }
            let circuit = self.circuit_until.is_some_and(|until| until > now);
            let patience = self.patience(around.rate, around.config);
            let after = SILENT_AFTER.max(patience);
            if silence >= after && !self.silent && !circuit {
                self.silent = true;
                around.events.push_back(Event::Silent);
            }
            // The library's own time-out is put off by each question, and only its questions ask for an answer at once.
            if (self.probes + 1).is_power_of_two() && !circuit {
                self.expire();
            }
            self.probed = Some(now);
            self.probes += 1;
            self.probe = true;
        }
        None
    }

    /// Bytes that may be on their way: two round trips' worth.
    fn window(&self, rate: &RateControl, config: &SatelliteConfig) -> u64 {
        let trip = rate.base_round_trip().max(config.round_trip) + ack_delay(config);
        let bytes = rate.rate() as f64 / 8.0 * trip.as_secs_f64() * 2.0;
        bytes as u64 + 16 * self.sizes.datagram
    }

    /// The next datagram, for which the link has room now.
    pub(super) fn transmit(&mut self, now: Instant, around: &mut PeerContext<'_>, into: &mut Vec<u8>) -> Option<Sent> {
        let closed = self.shared.in_flight() >= self.window(around.rate, around.config);
        self.shared.set_closed(closed && !self.probe);
        if self.is_connected() && !closed {
            self.streams.feed(&mut self.connection, around.events);
        }
        if std::mem::take(&mut self.probe) {
            self.connection.ping();
        }
        into.clear();
        let before = self.connection.stats().frame_tx;
        let was_in_flight = self.shared.in_flight();
        let at = around.clock.at(now);
        let mut transmit = self.connection.poll_transmit(at, 1, into);
        if transmit.is_none() && !closed {
            // So the library had nothing left, whatever we thought.
            self.streams.nothing_left();
            if self.is_connected() && self.streams.is_sending() {
                self.streams.feed(&mut self.connection, around.events);
                transmit = self.connection.poll_transmit(at, 1, into);
            }
        }
        let Some(transmit) = transmit else {
            self.settle(now, around);
            return None;
        };
        let after = self.connection.stats().frame_tx;
        let bytes = into.len() as u64;
        let bits = wire_bits(&around.config.framing, around.config.mtu, transmit.destination, into);
        if eliciting(&after) > eliciting(&before) {
            if self.waiting_since.is_none() {
                self.waiting_since = Some(now);
                if around.config.dial_up && !around.config.dials && now.since(self.heard) > CIRCUIT_SILENT {
                    self.circuit_until = Some(now + CIRCUIT_SET_UP);
                }
            }
            if self.established.is_some() {
                around.rate.on_sent(now, bytes, bits);
            }
            if after.stream > before.stream && self.established.is_some() {
                self.tail.on_sent(now, around.rate.base_round_trip(), transmit.destination, into);
            }
        } else {
            self.shared.forget(self.shared.in_flight().saturating_sub(was_in_flight));
        }
        if after.crypto > before.crypto && !self.confirmed {
            self.shaken = Some(now);
            self.first_flight += u32::from(!self.again);
            self.drop_second_probe(at);
        }
        self.sent = now;
        if !closed {
            self.streams.on_sent(bytes, bytes + FULL >= self.sizes.datagram);
        }
        self.settle(now, around);
        Some(Sent { to: transmit.destination, bits })
    }

    /// The library answers a time-out with two packets, of which the second says nothing new when one holds the whole
    /// flight. A circuit's queue is spared it; a packet more that is lost changes nothing.
    fn drop_second_probe(&mut self, at: StdInstant) {
        if self.again && self.circuit_until.is_some() && self.first_flight == 1 {
            let _ = self.connection.poll_transmit(at, 1, &mut Vec::new());
        }
    }
}

/// The time that four full packets take.
fn four_packets(rate: &RateControl, config: &SatelliteConfig) -> Duration {
    Duration::from_secs_f64(4.0 * config.mtu as f64 * 8.0 / rate.rate() as f64)
}

/// Frames that ask for an acknowledgement (RFC 9000 §13.2).
fn eliciting(frames: &FrameStats) -> u64 {
    frames.ack_frequency
        + frames.crypto
        + frames.data_blocked
        + frames.datagram
        + u64::from(frames.handshake_done)
        + frames.immediate_ack
        + frames.max_data
        + frames.max_stream_data
        + frames.max_streams_bidi
        + frames.max_streams_uni
        + frames.new_connection_id
        + frames.new_token
        + frames.path_challenge
        + frames.path_response
        + frames.ping
        + frames.reset_stream
        + frames.retire_connection_id
        + frames.stream_data_blocked
        + frames.streams_blocked_bidi
        + frames.streams_blocked_uni
        + frames.stop_sending
        + frames.stream
}

/// The library's reason in the relay's terms; `None`: this side ended it itself.
pub(super) fn loss(reason: &ConnectionError) -> Option<Loss> {
    let coded = |code: TransportErrorCode| match u64::from(code) {
        NO_APPLICATION_PROTOCOL => Loss::Version,
        code if ALERTS.contains(&code) => Loss::Unauthenticated,
        _ => Loss::Protocol,
    };
    match reason {
        ConnectionError::LocallyClosed => None,
        ConnectionError::ApplicationClosed(_) => Some(Loss::Closed),
        ConnectionError::Reset => Some(Loss::Restarted),
        ConnectionError::TimedOut => Some(Loss::Silence),
        ConnectionError::TransportError(error) => Some(coded(error.code)),
        ConnectionError::ConnectionClosed(frame) => Some(coded(frame.error_code)),
        ConnectionError::VersionMismatch | ConnectionError::CidsExhausted => Some(Loss::Protocol),
    }
}
