//! What the kernel at one end of a relayed connection sees of the other end.

use super::peers::{
    ConnectionPair, WAIT, an_urgent_byte_arrives, class_of_syn, every_byte_in_both_directions, socket_address,
};
use super::row::{CLIENT, Row, SERVER};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// DSCP EF (RFC 3246 §4), in its place in the traffic class, and with ECN's bits, which are each side's own.
const EXPEDITED: u8 = 46 << 2;
const ECN: u8 = 3;
/// Of a server whose host answers no SYN.
const MUTE: u16 = 110;
/// Of a server whose host says that it may not be reached.
const PROHIBITED: u16 = 111;
/// A network that the hub has no way to, by both families.
const NOWHERE: [&str; 2] = ["10.77.0.1", "fd77::1"];

pub fn run(_: bool) {
    let (row, hub, terminal) = Row::with_pair();
    for (address, client) in SERVER.into_iter().zip(CLIENT) {
        // The server ends its direction first; the client goes on.
        every_byte_in_both_directions(row.ends(address, 105), 300_000, false);
        // The server reads before the end what the client had sent when it ended.
        last_words(row.ends(address, 106));
        last_words(swapped(row.ends(address, 106)));
        an_urgent_byte_arrives(row.ends(address, 107));
        an_urgent_byte_arrives(swapped(row.ends(address, 107)));
        for class in [0, EXPEDITED, EXPEDITED | ECN] {
            let (seen, (near, far)) = class_of_syn(&row.sites[0], &row.listen(address, 108), class);
            assert_eq!(seen & !ECN, class & !ECN, "{address}: of {class:#x}");
            assert_eq!(far.peer_addr().unwrap().ip().to_string(), client);
            let near = TcpStream::from(near);
            an_urgent_byte_arrives((near, far));
        }
    }
    unreachable(&row);
    answered_late(&row);
    drop(terminal);
    row.edit("terminal.toml", "drain", "open = \"early\"\ndrain");
    let terminal = row.daemon(1, "terminal");
    row.until_connected();
    answered_early(&row);
    drop((hub, terminal));
}

fn swapped((near, far): ConnectionPair) -> ConnectionPair {
    (far, near)
}

/// Whoever writes and goes at once has said everything.
fn last_words((mut from, mut to): ConnectionPair) {
    let said = vec![7; 200_000];
    let copy = said.clone();
    let writer = std::thread::spawn(move || {
        from.write_all(&copy).unwrap();
        drop(from);
    });
    to.set_read_timeout(Some(WAIT)).unwrap();
    let mut heard = Vec::new();
    to.read_to_end(&mut heard).unwrap();
    writer.join().unwrap();
    assert!(heard == said, "{} B of {}", heard.len(), said.len());
}

/// No way to the server, or one that is forbidden: the client sees what it would see without the pair. (Nobody at the
/// address, and nobody at the port: `relay`.)
fn unreachable(row: &Row) {
    // What a gateway's own machine has no way to is none of the pair's.
    for (site, ways) in [(0, ["10.1.0.2", "fd01::2"]), (1, ["10.2.0.2", "fd02::2"])] {
        for (network, via) in ["10.77.0.0/16", "fd77::/16"].into_iter().zip(ways) {
            assert_eq!(row.shell(site, &format!("ip route add {network} via {via} 2>&1")), "");
        }
    }
    let nowhere = "ip route add unreachable 10.77.0.0/16; ip route add unreachable fd77::/16";
    assert_eq!(row.shell(2, &format!("({nowhere}) 2>&1")), "");
    filter(row, &format!("tcp dport {PROHIBITED} reject with icmpx admin-prohibited"));
    for family in 0..2 {
        for (address, port, what) in
            [(NOWHERE[family], 80, "no way"), (SERVER[family], PROHIBITED, "forbidden by the server's host")]
        {
            let begun = Instant::now();
            let error = row.connect(address, port).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{address}: {what}: {error}");
            // Not by giving up.
            assert!(begun.elapsed() < WAIT / 2, "{address}: {what}: after {:?}", begun.elapsed());
        }
    }
    assert_eq!(row.shell(3, "nft delete table inet filter 2>&1"), "");
}

/// The server's host does so with what comes in.
fn filter(row: &Row, rule: &str) {
    let chain = "chain inet filter in { type filter hook input priority 0; policy accept; }";
    let said = row.shell(3, &format!("nft 'add table inet filter; add {chain}; add rule inet filter in {rule}' 2>&1"));
    assert_eq!(said, "");
}

/// A client that has begun to connect.
fn beginning(row: &Row, to: SocketAddr) -> Socket {
    let begin = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    };
    row.sites[0].run(begin).unwrap()
}

/// The client's SYN is answered when the server has answered, and no sooner.
fn answered_late(row: &Row) {
    filter(row, &format!("tcp dport {MUTE} drop"));
    let listeners = SERVER.map(|address| row.listen(address, MUTE));
    let clients = SERVER.map(|address| beginning(row, socket_address(address, MUTE)));
    // Far more than the way there and back takes.
    std::thread::sleep(Duration::from_secs(2));
    for client in &clients {
        assert_eq!(client.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected, "answered before the server");
    }
    assert_eq!(row.shell(3, "nft delete table inet filter 2>&1"), "");
    for (listener, client) in listeners.iter().zip(clients) {
        // The hub's next SYN.
        let (mut far, from) = listener.accept().unwrap();
        far.write_all(b"welcome").unwrap();
        let deadline = Instant::now() + WAIT;
        while client.peer_addr().is_err() {
            assert!(Instant::now() < deadline, "the server has answered, the client knows nothing of it");
            std::thread::sleep(Duration::from_millis(5));
        }
        client.set_nonblocking(false).unwrap();
        let mut near = TcpStream::from(client);
        assert_eq!(near.local_addr().unwrap().port(), from.port());
        let mut seen = [0; 7];
        near.set_read_timeout(Some(WAIT)).unwrap();
        near.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"welcome");
    }
}

/// `open = "early"`: answered though the server has not; a refusal is then a reset, and never an end.
fn answered_early(row: &Row) {
    filter(row, &format!("tcp dport {MUTE} drop"));
    let listeners = SERVER.map(|address| row.listen(address, MUTE));
    let mut clients = SERVER.map(|address| row.connect(address, MUTE).unwrap());
    for client in &mut clients {
        client.write_all(b"before the server is there").unwrap();
    }
    assert_eq!(row.shell(3, "nft delete table inet filter 2>&1"), "");
    for (listener, client) in listeners.iter().zip(clients) {
        let mut far = listener.accept().unwrap().0;
        let mut seen = [0; 26];
        far.set_read_timeout(Some(WAIT)).unwrap();
        far.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"before the server is there");
        every_byte_in_both_directions((client, far), 10_000, true);
    }
    for address in SERVER {
        // Nobody listens there. The reset may come before the call returns.
        let end = row.connect(address, 112).and_then(|mut near| near.read(&mut [0]));
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset, "{address}");
    }
}
