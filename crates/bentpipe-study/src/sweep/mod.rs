//! Sweeps: a scenario run in virtual time over a grid of settings and several seeds.
//!
//! [`plan`] turns what was asked into points, [`engine`] runs what the folder ([`journal`]) does not hold yet,
//! [`summary`] and [`parquet`] write what came out.

pub mod counters;
pub mod engine;
pub mod grid;
pub mod journal;
pub mod parquet;
pub mod plan;
pub mod results;
pub mod seeds;
pub mod subject;
pub mod summary;
mod table;

use bentpipe_net::problem::Problem;
use std::io;
use std::path::PathBuf;

/// Why a sweep could not be done. What was measured before is in the folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The scenario is wrong.
    #[error(transparent)]
    Scenario(Problem),
    /// Something else that was asked is.
    #[error("{0}")]
    Request(String),
    /// A `--vary` is.
    #[error(transparent)]
    Vary(#[from] grid::GridError),
    /// Another sweep works in the folder.
    #[error("another sweep works in {0}; allowed: another folder, or wait until it is done")]
    Busy(PathBuf),
    /// The folder could not be read or written.
    #[error("{what}: {why}")]
    Folder {
        /// The operation that failed.
        what: String,
        /// Why.
        why: io::Error,
    },
    /// Nothing worked.
    #[error("the first {count} runs all failed; the first: {first}")]
    AllFailed {
        /// The number.
        count: usize,
        /// The first one's message.
        first: String,
    },
}

impl SweepError {
    fn folder(what: String, why: io::Error) -> SweepError {
        SweepError::Folder { what, why }
    }

    /// The user asked for something impossible; nothing was started.
    pub fn is_bad_input(&self) -> bool {
        match self {
            SweepError::Scenario(_) | SweepError::Request(_) | SweepError::Vary(_) | SweepError::Busy(_) => true,
            SweepError::Folder { .. } | SweepError::AllFailed { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
