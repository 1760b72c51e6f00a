//! Studies: many runs over one laboratory, and what follows from them.

pub mod experiment;
pub mod parity;
pub mod predict;
pub mod sweep;
pub mod tune;
