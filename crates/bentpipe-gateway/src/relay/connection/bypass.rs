//! Without the pair: a proxy's client that is connected from here, because the other gateway cannot be reached.

use super::far::{is_allowed, outcome, start};
use super::{Connection, Next, Stage};
use crate::log_event::{Outcome, Server};
use crate::relay::Site;
use crate::relay::direct::Direct;
use crate::relay::frame::{Opening, code};
use bentpipe_net::socket::{Connection as Handshake, SocketId};

impl Connection {
    /// The server's end, where the connection does not go over the pair.
    pub(crate) fn other_socket(&self) -> Option<SocketId> {
        match &self.stage {
            Stage::Dialing(direct) | Stage::Bypass(direct) => Some(direct.server),
            _ => None,
        }
    }

    /// Connects a proxy's client from here. What the pair would not connect to, this does not either.
    pub(super) fn dial(&mut self, site: &mut Site<'_>) {
        let Some(server) = self.server.clone() else { return self.turn_away(site) };
        self.filter = None;
        site.shared.metrics.bypassed += 1;
        let client = if let Server::Name(..) = server { self.client } else { None };
        let opening = Opening { client, server, traffic_class: self.traffic_class, may_pack: false, credit: 0 };
        let socket = if is_allowed(&opening, site.shared.config.settings.loopback) {
            start(site, &opening).map_err(outcome)
        } else {
            Err(Outcome::Denied)
        };
        match socket {
            Ok(socket) => {
                let direct = Direct::new(socket, &std::mem::take(&mut self.first));
                self.set_stage(site, Stage::Dialing(direct));
                self.deadline = Some(site.now + site.shared.config.settings.answer);
            }
            Err(outcome) => self.count_outcome(site, outcome),
        }
    }

    /// The server's handshake is under way.
    pub(super) fn await_server(&mut self, site: &mut Site<'_>) -> Next {
        let Some(server) = self.other_socket() else { return Next::Gone };
        if self.socket.is_none_or(|socket| site.sockets.connection(socket).is_err()) {
            site.shared.metrics.abandoned += 1;
            self.break_off(site, code::GIVEN_UP);
            return Next::Gone;
        }
        match site.sockets.connection(server) {
            Ok(Handshake::Opening) => Next::Wait,
            Ok(Handshake::Open) => {
                self.deadline = None;
                self.put_reply(Outcome::Open);
                match std::mem::replace(&mut self.stage, Stage::Gone) {
                    Stage::Dialing(direct) => self.set_stage(site, Stage::Bypass(direct)),
                    _ => Next::Gone,
                }
            }
            Err(error) => {
                self.not_dialed(site, outcome(error));
                Next::Again
            }
        }
    }

    /// The server cannot be reached from here either.
    pub(super) fn not_dialed(&mut self, site: &mut Site<'_>, outcome: Outcome) {
        if let Some(server) = self.other_socket() {
            site.sockets.abort(server);
        }
        self.count_outcome(site, outcome);
    }

    /// Data flow past the pair.
    pub(super) fn pass(&mut self, site: &mut Site<'_>) -> Next {
        let Some(client) = self.socket else { return Next::Gone };
        match self.inbound.flush_own(site, client) {
            Ok(true) => {}
            Ok(false) => return Next::Wait,
            Err(_) => return self.reset_both(site),
        }
        let Stage::Bypass(direct) = &mut self.stage else { return Next::Gone };
        match direct.work(site, client) {
            Ok(false) => Next::Wait,
            Ok(true) => {
                site.shared.metrics.ended += 1;
                site.sockets.close(direct.server);
                site.sockets.close(client);
                Next::Gone
            }
            Err(_) => self.reset_both(site),
        }
    }

    fn reset_both(&mut self, site: &mut Site<'_>) -> Next {
        site.shared.metrics.reset += 1;
        self.break_off(site, code::RESET);
        Next::Gone
    }
}
