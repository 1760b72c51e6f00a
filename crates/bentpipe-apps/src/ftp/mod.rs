//! File transfers by FTP: RFC 959 with RFC 2428 (`EPSV`) and RFC 3659 (`SIZE`, `MDTM`, `REST` in stream mode).
//!
//! Client and server speak real FTP, passive mode only, and also get along with other people's servers and clients.
//! The file `N.bin` is N bytes of the seed's pattern, so nothing needs to be stored: `RETR 278507.bin` sends them,
//! `STOR 278507.bin` verifies and discards them.
//!
//! Measured, from the client's first call to connect (`completion_time`, `goodput`) until the last byte arrived where
//! the data is received; a client on its own takes the reply 226 for the arrival of what it stored.
//! - `files_done`, `files_failed`; `bytes`, `wrong_bytes`; `first_byte`.
//! - `goodput_per_session`: the mean over the sessions of bytes × 8 ÷ (last file's end − own call to connect).
//! - `control_time`: the mean over the sessions of the time from the call to connect until the first `RETR` or `STOR`
//!   was sent, the opening of its data connection included.
//! - `session_time_max`: the longest time from a session's call to connect until its last file was confirmed.
//! - Series `received` and `goodput`: all sessions together.

mod client;
mod command;
pub mod reply;
mod server;
mod session;

pub(crate) use server::FtpServer;

use crate::client_server::{self, ClientServer, ClientServerWorkload};
use crate::kind::{Keys, Kind, Party, Shown, Transfer, Workload};
use crate::progress::{check_port, check_sample_every, check_timeout};
use crate::quantity::{self, Quantity};
use crate::report::{self, App, Receiver, Report, Status};
use crate::{Direction, ServerLife, SpecError};
use bentpipe_net::content::Content;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::time::Duration;
use bentpipe_net::units::DataSize;
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;

/// The kind of workload `ftp`.
#[derive(Debug)]
pub struct Ftp;

/// The transfer: direction, amount, port.
#[derive(Clone, Debug)]
pub struct FtpSpec {
    /// `Download`: `RETR`; `Upload`: `STOR`.
    pub direction: Direction,
    /// Bytes of each file.
    pub bytes: u64,
    /// Files of each session, one after another, each over a data connection of its own.
    pub files: u32,
    /// Sessions at once, each with a control connection of its own.
    pub sessions: u32,
    /// The first session starts at once, each other at a moment of its own within this time, drawn from the seed.
    pub spread: Duration,
    /// The server's control port.
    pub port: u16,
    /// A session fails when nothing moves on its connections for this long. While the last bytes of a stored file are
    /// in the host's send buffer nothing moves as far as the program can see, just as in real clients.
    pub timeout: Duration,
    /// The interval of the series.
    pub sample_every: Duration,
}

impl Default for FtpSpec {
    fn default() -> Self {
        FtpSpec {
            direction: Direction::Download,
            bytes: 1 << 20,
            files: 1,
            sessions: 1,
            spread: Duration::ZERO,
            port: 21,
            timeout: Duration::from_secs(60),
            sample_every: Duration::from_millis(500),
        }
    }
}

impl FtpSpec {
    /// Whether it can be run.
    pub fn check(&self) -> Result<(), SpecError> {
        SpecError::unless(self.files > 0, "files", "is 0; allowed: 1 or more")?;
        SpecError::unless(
            (1..=SESSIONS_MAX).contains(&self.sessions),
            "sessions",
            format!("is {}; allowed: 1 to {SESSIONS_MAX}", self.sessions),
        )?;
        SpecError::unless(self.bytes > 0, "bytes", "is 0; allowed: 1 B or more")?;
        SpecError::unless(
            self.bytes_in_all().is_some(),
            "bytes",
            "times files and sessions is too large; allowed: less than 2^63 bytes in all",
        )?;
        check_port(self.port)?;
        check_timeout(self.timeout)?;
        check_sample_every(self.sample_every)
    }

    fn bytes_in_all(&self) -> Option<u64> {
        let sessions = self.bytes.checked_mul(u64::from(self.files))?.checked_mul(u64::from(self.sessions))?;
        (sessions <= FILE_BYTES_MAX).then_some(sessions)
    }
}

impl ClientServer for FtpSpec {
    fn port(&self) -> u16 {
        self.port
    }

    fn served_by(&self, server: &Party) -> FtpSpec {
        FtpSpec { port: server.ports[0], ..self.clone() }
    }

    fn client(&self, server: IpAddr, seed: u64) -> Box<dyn App> {
        Box::new(client::FtpClient::new(self.clone(), server, seed))
    }

    fn server(&self, seed: u64) -> Box<dyn App> {
        Box::new(FtpServer::new(self.port, seed, ServerLife::Workload, Some(self.sample_every)))
    }

    /// One report out of both sides'. An upload whose client was satisfied fails when the server got fewer bytes.
    fn combine(&self, client: Report, server: Report) -> Report {
        match self.direction {
            Direction::Download => report::combine(client, server, Receiver::Client),
            Direction::Upload => {
                let mut client = client;
                let received = server.value(quantity::BYTES).map(|bytes| bytes as u64);
                let all = self.bytes_in_all().unwrap_or(u64::MAX);
                if let Some(received) = received.filter(|bytes| client.status == Status::Done && *bytes < all) {
                    client.status = Status::Failed(format!("server received {received} of {all} bytes"));
                }
                report::combine(client, server, Receiver::Server)
            }
        }
    }

    fn direction(&self) -> Direction {
        self.direction
    }

    fn transfer(&self) -> Option<Transfer> {
        let FtpSpec { direction, bytes, sessions, .. } = *self;
        let bytes = bytes.checked_mul(u64::from(sessions)).filter(|_| self.files == 1)?;
        Some(Transfer { direction, bytes, connections: sessions })
    }

    fn is_random(&self) -> bool {
        self.sessions > 1 && self.spread > Duration::ZERO
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FtpKeys {
    direction: Option<Direction>,
    bytes: Option<DataSize>,
    files: Option<u32>,
    sessions: Option<u32>,
    /// XFTP (Kruse, ACTS): one file in as many parts as there are sessions, each over connections of its own.
    split: Option<bool>,
    content: Option<Content>,
    port: Option<u16>,
    timeout: Option<Duration>,
}

impl Kind for Ftp {
    fn name(&self) -> &'static str {
        "ftp"
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[
            quantity::FILES_DONE,
            quantity::FILES_FAILED,
            quantity::BYTES,
            quantity::WRONG_BYTES,
            quantity::FIRST_BYTE,
            quantity::COMPLETION_TIME,
            quantity::GOODPUT,
            quantity::GOODPUT_PER_SESSION,
            quantity::CONTROL_TIME,
            quantity::SESSION_TIME_MAX,
            quantity::SESSIONS,
        ]
    }

    fn shown(&self) -> Shown {
        client_server::SHOWN
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let spread = keys.spread;
        let keys: FtpKeys = keys.read()?;
        let default = FtpSpec::default();
        let missing = || KeyProblem::new("bytes", "is missing; allowed: the size of a file");
        let bytes = keys.bytes.ok_or_else(missing)?.bytes;
        let sessions = keys.sessions.unwrap_or(default.sessions);
        let spec = FtpSpec {
            direction: keys.direction.unwrap_or(default.direction),
            bytes: if keys.split.unwrap_or(false) { bytes.div_ceil(u64::from(sessions.max(1))) } else { bytes },
            files: keys.files.unwrap_or(default.files),
            sessions,
            spread,
            port: keys.port.unwrap_or(default.port),
            timeout: keys.timeout.unwrap_or(default.timeout),
            ..default
        };
        spec.check()?;
        Ok(Arc::new(ClientServerWorkload { spec, content: keys.content.unwrap_or_default(), port: keys.port }))
    }
}

/// The size that a file's name states: `278507.bin`, a leading `/` or `./` allowed.
fn bytes_of_name(name: &str) -> Option<u64> {
    let name = name.strip_prefix("./").unwrap_or(name).trim_start_matches('/');
    let digits = name.strip_suffix(".bin")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|bytes| is_number && *bytes <= FILE_BYTES_MAX)
}

/// Far enough from the end of the numbers that no offset overflows.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Sessions that a server serves at once, and a client may ask for.
const SESSIONS_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_state_sizes() {
        assert_eq!(bytes_of_name("278507.bin"), Some(278_507));
        assert_eq!(bytes_of_name("/0.bin"), Some(0));
        assert_eq!(bytes_of_name("./7.bin"), Some(7));
        for bad in ["", ".bin", "a.bin", "+7.bin", "7.bin.gz", "7", "99999999999999999999.bin", "x/7.bin"] {
            assert_eq!(bytes_of_name(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_spec_says_what_is_allowed() {
        let bad = FtpSpec { sessions: 257, ..FtpSpec::default() };
        assert_eq!(bad.check().unwrap_err().to_string(), "sessions: is 257; allowed: 1 to 256");
        assert_eq!(FtpSpec { bytes: u64::MAX, ..FtpSpec::default() }.check().unwrap_err().field, "bytes");
        assert_eq!(FtpSpec::default().check(), Ok(()));
    }
}
