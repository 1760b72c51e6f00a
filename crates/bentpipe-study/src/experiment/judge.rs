//! The verdicts. Each follows from the figures by the rules below; no file can state one.
//!
//! - `value`: *within* when |ours ÷ published − 1| is at most the tolerance, else *outside*. When half the width of our
//!   confidence interval is more than the tolerance, the figures *cannot be compared*: more runs are needed.
//! - `at_least`, `at_most`: *within* the published bound, or *outside*. When the bound stands for words (`because`), the
//!   verdict is *trend holds* or *outside*. Along an axis the bound must hold at every point. Where our confidence interval
//!   holds the bound and no point breaks it clearly, the figures *cannot be compared*: more runs are needed.
//! - `trend`, `peak`: two means are compared by their difference, whose half-width is √(h₁² + h₂²), that of independent
//!   means. *trend holds* when every comparison that the statement needs is clear, *outside* when one is clearly broken;
//!   where noise could turn one around the figures *cannot be compared*: more runs are needed.
//! - `cannot`: *cannot be compared*, with the reason.
//! - A workload that fails in every run is *outside*; a run that could not be done, or a measurement that the workload
//!   does not have, *cannot be compared*.

use super::engine::Outcome;
use super::grid::{plain, same_value};
use super::load::Experiment;
use super::published::{Check, Claim, Figure, Selection, Trend};
use crate::statistics::{Estimate, estimate, proportion};
use crate::sweep::grid::{Quantity, quantity};
use bentpipe_lab::record::Unit;
use bentpipe_lab::report::quantity as write;
use serde::Serialize;
use std::collections::BTreeMap;

/// Of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// The verdict on our value against the published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A number within its tolerance, or a bound that is kept.
    Within,
    /// Not so.
    Outside,
    /// The trend that the paper states in words holds.
    TrendHolds,
    /// Nothing can be said, and why is.
    CannotBeCompared,
}

impl Verdict {
    /// As tables write it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Within => "within",
            Verdict::Outside => "outside",
            Verdict::TrendHolds => "trend holds",
            Verdict::CannotBeCompared => "cannot be compared",
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The result's number.
    pub id: String,
    /// Where it stands in the paper.
    pub place: String,
    /// The paper's statement.
    pub says: String,
    /// The case and the values of the axes.
    pub parameters: String,
    /// The published value, as a number or a bound.
    pub published: String,
    /// Ours.
    pub ours: String,
    /// Ours, where it is one number: in the base unit.
    pub value: Option<f64>,
    /// Half the width of its confidence interval; none when it is certain, or from one run.
    pub half_width: Option<f64>,
    /// Runs behind it.
    pub runs: usize,
    /// Ours ÷ published.
    pub ratio: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for the verdict.
    pub why: String,
    /// The same figure with each remedy: its case, and the figure or a dash; of a ratio a ratio.
    pub remedies: Vec<(String, String)>,
}

impl Row {
    /// There is a figure of ours, but its noise is larger than what is to be distinguished.
    #[must_use]
    pub fn is_noisy(&self) -> bool {
        self.verdict == Verdict::CannotBeCompared && self.ours != NOTHING
    }
}

/// In place of a figure that does not exist.
const NOTHING: &str = "–";
/// Behind a remedy's ratio whose divisor is the published host's.
const PUBLISHED_DIVISOR: &str = " (÷ published)";

/// Why a figure of ours does not exist.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Missing {
    /// Every run of the workload failed.
    Failed(String),
    /// There is nothing to look at.
    Nothing(String),
}

/// A figure of ours at one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Mean, interval, runs.
    pub estimate: Estimate,
    /// Its unit.
    pub unit: Unit,
    /// Runs that were made; fewer than these have the figure where transfers failed.
    pub tried: usize,
}

/// The measurements of the runs of one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Their unit.
    pub unit: Unit,
    /// By the number of the run, which stands for its seed.
    pub of_runs: BTreeMap<usize, f64>,
    /// Runs that were made.
    pub tried: usize,
}

/// Looks up figures of one experiment.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// Its outcome.
    pub outcome: &'a Outcome,
}

/// Every row of an experiment.
#[must_use]
pub fn rows(experiment: &Experiment, outcome: &Outcome) -> Vec<Row> {
    let lookup = Lookup { experiment, outcome };
    experiment.published.claims.iter().map(|claim| lookup.row(claim)).collect()
}

/// The result of a check.
struct Judged {
    published: String,
    ours: String,
    value: Option<Known>,
    ratio: Option<f64>,
    verdict: Verdict,
    why: String,
}

impl Lookup<'_> {
    fn row(&self, claim: &Claim) -> Row {
        let judged = self.judge(&claim.check);
        let figure = claim.check.figure();
        let remedies = self.experiment.published.remedies.iter().map(|remedy| {
            let text = figure.map_or_else(|| NOTHING.to_owned(), |figure| self.with_remedy(figure, remedy));
            (remedy.clone(), text)
        });
        let estimate = judged.value.as_ref().map(|known| known.estimate);
        Row {
            id: claim.id.clone(),
            place: claim.place.clone(),
            says: claim.says.clone(),
            parameters: figure.map_or_else(String::new, |figure| self.parameters(figure)),
            published: judged.published,
            ours: judged.ours,
            value: estimate.map(|e| e.mean),
            half_width: estimate.and_then(|e| e.half_width),
            runs: estimate.map_or(0, |e| e.n),
            ratio: judged.ratio,
            verdict: judged.verdict,
            why: judged.why,
            remedies: remedies.collect(),
        }
    }

    fn judge(&self, check: &Check) -> Judged {
        match check {
            Check::Cannot(why) => Judged {
                published: NOTHING.to_owned(),
                ours: NOTHING.to_owned(),
                value: None,
                ratio: None,
                verdict: Verdict::CannotBeCompared,
                why: why.clone(),
            },
            Check::Value { figure, value, text, tolerance, because } => {
                let known = match self.one(figure) {
                    Ok(known) if known.unit.symbol() == value.unit => known,
                    Ok(known) => return units_differ(text, &known.unit),
                    Err(missing) => return missing.judged(text),
                };
                let ratio = known.estimate.mean / value.value;
                let spread = known.estimate.half_width.unwrap_or(0.0) / value.value.abs();
                let (verdict, why) = if spread > *tolerance {
                    (
                        Verdict::CannotBeCompared,
                        "the confidence interval is wider than the tolerance: more runs are needed".to_owned(),
                    )
                } else {
                    let within = (ratio - 1.0).abs() <= *tolerance;
                    let why = because.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                    let verdict = if within { Verdict::Within } else { Verdict::Outside };
                    (verdict, format!("tolerance {}{why}", write::share(*tolerance)))
                };
                let ours = with_interval(&known);
                Judged { published: text.clone(), ours, value: Some(known), ratio: Some(ratio), verdict, why }
            }
            Check::Bound { figure, at_least, at_most, because } => {
                self.bound(figure, at_least.as_ref(), at_most.as_ref(), because.as_deref())
            }
            Check::Trend { figure, trend, slack, because } => {
                let series = match self.series(figure) {
                    Ok(series) => series,
                    Err(missing) => return missing.judged(trend.text()),
                };
                let decided = trend.decided(&estimates(&series), *slack);
                self.decided(trend.text().to_owned(), &series, decided, because.as_deref())
            }
            Check::Peak { figure, from, to, because } => {
                let published = format!("greatest from {} to {}", write::number(*from), write::number(*to));
                let series = match self.series(figure) {
                    Ok(series) => series,
                    Err(missing) => return missing.judged(&published),
                };
                let inside = |value: &str| quantity(value).is_some_and(|found| (*from..=*to).contains(&found.value));
                let is_inside: Vec<bool> = series.iter().map(|(value, _)| inside(value)).collect();
                let decided = peak_inside(&estimates(&series), &is_inside);
                self.decided(published, &series, decided, because.as_deref())
            }
        }
    }

    fn bound(
        &self,
        figure: &Figure,
        at_least: Option<&(Quantity, String)>,
        at_most: Option<&(Quantity, String)>,
        because: Option<&str>,
    ) -> Judged {
        let words = [at_least.map(|(_, text)| format!("≥ {text}")), at_most.map(|(_, text)| format!("≤ {text}"))];
        let published = words.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let series = match self.series(figure) {
            Ok(series) => series,
            Err(missing) => return missing.judged(&published),
        };
        let limits = [at_least, at_most];
        if let Some((_, known)) =
            series.iter().find(|(_, k)| limits.iter().flatten().any(|(limit, _)| limit.unit != k.unit.symbol()))
        {
            return units_differ(&published, &known.unit);
        }
        // With half the interval added in favour, and in disfavour.
        let holds = |known: &Known, play: f64| {
            let ours = known.estimate.mean;
            at_least.is_none_or(|(limit, _)| ours + play >= limit.value)
                && at_most.is_none_or(|(limit, _)| ours - play <= limit.value)
        };
        let half = |known: &Known| known.estimate.half_width.unwrap_or(0.0);
        let possible = series.iter().all(|(_, known)| holds(known, half(known)));
        let sure = series.iter().all(|(_, known)| holds(known, -half(known)));
        let mut judged = self.worded(published, &series, possible, because);
        if possible && !sure {
            judged.verdict = Verdict::CannotBeCompared;
            judged.why = "the confidence interval holds the bound: more runs are needed".to_owned();
        } else if because.is_none() && sure {
            judged.verdict = Verdict::Within;
        }
        judged
    }

    /// A statement that holds, does not, or could be turned around by noise.
    fn decided(
        &self,
        published: String,
        series: &[(String, Known)],
        decided: Option<bool>,
        because: Option<&str>,
    ) -> Judged {
        let mut judged = self.worded(published, series, decided == Some(true), because);
        if decided.is_none() {
            judged.verdict = Verdict::CannotBeCompared;
            judged.why = "noise could turn a step around: more runs are needed".to_owned();
        }
        judged
    }

    /// A statement that holds or does not.
    fn worded(&self, published: String, series: &[(String, Known)], held: bool, because: Option<&str>) -> Judged {
        let one = |(at, known): &(String, Known)| match at.is_empty() {
            true => with_interval(known),
            false => format!("{}: {}", plain(at), with_interval(known)),
        };
        let ours = series.iter().map(one).collect::<Vec<_>>().join("; ");
        Judged {
            published,
            ours,
            value: if let [(_, known)] = series { Some(known.clone()) } else { None },
            ratio: None,
            verdict: if held { Verdict::TrendHolds } else { Verdict::Outside },
            why: because.unwrap_or_default().to_owned(),
        }
    }

    /// The figure at every value of its axis; one value without an axis.
    fn series(&self, figure: &Figure) -> Result<Vec<(String, Known)>, Missing> {
        let Some(axis) = &figure.along else { return Ok(vec![(String::new(), self.one(figure)?)]) };
        let axis = self.experiment.axes.iter().find(|read| read.axis.name == *axis);
        let values = axis.map(|axis| (axis.axis.name.clone(), axis.values.clone()));
        let (name, values) = values.ok_or_else(|| Missing::Nothing("there is no such axis".to_owned()))?;
        let (from, to) = figure.part;
        let inside = |value: &&String| match quantity(value).map(|found| found.value) {
            Some(value) => from.is_none_or(|from| value >= from) && to.is_none_or(|to| value <= to),
            None => true,
        };
        values
            .iter()
            .filter(inside)
            .map(|value| {
                let mut here = figure.clone();
                here.of.at.insert(name.clone(), value.clone());
                if let Some(over) = &mut here.over {
                    over.at.insert(name.clone(), value.clone());
                }
                Ok((value.clone(), self.one(&here)?))
            })
            .collect()
    }

    fn one(&self, figure: &Figure) -> Result<Known, Missing> {
        let of = self.samples(&figure.of)?;
        let tried = of.tried;
        let (unit, estimate) = match &figure.over {
            None if figure.of.measurement == "done" => {
                (of.unit.clone(), proportion(&of.values(), CONFIDENCE).or_else(|| of.estimate()))
            }
            None => (of.unit.clone(), of.estimate()),
            Some(over) => {
                let over = self.samples(over)?;
                let (ours, divisor) = (of.unit.symbol(), over.unit.symbol());
                if ours != divisor {
                    return Err(Missing::Nothing(format!("{ours} cannot be divided by {divisor}")));
                }
                (Unit::Number, of.divided_by(&over))
            }
        };
        match estimate {
            Some(estimate) if estimate.mean.is_finite() => Ok(Known { estimate, unit, tried }),
            _ => Err(Missing::Nothing("the figure is not finite".to_owned())),
        }
    }

    /// One sample a run.
    pub fn samples(&self, of: &Selection) -> Result<Samples, Missing> {
        let points = self.experiment.points.iter().zip(&self.outcome.points);
        let mut at = points.filter(|(point, _)| point.case == of.case && point.is_at(&of.at));
        let (Some((_, runs)), rest) = (at.next(), at.count()) else {
            return Err(Missing::Nothing(format!("there is no case {:?} here", of.case)));
        };
        if rest > 0 {
            return Err(Missing::Nothing(format!("{} points fit; `at` must name one", rest + 1)));
        }
        let key = (of.workload.clone(), of.measurement.clone());
        let (mut unit, mut samples) = (Unit::Number, BTreeMap::new());
        for (number, run) in runs.runs.iter().enumerate() {
            match run {
                Err(why) => return Err(Missing::Nothing(why.clone())),
                Ok(measured) => {
                    if let Some((own, value)) = measured.get(&key) {
                        unit.clone_from(own);
                        samples.insert(number, *value);
                    }
                }
            }
        }
        if samples.is_empty() {
            let name = (of.workload.clone(), "done".to_owned());
            let failed = runs.runs.iter().flatten().all(|run| run.get(&name).is_some_and(|(_, share)| *share == 0.0));
            return Err(match failed {
                true => Missing::Failed("the workload failed in every run".to_owned()),
                false => Missing::Nothing(format!("{:?} measures no {}", of.workload, of.measurement)),
            });
        }
        Ok(Samples { unit, of_runs: samples, tried: runs.runs.len() })
    }

    /// The points that a selection means, whatever the value of `along`.
    fn place(&self, of: &Selection, along: Option<&str>) -> Vec<usize> {
        let at: BTreeMap<String, String> = of
            .at
            .iter()
            .filter(|(axis, _)| Some(axis.as_str()) != along)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let points = self.experiment.points.iter().enumerate();
        points.filter(|(_, point)| point.case == of.case && point.is_at(&at)).map(|(i, _)| i).collect()
    }

    /// The same figure with a remedy. Of a ratio both parts are with it. Where it knows no difference between the two (the
    /// parts are cases of the published host, or differ on an axis that it does not follow), it is divided by the published
    /// host's divisor, and the text says so.
    fn with_remedy(&self, figure: &Figure, remedy: &str) -> String {
        if figure.of.case == remedy {
            return NOTHING.to_owned();
        }
        let mut with = figure.clone();
        with.of.case = remedy.to_owned();
        let mut divisor = "";
        if let (Some(over), Some(published)) = (&mut with.over, &figure.over) {
            over.case = remedy.to_owned();
            let place = |of: &Selection| self.place(of, figure.along.as_deref());
            let same = (&over.workload, &over.measurement) == (&with.of.workload, &with.of.measurement);
            if same && place(over) == place(&with.of) {
                over.clone_from(published);
                divisor = PUBLISHED_DIVISOR;
            }
        }
        let text = match self.series(&with) {
            Ok(series) if series.len() == 1 => with_interval(&series[0].1),
            Ok(series) => {
                let means = series.iter().map(|(_, known)| known.estimate.mean);
                let (low, high) = means.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
                let unit = &series[0].1.unit;
                format!("{} … {}", write::measurement(unit, low), write::measurement(unit, high))
            }
            Err(Missing::Failed(_)) => return "fails".to_owned(),
            Err(Missing::Nothing(_)) => return NOTHING.to_owned(),
        };
        format!("{text}{divisor}")
    }

    fn parameters(&self, figure: &Figure) -> String {
        let of = |selection: &Selection| {
            let mut parts = Vec::new();
            if self.experiment.scenario.cases.first().is_none_or(|case| case.name != selection.case) {
                parts.push(selection.case.clone());
            }
            for axis in &self.experiment.axes {
                let name = &axis.axis.name;
                if let Some(value) = selection.at.get(name) {
                    parts.push(format!("{name} {}", plain(value)));
                }
            }
            parts
        };
        let mut text = of(&figure.of).join(", ");
        if let Some(over) = &figure.over {
            let differs: BTreeMap<&String, &String> =
                over.at.iter().filter(|(k, v)| figure.of.at.get(*k).is_none_or(|own| !same_value(own, v))).collect();
            let mut parts: Vec<String> = differs.iter().map(|(k, v)| format!("{k} {}", plain(v))).collect();
            if over.case != figure.of.case {
                parts.insert(0, over.case.clone());
            }
            if (&over.workload, &over.measurement) != (&figure.of.workload, &figure.of.measurement) {
                parts.push(format!("{} {}", over.workload, write::name(&over.measurement).to_lowercase()));
            }
            text = format!("{text} ÷ {}", parts.join(", "));
        }
        if let Some(along) = &figure.along {
            text = format!("{text}{}along {along}", if text.is_empty() { "" } else { ", " });
        }
        format!("{}{}{}", what(&figure.of), if text.is_empty() { "" } else { ": " }, text)
    }
}

impl Samples {
    fn values(&self) -> Vec<f64> {
        self.of_runs.values().copied().collect()
    }

    fn estimate(&self) -> Option<Estimate> {
        estimate(&self.values(), CONFIDENCE)
    }

    /// The ratio: of pairs with the same seed where both have the same runs, else of the means, whose intervals add as
    /// squares (the delta method).
    fn divided_by(&self, other: &Samples) -> Option<Estimate> {
        if self.tried == other.tried {
            let pairs = self.of_runs.iter().filter_map(|(run, value)| Some(value / other.of_runs.get(run)?));
            return estimate(&pairs.collect::<Vec<_>>(), CONFIDENCE);
        }
        let (above, below) = (self.estimate()?, other.estimate()?);
        let half = |of: &Estimate| of.half_width.unwrap_or(0.0);
        let mean = above.mean / below.mean;
        let half_width = half(&above).hypot(half(&below) * mean) / below.mean.abs();
        let n = above.n.max(below.n);
        // Least and greatest are not defined for a ratio of means.
        Some(Estimate {
            n,
            mean,
            half_width: (n > 1).then_some(half_width),
            minimum: mean,
            maximum: mean,
            variance: 0.0,
        })
    }
}

/// `file goodput`.
fn what(of: &Selection) -> String {
    format!("{} {}", of.workload, write::name(&of.measurement).to_lowercase())
}

/// `1.36 Mbit/s ± 1.5 % (10)`: the mean, half its interval and the runs (`58 of 160`, where the others failed); the mean
/// alone of a certain figure.
#[must_use]
pub fn with_interval(known: &Known) -> String {
    let Known { estimate, unit, tried } = known;
    let mean = write::measurement(unit, estimate.mean);
    match estimate.half_width {
        Some(half) if estimate.is_uncertain() => {
            let relative = write::share(half / estimate.mean.abs());
            let interval = if estimate.mean == 0.0 { write::measurement(unit, half) } else { relative };
            let runs = if estimate.n < *tried { format!("{} of {tried}", estimate.n) } else { estimate.n.to_string() };
            format!("{mean} ± {interval} ({runs})")
        }
        _ => mean,
    }
}

fn units_differ(published: &str, unit: &Unit) -> Judged {
    Missing::Nothing(format!("ours is in {:?}, which {published} is not", unit.symbol())).judged(published)
}

impl Missing {
    fn judged(self, published: &str) -> Judged {
        let (ours, verdict, why) = match self {
            Missing::Failed(why) => ("fails", Verdict::Outside, why),
            Missing::Nothing(why) => (NOTHING, Verdict::CannotBeCompared, why),
        };
        Judged { published: published.to_owned(), ours: ours.to_owned(), value: None, ratio: None, verdict, why }
    }
}

impl Trend {
    fn text(self) -> &'static str {
        match self {
            Trend::Rises => "rises",
            Trend::Falls => "falls",
            Trend::Flat => "stays the same",
        }
    }

    /// Whether the means follow the trend; `None`: noise could turn it around. `slack` is the share by which a step may go
    /// the other way; the ends must differ by more than that.
    #[must_use]
    pub fn decided(self, means: &[Estimate], slack: f64) -> Option<bool> {
        let (Some(first), Some(last)) = (means.first(), means.last()) else { return Some(false) };
        if means.len() < 2 {
            return Some(false);
        }
        let mut parts = Vec::new();
        match self {
            Trend::Rises => {
                parts.extend(means.windows(2).map(|w| reaches(&w[1], &w[0], 1.0 - slack)));
                parts.push(exceeds(last, first, 1.0 + slack));
            }
            Trend::Falls => {
                parts.extend(means.windows(2).map(|w| not(exceeds(&w[1], &w[0], 1.0 + slack))));
                parts.push(not(reaches(last, first, 1.0 - slack)));
            }
            Trend::Flat => {
                for (i, high) in means.iter().enumerate() {
                    let others = means.iter().enumerate().filter(|(j, _)| *j != i);
                    parts.extend(others.map(|(_, low)| not(exceeds(high, low, 1.0 + slack))));
                }
            }
        }
        all(&parts)
    }
}

/// Whether the greatest mean is one of those inside; `None`: noise could move it.
fn peak_inside(means: &[Estimate], is_inside: &[bool]) -> Option<bool> {
    let of = |side: bool| means.iter().zip(is_inside).filter(move |(_, inside)| **inside == side).map(|(mean, _)| mean);
    let best = |side: bool| of(side).max_by(|a, b| a.mean.total_cmp(&b.mean));
    let (Some(inner), Some(outer)) = (best(true), best(false)) else { return Some(best(true).is_some()) };
    if all(&of(false).map(|other| reaches(inner, other, 1.0)).collect::<Vec<_>>()) == Some(true) {
        return Some(true);
    }
    let beaten = all(&of(true).map(|own| exceeds(outer, own, 1.0)).collect::<Vec<_>>()) == Some(true);
    beaten.then_some(false)
}

/// Whether `a` is clearly at least (true) or clearly less than (false) `factor` times `b`.
fn reaches(a: &Estimate, b: &Estimate, factor: f64) -> Option<bool> {
    let (difference, play) = difference(a, b, factor);
    if difference >= play { Some(true) } else { (difference < -play).then_some(false) }
}

/// Whether `a` is clearly more than (true) or clearly at most (false) `factor` times `b`.
fn exceeds(a: &Estimate, b: &Estimate, factor: f64) -> Option<bool> {
    let (difference, play) = difference(a, b, factor);
    if difference > play { Some(true) } else { (difference <= -play).then_some(false) }
}

/// a − factor · b, and half the width of its interval: independent means, so the squares add.
fn difference(a: &Estimate, b: &Estimate, factor: f64) -> (f64, f64) {
    let half = |estimate: &Estimate| estimate.half_width.unwrap_or(0.0);
    (a.mean - factor * b.mean, half(a).hypot(factor * half(b)))
}

fn not(decided: Option<bool>) -> Option<bool> {
    decided.map(|held| !held)
}

/// False when one part is; true when all are.
fn all(parts: &[Option<bool>]) -> Option<bool> {
    if parts.contains(&Some(false)) {
        return Some(false);
    }
    (!parts.contains(&None)).then_some(true)
}

fn estimates(series: &[(String, Known)]) -> Vec<Estimate> {
    series.iter().map(|(_, known)| known.estimate).collect()
}

impl Check {
    /// Our value in the comparison.
    #[must_use]
    pub fn figure(&self) -> Option<&Figure> {
        match self {
            Check::Value { figure, .. }
            | Check::Bound { figure, .. }
            | Check::Trend { figure, .. }
            | Check::Peak { figure, .. } => Some(figure),
            Check::Cannot(_) => None,
        }
    }
}
