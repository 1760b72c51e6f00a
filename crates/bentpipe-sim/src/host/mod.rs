//! A simulated site: interfaces, transport, and the programs that use them.
//!
//! A packet's way in: [`ip`] (addresses, forwarding, bridging, fragments) → `stack` (which connection or socket) →
//! [`crate::tcp`] → ready queue of programs, which works its `sockets` at once. What that sends leaves in
//! [`Node::poll_transmit`].

mod gateway_sockets;
mod interceptor;
pub mod ip;
mod socket_table;
mod sockets;
mod stack;

use crate::tcp::Connection;
use crate::tcp::settings::Settings;
use crate::view::ConnectionView;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::datagram::Datagram;
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::line::LineEvent;
use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::seed::Seed;
use bentpipe_net::socket::Program;
use bentpipe_net::time::Instant;
use gateway_sockets::GatewayView;
use interceptor::Interceptor;
pub use interceptor::{GatewayPlace, LineOrder, ModelLine};
use ip::Ip;
use socket_table::SocketTable;
use sockets::View;
use stack::Stack;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;

/// A site with its programs: those of workloads (`P`), and at most one gateway (`G`).
#[derive(Debug)]
pub struct Host<P, G = Infallible> {
    stack: Stack,
    programs: Vec<Option<Running<P, G>>>,
    /// Programs by the time at which they want to be woken; entries may be out of date.
    wakes: BinaryHeap<Reverse<(Instant, u32)>>,
    /// Empty; its room is used again.
    ready: Vec<u32>,
    /// Programs that became done and were not asked for yet.
    became_done: Vec<u32>,
}

#[derive(Debug)]
struct Running<P, G> {
    program: Hosted<P, G>,
    table: SocketTable,
    scheduled: Instant,
    was_done: bool,
}

/// A program of a site.
#[derive(Debug)]
enum Hosted<P, G> {
    Program(P),
    Gateway(G),
}

impl<P: Program, G: GatewayProgram> Hosted<P, G> {
    fn next_wake(&self) -> Option<Instant> {
        match self {
            Hosted::Program(program) => program.next_wake(),
            Hosted::Gateway(gateway) => gateway.next_wake(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Hosted::Program(program) => program.is_done(),
            Hosted::Gateway(gateway) => gateway.is_done(),
        }
    }
}

/// Polls of one program at one time, after which the driver goes on with other events before it polls again.
const POLLS_MAX: u32 = 1000;

impl<P: Program, G: GatewayProgram> Host<P, G> {
    /// A host without programs.
    #[must_use]
    pub fn new(ip: Ip, settings: Settings, seed: Seed) -> Host<P, G> {
        Host {
            stack: Stack::new(ip, settings, seed),
            programs: Vec::new(),
            wakes: BinaryHeap::new(),
            ready: Vec::new(),
            became_done: Vec::new(),
        }
    }

    /// Starts the gateway of this site, which has no other; it is polled at once.
    pub fn start_gateway(&mut self, now: Instant, gateway: G, place: GatewayPlace) -> u32 {
        self.stack.gateway = Some(Box::new(Interceptor::new(self.programs.len() as u32, place)));
        self.stack.ip.show_passing();
        self.add(now, Hosted::Gateway(gateway))
    }

    /// What the gateway asks of its line, since the last call.
    pub fn take_line_order(&mut self) -> Option<LineOrder> {
        self.stack.gateway.as_mut()?.line.order.take()
    }

    /// The line has changed: the gateway is polled at once. `up`: packets can flow now.
    pub fn on_line(&mut self, now: Instant, event: LineEvent, up: bool) {
        let Some(gateway) = &mut self.stack.gateway else { return };
        gateway.line_up = up;
        gateway.line.events.push_back(event);
        let program = gateway.program;
        self.poll(now, program);
        self.work(now);
    }

    /// The line that the gateway dials.
    #[must_use]
    pub fn line(&self) -> Option<&ModelLine> {
        self.stack.gateway.as_ref().filter(|gateway| gateway.place.dials).map(|gateway| &gateway.line)
    }

    /// Starts a program; it is polled at once.
    pub fn start(&mut self, now: Instant, program: P) -> u32 {
        self.add(now, Hosted::Program(program))
    }

    fn add(&mut self, now: Instant, program: Hosted<P, G>) -> u32 {
        let number = self.programs.len() as u32;
        self.programs.push(Some(Running {
            program,
            table: SocketTable::default(),
            scheduled: Instant::FAR,
            was_done: false,
        }));
        self.poll(now, number);
        self.work(now);
        number
    }

    /// A program that runs.
    #[must_use]
    pub fn program(&self, number: u32) -> Option<&P> {
        match &self.programs.get(number as usize)?.as_ref()?.program {
            Hosted::Program(program) => Some(program),
            Hosted::Gateway(_) => None,
        }
    }

    /// A gateway that runs.
    #[must_use]
    pub fn gateway(&self, number: u32) -> Option<&G> {
        match &self.programs.get(number as usize)?.as_ref()?.program {
            Hosted::Program(_) => None,
            Hosted::Gateway(gateway) => Some(gateway),
        }
    }

    /// Ends a program: its sockets are closed as at a process's end. `None`: there was none, or it was the gateway.
    pub fn stop(&mut self, now: Instant, number: u32) -> Option<P> {
        let mut running = self.programs.get_mut(number as usize)?.take()?;
        View { now, program: number, table: &mut running.table, stack: &mut self.stack }.close_all();
        self.work(now);
        match running.program {
            Hosted::Program(program) => Some(program),
            Hosted::Gateway(_) => None,
        }
    }

    /// Evens out with `shared` the free list of datagrams.
    #[inline]
    #[allow(clippy::vec_box)] // the allocations are what is reused
    pub fn share_free_lists(&mut self, shared: &mut Vec<Box<Datagram>>) {
        self.stack.share_free_lists(shared);
    }

    /// True if a program has become done since the last call of [`Host::take_done`].
    #[must_use]
    #[inline]
    pub fn has_done(&self) -> bool {
        !self.became_done.is_empty()
    }

    /// Programs that have become done since the last call.
    pub fn take_done(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.became_done.drain(..)
    }

    /// Connections that are over, as they were at their end, in the order in which they ended.
    #[must_use]
    pub fn ended_connections(&self) -> &[ConnectionView] {
        &self.stack.ended
    }

    /// Connections that are not over.
    pub fn open_connections(&self) -> impl Iterator<Item = &Connection> {
        self.stack.connections.iter().flatten().map(|slot| &slot.connection)
    }

    /// Lets a program do whatever it can.
    fn poll(&mut self, now: Instant, number: u32) {
        let Some(Some(running)) = self.programs.get_mut(number as usize) else { return };
        let mut wake = None;
        for _ in 0..POLLS_MAX {
            let mut view = View { now, program: number, table: &mut running.table, stack: &mut self.stack };
            match &mut running.program {
                Hosted::Program(program) => program.poll(now, &mut view),
                Hosted::Gateway(gateway) => gateway.poll(now, &mut GatewayView { view }),
            }
            let stack = &mut self.stack;
            running.table.take_touched(|connection| {
                stack.with(now, connection, |connection, output| connection.flush(output));
            });
            wake = running.program.next_wake();
            if wake.is_none_or(|at| at > now) {
                break;
            }
        }
        if let Some(at) = wake
            && at < running.scheduled
        {
            running.scheduled = at;
            self.wakes.push(Reverse((at, number)));
        }
        if !running.was_done && running.program.is_done() {
            running.was_done = true;
            self.became_done.push(number);
        }
    }

    /// Ready programs work, until nothing is left for now.
    fn work(&mut self, now: Instant) {
        loop {
            if self.stack.has_output() {
                self.stack.send_out(now);
            }
            match self.stack.ready[..] {
                [] => {
                    self.stack.schedule();
                    return;
                }
                [number] => {
                    self.stack.ready.clear();
                    self.poll(now, number);
                    continue;
                }
                _ => {}
            }
            let mut ready = std::mem::replace(&mut self.stack.ready, std::mem::take(&mut self.ready));
            for number in ready.drain(..) {
                self.poll(now, number);
            }
            self.ready = ready;
        }
    }
}

impl<P: Program, G: GatewayProgram> Node<DatagramPacket> for Host<P, G> {
    #[inline]
    fn receive(&mut self, now: Instant, port: Port, packet: DatagramPacket) {
        if let Some(up) = self.stack.ip.receive(now, port.0, packet) {
            self.stack.take_up(now, up);
            self.work(now);
        }
    }

    fn wake(&mut self, now: Instant) {
        if self.stack.next_wake() <= now {
            self.stack.wake(now);
        }
        while let Some(Reverse((at, number))) = self.wakes.peek().copied()
            && at <= now
        {
            self.wakes.pop();
            let Some(Some(running)) = self.programs.get_mut(number as usize) else { continue };
            if running.scheduled != at {
                continue;
            }
            running.scheduled = Instant::FAR;
            match running.program.next_wake() {
                Some(due) if due > now => {
                    running.scheduled = due;
                    self.wakes.push(Reverse((due, number)));
                }
                Some(_) => self.poll(now, number),
                None => {}
            }
        }
        self.work(now);
    }

    #[inline]
    fn poll_transmit(&mut self, _now: Instant) -> Option<(Port, DatagramPacket)> {
        self.stack.ip.take()
    }

    #[inline]
    fn next_wake(&self) -> Instant {
        let program = self.wakes.peek().map_or(Instant::FAR, |Reverse((at, _))| *at);
        self.stack.next_wake().min(program)
    }
}
