//! Counters of links and hosts that a sweep can measure, next to what its workloads measure.

use super::SweepError;
use super::subject::Subject;
use bentpipe_lab::record::{CaseRecord, Counters, FlowRecord, Record, Unit};
use bentpipe_lab::scenario::{LinkUse, Scenario};
use bentpipe_link::config::DirectionConfig;
use bentpipe_net::problem::did_you_mean;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Defines [`Counter`] from one table: documentation, name, identifier, unit and function of each counter.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $id:literal, $unit:ident, $source:ident($value:expr);)*) => {
        /// A counter of one direction of a link, or of one host's TCP, at the end of a case. Its identifier is the field's
        /// in a record.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        pub enum Counter {
            $($(#[$doc])* #[serde(rename = $id)] $name,)*
        }

        impl Counter {
            /// All of them.
            pub const ALL: &[Counter] = &[$(Counter::$name),*];

            /// Its identifier, as `--measure` takes it.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self {
                    $(Counter::$name => $id,)*
                }
            }

            /// Its unit.
            #[must_use]
            pub fn unit(self) -> Unit {
                match self {
                    $(Counter::$name => Unit::$unit,)*
                }
            }

            /// The function that computes it.
            fn value(self) -> Value {
                match self {
                    $(Counter::$name => Value::$source($value),)*
                }
            }
        }
    };
}

counters! {
    /// Packets handed to the queue.
    OfferedPackets: "offered_packets", Number, OfDirection(|d| d.counters.offered_packets as f64);
    /// Their bytes, framing not included.
    OfferedBytes: "offered_bytes", Bytes, OfDirection(|d| d.counters.offered_bytes as f64);
    /// Packets that the full queue refused.
    DroppedPackets: "dropped_packets", Number, OfDirection(|d| d.counters.dropped_packets as f64);
    /// Packets that the transmitter sent.
    SentPackets: "sent_packets", Number, OfDirection(|d| d.counters.sent_packets as f64);
    /// Bytes that the transmitter sent, framing included.
    LinkBytes: "link_bytes", Bytes, OfDirection(|d| d.counters.link_bytes as f64);
    /// Packets with bit errors that the framing's check discarded.
    DamagedPackets: "damaged_packets", Number, OfDirection(|d| d.counters.damaged_packets as f64);
    /// Bits inverted by the medium.
    BitErrors: "bit_errors", Number, OfDirection(|d| d.counters.bit_errors as f64);
    /// Packets lost as a whole.
    LostPackets: "lost_packets", Number, OfDirection(|d| d.counters.lost_packets as f64);
    /// Packets delivered.
    DeliveredPackets: "delivered_packets", Number, OfDirection(|d| d.counters.delivered_packets as f64);
    /// Their bytes, framing not included.
    DeliveredBytes: "delivered_bytes", Bytes, OfDirection(|d| d.counters.delivered_bytes as f64);
    /// Longest queue, in bytes.
    QueueBytesMax: "queue_bytes_max", Bytes, OfDirection(|d| d.counters.queue_bytes_max as f64);
    /// Bits sent ÷ the bits that the direction's highest rate, on all its channels, carries in the case's time.
    Utilization: "utilization", Share, OfDirection(utilization);
    /// Acknowledgements without data that a host sent.
    PureAcks: "pure_acks", Number, OfHost(|flow| flow.pure_acks);
    /// Segments with data that a host sent.
    DataSegments: "data_segments", Segments, OfHost(|flow| flow.data_segments);
    /// Data bytes that a host sent, repeated ones included.
    DataBytes: "data_bytes", Bytes, OfHost(|flow| flow.data_bytes);
    /// Data bytes that a host sent more than once.
    RepeatedBytes: "repeated_bytes", Bytes, OfHost(|flow| flow.repeated_bytes);
}

/// The counters of one direction or host in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CounterLine {
    /// The case.
    pub case: String,
    /// A direction of a link, or a host.
    #[serde(flatten)]
    pub subject: Subject<String>,
    /// Values in the counters' base units; no value where it was no finite number.
    pub values: Vec<(Counter, Option<f64>)>,
}

/// The function that computes a counter.
enum Value {
    OfDirection(fn(&Direction<'_>) -> f64),
    /// The sum over a host's flows.
    OfHost(OfFlow),
}

type OfFlow = fn(&FlowRecord) -> u64;

/// One direction in one case.
struct Direction<'a> {
    counters: &'a Counters,
    config: &'a DirectionConfig,
    /// The case's time.
    seconds: f64,
}

impl Counter {
    /// Reads `dropped_packets`.
    fn parse(text: &str) -> Result<Counter, SweepError> {
        let ids = || Counter::ALL.iter().map(|counter| counter.id());
        Counter::ALL.iter().find(|counter| counter.id() == text).copied().ok_or_else(|| {
            let meant = did_you_mean(text, ids());
            let all = ids().collect::<Vec<_>>().join(", ");
            SweepError::Request(format!("--measure {text:?}: no link and no host counts that{meant}; allowed: {all}"))
        })
    }
}

/// Reads the counters of `--measure`; none may be there twice.
pub fn parse_all(texts: &[String]) -> Result<Vec<Counter>, SweepError> {
    let mut counters = Vec::with_capacity(texts.len());
    for text in texts {
        let counter = Counter::parse(text.trim())?;
        if counters.contains(&counter) {
            let what = format!("--measure {}: is there twice; allowed: each counter once", counter.id());
            return Err(SweepError::Request(what));
        }
        counters.push(counter);
    }
    Ok(counters)
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
    let line = |subject: Subject<String>, values: Vec<(Counter, Option<f64>)>| {
        (!values.is_empty()).then(|| CounterLine { case: case.name.clone(), subject, values })
    };
    let finite = |value: f64| value.is_finite().then_some(value);
    let mut lines = Vec::new();
    // A record has the scenario's links in their order.
    for (link, used) in case.links.iter().zip(links) {
        for (number, direction) in link.directions.iter().enumerate() {
            let config = if number == 0 { &used.config.forward } else { &used.config.back };
            let of = Direction { counters: &direction.counters, config, seconds: case.seconds };
            let values = wanted.iter().filter_map(|counter| match counter.value() {
                Value::OfDirection(value) => Some((*counter, finite(value(&of)))),
                Value::OfHost(_) => None,
            });
            let subject = Subject::Direction { link: link.name.clone(), from: direction.from.clone() };
            lines.extend(line(subject, values.collect()));
        }
    }
    let of_hosts: Vec<(Counter, OfFlow)> = wanted
        .iter()
        .filter_map(|counter| match counter.value() {
            Value::OfHost(value) => Some((*counter, value)),
            Value::OfDirection(_) => None,
        })
        .collect();
    let mut hosts: IndexMap<&str, Vec<u64>> = IndexMap::new();
    for flow in &case.flows {
        let sums = hosts.entry(&flow.host).or_insert_with(|| vec![0; of_hosts.len()]);
        for (sum, (_, value)) in sums.iter_mut().zip(&of_hosts) {
            *sum += value(flow);
        }
    }
    for (host, sums) in hosts {
        let values = of_hosts.iter().zip(sums).map(|((counter, _), sum)| (*counter, Some(sum as f64)));
        lines.extend(line(Subject::Host { host: host.to_owned() }, values.collect()));
    }
    lines
}
