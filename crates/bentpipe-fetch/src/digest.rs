//! Digests of whole files: what the user gives, what HTTP offers (RFC 9530; RFC 3230 before it).

use crate::Options;
use crate::error::Failure;
use crate::part::Part;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

/// A digest and its algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// The value; its length is the algorithm's.
    pub value: Vec<u8>,
}

/// The algorithms that RFC 9530 §5 registers as active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// As RFC 9530 writes it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha-256",
            Algorithm::Sha512 => "sha-512",
        }
    }

    fn of(name: &str) -> Option<Algorithm> {
        match name.trim().to_ascii_lowercase().as_str() {
            "sha-256" | "sha256" => Some(Algorithm::Sha256),
            "sha-512" | "sha512" => Some(Algorithm::Sha512),
            _ => None,
        }
    }

    fn ring(self) -> &'static ring::digest::Algorithm {
        match self {
            Algorithm::Sha256 => &ring::digest::SHA256,
            Algorithm::Sha512 => &ring::digest::SHA512,
        }
    }
}

impl std::str::FromStr for Digest {
    type Err = String;

    /// `sha256:HEX` or `sha512:HEX`.
    fn from_str(text: &str) -> Result<Digest, String> {
        let wrong = || "allowed: sha256: and 64 hexadecimal digits, or sha512: and 128".to_owned();
        let (name, hex) = text.split_once(':').ok_or_else(wrong)?;
        let algorithm = Algorithm::of(name).ok_or_else(wrong)?;
        let digits: Option<Vec<u8>> = hex.trim().chars().map(|c| Some(c.to_digit(16)? as u8)).collect();
        let digits = digits.filter(|digits| digits.len() == algorithm.ring().output_len() * 2).ok_or_else(wrong)?;
        Ok(Digest { algorithm, value: digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect() })
    }
}

impl Digest {
    /// Hexadecimal.
    pub fn hex(&self) -> String {
        self.value.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Of a whole file.
    pub fn of_file(algorithm: Algorithm, file: &mut File, mut go_on: impl FnMut() -> bool) -> io::Result<Digest> {
        file.rewind()?;
        let mut context = ring::digest::Context::new(algorithm.ring());
        let mut buffer = vec![0; READ_BYTES];
        loop {
            if !go_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match file.read(&mut buffer) {
                Ok(0) => return Ok(Digest { algorithm, value: context.finish().as_ref().to_vec() }),
                Ok(length) => context.update(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Digests in a header: `Repr-Digest` and `Content-Digest` (RFC 9530 §2 and §3: `sha-256=:BASE64:`) and `Digest` (RFC 3230
/// §4.3.2: `sha-256=BASE64`). Algorithms that we do not know, and what is malformed, are passed over.
pub fn in_header(text: &str) -> Vec<Digest> {
    let items = text.split(',').take(ITEMS_MAX).filter_map(|item| {
        let (name, value) = item.split_once('=')?;
        let algorithm = Algorithm::of(name)?;
        // A structured field's parameters follow after a semicolon (RFC 9651 §3.1.2).
        let value = value.split(';').next()?.trim();
        let value = value.strip_prefix(':').and_then(|v| v.strip_suffix(':')).unwrap_or(value);
        let value = STANDARD.decode(value).ok()?;
        (value.len() == algorithm.ring().output_len()).then_some(Digest { algorithm, value })
    });
    items.collect()
}

const READ_BYTES: usize = 256 * 1024;
/// Digests of one header that are looked at; there are a dozen registered algorithms.
const ITEMS_MAX: usize = 32;

/// Compares the whole file with the user's digest, or with the strongest that the server offers.
pub(crate) fn verify(
    part: &Part,
    options: &Options,
    offered: &[Digest],
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<(Digest, &'static str)>, Failure> {
    let best = offered.iter().max_by_key(|digest| digest.algorithm).map(|digest| (digest, "says the server"));
    let wanted = [options.digest.as_ref().map(|digest| (digest, "given")), best];
    let mut verified = None;
    for (expected, source_of) in wanted.into_iter().flatten() {
        let algorithm = expected.algorithm;
        let found = Digest::of_file(algorithm, &mut part.file()?, &mut *go_on).map_err(|error| match error.kind() {
            std::io::ErrorKind::Interrupted => Failure::Stopped,
            _ => Failure::of_file(&error, Path::new("the fetched file"), 0),
        })?;
        if found != *expected {
            part.remove();
            let (found, expected) = (found.hex(), expected.hex());
            return Err(Failure::Digest { algorithm: algorithm.name(), found, expected, source_of });
        }
        verified.get_or_insert((found, source_of));
    }
    Ok(verified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_rfcs() {
        // RFC 9530 §B.1: {"hello": "world"} and a line feed.
        let found = in_header("sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:, md5=:AAAA:");
        assert_eq!(found.len(), 1);
        let of = ring::digest::digest(&ring::digest::SHA256, b"{\"hello\": \"world\"}\n");
        assert_eq!(found[0].value, of.as_ref());
        // The same in the older form.
        assert_eq!(in_header("MD5=AAAA, SHA-256=RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg="), found);
        let given: Digest = format!("sha256:{}", found[0].hex()).parse().unwrap();
        assert_eq!(given, found[0]);
    }

    #[test]
    fn malformed_digests_are_refused() {
        for bad in ["", "sha256", "sha256:12", "md5:00", "sha256:zz", &format!("sha256:{}", "é".repeat(64))] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        assert_eq!(in_header("sha-256=:AAAA:, sha-512=::, =, sha-256"), []);
    }

    proptest! {
        #[test]
        fn any_header_is_read(text in "[a-zA-Z0-9=:,; +/é-]{0,200}", tail in any::<String>()) {
            for digest in in_header(&text).iter().chain(&in_header(&format!("sha-256=:{tail}:"))) {
                prop_assert_eq!(digest.value.len(), digest.algorithm.ring().output_len());
            }
            let _ = text.parse::<Digest>();
            let _ = format!("sha256:{tail}").parse::<Digest>();
        }
    }
}
