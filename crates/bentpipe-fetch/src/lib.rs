//! Files over FTP and HTTP with several connections at once: Kruse's XFTP for today's servers.
//!
//! One thread a connection, each with a piece of the file; a connection without work takes half of the largest piece
//! that is left. A crate of its own: it forbids unsafe code and cannot reach namespaces, packet sockets and privileges,
//! which `bentpipe-host` is there for, and what unknown servers send is read here only.
//!
//! The way of a file: [`get`] opens the part file (`part`), starts workers (`transfer`) that share a `Plan`, lets
//! `Growth` say how many, saves the state now and then, and gives the file its name when every byte is there and the
//! digest is right.

#![forbid(unsafe_code)]

pub mod digest;
mod error;
mod ftp;
mod growth;
mod http;
mod part;
mod plan;
mod put;
mod ranges;
mod remote;
mod transfer;

pub use error::{Failure, Kind};
pub use part::is_kept;
pub use put::{PutOutcome, PutProgress, names_folder, put};
pub use transfer::get;
pub use url::Url;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Options of a transfer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at once.
    pub connections: Connections,
    /// Nothing moving for so long ends an attempt.
    pub timeout: Duration,
    /// Attempts in a row that bring no new byte, after the first, before the transfer is given up.
    pub retries: u32,
    /// Replace a file of the same name.
    pub overwrite: bool,
    /// Certificates to trust instead of the public ones, in PEM.
    pub ca: Option<PathBuf>,
    /// The digest that the file must have.
    pub digest: Option<digest::Digest>,
    /// Set from outside to stop.
    pub stop: Arc<AtomicBool>,
}

/// The number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// So many.
    Fixed(usize),
    /// Found out while the transfer runs, up to this number.
    Measured {
        /// At the highest.
        most: usize,
    },
}

impl Default for Options {
    fn default() -> Self {
        Options {
            connections: Connections::Measured { most: MEASURED_MOST },
            timeout: Duration::from_secs(60),
            retries: 8,
            overwrite: false,
            ca: None,
            digest: None,
            stop: Arc::default(),
        }
    }
}

/// A transfer as it stands.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Of the file, if known.
    pub size: Option<u64>,
    /// Here, those of earlier runs included.
    pub done: u64,
    /// Received in this run.
    pub received: u64,
    /// Connections that deliver.
    pub connections: usize,
    /// Events since the last report, for people.
    pub notes: Vec<String>,
    /// All bytes are here and the digest is being computed.
    pub checking: bool,
}

/// A file that is there, whole.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes that an earlier run had fetched.
    pub resumed_from: u64,
    /// Bytes received in this run, those included that were received twice.
    pub received: u64,
    /// From the call to the last byte.
    pub elapsed: Duration,
    /// Most connections at once.
    pub connections: usize,
    /// Of the first TCP handshake.
    pub round_trip: Option<Duration>,
    /// The verified digest and its source.
    pub digest: Option<(digest::Digest, &'static str)>,
    /// True if the server said how long the file is.
    pub size_checked: bool,
    /// Attempts that failed and were made up for.
    pub failed_attempts: u32,
    /// All that was said on the way.
    pub notes: Vec<String>,
}

/// An address that we can fetch from: `ftp`, `http` or `https`, with a host.
pub fn parse_url(text: &str) -> Result<Url, String> {
    // Never the text itself in a message: it may hold a password.
    let mut url = Url::parse(text).map_err(|error| format!("this is no URL: {error}"))?;
    if !matches!(url.scheme(), "ftp" | "http" | "https") {
        return Err(format!("{}: is not supported; allowed: ftp, http, https", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("the URL has no host".to_owned());
    }
    if url.scheme() == "ftp" {
        // RFC 1738 §3.2.2. Octets are what is fetched in any case.
        if let Some((path, mode)) =
            url.path().rsplit_once(";type=").map(|(path, mode)| (path.to_owned(), mode.to_owned()))
        {
            if !matches!(mode.as_str(), "a" | "A" | "i" | "I") {
                return Err(format!(";type={}: is no file; allowed: ;type=i, or nothing", http::shortened(&mode)));
            }
            url.set_path(&path);
        }
        ftp::FtpServer::new(&url, &Options::default())?;
    }
    Ok(url)
}

/// The URL without user, password and fragment: the only form that is ever shown or stored.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Neither can fail where there is a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    // Signed addresses carry their key in the query.
    if url.query().is_some() {
        url.set_query(Some("…"));
        return url.as_str().replace("%E2%80%A6", "…");
    }
    url.into()
}

/// Refuses a name that no file can have: one whose last part has more than 255 bytes.
pub fn check_name(target: &Path) -> Result<(), Failure> {
    let length = target.file_name().map_or(0, |name| name.len());
    if length <= NAME_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("the name has {length} bytes; allowed: {NAME_BYTES_MAX} at most");
    Err(Failure::Local { path: target.to_owned(), reason })
}

/// The name that the URL's path gives the file; none if it has control characters.
pub fn file_name(url: &Url) -> Option<PathBuf> {
    let last = url.path_segments()?.next_back()?;
    let name = String::from_utf8(http::percent_decode(last)).ok()?;
    // What moves a terminal's cursor is no name that anyone wants.
    let is_plain =
        !name.is_empty() && name != "." && name != ".." && !name.contains(|c: char| c == '/' || c.is_control());
    is_plain.then(|| Path::new(&name).to_owned())
}

/// Kruse's throughput fell past eight connections; a link of 10 Mbit/s at 560 ms wants eleven windows of 64 KB.
pub const MEASURED_MOST: usize = 16;
/// Two tell at once whether more than one is any use.
pub(crate) const MEASURED_FIRST: usize = 2;
/// Bytes of a file's name that Linux's filesystems take (path_resolution(7), NAME_MAX).
const NAME_BYTES_MAX: usize = 255;
/// More connections than this are no help and a burden to servers.
pub const CONNECTIONS_MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credentials_are_not_shown() {
        for text in ["ftp://user:secret@h/a", "http://user:secret@h/a?key=secret#secret", "https://secret@h/"] {
            let url = parse_url(text).unwrap();
            assert!(!shown(&url).contains("secret") && !shown(&url).contains("user"), "{}", shown(&url));
        }
        for bad in
            ["http://user:secret@/", "secret", "gopher://secret@h/", "ftp://u:secret%0d%0aQUIT@h/a", "ftp://h/a%0Ab"]
        {
            assert!(!parse_url(bad).unwrap_err().contains("secret"), "{bad}");
        }
    }

    #[test]
    fn names_come_from_paths() {
        let name = |text: &str| file_name(&parse_url(text).unwrap()).map(|p| p.to_string_lossy().into_owned());
        assert_eq!(name("http://h/a/b%20c?x=/y").as_deref(), Some("b c"));
        for none in [
            "http://h/",
            "http://h",
            "http://h/a/",
            "http://h/a%2F..%2Fb",
            "http://h/%00",
            "http://h/a%0A",
            "http://h/%1b[2J",
        ] {
            assert_eq!(name(none), None, "{none}");
        }
    }

    #[test]
    fn an_ftp_type_is_no_part_of_the_name() {
        let url = parse_url("ftp://h/a/b;c;type=i").unwrap();
        assert_eq!((url.path(), file_name(&url).as_deref()), ("/a/b;c", Some(Path::new("b;c"))));
        assert!(parse_url("ftp://h/a;type=d").unwrap_err().contains("type=i"));
        assert_eq!(parse_url("http://h/a;type=d").unwrap().path(), "/a;type=d");
    }

    proptest! {
        #[test]
        fn any_url_is_read(text in "(ftp|http|https)://[a-z:@%0-9/?#.é-]{0,40}", wild: String) {
            for text in [text, wild] {
                if let Ok(url) = parse_url(&text) {
                    let name = file_name(&url);
                    prop_assert!(name.is_none_or(|name| name.components().count() == 1));
                    shown(&url);
                }
            }
        }
    }
}
