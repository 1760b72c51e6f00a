//! A folder to run the program in, as a certain user, with a bound on how long anything may take.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Who runs the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum User {
    Root,
    Ordinary,
}

/// A new folder, removed with its value. Everything started in it carries [`Place::marker`] in its environment.
pub struct Place {
    pub user: User,
    path: PathBuf,
    marker: String,
    _turn: Turn,
}

/// Tests whose times are judged run alone.
#[allow(dead_code, reason = "held for their Drop")]
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// The end of a program.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Every user that this machine lets us be.
pub fn users() -> Vec<User> {
    static USERS: OnceLock<Vec<User>> = OnceLock::new();
    let find = || {
        let mut users = if is_root() { vec![User::Root] } else { Vec::new() };
        let place = Place::new(User::Ordinary);
        let probe = place.bentpipe(&["shell", "lan", "-q", "--", "true"]).ends();
        if probe.code() == 2 && probe.stderr.contains("user namespace") {
            eprintln!("skipped: everything as an ordinary user: {}", probe.stderr.trim());
        } else {
            users.push(User::Ordinary);
        }
        users
    };
    USERS.get_or_init(find).clone()
}

/// True if every one of these programs is here. With `CI` set, a missing one that `make test` installs is a failure.
pub fn have(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_program(program));
    let Some(missing) = missing else { return true };
    let installed_by_setup = ["curl", "ping", "tshark", "pasta", "runuser", "chromium", "vsftpd"].contains(missing);
    assert!(
        !(installed_by_setup && std::env::var_os("CI").is_some()),
        "{missing} is missing, and `make test` installs it"
    );
    eprintln!("skipped: there is no {missing} here");
    false
}

/// True if we are root. With `CI` unset or not, a machine may well not let us be.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Place {
    /// A folder for `user`; other tests may run at the same time.
    pub fn new(user: User) -> Place {
        Place::with_turn(user, Turn::Shared(TURNS.read()))
    }

    /// The same, and no other test runs at the same time.
    pub fn alone(user: User) -> Place {
        Place::with_turn(user, Turn::Alone(TURNS.write()))
    }

    fn with_turn(user: User, turn: Turn) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let marker = format!("e2e-{}-{number}", std::process::id());
        // Not bentpipe-NUMBER: such a folder is a run's own, and swept when its process is gone.
        let path = std::env::temp_dir().join(format!("bentpipe-{marker}"));
        let place = Place { user, path, marker, _turn: turn };
        place.make_folder("");
        place.make_folder("tmp");
        place
    }

    /// Makes a folder that the user owns.
    pub fn make_folder(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        std::fs::create_dir(&path).unwrap();
        self.hand_over(&path, 0o755);
        path
    }

    /// Writes a file that the user owns.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        std::fs::write(&path, content).unwrap();
        self.hand_over(&path, 0o644);
        path
    }

    fn hand_over(&self, path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        if self.user == User::Ordinary && is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// A path in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Names in the folder (or one inside), in order.
    pub fn list(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(folder)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// What runs have left in the place of temporary files.
    pub fn leftovers(&self) -> Vec<String> {
        self.list("tmp")
    }

    /// In the environment of everything started here.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// The program under test.
    pub fn bentpipe(&self, arguments: &[&str]) -> Command {
        static BINARY: OnceLock<File> = OnceLock::new();
        let binary = BINARY.get_or_init(|| File::open(env!("CARGO_BIN_EXE_bentpipe")).unwrap());
        // By descriptor: the folder it was built in may be closed to other users.
        let mut command = self.command(&format!("/proc/self/fd/{}", binary.as_raw_fd()));
        command.arg0("bentpipe").args(arguments);
        command
    }

    /// Another program, as the same user and in the same folder.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.path).env("HOME", &self.path).env("TMPDIR", self.at("tmp"));
        command.env(MARKER, &self.marker).env_remove("NO_COLOR");
        if self.user == User::Ordinary && is_root() {
            // This drops the supplementary groups too.
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left is seen by the tests that look for it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A path inside the project.
pub fn root(inner: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(inner).display().to_string()
}

/// Waiting, never for ever.
pub trait WaitLimited {
    /// Runs to the end.
    fn ends(&mut self) -> Ended;
    /// The same, with this on standard input.
    fn ends_given(&mut self, input: &[u8]) -> Ended;
}

impl WaitLimited for Command {
    fn ends(&mut self) -> Ended {
        self.stdin(Stdio::null());
        wait(self.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn ends_given(&mut self, input: &[u8]) -> Ended {
        let mut child = self.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        // While the other pipe is read: either pipe may fill. A program that does not read all has its reasons.
        std::thread::spawn(move || stdin.write_all(&input));
        wait(child)
    }
}

/// Waits for a child, of whose output all is read; a child that hangs fails the test.
pub fn wait(mut child: Child) -> Ended {
    let stdout = child.stdout.take().map(read_all);
    let stderr = child.stderr.take().map(read_all);
    let give_up = Instant::now() + LONGEST;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > give_up {
            let _ = child.kill();
            let _ = child.wait();
            let text = |stream: Option<mpsc::Receiver<String>>| stream.and_then(|s| s.recv_timeout(SHORT).ok());
            panic!("still running after {LONGEST:?}; stdout {:?}, stderr {:?}", text(stdout), text(stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |stream: Option<mpsc::Receiver<String>>| {
        stream.map_or_else(String::new, |s| s.recv_timeout(LONGEST).expect("its output ends with the program"))
    };
    Ended { status, stdout: text(stdout), stderr: text(stderr) }
}

impl Ended {
    /// Exit status; 128 + signal if one ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Panics unless the status is this one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ended {
        assert_eq!(self.code(), code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

fn read_all(mut stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Ordinary users have no /usr/sbin in their path, but may run what is there.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut files = folders.map(|folder| folder.join(name));
    files.any(|file| file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o001 != 0))
}

/// The variable that marks what belongs to a test.
pub const MARKER: &str = "BENTPIPE_E2E";
/// The user `nobody` of every Linux.
const NOBODY: u32 = 65_534;
/// No step of any test takes this long.
const LONGEST: Duration = Duration::from_secs(90);
const SHORT: Duration = Duration::from_secs(1);
static TURNS: RwLock<()> = RwLock::new(());
