//! The side that types.

use super::script::{Key, Rhythm, Script};
use super::{Mode, TypeSpec};
use crate::delays::Delays;
use crate::outbox::Outbox;
use crate::progress::Stall;
use crate::quantity;
use crate::report::{App, Report, Series};
use bentpipe_net::socket::{Connection, Program, Received, SocketError, SocketId, SocketOption, Sockets};
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Types the script, one key after the other whether or not echoes come; after Enter it waits for what the line caused.
pub(super) struct Typist {
    spec: TypeSpec,
    server: SocketAddr,
    script: Script,
    rhythm: Rhythm,
    socket: Option<SocketId>,
    started: Option<Instant>,
    is_open: bool,
    outbox: Outbox,
    /// Keys typed.
    typed: u64,
    /// When the next key is typed; `None`: a line's answer is awaited, or nothing is left.
    next: Option<Instant>,
    /// A line in the making, in line mode.
    line: Vec<u8>,
    /// Keys whose echo is awaited, with the time at which they were typed.
    awaited: VecDeque<(Key, Instant)>,
    /// Bytes of the first one's echo that came.
    echoed_bytes: usize,
    /// When Enter was typed, and which line and byte of its output comes next.
    answer: Option<(Instant, u64, u64)>,
    lines: u64,
    echoes: Vec<(Instant, Duration)>,
    line_times: Vec<Duration>,
    wrong: u64,
    /// Segments before the first key, and after the last answer.
    segments: [Option<u64>; 2],
    stall: Option<Stall>,
    finished: bool,
    end: Option<(Instant, Result<(), String>)>,
}

impl Typist {
    pub fn new(spec: TypeSpec, server: SocketAddr, seed: u64) -> Typist {
        Typist {
            script: spec.script(seed),
            rhythm: Rhythm::new(spec.interval, spec.think, seed),
            spec,
            server,
            socket: None,
            started: None,
            is_open: false,
            outbox: Outbox::default(),
            typed: 0,
            next: None,
            line: Vec::new(),
            awaited: VecDeque::new(),
            echoed_bytes: 0,
            answer: None,
            lines: 0,
            echoes: Vec::new(),
            line_times: Vec::new(),
            wrong: 0,
            segments: [None; 2],
            stall: None,
            finished: false,
            end: None,
        }
    }

    /// `true`: over.
    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets) -> Result<bool, String> {
        self.started.get_or_insert(now);
        let timeout = self.spec.timeout;
        self.stall.get_or_insert_with(|| Stall::new(timeout, now));
        let refused = |error| format!("cannot connect to {}: {error}", self.server);
        let socket = match self.socket {
            Some(socket) => socket,
            None => *self.socket.insert(sockets.connect(self.server).map_err(refused)?),
        };
        if !self.is_open {
            if sockets.connection(socket).map_err(refused)? == Connection::Opening {
                return self.waiting(now);
            }
            self.is_open = true;
            if !self.spec.nagle {
                sockets.set_option(socket, SocketOption::NoDelay).map_err(|error| self.ended(error))?;
            }
            self.segments[0] = segments(sockets, socket);
            self.next = Some(now + self.rhythm.think());
        }
        self.type_keys(now);
        self.outbox.flush(sockets, socket).map_err(|error| self.ended(error))?;
        let over = self.receive(now, sockets, socket)?;
        if self.is_answered() && !self.finished {
            self.segments[1] = segments(sockets, socket);
            sockets.finish(socket);
            self.finished = true;
        }
        if over { Ok(true) } else { self.waiting(now) }
    }

    fn waiting(&self, now: Instant) -> Result<bool, String> {
        match &self.stall {
            Some(stall) if self.next.is_none() && stall.expired(now) => {
                Err(format!("gave up after {} without progress: {}", stall.timeout(), self.so_far()))
            }
            _ => Ok(false),
        }
    }

    fn so_far(&self) -> String {
        format!("{} of {} keys typed, {} not echoed", self.typed, self.script.count(), self.awaited.len())
    }

    fn ended(&self, error: SocketError) -> String {
        format!("connection ended: {error}; {}", self.so_far())
    }

    /// Types what is due.
    fn type_keys(&mut self, now: Instant) {
        while let Some(due) = self.next.filter(|due| *due <= now) {
            let key = self.script.key(self.typed);
            self.typed += 1;
            match self.spec.mode {
                Mode::Character => {
                    key.put(&mut self.line);
                    self.outbox.push(&self.line);
                    self.line.clear();
                    self.awaited.push_back((key, now));
                }
                Mode::Line => {
                    // What the user sees at once is this program's own.
                    self.echoes.push((due, now.since(due)));
                    key.put(&mut self.line);
                    if key == Key::Enter {
                        self.outbox.push(&self.line);
                        self.line.clear();
                    }
                }
            }
            self.next = match key {
                Key::Character(_) => Some(due + self.rhythm.interval()),
                Key::Enter => {
                    self.answer = Some((now, self.lines, 0));
                    self.lines += 1;
                    None
                }
            };
            self.end_of_answer(now);
            if let Some(stall) = &mut self.stall {
                stall.progress(now);
            }
        }
    }

    /// `true`: the server has ended, after everything.
    fn receive(&mut self, now: Instant, sockets: &mut dyn Sockets, socket: SocketId) -> Result<bool, String> {
        let mut buffer = [0; 4096];
        loop {
            match sockets.receive(socket, &mut buffer) {
                Ok(Received::Bytes(bytes)) => {
                    buffer[..bytes].iter().for_each(|byte| self.take(*byte, now));
                    if let Some(stall) = &mut self.stall {
                        stall.progress(now);
                    }
                    // An answer may be what the next line waited for.
                    self.type_keys(now);
                    self.outbox.flush(sockets, socket).map_err(|error| self.ended(error))?;
                }
                Ok(Received::Nothing) => return Ok(false),
                Ok(Received::End) if self.finished => return Ok(true),
                Ok(Received::End) => return Err(format!("the server ended the session: {}", self.so_far())),
                // Everything was answered; how the connection ends does not matter any more.
                Err(_) if self.finished => return Ok(true),
                Err(error) => return Err(self.ended(error)),
            }
        }
    }

    /// A byte from the server: of an echo, or of a line's output.
    fn take(&mut self, byte: u8, now: Instant) {
        if let Some((key, typed)) = self.awaited.front().copied() {
            self.wrong += u64::from(key.byte(self.echoed_bytes) != byte);
            self.echoed_bytes += 1;
            if self.echoed_bytes == key.bytes() {
                self.echoed_bytes = 0;
                self.awaited.pop_front();
                self.echoes.push((typed, now.since(typed)));
            }
        } else if let Some((_, line, at)) = &mut self.answer
            && *at < self.spec.output
        {
            self.wrong += u64::from(self.script.output(*line, *at) != byte);
            *at += 1;
        } else {
            self.wrong += 1;
        }
        self.end_of_answer(now);
    }

    /// The last line's echo and output are there: the next one follows after a while.
    fn end_of_answer(&mut self, now: Instant) {
        if self.awaited.is_empty()
            && let Some((typed, _, _)) = self.answer.take_if(|(_, _, at)| *at == self.spec.output)
        {
            if self.spec.mode == Mode::Character || self.spec.output > 0 {
                self.line_times.push(now.since(typed));
            }
            if self.typed < self.script.count() {
                self.next = Some(now + self.rhythm.think());
            }
        }
    }

    /// Everything was typed and answered.
    fn is_answered(&self) -> bool {
        self.typed == self.script.count() && self.awaited.is_empty() && self.answer.is_none() && self.outbox.is_empty()
    }
}

/// Segments that a connection's end sent and received; `None`: unknown.
fn segments(sockets: &mut dyn Sockets, socket: SocketId) -> Option<u64> {
    sockets.segments(socket).ok().map(|segments| segments.sent + segments.received)
}

impl Program for Typist {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.end.is_some() {
            return;
        }
        let result = self.work(now, sockets);
        if result == Ok(false) {
            return;
        }
        if let Some(socket) = self.socket {
            if result.is_ok() { sockets.close(socket) } else { sockets.abort(socket) }
        }
        self.end = Some((now, result.map(drop)));
    }

    fn next_wake(&self) -> Option<Instant> {
        match (&self.end, &self.stall) {
            (Some(_), _) => None,
            (None, None) => Some(Instant::ZERO),
            // While a key is still to be typed, nothing is waited for.
            (None, Some(stall)) => Some(self.next.unwrap_or(stall.due())),
        }
    }

    fn is_done(&self) -> bool {
        self.end.is_some()
    }
}

impl App for Typist {
    fn report(&self, _: Instant) -> Report {
        let mut report = Report::of_end(self.end.as_ref());
        report.put(quantity::KEYS, self.typed as f64);
        report.put(quantity::ECHOED, self.echoes.len() as f64);
        report.put(quantity::WRONG_CHARACTERS, self.wrong as f64);
        report.put(quantity::LOST_CHARACTERS, self.awaited.len() as f64);
        report.put(quantity::LINES, self.lines as f64);
        if let Some(echoes) = Delays::of(self.echoes.iter().map(|(_, time)| time.as_secs_f64())) {
            report.put(quantity::ECHO_MEDIAN, echoes.median);
            report.put(quantity::ECHO_P95, echoes.p95);
            report.put(quantity::ECHO_P99, echoes.p99);
            report.put(quantity::ECHO_MAX, echoes.max);
        }
        if let Some(lines) = Delays::of(self.line_times.iter().map(|time| time.as_secs_f64())) {
            report.put(quantity::LINE_MEDIAN, lines.median);
            report.put(quantity::LINE_P95, lines.p95);
        }
        if let [Some(before), Some(after)] = self.segments
            && self.lines > 0
        {
            report.put(quantity::PACKETS_PER_LINE, (after - before) as f64 / self.lines as f64);
        }
        let points = self.echoes.iter().map(|(typed, time)| (*typed, time.as_secs_f64())).collect();
        report.series.push(Series { quantity: quantity::ECHO, points });
        report
    }
}
