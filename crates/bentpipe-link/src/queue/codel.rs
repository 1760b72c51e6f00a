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
    /// How long waits may be above the target: a common round trip (RFC 8289 §4.3: 100 ms).
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
