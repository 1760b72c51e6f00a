//! Bit errors and losses through whole links, against what probability says.

use crate::driver::{Arrival, HUB, Offer, TERMINAL, interval, link_with, ms, run, s, times};
use bentpipe_link::link::Link;
use bentpipe_link::medium::MediumCounters;
use bentpipe_link::node::{Node, Port};
use bentpipe_link::noise::{THUNDERSTORM, WANDER, WANDER_DOWNLINK};
use bentpipe_net::packet::Dummy;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::Duration;
use bentpipe_net::time::Instant;
use bentpipe_net::units::BitErrorRatio;
use std::collections::BTreeSet;

const FAST: &str = "rate = '100 Mbit/s'\none_way_delay = '1 ms'\n";

/// `count` packets of 1000 B from the hub, one each 10 ms.
fn steady(count: u64) -> Vec<Offer> {
    (0..count).map(|id| Offer { at: ms(id * 10), port: HUB, id, bytes: 1000 }).collect()
}

fn forward(link: &Link<Dummy>) -> MediumCounters {
    link.directions()[0].receiver_counters().next().unwrap()
}

fn packet_error_ratio(ratio: f64, bits: u64) -> f64 {
    BitErrorRatio::new(ratio).unwrap().packet_error_ratio(bits)
}

/// Asserts that `found` of `trials` is what probability `p` makes; three events of grace where events are rare.
fn assert_binomial(found: u64, trials: u64, p: f64, what: &str) {
    let expected = trials as f64 * p;
    let off = (found as f64 - expected).abs();
    assert!(off <= interval(trials, p) + 3.0, "{what}: {found} of {trials}, expected {expected:.1}");
}

#[test]
fn packet_errors_follow_the_framed_length() {
    let packets = 5000;
    for (framing, bits) in [("none", 8000), ("ppp", 1007 * 8), ("ethernet", 1038 * 8), ("frame-relay", 1007 * 8)] {
        for ratio in [1e-6, 1e-5, 1e-4] {
            let mut link = link_with(&format!("{FAST}framing = '{framing}'\nnoise = {ratio:e}\n"), 1, 7);
            let arrivals = run(&mut link, &steady(packets), s(100));
            let counters = forward(&link);
            let wrong = counters.damaged_packets + counters.delivered_damaged_packets;
            assert_binomial(wrong, packets, packet_error_ratio(ratio, bits), &format!("{framing} at {ratio:e}"));
            assert_binomial(counters.bit_errors, packets * bits, ratio, &format!("bits, {framing} at {ratio:e}"));
            // Only a framing without a check delivers what is damaged.
            let delivered = if framing == "none" { packets } else { packets - wrong };
            assert_eq!(arrivals.len() as u64, delivered, "{framing}");
            assert_eq!(counters.damaged_packets == 0, framing == "none", "{framing}");
        }
    }
}

#[test]
fn without_a_check_the_bits_that_arrive_wrong_are_those_counted() {
    let mut link = link_with(&format!("{FAST}noise = 1e-4\n"), 1, 3);
    let mut inverted = 0;
    for offer in steady(500) {
        link.receive(offer.at, HUB, offer.packet());
        while let Some(due) = Some(link.next_wake()).filter(|due| *due != Instant::FAR) {
            link.wake(due);
            while let Some((_, packet)) = link.poll_transmit(due) {
                let bits = &packet.inverted;
                assert!(bits.iter().all(|bit| *bit < 8000) && bits.windows(2).all(|pair| pair[0] < pair[1]));
                inverted += bits.len() as u64;
            }
        }
    }
    assert_eq!(forward(&link).bit_errors, inverted);
    assert_binomial(inverted, 500 * 8000, 1e-4, "bits");
}

#[test]
fn bursts_strike_when_they_should() {
    // NTIA Table 3.3: 1e-6 for 10 s, 1e-3 for 5 s, again and again, here for 300 s.
    let noise = "noise = { background = 1e-6, burst = 1e-3, duration = '5 s', gap = '10 s' }\nframing = 'ppp'\n";
    let mut link = link_with(&format!("{FAST}{noise}"), 1, 11);
    let arrived = times(&run(&mut link, &steady(30_000), s(400)), TERMINAL);
    let lost = |burst: bool| {
        (0..30_000u64).filter(|id| (id * 10 % 15_000 >= 10_000) == burst && !arrived.contains_key(id)).count() as u64
    };
    assert_binomial(lost(true), 10_000, packet_error_ratio(1e-3, 8056), "in bursts");
    assert_binomial(lost(false), 20_000, packet_error_ratio(1e-6, 8056), "between bursts");
}

#[test]
fn the_profiles_hold_each_ratio_for_the_dwell() {
    for (profile, ratios, floor) in [("thunderstorm", THUNDERSTORM, 0.0), ("wander", WANDER, WANDER_DOWNLINK)] {
        let noise = format!("noise = {{ profile = '{profile}', dwell = '10 s' }}\nframing = 'ppp'\n");
        let mut link = link_with(&format!("{FAST}{noise}"), 1, 13);
        let arrived = times(&run(&mut link, &steady(26_000), s(400)), TERMINAL);
        // The last ratio stays: two more steps with it.
        for (step, up) in ratios.iter().chain([&ratios[23]; 2]).enumerate() {
            let first = step as u64 * 1000;
            let lost = (first..first + 1000).filter(|id| !arrived.contains_key(id)).count() as u64;
            let ratio = up + floor - 2.0 * up * floor;
            let what = format!("{profile}, step {}", step + 1);
            assert_binomial(lost, 1000, packet_error_ratio(ratio, 8056), &what);
        }
    }
}

#[test]
fn packet_loss_has_its_share_and_its_bursts() {
    for (loss, share, mean) in [("'2 %'", 0.02, 1.0 / 0.98), ("{ share = '5 %', burst = 4.0 }", 0.05, 4.0)] {
        let mut link = link_with(&format!("{FAST}loss = {loss}\n"), 1, 17);
        let packets = 50_000;
        let arrived = times(&run(&mut link, &steady(packets), s(1000)), TERMINAL);
        let lost: Vec<bool> = (0..packets).map(|id| !arrived.contains_key(&id)).collect();
        let total = lost.iter().filter(|lost| **lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        // Losses come in clusters of `mean`, which widens the binomial's spread by √(2·mean).
        let spread = interval(packets, share) * f64::sqrt(2.0 * mean);
        assert!((total - packets as f64 * share).abs() <= spread, "{loss}: {total} lost");
        assert!((total / bursts / mean - 1.0).abs() < 0.12, "{loss}: {} in a row", total / bursts);
    }
}

#[test]
fn a_broadcast_is_sent_once_and_errs_for_each_receiver_alone() {
    let (packets, terminals) = (10_000u64, 4usize);
    let mut link = link_with(&format!("{FAST}framing = 'ppp'\nnoise = 2e-5\n"), terminals, 19);
    let arrivals = run(&mut link, &steady(packets), s(200));
    let sender = link.directions()[0].sender_counters();
    assert_eq!((sender.sent_packets, sender.link_bits), (packets, packets * 8056), "one transmission for all");
    assert!(link.directions()[1..].iter().all(|back| back.sender_counters().offered_packets == 0));
    let p = packet_error_ratio(2e-5, 8056);
    let missed: Vec<BTreeSet<u64>> = (1..=terminals)
        .map(|port| {
            let arrived = times(&arrivals, Port(port));
            (0..packets).filter(|id| !arrived.contains_key(id)).collect()
        })
        .collect();
    for (i, mine) in missed.iter().enumerate() {
        assert_binomial(mine.len() as u64, packets, p, &format!("terminal {}", i + 1));
        for theirs in &missed[..i] {
            let both = mine.intersection(theirs).count() as u64;
            assert_binomial(both, packets, p * p, "missed by both of two");
        }
    }
}

#[test]
fn streams_do_not_depend_on_what_else_there_is() {
    let text = format!("{FAST}framing = 'ppp'\nnoise = 1e-5\nloss = '1 %'\njitter = '5 ms'\n");
    let mut offers = steady(2000);
    for offer in offers.iter_mut().skip(1).step_by(2) {
        offer.port = TERMINAL;
    }
    let seen = |terminals: usize| -> Vec<Arrival> {
        let mut link = link_with(&text, terminals, 23);
        run(&mut link, &offers, s(100)).into_iter().filter(|arrival| arrival.port.0 <= 1).collect()
    };
    let alone = seen(1);
    assert_eq!(alone, seen(2), "a second terminal changes nothing for the first");
    assert_eq!(alone, seen(5));
    // Two links of one run: each has the streams of its own name, whichever is made first.
    let config = crate::driver::file(&text).config().unwrap();
    let named = |name: &str| Link::new(&config, 1, Seed(23).child(name));
    let (mut first, mut second) = (named("links/a"), named("links/b"));
    let other = run(&mut second, &offers, s(100));
    let mine = run(&mut first, &offers, s(100));
    assert_ne!(mine, other);
    assert_eq!(mine, run(&mut named("links/a"), &offers, s(100)));
}

#[test]
fn directions_err_independently() {
    let mut link = link_with(&format!("{FAST}framing = 'ppp'\nnoise = 2e-5\n"), 1, 29);
    let mut arrivals = Vec::new();
    for id in 0..5000 {
        let now = ms(id * 10);
        crate::driver::wake_until(&mut link, now, &mut arrivals);
        link.receive(now, HUB, Dummy::new(id, 1000));
        link.receive(now, TERMINAL, Dummy::new(id, 1000));
    }
    crate::driver::wake_until(&mut link, ms(50_000) + Duration::from_secs(1), &mut arrivals);
    let (down, up) = (times(&arrivals, TERMINAL), times(&arrivals, HUB));
    let both = (0..5000u64).filter(|id| !down.contains_key(id) && !up.contains_key(id)).count() as u64;
    let p = packet_error_ratio(2e-5, 8056);
    assert_binomial(5000 - down.len() as u64, 5000, p, "forward");
    assert_binomial(5000 - up.len() as u64, 5000, p, "return");
    assert_binomial(both, 5000, p * p, "both");
}
