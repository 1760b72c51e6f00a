//! The terminal's part: it calls the hub, and again whenever the connection is lost.

use super::controller::InFlight;
use super::crypto::Suite;
use super::peer::Peer;
use super::settings::{Sizes, transport};
use super::{QuicSatellite, Role};
use crate::satellite::{Event, Loss};
use bentpipe_net::time::{Duration, Instant};
use quinn_proto::{
    ClientConfig, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, NoneTokenStore,
    RandomConnectionIdGenerator,
};
use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use std::net::SocketAddr;
use std::sync::Arc;

/// Between attempts: at first and at most, doubled each time.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The same where each attempt sets a circuit up and costs airtime.
const AGAIN_DIAL_UP: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(600));
/// The same after a refusal: somebody must change a key, or a program, first.
const AGAIN_UNAUTHENTICATED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// An attempt takes at least this long before another is begun: see `handshake_ends`.
const ATTEMPT: (Duration, u64) = (Duration::from_secs(4), 8);
/// The library's name for the other side; keys are pinned, names mean nothing.
const NAME: &str = "hub";

/// The terminal's part.
pub(super) struct Terminal {
    suite: Suite,
    hub: SocketAddr,
    random: ChaCha20Rng,
    /// When the next attempt begins.
    next: Option<Instant>,
    wait: Duration,
    /// When the last one began.
    called: Instant,
    /// Somebody waits for the connection.
    wanted: bool,
    /// The hub does not know our key, is not the one we know, or speaks another version.
    refused: bool,
}

impl Terminal {
    pub(super) fn new(now: Instant, suite: Suite, hub: SocketAddr, random: ChaCha20Rng) -> Terminal {
        Terminal {
            suite,
            hub,
            random,
            next: Some(now),
            wait: Duration::ZERO,
            called: now,
            wanted: false,
            refused: false,
        }
    }

    /// An endpoint for one attempt: connection identifiers are empty, so that the hub's packets are distinguished by
    /// nothing but its address, and each attempt needs its own.
    pub(super) fn endpoint(&mut self) -> Endpoint {
        let mut config = EndpointConfig::new(Arc::clone(&self.suite.reset_key));
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        config
            .cid_generator(|| -> Box<dyn ConnectionIdGenerator> { Box::new(RandomConnectionIdGenerator::new(0)) })
            .supported_versions(vec![1])
            .rng_seed(Some(seed));
        Endpoint::new(Arc::new(config), None, false, None)
    }

    pub(super) fn on_connected(&mut self) {
        self.next = None;
        self.wait = Duration::ZERO;
        self.wanted = false;
        self.refused = false;
    }

    /// Decides when to try again: at once after the first loss, then ever later.
    pub(super) fn on_lost(&mut self, now: Instant, why: Loss, dial_up: bool) {
        let (first, most) = match (why, dial_up) {
            (Loss::Unauthenticated | Loss::Version, _) => AGAIN_UNAUTHENTICATED,
            (_, true) => AGAIN_DIAL_UP,
            (_, false) => AGAIN,
        };
        self.refused = matches!(why, Loss::Unauthenticated | Loss::Version);
        let wait = if self.refused { self.wait.max(first) } else { self.wait };
        let wait = if std::mem::take(&mut self.wanted) && !self.refused { wait.min(first) } else { wait };
        self.next = Some(now + wait);
        self.wait = Duration { ns: wait.ns * 2 }.clamp(first, most);
    }

    /// Calls the hub there from now on; at once, where it was not known before. `idle`: nothing is under way.
    pub(super) fn set_hub(&mut self, now: Instant, hub: SocketAddr, idle: bool) {
        let unknown = std::mem::replace(&mut self.hub, hub).ip().is_unspecified();
        if unknown && idle {
            self.next = Some(now);
        }
    }

    /// A stream is wanted: the next attempt need not wait as long as the last ones failed.
    pub(super) fn want(&mut self, dial_up: bool) {
        self.wanted = true;
        if let Some(next) = self.next.filter(|_| !self.refused) {
            let least = if dial_up { AGAIN_DIAL_UP.0 } else { AGAIN.0 };
            self.next = Some(next.min(self.called + least));
        }
    }
}

impl QuicSatellite {
    /// When the terminal begins an attempt, or gives one up.
    pub(super) fn terminal_due(&self) -> Option<Instant> {
        let Role::Terminal(terminal) = &self.role else { return None };
        if self.closed {
            return None;
        }
        match self.attempt() {
            Some(peer) => Some(self.handshake_ends(peer, ATTEMPT)),
            None if terminal.hub.ip().is_unspecified() => None,
            None => terminal.next,
        }
    }

    /// The connection that is being made.
    fn attempt(&self) -> Option<&Peer> {
        self.current.as_ref().filter(|peer| !peer.is_established() && !peer.is_over())
    }

    /// Begins an attempt, or gives one up and begins the next; on a circuit after a pause, as each costs airtime.
    pub(super) fn wake_terminal(&mut self, now: Instant) {
        let is_due = |terminal: &Self| terminal.terminal_due().is_some_and(|due| due <= now);
        if !is_due(self) {
            return;
        }
        if let Some(peer) = self.attempt() {
            let (hub, heard) = (peer.connection.remote_address(), peer.answered().is_some());
            self.events.push_back(Event::Unanswered { hub, heard });
        }
        if self.config.dial_up && self.attempt().is_some() {
            if let Some(old) = self.current.take() {
                self.retire(old);
            }
            self.on_lost(now, false, Loss::Silence);
            if !is_due(self) {
                return;
            }
        }
        self.call(now);
    }

    /// Begins an attempt at the next wake, in place of one that is under way; not after a refusal.
    pub(super) fn begin_again(&mut self, now: Instant) {
        let under_way = self.attempt().is_some();
        let Role::Terminal(terminal) = &mut self.role else { return };
        if under_way {
            if let Some(old) = self.current.take() {
                self.retire(old);
            }
        } else if terminal.next.is_none() || terminal.refused {
            return;
        }
        if let Role::Terminal(terminal) = &mut self.role {
            terminal.next = Some(now);
        }
    }

    fn call(&mut self, now: Instant) {
        if let Some(old) = self.current.take() {
            self.retire(old);
        }
        let Role::Terminal(terminal) = &mut self.role else { return };
        let Some(crypto) = terminal.suite.client.clone() else { return };
        let mut id = [0; 8];
        terminal.random.fill_bytes(&mut id);
        let hub = terminal.hub;
        terminal.next = None;
        terminal.called = now;
        self.endpoint = terminal.endpoint();
        let shared = Arc::new(InFlight::default());
        let sizes = Sizes::new(&self.config, self.incoming, hub);
        let mut client = ClientConfig::new(crypto);
        client
            .initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&id)))
            .token_store(Arc::new(NoneTokenStore))
            .transport_config(Arc::new(transport(&self.config, &sizes, &shared)));
        match self.endpoint.connect(self.clock.at(now), client, hub, NAME) {
            Ok((handle, connection)) => {
                let mut peer = self.peer_of(now, handle, connection, shared, sizes);
                self.listen(now, &mut peer);
                self.put_back(peer);
            }
            // The address was checked at construction; whatever else it is, later may be better.
            Err(_) => self.on_lost(now, false, Loss::Protocol),
        }
    }
}
