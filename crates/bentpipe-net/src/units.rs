//! Quantities with types. In files each is a string with its unit ("2 Mbit/s", "64 KiB", "250 ms");
//! a bare number is refused, because nobody can tell what it meant.

use crate::time::Duration;
use std::fmt;
use std::str::FromStr;

/// Bits per second on the wire, framing included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate {
    /// Bits per second.
    pub bps: u64,
}

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DataSize {
    /// Bytes.
    pub bytes: u64,
}

/// Bit errors per bit sent, 0 to 0.5.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct BitErrorRatio(f64);

/// A share of packets, 0 % to 100 %; written `"1 %"`.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Percent(f64);

/// Why a text is not a quantity: what was found and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found} is not {what}; allowed: {allowed}")]
pub struct UnitError {
    /// The offending text, quoted.
    pub found: String,
    /// The quantity expected, with its article ("a rate").
    pub what: &'static str,
    /// The forms allowed.
    pub allowed: &'static str,
}

impl BitRate {
    /// From bits per second.
    #[must_use]
    pub const fn from_bps(bps: u64) -> Self {
        BitRate { bps }
    }
    /// The time that `bits` take at this rate, rounded up to a nanosecond.
    #[must_use]
    pub fn time_for_bits(self, bits: u64) -> Duration {
        let ns = (u128::from(bits) * 1_000_000_000).div_ceil(u128::from(self.bps.max(1)));
        Duration { ns: u64::try_from(ns).unwrap_or(u64::MAX) }
    }
    /// Bytes that fit into `span` at this rate, rounded up.
    #[must_use]
    pub fn bytes_in(self, span: Duration) -> u64 {
        let bytes = (u128::from(self.bps) * u128::from(span.ns)).div_ceil(8_000_000_000);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl DataSize {
    /// From bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        DataSize { bytes }
    }
}

impl BitErrorRatio {
    /// No errors at all.
    pub const ZERO: BitErrorRatio = BitErrorRatio(0.0);

    /// A ratio from 0 to 0.5 (at one half a channel carries nothing any more).
    pub fn new(ratio: f64) -> Result<Self, UnitError> {
        if (0.0..=0.5).contains(&ratio) {
            Ok(BitErrorRatio(ratio))
        } else {
            Err(UnitError {
                found: ratio.to_string(),
                what: "a bit error ratio",
                allowed: "a number from 0 to 0.5, such as 1e-6",
            })
        }
    }
    /// The ratio as a number.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.0
    }
    /// The chance that at least one of `bits` is wrong: 1 − (1 − p)^bits.
    #[must_use]
    pub fn packet_error_ratio(self, bits: u64) -> f64 {
        -f64::exp_m1(bits as f64 * f64::ln_1p(-self.0))
    }
}

impl Percent {
    /// A percentage from 0 to 100.
    pub fn new(percent: f64) -> Result<Self, UnitError> {
        if (0.0..=100.0).contains(&percent) {
            Ok(Percent(percent))
        } else {
            Err(UnitError { found: percent.to_string(), what: "a percentage", allowed: PERCENT_ALLOWED })
        }
    }
    /// The share as a fraction from 0 to 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        self.0 / 100.0
    }
}

const RATE_UNITS: &[(&str, f64)] = &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)];
const RATE_ALLOWED: &str = "a number and bit/s, kbit/s, Mbit/s or Gbit/s, such as \"2 Mbit/s\"";
const SIZE_UNITS: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1024.0),
    ("KiB", 1024.0),
    ("MB", 1e6),
    ("MiB", 1048576.0),
    ("GB", 1e9),
    ("GiB", 1073741824.0),
];
const SIZE_ALLOWED: &str = "a number and B, kB (1000), KiB (1024), MB, MiB, GB or GiB, such as \"64 KiB\"";
const TIME_UNITS: &[(&str, f64)] =
    &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9), ("d", 86400e9)];
const TIME_ALLOWED: &str = "a number and ns, us, ms, s, min, h or d, such as \"250 ms\"";
const PERCENT_ALLOWED: &str = "a number from 0 to 100 and %, such as \"1 %\", or 0";

/// Splits `text` into number and unit and scales it to a whole base unit.
fn parse(text: &str, units: &[(&str, f64)], what: &'static str, allowed: &'static str) -> Result<u64, UnitError> {
    let fail = || UnitError { found: format!("\"{text}\""), what, allowed };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || ".,_+-eE".contains(c))).ok_or_else(fail)?;
    // "5e3 B" ends its number at the space; "64 B" must not lose a leading exponent letter.
    let (number, unit) = trimmed.split_at(split);
    // A comma separates thousands: "1,536 kbit/s". In "1,5 s" it is somebody's decimal point, and read as 15 s.
    let mut groups = number.split('.').next().unwrap_or_default().split(',').map(str::trim);
    groups.next();
    if groups.any(|group| group.len() != 3) || number.rsplit_once('.').is_some_and(|(_, tail)| tail.contains(',')) {
        return Err(fail());
    }
    let number = number.replace([',', '_'], "");
    let value: f64 = number.trim().parse().map_err(|_| fail())?;
    let scale = units.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(fail)?.1;
    let base = value * scale;
    if !base.is_finite() || base < 0.0 || base >= u64::MAX as f64 {
        return Err(fail());
    }
    Ok(base.round() as u64)
}

/// Writes the largest unit in which the value is short and exact.
fn write(f: &mut fmt::Formatter<'_>, base: u64, units: &[(&str, f64)]) -> fmt::Result {
    for (name, scale) in units.iter().rev() {
        let value = base as f64 / scale;
        let text = format!("{value}");
        if value >= 1.0 && text.len() <= 6 {
            return write!(f, "{text} {name}");
        }
    }
    write!(f, "{base} {}", units[0].0)
}

impl FromStr for BitRate {
    type Err = UnitError;
    fn from_str(s: &str) -> Result<Self, UnitError> {
        parse(s, RATE_UNITS, "a rate", RATE_ALLOWED).map(|bps| BitRate { bps })
    }
}
impl FromStr for DataSize {
    type Err = UnitError;
    fn from_str(s: &str) -> Result<Self, UnitError> {
        parse(s, SIZE_UNITS, "a size", SIZE_ALLOWED).map(|bytes| DataSize { bytes })
    }
}
impl FromStr for Duration {
    type Err = UnitError;
    fn from_str(s: &str) -> Result<Self, UnitError> {
        parse(s, TIME_UNITS, "a time", TIME_ALLOWED).map(|ns| Duration { ns })
    }
}
impl FromStr for Percent {
    type Err = UnitError;
    fn from_str(s: &str) -> Result<Self, UnitError> {
        let fail = || UnitError { found: format!("\"{s}\""), what: "a percentage", allowed: PERCENT_ALLOWED };
        // Nothing is nothing in any unit; every other number without one could be a share or a percentage.
        if s.trim() == "0" {
            return Ok(Percent(0.0));
        }
        let number = s.trim().strip_suffix('%').ok_or_else(fail)?;
        Percent::new(number.trim().parse().map_err(|_| fail())?).map_err(|_| fail())
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.bps, RATE_UNITS)
    }
}
impl fmt::Display for DataSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: &[(&str, f64)] = &[("B", 1.0), ("KiB", 1024.0), ("MiB", 1048576.0), ("GiB", 1073741824.0)];
        if self.bytes.is_multiple_of(1024) && self.bytes > 0 {
            return write(f, self.bytes, SHOWN);
        }
        write(f, self.bytes, &[("B", 1.0)])
    }
}
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
        if self.ns == 0 {
            return f.write_str("0 s");
        }
        write(f, self.ns, SHOWN)
    }
}
impl fmt::Display for BitErrorRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 { f.write_str("0") } else { write!(f, "{:e}", self.0) }
    }
}
impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

macro_rules! text_serde {
    ($($type:ty, $expected:expr $(, $zero:expr)?;)*) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        text.parse().map_err(E::custom)
                    }
                    $(
                        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
                            let refused = || E::invalid_type(serde::de::Unexpected::Signed(number), &self);
                            if number == 0 { Ok($zero) } else { Err(refused()) }
                        }
                        fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Self::Value, E> {
                            let refused = || E::invalid_type(serde::de::Unexpected::Float(number), &self);
                            if number == 0.0 { Ok($zero) } else { Err(refused()) }
                        }
                    )?
                }
                d.deserialize_any(Text)
            }
        }
    )*};
}
text_serde! {
    BitRate, RATE_ALLOWED;
    DataSize, SIZE_ALLOWED;
    Duration, TIME_ALLOWED;
    Percent, PERCENT_ALLOWED, Percent(0.0);
}

impl serde::Serialize for BitErrorRatio {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.0)
    }
}
impl<'de> serde::Deserialize<'de> for BitErrorRatio {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let ratio = f64::deserialize(d)?;
        BitErrorRatio::new(ratio).map_err(D::Error::custom)
    }
}

macro_rules! debug_as_display {
    ($($type:ty),*) => {$(
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}
debug_as_display!(BitRate, DataSize, BitErrorRatio, Percent);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_units() {
        assert_eq!("1.536 Mbit/s".parse::<BitRate>().unwrap().bps, 1_536_000);
        assert_eq!("2400 bit/s".parse::<BitRate>().unwrap().to_string(), "2.4 kbit/s");
        assert_eq!("64 KiB".parse::<DataSize>().unwrap().bytes, 65_536);
        assert_eq!("524288 B".parse::<DataSize>().unwrap().to_string(), "512 KiB");
        assert_eq!("65535 B".parse::<DataSize>().unwrap().to_string(), "65535 B");
        assert_eq!("8 KB".parse::<DataSize>().unwrap().bytes, 8192);
        assert_eq!("250ms".parse::<Duration>().unwrap().ns, 250_000_000);
        assert_eq!("0.5 s".parse::<Duration>().unwrap().to_string(), "500 ms");
        assert_eq!("3.386 s".parse::<Duration>().unwrap().to_string(), "3.386 s");
        assert_eq!("1,536 kbit/s".parse::<BitRate>().unwrap().bps, 1_536_000);
        assert_eq!("1 %".parse::<Percent>().unwrap().fraction(), 0.01);
        assert_eq!("0".parse::<Percent>().unwrap().fraction(), 0.0);
    }

    #[test]
    fn no_loss_needs_no_unit() {
        #[derive(serde::Deserialize)]
        struct Keys {
            loss: Percent,
        }
        let read = |text: &str| toml::from_str::<Keys>(text).map(|keys| keys.loss.fraction());
        for zero in ["loss = 0", "loss = 0.0", "loss = '0'", "loss = '0 %'"] {
            assert_eq!(read(zero), Ok(0.0), "{zero}");
        }
        for bad in ["loss = 1", "loss = 0.01", "loss = '1'", "loss = true"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_quantity() {
        for bad in
            ["", "4", "4 Mb", "4 Mbits", "-1 bit/s", "fast", "1e400 bit/s", "1 bit/s/s", "1,5 bit/s", "1.5,000 bit/s"]
        {
            let error = bad.parse::<BitRate>().unwrap_err().to_string();
            assert!(error.contains("is not a rate; allowed"), "{bad}: {error}");
        }
        assert!("101 %".parse::<Percent>().is_err());
        assert!(BitErrorRatio::new(0.6).is_err());
        assert!(BitErrorRatio::new(f64::NAN).is_err());
    }

    #[test]
    fn packet_error_ratio_is_exact_for_small_ratios() {
        let ratio = BitErrorRatio::new(1e-9).unwrap();
        assert!((ratio.packet_error_ratio(12_000) - 1.2e-5).abs() < 1e-10);
        assert_eq!(BitErrorRatio::ZERO.packet_error_ratio(u64::MAX), 0.0);
    }

    #[test]
    fn a_time_for_bits_is_never_short() {
        assert_eq!(BitRate::from_bps(3).time_for_bits(1).ns, 333_333_334);
        assert_eq!(BitRate::from_bps(64_000).time_for_bits(12_032).ns, 188_000_000);
    }
}
