//! The last packets of an exchange once more.
//!
//! A loss in the middle of a transfer is seen by what comes after it. Behind the last packets nothing comes: their loss
//! waits for a time-out of more than a round trip. On a link that loses packets, the last few of a short exchange are
//! therefore sent a second time, verbatim, when nothing follows; the receiver drops what it has. Long transfers, whose
//! tail costs little in proportion, and links on which it would take long, do without.

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
}

impl Tail {
    /// A packet with stream data left.
    pub(super) fn on_sent(&mut self, now: Instant, round_trip: Duration, to: SocketAddr, datagram: &[u8]) {
        self.last = now;
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

    /// Forgets them: the path has proved good, or it would take too long.
    pub(super) fn clear(&mut self) {
        self.recent.clear();
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
    }
}
