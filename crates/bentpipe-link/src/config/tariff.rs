//! Tariffs as TOML.

use crate::tariff::{Caps, Charged, Currency, DataPrice, Included, LongSession, Money, Period, Tariff, TimePrice};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::time::Duration;
use bentpipe_net::units::DataSize;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TariffText {
    currency: Option<Currency>,
    time: Option<TimeText>,
    data: Option<DataText>,
    session: Option<SessionText>,
    included: Option<IncludedText>,
    caps: Option<CapsText>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeText {
    price: Money,
    per: Option<Duration>,
    first: Option<Duration>,
    following: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataText {
    price: Money,
    per: DataSize,
    step: Option<DataSize>,
    minimum: Option<DataSize>,
    long_session: Option<LongSessionText>,
    direction: Option<Charged>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongSessionText {
    after: Duration,
    bytes_per_second: DataSize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SessionText {
    price: Money,
    minimum: Money,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IncludedText {
    every: Period,
    time: Option<Duration>,
    data: Option<DataSize>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CapsText {
    session: Option<Money>,
    day: Option<Money>,
    month: Option<Money>,
}

impl TariffText {
    pub(super) fn resolve(self) -> Result<Tariff, KeyProblem> {
        let currency = self.currency.ok_or_else(|| {
            KeyProblem::new("currency", "is missing; allowed: three capital letters (ISO 4217), such as \"EUR\"")
        })?;
        let session = self.session.unwrap_or_default();
        let caps = self.caps.unwrap_or_default();
        if self.time.is_none() && self.data.is_none() && session.price == Money::ZERO {
            let what =
                "has no price; allowed: time, data or session, such as time = { price = \"1.44\", per = \"1 min\" }";
            return Err(KeyProblem::new("", what));
        }
        let included = self.included.map(|included| included.resolve(self.time.is_some(), self.data.is_some()));
        Ok(Tariff {
            currency,
            included: included.transpose().map_err(|p| p.under("included"))?,
            time: self.time.map(TimeText::resolve).transpose().map_err(|p| p.under("time"))?,
            data: self.data.map(DataText::resolve).transpose().map_err(|p| p.under("data"))?,
            session: session.price,
            session_minimum: session.minimum,
            caps: Caps { session: caps.session, day: caps.day, month: caps.month },
        })
    }
}

impl TimeText {
    fn resolve(self) -> Result<TimePrice, KeyProblem> {
        let per = self.per.unwrap_or(Duration::from_secs(60));
        if per == Duration::ZERO {
            return Err(KeyProblem::new("per", "0 s has no price; allowed: more, such as \"1 min\""));
        }
        // One increment named: all are that long.
        let following = self.following.or(self.first).unwrap_or_default();
        Ok(TimePrice { price: self.price, per, first: self.first.unwrap_or(following), following })
    }
}

impl DataText {
    fn resolve(self) -> Result<DataPrice, KeyProblem> {
        for (key, size) in [("per", Some(self.per)), ("step", self.step)] {
            if size.is_some_and(|size| size.bytes == 0) {
                return Err(KeyProblem::new(key, "0 B has no price; allowed: 1 B or more"));
            }
        }
        let long = self.long_session;
        Ok(DataPrice {
            price: self.price,
            per: self.per.bytes,
            step: self.step.map_or(1, |step| step.bytes),
            minimum: self.minimum.map_or(0, |size| size.bytes),
            long: long.map(|long| LongSession { after: long.after, bytes_per_second: long.bytes_per_second.bytes }),
            direction: self.direction.unwrap_or_default(),
        })
    }
}

impl IncludedText {
    fn resolve(self, time: bool, data: bool) -> Result<Included, KeyProblem> {
        for (key, is_there, has_price) in [("time", self.time.is_some(), time), ("data", self.data.is_some(), data)] {
            if is_there && !has_price {
                return Err(KeyProblem::new(
                    key,
                    format!("costs nothing in this tariff; allowed: with a price of {key}"),
                ));
            }
        }
        if self.time.is_none() && self.data.is_none() {
            return Err(KeyProblem::new("", "includes nothing; allowed: time, data or both"));
        }
        let bytes = self.data.map_or(0, |data| data.bytes);
        Ok(Included { every: self.every, time: self.time.unwrap_or_default(), bytes })
    }
}
