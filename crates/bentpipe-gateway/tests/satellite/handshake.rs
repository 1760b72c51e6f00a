//! The handshake on links that lose packets, and on circuits that are set up first.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::{Event, Satellite};

/// A dial-up link.
fn circuit(rate: &str, delay: &str, set_up: &str) -> String {
    format!(
        "rate = \"{rate}\"\none_way_delay = \"{delay}\"\nqueue = {{ packets = 40 }}\nmtu = \"1500 B\"\nframing = \"ppp\"\n\
         [circuit]\nstages = [{{ name = \"set-up\", time = \"{set_up}\" }}]\n"
    )
}

/// Inmarsat-B and Mini-M as in the catalogue, without their bit errors.
fn inmarsat_b() -> String {
    circuit("64 kbit/s", "442 ms", "17 s")
}

fn mini_m() -> String {
    circuit("2400 bit/s", "300 ms", "50.73 s")
}

/// When both are connected, how long a first exchange of 1.1 kB takes from then on, and the handshake's bytes.
fn first_exchange(text: &str, seed: u64, doomed: &[(usize, u64)]) -> (f64, f64, u64) {
    let mut world = World::new(text, seed);
    world.doomed = doomed.iter().copied().collect();
    world.run(at(600.0), |world| world.stations.iter().all(|s| s.satellite.is_connected()));
    assert!(world.stations.iter().all(|s| s.satellite.is_connected()), "{doomed:?}");
    let connected = world.now.as_secs_f64();
    let bytes = world.link_bytes().iter().sum();
    let time = world.fetch(1, 100, 1000, 600.0)[0];
    assert!(world.stations.iter().all(|station| station.count(&Event::Connected) == 1), "{doomed:?}");
    (connected, time, bytes)
}

#[test]
fn a_lost_handshake_packet_costs_seconds() {
    // What the loss of any one datagram may cost, until both are connected and until a first exchange is over: twice a round
    // trip with its packets, and on a circuit 5 s to 30 s between calls.
    let links = [
        (GEO.to_owned(), 2.0, 2.5),
        (inmarsat_b(), 5.0, 5.0),
        (circuit("9600 bit/s", "300 ms", "50 s"), 6.0, 15.0),
        (mini_m(), 20.0, 40.0),
    ];
    for (text, most, most_with_exchange) in links {
        let (connected, time, bytes) = first_exchange(&text, 1, &[]);
        println!("{text}connected at {connected:.2} s with {bytes} bytes, first exchange {time:.2} s");
        let mut worst = (0.0_f64, 0.0_f64);
        for side in [HUB, TERMINAL] {
            for number in 0..8 {
                let (late, exchange, _) = first_exchange(&text, 1, &[(side, number)]);
                worst.0 = worst.0.max(late - connected);
                worst.1 = worst.1.max(late + exchange - connected - time);
            }
        }
        println!("a lost datagram costs up to {:.2} s, with the exchange {:.2} s", worst.0, worst.1);
        assert!(worst.0 < most && worst.1 < most_with_exchange, "{worst:?}");
    }
}

#[test]
fn bit_errors_while_a_circuit_is_set_up_cost_seconds() {
    for (ratio, most, most_in_hundred) in [(1e-6, 24.0, 22.0), (1e-5, 45.0, 30.0)] {
        let text = inmarsat_b().replace("[circuit]", &format!("noise = {ratio:e}\n[circuit]"));
        let mut times: Vec<f64> = (1..=300).map(|seed| first_exchange(&text, seed, &[]).0).collect();
        times.sort_by(f64::total_cmp);
        let (median, nearly, worst) = (times[150], times[296], times[299]);
        println!("{ratio:e}: connected at {median:.1} s, 99 of 100 by {nearly:.1} s, the last of 300 {worst:.1} s");
        assert!(worst < most && nearly < most_in_hundred, "{ratio:e}: {nearly} s, {worst} s");
    }
}

#[test]
fn calls_that_nobody_answers_cost_little_airtime() {
    let mut world = World::new(&inmarsat_b(), 1);
    world.stations[HUB].frozen_until = at(1e6);
    let mut calls = Vec::new();
    for hour in 1..=3 {
        world.run(at(3600.0 * f64::from(hour)), |_| false);
        calls.push(world.link_bytes()[TERMINAL]);
    }
    println!("bytes sent after hours: {calls:?}");
    // At last an attempt in ten minutes, with a call every five seconds for as long as a set-up may take.
    assert!(calls[2] - calls[1] < 7 * 14 * 1300, "{calls:?}");
    // And the hub is found when it is back and somebody asks.
    let back = world.now;
    world.stations[HUB].frozen_until = back;
    world.terminal().satellite.want();
    world.run(back + seconds(120.0), |world| world.stations.iter().all(|s| s.satellite.is_connected()));
    println!("connected {:.1} s after somebody asked", world.now.since(back).as_secs_f64());
    assert!(world.stations.iter().all(|s| s.satellite.is_connected()));
}
