//! The near side: from a client's request to its answer.

use super::{Connection, LINGER, Next, Origin, Reach, Stage};
use crate::front_end::{End, Progress};
use crate::log_event::{LogEvent, Outcome, Server};
use crate::relay::Site;
use crate::relay::class::Meter;
use crate::relay::frame::{Opening, Reply, code};
use crate::relay::inbound::{Blocked, Fault};
use crate::relay::outbound::Outbound;
use crate::satellite::Class;
use crate::settings::{Compression, Open};
use bentpipe_net::interception::Refusal;
use bentpipe_net::socket::{Connection as Handshake, Received};

impl Connection {
    /// An explicit proxy's client states its request.
    pub(super) fn ask(&mut self, site: &mut Site<'_>) -> Next {
        let Some(socket) = self.socket else { return Next::Gone };
        loop {
            match self.inbound.flush_own(site, socket) {
                Ok(true) => {}
                Ok(false) => return Next::Wait,
                Err(_) => return self.hang_up(site),
            }
            let mut received = [0; 512];
            let count = match site.sockets.receive(socket, &mut received) {
                Ok(Received::Bytes(count)) => count,
                Ok(Received::Nothing) => return Next::Wait,
                Ok(Received::End) | Err(_) => return self.hang_up(site),
            };
            let Some(negotiation) = &mut self.negotiation else { return Next::Gone };
            let mut reply = Vec::new();
            let progress = negotiation.receive(&received[..count], &mut reply);
            self.inbound.put(&reply);
            if self.inbound.flush_own(site, socket).is_err() {
                return self.hang_up(site);
            }
            match progress {
                Progress::More => {}
                Progress::Bad => {
                    site.shared.metrics.bad_requests += 1;
                    return self.set_stage(site, Stage::Telling);
                }
                Progress::Connect { server, rest } => {
                    let port = server.port();
                    self.out = Outbound::new(Meter::new(&site.shared.policy, port, 0));
                    self.server = Some(server);
                    site.shared.metrics.requests += 1;
                    site.shared.metrics.bytes_taken += rest.len() as u64;
                    self.first = rest;
                    self.deadline = Some(site.now + site.shared.config.settings.answer);
                    if site.shared.metrics.requests_pending >= site.shared.config.settings.pending as u64 {
                        self.count_outcome(site, Outcome::Busy);
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
    pub(super) fn open(&mut self, site: &mut Site<'_>, reach: Reach) -> Next {
        match reach {
            Reach::Yes => {}
            Reach::Soon => {
                site.satellite.want();
                return if self.is_client_gone(site) { self.abandoned(site) } else { Next::Wait };
            }
            Reach::No => {
                self.fail(site);
                return Next::Again;
            }
        }
        let (Some(server), Some(stream)) = (self.server.clone(), site.satellite.open(Class::Control)) else {
            site.shared.metrics.over_limit += 1;
            self.not_opened(site, Outcome::Busy);
            return Next::Again;
        };
        self.stream = Some(stream);
        let may_pack = site.shared.contexts.promise();
        self.inbound.await_reply(may_pack);
        // Where a proxy listens, the client is of this site alone: the server need not see it, only whoever looks names up,
        // to share the look-ups among the clients.
        let by_name = matches!(server, Server::Name(..));
        let client = self.client.filter(|_| by_name || matches!(self.origin, Origin::Intercepted(_)));
        let credit = self.inbound.first_credit(site, stream);
        let opening = Opening { client, server, traffic_class: self.traffic_class, may_pack, credit };
        let mut frame = Vec::with_capacity(48);
        opening.put(&mut frame);
        self.out.put(&frame);
        // Kept until there is an answer: should the pair be lost, they may take another route.
        self.attach_filter(site, End::Client);
        if self.filter.is_none() {
            self.out.put_data(&self.first);
        }
        match site.shared.config.settings.open {
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
    pub(super) fn await_reply(&mut self, site: &mut Site<'_>) -> Next {
        let Some(stream) = self.stream else { return Next::Gone };
        if self.is_client_gone(site) {
            return self.abandoned(site);
        }
        // The far side stops reading when it refuses: its reply says why, so only the reply is looked at.
        let _ = self.out.flush(site, stream);
        match self.inbound.work(site, None, stream) {
            Ok(Blocked::Replied(reply)) => self.replied(site, reply),
            Ok(_) => Next::Wait,
            Err(Fault::Malformed(what)) => self.malformed(site, what),
            Err(_) => {
                self.not_opened(site, Outcome::Unreachable);
                Next::Again
            }
        }
    }

    /// True if a proxy's client has gone while it waited. Whether an intercepted one has is seen when it is answered.
    fn is_client_gone(&mut self, site: &mut Site<'_>) -> bool {
        self.socket.is_some_and(|socket| site.sockets.connection(socket).is_err())
    }

    pub(super) fn abandoned(&mut self, site: &mut Site<'_>) -> Next {
        site.shared.metrics.abandoned += 1;
        self.break_off(site, code::GIVEN_UP);
        Next::Gone
    }

    pub(super) fn replied(&mut self, site: &mut Site<'_>, reply: Reply) -> Next {
        if reply.outcome != Outcome::Open {
            self.not_opened(site, reply.outcome);
            return Next::Again;
        }
        site.shared.metrics.relayed += 1;
        self.deadline = None;
        self.out.grant(reply.credit);
        if reply.may_pack && site.shared.config.settings.compression == Compression::Auto {
            self.out.may_pack();
        }
        match self.stage {
            Stage::Requested => self.answer(site),
            _ => Next::Again,
        }
    }

    /// Answers the client.
    pub(super) fn answer(&mut self, site: &mut Site<'_>) -> Next {
        self.deadline = None;
        self.first = Vec::new();
        match self.origin {
            Origin::Intercepted(request) => match site.sockets.answer(request) {
                Ok(socket) => {
                    self.socket = Some(socket);
                    self.set_stage(site, Stage::Accepting)
                }
                Err(_) => self.abandoned(site),
            },
            Origin::Explicit => {
                self.put_reply(Outcome::Open);
                self.set_stage(site, Stage::Relaying)
            }
            Origin::Peer => Next::Gone,
        }
    }

    pub(super) fn accept(&mut self, site: &mut Site<'_>) -> Next {
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
    pub(super) fn not_opened(&mut self, site: &mut Site<'_>, outcome: Outcome) {
        self.count(site, outcome);
        self.give_up_stream(site, code::GIVEN_UP);
        match (self.origin, self.is_pending()) {
            (Origin::Intercepted(request), true) => {
                let how = match outcome {
                    Outcome::Refused => Refusal::Refused,
                    Outcome::Unreachable | Outcome::Denied => Refusal::Unreachable,
                    // As the server itself: silent. A client that is refused for lack of room asks again.
                    Outcome::TimedOut | Outcome::Busy | Outcome::Open => Refusal::Ignored,
                };
                site.sockets.refuse(request, how);
                self.leave(site);
            }
            (Origin::Explicit, true) => self.report_outcome(site, outcome),
            // Answered early: all that is left is a reset.
            _ => self.abort(site),
        }
    }

    /// A request that does not become a connection, for metrics and log.
    fn count(&self, site: &mut Site<'_>, outcome: Outcome) {
        let metrics = &mut site.shared.metrics;
        match outcome {
            Outcome::Refused => metrics.refused += 1,
            Outcome::Unreachable => metrics.unreachable += 1,
            Outcome::TimedOut => metrics.timed_out += 1,
            Outcome::Denied => metrics.denied += 1,
            Outcome::Busy | Outcome::Open => metrics.over_limit += 1,
        }
        if let Some(server) = self.server.clone() {
            site.shared.log.emit(LogEvent::NotOpened { client: self.client, server, outcome });
        }
    }

    /// Counts it and tells a proxy's client.
    pub(super) fn count_outcome(&mut self, site: &mut Site<'_>, outcome: Outcome) {
        self.count(site, outcome);
        self.report_outcome(site, outcome);
    }

    /// The reply of an explicit proxy to its client.
    pub(super) fn put_reply(&mut self, outcome: Outcome) {
        let mut reply = Vec::new();
        if let Some(negotiation) = self.negotiation.take() {
            negotiation.reply(outcome, &mut reply);
        }
        self.inbound.put(&reply);
    }

    pub(super) fn report_outcome(&mut self, site: &mut Site<'_>, outcome: Outcome) {
        self.put_reply(outcome);
        self.set_stage(site, Stage::Telling);
        self.deadline = Some(site.now + LINGER);
        self.work(site, Reach::No);
    }

    pub(super) fn report(&mut self, site: &mut Site<'_>) -> Next {
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
}
