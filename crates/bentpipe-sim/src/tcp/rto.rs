//! The retransmission time-out: RFC 6298, and Linux's variant of it.

use super::settings::Settings;
use bentpipe_net::stack::RtoEstimator;
use bentpipe_net::time::Duration;

/// Measured round-trip time and what follows from it.
#[derive(Clone, Debug)]
pub struct RtoTimer {
    estimator: RtoEstimator,
    initial: Duration,
    min: Duration,
    max: Duration,
    granularity: Duration,
    /// Smoothed round-trip time × 8, in nanoseconds (Jacobson 1988, appendix A); 0: no measurement yet.
    srtt8: u64,
    /// RFC 6298: RTTVAR × 4. Linux: the mean deviation × 4.
    deviation4: u64,
    /// Linux: the largest deviation of this round trip, and what the time-out uses (both × 4).
    deviation4_max: u64,
    variation: u64,
    /// Linux: the round trip ends when this is acknowledged.
    round_end: u64,
    backoff: u32,
    rto: Duration,
}

impl RtoTimer {
    /// Nothing measured yet (RFC 6298 §2.1).
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        RtoTimer {
            estimator: settings.rto_estimator,
            initial: settings.rto_initial,
            min: settings.rto_min,
            max: settings.rto_max,
            granularity: settings.rto_granularity,
            srtt8: 0,
            deviation4: 0,
            deviation4_max: 0,
            variation: 0,
            round_end: 0,
            backoff: 0,
            rto: settings.rto_initial,
        }
    }

    /// A measured round-trip time. `acknowledged` and `next`: sequence numbers, for rounds.
    pub fn measure(&mut self, rtt: Duration, acknowledged: u64, next: u64) {
        let rtt = match self.granularity.ns {
            0 => rtt.ns.max(1),
            // A clock of that tick sees whole ticks (RFC 6298 §4), at least one.
            tick => (rtt.ns / tick).max(1) * tick,
        };
        match self.estimator {
            RtoEstimator::Rfc6298 => self.measure_rfc6298(rtt),
            RtoEstimator::Linux => self.measure_linux(rtt, acknowledged, next),
        }
        self.backoff = 0;
        self.compute();
    }

    /// RFC 6298 §2.2, §2.3: alpha 1/8, beta 1/4.
    fn measure_rfc6298(&mut self, rtt: u64) {
        if self.srtt8 == 0 {
            self.srtt8 = rtt * 8;
            self.deviation4 = rtt * 2; // RTTVAR = R/2
            return;
        }
        let error = (self.srtt8 / 8).abs_diff(rtt);
        // RTTVAR ← 3/4 RTTVAR + 1/4 |SRTT − R'|, kept four times as large.
        self.deviation4 = self.deviation4 - self.deviation4 / 4 + error;
        self.srtt8 = self.srtt8 - self.srtt8 / 8 + rtt;
    }

    /// Linux: RTTVAR is the largest mean deviation of a round trip, decays slowly, and never falls below `rto_min`; a
    /// shorter round trip counts for little (tcp_rtt_estimator).
    fn measure_linux(&mut self, rtt: u64, acknowledged: u64, next: u64) {
        if self.srtt8 == 0 {
            self.srtt8 = rtt * 8;
            self.deviation4 = rtt * 2;
            self.variation = self.deviation4.max(self.min.ns);
            self.deviation4_max = self.variation;
            self.round_end = next;
            return;
        }
        let error = rtt as i64 - (self.srtt8 / 8) as i64;
        self.srtt8 = (self.srtt8 as i64 + error) as u64;
        let mut change = error.abs() - (self.deviation4 / 4) as i64;
        if error < 0 && change > 0 {
            change /= 8;
        }
        self.deviation4 = (self.deviation4 as i64 + change).max(0) as u64;
        if self.deviation4 > self.deviation4_max {
            self.deviation4_max = self.deviation4;
            self.variation = self.variation.max(self.deviation4_max);
        }
        if acknowledged > self.round_end {
            if self.deviation4_max < self.variation {
                self.variation -= (self.variation - self.deviation4_max) / 4;
            }
            self.round_end = next;
            self.deviation4_max = self.min.ns;
        }
    }

    fn compute(&mut self) {
        if self.srtt8 == 0 {
            self.rto = self.initial;
            return;
        }
        let srtt = self.srtt8 / 8;
        self.rto = Duration {
            ns: match self.estimator {
                // RFC 6298 §2.3, §2.4
                RtoEstimator::Rfc6298 => (srtt + self.deviation4.max(self.granularity.ns)).max(self.min.ns),
                RtoEstimator::Linux => srtt + self.variation,
            }
            .min(self.max.ns),
        };
    }

    /// The time-out now, backed off.
    #[must_use]
    pub fn rto(&self) -> Duration {
        self.rto
    }

    /// Doubles the time-out (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.backoff += 1;
        self.rto = Duration { ns: self.rto.ns.saturating_mul(2).min(self.max.ns) };
    }

    /// New data was acknowledged: without back-off again, though nothing was measured.
    pub fn forget_backoff(&mut self) {
        if self.backoff > 0 {
            self.backoff = 0;
            self.compute();
        }
    }

    /// The number of doublings.
    #[must_use]
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Smoothed round-trip time; zero: none yet.
    #[must_use]
    pub fn smoothed(&self) -> Duration {
        Duration { ns: self.srtt8 / 8 }
    }

    /// Lower bound of the time-out (or of its deviation).
    #[must_use]
    pub fn min(&self) -> Duration {
        self.min
    }

    /// When a timer that starts at `now` ends: a coarse clock rounds it up to its tick.
    #[must_use]
    pub fn granularity(&self) -> Duration {
        self.granularity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::stack::TcpConfig;

    fn timer(text: &str) -> RtoTimer {
        let config = TcpConfig::from_table(toml::from_str(text).unwrap()).unwrap();
        RtoTimer::new(&Settings::new(&config).unwrap())
    }
    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// RFC 6298 §2 by hand: R = 600 ms: SRTT 600, RTTVAR 300, RTO 1800. R' = 800: RTTVAR 3/4·300 + 1/4·200 = 275,
    /// SRTT 7/8·600 + 1/8·800 = 625, RTO 625 + 1100 = 1725. R' = 600: RTTVAR 3/4·275 + 1/4·25 = 212.5, SRTT 621.875,
    /// RTO 1471.875.
    #[test]
    fn rfc_6298_numbers() {
        let mut t = timer("rto_estimator = 'rfc6298'");
        assert_eq!(t.rto(), ms(1000), "§2.1");
        t.measure(ms(600), 0, 0);
        assert_eq!((t.smoothed(), t.rto()), (ms(600), ms(1800)));
        t.measure(ms(800), 0, 0);
        assert_eq!((t.smoothed(), t.rto()), (ms(625), ms(1725)));
        t.measure(ms(600), 0, 0);
        assert_eq!((t.smoothed().ns, t.rto().ns), (621_875_000, 1_471_875_000));
        t.back_off();
        t.back_off();
        assert_eq!((t.rto().ns, t.backoff()), (4 * 1_471_875_000, 2), "§5.5");
        (0..10).for_each(|_| t.back_off());
        assert_eq!(t.rto(), Duration::from_secs(120), "rto_max");
        t.forget_backoff();
        assert_eq!(t.rto().ns, 1_471_875_000);
        (0..100).for_each(|_| t.measure(ms(10), 0, 0));
        assert_eq!(t.rto(), ms(1000), "§2.4: never below one second");
    }

    #[test]
    fn a_stack_of_the_nineties() {
        let mut t =
            timer("rto_estimator = 'rfc6298'\nrto_initial = '3 s'\nrto_granularity = '500 ms'\nrto_min = '1 s'");
        assert_eq!(t.rto(), ms(3000), "RFC 1122 §4.2.3.1");
        // 700 ms is one tick: SRTT 500 ms, RTTVAR 250 ms.
        t.measure(ms(700), 0, 0);
        assert_eq!((t.smoothed(), t.rto()), (ms(500), ms(1500)));
        (0..60).for_each(|_| t.measure(ms(700), 0, 0));
        assert_eq!(t.rto(), ms(1000), "SRTT + G, and not below the minimum");
    }

    #[test]
    fn linux_keeps_200_ms_above_the_round_trip() {
        let mut t = timer("");
        t.measure(ms(600), 0, 10);
        assert_eq!(t.rto(), ms(1800));
        for n in 1..200 {
            t.measure(ms(600), n * 10 + 1, n * 10 + 10);
        }
        let rto = t.rto().as_millis_f64();
        assert!((800.0..801.0).contains(&rto), "{rto}");
    }
}
