//! Strict priority: a class is served only while no packet of a class before it waits.
//!
//! J. F. Shortle et al., "Fundamentals of Queueing Theory", 5th edition, 2018, §4.4 (non-preemptive priorities): a packet of the
//! first class waits for those before it in its class and for the one being sent, and for nothing else. A class that alone fills
//! the link starves those after it.

use super::classes::{ClassText, Classifier};
use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueLimit, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::time::Instant;
use bentpipe_net::units::DataSize;
use std::collections::VecDeque;
use toml::Table;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    bytes: Option<DataSize>,
    packets: Option<u64>,
    classes: Vec<ClassText>,
}

/// Reads the table of `kind = "priority"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { bytes, packets, classes } = read_keys(keys)?;
    let limit = QueueLimit::read(bytes, packets, context)?;
    let classifier = Classifier::read(classes, false, context)?;
    let make = move |_| Box::new(Priority::new(limit, &classifier)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("priority", make)))
}

#[derive(Debug)]
struct Priority {
    classifier: Classifier,
    /// In the order of the classes.
    queues: Vec<VecDeque<Ticket>>,
    /// One bit for each queue with packets.
    backlogged: u64,
    limit: QueueLimit,
    packets: u64,
    bytes: u64,
}

impl Priority {
    fn new(limit: QueueLimit, classifier: &Classifier) -> Priority {
        let queues = classifier.weights().map(|_| VecDeque::new()).collect();
        Priority { classifier: classifier.clone(), queues, backlogged: 0, limit, packets: 0, bytes: 0 }
    }

    /// Takes the first packet of a class, or the last.
    fn take(&mut self, class: usize, first: bool) -> Option<Ticket> {
        let queue = &mut self.queues[class];
        let ticket = if first { queue.pop_front() } else { queue.pop_back() }?;
        if queue.is_empty() {
            self.backlogged &= !(1 << class);
        }
        self.packets -= 1;
        self.bytes -= u64::from(ticket.bytes);
        Some(ticket)
    }
}

impl QueueDiscipline for Priority {
    /// When there is no room, the newest packet of the last class that has any is dropped, unless that is a class before this
    /// packet's, or its own.
    fn enqueue(&mut self, _now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        let class = self.classifier.class_of(headers);
        while !self.limit.admits(self.packets, self.bytes, u64::from(ticket.bytes)) {
            let later = self.backlogged.checked_ilog2().map(|last| last as usize).filter(|last| *last > class);
            match later.and_then(|last| self.take(last, false)) {
                Some(newest) => drops.push(newest),
                None => return drops.push(ticket),
            }
        }
        self.packets += 1;
        self.bytes += u64::from(ticket.bytes);
        self.backlogged |= 1 << class;
        self.queues[class].push_back(ticket);
    }

    fn dequeue(&mut self, _now: Instant, _drops: &mut Drops) -> Option<Departure> {
        if self.backlogged == 0 {
            return None;
        }
        self.take(self.backlogged.trailing_zeros() as usize, true).map(Departure::from)
    }

    fn next_departure(&self) -> Instant {
        if self.backlogged == 0 { Instant::FAR } else { Instant::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::harness::{Fate, Offer, constant, context, discipline, run, together, udp};
    use bentpipe_net::time::Duration;

    const THREE: &str = "kind = 'priority'\npackets = 4\nclasses = [{ ports = [1] }, { ports = [2] }]";

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn the_first_class_waits_for_the_packet_being_sent_only() {
        let bulk = constant(1500, 2_000_000, at(0), at(10_000), udp(1, 2, 9, false));
        let voice = constant(200, 80_000, at(3), at(10_000), udp(1, 2, 1, false));
        let offers = together([bulk, voice]);
        let mut queue = discipline(THREE, 1_000_000);
        let events = run(&mut *queue, 1_000_000, &offers);
        let voice: Vec<_> = events.iter().filter(|event| offers[event.id].bytes == 200).collect();
        assert_eq!(voice.len(), 500);
        for event in voice {
            assert_eq!(event.fate, Fate::Sent);
            assert!(event.at.since(offers[event.id].at) <= Duration::from_millis(12), "{event:?}");
        }
    }

    #[test]
    fn a_full_queue_drops_the_newest_of_the_last_class() {
        let offers: Vec<Offer> = [9, 9, 2, 9, 9, 1, 2, 1, 1, 9]
            .map(|port| Offer { at: at(0), bytes: 1500, headers: udp(1, 2, port, false) })
            .to_vec();
        let mut queue = discipline(THREE, 1_000_000);
        let events = run(&mut *queue, 1_000_000, &offers);
        let of = |fate| events.iter().filter(|event| event.fate == fate).map(|event| event.id).collect::<Vec<_>>();
        assert_eq!(of(Fate::Sent), [5, 7, 8, 2]);
        assert_eq!(of(Fate::Dropped), [4, 3, 1, 0, 6, 9]);
    }

    #[test]
    fn mistakes_name_their_key() {
        for (keys, key) in [
            ("", ""),
            ("classes = [{ weight = 2 }]", "classes.0.weight"),
            ("classes = [{ ports = [1] }]\nbytes = '1 B'", "bytes"),
        ] {
            assert_eq!(read(toml::from_str(keys).unwrap(), &context(1_000_000)).unwrap_err().key, key, "{keys}");
        }
    }
}
