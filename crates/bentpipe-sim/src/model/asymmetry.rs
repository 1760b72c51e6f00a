//! The effect of a thin return link on the forward one: acknowledgements need room.
//!
//! H. Balakrishnan et al.: RFC 3449, "TCP Performance Implications of Network Path Asymmetry", §2.

use bentpipe_net::units::{BitRate, DataSize};

/// The normalised bandwidth ratio k: the ratio of the two raw rates over the ratio of the sizes of segment and
/// acknowledgement, both as framed. With fewer than k segments an acknowledgement, the return link is full before the
/// forward one (RFC 3449 §2). Rates and sizes must be above zero.
#[must_use]
pub fn normalised_ratio(forward: BitRate, back: BitRate, segment_bits: u64, ack_bits: u64) -> f64 {
    assert!(back.bps > 0 && segment_bits > 0, "a ratio needs a return rate and a segment size above zero");
    forward.bps as f64 / back.bps as f64 * ack_bits as f64 / segment_bits as f64
}

/// Most application bits a second that the return link can acknowledge: `rate / ack_bits` acknowledgements a second, each
/// for `segments_per_ack` segments of `payload` bytes; rounded down.
///
/// RFC 3449 §2, as an equation. Assumes that no acknowledgement is lost or dropped at a full queue. When some are, those
/// that arrive stand for more segments, and the transfer can be faster than this, in bursts; a queue of acknowledgements
/// also lengthens the round trip. Nothing else uses the return link.
#[must_use]
pub fn forward_limit(back: BitRate, ack_bits: u64, payload: DataSize, segments_per_ack: u32) -> BitRate {
    let segment = u128::from(payload.bytes) * 8 * u128::from(segments_per_ack.max(1));
    let bps = u128::from(back.bps).saturating_mul(segment) / u128::from(ack_bits.max(1));
    BitRate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 3449 §2: 10 Mbit/s down, 50 kbit/s up, 1000-byte segments, 40-byte acknowledgements: 200 / 25 = 8.
        let k = normalised_ratio(BitRate::from_bps(10_000_000), BitRate::from_bps(50_000), 8000, 320);
        assert_eq!(k, 8.0);
    }

    #[test]
    fn the_limit_meets_the_forward_rate_at_k() {
        // 50,000 / 320 = 156.25 acknowledgements a second; 8 segments of 1000 B each: 10 Mbit/s. One each: an eighth.
        let (back, payload) = (BitRate::from_bps(50_000), DataSize::from_bytes(1000));
        assert_eq!(forward_limit(back, 320, payload, 8).bps, 10_000_000);
        assert_eq!(forward_limit(back, 320, payload, 1).bps, 1_250_000);
    }

    proptest! {
        #[test]
        fn never_fails_and_grows_with_the_return_link(
            bps in 1u64..u64::MAX / 2, bits in 1u64..1 << 20, payload in 0u64..1 << 20, d in 1u32..1000,
        ) {
            let limit = |bps| forward_limit(BitRate::from_bps(bps), bits, DataSize::from_bytes(payload), d);
            prop_assert!(limit(bps) <= limit(bps * 2));
            prop_assert!(normalised_ratio(BitRate::from_bps(bps), BitRate::from_bps(bps), bits, bits) == 1.0);
        }
    }
}
