//! The FTP server: many sessions over one listening port.

use super::SESSIONS_MAX;
use super::session::{Session, Shared};
use crate::ServerLife;
use crate::acceptor::Acceptor;
use crate::progress::Arrivals;
use crate::quantity;
use crate::report::{App, Report, Status};
use crate::stream::Turn;
use bentpipe_net::socket::{Program, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};

/// Serves files named after their size; see the module.
pub(crate) struct FtpServer {
    acceptor: Acceptor,
    life: ServerLife,
    shared: Shared,
    sessions: Vec<Session>,
    accepted: u64,
    again: Option<Instant>,
    started: bool,
}

impl FtpServer {
    /// `sample_every`: the interval of the series of stored bytes; `None` keeps none.
    pub fn new(port: u16, seed: u64, life: ServerLife, sample_every: Option<Duration>) -> Self {
        FtpServer {
            acceptor: Acceptor::new(port),
            life,
            shared: Shared::new(seed, Arrivals::new(sample_every)),
            sessions: Vec::new(),
            accepted: 0,
            again: None,
            started: false,
        }
    }

    fn admit(&mut self, now: Instant, sockets: &mut dyn Sockets, control: SocketId) {
        self.accepted += 1;
        self.shared.arrivals.start(now);
        match sockets.peer_address(control) {
            Ok(peer) if self.sessions.len() < SESSIONS_MAX as usize => {
                self.sessions.push(Session::new(control, peer.ip(), now));
            }
            Ok(_) => {
                // The socket is empty, so this fits; if not, the client sees the end all the same.
                let _ = sockets.send(control, b"421 Too many sessions.\r\n");
                sockets.close(control);
            }
            Err(_) => sockets.abort(control),
        }
    }
}

impl Program for FtpServer {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        self.started = true;
        while let Some(control) = self.acceptor.accept(now, sockets) {
            self.admit(now, sockets, control);
        }
        self.again = None;
        let FtpServer { sessions, shared, again, .. } = self;
        sessions.retain_mut(|session| match session.step(now, sockets, shared) {
            Turn::Over => false,
            Turn::Waiting => true,
            Turn::Again => {
                *again = Some(now);
                true
            }
        });
    }

    fn next_wake(&self) -> Option<Instant> {
        if !self.started {
            return Some(Instant::ZERO);
        }
        let timers = self.sessions.iter().map(Session::next_wake).min();
        [self.again, self.acceptor.next_wake(), timers].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.acceptor.failure().is_some() || (self.life == ServerLife::Workload && self.acceptor.is_listening())
    }
}

impl App for FtpServer {
    /// `Running` unless it cannot listen; `bytes` are those stored.
    fn report(&self, now: Instant) -> Report {
        let status = match self.acceptor.failure() {
            Some(error) => Status::Failed(error.to_owned()),
            None => Status::Running,
        };
        let mut report = Report::new(status, None);
        report.put(quantity::SESSIONS, self.accepted as f64);
        self.shared.arrivals.fill(self.shared.arrivals.last.unwrap_or(now), &mut report);
        report
    }
}
