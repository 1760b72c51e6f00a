//! A newly declared rate, up and down, counts for a transfer that is under way.

use super::link::EmulatedLink;
use super::pushback::byte;
use super::row::{EndOnDrop, Row, SERVER, WAIT, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A geostationary link that carries ten times what is declared to the pair at first: by then a round trip holds more
/// than what the first rate asks windows for.
const LINK: &str = "mtu = \"1500 B\"\nframing = \"none\"\nqueue = { bytes = \"750 kB\" }\nrate = \"10 Mbit/s\"\n\
                    one_way_delay = \"300 ms\"\n";
const SLOW: (&str, f64) = ("1 Mbit/s", 1e6);
const FAST: (&str, f64) = ("10 Mbit/s", 10e6);
/// Goodput is at least this part of the rate: headers and the pair's own take some 5 %.
const SHARE: f64 = 0.8;
/// Over which a rate is measured.
const WINDOW: Duration = Duration::from_secs(2);

/// How often a part is tried whose link was late.
const TRIES: usize = 3;

pub fn run(full: bool) {
    judged(&["hub", "terminal"], if full { 3 } else { 1 }, full);
    if full {
        // The faster link has been declared to the terminal before.
        judged(&["hub"], 1, full);
    }
}

/// Fails if a link that kept its times shows a wrong rate; where it was late, tries again.
fn judged(names: &[&str], rounds: usize, full: bool) {
    for _ in 0..TRIES {
        let row = Row::over(LINK);
        let Err(wrong) = changed(&row, names, rounds, full) else { return };
        let late = row.link.as_ref().and_then(EmulatedLink::lateness);
        println!("again: {wrong}; {}", late.unwrap_or_else(|| panic!("{wrong}")));
    }
    println!("reload: not judged: the machine was too busy {TRIES} times");
}

/// Both rates in turn for one download, `rounds` times, in the files of these gateways. Unless `full`, the first and
/// the last are not measured. What is wrong with the rates that were seen is the error.
fn changed(row: &Row, names: &[&str], rounds: usize, full: bool) -> Result<(), String> {
    let metrics = "metrics = \"127.0.0.1:9464\"\n";
    row.make_pair_on("", 4433, LINK, [metrics, metrics], "");
    names.iter().for_each(|name| rate(row, name, FAST.0, SLOW.0));
    let [mut hub, mut terminal] = row.start_pair();
    let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (near, far) = row.ends(SERVER[0], 130);
    let lost = row.metric("connections_lost_total");
    std::thread::scope(|scope| {
        scope.spawn(|| send(far, &is_over));
        scope.spawn(|| receive(near, &received));
        let _ends = EndOnDrop(&is_over);
        let settles = |at: f64| settles(&received, at);
        if full {
            println!("{names:?} at {}: settled after {:.1?}", SLOW.0, settles(SLOW.1)?);
        } else {
            until(row, "under way", |_| received.load(Ordering::Relaxed) > 100_000);
        }
        let mut steps = vec![(SLOW, FAST)];
        (0..rounds).for_each(|_| steps.extend([(FAST, SLOW), (SLOW, FAST)]));
        let count = steps.len();
        for (n, (from, to)) in steps.into_iter().enumerate() {
            for (gateway, name) in [(&mut hub, "hub"), (&mut terminal, "terminal")] {
                if names.contains(&name) {
                    rate(row, name, from.0, to.0);
                    gateway.forget_lines();
                    gateway.signal(libc::SIGHUP);
                    gateway.wait_for(&format!("link rate {}", to.0));
                }
            }
            if !full && n + 1 == count {
                break; // What is on its way need not come slowly.
            }
            println!("{names:?} reloaded with {}: settled after {:.1?}", to.0, settles(to.1)?);
        }
        // The same connection, of the client's and of the pair's.
        assert_eq!(row.metric("connections_open"), Some(1.0));
        assert_eq!(row.metric("connections_lost_total"), lost);
        match (hub.count_lines("throttled to"), terminal.count_lines("throttled to")) {
            (0, 0) => Ok(()),
            (hub, terminal) => Err(format!("throttled {hub} times by the hub, {terminal} by the terminal")),
        }
    })?;
    until(row, "ended", |row| row.metric("connections_open") == Some(0.0));
    Ok(())
}

/// Writes another rate into a gateway's file.
fn rate(row: &Row, name: &str, from: &str, to: &str) {
    row.edit(&format!("{name}.toml"), &format!("rate = \"{from}\""), &format!("rate = \"{to}\""));
}

const BLOCK: u64 = 8192;

fn block(n: u64) -> Vec<u8> {
    (n * BLOCK..(n + 1) * BLOCK).map(byte).collect()
}

fn send(mut to: TcpStream, is_over: &AtomicBool) {
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        to.write_all(&block(n)).unwrap();
    }
}

/// Counts what has come, and compares it with what was sent.
fn receive(mut from: TcpStream, received: &AtomicU64) {
    let mut seen = vec![0; BLOCK as usize];
    for n in 0.. {
        let mut filled = 0;
        while filled < seen.len() {
            match from.read(&mut seen[filled..]).unwrap() {
                0 => return assert_eq!(filled, 0, "a block was cut short"),
                length => filled += length,
            }
        }
        assert!(seen == block(n), "block {n}");
        received.fetch_add(seen.len() as u64, Ordering::Relaxed);
    }
}

/// Waits until the bytes of a window fit the rate: how long that took, the window included. The error says what came instead.
fn settles(received: &AtomicU64, rate: f64) -> Result<Duration, String> {
    let begun = Instant::now();
    loop {
        let (start, before) = (Instant::now(), received.load(Ordering::Relaxed));
        std::thread::sleep(WINDOW);
        let bits = (received.load(Ordering::Relaxed) - before) as f64 * 8.0;
        let seen = bits / start.elapsed().as_secs_f64();
        if (SHARE * rate..=1.05 * rate).contains(&seen) {
            println!("{:.2} of {:.0} Mbit/s", seen / 1e6, rate / 1e6);
            return Ok(begun.elapsed());
        }
        if begun.elapsed() >= WAIT {
            return Err(format!("{:.2} Mbit/s at a rate of {:.0} Mbit/s", seen / 1e6, rate / 1e6));
        }
    }
}
