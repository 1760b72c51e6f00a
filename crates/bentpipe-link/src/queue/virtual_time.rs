//! Virtual time of fair queueing: bytes for a unit of weight.

use std::cmp::Ordering;

/// A point in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub(super) struct VirtualTime(pub f64);

impl VirtualTime {
    /// When a packet that starts now is over, at the speed of its weight.
    pub fn after(self, bytes: u32, weight: u64) -> VirtualTime {
        VirtualTime(self.0 + f64::from(bytes) / weight as f64)
    }
}

impl Eq for VirtualTime {}

impl PartialOrd for VirtualTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VirtualTime {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The first packet of a queue, by its finish; those that came first go first among equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    pub finish: VirtualTime,
    pub order: u64,
    pub queue: u32,
}
