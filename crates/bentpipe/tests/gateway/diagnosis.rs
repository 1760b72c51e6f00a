//! A pair that does not connect, or whose files or machine do not fit, says why.

use super::row::{Row, bentpipe};
use bentpipe_host::gateway::rights::lend;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

const LINK: &str = "mtu = \"1500 B\"\none_way_delay = \"10 ms\"\nforward = { rate = \"10 Mbit/s\" }\n\
                    return = { rate = \"1 Mbit/s\" }\n";
const HUB: &str = "10.2.0.2:4433";
/// Attempts to connect take four seconds at least.
const ATTEMPT: Duration = Duration::from_secs(15);

pub fn run(_: bool) {
    let row = Row::new();
    row.make_pair_on("", 4433, LINK, ["", ""], "");
    checked(&row);
    no_hub(&row);
    taken_port(&row);
    files_that_differ(&row);
    wrong_key(&row);
}

/// `--check` at a site.
fn check(row: &Row, site: usize, name: &str) -> Output {
    let role = if name.starts_with("hub") { "hub" } else { "terminal" };
    let file = row.folder.join(format!("{name}.toml"));
    let run = || lend(bentpipe().args(["gateway", role, "--check"]).arg(&file)).output();
    row.sites[site].run(run).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn checked(row: &Row) {
    let terminal = std::fs::read_to_string(row.folder.join("terminal.toml")).unwrap();
    for (site, name) in [(1, "terminal"), (2, "hub")] {
        let output = check(row, site, name);
        assert!(output.status.success() && !text(&output.stdout).contains("warning"), "{output:?}");
    }
    row.edit("terminal.toml", "\"left\"", "\"lift\"");
    row.edit("terminal.toml", "mtu = \"1500 B\"", "mtu = \"9000 B\"");
    row.edit("terminal.toml", HUB, "hub.invalid:4433");
    row.shell(1, "echo 0 > /proc/sys/net/ipv4/ip_forward");
    let output = check(row, 1, "terminal");
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    for warning in [
        "warning: there is no interface \"lift\"",
        "warning: the hub's name hub.invalid:4433 was not found: ",
        "warning: the sysctl net.ipv4.ip_forward is 0: ",
    ] {
        assert!(said.contains(warning), "{warning} is not in {said}");
    }
    row.edit("terminal.toml", "hub.invalid:4433", HUB);
    let said = text(&check(row, 1, "terminal").stdout);
    assert!(
        said.contains(&format!("the link's mtu is 9000 B, but the route to the hub at {HUB} has 1500 B")),
        "{said}"
    );
    // The daemon warns of it, too.
    row.write("terminal.toml", &terminal);
    let mut daemon = row.daemon(1, "terminal");
    daemon.wait_for("the sysctl net.ipv4.ip_forward is 0");
    row.shell(1, "echo 1 > /proc/sys/net/ipv4/ip_forward");
    // Its own key.
    let own = bentpipe().args(["gateway", "keys", "--show"]).arg(row.folder.join("hub.key")).output().unwrap();
    let hub = std::fs::read_to_string(row.folder.join("hub.toml")).unwrap();
    let line = hub.lines().find(|line| line.starts_with("peer_key")).unwrap();
    row.edit("hub.toml", line, &format!("peer_key = \"{}\"", text(&own.stdout).trim()));
    let output = check(row, 2, "hub");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("peer_key: this is the public key of this gateway itself"), "{output:?}");
    row.write("hub.toml", &hub);
}

/// The hub's machine answers that nothing listens; by its name, too.
fn no_hub(row: &Row) {
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for_within(&format!("no connection to the hub at {HUB}: nothing listens there"), ATTEMPT);
    let _hub = row.daemon(2, "hub");
    terminal.wait_for_within("connected to the other gateway", ATTEMPT);
    terminal.kill();
    // Nothing at all: packets vanish.
    row.edit("terminal.toml", HUB, "10.2.7.7:4433");
    row.shell(1, "ip neigh add 10.2.7.7 lladdr 02:00:00:00:07:07 dev right nud permanent");
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for_within("no connection to the hub at 10.2.7.7:4433: nothing answers", ATTEMPT);
    terminal.kill();
    // A name, of which every machine knows the address: its own, where nothing listens.
    row.edit("terminal.toml", "10.2.7.7:4433", "localhost:4433");
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for("the hub is at ");
    terminal.wait_for_within(":4433: nothing listens there", ATTEMPT);
    terminal.kill();
    row.edit("terminal.toml", "localhost:4433", HUB);
}

/// The hub is ready once it can receive.
fn taken_port(row: &Row) {
    let path: PathBuf = row.folder.join("ready");
    let manager = UnixDatagram::bind(&path).unwrap();
    let taken = row.sites[2].run(|| UdpSocket::bind("[::]:4433")).unwrap();
    let mut hub = row.daemon_with(2, "hub", |command| {
        lend(command.env("NOTIFY_SOCKET", &path).stderr(std::process::Stdio::piped()));
    });
    hub.wait_for("cannot open the UDP port 4433");
    hub.wait_for("hub gateway, key");
    manager.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut state = [0; 64];
    assert!(manager.recv(&mut state).is_err(), "ready without a port: {}", text(&state));
    drop(taken);
    manager.set_read_timeout(Some(super::row::WAIT)).unwrap();
    let length = manager.recv(&mut state).unwrap();
    assert_eq!(text(&state[..length]).trim_end(), "READY=1");
}

fn files_that_differ(row: &Row) {
    row.edit("terminal.toml", "10 Mbit/s", "1 Mbit/s");
    let [mut hub, mut terminal] = row.start_pair();
    terminal.wait_for("the forward link has 1 Mbit/s here and 10 Mbit/s at the other gateway");
    hub.wait_for("the forward link has 10 Mbit/s here and 1 Mbit/s at the other gateway");
    // Mended by a reload.
    row.edit("terminal.toml", "forward = { rate = \"1 Mbit/s\"", "forward = { rate = \"10 Mbit/s\"");
    hub.forget_lines();
    terminal.signal(libc::SIGHUP);
    terminal.wait_for("incoming 10 Mbit/s");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(hub.count_lines("differ"), 0, "{:?}", hub.seen);
    // And spoilt by one.
    row.edit("terminal.toml", "return = { rate = \"1 Mbit/s\"", "return = { rate = \"2 Mbit/s\"");
    terminal.signal(libc::SIGHUP);
    hub.wait_for("the return link has 1 Mbit/s here and 2 Mbit/s at the other gateway");
    row.edit("terminal.toml", "2 Mbit/s", "1 Mbit/s");
}

/// A terminal with another key: both say which.
fn wrong_key(row: &Row) {
    let mut hub = row.daemon(2, "hub");
    let out = row.folder.join("other.key");
    let made = bentpipe().args(["gateway", "keys", "--out"]).arg(&out).output().unwrap();
    let public = text(&made.stdout).trim().to_owned();
    row.edit("terminal.toml", "terminal.key", "other.key");
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for(&format!("the gateway at {HUB} does not know this one's key"));
    hub.wait_for("refused a gateway with an unknown key at 10.2.0.1:");
    hub.wait_for(&format!(": {public} is not the configured peer_key"));
}
