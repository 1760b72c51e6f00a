//! Records of version 1 (bentpipe 0.1.0), and their conversion to today's.
//!
//! Version 1 stated much as text: `web (2)` for a copy, `a:b → c:d` for a connection, sentences for changes and events.
//! Such texts are read here and nowhere else.

use super::{
    Better, Bound, CircuitChange, CircuitState, CommandRecord, Compared, Counters, DataDirection, FORMAT, Flow,
    GatewayEvent, GatewaySetting, Lateness, Machine, Observed, PairLoss, Party, RefusedBecause, Role, Status,
    TimedEvent, Unit, VERSION, Validity,
};
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, Percent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::str::FromStr;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Record {
    /// Always `bentpipe-record`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// Version of bentpipe that wrote the file.
    pub bentpipe: String,
    /// Wall-clock start of a live run, RFC 3339. Empty for a virtual run.
    pub created: String,
    /// `live` or `virtual`.
    pub mode: String,
    /// Where a live run happened. Empty for a virtual run.
    pub machine: Machine,
    /// The scenario's title.
    pub title: String,
    /// The scenario's file name.
    pub scenario_file: String,
    /// The scenario's text as it was read.
    pub scenario: String,
    /// Overrides from the command line, `key=value`.
    #[serde(default)]
    pub overrides: Vec<String>,
    /// The seed of every random stream.
    pub seed: u64,
    /// Every case ran to its end.
    pub complete: bool,
    /// The run was stopped by a signal.
    #[serde(default)]
    pub interrupted: bool,
    /// Commands that a virtual run left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// One per case, in order.
    pub cases: Vec<CaseRecord>,
}

/// One case of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CaseRecord {
    /// The case's name; the scenario's title when it has no cases.
    pub name: String,
    /// The case's duration, in seconds.
    pub seconds: f64,
    /// The verdict on the results.
    pub validity: Validity,
    /// TCP settings of each host.
    pub settings: Vec<Setting>,
    /// Runs of workloads.
    pub workloads: Vec<WorkloadRecord>,
    /// Links.
    pub links: Vec<LinkRecord>,
    /// Lateness of the packets that left the emulator. Absent in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// Samples of hosts' TCP state.
    #[serde(default)]
    pub tcp_samples: Vec<TcpFlowSamples>,
    /// TCP connections as observed on the wire.
    #[serde(default)]
    pub flows: Vec<FlowRecord>,
    /// With `--compare gateway`: the name of the scenario's case that this is half of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<String>,
    /// Gateway pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayRecord>,
    /// Things a reader must know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One setting of one host's TCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Setting {
    /// The site.
    pub host: String,
    /// The key under `[hosts.X.tcp]`.
    pub name: String,
    /// The scenario's (or its preset's) value.
    pub asked: String,
    /// The value that the kernel reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The packets' evidence, as a phrase: `at most 8192 B advertised`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// `seen` contradicts `asked`.
    #[serde(default)]
    pub broken: bool,
}

/// One run of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkloadRecord {
    /// The workload's name, for a copy with its number: `web (2)`.
    pub name: String,
    /// `ping`, `bulk`, `ftp`, `page` or `command`.
    pub app: String,
    /// The site that connects.
    pub client: String,
    /// The site that answers; empty for a command that names none.
    #[serde(default)]
    pub server: String,
    /// `download`, `upload` or empty.
    #[serde(default)]
    pub direction: String,
    /// Which repetition, from 1.
    #[serde(default)]
    pub repeat: u32,
    /// When it started.
    pub start: f64,
    /// When it ended; absent when it was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<f64>,
    /// `done`, `failed` or `interrupted`.
    pub status: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The objective, and whether it was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Single numbers.
    pub measurements: Vec<Measurement>,
    /// Numbers over time.
    #[serde(default)]
    pub series: Vec<Series>,
    /// For `command`: the program and how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandRecord>,
}

/// An objective and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Objective {
    /// `within 10 s`, `at least 2 Mbit/s` or `at most 1 % lost`.
    pub text: String,
    /// It was met; absent when the workload was cut off before that could be decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// One number with its unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measurement {
    /// `goodput`, `completion_time`, `rtt_median`, …
    pub name: String,
    /// `bit/s`, `s`, `B`, `1` for ratios and counts.
    pub unit: String,
    /// The value.
    pub value: f64,
}

/// Numbers over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Series {
    /// `goodput`, `rtt`, `queue`, …
    pub name: String,
    /// Unit of the second number of each point.
    pub unit: String,
    /// (seconds since the case's start, value).
    pub points: Vec<(f64, f64)>,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkRecord {
    /// The link's name in the scenario.
    pub name: String,
    /// The catalogue entry or file it came from.
    pub kind: String,
    /// Its title: one line.
    pub summary: String,
    /// Forward first, then one return a terminal.
    pub directions: Vec<DirectionRecord>,
    /// For a circuit: calls and airtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<CircuitRecord>,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectionRecord {
    /// Sending site.
    pub from: String,
    /// Receiving site; several joined with `, ` on a broadcast.
    pub to: String,
    /// Counters at the end of the case.
    pub counters: Counters,
    /// Cumulative counters and the queue over time.
    #[serde(default)]
    pub series: Vec<Series>,
}

/// A circuit's calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CircuitRecord {
    /// Calls set up.
    pub calls: u64,
    /// Calls that a switch ended because of errors.
    pub calls_lost: u64,
    /// Time spent setting up, in seconds; of several calls, added up.
    pub setting_up: f64,
    /// Time on air, in seconds; of several calls, added up.
    pub on_air: f64,
    /// Cost; absent when the link states none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The currency of `cost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// With a call for each channel: most that were up at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels_most: Option<u64>,
    /// State changes: (seconds, `setting up: LES`, `up`, `down`, `lost`, `2 channels up`).
    pub changes: Vec<(f64, String)>,
}

/// A pair of gateways on a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GatewayRecord {
    /// The link's name in the scenario.
    pub link: String,
    /// Settings of both: key and value.
    pub settings: Vec<(String, String)>,
    /// The hub's side, then the terminal's.
    pub sides: Vec<GatewaySideRecord>,
}

/// One gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GatewaySideRecord {
    /// The gateway's own site.
    pub site: String,
    /// The scenario's site whose connections it relays.
    pub before: String,
    /// Its totals.
    pub measurements: Vec<Measurement>,
    /// Its log: seconds, text.
    #[serde(default)]
    pub notices: Vec<(f64, String)>,
}

/// Its host's view of one TCP connection over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TcpFlowSamples {
    /// The site whose kernel (or simulated stack) has the connection.
    pub host: String,
    /// `local address:port → remote address:port`.
    pub flow: String,
    /// Congestion control in force.
    pub congestion_control: String,
    /// cwnd, ssthresh, srtt, rto, retransmissions, unacknowledged segments, delivery rate.
    pub series: Vec<Series>,
}

/// One TCP connection as observed at a site's port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowRecord {
    /// The site whose packets these are.
    pub host: String,
    /// `source address:port → destination address:port`.
    pub flow: String,
    /// When its first packet passed.
    pub start: f64,
    /// When its last packet passed.
    pub end: f64,
    /// MSS offered in its SYN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// Window scale shift offered in its SYN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_scale: Option<u8>,
    /// SACK permitted in its SYN.
    pub sack: bool,
    /// Timestamps offered in its SYN.
    pub timestamps: bool,
    /// Largest window it advertised after the port's limit, in bytes.
    pub window_max: u64,
    /// Segments with data it sent.
    pub data_segments: u64,
    /// Data bytes it sent, repeated ones included.
    pub data_bytes: u64,
    /// Data bytes it sent more than once.
    pub repeated_bytes: u64,
    /// Data segments it sent before the first acknowledgement of data came back.
    pub initial_burst: u64,
    /// Acknowledgements without data it sent.
    pub pure_acks: u64,
}

/// Today's form of a record, or a sentence that says which text is none that bentpipe wrote.
pub fn upgrade(old: Record) -> Result<super::Record, String> {
    let names = CopyNames::of(&old.scenario);
    let live = old.mode == "live";
    let kinds = bentpipe_apps::Registry::standard();
    Ok(super::Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        bentpipe: old.bentpipe,
        created: Some(old.created).filter(|text| !text.is_empty()),
        mode: word("mode", &old.mode)?,
        machine: Some(old.machine).filter(|machine| live || *machine != Machine::default()),
        title: old.title,
        scenario_file: old.scenario_file,
        scenario: old.scenario,
        overrides: old.overrides,
        seed: old.seed,
        complete: old.complete,
        interrupted: old.interrupted,
        left_out: old.left_out,
        left_out_objectives: Vec::new(),
        chosen_cases: Vec::new(),
        cases: old.cases.into_iter().map(|case| upgrade_case(case, &names, &kinds)).collect::<Result<_, _>>()?,
    })
}

fn upgrade_case(
    old: CaseRecord,
    names: &CopyNames,
    kinds: &bentpipe_apps::Registry,
) -> Result<super::CaseRecord, String> {
    let gateways = !old.gateways.is_empty();
    Ok(super::CaseRecord {
        name: old.name,
        seconds: old.seconds,
        validity: old.validity,
        settings: old.settings.into_iter().map(setting).collect::<Result<_, _>>()?,
        workloads: old.workloads.into_iter().map(|old| workload(old, names, kinds)).collect::<Result<_, _>>()?,
        links: old.links.into_iter().map(link).collect::<Result<_, _>>()?,
        lateness: old.lateness,
        tcp_samples: old.tcp_samples.into_iter().map(tcp_samples).collect::<Result<_, _>>()?,
        flows: old.flows.into_iter().map(flow_record).collect::<Result<_, _>>()?,
        compared: old.compared.map(|case| Compared { case, gateways }),
        gateways: old.gateways.into_iter().map(gateway).collect(),
        notes: old.notes,
    })
}

fn setting(old: Setting) -> Result<super::Setting, String> {
    let Setting { host, name, asked, kernel, seen, broken } = old;
    let unknown = |text: String| format!("\"seen\" of {host}'s {name} is {text:?}");
    let observed = seen.map(|text| observed(&text).ok_or_else(|| unknown(text))).transpose()?;
    Ok(super::Setting { configured: asked, kernel, observed, broken, host: host.clone(), name: name.clone() })
}

fn observed(text: &str) -> Option<Observed> {
    let between = |before, after| text.strip_prefix(before)?.strip_suffix(after);
    if let Some(bytes) = between("at most ", " B advertised") {
        Some(Observed::Window { bytes: bytes.parse().ok()? })
    } else if let Some(bytes) = between("at most ", " B in flight") {
        Some(Observed::InFlight { bytes: bytes.parse().ok()? })
    } else if let Some(segments) = between("at most ", " segments at first") {
        Some(Observed::InitialBurst { segments: segments.parse().ok()? })
    } else if let Some(bytes) = between("MSS for packets of ", " B") {
        Some(Observed::PacketSize { bytes: bytes.parse().ok()? })
    } else if let Some((by, syns)) = between("offered by ", " SYNs").and_then(|text| text.split_once(" of ")) {
        Some(Observed::Offered { by: by.parse().ok()?, syns: syns.parse().ok()? })
    } else {
        let segments = between("an acknowledgement for ", " segments")?;
        Some(Observed::SegmentsPerAck { segments: segments.parse().ok()? })
    }
}

fn workload(
    old: WorkloadRecord,
    names: &CopyNames,
    kinds: &bentpipe_apps::Registry,
) -> Result<super::WorkloadRecord, String> {
    let (name, copy) = names.split(&old.name);
    let mut parties = vec![Party { role: Role::Client, site: old.client }];
    if !old.server.is_empty() {
        parties.push(Party { role: Role::Server, site: old.server });
    }
    let direction: Option<DataDirection> = match old.direction.as_str() {
        "" => None,
        text => Some(word("direction", text)?),
    };
    Ok(super::WorkloadRecord {
        name: name.to_owned(),
        copy,
        repeat: old.repeat,
        shown: kinds.workload(&old.app).map(|kind| kind.shown().into()).unwrap_or_default(),
        app: old.app,
        parties,
        direction,
        start: old.start,
        end: old.end,
        status: status(&old.status)?,
        error: old.error,
        objective: old.objective.map(objective).transpose()?,
        measurements: old.measurements.into_iter().map(|m| measurement(m, better)).collect(),
        series: old.series.into_iter().map(series).collect(),
        command: old.command,
    })
}

fn objective(old: Objective) -> Result<super::Objective, String> {
    fn number<T: FromStr>(text: &str) -> Option<T> {
        text.parse().ok()
    }
    let text = old.text.as_str();
    let parsed = if let Some(time) = text.strip_prefix("within ") {
        number(time).map(|time: Duration| ("completion_time", Bound::AtMost, time.as_secs_f64(), Unit::Seconds))
    } else if let Some(rate) = text.strip_prefix("at least ") {
        number(rate).map(|rate: BitRate| ("goodput", Bound::AtLeast, rate.bps as f64, Unit::BitsPerSecond))
    } else {
        let share = text.strip_prefix("at most ").and_then(|text| text.strip_suffix(" lost"));
        share.and_then(number).map(|share: Percent| ("loss", Bound::AtMost, share.fraction(), Unit::Share))
    };
    let (quantity, bound, limit, unit) =
        parsed.ok_or_else(|| format!("the objective {text:?} is none of bentpipe's"))?;
    Ok(super::Objective { quantity: quantity.to_owned(), bound, limit, unit, met: old.met })
}

fn measurement(old: Measurement, better: fn(&str) -> Better) -> super::Measurement {
    let (unit, better) = (unit(&old.name, &old.unit), better(&old.name));
    super::Measurement { quantity: old.name, unit, better, value: old.value }
}

fn series(old: Series) -> super::Series {
    let unit = unit(&old.name, &old.unit);
    super::Series::new(old.name, unit, old.points)
}

/// The unit of a quantity by its name in version 1, which did not tell shares from counts.
#[must_use]
pub fn unit(quantity: &str, unit: &str) -> Unit {
    let share = ["loss", "ratio", "share", "utilisation"].iter().any(|word| quantity.contains(word));
    match Unit::from(unit) {
        Unit::Number if share => Unit::Share,
        unit => unit,
    }
}

/// Which direction of a measurement of version 1's workloads is good.
#[must_use]
pub fn better(quantity: &str) -> Better {
    match quantity {
        "goodput" | "goodput_steady" | "goodput_per_session" | "files_done" | "objects_done" => Better::Higher,
        "completion_time" | "first_byte" | "connect_time" | "control_time" | "session_time_max" | "html_time"
        | "object_time_mean" | "object_time_max" | "wrong_bytes" | "loss" | "duplicates" | "damaged" | "unknown"
        | "rtt_min" | "rtt_mean" | "rtt_median" | "rtt_p99" | "rtt_max" | "rtt_jitter" | "files_failed"
        | "objects_failed" => Better::Lower,
        _ => Better::Neither,
    }
}

fn link(old: LinkRecord) -> Result<super::LinkRecord, String> {
    let direction = |old: DirectionRecord| super::DirectionRecord {
        from: old.from,
        to: old.to.split(", ").map(str::to_owned).collect(),
        counters: old.counters,
        series: old.series.into_iter().map(series).collect(),
    };
    Ok(super::LinkRecord {
        name: old.name,
        kind: old.kind,
        summary: old.summary,
        directions: old.directions.into_iter().map(direction).collect(),
        circuit: old.circuit.map(circuit).transpose()?,
        bill: None,
    })
}

fn circuit(old: CircuitRecord) -> Result<super::CircuitRecord, String> {
    let change = |(at, text): (f64, String)| match circuit_state(&text) {
        Some(state) => Ok(CircuitChange { at, state }),
        None => Err(format!("the circuit's change {text:?} is none of bentpipe's")),
    };
    Ok(super::CircuitRecord {
        calls: old.calls,
        calls_lost: old.calls_lost,
        setting_up: old.setting_up,
        on_air: old.on_air,
        cost: old.cost,
        currency: old.currency,
        channels_most: old.channels_most,
        changes: old.changes.into_iter().map(change).collect::<Result<_, _>>()?,
    })
}

fn circuit_state(text: &str) -> Option<CircuitState> {
    Some(match text {
        "up" => CircuitState::Up,
        "down" => CircuitState::Down,
        "lost" => CircuitState::Lost,
        "set-up refused by the switch" => CircuitState::Refused,
        _ => {
            if let Some(stage) = text.strip_prefix("setting up: ") {
                let channel = stage.rsplit_once(", channel ").and_then(|(name, n)| Some((name, n.parse().ok()?)));
                let (stage, channel) = channel.map_or((stage, None), |(name, n)| (name, Some(n)));
                return Some(CircuitState::SettingUp { stage: stage.to_owned(), channel });
            }
            let channels = text.strip_suffix(" channels up").or_else(|| text.strip_suffix(" channel up"))?;
            CircuitState::ChannelsUp { channels: channels.parse().ok()? }
        }
    })
}

fn gateway(old: GatewayRecord) -> super::GatewayRecord {
    let side = |old: GatewaySideRecord| super::GatewaySideRecord {
        site: old.site,
        before: old.before,
        measurements: old.measurements.into_iter().map(gateway_measurement).collect(),
        events: old.notices.into_iter().map(|(at, text)| TimedEvent { at, event: event(text) }).collect(),
    };
    super::GatewayRecord {
        link: old.link,
        settings: old.settings.into_iter().map(|(name, value)| GatewaySetting { name, value }).collect(),
        sides: old.sides.into_iter().map(side).collect(),
    }
}

/// A gateway's totals are facts; some have other names since.
fn gateway_measurement(mut old: Measurement) -> super::Measurement {
    let name = match old.name.as_str() {
        "held_down" => "throttled",
        "beside_packets" => "bypass_packets",
        "beside_bytes" => "bypass_bytes",
        _ => return measurement(old, |_| Better::Neither),
    };
    name.clone_into(&mut old.name);
    measurement(old, |_| Better::Neither)
}

/// Version 1's words for events without numbers.
const SENTENCES: [(&str, GatewayEvent); 9] = [
    ("connected to the other gateway", GatewayEvent::Connected),
    ("the other gateway is silent", GatewayEvent::Silent),
    ("the other gateway is heard again", GatewayEvent::Heard),
    ("the link carries the declared rate again", GatewayEvent::Released),
    ("new connections bypass the gateway", GatewayEvent::Failing { bypass: true }),
    ("new connections are refused", GatewayEvent::Failing { bypass: false }),
    ("new connections are relayed again", GatewayEvent::Relaying),
    (
        "servers see this gateway's address, not their clients': no right to use foreign addresses",
        GatewayEvent::AddressesHidden,
    ),
    ("this site has nothing to capture connections with", GatewayEvent::NoInterception),
];
/// Version 1's words for the end of a pair's connection.
const LOSSES: [(&str, PairLoss); 5] = [
    ("the other gateway was silent for longer than the hold time", PairLoss::Silence),
    ("the other gateway was started anew", PairLoss::Restarted),
    ("the other gateway ended the connection", PairLoss::Closed),
    (
        "the other gateway's key is not the one this gateway was told, or the other does not know ours",
        PairLoss::Unauthenticated,
    ),
    ("the other gateway broke the protocol", PairLoss::Protocol),
];
/// Version 1's words for refused requests.
const REFUSALS: [(&str, RefusedBecause); 5] = [
    ("refused", RefusedBecause::Refused),
    ("unreachable", RefusedBecause::Unreachable),
    ("timed out", RefusedBecause::TimedOut),
    ("not allowed by the far gateway", RefusedBecause::Denied),
    ("no room for more connections", RefusedBecause::Busy),
];

/// The event that a line of a gateway's log was written of.
pub(super) fn event(text: String) -> GatewayEvent {
    let sentence = SENTENCES.iter().find(|(words, _)| *words == text);
    let known = sentence.map(|(_, event)| event.clone());
    known.or_else(|| counted_event(&text)).unwrap_or(GatewayEvent::Other { text })
}

fn counted_event(text: &str) -> Option<GatewayEvent> {
    let between = |before, after| text.strip_prefix(before)?.strip_suffix(after);
    let count = |before, after| between(before, after)?.parse().ok();
    if let Some(rest) = text.strip_suffix(" connections were reset") {
        let (why, connections) = rest.rsplit_once("; ")?;
        let (_, why) = LOSSES.into_iter().find(|(words, _)| *words == why)?;
        Some(GatewayEvent::Lost { why, connections: connections.parse().ok()? })
    } else if let Some(count) = count("refused a gateway with an unknown key (", " so far)") {
        Some(GatewayEvent::UnauthenticatedPeer { count })
    } else if let Some(count) = count("packets come in that are of no connection of the pair (", " so far)") {
        Some(GatewayEvent::UnauthenticatedPackets { count })
    } else if let Some(rates) = text.strip_prefix("the link does not carry the declared ") {
        let (declared, now) = rates.split_once(": held down to ")?;
        let bps = |text: &str| text.parse().ok().map(|rate: BitRate| rate.bps);
        Some(GatewayEvent::Throttled { declared: bps(declared)?, now: bps(now)? })
    } else if let Some(limit) = between("the limit of ", " is reached") {
        Some(GatewayEvent::LimitReached { limit: limit.to_owned() })
    } else if let Some(what) = text.strip_prefix("reset a stream that broke the protocol: ") {
        Some(GatewayEvent::Malformed { what: what.to_owned() })
    } else if let Some(rest) = text.strip_prefix("cannot open the ") {
        let (socket, rest) = rest.split_once(" port ")?;
        let (port, why) = rest.split_once(": ")?;
        Some(GatewayEvent::NoSocket { socket: socket.to_owned(), port: port.parse().ok()?, why: why.to_owned() })
    } else if let Some(count) = count("", " more notices are not kept") {
        Some(GatewayEvent::NotKept { count })
    } else if let Some(count) = count("", " notices were dropped") {
        Some(GatewayEvent::Dropped { count })
    } else {
        not_opened(text)
    }
}

/// `CLIENT to SERVER:PORT: WHY`, or without the client.
fn not_opened(text: &str) -> Option<GatewayEvent> {
    let (ends, why) = text.rsplit_once(": ")?;
    let (_, why) = REFUSALS.into_iter().find(|(words, _)| *words == why)?;
    let (client, server) = match ends.strip_prefix("to ") {
        Some(server) => (None, server),
        None => {
            let (client, server) = ends.split_once(" to ")?;
            (Some(client.parse::<SocketAddr>().ok()?.into()), server)
        }
    };
    let (host, port) = server.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(GatewayEvent::NotOpened { client, host, port: port.parse().ok()?, why })
}

fn tcp_samples(old: TcpFlowSamples) -> Result<super::TcpFlowSamples, String> {
    Ok(super::TcpFlowSamples {
        flow: flow(&old.flow)?,
        host: old.host,
        congestion_control: old.congestion_control,
        series: old.series.into_iter().map(series).collect(),
    })
}

fn flow_record(old: FlowRecord) -> Result<super::FlowRecord, String> {
    Ok(super::FlowRecord {
        flow: flow(&old.flow)?,
        host: old.host,
        start: old.start,
        end: old.end,
        mss: old.mss,
        window_scale: old.window_scale,
        sack: old.sack,
        timestamps: old.timestamps,
        window_max: old.window_max,
        data_segments: old.data_segments,
        data_bytes: old.data_bytes,
        repeated_bytes: old.repeated_bytes,
        initial_burst: old.initial_burst,
        pure_acks: old.pure_acks,
    })
}

fn flow(text: &str) -> Result<Flow, String> {
    let ends = text.split_once(" → ").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (source, destination) = ends.ok_or_else(|| format!("{text:?} is no connection of bentpipe's"))?;
    Ok(Flow::new(source, destination))
}

/// A status by its word in version 1.
pub fn status(text: &str) -> Result<Status, String> {
    word("status", text)
}

/// A value by its word in version 1.
pub fn word<T: for<'de> Deserialize<'de>>(field: &str, text: &str) -> Result<T, String> {
    let value = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text);
    T::deserialize(value).map_err(|error| format!("{field:?}: {error}"))
}

/// Tells the name of a copy, `web (2)`, from a name that ends so by itself.
#[derive(Clone, Debug, Default)]
pub struct CopyNames {
    literal: BTreeSet<String>,
}

impl CopyNames {
    /// Those of a scenario's text.
    #[must_use]
    pub fn of(scenario: &str) -> CopyNames {
        let table: toml::Table = toml::from_str(scenario).unwrap_or_default();
        let workloads = table.get("workloads").and_then(toml::Value::as_array);
        let names = workloads.into_iter().flatten().filter_map(|workload| workload.get("name")?.as_str());
        CopyNames { literal: names.map(str::to_owned).collect() }
    }

    /// The workload's name and the number of the copy.
    #[must_use]
    pub fn split<'a>(&self, name: &'a str) -> (&'a str, Option<u32>) {
        if self.literal.contains(name) {
            return (name, None);
        }
        let copy = name.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
        match copy.and_then(|(name, number)| Some((name, number.parse().ok()?))) {
            Some((name, number)) => (name, Some(number)),
            None => (name, None),
        }
    }
}
