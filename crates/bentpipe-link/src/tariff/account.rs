//! Sessions added up: what a subscription includes, and the caps.

use super::{Chargeable, Included, Money, Period, Tariff, Usage};
use bentpipe_net::time::{Duration, Instant};

/// The sessions of one subscriber. Times are since 1970-01-01 00:00 UTC; in virtual time a run begins there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    tariff: Tariff,
    total: Money,
    /// The last day and month with a session, by their numbers, and what was spent in them.
    day: (u64, Money),
    month: (u64, Money),
    /// The last period of [`Included`], and what was used of it.
    used: (u64, Chargeable),
}

/// A session would cost more than may be spent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the cap of {cap} a {period} is reached: {spent} spent, and a session costs {least} or more")]
pub struct CapReached {
    /// Of which period the cap is.
    pub period: Period,
    /// The most that may be spent in it.
    pub cap: Money,
    /// Spent in it so far.
    pub spent: Money,
    /// The least that the session costs.
    pub least: Money,
}

/// Longer than any session.
const FOREVER: Duration = Duration::from_secs(400 * 24 * 3600);
const DAY: u64 = 24 * 3600 * 1_000_000_000;

impl Account {
    /// Nothing spent.
    #[must_use]
    pub fn new(tariff: Tariff) -> Account {
        let used = (0, Chargeable::default());
        Account { tariff, total: Money::ZERO, day: (0, Money::ZERO), month: (0, Money::ZERO), used }
    }

    /// Its tariff.
    #[must_use]
    pub fn tariff(&self) -> &Tariff {
        &self.tariff
    }

    /// Spent in all sessions.
    #[must_use]
    pub fn total(&self) -> Money {
        self.total
    }

    /// Spent by sessions that began in the `period` of `at`; nothing for [`Period::Session`].
    #[must_use]
    pub fn spent(&self, period: Period, at: Instant) -> Money {
        let (number, spent) = match period {
            Period::Session => return Money::ZERO,
            Period::Day => self.day,
            Period::Month => self.month,
        };
        if number == number_of(period, at) { spent } else { Money::ZERO }
    }

    /// The price of a session that began at `began`, as it stands.
    #[must_use]
    pub fn quote(&self, began: Instant, usage: &Usage) -> Money {
        self.tariff.price(usage, self.free(began))
    }

    /// A session is over: adds it, and returns its price.
    pub fn settle(&mut self, began: Instant, usage: &Usage) -> Money {
        let price = self.quote(began, usage);
        self.total += price;
        for (period, spent) in [(Period::Day, &mut self.day), (Period::Month, &mut self.month)] {
            let number = number_of(period, began);
            if number > spent.0 {
                *spent = (number, Money::ZERO);
            }
            if number == spent.0 {
                spent.1 += price;
            }
        }
        if let Some(included) = self.tariff.included {
            let number = number_of(included.every, began);
            if number > self.used.0 {
                self.used = (number, Chargeable::default());
            }
            let charged = self.tariff.chargeable(usage);
            self.used.1.time += charged.time;
            self.used.1.bytes = self.used.1.bytes.saturating_add(charged.bytes);
        }
        price
    }

    /// Whether a session may begin at `at`: the least that it costs fits under every cap.
    pub fn admit(&self, at: Instant) -> Result<(), CapReached> {
        let least = self.quote(at, &Usage { time: Duration::from_nanos(1), ..Usage::default() });
        self.check(at, least)
    }

    /// How long a session that began at `began` and has used `usage` may last in all, by its bytes so far, until a cap
    /// forbids more: the end of the last increment that fits. `None`: no cap ends it.
    #[must_use]
    pub fn longest(&self, began: Instant, usage: &Usage) -> Option<Duration> {
        let fits = |time: Duration| self.check(began, self.quote(began, &Usage { time, ..*usage })).is_ok();
        if fits(FOREVER) {
            return None;
        }
        if !fits(usage.time) {
            return Some(usage.time);
        }
        let (mut least, mut most) = (usage.time.ns, FOREVER.ns);
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            if fits(Duration { ns: middle }) {
                least = middle;
            } else {
                most = middle;
            }
        }
        Some(Duration { ns: least })
    }

    fn check(&self, at: Instant, price: Money) -> Result<(), CapReached> {
        let caps = self.tariff.caps;
        for (period, cap) in [(Period::Session, caps.session), (Period::Day, caps.day), (Period::Month, caps.month)] {
            let spent = self.spent(period, at);
            if let Some(cap) = cap
                && spent + price > cap
            {
                return Err(CapReached { period, cap, spent, least: price });
            }
        }
        Ok(())
    }

    /// What is left of the subscription's part for a session that begins at `began`.
    fn free(&self, began: Instant) -> Chargeable {
        let Some(Included { every, time, bytes }) = self.tariff.included else { return Chargeable::default() };
        let used = match self.used {
            (number, used) if every != Period::Session && number == number_of(every, began) => used,
            _ => Chargeable::default(),
        };
        let time = Duration { ns: time.ns.saturating_sub(used.time.ns) };
        Chargeable { time, bytes: bytes.saturating_sub(used.bytes) }
    }
}

/// The number of the period in which `at` is: days, or months, since January 1970.
fn number_of(period: Period, at: Instant) -> u64 {
    let days = at.ns / DAY;
    match period {
        Period::Session => 0,
        Period::Day => days,
        Period::Month => month(days),
    }
}

/// Months since January 1970 of a day since then, in the Gregorian calendar.
fn month(days: u64) -> u64 {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut days, mut year) = (days, 1970);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year - 1970) * 12 + month
}

#[cfg(test)]
mod tests {
    use super::month;

    #[test]
    fn months_of_the_calendar() {
        // Days since 1970-01-01, from `date -u -d DATE +%s` / 86400.
        for (days, year, of_year) in [
            (0, 1970, 0),
            (30, 1970, 0),
            (31, 1970, 1),
            (11_016, 2000, 1),  // 2000-02-29
            (11_017, 2000, 2),  // 2000-03-01
            (20_780, 2026, 10), // 2026-11-23
            (47_540, 2100, 1),  // 2100-02-28
            (47_541, 2100, 2),  // 2100-03-01: no leap year
        ] {
            assert_eq!(month(days), (year - 1970) * 12 + of_year, "{days}");
        }
    }
}
