//! Who has not read everything yet when a gateway dies sees the rest or an error, and does not wait for ever.

use super::row::{Row, SERVER, until};
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Of a reader's socket: far less than is sent to it.
const BUFFER: usize = 2_304;
/// Fits into the send buffer that a socket begins with.
const BYTES: usize = 20_000;
/// A kernel asks into a closed window at least every 2 s at first (RFC 9293 §3.8.6.1).
const PATIENCE: Duration = Duration::from_secs(8);

pub fn run(_: bool) {
    let (row, mut hub, mut terminal) = Row::with_pair();
    let download = ended_unread(&row, 97, false);
    terminal.kill();
    until(&row, "no rules", |row| !row.shell(1, "nft list tables").contains("bentpipe"));
    must_end(download, "the terminal's death");
    let terminal = row.daemon(1, "terminal");
    row.until_connected();
    let upload = ended_unread(&row, 98, true);
    hub.kill();
    until(&row, "no rules", |row| !row.shell(2, "nft list tables").contains("bentpipe"));
    must_end(upload, "the hub's death");
    drop(terminal);
}

/// A connection that both its ends have ended, of which one has read almost nothing: its socket.
fn ended_unread(row: &Row, port: u16, upload: bool) -> TcpStream {
    let ended = row.metric("connections_ended_total").unwrap();
    let small = |socket: SockRef<'_>| socket.set_recv_buffer_size(BUFFER).unwrap();
    let listener = row.listen(SERVER[0], port);
    // A listener's buffer is its connections'.
    small(SockRef::from(&listener));
    let near = row.connect(SERVER[0], port).unwrap();
    let far = listener.accept().unwrap().0;
    small(SockRef::from(&near));
    let (mut writer, reader) = if upload { (near, far) } else { (far, near) };
    writer.write_all(&[7; BYTES]).unwrap();
    drop(writer);
    // The other side's end must have come before this one's, so that the far host is left with nothing but TIME-WAIT.
    until(row, "the end has arrived", |_| is_half_closed(row, if upload { 2 } else { 1 }, port));
    reader.shutdown(Shutdown::Write).unwrap();
    until(row, "ended", |row| row.metric("connections_ended_total") > Some(ended));
    reader
}

/// True if a gateway has said all to its site.
fn is_half_closed(row: &Row, site: usize, port: u16) -> bool {
    let connections = row.shell(site, "ss -H -tan");
    let mut ours =
        connections.lines().filter(|line| line.contains(&format!(":{port} ")) || line.ends_with(&format!(":{port}")));
    ours.any(|line| line.starts_with("FIN-WAIT"))
}

fn must_end(mut reader: TcpStream, what: &str) {
    reader.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut seen, mut total) = ([0; 1_000], 0);
    let end = loop {
        match reader.read(&mut seen) {
            Ok(0) => break None,
            Ok(length) => total += length,
            Err(error) => break Some(error.kind()),
        }
    };
    match end {
        None => assert_eq!(total, BYTES, "{what}: a clean end of half a file"),
        Some(error) => assert_eq!(error, ErrorKind::ConnectionReset, "{what}: after {total} B"),
    }
}
