//! Programs that workloads and services run, with their output kept.

use crate::collect::workloads::EndedCommand;
use bentpipe_host::emulation::Emulation;
use bentpipe_host::program::Program;
use bentpipe_host::spawn::{CommandSpec, Output};
use bentpipe_host::waker::wait_for_any;
use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Bytes of output kept of each stream; the rest is read and counted.
const OUTPUT_KEPT: usize = 64 << 10;
/// Longest wait for the rest of a program's output after its end.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// Longest time for a program to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// A program under way.
pub struct RunningCommand {
    command: String,
    child: Program,
    /// Readable once it has ended.
    end: OwnedFd,
    outputs: Vec<KeptOutput>,
    exit: Option<ExitStatus>,
    started: Instant,
    ended: Option<Instant>,
}

impl RunningCommand {
    /// Starts a program at a site. The descriptor becomes readable when it ends (pidfd_open(2)).
    pub fn start(emulation: &Emulation, site: usize, argv: &[String]) -> io::Result<(RunningCommand, OwnedFd)> {
        let spec = CommandSpec {
            argv: argv.iter().map(Into::into).collect(),
            environment: Vec::new(),
            output: Output::Capture,
            own_group: true,
        };
        // spawn() returns when the program itself runs.
        let mut child = emulation.spawn(site, spec)?;
        let started = Instant::now();
        let mut outputs = Vec::new();
        let out = child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>);
        let err = child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>);
        for stream in [out, err].into_iter().flatten() {
            outputs.push(KeptOutput::of(stream)?);
        }
        // A shell line is shown as it was written.
        let command = match argv {
            [shell, flag, line] if shell == "/bin/sh" && flag == "-c" => line.clone(),
            words => words.join(" "),
        };
        let end = pidfd(&child)?;
        let announced = end.try_clone()?;
        Ok((RunningCommand { command, child, end, outputs, exit: None, started, ended: None }, announced))
    }

    /// True if the program has ended.
    pub fn has_ended(&mut self) -> bool {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().ok().flatten();
            self.ended = self.exit.map(|_| Instant::now());
        }
        self.exit.is_some()
    }

    /// The program's running time so far, in seconds.
    fn seconds(&self) -> f64 {
        self.ended.unwrap_or_else(Instant::now).duration_since(self.started).as_secs_f64()
    }

    /// Ends the program if need be (`end`) and says how it went.
    pub fn finish(mut self, end: bool) -> EndedCommand {
        let seconds = self.seconds();
        let by_itself = self.has_ended();
        if end && !by_itself {
            self.terminate();
        }
        let exit = self.exit.or_else(|| self.child.wait().ok()).map_or(-1, exit_code);
        // What the program left running in its group may hold the pipes open; a daemon of its own session still does.
        // It ends with the emulation; its output so far is kept.
        self.signal_group(Signal::KILL);
        let mut texts = self.outputs.iter().map(KeptOutput::take);
        let (stdout, stderr) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        EndedCommand {
            command: std::mem::take(&mut self.command),
            seconds,
            exit,
            ended_by_itself: by_itself.then_some(exit),
            stdout,
            stderr,
        }
    }

    fn terminate(&mut self) {
        self.signal_group(Signal::TERM);
        let give_up = Instant::now() + GRACE;
        while !self.has_ended() && Instant::now() < give_up {
            wait_for_any(&[self.end.as_fd()], give_up.saturating_duration_since(Instant::now()));
        }
        if !self.has_ended() {
            self.signal_group(Signal::KILL);
        }
    }

    /// Signals the program and what it started (it leads a process group of its own).
    fn signal_group(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The group may be gone already.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

fn pidfd(child: &Program) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// The exit status as a shell gives it.
#[must_use]
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The beginning of a program's output, read by a thread so that the program never waits for us.
struct KeptOutput {
    kept: Arc<Mutex<Kept>>,
    /// Disconnected once the stream is at its end.
    end: Receiver<()>,
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    total: usize,
}

impl KeptOutput {
    fn of(mut stream: Box<dyn Read + Send>) -> io::Result<KeptOutput> {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let shared = Arc::clone(&kept);
        let (reading, end) = channel();
        std::thread::Builder::new().name("output".into()).spawn(move || {
            let _reading = reading;
            let mut buffer = vec![0; 16 << 10];
            while let Ok(n) = stream.read(&mut buffer) {
                if n == 0 {
                    return;
                }
                let mut kept = shared.lock();
                kept.total += n;
                let room = OUTPUT_KEPT.saturating_sub(kept.bytes.len());
                kept.bytes.extend_from_slice(&buffer[..n.min(room)]);
            }
        })?;
        Ok(KeptOutput { kept, end })
    }

    /// The text so far; waits a little for the stream's end.
    fn take(&self) -> String {
        // Nothing is ever sent.
        let _ = self.end.recv_timeout(OUTPUT_GRACE);
        let kept = self.kept.lock();
        let mut text = String::from_utf8_lossy(&kept.bytes).into_owned();
        if kept.total > kept.bytes.len() {
            text.push_str(&format!("\n[{} more bytes not kept]\n", kept.total - kept.bytes.len()));
        }
        text
    }
}

/// Whether the program exists. Of a shell line only a plain first word can be checked.
pub fn check_program(argv: &[String]) -> Result<(), String> {
    let program = match argv {
        [shell, flag, line] if shell == "/bin/sh" && flag == "-c" => {
            let first = line.split_whitespace().next().unwrap_or_default();
            let plain = first.chars().all(|c| c.is_ascii_alphanumeric() || "-_./+".contains(c));
            if !plain || SHELL_WORDS.contains(&first) {
                return Ok(());
            }
            first
        }
        words => words.first().map(String::as_str).unwrap_or_default(),
    };
    let is_program = |path: &Path| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = if program.contains('/') {
        is_program(Path::new(program))
    } else {
        std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
    };
    if found {
        return Ok(());
    }
    Err(format!("there is no program {program:?} on this machine; allowed: one in PATH, or a path to one"))
}

/// Words that a shell knows without a program (POSIX.1-2017 §2.4, §2.9.1, §2.14).
const SHELL_WORDS: [&str; 36] = [
    "if", "for", "while", "until", "case", "{", "(", "!", ":", ".", "break", "cd", "continue", "eval", "exec", "exit",
    "export", "read", "readonly", "return", "set", "shift", "times", "trap", "unset", "wait", "command", "umask",
    "ulimit", "type", "alias", "bg", "fg", "jobs", "local", "hash",
];
