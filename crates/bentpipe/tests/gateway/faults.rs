//! What a link, a clock and a disk do wrong, and a gateway bears.

use super::row::{CLIENT, Daemon, Row, SERVER, every_byte_in_both_directions, until};
use bentpipe_host::gateway::rights::lend;
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a transfer during a fault carries each way: 1.6 s at the pair's 50 Mbit/s.
const BYTES: usize = 10_000_000;
/// A transfer may stand still for an outage and what it takes to notice its end.
const PATIENCE: Duration = Duration::from_secs(15);
/// However it ends.
const FLAPPING_MAX: Duration = Duration::from_secs(120);
/// A year of the wall clock.
const YEAR: i64 = 365 * 86_400;

pub fn run(full: bool) {
    let row = Row::new();
    row.make_keys();
    full_disk(&row);
    clocks(&row);
    let [hub, terminal] = row.start_pair();
    flapping(&row, if full { 40 } else { 8 });
    asleep(&row, [&hub, &terminal]);
}

/// Bytes that tell where they stand.
fn pattern(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect()
}

/// A transfer each way while `fault` happens: every byte arrives, in order, and a clean end after it.
fn transfers_bear(row: &Row, port: u16, fault: impl FnOnce()) {
    let lost = row.metric("connections_lost_total").unwrap();
    let listener = row.listen(SERVER[0], port);
    std::thread::scope(|scope| {
        for upload in [true, false] {
            let near = row.connect(SERVER[0], port).unwrap();
            let far = listener.accept().unwrap().0;
            let (mut from, mut to) = if upload { (near, far) } else { (far, near) };
            to.set_read_timeout(Some(PATIENCE)).unwrap();
            scope.spawn(move || {
                (0..BYTES).step_by(1 << 16).for_each(|at| from.write_all(&pattern(at, 1 << 16)).unwrap());
                from.shutdown(Shutdown::Write).unwrap();
                assert_eq!(from.read(&mut [0]).unwrap(), 0);
            });
            scope.spawn(move || receive(&mut to));
        }
        fault();
    });
    assert_eq!(row.metric("connections_lost_total"), Some(lost));
}

fn receive(to: &mut TcpStream) {
    let (mut at, mut seen) = (0, vec![0; 1 << 16]);
    loop {
        let length = to.read(&mut seen).unwrap_or_else(|error| panic!("after {at} B: {error}"));
        assert!(seen[..length] == pattern(at, length), "after {at} B");
        at += length;
        if length == 0 {
            break;
        }
    }
    assert_eq!(at, BYTES.next_multiple_of(1 << 16));
}

/// The link goes and comes, by lost packets and by a lost carrier, which makes the kernel refuse to send.
fn flapping(row: &Row, rounds: u64) {
    let bypassed = row.metric("requests_bypassed_total").unwrap();
    let listener = row.listen(SERVER[0], 99);
    let mut idle = row.connect(SERVER[0], 99).unwrap();
    let mut far = listener.accept().unwrap().0;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // New connections meanwhile wait for the link, and are relayed.
        let requests = scope.spawn(|| {
            let mut number = 0;
            let begun = Instant::now();
            while !is_over.load(Ordering::Relaxed) && begun.elapsed() < FLAPPING_MAX {
                every_byte_in_both_directions(row, SERVER[0], CLIENT[0]);
                number += 1;
            }
            number
        });
        transfers_bear(row, 101, || {
            for round in 0..rounds {
                std::thread::sleep(Duration::from_millis(200 + round * 130 % 400));
                fail_link(row, round % 2 == 0, Duration::from_millis(100 + round * 170 % 900));
            }
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(requests.join().unwrap() > 1);
    });
    // Longer than requests wait: connections do.
    far.write_all(b"before").unwrap();
    fail_link(row, true, Duration::from_secs(5));
    far.write_all(b"after").unwrap();
    let mut seen = [0; 11];
    idle.set_read_timeout(Some(PATIENCE)).unwrap();
    idle.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"beforeafter");
    assert_eq!(row.metric("requests_bypassed_total"), Some(bypassed));
}

/// The link is away for so long.
fn fail_link(row: &Row, silently: bool, time: Duration) {
    let [away, back] = if silently {
        let chain = "chain inet cut back { type filter hook prerouting priority raw; policy accept; }";
        let rule = "rule inet cut back iifname right drop";
        // What comes back to the terminal, and what leaves it.
        let out = "chain inet cut out { type filter hook postrouting priority raw; policy accept; }";
        let leaving = "rule inet cut out oifname right drop";
        [
            format!("nft 'add table inet cut; add {chain}; add {rule}; add {out}; add {leaving}'"),
            "nft delete table inet cut".into(),
        ]
    } else {
        // Routes go with the carrier.
        let routes = "ip route add 10.3.0.0/16 via 10.2.0.2";
        ["ip link set right down".into(), format!("ip link set right up && {routes}")]
    };
    assert_eq!(row.shell(1, &format!("({away}) 2>&1")), "");
    std::thread::sleep(time);
    assert_eq!(row.shell(1, &format!("({back}) 2>&1")), "");
}

/// A gateway stands still for longer than silence is borne by requests, as a virtual machine that is moved.
fn asleep(row: &Row, gateways: [&Daemon; 2]) {
    transfers_bear(row, 102, || {
        for gateway in gateways {
            std::thread::sleep(Duration::from_millis(300));
            gateway.signal(libc::SIGSTOP);
            std::thread::sleep(Duration::from_secs(4));
            gateway.signal(libc::SIGCONT);
        }
    });
}

/// Makes a program's wall clock, and it alone, differ by the seconds that stand in the file `JUMP`.
const JUMP: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long jump(void) {
    char text[32] = {0};
    int file = open(getenv("JUMP"), O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += jump();
    return result;
}
int gettimeofday(struct timeval *now, void *zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    now->tv_sec += jump();
    return result;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
"#;

/// Each gateway's wall clock jumps for itself, years ahead and years back: nothing but the stamps of its log lines moves, and
/// the two still find each other.
fn clocks(row: &Row) {
    row.write("jump.c", JUMP);
    let [source, library] = ["jump.c", "jump.so"].map(|name| row.folder.join(name));
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !made.is_ok_and(|status| status.success()) || cfg!(not(target_env = "gnu")) {
        eprintln!(
            "skipped: jumps of the wall clock: there is no C compiler, or the program has no C library to stand before"
        );
        return;
    }
    let start = |site, name: &str| {
        let jumps = row.folder.join(format!("jump-{name}"));
        let daemon = row.daemon_with(site, name, |command| {
            lend(command.stderr(Stdio::piped()).env("LD_PRELOAD", &library).env("JUMP", jumps));
        });
        (name.to_owned(), daemon)
    };
    let mut hub = start(2, "hub");
    hub.1.wait_for("gateway, key");
    let mut terminal = start(1, "terminal");
    terminal.1.wait_for("connected to the other gateway");
    let jump = |gateway: &mut (String, Daemon), years: i64| {
        row.write(&format!("jump-{}", gateway.0), &(years * YEAR).to_string());
        gateway.1.forget_lines();
        gateway.1.signal(libc::SIGHUP);
        gateway.1.wait_for("again: link rate");
        let stamp = gateway.1.seen.last().unwrap()[..4].parse::<i64>().unwrap();
        let year: i64 = row.shell(0, "date -u +%Y").trim().parse().unwrap();
        // Leap days, and a year that ends meanwhile.
        assert!((year + years - 1..=year + years + 1).contains(&stamp), "{stamp} is not {year} {years:+}");
    };
    transfers_bear(row, 103, || {
        for (hub_years, terminal_years) in [(5, 0), (5, -20), (-30, -20), (0, 5)] {
            jump(&mut hub, hub_years);
            jump(&mut terminal, terminal_years);
            std::thread::sleep(Duration::from_millis(300));
            every_byte_in_both_directions(row, SERVER[0], CLIENT[0]);
        }
    });
    // Keys have no dates.
    terminal.1.kill();
    let mut terminal = start(1, "terminal");
    terminal.1.wait_for("connected to the other gateway");
    every_byte_in_both_directions(row, SERVER[0], CLIENT[0]);
}

/// Room of the file system with the log.
const ROOM: usize = 64 << 10;

/// Before the program starts: a small file system over `folder`, with a file that takes `taken` bytes of it, and standard
/// error at its end.
fn log_to_small_disk(command: &mut Command, folder: &Path, taken: usize) {
    let text = |path: &Path| CString::new(path.to_str().unwrap()).unwrap();
    let [target, log, filler] = [folder.to_owned(), folder.join("log"), folder.join("filler")].map(|path| text(&path));
    let size = CString::new(format!("size={ROOM}")).unwrap();
    let prepare = move || {
        let check = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: between fork and exec only system calls on C strings and a static block that live through them.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            check(libc::mount(none.cast(), c"/".as_ptr(), none.cast(), libc::MS_REC | libc::MS_PRIVATE, none))?;
            check(libc::mount(c"tmpfs".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, size.as_ptr().cast()))?;
            let file = check(libc::open(filler.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC, 0o600))?;
            static BLOCK: [u8; 4096] = [0; 4096];
            for _ in 0..taken / BLOCK.len() {
                check(libc::write(file, BLOCK.as_ptr().cast(), BLOCK.len()) as libc::c_int)?;
            }
            let log = check(libc::open(log.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND, 0o644))?;
            check(libc::dup2(log, 2))?;
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(prepare) };
}

/// The disk with the log fills up while a gateway works; later there is room again.
fn full_disk(row: &Row) {
    let mut hub = row.daemon(2, "hub");
    let folder = row.folder.join("disk");
    std::fs::create_dir(&folder).unwrap();
    // One page is left, and a file's lines stop there.
    let mut terminal = row.daemon_with(1, "terminal", |command| {
        log_to_small_disk(command, &folder, ROOM - 4096);
        lend(command);
    });
    row.until_connected();
    let log = format!("/proc/{}/root{}/log", terminal.child.id(), folder.display());
    let length = || std::fs::metadata(&log).unwrap().len();
    let reload = |rounds| {
        (0..rounds).for_each(|_| {
            terminal.signal(libc::SIGHUP);
            std::thread::sleep(Duration::from_millis(30));
        })
    };
    until(row, "full", |_| {
        reload(20);
        length() == 4096
    });
    transfers_bear(row, 104, || reload(20));
    assert_eq!(length(), 4096, "the disk is not full");
    std::fs::remove_file(log.replace("/log", "/filler")).unwrap();
    until(row, "the log goes on", |_| {
        reload(1);
        std::fs::read_to_string(&log).unwrap()[4096..].contains("again: link rate")
    });
    terminal.signal(libc::SIGTERM);
    assert!(terminal.ended().success());
    hub.kill();
}
