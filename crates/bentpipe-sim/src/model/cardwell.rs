//! Expected time of a short transfer: handshake, slow start, its loss, and the rest at the steady rate.
//!
//! N. Cardwell, S. Savage, T. Anderson: "Modeling TCP Latency", IEEE INFOCOM 2000. Equation numbers are the paper's.
//!
//! The time from the client's SYN to the moment at which the *client* has the last byte of a download, or the
//! acknowledgement of the last byte of an upload: in both cases one round trip of handshake plus whole rounds of data.
//! Losses as in [`super::pftk`], of which the paper takes the steady rate. The round trip does not depend on the window, so
//! `window_segments` must be the lesser of window and bandwidth-delay product for a link that can be filled.
//!
//! Two deviations. Slow start takes one round trip at least (the paper's logarithm gives less for a transfer below the
//! initial window). E\[d_ss\], which the paper's equation (5) puts one segment too high for a transfer without loss, is at
//! most the whole transfer.

use super::pftk::{self, Flow};
use super::probability;
use bentpipe_net::time::Duration;
use bentpipe_net::units::DataSize;

/// A transfer over a fresh connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Application bytes.
    pub file: DataSize,
    /// Application bytes a segment, above zero.
    pub mss: DataSize,
    /// The connection.
    pub flow: Flow,
    /// w1: segments sent before the first acknowledgement, at least one.
    pub initial_window: u32,
    /// γ: what the window grows by each round trip of slow start, above one: `1 + 1/b` when it grows by a segment an
    /// acknowledgement, 2 when it grows by what is acknowledged (RFC 3465).
    pub growth: f64,
    /// T_s: the time-out of the first SYN (RFC 1122: 3 s; RFC 6298: 1 s); it doubles.
    pub syn_timeout: Duration,
    /// The mean cost of the first delayed acknowledgement's timer when the initial window is one segment and
    /// acknowledgements are delayed; else zero. The paper: 100 ms for BSD, 150 ms for Windows 95.
    pub delayed_ack: Duration,
}

/// The parts of the expected time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Latency {
    /// E\[L_h\], equation (4).
    pub handshake: Duration,
    /// E\[T_ss\], equation (15).
    pub slow_start: Duration,
    /// E\[T_loss\], equation (20): the loss that ends slow start.
    pub loss: Duration,
    /// E\[T_ca\], equation (24): the rest.
    pub congestion_avoidance: Duration,
    /// E\[T_delack\].
    pub delayed_ack: Duration,
}

impl Latency {
    /// The whole time, handshake included; the paper's equation (25) leaves the handshake out.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.handshake + self.slow_start + self.loss + self.congestion_avoidance + self.delayed_ack
    }
}

/// E\[L_h\], equation (4): `RTT + T_s·((1−p_r)/(1−2p_r) + (1−p_f)/(1−2p_f) − 2)`, for a SYN lost with `p_forward` and its
/// answer with `p_reverse`. `None` from one half on, where doubling time-outs have no finite mean. Meant for small
/// probabilities: it lets the handshake repeat for ever.
#[must_use]
pub fn handshake(rtt: Duration, syn_timeout: Duration, p_forward: f64, p_reverse: f64) -> Option<Duration> {
    let (p_forward, p_reverse) = (probability(p_forward), probability(p_reverse));
    if p_forward >= 0.5 || p_reverse >= 0.5 {
        return None;
    }
    // (1−p)/(1−2p) − 1 = p/(1−2p).
    let repeats = |p: f64| p / (1.0 - 2.0 * p);
    let waits = syn_timeout.as_secs_f64() * (repeats(p_forward) + repeats(p_reverse));
    Some(rtt + Duration::from_secs_f64(waits))
}

/// Segments of the transfer, the last one perhaps shorter; at least one.
#[must_use]
pub fn segments(file: DataSize, mss: DataSize) -> u64 {
    file.bytes.div_ceil(mss.bytes.max(1)).max(1)
}

/// E\[d_ss\], equation (5): segments sent in the initial slow start of a transfer of `d`, the lost one included:
/// `(1 − (1−p)^d)(1−p)/p + 1`, and `d` at most.
#[must_use]
pub fn slow_start_segments(d: u64, p: f64) -> f64 {
    let d = d as f64;
    match probability(p) {
        0.0 => d,
        p => (-f64::exp_m1(d * f64::ln_1p(-p)) * (1.0 - p) / p + 1.0).min(d),
    }
}

/// Loss probabilities of a transfer. The paper has one for each way; bit errors spare a short packet more often than a
/// long one, so the handshake has its own here.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Losses {
    /// p: of a data segment.
    pub data: f64,
    /// Of the SYN.
    pub syn: f64,
    /// Of its answer.
    pub syn_answer: f64,
}

/// The expected time of `transfer`. `None` when a SYN or its answer is lost with one half or more ([`handshake`]).
#[must_use]
pub fn latency(transfer: &Transfer, losses: &Losses) -> Option<Latency> {
    let Transfer { file, mss, flow, initial_window, growth, syn_timeout, delayed_ack } = *transfer;
    assert!(initial_window >= 1 && growth > 1.0 && growth.is_finite(), "slow start grows from one segment or more");
    let handshake = handshake(flow.rtt, syn_timeout, losses.syn, losses.syn_answer)?;
    let p = losses.data;
    let rate = pftk::throughput(&flow, p);
    let p = probability(p);
    let d = segments(file, mss);
    let in_slow_start = slow_start_segments(d, p);
    let limit = flow.window_segments;
    let first = f64::from(initial_window).min(limit);
    // Equation (11): the window when slow start ends, were it not limited.
    let last = in_slow_start * (growth - 1.0) / growth + first / growth;
    let rounds = if last > limit {
        let until_limit = (growth * limit - first) / (growth - 1.0);
        (limit / first).ln() / growth.ln() + 1.0 + (in_slow_start - until_limit) / limit
    } else {
        (in_slow_start * (growth - 1.0) / first).ln_1p() / growth.ln()
    };
    let rtt = flow.rtt.as_secs_f64();
    let loss = if p == 0.0 {
        0.0
    } else {
        // Equations (16) to (20).
        let any = -f64::exp_m1(d as f64 * f64::ln_1p(-p));
        let share = pftk::timeout_share(p, last.min(limit));
        let timeout = flow.timeout.as_secs_f64() * pftk::backoff(p) / (1.0 - p);
        any * (share * timeout + (1.0 - share) * rtt)
    };
    // Equations (21) and (24).
    let rest = (d as f64 - in_slow_start).max(0.0) / rate;
    Some(Latency {
        handshake,
        slow_start: Duration::from_secs_f64(rounds.max(1.0) * rtt),
        loss: Duration::from_secs_f64(loss),
        congestion_avoidance: Duration::from_secs_f64(rest),
        delayed_ack,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn transfer(segments: u64, initial_window: u32, growth: f64, window_segments: f64) -> Transfer {
        Transfer {
            file: DataSize::from_bytes(segments * 1000),
            mss: DataSize::from_bytes(1000),
            flow: Flow {
                rtt: Duration::from_millis(500),
                timeout: Duration::from_secs(1),
                window_segments,
                segments_per_ack: 2,
            },
            initial_window,
            growth,
            syn_timeout: Duration::from_secs(3),
            delayed_ack: Duration::ZERO,
        }
    }

    fn rounds(transfer: &Transfer) -> f64 {
        latency(transfer, &Losses::default()).unwrap().slow_start.as_secs_f64() / 0.5
    }

    #[test]
    fn without_loss_it_counts_rounds() {
        // 1 + 2 + 4 + … + 2^(n−1) = 2^n − 1 segments take n rounds.
        for n in 1..16u32 {
            assert!((rounds(&transfer((1 << n) - 1, 1, 2.0, 1e6)) - f64::from(n)).abs() < 1e-6, "{n}");
        }
        // From 4 segments: 4 + 8 + 16 = 28 in three rounds.
        assert!((rounds(&transfer(28, 4, 2.0, 1e6)) - 3.0).abs() < 1e-6);
        // One window of eight is the limit: 1 + 2 + 4 + 8 + 8 + 8 = 31 in six rounds.
        assert!((rounds(&transfer(31, 1, 2.0, 8.0)) - 6.0).abs() < 1e-6);
        // An initial window above the limit: 8 + 8 in two.
        assert!((rounds(&transfer(16, 10, 2.0, 8.0)) - 2.0).abs() < 1e-6);
        // Delayed acknowledgements, growth 1.5 from 4: 4 + 6 + 9 = 19 in three.
        assert!((rounds(&transfer(19, 4, 1.5, 1e6)) - 3.0).abs() < 1e-6);
        // Less than the initial window: one round.
        assert_eq!(rounds(&transfer(3, 10, 2.0, 1e6)), 1.0);
        let parts = latency(&transfer(1023, 1, 2.0, 1e6), &Losses::default()).unwrap();
        assert_eq!((parts.loss, parts.congestion_avoidance), (Duration::ZERO, Duration::ZERO));
        assert_eq!(parts.total().as_secs_f64(), 0.5 + 5.0, "a handshake and ten rounds");
    }

    #[test]
    fn a_hand_computed_handshake() {
        // p_f = 0.1, p_r = 0.2: 3·(0.1/0.8 + 0.2/0.6) = 3·0.4583333 = 1.375 s; the paper's form: 0.9/0.8 + 0.8/0.6 − 2.
        let rtt = Duration::from_millis(500);
        let time = handshake(rtt, Duration::from_secs(3), 0.1, 0.2).unwrap();
        assert!((time.as_secs_f64() - 1.875).abs() < 1e-9);
        assert_eq!(handshake(rtt, Duration::from_secs(3), 0.5, 0.0), None);
    }

    #[test]
    fn a_hand_computed_transfer_with_loss() {
        // 100 segments, p = 0.01, from 1 with growth 1.5, no limit.
        // 0.99^100 = 0.3660323; E[d_ss] = 0.6339677·99 + 1 = 63.762799
        // E[W_ss] = 63.762799/3 + 1/1.5 = 21.920933
        // T_ss = 0.5·log1.5(63.762799·0.5 + 1) = 0.5·ln(32.881400)/ln 1.5 = 0.5·3.492907/0.4054651 = 4.307284 s
        // Q̂: 1 − 0.99^18.920933 = 0.173168; 1 − 0.99^21.920933 = 0.197726;
        //   0.029701·(1 + 0.970299·0.173168)/0.197726 = 0.175452
        // T_loss = 0.6339677·(0.175452·1.0204082 + 0.824548·0.5) = 0.6339677·0.591307 = 0.374870 s
        // rate: E[W] = 12.175118, Q̂ = 0.279922 (see pftk): (99 + 6.087559 + 0.279922) / (0.5·13.175118 + 0.285635)
        //   = 105.367481/6.873194 = 15.330206; T_ca = 36.237201/15.330206 = 2.363778 s
        let parts = latency(&transfer(100, 1, 1.5, 1e6), &Losses { data: 0.01, ..Losses::default() }).unwrap();
        assert!((slow_start_segments(100, 0.01) - 63.762_8).abs() < 1e-3);
        assert!((parts.slow_start.as_secs_f64() - 4.307_3).abs() < 1e-3, "{parts:?}");
        assert!((parts.loss.as_secs_f64() - 0.374_9).abs() < 1e-3, "{parts:?}");
        assert!((parts.congestion_avoidance.as_secs_f64() - 2.363_8).abs() < 1e-3, "{parts:?}");
    }

    #[test]
    fn a_little_loss_is_next_to_none() {
        let transfer = transfer(1000, 2, 1.5, 40.0);
        let none = latency(&transfer, &Losses::default()).unwrap().total().as_secs_f64();
        let little =
            latency(&transfer, &Losses { data: 1e-9, syn: 1e-9, syn_answer: 1e-9 }).unwrap().total().as_secs_f64();
        assert!((little / none - 1.0).abs() < 1e-4, "{little} {none}");
    }

    proptest! {
        #[test]
        fn finite_in_range(
            bytes in 0u64..1 << 50, mss in 1u64..65_000, ns in 1u64..1 << 45, t0 in 0u64..1 << 45, w in 1.0f64..1e7,
            b in 1u32..16, first in 1u32..1000, growth in 1.01f64..2.0, p in 0.0f64..0.4999, back in 0.0f64..0.4999,
        ) {
            let transfer = Transfer {
                file: DataSize::from_bytes(bytes),
                mss: DataSize::from_bytes(mss),
                flow: Flow {
                    rtt: Duration::from_nanos(ns),
                    timeout: Duration::from_nanos(t0),
                    window_segments: w,
                    segments_per_ack: b,
                },
                initial_window: first,
                growth,
                syn_timeout: Duration::from_secs(3),
                delayed_ack: Duration::ZERO,
            };
            let parts = latency(&transfer, &Losses { data: p, syn: p, syn_answer: back }).unwrap();
            // Durations hold no NaN; what a NaN or a negative number would have become is zero.
            prop_assert!(parts.slow_start >= transfer.flow.rtt && parts.handshake >= transfer.flow.rtt);
            let wanted = parts.total();
            let larger = Transfer { file: DataSize::from_bytes(bytes + mss), ..transfer };
            let more = latency(&larger, &Losses::default()).unwrap().total();
            prop_assert!(latency(&transfer, &Losses::default()).unwrap().total() <= more + Duration::from_nanos(1 + more.ns / 1_000_000_000));
            prop_assert!(wanted > Duration::ZERO);
        }
    }
}
