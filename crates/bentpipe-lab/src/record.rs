//! The record: the one versioned JSON file that a run leaves.
//!
//! Times are seconds since the start of their case; quantities are base units (bits per second, bytes, seconds).
//! A field is only ever added; a reader ignores what it does not know, so old and new files load for ever. Files of
//! version 1 are converted as they are read ([`v1`]). `schema/` of this crate has a JSON Schema of each version.

mod bill;
mod gateway;
mod json;
mod network;
#[cfg(test)]
mod tests;
pub mod v1;
mod words;

pub use bill::{BillRecord, CallRecord, ConnectionShare, Payer, WorkloadShare};
pub use gateway::{
    GatewayEvent, GatewayRecord, GatewaySetting, GatewaySideRecord, PairLoss, RefusedBecause, TimedEvent,
};
pub use network::{
    CircuitChange, CircuitRecord, Counters, DirectionRecord, Endpoint, Flow, FlowRecord, Lateness, LinkRecord,
    TcpFlowSamples,
};
pub use words::{Better, Bound, CircuitState, DataDirection, Mode, Observed, Role, Status, Unit};

use bentpipe_apps::kind;
use bentpipe_net::quantity::Quantity;
use serde::{Deserialize, Serialize};

/// The `format` of every record.
pub const FORMAT: &str = "bentpipe-record";
/// The version written today. Raised only when an old reader would misunderstand the file.
pub const VERSION: u32 = 2;

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Record {
    /// Always [`FORMAT`].
    pub format: String,
    /// See [`VERSION`].
    pub version: u32,
    /// Version of bentpipe that wrote the file.
    pub bentpipe: String,
    /// Wall-clock start of a live run, RFC 3339. Absent in a virtual run: it happens at no time and on any machine, and
    /// two runs of the same scenario leave the same record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The world: real packets or simulated ones.
    pub mode: Mode,
    /// Where a live run happened. Absent in a virtual run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// The scenario's title.
    pub title: String,
    /// The scenario's file name.
    pub scenario_file: String,
    /// The scenario's text as it was read.
    pub scenario: String,
    /// Overrides from the command line, `key=value`.
    #[serde(default)]
    pub overrides: Vec<String>,
    /// The cases chosen with `--case`; empty: all of the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen_cases: Vec<String>,
    /// The seed of every random stream.
    pub seed: u64,
    /// Every case ran to its end.
    pub complete: bool,
    /// The run was stopped by a signal; what had been measured is here.
    #[serde(default)]
    pub interrupted: bool,
    /// Commands that a virtual run left out, because only a live run can run them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Names of the workloads left out that have an objective: it is not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_objectives: Vec<String>,
    /// One per case, in order; a scenario without cases has one.
    pub cases: Vec<CaseRecord>,
}

/// The machine a run happened on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Machine {
    /// `Linux 6.18.44 x86_64`.
    pub kernel: String,
    /// Processor cores available.
    pub cores: u32,
    /// Run as root, or inside an own user namespace.
    pub privileged: bool,
}

/// One case of a scenario: the same links and hosts with its own settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CaseRecord {
    /// The case's name; the scenario's title when it has no cases.
    pub name: String,
    /// The case's duration, in seconds.
    pub seconds: f64,
    /// The verdict on the results.
    pub validity: Validity,
    /// TCP settings of each host: as configured, as its kernel reports them, as observed on the wire.
    pub settings: Vec<Setting>,
    /// Runs of workloads, in the order of their ends.
    pub workloads: Vec<WorkloadRecord>,
    /// Links.
    pub links: Vec<LinkRecord>,
    /// Lateness of the packets that left the emulator. Absent in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// Samples of the kernel's TCP state (as `ss -ti` shows it), or of the simulated hosts' in a virtual run.
    #[serde(default)]
    pub tcp_samples: Vec<TcpFlowSamples>,
    /// TCP connections as seen on the wire at the sites' ports.
    #[serde(default)]
    pub flows: Vec<FlowRecord>,
    /// With `--compare gateway`: which half of which case this is. The half without gateways comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// Gateway pairs that stood in the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayRecord>,
    /// Things a reader must know (an assumption, a substitution, whose TCP faced the link).
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One half of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Compared {
    /// The name of the scenario's case.
    pub case: String,
    /// This half has gateways.
    pub gateways: bool,
}

/// The verdict on a case's results, and its reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Validity {
    /// No limit was broken.
    pub valid: bool,
    /// Each broken limit, as a sentence.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// One setting of one host's TCP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Setting {
    /// The site.
    pub host: String,
    /// The key under `[hosts.X.tcp]`.
    pub name: String,
    /// The scenario's (or its preset's) value.
    pub configured: String,
    /// The value that the kernel reports; absent where the emulator's port holds the value, and in virtual runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The packets' evidence; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// `observed` contradicts `configured`.
    #[serde(default)]
    pub broken: bool,
}

/// One run of one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct WorkloadRecord {
    /// The workload's name.
    pub name: String,
    /// Which of its copies, from 1; absent where it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<u32>,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// The kind of workload, as `app` in a scenario: `ping`, `bulk`, `ftp`, `page`, `command`, …
    pub app: String,
    /// The sites that take part, in the order of the kind's roles.
    pub parties: Vec<Party>,
    /// The direction of its data; absent where it has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<DataDirection>,
    /// When it started.
    pub start: f64,
    /// When it ended; absent when it was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<f64>,
    /// Its end.
    pub status: Status,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The scenario's objective, and whether it was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Single numbers; a quantity occurs once.
    pub measurements: Vec<Measurement>,
    /// Numbers over time; a quantity occurs once.
    #[serde(default)]
    pub series: Vec<Series>,
    /// What a report shows of it, as its kind says.
    #[serde(default, skip_serializing_if = "Shown::is_empty")]
    pub shown: Shown,
    /// For `command`: the program and how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandRecord>,
}

/// What a report shows of a workload, by identifiers of quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Shown {
    /// The one number that says most: the first of these that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub main: Vec<String>,
    /// Measurements that are compared without and with a gateway pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<String>,
    /// Series that are drawn first, and compared between cases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<String>,
}

/// A site's part in a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Party {
    /// Its role.
    pub role: Role,
    /// The site.
    pub site: String,
}

/// An objective and its verdict: a quantity must stay on one side of a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Objective {
    /// The measurement that is judged.
    pub quantity: String,
    /// Which side of the limit is good.
    pub bound: Bound,
    /// The limit.
    pub limit: f64,
    /// Its unit.
    pub unit: Unit,
    /// It was met; absent when the workload was cut off before that could be decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Measurement {
    /// Identifier of what was measured: `goodput`, `completion_time`, `rtt_median`, …
    pub quantity: String,
    /// Its unit.
    pub unit: Unit,
    /// Which direction is good.
    #[serde(default, skip_serializing_if = "Better::is_neither")]
    pub better: Better,
    /// The value.
    pub value: f64,
}

/// Numbers over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Series {
    /// Identifier of what was measured: `goodput`, `rtt`, `queue`, …
    pub quantity: String,
    /// Unit of the second number of each point.
    pub unit: Unit,
    /// (seconds since the case's start, value), in order of time.
    pub points: Vec<(f64, f64)>,
    /// Number of points that were measured, where `points` is a selection of them: the least and the largest value of each
    /// of equally long parts, the first point and the last. Absent where it has all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points_measured: Option<u64>,
}

/// The program of a `command` workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CommandRecord {
    /// The command line.
    pub command: String,
    /// Exit status, 128 + signal when killed; absent when it was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// Its standard output, cut to a limit that the text states where it applied.
    pub stdout: String,
    /// Its standard error, cut in the same way.
    pub stderr: String,
}

impl Record {
    /// The record as JSON with a final newline: a field a line, but for series, measurements and the like.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        json::text(self)
    }

    /// Reads a record of this version, or an older one, which is converted.
    pub fn from_json(text: &str) -> Result<Record, RecordError> {
        /// The fields by which a file says what it is.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let not = |error: serde_json::Error| {
            let is_data = error.is_data();
            let place = || format!("not JSON from line {}, column {} on", error.line(), error.column());
            RecordError::NotARecord(if is_data { error.to_string() } else { place() })
        };
        let head: Head = serde_json::from_str(text).map_err(not)?;
        if head.format != FORMAT {
            return Err(RecordError::NotARecord(format!("\"format\" is {:?}, not {FORMAT:?}", head.format)));
        }
        match head.version {
            0 => Err(RecordError::NotARecord(format!("\"version\" is 0; allowed: 1 to {VERSION}"))),
            1 => v1::upgrade(serde_json::from_str(text).map_err(not)?).map_err(RecordError::NotARecord),
            VERSION => serde_json::from_str(text).map_err(not),
            found => Err(RecordError::TooNew { found }),
        }
    }
}

impl WorkloadRecord {
    /// The name with the number of the copy: `web`, `web (2)`. Unique among the workloads of a case, but for repetitions.
    #[must_use]
    pub fn label(&self) -> String {
        label(&self.name, self.copy)
    }

    /// The measurement of this quantity.
    #[must_use]
    pub fn measurement(&self, quantity: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|m| m.quantity == quantity)
    }
}

/// A workload's name with the number of its copy, for people.
#[must_use]
pub fn label(name: &str, copy: Option<u32>) -> String {
    copy.map_or_else(|| name.to_owned(), |copy| format!("{name} ({copy})"))
}

impl Shown {
    fn is_empty(&self) -> bool {
        *self == Shown::default()
    }
}

impl From<kind::Shown> for Shown {
    fn from(shown: kind::Shown) -> Shown {
        let names = |all: &[Quantity]| all.iter().map(|quantity| quantity.name.to_owned()).collect();
        Shown { main: names(shown.main), compared: names(shown.compared), series: names(shown.series) }
    }
}

impl Measurement {
    /// A measurement.
    pub fn new(quantity: impl Into<String>, unit: Unit, better: Better, value: f64) -> Measurement {
        Measurement { quantity: quantity.into(), unit, better, value }
    }
}

impl Series {
    /// A series.
    pub fn new(quantity: impl Into<String>, unit: Unit, points: Vec<(f64, f64)>) -> Series {
        Series { quantity: quantity.into(), unit, points, points_measured: None }
    }
}

/// Why a file is not a record this version reads.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not JSON, or not of the record's shape.
    #[error("not a bentpipe record: {0}")]
    NotARecord(String),
    /// Written by a later version.
    #[error("record version {found} is newer than this bentpipe reads (up to {VERSION}); use a newer bentpipe")]
    TooNew {
        /// The file's version.
        found: u32,
    },
}
