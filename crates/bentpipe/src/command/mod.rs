//! One module a command.

pub mod experiments;
pub mod gateway;
pub mod generate;
pub mod get;
pub mod links;
pub mod parity;
pub mod predict;
mod prompt;
pub mod put;
pub mod report;
pub mod run;
pub mod shell;
pub mod sweep;
pub mod tune;

use bentpipe_net::problem::Problem;

/// The user asked for something impossible: one message, exit status 2, nothing started.
#[derive(Debug)]
pub struct BadInput(pub String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for BadInput {}

impl From<Problem> for BadInput {
    fn from(problem: Problem) -> BadInput {
        BadInput(problem.to_string())
    }
}
