//! Authentication of the pair and protection of its packets: a choice given at construction.

mod counted;
mod model;
mod tls;

use super::SetupError;
use crate::satellite::Side;
use crate::satellite::keys::{PairKeys, PublicKey};
use counted::{CountedClient, CountedServer};
use parking_lot::Mutex;
use quinn_proto::crypto::{ClientConfig, HandshakeTokenKey, HmacKey, ServerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Authentication of the pair and protection of its packets.
#[derive(Clone, Debug)]
pub enum Crypto {
    /// TLS 1.3 with raw public keys (RFC 7250), each side pinned to the other's key. Draws the system's random numbers.
    Tls(PairKeys),
    /// For virtual runs: messages, tags and round trips of the same size, a checksum in place of encryption, no
    /// randomness but the seed's. Both sides of a pair are given the same number; a side with another is refused.
    Model(u64),
}

/// Counters of decrypted packets and of failures.
#[derive(Debug, Default)]
pub(super) struct Counters {
    forged: AtomicU64,
    readable: AtomicU64,
    authentic: AtomicU64,
    /// The key of the last peer that presented another than the configured one.
    refused: Mutex<Option<PublicKey>>,
}

impl Counters {
    /// Packets that failed the check.
    pub(super) fn forged(&self) -> u64 {
        self.forged.load(Ordering::Relaxed)
    }

    /// Packets that passed the check; anybody who sees the link can make a first one.
    pub(super) fn readable(&self) -> u64 {
        self.readable.load(Ordering::Relaxed)
    }

    /// Packets that only somebody who took part in a handshake can have made.
    pub(super) fn authentic(&self) -> u64 {
        self.authentic.load(Ordering::Relaxed)
    }

    /// Takes the key that was refused last, if any was since the last call.
    pub(super) fn take_refused(&self) -> Option<PublicKey> {
        self.refused.lock().take()
    }

    fn set_refused(&self, key: Option<PublicKey>) {
        *self.refused.lock() = key;
    }

    fn count(&self, good: bool, proves: bool) {
        if !good {
            self.forged.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.readable.fetch_add(1, Ordering::Relaxed);
        if proves {
            self.authentic.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The parts of a [`Crypto`] that the QUIC library needs.
pub(super) struct Suite {
    pub(super) client: Option<Arc<dyn ClientConfig>>,
    pub(super) server: Option<Arc<dyn ServerConfig>>,
    pub(super) reset_key: Arc<dyn HmacKey>,
    pub(super) token_key: Arc<dyn HandshakeTokenKey>,
    pub(super) counters: Arc<Counters>,
    /// Where identifiers and the like come from.
    pub(super) random: [u8; 32],
}

impl Suite {
    pub(super) fn new(crypto: &Crypto, protocol: &[u8], side: Side, seed: u64) -> Result<Suite, SetupError> {
        let counters = Arc::new(Counters::default());
        let hub = side == Side::Hub;
        let (client, server, reset_key, token_key, random) = match crypto {
            Crypto::Tls(keys) => {
                let client: Option<Arc<dyn ClientConfig>> =
                    if hub { None } else { Some(tls::client(keys, protocol, &counters)?) };
                let server: Option<Arc<dyn ServerConfig>> =
                    if hub { Some(tls::server(keys, protocol, &counters)?) } else { None };
                (client, server, tls::reset_key(keys), tls::token_key(keys), tls::random()?)
            }
            Crypto::Model(pair) => {
                let client: Option<Arc<dyn ClientConfig>> = if hub { None } else { Some(model::client(*pair, seed)) };
                let server: Option<Arc<dyn ServerConfig>> = if hub { Some(model::server(*pair, seed)) } else { None };
                (client, server, model::reset_key(*pair), model::token_key(*pair), model::random(seed))
            }
        };
        let client = client.map(|inner| CountedClient::wrap(inner, &counters));
        let server = server.map(|inner| CountedServer::wrap(inner, &counters));
        Ok(Suite { client, server, reset_key, token_key, counters, random })
    }
}
