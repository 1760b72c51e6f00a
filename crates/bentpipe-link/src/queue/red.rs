//! Random early detection.
//!
//! S. Floyd and V. Jacobson, "Random early detection gateways for congestion avoidance", IEEE/ACM Transactions on Networking
//! 1(4), 1993, recommended by RFC 2309 §4 (and no longer as the only choice by RFC 7567). The defaults are those of S. Floyd,
//! "RED: discussions of setting parameters", 1997. "Gentle" is S. Floyd, "Recommendation on using the gentle variant of RED",
//! 2000. The average is counted in bytes, and a packet's length does not influence its chance (RFC 7141 §2.2).

use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueLimit, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::seed::{Stream, unit};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitRate, DataSize, Percent};
use std::collections::VecDeque;
use toml::Table;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    bytes: Option<DataSize>,
    min: Option<DataSize>,
    max: Option<DataSize>,
    max_drop: Option<Percent>,
    weight: Option<f64>,
    mean_packet: Option<DataSize>,
    gentle: Option<bool>,
    ecn: Option<bool>,
}

#[derive(Clone, Copy, Debug)]
struct RedConfig {
    limit: QueueLimit,
    /// Thresholds of the average, in bytes.
    min: f64,
    max: f64,
    /// The chance of a drop as the average reaches `max`.
    max_drop: f64,
    /// Of one sample in the average.
    weight: f64,
    /// A typical packet's time, by which an idle time is counted in samples.
    packet_time: Duration,
    /// Above `max` the chance rises further, to 1 at twice `max`, instead of at once.
    gentle: bool,
    ecn: bool,
}

/// Reads the table of `kind = "red"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let config = RedConfig::read(keys, context)?;
    let make = move |random| Box::new(Red::new(config, random)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("red", make)))
}

impl RedConfig {
    fn read(keys: Table, context: &QueueContext) -> Result<RedConfig, KeyProblem> {
        let Keys { bytes, min, max, max_drop, weight, mean_packet, gentle, ecn } = read_keys(keys)?;
        let min = min.map_or(5 * context.packet_bytes_max, |min| min.bytes);
        let max = max.map_or(min.saturating_mul(3), |max| max.bytes);
        let least = context.bytes_default.max(max.saturating_mul(2));
        let limit = bytes.map_or(least, |bytes| bytes.bytes);
        let out_of_range = |key: &str, value: &dyn std::fmt::Display, allowed: &str| {
            Err(KeyProblem::new(key, format!("{value} is out of range; allowed: {allowed}")))
        };
        if min == 0 {
            return out_of_range("min", &DataSize { bytes: min }, "1 B or more");
        }
        if max <= min {
            return out_of_range("max", &DataSize { bytes: max }, &format!("more than min ({min} B)"));
        }
        if limit < max || limit < context.packet_bytes_max {
            let least = max.max(context.packet_bytes_max);
            return out_of_range(
                "bytes",
                &DataSize { bytes: limit },
                &format!("max ({max} B) and one packet: {least} B or more"),
            );
        }
        let max_drop = match max_drop {
            None => 0.1,
            Some(share) if share.fraction() > 0.0 => share.fraction(),
            Some(share) => return out_of_range("max_drop", &share, "more than 0 %, to 100 %"),
        };
        let weight = match weight {
            None => 0.002,
            Some(weight) if weight > 0.0 && weight <= 1.0 => weight,
            Some(weight) => return out_of_range("weight", &weight, "more than 0, to 1"),
        };
        let mean_packet = mean_packet.map_or(500, |size| size.bytes);
        if !(1..=65_535).contains(&mean_packet) {
            return out_of_range("mean_packet", &DataSize { bytes: mean_packet }, "1 B to 65535 B");
        }
        Ok(RedConfig {
            limit: QueueLimit::Bytes(limit),
            min: min as f64,
            max: max as f64,
            max_drop,
            weight,
            packet_time: packet_time(mean_packet, context.rate),
            gentle: gentle.unwrap_or(true),
            ecn: ecn.unwrap_or(true),
        })
    }

    /// The chance at an average, before the packets since the last drop are counted; `None`: nothing is dropped early.
    fn chance(&self, average: f64) -> Option<f64> {
        if average < self.min {
            None
        } else if average < self.max {
            Some(self.max_drop * (average - self.min) / (self.max - self.min))
        } else if self.gentle && average < 2.0 * self.max {
            Some(self.max_drop + (1.0 - self.max_drop) * (average - self.max) / self.max)
        } else {
            Some(1.0)
        }
    }
}

fn packet_time(bytes: u64, rate: BitRate) -> Duration {
    Duration { ns: rate.time_for_bits(bytes * 8).ns.max(1) }
}

#[derive(Debug)]
struct Red {
    config: RedConfig,
    random: Stream,
    /// With each packet whether it leaves with a mark.
    waiting: VecDeque<(Ticket, bool)>,
    bytes: u64,
    average: f64,
    /// Packets since the last drop or mark while the average was above `min`; `None`: it was not.
    since_drop: Option<u32>,
    /// When the queue became empty.
    empty_since: Instant,
}

/// The decision about a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Mark,
    Drop,
}

impl Red {
    fn new(config: RedConfig, random: Stream) -> Red {
        Red {
            config,
            random,
            waiting: VecDeque::new(),
            bytes: 0,
            average: 0.0,
            since_drop: None,
            empty_since: Instant::ZERO,
        }
    }

    fn sample(&mut self, now: Instant) {
        let keep = 1.0 - self.config.weight;
        if self.waiting.is_empty() {
            // As if so many packets had found it empty.
            let samples = now.since(self.empty_since).ns / self.config.packet_time.ns;
            self.average *= power(keep, samples);
        } else {
            self.average = keep * self.average + self.config.weight * self.bytes as f64;
        }
    }

    fn judge(&mut self, is_ecn_capable: bool) -> Verdict {
        let Some(chance) = self.config.chance(self.average) else {
            self.since_drop = None;
            return Verdict::Keep;
        };
        if chance >= 1.0 {
            self.since_drop = Some(0);
            return Verdict::Drop;
        }
        // Uniform distances between drops instead of geometric ones.
        let count = self.since_drop.map_or(0, |count| count.saturating_add(1));
        let spread = 1.0 - f64::from(count) * chance;
        if spread > 0.0 && unit(&mut self.random) >= chance / spread {
            self.since_drop = Some(count);
            return Verdict::Keep;
        }
        self.since_drop = Some(0);
        // RFC 3168 §7: below the upper threshold a mark takes the place of a drop.
        let may_mark = self.config.ecn && is_ecn_capable && self.average < self.config.max;
        if may_mark { Verdict::Mark } else { Verdict::Drop }
    }
}

/// `base` to a whole power, the same on every machine.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 && result > 0.0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

impl QueueDiscipline for Red {
    fn enqueue(&mut self, now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        self.sample(now);
        let verdict = self.judge(headers.is_some_and(Headers::is_ecn_capable));
        let fits = self.config.limit.admits(self.waiting.len() as u64, self.bytes, u64::from(ticket.bytes));
        if verdict == Verdict::Drop || !fits {
            drops.push(ticket);
            return;
        }
        self.bytes += u64::from(ticket.bytes);
        self.waiting.push_back((ticket, verdict == Verdict::Mark));
    }

    fn dequeue(&mut self, now: Instant, _drops: &mut Drops) -> Option<Departure> {
        let (ticket, mark) = self.waiting.pop_front()?;
        self.bytes -= u64::from(ticket.bytes);
        if self.waiting.is_empty() {
            self.empty_since = now;
        }
        Some(Departure { ticket, mark })
    }

    fn next_departure(&self) -> Instant {
        if self.waiting.is_empty() { Instant::FAR } else { Instant::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::harness::{Fate, constant, context, discipline, run, udp};
    use bentpipe_net::seed::Seed;

    fn red(keys: &str) -> Red {
        Red::new(RedConfig::read(toml::from_str(keys).unwrap(), &context(1_000_000)).unwrap(), Seed(1).stream("red"))
    }

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    /// The formulas of Floyd and Jacobson's figure 2: with nothing leaving, the n-th packet finds n - 1 packets.
    #[test]
    fn the_average_is_that_of_the_paper() {
        let mut red = red("weight = 0.1\nmean_packet = '500 B'\nmin = '90 kB'");
        let (mut average, mut drops) = (0.0f64, Drops::default());
        for number in 0..20u64 {
            let ticket = Ticket { slot: number as u32, bytes: 1500, arrival: at(number) };
            red.enqueue(at(number), ticket, None, &mut drops);
            average += 0.1 * (1500.0 * number as f64 - average);
            assert!((red.average - average).abs() < 1e-9, "packet {number}: {} for {average}", red.average);
        }
        while red.dequeue(at(1000), &mut drops).is_some() {}
        // 500 B take 4 ms: 41 ms of an empty queue are ten samples of zero.
        let ticket = Ticket { slot: 20, bytes: 1500, arrival: at(42_000) };
        red.enqueue(at(42_000), ticket, None, &mut drops);
        assert!((red.average - average * 0.9f64.powi(10)).abs() < 1e-9, "{}", red.average);
    }

    /// Figure 3 of the paper and the gentle variant: 0 below `min`, `max_drop` at `max`, 1 at twice `max`.
    #[test]
    fn the_chance_rises_with_the_average() {
        let gentle = red("min = '10 kB'\nmax = '30 kB'\nmax_drop = '10 %'").config;
        let classic = RedConfig { gentle: false, ..gentle };
        for (average, in_gentle, in_classic) in [
            (9_999.0, None, None),
            (10_000.0, Some(0.0), Some(0.0)),
            (20_000.0, Some(0.05), Some(0.05)),
            (30_000.0, Some(0.1), Some(1.0)),
            (45_000.0, Some(0.55), Some(1.0)),
            (60_000.0, Some(1.0), Some(1.0)),
        ] {
            let close = |a: Option<f64>, b: Option<f64>| {
                a.is_some() == b.is_some() && a.zip(b).is_none_or(|(a, b)| (a - b).abs() < 1e-12)
            };
            assert!(close(gentle.chance(average), in_gentle), "gentle at {average}: {:?}", gentle.chance(average));
            assert!(close(classic.chance(average), in_classic), "classic at {average}: {:?}", classic.chance(average));
        }
    }

    /// Method 2 of the paper's section 7: with a constant chance p the packets from one drop to the next are uniform, on 1 to
    /// 1/p - 1 as its figure 2 counts them.
    #[test]
    fn drops_are_spread_uniformly() {
        let mut red = red("min = '10 kB'\nmax = '30 kB'");
        red.average = 20_000.0;
        red.since_drop = Some(0);
        let (mut counts, mut distance) = ([0u32; 20], 0usize);
        for _ in 0..200_000 {
            distance += 1;
            if red.judge(false) == Verdict::Drop {
                counts[distance] += 1;
                distance = 0;
            }
        }
        let expected = f64::from(counts.iter().sum::<u32>()) / 19.0;
        assert!((expected * 19.0 / 20_000.0 - 1.0).abs() < 0.02, "200,000 packets, 10 from drop to drop: {expected}");
        // 18 degrees of freedom: above 42.3 with a chance of 0.1 %.
        let chi: f64 = counts[1..].iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        assert!(chi < 42.3, "{chi}: {counts:?}");
    }

    #[test]
    fn below_the_upper_threshold_packets_that_understand_it_are_marked() {
        let to = Instant::ZERO + Duration::from_secs(20);
        let fates = |is_ecn_capable, bps| {
            let offers = constant(1000, bps, Instant::ZERO, to, udp(1, 2, 3, is_ecn_capable));
            let mut red = discipline("kind = 'red'\nbytes = '1 MB'\nmin = '10 kB'\nmax = '100 kB'", 1_000_000);
            let events = run(&mut *red, 1_000_000, &offers);
            [Fate::SentMarked, Fate::Dropped].map(|fate| events.iter().filter(|event| event.fate == fate).count())
        };
        let [marked, dropped] = fates(true, 1_040_000);
        assert!(marked > 5 && dropped == 0, "{marked} marked, {dropped} dropped");
        let [marked, dropped] = fates(false, 1_040_000);
        assert!(marked == 0 && dropped > 5, "{marked} marked, {dropped} dropped");
    }

    #[test]
    fn mistakes_name_their_key() {
        for (keys, key) in [
            ("min = '0 B'", "min"),
            ("min = '9 kB'\nmax = '9 kB'", "max"),
            ("bytes = '9 kB'", "bytes"),
            ("max_drop = 0", "max_drop"),
            ("weight = 0.0", "weight"),
            ("weight = 1.1", "weight"),
            ("mean_packet = '0 B'", "mean_packet"),
            ("packets = 3", "packets"),
        ] {
            assert_eq!(read(toml::from_str(keys).unwrap(), &context(1_000_000)).unwrap_err().key, key, "{keys}");
        }
    }
}
