//! A line that a command sets up and ends.
//!
//! The command is run with `up` or `down` behind its own arguments, and `BENTPIPE_CALL` in its environment. `up` returns 0 once
//! packets can flow; anything else is a failure, told apart as the exit statuses of Debian's `chat` are ([`failure`]). `down` is
//! run after every `up`, however that ended, and when the gateway dies.

use super::ledger::LedgerFile;
use super::supervisor::{Prepared, Supervisor, read_status, reap};
use super::{LineDevice, LineEvents};
use bentpipe_net::line::{LedgerError, Line, LineEvent, LineFailure};
use bentpipe_net::time::Instant;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// A line behind a hook command.
pub struct HookLine {
    argv: Vec<String>,
    ledger: LedgerFile,
    epoch_ns: u64,
    events: LineEvents,
    /// Closed to end the call.
    call: Option<OwnedFd>,
}

impl HookLine {
    /// A line that is down. `argv`: the command and its own arguments; a command without a slash is looked for in `PATH`.
    /// `now`: the model time, for the ledger's wall time.
    pub fn new(argv: &[String], ledger: LedgerFile, now: Instant) -> io::Result<HookLine> {
        let mut argv = argv.to_vec();
        if let Some(program) = argv.first_mut() {
            *program = find(program)?;
        }
        Ok(HookLine { argv, ledger, epoch_ns: epoch(now), events: LineEvents::new()?, call: None })
    }

    fn start(&mut self, call: u64) -> io::Result<()> {
        let environment = [("BENTPIPE_CALL".to_owned(), call.to_string())];
        let prepared = |action: &str| {
            let argv: Vec<String> = self.argv.iter().cloned().chain([action.to_owned()]).collect();
            Prepared::new(&argv, &environment)
        };
        let Supervisor { pid, alive, status } =
            Supervisor::start(&prepared("up")?, &prepared("down")?, self.ledger.as_fd())?;
        let events = self.events.sender();
        std::thread::Builder::new().name("line".into()).spawn(move || {
            let up = read_status(&status);
            if up == Some(0) {
                events.send(LineEvent::Up);
            }
            // The status of `down`, or the supervisor's end.
            read_status(&status);
            reap(pid);
            events.send(match up {
                Some(code) if code != 0 => LineEvent::Failed(failure(code)),
                _ => LineEvent::Down,
            });
        })?;
        self.call = Some(alive);
        Ok(())
    }
}

impl Line for HookLine {
    fn record(&mut self, entry: &str) -> Result<(), LedgerError> {
        self.ledger.record(entry).map_err(|_| LedgerError)
    }

    fn dial(&mut self, call: u64) {
        if self.start(call).is_err() {
            self.events.sender().send(LineEvent::Failed(LineFailure::Failed));
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

impl LineDevice for HookLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn as_line(&mut self) -> &mut dyn Line {
        self
    }
}

/// Why `up` failed, by its exit status: 3 a time-out; 4 to 7 the first four `ABORT` strings of a `chat` script that has BUSY,
/// NO CARRIER, NO DIALTONE and NO ANSWER in this order.
#[must_use]
pub fn failure(code: u8) -> LineFailure {
    match code {
        3 => LineFailure::TimedOut,
        4 => LineFailure::Busy,
        5 => LineFailure::NoCarrier,
        6 => LineFailure::NoDialTone,
        7 => LineFailure::NoAnswer,
        _ => LineFailure::Failed,
    }
}

/// Wall time at model time zero.
pub(crate) fn epoch(now: Instant) -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now.ns)
}

fn find(program: &str) -> io::Result<String> {
    if program.contains('/') {
        return Ok(program.to_owned());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&folders).map(|folder| folder.join(program));
    let found: Option<PathBuf> = candidates.into_iter().find(|path| path.is_file());
    found
        .map(|path| path.display().to_string())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no command {program:?} in PATH")))
}
