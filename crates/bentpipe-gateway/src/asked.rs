//! Proxies that are asked: SOCKS5 (RFC 1928) and HTTP CONNECT (RFC 9110 §9.3.6).
//!
//! [`Asked`] reads what a client says until it has asked for a connection, and writes the reply that the outcome demands.
//! Bytes that follow the request are the connection's first.

use crate::notice::{Outcome, Server};
use crate::relay::frame::is_name;
use std::net::{IpAddr, SocketAddr};

/// Most bytes of a CONNECT request, headers included. RFC 9110 §2.3 recommends 8000 octets for a request line alone; a
/// CONNECT needs a host name and a few headers.
const REQUEST_MAX: usize = 8192;

/// What a client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Socks,
    Connect,
}

/// Where the conversation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The client has not said enough.
    More,
    /// It wants to be connected. `rest` was sent after the request.
    Connect { server: Server, rest: Vec<u8> },
    /// What it said is no request: close once the reply is out.
    Bad,
}

/// One conversation.
#[derive(Debug)]
pub(crate) struct Asked {
    protocol: Protocol,
    heard: Vec<u8>,
    greeted: bool,
}

impl Asked {
    pub(crate) fn new(protocol: Protocol) -> Asked {
        Asked { protocol, heard: Vec::new(), greeted: false }
    }

    /// Bytes it holds.
    pub(crate) fn held(&self) -> usize {
        self.heard.capacity()
    }

    /// The client said `bytes`; what must be answered is appended to `reply`.
    pub(crate) fn hear(&mut self, bytes: &[u8], reply: &mut Vec<u8>) -> Progress {
        self.heard.extend_from_slice(bytes);
        match self.protocol {
            Protocol::Socks => self.hear_socks(reply),
            Protocol::Connect => self.hear_connect(reply),
        }
    }

    fn hear_socks(&mut self, reply: &mut Vec<u8>) -> Progress {
        if !self.greeted {
            // Version, number of methods, methods (§3).
            let Some((&[version, methods], rest)) = self.heard.split_first_chunk() else {
                return if self.heard.first().is_some_and(|version| *version != 5) {
                    Progress::Bad
                } else {
                    Progress::More
                };
            };
            if version != 5 {
                return Progress::Bad;
            }
            let Some(offered) = rest.get(..usize::from(methods)) else { return Progress::More };
            if !offered.contains(&0) {
                reply.extend_from_slice(&[5, 0xff]);
                return Progress::Bad;
            }
            reply.extend_from_slice(&[5, 0]);
            self.greeted = true;
            self.heard.drain(..2 + usize::from(methods));
        }
        // Version, command, reserved, kind of address, address, port (§4).
        let Some((&[version, command, _, kind], rest)) = self.heard.split_first_chunk() else { return Progress::More };
        if version != 5 {
            return Progress::Bad;
        }
        if command != 1 {
            socks_reply(7, reply);
            return Progress::Bad;
        }
        let (host, rest) = match kind {
            1 => match rest.split_first_chunk::<4>() {
                Some((ip, rest)) => (Ok(IpAddr::from(*ip)), rest),
                None => return Progress::More,
            },
            4 => match rest.split_first_chunk::<16>() {
                Some((ip, rest)) => (Ok(IpAddr::from(*ip)), rest),
                None => return Progress::More,
            },
            3 => match rest.split_first().and_then(|(length, rest)| rest.split_at_checked(usize::from(*length))) {
                Some((name, rest)) => (Err(name), rest),
                None => return Progress::More,
            },
            _ => {
                socks_reply(8, reply);
                return Progress::Bad;
            }
        };
        let Some((port, rest)) = rest.split_first_chunk() else { return Progress::More };
        let port = u16::from_be_bytes(*port);
        let server = match host {
            Ok(ip) => Some(Server::Address(SocketAddr::new(ip, port))),
            Err(name) => std::str::from_utf8(name).ok().and_then(|name| server(name, port)),
        };
        match server {
            Some(server) => Progress::Connect { server, rest: rest.to_vec() },
            None => {
                socks_reply(1, reply);
                Progress::Bad
            }
        }
    }

    fn hear_connect(&mut self, reply: &mut Vec<u8>) -> Progress {
        let bad = |status: &str, reply: &mut Vec<u8>| {
            http_reply(status, reply);
            Progress::Bad
        };
        let Some(end) = self.heard.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if self.heard.len() > REQUEST_MAX {
                bad("431 Request Header Fields Too Large", reply)
            } else {
                Progress::More
            };
        };
        if end > REQUEST_MAX {
            return bad("431 Request Header Fields Too Large", reply);
        }
        let line = self.heard.split(|byte| *byte == b'\r').next().unwrap_or_default();
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
            None => server(host, port),
        };
        match server {
            Some(server) if port != 0 => Progress::Connect { server, rest: self.heard[end + 4..].to_vec() },
            _ => bad("400 Bad Request", reply),
        }
    }

    /// The reply that `outcome` demands.
    pub(crate) fn reply(protocol: Protocol, outcome: Outcome, into: &mut Vec<u8>) {
        match protocol {
            // §6.
            Protocol::Socks => socks_reply(
                match outcome {
                    Outcome::Open => 0,
                    Outcome::Busy => 1,
                    Outcome::Denied => 2,
                    Outcome::Unreachable => 4,
                    Outcome::Refused => 5,
                    Outcome::TimedOut => 6,
                },
                into,
            ),
            Protocol::Connect => match outcome {
                Outcome::Open => into.extend_from_slice(b"HTTP/1.1 200 Connection established\r\n\r\n"),
                Outcome::Busy => http_reply("503 Service Unavailable", into),
                Outcome::Denied => http_reply("403 Forbidden", into),
                Outcome::Unreachable | Outcome::Refused => http_reply("502 Bad Gateway", into),
                Outcome::TimedOut => http_reply("504 Gateway Timeout", into),
            },
        }
    }
}

/// A server by name, or by an address in the place of a name.
fn server(host: &str, port: u16) -> Option<Server> {
    match host.parse::<IpAddr>() {
        Ok(ip) => Some(Server::Address(SocketAddr::new(ip, port))),
        Err(_) => is_name(host).then(|| Server::Name(host.to_owned(), port)),
    }
}

/// A reply without a bound address: the far side does not say which it used.
fn socks_reply(code: u8, into: &mut Vec<u8>) {
    into.extend_from_slice(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
}

fn http_reply(status: &str, into: &mut Vec<u8>) {
    into.extend_from_slice(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `bytes` in pieces of `step`; what came of it and all that was replied.
    fn say(protocol: Protocol, bytes: &[u8], step: usize) -> (Progress, Vec<u8>) {
        let (mut asked, mut reply) = (Asked::new(protocol), Vec::new());
        let mut progress = Progress::More;
        let mut said = 0;
        for piece in bytes.chunks(step) {
            progress = asked.hear(piece, &mut reply);
            said += piece.len();
            if progress != Progress::More {
                break;
            }
        }
        if let Progress::Connect { rest, .. } = &mut progress {
            rest.extend_from_slice(&bytes[said..]);
        }
        (progress, reply)
    }

    #[test]
    fn socks_requests_are_understood_in_any_pieces() {
        let name = b"\x05\x02\x00\x02\x05\x01\x00\x03\x0bexample.com\x01\xbbhello";
        let v4 = b"\x05\x01\x00\x05\x01\x00\x01\x0a\x01\x02\x03\x00\x50hello";
        let v6 = b"\x05\x01\x00\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50hello";
        for (bytes, expected) in [
            (&name[..], Server::Name("example.com".to_owned(), 443)),
            (&v4[..], Server::Address("10.1.2.3:80".parse().unwrap())),
            (&v6[..], Server::Address("[2001:db8::1]:80".parse().unwrap())),
        ] {
            for step in 1..bytes.len() {
                let (progress, reply) = say(Protocol::Socks, bytes, step);
                assert_eq!(progress, Progress::Connect { server: expected.clone(), rest: b"hello".to_vec() });
                assert_eq!(reply, [5, 0]);
            }
        }
    }

    #[test]
    fn socks_clients_that_want_something_else_are_told() {
        for (bytes, reply) in [
            (&b"\x04\x01\x00\x50\x0a\0\0\x01"[..], &[][..]),
            (b"\x05\x01\x02", &[5, 0xff]),
            (b"\x05\x01\x00\x05\x02\x00\x01\x0a\0\0\x01\0\x50", &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            (b"\x05\x01\x00\x05\x01\x00\x09\x0a\0\0\x01\0\x50", &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
            (b"\x05\x01\x00\x05\x01\x00\x03\x03a b\0\x50", &[5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(say(Protocol::Socks, bytes, 100), (Progress::Bad, reply.to_vec()));
        }
    }

    #[test]
    fn connect_requests_are_understood() {
        let request =
            b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nProxy-Connection: x\r\n\r\n\x16\x03";
        for step in [1, 2, 7, 1000] {
            let (progress, reply) = say(Protocol::Connect, request, step);
            let server = Server::Name("example.com".to_owned(), 443);
            assert_eq!(progress, Progress::Connect { server, rest: vec![0x16, 3] });
            assert!(reply.is_empty());
        }
        let (progress, _) = say(Protocol::Connect, b"CONNECT [2001:db8::2]:25 HTTP/1.0\r\n\r\n", 1000);
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
            let (progress, reply) = say(Protocol::Connect, bytes, 4096);
            assert_eq!(progress, Progress::Bad);
            assert!(reply.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{}", String::from_utf8_lossy(&reply));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_proxy_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400), step in 1_usize..50, socks: bool, greeted: bool,
        ) {
            let protocol = if socks { Protocol::Socks } else { Protocol::Connect };
            let start: &[u8] = match (socks, greeted) {
                (true, true) => b"\x05\x01\x00",
                (false, true) => b"CONNECT ",
                _ => b"",
            };
            say(protocol, &[start, &bytes].concat(), step);
        }
    }
}
