//! What a gateway does with its machine, and what the machine does to it: rights, rules, logs, signals.

use super::row::{CLIENT, CONNECT, Daemon, Row, SERVER, SOCKS, WAIT, bentpipe, every_byte_in_both_directions, until};
use bentpipe_host::gateway::rights::lend;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Debian's user without rights, and the number of it.
const NOBODY: (&str, u32) = ("nobody", 65534);
/// CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW as /proc/PID/status shows them.
const NETWORK_RIGHTS: &str = "0000000000003400";
/// A refusal that needs no repeated SYN: Linux repeats it after a second.
const AT_ONCE: Duration = Duration::from_millis(900);
const CLOSED: &str = "bentpipe_25200_closed";

pub fn run(_: bool) {
    let row = Row::new();
    row.make_keys();
    let mut hub = row.daemon(2, "hub");
    full_disk(&row);
    service(&row);
    no_nft(&row);
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for("connected to the other gateway");
    nft_ends(&row, &mut terminal);
    names(&row, &mut hub);
    storm(&row, terminal);
    clamp(&row);
    closed(&row);
    hub.kill();
    bound(&row);
    no_rights(&row);
    unit(&row);
}

/// The rights over the network that we have, and a log that the test reads.
fn own_rights(command: &mut Command) -> &mut Command {
    lend(command.stderr(Stdio::piped()))
}

/// Nobody can write what it says: it works all the same.
fn full_disk(row: &Row) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut terminal = row.daemon_with(1, "terminal", |command| {
        lend(command.stderr(full));
    });
    row.until_connected();
    every_byte_in_both_directions(row, SERVER[0], CLIENT[0]);
    terminal.signal(libc::SIGTERM);
    assert!(terminal.ended().success());
}

/// As a service: JSON, a service manager that is notified, and a user without further rights.
fn service(row: &Row) {
    let is_root = rustix::process::geteuid().is_root();
    let text = std::fs::read_to_string(row.folder.join("terminal.toml")).unwrap();
    if is_root {
        row.edit("terminal.toml", "drain", &format!("user = \"{}\"\ndrain", NOBODY.0));
    } else {
        eprintln!("skipped: becoming another user: we are not root");
    }
    let path = row.folder.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    // The user that it has become may read them.
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    manager.set_read_timeout(Some(WAIT)).unwrap();
    let reported = || {
        let mut state = [0; 64];
        let length = manager.recv(&mut state).unwrap();
        String::from_utf8(state[..length].to_vec()).unwrap().trim_end().to_owned()
    };
    let change = |command: &mut Command| {
        own_rights(command.args(["--log", "json"]).env("NOTIFY_SOCKET", &path));
    };
    let mut terminal = row.daemon_with(1, "terminal", change);
    assert_eq!(reported(), "READY=1");
    // Ready means that connections are intercepted.
    assert!(row.shell(1, "nft list tables").contains("table inet bentpipe_25200"));
    terminal.wait_for("connected to the other gateway");
    if is_root {
        let ids = [NOBODY.1; 4].map(|id| id.to_string()).join("\t");
        assert_eq!((terminal.status("Uid"), terminal.status("Gid")), (ids.clone(), ids));
    }
    for set in ["CapEff", "CapPrm"] {
        assert_eq!(terminal.status(set), NETWORK_RIGHTS, "{set}");
    }
    assert_eq!(terminal.status("NoNewPrivs"), "1");
    let early_demux = || row.shell(1, "cat /proc/sys/net/ipv4/tcp_early_demux");
    assert_eq!(early_demux(), "0\n");
    every_byte_in_both_directions(row, SERVER[0], CLIENT[0]);
    every_byte_in_both_directions(row, SERVER[1], CLIENT[1]);
    terminal.signal(libc::SIGTERM);
    assert_eq!(reported(), "STOPPING=1");
    terminal.wait_for("stopped; ");
    assert!(terminal.ended().success());
    for line in &terminal.seen {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["/timestamp", "/level", "/fields/message", "/fields/kind"] {
            assert!(line.pointer(key).is_some_and(|value| value.is_string()), "{key} in {line}");
        }
    }
    assert_eq!(row.shell(1, "nft list ruleset"), "");
    assert_eq!(early_demux(), "1\n");
    row.write("terminal.toml", &text);
}

/// Before the program starts, in a file system of its own: `source` is mounted over `target`, or nothing if it is `None`.
fn cover(command: &mut Command, source: Option<&Path>, target: &Path) {
    let text = |path: &Path| CString::new(path.to_str().unwrap()).unwrap();
    let (source, target) = (source.map(text), text(target));
    let mount = move || {
        let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: between fork and exec only system calls on C strings that live through them.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let private = libc::MS_REC | libc::MS_PRIVATE;
            check(libc::mount(none.cast(), c"/".as_ptr(), none.cast(), private, none))?;
            match &source {
                Some(source) => check(libc::mount(source.as_ptr(), target.as_ptr(), none.cast(), libc::MS_BIND, none)),
                None => check(libc::mount(c"tmpfs".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, none)),
            }
        }
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(mount) };
}

fn no_nft(row: &Row) {
    let nft = row.shell(1, "readlink -f $(command -v nft)");
    let folder = PathBuf::from(nft.trim()).parent().unwrap().to_owned();
    if !folder.ends_with("sbin") {
        eprintln!("skipped: a machine without nft: here it is in {}", folder.display());
        return;
    }
    let change = |command: &mut Command| {
        cover(command, None, &folder);
        own_rights(command);
    };
    let mut terminal = row.daemon_with(1, "terminal", change);
    terminal.wait_for("the program nft is missing: install Debian's package nftables");
    assert!(!terminal.ended().success());
}

/// Somebody ends nft: the rules come again, and what was open goes on.
fn nft_ends(row: &Row, terminal: &mut Daemon) {
    let listener = row.listen(SERVER[0], 86);
    let mut near = row.connect(SERVER[0], 86).unwrap();
    let mut far = listener.accept().unwrap().0;
    // SAFETY: takes plain numbers.
    assert_eq!(unsafe { libc::kill(terminal.nft(), libc::SIGKILL) }, 0);
    // Nothing of an open connection may reach the server past the gateway meanwhile.
    let mut seen = [0; 8];
    for n in 0..20u64 {
        near.write_all(&n.to_le_bytes()).unwrap();
        far.read_exact(&mut seen).unwrap();
        assert_eq!(u64::from_le_bytes(seen), n);
        far.write_all(&seen).unwrap();
        near.read_exact(&mut seen).unwrap();
    }
    terminal.wait_for("somebody ended nft, and the firewall's rules with it: installed again");
    let relayed = row.metric("connections_relayed_total").unwrap();
    every_byte_in_both_directions(row, SERVER[0], CLIENT[0]);
    until(row, "relayed again", |row| row.metric("connections_relayed_total") == Some(relayed + 1.0));
    assert!(row.metric("bypass_packets_total").is_some());
}

/// A name with an address where nobody is and one where the server is.
fn names(row: &Row, hub: &mut Daemon) {
    let hosts = row.folder.join("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\nfd03::99 twins\n10.3.0.99 twins\n10.3.0.2 twins\n").unwrap();
    hub.kill();
    *hub = row.daemon_with(2, "hub", |command| {
        cover(command, Some(&hosts), Path::new("/etc/hosts"));
        own_rights(command);
    });
    hub.wait_for("gateway, key");
    // An idle terminal asks once a minute whether the hub is there: it learns of the new start from its next request.
    every_byte_in_both_directions(row, SERVER[0], CLIENT[0]);
    let listener = row.listen(SERVER[0], 87);
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    });
    let curl = |name: &str| {
        let way = format!("--silent --show-error --max-time 20 --socks5-hostname {SOCKS}");
        row.shell(0, &format!("curl {way} http://{name}:87/ 2>&1"))
    };
    assert_eq!(curl("twins"), "hello");
    server.join().unwrap();
    let unknown = curl("nobody.invalid");
    assert!(unknown.contains("(97)"), "{unknown}");
    loopback_by_name(row);
}

/// `loopback = false` holds for names too, whatever they are looked up as: a service of the hub alone is not reached.
fn loopback_by_name(row: &Row) {
    let listener = row.sites[2].run(|| TcpListener::bind("127.0.0.1:8099")).unwrap();
    listener.set_nonblocking(true).unwrap();
    for name in ["localhost", "127.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        for way in [format!("--socks5-hostname {SOCKS}"), format!("--proxytunnel --proxy http://{CONNECT}")] {
            let requested =
                format!("curl --globoff --silent --show-error --max-time 20 {way} http://{name}:8099/ 2>&1");
            let said = row.shell(0, &requested);
            // SOCKS5: not allowed by the ruleset (RFC 1928 §6).
            assert!(said.contains("(2)") || said.contains("403"), "{name}: {said}");
        }
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Many signals: reloads change nothing for connections, a second SIGTERM ends it at once, and the rules are gone.
fn storm(row: &Row, mut terminal: Daemon) {
    let listener = row.listen(SERVER[0], 88);
    let mut near = row.connect(SERVER[0], 88).unwrap();
    let mut far = listener.accept().unwrap().0;
    terminal.forget_lines();
    for _ in 0..200 {
        terminal.signal(libc::SIGHUP);
        std::thread::sleep(Duration::from_millis(1));
    }
    terminal.wait_for("again: link rate 50 Mbit/s");
    far.write_all(b"still here").unwrap();
    let mut seen = [0; 10];
    near.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"still here");
    terminal.signal(libc::SIGTERM);
    terminal.signal(libc::SIGHUP);
    terminal.wait_for("stopping: 1 connections");
    for _ in 0..20 {
        terminal.signal(libc::SIGTERM);
    }
    assert_eq!(terminal.ended().code(), Some(1));
    assert_eq!(near.read(&mut seen).unwrap_err().kind(), ErrorKind::ConnectionReset);
    until(row, "no rules", |row| row.shell(1, "nft list ruleset").is_empty());
}

/// What passes by may not ask for longer segments than the way carries.
fn clamp(row: &Row) {
    const NARROW: i32 = 1300;
    let keys = "interfaces = [\"left\", \"lift\"]\nexcept_ports = [\"89\"]";
    row.edit("terminal.toml", "interfaces = [\"left\"]", keys);
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for("there is no interface \"lift\"");
    terminal.wait_for("there are: lo, ");
    row.until_connected();
    row.shell(1, &format!("ip link set right mtu {NARROW}"));
    for (address, headers) in [(SERVER[0], 40), (SERVER[1], 60)] {
        let listener = row.listen(address, 89);
        let _near = row.connect(address, 89).unwrap();
        let far = listener.accept().unwrap().0;
        let segment = segment_size(&far);
        // Timestamps take 12 bytes of a segment.
        assert_eq!(segment, NARROW - headers - 12, "{address}");
    }
    row.shell(1, "ip link set right mtu 1500");
    drop(terminal);
    until(row, "no rules", |row| row.shell(1, "nft list ruleset").is_empty());
    row.edit("terminal.toml", keys, "interfaces = [\"left\"]");
}

fn segment_size(stream: &TcpStream) -> i32 {
    let mut size: libc::c_int = 0;
    let mut length = size_of_val(&size) as libc::socklen_t;
    // SAFETY: the kernel writes four bytes to a live integer.
    let requested = unsafe {
        let option = (&raw mut size).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, option, &raw mut length)
    };
    assert_eq!(requested, 0);
    size
}

/// `fail = "closed"`: without the gateway nothing passes.
fn closed(row: &Row) {
    row.edit("terminal.toml", "drain", "fail = \"closed\"\ndrain");
    let listeners = SERVER.map(|address| {
        let listener = row.listen(address, 93);
        listener.set_nonblocking(true).unwrap();
        listener
    });
    let mut terminal = row.daemon(1, "terminal");
    row.until_connected();
    relays(row, &listeners);
    terminal.kill();
    until(row, "no own rules", |row| !row.shell(1, "nft list tables").contains("bentpipe_25200\n"));
    assert!(row.shell(1, "nft list tables").contains(CLOSED));
    for address in SERVER {
        for _ in 0..20 {
            let begun = Instant::now();
            assert_eq!(row.connect(address, 93).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        }
    }
    assert!(listeners.iter().all(|listener| listener.accept().is_err()), "a connection has passed");
    let mut terminal = row.daemon(1, "terminal");
    row.until_connected();
    relays(row, &listeners);
    // Without nft for a moment: refused, or relayed, and never past the gateway.
    let relayed = row.metric("connections_relayed_total").unwrap();
    // SAFETY: takes plain numbers.
    assert_eq!(unsafe { libc::kill(terminal.nft(), libc::SIGKILL) }, 0);
    let opened = (0..100).filter(|_| row.connect(SERVER[0], 93).is_ok()).count();
    terminal.wait_for("installed again");
    let accepted = std::iter::from_fn(|| listeners[0].accept().ok()).count();
    assert_eq!(opened, accepted);
    until(row, "all counted", |row| row.metric("connections_relayed_total") == Some(relayed + accepted as f64));
    // An orderly stop opens the way again.
    terminal.signal(libc::SIGTERM);
    assert!(terminal.ended().success());
    assert_eq!(row.shell(1, "nft list ruleset"), "");
    assert!(row.connect(SERVER[0], 93).is_ok());
    row.edit("terminal.toml", "fail = \"closed\"\n", "");
}

fn relays(row: &Row, listeners: &[TcpListener; 2]) {
    for (address, listener) in SERVER.into_iter().zip(listeners) {
        let before = row.metric("connections_relayed_total").unwrap();
        row.connect(address, 93).unwrap();
        until(row, "accepted", |_| listener.accept().is_ok());
        until(row, "counted", |row| row.metric("connections_relayed_total") == Some(before + 1.0));
    }
}

/// Listeners and the pair's sockets are where the files say, and nowhere else: whoever reaches a proxy uses the hub.
fn bound(row: &Row) {
    let sockets = |site, wanted: &dyn Fn(&str, &str) -> bool| {
        let all = row.shell(site, "ss -Hltun");
        let ends = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = ends.filter(|columns| wanted(columns[0], columns[4]));
        found.map(|columns| format!("{} {}", columns[0], columns[4])).collect::<BTreeSet<String>>()
    };
    let text = std::fs::read_to_string(row.folder.join("hub.toml")).unwrap();
    for (listen, udp) in [
        ("", "*:4433"),
        ("listen = \"10.2.0.2:4433\"\n", "[::ffff:10.2.0.2]:4433"),
        ("listen = \"0.0.0.0:4433\"\n", "[::ffff:0.0.0.0]:4433"),
        ("listen = \"[fd02::2]:4433\"\n", "[fd02::2]:4433"),
    ] {
        let proxies = "connect = \"127.0.0.1:4433\"\nsocks = \"0.0.0.0:1080\"\n";
        let text = text.replace("listen = \"0.0.0.0:4433\"\n", &format!("{listen}{proxies}"));
        row.write("hub-bound.toml", &text);
        let mut hub = row.daemon(2, "hub-bound");
        let seen = sockets(2, &|_, end| end.ends_with(":4433") || end.ends_with(":1080"));
        let udp = format!("udp {udp}");
        let expected = [udp.as_str(), "tcp 127.0.0.1:4433", "tcp 0.0.0.0:1080"];
        assert_eq!(seen, expected.map(str::to_owned).into(), "{listen}");
        hub.signal(libc::SIGTERM);
        assert!(hub.ended().success());
    }
    row.edit("terminal.toml", "drain", "listen = \"10.2.0.1:0\"\ndrain");
    let terminal = row.daemon(1, "terminal");
    let seen = sockets(1, &|protocol, _| protocol == "udp");
    assert!(seen.len() == 1 && seen.iter().all(|end| end.starts_with("udp [::ffff:10.2.0.1]:")), "{seen:?}");
    drop(terminal);
    row.edit("terminal.toml", "listen = \"10.2.0.1:0\"\n", "");
}

/// Without rights a gateway does not intercept, and says so; a hub works, and says what it cannot do.
fn no_rights(row: &Row) {
    row.make_pair("-plain", 4435, "50 Mbit/s", ["", &format!("socks = \"{SOCKS}\"\n")], "");
    if rustix::process::geteuid().is_root() {
        for file in std::fs::read_dir(&row.folder).unwrap() {
            std::os::unix::fs::chown(file.unwrap().path(), Some(NOBODY.1), Some(NOBODY.1)).unwrap();
        }
    }
    let plain = |command: &mut Command| {
        command.stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY.1).gid(NOBODY.1);
        }
    };
    let mut terminal = row.daemon_with(1, "terminal-plain", plain);
    terminal.wait_for("[intercept] needs root, or the capabilities CAP_NET_ADMIN and CAP_NET_RAW");
    assert_eq!(terminal.ended().code(), Some(2));
    row.edit("terminal-plain.toml", "[intercept]\ninterfaces = [\"left\"]\n", "");
    let mut hub = row.daemon_with(2, "hub-plain", plain);
    hub.wait_for("servers see this gateway's address, not their clients'");
    let mut terminal = row.daemon_with(1, "terminal-plain", plain);
    terminal.wait_for("connected to the other gateway");
    for set in ["CapEff", "CapPrm"] {
        assert_eq!(terminal.status(set), "0000000000000000", "{set}");
    }
    let listener = row.listen(SERVER[0], 94);
    let server = std::thread::spawn(move || {
        let (mut stream, from) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
        from.ip().to_string()
    });
    let curl = format!("curl --silent --show-error --max-time 20 --socks5 {SOCKS} http://{}:94/ 2>&1", SERVER[0]);
    assert_eq!(row.shell(0, &curl), "hello");
    assert_eq!(server.join().unwrap(), "10.3.0.1");
    for mut daemon in [terminal, hub] {
        daemon.signal(libc::SIGTERM);
        assert!(daemon.ended().success());
    }
}

/// The unit for systemd, where its checker is.
fn unit(row: &Row) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/bentpipe-gateway@.service");
    let text = std::fs::read_to_string(shipped).unwrap();
    // The checker looks for the program and the manual page.
    let lines = text.lines().filter(|line| !line.starts_with("Documentation="));
    let program = bentpipe().get_program().to_str().unwrap().to_owned();
    let text: String = lines.map(|line| line.replace("/usr/local/bin/bentpipe", &program) + "\n").collect();
    row.write("bentpipe-gateway@hub.service", &text);
    let file = row.folder.join("bentpipe-gateway@hub.service");
    match Command::new("systemd-analyze").arg("verify").arg(file).output() {
        Err(error) => eprintln!("skipped: systemd's check of the unit: {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("bentpipe-gateway"), "{said}");
        }
    }
}
