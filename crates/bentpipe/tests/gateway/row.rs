//! Client, terminal, hub and server in a row, and the daemons in the middle.

use super::link::EmulatedLink;
use super::peers::{self, ConnectionPair, PATH, add_veth, ip};
use bentpipe_host::gateway::rights::lend;
use bentpipe_host::namespace::{Namespace, write_sysctl};
use std::io::{self, BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub use super::peers::WAIT;

/// What the pair's files say of a link that is none: nothing but two devices.
const PLAIN: &str = "mtu = \"1500 B\"\nrate = \"RATE\"\none_way_delay = \"10 ms\"\n";
/// The server by both families, and the client as the server must see it.
pub const SERVER: [&str; 2] = ["10.3.0.2", "fd03::2"];
pub const CLIENT: [&str; 2] = ["10.1.0.1", "fd01::1"];
pub const SOCKS: &str = "10.1.0.2:1080";
pub const CONNECT: &str = "10.1.0.2:3128";

pub struct Row {
    /// Client, terminal, hub, server. Between each and the next a pair of devices, `right` and `left`, with the networks
    /// 10.1, 10.2, 10.3 and fd01, fd02, fd03.
    pub sites: [Namespace; 4],
    pub folder: PathBuf,
    /// What moves the packets between terminal and hub, if they have more than a pair of devices between them.
    pub link: Option<EmulatedLink>,
}

pub struct Daemon {
    pub child: Child,
    lines: Receiver<String>,
    pub seen: Vec<String>,
}

impl Row {
    pub fn new() -> Row {
        Row::build(None)
    }

    /// With a link of the emulator's between terminal and hub; `text`: as in a link's file.
    pub fn over(text: &str) -> Row {
        Row::build(Some(text))
    }

    fn build(link: Option<&str>) -> Row {
        let sites = [(); 4].map(|()| Namespace::new().unwrap());
        for (n, site) in sites.iter().enumerate() {
            let next = sites.get(n + 1);
            let build = || {
                ip("link set lo up")?;
                write_sysctl("net.ipv4.ip_forward", "1")?;
                write_sysctl("net.ipv6.conf.all.forwarding", "1")?;
                match next {
                    Some(next) if n != 1 || link.is_none() => add_veth("right", "left", next),
                    _ => Ok(()),
                }
            };
            site.run(build).unwrap();
        }
        let link = link.map(|text| EmulatedLink::between(&sites[1], &sites[2], text));
        for (n, site) in sites.iter().enumerate() {
            let build = || {
                for (device, network, host) in [("left", n, 2), ("right", n + 1, 1)] {
                    if network == 0 || network == 4 {
                        continue;
                    }
                    ip(&format!("addr add 10.{network}.0.{host}/16 dev {device}"))?;
                    ip(&format!("addr add fd0{network}::{host}/16 dev {device} nodad"))?;
                    ip(&format!("link set {device} up"))?;
                }
                Ok(())
            };
            site.run(build).unwrap();
        }
        for (n, site) in sites.iter().enumerate() {
            let build = || {
                for network in 1..=3 {
                    // Those to the right of the next site, and those to the left of the one before.
                    let (via, host) = if network > n + 1 { (n + 1, 2) } else { (n, 1) };
                    if network != n && network != n + 1 {
                        ip(&format!("route add 10.{network}.0.0/16 via 10.{via}.0.{host}"))?;
                        ip(&format!("-6 route add fd0{network}::/16 via fd0{via}::{host}"))?;
                    }
                }
                Ok(())
            };
            site.run(build).unwrap();
        }
        static ROWS: AtomicU32 = AtomicU32::new(0);
        let row = ROWS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("bentpipe-gateway-test-{}-{row}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Row { sites, folder, link }
    }

    /// A row, with a pair that is connected.
    pub fn with_pair() -> (Row, Daemon, Daemon) {
        let row = Row::new();
        row.make_keys();
        let [hub, terminal] = row.start_pair();
        (row, hub, terminal)
    }

    /// The gateways of `hub.toml` and `terminal.toml`, which have found each other.
    pub fn start_pair(&self) -> [Daemon; 2] {
        let hub = self.daemon(2, "hub");
        let mut terminal = self.daemon(1, "terminal");
        terminal.wait_for("connected to the other gateway");
        [hub, terminal]
    }

    /// Keys of a pair and its files, `hub.toml` and `terminal.toml`.
    pub fn make_keys(&self) {
        let requested = format!("metrics = \"127.0.0.1:9464\"\nsocks = \"{SOCKS}\"\nconnect = \"{CONNECT}\"\n");
        self.make_pair("", 4433, "50 Mbit/s", ["", &requested], "");
    }

    /// Keys of a pair and its files, `hubNAME.toml` and `terminalNAME.toml`: the hub's UDP port, the link's rate, further
    /// keys of each file, and of the terminal's `[intercept]`.
    pub fn make_pair(&self, name: &str, port: u16, rate: &str, keys: [&str; 2], intercept: &str) {
        self.make_pair_on(name, port, &PLAIN.replace("RATE", rate), keys, intercept);
    }

    /// The same; `link`: as in a link's file.
    pub fn make_pair_on(&self, name: &str, port: u16, link: &str, keys: [&str; 2], intercept: &str) {
        let key = |name: &str| {
            let out = self.folder.join(format!("{name}.key"));
            let output = bentpipe().args(["gateway", "keys", "--out"]).arg(&out).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let again = bentpipe().args(["gateway", "keys", "--out"]).arg(&out).output().unwrap();
            assert_eq!(again.status.code(), Some(2), "a key is never overwritten");
            let shown = bentpipe().args(["gateway", "keys", "--show"]).arg(&out).output().unwrap();
            assert_eq!(shown.stdout, output.stdout);
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let (hub, terminal) = (format!("hub{name}"), format!("terminal{name}"));
        let (hub_key, terminal_key) = (key(&hub), key(&terminal));
        let link = format!("[link]\n{link}");
        let common = |own: &str, peer: &str| format!("key = \"{own}.key\"\npeer_key = \"{peer}\"\ndrain = \"5 s\"\n");
        let (hub_common, terminal_common) = (common(&hub, &terminal_key), common(&terminal, &hub_key));
        self.write(&format!("{hub}.toml"), &format!("listen = \"0.0.0.0:{port}\"\n{hub_common}{}{link}", keys[0]));
        self.write(
            &format!("{terminal}.toml"),
            &format!(
                "hub = \"10.2.0.2:{port}\"\n{terminal_common}{}{link}[intercept]\ninterfaces = [\"left\"]\n{intercept}",
                keys[1]
            ),
        );
    }

    /// Replaces a word in a file.
    pub fn edit(&self, name: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.folder.join(name)).unwrap();
        assert!(text.contains(from), "no {from} in {text}");
        self.write(name, &text.replace(from, to));
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    /// A daemon that has said that it runs. `name`: of its file, which begins with its role.
    pub fn daemon(&self, site: usize, name: &str) -> Daemon {
        let file = self.folder.join(format!("{name}.toml"));
        let role = if name.starts_with("hub") { "hub" } else { "terminal" };
        let checked = bentpipe().args(["gateway", role, "--check"]).arg(&file).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let mut daemon = self.daemon_with(site, name, |command| {
            lend(command.stderr(Stdio::piped()));
        });
        daemon.wait_for("gateway, key");
        daemon
    }

    /// A daemon whose start is changed by `change`, which also says which rights it has and where its log goes.
    pub fn daemon_with(&self, site: usize, name: &str, change: impl FnOnce(&mut Command) + Send) -> Daemon {
        let file = self.folder.join(format!("{name}.toml"));
        let role = if name.starts_with("hub") { "hub" } else { "terminal" };
        let spawn = || {
            let mut command = bentpipe();
            command.args(["gateway", role]).arg(&file);
            change(&mut command);
            command.spawn()
        };
        let mut child = self.sites[site].run(spawn).unwrap();
        let (sender, lines) = channel();
        if let Some(errors) = child.stderr.take() {
            let name = name.to_owned();
            std::thread::spawn(move || {
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    eprintln!("{name}: {line}");
                    let _ = sender.send(line);
                }
            });
        }
        Daemon { child, lines, seen: Vec::new() }
    }

    pub fn listen(&self, address: &str, port: u16) -> TcpListener {
        peers::listen(&self.sites[3], address, port)
    }

    pub fn connect(&self, address: &str, port: u16) -> io::Result<TcpStream> {
        peers::connect(&self.sites[0], address, port)
    }

    /// A connection of the client's, and its end at the server.
    pub fn ends(&self, address: &str, port: u16) -> ConnectionPair {
        let listener = self.listen(address, port);
        let near = self.connect(address, port).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Waits until the terminal's metrics say that it is connected.
    pub fn until_connected(&self) {
        until(self, "connected", |row| row.metric("connected") == Some(1.0));
    }

    /// A figure of the terminal's metrics; `None`: nobody serves them.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metric_at(1, name)
    }

    /// A figure of the gateway at this site.
    pub fn metric_at(&self, site: usize, name: &str) -> Option<f64> {
        let text = self.shell(site, "curl --silent --max-time 5 http://127.0.0.1:9464/metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("bentpipe_gateway_{name} ")))?;
        value.trim().parse().ok()
    }

    pub fn shell(&self, site: usize, command: &str) -> String {
        let run = || lend(Command::new("/bin/sh").args(["-c", command]).env("PATH", PATH)).output();
        String::from_utf8(self.sites[site].run(run).unwrap().stdout).unwrap()
    }
}

impl Daemon {
    pub fn wait_for(&mut self, what: &str) {
        self.wait_for_within(what, WAIT);
    }

    pub fn wait_for_within(&mut self, what: &str, time: Duration) {
        let deadline = Instant::now() + time;
        while !self.seen.iter().any(|line| line.contains(what)) {
            let left = deadline.saturating_duration_since(Instant::now());
            self.seen.push(self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line says: {what}")));
        }
    }

    pub fn signal(&self, signal: libc::c_int) {
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Daemon {
    /// How many lines of its log have said this.
    pub fn count_lines(&mut self, what: &str) -> usize {
        self.seen.extend(self.lines.try_iter());
        self.seen.iter().filter(|line| line.contains(what)).count()
    }

    /// Resident.
    pub fn memory_kb(&self) -> u64 {
        self.status("VmRSS").trim_end_matches(" kB").parse().unwrap()
    }

    /// Forgets the lines that came until now, so that the next are waited for.
    pub fn forget_lines(&mut self) {
        while self.lines.try_recv().is_ok() {}
        self.seen.clear();
    }

    /// Its exit status, which must come in time.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A line of /proc/PID/status.
    pub fn status(&self, key: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {key}")).trim().to_owned()
    }

    /// The process that it started: nft.
    pub fn nft(&self) -> libc::pid_t {
        let id = self.child.id();
        let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
        let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
        children.collect::<String>().split_whitespace().next().expect("no nft").parse().unwrap()
    }
}

/// Tells threads that it is over, also when what they accompany has panicked.
pub struct EndOnDrop<'a>(pub &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn bentpipe() -> Command {
    Command::new(Path::new(env!("CARGO_BIN_EXE_bentpipe")))
}

pub fn until(row: &Row, what: &str, is_so: impl Fn(&Row) -> bool) {
    until_within(row, what, WAIT, is_so);
}

pub fn until_within(row: &Row, what: &str, time: Duration, is_so: impl Fn(&Row) -> bool) {
    let deadline = Instant::now() + time;
    while !is_so(row) {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Every byte of both, and the client's own address at the server.
pub fn every_byte_in_both_directions(row: &Row, address: &str, client: &str) {
    let (near, far) = row.ends(address, 80);
    assert_eq!(far.peer_addr().unwrap().ip().to_string(), client);
    peers::every_byte_in_both_directions((near, far), 300_000, true);
}
