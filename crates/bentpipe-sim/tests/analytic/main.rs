//! The simulator against closed models of TCP (`bentpipe_sim::model`).
//!
//! Each test prints a table of whole numbers and compares it with the one in `expected/`; `ANALYTIC_WRITE=1` writes it
//! instead. Tolerances are asserted apart from the tables and hold whatever the tables say.

#![allow(missing_docs)]

mod asymmetry;
mod cardwell;
mod determinism;
mod hosts;
mod kruse;
mod lossy;
mod pair;
mod pftk;
mod slow_start;
mod table;
mod window;
