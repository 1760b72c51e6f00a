//! Prices that are published, the rules one by one, and shares.

use super::*;
use crate::config::LinkConfig;
use bentpipe_net::time::Instant;
use proptest::prelude::*;

fn tariff(text: &str) -> Tariff {
    read(text).unwrap_or_else(|problem| panic!("{text}: {}: {}", problem.key, problem.message))
}

fn read(text: &str) -> Result<Tariff, bentpipe_net::problem::KeyProblem> {
    let table = toml::from_str(&format!("rate = '1 Mbit/s'\none_way_delay = '1 ms'\n[tariff]\n{text}")).unwrap();
    Ok(LinkConfig::from_table(table)?.tariff.unwrap())
}

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

fn time(seconds: u64) -> Usage {
    Usage { time: Duration::from_secs(seconds), ..Usage::default() }
}

fn data(forward: u64, back: u64) -> Usage {
    Usage { forward, back, ..Usage::default() }
}

fn price(tariff: &Tariff, usage: Usage) -> String {
    tariff.price(&usage, Chargeable::default()).to_string()
}

const BY_TIME: &str = "currency = 'USD'\ntime = { price = '1.44', per = '1 min', first = '20 s' }\n";

#[test]
fn time_in_increments() {
    let by_time = tariff(BY_TIME);
    for (seconds, expected) in [(0, "0.48"), (1, "0.48"), (20, "0.48"), (21, "0.96"), (40, "0.96"), (3600, "86.40")] {
        assert_eq!(price(&by_time, time(seconds)), expected, "{seconds} s");
    }
    let first = tariff("currency = 'EUR'\ntime = { price = '3', first = '1 min', following = '6 s' }");
    for (seconds, expected) in [(5, "3.00"), (60, "3.00"), (61, "3.30"), (66, "3.30"), (67, "3.60")] {
        assert_eq!(price(&first, time(seconds)), expected, "{seconds} s");
    }
    let exact = tariff("currency = 'EUR'\ntime = { price = '0.07' }");
    assert_eq!(price(&exact, time(1)), "0.001166667", "a part of a billionth counts as one");
    assert_eq!(price(&exact, time(60)), "0.07");
}

#[test]
fn data_in_steps() {
    let direc_pc = tariff("currency = 'EUR'\ndata = { price = '5', per = '10 MB', direction = 'forward' }");
    assert_eq!(price(&direc_pc, data(10_000_000, 700_000)), "5.00");
    assert_eq!(price(&direc_pc, data(1, 700_000)), "0.0000005");
    let steps = tariff("currency = 'EUR'\ndata = { price = '5', per = '10 MB', step = '10 MB', minimum = '1 B' }");
    for (bytes, expected) in [(0, "5.00"), (10_000_000, "5.00"), (10_000_001, "10.00")] {
        assert_eq!(price(&steps, data(0, bytes)), expected, "{bytes} B");
    }
    let certus = tariff(
        "currency = 'USD'\ndata = { price = '1', per = '1 kB', minimum = '5 kB', \
         long_session = { after = '300 s', bytes_per_second = '300 B' } }",
    );
    let used = |seconds, bytes| Usage { back: bytes, ..time(seconds) };
    for (usage, expected) in [
        (used(10, 100), "5.00"),
        (used(300, 6_000), "6.00"),
        (used(301, 6_000), "90.30"),
        (used(301, 100_000), "100.00"),
    ] {
        assert_eq!(price(&certus, usage), expected, "{usage:?}");
    }
}

#[test]
fn sessions_cost_something_by_themselves() {
    let session = tariff("currency = 'EUR'\nsession = { price = '0.10', minimum = '1' }\ntime = { price = '0.60' }");
    assert_eq!(price(&session, time(60)), "1.00");
    assert_eq!(price(&session, time(120)), "1.30");
}

#[test]
fn what_is_included_is_used_up_and_comes_again() {
    let day = |n: u64| Instant::ZERO + Duration::from_secs(n * 24 * 3600);
    let mut account = Account::new(tariff(&format!("{BY_TIME}included = {{ every = 'month', time = '1 min' }}")));
    assert_eq!(account.settle(day(0), &time(21)), Money::ZERO, "40 s of the minute");
    assert_eq!(account.settle(day(1), &time(21)), money("0.48"), "20 s are left");
    assert_eq!(account.settle(day(30), &time(1)), money("0.48"));
    assert_eq!(account.settle(day(31), &time(60)), Money::ZERO, "February");
    assert_eq!(account.total(), money("0.96"));
}

#[test]
fn caps_refuse_and_end_sessions() {
    let day = |n: u64| Instant::ZERO + Duration::from_secs(n * 24 * 3600);
    let caps = "caps = { session = '1.50', day = '2', month = '3' }";
    let mut account = Account::new(tariff(&format!("{BY_TIME}{caps}")));
    assert_eq!(account.longest(day(0), &time(5)), Some(Duration::from_secs(60)), "1.44; the next would be 1.92");
    account.settle(day(0), &time(60));
    assert_eq!(account.longest(day(0), &time(0)), Some(Duration::from_secs(20)), "0.56 of the day is left");
    account.settle(day(0), &time(20));
    let refused = account.admit(day(0)).unwrap_err();
    assert_eq!(refused.to_string(), "the cap of 2.00 a day is reached: 1.92 spent, and a session costs 0.48 or more");
    assert_eq!(account.admit(day(1)), Ok(()));
    account.settle(day(1), &time(40));
    assert_eq!(account.admit(day(2)).unwrap_err().period, Period::Month);
    assert_eq!(account.admit(day(31)), Ok(()));
    assert_eq!(Account::new(tariff(BY_TIME)).longest(day(0), &time(1)), None);
}

#[test]
fn amounts_are_text_and_exact() {
    for (text, nano, shown) in [
        ("1.44", 1_440_000_000, "1.44"),
        ("0", 0, "0.00"),
        ("3", 3_000_000_000, "3.00"),
        ("0.000000001", 1, "0.000000001"),
        ("18446744073.709551615", u64::MAX, "18446744073.709551615"),
    ] {
        let amount = money(text);
        assert_eq!((amount.nano, amount.to_string()), (nano, shown.to_owned()));
        assert_eq!(money(shown), amount);
    }
    for text in ["", ".", "1.", ".5", "-1", "+1", "1,5", "1e3", "1.0000000001", "18446744073.709551616", " 1"] {
        assert!(text.parse::<Money>().is_err(), "{text:?}");
    }
}

#[test]
fn bad_tariffs_say_what_is_allowed() {
    for (text, key, message) in [
        ("time = { price = '1' }", "tariff.currency", "ISO 4217"),
        ("currency = 'Euro'\ntime = { price = '1' }", "tariff.currency", "three capital letters"),
        ("currency = 'EUR'", "tariff", "has no price"),
        ("currency = 'EUR'\ntime = { price = 1.44 }", "tariff.time.price", "as text"),
        ("currency = 'EUR'\ntime = { price = '1,44' }", "tariff.time.price", "no amount"),
        ("currency = 'EUR'\ntime = { price = -1 }", "tariff.time.price", "as text"),
        ("currency = 'EUR'\ntime = { price = 1, per = '0 s' }", "tariff.time.per", "allowed: more"),
        ("currency = 'EUR'\ndata = { price = 1, per = '0 B' }", "tariff.data.per", "1 B or more"),
        ("currency = 'EUR'\ndata = { price = 1, per = '1 B', step = '0 B' }", "tariff.data.step", "1 B or more"),
        ("currency = 'EUR'\ndata = { price = 1 }", "tariff.data", "per"),
        ("currency = 'EUR'\ntime = { price = 1, fist = '1 s' }", "tariff.time.fist", "allowed"),
        (
            "currency = 'EUR'\ntime = { price = 1 }\nincluded = { every = 'week', time = '1 s' }",
            "tariff.included.every",
            "",
        ),
        (
            "currency = 'EUR'\ntime = { price = 1 }\nincluded = { every = 'day', data = '1 B' }",
            "tariff.included.data",
            "",
        ),
        ("currency = 'EUR'\ntime = { price = 1 }\nincluded = { every = 'day' }", "tariff.included", "nothing"),
    ] {
        let problem = read(text).unwrap_err();
        assert_eq!(problem.key, key, "{text}: {}", problem.message);
        assert!(problem.message.contains(message), "{text}: {}", problem.message);
    }
}

#[test]
fn shares_by_largest_remainder() {
    let shared = |nano, weights: &[u64]| shares(Money { nano }, weights).iter().map(|m| m.nano).collect::<Vec<_>>();
    assert_eq!(shared(10, &[1, 1, 1]), [4, 3, 3]);
    assert_eq!(shared(10, &[1, 2, 4]), [1, 3, 6], "1.43, 2.86, 5.71: the second and the third are rounded up");
    assert_eq!(shared(10, &[0, 0]), [5, 5]);
    assert_eq!(shared(7, &[0, 3]), [0, 7]);
    assert_eq!(shared(7, &[]), [0u64; 0]);
}

proptest! {
    #[test]
    fn shares_add_up(nano in any::<u64>(), weights in prop::collection::vec(any::<u64>(), 1..40)) {
        let parts = shares(Money { nano }, &weights);
        prop_assert_eq!(parts.iter().map(|part| u128::from(part.nano)).sum::<u128>(), u128::from(nano));
        let sum: u128 = weights.iter().map(|w| u128::from(*w)).sum();
        for (part, weight) in parts.iter().zip(&weights).filter(|_| sum > 0) {
            let exact = nano as f64 * (*weight as f64 / sum as f64);
            prop_assert!((part.nano as f64 - exact).abs() <= 1.0 + nano as f64 * 1e-12, "{} {}", part.nano, exact);
        }
    }

    #[test]
    fn more_never_costs_less(a in 0u64..1 << 40, b in 0u64..1 << 40, bytes in 0u64..1 << 40) {
        let tariff = tariff("currency = 'USD'\ntime = { price = '1.44', first = '20 s', following = '7 s' }\n\
             data = { price = '0.31', per = '1 MB', step = '10 kB', minimum = '3 kB' }");
        let at = |ns| Usage { time: Duration { ns }, forward: bytes, back: 5 };
        let price = |ns| tariff.price(&at(ns), Chargeable::default());
        prop_assert!(price(a.min(b)) <= price(a.max(b)));
    }
}
