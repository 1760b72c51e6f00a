//! The workers: each has a connection, gets pieces of the plan and writes what arrives.

use super::inner::{Doing, FinalCheck};
use super::{Shared, TICK};
use crate::error::{Failure, Kind};
use crate::plan::WorkerId;
use crate::remote::{Connection, Opened, Remote, Wire};
use std::time::{Duration, Instant};

enum Next {
    Prepare,
    Piece { from: u64, to: Option<u64>, known: Option<Remote> },
    Recheck(Remote),
    Quit,
}

impl Shared {
    pub(super) fn work(&self, id: WorkerId, wire: &Wire) {
        let mut connection = self.server.connection();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let result = match self.next(id) {
                Next::Quit => break,
                Next::Prepare => {
                    connection.prepare(wire);
                    Ok(())
                }
                Next::Piece { from, to, known } => {
                    self.fetch(id, connection.as_mut(), wire, &mut buffer, from, to, known.as_ref())
                }
                Next::Recheck(known) => self.recheck(connection.as_mut(), wire, &known),
            };
            let goes_on = result.map_or_else(|failure| self.failed(id, failure), |()| true);
            if !goes_on {
                break;
            }
        }
        let mut inner = self.lock();
        inner.plan.release(id);
        inner.workers[id].gone = true;
        inner.workers[id].state = Doing::Waiting;
        self.changed.notify_all();
    }

    /// A worker's next task; blocks until there is one.
    fn next(&self, id: WorkerId) -> Next {
        let mut inner = self.lock();
        if id > 0 && inner.remote.is_none() && !std::mem::replace(&mut inner.workers[id].prepared, true) {
            return Next::Prepare;
        }
        loop {
            inner.workers[id].state = Doing::Waiting;
            if inner.over || inner.failure.is_some() || inner.workers[id].gone {
                return Next::Quit;
            }
            if inner.plan.is_complete() {
                self.changed.notify_all();
                if let (FinalCheck::Open, Some(remote)) = (&inner.final_check, &inner.remote) {
                    let known = remote.clone();
                    inner.final_check = FinalCheck::Taken;
                    return Next::Recheck(known);
                }
            } else if let Some((from, to)) = {
                let patience = self.patience(&inner);
                inner.assign(id, self.server.round_trips_to_start(), patience)
            } {
                inner.workers[id].state = Doing::Opening;
                let known = inner.remote.clone();
                return Next::Piece { from, to, known };
            }
            self.changed.wait_for(&mut inner, TICK);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a worker's whole equipment")]
    fn fetch(
        &self,
        id: WorkerId,
        connection: &mut dyn Connection,
        wire: &Wire,
        buffer: &mut [u8],
        from: u64,
        to: Option<u64>,
        known: Option<&Remote>,
    ) -> Result<(), Failure> {
        let opened = connection.open(wire, from, to, known)?;
        let (begins_at, until) = (opened.from, opened.until);
        self.accept(id, from, opened)?;
        let answer_end = if begins_at == from { to } else { None };
        loop {
            let length = connection.read(buffer)?;
            let mut inner = self.lock();
            let Some((at, end)) = inner.plan.rest(id).filter(|_| !inner.over) else {
                connection.abandon();
                return Ok(());
            };
            if length == 0 {
                if inner.remote.as_ref().is_some_and(|remote| remote.identity.size.is_none()) {
                    inner.plan.end_of_file(id);
                    return Ok(());
                }
                if Some(at) == until {
                    // All that this answer was to give (RFC 9110 §15.3.7).
                    inner.plan.release(id);
                    return Ok(());
                }
                return match at == end {
                    true => Ok(()),
                    false => Err(Failure::ClosedEarly(format!("{} bytes before the end", end - at))),
                };
            }
            inner.received += length as u64;
            let worker = &mut inner.workers[id];
            worker.received += length as u64;
            worker.last_byte = Instant::now();
            (worker.state, worker.proven) = (Doing::Delivering, true);
            inner.most = inner.most.max(inner.delivering());
            if inner.whole_only {
                inner.plan.extend(id);
            }
            let Some((at, own)) = inner.plan.claim(id, length as u64) else { continue };
            inner.writing += 1;
            drop(inner);
            let written = self.part.write(&buffer[..own as usize], at);
            let mut inner = self.lock();
            inner.writing -= 1;
            if inner.over {
                self.changed.notify_all();
            }
            written?;
            inner.plan.written(at, own);
            if inner.plan.bytes_done() > inner.most_done {
                inner.most_done = inner.plan.bytes_done();
                (inner.fruitless, inner.same_ends, inner.workers[id].failures) = (0, 0, 0);
            }
            let Some((at, end)) = inner.plan.rest(id) else { continue };
            if at < end {
                continue;
            }
            let size = inner.remote.as_ref().and_then(|remote| remote.identity.size);
            drop(inner);
            let at_end_of_answer = Some(end) == size || Some(end) == answer_end;
            if own < length as u64 && Some(end) == size {
                return Err(Failure::Changed("it is longer than the server said".to_owned()));
            }
            if !at_end_of_answer {
                connection.abandon();
                return Ok(());
            }
            // The answer's own end, so that the connection can be used again.
            return match connection.read(buffer) {
                Ok(0) => Ok(()),
                Ok(_) if Some(end) == size => Err(Failure::Changed("it is longer than the server said".to_owned())),
                Ok(_) => {
                    connection.abandon();
                    Ok(())
                }
                // Every byte is there; what the connection is good for shows with its next piece.
                Err(_) => Ok(()),
            };
        }
    }

    /// Judges the answer to a request for the bytes from `requested` on.
    fn accept(&self, id: WorkerId, requested: u64, opened: Opened) -> Result<(), Failure> {
        let Opened { remote, from, .. } = opened;
        let mut inner = self.lock();
        if inner.over {
            return Err(Failure::Stopped);
        }
        inner.answers += 1;
        inner.workers[id].state = Doing::Delivering;
        inner.workers[id].last_byte = Instant::now();
        inner.workers[id].answer_from = Some(from);
        if let Some(known) = &inner.remote {
            if let Some(how) = known.identity.change_to(&remote.identity) {
                return Err(Failure::Changed(how));
            }
            if from == requested {
                return Ok(());
            }
            if !inner.whole_only {
                inner.whole_only = true;
                inner.growth.limit(1);
                inner.notes.push(WHOLE_ONLY.to_owned());
            }
            let other = inner.workers.iter().enumerate().any(|(other, w)| other != id && w.state == Doing::Delivering);
            if other {
                // Whoever got the file from its start goes on to its end.
                inner.plan.release(id);
                inner.workers[id].gone = true;
                return Ok(());
            }
            inner.plan.start_over(id);
            return Ok(());
        }
        if let Some(before) = &inner.before {
            if let Some(how) = before.change_to(&remote.identity) {
                return Err(Failure::Changed(how));
            }
            if !before.is_confirmed_by(&remote.identity) {
                return Err(Failure::Changed("the server no longer says which version it is".to_owned()));
            }
        }
        if from != requested {
            inner.whole_only = true;
            inner.growth.limit(1);
            inner.notes.push(format!("{WHOLE_ONLY}; from its first byte again"));
            inner.plan.start_over(id);
        }
        match remote.identity.size {
            Some(size) => {
                self.part.reserve(size)?;
                let parts = if inner.whole_only { 1 } else { inner.growth.target() };
                inner.plan.set_size(size, parts);
                if !inner.whole_only && !remote.identity.can_resume() {
                    inner.notes.push(NO_VERSION.to_owned());
                }
            }
            None => {
                inner.whole_only = true;
                inner.growth.limit(1);
                inner.notes.push(NO_SIZE.to_owned());
                if requested > 0 && from == requested {
                    return Err(Failure::Changed("the server no longer says its size".to_owned()));
                }
            }
        }
        inner.remote = Some(remote);
        self.changed.notify_all();
        Ok(())
    }

    fn recheck(&self, connection: &mut dyn Connection, wire: &Wire, known: &Remote) -> Result<(), Failure> {
        let now = connection.recheck(wire);
        let mut inner = self.lock();
        inner.final_check = FinalCheck::Open;
        if let Some(how) = now?.and_then(|now| known.identity.change_to(&now)) {
            return Err(Failure::Changed(how));
        }
        inner.final_check = FinalCheck::Done;
        self.changed.notify_all();
        Ok(())
    }

    /// Records a failed attempt, and waits before the next; false when the worker is to end.
    fn failed(&self, id: WorkerId, failure: Failure) -> bool {
        let mut inner = self.lock();
        let ended_at = inner.plan.rest(id).map(|(at, _)| at);
        inner.plan.release(id);
        if inner.over || inner.workers[id].gone {
            return false;
        }
        inner.workers[id].state = Doing::Pausing;
        let begun_at = inner.workers[id].answer_from.take();
        if matches!(failure, Failure::Changed(_)) || failure.kind() == Kind::Local {
            inner.failure.get_or_insert(failure);
            self.changed.notify_all();
            return false;
        }
        inner.failed_attempts += 1;
        inner.fruitless += 1;
        inner.workers[id].failures += 1;
        let failures = inner.workers[id].failures;
        let others = inner.delivering();
        let is_permanent = failure.kind() == Kind::Refused;
        let present = inner.workers.iter().filter(|worker| !worker.gone).count();
        if others > 0 && (is_permanent || (!inner.workers[id].proven && failures > NEWCOMER_FAILURES_MAX)) {
            inner.growth.limit(others);
            inner.notes.push(format!("no more than {others} connection(s): {failure}"));
            return false;
        }
        let is_first = inner.remote.is_none() && inner.received == 0;
        let is_final = is_permanent && others == 0 || is_first && failure.is_absence();
        if begun_at == Some(0) && inner.most_done > 0 && ended_at == Some(inner.most_done) {
            inner.same_ends += 1;
        }
        // An end at the same byte each time is no chance, and each attempt costs the whole file.
        let is_interrupted = inner.same_ends > SAME_ENDS_MAX;
        let failure = match failure {
            Failure::ClosedEarly(text) if is_interrupted => {
                Failure::ClosedEarly(format!("{text}, {} times in a row", inner.same_ends))
            }
            other => other,
        };
        if is_final || is_interrupted || inner.fruitless > self.options.retries.saturating_mul(present.max(1) as u32) {
            inner.failure.get_or_insert(failure);
            self.changed.notify_all();
            return false;
        }
        if others == 0 {
            inner.notes.push(format!("{failure}; trying again"));
        }
        self.changed.notify_all();
        let pause = BACK_OFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(BACK_OFF_MOST);
        let until = Instant::now() + pause;
        while !inner.over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            self.changed.wait_for(&mut inner, left);
        }
        false
    }
}

const WHOLE_ONLY: &str = "the server gives whole files only (no ranges): one connection, and no resuming";
const NO_SIZE: &str = "the server does not say how long the file is: one connection, and no resuming";
const NO_VERSION: &str =
    "the server does not say which version of the file it gives: interrupted, this run would have to be repeated";
const BACK_OFF_FIRST: Duration = Duration::from_millis(250);
const BACK_OFF_MOST: Duration = Duration::from_secs(30);
/// A connection that never brought anything may fail so often while others deliver.
const NEWCOMER_FAILURES_MAX: u32 = 2;
/// A connection that is lost at the same byte so often may be chance, once more is not.
const SAME_ENDS_MAX: u32 = 2;
const READ_BYTES: usize = 64 * 1024;
