//! Experiments: what a paper published, and what the same case measures here.
//!
//! An experiment is a folder `experiments/ID/` with `scenario.toml` (the case, its axes, what was assumed),
//! `published.toml` (what the paper says and how far ours may be from it) and a README. `load` reads and checks it,
//! [`engine`] runs its points, [`judge`] compares, [`table`] and [`page`] write what came out.
//! `docs/reference/experiments.md` states the rules.

pub mod chart;
pub mod engine;
pub mod grid;
pub mod judge;
pub mod load;
pub mod measure;
pub mod over_time;
pub mod page;
pub mod published;
pub mod table;

#[cfg(test)]
mod tests;

pub use load::{Experiment, LoadError, list, load};
