//! The words of a record: values with a fixed set of names, and texts made of them.

use super::Objective;
use bentpipe_net::time::Duration;
use bentpipe_net::units::BitRate;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The world of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// Real packets, wall clock.
    #[default]
    Live,
    /// Simulated packets, virtual time.
    Virtual,
}

/// The end of a run of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Everything that was asked for happened.
    Done,
    /// It failed; `error` says why.
    Failed,
    /// It was cut off before its end.
    #[default]
    Interrupted,
}

/// A site's part in a workload. Kinds of workload may have roles of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Connects.
    Client,
    /// Answers.
    Server,
    /// A role of another name.
    #[serde(untagged)]
    Other(String),
}

/// The direction of a workload's data, as its client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DataDirection {
    /// From the server to the client.
    Download,
    /// From the client to the server.
    Upload,
}

/// The unit of a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub enum Unit {
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// TCP segments.
    #[serde(rename = "segments")]
    Segments,
    /// A part of a whole, from 0 to 1.
    #[serde(rename = "share")]
    Share,
    /// A count, or any other number without a unit.
    #[serde(rename = "1")]
    Number,
    /// A unit of another name.
    #[serde(untagged)]
    Other(String),
}

/// Which direction of a measurement is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: a fact.
    #[default]
    Neither,
}

/// Which side of an objective's limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The limit or more.
    AtLeast,
    /// The limit or less.
    AtMost,
}

/// The packets' evidence of one TCP setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Observed {
    /// The largest window that was advertised.
    Window {
        /// In bytes.
        bytes: u64,
    },
    /// The most data that was unacknowledged.
    InFlight {
        /// In bytes.
        bytes: u64,
    },
    /// The most segments that were sent before the first acknowledgement.
    InitialBurst {
        /// In segments.
        segments: u64,
    },
    /// The largest packet that the offered MSS allows.
    PacketSize {
        /// In bytes.
        bytes: u64,
    },
    /// SYNs that offered an option.
    Offered {
        /// SYNs with the option.
        by: u64,
        /// All SYNs.
        syns: u64,
    },
    /// Segments received for each acknowledgement sent.
    SegmentsPerAck {
        /// To two decimals.
        segments: f64,
    },
}

/// The state of a circuit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CircuitState {
    /// A call is in a stage of its set-up.
    SettingUp {
        /// The stage's name.
        stage: String,
        /// With a call for each channel: the number of the channel, unless it is the first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<u64>,
    },
    /// The switch refused the set-up because of errors.
    Refused,
    /// The first call is up.
    Up,
    /// So many calls are up, one for each channel.
    ChannelsUp {
        /// Their number.
        channels: u64,
    },
    /// All calls have ended.
    Down,
    /// The switch cut all calls because of errors.
    Lost,
}

impl Role {
    /// The role of this name.
    #[must_use]
    pub fn named(name: &str) -> Role {
        match name {
            "client" => Role::Client,
            "server" => Role::Server,
            other => Role::Other(other.to_owned()),
        }
    }
}

impl From<&str> for Unit {
    /// The unit of this name in records.
    fn from(symbol: &str) -> Unit {
        match symbol {
            "bit/s" => Unit::BitsPerSecond,
            "s" => Unit::Seconds,
            "B" => Unit::Bytes,
            "segments" => Unit::Segments,
            "share" => Unit::Share,
            "1" => Unit::Number,
            other => Unit::Other(other.to_owned()),
        }
    }
}

impl Unit {
    /// Its name in records.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Unit::Share => "share",
            unit => unit.symbol(),
        }
    }

    /// As tables and sweeps' files write it: `bit/s`, `s`, `B`, …; `1` for shares and numbers.
    #[must_use]
    pub fn symbol(&self) -> &str {
        match self {
            Unit::BitsPerSecond => "bit/s",
            Unit::Seconds => "s",
            Unit::Bytes => "B",
            Unit::Segments => "segments",
            Unit::Share | Unit::Number => "1",
            Unit::Other(name) => name,
        }
    }
}

impl Better {
    /// Neither direction is good.
    #[must_use]
    pub fn is_neither(&self) -> bool {
        *self == Better::Neither
    }
}

impl Bound {
    /// The value is on the good side of the limit.
    #[must_use]
    pub fn allows(self, value: f64, limit: f64) -> bool {
        match self {
            Bound::AtLeast => value >= limit,
            Bound::AtMost => value <= limit,
        }
    }
}

impl Status {
    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Done => "done",
            Status::Failed => "failed",
            Status::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for DataDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DataDirection::Download => "download",
            DataDirection::Upload => "upload",
        })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = match &self.unit {
            Unit::BitsPerSecond => BitRate { bps: self.limit as u64 }.to_string(),
            Unit::Seconds => Duration::from_secs_f64(self.limit).to_string(),
            // Twelve digits: fewer than a double has, so that 5 % stays 5 %.
            Unit::Share => format!("{} %", (self.limit * 1e14).round() / 1e12),
            Unit::Number => self.limit.to_string(),
            unit => format!("{} {}", self.limit, unit.symbol()),
        };
        match (self.quantity.as_str(), self.bound) {
            ("completion_time", Bound::AtMost) => write!(f, "within {limit}"),
            ("goodput", Bound::AtLeast) => write!(f, "at least {limit}"),
            ("loss", Bound::AtMost) => write!(f, "at most {limit} lost"),
            (quantity, Bound::AtLeast) => write!(f, "{quantity} at least {limit}"),
            (quantity, Bound::AtMost) => write!(f, "{quantity} at most {limit}"),
        }
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Observed::Window { bytes } => write!(f, "at most {bytes} B advertised"),
            Observed::InFlight { bytes } => write!(f, "at most {bytes} B in flight"),
            Observed::InitialBurst { segments } => write!(f, "at most {segments} segments at first"),
            Observed::PacketSize { bytes } => write!(f, "MSS for packets of {bytes} B"),
            Observed::Offered { by, syns } => write!(f, "offered by {by} of {syns} SYNs"),
            Observed::SegmentsPerAck { segments } => write!(f, "an acknowledgement for {segments:.2} segments"),
        }
    }
}

impl fmt::Display for CircuitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CircuitState::SettingUp { stage, channel: None } => write!(f, "setting up: {stage}"),
            CircuitState::SettingUp { stage, channel: Some(channel) } => {
                write!(f, "setting up: {stage}, channel {channel}")
            }
            CircuitState::Refused => f.write_str("set-up refused by the switch"),
            CircuitState::Up => f.write_str("up"),
            CircuitState::ChannelsUp { channels: 1 } => f.write_str("1 channel up"),
            CircuitState::ChannelsUp { channels } => write!(f, "{channels} channels up"),
            CircuitState::Down => f.write_str("down"),
            CircuitState::Lost => f.write_str("lost"),
        }
    }
}
