//! Programs inside sites: each runs in its site's network namespace, in a private mount namespace in which the sites
//! resolve by name, and in one process namespace whose first process dies with us. Whatever ends this process, `kill -9`
//! included, the kernel then ends every program that was started here, and their children.

use crate::namespace::{Namespace, Privilege};
use crate::program::{Program, SharedChild};
use std::ffi::{CString, OsString};
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// A program to start.
#[derive(Debug)]
pub struct CommandSpec {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables added to the environment.
    pub environment: Vec<(String, String)>,
    /// Where its output goes.
    pub output: Output,
    /// A process group of its own, so that Ctrl-C at the terminal reaches only us.
    pub own_group: bool,
}

/// Where a program's input and output go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// The terminal's, as ours.
    Inherit,
    /// The same, in a process group of its own in the terminal's foreground: a shell with job control returns to the group
    /// that it was started in, and cannot if that group is ours, outside its process namespace.
    Foreground,
    /// Pipes to us; no input.
    Capture,
    /// To our standard error; no input. For helpers whose output must not mix with data.
    Errors,
}

/// The thread that starts programs. They live in its process namespace.
pub struct Spawner {
    requests: mpsc::Sender<Request>,
    thread: Option<JoinHandle<()>>,
}

struct Request {
    place: Place,
    spec: CommandSpec,
    answer: mpsc::Sender<io::Result<Program>>,
}

/// Where a program runs.
enum Place {
    /// In a site, with the sites' names.
    Site(Namespace),
    /// In the machine's own network and files, with the right to enter and change the site given as standard input.
    Machine { site: Namespace },
}

/// Files that programs see in place of the machine's, in a folder of their own. Removed with this value, or by the
/// programs' first process if we are killed.
#[derive(Debug)]
struct Overlay {
    folder: PathBuf,
    /// Until this process ends, no other takes the folder for abandoned. None on a filesystem without locks.
    _lock: Option<File>,
    hosts: CString,
    resolver: Option<CString>,
    c_folder: CString,
}

impl Overlay {
    fn create(hosts: &str, resolver: Option<&str>) -> io::Result<Overlay> {
        if !Path::new("/etc/hosts").exists() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "this machine has no /etc/hosts to put the sites into",
            ));
        }
        let (folder, lock) = private_directory()?;
        remove_abandoned();
        let overlay = Overlay {
            hosts: c_path(&folder.join(HOSTS))?,
            resolver: resolver.map(|_| c_path(&folder.join(RESOLVER))).transpose()?,
            c_folder: c_path(&folder)?,
            folder,
            _lock: lock,
        };
        for (name, text) in [(HOSTS, Some(hosts)), (RESOLVER, resolver)] {
            let Some(text) = text else { continue };
            let path = overlay.folder.join(name);
            let explain = |e: io::Error| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display()));
            std::fs::write(&path, text).map_err(explain)?;
            // Programs under other users read it too, whatever our umask says.
            let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            std::fs::set_permissions(&path, readable).map_err(explain)?;
        }
        Ok(overlay)
    }

    /// Removes the files with nothing but system calls.
    fn remove(&self) {
        // SAFETY: system calls on C strings that live through them.
        unsafe {
            libc::unlink(self.hosts.as_ptr());
            if let Some(resolver) = &self.resolver {
                libc::unlink(resolver.as_ptr());
            }
            libc::rmdir(self.c_folder.as_ptr());
        }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Spawner {
    /// Starts the thread and the first process of its namespace. `hosts` is the text of the programs' /etc/hosts,
    /// `resolver` that of their /etc/resolv.conf, if it is not the machine's.
    pub fn start(privilege: Privilege, hosts: &str, resolver: Option<&str>) -> io::Result<Spawner> {
        let overlay = Arc::new(Overlay::create(hosts, resolver)?);
        let (requests, incoming) = mpsc::channel::<Request>();
        let (started, ready) = mpsc::channel();
        let thread = std::thread::Builder::new().name("spawner".into()).spawn(move || {
            let init = match start_init(&overlay) {
                Ok(init) => init,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(()));
            let mut children: Vec<SharedChild> = Vec::new();
            for request in incoming {
                children.retain(|child| !child.is_over());
                let program = start_program(privilege, &request.place, &request.spec, &overlay).map(|child| {
                    let (program, shared) = Program::new(child);
                    children.push(shared);
                    program
                });
                let _ = request.answer.send(program);
            }
            init.end(&children);
        })?;
        let spawner = Spawner { requests, thread: Some(thread) };
        ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
        Ok(spawner)
    }

    /// Starts a program in a site.
    pub fn spawn(&self, site: &Namespace, spec: CommandSpec) -> io::Result<Program> {
        self.request(Place::Site(site.clone()), spec)
    }

    /// Starts a helper in the machine's own network. Its standard input is the network namespace of `site`, which it
    /// may enter and change (`/proc/self/fd/0`).
    pub fn spawn_helper(&self, site: &Namespace, spec: CommandSpec) -> io::Result<Program> {
        self.request(Place::Machine { site: site.clone() }, spec)
    }

    fn request(&self, place: Place, spec: CommandSpec) -> io::Result<Program> {
        let (answer, answered) = mpsc::channel();
        let request = Request { place, spec, answer };
        self.requests.send(request).map_err(|_| io::Error::other("the spawner has ended"))?;
        answered.recv().unwrap_or_else(|_| Err(io::Error::other("the spawner has ended")))
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel();
        drop(std::mem::replace(&mut self.requests, closed));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The first process of the programs' namespace.
struct Init {
    pid: libc::pid_t,
    /// Closed by the kernel when we die: init reads end-of-file and exits, and the namespace with it.
    alive: OwnedFd,
}

impl Init {
    /// Ends the namespace and every process in it, `children` among them.
    fn end(self, children: &[SharedChild]) {
        drop(self.alive);
        // SAFETY: the process is our child and has not been waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        // The kernel has sent SIGKILL to all of them. The first process stays until the last of them has been waited for.
        for child in children {
            let _ = child.wait();
        }
        // SAFETY: the process is our child and has not been waited for.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// Moves this thread's future children into a new process namespace and forks its first process.
fn start_init(overlay: &Overlay) -> io::Result<Init> {
    // SAFETY: unshare(CLONE_NEWPID) concerns only the children of this thread, which makes no further threads.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWPID) }?;
    let (watch, alive) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: the child of a process with several threads calls only async-signal-safe functions and never returns.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => run_init(watch.as_raw_fd(), overlay),
            pid => Ok(Init { pid, alive }),
        }
    }
}

/// Waits for end-of-file on the pipe, with every other descriptor closed, and exits.
///
/// # Safety
/// Only for the child of `fork`: it closes every descriptor of the process.
unsafe fn run_init(watch: libc::c_int, overlay: &Overlay) -> ! {
    // SAFETY: async-signal-safe calls on plain numbers; the buffer is on this stack.
    unsafe {
        libc::setsid();
        libc::dup2(watch, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        // Orphans that end here are not waited for: the kernel forgets them at once.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        let mut byte = 0u8;
        while libc::read(0, (&raw mut byte).cast(), 1) < 0 && *libc::__errno_location() == libc::EINTR {}
        overlay.remove();
        libc::_exit(0)
    }
}

fn start_program(privilege: Privilege, place: &Place, spec: &CommandSpec, overlay: &Arc<Overlay>) -> io::Result<Child> {
    let [program, arguments @ ..] = spec.argv.as_slice() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program named"));
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(spec.environment.iter().map(|(key, value)| (key, value)));
    match spec.output {
        Output::Inherit | Output::Foreground => {}
        Output::Capture => {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Output::Errors => {
            command.stdin(Stdio::null()).stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
    }
    if spec.own_group {
        command.process_group(0);
    }
    let (site, rights) = match place {
        Place::Site(site) => (Some(site.as_fd().as_raw_fd()), PROGRAM_RIGHTS),
        Place::Machine { site } => {
            command.stdin(site.as_fd().try_clone_to_owned()?);
            (None, HELPER_RIGHTS)
        }
    };
    let overlay = Arc::clone(overlay);
    let in_foreground = spec.output == Output::Foreground;
    // SAFETY: between fork and exec only system calls on values made before the fork.
    unsafe {
        command.pre_exec(move || {
            if in_foreground {
                check(libc::setpgid(0, 0))?;
                check(set_foreground(libc::getpid()))?;
            }
            if let Some(site) = site {
                check(libc::setns(site, libc::CLONE_NEWNET))?;
                private_mounts(&overlay)?;
            }
            if privilege == Privilege::UserNamespace {
                keep_capabilities(rights.iter().fold(0, |bits, cap| bits | 1 << cap))?;
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Terminal access of this process while a program started with [`Output::Foreground`] runs.
#[derive(Debug)]
pub struct Foreground(());

impl Foreground {
    /// Some if standard input is a terminal and this process is in its foreground.
    #[must_use]
    pub fn of_stdin() -> Option<Foreground> {
        let group = rustix::termios::tcgetpgrp(io::stdin()).ok()?;
        (group == rustix::process::getpgrp()).then_some(Foreground(()))
    }

    /// True if standard input is this process's terminal, and another process group is in its foreground.
    #[must_use]
    pub fn is_taken() -> bool {
        rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group != rustix::process::getpgrp())
    }
}

impl Drop for Foreground {
    /// This process is in the foreground again.
    fn drop(&mut self) {
        // SAFETY: a system call on plain numbers. It fails if the terminal is gone.
        unsafe { set_foreground(libc::getpgrp()) };
    }
}

/// Makes `group` the foreground group of the terminal at standard input.
///
/// # Safety
/// None but that of system calls; may stand between fork and exec.
unsafe fn set_foreground(group: libc::pid_t) -> libc::c_int {
    // SAFETY: system calls on values of this stack.
    unsafe {
        // A caller in the background would be stopped (tcsetpgrp(3)).
        let (mut blocked, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut blocked);
        libc::sigaddset(&raw mut blocked, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
        let result = libc::tcsetpgrp(0, group);
        let error = *libc::__errno_location();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        *libc::__errno_location() = error;
        result
    }
}

/// A mount namespace of its own, with our hosts file over the machine's.
///
/// # Safety
/// Between fork and exec.
unsafe fn private_mounts(overlay: &Overlay) -> io::Result<()> {
    // SAFETY: system calls on C strings that live through them.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let none = std::ptr::null();
        check(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
        check(libc::mount(overlay.hosts.as_ptr(), c"/etc/hosts".as_ptr(), none, libc::MS_BIND, none.cast()))?;
        if let Some(resolver) = &overlay.resolver {
            check(libc::mount(resolver.as_ptr(), c"/etc/resolv.conf".as_ptr(), none, libc::MS_BIND, none.cast()))?;
        }
        // So that `ps` shows this process namespace. A kernel or container may refuse; programs run all the same.
        libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), 0, none.cast());
    }
    Ok(())
}

/// Capabilities of a program in a site without root: all to its own network, nothing else. CAP_NET_BIND_SERVICE,
/// CAP_NET_ADMIN, CAP_NET_RAW (linux/capability.h).
const PROGRAM_RIGHTS: &[u32] = &[10, 12, 13];
/// A helper must also enter its site and may shut itself in: CAP_SYS_ADMIN, over our own user namespace only.
const HELPER_RIGHTS: &[u32] = &[10, 12, 13, 21];

/// Keeps these capabilities of the calling thread, a bit each, and no others, also through exec.
pub(crate) fn keep_capabilities(bits: u32) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, PartialEq)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let header = Header { version: VERSION_3, pid: 0 };
    let low = Data { effective: bits, permitted: bits, inheritable: bits };
    let none = Data { effective: 0, permitted: 0, inheritable: 0 };
    let data = [low, none];
    let mut now = [none; 2];
    // SAFETY: both structures have the kernel's layout and live through the calls.
    unsafe {
        check(libc::syscall(libc::SYS_capget, &raw const header, now.as_mut_ptr()) as i32)?;
        // A service manager that has set them may forbid the call.
        if now != data {
            check(libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) as i32)?;
        }
        for cap in (0..u32::BITS).filter(|cap| bits & (1 << cap) != 0) {
            let (raise, cap) = (libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong, libc::c_ulong::from(cap));
            check(libc::prctl(libc::PR_CAP_AMBIENT, raise, cap, 0 as libc::c_ulong, 0 as libc::c_ulong))?;
        }
    }
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The files of a private folder.
const HOSTS: &str = "hosts";
const RESOLVER: &str = "resolv.conf";
/// Names of a private folder that may be taken already.
const NAMES_TRIED: u32 = 1_000;

/// The beginning of a private folder's name; a process number and a number follow.
const FOLDER_NAME: &str = "bentpipe-";

/// A new folder that only this user can enter, and its lock.
fn private_directory() -> io::Result<(PathBuf, Option<File>)> {
    use std::os::unix::fs::DirBuilderExt;
    let base = std::env::temp_dir();
    let mut number = 0;
    loop {
        let path = base.join(format!("{FOLDER_NAME}{}-{number}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        match made.map(|()| locked(&path)) {
            Ok(Ok(Some(lock))) => return Ok((path, Some(lock))),
            // This filesystem has no locks; our process number still protects the folder.
            Ok(Err(_)) => return Ok((path, None)),
            // A process of another process namespace took it for abandoned.
            Ok(Ok(None)) if number < NAMES_TRIED => number += 1,
            // Another emulation of this process, or somebody else's idea of a joke: take the next name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES_TRIED => number += 1,
            other => {
                let error = other.err().unwrap_or_else(|| io::ErrorKind::ResourceBusy.into());
                let what = format!("cannot make a private folder in {}: {error}", base.display());
                return Err(io::Error::new(error.kind(), what));
            }
        }
    }
}

/// The folder's lock, if nobody has it and the folder still has its name.
fn locked(path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::DIRECTORY).bits().cast_signed();
    let lock = match File::options().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
        Ok(()) => {}
    }
    let opened = lock.metadata()?;
    let is_same =
        std::fs::symlink_metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino()));
    Ok(is_same.then_some(lock))
}

/// Removes this user's private folders whose processes were killed together with their programs' first process, which
/// would have removed them. A folder stays if its process lives (it may have no lock), if anyone has its lock (its process
/// may be of another process namespace), or if it holds anything else.
fn remove_abandoned() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(owner) else { continue };
        if rustix::process::test_kill_process(owner) != Err(rustix::io::Errno::SRCH) {
            continue;
        }
        // Best effort: the next run tries again.
        if let Ok(Some(folder)) = locked(&entry.path())
            && folder.metadata().is_ok_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw())
        {
            // By descriptor, in case the name now leads elsewhere.
            for file in [HOSTS, RESOLVER] {
                let _ = rustix::fs::unlinkat(&folder, file, rustix::fs::AtFlags::empty());
            }
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// The process number in a private folder's name.
fn owner(name: &str) -> Option<rustix::process::Pid> {
    let (process, number) = name.strip_prefix(FOLDER_NAME)?.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let process = (is_number(process) && is_number(number)).then_some(process)?;
    rustix::process::Pid::from_raw(process.parse().ok()?)
}
