//! A queue discipline of one's own: the newest packet first, the oldest dropped when there are too many.
//!
//! `queue = { kind = "newest-first", packets = 6 }`

use bentpipe_link::queue::{Departure, Drops, QueueConfig, QueueDiscipline, QueueSpec, Ticket};
use bentpipe_link::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::time::Instant;
use std::collections::VecDeque;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    packets: usize,
}

/// Reads the table of a link file; the registry's line names this.
pub fn read(keys: toml::Table, _: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { packets } = read_keys(keys)?;
    if packets == 0 {
        return Err(KeyProblem::new("packets", "0 would drop everything; allowed: 1 or more"));
    }
    let make = move |_random| Box::new(NewestFirst { most: packets, waiting: VecDeque::new() }) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("newest-first", make)))
}

#[derive(Debug)]
struct NewestFirst {
    most: usize,
    waiting: VecDeque<Ticket>,
}

impl QueueDiscipline for NewestFirst {
    fn enqueue(&mut self, _now: Instant, ticket: Ticket, _headers: Option<&Headers>, drops: &mut Drops) {
        self.waiting.push_back(ticket);
        if self.waiting.len() > self.most
            && let Some(oldest) = self.waiting.pop_front()
        {
            drops.push(oldest);
        }
    }

    fn dequeue(&mut self, _now: Instant, _drops: &mut Drops) -> Option<Departure> {
        self.waiting.pop_back().map(Departure::from)
    }

    fn next_departure(&self) -> Instant {
        self.waiting.back().map_or(Instant::FAR, |ticket| ticket.arrival)
    }
}
