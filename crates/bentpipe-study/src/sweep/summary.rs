//! The summary of a sweep: for each point, workload and measurement the mean and its confidence interval.

use super::engine::Outcome;
use super::grid::Quantity;
use super::plan::Plan;
use super::results::{NameId, WorkloadKey};
use crate::statistics::{Estimate, estimate};
use bentpipe_lab::record::{self, Status, Unit};
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
    /// The workload.
    pub workload: String,
    /// Which of its copies, from 1; absent where it has only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<u32>,
    /// The quantity; empty for a workload that never measured anything.
    pub measurement: String,
    /// Its unit; absent where nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// Runs that measured it.
    pub n: usize,
    /// Their mean.
    pub mean: Option<f64>,
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
    /// The workload for people: `web (2)`.
    pub fn label(&self) -> String {
        record::label(&self.workload, self.copy)
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
    let results = &outcome.results;
    let quantities: Vec<Option<Vec<Quantity>>> = plan.varies.iter().map(|vary| vary.quantities()).collect();
    let shapes = shapes(outcome);
    let mut rows = Vec::new();
    for (number, point) in plan.points.iter().enumerate() {
        let number = number as u32;
        let count = outcome.targets[number as usize];
        let samples = results.samples(number, count);
        let mut failed: BTreeMap<(NameId, WorkloadKey), usize> = BTreeMap::new();
        let (mut errors, mut done) = (0, 0);
        for (_, run) in results.runs_of(number, count) {
            errors += usize::from(run.error.is_some());
            done += 1;
            let times: BTreeSet<_> = run
                .rows
                .iter()
                .filter(|row| row.status == Status::Failed)
                .map(|row| (row.case, row.workload, row.repeat))
                .collect();
            for (case, workload, _) in times {
                *failed.entry((case, workload)).or_default() += 1;
            }
        }
        if done == 0 {
            continue;
        }
        let values: Vec<VariedValue> = (plan.labels(point).zip(&point.choices).zip(&quantities))
            .map(|(((_, text), choice), quantities)| {
                let quantity = quantities.as_ref().map(|all| all[*choice]);
                VariedValue { text: text.to_owned(), value: quantity.map(|q| q.value), unit: quantity.map(|q| q.unit) }
            })
            .collect();
        for Shape { case, workload, measurement, unit } in &shapes {
            let known = measurement.and_then(|measurement| samples.get(&(*case, *workload, measurement)));
            let known = known.and_then(|(_, samples)| estimate(samples, plan.confidence()));
            rows.push(SummaryRow {
                point: number,
                values: values.clone(),
                case: results.name(*case).to_owned(),
                workload: results.name(workload.name).to_owned(),
                copy: workload.copy,
                measurement: measurement.map_or(String::new(), |id| results.name(id).to_owned()),
                unit: unit.map(|id| results.unit(id)),
                n: known.map_or(0, |known| known.n),
                mean: known.map(|known| known.mean),
                half_width: known.and_then(|known: Estimate| known.half_width),
                minimum: known.map(|known| known.minimum),
                maximum: known.map(|known| known.maximum),
                failed: failed.get(&(*case, *workload)).copied().unwrap_or(0),
                errors,
            });
        }
    }
    Summary {
        format: "bentpipe-sweep-summary".to_owned(),
        version: 2,
        title: plan.title.clone(),
        complete: outcome.complete,
        runs: outcome.done,
        errors: outcome.errors,
        confidence: plan.request.confidence,
        vary: plan.varies.iter().map(|vary| vary.key.clone()).collect(),
        rows,
    }
}

/// One thing that is measured in the sweep.
struct Shape {
    case: NameId,
    workload: WorkloadKey,
    measurement: Option<NameId>,
    unit: Option<NameId>,
}

/// All of them, workloads and measurements in the order of their first appearance.
fn shapes(outcome: &Outcome) -> Vec<Shape> {
    let mut workloads: Vec<(NameId, WorkloadKey)> = Vec::new();
    let mut measurements: BTreeMap<(NameId, WorkloadKey), Vec<(NameId, NameId)>> = BTreeMap::new();
    for (_, _, run) in outcome.results.all().filter(|(point, run, _)| *run < outcome.targets[*point as usize]) {
        for row in &run.rows {
            let workload = (row.case, row.workload);
            let known = measurements.entry(workload).or_insert_with(|| {
                workloads.push(workload);
                Vec::new()
            });
            if let Some(measurement) = row.measurement.filter(|id| known.iter().all(|(known, _)| known != id)) {
                known.push((measurement, row.unit));
            }
        }
    }
    let mut shapes = Vec::new();
    for (case, workload) in workloads {
        let measured = measurements.remove(&(case, workload)).unwrap_or_default();
        if measured.is_empty() {
            shapes.push(Shape { case, workload, measurement: None, unit: None });
        }
        for (measurement, unit) in measured {
            shapes.push(Shape { case, workload, measurement: Some(measurement), unit: Some(unit) });
        }
    }
    shapes
}

impl Summary {
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
            "case,workload,copy,measurement,unit,confidence,n,mean,half_width,minimum,maximum,failed,errors".to_owned(),
        );
        let mut lines = vec![head.join(",")];
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        for row in &self.rows {
            let mut line = vec![row.point.to_string()];
            for value in &row.values {
                line.extend(value.value.map(|value| value.to_string()));
                line.push(field(&value.text));
            }
            line.extend([&row.case, &row.workload].map(|text| field(text)));
            line.push(row.copy.map_or(String::new(), |copy| copy.to_string()));
            line.extend([row.measurement.as_str(), row.unit.as_ref().map_or("", Unit::symbol)].map(field));
            line.extend([self.confidence.to_string(), row.n.to_string()]);
            line.extend([row.mean, row.half_width, row.minimum, row.maximum].map(number));
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
