//! Datagrams over UDP: constant, on-off, Poisson or from a trace, in either direction or in both.
//!
//! Both parties know each other's address and port and the whole schedule, so nothing but the datagrams themselves is sent.
//! Each holds a mark of its run, its number and the time at which it was sent; the rest is the seed's pattern and verified. The
//! first may leave 100 ms after the start, when both parties listen.
//!
//! Terms:
//! - One-way delay: from the sending program's call to the arrival at the receiving host's stack (the kernel's stamp). Both
//!   ends read the same monotonic clock, so clocks that differ cannot falsify it.
//! - A datagram is lost when it has not arrived, undamaged, at the time-out after the last departure; a receiver that has all of them
//!   does not wait. In a run that was ended early, those after the last one received are `pending`: neither.
//! - Losses in a row are one burst.
//! - `offered_rate` and `goodput` count bytes of data, without headers, from the first datagram to the last, one of which
//!   is left out.

pub mod reception;
pub mod traffic;

mod endpoint;
mod quantities;

pub use endpoint::HEADER_BYTES;
pub use quantities::{Measured, Names};

use crate::kind::{
    self, CLIENT, Keys, Kind, PartyProgram, PartyReport, PortNeed, Role, SERVER, Setting, Shown, Workload,
};
use crate::progress::check_port;
use crate::quantity::{self, Quantity, Unit};
use crate::report::{Report, Status};
use crate::{Direction, SpecError};
use bentpipe_net::content::Content;
use bentpipe_net::dscp::Dscp;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, DataSize};
use endpoint::{Endpoint, Receiving, Sending, State, Stream};
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use traffic::{Interval, TraceEntry, Traffic, TrafficSpec};

/// The kind of workload `datagrams`.
#[derive(Debug)]
pub struct Datagrams;

/// Which ways datagrams go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// From the server to the client.
    Download,
    /// From the client to the server.
    Upload,
    /// Both at once; each has departures of its own where they are random.
    Both,
}

/// Datagrams of a scenario.
#[derive(Clone, Debug)]
pub struct DatagramsSpec {
    /// Which ways.
    pub directions: Directions,
    /// When they leave, and their sizes.
    pub traffic: TrafficSpec,
    /// Their mark.
    pub dscp: Dscp,
    /// The composition of their data.
    pub content: Content,
    /// The server's port and the client's, if the file chose them.
    pub ports: [Option<u16>; 2],
    /// A receiver waits so long after the last departure.
    pub timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DatagramsKeys {
    direction: Option<Directions>,
    traffic: Option<Model>,
    bytes: Option<DataSize>,
    rate: Option<BitRate>,
    interval: Option<Duration>,
    on: Option<Duration>,
    off: Option<Duration>,
    trace: Option<Vec<(Duration, DataSize)>>,
    duration: Option<Duration>,
    dscp: Option<Dscp>,
    content: Option<Content>,
    port: Option<u16>,
    client_port: Option<u16>,
    timeout: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Model {
    Constant,
    OnOff,
    Poisson,
    Trace,
}

impl DatagramsKeys {
    fn traffic(&self) -> Result<TrafficSpec, KeyProblem> {
        let model = self.traffic.unwrap_or(Model::Constant);
        let own = [
            ("rate", self.rate.is_some(), model != Model::Trace),
            ("interval", self.interval.is_some(), model != Model::Trace),
            ("bytes", self.bytes.is_some(), model != Model::Trace),
            ("on", self.on.is_some(), model == Model::OnOff),
            ("off", self.off.is_some(), model == Model::OnOff),
            ("trace", self.trace.is_some(), model == Model::Trace),
        ];
        if let Some((key, ..)) = own.iter().find(|(_, given, allowed)| *given && !allowed) {
            let of = match *key {
                "on" | "off" => "traffic = \"on-off\"",
                "trace" => "traffic = \"trace\"",
                _ => "other traffic than a trace, which has times and sizes of its own",
            };
            return Err(KeyProblem::new(*key, format!("is for {of}")));
        }
        let missing = |key, what: &str| KeyProblem::new(key, format!("is missing; allowed: {what}"));
        let interval = || match (self.rate, self.interval) {
            (Some(_), Some(_)) => Err(KeyProblem::new("interval", "is given besides rate; allowed: one of the two")),
            (None, Some(interval)) => Ok(Interval::Time(interval)),
            (rate, None) => Ok(Interval::Rate(rate.unwrap_or(RATE))),
        };
        let traffic = match model {
            Model::Constant => Traffic::Constant(interval()?),
            Model::Poisson => Traffic::Poisson(interval()?),
            Model::OnOff => Traffic::OnOff {
                interval: interval()?,
                on: self.on.ok_or_else(|| missing("on", "the mean length of an on period, such as \"1.2 s\""))?,
                off: self.off.ok_or_else(|| missing("off", "the mean length of an off period, such as \"1.8 s\""))?,
            },
            Model::Trace => {
                let what = "a list of [time since the one before, size], such as [[\"20 ms\", \"200 B\"]]";
                let entries = self.trace.iter().flatten();
                let entries: Vec<TraceEntry> =
                    entries.map(|(gap, size)| TraceEntry { gap: *gap, bytes: bytes_of(*size) }).collect();
                if self.trace.is_none() {
                    return Err(missing("trace", what));
                }
                Traffic::Trace(entries)
            }
        };
        let duration = if model == Model::Trace { self.duration } else { Some(self.duration.unwrap_or(DURATION)) };
        Ok(TrafficSpec { traffic, bytes: self.bytes.map_or(BYTES, bytes_of), duration })
    }
}

fn bytes_of(size: DataSize) -> usize {
    usize::try_from(size.bytes).unwrap_or(usize::MAX)
}

impl DatagramsSpec {
    /// Whether it can be run.
    pub fn check(&self) -> Result<(), SpecError> {
        let sizes: Vec<usize> = match &self.traffic.traffic {
            Traffic::Trace(entries) => entries.iter().map(|entry| entry.bytes).collect(),
            _ => vec![self.traffic.bytes],
        };
        let field = if matches!(self.traffic.traffic, Traffic::Trace(_)) { "trace" } else { "bytes" };
        if let Some(bytes) = sizes.iter().find(|bytes| !(HEADER_BYTES..=BYTES_MAX).contains(*bytes)) {
            let message = format!("is {bytes} B of data; allowed: {HEADER_BYTES} B to {BYTES_MAX} B");
            return Err(SpecError { field, message });
        }
        self.traffic.check()?;
        self.ports.into_iter().flatten().try_for_each(check_port)?;
        SpecError::unless(
            self.timeout > Duration::ZERO && self.timeout <= TIMEOUT_MAX,
            "timeout",
            format!("is {}; allowed: longer than zero, up to {TIMEOUT_MAX}", self.timeout),
        )
    }

    fn names(&self, direction: Direction) -> Names {
        if self.directions == Directions::Both { Names::Of(direction) } else { Names::Plain }
    }

    fn has(&self, direction: Direction) -> bool {
        match self.directions {
            Directions::Both => true,
            Directions::Download => direction == Direction::Download,
            Directions::Upload => direction == Direction::Upload,
        }
    }

    fn stream(&self, direction: Direction, seed: u64) -> Option<Stream> {
        let seed = Seed(seed).child(match direction {
            Direction::Upload => "upload",
            Direction::Download => "download",
        });
        self.has(direction).then(|| Stream {
            names: self.names(direction),
            departures: self.traffic.departures(seed.0),
            pattern: self.content.pattern(seed.0),
        })
    }
}

impl Kind for Datagrams {
    fn name(&self) -> &'static str {
        "datagrams"
    }

    fn roles(&self) -> &'static [Role] {
        const { &[CLIENT, SERVER] }
    }

    fn quantities(&self) -> &'static [Quantity] {
        quantities::QUANTITIES
    }

    fn shown(&self) -> Shown {
        const LOSS: Quantity = Names::Plain.of(Measured::Loss);
        const MEDIAN: Quantity = Names::Plain.of(Measured::DelayMedian);
        const P99: Quantity = Names::Plain.of(Measured::DelayP99);
        const JITTER: Quantity = Names::Plain.of(Measured::Jitter);
        const DELAY: Quantity = Names::Plain.of(Measured::Delay);
        Shown::new(&[LOSS], &[DELAY])
            .with_compared(&[LOSS, MEDIAN, P99, JITTER])
            .with_progress(quantity::RECEIVED, "datagrams")
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let keys: DatagramsKeys = keys.read()?;
        let spec = DatagramsSpec {
            directions: keys.direction.unwrap_or(Directions::Download),
            traffic: keys.traffic()?,
            dscp: keys.dscp.unwrap_or_default(),
            content: keys.content.unwrap_or_default(),
            ports: [keys.port, keys.client_port],
            timeout: keys.timeout.unwrap_or(TIMEOUT),
        };
        spec.check()?;
        Ok(Arc::new(spec))
    }
}

impl Workload for DatagramsSpec {
    fn ports(&self) -> Vec<PortNeed> {
        let [server, client] = self.ports;
        vec![
            PortNeed { role: 1, key: "port", chosen: server, default: PORT },
            PortNeed { role: 0, key: "client_port", chosen: client, default: PORT },
        ]
    }

    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        let (own, other) = (&setting.parties[number], &setting.parties[1 - number]);
        let [sends, receives] = match number {
            0 => [Direction::Upload, Direction::Download],
            _ => [Direction::Download, Direction::Upload],
        };
        PartyProgram::App(Box::new(Endpoint {
            port: own.ports[0],
            peer: SocketAddr::new(other.address, other.ports[0]),
            dscp: self.dscp,
            timeout: self.timeout,
            sending: self.stream(sends, setting.seed).map(Sending::new),
            receiving: self.stream(receives, setting.seed).map(Receiving::new),
            state: State::default(),
        }))
    }

    fn combine(&self, parties: Vec<PartyReport>) -> Report {
        let reports: Vec<Option<Report>> = parties.iter().map(|party| party.report.clone()).collect();
        let mut joined = kind::join(parties);
        joined.measurements.retain(|m| ![END, OVER].contains(&m.quantity));
        let part = |party: usize, quantity| reports.get(party).and_then(Option::as_ref)?.value(quantity);
        let mut totals = Totals::default();
        let mut none_arrived = Vec::new();
        for (direction, sender, receiver) in [(Direction::Upload, 0, 1), (Direction::Download, 1, 0)] {
            if !self.has(direction) {
                continue;
            }
            let names = self.names(direction);
            let stream = Ends {
                sent: part(sender, names.of(Measured::Sent)).unwrap_or(0.0),
                received: part(receiver, names.of(Measured::Received)).unwrap_or(0.0),
                end: part(receiver, END).unwrap_or(0.0),
                is_over: part(receiver, OVER) == Some(1.0),
            };
            stream.fill(names, &mut joined);
            totals.add(&stream);
            if stream.is_over && stream.sent > 0.0 && stream.received == 0.0 {
                let refused = part(sender, names.of(Measured::Refused)).unwrap_or(0.0);
                none_arrived.push(stream.nothing(direction, refused));
            }
        }
        totals.fill(&mut joined);
        joined.ended =
            reports.iter().flatten().filter_map(|report| report.ended).max().filter(|_| joined.ended.is_some());
        if joined.status == Status::Done && !none_arrived.is_empty() {
            joined.status = Status::Failed(none_arrived.join("; "));
        }
        joined
    }

    fn direction(&self) -> Option<Direction> {
        match self.directions {
            Directions::Download => Some(Direction::Download),
            Directions::Upload => Some(Direction::Upload),
            Directions::Both => None,
        }
    }

    fn is_random(&self) -> bool {
        matches!(self.traffic.traffic, Traffic::Poisson(_) | Traffic::OnOff { .. })
    }
}

/// What the two ends of a direction know.
struct Ends {
    sent: f64,
    received: f64,
    /// One more than the highest number received.
    end: f64,
    /// The receiver waits for nothing more.
    is_over: bool,
}

/// Both directions together.
#[derive(Default)]
struct Totals {
    sent: f64,
    received: f64,
    pending: f64,
}

impl Ends {
    fn pending(&self) -> f64 {
        if self.is_over { 0.0 } else { (self.sent - self.end).max(0.0) }
    }

    /// Loss, to the last datagram sent, which only the sender knows.
    fn fill(&self, names: Names, report: &mut Report) {
        let pending = self.pending();
        report.put(names.of(Measured::Pending), pending);
        put_loss(report, names, self.sent, self.received, pending);
        let (bursts, longest) = (names.of(Measured::LossBursts), names.of(Measured::LossBurstMax));
        if let (Some(count), Some(max)) = (report.value(bursts), report.value(longest)) {
            let last = (self.sent - self.end - pending).max(0.0);
            let count = count + f64::from(u8::from(last > 0.0));
            report.put(bursts, count);
            report.put(longest, max.max(last));
            if count > 0.0 {
                report.put(names.of(Measured::LossBurstMean), (self.sent - pending - self.received) / count);
            }
        }
    }

    fn nothing(&self, direction: Direction, refused: f64) -> String {
        let sent = match self.sent {
            1.0 => "the datagram".to_owned(),
            several => format!("{several} datagrams"),
        };
        let why = match refused {
            0.0 => String::new(),
            refused => format!(", and ICMP reported {refused} of them as undeliverable"),
        };
        format!("{direction}: {sent} sent, none of which arrived{why}")
    }
}

impl Totals {
    fn add(&mut self, stream: &Ends) {
        self.sent += stream.sent;
        self.received += stream.received;
        self.pending += stream.pending();
    }

    fn fill(&self, report: &mut Report) {
        report.put(Names::Plain.of(Measured::Sent), self.sent);
        report.put(Names::Plain.of(Measured::Received), self.received);
        report.put(Names::Plain.of(Measured::Pending), self.pending);
        put_loss(report, Names::Plain, self.sent, self.received, self.pending);
    }
}

fn put_loss(report: &mut Report, names: Names, sent: f64, received: f64, pending: f64) {
    if sent > pending {
        report.put(names.of(Measured::Loss), 1.0 - received / (sent - pending));
    }
}

/// Of a receiver, for [`Workload::combine`]: one more than the highest number that came.
const END: Quantity = Quantity::neutral("end", Unit::Number);
/// Of a receiver, for [`Workload::combine`]: 1 when it waits for nothing more.
const OVER: Quantity = Quantity::neutral("over", Unit::Number);

/// Room in an IPv4 packet after 20 bytes of IP header and 8 of UDP.
const BYTES_MAX: usize = 65_507;
/// The server of a scenario is waited for as long after its client.
const TIMEOUT_MAX: Duration = Duration::from_secs(120);
// Defaults of the keys.
const RATE: BitRate = BitRate::from_bps(64_000);
const BYTES: usize = 160;
const DURATION: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(10);
const PORT: u16 = 5002;
