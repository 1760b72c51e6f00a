//! Networks and ports as files name them to select packets.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use toml::Value;

/// Addresses that begin alike (RFC 4632, RFC 4291 §2.3): `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix {
    /// An address that is one of them.
    pub address: IpAddr,
    /// Bits that all have in common: up to 32, or 128 of IPv6.
    pub bits: u8,
}

impl Prefix {
    /// Reads one; `None`: the text is neither a network nor an address.
    #[must_use]
    pub fn parse(text: &str) -> Option<Prefix> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.trim().parse().ok()?;
        let most = length(address);
        let bits = bits.map_or(Some(most), |bits| bits.trim().parse().ok())?;
        (bits <= most).then_some(Prefix { address, bits })
    }

    /// True if an address is one of them.
    #[inline]
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// True if its address is the first of them: no bit is set behind those in common.
    #[must_use]
    pub fn starts_with_its_address(self) -> bool {
        let address = match self.address {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        address == 0 || address.trailing_zeros() >= u32::from(length(self.address) - self.bits)
    }
}

/// Bits of an address of the same family.
fn length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Reads ports: `443`, `"443"` or `"8000-8100"`. `None`: another value, port 0, or a range that ends before it starts.
#[must_use]
pub fn port_range(value: &Value) -> Option<RangeInclusive<u16>> {
    let range = match value {
        Value::Integer(port) => {
            let port = u16::try_from(*port).ok()?;
            port..=port
        }
        Value::String(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            first.trim().parse().ok()?..=last.trim().parse().ok()?
        }
        _ => return None,
    };
    (*range.start() > 0 && !range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.1/32", "10.0.0.1", "10.0.0.0"),
            ("10.0.0.1", "10.0.0.1", "10.0.0.3"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "2001::", "1.2.3.4"),
            ("2001:db8::7", "2001:db8::7", "2001:db8::6"),
        ] {
            let prefix = Prefix::parse(text).unwrap();
            assert!(prefix.contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(!prefix.contains(outside.parse().unwrap()), "{text} {outside}");
            assert!(prefix.starts_with_its_address(), "{text}");
            assert_eq!(Prefix::parse(&prefix.to_string()), Some(prefix));
        }
        for text in ["10.0.0.1/8", "2001:db8::1/64"] {
            assert!(!Prefix::parse(text).unwrap().starts_with_its_address(), "{text}");
        }
        for text in ["", "10.0.0/8", "10.0.0.0/33", "2001:db8::/129", "10.0.0.0/", "10.0.0.0/-1", "hub"] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
    }

    #[test]
    fn port_ranges() {
        for (value, expected) in [
            (Value::Integer(80), Some(80..=80)),
            ("443".into(), Some(443..=443)),
            ("6000 - 6010".into(), Some(6000..=6010)),
            ("1-65535".into(), Some(1..=65_535)),
            (Value::Integer(0), None),
            (Value::Integer(65_536), None),
            (Value::Integer(-1), None),
            ("9-8".into(), None),
            ("0-8".into(), None),
            ("http".into(), None),
            (Value::Boolean(true), None),
        ] {
            assert_eq!(port_range(&value), expected, "{value}");
        }
    }
}
