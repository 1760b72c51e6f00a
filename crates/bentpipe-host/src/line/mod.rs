//! Lines that a gateway of this machine dials: by a hook command ([`hook`]) or a modem
//! ([`modem`]), and the ledger of their calls on disk
//! ([`ledger`]).

pub mod hook;
pub mod ledger;
pub mod modem;
mod supervisor;
#[cfg(test)]
mod tests;

use bentpipe_net::line::{Line, LineEvent};
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A line of this machine.
pub trait LineDevice: Line + Send {
    /// Becomes readable when [`Line::poll_event`] may give something.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// The same as a [`Line`].
    fn as_line(&mut self) -> &mut dyn Line;
}

/// Events of a line on their way from a thread that watches it.
pub(crate) struct LineEvents {
    ready: Arc<OwnedFd>,
    sender: Sender<LineEvent>,
    events: Receiver<LineEvent>,
}

/// The sending end.
#[derive(Clone)]
pub(crate) struct LineEventSender {
    ready: Arc<OwnedFd>,
    sender: Sender<LineEvent>,
}

impl LineEvents {
    pub fn new() -> io::Result<LineEvents> {
        let ready = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, events) = channel();
        Ok(LineEvents { ready, sender, events })
    }

    pub fn sender(&self) -> LineEventSender {
        LineEventSender { ready: Arc::clone(&self.ready), sender: self.sender.clone() }
    }

    pub fn poll(&mut self) -> Option<LineEvent> {
        // Empty: it was read already.
        let _ = rustix::io::read(&*self.ready, &mut [0u8; 8]);
        self.events.try_recv().ok()
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl LineEventSender {
    pub fn send(&self, event: LineEvent) {
        // Nobody: the line is gone.
        if self.sender.send(event).is_ok() {
            let _ = rustix::io::write(&*self.ready, &1u64.to_ne_bytes());
        }
    }
}
