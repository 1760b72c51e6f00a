//! What gateway pairs did.

use crate::record::{GatewayRecord, GatewaySideRecord, Measurement};
use crate::scenario::Case;
use crate::scenario::gateway::Pair;
use bentpipe_gateway::{Figures, Notice};
use bentpipe_net::time::Instant;

/// Notices kept of one gateway; further ones are counted.
const NOTICES_MAX: usize = 200;

/// What one gateway left.
#[derive(Clone, Debug, Default)]
pub struct LeftGateway {
    /// What it did.
    pub figures: Figures,
    /// What it said, and when.
    pub notices: NoticeLog,
}

/// What a gateway said, in order.
#[derive(Clone, Debug, Default)]
pub struct NoticeLog {
    said: Vec<(Instant, Notice)>,
    left_out: u64,
}

impl NoticeLog {
    /// Adds what it says now.
    pub fn extend(&mut self, now: Instant, notices: impl IntoIterator<Item = Notice>) {
        for notice in notices {
            if self.said.len() < NOTICES_MAX {
                self.said.push((now, notice));
            } else {
                self.left_out += 1;
            }
        }
    }

    /// When the pair was first connected.
    pub fn connected_at(&self) -> Option<Instant> {
        self.said.iter().find(|(_, notice)| *notice == Notice::Connected).map(|(at, _)| *at)
    }

    fn lines(&self) -> Vec<(f64, String)> {
        let mut lines: Vec<(f64, String)> =
            self.said.iter().map(|(at, notice)| (at.as_secs_f64(), notice.to_string())).collect();
        if let (Some((last, _)), true) = (lines.last(), self.left_out > 0) {
            lines.push((*last, format!("{} more notices are not kept", self.left_out)));
        }
        lines
    }
}

/// The records of a case's pairs; `left`: of each, the hub's side, then the terminal's.
pub fn gateway_records(case: &Case, left: &[[LeftGateway; 2]]) -> Vec<GatewayRecord> {
    case.pairs.iter().zip(left).map(|(pair, left)| gateway_record(case, pair, left)).collect()
}

fn gateway_record(case: &Case, pair: &Pair, left: &[LeftGateway; 2]) -> GatewayRecord {
    let link = &case.links[pair.link];
    let side = |side: usize| GatewaySideRecord {
        site: pair.sites[side].clone(),
        before: link.sites[side].clone(),
        measurements: measurements(&left[side], &left[1 - side].figures),
        notices: left[side].notices.lines(),
    };
    let settings = pair.settings.told().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    GatewayRecord { link: link.name.clone(), settings, sides: vec![side(0), side(1)] }
}

/// `other`: what the other side did; only it knows what has arrived there.
fn measurements(left: &LeftGateway, other: &Figures) -> Vec<Measurement> {
    let LeftGateway { figures, notices } = left;
    let satellite = &figures.satellite;
    let count = |name, value: u64| (name, "1", value as f64);
    let bytes = |name, value: u64| (name, "B", value as f64);
    let mut all = Vec::new();
    all.extend(notices.connected_at().map(|at| ("connected_after", "s", at.as_secs_f64())));
    all.extend([
        count("relayed", figures.relayed),
        count("refused", figures.refused + figures.unreachable + figures.timed_out),
        count("turned_away", figures.turned_away + figures.denied + figures.over_limit),
        count("bypassed", figures.bypassed),
        count("ended", figures.ended),
        count("reset", figures.reset),
        count("lost_connections", figures.lost),
        bytes("bytes_taken", figures.bytes_taken),
        bytes("bytes_given", figures.bytes_given),
        bytes("stream_bytes", figures.bytes_sent),
        ("compression_factor", "1", figures.compression_ratio()),
        bytes("link_bytes", satellite.link_bytes_sent),
        bytes("delivered_bytes", other.bytes_received),
        count("packets_sent", satellite.packets_sent),
        count("packets_sent_again", satellite.packets_lost),
        count("packets_received", satellite.packets_received),
        ("rate", "bit/s", satellite.rate_bps as f64),
        ("declared_rate", "bit/s", satellite.declared_bps as f64),
        ("held_down", "1", f64::from(satellite.held_down)),
        ("round_trip", "s", satellite.round_trip.as_secs_f64()),
        count("pair_connections", satellite.connections),
        count("beside_packets", figures.beside_packets),
        bytes("beside_bytes", figures.beside_bytes),
    ]);
    let measurement = |(name, unit, value): (&str, &str, f64)| {
        let (name, unit) = (name.to_owned(), unit.to_owned());
        Measurement { name, unit, value }
    };
    all.into_iter().map(measurement).collect()
}

/// What a reader must know: workloads that began before a pair was connected, and thus waited for it.
pub fn early_workloads(
    case: &Case,
    left: &[[LeftGateway; 2]],
    workloads: &[crate::record::WorkloadRecord],
) -> Vec<String> {
    let mut notes = Vec::new();
    for (pair, [_, terminal]) in case.pairs.iter().zip(left) {
        let link = &case.links[pair.link].name;
        let Some(connected) = terminal.notices.connected_at().map(Instant::as_secs_f64) else {
            notes.push(format!("the gateway pair on {link} was never connected"));
            continue;
        };
        for workload in workloads.iter().filter(|w| w.repeat <= 1 && w.start < connected) {
            let name = &workload.name;
            notes.push(format!(
                "{name:?} began {:.2} s before the gateway pair on {link} was connected: a pair that has run for a \
                 while has no such wait",
                connected - workload.start
            ));
        }
    }
    notes
}
