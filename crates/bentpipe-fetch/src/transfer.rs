//! Fetching a file: workers, and the one who watches them.

use crate::digest::{Digest, verify};
use crate::error::{Failure, Kind};
use crate::ftp::FtpServer;
use crate::growth::{Growth, Sample};
use crate::http::HttpServer;
use crate::part::{Part, State};
use crate::plan::{Plan, WorkerId};
use crate::remote::{Connection, Identity, Opened, Remote, Server, Wire};
use crate::{Connections, MEASURED_FIRST, Options, Outcome, Progress};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use url::Url;

/// Fetches `url` to `target`, going on where an earlier call was interrupted. `report` is called a few times a second.
pub fn get(url: &Url, target: &Path, options: &Options, report: &mut dyn FnMut(&Progress)) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    Part::may_become(target, options.overwrite)?;
    // What is wrong with the options leaves no file.
    let mut server = server_of(url, options)?;
    let (part, mut state) = Part::open(target)?;
    let part = Arc::new(part);
    let _unlock = Unlock(Arc::clone(&part));
    let mut totals = Totals::default();
    if state.as_ref().is_some_and(|state| !state.is_from(url)) {
        totals.note("what is here of this file is from another address: starting again".to_owned());
        part.clear()?;
        state = None;
    }
    let mut options = options.clone();
    let mut versions = 0;
    let size = loop {
        let shared = Arc::new(Shared::new(server, &options, Arc::clone(&part), url, state.take()));
        let result = shared.run(report, &mut totals);
        match result {
            Err(Failure::Changed(how)) if versions < VERSIONS_MAX => {
                versions += 1;
                let mut note = format!("the file at the server has changed ({how}): starting again");
                if versions == VERSIONS_MAX {
                    // Servers of one name may each give another ETag; one answer is of one version.
                    options.connections = Connections::Fixed(1);
                    note.push_str(", over one connection");
                }
                totals.note(note);
                part.clear()?;
                server = server_of(url, &options)?;
            }
            Err(failure @ Failure::Changed(_)) => {
                part.remove();
                return Err(failure);
            }
            other => break other?,
        }
    };
    let options = &options;
    let elapsed = begun.elapsed();
    let done = size.unwrap_or(totals.bytes);
    let progress =
        Progress { size: Some(done), done, received: totals.received, checking: true, ..Progress::default() };
    let digest = verify(&part, options, &totals.digests, &mut || {
        report(&progress);
        !options.stop.load(Ordering::Relaxed)
    })?;
    part.finish(done, options.overwrite)?;
    Ok(Outcome {
        bytes: done,
        resumed_from: totals.resumed_from,
        received: totals.received,
        elapsed,
        connections: totals.connections,
        round_trip: totals.round_trip,
        digest,
        size_checked: size.is_some(),
        failed_attempts: totals.failed_attempts,
        notes: totals.notes,
    })
}

fn server_of(url: &Url, options: &Options) -> Result<Box<dyn Server>, Failure> {
    Ok(match url.scheme() {
        "ftp" => Box::new(FtpServer::new(url, options).map_err(Failure::Answer)?),
        _ => Box::new(HttpServer::new(url, options)?),
    })
}

/// Lets another process have the part file: workers that wait for a name lookup may hold it open for long.
struct Unlock(Arc<Part>);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Totals that outlast a restart.
#[derive(Default)]
struct Totals {
    bytes: u64,
    resumed_from: u64,
    received: u64,
    connections: usize,
    round_trip: Option<Duration>,
    failed_attempts: u32,
    digests: Vec<Digest>,
    notes: Vec<String>,
    /// Not yet reported.
    fresh: Vec<String>,
}

impl Totals {
    fn note(&mut self, text: String) {
        // A server that gives a byte an attempt makes a note each.
        if self.notes.len() < NOTES_MAX {
            self.notes.push(text.clone());
        }
        self.fresh.push(text);
    }
}

struct Shared {
    server: Box<dyn Server>,
    options: Options,
    part: Arc<Part>,
    url: Url,
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    plan: Plan,
    growth: Growth,
    workers: Vec<Worker>,
    /// The server's description of the file, once it is known.
    remote: Option<Remote>,
    /// The identity that an earlier run recorded.
    before: Option<Identity>,
    /// The server gives the whole file or nothing.
    whole_only: bool,
    /// Nothing more is to be written.
    over: bool,
    failure: Option<Failure>,
    /// Writes between their claim and their entry in the plan.
    writing: usize,
    received: u64,
    /// Most connections at once.
    most: usize,
    answers: u32,
    failed_attempts: u32,
    /// Attempts in a row that brought no new byte.
    fruitless: u32,
    /// Most bytes of the file that were ever here: more than now when the server gives whole files only.
    most_done: u64,
    /// Attempts in a row that fetched the file from its first byte and ended at `most_done` again.
    same_ends: u32,
    final_check: FinalCheck,
    notes: Vec<String>,
}

/// The question whether the file is still the same, after the last byte.
#[derive(PartialEq)]
enum FinalCheck {
    Open,
    Taken,
    Done,
}

struct Worker {
    wire: Arc<Wire>,
    state: Doing,
    /// Has received bytes, ever.
    proven: bool,
    /// Was asked to do ahead what it can.
    prepared: bool,
    /// Where the last answer began.
    answer_from: Option<u64>,
    gone: bool,
    received: u64,
    last_byte: Instant,
    /// Bytes a second, and since when it is measured.
    rate: f64,
    mark: (Instant, u64),
    failures: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Waiting,
    Opening,
    Delivering,
    Pausing,
}

enum Next {
    Prepare,
    Piece { from: u64, to: Option<u64>, known: Option<Remote> },
    Recheck(Remote),
    Quit,
}

impl Shared {
    fn new(server: Box<dyn Server>, options: &Options, part: Arc<Part>, url: &Url, state: Option<State>) -> Shared {
        let mut done = state.as_ref().map(State::done).unwrap_or_default();
        let size = state.as_ref().and_then(|state| state.identity.size).unwrap_or(0);
        if size > 0 && done.bytes() == size {
            // Interrupted before it got its name. With the last byte the server says whether it still has this file.
            done.remove(size - 1, size);
        }
        let growth = match options.connections {
            Connections::Fixed(connections) => Growth::fixed(connections),
            Connections::Measured { most } => Growth::new(MEASURED_FIRST, most),
        };
        let inner = Inner {
            most_done: done.bytes(),
            same_ends: 0,
            plan: Plan::new(done),
            growth,
            workers: Vec::new(),
            remote: None,
            before: state.map(|state| state.identity),
            whole_only: false,
            over: false,
            failure: None,
            writing: 0,
            received: 0,
            most: 0,
            answers: 0,
            failed_attempts: 0,
            fruitless: 0,
            final_check: FinalCheck::Open,
            notes: Vec::new(),
        };
        let (options, url) = (options.clone(), url.clone());
        Shared { server, options, part, url, inner: Mutex::new(inner), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Watches until the file is complete; its size, if the server said it.
    fn run(self: &Arc<Shared>, report: &mut dyn FnMut(&Progress), totals: &mut Totals) -> Result<Option<u64>, Failure> {
        let resumed = self.lock().plan.bytes_done();
        let (mut saved, mut save_every, mut saved_bytes) = (Instant::now(), FIRST_SAVE, resumed);
        let mut reported = Instant::now() - REPORT_EVERY;
        let received_before = totals.received;
        self.spawn();
        let result = loop {
            let mut inner = self.lock();
            self.changed.wait_for(&mut inner, TICK);
            let now = Instant::now();
            if self.options.stop.load(Ordering::Relaxed) {
                break Err(Failure::Stopped);
            }
            if let Some(failure) = inner.failure.take() {
                break Err(failure);
            }
            if inner.plan.is_complete() && self.is_confirmed(&mut inner) {
                break Ok(inner.remote.as_ref().and_then(|remote| remote.identity.size));
            }
            inner.measure(now);
            self.rescue(&mut inner, now);
            let missing = self.grow(&mut inner, now);
            totals.received = received_before + inner.received;
            for note in std::mem::take(&mut inner.notes) {
                totals.note(note);
            }
            let progress = (now - reported >= REPORT_EVERY || !totals.fresh.is_empty()).then(|| Progress {
                size: inner.remote.as_ref().and_then(|remote| remote.identity.size),
                done: inner.plan.bytes_done(),
                received: totals.received,
                connections: inner.delivering(),
                notes: std::mem::take(&mut totals.fresh),
                checking: false,
            });
            let due = now - saved >= save_every && inner.plan.bytes_done() != saved_bytes;
            let state = if due { self.state(&inner) } else { None };
            drop(inner);
            if let Some(progress) = progress {
                reported = now;
                report(&progress);
            }
            for _ in 0..missing {
                self.spawn();
            }
            if let Some(state) = state {
                saved_bytes = state.done().bytes();
                match self.part.save(&state) {
                    Ok(true) => {}
                    Ok(false) if totals.notes.iter().any(|note| note == NO_ROOM_FOR_STATE) => {}
                    Ok(false) => totals.note(NO_ROOM_FOR_STATE.to_owned()),
                    Err(failure) => break Err(failure),
                }
                // A twentieth of the time at most goes into saving.
                saved = Instant::now();
                save_every = SAVE_EVERY.max((saved - now) * 20);
            }
        };
        self.shut_down(result, totals, resumed, received_before)
    }

    /// Ends the workers, keeps or settles what is there.
    fn shut_down(
        &self,
        result: Result<Option<u64>, Failure>,
        totals: &mut Totals,
        resumed: u64,
        received_before: u64,
    ) -> Result<Option<u64>, Failure> {
        let mut inner = self.lock();
        inner.over = true;
        self.changed.notify_all();
        for worker in &inner.workers {
            worker.wire.hang_up();
        }
        // A worker may be writing what it has claimed; after that, `over` keeps it from claiming more.
        while inner.writing > 0 {
            self.changed.wait(&mut inner);
        }
        totals.bytes = inner.plan.bytes_done();
        totals.received = received_before + inner.received;
        totals.connections = totals.connections.max(inner.most);
        totals.failed_attempts += inner.failed_attempts;
        totals.resumed_from = if inner.before.is_some() && !inner.whole_only { resumed } else { 0 };
        totals.round_trip = inner.round_trip();
        totals.digests = inner.remote.as_ref().map(|remote| remote.digests.clone()).unwrap_or_default();
        for note in std::mem::take(&mut inner.notes) {
            totals.note(note);
        }
        if matches!(result, Err(Failure::Changed(_))) {
            return result;
        }
        let saved = self.state(&inner).map_or(Ok(false), |state| self.part.save(&state));
        match (&result, saved) {
            // An error of the disk is reported once: a file that may be damaged must not get its name.
            (Ok(_), Err(failure)) => return Err(failure),
            // Nothing that could be continued.
            (Err(_), _) if !self.part.has_state() => self.part.remove(),
            _ => {}
        }
        result
    }

    fn state(&self, inner: &Inner) -> Option<State> {
        let identity = &inner.remote.as_ref()?.identity;
        let can_resume = identity.can_resume() && !inner.whole_only && inner.plan.bytes_done() > 0;
        can_resume.then(|| State::new(&self.url, identity, inner.plan.done()))
    }

    /// With several answers of a protocol that does not say with each which file it is from, one more question is due.
    fn is_confirmed(&self, inner: &mut Inner) -> bool {
        if inner.answers < 2 && inner.before.is_none() {
            inner.final_check = FinalCheck::Done;
        }
        inner.final_check == FinalCheck::Done
    }

    /// Takes their pieces from connections that have stopped while others go on, if someone waits for work.
    fn rescue(&self, inner: &mut Inner, now: Instant) {
        if !inner.workers.iter().any(|w| !w.gone && w.state == Doing::Waiting) {
            return;
        }
        let patience = self.patience(inner);
        let latest = inner.workers.iter().map(|w| w.last_byte).max();
        for id in 0..inner.workers.len() {
            let worker = &inner.workers[id];
            let holds = matches!(worker.state, Doing::Opening | Doing::Delivering) && inner.plan.rest(id).is_some();
            // When nobody receives, the link is to blame, not the connection.
            let is_alone = latest.is_some_and(|latest| latest > worker.last_byte);
            if holds && is_alone && now - worker.last_byte > patience {
                inner.plan.release(id);
                inner.workers[id].wire.hang_up();
                self.changed.notify_all();
            }
        }
    }

    /// Longest time for a connection to begin, login included, before it counts as stuck.
    fn patience(&self, inner: &Inner) -> Duration {
        let round_trips = self.server.round_trips_to_start() + STALL_ROUND_TRIPS;
        (inner.round_trip().unwrap_or_default() * round_trips).max(STALL_MIN)
    }

    /// The number of missing workers.
    fn grow(&self, inner: &mut Inner, now: Instant) -> usize {
        let present = inner.workers.iter().filter(|worker| !worker.gone).count();
        if inner.remote.is_none() {
            // They prepare while the first learns what there is.
            return inner.growth.target().saturating_sub(present);
        }
        let Some(size) = inner.remote.as_ref().and_then(|remote| remote.identity.size) else { return 0 };
        if inner.whole_only {
            return 0;
        }
        let sample = Sample {
            now,
            bytes: inner.received,
            delivering: inner.delivering(),
            round_trip: inner.round_trip().unwrap_or_default(),
            left: Some(size - inner.plan.bytes_done().min(size)),
        };
        let before = inner.growth.target();
        if inner.growth.update(sample) && inner.growth.target() < before {
            let start = inner.time_to_start(self.server.round_trips_to_start());
            inner.retire(start);
            self.changed.notify_all();
        }
        let present = inner.workers.iter().filter(|worker| !worker.gone).count();
        inner.growth.target().saturating_sub(present)
    }

    fn spawn(self: &Arc<Shared>) {
        let wire = Arc::new(Wire::default());
        let now = Instant::now();
        let mut inner = self.lock();
        let id = inner.workers.len();
        inner.workers.push(Worker {
            wire: Arc::clone(&wire),
            state: Doing::Waiting,
            proven: false,
            prepared: false,
            answer_from: None,
            gone: false,
            received: 0,
            last_byte: now,
            rate: 0.0,
            mark: (now, 0),
            failures: 0,
        });
        drop(inner);
        let shared = Arc::clone(self);
        // Not joined: a name lookup or a connect cannot be interrupted. Once `over` is set, it touches nothing more.
        let thread = std::thread::Builder::new().name(format!("fetch-{id}")).spawn(move || shared.work(id, &wire));
        if let Err(error) = thread {
            let mut inner = self.lock();
            inner.workers[id].gone = true;
            inner.growth.limit(id);
            if id == 0 {
                inner.failure = Some(Failure::Unreachable(format!("no thread can be started: {error}")));
            }
        }
    }

    fn work(&self, id: WorkerId, wire: &Wire) {
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

impl Inner {
    fn delivering(&self) -> usize {
        self.workers.iter().filter(|worker| !worker.gone && worker.state == Doing::Delivering).count()
    }

    fn round_trip(&self) -> Option<Duration> {
        // The least: queues of our own making do not count.
        self.workers.iter().filter_map(|worker| worker.wire.round_trip()).min()
    }

    fn measure(&mut self, now: Instant) {
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
    fn time_to_start(&self, round_trips: u32) -> f64 {
        (self.round_trip().unwrap_or_default() * (round_trips + 2)).max(START_MIN).as_secs_f64()
    }

    fn assign(&mut self, id: WorkerId, round_trips: u32, patience: Duration) -> Option<(u64, Option<u64>)> {
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
    fn retire(&mut self, start: f64) {
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

const WHOLE_ONLY: &str = "the server gives whole files only (no ranges): one connection, and no resuming";
const NO_SIZE: &str = "the server does not say how long the file is: one connection, and no resuming";
const NO_VERSION: &str =
    "the server does not say which version of the file it gives: interrupted, this run would have to be repeated";
const NO_ROOM_FOR_STATE: &str =
    "the disk has no room to save what has arrived: interrupted, this run would have to be repeated";
const NOTES_MAX: usize = 200;
const TICK: Duration = Duration::from_millis(20);
const REPORT_EVERY: Duration = Duration::from_millis(100);
const RATE_EVERY: Duration = Duration::from_millis(500);
const FIRST_SAVE: Duration = Duration::from_millis(30);
const SAVE_EVERY: Duration = Duration::from_millis(100);
/// Logging in, and a lost packet's retransmission.
const STALL_ROUND_TRIPS: u32 = 12;
/// Nothing for so long while others receive: a connection that is stuck.
const STALL_MIN: Duration = Duration::from_secs(3);
const START_MIN: Duration = Duration::from_millis(50);
const UNKNOWN_RATE_MIN: u64 = 1 << 20;
const BACK_OFF_FIRST: Duration = Duration::from_millis(250);
const BACK_OFF_MOST: Duration = Duration::from_secs(30);
/// A connection that never brought anything may fail so often while others deliver.
const NEWCOMER_FAILURES_MAX: u32 = 2;
/// A connection that is lost at the same byte so often may be chance, once more is not.
const SAME_ENDS_MAX: u32 = 2;
/// A file that changes more often during one transfer cannot be fetched.
const VERSIONS_MAX: u32 = 3;
const READ_BYTES: usize = 64 * 1024;
