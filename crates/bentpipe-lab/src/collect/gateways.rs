//! Gateway pairs: totals and events.

use crate::record::{
    Better, Compared, GatewayEvent, GatewayRecord, GatewaySetting, GatewaySideRecord, Measurement, PairLoss,
    RefusedBecause, TimedEvent, Unit, WorkloadRecord,
};
use crate::scenario::Case;
use crate::scenario::gateway::Pair;
use bentpipe_gateway::log_event::{Outcome, Server};
use bentpipe_gateway::satellite::Loss;
use bentpipe_gateway::{LogEvent, Metrics};
use bentpipe_net::line::Unwanted;
use bentpipe_net::time::Instant;
use indexmap::IndexMap;

/// Log events kept of one gateway; further ones are counted.
const LOG_EVENTS_MAX: usize = 200;

/// The state of one gateway at the end.
#[derive(Clone, Debug, Default)]
pub struct GatewayResult {
    /// Its totals.
    pub metrics: Metrics,
    /// Its log.
    pub log: EventLog,
}

/// The log of a gateway, in order of time.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    said: Vec<(Instant, LogEvent)>,
    left_out: u64,
}

impl EventLog {
    /// Adds what it says now.
    pub fn extend(&mut self, now: Instant, log: impl IntoIterator<Item = LogEvent>) {
        for log_event in log {
            if self.said.len() < LOG_EVENTS_MAX {
                self.said.push((now, log_event));
            } else {
                self.left_out += 1;
            }
        }
    }

    /// When the pair was first connected.
    pub fn connected_at(&self) -> Option<Instant> {
        self.said.iter().find(|(_, log_event)| *log_event == LogEvent::Connected).map(|(at, _)| *at)
    }

    /// Those after the first `count`, as the record keeps them.
    pub fn after(&self, count: usize) -> Vec<TimedEvent> {
        let kept = self.said.get(count..).unwrap_or_default();
        kept.iter().map(|(at, log_event)| TimedEvent { at: at.as_secs_f64(), event: event(log_event) }).collect()
    }

    fn events(&self) -> Vec<TimedEvent> {
        let mut events = self.after(0);
        if let (Some(last), true) = (events.last(), self.left_out > 0) {
            let not_kept = TimedEvent { at: last.at, event: GatewayEvent::NotKept { count: self.left_out } };
            events.push(not_kept);
        }
        events
    }
}

/// As the record keeps it.
fn event(log_event: &LogEvent) -> GatewayEvent {
    match log_event {
        LogEvent::Connected => GatewayEvent::Connected,
        LogEvent::Silent => GatewayEvent::Silent,
        LogEvent::Heard => GatewayEvent::Heard,
        LogEvent::Lost { why, connections } => {
            let why = match why {
                Loss::Silence => PairLoss::Silence,
                Loss::Restarted => PairLoss::Restarted,
                Loss::Closed => PairLoss::Closed,
                Loss::Unauthenticated => PairLoss::Unauthenticated,
                // Both gateways of a run are of one version.
                Loss::Version | Loss::Protocol => PairLoss::Protocol,
            };
            GatewayEvent::Lost { why, connections: *connections as u64 }
        }
        LogEvent::Unauthenticated { count, .. } => GatewayEvent::UnauthenticatedPeer { count: *count },
        LogEvent::OtherVersion(_)
        | LogEvent::Unanswered { .. }
        | LogEvent::SharedKey(_)
        | LogEvent::RatesDiffer { .. }
        | LogEvent::Line(_) => GatewayEvent::Other { text: log_event.to_string() },
        LogEvent::UnauthenticatedPackets(count) => GatewayEvent::UnauthenticatedPackets { count: *count },
        LogEvent::Throttled { declared, now } => GatewayEvent::Throttled { declared: declared.bps, now: now.bps },
        LogEvent::Released => GatewayEvent::Released,
        LogEvent::NotOpened { client, server, outcome } => {
            let why = match outcome {
                Outcome::Refused => RefusedBecause::Refused,
                Outcome::Unreachable => RefusedBecause::Unreachable,
                Outcome::TimedOut => RefusedBecause::TimedOut,
                Outcome::Denied => RefusedBecause::Denied,
                Outcome::Busy => RefusedBecause::Busy,
                Outcome::Open => return GatewayEvent::Other { text: log_event.to_string() },
            };
            let host = match server {
                Server::Address(address) => address.ip().to_string(),
                Server::Name(name, _) => name.clone(),
            };
            GatewayEvent::NotOpened { client: client.map(Into::into), host, port: server.port(), why }
        }
        LogEvent::Failing { bypass } => GatewayEvent::Failing { bypass: *bypass },
        LogEvent::Relaying => GatewayEvent::Relaying,
        LogEvent::LimitReached(limit) => GatewayEvent::LimitReached { limit: (*limit).to_owned() },
        LogEvent::Malformed { what } => GatewayEvent::Malformed { what: (*what).to_owned() },
        LogEvent::AddressesHidden => GatewayEvent::AddressesHidden,
        LogEvent::NoSocket { what, port, why } => {
            GatewayEvent::NoSocket { socket: (*what).to_owned(), port: *port, why: why.to_string() }
        }
        LogEvent::Dropped(count) => GatewayEvent::Dropped { count: *count },
    }
}

/// Which half of a comparison a case is.
pub fn compared(case: &Case) -> Option<Compared> {
    let of = |name: &String| Compared { case: name.clone(), gateways: !case.pairs.is_empty() };
    case.compared.as_ref().map(of)
}

/// The records of a case's pairs; `left`: of each, the hub's side, then the terminal's.
pub fn gateway_records(case: &Case, left: &[[GatewayResult; 2]]) -> Vec<GatewayRecord> {
    case.pairs.iter().zip(left).map(|(pair, left)| gateway_record(case, pair, left)).collect()
}

fn gateway_record(case: &Case, pair: &Pair, left: &[GatewayResult; 2]) -> GatewayRecord {
    let link = &case.links[pair.link];
    let side = |side: usize| GatewaySideRecord {
        site: pair.sites[side].clone(),
        before: link.sites[side].clone(),
        measurements: measurements(&left[side], &left[1 - side].metrics),
        events: left[side].log.events(),
    };
    let settings =
        pair.settings.listed().into_iter().map(|(name, value)| GatewaySetting { name: name.to_owned(), value });
    GatewayRecord { link: link.name.clone(), settings: settings.collect(), sides: vec![side(0), side(1)] }
}

/// `other`: what the other side did; only it knows what has arrived there.
fn measurements(left: &GatewayResult, other: &Metrics) -> Vec<Measurement> {
    let GatewayResult { metrics, log } = left;
    let satellite = &metrics.satellite;
    let count = |name, value: u64| (name, Unit::Number, value as f64);
    let bytes = |name, value: u64| (name, Unit::Bytes, value as f64);
    let mut all = Vec::new();
    all.extend(log.connected_at().map(|at| ("connected_after", Unit::Seconds, at.as_secs_f64())));
    all.extend([
        count("relayed", metrics.relayed),
        count("refused", metrics.refused + metrics.unreachable + metrics.timed_out),
        count("turned_away", metrics.turned_away + metrics.denied + metrics.over_limit),
        count("bypassed", metrics.bypassed),
        count("ended", metrics.ended),
        count("reset", metrics.reset),
        count("lost_connections", metrics.lost),
        bytes("bytes_taken", metrics.bytes_taken),
        bytes("bytes_given", metrics.bytes_given),
        bytes("stream_bytes", metrics.bytes_sent),
        ("compression_factor", Unit::Number, metrics.compression_ratio()),
        bytes("link_bytes", satellite.link_bytes_sent),
        bytes("delivered_bytes", other.bytes_received),
        count("packets_sent", satellite.packets_sent),
        count("packets_sent_again", satellite.packets_lost),
        count("packets_received", satellite.packets_received),
        ("rate", Unit::BitsPerSecond, satellite.rate_bps as f64),
        ("declared_rate", Unit::BitsPerSecond, satellite.declared_bps as f64),
        ("throttled", Unit::Number, f64::from(satellite.throttled)),
        ("round_trip", Unit::Seconds, satellite.round_trip.as_secs_f64()),
        count("pair_connections", satellite.connections),
        count("bypass_packets", metrics.bypass_packets),
        bytes("bypass_bytes", metrics.bypass_bytes),
    ]);
    let line = &metrics.line;
    if line.dials {
        all.extend([
            count("calls", line.dialled),
            count("calls_failed", line.failed),
            ("airtime", Unit::Seconds, line.airtime.as_secs_f64()),
            ("cost", Unit::Number, line.cost.as_f64()),
            count("calls_refused_by_count", line.refused_calls),
            count("calls_refused_by_cap", line.refused_cap),
        ]);
    }
    let neither = |name: &str, unit, value| Measurement::new(name, unit, Better::Neither, value);
    let mut all: Vec<_> = all.into_iter().map(|(name, unit, value)| neither(name, unit, value)).collect();
    // Where nothing is named, nothing was dropped.
    for (what, packets) in Unwanted::ALL.into_iter().zip(line.unwanted).filter(|(_, packets)| *packets > 0) {
        all.push(neither(&format!("dropped_{what}"), Unit::Number, packets as f64));
    }
    all
}

/// Notes on workloads that began before a pair was connected, and thus waited for it.
pub fn early_workloads(case: &Case, left: &[[GatewayResult; 2]], workloads: &[WorkloadRecord]) -> Vec<String> {
    let mut notes = Vec::new();
    for (pair, [_, terminal]) in case.pairs.iter().zip(left) {
        let link = &case.links[pair.link].name;
        let Some(connected) = terminal.log.connected_at().map(Instant::as_secs_f64) else {
            notes.push(format!("the gateway pair on {link} was never connected"));
            continue;
        };
        let mut early: IndexMap<&str, Vec<&WorkloadRecord>> = IndexMap::new();
        for workload in workloads.iter().filter(|w| w.repeat <= 1 && w.start < connected) {
            early.entry(&workload.name).or_default().push(workload);
        }
        for copies in early.into_values() {
            let name = copies[0].label();
            let others = match copies.len() - 1 {
                0 => String::new(),
                others => format!(", and so did {others} other copies"),
            };
            notes.push(format!(
                "{name:?} began {:.2} s before the gateway pair on {link} was connected{others}: a pair that has run \
                 for a while has no such wait",
                connected - copies[0].start
            ));
        }
    }
    notes
}
