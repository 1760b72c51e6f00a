//! Amounts of money, exact.

use serde::de::{Error, Unexpected, Visitor};
use std::fmt;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

/// An amount of money, in billionths of the currency's unit. Written in files as text, `"1.44"`, so that it stays exact.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Money {
    /// Billionths of the unit.
    pub nano: u64,
}

/// A text that is no amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no amount; allowed: digits, and up to nine behind a point, such as \"1.44\"")]
pub struct MoneyError(String);

const UNIT: u64 = 1_000_000_000;

impl Money {
    /// Nothing.
    pub const ZERO: Money = Money { nano: 0 };

    /// `self` × `count` ÷ `per`, rounded up; the largest amount where that is too large.
    pub(super) fn times(self, count: u64, per: u64) -> Money {
        let nano = (u128::from(self.nano) * u128::from(count)).div_ceil(u128::from(per.max(1)));
        Money { nano: u64::try_from(nano).unwrap_or(u64::MAX) }
    }

    /// The rest of this amount without `other`; nothing where `other` is larger.
    #[must_use]
    pub fn less(self, other: Money) -> Money {
        Money { nano: self.nano.saturating_sub(other.nano) }
    }

    /// In units of the currency, for charts; not exact.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.nano as f64 / UNIT as f64
    }
}

impl Add for Money {
    type Output = Money;
    fn add(self, other: Money) -> Money {
        Money { nano: self.nano.saturating_add(other.nano) }
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Money) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Money {
    fn sum<I: Iterator<Item = Money>>(amounts: I) -> Money {
        amounts.fold(Money::ZERO, Add::add)
    }
}

impl fmt::Display for Money {
    /// All digits that are not zero, and at least two behind the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:09}", self.nano % UNIT);
        let kept = digits.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.nano / UNIT, &digits[..kept])
    }
}

impl fmt::Debug for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Money {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Money, MoneyError> {
        let fail = || MoneyError(text.to_owned());
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 9 {
            return Err(fail());
        }
        let whole: u64 = whole.parse().map_err(|_| fail())?;
        let part: u64 = format!("{part:0<9}").parse().map_err(|_| fail())?;
        let nano = whole.checked_mul(UNIT).and_then(|whole| whole.checked_add(part));
        nano.map(|nano| Money { nano }).ok_or_else(fail)
    }
}

impl serde::Serialize for Money {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Money {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Money, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Money;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount as text, such as \"1.44\"")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Money, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: Error>(self, units: i64) -> Result<Money, E> {
                let nano = u64::try_from(units).ok().and_then(|units| units.checked_mul(UNIT));
                nano.map(|nano| Money { nano }).ok_or_else(|| E::invalid_value(Unexpected::Signed(units), &self))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Money, E> {
                Err(E::invalid_type(Unexpected::Float(number), &self))
            }
        }
        d.deserialize_any(Text)
    }
}

/// A currency by its code (ISO 4217): three capital letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    /// Its code.
    #[must_use]
    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl FromStr for Currency {
    type Err = String;

    fn from_str(text: &str) -> Result<Currency, String> {
        let code: Option<[u8; 3]> = text.as_bytes().try_into().ok();
        code.filter(|code| code.iter().all(u8::is_ascii_uppercase)).map(Currency).ok_or_else(|| {
            format!("{text:?} is no currency; allowed: three capital letters (ISO 4217), such as \"EUR\"")
        })
    }
}

impl serde::Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.code())
    }
}

impl<'de> serde::Deserialize<'de> for Currency {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Currency, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}
