//! `published.toml`: what a paper says, where it says so, and how ours is held against it.
//!
//! ```toml
//! paper = "Kruse"                         # short name
//! citation = "H. Kruse: …"
//! figure = "Figure 1"
//!
//! [[claims]]
//! id = "KRUSE-4"                          # the result's number
//! where = "Figure 2 and its text"
//! says = "the peak performance is about 90% of T1 capacity"
//! workload = "file"                       # what of ours is meant
//! measurement = "goodput"
//! at = { connections = "8" }              # where on the axes
//! value = "1.38 Mbit/s"
//! tolerance = "10 %"
//! rows = [{ at = { file = "2 MB" } }, { at = { file = "5 MB" } }]   # each lays its keys over the claim's
//! ```
//!
//! A claim has one check: `value` with `tolerance`; a bound, `at_least` and/or `at_most`; a `trend` along an axis; a `peak`
//! along an axis; or `cannot`, why nothing can be compared.

use super::grid::{ReadAxis, same_value};
use crate::sweep::grid::{Quantity, quantity};
use bentpipe_lab::scenario::Scenario;
use bentpipe_link::config::merge_tables;
use bentpipe_net::problem::{KeyProblem, Problem, read, syntax_problem};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The whole file, checked.
#[derive(Clone, Debug)]
pub struct Published {
    /// The paper's short name.
    pub paper: String,
    /// The paper.
    pub citation: String,
    /// Which of its figures and tables this is about.
    pub figure: String,
    /// Further cases that show what the authors could have had.
    pub remedies: Vec<String>,
    /// The paper's statements, row by row.
    pub claims: Vec<Claim>,
    /// The charts.
    pub charts: Vec<ChartSpec>,
}

/// One row: a published statement and its check.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The result's number.
    pub id: String,
    /// Where it stands in the paper.
    pub place: String,
    /// The paper's statement.
    pub says: String,
    /// The check of our value against it.
    pub check: Check,
}

/// Selects one of our values.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The case; the scenario's first if the file names none.
    pub case: String,
    /// The workload.
    pub workload: String,
    /// The measurement.
    pub measurement: String,
    /// The values of the axes.
    pub at: BTreeMap<String, String>,
}

/// A figure of ours: one measurement, or the ratio of two.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The measured value.
    pub of: Selection,
    /// The divisor.
    pub over: Option<Selection>,
    /// Taken at every value of this axis.
    pub along: Option<String>,
    /// Of that axis, only from this value on, and only up to this one.
    pub part: (Option<f64>, Option<f64>),
}

/// Tolerances that need no reason: of a printed number, and of one that is called approximate.
pub const DEFAULT_TOLERANCES: [f64; 2] = [0.1, 0.2];

/// The check of our value against the paper.
#[derive(Clone, Debug)]
pub enum Check {
    /// A printed number.
    Value {
        /// The compared value.
        figure: Figure,
        /// The number.
        value: Quantity,
        /// As it was written.
        text: String,
        /// The allowed deviation, as a share.
        tolerance: f64,
        /// Why that far, where it is not one of [`DEFAULT_TOLERANCES`].
        because: Option<String>,
    },
    /// A printed or worded bound.
    Bound {
        /// The compared value.
        figure: Figure,
        /// The least, with its text.
        at_least: Option<(Quantity, String)>,
        /// The most, with its text.
        at_most: Option<(Quantity, String)>,
        /// Why a worded statement is taken as this bound; none for a printed one.
        because: Option<String>,
    },
    /// A direction along an axis.
    Trend {
        /// The value compared along an axis.
        figure: Figure,
        /// Which.
        trend: Trend,
        /// A step against it that does not count, as a share.
        slack: f64,
        /// Why the words are taken so.
        because: Option<String>,
    },
    /// Where along an axis the greatest value lies.
    Peak {
        /// The value compared along an axis.
        figure: Figure,
        /// From this value of the axis.
        from: f64,
        /// To this one.
        to: f64,
        /// Why the words are taken so.
        because: Option<String>,
    },
    /// Nothing can be compared.
    Cannot(String),
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trend {
    /// No step falls, and the last value is above the first.
    Rises,
    /// No step rises, and the last value is below the first.
    Falls,
    /// All values are the same.
    Flat,
}

/// One chart.
#[derive(Clone, Debug)]
pub struct ChartSpec {
    /// Its title.
    pub title: String,
    /// The axis that runs to the right.
    pub x: String,
    /// True if it is logarithmic.
    pub log: bool,
    /// The workload drawn.
    pub workload: String,
    /// The measurements drawn, a line each.
    pub measurements: Vec<String>,
    /// Only these cases; all if empty.
    pub cases: Vec<String>,
    /// Other axes are held here; an axis that is not named gives a line for each value.
    pub at: BTreeMap<String, String>,
    /// Further published points: label, and (value of the axis, value).
    pub marks: Vec<(String, Vec<(f64, f64)>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedText {
    paper: String,
    citation: String,
    figure: String,
    remedies: Option<Vec<String>>,
    claims: Vec<Table>,
    #[serde(default)]
    charts: Vec<ChartText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimText {
    id: String,
    #[serde(rename = "where")]
    place: String,
    says: String,
    case: Option<String>,
    workload: Option<String>,
    measurement: Option<String>,
    #[serde(default)]
    at: BTreeMap<String, Value>,
    over: Option<SelectionText>,
    along: Option<String>,
    from: Option<Value>,
    to: Option<Value>,
    value: Option<Value>,
    tolerance: Option<Value>,
    at_least: Option<Value>,
    at_most: Option<Value>,
    trend: Option<Trend>,
    slack: Option<Value>,
    peak: Option<(Value, Value)>,
    because: Option<String>,
    cannot: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SelectionText {
    case: Option<String>,
    workload: Option<String>,
    measurement: Option<String>,
    at: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChartText {
    title: String,
    x: String,
    #[serde(default)]
    log: bool,
    workload: String,
    measurements: Vec<String>,
    #[serde(default)]
    cases: Vec<String>,
    #[serde(default)]
    at: BTreeMap<String, Value>,
    #[serde(default)]
    marks: Vec<MarkText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkText {
    label: String,
    points: Vec<(Value, Value)>,
}

/// The cases that show what the authors could have had, unless a file says otherwise. A scenario without such a case
/// has no figures there, and the table says so.
pub const REMEDIES: [&str; 2] = ["modern host", "gateway pair"];

impl Published {
    /// Reads the file's text. What it names must exist in the scenario.
    pub fn parse(name: &str, text: &str, scenario: &Scenario, axes: &[ReadAxis]) -> Result<Published, Problem> {
        let table: Table = toml::from_str(text).map_err(|error| syntax_problem(name, text, &error))?;
        let place = |problem: KeyProblem| problem.within(name, text);
        let whole: PublishedText = read(table).map_err(place)?;
        let known = Known { scenario, axes };
        let mut claims = Vec::new();
        for (i, table) in whole.claims.iter().enumerate() {
            let mut table = table.clone();
            let under = |problem: KeyProblem| place(problem.under(&format!("claims.{i}")));
            let rows = match table.remove("rows") {
                None => vec![Table::new()],
                Some(Value::Array(rows)) if rows.iter().all(Value::is_table) && !rows.is_empty() => {
                    rows.into_iter().filter_map(|row| row.try_into().ok()).collect()
                }
                Some(_) => {
                    return Err(under(KeyProblem::new("rows", "allowed: a list of tables, such as [{ at = { … } }]")));
                }
            };
            for row in rows {
                let mut merged = table.clone();
                merge_tables(&mut merged, row);
                let claim: ClaimText = read(merged).map_err(under)?;
                claims.push(known.claim(claim).map_err(under)?);
            }
        }
        if claims.is_empty() {
            return Err(place(KeyProblem::new("claims", "is empty; allowed: at least one [[claims]]")));
        }
        let mut charts = Vec::new();
        for (i, chart) in whole.charts.iter().enumerate() {
            charts.push(known.chart(chart).map_err(|problem| place(problem.under(&format!("charts.{i}"))))?);
        }
        let remedies = whole.remedies.clone().unwrap_or_else(|| REMEDIES.map(str::to_owned).to_vec());
        let PublishedText { paper, citation, figure, .. } = whole;
        Ok(Published { paper, citation, figure, remedies, claims, charts })
    }
}

struct Known<'a> {
    scenario: &'a Scenario,
    axes: &'a [ReadAxis],
}

impl Known<'_> {
    fn claim(&self, text: ClaimText) -> Result<Claim, KeyProblem> {
        let (id, place, says) = (text.id.clone(), text.place.clone(), text.says.clone());
        if id.is_empty() || place.is_empty() || says.is_empty() {
            return Err(KeyProblem::new("id", "id, where and says are all needed"));
        }
        Ok(Claim { id, place, says, check: self.check(text)? })
    }

    fn check(&self, text: ClaimText) -> Result<Check, KeyProblem> {
        let checks = [
            text.value.is_some(),
            text.at_least.is_some() || text.at_most.is_some(),
            text.trend.is_some(),
            text.peak.is_some(),
            text.cannot.is_some(),
        ];
        if checks.iter().filter(|set| **set).count() != 1 {
            let what = "allowed: one check: value; at_least and/or at_most; trend; peak; or cannot";
            return Err(KeyProblem::new("value", what));
        }
        if let Some(why) = text.cannot {
            return Ok(Check::Cannot(why));
        }
        let of = self.selection(text.case, text.workload, text.measurement, &text.at)?;
        let over = text.over.map(|over| {
            let mut at = of.at.clone();
            at.extend(self.at(&over.at)?);
            Ok(Selection {
                case: self.case(over.case.or(Some(of.case.clone())))?,
                workload: over.workload.unwrap_or(of.workload.clone()),
                measurement: over.measurement.unwrap_or(of.measurement.clone()),
                at,
            })
        });
        let over = over.transpose().map_err(|problem: KeyProblem| problem.under("over"))?;
        if let Some(axis) = &text.along {
            self.axis(axis).map_err(|problem| problem.under("along"))?;
        }
        let end = |key: &str, value: Option<Value>| match (value.as_ref().map(quantity_of), &text.along) {
            (None, _) => Ok(None),
            (Some(Some((end, _))), Some(_)) => Ok(Some(end.value)),
            _ => Err(KeyProblem::new(key, "allowed: a value of the axis that `along` names")),
        };
        let part = (end("from", text.from)?, end("to", text.to)?);
        let figure = Figure { of, over, along: text.along.clone(), part };
        let share = |key: &str, value: Option<Value>| match value.as_ref().map(quantity_of) {
            None => Ok(None),
            Some(Some((Quantity { value, unit: "1" }, _))) if (0.0..=10.0).contains(&value) => Ok(Some(value)),
            Some(_) => Err(KeyProblem::new(key, "is no share; allowed: such as \"10 %\"")),
        };
        let number = |key: &str, value: Option<Value>| match value.as_ref().map(quantity_of) {
            None => Ok(None),
            Some(Some(found)) => Ok(Some(found)),
            Some(None) => Err(KeyProblem::new(key, "is no quantity; allowed: such as \"1.38 Mbit/s\"")),
        };
        let along = figure.along.is_some();
        if let Some((value, written)) = number("value", text.value)? {
            let tolerance = share("tolerance", text.tolerance)?;
            let tolerance =
                tolerance.ok_or_else(|| KeyProblem::new("tolerance", "is missing; allowed: such as \"10 %\""))?;
            if value.value == 0.0 || along {
                return Err(KeyProblem::new("value", "0, or along an axis, has no ratio; allowed: at_least, at_most"));
            }
            let because = text.because;
            if because.is_none() && !DEFAULT_TOLERANCES.contains(&tolerance) {
                let default = DEFAULT_TOLERANCES.map(|default| format!("{:.0} %", default * 100.0)).join(", ");
                return Err(KeyProblem::new("tolerance", format!("needs a `because`; allowed without: {default}")));
            }
            return Ok(Check::Value { figure, value, text: written, tolerance, because });
        }
        if text.tolerance.is_some() {
            return Err(KeyProblem::new("tolerance", "is for value"));
        }
        let because = text.because;
        let slack = share("slack", text.slack)?.unwrap_or(0.0);
        if let Some(trend) = text.trend {
            if !along {
                return Err(KeyProblem::new("along", "is missing; allowed: the axis of the trend"));
            }
            return Ok(Check::Trend { figure, trend, slack, because });
        }
        if let Some((from, to)) = text.peak {
            let ends = (quantity_of(&from), quantity_of(&to));
            let (Some((from, _)), Some((to, _)), true) = (ends.0, ends.1, along) else {
                return Err(KeyProblem::new("peak", "allowed: two values of the axis that `along` names"));
            };
            return Ok(Check::Peak { figure, from: from.value, to: to.value, because });
        }
        let at_least = number("at_least", text.at_least)?;
        let at_most = number("at_most", text.at_most)?;
        Ok(Check::Bound { figure, at_least, at_most, because })
    }

    fn selection(
        &self,
        case: Option<String>,
        workload: Option<String>,
        measurement: Option<String>,
        at: &BTreeMap<String, Value>,
    ) -> Result<Selection, KeyProblem> {
        let needed = |key: &str, value: Option<String>| {
            value.ok_or_else(|| KeyProblem::new(key, "is missing; allowed: what of the scenario is compared"))
        };
        Ok(Selection {
            case: self.case(case)?,
            workload: needed("workload", workload)?,
            measurement: needed("measurement", measurement)?,
            at: self.at(at)?,
        })
    }

    fn case(&self, name: Option<String>) -> Result<String, KeyProblem> {
        let cases = &self.scenario.cases;
        let name = name.unwrap_or_else(|| cases.first().map(|case| case.name.clone()).unwrap_or_default());
        if cases.iter().any(|case| case.name == name) {
            return Ok(name);
        }
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        Err(KeyProblem::new("case", format!("there is no case {name:?}; allowed: {}", names.join(", "))))
    }

    fn at(&self, at: &BTreeMap<String, Value>) -> Result<BTreeMap<String, String>, KeyProblem> {
        let mut read = BTreeMap::new();
        for (name, value) in at {
            let axis = self.axis(name).map_err(|problem| problem.under("at"))?;
            let text = written(value);
            let Some(own) = axis.values.iter().find(|own| same_value(own, &text)) else {
                let what = format!("{text} is no value of the axis; allowed: {}", axis.values.join(", "));
                return Err(KeyProblem::new(format!("at.{name}"), what));
            };
            read.insert(name.clone(), own.clone());
        }
        Ok(read)
    }

    fn axis(&self, name: &str) -> Result<&ReadAxis, KeyProblem> {
        self.axes.iter().find(|axis| axis.axis.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.axes.iter().map(|axis| axis.axis.name.as_str()).collect();
            KeyProblem::new("", format!("there is no axis {name:?}; allowed: {}", names.join(", ")))
        })
    }

    fn chart(&self, text: &ChartText) -> Result<ChartSpec, KeyProblem> {
        self.axis(&text.x).map_err(|problem| problem.under("x"))?;
        for case in &text.cases {
            self.case(Some(case.clone()))?;
        }
        let mut marks = Vec::new();
        for mark in &text.marks {
            let point = |(x, y): &(Value, Value)| Some((quantity_of(x)?.0.value, quantity_of(y)?.0.value));
            let points: Option<Vec<(f64, f64)>> = mark.points.iter().map(point).collect();
            let points = points
                .ok_or_else(|| KeyProblem::new("marks", "allowed: points = [[\"500 kB\", \"300 kbit/s\"], …]"))?;
            marks.push((mark.label.clone(), points));
        }
        Ok(ChartSpec {
            at: self.at(&text.at)?,
            title: text.title.clone(),
            x: text.x.clone(),
            log: text.log,
            workload: text.workload.clone(),
            measurements: text.measurements.clone(),
            cases: text.cases.clone(),
            marks,
        })
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn quantity_of(value: &Value) -> Option<(Quantity, String)> {
    let text = written(value);
    quantity(&text).map(|found| (found, text))
}
