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
            Ok(()) | Err(TryLockError::Error(_)) => Ok(ResultsFolder { path, _lock: lock }),
        }
    }

    /// A folder that did not exist: `path`, or `path-2`, `path-3` and so on.
    pub fn open_new(path: &Path) -> Result<ResultsFolder, BadInput> {
        let failed = |error: io::Error| BadInput(format!("cannot make {}: {error}", path.display()));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut name = path.to_owned();
        let mut number = 1;
        while let Err(error) = std::fs::create_dir(&name) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(failed(error));
            }
            number += 1;
            name = path.with_file_name(format!("{}-{number}", path.file_name().unwrap_or_default().to_string_lossy()));
        }
        ResultsFolder::open(name)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
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
        let made = DirBuilder::new()
            .mode(0o700)
            .create(&elsewhere)
            .with_context(|| format!("cannot make {}", elsewhere.display()));
        match made.and_then(|()| write(&elsewhere, record, report)) {
            Ok(()) => Saved { folder: Some(elsewhere), earlier: None, problem: Some(problem) },
            Err(second) => {
                Saved { folder: None, earlier: None, problem: Some(anyhow::anyhow!("{problem:#}; {second:#}")) }
            }
        }
    }

    /// `record.json` becomes `record-1.json`, or the next that is free, and its report likewise.
    fn keep_earlier(&self) -> anyhow::Result<Option<PathBuf>> {
        let here = |name: &str| self.path.join(name);
        if !here(RECORD).exists() {
            return Ok(None);
        }
        let mut number = 1;
        while here(&format!("record-{number}.json")).exists() || here(&format!("report-{number}.html")).exists() {
            number += 1;
        }
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

fn write(folder: &Path, record: &[u8], report: &[u8]) -> anyhow::Result<()> {
    write_whole(&folder.join(RECORD), record)?;
    write_whole(&folder.join(REPORT), report)
}

/// A run's record.
pub const RECORD: &str = "record.json";
/// Its report.
pub const REPORT: &str = "report.html";
