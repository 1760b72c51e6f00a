//! One relayed connection, from the request to its end.

use super::Site;
use super::class::Meter;
use super::frame::{Malformed, Opening, Reply, code};
use super::inbound::{Fault, Halt, Inbound};
use super::outbound::{Broken, Outbound};
use crate::asked::{Asked, Progress, Protocol};
use crate::config::{Compression, Fail, Open};
use crate::notice::{Notice, Outcome, Server};
use crate::satellite::{Class, StreamId};
use bentpipe_link::capture::{Refusal, Request, RequestId};
use bentpipe_link::socket::{Connection as Handshake, Received, SocketError, SocketId};
use bentpipe_link::time::{Duration, Instant};
use std::net::{IpAddr, SocketAddr};

/// What a client that no longer matters may still take: the end of what it is sent, and the reset after it.
const LINGER: Duration = Duration::from_secs(60);
/// How often it is looked whether the client has acknowledged everything.
const LINGER_LOOK: Duration = Duration::from_millis(200);

/// Who wants the connection.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// A client whose request was caught.
    Caught(RequestId),
    /// A client of a proxy.
    Asked(Protocol),
    /// The other gateway.
    Peer,
}

#[derive(Debug)]
enum Stage {
    /// A proxy's client has not said what it wants.
    Asking(Asked),
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
    /// The socket is gone; what was to be sent to the other gateway still goes out.
    Flushing,
    /// A proxy's client is told why it is not connected.
    Telling,
    /// The client has been sent everything and must not send more; where the server reset it, it is reset too once it has
    /// acknowledged all.
    Lingering,
    /// Nothing is left.
    Gone,
}

/// What a stage's work came to.
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
    held: u64,
}

impl Connection {
    /// For a request that was caught.
    pub(crate) fn caught(site: &mut Site<'_>, request: Request) -> Connection {
        let meter = Meter::new(&site.shared.policy, request.server.port(), request.traffic_class);
        let mut connection = Connection::new(Origin::Caught(request.id), Stage::Waiting, meter);
        connection.client = Some(request.client);
        connection.server = Some(Server::Address(request.server));
        connection.traffic_class = request.traffic_class;
        connection.deadline = Some(site.now + site.shared.config.answer);
        site.shared.figures.requests += 1;
        site.shared.figures.requests_pending += 1;
        connection
    }

    /// For a client of a proxy.
    pub(crate) fn asked(site: &mut Site<'_>, socket: SocketId, protocol: Protocol) -> Connection {
        let meter = Meter::new(&site.shared.policy, 0, 0);
        let mut connection = Connection::new(Origin::Asked(protocol), Stage::Asking(Asked::new(protocol)), meter);
        connection.socket = Some(socket);
        connection.client = site.sockets.peer_address(socket).ok();
        connection.deadline = Some(site.now + site.shared.config.asking);
        connection
    }

    /// For a stream that the other gateway opened.
    pub(crate) fn opened(site: &mut Site<'_>, stream: StreamId) -> Connection {
        let mut connection = Connection::new(Origin::Peer, Stage::Hearing, Meter::new(&site.shared.policy, 0, 0));
        connection.stream = Some(stream);
        connection.deadline = Some(site.now + site.shared.config.answer);
        connection
    }

    fn new(origin: Origin, stage: Stage, meter: Meter) -> Connection {
        Connection {
            origin,
            stage,
            client: None,
            server: None,
            traffic_class: 0,
            first: Vec::new(),
            socket: None,
            stream: None,
            out: Outbound::new(meter),
            inbound: Inbound::default(),
            stopped: false,
            deadline: None,
            lingers_until: Instant::FAR,
            held: 0,
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
        loop {
            let next = match self.stage {
                Stage::Asking(_) => self.ask(site),
                Stage::Waiting => self.open(site, reach),
                Stage::Requested => self.await_reply(site),
                Stage::Hearing => self.hear(site),
                Stage::Connecting => self.connect(site),
                Stage::Accepting => self.accept(site),
                Stage::Relaying => self.relay(site),
                Stage::Flushing => self.flush(site),
                Stage::Telling => self.tell(site),
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
            Stage::Asking(_) => {
                site.shared.figures.bad_requests += 1;
                self.abort(site);
            }
            Stage::Waiting | Stage::Requested => self.not_opened(site, Outcome::TimedOut),
            Stage::Hearing => self.break_off(site, code::GIVEN_UP),
            Stage::Connecting => self.refuse_peer(site, Outcome::TimedOut),
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
                    site.shared.figures.reset += 1;
                }
                self.break_off(site, code::RESET);
            }
        }
    }

    /// The other side no longer reads: what comes from it still arrives.
    pub(crate) fn peer_stopped(&mut self, site: &mut Site<'_>) {
        if let (Some(stream), false) = (self.stream, self.out.is_finished()) {
            self.out.reset(site, stream, code::RESET);
            self.stopped = true;
        }
    }

    /// The pair's connection is over.
    pub(crate) fn lost(&mut self, site: &mut Site<'_>) {
        self.stream = None;
        match (&self.stage, self.origin) {
            // A circuit comes back: the client has not been answered, so its request is simply made again.
            (Stage::Requested, Origin::Caught(_)) if site.shared.config.satellite.dial_up => {
                let port = self.server.as_ref().map_or(0, Server::port);
                self.out.forget(site);
                self.inbound.forget(site);
                self.out = Outbound::new(Meter::new(&site.shared.policy, port, self.traffic_class));
                self.inbound = Inbound::default();
                self.set_stage(site, Stage::Waiting);
                self.count_memory(site);
                return;
            }
            _ => {}
        }
        match self.stage {
            Stage::Requested => self.fail(site),
            Stage::Asking(_) | Stage::Waiting | Stage::Telling | Stage::Lingering | Stage::Gone => {}
            Stage::Accepting | Stage::Relaying | Stage::Hearing | Stage::Connecting | Stage::Flushing => {
                site.shared.figures.lost += u64::from(matches!(self.stage, Stage::Accepting | Stage::Relaying));
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
            Origin::Caught(request) => {
                let how = match site.shared.config.fail {
                    Fail::Open => {
                        site.shared.figures.bypassed += 1;
                        Refusal::Bypassed
                    }
                    Fail::Closed => {
                        site.shared.figures.turned_away += 1;
                        Refusal::Refused
                    }
                };
                if let Some(capture) = site.sockets.capture() {
                    capture.refuse(request, how);
                }
                self.leave(site);
            }
            Origin::Asked(protocol) => {
                site.shared.figures.turned_away += 1;
                self.tell_outcome(site, protocol, Outcome::Busy);
            }
            Origin::Peer => {}
        }
    }

    /// Ends it at once with resets on both sides.
    pub(crate) fn end(&mut self, site: &mut Site<'_>) {
        match self.stage {
            Stage::Waiting | Stage::Requested => self.fail(site),
            _ => self.break_off(site, code::ENDING),
        }
    }

    fn set_stage(&mut self, site: &mut Site<'_>, stage: Stage) -> Next {
        let (pending, open) = (self.is_pending(), matches!(self.stage, Stage::Relaying));
        self.stage = stage;
        let figures = &mut site.shared.figures;
        figures.requests_pending = figures.requests_pending + u64::from(self.is_pending()) - u64::from(pending);
        let now_open = matches!(self.stage, Stage::Relaying);
        figures.connections_open = figures.connections_open + u64::from(now_open) - u64::from(open);
        Next::Again
    }

    fn leave(&mut self, site: &mut Site<'_>) {
        self.set_stage(site, Stage::Gone);
        self.out.forget(site);
        self.inbound.forget(site);
        self.deadline = None;
        (self.out, self.inbound) = (Outbound::new(Meter::new(&site.shared.policy, 0, 0)), Inbound::default());
        self.first = Vec::new();
        self.count_memory(site);
    }

    fn count_memory(&mut self, site: &mut Site<'_>) {
        let asking = if let Stage::Asking(asked) = &self.stage { asked.held() } else { 0 };
        let held = (self.out.held() + self.inbound.held() + self.first.capacity() + asking) as u64;
        site.shared.figures.memory_held = site.shared.figures.memory_held + held - self.held;
        self.held = held;
    }

    /// Resets the socket, if there is one, and leaves.
    fn abort(&mut self, site: &mut Site<'_>) {
        if let Some(socket) = self.socket {
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
        site.shared.figures.malformed += 1;
        site.shared.notices.say(Notice::Malformed { what: what.0 });
        if self.is_pending() {
            self.give_up_stream(site, code::MALFORMED);
            self.not_opened(site, Outcome::Unreachable);
            return Next::Again;
        }
        self.break_off(site, code::MALFORMED);
        Next::Gone
    }

    // The near side.

    /// A proxy's client says what it wants.
    fn ask(&mut self, site: &mut Site<'_>) -> Next {
        let (Origin::Asked(protocol), Some(socket)) = (self.origin, self.socket) else { return Next::Gone };
        loop {
            match self.inbound.flush_own(site, socket) {
                Ok(true) => {}
                Ok(false) => return Next::Wait,
                Err(_) => return self.hang_up(site),
            }
            let mut heard = [0; 512];
            let count = match site.sockets.receive(socket, &mut heard) {
                Ok(Received::Bytes(count)) => count,
                Ok(Received::Nothing) => return Next::Wait,
                Ok(Received::End) | Err(_) => return self.hang_up(site),
            };
            let Stage::Asking(asked) = &mut self.stage else { return Next::Gone };
            let mut reply = Vec::new();
            let progress = asked.hear(&heard[..count], &mut reply);
            self.inbound.put(&reply);
            if self.inbound.flush_own(site, socket).is_err() {
                return self.hang_up(site);
            }
            match progress {
                Progress::More => {}
                Progress::Bad => {
                    site.shared.figures.bad_requests += 1;
                    return self.set_stage(site, Stage::Telling);
                }
                Progress::Connect { server, rest } => {
                    let port = server.port();
                    self.out = Outbound::new(Meter::new(&site.shared.policy, port, 0));
                    self.server = Some(server);
                    site.shared.figures.requests += 1;
                    site.shared.figures.bytes_taken += rest.len() as u64;
                    self.first = rest;
                    self.deadline = Some(site.now + site.shared.config.answer);
                    if site.shared.figures.requests_pending >= site.shared.config.pending as u64 {
                        site.shared.figures.over_limit += 1;
                        self.tell_outcome(site, protocol, Outcome::Busy);
                        return Next::Again;
                    }
                    return self.set_stage(site, Stage::Waiting);
                }
            }
        }
    }

    /// A proxy's client left before it had asked for anything.
    fn hang_up(&mut self, site: &mut Site<'_>) -> Next {
        if let Some(socket) = self.socket {
            site.sockets.close(socket);
        }
        Next::Gone
    }

    /// Opens a stream, if the other gateway is there.
    fn open(&mut self, site: &mut Site<'_>, reach: Reach) -> Next {
        match reach {
            Reach::Yes => {}
            Reach::Soon => return if self.is_client_gone(site) { self.abandoned(site) } else { Next::Wait },
            Reach::No => {
                self.fail(site);
                return Next::Again;
            }
        }
        let (Some(server), Some(stream)) = (self.server.clone(), site.satellite.open(Class::Control)) else {
            site.shared.figures.over_limit += 1;
            self.not_opened(site, Outcome::Busy);
            return Next::Again;
        };
        self.stream = Some(stream);
        let may_pack = site.shared.contexts.promise();
        self.inbound.await_reply(may_pack);
        // Where a proxy listens, the client is of this site alone: the server need not see it.
        let client = if let Origin::Caught(_) = self.origin { self.client } else { None };
        let opening = Opening { client, server, traffic_class: self.traffic_class, may_pack };
        let mut frame = Vec::with_capacity(48);
        opening.put(&mut frame);
        self.out.put(&frame);
        self.out.put_data(&std::mem::take(&mut self.first));
        match site.shared.config.open {
            Open::Answered => self.set_stage(site, Stage::Requested),
            Open::Early => {
                if let Err(next) = self.send_opening(site) {
                    return next;
                }
                self.answer(site)
            }
        }
    }

    fn send_opening(&mut self, site: &mut Site<'_>) -> Result<(), Next> {
        let Some(stream) = self.stream else { return Err(Next::Gone) };
        match self.out.flush(site, stream) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.not_opened(site, Outcome::Unreachable);
                Err(Next::Again)
            }
        }
    }

    /// The far side has been asked; its answer decides.
    fn await_reply(&mut self, site: &mut Site<'_>) -> Next {
        let Some(stream) = self.stream else { return Next::Gone };
        if self.is_client_gone(site) {
            return self.abandoned(site);
        }
        // The far side stops reading when it refuses: its reply says why, so only the reply is looked at.
        let _ = self.out.flush(site, stream);
        match self.inbound.work(site, None, stream) {
            Ok(Halt::Replied(reply)) => self.replied(site, reply),
            Ok(_) => Next::Wait,
            Err(Fault::Malformed(what)) => self.malformed(site, what),
            Err(_) => {
                self.not_opened(site, Outcome::Unreachable);
                Next::Again
            }
        }
    }

    /// Whether a proxy's client has gone while it waited. Whether a caught one has is seen when it is answered.
    fn is_client_gone(&mut self, site: &mut Site<'_>) -> bool {
        self.socket.is_some_and(|socket| site.sockets.connection(socket).is_err())
    }

    fn abandoned(&mut self, site: &mut Site<'_>) -> Next {
        site.shared.figures.abandoned += 1;
        self.break_off(site, code::GIVEN_UP);
        Next::Gone
    }

    fn replied(&mut self, site: &mut Site<'_>, reply: Reply) -> Next {
        if reply.outcome != Outcome::Open {
            self.not_opened(site, reply.outcome);
            return Next::Again;
        }
        site.shared.figures.relayed += 1;
        self.deadline = None;
        if reply.may_pack && site.shared.config.compression == Compression::Auto {
            self.out.may_pack();
        }
        match self.stage {
            Stage::Requested => self.answer(site),
            _ => Next::Again,
        }
    }

    /// Answers the client.
    fn answer(&mut self, site: &mut Site<'_>) -> Next {
        self.deadline = None;
        match self.origin {
            Origin::Caught(request) => match site.sockets.capture().map(|capture| capture.answer(request)) {
                Some(Ok(socket)) => {
                    self.socket = Some(socket);
                    self.set_stage(site, Stage::Accepting)
                }
                _ => self.abandoned(site),
            },
            Origin::Asked(protocol) => {
                let mut reply = Vec::new();
                Asked::reply(protocol, Outcome::Open, &mut reply);
                self.inbound.put(&reply);
                self.set_stage(site, Stage::Relaying)
            }
            Origin::Peer => Next::Gone,
        }
    }

    fn accept(&mut self, site: &mut Site<'_>) -> Next {
        let Some(socket) = self.socket else { return Next::Gone };
        if let Some(stream) = self.stream {
            let _ = self.out.flush(site, stream);
        }
        match site.sockets.connection(socket) {
            Ok(Handshake::Opening) => Next::Wait,
            Ok(Handshake::Open) => self.set_stage(site, Stage::Relaying),
            Err(_) => self.abandoned(site),
        }
    }

    /// The request does not become a connection.
    fn not_opened(&mut self, site: &mut Site<'_>, outcome: Outcome) {
        let figures = &mut site.shared.figures;
        match outcome {
            Outcome::Refused => figures.refused += 1,
            Outcome::Unreachable => figures.unreachable += 1,
            Outcome::TimedOut => figures.timed_out += 1,
            Outcome::Denied => figures.denied += 1,
            Outcome::Busy | Outcome::Open => figures.over_limit += 1,
        }
        if let Some(server) = self.server.clone() {
            site.shared.notices.say(Notice::NotOpened { client: self.client, server, outcome });
        }
        self.give_up_stream(site, code::GIVEN_UP);
        match (self.origin, self.is_pending()) {
            (Origin::Caught(request), true) => {
                let how = match outcome {
                    Outcome::Refused => Refusal::Refused,
                    Outcome::Unreachable | Outcome::Denied => Refusal::Unreachable,
                    // As the server itself: silent. A client that is refused for lack of room asks again.
                    Outcome::TimedOut | Outcome::Busy | Outcome::Open => Refusal::Ignored,
                };
                if let Some(capture) = site.sockets.capture() {
                    capture.refuse(request, how);
                }
                self.leave(site);
            }
            (Origin::Asked(protocol), true) => self.tell_outcome(site, protocol, outcome),
            // Answered early: all that is left is a reset.
            _ => self.abort(site),
        }
    }

    fn tell_outcome(&mut self, site: &mut Site<'_>, protocol: Protocol, outcome: Outcome) {
        let mut reply = Vec::new();
        Asked::reply(protocol, outcome, &mut reply);
        self.inbound.put(&reply);
        self.set_stage(site, Stage::Telling);
        self.deadline = Some(site.now + LINGER);
        self.work(site, Reach::No);
    }

    fn tell(&mut self, site: &mut Site<'_>) -> Next {
        let Some(socket) = self.socket else { return Next::Gone };
        match self.inbound.flush_own(site, socket) {
            Ok(true) => {
                site.sockets.finish(socket);
                self.start_lingering(site)
            }
            Ok(false) => Next::Wait,
            Err(_) => {
                site.sockets.abort(socket);
                Next::Gone
            }
        }
    }

    // The far side.

    /// The other gateway says what it wants.
    fn hear(&mut self, site: &mut Site<'_>) -> Next {
        let Some(stream) = self.stream else { return Next::Gone };
        let opening = match self.inbound.opening(site, stream) {
            Ok(Some(opening)) => opening,
            Ok(None) => return Next::Wait,
            Err(Fault::Malformed(what)) => return self.malformed(site, what),
            Err(_) => {
                self.break_off(site, code::GIVEN_UP);
                return Next::Gone;
            }
        };
        let port = opening.server.port();
        self.out = Outbound::new(Meter::new(&site.shared.policy, port, opening.traffic_class));
        if opening.may_pack && site.shared.config.compression == Compression::Auto {
            self.out.may_pack();
        }
        self.traffic_class = opening.traffic_class;
        self.client = opening.client;
        let allowed = match &opening.server {
            Server::Address(address) => may_connect(address.ip(), site.shared.config.loopback) && port != 0,
            Server::Name(..) => port != 0,
        };
        if !allowed {
            self.refuse_peer(site, Outcome::Denied);
            return Next::Again;
        }
        if site.shared.is_full() {
            site.shared.figures.over_limit += 1;
            self.refuse_peer(site, Outcome::Busy);
            return Next::Again;
        }
        match start(site, &opening) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.deadline = Some(site.now + site.shared.config.answer);
                self.server = Some(opening.server);
                self.set_stage(site, Stage::Connecting)
            }
            Err(error) => {
                self.refuse_peer(site, outcome(error));
                Next::Again
            }
        }
    }

    fn connect(&mut self, site: &mut Site<'_>) -> Next {
        let Some(socket) = self.socket else { return Next::Gone };
        match site.sockets.connection(socket) {
            Ok(Handshake::Opening) => Next::Wait,
            Ok(Handshake::Open) => {
                self.deadline = None;
                site.shared.figures.relayed += 1;
                let may_pack = site.shared.contexts.promise();
                if may_pack {
                    self.inbound.promise();
                }
                let mut reply = Vec::new();
                Reply { outcome: Outcome::Open, may_pack }.put(&mut reply);
                self.out.put(&reply);
                self.set_stage(site, Stage::Relaying)
            }
            Err(error) => {
                self.refuse_peer(site, outcome(error));
                Next::Again
            }
        }
    }

    /// Answers the other gateway's opening with something else than "open". With [`Outcome::Busy`], before it is heard.
    pub(crate) fn refuse_peer(&mut self, site: &mut Site<'_>, outcome: Outcome) {
        if let Some(socket) = self.socket.take() {
            site.sockets.abort(socket);
        }
        self.deadline = None;
        let mut reply = Vec::new();
        Reply { outcome, may_pack: false }.put(&mut reply);
        self.out.put(&reply);
        if let Some(stream) = self.stream {
            self.inbound.stop(site, stream, code::GIVEN_UP);
        }
        self.set_stage(site, Stage::Flushing);
        self.work(site, Reach::No);
    }

    // Both sides.

    fn relay(&mut self, site: &mut Site<'_>) -> Next {
        let (Some(socket), Some(stream)) = (self.socket, self.stream) else { return Next::Gone };
        // What the site has said is read before anything is given to it: a reset that our own bytes bring about then
        // finds its last words, and its end, already taken.
        if !self.stopped && !self.out.is_finished() {
            match self.out.work(site, socket, stream) {
                Ok(()) => {}
                Err(Broken::Socket(_)) => {
                    site.shared.figures.reset += 1;
                    self.break_off(site, code::RESET);
                    return Next::Gone;
                }
                Err(Broken::Stream(_)) => self.peer_stopped(site),
            }
        }
        match self.inbound.work(site, Some(socket), stream) {
            Ok(Halt::Starved | Halt::Full) => Next::Wait,
            Ok(Halt::Replied(reply)) => self.replied(site, reply),
            Ok(Halt::Over) if self.stopped => self.start_lingering(site),
            Ok(Halt::Over) if self.out.is_finished() => {
                site.shared.figures.ended += 1;
                site.sockets.close(socket);
                Next::Gone
            }
            Ok(Halt::Over) => Next::Wait,
            Err(Fault::Broken(Broken::Socket(_))) => {
                site.shared.figures.reset += 1;
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
                site.shared.figures.reset += 1;
                self.break_off(site, code::RESET);
                Next::Gone
            }
        }
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
            // A proxy's client that was told no: it leaves by itself.
            self.deadline = Some(self.lingers_until);
            return Next::Wait;
        }
        let unacknowledged = site.sockets.capture().map_or(0, |capture| capture.unacknowledged(socket));
        if unacknowledged == 0 || site.now >= self.lingers_until {
            site.sockets.abort(socket);
            return Next::Gone;
        }
        self.deadline = Some((site.now + LINGER_LOOK).min(self.lingers_until));
        Next::Wait
    }
}

/// Starts the connection that the other gateway asks for, in the client's name where that is possible.
fn start(site: &mut Site<'_>, opening: &Opening) -> Result<SocketId, SocketError> {
    let capture = site.sockets.capture().ok_or(SocketError::Unreachable)?;
    match &opening.server {
        Server::Name(name, port) => capture.connect_to_name(name, *port, opening.traffic_class),
        Server::Address(to) => match opening.client.filter(|client| client.is_ipv4() == to.is_ipv4()) {
            Some(client) if capture.keeps_addresses() => {
                match capture.connect_as(Some(client), *to, opening.traffic_class) {
                    // The client's port is still in use here by an earlier connection of the same client.
                    Err(SocketError::AddressInUse | SocketError::Denied) => {
                        capture.connect_as(None, *to, opening.traffic_class)
                    }
                    other => other,
                }
            }
            _ => capture.connect_as(None, *to, opening.traffic_class),
        },
    }
}

/// Whether the other gateway may have this one connect there.
fn may_connect(to: IpAddr, loopback: bool) -> bool {
    let to = to.to_canonical();
    let broadcast = to == IpAddr::from([255; 4]);
    !to.is_unspecified() && !to.is_multicast() && !broadcast && (loopback || !to.is_loopback())
}

/// What the other side is told of a failed attempt.
fn outcome(error: SocketError) -> Outcome {
    match error {
        SocketError::Refused | SocketError::Reset => Outcome::Refused,
        SocketError::TimedOut => Outcome::TimedOut,
        SocketError::Unreachable
        | SocketError::AddressInUse
        | SocketError::Denied
        | SocketError::Closed
        | SocketError::Other(_) => Outcome::Unreachable,
    }
}
