//! Hybla: a connection over a long path grows its window as one over a reference path of 25 ms would in the same time.
//! Caini and Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks", Int. J. Satellite Communications 22
//! (2004); bookkeeping as in Linux (`tcp_hybla.c`), which grows once for each acknowledgement, however much it covers.
//!
//! Deviations from Linux: without a measurement from the handshake, ρ follows the first one (Linux would stay at 1 for
//! ever); and what Linux calls "disorder" (duplicate acknowledgements, nothing lost yet) does not switch Hybla off.

use super::{Ack, CongestionControl, Phase, Window, reno};
use bentpipe_net::time::{Duration, Instant};

/// Round-trip time of the reference path (RTT₀ in the paper).
const REFERENCE: Duration = Duration::from_millis(25);
/// Increments are counted in 1/128 of a segment.
const UNIT: u32 = 128;
/// 128·2^(k/8), rounded down: 2^ρ for the eighths of ρ.
const POWERS: [u32; 8] = [128, 139, 152, 165, 181, 197, 215, 234];
/// Largest window, in segments: Linux's cap.
const WINDOW_MAX: u32 = 65_535;

/// Hybla's own state.
#[derive(Clone, Debug)]
pub struct Hybla {
    /// ρ = RTT/RTT₀, at least 1, in eighths.
    rho_eighths: u32,
    /// Smoothed round-trip time that ρ is from: the lowest seen.
    lowest: Option<Duration>,
    /// Part of a segment not yet added to the window, in [`UNIT`]s.
    fraction: u32,
    /// Nothing is wrong; otherwise it grows as Reno.
    active: bool,
}

impl Hybla {
    /// With ρ = 1 until something is measured.
    #[must_use]
    pub fn new() -> Hybla {
        Hybla { rho_eighths: 8, lowest: None, fraction: 0, active: true }
    }

    fn measure(&mut self, smoothed: Duration) {
        if smoothed != Duration::ZERO && self.lowest.is_none_or(|lowest| smoothed < lowest) {
            self.lowest = Some(smoothed);
            let eighths = smoothed.ns.saturating_mul(8) / REFERENCE.ns;
            self.rho_eighths = u32::try_from(eighths).unwrap_or(u32::MAX).max(8);
        }
    }
}

impl Default for Hybla {
    fn default() -> Self {
        Hybla::new()
    }
}

impl CongestionControl for Hybla {
    fn name(&self) -> &'static str {
        "hybla"
    }

    /// The initial window is ρ, whatever was configured: ρ times the 1 of the reference connection, as in Linux.
    fn open(&mut self, _now: Instant, window: &mut Window, smoothed_rtt: Duration) {
        self.measure(smoothed_rtt);
        window.cwnd = (self.rho_eighths / 8).min(WINDOW_MAX);
    }

    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.measure(ack.smoothed_rtt);
        if !ack.window_limited {
            return;
        }
        if !self.active {
            reno::grow(ack, window);
            return;
        }
        let slow_start = window.in_slow_start();
        let increment = if slow_start {
            // 2^ρ − 1, the whole part by shifting (at most 16, as in Linux), the eighths from the table.
            let whole = (self.rho_eighths / 8).min(16);
            (POWERS[(self.rho_eighths % 8) as usize] << whole) - UNIT
        } else {
            // ρ²/W.
            let rho_squared = self.rho_eighths.saturating_mul(self.rho_eighths).saturating_mul(UNIT / 64);
            let increment = rho_squared / window.cwnd.max(1);
            if increment < UNIT {
                window.credit = window.credit.saturating_add(1);
            }
            increment
        };
        window.cwnd = window.cwnd.saturating_add(increment / UNIT);
        self.fraction += increment % UNIT;
        if self.fraction >= UNIT {
            self.fraction -= UNIT;
            window.cwnd = window.cwnd.saturating_add(1);
            window.credit = 0;
        }
        // So large a window that the share is below 1/128: one segment a window.
        if increment == 0 && window.credit >= window.cwnd {
            window.cwnd = window.cwnd.saturating_add(1);
            window.credit = 0;
        }
        if slow_start {
            window.cwnd = window.cwnd.min(window.ssthresh);
        }
        window.cwnd = window.cwnd.min(WINDOW_MAX);
    }

    fn ssthresh(&mut self, _now: Instant, window: &Window) -> u32 {
        reno::halved(window)
    }

    fn phase(&mut self, _now: Instant, phase: Phase, _window: &mut Window) {
        self.active = phase == Phase::Open;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reno;
    use super::super::toy_path::Rounds;
    use super::*;

    fn path(rtt_ms: u64, cwnd: u32, ssthresh: u32) -> Rounds {
        Rounds::new(Duration::from_millis(rtt_ms), Window { cwnd, ssthresh, credit: 0 })
    }

    /// (round-trip time, initial window).
    #[test]
    fn the_initial_window_is_rho() {
        for (rtt_ms, expected) in [(0, 1), (10, 1), (25, 1), (49, 1), (50, 2), (250, 10), (600, 24)] {
            let mut path = path(rtt_ms, 10, u32::MAX);
            Hybla::new().open(path.now, &mut path.window, path.rtt);
            assert_eq!(path.window.cwnd, expected, "{rtt_ms} ms");
        }
    }

    #[test]
    fn at_the_reference_it_is_reno() {
        for (cwnd, ssthresh) in [(10, u32::MAX), (16, 16)] {
            let (mut own, mut renos) = (path(25, cwnd, ssthresh), path(25, cwnd, ssthresh));
            let mut hybla = Hybla::new();
            for round in 0..5 {
                let (got, reno) = (own.round(&mut hybla), renos.round(&mut Reno));
                // 128/W is rounded down, so that a window may take an acknowledgement or two longer.
                assert!(got.abs_diff(reno) <= 1, "round {round}: {got}, Reno {reno}");
            }
        }
    }

    /// 100 ms: ρ = 4, each acknowledgement adds 2⁴ − 1. 110 ms: ρ = 4.375 in eighths, 16·165/128 − 1 = 19.6.
    #[test]
    fn slow_start_multiplies_by_two_to_rho() {
        for (rtt_ms, expected) in [(100, 160), (110, 206), (25, 20), (3, 20)] {
            let mut path = path(rtt_ms, 10, u32::MAX);
            assert_eq!(path.round(&mut Hybla::new()), expected, "{rtt_ms} ms");
        }
    }

    /// 600 ms: ρ² = 576 segments a round trip: as much in the same time as at 25 ms.
    #[test]
    fn avoidance_adds_rho_squared_in_a_round() {
        let mut path = path(600, 4000, 4000);
        let mut hybla = Hybla::new();
        for round in 1..=5_u32 {
            let got = path.round(&mut hybla);
            // ρ²/W falls as W grows within the round: dW/da = ρ²/W, so W² grows by 2ρ²·W₀.
            let mut exact = 4000_f64;
            for _ in 0..round {
                exact = (exact * exact + 2.0 * 576.0 * exact).sqrt();
            }
            assert!((f64::from(got) / exact - 1.0).abs() < 0.02, "round {round}: {got}, formula {exact:.0}");
        }
    }

    #[test]
    fn slow_start_is_cut_at_the_threshold_and_at_the_cap() {
        let mut small = path(600, 24, 100);
        small.segments_per_ack = 24;
        assert_eq!(small.round(&mut Hybla::new()), 100);
        let mut large = path(600, 24, u32::MAX);
        assert_eq!(large.round(&mut Hybla::new()), WINDOW_MAX);
    }

    #[test]
    fn after_a_time_out_it_grows_as_reno() {
        let mut path = path(600, 10, u32::MAX);
        let mut hybla = Hybla::new();
        hybla.phase(path.now, Phase::Loss, &mut path.window);
        assert_eq!(path.round(&mut hybla), 20);
    }
}
