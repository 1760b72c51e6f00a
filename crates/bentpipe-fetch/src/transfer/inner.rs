//! The state that a transfer's workers share, and what follows from it.

use crate::error::Failure;
use crate::growth::Growth;
use crate::plan::{Plan, WorkerId};
use crate::remote::{Identity, Remote, Wire};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) struct Inner {
    pub plan: Plan,
    pub growth: Growth,
    pub workers: Vec<Worker>,
    /// The server's description of the file, once it is known.
    pub remote: Option<Remote>,
    /// The identity that an earlier run recorded.
    pub before: Option<Identity>,
    /// The server gives the whole file or nothing.
    pub whole_only: bool,
    /// Nothing more is to be written.
    pub over: bool,
    pub failure: Option<Failure>,
    /// Writes between their claim and their entry in the plan.
    pub writing: usize,
    pub received: u64,
    /// Most connections at once.
    pub most: usize,
    pub answers: u32,
    pub failed_attempts: u32,
    /// Attempts in a row that brought no new byte.
    pub fruitless: u32,
    /// Most bytes of the file that were ever here: more than now when the server gives whole files only.
    pub most_done: u64,
    /// Attempts in a row that fetched the file from its first byte and ended at `most_done` again.
    pub same_ends: u32,
    pub final_check: FinalCheck,
    pub notes: Vec<String>,
}

/// The question whether the file is still the same, after the last byte.
#[derive(PartialEq)]
pub(super) enum FinalCheck {
    Open,
    Taken,
    Done,
}

pub(super) struct Worker {
    pub wire: Arc<Wire>,
    pub state: Doing,
    /// Has received bytes, ever.
    pub proven: bool,
    /// Was asked to do ahead what it can.
    pub prepared: bool,
    /// Where the last answer began.
    pub answer_from: Option<u64>,
    pub gone: bool,
    pub received: u64,
    pub last_byte: Instant,
    /// Bytes a second, and since when it is measured.
    pub rate: f64,
    pub mark: (Instant, u64),
    pub failures: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Waiting,
    Opening,
    Delivering,
    Pausing,
}

impl Inner {
    pub fn delivering(&self) -> usize {
        self.workers.iter().filter(|worker| !worker.gone && worker.state == Doing::Delivering).count()
    }

    pub fn round_trip(&self) -> Option<Duration> {
        // The least: queues of our own making do not count.
        self.workers.iter().filter_map(|worker| worker.wire.round_trip()).min()
    }

    pub fn measure(&mut self, now: Instant) {
        for worker in &mut self.workers {
            let (since, bytes) = worker.mark;
            let time = now - since;
            if time >= RATE_EVERY {
                let rate = (worker.received - bytes) as f64 / time.as_secs_f64();
                worker.rate = if worker.rate > 0.0 { (worker.rate + rate) / 2.0 } else { rate };
                worker.mark = (now, worker.received);
            }
        }
    }

    /// Seconds from a request to a full window, with the slow start.
    pub fn time_to_start(&self, round_trips: u32) -> f64 {
        (self.round_trip().unwrap_or_default() * (round_trips + 2)).max(START_MIN).as_secs_f64()
    }

    pub fn assign(&mut self, id: WorkerId, round_trips: u32, patience: Duration) -> Option<(u64, Option<u64>)> {
        if self.whole_only && self.delivering() > 0 {
            return None;
        }
        let start = self.time_to_start(round_trips);
        let now = Instant::now();
        let workers = &self.workers;
        let best = workers.iter().map(|worker| worker.rate).fold(0.0, f64::max);
        let piece = self.plan.assign(id, |owner, left| {
            let owner = &workers[owner];
            let is_stuck = now - owner.last_byte > patience;
            // A rate is known after a while; until then only a piece of some size is worth halving.
            // One that has just begun will soon be about as fast as the others.
            let rate = owner.rate.max(best / 2.0);
            is_stuck || if rate > 0.0 { left as f64 / rate > 2.0 * start } else { left > UNKNOWN_RATE_MIN }
        });
        if piece.is_some() {
            self.workers[id].last_byte = now;
        }
        piece
    }

    /// Ends the newest workers past the target; what they had to fetch is another's again, or free.
    pub fn retire(&mut self, start: f64) {
        // What one connection carries while another begins.
        let worth = start * self.workers.iter().map(|worker| worker.rate).fold(0.0, f64::max);
        let present: Vec<WorkerId> = (0..self.workers.len()).filter(|id| !self.workers[*id].gone).collect();
        for id in present.into_iter().skip(self.growth.target()) {
            self.plan.give_back(id, worth as u64);
            self.workers[id].gone = true;
            self.workers[id].state = Doing::Waiting;
            self.workers[id].wire.hang_up();
        }
    }
}

const RATE_EVERY: Duration = Duration::from_millis(500);
const START_MIN: Duration = Duration::from_millis(50);
const UNKNOWN_RATE_MIN: u64 = 1 << 20;
