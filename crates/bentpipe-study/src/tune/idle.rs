//! The same answer twice over one connection, with a pause between: what slow start after an idle time costs.

use bentpipe_apps::quantity::COMPLETION_TIME;
use bentpipe_apps::report::{App, Report, Status};
use bentpipe_net::socket::{Connection, Program, Received, SocketError, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use std::net::SocketAddr;

/// Between the first answer's last byte and the second request. Linux halves the window for each retransmission time-out
/// that passes (RFC 2861); this is enough of them on any link.
pub const PAUSE: Duration = Duration::from_secs(120);
/// Answers.
const ANSWERS: u32 = 2;
/// The pattern of the answer's data; its content does not matter.
const PATTERN: u64 = 7;
const REQUEST: &[u8] = b"?";

/// The side that answers each request with `bytes`.
pub fn server(port: u16, bytes: u64) -> Box<dyn App> {
    Box::new(Server { port, bytes, listener: None, socket: None, requested: 0, sent: 0, failure: None })
}

/// The side that asks, waits, and asks again. Its `completion_time` is that of the second answer.
pub fn client(server: SocketAddr, bytes: u64) -> Box<dyn App> {
    let (socket, requested, received, again, took) = (None, None, 0, None, None);
    Box::new(Client { server, bytes, socket, requested, received, answers: 0, again, took, failure: None })
}

struct Server {
    port: u16,
    bytes: u64,
    listener: Option<SocketId>,
    socket: Option<SocketId>,
    /// Bytes asked for and sent, of all answers.
    requested: u64,
    sent: u64,
    failure: Option<SocketError>,
}

impl Server {
    fn work(&mut self, sockets: &mut dyn Sockets) -> Result<(), SocketError> {
        let listener = match self.listener {
            Some(listener) => listener,
            None => *self.listener.insert(sockets.listen(self.port)?),
        };
        if self.socket.is_none() {
            self.socket = sockets.accept(listener)?;
        }
        let Some(socket) = self.socket else { return Ok(()) };
        let mut into = [0; 8];
        while let Received::Bytes(requests) = sockets.receive(socket, &mut into)? {
            self.requested += requests as u64 * self.bytes;
        }
        while self.sent < self.requested {
            match sockets.send_pattern(socket, PATTERN, self.sent, self.requested - self.sent)? {
                0 => break,
                taken => self.sent += taken,
            }
        }
        Ok(())
    }
}

impl Program for Server {
    fn poll(&mut self, _now: Instant, sockets: &mut dyn Sockets) {
        if self.failure.is_none() {
            self.failure = self.work(sockets).err();
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        (self.listener.is_none() && self.failure.is_none()).then_some(Instant::ZERO)
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl App for Server {
    fn report(&self, _now: Instant) -> Report {
        report(self.failure, true, None)
    }
}

struct Client {
    server: SocketAddr,
    bytes: u64,
    socket: Option<SocketId>,
    /// When the answer under way was asked for.
    requested: Option<Instant>,
    /// Bytes of all answers.
    received: u64,
    answers: u32,
    /// When to ask next.
    again: Option<Instant>,
    took: Option<Duration>,
    failure: Option<SocketError>,
}

impl Client {
    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets) -> Result<(), SocketError> {
        let socket = match self.socket {
            Some(socket) => socket,
            None => *self.socket.insert(sockets.connect(self.server)?),
        };
        if sockets.connection(socket)? == Connection::Opening {
            return Ok(());
        }
        if self.again.is_some_and(|at| at <= now) {
            self.again = None;
        }
        if self.requested.is_none() && self.again.is_none() {
            sockets.send(socket, REQUEST)?;
            self.requested = Some(now);
        }
        let mut into = [0; 16 * 1024];
        loop {
            match sockets.receive(socket, &mut into)? {
                Received::Bytes(bytes) => self.received += bytes as u64,
                Received::Nothing => break,
                Received::End => return Err(SocketError::Closed),
            }
        }
        if let Some(requested) = self.requested
            && self.received >= self.bytes * u64::from(self.answers + 1)
        {
            self.answers += 1;
            self.took = Some(now.since(requested));
            self.requested = None;
            self.again = Some(now + PAUSE);
            if self.answers == ANSWERS {
                sockets.close(socket);
            }
        }
        Ok(())
    }
}

impl Program for Client {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if !self.is_done() {
            self.failure = self.work(now, sockets).err();
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self.socket {
            _ if self.is_done() => None,
            None => Some(Instant::ZERO),
            Some(_) => self.again,
        }
    }

    fn is_done(&self) -> bool {
        self.failure.is_some() || self.answers == ANSWERS
    }
}

impl App for Client {
    fn report(&self, _now: Instant) -> Report {
        report(self.failure, self.answers == ANSWERS, self.took)
    }
}

fn report(failure: Option<SocketError>, done: bool, took: Option<Duration>) -> Report {
    let status = match failure {
        Some(error) => Status::Failed(error.to_string()),
        None if done => Status::Done,
        None => Status::Running,
    };
    let mut report = Report::new(status, None);
    if let Some(took) = took {
        report.put(COMPLETION_TIME, took.as_secs_f64());
    }
    report
}
