//! Servers that run for ever, for real programs to talk to.
//!
//! | service | what it does | its default port |
//! |---|---|---|
//! | [`HttpService`] | `/` and `/bytes/N`, see [`crate::page`] | 80 |
//! | [`FtpService`] | `N.bin`, see [`crate::ftp`] | 21 |
//! | [`SinkService`] | throws away what comes (discard, RFC 863) | 9 |
//! | [`SourceService`] | sends without end (as chargen, RFC 864, but incompressible) | 19 |

use crate::ServerLife;
use crate::acceptor::Acceptor;
use crate::ftp::FtpServer;
use crate::kind::{Keys, Kind, Part, PartyProgram, PortNeed, Role, SERVER, Setting, Workload};
use crate::page::{self, HttpServer};
use crate::progress::check_port;
use crate::quantity::{self, Quantity};
use crate::report::{App, Report, Status};
use crate::stream::{Turn, discard, send_range};
use bentpipe_net::content::Content;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::socket::{Program, SocketId, Sockets};
use bentpipe_net::time::Instant;
use serde::Deserialize;
use std::sync::Arc;

/// The one party of a service.
pub const SITE: Role = Role { key: "site", what: "the site that serves", part: Part::Serves, ..SERVER };

/// A kind of service of this module.
#[derive(Clone, Copy, Debug)]
pub struct ServiceKind {
    name: &'static str,
    default_port: u16,
    server: fn(port: u16, seed: u64) -> Box<dyn App>,
}

pub(crate) const HTTP: ServiceKind =
    ServiceKind { name: "http", default_port: 80, server: |port, seed| HttpService { port, seed }.server() };
pub(crate) const FTP: ServiceKind =
    ServiceKind { name: "ftp", default_port: 21, server: |port, seed| FtpService { port, seed }.server() };
pub(crate) const SINK: ServiceKind =
    ServiceKind { name: "sink", default_port: 9, server: |port, _| SinkService { port }.server() };
pub(crate) const SOURCE: ServiceKind =
    ServiceKind { name: "source", default_port: 19, server: |port, seed| SourceService { port, seed }.server() };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceKeys {
    port: Option<u16>,
    content: Option<Content>,
}

/// A service of a scenario.
#[derive(Debug)]
struct Service {
    kind: ServiceKind,
    port: u16,
    content: Content,
}

impl Kind for ServiceKind {
    fn name(&self) -> &'static str {
        self.name
    }

    fn roles(&self) -> &'static [Role] {
        const { &[SITE] }
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[]
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let keys: ServiceKeys = keys.read()?;
        let port = keys.port.unwrap_or(self.default_port);
        check_port(port)?;
        Ok(Arc::new(Service { kind: *self, port, content: keys.content.unwrap_or_default() }))
    }
}

impl Workload for Service {
    /// Real programs expect it at its port, so it moves to no other.
    fn ports(&self) -> Vec<PortNeed> {
        vec![PortNeed { role: 0, key: "port", chosen: Some(self.port), default: self.port }]
    }

    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        let seed = self.content.pattern(setting.seed);
        PartyProgram::App((self.kind.server)(setting.parties[number].ports[0], seed))
    }
}

/// An HTTP server for browsers, curl and wget.
#[derive(Clone, Copy, Debug)]
pub struct HttpService {
    /// The port to listen on.
    pub port: u16,
    /// The pattern served.
    pub seed: u64,
}

/// An FTP server for curl, lftp and the like.
#[derive(Clone, Copy, Debug)]
pub struct FtpService {
    /// The control port to listen on.
    pub port: u16,
    /// The pattern served.
    pub seed: u64,
}

/// A server that throws away what it is sent.
#[derive(Clone, Copy, Debug)]
pub struct SinkService {
    /// The port to listen on.
    pub port: u16,
}

/// A server that sends as fast as it can until the client ends the connection.
#[derive(Clone, Copy, Debug)]
pub struct SourceService {
    /// The port to listen on.
    pub port: u16,
    /// The pattern sent.
    pub seed: u64,
}

impl HttpService {
    /// The server.
    #[must_use]
    pub fn server(&self) -> Box<dyn App> {
        let html = page::html(0, &[]);
        Box::new(HttpServer::new(self.port, self.seed, ServerLife::Forever, html))
    }
}

impl FtpService {
    /// The server.
    #[must_use]
    pub fn server(&self) -> Box<dyn App> {
        Box::new(FtpServer::new(self.port, self.seed, ServerLife::Forever, None))
    }
}

impl SinkService {
    /// The server.
    #[must_use]
    pub fn server(&self) -> Box<dyn App> {
        Box::new(StreamServer::new(self.port, None))
    }
}

impl SourceService {
    /// The server.
    #[must_use]
    pub fn server(&self) -> Box<dyn App> {
        Box::new(StreamServer::new(self.port, Some(self.seed)))
    }
}

/// Sink and source.
struct StreamServer {
    acceptor: Acceptor,
    /// The pattern to send; `None`: nothing.
    pattern: Option<u64>,
    connections: Vec<Stream>,
    accepted: u64,
    received: u64,
    again: Option<Instant>,
    started: bool,
}

struct Stream {
    socket: SocketId,
    sent: u64,
}

impl StreamServer {
    fn new(port: u16, pattern: Option<u64>) -> Self {
        StreamServer {
            acceptor: Acceptor::new(port),
            pattern,
            connections: Vec::new(),
            accepted: 0,
            received: 0,
            again: None,
            started: false,
        }
    }

    /// `Over` when the connection has ended.
    fn step(&mut self, sockets: &mut dyn Sockets, stream: &mut Stream) -> Turn {
        let Ok((mut turn, received)) = discard(sockets, stream.socket) else { return Turn::Over };
        self.received += received;
        if let (Some(pattern), false) = (self.pattern, turn == Turn::Over) {
            match send_range(sockets, stream.socket, pattern, &mut stream.sent, u64::MAX) {
                Ok(Turn::Waiting) => {}
                Ok(sent) => turn = sent,
                Err(_) => turn = Turn::Over,
            }
        }
        turn
    }
}

impl Program for StreamServer {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        self.started = true;
        while let Some(socket) = self.acceptor.accept(now, sockets) {
            self.accepted += 1;
            if self.connections.len() < CONNECTIONS_MAX {
                self.connections.push(Stream { socket, sent: 0 });
            } else {
                sockets.abort(socket);
            }
        }
        self.again = None;
        for mut stream in std::mem::take(&mut self.connections) {
            match self.step(sockets, &mut stream) {
                Turn::Over => {
                    sockets.close(stream.socket);
                    continue;
                }
                Turn::Again => self.again = Some(now),
                Turn::Waiting => {}
            }
            self.connections.push(stream);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        if !self.started {
            return Some(Instant::ZERO);
        }
        [self.again, self.acceptor.next_wake()].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.acceptor.failure().is_some()
    }
}

impl App for StreamServer {
    /// `Running` unless it cannot listen.
    fn report(&self, _now: Instant) -> Report {
        let status = match self.acceptor.failure() {
            Some(error) => Status::Failed(error.to_owned()),
            None => Status::Running,
        };
        let mut report = Report::new(status, None);
        report.put(quantity::CONNECTIONS, self.accepted as f64);
        report.put(quantity::BYTES, self.received as f64);
        report
    }
}

const CONNECTIONS_MAX: usize = 256;
