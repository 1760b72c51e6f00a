//! The gateways of a pair, made from what a scenario says: the same in live and virtual runs.

use crate::scenario::Case;
use crate::scenario::gateway::Pair;
use bentpipe_gateway::Gateway;
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_link::seed::Seed;
use bentpipe_link::time::Instant;
use bentpipe_link::topology::Plan;

/// The number of a gateway's site: the hub's (0) or the terminal's side (1).
pub fn site(pair: &Pair, side: usize, plan: &Plan) -> usize {
    plan.site(&pair.sites[side]).unwrap_or_else(|| unreachable!("the network was planned with every pair's sites"))
}

/// The number that a pair's streams of randomness come from: each side's own, and the one that both share.
pub fn seeds(case: &Case, pair: &Pair, seed: u64) -> ([u64; 2], u64) {
    let seed = Seed(seed).child(&format!("gateways/{}", case.links[pair.link].name));
    (["hub", "terminal"].map(|side| seed.child(side).0), seed.child("pair").0)
}

/// A gateway at its start.
pub fn gateway(case: &Case, pair: &Pair, side: usize, crypto: Crypto, seed: u64, plan: &Plan) -> Gateway {
    let config = pair.config(side, &case.links[pair.link], plan);
    let (own, _) = seeds(case, pair, seed);
    let satellite = QuicSatellite::new(Instant::ZERO, config.satellite.clone(), crypto, own[side]);
    Gateway::new(config, Box::new(satellite))
}
