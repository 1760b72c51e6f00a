//! Differentiated services code points.

use serde::de::{Error, Unexpected};
use std::fmt;
use std::str::FromStr;

/// A differentiated services code point (RFC 2474 §3), 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Dscp(u8);

/// A value that is no code point.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found} is no DSCP; allowed: 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA or LE")]
pub struct DscpError {
    /// The value as it was written.
    pub found: String,
}

impl Dscp {
    /// Expedited forwarding (RFC 3246 §4).
    pub const EF: Dscp = Dscp(46);

    /// The code point of this number.
    pub fn new(number: u64) -> Result<Dscp, DscpError> {
        match u8::try_from(number) {
            Ok(point) if point < 64 => Ok(Dscp(point)),
            _ => Err(DscpError { found: number.to_string() }),
        }
    }

    /// Its number, 0 to 63.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its place in the octet that it shares with ECN, whose bits are zero.
    #[must_use]
    pub const fn traffic_class(self) -> u8 {
        self.0 << 2
    }

    /// The code point in an octet of an IP header.
    #[must_use]
    pub const fn of_traffic_class(octet: u8) -> Dscp {
        Dscp(octet >> 2)
    }
}

/// By name: CS0 to CS7 (RFC 2474 §4.2.2), AF11 to AF43 (RFC 2597 §6), EF (RFC 3246 §4), VA (RFC 5865 §6), LE (RFC 8622 §5).
impl FromStr for Dscp {
    type Err = DscpError;
    fn from_str(name: &str) -> Result<Dscp, DscpError> {
        match name.as_bytes() {
            b"EF" => Ok(Dscp::EF),
            b"VA" => Ok(Dscp(44)),
            b"LE" => Ok(Dscp(1)),
            [b'C', b'S', class @ b'0'..=b'7'] => Ok(Dscp((class - b'0') * 8)),
            [b'A', b'F', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => Ok(Dscp((class - b'0') * 8 + (drop - b'0') * 2)),
            _ => Err(DscpError { found: format!("{name:?}") }),
        }
    }
}

/// By number or by name.
impl<'de> serde::Deserialize<'de> for Dscp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Dscp, D::Error> {
        struct Value;
        impl serde::de::Visitor<'_> for Value {
            type Value = Dscp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a DSCP by number or name, such as 46 or \"EF\"")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Dscp, E> {
                let number = u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))?;
                Dscp::new(number).map_err(E::custom)
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Dscp, E> {
                Dscp::new(number).map_err(E::custom)
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Dscp, E> {
                name.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_numbers_of_their_documents() {
        for (name, number) in
            [("CS0", 0), ("LE", 1), ("CS1", 8), ("AF11", 10), ("AF43", 38), ("VA", 44), ("EF", 46), ("CS7", 56)]
        {
            assert_eq!(name.parse::<Dscp>().map(Dscp::number), Ok(number), "{name}");
        }
        assert_eq!(Dscp::EF.traffic_class(), 0xb8);
        assert_eq!(Dscp::of_traffic_class(0xba), Dscp::EF);
        let allowed = "is no DSCP; allowed: 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA or LE";
        assert_eq!(Dscp::new(64).unwrap_err().to_string(), format!("64 {allowed}"));
        assert_eq!("AF44".parse::<Dscp>().unwrap_err().to_string(), format!("\"AF44\" {allowed}"));
    }
}
