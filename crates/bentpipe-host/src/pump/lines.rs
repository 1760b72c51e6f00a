//! Lines of the emulator: a gateway's thread dials a link's circuit, which lives in the pump's.

use super::{Pump, PumpControl};
use crate::line::{LineDevice, LineEventSender, LineEvents};
use bentpipe_link::circuit::{Circuit, LineState};
use bentpipe_net::headers::Headers;
use bentpipe_net::line::{LedgerError, Line, LineEvent, LineFailure, Unwanted};
use bentpipe_net::time::Instant;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that found a line down, by [`Unwanted::ALL`].
type Counts = [AtomicU64; Unwanted::ALL.len()];

/// The circuit of a link that runs, as the gateway that dials it has it. Its ledger is kept nowhere: the link's bill has its calls.
pub struct EmulatedLine {
    control: Arc<PumpControl>,
    link: usize,
    events: LineEvents,
    counts: Arc<Counts>,
}

/// A line that a gateway dials, in the pump.
pub(super) struct WatchedLine {
    link: usize,
    state: LineState,
    events: LineEventSender,
    counts: Arc<Counts>,
}

/// What a gateway asks of the pump.
pub(super) enum Order {
    Watch(WatchedLine),
    Dial(usize),
    HangUp(usize),
}

impl PumpControl {
    /// Has the circuit of link number `link` set up and ended by what is returned, and by nothing else.
    pub fn line(self: &Arc<PumpControl>, link: usize) -> io::Result<EmulatedLine> {
        let events = LineEvents::new()?;
        let counts = Arc::new(Counts::default());
        let watched =
            WatchedLine { link, state: LineState::Down, events: events.sender(), counts: Arc::clone(&counts) };
        self.order(Order::Watch(watched));
        Ok(EmulatedLine { control: Arc::clone(self), link, events, counts })
    }

    fn order(&self, order: Order) {
        self.orders.lock().push(order);
        self.requested.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Line for EmulatedLine {
    fn record(&mut self, _: &str) -> Result<(), LedgerError> {
        Ok(())
    }

    fn dial(&mut self, _: u64) {
        self.control.order(Order::Dial(self.link));
    }

    fn hang_up(&mut self) {
        self.control.order(Order::HangUp(self.link));
    }

    fn poll_event(&mut self) -> Option<LineEvent> {
        self.events.poll()
    }

    fn unwanted(&self, what: Unwanted) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }
}

impl LineDevice for EmulatedLine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn as_line(&mut self) -> &mut dyn Line {
        self
    }
}

impl Pump {
    /// Does what gateways have asked of their lines.
    pub(super) fn obey(&mut self, now: Instant) {
        let orders = std::mem::take(&mut *self.control.orders.lock());
        for order in orders {
            let link = match &order {
                Order::Watch(line) => line.link,
                Order::Dial(link) | Order::HangUp(link) => *link,
            };
            let Some(state) = self.links.get_mut(link) else { continue };
            // A frame of before that was not seen yet enters now.
            state.driven_to = state.driven_to.max(now);
            match order {
                Order::Watch(line) => {
                    state.link.set_commanded();
                    self.lines.push(line);
                }
                Order::Dial(_) => state.link.dial(now),
                Order::HangUp(_) => state.link.hang_up(now),
            }
        }
        self.tell_lines();
    }

    /// Tells gateways how their lines have changed.
    pub(super) fn tell_lines(&mut self) {
        for line in &mut self.lines {
            let Some(state) = self.links[line.link].link.circuit().map(Circuit::state) else { continue };
            let event = match (line.state, state) {
                (LineState::Dialling | LineState::Down, LineState::Up) => Some(LineEvent::Up),
                (LineState::Dialling, LineState::Down) => Some(LineEvent::Failed(LineFailure::Refused)),
                (LineState::Up, LineState::Down | LineState::Dialling) => Some(LineEvent::Down),
                _ => None,
            };
            line.state = state;
            if let Some(event) = event {
                line.events.send(event);
            }
        }
    }

    /// A packet with these headers comes from the terminal: counted if it finds the line down.
    pub(super) fn count_unwanted(&self, link: usize, headers: Option<Headers>) {
        let line = self.lines.iter().find(|line| line.link == link && line.state != LineState::Up);
        if let Some(line) = line {
            let what = headers.map_or(Unwanted::Other, |headers| Unwanted::of_flow(&headers.flow));
            line.counts[what as usize].fetch_add(1, Ordering::Relaxed);
        }
    }
}
