//! Drives one gateway: a thread, inside a namespace if one is given, that polls it when its sockets change or its time has
//! come.

use super::options::SiteOptions;
use super::site::Site;
use super::sockets::GatewayView;
use super::token;
use crate::clock::Clock;
use crate::line::LineDevice;
use crate::namespace::Namespace;
use crate::sockets::{ProgramSockets, SocketsView};
use bentpipe_gateway::{Gateway, LogEvent, Metrics};
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::socket::SocketId;
use bentpipe_net::time::Duration;
use bentpipe_net::units::BitRate;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A running gateway, or another program that needs what a gateway's site offers.
pub struct GatewayDriver<P: GatewayProgram + 'static = Gateway> {
    inbox: Arc<Inbox<P>>,
    thread: Option<JoinHandle<P>>,
    done: Receiver<()>,
}

struct Inbox<P> {
    wake: OwnedFd,
    /// `None` once the thread is gone.
    orders: Mutex<Option<Vec<Order<P>>>>,
}

type Work<P> = Box<dyn FnOnce(&mut P, &mut Site) + Send>;

enum Order<P> {
    /// To be done with the program between two polls; it is polled after.
    Do(Work<P>),
    Quit,
}

/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Events taken at once.
const EVENTS_MAX: usize = 1024;

impl<P: GatewayProgram + 'static> GatewayDriver<P> {
    /// Starts the thread, in `namespace` or in the calling thread's. Returns once the program has been polled for the
    /// first time: from then on connections are intercepted.
    pub fn start(
        namespace: Option<&Namespace>,
        clock: Clock,
        program: P,
        options: SiteOptions,
    ) -> io::Result<GatewayDriver<P>> {
        GatewayDriver::start_with_line(namespace, clock, program, options, None)
    }

    /// The same with a line for the program to dial.
    pub fn start_with_line(
        namespace: Option<&Namespace>,
        clock: Clock,
        program: P,
        options: SiteOptions,
        line: Option<Box<dyn LineDevice>>,
    ) -> io::Result<GatewayDriver<P>> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let inbox = Arc::new(Inbox { wake, orders: Mutex::new(Some(Vec::new())) });
        let namespace = namespace.cloned();
        let (opened, ready) = channel();
        let (is_done, done) = channel();
        let thread = std::thread::Builder::new().name("gateway".into()).spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                let _closed = CloseOnDrop(Arc::clone(&inbox));
                let open = || {
                    if let Some(namespace) = namespace {
                        namespace.enter()?;
                    }
                    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                    epoll::add(&epoll, &inbox.wake, epoll::EventData::new_u64(token::WAKE), epoll::EventFlags::IN)?;
                    let site = Site::open(options, line, &epoll, clock.now())?;
                    Ok((epoll, site))
                };
                match open() {
                    Err(error) => {
                        let _ = opened.send(Err(error));
                        program
                    }
                    Ok((epoll, site)) => {
                        let is_done = Some(is_done);
                        let mut run = Loop {
                            inbox: Arc::clone(&inbox),
                            epoll,
                            clock,
                            sockets: ProgramSockets::new(0),
                            site,
                            program,
                            scratch: Vec::new(),
                            is_done,
                        };
                        run.poll();
                        let _ = opened.send(Ok(()));
                        run.run();
                        run.program
                    }
                }
            }
        })?;
        ready.recv().unwrap_or_else(|_| Err(io::Error::other("the gateway's thread ended")))?;
        Ok(GatewayDriver { inbox, thread: Some(thread), done })
    }

    /// Does `work` with the program between two polls. `None`: its thread is gone.
    pub fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut P) -> T + Send + 'static) -> Option<T> {
        self.with_site(|program, _| work(program))
    }

    fn with_site<T: Send + 'static>(&self, work: impl FnOnce(&mut P, &mut Site) -> T + Send + 'static) -> Option<T> {
        let (answer, answered) = channel();
        self.inbox.send(Order::Do(Box::new(move |program, site| {
            let _ = answer.send(work(program, site));
        })));
        answered.recv().ok()
    }

    /// The site's remarks for the operator since the last call.
    pub fn take_remarks(&self) -> Vec<String> {
        self.with_site(|_, site| site.take_remarks()).unwrap_or_default()
    }

    /// Waits at most `limit` for the program to say that it is done; `true`: it is.
    pub fn wait_until_done(&self, limit: std::time::Duration) -> bool {
        // An error of the channel itself: the thread is gone.
        !matches!(self.done.recv_timeout(limit), Err(std::sync::mpsc::RecvTimeoutError::Timeout))
    }

    /// Ends the thread: the rules go, and sockets that are open are reset. Returns the program as it was.
    pub fn end(mut self) -> Option<P> {
        self.inbox.send(Order::Quit);
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl GatewayDriver<Gateway> {
    /// Its counters so far. `None`: its thread is gone.
    #[must_use]
    pub fn metrics(&self) -> Option<Metrics> {
        self.with(|gateway| gateway.metrics())
    }

    /// The link's rate has changed; `None`: measure it.
    pub fn set_rate(&self, rate: Option<BitRate>) {
        self.with(move |gateway| gateway.set_rate(rate));
    }

    /// The rate of the direction in which this gateway receives has changed; `None`: guessed.
    pub fn set_incoming(&self, rate: Option<BitRate>) {
        self.with(move |gateway| gateway.set_incoming(rate));
    }

    /// Declares the rates again to the other gateway.
    pub fn declare_rates(&self) {
        self.with(Gateway::declare_rates);
    }

    /// A terminal: the hub's address is known, or has changed.
    pub fn set_hub(&self, hub: SocketAddr) {
        self.with(move |gateway| gateway.set_hub(hub));
    }

    /// The UDP port of the satellite side is open.
    #[must_use]
    pub fn has_port(&self) -> bool {
        self.with(|gateway| gateway.has_port()).unwrap_or(false)
    }

    /// Takes no new connections; done when the last has ended ([`GatewayDriver::wait_until_done`]).
    pub fn drain(&self) {
        self.with(Gateway::drain);
    }

    /// The events since the last call.
    pub fn take_log(&self) -> Vec<LogEvent> {
        self.with(Gateway::take_log).unwrap_or_default()
    }

    /// Resets what is still open, takes leave of the other gateway, and ends. The last metrics.
    #[must_use]
    pub fn stop(self) -> Metrics {
        self.with(Gateway::end);
        // It is polled once more before it obeys.
        self.end().map(|gateway| gateway.metrics()).unwrap_or_default()
    }
}

impl<P: GatewayProgram + 'static> Drop for GatewayDriver<P> {
    fn drop(&mut self) {
        self.inbox.send(Order::Quit);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<P> Inbox<P> {
    fn send(&self, order: Order<P>) {
        if let Some(orders) = self.orders.lock().as_mut() {
            orders.push(order);
        }
        // A full counter means it is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// However the thread ends: orders that wait are dropped, and their answers with them.
struct CloseOnDrop<P>(Arc<Inbox<P>>);

impl<P> Drop for CloseOnDrop<P> {
    fn drop(&mut self) {
        self.0.orders.lock().take();
    }
}

struct Loop<P> {
    inbox: Arc<Inbox<P>>,
    epoll: OwnedFd,
    clock: Clock,
    sockets: ProgramSockets,
    site: Site,
    program: P,
    scratch: Vec<u8>,
    is_done: Option<Sender<()>>,
}

impl<P: GatewayProgram> Loop<P> {
    fn run(&mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut changed = false;
        loop {
            match self.take_orders() {
                None => return,
                Some(any) => changed |= any,
            }
            let now = self.clock.now();
            if self.site.next_wake().is_some_and(|at| at <= now) {
                self.view().site_is_due();
                changed = true;
            }
            if changed || self.program.next_wake().is_some_and(|at| at <= now) {
                changed = false;
                self.poll();
            }
            let next = [self.program.next_wake(), self.site.next_wake()].into_iter().flatten().min();
            let wait = next.map_or(SLEEP_MAX, |at| at.since(self.clock.now())).min(SLEEP_MAX);
            let timeout = rustix::time::Timespec {
                tv_sec: (wait.ns / 1_000_000_000) as i64,
                tv_nsec: (wait.ns % 1_000_000_000) as i64,
            };
            events.clear();
            if epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)).is_err() {
                continue; // interrupted
            }
            let (mut intercepted, mut admitted, mut looked_up, mut bare) = (false, false, false, false);
            for event in &events {
                let data = event.data.u64();
                match data {
                    token::WAKE => drop(rustix::io::read(&self.inbox.wake, &mut [0u8; 8])),
                    token::LOG => intercepted = true,
                    token::LISTENER => admitted = true,
                    token::RESOLVER => looked_up = true,
                    token::RULES => bare = true,
                    token::LINE => changed = true,
                    _ => {
                        let (id, mut view) = (SocketId(data as u32), self.view());
                        if !view.lookup_goes_on(id) {
                            view.note_change(id);
                        }
                        changed = true;
                    }
                }
            }
            if bare {
                self.view().rules_are_gone();
            }
            if intercepted {
                self.view().take_intercepted();
            }
            if admitted {
                self.view().accept_admitted();
            }
            if looked_up {
                self.view().take_looked_up();
            }
            changed |= intercepted || admitted || looked_up || bare;
        }
    }

    /// Obeys what waits in the inbox: whether anything was done. `None`: quit.
    fn take_orders(&mut self) -> Option<bool> {
        let orders = self.inbox.orders.lock().as_mut().map(std::mem::take);
        let mut any = false;
        for order in orders.unwrap_or_default() {
            match order {
                Order::Do(work) => {
                    work(&mut self.program, &mut self.site);
                    any = true;
                }
                Order::Quit => {
                    if any {
                        self.poll();
                    }
                    return None;
                }
            }
        }
        Some(any)
    }

    fn poll(&mut self) {
        let now = self.clock.now();
        let Loop { program, epoll, clock, sockets, site, scratch, .. } = self;
        program
            .poll(now, &mut GatewayView { sockets: SocketsView { own: sockets, epoll, clock: *clock, scratch }, site });
        if self.program.is_done()
            && let Some(is_done) = self.is_done.take()
        {
            let _ = is_done.send(());
        }
    }

    fn view(&mut self) -> GatewayView<'_> {
        let Loop { epoll, clock, sockets, site, scratch, .. } = self;
        GatewayView { sockets: SocketsView { own: sockets, epoll, clock: *clock, scratch }, site }
    }
}
