//! Every link that is shipped loads, says what it is, and says where each of its values comes from.

use crate::driver::{HUB, TERMINAL, burst, ms, run, s, times};
use bentpipe_link::catalogue::{LinkFile, named, names};
use bentpipe_link::link::Link;
use bentpipe_link::tariff::Usage;
use bentpipe_net::packet::Dummy;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::{Duration, Instant};
use std::collections::BTreeSet;
use toml::{Table, Value};

fn all() -> Vec<LinkFile> {
    names().map(|name| named(name).unwrap().unwrap_or_else(|problem| panic!("{problem}"))).collect()
}

fn table(file: &LinkFile) -> Table {
    toml::from_str(&file.text).unwrap()
}

#[test]
fn every_link_loads_and_says_what_it_is() {
    assert!(names().count() >= 18);
    for file in all() {
        let config = file.config().unwrap();
        assert!(config.title.len() > 5, "{} has no title", file.name);
        assert!(config.summary.len() > 40 && config.summary.ends_with('.'), "{}: {}", file.name, config.summary);
        assert!((296..=1500).contains(&config.mtu), "{}: MTU {}", file.name, config.mtu);
    }
}

#[test]
fn every_value_has_its_source_or_is_said_to_be_an_assumption() {
    for file in all() {
        for value in file.provenance() {
            assert!(!value.source.is_empty(), "{}: {} = {} has no source", file.name, value.key, value.value);
        }
    }
}

#[test]
fn sources_and_assumptions_name_only_keys_of_the_file() {
    for file in all() {
        let table = table(&file);
        let mut seen = BTreeSet::new();
        for list in ["sources", "assumptions"] {
            for (key, text) in table.get(list).and_then(Value::as_table).into_iter().flatten() {
                let there = key.split('.').try_fold(&Value::Table(table.clone()), |at, part| at.get(part)).is_some();
                assert!(there, "{}: [{list}] names {key}, which the file does not set", file.name);
                assert!(seen.insert(key.clone()), "{}: {key} is both sourced and assumed", file.name);
                assert!(text.as_str().is_some_and(|text| text.len() > 5), "{}: {key} needs a sentence", file.name);
            }
        }
    }
}

#[test]
fn the_published_numbers_are_in_the_files() {
    let config = |name: &str| named(name).unwrap().unwrap().config().unwrap();
    // (link, forward bit/s, return bit/s, round trip in ms)
    for (name, forward, back, round_trip) in [
        ("acts-t1", 1_536_000, 1_536_000, 500),    // KRUSE-P1, P2
        ("acts-384k", 384_000, 384_000, 500),      // KRUSE-P1
        ("acts-64k", 64_000, 64_000, 500),         // KRUSE-P1
        ("acts-isdn-bri", 128_000, 128_000, 500),  // NTIA-4.P1
        ("acts-frame-relay", 64_000, 64_000, 600), // NTIA-5.5, each of 24 channels
        ("inmarsat-b", 64_000, 64_000, 884),       // CG-T1
        ("inmarsat-mini-m", 2_400, 2_400, 884),    // CG-P
        ("italsat-2m", 2_000_000, 2_000_000, 520), // CNIT-P1
        ("isdn-512k", 512_000, 512_000, 30),       // CNIT-P1
        ("iperspace", 4_000_000, 128_000, 385),    // HB-P1, HB-2
        ("geo-two-way", 2_000_000, 512_000, 480),  // HB-1, HB-18
        ("direcpc", 400_000, 28_800, 340),         // HB-18
        ("iridium", 2_400, 2_400, 1_800),          // HB-18
    ] {
        let config = config(name);
        let rates = (config.forward.rate.highest().bps, config.back.rate.highest().bps);
        assert_eq!(rates, (forward, back), "{name}");
        assert_eq!(config.round_trip().ns, round_trip * 1_000_000, "{name}");
    }
}

/// The time at which a packet of `bytes` that enters at `port` at zero is out again at the other end.
fn one_way(link: &mut Link<Dummy>, up: bool, at: Instant, bytes: u32) -> Instant {
    let (from, to) = if up { (TERMINAL, HUB) } else { (HUB, TERMINAL) };
    let arrivals = run(link, &burst(at, from, 0, 1, bytes), at + bentpipe_net::time::Duration::from_secs(60));
    times(&arrivals, to)[&0]
}

#[test]
fn the_frame_relay_bundle_has_the_round_trip_that_ntia_measured() {
    // NTIA-5.5: 0.6 s expected, 1504 B on one 64 kbit/s channel 0.188 s, "the rest a few ms": 0.8 s.
    let mut link = Link::new(&named("acts-frame-relay").unwrap().unwrap().config().unwrap(), 1, Seed(1));
    let there = one_way(&mut link, false, ms(0), 1452);
    assert_eq!(there, ms(188 + 300));
    // The acknowledgement: 52 B + 4 + one unit's 8 = 64 B, 8 ms.
    let back = one_way(&mut link, true, there, 52);
    assert_eq!(back, ms(488 + 308));
}

#[test]
fn a_ping_over_iperspace_takes_a_little_less_than_400_ms() {
    let mut link = Link::new(&named("iperspace").unwrap().unwrap().config().unwrap(), 1, Seed(1));
    // 84 B as ping sends them: up 91 B at 128 kbit/s, down 102 B at 4 Mbit/s.
    let request = one_way(&mut link, true, ms(0), 84);
    assert_eq!(request.ns, 30_000_000 + 5_687_500);
    let reply = one_way(&mut link, false, request, 84);
    assert_eq!(reply.ns - request.ns, 355_000_000 + 204_000);
    assert!((380..400).contains(&(reply.ns / 1_000_000)), "HB-2: {reply:?}");
}

#[test]
fn calls_take_as_long_to_set_up_as_published() {
    for (name, ms) in [
        ("inmarsat-b", 17_000),      // CG-T1
        ("inmarsat-mini-m", 50_730), // CG-T2, the sum of its parts
        ("acts-isdn-bri", 5_000),    // NTIA-5.4
    ] {
        let circuit = named(name).unwrap().unwrap().config().unwrap().circuit.unwrap();
        assert_eq!(circuit.stages.iter().map(|stage| stage.time.ns).sum::<u64>(), ms * 1_000_000, "{name}");
    }
    // Charged when the modems begin to talk: 10.28 + 22.64 s before the first packet leaves.
    let mut link = Link::new(&named("inmarsat-mini-m").unwrap().unwrap().config().unwrap(), 1, Seed(1));
    run(&mut link, &burst(ms(0), TERMINAL, 0, 1, 100), s(51));
    let counters = link.circuit().unwrap().counters(s(51));
    assert_eq!(counters.on_air.ns, 51_000_000_000 - 17_810_000_000);
}

#[test]
fn the_published_prices_are_in_the_files() {
    let price = |name: &str, usage: Usage| {
        let config = named(name).unwrap().unwrap().config().unwrap();
        let tariff = config.tariff.unwrap();
        format!("{} {}", tariff.price(&usage, Default::default()), tariff.currency)
    };
    let time = |seconds| Usage { time: Duration::from_secs(seconds), ..Usage::default() };
    assert_eq!(price("iridium", time(20)), "0.48 USD");
    assert_eq!(price("iridium", time(21)), "0.96 USD");
    assert_eq!(price("direcpc", Usage { forward: 10_000_000, back: 90_000, ..Usage::default() }), "5.00 EUR"); // HB-18
    assert_eq!(price("iridium-certus-100", Usage { back: 100, ..time(10) }), "0.05 USD", "5 kB at least");
    assert_eq!(price("iridium-certus-100", Usage { back: 100, ..time(301) }), "0.903 USD", "300 B a second at least");
}
