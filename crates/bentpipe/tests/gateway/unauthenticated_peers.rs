//! Whoever reaches the hub's port without the terminal's key gets nothing but a refusal, whatever and however much it
//! sends.
//!
//! The unauthenticated peers are behind the terminal's end of the link, with many addresses and ports.

use super::link::config_of;
use super::pushback::byte;
use super::row::{Daemon, EndOnDrop, Row, SERVER, WAIT, until};
use bentpipe_gateway::satellite::keys::{PairKeys, PrivateKey, PublicKey};
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_gateway::satellite::{Event, Loss, Satellite, SatelliteConfig, Side};
use bentpipe_net::time;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Ample for the pair on the way back, so that a flood takes most of it and leaves what acknowledgements need.
fn link(forward: &str, back: &str) -> String {
    format!(
        "mtu = \"1500 B\"\nframing = \"none\"\nqueue = {{ bytes = \"60 kB\" }}\n\
         forward = {{ rate = \"{forward}\", one_way_delay = \"50 ms\" }}\n\
         return = {{ rate = \"{back}\", one_way_delay = \"50 ms\" }}\n"
    )
}

const HUB: &str = "10.2.0.2:4433";
const METRICS: &str = "metrics = \"127.0.0.1:9464\"\n";
/// Addresses of unauthenticated peers: the terminal's machine has all of them.
const NETWORK: [u8; 2] = [10, 99];
/// IP and UDP headers and the datagram of a first flight (RFC 9000 §14.1).
const FLIGHT_BITS: u64 = (28 + 1200) * 8;
/// What an idle hub or a flooded one may take more than before: buffers of the kernel's allocator, and the handshakes.
const MEMORY_MORE_KB: u64 = 16_000;
/// Datagrams of a flood that may come one behind the other.
const BURST: u32 = 4;
/// With unauthenticated peers a transfer has at least this part of the rate that it has without them. On an idle
/// machine it is 0.8; a busy one sends the flood in bursts, which take the place of the transfer's packets in the
/// link's queue.
const SHARE: f64 = 0.7;
/// As docs/reference/gateway.md says.
const HANDSHAKES_MAX: f64 = 8.0;
/// Unauthenticated peers that call at a time: more than the hub has room for.
const CALLERS: u32 = 16;
/// In spite of unauthenticated peers the pair finds itself within this time, where the hub knows the terminal's address
/// from before.
const KNOWN_WITHIN: Duration = WAIT;
/// And within this where it does not: on a link of 64 kbit/s only some of all who call are answered.
const UNKNOWN_WITHIN: Duration = Duration::from_secs(60);

pub fn run(full: bool) {
    refused();
    if full {
        flooded(["2 Mbit/s", "4 Mbit/s"], 4_000_000, 5_000_000, true);
        flooded(["64 kbit/s", "2 Mbit/s"], 2_000_000, 150_000, true);
    } else {
        // Thinner than what answers to all of them would take.
        flooded(["128 kbit/s", "4 Mbit/s"], 4_000_000, 50_000, false);
    }
}

fn row_with_unauthenticated_peers(forward: &str, back: &str) -> Row {
    let link = link(forward, back);
    let row = Row::over(&link);
    row.make_pair_on("", 4433, &link, [METRICS, METRICS], "ports = [\"1-8999\"]\n");
    let [a, b] = NETWORK;
    let routes = format!("ip route add local {a}.{b}.0.0/16 dev lo");
    assert_eq!(row.shell(1, &format!("{routes} 2>&1")), "");
    assert_eq!(row.shell(2, &format!("ip route add {a}.{b}.0.0/16 via 10.2.0.1 2>&1")), "");
    row
}

/// One of the unauthenticated peers' sockets.
fn socket(number: u32) -> std::io::Result<UdpSocket> {
    let [a, b] = NETWORK;
    let [.., c, d] = number.to_be_bytes();
    let port = 1024 + (number.wrapping_mul(7919) % 60_000) as u16;
    UdpSocket::bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), port))
}

fn key(number: u32) -> PrivateKey {
    let mut seed = [9; 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    PrivateKey::from_seed(seed).unwrap()
}

/// A terminal with a key of its own.
fn unauthenticated_peer(now: time::Instant, number: u32, hub: PublicKey) -> QuicSatellite {
    let config =
        SatelliteConfig::of_link(&config_of(&link("10 Mbit/s", "10 Mbit/s")), Side::Terminal(HUB.parse().unwrap()));
    let keys = PairKeys { own: key(number), peer: hub };
    QuicSatellite::new(now, config, Crypto::Tls(keys), u64::from(number)).unwrap()
}

/// The first flight of a terminal with a key of its own, which never goes on.
fn first_flight(number: u32) -> Vec<u8> {
    let mut unauthenticated_peer = unauthenticated_peer(time::Instant::ZERO, number, key(0).public());
    unauthenticated_peer.wake(time::Instant::ZERO);
    let mut datagram = Vec::new();
    unauthenticated_peer.poll_transmit(time::Instant::ZERO, &mut datagram).expect("a call");
    assert_eq!(datagram.len() as u64 * 8, FLIGHT_BITS - 28 * 8);
    datagram
}

/// Packets of unauthenticated peers: first flights, and what resembles packets more and less. The flights are made
/// beforehand.
fn datagram(number: u32, flights: &[Vec<u8>]) -> Vec<u8> {
    let noise = |length: usize| (0..length as u64).map(|at| byte(u64::from(number) << 16 | at)).collect::<Vec<u8>>();
    let flight = || flights[number as usize % flights.len()].clone();
    match number % 8 {
        // Of a version that nobody speaks (RFC 9000 §15).
        0 => [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8], &noise(1194)[..]].concat(),
        // With the short header of a connection that nobody knows (§17.3).
        1 => [&[0x40], &noise(1199)[..]].concat(),
        // Damaged.
        2 => {
            let mut flight = flight();
            flight[600 + number as usize % 500] ^= 0x10;
            flight
        }
        3 => noise(1 + number as usize % 1200),
        _ => flight(),
    }
}

/// Sends with so many bits a second until stopped. What a busy machine does not let it send in time is left out: a burst
/// of it would be more than the link's.
fn flood(row: &Row, flights: &[Vec<u8>], bps: u64, sent: &AtomicU64, is_over: &AtomicBool) {
    let spacing = Duration::from_nanos(FLIGHT_BITS * 1_000_000_000 / bps);
    let work = || {
        let mut due = Instant::now();
        for number in 1.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            // A name that another of these still has is passed over.
            if let Ok(socket) = socket(number) {
                // A full queue is the link's concern.
                let _ = socket.send_to(&datagram(number, flights), HUB);
                sent.fetch_add(1, Ordering::Relaxed);
            }
            let now = Instant::now();
            due = (due + spacing).max(now.checked_sub(BURST * spacing).unwrap_or(now));
            std::thread::sleep(due.saturating_duration_since(now));
        }
        Ok(())
    };
    row.sites[1].run(work).unwrap();
}

/// Runs `work` while unauthenticated peers send.
fn while_flooded<T>(row: &Row, bps: u64, work: impl FnOnce() -> T) -> (T, u64) {
    let flights: Vec<_> = (1..=256).map(first_flight).collect();
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let end = EndOnDrop(&is_over);
        scope.spawn(|| flood(row, &flights, bps, &sent, &is_over));
        let result = work();
        drop(end);
        (result, sent.load(Ordering::Relaxed))
    })
}

/// A download of incompressible bytes: how long it took from the first byte to the last.
fn download(row: &Row, port: u16, bytes: u64) -> f64 {
    let (mut near, mut far) = row.ends(SERVER[0], port);
    let server = std::thread::spawn(move || {
        let data: Vec<u8> = (0..bytes).map(byte).collect();
        far.write_all(&data).unwrap();
    });
    let mut data = vec![0; bytes as usize];
    near.read_exact(&mut data[..1]).unwrap();
    let begun = Instant::now();
    near.read_exact(&mut data[1..]).unwrap();
    assert!((0..bytes).map(byte).eq(data), "download");
    server.join().unwrap();
    begun.elapsed().as_secs_f64()
}

/// While unauthenticated peers send `flood` bits a second: a transfer of the pair's, a terminal that is restarted, and
/// a hub that knows no terminal yet.
fn flooded([forward, back]: [&str; 2], flood: u64, bytes: u64, full: bool) {
    // The return link carries the pair's acknowledgements, too.
    let flood = flood * 4 / 5;
    let row = row_with_unauthenticated_peers(forward, back);
    let [mut hub, mut terminal] = row.start_pair();
    let clean = download(&row, 140, bytes);
    let before = hub.memory_kb();
    hub.forget_lines();
    let (slow, sent) = while_flooded(&row, flood, || {
        std::thread::sleep(Duration::from_secs(1));
        let time = download(&row, 141, bytes);
        let handshakes = row.metric_at(2, "handshakes").unwrap();
        assert!(handshakes <= HANDSHAKES_MAX, "{handshakes} handshakes");
        time
    });
    let more = hub.memory_kb().saturating_sub(before);
    let counted = row.metric_at(2, "unauthenticated_packets_total").unwrap();
    println!(
        "{forward}: {bytes} B in {clean:.1} s; while {sent} unauthenticated packets came, of which {counted} were counted, in \
         {slow:.1} s; the hub takes {more} kB more"
    );
    assert!(slow < clean / SHARE, "{clean:.2} s without unauthenticated peers, {slow:.2} s with them");
    assert!(more < MEMORY_MORE_KB, "{more} kB");
    assert!(counted > 0.5 * sent as f64, "{counted} of {sent}");
    assert_eq!(row.metric_at(2, "connected"), Some(1.0));
    assert_eq!(row.metric_at(2, "memory_bytes"), Some(0.0));
    // A burst that fills the link may well silence the pair for the three seconds that are logged, not for the hold time.
    assert_eq!(terminal.count_lines("silent for longer"), 0);
    // One line a minute.
    let lines = hub.count_lines("packets come in that are of no connection");
    assert!((1..=2).contains(&lines), "{:?}", hub.seen);

    // The terminal is restarted, from where it was before.
    let (back, _) = while_flooded(&row, flood, || {
        std::thread::sleep(Duration::from_secs(1));
        terminal.kill();
        let time;
        (terminal, time) = meets(&row, KNOWN_WITHIN);
        download(&row, 142, bytes / 10);
        time
    });
    println!("{forward}: a terminal that is restarted while unauthenticated peers send is connected after {back:.1?}");

    if !full {
        return;
    }
    // A hub that has never seen its terminal.
    terminal.kill();
    hub.kill();
    hub = row.daemon(2, "hub");
    let (first, _) = while_flooded(&row, flood, || {
        std::thread::sleep(Duration::from_secs(1));
        let time;
        (terminal, time) = meets(&row, UNKNOWN_WITHIN);
        download(&row, 143, bytes / 10);
        time
    });
    println!("{forward}: the first terminal of a hub is connected after {first:.1?}");
    // The same, while callers prove their addresses and take part in handshakes until they are refused.
    terminal.kill();
    hub.kill();
    let mut hub = row.daemon(2, "hub");
    let (first, calls) = while_called(&row, hub_key(&row), || {
        std::thread::sleep(Duration::from_secs(1));
        let time;
        (terminal, time) = meets(&row, UNKNOWN_WITHIN);
        download(&row, 144, bytes / 10);
        time
    });
    println!(
        "{forward}: the first terminal is connected after {first:.1?} while {CALLERS} call at a time, {calls} calls in all"
    );
    nothing_is_left(&row, &mut hub);
}

/// Starts a terminal; how long it takes until it is connected.
fn meets(row: &Row, within: Duration) -> (Daemon, Duration) {
    let begun = Instant::now();
    let mut terminal = row.daemon(1, "terminal");
    terminal.wait_for_within("connected to the other gateway", within);
    (terminal, begun.elapsed())
}

/// Handshakes of unauthenticated peers are forgotten: handshakes end after ten seconds and some packets' time.
fn nothing_is_left(row: &Row, hub: &mut Daemon) {
    until(row, "no handshakes", |row| row.metric_at(2, "handshakes") == Some(0.0));
    assert_eq!(row.metric_at(2, "connections_open"), Some(0.0));
    // Of those that were being answered when the flood ended, as many as there may be handshakes.
    assert!(f64::from(hub.count_lines("unknown key") as u32) <= HANDSHAKES_MAX, "{:?}", hub.seen);
}

fn peer_key_line(row: &Row, file: &str) -> String {
    let text = std::fs::read_to_string(row.folder.join(file)).unwrap();
    text.lines().find(|line| line.starts_with("peer_key")).unwrap().to_owned()
}

fn hub_key(row: &Row) -> PublicKey {
    peer_key_line(row, "terminal.toml").split('"').nth(1).unwrap().parse().unwrap()
}

/// Who proves that it has another key than the terminal's is refused, counted, and written down a few times.
fn refused() {
    const UNAUTHENTICATED: u32 = 40;
    let row = row_with_unauthenticated_peers("10 Mbit/s", "10 Mbit/s");
    let [mut hub, terminal] = row.start_pair();
    // A whole daemon that has the hub's key, and that the hub does not know.
    row.make_pair_on("-strange", 4436, &link("10 Mbit/s", "10 Mbit/s"), ["", ""], "ports = [\"9000-9999\"]\n");
    row.edit(
        "terminal-strange.toml",
        &peer_key_line(&row, "terminal-strange.toml"),
        &peer_key_line(&row, "terminal.toml"),
    );
    row.edit("terminal-strange.toml", "10.2.0.2:4436", HUB);
    let mut strange = row.daemon(1, "terminal-strange");
    strange.wait_for("the other gateway's key is not the configured one, or the other does not know ours");
    hub.wait_for("refused a gateway with an unknown key");
    strange.kill();
    until(&row, "counted", |row| row.metric_at(2, "unauthenticated_peers_total") == Some(1.0));

    // And many of them.
    let hub_key = hub_key(&row);
    let before = hub.memory_kb();
    let reported = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (row, reported) = (&row, &reported);
            scope.spawn(move || {
                for number in (first..UNAUTHENTICATED).step_by(4) {
                    let socket = row.sites[1].run(|| socket(1 + number)).unwrap();
                    match call(&socket, number, hub_key) {
                        Some(Loss::Unauthenticated) => drop(reported.fetch_add(1, Ordering::Relaxed)),
                        // The next one's handshake took its place before the hub had said so.
                        Some(Loss::Restarted) => {}
                        other => panic!("peer {number}: {other:?}"),
                    }
                }
            });
        }
    });
    let more = hub.memory_kb().saturating_sub(before);
    let reported = reported.into_inner();
    println!(
        "{reported} of {UNAUTHENTICATED} unauthenticated peers learned that they are refused; the hub takes {more} kB more"
    );
    // One whose handshake had to make room for another's gets no answer, or another one.
    assert!(reported >= UNAUTHENTICATED * 9 / 10, "{reported}");
    until(&row, "counted", |row| {
        row.metric_at(2, "unauthenticated_peers_total") == Some(1.0 + f64::from(UNAUTHENTICATED))
    });
    assert!(more < MEMORY_MORE_KB, "{more} kB");
    // Five lines at first, then one a minute, and how many were left out.
    let lines = hub.count_lines("unknown key");
    assert!((5..=7).contains(&lines), "{lines}: {:?}", hub.seen);
    assert_eq!(row.metric_at(2, "connected"), Some(1.0));
    download(&row, 144, 100_000);
    drop((terminal, hub));
}

/// Calls the hub with a key of its own until that has an end, or for `WAIT`: why it ended.
fn call(socket: &UdpSocket, number: u32, hub: PublicKey) -> Option<Loss> {
    let begun = Instant::now();
    let now = || time::Instant { ns: begun.elapsed().as_nanos() as u64 };
    let mut unauthenticated_peer = unauthenticated_peer(now(), number, hub);
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let (mut datagram, mut seen) = (Vec::new(), [0; 2000]);
    while begun.elapsed() < WAIT {
        unauthenticated_peer.wake(now());
        while let Some(to) = unauthenticated_peer.poll_transmit(now(), &mut datagram) {
            // A full queue is the link's concern.
            let _ = socket.send_to(&datagram, to);
        }
        while let Some(event) = unauthenticated_peer.poll_event() {
            match event {
                Event::Lost(why) => return Some(why),
                // It has proved nothing yet.
                Event::Connected => {}
                // Another has taken its place among the handshakes.
                Event::Silent => return None,
                other => panic!("{other:?}"),
            }
        }
        if let Ok((length, from)) = socket.recv_from(&mut seen) {
            unauthenticated_peer.receive(now(), from, &seen[..length]);
        }
    }
    None
}

/// Calls one after another, with keys of their own and from addresses that they prove, in several threads, until told to
/// stop: how many.
fn while_called<T>(row: &Row, hub: PublicKey, work: impl FnOnce() -> T) -> (T, u32) {
    let (calls, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let number = calls.fetch_add(1, Ordering::Relaxed);
                    let socket = row.sites[1].run(|| socket(1 << 12 | number)).unwrap();
                    call(&socket, number, hub);
                }
            });
        }
        let end = EndOnDrop(&is_over);
        let result = work();
        drop(end);
        (result, calls.load(Ordering::Relaxed))
    })
}
