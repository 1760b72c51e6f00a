//! A client that uses a port again finds its server, whatever the gateways' kernels still know of the port's last
//! connection.

use super::row::{CLIENT, Row, SERVER, until};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// What a passing connection may take for a question and its answer: two repetitions of a SYN (1 + 2 s, RFC 6298 §2) and
/// the terminal's grace.
const PATIENCE: Duration = Duration::from_secs(8);
const PORT: u16 = 95;

/// Who ends a relayed connection first, and keeps it in TIME-WAIT (RFC 9293 §3.6.1) on this side of the link.
#[derive(Clone, Copy, PartialEq)]
enum ClosesFirst {
    /// The terminal's kernel keeps it.
    Server,
    /// The hub's kernel keeps it.
    Client,
}

pub fn run(_: bool) {
    let row = Row::new();
    row.make_keys();
    // A client that knows nothing of its earlier connections: another machine behind the same address, or restarted.
    row.sites[0].run(|| bentpipe_host::namespace::write_sysctl("net.ipv4.tcp_max_tw_buckets", "0")).unwrap();
    let listeners = SERVER.map(|address| row.listen(address, PORT));
    let mut hub = row.daemon(2, "hub");
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for("connected to the other gateway");

    let mut failures = Vec::new();
    // With the terminal dead, connections pass by: the hub is alive and knows their ports.
    for (family, listener) in listeners.iter().enumerate() {
        relayed(&row, family, listener, 4001, ClosesFirst::Server);
        relayed(&row, family, listener, 4002, ClosesFirst::Client);
        assert!(keeps(&row, 1, 4001) && keeps(&row, 2, 4002), "nobody is in TIME-WAIT");
    }
    let mut open: Vec<_> = (0..2).map(|family| open(&row, family, &listeners[family], 4003)).collect();
    terminal.kill();
    for (near, _) in &mut open {
        assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    until(&row, "no rules", |row| !row.shell(1, "nft list tables").contains("bentpipe"));
    let mut passing = Vec::new();
    for (family, listener) in listeners.iter().enumerate() {
        for (port, what) in [
            (4002, "the hub's kernel keeps an ended connection with its port"),
            (4003, "the hub has an open connection with its port"),
        ] {
            note(&mut failures, family, what, again(&row, family, listener, port).map(drop));
        }
        let what = "nobody but the terminal's kernel keeps an ended connection with its port";
        match again(&row, family, listener, 4001) {
            Ok(ends) => passing.push((family, ends)),
            Err(error) => note(&mut failures, family, what, Err(error)),
        }
    }
    // What passes by goes on when the terminal is back.
    let mut terminal = row.daemon(1, "terminal");
    row.until_connected();
    for (family, (near, far)) in &mut passing {
        assert!(keeps(&row, 1, 4001), "nobody is in TIME-WAIT");
        note(
            &mut failures,
            *family,
            "it passed by before the terminal, whose kernel keeps one with its port, came",
            talk(near, far),
        );
    }
    drop(passing);

    // With the hub dead, the terminal sends requests past itself.
    for (family, listener) in listeners.iter().enumerate() {
        relayed(&row, family, listener, 4004, ClosesFirst::Server);
        assert!(keeps(&row, 1, 4004), "nobody is in TIME-WAIT");
    }
    hub.kill();
    for (family, listener) in listeners.iter().enumerate() {
        let what = "the terminal's kernel keeps an ended connection with its port";
        note(&mut failures, family, what, again(&row, family, listener, 4004).map(drop));
    }
    terminal.wait_for("new connections bypass the gateway");
    assert!(failures.is_empty(), "{failures:#?}");
}

fn note(failures: &mut Vec<String>, family: usize, what: &str, found: io::Result<()>) {
    if let Err(error) = found {
        failures.push(format!("{}: {what}: {error}", ["IPv4", "IPv6"][family]));
    }
}

/// True if a site's kernel keeps an ended connection of the client's port.
fn keeps(row: &Row, site: usize, port: u16) -> bool {
    row.shell(site, "ss -H -tan state time-wait").contains(&format!(":{port}"))
}

/// A connection from start to end, which the pair relays.
fn relayed(row: &Row, family: usize, listener: &TcpListener, port: u16, first: ClosesFirst) {
    let (mut near, mut far) = open(row, family, listener, port);
    talk(&mut near, &mut far).unwrap();
    let (gone, mut left) = if first == ClosesFirst::Server { (far, near) } else { (near, far) };
    drop(gone);
    assert_eq!(left.read(&mut [0]).unwrap(), 0);
    drop(left);
    let site = if first == ClosesFirst::Server { 1 } else { 2 };
    until(row, "TIME-WAIT", |row| keeps(row, site, port));
}

fn open(row: &Row, family: usize, listener: &TcpListener, port: u16) -> (TcpStream, TcpStream) {
    let relayed = row.metric("connections_relayed_total").unwrap();
    let (near, far) = again(row, family, listener, port).unwrap();
    until(row, "relayed", |row| row.metric("connections_relayed_total") > Some(relayed));
    assert_eq!(far.peer_addr().unwrap().port(), port, "the server sees the client's own port");
    (near, far)
}

/// Connects from the client's `port`, asks and is answered.
fn again(row: &Row, family: usize, listener: &TcpListener, port: u16) -> io::Result<(TcpStream, TcpStream)> {
    let ends = [CLIENT[family], SERVER[family]].map(|address| address.parse::<IpAddr>().unwrap());
    let [from, to] = [SocketAddr::new(ends[0], port), SocketAddr::new(ends[1], PORT)];
    let mut connected: io::Result<TcpStream> = Err(ErrorKind::Other.into());
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&from.into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Ok(TcpStream::from(socket))
    };
    let run = row.sites[0].run(|| {
        connected = connect();
        Ok(())
    });
    run.unwrap();
    let mut near = connected?;
    listener.set_nonblocking(true)?;
    let begun = std::time::Instant::now();
    // One whose client has gone meanwhile is not ours.
    let mut far = loop {
        match listener.accept() {
            Ok((far, from)) if from.port() == port => break far,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(io::Error::new(error.kind(), "the server sees no connection")),
        }
    };
    far.set_nonblocking(false)?;
    talk(&mut near, &mut far)?;
    Ok((near, far))
}

fn talk(near: &mut TcpStream, far: &mut TcpStream) -> io::Result<()> {
    send_hello(near, far)?;
    send_hello(far, near)
}

fn send_hello(from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
    let mut seen = [0; 5];
    from.write_all(b"hello")?;
    to.set_read_timeout(Some(PATIENCE))?;
    to.read_exact(&mut seen)?;
    assert_eq!(&seen, b"hello");
    Ok(())
}
