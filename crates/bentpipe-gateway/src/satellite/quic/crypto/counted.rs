//! Any crypto session, with its packets counted: the QUIC library keeps to itself what failed the check.

use super::Counters;
use bytes::BytesMut;
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
    UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError};
use std::any::Any;
use std::sync::Arc;

/// A client's configuration whose sessions are counted.
pub(super) struct CountedClient {
    inner: Arc<dyn ClientConfig>,
    counters: Arc<Counters>,
}

/// A server's.
pub(super) struct CountedServer {
    inner: Arc<dyn ServerConfig>,
    counters: Arc<Counters>,
}

struct CountedSession {
    inner: Box<dyn Session>,
    counters: Arc<Counters>,
}

struct CountedKey {
    inner: Box<dyn PacketKey>,
    counters: Arc<Counters>,
    /// Initial keys follow from what is on the wire and prove nothing (RFC 9001 §5.2).
    proves: bool,
}

impl CountedClient {
    pub(super) fn wrap(inner: Arc<dyn ClientConfig>, counters: &Arc<Counters>) -> Arc<dyn ClientConfig> {
        Arc::new(CountedClient { inner, counters: Arc::clone(counters) })
    }
}

impl CountedServer {
    pub(super) fn wrap(inner: Arc<dyn ServerConfig>, counters: &Arc<Counters>) -> Arc<dyn ServerConfig> {
        Arc::new(CountedServer { inner, counters: Arc::clone(counters) })
    }
}

fn count(keys: Keys, counters: &Arc<Counters>, proves: bool) -> Keys {
    Keys { header: keys.header, packet: count_pair(keys.packet, counters, proves) }
}

fn count_pair(
    pair: KeyPair<Box<dyn PacketKey>>,
    counters: &Arc<Counters>,
    proves: bool,
) -> KeyPair<Box<dyn PacketKey>> {
    let remote = Box::new(CountedKey { inner: pair.remote, counters: Arc::clone(counters), proves });
    KeyPair { local: pair.local, remote }
}

impl ClientConfig for CountedClient {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let inner = Arc::clone(&self.inner).start_session(version, server_name, params)?;
        Ok(Box::new(CountedSession { inner, counters: Arc::clone(&self.counters) }))
    }
}

impl ServerConfig for CountedServer {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        Ok(count(self.inner.initial_keys(version, dst_cid)?, &self.counters, false))
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.inner.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let inner = Arc::clone(&self.inner).start_session(version, params);
        Box::new(CountedSession { inner, counters: Arc::clone(&self.counters) })
    }
}

impl Session for CountedSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        count(self.inner.initial_keys(dst_cid, side), &self.counters, false)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        Some(count(self.inner.write_handshake(buf)?, &self.counters, true))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(count_pair(self.inner.next_1rtt_keys()?, &self.counters, true))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let valid = self.inner.is_valid_retry(orig_dst_cid, header, payload);
        self.counters.count(valid, false);
        valid
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

impl PacketKey for CountedKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.inner.encrypt(packet, buf, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        let result = self.inner.decrypt(packet, header, payload);
        self.counters.count(result.is_ok(), self.proves);
        result
    }

    fn tag_len(&self) -> usize {
        self.inner.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.inner.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.inner.integrity_limit()
    }
}
