//! The FTP client: so many sessions at once, each a dialogue of its own.

use super::FtpSpec;
use super::reply::{Reply, ReplyReader, extended_passive_port, passive_port};
use crate::Direction;
use crate::outbox::Outbox;
use crate::progress::{Arrivals, Stall};
use crate::quantity;
use crate::report::{App, Report, Status};
use crate::stream::{Turn, receive_range, send_range};
use bentpipe_net::seed::{Seed, unit};
use bentpipe_net::socket::{Connection, Program, Received, SocketError, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use std::net::{IpAddr, SocketAddr};

pub(super) struct FtpClient {
    shared: Shared,
    sessions: Vec<Session>,
    started: Option<Instant>,
    again: Option<Instant>,
    ended: Option<Instant>,
}

/// State that all sessions share.
struct Shared {
    spec: FtpSpec,
    server: SocketAddr,
    seed: u64,
    /// Bytes retrieved, or stored and confirmed.
    arrivals: Arrivals,
}

struct Session {
    number: u32,
    step: Step,
    control: Option<SocketId>,
    data: Option<SocketId>,
    replies: ReplyReader,
    out: Outbox,
    /// EPSV has not been refused.
    extended: bool,
    /// The current file: bytes moved, whether the data have ended, whether the server confirmed it.
    at: u64,
    data_ended: bool,
    confirmed: bool,
    files_done: u32,
    started: Instant,
    commanded: Option<Instant>,
    files_ended: Option<Instant>,
    /// The failure of the data connection. Before the reply to RETR or STOR has come it is only a symptom: the reply says
    /// why.
    data_failure: Option<String>,
    failure: Option<String>,
    stall: Stall,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Connecting,
    Greeting,
    User,
    Password,
    Type,
    Passive,
    /// The data connection is being opened.
    Dialling,
    /// RETR or STOR is sent, the preliminary reply has not come.
    Commanded,
    Moving,
    Quitting,
    Over,
}

impl FtpClient {
    pub fn new(spec: FtpSpec, server: IpAddr, seed: u64) -> Self {
        let server = SocketAddr::new(server, spec.port);
        let arrivals = Arrivals::new(Some(spec.sample_every));
        FtpClient {
            shared: Shared { spec, server, seed, arrivals },
            sessions: Vec::new(),
            started: None,
            again: None,
            ended: None,
        }
    }
}

impl Program for FtpClient {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.ended.is_some() {
            return;
        }
        if self.started.is_none() {
            self.started = Some(now);
            self.shared.arrivals.start(now);
            let Shared { spec, seed, .. } = &self.shared;
            let start = |number: u32| now + start_of_session(spec, *seed, number);
            self.sessions = (1..=spec.sessions).map(|number| Session::new(number, spec, start(number))).collect();
        }
        self.again = None;
        for session in self.sessions.iter_mut().filter(|session| session.started <= now) {
            if session.step(now, sockets, &mut self.shared) == Turn::Again {
                self.again = Some(now);
            }
        }
        if self.sessions.iter().all(Session::is_over) {
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
        let timers = self.sessions.iter().filter(|session| !session.is_over()).map(Session::due);
        timers.chain(self.again).min()
    }

    fn is_done(&self) -> bool {
        self.ended.is_some()
    }
}

impl App for FtpClient {
    fn report(&self, now: Instant) -> Report {
        let failure = self.sessions.iter().find_map(|session| session.failure.clone());
        let status = match (failure, self.ended) {
            (_, None) => Status::Running,
            (Some(error), _) => Status::Failed(error),
            (None, Some(_)) => Status::Done,
        };
        let mut report = Report::new(status, self.ended);
        report.moments.started = self.started;
        let count = |of: &dyn Fn(&Session) -> u32| self.sessions.iter().map(|s| f64::from(of(s))).sum::<f64>();
        report.put(quantity::FILES_DONE, count(&|s| s.files_done));
        report.put(quantity::FILES_FAILED, count(&|s| s.files_failed(self.shared.spec.files)));
        self.shared.arrivals.fill(self.ended.unwrap_or(now), &mut report);
        report.derive();
        let rates = self.sessions.iter().filter_map(|s| s.goodput(self.shared.spec.bytes));
        put_mean(&mut report, quantity::GOODPUT_PER_SESSION, rates);
        let dialogues = self.sessions.iter().filter_map(|s| Some(s.commanded?.since(s.started).as_secs_f64()));
        put_mean(&mut report, quantity::CONTROL_TIME, dialogues);
        let times = self.sessions.iter().filter_map(|s| Some(s.files_ended?.since(s.started).as_secs_f64()));
        if let Some(longest) = times.max_by(f64::total_cmp) {
            report.put(quantity::SESSION_TIME_MAX, longest);
        }
        report
    }
}

/// The time between the first session's start and that of session `number`.
fn start_of_session(spec: &FtpSpec, seed: u64, number: u32) -> Duration {
    if number == 1 {
        return Duration::ZERO;
    }
    let mut drawn = Seed(seed).stream(&format!("sessions/{number}/start"));
    Duration::from_secs_f64(spec.spread.as_secs_f64() * unit(&mut drawn))
}

impl Session {
    fn new(number: u32, spec: &FtpSpec, now: Instant) -> Self {
        Session {
            number,
            step: Step::Connecting,
            control: None,
            data: None,
            replies: ReplyReader::new(),
            out: Outbox::default(),
            extended: true,
            at: 0,
            data_ended: false,
            confirmed: false,
            files_done: 0,
            started: now,
            commanded: None,
            files_ended: None,
            data_failure: None,
            failure: None,
            stall: Stall::new(spec.timeout, now),
        }
    }

    fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// When it starts, then when it has waited too long.
    fn due(&self) -> Instant {
        if self.control.is_none() { self.started } else { self.stall.due() }
    }

    fn files_failed(&self, files: u32) -> u32 {
        if self.failure.is_some() { files - self.files_done } else { 0 }
    }

    fn goodput(&self, bytes: u64) -> Option<f64> {
        let took = self.files_ended?.since(self.started).as_secs_f64();
        (took > 0.0).then(|| bytes as f64 * f64::from(self.files_done) * 8.0 / took)
    }

    fn step(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> Turn {
        if self.is_over() {
            return Turn::Over;
        }
        let outcome = self.work(now, sockets, shared).and_then(|turn| match turn {
            Turn::Waiting if self.stall.expired(now) => {
                Err(format!("no progress for {} after {} of {} bytes", shared.spec.timeout, self.at, shared.spec.bytes))
            }
            turn => Ok(turn),
        });
        match outcome {
            Ok(Turn::Over) => self.end(sockets),
            Ok(turn) => return turn,
            // All files are there; how the session is taken leave of does not matter.
            Err(_) if self.step == Step::Quitting => self.end(sockets),
            Err(error) => {
                self.failure = Some(self.name_place(error, &shared.spec));
                for socket in [self.data.take(), self.control.take()].into_iter().flatten() {
                    sockets.abort(socket);
                }
            }
        }
        self.step = Step::Over;
        Turn::Over
    }

    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> Result<Turn, String> {
        let cannot_connect = |error| format!("cannot connect to {}: {error}", shared.server);
        let control = match self.control {
            Some(control) => control,
            None => *self.control.insert(sockets.connect(shared.server).map_err(cannot_connect)?),
        };
        if self.step == Step::Connecting {
            match sockets.connection(control).map_err(cannot_connect)? {
                Connection::Opening => return Ok(Turn::Waiting),
                Connection::Open => self.enter(Step::Greeting, now),
            }
        }
        let mut turn = Turn::Waiting;
        loop {
            let mut moved = self.flush(now, sockets, control)?;
            // Data first: what came before the server ended the control connection counts.
            let before = (self.step, self.at, self.data_ended);
            match self.work_data(now, sockets, shared) {
                Ok(Turn::Again) => turn = Turn::Again,
                Ok(_) => {}
                Err(error) => {
                    self.data.take().into_iter().for_each(|data| sockets.abort(data));
                    self.data_failure = Some(error);
                }
            }
            let control_ended = self.read(now, sockets, control, &mut moved)?;
            while let Some(reply) = self.replies.next_reply() {
                moved = true;
                self.take_reply(reply?, now, sockets, shared)?;
                if self.step == Step::Over {
                    return Ok(Turn::Over);
                }
            }
            self.complete_file(now, shared);
            if let Some(error) = self.data_failure.take_if(|_| self.step != Step::Commanded) {
                return Err(error);
            }
            if control_ended && !self.confirmed {
                return match self.step {
                    Step::Quitting => Ok(Turn::Over),
                    _ => Err("server ended the control connection".to_owned()),
                };
            }
            if !moved && before == (self.step, self.at, self.data_ended) {
                return Ok(turn);
            }
        }
    }

    fn flush(&mut self, now: Instant, sockets: &mut dyn Sockets, control: SocketId) -> Result<bool, String> {
        let sent = self.out.flush(sockets, control).map_err(control_lost)?;
        if sent > 0 {
            self.stall.progress(now);
        }
        Ok(sent > 0)
    }

    /// Reads the control connection; whether it has ended.
    fn read(
        &mut self,
        now: Instant,
        sockets: &mut dyn Sockets,
        control: SocketId,
        moved: &mut bool,
    ) -> Result<bool, String> {
        let mut buffer = [0; 1024];
        match sockets.receive(control, &mut buffer).map_err(control_lost)? {
            Received::Bytes(n) => {
                self.replies.push(&buffer[..n.min(buffer.len())]);
                self.stall.progress(now);
                *moved = true;
                Ok(false)
            }
            Received::Nothing => Ok(false),
            Received::End => Ok(true),
        }
    }

    fn take_reply(
        &mut self,
        reply: Reply,
        now: Instant,
        sockets: &mut dyn Sockets,
        shared: &Shared,
    ) -> Result<(), String> {
        match (self.step, reply.code) {
            (Step::Greeting, 120) => {}
            (Step::Greeting, 220) => {
                self.send("USER anonymous");
                self.enter(Step::User, now);
            }
            (Step::User, 331) => {
                self.send("PASS bentpipe@");
                self.enter(Step::Password, now);
            }
            (Step::User | Step::Password, 200..=299) => {
                self.send("TYPE I");
                self.enter(Step::Type, now);
            }
            (Step::Type, 200..=299) => self.ask_passive(now),
            (Step::Passive, 229) if self.extended => {
                let port = extended_passive_port(&reply.line);
                self.dial(port.ok_or_else(|| said(&reply))?, now, sockets, shared)?;
            }
            (Step::Passive, 500..=599) if self.extended => {
                self.extended = false;
                self.ask_passive(now);
            }
            (Step::Passive, 227) if !self.extended => {
                let port = passive_port(&reply.line);
                self.dial(port.ok_or_else(|| said(&reply))?, now, sockets, shared)?;
            }
            (Step::Commanded, 100..=199) => self.enter(Step::Moving, now),
            (Step::Commanded | Step::Moving, 200..=299) => {
                self.confirmed = true;
                self.enter(Step::Moving, now);
            }
            (Step::Moving, 100..=199) => {}
            (Step::Quitting, _) => self.step = Step::Over,
            _ => return Err(said(&reply)),
        }
        Ok(())
    }

    fn ask_passive(&mut self, now: Instant) {
        self.send(if self.extended { "EPSV" } else { "PASV" });
        self.enter(Step::Passive, now);
    }

    /// The data connection goes to the control connection's peer, whatever address a reply of PASV names: it may be
    /// one behind a translator, or a third party's.
    fn dial(&mut self, port: u16, now: Instant, sockets: &mut dyn Sockets, shared: &Shared) -> Result<(), String> {
        let peer = self.control.and_then(|control| sockets.peer_address(control).ok());
        let mut to = peer.unwrap_or(shared.server);
        to.set_port(port);
        let cannot_connect = |error| format!("cannot open the data connection to {to}: {error}");
        self.data = Some(sockets.connect(to).map_err(cannot_connect)?);
        self.enter(Step::Dialling, now);
        Ok(())
    }

    fn work_data(&mut self, now: Instant, sockets: &mut dyn Sockets, shared: &mut Shared) -> Result<Turn, String> {
        let Some(data) = self.data else { return Ok(Turn::Waiting) };
        let cannot_connect = |error| format!("cannot open the data connection: {error}");
        if self.step == Step::Dialling {
            match sockets.connection(data).map_err(cannot_connect)? {
                Connection::Opening => return Ok(Turn::Waiting),
                Connection::Open => self.command(now, &shared.spec),
            }
        }
        let (before, bytes) = (self.at, shared.spec.bytes);
        let turn = match (shared.spec.direction, self.step) {
            (Direction::Download, _) => {
                receive_range(now, sockets, data, shared.seed, &mut self.at, &mut shared.arrivals)
            }
            (Direction::Upload, Step::Moving) => send_range(sockets, data, shared.seed, &mut self.at, bytes),
            (Direction::Upload, _) => return Ok(Turn::Waiting),
        };
        if self.at > before {
            self.stall.progress(now);
        }
        match turn {
            Ok(Turn::Over) if self.at < bytes => Err(format!("connection ended after {} of {bytes} bytes", self.at)),
            Ok(_) if self.at > bytes => Err(format!("server sent {} bytes instead of {bytes}", self.at)),
            Ok(Turn::Over) => {
                sockets.close(data);
                self.data = None;
                self.data_ended = true;
                Ok(Turn::Over)
            }
            Ok(turn) => Ok(turn),
            Err(error) => Err(format!("connection ended after {} of {bytes} bytes: {error}", self.at)),
        }
    }

    fn command(&mut self, now: Instant, spec: &FtpSpec) {
        let verb = match spec.direction {
            Direction::Download => "RETR",
            Direction::Upload => "STOR",
        };
        self.send(&format!("{verb} {}.bin", spec.bytes));
        self.commanded.get_or_insert(now);
        self.enter(Step::Commanded, now);
    }

    /// Goes on to the next file, or takes leave, when the current one is complete.
    fn complete_file(&mut self, now: Instant, shared: &mut Shared) {
        if self.step != Step::Moving || !self.data_ended || !self.confirmed {
            return;
        }
        if shared.spec.direction == Direction::Upload {
            shared.arrivals.add(now, shared.spec.bytes, 0);
        }
        (self.at, self.data_ended, self.confirmed) = (0, false, false);
        self.files_done += 1;
        self.files_ended = Some(now);
        if self.files_done < shared.spec.files {
            self.ask_passive(now);
        } else {
            self.send("QUIT");
            self.enter(Step::Quitting, now);
        }
    }

    fn enter(&mut self, step: Step, now: Instant) {
        self.step = step;
        self.stall.progress(now);
    }

    fn send(&mut self, line: &str) {
        self.out.push(line.as_bytes());
        self.out.push(b"\r\n");
    }

    fn end(&mut self, sockets: &mut dyn Sockets) {
        for socket in [self.data.take(), self.control.take()].into_iter().flatten() {
            sockets.close(socket);
        }
    }

    /// Says which of several sessions and files failed.
    fn name_place(&self, error: String, spec: &FtpSpec) -> String {
        match (spec.sessions > 1, spec.files > 1) {
            (false, false) => error,
            (true, false) => format!("session {}: {error}", self.number),
            (false, true) => format!("file {}: {error}", self.files_done + 1),
            (true, true) => format!("session {}, file {}: {error}", self.number, self.files_done + 1),
        }
    }
}

fn said(reply: &Reply) -> String {
    format!("server said {:?}", reply.line)
}

fn control_lost(error: SocketError) -> String {
    format!("control connection: {error}")
}

fn put_mean(report: &mut Report, quantity: quantity::Quantity, values: impl Iterator<Item = f64>) {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    if count > 0 {
        report.put(quantity, sum / f64::from(count));
    }
}
