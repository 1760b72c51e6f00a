//! A scenario as it stands in its file.

use bentpipe_net::distribution::Drawn;
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, Percent};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use toml::Table;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioText {
    pub title: String,
    #[serde(default = "default_seed")]
    pub seed: u64,
    pub duration: Option<Duration>,
    pub lateness: Option<LatenessText>,
    #[serde(default)]
    pub links: BTreeMap<String, Table>,
    #[serde(default)]
    pub gateways: BTreeMap<String, Table>,
    #[serde(default)]
    pub hosts: BTreeMap<String, HostText>,
    #[serde(default)]
    pub services: Vec<Table>,
    #[serde(default)]
    pub workloads: Vec<Table>,
    #[serde(default)]
    pub cases: Vec<CaseText>,
    #[serde(default)]
    pub axes: Vec<AxisText>,
    pub seeds: Option<u32>,
    #[serde(default)]
    pub assumptions: BTreeMap<String, String>,
}

fn default_seed() -> u64 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatenessText {
    pub p99: Option<Duration>,
    pub worst: Option<Duration>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostText {
    pub role: Option<RoleText>,
    pub tcp: Option<Table>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleText {
    Host,
    Router,
    Bridge,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseText {
    pub name: String,
    #[serde(default)]
    pub set: Table,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisText {
    pub name: String,
    pub keys: Vec<String>,
    pub values: String,
    pub cases: Option<Vec<String>>,
}

/// The keys of `[[workloads]]` that every kind has.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadText {
    pub name: Option<String>,
    pub app: String,
    #[serde(default)]
    pub start: Duration,
    pub repeat: Option<RepeatText>,
    pub pause: Option<Drawn<Duration>>,
    pub copies: Option<u32>,
    pub spread: Option<Duration>,
    #[serde(default)]
    pub background: bool,
    pub objective: Option<ObjectiveText>,
}

/// A number of runs, or `"until the end"`.
#[derive(Clone, Copy, Debug)]
pub enum RepeatText {
    Times(i64),
    UntilTheEnd,
}

impl<'de> Deserialize<'de> for RepeatText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::Integer(times) => Ok(RepeatText::Times(times)),
            toml::Value::String(text) if text == UNTIL_THE_END => Ok(RepeatText::UntilTheEnd),
            other => Err(D::Error::custom(format!("{other} is neither; allowed: a number, or {UNTIL_THE_END:?}"))),
        }
    }
}

/// The value of `repeat` for a workload that goes on for the case's `duration`.
pub const UNTIL_THE_END: &str = "until the end";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveText {
    pub within: Option<Duration>,
    pub goodput: Option<BitRate>,
    pub loss: Option<Percent>,
}
