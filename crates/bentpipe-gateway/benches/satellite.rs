//! The satellite side's cases at full size, in virtual time: results compared with what the links allow.
//!
//! `cargo bench -p bentpipe-gateway --bench satellite [SEEDS]`

#[path = "../tests/satellite/support.rs"]
mod support;

use bentpipe_gateway::satellite::quic::Crypto;
use bentpipe_gateway::satellite::{Class, Satellite};
use support::*;

const GEO: &str = "rate = \"10 Mbit/s\"\none_way_delay = \"300 ms\"\nqueue = { bytes = \"750 kB\" }\nmtu = \"1500 B\"\n\
                   framing = \"none\"\n";

fn main() {
    let seeds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(3);
    geostationary(seeds);
    first_byte();
    t1(seeds);
    fast(seeds);
    shared();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn geo(loss: f64, seed: u64) -> World {
    let text = format!("{GEO}loss = \"{} %\"\n", loss * 100.0);
    World::with(&text, seed, Crypto::Model(7), |config| config.loss = loss)
}

fn geostationary(seeds: u64) {
    println!("10 Mbit/s, 300 ms one way, 20 MB, median of {seeds} seeds");
    for loss in [0.0, 0.001, 0.01] {
        let runs: Vec<[f64; 3]> = (1..=seeds)
            .map(|seed| {
                let mut world = geo(loss, seed);
                world.connect();
                let before = world.link_bytes();
                let time = world.fetch(1, 100, 20_000_000, 60.0)[0];
                let after = world.link_bytes();
                let [forward, back] = [0, 1].map(|side| (after[side] - before[side]) as f64 / 20e6);
                [160.0 / time, forward, back]
            })
            .collect();
        let column = |i: usize| median(runs.iter().map(|run| run[i]).collect());
        println!(
            "  loss {:>5.1} %: {:.2} Mbit/s; link bytes per byte {:.4} forward, {:.4} return",
            loss * 100.0,
            column(0),
            column(1),
            column(2)
        );
    }
}

fn first_byte() {
    let mut world = geo(0.01, 1);
    world.connect();
    let mut times: Vec<f64> = (0..1000)
        .map(|_| {
            let time = world.fetch(1, 100, 1000, 10.0)[0];
            let until = world.now + seconds(1.0);
            world.run(until, |_| false);
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "1 kB answers at 1 %, of 1000: median {:.3} s, 99 % {:.3} s, worst {:.3} s",
        times[500], times[990], times[999]
    );
}

fn t1(seeds: u64) {
    println!("T1, 250 ms one way, 5 MB, median of {seeds} seeds");
    for ratio in [0.0, 1e-7, 1e-6, 1e-5] {
        let text = format!(
            "rate = \"1.536 Mbit/s\"\none_way_delay = \"250 ms\"\nqueue = {{ bytes = \"128 kB\" }}\nmtu = \"1500 B\"\n\
             framing = \"ppp\"\nnoise = {ratio:e}\n"
        );
        let loss = 1.0 - (1.0f64 - ratio).powi(1507 * 8);
        let times = (1..=seeds)
            .map(|seed| {
                let mut world = World::with(&text, seed, Crypto::Model(7), |config| config.loss = loss);
                world.connect();
                world.fetch(1, 100, 5_000_000, 120.0)[0]
            })
            .collect();
        let time = median(times);
        let best = (300..=1448)
            .map(|payload| {
                let wire = f64::from(payload) + 52.0 + 7.0;
                f64::from(payload) / wire * (1.0 - ratio).powf(wire * 8.0)
            })
            .fold(0.0, f64::max);
        let whole = 40e6 / time / 1.536e6;
        let without = 40e6 / (time - 0.5) / 1.536e6;
        println!("  {ratio:e}: share {whole:.3} ({without:.3} without the request's round trip), best {best:.3}");
    }
}

fn fast(seeds: u64) {
    println!("250/3 Mbit/s, 300 ms one way, loss both ways, 100 MB, median of {seeds} seeds");
    for loss in [0.0, 0.01] {
        let text = format!(
            "one_way_delay = \"300 ms\"\nmtu = \"1500 B\"\nframing = \"none\"\nloss = \"{} %\"\n\
             [forward]\nrate = \"250 Mbit/s\"\nqueue = {{ bytes = \"4 MB\" }}\n\
             [return]\nrate = \"3 Mbit/s\"\nqueue = {{ bytes = \"250 kB\" }}\n",
            loss * 100.0
        );
        let times = (1..=seeds)
            .map(|seed| {
                let mut world = World::with(&text, seed, Crypto::Model(7), |config| config.loss = loss);
                world.connect();
                world.fetch(1, 100, 100_000_000, 60.0)[0]
            })
            .collect();
        println!("  loss {:>3.0} %: {:.2} s", loss * 100.0, median(times));
    }
}

fn shared() {
    for loss in [0.0, 0.01] {
        let mut world = geo(loss, 1);
        world.connect();
        let times = world.fetch(100, 100, 100_000, 60.0);
        let sum: f64 = times.iter().sum();
        let squares: f64 = times.iter().map(|time| time * time).sum();
        let last = times.iter().copied().fold(0.0, f64::max);
        println!(
            "100 streams of 100 kB, loss {:.0} %: {last:.2} s, Jain {:.5}",
            loss * 100.0,
            sum * sum / (100.0 * squares)
        );
    }
    let mut world = geo(0.0, 1);
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 20_000_000);
    world.run(start + seconds(3.0), |_| false);
    world.hub().answer = 1000;
    let now = world.now;
    let id = world.terminal().open(now, Class::Interactive, 1000);
    world.run(now + seconds(5.0), |world| world.stations[TERMINAL].flows.get(&id).is_some_and(|f| f.ended.is_some()));
    println!("1 kB request under bulk: {:.3} s", world.now.since(now).as_secs_f64());
    println!("room of a bulk stream: {} bytes", world.hub().satellite.room(id));
}
