//! The window's limit: ⌊W/MSS⌋·MSS in a round trip.
//!
//! 8 KiB are five segments. When every second one is acknowledged, the fifth waits for the timer (200 ms) in each round, and
//! the transfer is 7 to 10 % slower than the window allows: the formula is a bound then. With many segments that is nothing.

use crate::pair::{MSS, Open, Pair, link, reno};
use crate::table::{self, permille};
use bentpipe_apps::bulk::Amount;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitRate, DataSize};
use bentpipe_sim::model::window::window_limit;
use std::fmt::Write;

/// Fast enough that no window fills it.
const RATE: BitRate = BitRate::from_bps(100_000_000);

#[test]
fn the_window_limits_the_steady_rate() {
    let mut text = String::from("goodput in bit/s; deviation in tenths of a percent\n");
    text.push_str("round trip window/KiB segments ack every     model  simulated  dev\n");
    let mut worst: f64 = 0.0;
    for delay in [250u64, 300] {
        let config = link(&format!("rate = '100 Mbit/s'\none_way_delay = '{delay} ms'\nqueue = {{ bytes = '1 MB' }}"));
        let segment = RATE.time_for_bits(1500 * 8);
        let ack = RATE.time_for_bits(40 * 8);
        let rtt = Duration::from_millis(2 * delay) + segment + ack;
        for kib in [8u64, 24, 64, 256] {
            let window = kib * 1024;
            for every in [1, 2] {
                let more = format!("receive_window = '{window} B'\nwindow_scaling = true\nack_every = {every}");
                let amount = Amount::Bytes(window * 500);
                let mut pair = Pair::download(&config, &reno(&more), amount, 1, &mut Open);
                assert!(pair.run_until(Instant::ZERO + Duration::from_secs(10_000), &mut Open));
                let seen = pair.measured("goodput_steady").unwrap();
                let model = window_limit(DataSize::from_bytes(window), DataSize::from_bytes(MSS), rtt).bps as f64;
                writeln!(
                    text,
                    "{:10} {kib:10} {:8} {every:9} {:9} {:10} {:4}",
                    2 * delay,
                    window / MSS,
                    model as u64,
                    seen as u64,
                    permille(seen, model)
                )
                .unwrap();
                if (kib, every) == (8, 2) {
                    assert!(seen < model);
                } else {
                    worst = worst.max((seen / model - 1.0).abs());
                }
            }
        }
    }
    table::check("window", &text);
    assert!(worst < 0.01, "{worst}");
}
