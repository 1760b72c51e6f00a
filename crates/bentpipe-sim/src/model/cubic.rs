//! CUBIC's response to loss.
//!
//! RFC 8312 §5, equation 5 (RFC 9438 §5 keeps it): losses at even distances, the window always in its concave part.

use super::probability;
use bentpipe_net::time::Duration;

/// The scale of the cubic function (RFC 9438 §4.1.1), in segments per second cubed.
pub const C: f64 = 0.4;
/// The share of the window that remains after a loss (RFC 9438 §4.6).
pub const BETA: f64 = 0.7;

/// Average window in segments: the larger of `[C·(3+β) / (4·(1−β))]^¼ · (RTT/p)^¾` and Reno's `√(3/2p)`, below which CUBIC
/// does not fall (its Reno-friendly region). `None` when `p` is zero.
///
/// Holds for long transfers without time-outs, limited neither by window nor link, when every segment is acknowledged.
/// Losses at random instead of even distances change the constant; nothing here corrects that. Range: `rtt` above zero.
#[must_use]
pub fn average_window(rtt: Duration, p: f64) -> Option<f64> {
    let p = probability(p);
    assert!(rtt.ns > 0, "a round trip of no time has no window");
    if p == 0.0 {
        return None;
    }
    let factor = (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25);
    let cubic = factor * (rtt.as_secs_f64() / p).powf(0.75);
    Some(cubic.max((1.5 / p).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_tables_of_rfc_8312() {
        // Tables 1 and 2, column C = 0.4. The tables take Reno's constant as 1.2, not √1.5 = 1.2247: up to 2.1 % apart
        // there, and the printed values are rounded.
        let table_1 = [(1e-2, 12.0), (1e-3, 38.0), (1e-4, 187.0), (1e-5, 1054.0), (1e-6, 5926.0), (1e-8, 187_400.0)];
        let table_2 = [(1e-2, 12.0), (1e-3, 38.0), (1e-4, 120.0), (1e-5, 379.0), (1e-6, 1200.0), (1e-8, 33_325.0)];
        for (ms, table) in [(100, table_1), (10, table_2)] {
            for (p, published) in table {
                let window = average_window(Duration::from_millis(ms), p).unwrap();
                assert!((window / published - 1.0).abs() < 0.022, "{ms} ms, {p}: {window}, published {published}");
            }
        }
        assert_eq!(average_window(Duration::from_millis(100), 0.0), None);
    }

    proptest! {
        #[test]
        fn finite_and_falling(ns in 1u64..1 << 50, p in 1e-12f64..0.5) {
            let rtt = Duration::from_nanos(ns);
            let window = average_window(rtt, p).unwrap();
            prop_assert!(window.is_finite() && window > 0.0);
            prop_assert!(average_window(rtt, p * 1.9).unwrap() <= window);
        }
    }
}
