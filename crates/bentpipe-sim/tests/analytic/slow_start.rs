//! Slow start packet by packet over a real link, to the nanosecond.

use crate::pair::{MSS, Pair, Tap, link, reno};
use bentpipe_apps::bulk::Amount;
use bentpipe_net::datagram::Segment;
use bentpipe_net::time::{Duration, Instant};

/// When each data segment left.
#[derive(Default)]
struct Departures(Vec<Instant>);

impl Tap for Departures {
    fn sent(&mut self, now: Instant, segment: &Segment) -> bool {
        if segment.payload.length() > 0 {
            self.0.push(now);
        }
        true
    }
    fn arrived(&mut self, _now: Instant, _segment: &Segment) {}
    fn woken(&mut self, _now: Instant) {}
}

fn departures(more: &str) -> Vec<Instant> {
    // 1500 bytes take 6 ms, 40 take 160 µs.
    let config = link("rate = '2 Mbit/s'\none_way_delay = '300 ms'\nqueue = { bytes = '10 MB' }");
    let mut tap = Departures::default();
    let tcp = reno(&format!("receive_window = '4 MiB'\nwindow_scaling = true\n{more}"));
    let mut pair = Pair::download(&config, &tcp, Amount::Bytes(2000 * MSS), 1, &mut tap);
    assert!(pair.run_until(Instant::ZERO + Duration::from_secs(1000), &mut tap));
    tap.0
}

const SENDING: Duration = Duration::from_millis(6);
const ROUND_TRIP: Duration = Duration::from_nanos(600_000_000 + 6_000_000 + 160_000);

/// Packets of each round: a round begins a round trip after the one before.
fn rounds(departures: &[Instant]) -> Vec<usize> {
    let mut counts = Vec::new();
    for at in departures {
        let round = (at.since(departures[0]).ns / ROUND_TRIP.ns) as usize;
        counts.resize(counts.len().max(round + 1), 0);
        counts[round] += 1;
    }
    counts
}

#[test]
fn every_acknowledgement_lets_two_segments_go() {
    for first in [1u64, 2, 10] {
        let seen = departures(&format!("ack_every = 1\ninitial_window = {first}"));
        let mut expected = vec![seen[0]; first as usize];
        let mut round = 1;
        while expected.len() < 1000 {
            let begin = seen[0] + Duration { ns: ROUND_TRIP.ns * round };
            // Acknowledgement n of a round comes n sending times after the first.
            expected.extend((0..first << round).map(|n| begin + Duration { ns: SENDING.ns * (n / 2) }));
            round += 1;
        }
        // Six rounds: after that the link is full (a round trip is 101 segments), and they queue.
        let until = first as usize * 63;
        assert_eq!(seen[..until], expected[..until], "initial window {first}");
    }
}

#[test]
fn rounds_grow_as_the_models_say() {
    // Each acknowledged: 2^n.
    assert_eq!(rounds(&departures("ack_every = 1"))[..6], [1, 2, 4, 8, 16, 32]);
    assert_eq!(rounds(&departures("ack_every = 1\ninitial_window = 10"))[..4], [10, 20, 40, 80]);
    // Every second one acknowledged, and all that is acknowledged counts: doubling again.
    assert_eq!(rounds(&departures("initial_window = 10\nbyte_counting = 2"))[..4], [10, 20, 40, 80]);
    // One segment an acknowledgement: 1.5 a round.
    assert_eq!(rounds(&departures("initial_window = 16"))[..4], [16, 24, 36, 54]);
}
