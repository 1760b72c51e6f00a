//! TCP Reno in steady state, with time-outs and a limited window.
//!
//! J. Padhye, V. Firoiu, D. Towsley, J. Kurose: "Modeling TCP Reno performance: a simple model and its empirical
//! validation", IEEE/ACM Transactions on Networking 8(2), 2000 (ToN); first at SIGCOMM 1998. Equation numbers are ToN's.
//!
//! Assumes a transfer that never ends, rounds of one RTT that does not depend on the window, and losses in correlated
//! bursts: once a segment of a round is lost, the rest of the round is lost too. Bit errors are independent, so on a noisy
//! link the model loses more segments than the link does, and is pessimistic where windows are large. Reno, not CUBIC.

use super::probability;
use bentpipe_net::time::Duration;

/// The model's parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Round-trip time of a full segment, above zero.
    pub rtt: Duration,
    /// T0: the first retransmission time-out; it doubles up to 64·T0.
    pub timeout: Duration,
    /// W_max: most segments in flight, at least one and finite; need not be whole.
    pub window_segments: f64,
    /// b: segments an acknowledgement, at least one; 2 with delayed acknowledgements.
    pub segments_per_ack: u32,
}

/// Segments sent a second, repeated ones included: the full model B(p), equation (32).
///
/// With `p` = 0 it is W_max/RTT. Between the branch limited by losses and that limited by the window the model is
/// continuous for b = 2 only; for b = 1 the rate drops by up to `0.25 / (W_max/2 + 1)` where the window begins to limit.
#[must_use]
pub fn send_rate(flow: &Flow, p: f64) -> f64 {
    flow.check();
    match probability(p) {
        0.0 => flow.window_segments / flow.rtt.as_secs_f64(),
        p => {
            let w = flow.window_at_loss(p);
            ((1.0 - p) / p + w + timeout_share(p, w) / (1.0 - p)) / flow.seconds_per_cycle(p)
        }
    }
}

/// Segments delivered a second: the throughput T(p) of the same model; of the last round, half a window arrives, and of a
/// sequence of time-outs, one segment. The rate R of Cardwell et al. 2000, equation (22).
#[must_use]
pub fn throughput(flow: &Flow, p: f64) -> f64 {
    flow.check();
    match probability(p) {
        0.0 => flow.window_segments / flow.rtt.as_secs_f64(),
        p => {
            let w = flow.window_at_loss(p);
            ((1.0 - p) / p + w / 2.0 + timeout_share(p, w)) / flow.seconds_per_cycle(p)
        }
    }
}

/// Segments sent a second, by the approximate formula, equation (33):
/// `min(W_max/RTT, 1 / (RTT·√(2bp/3) + T0·min(1, 3·√(3bp/8))·p·(1 + 32p²)))`. RFC 5348 §3.1 uses it, with b = 1.
#[must_use]
pub fn send_rate_approximate(flow: &Flow, p: f64) -> f64 {
    flow.check();
    let rtt = flow.rtt.as_secs_f64();
    let limit = flow.window_segments / rtt;
    match probability(p) {
        0.0 => limit,
        p => {
            let b = f64::from(flow.segments_per_ack);
            let timeouts = (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
            let seconds = rtt * (2.0 * b * p / 3.0).sqrt() + flow.timeout.as_secs_f64() * timeouts;
            limit.min(1.0 / seconds)
        }
    }
}

/// Q̂(w): the chance that a loss in a window of `w` segments ends in a time-out and not in a fast retransmission; one for
/// up to three segments. `0 < p < 1`.
#[must_use]
pub fn timeout_share(p: f64, w: f64) -> f64 {
    if w <= 3.0 {
        return 1.0;
    }
    // 1 − (1−p)^n without cancellation for small p.
    let any_of = |n: f64| -f64::exp_m1(n * f64::ln_1p(-p));
    let three_delivered = (1.0 - p).powi(3);
    (any_of(3.0) * (1.0 + three_delivered * any_of(w - 3.0)) / any_of(w)).min(1.0)
}

/// f(p), also G(p): `1 + p + 2p² + 4p³ + 8p⁴ + 16p⁵ + 32p⁶`. A sequence of time-outs lasts `T0·f(p)/(1−p)`.
#[must_use]
pub fn backoff(p: f64) -> f64 {
    1.0 + p * (1.0 + 2.0 * p * (1.0 + 2.0 * p * (1.0 + 2.0 * p * (1.0 + 2.0 * p * (1.0 + 2.0 * p)))))
}

/// E\[W_u\]: the mean window when a loss occurs, were it not limited:
/// `(2+b)/3b + √(8(1−p)/3bp + ((2+b)/3b)²)`, equation (13). `0 < p < 1`.
#[must_use]
pub fn unlimited_window(p: f64, segments_per_ack: u32) -> f64 {
    let b = f64::from(segments_per_ack);
    let c = (2.0 + b) / (3.0 * b);
    c + (8.0 * (1.0 - p) / (3.0 * b * p) + c * c).sqrt()
}

impl Flow {
    fn check(&self) {
        assert!(self.rtt.ns > 0, "a round trip of no time has no rate");
        assert!(self.window_segments >= 1.0 && self.window_segments.is_finite(), "a window has one segment or more");
        assert!(self.segments_per_ack >= 1, "an acknowledgement stands for one segment or more");
    }

    fn window_at_loss(&self, p: f64) -> f64 {
        unlimited_window(p, self.segments_per_ack).min(self.window_segments)
    }

    /// Mean time from one loss indication to the next, with its share of time-outs.
    fn seconds_per_cycle(&self, p: f64) -> f64 {
        let b = f64::from(self.segments_per_ack);
        let free = unlimited_window(p, self.segments_per_ack);
        let limit = self.window_segments;
        let rounds = if free < limit { b / 2.0 * free + 1.0 } else { b / 8.0 * limit + (1.0 - p) / (p * limit) + 2.0 };
        let timeouts = timeout_share(p, self.window_at_loss(p)) * backoff(p) / (1.0 - p);
        self.rtt.as_secs_f64() * rounds + self.timeout.as_secs_f64() * timeouts
    }
}

#[cfg(test)]
mod tests {
    use super::super::mathis;
    use super::*;
    use bentpipe_net::units::DataSize;
    use proptest::prelude::*;

    fn flow(window_segments: f64, segments_per_ack: u32) -> Flow {
        Flow { rtt: Duration::from_millis(100), timeout: Duration::from_secs(1), window_segments, segments_per_ack }
    }

    #[test]
    fn a_hand_computed_point_limited_by_losses() {
        // p = 0.01, b = 2, RTT 0.1 s, T0 1 s, no window limit.
        // E[W] = 4/6 + √(8·0.99/0.06 + (4/6)²) = 0.666667 + √(132 + 0.444444) = 0.666667 + 11.508451 = 12.175118
        // q = 0.99: q³ = 0.970299; 1 − q³ = 0.029701; 1 − q^9.175118 = 0.088089; 1 − q^12.175118 = 0.115174
        // Q̂ = 0.029701 · (1 + 0.970299 · 0.088089) / 0.115174 = 0.279922
        // f = 1 + 0.01 + 0.0002 + 0.000004 + 0.00000008 + … = 1.0102041
        // sent = 99 + 12.175118 + 0.279922/0.99 = 111.457867
        // time = 0.1·(12.175118 + 1) + 0.279922 · 1.0102041/0.99 = 1.317512 + 0.285635 = 1.603147
        // B = 69.5244 segments a second; delivered (99 + 6.087559 + 0.279922)/1.603147 = 65.7254
        let flow = flow(1e6, 2);
        assert!((unlimited_window(0.01, 2) - 12.175_118).abs() < 1e-5);
        assert!((timeout_share(0.01, 12.175_118) - 0.279_92).abs() < 1e-4);
        assert!((backoff(0.01) - 1.010_204_1).abs() < 1e-7);
        assert!((send_rate(&flow, 0.01) - 69.524).abs() < 0.02, "{}", send_rate(&flow, 0.01));
        assert!((throughput(&flow, 0.01) - 65.725).abs() < 0.02, "{}", throughput(&flow, 0.01));
    }

    #[test]
    fn a_hand_computed_point_limited_by_the_window() {
        // As above with W_max = 6: Q̂(6) = 0.029701·(1 + 0.970299·0.029701)/(1 − 0.941480) = 0.029701·1.028819/0.058520
        //   = 0.522160; sent = 99 + 6 + 0.522160/0.99 = 105.527434
        // rounds = 2/8·6 + 0.99/(0.01·6) + 2 = 1.5 + 16.5 + 2 = 20; time = 2 + 0.522160·1.0204082 = 2.532816
        // B = 41.6641; delivered (99 + 3 + 0.522160)/2.532816 = 40.4776
        let flow = flow(6.0, 2);
        assert!((send_rate(&flow, 0.01) - 41.664).abs() < 0.01, "{}", send_rate(&flow, 0.01));
        assert!((throughput(&flow, 0.01) - 40.478).abs() < 0.01, "{}", throughput(&flow, 0.01));
    }

    #[test]
    fn a_hand_computed_point_of_the_approximation() {
        // √(2·2·0.01/3) = 0.1154701 → 0.01154701 s; 3·√(3·2·0.01/8) = 0.2598076 · 0.01 · 1.0032 = 0.002606390 s;
        // 1/0.0141534 = 70.6544.
        let rate = send_rate_approximate(&flow(1e6, 2), 0.01);
        assert!((rate - 70.654).abs() < 0.01, "{rate}");
    }

    #[test]
    fn without_loss_it_is_the_window_limit() {
        for b in [1, 2] {
            for window in [1.0, 7.5, 44.0, 1000.0] {
                let flow = flow(window, b);
                for p in [0.0, 1e-11, 1e-10] {
                    for rate in [send_rate(&flow, p), throughput(&flow, p), send_rate_approximate(&flow, p)] {
                        assert!((rate / (window * 10.0) - 1.0).abs() < 1e-3, "{window}, {p}: {rate}");
                    }
                }
            }
        }
    }

    #[test]
    fn without_timeouts_and_with_little_loss_it_is_the_square_root_law() {
        for b in [1, 2] {
            for p in [1e-6, 1e-7, 1e-8] {
                let flow = Flow { timeout: Duration::ZERO, ..flow(1e9, b) };
                let law = mathis::rate(DataSize::from_bytes(1_000_000), flow.rtt, p, b).unwrap().bps as f64 / 8e6;
                for rate in [send_rate(&flow, p), throughput(&flow, p), send_rate_approximate(&flow, p)] {
                    assert!((rate / law - 1.0).abs() < 3e-3, "b {b}, p {p}: {rate} and {law}");
                }
            }
        }
    }

    #[test]
    fn the_branches_meet_for_two_segments_an_acknowledgement() {
        // W_max at exactly E[W_u]: from equation (13), (1−p)/p = 3b/8·W² − (2+b)/4·W, so that for b = 2 both branches
        // take W + 1 rounds.
        let p = 0.003;
        let w = unlimited_window(p, 2);
        let (below, above) = (flow(w * (1.0 - 1e-9), 2), flow(w * (1.0 + 1e-9), 2));
        assert!((send_rate(&below, p) / send_rate(&above, p) - 1.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn finite_positive_and_in_order(
            ns in 1u64..1 << 45, t0 in 0u64..1 << 45, w in 1.0f64..1e7, b in 1u32..16,
            p in prop_oneof![0.0f64..1.0, (-320.0f64..0.0).prop_map(|e| 10f64.powf(e).min(1.0 - 1e-16))],
        ) {
            let (rtt, timeout) = (Duration::from_nanos(ns), Duration::from_nanos(t0));
            let flow = Flow { rtt, timeout, window_segments: w, segments_per_ack: b };
            let (sent, delivered) = (send_rate(&flow, p), throughput(&flow, p));
            for rate in [sent, delivered, send_rate_approximate(&flow, p)] {
                prop_assert!(rate.is_finite() && rate >= 0.0, "{flow:?} {p}: {rate}");
            }
            prop_assert!(delivered <= sent * (1.0 + 1e-12));
        }

        #[test]
        fn falls_with_loss(ms in 1u64..2000, t0 in 200u64..3000, w in 1.0f64..1e4, p in 1e-9f64..0.4) {
            let (rtt, timeout) = (Duration::from_millis(ms), Duration::from_millis(t0.max(ms)));
            let flow = Flow { rtt, timeout, window_segments: w, segments_per_ack: 2 };
            prop_assert!(send_rate(&flow, p * 1.1) <= send_rate(&flow, p) * (1.0 + 1e-9));
            prop_assert!(send_rate_approximate(&flow, p * 1.1) <= send_rate_approximate(&flow, p));
        }
    }
}
