//! Two sites, two gateways, a clock.

use crate::pair::Pair;
use crate::site::{Server, Site};
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_gateway::satellite::{SatelliteConfig, Side};
use bentpipe_gateway::{Gateway, GatewayConfig, Memory, Settings};
use bentpipe_link::framing::Framing;
use bentpipe_net::interception::{GatewayProgram, RequestId};
use bentpipe_net::seed::{Seed, Stream, unit};
use bentpipe_net::socket::{SocketId, fill_pattern};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The site of the clients.
pub const NEAR: usize = 0;
/// The site of the servers.
pub const FAR: usize = 1;

/// Two sites joined by a pair of gateways.
pub struct World {
    pub now: Instant,
    pub sites: [Site; 2],
    pub gateways: [Gateway; 2],
    pub pair: Pair,
    /// Polls so far.
    pub polls: u64,
    /// Over QUIC: the link, and what makes another satellite side.
    network: Option<Network>,
}

/// A link for datagrams that loses some.
struct Network {
    delay: Duration,
    random: Stream,
    loss: f64,
    flying: BTreeMap<(Instant, u64), (usize, SocketAddr, Vec<u8>)>,
    sent: u64,
    seed: u64,
}

/// The defaults, for a link of 10 Mbit/s.
pub fn config(side: Side) -> GatewayConfig {
    let mut config = GatewayConfig::new(SatelliteConfig {
        side,
        rate: Some(BitRate::from_bps(10_000_000)),
        framing: Framing::None,
        round_trip: Duration::from_millis(600),
        mtu: 1500,
        loss: 0.0,
        dial_up: false,
        dials: false,
        hold: Settings::default().hold,
        connections: Settings::default().connections,
        memory: Memory::default().total,
    });
    config.local_port = 4433;
    config
}

impl World {
    /// Connected, with these changes to both gateways' configuration.
    pub fn new(change: impl Fn(&mut GatewayConfig)) -> World {
        let world = World::unconnected(change);
        world.pair.connect();
        world
    }

    /// Not connected yet.
    pub fn unconnected(change: impl Fn(&mut GatewayConfig)) -> World {
        let pair = Pair::new(Duration::from_millis(300), 100_000);
        let [near, far] = pair.ends();
        let hub = "198.51.100.1:4433".parse().unwrap();
        let gateways = [(Side::Terminal(hub), near), (Side::Hub, far)].map(|(side, satellite)| {
            let mut config = config(side);
            change(&mut config);
            Gateway::new(config, satellite)
        });
        let sites = [Site::new("198.51.100.2:4433"), Site::new("198.51.100.1:4433")];
        World { now: Instant::ZERO, sites, gateways, pair, polls: 0, network: None }
    }

    /// Over QUIC and a link that loses this share of datagrams.
    pub fn quic(seed: u64, loss: f64, change: impl Fn(&mut GatewayConfig)) -> World {
        let mut world = World::unconnected(change);
        let random = Seed(seed).stream("loss");
        world.network =
            Some(Network { delay: Duration::from_millis(300), random, loss, flying: BTreeMap::new(), sent: 0, seed });
        for end in [NEAR, FAR] {
            world.restart(end);
        }
        world
    }

    /// Over QUIC: the link's delays, both directions together, instead of 600 ms.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        let network = self.network.as_mut().expect("over QUIC");
        network.delay = Duration { ns: round_trip.ns / 2 };
    }

    /// Over QUIC: the share of datagrams that is lost from now on.
    pub fn set_loss(&mut self, loss: f64) {
        self.network.as_mut().expect("over QUIC").loss = loss;
    }

    /// A gateway is killed and restarted; its kernel resets what it had open.
    pub fn kill(&mut self, end: usize) {
        let site = &mut self.sites[end];
        for tcp in site.sockets.values_mut().filter(|tcp| !tcp.closed) {
            tcp.aborted = true;
        }
        site.forget_requests();
        site.listeners.clear();
        self.restart(end);
    }

    fn restart(&mut self, end: usize) {
        let Some(network) = &mut self.network else { return };
        network.seed += 1;
        let config = self.gateways[end].config().clone();
        let (incoming, seed) = (self.gateways[1 - end].config().satellite.rate, network.seed);
        let crypto = Crypto::Model(7);
        let satellite =
            QuicSatellite::with_incoming(self.now, config.satellite.clone(), incoming, crypto, seed).unwrap();
        self.gateways[end] = Gateway::new(config, Box::new(satellite));
    }

    /// Moves datagrams; when the next one arrives.
    fn carry(&mut self) -> Option<Instant> {
        let network = self.network.as_mut()?;
        for end in [NEAR, FAR] {
            let from = self.sites[end].address;
            for (to, data) in self.sites[end].outgoing.drain(..) {
                network.sent += 1;
                if unit(&mut network.random) >= network.loss {
                    let other = 1 - end;
                    assert_eq!(to.port(), 4433);
                    let at = self.now + network.delay;
                    network.flying.insert((at, network.sent), (other, from, data));
                }
            }
        }
        while let Some(entry) = network.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let (end, from, data) = entry.remove();
            self.sites[end].incoming.push_back((from, data));
        }
        network.flying.keys().next().map(|(at, _)| *at)
    }

    /// Works whatever can be worked without the clock; whether anything was.
    pub fn settle(&mut self) -> bool {
        let mut any = false;
        for round in 0.. {
            assert!(round < 10_000, "the gateways never come to rest at {:?}", self.now);
            let mut more = false;
            self.carry();
            for end in [NEAR, FAR] {
                let site = &mut self.sites[end];
                let due = self.gateways[end].next_wake().is_some_and(|at| at <= self.now);
                let ready = !site.changed.is_empty()
                    || site.unseen > 0
                    || !site.incoming.is_empty()
                    || !site.receive_errors.is_empty()
                    || site.listeners.values().any(|(_, queue)| !queue.is_empty());
                if due || ready || self.pair.has_events(end) {
                    self.polls += 1;
                    self.gateways[end].poll(self.now, site);
                    more = true;
                }
            }
            if !more {
                return any;
            }
            any = true;
        }
        any
    }

    /// Goes on to the next time at which something is due; `false`: nothing ever is.
    pub fn step(&mut self, until: Instant) -> bool {
        self.settle();
        let arrival = self.carry();
        let next = self.gateways.iter().filter_map(GatewayProgram::next_wake).chain(arrival).min();
        match next.filter(|at| *at <= until) {
            Some(at) => {
                self.now = at.max(self.now);
                self.settle();
                true
            }
            None => false,
        }
    }

    /// Runs for so long.
    pub fn run_ms(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        while self.step(until) {}
        self.now = until;
        self.settle();
    }

    /// A connection from a client at the near site to a server at the far one: the client's end, the server's end.
    pub fn connect(&mut self) -> (SocketId, SocketId) {
        let request = self.ask(Server::Accepts);
        self.run_ms(700);
        (self.sites[NEAR].answered(request).unwrap(), *self.sites[FAR].made.last().unwrap())
    }

    /// A client asks for a server that behaves like this.
    pub fn ask(&mut self, server: Server) -> RequestId {
        self.sites[FAR].servers.insert(SERVER.parse().unwrap(), server);
        let mut client: SocketAddr = CLIENT.parse().unwrap();
        client.set_port(client.port() + self.sites[NEAR].fates.len() as u16);
        self.sites[NEAR].request(&client.to_string(), SERVER, TRAFFIC_CLASS)
    }

    /// Moves all of `data` from a host at `from` to the host at the other site, which reads. What it got.
    pub fn transfer(&mut self, from: (usize, SocketId), to: (usize, SocketId), data: &[u8]) -> Vec<u8> {
        let (mut sent, mut got, mut idle) = (0, Vec::new(), 0);
        while got.len() < data.len() && idle < 1000 {
            let before = (sent, got.len());
            sent += self.sites[from.0].host_send(from.1, &data[sent..]);
            self.settle();
            got.extend(self.sites[to.0].host_receive(to.1, usize::MAX));
            if before == (sent, got.len()) {
                self.run_ms(10);
                idle += 1;
            } else {
                idle = 0;
            }
        }
        got
    }
}

/// A client's address.
pub const CLIENT: &str = "10.0.0.2:40000";
/// A server's.
pub const SERVER: &str = "10.1.0.2:80";
/// The client's DSCP: AF21.
pub const TRAFFIC_CLASS: u8 = 18 << 2;

/// Bytes that do not shrink.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill_pattern(seed, 0, &mut bytes);
    bytes
}

/// Bytes that do.
pub fn text(length: usize) -> Vec<u8> {
    (0_u64..).flat_map(|n| format!("{n}: the quick brown fox\n").into_bytes()).take(length).collect()
}
