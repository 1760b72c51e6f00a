//! Fetching a file: workers, and the one who watches them.

mod inner;
mod workers;

use crate::digest::{Digest, verify};
use crate::error::Failure;
use crate::ftp::FtpServer;
use crate::growth::{Growth, Sample};
use crate::http::HttpServer;
use crate::part::{Part, State};
use crate::plan::Plan;
use crate::remote::{Server, Wire};
use crate::{Connections, MEASURED_FIRST, Options, Outcome, Progress};
use inner::{Doing, FinalCheck, Inner, Worker};
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
}

const NO_ROOM_FOR_STATE: &str =
    "the disk has no room to save what has arrived: interrupted, this run would have to be repeated";
const NOTES_MAX: usize = 200;
const TICK: Duration = Duration::from_millis(20);
const REPORT_EVERY: Duration = Duration::from_millis(100);
const FIRST_SAVE: Duration = Duration::from_millis(30);
const SAVE_EVERY: Duration = Duration::from_millis(100);
/// Logging in, and a lost packet's retransmission.
const STALL_ROUND_TRIPS: u32 = 12;
/// Nothing for so long while others receive: a connection that is stuck.
const STALL_MIN: Duration = Duration::from_secs(3);
/// A file that changes more often during one transfer cannot be fetched.
const VERSIONS_MAX: u32 = 3;
