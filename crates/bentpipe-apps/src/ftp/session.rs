//! One session of the FTP server: its control connection and the data connection it may have.

use super::command::Command;
use super::{FILE_BYTES_MAX, bytes_of_name};
use crate::line::LineBuffer;
use crate::outbox::Outbox;
use crate::progress::{Arrivals, Stall};
use crate::stream::{Turn, receive_range, send_range};
use bentpipe_net::socket::{Received, SocketError, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use std::net::IpAddr;

pub(super) struct Session {
    control: SocketId,
    peer: IpAddr,
    lines: LineBuffer,
    out: Outbox,
    named: bool,
    logged_in: bool,
    /// Where the next transfer begins (REST).
    restart: u64,
    passive: Option<Passive>,
    transfer: Option<Transfer>,
    /// The client has finished its direction of the control connection.
    input_ended: bool,
    /// End once the outbox is empty.
    quitting: bool,
    idle: Stall,
}

/// State that all sessions of a server share.
pub(super) struct Shared {
    pub seed: u64,
    pub arrivals: Arrivals,
    /// Data listeners take the ports above Linux's ephemeral range (32768–60999) in turn, so that nothing else has
    /// them and a run's ports are the same every time.
    next_port: u16,
}

/// A listener that waits for a data connection.
struct Passive {
    listener: SocketId,
    expires: Instant,
}

struct Transfer {
    kind: Kind,
    data: Option<SocketId>,
    at: u64,
    stall: Stall,
}

enum Kind {
    /// Pattern up to this offset.
    Retrieve(u64),
    /// To be verified or, when the name states no size, not.
    Store { verify: bool },
    /// An empty listing.
    List,
}

impl Shared {
    pub fn new(seed: u64, arrivals: Arrivals) -> Self {
        Shared { seed, arrivals, next_port: DATA_PORT_MIN }
    }

    fn listen(&mut self, sockets: &mut dyn Sockets) -> Result<(SocketId, u16), SocketError> {
        let mut attempts = 0;
        loop {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(DATA_PORT_MIN);
            attempts += 1;
            match sockets.listen(port) {
                Ok(listener) => return Ok((listener, port)),
                Err(SocketError::AddressInUse) if attempts < DATA_PORT_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Session {
    pub fn new(control: SocketId, peer: IpAddr, now: Instant) -> Self {
        let mut session = Session {
            control,
            peer: peer.to_canonical(),
            lines: LineBuffer::new(COMMAND_LINE_MAX),
            out: Outbox::default(),
            named: false,
            logged_in: false,
            restart: 0,
            passive: None,
            transfer: None,
            input_ended: false,
            quitting: false,
            idle: Stall::new(IDLE_TIMEOUT, now),
        };
        session.reply("220 bentpipe: N.bin is N bytes.");
        session
    }

    /// Works until nothing can be done; `Over` when the session has ended and its sockets are closed.
    pub fn step(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> Turn {
        let turn = self.work(now, sockets, shared).unwrap_or(Turn::Over);
        if turn == Turn::Over {
            self.close(sockets);
        }
        turn
    }

    pub fn next_wake(&self) -> Instant {
        match (&self.transfer, &self.passive) {
            (Some(transfer), _) => transfer.stall.due(),
            (None, Some(passive)) => self.idle.due().min(passive.expires),
            (None, None) => self.idle.due(),
        }
    }

    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> Result<Turn, SocketError> {
        let mut again = false;
        loop {
            let mut moved = self.out.flush(sockets, self.control)? > 0;
            moved |= self.obey(now, sockets, shared);
            moved |= self.read(now, sockets)?;
            match self.work_transfer(now, sockets, shared) {
                Some(Turn::Over) => moved = true,
                Some(Turn::Again) => again = true,
                Some(Turn::Waiting) | None => {}
            }
            if self.out.is_empty() && (self.quitting || (self.input_ended && !moved && self.transfer.is_none())) {
                return Ok(Turn::Over);
            }
            if !moved {
                break;
            }
        }
        if self.passive.as_ref().is_some_and(|p| p.expires <= now) && self.transfer.is_none() {
            self.close_passive(sockets);
        }
        if self.idle.expired(now) && self.transfer.is_none() {
            self.reply("421 Idle for too long.");
            self.out.flush(sockets, self.control)?;
            return Ok(Turn::Over);
        }
        Ok(if again { Turn::Again } else { Turn::Waiting })
    }

    fn read(&mut self, now: Instant, sockets: &mut dyn Sockets) -> Result<bool, SocketError> {
        let mut moved = false;
        let mut buffer = [0; COMMAND_LINE_MAX];
        while !self.input_ended && self.lines.len() < LINES_BYTES_MAX {
            match sockets.receive(self.control, &mut buffer)? {
                Received::Bytes(n) => {
                    self.lines.push(&buffer[..n.min(COMMAND_LINE_MAX)]);
                    self.idle.progress(now);
                    moved = true;
                }
                Received::Nothing => break,
                Received::End => self.input_ended = true,
            }
        }
        Ok(moved)
    }

    /// Obeys the commands that have come, as long as the client takes the replies. While data moves only ABOR is
    /// obeyed; whatever else came waits in line.
    fn obey(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> bool {
        let mut moved = false;
        while !self.quitting && self.out.len() < REPLIES_BYTES_MAX {
            let is_abort = |line: &[u8]| Command::parse(line) == Command::Abor;
            if self.transfer.is_some() && !self.lines.peek().is_some_and(is_abort) {
                break;
            }
            let Some(line) = self.lines.next_line() else { break };
            moved = true;
            match line.map(|line| Command::parse(&line)) {
                Err(_) => self.reply("500 Line too long."),
                Ok(command) if command.needs_login() && !self.logged_in => self.reply("530 Log in with USER and PASS."),
                Ok(command) => self.obey_command(command, now, sockets, shared),
            }
        }
        moved
    }

    fn obey_command(&mut self, command: Command, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) {
        let restart = std::mem::take(&mut self.restart);
        match command {
            Command::User => {
                self.named = true;
                self.logged_in = false;
                self.reply("331 Any password will do.");
            }
            Command::Pass if !self.named => self.reply("503 USER comes first."),
            Command::Pass => {
                self.logged_in = true;
                self.reply("230 Logged in.");
            }
            Command::Acct | Command::Allo => self.reply("202 Not needed here."),
            Command::Syst => self.reply("215 UNIX Type: L8"),
            Command::Feat => self.reply(FEATURES),
            Command::Type(kind) => self.reply_if(is_known(&kind, TYPES), "200 Type set.", "504 Types: A, I, L 8."),
            Command::Mode(mode) => self.reply_if(is_known(&mode, &["S"]), "200 Mode set.", "504 Mode: S."),
            Command::Stru(form) => self.reply_if(is_known(&form, &["F"]), "200 Structure set.", "504 Structure: F."),
            Command::Opts(what) => {
                self.reply_if(is_known(&what, &["UTF8 ON", "UTF8"]), "200 Yes.", "501 Unknown option.")
            }
            Command::Pwd => self.reply("257 \"/\" is the only directory."),
            Command::Cwd(path) => {
                self.reply_if(is_known(&path, &["", "/", ".", "..", "~"]), "250 Here.", "550 There is only /.");
            }
            Command::Cdup => self.reply("250 Here."),
            Command::Noop => self.reply("200 Still here."),
            Command::Stat => self.reply("211 Ready."),
            Command::Help => self.reply("214 RETR N.bin sends N bytes, STOR N.bin verifies and discards them."),
            Command::Size(name) => match bytes_of_name(&name) {
                Some(bytes) => self.reply(&format!("213 {bytes}")),
                None => self.reply(NO_SUCH_FILE),
            },
            Command::Mdtm(name) => {
                self.reply_if(bytes_of_name(&name).is_some(), "213 19700101000000", NO_SUCH_FILE);
            }
            Command::Rest(offset) => match offset.trim().parse::<u64>() {
                Ok(offset) if offset <= FILE_BYTES_MAX => {
                    self.restart = offset;
                    self.reply(&format!("350 The next transfer begins at {offset}."));
                }
                _ => self.reply("501 REST needs an offset in bytes."),
            },
            Command::Pasv => {
                self.open_passive(now, sockets, shared, false);
                self.restart = restart;
            }
            Command::Epsv(argument) => {
                match argument.trim().to_ascii_uppercase().as_str() {
                    "" | "1" | "2" => self.open_passive(now, sockets, shared, true),
                    "ALL" => self.reply("200 EPSV from now on."),
                    _ => self.reply("522 Network protocol not supported, use (1,2)"),
                }
                self.restart = restart;
            }
            Command::Retr(name) => match bytes_of_name(&name) {
                Some(bytes) if restart > bytes => self.reply("554 REST is behind the end of the file."),
                Some(bytes) => {
                    let opening = format!("150 Sending {name} from {restart} ({bytes} bytes).");
                    self.begin(now, Kind::Retrieve(bytes), restart, &opening);
                }
                None => self.reply(NO_SUCH_FILE),
            },
            Command::Stor(name) => {
                let verify = bytes_of_name(&name).is_some();
                self.begin(now, Kind::Store { verify }, restart, "150 Discarding what comes.");
            }
            Command::List => self.begin(now, Kind::List, 0, "150 An empty listing follows."),
            Command::Abor => {
                if let Some(data) = self.transfer.take().and_then(|transfer| transfer.data) {
                    sockets.abort(data);
                    self.reply("426 Transfer aborted.");
                }
                self.close_passive(sockets);
                self.reply("226 Nothing is being transferred.");
            }
            Command::Quit => {
                self.quitting = true;
                self.reply("221 Bye.");
            }
            Command::NotImplemented => {
                self.reply("502 Not implemented; data connections are opened with EPSV or PASV.")
            }
            Command::Unknown => self.reply("500 Unknown command."),
        }
    }

    fn open_passive(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared, extended: bool) {
        self.close_passive(sockets);
        let address = match sockets.local_address(self.control).map(|address| address.ip().to_canonical()) {
            Ok(IpAddr::V4(address)) => Some(address),
            Ok(IpAddr::V6(_)) if extended => None,
            Ok(IpAddr::V6(_)) => return self.reply("425 PASV is for IPv4; use EPSV."),
            Err(_) => return self.reply("425 Cannot open a data connection."),
        };
        let Ok((listener, port)) = shared.listen(sockets) else {
            return self.reply("425 Cannot open a data connection.");
        };
        self.passive = Some(Passive { listener, expires: now + DATA_TIMEOUT });
        match address {
            Some(address) if !extended => {
                let ([a, b, c, d], [high, low]) = (address.octets(), port.to_be_bytes());
                self.reply(&format!("227 Entering Passive Mode ({a},{b},{c},{d},{high},{low})."));
            }
            _ => self.reply(&format!("229 Entering Extended Passive Mode (|||{port}|)")),
        }
    }

    fn begin(&mut self, now: Instant, kind: Kind, at: u64, opening: &str) {
        if self.passive.is_none() {
            return self.reply("425 Use EPSV or PASV first.");
        }
        self.transfer = Some(Transfer { kind, data: None, at, stall: Stall::new(DATA_TIMEOUT, now) });
        self.reply(opening);
    }

    /// Works the transfer under way, if any; `Over` when it has ended and its reply is queued.
    fn work_transfer(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> Option<Turn> {
        if self.transfer.as_ref()?.data.is_none() {
            let accepted = self.accept_data(sockets);
            self.transfer.as_mut()?.data = accepted;
        }
        let transfer = self.transfer.as_mut()?;
        let Some(data) = transfer.data else {
            if transfer.stall.expired(now) {
                self.transfer = None;
                self.idle.progress(now);
                self.close_passive(sockets);
                self.reply("425 No data connection came.");
                return Some(Turn::Over);
            }
            return Some(Turn::Waiting);
        };
        let before = transfer.at;
        let turn = match transfer.kind {
            Kind::Retrieve(end) => send_range(sockets, data, shared.seed, &mut transfer.at, end),
            Kind::Store { verify } => {
                let wrong = shared.arrivals.wrong;
                let turn = receive_range(now, sockets, data, shared.seed, &mut transfer.at, &mut shared.arrivals);
                if !verify {
                    shared.arrivals.wrong = wrong;
                }
                turn
            }
            Kind::List => Ok(Turn::Over),
        };
        if transfer.at > before {
            transfer.stall.progress(now);
            self.idle.progress(now);
        }
        match turn {
            Ok(Turn::Over) => {
                sockets.close(data);
                self.reply("226 Transfer complete.");
            }
            Ok(turn) if !transfer.stall.expired(now) => return Some(turn),
            Ok(_) => {
                sockets.abort(data);
                self.reply("426 Nothing moved for too long; transfer aborted.");
            }
            Err(error) => {
                sockets.close(data);
                self.reply(&format!("426 Transfer aborted: {error}."));
            }
        }
        self.transfer = None;
        self.idle.progress(now);
        Some(Turn::Over)
    }

    /// The data connection, once it has come from where the control connection comes from.
    fn accept_data(&mut self, sockets: &mut dyn Sockets) -> Option<SocketId> {
        let listener = self.passive.as_ref()?.listener;
        while let Ok(Some(data)) = sockets.accept(listener) {
            if sockets.peer_address(data).is_ok_and(|peer| peer.ip().to_canonical() == self.peer) {
                self.close_passive(sockets);
                return Some(data);
            }
            sockets.abort(data);
        }
        None
    }

    fn close_passive(&mut self, sockets: &mut dyn Sockets) {
        if let Some(passive) = self.passive.take() {
            sockets.close(passive.listener);
        }
    }

    fn close(&mut self, sockets: &mut dyn Sockets) {
        self.close_passive(sockets);
        if let Some(data) = self.transfer.take().and_then(|transfer| transfer.data) {
            sockets.abort(data);
        }
        sockets.close(self.control);
    }

    fn reply(&mut self, text: &str) {
        self.out.push(text.as_bytes());
        self.out.push(b"\r\n");
    }

    fn reply_if(&mut self, holds: bool, yes: &str, no: &str) {
        self.reply(if holds { yes } else { no });
    }
}

fn is_known(argument: &str, known: &[&str]) -> bool {
    known.iter().any(|k| k.eq_ignore_ascii_case(argument.trim()))
}

const FEATURES: &str = "211-Features:\r\n EPSV\r\n MDTM\r\n PASV\r\n REST STREAM\r\n SIZE\r\n UTF8\r\n211 End";
const NO_SUCH_FILE: &str = "550 No such file: N.bin is N bytes.";
/// ASCII is accepted because clients ask for it before LIST; no file is changed on its way.
const TYPES: &[&str] = &["A", "A N", "I", "L 8"];
/// The longest command line, its end included.
const COMMAND_LINE_MAX: usize = 512;
/// Commands held back while data moves or replies are not taken.
const LINES_BYTES_MAX: usize = 4 * COMMAND_LINE_MAX;
/// Replies that the client has not taken before we stop to obey.
const REPLIES_BYTES_MAX: usize = 4096;
const DATA_PORT_MIN: u16 = 61_000;
const DATA_PORT_ATTEMPTS: u32 = 64;
/// Without a command. Five minutes is the common default (vsftpd's idle_session_timeout).
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Without a data connection, or without progress on it. vsftpd allows 60 s to accept and 300 s without progress; a
/// satellite terminal may need a minute to dial.
const DATA_TIMEOUT: Duration = Duration::from_secs(300);
