//! A pair that has nothing to send after it has connected.

use super::support::*;
use bentpipe_gateway::satellite::{Class, Event, Satellite};

const ROUND_TRIP: f64 = 0.6;

/// A link of this rate each way, which loses nothing by itself.
fn link(rate: &str) -> String {
    format!(
        "one_way_delay = \"300 ms\"\nmtu = \"1500 B\"\nframing = \"none\"\nrate = \"{rate}\"\nqueue = {{ bytes = \"4 MB\" }}\n"
    )
}

#[test]
fn a_healthy_pair_that_is_idle_from_the_start_is_never_silent() {
    for rate in ["1 Mbit/s", "10 Mbit/s", "50 Mbit/s"] {
        for idle in [5.0, 60.0, 3600.0] {
            let mut world = World::new(&link(rate), 1);
            world.connect();
            let connected = world.now;
            world.run(connected + seconds(idle), |_| false);
            for side in [HUB, TERMINAL] {
                let station = &world.stations[side];
                assert_eq!(station.count(&Event::Silent), 0, "side {side}, {rate}, {idle} s");
                let round_trip = station.satellite.statistics().round_trip.as_secs_f64();
                assert!((0.59..ROUND_TRIP * 1.2).contains(&round_trip), "side {side}, {rate}, {idle} s: {round_trip}");
            }
        }
    }
}

#[test]
fn a_first_request_that_is_lost_is_repeated_within_1_2_round_trips() {
    for rate in ["1 Mbit/s", "10 Mbit/s", "50 Mbit/s"] {
        for idle in [0.0, 5.0, 60.0, 3600.0] {
            for side in [TERMINAL, HUB] {
                let mut world = World::new(&link(rate), 1);
                world.connect();
                // As few as the handshake leaves: those at once, and what they are answered.
                let start = world.now + seconds(f64::max(idle, 2.0 * ROUND_TRIP));
                world.run(start, |_| false);
                world.doom_next(side);
                let other = 1 - side;
                let id = world.stations[side].open(start, Class::Control, 300);
                world.pump();
                world.run(start + seconds(10.0), |world| {
                    world.stations[other].flows.get(&id).is_some_and(|flow| flow.ended.is_some())
                });
                let repeated = world.now.since(start).as_secs_f64() - ROUND_TRIP / 2.0;
                assert!(repeated < 1.2 * ROUND_TRIP, "side {side}, {rate}, {idle} s idle: repeated after {repeated} s");
            }
        }
    }
}
