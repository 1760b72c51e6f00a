//! Controlled delay: drops when packets have waited too long for too long.
//!
//! RFC 8289, the algorithm of §5; instead of a drop, a packet that understands it is marked. The target is never below the time
//! that a packet of the largest size takes on the link (RFC 8290 §5.2), or a slow link would drop what merely follows another packet.

use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueLimit, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
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
    interval: Option<Duration>,
    ecn: Option<bool>,
}

/// Reads the table of `kind = "codel"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { bytes, packets, target, interval, ecn } = read_keys(keys)?;
    let limit = QueueLimit::read(bytes, packets, context)?;
    let config = CodelConfig::new(target, interval, ecn, context)?;
    let make = move |_| Box::new(CodelDiscipline::new(config, limit)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("codel", make)))
}

/// Settings of CoDel.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodelConfig {
    /// The wait to aim for (RFC 8289 §4.4: 5 ms).
    target: Duration,
    /// The longest time that waits may be above the target: a common round trip (RFC 8289 §4.3: 100 ms).
    interval: Duration,
    /// Marks packets that understand it.
    ecn: bool,
    /// With no more than one such packet waiting, nothing is dropped.
    packet_bytes_max: u64,
}

impl CodelConfig {
    /// From the keys `target`, `interval` and `ecn`.
    pub fn new(
        target: Option<Duration>,
        interval: Option<Duration>,
        ecn: Option<bool>,
        context: &QueueContext,
    ) -> Result<CodelConfig, KeyProblem> {
        let interval = interval.unwrap_or(Duration::from_millis(100));
        let packet_time = context.rate.time_for_bits(context.packet_bytes_max * 8);
        let stated = target.unwrap_or(Duration::from_millis(5));
        for (key, value) in [("target", stated), ("interval", interval)] {
            if value == Duration::ZERO {
                return Err(KeyProblem::new(key, "must be longer than \"0 s\""));
            }
        }
        if target.is_some_and(|target| target >= interval) {
            return Err(KeyProblem::new("target", format!("{stated}; allowed: less than interval ({interval})")));
        }
        Ok(CodelConfig {
            target: stated.max(packet_time),
            interval: interval.max(packet_time),
            ecn: ecn.unwrap_or(true),
            packet_bytes_max: context.packet_bytes_max,
        })
    }
}

/// Packets that are dropped at a time when there are too many (as Linux does, RFC 8290 §4.1).
pub(super) const DROP_BATCH: usize = 64;

/// Packets first in, first out, each with whether it can be marked and with what the discipline adds.
#[derive(Debug)]
pub(super) struct CodelQueue<T> {
    waiting: VecDeque<Entry<T>>,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct Entry<T> {
    pub ticket: Ticket,
    pub is_ecn_capable: bool,
    pub kept: T,
}

impl<T> Default for CodelQueue<T> {
    fn default() -> Self {
        CodelQueue { waiting: VecDeque::new(), bytes: 0 }
    }
}

impl<T> CodelQueue<T> {
    /// A packet arrives.
    #[inline]
    pub fn push(&mut self, ticket: Ticket, headers: Option<&Headers>, kept: T) {
        self.bytes += u64::from(ticket.bytes);
        let is_ecn_capable = headers.is_some_and(Headers::is_ecn_capable);
        self.waiting.push_back(Entry { ticket, is_ecn_capable, kept });
    }

    /// Takes the first packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry<T>> {
        let entry = self.waiting.pop_front()?;
        self.bytes -= u64::from(entry.ticket.bytes);
        Some(entry)
    }

    /// Takes packet `place`, counted from the first.
    pub fn remove(&mut self, place: usize) -> Option<Ticket> {
        let entry = self.waiting.remove(place)?;
        self.bytes -= u64::from(entry.ticket.bytes);
        Some(entry.ticket)
    }

    /// Drops half of the packets from the head, up to [`DROP_BATCH`]; their number and bytes.
    pub fn drop_half(&mut self, drops: &mut Drops) -> (u64, u64) {
        let (packets, bytes) = (self.len(), self.bytes);
        for entry in self.waiting.drain(..packets.div_ceil(2).min(DROP_BATCH)) {
            self.bytes -= u64::from(entry.ticket.bytes);
            drops.push(entry.ticket);
        }
        ((packets - self.len()) as u64, bytes - self.bytes)
    }

    /// Packet `place`, counted from the first.
    pub fn get(&self, place: usize) -> Option<&Entry<T>> {
        self.waiting.get(place)
    }

    /// Packets waiting.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes waiting.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The state of one queue's control (RFC 8289 §5.3).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Codel {
    /// When waits will have been above the target for an interval; `None`: the last was not.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    /// Drops since dropping began, and what it was then.
    count: u32,
    last_count: u32,
}

impl Codel {
    /// The next packet, and those dropped before it (RFC 8289 §5.5).
    #[inline]
    pub fn dequeue<T>(
        &mut self,
        config: &CodelConfig,
        now: Instant,
        queue: &mut CodelQueue<T>,
        drops: &mut Drops,
    ) -> Option<Departure> {
        let (mut entry, mut ok_to_drop) = self.take(config, now, queue)?;
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if config.ecn && entry.is_ecn_capable {
                    self.drop_next = control_law(self.drop_next, config.interval, self.count);
                    return Some(Departure { ticket: entry.ticket, mark: true });
                }
                drops.push(entry.ticket);
                let Some(next) = self.take(config, now, queue) else {
                    self.dropping = false;
                    return None;
                };
                (entry, ok_to_drop) = next;
                self.dropping = ok_to_drop;
                if ok_to_drop {
                    self.drop_next = control_law(self.drop_next, config.interval, self.count);
                }
            }
        } else if ok_to_drop {
            let mark = config.ecn && entry.is_ecn_capable;
            let next = if mark {
                Some(entry)
            } else {
                drops.push(entry.ticket);
                self.take(config, now, queue).map(|(entry, _)| entry)
            };
            // Dropping that ended a short time ago goes on at the rate that controlled the queue then.
            let delta = self.count - self.last_count;
            let recently = now.since(self.drop_next).ns < 16 * config.interval.ns;
            self.count = if delta > 1 && recently { delta } else { 1 };
            self.last_count = self.count;
            self.dropping = true;
            self.drop_next = control_law(now, config.interval, self.count);
            return next.map(|entry| Departure { ticket: entry.ticket, mark });
        }
        Some(entry.ticket.into())
    }

    /// The first packet, and whether it may be dropped (`dodequeue` of RFC 8289 §5.6).
    #[inline]
    fn take<T>(&mut self, config: &CodelConfig, now: Instant, queue: &mut CodelQueue<T>) -> Option<(Entry<T>, bool)> {
        let Some(entry) = queue.pop() else {
            self.first_above = None;
            return None;
        };
        let wait = now.since(entry.ticket.arrival);
        if wait < config.target || queue.bytes() <= config.packet_bytes_max {
            self.first_above = None;
            return Some((entry, false));
        }
        let first_above = *self.first_above.get_or_insert(now + config.interval);
        Some((entry, now >= first_above))
    }
}

/// The time of the next drop: intervals shrink with the square root of the count (RFC 8289 §5.4).
fn control_law(from: Instant, interval: Duration, count: u32) -> Instant {
    from + Duration { ns: (interval.ns as f64 / f64::from(count).sqrt()) as u64 }
}

#[derive(Debug)]
struct CodelDiscipline {
    config: CodelConfig,
    limit: QueueLimit,
    queue: CodelQueue<()>,
    control: Codel,
}

impl CodelDiscipline {
    fn new(config: CodelConfig, limit: QueueLimit) -> Self {
        CodelDiscipline { config, limit, queue: CodelQueue::default(), control: Codel::default() }
    }
}

impl QueueDiscipline for CodelDiscipline {
    fn enqueue(&mut self, _now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        if self.limit.admits(self.queue.len() as u64, self.queue.bytes(), u64::from(ticket.bytes)) {
            self.queue.push(ticket, headers, ());
        } else {
            drops.push(ticket);
        }
    }

    fn dequeue(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure> {
        self.control.dequeue(&self.config, now, &mut self.queue, drops)
    }

    fn next_departure(&self) -> Instant {
        if self.queue.len() == 0 { Instant::FAR } else { Instant::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::harness::{Event, Fate, Offer, constant, context, discipline, run, udp};

    const PACKET: Duration = Duration::from_micros(1200);

    /// 1500 B at 20 Mbit/s over 10 Mbit/s for two seconds.
    fn overloaded(is_ecn_capable: bool) -> Vec<Event> {
        let to = Instant::ZERO + Duration::from_secs(2);
        let offers = constant(1500, 20_000_000, Instant::ZERO, to, udp(1, 2, 3, is_ecn_capable));
        let mut codel = discipline("kind = 'codel'\npackets = 10000", 10_000_000);
        run(&mut *codel, 10_000_000, &offers).into_iter().filter(|event| event.at < to).collect()
    }

    /// Packet n arrives at 0.6 n ms and would leave at 1.2 n ms: the wait exceeds 5 ms from the ninth on, at 10.8 ms. The first
    /// drop comes with the first departure 100 ms later, and the k-th 100 ms / sqrt(k - 1) after the time that was due before.
    #[test]
    fn drops_follow_the_control_law() {
        let mut due = Instant::ZERO + Duration { ns: 9 * PACKET.ns } + Duration::from_millis(100);
        let drops: Vec<Instant> =
            overloaded(false).into_iter().filter(|event| event.fate == Fate::Dropped).map(|event| event.at).collect();
        for (number, at) in drops.iter().enumerate() {
            assert!((due..due + PACKET).contains(at), "drop {number}: due {due:?}, at {at:?}");
            let from = if number == 0 { *at } else { due };
            due = from + Duration::from_secs_f64(0.1 / (number as f64 + 1.0).sqrt());
        }
        // Sum of 100 ms / sqrt(k) up to 1.9 s: 2 sqrt(n) - 1.46 = 18.9.
        assert!((100..=106).contains(&drops.len()), "{}", drops.len());
    }

    #[test]
    fn packets_that_understand_it_are_marked_at_the_same_times() {
        let events = overloaded(true);
        assert!(events.iter().all(|event| event.fate != Fate::Dropped));
        let marks = events.iter().filter(|event| event.fate == Fate::SentMarked);
        let times: Vec<Instant> = marks.map(|event| event.at).collect();
        assert!((100..=106).contains(&times.len()), "{}", times.len());
        let gap = times[50].since(times[49]).as_secs_f64();
        assert!((gap - 0.1 / 50f64.sqrt()).abs() < 2.0 * PACKET.as_secs_f64(), "{gap}");
    }

    #[test]
    fn the_target_is_at_least_a_packets_time() {
        let target = |bps| CodelConfig::new(None, None, None, &context(bps)).unwrap().target;
        assert_eq!(target(10_000_000), Duration::from_millis(5));
        assert_eq!(target(2_400_000), Duration::from_millis(5));
        assert_eq!(target(512_000), Duration::from_nanos(23_437_500));
        assert_eq!(target(64_000), Duration::from_nanos(187_500_000));
    }

    /// Two packets arrive together whenever the link is free again: one of them always waits for the other.
    #[test]
    fn a_packet_that_waits_for_one_other_is_never_dropped_on_a_slow_link() {
        let pairs = (0..400u64).map(|pair| Instant::ZERO + Duration { ns: pair * 46_875_000 });
        let offers: Vec<Offer> = pairs.flat_map(|at| [Offer { at, bytes: 1500, headers: None }; 2]).collect();
        let mut codel = discipline("kind = 'codel'", 512_000);
        let events = run(&mut *codel, 512_000, &offers);
        assert_eq!(events.iter().filter(|event| event.fate == Fate::Sent).count(), 800);
    }

    #[test]
    fn mistakes_name_their_key() {
        let read = |text: &str| read(toml::from_str(text).unwrap(), &context(1_000_000)).unwrap_err();
        assert_eq!(read("target = '0 s'").key, "target");
        assert_eq!(read("target = '100 ms'").message, "100 ms; allowed: less than interval (100 ms)");
        assert_eq!(read("interval = '0 s'").key, "interval");
        assert_eq!(read("flows = 8").key, "flows");
    }
}
