//! The side that echoes, and answers lines.

use super::script::{Key, Script};
use super::{Mode, TypeSpec};
use crate::acceptor::Acceptor;
use crate::outbox::Outbox;
use crate::quantity;
use crate::report::{App, Report};
use bentpipe_net::socket::{Program, Received, SocketId, SocketOption, Sockets};
use bentpipe_net::time::Instant;

/// Serves one session: echoes what comes in character mode, and writes a line's output after its end.
pub(super) struct Shell {
    spec: TypeSpec,
    script: Script,
    acceptor: Acceptor,
    socket: Option<SocketId>,
    outbox: Outbox,
    /// The key that comes next, and how many of its bytes came.
    next: (u64, usize),
    lines: u64,
    wrong: u64,
    input_ended: bool,
    end: Option<(Instant, Result<(), String>)>,
}

impl Shell {
    pub fn new(spec: TypeSpec, seed: u64) -> Shell {
        Shell {
            script: spec.script(seed),
            acceptor: Acceptor::new(spec.port),
            spec,
            socket: None,
            outbox: Outbox::default(),
            next: (0, 0),
            lines: 0,
            wrong: 0,
            input_ended: false,
            end: None,
        }
    }

    /// `true`: over.
    fn serve(&mut self, sockets: &mut dyn Sockets, socket: SocketId) -> Result<bool, String> {
        let ended = |error| format!("connection ended: {error}");
        let mut buffer = [0; 4096];
        loop {
            self.outbox.flush(sockets, socket).map_err(ended)?;
            // What the client does not read is not read from it either.
            if self.outbox.len() > OUTBOX_MAX {
                return Ok(false);
            }
            if self.input_ended {
                if self.outbox.is_empty() {
                    sockets.finish(socket);
                }
                return Ok(self.outbox.is_empty());
            }
            match sockets.receive(socket, &mut buffer).map_err(ended)? {
                Received::Bytes(bytes) => self.take(&buffer[..bytes]),
                Received::Nothing => return Ok(false),
                Received::End => self.input_ended = true,
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut echo = Vec::with_capacity(bytes.len());
        for byte in bytes {
            if self.spec.mode == Mode::Character {
                echo.push(*byte);
            }
            let (index, at) = self.next;
            if index >= self.script.count() {
                self.wrong += 1;
                continue;
            }
            let key = self.script.key(index);
            self.wrong += u64::from(key.byte(at) != *byte);
            self.next = if at + 1 == key.bytes() { (index + 1, 0) } else { (index, at + 1) };
            if key == Key::Enter && self.next.1 == 0 {
                echo.extend((0..self.spec.output).map(|at| self.script.output(self.lines, at)));
                self.lines += 1;
            }
        }
        self.outbox.push(&echo);
    }
}

impl Program for Shell {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.end.is_some() {
            return;
        }
        if self.socket.is_none() {
            self.socket = self.acceptor.accept(now, sockets);
            if let Some(socket) = self.socket {
                self.acceptor.close(sockets);
                if !self.spec.nagle {
                    // A connection that is gone already says so at the next call.
                    let _ = sockets.set_option(socket, SocketOption::NoDelay);
                }
            }
        }
        let result = match (self.acceptor.failure(), self.socket) {
            (Some(why), _) => Err(why.to_owned()),
            (None, Some(socket)) => self.serve(sockets, socket),
            (None, None) => return,
        };
        match (result, self.socket) {
            (Ok(false), _) => {}
            (Ok(true), socket) => {
                socket.into_iter().for_each(|socket| sockets.close(socket));
                self.end = Some((now, Ok(())));
            }
            (Err(why), socket) => {
                socket.into_iter().for_each(|socket| sockets.abort(socket));
                self.end = Some((now, Err(why)));
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.end.is_some() { None } else { self.acceptor.next_wake() }
    }

    /// The client knows when everything has been answered.
    fn is_done(&self) -> bool {
        self.end.is_some() || self.acceptor.is_listening() || self.socket.is_some()
    }
}

impl App for Shell {
    fn report(&self, _: Instant) -> Report {
        let mut report = Report::of_end(self.end.as_ref());
        report.put(quantity::WRONG_CHARACTERS, self.wrong as f64);
        report.put(quantity::KEYS, self.next.0 as f64);
        report
    }
}

/// Bytes that may wait for a client that does not read.
const OUTBOX_MAX: usize = 1 << 20;
