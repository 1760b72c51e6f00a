//! The window's limit: one window a round trip, and never more than the link carries.

use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, DataSize};

/// Application bits a second that a link of `rate` carries when every segment of `payload` bytes takes `framed_bits` on
/// the wire: `rate · 8·payload / framed_bits`, rounded down.
#[must_use]
pub fn payload_rate(rate: BitRate, payload: DataSize, framed_bits: u64) -> BitRate {
    let bps = u128::from(rate.bps) * u128::from(payload.bytes) * 8 / u128::from(framed_bits.max(1));
    BitRate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
}

/// The whole segments of `mss` bytes that `window` admits, in bytes: `⌊W/MSS⌋ · MSS`; a window below one segment admits
/// itself. RFC 9293 §3.8.6.2.1: a sender waits until a whole segment fits.
#[must_use]
pub fn whole_segments(window: DataSize, mss: DataSize) -> DataSize {
    let mss = mss.bytes.max(1);
    DataSize::from_bytes(if window.bytes < mss { window.bytes } else { window.bytes / mss * mss })
}

/// Most application bits a second with one window in flight: `8·⌊W/MSS⌋·MSS / RTT`, rounded down.
///
/// RFC 9293 §3.8 (sliding window), as in RFC 2488 §3.3. Holds for one connection without losses once slow start is over;
/// an upper bound otherwise. `rtt` is that of a full segment and its acknowledgement, sending times included. Any `W` and
/// `MSS`; with `rtt` zero nothing is limited.
#[must_use]
pub fn window_limit(window: DataSize, mss: DataSize, rtt: Duration) -> BitRate {
    if rtt.ns == 0 {
        return BitRate::from_bps(u64::MAX);
    }
    let bits = u128::from(whole_segments(window, mss).bytes) * 8;
    let bps = bits * 1_000_000_000 / u128::from(rtt.ns);
    BitRate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
}

/// The lower of [`window_limit`] and what the link carries.
#[must_use]
pub fn rate_limit(window: DataSize, mss: DataSize, rtt: Duration, payload_rate: BitRate) -> BitRate {
    window_limit(window, mss, rtt).min(payload_rate)
}

/// Bytes in flight when the link is full: `rate · RTT / 8`, rounded up. A smaller window cannot fill it (RFC 7323 §1.1).
#[must_use]
pub fn bandwidth_delay_product(rate: BitRate, rtt: Duration) -> DataSize {
    DataSize::from_bytes(rate.bytes_in(rtt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64) -> DataSize {
        DataSize::from_bytes(bytes)
    }

    #[test]
    fn published_limits() {
        // HERMES (results HB-3): 65,535 B in 0.4 s; with segments of 1 B nothing is rounded: 524,280 / 0.4.
        let rtt = Duration::from_millis(400);
        assert_eq!(window_limit(size(65_535), size(1), rtt).bps, 1_310_700);
        // Segments of 1460 B: 44 of them, 64,240 B: 513,920 / 0.4.
        assert_eq!(window_limit(size(65_535), size(1460), rtt).bps, 1_284_800);
        // Kruse (results KRUSE-2): 24,576 B in 0.5 s is 393 kbit/s, at any channel rate above that.
        assert_eq!(window_limit(size(24_576), size(1), Duration::from_millis(500)).bps, 393_216);
        let capped = rate_limit(size(24_576), size(1), Duration::from_millis(500), BitRate::from_bps(384_000));
        assert_eq!(capped.bps, 384_000);
    }

    #[test]
    fn bandwidth_delay_products_are_the_published_ones() {
        // NTIA 98-354 §5.3 (results NTIA-5.1, 5.6): 1.536 Mbit/s · 0.6 s = 115,200 B; · 0.8 s = 153,600 B.
        let rate = BitRate::from_bps(1_536_000);
        assert_eq!(bandwidth_delay_product(rate, Duration::from_millis(600)).bytes, 115_200);
        assert_eq!(bandwidth_delay_product(rate, Duration::from_millis(800)).bytes, 153_600);
    }

    #[test]
    fn payload_is_what_framing_leaves() {
        // NTIA 98-354 §5.3 (results NTIA-5.2): 1400 of 1504 bytes: 93.1 % of 1.536 Mbit/s, 1,429,787.2 bit/s.
        assert_eq!(payload_rate(BitRate::from_bps(1_536_000), size(1400), 1504 * 8).bps, 1_429_787);
    }

    #[test]
    fn a_window_below_a_segment_still_moves() {
        assert_eq!(window_limit(size(500), size(1460), Duration::from_secs(1)).bps, 4000);
        assert_eq!(window_limit(size(500), size(1460), Duration::ZERO).bps, u64::MAX);
        assert_eq!(whole_segments(size(0), size(0)).bytes, 0);
    }
}
