//! CUBIC (RFC 9438), with the arithmetic of Linux's `tcp_cubic.c`, including its ticks: what the window is aimed at is
//! recomputed at most once a tick, and time since the last loss is counted in ticks.
//!
//! Deviations of Linux from the RFC that are kept: the Reno-friendly window grows at α from the start of the epoch and
//! never at 1 (RFC 9438 §4.3 raises it once the old window is reached); the target is not limited to 1.5·cwnd but the
//! growth is, to one segment for two acknowledged; before the first loss the window grows by at least 5 % a round trip.

use super::hystart::HyStart;
use super::{Ack, CongestionControl, Phase, Window};
use bentpipe_net::time::{Duration, Instant};

/// A tick of the kernel's timer: CONFIG_HZ = 250, the default of Linux on x86.
const TICK: Duration = Duration::from_millis(4);
/// An unchanged window is not looked at again before this many ticks: HZ/32.
const RECHECK_TICKS: u64 = 250 / 32;
/// β = 717/1024 ≈ 0.7 (RFC 9438 §4.6).
const BETA: u64 = 717;
/// The unit of [`BETA`], and the parts of a second that time is counted in.
const UNIT: u64 = 1024;
/// C = 410/1024 ≈ 0.4 segments/s³ (RFC 9438 §5).
const C: u64 = 410;
/// Segments to acknowledge for one of the friendly window, in eighths of the window: 1/α = (1 + β)/(3·(1 − β)), RFC 9438
/// §4.3.
const FRIENDLY_EIGHTHS: u64 = 8 * (UNIT + BETA) / 3 / (UNIT - BETA);
/// Round-trip times are not taken for this long after an epoch starts: recovery is still in them.
const SETTLE_TICKS: u64 = 250;

/// CUBIC's own state.
#[derive(Clone, Debug)]
pub struct Cubic {
    hystart: Option<HyStart>,
    curve: Curve,
    /// When the newest acknowledged segment was sent: the start of an idle time, when nothing is in flight.
    last_sent: Option<Instant>,
}

/// The state that a time-out resets.
#[derive(Clone, Debug, Default)]
struct Curve {
    /// Segments to acknowledge for one more of the window.
    per_segment: u32,
    /// Window at the last loss, or a bit less (fast convergence); 0: none yet.
    w_max: u32,
    /// Window and tick of the last look at the curve.
    last_cwnd: u32,
    last_tick: u64,
    /// The curve's plateau, in segments.
    origin: u32,
    /// Time from the start of the epoch to the plateau (K), in 1/1024 s.
    k: u64,
    /// Lowest round-trip time.
    delay_min: Option<Duration>,
    /// Tick at which the epoch started; `None`: with the next growth.
    epoch: Option<u64>,
    /// Segments acknowledged towards the next one of the friendly window.
    friendly_credit: u64,
    /// The window that Reno would have.
    friendly: u64,
}

impl Cubic {
    /// `hystart`: leave slow start early.
    #[must_use]
    pub fn new(hystart: bool) -> Cubic {
        Cubic { hystart: hystart.then(|| HyStart::new(Instant::ZERO)), curve: Curve::default(), last_sent: None }
    }

    /// Round-trip times come first, as in Linux: the same acknowledgement may end slow start and grow the window.
    fn measure(&mut self, ack: &Ack, window: &mut Window) {
        let Some(rtt) = ack.rtt else { return };
        self.last_sent = Some(Instant { ns: ack.now.ns.saturating_sub(rtt.ns) });
        if self.curve.epoch.is_some_and(|epoch| tick(ack.now).saturating_sub(epoch) < SETTLE_TICKS) {
            return;
        }
        let rtt = rtt.max(Duration::from_micros(1));
        let base = self.curve.delay_min.map_or(rtt, |base| base.min(rtt));
        self.curve.delay_min = Some(base);
        if let Some(hystart) = &mut self.hystart {
            hystart.sample(ack, rtt, base, window);
        }
    }
}

impl Curve {
    /// Sets how many segments have to be acknowledged for one more of the window.
    fn update(&mut self, now: Instant, cwnd: u32, segments: u32) {
        let now = tick(now);
        self.friendly_credit = self.friendly_credit.saturating_add(u64::from(segments));
        if self.last_cwnd == cwnd && now.saturating_sub(self.last_tick) <= RECHECK_TICKS {
            return;
        }
        if self.epoch.is_none() || now != self.last_tick {
            self.last_cwnd = cwnd;
            self.last_tick = now;
            self.aim(now, cwnd, segments);
        }
        self.befriend(cwnd);
        // Never faster than one segment for two, so 1.5 windows a round trip (RFC 9438 §4.2).
        self.per_segment = self.per_segment.max(2);
    }

    /// The cubic curve, RFC 9438 §4.2: W(t) = C·(t − K)³ + W_max.
    fn aim(&mut self, now: u64, cwnd: u32, segments: u32) {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.friendly_credit = u64::from(segments);
            self.friendly = u64::from(cwnd);
            self.origin = self.w_max.max(cwnd);
            // K = ∛((W_max − cwnd)/C), in 1/1024 s: the cube is scaled by 2³⁰.
            self.k = cube_root(u64::from(self.origin - cwnd) * ((1 << 40) / C));
            now
        });
        // The target is where the curve will be a round trip from now.
        let ahead = self.delay_min.map_or(0, |delay| delay.ns.div_ceil(TICK.ns));
        let ticks = now.saturating_sub(epoch).saturating_add(ahead);
        let t = ticks.saturating_mul(UNIT) / 250;
        let offset = u128::from(t.abs_diff(self.k).min(1 << 34));
        let delta = u32::try_from((u128::from(C) * offset * offset * offset) >> 40).unwrap_or(u32::MAX);
        let target = if t < self.k { self.origin.saturating_sub(delta) } else { self.origin.saturating_add(delta) };
        self.per_segment = if target > cwnd { cwnd / (target - cwnd) } else { cwnd.saturating_mul(100) };
        if self.w_max == 0 {
            // Nothing is known of the path yet: at least 5 % a round trip.
            self.per_segment = self.per_segment.min(20);
        }
    }

    /// Reno-friendly region, RFC 9438 §4.3: not slower than Reno's average with the same β.
    fn befriend(&mut self, cwnd: u32) {
        let step = (u64::from(cwnd) * FRIENDLY_EIGHTHS / 8).max(1);
        // A credit of a whole step stays; only what is above it counts.
        let grown = self.friendly_credit.saturating_sub(1) / step;
        self.friendly_credit -= grown * step;
        self.friendly = self.friendly.saturating_add(grown);
        let behind = self.friendly.saturating_sub(u64::from(cwnd));
        if let Some(most) = u64::from(cwnd).checked_div(behind) {
            self.per_segment = self.per_segment.min(u32::try_from(most).unwrap_or(u32::MAX));
        }
    }
}

impl CongestionControl for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn open(&mut self, now: Instant, _window: &mut Window, _smoothed_rtt: Duration) {
        if let Some(hystart) = &mut self.hystart {
            *hystart = HyStart::new(now);
        }
    }

    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.measure(ack, window);
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
        self.curve.update(ack.now, window.cwnd, segments);
        window.additive_increase(self.curve.per_segment, segments);
    }

    fn ssthresh(&mut self, _now: Instant, window: &Window) -> u32 {
        let curve = &mut self.curve;
        curve.epoch = None;
        let cwnd = u64::from(window.cwnd);
        // Fast convergence (RFC 9438 §4.7): a window that did not come back leaves room for others.
        let w_max = if window.cwnd < curve.w_max { cwnd * (UNIT + BETA) / (2 * UNIT) } else { cwnd };
        curve.w_max = u32::try_from(w_max).unwrap_or(u32::MAX);
        u32::try_from(cwnd * BETA / UNIT).unwrap_or(u32::MAX).max(2)
    }

    fn phase(&mut self, now: Instant, phase: Phase, _window: &mut Window) {
        if phase == Phase::Loss {
            // Linux forgets everything at a time-out, W_max and the lowest round-trip time too.
            self.curve = Curve::default();
            if let Some(hystart) = &mut self.hystart {
                hystart.reset(now);
            }
        }
    }

    /// The epoch moves on by the idle time, so that the window does not jump along the curve (RFC 9438 §5.8).
    fn restart(&mut self, now: Instant, _window: &mut Window) {
        if let (Some(epoch), Some(last_sent)) = (&mut self.curve.epoch, self.last_sent) {
            let idle = tick(now).saturating_sub(tick(last_sent));
            *epoch = epoch.saturating_add(idle).min(tick(now));
        }
    }
}

fn tick(at: Instant) -> u64 {
    at.ns / TICK.ns
}

/// ∛n, rounded down; Linux's is within 0.2 %.
fn cube_root(n: u64) -> u64 {
    let mut root = 0_u64;
    for bit in (0..22).rev() {
        let next = root | 1 << bit;
        if u128::from(next).pow(3) <= u128::from(n) {
            root = next;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::super::toy_path::Rounds;
    use super::*;

    fn path(rtt_ms: u64, cwnd: u32, ssthresh: u32) -> Rounds {
        Rounds::new(Duration::from_millis(rtt_ms), Window { cwnd, ssthresh, credit: 0 })
    }

    #[test]
    fn cube_roots() {
        for (n, expected) in [(0, 0), (7, 1), (8, 2), (26, 2), (27, 3), (1 << 60, 1 << 20), (u64::MAX, 2_642_245)] {
            assert_eq!(cube_root(n), expected, "{n}");
        }
    }

    #[test]
    fn slow_start_doubles_without_hystart() {
        let mut path = path(600, 10, u32::MAX);
        let mut cubic = Cubic::new(false);
        let seen: Vec<u32> = (0..5).map(|_| path.round(&mut cubic)).collect();
        assert_eq!(seen, [20, 40, 80, 160, 320]);
    }

    /// After a loss at W_max the window follows RFC 9438 §4.2: down to 0.7·W_max, the plateau at K, and beyond.
    #[test]
    fn the_window_follows_the_closed_form() {
        for (rtt_ms, w_max) in [(50, 2000_u32), (100, 1000), (300, 1000), (600, 400), (600, 4000)] {
            let mut path = path(rtt_ms, w_max, w_max / 2);
            let mut cubic = Cubic::new(false);
            cubic.curve.delay_min = Some(path.rtt);
            path.lose(&mut cubic);
            let reduced = f64::from(w_max) * 717.0 / 1024.0;
            assert!((f64::from(path.window.cwnd) - reduced).abs() <= 1.0);
            let k = (f64::from(w_max) * (1.0 - 717.0 / 1024.0) / 0.4).cbrt();
            let start = path.now;
            while path.now.since(start).as_secs_f64() < 1.6 * k {
                let cwnd = f64::from(path.round(&mut cubic));
                let t = path.now.since(start).as_secs_f64();
                let exact = 0.4 * (t - k).powi(3) + f64::from(w_max);
                // A step of the window is worked off over a round trip that grows with it.
                assert!(
                    (cwnd / exact - 1.0).abs() < 0.03,
                    "{rtt_ms} ms, W_max {w_max}, t {t:.2}: {cwnd}, not {exact:.0}"
                );
            }
        }
    }

    /// 10 ms, a small window: the curve is flat for seconds; Reno with β = 0.7 gains α = 3·0.3/1.7 = 0.53 a round trip.
    #[test]
    fn short_paths_are_reno_friendly() {
        let mut path = path(10, 40, 20);
        let mut cubic = Cubic::new(false);
        path.lose(&mut cubic);
        let start = path.window.cwnd;
        for _ in 0..40 {
            path.round(&mut cubic);
        }
        let alpha = f64::from(path.window.cwnd - start) / 40.0;
        assert!((0.45..0.6).contains(&alpha), "{alpha}");
    }

    #[test]
    fn a_second_loss_below_the_first_converges_fast() {
        let mut cubic = Cubic::new(false);
        for (cwnd, ssthresh, w_max) in [(1000, 700, 1000), (800, 560, 680), (2, 2, 1), (1, 2, 1)] {
            let got = cubic.ssthresh(Instant::ZERO, &Window { cwnd, ssthresh: cwnd, credit: 0 });
            assert_eq!((got, cubic.curve.w_max), (ssthresh, w_max), "{cwnd}");
        }
    }

    #[test]
    fn before_any_loss_it_grows_by_a_twentieth() {
        let mut path = path(100, 200, 200);
        assert_eq!(path.round(&mut Cubic::new(false)), 210);
    }

    #[test]
    fn a_time_out_forgets_the_curve() {
        let mut path = path(100, 200, 200);
        let mut cubic = Cubic::new(true);
        path.lose(&mut cubic);
        cubic.phase(path.now, Phase::Loss, &mut path.window);
        assert_eq!((cubic.curve.w_max, cubic.curve.delay_min), (0, None));
    }

    /// An idle time is no time on the curve: without the shift, 30 s would put the target thousands of segments away.
    #[test]
    fn idle_time_does_not_count() {
        let mut path = path(100, 400, 200);
        let mut cubic = Cubic::new(false);
        cubic.curve.delay_min = Some(path.rtt);
        path.lose(&mut cubic);
        for _ in 0..10 {
            path.round(&mut cubic);
        }
        let before = path.window.cwnd;
        path.now += Duration::from_secs(30);
        cubic.restart(path.now, &mut path.window);
        let after = path.round(&mut cubic);
        assert!(after - before < 20, "{before} to {after}");
    }

    /// (round-trip times of the rounds, in ms; the window that slow start was left at, if it was). The bounds are an
    /// eighth of the lowest, but 4 to 16 ms; a round's first eight measurements do not decide.
    #[test]
    fn rising_delay_ends_slow_start() {
        let quiet = [600, 600, 600, 600, 600];
        for (hystart, rtts, left_at) in [
            (true, quiet, None),
            (true, [600, 600, 600, 615, 615], None),
            (true, [600, 600, 617, 617, 617], Some(40 + 8)),
            (true, [600, 617, 617, 617, 617], Some(20 + 8)),
            (true, [20, 20, 20, 23, 24], None),
            (true, [20, 20, 20, 25, 25], Some(80 + 8)),
            (false, [600, 600, 617, 700, 900], None),
        ] {
            let mut path = path(600, 10, u32::MAX);
            // Far enough apart to be no train.
            path.spacing = Some(Duration::from_millis(3));
            let mut cubic = Cubic::new(hystart);
            for rtt_ms in rtts {
                path.rtt = Duration::from_millis(rtt_ms);
                path.round(&mut cubic);
            }
            let found = (path.window.ssthresh != u32::MAX).then_some(path.window.ssthresh);
            assert_eq!(found, left_at, "{rtts:?}");
        }
    }

    /// 100 ms, acknowledgements 1 ms apart: the first one later than half of (100 + 1) ms into its round is the 52nd.
    #[test]
    fn a_long_train_ends_slow_start() {
        for (hystart, spacing_us, left_at) in
            [(true, 1_000, Some(80 + 51)), (true, 2_100, None), (true, 100, None), (false, 1_000, None)]
        {
            let mut path = path(100, 10, u32::MAX);
            path.spacing = Some(Duration::from_micros(spacing_us));
            let mut cubic = Cubic::new(hystart);
            for _ in 0..5 {
                path.round(&mut cubic);
            }
            let found = (path.window.ssthresh != u32::MAX).then_some(path.window.ssthresh);
            assert_eq!(found, left_at, "{spacing_us} us");
        }
    }
}
