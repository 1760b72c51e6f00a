//! Bandwidth on demand: channels that are called up one by one.

use crate::driver::{HUB, Offer, TERMINAL, burst, link, ms, run, s, times};
use bentpipe_link::circuit::CircuitChange::{self, ChannelsUp, Down, Lost, Up};
use bentpipe_link::circuit::{Circuit, CircuitCounters};
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::packet::Dummy;
use bentpipe_net::time::Duration;
use bentpipe_net::time::Instant;

/// Four channels on which 1000 B take 125 ms; a call takes 5 s. The load is looked at each second.
const BUNDLE: &str =
    "bundle = { channels = 4, rate = '64 kbit/s' }\none_way_delay = '250 ms'\nqueue = { packets = 1000 }
[circuit]\nstages = [{ name = 'call', time = '5 s' }]\n";
const EAGER: &str = "history = '1 s'\ncall_after = '0 s'\nrelease_after = '2 s'\n";

fn on_demand(rule: &str) -> Link<Dummy> {
    link(&format!("{BUNDLE}[circuit.on_demand]\n{EAGER}{rule}"))
}

fn circuit(link: &Link<Dummy>) -> &Circuit {
    link.circuit().unwrap()
}

/// Changes with their times in milliseconds.
fn changes(link: &Link<Dummy>) -> Vec<(u64, CircuitChange)> {
    circuit(link).changes().iter().map(|(at, change)| (at.ns / 1_000_000, change.clone())).collect()
}

fn setting_up(stage: &str, channel: Option<usize>) -> CircuitChange {
    CircuitChange::SettingUp { stage: stage.to_owned(), channel }
}

/// Packets of 1000 B at an even rate.
fn stream(port: Port, from: u64, until: u64, every: u64, first: u64) -> Vec<Offer> {
    let at = (from..until).step_by(every as usize).map(ms).enumerate();
    at.map(|(i, at)| Offer { at, port, id: first + i as u64, bytes: 1000 }).collect()
}

#[test]
fn a_backlog_calls_up_one_channel_after_the_other() {
    let mut link = on_demand("");
    let arrivals = times(&run(&mut link, &burst(s(0), HUB, 0, 1000, 1000), s(200)), TERMINAL);
    // Up at 5 s; seen to be full at 6 s; the second call is up at 11 s, and so on.
    let calls: Vec<_> = changes(&link).into_iter().take_while(|(at, _)| *at < 30_000).collect();
    assert_eq!(
        calls,
        [
            (0, setting_up("call", None)),
            (5_000, Up),
            (6_000, setting_up("call", Some(2))),
            (11_000, ChannelsUp(2)),
            (12_000, setting_up("call", Some(3))),
            (17_000, ChannelsUp(3)),
            (18_000, setting_up("call", Some(4))),
            (23_000, ChannelsUp(4)),
        ]
    );
    // 8 a second for 6 s, 16 for 6 s, 24 for 6 s, 32 from then on: the last of 1000 at 5 + 6 + 6 + 6 + 712 ÷ 32 s.
    assert_eq!(arrivals.len(), 1000);
    assert_eq!(arrivals[&47], ms(11_000 + 250));
    assert_eq!(arrivals[&143], ms(17_000 + 250));
    assert_eq!(arrivals[&287], ms(23_000 + 250));
    assert_eq!(arrivals[&999], ms(23_000 + 712 * 125 / 4 + 250));
    // Empty from 45.25 s on: one call less every three seconds (two of patience and the next look), down to one.
    let counters = circuit(&link).counters(s(200));
    assert_eq!((counters.calls, counters.calls_most, counters.calls_lost), (4, 4, 0));
    assert_eq!(counters.setting_up, Duration::from_secs(20));
    assert_eq!(changes(&link).last().map(|(_, change)| change), Some(&ChannelsUp(1)));
    assert_eq!(link.next_wake(), Instant::FAR, "nothing to look at");
}

#[test]
fn several_calls_at_once_and_a_least_number() {
    let mut link1 = on_demand("at_once = 3\n");
    run(&mut link1, &burst(s(0), HUB, 0, 1000, 1000), s(10));
    let calling: Vec<_> =
        changes(&link1).into_iter().filter(|(_, change)| matches!(change, CircuitChange::SettingUp { .. })).collect();
    assert_eq!(calling.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 6_000, 7_000, 8_000]);
    let mut link2 = on_demand("at_once = 2\nleast = 3\n");
    let arrivals = times(&run(&mut link2, &burst(s(0), HUB, 0, 1, 1000), s(60)), TERMINAL);
    assert_eq!(arrivals[&0], ms(5_375), "the first call carries it");
    let up: Vec<_> = changes(&link2).into_iter().filter(|(_, change)| matches!(change, Up | ChannelsUp(_))).collect();
    assert_eq!(up, [(5_000, Up), (5_000, ChannelsUp(2)), (10_000, ChannelsUp(3))]);
    assert!(circuit(&link2).is_up(), "three stay");
}

#[test]
fn a_load_below_the_target_is_left_alone() {
    // 5 packets of 125 ms each second: 62.5 % of a channel.
    let mut link = on_demand("");
    let offers = stream(HUB, 0, 60_000, 200, 0);
    run(&mut link, &offers[..1], s(6));
    run(&mut link, &offers[30..], s(60));
    assert_eq!(circuit(&link).counters(s(60)).calls, 1);
    // 6 of them: 75 %, and half of that with one channel more.
    let mut link = on_demand("");
    let mut offers = burst(s(0), HUB, 1000, 1, 1000);
    offers.extend(stream(HUB, 6_000, 60_000, 166, 0));
    run(&mut link, &offers, s(60));
    assert!(circuit(&link).counters(s(60)).calls_most == 2, "{:?}", changes(&link));
}

#[test]
fn either_direction_may_ask() {
    let mut link = on_demand("");
    let arrivals = times(&run(&mut link, &burst(s(0), TERMINAL, 0, 1000, 1000), s(200)), HUB);
    assert_eq!((arrivals.len(), circuit(&link).counters(s(200)).calls_most), (1000, 4));
    assert_eq!(arrivals[&999], ms(23_000 + 712 * 125 / 4 + 250));
}

#[test]
fn a_released_channel_finishes_what_it_sends() {
    // Packets of 1500 B take 187.5 ms. Two channels full, then one packet a second: each call that goes has nothing cut.
    let mut link = on_demand("");
    let mut offers = burst(s(0), HUB, 0, 100, 1500);
    offers.extend((30..60).map(|at| Offer { at: ms(at * 1000 - 90), port: HUB, id: 100 + at, bytes: 1500 }));
    let arrivals = times(&run(&mut link, &offers, s(100)), TERMINAL);
    assert_eq!(arrivals.len(), offers.len());
    assert_eq!(link.directions()[0].sender_counters().abandoned_packets, 0);
    assert_eq!(changes(&link).last().map(|(_, change)| change), Some(&ChannelsUp(1)));
}

#[test]
fn a_call_that_connects_late_loses_what_is_sent_before() {
    // Each channel sends 8 packets a second; what leaves in its first half second is lost.
    let mut link = on_demand("connects_late = '500 ms'\n");
    let arrivals = times(&run(&mut link, &burst(s(0), HUB, 0, 100, 1000), s(200)), TERMINAL);
    let lost: Vec<u64> = (0..100).filter(|id| !arrivals.contains_key(id)).collect();
    // At 5 s the first four; at 11 s, packets 48 and on go over both channels in turn.
    assert_eq!(lost, [0, 1, 2, 3, 49, 51, 53, 55]);
    assert_eq!(link.directions()[0].sender_counters().abandoned_packets, 8);
    assert_eq!(arrivals[&4], ms(5_500 + 125 + 250), "what starts at the end of it arrives");
}

#[test]
fn a_hang_up_ends_all_calls_and_each_is_charged() {
    let text = format!("{BUNDLE}idle_hang_up = '1 s'\n");
    let tariff = "[tariff]\ncurrency = 'EUR'\ntime = { price = '2', first = '1 min' }\n";
    let mut link = link(&format!("{text}[circuit.on_demand]\nleast = 3\nat_once = 3\n{tariff}"));
    run(&mut link, &burst(s(0), HUB, 0, 1, 1000), s(100));
    assert_eq!(changes(&link).last(), Some(&(6_125, Down)));
    let counters = circuit(&link).counters(s(100));
    let CircuitCounters { calls, on_air, .. } = counters;
    assert_eq!((calls, on_air), (3, Duration::from_millis(3 * 1_125)));
    let bill = link.bill(s(100)).unwrap();
    assert_eq!((bill.total.to_string().as_str(), bill.calls[0].call.carried), ("6.00", [1000, 0]));
    assert_eq!(link.next_wake(), Instant::FAR);
}

#[test]
fn a_hang_up_takes_a_call_along_that_is_being_set_up() {
    let text = BUNDLE.replace("'5 s' }]", "'5 s' }]\nidle_hang_up = '3 s'\ncharged_from = 'call'");
    let mut link = link(&format!("{text}[circuit.on_demand]\n{EAGER}"));
    // 8 packets fill the channel from 5 to 6 s; the second call begins at 6 s, the circuit hangs up at 9 s.
    run(&mut link, &burst(s(0), HUB, 0, 8, 1000), s(100));
    assert_eq!(changes(&link)[2..], [(6_000, setting_up("call", Some(2))), (9_000, Down)]);
    let counters = circuit(&link).counters(s(100));
    assert_eq!((counters.setting_up, counters.on_air), (Duration::from_secs(5 + 3), Duration::from_secs(9 + 3)));
}

#[test]
fn the_switch_cuts_all_calls() {
    let text = "noise = { background = 0.0, burst = 1e-2, duration = '10 s', gap = '30 s' }\n".to_owned() + BUNDLE;
    let text = text + "gives_up = { above = 1e-3, after = '3 s' }\n[circuit.on_demand]\n" + EAGER;
    let mut link = link(&text);
    run(&mut link, &burst(s(0), HUB, 0, 2000, 1000), s(60));
    // Four calls are up when the burst has lasted for three seconds, and four channels are sending.
    assert_eq!(link.directions()[0].sender_counters().abandoned_packets, 4);
    let lost: Vec<_> = changes(&link).into_iter().filter(|(_, change)| *change == Lost).collect();
    assert_eq!(lost, [(33_000, Lost)]);
    assert_eq!(circuit(&link).counters(s(60)).calls_lost, 5, "four cut, a set-up refused at 38 s");
}
