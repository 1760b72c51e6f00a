//! What runs at a simulated site: a workload's program, or a gateway.

use crate::collect::gateways::{LeftGateway, NoticeLog};
use crate::pair;
use crate::scenario::Case;
use bentpipe_apps::report::{App, Report};
use bentpipe_gateway::Gateway;
use bentpipe_gateway::satellite::quic::Crypto;
use bentpipe_link::socket::{Program, Sockets};
use bentpipe_link::time::Instant;
use bentpipe_sim::network::{Network, ProgramId};

/// A program of a simulated site.
pub enum Resident {
    /// Of a workload or a service.
    App(Box<dyn App>),
    /// A gateway, and what it said so far.
    Gateway(Box<Gateway>, NoticeLog),
}

impl Program for Resident {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        match self {
            Resident::App(app) => app.poll(now, sockets),
            Resident::Gateway(gateway, notices) => {
                gateway.poll(now, sockets);
                notices.extend(now, gateway.take_notices());
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        match self {
            Resident::App(app) => app.next_wake(),
            Resident::Gateway(gateway, _) => gateway.next_wake(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Resident::App(app) => app.is_done(),
            Resident::Gateway(gateway, _) => gateway.is_done(),
        }
    }
}

impl Resident {
    /// How far a workload's program is.
    pub fn report(&self, now: Instant) -> Option<Report> {
        match self {
            Resident::App(app) => Some(app.report(now)),
            Resident::Gateway(..) => None,
        }
    }
}

/// The gateways of a simulated network, by pair: hub, terminal.
pub struct Pairs {
    gateways: Vec<[ProgramId; 2]>,
}

impl Pairs {
    /// Starts every pair of a case: the hubs' sides first, which wait.
    pub fn start(case: &Case, seed: u64, network: &mut Network<Resident>) -> Pairs {
        let gateways = case
            .pairs
            .iter()
            .map(|pair| {
                let (_, shared) = pair::seeds(case, pair, seed);
                [0, 1].map(|side| {
                    let gateway = pair::gateway(case, pair, side, Crypto::Model(shared), seed, network.plan());
                    let site = pair::site(pair, side, network.plan());
                    let resident = Resident::Gateway(Box::new(gateway), NoticeLog::default());
                    let started = network.start_gateway(site, pair.link, resident);
                    started.unwrap_or_else(|error| unreachable!("a pair's sites are at its link: {error}"))
                })
            })
            .collect();
        Pairs { gateways }
    }

    /// What each gateway has done by now.
    pub fn left(&self, network: &Network<Resident>) -> Vec<[LeftGateway; 2]> {
        let left = |id: ProgramId| match network.program(id) {
            Some(Resident::Gateway(gateway, notices)) => {
                LeftGateway { figures: gateway.figures(), notices: notices.clone() }
            }
            _ => LeftGateway::default(),
        };
        self.gateways.iter().map(|pair| pair.map(left)).collect()
    }
}
