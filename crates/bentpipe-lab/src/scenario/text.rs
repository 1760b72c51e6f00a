//! A scenario as it stands in its file.

use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, DataSize, Percent};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Table;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioText {
    pub title: String,
    #[serde(default = "usual_seed")]
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
    pub services: Vec<ServiceText>,
    #[serde(default)]
    pub workloads: Vec<WorkloadText>,
    #[serde(default)]
    pub cases: Vec<CaseText>,
    #[serde(default)]
    pub axes: Vec<AxisText>,
    pub seeds: Option<u32>,
    #[serde(default)]
    pub assumptions: BTreeMap<String, String>,
}

fn usual_seed() -> u64 {
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

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceText {
    pub site: String,
    pub app: Option<ServiceApp>,
    pub port: Option<u16>,
    pub content: Option<String>,
    pub command: Option<CommandText>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceApp {
    Http,
    Ftp,
    Sink,
    Source,
}

/// A shell line, or a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum CommandText {
    Line(String),
    Words(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppText {
    Ping,
    Bulk,
    Ftp,
    #[serde(alias = "http")]
    Page,
    Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectionText {
    Download,
    Upload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum HttpText {
    #[serde(rename = "1.0")]
    Http10,
    #[serde(rename = "1.1")]
    Http11,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadText {
    pub name: Option<String>,
    pub app: AppText,
    pub client: String,
    pub server: Option<String>,
    pub direction: Option<DirectionText>,
    #[serde(default)]
    pub start: Duration,
    pub repeat: Option<u32>,
    pub pause: Option<Duration>,
    pub copies: Option<u32>,
    pub spread: Option<Duration>,
    #[serde(default)]
    pub background: bool,
    pub objective: Option<ObjectiveText>,
    // What only some programs know; which is checked by name.
    pub bytes: Option<DataSize>,
    pub seconds: Option<Duration>,
    pub count: Option<u32>,
    pub interval: Option<Duration>,
    pub files: Option<u32>,
    pub sessions: Option<u32>,
    pub split: Option<bool>,
    pub objects: Option<Vec<DataSize>>,
    pub content: Option<String>,
    pub connections: Option<u32>,
    pub http: Option<HttpText>,
    pub path: Option<String>,
    pub port: Option<u16>,
    pub timeout: Option<Duration>,
    pub command: Option<CommandText>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveText {
    pub within: Option<Duration>,
    pub goodput: Option<BitRate>,
    pub loss: Option<Percent>,
}
