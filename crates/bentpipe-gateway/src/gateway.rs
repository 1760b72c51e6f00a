//! The gateway of one site.

use crate::config::GatewayConfig;
use crate::figures::Figures;
use crate::notice::Notice;
use crate::satellite::Satellite;
use bentpipe_link::socket::{Program, Sockets};
use bentpipe_link::time::Instant;
use bentpipe_link::units::BitRate;

/// The gateway of one site: a program over the site's [`Sockets`], which must offer
/// [`Capture`](bentpipe_link::capture::Capture).
pub struct Gateway {
    config: GatewayConfig,
    satellite: Box<dyn Satellite>,
}

impl Gateway {
    /// A gateway over this satellite side. It opens its sockets at the first poll.
    #[must_use]
    pub fn new(config: GatewayConfig, satellite: Box<dyn Satellite>) -> Gateway {
        Gateway { config, satellite }
    }

    /// What it has done so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures { satellite: self.satellite.statistics(), ..Figures::default() }
    }

    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &GatewayConfig {
        &self.config
    }

    /// The link's rate has changed; `None`: measure it. Takes effect at the next poll.
    pub fn set_rate(&mut self, _rate: Option<BitRate>) {}

    /// Takes no new connections: requests pass by or are refused, as [`GatewayConfig::fail`] says. Once the last
    /// connection has ended, the connection of the pair ends too, and the gateway is done.
    pub fn drain(&mut self) {}

    /// Resets every connection, ends the connection of the pair, and is done: at the next poll.
    pub fn end(&mut self) {}

    /// What has happened since the last call, for the log.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }
}

impl Program for Gateway {
    fn poll(&mut self, _now: Instant, _sockets: &mut dyn Sockets) {}

    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn is_done(&self) -> bool {
        false
    }
}
