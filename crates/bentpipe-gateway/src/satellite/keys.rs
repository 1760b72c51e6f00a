//! The keys by which the two gateways of a pair know each other: Ed25519 (RFC 8032), written as short texts.
//!
//! Each gateway keeps its own private key and is configured with the other's public key; there are no certificates and
//! nothing expires. `bentpipe gateway keys` makes and shows them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::fmt;
use std::str::FromStr;

/// Before the text of a public key.
const PUBLIC_PREFIX: &str = "bentpipe-public-";
/// Before the text of a private key: nobody takes one for the other.
const PRIVATE_PREFIX: &str = "bentpipe-private-";
/// Bytes of either key (RFC 8032 §5.1.5).
const KEY_BYTES: usize = 32;
/// The prefix of an Ed25519 public key in a SubjectPublicKeyInfo (RFC 8410 §4).
const PUBLIC_DER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The prefix of an Ed25519 private key in its PKCS #8 form (RFC 8410 §7).
const PRIVATE_DER: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A gateway's private key. Its file must be readable by the gateway only.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey {
    seed: [u8; KEY_BYTES],
    public: PublicKey,
}

/// By what the other gateway knows it. Shown as `bentpipe-public-…`, 59 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// A gateway's own key and the one it expects of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairKeys {
    /// This gateway's own.
    pub own: PrivateKey,
    /// The other's; no other key is let in.
    pub peer: PublicKey,
}

/// Why a text is not a key. Never shows the text: it may be a private key in the wrong place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Neither kind of key.
    #[error("this is not a key; a {0} key starts with \"{1}\"")]
    Prefix(&'static str, &'static str),
    /// A private key stands where a public one belongs.
    #[error("this is a private key; the public key of the other gateway belongs here (\"bentpipe-public-…\")")]
    PrivateForPublic,
    /// A public key stands where a private one belongs.
    #[error("this is a public key; this gateway's own private key belongs here (\"bentpipe-private-…\")")]
    PublicForPrivate,
    /// Not base64, or not 32 bytes.
    #[error("this key is damaged: after its prefix there must be 43 characters out of A-Z, a-z, 0-9, \"-\" and \"_\"")]
    Damaged,
    /// The system gave no random bytes.
    #[error("the system's random generator failed")]
    Random,
}

impl PrivateKey {
    /// A new key from the system's random generator. Only deployed gateways call this.
    pub fn generate() -> Result<PrivateKey, KeyError> {
        let mut seed = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut seed).map_err(|_| KeyError::Random)?;
        PrivateKey::from_seed(seed)
    }

    /// The key that these 32 bytes are (RFC 8032 §5.1.5).
    pub fn from_seed(seed: [u8; KEY_BYTES]) -> Result<PrivateKey, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Damaged)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError::Damaged)?;
        Ok(PrivateKey { seed, public: PublicKey(public) })
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The line to write into the key file. A secret.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        format!("{PRIVATE_PREFIX}{}", URL_SAFE_NO_PAD.encode(self.seed))
    }

    /// The bytes from which other secrets of this gateway are derived.
    pub(crate) fn secret(&self) -> &[u8] {
        &self.seed
    }

    /// As PKCS #8, for the TLS library.
    pub(crate) fn to_pkcs8(&self) -> Vec<u8> {
        [PRIVATE_DER.as_slice(), &self.seed].concat()
    }
}

impl PublicKey {
    /// As SubjectPublicKeyInfo, which RFC 7250 sends in place of a certificate.
    pub(crate) fn to_spki(self) -> Vec<u8> {
        [PUBLIC_DER.as_slice(), &self.0].concat()
    }

    /// The Ed25519 key of a SubjectPublicKeyInfo; `None`: another kind of key.
    pub(crate) fn from_spki(spki: &[u8]) -> Option<PublicKey> {
        spki.strip_prefix(PUBLIC_DER.as_slice())?.try_into().ok().map(PublicKey)
    }
}

/// The bytes of a key's text, surrounding white space left out.
fn decode(
    text: &str,
    kind: &'static str,
    prefix: &'static str,
    other: &str,
    mistaken: KeyError,
) -> Result<[u8; KEY_BYTES], KeyError> {
    let text = text.trim();
    if text.starts_with(other) {
        return Err(mistaken);
    }
    let rest = text.strip_prefix(prefix).ok_or(KeyError::Prefix(kind, prefix))?;
    let bytes = URL_SAFE_NO_PAD.decode(rest).map_err(|_| KeyError::Damaged)?;
    bytes.try_into().map_err(|_| KeyError::Damaged)
}

impl FromStr for PrivateKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let seed = decode(text, "private", PRIVATE_PREFIX, PUBLIC_PREFIX, KeyError::PublicForPrivate)?;
        PrivateKey::from_seed(seed)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text, "public", PUBLIC_PREFIX, PRIVATE_PREFIX, KeyError::PrivateForPublic).map(PublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC_PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(secret, public {})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_survive_their_texts() {
        let key = PrivateKey::from_seed([7; 32]).unwrap();
        assert_eq!(format!(" {}\n", key.to_secret_text()).parse::<PrivateKey>().unwrap(), key);
        let public = key.public();
        assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
        assert_eq!(public.to_string().len(), 59);
        assert_eq!(PublicKey::from_spki(&public.to_spki()), Some(public));
        assert_eq!(PublicKey::from_spki(&public.to_spki()[1..]), None);
        assert_eq!(PublicKey::from_spki(&[]), None);
    }

    #[test]
    fn the_public_key_is_that_of_rfc_8032() {
        // RFC 8032 §7.1, test 1.
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
        };
        let secret = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let key = PrivateKey::from_seed(secret.try_into().unwrap()).unwrap();
        assert_eq!(key.public().0.as_slice(), public);
    }

    #[test]
    fn debug_shows_no_secret() {
        let key = PrivateKey::from_seed([7; 32]).unwrap();
        let pair = PairKeys { own: key.clone(), peer: key.public() };
        let secret = URL_SAFE_NO_PAD.encode([7u8; 32]);
        assert!(!format!("{pair:?}").contains(&secret));
        assert!(key.to_secret_text().contains(&secret));
    }

    #[test]
    fn mistakes_are_named() {
        let key = PrivateKey::from_seed([7; 32]).unwrap();
        assert_eq!(key.to_secret_text().parse::<PublicKey>(), Err(KeyError::PrivateForPublic));
        assert_eq!(key.public().to_string().parse::<PrivateKey>(), Err(KeyError::PublicForPrivate));
        assert_eq!("hello".parse::<PublicKey>(), Err(KeyError::Prefix("public", PUBLIC_PREFIX)));
        assert_eq!("bentpipe-public-AAAA".parse::<PublicKey>(), Err(KeyError::Damaged));
        assert!(KeyError::Prefix("public", PUBLIC_PREFIX).to_string().contains("bentpipe-public-"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", tail in "[A-Za-z0-9_=-]{0,60}") {
            let _ = text.parse::<PublicKey>();
            let _ = text.parse::<PrivateKey>();
            let _ = format!("{PUBLIC_PREFIX}{tail}").parse::<PublicKey>();
            let _ = format!("{PRIVATE_PREFIX}{tail}").parse::<PrivateKey>();
        }
    }
}
