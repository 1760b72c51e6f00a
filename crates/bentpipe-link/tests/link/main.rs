//! The link as its users see it: TOML in, packets through, times and counters out.

mod catalogue;
mod circuits;
mod closed_forms;
mod config;
mod demand;
mod driver;
mod errors;
mod properties;
mod queues;
