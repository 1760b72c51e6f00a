//! SOCKS5 (RFC 1928), without authentication, for TCP connections.

use super::{FrontEndSettings, Kind, Negotiation, Progress, server as named};
use crate::log_event::{Outcome, Server};
use std::net::{IpAddr, SocketAddr};

/// `socks = "ADDRESS:PORT"`.
pub const KIND: Kind =
    Kind { key: Some("socks"), read: |value| FrontEndSettings::read_explicit("socks", "SOCKS5", &value, new) };

/// The settings of a SOCKS5 proxy at this address.
#[must_use]
pub fn at(address: SocketAddr) -> FrontEndSettings {
    FrontEndSettings::explicit("socks", "SOCKS5", address, new)
}

fn new() -> Box<dyn Negotiation> {
    Box::new(Socks::default())
}

/// One client.
#[derive(Default)]
struct Socks {
    received: Vec<u8>,
    greeted: bool,
}

impl Negotiation for Socks {
    fn receive(&mut self, bytes: &[u8], reply: &mut Vec<u8>) -> Progress {
        self.received.extend_from_slice(bytes);
        if !self.greeted {
            // Version, number of methods, methods (§3).
            let Some((&[version, methods], rest)) = self.received.split_first_chunk() else {
                return if self.received.first().is_some_and(|version| *version != 5) {
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
            self.received.drain(..2 + usize::from(methods));
        }
        // Version, command, reserved, kind of address, address, port (§4).
        let Some((&[version, command, _, kind], rest)) = self.received.split_first_chunk() else {
            return Progress::More;
        };
        if version != 5 {
            return Progress::Bad;
        }
        if command != 1 {
            put_reply(7, reply);
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
                put_reply(8, reply);
                return Progress::Bad;
            }
        };
        let Some((port, rest)) = rest.split_first_chunk() else { return Progress::More };
        let port = u16::from_be_bytes(*port);
        let server = match host {
            Ok(ip) => Some(Server::Address(SocketAddr::new(ip, port))),
            Err(name) => std::str::from_utf8(name).ok().and_then(|name| named(name, port)),
        };
        match server {
            Some(server) => {
                let rest = rest.to_vec();
                self.received = Vec::new();
                Progress::Connect { server, rest }
            }
            None => {
                put_reply(1, reply);
                Progress::Bad
            }
        }
    }

    /// §6.
    fn reply(&self, outcome: Outcome, into: &mut Vec<u8>) {
        let code = match outcome {
            Outcome::Open => 0,
            Outcome::Busy => 1,
            Outcome::Denied => 2,
            Outcome::Unreachable => 4,
            Outcome::Refused => 5,
            Outcome::TimedOut => 6,
        };
        put_reply(code, into);
    }

    fn memory(&self) -> usize {
        self.received.capacity()
    }
}

/// A reply without a bound address: the far side does not report which it used.
fn put_reply(code: u8, into: &mut Vec<u8>) {
    into.extend_from_slice(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front_end::explicit::feed;
    use proptest::prelude::*;

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
                let (progress, reply) = feed(new(), bytes, step);
                assert_eq!(progress, Progress::Connect { server: expected.clone(), rest: b"hello".to_vec() });
                assert_eq!(reply, [5, 0]);
            }
        }
    }

    #[test]
    fn socks_clients_that_want_something_else_get_an_error() {
        for (bytes, reply) in [
            (&b"\x04\x01\x00\x50\x0a\0\0\x01"[..], &[][..]),
            (b"\x05\x01\x02", &[5, 0xff]),
            (b"\x05\x01\x00\x05\x02\x00\x01\x0a\0\0\x01\0\x50", &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            (b"\x05\x01\x00\x05\x01\x00\x09\x0a\0\0\x01\0\x50", &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
            (b"\x05\x01\x00\x05\x01\x00\x03\x03a b\0\x50", &[5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(feed(new(), bytes, 100), (Progress::Bad, reply.to_vec()));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400), step in 1_usize..50, greeted: bool,
        ) {
            let start: &[u8] = if greeted { b"\x05\x01\x00" } else { b"" };
            feed(new(), &[start, &bytes].concat(), step);
        }
    }
}
