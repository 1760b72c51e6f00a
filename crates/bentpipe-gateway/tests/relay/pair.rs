//! A satellite side in memory: two ends joined by a delay, with windows, silence and loss on demand.

use bentpipe_gateway::satellite::{
    Class, Event, Loss, Read, Satellite, Statistics, StreamError, StreamId, UNREAD_FIRST, Unread,
};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

enum Message {
    Open(StreamId),
    Data(StreamId, Vec<u8>),
    End(StreamId),
    Reset(StreamId, u32),
    Stop(StreamId, u32),
    /// So many bytes have arrived.
    Arrived(StreamId, usize),
    Signal(StreamId, u32),
}

#[derive(Default)]
struct Incoming {
    bytes: VecDeque<u8>,
    limit: u64,
    overrun: bool,
    ended: bool,
    reset: Option<u32>,
}

#[derive(Default)]
struct Outgoing {
    in_flight: usize,
    blocked: bool,
    over: bool,
    stopped: Option<u32>,
}

#[derive(Default)]
struct End {
    arrivals: VecDeque<(Instant, Message)>,
    events: VecDeque<Event>,
    incoming: BTreeMap<StreamId, Incoming>,
    outgoing: BTreeMap<StreamId, Outgoing>,
    next_stream: u64,
    sent: u64,
}

/// What both ends share, and what a test looks at.
#[derive(Default)]
pub struct Channel {
    ends: [End; 2],
    pub connected: bool,
    pub silent: bool,
    pub delay: Duration,
    pub window: usize,
    /// Every class a stream was given, in order.
    pub classes: Vec<(StreamId, Class)>,
    pub bypass: Vec<BitRate>,
    pub rates: Vec<Option<BitRate>>,
    pub incoming: Vec<Option<BitRate>>,
    /// What both ends say they have seen.
    pub statistics: Statistics,
    pub closed: bool,
}

/// A handle on the pair.
#[derive(Clone)]
pub struct Pair(Arc<Mutex<Channel>>);

impl Pair {
    pub fn new(delay: Duration, window: usize) -> Pair {
        Pair(Arc::new(Mutex::new(Channel { delay, window, ..Channel::default() })))
    }

    pub fn ends(&self) -> [Box<dyn Satellite>; 2] {
        [0, 1].map(|end| Box::new(MemorySatellite { channel: self.0.clone(), end }) as Box<dyn Satellite>)
    }

    pub fn channel(&self) -> MutexGuard<'_, Channel> {
        self.0.lock().unwrap()
    }

    fn report(&self, event: &Event) {
        for end in &mut self.channel().ends {
            end.events.push_back(event.clone());
        }
    }

    pub fn connect(&self) {
        self.channel().connected = true;
        self.report(&Event::Connected);
    }

    pub fn lose(&self, why: Loss) {
        self.channel().connected = false;
        for end in &mut self.channel().ends {
            (end.incoming, end.outgoing) = Default::default();
            end.arrivals.clear();
        }
        self.report(&Event::Lost(why));
    }

    pub fn silence(&self, silent: bool) {
        self.channel().silent = silent;
        self.report(if silent { &Event::Silent } else { &Event::Heard });
    }

    /// Events wait for a gateway.
    pub fn has_events(&self, end: usize) -> bool {
        !self.channel().ends[end].events.is_empty()
    }
}

struct MemorySatellite {
    channel: Arc<Mutex<Channel>>,
    end: usize,
}

impl MemorySatellite {
    fn channel(&self) -> MutexGuard<'_, Channel> {
        self.channel.lock().unwrap()
    }

    fn send(&self, now: Instant, message: Message) {
        let mut channel = self.channel();
        let at = now + channel.delay;
        channel.ends[self.end].sent += 1;
        channel.ends[1 - self.end].arrivals.push_back((at, message));
    }
}

impl Satellite for MemorySatellite {
    fn receive(&mut self, _: Instant, _: SocketAddr, _: &[u8]) {}

    fn wake(&mut self, now: Instant) {
        let mut channel = self.channel();
        if channel.silent {
            return;
        }
        let back = now + channel.delay;
        let (this, other) = channel.ends.split_at_mut(1);
        let (end, other) = if self.end == 0 { (&mut this[0], &mut other[0]) } else { (&mut other[0], &mut this[0]) };
        while let Some((at, _)) = end.arrivals.front()
            && *at <= now
        {
            let Some((_, message)) = end.arrivals.pop_front() else { return };
            match message {
                Message::Open(stream) => {
                    end.incoming.insert(stream, Incoming { limit: UNREAD_FIRST, ..Incoming::default() });
                    end.outgoing.insert(stream, Outgoing::default());
                    end.events.push_back(Event::Opened(stream));
                }
                Message::Data(stream, bytes) => {
                    other.arrivals.push_back((back, Message::Arrived(stream, bytes.len())));
                    if let Some(incoming) = end.incoming.get_mut(&stream) {
                        incoming.bytes.extend(bytes);
                        if incoming.bytes.len() as u64 > incoming.limit {
                            incoming.overrun = true;
                            incoming.bytes.clear();
                            end.events.push_back(Event::Overrun(stream));
                        }
                        end.events.push_back(Event::Readable(stream));
                    }
                }
                Message::End(stream) => {
                    if let Some(incoming) = end.incoming.get_mut(&stream) {
                        incoming.ended = true;
                        end.events.push_back(Event::Readable(stream));
                    }
                }
                Message::Reset(stream, code) => {
                    if let Some(incoming) = end.incoming.get_mut(&stream) {
                        incoming.reset = Some(code);
                        end.events.push_back(Event::Reset(stream, code));
                    }
                }
                Message::Stop(stream, code) => {
                    if let Some(outgoing) = end.outgoing.get_mut(&stream) {
                        outgoing.stopped = Some(code);
                        end.events.push_back(Event::Stopped(stream, code));
                    }
                }
                Message::Signal(stream, word) => {
                    if end.incoming.contains_key(&stream) {
                        end.events.push_back(Event::Signal(stream, word));
                    }
                }
                Message::Arrived(stream, bytes) => {
                    if let Some(outgoing) = end.outgoing.get_mut(&stream) {
                        outgoing.in_flight -= bytes;
                        if std::mem::take(&mut outgoing.blocked) {
                            end.events.push_back(Event::Writable(stream));
                        }
                    }
                }
            }
        }
    }

    fn poll_transmit(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<SocketAddr> {
        None
    }

    fn next_wake(&self) -> Option<Instant> {
        let channel = self.channel();
        if channel.silent { None } else { channel.ends[self.end].arrivals.front().map(|(at, _)| *at) }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.channel().ends[self.end].events.pop_front()
    }

    fn is_connected(&self) -> bool {
        self.channel().connected
    }

    fn open(&mut self, class: Class) -> Option<StreamId> {
        let mut channel = self.channel();
        if !channel.connected {
            return None;
        }
        let side = self.end;
        let end = &mut channel.ends[side];
        let stream = StreamId(end.next_stream * 2 + side as u64);
        end.next_stream += 1;
        end.incoming.insert(stream, Incoming { limit: UNREAD_FIRST, ..Incoming::default() });
        end.outgoing.insert(stream, Outgoing::default());
        channel.classes.push((stream, class));
        // The opening travels with the first bytes: as a message of its own, without a time of its own.
        let at = channel.ends[1 - side].arrivals.back().map_or(Instant::ZERO, |(at, _)| *at);
        channel.ends[1 - side].arrivals.push_back((at, Message::Open(stream)));
        Some(stream)
    }

    fn set_class(&mut self, stream: StreamId, class: Class) {
        self.channel().classes.push((stream, class));
    }

    fn write(&mut self, now: Instant, stream: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        let room = self.room(stream);
        let taken = room.min(data.len());
        {
            let mut channel = self.channel();
            let outgoing = channel.ends[self.end].outgoing.get_mut(&stream).ok_or(StreamError::Unknown)?;
            if let Some(code) = outgoing.stopped {
                return Err(StreamError::Ended(code));
            }
            assert!(!outgoing.over, "a write after the end");
            outgoing.in_flight += taken;
            outgoing.blocked |= taken < data.len();
        }
        if taken > 0 {
            self.send(now, Message::Data(stream, data[..taken].to_vec()));
        }
        Ok(taken)
    }

    fn room(&self, stream: StreamId) -> usize {
        let channel = self.channel();
        let in_flight = channel.ends[self.end].outgoing.get(&stream).map_or(channel.window, |out| out.in_flight);
        channel.window.saturating_sub(in_flight)
    }

    fn finish(&mut self, now: Instant, stream: StreamId) {
        let known = self.channel().ends[self.end].outgoing.get_mut(&stream).map(|out| out.over = true).is_some();
        if known {
            self.send(now, Message::End(stream));
        }
    }

    fn reset(&mut self, now: Instant, stream: StreamId, code: u32) {
        let known = self.channel().ends[self.end].outgoing.get_mut(&stream).map(|out| out.over = true).is_some();
        if known {
            self.send(now, Message::Reset(stream, code));
        }
    }

    fn stop(&mut self, now: Instant, stream: StreamId, code: u32) {
        if self.channel().ends[self.end].incoming.remove(&stream).is_some() {
            self.send(now, Message::Stop(stream, code));
        }
    }

    fn signal(&mut self, now: Instant, stream: StreamId, word: u32) {
        self.send(now, Message::Signal(stream, word));
    }

    fn unread(&self, stream: StreamId) -> Unread {
        let channel = self.channel();
        channel.ends[self.end].incoming.get(&stream).map_or_else(Unread::default, |incoming| {
            let bytes = incoming.bytes.len() as u64;
            Unread { ready: bytes, all: bytes, complete: incoming.ended }
        })
    }

    fn unread_bytes(&self) -> u64 {
        self.channel().ends[self.end].incoming.values().map(|incoming| incoming.bytes.len() as u64).sum()
    }

    fn set_limit(&mut self, stream: StreamId, bytes: u64) {
        if let Some(incoming) = self.channel().ends[self.end].incoming.get_mut(&stream) {
            incoming.limit = bytes;
        }
    }

    fn read(&mut self, _: Instant, stream: StreamId, into: &mut Vec<u8>, most: usize) -> Result<Read, StreamError> {
        let mut channel = self.channel();
        let incoming = channel.ends[self.end].incoming.get_mut(&stream).ok_or(StreamError::Unknown)?;
        if let Some(code) = incoming.reset {
            return Err(StreamError::Ended(code));
        }
        if incoming.overrun {
            return Err(StreamError::Overrun);
        }
        let count = incoming.bytes.len().min(most);
        into.extend(incoming.bytes.drain(..count));
        Ok(match count {
            0 if incoming.ended => Read::End,
            0 => Read::Nothing,
            _ => Read::Bytes(count),
        })
    }

    fn round_trip_bytes(&self) -> u64 {
        self.channel().window as u64
    }

    fn set_rate(&mut self, _: Instant, rate: Option<BitRate>) {
        self.channel().rates.push(rate);
    }

    fn set_incoming(&mut self, _: Instant, rate: Option<BitRate>) {
        self.channel().incoming.push(rate);
    }

    fn set_bypass(&mut self, _: Instant, rate: BitRate) {
        self.channel().bypass.push(rate);
    }

    fn close(&mut self, _: Instant) {
        self.channel().closed = true;
    }

    fn statistics(&self) -> Statistics {
        let channel = self.channel();
        Statistics { link_bytes_sent: channel.ends[self.end].sent, ..channel.statistics }
    }
}
