//! The page's client: the page first, then its objects over parallel connections.

use super::response::ResponseReader;
use super::{HttpVersion, PageSpec, bytes_of_path, object_path};
use crate::outbox::Outbox;
use crate::progress::{Arrivals, Stall};
use crate::quantity;
use crate::report::{App, Report, Status};
use crate::stream::{CALL_BYTES_MAX, SCRATCH_BYTES, TURN_BYTES_MAX, Turn};
use bentpipe_net::socket::{Connection as State, Program, Received, ReceivedPattern, SocketId, Sockets, count_wrong};
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

pub(super) struct PageClient {
    spec: PageSpec,
    server: SocketAddr,
    seed: u64,
    /// The page, then its objects.
    jobs: Vec<Job>,
    pending: VecDeque<usize>,
    connections: Vec<Connection>,
    connections_opened: u64,
    arrivals: Arrivals,
    started: Option<Instant>,
    html_ended: Option<Instant>,
    object_times: Vec<Duration>,
    objects_failed: u64,
    failure: Option<String>,
    again: Option<Instant>,
    ended: Option<Instant>,
}

/// Something to get.
struct Job {
    path: String,
    /// Its size, when our server's naming states it; then its content is the pattern, too.
    bytes: Option<u64>,
    /// When a connection was chosen or begun for it.
    begun: Option<Instant>,
    /// A kept connection broke under it; it may try once more (RFC 9112 §9.3.1).
    retried: bool,
}

struct Connection {
    socket: SocketId,
    is_open: bool,
    out: Outbox,
    reader: ResponseReader,
    /// The object under way; `None`: kept open for the next.
    job: Option<usize>,
    /// Body bytes of it.
    at: u64,
    /// A response came over it before.
    kept: bool,
    stall: Stall,
}

impl PageClient {
    pub fn new(spec: PageSpec, server: IpAddr, seed: u64) -> Self {
        let objects = spec.objects.iter().enumerate().map(|(index, bytes)| object_path(index, *bytes));
        let jobs = std::iter::once(spec.path.clone())
            .chain(objects)
            .map(|path| Job { bytes: bytes_of_path(&path), path, begun: None, retried: false })
            .collect();
        PageClient {
            server: SocketAddr::new(server, spec.port),
            seed,
            jobs,
            pending: VecDeque::new(),
            connections: Vec::new(),
            connections_opened: 0,
            arrivals: Arrivals::new(Some(spec.sample_every)),
            started: None,
            html_ended: None,
            object_times: Vec::new(),
            objects_failed: 0,
            failure: None,
            again: None,
            ended: None,
            spec,
        }
    }

    /// Gives pending jobs to connections that are free, or new ones.
    fn dispatch(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        while let Some(&job) = self.pending.front() {
            let free = self.connections.iter().position(|connection| connection.job.is_none());
            if free.is_none() && self.connections.len() >= self.spec.connections as usize {
                return;
            }
            self.pending.pop_front();
            self.jobs[job].begun.get_or_insert(now);
            let request = self.request(job);
            if let Some(free) = free {
                self.connections[free].begin(job, &request, now);
                continue;
            }
            self.connections_opened += 1;
            match sockets.connect(self.server) {
                Ok(socket) => {
                    let mut connection = Connection::new(socket, &self.spec, now);
                    connection.begin(job, &request, now);
                    self.connections.push(connection);
                }
                Err(error) => self.fail(job, format!("cannot connect to {}: {error}", self.server)),
            }
        }
    }

    fn request(&self, job: usize) -> String {
        let version = match self.spec.version {
            HttpVersion::Http10 => "1.0",
            HttpVersion::Http11 => "1.1",
        };
        let (path, host) = (&self.jobs[job].path, &self.spec.host);
        format!("GET {path} HTTP/{version}\r\nHost: {host}\r\nUser-Agent: bentpipe\r\nAccept: */*\r\n\r\n")
    }

    /// Works every connection once; whether one became free or was lost.
    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets) -> bool {
        let mut changed = false;
        for mut connection in std::mem::take(&mut self.connections) {
            let outcome = match connection.job {
                Some(job) => connection.work(now, sockets, &self.jobs[job], self.seed, self.server, &mut self.arrivals),
                None => connection.check_kept(sockets),
            };
            match outcome {
                Ok(Turn::Over) => {
                    changed = true;
                    if let Some(job) = connection.job.take() {
                        self.complete(job, now);
                    }
                    if self.spec.version == HttpVersion::Http11 && connection.reader.is_reusable() {
                        connection.kept = true;
                        self.connections.push(connection);
                    } else {
                        sockets.close(connection.socket);
                    }
                }
                Ok(turn) => {
                    if turn == Turn::Again {
                        self.again = Some(now);
                    }
                    self.connections.push(connection);
                }
                Err(error) => {
                    changed = true;
                    sockets.abort(connection.socket);
                    if let Some(job) = connection.job {
                        self.lose(job, &connection, error);
                    }
                }
            }
        }
        changed
    }

    fn complete(&mut self, job: usize, now: Instant) {
        if job == HTML {
            self.html_ended = Some(now);
            self.pending = (HTML + 1..self.jobs.len()).collect();
        } else if let Some(begun) = self.jobs[job].begun {
            self.object_times.push(now.since(begun));
        }
    }

    fn lose(&mut self, job: usize, connection: &Connection, error: String) {
        if connection.kept && !connection.reader.has_begun() && !self.jobs[job].retried {
            self.jobs[job].retried = true;
            self.pending.push_front(job);
        } else {
            self.fail(job, error);
        }
    }

    fn fail(&mut self, job: usize, error: String) {
        if job != HTML {
            self.objects_failed += 1;
        }
        let path = &self.jobs[job].path;
        self.failure.get_or_insert_with(|| format!("{path}: {error}"));
    }
}

impl Program for PageClient {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.ended.is_some() {
            return;
        }
        if self.started.is_none() {
            self.started = Some(now);
            self.arrivals.start(now);
            self.pending.push_back(HTML);
        }
        self.again = None;
        self.dispatch(now, sockets);
        while self.work(now, sockets) {
            self.dispatch(now, sockets);
        }
        if self.pending.is_empty() && self.connections.iter().all(|connection| connection.job.is_none()) {
            for connection in self.connections.drain(..) {
                sockets.close(connection.socket);
            }
            self.ended = Some(now);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.ended.is_some() {
            return None;
        }
        if self.started.is_none() {
            return Some(Instant::ZERO);
        }
        let busy = self.connections.iter().filter(|connection| connection.job.is_some());
        busy.map(|connection| connection.stall.due()).chain(self.again).min()
    }

    fn is_done(&self) -> bool {
        self.ended.is_some()
    }
}

impl App for PageClient {
    fn report(&self, now: Instant) -> Report {
        let status = match (&self.failure, self.ended) {
            (_, None) => Status::Running,
            (Some(error), _) => Status::Failed(error.clone()),
            (None, Some(_)) => Status::Done,
        };
        let mut report = Report::new(status, self.ended);
        report.moments.started = self.started;
        self.arrivals.fill(self.ended.unwrap_or(now), &mut report);
        report.derive();
        report.put(quantity::OBJECTS_DONE, self.object_times.len() as f64);
        report.put(quantity::OBJECTS_FAILED, self.objects_failed as f64);
        report.put(quantity::CONNECTIONS_OPENED, self.connections_opened as f64);
        if let (Some(started), Some(ended)) = (self.started, self.html_ended) {
            report.put(quantity::HTML_TIME, ended.since(started).as_secs_f64());
        }
        let times: Vec<f64> = self.object_times.iter().map(|time| time.as_secs_f64()).collect();
        if let Some(longest) = times.iter().copied().max_by(f64::total_cmp) {
            report.put(quantity::OBJECT_TIME_MEAN, times.iter().sum::<f64>() / times.len() as f64);
            report.put(quantity::OBJECT_TIME_MAX, longest);
        }
        report
    }
}

impl Connection {
    fn new(socket: SocketId, spec: &PageSpec, now: Instant) -> Self {
        Connection {
            socket,
            is_open: false,
            out: Outbox::default(),
            reader: ResponseReader::new(),
            job: None,
            at: 0,
            kept: false,
            stall: Stall::new(spec.timeout, now),
        }
    }

    fn begin(&mut self, job: usize, request: &str, now: Instant) {
        self.job = Some(job);
        self.at = 0;
        self.reader = ResponseReader::new();
        self.out.push(request.as_bytes());
        self.stall.progress(now);
    }

    /// Works until nothing can be done; `Over` when the job is complete.
    fn work(
        &mut self,
        now: Instant,
        sockets: &mut dyn Sockets,
        job: &Job,
        seed: u64,
        server: SocketAddr,
        arrivals: &mut Arrivals,
    ) -> Result<Turn, String> {
        if !self.is_open {
            match sockets.connection(self.socket) {
                Ok(State::Open) => {
                    self.is_open = true;
                    self.stall.progress(now);
                }
                Ok(State::Opening) if self.stall.expired(now) => return Err(self.no_progress(job)),
                Ok(State::Opening) => return Ok(Turn::Waiting),
                Err(error) => return Err(format!("cannot connect to {server}: {error}")),
            }
        }
        if self.out.flush(sockets, self.socket).map_err(|error| self.broken(error))? > 0 {
            self.stall.progress(now);
        }
        let mut moved = 0;
        while moved < TURN_BYTES_MAX {
            let taken = match self.reader.plain_bytes() {
                Some(left) => self.receive_plain(now, sockets, job, seed, left, arrivals)?,
                None => self.receive(now, sockets, job, seed, arrivals)?,
            };
            if self.reader.is_complete() {
                return match job.bytes {
                    Some(bytes) if bytes != self.at => Err(format!("{} bytes came instead of {bytes}", self.at)),
                    _ => Ok(Turn::Over),
                };
            }
            if taken == 0 {
                return if self.stall.expired(now) { Err(self.no_progress(job)) } else { Ok(Turn::Waiting) };
            }
            self.stall.progress(now);
            moved += taken;
        }
        Ok(Turn::Again)
    }

    /// Receives body bytes that need no decoding; how many, 0 when it would block.
    fn receive_plain(
        &mut self,
        now: Instant,
        sockets: &mut dyn Sockets,
        job: &Job,
        seed: u64,
        left: u64,
        arrivals: &mut Arrivals,
    ) -> Result<u64, String> {
        let most = left.min(CALL_BYTES_MAX);
        let received = sockets.receive_pattern(self.socket, seed, self.at, most);
        match received.map_err(|error| self.broken(error))? {
            ReceivedPattern::Bytes { bytes, wrong, .. } => {
                arrivals.add(now, bytes, if job.bytes.is_some() { wrong } else { 0 });
                self.at += bytes;
                self.reader.took_plain(bytes);
                Ok(bytes)
            }
            ReceivedPattern::Nothing => Ok(0),
            ReceivedPattern::End => self.reader.end().map(|()| 0),
        }
    }

    /// Receives a head or chunks; how many bytes, 0 when it would block.
    fn receive(
        &mut self,
        now: Instant,
        sockets: &mut dyn Sockets,
        job: &Job,
        seed: u64,
        arrivals: &mut Arrivals,
    ) -> Result<u64, String> {
        let mut buffer = [0; SCRATCH_BYTES];
        match sockets.receive(self.socket, &mut buffer).map_err(|error| self.broken(error))? {
            Received::Bytes(n) => {
                let at = &mut self.at;
                self.reader.push(&buffer[..n.min(SCRATCH_BYTES)], &mut |body| {
                    let wrong = if job.bytes.is_some() { count_wrong(seed, *at, body) } else { 0 };
                    arrivals.add(now, body.len() as u64, wrong);
                    *at += body.len() as u64;
                })?;
                Ok(n as u64)
            }
            Received::Nothing => Ok(0),
            Received::End => self.reader.end().map(|()| 0),
        }
    }

    /// Looks at a connection kept for later: an error when the server has ended it, or speaks without being asked.
    fn check_kept(&mut self, sockets: &mut dyn Sockets) -> Result<Turn, String> {
        match sockets.receive(self.socket, &mut [0; 64]) {
            Ok(Received::Nothing) => Ok(Turn::Waiting),
            _ => Err("ended".to_owned()),
        }
    }

    fn broken(&self, error: impl std::fmt::Display) -> String {
        format!("connection ended after {} bytes: {error}", self.at)
    }

    fn no_progress(&self, job: &Job) -> String {
        let of = job.bytes.map(|bytes| format!(" of {bytes}")).unwrap_or_default();
        format!("no progress for {} after {}{of} bytes", self.stall.timeout(), self.at)
    }
}

/// The first job.
const HTML: usize = 0;
