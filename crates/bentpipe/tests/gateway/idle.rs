//! A pair that is idle from its start is not taken for dead.

use super::row::{Row, SERVER};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const METRICS: &str = "metrics = \"127.0.0.1:9464\"\nfail = \"closed\"\n";

pub fn run(full: bool) {
    for rate in ["10 Mbit/s", "50 Mbit/s"] {
        let link = format!(
            "mtu = \"1500 B\"\nframing = \"none\"\nqueue = {{ bytes = \"1 MB\" }}\nrate = \"{rate}\"\n\
             one_way_delay = \"300 ms\"\n"
        );
        let row = Row::over(&link);
        row.make_pair_on("", 4433, &link, [METRICS, METRICS], "");
        let [mut hub, mut terminal] = row.start_pair();
        for idle in [5, 60].into_iter().take(if full { 2 } else { 1 }) {
            let packets = || [1, 2].map(|site| row.metric_at(site, "link_packets_sent_total").unwrap());
            let before = packets();
            std::thread::sleep(Duration::from_secs(idle));
            assert_eq!(hub.count_lines("silent") + terminal.count_lines("silent"), 0, "{rate}, {idle} s");
            let after = packets();
            for (site, (before, after)) in [1, 2].into_iter().zip(before.into_iter().zip(after)) {
                assert!(after - before <= 10.0, "{rate}, {idle} s: {before} packets before, {after} after");
                let round_trip = row.metric_at(site, "round_trip_seconds").unwrap();
                assert!((0.59..0.9).contains(&round_trip), "{rate}, {idle} s: {round_trip} s");
            }
            println!("{rate}, idle for {idle} s: {before:?} packets before, {after:?} after, nobody silent");
        }
        // A request and its answer: two round trips with the connection's opening.
        let begun = Instant::now();
        let (mut near, mut far) = row.ends(SERVER[0], 90);
        near.write_all(b"hello").unwrap();
        far.read_exact(&mut [0; 5]).unwrap();
        println!("connected, and a word there, in {:.2?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_millis(1800), "{:?}", begun.elapsed());
        assert_eq!(row.metric("requests_bypassed_total"), Some(0.0));
        assert_eq!(row.metric("requests_turned_away_total"), Some(0.0));
    }
}
