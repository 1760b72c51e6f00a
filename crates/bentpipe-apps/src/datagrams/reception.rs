//! The receiving end's view of a numbered stream of datagrams: loss, order, delay, jitter.

use crate::delays::Delays;
use bentpipe_net::time::{Duration, Instant};

/// Interarrival jitter (RFC 3550 §6.4.1): a mean, over about 16 datagrams, of how much the transit time differs from one
/// arrival to the next.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Jitter {
    last_transit_ns: Option<i64>,
    estimate_ns: f64,
    max_ns: f64,
    /// Sum of the differences.
    differences_ns: f64,
    count: u64,
}

impl Jitter {
    /// A datagram that was sent at `sent` arrived at `arrived`, in the order of arrival. Only differences count, so the two
    /// clocks need not agree.
    pub fn add(&mut self, sent: Instant, arrived: Instant) {
        let transit = arrived.ns.wrapping_sub(sent.ns) as i64;
        if let Some(last) = self.last_transit_ns.replace(transit) {
            let difference = (transit - last).unsigned_abs() as f64;
            self.estimate_ns += (difference - self.estimate_ns) / 16.0;
            self.max_ns = self.max_ns.max(self.estimate_ns);
            self.differences_ns += difference;
            self.count += 1;
        }
    }

    /// The estimate J, in seconds; `None`: fewer than two datagrams.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        (self.count > 0).then_some(self.estimate_ns / 1e9)
    }

    /// The largest estimate so far, in seconds.
    #[must_use]
    pub fn max_seconds(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max_ns / 1e9)
    }

    /// The mean of the differences |D|, in seconds.
    #[must_use]
    pub fn mean_difference_seconds(&self) -> Option<f64> {
        (self.count > 0).then(|| self.differences_ns / self.count as f64 / 1e9)
    }
}

/// Runs of consecutive numbers that did not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LossBursts {
    /// Runs.
    pub count: u64,
    /// Datagrams in them.
    pub lost: u64,
    /// The longest one.
    pub longest: u64,
}

impl LossBursts {
    /// One more run of so many; of none: nothing.
    pub fn add(&mut self, length: u64) {
        self.count += u64::from(length > 0);
        self.lost += length;
        self.longest = self.longest.max(length);
    }
}

/// Which numbers of a stream came, in which order, and when.
#[derive(Clone, Debug)]
pub struct Reception {
    /// A bit for each number.
    seen: Vec<u64>,
    /// Different numbers.
    pub received: u64,
    /// Copies of a number that had come before.
    pub duplicates: u64,
    /// Arrivals with a number below one that had come before (RFC 4737 §3).
    pub reordered: u64,
    /// Bytes of their data.
    pub bytes: u64,
    /// One more than the highest number that came.
    pub end: u64,
    /// Of the first arrival: when, and bytes of data.
    first: Option<(Instant, u64)>,
    /// The last arrival.
    last: Instant,
    /// In the order of arrival.
    delays: Vec<Duration>,
    /// The jitter of the arrivals, duplicates left out.
    pub jitter: Jitter,
    bins: Bins,
}

/// Arrivals by intervals.
#[derive(Clone, Debug)]
struct Bins {
    every: Duration,
    start: Instant,
    /// Arrivals, the sum of their delays, bytes.
    bins: Vec<(u32, u64, u64)>,
}

impl Reception {
    /// Nothing came. `start`, `every`: the intervals of the series.
    #[must_use]
    pub fn new(start: Instant, every: Duration) -> Reception {
        Reception {
            seen: Vec::new(),
            received: 0,
            duplicates: 0,
            reordered: 0,
            bytes: 0,
            end: 0,
            first: None,
            last: start,
            delays: Vec::new(),
            jitter: Jitter::default(),
            bins: Bins { every, start, bins: Vec::new() },
        }
    }

    /// Datagram `number`, which was sent at `sent`, came at `arrived` with so many bytes of data.
    pub fn add(&mut self, number: u64, sent: Instant, arrived: Instant, bytes: u64) {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.seen[word] |= bit;
        self.received += 1;
        self.bytes += bytes;
        if number < self.end {
            self.reordered += 1;
        }
        self.end = self.end.max(number + 1);
        self.first.get_or_insert((arrived, bytes));
        self.last = self.last.max(arrived);
        let delay = arrived.since(sent);
        self.delays.push(delay);
        self.jitter.add(sent, arrived);
        self.bins.add(arrived, delay, bytes);
    }

    /// The runs of numbers missing before the highest one that came.
    #[must_use]
    pub fn bursts(&self) -> LossBursts {
        let mut bursts = LossBursts::default();
        let mut run = 0;
        for number in 0..self.end {
            if self.seen[(number / 64) as usize] >> (number % 64) & 1 == 1 {
                bursts.add(std::mem::take(&mut run));
            } else {
                run += 1;
            }
        }
        bursts
    }

    /// Statistics of the delays; `None`: nothing came.
    #[must_use]
    pub fn delays(&self) -> Option<Delays> {
        Delays::of(self.delays.iter().map(|delay| delay.as_secs_f64()))
    }

    /// Bits of data per second from the first arrival, which does not count itself, to the last.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let (first, bytes) = self.first?;
        let span = self.last.since(first).as_secs_f64();
        (span > 0.0).then(|| (self.bytes - bytes) as f64 * 8.0 / span)
    }

    /// At the end of each interval: bits of data per second that came in it, and the mean of their delays in seconds.
    pub fn series(&self) -> impl Iterator<Item = (Instant, f64, Option<f64>)> + '_ {
        let Bins { every, start, bins } = &self.bins;
        bins.iter().zip(1..).map(|((count, delays, bytes), number)| {
            let end = Instant { ns: start.ns + every.ns * number };
            let mean = (*count > 0).then(|| *delays as f64 / f64::from(*count) / 1e9);
            (end, *bytes as f64 * 8.0 / every.as_secs_f64(), mean)
        })
    }
}

impl Bins {
    fn add(&mut self, at: Instant, delay: Duration, bytes: u64) {
        let index = (at.since(self.start).ns / self.every.ns.max(1)) as usize;
        if index >= self.bins.len() {
            self.bins.resize(index + 1, (0, 0, 0));
        }
        let (count, delays, sum) = &mut self.bins[index];
        *count += 1;
        *delays += delay.ns;
        *sum += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant { ns: ms * 1_000_000 }
    }

    /// Numbers with the times of sending and arrival in milliseconds.
    fn reception(arrivals: &[(u64, u64, u64)]) -> Reception {
        let mut reception = Reception::new(at(0), Duration::from_millis(500));
        arrivals.iter().for_each(|(number, sent, arrived)| reception.add(*number, at(*sent), at(*arrived), 100));
        reception
    }

    #[test]
    fn jitter_by_hand() {
        // Sent every 20 ms. Transit times 100, 108, 104, 120 ms: |D| = 8, 4, 16.
        let mut jitter = Jitter::default();
        let mut estimates = Vec::new();
        for (sent, arrived) in [(0, 100), (20, 128), (40, 144), (60, 180)] {
            jitter.add(at(sent), at(arrived));
            estimates.push(jitter.seconds());
        }
        // J = 8/16 = 0.5; 0.5 + 3.5/16 = 0.71875; 0.71875 + 15.28125/16 = 1.673828125 ms.
        let expected = [None, Some(0.0005), Some(0.00071875), Some(0.001_673_828_125)];
        for (estimate, expected) in estimates.iter().zip(expected) {
            assert!((estimate.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-15, "{estimates:?}");
        }
        assert_eq!(jitter.max_seconds(), jitter.seconds());
        assert!((jitter.mean_difference_seconds().unwrap() - 0.028 / 3.0).abs() < 1e-15);
        // Clocks that differ change nothing; datagrams count in the order of arrival.
        let mut other = Jitter::default();
        for (sent, arrived) in [(5000, 100), (5020, 128), (5040, 144), (5060, 180)] {
            other.add(at(sent), at(arrived));
        }
        assert_eq!(other.seconds(), jitter.seconds());
    }

    #[test]
    fn loss_order_and_copies() {
        // 0 to 11, of which 3, 4 and 8 are lost, 6 comes late and 7 twice.
        let numbers = [0, 1, 2, 5, 7, 7, 6, 9, 10, 11];
        let arrivals: Vec<_> = numbers.iter().zip(0..).map(|(n, i)| (*n, 10 * n, 500 + 10 * i)).collect();
        let reception = reception(&arrivals);
        assert_eq!((reception.received, reception.duplicates, reception.reordered, reception.end), (9, 1, 1, 12));
        assert_eq!(reception.bursts(), LossBursts { count: 2, lost: 3, longest: 2 });
        assert_eq!(reception.bytes, 900);
        // From 500 to 590 ms, without the first.
        assert_eq!(reception.rate(), Some(800.0 * 8.0 / 0.09));
    }

    #[test]
    fn delays_and_series() {
        let reception = reception(&[(0, 0, 300), (1, 100, 300), (2, 200, 300), (3, 300, 700)]);
        let delays = reception.delays().unwrap();
        assert_eq!((delays.min, delays.median, delays.p95, delays.max), (0.1, 0.25, 0.4, 0.4));
        assert_eq!(delays.mean, 0.25);
        let series: Vec<_> = reception.series().collect();
        assert_eq!(series[0], (at(500), 4800.0, Some(0.2)));
        assert_eq!(series[1], (at(1000), 1600.0, Some(0.4)));
        assert_eq!(Reception::new(at(0), Duration::from_secs(1)).delays(), None);
    }
}
