//! TCP of a simulated host.

pub mod congestion;
