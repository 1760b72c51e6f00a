//! Self-clocked fair queueing.
//!
//! S. J. Golestani, "A self-clocked fair queueing scheme for broadband applications", INFOCOM 1994: the packet with the least
//! finish goes first; virtual time is the finish of the packet being sent. That costs less than to follow the fluid model
//! ([`super::wfq`]), and a packet may be over later, by up to a packet of each other queue.

use super::backlog::{Backlog, BacklogConfig, NoRoom};
use super::classes::ClassText;
use super::virtual_time::{Head, VirtualTime};
use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::seed::Stream;
use bentpipe_net::time::Instant;
use bentpipe_net::units::DataSize;
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

/// Reads the table of `kind = "scfq"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { bytes, packets, flows, classes } = read_keys(keys)?;
    let backlog = BacklogConfig::read(bytes, packets, classes, flows, context)?;
    let make = move |random| Box::new(Scfq::new(&backlog, random)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("scfq", make)))
}

#[derive(Debug)]
struct Scfq {
    backlog: Backlog<()>,
    /// The first packet of each queue that has one. The finish of a queue's last packet is never after virtual time once the
    /// queue is empty, so an empty queue has nothing to remember.
    heads: BinaryHeap<Reverse<Head>>,
    /// The finish of the packet being sent.
    now: VirtualTime,
    order: u64,
}

impl Scfq {
    fn new(config: &BacklogConfig, mut random: Stream) -> Scfq {
        let backlog = Backlog::new(config, &mut random);
        Scfq { backlog, heads: BinaryHeap::new(), now: VirtualTime::default(), order: 0 }
    }
}

impl QueueDiscipline for Scfq {
    fn enqueue(&mut self, _now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        let queue = match self.backlog.admit(&ticket, headers, drops, |_, ()| {}) {
            Err(NoRoom { queue }) => {
                self.backlog.release_if_empty(queue);
                return drops.push(ticket);
            }
            Ok(queue) => queue,
        };
        let bytes = ticket.bytes;
        if self.backlog.push(queue, ticket, ()) {
            let finish = self.now.after(bytes, self.backlog.weight(queue));
            self.order += 1;
            self.heads.push(Reverse(Head { finish, order: self.order, queue: queue as u32 }));
        }
    }

    fn dequeue(&mut self, _now: Instant, _drops: &mut Drops) -> Option<Departure> {
        let mut first = self.heads.peek_mut()?;
        let Head { finish, queue, .. } = first.0;
        let queue = queue as usize;
        self.now = finish;
        let ticket = self.backlog.pop(queue)?;
        match self.backlog.first_bytes(queue) {
            Some(bytes) => {
                self.order += 1;
                first.0.finish = finish.after(bytes, self.backlog.weight(queue));
                first.0.order = self.order;
            }
            None => {
                PeekMut::pop(first);
                self.backlog.release_if_empty(queue);
            }
        }
        Some(ticket.into())
    }

    fn next_departure(&self) -> Instant {
        if self.heads.is_empty() { Instant::FAR } else { Instant::ZERO }
    }
}
