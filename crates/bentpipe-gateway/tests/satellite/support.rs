//! Two satellite sides over a link, in virtual time, with programs that write and read streams.
#![allow(dead_code)] // Each test file uses a part.

use bentpipe_gateway::Memory;
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_gateway::satellite::{Class, Event, Loss, Read, Satellite, SatelliteConfig, Side, StreamId};
use bentpipe_link::catalogue::LinkFile;
use bentpipe_link::config::LinkConfig;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::buffer::Buffer;
use bentpipe_net::headers::Headers;
use bentpipe_net::packet::Packet;
use bentpipe_net::seed::{Seed, Stream, unit};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Sides by number: 0 the hub, 1 the terminal, as ports of the link.
pub const HUB: usize = 0;
pub const TERMINAL: usize = 1;
/// IP and UDP headers.
const HEADERS: usize = 28;

pub fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

pub fn at(s: f64) -> Instant {
    Instant::ZERO + seconds(s)
}

pub fn link_config(text: &str) -> LinkConfig {
    let text = format!("title = \"test\"\nsummary = \"test\"\n{text}");
    let file = LinkFile::parse("test", "test.toml", &text).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
    file.config().unwrap_or_else(|problem| panic!("{problem}"))
}

/// What happens to packets between the link and the receiver, apart from the link itself.
#[derive(Clone, Copy, Default)]
pub struct Mischief {
    pub duplicate: f64,
    /// Held back for up to 50 ms.
    pub reorder: f64,
    /// One bit changed in a datagram that is delivered.
    pub corrupt: f64,
    pub lose: f64,
}

/// A byte of a test stream.
pub fn byte(stream: u64, offset: u64) -> u8 {
    let word = (offset / 8 + stream.wrapping_mul(0x1234_5678_9abc)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ (word >> 29)).to_le_bytes()[(offset % 8) as usize]
}

/// One direction of one stream at one side.
#[derive(Clone, Copy, Default, Debug)]
pub struct Flow {
    /// To write here in all; the end follows.
    pub to_write: u64,
    pub written: u64,
    pub finished: bool,
    pub delivered: Option<Instant>,
    pub read: u64,
    pub first_byte: Option<Instant>,
    pub ended: Option<Instant>,
    /// Content that was not what was written.
    pub wrong: u64,
    /// Answer with so many bytes when the other side's end has come.
    pub answer: u64,
    /// Nothing is read before then.
    pub read_from: Instant,
    pub reset: Option<u32>,
    pub stopped: Option<u32>,
    /// The number by which both sides know the content.
    pub content: u64,
}

/// One side: the satellite and what its programs do.
pub struct Station {
    pub satellite: QuicSatellite,
    pub address: SocketAddr,
    pub flows: BTreeMap<StreamId, Flow>,
    pub events: Vec<(Instant, Event)>,
    /// What each stream that the other side opens is answered with, and from when it is read.
    pub answer: u64,
    pub read_from: Instant,
    /// What may be unread of a stream.
    pub limit: u64,
    /// Neither sent to nor woken until then.
    pub frozen_until: Instant,
    opened: u64,
    inbox: Vec<(SocketAddr, Vec<u8>)>,
    /// Datagrams sent, kept if asked.
    pub trace: Option<Vec<(Instant, Vec<u8>)>>,
}

impl Station {
    pub fn new(now: Instant, config: SatelliteConfig, crypto: Crypto, seed: u64) -> Station {
        let address = if config.side == Side::Hub { hub_address() } else { "10.0.0.2:40000".parse().unwrap() };
        Station {
            satellite: QuicSatellite::with_incoming(now, config, Some(BitRate::from_bps(250_000_000)), crypto, seed)
                .unwrap(),
            address,
            flows: BTreeMap::new(),
            events: Vec::new(),
            answer: 0,
            read_from: Instant::ZERO,
            limit: u64::MAX,
            frozen_until: Instant::ZERO,
            opened: 0,
            inbox: Vec::new(),
            trace: None,
        }
    }

    /// Opens a stream and writes `bytes` to it.
    pub fn open(&mut self, now: Instant, class: Class, bytes: u64) -> StreamId {
        let id = self.satellite.open(class).expect("connected");
        self.satellite.set_limit(id, self.limit);
        let content = self.opened;
        self.opened += 1;
        self.flows.insert(id, Flow { to_write: bytes, content, ..Flow::default() });
        self.work(now, id);
        id
    }

    pub fn saw(&self, event: &Event) -> Option<Instant> {
        self.events.iter().find(|(_, seen)| seen == event).map(|(at, _)| *at)
    }

    pub fn saw_since(&self, from: Instant, event: &Event) -> bool {
        self.events.iter().any(|(at, seen)| *at >= from && seen == event)
    }

    pub fn count(&self, event: &Event) -> usize {
        self.events.iter().filter(|(_, seen)| seen == event).count()
    }

    /// Takes the events and does what the programs do.
    fn react(&mut self, now: Instant) {
        while let Some(event) = self.satellite.poll_event() {
            self.events.push((now, event.clone()));
            match event {
                Event::Opened(id) => {
                    self.satellite.set_limit(id, self.limit);
                    let content = self.flows.len() as u64;
                    let flow = Flow { answer: self.answer, read_from: self.read_from, content, ..Flow::default() };
                    self.flows.insert(id, flow);
                    self.work(now, id);
                }
                Event::Readable(id) | Event::Writable(id) => self.work(now, id),
                Event::Delivered(id) => self.change(id, |flow| flow.delivered = Some(now)),
                Event::Reset(id, code) => self.change(id, |flow| flow.reset = Some(code)),
                Event::Stopped(id, code) => self.change(id, |flow| flow.stopped = Some(code)),
                Event::Lost(_) => self.flows.retain(|_, flow| flow.ended.is_some()),
                _ => {}
            }
        }
    }

    fn change(&mut self, id: StreamId, work: impl FnOnce(&mut Flow)) {
        if let Some(flow) = self.flows.get_mut(&id) {
            work(flow);
        }
    }

    /// Reads and writes one stream as far as it goes.
    pub fn work(&mut self, now: Instant, id: StreamId) {
        let Some(mut flow) = self.flows.get(&id).copied() else { return };
        let mut bytes = Vec::new();
        while now >= flow.read_from && flow.ended.is_none() && flow.reset.is_none() {
            bytes.clear();
            match self.satellite.read(now, id, &mut bytes, 65_536) {
                Ok(Read::Bytes(count)) => {
                    assert_eq!(count, bytes.len());
                    flow.first_byte.get_or_insert(now);
                    let wrong = bytes.iter().zip(flow.read..).filter(|(b, at)| **b != byte(id.0 & 0xff_ffff, *at));
                    flow.wrong += wrong.count() as u64;
                    flow.read += count as u64;
                }
                Ok(Read::End) => {
                    flow.ended = Some(now);
                    flow.to_write += flow.answer;
                }
                Ok(Read::Nothing) | Err(_) => break,
            }
        }
        let waits = flow.answer > 0 && flow.ended.is_none();
        while flow.written < flow.to_write && !waits {
            let room = self.satellite.room(id).min((flow.to_write - flow.written) as usize);
            let data: Vec<u8> =
                (flow.written..flow.written + room.max(1) as u64).map(|at| byte(id.0 & 0xff_ffff, at)).collect();
            match self.satellite.write(now, id, &data) {
                Ok(0) | Err(_) => break,
                Ok(count) => flow.written += count as u64,
            }
        }
        if flow.written == flow.to_write && !flow.finished && !waits {
            flow.finished = true;
            self.satellite.finish(now, id);
        }
        self.flows.insert(id, flow);
    }
}

pub fn hub_address() -> SocketAddr {
    "10.0.0.1:4433".parse().unwrap()
}

/// A world of two stations and a link.
pub struct World {
    pub now: Instant,
    pub stations: [Station; 2],
    pub link: Link<Numbered>,
    pub config: LinkConfig,
    pub mischief: Mischief,
    /// Datagrams that never arrive: who sends them, and which of its own it is, from 0.
    pub doomed: BTreeSet<(usize, u64)>,
    sent: [u64; 2],
    lost_numbers: BTreeSet<u64>,
    /// Until then nothing passes the link.
    pub outage_until: Instant,
    random: Stream,
    /// Held back, by time of delivery.
    late: BTreeMap<(Instant, u64), (usize, SocketAddr, Vec<u8>)>,
    number: u64,
    pub seed: u64,
    pub crypto: Crypto,
    configs: [SatelliteConfig; 2],
    /// Payload bytes of datagrams offered to the link, by side.
    pub offered: [u64; 2],
}

/// The configuration of both sides of a link.
pub fn configs(link: &LinkConfig) -> [SatelliteConfig; 2] {
    [(&link.forward, Side::Hub), (&link.back, Side::Terminal(hub_address()))].map(|(direction, side)| {
        let rate = direction.rate.highest();
        SatelliteConfig {
            side,
            rate: Some(rate),
            framing: direction.framing,
            round_trip: link.forward.medium.one_way_delay + link.back.medium.one_way_delay,
            mtu: link.mtu,
            loss: 0.0,
            dial_up: link.circuit.is_some(),
            dials: false,
            hold: Duration::from_secs(300),
            connections: bentpipe_gateway::Settings::default().connections,
            memory: Memory::default().total,
        }
    })
}

/// A packet that the test knows by its number.
#[derive(Clone, Debug)]
pub struct Numbered {
    number: u64,
    buffer: Buffer,
}

impl Packet for Numbered {
    fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }
    fn for_each_byte(&self, visit: impl FnMut(u8)) {
        self.buffer.for_each_byte(visit);
    }
    fn invert_bit(&mut self, bit: u64) {
        self.buffer.invert_bit(bit);
    }
    fn headers(&self, ethernet: bool) -> Option<Headers> {
        self.buffer.headers(ethernet)
    }
    fn mark_congestion(&mut self, ethernet: bool) -> bool {
        self.buffer.mark_congestion(ethernet)
    }
}

impl World {
    pub fn new(text: &str, seed: u64) -> World {
        World::with(text, seed, Crypto::Model(7), |_| {})
    }

    pub fn with(text: &str, seed: u64, crypto: Crypto, change: impl Fn(&mut SatelliteConfig)) -> World {
        World::with_cryptos(text, seed, [crypto.clone(), crypto], change)
    }

    pub fn with_cryptos(text: &str, seed: u64, cryptos: [Crypto; 2], change: impl Fn(&mut SatelliteConfig)) -> World {
        let config = link_config(text);
        let mut configs = configs(&config);
        configs.iter_mut().for_each(change);
        let link = Link::new(&config, 1, Seed(seed));
        let station = |side: usize| {
            let seed = Seed(seed).child(["hub", "terminal"][side]).0;
            Station::new(Instant::ZERO, configs[side].clone(), cryptos[side].clone(), seed)
        };
        World {
            now: Instant::ZERO,
            stations: [station(HUB), station(TERMINAL)],
            link,
            config,
            mischief: Mischief::default(),
            doomed: BTreeSet::new(),
            sent: [0; 2],
            lost_numbers: BTreeSet::new(),
            outage_until: Instant::ZERO,
            random: Seed(seed).stream("mischief"),
            late: BTreeMap::new(),
            number: 0,
            seed,
            crypto: cryptos[0].clone(),
            configs,
            offered: [0; 2],
        }
    }

    /// The next datagram that a side sends never arrives.
    pub fn doom_next(&mut self, side: usize) {
        self.doomed.insert((side, self.sent[side]));
    }

    /// The configuration of a side.
    pub fn config_of(&self, side: usize) -> &SatelliteConfig {
        &self.configs[side]
    }

    pub fn hub(&mut self) -> &mut Station {
        &mut self.stations[HUB]
    }

    pub fn terminal(&mut self) -> &mut Station {
        &mut self.stations[TERMINAL]
    }

    /// Restarts a side, with the same keys.
    pub fn restart(&mut self, side: usize) {
        self.number += 1;
        let seed = Seed(self.seed).child(&format!("again {}", self.number)).0;
        let (answer, read_from) = (self.stations[side].answer, self.stations[side].read_from);
        let address = self.stations[side].address;
        let mut station = Station::new(self.now, self.configs[side].clone(), self.crypto.clone(), seed);
        (station.answer, station.read_from, station.address) = (answer, read_from, address);
        self.stations[side] = station;
        self.pump();
    }

    /// Offers whatever the stations have for the link.
    pub fn pump(&mut self) {
        for side in [HUB, TERMINAL] {
            if self.stations[side].frozen_until > self.now {
                continue;
            }
            let mut datagram = Vec::new();
            loop {
                self.stations[side].react(self.now);
                let station = &mut self.stations[side];
                let Some(to) = station.satellite.poll_transmit(self.now, &mut datagram) else { break };
                if let Some(trace) = &mut station.trace {
                    trace.push((self.now, datagram.clone()));
                }
                self.offered[side] += datagram.len() as u64;
                self.number += 1;
                if self.doomed.contains(&(side, self.sent[side])) {
                    self.lost_numbers.insert(self.number);
                }
                self.sent[side] += 1;
                // The addresses stand where an IP header has them; the rest of it matters to nobody here.
                let mut packet = vec![0x45; HEADERS];
                write_address(&mut packet[0..6], station.address);
                write_address(&mut packet[6..12], to);
                packet.extend(&datagram);
                self.link.receive(
                    self.now,
                    Port(side),
                    Numbered { number: self.number, buffer: Buffer::from_vec(packet) },
                );
            }
        }
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && unit(&mut self.random) < share
    }

    fn arrive(&mut self, side: usize, packet: &[u8]) {
        let from = read_address(&packet[0..6]);
        let to = read_address(&packet[6..12]);
        if to != self.stations[side].address || self.now < self.outage_until || self.chance(self.mischief.lose) {
            return;
        }
        let mut datagram = packet[HEADERS..].to_vec();
        if self.chance(self.mischief.corrupt) {
            let bit = (unit(&mut self.random) * datagram.len() as f64 * 8.0) as usize;
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        if self.chance(self.mischief.duplicate) {
            self.hand(side, from, datagram.clone());
        }
        if self.chance(self.mischief.reorder) {
            self.number += 1;
            let due = self.now + seconds(0.05 * unit(&mut self.random));
            self.late.insert((due, self.number), (side, from, datagram));
            return;
        }
        self.hand(side, from, datagram);
    }

    /// Gives a station a datagram, or its socket while it is frozen.
    pub fn hand(&mut self, side: usize, from: SocketAddr, datagram: Vec<u8>) {
        let station = &mut self.stations[side];
        if station.frozen_until > self.now {
            if station.inbox.len() < 100 {
                station.inbox.push((from, datagram));
            }
            return;
        }
        station.satellite.receive(self.now, from, &datagram);
    }

    fn next(&self) -> Option<Instant> {
        let stations = self.stations.iter().filter_map(|station| {
            let due = station.satellite.next_wake()?;
            Some(due.max(station.frozen_until))
        });
        let late = self.late.keys().next().map(|key| key.0);
        let reading = self.stations.iter().map(|station| station.read_from).filter(|from| *from > self.now);
        stations.chain(Some(self.link.next_wake()).filter(|at| *at != Instant::FAR)).chain(late).chain(reading).min()
    }

    /// Runs until `until` or `done` says so.
    pub fn run(&mut self, until: Instant, mut done: impl FnMut(&World) -> bool) {
        self.pump();
        let mut same = 0;
        while !done(self) {
            let Some(next) = self.next().filter(|next| *next <= until) else {
                self.now = self.now.max(until);
                break;
            };
            same = if next <= self.now { same + 1 } else { 0 };
            assert!(same < 100_000, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        self.link.wake(self.now);
        while let Some((port, packet)) = self.link.poll_transmit(self.now) {
            if !self.lost_numbers.contains(&packet.number) {
                self.arrive(port.0, packet.buffer.as_slice());
            }
        }
        while let Some(entry) = self.late.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (side, from, datagram) = entry.remove();
            self.hand(side, from, datagram);
        }
        for side in [HUB, TERMINAL] {
            let station = &mut self.stations[side];
            if station.frozen_until > self.now {
                continue;
            }
            station.satellite.wake(self.now);
            for (from, datagram) in std::mem::take(&mut station.inbox) {
                station.satellite.receive(self.now, from, &datagram);
            }
            if station.read_from != Instant::ZERO && station.read_from <= self.now {
                station.read_from = Instant::ZERO;
                let ids: Vec<_> = station.flows.keys().copied().collect();
                ids.into_iter().for_each(|id| station.work(self.now, id));
            }
        }
        self.pump();
    }

    /// Until both sides are connected and quiet.
    pub fn connect(&mut self) {
        self.run(at(120.0), |world| world.stations.iter().all(|station| station.satellite.is_connected()));
        assert!(self.stations.iter().all(|station| station.satellite.is_connected()), "not connected");
        // So that the handshake's last packets have been answered.
        let until = self.now + self.configs[HUB].round_trip + self.configs[HUB].round_trip + seconds(0.5);
        self.run(until, |_| false);
    }

    /// The terminal asks with `request` bytes on each of `streams` streams and the hub answers with `answer`: the time of
    /// each from the request to the last byte.
    pub fn fetch(&mut self, streams: usize, request: u64, answer: u64, limit: f64) -> Vec<f64> {
        self.stations[HUB].answer = answer;
        let start = self.now;
        let ids: Vec<StreamId> =
            (0..streams).map(|_| self.stations[TERMINAL].open(start, Class::Bulk, request)).collect();
        let wanted = ids.clone();
        self.run(start + seconds(limit), |world| {
            wanted.iter().all(|id| world.stations[TERMINAL].flows.get(id).is_some_and(|flow| flow.ended.is_some()))
        });
        ids.iter()
            .map(|id| {
                let flow = &self.stations[TERMINAL].flows[id];
                assert_eq!((flow.read, flow.wrong), (answer, 0), "{flow:?} at {:?}", self.now);
                flow.ended.expect("within the limit").since(start).as_secs_f64()
            })
            .collect()
    }

    /// Bytes on the wire, by direction.
    pub fn link_bytes(&self) -> [u64; 2] {
        [HUB, TERMINAL].map(|side| self.stations[side].satellite.statistics().link_bytes_sent)
    }

    pub fn lost(&self, side: usize) -> Vec<Loss> {
        let events = self.stations[side].events.iter();
        events.filter_map(|(_, event)| if let Event::Lost(loss) = event { Some(*loss) } else { None }).collect()
    }
}

fn write_address(into: &mut [u8], address: SocketAddr) {
    if let SocketAddr::V4(address) = address {
        into[..4].copy_from_slice(&address.ip().octets());
        into[4..].copy_from_slice(&address.port().to_be_bytes());
    }
}

fn read_address(from: &[u8]) -> SocketAddr {
    SocketAddr::from(([from[0], from[1], from[2], from[3]], u16::from_be_bytes([from[4], from[5]])))
}
