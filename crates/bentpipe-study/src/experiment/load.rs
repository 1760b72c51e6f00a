//! Reading `experiments/ID/`.

use super::grid::{Point, ReadAxis, axes, points};
use super::published::Published;
use bentpipe_lab::files::{TEXT_BYTES_MAX, read_text};
use bentpipe_lab::registry::Registry;
use bentpipe_lab::scenario::workload::Workload;
use bentpipe_lab::scenario::{LinkUse, Scenario};
use bentpipe_lab::simulated;
use bentpipe_net::problem::Problem;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An experiment, checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its folder's name.
    pub id: String,
    /// Its case.
    pub scenario: Scenario,
    /// The axes.
    pub axes: Vec<ReadAxis>,
    /// All points, the published case's first.
    pub points: Vec<Point>,
    /// The paper's statement.
    pub published: Published,
    /// The text of `published.toml`.
    pub published_text: String,
    /// The README.
    pub readme: String,
}

/// Why an experiment could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file is wrong.
    #[error(transparent)]
    File(#[from] Problem),
    /// Something about it is, as a whole.
    #[error("{0}: {1}")]
    Folder(PathBuf, String),
    /// A file could not be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
}

/// The heading that a README ends in.
const VALIDATION: &str = "## Validation";
/// Runs of a point.
const SEEDS_MAX: u32 = 10_000;

/// The experiments in a folder, by name.
pub fn list(folder: &Path) -> Result<Vec<String>, LoadError> {
    let entries = std::fs::read_dir(folder).map_err(|error| LoadError::Read(folder.to_owned(), error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| LoadError::Read(folder.to_owned(), error))?;
        if entry.path().join("scenario.toml").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Reads and checks one; every point of it can be simulated.
pub fn load(folder: &Path, id: &str) -> Result<Experiment, LoadError> {
    load_with(&Arc::default(), folder, id)
}

/// The same with the kinds of a registry.
pub fn load_with(registry: &Arc<Registry>, folder: &Path, id: &str) -> Result<Experiment, LoadError> {
    let folder = folder.join(id);
    let wrong = |what: String| LoadError::Folder(folder.clone(), what);
    let text_of = |name: &str| {
        let path = folder.join(name);
        read_text(&path, TEXT_BYTES_MAX).map_err(|error| LoadError::Read(path, error))
    };
    let path = folder.join("scenario.toml").display().to_string();
    let scenario = Scenario::parse_with(registry, &path, &text_of("scenario.toml")?, &[])?;
    let seeds = scenario.seeds.unwrap_or(1);
    if !(1..=SEEDS_MAX).contains(&seeds) {
        return Err(wrong(format!("seeds = {seeds}; allowed: 1 to {SEEDS_MAX}")));
    }
    scenario.run_seeds(SEEDS_MAX)?;
    let axes = axes(&scenario).map_err(&wrong)?;
    let points = points(&scenario, &axes).map_err(&wrong)?;
    check_assumptions(&scenario).map_err(&wrong)?;
    let published_text = text_of("published.toml")?;
    let name = folder.join("published.toml").display().to_string();
    let published = Published::parse(&name, &published_text, &scenario, &axes)?;
    let readme = text_of("README.md")?;
    let last = readme.lines().rfind(|line| line.starts_with("## "));
    if last != Some(VALIDATION) {
        return Err(wrong(format!("the README's last section is {last:?}; allowed: {VALIDATION}")));
    }
    let experiment = Experiment { id: id.to_owned(), scenario, axes, points, published, published_text, readme };
    for point in &experiment.points {
        let scenario = point.scenario(&experiment.scenario, 0)?;
        simulated::check(&scenario, false)?;
    }
    Ok(experiment)
}

/// Every assumption is a key of the scenario, set in it or left to the link's file, and has a sentence.
fn check_assumptions(scenario: &Scenario) -> Result<(), String> {
    for (key, reason) in &scenario.assumptions {
        if reason.trim().len() < 20 {
            return Err(format!("assumptions: {key}: {reason:?} is no reason; allowed: a sentence"));
        }
        let last = key.rsplit('.').next().unwrap_or_default();
        let first = key.split('.').next().unwrap_or_default();
        if !["links", "hosts", "workloads", "axes"].contains(&first) || !scenario.text.contains(last) {
            return Err(format!("assumptions: {key}: is set nowhere in the scenario; allowed: a key that it sets"));
        }
    }
    Ok(())
}

impl Experiment {
    /// True if chance has no part in a point: no errors, no losses, no jitter, no calls of which some connect late, no starts
    /// that are spread.
    #[must_use]
    pub fn is_certain(scenario: &Scenario) -> bool {
        use bentpipe_link::noise::RatioSchedule;
        use bentpipe_net::time::Duration;
        let links = scenario.cases.iter().flat_map(|case| &case.links);
        let some_late = |link: &LinkUse| {
            let rule = link.config.circuit.as_ref().and_then(|circuit| circuit.on_demand);
            rule.is_some_and(|rule| {
                rule.connects_late > Duration::ZERO && rule.late_share > 0.0 && rule.late_share < 1.0
            })
        };
        let spread = |workload: &Workload| {
            let draws = workload.placement.workload.is_random() || workload.pause.fixed().is_none();
            draws || workload.spread > Duration::ZERO
        };
        if links.clone().any(some_late) || scenario.cases.iter().flat_map(|case| &case.workloads).any(spread) {
            return false;
        }
        let mut directions = links.flat_map(|link| [&link.config.forward, &link.config.back]);
        directions.all(|direction| {
            let quiet = matches!(&direction.noise, RatioSchedule::Constant(ratio) if ratio.ratio() == 0.0);
            quiet && direction.medium.loss.is_none() && direction.medium.jitter.is_none()
        })
    }

    /// Runs of a point that chance has a part in.
    #[must_use]
    pub fn seeds(&self) -> u32 {
        self.scenario.seeds.unwrap_or(1)
    }

    /// Every point is certain: the same figures with every seed.
    #[must_use]
    pub fn certain(&self) -> bool {
        let certain = |point: &Point| point.scenario(&self.scenario, 0).is_ok_and(|one| Experiment::is_certain(&one));
        self.points.iter().all(certain)
    }
}
