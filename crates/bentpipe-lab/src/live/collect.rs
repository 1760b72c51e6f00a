//! From what a live case left to its record.

use super::commands::EndedCommand;
use crate::record::{
    CaseRecord, CircuitRecord, CommandRecord, Counters, DirectionRecord, FlowRecord, Lateness, LinkRecord, Measurement,
    Objective as ObjectiveRecord, Series, Setting, TcpFlowSamples, Validity, WorkloadRecord,
};
use crate::scenario::workload::{Objective, Workload};
use crate::scenario::{Case, LinkUse};
use bentpipe_apps::report::Report;
use bentpipe_host::emulation::EmulationOutcome;
use bentpipe_host::lateness::LatenessRecorder;
use bentpipe_host::pump::LinkOutcome;
use bentpipe_host::tcp_samples::SampledConnection;
use bentpipe_host::tcp_stack::HeldSetting;
use bentpipe_link::direction::Sample;
use bentpipe_link::flow::FlowFacts;
use bentpipe_link::time::Instant;
use bentpipe_link::topology::Plan;

/// Everything a case left.
pub struct Collected<'a> {
    pub case: &'a Case,
    pub plan: Plan,
    /// TCP settings of each site as its kernel took them.
    pub held: Vec<Vec<HeldSetting>>,
    /// The kernel's TCP state, by site.
    pub samples: Vec<(String, Vec<SampledConnection>)>,
    pub outcome: EmulationOutcome,
    pub workloads: Vec<WorkloadRecord>,
    pub notes: Vec<String>,
}

/// An empty record of one run of a workload.
pub fn workload_record(workload: &Workload, repeat: u32, start: Instant) -> WorkloadRecord {
    WorkloadRecord {
        name: workload.name.clone(),
        app: workload.program.name().to_owned(),
        client: workload.client.clone(),
        server: workload.server.clone().unwrap_or_default(),
        direction: workload.direction().to_owned(),
        repeat,
        start: start.as_secs_f64(),
        ..WorkloadRecord::default()
    }
}

/// Puts what a program reported into its record.
pub fn put_report(record: &mut WorkloadRecord, report: &Report) {
    record.end = report.ended.map(Instant::as_secs_f64);
    record.measurements = report
        .measurements
        .iter()
        .filter(|m| !m.name.ends_with("_at"))
        .map(|m| Measurement { name: m.name.to_owned(), unit: m.unit.to_owned(), value: m.value })
        .collect();
    record.series = report
        .series
        .iter()
        .map(|s| Series {
            name: s.name.clone(),
            unit: s.unit.to_owned(),
            points: s.points.iter().map(|(at, value)| (at.as_secs_f64(), *value)).collect(),
        })
        .collect();
}

/// Puts how a command ended into its record; `cut`: the status it gets because it was ended.
pub fn put_command(record: &mut WorkloadRecord, ended: &EndedCommand, seconds: f64, cut: Option<&str>) {
    match (cut, ended.exit) {
        (Some(status), _) => record.status = status.to_owned(),
        (None, 0) => record.status = "done".to_owned(),
        (None, code) => {
            record.status = "failed".to_owned();
            let last = ended.stderr.lines().rev().find(|line| !line.trim().is_empty());
            record.error = Some(match last {
                Some(line) => format!("exit status {code}: {line}"),
                None => format!("exit status {code}"),
            });
        }
    }
    if cut.is_none() {
        record.end = Some(record.start + seconds);
        record.measurements.push(Measurement {
            name: "completion_time".to_owned(),
            unit: "s".to_owned(),
            value: seconds,
        });
    }
    record.command = Some(CommandRecord {
        command: ended.command.clone(),
        exit: ended.ended_by_itself,
        stdout: ended.stdout.clone(),
        stderr: ended.stderr.clone(),
    });
}

/// Holds the record against the workload's objective.
pub fn judge(record: &mut WorkloadRecord, workload: &Workload) {
    let Some(objective) = workload.objective else { return };
    let value = |name: &str| record.measurements.iter().find(|m| m.name == name).map(|m| m.value);
    let met = match record.status.as_str() {
        "failed" => Some(false),
        "done" => Some(match objective {
            Objective::Within(time) => value("completion_time").is_some_and(|s| s <= time.as_secs_f64()),
            Objective::Goodput(rate) => value("goodput").is_some_and(|bps| bps >= rate.bps as f64),
            Objective::Loss(share) => value("loss").is_some_and(|loss| loss <= share.fraction()),
        }),
        // Cut off: missed for certain only if the time was up already, which only the caller's end time could tell.
        _ => None,
    };
    record.objective = Some(ObjectiveRecord { text: objective.text(), met });
}

/// The record of a case.
pub fn case_record(collected: Collected<'_>) -> CaseRecord {
    let Collected { case, plan, held, samples, outcome, workloads, mut notes } = collected;
    let end = outcome.pump.end;
    let lateness = lateness(case, &outcome);
    let validity = validity(&lateness, outcome.pump.send_failures);
    let flows = flows(&plan, &outcome.pump.links);
    let settings = held.iter().enumerate().flat_map(|(site, held)| settings(&plan, site, held, &outcome.pump.links));
    let settings = settings.collect();
    let links = case.links.iter().zip(&outcome.pump.links).map(|(used, link)| link_record(used, link, end)).collect();
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
            .flat_map(|(host, flows)| flows.into_iter().map(move |f| tcp_flow(&host, f)))
            .collect(),
        flows,
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

/// Each tap with its site's number.
fn taps<'a>(
    plan: &'a Plan,
    links: &'a [LinkOutcome],
) -> impl Iterator<Item = (usize, &'a bentpipe_host::tap::Tap)> + 'a {
    plan.links
        .iter()
        .zip(links)
        .flat_map(|(planned, link)| planned.ports.iter().zip(&link.taps).map(|((site, _), tap)| (*site, tap)))
}

fn flows(plan: &Plan, links: &[LinkOutcome]) -> Vec<FlowRecord> {
    let mut flows: Vec<FlowRecord> = taps(plan, links)
        .flat_map(|(site, tap)| tap.connections().map(move |(ends, connection)| (site, ends, &connection.facts)))
        .map(|(site, (own, peer), c)| FlowRecord {
            host: plan.sites[site].name.clone(),
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
fn settings(plan: &Plan, site: usize, held: &[HeldSetting], links: &[LinkOutcome]) -> Vec<Setting> {
    let of_site = taps(plan, links).filter(|(s, _)| *s == site);
    let connections: Vec<&FlowFacts> = of_site.flat_map(|(_, tap)| tap.connections().map(|(_, c)| &c.facts)).collect();
    held.iter()
        .map(|setting| {
            let (seen, broken) = seen(setting, &connections);
            Setting {
                host: plan.sites[site].name.clone(),
                name: setting.key.to_owned(),
                asked: setting.asked.clone(),
                kernel: setting.kernel.clone(),
                seen,
                broken,
            }
        })
        .collect()
}

/// What the wire showed of one setting, and whether it contradicts what was asked.
fn seen(setting: &HeldSetting, connections: &[&FlowFacts]) -> (Option<String>, bool) {
    let most = |value: fn(&FlowFacts) -> u64| connections.iter().map(|c| value(c)).max().filter(|n| *n > 0);
    let asked_bytes = || setting.asked.parse().map_or(u64::MAX, |size: bentpipe_link::units::DataSize| size.bytes);
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
    setting: &HeldSetting,
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

fn tcp_flow(host: &str, flow: SampledConnection) -> TcpFlowSamples {
    let series =
        |name: &str, unit: &str, value: &dyn Fn(&bentpipe_host::tcp_samples::TcpSample) -> Option<f64>| Series {
            name: name.to_owned(),
            unit: unit.to_owned(),
            points: flow.samples.iter().filter_map(|s| Some((s.at.as_secs_f64(), value(s)?))).collect(),
        };
    TcpFlowSamples {
        host: host.to_owned(),
        flow: format!("{} → {}", flow.local, flow.remote),
        congestion_control: flow.congestion_control.clone(),
        series: vec![
            series("cwnd", "segments", &|s| Some(f64::from(s.cwnd_segments))),
            series("ssthresh", "segments", &|s| s.ssthresh_segments.map(f64::from)),
            series("srtt", "s", &|s| (s.srtt_s > 0.0).then_some(s.srtt_s)),
            series("rto", "s", &|s| Some(s.rto_s)),
            series("retransmissions", "1", &|s| Some(f64::from(s.retransmissions))),
            series("unacked", "segments", &|s| Some(f64::from(s.unacked_segments))),
            series("delivery_rate", "bit/s", &|s| Some(s.delivery_rate_bps as f64)),
        ],
    }
}

fn link_record(used: &LinkUse, outcome: &LinkOutcome, end: Instant) -> LinkRecord {
    let terminals = used.sites[1..].join(", ");
    let directions = outcome
        .link
        .directions()
        .iter()
        .zip(&outcome.samples)
        .enumerate()
        .map(|(n, (direction, samples))| {
            let (from, to) = if n == 0 { (&used.sites[0], &terminals) } else { (&used.sites[n], &used.sites[0]) };
            DirectionRecord {
                from: from.clone(),
                to: to.clone(),
                counters: counters(direction),
                series: direction_series(samples),
            }
        })
        .collect();
    let circuit = outcome.link.circuit().map(|circuit| {
        let totals = circuit.counters(end);
        CircuitRecord {
            calls: totals.calls,
            calls_lost: totals.calls_lost,
            setting_up: totals.setting_up.as_secs_f64(),
            on_air: totals.on_air.as_secs_f64(),
            cost: circuit.cost(end),
            currency: circuit.config().currency.clone(),
            changes: circuit.changes().iter().map(|(at, what)| (at.as_secs_f64(), what.clone())).collect(),
        }
    });
    LinkRecord {
        name: used.name.clone(),
        kind: used.kind.clone(),
        summary: used.config.title.clone(),
        directions,
        circuit,
    }
}

fn counters(direction: &bentpipe_link::direction::Direction) -> Counters {
    let sender = direction.sender_counters();
    let mut counters = Counters {
        offered_packets: sender.offered_packets,
        offered_bytes: sender.offered_bytes,
        dropped_packets: sender.dropped_packets,
        sent_packets: sender.sent_packets,
        link_bytes: sender.link_bits.div_ceil(8),
        lost_packets: sender.abandoned_packets,
        queue_bytes_max: sender.queue_bytes_max,
        ..Counters::default()
    };
    for receiver in direction.receiver_counters() {
        counters.damaged_packets += receiver.damaged_packets;
        counters.delivered_damaged_packets += receiver.delivered_damaged_packets;
        counters.bit_errors += receiver.bit_errors;
        counters.lost_packets += receiver.lost_packets;
        counters.delivered_packets += receiver.delivered_packets;
        counters.delivered_bytes += receiver.delivered_bytes;
    }
    counters
}

fn direction_series(samples: &[Sample]) -> Vec<Series> {
    let series = |name: &str, unit: &str, value: fn(&Sample) -> u64| Series {
        name: name.to_owned(),
        unit: unit.to_owned(),
        points: samples.iter().map(|s| (s.at.as_secs_f64(), value(s) as f64)).collect(),
    };
    vec![
        series("queue", "B", |s| s.queue_bytes),
        series("dropped_packets", "1", |s| s.dropped_packets),
        series("damaged_packets", "1", |s| s.damaged_packets),
        series("bit_errors", "1", |s| s.bit_errors),
        series("link_bytes", "B", |s| s.link_bits.div_ceil(8)),
        series("delivered_bytes", "B", |s| s.delivered_bytes),
    ]
}
