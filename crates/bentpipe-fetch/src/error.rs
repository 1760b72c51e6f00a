//! Why a transfer did not come about.

use std::io;
use std::path::PathBuf;

/// One attempt, or a whole transfer, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing listens there.
    #[error("{0}: connection refused")]
    Refused(String),
    /// Nobody answered, or nothing arrived, for the time allowed.
    #[error("{0}: timed out")]
    TimedOut(String),
    /// No route to the server.
    #[error("{0}")]
    Unreachable(String),
    /// The name has no address.
    #[error("{0}: there is no address for this name")]
    NameNotFound(String),
    /// The server has no such file.
    #[error("not found: the server says {0}")]
    NotFound(String),
    /// The server wants other credentials, or none of ours will do.
    #[error("not allowed: the server says {0}")]
    Unauthorised(String),
    /// The certificate or the TLS handshake is no good.
    #[error("TLS: {0}")]
    Tls(String),
    /// Redirected in a circle, or to nowhere.
    #[error("redirects: {0}")]
    Redirects(String),
    /// The server cannot or does not want to now, or not so often.
    #[error("the server cannot do it now: it says {0}")]
    Busy(String),
    /// The server answered something that ends the matter.
    #[error("the server says {0}")]
    Answer(String),
    /// All was sent, and has no name yet.
    #[error("the server has the whole file as {part}, but did not rename it: {reason}")]
    NotRenamed {
        /// Its name there.
        part: String,
        /// Why.
        reason: String,
    },
    /// The peer does not speak the protocol.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(String),
    /// The connection ended before the data did.
    #[error("the server closed the connection early ({0})")]
    ClosedEarly(String),
    /// The file at the server is another one now.
    #[error("the file at the server has changed: {0}")]
    Changed(String),
    /// The disk is full.
    #[error("{path}: the disk is full: {needed} bytes are needed")]
    DiskFull {
        /// The path that could not be written.
        path: PathBuf,
        /// Of the whole file.
        needed: u64,
    },
    /// A file here cannot be read or written.
    #[error("{path}: {reason}")]
    Local {
        /// The file.
        path: PathBuf,
        /// The operating system's message.
        reason: String,
    },
    /// Another process transfers the same file.
    #[error("{0}: another process is fetching this file")]
    Locked(PathBuf),
    /// The file is there already.
    #[error("{0}: the file exists; --overwrite replaces it, -o FILE writes another")]
    Exists(PathBuf),
    /// All bytes came, and they are wrong.
    #[error("{algorithm} of the file is {found}, expected {expected} ({source_of}); what was fetched is removed")]
    Digest {
        /// `sha-256` and the like.
        algorithm: &'static str,
        /// Of what was fetched, hexadecimal.
        found: String,
        /// The expected digest.
        expected: String,
        /// Who says so.
        source_of: &'static str,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Stopped,
}

/// The kind of failure: programs branch on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The network or the server may do better another time.
    Transient,
    /// The server will not give it.
    Refused,
    /// The disk or a file here.
    Local,
    /// The fetched data are not the requested ones.
    Content,
    /// Interrupted.
    Stopped,
}

impl Failure {
    /// The kind of failure.
    pub fn kind(&self) -> Kind {
        use Failure::*;
        match self {
            Refused(_) | TimedOut(_) | Unreachable(_) | NameNotFound(_) | Busy(_) | ClosedEarly(_) => Kind::Transient,
            NotFound(_) | Unauthorised(_) | Tls(_) | Redirects(_) | Answer(_) | NotRenamed { .. } | Protocol(_) => {
                Kind::Refused
            }
            DiskFull { .. } | Local { .. } | Locked(_) | Exists(_) => Kind::Local,
            Changed(_) | Digest { .. } => Kind::Content,
            Stopped => Kind::Stopped,
        }
    }

    /// A word for programs.
    pub fn word(&self) -> &'static str {
        use Failure::*;
        match self {
            Refused(_) => "refused",
            TimedOut(_) => "timed_out",
            Unreachable(_) => "unreachable",
            NameNotFound(_) => "name_not_found",
            NotFound(_) => "not_found",
            Unauthorised(_) => "unauthorised",
            Tls(_) => "tls",
            Redirects(_) => "redirects",
            Busy(_) => "busy",
            Answer(_) => "answer",
            NotRenamed { .. } => "not_renamed",
            Protocol(_) => "protocol",
            ClosedEarly(_) => "closed_early",
            Changed(_) => "changed",
            DiskFull { .. } => "disk_full",
            Local { .. } => "local",
            Locked(_) => "locked",
            Exists(_) => "exists",
            Digest { .. } => "digest",
            Stopped => "interrupted",
        }
    }

    /// True if nothing answers at that address: on the first attempt of a transfer this is final, later it is an outage.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Failure::Refused(_) | Failure::NameNotFound(_) | Failure::Unreachable(_))
    }

    /// True if a connection failed, not a file, and nobody asked to stop.
    pub(crate) fn is_of_network(&self) -> bool {
        self.kind() == Kind::Transient
    }

    /// True if these are the server's own words.
    pub(crate) fn is_said(&self) -> bool {
        use Failure::*;
        matches!(self, NotFound(_) | Unauthorised(_) | Busy(_) | Answer(_))
    }

    /// A failure to read or write a socket; `place` is the server.
    pub(crate) fn of_socket(error: &io::Error, place: &str) -> Failure {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Failure::Refused(place.to_owned()),
            // A socket's time limit shows as "would block" (socket(7), SO_RCVTIMEO).
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Failure::TimedOut(place.to_owned()),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable => {
                Failure::Unreachable(format!("{place}: {}", plain(error)))
            }
            _ => Failure::ClosedEarly(format!("{place}: {}", plain(error))),
        }
    }

    /// A failure to read or write a file.
    pub(crate) fn of_file(error: &io::Error, path: &std::path::Path, needed: u64) -> Failure {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Failure::DiskFull { path: path.to_owned(), needed }
            }
            _ => Failure::Local { path: path.to_owned(), reason: plain(error) },
        }
    }
}

/// The message without Rust's `(os error N)`.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
