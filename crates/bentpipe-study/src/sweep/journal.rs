//! A sweep's folder: what was asked (`sweep.json`), who works in it (`sweep.lock`), and the runs done (`journal.jsonl`,
//! one line a run, written as each one ends).

use super::SweepError;
use super::counters::{self, Counter, CounterLine};
use super::plan::{Plan, SeedRule};
use bentpipe_lab::record::v1::{self, CopyNames};
use bentpipe_lab::record::{Record, Status, Unit};
use bentpipe_lab::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const FORMAT: &str = "bentpipe-sweep";
/// Written today. Version 1 had the number of a copy in the workload's name, and `1` for the unit of shares.
const VERSION: u32 = 2;
const REQUESTED: &str = "sweep.json";
const LOCK: &str = "sweep.lock";
const JOURNAL: &str = "journal.jsonl";

/// The request of a sweep; a folder belongs to one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepRequest {
    /// Always `bentpipe-sweep`.
    pub format: String,
    /// Of this file and the journal.
    pub version: u32,
    /// Version of bentpipe that made the folder.
    pub bentpipe: String,
    /// The scenario's file name, as it was given first.
    pub scenario_file: String,
    /// The scenario's text.
    pub scenario: String,
    /// Texts of the links it uses, by kind.
    pub links: BTreeMap<String, String>,
    /// `--set`.
    pub set: Vec<String>,
    /// `--vary`.
    pub vary: Vec<String>,
    /// The number of seeds.
    pub seeds: SeedRule,
    /// In percent.
    pub confidence: f64,
    /// Counters of links and hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measure: Vec<Counter>,
}

/// One run in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// The point of the grid, from 0.
    pub point: u32,
    /// Which of the point's runs, from 0.
    pub run: u32,
    /// The seed.
    pub seed: u64,
    /// Why the run could not be done; it is tried again when the sweep continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Runs of its workloads.
    pub workloads: Vec<WorkloadLine>,
    /// Counters of its links and hosts, as far as they are measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterLine>,
}

/// One workload of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadLine {
    /// The case.
    pub case: String,
    /// Its name.
    pub workload: String,
    /// Which copy, from 1; absent where there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<u32>,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// Its end.
    pub status: Status,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Quantity, unit and value; no value where it was no finite number.
    pub measurements: Vec<(String, Unit, Option<f64>)>,
}

impl RunLine {
    /// The line of a record of `scenario`, with the counters of `measure`.
    pub fn of(point: u32, run: u32, measure: &[Counter], scenario: &Scenario, record: &Record) -> RunLine {
        let workloads = record.cases.iter().flat_map(|case| {
            case.workloads.iter().map(|workload| WorkloadLine {
                case: case.name.clone(),
                workload: workload.name.clone(),
                copy: workload.copy,
                repeat: workload.repeat,
                status: workload.status,
                error: workload.error.clone(),
                measurements: workload
                    .measurements
                    .iter()
                    .map(|m| (m.quantity.clone(), m.unit.clone(), m.value.is_finite().then_some(m.value)))
                    .collect(),
            })
        });
        let counters = counters::lines(measure, scenario, record);
        RunLine { point, run, seed: record.seed, error: None, workloads: workloads.collect(), counters }
    }

    /// A line of version 1 as it would be written today; another is left as it is.
    fn upgrade(mut self, names: &CopyNames) -> RunLine {
        for workload in &mut self.workloads {
            if workload.copy.is_none() {
                let (name, copy) = names.split(&workload.workload);
                (workload.workload, workload.copy) = (name.to_owned(), copy);
            }
            for (quantity, unit, _) in &mut workload.measurements {
                *unit = v1::unit(quantity, unit.symbol());
            }
        }
        self
    }

    /// The line of a run that could not be done.
    pub fn failed(point: u32, run: u32, seed: u64, error: String) -> RunLine {
        RunLine { point, run, seed, error: Some(error), workloads: Vec::new(), counters: Vec::new() }
    }
}

impl SweepRequest {
    /// The request of `plan`.
    pub fn of(plan: &Plan) -> SweepRequest {
        let request = &plan.request;
        SweepRequest {
            format: FORMAT.to_owned(),
            version: VERSION,
            bentpipe: env!("CARGO_PKG_VERSION").to_owned(),
            scenario_file: request.source_name.clone(),
            scenario: request.text.clone(),
            links: plan.links.clone(),
            set: request.set.clone(),
            vary: request.vary.clone(),
            seeds: request.seeds.clone(),
            confidence: request.confidence,
            measure: request.measure.clone(),
        }
    }

    /// The first thing in which `other` differs, for a message. Where the scenario's file lies does not matter.
    fn difference(&self, other: &SweepRequest) -> Option<String> {
        let list = |texts: &[String]| if texts.is_empty() { "none".to_owned() } else { texts.join("; ") };
        let both = |what: &str, mine: String, theirs: String| Some(format!("{what}: {theirs} there, {mine} now"));
        if self.bentpipe != other.bentpipe {
            return both("bentpipe's version", self.bentpipe.clone(), other.bentpipe.clone());
        }
        if self.scenario != other.scenario {
            return Some(format!("the text of {} has changed", other.scenario_file));
        }
        if self.set != other.set {
            return both("--set", list(&self.set), list(&other.set));
        }
        if self.vary != other.vary {
            return both("--vary", list(&self.vary), list(&other.vary));
        }
        if self.seeds != other.seeds {
            return both("seeds", self.seeds.to_string(), other.seeds.to_string());
        }
        if self.confidence != other.confidence {
            return both("--confidence", self.confidence.to_string(), other.confidence.to_string());
        }
        if self.measure != other.measure {
            let list =
                |of: &SweepRequest| list(&of.measure.iter().map(|counter| counter.id().to_owned()).collect::<Vec<_>>());
            return both("--measure", list(self), list(other));
        }
        let link = self.links.iter().find(|(kind, text)| other.links.get(*kind) != Some(*text));
        link.map(|(kind, _)| format!("the link {kind} has changed"))
    }
}

impl std::fmt::Display for SeedRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SeedRule::Count(count) => write!(f, "{count}"),
            SeedRule::Until { limits, min, max } => write!(f, "until {} ({min} to {max})", limits.join(" and ")),
        }
    }
}

/// A sweep's folder, held by this process.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    journal: File,
    /// Length of the journal's whole lines.
    length: u64,
    // Held until the folder is dropped, or the process ends in any way.
    _lock: File,
}

impl Folder {
    /// Opens `path` for the sweep `request`, making it if need be. The runs that it holds already are returned.
    pub fn open(path: &Path, request: &SweepRequest) -> Result<(Folder, Vec<RunLine>), SweepError> {
        let fail =
            |what: &str, error: io::Error| SweepError::folder(format!("cannot {what} {}", path.display()), error);
        std::fs::create_dir_all(path).map_err(|error| fail("make", error))?;
        let lock = File::create(path.join(LOCK)).map_err(|error| fail("write to", error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SweepError::Busy(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(fail("lock", error)),
        }
        match read_request(path)? {
            Some(there) => {
                check_same(path, request, &there)?;
                // Lines of this version follow, which an older reader would misunderstand.
                if there.version < VERSION {
                    write_request(path, request)?;
                }
            }
            None if path.join(JOURNAL).exists() => {
                return Err(SweepError::Request(format!(
                    "{} holds a {JOURNAL} but no {REQUESTED} that says what it is of; allowed: another folder",
                    path.display()
                )));
            }
            None => write_request(path, request)?,
        }
        let journal = OpenOptions::new().create(true).read(true).append(true).open(path.join(JOURNAL));
        let journal = journal.map_err(|error| fail("write to", error))?;
        let (lines, length) = read_journal(path, request)?;
        // A last line without its end is of a run that was killed while it was written.
        let found = journal.metadata().map_err(|error| fail("read", error))?.len();
        if found != length {
            journal.set_len(length).map_err(|error| fail("write to", error))?;
        }
        Ok((Folder { path: path.to_owned(), journal, length, _lock: lock }, lines))
    }

    /// The runs of another folder of the same sweep, such as a shard's.
    pub fn read_other(path: &Path, request: &SweepRequest) -> Result<Vec<RunLine>, SweepError> {
        let there = read_request(path)?
            .ok_or_else(|| SweepError::Request(format!("{} holds no sweep (no {REQUESTED})", path.display())))?;
        check_same(path, request, &there)?;
        Ok(read_journal(path, request)?.0)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a run. What was there before stays whole even when the disk is full.
    pub fn append(&mut self, line: &RunLine) -> Result<(), SweepError> {
        let write = |journal: &mut File| {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            // One write: a kill leaves the whole line, or a start of it that the next reader takes away.
            journal.write_all(&text)?;
            Ok(text.len() as u64)
        };
        match write(&mut self.journal) {
            Ok(written) => {
                self.length += written;
                Ok(())
            }
            Err(error) => {
                // Best effort: a torn line is ignored anyway, and the first error is the one that matters.
                let _ = self.journal.set_len(self.length);
                Err(SweepError::folder(format!("cannot write {}", self.path.join(JOURNAL).display()), error))
            }
        }
    }

    /// Returns when everything appended so far would survive a power failure.
    pub fn sync(&self) -> Result<(), SweepError> {
        let synced = self.journal.sync_data();
        let what = || format!("cannot write {}", self.path.join(JOURNAL).display());
        synced.map_err(|error| SweepError::folder(what(), error))
    }
}

/// Writes a file of the folder so that it is there whole or as it was before.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), SweepError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.new"));
    let whole = || {
        let mut file = File::create(&temporary)?;
        write(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    whole().map_err(|error| {
        // Best effort: the error that matters is the first.
        let _ = std::fs::remove_file(&temporary);
        SweepError::folder(format!("cannot write {}", path.display()), error)
    })
}

fn check_same(path: &Path, request: &SweepRequest, there: &SweepRequest) -> Result<(), SweepError> {
    match request.difference(there) {
        None => Ok(()),
        Some(difference) => Err(SweepError::Request(format!(
            "{} holds another sweep ({difference}); allowed: the same command, which continues it, or another folder",
            path.display()
        ))),
    }
}

fn write_request(folder: &Path, request: &SweepRequest) -> Result<(), SweepError> {
    let text = serde_json::to_string_pretty(request);
    let text =
        text.map_err(|error| SweepError::folder(format!("cannot write to {}", folder.display()), error.into()))?;
    replace(&folder.join(REQUESTED), |file| writeln!(file, "{text}"))
}

fn read_request(folder: &Path) -> Result<Option<SweepRequest>, SweepError> {
    let path = folder.join(REQUESTED);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SweepError::folder(format!("cannot read {}", path.display()), error)),
    };
    let not = |why: String| SweepError::Request(format!("{}: {why}; allowed: another folder", path.display()));
    let head: serde_json::Value = serde_json::from_str(&text).map_err(|error| not(format!("is damaged: {error}")))?;
    if head.get("format").and_then(serde_json::Value::as_str) != Some(FORMAT) {
        return Err(not(format!("\"format\" is not {FORMAT:?}")));
    }
    if !head.get("version").and_then(serde_json::Value::as_u64).is_some_and(|v| (1..=u64::from(VERSION)).contains(&v)) {
        return Err(not("was written by another version of bentpipe".to_owned()));
    }
    serde_json::from_str(&text).map(Some).map_err(|error| not(format!("is damaged: {error}")))
}

/// The whole lines of a journal, and their length.
fn read_journal(folder: &Path, request: &SweepRequest) -> Result<(Vec<RunLine>, u64), SweepError> {
    use io::BufRead;
    let path = folder.join(JOURNAL);
    let fail = |error| SweepError::folder(format!("cannot read {}", path.display()), error);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(fail(error)),
    };
    let mut reader = io::BufReader::new(file);
    reader.seek(SeekFrom::Start(0)).map_err(fail)?;
    let names = CopyNames::of(&request.scenario);
    let (mut lines, mut length, mut text) = (Vec::new(), 0, Vec::new());
    loop {
        text.clear();
        let read = reader.read_until(b'\n', &mut text).map_err(fail)?;
        if text.last() != Some(&b'\n') {
            return Ok((lines, length));
        }
        length += read as u64;
        match serde_json::from_slice::<RunLine>(&text) {
            Ok(line) => lines.push(line.upgrade(&names)),
            Err(error) => {
                return Err(SweepError::Request(format!(
                    "{}:{}: is damaged ({error}); delete that line, and its run is done again",
                    path.display(),
                    lines.len() + 1
                )));
            }
        }
    }
}

#[cfg(test)]
impl Folder {
    /// A folder whose journal is another file.
    pub fn onto(path: &Path, journal: File) -> Folder {
        let lock = File::open(path.join(LOCK)).expect("the folder was opened before");
        Folder { path: path.to_owned(), journal, length: 0, _lock: lock }
    }
}
