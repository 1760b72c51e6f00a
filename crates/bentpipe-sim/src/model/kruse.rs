//! The model that Kruse drew with his FTP and XFTP measurements: slow start, a sliding window, several connections.
//!
//! H. Kruse: "Data communications protocol performance on geostationary satellite links: lessons learned using ACTS",
//! figures 1 and 2. The paper describes its model in words and prints no equation: "a model which incorporates the flow
//! control in TCP (a 24KByte sliding window) and the slow start congestion control mechanism" (figure 1), "a model
//! calculation including slow-start, TCP window size, and multi-socket operation" (figure 2). It names no losses.
//!
//! This is those words as arithmetic. The `N` connections move in step, each with `1/N` of the file. In round `i` each may
//! have `w_i = min(w_1·γ^i, ⌊W/MSS⌋)` segments in flight; a round carries `N·w_i` segments and takes a round trip, or
//! their sending time when that is longer, for then the link is full:
//!
//! ```text
//! T = s·RTT + Σ max(RTT, 8·N·w_i·MSS / R)  over all rounds but the last  + RTT + 8·(rest − MSS) / R
//! throughput = 8·file / T
//! ```
//!
//! Arguments stand for the values that the paper leaves open: the segment size, the initial window `w_1`, the growth
//! `γ` and the round trips `s` before the data. Time ends when the sender has the last acknowledgement. Above 8
//! connections the paper measured less than the model, because routers dropped packets: there are no losses here, so
//! the model does not show that.

use super::window::whole_segments;
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, DataSize};

/// A file over one or more connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Application bytes. The paper: 500 KB to 10 MB, and 2 and 5 MB over several connections.
    pub file: DataSize,
    /// Application bytes a segment, above zero. Not in the paper; 1460 is what its Ethernets allow.
    pub mss: DataSize,
    /// Round trip of a full segment and its acknowledgement, above zero. The paper: "about 250 msec" one way.
    pub rtt: Duration,
    /// Application bits a second that the link carries (framing taken off), above zero.
    pub payload_rate: BitRate,
    /// The sliding window of each connection, `None` for no limit. The paper: 24 KB.
    pub window: Option<DataSize>,
    /// N, at least one. The paper: up to 8 and beyond.
    pub connections: u32,
    /// w_1, in segments, at least one. Not in the paper; one in TCP of the time (RFC 2001).
    pub initial_window: u32,
    /// γ, 1.01 to 2: 2 when every segment is acknowledged, 1.5 when every second one is. Not in the paper.
    pub growth: f64,
    /// s: round trips before the first data: one for TCP's handshake, more for FTP's commands. Not in the paper.
    pub set_up_round_trips: u32,
}

/// The time T of the transfer; 584 years, the most that a [`Duration`] holds, when it is longer.
#[must_use]
pub fn transfer_time(transfer: &Transfer) -> Duration {
    let Transfer { file, mss, rtt, payload_rate, window, connections, initial_window, growth, set_up_round_trips } =
        *transfer;
    assert!(mss.bytes > 0 && rtt.ns > 0 && payload_rate.bps > 0, "segments, round trips and rates are above zero");
    assert!(connections >= 1 && initial_window >= 1, "at least one connection and one segment");
    assert!((1.01..=2.0).contains(&growth), "{growth} is no growth of slow start; allowed: 1.01 to 2");
    let mss = mss.bytes as f64;
    let together = f64::from(connections);
    let limit = window.map_or(f64::INFINITY, |w| whole_segments(w, transfer.mss).bytes.max(1) as f64);
    let (rtt, rate) = (rtt.as_secs_f64(), payload_rate.bps as f64 / 8.0);
    let mut left = file.bytes as f64;
    let mut each = (f64::from(initial_window) * mss).min(limit);
    let mut time = f64::from(set_up_round_trips) * rtt;
    while each < limit && left > each * together {
        time += rtt.max(each * together / rate);
        left -= each * together;
        each = (each * growth).min(limit);
    }
    // From here on every round is the same: all but the last at once.
    let round = each * together;
    let full = ((left / round).ceil() - 1.0).max(0.0);
    time += full * rtt.max(round / rate);
    left -= full * round;
    time += rtt + (left - mss).max(0.0) / rate;
    Duration::from_secs_f64(time)
}

/// Application bits a second over the whole time: `8·file / T`, rounded down.
#[must_use]
pub fn throughput(transfer: &Transfer) -> BitRate {
    let bits = u128::from(transfer.file.bytes) * 8;
    let bps = bits * 1_000_000_000 / u128::from(transfer_time(transfer).ns.max(1));
    BitRate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Kruse's T1 link, 500 ms and what a segment and its acknowledgement take to send at 1.536 Mbit/s in PPP.
    const T1: Transfer = Transfer {
        file: DataSize::from_bytes(10_000_000),
        mss: DataSize::from_bytes(1460),
        rtt: Duration::from_nanos(508_093_750),
        payload_rate: BitRate::from_bps(1_488_095),
        window: Some(DataSize::from_bytes(24_576)),
        connections: 1,
        initial_window: 1,
        growth: 2.0,
        set_up_round_trips: 1,
    };

    #[test]
    fn a_hand_computed_file() {
        // Segments of 1000 B, RTT 0.5 s, 80 kbit/s = 10,000 B/s, window 4000 B. Rounds of 1, 2, 4, 4, … segments:
        // a full window takes 0.4 s to send, so every round is a round trip. 20 segments: 1 + 2 + 4·4 = 19 before the
        // last, so six rounds of 0.5 s, then one segment: 0.5 s. With one round trip of set-up 4.0 s: 40 kbit/s.
        let small = Transfer {
            file: DataSize::from_bytes(20_000),
            mss: DataSize::from_bytes(1000),
            rtt: Duration::from_millis(500),
            payload_rate: BitRate::from_bps(80_000),
            window: Some(DataSize::from_bytes(4999)),
            ..T1
        };
        assert_eq!(transfer_time(&small), Duration::from_secs(4));
        assert_eq!(throughput(&small).bps, 40_000);
        // Two connections: 2, 4, then 8 segments take 0.8 s: 0.5 + 0.5 + 0.5 + 0.8, 6 left: 0.5 + 5·0.1 = 3.3 s.
        let two = Transfer { connections: 2, ..small };
        assert_eq!(transfer_time(&two), Duration::from_millis(3300));
        // Without a limit, one connection: 1, 2, 4 (0.5 s each), 8 (0.8 s), then 5: 0.5 + 0.4; set-up 0.5: 3.7 s.
        assert_eq!(transfer_time(&Transfer { window: None, ..small }), Duration::from_millis(3700));
    }

    #[test]
    fn slow_start_alone_counts_rounds() {
        // 2^n − 1 segments from one take n rounds; a fast link adds nothing to speak of.
        for n in 1..16u32 {
            let file = DataSize::from_bytes(((1 << n) - 1) * 1460);
            let fast = Transfer { file, window: None, payload_rate: BitRate::from_bps(1 << 60), ..T1 };
            let rounds = transfer_time(&fast).as_secs_f64() / T1.rtt.as_secs_f64();
            assert!((rounds - f64::from(n + 1)).abs() < 1e-6, "{n}: {rounds}");
        }
    }

    #[test]
    fn what_the_paper_says_of_its_figures() {
        // Figure 1: "almost no performance improvement between a 384kbps channel and a full T1" (KRUSE-2). The segment
        // takes 31.4 ms to send at 384 kbit/s and the acknowledgement 1 ms.
        let slow = Transfer { rtt: Duration::from_nanos(532_375_000), payload_rate: BitRate::from_bps(372_023), ..T1 };
        let gain = throughput(&T1).bps as f64 / throughput(&slow).bps as f64;
        assert!((1.0..1.1).contains(&gain), "{gain}");
        // "the performance for small files is substantially poorer than for larger ones" (KRUSE-3): 500 KB and 10 MB.
        // With every segment acknowledged that is 11 % (slow start costs a 24 KB window three round trips or so).
        let small = throughput(&Transfer { file: DataSize::from_bytes(500_000), ..T1 });
        assert!(small.bps < throughput(&T1).bps * 9 / 10, "{small} {}", throughput(&T1));
        // Figure 2: the peak, at 8 connections, is about 90 % of T1 (KRUSE-4); the model's 5 MB are within 5 points.
        let eight = throughput(&Transfer { file: DataSize::from_bytes(5_000_000), connections: 8, ..T1 });
        let share = eight.bps as f64 / 1_536_000.0;
        assert!((0.85..0.95).contains(&share), "{share}");
    }

    #[test]
    fn a_huge_file_approaches_the_window_limit() {
        use super::super::window::rate_limit;
        let huge = Transfer { file: DataSize::from_bytes(1 << 45), ..T1 };
        let limit = rate_limit(T1.window.unwrap(), T1.mss, T1.rtt, T1.payload_rate);
        assert!((throughput(&huge).bps as f64 / limit.bps as f64 - 1.0).abs() < 1e-5);
        let full = Transfer { connections: 8, ..huge };
        assert!((throughput(&full).bps as f64 / T1.payload_rate.bps as f64 - 1.0).abs() < 1e-5);
    }

    proptest! {
        #[test]
        fn between_the_bounds(
            file in 0u64..1 << 50, mss in 1u64..65_000, ns in 1u64..1 << 40, rate in 1u64..1 << 40,
            window in proptest::option::of(0u64..1 << 30), connections in 1u32..100, initial_window in 1u32..1000,
            growth in 1.01f64..=2.0, set_up_round_trips in 0u32..10,
        ) {
            let transfer = Transfer {
                file: DataSize::from_bytes(file),
                mss: DataSize::from_bytes(mss),
                rtt: Duration::from_nanos(ns),
                payload_rate: BitRate::from_bps(rate),
                window: window.map(DataSize::from_bytes),
                connections,
                initial_window,
                growth,
                set_up_round_trips,
            };
            let time = transfer_time(&transfer).as_secs_f64();
            // Never faster than the link, nor than a round trip and the set-up.
            let least = ns as f64 / 1e9 * f64::from(1 + set_up_round_trips);
            let sending = (file as f64 - mss as f64).max(0.0) * 8.0 / rate as f64;
            prop_assert!(time.is_finite() && time >= least * (1.0 - 1e-9) && time >= sending.min(1.8e10) * (1.0 - 1e-9) - 1e-9);
        }
    }
}
