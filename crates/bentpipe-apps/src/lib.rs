//! Workloads as pure state machines over streams and datagrams.
//!
//! Each module is a [`Kind`] of workload: its keys in a scenario, its roles, a program for each party, its measurements,
//! and how the parties' reports become one [`Report`]. A [`Registry`] lists the kinds; whoever runs workloads knows no
//! kind by name, so that another one takes one file and one line (`Registry::standard().with(…)`).
//!
//! Programs are written against [`bentpipe_net::socket::Sockets`] only: no clock, no socket, no thread and no random
//! source is in this crate, so the same code runs in virtual time and over kernel sockets. Those of the kinds here can
//! also be had without a scenario, from their specs (`BulkSpec` and so on).
//!
//! | module | kind of workload | as |
//! |---|---|---|
//! | [`ping`] | ICMP echo at an interval | ping(8) |
//! | [`bulk`] | one TCP connection, so many bytes or so long | ttcp, tcptgen |
//! | [`ftp`] | sessions and files, control and data connections | RFC 959, RFC 2428 |
//! | [`page`] | a page and its objects over HTTP/1.0 or 1.1 | RFC 9112 |
//! | [`datagrams`] | UDP: constant, on-off, Poisson or from a trace | iperf -u, MGEN |
//! | [`typing`] | keys into a remote session, with its echoes | RFC 854, RFC 1184 |
//! | [`command`] | any program, in live runs | |
//! | [`service`] | services: servers without end, for real programs to talk to | |
//!
//! # Contract with the driver
//!
//! That of [`bentpipe_net::socket::Program`], and:
//!
//! - All parties are made with the same seed: it names the pattern that data is made of and verified against.
//! - The parties that lead ([`kind::Part::Leads`]) decide when a workload is over. The driver polls those that serve for
//!   as long as a leading one is not done and stops them afterwards; their `is_done` only says whether the driver must
//!   wait for them as well once the leading ones succeeded. Servers that merely answer say `true` as soon as they listen
//!   and must be polled all the same.
//! - A turn of one connection is bounded; when it ends with work left, `next_wake` is not later than the poll's time.

pub mod bulk;
pub mod client_server;
pub mod command;
pub mod datagrams;
pub mod delays;
pub mod ftp;
pub mod kind;
pub mod page;
pub mod ping;
pub mod quantity;
pub mod registry;
pub mod report;
pub mod service;
pub mod typing;

mod acceptor;
mod line;
mod outbox;
mod progress;
mod stream;

pub use client_server::ClientServer;
pub use kind::{Kind, Workload};
pub use registry::Registry;
pub use report::{App, Measurement, Report, Series, Status};

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// The direction of a workload's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the server to the client.
    Download,
    /// From the client to the server.
    Upload,
}

/// A setting of a spec that cannot be run: what is wrong and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {message}")]
pub struct SpecError {
    /// The spec's field.
    pub field: &'static str,
    /// The mistake and the allowed values.
    pub message: String,
}

/// The lifetime of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerLife {
    /// Until the driver stops it, which it may do once the client is done: `is_done` is true as soon as it listens.
    Workload,
    /// As long as the run lasts: `is_done` is true only when it cannot listen.
    Forever,
}

/// A text that is neither `download` nor `upload`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found:?} is not a direction; allowed: download, upload")]
pub struct DirectionError {
    /// The text.
    pub found: String,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Download => "download",
            Direction::Upload => "upload",
        })
    }
}

impl FromStr for Direction {
    type Err = DirectionError;
    fn from_str(text: &str) -> Result<Self, DirectionError> {
        match text {
            "download" => Ok(Direction::Download),
            "upload" => Ok(Direction::Upload),
            _ => Err(DirectionError { found: text.to_owned() }),
        }
    }
}

impl SpecError {
    /// `Err` unless `holds`.
    pub(crate) fn unless(holds: bool, field: &'static str, message: impl Into<String>) -> Result<(), SpecError> {
        if holds { Ok(()) } else { Err(SpecError { field, message: message.into() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_reads_back() {
        for direction in [Direction::Download, Direction::Upload] {
            assert_eq!(direction.to_string().parse(), Ok(direction));
        }
        let error = "Sideways".parse::<Direction>().unwrap_err().to_string();
        assert_eq!(error, "\"Sideways\" is not a direction; allowed: download, upload");
    }
}
