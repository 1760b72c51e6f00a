//! The unfinished file and its state: what survives a kill, a crash and a power cut.
//!
//! In the folder of `NAME` stand `.NAME.bentpipe-part` (the data at its final offsets) and `.NAME.bentpipe-state`
//! (JSON: which file at which server, which ranges of it are here). The state never promises what the disk does not
//! hold: data is synced first, then the state is written to a new file, synced and renamed over it. Whoever works on
//! them holds a lock on the part file, which the kernel releases with the process.

use crate::error::Failure;
use crate::ranges::RangeSet;
use crate::remote::Identity;
use crate::shown;
use rustix::fs::{FallocateFlags, OFlags, RenameFlags};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use url::Url;

/// An unfinished file, locked.
#[derive(Debug)]
pub(crate) struct Part {
    file: File,
    path: PathBuf,
    state: PathBuf,
    target: PathBuf,
}

/// The contents of the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    version: u32,
    /// As it may be shown: without credentials and query.
    url: String,
    /// SHA-256 of the query, hexadecimal.
    query: Option<String>,
    pub identity: Identity,
    /// Half-open ranges of bytes that the part file holds.
    done: Vec<(u64, u64)>,
}

impl State {
    pub fn new(url: &Url, identity: &Identity, done: &RangeSet) -> State {
        let (identity, done) = (identity.clone(), done.iter().collect());
        State { version: VERSION, url: shown(url), query: query_digest(url), identity, done }
    }

    /// True if it is from this address. Files that were copied together may well agree in size and date, and in an
    /// `ETag` made of them; a query may hold nothing but a key that expires, or say which file is meant: then the
    /// `ETag` tells.
    pub fn is_from(&self, url: &Url) -> bool {
        let same_query = self.query == query_digest(url) || self.identity.strong_etag().is_some();
        self.url == shown(url) && same_query
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
        let path = with_suffix(target, ".bentpipe-part").ok_or_else(|| wrong("names no file"))?;
        let state = with_suffix(target, STATE_END).ok_or_else(|| wrong("names no file"))?;
        let failed = |error: io::Error| Failure::of_file(&error, &path, 0);
        let file = loop {
            // No link that somebody laid where many may write.
            let mut how = OpenOptions::new();
            how.read(true).write(true).create(true).truncate(false).custom_flags(NO_LINK);
            let file = how.open(&path).map_err(failed)?;
            if !file.metadata().map_err(failed)?.is_file() {
                return Err(Failure::Local { path, reason: "is no ordinary file".to_owned() });
            }
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
        if state.is_none() {
            // Or it would count again as soon as the part file has its full length.
            part.forget()?;
        }
        Ok((part, state))
    }

    /// True if a file may get this name: found out before an hour of airtime is spent.
    pub fn may_become(target: &Path, overwrite: bool) -> Result<(), Failure> {
        crate::check_name(target)?;
        let metadata = match target.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A name that is too long, a folder that may not be entered.
            other => other.map_err(|error| Failure::of_file(&error, target, 0))?,
        };
        if !overwrite {
            return Err(Failure::Exists(target.to_owned()));
        }
        let kind = metadata.file_type();
        if kind.is_file() || kind.is_symlink() {
            return Ok(());
        }
        let reason = if kind.is_dir() { "is a folder" } else { "is no ordinary file, and is not replaced" };
        Err(Failure::Local { path: target.to_owned(), reason: reason.to_owned() })
    }

    /// Gives up the lock.
    pub fn unlock(&self) {
        // At the latest it goes with the process.
        let _ = self.file.unlock();
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

    /// Makes `state` what the next process finds. Its ranges were written before this call. False: the disk, which may
    /// have room for the data, has none for the state, and what was saved before still holds.
    pub fn save(&self, state: &State) -> Result<bool, Failure> {
        self.file.sync_data().map_err(|error| Failure::of_file(&error, &self.target, 0))?;
        let new = self.new_state();
        let write = || {
            let text = serde_json::to_vec(state)?;
            let mut how = OpenOptions::new();
            let mut file = how.write(true).create(true).truncate(true).custom_flags(NO_LINK).open(&new)?;
            file.write_all(&text).and_then(|()| file.sync_all())?;
            std::fs::rename(&new, &self.state)
        };
        match write().map_err(|error| Failure::of_file(&error, &self.state, 0)) {
            Ok(()) => Ok(true),
            Err(Failure::DiskFull { .. }) => {
                // Best effort: the next one is written over it.
                let _ = std::fs::remove_file(&new);
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    /// True if a state is saved that the next process can go on from.
    pub fn has_state(&self) -> bool {
        self.state.exists()
    }

    /// Nothing of what is here counts any more.
    pub fn clear(&self) -> Result<(), Failure> {
        self.forget()?;
        self.file.set_len(0).map_err(|error| Failure::of_file(&error, &self.path, 0))
    }

    /// Removes the state.
    fn forget(&self) -> Result<(), Failure> {
        for path in [&self.new_state(), &self.state] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Failure::of_file(&error, path, 0));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn new_state(&self) -> PathBuf {
        self.state.with_extension("bentpipe-state-new")
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
        let _ = self.forget();
        Ok(())
    }

    /// Removes everything but what carries the final name.
    pub fn remove(&self) {
        // Best effort: what stays is cleared by the next process.
        let _ = self.forget();
        let _ = std::fs::remove_file(&self.path);
    }

    fn read_state(&self) -> Option<State> {
        let mut text = Vec::new();
        File::open(&self.state).ok()?.take(STATE_BYTES_MAX).read_to_end(&mut text).ok()?;
        let state: State = serde_json::from_slice(&text).ok()?;
        (state.version == VERSION && state.identity.can_resume()).then_some(state)
    }
}

/// True if an unfinished file of that name waits for the next [`get`](crate::get).
pub fn is_kept(target: &Path) -> bool {
    with_suffix(target, STATE_END).is_some_and(|state| state.exists())
}

/// The file's name with a dot before and `end` behind; of a name that is too long for that its beginning and its digest.
fn with_suffix(target: &Path, end: &str) -> Option<PathBuf> {
    let name = target.file_name()?;
    let mut full = OsString::from(".");
    if name.len() <= NAME_BYTES_MAX {
        full.push(name);
    } else {
        full.extend(name.to_string_lossy().chars().take(NAME_CHARS_LONG).map(String::from).map(OsString::from));
        full.push(format!(".{}", &hex_digest(name.as_bytes())[..16]));
    }
    full.push(end);
    Some(target.with_file_name(full))
}

fn hex_digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn query_digest(url: &Url) -> Option<String> {
    Some(hex_digest(url.query()?.as_bytes()))
}

const STATE_END: &str = ".bentpipe-state";
/// Linux's filesystems give a name 255 bytes; the longest ending has 19, and there is the dot.
const NAME_BYTES_MAX: usize = 235;
/// Of up to four bytes each.
const NAME_CHARS_LONG: usize = 50;
const VERSION: u32 = 2;
const NO_LINK: i32 = OFlags::NOFOLLOW.bits().cast_signed();
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

    fn url() -> Url {
        Url::parse("http://x/file").unwrap()
    }

    #[test]
    fn a_state_whose_part_file_is_gone_never_counts_again() {
        let folder = Folder::new("gone");
        let target = folder.0.join("file");
        let mut done = RangeSet::default();
        done.insert(0, 4);
        {
            let (part, _) = Part::open(&target).unwrap();
            part.reserve(8).unwrap();
            part.save(&State::new(&url(), &identity(8), &done)).unwrap();
        }
        std::fs::remove_file(folder.0.join(".file.bentpipe-part")).unwrap();
        {
            let (part, state) = Part::open(&target).unwrap();
            assert_eq!(state, None);
            // Killed before it saved anything, with a part file of full length.
            part.reserve(8).unwrap();
        }
        assert_eq!(Part::open(&target).unwrap().1, None);
    }

    #[test]
    fn a_state_is_of_one_address() {
        let of = |text: &str| Url::parse(text).unwrap();
        let state = |etag: Option<&str>| {
            let identity = Identity { etag: etag.map(str::to_owned), modified: Some("m".to_owned()), size: Some(8) };
            State::new(&of("http://user:x@h/a?key=1"), &identity, &RangeSet::default())
        };
        let (dated, tagged, weak) = (state(None), state(Some("\"e\"")), state(Some("W/\"e\"")));
        for (other, is_dated, is_tagged) in
            [("http://h/a?key=1", true, true), ("http://h/a?key=2", false, true), ("http://h/b?key=1", false, false)]
        {
            let found = (dated.is_from(&of(other)), tagged.is_from(&of(other)), weak.is_from(&of(other)));
            assert_eq!(found, (is_dated, is_tagged, is_dated), "{other}");
        }
    }

    #[test]
    fn long_names_have_room() {
        let folder = Folder::new("long");
        let (one, two) = (format!("{}1", "ü".repeat(127)), format!("{}2", "ü".repeat(127)));
        let (one, two) = (folder.0.join(one), folder.0.join(two));
        let (part, _) = Part::open(&one).unwrap();
        let _other = Part::open(&two).unwrap();
        part.reserve(1).unwrap();
        let mut done = RangeSet::default();
        done.insert(0, 1);
        part.save(&State::new(&url(), &identity(1), &done)).unwrap();
        assert!(is_kept(&one) && !is_kept(&two));
        part.finish(1, false).unwrap();
        assert!(one.exists() && !is_kept(&one));
    }

    #[test]
    fn links_are_not_followed() {
        let folder = Folder::new("link");
        let victim = folder.0.join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, folder.0.join(".file.bentpipe-part")).unwrap();
        assert!(matches!(Part::open(&folder.0.join("file")), Err(Failure::Local { .. })));
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
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
            assert!(part.save(&State::new(&url(), &identity(8), &done)).unwrap());
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
            let mut good = serde_json::to_vec(&State::new(&url(), &identity(8), &done)).unwrap();
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
