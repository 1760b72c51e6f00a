//! Who stops reading stops who writes, through both gateways, and nobody else.

use super::row::{CLIENT, Row, SERVER, every_byte_in_both_directions, until};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// More than the kernels and the gateways hold of one connection: Linux lets a socket's buffers grow to 4 MB (wmem) and
/// 6 MB (rmem) by default, and there are six sockets' worth on the way; the gateways add what a link in flight needs.
const HELD_MAX: u64 = 64_000_000;
/// The same of zeros: four round trips' worth of the link at 1 Gbit/s, as the gateways reckon it (35 MB), fourfold, and the kernels'.
const ZEROS_HELD_MAX: u64 = 180_000_000;
/// Without a byte taken for this time, the writer is stopped.
const STOPPED: Duration = Duration::from_secs(2);

pub fn run(full: bool) {
    let row = Row::new();
    row.make_pair("", 4433, "1 Gbit/s", ["", "metrics = \"127.0.0.1:9464\"\n"], "");
    let [hub, terminal] = row.start_pair();
    let rounds = if full { 3 } else { 1 };
    for round in 0..rounds {
        for by_client in [true, false] {
            let port = 100 + 2 * round + u16::from(by_client);
            // By each family once, and the other way round in the next round.
            stop_reading(&row, SERVER[usize::from(by_client == (round % 2 == 0))], port, by_client);
            stop_reading_zeros(&row, SERVER[0], port + 50, by_client);
        }
    }
    drop((hub, terminal));
}

/// The same with data that compress a thousandfold: a stream takes at most four times what it takes of others (`relay/credit.rs`).
fn stop_reading_zeros(row: &Row, address: &str, port: u16, client_writes: bool) {
    let (near, far) = row.ends(address, port);
    let (mut writer, mut reader) = if client_writes { (near, far) } else { (far, near) };
    let sent = write_until_stopped(&mut writer, ZEROS_HELD_MAX, |_| 0);
    println!("who writes zeros to {} stops after {sent} B", if client_writes { "the server" } else { "the client" });
    assert!(sent < ZEROS_HELD_MAX, "{sent} B of zeros were taken though nobody reads");
    reader.set_read_timeout(Some(super::row::WAIT)).unwrap();
    writer.shutdown(Shutdown::Write).unwrap();
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert_eq!(read.len() as u64, sent);
    assert!(read.iter().all(|byte| *byte == 0));
    drop((writer, reader));
    until(row, "nothing held", |row| row.metric("memory_bytes") == Some(0.0));
}

/// A byte of an incompressible stream (the finalizer of splitmix64), which tells where it stands.
pub fn byte(at: u64) -> u8 {
    let mixed = (at ^ at >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 56) as u8
}

fn stop_reading(row: &Row, address: &str, port: u16, client_writes: bool) {
    let (near, far) = row.ends(address, port);
    let (mut writer, mut reader) = if client_writes { (near, far) } else { (far, near) };
    let sent = write_until_stopped(&mut writer, HELD_MAX, byte);
    assert!(sent < HELD_MAX, "{sent} B were taken though nobody reads");
    // A window of zero: probes are answered, and nothing is lost by waiting.
    let writing = if client_writes { 0 } else { 3 };
    let window = row.shell(writing, &format!("ss -H -tin '( sport = :{port} or dport = :{port} )'"));
    assert!(window.contains(" snd_wnd:0 ") || !window.contains("snd_wnd"), "{window}");
    let held = row.metric("memory_bytes").unwrap();
    assert!(held < 64.0 * 1024.0 * 1024.0, "{held}");
    // Others go on.
    every_byte_in_both_directions(row, SERVER[0], CLIENT[0]);
    println!("who writes to {} stops after {sent} B", if client_writes { "the server" } else { "the client" });
    reader.set_read_timeout(Some(super::row::WAIT)).unwrap();
    let (mut at, mut block) = (0, vec![0; 1 << 16]);
    while at < sent {
        let length = reader.read(&mut block).unwrap();
        assert!(length > 0, "an end after {at} B of {sent}");
        for seen in &block[..length] {
            assert_eq!(*seen, byte(at), "byte {at}");
            at += 1;
        }
    }
    // It flows again, and ends in order.
    writer.set_nonblocking(false).unwrap();
    writer.write_all(b"the rest").unwrap();
    writer.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "the rest");
    drop((writer, reader));
    until(row, "nothing held", |row| row.metric("memory_bytes") == Some(0.0));
}

fn write_until_stopped(writer: &mut TcpStream, most: u64, byte: impl Fn(u64) -> u8) -> u64 {
    writer.set_nonblocking(true).unwrap();
    let (mut sent, mut last) = (0u64, Instant::now());
    while last.elapsed() < STOPPED && sent < most {
        let block: Vec<u8> = (sent..sent + (1 << 16)).map(&byte).collect();
        match writer.write(&block) {
            Ok(length) => (sent, last) = (sent + length as u64, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => panic!("after {sent} B: {error}"),
        }
    }
    sent
}
