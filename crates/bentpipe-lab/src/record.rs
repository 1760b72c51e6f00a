//! The record: the one versioned JSON file that a run leaves.
//!
//! Times are seconds since the start of their case; quantities are base units (bits per second, bytes, seconds).
//! A field is only ever added; a reader ignores what it does not know, so old and new files load for ever.

use serde::{Deserialize, Serialize};

/// The `format` of every record.
pub const FORMAT: &str = "bentpipe-record";
/// The version written today. Raised only when an old reader would misunderstand the file.
pub const VERSION: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Always [`FORMAT`].
    pub format: String,
    /// See [`VERSION`].
    pub version: u32,
    /// Version of bentpipe that wrote the file.
    pub bentpipe: String,
    /// Wall-clock start of a live run, RFC 3339. Empty for a virtual run: it happens at no time and on any machine, and
    /// two runs of the same scenario leave the same record.
    pub created: String,
    /// `live` (real packets, wall clock) or `virtual` (simulated).
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
    /// The run was stopped by a signal; what had been measured is here.
    #[serde(default)]
    pub interrupted: bool,
    /// What a virtual run left out because only a live run can run commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// One per case, in order; a scenario without cases has one.
    pub cases: Vec<CaseRecord>,
}

/// The machine a run happened on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
pub struct CaseRecord {
    /// The case's name; the scenario's title when it has no cases.
    pub name: String,
    /// How long the case ran, in seconds.
    pub seconds: f64,
    /// Whether the figures can be trusted.
    pub validity: Validity,
    /// What was asked of each host's stack, what its kernel says, what was seen on the wire.
    pub settings: Vec<Setting>,
    /// What the users' programs did.
    pub workloads: Vec<WorkloadRecord>,
    /// What each direction of each link carried.
    pub links: Vec<LinkRecord>,
    /// How late packets left the emulator. Absent in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// Samples of the kernel's TCP state (as `ss -ti` shows it), or of the simulated hosts' in a virtual run.
    #[serde(default)]
    pub tcp_samples: Vec<TcpFlowSamples>,
    /// TCP connections as seen on the wire at the sites' ports.
    #[serde(default)]
    pub flows: Vec<FlowRecord>,
    /// With `--compare gateway`: the name of the scenario's case that this is half of. The half without gateways comes
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<String>,
    /// Gateway pairs that stood in the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayRecord>,
    /// Things a reader must know (an assumption, a substitution, whose TCP faced the link).
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Whether a case's figures can be trusted, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// No limit was broken.
    pub valid: bool,
    /// Each broken limit, as a sentence.
    #[serde(default)]
    pub reasons: Vec<String>,
}

/// One setting of one host's TCP, three ways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The site.
    pub host: String,
    /// The key under `[hosts.X.tcp]`.
    pub name: String,
    /// What the scenario (or its preset) asked for.
    pub asked: String,
    /// What the kernel reports it set; absent where the emulator's port holds the value, and in virtual runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// What its packets showed; absent when nothing showed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// `seen` contradicts `asked`.
    #[serde(default)]
    pub broken: bool,
}

/// What one workload did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    /// The workload's name.
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
    /// The objective as the scenario states it ("within 10 s"), and whether it was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// Single numbers: goodput, completion time, loss, …
    pub measurements: Vec<Measurement>,
    /// Numbers over time.
    #[serde(default)]
    pub series: Vec<Series>,
    /// For `command`: what ran and how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandRecord>,
}

/// An objective and its verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// As the scenario states it, such as `within 10 s`.
    pub text: String,
    /// Whether it was met; absent when the workload was cut off before that could be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// One number with its unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// `goodput`, `completion_time`, `rtt_median`, …
    pub name: String,
    /// `bit/s`, `s`, `B`, `1` for ratios and counts.
    pub unit: String,
    /// The value.
    pub value: f64,
}

/// Numbers over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// `goodput`, `rtt`, `queue`, …
    pub name: String,
    /// Unit of the second number of each point.
    pub unit: String,
    /// (seconds since the case's start, value).
    pub points: Vec<(f64, f64)>,
}

/// A `command` workload's program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// The command line.
    pub command: String,
    /// Exit status, 128 + signal when killed; absent when it was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// What it printed, cut to a limit that is said in the text when it applied.
    pub stdout: String,
    /// What it printed as errors.
    pub stderr: String,
}

/// What one link did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// The link's name in the scenario.
    pub name: String,
    /// The catalogue entry or file it came from.
    pub kind: String,
    /// One line on what it is.
    pub summary: String,
    /// Forward first, then one return a terminal.
    pub directions: Vec<DirectionRecord>,
    /// For a circuit: calls and airtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<CircuitRecord>,
}

/// What one direction of a link did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// Packets and bytes through one direction. offered = dropped + sent + still queued;
/// sent × receivers = delivered + damaged + lost + in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets handed to the queue.
    pub offered_packets: u64,
    /// Their bytes, framing not included.
    pub offered_bytes: u64,
    /// Packets the full queue refused.
    pub dropped_packets: u64,
    /// Packets the transmitter sent.
    pub sent_packets: u64,
    /// Bytes the transmitter sent, framing included, rounded up.
    pub link_bytes: u64,
    /// Packets with bit errors that the framing's check discarded.
    pub damaged_packets: u64,
    /// Packets delivered with bit errors (no check on this framing).
    #[serde(default)]
    pub delivered_damaged_packets: u64,
    /// Bits inverted by the medium.
    pub bit_errors: u64,
    /// Packets lost as a whole: packet loss, outage, a lost circuit.
    pub lost_packets: u64,
    /// Packets delivered.
    pub delivered_packets: u64,
    /// Their bytes, framing not included.
    pub delivered_bytes: u64,
    /// Longest queue, in bytes.
    pub queue_bytes_max: u64,
}

/// A circuit's calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CircuitRecord {
    /// Calls set up.
    pub calls: u64,
    /// Calls that a switch ended because of errors.
    pub calls_lost: u64,
    /// Time spent setting up, in seconds; of several calls, added up.
    pub setting_up: f64,
    /// Time on air, in seconds; of several calls, added up.
    pub on_air: f64,
    /// Cost, in the catalogue's currency; absent when the link states none.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayRecord {
    /// The link's name in the scenario.
    pub link: String,
    /// What both were told: key and value.
    pub settings: Vec<(String, String)>,
    /// The hub's side, then the terminal's.
    pub sides: Vec<GatewaySideRecord>,
}

/// One gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewaySideRecord {
    /// The gateway's own site.
    pub site: String,
    /// The scenario's site that it stands before.
    pub before: String,
    /// What it did: `link_bytes` (sent, framing included), `delivered_bytes` (of streams, that arrived at the other),
    /// `packets_sent_again`, `compression_factor`, …
    pub measurements: Vec<Measurement>,
    /// What it said: seconds, text.
    #[serde(default)]
    pub notices: Vec<(f64, String)>,
}

/// How late packets left, wall time minus model time, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Packets measured.
    pub packets: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Worst.
    pub worst: f64,
    /// The limit on the 99th percentile and on the worst.
    pub limit_p99: f64,
    /// The limit on the worst.
    pub limit_worst: f64,
    /// Packets lost between a host and the emulator (its ring was full); any makes the case invalid.
    pub missed_packets: u64,
    /// Histogram: (upper edge in seconds, packets).
    pub histogram: Vec<(f64, u64)>,
    /// The worst hundred: (seconds since the case's start, lateness).
    pub worst_hundred: Vec<(f64, f64)>,
}

/// Its host's view of one TCP connection over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpFlowSamples {
    /// The site whose kernel (or simulated stack) was asked.
    pub host: String,
    /// `local address:port → remote address:port`.
    pub flow: String,
    /// Congestion control in force.
    pub congestion_control: String,
    /// cwnd (segments), ssthresh, srtt (s), rto (s), retransmissions, unacknowledged segments, delivery rate (bit/s).
    pub series: Vec<Series>,
}

/// One TCP connection as seen at a site's port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

impl Record {
    /// The record as pretty JSON with a final newline.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// Reads a record, of this version or an older one.
    pub fn from_json(text: &str) -> Result<Record, RecordError> {
        let record: Record = serde_json::from_str(text).map_err(|e| RecordError::NotARecord(e.to_string()))?;
        if record.format != FORMAT {
            return Err(RecordError::NotARecord(format!("\"format\" is {:?}, not {FORMAT:?}", record.format)));
        }
        if record.version > VERSION {
            return Err(RecordError::TooNew { found: record.version });
        }
        Ok(record)
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
