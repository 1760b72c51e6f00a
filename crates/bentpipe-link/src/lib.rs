//! Links as state machines without I/O; a driver owns the clock.
//!
//! The path of a packet through one direction of a link: [`queue`] → [`framing`] → [`transmitter`] → [`medium`] with its
//! [`impairment`]s. [`direction`] chains them (and takes packets through at once where nothing can happen to them), [`link`] joins
//! both directions (and a [`circuit`], where the link must be set up, of as many calls as the [`demand`] asks for) into a
//! [`node::Node`]. A [`tariff`] prices its use, a [`bill`] says whose packets cost what. [`config`] reads a link from TOML, [`registry`] knows the kinds of queues and
//! impairments that it may name, [`catalogue`] holds the named links.
//!
//! [`bentpipe_net::time::Instant::FAR`] stands for "never" in all of them.

pub mod agenda;
pub mod bill;
pub mod catalogue;
pub mod circuit;
pub mod config;
pub mod demand;
pub mod direction;
mod fast_path;
pub mod framing;
pub mod geostationary;
pub mod impairment;
pub mod jitter;
pub mod link;
pub mod medium;
pub mod node;
pub mod noise;
pub mod queue;
pub mod registry;
pub mod tariff;
pub mod trace;
pub mod transmitter;
