//! A simulator of one link: packets in at given times, arrivals out with theirs.

use bentpipe_link::catalogue::LinkFile;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::packet::Dummy;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::{Duration, Instant};
use std::collections::BTreeMap;

pub const HUB: Port = Port(0);
pub const TERMINAL: Port = Port(1);

/// A packet that left the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub port: Port,
    pub id: u64,
}

/// A packet that enters the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    pub at: Instant,
    pub port: Port,
    pub id: u64,
    pub bytes: u32,
}

impl Offer {
    pub fn packet(self) -> Dummy {
        Dummy::new(self.id, self.bytes)
    }
}

/// A link from the text of its file, with title and summary left out.
pub fn link(text: &str) -> Link<Dummy> {
    link_with(text, 1, 1)
}

pub fn link_with(text: &str, terminals: usize, seed: u64) -> Link<Dummy> {
    Link::new(&file(text).config().unwrap(), terminals, Seed(seed))
}

pub fn file(text: &str) -> LinkFile {
    LinkFile::parse("test", "test.toml", text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

pub fn ns(ns: u64) -> Instant {
    Instant { ns }
}

pub fn ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

pub fn s(s: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(s)
}

/// `count` packets of `bytes` at the same time, numbered from `first`.
pub fn burst(at: Instant, port: Port, first: u64, count: u64, bytes: u32) -> Vec<Offer> {
    (first..first + count).map(|id| Offer { at, port, id, bytes }).collect()
}

/// Takes everything that has arrived by `now`.
pub fn drain(link: &mut Link<Dummy>, now: Instant, arrivals: &mut Vec<Arrival>) {
    while let Some((port, packet)) = link.poll_transmit(now) {
        arrivals.push(Arrival { at: now, port, id: packet.id });
    }
}

/// Wakes the link at each of its times up to `until`.
pub fn wake_until(link: &mut Link<Dummy>, until: Instant, arrivals: &mut Vec<Arrival>) {
    let mut last = Instant::ZERO;
    let mut again = 0;
    while let Some(due) = Some(link.next_wake()).filter(|due| *due <= until && *due != Instant::FAR) {
        assert!(due >= last, "time went back from {last:?} to {due:?}");
        again = if due == last { again + 1 } else { 0 };
        assert!(again < 10_000, "the link wants to be woken at {due:?} for ever");
        last = due;
        link.wake(due);
        drain(link, due, arrivals);
    }
}

/// Offers packets (in the order of time) and wakes the link when it asks, up to `until`.
pub fn run(link: &mut Link<Dummy>, offers: &[Offer], until: Instant) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    for offer in offers {
        wake_until(link, offer.at, &mut arrivals);
        link.receive(offer.at, offer.port, offer.packet());
        drain(link, offer.at, &mut arrivals);
    }
    wake_until(link, until, &mut arrivals);
    arrivals
}

/// The arrivals at `port`: packet → time.
pub fn times(arrivals: &[Arrival], port: Port) -> BTreeMap<u64, Instant> {
    arrivals.iter().filter(|arrival| arrival.port == port).map(|arrival| (arrival.id, arrival.at)).collect()
}

/// Half the width of the binomial's 99.9 % interval (normal approximation).
pub fn interval(trials: u64, p: f64) -> f64 {
    3.29 * (trials as f64 * p * (1.0 - p)).sqrt()
}
