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
