//! HTTP CONNECT (RFC 9110 §9.3.6).

use super::{FrontEndSettings, Kind, Negotiation, Progress, server as named};
use crate::log_event::{Outcome, Server};
use std::net::SocketAddr;

/// Most bytes of a request, headers included. RFC 9110 §2.3 recommends 8000 octets for a request line alone; a CONNECT needs
/// a host name and a few headers.
const REQUEST_MAX: usize = 8192;

/// `connect = "ADDRESS:PORT"`.
pub const KIND: Kind = Kind {
    key: Some("connect"),
    read: |value| FrontEndSettings::read_explicit("connect", "HTTP CONNECT", &value, new),
};

/// The settings of an HTTP CONNECT proxy at this address.
#[must_use]
pub fn at(address: SocketAddr) -> FrontEndSettings {
    FrontEndSettings::explicit("connect", "HTTP CONNECT", address, new)
}

fn new() -> Box<dyn Negotiation> {
    Box::new(Connect::default())
}

/// One client.
#[derive(Default)]
struct Connect {
    received: Vec<u8>,
}

impl Negotiation for Connect {
    fn receive(&mut self, bytes: &[u8], reply: &mut Vec<u8>) -> Progress {
        self.received.extend_from_slice(bytes);
        let bad = |status: &str, reply: &mut Vec<u8>| {
            put_reply(status, reply);
            Progress::Bad
        };
        let Some(end) = self.received.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if self.received.len() > REQUEST_MAX {
                bad("431 Request Header Fields Too Large", reply)
            } else {
                Progress::More
            };
        };
        if end > REQUEST_MAX {
            return bad("431 Request Header Fields Too Large", reply);
        }
        let line = self.received.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let Ok(line) = std::str::from_utf8(line) else { return bad("400 Bad Request", reply) };
        let mut words = line.split(' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        let (Some(method), Some(target), Some("HTTP/1.0" | "HTTP/1.1"), None) = (method, target, version, words.next())
        else {
            return bad("400 Bad Request", reply);
        };
        if method != "CONNECT" {
            return bad("405 Method Not Allowed\r\nAllow: CONNECT", reply);
        }
        // Host and port, both needed (RFC 9110 §9.3.6); an IPv6 address stands in brackets (RFC 3986 §3.2.2).
        let Some((host, port)) = target.rsplit_once(':') else { return bad("400 Bad Request", reply) };
        let Ok(port) = port.parse::<u16>() else { return bad("400 Bad Request", reply) };
        let server = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) => {
                v6.parse::<std::net::Ipv6Addr>().ok().map(|ip| Server::Address(SocketAddr::new(ip.into(), port)))
            }
            None => named(host, port),
        };
        match server {
            Some(server) if port != 0 => {
                let rest = self.received[end + 4..].to_vec();
                self.received = Vec::new();
                Progress::Connect { server, rest }
            }
            _ => bad("400 Bad Request", reply),
        }
    }

    fn reply(&self, outcome: Outcome, into: &mut Vec<u8>) {
        match outcome {
            Outcome::Open => into.extend_from_slice(b"HTTP/1.1 200 Connection established\r\n\r\n"),
            Outcome::Busy => put_reply("503 Service Unavailable", into),
            Outcome::Denied => put_reply("403 Forbidden", into),
            Outcome::Unreachable | Outcome::Refused => put_reply("502 Bad Gateway", into),
            Outcome::TimedOut => put_reply("504 Gateway Timeout", into),
        }
    }

    fn memory(&self) -> usize {
        self.received.capacity()
    }
}

fn put_reply(status: &str, into: &mut Vec<u8>) {
    into.extend_from_slice(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front_end::explicit::feed;
    use proptest::prelude::*;

    #[test]
    fn connect_requests_are_understood() {
        let request =
            b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nProxy-Connection: x\r\n\r\n\x16\x03";
        for step in [1, 2, 7, 1000] {
            let (progress, reply) = feed(new(), request, step);
            let server = Server::Name("example.com".to_owned(), 443);
            assert_eq!(progress, Progress::Connect { server, rest: vec![0x16, 3] });
            assert!(reply.is_empty());
        }
        let (progress, _) = feed(new(), b"CONNECT [2001:db8::2]:25 HTTP/1.0\r\n\r\n", 1000);
        let server = Server::Address("[2001:db8::2]:25".parse().unwrap());
        assert_eq!(progress, Progress::Connect { server, rest: Vec::new() });
    }

    #[test]
    fn other_http_requests_are_refused_with_the_reason() {
        let endless = [b"CONNECT a:1 HTTP/1.1\r\n".to_vec(), vec![b'x'; REQUEST_MAX]].concat();
        for (bytes, status) in [
            (&b"GET http://example.com/ HTTP/1.1\r\n\r\n"[..], "405"),
            (b"CONNECT example.com HTTP/1.1\r\n\r\n", "400"),
            (b"CONNECT example.com:http HTTP/1.1\r\n\r\n", "400"),
            (b"CONNECT a/b:80 HTTP/1.1\r\n\r\n", "400"),
            (b"CONNECT a:80 HTTP/2\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (&endless, "431"),
        ] {
            let (progress, reply) = feed(new(), bytes, 4096);
            assert_eq!(progress, Progress::Bad);
            assert!(reply.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{}", String::from_utf8_lossy(&reply));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400), step in 1_usize..50, greeted: bool,
        ) {
            let start: &[u8] = if greeted { b"CONNECT " } else { b"" };
            feed(new(), &[start, &bytes].concat(), step);
        }
    }
}
