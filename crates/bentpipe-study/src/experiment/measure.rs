//! The measurements of one case: those that its workloads report, and those of the whole case.
//!
//! | workload | measurement | |
//! |---|---|---|
//! | each | as its program reports it | the mean over repetitions and copies; nothing of one that failed |
//! | each | `done` | share of its repetitions and copies that were done |
//! | each | `total_goodput` | the sum over its copies, where it has several |
//! | each | `of_link_rate` | goodput, of all copies, ÷ the rate of the one link on its way, framing included |
//! | an `ftp` | `data_goodput` | bytes ÷ the time from `RETR` or `STOR` to the last byte: what FTP clients print, the dialogue before it left out |
//! | an `ftp` | `delivered_goodput` | the same, and 0 of a transfer that failed: what a user could count on |
//! | `bulk`, `ftp` | `model_goodput` | what Kruse's model says of the same transfer, where it applies: for `ftp` without set-up, to compare with `data_goodput` |
//! | `tcp` | `retransmitted` | bytes sent more than once ÷ all data bytes, all connections |
//! | `tcp` | `full_window_after` | from a connection's first data until its congestion window holds the whole window that its receiver offers; the longest |
//! | `tcp` | `round_trip` | the smoothed round trip at the end that sent most, the median of the samples with data under way |
//! | `LINK forward`, `LINK return` | `dropped`, `damaged` | packets that the queue refused, or with bit errors, ÷ offered or sent |
//! | the same | `lost` | packets lost as a whole ÷ sent or lost in the sender |
//! | the same | `queue_bytes_max`, `link_bytes` | as in the record |
//! | the same | `rate_peak`, `rate_peak_after`, `rate_cycles` | the rate over time of what was delivered, framing left out: see [`super::over_time`] |
//! | `LINK circuit` | `calls`, `channels_most`, `on_air` | calls made, most that were up at a time, their time on air added up |
//! | the same | `set_up` | the time from the beginning of a call until packets flow, the mean over its calls |
//! | `LINK bill` | `cost` | the whole bill, in units of its currency |

use super::over_time::OverTime;
use crate::predict::{Outcome, Question, predict};
use bentpipe_apps::Direction;
use bentpipe_apps::kind::{CLIENT, SERVER, Transfer};
use bentpipe_apps::quantity::CONTROL_TIME;
use bentpipe_lab::record::{CaseRecord, FlowRecord, Status, TcpFlowSamples, Unit};
use bentpipe_lab::scenario::Case;
use bentpipe_lab::scenario::workload::{Placement, Workload};
use bentpipe_link::tariff::Money;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::units::DataSize;
use std::collections::{BTreeMap, BTreeSet};

/// (workload, measurement) → (unit, value).
pub type Measured = BTreeMap<(String, String), (Unit, f64)>;

/// Bytes of the timestamps option with its padding (RFC 7323, appendix A).
const TIMESTAMPS: u64 = 12;

/// Everything that one run of a case measured.
#[must_use]
pub fn measure(case: &Case, record: &CaseRecord) -> Measured {
    let mut measured = Measured::new();
    let mut put = |workload: &str, name: &str, unit: Unit, value: f64| {
        if value.is_finite() {
            measured.insert((workload.to_owned(), name.to_owned()), (unit, value));
        }
    };
    let mut sums: BTreeMap<(&str, &str), (&Unit, f64, f64)> = BTreeMap::new();
    let mut done: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for workload in &record.workloads {
        let name = workload.name.as_str();
        let ended = done.entry(name).or_default();
        (ended.0, ended.1) = (ended.0 + f64::from(u8::from(workload.status == Status::Done)), ended.1 + 1.0);
        if workload.status != Status::Done {
            continue;
        }
        for m in &workload.measurements {
            let sum = sums.entry((name, &m.quantity)).or_insert((&m.unit, 0.0, 0.0));
            (sum.1, sum.2) = (sum.1 + m.value, sum.2 + 1.0);
        }
    }
    for ((workload, name), (unit, sum, count)) in &sums {
        put(workload, name, (*unit).clone(), sum / count);
    }
    let of = |workload: &str, name: &str| sums.get(&(workload, name)).map(|(_, sum, count)| sum / count);
    for Workload { id, placement, .. } in case.workloads.iter().filter(|workload| is_first(workload)) {
        let name = id.name.as_str();
        if let Some(goodput) = of(name, "goodput") {
            let copies = case.workloads.iter().filter(|other| other.id.name == name).count() as f64;
            let all = goodput * copies;
            if copies > 1.0 {
                put(name, "total_goodput", Unit::BitsPerSecond, all);
            }
            if let [link] = case.links.as_slice() {
                let to_terminal =
                    matches!((link.sites.first(), placement.site(&CLIENT)), (Some(hub), Some(client)) if hub != client);
                let download = placement.workload.direction() != Some(Direction::Upload);
                let direction = if to_terminal == download { &link.config.forward } else { &link.config.back };
                let rate = direction.rate.highest().bps as f64 * direction.channels as f64;
                put(name, "of_link_rate", Unit::Number, all / rate);
            }
        }
        if !has_dialogue(placement) {
            continue;
        }
        if let (Some(bytes), Some(time), Some(dialogue)) =
            (of(name, "bytes"), of(name, "completion_time"), of(name, "control_time"))
        {
            let goodput = bytes * 8.0 / (time - dialogue);
            put(name, "data_goodput", Unit::BitsPerSecond, goodput);
            put(
                name,
                "delivered_goodput",
                Unit::BitsPerSecond,
                goodput * done.get(name).map_or(0.0, |(done, all)| done / all),
            );
        } else if done.get(name).is_some_and(|(done, _)| *done == 0.0) {
            put(name, "delivered_goodput", Unit::BitsPerSecond, 0.0);
        }
    }
    for (workload, (done, all)) in done {
        put(workload, "done", Unit::Number, done / all);
    }
    let sum = |what: fn(&FlowRecord) -> u64| record.flows.iter().map(what).sum::<u64>() as f64;
    let sent = sum(|flow| flow.data_bytes);
    if sent > 0.0 {
        put("tcp", "retransmitted", Unit::Number, sum(|flow| flow.repeated_bytes) / sent);
    }
    let times = record.tcp_samples.iter().filter_map(|samples| full_window_after(samples, &record.flows));
    if let Some(longest) = times.reduce(f64::max) {
        put("tcp", "full_window_after", Unit::Seconds, longest);
    }
    if let Some(round_trip) = round_trip(&record.tcp_samples, &record.flows) {
        put("tcp", "round_trip", Unit::Seconds, round_trip);
    }
    for link in &record.links {
        for (direction, side) in link.directions.iter().zip(["forward", "return"]) {
            let place = format!("{} {side}", link.name);
            let counters = &direction.counters;
            let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
            put(&place, "dropped", Unit::Number, share(counters.dropped_packets, counters.offered_packets));
            put(&place, "damaged", Unit::Number, share(counters.damaged_packets, counters.sent_packets));
            put(
                &place,
                "lost",
                Unit::Number,
                share(counters.lost_packets, counters.sent_packets + counters.lost_packets),
            );
            let delivered = direction.series.iter().find(|series| series.quantity == "delivered_bytes");
            // From the first workload that moves data on, and as long as one does.
            let data = record.workloads.iter().filter(|workload| workload.direction.is_some());
            let start = data.clone().map(|workload| workload.start).reduce(f64::min).unwrap_or(0.0);
            let end =
                data.map(|workload| workload.end.unwrap_or(f64::INFINITY)).reduce(f64::max).unwrap_or(f64::INFINITY);
            let points = delivered.map_or(&[][..], |series| &series.points);
            let points: Vec<(f64, f64)> = points.iter().copied().filter(|(at, _)| (start..=end).contains(at)).collect();
            if let Some(over_time) = OverTime::of(&points) {
                put(&place, "rate_peak", Unit::BitsPerSecond, over_time.peak);
                put(&place, "rate_peak_after", Unit::Seconds, over_time.peak_after);
                put(&place, "rate_cycles", Unit::Number, f64::from(over_time.cycles));
            }
            put(&place, "queue_bytes_max", Unit::Bytes, counters.queue_bytes_max as f64);
            put(&place, "link_bytes", Unit::Bytes, counters.link_bytes as f64);
        }
    }
    for (link, circuit) in record.links.iter().filter_map(|link| Some((link, link.circuit.as_ref()?))) {
        let place = format!("{} circuit", link.name);
        put(&place, "calls", Unit::Number, circuit.calls as f64);
        put(&place, "channels_most", Unit::Number, circuit.channels_most.map_or(f64::NAN, |most| most as f64));
        put(&place, "on_air", Unit::Seconds, circuit.on_air);
        put(&place, "set_up", Unit::Seconds, circuit.setting_up / circuit.calls as f64);
    }
    for (link, bill) in record.links.iter().filter_map(|link| Some((link, link.bill.as_ref()?))) {
        put(&format!("{} bill", link.name), "cost", Unit::Number, Money { nano: bill.total_nano }.as_f64());
    }
    for Workload { id, placement, .. } in case.workloads.iter().filter(|workload| workload.id.copy.is_none()) {
        if let Some(goodput) = model_goodput(case, placement) {
            put(&id.name, "model_goodput", Unit::BitsPerSecond, goodput);
        }
    }
    measured
}

/// The only one of its name, or the first copy.
fn is_first(workload: &Workload) -> bool {
    workload.id.copy.is_none_or(|copy| copy == 1)
}

/// True if a dialogue precedes its data.
fn has_dialogue(placement: &Placement) -> bool {
    placement.kind.quantities().contains(&CONTROL_TIME)
}

/// When the congestion window first holds what the other side offers, counted from the first sample with data under way.
fn full_window_after(samples: &TcpFlowSamples, flows: &[FlowRecord]) -> Option<f64> {
    let own = flows.iter().find(|flow| flow.host == samples.host && flow.flow == samples.flow)?;
    let back = samples.flow.reversed();
    let peer = flows.iter().find(|flow| flow.host != samples.host && flow.flow == back)?;
    // Only the sender of data has a window to fill.
    if own.data_bytes <= peer.data_bytes || peer.window_max == 0 {
        return None;
    }
    let options = if own.timestamps && peer.timestamps { TIMESTAMPS } else { 0 };
    let segment = u64::from(own.mss?.min(peer.mss?)).checked_sub(options).filter(|bytes| *bytes > 0)?;
    let full = (peer.window_max / segment) as f64;
    let cwnd = samples.series.iter().find(|series| series.quantity == "cwnd")?;
    let under_way = samples.series.iter().find(|series| series.quantity == "unacked")?;
    let (start, _) = under_way.points.iter().find(|(_, segments)| *segments > 0.0)?;
    cwnd.points.iter().find(|(_, segments)| *segments >= full).map(|(at, _)| at - start)
}

/// The median of the smoothed round trip at the end that sent most, over the samples with data under way.
fn round_trip(samples: &[TcpFlowSamples], flows: &[FlowRecord]) -> Option<f64> {
    let most = flows.iter().reduce(|most, flow| if flow.data_bytes > most.data_bytes { flow } else { most })?;
    let own = samples.iter().find(|samples| samples.host == most.host && samples.flow == most.flow)?;
    let points =
        |name: &str| own.series.iter().find(|series| series.quantity == name).map(|series| series.points.iter());
    let under_way: BTreeSet<u64> = points("unacked")?.filter(|(_, n)| *n > 0.0).map(|(at, _)| at.to_bits()).collect();
    let mut trips: Vec<f64> =
        points("srtt")?.filter(|(at, _)| under_way.contains(&at.to_bits())).map(|(_, trip)| *trip).collect();
    trips.sort_by(f64::total_cmp);
    trips.get(trips.len() / 2).copied()
}

/// Kruse's model of the transfer over the case's one link.
fn model_goodput(case: &Case, placement: &Placement) -> Option<f64> {
    let [link] = case.links.as_slice() else { return None };
    let Transfer { direction, bytes, connections } = placement.workload.transfer()?;
    let (client, server) = (placement.site(&CLIENT)?, placement.site(&SERVER)?);
    // The model knows the terminal as client.
    if link.sites.first().is_some_and(|hub| hub == client) {
        return None;
    }
    let (client, server) = (case.tcp.get(client)?, case.tcp.get(server)?);
    let (sender, receiver) = match direction {
        Direction::Download => (server, client),
        Direction::Upload => (client, server),
    };
    let tcp = TcpConfig { receive_window: receiver.receive_window, ack_every: receiver.ack_every, ..sender.clone() };
    let question = Question {
        name: link.kind.as_deref().unwrap_or(&link.name),
        link: &link.config,
        tcp: &tcp,
        direction,
        bytes: DataSize::from_bytes(bytes),
        loss: None,
        connections,
    };
    let prediction = predict(&question).ok()?;
    let kruse = prediction.rows.iter().find(|row| row.model == "Kruse")?;
    match &kruse.outcome {
        // The prediction has one round trip of set-up, TCP's handshake.
        Outcome::Predicted { seconds, .. } => {
            let set_up = if has_dialogue(placement) { prediction.inputs.rtt_seconds } else { 0.0 };
            Some(bytes as f64 * 8.0 / (seconds - set_up))
        }
        Outcome::NotApplicable { .. } => None,
    }
}
