//! A front end and a filter that exist nowhere else: one file, and one line of a registry.

use bentpipe_gateway::front_end::{
    Admission, End, Filter, FilterSource, Filtered, FrontEnd, FrontEndSettings, Kind, Listener, Negotiation, Progress,
    RelayedConnection, server,
};
use bentpipe_gateway::log_event::Outcome;
use bentpipe_net::interception::GatewaySockets;
use bentpipe_net::time::{Duration, Instant};
use std::net::SocketAddr;
use std::sync::Arc;

/// `go = "ADDRESS:PORT"`: a client sends `GO host port`, a line, and is answered `OK` or `NO`.
pub const KIND: Kind = Kind {
    key: Some("go"),
    read: |value| FrontEndSettings::read_explicit("go", "GO", &value, || Box::new(Go::default())),
};

/// `shout = "ADDRESS:PORT"`: the same; and what it relays arrives in capital letters, `?` from the client is answered at
/// once with the seconds since the start, and each server greets.
pub const SHOUT: Kind = Kind {
    key: Some("shout"),
    read: |value| {
        let address: SocketAddr =
            FrontEndSettings::read_explicit("shout", "SHOUT", &value, || Box::new(Go::default()))?.address.unwrap();
        let build = move || -> Box<dyn FrontEnd> { Box::new(Shout(Listener::new("SHOUT", address))) };
        Ok(FrontEndSettings::new("shout", "SHOUT", value, Some(address), Arc::new(build)))
    },
};

#[derive(Default)]
struct Go(Vec<u8>);

impl Negotiation for Go {
    fn receive(&mut self, bytes: &[u8], _reply: &mut Vec<u8>) -> Progress {
        self.0.extend_from_slice(bytes);
        let Some(end) = self.0.iter().position(|byte| *byte == b'\n') else { return Progress::More };
        let line = String::from_utf8_lossy(&self.0[..end]).into_owned();
        let [Some("GO"), Some(host), Some(port), None] = ({
            let mut words = line.split(' ');
            [(); 4].map(|()| words.next())
        }) else {
            return Progress::Bad;
        };
        match port.parse().ok().and_then(|port| server(host, port)) {
            Some(server) => Progress::Connect { server, rest: self.0.split_off(end + 1) },
            None => Progress::Bad,
        }
    }

    fn reply(&self, outcome: Outcome, into: &mut Vec<u8>) {
        into.extend_from_slice(if outcome == Outcome::Open { b"OK\n" } else { b"NO\n" });
    }

    fn memory(&self) -> usize {
        self.0.capacity()
    }
}

struct Shout(Listener);

impl FrontEnd for Shout {
    fn poll(&mut self, now: Instant, gateway: &mut dyn Admission) {
        while let Some(socket) = self.0.accept(now, gateway) {
            gateway.accept(socket, Box::new(Go::default()));
        }
    }
    fn next_wake(&self) -> Option<Instant> {
        self.0.next_wake()
    }
    fn close(&mut self, sockets: &mut dyn GatewaySockets) {
        self.0.close(sockets);
    }
    fn filters(&mut self) -> Option<Box<dyn FilterSource>> {
        Some(Box::new(Loud))
    }
}

struct Loud;

impl FilterSource for Loud {
    fn filter(&mut self, connection: &RelayedConnection<'_>) -> Option<Box<dyn Filter>> {
        let greets_at = (connection.end == End::Server).then(|| Instant::ZERO + Duration::from_secs(5));
        Some(Box::new(Capitals { greets_at }))
    }
}

struct Capitals {
    greets_at: Option<Instant>,
}

impl Filter for Capitals {
    fn host_sent(&mut self, now: Instant, bytes: &[u8], filtered: &mut Filtered) {
        for byte in bytes {
            match byte {
                b'?' => filtered.to_host.extend(format!("{:.0} s", now.as_secs_f64()).bytes()),
                byte => filtered.to_link.push(byte.to_ascii_uppercase()),
            }
        }
    }
    fn link_sent(&mut self, _now: Instant, bytes: &[u8], filtered: &mut Filtered) {
        filtered.to_host.extend_from_slice(bytes);
    }
    fn host_ended(&mut self, _now: Instant, filtered: &mut Filtered) {
        filtered.to_link.extend_from_slice(b" (end)");
    }
    fn wake(&mut self, now: Instant, filtered: &mut Filtered) {
        if self.greets_at.take_if(|at| *at <= now).is_some() {
            filtered.to_link.extend_from_slice(b"hello ");
        }
    }
    fn next_wake(&self) -> Option<Instant> {
        self.greets_at
    }
}
