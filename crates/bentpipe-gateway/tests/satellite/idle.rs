//! A pair that has nothing to send after it has connected.

use super::support::*;
use bentpipe_gateway::satellite::quic::Crypto;
use bentpipe_gateway::satellite::{Class, Event, Satellite};
use bentpipe_net::time::Duration;

const RATES: [&str; 3] = ["1 Mbit/s", "10 Mbit/s", "50 Mbit/s"];
/// In ms.
const ROUND_TRIPS: [u64; 2] = [300, 600];

/// A link of this rate each way, which loses nothing by itself.
fn link(rate: &str, round_trip_ms: u64) -> String {
    let delay = round_trip_ms / 2;
    format!(
        "one_way_delay = \"{delay} ms\"\nmtu = \"1500 B\"\nframing = \"none\"\nrate = \"{rate}\"\nqueue = {{ bytes = \"4 MB\" }}\n"
    )
}

#[test]
fn a_healthy_pair_that_is_idle_from_the_start_is_never_silent() {
    for (rate, trip) in RATES.into_iter().flat_map(|rate| ROUND_TRIPS.map(|trip| (rate, trip))) {
        for idle in [5.0, 60.0, 3600.0] {
            let mut world = World::new(&link(rate, trip), 1);
            world.connect();
            let connected = world.now;
            let packets = |world: &World| world.stations.each_ref().map(|station| station.satellite.statistics());
            let before = packets(&world);
            world.run(connected + seconds(idle), |_| false);
            let after = packets(&world);
            for side in [HUB, TERMINAL] {
                let case = format!("side {side}, {rate}, {trip} ms, {idle} s");
                let station = &world.stations[side];
                assert_eq!(station.count(&Event::Silent), 0, "{case}");
                let measured = after[side].round_trip.as_secs_f64() * 1000.0 / trip as f64;
                assert!((0.98..1.2).contains(&measured), "{case}: {measured} of it measured");
                // A keep-alive a minute and its acknowledgement.
                let sent = after[side].packets_sent - before[side].packets_sent;
                assert!(sent <= 4 + idle as u64 / 60, "{case}: {sent} packets");
                assert!(before[side].packets_sent <= 16, "{case}: {} packets at first", before[side].packets_sent);
            }
        }
    }
}

#[test]
fn a_first_request_that_is_lost_is_repeated_within_1_2_round_trips() {
    // At 1 Mbit/s four packets, the time that is allowed for others on the way, take 0.16 of the shorter round trip.
    let thin = |(rate, trip): &(&str, u64)| (*rate, *trip) == (RATES[0], ROUND_TRIPS[0]);
    let cases = RATES.into_iter().flat_map(|rate| ROUND_TRIPS.map(|trip| (rate, trip)));
    for (rate, trip) in cases.filter(|case| !thin(case)) {
        for idle in [0.0, 5.0, 60.0, 3600.0] {
            let repeated = repeated(rate, trip, trip, idle);
            assert!(repeated.iter().all(|trips| *trips < 1.2), "{rate}, {trip} ms, {idle} s idle: {repeated:?}");
        }
    }
}

#[test]
fn the_handshake_has_measured_the_round_trip_where_the_file_states_another() {
    for (trip, stated) in [(300, 600), (600, 300), (600, 20)] {
        let repeated = repeated("10 Mbit/s", trip, stated, 5.0);
        // Acknowledgements may be put off by a sixteenth of what is stated, and half as much is allowed for jitter.
        // The rest: four full packets, and a datagram of the handshake each way, take 2.4 % of 300 ms.
        let most = 1.03 + 1.5 / 16.0 * f64::max(1.0, stated as f64 / trip as f64);
        assert!(repeated.iter().all(|trips| *trips < most), "{trip} ms, {stated} ms stated: {repeated:?}");
    }
}

/// Round trips after which a side's first request is repeated that was lost, by side. `stated`: the round trip that both
/// files state.
fn repeated(rate: &str, trip_ms: u64, stated: u64, idle: f64) -> [f64; 2] {
    let trip = trip_ms as f64 / 1000.0;
    [HUB, TERMINAL].map(|side| {
        let state = |config: &mut bentpipe_gateway::satellite::SatelliteConfig| {
            config.round_trip = Duration::from_millis(stated);
        };
        let mut world = World::with(&link(rate, trip_ms), 1, Crypto::Model(7), state);
        world.connect();
        // As few as the handshake leaves: those at once, and what they are answered.
        let start = world.now + seconds(f64::max(idle, 2.0 * trip));
        world.run(start, |_| false);
        world.doom_next(side);
        let other = 1 - side;
        let id = world.stations[side].open(start, Class::Control, 300);
        world.pump();
        world.run(start + seconds(10.0), |world| {
            world.stations[other].flows.get(&id).is_some_and(|flow| flow.ended.is_some())
        });
        assert_eq!(world.stations.each_ref().map(|station| station.count(&Event::Silent)), [0; 2], "{rate}, {trip}");
        (world.now.since(start).as_secs_f64() - trip / 2.0) / trip
    })
}
