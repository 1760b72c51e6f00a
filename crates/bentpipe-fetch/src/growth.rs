//! The number of connections: it grows for as long as that brings more.
//!
//! One TCP connection carries at most a window each round trip, and after a loss less; several carry several times that,
//! until the link is full. Beyond that they only lose each other's packets in the queues (Kruse: past eight on a T1 the
//! throughput fell). So the number is doubled while each doubling raises the goodput; one that brings
//! next to nothing is taken back.

use std::time::{Duration, Instant};

/// Decides from what is seen.
#[derive(Debug)]
pub(crate) struct Growth {
    target: usize,
    most: usize,
    /// The number is being looked for.
    growing: bool,
    /// Since when all the connections deliver.
    all_since: Option<Instant>,
    /// The measurement's begin, and the bytes that were there.
    measured_from: Option<(Instant, u64)>,
    /// Bytes a second with the number before.
    before: Option<(usize, f64)>,
}

/// One observation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub now: Instant,
    /// Received so far.
    pub bytes: u64,
    /// Connections that deliver.
    pub delivering: usize,
    pub round_trip: Duration,
    /// Bytes still to come.
    pub left: Option<u64>,
}

impl Growth {
    /// A number that was given.
    pub fn fixed(connections: usize) -> Growth {
        Growth { growing: false, ..Growth::new(connections, connections) }
    }

    /// Begins with `first`, and goes to `most` at the highest.
    pub fn new(first: usize, most: usize) -> Growth {
        let target = first.clamp(1, most.max(1));
        Growth { target, most, growing: true, all_since: None, measured_from: None, before: None }
    }

    /// The number that there should be.
    pub fn target(&self) -> usize {
        self.target
    }

    /// The server allows only so many.
    pub fn limit(&mut self, connections: usize) {
        self.most = connections.max(1);
        self.target = self.target.min(self.most);
        self.growing = false;
    }

    /// Judges; true when the number has changed.
    pub fn update(&mut self, sample: Sample) -> bool {
        if !self.growing {
            return false;
        }
        if sample.delivering < self.target {
            (self.all_since, self.measured_from) = (None, None);
            return false;
        }
        let since = *self.all_since.get_or_insert(sample.now);
        if sample.now - since < (sample.round_trip * SETTLE_ROUND_TRIPS).max(SETTLE_MIN) {
            return false;
        }
        let (from, bytes) = *self.measured_from.get_or_insert((sample.now, sample.bytes));
        let time = sample.now - from;
        if time < (sample.round_trip * MEASURE_ROUND_TRIPS).max(MEASURE_MIN) {
            return false;
        }
        let rate = (sample.bytes - bytes) as f64 / time.as_secs_f64();
        let first = self.target;
        // A new connection needs its time; so much must be left that it pays.
        let pays = sample.left.is_none_or(|left| {
            left as f64 > rate * (sample.round_trip * 2 * SETTLE_ROUND_TRIPS).max(2 * SETTLE_MIN).as_secs_f64()
        });
        match self.before {
            // Ending connections costs what they have in flight.
            Some((fewer, before)) if rate < before * LOSS || (rate < before * USELESS && pays) => {
                self.target = fewer;
                self.growing = false;
            }
            Some((_, before)) if rate < before * GAIN => self.growing = false,
            _ => {
                self.before = Some((self.target, rate));
                if pays {
                    self.target = (self.target * 2).min(self.most);
                }
                self.growing = pays && self.target > first;
            }
        }
        (self.all_since, self.measured_from) = (None, None);
        self.target != first
    }
}

/// Slow start from ten segments to a window of 64 KB takes 3 round trips, to 1 MB 7 (RFC 6928, RFC 5681).
const SETTLE_ROUND_TRIPS: u32 = 7;
const SETTLE_MIN: Duration = Duration::from_millis(300);
/// Several windows, so that their bursts do not count.
const MEASURE_ROUND_TRIPS: u32 = 5;
const MEASURE_MIN: Duration = Duration::from_millis(500);
/// Twice the connections must bring so much more, or the link is full.
const GAIN: f64 = 1.15;
/// With less than this, the added ones only lose each other's packets.
const USELESS: f64 = 1.05;
/// With less than this of the rate before, the added ones do harm.
const LOSS: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of `capacity` bytes/s where each connection gets up to `each`; every connection past `good` costs 20 %.
    fn settles_at(capacity: f64, each: f64, good: usize, round_trip: Duration) -> (usize, f64) {
        let (mut growth, start, mut bytes) = (Growth::new(2, 32), Instant::now(), 0.0);
        let mut now = start;
        while growth.growing {
            let step = Duration::from_millis(50);
            now += step;
            let n = growth.target();
            let spoilt = 0.8f64.powi(n.saturating_sub(good) as i32);
            bytes += (each * n as f64).min(capacity) * spoilt * step.as_secs_f64();
            growth.update(Sample { now, bytes: bytes as u64, delivering: n, round_trip, left: None });
            assert!(now - start < Duration::from_secs(600), "never decides");
        }
        (growth.target(), (now - start).as_secs_f64())
    }

    #[test]
    fn grows_while_it_gains_and_no_further() {
        let geo = Duration::from_millis(560);
        // Windows of 64 KB: 117 kB/s each. On a T1 two are enough; the probe of four brings nothing and is taken back.
        assert_eq!(settles_at(185e3, 117e3, 99, geo).0, 2);
        // Four bring 10 % more than two and stay.
        assert_eq!(settles_at(257e3, 117e3, 99, geo).0, 4);
        // Where the probe does harm, it is taken back.
        assert_eq!(settles_at(185e3, 117e3, 2, geo).0, 2);
        // 10 Mbit/s want eleven: sixteen bring more than eight, and the probe of 32 nothing.
        assert_eq!(settles_at(1.25e6, 117e3, 99, geo).0, 16);
        let (connections, seconds) = settles_at(1e12, 117e3, 99, geo);
        assert!(connections == 32 && seconds < 60.0, "{connections} after {seconds} s");
    }

    #[test]
    fn a_given_number_stays_and_a_limit_holds() {
        let mut growth = Growth::fixed(3);
        let sample = Sample { now: Instant::now(), bytes: 0, delivering: 3, round_trip: Duration::ZERO, left: None };
        assert!(!growth.update(sample) && growth.target() == 3);
        growth.limit(2);
        assert_eq!(growth.target(), 2);
    }
}
