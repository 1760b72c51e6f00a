//! The folder that a run leaves its results in.

use crate::command::BadInput;
use crate::files::write_whole;
use anyhow::Context;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A folder that takes results, locked against other runs.
#[derive(Debug)]
pub struct ResultsFolder {
    path: PathBuf,
    /// The number under which an earlier run's results are kept, once some are.
    number: Option<u32>,
    _lock: File,
}

/// Where results went.
#[derive(Debug)]
pub struct Saved {
    /// The folder that holds them, if any does.
    pub folder: Option<PathBuf>,
    /// The record of an earlier run that was there, under its new name.
    pub earlier: Option<PathBuf>,
    /// Why they are not in the folder that was asked for.
    pub problem: Option<anyhow::Error>,
}

impl ResultsFolder {
    /// Makes the folder if need be, and finds out whether it can be written to.
    pub fn open(path: PathBuf) -> Result<ResultsFolder, BadInput> {
        let shown = path.display();
        std::fs::create_dir_all(&path).map_err(|error| BadInput(format!("cannot make {shown}: {error}")))?;
        let unwritable = |error: io::Error| BadInput(format!("cannot write in {shown}: {error}"));
        let probe = path.join(format!(".bentpipe-{}", std::process::id()));
        File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).map_err(unwritable)?;
        let lock = File::open(&path).map_err(unwritable)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => {
                Err(BadInput(format!("{shown}: another run writes its results there; --out DIR names another folder")))
            }
            // Filesystems without locks take one run at a time on trust.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(ResultsFolder { path, number: None, _lock: lock }),
        }
    }

    /// A folder that did not exist: `path`, or `path-2`, `path-3` and so on.
    pub fn open_new(path: &Path) -> Result<ResultsFolder, BadInput> {
        let failed = |error: io::Error| BadInput(format!("cannot make {}: {error}", path.display()));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        ResultsFolder::open(make_new(path, &DirBuilder::new()).map_err(failed)?)
    }

    /// A folder in it, for one of several runs.
    pub fn inner(&self, name: &str) -> Result<ResultsFolder, BadInput> {
        ResultsFolder::open(self.path.join(name))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps captures of an earlier run that have one of these names: `1-x.pcapng` becomes `1-x-1.pcapng`, with the number
    /// that its record gets.
    pub fn keep_captures(&mut self, names: &[String]) -> Result<(), BadInput> {
        let earlier: Vec<&String> = names.iter().filter(|name| self.path.join(name).is_file()).collect();
        if earlier.is_empty() {
            return Ok(());
        }
        let kept = |name: &str, number: u32| match name.strip_suffix(CAPTURE) {
            Some(stem) => self.path.join(format!("{stem}-{number}{CAPTURE}")),
            None => self.path.join(format!("{name}-{number}")),
        };
        let taken = |number: u32| self.is_taken(number) || earlier.iter().any(|name| kept(name, number).exists());
        let number = (1..).find(|number| !taken(*number)).unwrap_or(u32::MAX);
        for name in earlier {
            std::fs::rename(self.path.join(name), kept(name, number))
                .map_err(|error| BadInput(format!("cannot rename {}: {error}", self.path.join(name).display())))?;
        }
        self.number = Some(number);
        Ok(())
    }

    /// Writes the results here, or, where that fails, into a new folder among the temporary files. An earlier run's results
    /// are kept under other names.
    pub fn save(&self, record: &[u8], report: &[u8]) -> Saved {
        let kept = self.keep_earlier().and_then(|earlier| write(&self.path, record, report).map(|()| earlier));
        let problem = match kept {
            Ok(earlier) => return Saved { folder: Some(self.path.clone()), earlier, problem: None },
            Err(problem) => problem,
        };
        let elsewhere = std::env::temp_dir().join(format!("bentpipe-results-{}", std::process::id()));
        let made = make_new(&elsewhere, DirBuilder::new().mode(0o700))
            .with_context(|| format!("cannot make {}", elsewhere.display()));
        match made.and_then(|folder| write(&folder, record, report).map(|()| folder)) {
            Ok(folder) => Saved { folder: Some(folder), earlier: None, problem: Some(problem) },
            Err(second) => {
                Saved { folder: None, earlier: None, problem: Some(anyhow::anyhow!("{problem:#}; {second:#}")) }
            }
        }
    }

    /// Writes the summary of several runs. An earlier one becomes `summary-1.csv`, or the next that is free; its new name is
    /// returned.
    pub fn save_summary(&self, summary: &[u8]) -> anyhow::Result<Option<PathBuf>> {
        let path = self.path.join(SUMMARY);
        let mut names = (1..=u32::MAX).map(|number| self.path.join(format!("summary-{number}.csv")));
        let earlier = if path.exists() { names.find(|name| !name.exists()) } else { None };
        if let Some(earlier) = &earlier {
            std::fs::rename(&path, earlier).with_context(|| format!("cannot rename {}", path.display()))?;
        }
        write_whole(&path, summary).map(|()| earlier)
    }

    /// An earlier record or report has this number.
    fn is_taken(&self, number: u32) -> bool {
        [format!("record-{number}.json"), format!("report-{number}.html")]
            .iter()
            .any(|name| self.path.join(name).exists())
    }

    /// `record.json` becomes `record-1.json`, or the next that is free, and its report likewise.
    fn keep_earlier(&self) -> anyhow::Result<Option<PathBuf>> {
        let here = |name: &str| self.path.join(name);
        if !here(RECORD).exists() {
            return Ok(None);
        }
        let free = || (1..).find(|number| !self.is_taken(*number)).unwrap_or(u32::MAX);
        let number = self.number.unwrap_or_else(free);
        let kept = here(&format!("record-{number}.json"));
        std::fs::rename(here(RECORD), &kept).with_context(|| format!("cannot rename {}", here(RECORD).display()))?;
        match std::fs::rename(here(REPORT), here(&format!("report-{number}.html"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot rename {}", here(REPORT).display()))
            }
            _ => Ok(Some(kept)),
        }
    }
}

/// Makes a folder that did not exist: `path`, or `path-2`, `path-3` and so on.
fn make_new(path: &Path, builder: &DirBuilder) -> io::Result<PathBuf> {
    let mut name = path.to_owned();
    let mut number = 1;
    while let Err(error) = builder.create(&name) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        number += 1;
        name = path.with_file_name(format!("{}-{number}", path.file_name().unwrap_or_default().to_string_lossy()));
    }
    Ok(name)
}

fn write(folder: &Path, record: &[u8], report: &[u8]) -> anyhow::Result<()> {
    write_whole(&folder.join(RECORD), record)?;
    write_whole(&folder.join(REPORT), report)
}

/// The ending of a capture's name.
const CAPTURE: &str = ".pcapng";
/// A run's record.
pub const RECORD: &str = "record.json";
/// Its report.
pub const REPORT: &str = "report.html";
/// The summary of several runs.
pub const SUMMARY: &str = "summary.csv";
