//! Tariffs: the price of a link's use, as data. All arithmetic is in integers and exact to a billionth of the currency.
//!
//! A [`Tariff`] prices one session (a call, or the whole use of a link that is always there): time in increments, bytes in steps,
//! a price for each session. An [`Account`] adds sessions up, with what a subscription includes and what may be spent at
//! most. [`shares`] divides a bill so that the parts add up to it.

mod account;
mod money;

pub use account::{Account, CapReached};
pub use money::{Currency, Money, MoneyError};

use bentpipe_net::time::Duration;

/// Prices of a link's use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tariff {
    /// The currency of every amount.
    pub currency: Currency,
    /// The price of time on air; `None`: time costs nothing.
    pub time: Option<TimePrice>,
    /// The price of data; `None`: data cost nothing.
    pub data: Option<DataPrice>,
    /// The price of each session, whatever it carries.
    pub session: Money,
    /// The least that a session costs.
    pub session_minimum: Money,
    /// The part of each period that costs nothing more.
    pub included: Option<Included>,
    /// The most that may be spent.
    pub caps: Caps,
}

/// The price of time on air.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimePrice {
    /// Price of [`TimePrice::per`].
    pub price: Money,
    /// Above zero.
    pub per: Duration,
    /// The first increment, which every session is charged in full.
    pub first: Duration,
    /// The increments after it; zero: to the nanosecond.
    pub following: Duration,
}

/// The price of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataPrice {
    /// Price of [`DataPrice::per`] bytes.
    pub price: Money,
    /// Above zero.
    pub per: u64,
    /// A session's bytes are rounded up to a multiple of this; at least 1.
    pub step: u64,
    /// The least bytes that a session is charged.
    pub minimum: u64,
    /// Another minimum, for long sessions.
    pub long: Option<LongSession>,
    /// The directions whose bytes are charged.
    pub direction: Charged,
}

/// A minimum of data for sessions that are longer than a time (the fair use rule of Iridium Certus 100).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongSession {
    /// Applies to sessions that are longer.
    pub after: Duration,
    /// Bytes charged for each second of the session, at least; a part of a second counts in proportion.
    pub bytes_per_second: u64,
}

/// Directions of a link whose bytes are charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Charged {
    /// Both.
    #[default]
    Both,
    /// From the hub to the terminals only.
    Forward,
    /// From the terminals to the hub only.
    Return,
}

/// What each period of a subscription includes. A session belongs to the period in which it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Included {
    /// The period.
    pub every: Period,
    /// Time on air, as it is charged: in increments.
    pub time: Duration,
    /// Bytes, as they are charged: in steps.
    pub bytes: u64,
}

/// The most that may be spent. Whoever makes calls keeps these limits; a bill does not change because of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caps {
    /// In one session.
    pub session: Option<Money>,
    /// By sessions that begin on one day, UTC.
    pub day: Option<Money>,
    /// By sessions that begin in one calendar month, UTC.
    pub month: Option<Money>,
}

/// A span for which something is included, or limited. Days and months are those of UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// One session.
    Session,
    /// One day.
    Day,
    /// One calendar month.
    Month,
}

impl std::fmt::Display for Period {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Period::Session => "session",
            Period::Day => "day",
            Period::Month => "month",
        })
    }
}

/// What one session used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Time on air.
    pub time: Duration,
    /// Bytes from the hub, framing not included.
    pub forward: u64,
    /// Bytes to the hub, framing not included.
    pub back: u64,
}

/// The time and the bytes that a session is charged, in whole increments and steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chargeable {
    /// Time; zero where time costs nothing.
    pub time: Duration,
    /// Bytes; zero where data cost nothing.
    pub bytes: u64,
}

impl TimePrice {
    /// `time` in whole increments.
    #[must_use]
    pub fn increments(&self, time: Duration) -> Duration {
        let Duration { ns: beyond } = Duration { ns: time.ns.saturating_sub(self.first.ns) };
        let following = match self.following.ns {
            0 => beyond,
            step => beyond.div_ceil(step).saturating_mul(step),
        };
        Duration { ns: self.first.ns.saturating_add(following) }
    }

    fn price(&self, time: Duration) -> Money {
        self.price.times(time.ns, self.per.ns)
    }
}

impl DataPrice {
    /// The bytes of a session in whole steps.
    #[must_use]
    pub fn steps(&self, usage: &Usage) -> u64 {
        let bytes = match self.direction {
            Charged::Both => usage.forward.saturating_add(usage.back),
            Charged::Forward => usage.forward,
            Charged::Return => usage.back,
        };
        let least = match self.long {
            Some(long) if usage.time > long.after => {
                let bytes = u128::from(usage.time.ns) * u128::from(long.bytes_per_second);
                u64::try_from(bytes.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
            }
            _ => self.minimum,
        };
        bytes.max(least).div_ceil(self.step).saturating_mul(self.step)
    }

    fn price(&self, bytes: u64) -> Money {
        self.price.times(bytes, self.per)
    }
}

impl Tariff {
    /// The time and the bytes that a session is charged.
    #[must_use]
    pub fn chargeable(&self, usage: &Usage) -> Chargeable {
        Chargeable {
            time: self.time.map_or(Duration::ZERO, |price| price.increments(usage.time)),
            bytes: self.data.map_or(0, |price| price.steps(usage)),
        }
    }

    /// The price of a session of which `free` is included in a subscription. A part of a billionth of the currency counts as
    /// one.
    #[must_use]
    pub fn price(&self, usage: &Usage, free: Chargeable) -> Money {
        let charged = self.chargeable(usage);
        let time = Duration { ns: charged.time.ns.saturating_sub(free.time.ns) };
        let bytes = charged.bytes.saturating_sub(free.bytes);
        let time = self.time.map_or(Money::ZERO, |price| price.price(time));
        let data = self.data.map_or(Money::ZERO, |price| price.price(bytes));
        (self.session + time + data).max(self.session_minimum)
    }
}

/// Divides `total` in proportion to `weights`, to the billionth, by largest remainder: the parts always add up to `total`.
/// Equal remainders: the earlier part gets more. Where every weight is zero, the parts are equal. No weights, no parts.
#[must_use]
pub fn shares(total: Money, weights: &[u64]) -> Vec<Money> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let weight = |weight: u64| if sum == 0 { 1 } else { u128::from(weight) };
    let sum = if sum == 0 { weights.len() as u128 } else { sum };
    let parts = weights.iter().enumerate().map(|(index, each)| {
        let product = u128::from(total.nano) * weight(*each);
        (index, product / sum, product % sum)
    });
    let mut parts: Vec<(usize, u128, u128)> = parts.collect();
    let given: u128 = parts.iter().map(|(_, part, _)| part).sum();
    // Fewer than there are parts.
    let left = (u128::from(total.nano) - given) as usize;
    parts.sort_by_key(|(index, _, remainder)| (std::cmp::Reverse(*remainder), *index));
    parts.iter_mut().take(left).for_each(|(_, part, _)| *part += 1);
    parts.sort_by_key(|(index, ..)| *index);
    parts.into_iter().map(|(_, part, _)| Money { nano: u64::try_from(part).unwrap_or(u64::MAX) }).collect()
}

#[cfg(test)]
mod tests;
