//! A gateway dies and is not started again: the other notices, and waiting clients get an error.

use super::peers::ConnectionPair;
use super::row::{Daemon, Row, SERVER, WAIT, until};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// How long connections outlive the silence.
const HOLD: Duration = Duration::from_secs(4);
/// Further time for the last unanswered probes, and for a busy machine.
const SLACK: Duration = Duration::from_secs(11);
/// A hub that has nothing to say asks a silent terminal after this time (docs/reference/gateway.md).
const ASKS_AFTER: Duration = Duration::from_secs(120);
const QUIET: Duration = Duration::from_secs(2);
/// What a client waits for an answer that is at hand.
const AT_ONCE: Duration = Duration::from_millis(900);

pub fn run(full: bool) {
    let row = Row::new();
    let keys = format!("hold = \"{} s\"\nfail = \"closed\"\nmetrics = \"127.0.0.1:9464\"\n", HOLD.as_secs());
    row.make_pair("", 4433, "50 Mbit/s", [&keys, &keys], "");
    let [mut hub, mut terminal] = row.start_pair();
    terminal_dies(&row, &mut hub, &mut terminal, true);
    if full {
        terminal_dies(&row, &mut hub, &mut terminal, false);
    }
    hub_dies(&row, &mut hub, &mut terminal);
}

/// Two connections, one by each family, that have carried something.
fn two_used(row: &Row, port: u16) -> [ConnectionPair; 2] {
    SERVER.map(|address| {
        let (mut near, mut far) = row.ends(address, port);
        far.set_read_timeout(Some(ASKS_AFTER + HOLD + SLACK)).unwrap();
        let mut seen = [0; 5];
        near.write_all(b"hello").unwrap();
        far.read_exact(&mut seen).unwrap();
        far.write_all(&seen).unwrap();
        near.read_exact(&mut seen).unwrap();
        (near, far)
    })
}

/// Kills the terminal. `talking`: a server goes on to send, so the hub need not ask.
fn terminal_dies(row: &Row, hub: &mut Daemon, terminal: &mut Daemon, talking: bool) {
    let lost = row.metric_at(2, "connections_lost_total").unwrap();
    let connections = two_used(row, 120);
    if !talking {
        // Late acknowledgements come first: nobody owes anybody an answer.
        std::thread::sleep(QUIET);
    }
    hub.forget_lines();
    let death = Instant::now();
    terminal.kill();
    let [(mut near, mut far), (mut near6, mut far6)] = connections;
    for near in [&mut near, &mut near6] {
        assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    // Nothing passes by.
    until(row, "no own rules", |row| !row.shell(1, "nft list tables").contains("bentpipe_25200\n"));
    let took = refused(row, 121);
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(row.metric_at(2, "connected"), Some(1.0), "the hub knows nothing yet");
    if talking {
        far.write_all(b"are you there?").unwrap();
    }
    // Both, also the one that nobody has used meanwhile, and as what they are: broken.
    for far in [&mut far, &mut far6] {
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    let noticed = death.elapsed();
    let least = if talking { HOLD } else { ASKS_AFTER + HOLD };
    println!("the terminal dies, the servers {}: reset after {noticed:.1?}", if talking { "send" } else { "wait" });
    // The hub's clock counts from what it heard last, which was a moment before the death.
    assert!(noticed + Duration::from_secs(3) > least && noticed < least + SLACK, "{noticed:?}");
    hub.wait_for("silent for longer than the hold time; 2 connections were reset");
    assert_eq!(hub.count_lines("the other gateway is silent"), 1);
    until(row, "metrics", |row| {
        let metric = |name| row.metric_at(2, name);
        metric("connected") == Some(0.0)
            && metric("connections_open") == Some(0.0)
            && metric("memory_bytes") == Some(0.0)
            && metric("connections_lost_total") == Some(lost + 2.0)
    });
    // The same terminal, restarted, is let in at once.
    let begun = Instant::now();
    *terminal = row.daemon(1, "terminal");
    terminal.wait_for("connected to the other gateway");
    println!("a new terminal is connected after {:.2?}", begun.elapsed());
    assert!(begun.elapsed() < WAIT / 4, "{:?}", begun.elapsed());
    drop(two_used(row, 122));
}

/// A new connection is refused by the client's gateway, though the server listens and would be reached: how long the slower
/// family took.
fn refused(row: &Row, port: u16) -> Duration {
    let tries = SERVER.map(|address| {
        let listener = row.listen(address, port);
        listener.set_nonblocking(true).unwrap();
        let begun = Instant::now();
        assert_eq!(row.connect(address, port).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let took = begun.elapsed();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{address}: it has passed by");
        took
    });
    tries[0].max(tries[1])
}

/// The same at the terminal, which finds out by itself: it asks after three seconds without data on an open connection.
fn hub_dies(row: &Row, hub: &mut Daemon, terminal: &mut Daemon) {
    let connections = two_used(row, 123);
    terminal.forget_lines();
    let death = Instant::now();
    hub.kill();
    let [(mut near, mut far), (mut near6, mut far6)] = connections;
    for far in [&mut far, &mut far6] {
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    near.write_all(b"are you there?").unwrap();
    for near in [&mut near, &mut near6] {
        assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    let noticed = death.elapsed();
    println!("the hub dies: the clients' connections are reset after {noticed:.1?}");
    assert!(noticed + Duration::from_secs(3) > HOLD && noticed < HOLD + SLACK, "{noticed:?}");
    terminal.wait_for("silent for longer than the hold time; 2 connections were reset");
    until(row, "not connected", |row| row.metric("connected") == Some(0.0));
    refused(row, 124);
    assert_eq!(terminal.count_lines("new connections are refused"), 1);
    // Somebody who asks wakes a terminal that has given up for a while.
    *hub = row.daemon(2, "hub");
    until(row, "connected again", |row| row.connect(SERVER[0], 125).is_err() && row.metric("connected") == Some(1.0));
    drop(two_used(row, 126));
}
