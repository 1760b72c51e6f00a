//! The last packets of an exchange once more.
//!
//! A loss in the middle of a transfer is seen by what comes after it. Behind the last packets nothing comes: their loss
//! waits for a time-out, and the library then only asks what has arrived (quinn-proto `spaces.rs`, `maybe_queue_probe`): data
//! go again a round trip later. The last few packets of a short exchange are therefore sent a second time, verbatim; the
//! receiver drops what it has. On a link that loses packets that happens as soon as nothing follows, unless it would take
//! long; on every link when the answer is overdue. Long transfers, whose tail costs little in proportion, do without.

use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Sent a second time.
const PACKETS: usize = 3;
/// More packets in a round trip than this are no short exchange.
const SHORT: usize = 12;
/// Nothing has followed for this long.
const QUIET: Duration = Duration::from_millis(5);

/// The last packets.
#[derive(Debug, Default)]
pub(super) struct Tail {
    recent: VecDeque<(SocketAddr, Vec<u8>)>,
    /// When packets were sent, within a round trip.
    times: VecDeque<Instant>,
    last: Instant,
    /// The answer is overdue: all of them go now.
    overdue: bool,
}

impl Tail {
    /// A packet with stream data left.
    pub(super) fn on_sent(&mut self, now: Instant, round_trip: Duration, to: SocketAddr, datagram: &[u8]) {
        self.last = now;
        self.overdue = false;
        self.times.push_back(now);
        while self.times.len() > SHORT + 1 || self.times.front().is_some_and(|sent| *sent + round_trip < now) {
            self.times.pop_front();
        }
        if self.times.len() > SHORT {
            self.recent.clear();
            return;
        }
        if self.recent.len() == PACKETS {
            self.recent.pop_front();
        }
        self.recent.push_back((to, datagram.to_vec()));
    }

    /// When the next is due; `packet`: what one takes on the link.
    pub(super) fn due(&self, packet: Duration) -> Option<Instant> {
        (!self.recent.is_empty()).then(|| self.last + QUIET.max(packet + packet))
    }

    /// The next, if it is due.
    pub(super) fn take(&mut self, now: Instant, packet: Duration) -> Option<(SocketAddr, Vec<u8>)> {
        if self.due(packet)? > now {
            return None;
        }
        self.recent.pop_front()
    }

    /// When the last of what is kept was sent, unless it goes again now.
    pub(super) fn since(&self) -> Option<Instant> {
        (!self.recent.is_empty() && !self.overdue).then_some(self.last)
    }

    /// A packet sent then has arrived; what else was lost before it, the library finds out.
    pub(super) fn on_acked(&mut self, sent: Instant) {
        if sent >= self.last {
            self.clear();
        }
    }

    /// No answer has come in the time that one takes: what is kept goes again now.
    pub(super) fn set_overdue(&mut self) {
        self.overdue = !self.recent.is_empty();
    }

    /// Some are to go again now.
    pub(super) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// The next of those whose answer is overdue.
    pub(super) fn take_overdue(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let next = if self.overdue { self.recent.pop_front() } else { None };
        self.overdue = !self.recent.is_empty() && next.is_some();
        next
    }

    /// Forgets them: everything has arrived.
    pub(super) fn clear(&mut self) {
        self.recent.clear();
        self.overdue = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(600);
    const PACKET: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_short_exchange_ends_twice_and_a_long_one_once() {
        let to = "10.0.0.1:1".parse().unwrap();
        let mut tail = Tail::default();
        for i in 0..5u8 {
            tail.on_sent(at(u64::from(i)), TRIP, to, &[i]);
        }
        assert_eq!(tail.take(at(8), PACKET), None, "something may follow");
        let again: Vec<u8> = std::iter::from_fn(|| tail.take(at(9), PACKET)).map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(again, [2, 3, 4]);
        assert_eq!(tail.due(PACKET), None);
        for i in 0..20u8 {
            tail.on_sent(at(10 + u64::from(i)), TRIP, to, &[i]);
        }
        assert_eq!(tail.due(PACKET), None, "a long transfer");
        tail.on_sent(at(2000), TRIP, to, &[1]);
        assert_eq!(tail.due(PACKET), Some(at(2005)), "a request later");
        assert_eq!(tail.take_overdue(), None);
        tail.set_overdue();
        assert_eq!(tail.take_overdue(), Some((to, vec![1])), "whatever the link is like");
        assert_eq!((tail.take_overdue(), tail.is_overdue()), (None, false));
    }
}
