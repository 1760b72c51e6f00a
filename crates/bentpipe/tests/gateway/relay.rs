//! Every byte, refusals, resets, requests by SOCKS and CONNECT, reload, metrics, deaths and an orderly stop.

use super::peers::{ConnectionPair, a_reset_is_a_reset};
use super::row::{CLIENT, CONNECT, Daemon, Row, SERVER, SOCKS, every_byte_in_both_directions, until};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// What a pair does for its connections, and when one of the two dies.
pub fn run(_: bool) {
    let (row, mut hub, mut terminal) = Row::with_pair();
    for (server, client) in SERVER.into_iter().zip(CLIENT) {
        every_byte_in_both_directions(&row, server, client);
        refusals(&row, server);
        resets(&row, server);
    }
    requested(&row);
    many(&row);
    reload(&row, &mut terminal);
    metrics(&row);

    // Either gateway dies in mid-transfer: an error, never a short file with a clean end.
    let broken = half_a_file(&row, 90);
    hub.kill();
    // New connections pass by meanwhile, nothing hangs.
    every_byte_in_both_directions(&row, SERVER[0], CLIENT[0]);
    terminal.wait_for("new connections bypass the gateway");
    let mut hub = row.daemon(2, "hub");
    must_break(broken);
    terminal.wait_for("new connections are relayed again");
    every_byte_in_both_directions(&row, SERVER[0], CLIENT[0]);
    let broken = half_a_file(&row, 91);
    terminal.kill();
    must_break(broken);
    // With the terminal's gateway gone, its rules are gone too: connections pass by.
    until(&row, "no rules", |row| !row.shell(1, "nft list ruleset").contains("bentpipe"));
    every_byte_in_both_directions(&row, SERVER[0], CLIENT[0]);
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for("connected to the other gateway");
    every_byte_in_both_directions(&row, SERVER[1], CLIENT[1]);

    // Shut down in order: what is open may end.
    let (mut near, mut far) = row.ends(SERVER[0], 92);
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
}

fn refusals(row: &Row, address: &str) {
    assert_eq!(row.connect(address, 81).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let nobody = if address.contains(':') { "fd03::99" } else { "10.3.0.99" };
    assert_eq!(row.connect(nobody, 80).unwrap_err().kind(), ErrorKind::HostUnreachable);
}

fn resets(row: &Row, address: &str) {
    for by_client in [true, false] {
        a_reset_is_a_reset(row.ends(address, 82), by_client);
    }
}

fn requested(row: &Row) {
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
    let (mut near, mut far) = row.ends(SERVER[0], 85);
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
fn half_a_file(row: &Row, port: u16) -> ConnectionPair {
    let (mut near, mut far) = row.ends(SERVER[0], port);
    far.write_all(&[7; 10_000]).unwrap();
    let mut seen = [0; 10_000];
    near.read_exact(&mut seen).unwrap();
    (near, far)
}

fn must_break((mut near, _far): ConnectionPair) {
    let error = near.read(&mut [0]).expect_err("a clean end of half a file");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
