//! Files over FTP (RFC 959), by `REST` and `RETR` (RFC 3659), passive only.
//!
//! The control connection is our own: what a server may make us hold and how long it may make us wait is bounded here, and
//! Ctrl-C ends every wait. Replies are read by the parser of the ftp workload.

use crate::Options;
use crate::error::Failure;
use crate::http::{percent_decode, place, shortened};
use crate::remote::{Connection, Identity, Opened, Remote, Server, Wire};
use bentpipe_apps::ftp::reply::{Reply, ReplyReader, extended_passive_port, passive_port};
use parking_lot::Mutex;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use url::Url;

/// A file at an FTP server.
#[derive(Clone)]
pub(crate) struct FtpServer {
    host: String,
    port: u16,
    user: String,
    password: String,
    /// The argument of RETR.
    pub path: String,
    place: String,
    timeout: Duration,
    /// Several commands are sent without waiting for each reply. RFC 959 neither asks for it nor forbids it; a server
    /// that loses some is found out once.
    pipelining: Arc<AtomicBool>,
}

impl FtpServer {
    pub fn new(url: &Url, options: &Options) -> Result<FtpServer, String> {
        let text = |encoded: &str, what: &str| {
            let text = String::from_utf8(percent_decode(encoded)).map_err(|_| format!("{what} is not UTF-8"))?;
            // A line end would make a second command of it.
            match text.chars().any(char::is_control) {
                true => Err(format!("{what} holds control characters")),
                false => Ok(text),
            }
        };
        let user = text(url.username(), "the user")?;
        let password = text(url.password().unwrap_or(""), "the password")?;
        // An address in brackets is written without them in a socket address.
        let host = url.host_str().unwrap_or("").trim_matches(['[', ']']).to_owned();
        let is_anonymous = user.is_empty();
        Ok(FtpServer {
            host,
            port: url.port().unwrap_or(21),
            user: if is_anonymous { "anonymous".to_owned() } else { user },
            // RFC 1635 asks for an address; the server learns nothing it needs from ours.
            password: if is_anonymous { "anonymous@".to_owned() } else { password },
            // RFC 1738 §3.2.2: relative to where the login leads; an absolute path begins with %2F.
            path: text(url.path().strip_prefix('/').unwrap_or(url.path()), "the path")?,
            place: place(url),
            timeout: options.timeout,
            pipelining: Arc::new(AtomicBool::new(true)),
        })
    }
}

impl Server for FtpServer {
    fn connection(&self) -> Box<dyn Connection> {
        Box::new(FtpConnection { server: self.clone(), session: None, data: None })
    }

    /// The reply to the transfer before, EPSV, the data connection, REST with RETR.
    fn round_trips_to_start(&self) -> u32 {
        4
    }
}

struct FtpConnection {
    server: FtpServer,
    session: Option<Session>,
    data: Option<TcpStream>,
}

/// A control connection that is logged in.
pub(crate) struct Session {
    control: TcpStream,
    replies: ReplyReader,
    server: FtpServer,
    /// A transfer's final reply is still to come.
    owed: bool,
    extended_passive: bool,
    /// The server has been switched to binary transfers.
    is_binary: bool,
    /// A port for the next data connection, asked for ahead.
    port: Option<u16>,
    sockets: Arc<Mutex<Sockets>>,
}

/// For whoever ends it all from another thread.
#[derive(Default)]
struct Sockets {
    open: Vec<TcpStream>,
    ended: bool,
}

impl Session {
    /// Connects and logs in.
    pub fn open(server: &FtpServer, wire: &Wire) -> Result<Session, Failure> {
        let sockets = Arc::new(Mutex::new(Sockets::default()));
        let shared = Arc::clone(&sockets);
        wire.on_hang_up(Box::new(move || {
            let mut sockets = shared.lock();
            sockets.ended = true;
            for socket in &sockets.open {
                // One that has ended by itself needs no ending.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }));
        let failed = |error: &std::io::Error| Failure::of_socket(error, &server.place);
        let addresses = (server.host.as_str(), server.port).to_socket_addrs().map_err(|error| {
            match error.to_string().contains("Temporary failure") {
                true => Failure::Unreachable(format!("{}: the name cannot be looked up now", server.place)),
                false => Failure::NameNotFound(server.place.clone()),
            }
        })?;
        let mut last = Failure::NameNotFound(server.place.clone());
        let mut connected = None;
        // They share the time: one that drops everything, as IPv6 does at times, must not use it all.
        let addresses: Vec<SocketAddr> = addresses.collect();
        let each = server.timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        for address in addresses {
            let begun = Instant::now();
            match TcpStream::connect_timeout(&address, each) {
                Ok(stream) => {
                    wire.set_round_trip(begun.elapsed());
                    connected = Some(stream);
                    break;
                }
                Err(error) => last = failed(&error),
            }
        }
        let control = connected.ok_or(last)?;
        control.set_nodelay(true).map_err(|error| failed(&error))?;
        let mut session = Session {
            control,
            replies: ReplyReader::new(),
            server: server.clone(),
            owed: false,
            extended_passive: true,
            is_binary: false,
            port: None,
            sockets,
        };
        let control = session.control.try_clone().map_err(|error| failed(&error))?;
        session.prepare(control)?;
        session.log_in()?;
        Ok(session)
    }

    fn log_in(&mut self) -> Result<(), Failure> {
        let mut greeting = self.reply()?;
        // RFC 959 §5.4: 120 announces that the service is ready later.
        for _ in 0..ANNOUNCEMENTS_MAX {
            if greeting.code == 120 {
                greeting = self.reply()?;
            }
        }
        if greeting.code != 220 {
            return Err(of_reply(&greeting));
        }
        let mut reply = self.ask("USER", &self.server.user.clone())?;
        if reply.code == 331 {
            reply = self.ask("PASS", &self.server.password.clone())?;
        }
        if !matches!(reply.code, 230 | 202) {
            return Err(match reply.code {
                332 => Failure::Unauthorised("332: an account is wanted".to_owned()),
                _ => of_reply(&reply),
            });
        }
        Ok(())
    }

    /// Limits a socket's waits, and lets it be ended.
    fn prepare(&mut self, socket: TcpStream) -> Result<(), Failure> {
        let set = socket.set_read_timeout(Some(self.server.timeout));
        set.and_then(|()| socket.set_write_timeout(Some(self.server.timeout))).map_err(|error| self.failed(&error))?;
        let mut sockets = self.sockets.lock();
        if sockets.ended {
            return Err(Failure::Stopped);
        }
        // The control connection and the newest data connection.
        sockets.open.truncate(1);
        sockets.open.push(socket);
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::of_socket(error, &self.server.place)
    }

    /// One command and its reply.
    pub fn ask(&mut self, command: &str, argument: &str) -> Result<Reply, Failure> {
        self.settle()?;
        self.control.write_all(line(command, argument).as_bytes()).map_err(|error| self.failed(&error))?;
        self.reply()
    }

    /// Several commands, whose replies come in the same order; before the first of a session, `TYPE I`.
    fn ask_all(&mut self, commands: &[(&str, &str)]) -> Result<Vec<Reply>, Failure> {
        let is_binary = std::mem::replace(&mut self.is_binary, true);
        let first = [("TYPE", "I")];
        let all = || first.iter().filter(|_| !is_binary).chain(commands).copied();
        let mut replies = Vec::new();
        if self.server.pipelining.load(Ordering::Relaxed) && all().count() > 1 {
            self.settle()?;
            let lines: String = all().map(|(command, argument)| line(command, argument)).collect();
            self.control.write_all(lines.as_bytes()).map_err(|error| self.failed(&error))?;
            for _ in all() {
                let reply = self.reply().inspect_err(|failure| {
                    // The next attempt asks one at a time.
                    if !matches!(failure, Failure::Stopped) {
                        self.server.pipelining.store(false, Ordering::Relaxed);
                    }
                })?;
                replies.push(reply);
            }
        } else {
            for (command, argument) in all() {
                replies.push(self.ask(command, argument)?);
            }
        }
        if !is_binary {
            let reply = replies.remove(0);
            if reply.code != 200 {
                return Err(of_reply(&reply));
            }
        }
        Ok(replies)
    }

    /// Takes the final reply of a transfer that was given up.
    fn settle(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.owed) {
            let reply = self.reply()?;
            if reply.code == 421 {
                return Err(of_reply(&reply));
            }
        }
        Ok(())
    }

    fn reply(&mut self) -> Result<Reply, Failure> {
        let mut held = 0;
        let begun = Instant::now();
        loop {
            match self.replies.next_reply() {
                Some(Ok(reply)) => return Ok(reply),
                Some(Err(text)) => return Err(Failure::Protocol(shortened(&text))),
                None => {}
            }
            if held > REPLY_BYTES_MAX {
                return Err(Failure::Protocol(format!("a reply of more than {REPLY_BYTES_MAX} bytes")));
            }
            if begun.elapsed() > self.server.timeout {
                return Err(Failure::TimedOut(self.server.place.clone()));
            }
            let mut buffer = [0; 1024];
            match self.control.read(&mut buffer) {
                Ok(0) => return Err(Failure::ClosedEarly(self.server.place.clone())),
                Ok(length) => {
                    held += length;
                    self.replies.push(&buffer[..length]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// SIZE and MDTM (RFC 3659); what a server does not know stays open.
    pub fn identity(&mut self, path: &str) -> Result<Identity, Failure> {
        let replies = self.ask_all(&[("SIZE", path), ("MDTM", path)])?;
        Session::read_identity(&replies)
    }

    /// The same; a port for the transfer that follows is asked for in the same round trip.
    pub fn identity_and_port(&mut self, path: &str) -> Result<Identity, Failure> {
        let replies = self.ask_all(&[("SIZE", path), ("MDTM", path), ("EPSV", "")])?;
        self.port = replies.last().filter(|reply| reply.code == 229).and_then(|r| extended_passive_port(&r.line));
        self.extended_passive = self.port.is_some();
        Session::read_identity(&replies)
    }

    /// SIZE, and in the same round trip RNFR (RFC 959 §4.1.3), which changes nothing before its RNTO.
    pub fn size_and_rename_from(&mut self, path: &str) -> Result<(Option<u64>, Reply), Failure> {
        let mut replies = self.ask_all(&[("SIZE", path), ("RNFR", path)])?;
        let size = Session::read_identity(&replies[..1])?.size;
        replies.pop().map(|renaming| (size, renaming)).ok_or(Failure::Stopped)
    }

    fn read_identity(replies: &[Reply]) -> Result<Identity, Failure> {
        if let Some(ended) = replies.iter().find(|reply| reply.code == 421) {
            return Err(of_reply(ended));
        }
        let value = |number: usize| replies.get(number).filter(|reply| reply.code == 213).and_then(digits);
        let (size, modified) = (value(0), value(1).map(|time| time.to_string()));
        Ok(Identity { size, etag: None, modified })
    }

    /// A data connection in passive mode: to the control connection's peer, whatever address PASV names (it may be a
    /// private one, or another machine's: RFC 2577 §3).
    fn data(&mut self) -> Result<TcpStream, Failure> {
        let mut port = self.port.take();
        if self.extended_passive && port.is_none() {
            let replies = self.ask_all(&[("EPSV", "")])?;
            port = replies.last().filter(|reply| reply.code == 229).and_then(|r| extended_passive_port(&r.line));
        }
        let port = match port {
            Some(port) => port,
            None => {
                self.extended_passive = false;
                let reply = self.ask("PASV", "")?;
                if reply.code != 227 {
                    return Err(of_reply(&reply));
                }
                let wrong = || Failure::Protocol(format!("no address in {:?}", shortened(&reply.line)));
                passive_port(&reply.line).ok_or_else(wrong)?
            }
        };
        let peer = self.control.peer_addr().map_err(|error| self.failed(&error))?;
        let address = SocketAddr::new(peer.ip(), port);
        let data = TcpStream::connect_timeout(&address, self.server.timeout)
            .map_err(|error| Failure::of_socket(&error, &format!("{} (data connection)", self.server.place)))?;
        let clone = data.try_clone().map_err(|error| self.failed(&error))?;
        self.prepare(clone)?;
        Ok(data)
    }

    /// A data connection on which `command PATH` runs from the byte `from` on; or from the first, where the server cannot
    /// begin within a file: which of them is reported.
    pub fn transfer(&mut self, command: &str, path: &str, from: u64) -> Result<(TcpStream, u64), Failure> {
        let data = self.data()?;
        let start = from.to_string();
        let commands = [("REST", start.as_str()), (command, path)];
        let replies = self.ask_all(if from > 0 { &commands } else { &commands[1..] })?;
        let Some(reply) = replies.last() else { return Err(Failure::Stopped) };
        if let Some(ended) = replies.iter().find(|reply| reply.code == 421) {
            return Err(of_reply(ended));
        }
        let is_restarted = from > 0 && replies[0].code == 350;
        match reply.code {
            125 | 150 => Ok((data, if is_restarted { from } else { 0 })),
            _ => Err(of_reply(reply)),
        }
    }

    /// The final reply of a transfer.
    pub fn confirm(&mut self) -> Result<(), Failure> {
        let reply = self.reply()?;
        match reply.code {
            226 | 250 => Ok(()),
            _ => Err(of_reply(&reply)),
        }
    }

    /// The rest of a transfer is not wanted; the reply to that is taken before the next command.
    pub fn gave_up(&mut self) {
        self.sockets.lock().open.truncate(1);
        self.owed = true;
    }
}

impl FtpConnection {
    /// Closes the data connection: the other handle to it, too, or the server would wait for us for ever.
    fn close_data(&mut self) {
        if let (Some(_), Some(session)) = (self.data.take(), &self.session) {
            session.sockets.lock().open.truncate(1);
        }
    }

    fn begin(&mut self, wire: &Wire, from: u64, known: Option<&Remote>) -> Result<Opened, Failure> {
        if self.session.is_none() {
            self.session = Some(Session::open(&self.server, wire)?);
        }
        let Some(session) = &mut self.session else { return Err(Failure::Stopped) };
        let path = &self.server.path;
        let remote = match known {
            Some(known) => known.clone(),
            None => Remote { identity: session.identity_and_port(path)?, digests: Vec::new() },
        };
        if known.is_none() && remote.identity.size.is_some_and(|size| from > size) {
            return Err(Failure::Changed("it is shorter now".to_owned()));
        }
        let (data, from) = session.transfer("RETR", path, from)?;
        session.owed = true;
        self.data = Some(data);
        Ok(Opened { remote, from, until: None })
    }
}

impl Connection for FtpConnection {
    /// Logging in takes four round trips: half the start of a transfer.
    fn prepare(&mut self, wire: &Wire) {
        if self.session.is_none() {
            self.session = Session::open(&self.server, wire).ok();
        }
    }

    fn open(&mut self, wire: &Wire, from: u64, _: Option<u64>, known: Option<&Remote>) -> Result<Opened, Failure> {
        self.close_data();
        let had_session = self.session.is_some();
        let opened = self.begin(wire, from, known);
        match opened {
            // Servers end idle sessions, some also one whose transfer was given up: a new one is owed one attempt.
            Err(Failure::ClosedEarly(_) | Failure::Busy(_)) if had_session => {
                self.session = None;
                self.begin(wire, from, known)
            }
            other => other,
        }
        .inspect_err(|_| self.session = None)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        let Some(data) = &mut self.data else { return Ok(0) };
        loop {
            match data.read(buffer) {
                Ok(0) => break,
                Ok(length) => return Ok(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    (self.data, self.session) = (None, None);
                    return Err(Failure::of_socket(&error, &self.server.place));
                }
            }
        }
        self.close_data();
        let Some(session) = &mut self.session else { return Ok(0) };
        session.owed = false;
        session.confirm().inspect_err(|_| self.session = None)?;
        Ok(0)
    }

    fn abandon(&mut self) {
        // Closed with data unread, it resets; the reply to that is taken before the next command.
        self.close_data();
    }

    fn recheck(&mut self, wire: &Wire) -> Result<Option<Identity>, Failure> {
        if self.session.is_none() {
            self.session = Some(Session::open(&self.server, wire)?);
        }
        let Some(session) = &mut self.session else { return Ok(None) };
        session.identity(&self.server.path).map(Some).inspect_err(|_| self.session = None)
    }
}

/// The failure that a negative reply stands for (RFC 959 §4.2.1).
pub(crate) fn of_reply(reply: &Reply) -> Failure {
    let text = shortened(&reply.line);
    match reply.code {
        421 | 425 | 426 | 450 | 451 => Failure::Busy(text),
        430 | 530 | 532 => Failure::Unauthorised(text),
        // RFC 959 has one code for "not found" and "no access".
        550 if ["denied", "permi", "allowed"].iter().any(|word| text.to_lowercase().contains(word)) => {
            Failure::Unauthorised(text)
        }
        550 => Failure::NotFound(text),
        _ => Failure::Answer(text),
    }
}

fn line(command: &str, argument: &str) -> String {
    let space = if argument.is_empty() { "" } else { " " };
    format!("{command}{space}{argument}\r\n")
}

fn digits(reply: &Reply) -> Option<u64> {
    let text = reply.line.get(4..)?.trim();
    // MDTM may give fractions of a second.
    text.split('.').next()?.parse().ok()
}

/// Most replies in which a service may announce that it is ready later.
const ANNOUNCEMENTS_MAX: usize = 8;
/// A greeting may be long; a page of legal text has a few kilobytes.
const REPLY_BYTES_MAX: usize = 64 * 1024;
