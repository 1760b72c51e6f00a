//! Bit errors on a live link: as many packets are lost as their length and the ratio say.

use crate::place::{Place, users};
use crate::recorded::{count, measured, run};

const PINGS: u64 = 1_500;
/// 20 of IP, 8 of ICMP, and the data.
const PACKET_BYTES: u64 = 20 + 8 + 1_000;
/// One flag, address and control, protocol, check sequence (RFC 1662 §3.1).
const PPP_BYTES: u64 = 7;
/// Of a 99 % interval, half is outside on each side. The seed is fixed, so the verdict is always the same.
const TAIL: f64 = 0.005;

#[test]
fn losses_follow_the_ratio_and_the_length() {
    let ratios = [("light", 1e-5_f64), ("heavy", 1e-4)];
    let mut scenario = "title = 'noise'\nseed = 11\n".to_owned();
    for (name, ratio) in ratios {
        scenario += &format!(
            "[links.{name}]\nkind = 'link.toml'\nbetween = ['hub-{name}', 'pc-{name}']\nnoise = {ratio:e}\n\
             [[workloads]]\nname = '{name}'\napp = 'ping'\nclient = 'pc-{name}'\nserver = 'hub-{name}'\n\
             count = {PINGS}\ninterval = '2 ms'\nbytes = '1000 B'\ntimeout = '1 s'\n"
        );
    }
    for user in users() {
        let place = Place::new(user);
        // The queue has room for every request, however late a busy machine empties it.
        let link = "rate = '10 Mbit/s'\none_way_delay = '20 ms'\nframing = 'ppp'\nqueue = { bytes = '4 MB' }\n";
        place.write("link.toml", link);
        // Late packets are damaged as often as punctual ones, so validity does not matter here.
        let recorded = run(&place, &scenario, &[]);
        for (name, ratio) in ratios {
            let bits = (PACKET_BYTES + PPP_BYTES) * 8;
            // A packet survives when each of its bits does.
            let packet_error_ratio = 1.0 - (1.0 - ratio).powf(bits as f64);
            let counters = recorded.counters(0, name);
            for (direction, counters) in ["forward", "return"].iter().zip(&counters) {
                let (sent, damaged) = (count(counters, "sent_packets"), count(counters, "damaged_packets"));
                let what = format!("{user:?}, {name} {direction}: {damaged} of {sent} damaged");
                assert_eq!(count(counters, "link_bytes"), sent * bits / 8, "{what}");
                assert_eq!(count(counters, "delivered_packets"), sent - damaged, "{what}");
                assert_eq!(count(counters, "delivered_damaged_packets"), 0, "{what}");
                expect_binomial(damaged, sent, packet_error_ratio, &what);
            }
            // Requests go over the return link; what arrives of them is answered over the forward link.
            assert_eq!(count(counters[1], "sent_packets"), PINGS, "{name}");
            assert_eq!(count(counters[0], "sent_packets"), count(counters[1], "delivered_packets"), "{name}");
            let ping = recorded.workload(0, name);
            let received = measured(ping, "received") as u64;
            assert_eq!(received, count(counters[0], "delivered_packets"), "{name}");
            assert!((measured(ping, "loss") - (1.0 - received as f64 / PINGS as f64)).abs() < 1e-12, "{name}");
            let both_directions = 1.0 - (1.0 - packet_error_ratio).powi(2);
            expect_binomial(PINGS - received, PINGS, both_directions, &format!("{user:?}, {name}: lost both ways"));
        }
    }
}

/// Fails outside the 99 % interval.
#[track_caller]
fn expect_binomial(found: u64, tries: u64, probability: f64, what: &str) {
    let at_most = cumulative(found, tries, probability);
    let at_least = 1.0 - if found == 0 { 0.0 } else { cumulative(found - 1, tries, probability) };
    eprintln!("{what}: {found} of {tries}, expected {:.1}", tries as f64 * probability);
    assert!(at_most > TAIL && at_least > TAIL, "{what}: {found} of {tries} at {probability}");
}

/// The probability of at most `found`.
fn cumulative(found: u64, tries: u64, probability: f64) -> f64 {
    let ln_choose = |k: u64| (0..k).map(|i| ((tries - i) as f64).ln() - ((i + 1) as f64).ln()).sum::<f64>();
    let term = |k: u64| ln_choose(k) + k as f64 * probability.ln() + (tries - k) as f64 * (1.0 - probability).ln();
    (0..=found).map(|k| term(k).exp()).sum()
}

#[test]
fn cumulative_is_right_on_a_small_table() {
    for (found, expected) in [(0, 0.0625), (1, 0.3125), (2, 0.6875), (3, 0.9375), (4, 1.0)] {
        assert!((cumulative(found, 4, 0.5) - expected).abs() < 1e-12);
    }
}
