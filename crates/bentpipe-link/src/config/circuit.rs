//! `[circuit]` of a link.

use crate::circuit::{CircuitConfig, GivesUp, Stage};
use crate::demand::{self, OnDemand};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitErrorRatio, Percent};
use serde::{Deserialize, Serialize};
use toml::Table;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CircuitText {
    #[serde(default)]
    stages: Vec<StageText>,
    idle_hang_up: Option<Duration>,
    charged_from: Option<String>,
    gives_up: Option<GivesUpText>,
    on_demand: Option<OnDemandText>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDemandText {
    least: Option<usize>,
    at_once: Option<usize>,
    connects_late: Option<Duration>,
    late_share: Option<Percent>,
    target: Option<Percent>,
    history: Option<Duration>,
    interval: Option<Duration>,
    call_after: Option<Duration>,
    release_after: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StageText {
    name: String,
    time: Duration,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivesUpText {
    above: BitErrorRatio,
    after: Duration,
}

/// Keys of old files, and what took their place in the link's tariff.
const MOVED: [(&str, &str); 3] = [
    ("cost_per_minute", "time = { price = \"1.44\", per = \"1 min\" }"),
    ("currency", "currency = \"USD\""),
    ("charging_increment", "time = { price = \"1.44\", first = \"20 s\" }"),
];

impl CircuitText {
    /// Refuses keys of old files by the key that took their place.
    pub(super) fn check_moved(circuit: &Table) -> Result<(), KeyProblem> {
        match MOVED.iter().find(|(key, _)| circuit.contains_key(*key)) {
            None => Ok(()),
            Some((key, now)) => {
                let what = format!("is now a part of the link's [tariff]; allowed there: such as {now}");
                Err(KeyProblem::new(*key, what))
            }
        }
    }

    /// `channels`: of the larger bundle, if there is one.
    pub(super) fn resolve(self, channels: Option<usize>) -> Result<CircuitConfig, KeyProblem> {
        let charged_from_stage = match &self.charged_from {
            None => None,
            Some(name) => Some(self.stages.iter().position(|stage| stage.name == *name).ok_or_else(|| {
                let stages: Vec<&str> = self.stages.iter().map(|stage| stage.name.as_str()).collect();
                KeyProblem::new("charged_from", format!("there is no stage {name:?}; allowed: {}", stages.join(", ")))
            })?),
        };
        Ok(CircuitConfig {
            stages: self.stages.into_iter().map(|stage| Stage { name: stage.name, time: stage.time }).collect(),
            idle_hang_up: self.idle_hang_up,
            charged_from_stage,
            gives_up: self.gives_up.map(|switch| GivesUp { above: switch.above, after: switch.after }),
            on_demand: match (self.on_demand, channels) {
                (None, _) => None,
                (Some(rule), Some(channels)) => Some(rule.resolve(channels).map_err(|p| p.under("on_demand"))?),
                (Some(_), None) => {
                    let what = "needs channels to call; allowed: with bundle = { channels, rate }";
                    return Err(KeyProblem::new("on_demand", what));
                }
            },
        })
    }
}

impl OnDemandText {
    fn resolve(self, channels: usize) -> Result<OnDemand, KeyProblem> {
        let count = |key: &str, value: Option<usize>| match value.unwrap_or(1) {
            // An axis may make the bundle smaller than what stays up of a larger one.
            value if value >= 1 => Ok(value.min(channels)),
            _ => Err(KeyProblem::new(key, format!("0 carries nothing; allowed: 1 to {channels}"))),
        };
        let target = self.target.map_or(OnDemand::TARGET, Percent::fraction);
        if !(target > 0.0 && target < 1.0) {
            return Err(KeyProblem::new("target", "no load is outside it; allowed: more than 0 %, less than 100 %"));
        }
        let history = self.history.unwrap_or(OnDemand::HISTORY);
        let interval = self.interval.unwrap_or(OnDemand::INTERVAL.min(history));
        if interval == Duration::ZERO || interval > history || history.ns / interval.ns > demand::POLLS_MAX {
            let what = format!(
                "{interval} in a history of {history}; allowed: 1 to {} intervals in the history",
                demand::POLLS_MAX
            );
            return Err(KeyProblem::new("interval", what));
        }
        Ok(OnDemand {
            channels,
            least: count("least", self.least)?,
            at_once: count("at_once", self.at_once)?,
            connects_late: self.connects_late.unwrap_or_default(),
            late_share: self.late_share.map_or(1.0, Percent::fraction),
            target,
            history,
            interval,
            call_after: self.call_after.unwrap_or(OnDemand::CALL_AFTER),
            release_after: self.release_after.unwrap_or(OnDemand::RELEASE_AFTER),
        })
    }
}
