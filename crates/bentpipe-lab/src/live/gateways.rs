//! The gateways of a live run: each a thread in its site's namespace.

use crate::collect::gateways::GatewayResult;
use crate::events::SiteEvent;
use crate::pair::{self, LoggedGateway};
use crate::scenario::Case;
use crate::scenario::gateway::Pair;
use bentpipe_gateway::Fail;
use bentpipe_gateway::file::InterceptRules;
use bentpipe_gateway::satellite::keys::{PairKeys, PrivateKey};
use bentpipe_gateway::satellite::quic::Crypto;
use bentpipe_host::emulation::Emulation;
use bentpipe_host::gateway::{GatewayDriver, SiteOptions};
use std::io;

/// The gateways of a case, by pair: hub, terminal.
pub struct Pairs {
    gateways: Vec<[GatewayDriver<LoggedGateway>; 2]>,
    /// Each one's site, and the number of its log events that were in snapshots.
    taken: Vec<[(String, usize); 2]>,
}

impl Pairs {
    /// Starts every pair of a case, with keys that nobody else knows; the hubs' sides first, which wait. An error names
    /// the site.
    pub fn start(case: &Case, seed: u64, emulation: &Emulation) -> Result<Pairs, (String, io::Error)> {
        let gateways = case.pairs.iter().map(|pair| start_pair(case, pair, seed, emulation));
        let taken = case.pairs.iter().map(|pair| pair.sites.clone().map(|site| (site, 0)));
        Ok(Pairs { gateways: gateways.collect::<Result<_, _>>()?, taken: taken.collect() })
    }

    /// Every gateway's log events since the last call.
    pub fn new_log_events(&mut self) -> Vec<SiteEvent> {
        let mut new = Vec::new();
        for (driver, (site, taken)) in self.gateways.iter().flatten().zip(self.taken.iter_mut().flatten()) {
            let count = *taken;
            let log = driver.with(move |gateway| gateway.log.after(count)).unwrap_or_default();
            *taken += log.len();
            new.extend(SiteEvent::of(site, log));
        }
        new
    }

    /// Ends the gateways: what each has done, and what a reader must know of their sites.
    pub fn finish(self) -> (Vec<[GatewayResult; 2]>, Vec<String>) {
        let mut remarks = Vec::new();
        let mut end = |driver: GatewayDriver<LoggedGateway>| {
            remarks.extend(driver.take_remarks());
            // As it stands: the other side's end is no part of the case.
            driver.end().map(|gateway| gateway.left()).unwrap_or_default()
        };
        let left = self.gateways.into_iter().map(|pair| pair.map(&mut end)).collect();
        (left, remarks)
    }
}

fn start_pair(
    case: &Case,
    pair: &Pair,
    seed: u64,
    emulation: &Emulation,
) -> Result<[GatewayDriver<LoggedGateway>; 2], (String, io::Error)> {
    let fail = |side: usize, error: io::Error| (pair.sites[side].clone(), error);
    let key = |side: usize| PrivateKey::generate().map_err(|error| fail(side, io::Error::other(error)));
    let keys = [key(0)?, key(1)?];
    let plan = &emulation.plan;
    let start = |side: usize| {
        let own = PairKeys { own: keys[side].clone(), peer: keys[1 - side].public() };
        let gateway = LoggedGateway::new(case, pair, side, Crypto::Tls(own), seed, plan)
            .map_err(|error| fail(side, io::Error::other(error)))?;
        let (site, link_interface) = plan.links[pair.link].ports[side];
        debug_assert_eq!(site, pair::site(pair, side, plan));
        let interfaces = plan.sites[site].interfaces.iter().enumerate();
        let lan = interfaces.filter(|(number, _)| *number != link_interface).map(|(_, lan)| lan.device.clone());
        let rules = InterceptRules {
            interfaces: lan.collect(),
            ports: Vec::new(),
            to: Vec::new(),
            from: Vec::new(),
            except_ports: Vec::new(),
            except_to: Vec::new(),
            except_from: Vec::new(),
        };
        let closed = pair.settings.gateway.fail == Fail::Closed;
        let options = SiteOptions { rules: Some(rules), closed, ..SiteOptions::default() };
        let dials = side == 1 && pair.settings.gateway.dial.is_some();
        let line = dials.then(|| emulation.line(pair.link)).transpose().map_err(|error| fail(side, error))?;
        GatewayDriver::start_with_line(Some(emulation.namespace(site)), emulation.clock(), gateway, options, line)
            .map_err(|error| fail(side, error))
    };
    Ok([start(0)?, start(1)?])
}
