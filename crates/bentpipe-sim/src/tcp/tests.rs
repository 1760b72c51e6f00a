//! Two connections over a pipe that the test controls.

use super::settings::Settings;
use super::*;
use bentpipe_net::datagram::{Body, Segment, flag};
use bentpipe_net::seed::Seed;
use bentpipe_net::stack::TcpConfig;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

mod basics;
mod fuzz;
mod losses;
mod prediction;
mod timestamps;

/// Decides whether a segment is lost.
type Dropper = Box<dyn FnMut(usize, u64, &Segment) -> bool>;

/// A client and a server over a pipe of a fixed delay, without a rate limit.
pub struct Pipe {
    pub now: Instant,
    delay: Duration,
    pub ends: [Option<Connection>; 2],
    settings: [Arc<Settings>; 2],
    clocks: [TimerClock; 2],
    /// Segments on their way: when they arrive, their number, at which end.
    flying: Vec<(Instant, u64, usize, Segment)>,
    count: u64,
    /// Numbers of segments that met congestion on their way (RFC 3168).
    marked: BTreeSet<u64>,
    /// Every segment sent: when, by which end.
    pub log: Vec<(Instant, usize, Segment)>,
    /// Says of a segment (sender, number among its data segments) whether it is lost.
    pub drop: Dropper,
    data_sent: [u64; 2],
    /// Bytes that the server has received and found wrong.
    pub received: u64,
    pub wrong: u64,
    pub reads: bool,
    /// True if both ends predict segments.
    pub predicts: bool,
    /// Nothing arrives before; what was sent meanwhile arrives then, in order.
    pub hold: Instant,
}

pub fn settings(text: &str) -> Arc<Settings> {
    let config = TcpConfig::from_table(toml::from_str(text).unwrap()).unwrap();
    Arc::new(Settings::new(&config).unwrap())
}

/// First sequence number of an end, close to the wrap.
fn initial_sequence(end: usize) -> u32 {
    u32::MAX - 5000 * (end as u32 + 1)
}

fn ends(end: usize, clock: TimerClock) -> Parameters {
    let address = |end: usize| SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, end as u8 + 1), 1000 + end as u16);
    Parameters {
        local: address(end),
        remote: address(1 - end),
        mtu: 1500,
        sequence: initial_sequence(end),
        random: Seed(end as u64).stream("control"),
        clock,
    }
}

impl Pipe {
    /// The client has sent its SYN. Timers fire when they are due.
    pub fn new(client: &str, server: &str, delay_ms: u64) -> Pipe {
        Pipe::with_clocks([settings(client), settings(server)], [TimerClock::Exact; 2], delay_ms)
    }

    /// The same with timers as the settings have them.
    pub fn with_coarse_timers(client: &str, server: &str, delay_ms: u64) -> Pipe {
        let settings = [settings(client), settings(server)];
        let clocks = [TimerClock::new(&settings[0], 1_234_567), TimerClock::new(&settings[1], 7_654_321)];
        Pipe::with_clocks(settings, clocks, delay_ms)
    }

    fn with_clocks(settings: [Arc<Settings>; 2], clocks: [TimerClock; 2], delay_ms: u64) -> Pipe {
        let mut pipe = Pipe {
            now: Instant::ZERO,
            delay: Duration::from_millis(delay_ms),
            ends: [None, None],
            settings,
            clocks,
            flying: Vec::new(),
            count: 0,
            marked: BTreeSet::new(),
            log: Vec::new(),
            drop: Box::new(|_, _, _| false),
            data_sent: [0; 2],
            received: 0,
            wrong: 0,
            reads: true,
            predicts: true,
            hold: Instant::ZERO,
        };
        let mut datagrams = Outbox::default();
        let mut output = Output { now: pipe.now, datagrams: &mut datagrams };
        pipe.ends[0] = Some(Connection::connect(&pipe.settings[0], ends(0, clocks[0]), &mut output));
        pipe.collect(0, datagrams);
        pipe
    }

    /// Both ends close while nothing arrives any more, and wait for as long as they like: what is unacknowledged must not keep a
    /// connection for ever.
    fn lose_peer(&mut self) {
        self.drop = Box::new(|_, _, _| true);
        self.flying.clear();
        for end in 0..2 {
            if self.ends[end].is_some() {
                self.with(end, |connection, output| connection.close(output));
            }
        }
        let limit = self.now + Duration::from_secs(100_000);
        for _ in 0..100_000 {
            if !self.step(limit) {
                break;
            }
        }
    }

    fn collect(&mut self, from: usize, mut datagrams: Outbox) {
        while let Some(datagram) = datagrams.pop() {
            let Body::Tcp(segment) = datagram.body else { panic!("only TCP") };
            self.log.push((self.now, from, segment.clone()));
            let number = self.data_sent[from];
            self.data_sent[from] += u64::from(segment.payload.length() > 0);
            if !(self.drop)(from, number, &segment) {
                self.count += 1;
                self.flying.push(((self.now + self.delay).max(self.hold), self.count, 1 - from, segment));
            }
        }
    }

    /// Does something with an end, and takes what it sends.
    pub fn with<T>(&mut self, end: usize, work: impl FnOnce(&mut Connection, &mut Output<'_>) -> T) -> T {
        let mut datagrams = Outbox::default();
        let connection = self.ends[end].as_mut().expect("the end exists");
        connection.predicts = self.predicts;
        let result = work(connection, &mut Output { now: self.now, datagrams: &mut datagrams });
        self.collect(end, datagrams);
        result
    }

    /// Gives the client pattern bytes.
    pub fn write(&mut self, from: u64, to: u64) -> u64 {
        self.with(0, |connection, output| {
            let taken =
                connection.send(to - from, |taken| Payload::Pattern { pattern: 9, offset: from, length: taken as u32 });
            connection.flush(output);
            taken.unwrap_or(0)
        })
    }

    fn read(&mut self) {
        if !self.reads || self.ends[1].is_none() {
            return;
        }
        let at = self.received;
        let got = self.with(1, |connection, output| {
            let got = connection.receive_pattern(9, at, u64::MAX);
            connection.flush(output);
            got
        });
        if let Ok(ReceivedPattern::Bytes { bytes, wrong, .. }) = got {
            self.received += bytes;
            self.wrong += wrong;
        }
    }

    /// The next thing that happens; `false`: nothing ever will, or only after `until`.
    pub fn step(&mut self, until: Instant) -> bool {
        let arrival = self.flying.iter().map(|(at, n, ..)| (*at, *n)).min();
        let timers = self.ends.iter().flatten().map(Connection::next_wake).fold(Instant::FAR, Instant::min);
        let next = arrival.map_or(Instant::FAR, |(at, _)| at).min(timers);
        if next > until || next == Instant::FAR {
            self.now = until.min(self.now.max(until));
            return false;
        }
        self.now = self.now.max(next);
        if let Some((at, number)) = arrival
            && at <= self.now
        {
            let index = self.flying.iter().position(|(_, n, ..)| *n == number).unwrap();
            let (_, _, to, segment) = self.flying.remove(index);
            if self.ends[to].is_none() {
                let mut datagrams = Outbox::default();
                let mut output = Output { now: self.now, datagrams: &mut datagrams };
                let local = ends(to, self.clocks[to]);
                self.ends[to] = Some(Connection::accept(&self.settings[to], local, &segment, &mut output));
                self.collect(to, datagrams);
            } else {
                let class = if self.marked.remove(&number) { input::CONGESTION_EXPERIENCED } else { 0 };
                self.with(to, |connection, output| connection.segment(&mut segment.clone(), class, output));
            }
        } else {
            for end in 0..2 {
                if self.ends[end].as_ref().is_some_and(|c| c.next_wake() <= self.now) {
                    self.with(end, |connection, output| connection.wake(output));
                }
            }
        }
        for end in self.ends.iter().flatten() {
            end.board.check(end.sack);
        }
        self.read();
        true
    }

    /// Runs until `until` has come.
    pub fn run(&mut self, until: Instant) {
        while self.step(until) {}
    }

    /// Sends `bytes` from the client and ends its direction; returns when the server had all of it.
    pub fn transfer(&mut self, bytes: u64, limit: Duration) -> Option<Instant> {
        let limit = self.now + limit;
        let mut given = 0;
        let mut finished = false;
        loop {
            if given < bytes && self.ends[0].as_ref().is_some_and(|c| c.state() == State::Established) {
                given += self.write(given, bytes);
            }
            if given == bytes && !finished {
                finished = true;
                self.with(0, |connection, output| connection.finish(output));
            }
            if self.received == bytes {
                assert_eq!(self.wrong, 0, "wrong bytes");
                return Some(self.now);
            }
            if !self.step(limit) {
                return None;
            }
        }
    }

    /// Data segments of the client, as (milliseconds, first byte, bytes).
    pub fn data(&self) -> Vec<(u64, u64, u64)> {
        let first = self.log[0].2.sequence.wrapping_add(1);
        self.log
            .iter()
            .filter(|(_, end, segment)| *end == 0 && segment.payload.length() > 0)
            .map(|(at, _, segment)| {
                (at.ns / 1_000_000, u64::from(segment.sequence.wrapping_sub(first)), segment.payload.length())
            })
            .collect()
    }

    /// The number of data segments that the client sent in each millisecond in which it sent any.
    pub fn bursts(&self) -> Vec<(u64, usize)> {
        let mut bursts: Vec<(u64, usize)> = Vec::new();
        for (at, ..) in self.data() {
            match bursts.last_mut() {
                Some((last, count)) if *last == at => *count += 1,
                _ => bursts.push((at, 1)),
            }
        }
        bursts
    }

    /// Acknowledgements without data that the server sent.
    pub fn acks(&self) -> usize {
        let plain = |segment: &Segment| segment.payload.length() == 0 && segment.flags == flag::ACK;
        self.log.iter().filter(|(_, end, segment)| *end == 1 && plain(segment)).count()
    }
}
