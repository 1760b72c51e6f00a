//! TLS 1.3 with raw public keys on both sides (RFC 8446, RFC 7250), each pinned to the configured key.

use super::super::SetupError;
use super::Counters;
use crate::satellite::keys::{PairKeys, PublicKey};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{ClientConfig, HandshakeTokenKey, HmacKey, ServerConfig};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{hkdf, hmac};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme, client,
    version::TLS13,
};
use std::sync::Arc;

/// The terminal's side.
pub(super) fn client(
    keys: &PairKeys,
    protocol: &[u8],
    counters: &Arc<Counters>,
) -> Result<Arc<dyn ClientConfig>, SetupError> {
    let provider = Arc::new(provider::default_provider());
    let pinned = Arc::new(Pinned { key: keys.peer, provider: Arc::clone(&provider), counters: Arc::clone(counters) });
    let own = Arc::new(client::AlwaysResolvesClientRawPublicKeys::new(certified(keys)?));
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| SetupError::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_client_cert_resolver(own);
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let config = QuicClientConfig::try_from(config).map_err(|error| SetupError::Tls(error.to_string()))?;
    Ok(Arc::new(config))
}

/// The hub's side.
pub(super) fn server(
    keys: &PairKeys,
    protocol: &[u8],
    counters: &Arc<Counters>,
) -> Result<Arc<dyn ServerConfig>, SetupError> {
    let provider = Arc::new(provider::default_provider());
    let pinned = Arc::new(Pinned { key: keys.peer, provider: Arc::clone(&provider), counters: Arc::clone(counters) });
    let own = Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(keys)?));
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| SetupError::Tls(error.to_string()))?
        .with_client_cert_verifier(pinned)
        .with_cert_resolver(own);
    config.alpn_protocols = vec![protocol.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    let config = QuicServerConfig::try_from(config).map_err(|error| SetupError::Tls(error.to_string()))?;
    Ok(Arc::new(config))
}

fn certified(keys: &PairKeys) -> Result<Arc<CertifiedKey>, SetupError> {
    let private = PrivatePkcs8KeyDer::from(keys.own.to_pkcs8());
    let signing = provider::sign::any_eddsa_type(&private).map_err(|error| SetupError::Tls(error.to_string()))?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(keys.own.public().to_spki())], signing)))
}

/// Follows from the private key, so that a restarted gateway can end connections of its earlier life (RFC 9000 §10.3).
pub(super) fn reset_key(keys: &PairKeys) -> Arc<dyn HmacKey> {
    let own = hmac::Key::new(hmac::HMAC_SHA256, keys.own.secret());
    let derived = hmac::sign(&own, b"bentpipe stateless reset");
    Arc::new(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()))
}

/// Seals the tokens by which unauthenticated peers prove their address.
pub(super) fn token_key(keys: &PairKeys) -> Arc<dyn HandshakeTokenKey> {
    Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, b"bentpipe retry token").extract(keys.own.secret()))
}

/// From the system.
pub(super) fn random() -> Result<[u8; 32], SetupError> {
    let mut random = [0; 32];
    SystemRandom::new().fill(&mut random).map_err(|_| SetupError::Random)?;
    Ok(random)
}

/// Lets exactly one key in.
#[derive(Debug)]
struct Pinned {
    key: PublicKey,
    provider: Arc<CryptoProvider>,
    counters: Arc<Counters>,
}

impl Pinned {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        if presented.as_ref() == self.key.to_spki() {
            Ok(())
        } else {
            self.counters.set_refused(PublicKey::from_spki(presented.as_ref()));
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(presented.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.provider.signature_verification_algorithms)
    }
}

/// TLS 1.2 is never offered.
fn never() -> Error {
    Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic)
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(presented).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(never())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, presented, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(presented).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(never())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, presented, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
