//! Two hosts and a transfer between them in virtual time: 5 MB over a geostationary link.

use bentpipe_link::catalogue;
use bentpipe_net::socket::{Program, ReceivedPattern, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::LinkSpec;
use bentpipe_sim::network::{Network, Setup};
use std::net::SocketAddr;

const BYTES: u64 = 5_000_000;
const PORT: u16 = 5001;

/// Sends the bytes to whoever connects.
#[derive(Default)]
struct Sender {
    listener: Option<SocketId>,
    socket: Option<SocketId>,
    sent: u64,
}

impl Program for Sender {
    fn poll(&mut self, _now: Instant, sockets: &mut dyn Sockets) {
        if self.listener.is_none() {
            self.listener = sockets.listen(PORT).ok();
        }
        if let (Some(listener), None) = (self.listener, self.socket) {
            self.socket = sockets.accept(listener).ok().flatten();
        }
        let Some(socket) = self.socket else { return };
        while self.sent < BYTES {
            match sockets.send_pattern(socket, 1, self.sent, BYTES - self.sent) {
                Ok(taken) if taken > 0 => self.sent += taken,
                _ => return,
            }
        }
        sockets.finish(socket);
    }
    fn next_wake(&self) -> Option<Instant> {
        self.listener.is_none().then_some(Instant::ZERO)
    }
    fn is_done(&self) -> bool {
        self.sent == BYTES
    }
}

/// Receives them.
struct Receiver {
    server: SocketAddr,
    socket: Option<SocketId>,
    received: u64,
    ended: Option<Instant>,
}

impl Program for Receiver {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.socket.is_none() {
            self.socket = sockets.connect(self.server).ok();
        }
        let Some(socket) = self.socket else { return };
        loop {
            match sockets.receive_pattern(socket, 1, self.received, u64::MAX) {
                Ok(ReceivedPattern::Bytes { bytes, .. }) => self.received += bytes,
                Ok(ReceivedPattern::End) => {
                    self.ended.get_or_insert(now);
                    return;
                }
                _ => return,
            }
        }
    }
    fn next_wake(&self) -> Option<Instant> {
        self.socket.is_none().then_some(Instant::ZERO)
    }
    fn is_done(&self) -> bool {
        self.ended.is_some()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = catalogue::named("geo-two-way").ok_or("no such link")??.config()?;
    let sites = ["hub", "terminal"].map(str::to_owned).to_vec();
    let spec = LinkSpec { name: "sat".into(), sites, carries_ethernet: config.carries_ethernet, mtu: config.mtu };
    let mut network: Network<Box<dyn Program>> =
        Network::new(&Setup { links: vec![(spec, config)], seed: 1, ..Setup::default() })?;
    let server = SocketAddr::new(network.plan().address(0).ok_or("no address")?.into(), PORT);
    network.start(0, Box::<Sender>::default());
    let receiver = Receiver { server, socket: None, received: 0, ended: None };
    let receiver = network.start(1, Box::new(receiver));
    let end = Instant::ZERO + Duration::from_secs(600);
    while network.now() < end && !network.program(receiver).is_some_and(|program| program.is_done()) {
        network.run_until(end);
    }
    let sent = network.links()[0].directions()[0].sender_counters();
    println!("{BYTES} B in {:.3} s, {} packets", network.now().as_secs_f64(), sent.sent_packets);
    Ok(())
}
