//! The unfinished file and its state: what survives a kill, a crash and a power cut.
//!
//! Beside `NAME` stand `.NAME.bentpipe-part` (the data at its final offsets) and `.NAME.bentpipe-state` (JSON: which file at
//! which server, which ranges of it are here). The state never promises what the disk does not hold: data is synced
//! first, then the state is written beside its old version, synced and renamed over it. Whoever works on them
//! holds a lock on the part file, which the kernel releases with the process.

use crate::error::Failure;
use crate::ranges::RangeSet;
use crate::remote::Identity;
use rustix::fs::{FallocateFlags, RenameFlags};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// An unfinished file, locked.
#[derive(Debug)]
pub(crate) struct Part {
    file: File,
    path: PathBuf,
    state: PathBuf,
    target: PathBuf,
}

/// What the state file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    version: u32,
    /// Without credentials.
    pub url: String,
    pub identity: Identity,
    /// Half-open ranges of bytes that the part file holds.
    done: Vec<(u64, u64)>,
}

impl State {
    pub fn new(url: &str, identity: &Identity, done: &RangeSet) -> State {
        State { version: VERSION, url: url.to_owned(), identity: identity.clone(), done: done.iter().collect() }
    }

    /// The ranges, as far as the part file can hold them.
    pub fn done(&self) -> RangeSet {
        let size = self.identity.size.unwrap_or(0);
        let mut done = RangeSet::default();
        for (start, end) in &self.done {
            done.insert(*start, (*end).min(size));
        }
        done
    }
}

impl Part {
    /// Opens or makes the part file of `target`, locks it, and reads what an earlier process left.
    pub fn open(target: &Path) -> Result<(Part, Option<State>), Failure> {
        let wrong = |reason: &str| Failure::Local { path: target.to_owned(), reason: reason.to_owned() };
        let name = target.file_name().ok_or_else(|| wrong("names no file"))?.to_os_string();
        let beside = |end: &str| {
            let mut full = std::ffi::OsString::from(".");
            full.push(&name);
            full.push(end);
            target.with_file_name(full)
        };
        let (path, state) = (beside(".bentpipe-part"), beside(".bentpipe-state"));
        let failed = |error: io::Error| Failure::of_file(&error, &path, 0);
        let file = loop {
            let file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(Failure::Locked(target.to_owned())),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Another process may have finished and renamed the file between our opening and locking it.
            let same = |a: std::fs::Metadata, b: std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
            let here = std::fs::metadata(&path).ok().zip(file.metadata().ok());
            if here.is_some_and(|(a, b)| same(a, b)) {
                break file;
            }
        };
        let part = Part { file, path, state, target: target.to_owned() };
        let state = part.read_state().filter(|state| {
            // A part file shorter than its state says is not the one that the state was written for.
            let needed = state.done().iter().last().map_or(0, |(_, end)| end);
            part.file.metadata().is_ok_and(|m| m.len() >= needed)
        });
        Ok((part, state))
    }

    /// Asks for room on the disk, now rather than when an hour of airtime is spent.
    pub fn reserve(&self, size: u64) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::of_file(&error, &self.target, size);
        self.file.set_len(size).map_err(failed)?;
        if size == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, size) {
            Ok(()) => Ok(()),
            // A filesystem that cannot reserve says so when it is full.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Writes data at its place.
    pub fn write(&self, bytes: &[u8], at: u64) -> Result<(), Failure> {
        self.file
            .write_all_at(bytes, at)
            .map_err(|error| Failure::of_file(&error, &self.target, at + bytes.len() as u64))
    }

    /// Makes `state` what the next process finds. Its ranges were written before this call.
    pub fn save(&self, state: &State) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::of_file(&error, &self.state, 0);
        self.file.sync_data().map_err(failed)?;
        let new = self.state.with_extension("bentpipe-state-new");
        let text = serde_json::to_vec(state).map_err(|error| failed(error.into()))?;
        let mut file = File::create(&new).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        std::fs::rename(&new, &self.state).map_err(failed)
    }

    /// Nothing of what is here counts any more.
    pub fn clear(&self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::of_file(&error, &self.path, 0);
        match std::fs::remove_file(&self.state) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        self.file.set_len(0).map_err(failed)
    }

    /// The data, to read.
    pub fn file(&self) -> Result<File, Failure> {
        self.file.try_clone().map_err(|error| Failure::of_file(&error, &self.path, 0))
    }

    /// The file is whole: it gets its name.
    pub fn finish(&self, size: u64, overwrite: bool) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::of_file(&error, &self.target, size);
        // Of unknown size, or longer before.
        self.file.set_len(size).and_then(|()| self.file.sync_all()).map_err(failed)?;
        let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let cwd = rustix::fs::CWD;
        match rustix::fs::renameat_with(cwd, &self.path, cwd, &self.target, flags) {
            Err(rustix::io::Errno::EXIST) => return Err(Failure::Exists(self.target.clone())),
            // Some filesystems cannot keep from replacing.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                if !overwrite && self.target.exists() {
                    return Err(Failure::Exists(self.target.clone()));
                }
                std::fs::rename(&self.path, &self.target).map_err(failed)?;
            }
            other => other.map_err(|error| failed(error.into()))?,
        }
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The name is on the disk too; a filesystem that cannot sync folders has no better.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        let _ = std::fs::remove_file(&self.state);
        Ok(())
    }

    /// Removes everything but what carries the final name.
    pub fn remove(&self) {
        // Best effort: what stays is cleared by the next process.
        let _ = std::fs::remove_file(&self.state);
        let _ = std::fs::remove_file(&self.path);
    }

    fn read_state(&self) -> Option<State> {
        let mut text = Vec::new();
        File::open(&self.state).ok()?.take(STATE_BYTES_MAX).read_to_end(&mut text).ok()?;
        let state: State = serde_json::from_slice(&text).ok()?;
        (state.version == VERSION && state.identity.can_resume()).then_some(state)
    }
}

const VERSION: u32 = 1;
/// A range is 40 bytes at most; there are about as many as connections.
const STATE_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("bentpipe-part-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn identity(size: u64) -> Identity {
        Identity { size: Some(size), etag: Some("\"a\"".to_owned()), modified: None }
    }

    #[test]
    fn state_survives_and_the_lock_holds() {
        let folder = Folder::new("state");
        let target = folder.0.join("file");
        let mut done = RangeSet::default();
        done.insert(2, 4);
        {
            let (part, state) = Part::open(&target).unwrap();
            assert_eq!(state, None);
            assert_eq!(Part::open(&target).unwrap_err(), Failure::Locked(target.clone()));
            part.reserve(8).unwrap();
            part.write(b"cd", 2).unwrap();
            part.save(&State::new("http://x/", &identity(8), &done)).unwrap();
        }
        let (part, state) = Part::open(&target).unwrap();
        assert_eq!(state.map(|s| (s.done(), s.identity)), Some((done, identity(8))));
        part.write(b"ab", 0).unwrap();
        part.write(b"efgh", 4).unwrap();
        part.finish(8, false).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"abcdefgh");
        let names: Vec<_> = std::fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["file"], "nothing else is left");
        // A second one does not replace it unasked.
        let (part, state) = Part::open(&target).unwrap();
        assert_eq!((state, part.finish(0, false)), (None, Err(Failure::Exists(target.clone()))));
        drop(part);
        let (part, _) = Part::open(&target).unwrap();
        part.write(b"new", 0).unwrap();
        part.finish(3, true).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_state_file_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), edit in 0usize..150, with: u8) {
            let folder = Folder::new("fuzz");
            let target = folder.0.join("file");
            let mut done = RangeSet::default();
            done.insert(0, 3);
            let mut good = serde_json::to_vec(&State::new("u", &identity(8), &done)).unwrap();
            let at = edit % good.len();
            good[at] = with;
            for text in [bytes, good] {
                std::fs::write(folder.0.join(".file.bentpipe-part"), b"abc").unwrap();
                std::fs::write(folder.0.join(".file.bentpipe-state"), text).unwrap();
                let (_, state) = Part::open(&target).unwrap();
                if let Some(state) = state {
                    prop_assert!(state.done().iter().all(|(_, end)| end <= 3), "no more than the part file holds");
                }
            }
        }
    }
}
