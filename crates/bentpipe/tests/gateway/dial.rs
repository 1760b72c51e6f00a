//! A terminal that dials by a hook: connections live while the line is down, and the line is down when the gateway is.

use super::peers::{ConnectionPair, WAIT};
use super::row::{Row, SERVER, bentpipe, until};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const LINGER: Duration = Duration::from_secs(2);
/// How soon the line must be down after the gateway was killed.
const DOWN: Duration = Duration::from_secs(5);
/// A kill is at any time of a call.
const KILLS: [u32; 2] = [5, 100];
/// With 1 s of set-up, which the hook takes too.
const LINK: &str = "mtu = \"1500 B\"\nrate = \"1 Mbit/s\"\none_way_delay = \"10 ms\"\n\
    circuit = { stages = [{ name = \"dial\", time = \"1 s\" }] }\n\
    tariff = { currency = \"EUR\", time = { price = \"0.60\", first = \"1 s\" } }\n";

pub fn run(full: bool) {
    let row = Row::new();
    let log = row.folder.join("log");
    row.write("hook", &format!("echo $1 $BENTPIPE_CALL >> {}\n[ $1 = down ] || sleep 1\n", log.display()));
    let hook = row.folder.join("hook");
    let dial =
        |keys: &str| format!("metrics = \"127.0.0.1:9464\"\ndial = {{ linger = \"{} s\"{keys} }}\n", LINGER.as_secs());
    let own = format!(
        ", hook = [\"/bin/sh\", {hook:?}], ledger = \"ledger\", calls_per_hour = 1000, calls_per_day = 1000, back_off = \"1 s\""
    );
    row.make_pair_on("", 4433, LINK, [&dial(""), &dial(&own)], "");
    row.edit("terminal.toml", "drain = \"5 s\"", "drain = \"0 s\"");
    let hub = row.daemon(2, "hub");
    let mut terminal = row.daemon(1, "terminal");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((log.exists(), row.metric("line_calls_total")), (false, Some(0.0)), "nobody asks for the line");
    let mut idle = open(&row, 160);
    is_down(&row, 1);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(row.metric("line_calls_total"), Some(1.0), "an idle connection sets nothing up");
    for call in 2..=3 {
        let took = says(&mut idle);
        println!("a word took {took:.2?} with a set-up of 1 s");
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(3), "{took:?}");
        is_down(&row, call);
    }
    assert_eq!(row.metric("connections_open"), Some(1.0));
    let lines = std::fs::read_to_string(&log).unwrap();
    assert_eq!(lines, "up 1\ndown 1\nup 2\ndown 2\nup 3\ndown 3\n");
    let cost = cost(&row);
    assert_eq!(cost["calls"].as_array().unwrap().len(), 3);
    for call in cost["calls"].as_array().unwrap() {
        let airtime = call["airtime_ns"].as_u64().unwrap();
        // A tenth of a second for the exchange, and the silence after it.
        assert!((2_000_000_000..4_500_000_000).contains(&airtime), "{call}");
        assert_eq!(call["cost_nano"].as_u64().unwrap(), airtime.div_ceil(1_000_000_000) * 10_000_000, "{call}");
        assert_eq!(call["end"], "idle");
    }
    // An orderly stop in a call ends it, and says so.
    says(&mut idle);
    terminal.signal(libc::SIGTERM);
    assert!(terminal.ended().success());
    assert!(std::fs::read_to_string(&log).unwrap().ends_with("up 4\ndown 4\n"));
    assert_eq!(self::cost(&row)["calls"][3]["end"], "gateway stopped");
    drop(idle);
    kills(&row, KILLS[usize::from(full)]);
    drop(hub);
}

/// Kills the terminal in a call, again and again, at different times of it.
fn kills(row: &Row, count: u32) {
    let log = row.folder.join("log");
    let mut slowest = Duration::ZERO;
    for kill in 0..count {
        let mut terminal = row.daemon(1, "terminal");
        let call = 5 + u64::from(kill);
        let listener = row.listen(SERVER[0], 161);
        // The request waits for the line; nobody waits for the request.
        let request = row.sites[0].run(|| begin(SERVER[0])).unwrap();
        until(row, "dialled", |_| read(&log).contains(&format!("up {call}\n")));
        // In its set-up, at its end, and while it lasts.
        std::thread::sleep(Duration::from_millis(u64::from(kill) * 450 % 2000));
        terminal.kill();
        let killed = Instant::now();
        let down = format!("down {call}\n");
        while !read(&log).contains(&down) {
            assert!(killed.elapsed() < DOWN, "kill {kill}: the line is still up");
            std::thread::sleep(Duration::from_millis(10));
        }
        slowest = slowest.max(killed.elapsed());
        drop((request, listener));
    }
    println!("{count} kills: the line was down after {slowest:.2?} at most");
    let cost = cost(row);
    let calls = cost["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 4 + count as usize, "every call is in the ledger");
}

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A connection attempt that waits.
fn begin(address: &str) -> std::io::Result<socket2::Socket> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
    let to: std::net::SocketAddr = format!("{address}:161").parse().unwrap();
    let _ = socket.connect(&to.into());
    Ok(socket)
}

/// A connection that is answered once the line is up.
fn open(row: &Row, port: u16) -> ConnectionPair {
    let begun = Instant::now();
    let ends = row.ends(SERVER[0], port);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    ends
}

/// A word of the client's: how long it took.
fn says((near, far): &mut ConnectionPair) -> Duration {
    let begun = Instant::now();
    let mut seen = [0; 5];
    far.set_read_timeout(Some(WAIT)).unwrap();
    near.write_all(b"hello").unwrap();
    far.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"hello");
    begun.elapsed()
}

fn is_down(row: &Row, calls: u64) {
    let down = |row: &Row| row.metric("line_up") == Some(0.0) && row.metric("line_calls_total") == Some(calls as f64);
    until(row, "the line is down", |row| {
        down(row) && read(&row.folder.join("log")).contains(&format!("down {calls}\n"))
    });
}

/// What `bentpipe gateway cost` prints.
fn cost(row: &Row) -> serde_json::Value {
    let file = row.folder.join("terminal.toml");
    let table = bentpipe().args(["gateway", "cost"]).arg(&file).output().unwrap();
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(table.status.success() && text.contains("EUR in all"), "{text}");
    let output = bentpipe().args(["gateway", "cost", "--json"]).arg(&file).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}
