//! A link as TOML, and what it means.
//!
//! ```toml
//! title = "My terminal"
//! rate = "2 Mbit/s"             # top level: both directions
//! one_way_delay = "260 ms"
//!
//! [return]                      # one direction only
//! rate = "128 kbit/s"
//! ```

use crate::circuit::CircuitConfig;
use crate::framing::{Aal5, AsyncPpp, Ethernet, FrameRelay, Framing, Ppp, Sdlc};
use crate::geostationary::{self, Site};
use crate::impairment::ImpairmentSpec;
use crate::medium::MediumConfig;
use crate::noise::RatioSchedule;
use crate::queue::QueueConfig;
use crate::registry::{QueueContext, Registry};
use crate::tariff::Tariff;
use crate::trace;
use crate::transmitter::RateSchedule;
use bentpipe_net::problem::{KeyProblem, did_you_mean, read};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitErrorRatio, BitRate, DataSize};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::{Table, Value};

mod circuit;
pub(crate) mod impairments;
mod tariff;
use circuit::CircuitText;
use impairments::{JitterText, LossText, NoiseText, OutageText};
use tariff::TariffText;

/// A link, complete and checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkConfig {
    /// A title of a few words.
    pub title: String,
    /// A sentence or two.
    pub summary: String,
    /// Packets are Ethernet frames (a bridge), not IP packets.
    pub carries_ethernet: bool,
    /// Largest IP packet, in bytes.
    pub mtu: u64,
    /// Hub to terminals.
    pub forward: DirectionConfig,
    /// Terminal to hub.
    pub back: DirectionConfig,
    /// Set-up and airtime, if it must be set up.
    pub circuit: Option<CircuitConfig>,
    /// The price of its use, if it has one.
    pub tariff: Option<Tariff>,
}

/// One direction, complete.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DirectionConfig {
    /// What may wait, and what leaves first.
    pub queue: QueueConfig,
    /// The framing around packets.
    pub framing: Framing,
    /// Rate of each channel over time.
    pub rate: RateSchedule,
    /// Channels; each packet goes over one of them.
    pub channels: usize,
    /// Bit errors.
    pub noise: RatioSchedule,
    /// Delay, jitter, outages, packet loss.
    pub medium: MediumConfig,
    /// What else happens to packets, in this order.
    pub impairments: Vec<ImpairmentSpec>,
}

/// The keys of a link file. Every key of [`DirectionText`] may also stand at the top level, for both directions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LinkText {
    title: String,
    summary: String,
    carries: Carries,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<DataSize>,
    forward: DirectionText,
    #[serde(rename = "return")]
    back: DirectionText,
    #[serde(skip_serializing_if = "Option::is_none")]
    circuit: Option<CircuitText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tariff: Option<TariffText>,
    sources: BTreeMap<String, String>,
    assumptions: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Carries {
    #[default]
    Ip,
    Ethernet,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectionText {
    rate: Option<BitRate>,
    rate_schedule: Option<RateScheduleText>,
    rate_trace: Option<RateTraceText>,
    bundle: Option<BundleText>,
    one_way_delay: Option<Duration>,
    geostationary: Option<GeostationaryText>,
    jitter: Option<JitterText>,
    queue: Option<Table>,
    framing: Option<FramingText>,
    noise: Option<NoiseText>,
    loss: Option<LossText>,
    outages: Option<Vec<OutageText>>,
    impairments: Option<Vec<Table>>,
}

/// The keys of [`DirectionText`].
const DIRECTION_KEYS: [&str; 13] = [
    "rate",
    "rate_schedule",
    "rate_trace",
    "bundle",
    "one_way_delay",
    "geostationary",
    "jitter",
    "queue",
    "framing",
    "noise",
    "loss",
    "outages",
    "impairments",
];

/// The other keys of [`LinkText`].
const LINK_KEYS: [&str; 10] =
    ["title", "summary", "carries", "mtu", "forward", "return", "circuit", "tariff", "sources", "assumptions"];

/// Keys of which one replaces the others when an override sets it.
const ALTERNATIVES: [(&str, &[&[&str]]); 6] = [
    ("", &[&["rate"], &["rate_schedule"], &["rate_trace"], &["bundle"]]),
    ("", &[&["one_way_delay"], &["geostationary"]]),
    ("queue", &[&["bytes"], &["packets"]]),
    ("queue", &[&["classes"], &["flows"]]),
    ("noise", &[&["ratio"], &["background", "burst", "duration", "gap"], &["profile", "dwell"], &["steps", "repeat"]]),
    ("jitter", &[&["least", "most"], &["distribution", "mean", "deviation"], &["lines"]]),
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateScheduleText {
    steps: Vec<RateStepText>,
    repeat: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateStepText {
    at: Duration,
    rate: BitRate,
}

/// A trace of mahimahi: its lines, which a scenario may leave in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateTraceText {
    lines: String,
    bin: Option<Duration>,
}

/// Where the satellite and the two earth stations are, in degrees, and what the equipment adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GeostationaryText {
    longitude: f64,
    hub: (f64, f64),
    terminal: (f64, f64),
    equipment: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundleText {
    channels: usize,
    rate: BitRate,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
enum FramingText {
    None {},
    Ppp {
        flag_bytes: Option<u64>,
        address_control_bytes: Option<u64>,
        protocol_bytes: Option<u64>,
        fcs_bytes: Option<u64>,
        bit_stuffing: Option<bool>,
    },
    AsyncPpp {
        flag_bytes: Option<u64>,
        address_control_bytes: Option<u64>,
        protocol_bytes: Option<u64>,
        fcs_bytes: Option<u64>,
        bits_per_byte: Option<u64>,
        escape_map: Option<u32>,
    },
    Sdlc {
        flag_bytes: Option<u64>,
    },
    Ethernet {
        preamble_and_gap: Option<bool>,
        minimum: Option<bool>,
    },
    FrameRelay {
        address_bytes: Option<u64>,
        trunk: Option<TrunkText>,
    },
    Aal5 {
        llc: Option<bool>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrunkText {
    payload: DataSize,
    overhead: DataSize,
}

/// Puts `over` on top of `base`, key by key. A key of a set of alternatives replaces the others, for the direction it
/// names or, at the top level, for both.
pub fn merge(base: &mut Table, over: Table) {
    let over = expand_shorthands(over);
    *base = expand_shorthands(std::mem::take(base));
    for (key, value) in &over {
        if DIRECTION_KEYS.contains(&key.as_str()) {
            // A top-level key is meant for both directions: what the base says of one direction gives way.
            for side in ["forward", "return"] {
                if let Some(Value::Table(direction)) = base.get_mut(side) {
                    let one = Table::from_iter([(key.clone(), value.clone())]);
                    drop_alternatives(direction, &one);
                    if direction.contains_key(key) {
                        merge_tables(direction, one);
                    }
                }
            }
        }
    }
    for side in ["forward", "return"] {
        if let Some(Value::Table(direction)) = over.get(side) {
            // A direction that leaves an alternative of the top level must not inherit it: push that down first.
            push_down(base, direction);
        }
    }
    drop_alternatives(base, &over);
    for side in ["forward", "return"] {
        if let (Some(Value::Table(mine)), Some(Value::Table(theirs))) = (base.get_mut(side), over.get(side)) {
            drop_alternatives(mine, theirs);
        }
    }
    merge_tables(base, over);
}

/// When `direction` sets one alternative and the top level another, moves the top level's into both directions.
fn push_down(base: &mut Table, direction: &Table) {
    let moving: Vec<String> = base
        .keys()
        .filter(|key| DIRECTION_KEYS.contains(&key.as_str()))
        .filter(|key| {
            let mut alone = Table::from_iter([((*key).clone(), base[key.as_str()].clone())]);
            let before = alone.clone();
            drop_alternatives(&mut alone, direction);
            alone != before
        })
        .cloned()
        .collect();
    for key in moving {
        let Some(value) = base.remove(&key) else { continue };
        for side in ["forward", "return"] {
            let table = base.entry(side).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(table) = table {
                table.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

fn drop_alternatives(base: &mut Table, over: &Table) {
    for (place, groups) in ALTERNATIVES {
        let (base, over) = if place.is_empty() {
            (Some(&mut *base), Some(over))
        } else {
            let inner = base.get_mut(place).and_then(Value::as_table_mut);
            (inner, over.get(place).and_then(Value::as_table))
        };
        let (Some(base), Some(over)) = (base, over) else { continue };
        for group in groups {
            if group.iter().any(|key| over.contains_key(*key)) {
                base.retain(|key, _| !groups.iter().any(|other| other != group && other.contains(&key)));
            }
        }
    }
    for (key, kind) in [("framing", "type"), ("queue", "kind")] {
        let kind = |table: &Table| table.get(key).and_then(|inner| inner.get(kind)).cloned();
        if kind(over).is_some_and(|new| kind(base) != Some(new)) {
            base.remove(key);
        }
    }
}

/// Puts `over` on top of `base`: tables key by key, everything else as a whole.
pub fn merge_tables(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(mine)), Value::Table(theirs)) => merge_tables(mine, theirs),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// `framing = "ppp"` means `framing = { type = "ppp" }`; `noise = 1e-6` means `noise = { ratio = 1e-6 }`.
fn expand_shorthands(mut table: Table) -> Table {
    fn expand(table: &mut Table) {
        for (key, inner) in [("framing", "type"), ("noise", "ratio"), ("loss", "share"), ("jitter", "most")] {
            if let Some(value) = table.get_mut(key)
                && !value.is_table()
            {
                *value = Value::Table(Table::from_iter([(inner.to_owned(), value.clone())]));
            }
        }
    }
    expand(&mut table);
    for side in ["forward", "return"] {
        if let Some(Value::Table(direction)) = table.get_mut(side) {
            expand(direction);
        }
    }
    table
}

impl LinkConfig {
    /// Reads a link from TOML that has been parsed, with the built-in kinds of queues and impairments.
    pub fn from_table(table: Table) -> Result<LinkConfig, KeyProblem> {
        LinkConfig::with_kinds(table, &Registry::standard())
    }

    /// The same with the kinds of `registry`.
    pub fn with_kinds(table: Table, registry: &Registry) -> Result<LinkConfig, KeyProblem> {
        let mut table = expand_shorthands(table);
        let mut both = Table::new();
        for key in DIRECTION_KEYS {
            if let Some(value) = table.remove(key) {
                both.insert(key.to_owned(), value);
            }
        }
        if let Some(key) = table.keys().find(|key| !LINK_KEYS.contains(&key.as_str())) {
            let allowed = [&LINK_KEYS[..], &DIRECTION_KEYS[..]].concat();
            let meant = did_you_mean(key, allowed.iter().copied());
            return Err(KeyProblem::new(key, format!("unknown key{meant}; allowed: {}", allowed.join(", "))));
        }
        // Mistakes at the top level are reported there, not in a direction.
        read::<DirectionText>(both.clone())?;
        let mut origins = Vec::new();
        for side in ["forward", "return"] {
            let mut direction = both.clone();
            match table.remove(side) {
                None => {}
                Some(Value::Table(own)) => {
                    read::<DirectionText>(own.clone()).map_err(|p| p.under(side))?;
                    origins.push((side, own.clone()));
                    drop_alternatives(&mut direction, &own);
                    merge(&mut direction, own);
                }
                Some(_) => return Err(KeyProblem::new(side, "must be a table, such as [forward]")),
            }
            table.insert(side.to_owned(), Value::Table(direction));
        }
        if let Some(Value::Table(circuit)) = table.get("circuit") {
            CircuitText::check_moved(circuit).map_err(|p| p.under("circuit"))?;
        }
        let text: LinkText = read(table)?;
        text.resolve(registry).map_err(|mut problem| {
            // A key inherited from the top level is named where it stands.
            for side in ["forward", "return"] {
                if let Some(key) = problem.key.strip_prefix(&format!("{side}.")) {
                    let first = key.split('.').next().unwrap_or_default();
                    let own = origins.iter().any(|(name, own)| *name == side && own.contains_key(first));
                    if !own && both.contains_key(first) {
                        problem.key = key.to_owned();
                        break;
                    }
                }
            }
            problem
        })
    }

    /// The configured round trip: both one-way delays.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.forward.medium.one_way_delay + self.back.medium.one_way_delay
    }
}

impl LinkText {
    fn resolve(self, registry: &Registry) -> Result<LinkConfig, KeyProblem> {
        let mtu = self.mtu.map_or(1500, |mtu| mtu.bytes);
        if !(68..=65_535).contains(&mtu) {
            return Err(KeyProblem::new("mtu", format!("{mtu} B is no MTU; allowed: 68 B (RFC 791) to 65535 B")));
        }
        let forward_delay = self.forward.delay().map_err(|p| p.under("forward"))?;
        let back_delay = self.back.delay().map_err(|p| p.under("return"))?;
        let round_trip = match (forward_delay, back_delay) {
            (Some(a), Some(b)) => a + b,
            (None, None) => return Err(missing("one_way_delay", "a time, such as \"250 ms\"")),
            (None, _) => return Err(missing("forward.one_way_delay", "a time, such as \"250 ms\"")),
            (_, None) => return Err(missing("return.one_way_delay", "a time, such as \"250 ms\"")),
        };
        if !self.forward.has_rate() && !self.back.has_rate() {
            return Err(missing("rate", RATE_ALLOWED));
        }
        let ethernet = self.carries == Carries::Ethernet;
        let bundles = [&self.forward.bundle, &self.back.bundle].map(|bundle| bundle.as_ref().map(|b| b.channels));
        let channels = bundles.into_iter().flatten().max();
        let forward = self.forward.resolve(round_trip, mtu, ethernet, registry).map_err(|p| p.under("forward"))?;
        let back = self.back.resolve(round_trip, mtu, ethernet, registry).map_err(|p| p.under("return"))?;
        let circuit = self.circuit.map(|circuit| circuit.resolve(channels)).transpose();
        let circuit = circuit.map_err(|p| p.under("circuit"))?;
        let tariff = self.tariff.map(TariffText::resolve).transpose().map_err(|p| p.under("tariff"))?;
        Ok(LinkConfig {
            title: self.title,
            summary: self.summary,
            carries_ethernet: ethernet,
            mtu,
            forward,
            back,
            circuit,
            tariff,
        })
    }
}

const RATE_ALLOWED: &str = "rate, rate_schedule, rate_trace or bundle, such as rate = \"2 Mbit/s\"";

fn missing(key: &str, allowed: &str) -> KeyProblem {
    KeyProblem::new(key, format!("is missing; allowed: {allowed}"))
}

impl DirectionText {
    fn resolve(
        self,
        round_trip: Duration,
        mtu: u64,
        ethernet: bool,
        registry: &Registry,
    ) -> Result<DirectionConfig, KeyProblem> {
        let (rate, channels) = self.resolve_rate()?;
        let one_way_delay = self.delay()?.unwrap_or_default();
        let total = BitRate { bps: rate.highest().bps.saturating_mul(channels as u64) };
        let frame = if ethernet { mtu + 18 } else { mtu };
        let context = QueueContext::new(frame, total, total.bytes_in(round_trip).max(10 * frame));
        let queue = registry.queue(self.queue.unwrap_or_default(), &context).map_err(|p| p.under("queue"))?;
        let framing = self.framing.map_or(Ok(Framing::None), FramingText::resolve).map_err(|p| p.under("framing"))?;
        let noise = match self.noise {
            None => RatioSchedule::Constant(BitErrorRatio::ZERO),
            Some(noise) => noise.resolve().map_err(|p| p.under("noise"))?,
        };
        let loss = self.loss.map(LossText::resolve).transpose().map_err(|p| p.under("loss"))?;
        let outages = self.outages.unwrap_or_default().into_iter().enumerate();
        let outages: Result<_, _> =
            outages.map(|(i, outage)| outage.resolve().map_err(|p| p.under(&format!("outages.{i}")))).collect();
        let impairments = self.impairments.unwrap_or_default().into_iter().enumerate();
        let impairments: Result<_, _> = impairments
            .map(|(i, table)| registry.impairment(table).map_err(|p| p.under(&format!("impairments.{i}"))))
            .collect();
        let jitter = self.jitter.map(JitterText::resolve).transpose().map_err(|p| p.under("jitter"))?;
        let medium = MediumConfig {
            one_way_delay,
            jitter: jitter.flatten(),
            outages: outages?,
            loss,
            deliver_damaged: !framing.checks(),
        };
        Ok(DirectionConfig { queue, framing, rate, channels, noise, medium, impairments: impairments? })
    }

    fn has_rate(&self) -> bool {
        self.rate.is_some() || self.rate_schedule.is_some() || self.rate_trace.is_some() || self.bundle.is_some()
    }

    /// As it is stated, or from where everything is.
    fn delay(&self) -> Result<Option<Duration>, KeyProblem> {
        let place = match (self.one_way_delay, &self.geostationary) {
            (delay, None) => return Ok(delay),
            (None, Some(place)) => place,
            (Some(_), Some(_)) => {
                return Err(KeyProblem::new("geostationary", "allowed: only one of one_way_delay and geostationary"));
            }
        };
        let site = |key: &str, (latitude, longitude): (f64, f64)| {
            if (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude) {
                return Ok(Site { latitude, longitude });
            }
            let what = format!("[{latitude}, {longitude}] is no place; allowed: [-90 to 90, -180 to 180], in degrees");
            Err(KeyProblem::new(format!("geostationary.{key}"), what))
        };
        if !(-180.0..=180.0).contains(&place.longitude) {
            let what = format!("{} is no longitude; allowed: -180 to 180 degrees", place.longitude);
            return Err(KeyProblem::new("geostationary.longitude", what));
        }
        let (hub, terminal) = (site("hub", place.hub)?, site("terminal", place.terminal)?);
        let delay = geostationary::one_way_delay(hub, terminal, place.longitude);
        let hidden = "the satellite is below the horizon of a site; allowed: sites that see it";
        let delay = delay.ok_or_else(|| KeyProblem::new("geostationary", hidden))?;
        Ok(Some(delay + place.equipment.unwrap_or_default()))
    }

    fn resolve_rate(&self) -> Result<(RateSchedule, usize), KeyProblem> {
        if let (Some(trace), None, None, None) = (&self.rate_trace, self.rate, &self.rate_schedule, &self.bundle) {
            let bin = trace.bin.unwrap_or(Duration::from_millis(100));
            let schedule = trace::rate_schedule(&trace.lines, bin);
            return Ok((schedule.map_err(|what| KeyProblem::new("rate_trace", what))?, 1));
        }
        match (self.rate, &self.rate_schedule, &self.bundle) {
            (Some(rate), None, None) if self.rate_trace.is_none() => {
                if rate.bps == 0 {
                    return Err(KeyProblem::new("rate", "0 bit/s carries nothing; allowed: 1 bit/s or more"));
                }
                Ok((RateSchedule::constant(rate), 1))
            }
            (None, Some(schedule), None) => {
                let starts = schedule.steps.iter().map(|step| step.at);
                check_starts(starts, schedule.repeat).map_err(|p| p.under("rate_schedule"))?;
                if schedule.steps.iter().all(|step| step.rate.bps == 0) {
                    return Err(KeyProblem::new("rate_schedule.steps", "every rate is 0; at least one must be more"));
                }
                let steps = schedule.steps.iter().map(|step| (Instant::ZERO + step.at, step.rate)).collect();
                Ok((RateSchedule::steps(steps, schedule.repeat), 1))
            }
            (None, None, Some(bundle)) => {
                if !(1..=4096).contains(&bundle.channels) {
                    let what = format!("{} is out of range; allowed: 1 to 4096", bundle.channels);
                    return Err(KeyProblem::new("bundle.channels", what));
                }
                if bundle.rate.bps == 0 {
                    return Err(KeyProblem::new("bundle.rate", "0 bit/s carries nothing; allowed: 1 bit/s or more"));
                }
                Ok((RateSchedule::constant(bundle.rate), bundle.channels))
            }
            (None, None, None) => Err(missing("rate", RATE_ALLOWED)),
            _ => Err(KeyProblem::new("rate", "allowed: only one of rate, rate_schedule, rate_trace and bundle")),
        }
    }
}

/// Steps must start at zero, rise, and fit into the repeated round.
fn check_starts(starts: impl Iterator<Item = Duration>, repeat: Option<Duration>) -> Result<(), KeyProblem> {
    let mut last = None;
    for (i, at) in starts.enumerate() {
        match last {
            None if at > Duration::ZERO => {
                return Err(KeyProblem::new("steps.0.at", format!("{at}: the first step must start at \"0 s\"")));
            }
            Some(before) if at <= before => {
                let what = format!("{at} is not after the step before ({before}); steps must rise");
                return Err(KeyProblem::new(format!("steps.{i}.at"), what));
            }
            _ => last = Some(at),
        }
    }
    match (last, repeat) {
        (None, _) => Err(KeyProblem::new("steps", "is empty; allowed: at least one step")),
        (Some(last), Some(repeat)) if repeat <= last => {
            let what = format!("{repeat} ends before the last step starts ({last}); allowed: more than that");
            Err(KeyProblem::new("repeat", what))
        }
        _ => Ok(()),
    }
}

impl FramingText {
    fn resolve(self) -> Result<Framing, KeyProblem> {
        let one_of = |key: &str, value: Option<u64>, allowed: &[u64], default: u64| match value {
            None => Ok(default),
            Some(value) if allowed.contains(&value) => Ok(value),
            Some(value) => {
                let allowed: Vec<String> = allowed.iter().map(u64::to_string).collect();
                Err(KeyProblem::new(key, format!("{value} is out of range; allowed: {}", allowed.join(", "))))
            }
        };
        let ppp = |flags, address, protocol, fcs, bit_stuffing: Option<bool>| {
            Ok(Ppp {
                flag_bytes: one_of("flag_bytes", flags, &[1, 2], 1)?,
                address_control_bytes: one_of("address_control_bytes", address, &[0, 2], 2)?,
                protocol_bytes: one_of("protocol_bytes", protocol, &[1, 2], 2)?,
                fcs_bytes: one_of("fcs_bytes", fcs, &[2, 4], 2)?,
                bit_stuffing: bit_stuffing.unwrap_or(false),
            })
        };
        Ok(match self {
            FramingText::None {} => Framing::None,
            FramingText::Ppp { flag_bytes, address_control_bytes, protocol_bytes, fcs_bytes, bit_stuffing } => {
                Framing::Ppp(ppp(flag_bytes, address_control_bytes, protocol_bytes, fcs_bytes, bit_stuffing)?)
            }
            FramingText::AsyncPpp {
                flag_bytes,
                address_control_bytes,
                protocol_bytes,
                fcs_bytes,
                bits_per_byte,
                escape_map,
            } => Framing::AsyncPpp(AsyncPpp {
                frame: ppp(flag_bytes, address_control_bytes, protocol_bytes, fcs_bytes, None)?,
                bits_per_byte: one_of("bits_per_byte", bits_per_byte, &[9, 10, 11, 12], 10)?,
                escape_map: escape_map.unwrap_or(u32::MAX),
            }),
            FramingText::Sdlc { flag_bytes } => {
                Framing::Sdlc(Sdlc { flag_bytes: one_of("flag_bytes", flag_bytes, &[1, 2], 1)? })
            }
            FramingText::Ethernet { preamble_and_gap, minimum } => Framing::Ethernet(Ethernet {
                preamble_and_gap: preamble_and_gap.unwrap_or(true),
                minimum: minimum.unwrap_or(true),
            }),
            FramingText::Aal5 { llc } => Framing::Aal5(Aal5 { llc: llc.unwrap_or(true) }),
            FramingText::FrameRelay { address_bytes, trunk } => {
                if let Some(TrunkText { payload, overhead }) = &trunk {
                    for (key, size, allowed) in [("payload", payload, 1..=65_535), ("overhead", overhead, 0..=65_535)] {
                        if !allowed.contains(&size.bytes) {
                            let what = format!("{size}; allowed: {} B to {} B", allowed.start(), allowed.end());
                            return Err(KeyProblem::new(format!("trunk.{key}"), what));
                        }
                    }
                }
                Framing::FrameRelay(FrameRelay {
                    address_bytes: one_of("address_bytes", address_bytes, &[2, 3, 4], 2)?,
                    trunk: trunk.map(|trunk| (trunk.payload.bytes, trunk.overhead.bytes)),
                })
            }
        })
    }
}
