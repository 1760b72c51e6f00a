//! The sockets of a site that wait for others: proc_net(5).

use std::collections::BTreeSet;
use std::io;

/// A TCP socket that accepts connections, or a UDP socket without a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listener {
    /// Its port, 1 or more.
    pub port: u16,
    /// UDP, not TCP.
    pub is_udp: bool,
    /// Tells it from an earlier socket on the same port.
    inode: u64,
}

/// Those of the calling thread's network namespace.
pub(crate) fn listeners() -> io::Result<BTreeSet<Listener>> {
    let mut found = BTreeSet::new();
    for (name, is_udp) in [("tcp", false), ("tcp6", false), ("udp", true), ("udp6", true)] {
        let text = match std::fs::read_to_string(format!("/proc/thread-self/net/{name}")) {
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        found.extend(text.lines().skip(1).filter_map(|line| listener(line, is_udp)));
    }
    Ok(found)
}

/// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …`.
fn listener(line: &str, is_udp: bool) -> Option<Listener> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    let waiting = if is_udp { UDP_UNCONNECTED } else { TCP_LISTEN };
    (state == waiting && port > 0).then_some(Listener { port, is_udp, inode })
}

/// include/net/tcp_states.h; an unconnected UDP socket is in TCP_CLOSE.
const TCP_LISTEN: &str = "0A";
const UDP_UNCONNECTED: &str = "07";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn sockets_that_wait_are_found() {
        let before = listeners().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let after = listeners().unwrap();
        let new = |port: u16, is_udp: bool| {
            let mut new = after.difference(&before);
            new.any(|listener| listener.port == port && listener.is_udp == is_udp)
        };
        assert!(new(tcp.local_addr().unwrap().port(), false));
        assert!(new(udp.local_addr().unwrap().port(), true));
        assert!(!new(client.local_addr().unwrap().port(), false), "a connection accepts nobody");
    }
}
