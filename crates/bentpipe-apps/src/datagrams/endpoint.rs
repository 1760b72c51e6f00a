//! One party: it sends its direction's datagrams, receives the other's, or both.

use super::quantities::{Measured, Names};
use super::reception::Reception;
use super::traffic::{Departure, Departures};
use super::{END, OVER};
use crate::quantity;
use crate::report::{App, Report, Series, Status};
use bentpipe_net::dscp::Dscp;
use bentpipe_net::socket::{Arrival, Program, SocketError, SocketId, SocketOption, Sockets, count_wrong, fill_pattern};
use bentpipe_net::time::{Duration, Instant};
use std::net::SocketAddr;

/// Bytes of the header in each datagram: the run's mark, the number, and when it was sent.
pub const HEADER_BYTES: usize = 16;
/// From the start until the first datagram may leave: the other party listens by then.
const LEAD: Duration = Duration::from_millis(100);
/// The interval of the series.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Datagrams sent, and received, in one turn.
const BATCH: usize = 256;
/// ICMP messages read in one turn.
const ERRORS_MAX: usize = 64;
/// Room for the longest datagram.
const BUFFER: usize = 65_535;

/// What both parties know of a direction.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub names: Names,
    pub departures: Departures,
    /// Marks its datagrams, and seeds their data.
    pub pattern: u64,
}

/// A party.
pub(super) struct Endpoint {
    pub port: u16,
    pub peer: SocketAddr,
    pub dscp: Dscp,
    pub timeout: Duration,
    pub sending: Option<Sending>,
    pub receiving: Option<Receiving>,
    pub state: State,
}

#[derive(Default)]
pub(super) struct State {
    socket: Option<SocketId>,
    /// Departures count from here.
    start: Option<Instant>,
    /// A turn ended with datagrams left to receive.
    again: Option<Instant>,
    /// ICMP messages about what was sent.
    refused: u64,
    /// Scratch space.
    buffer: Vec<u8>,
    failure: Option<String>,
    ended: Option<Instant>,
}

pub(super) struct Sending {
    stream: Stream,
    departures: Departures,
    next: Option<Departure>,
    sent: u64,
    /// Of all but the last.
    bytes_before: u64,
    last_bytes: u64,
    first: Option<Instant>,
    last: Instant,
    data: Vec<u8>,
}

pub(super) struct Receiving {
    stream: Stream,
    /// Datagrams that will be sent.
    expected: u64,
    /// When the last of them leaves, from the start.
    until: Duration,
    reception: Option<Reception>,
    damaged: u64,
    unknown: u64,
}

impl Sending {
    pub fn new(stream: Stream) -> Sending {
        let mut departures = stream.departures.clone();
        Sending {
            next: departures.next(),
            stream,
            departures,
            sent: 0,
            bytes_before: 0,
            last_bytes: 0,
            first: None,
            last: Instant::ZERO,
            data: Vec::new(),
        }
    }

    fn work(
        &mut self,
        now: Instant,
        start: Instant,
        sockets: &mut dyn Sockets,
        endpoint: (SocketId, SocketAddr),
    ) -> Result<(), SocketError> {
        for _ in 0..BATCH {
            let Some(Departure { bytes, .. }) = self.next.filter(|departure| start + departure.at <= now) else {
                return Ok(());
            };
            self.next = self.departures.next();
            self.data.resize(bytes, 0);
            put_header(&mut self.data, self.stream.pattern, self.sent, now);
            fill_pattern(self.stream.pattern, data_offset(self.sent), &mut self.data[HEADER_BYTES..]);
            self.sent += 1;
            self.bytes_before += std::mem::replace(&mut self.last_bytes, bytes as u64);
            self.first.get_or_insert(now);
            self.last = now;
            // Without room, or without a route at this moment, the datagram is lost.
            if let Err(error) = sockets.send_to(endpoint.0, endpoint.1, &self.data)
                && matches!(error, SocketError::Denied | SocketError::Closed | SocketError::Other(_))
            {
                return Err(error);
            }
        }
        Ok(())
    }

    fn next_wake(&self, start: Instant) -> Option<Instant> {
        self.next.map(|departure| start + departure.at)
    }

    fn fill(&self, report: &mut Report) {
        let names = self.stream.names;
        report.put(names.of(Measured::Sent), self.sent as f64);
        if let Some(first) = self.first
            && self.last > first
        {
            let span = self.last.since(first).as_secs_f64();
            report.put(names.of(Measured::OfferedRate), self.bytes_before as f64 * 8.0 / span);
        }
    }
}

impl Receiving {
    pub fn new(stream: Stream) -> Receiving {
        let (expected, until) =
            stream.departures.clone().fold((0, Duration::ZERO), |(count, _), departure| (count + 1, departure.at));
        Receiving { stream, expected, until, reception: None, damaged: 0, unknown: 0 }
    }

    fn take(&mut self, start: Instant, data: &[u8], arrival: Arrival) {
        let Some((number, sent)) = header(data, self.stream.pattern).filter(|(number, _)| *number < self.expected)
        else {
            self.unknown += 1;
            return;
        };
        if count_wrong(self.stream.pattern, data_offset(number), &data[HEADER_BYTES..]) > 0 {
            self.damaged += 1;
            return;
        }
        let reception = self.reception.get_or_insert_with(|| Reception::new(start, SAMPLE_EVERY));
        reception.add(number, sent, arrival.at, data.len() as u64);
    }

    fn deadline(&self, start: Instant, timeout: Duration) -> Instant {
        start + self.until + timeout
    }

    fn is_complete(&self) -> bool {
        self.reception.as_ref().map_or(0, |reception| reception.received) == self.expected
    }

    fn fill(&self, is_over: bool, report: &mut Report) {
        let names = self.stream.names;
        let nothing = Reception::new(Instant::ZERO, SAMPLE_EVERY);
        let reception = self.reception.as_ref().unwrap_or(&nothing);
        let mut put = |measured, value: f64| report.put(names.of(measured), value);
        put(Measured::Received, reception.received as f64);
        put(Measured::Bytes, reception.bytes as f64);
        put(Measured::Duplicates, reception.duplicates as f64);
        put(Measured::Reordered, reception.reordered as f64);
        put(Measured::Damaged, self.damaged as f64);
        put(Measured::Unknown, self.unknown as f64);
        let bursts = reception.bursts();
        put(Measured::LossBursts, bursts.count as f64);
        put(Measured::LossBurstMax, bursts.longest as f64);
        if let Some(delays) = reception.delays() {
            put(Measured::DelayMin, delays.min);
            put(Measured::DelayMean, delays.mean);
            put(Measured::DelayMedian, delays.median);
            put(Measured::DelayP95, delays.p95);
            put(Measured::DelayP99, delays.p99);
            put(Measured::DelayMax, delays.max);
        }
        let jitter = &reception.jitter;
        for (measured, value) in [
            (Measured::Jitter, jitter.seconds()),
            (Measured::JitterMax, jitter.max_seconds()),
            (Measured::DelayVariation, jitter.mean_difference_seconds()),
            (Measured::ReceivedRate, reception.rate()),
        ] {
            if let Some(value) = value {
                put(measured, value);
            }
        }
        report.put(END, reception.end as f64);
        report.put(OVER, f64::from(u8::from(is_over)));
        let (mut rates, mut delays) = (Vec::new(), Vec::new());
        for (at, rate, delay) in reception.series() {
            rates.push((at, rate));
            delays.extend(delay.map(|delay| (at, delay)));
        }
        report.series.push(Series { quantity: names.of(Measured::Delay), points: delays });
        report.series.push(Series { quantity: names.of(Measured::ReceivedRate), points: rates });
    }
}

impl Endpoint {
    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets) -> Result<(), String> {
        let start = *self.state.start.get_or_insert(now + LEAD);
        let socket = match self.state.socket {
            Some(socket) => socket,
            None => {
                let open = |error| format!("cannot open UDP port {}: {error}", self.port);
                let socket = sockets.open_datagram(self.port).map_err(open)?;
                let marked = sockets.set_option(socket, SocketOption::Dscp(self.dscp));
                marked.map_err(|error| format!("cannot set the DSCP: {error}"))?;
                *self.state.socket.insert(socket)
            }
        };
        self.receive(now, start, sockets, socket)?;
        if let Some(sending) = &mut self.sending {
            let sent = sending.work(now, start, sockets, (socket, self.peer));
            sent.map_err(|error| format!("cannot send a datagram: {error}"))?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        now: Instant,
        start: Instant,
        sockets: &mut dyn Sockets,
        socket: SocketId,
    ) -> Result<(), String> {
        let mut buffer = std::mem::take(&mut self.state.buffer);
        buffer.resize(BUFFER, 0);
        let received = self.receive_into(now, start, sockets, socket, &mut buffer);
        self.state.buffer = buffer;
        received
    }

    fn receive_into(
        &mut self,
        now: Instant,
        start: Instant,
        sockets: &mut dyn Sockets,
        socket: SocketId,
        buffer: &mut [u8],
    ) -> Result<(), String> {
        let (mut datagrams, mut errors) = (0, 0);
        self.state.again = None;
        while datagrams < BATCH && errors < ERRORS_MAX {
            match sockets.receive_from(socket, buffer) {
                Ok(None) => return Ok(()),
                Ok(Some(arrival)) => {
                    datagrams += 1;
                    if let Some(receiving) = &mut self.receiving {
                        receiving.take(start, &buffer[..arrival.bytes], arrival);
                    }
                }
                Err(error @ (SocketError::Denied | SocketError::Closed)) => {
                    return Err(format!("cannot receive datagrams: {error}"));
                }
                Err(_) => {
                    errors += 1;
                    self.state.refused += 1;
                }
            }
        }
        self.state.again = Some(now);
        Ok(())
    }

    fn is_over(&self, now: Instant) -> bool {
        let start = self.state.start.unwrap_or(now);
        let timeout = self.timeout;
        let received = |receiving: &Receiving| receiving.is_complete() || receiving.deadline(start, timeout) <= now;
        self.sending.as_ref().is_none_or(|sending| sending.next.is_none())
            && self.receiving.as_ref().is_none_or(received)
    }

    fn end(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if let Some(socket) = self.state.socket.take() {
            sockets.close(socket);
        }
        self.state.ended = Some(now);
    }
}

impl Program for Endpoint {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.state.ended.is_some() {
            return;
        }
        if let Err(error) = self.work(now, sockets) {
            self.state.failure = Some(error);
            self.end(now, sockets);
        } else if self.is_over(now) {
            self.end(now, sockets);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        if self.state.ended.is_some() {
            return None;
        }
        let Some(start) = self.state.start else { return Some(Instant::ZERO) };
        let sending = self.sending.as_ref().and_then(|sending| sending.next_wake(start));
        let deadline = self.receiving.as_ref().map(|receiving| receiving.deadline(start, self.timeout));
        // Once everything is sent, the deadline decides.
        [self.state.again, sending, deadline].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.state.ended.is_some()
    }
}

impl App for Endpoint {
    fn report(&self, now: Instant) -> Report {
        let status = match (&self.state.failure, self.state.ended) {
            (Some(why), _) => Status::Failed(why.clone()),
            (None, Some(_)) => Status::Done,
            (None, None) => Status::Running,
        };
        let mut report = Report::new(status, self.state.ended);
        if let Some(sending) = &self.sending {
            sending.fill(&mut report);
            report.put(sending.stream.names.of(Measured::Refused), self.state.refused as f64);
        }
        if let Some(receiving) = &self.receiving {
            let start = self.state.start.unwrap_or(now);
            let is_over = self.state.ended.is_some() || receiving.deadline(start, self.timeout) <= now;
            receiving.fill(is_over || receiving.is_complete(), &mut report);
            let received = report.value(receiving.stream.names.of(Measured::Received)).unwrap_or(0.0);
            report.put(quantity::RECEIVED, received);
        }
        report
    }
}

fn put_header(data: &mut [u8], pattern: u64, number: u64, now: Instant) {
    data[..4].copy_from_slice(&(pattern as u32).to_be_bytes());
    data[4..8].copy_from_slice(&(number as u32).to_be_bytes());
    data[8..16].copy_from_slice(&now.ns.to_be_bytes());
}

/// The number, and when it was sent; `None`: it is not of this run.
fn header(data: &[u8], pattern: u64) -> Option<(u64, Instant)> {
    let mark = u32::from_be_bytes(*data.first_chunk()?);
    let number = u32::from_be_bytes(*data.get(4..)?.first_chunk()?);
    let sent = u64::from_be_bytes(*data.get(8..)?.first_chunk()?);
    (mark == pattern as u32).then_some((u64::from(number), Instant { ns: sent }))
}

/// Where in the pattern a datagram's data begin.
fn data_offset(number: u64) -> u64 {
    number << 16
}
