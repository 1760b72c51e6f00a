//! The process that sets a line up and ends it, and outlives whoever started it.
//!
//! A child of the gateway that reads a pipe. It runs the command for `up`, says how that ended, and waits for end-of-file: the
//! gateway has closed the pipe, or has died, `kill -9` included. Then it runs the command for `down`. So there is one path to a
//! line that is down, and the kernel starts it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A command with its arguments and environment, ready for `execve`.
pub(super) struct Prepared {
    program: CString,
    argv: Vec<CString>,
    environment: Vec<CString>,
}

/// A running supervisor.
pub(super) struct Supervisor {
    pub pid: libc::pid_t,
    /// Closed: the line is ended.
    pub alive: OwnedFd,
    /// A byte for the exit status of `up`, another for that of `down`.
    pub status: OwnedFd,
}

/// How long `up` may take to end when the line is given up.
const GRACE_MS: i32 = 2_000;
const TICK_MS: i32 = 20;
/// In place of the exit status of an `up` that was given up.
const GIVEN_UP: u8 = 143;
/// The exit status of a command that could not be started, as a shell has it.
const NOT_FOUND: i32 = 127;

impl Prepared {
    pub fn new(argv: &[String], environment: &[(String, String)]) -> io::Result<Prepared> {
        let text = |text: &str| CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let variables = std::env::vars().chain(environment.iter().cloned());
        Ok(Prepared {
            program: text(argv.first().map_or("", String::as_str))?,
            argv: argv.iter().map(|argument| text(argument)).collect::<io::Result<_>>()?,
            environment: variables.map(|(key, value)| text(&format!("{key}={value}"))).collect::<io::Result<_>>()?,
        })
    }

    fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    }
}

impl Supervisor {
    /// Starts one, which runs `up` at once. It keeps `lock` open, and with it a lock of the ledger, until `down` has ended: no
    /// other gateway dials before.
    pub fn start(up: &Prepared, down: &Prepared, lock: BorrowedFd<'_>) -> io::Result<Supervisor> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let (watch, alive) = rustix::pipe::pipe_with(flags)?;
        let (status, report) = rustix::pipe::pipe_with(flags)?;
        let commands = [up, down].map(|command| {
            (command.program.as_ptr(), Prepared::pointers(&command.argv), Prepared::pointers(&command.environment))
        });
        // SAFETY: the child of a process with several threads calls only async-signal-safe functions, on memory that was
        // made before, and never returns.
        unsafe {
            match libc::fork() {
                -1 => Err(io::Error::last_os_error()),
                0 => run([watch.as_raw_fd(), report.as_raw_fd(), lock.as_raw_fd()], &commands),
                pid => Ok(Supervisor { pid, alive, status }),
            }
        }
    }
}

type Command = (*const libc::c_char, Vec<*const libc::c_char>, Vec<*const libc::c_char>);

/// The supervisor.
///
/// # Safety
/// Only for the child of `fork`: it closes every descriptor of the process.
unsafe fn run([watch, report, lock]: [libc::c_int; 3], [up, down]: &[Command; 2]) -> ! {
    // SAFETY: async-signal-safe calls on plain numbers and on memory that was made before the fork.
    unsafe {
        // Whoever ends the gateway's process group or session does not end this process with it.
        libc::setsid();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        // The pipes may have any numbers, 0 and 1 among them.
        let watch = libc::fcntl(watch, libc::F_DUPFD, 10);
        let report = libc::fcntl(report, libc::F_DUPFD, 10);
        let lock = libc::fcntl(lock, libc::F_DUPFD, 10);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        libc::dup2(null, 0);
        // What the hook says goes where the gateway's own messages go.
        libc::dup2(2, 1);
        libc::dup2(watch, 3);
        libc::dup2(report, 4);
        libc::dup2(lock, 5);
        libc::syscall(libc::SYS_close_range, 6, libc::c_uint::MAX, 0);
        let (watch, report) = (3, 4);
        for descriptor in [3, 4, 5] {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        let mut child = start(up, true);
        let mut is_up = false;
        loop {
            let mut status = 0;
            if child > 0 && libc::waitpid(child, &raw mut status, libc::WNOHANG) == child {
                child = 0;
                let code = exit_code(status);
                say(report, code);
                is_up = code == 0;
                if !is_up {
                    break;
                }
            } else if child < 0 {
                say(report, NOT_FOUND as u8);
                break;
            }
            let mut poll = libc::pollfd { fd: watch, events: libc::POLLIN, revents: 0 };
            libc::poll(&raw mut poll, 1, if is_up { -1 } else { TICK_MS });
            if poll.revents != 0 {
                break;
            }
        }
        if child > 0 {
            end(child);
            say(report, GIVEN_UP);
        }
        // A service manager that ends what is left of the gateway does not end this.
        let child = start(down, false);
        let mut status = 0;
        if child > 0 {
            while libc::waitpid(child, &raw mut status, 0) < 0 && *libc::__errno_location() == libc::EINTR {}
        }
        let code = if child > 0 { exit_code(status) } else { NOT_FOUND as u8 };
        say(report, code);
        libc::_exit(i32::from(code))
    }
}

/// Starts a command. `ends`: signals end it, as usual.
///
/// # Safety
/// As [`run`].
unsafe fn start((program, argv, environment): &Command, ends: bool) -> libc::pid_t {
    // SAFETY: as in `run`.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // A group of its own, so that all of it can be ended.
            libc::setpgid(0, 0);
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            if ends {
                for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
            libc::execve(*program, argv.as_ptr(), environment.as_ptr());
            libc::_exit(NOT_FOUND);
        }
        child
    }
}

/// Ends a command that still runs.
///
/// # Safety
/// As [`run`].
unsafe fn end(child: libc::pid_t) {
    // SAFETY: as in `run`; the process is our child and has not been waited for.
    unsafe {
        libc::kill(-child, libc::SIGTERM);
        let mut waited = 0;
        while libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) == 0 {
            if waited >= GRACE_MS {
                libc::kill(-child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
                return;
            }
            libc::poll(std::ptr::null_mut(), 0, TICK_MS);
            waited += TICK_MS;
        }
        libc::kill(-child, libc::SIGKILL);
    }
}

/// # Safety
/// As [`run`].
unsafe fn say(report: libc::c_int, code: u8) {
    // SAFETY: the buffer is on this stack. Nobody may listen any more.
    unsafe {
        libc::write(report, (&raw const code).cast(), 1);
    }
}

fn exit_code(status: libc::c_int) -> u8 {
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) as u8 } else { (128 + libc::WTERMSIG(status)) as u8 }
}

/// Reads one status; `None`: the supervisor is gone.
pub(super) fn read_status(status: &OwnedFd) -> Option<u8> {
    let mut byte = [0];
    loop {
        match rustix::io::read(status, &mut byte) {
            Ok(1) => return Some(byte[0]),
            Err(rustix::io::Errno::INTR) => {}
            _ => return None,
        }
    }
}

/// Waits for a supervisor that has ended, or soon does.
pub(super) fn reap(pid: libc::pid_t) {
    // SAFETY: the process is our child and has not been waited for.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}
