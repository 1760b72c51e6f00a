//! TCP: connections on the wire, settings as configured and as observed, the state of hosts' stacks over time.

use crate::record::{Flow, FlowRecord, Observed, Series, Setting, TcpFlowSamples, Unit};
use bentpipe_net::flow::FlowFacts;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::time::Instant;
use std::net::SocketAddr;

/// One connection as one of its hosts showed it.
#[derive(Clone, Copy, Debug)]
pub struct ObservedFlow<'a> {
    /// The host.
    pub host: &'a str,
    /// Its own end.
    pub own: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Its traits on the wire.
    pub facts: &'a FlowFacts,
}

/// One setting of a host as configured.
#[derive(Clone, Debug)]
pub struct ConfiguredSetting {
    /// The key under `[hosts.X.tcp]`.
    pub key: &'static str,
    /// Its value.
    pub configured: String,
    /// The value that the kernel reports.
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
pub fn flows<'a>(seen: impl Iterator<Item = ObservedFlow<'a>>) -> Vec<FlowRecord> {
    let mut flows: Vec<FlowRecord> = seen
        .map(|ObservedFlow { host, own, peer, facts: c }| FlowRecord {
            host: host.to_owned(),
            flow: Flow::new(own, peer),
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

/// A host's settings, with what its connections showed of them.
pub fn settings<'a>(
    host: &'a str,
    config: &'a TcpConfig,
    settings: &'a [ConfiguredSetting],
    connections: &'a [&FlowFacts],
) -> impl Iterator<Item = Setting> + 'a {
    settings.iter().map(move |setting| {
        let evidence = evidence(setting.key, config, connections);
        Setting {
            host: host.to_owned(),
            name: setting.key.to_owned(),
            configured: setting.configured.clone(),
            kernel: setting.kernel.clone(),
            observed: evidence.map(|(observed, _)| observed),
            broken: evidence.is_some_and(|(_, broken)| broken),
        }
    })
}

/// The wire's evidence of one setting; `true`: it contradicts the configured value.
fn evidence(key: &str, config: &TcpConfig, connections: &[&FlowFacts]) -> Option<(Observed, bool)> {
    let most = |value: fn(&FlowFacts) -> u64| connections.iter().map(|c| value(c)).max().filter(|n| *n > 0);
    let above = |n: u64, limit: Option<u64>| limit.is_some_and(|limit| n > limit);
    match key {
        "receive_window" => {
            let bytes = most(|c| c.window_max)?;
            Some((Observed::Window { bytes }, above(bytes, config.receive_window.map(|size| size.bytes))))
        }
        "send_buffer" => {
            let bytes = most(|c| c.in_flight_max)?;
            Some((Observed::InFlight { bytes }, above(bytes, config.send_buffer.map(|size| size.bytes))))
        }
        "initial_window" => {
            let segments = most(|c| c.initial_burst)?;
            // Fewer is no contradiction: there may have been no more to send.
            Some((Observed::InitialBurst { segments }, above(segments, config.initial_window.map(u64::from))))
        }
        "sack" => option(config.sack, connections, |c| c.sack),
        "timestamps" => option(config.timestamps, connections, |c| c.timestamps),
        "window_scaling" => option(config.window_scaling, connections, |c| c.window_scale.is_some()),
        "mtu" => {
            let bytes = most(|c| c.mss.map_or(0, |mss| u64::from(mss) + 40))?;
            Some((Observed::PacketSize { bytes }, above(bytes, config.mtu.map(|size| size.bytes))))
        }
        "ack_every" => {
            let segments: u64 = connections.iter().map(|c| c.segments_received).sum();
            let acks: u64 = connections.iter().map(|c| c.pure_acks).sum();
            if segments < 20 || acks == 0 {
                return None;
            }
            let ratio = segments as f64 / acks as f64;
            let segments = (ratio * 100.0).round_ties_even() / 100.0;
            let broken = match config.ack_every {
                None => false,
                Some(1) => ratio > 1.2,
                Some(every) => acknowledges_too_often(u64::from(every), connections),
            };
            Some((Observed::SegmentsPerAck { segments }, broken))
        }
        _ => None,
    }
}

/// True if many more acknowledgements than one for `every` segments were sent. Those that a delay or a hole asked for do not
/// count (RFC 5681 §4.2), nor does half as many again, nor the start of a connection, which Linux acknowledges at once.
fn acknowledges_too_often(every: u64, connections: &[&FlowFacts]) -> bool {
    let sum = |value: fn(&FlowFacts) -> u64| connections.iter().map(|c| value(c)).sum::<u64>();
    let due = sum(|c| c.prompt_segments) / every;
    sum(|c| c.prompt_acks) > due + due / 2 + QUICK_ACKS_MAX * connections.len() as u64
}

/// Acknowledgements at the start of a connection that break no setting: Linux's 16, more after pauses, and those that
/// come with each growth of a small window.
const QUICK_ACKS_MAX: u64 = 64;

/// An option of the SYN. A host that answers offers only what its peer offered, so it contradicts only "off".
fn option(
    configured: Option<bool>,
    connections: &[&FlowFacts],
    offered: fn(&FlowFacts) -> bool,
) -> Option<(Observed, bool)> {
    let with_syn: Vec<&&FlowFacts> = connections.iter().filter(|c| c.mss.is_some()).collect();
    if with_syn.is_empty() {
        return None;
    }
    let by = with_syn.iter().filter(|c| offered(c)).count() as u64;
    let on = configured == Some(true);
    let broken = with_syn.iter().any(|c| if on { c.active && !offered(c) } else { offered(c) });
    Some((Observed::Offered { by, syns: with_syn.len() as u64 }, broken))
}

/// The state of one end of a connection over time.
pub fn tcp_flow(
    host: &str,
    ends: (SocketAddr, SocketAddr),
    congestion_control: &str,
    points: &[TcpPoint],
) -> TcpFlowSamples {
    let series = |quantity: &str, unit: Unit, value: &dyn Fn(&TcpPoint) -> Option<f64>| {
        let points = points.iter().filter_map(|s| Some((s.at.as_secs_f64(), value(s)?)));
        Series::new(quantity, unit, points.collect())
    };
    TcpFlowSamples {
        host: host.to_owned(),
        flow: Flow::new(ends.0, ends.1),
        congestion_control: congestion_control.to_owned(),
        series: vec![
            series("cwnd", Unit::Segments, &|s| Some(f64::from(s.cwnd))),
            series("ssthresh", Unit::Segments, &|s| s.ssthresh.map(f64::from)),
            series("srtt", Unit::Seconds, &|s| (s.srtt_s > 0.0).then_some(s.srtt_s)),
            series("rto", Unit::Seconds, &|s| Some(s.rto_s)),
            series("retransmissions", Unit::Number, &|s| Some(s.retransmissions as f64)),
            series("unacked", Unit::Segments, &|s| Some(f64::from(s.unacked))),
            series("delivery_rate", Unit::BitsPerSecond, &|s| Some(s.delivery_rate_bps as f64)),
        ],
    }
}
