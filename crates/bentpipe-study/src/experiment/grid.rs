//! The points of an experiment: for each case every combination of the axes that it follows.

use crate::sweep::grid::{Vary, quantity};
use bentpipe_lab::scenario::{Axis, Scenario};
use bentpipe_net::problem::Problem;
use std::collections::BTreeMap;

/// Points of one experiment, all cases together.
const POINTS_MAX: usize = 10_000;

/// One axis, its values read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAxis {
    /// As the file has it.
    pub axis: Axis,
    /// Its values as `--set` takes them.
    pub values: Vec<String>,
    /// The scenario's keys that get the value, `*` resolved.
    pub keys: Vec<String>,
}

/// One point of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The case's name.
    pub case: String,
    /// The value of each axis that the case follows.
    pub values: BTreeMap<String, String>,
    /// As `--set` takes them.
    pub overrides: Vec<String>,
}

/// Reads the axes of a scenario.
pub fn axes(scenario: &Scenario) -> Result<Vec<ReadAxis>, String> {
    let mut read: Vec<ReadAxis> = Vec::new();
    for axis in &scenario.axes {
        let fail = |what: String| format!("axes: {:?}: {what}", axis.name);
        if axis.name.is_empty() || read.iter().any(|other| other.axis.name == axis.name) {
            return Err(fail("is no name of its own; allowed: a name that no other axis has".to_owned()));
        }
        if axis.keys.is_empty() {
            return Err(fail("names no key; allowed: keys such as links.sat.rate".to_owned()));
        }
        let cases = axis.cases.iter().flatten();
        if let Some(unknown) = cases.into_iter().find(|name| scenario.cases.iter().all(|case| case.name != **name)) {
            return Err(fail(format!("there is no case {unknown:?}; allowed: {}", case_names(scenario))));
        }
        let (mut values, mut keys) = (Vec::new(), Vec::new());
        for key in &axis.keys {
            let vary = Vary::parse(&format!("{key}={}", axis.values)).map_err(|error| fail(error.to_string()))?;
            keys.extend(vary.keys(scenario).map_err(|error| fail(error.to_string()))?);
            values = vary.values;
        }
        read.push(ReadAxis { axis: axis.clone(), values, keys });
    }
    Ok(read)
}

/// Every point, case by case, the last axis changing fastest.
pub fn points(scenario: &Scenario, axes: &[ReadAxis]) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for case in &scenario.cases {
        let follows = |axis: &&ReadAxis| axis.axis.cases.as_ref().is_none_or(|cases| cases.contains(&case.name));
        let mut of_case = vec![Point { case: case.name.clone(), values: BTreeMap::new(), overrides: Vec::new() }];
        for axis in axes.iter().filter(follows) {
            let longer = of_case.iter().flat_map(|point| axis.values.iter().map(move |value| point.with(axis, value)));
            of_case = longer.take(POINTS_MAX + 1).collect();
        }
        points.extend(of_case);
        if points.len() > POINTS_MAX {
            return Err(format!("axes: more than {POINTS_MAX} points; allowed: fewer values"));
        }
    }
    Ok(points)
}

impl Point {
    fn with(&self, axis: &ReadAxis, value: &str) -> Point {
        let mut point = self.clone();
        point.values.insert(axis.axis.name.clone(), value.to_owned());
        point.overrides.extend(axis.keys.iter().map(|key| format!("{key}={value}")));
        point
    }

    /// The scenario of this point alone, with the seed of its `run`-th run.
    pub fn scenario(&self, base: &Scenario, run: u32) -> Result<Scenario, Problem> {
        let mut scenario = base.overridden(&self.overrides)?;
        scenario.cases.retain(|case| case.name == self.case);
        scenario.seed = base.seed + u64::from(run);
        Ok(scenario)
    }

    /// True if its values are these; axes that its case does not follow say nothing.
    #[must_use]
    pub fn is_at(&self, at: &BTreeMap<String, String>) -> bool {
        at.iter().all(|(axis, value)| self.values.get(axis).is_none_or(|own| same_value(own, value)))
    }

    /// `rate 384 kbit/s, file 10 MB`.
    #[must_use]
    pub fn label(&self, axes: &[ReadAxis]) -> String {
        let named = axes.iter().filter_map(|axis| {
            let value = self.values.get(&axis.axis.name)?;
            Some(format!("{} {}", axis.axis.name, plain(value)))
        });
        named.collect::<Vec<_>>().join(", ")
    }
}

/// True if two texts mean the same value: `8 KiB` and `8192 B` do.
#[must_use]
pub fn same_value(a: &str, b: &str) -> bool {
    match (quantity(a), quantity(b)) {
        (Some(a), Some(b)) => a.unit == b.unit && (a.value - b.value).abs() <= 1e-9 * a.value.abs(),
        _ => plain(a) == plain(b),
    }
}

/// Without its quotes.
#[must_use]
pub fn plain(value: &str) -> &str {
    value.trim().trim_matches('"')
}

fn case_names(scenario: &Scenario) -> String {
    scenario.cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>().join(", ")
}
