//! One TCP connection that carries so many bytes, or as many as it can for so long (ttcp, tcptgen).
//!
//! The data is the seed's pattern and is verified where it is received. The sender ends with FIN; the receiver answers
//! it with its own, so an uploading client knows that everything arrived.
//!
//! Measured where the data is received, from the client's call to connect:
//! - `completion_time`: until the last byte arrived. `goodput`: bytes × 8 ÷ that time, for a cut transfer too.
//! - `goodput_steady`: without the start. The mark is the first arrival with which half of the bytes are in
//!   ([`Amount::Bytes`]), or the first one half of the time or more after the first byte ([`Amount::Time`]); this is
//!   what arrived after the mark, × 8, ÷ the time from the mark to the last byte. Absent when nothing came later.
//! - `first_byte`, `connect_time`, `bytes`, `wrong_bytes`; series `received` and `goodput`.

use crate::acceptor::Acceptor;
use crate::client_server::{self, ClientServer, ClientServerWorkload, Varied};
use crate::kind::{Keys, Kind, Party, Shown, Transfer, Workload};
use crate::progress::{Arrivals, check_port, check_sample_every, check_timeout};
use crate::quantity::{self, Quantity};
use crate::report::{self, App, Receiver, Report, Status};
use crate::stream::{Turn, discard, receive_range, send_range};
use crate::{Direction, SpecError};
use bentpipe_net::content::Content;
use bentpipe_net::distribution::Drawn;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::seed::Seed;
use bentpipe_net::socket::{Connection, Program, SocketError, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::DataSize;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The kind of workload `bulk`.
#[derive(Debug)]
pub struct Bulk;

/// The amount to transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// This many bytes.
    Bytes(u64),
    /// As many bytes as the sender gets rid of in this time, counted from when its connection is open.
    Time(Duration),
}

/// The transfer: direction, amount, port.
#[derive(Clone, Debug)]
pub struct BulkSpec {
    /// Which way.
    pub direction: Direction,
    /// The amount.
    pub amount: Amount,
    /// The server's port.
    pub port: u16,
    /// The interval of the series.
    pub sample_every: Duration,
    /// The client gives up this long after it asked for the connection.
    pub timeout: Option<Duration>,
}

impl Default for BulkSpec {
    fn default() -> Self {
        BulkSpec {
            direction: Direction::Download,
            amount: Amount::Bytes(1 << 20),
            port: 5001,
            sample_every: Duration::from_millis(500),
            timeout: None,
        }
    }
}

impl BulkSpec {
    /// Whether it can be run.
    pub fn check(&self) -> Result<(), SpecError> {
        match self.amount {
            Amount::Bytes(bytes) => SpecError::unless(bytes > 0, "amount", "is no bytes; allowed: 1 B or more")?,
            Amount::Time(time) => {
                SpecError::unless(time > Duration::ZERO, "amount", "is no time; allowed: longer than zero")?;
            }
        }
        check_port(self.port)?;
        check_sample_every(self.sample_every)?;
        self.timeout.map_or(Ok(()), check_timeout)
    }
}

impl ClientServer for BulkSpec {
    fn port(&self) -> u16 {
        self.port
    }

    fn served_by(&self, server: &Party) -> BulkSpec {
        BulkSpec { port: server.ports[0], ..self.clone() }
    }

    fn client(&self, server: IpAddr, seed: u64) -> Box<dyn App> {
        Box::new(BulkClient {
            server: SocketAddr::new(server, self.port),
            timeout: self.timeout,
            socket: None,
            started: None,
            connected: None,
            half: Half::new(self, seed, Direction::Upload),
            again: None,
            end: None,
        })
    }

    fn server(&self, seed: u64) -> Box<dyn App> {
        Box::new(BulkServer {
            acceptor: Acceptor::new(self.port),
            socket: None,
            half: Half::new(self, seed, Direction::Download),
            again: None,
            end: None,
        })
    }

    fn combine(&self, client: Report, server: Report) -> Report {
        let receiver = match self.direction {
            Direction::Download => Receiver::Client,
            Direction::Upload => Receiver::Server,
        };
        report::combine(client, server, receiver)
    }

    fn direction(&self) -> Direction {
        self.direction
    }

    fn transfer(&self) -> Option<Transfer> {
        match self.amount {
            Amount::Bytes(bytes) => Some(Transfer { direction: self.direction, bytes, connections: 1 }),
            Amount::Time(_) => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkKeys {
    direction: Option<Direction>,
    bytes: Option<Drawn<DataSize>>,
    seconds: Option<Duration>,
    content: Option<Content>,
    port: Option<u16>,
    timeout: Option<Duration>,
}

impl Kind for Bulk {
    fn name(&self) -> &'static str {
        "bulk"
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[
            quantity::CONNECT_TIME,
            quantity::BYTES,
            quantity::WRONG_BYTES,
            quantity::GOODPUT_STEADY,
            quantity::FIRST_BYTE,
            quantity::COMPLETION_TIME,
            quantity::GOODPUT,
        ]
    }

    fn shown(&self) -> Shown {
        client_server::SHOWN
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let keys: BulkKeys = keys.read()?;
        let default = BulkSpec::default();
        let spec = BulkSpec {
            direction: keys.direction.unwrap_or(default.direction),
            amount: match (keys.bytes, keys.seconds) {
                (Some(size), None) => Amount::Bytes(size.fixed().map_or(BYTES_LEAST, |size| size.bytes)),
                (None, Some(time)) => Amount::Time(time),
                _ => return Err(KeyProblem::new("bytes", "allowed: either bytes or seconds (a time)")),
            },
            port: keys.port.unwrap_or(default.port),
            timeout: keys.timeout.or(default.timeout),
            ..default
        };
        spec.check()?;
        let (content, port) = (keys.content.unwrap_or_default(), keys.port);
        let Some(size @ Drawn::Random { .. }) = keys.bytes else {
            return Ok(Arc::new(ClientServerWorkload { spec, content, port }));
        };
        let draw = move |spec: &BulkSpec, seed: Seed| {
            let size = size.draw(|| seed.stream("bytes"));
            BulkSpec { amount: Amount::Bytes(size.bytes.max(BYTES_LEAST)), ..spec.clone() }
        };
        Ok(Arc::new(ClientServerWorkload { spec: Varied::new(spec, draw), content, port }))
    }
}

/// A transfer has something to carry, also where a draw gives nothing.
const BYTES_LEAST: u64 = 1;

/// This side's part: it sends or receives the data.
enum Half {
    Send(Sending),
    Receive(Receiving),
}

struct Sending {
    pattern: u64,
    amount: Amount,
    sent: u64,
    /// When a transfer limited by time ends; set by the first step.
    until: Option<Instant>,
    finished: bool,
    /// True if the receiver's own end must follow; a downloading client says itself whether all arrived.
    confirm: bool,
}

struct Receiving {
    pattern: u64,
    amount: Amount,
    at: u64,
    arrivals: Arrivals,
    /// Where `goodput_steady` begins: time, bytes until then.
    mark: Option<(Instant, u64)>,
}

/// The end of a side: its time and result.
type End = (Instant, Result<(), String>);

impl Half {
    /// `sends_when`: in which direction this side is the sender.
    fn new(spec: &BulkSpec, pattern: u64, sends_when: Direction) -> Half {
        if spec.direction == sends_when {
            let confirm = sends_when == Direction::Upload;
            Half::Send(Sending { pattern, amount: spec.amount, sent: 0, until: None, finished: false, confirm })
        } else {
            let arrivals = Arrivals::new(Some(spec.sample_every));
            Half::Receive(Receiving { pattern, amount: spec.amount, at: 0, arrivals, mark: None })
        }
    }

    /// The series begin.
    fn start(&mut self, now: Instant) {
        if let Half::Receive(receiving) = self {
            receiving.arrivals.start(now);
        }
    }

    /// Works the open connection; `Over` when both directions have ended well.
    fn step(&mut self, now: Instant, sockets: &mut dyn Sockets, socket: SocketId) -> Result<Turn, String> {
        match self {
            Half::Send(sending) => sending.step(now, sockets, socket),
            Half::Receive(receiving) => receiving.step(now, sockets, socket),
        }
    }

    /// `N of M bytes`, or `N bytes` when limited by time; at the sender those that its host took.
    fn so_far(&self) -> String {
        let (bytes, amount, sent) = match self {
            Half::Send(sending) => (sending.sent, sending.amount, " sent"),
            Half::Receive(receiving) => (receiving.arrivals.bytes, receiving.amount, ""),
        };
        match amount {
            Amount::Bytes(all) => format!("{bytes} of {all} bytes{sent}"),
            Amount::Time(_) => format!("{bytes} bytes{sent}"),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self {
            Half::Send(Sending { until, finished: false, .. }) => *until,
            _ => None,
        }
    }

    fn fill(&self, until: Instant, report: &mut Report) {
        if let Half::Receive(receiving) = self {
            receiving.fill(until, report);
        }
    }
}

impl Sending {
    fn step(&mut self, now: Instant, sockets: &mut dyn Sockets, socket: SocketId) -> Result<Turn, String> {
        if !self.finished {
            let end = match self.amount {
                Amount::Bytes(bytes) => bytes,
                Amount::Time(time) if *self.until.get_or_insert(now + time) <= now => self.sent,
                Amount::Time(_) => u64::MAX,
            };
            match send_range(sockets, socket, self.pattern, &mut self.sent, end) {
                Ok(Turn::Over) => {
                    sockets.finish(socket);
                    self.finished = true;
                }
                Ok(turn) => return Ok(turn),
                Err(error) => return Err(format!("connection ended after sending {} bytes: {error}", self.sent)),
            }
        }
        match discard(sockets, socket) {
            Ok((turn, _)) => Ok(turn),
            Err(_) if !self.confirm => Ok(Turn::Over),
            Err(error) => Err(format!("connection ended before the receiver confirmed its end: {error}")),
        }
    }
}

impl Receiving {
    fn step(&mut self, now: Instant, sockets: &mut dyn Sockets, socket: SocketId) -> Result<Turn, String> {
        let turn = receive_range(now, sockets, socket, self.pattern, &mut self.at, &mut self.arrivals);
        self.set_mark();
        let bytes = self.arrivals.bytes;
        match (turn, self.amount) {
            (Ok(Turn::Over), Amount::Bytes(all)) if bytes < all => {
                Err(format!("connection ended after {bytes} of {all} bytes"))
            }
            (_, Amount::Bytes(all)) if bytes > all => Err(format!("peer sent {bytes} bytes instead of {all}")),
            // Everything came; how the connection ends does not matter any more.
            (Err(_), Amount::Bytes(all)) if bytes == all => Ok(Turn::Over),
            (Err(error), Amount::Bytes(all)) => Err(format!("connection ended after {bytes} of {all} bytes: {error}")),
            (Err(error), Amount::Time(_)) => Err(format!("connection ended after {bytes} bytes: {error}")),
            (Ok(turn), _) => Ok(turn),
        }
    }

    fn set_mark(&mut self) {
        let (Some(first), Some(last)) = (self.arrivals.first, self.arrivals.last) else { return };
        let reached = match self.amount {
            Amount::Bytes(all) => self.arrivals.bytes >= all.div_ceil(2),
            Amount::Time(time) => last >= first + Duration::from_nanos(time.ns / 2),
        };
        if reached && self.mark.is_none() {
            self.mark = Some((last, self.arrivals.bytes));
        }
    }

    fn fill(&self, until: Instant, report: &mut Report) {
        self.arrivals.fill(until, report);
        if let (Some((mark, bytes)), Some(last)) = (self.mark, self.arrivals.last)
            && last > mark
        {
            let rate = (self.arrivals.bytes - bytes) as f64 * 8.0 / last.since(mark).as_secs_f64();
            report.put(quantity::GOODPUT_STEADY, rate);
        }
    }
}

struct BulkClient {
    server: SocketAddr,
    timeout: Option<Duration>,
    socket: Option<SocketId>,
    started: Option<Instant>,
    connected: Option<Instant>,
    half: Half,
    /// When to go on with a turn that was cut.
    again: Option<Instant>,
    end: Option<End>,
}

struct BulkServer {
    acceptor: Acceptor,
    socket: Option<SocketId>,
    half: Half,
    /// When to go on with a turn that was cut.
    again: Option<Instant>,
    end: Option<End>,
}

impl BulkClient {
    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets) -> Result<Turn, String> {
        self.started.get_or_insert(now);
        self.half.start(now);
        let socket = match self.socket {
            Some(socket) => socket,
            None => *self.socket.insert(sockets.connect(self.server).map_err(|e| self.cannot_connect(e))?),
        };
        if self.connected.is_none() {
            match sockets.connection(socket) {
                Ok(Connection::Open) => self.connected = Some(now),
                Ok(Connection::Opening) => {}
                Err(error) => return Err(self.cannot_connect(error)),
            }
        }
        let turn = match self.connected {
            Some(_) => self.half.step(now, sockets, socket)?,
            None => Turn::Waiting,
        };
        match self.timeout {
            Some(timeout) if turn != Turn::Over && self.deadline().is_some_and(|deadline| deadline <= now) => {
                Err(format!("gave up after {timeout} with {}", self.half.so_far()))
            }
            _ => Ok(turn),
        }
    }

    fn cannot_connect(&self, error: SocketError) -> String {
        format!("cannot connect to {}: {error}", self.server)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.started? + self.timeout?)
    }
}

impl Program for BulkClient {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.end.is_some() {
            return;
        }
        let outcome = self.work(now, sockets);
        self.end = ended(now, sockets, self.socket, outcome, &mut self.again);
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        if self.started.is_none() {
            return Some(Instant::ZERO);
        }
        [self.again, self.half.next_wake(), self.deadline()].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.end.is_some()
    }
}

impl App for BulkClient {
    fn report(&self, now: Instant) -> Report {
        let (status, until) = status_of(&self.end, now);
        let mut report = Report::new(status, self.end.as_ref().map(|(at, _)| *at));
        report.moments.started = self.started;
        if let (Some(started), Some(connected)) = (self.started, self.connected) {
            report.put(quantity::CONNECT_TIME, connected.since(started).as_secs_f64());
        }
        self.half.fill(until, &mut report);
        report.derive();
        report
    }
}

impl Program for BulkServer {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.end.is_some() {
            return;
        }
        if self.socket.is_none() {
            self.socket = self.acceptor.accept(now, sockets);
        }
        if let Some(error) = self.acceptor.failure() {
            self.end = Some((now, Err(error.to_owned())));
        } else if let Some(socket) = self.socket {
            self.acceptor.close(sockets);
            self.half.start(now);
            let outcome = self.half.step(now, sockets, socket);
            self.end = ended(now, sockets, self.socket, outcome, &mut self.again);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        [self.again, self.half.next_wake(), self.acceptor.next_wake()].into_iter().flatten().min()
    }

    /// Downloading, the client knows when all has arrived; uploading, the server must have seen the end of the data.
    fn is_done(&self) -> bool {
        self.end.is_some()
            || (matches!(self.half, Half::Send(_)) && (self.acceptor.is_listening() || self.socket.is_some()))
    }
}

impl App for BulkServer {
    fn report(&self, now: Instant) -> Report {
        let (status, until) = status_of(&self.end, now);
        let mut report = Report::new(status, self.end.as_ref().map(|(at, _)| *at));
        self.half.fill(until, &mut report);
        report
    }
}

/// Takes note of how a poll went; closes the connection at the end.
fn ended(
    now: Instant,
    sockets: &mut dyn Sockets,
    socket: Option<SocketId>,
    outcome: Result<Turn, String>,
    again: &mut Option<Instant>,
) -> Option<End> {
    *again = None;
    match (outcome, socket) {
        (Ok(Turn::Waiting), _) => None,
        (Ok(Turn::Again), _) => {
            *again = Some(now);
            None
        }
        (Ok(Turn::Over), socket) => {
            socket.into_iter().for_each(|socket| sockets.close(socket));
            Some((now, Ok(())))
        }
        (Err(error), socket) => {
            socket.into_iter().for_each(|socket| sockets.abort(socket));
            Some((now, Err(error)))
        }
    }
}

/// The status, and until when the series go.
fn status_of(end: &Option<End>, now: Instant) -> (Status, Instant) {
    match end {
        None => (Status::Running, now),
        Some((at, Ok(()))) => (Status::Done, *at),
        Some((at, Err(error))) => (Status::Failed(error.clone()), *at),
    }
}
