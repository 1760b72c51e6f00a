//! Counters of links and hosts that a sweep can measure, next to what its workloads measure.

use super::SweepError;
use bentpipe_lab::record::{CaseRecord, Counters, FlowRecord, Record, Unit};
use bentpipe_lab::scenario::{LinkUse, Scenario};
use bentpipe_link::config::DirectionConfig;
use bentpipe_net::problem::did_you_mean;
use serde::{Deserialize, Serialize};

/// A counter of one direction of a link, or of one host's TCP, at the end of a case. Its identifier is the field's in a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Packets handed to the queue.
    OfferedPackets,
    /// Their bytes, framing not included.
    OfferedBytes,
    /// Packets that the full queue refused.
    DroppedPackets,
    /// Packets that the transmitter sent.
    SentPackets,
    /// Bytes that the transmitter sent, framing included.
    LinkBytes,
    /// Packets with bit errors that the framing's check discarded.
    DamagedPackets,
    /// Bits inverted by the medium.
    BitErrors,
    /// Packets lost as a whole.
    LostPackets,
    /// Packets delivered.
    DeliveredPackets,
    /// Their bytes, framing not included.
    DeliveredBytes,
    /// Longest queue, in bytes.
    QueueBytesMax,
    /// Bits sent ÷ the bits that the direction's highest rate, on all its channels, carries in the case's time.
    Utilization,
    /// Acknowledgements without data that a host sent.
    PureAcks,
    /// Segments with data that a host sent.
    DataSegments,
    /// Data bytes that a host sent, repeated ones included.
    DataBytes,
    /// Data bytes that a host sent more than once.
    RepeatedBytes,
}

/// The source of a counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Source {
    /// A direction of a link, named by its sending site.
    Direction {
        /// The link.
        link: String,
        /// The sending site.
        from: String,
    },
    /// All TCP connections of a host.
    Host {
        /// The site.
        host: String,
    },
}

/// The counters of one source in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CounterLine {
    /// The case.
    pub case: String,
    /// The source.
    #[serde(flatten)]
    pub source: Source,
    /// Values in the counters' base units; no value where it was no finite number.
    pub values: Vec<(Counter, Option<f64>)>,
}

/// The function that computes a counter.
enum Value {
    OfDirection(fn(&Direction<'_>) -> f64),
    OfHost(fn(&FlowRecord) -> u64),
}

/// One direction in one case.
struct Direction<'a> {
    counters: &'a Counters,
    config: &'a DirectionConfig,
    /// The case's time.
    seconds: f64,
}

impl Counter {
    /// All of them.
    pub const ALL: [Counter; 16] = [
        Counter::OfferedPackets,
        Counter::OfferedBytes,
        Counter::DroppedPackets,
        Counter::SentPackets,
        Counter::LinkBytes,
        Counter::DamagedPackets,
        Counter::BitErrors,
        Counter::LostPackets,
        Counter::DeliveredPackets,
        Counter::DeliveredBytes,
        Counter::QueueBytesMax,
        Counter::Utilization,
        Counter::PureAcks,
        Counter::DataSegments,
        Counter::DataBytes,
        Counter::RepeatedBytes,
    ];

    /// Its identifier, unit and value.
    fn facts(self) -> (&'static str, Unit, Value) {
        use Value::{OfDirection, OfHost};
        match self {
            Counter::OfferedPackets => {
                ("offered_packets", Unit::Number, OfDirection(|d| d.counters.offered_packets as f64))
            }
            Counter::OfferedBytes => ("offered_bytes", Unit::Bytes, OfDirection(|d| d.counters.offered_bytes as f64)),
            Counter::DroppedPackets => {
                ("dropped_packets", Unit::Number, OfDirection(|d| d.counters.dropped_packets as f64))
            }
            Counter::SentPackets => ("sent_packets", Unit::Number, OfDirection(|d| d.counters.sent_packets as f64)),
            Counter::LinkBytes => ("link_bytes", Unit::Bytes, OfDirection(|d| d.counters.link_bytes as f64)),
            Counter::DamagedPackets => {
                ("damaged_packets", Unit::Number, OfDirection(|d| d.counters.damaged_packets as f64))
            }
            Counter::BitErrors => ("bit_errors", Unit::Number, OfDirection(|d| d.counters.bit_errors as f64)),
            Counter::LostPackets => ("lost_packets", Unit::Number, OfDirection(|d| d.counters.lost_packets as f64)),
            Counter::DeliveredPackets => {
                ("delivered_packets", Unit::Number, OfDirection(|d| d.counters.delivered_packets as f64))
            }
            Counter::DeliveredBytes => {
                ("delivered_bytes", Unit::Bytes, OfDirection(|d| d.counters.delivered_bytes as f64))
            }
            Counter::QueueBytesMax => {
                ("queue_bytes_max", Unit::Bytes, OfDirection(|d| d.counters.queue_bytes_max as f64))
            }
            Counter::Utilization => ("utilization", Unit::Share, OfDirection(utilization)),
            Counter::PureAcks => ("pure_acks", Unit::Number, OfHost(|flow| flow.pure_acks)),
            Counter::DataSegments => ("data_segments", Unit::Segments, OfHost(|flow| flow.data_segments)),
            Counter::DataBytes => ("data_bytes", Unit::Bytes, OfHost(|flow| flow.data_bytes)),
            Counter::RepeatedBytes => ("repeated_bytes", Unit::Bytes, OfHost(|flow| flow.repeated_bytes)),
        }
    }

    /// Its identifier, as `--measure` takes it.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.facts().0
    }

    /// Its unit.
    #[must_use]
    pub fn unit(self) -> Unit {
        self.facts().1
    }

    /// Reads `dropped_packets`.
    pub fn parse(text: &str) -> Result<Counter, SweepError> {
        Counter::ALL.into_iter().find(|counter| counter.id() == text).ok_or_else(|| {
            let ids = || Counter::ALL.into_iter().map(Counter::id);
            let meant = did_you_mean(text, ids());
            let all = ids().collect::<Vec<_>>().join(", ");
            SweepError::Request(format!("--measure {text:?}: no link and no host counts that{meant}; allowed: {all}"))
        })
    }
}

fn utilization(direction: &Direction<'_>) -> f64 {
    let rate = crate::predict::total_rate(direction.config).bps as f64;
    direction.counters.link_bytes as f64 * 8.0 / (rate * direction.seconds)
}

/// The counters `wanted` of every direction of every link, and of every host that has TCP connections.
pub fn lines(wanted: &[Counter], scenario: &Scenario, record: &Record) -> Vec<CounterLine> {
    if wanted.is_empty() {
        return Vec::new();
    }
    scenario
        .cases
        .iter()
        .zip(&record.cases)
        .flat_map(|(case, recorded)| case_lines(wanted, &case.links, recorded))
        .collect()
}

fn case_lines(wanted: &[Counter], links: &[LinkUse], case: &CaseRecord) -> Vec<CounterLine> {
    let mut lines = Vec::new();
    let mut add = |source: Source, values: Vec<(Counter, Option<f64>)>| {
        if !values.is_empty() {
            lines.push(CounterLine { case: case.name.clone(), source, values });
        }
    };
    let finite = |value: f64| value.is_finite().then_some(value);
    for link in &case.links {
        let Some(used) = links.iter().find(|used| used.name == link.name) else { continue };
        for (number, direction) in link.directions.iter().enumerate() {
            let config = if number == 0 { &used.config.forward } else { &used.config.back };
            let of = Direction { counters: &direction.counters, config, seconds: case.seconds };
            let values = wanted.iter().filter_map(|counter| match counter.facts().2 {
                Value::OfDirection(value) => Some((*counter, finite(value(&of)))),
                Value::OfHost(_) => None,
            });
            let source = Source::Direction { link: link.name.clone(), from: direction.from.clone() };
            add(source, values.collect());
        }
    }
    let mut hosts: Vec<&str> = Vec::new();
    for flow in &case.flows {
        if !hosts.contains(&flow.host.as_str()) {
            hosts.push(&flow.host);
        }
    }
    for host in hosts {
        let values = wanted.iter().filter_map(|counter| match counter.facts().2 {
            Value::OfHost(value) => {
                let flows = case.flows.iter().filter(|flow| flow.host == host);
                Some((*counter, finite(flows.map(value).sum::<u64>() as f64)))
            }
            Value::OfDirection(_) => None,
        });
        add(Source::Host { host: host.to_owned() }, values.collect());
    }
    lines
}
