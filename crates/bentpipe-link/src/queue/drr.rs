//! Deficit round robin.
//!
//! M. Shreedhar and G. Varghese, "Efficient fair queuing using deficit round robin", SIGCOMM 1995: each queue with packets gets
//! a quantum of bytes in its turn, times its weight, and sends packets while what it has left covers them. Its cost is the same
//! for each packet as long as a quantum holds a whole one. Over any time in which two queues have packets, what they were sent
//! differs from their shares by less than three quanta.

use super::backlog::{Backlog, BacklogConfig, NoRoom};
use super::classes::ClassText;
use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::seed::Stream;
use bentpipe_net::time::Instant;
use bentpipe_net::units::DataSize;
use std::collections::VecDeque;
use toml::Table;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    bytes: Option<DataSize>,
    packets: Option<u64>,
    flows: Option<u64>,
    classes: Option<Vec<ClassText>>,
    quantum: Option<DataSize>,
}

/// Highest quantum: 1 MiB.
const QUANTUM_MAX: u64 = 1 << 20;

/// Reads the table of `kind = "drr"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { bytes, packets, flows, classes, quantum } = read_keys(keys)?;
    let backlog = BacklogConfig::read(bytes, packets, classes, flows, context)?;
    let least = context.packet_bytes_max;
    let quantum = quantum.map_or(least, |quantum| quantum.bytes);
    if !(least..=QUANTUM_MAX).contains(&quantum) {
        let what = format!("{quantum} B; allowed: {least} B, which holds a whole packet, to {QUANTUM_MAX} B");
        return Err(KeyProblem::new("quantum", what));
    }
    let make = move |random| Box::new(Drr::new(&backlog, quantum, random)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("drr", make)))
}

#[derive(Debug)]
struct Drr {
    backlog: Backlog<()>,
    quantum: u64,
    /// Bytes that each queue may still send in its turn.
    deficits: Vec<u64>,
    /// Queues with packets, in the order of their turns.
    turns: VecDeque<u32>,
    /// The first of them has had its quantum.
    granted: bool,
}

impl Drr {
    fn new(config: &BacklogConfig, quantum: u64, mut random: Stream) -> Drr {
        let backlog = Backlog::new(config, &mut random);
        let deficits = vec![0; backlog.count()];
        Drr { backlog, quantum, deficits, turns: VecDeque::new(), granted: false }
    }
}

impl QueueDiscipline for Drr {
    fn enqueue(&mut self, _now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        match self.backlog.admit(&ticket, headers, drops, |_, ()| {}) {
            Err(NoRoom { queue }) => {
                self.backlog.release_if_empty(queue);
                drops.push(ticket);
            }
            Ok(queue) => {
                if self.backlog.push(queue, ticket, ()) {
                    self.turns.push_back(queue as u32);
                }
            }
        }
    }

    fn dequeue(&mut self, _now: Instant, _drops: &mut Drops) -> Option<Departure> {
        loop {
            let number = *self.turns.front()?;
            let queue = number as usize;
            let deficit = &mut self.deficits[queue];
            if !self.granted {
                *deficit += self.quantum * self.backlog.weight(queue);
                self.granted = true;
            }
            let bytes = u64::from(self.backlog.first_bytes(queue)?);
            if bytes <= *deficit {
                *deficit -= bytes;
                let ticket = self.backlog.pop(queue)?;
                if self.backlog.first(queue).is_none() {
                    *deficit = 0;
                    self.turns.pop_front();
                    self.granted = false;
                    self.backlog.release_if_empty(queue);
                }
                return Some(ticket.into());
            }
            self.turns.rotate_left(1);
            self.granted = false;
        }
    }

    fn next_departure(&self) -> Instant {
        if self.turns.is_empty() { Instant::FAR } else { Instant::ZERO }
    }
}
