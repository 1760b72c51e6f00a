//! Many connections, many bytes and many deaths, and every payload verified.

use super::row::{Daemon, Row, SERVER, WAIT, until};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Faster than what two gateways on one machine relay, so that the processor is the limit.
const RATE: &str = "2 Gbit/s";
/// What an idle pair with its connections may take, each gateway.
const MEMORY_KB_MAX: u64 = 200_000;
/// Of the threads that hold a connection.
const STACK: usize = 128 << 10;
/// A whole gigabyte for the processor's time.
const GIGABYTE: usize = 1_000_000_000;
/// Connections of which one gateway is killed.
const TRANSFERS: u64 = 50;

/// All of it; with small numbers unless `full`.
pub fn run(full: bool) {
    let row = Row::new();
    row.make_pair("", 4433, RATE, ["", "metrics = \"127.0.0.1:9464\"\n"], "ports = [\"1-8999\"]\n");
    let [mut hub, mut terminal] = row.start_pair();
    echoes(row.listen("::", 80));
    downloads(row.listen("::", 81));

    let number = if full { 1000 } else { 100 };
    let seconds = parallel(&row, number, 80);
    println!("{number} connections at once, each payload verified: {seconds:.1} s");
    let number = if full { 10_000 } else { 200 };
    let begun = Instant::now();
    (0..number).for_each(|index| exchange(&mut connected(&row, 80), index));
    println!("{number} connections one after another: {:.1} s", begun.elapsed().as_secs_f64());
    idle(&row, &hub, &terminal, if full { 5000 } else { 300 });
    for streams in [1, 32] {
        processor(&row, &hub, &terminal, streams, if full { GIGABYTE } else { GIGABYTE / 50 });
    }
    two_pairs(&row, &mut hub, &mut terminal, if full { 500 } else { 50 });

    let mut hub = row.daemon(2, "hub");
    let mut terminal = row.daemon(1, "terminal");
    let mut random = Random(7);
    let rounds = if full { 100 } else { 4 };
    kills(&row, &mut hub, &mut terminal, 0..rounds, &mut random, full);
    // The same where nothing may pass by.
    drop((hub, terminal));
    row.edit("terminal.toml", "drain", "fail = \"closed\"\ndrain");
    let mut hub = row.daemon(2, "hub");
    let mut terminal = row.daemon(1, "terminal");
    let further = rounds..rounds + if full { 50 } else { 2 };
    kills(&row, &mut hub, &mut terminal, further, &mut random, full);
}

/// A gateway dies in each of these rounds.
fn kills(row: &Row, hub: &mut Daemon, terminal: &mut Daemon, rounds: Range<u64>, random: &mut Random, full: bool) {
    let (first, number, mut sums) = (rounds.start, rounds.end - rounds.start, [0; 2]);
    for round in rounds {
        row.until_connected();
        let site = if round < first + 2 { 1 + round - first } else { 1 + random.below(2) } as usize;
        let moment = Duration::from_millis(random.below(400));
        let victim = if site == 1 { &mut *terminal } else { &mut *hub };
        let ends = kill_amid(row, site, victim, moment, round);
        sums = [sums[0] + ends[0], sums[1] + ends[1]];
    }
    let [whole, errors] = sums;
    // Of the few deaths of the short run, all may come before a transfer's end on a busy machine; of the many of the long
    // run some must come after one.
    assert!(
        errors > 0 && (whole > 0 || !full),
        "the deaths came too early or too late: {whole} whole, {errors} errors"
    );
    println!("{number} gateways killed: {whole} whole files, {errors} errors, no short file with a clean end");
}

/// xorshift64*, seeded: a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The payload of a number, incompressible and unlike that of any other.
fn payload(number: u64, length: usize) -> Vec<u8> {
    let mut random = Random((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// What a client sends, and what it is answered; both may be empty.
fn requested(index: u64) -> Vec<u8> {
    payload(2 * index, (index * 7919 % 30_000) as usize)
}

fn answered(index: u64) -> Vec<u8> {
    payload(2 * index + 1, (index * 104_729 % 50_000) as usize)
}

/// Bytes of a file that is downloaded.
fn file(number: u64) -> Vec<u8> {
    payload(number, 300_000 + (number * 7919 % 300_000) as usize)
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(STACK).spawn(work).unwrap();
}

/// Serves as long as the test runs: reads a number and what belongs to it until the client's end, and answers.
fn echoes(listener: TcpListener) {
    spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            spawn(move || {
                let mut bytes = Vec::new();
                // The end of a killed gateway's connection is an error, and no concern of the server's.
                if stream.read_to_end(&mut bytes).is_err() || bytes.len() < 8 {
                    return;
                }
                let index = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                // Anything else gets no answer, which the client notices.
                if bytes[8..] == requested(index) {
                    let _ = stream.write_all(&answered(index));
                }
            });
        }
    });
}

/// Serves as long as the test runs: reads a number, and sends its file.
fn downloads(listener: TcpListener) {
    spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            spawn(move || {
                let mut number = [0; 8];
                if stream.read_exact(&mut number).is_ok() {
                    let _ = stream.write_all(&file(u64::from_le_bytes(number)));
                }
            });
        }
    });
}

fn connected(row: &Row, port: u16) -> TcpStream {
    row.connect(SERVER[0], port).unwrap()
}

fn exchange(stream: &mut TcpStream, index: u64) {
    stream.set_read_timeout(Some(6 * WAIT)).unwrap();
    stream.write_all(&index.to_le_bytes()).unwrap();
    stream.write_all(&requested(index)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap_or_else(|error| panic!("connection {index}: {error}"));
    assert!(answer == answered(index), "connection {index}: {} B of {}", answer.len(), answered(index).len());
}

/// All are open before the first transfers anything.
fn parallel(row: &Row, number: u64, port: u16) -> f64 {
    let begun = Instant::now();
    let all_open = Barrier::new(number as usize);
    std::thread::scope(|scope| {
        for index in 0..number {
            let all_open = &all_open;
            let work = move || {
                let mut stream = connected(row, port);
                all_open.wait();
                exchange(&mut stream, index);
            };
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).unwrap();
        }
    });
    begun.elapsed().as_secs_f64()
}

/// Idle connections take little, and still work.
fn idle(row: &Row, hub: &Daemon, terminal: &Daemon, number: usize) {
    let before = [hub.memory_kb(), terminal.memory_kb()];
    // Half an exchange: the server waits for the client's end.
    let open = || -> Vec<TcpStream> {
        let own = (0..number / 8).map(|_| connected(row, 80));
        own.collect()
    };
    let mut streams: Vec<TcpStream> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        openers.into_iter().flat_map(|opener| opener.join().unwrap()).collect()
    });
    let after = [hub.memory_kb(), terminal.memory_kb()];
    let number = streams.len();
    println!(
        "{number} idle connections: hub {} kB (before {} kB), terminal {} kB (before {} kB)",
        after[0], before[0], after[1], before[1]
    );
    assert!(after.into_iter().all(|kb| kb < MEMORY_KB_MAX), "{after:?} kB");
    until(row, "all open", |row| row.metric("connections_open") >= Some(number as f64));
    streams.iter_mut().step_by(number / 20).enumerate().for_each(|(n, stream)| exchange(stream, n as u64));
}

/// Seconds of a process's own threads (proc(5): the fields utime and stime, the twelfth and thirteenth after the name).
fn processor_seconds(gateway: &Daemon) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", gateway.child.id())).unwrap();
    let after_name = text.rsplit(')').next().unwrap();
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    // SAFETY: takes a plain number.
    ticks / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

/// Long downloads of incompressible bytes, `bytes` in all.
fn processor(row: &Row, hub: &Daemon, terminal: &Daemon, streams: usize, bytes: usize) {
    const BLOCK: usize = 1 << 18;
    let block = payload(u64::MAX / 3, BLOCK);
    let blocks = bytes / BLOCK / streams;
    let listener = row.listen("::", 82 + streams as u16);
    let before = [processor_seconds(hub), processor_seconds(terminal)];
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..streams {
            let (listener, block) = (&listener, &block);
            scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                (0..blocks).for_each(|_| stream.write_all(block).unwrap());
            });
            scope.spawn(move || {
                let mut stream = connected(row, 82 + streams as u16);
                let mut received = vec![0; BLOCK];
                for n in 0..blocks {
                    stream.read_exact(&mut received).unwrap();
                    assert!(received == *block, "block {n}");
                }
                assert_eq!(stream.read(&mut received).unwrap(), 0);
            });
        }
    });
    let moved = (blocks * BLOCK * streams) as f64;
    let rate = moved * 8.0 / begun.elapsed().as_secs_f64() / 1e6;
    let spent = [processor_seconds(hub) - before[0], processor_seconds(terminal) - before[1]];
    let [hub, terminal] = spent.map(|seconds| seconds * GIGABYTE as f64 / moved);
    println!(
        "processor, {streams} streams: hub (sends) {hub:.1} s/GB, terminal (receives) {terminal:.1} s/GB, at {rate:.0} Mbit/s"
    );
}

/// A second pair on the same machines captures what the first leaves alone. Ends both in order.
fn two_pairs(row: &Row, hub: &mut Daemon, terminal: &mut Daemon, number: u64) {
    row.make_pair("2", 4434, RATE, ["", ""], "ports = [\"9000-9999\"]\n");
    let mut hub2 = row.daemon(2, "hub2");
    let mut terminal2 = row.daemon(1, "terminal2");
    terminal2.wait_for("connected to the other gateway");
    echoes(row.listen("::", 9080));
    std::thread::scope(|scope| {
        scope.spawn(|| parallel(row, number, 80));
        scope.spawn(|| parallel(row, number, 9080));
    });
    for daemon in [&mut *terminal, &mut terminal2, &mut *hub, &mut hub2] {
        daemon.signal(libc::SIGTERM);
        daemon.wait_for("stopped; ");
        assert!(daemon.ended().success());
    }
    for daemon in [&hub2, &terminal2] {
        let line = daemon.seen.last().unwrap();
        assert!(line.contains(&format!("stopped; {number} connections relayed")), "{line}");
    }
    assert_eq!(row.shell(1, "nft list ruleset"), "");
    println!("two pairs on the same machines, {number} connections each: each payload verified");
}

/// Kills a gateway `moment` after its transfers have begun: how many clients saw the whole file, and how many an error.
/// Any other end is a failure.
fn kill_amid(row: &Row, site: usize, victim: &mut Daemon, moment: Duration, round: u64) -> [usize; 2] {
    let (whole, errors) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for n in 0..TRANSFERS {
            let number = round * TRANSFERS + n;
            let (whole, errors) = (&whole, &errors);
            let work = move || match download(row, number) {
                Ok(()) => whole.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    let is_end = !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    assert!(is_end, "transfer {number} hangs: {error}");
                    errors.fetch_add(1, Ordering::Relaxed)
                }
            };
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).unwrap();
        }
        std::thread::sleep(moment);
        victim.kill();
        // Another is started at once, as a service manager does: what the other gateway still holds is ended by it.
        *victim = row.daemon(site, if site == 1 { "terminal" } else { "hub" });
    });
    [whole.into_inner(), errors.into_inner()]
}

fn download(row: &Row, number: u64) -> io::Result<()> {
    let mut stream = row.connect(SERVER[0], 81)?;
    stream.write_all(&number.to_le_bytes())?;
    let (wanted, mut received) = (file(number), Vec::new());
    let end = stream.read_to_end(&mut received);
    assert!(wanted.starts_with(&received), "transfer {number}: foreign bytes");
    end?;
    assert_eq!(received.len(), wanted.len(), "transfer {number}: a short file with a clean end");
    Ok(())
}
