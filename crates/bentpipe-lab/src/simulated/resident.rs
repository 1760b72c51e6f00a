//! What runs at a simulated site: a workload's program, or a gateway.

use crate::collect::gateways::LeftGateway;
use crate::pair::{self, Standing};
use crate::scenario::Case;
use crate::scenario::gateway::Pair;
use bentpipe_apps::report::{App, Report};
use bentpipe_gateway::satellite::quic::{Crypto, SetupError};
use bentpipe_net::socket::{Program, Sockets};
use bentpipe_net::time::Instant;
use bentpipe_sim::network::{Network, ProgramId};

/// A program of a simulated site.
pub enum Resident {
    /// Of a workload or a service.
    App(Box<dyn App>),
    /// A gateway.
    Gateway(Box<Standing>),
}

impl Resident {
    fn program(&self) -> &dyn Program {
        match self {
            Resident::App(app) => app,
            Resident::Gateway(gateway) => gateway,
        }
    }

    /// How far a workload's program is.
    pub fn report(&self, now: Instant) -> Option<Report> {
        match self {
            Resident::App(app) => Some(app.report(now)),
            Resident::Gateway(_) => None,
        }
    }
}

impl Program for Resident {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        match self {
            Resident::App(app) => app.poll(now, sockets),
            Resident::Gateway(gateway) => gateway.poll(now, sockets),
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.program().next_wake()
    }

    fn is_done(&self) -> bool {
        self.program().is_done()
    }
}

/// The gateways of a simulated network, by pair: hub, terminal.
pub struct Pairs {
    gateways: Vec<[ProgramId; 2]>,
}

impl Pairs {
    /// Starts every pair of a case: the hubs' sides first, which wait.
    pub fn start(case: &Case, seed: u64, network: &mut Network<Resident>) -> Result<Pairs, SetupError> {
        let mut start = |pair: &Pair| {
            let (_, shared) = pair::seeds(case, pair, seed);
            let mut start = |side| {
                let gateway = Standing::new(case, pair, side, Crypto::Model(shared), seed, network.plan())?;
                let site = pair::site(pair, side, network.plan());
                let started = network.start_gateway(site, pair.link, Resident::Gateway(Box::new(gateway)));
                Ok(started.unwrap_or_else(|error| unreachable!("a pair's sites are at its link: {error}")))
            };
            Ok([start(0)?, start(1)?])
        };
        Ok(Pairs { gateways: case.pairs.iter().map(&mut start).collect::<Result<_, _>>()? })
    }

    /// What each gateway has done by now.
    pub fn left(&self, network: &Network<Resident>) -> Vec<[LeftGateway; 2]> {
        let left = |id: ProgramId| match network.program(id) {
            Some(Resident::Gateway(gateway)) => gateway.left(),
            _ => LeftGateway::default(),
        };
        self.gateways.iter().map(|pair| pair.map(left)).collect()
    }
}
