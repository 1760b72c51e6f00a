//! The square-root law of TCP in congestion avoidance.
//!
//! M. Mathis, J. Semke, J. Mahdavi, T. Ott: "The macroscopic behavior of the TCP congestion avoidance algorithm", ACM
//! Computer Communication Review 27(3), 1997.

use super::probability;
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, DataSize};

/// C for one acknowledgement per `segments_per_ack` segments, losses at even distances: `√(3 / 2b)`; √(3/2) = 1.22 when
/// every segment is acknowledged, √(3/4) = 0.87 with delayed acknowledgements. The paper's other constants (1.31, 0.93)
/// are for losses at random; they are not used here.
#[must_use]
pub fn constant(segments_per_ack: u32) -> f64 {
    (1.5 / f64::from(segments_per_ack.max(1))).sqrt()
}

/// Rate of a long transfer: `MSS/RTT · C/√p`; `None` when `p` is zero, for then losses limit nothing.
///
/// Holds for Reno-like congestion avoidance with light to moderate loss, recovered without a time-out, when neither the
/// window nor the link limits. It overestimates as soon as time-outs matter (then use [`super::pftk`]) and says nothing of
/// a transfer that sees few losses (then use [`super::cardwell`]). Range: `rtt` above zero, `0 ≤ p < 1`.
#[must_use]
pub fn rate(mss: DataSize, rtt: Duration, p: f64, segments_per_ack: u32) -> Option<BitRate> {
    let p = probability(p);
    assert!(rtt.ns > 0, "a round trip of no time has no rate");
    if p == 0.0 {
        return None;
    }
    let bps = mss.bytes as f64 * 8.0 / rtt.as_secs_f64() * constant(segments_per_ack) / p.sqrt();
    Some(BitRate::from_bps(bps as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hand_computed_rate() {
        // 1460 B · 8 = 11,680 bits in 0.5 s = 23,360 bit/s a segment; √1.5 = 1.2247449; √0.0001 = 0.01:
        // 23,360 · 122.47449 = 2,861,004.0; with delayed acknowledgements √0.75 = 0.8660254: 2,023,035.3.
        let (mss, rtt) = (DataSize::from_bytes(1460), Duration::from_millis(500));
        assert_eq!(rate(mss, rtt, 1e-4, 1).unwrap().bps, 2_861_004);
        assert_eq!(rate(mss, rtt, 1e-4, 2).unwrap().bps, 2_023_035);
        assert_eq!(rate(mss, rtt, 0.0, 1), None);
    }

    #[test]
    #[should_panic(expected = "no loss probability")]
    fn a_probability_of_one_is_a_mistake() {
        let _ = rate(DataSize::from_bytes(1460), Duration::from_millis(500), 1.0, 1);
    }

    proptest! {
        #[test]
        fn falls_with_loss_and_delay(mss in 40u64..65_000, ms in 1u64..10_000, p in 1e-9f64..0.5, b in 1u32..8) {
            let (mss, rtt) = (DataSize::from_bytes(mss), Duration::from_millis(ms));
            let here = rate(mss, rtt, p, b).unwrap();
            prop_assert!(rate(mss, rtt, p * 1.9, b).unwrap() <= here);
            prop_assert!(rate(mss, Duration::from_millis(ms * 2), p, b).unwrap() <= here);
            prop_assert!(rate(mss, rtt, p, b + 1).unwrap() <= here);
        }
    }
}
