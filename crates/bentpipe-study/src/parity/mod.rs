//! Parity: the same scenario live against the kernel and in the simulator, and whether they agree.
//!
//! [`index`] lists the scenarios and what is compared of each, [`random`] draws some; [`replicate`] lays several copies of a network side by
//! side so that one live run gives several samples; [`samples`] are what was measured, and their file; [`campaign`]
//! gathers them until [`verdict`] can decide; [`table`] prints the result.

pub mod campaign;
pub mod index;
pub mod random;
pub mod replicate;
pub mod samples;
pub mod table;
pub mod verdict;
