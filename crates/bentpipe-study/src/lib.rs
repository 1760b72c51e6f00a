//! Studies: many runs, and what follows from them.
//!
//! Every study gives its runs to one [`runner`], which takes its threads from one [`pool`]; [`statistics`] sums up. Events of all
//! studies are [`runner::Event`]s.

pub mod experiment;
pub mod parity;
pub mod pool;
pub mod predict;
pub mod runner;
pub mod statistics;
pub mod sweep;
mod transfer;
pub mod tune;
