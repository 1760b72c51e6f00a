//! The satellite side of a line that is not always there.
//!
//! While the line is down, time stands still for the connection of the pair: no timer runs, nothing is sent, and nothing
//! is given up, however long it lasts. A terminal is told the line's state. A hub is not: it takes the line for down when it
//! has heard nothing for as long as a call lingers, and for up as soon as a packet comes.

use super::{
    Class, DeclaredRates, Event, Read, RefusedPeer, Satellite, Side, Statistics, StreamError, StreamId, Unread,
};
use crate::dial::Raise;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use std::net::SocketAddr;

/// Bytes of IP and UDP headers around a datagram (IPv4).
const HEADERS: u64 = 28;

/// A satellite side that may be frozen.
pub struct Frozen {
    inner: Box<dyn Satellite>,
    /// A hub: silence after which it takes the line for down.
    silence: Option<Duration>,
    /// How much later the world is than the connection believes, and since when it stands still.
    shift: Duration,
    frozen_since: Option<Instant>,
    heard: Option<Instant>,
    received_bytes: u64,
    sent_bytes: u64,
    demands: [bool; Raise::ALL.len()],
}

impl Frozen {
    /// Around `inner`. `linger`: how long a call lasts without a packet, by the settings that both gateways share.
    #[must_use]
    pub fn new(now: Instant, inner: Box<dyn Satellite>, side: Side, linger: Duration) -> Frozen {
        let is_hub = side == Side::Hub;
        Frozen {
            inner,
            silence: is_hub.then_some(linger),
            shift: Duration::ZERO,
            frozen_since: (!is_hub).then_some(now),
            heard: None,
            received_bytes: 0,
            sent_bytes: 0,
            demands: [false; Raise::ALL.len()],
        }
    }

    /// The time as the connection has it.
    fn inner_time(&self, now: Instant) -> Instant {
        let now = self.frozen_since.unwrap_or(now).min(now);
        Instant { ns: now.ns.saturating_sub(self.shift.ns) }
    }

    /// The line is up, or not, from now on. An attempt to connect begins again with a line that comes up.
    pub fn set_up(&mut self, now: Instant, up: bool) {
        match (up, self.frozen_since) {
            (true, Some(since)) => {
                self.shift += now.since(since);
                self.frozen_since = None;
                let time = self.inner_time(now);
                self.inner.call_now(time);
                self.inner.wake(time);
            }
            (false, None) => self.frozen_since = Some(now),
            _ => {}
        }
    }

    /// When a packet of the other gateway came last.
    #[must_use]
    pub fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// Bytes of packets received and sent so far, IP headers included.
    #[must_use]
    pub fn carried(&self) -> [u64; 2] {
        [self.received_bytes, self.sent_bytes]
    }

    /// Data wait to be sent, or to be acknowledged.
    #[must_use]
    pub fn has_data(&self) -> bool {
        let statistics = self.inner.statistics();
        statistics.queued_bytes > 0 || statistics.unacknowledged_bytes > 0
    }

    /// What has asked for the line since the last call.
    pub fn take_demands(&mut self) -> impl Iterator<Item = Raise> + use<> {
        let demands = std::mem::take(&mut self.demands);
        Raise::ALL.into_iter().filter(move |by| demands[*by as usize])
    }

    fn ask(&mut self, by: Raise) {
        self.demands[by as usize] = true;
    }

    /// A hub: when it takes the line for down.
    fn freezes_at(&self) -> Option<Instant> {
        let silence = self.silence.filter(|_| self.frozen_since.is_none())?;
        Some(self.heard.unwrap_or(Instant::ZERO) + silence)
    }
}

impl Satellite for Frozen {
    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        if self.silence.is_some() {
            self.set_up(now, true);
        }
        self.heard = Some(now);
        self.received_bytes += datagram.len() as u64 + HEADERS;
        self.inner.receive(self.inner_time(now), from, datagram);
    }

    fn wake(&mut self, now: Instant) {
        if self.freezes_at().is_some_and(|at| at <= now) {
            self.set_up(now, false);
        }
        if self.frozen_since.is_none() {
            self.inner.wake(self.inner_time(now));
        }
    }

    fn poll_transmit(&mut self, now: Instant, into: &mut Vec<u8>) -> Option<SocketAddr> {
        if self.frozen_since.is_some() {
            return None;
        }
        let to = self.inner.poll_transmit(self.inner_time(now), into)?;
        self.sent_bytes += into.len() as u64 + HEADERS;
        Some(to)
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.frozen_since.is_some() {
            return None;
        }
        let inner = self.inner.next_wake().map(|at| at + self.shift);
        inner.into_iter().chain(self.freezes_at()).min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.inner.poll_event()
    }

    fn want(&mut self) {
        self.ask(Raise::Open);
        self.inner.want();
    }

    fn is_connected(&self) -> bool {
        self.inner.is_connected()
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.inner.peer()
    }

    fn last_refused(&self) -> Option<RefusedPeer> {
        self.inner.last_refused()
    }

    fn declared(&self) -> DeclaredRates {
        self.inner.declared()
    }

    fn declare(&mut self) {
        self.inner.declare();
    }

    fn set_hub(&mut self, now: Instant, hub: SocketAddr) {
        self.inner.set_hub(self.inner_time(now), hub);
    }

    fn open(&mut self, class: Class) -> Option<StreamId> {
        self.ask(Raise::Open);
        self.inner.open(class)
    }

    fn set_class(&mut self, stream: StreamId, class: Class) {
        self.inner.set_class(stream, class);
    }

    fn write(&mut self, now: Instant, stream: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        if !data.is_empty() {
            self.ask(Raise::Data);
        }
        self.inner.write(self.inner_time(now), stream, data)
    }

    fn room(&self, stream: StreamId) -> usize {
        self.inner.room(stream)
    }

    fn finish(&mut self, now: Instant, stream: StreamId) {
        self.ask(Raise::Close);
        self.inner.finish(self.inner_time(now), stream);
    }

    fn reset(&mut self, now: Instant, stream: StreamId, code: u32) {
        self.ask(Raise::Close);
        self.inner.reset(self.inner_time(now), stream, code);
    }

    fn stop(&mut self, now: Instant, stream: StreamId, code: u32) {
        self.ask(Raise::Close);
        self.inner.stop(self.inner_time(now), stream, code);
    }

    fn signal(&mut self, now: Instant, stream: StreamId, word: u32) {
        self.inner.signal(self.inner_time(now), stream, word);
    }

    fn unread(&self, stream: StreamId) -> Unread {
        self.inner.unread(stream)
    }

    fn unread_bytes(&self) -> u64 {
        self.inner.unread_bytes()
    }

    fn set_limit(&mut self, stream: StreamId, bytes: u64) {
        self.inner.set_limit(stream, bytes);
    }

    fn read(&mut self, now: Instant, stream: StreamId, into: &mut Vec<u8>, most: usize) -> Result<Read, StreamError> {
        self.inner.read(self.inner_time(now), stream, into, most)
    }

    fn round_trip_bytes(&self) -> u64 {
        self.inner.round_trip_bytes()
    }

    fn set_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        self.inner.set_rate(self.inner_time(now), rate);
    }

    fn set_incoming(&mut self, now: Instant, rate: Option<BitRate>) {
        self.inner.set_incoming(self.inner_time(now), rate);
    }

    fn set_bypass(&mut self, now: Instant, rate: BitRate) {
        self.inner.set_bypass(self.inner_time(now), rate);
    }

    fn close(&mut self, now: Instant) {
        self.inner.close(self.inner_time(now));
    }

    fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    fn line(&mut self) -> Option<&mut Frozen> {
        Some(self)
    }
}
