//! A pair of gateway daemons between real kernels, in four namespaces in a row: client, terminal, hub, server.
//!
//! A process gains the right to namespaces only while it has one thread, so this file has a main of its own.

use bentpipe_host::gateway::rights::lend;
use bentpipe_host::namespace::{Namespace, acquire_privilege, write_sysctl};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);
const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// The server by both families, and the client as the server must see it.
const SERVER: [&str; 2] = ["10.3.0.2", "fd03::2"];
const CLIENT: [&str; 2] = ["10.1.0.1", "fd01::1"];
const SOCKS: &str = "10.1.0.2:1080";
const CONNECT: &str = "10.1.0.2:3128";

struct Row {
    /// Client, terminal, hub, server. Between each and the next a pair of devices, `right` and `left`, with the networks
    /// 10.1, 10.2, 10.3 and fd01, fd02, fd03.
    sites: [Namespace; 4],
    folder: PathBuf,
}

struct Daemon {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

fn main() {
    if acquire_privilege().is_err() {
        eprintln!("skipped: this machine lets nobody make namespaces");
        return;
    }
    let row = Row::new();
    row.make_keys();
    let mut hub = row.daemon(2, "hub");
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for("connected to the other gateway");
    for (server, client) in SERVER.into_iter().zip(CLIENT) {
        every_byte_both_ways(&row, server, client);
        refusals(&row, server);
        resets(&row, server);
    }
    asked(&row);
    many(&row);
    reload(&row, &mut terminal);
    metrics(&row);

    // Either gateway dies in mid-transfer: an error, never a short file with a clean end.
    let broken = half_a_file(&row, 90);
    hub.kill();
    // New connections pass by meanwhile, nothing hangs.
    every_byte_both_ways(&row, SERVER[0], CLIENT[0]);
    terminal.wait_for("new connections bypass the gateway");
    let mut hub = row.daemon(2, "hub");
    must_break(broken);
    terminal.wait_for("new connections are relayed again");
    every_byte_both_ways(&row, SERVER[0], CLIENT[0]);
    let broken = half_a_file(&row, 91);
    terminal.kill();
    must_break(broken);
    // With the terminal's gateway gone, its rules are gone too: connections pass by.
    until(&row, "no rules", |row| !row.shell(1, "nft list ruleset").contains("bentpipe"));
    every_byte_both_ways(&row, SERVER[0], CLIENT[0]);
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for("connected to the other gateway");
    every_byte_both_ways(&row, SERVER[1], CLIENT[1]);

    // Shut down in order: what is open may end.
    let listener = row.listen(SERVER[0], 92);
    let mut near = row.connect(SERVER[0], 92).unwrap();
    let mut far = listener.accept().unwrap().0;
    terminal.signal(libc::SIGTERM);
    terminal.wait_for("stopping");
    far.write_all(b"the rest").unwrap();
    drop(far);
    let mut rest = String::new();
    near.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "the rest");
    drop(near);
    assert!(terminal.child.wait().unwrap().success());
    assert_eq!(row.shell(1, "nft list ruleset; ip rule | grep fwmark; ip route show table 25200"), "");
    hub.signal(libc::SIGTERM);
    assert!(hub.child.wait().unwrap().success());
    std::fs::remove_dir_all(&row.folder).unwrap();
}

impl Row {
    fn new() -> Row {
        let sites = [(); 4].map(|()| Namespace::new().unwrap());
        for (n, site) in sites.iter().enumerate() {
            let next = sites.get(n + 1);
            let build = || {
                ip("link set lo up")?;
                write_sysctl("net.ipv4.ip_forward", "1")?;
                write_sysctl("net.ipv6.conf.all.forwarding", "1")?;
                if let Some(next) = next {
                    add_veth(next)?;
                }
                Ok(())
            };
            site.run(build).unwrap();
        }
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
        let folder = std::env::temp_dir().join(format!("bentpipe-gateway-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Row { sites, folder }
    }

    fn make_keys(&self) {
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
        let (hub, terminal) = (key("hub"), key("terminal"));
        let link = "[link]\nmtu = \"1500 B\"\nrate = \"50 Mbit/s\"\none_way_delay = \"10 ms\"\n";
        self.write("hub.toml", &format!("key = \"hub.key\"\npeer_key = \"{terminal}\"\ndrain = \"5 s\"\n{link}"));
        self.write(
            "terminal.toml",
            &format!(
                "hub = \"10.2.0.2:4433\"\nkey = \"terminal.key\"\npeer_key = \"{hub}\"\ndrain = \"5 s\"\n\
                 metrics = \"127.0.0.1:9464\"\nsocks = \"{SOCKS}\"\nconnect = \"{CONNECT}\"\n{link}\
                 [capture]\ninterfaces = [\"left\"]\n"
            ),
        );
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    fn daemon(&self, site: usize, role: &str) -> Daemon {
        let file = self.folder.join(format!("{role}.toml"));
        let checked = bentpipe().args(["gateway", role, "--check"]).arg(&file).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let spawn = || lend(bentpipe().args(["gateway", role]).arg(&file).stderr(Stdio::piped())).spawn();
        let mut child = self.sites[site].run(spawn).unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        let role = role.to_owned();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                eprintln!("{role}: {line}");
                let _ = sender.send(line);
            }
        });
        let mut daemon = Daemon { child, lines, seen: Vec::new() };
        daemon.wait_for("gateway, key");
        daemon
    }

    fn listen(&self, address: &str, port: u16) -> TcpListener {
        let address = SocketAddr::from((address.parse::<IpAddr>().unwrap(), port));
        self.sites[3].run(|| TcpListener::bind(address)).unwrap()
    }

    fn connect(&self, address: &str, port: u16) -> io::Result<TcpStream> {
        let address = SocketAddr::from((address.parse::<IpAddr>().unwrap(), port));
        let mut result = Err(ErrorKind::Other.into());
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, WAIT)?;
            stream.set_read_timeout(Some(WAIT))?;
            Ok(stream)
        };
        let run = self.sites[0].run(|| {
            result = connect();
            Ok(())
        });
        run.unwrap();
        result
    }

    fn shell(&self, site: usize, command: &str) -> String {
        let run = || lend(Command::new("/bin/sh").args(["-c", command]).env("PATH", PATH)).output();
        String::from_utf8(self.sites[site].run(run).unwrap().stdout).unwrap()
    }
}

impl Daemon {
    fn wait_for(&mut self, what: &str) {
        let deadline = Instant::now() + WAIT;
        while !self.seen.iter().any(|line| line.contains(what)) {
            let left = deadline.saturating_duration_since(Instant::now());
            self.seen.push(self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line says: {what}")));
        }
    }

    fn signal(&self, signal: libc::c_int) {
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bentpipe() -> Command {
    Command::new(Path::new(env!("CARGO_BIN_EXE_bentpipe")))
}

/// The next site is standard input: a program with fewer rights may not look into our descriptors.
fn add_veth(next: &Namespace) -> io::Result<()> {
    let arguments = "link add right type veth peer name left netns /proc/self/fd/0";
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).env("PATH", PATH).stdin(next.as_fd().try_clone_to_owned()?);
    match lend(&mut command).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments}"))),
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let output = lend(Command::new("ip").args(arguments.split(' ')).env("PATH", PATH)).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

fn until(row: &Row, what: &str, is_so: impl Fn(&Row) -> bool) {
    let deadline = Instant::now() + WAIT;
    while !is_so(row) {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn every_byte_both_ways(row: &Row, address: &str, client: &str) {
    let listener = row.listen(address, 80);
    let mut near = row.connect(address, 80).unwrap();
    let (mut far, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), client);
    let data: Vec<u8> = (0..300_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let sent = data.clone();
    let upload = std::thread::spawn(move || {
        near.write_all(&sent).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).unwrap();
        answer
    });
    let mut received = Vec::new();
    far.read_to_end(&mut received).unwrap();
    assert!(received == data, "upload");
    // The client's direction has ended; the other has not.
    far.write_all(&data).unwrap();
    drop(far);
    assert!(upload.join().unwrap() == data, "download");
}

fn refusals(row: &Row, address: &str) {
    assert_eq!(row.connect(address, 81).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let nobody = if address.contains(':') { "fd03::99" } else { "10.3.0.99" };
    assert_eq!(row.connect(nobody, 80).unwrap_err().kind(), ErrorKind::HostUnreachable);
}

fn resets(row: &Row, address: &str) {
    for by_client in [true, false] {
        let listener = row.listen(address, 82);
        let near = row.connect(address, 82).unwrap();
        let far = listener.accept().unwrap().0;
        far.set_read_timeout(Some(WAIT)).unwrap();
        let (gone, mut left) = if by_client { (near, far) } else { (far, near) };
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = size_of_val(&linger) as libc::socklen_t;
        let option = (&raw const linger).cast();
        assert_eq!(unsafe { libc::setsockopt(gone.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, option, size) }, 0);
        drop(gone);
        assert_eq!(left.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset, "by client: {by_client}");
    }
}

fn asked(row: &Row) {
    let listener = row.listen(SERVER[0], 83);
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
        }
    });
    let url = format!("http://{}:83/", SERVER[0]);
    let curl = |way: &str| row.shell(0, &format!("curl --silent --show-error --max-time 20 {way} {url} 2>&1"));
    assert_eq!(curl(&format!("--socks5 {SOCKS}")), "hello");
    assert_eq!(curl(&format!("--proxytunnel --proxy http://{CONNECT}")), "hello");
    server.join().unwrap();
}

fn many(row: &Row) {
    const CONNECTIONS: u32 = 200;
    let listener = row.listen("::", 84);
    let server = std::thread::spawn(move || {
        let echo = |mut stream: TcpStream| {
            let mut data = Vec::new();
            stream.read_to_end(&mut data).unwrap();
            stream.write_all(&data).unwrap();
        };
        let accepted = (0..CONNECTIONS).map(|_| listener.accept().unwrap().0);
        let echoes: Vec<_> = accepted.map(|stream| std::thread::spawn(move || echo(stream))).collect();
        echoes.into_iter().for_each(|echo| echo.join().unwrap());
    });
    std::thread::scope(|scope| {
        for n in 0..CONNECTIONS {
            scope.spawn(move || {
                let mut stream = row.connect(SERVER[n as usize % 2], 84).unwrap();
                let data = n.to_le_bytes().repeat(2_000 + n as usize);
                stream.write_all(&data).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut back = Vec::new();
                stream.read_to_end(&mut back).unwrap();
                assert!(back == data, "connection {n}");
            });
        }
    });
    server.join().unwrap();
}

fn reload(row: &Row, terminal: &mut Daemon) {
    let text = std::fs::read_to_string(row.folder.join("terminal.toml")).unwrap();
    let listener = row.listen(SERVER[0], 85);
    let mut near = row.connect(SERVER[0], 85).unwrap();
    let mut far = listener.accept().unwrap().0;
    row.write("terminal.toml", &text.replace("50 Mbit/s", "fast"));
    terminal.signal(libc::SIGHUP);
    terminal.wait_for("keeping what was read before");
    row.write("terminal.toml", &text.replace("50 Mbit/s", "20 Mbit/s"));
    terminal.signal(libc::SIGHUP);
    terminal.wait_for("link rate 20 Mbit/s");
    far.write_all(b"still here").unwrap();
    let mut seen = [0; 10];
    near.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"still here");
    row.write("terminal.toml", &text);
}

fn metrics(row: &Row) {
    std::thread::sleep(Duration::from_millis(500));
    let text = row.shell(1, "curl --silent --max-time 5 http://127.0.0.1:9464/metrics");
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
        line.trim().parse::<f64>().unwrap()
    };
    assert_eq!(value("bentpipe_gateway_connected "), 1.0);
    assert!(value("bentpipe_gateway_connections_relayed_total ") >= 200.0);
    assert!(value("bentpipe_gateway_link_sent_bytes_total ") > 1e6);
    assert_eq!(value("bentpipe_gateway_rate_declared_bits_per_second "), 20e6);
}

/// A download in progress.
fn half_a_file(row: &Row, port: u16) -> (TcpStream, TcpStream) {
    let listener = row.listen(SERVER[0], port);
    let mut near = row.connect(SERVER[0], port).unwrap();
    let mut far = listener.accept().unwrap().0;
    far.write_all(&[7; 10_000]).unwrap();
    let mut seen = [0; 10_000];
    near.read_exact(&mut seen).unwrap();
    (near, far)
}

fn must_break((mut near, _far): (TcpStream, TcpStream)) {
    let error = near.read(&mut [0]).expect_err("a clean end of half a file");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
