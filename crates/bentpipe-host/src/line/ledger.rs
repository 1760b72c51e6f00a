//! The ledger on disk: append-only, each entry synced before anything follows from it.

use bentpipe_gateway::dial::ledger::{CallEnd, Ending, Entry, Ledger, LedgerProblem, News};
use bentpipe_link::tariff::{Money, Tariff};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A ledger that calls are written to.
#[derive(Debug)]
pub struct LedgerFile {
    file: File,
}

/// Why a ledger cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerFileError {
    /// The system's reason.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Another gateway writes to it.
    #[error("{0}: another gateway has it open, or a hook still ends its call")]
    InUse(PathBuf),
    /// It is something else.
    #[error("{path}: {problem}")]
    Problem {
        /// The file.
        path: PathBuf,
        /// The mistake.
        problem: LedgerProblem,
    },
}

/// Reads a ledger; one that does not exist is empty.
pub fn read(path: &Path) -> Result<Ledger, LedgerFileError> {
    match std::fs::read(path) {
        Ok(bytes) => parse(path, &bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ledger::default()),
        Err(error) => Err(LedgerFileError::Io { path: path.to_owned(), error }),
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Ledger, LedgerFileError> {
    Ledger::read(bytes).map_err(|problem| LedgerFileError::Problem { path: path.to_owned(), problem })
}

impl LedgerFile {
    /// Opens a ledger for writing, makes it if there is none, removes a torn last line, and ends a call that a crash has left
    /// open, at the time of its last entry.
    pub fn open(path: &Path, tariff: Option<&Tariff>) -> Result<(LedgerFile, Ledger), LedgerFileError> {
        let fail = |error: io::Error| LedgerFileError::Io { path: path.to_owned(), error };
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(path).map_err(fail)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(LedgerFileError::InUse(path.to_owned())),
            Err(error) => return Err(fail(error.into())),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail)?;
        let ledger = parse(path, &bytes)?;
        if ledger.torn {
            file.set_len(ledger.whole_bytes).map_err(fail)?;
        }
        let mut opened = LedgerFile { file };
        let Some(last) = ledger.calls.last().filter(|call| call.end.is_none()).copied() else {
            opened.file.sync_all().map_err(fail)?;
            sync_folder(path).map_err(fail)?;
            return Ok((opened, ledger));
        };
        let mut ended = ledger.clone();
        let price = |ledger: &Ledger| {
            let (priced, _) = ledger.bill(tariff?);
            priced.last().map(|(_, price)| *price)
        };
        let (forward, back) = (last.forward, last.back);
        let cost_nano = price(&ledger).unwrap_or(Money::ZERO).nano;
        let news = News::Ended { why: Ending::Crashed, forward, back, cost_nano };
        opened.record(&Entry { call: last.call, at_ns: last.last.ns, news }.line()).map_err(fail)?;
        sync_folder(path).map_err(fail)?;
        if let Some(call) = ended.calls.last_mut() {
            call.end = Some(CallEnd::Ended(Ending::Crashed));
        }
        Ok((opened, ended))
    }

    /// Its descriptor, which holds the lock.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Appends an entry, and returns when it is on the disk. What a full disk took of it is removed, so that later entries
    /// follow a whole one.
    pub fn record(&mut self, entry: &str) -> io::Result<()> {
        let whole = self.file.metadata()?.len();
        let written = self.file.write_all(entry.as_bytes()).and_then(|()| self.file.sync_data());
        if written.is_err() {
            self.file.set_len(whole)?;
        }
        written
    }
}

/// A new file's name is on the disk, too.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_gateway::dial::Raise;

    fn folder() -> PathBuf {
        let number = std::process::id();
        let folder = std::env::temp_dir().join(format!("bentpipe-ledger-{number}-{:?}", std::thread::current().id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_ledger_is_mended_and_gone_on_with() {
        let folder = folder();
        let path = folder.join("ledger");
        let entry = |call, seconds: u64, news| Entry { call, at_ns: seconds * 1_000_000_000, news }.line();
        let dial = News::Dial { by: Raise::Open, priority: false };
        let text = [
            entry(1, 10, dial),
            entry(1, 40, News::Up { charged_from_ns: 40_000_000_000 }),
            entry(1, 60, News::Lasts { forward: 3, back: 4 }),
        ];
        std::fs::write(&path, format!("{}{{\"call\":1,\"at_", text.concat())).unwrap();
        let link = bentpipe_link::catalogue::named("iridium").unwrap().unwrap().config().unwrap();
        let (mut file, ledger) = LedgerFile::open(&path, link.tariff.as_ref()).unwrap();
        assert!(ledger.torn && ledger.calls[0].end == Some(CallEnd::Ended(Ending::Crashed)));
        assert!(matches!(LedgerFile::open(&path, None), Err(LedgerFileError::InUse(_))));
        file.record(&entry(2, 100, dial)).unwrap();
        drop(file);
        let ledger = read(&path).unwrap();
        assert!(!ledger.torn);
        assert_eq!((ledger.calls.len(), ledger.calls[0].forward), (2, 3));
        let (priced, _) = ledger.bill(&link.tariff.unwrap());
        assert_eq!(priced[0].1.to_string(), "0.48", "20 s, as far as is known");
        assert_eq!(read(&folder.join("none")).unwrap(), Ledger::default());
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// In a process of its own, whose limit of file sizes stands for a full disk.
    #[test]
    fn an_entry_that_the_disk_has_no_room_for_leaves_nothing_behind() {
        const PATH: &str = "BENTPIPE_TEST_LEDGER";
        let entry = |call| {
            let news = News::Dial { by: Raise::Open, priority: false };
            Entry { call, at_ns: call * 1_000_000_000, news }.line()
        };
        let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else {
            let folder = folder();
            let name = "line::ledger::tests::an_entry_that_the_disk_has_no_room_for_leaves_nothing_behind";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args([name, "--exact"]).env(PATH, folder.join("full")).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
            return std::fs::remove_dir_all(folder).unwrap();
        };
        let limit = |bytes| {
            let limit = rustix::process::Rlimit { current: bytes, maximum: None };
            rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        };
        // SAFETY: ignoring a signal takes two numbers.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let (mut file, _) = LedgerFile::open(&path, None).unwrap();
        file.record(&entry(1)).unwrap();
        limit(Some(entry(1).len() as u64 + 10));
        assert!(file.record(&entry(2)).is_err());
        limit(None);
        file.record(&entry(3)).unwrap();
        drop(file);
        let ledger = read(&path).unwrap();
        assert!(!ledger.torn);
        assert_eq!(ledger.calls.iter().map(|call| call.call).collect::<Vec<_>>(), [1, 3]);
    }
}
