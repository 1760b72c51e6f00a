//! The memory that unauthenticated peers can make a hub hold, in bytes, counted where they are allocated. A process of
//! its own: the allocator is everybody's.

#[path = "satellite/support.rs"]
mod support;

use bentpipe_gateway::satellite::Satellite;
use bentpipe_gateway::satellite::keys::{PairKeys, PrivateKey};
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_net::time::Instant;
use rustls::quic::Version;
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use support::{HUB, TERMINAL, at, configs, hub_address, link_config, seconds};

/// Handshakes under way at a time, as `satellite/quic/hub.rs` has it.
const HALF_OPEN_MAX: u64 = 8;
/// What docs/reference/gateway.md says that each of them holds at most.
const EACH_MAX: i64 = 384 << 10;
/// Left when all have gone: tables that have grown keep their room.
const LEFT_MAX: i64 = 96 << 10;
const LINK: &str = "rate = \"10 Mbit/s\"\none_way_delay = \"300 ms\"\nqueue = { bytes = \"750 kB\" }\nmtu = \"1500 B\"\n\
                    framing = \"none\"\n";

/// The system's allocator, which is asked for so many bytes now.
struct Counting;

static REQUESTED: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        REQUESTED.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        REQUESTED.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed([seed; 32]).unwrap()
}

fn tls(own: u8, peer: u8) -> Crypto {
    Crypto::Tls(PairKeys { own: key(own), peer: key(peer).public() })
}

/// A hub whose memory is known: what it was given and has not given back since it was made.
struct Hub {
    satellite: QuicSatellite,
    now: Instant,
    allocated: i64,
    most: i64,
}

impl Hub {
    fn new() -> Hub {
        let config = configs(&link_config(LINK))[HUB].clone();
        Hub {
            satellite: QuicSatellite::new(at(0.0), config, tls(1, 2), 1).unwrap(),
            now: at(0.0),
            allocated: 0,
            most: 0,
        }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut QuicSatellite, Instant) -> T) -> T {
        let before = REQUESTED.load(Ordering::Relaxed);
        let result = work(&mut self.satellite, self.now);
        self.allocated += REQUESTED.load(Ordering::Relaxed) - before;
        self.most = self.most.max(self.allocated);
        result
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.with(|hub, now| hub.receive(now, from, datagram));
    }

    /// Lets time pass; the answers of meanwhile.
    fn pass(&mut self, time: f64) -> Vec<(SocketAddr, Vec<u8>)> {
        let end = self.now + seconds(time);
        let mut answers = Vec::new();
        loop {
            let mut copy = [0; 2048];
            let answer = self.with(|hub, now| {
                hub.wake(now);
                let mut datagram = Vec::new();
                let to = hub.poll_transmit(now, &mut datagram)?;
                copy[..datagram.len()].copy_from_slice(&datagram);
                Some((to, datagram.len()))
            });
            if let Some((to, length)) = answer {
                answers.push((to, copy[..length].to_vec()));
                continue;
            }
            while self.with(|hub, _| hub.poll_event().is_some()) {}
            match self.satellite.next_wake().filter(|next| *next <= end) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = end;
        answers
    }

    fn half_open(&self) -> u64 {
        self.satellite.statistics().half_open
    }
}

fn address(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 1, (number >> 8) as u8, number as u8], 1000))
}

/// A long header's packet type and its two connection identifiers (RFC 9000 §17.2), and what follows them.
fn parts(datagram: &[u8]) -> (u8, &[u8], &[u8], &[u8]) {
    let (destination, rest) = datagram[6..].split_at(usize::from(datagram[5]));
    let (source, rest) = rest[1..].split_at(usize::from(rest[0]));
    (datagram[0] >> 4 & 3, destination, source, rest)
}

/// What a Retry asks for: the token, and the identifier that the next packet goes to (RFC 9000 §17.2.5).
fn retry(datagram: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    // Of a short header, as a stateless reset has it.
    if datagram[0] & 0x80 == 0 {
        return None;
    }
    let (kind, _, source, rest) = parts(datagram);
    (kind == 3).then(|| (rest[..rest.len() - 16].to_vec(), source.to_vec()))
}

/// A caller with a whole first flight that then says nothing more. Whether the hub took it up.
fn silent_caller(hub: &mut Hub, number: u16) {
    let config = configs(&link_config(LINK))[TERMINAL].clone();
    let mut unauthenticated_peer = QuicSatellite::new(hub.now, config, tls(3, 1), u64::from(number)).unwrap();
    let mut datagram = Vec::new();
    unauthenticated_peer.wake(hub.now);
    unauthenticated_peer.poll_transmit(hub.now, &mut datagram).unwrap();
    hub.receive(address(number), &datagram);
    let answers = hub.pass(0.05);
    if let Some((_, answer)) = answers.iter().find(|(to, answer)| *to == address(number) && retry(answer).is_some()) {
        unauthenticated_peer.receive(hub.now, hub_address(), answer);
        unauthenticated_peer.poll_transmit(hub.now, &mut datagram).unwrap();
        hub.receive(address(number), &datagram);
        hub.pass(0.05);
    }
}

/// A packet of the kind Initial with a byte of the handshake at each of `offsets` (RFC 9000 §17.2.2, §19.6).
fn initial(destination: &[u8], keys_of: &[u8], token: &[u8], number: u32, offsets: &[u64]) -> Vec<u8> {
    let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    let keys = suite.quic_suite().unwrap().keys(keys_of, rustls::Side::Client, Version::V1);
    let mut packet = vec![0xc3, 0, 0, 0, 1, destination.len() as u8];
    packet.extend(destination);
    packet.push(0);
    packet.extend((0x4000 | token.len() as u16).to_be_bytes());
    packet.extend(token);
    let mut payload = Vec::new();
    for offset in offsets {
        payload.push(6);
        payload.extend((0x8000_0000 | *offset as u32).to_be_bytes());
        payload.extend([1, 7]);
    }
    // As long as a first flight must be (RFC 9000 §14.1).
    payload.resize(payload.len().max(1200 - packet.len() - 2 - 4 - 16), 0);
    packet.extend((0x4000 | (4 + payload.len() + 16) as u16).to_be_bytes());
    let at = packet.len();
    packet.extend(number.to_be_bytes());
    let tag = keys.local.packet.encrypt_in_place(u64::from(number), &packet, &mut payload).unwrap();
    packet.extend(payload);
    packet.extend(tag.as_ref());
    let sample: Vec<u8> = packet[at + 4..at + 4 + keys.local.header.sample_len()].to_vec();
    let (first, rest) = packet.split_at_mut(1);
    keys.local.header.encrypt_in_place(&sample, &mut first[0], &mut rest[at - 1..at + 3]).unwrap();
    packet
}

/// A caller whose first flight never becomes whole: single bytes with gaps between them, each in a packet of its own,
/// as far as the library keeps any.
fn holes(hub: &mut Hub, number: u16) {
    let mut id = [[9; 6].as_slice(), &number.to_be_bytes()].concat();
    let mut token = Vec::new();
    hub.receive(address(number), &initial(&id, &id, &token, 0, &[2]));
    let answers = hub.pass(0.05);
    if let Some(requested) = answers.iter().find_map(|(to, answer)| retry(answer).filter(|_| *to == address(number))) {
        (token, id) = requested;
        hub.receive(address(number), &initial(&id, &id, &token, 1, &[2]));
        hub.pass(0.01);
    }
    for packet in 2..1000 {
        hub.receive(address(number), &initial(&id, &id, &token, packet, &[u64::from(packet) * 16]));
        if packet % 100 == 0 {
            hub.pass(0.001);
        }
    }
}

#[test]
fn unauthenticated_peers_make_a_hub_hold_little() {
    for (name, call) in [("silent", silent_caller as fn(&mut Hub, u16)), ("holes", holes)] {
        let mut hub = Hub::new();
        let mut one = 0;
        for number in 1..=HALF_OPEN_MAX as u16 {
            call(&mut hub, number);
            assert_eq!(hub.half_open(), u64::from(number), "{name}");
            one = one.max(hub.allocated / i64::from(number));
        }
        let eight = hub.allocated;
        // Many more change nothing.
        for number in 100..150 {
            call(&mut hub, number);
            assert!(hub.half_open() <= HALF_OPEN_MAX);
        }
        let most = hub.most;
        hub.pass(60.0);
        assert_eq!(hub.half_open(), 0);
        println!("{name}: each {one} B, eight {eight} B, at most {most} B, left {} B", hub.allocated);
        assert!(most <= HALF_OPEN_MAX as i64 * EACH_MAX, "{name}: {most} B");
        assert!(hub.allocated <= LEFT_MAX, "{name}: {} B are left", hub.allocated);
    }
}
