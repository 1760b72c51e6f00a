//! The summary of a sweep: for each point, subject and measurement the mean with its confidence interval, and the median.

use super::engine::Outcome;
use super::grid::Quantity;
use super::plan::Plan;
use super::results::{NameId, Results, SubjectId};
use super::subject::Subject;
use crate::statistics::{estimate, median};
use bentpipe_lab::record::{Status, Unit};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A sweep's summary.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Always `bentpipe-sweep-summary`.
    pub format: String,
    /// Of this shape.
    pub version: u32,
    /// The scenario's title.
    pub title: String,
    /// Every run that was asked for is done.
    pub complete: bool,
    /// Runs done, and runs wanted as far as is known.
    pub runs: (usize, usize),
    /// Runs that could not be done.
    pub errors: usize,
    /// Of the intervals, in percent.
    pub confidence: f64,
    /// The keys that vary.
    pub vary: Vec<String>,
    /// In the order of the grid.
    pub rows: Vec<SummaryRow>,
}

/// One measurement of one workload at one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRow {
    /// The point, from 0.
    pub point: u32,
    /// Its value for each key that varies.
    pub values: Vec<VariedValue>,
    /// The case.
    pub case: String,
    /// The workload, direction or host.
    #[serde(flatten)]
    pub subject: Subject<String>,
    /// The quantity; empty for a workload that never measured anything.
    pub measurement: String,
    /// Its unit; absent where nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// Runs that measured it.
    pub n: usize,
    /// Their mean.
    pub mean: Option<f64>,
    /// Their median.
    pub median: Option<f64>,
    /// Half the width of the mean's confidence interval; needs two runs.
    pub half_width: Option<f64>,
    /// The least.
    pub minimum: Option<f64>,
    /// The greatest.
    pub maximum: Option<f64>,
    /// Times the workload failed at this point, in all its runs.
    pub failed: usize,
    /// Runs of this point that could not be done.
    pub errors: usize,
}

impl SummaryRow {
    /// The subject for people: `web (2)`, `sat from hub`.
    pub fn label(&self) -> String {
        self.subject.label()
    }
}

/// One value of one varied key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariedValue {
    /// As it was set.
    pub text: String,
    /// As a number in the base unit, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The base unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<&'static str>,
}

/// Sums up what came out.
pub fn summarise(plan: &Plan, outcome: &Outcome) -> Summary {
    let quantities: Vec<Option<Vec<Quantity>>> = plan.varies.iter().map(|vary| vary.quantities()).collect();
    let values = plan.points.iter().map(|point| {
        let values =
            (plan.labels(point).zip(&point.choices).zip(&quantities)).map(|(((_, text), choice), quantities)| {
                let quantity = quantities.as_ref().map(|all| all[*choice]);
                VariedValue { text: text.to_owned(), value: quantity.map(|q| q.value), unit: quantity.map(|q| q.unit) }
            });
        values.collect()
    });
    let points: Vec<(Vec<VariedValue>, u32)> = values.zip(outcome.targets.iter().copied()).collect();
    Summary {
        complete: outcome.complete,
        runs: outcome.done,
        errors: outcome.errors,
        vary: plan.varies.iter().map(|vary| vary.key.clone()).collect(),
        ..Summary::of(&plan.title, plan.request.confidence, &points, &outcome.results)
    }
}

/// The rows of points, each with its values and the number of its runs that count.
fn rows(points: &[(Vec<VariedValue>, u32)], confidence: f64, results: &Results) -> Vec<SummaryRow> {
    let shapes = shapes(points, results);
    let mut rows = Vec::new();
    for (number, (values, count)) in points.iter().enumerate() {
        let (number, count) = (number as u32, *count);
        let samples = results.samples(number, count);
        let mut failed: BTreeMap<(NameId, SubjectId), usize> = BTreeMap::new();
        let (mut errors, mut done) = (0, 0);
        for (_, run) in results.runs_of(number, count) {
            errors += usize::from(run.error.is_some());
            done += 1;
            let times: BTreeSet<_> = run
                .rows
                .iter()
                .filter(|row| row.status == Status::Failed)
                .map(|row| (row.case, row.subject, row.repeat))
                .collect();
            for (case, subject, _) in times {
                *failed.entry((case, subject)).or_default() += 1;
            }
        }
        if done == 0 {
            continue;
        }
        for Shape { case, subject, measurement, unit } in &shapes {
            let known = measurement.and_then(|measurement| samples.get(&(*case, *subject, measurement)));
            let (known, middle) =
                known.map_or((None, None), |(_, samples)| (estimate(samples, confidence / 100.0), median(samples)));
            rows.push(SummaryRow {
                point: number,
                values: values.clone(),
                case: results.name(*case).to_owned(),
                subject: subject.map(|id| results.name(*id).to_owned()),
                measurement: measurement.map_or(String::new(), |id| results.name(id).to_owned()),
                unit: unit.map(|id| results.unit(id)),
                n: known.map_or(0, |known| known.n),
                mean: known.map(|known| known.mean),
                median: middle,
                half_width: known.and_then(|known| known.half_width),
                minimum: known.map(|known| known.minimum),
                maximum: known.map(|known| known.maximum),
                failed: failed.get(&(*case, *subject)).copied().unwrap_or(0),
                errors,
            });
        }
    }
    rows
}

/// One thing that is measured in the sweep.
struct Shape {
    case: NameId,
    subject: SubjectId,
    measurement: Option<NameId>,
    unit: Option<NameId>,
}

/// All of them, subjects and measurements in the order of their first appearance.
fn shapes(points: &[(Vec<VariedValue>, u32)], results: &Results) -> Vec<Shape> {
    let mut subjects: Vec<(NameId, SubjectId)> = Vec::new();
    let mut measurements: BTreeMap<(NameId, SubjectId), Vec<(NameId, NameId)>> = BTreeMap::new();
    for (_, _, run) in results.all().filter(|(point, run, _)| *run < points[*point as usize].1) {
        for row in &run.rows {
            let subject = (row.case, row.subject);
            let known = measurements.entry(subject).or_insert_with(|| {
                subjects.push(subject);
                Vec::new()
            });
            if let Some(measurement) = row.measurement.filter(|id| known.iter().all(|(known, _)| known != id)) {
                known.push((measurement, row.unit));
            }
        }
    }
    let mut shapes = Vec::new();
    for (case, subject) in subjects {
        let measured = measurements.remove(&(case, subject)).unwrap_or_default();
        if measured.is_empty() {
            shapes.push(Shape { case, subject, measurement: None, unit: None });
        }
        for (measurement, unit) in measured {
            shapes.push(Shape { case, subject, measurement: Some(measurement), unit: Some(unit) });
        }
    }
    shapes
}

impl Summary {
    /// The summary of points without a key that varies; all their runs are done.
    pub(super) fn of(title: &str, confidence: f64, points: &[(Vec<VariedValue>, u32)], results: &Results) -> Summary {
        let rows = rows(points, confidence, results);
        let runs = points.iter().map(|(_, count)| *count as usize).sum();
        Summary {
            format: "bentpipe-sweep-summary".to_owned(),
            version: 2,
            title: title.to_owned(),
            complete: true,
            runs: (runs, runs),
            errors: 0,
            confidence,
            vary: Vec::new(),
            rows,
        }
    }

    /// The summary as pretty JSON with a final newline.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The summary as CSV (RFC 4180): numbers in base units, and varied keys in the columns of `results.parquet`.
    pub fn to_csv(&self) -> String {
        let mut head = vec!["point".to_owned()];
        for (key, value) in self.vary.iter().zip(self.rows.first().map_or(&[] as &[VariedValue], |row| &row.values)) {
            head.push(field(key));
            head.extend(value.value.map(|_| field(&format!("{key}.text"))));
        }
        head.push(
            "case,workload,copy,link,from,host,measurement,unit,confidence,n,mean,median,half_width,minimum,maximum,failed,errors"
                .to_owned(),
        );
        let mut lines = vec![head.join(",")];
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        for row in &self.rows {
            let mut line = vec![row.point.to_string()];
            for value in &row.values {
                line.extend(value.value.map(|value| value.to_string()));
                line.push(field(&value.text));
            }
            line.push(field(&row.case));
            let copies = |copy: Option<u32>| copy.map_or(String::new(), |copy| copy.to_string());
            let none = String::new;
            line.extend(match &row.subject {
                Subject::Workload { workload, copy } => [field(workload), copies(*copy), none(), none(), none()],
                Subject::Direction { link, from } => [none(), none(), field(link), field(from), none()],
                Subject::Host { host } => [none(), none(), none(), none(), field(host)],
            });
            line.extend([row.measurement.as_str(), row.unit.as_ref().map_or("", Unit::symbol)].map(field));
            line.extend([self.confidence.to_string(), row.n.to_string()]);
            line.extend([row.mean, row.median, row.half_width, row.minimum, row.maximum].map(number));
            line.extend([row.failed.to_string(), row.errors.to_string()]);
            lines.push(line.join(","));
        }
        lines.join("\n") + "\n"
    }

    /// Any run measured `name`.
    pub fn measured(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.measurement == name && row.n > 0)
    }

    /// The names of what was measured.
    pub fn measurements(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for row in self.rows.iter().filter(|row| !row.measurement.is_empty()) {
            if !names.contains(&row.measurement.as_str()) {
                names.push(&row.measurement);
            }
        }
        names
    }
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
