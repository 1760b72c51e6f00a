//! A setting to try, and a direction with the inputs of the closed forms.

use super::hosts::Atom;
use crate::predict::Inputs;
use bentpipe_apps::Direction;

/// A setting that may help, in one or more values.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The setting's name, such as `initial window`.
    pub setting: &'static str,
    /// The transfers that it may change.
    pub directions: Vec<Direction>,
    /// It shows only on a connection that was idle.
    pub after_idle: bool,
    /// The closed form behind it, with its figures.
    pub why: String,
    /// Where the advice is from.
    pub source: &'static str,
    /// The values to try; the best is taken.
    pub values: Vec<Vec<Atom>>,
    /// Linux has a command for it.
    pub command: bool,
}

/// A direction with what the closed forms need of it.
#[derive(Clone, Debug)]
pub struct Path {
    /// Which.
    pub direction: Direction,
    /// As the models are given it.
    pub inputs: Inputs,
}
