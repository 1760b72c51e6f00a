//! Reno: slow start and congestion avoidance of RFC 5681, counted as Linux counts them (`tcp_cong.c`).

use super::{Ack, CongestionControl, Window};
use bentpipe_net::time::Instant;

/// RFC 5681. It keeps nothing of its own: the window is all its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reno;

impl CongestionControl for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        grow(ack, window);
    }

    fn ssthresh(&mut self, _now: Instant, window: &Window) -> u32 {
        halved(window)
    }
}

/// Slow start up to the threshold, then one segment a window; nothing if the window was not the limit.
pub(super) fn grow(ack: &Ack, window: &mut Window) {
    if !ack.window_limited {
        return;
    }
    let mut segments = ack.newly_delivered;
    if window.in_slow_start() {
        segments = window.slow_start(segments.min(ack.growth_limit));
        if segments == 0 {
            return;
        }
    }
    window.additive_increase(window.cwnd, segments.min(ack.avoidance_limit));
}

/// RFC 5681 §3.1 (4), with the window for the flight size as Linux has it: half of it, at least 2.
pub(super) fn halved(window: &Window) -> u32 {
    (window.cwnd / 2).max(2)
}

#[cfg(test)]
mod tests {
    use super::super::toy_path::Rounds;
    use super::*;
    use bentpipe_net::time::Duration;

    fn rounds(cwnd: u32, ssthresh: u32) -> Rounds {
        Rounds::new(Duration::from_millis(600), Window { cwnd, ssthresh, credit: 0 })
    }

    #[test]
    fn slow_start_doubles_in_a_round() {
        let mut path = rounds(10, u32::MAX);
        let seen: Vec<u32> = (0..5).map(|_| path.round(&mut Reno)).collect();
        assert_eq!(seen, [20, 40, 80, 160, 320]);
    }

    #[test]
    fn avoidance_adds_one_in_a_round() {
        let mut path = rounds(20, 20);
        let seen: Vec<u32> = (0..4).map(|_| path.round(&mut Reno)).collect();
        assert_eq!(seen, [21, 22, 23, 24]);
    }

    #[test]
    fn leftover_of_slow_start_counts_in_avoidance() {
        let mut path = rounds(14, 16);
        path.segments_per_ack = 14;
        path.round(&mut Reno);
        assert_eq!((path.window.cwnd, path.window.credit), (16, 12));
    }

    #[test]
    fn byte_counting_limits_slow_start() {
        for (limit, expected) in [(0, 10), (1, 15), (2, 20), (u32::MAX, 20)] {
            let mut path = rounds(10, u32::MAX);
            path.segments_per_ack = 2;
            path.growth_limit = limit;
            assert_eq!(path.round(&mut Reno), expected, "limit {limit}");
        }
    }

    #[test]
    fn a_window_that_did_not_limit_stays() {
        for ssthresh in [5, u32::MAX] {
            let mut path = rounds(10, ssthresh);
            path.window_limited = false;
            assert_eq!(path.round(&mut Reno), 10);
        }
    }

    #[test]
    fn a_loss_halves() {
        for (cwnd, expected) in [(1, 2), (3, 2), (5, 2), (10, 5), (101, 50)] {
            assert_eq!(Reno.ssthresh(Instant::ZERO, &Window { cwnd, ssthresh: u32::MAX, credit: 0 }), expected);
        }
    }
}
