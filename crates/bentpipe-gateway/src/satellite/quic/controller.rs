//! The stand-in for a congestion controller: a gate that we open and close, and a log of the fate of packets.
//!
//! The sender knows the link's rate and [`super::pacer`] sends at it; a lost packet is a bit error until
//! [`super::rate`] finds otherwise. So the library asks this controller for a window and gets "open" or "closed", and
//! tells it about acknowledgements and losses, which it hands on.

use parking_lot::{Mutex, MutexGuard};
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant as StdInstant;

/// Above `u32::MAX`, where the library's own pacer is off (quinn-proto `pacing.rs`).
const OPEN: u64 = u64::MAX / 4;
/// Below any packet: only acknowledgements and loss probes pass.
const CLOSED: u64 = 1;
/// Notes kept when nobody fetches them; one acknowledgement covers fewer packets.
const NOTES_MAX: usize = 1 << 17;

/// The fate of packets, in the order in which it was learnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// A packet that asked for an acknowledgement has arrived; when it was sent, and its bytes.
    Acked(StdInstant, u64),
    /// So many bytes are lost.
    Lost(u64),
}

/// Shared between a connection's controller and its owner.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    closed: AtomicBool,
    in_flight: AtomicU64,
    fates: Mutex<Vec<Fate>>,
}

impl InFlight {
    /// Lets packets that ask for an acknowledgement pass, or not.
    pub(super) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Ordering::Relaxed);
    }

    /// Bytes sent of which nothing is known yet, at least about: acknowledgements count among them until the next one
    /// arrives.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// A packet that asks for no acknowledgement is not in flight.
    pub(super) fn forget(&self, bytes: u64) {
        let left = self.in_flight().saturating_sub(bytes);
        self.in_flight.store(left, Ordering::Relaxed);
    }

    /// Moves what was learnt since the last call to `into`.
    pub(super) fn take(&self, into: &mut Vec<Fate>) {
        into.append(&mut self.notes());
    }

    fn notes(&self) -> MutexGuard<'_, Vec<Fate>> {
        self.fates.lock()
    }

    fn note(&self, fate: Fate) {
        let mut notes = self.notes();
        if notes.len() < NOTES_MAX {
            notes.push(fate);
        }
    }
}

/// Makes controllers that share one gate.
pub(super) struct InertFactory(pub(super) Arc<InFlight>);

impl ControllerFactory for InertFactory {
    fn build(self: Arc<Self>, _: StdInstant, _: u16) -> Box<dyn Controller> {
        Box::new(Inert(Arc::clone(&self.0)))
    }
}

struct Inert(Arc<InFlight>);

impl Controller for Inert {
    fn on_sent(&mut self, _: StdInstant, bytes: u64, _: u64) {
        self.0.in_flight.fetch_add(bytes, Ordering::Relaxed);
    }

    fn on_ack(&mut self, _: StdInstant, sent: StdInstant, bytes: u64, _: bool, _: &RttEstimator) {
        self.0.note(Fate::Acked(sent, bytes));
    }

    fn on_end_acks(&mut self, _: StdInstant, in_flight: u64, _: bool, _: Option<u64>) {
        self.0.in_flight.store(in_flight, Ordering::Relaxed);
    }

    fn on_congestion_event(&mut self, _: StdInstant, _: StdInstant, _: bool, lost_bytes: u64) {
        self.0.note(Fate::Lost(lost_bytes));
    }

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        if self.0.closed.load(Ordering::Relaxed) { CLOSED } else { OPEN }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Inert(Arc::clone(&self.0)))
    }

    fn initial_window(&self) -> u64 {
        OPEN
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
