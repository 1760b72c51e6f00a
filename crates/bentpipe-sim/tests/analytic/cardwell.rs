//! The time of short transfers: Cardwell et al. 2000.
//!
//! Time runs from the client's SYN to the last byte at the client, in both. One segment first, growth 1.5 a round trip
//! (every second segment acknowledged, one segment an acknowledgement), 200 ms for the first delayed acknowledgement.

use crate::lossy::{Lossy, Process};
use crate::pair::{MSS, Pair, T1, T1_ROUND_TRIP, link, reno};
use crate::table::{self, permille, thousandths};
use bentpipe_apps::bulk::Amount;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::DataSize;
use bentpipe_sim::model::cardwell::{self, Latency, Losses, Transfer};
use bentpipe_sim::model::pftk::Flow;
use std::fmt::Write;

const FILES: [u64; 7] = [10_000, 11_680, 30_000, 100_000, 300_000, 1_000_000, 2_800_000];

fn model(file: u64, p: f64, timeout: f64) -> Latency {
    let transfer = Transfer {
        file: DataSize::from_bytes(file),
        mss: DataSize::from_bytes(MSS),
        flow: Flow {
            rtt: T1_ROUND_TRIP,
            timeout: Duration::from_secs_f64(timeout),
            window_segments: (65_535 / MSS) as f64,
            segments_per_ack: 2,
        },
        initial_window: 1,
        growth: 1.5,
        syn_timeout: Duration::from_secs(1),
        delayed_ack: Duration::from_millis(200),
    };
    cardwell::latency(&transfer, &Losses { data: p, ..Losses::default() }).unwrap()
}

/// Mean time, and mean first time-out (1 s if there was none), of transfers that differ in their losses.
fn simulate(file: u64, p: f64, process: Process, more: &str, runs: u64) -> (f64, f64) {
    let (config, tcp) = (link(T1), reno(more));
    let (mut time, mut timeouts, mut timeout_sum) = (0.0, 0, 0.0);
    for seed in 0..runs {
        let mut tap = Lossy::new(p, process, seed);
        let mut pair = Pair::download(&config, &tcp, Amount::Bytes(file), seed, &mut tap);
        assert!(pair.run_until(Instant::ZERO + Duration::from_secs(10_000), &mut tap), "seed {seed}");
        time += pair.measured("completion_time").unwrap();
        timeouts += tap.seen.timeout_sequences;
        timeout_sum += tap.seen.first_timeout_sum;
    }
    (time / runs as f64, if timeouts > 0 { timeout_sum / timeouts as f64 } else { 1.0 })
}

/// 5 %, from 10 kB to 2.8 MB, without loss. The model counts fractions of a round trip: 10 kB take it 3.71 round trips of
/// slow start, where there can only be four; with these four it is within 5 % too.
#[test]
fn transfers_without_loss() {
    let mut text = String::from("times in ms; deviations in tenths of a percent\n");
    text.push_str("   file simulated  model  dev rounds/100\n");
    for file in FILES {
        let (seen, _) = simulate(file, 0.0, Process::Independent, "", 1);
        let parts = model(file, 0.0, 1.0);
        let expected = parts.total().as_secs_f64();
        let rounds = parts.slow_start.as_secs_f64() / T1_ROUND_TRIP.as_secs_f64();
        writeln!(
            text,
            "{file:7} {:9} {:6} {:4} {:10}",
            thousandths(seen),
            thousandths(expected),
            permille(seen, expected),
            (rounds * 100.0).round()
        )
        .unwrap();
        let whole = if file == 10_000 { (rounds.ceil() - rounds) * T1_ROUND_TRIP.as_secs_f64() } else { 0.0 };
        let deviation = seen / (expected + whole) - 1.0;
        assert!(deviation.abs() < 0.05, "{file} B: {seen:.3} s, model {expected:.3} s");
    }
    table::check("cardwell", &text);
}

/// Shown without a tolerance: what holds for PFTK holds for the part of the transfer that it describes.
#[test]
fn transfers_with_loss_on_the_same_link() {
    let mut text = String::from("p in 1e-3; times in ms, means; deviations in tenths of a percent\n");
    text.push_str(
        " p    file runs | rounds: reno  model  dev | rounds: sack  model  dev | independent: reno  model  dev\n",
    );
    for p in [0.001, 0.005, 0.01, 0.02] {
        for file in [30_000, 100_000, 300_000, 1_000_000, 2_800_000] {
            let runs = (12_000_000 / file).clamp(10, 200);
            write!(text, "{:2} {file:7} {runs:4}", thousandths(p)).unwrap();
            let rounds = Process::Rounds(T1_ROUND_TRIP);
            for (process, more) in [(rounds, ""), (rounds, "sack = true"), (Process::Independent, "")] {
                let (seen, timeout) = simulate(file, p, process, more, runs);
                let expected = model(file, p, timeout).total().as_secs_f64();
                let (seen_ms, expected_ms) = (thousandths(seen), thousandths(expected));
                write!(text, " | {seen_ms:12} {expected_ms:6} {:4}", permille(seen, expected)).unwrap();
            }
            text.push('\n');
        }
    }
    table::check("cardwell-loss", &text);
}
