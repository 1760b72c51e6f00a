//! The kernel's side of a gateway: a relay in one namespace between a client and a server in two others.

#[path = "../../bentpipe-gateway/tests/relay/own_front_end.rs"]
mod own_front_end;
#[path = "gateway/peers.rs"]
mod peers;

use bentpipe_gateway::file::InterceptRules;
use bentpipe_gateway::front_end::Registry;
use bentpipe_gateway::satellite::keys::{PairKeys, PrivateKey};
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_gateway::satellite::{SatelliteConfig, Side};
use bentpipe_gateway::{Gateway, GatewayConfig};
use bentpipe_host::clock::Clock;
use bentpipe_host::gateway::rights::lend;
use bentpipe_host::gateway::{GatewayDriver, SiteOptions};
use bentpipe_host::namespace::{Namespace, acquire_privilege, write_sysctl};
use bentpipe_net::interception::{Bypassed, GatewayProgram, GatewaySockets, Refusal, Request};
use bentpipe_net::socket::{Connection, Received, SocketError, SocketId};
use bentpipe_net::time::Instant;
use libtest_mimic::{Arguments, Trial};
use peers::{
    ConnectionPair, PATH, WAIT, a_reset_is_a_reset, add_veth, an_urgent_byte_arrives, class_of_syn,
    every_byte_in_both_directions, ip,
};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Three namespaces in a row: 10.1.0.2 – gateway – 10.2.0.2, and fd01::2 – gateway – fd02::2.
struct Row {
    client: Namespace,
    gateway: Namespace,
    server: Namespace,
}

const SERVER: [&str; 2] = ["10.2.0.2", "fd02::2"];
const CLIENT: [&str; 2] = ["10.1.0.2", "fd01::2"];

impl Row {
    fn new() -> Row {
        let [client, gateway, server] = [(); 3].map(|()| Namespace::new().unwrap());
        for namespace in [&client, &gateway, &server] {
            namespace.run(|| ip("link set lo up")).unwrap();
        }
        for (n, end, far) in [(1, &client, "10.2.0.0/16 via 10.1.0.1"), (2, &server, "10.1.0.0/16 via 10.2.0.1")] {
            let far6 = if n == 1 { "fd02::/16 via fd01::1" } else { "fd01::/16 via fd02::1" };
            gateway
                .run(|| {
                    write_sysctl("net.ipv4.ip_forward", "1")?;
                    write_sysctl("net.ipv6.conf.all.forwarding", "1")?;
                    let side = if n == 1 { "lan" } else { "wan" };
                    add_veth(side, "eth", end)?;
                    ip(&format!("addr add 10.{n}.0.1/16 dev {side}"))?;
                    ip(&format!("addr add fd0{n}::1/16 dev {side} nodad"))?;
                    ip(&format!("link set {side} up"))
                })
                .unwrap();
            end.run(|| {
                ip(&format!("addr add 10.{n}.0.2/16 dev eth"))?;
                ip(&format!("addr add fd0{n}::2/16 dev eth nodad"))?;
                ip("link set eth up")?;
                ip(&format!("route add {far}"))?;
                ip(&format!("-6 route add {far6}"))
            })
            .unwrap();
        }
        Row { client, gateway, server }
    }

    fn listen(&self, address: &str, port: u16) -> TcpListener {
        peers::listen(&self.server, address, port)
    }

    fn connect(&self, address: &str, port: u16) -> io::Result<TcpStream> {
        peers::connect(&self.client, address, port)
    }

    fn ends(&self, address: &str, port: u16) -> ConnectionPair {
        let listener = self.listen(address, port);
        let near = self.connect(address, port).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn start(&self) -> GatewayDriver<Relay> {
        let options = SiteOptions { rules: Some(rules()), ..SiteOptions::default() };
        GatewayDriver::start(Some(&self.gateway), Clock::start(), Relay::default(), options).unwrap()
    }

    fn ruleset(&self) -> String {
        ruleset(&self.gateway)
    }
}

fn ruleset(gateway: &Namespace) -> String {
    let mut text = String::new();
    gateway
        .run(|| {
            for command in ["nft list ruleset", "ip rule", "ip -6 rule", "ip route show table all"] {
                let output = lend(Command::new("/bin/sh").args(["-c", command]).env("PATH", PATH)).output()?;
                text += &String::from_utf8_lossy(&output.stdout);
            }
            Ok(())
        })
        .unwrap();
    text
}

fn rules() -> InterceptRules {
    InterceptRules {
        interfaces: vec!["lan".into()],
        ports: Vec::new(),
        to: Vec::new(),
        from: Vec::new(),
        except_ports: vec![22..=22],
        except_to: Vec::new(),
        except_from: Vec::new(),
    }
}

/// Relays what is intercepted, with one gateway where there should be two. Port 7 is bypassed.
#[derive(Default)]
struct Relay {
    opening: BTreeMap<SocketId, Request>,
    pairs: BTreeMap<SocketId, Half>,
    changed: Vec<SocketId>,
    polls: u64,
    urgent: Vec<u8>,
    classes: Vec<u8>,
}

struct Half {
    other: SocketId,
    pending: Vec<u8>,
    has_ended: bool,
    urgent_next: bool,
}

impl GatewayProgram for Relay {
    fn poll(&mut self, _now: Instant, sockets: &mut dyn GatewaySockets) {
        self.polls += 1;
        while let Some(request) = sockets.next_request() {
            if request.server.port() == 7 {
                sockets.refuse(request.id, Refusal::Bypassed);
                continue;
            }
            self.classes.push(request.traffic_class);
            let requested = sockets.connect_as(Some(request.client), request.server, request.traffic_class);
            match requested {
                Ok(far) => drop(self.opening.insert(far, request)),
                Err(error) => refuse(sockets, request, error),
            }
        }
        let mut changed = std::mem::take(&mut self.changed);
        sockets.take_changed(&mut changed);
        for id in changed.drain(..) {
            if let Some(request) = self.opening.remove(&id) {
                match sockets.connection(id) {
                    Ok(Connection::Opening) => drop(self.opening.insert(id, request)),
                    Err(error) => {
                        sockets.close(id);
                        refuse(sockets, request, error);
                    }
                    Ok(Connection::Open) => {
                        let near = sockets.answer(request.id).unwrap();
                        assert_eq!(sockets.peer_address(near), Ok(request.client));
                        assert_eq!(sockets.local_address(near), Ok(request.server));
                        for (from, other) in [(id, near), (near, id)] {
                            let half = Half { other, pending: Vec::new(), has_ended: false, urgent_next: false };
                            self.pairs.insert(from, half);
                        }
                    }
                }
            }
            self.relay(id, sockets);
            if let Some(other) = self.pairs.get(&id).map(|half| half.other) {
                self.relay(other, sockets);
            }
        }
        self.changed = changed;
    }

    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn is_done(&self) -> bool {
        false
    }
}

impl Relay {
    fn relay(&mut self, from: SocketId, sockets: &mut dyn GatewaySockets) {
        let Some(half) = self.pairs.get_mut(&from) else { return };
        let to = half.other;
        if half.has_ended || sockets.connection(to) == Ok(Connection::Opening) {
            return;
        }
        loop {
            if half.pending.is_empty() {
                let urgent = sockets.next_is_urgent(from);
                let mut buffer = vec![0; if urgent { 1 } else { 64 << 10 }];
                match sockets.receive(from, &mut buffer) {
                    Ok(Received::Bytes(n)) => {
                        buffer.truncate(n);
                        half.pending = buffer;
                        half.urgent_next = urgent;
                    }
                    Ok(Received::Nothing) => return,
                    Ok(Received::End) => {
                        half.has_ended = true;
                        sockets.finish(to);
                        if self.pairs.get(&to).is_none_or(|other| other.has_ended) {
                            sockets.close(from);
                            sockets.close(to);
                            self.pairs.remove(&from);
                            self.pairs.remove(&to);
                        }
                        return;
                    }
                    Err(_) => {
                        sockets.abort(from);
                        sockets.abort(to);
                        self.pairs.remove(&from);
                        self.pairs.remove(&to);
                        return;
                    }
                }
            }
            let sent = if half.urgent_next {
                self.urgent.push(half.pending[0]);
                sockets.send_urgent(to, half.pending[0]).map(usize::from)
            } else {
                sockets.send(to, &half.pending)
            };
            match sent {
                Ok(0) => return,
                Ok(n) => drop(half.pending.drain(..n)),
                Err(_) => return,
            }
        }
    }
}

fn refuse(sockets: &mut dyn GatewaySockets, request: Request, error: SocketError) {
    let how = match error {
        SocketError::Refused => Refusal::Refused,
        SocketError::Unreachable => Refusal::Unreachable,
        _ => Refusal::Ignored,
    };
    sockets.refuse(request.id, how);
}

/// A test's name, and what it does.
const TESTS: [(&str, fn()); 4] = [
    ("a_front_end_of_ones_own", a_front_end_of_ones_own),
    ("on_a_stick", on_a_stick),
    ("relays_what_is_intercepted", relays_what_is_intercepted),
    ("an_end_resets_connections_and_leaves_nothing", an_end_resets_connections_and_leaves_nothing),
];

/// A process gains the right to namespaces only while it has one thread, so this file has a main of its own, and its tests
/// run one after another in this thread.
fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    match acquire_privilege() {
        Ok(privilege) => eprintln!("as {privilege:?}"),
        Err(error) => {
            eprintln!("skipped: this machine lets nobody make namespaces: {error}");
            return ExitCode::SUCCESS;
        }
    }
    let trial = |(name, test): (&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    libtest_mimic::run(&arguments, TESTS.map(trial).into()).exit_code()
}

fn relays_what_is_intercepted() {
    let row = Row::new();
    let gateway = row.start();
    for (address, client) in SERVER.into_iter().zip(CLIENT) {
        keeps_every_byte_and_address(&row, address, client);
        refuses(&row, address);
        carries_resets(&row, address);
        carries_urgent(&row, &gateway, address);
        lets_pass(&row, address);
        marks(&row, &gateway, address);
    }
    many(&row);
    idle_costs_nothing(&row, &gateway);
}

fn an_end_resets_connections_and_leaves_nothing() {
    let row = Row::new();
    let clean = row.ruleset();
    let gateway = row.start();
    let listener = row.listen(SERVER[0], 90);
    let mut stream = row.connect(SERVER[0], 90).unwrap();
    let mut server = listener.accept().unwrap().0;
    server.write_all(b"half a file").unwrap();
    let mut buffer = [0; 11];
    stream.read_exact(&mut buffer).unwrap();
    gateway.end();
    assert_eq!(stream.read(&mut buffer).unwrap_err().kind(), ErrorKind::ConnectionReset, "never a clean end");
    assert_eq!(server.read(&mut buffer).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let lines = |text: &str| text.lines().filter(|line| !line.contains("fe80")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&row.ruleset()), lines(&clean), "nothing is left");
    let after = row.listen(SERVER[0], 91);
    row.connect(SERVER[0], 91).unwrap();
    assert_eq!(after.accept().unwrap().1.ip().to_string(), CLIENT[0], "packets are forwarded again");
}

/// The front ends of `own_front_end.rs`, which the relay's tests run in virtual time: a terminal in the middle namespace, a
/// hub where the server is.
fn a_front_end_of_ones_own() {
    let row = Row::new();
    let keys = [(); 2].map(|()| PrivateKey::generate().unwrap());
    let registry = Registry::standard().with(own_front_end::KIND).with(own_front_end::SHOUT);
    let clock = Clock::start();
    let link = bentpipe_link::catalogue::named("geo-two-way").unwrap().unwrap().with(toml::Table::new()).unwrap();
    let start = |namespace: &Namespace, side: Side, keys: [&PrivateKey; 2], port: u16, table: &str| {
        let satellite = SatelliteConfig::of_link(&link, side);
        let front_ends = registry.take(&mut table.parse().unwrap()).unwrap();
        let config = GatewayConfig { local_port: port, front_ends, ..GatewayConfig::new(satellite) };
        let crypto = Crypto::Tls(PairKeys { own: keys[0].clone(), peer: keys[1].public() });
        let satellite = QuicSatellite::new(clock.now(), config.satellite.clone(), crypto, 0).unwrap();
        let options = SiteOptions { keep_addresses: false, ..SiteOptions::default() };
        let gateway = Gateway::new(config, Box::new(satellite));
        GatewayDriver::start(Some(namespace), clock, gateway, options).unwrap()
    };
    let _hub = start(&row.server, Side::Hub, [&keys[0], &keys[1]], 4433, "shout = '10.2.0.2:7001'");
    let side = Side::Terminal(SocketAddr::from(([10, 2, 0, 2], 4433)));
    let _terminal = start(&row.gateway, side, [&keys[1], &keys[0]], 0, "go = '10.1.0.1:7000'");
    let listener = row.listen(SERVER[0], 80);
    let mut client = row.connect("10.1.0.1", 7000).unwrap();
    client.write_all(b"GO 10.2.0.2 80\nfirst").unwrap();
    let mut server = listener.accept().unwrap().0;
    server.set_read_timeout(Some(WAIT)).unwrap();
    let mut heard = [0; 5];
    server.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"first");
    // The hub's filter: from the server in capitals.
    server.write_all(b"answer").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("OK\n") && answer.contains("ANSWER") && answer.ends_with(" (end)"), "{answer:?}");
    let mut other = row.connect("10.1.0.1", 7000).unwrap();
    other.write_all(b"GO 10.2.0.2 81\n").unwrap();
    answer.clear();
    other.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "NO\n");
}

/// A program that only looks at what passes by on the way to `peer`.
struct Watcher {
    peer: IpAddr,
    seen: Bypassed,
}

impl GatewayProgram for Watcher {
    fn poll(&mut self, _now: Instant, sockets: &mut dyn GatewaySockets) {
        self.seen = sockets.bypassed(Some(self.peer));
    }

    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Where one device leads to the clients and to the link, what passes by counts in the link's direction only.
fn on_a_stick() {
    let [gateway, around] = [(); 2].map(|()| Namespace::new().unwrap());
    gateway
        .run(|| {
            ip("link set lo up")?;
            write_sysctl("net.ipv4.ip_forward", "1")?;
            write_sysctl("net.ipv6.conf.all.forwarding", "1")?;
            add_veth("stick", "eth", &around)?;
            ip("addr add 10.5.0.1/16 dev stick")?;
            ip("addr add fd05::1/16 dev stick nodad")?;
            ip("link set stick up")
        })
        .unwrap();
    // One namespace is both the site's router (10.5.0.2) and the link's (10.5.0.3), and sends in the names of hosts behind.
    around
        .run(|| {
            for host in [2, 3] {
                ip(&format!("addr add 10.5.0.{host}/16 dev eth"))?;
                ip(&format!("addr add fd05::{host}/16 dev eth nodad"))?;
            }
            ip("link set eth up")?;
            for network in [1, 9] {
                ip(&format!("route add 10.{network}.0.0/16 via 10.5.0.1"))?;
                ip(&format!("-6 route add fd0{network}::/16 via fd05::1"))?;
            }
            Ok(())
        })
        .unwrap();
    gateway
        .run(|| {
            for (network, host) in [(1, 2), (9, 3)] {
                ip(&format!("route add 10.{network}.0.0/16 via 10.5.0.{host}"))?;
                ip(&format!("-6 route add fd0{network}::/16 via fd05::{host}"))?;
            }
            Ok(())
        })
        .unwrap();
    let hosts = [["10.1.0.1", "10.9.0.1"], ["fd01::1", "fd09::1"]].map(|ends| ends.map(|end| end.parse().unwrap()));
    let pass = |from: IpAddr, to: IpAddr, count: usize| {
        let send = || {
            let domain = socket2::Domain::for_address((from, 0).into());
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
            speak_for_others(&socket, from.is_ipv6())?;
            socket.bind(&SocketAddr::from((from, 5000)).into())?;
            (0..count).try_for_each(|_| socket.send_to(&[0; 100], &SocketAddr::from((to, 5001)).into()).map(drop))
        };
        around.run(send).unwrap();
    };
    for (family, [client, server]) in hosts.into_iter().enumerate() {
        let rules = InterceptRules { interfaces: vec!["stick".into()], ..rules() };
        let options = SiteOptions { rules: Some(rules), ..SiteOptions::default() };
        let watcher = Watcher { peer: server, seen: Bypassed::default() };
        let driver = GatewayDriver::start(Some(&gateway), Clock::start(), watcher, options).unwrap();
        assert!(driver.take_remarks().iter().any(|remark| remark.contains("\"stick\" leads to the clients")));
        let until = |what: &str, is: &dyn Fn() -> bool| {
            let deadline = std::time::Instant::now() + WAIT;
            while !is() {
                assert!(std::time::Instant::now() < deadline, "{what}: {:?}", driver.with(|watcher| watcher.seen));
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let counted = |packets: u64| {
            until(&packets.to_string(), &|| driver.with(|watcher| watcher.seen.packets).unwrap() >= packets);
        };
        until("the way is known", &|| ruleset(&gateway).contains("nexthop"));
        // Neighbours are found first: what waits for them meanwhile is little.
        pass(client, server, 1);
        counted(1);
        pass(server, client, 50);
        pass(client, server, 30);
        counted(31);
        pass(server, client, 7);
        pass(client, server, 1);
        counted(32);
        let header = if family == 0 { 28 } else { 48 };
        let seen = driver.with(|watcher| watcher.seen).unwrap();
        assert_eq!(seen, Bypassed { packets: 32, bytes: 32 * (100 + header) });
        // Of the other family both directions.
        let [client, server] = hosts[1 - family];
        pass(client, server, 1);
        pass(server, client, 1);
        counted(34);
        driver.end();
    }
}

/// Lets a socket be bound to addresses of others.
fn speak_for_others(socket: &socket2::Socket, ipv6: bool) -> io::Result<()> {
    if !ipv6 {
        return socket.set_ip_transparent_v4(true);
    }
    let on = 1i32;
    // SAFETY: the kernel reads four bytes of a live integer.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_IPV6, libc::IPV6_TRANSPARENT, (&raw const on).cast(), 4)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn keeps_every_byte_and_address(row: &Row, address: &str, client: &str) {
    let (near, far) = row.ends(address, 80);
    let from = far.peer_addr().unwrap();
    assert_eq!((from.ip().to_string(), from.port()), (client.to_owned(), near.local_addr().unwrap().port()));
    assert_eq!(near.peer_addr().unwrap().ip().to_string(), address);
    every_byte_in_both_directions((near, far), 3_000_000, true);
}

fn refuses(row: &Row, address: &str) {
    let started = std::time::Instant::now();
    assert_eq!(row.connect(address, 81).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // Nobody has this address; the gateway's neighbour discovery gives up after three seconds.
    let nobody = if address.contains(':') { "fd02::99" } else { "10.2.0.99" };
    assert_eq!(row.connect(nobody, 80).unwrap_err().kind(), ErrorKind::HostUnreachable);
    assert!(started.elapsed() < Duration::from_secs(5));
}

fn carries_resets(row: &Row, address: &str) {
    for by_client in [true, false] {
        a_reset_is_a_reset(row.ends(address, 82), by_client);
    }
}

fn carries_urgent(row: &Row, gateway: &GatewayDriver<Relay>, address: &str) {
    an_urgent_byte_arrives(row.ends(address, 83));
    assert!(gateway.with(|relay| std::mem::take(&mut relay.urgent)).unwrap() == b"!");
}

fn lets_pass(row: &Row, address: &str) {
    // Excepted in the firewall, and bypassed by the program.
    for port in [22, 7] {
        let listener = row.listen(address, port);
        let mut near = row.connect(address, port).unwrap();
        let mut far = listener.accept().unwrap().0;
        near.write_all(b"past the gateway").unwrap();
        let mut seen = [0; 16];
        far.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"past the gateway");
    }
}

/// The DSCP of the SYN is on the server's side too.
fn marks(row: &Row, gateway: &GatewayDriver<Relay>, address: &str) {
    const EXPEDITED: u8 = 0xb8;
    let (class, _ends) = class_of_syn(&row.client, &row.listen(address, 84), EXPEDITED);
    assert_eq!(class & 0xfc, EXPEDITED);
    assert_eq!(gateway.with(|relay| relay.classes.last().copied()).unwrap().unwrap() & 0xfc, EXPEDITED);
}

fn many(row: &Row) {
    let listener = row.listen("::", 85);
    let server = std::thread::spawn(move || {
        let mut connections = Vec::new();
        for _ in 0..200 {
            let (mut stream, _) = listener.accept().unwrap();
            connections.push(std::thread::spawn(move || {
                let mut data = Vec::new();
                stream.read_to_end(&mut data).unwrap();
                stream.write_all(&data).unwrap();
            }));
        }
        for connection in connections {
            connection.join().unwrap();
        }
    });
    let clients: Vec<_> = (0..200u32)
        .map(|n| {
            let mut stream = row.connect(SERVER[n as usize % 2], 85).unwrap();
            std::thread::spawn(move || {
                let data = n.to_le_bytes().repeat(5_000 + n as usize);
                stream.write_all(&data).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let mut back = Vec::new();
                stream.read_to_end(&mut back).unwrap();
                assert!(back == data, "connection {n}");
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    server.join().unwrap();
}

fn idle_costs_nothing(row: &Row, gateway: &GatewayDriver<Relay>) {
    let listener = row.listen(SERVER[0], 86);
    let idle: Vec<_> = (0..20).map(|_| (row.connect(SERVER[0], 86).unwrap(), listener.accept().unwrap())).collect();
    std::thread::sleep(Duration::from_millis(100));
    let before = gateway.with(|relay| relay.polls).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let polls = gateway.with(|relay| relay.polls).unwrap() - before;
    assert!(polls <= 2, "{polls} polls for {} idle connections", idle.len());
    drop(idle);
}
