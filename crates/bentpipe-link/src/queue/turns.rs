//! The order of flows in deficit round robin with new flows first (RFC 8290 §4.2).

use std::collections::VecDeque;

/// Flows with packets, by number, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Those that have just become busy.
    new: VecDeque<u32>,
    /// The others.
    old: VecDeque<u32>,
}

impl Turns {
    /// A flow becomes busy.
    #[inline]
    pub fn add(&mut self, flow: usize) {
        self.new.push_back(flow as u32);
    }

    /// The flow whose turn it is.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.new.front().or(self.old.front()).map(|flow| *flow as usize)
    }

    /// The turn of the first flow is over; its next one is after all others.
    #[inline]
    pub fn rotate(&mut self) {
        if let Some(flow) = self.new.pop_front().or_else(|| self.old.pop_front()) {
            self.old.push_back(flow);
        }
    }

    /// The first flow has no packets left. A new one has another turn as one of the others, so that it cannot become new
    /// again at once; one of the others leaves. `true`: it left.
    #[inline]
    pub fn end_first(&mut self) -> bool {
        match self.new.pop_front() {
            Some(flow) => {
                self.old.push_back(flow);
                false
            }
            None => self.old.pop_front().is_some(),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.new.iter().chain(&self.old).map(|flow| *flow as usize)
    }
}
