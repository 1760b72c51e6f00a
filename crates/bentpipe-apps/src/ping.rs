//! ICMP echo requests at an interval, as ping(8) sends them; the other host's stack answers.
//!
//! Requests leave on a fixed grid whether or not replies come. Each carries its own stretch of the seed's pattern, so
//! a reply tells not only whether it is damaged but, when sequence numbers have wrapped, which request it answers.
//!
//! Terms:
//! - `received`: requests answered at least once by an undamaged reply; `loss` is 1 − received ÷ (sent − pending).
//! - `duplicates`: undamaged replies to an answered request.
//! - `damaged`: replies whose data differ from what was sent. They do not count as received and give no round-trip
//!   time (ping(8) counts them).
//! - `unknown`: replies to no request of ours.
//! - `pending`: requests at the end of an unfinished ping that may still be answered: younger than the time-out, with no
//!   later one answered. They count neither as received nor as lost.
//! - A request that the own host's stack had no room for counts as sent and lost.
//! - A ping that ended without one undamaged reply has failed, as ping(8) has it.

use crate::SpecError;
use crate::delays::Delays;
use crate::kind::{Keys, Kind, PartyProgram, Setting, Shown, Workload};
use crate::progress::check_timeout;
use crate::quantity::{self, Quantity};
use crate::report::{App, Report, Series, Status};
use bentpipe_net::content::Content;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::socket::{Program, SocketError, SocketId, Sockets, count_wrong, fill_pattern};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::DataSize;
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;

/// The kind of workload `ping`.
#[derive(Debug)]
pub struct Ping;

/// Options of a ping.
#[derive(Clone, Debug)]
pub struct PingSpec {
    /// Requests to send.
    pub count: u32,
    /// From one request to the next.
    pub interval: Duration,
    /// Data after the eight-byte ICMP header, as `ping -s` counts.
    pub data_bytes: usize,
    /// Longest wait for replies after the last request.
    pub timeout: Duration,
}

impl Default for PingSpec {
    fn default() -> Self {
        PingSpec { count: 10, interval: Duration::from_secs(1), data_bytes: 56, timeout: Duration::from_secs(10) }
    }
}

impl PingSpec {
    /// Whether it can be run.
    pub fn check(&self) -> Result<(), SpecError> {
        SpecError::unless(
            (1..=COUNT_MAX).contains(&self.count),
            "count",
            format!("is {}; allowed: 1 to {COUNT_MAX}", self.count),
        )?;
        SpecError::unless(self.interval > Duration::ZERO, "interval", "is zero; allowed: longer than zero")?;
        SpecError::unless(
            self.data_bytes <= DATA_BYTES_MAX,
            "data_bytes",
            format!("is {}; allowed: 0 to {DATA_BYTES_MAX}", self.data_bytes),
        )?;
        check_timeout(self.timeout)
    }

    /// The side that asks.
    #[must_use]
    pub fn client(&self, server: IpAddr, seed: u64) -> Box<dyn App> {
        Box::new(PingClient {
            spec: self.clone(),
            server,
            seed,
            socket: None,
            next_send: None,
            probes: Vec::new(),
            received: 0,
            duplicates: 0,
            damaged: 0,
            unknown: 0,
            failure: None,
            ended: None,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PingKeys {
    count: Option<u32>,
    interval: Option<Duration>,
    bytes: Option<DataSize>,
    content: Option<Content>,
    timeout: Option<Duration>,
}

/// A ping of a scenario.
#[derive(Clone, Debug)]
pub struct PingWorkload {
    /// Options of a ping.
    pub spec: PingSpec,
    /// The composition of its data.
    pub content: Content,
}

impl Kind for Ping {
    fn name(&self) -> &'static str {
        "ping"
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[
            quantity::SENT,
            quantity::RECEIVED,
            quantity::PENDING,
            quantity::LOSS,
            quantity::DUPLICATES,
            quantity::DAMAGED,
            quantity::UNKNOWN,
            quantity::RTT_MIN,
            quantity::RTT_MEAN,
            quantity::RTT_MEDIAN,
            quantity::RTT_P99,
            quantity::RTT_MAX,
            quantity::RTT_JITTER,
        ]
    }

    fn shown(&self) -> Shown {
        Shown::new(&[quantity::RTT_MEDIAN], &[quantity::RTT])
            .with_compared(&[quantity::RTT_MEDIAN, quantity::LOSS])
            .with_progress(quantity::RECEIVED, "replies")
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let keys: PingKeys = keys.read()?;
        let default = PingSpec::default();
        let spec = PingSpec {
            count: keys.count.unwrap_or(default.count),
            interval: keys.interval.unwrap_or(default.interval),
            data_bytes: keys.bytes.map_or(default.data_bytes, |b| usize::try_from(b.bytes).unwrap_or(usize::MAX)),
            timeout: keys.timeout.unwrap_or(default.timeout),
        };
        spec.check()?;
        Ok(Arc::new(PingWorkload { spec, content: keys.content.unwrap_or_default() }))
    }
}

impl Workload for PingWorkload {
    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        let seed = self.content.pattern(setting.seed);
        match number {
            0 => PartyProgram::App(self.spec.client(setting.first(1).address, seed)),
            _ => PartyProgram::Stack,
        }
    }
}

struct PingClient {
    spec: PingSpec,
    server: IpAddr,
    seed: u64,
    socket: Option<SocketId>,
    next_send: Option<Instant>,
    /// One per request sent, in order.
    probes: Vec<Probe>,
    received: u64,
    duplicates: u64,
    damaged: u64,
    unknown: u64,
    failure: Option<String>,
    ended: Option<Instant>,
}

struct Probe {
    sent: Instant,
    round_trip: Option<Duration>,
}

impl Program for PingClient {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.ended.is_some() {
            return;
        }
        if let Err(error) = self.work(now, sockets) {
            self.failure = Some(error);
            self.end(now, sockets);
        } else if self.all_sent() && (self.received == self.probes.len() as u64 || self.deadline() <= now) {
            self.end(now, sockets);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self.ended {
            Some(_) => None,
            None if self.all_sent() => Some(self.deadline()),
            None => Some(self.next_send.unwrap_or(Instant::ZERO)),
        }
    }

    fn is_done(&self) -> bool {
        self.ended.is_some()
    }
}

impl PingClient {
    fn work(&mut self, now: Instant, sockets: &mut dyn Sockets) -> Result<(), String> {
        let socket = match self.socket {
            Some(socket) => socket,
            None => *self
                .socket
                .insert(sockets.open_echo().map_err(|error| format!("cannot open an ICMP echo socket: {error}"))?),
        };
        self.receive(sockets, socket)?;
        let mut due = self.next_send.unwrap_or(now);
        while due <= now && !self.all_sent() {
            self.send(now, sockets, socket)?;
            due += self.spec.interval;
        }
        self.next_send = Some(due);
        Ok(())
    }

    fn send(&mut self, now: Instant, sockets: &mut dyn Sockets, socket: SocketId) -> Result<(), String> {
        let index = self.probes.len() as u64;
        let mut data = vec![0; self.spec.data_bytes];
        fill_pattern(self.seed, data_offset(index), &mut data);
        self.probes.push(Probe { sent: now, round_trip: None });
        match sockets.send_echo(socket, self.server, sequence_of(index), &data) {
            Err(error) if is_final(error) => Err(format!("cannot send an ICMP echo request: {error}")),
            // No room, or no route at this moment: the request is lost.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn receive(&mut self, sockets: &mut dyn Sockets, socket: SocketId) -> Result<(), String> {
        // One byte more than was sent, so that a reply that grew shows.
        let mut buffer = vec![0; self.spec.data_bytes + 1];
        let mut errors = 0;
        loop {
            match sockets.receive_echo(socket, &mut buffer) {
                Ok(None) => return Ok(()),
                Ok(Some((sequence, length, at))) => {
                    let held = length.min(buffer.len());
                    self.take_reply(sequence, length, &buffer[..held], at);
                }
                Err(error) if is_final(error) => return Err(format!("cannot receive ICMP echo replies: {error}")),
                // ICMP errors that come back for single requests; there may be replies behind them.
                Err(_) if errors < ERRORS_PER_POLL_MAX => errors += 1,
                Err(_) => return Ok(()),
            }
        }
    }

    fn take_reply(&mut self, sequence: u16, length: usize, data: &[u8], at: Instant) {
        // Sequence numbers repeat every 65 536 requests: the youngest candidate, unless the data say an older one.
        let sent = self.probes.len() as u64;
        let behind = sequence_of(sent.wrapping_sub(1)).wrapping_sub(sequence);
        let Some(youngest) = sent.checked_sub(1 + u64::from(behind)) else {
            self.unknown += 1;
            return;
        };
        let intact =
            |index: u64| length == self.spec.data_bytes && count_wrong(self.seed, data_offset(index), data) == 0;
        let answered = std::iter::successors(Some(youngest), |index| index.checked_sub(SEQUENCES));
        let Some(index) = answered.take(WRAPS_MAX).find(|index| intact(*index)) else {
            self.damaged += 1;
            return;
        };
        let Some(probe) = self.probes.get_mut(index as usize) else { return };
        if probe.round_trip.is_some() {
            self.duplicates += 1;
        } else {
            probe.round_trip = Some(at.since(probe.sent));
            self.received += 1;
        }
    }

    fn all_sent(&self) -> bool {
        self.probes.len() as u64 >= u64::from(self.spec.count)
    }

    fn deadline(&self) -> Instant {
        self.probes.last().map_or(Instant::ZERO, |probe| probe.sent) + self.spec.timeout
    }

    fn end(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if let Some(socket) = self.socket.take() {
            sockets.close(socket);
        }
        self.ended = Some(now);
    }
}

impl PingClient {
    /// Why a ping that ended without an undamaged reply failed.
    fn no_replies(&self) -> String {
        let requests = match self.probes.len() {
            1 => "1 request".to_owned(),
            several => format!("{several} requests"),
        };
        match self.damaged {
            0 => format!("no replies to {requests}: 100 % lost"),
            damaged => format!("no undamaged replies to {requests}: 100 % lost, {damaged} damaged"),
        }
    }

    /// Requests that may still be answered.
    fn pending(&self, now: Instant) -> usize {
        if self.ended.is_some() {
            return 0;
        }
        let waiting = |probe: &&Probe| probe.round_trip.is_none() && now.since(probe.sent) < self.spec.timeout;
        self.probes.iter().rev().take_while(waiting).count()
    }
}

impl App for PingClient {
    fn report(&self, now: Instant) -> Report {
        let status = match (&self.failure, self.ended) {
            (Some(error), _) => Status::Failed(error.clone()),
            (None, Some(_)) if self.received == 0 => Status::Failed(self.no_replies()),
            (None, Some(_)) => Status::Done,
            (None, None) => Status::Running,
        };
        let mut report = Report::new(status, self.ended);
        let sent = self.probes.len() as f64;
        report.put(quantity::SENT, sent);
        report.put(quantity::RECEIVED, self.received as f64);
        let pending = self.pending(now) as f64;
        report.put(quantity::PENDING, pending);
        if sent > pending {
            report.put(quantity::LOSS, 1.0 - self.received as f64 / (sent - pending));
        }
        report.put(quantity::DUPLICATES, self.duplicates as f64);
        report.put(quantity::DAMAGED, self.damaged as f64);
        report.put(quantity::UNKNOWN, self.unknown as f64);
        let points: Vec<(Instant, f64)> =
            self.probes.iter().filter_map(|p| Some((p.sent, p.round_trip?.as_secs_f64()))).collect();
        put_round_trips(&mut report, &points);
        report.series.push(Series { quantity: quantity::RTT, points });
        report
    }
}

/// `points`: (when sent, round-trip time) in the order sent.
fn put_round_trips(report: &mut Report, points: &[(Instant, f64)]) {
    let Some(round_trips) = Delays::of(points.iter().map(|(_, seconds)| *seconds)) else { return };
    report.put(quantity::RTT_MIN, round_trips.min);
    report.put(quantity::RTT_MEAN, round_trips.mean);
    report.put(quantity::RTT_MEDIAN, round_trips.median);
    report.put(quantity::RTT_P99, round_trips.p99);
    report.put(quantity::RTT_MAX, round_trips.max);
    if points.len() > 1 {
        let steps: f64 = points.windows(2).map(|pair| (pair[1].1 - pair[0].1).abs()).sum();
        report.put(quantity::RTT_JITTER, steps / (points.len() - 1) as f64);
    }
}

/// The first request has number 1, as ping(8) has it.
fn sequence_of(index: u64) -> u16 {
    (index.wrapping_add(1) % SEQUENCES) as u16
}

/// Where in the pattern a request's data begin.
fn data_offset(index: u64) -> u64 {
    index << 16
}

/// True if there is no use in going on.
fn is_final(error: SocketError) -> bool {
    matches!(error, SocketError::Denied | SocketError::Closed)
}

const COUNT_MAX: u32 = 10_000_000;
/// Room in an IPv4 packet after 20 bytes of IP header and 8 of ICMP.
const DATA_BYTES_MAX: usize = 65_507;
const SEQUENCES: u64 = 65_536;
/// Most turns of the sequence number that a late reply is searched back.
const WRAPS_MAX: usize = 8;
const ERRORS_PER_POLL_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_statistics() {
        let mut report = Report::new(Status::Done, None);
        let points: Vec<_> = [3.0, 1.0, 2.0, 6.0].iter().map(|s| (Instant::ZERO, *s)).collect();
        put_round_trips(&mut report, &points);
        for (quantity, value) in [
            (quantity::RTT_MIN, 1.0),
            (quantity::RTT_MEAN, 3.0),
            (quantity::RTT_MEDIAN, 2.5),
            (quantity::RTT_P99, 6.0),
            (quantity::RTT_JITTER, 7.0 / 3.0),
        ] {
            assert_eq!(report.value(quantity), Some(value), "{quantity:?}");
        }
        let mut one = Report::new(Status::Done, None);
        put_round_trips(&mut one, &points[..1]);
        assert_eq!(one.value(quantity::RTT_P99), Some(3.0));
        assert_eq!(one.value(quantity::RTT_JITTER), None);
    }

    #[test]
    fn a_spec_says_what_is_allowed() {
        let bad = PingSpec { data_bytes: 65_508, ..PingSpec::default() };
        assert_eq!(bad.check().unwrap_err().to_string(), "data_bytes: is 65508; allowed: 0 to 65507");
        assert!(PingSpec { count: 0, ..PingSpec::default() }.check().is_err());
        assert_eq!(PingSpec::default().check(), Ok(()));
    }
}
