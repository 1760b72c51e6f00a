//! The HTTP server: a page, and bytes of any number.

use super::request::{Method, Parsed, Range, Request, parse};
use super::{CONNECTIONS_MAX, HEAD_BYTES_MAX, bytes_of_path, is_html};
use crate::ServerLife;
use crate::acceptor::Acceptor;
use crate::outbox::Outbox;
use crate::progress::Stall;
use crate::quantity;
use crate::report::{App, Report, Status};
use crate::stream::{Turn, discard, send_range};
use bentpipe_net::socket::{Program, Received, SocketError, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};

/// Answers with its page and with patterns; see the module.
pub(crate) struct HttpServer {
    acceptor: Acceptor,
    life: ServerLife,
    shared: Shared,
    connections: Vec<Connection>,
    accepted: u64,
    again: Option<Instant>,
    started: bool,
}

/// State that all connections share.
struct Shared {
    seed: u64,
    html: Vec<u8>,
    requests: u64,
}

struct Connection {
    socket: SocketId,
    /// A request that is not whole yet, and what a client sent ahead.
    input: Vec<u8>,
    input_ended: bool,
    out: Outbox,
    body: Option<Body>,
    keep_alive: bool,
    /// Our direction is finished; what still comes is thrown away until the client has read our last response
    /// (RFC 9112 §9.6).
    lingering: bool,
    stall: Stall,
}

/// The part of a response that is not copied into the outbox.
enum Body {
    Pattern { at: u64, end: u64 },
    Html { at: usize },
}

impl HttpServer {
    pub fn new(port: u16, seed: u64, life: ServerLife, html: Vec<u8>) -> Self {
        HttpServer {
            acceptor: Acceptor::new(port),
            life,
            shared: Shared { seed, html, requests: 0 },
            connections: Vec::new(),
            accepted: 0,
            again: None,
            started: false,
        }
    }
}

impl Program for HttpServer {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        self.started = true;
        while let Some(socket) = self.acceptor.accept(now, sockets) {
            self.accepted += 1;
            if self.connections.len() < CONNECTIONS_MAX as usize {
                self.connections.push(Connection::new(socket, now));
            } else {
                sockets.abort(socket);
            }
        }
        self.again = None;
        let HttpServer { connections, shared, again, .. } = self;
        connections.retain_mut(|connection| match connection.step(now, sockets, shared) {
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
        let timers = self.connections.iter().map(|connection| connection.stall.due()).min();
        [self.again, self.acceptor.next_wake(), timers].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.acceptor.failure().is_some() || (self.life == ServerLife::Workload && self.acceptor.is_listening())
    }
}

impl App for HttpServer {
    /// `Running` unless it cannot listen.
    fn report(&self, _now: Instant) -> Report {
        let status = match self.acceptor.failure() {
            Some(error) => Status::Failed(error.to_owned()),
            None => Status::Running,
        };
        let mut report = Report::new(status, None);
        report.put(quantity::CONNECTIONS, self.accepted as f64);
        report.put(quantity::REQUESTS, self.shared.requests as f64);
        report
    }
}

impl Connection {
    fn new(socket: SocketId, now: Instant) -> Self {
        Connection {
            socket,
            input: Vec::new(),
            input_ended: false,
            out: Outbox::default(),
            body: None,
            keep_alive: true,
            lingering: false,
            stall: Stall::new(IDLE_TIMEOUT, now),
        }
    }

    /// Works until nothing can be done; `Over` when the connection has ended and its socket is closed.
    fn step(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> Turn {
        let turn = match self.work(now, sockets, shared) {
            Ok(turn) if turn == Turn::Over || !self.stall.expired(now) => turn,
            _ => Turn::Over,
        };
        if turn == Turn::Over {
            if self.is_idle() { sockets.close(self.socket) } else { sockets.abort(self.socket) }
        }
        turn
    }

    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> Result<Turn, SocketError> {
        loop {
            if self.lingering {
                return discard(sockets, self.socket).map(|(turn, _)| turn);
            }
            let mut moved = match self.send(now, sockets, shared)? {
                (Turn::Again, _) => return Ok(Turn::Again),
                (_, sent) => sent,
            };
            moved |= self.read(sockets)?;
            if self.is_idle() {
                if !self.keep_alive {
                    sockets.finish(self.socket);
                    self.lingering = true;
                    self.stall = Stall::new(LINGER_TIMEOUT, now);
                    continue;
                }
                moved |= self.answer(now, shared);
                if self.input_ended && self.is_idle() && self.keep_alive {
                    return Ok(Turn::Over);
                }
            }
            if !moved {
                return Ok(Turn::Waiting);
            }
        }
    }

    /// Nothing is being sent.
    fn is_idle(&self) -> bool {
        self.out.is_empty() && self.body.is_none()
    }

    /// Sends what is to be sent; whether any of it left.
    fn send(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &Shared) -> Result<(Turn, bool), SocketError> {
        let mut sent = self.out.flush(sockets, self.socket)? as u64;
        let mut turn = Turn::Waiting;
        if self.out.is_empty() {
            turn = match &mut self.body {
                None => Turn::Over,
                Some(Body::Pattern { at, end }) => {
                    let before = *at;
                    let turn = send_range(sockets, self.socket, shared.seed, at, *end)?;
                    sent += *at - before;
                    turn
                }
                Some(Body::Html { at }) => {
                    let rest = shared.html.get(*at..).unwrap_or(&[]);
                    let taken = sockets.send(self.socket, rest)?;
                    *at += taken;
                    sent += taken as u64;
                    if taken < rest.len() { Turn::Waiting } else { Turn::Over }
                }
            };
            if turn == Turn::Over {
                self.body = None;
            }
        }
        if sent > 0 {
            self.stall.progress(now);
        }
        Ok((turn, sent > 0))
    }

    /// Reads requests; at most a head's worth ahead. Being read is no progress: a request must be whole in time.
    fn read(&mut self, sockets: &mut dyn Sockets) -> Result<bool, SocketError> {
        let mut buffer = [0; 2048];
        let mut moved = false;
        while !self.input_ended && self.input.len() < HEAD_BYTES_MAX {
            match sockets.receive(self.socket, &mut buffer)? {
                Received::Bytes(n) => {
                    self.input.extend_from_slice(&buffer[..n.min(buffer.len())]);
                    moved = true;
                }
                Received::Nothing => break,
                Received::End => self.input_ended = true,
            }
        }
        Ok(moved)
    }

    /// Answers the first request in the input, if it is whole.
    fn answer(&mut self, now: Instant, shared: &mut Shared) -> bool {
        match parse(&self.input) {
            Parsed::Partial => return false,
            Parsed::Request(request, length) => {
                self.input.drain(..length.min(self.input.len()));
                self.keep_alive = request.keep_alive;
                self.respond(&request, shared);
            }
            Parsed::Refused(status) => {
                self.keep_alive = false;
                self.refuse(status, "", true);
            }
        }
        shared.requests += 1;
        self.stall.progress(now);
        true
    }

    fn respond(&mut self, request: &Request, shared: &Shared) {
        let with_body = match request.method {
            Method::Get => true,
            Method::Head => false,
            Method::Other => return self.refuse(405, "Allow: GET, HEAD\r\n", true),
        };
        if is_html(&request.path) {
            self.head(200, "text/html; charset=utf-8", shared.html.len() as u64, "");
            self.body = with_body.then_some(Body::Html { at: 0 });
            return;
        }
        let Some(bytes) = bytes_of_path(&request.path) else {
            return self.refuse(404, "", with_body);
        };
        // A range is for GET only (RFC 9110 §14.2).
        let range = request.range.filter(|_| with_body);
        let (status, at, end, fields) = match range.map(|range| Range::within(range, bytes)) {
            None => (200, 0, bytes, String::new()),
            Some(Some((at, end))) => (206, at, end, format!("Content-Range: bytes {at}-{}/{bytes}\r\n", end - 1)),
            Some(None) => return self.refuse(416, &format!("Content-Range: bytes */{bytes}\r\n"), true),
        };
        let fields = format!("Accept-Ranges: bytes\r\n{fields}");
        self.head(status, "application/octet-stream", end - at, &fields);
        self.body = with_body.then_some(Body::Pattern { at, end });
    }

    fn refuse(&mut self, status: u16, fields: &str, with_body: bool) {
        let text = format!("{status} {}\n", reason(status));
        self.head(status, "text/plain; charset=utf-8", text.len() as u64, fields);
        if with_body {
            self.out.push(text.as_bytes());
        }
    }

    /// `fields`: further header fields, each with its line's end. No Date: there is no clock (RFC 9110 §6.6.1).
    fn head(&mut self, status: u16, content_type: &str, content_length: u64, fields: &str) {
        let connection = if self.keep_alive { "keep-alive" } else { "close" };
        let head = format!(
            "HTTP/1.1 {status} {}\r\nServer: bentpipe\r\nContent-Type: {content_type}\r\n\
             Content-Length: {content_length}\r\n{fields}Connection: {connection}\r\n\r\n",
            reason(status)
        );
        self.out.push(head.as_bytes());
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}

/// Without a whole request, or without progress of a response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest time for a client to end its direction after our last response. Long enough for a round trip over any
/// satellite, a lost packet and a second loss.
const LINGER_TIMEOUT: Duration = Duration::from_secs(15);
