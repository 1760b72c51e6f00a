//! Outgoing datagrams, in boxes that are reused through a free list.

use bentpipe_net::datagram::{Body, Datagram, Payload};
use std::collections::VecDeque;

/// Datagrams to send, in order; where each was made it stays on its way. The boxes of those that came make room for those
/// that go.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<Box<Datagram>>,
    #[allow(clippy::vec_box)] // the allocations are what is reused
    spare: Vec<Box<Datagram>>,
}

/// Allocations that sites hand over at a time when one has too many and another too few; how many are too few (an event
/// rarely makes more packets), the most that a site keeps, and the most that wait between sites.
const BATCH: usize = 32;
const FEW: usize = 8;
const SPARE_MAX: usize = 2 * BATCH;
const SHARED_MAX: usize = 1024;

impl Outbox {
    /// Adds one.
    #[inline(always)]
    pub fn push(&mut self, datagram: Datagram) {
        let datagram = match self.spare.pop() {
            Some(mut spare) => {
                // What it holds has nothing to drop ([`Outbox::recycle`]).
                std::mem::forget(std::mem::replace(&mut *spare, datagram));
                spare
            }
            None => Box::new(datagram),
        };
        self.waiting.push_back(datagram);
    }

    /// Takes the oldest.
    #[inline]
    pub fn pop(&mut self) -> Option<Box<Datagram>> {
        self.waiting.pop_front()
    }

    /// True if none waits.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A datagram that was worked on; its box may serve again.
    #[inline]
    pub fn recycle(&mut self, datagram: Box<Datagram>) {
        // A box that is kept holds nothing else.
        let bare = matches!(&datagram.body, Body::Tcp(segment)
            if segment.sack.is_none() && !matches!(segment.payload, Payload::Bytes { .. }));
        if bare && self.spare.len() < SPARE_MAX {
            self.spare.push(datagram);
        }
    }

    /// Gives allocations to `shared` when there are too many, takes some when there are too few.
    #[inline]
    #[allow(clippy::vec_box)]
    pub fn balance(&mut self, shared: &mut Vec<Box<Datagram>>) {
        if self.spare.len() >= SPARE_MAX {
            let given = self.spare.drain(BATCH..);
            shared.extend(given);
            shared.truncate(SHARED_MAX);
        } else if self.spare.len() < FEW && !shared.is_empty() {
            let kept = shared.len().saturating_sub(BATCH);
            self.spare.extend(shared.drain(kept..));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::datagram::Segment;

    fn datagram(number: u16) -> Datagram {
        let segment = Segment { source_port: number, ..Segment::default() };
        Datagram::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Body::Tcp(segment))
    }

    /// A sender makes two segments for each acknowledgement that comes, whose box it has back only afterwards.
    #[test]
    fn a_sender_of_more_than_it_receives_has_the_receivers_free_list() {
        let (mut sender, mut receiver, mut shared) = (Outbox::default(), Outbox::default(), Vec::new());
        let mut made = 0;
        for number in 0..10_000 {
            for _ in 0..2 {
                made += u32::from(sender.spare.is_empty());
                sender.push(datagram(number));
                receiver.recycle(sender.pop().unwrap());
                receiver.balance(&mut shared);
            }
            receiver.push(datagram(number));
            sender.recycle(receiver.pop().unwrap());
            sender.balance(&mut shared);
        }
        assert!(made <= 2 * SPARE_MAX as u32, "{made} allocations");
    }

    #[test]
    fn free_lists_go_round_between_two_sites_and_carry_only_what_was_put_in() {
        let (mut sender, mut receiver, mut shared) = (Outbox::default(), Outbox::default(), Vec::new());
        let mut most = 0;
        for number in 0..10_000 {
            sender.push(datagram(number));
            let arrived = sender.pop().unwrap();
            assert_eq!(*arrived, datagram(number));
            receiver.recycle(arrived);
            receiver.balance(&mut shared);
            sender.balance(&mut shared);
            most = most.max(sender.spare.len() + receiver.spare.len() + shared.len());
        }
        assert!(sender.is_empty() && most <= 2 * SPARE_MAX, "{most} allocations");
    }

    #[test]
    fn a_box_that_is_kept_holds_no_data() {
        let mut outbox = Outbox::default();
        let segment = Segment { payload: Payload::from_vec(vec![1; 10]), ..Segment::default() };
        outbox.recycle(Box::new(Datagram { body: Body::Tcp(segment), ..datagram(1) }));
        assert!(outbox.spare.is_empty());
        (0..1000).for_each(|_| outbox.recycle(Box::new(datagram(1))));
        assert_eq!(outbox.spare.len(), SPARE_MAX);
    }
}
