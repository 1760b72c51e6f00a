//! Crypto for virtual runs: the messages of a TLS 1.3 handshake with raw public keys at their sizes and in their order,
//! 16-byte tags that find every damage, and nothing secret. Equal seeds give equal bytes.

use bytes::BytesMut;
use quinn_proto::crypto::{
    AeadKey, ClientConfig, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair,
    Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of each handshake message besides the transport parameters, as rustls 0.23 with ring and raw Ed25519 keys writes
/// them (`tests/satellite/` holds both to each other).
const CLIENT_HELLO: usize = 239;
const SERVER_HELLO: usize = 90;
/// Encrypted extensions, certificate request, certificate, its verification, finished.
const SERVER_FLIGHT: usize = 236;
/// Certificate, its verification, finished.
const CLIENT_FLIGHT: usize = 182;

/// The tag of every AEAD of TLS 1.3 (RFC 8446 §B.4).
const TAG: usize = 16;
/// `access_denied` (RFC 8446 §6.2): the certificate is valid, but not the one that is let in.
const ACCESS_DENIED: u8 = 49;

/// The terminal's side. `pair` is what both sides know, `seed` this side's own.
pub(super) fn client(pair: u64, seed: u64) -> Arc<dyn ClientConfig> {
    Arc::new(ModelConfig { pair, seed, sessions: AtomicU64::new(0) })
}

/// The hub's side.
pub(super) fn server(pair: u64, seed: u64) -> Arc<dyn ServerConfig> {
    Arc::new(ModelConfig { pair, seed, sessions: AtomicU64::new(0) })
}

/// Follows from what outlives a restart, as the real one does.
pub(super) fn reset_key(pair: u64) -> Arc<dyn HmacKey> {
    Arc::new(ModelKey(mix(&[pair, 0x7265_7365_7400])))
}

/// Seals tokens.
pub(super) fn token_key(pair: u64) -> Arc<dyn HandshakeTokenKey> {
    Arc::new(ModelKey(mix(&[pair, 0x746f_6b65_6e00])))
}

/// From the seed.
pub(super) fn random(seed: u64) -> [u8; 32] {
    let mut random = [0; 32];
    for (i, word) in random.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mix(&[seed, 0x7261_6e64, i as u64]).to_le_bytes());
    }
    random
}

/// Spreads words over 64 bits: the finalizer of SplitMix64 (Steele, Lea, Flood 2014) after each.
fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |state, word| {
        let mut z = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// A keyed checksum of several pieces: multiply and rotate word by word, length and position included.
fn checksum(key: u64, pieces: &[&[u8]]) -> u64 {
    let mut state = key;
    for piece in pieces {
        let words = piece.chunks_exact(8);
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        for word in words {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            state = (state.rotate_left(23) ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
        }
        state = mix(&[state, u64::from_le_bytes(last), piece.len() as u64]);
    }
    state
}

fn tag(key: u64, pieces: &[&[u8]]) -> [u8; TAG] {
    let sum = checksum(key, pieces);
    let mut tag = [0; TAG];
    tag[..8].copy_from_slice(&sum.to_le_bytes());
    tag[8..].copy_from_slice(&mix(&[sum, key]).to_le_bytes());
    tag
}

struct ModelConfig {
    pair: u64,
    seed: u64,
    /// So that each session has numbers of its own.
    sessions: AtomicU64,
}

impl ModelConfig {
    fn session(&self, side: Side, params: &TransportParameters) -> Box<dyn Session> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        let mut own_params = Vec::new();
        params.write(&mut own_params);
        Box::new(ModelSession {
            side,
            pair: self.pair,
            own_random: mix(&[self.seed, number, u64::from(side == Side::Server)]),
            peer_random: 0,
            own_params,
            peer_params: None,
            inbox: Vec::new(),
            next: if side == Side::Client { Step::Hello } else { Step::AwaitHello },
            update: 0,
        })
    }
}

impl ClientConfig for ModelConfig {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        _: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(self.session(Side::Client, params))
    }
}

impl ServerConfig for ModelConfig {
    fn initial_keys(&self, _: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        Ok(initial_keys(dst_cid, Side::Server))
    }

    fn retry_tag(&self, _: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        tag(0, &[orig_dst_cid, packet])
    }

    fn start_session(self: Arc<Self>, _: u32, params: &TransportParameters) -> Box<dyn Session> {
        self.session(Side::Server, params)
    }
}

/// Known to everybody, as those of RFC 9001 §5.2 are.
fn initial_keys(dst_cid: &ConnectionId, side: Side) -> Keys {
    keys(checksum(0, &[dst_cid]), side)
}

/// A pair of keys, one a direction.
fn keys(secret: u64, side: Side) -> Keys {
    Keys { header: KeyPair { local: Box::new(Plain), remote: Box::new(Plain) }, packet: packet_keys(secret, side) }
}

fn packet_keys(secret: u64, side: Side) -> KeyPair<Box<dyn PacketKey>> {
    let key = |sender: Side| Box::new(ModelKey(mix(&[secret, u64::from(sender == Side::Server)])));
    let other = if side == Side::Client { Side::Server } else { Side::Client };
    KeyPair { local: key(side), remote: key(other) }
}

/// Where a session stands: what it does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Client: write the hello.
    Hello,
    /// Server: read the client's hello. Client: read the server's.
    AwaitHello,
    /// Server: write the hello and take the handshake keys. Client: take them.
    HandshakeKeys,
    /// Server: write its flight and take the final keys.
    Flight,
    /// Read the other's flight.
    AwaitFlight,
    /// Client: write its flight and take the final keys.
    FinalKeys,
    /// The handshake is complete.
    Done,
}

struct ModelSession {
    side: Side,
    pair: u64,
    own_random: u64,
    peer_random: u64,
    own_params: Vec<u8>,
    peer_params: Option<Vec<u8>>,
    /// Data read that is not yet a whole message.
    inbox: Vec<u8>,
    next: Step,
    /// Key updates so far.
    update: u64,
}

impl ModelSession {
    /// The secret that both sides share after their hellos, as after a Diffie-Hellman exchange.
    fn shared(&self) -> u64 {
        mix(&[self.own_random ^ self.peer_random])
    }

    /// Only who knows the pair's number can say this.
    fn proof(&self, of: Side) -> u64 {
        mix(&[self.pair, self.shared(), u64::from(of == Side::Server)])
    }

    fn other(&self) -> Side {
        if self.side == Side::Client { Side::Server } else { Side::Client }
    }

    /// A message: its length, a number, the transport parameters, zeros up to `bytes` besides the parameters.
    fn message(&self, number: u64, params: &[u8], bytes: usize, out: &mut Vec<u8>) {
        let start = out.len();
        let length = bytes + params.len();
        out.extend((length as u32).to_be_bytes());
        out.extend(number.to_be_bytes());
        out.extend((params.len() as u16).to_be_bytes());
        out.extend(params);
        out.resize(start + length, 0);
    }

    /// The next whole message of the inbox: its number and parameters.
    fn take_message(&mut self) -> Result<Option<(u64, Vec<u8>)>, TransportError> {
        let Some(length) = self.inbox.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if !(14..=8192).contains(&length) {
            return Err(refusal(TransportErrorCode::PROTOCOL_VIOLATION, "a handshake message of impossible length"));
        }
        if self.inbox.len() < length {
            return Ok(None);
        }
        let message: Vec<u8> = self.inbox.drain(..length).collect();
        let number = message[4..12].try_into().map(u64::from_be_bytes).unwrap_or_default();
        let params = usize::from(u16::from_be_bytes([message[12], message[13]]));
        let params = message.get(14..14 + params).map(<[u8]>::to_vec);
        params.map(|params| Some((number, params))).ok_or_else(|| {
            refusal(TransportErrorCode::PROTOCOL_VIOLATION, "a handshake message whose parameters are cut off")
        })
    }
}

fn refusal(code: TransportErrorCode, reason: &str) -> TransportError {
    TransportError { code, frame: None, reason: reason.to_owned() }
}

impl Session for ModelSession {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.next != Step::Done
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inbox.extend(buf);
        while let Some((number, params)) = self.take_message()? {
            match (self.next, self.side) {
                (Step::AwaitHello, side) => {
                    self.peer_random = number;
                    if side == Side::Server {
                        self.peer_params = Some(params);
                    }
                    self.next = Step::HandshakeKeys;
                }
                (Step::AwaitFlight, side) => {
                    if number != self.proof(self.other()) {
                        let code = TransportErrorCode::crypto(ACCESS_DENIED);
                        return Err(refusal(code, "the other side does not know the pair's number"));
                    }
                    if side == Side::Client {
                        self.peer_params = Some(params);
                        self.next = Step::FinalKeys;
                    } else {
                        self.next = Step::Done;
                    }
                }
                _ => {
                    return Err(refusal(TransportErrorCode::PROTOCOL_VIOLATION, "a handshake message out of turn"));
                }
            }
        }
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(bytes) = &self.peer_params else { return Ok(None) };
        Ok(Some(TransportParameters::read(self.side, &mut bytes.as_slice())?))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let handshake = mix(&[self.shared(), 1]);
        let data = mix(&[self.shared(), 2]);
        match (self.next, self.side) {
            (Step::Hello, _) => {
                self.message(self.own_random, &self.own_params, CLIENT_HELLO, buf);
                self.next = Step::AwaitHello;
                None
            }
            (Step::HandshakeKeys, Side::Client) => {
                self.next = Step::AwaitFlight;
                Some(keys(handshake, self.side))
            }
            (Step::HandshakeKeys, Side::Server) => {
                self.message(self.own_random, &[], SERVER_HELLO, buf);
                self.next = Step::Flight;
                Some(keys(handshake, self.side))
            }
            (Step::Flight, _) => {
                self.message(self.proof(self.side), &self.own_params, SERVER_FLIGHT, buf);
                self.next = Step::AwaitFlight;
                Some(keys(data, self.side))
            }
            (Step::FinalKeys, _) => {
                self.message(self.proof(self.side), &[], CLIENT_FLIGHT, buf);
                self.next = Step::Done;
                Some(keys(data, self.side))
            }
            (Step::AwaitHello | Step::AwaitFlight | Step::Done, _) => None,
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.update += 1;
        Some(packet_keys(mix(&[self.shared(), 2, self.update]), self.side))
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some((token, seal)) = payload.split_last_chunk::<TAG>() else { return false };
        let packet = [header, token].concat();
        tag(0, &[orig_dst_cid, &packet]) == *seal
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let key = checksum(self.shared(), &[label, context]);
        for (i, word) in output.chunks_mut(8).enumerate() {
            word.copy_from_slice(&mix(&[key, i as u64]).to_le_bytes()[..word.len()]);
        }
        Ok(())
    }
}

/// Headers stay as they are; the sample is taken as if not.
struct Plain;

impl HeaderKey for Plain {
    fn decrypt(&self, _: usize, _: &mut [u8]) {}
    fn encrypt(&self, _: usize, _: &mut [u8]) {}
    fn sample_size(&self) -> usize {
        16
    }
}

/// Checks, and hides nothing.
struct ModelKey(u64);

impl PacketKey for ModelKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let (header, rest) = buf.split_at_mut(header_len);
        let (payload, end) = rest.split_at_mut(rest.len() - TAG);
        end.copy_from_slice(&tag(self.0 ^ packet, &[header, payload]));
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        let (content, end) = payload.split_last_chunk::<TAG>().ok_or(CryptoError)?;
        if tag(self.0 ^ packet, &[header, content]) != *end {
            return Err(CryptoError);
        }
        payload.truncate(payload.len() - TAG);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG
    }

    /// AES-GCM's (RFC 9001 §6.6).
    fn confidentiality_limit(&self) -> u64 {
        1 << 23
    }

    /// AES-GCM's (RFC 9001 §6.6).
    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

impl HmacKey for ModelKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        let key = checksum(self.0, &[data]);
        for (i, word) in signature_out.chunks_mut(8).enumerate() {
            word.copy_from_slice(&mix(&[key, i as u64]).to_le_bytes()[..word.len()]);
        }
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = [0; 32];
        self.sign(data, &mut expected);
        if signature == expected { Ok(()) } else { Err(CryptoError) }
    }
}

impl HandshakeTokenKey for ModelKey {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(ModelKey(checksum(self.0, &[random_bytes])))
    }
}

impl AeadKey for ModelKey {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        let seal = tag(self.0, &[additional_data, data]);
        data.extend(seal);
        Ok(())
    }

    fn open<'a>(&self, data: &'a mut [u8], additional_data: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let length = data.len().checked_sub(TAG).ok_or(CryptoError)?;
        let (content, seal) = data.split_at_mut(length);
        if tag(self.0, &[additional_data, content]) != *seal {
            return Err(CryptoError);
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_finds_every_single_damage() {
        let key = ModelKey(mix(&[1, 2]));
        let mut packet = vec![0x55; 100];
        key.encrypt(7, &mut packet, 10);
        for bit in 0..packet.len() * 8 {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (header, payload) = damaged.split_at(10);
            assert!(PacketKey::decrypt(&key, 7, header, &mut BytesMut::from(payload)).is_err(), "bit {bit}");
        }
        let (header, payload) = packet.split_at(10);
        assert!(PacketKey::decrypt(&key, 7, header, &mut BytesMut::from(payload)).is_ok());
        assert!(PacketKey::decrypt(&key, 8, header, &mut BytesMut::from(payload)).is_err(), "another number");
    }

    #[test]
    fn tokens_open_again_and_only_whole() {
        let key = ModelKey(3).aead_from_hkdf(b"salt");
        let mut token = b"address".to_vec();
        key.seal(&mut token, b"more").unwrap();
        assert_eq!(token.len(), 7 + TAG);
        assert_eq!(key.open(&mut token.clone(), b"more").unwrap(), b"address");
        assert!(key.open(&mut token.clone(), b"other").is_err());
        assert!(key.open(&mut [], b"more").is_err());
    }
}
