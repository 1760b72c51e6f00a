//! What TCP did: connections on the wire, settings asked and seen, the state of hosts' stacks over time.

use crate::record::{FlowRecord, Series, Setting, TcpFlowSamples};
use bentpipe_net::flow::FlowFacts;
use bentpipe_net::time::Instant;
use std::net::SocketAddr;

/// One connection as one of its hosts showed it.
#[derive(Clone, Copy, Debug)]
pub struct SeenFlow<'a> {
    /// The host.
    pub host: &'a str,
    /// Its own end.
    pub own: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// What it showed.
    pub facts: &'a FlowFacts,
}

/// One setting of a host as asked.
#[derive(Clone, Debug)]
pub struct AskedSetting {
    /// The key under `[hosts.X.tcp]`.
    pub key: &'static str,
    /// As asked.
    pub asked: String,
    /// What the kernel says it set.
    pub kernel: Option<String>,
}

/// The state of one end of a connection at one time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TcpPoint {
    /// When.
    pub at: Instant,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow-start threshold, in segments; `None` while infinite.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time, in seconds; 0 before the first measurement.
    pub srtt_s: f64,
    /// Retransmission time-out, in seconds.
    pub rto_s: f64,
    /// Segments sent again so far.
    pub retransmissions: u64,
    /// Segments sent and not yet acknowledged.
    pub unacked: u32,
    /// Bits per second delivered, as last estimated; 0 before that.
    pub delivery_rate_bps: u64,
}

/// The records of the connections seen, in the order of their first packets.
pub fn flows<'a>(seen: impl Iterator<Item = SeenFlow<'a>>) -> Vec<FlowRecord> {
    let mut flows: Vec<FlowRecord> = seen
        .map(|SeenFlow { host, own, peer, facts: c }| FlowRecord {
            host: host.to_owned(),
            flow: format!("{own} → {peer}"),
            start: c.start.as_secs_f64(),
            end: c.end.as_secs_f64(),
            mss: c.mss,
            window_scale: c.window_scale,
            sack: c.sack,
            timestamps: c.timestamps,
            window_max: c.window_max,
            data_segments: c.data_segments,
            data_bytes: c.data_bytes,
            repeated_bytes: c.repeated_bytes,
            initial_burst: c.initial_burst,
            pure_acks: c.pure_acks,
        })
        .collect();
    flows.sort_by(|a, b| a.start.total_cmp(&b.start));
    flows
}

/// What was asked of a host, what its kernel says, and what its connections showed.
pub fn settings<'a>(
    host: &'a str,
    asked: &'a [AskedSetting],
    connections: &'a [&FlowFacts],
) -> impl Iterator<Item = Setting> + 'a {
    asked.iter().map(move |setting| {
        let (seen, broken) = seen(setting, connections);
        Setting {
            host: host.to_owned(),
            name: setting.key.to_owned(),
            asked: setting.asked.clone(),
            kernel: setting.kernel.clone(),
            seen,
            broken,
        }
    })
}

/// What the wire showed of one setting, and whether it contradicts what was asked.
fn seen(setting: &AskedSetting, connections: &[&FlowFacts]) -> (Option<String>, bool) {
    let most = |value: fn(&FlowFacts) -> u64| connections.iter().map(|c| value(c)).max().filter(|n| *n > 0);
    let asked_bytes = || setting.asked.parse().map_or(u64::MAX, |size: bentpipe_net::units::DataSize| size.bytes);
    let asked_number = || setting.asked.parse().unwrap_or(u64::MAX);
    match setting.key {
        "receive_window" => {
            let seen = most(|c| c.window_max);
            (seen.map(|n| format!("at most {n} B advertised")), seen.is_some_and(|n| n > asked_bytes()))
        }
        "send_buffer" => {
            let seen = most(|c| c.in_flight_max);
            (seen.map(|n| format!("at most {n} B in flight")), seen.is_some_and(|n| n > asked_bytes()))
        }
        "initial_window" => {
            let seen = most(|c| c.initial_burst);
            // Fewer is no contradiction: there may have been no more to send.
            (seen.map(|n| format!("at most {n} segments at first")), seen.is_some_and(|n| n > asked_number()))
        }
        "sack" => switch(setting, connections, |c| c.sack),
        "timestamps" => switch(setting, connections, |c| c.timestamps),
        "window_scaling" => switch(setting, connections, |c| c.window_scale.is_some()),
        "mtu" => {
            let seen = most(|c| c.mss.map_or(0, |mss| u64::from(mss) + 40));
            (seen.map(|n| format!("MSS for packets of {n} B")), seen.is_some_and(|n| n > asked_bytes()))
        }
        "ack_every" => {
            let segments: u64 = connections.iter().map(|c| c.segments_received).sum();
            let acks: u64 = connections.iter().map(|c| c.pure_acks).sum();
            if segments < 20 || acks == 0 {
                return (None, false);
            }
            let ratio = segments as f64 / acks as f64;
            (Some(format!("an acknowledgement for {ratio:.2} segments")), asked_number() == 1 && ratio > 1.2)
        }
        _ => (None, false),
    }
}

/// An option of the SYN. A host that answers offers only what it was asked, so it contradicts only a "false".
fn switch(
    setting: &AskedSetting,
    connections: &[&FlowFacts],
    offered: fn(&FlowFacts) -> bool,
) -> (Option<String>, bool) {
    let with_syn: Vec<&&FlowFacts> = connections.iter().filter(|c| c.mss.is_some()).collect();
    if with_syn.is_empty() {
        return (None, false);
    }
    let count = with_syn.iter().filter(|c| offered(c)).count();
    let asked = setting.asked == "true";
    let broken = with_syn.iter().any(|c| if asked { c.active && !offered(c) } else { offered(c) });
    (Some(format!("offered by {count} of {} SYNs", with_syn.len())), broken)
}

/// The state of one end of a connection over time.
pub fn tcp_flow(
    host: &str,
    ends: (SocketAddr, SocketAddr),
    congestion_control: &str,
    points: &[TcpPoint],
) -> TcpFlowSamples {
    let series = |name: &str, unit: &str, value: &dyn Fn(&TcpPoint) -> Option<f64>| Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        points: points.iter().filter_map(|s| Some((s.at.as_secs_f64(), value(s)?))).collect(),
    };
    TcpFlowSamples {
        host: host.to_owned(),
        flow: format!("{} → {}", ends.0, ends.1),
        congestion_control: congestion_control.to_owned(),
        series: vec![
            series("cwnd", "segments", &|s| Some(f64::from(s.cwnd))),
            series("ssthresh", "segments", &|s| s.ssthresh.map(f64::from)),
            series("srtt", "s", &|s| (s.srtt_s > 0.0).then_some(s.srtt_s)),
            series("rto", "s", &|s| Some(s.rto_s)),
            series("retransmissions", "1", &|s| Some(s.retransmissions as f64)),
            series("unacked", "segments", &|s| Some(f64::from(s.unacked))),
            series("delivery_rate", "bit/s", &|s| Some(s.delivery_rate_bps as f64)),
        ],
    }
}
