//! A program that the emulator started.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::process::{Child, ChildStderr, ChildStdout, ExitStatus};
use std::sync::Arc;

/// A program in the spawner's process namespace. Dropping this value leaves the program running; it ends with the spawner
/// at the latest.
#[derive(Debug)]
pub struct Program {
    /// Its standard output, where that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, where that is a pipe.
    pub stderr: Option<ChildStderr>,
    pid: u32,
    child: SharedChild,
}

/// A child process that both its user and the spawner can wait for. The kernel ends a process namespace only when every
/// process of it has been waited for (pid_namespaces(7)), so the spawner has to, whatever the user did.
#[derive(Clone, Debug)]
pub(crate) struct SharedChild(Arc<Mutex<Child>>);

impl Program {
    pub(crate) fn new(mut child: Child) -> (Program, SharedChild) {
        let (stdout, stderr, pid) = (child.stdout.take(), child.stderr.take(), child.id());
        let child = SharedChild(Arc::new(Mutex::new(child)));
        (Program { stdout, stderr, pid, child: child.clone() }, child)
    }

    /// Its process number, outside its namespace.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// Its exit status, if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.lock().try_wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Ends it with SIGKILL, unless it has been waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.lock().kill()
    }
}

impl SharedChild {
    /// Waits for its end.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        self.lock().wait()
    }

    /// Nobody else can ask for it any more, and it has ended.
    pub fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && !matches!(self.lock().try_wait(), Ok(None))
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        self.0.lock()
    }
}
