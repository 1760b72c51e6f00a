//! How much of a link becomes goodput, and how soon.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::quic::Crypto;
use bentpipe_gateway::satellite::{Class, Event, Satellite};

fn geo(loss: f64, seed: u64) -> World {
    let text = format!("{GEO}loss = \"{} %\"\n", loss * 100.0);
    World::with(&text, seed, Crypto::Model(7), |config| config.loss = loss)
}

/// The share of the link's bits that were payload, the round trip of the request left out.
fn share(bytes: u64, time: f64, round_trip: f64, rate: f64) -> f64 {
    bytes as f64 * 8.0 / (time - round_trip) / rate
}

#[test]
fn a_transfer_fills_a_geostationary_link_at_any_loss() {
    // Of 1500 bytes, 1448 are payload: 0.965. Loss costs its share, and the tail a time-out.
    for (loss, least, per_byte) in [(0.0, 0.95, 1.05), (0.001, 0.92, 1.055), (0.01, 0.84, 1.07)] {
        let mut world = geo(loss, 1);
        world.connect();
        let before = world.link_bytes();
        let time = world.fetch(1, 100, 5_000_000, 30.0)[0];
        let after = world.link_bytes();
        let share = share(5_000_000, time, 0.6, 10e6);
        let [forward, back] = [0, 1].map(|side| (after[side] - before[side]) as f64 / 5e6);
        println!("loss {loss}: {time:.3} s, share {share:.3}, link bytes {forward:.4} and {back:.4} per byte");
        assert!(share >= least, "loss {loss}: {time} s");
        assert!(forward <= per_byte && back <= 0.005, "loss {loss}: {forward} {back}");
    }
}

#[test]
fn the_first_byte_comes_after_one_round_trip_and_a_lost_packet_costs_little() {
    let mut world = geo(0.0, 1);
    world.connect();
    let time = world.fetch(1, 100, 1000, 5.0)[0];
    assert!(time < 0.604, "{time}");
    let mut world = geo(0.01, 1);
    world.connect();
    let mut times: Vec<f64> = (0..150)
        .map(|_| {
            let time = world.fetch(1, 100, 1000, 10.0)[0];
            let until = world.now + seconds(1.0);
            world.run(until, |_| false);
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("of 150: median {:.3}, worst {:.3}", times[75], times[149]);
    assert!(times[75] < 0.61 && times[149] < 1.4, "{times:?}");
}

#[test]
fn bit_errors_on_a_t1_cost_what_they_must() {
    // Best achievable share: payload ÷ bits on the wire, times the share of packets that arrive whole.
    for ratio in [0.0, 1e-6, 1e-5] {
        let text = format!(
            "rate = \"1.536 Mbit/s\"\none_way_delay = \"250 ms\"\nqueue = {{ bytes = \"128 kB\" }}\nmtu = \"1500 B\"\n\
             framing = \"ppp\"\nnoise = {ratio:e}\n"
        );
        let loss = 1.0 - (1.0f64 - ratio).powi(1507 * 8);
        let mut world = World::with(&text, 3, Crypto::Model(7), |config| config.loss = loss);
        world.connect();
        let time = world.fetch(1, 100, 2_000_000, 60.0)[0];
        let share = share(2_000_000, time, 0.5, 1.536e6);
        let best = (300..=1448)
            .map(|payload| {
                let wire = f64::from(payload) + 52.0 + 7.0;
                f64::from(payload) / wire * (1.0 - ratio).powf(wire * 8.0)
            })
            .fold(0.0, f64::max);
        println!("bit error ratio {ratio:e}: {time:.2} s, share {share:.3} of at best {best:.3}");
        // A time-out at the end costs a short transfer up to 6 %.
        assert!(share >= 0.92 * best, "{ratio:e}: {share} of {best}");
    }
}

#[test]
fn a_fast_asymmetric_link_is_filled_with_loss_in_both_directions() {
    let text = "one_way_delay = \"300 ms\"\nmtu = \"1500 B\"\nframing = \"none\"\nloss = \"1 %\"\n\
                [forward]\nrate = \"250 Mbit/s\"\nqueue = { bytes = \"4 MB\" }\n\
                [return]\nrate = \"3 Mbit/s\"\nqueue = { bytes = \"250 kB\" }\n";
    let mut world = World::with(text, 1, Crypto::Model(7), |config| config.loss = 0.01);
    world.connect();
    let time = world.fetch(1, 100, 25_000_000, 20.0)[0];
    println!("25 MB in {time:.3} s");
    // 0.84 s of sending, a round trip, and one or two more for what was lost last.
    assert!(time < 3.0, "{time}");
}

#[test]
fn a_thin_return_link_is_not_the_limit() {
    let text = "one_way_delay = \"300 ms\"\nmtu = \"1500 B\"\nframing = \"none\"\n\
                [forward]\nrate = \"10 Mbit/s\"\nqueue = { bytes = \"750 kB\" }\n\
                [return]\nrate = \"50 kbit/s\"\nqueue = { bytes = \"20 kB\" }\n";
    let mut world = World::new(text, 1);
    world.connect();
    let before = world.link_bytes();
    let time = world.fetch(1, 100, 5_000_000, 30.0)[0];
    let back = (world.link_bytes()[1] - before[1]) as f64 * 8.0 / time;
    println!("{time:.3} s, {back:.0} bit/s back");
    assert!(share(5_000_000, time, 0.6, 10e6) > 0.94, "{time}");
    assert!(back < 30_000.0, "{back} bit/s of acknowledgements");
}

#[test]
fn streams_share_evenly() {
    let mut world = geo(0.0, 1);
    world.connect();
    let start = world.now;
    let times = world.fetch(100, 100, 20_000, 30.0);
    let sum: f64 = times.iter().sum();
    let squares: f64 = times.iter().map(|time| time * time).sum();
    let jain = sum * sum / (100.0 * squares);
    println!("all in {:.3} s, Jain {jain:.5}", world.now.since(start).as_secs_f64());
    assert!(jain > 0.99, "{times:?}");
    assert!(times.iter().all(|time| *time < 2.5), "{times:?}");
}

#[test]
fn interactive_data_does_not_wait_behind_bulk() {
    let mut world = geo(0.0, 1);
    world.connect();
    let start = world.now;
    let bulk = world.hub().open(start, Class::Bulk, 20_000_000);
    world.run(start + seconds(3.0), |_| false);
    let now = world.now;
    let short = world.hub().open(now, Class::Interactive, 1000);
    world.pump();
    world.run(now + seconds(5.0), |world| {
        world.stations[TERMINAL].flows.get(&short).is_some_and(|flow| flow.ended.is_some())
    });
    let took = world.now.since(now).as_secs_f64();
    println!("{took:.4} s");
    assert!(took < 0.306, "{took}");
    assert!(world.hub().satellite.room(bulk) < 64 << 10, "little waits");
}

#[test]
fn traffic_that_bypasses_the_pair_gets_its_share() {
    let mut world = geo(0.0, 1);
    world.connect();
    let start = world.now;
    world.hub().satellite.set_bypass(start, bentpipe_net::units::BitRate::from_bps(4_000_000));
    let time = world.fetch(1, 100, 3_000_000, 30.0)[0];
    let share = share(3_000_000, time, 0.6, 6e6);
    assert!((0.94..0.97).contains(&share), "{share}");
}

#[test]
fn a_very_thin_link_is_not_flooded_by_a_handshake() {
    for mtu in [500, 1500] {
        let text = format!(
            "rate = \"2400 bit/s\"\none_way_delay = \"300 ms\"\nqueue = {{ bytes = \"20 kB\" }}\nmtu = \"{mtu} B\"\n\
             framing = \"ppp\"\n"
        );
        let mut world = World::new(&text, 1);
        world.run(at(60.0), |world| world.stations.iter().all(|s| s.satellite.is_connected()));
        let handshake: u64 = world.link_bytes().iter().sum();
        let terminal = world.terminal().saw(&Event::Connected).unwrap();
        println!("mtu {mtu}: connected at {terminal:?} and {:?}, {handshake} bytes", world.now);
        // Three datagrams of 1200 bytes, as long as RFC 9000 §14.1 demands; the third completes the hub's handshake.
        assert!(terminal < at(10.0) && world.now < at(14.0) && handshake < 4000, "{handshake} bytes");
        let until = world.now + seconds(20.0);
        world.run(until, |_| false);
        let before = world.link_bytes()[0];
        let time = world.fetch(1, 100, 3000, 60.0)[0];
        let sent = world.link_bytes()[0] - before;
        println!("3 kB in {time:.1} s, {sent} bytes on the wire");
        assert!(time < 14.0 && sent < 3700, "{time} s, {sent} bytes");
    }
}
