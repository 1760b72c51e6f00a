//! Drives the workloads of one site: a thread inside the site's namespace that polls programs when their sockets change
//! or their time has come.

use crate::clock::Clock;
use crate::namespace::Namespace;
use crate::sockets::{ProgramSockets, SocketsView};
use crate::waker::Waker;
use bentpipe_apps::report::{App, Report};
use bentpipe_net::time::{Duration, Instant};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A site's driver.
pub struct SiteDriver {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

/// A program that was handed over.
pub struct RunningApp {
    number: u32,
    inbox: Arc<Inbox>,
    ended: Receiver<()>,
    has_ended: bool,
}

struct Inbox {
    wake: OwnedFd,
    /// `None` once the thread is gone: whoever waits for an answer then learns it at once.
    orders: Mutex<Option<Vec<Order>>>,
    next_program: Mutex<u32>,
}

enum Order {
    Start { number: u32, app: Box<dyn App>, started: Sender<()>, ended: Sender<()> },
    Ask { number: u32, answer: Sender<Report> },
    Stop { number: u32, answer: Sender<Report> },
    Quit,
}

/// Data of the wake-up descriptor in epoll; program numbers stay below.
const WAKE: u64 = u64::MAX;
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(60);

impl Inbox {
    fn send(&self, order: Order) {
        if let Some(orders) = self.orders.lock().as_mut() {
            orders.push(order);
        }
        // A full counter means it is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl SiteDriver {
    /// Starts the thread of a site. `ends` is woken whenever a program becomes done.
    pub fn start(namespace: &Namespace, clock: Clock, ends: Waker) -> io::Result<SiteDriver> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let inbox = Arc::new(Inbox { wake, orders: Mutex::new(Some(Vec::new())), next_program: Mutex::new(0) });
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox.wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let namespace = namespace.clone();
        let (entered, inside) = channel();
        let thread = std::thread::Builder::new().name("workloads".into()).spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                let result = namespace.enter();
                let failed = result.is_err();
                let _ = entered.send(result);
                if !failed {
                    Loop { inbox, epoll, clock, ends, programs: BTreeMap::new(), scratch: Vec::new() }.run();
                }
            }
        })?;
        inside.recv().unwrap_or_else(|_| Err(io::Error::other("the workload thread ended")))?;
        Ok(SiteDriver { inbox, thread: Some(thread) })
    }

    /// Starts a program; returns once it has been polled for the first time (a server listens by then).
    pub fn run(&self, app: Box<dyn App>) -> RunningApp {
        let number = {
            let mut next = self.inbox.next_program.lock();
            *next += 1;
            *next
        };
        let (started, begun) = channel();
        let (ended, end) = channel();
        self.inbox.send(Order::Start { number, app, started, ended });
        // Fails only if the thread is gone; the report then never comes, which is_done() tells.
        let _ = begun.recv();
        RunningApp { number, inbox: Arc::clone(&self.inbox), ended: end, has_ended: false }
    }
}

impl Drop for SiteDriver {
    fn drop(&mut self) {
        self.inbox.send(Order::Quit);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl RunningApp {
    /// True if the program says that it is done (a server may still serve).
    pub fn has_ended(&mut self) -> bool {
        self.has_ended |= self.ended.try_recv().is_ok();
        self.has_ended
    }

    /// The program's report so far. `None`: its thread is gone.
    #[must_use]
    pub fn report(&self) -> Option<Report> {
        let (answer, answered) = channel();
        self.inbox.send(Order::Ask { number: self.number, answer });
        answered.recv().ok()
    }

    /// Ends the program and closes its sockets; its last report. `None`: its thread is gone.
    #[must_use]
    pub fn stop(self) -> Option<Report> {
        let (answer, answered) = channel();
        self.inbox.send(Order::Stop { number: self.number, answer });
        answered.recv().ok()
    }
}

struct Loop {
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    clock: Clock,
    ends: Waker,
    programs: BTreeMap<u32, Running>,
    scratch: Vec<u8>,
}

struct Running {
    app: Box<dyn App>,
    sockets: ProgramSockets,
    ended: Option<Sender<()>>,
    changed: bool,
}

impl Drop for Loop {
    /// However the thread ends: orders that wait are dropped, and their answers with them.
    fn drop(&mut self) {
        self.inbox.orders.lock().take();
    }
}

impl Loop {
    fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        loop {
            if !self.take_orders() {
                return;
            }
            let now = self.clock.now();
            let due: Vec<u32> = self
                .programs
                .iter()
                .filter(|(_, p)| p.changed || p.app.next_wake().is_some_and(|wake| wake <= now))
                .map(|(number, _)| *number)
                .collect();
            for number in due {
                self.poll(number);
            }
            let next = self.programs.values().filter_map(|p| p.app.next_wake()).min();
            let wait = next.map_or(SLEEP_MAX, |at| at.since(self.clock.now())).min(SLEEP_MAX);
            let timeout = rustix::time::Timespec {
                tv_sec: (wait.ns / 1_000_000_000) as i64,
                tv_nsec: (wait.ns % 1_000_000_000) as i64,
            };
            events.clear();
            if epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).is_err() {
                continue; // interrupted
            }
            for event in &events {
                let data = event.data.u64();
                if data == WAKE {
                    let _ = rustix::io::read(&self.inbox.wake, &mut [0u8; 8]);
                } else if let Some(program) = self.programs.get_mut(&((data >> 32) as u32)) {
                    program.changed = true;
                }
            }
        }
    }

    /// Obeys what waits in the inbox; `false`: quit.
    fn take_orders(&mut self) -> bool {
        let orders = self.inbox.orders.lock().as_mut().map(std::mem::take);
        for order in orders.unwrap_or_default() {
            match order {
                Order::Start { number, app, started, ended } => {
                    let sockets = ProgramSockets::new(number);
                    self.programs.insert(number, Running { app, sockets, ended: Some(ended), changed: false });
                    self.poll(number);
                    let _ = started.send(());
                }
                Order::Ask { number, answer } => {
                    if let Some(program) = self.programs.get(&number) {
                        let _ = answer.send(program.app.report(self.clock.now()));
                    }
                }
                Order::Stop { number, answer } => {
                    if let Some(program) = self.programs.remove(&number) {
                        let _ = answer.send(program.app.report(self.clock.now()));
                    }
                }
                Order::Quit => return false,
            }
        }
        true
    }

    fn poll(&mut self, number: u32) {
        let Loop { programs, epoll, clock, scratch, .. } = self;
        let Some(program) = programs.get_mut(&number) else { return };
        program.changed = false;
        let now: Instant = clock.now();
        let mut view = SocketsView { own: &mut program.sockets, epoll, clock: *clock, scratch };
        program.app.poll(now, &mut view);
        // Done programs are still polled (a server goes on serving) until they are stopped.
        if program.app.is_done()
            && let Some(ended) = program.ended.take()
        {
            let _ = ended.send(());
            self.ends.wake();
        }
    }
}
