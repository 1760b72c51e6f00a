//! A line that a modem sets up, by AT commands (ITU-T V.250) on a serial line of its own.
//!
//! The serial line is the modem's command port; packets go over the network interface that the modem, or what it starts, provides.
//! When the gateway dies, the kernel closes the port, which drops DTR (`HUPCL`): a modem set to `AT&D2` hangs up then.

use super::hook::epoch;
use super::ledger::LedgerFile;
use super::{LineDevice, LineEventSender, LineEvents};
use bentpipe_gateway::dial::ModemSettings;
use bentpipe_net::line::{LedgerError, Line, LineEvent, LineFailure};
use bentpipe_net::time::Instant;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{ControlModes, OptionalActions};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A line behind a modem.
pub struct ModemLine {
    settings: ModemSettings,
    ledger: LedgerFile,
    epoch_ns: u64,
    events: LineEvents,
    /// Closed to end the call.
    call: Option<OwnedFd>,
}

/// How long a modem may take to answer a command that dials nothing, in seconds.
const ANSWER: i64 = 5;
/// Characters of a line that are kept.
const LINE_MAX: usize = 256;

impl ModemLine {
    /// A line that is down. `now`: the model time, for the ledger's wall time.
    pub fn new(settings: ModemSettings, ledger: LedgerFile, now: Instant) -> io::Result<ModemLine> {
        // It must be there; it is opened for each call.
        open(&settings)?;
        Ok(ModemLine { settings, ledger, epoch_ns: epoch(now), events: LineEvents::new()?, call: None })
    }
}

impl Line for ModemLine {
    fn record(&mut self, entry: &str) -> Result<(), LedgerError> {
        self.ledger.record(entry).map_err(|_| LedgerError)
    }

    fn dial(&mut self, _: u64) {
        let events = self.events.sender();
        let start = || {
            let (given_up, alive) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            let (settings, events) = (self.settings.clone(), events.clone());
            let thread = std::thread::Builder::new().name("modem".into());
            thread.spawn(move || call(&settings, &given_up, &events))?;
            io::Result::Ok(alive)
        };
        match start() {
            Ok(alive) => self.call = Some(alive),
            Err(_) => events.send(LineEvent::Failed(LineFailure::Failed)),
        }
    }

    fn hang_up(&mut self) {
        self.call = None;
    }

    fn poll_event(&mut self) -> Option<LineEvent> {
        self.events.poll()
    }

    fn epoch_ns(&self) -> u64 {
        self.epoch_ns
    }
}

impl LineDevice for ModemLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn as_line(&mut self) -> &mut dyn Line {
        self
    }
}

/// The serial line, raw, at its speed, with DTR that drops when it is closed.
fn open(settings: &ModemSettings) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fail = |error: rustix::io::Errno| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", settings.device.display()))
    };
    let port = rustix::fs::open(&settings.device, flags, Mode::empty()).map_err(fail)?;
    let mut termios = rustix::termios::tcgetattr(&port).map_err(fail)?;
    termios.make_raw();
    termios.control_modes |= ControlModes::HUPCL | ControlModes::CLOCAL | ControlModes::CREAD;
    termios.set_speed(settings.speed).map_err(fail)?;
    rustix::termios::tcsetattr(&port, OptionalActions::Now, &termios).map_err(fail)?;
    Ok(port)
}

/// What a modem says, or what happens meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Ok,
    Connect,
    Failure(LineFailure),
    /// The gateway ends the call.
    GivenUp,
    /// Nothing in time.
    Silent,
    /// The port is gone.
    Gone,
}

/// A call from its first command to its end.
fn call(settings: &ModemSettings, given_up: &OwnedFd, events: &LineEventSender) {
    let Ok(port) = open(settings) else {
        events.send(LineEvent::Failed(LineFailure::Failed));
        return;
    };
    let mut modem = Modem { port, given_up, line: Vec::new() };
    let failed = |why| events.send(LineEvent::Failed(why));
    match modem.command(&settings.init, Some(ANSWER)) {
        Said::Ok => {}
        Said::GivenUp => return events.send(LineEvent::Down),
        _ => return failed(LineFailure::Failed),
    }
    // How long a call may take to come up the dialler knows, and gives it up then.
    match modem.command(&format!("ATD{}", settings.number), None) {
        Said::Connect => events.send(LineEvent::Up),
        Said::Failure(why) => return failed(why),
        Said::GivenUp => {
            modem.hang_up();
            return events.send(LineEvent::Down);
        }
        Said::Ok | Said::Silent | Said::Gone => return failed(LineFailure::Failed),
    }
    loop {
        match modem.next(None) {
            Said::GivenUp => {
                modem.hang_up();
                break;
            }
            Said::Failure(_) | Said::Gone => break,
            Said::Ok | Said::Connect | Said::Silent => {}
        }
    }
    events.send(LineEvent::Down);
}

struct Modem<'a> {
    port: OwnedFd,
    given_up: &'a OwnedFd,
    line: Vec<u8>,
}

impl Modem<'_> {
    /// Sends a command and waits for its result.
    fn command(&mut self, command: &str, seconds: Option<i64>) -> Said {
        let text = format!("{command}\r");
        if rustix::io::write(&self.port, text.as_bytes()) != Ok(text.len()) {
            return Said::Gone;
        }
        self.next(seconds)
    }

    /// The next result; `seconds`: for how long it is waited for.
    fn next(&mut self, seconds: Option<i64>) -> Said {
        let timeout = seconds.map(|seconds| Timespec { tv_sec: seconds, tv_nsec: 0 });
        loop {
            let mut ready = [PollFd::new(&self.port, PollFlags::IN), PollFd::new(self.given_up, PollFlags::IN)];
            match poll(&mut ready, timeout.as_ref()) {
                Ok(0) => return Said::Silent,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Said::Gone,
                Ok(_) => {}
            }
            if !ready[1].revents().is_empty() {
                return Said::GivenUp;
            }
            let mut byte = [0];
            match rustix::io::read(&self.port, &mut byte) {
                Ok(1) => {}
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
                _ => return Said::Gone,
            }
            if !matches!(byte[0], b'\r' | b'\n') {
                if self.line.len() < LINE_MAX {
                    self.line.push(byte[0]);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            // Echoes and other text are no results.
            if let Some(said) = result(String::from_utf8_lossy(&line).trim()) {
                return said;
            }
        }
    }

    /// Ends the call, as far as the modem obeys; closing the port does the rest.
    fn hang_up(&mut self) {
        let _ = rustix::io::write(&self.port, b"ATH\r");
        let ready = &mut [PollFd::new(&self.port, PollFlags::IN)];
        let _ = poll(ready, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
    }
}

/// A result code (V.250 §5.7.1).
fn result(line: &str) -> Option<Said> {
    Some(match line {
        "OK" => Said::Ok,
        "BUSY" => Said::Failure(LineFailure::Busy),
        "NO CARRIER" => Said::Failure(LineFailure::NoCarrier),
        "NO DIALTONE" | "NO DIAL TONE" => Said::Failure(LineFailure::NoDialTone),
        "NO ANSWER" => Said::Failure(LineFailure::NoAnswer),
        "ERROR" => Said::Failure(LineFailure::Failed),
        _ if line.starts_with("CONNECT") => Said::Connect,
        _ => return None,
    })
}
