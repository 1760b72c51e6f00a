//! One relayed connection, from the request to its end: [`near`] is how it begins where the client is, [`far`] where the
//! server is, [`bypass`] past the pair; the rest is the same on both sides.

mod bypass;
mod far;
mod near;

use super::Site;
use super::class::Meter;
use super::direct::Direct;
use super::filtered::{FilterState, FilteredSockets};
use super::frame::{Credit, Malformed, code};
use super::inbound::{Blocked, Fault, Inbound, OVERRUN};
use super::outbound::{Broken, Outbound};
use crate::front_end::{End, Negotiation, RelayedConnection};
use crate::log_event::{LogEvent, Outcome, Server};
use crate::satellite::StreamId;
use crate::settings::Fail;
use bentpipe_net::interception::{Refusal, Request, RequestId};
use bentpipe_net::socket::{Received, SocketId};
use bentpipe_net::time::{Duration, Instant};
use std::net::SocketAddr;

/// Time that a finished client has to take the end of its data, and the reset after it.
const LINGER: Duration = Duration::from_secs(60);
/// Interval of polling whether the client has acknowledged everything.
const LINGER_POLL: Duration = Duration::from_millis(200);
/// The same of a connection that has ended in order: at first `LINGER_POLL`, then ever more rarely.
const CLOSING_POLL_MAX: Duration = Duration::from_secs(10);

/// Who wants the connection.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// A client whose request was intercepted.
    Intercepted(RequestId),
    /// A client of an explicit proxy.
    Explicit,
    /// The other gateway.
    Peer,
}

#[derive(Debug)]
enum Stage {
    /// An explicit proxy's client has not stated its request.
    Asking,
    /// No stream yet: the pair is not connected.
    Waiting,
    /// The far side has been asked.
    Requested,
    /// The other gateway has opened a stream; its opening is not complete.
    Hearing,
    /// The server's handshake is under way.
    Connecting,
    /// The client's handshake is under way.
    Accepting,
    /// Data flow.
    Relaying,
    /// Both directions have ended, and the site has not acknowledged all it was sent; how long until the next look. The
    /// socket stays ours until then: should this gateway die, it is reset, where the kernel alone would go on with a
    /// connection whose acknowledgements no longer come here.
    Closing(Duration),
    /// The socket is gone; what was to be sent to the other gateway still goes out.
    Flushing,
    /// Past the pair: the server's handshake is under way.
    Dialing(Direct),
    /// Past the pair: data flow.
    Bypass(Direct),
    /// A proxy's client gets the reason why it is not connected.
    Telling,
    /// The client has been sent everything and must not send more; where the server reset it, it is reset too once it has
    /// acknowledged all.
    Lingering,
    /// Nothing is left.
    Gone,
}

/// The result of a stage's work.
enum Next {
    /// Another stage: work on.
    Again,
    /// Nothing can be done before something changes.
    Wait,
    /// The connection is over.
    Gone,
}

/// Why new connections cannot be relayed, or that they can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// The other gateway is there.
    Yes,
    /// It may be soon.
    Soon,
    /// It is not.
    No,
}

/// One relayed connection.
pub(crate) struct Connection {
    origin: Origin,
    stage: Stage,
    client: Option<SocketAddr>,
    server: Option<Server>,
    /// Of an explicit proxy's client, until it is answered.
    negotiation: Option<Box<dyn Negotiation>>,
    filter: Option<Box<FilterState>>,
    traffic_class: u8,
    /// Bytes that a proxy's client sent after its request.
    first: Vec<u8>,
    socket: Option<SocketId>,
    stream: Option<StreamId>,
    out: Outbound,
    inbound: Inbound,
    /// The other side no longer reads.
    stopped: bool,
    deadline: Option<Instant>,
    lingers_until: Instant,
    buffered: u64,
}

impl Connection {
    /// For a request that was intercepted.
    pub(crate) fn intercepted(site: &mut Site<'_>, request: Request) -> Connection {
        let meter = Meter::new(&site.shared.policy, request.server.port(), request.traffic_class);
        let mut connection = Connection::new(Origin::Intercepted(request.id), Stage::Waiting, meter);
        connection.client = Some(request.client);
        connection.server = Some(Server::Address(request.server));
        connection.traffic_class = request.traffic_class;
        connection.deadline = Some(site.now + site.shared.config.settings.answer);
        site.shared.metrics.requests += 1;
        site.shared.metrics.requests_pending += 1;
        connection
    }

    /// For a client of an explicit proxy.
    pub(crate) fn explicit(site: &mut Site<'_>, socket: SocketId, negotiation: Box<dyn Negotiation>) -> Connection {
        let meter = Meter::new(&site.shared.policy, 0, 0);
        let mut connection = Connection::new(Origin::Explicit, Stage::Asking, meter);
        connection.negotiation = Some(negotiation);
        connection.socket = Some(socket);
        connection.client = site.sockets.peer_address(socket).ok();
        connection.deadline = Some(site.now + site.shared.config.settings.negotiation);
        connection
    }

    /// For a stream that the other gateway opened.
    pub(crate) fn opened(site: &mut Site<'_>, stream: StreamId) -> Connection {
        let mut connection = Connection::new(Origin::Peer, Stage::Hearing, Meter::new(&site.shared.policy, 0, 0));
        connection.stream = Some(stream);
        connection.deadline = Some(site.now + site.shared.config.settings.answer);
        connection
    }

    fn new(origin: Origin, stage: Stage, meter: Meter) -> Connection {
        Connection {
            origin,
            stage,
            client: None,
            server: None,
            negotiation: None,
            filter: None,
            traffic_class: 0,
            first: Vec::new(),
            socket: None,
            stream: None,
            out: Outbound::new(meter),
            inbound: Inbound::default(),
            stopped: false,
            deadline: None,
            lingers_until: Instant::FAR,
            buffered: 0,
        }
    }

    /// The socket at this site, once there is one.
    pub(crate) fn socket(&self) -> Option<SocketId> {
        self.socket
    }

    /// The stream, once there is one.
    pub(crate) fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    /// When [`Connection::work`] is due though nothing changes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Nothing is left.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.stage, Stage::Gone)
    }

    /// It is a request that waits for the other gateway or its answer.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Requested)
    }

    /// It needs the pair's connection.
    pub(crate) fn is_relayed(&self) -> bool {
        matches!(self.stage, Stage::Accepting | Stage::Relaying | Stage::Connecting | Stage::Flushing)
    }

    /// Does what can be done now.
    pub(crate) fn work(&mut self, site: &mut Site<'_>, reach: Reach) {
        if !self.is_filtered() {
            self.work_stages(site, reach);
        }
        if self.is_filtered() {
            self.work_filtered(site, reach);
        }
    }

    /// A filter stands between the socket and the relay.
    fn is_filtered(&self) -> bool {
        let relays = matches!(self.stage, Stage::Relaying | Stage::Closing(_) | Stage::Lingering);
        relays && self.filter.is_some() && self.socket.is_some()
    }

    /// [`Connection::work`] through the filter.
    fn work_filtered(&mut self, site: &mut Site<'_>, reach: Reach) {
        let Some(socket) = self.socket else { return };
        // The reply of an explicit proxy is not for the filter.
        let replied = self.filter.as_ref().is_some_and(|filter| filter.has_begun())
            || !matches!(self.inbound.flush_own(site, socket), Ok(false));
        let Some(mut filter) = self.filter.take_if(|_| replied) else { return };
        // An error is seen by whoever reads next.
        let _ = filter.wake(site.now, site.sockets, socket);
        loop {
            let before = filter.to_link();
            let (now, state) = (site.now, &mut *filter);
            let mut sockets = FilteredSockets { sockets: &mut *site.sockets, socket, state, now };
            let (satellite, shared) = (&mut *site.satellite, &mut *site.shared);
            self.work_stages(&mut Site { now, sockets: &mut sockets, satellite, shared }, reach);
            // Its own answers to the other side go out at once.
            if filter.to_link() <= before || !matches!(self.stage, Stage::Relaying) {
                break;
            }
        }
        if let Stage::Relaying = self.stage {
            self.deadline = filter.next_wake();
        }
        if !self.is_gone() {
            self.filter = Some(filter);
        }
        self.count_memory(site);
    }

    /// Gives the connection a filter, if a front end has one for it.
    fn attach_filter(&mut self, site: &mut Site<'_>, end: End) {
        let Some(server) = &self.server else { return };
        let connection = RelayedConnection { end, client: self.client, server, traffic_class: self.traffic_class };
        let filter = site.shared.filters.iter_mut().find_map(|source| source.filter(&connection));
        self.filter = filter.map(|filter| Box::new(FilterState::new(filter, site.now, &self.first)));
    }

    fn work_stages(&mut self, site: &mut Site<'_>, reach: Reach) {
        while !self.is_filtered() {
            let next = match self.stage {
                Stage::Asking => self.ask(site),
                Stage::Waiting => self.open(site, reach),
                Stage::Requested => self.await_reply(site),
                Stage::Hearing => self.hear(site),
                Stage::Connecting => self.connect(site),
                Stage::Accepting => self.accept(site),
                Stage::Relaying => self.relay(site),
                Stage::Closing(peek) => self.close(site, peek),
                Stage::Flushing => self.flush(site),
                Stage::Dialing(_) => self.await_server(site),
                Stage::Bypass(_) => self.pass(site),
                Stage::Telling => self.report(site),
                Stage::Lingering => self.linger(site),
                Stage::Gone => Next::Gone,
            };
            match next {
                Next::Again => {}
                Next::Wait => break,
                Next::Gone => {
                    self.leave(site);
                    break;
                }
            }
        }
        self.count_memory(site);
    }

    /// The time that [`Connection::deadline`] named has come.
    pub(crate) fn expire(&mut self, site: &mut Site<'_>) {
        self.deadline = None;
        match self.stage {
            Stage::Asking => {
                site.shared.metrics.bad_requests += 1;
                self.abort(site);
            }
            Stage::Waiting | Stage::Requested => self.not_opened(site, Outcome::TimedOut),
            Stage::Hearing => self.break_off(site, code::GIVEN_UP),
            Stage::Connecting => self.refuse_peer(site, Outcome::TimedOut),
            Stage::Dialing(_) => {
                self.not_dialed(site, Outcome::TimedOut);
            }
            Stage::Lingering if site.now >= self.lingers_until => self.abort(site),
            Stage::Telling => self.abort(site),
            _ => {}
        }
    }

    /// The other side has reset its direction.
    pub(crate) fn peer_reset(&mut self, site: &mut Site<'_>) {
        match self.stage {
            Stage::Requested => self.not_opened(site, Outcome::Unreachable),
            Stage::Lingering | Stage::Telling => {}
            _ => {
                if matches!(self.stage, Stage::Relaying | Stage::Accepting) {
                    site.shared.metrics.reset += 1;
                }
                self.break_off(site, code::RESET);
            }
        }
    }

    /// The other side no longer reads: what comes from it still arrives.
    pub(crate) fn peer_stopped(&mut self, site: &mut Site<'_>) {
        if let (Some(stream), false) = (self.stream, self.out.is_finished()) {
            // What was said to its end is not what is missed.
            self.stopped = !self.out.has_ended();
            self.out.reset(site, stream, code::RESET);
        }
    }

    /// The pair's connection is over. `waits`: the next is expected soon, or worth waiting for.
    pub(crate) fn lost(&mut self, site: &mut Site<'_>, waits: bool) {
        self.stream = None;
        if waits && matches!(self.stage, Stage::Requested) {
            // The client has not been answered, so its request is simply made again.
            let port = self.server.as_ref().map_or(0, Server::port);
            self.out.forget(site);
            self.inbound.close(site);
            self.out = Outbound::new(Meter::new(&site.shared.policy, port, self.traffic_class));
            self.inbound = Inbound::default();
            self.filter = None;
            self.set_stage(site, Stage::Waiting);
            self.count_memory(site);
            return;
        }
        match self.stage {
            Stage::Requested => self.fail(site),
            Stage::Asking | Stage::Waiting | Stage::Telling | Stage::Lingering | Stage::Gone => {}
            Stage::Dialing(_) | Stage::Bypass(_) | Stage::Closing(_) => {}
            Stage::Accepting | Stage::Relaying | Stage::Hearing | Stage::Connecting | Stage::Flushing => {
                site.shared.metrics.lost += u64::from(matches!(self.stage, Stage::Accepting | Stage::Relaying));
                self.abort(site);
            }
        }
    }

    /// The other gateway cannot be reached: what [`Fail`] says happens to a request that waits.
    pub(crate) fn fail(&mut self, site: &mut Site<'_>) {
        if !self.is_pending() {
            return;
        }
        self.give_up_stream(site, code::GIVEN_UP);
        match self.origin {
            Origin::Intercepted(request) => {
                let how = match site.shared.config.settings.fail {
                    Fail::Open => {
                        site.shared.metrics.bypassed += 1;
                        Refusal::Bypassed
                    }
                    Fail::Closed => {
                        site.shared.metrics.turned_away += 1;
                        Refusal::Refused
                    }
                };
                site.sockets.refuse(request, how);
                self.leave(site);
            }
            Origin::Explicit => match site.shared.config.settings.fail {
                Fail::Open => self.dial(site),
                Fail::Closed => self.turn_away(site),
            },
            Origin::Peer => {}
        }
    }

    /// Ends it at once with resets on both sides.
    pub(crate) fn end(&mut self, site: &mut Site<'_>) {
        match (&self.stage, self.origin) {
            (Stage::Waiting | Stage::Requested, Origin::Explicit) => {
                self.give_up_stream(site, code::ENDING);
                self.turn_away(site);
            }
            (Stage::Waiting | Stage::Requested, _) => self.fail(site),
            _ => self.break_off(site, code::ENDING),
        }
    }

    fn turn_away(&mut self, site: &mut Site<'_>) {
        site.shared.metrics.turned_away += 1;
        self.report_outcome(site, Outcome::Busy);
    }

    fn set_stage(&mut self, site: &mut Site<'_>, stage: Stage) -> Next {
        let (pending, open) = (self.is_pending(), matches!(self.stage, Stage::Relaying));
        self.stage = stage;
        let metrics = &mut site.shared.metrics;
        metrics.requests_pending = metrics.requests_pending + u64::from(self.is_pending()) - u64::from(pending);
        let now_open = matches!(self.stage, Stage::Relaying);
        metrics.connections_open = metrics.connections_open + u64::from(now_open) - u64::from(open);
        Next::Again
    }

    fn leave(&mut self, site: &mut Site<'_>) {
        self.set_stage(site, Stage::Gone);
        self.forget_stream(site);
        self.deadline = None;
        self.first = Vec::new();
        (self.negotiation, self.filter) = (None, None);
        self.count_memory(site);
    }

    /// Nothing more goes over the pair.
    fn forget_stream(&mut self, site: &mut Site<'_>) {
        self.stream = None;
        self.out.forget(site);
        self.inbound.close(site);
        (self.out, self.inbound) = (Outbound::new(Meter::new(&site.shared.policy, 0, 0)), Inbound::default());
    }

    fn count_memory(&mut self, site: &mut Site<'_>) {
        let negotiation = self.negotiation.as_ref().map_or(0, |negotiation| negotiation.memory());
        let filter = self.filter.as_ref().map_or(0, |filter| filter.buffered());
        let direct = match &self.stage {
            Stage::Dialing(direct) | Stage::Bypass(direct) => direct.buffered(),
            _ => 0,
        };
        let buffered =
            (self.out.buffered() + self.inbound.buffered() + self.first.capacity() + negotiation + filter + direct)
                as u64;
        site.shared.metrics.memory_buffered = site.shared.metrics.memory_buffered + buffered - self.buffered;
        self.buffered = buffered;
    }

    /// Resets the sockets, if there are any, and leaves.
    fn abort(&mut self, site: &mut Site<'_>) {
        for socket in [self.socket, self.other_socket()].into_iter().flatten() {
            site.sockets.abort(socket);
        }
        self.leave(site);
    }

    fn give_up_stream(&mut self, site: &mut Site<'_>, code: u32) {
        if let Some(stream) = self.stream {
            self.out.reset(site, stream, code);
            self.inbound.stop(site, stream, code);
        }
    }

    /// Resets both sides and leaves.
    fn break_off(&mut self, site: &mut Site<'_>, code: u32) {
        self.give_up_stream(site, code);
        self.abort(site);
    }

    fn malformed(&mut self, site: &mut Site<'_>, what: Malformed) -> Next {
        site.shared.metrics.malformed += 1;
        site.shared.log.emit(LogEvent::Malformed { what: what.0 });
        if self.is_pending() {
            self.give_up_stream(site, code::MALFORMED);
            self.not_opened(site, Outcome::Unreachable);
            return Next::Again;
        }
        self.break_off(site, code::MALFORMED);
        Next::Gone
    }

    fn relay(&mut self, site: &mut Site<'_>) -> Next {
        let (Some(socket), Some(stream)) = (self.socket, self.stream) else { return Next::Gone };
        // What the site has said is read before anything is given to it: a reset that our own bytes bring about then
        // finds its last words, and its end, already taken.
        if !self.stopped && !self.out.is_finished() {
            match self.out.work(site, socket, stream) {
                Ok(()) => self.deadline = self.out.gathers_until(),
                Err(Broken::Socket(_)) => {
                    site.shared.metrics.reset += 1;
                    self.break_off(site, code::RESET);
                    return Next::Gone;
                }
                Err(Broken::Stream(_)) => self.peer_stopped(site),
            }
        }
        let halt = self.inbound.work(site, Some(socket), stream);
        if halt.is_ok() {
            self.inbound.renew_credit(site, stream);
        }
        match halt {
            Ok(Blocked::Starved | Blocked::Full) => Next::Wait,
            Ok(Blocked::Replied(reply)) => self.replied(site, reply),
            Ok(Blocked::Over) if self.stopped => self.start_lingering(site),
            Ok(Blocked::Over) if self.out.is_finished() => {
                site.shared.metrics.ended += 1;
                self.forget_stream(site);
                self.set_stage(site, Stage::Closing(LINGER_POLL))
            }
            Ok(Blocked::Over) => Next::Wait,
            Err(Fault::Broken(Broken::Socket(_))) => {
                site.shared.metrics.reset += 1;
                self.inbound.stop(site, stream, code::RESET);
                site.sockets.abort(socket);
                self.socket = None;
                // A complete answer still arrives; an incomplete one must not look complete.
                if !self.out.has_ended() {
                    self.out.reset(site, stream, code::RESET);
                }
                self.set_stage(site, Stage::Flushing)
            }
            Err(Fault::Malformed(what)) => self.malformed(site, what),
            Err(Fault::Broken(Broken::Stream(_)) | Fault::Short) => {
                site.shared.metrics.reset += 1;
                self.break_off(site, code::RESET);
                Next::Gone
            }
        }
    }

    /// The other relay says something about credit.
    pub(crate) fn credit(&mut self, site: &mut Site<'_>, word: u32) {
        let Some(stream) = self.stream else { return };
        let result = match Credit::of(word) {
            Ok(Credit::Grant(units)) => {
                self.out.grant(units);
                Ok(())
            }
            Ok(Credit::Return(units)) => self.inbound.take_back(site, stream, units),
            Ok(Credit::Ask) => {
                self.out.return_credit(site, stream);
                Ok(())
            }
            Err(what) => Err(what),
        };
        if let Err(what) = result {
            self.malformed(site, what);
        }
    }

    /// The other gateway has sent more than it may.
    pub(crate) fn overrun(&mut self, site: &mut Site<'_>) {
        self.malformed(site, OVERRUN);
    }

    /// Asks the other side for credit that it has not used for long.
    pub(crate) fn ask_back(&mut self, site: &mut Site<'_>) -> bool {
        let (Stage::Relaying, Some(stream)) = (&self.stage, self.stream) else { return false };
        if !self.inbound.asks_back(site, stream) {
            return false;
        }
        site.satellite.signal(site.now, stream, Credit::Ask.word());
        true
    }

    /// Lets go of the socket once its peer has everything.
    fn close(&mut self, site: &mut Site<'_>, peek: Duration) -> Next {
        let Some(socket) = self.socket else { return Next::Gone };
        let unacknowledged = site.sockets.unacknowledged(socket);
        if unacknowledged == 0 || site.sockets.connection(socket).is_err() {
            site.sockets.close(socket);
            return Next::Gone;
        }
        // The end of the kernel's connection is a change of the socket; polling is for sites that do not report it.
        if self.deadline.is_none() {
            self.deadline = Some(site.now + peek);
            self.stage = Stage::Closing(Duration { ns: peek.ns * 2 }.min(CLOSING_POLL_MAX));
        }
        Next::Wait
    }

    fn flush(&mut self, site: &mut Site<'_>) -> Next {
        let Some(stream) = self.stream else { return Next::Gone };
        match self.out.finish(site, stream) {
            Ok(true) | Err(_) => Next::Gone,
            Ok(false) => Next::Wait,
        }
    }

    fn start_lingering(&mut self, site: &mut Site<'_>) -> Next {
        self.lingers_until = site.now + LINGER;
        self.set_stage(site, Stage::Lingering)
    }

    /// Takes and drops what the client says until it has acknowledged what it was sent.
    fn linger(&mut self, site: &mut Site<'_>) -> Next {
        let Some(socket) = self.socket else { return Next::Gone };
        loop {
            match site.sockets.receive(socket, &mut site.shared.taken) {
                Ok(Received::Bytes(_)) => {}
                Ok(Received::Nothing) => break,
                Ok(Received::End) => {
                    site.sockets.close(socket);
                    return Next::Gone;
                }
                Err(_) => {
                    site.sockets.abort(socket);
                    return Next::Gone;
                }
            }
        }
        if !self.stopped {
            // A proxy's client that was refused: it leaves by itself.
            self.deadline = Some(self.lingers_until);
            return Next::Wait;
        }
        let unacknowledged = site.sockets.unacknowledged(socket);
        if unacknowledged == 0 || site.now >= self.lingers_until {
            site.sockets.abort(socket);
            return Next::Gone;
        }
        self.deadline = Some((site.now + LINGER_POLL).min(self.lingers_until));
        Next::Wait
    }
}
