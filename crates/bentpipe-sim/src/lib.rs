//! The simulator: the same links and workloads as the emulator, driven by a clock that jumps from event to event.
//!
//! [`network`] owns the clock and the nodes; [`host`] is a site with its IP, its sockets and its programs; [`tcp`] is its
//! TCP. [`model`] holds the closed formulas that the simulation is checked against.

pub mod host;
pub mod model;
pub mod network;
pub mod tcp;
mod view;
