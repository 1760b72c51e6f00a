//! The runs of a sweep: every point of the grid, and the number of seeds of each.

use super::SweepError;
use super::counters::Counter;
use super::grid::{Quantity, Vary, quantity};
use bentpipe_lab::registry::Registry;
use bentpipe_lab::scenario::{Scenario, find_link, flatten};
use bentpipe_net::problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use toml::{Table, Value};

/// Points of one grid.
const POINTS_MAX: usize = 100_000;
/// Seeds of one point.
const SEEDS_MAX: u32 = 1_000_000;
/// NTIA 98-354 §2.3.1: each sentence was measured five times, further measurements came in multiples of five.
pub const SEEDS_STEP: u32 = 5;

/// A user's request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The scenario's file name.
    pub source_name: String,
    /// Its text.
    pub text: String,
    /// `--set`, for every point.
    pub set: Vec<String>,
    /// `--vary`.
    pub vary: Vec<String>,
    /// The number of seeds.
    pub seeds: SeedRule,
    /// Of the confidence intervals, in percent.
    pub confidence: f64,
    /// Counters of links and hosts to measure.
    pub measure: Vec<Counter>,
}

/// The number of seeds of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeedRule {
    /// So many.
    Count(u32),
    /// Until the confidence intervals are narrow enough.
    Until {
        /// `MEASUREMENT=LIMIT`, as they were written; all must hold.
        limits: Vec<String>,
        /// At least so many seeds.
        min: u32,
        /// At most so many.
        max: u32,
    },
}

/// One `--until`: the half-width that ends a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The measurement.
    pub measurement: String,
    /// The greatest half-width allowed.
    pub half_width: HalfWidth,
}

/// A half-width, absolute or as a share of the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HalfWidth {
    /// A share of the mean's magnitude.
    OfMean(f64),
    /// In a base unit.
    Absolute(Quantity),
}

/// A checked sweep.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The request.
    pub request: Request,
    /// The scenario's title.
    pub title: String,
    /// The first seed; the others follow it.
    pub seed: u64,
    /// The axes.
    pub varies: Vec<Vary>,
    /// The points, the last `--vary` changing fastest.
    pub points: Vec<Point>,
    /// The stopping rule; empty with a fixed number of seeds.
    pub limits: Vec<Limit>,
    /// Names of the cases, in order.
    pub cases: Vec<String>,
    /// Texts of the links used, by their `kind`.
    pub links: BTreeMap<String, String>,
    base: Scenario,
}

/// One point of the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// For each `--vary`, which of its values.
    pub choices: Vec<usize>,
    /// As `--set` takes it.
    pub overrides: Vec<String>,
}

impl SeedRule {
    /// Seeds that every point gets at least.
    fn least(&self) -> u32 {
        match self {
            SeedRule::Count(count) => *count,
            SeedRule::Until { min, .. } => *min,
        }
    }

    /// Seeds that every point gets at most.
    fn most(&self) -> u32 {
        match self {
            SeedRule::Count(count) => *count,
            SeedRule::Until { max, .. } => *max,
        }
    }
}

impl Limit {
    /// Reads `goodput=2%` or `completion_time=0.1 s`.
    pub fn parse(text: &str) -> Result<Limit, SweepError> {
        let fail = || {
            SweepError::Request(format!(
                "--until '{text}': is not MEASUREMENT=LIMIT; allowed: a share of the mean above 0 %, such as goodput=2%, \
                 or a half-width in the measurement's unit, such as 'completion_time=0.1 s'"
            ))
        };
        let (measurement, limit) = text.split_once('=').ok_or_else(fail)?;
        let (measurement, limit) = (measurement.trim(), limit.trim());
        let half_width = match (limit.strip_suffix('%'), quantity(limit)) {
            (Some(percent), _) => HalfWidth::OfMean(percent.trim().parse::<f64>().map_err(|_| fail())? / 100.0),
            (None, Some(quantity)) => HalfWidth::Absolute(quantity),
            (None, None) => return Err(fail()),
        };
        let (HalfWidth::OfMean(value) | HalfWidth::Absolute(Quantity { value, .. })) = half_width;
        if measurement.is_empty() || !(value > 0.0 && value.is_finite()) {
            return Err(fail());
        }
        Ok(Limit { measurement: measurement.to_owned(), half_width })
    }
}

impl Plan {
    /// Reads and checks everything, each point's scenario included; `check` says what the runner cannot do.
    pub fn new(
        request: Request,
        registry: &Arc<Registry>,
        check: &dyn Fn(&Scenario) -> Result<(), Problem>,
    ) -> Result<Plan, SweepError> {
        let Request { source_name, text, set, vary, seeds, confidence, measure: _ } = &request;
        let base = Scenario::parse_with(registry, source_name, text, set).map_err(SweepError::Scenario)?;
        if !(*confidence > 50.0 && *confidence < 100.0) {
            let what = format!("--confidence {confidence}: allowed: above 50 and below 100, such as 99");
            return Err(SweepError::Request(what));
        }
        let limits = check_seeds(seeds)?;
        base.run_seeds(seeds.most()).map_err(SweepError::Scenario)?;
        let varies = vary.iter().map(|text| Vary::parse(text)).collect::<Result<Vec<Vary>, _>>()?;
        let keys = varies.iter().map(|vary| vary.keys(&base)).collect::<Result<Vec<_>, _>>()?;
        check_keys(&varies, &keys, text)?;
        let size = varies.iter().try_fold(1_usize, |size, vary| size.checked_mul(vary.values.len()));
        let Some(size) = size.filter(|size| *size <= POINTS_MAX) else {
            return Err(SweepError::Request(format!("the grid has too many points; allowed: up to {POINTS_MAX}")));
        };
        // What is wrong with the scenario itself is no matter of what varies; a point may put it right, though.
        let wrong = check(&base).err();
        let mut plan = Plan {
            title: base.title.clone(),
            seed: base.seed,
            points: Vec::with_capacity(size),
            limits,
            cases: base.cases.iter().map(|case| case.name.clone()).collect(),
            links: BTreeMap::new(),
            varies,
            base,
            request,
        };
        for number in 0..size {
            let point = plan.point(number, &keys);
            let checked =
                plan.base.overridden(&point.overrides).and_then(|scenario| check(&scenario).map(|()| scenario));
            let scenario = checked.map_err(|problem| {
                if wrong.as_ref() == Some(&problem) {
                    return SweepError::Scenario(problem);
                }
                let shown: Vec<String> = plan.labels(&point).map(|(key, value)| format!("{key} = {value}")).collect();
                SweepError::Request(format!("--vary: with {}: {problem}", shown.join(", ")))
            })?;
            for link in scenario.cases.iter().flat_map(|case| &case.links) {
                // A link without a kind is in the scenario's own text.
                let Some(kind) = link.kind.as_ref().filter(|kind| !plan.links.contains_key(*kind)) else { continue };
                let folder = Path::new(&plan.request.source_name).parent().unwrap_or(Path::new(""));
                let file = find_link(kind, folder).map_err(SweepError::Request)?;
                plan.links.insert(kind.clone(), file.text);
            }
            plan.points.push(point);
        }
        Ok(plan)
    }

    /// The scenario of one run: its point's settings and its seed.
    pub fn scenario(&self, point: usize, run: u32) -> Result<Scenario, SweepError> {
        let point = &self.points[point];
        let mut scenario =
            self.base.overridden(&point.overrides).map_err(|problem| SweepError::Request(problem.to_string()))?;
        scenario.seed = self.run_seed(run);
        Ok(scenario)
    }

    /// The seed of the `run`-th run of every point: the scenario's, and those after it.
    pub fn run_seed(&self, run: u32) -> u64 {
        self.seed + u64::from(run)
    }

    /// Of each `--vary` the key and this point's value.
    pub fn labels<'a>(&'a self, point: &'a Point) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.varies.iter().zip(&point.choices).map(|(vary, i)| (vary.key.as_str(), vary.values[*i].as_str()))
    }

    /// The confidence as a share.
    pub fn confidence(&self) -> f64 {
        self.request.confidence / 100.0
    }

    /// Seeds that every point gets at least, and at most.
    pub fn seeds(&self) -> (u32, u32) {
        let seeds = &self.request.seeds;
        (seeds.least(), seeds.most())
    }

    fn point(&self, number: usize, keys: &[Vec<String>]) -> Point {
        let mut rest = number;
        let mut choices = vec![0; self.varies.len()];
        for (choice, vary) in choices.iter_mut().zip(&self.varies).rev() {
            (*choice, rest) = (rest % vary.values.len(), rest / vary.values.len());
        }
        let mut overrides = Vec::new();
        for ((vary, keys), choice) in self.varies.iter().zip(keys).zip(&choices) {
            overrides.extend(keys.iter().map(|key| format!("{key}={}", vary.values[*choice])));
        }
        Point { choices, overrides }
    }
}

fn check_seeds(seeds: &SeedRule) -> Result<Vec<Limit>, SweepError> {
    let within = |option: &str, count: u32, least: u32| {
        if (least..=SEEDS_MAX).contains(&count) {
            return Ok(());
        }
        Err(SweepError::Request(format!("{option} {count}: allowed: {least} to {SEEDS_MAX}")))
    };
    match seeds {
        SeedRule::Count(count) => within("--seeds", *count, 1).map(|()| Vec::new()),
        SeedRule::Until { limits, min, max } => {
            within("--seeds-min", *min, 2)?;
            within("--seeds-max", *max, *min)?;
            limits.iter().map(|text| Limit::parse(text)).collect()
        }
    }
}

/// No key twice, and none that every case sets itself: it would not vary at all.
fn check_keys(varies: &[Vary], keys: &[Vec<String>], text: &str) -> Result<(), SweepError> {
    let mut seen: BTreeMap<&str, &Vary> = BTreeMap::new();
    // The text was read as a scenario before.
    let table: Table = toml::from_str(text).unwrap_or_default();
    let none = Vec::new();
    let cases = table.get("cases").and_then(Value::as_array).unwrap_or(&none);
    let settings = |case: &Value| case.get("set").and_then(Value::as_table).map(|set| flatten("", set));
    let settings: Vec<Vec<(String, Value)>> = cases.iter().filter_map(settings).collect();
    for (vary, keys) in varies.iter().zip(keys) {
        for key in keys {
            if let Some(other) = seen.insert(key, vary) {
                let what = format!("--vary '{}': {key} is varied by --vary '{}' already", vary.text, other.text);
                return Err(SweepError::Request(what));
            }
            if settings.iter().any(|case| case.iter().any(|(set, _)| set == key)) {
                let what = format!(
                    "--vary '{}': a case of the scenario sets {key} itself, which would win; allowed: a scenario whose \
                     cases leave it alone",
                    vary.text
                );
                return Err(SweepError::Request(what));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::tests::{SCENARIO, planned, request};

    #[test]
    fn a_grid_is_every_combination_in_order() {
        let plan = planned(request(&["links.sat.noise.ratio=1e-9..1e-7 log 3", "hosts.*.tcp.sack=true,false"]));
        let labels: Vec<String> = plan
            .points
            .iter()
            .map(|point| plan.labels(point).map(|(_, value)| value).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(labels, ["1e-9 true", "1e-9 false", "1e-8 true", "1e-8 false", "1e-7 true", "1e-7 false"]);
        let scenario = plan.scenario(3, 2).unwrap();
        assert_eq!(scenario.seed, 9);
        assert!(scenario.cases[0].tcp.values().all(|tcp| tcp.sack == Some(false)));
        assert_eq!(scenario.overrides[0], "links.sat.noise.ratio=1e-8");
        assert!(plan.links.contains_key("geo-two-way"));
        assert_eq!(planned(request(&[])).points.len(), 1);
    }

    #[test]
    fn each_mistake_is_found_before_anything_runs() {
        let big = "links.sat.noise.ratio=1e-9..1e-3 log 10000";
        for (vary, parts) in [
            (&["links.moon.rate=1 Mbit/s"] as &[&str], &["links.moon.rate", "no link"] as &[&str]),
            (&["links.sat.rate=1 Mbit/s,fast"], &["links.sat.rate = fast", "not a rate"]),
            (&["links.sat.noise.ratio=0.1,0.7"], &["= 0.7", "0 to 0.5"]),
            (&["links.sat.noyse=1"], &["noyse", "noise"]),
            (&["hosts.*.tcp.sack=true", "hosts.hub.tcp.sack=false"], &["hosts.hub.tcp.sack", "already"]),
            (&[big, "hosts.*.tcp.initial_window=1..100 lin 100"], &["too many points"]),
        ] {
            let error = Plan::new(request(vary), &Arc::default(), &|_| Ok(())).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{vary:?}: {error}");
        }
        let cased = Request {
            text: format!("{SCENARIO}\n[[cases]]\nname = \"a\"\nset = {{ \"hosts.hub.tcp.sack\" = false }}\n"),
            ..request(&["hosts.*.tcp.sack=true,false"])
        };
        assert!(
            Plan::new(cased, &Arc::default(), &|_| Ok(()))
                .unwrap_err()
                .to_string()
                .contains("a case of the scenario sets hosts.hub.tcp.sack")
        );
        for (seeds, confidence, part) in [
            (SeedRule::Count(0), 99.0, "--seeds 0"),
            (SeedRule::Count(3), 100.0, "--confidence 100"),
            (SeedRule::Until { limits: vec![], min: 1, max: 9 }, 99.0, "--seeds-min 1"),
            (SeedRule::Until { limits: vec![], min: 5, max: 4 }, 99.0, "--seeds-max 4"),
            (SeedRule::Until { limits: vec!["goodput".into()], min: 5, max: 9 }, 99.0, "MEASUREMENT=LIMIT"),
        ] {
            let error = Plan::new(Request { seeds, confidence, ..request(&[]) }, &Arc::default(), &|_| Ok(()))
                .unwrap_err()
                .to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn limits_are_shares_or_absolute() {
        let parsed = |text: &str| Limit::parse(text).unwrap().half_width;
        assert_eq!(parsed("goodput=2%"), HalfWidth::OfMean(0.02));
        assert_eq!(parsed("mos=0.1"), HalfWidth::Absolute(Quantity { value: 0.1, unit: "1" }));
        assert_eq!(parsed("completion_time=100 ms"), HalfWidth::Absolute(Quantity { value: 0.1, unit: "s" }));
        for bad in ["goodput", "goodput=", "=2%", "goodput=0%", "goodput=-1 %", "goodput=fast", "goodput=x%"] {
            assert!(Limit::parse(bad).is_err(), "{bad}");
        }
    }
}
