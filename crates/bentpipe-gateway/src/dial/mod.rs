//! Dialling on demand: the gateway sets the line up when something that may asks for it, and ends the call when nothing uses
//! it any more.
//!
//! [`Dialler`] is the state machine: demand → dialling → up → linger → down, with a back-off after failures and caps on calls
//! and money. It says what to do to a [`bentpipe_net::line::Line`], and writes each call into the [`ledger`] before it is made.
//! [`crate::satellite::frozen`] keeps the pair's connection alive while the line is down.

mod dialler;
pub mod ledger;
mod settings;

pub use dialler::{Dialler, LineMetrics, LineNotice, Traffic};
pub use settings::{DialSettings, ModemSettings};

use bentpipe_link::tariff::CapReached;
use std::fmt;

/// Something that may set the line up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Raise {
    /// A client opens a connection.
    Open,
    /// Data wait on a connection.
    Data,
    /// A connection is closed or reset, which the other side is to learn.
    Close,
}

/// A demand for the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// What asks.
    pub by: Raise,
    /// Overrides the caps on calls and money; not the back-off.
    pub priority: bool,
}

/// Why a demand does not set the line up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The settings do not list it.
    NotListed(Raise),
    /// The calls of an hour are used up.
    CallsPerHour(u32),
    /// The calls of a day are used up.
    CallsPerDay(u32),
    /// The money is used up.
    Cap(CapReached),
    /// The ledger cannot be written.
    Ledger,
}

impl Raise {
    /// All of them.
    pub const ALL: [Raise; 3] = [Raise::Open, Raise::Data, Raise::Close];
}

impl fmt::Display for Raise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Raise::Open => "open",
            Raise::Data => "data",
            Raise::Close => "close",
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotListed(by) => write!(f, "{by} is not listed under raise"),
            Refusal::CallsPerHour(calls) => write!(f, "{calls} calls were made within an hour"),
            Refusal::CallsPerDay(calls) => write!(f, "{calls} calls were made within a day"),
            Refusal::Cap(cap) => write!(f, "{cap}"),
            Refusal::Ledger => f.write_str("the ledger cannot be written"),
        }
    }
}
