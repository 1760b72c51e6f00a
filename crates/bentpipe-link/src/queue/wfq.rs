//! Weighted fair queueing: packet-by-packet generalized processor sharing (PGPS).
//!
//! A. K. Parekh and R. G. Gallager, "A generalized processor sharing approach to flow control in integrated services networks:
//! the single-node case", IEEE/ACM Transactions on Networking 1(3), 1993; A. Demers, S. Keshav and S. Shenker, "Analysis and
//! simulation of a fair queueing algorithm", SIGCOMM 1989. In the fluid model (GPS) all queues with packets are sent at the same
//! time, each at the speed of its weight. Here whole packets leave in the order in which they would finish there, and each is
//! over at most the time of one longest packet later than there.
//!
//! The fluid model needs the work that the link has done. It is counted at the link's highest rate, and never beyond the packets
//! that have left: exact at a constant rate without framing, at most one packet too early otherwise.

use super::backlog::{Backlog, BacklogConfig, NoRoom};
use super::classes::ClassText;
use super::virtual_time::{Head, VirtualTime};
use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::seed::Stream;
use bentpipe_net::time::Instant;
use bentpipe_net::units::{BitRate, DataSize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use toml::Table;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    bytes: Option<DataSize>,
    packets: Option<u64>,
    flows: Option<u64>,
    classes: Option<Vec<ClassText>>,
}

/// Reads the table of `kind = "wfq"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { bytes, packets, flows, classes } = read_keys(keys)?;
    let backlog = BacklogConfig::read(bytes, packets, classes, flows, context)?;
    let rate = context.rate;
    let make = move |random| Box::new(Wfq::new(&backlog, rate, random)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("wfq", make)))
}

#[derive(Debug)]
struct Wfq {
    /// With each packet its finish in the fluid model.
    backlog: Backlog<VirtualTime>,
    /// The first packet of each queue that has one.
    heads: BinaryHeap<Reverse<Head>>,
    order: u64,
    fluid: Fluid,
}

/// Generalized processor sharing of the same packets.
#[derive(Debug)]
struct Fluid {
    /// Virtual time.
    now: VirtualTime,
    queues: Vec<FluidQueue>,
    /// When queues run dry. An entry may be too early, if packets came since, or out of date: see [`FluidQueue::entry`].
    ends: BinaryHeap<Reverse<(VirtualTime, u32)>>,
    /// The weights of the queues that are not dry.
    weights: u64,
    rate: BitRate,
    /// Bytes that left the queue and are not yet counted as sent.
    owed: f64,
    /// Until when work is counted.
    counted: Instant,
}

#[derive(Clone, Copy, Debug)]
struct FluidQueue {
    weight: u64,
    /// When its last packet is over.
    finish: VirtualTime,
    /// The time of its entry in `ends`; others are out of date. `None`: it is dry.
    entry: Option<VirtualTime>,
}

impl Wfq {
    fn new(config: &BacklogConfig, rate: BitRate, mut random: Stream) -> Wfq {
        let backlog = Backlog::new(config, &mut random);
        let queue = |number| FluidQueue { weight: backlog.weight(number), finish: VirtualTime::default(), entry: None };
        let fluid = Fluid {
            now: VirtualTime::default(),
            queues: (0..backlog.count()).map(queue).collect(),
            ends: BinaryHeap::new(),
            weights: 0,
            rate,
            owed: 0.0,
            counted: Instant::ZERO,
        };
        Wfq { backlog, heads: BinaryHeap::new(), order: 0, fluid }
    }

    fn advance(&mut self, now: Instant) {
        self.fluid.advance(now, |queue| self.backlog.release_if_empty(queue));
        if self.fluid.weights == 0 && self.backlog.packets() == 0 {
            // A busy period is over: numbers stay small, and so exact.
            self.fluid.now = VirtualTime::default();
        }
    }
}

impl QueueDiscipline for Wfq {
    fn enqueue(&mut self, now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        self.advance(now);
        let fluid = &mut self.fluid;
        let queue = match self.backlog.admit(&ticket, headers, drops, |queue, last| fluid.shorten(queue, *last)) {
            Err(NoRoom { queue }) => {
                if self.fluid.queues[queue].entry.is_none() {
                    self.backlog.release_if_empty(queue);
                }
                return drops.push(ticket);
            }
            Ok(queue) => queue,
        };
        let finish = fluid.add(queue, ticket.bytes);
        if self.backlog.push(queue, ticket, finish) {
            self.order += 1;
            self.heads.push(Reverse(Head { finish, order: self.order, queue: queue as u32 }));
        }
    }

    fn dequeue(&mut self, now: Instant, _drops: &mut Drops) -> Option<Departure> {
        self.advance(now);
        let mut first = self.heads.peek_mut()?;
        let queue = first.0.queue as usize;
        let ticket = self.backlog.pop(queue)?;
        match self.backlog.first(queue) {
            Some((_, finish)) => {
                self.order += 1;
                first.0.finish = *finish;
                first.0.order = self.order;
            }
            None => {
                PeekMut::pop(first);
                if self.fluid.queues[queue].entry.is_none() {
                    self.backlog.release_if_empty(queue);
                }
            }
        }
        self.fluid.owed += f64::from(ticket.bytes);
        Some(ticket.into())
    }

    fn next_departure(&self) -> Instant {
        if self.heads.is_empty() { Instant::FAR } else { Instant::ZERO }
    }
}

impl Fluid {
    /// Counts the work done by `now`; `dry` is called with the number of each queue that runs dry.
    fn advance(&mut self, now: Instant, mut dry: impl FnMut(usize)) {
        let elapsed = now.since(self.counted).ns as f64;
        self.counted = now;
        let mut work = self.owed.min(elapsed * self.rate.bps as f64 / 8e9);
        if work <= 0.0 {
            return;
        }
        self.owed -= work;
        while let Some(mut first) = self.ends.peek_mut() {
            let Reverse((end, number)) = *first;
            let queue = &mut self.queues[number as usize];
            if queue.entry != Some(end) {
                PeekMut::pop(first);
                continue;
            }
            let work_to_end = (end.0 - self.now.0) * self.weights as f64;
            if work_to_end > work {
                self.now.0 += work / self.weights as f64;
                return;
            }
            work -= work_to_end;
            self.now = end;
            if queue.finish > end {
                queue.entry = Some(queue.finish);
                first.0.0 = queue.finish;
            } else {
                queue.entry = None;
                self.weights -= queue.weight;
                PeekMut::pop(first);
                dry(number as usize);
            }
        }
    }

    /// A packet comes to a queue; returns its finish.
    fn add(&mut self, number: usize, bytes: u32) -> VirtualTime {
        let queue = &mut self.queues[number];
        let start = if queue.entry.is_some() { queue.finish } else { self.now };
        queue.finish = start.after(bytes, queue.weight);
        if queue.entry.is_none() {
            queue.entry = Some(queue.finish);
            self.weights += queue.weight;
            self.ends.push(Reverse((queue.finish, number as u32)));
        }
        queue.finish
    }

    /// The last packet of a queue is dropped; that before it has the finish `last`.
    fn shorten(&mut self, number: usize, last: VirtualTime) {
        let queue = &mut self.queues[number];
        let Some(entry) = queue.entry else { return };
        queue.finish = last.max(self.now);
        if entry > queue.finish {
            queue.entry = Some(queue.finish);
            self.ends.push(Reverse((queue.finish, number as u32)));
        }
    }
}
