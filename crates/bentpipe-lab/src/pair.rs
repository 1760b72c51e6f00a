//! The gateways of a pair, made from what a scenario says: the same in live and virtual runs.

use crate::collect::gateways::{EventLog, GatewayResult};
use crate::scenario::Case;
use crate::scenario::gateway::Pair;
use bentpipe_gateway::Gateway;
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite, SetupError};
use bentpipe_net::interception::{GatewayProgram, GatewaySockets};
use bentpipe_net::seed::Seed;
use bentpipe_net::time::Instant;
use bentpipe_net::topology::Plan;

/// The number of a gateway's site: the hub's (0) or the terminal's side (1).
pub fn site(pair: &Pair, side: usize, plan: &Plan) -> usize {
    plan.site(&pair.sites[side]).unwrap_or_else(|| unreachable!("the network was planned with every pair's sites"))
}

/// The number that a pair's streams of randomness come from: each side's own, and the one that both share.
pub fn seeds(case: &Case, pair: &Pair, seed: u64) -> ([u64; 2], u64) {
    let seed = Seed(seed).child(&format!("gateways/{}", case.links[pair.link].name));
    (["hub", "terminal"].map(|side| seed.child(side).0), seed.child("pair").0)
}

/// A gateway that keeps what it says.
pub struct LoggedGateway {
    /// The gateway itself.
    pub gateway: Gateway,
    /// Its log.
    pub log: EventLog,
}

impl LoggedGateway {
    /// A gateway at its start.
    pub fn new(
        case: &Case,
        pair: &Pair,
        side: usize,
        crypto: Crypto,
        seed: u64,
        plan: &Plan,
    ) -> Result<LoggedGateway, SetupError> {
        let config = pair.config(side, &case.links[pair.link], plan);
        let (own, _) = seeds(case, pair, seed);
        let incoming = pair.config(1 - side, &case.links[pair.link], plan).satellite.rate;
        let satellite =
            QuicSatellite::with_incoming(Instant::ZERO, config.satellite.clone(), incoming, crypto, own[side])?;
        Ok(LoggedGateway { gateway: Gateway::new(config, Box::new(satellite)), log: EventLog::default() })
    }

    /// Its counters and log by now.
    pub fn left(&self) -> GatewayResult {
        GatewayResult { metrics: self.gateway.metrics(), log: self.log.clone() }
    }
}

impl GatewayProgram for LoggedGateway {
    fn poll(&mut self, now: Instant, sockets: &mut dyn GatewaySockets) {
        self.gateway.poll(now, sockets);
        self.log.extend(now, self.gateway.take_log());
    }

    fn next_wake(&self) -> Option<Instant> {
        self.gateway.next_wake()
    }

    fn is_done(&self) -> bool {
        self.gateway.is_done()
    }
}
