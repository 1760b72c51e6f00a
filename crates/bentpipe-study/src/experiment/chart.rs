//! The paper's figure again: published points and ours.

use super::grid::{plain, same_value};
use super::judge::{Lookup, Row};
use super::published::{ChartSpec, Check, Selection};
use crate::statistics::estimate;
use crate::sweep::grid::quantity;
use bentpipe_lab::page::{Chart, Line};
use bentpipe_lab::record::Unit;
use bentpipe_lab::report::quantity as write;
use indexmap::IndexMap;

/// The charts of an experiment, numbered from `first`.
#[must_use]
pub fn charts(lookup: Lookup<'_>, rows: &[Row]) -> Vec<Chart> {
    let specs = lookup.experiment.published.charts.iter().enumerate();
    specs.filter_map(|(i, spec)| chart(lookup, rows, spec, format!("figure-{}", i + 1))).collect()
}

fn chart(lookup: Lookup<'_>, rows: &[Row], spec: &ChartSpec, id: String) -> Option<Chart> {
    let experiment = lookup.experiment;
    let axis = experiment.axes.iter().find(|axis| axis.axis.name == spec.x)?;
    let x_of = |text: &str| quantity(text).map(|found| found.value);
    let x_unit = axis.values.first().and_then(|value| quantity(value)).map_or("", |found| found.unit);
    let mut unit = Unit::Number;
    let mut lines: Vec<Line> = Vec::new();
    for (number, point) in experiment.points.iter().enumerate() {
        let wanted = spec.cases.is_empty() || spec.cases.contains(&point.case);
        if !wanted || !point.is_at(&spec.at) {
            continue;
        }
        let x = point.values.get(&spec.x).and_then(|value| x_of(value));
        let others = experiment.axes.iter().filter(|axis| axis.axis.name != spec.x);
        let others = others.filter(|axis| !spec.at.contains_key(&axis.axis.name));
        let mut name: Vec<String> = Vec::new();
        for axis in others {
            if let Some(value) = point.values.get(&axis.axis.name) {
                name.push(format!("{} {}", axis.axis.name, plain(value)));
            }
        }
        for measurement in &spec.measurements {
            let key = (spec.workload.clone(), measurement.clone());
            let runs = lookup.outcome.points[number].runs.iter().flatten();
            let samples: Vec<f64> = runs
                .filter_map(|run| run.get(&key))
                .map(|(own, value)| {
                    unit.clone_from(own);
                    *value
                })
                .collect();
            let Some(mean) = estimate(&samples, super::judge::CONFIDENCE).map(|e| e.mean) else { continue };
            // Not to be confused with what was published.
            let mut label = vec![format!("ours, {}", point.case)];
            label.extend(name.iter().cloned());
            if spec.measurements.len() > 1 {
                label.push(write::name(measurement).to_lowercase());
            }
            let label = label.join(", ");
            // A case that does not follow the axis is a level.
            let xs: Vec<f64> = match x {
                Some(x) => vec![x],
                None => axis.values.iter().filter_map(|value| x_of(value)).collect(),
            };
            let line = match lines.iter_mut().position(|line| line.label == label) {
                Some(at) => &mut lines[at],
                None => {
                    lines.push(Line { label, x: vec![], y: vec![], published: false });
                    lines.last_mut()?
                }
            };
            for x in xs {
                line.x.push(x);
                line.y.push(mean);
            }
        }
    }
    lines.extend(published(lookup, rows, spec));
    lines.retain(|line| !line.x.is_empty());
    if spec.log {
        for line in &mut lines {
            let kept: Vec<(f64, f64)> =
                line.x.iter().copied().zip(line.y.iter().copied()).filter(|(x, _)| *x > 0.0).collect();
            (line.x, line.y) = kept.into_iter().unzip();
        }
    }
    for line in &mut lines {
        let mut points: Vec<(f64, f64)> = line.x.iter().copied().zip(line.y.iter().copied()).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|a, b| a.0 == b.0);
        (line.x, line.y) = points.into_iter().unzip();
    }
    let all = || lines.iter().flat_map(|line| line.x.iter().copied());
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    if lines.is_empty() || !high.is_finite() {
        return None;
    }
    let largest = lines.iter().flat_map(|line| &line.y).fold(0.0_f64, |a, y| a.max(y.abs()));
    let (y_unit, y_factor) = match &unit {
        // Times of transfers are stated in seconds.
        Unit::Seconds if largest >= 1.0 => ("s".to_owned(), 1.0),
        other => write::axis_unit(other, largest),
    };
    let (x_shown, x_factor) = match x_unit {
        "s" if high >= 1.0 => ("s".to_owned(), 1.0),
        other => write::axis_unit(&Unit::from(other), high),
    };
    for line in &mut lines {
        line.x.iter_mut().for_each(|x| *x = write::round_to_digits(*x * x_factor, 6));
        line.y.iter_mut().for_each(|y| *y = write::round_to_digits(*y * y_factor, 5));
    }
    let x_label = if x_shown.is_empty() { spec.x.clone() } else { format!("{}, {x_shown}", spec.x) };
    let linear_from = low.min(0.0) * x_factor;
    Some(Chart {
        note: String::new(),
        y_label: if y_unit.is_empty() { write::name(&spec.measurements[0]) } else { y_unit.clone() },
        unit: y_unit,
        x_label,
        x_min: if spec.log { low * x_factor } else { linear_from },
        x_max: high * x_factor,
        x_log: spec.log,
        step: false,
        group: id.clone(),
        title: spec.title.clone(),
        id,
        lines,
    })
}

/// The published values on this chart: the claims' values at its axis, and the marks of the file.
fn published(lookup: Lookup<'_>, rows: &[Row], spec: &ChartSpec) -> Vec<Line> {
    // A line for each claim and the values of the other axes.
    let mut found: IndexMap<(&str, Vec<String>), Line> = IndexMap::new();
    for (claim, _) in lookup.experiment.published.claims.iter().zip(rows) {
        let Check::Value { figure, value, .. } = &claim.check else { continue };
        let of: &Selection = &figure.of;
        let holds = |(axis, value): (&String, &String)| of.at.get(axis).is_none_or(|own| same_value(own, value));
        let drawn =
            of.workload == spec.workload && spec.measurements.contains(&of.measurement) && figure.over.is_none();
        let x = of.at.get(&spec.x).and_then(|x| quantity(x));
        let (true, true, Some(x)) = (drawn, spec.at.iter().all(holds), x) else { continue };
        // The paper knows nothing of an axis that only ours has: the same point twice is one.
        let id = claim.id.as_str();
        let is_there = found.iter().any(|((other, _), line)| {
            *other == id && line.x.iter().zip(&line.y).any(|(a, b)| *a == x.value && *b == value.value)
        });
        if is_there {
            continue;
        }
        let others = of.at.iter().filter(|(axis, _)| **axis != spec.x && !spec.at.contains_key(*axis));
        let others: Vec<String> = others.map(|(axis, value)| format!("{axis} {}", plain(value))).collect();
        let line = found.entry((id, others)).or_insert_with_key(|(id, others)| {
            let label = [vec![format!("published, {id}")], others.clone()].concat().join(", ");
            Line { label, published: true, ..Line::default() }
        });
        line.x.push(x.value);
        line.y.push(value.value);
    }
    let mut lines: Vec<Line> = found.into_values().collect();
    for (label, points) in &spec.marks {
        let (x, y) = points.iter().copied().unzip();
        lines.push(Line { label: format!("published, {label}"), x, y, published: true });
    }
    lines
}
