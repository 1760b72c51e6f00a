//! Links as pure state machines, told the time by a driver.
//!
//! The way of a packet through one direction of a link: [`queue`] → [`framing`] → [`transmitter`] → [`medium`].
//! [`direction`] chains them (and takes packets through at once where nothing can happen to them), [`link`] joins both
//! directions (and a [`circuit`], where the link must be set up, of as many calls as the [`demand`] asks for) into a
//! [`node::Node`]. [`config`] reads a link from TOML, [`catalogue`] holds the named ones.

pub mod catalogue;
pub mod circuit;
pub mod config;
pub mod demand;
pub mod direction;
mod express;
pub mod framing;
pub mod geostationary;
pub mod link;
pub mod medium;
pub mod node;
pub mod noise;
pub mod queue;
pub mod trace;
pub mod transmitter;
