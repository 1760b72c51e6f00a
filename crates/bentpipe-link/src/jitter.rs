//! Delay that varies: drawn for each packet, or for each interval of a grid in time.

use crate::impairment::{Fate, Impairment, Transmission};
use bentpipe_net::distribution::Distribution;
use bentpipe_net::seed::{Stream, unit};
use bentpipe_net::time::Duration;
use std::sync::Arc;

/// Extra delay of packets: its distribution, and how long a draw holds.
#[derive(Clone, Debug, PartialEq)]
pub struct JitterConfig {
    /// The distribution.
    pub distribution: Delays,
    /// A draw holds for so long, from the start of the run on, as the path through one satellite does; none: each packet has
    /// its own.
    pub every: Option<Duration>,
}

/// A distribution of delays.
#[derive(Clone, Debug, PartialEq)]
pub enum Delays {
    /// Between two bounds, all alike.
    Uniform {
        /// The least.
        least: Duration,
        /// The bound above.
        most: Duration,
    },
    /// Drawn from this distribution, in seconds.
    Drawn(Distribution),
    /// Measured delays, one after the other and again from the start.
    Trace(Arc<[Duration]>),
}

impl JitterConfig {
    /// Uniform from zero to `most`, for each packet.
    #[must_use]
    pub fn up_to(most: Duration) -> JitterConfig {
        JitterConfig { distribution: Delays::Uniform { least: Duration::ZERO, most }, every: None }
    }
}

/// The extra delay of the packets of one path.
#[derive(Debug)]
pub struct Jitter {
    config: JitterConfig,
    random: Stream,
    /// Draws so far.
    draws: u64,
    current: Duration,
}

impl Jitter {
    /// As configured, with draws from `random`.
    #[must_use]
    pub fn new(config: JitterConfig, random: Stream) -> Jitter {
        Jitter { config, random, draws: 0, current: Duration::ZERO }
    }

    fn draw(&mut self) {
        let random = &mut self.random;
        self.current = match &self.config.distribution {
            Delays::Uniform { least, most } => {
                Duration { ns: least.ns + (unit(random) * most.ns.saturating_sub(least.ns) as f64) as u64 }
            }
            Delays::Drawn(distribution) => Duration { ns: (distribution.sample(random) * 1e9) as u64 },
            Delays::Trace(delays) => delays[(self.draws % delays.len() as u64) as usize],
        };
        self.draws += 1;
    }
}

impl Impairment for Jitter {
    fn apply(&mut self, transmission: &Transmission, fate: &mut Fate<'_>) {
        if fate.is_discarded() {
            return;
        }
        match self.config.every {
            None => self.draw(),
            // The draws of intervals without packets are made too: a packet's delay does not depend on those before it.
            Some(every) => {
                let interval = transmission.start.ns / every.ns;
                while self.draws <= interval {
                    self.draw();
                }
            }
        }
        fate.delay(self.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::seed::Seed;
    use bentpipe_net::time::Instant;

    /// The delays of packets that leave every millisecond, in milliseconds.
    fn delays(config: JitterConfig, count: u64, every_ms: u64) -> Vec<f64> {
        let mut jitter = Jitter::new(config, Seed(5).stream("jitter"));
        let mut delay = |n: u64| {
            let at = Instant::ZERO + Duration::from_millis(n * every_ms);
            let mut fate = Fate::new(None);
            jitter.apply(&Transmission { start: at, end: at, bits: 800 }, &mut fate);
            fate.added_delay().as_secs_f64() * 1e3
        };
        (0..count).map(&mut delay).collect()
    }

    fn mean_and_deviation(all: &[f64]) -> (f64, f64) {
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64;
        (mean, variance.sqrt())
    }

    fn of(distribution: Delays) -> JitterConfig {
        JitterConfig { distribution, every: None }
    }

    #[test]
    fn each_distribution_has_its_moments() {
        let (least, most) = (Duration::from_millis(10), Duration::from_millis(40));
        for (config, mean, deviation) in [
            (of(Delays::Uniform { least, most }), 25.0, 30.0 / 12f64.sqrt()),
            (of(Delays::Drawn(Distribution::normal(0.05, 0.01).unwrap())), 50.0, 10.0),
            (of(Delays::Drawn(Distribution::gamma(0.016, 0.0105).unwrap())), 16.0, 10.5),
        ] {
            let all = delays(config.clone(), 100_000, 1);
            let found = mean_and_deviation(&all);
            let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.02;
            assert!(close(found.0, mean) && close(found.1, deviation), "{config:?}: {found:?}");
            assert!(all.iter().all(|delay| *delay >= 0.0));
        }
    }

    #[test]
    fn a_draw_holds_for_an_interval_whatever_was_sent_before() {
        let config = JitterConfig {
            every: Some(Duration::from_secs(15)),
            ..of(Delays::Drawn(Distribution::gamma(0.01, 0.009).unwrap()))
        };
        // Every second, and every 7.5 s.
        let (often, rare) = (delays(config.clone(), 60, 1000), delays(config, 8, 7500));
        assert!(often.chunks(15).all(|interval| interval.iter().all(|delay| *delay == interval[0])));
        assert_eq!(
            often.iter().step_by(15).copied().collect::<Vec<_>>(),
            rare.iter().step_by(2).copied().collect::<Vec<_>>()
        );
        assert!(often[0] != often[15] && often[15] != often[30]);
    }

    #[test]
    fn a_trace_repeats() {
        let trace: Arc<[Duration]> = [3, 1, 2].map(Duration::from_millis).into();
        assert_eq!(delays(of(Delays::Trace(trace)), 5, 1), [3.0, 1.0, 2.0, 3.0, 1.0]);
    }
}
