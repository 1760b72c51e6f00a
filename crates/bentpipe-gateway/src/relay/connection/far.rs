//! The far side: from the other gateway's opening to the reply.

use super::{Connection, Next, Reach, Stage};
use crate::front_end::End;
use crate::log_event::{Outcome, Server};
use crate::relay::Site;
use crate::relay::class::Meter;
use crate::relay::frame::{Opening, Reply, code};
use crate::relay::inbound::Fault;
use crate::relay::outbound::Outbound;
use crate::settings::Compression;
use bentpipe_net::interception::Named;
use bentpipe_net::socket::{Connection as Handshake, SocketError, SocketId};
use std::net::{IpAddr, SocketAddr};

impl Connection {
    /// The other gateway says what it wants.
    pub(super) fn hear(&mut self, site: &mut Site<'_>) -> Next {
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
        if opening.may_pack && site.shared.config.settings.compression == Compression::Auto {
            self.out.may_pack();
        }
        self.out.grant(opening.credit);
        self.traffic_class = opening.traffic_class;
        self.client = opening.client;
        if !is_allowed(&opening, site.shared.config.settings.loopback) {
            self.refuse_peer(site, Outcome::Denied);
            return Next::Again;
        }
        if site.shared.is_full() {
            site.shared.metrics.over_limit += 1;
            self.refuse_peer(site, Outcome::Busy);
            return Next::Again;
        }
        match start(site, &opening) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.deadline = Some(site.now + site.shared.config.settings.answer);
                self.server = Some(opening.server);
                self.set_stage(site, Stage::Connecting)
            }
            Err(error) => {
                self.refuse_peer(site, outcome(error));
                Next::Again
            }
        }
    }

    pub(super) fn connect(&mut self, site: &mut Site<'_>) -> Next {
        let Some(socket) = self.socket else { return Next::Gone };
        match site.sockets.connection(socket) {
            Ok(Handshake::Opening) => Next::Wait,
            Ok(Handshake::Open) => {
                self.deadline = None;
                site.shared.metrics.relayed += 1;
                let may_pack = site.shared.contexts.promise();
                if may_pack {
                    self.inbound.promise();
                }
                let mut reply = Vec::new();
                let credit = self.stream.map_or(0, |stream| self.inbound.first_credit(site, stream));
                Reply { outcome: Outcome::Open, may_pack, credit }.put(&mut reply);
                self.out.put(&reply);
                self.attach_filter(site, End::Server);
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
        Reply { outcome, may_pack: false, credit: 0 }.put(&mut reply);
        self.out.put(&reply);
        if let Some(stream) = self.stream {
            self.inbound.stop(site, stream, code::GIVEN_UP);
        }
        self.set_stage(site, Stage::Flushing);
        self.work(site, Reach::No);
    }
}

/// Starts the connection that the other gateway asks for, in the client's name where that is possible.
pub(super) fn start(site: &mut Site<'_>, opening: &Opening) -> Result<SocketId, SocketError> {
    let sockets = &mut *site.sockets;
    match &opening.server {
        Server::Name(name, port) => sockets.connect_to_name(Named {
            name,
            port: *port,
            traffic_class: opening.traffic_class,
            client: opening.client.map(|client| client.ip()),
            may_connect: if site.shared.config.settings.loopback { is_server } else { is_foreign_server },
        }),
        Server::Address(to) => match opening.client.filter(|client| client.is_ipv4() == to.is_ipv4()) {
            Some(client) if sockets.keeps_addresses() => {
                match sockets.connect_as(Some(client), *to, opening.traffic_class) {
                    // The client's port is still in use here by an earlier connection of the same client.
                    Err(SocketError::AddressInUse | SocketError::Denied) => {
                        sockets.connect_as(None, *to, opening.traffic_class)
                    }
                    other => other,
                }
            }
            _ => sockets.connect_as(None, *to, opening.traffic_class),
        },
    }
}

/// True if this gateway may connect there, in this client's name; of a name, each address is judged when it is known.
pub(super) fn is_allowed(opening: &Opening, loopback: bool) -> bool {
    let may_connect = if loopback { is_server } else { is_foreign_server };
    opening.server.port() != 0
        && match &opening.server {
            Server::Address(to) => may_connect(to.ip()) && opening.client.is_none_or(is_foreign_client),
            // Nothing is done in the client's name.
            Server::Name(..) => true,
        }
}

/// An address that one host can have (RFC 1122 §3.2.1.3, RFC 4291 §2.5), also as an IPv4-mapped one.
fn is_server(address: IpAddr) -> bool {
    let address = address.to_canonical();
    !address.is_unspecified() && !address.is_multicast() && address != IpAddr::from([255; 4])
}

/// Such an address, and not a service of this machine that nobody else should reach.
fn is_foreign_server(address: IpAddr) -> bool {
    is_server(address) && !address.to_canonical().is_loopback()
}

/// Services trust connections from loopback addresses, which no client elsewhere has.
fn is_foreign_client(client: SocketAddr) -> bool {
    is_foreign_server(client.ip())
}

/// The outcome that the other side learns of a failed attempt.
pub(super) fn outcome(error: SocketError) -> Outcome {
    match error {
        SocketError::Refused | SocketError::Reset => Outcome::Refused,
        SocketError::TimedOut => Outcome::TimedOut,
        SocketError::Denied => Outcome::Denied,
        SocketError::Unreachable | SocketError::AddressInUse | SocketError::Closed | SocketError::Other(_) => {
            Outcome::Unreachable
        }
    }
}
