//! From what a live case left to its record.

use crate::collect::bills::bill_record;
use crate::collect::gateways::{self, GatewayResult};
use crate::collect::links::link_record;
use crate::collect::tcp::{self, ConfiguredSetting, ObservedFlow, TcpPoint};
use crate::record::{CaseRecord, Lateness, LinkRecord, Setting, TcpFlowSamples, Validity, WorkloadRecord};
use crate::scenario::Case;
use bentpipe_host::emulation::EmulationOutcome;
use bentpipe_host::lateness::LatenessRecorder;
use bentpipe_host::pump::LinkOutcome;
use bentpipe_host::tcp_samples::{SampledConnection, TcpSample};
use bentpipe_host::tcp_stack::EffectiveSetting;
use bentpipe_net::flow::FlowFacts;
use bentpipe_net::topology::Plan;

/// Everything a case left.
pub struct Collected<'a> {
    pub case: &'a Case,
    pub plan: Plan,
    /// TCP settings of each site as its kernel took them.
    pub effective: Vec<Vec<EffectiveSetting>>,
    /// The kernel's TCP state, by site.
    pub samples: Vec<(String, Vec<SampledConnection>)>,
    pub outcome: EmulationOutcome,
    pub workloads: Vec<WorkloadRecord>,
    /// The results of each pair's gateways.
    pub left: Vec<[GatewayResult; 2]>,
    pub notes: Vec<String>,
}

/// The record of a case.
pub fn case_record(collected: Collected<'_>) -> CaseRecord {
    let Collected { case, plan, effective, samples, outcome, workloads, left, mut notes } = collected;
    let end = outcome.pump.end;
    let gateways = gateways::gateway_records(case, &left);
    notes.extend(gateways::early_workloads(case, &left, &workloads));
    let lateness = lateness(case, &outcome);
    let validity = validity(&lateness, outcome.pump.send_failures);
    let flows = tcp::flows(observed_flows(&plan, &outcome.pump.links));
    // What the file asked of its sites; gateways have no settings of their own.
    let configured = plan.sites.iter().zip(effective).filter(|(site, _)| case.tcp.contains_key(&site.name));
    let settings = configured.flat_map(|(site, effective)| settings(case, &plan, &site.name, effective, &outcome));
    let settings = settings.collect();
    let links = case.links.iter().zip(&outcome.pump.links).enumerate();
    let links = links.map(|(number, (used, left))| {
        let bill = left.link.bill(end).map(|bill| bill_record(case, &plan, number, &bill, &flows));
        LinkRecord { bill, ..link_record(used, &left.link, &left.samples, end) }
    });
    let links = links.collect();
    for (used, link) in case.links.iter().zip(&outcome.pump.links) {
        if link.filtered_frames > 0 {
            let n = link.filtered_frames;
            notes.push(format!("link {}: {n} frames that are not IP were left out (it carries IP)", used.name));
        }
        if link.super_packets > 0 {
            let n = link.super_packets;
            notes.push(format!("link {}: {n} super-packets of an offload were split packet by packet", used.name));
        }
    }
    if outcome.pump.host_down_packets > 0 {
        let n = outcome.pump.host_down_packets;
        notes.push(format!("{n} packets came for a host whose interface was down"));
    }
    if outcome.pump.lost_ports > 0 {
        notes.push(format!("a program removed {} network device(s) of its site", outcome.pump.lost_ports));
    }
    match outcome.capture {
        Some(Ok(0)) | None => {}
        Some(Ok(lost)) => notes.push(format!("the capture lacks {lost} packets: the disk was too slow")),
        Some(Err(error)) => notes.push(format!("the capture is broken: {error}")),
    }
    CaseRecord {
        name: case.name.clone(),
        seconds: end.as_secs_f64(),
        validity,
        settings,
        workloads,
        links,
        lateness: Some(lateness),
        tcp_samples: samples
            .into_iter()
            .flat_map(|(host, flows)| flows.into_iter().map(move |flow| tcp_flow(&host, &flow)))
            .collect(),
        flows,
        compared: gateways::compared(case),
        gateways,
        notes,
    }
}

fn lateness(case: &Case, outcome: &EmulationOutcome) -> Lateness {
    let recorder: &LatenessRecorder = &outcome.pump.lateness;
    let worst = recorder.worst();
    Lateness {
        packets: recorder.packets(),
        p50: recorder.quantile(0.5).as_secs_f64(),
        p99: recorder.quantile(0.99).as_secs_f64(),
        p999: recorder.quantile(0.999).as_secs_f64(),
        worst: worst.first().map_or(0.0, |(late, _)| late.as_secs_f64()),
        limit_p99: case.lateness.p99.as_secs_f64(),
        limit_worst: case.lateness.worst.as_secs_f64(),
        missed_packets: outcome.pump.links.iter().map(|link| link.missed_frames).sum(),
        histogram: recorder.histogram().into_iter().map(|(edge, n)| (edge.as_secs_f64(), n)).collect(),
        worst_hundred: worst.iter().map(|(late, at)| (at.as_secs_f64(), late.as_secs_f64())).collect(),
    }
}

fn validity(lateness: &Lateness, send_failures: u64) -> Validity {
    let mut reasons = Vec::new();
    let ms = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
    if lateness.p99 > lateness.limit_p99 {
        let (found, limit) = (ms(lateness.p99), ms(lateness.limit_p99));
        reasons.push(format!("1 % of the packets left more than {found} late; the limit is {limit}"));
    }
    if lateness.worst > lateness.limit_worst {
        let (found, limit) = (ms(lateness.worst), ms(lateness.limit_worst));
        reasons.push(format!("a packet left {found} late; the limit is {limit}"));
    }
    if lateness.missed_packets > 0 {
        reasons.push(format!("{} packets were lost between a host and the emulator", lateness.missed_packets));
    }
    if send_failures > 0 {
        reasons.push(format!("{send_failures} packets could not be handed to a host"));
    }
    Validity { valid: reasons.is_empty(), reasons }
}

/// The connections that the taps of all ports followed.
fn observed_flows<'a>(plan: &'a Plan, links: &'a [LinkOutcome]) -> impl Iterator<Item = ObservedFlow<'a>> + 'a {
    let taps = plan.links.iter().zip(links).flat_map(|(planned, link)| planned.ports.iter().zip(&link.taps));
    taps.flat_map(|((site, _), tap)| {
        let host = plan.sites[*site].name.as_str();
        tap.connections().map(move |((own, peer), connection)| ObservedFlow {
            host,
            own: *own,
            peer: *peer,
            facts: &connection.facts,
        })
    })
}

fn settings(
    case: &Case,
    plan: &Plan,
    host: &str,
    effective: Vec<EffectiveSetting>,
    outcome: &EmulationOutcome,
) -> Vec<Setting> {
    let Some(config) = case.tcp.get(host) else { return Vec::new() };
    let configured = effective.into_iter().map(|EffectiveSetting { key, configured, kernel }| ConfiguredSetting {
        key,
        configured,
        kernel,
    });
    let seen = observed_flows(plan, &outcome.pump.links).filter(|flow| flow.host == host);
    let connections: Vec<&FlowFacts> = seen.map(|flow| flow.facts).collect();
    tcp::settings(host, config, &configured.collect::<Vec<_>>(), &connections).collect()
}

fn tcp_flow(host: &str, flow: &SampledConnection) -> TcpFlowSamples {
    let point = |s: &TcpSample| TcpPoint {
        at: s.at,
        cwnd: s.cwnd_segments,
        ssthresh: s.ssthresh_segments,
        srtt_s: s.srtt_s,
        rto_s: s.rto_s,
        retransmissions: u64::from(s.retransmissions),
        unacked: s.unacked_segments,
        delivery_rate_bps: s.delivery_rate_bps,
    };
    let points: Vec<TcpPoint> = flow.samples.iter().map(point).collect();
    tcp::tcp_flow(host, (flow.local, flow.remote), &flow.congestion_control, &points)
}
