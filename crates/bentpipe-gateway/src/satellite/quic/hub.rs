//! The hub's part: it waits for the terminal, and lets nobody else in or make it remember much.

use super::clock::Clock;
use super::controller::InFlight;
use super::crypto::Suite;
use super::peer::{Peer, loss};
use super::settings::{Sizes, transport};
use super::{QuicSatellite, Role};
use crate::satellite::Loss;
use bentpipe_net::time::{Duration, Instant};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, Incoming, ServerConfig};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use std::sync::Arc;

/// Handshakes at a time. The pair needs one, and one more after each restart.
const HALF_OPEN_MAX: usize = 8;
/// With more than this under way, who calls must first prove its address (RFC 9000 §8.1.2).
const HALF_OPEN_TRUSTED: usize = 2;
/// A handshake takes at least this long before it is given up: round trips, see `handshake_ends`.
const HANDSHAKE: (Duration, u64) = (Duration::from_secs(10), 10);
/// Four bytes: the hub knows a terminal again that comes from another address, and tells a terminal of an earlier life
/// that it has forgotten it. The terminal's own are empty, which saves the forward link as much.
const ID_BYTES: usize = 4;

/// The hub's part.
pub(super) struct Hub {
    server: ServerConfig,
}

/// Identifiers for connections.
struct Ids(ChaCha20Rng);

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.next_u32().to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

impl Hub {
    pub(super) fn new(suite: Suite, clock: &Clock, random: &mut ChaCha20Rng) -> (Hub, Endpoint) {
        let mut seed = || {
            let mut seed = [0; 32];
            random.fill_bytes(&mut seed);
            seed
        };
        let (endpoint_seed, id_seed) = (seed(), seed());
        let mut config = EndpointConfig::new(suite.reset_key);
        config
            .cid_generator(move || Box::new(Ids(ChaCha20Rng::from_seed(id_seed))))
            .supported_versions(vec![1])
            .rng_seed(Some(endpoint_seed));
        let crypto = suite.server.unwrap_or_else(|| unreachable!("a hub's suite has a server's part"));
        let mut server = ServerConfig::new(crypto, suite.token_key);
        server
            .time_source(clock.time_of_day())
            .migration(true)
            .max_incoming(HALF_OPEN_MAX)
            .incoming_buffer_size(16 << 10)
            .incoming_buffer_size_total(64 << 10);
        let endpoint = Endpoint::new(Arc::new(config), Some(Arc::new(server.clone())), false, None);
        (Hub { server }, endpoint)
    }
}

impl QuicSatellite {
    /// Somebody calls.
    pub(super) fn accept(&mut self, now: Instant, incoming: Incoming) {
        let Role::Hub(hub) = &self.role else {
            self.ignore(incoming);
            return;
        };
        let mut server = hub.server.clone();
        let mut answer = Vec::new();
        let under_way = self.half_open.iter().filter(|peer| !peer.is_over()).count();
        if under_way > HALF_OPEN_TRUSTED && incoming.may_retry() {
            match self.endpoint.retry(incoming, &mut answer) {
                Ok(transmit) => self.reply(transmit.destination, answer),
                Err(error) => self.ignore(error.into_incoming()),
            }
            return;
        }
        let from = incoming.remote_address();
        let may_be_the_pair = incoming.remote_address_validated() && self.unauthenticated_peers.is_known(from);
        if self.half_open.len() >= HALF_OPEN_MAX && !self.evict(now, may_be_the_pair) {
            self.ignore(incoming);
            return;
        }
        let shared = Arc::new(InFlight::default());
        let sizes = Sizes::new(&self.config, self.incoming, from);
        server.transport_config(Arc::new(transport(&self.config, &sizes, &shared)));
        let at = self.clock.at(now);
        match self.endpoint.accept(incoming, at, &mut answer, Some(Arc::new(server))) {
            Ok((handle, connection)) => {
                let mut peer = self.peer_of(now, handle, connection, shared, sizes);
                self.listen(now, &mut peer);
                self.put_back(peer);
            }
            Err(error) => {
                self.totals.other_versions += u64::from(loss(&error.cause) == Some(Loss::Version));
                if let Some(transmit) = error.response {
                    self.reply(transmit.destination, answer);
                }
            }
        }
    }

    fn ignore(&mut self, incoming: Incoming) {
        self.totals.unauthenticated_packets += 1;
        self.endpoint.ignore(incoming);
    }

    /// Makes room among the handshakes: one that is over, or else the oldest that has had its time. Whoever calls from where
    /// the other gateway was last need not wait for that.
    fn evict(&mut self, now: Instant, may_be_the_pair: bool) -> bool {
        let trips = if may_be_the_pair { 0 } else { 4 };
        let patience = Duration { ns: self.config.round_trip.ns.saturating_mul(trips) };
        let over = self.half_open.iter().position(Peer::is_over);
        let index = over.or_else(|| self.half_open.iter().position(|peer| now.since(peer.started) > patience));
        let Some(index) = index else { return false };
        let peer = self.half_open.remove(index);
        self.retire(peer);
        true
    }

    fn handshakes_end(&self) -> Option<Instant> {
        self.half_open.iter().map(|peer| self.handshake_ends(peer, HANDSHAKE)).min()
    }

    /// Drops handshakes that take too long.
    pub(super) fn wake_hub(&mut self, now: Instant) {
        while let Some(index) = self.half_open.iter().position(|peer| self.handshake_ends(peer, HANDSHAKE) <= now) {
            let peer = self.half_open.remove(index);
            self.retire(peer);
        }
    }

    /// When what only one of the sides does is due.
    pub(super) fn role_wake(&self) -> Option<Instant> {
        match &self.role {
            Role::Hub(_) => self.handshakes_end(),
            Role::Terminal(_) => self.terminal_due(),
        }
    }

    /// Does it.
    pub(super) fn wake_role(&mut self, now: Instant) {
        match &self.role {
            Role::Hub(_) => self.wake_hub(now),
            Role::Terminal(_) => self.wake_terminal(now),
        }
    }
}
