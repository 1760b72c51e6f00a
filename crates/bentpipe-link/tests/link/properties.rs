//! What holds for every link and every program of packets.

use crate::driver::{Arrival, HUB, Offer, drain, file, run, times, wake_until};
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_link::direction::Direction;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::packet::Dummy;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::{Duration, Instant};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::{BTreeMap, BTreeSet};

/// A link with what random parts it has.
#[derive(Clone, Debug)]
struct Sample {
    text: String,
    terminals: usize,
}

impl Sample {
    fn config(&self) -> LinkConfig {
        file(&self.text).config().unwrap()
    }
    fn link(&self, seed: u64) -> Link<Dummy> {
        Link::new(&self.config(), self.terminals, Seed(seed))
    }
}

/// Queue disciplines other than first in, first out, some with settings.
const DISCIPLINES: &[&str] = &[
    "kind = 'cake'",
    "kind = 'cake', rate = '500 kbit/s', overhead = '20 B', ack_filter = 'aggressive', hosts = 'none'",
    "kind = 'codel'",
    "kind = 'codel', target = '1 ms', interval = '10 ms'",
    "kind = 'drr'",
    "kind = 'drr', classes = [{ ports = [80], weight = 3 }]",
    "kind = 'fq-codel'",
    "kind = 'fq-codel', flows = 8, quantum = '300 B', interval = '10 ms'",
    "kind = 'pie'",
    "kind = 'pie', target = '1 ms', burst = '0 ms'",
    "kind = 'priority', classes = [{ dscp = ['EF'] }]",
    "kind = 'red'",
    "kind = 'red', min = '1 kB', max = '3 kB', weight = 0.2, gentle = false",
    "kind = 'scfq'",
    "kind = 'reservations'",
    "kind = 'wfq'",
    "kind = 'wfq', classes = [{ source = ['10.0.0.0/8'] }, { weight = 2 }]",
];

fn direction() -> impl Strategy<Value = String> {
    let rate = prop_oneof![
        (1u64..10_000_000).prop_map(|bps| format!("rate = '{bps} bit/s'")),
        (1usize..5, 1000u64..1_000_000)
            .prop_map(|(n, bps)| format!("bundle = {{ channels = {n}, rate = '{bps} bit/s' }}")),
        (1000u64..1_000_000, 0u64..1_000_000, 1u64..3000, 1u64..3000).prop_map(|(a, b, at, more)| format!(
            "rate_schedule = {{ repeat = '{} ms', steps = [{{ at = '0 s', rate = '{a} bit/s' }}, \
             {{ at = '{at} ms', rate = '{b} bit/s' }}] }}",
            at + more
        )),
    ];
    let queue = prop_oneof![
        Just(String::new()),
        (1u64..20).prop_map(|n| format!("queue = {{ packets = {n} }}")),
        (1518u64..20_000).prop_map(|n| format!("queue = {{ bytes = '{n} B' }}")),
        (prop::sample::select(DISCIPLINES), prop::option::of(1518u64..20_000)).prop_map(|(kind, limit)| {
            // RED's limit must hold its thresholds.
            let limit = limit.filter(|_| !kind.contains("red")).map_or(String::new(), |n| format!("bytes = '{n} B', "));
            format!("queue = {{ {limit}{kind} }}")
        }),
    ];
    let framing =
        prop_oneof![Just("none"), Just("ppp"), Just("async-ppp"), Just("sdlc"), Just("ethernet"), Just("frame-relay")];
    let noise = prop_oneof![
        Just("noise = 0.0".to_owned()),
        (-6i32..-2).prop_map(|e| format!("noise = 1e{e}")),
        (1u64..5000, 1u64..5000).prop_map(|(duration, gap)| format!(
            "noise = {{ background = 1e-6, burst = 1e-2, duration = '{duration} ms', gap = '{gap} ms' }}"
        )),
    ];
    let loss = prop_oneof![Just(""), Just("loss = '20 %'"), Just("loss = { share = '10 %', burst = 3.0 }")];
    let outage = prop_oneof![
        Just(String::new()),
        (0u64..5000, 0u64..500).prop_map(|(at, lasts)| format!(
            "outages = [{{ at = '{at} ms', lasts = '{lasts} ms', every = '{} ms' }}]",
            lasts + 700
        )),
    ];
    let delay = (0u64..600_000, prop_oneof![Just(0u64), 1u64..50_000])
        .prop_map(|(delay, jitter)| format!("one_way_delay = '{delay} us'\njitter = '{jitter} us'"));
    (rate, queue, framing, noise, loss, outage, delay).prop_map(|(rate, queue, framing, noise, loss, outage, delay)| {
        format!("{rate}\n{queue}\nframing = '{framing}'\n{noise}\n{loss}\n{outage}\n{delay}\n")
    })
}

fn circuit() -> impl Strategy<Value = String> {
    let stages = prop_oneof![
        Just("stages = []".to_owned()),
        (0u64..5000, 1u64..5000).prop_map(|(a, b)| format!(
            "stages = [{{ name = 'a', time = '{a} ms' }}, {{ name = 'b', time = '{b} ms' }}]\ncharged_from = 'b'"
        )),
    ];
    let hang_up = prop_oneof![Just(String::new()), (0u64..5000).prop_map(|n| format!("idle_hang_up = '{n} ms'"))];
    let gives_up = prop_oneof![
        Just(String::new()),
        (0u64..3000).prop_map(|after| format!("gives_up = {{ above = 1e-3, after = '{after} ms' }}")),
    ];
    (stages, hang_up, gives_up).prop_map(|(a, b, c)| format!("[circuit]\n{a}\n{b}\n{c}\n"))
}

/// Calls as the load asks for them, on a circuit of a bundle.
fn on_demand() -> impl Strategy<Value = String> {
    let after = || prop_oneof![Just(0u64), 0u64..4000];
    (1usize..5, 1usize..3, 0u64..700, 1u64..100, 1u64..2000, 1u64..5, after(), after()).prop_map(
        |(least, at_once, late, target, interval, polls, call, release)| {
            format!(
                "on_demand = {{ least = {least}, at_once = {at_once}, late_share = '50 %', connects_late = '{late} ms', target = '{target} %', \
                 interval = '{interval} ms', history = '{} ms', call_after = '{call} ms', release_after = '{release} ms' }}\n",
                interval * polls
            )
        },
    )
}

fn sample() -> impl Strategy<Value = Sample> {
    let circuit = prop_oneof![
        Just(String::new()),
        (circuit(), prop::option::of(on_demand()))
            .prop_map(|(circuit, rule)| circuit + rule.as_deref().unwrap_or_default())
    ];
    (direction(), direction(), circuit, 1usize..4, prop::bool::ANY).prop_map(
        |(forward, back, mut circuit, terminals, ethernet)| {
            let carries = if ethernet { "ethernet" } else { "ip" };
            if ![&forward, &back].into_iter().any(|direction| direction.contains("bundle")) {
                circuit.truncate(circuit.find("on_demand").unwrap_or(circuit.len()));
            }
            let text = format!("carries = '{carries}'\n[forward]\n{forward}[return]\n{back}{circuit}");
            Sample { text, terminals }
        },
    )
}

/// One thing that a driver does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A packet enters at a port (counted modulo the ports there are).
    Offer { port: usize, bytes: u32 },
    /// A wake, due or not.
    Wake,
}

/// Steps with the milliseconds since the one before.
fn program() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let gap = prop_oneof![Just(0u64), 0u64..20, 0u64..500, 0u64..8000];
    let step = prop_oneof![
        3 => (0usize..4, 20u32..1501).prop_map(|(port, bytes)| Step::Offer { port, bytes }),
        1 => Just(Step::Wake),
    ];
    prop::collection::vec((gap, step), 1..60)
}

/// The offers of a program, numbered.
fn offers(program: &[(u64, Step)], terminals: usize) -> Vec<Offer> {
    let mut at = Instant::ZERO;
    let mut offers = Vec::new();
    for (gap, step) in program {
        at += Duration::from_millis(*gap);
        if let Step::Offer { port, bytes } = step {
            offers.push(Offer { at, port: Port(port % (terminals + 1)), id: offers.len() as u64, bytes: *bytes });
        }
    }
    offers
}

/// Every packet is accounted for, in every direction.
fn check_conserved(link: &Link<Dummy>) -> Result<(), TestCaseError> {
    for direction in link.directions() {
        let c = direction.sender_counters();
        let somewhere = c.dropped_packets + c.sent_packets + c.abandoned_packets + c.queue_packets + c.sending_packets;
        prop_assert_eq!(c.offered_packets, somewhere, "{:?}", c);
        for r in direction.receiver_counters() {
            let there = r.delivered_packets + r.damaged_packets + r.lost_packets + r.in_flight_packets;
            prop_assert_eq!(c.sent_packets, there, "{:?}", r);
            prop_assert!(r.delivered_damaged_packets <= r.delivered_packets);
        }
    }
    Ok(())
}

/// The direction that an arrival came through: the number of its receiver, or of its sender.
fn way(arrival: Arrival, offers: &[Offer]) -> (Port, Port) {
    (offers[arrival.id as usize].port, arrival.port)
}

/// No packet is faster than light and its own bits (less the part of a nanosecond that the one before left over).
fn earliest(offer: Offer, direction: &DirectionConfig, ethernet: bool) -> u64 {
    let bits = u128::from(direction.framing.bits_of(&offer.packet(), ethernet));
    let sending = bits * 1_000_000_000 / u128::from(direction.rate.highest().bps);
    offer.at.ns + sending as u64 + direction.medium.one_way_delay.ns
}

/// What the outside can see of a link at rest.
fn state(link: &Link<Dummy>, now: Instant) -> impl PartialEq + std::fmt::Debug + use<> {
    let senders: Vec<_> = link.directions().iter().map(Direction::sender_counters).collect();
    let receivers: Vec<_> = link.directions().iter().flat_map(Direction::receiver_counters).collect();
    let circuit = link.circuit().map(|circuit| (circuit.counters(now), circuit.changes().to_vec()));
    (link.next_wake(), senders, receivers, circuit)
}

const LATER: Duration = Duration::from_secs(30);

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn packets_are_conserved_at_any_time(sample in sample(), program in program(), seed: u64) {
        let mut link = sample.link(seed);
        let mut now = Instant::ZERO;
        let mut id = 0;
        for (gap, step) in program {
            let until = now + Duration::from_millis(gap);
            while let Some(due) = Some(link.next_wake()).filter(|due| *due <= until && *due != Instant::FAR) {
                prop_assert!(due >= now, "time went back from {:?} to {:?}", now, due);
                now = due;
                link.wake(now);
                check_conserved(&link)?;
                drain(&mut link, now, &mut Vec::new());
                check_conserved(&link)?;
            }
            now = until;
            match step {
                Step::Offer { port, bytes } => {
                    let packet = Dummy::new(id, bytes);
                    link.receive(now, Port(port % (sample.terminals + 1)), packet);
                    id += 1;
                }
                Step::Wake => link.wake(now),
            }
            check_conserved(&link)?;
        }
    }

    #[test]
    fn packets_keep_their_order_and_are_never_early(sample in sample(), program in program(), seed: u64) {
        let config = sample.config();
        let offers = offers(&program, sample.terminals);
        let end = offers.last().map_or(Instant::ZERO, |offer| offer.at) + LATER;
        let arrivals = run(&mut sample.link(seed), &offers, end);
        let mut last = BTreeMap::new();
        for arrival in arrivals {
            let offer = offers[arrival.id as usize];
            let direction = if offer.port == HUB { &config.forward } else { &config.back };
            prop_assert!(arrival.at.ns >= earliest(offer, direction, config.carries_ethernet), "{:?}", arrival);
            if direction.channels == 1 {
                let before = last.insert(way(arrival, &offers), arrival.id);
                prop_assert!(before.is_none_or(|before| before < arrival.id), "{:?} after {:?}", arrival, before);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run(sample in sample(), program in program(), seed: u64) {
        let offers = offers(&program, sample.terminals);
        let end = offers.last().map_or(Instant::ZERO, |offer| offer.at) + LATER;
        let (mut first, mut second) = (sample.link(seed), sample.link(seed));
        prop_assert_eq!(run(&mut first, &offers, end), run(&mut second, &offers, end));
        prop_assert_eq!(state(&first, end), state(&second, end));
    }

    #[test]
    fn a_terminal_that_is_silent_changes_nothing(sample in sample(), program in program(), seed: u64) {
        let offers = offers(&program, 1);
        let end = offers.last().map_or(Instant::ZERO, |offer| offer.at) + LATER;
        let seen = |terminals: usize| -> Vec<_> {
            let mut link = Link::new(&sample.config(), terminals, Seed(seed));
            let arrivals = run(&mut link, &offers, end);
            [HUB, Port(1)].map(|port| times(&arrivals, port)).into()
        };
        prop_assert_eq!(seen(1), seen(3));
    }

    /// One link is woken whenever it asks, its twin only by packets and now and then: whenever both have been given the
    /// time, they have delivered the same and are in the same state.
    #[test]
    fn a_late_wake_makes_up_for_the_missed_ones(sample in sample(), program in program(), seed: u64) {
        let (mut exact, mut late) = (sample.link(seed), sample.link(seed));
        let (mut on_time, mut at_last) = (Vec::new(), Vec::new());
        let mut now = Instant::ZERO;
        let mut id = 0;
        for (gap, step) in program.into_iter().chain([(20_000, Step::Wake)]) {
            now += Duration::from_millis(gap);
            wake_until(&mut exact, now, &mut on_time);
            match step {
                Step::Offer { port, bytes } => {
                    for link in [&mut exact, &mut late] {
                        let packet = Dummy::new(id, bytes);
                        link.receive(now, Port(port % (sample.terminals + 1)), packet);
                    }
                    id += 1;
                }
                Step::Wake => {}
            }
            // Counters are as of the last wake; an exact link asks only for what can be seen outside.
            exact.wake(now);
            late.wake(now);
            drain(&mut exact, now, &mut on_time);
            drain(&mut late, now, &mut at_last);
            prop_assert_eq!(state(&exact, now), state(&late, now));
            let delivered = |arrivals: &[Arrival]| -> BTreeSet<_> {
                arrivals.iter().map(|arrival| (arrival.port, arrival.id)).collect()
            };
            prop_assert_eq!(delivered(&on_time), delivered(&at_last));
            for port in 1..=sample.terminals {
                let order = |arrivals: &[Arrival]| -> Vec<u64> {
                    arrivals.iter().filter(|arrival| arrival.port.0 == port).map(|arrival| arrival.id).collect()
                };
                prop_assert_eq!(order(&on_time), order(&at_last));
            }
        }
    }
}
