//! Answers to whoever is not of the pair: they get a small part of the link, and only while the pair needs none of it.
//!
//! Anybody can have a hub answer: by a version that it does not speak (RFC 9000 §6), a connection that it does not know
//! (§10.3), a call while others are under way (§8.1.2). All these answers may be left out.

use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Of the rate, answers get this part while the pair is connected.
const SHARE: u64 = 20;
/// And this while it is not: the other gateway may be among those who call.
const SHARE_APART: u64 = 2;
/// The share that an idle time saves up.
const SAVED: Duration = Duration::from_secs(2);
/// Answers that may wait; more are not given.
const REPLIES_MAX: usize = 16;

/// Answers that wait for the link.
#[derive(Debug, Default)]
pub(super) struct UnauthenticatedPeers {
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    /// From when on the share allows for another answer.
    from: Instant,
    /// Where the other gateway was last: who calls from there may be it, and is answered first.
    known: Option<IpAddr>,
}

impl UnauthenticatedPeers {
    /// The other gateway has proved that it is at this address.
    pub(super) fn set_known(&mut self, address: SocketAddr) {
        self.known = Some(address.ip());
    }

    /// The other gateway was at this address last, if at another port perhaps.
    pub(super) fn is_known(&self, address: SocketAddr) -> bool {
        self.known == Some(address.ip())
    }

    /// An answer, if there is room for it.
    pub(super) fn push(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if self.is_known(to) {
            self.replies.truncate(REPLIES_MAX - 1);
            self.replies.push_front((to, bytes));
        } else if self.replies.len() < REPLIES_MAX {
            self.replies.push_back((to, bytes));
        }
    }

    /// When the next answer may leave. `None`: none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.replies.is_empty()).then_some(self.from)
    }

    /// The next answer, if it is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        if self.due()? > now {
            return None;
        }
        self.replies.pop_front()
    }

    /// An answer of so many bits on the wire left; `rate`: all that the link carries for the pair.
    pub(super) fn on_sent(&mut self, now: Instant, bits: u64, rate: u64, connected: bool) {
        let part = if connected { SHARE } else { SHARE_APART };
        let saved = Instant { ns: now.ns.saturating_sub(SAVED.ns) };
        self.from = self.from.max(saved) + BitRate::from_bps((rate / part).max(1)).time_for_bits(bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_get_their_share_and_no_more() {
        let to = "192.0.2.1:1".parse().unwrap();
        let mut sent = [0; 2];
        for (connected, sent) in [true, false].into_iter().zip(&mut sent) {
            let mut unauthenticated_peers = UnauthenticatedPeers::default();
            for ms in 0..100_000 {
                let now = Instant::ZERO + Duration::from_millis(ms);
                unauthenticated_peers.push(to, vec![0; 42]);
                while unauthenticated_peers.take(now).is_some() {
                    unauthenticated_peers.on_sent(now, 560, 64_000, connected);
                    *sent += 560;
                }
            }
        }
        // A hundred seconds, two saved, and the last answer.
        assert!((320_000..=327_000).contains(&sent[0]), "{sent:?}");
        assert!((3_200_000..=3_265_000).contains(&sent[1]), "{sent:?}");
    }

    #[test]
    fn few_answers_wait() {
        let to = "192.0.2.1:1".parse().unwrap();
        let mut unauthenticated_peers = UnauthenticatedPeers::default();
        (0..100).for_each(|_| unauthenticated_peers.push(to, vec![0; 42]));
        assert_eq!(std::iter::from_fn(|| unauthenticated_peers.take(Instant::ZERO)).count(), REPLIES_MAX);
        assert_eq!(unauthenticated_peers.due(), None);
        (0..100).for_each(|_| unauthenticated_peers.push(to, vec![0; 42]));
        let other = "198.51.100.1:2".parse().unwrap();
        unauthenticated_peers.set_known("198.51.100.1:1".parse().unwrap());
        unauthenticated_peers.push(other, vec![1; 42]);
        assert_eq!(
            unauthenticated_peers.take(Instant::ZERO),
            Some((other, vec![1; 42])),
            "the other gateway's address goes first"
        );
        assert_eq!(std::iter::from_fn(|| unauthenticated_peers.take(Instant::ZERO)).count(), REPLIES_MAX - 1);
    }
}
