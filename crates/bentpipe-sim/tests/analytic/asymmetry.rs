//! A thin return link: RFC 3449 §2.

use crate::pair::{MSS, Open, Pair, link, reno};
use crate::table::{self, permille};
use bentpipe_apps::bulk::Amount;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitRate, DataSize};
use bentpipe_sim::model::asymmetry::forward_limit;
use std::fmt::Write;

#[test]
fn acknowledgements_limit_the_forward_rate() {
    let mut text = String::from("rates in bit/s; deviation in tenths of a percent\n");
    text.push_str("return ack every   model simulated  dev\n");
    for back in [4800u64, 8000, 16_000] {
        let config = link(&format!(
            "one_way_delay = '250 ms'\nrate = '10 Mbit/s'\nqueue = {{ bytes = '1 MB' }}\n[return]\nrate = '{back} bit/s'"
        ));
        for every in [1, 2] {
            let more = format!("ack_every = {every}\nreceive_window = '256 KiB'\nwindow_scaling = true");
            let mut pair = Pair::download(&config, &reno(&more), Amount::Bytes(8_000_000), 1, &mut Open);
            assert!(pair.run_until(Instant::ZERO + Duration::from_secs(10_000), &mut Open));
            let seen = pair.measured("goodput_steady").unwrap();
            let model = forward_limit(BitRate::from_bps(back), 40 * 8, DataSize::from_bytes(MSS), every).bps as f64;
            writeln!(text, "{back:6} {every:9} {:7} {:9} {:4}", model as u64, seen as u64, permille(seen, model))
                .unwrap();
            assert!((seen / model - 1.0).abs() < 0.02, "{back} bit/s, {every}: {seen} and {model}");
        }
    }
    table::check("asymmetry", &text);
}
