//! Queues of a discipline that share one limit: one for each class, or one for each flow that has packets waiting.

use super::classes::{ClassText, Classifier};
use super::flows::{FlowTable, read_flows};
use super::{Drops, QueueLimit, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::seed::Stream;
use bentpipe_net::units::DataSize;
use std::collections::VecDeque;

/// Settings of queues that share a link.
#[derive(Clone, Debug)]
pub(super) struct BacklogConfig {
    limit: QueueLimit,
    shares: Shares,
}

#[derive(Clone, Debug)]
enum Shares {
    /// Of the classes, by their weights.
    Classes(Classifier),
    /// Equal ones, for so many flows at a time.
    Flows(usize),
}

impl BacklogConfig {
    /// From the keys `bytes`, `packets`, `classes` and `flows`.
    pub fn read(
        bytes: Option<DataSize>,
        packets: Option<u64>,
        classes: Option<Vec<ClassText>>,
        flows: Option<u64>,
        context: &QueueContext,
    ) -> Result<BacklogConfig, KeyProblem> {
        let limit = QueueLimit::read(bytes, packets, context)?;
        let shares = match (classes, flows) {
            (Some(classes), None) => Shares::Classes(Classifier::read(classes, true, context)?),
            (None, flows) => Shares::Flows(read_flows(flows)?),
            (Some(_), Some(_)) => return Err(KeyProblem::new("", "allowed: either classes or flows")),
        };
        Ok(BacklogConfig { limit, shares })
    }
}

/// Queues under one limit. When there is no room for a packet, the newest one of the queue that is longest for its weight is
/// dropped (B. Suter et al., "Design considerations for supporting TCP with per-flow queueing", 1998): a flow that keeps to its
/// share loses nothing to one that does not. That costs a look at each queue with packets.
///
/// `T` is what the discipline keeps with each packet.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    select: Select,
    queues: Vec<SubQueue<T>>,
    /// Numbers of the queues with packets, in any order.
    backlogged: Vec<u32>,
    limit: QueueLimit,
    packets: u64,
    bytes: u64,
}

#[derive(Debug)]
enum Select {
    Classes(Classifier),
    /// The queue after the last place is for flows without one. As long as a packet waits in it no flow gets a new place, so
    /// none is ever in two queues.
    Flows(FlowTable),
}

#[derive(Debug)]
struct SubQueue<T> {
    waiting: VecDeque<(Ticket, T)>,
    bytes: u64,
    weight: u64,
    /// Its index in `backlogged`.
    place: usize,
}

impl<T> Backlog<T> {
    /// Empty queues.
    pub fn new(config: &BacklogConfig, random: &mut Stream) -> Backlog<T> {
        let queue = |weight| SubQueue { waiting: VecDeque::new(), bytes: 0, weight, place: 0 };
        let (select, queues) = match &config.shares {
            Shares::Classes(classifier) => {
                (Select::Classes(classifier.clone()), classifier.weights().map(queue).collect())
            }
            Shares::Flows(flows) => {
                let table = FlowTable::new(*flows, random);
                let queues = (0..=table.len()).map(|_| queue(1)).collect();
                (Select::Flows(table), queues)
            }
        };
        Backlog { select, queues, backlogged: Vec::new(), limit: config.limit, packets: 0, bytes: 0 }
    }

    /// Queues, empty ones included.
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// Packets waiting.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The weight of a queue.
    pub fn weight(&self, queue: usize) -> u64 {
        self.queues[queue].weight
    }

    /// The length of the first packet of a queue.
    pub fn first_bytes(&self, queue: usize) -> Option<u32> {
        self.queues[queue].waiting.front().map(|(ticket, _)| ticket.bytes)
    }

    /// The first packet of a queue, and what is kept with it.
    pub fn first(&self, queue: usize) -> Option<&(Ticket, T)> {
        self.queues[queue].waiting.front()
    }

    /// Finds a packet's queue and makes room. `Err`: there is none, and the packet is dropped. `dropped` is called after each
    /// drop from another queue, which always keeps a packet, with its number and what is kept with its last packet.
    pub fn admit(
        &mut self,
        ticket: &Ticket,
        headers: Option<&Headers>,
        drops: &mut Drops,
        mut dropped: impl FnMut(usize, &T),
    ) -> Result<usize, NoRoom> {
        let own = self.select(headers);
        while !self.limit.admits(self.packets, self.bytes, u64::from(ticket.bytes)) {
            let Some(longest) = self.longest(own, u64::from(ticket.bytes)) else {
                return Err(NoRoom { queue: own });
            };
            let queue = &mut self.queues[longest];
            if let Some((last, _)) = queue.waiting.pop_back() {
                queue.bytes -= u64::from(last.bytes);
                self.bytes -= u64::from(last.bytes);
                self.packets -= 1;
                drops.push(last);
            }
            if let Some((_, kept)) = queue.waiting.back() {
                dropped(longest, kept);
            }
        }
        Ok(own)
    }

    /// Adds a packet to a queue; returns whether the queue was empty.
    pub fn push(&mut self, number: usize, ticket: Ticket, kept: T) -> bool {
        let queue = &mut self.queues[number];
        let was_empty = queue.waiting.is_empty();
        if was_empty {
            queue.place = self.backlogged.len();
            self.backlogged.push(number as u32);
        }
        queue.bytes += u64::from(ticket.bytes);
        self.bytes += u64::from(ticket.bytes);
        self.packets += 1;
        queue.waiting.push_back((ticket, kept));
        was_empty
    }

    /// Takes the first packet of a queue.
    pub fn pop(&mut self, number: usize) -> Option<Ticket> {
        let queue = &mut self.queues[number];
        let (ticket, _) = queue.waiting.pop_front()?;
        queue.bytes -= u64::from(ticket.bytes);
        self.bytes -= u64::from(ticket.bytes);
        self.packets -= 1;
        if queue.waiting.is_empty() {
            let place = queue.place;
            self.backlogged.swap_remove(place);
            if let Some(moved) = self.backlogged.get(place) {
                self.queues[*moved as usize].place = place;
            }
        }
        Some(ticket)
    }

    /// If a queue is empty, its flow gives up its place. A discipline calls this once it needs nothing it knows of the flow.
    pub fn release_if_empty(&mut self, number: usize) {
        if let Select::Flows(table) = &mut self.select
            && self.queues[number].waiting.is_empty()
        {
            table.release(number);
        }
    }

    fn select(&mut self, headers: Option<&Headers>) -> usize {
        match &mut self.select {
            Select::Classes(classifier) => classifier.class_of(headers),
            Select::Flows(table) => {
                let shared = table.len();
                let may_add = self.queues[shared].waiting.is_empty();
                table.place_of(headers, may_add).unwrap_or(shared)
            }
        }
    }

    /// The queue that is longest for its weight and would keep a packet; `None`: it is `own` with its new packet.
    fn longest(&self, own: usize, own_bytes: u64) -> Option<usize> {
        let queue = &self.queues[own];
        // Fractions, bytes / weight. A queue with nothing in it always gets a packet, or a low weight could starve it.
        let mut most = (if queue.waiting.is_empty() { 0 } else { queue.bytes + own_bytes }, queue.weight);
        let mut longest = None;
        for number in &self.backlogged {
            let queue = &self.queues[*number as usize];
            if queue.waiting.len() > 1 && queue.bytes * most.1 > most.0 * queue.weight {
                most = (queue.bytes, queue.weight);
                longest = Some(*number as usize);
            }
        }
        longest.filter(|longest| *longest != own)
    }
}

/// A packet is dropped because there is no room for it.
#[derive(Debug)]
pub(super) struct NoRoom {
    /// The queue that it would have joined, which may be empty.
    pub queue: usize,
}
