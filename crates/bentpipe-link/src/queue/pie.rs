//! Proportional integral controller enhanced.
//!
//! RFC 8033: an arriving packet is dropped with a chance that follows, every 15 ms, how far the delay is from its target and how
//! it changes. The delay is that of the packet that left last, by its time of arrival (§4.3). Of the optional parts there are
//! marks (§5.1) and the cap on the chance's steps (§5.5); there is no estimate of the departure rate (§5.2), no switching on
//! and off (§5.3) and no derandomization (§5.4).

use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueLimit, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::seed::{Stream, unit};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::DataSize;
use std::collections::VecDeque;
use toml::Table;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    bytes: Option<DataSize>,
    packets: Option<u64>,
    target: Option<Duration>,
    burst: Option<Duration>,
    ecn: Option<bool>,
}

#[derive(Clone, Copy, Debug)]
struct PieConfig {
    limit: QueueLimit,
    /// QDELAY_REF (RFC 8033 §4.2: 15 ms).
    target: Duration,
    /// MAX_BURST (RFC 8033 §4.4: 150 ms).
    burst: Duration,
    ecn: bool,
    /// MEAN_PKTSIZE (RFC 8033 §4.1). With two of them waiting nothing is dropped.
    packet_bytes: u64,
}

/// T_UPDATE, the time between calculations, and the gains that belong to it, in Hz (RFC 8033 §4.2).
const UPDATE: Duration = Duration::from_millis(15);
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// While the chance is no higher, packets are marked instead (RFC 8033 §5.1).
const MARK_MAX: f64 = 0.1;

/// Reads the table of `kind = "pie"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { bytes, packets, target, burst, ecn } = read_keys(keys)?;
    let limit = QueueLimit::read(bytes, packets, context)?;
    let target = target.unwrap_or(Duration::from_millis(15));
    if target == Duration::ZERO {
        return Err(KeyProblem::new("target", "must be longer than \"0 s\""));
    }
    let burst = burst.unwrap_or(Duration::from_millis(150));
    let config = PieConfig { limit, target, burst, ecn: ecn.unwrap_or(true), packet_bytes: context.packet_bytes_max };
    let make = move |random| Box::new(Pie::new(config, random)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("pie", make)))
}

#[derive(Debug)]
struct Pie {
    config: PieConfig,
    random: Stream,
    /// With each packet whether it leaves with a mark.
    waiting: VecDeque<(Ticket, bool)>,
    bytes: u64,
    next_update: Instant,
    control: Control,
}

/// Status variables (RFC 8033 appendix A).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Control {
    /// The chance of a drop.
    chance: f64,
    /// The delay of the packet that left last; zero once the queue is empty.
    delay: Duration,
    /// The delay at the last update.
    delay_before: Duration,
    /// Time for which packets are still let in whatever the chance.
    burst_left: Duration,
}

impl Control {
    /// The calculation of every [`UPDATE`].
    fn update(&mut self, config: &PieConfig) {
        let seconds = Duration::as_secs_f64;
        let change = ALPHA * (seconds(self.delay) - seconds(config.target))
            + BETA * (seconds(self.delay) - seconds(self.delay_before));
        // A small chance is changed in small steps.
        let scale = match self.chance {
            chance if chance < 0.000_001 => 2048.0,
            chance if chance < 0.000_01 => 512.0,
            chance if chance < 0.000_1 => 128.0,
            chance if chance < 0.001 => 32.0,
            chance if chance < 0.01 => 8.0,
            chance if chance < 0.1 => 2.0,
            _ => 1.0,
        };
        let mut change = change / scale;
        if self.chance >= 0.1 {
            // RFC 8033 §5.5.
            change = change.min(0.02);
        }
        self.chance += change;
        if self.delay == Duration::ZERO && self.delay_before == Duration::ZERO {
            self.chance *= 0.98;
        }
        self.chance = self.chance.clamp(0.0, 1.0);
        self.delay_before = self.delay;
        self.burst_left = self.burst_left - UPDATE;
    }

    /// Congestion is over.
    fn is_idle(&self, config: &PieConfig) -> bool {
        let half = config.target.ns / 2;
        self.chance == 0.0 && self.delay.ns < half && self.delay_before.ns < half
    }
}

impl Pie {
    fn new(config: PieConfig, random: Stream) -> Pie {
        let control =
            Control { chance: 0.0, delay: Duration::ZERO, delay_before: Duration::ZERO, burst_left: config.burst };
        Pie { config, random, waiting: VecDeque::new(), bytes: 0, next_update: Instant::ZERO + UPDATE, control }
    }

    /// Makes up for the updates due by `now`.
    fn update(&mut self, now: Instant) {
        while self.next_update <= now {
            let before = self.control;
            self.control.update(&self.config);
            self.next_update += UPDATE;
            if self.control == before {
                // Nothing would change any more.
                let missed = now.since(self.next_update).ns / UPDATE.ns;
                self.next_update += Duration { ns: missed * UPDATE.ns };
            }
        }
    }

    /// Decides on a packet that arrives; `true`: it is dropped, or marked where that is possible.
    fn acts_early(&mut self) -> bool {
        let Control { chance, delay_before, burst_left, .. } = self.control;
        let is_short = delay_before.ns < self.config.target.ns / 2 && chance < 0.2;
        if burst_left > Duration::ZERO || is_short || self.bytes <= 2 * self.config.packet_bytes {
            return false;
        }
        unit(&mut self.random) < chance
    }
}

impl QueueDiscipline for Pie {
    fn enqueue(&mut self, now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        self.update(now);
        let acts = self.acts_early();
        let may_mark = self.config.ecn && self.control.chance <= MARK_MAX;
        let mark = acts && may_mark && headers.is_some_and(Headers::is_ecn_capable);
        if self.control.is_idle(&self.config) {
            self.control.burst_left = self.config.burst;
        }
        let fits = self.config.limit.admits(self.waiting.len() as u64, self.bytes, u64::from(ticket.bytes));
        if !fits || acts && !mark {
            drops.push(ticket);
            return;
        }
        self.bytes += u64::from(ticket.bytes);
        self.waiting.push_back((ticket, mark));
    }

    fn dequeue(&mut self, now: Instant, _drops: &mut Drops) -> Option<Departure> {
        self.update(now);
        let (ticket, mark) = self.waiting.pop_front()?;
        self.bytes -= u64::from(ticket.bytes);
        self.control.delay = if self.waiting.is_empty() { Duration::ZERO } else { now.since(ticket.arrival) };
        Some(Departure { ticket, mark })
    }

    fn next_departure(&self) -> Instant {
        if self.waiting.is_empty() { Instant::FAR } else { Instant::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::harness::{Event, Fate, constant, context, discipline, run, udp};

    fn config() -> PieConfig {
        let limit = QueueLimit::Packets(1000);
        let (target, burst) = (Duration::from_millis(15), Duration::from_millis(150));
        PieConfig { limit, target, burst, ecn: true, packet_bytes: 1500 }
    }

    /// RFC 8033 §4.2 by hand: 0.125 Hz * (delay - 15 ms) + 1.25 Hz * (delay - delay before), divided by the table's factor.
    #[test]
    fn the_chance_follows_the_formula() {
        for (chance, delay_ms, before_ms, expected) in [
            (0.0, 115, 115, 0.0125 / 2048.0),
            (0.000_005, 115, 115, 0.000_005 + 0.0125 / 512.0),
            (0.000_05, 115, 115, 0.000_05 + 0.0125 / 128.0),
            (0.000_5, 115, 115, 0.000_5 + 0.0125 / 32.0),
            (0.005, 115, 115, 0.005 + 0.0125 / 8.0),
            (0.05, 115, 115, 0.05 + 0.0125 / 2.0),
            (0.3, 115, 115, 0.3125),
            (0.3, 25, 17, 0.31125),
            // The cap of §5.5.
            (0.3, 115, 15, 0.32),
            (0.05, 115, 15, 0.05 + 0.1375 / 2.0),
            // Falling, and with both delays zero a fiftieth less.
            (0.3, 5, 15, 0.28625),
            (0.3, 0, 0, (0.3 - 0.001_875) * 0.98),
            (0.000_01, 0, 100, 0.0),
            (0.995, 15_000, 15_000, 1.0),
        ] {
            let mut control = Control {
                chance,
                delay: Duration::from_millis(delay_ms),
                delay_before: Duration::from_millis(before_ms),
                burst_left: Duration::ZERO,
            };
            control.update(&config());
            assert!((control.chance - expected).abs() < 1e-12, "{chance}: {} for {expected}", control.chance);
            assert_eq!(control.delay_before, control.delay);
        }
    }

    fn overloaded(is_ecn_capable: bool, bps: u64) -> Vec<(Event, Duration)> {
        let offers =
            constant(1000, bps, Instant::ZERO, Instant::ZERO + Duration::from_secs(60), udp(1, 2, 3, is_ecn_capable));
        let mut pie = discipline("kind = 'pie'\npackets = 10000", 10_000_000);
        let events = run(&mut *pie, 10_000_000, &offers);
        events.into_iter().map(|event| (event, event.at.since(offers[event.id].at))).collect()
    }

    /// A source that sends 1.25 times the rate whatever happens loses a fifth, and the rest waits for the target's time.
    #[test]
    fn the_delay_settles_at_the_target() {
        let events = overloaded(false, 12_500_000);
        let first = events.iter().find(|(event, _)| event.fate == Fate::Dropped).unwrap();
        assert!(first.0.at >= Instant::ZERO + Duration::from_millis(150), "a burst passes: {first:?}");
        let late = || events.iter().filter(|(event, _)| event.at > Instant::ZERO + Duration::from_secs(30));
        let sent: Vec<f64> =
            late().filter(|(event, _)| event.fate == Fate::Sent).map(|(_, wait)| wait.as_millis_f64()).collect();
        let lost = 1.0 - sent.len() as f64 / late().count() as f64;
        assert!((lost - 0.2).abs() < 0.01, "{lost}");
        let mean = sent.iter().sum::<f64>() / sent.len() as f64;
        assert!((mean - 15.0).abs() < 1.5, "{mean} ms");
    }

    /// RFC 8033 §5.1: up to a chance of 10 % marks take the place of drops.
    #[test]
    fn packets_that_understand_it_are_marked() {
        let count = |is_ecn_capable, bps, fate| {
            overloaded(is_ecn_capable, bps).iter().filter(|(event, _)| event.fate == fate).count()
        };
        // Marks do not slow this source down: the chance goes up and down around 10 %.
        assert!(count(true, 10_500_000, Fate::SentMarked) > 1000);
        assert!(count(true, 10_500_000, Fate::Dropped) > 1000);
        assert_eq!(count(false, 10_500_000, Fate::SentMarked), 0);
    }

    #[test]
    fn missed_updates_are_made_up_for_at_once() {
        let mut pie = Pie::new(config(), bentpipe_net::seed::Seed(1).stream("pie"));
        pie.control.chance = 0.5;
        pie.update(Instant::ZERO + Duration::from_secs(1_000_000_000));
        assert_eq!((pie.control.chance, pie.control.burst_left), (0.0, Duration::ZERO));
        assert!(pie.next_update > Instant::ZERO + Duration::from_secs(1_000_000_000));
        assert_eq!((pie.next_update.ns - UPDATE.ns) % UPDATE.ns, 0);
    }

    #[test]
    fn mistakes_name_their_key() {
        for (keys, key) in [("target = '0 s'", "target"), ("packets = 0", "packets"), ("interval = '1 s'", "interval")]
        {
            assert_eq!(read(toml::from_str(keys).unwrap(), &context(1_000_000)).unwrap_err().key, key, "{keys}");
        }
    }
}
