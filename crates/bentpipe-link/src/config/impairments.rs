//! Noise, loss, outages and jitter in link files.

use super::check_starts;
use crate::impairment::{ImpairmentSpec, LossProcess, Outage, PacketLoss};
use crate::jitter::{Delays, Jitter, JitterConfig};
use crate::noise::{NoiseProcess, RatioSchedule, THUNDERSTORM, WANDER, WANDER_DOWNLINK};
use bentpipe_net::distribution::Distribution;
use bentpipe_net::problem::{KeyProblem, read};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitErrorRatio, Percent};
use serde::{Deserialize, Serialize};
use toml::Table;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoiseText {
    ratio: Option<BitErrorRatio>,
    background: Option<BitErrorRatio>,
    burst: Option<BitErrorRatio>,
    duration: Option<Duration>,
    gap: Option<Duration>,
    profile: Option<ProfileText>,
    dwell: Option<Duration>,
    steps: Option<Vec<NoiseStepText>>,
    repeat: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProfileText {
    Thunderstorm,
    Wander,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoiseStepText {
    at: Duration,
    ratio: BitErrorRatio,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LossText {
    share: Percent,
    burst: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OutageText {
    at: Duration,
    lasts: Duration,
    every: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JitterText {
    least: Option<Duration>,
    most: Option<Duration>,
    distribution: Option<DistributionText>,
    mean: Option<Duration>,
    deviation: Option<Duration>,
    lines: Option<String>,
    every: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DistributionText {
    Normal,
    Gamma,
}

/// Shortest time that a draw holds for.
const EVERY_MIN: Duration = Duration::from_millis(10);
/// Delays of a trace.
const DELAYS_MAX: usize = 1_000_000;
/// Longest delay of a trace, in milliseconds.
const DELAY_MS_MAX: f64 = 60_000.0;

impl NoiseText {
    pub(super) fn resolve(self) -> Result<RatioSchedule, KeyProblem> {
        const ALLOWED: &str =
            "allowed: ratio; or background, burst, duration and gap; or profile and dwell; or steps (and repeat)";
        let is = |some: [bool; 9]| {
            some == [
                self.ratio.is_some(),
                self.background.is_some(),
                self.burst.is_some(),
                self.duration.is_some(),
                self.gap.is_some(),
                self.profile.is_some(),
                self.dwell.is_some(),
                self.steps.is_some(),
                self.repeat.is_some(),
            ]
        };
        const O: bool = false;
        const I: bool = true;
        let not_zero = |key: &str, time: Duration| match time.ns {
            0 => Err(KeyProblem::new(key, "must be longer than \"0 s\"")),
            _ => Ok(time),
        };
        if let (Some(ratio), true) = (self.ratio, is([I, O, O, O, O, O, O, O, O])) {
            return Ok(RatioSchedule::Constant(ratio));
        }
        if let (Some(background), Some(burst), Some(duration), Some(gap), true) =
            (self.background, self.burst, self.duration, self.gap, is([O, I, I, I, I, O, O, O, O]))
        {
            let (duration, gap) = (not_zero("duration", duration)?, not_zero("gap", gap)?);
            return Ok(RatioSchedule::bursts(background, burst, duration, gap));
        }
        if let (Some(profile), Some(dwell), true) = (self.profile, self.dwell, is([O, O, O, O, O, I, I, O, O])) {
            let dwell = not_zero("dwell", dwell)?;
            let (ratios, floor) = match profile {
                ProfileText::Thunderstorm => (THUNDERSTORM, 0.0),
                ProfileText::Wander => (WANDER, WANDER_DOWNLINK),
            };
            // Two independent sources of errors in a row: wrong if exactly one of them inverts the bit.
            let ratios: Result<Vec<_>, _> =
                ratios.iter().map(|up| BitErrorRatio::new(up + floor - 2.0 * up * floor)).collect();
            let ratios = ratios.map_err(|e| KeyProblem::new("profile", e.to_string()))?;
            return Ok(RatioSchedule::sequence(&ratios, dwell, false));
        }
        if let (Some(steps), true) = (&self.steps, is([O, O, O, O, O, O, O, I, self.repeat.is_some()])) {
            check_starts(steps.iter().map(|step| step.at), self.repeat)?;
            let steps = steps.iter().map(|step| (Instant::ZERO + step.at, step.ratio)).collect();
            return Ok(RatioSchedule::Steps { steps, repeat: self.repeat });
        }
        Err(KeyProblem::new("", ALLOWED))
    }
}

impl LossText {
    pub(super) fn resolve(self) -> Result<PacketLoss, KeyProblem> {
        let share = self.share.fraction();
        let Some(burst_mean) = self.burst else { return Ok(PacketLoss::independent(share)) };
        // The chain must be able to enter the bad state often enough: share ≤ burst / (burst + 1).
        let least = (share / (1.0 - share)).max(1.0);
        if !(burst_mean >= least && burst_mean.is_finite()) {
            let what = format!("a mean of {burst_mean} packets cannot make {}; allowed: {least} or more", self.share);
            return Err(KeyProblem::new("burst", what));
        }
        Ok(PacketLoss { share, burst_mean })
    }
}

impl JitterText {
    /// None: no jitter, `jitter = "0 s"`.
    pub(super) fn resolve(self) -> Result<Option<JitterConfig>, KeyProblem> {
        const ALLOWED: &str =
            "allowed: most (and least); or distribution, mean and deviation; or lines; each with every";
        if let Some(every) = self.every.filter(|every| *every < EVERY_MIN) {
            return Err(KeyProblem::new("every", format!("{every} is too short; allowed: {EVERY_MIN} or more")));
        }
        let distribution = match self {
            JitterText {
                least,
                most: Some(most),
                distribution: None,
                mean: None,
                deviation: None,
                lines: None,
                ..
            } => {
                let least = least.unwrap_or_default();
                if least > most {
                    return Err(KeyProblem::new("least", format!("{least} is above most, {most}")));
                }
                if most == Duration::ZERO {
                    return Ok(None);
                }
                Delays::Uniform { least, most }
            }
            JitterText {
                least: None,
                most: None,
                distribution: Some(kind),
                mean: Some(mean),
                deviation: Some(deviation),
                lines: None,
                ..
            } => {
                let seconds = (mean.as_secs_f64(), deviation.as_secs_f64());
                let made = match kind {
                    DistributionText::Normal => Distribution::normal(seconds.0, seconds.1),
                    DistributionText::Gamma => Distribution::gamma(seconds.0, seconds.1),
                };
                let what = || KeyProblem::new("deviation", "must be above 0, and so must the mean");
                Delays::Drawn(made.ok_or_else(what)?)
            }
            JitterText {
                least: None,
                most: None,
                distribution: None,
                mean: None,
                deviation: None,
                lines: Some(ref lines),
                ..
            } => Delays::Trace(read_delays(lines)?.into()),
            _ => return Err(KeyProblem::new("", ALLOWED)),
        };
        Ok(Some(JitterConfig { distribution, every: self.every }))
    }
}

/// The delays of a trace: a number of milliseconds a line; empty lines and comments after `#` do not count.
fn read_delays(lines: &str) -> Result<Vec<Duration>, KeyProblem> {
    let mut delays = Vec::new();
    for (number, line) in lines.lines().enumerate() {
        let text = line.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let delay = text.parse::<f64>().ok().filter(|ms| (0.0..=DELAY_MS_MAX).contains(ms));
        let Some(ms) = delay else {
            let what =
                format!("line {}: {text:?} is no delay; allowed: 0 to {DELAY_MS_MAX}, in milliseconds", number + 1);
            return Err(KeyProblem::new("lines", what));
        };
        delays.push(Duration { ns: (ms * 1e6) as u64 });
        if delays.len() > DELAYS_MAX {
            return Err(KeyProblem::new("lines", format!("too many delays; allowed: up to {DELAYS_MAX}")));
        }
    }
    if delays.is_empty() {
        return Err(KeyProblem::new("lines", "no delay; allowed: a number of milliseconds a line"));
    }
    Ok(delays)
}

impl OutageText {
    pub(super) fn resolve(self) -> Result<Outage, KeyProblem> {
        if self.every.is_some_and(|every| every <= self.lasts) {
            let what = "must be longer than the outage lasts, or nothing would ever get through";
            return Err(KeyProblem::new("every", what));
        }
        Ok(Outage { at: Instant::ZERO + self.at, lasts: self.lasts, every: self.every })
    }
}

pub(crate) fn read_noise(keys: Table) -> Result<ImpairmentSpec, KeyProblem> {
    let schedule = read::<NoiseText>(keys)?.resolve()?;
    Ok(ImpairmentSpec::new("noise", move |random| Box::new(NoiseProcess::new(schedule.clone(), random))))
}

pub(crate) fn read_loss(keys: Table) -> Result<ImpairmentSpec, KeyProblem> {
    let loss = read::<LossText>(keys)?.resolve()?;
    Ok(ImpairmentSpec::new("loss", move |random| Box::new(LossProcess::new(loss, random))))
}

pub(crate) fn read_outage(keys: Table) -> Result<ImpairmentSpec, KeyProblem> {
    let outage = read::<OutageText>(keys)?.resolve()?;
    Ok(ImpairmentSpec::new("outage", move |_| Box::new(outage)))
}

pub(crate) fn read_jitter(keys: Table) -> Result<ImpairmentSpec, KeyProblem> {
    let none = || KeyProblem::new("most", "a jitter of 0 is none; allowed: more than 0 s");
    let config = read::<JitterText>(keys)?.resolve()?.ok_or_else(none)?;
    Ok(ImpairmentSpec::new("jitter", move |random| Box::new(Jitter::new(config.clone(), random))))
}
