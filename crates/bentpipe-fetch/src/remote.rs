//! The contract between a transfer and a protocol: a file at a server that gives bytes from any offset.

use crate::digest::Digest;
use crate::error::Failure;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The server's description of a file.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Identifies this version of the file.
    pub identity: Identity,
    /// Of the whole file, if the server offers any.
    pub digests: Vec<Digest>,
}

/// Identifies one version of a file.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Bytes.
    pub size: Option<u64>,
    /// HTTP's `ETag`.
    pub etag: Option<String>,
    /// HTTP's `Last-Modified`, FTP's `MDTM`.
    pub modified: Option<String>,
}

impl Identity {
    /// The difference of the file's identity now, as far as both sides state anything.
    pub fn change_to(&self, now: &Identity) -> Option<String> {
        fn differ<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            matches!((a, b), (Some(a), Some(b)) if a != b)
        }
        if differ(&self.size, &now.size) {
            return Some(format!("{} bytes, before {}", now.size?, self.size?));
        }
        if differ(&self.etag, &now.etag) {
            return Some("another ETag".to_owned());
        }
        let changed = differ(&self.modified, &now.modified);
        changed.then(|| {
            format!(
                "modified {}, before {}",
                now.modified.as_deref().unwrap_or(""),
                self.modified.as_deref().unwrap_or("")
            )
        })
    }

    /// True if an interrupted transfer can be continued: size alone does not tell two versions apart, nor does a weak `ETag`
    /// (RFC 9110 §8.8.1).
    pub fn can_resume(&self) -> bool {
        self.size.is_some() && (self.strong_etag().is_some() || self.modified.is_some())
    }

    /// True if `now` says that it is this very version, and not only nothing to the contrary.
    pub fn is_confirmed_by(&self, now: &Identity) -> bool {
        let same = |a: Option<&str>, b: Option<&str>| a.is_some() && a == b;
        self.change_to(now).is_none()
            && self.size.is_some()
            && self.size == now.size
            && (same(self.strong_etag(), now.strong_etag()) || same(self.modified.as_deref(), now.modified.as_deref()))
    }

    /// An `ETag` that promises the same bytes (RFC 9110 §8.8.3).
    pub fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }
}

/// A file at a server.
pub(crate) trait Server: Send + Sync {
    /// A connection that is not open yet.
    fn connection(&self) -> Box<dyn Connection>;
    /// Round trips from a free connection to the first byte of another piece, about.
    fn round_trips_to_start(&self) -> u32;
}

/// A connection as seen by other threads.
#[derive(Default)]
pub(crate) struct Wire {
    round_trip_us: AtomicU64,
    hang_up: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Opened {
    pub remote: Remote,
    /// The file's offset of the first byte to come: as asked, or 0 when the server gives whole files only.
    pub from: u64,
    /// The offset behind the last byte to come, where the answer says it: servers may give less than was asked for.
    pub until: Option<u64>,
}

/// One connection to the server; what a worker thread holds.
pub(crate) trait Connection: Send {
    /// Does ahead what can be done before it is known what to fetch; what fails is tried again when it is needed.
    fn prepare(&mut self, wire: &Wire);
    /// Asks for the bytes from `from` on, to `to` if the protocol can say so. `known` is what was learnt before.
    fn open(&mut self, wire: &Wire, from: u64, to: Option<u64>, known: Option<&Remote>) -> Result<Opened, Failure>;
    /// The next bytes; 0 at the end, which the server has confirmed where its protocol does.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure>;
    /// The rest of the answer is not wanted.
    fn abandon(&mut self);
    /// The server's current description of the file; `None` when every answer contains it.
    fn recheck(&mut self, wire: &Wire) -> Result<Option<Identity>, Failure>;
}

impl Wire {
    /// The time of the TCP handshake, once there was one.
    pub fn round_trip(&self) -> Option<Duration> {
        let us = self.round_trip_us.load(Ordering::Relaxed);
        (us > 0).then(|| Duration::from_micros(us))
    }

    pub fn set_round_trip(&self, time: Duration) {
        self.round_trip_us.store(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    /// Sets the action that ends the connection's wait.
    pub fn on_hang_up(&self, action: Box<dyn FnOnce() + Send>) {
        *self.hang_up.lock() = Some(action);
    }

    /// Ends what the connection waits for, if it has begun anything.
    pub fn hang_up(&self) {
        let action = self.hang_up.lock().take();
        if let Some(action) = action {
            action();
        }
    }
}
