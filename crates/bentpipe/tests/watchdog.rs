//! What a service manager hears of a gateway daemon (sd_notify(3)): a Unix socket of the test stands in for systemd's.

use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);
/// Between two signs of life: half of what the manager asks for.
const EVERY: Duration = Duration::from_millis(100);

/// Ends the daemon whatever the test comes to.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    fn id(&self) -> libc::pid_t {
        libc::pid_t::try_from(self.0.id()).unwrap()
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes plain numbers; the child has not been waited for.
        assert_eq!(unsafe { libc::kill(self.id(), signal) }, 0);
    }

    /// The thread that relays.
    fn worker(&self) -> libc::pid_t {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        let named = |task: &Path| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "gateway");
        let task = tasks.find(|task| named(task)).expect("a thread with the name of the gateway's");
        task.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }
}

/// One thread of another process stands still as long as this lives (ptrace(2)).
struct Standstill(libc::pid_t);

impl Standstill {
    fn of(thread: libc::pid_t) -> std::io::Result<Standstill> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: none of these requests touches memory of ours but the status.
        unsafe {
            if libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none), 0);
            let mut status = 0;
            assert_eq!(libc::waitpid(thread, &raw mut status, libc::__WALL), thread);
            assert!(libc::WIFSTOPPED(status));
        }
        Ok(Standstill(thread))
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

/// The next word, if it comes in time.
fn message(manager: &UnixDatagram, within: Duration) -> Option<String> {
    manager.set_read_timeout(Some(within)).unwrap();
    let mut state = [0; 256];
    let length = manager.recv(&mut state).ok()?;
    Some(String::from_utf8(state[..length].to_vec()).unwrap().trim_end().to_owned())
}

/// The next that is no sign of life.
fn other_message(manager: &UnixDatagram) -> String {
    loop {
        let state = message(manager, WAIT).expect("a word in time");
        if !state.starts_with("WATCHDOG=1\n") {
            return state;
        }
    }
}

fn start(folder: &Path) -> (Daemon, UnixDatagram) {
    let bentpipe = || Command::new(env!("CARGO_BIN_EXE_bentpipe"));
    let keys: Vec<String> = ["hub", "terminal"]
        .iter()
        .map(|name| {
            let out = folder.join(format!("{name}.key"));
            let output = bentpipe().args(["gateway", "keys", "--out"]).arg(out).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        })
        .collect();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let file = folder.join("hub.toml");
    let direction = "{ rate = \"1 Mbit/s\", one_way_delay = \"300 ms\" }";
    let link = format!("[link]\nmtu = \"1500 B\"\nforward = {direction}\nreturn = {direction}\n");
    let text =
        format!("listen = \"0.0.0.0:{port}\"\nkey = \"hub.key\"\npeer_key = \"{}\"\ndrain = \"0 s\"\n{link}", keys[1]);
    std::fs::write(&file, text).unwrap();
    let path = folder.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut command = bentpipe();
    command.args(["gateway", "hub"]).arg(&file).stderr(Stdio::null());
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", (2 * EVERY.as_micros()).to_string());
    // With rights over a network it installs rules there: they are for a network of its own. Without, it has none.
    // SAFETY: between fork and exec only a system call on a number.
    unsafe {
        command.pre_exec(|| {
            libc::unshare(libc::CLONE_NEWNET);
            Ok(())
        })
    };
    (Daemon(command.spawn().unwrap()), manager)
}

#[test]
fn a_gateway_whose_work_stands_still_gives_no_signs_of_life() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("watchdog-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (mut daemon, manager) = start(&folder);
    assert_eq!(message(&manager, WAIT).as_deref(), Some("READY=1"));
    let alive = "WATCHDOG=1\nSTATUS=not connected to the other gateway; 0 connections relayed now";
    for _ in 0..5 {
        assert_eq!(message(&manager, WAIT).as_deref(), Some(alive));
    }
    daemon.signal(libc::SIGHUP);
    let reloading = other_message(&manager);
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&reloading);
    assert!(since.parse::<u64>().unwrap() > 0);
    assert_eq!(other_message(&manager), "READY=1");
    match Standstill::of(daemon.worker()) {
        Err(error) => eprintln!("skipped: this machine lets nobody stop a thread: {error}"),
        Ok(standstill) => {
            // What was on its way, then nothing, though the process lives and its other threads run.
            let deadline = Instant::now() + WAIT;
            while message(&manager, 10 * EVERY).is_some() {
                assert!(Instant::now() < deadline, "signs of life from a gateway that does nothing");
            }
            assert!(daemon.0.try_wait().unwrap().is_none());
            drop(standstill);
            assert_eq!(message(&manager, WAIT).as_deref(), Some(alive), "it works again");
        }
    }
    daemon.signal(libc::SIGTERM);
    assert_eq!(other_message(&manager), "STOPPING=1");
    assert!(daemon.0.wait().unwrap().success());
    std::fs::remove_dir_all(&folder).unwrap();
}
