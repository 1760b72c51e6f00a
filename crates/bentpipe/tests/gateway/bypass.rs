//! What is not relayed, and what each side's kernel does for itself.

use super::peers::socket_address;
use super::row::{CLIENT, Daemon, Row, SERVER, WAIT, until};
use bentpipe_host::namespace::write_sysctl;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

const PORT: u16 = 96;
/// Of `tcpi_options` (linux/tcp.h).
const OPTION_ECN: u8 = 8;

pub fn run(_: bool) {
    let row = Row::new();
    let metrics = "metrics = \"127.0.0.1:9464\"\n";
    row.make_pair("", 4433, "50 Mbit/s", [metrics, metrics], "");
    let [mut hub, terminal] = row.start_pair();
    hub.wait_for("connected to the other gateway");
    // The hub captures nothing.
    for (site, device) in [(1, "\"right\""), (2, "\"left\"")] {
        until(&row, "the way to the other gateway is known", |row| {
            row.shell(site, "nft list set inet bentpipe_25200 link").contains(device)
        });
    }
    for family in 0..2 {
        datagrams(&row, family, Path::Up);
        datagrams(&row, family, Path::Down);
        echoes(&row, family);
    }
    ecn(&row);
    others(&row);
    keep_alive(&row, [&hub, &terminal]);
}

#[derive(Clone, Copy, PartialEq)]
enum Path {
    Up,
    Down,
}

fn counted(row: &Row) -> [f64; 2] {
    [1, 2].map(|site| row.metric_at(site, "bypass_packets_total").unwrap())
}

/// Waits until terminal and hub have counted so many more; neither counts what comes to it over the link.
fn must_count(row: &Row, before: [f64; 2], more: [u32; 2]) {
    let expected = [before[0] + f64::from(more[0]), before[1] + f64::from(more[1])];
    until(row, &format!("counted {expected:?}"), |row| counted(row) == expected);
}

/// UDP passes unchanged, and is counted where it goes to the link.
fn datagrams(row: &Row, family: usize, path: Path) {
    const COUNT: u32 = 500;
    let bind = |site: usize, address: &str, port| {
        let address = SocketAddr::from((address.parse::<IpAddr>().unwrap(), port));
        let socket = row.sites[site].run(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        socket
    };
    let (client, server) = (bind(0, CLIENT[family], 5000), bind(3, SERVER[family], 5001));
    let (from, to) = if path == Path::Up { (client, server) } else { (server, client) };
    let before = counted(row);
    let mut seen = [0; 2000];
    for n in 0..COUNT {
        let sent = n.to_le_bytes().repeat(1 + n as usize % 300);
        from.send_to(&sent, to.local_addr().unwrap()).unwrap();
        let (length, sender) = to.recv_from(&mut seen).unwrap();
        assert_eq!((&seen[..length], sender), (&sent[..], from.local_addr().unwrap()));
    }
    must_count(row, before, if path == Path::Up { [COUNT, 0] } else { [0, COUNT] });
}

/// So do ICMP's requests and replies; `ping` compares what comes back.
fn echoes(row: &Row, family: usize) {
    let before = counted(row);
    let said = row.shell(0, &format!("ping -n -c 3 -i 0.2 -W 10 -s 1000 {} 2>&1", SERVER[family]));
    assert!(said.contains("3 received") && !said.contains("wrong"), "{said}");
    must_count(row, before, [3, 3]);
}

/// What has no ports, and is nothing that the pair knows, passes as it is: here ESP (RFC 4303).
fn others(row: &Row) {
    const COUNT: u32 = 20;
    const ESP: i32 = 50;
    for family in 0..2 {
        let raw = |site: usize, address: &str| {
            let address = socket_address(address, 0);
            let open = || {
                let socket = Socket::new(Domain::for_address(address), Type::RAW, Some(Protocol::from(ESP)))?;
                socket.bind(&address.into())?;
                socket.set_read_timeout(Some(WAIT))?;
                Ok(socket)
            };
            row.sites[site].run(open).unwrap()
        };
        let (client, server) = (raw(0, CLIENT[family]), raw(3, SERVER[family]));
        let before = counted(row);
        for n in 0..COUNT {
            let sent = n.to_be_bytes().repeat(2 + 17 * n as usize);
            client.send_to(&sent, &socket_address(SERVER[family], 0).into()).unwrap();
            let mut seen = [0; 2000];
            let length = (&server).read(&mut seen).unwrap();
            // With IPv4 the header is seen, too (raw(7)).
            let header = if family == 0 { 20 } else { 0 };
            assert!(seen[header..length] == sent, "packet {n}");
        }
        must_count(row, before, [COUNT, 0]);
    }
}

/// Each side agrees with its own gateway on ECN (RFC 3168 §6.1.1).
fn ecn(row: &Row) {
    // 1: asks for it; 2: only agrees to it.
    for (client, hub) in [("1", "2"), ("2", "1"), ("1", "1"), ("2", "2")] {
        for (site, value) in [(0, client), (1, "2"), (2, hub), (3, "2")] {
            row.sites[site].run(|| write_sysctl("net.ipv4.tcp_ecn", value)).unwrap();
        }
        for address in SERVER {
            let listener = row.listen(address, PORT);
            let near = row.connect(address, PORT).unwrap();
            let far = listener.accept().unwrap().0;
            let uses = [&near, &far].map(|stream| info(stream).tcpi_options & OPTION_ECN != 0);
            assert_eq!(uses, [client == "1", hub == "1"], "{address}: client {client}, hub {hub}");
        }
    }
}

/// Neither end's keep-alives need the link or any gateway's program: each is answered at its own side, by the kernel.
fn keep_alive(row: &Row, gateways: [&Daemon; 2]) {
    let connections = SERVER.map(|address| row.ends(address, PORT));
    gateways.iter().for_each(|gateway| gateway.signal(libc::SIGSTOP));
    let mut ends: Vec<_> = connections.into_iter().flat_map(|(near, far)| [near, far]).collect();
    for end in &ends {
        // Dead after three seconds without an answer.
        let second = Duration::from_secs(1);
        let keep_alive = TcpKeepalive::new().with_time(second).with_interval(second).with_retries(2);
        SockRef::from(end).set_tcp_keepalive(&keep_alive).unwrap();
    }
    std::thread::sleep(Duration::from_millis(4_500));
    for end in &mut ends {
        let last = info(end).tcpi_last_ack_recv;
        assert!(last < 2_000, "{last} ms since the last answer to {:?}", end.local_addr());
        end.set_nonblocking(true).unwrap();
        assert_eq!(end.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    gateways.iter().for_each(|gateway| gateway.signal(libc::SIGCONT));
}

fn info(stream: &TcpStream) -> libc::tcp_info {
    // SAFETY: plain numbers, of which the kernel writes as many as it has.
    unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut length = size_of_val(&info) as libc::socklen_t;
        let option = (&raw mut info).cast();
        let requested =
            libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, option, &raw mut length);
        assert_eq!(requested, 0);
        info
    }
}
