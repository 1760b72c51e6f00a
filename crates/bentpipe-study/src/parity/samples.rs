//! Samples, and the file that keeps them: after a change of the simulator the live side need not run again.

use super::index::Entry;
use bentpipe_lab::record::{Record, Status};
use serde::{Deserialize, Serialize};

/// The `format` of every file of samples.
pub const FORMAT: &str = "bentpipe-parity-samples";
/// The version written today. Raised only when an old reader would misunderstand the file.
pub const VERSION: u32 = 1;

/// Samples of one side of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleFile {
    /// Always [`FORMAT`].
    pub format: String,
    /// See [`VERSION`].
    pub version: u32,
    /// Version of bentpipe that wrote the file.
    pub bentpipe: String,
    /// The scenario's name in the list.
    pub name: String,
    /// `live` or `virtual`.
    pub side: String,
    /// When the last sample was taken, RFC 3339.
    pub created: String,
    /// The kernel, such as `Linux 6.18.44 x86_64`.
    pub kernel: String,
    /// The processor and how many.
    pub machine: String,
    /// The scenario's text: samples of another text are of no use.
    pub scenario: String,
    /// The workloads of which the mean was taken.
    pub workloads: Vec<String>,
    /// The measurement's name.
    pub measurement: String,
    /// Its unit.
    pub unit: String,
    /// In the order they were taken.
    pub samples: Vec<Sample>,
    /// Live runs that were not used, with the reason.
    #[serde(default)]
    pub discarded: Vec<String>,
}

/// One copy of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The run's seed.
    pub seed: u64,
    /// Which copy of the network, from 1.
    pub copy: usize,
    /// The value.
    pub value: f64,
}

/// Name of the file for one side of a scenario: `NAME.live.json`.
#[must_use]
pub fn file_name(name: &str, side: &str) -> String {
    format!("{name}.{side}.json")
}

impl SampleFile {
    /// A file without samples yet.
    #[must_use]
    pub fn empty(entry: &Entry, side: &str) -> SampleFile {
        SampleFile {
            format: FORMAT.to_owned(),
            version: VERSION,
            bentpipe: env!("CARGO_PKG_VERSION").to_owned(),
            name: entry.name.clone(),
            side: side.to_owned(),
            machine: processor(),
            scenario: entry.text.clone(),
            workloads: entry.workloads.clone(),
            measurement: entry.measurement.clone(),
            ..SampleFile::default()
        }
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<SampleFile, String> {
        let file: SampleFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if file.format != FORMAT {
            return Err(format!("its format is {:?}; allowed: {FORMAT:?}", file.format));
        }
        if file.version > VERSION {
            return Err(format!("its version is {}; this bentpipe knows up to {VERSION}", file.version));
        }
        Ok(file)
    }

    /// The file's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings and finite numbers only, which always become JSON.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Samples of this very scenario and measurement.
    #[must_use]
    pub fn fits(&self, entry: &Entry) -> bool {
        self.scenario == entry.text && self.workloads == entry.workloads && self.measurement == entry.measurement
    }

    /// The values alone.
    #[must_use]
    pub fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.value).collect()
    }

    /// The number of runs.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        let mut seeds: Vec<u64> = self.samples.iter().map(|sample| sample.seed).collect();
        seeds.dedup();
        u32::try_from(seeds.len()).unwrap_or(u32::MAX)
    }

    /// Adds the samples of a run of `copies` copies.
    pub fn add(&mut self, entry: &Entry, record: &Record, copies: usize) -> Result<(), String> {
        let (samples, unit) = take(entry, record, copies)?;
        self.samples.extend(samples);
        self.unit = unit;
        self.created = record.created.clone().unwrap_or_default();
        self.kernel = record.machine.as_ref().map(|machine| machine.kernel.clone()).unwrap_or_default();
        Ok(())
    }
}

/// The samples of a run and their unit.
fn take(entry: &Entry, record: &Record, copies: usize) -> Result<(Vec<Sample>, String), String> {
    let case = record.cases.first().ok_or("the run left no case")?;
    let mut unit = String::new();
    let mut samples = Vec::new();
    for copy in 1..=copies {
        let mut values = Vec::new();
        for name in &entry.workloads {
            let name = format!("{name} {copy}");
            let mut found = case.workloads.iter().filter(|workload| workload.name == name).peekable();
            if found.peek().is_none() {
                return Err(format!("workload {name:?} did not run"));
            }
            for workload in found {
                if workload.status != Status::Done {
                    let why = workload.error.as_deref().unwrap_or("no reason is known");
                    return Err(format!("workload {name:?} ended as {:?}: {why}", workload.status.name()));
                }
                let measured = workload.measurement(&entry.measurement);
                let measured = measured.ok_or_else(|| format!("workload {name:?} has no {}", entry.measurement))?;
                measured.unit.symbol().clone_into(&mut unit);
                values.push(measured.value);
            }
        }
        let value = values.iter().sum::<f64>() / values.len() as f64;
        samples.push(Sample { seed: record.seed, copy, value });
    }
    Ok((samples, unit))
}

/// The processor's name and how many, such as `AMD EPYC, 2 cores`.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", if model.is_empty() { std::env::consts::ARCH } else { model })
}
