//! The one pool of worker threads of a process.
//!
//! The calling thread hands out jobs and takes their results; nothing is shared but channels. While a pool works,
//! another caller waits for it, and a job that asks for a pool does its own jobs itself: there are never more workers than were
//! asked for, and results do not depend on how many there are.

use parking_lot::Mutex;
use std::any::Any;
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Jobs and the taker of their results; called by the thread that runs the pool.
pub trait Queue {
    /// A piece of work.
    type Job: Send;
    /// A message of a worker during a job.
    type Message: Send;
    /// The result of a job.
    type Output: Send;

    /// The next job. None: none now, and none later unless a job that runs leads to more.
    fn next(&mut self) -> Option<Self::Job>;
    /// Takes a worker's message.
    fn message(&mut self, message: Self::Message);
    /// Takes the result of a job.
    fn done(&mut self, output: Self::Output);
    /// Called after each message and each job, and every [`TICK`] at least; `running`: jobs under way.
    fn tick(&mut self, running: usize);
}

/// Longest time between two calls of [`Queue::tick`].
pub const TICK: Duration = Duration::from_millis(100);

/// Locked while a pool works.
static POOL: Mutex<()> = Mutex::new(());

thread_local! {
    /// This thread belongs to a pool that works.
    static IN_POOL: Cell<bool> = const { Cell::new(false) };
}

enum FromWorker<M, T> {
    Message(M),
    Done(usize, Result<T, Box<dyn Any + Send>>),
}

/// As many workers as the machine has cores for us.
#[must_use]
pub fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Does the jobs of `queue`, up to `workers` at a time. A panic in a job is passed on to the caller.
pub fn run<Q: Queue>(
    workers: NonZeroUsize,
    queue: &mut Q,
    work: &(impl Fn(Q::Job, &mut dyn FnMut(Q::Message)) -> Q::Output + Sync),
) {
    if IN_POOL.get() {
        while let Some(job) = queue.next() {
            queue.tick(1);
            let output = work(job, &mut |message| queue.message(message));
            queue.done(output);
            queue.tick(0);
        }
        return;
    }
    let _only = POOL.lock();
    let _marked = Marked::new();
    let (results, results_of_all) = channel();
    std::thread::scope(|scope| {
        let mut threads: Vec<Sender<Q::Job>> = Vec::new();
        let (mut idle, mut running) = (Vec::new(), 0);
        loop {
            while !idle.is_empty() || threads.len() < workers.get() {
                let Some(job) = queue.next() else { break };
                let worker = idle.pop().unwrap_or_else(|| {
                    let (give, jobs) = channel();
                    let (number, results) = (threads.len(), results.clone());
                    scope.spawn(move || {
                        let _marked = Marked::new();
                        for job in jobs {
                            let mut message = |message| drop(results.send(FromWorker::Message(message)));
                            let output = catch_unwind(AssertUnwindSafe(|| work(job, &mut message)));
                            if results.send(FromWorker::Done(number, output)).is_err() {
                                return;
                            }
                        }
                    });
                    threads.push(give);
                    number
                });
                running += 1;
                // A worker listens until its sender goes, at the end of this scope.
                let _ = threads[worker].send(job);
            }
            queue.tick(running);
            if running == 0 {
                return;
            }
            match results_of_all.recv_timeout(TICK) {
                Ok(FromWorker::Message(message)) => queue.message(message),
                Ok(FromWorker::Done(worker, output)) => {
                    running -= 1;
                    idle.push(worker);
                    queue.done(output.unwrap_or_else(|panic| resume_unwind(panic)));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    });
}

/// Does `work` for each item; the results in the items' order.
pub fn map<I: Send, T: Send>(
    workers: NonZeroUsize,
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let mut list = List { items: items.into_iter().enumerate(), results: Vec::new() };
    run(workers, &mut list, &|(place, item): (usize, I), _: &mut dyn FnMut(())| (place, work(item)));
    list.results.into_iter().flatten().collect()
}

struct List<I, T> {
    items: I,
    /// Of each item that was begun.
    results: Vec<Option<T>>,
}

impl<I: Send, T: Send, Items: Iterator<Item = (usize, I)>> Queue for List<Items, T> {
    type Job = (usize, I);
    type Message = ();
    type Output = (usize, T);

    fn next(&mut self) -> Option<(usize, I)> {
        let next = self.items.next()?;
        self.results.push(None);
        Some(next)
    }

    fn message(&mut self, (): ()) {}

    fn done(&mut self, (place, result): (usize, T)) {
        self.results[place] = Some(result);
    }

    fn tick(&mut self, _running: usize) {}
}

/// Marks the thread as one of the pool's while it lives.
struct Marked;

impl Marked {
    fn new() -> Marked {
        IN_POOL.set(true);
        Marked
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        IN_POOL.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static AT_WORK: AtomicUsize = AtomicUsize::new(0);

    fn counted<T>(work: impl FnOnce() -> T) -> T {
        let others = AT_WORK.fetch_add(1, Ordering::SeqCst);
        assert!(others < 2, "{others} jobs run besides this one");
        std::thread::sleep(Duration::from_millis(2));
        let result = work();
        AT_WORK.fetch_sub(1, Ordering::SeqCst);
        result
    }

    const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

    #[test]
    fn two_pools_never_exist() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // Each job has jobs of its own, which are done where it is.
                    let sums = map(TWO, 1..=5u64, |n| {
                        let here = std::thread::current().id();
                        let own = map(TWO, 1..=n, |m| (m, std::thread::current().id()));
                        assert!(own.iter().all(|(_, thread)| *thread == here));
                        counted(|| own.iter().map(|(m, _)| m).sum::<u64>())
                    });
                    assert_eq!(sums, [1, 3, 6, 10, 15], "in the order of the items");
                });
            }
        });
    }

    #[test]
    fn a_panic_comes_to_the_caller_and_the_pool_works_again() {
        let outcome = catch_unwind(|| map(TWO, 0..3, |n| assert_ne!(n, 1)));
        assert!(outcome.is_err());
        assert_eq!(map(TWO, 0..3, |n| n * 2), [0, 2, 4]);
    }

    /// Each job leads to another until there were enough.
    struct Chain {
        left: u32,
        waiting: Vec<u32>,
        done: Vec<u32>,
        said: usize,
    }

    impl Queue for Chain {
        type Job = u32;
        type Message = ();
        type Output = u32;
        fn next(&mut self) -> Option<u32> {
            self.waiting.pop()
        }
        fn message(&mut self, (): ()) {
            self.said += 1;
        }
        fn done(&mut self, output: u32) {
            self.done.push(output);
            if self.left > 0 {
                self.left -= 1;
                self.waiting.push(output + 1);
            }
        }
        fn tick(&mut self, running: usize) {
            assert!(running <= 2);
        }
    }

    #[test]
    fn a_job_may_lead_to_more() {
        let mut chain = Chain { left: 9, waiting: vec![0], done: Vec::new(), said: 0 };
        run(TWO, &mut chain, &|job, emit| {
            emit(());
            job
        });
        assert_eq!((chain.done, chain.said), ((0..10).collect(), 10));
    }
}
