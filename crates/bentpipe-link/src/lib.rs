//! Links as pure state machines.
pub mod socket;
pub mod time;
pub mod units;
