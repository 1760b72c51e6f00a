//! The emulator against a bare veth pair, in one run, interleaved: `make bench`.
//!
//! Delay error = arrival − send − configured delay. The sender stamps each packet just before it hands it to the kernel;
//! the receiver's kernel stamps it on arrival. Medians of the rounds are printed, with the spread.

use bentpipe_host::clock::real_ns;
use bentpipe_host::emulation::{Emulation, Setup};
use bentpipe_host::namespace::{Namespace, Privilege, acquire_privilege, write_sysctl};
use bentpipe_host::netlink::{Netlink, Route};
use bentpipe_host::port::switch_offloads_off;
use bentpipe_link::catalogue::LinkFile;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::time::Duration;
use bentpipe_net::topology::LinkSpec;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as Wait, Instant as Wall};

const HUB: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const DELAY: Duration = Duration::from_millis(250);
const PORT: u16 = 9000;

/// Two sites with something between them.
struct World {
    sender: Namespace,
    receiver: Namespace,
    delay: Duration,
    emulation: Option<Emulation>,
}

/// The result of one UDP round.
#[derive(Clone, Debug, Default)]
struct Round {
    sent: u64,
    received: u64,
    seconds: f64,
    bits: u64,
    errors_ns: Vec<i64>,
}

fn main() {
    let privilege = match acquire_privilege() {
        Ok(privilege) => privilege,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let rounds = arguments.first().and_then(|n| n.parse().ok()).unwrap_or(5usize);
    let only = arguments.get(1).cloned();
    let rights = if privilege == Privilege::Root { "root" } else { "without root" };
    println!(
        "emulator against a bare veth pair, 250 ms each way, {rounds} interleaved rounds, medians (min to max), {rights}"
    );
    let (mut delay, mut small, mut large, mut tcp) = (Table::new(), Table::new(), Table::new(), Table::new());
    let mut floor = Table::new();
    for _ in 0..rounds {
        for emulated in [false, true] {
            let run = |name: &str, measure: &dyn Fn(&World) -> Round| {
                if only.as_deref().is_some_and(|only| only != name) {
                    return Round::default();
                }
                // TCP at the rate it shall reach (with one bandwidth-delay product of window); datagrams at a rate that
                // never limits them.
                let rate = if name == "tcp" { "1.25 Gbit/s" } else { "10 Gbit/s" };
                measure(&World::new(emulated, rate, privilege).expect("a world to measure in"))
            };
            delay.add(emulated, run("delay", &|world| world.udp(36, 20_000, Wait::from_secs(3), 1)));
            small.add(emulated, run("small", &|world| world.udp(36, 150_000, Wait::from_secs(3), 16)));
            large.add(emulated, run("large", &|world| world.udp(1472, 133_000, Wait::from_secs(3), 16)));
            tcp.add(emulated, run("tcp", &|world| world.tcp(Wait::from_secs(12))));
        }
    }
    floor.add(false, spin_floor(20_000, Wait::from_secs(3)));
    println!("\n{:<52} {:>24} {:>24}", "", "bare veth", "bentpipe");
    delay.print("delay error p50, 64 B at 20,000 packets/s, us", |r| r.error_us(0.50));
    delay.print("delay error p99, us", |r| r.error_us(0.99));
    floor.print("for comparison: a thread that only watches the clock is late by p50, us", |r| r.error_us(0.50));
    floor.print("the same p99, us", |r| r.error_us(0.99));
    delay.print("delay error least (never below 0), us", |r| r.error_us(0.0));
    delay.print("lost at 20,000 packets/s", |r| (r.sent - r.received) as f64);
    small.print("64 B packets/s offered", |r| r.sent as f64 / r.seconds);
    small.print("lost of them", |r| (r.sent - r.received) as f64);
    large.print("UDP in 1500 B packets, Mbit/s received", |r| r.bits as f64 / r.seconds / 1e6);
    large.print("lost of them, %", |r| (r.sent - r.received) as f64 / r.sent as f64 * 100.0);
    tcp.print("TCP, Mbit/s in the last third", |r| r.bits as f64 / r.seconds / 1e6);
}

struct Table {
    rows: [Vec<Round>; 2],
}

impl Table {
    fn new() -> Table {
        Table { rows: [Vec::new(), Vec::new()] }
    }
    fn add(&mut self, emulated: bool, round: Round) {
        self.rows[usize::from(emulated)].push(round);
    }
    fn print(&self, name: &str, value: impl Fn(&Round) -> f64) {
        let cell = |rounds: &[Round]| {
            let mut values: Vec<f64> = rounds.iter().map(&value).collect();
            values.sort_by(f64::total_cmp);
            let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
            format!("{:.1} ({:.1} to {:.1})", at(0.5), at(0.0), at(1.0))
        };
        if self.rows[1].is_empty() {
            println!("{name:<72} {:>28}", cell(&self.rows[0]));
        } else {
            println!("{name:<52} {:>24} {:>24}", cell(&self.rows[0]), cell(&self.rows[1]));
        }
    }
}

impl Round {
    fn error_us(&self, share: f64) -> f64 {
        let mut errors = self.errors_ns.clone();
        errors.sort_unstable();
        let at = ((errors.len().max(1) - 1) as f64 * share).round() as usize;
        errors.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    }
}

impl World {
    fn new(emulated: bool, rate: &str, privilege: Privilege) -> io::Result<World> {
        if emulated { World::emulated(rate, privilege) } else { World::bare() }
    }

    fn emulated(rate: &str, privilege: Privilege) -> io::Result<World> {
        let text = format!("title = 'b'\nrate = '{rate}'\none_way_delay = '250 ms'");
        let config = LinkFile::parse("b", "b", &text).and_then(|file| file.config()).map_err(io::Error::other)?;
        let sites = ["hub", "terminal"].map(str::to_owned).to_vec();
        let spec = LinkSpec { name: "sat".into(), sites, carries_ethernet: false, mtu: 1500 };
        let tcp = toml_table("preset = 'linux-large-buffers'\nreceive_window = '78 MB'\nsend_buffer = '78 MB'");
        let tcp = TcpConfig::from_table(tcp).map_err(|p| io::Error::other(p.message))?;
        let tcp = ["hub", "terminal"].map(|name| (name.to_owned(), tcp.clone())).into();
        let setup = Setup { links: vec![(spec, config)], tcp, seed: 1, ..Setup::default() };
        let emulation = Emulation::start(&setup, privilege).map_err(io::Error::other)?;
        let (receiver, sender) = (emulation.namespace(0).clone(), emulation.namespace(1).clone());
        Ok(World { sender, receiver, delay: DELAY, emulation: Some(emulation) })
    }

    /// The same devices joined directly, with the same offloads.
    fn bare() -> io::Result<World> {
        let (receiver, sender) =
            (Namespace::new().map_err(io::Error::other)?, Namespace::new().map_err(io::Error::other)?);
        sender.run(|| Netlink::open()?.add_veth("sat", "sat", receiver.as_fd(), 1500)).map_err(io::Error::other)?;
        for (namespace, last) in [(&receiver, 1), (&sender, 2)] {
            let up = move || {
                switch_offloads_off("sat")?;
                write_sysctl("net.ipv4.tcp_rmem", "4096 8000000 16000000")?;
                let mut netlink = Netlink::open()?;
                netlink.set_up("sat")?;
                netlink.add_ip("sat", Ipv4Addr::new(198, 18, 0, last), 24)?;
                netlink.add_route(&Route {
                    destination: Ipv4Addr::new(198, 18, 0, 0),
                    prefix: 24,
                    via: None,
                    device: "sat".into(),
                    source: None,
                    metrics: vec![],
                })
            };
            namespace.run(up).map_err(io::Error::other)?;
        }
        Ok(World { sender, receiver, delay: Duration::ZERO, emulation: None })
    }

    /// Sends `payload` bytes of UDP at `rate` packets a second, `burst` in one call.
    fn udp(&self, payload: usize, rate: u64, time: Wait, burst: usize) -> Round {
        let stop = AtomicBool::new(false);
        let socket = self.receiver.run(|| UdpSocket::bind((HUB, PORT))).expect("a receiving socket");
        set_option(&socket, libc::SO_RCVBUFFORCE, 64 << 20);
        set_option(&socket, libc::SO_TIMESTAMPNS, 1);
        socket.set_read_timeout(Some(Wait::from_millis(100))).expect("a time-out");
        std::thread::scope(|scope| {
            let delay = self.delay;
            let receiver = scope.spawn({
                let stop = &stop;
                move || receive_udp(&socket, delay, burst == 1, stop)
            });
            let (sent, seconds) = self.sender.run(|| send_udp(payload, rate, time, burst)).expect("a sender");
            std::thread::sleep(self.delay.to_std() + Wait::from_millis(300));
            stop.store(true, Ordering::Release);
            let (received, errors_ns) = receiver.join().expect("the receiver");
            let bits = received * (payload as u64 + 28) * 8;
            Round { sent, received, seconds, bits, errors_ns }
        })
    }

    /// One TCP connection at full speed; counts the last third of the time.
    fn tcp(&self, time: Wait) -> Round {
        let listener = self.receiver.run(|| TcpListener::bind((HUB, PORT))).expect("a listener");
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut buffer = vec![0; 1 << 18];
                while let Ok(n) = stream.read(&mut buffer) {
                    if n == 0 {
                        break;
                    }
                    count.fetch_add(n as u64, Ordering::Relaxed);
                }
            });
            let sender = scope.spawn(|| {
                self.sender.run(|| {
                    let mut stream = TcpStream::connect(SocketAddrV4::new(HUB, PORT))?;
                    stream.set_write_timeout(Some(Wait::from_millis(200)))?;
                    let data = vec![7; 1 << 18];
                    let end = Wall::now() + time;
                    while Wall::now() < end {
                        let _ = stream.write(&data);
                    }
                    // Leave at once: what is still on its way no longer matters.
                    stream.shutdown(std::net::Shutdown::Both)
                })
            });
            std::thread::sleep(time * 2 / 3);
            let (before, start) = (count.load(Ordering::Relaxed), Wall::now());
            std::thread::sleep(time / 3 - Wait::from_millis(100));
            let bits = (count.load(Ordering::Relaxed) - before) * 8;
            let seconds = start.elapsed().as_secs_f64();
            let _ = sender.join();
            Round { seconds, bits, ..Round::default() }
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(emulation) = self.emulation.take() {
            let outcome = emulation.finish().pump;
            let missed: u64 = outcome.links.iter().map(|link| link.missed_frames).sum();
            if missed + outcome.send_failures > 0 {
                let worst = outcome.lateness.worst().first().map(|(late, _)| *late).unwrap_or_default();
                println!(
                    "  (the emulator missed {missed} frames, failed to send {}, was late by up to {worst})",
                    outcome.send_failures
                );
            }
        }
    }
}

/// The lateness of a thread that does nothing but wait for `rate` deadlines a second: the time that interrupts and the
/// hypervisor take from any program on this machine, and so the least that a user-space emulator can reach.
fn spin_floor(rate: u64, time: Wait) -> Round {
    let start = Wall::now();
    let mut errors_ns = Vec::new();
    for n in 1.. {
        let due = Wait::from_nanos(n * 1_000_000_000 / rate);
        if due > time {
            break;
        }
        loop {
            if let Some(late) = start.elapsed().checked_sub(due) {
                errors_ns.push(i64::try_from(late.as_nanos()).unwrap_or(i64::MAX));
                break;
            }
        }
    }
    Round { errors_ns, ..Round::default() }
}

/// Keeps the sender and the receiver on the last processor, in both worlds: what is asked is how late packets are, not how
/// often a measuring thread is put on the processor that the pump works on.
fn stay_on_last_processor() {
    let last = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) - 1;
    // SAFETY: an all-zero set is valid, and is read only. A refusal only makes the figures noisier.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(last, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

fn send_udp(payload: usize, rate: u64, time: Wait, burst: usize) -> io::Result<(u64, f64)> {
    // SAFETY: a plain number.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    if burst == 1 {
        stay_on_last_processor();
    }
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((HUB, PORT))?;
    let mut packets = vec![vec![0u8; payload]; burst];
    // SAFETY: all-zero headers are valid; every pointer set below lives through the call.
    let mut parts: Vec<libc::iovec> = vec![unsafe { std::mem::zeroed() }; burst];
    let mut messages: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; burst];
    let start = Wall::now();
    let mut sent = 0u64;
    while start.elapsed() < time {
        let due = Wait::from_nanos(sent * 1_000_000_000 / rate);
        if let Some(wait) = due.checked_sub(start.elapsed()) {
            std::thread::sleep(wait);
        }
        for ((packet, part), message) in packets.iter_mut().zip(&mut parts).zip(&mut messages) {
            packet[..8].copy_from_slice(&real_ns().to_le_bytes());
            *part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: payload };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: `burst` messages point at packets that live through the call.
        let n = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), burst as u32, 0) };
        sent += u64::try_from(n).unwrap_or(0);
    }
    Ok((sent, start.elapsed().as_secs_f64()))
}

/// `rarely`: looks every few milliseconds only. The kernel stamps packets anyway, and a receiver that woke for each would
/// interrupt the sender between its stamp and its call.
fn receive_udp(socket: &UdpSocket, delay: Duration, rarely: bool, stop: &AtomicBool) -> (u64, Vec<i64>) {
    const BATCH: usize = 64;
    if rarely {
        stay_on_last_processor();
    }
    let mut packets = vec![[0u8; 2048]; BATCH];
    let mut controls = vec![[0u64; 8]; BATCH];
    // SAFETY: all-zero headers are valid; every pointer set below lives through the call.
    let mut parts: Vec<libc::iovec> = vec![unsafe { std::mem::zeroed() }; BATCH];
    let mut messages: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; BATCH];
    let mut errors = Vec::with_capacity(1 << 20);
    let mut received = 0;
    while !stop.load(Ordering::Acquire) {
        for i in 0..BATCH {
            parts[i] = libc::iovec { iov_base: packets[i].as_mut_ptr().cast(), iov_len: packets[i].len() };
            messages[i].msg_hdr.msg_iov = &raw mut parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
            messages[i].msg_hdr.msg_control = controls[i].as_mut_ptr().cast();
            messages[i].msg_hdr.msg_controllen = size_of_val(&controls[i]) as _;
        }
        // SAFETY: as above.
        let n = unsafe {
            let wait = if rarely { libc::MSG_DONTWAIT } else { libc::MSG_WAITFORONE };
            libc::recvmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), BATCH as u32, wait, std::ptr::null_mut())
        };
        if n < BATCH as i32 && rarely {
            std::thread::sleep(Wait::from_millis(4));
        }
        for i in 0..usize::try_from(n).unwrap_or(0) {
            received += 1;
            // SAFETY: the kernel wrote a control message of at least this size, or msg_controllen is 0.
            let stamp = unsafe {
                let header = libc::CMSG_FIRSTHDR(&raw const messages[i].msg_hdr);
                if header.is_null() {
                    continue;
                }
                std::ptr::read_unaligned(libc::CMSG_DATA(header).cast::<libc::timespec>())
            };
            let arrived = stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec;
            let left = i64::from_le_bytes(packets[i][..8].try_into().expect("eight bytes"));
            errors.push(arrived - left - delay.ns as i64);
        }
    }
    (received, errors)
}

fn set_option(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) {
    // SAFETY: the kernel reads four bytes of a live integer.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const value).cast(), 4) };
    if result < 0 && option == libc::SO_RCVBUFFORCE {
        // Without root the machine's limit holds.
        set_option(socket, libc::SO_RCVBUF, value);
    }
}

fn toml_table(text: &str) -> toml::Table {
    toml::from_str(text).expect("a constant")
}
