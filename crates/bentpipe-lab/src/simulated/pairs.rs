//! The gateways of a virtual run.

use crate::collect::gateways::GatewayResult;
use crate::events::SiteEvent;
use crate::pair::{self, LoggedGateway};
use crate::scenario::Case;
use crate::scenario::gateway::Pair;
use bentpipe_apps::report::App;
use bentpipe_gateway::satellite::quic::{Crypto, SetupError};
use bentpipe_sim::network::{Network, ProgramId};

/// A simulated network: programs of workloads and services, and gateways.
pub type SimulatedNetwork = Network<Box<dyn App>, LoggedGateway>;

/// The gateways of a simulated network, by pair: hub, terminal.
pub struct Pairs {
    gateways: Vec<[ProgramId; 2]>,
    /// Number of each one's log events that were in snapshots.
    taken: Vec<[usize; 2]>,
}

impl Pairs {
    /// Starts every pair of a case: the hubs' sides first, which wait.
    pub fn start(case: &Case, seed: u64, network: &mut SimulatedNetwork) -> Result<Pairs, SetupError> {
        let mut start = |pair: &Pair| {
            let (_, shared) = pair::seeds(case, pair, seed);
            let mut start = |side| {
                let gateway = LoggedGateway::new(case, pair, side, Crypto::Model(shared), seed, network.plan())?;
                let site = pair::site(pair, side, network.plan());
                let dials = side == 1 && pair.settings.gateway.dial.is_some();
                let started = network.start_gateway(site, pair.link, gateway, dials);
                Ok(started.unwrap_or_else(|error| unreachable!("a pair's sites are at its link: {error}")))
            };
            Ok([start(0)?, start(1)?])
        };
        let gateways: Vec<_> = case.pairs.iter().map(&mut start).collect::<Result<_, _>>()?;
        Ok(Pairs { taken: vec![[0; 2]; gateways.len()], gateways })
    }

    /// Every gateway's log events since the last call.
    pub fn new_log_events(&mut self, network: &SimulatedNetwork) -> Vec<SiteEvent> {
        let mut new = Vec::new();
        for (id, taken) in self.gateways.iter().flatten().zip(self.taken.iter_mut().flatten()) {
            let Some(gateway) = network.gateway(*id) else { continue };
            let log = gateway.log.after(*taken);
            *taken += log.len();
            new.extend(SiteEvent::of(&network.plan().sites[id.site].name, log));
        }
        new
    }

    /// The results of each gateway by now.
    pub fn left(&self, network: &SimulatedNetwork) -> Vec<[GatewayResult; 2]> {
        let left = |id: ProgramId| network.gateway(id).map(LoggedGateway::left).unwrap_or_default();
        self.gateways.iter().map(|pair| pair.map(left)).collect()
    }
}
