//! The table of intercepted connection requests: one for the kernel's side, the simulator and tests.

use crate::interception::{Request, RequestId};
use crate::socket::SocketId;
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Client and server of a request.
pub type Endpoints = (SocketAddr, SocketAddr);

/// Bypassed connections that are remembered; the oldest is forgotten first (Linux: nf_conntrack_max of a small machine).
const BYPASSED_MAX: usize = 65_536;

/// Intercepted connection requests and the decisions about them. `T` is the SYN as the site keeps it.
///
/// A request waits until [`HeldRequests::take`]. Where a client may repeat its SYN after the decision, the decision is put
/// back with [`HeldRequests::answered`] or [`HeldRequests::bypassed`]. Every entry has a time at which it is forgotten.
#[derive(Debug)]
pub struct HeldRequests<T> {
    entries: BTreeMap<RequestId, Entry<T>>,
    by_ends: BTreeMap<Endpoints, RequestId>,
    expiries: BTreeSet<(Instant, RequestId)>,
    /// Requests that [`HeldRequests::next_request`] has not given yet.
    unseen: VecDeque<RequestId>,
    /// Bypassed connections in the order of the decisions; some may have been forgotten already.
    bypassed: VecDeque<RequestId>,
    bypassed_count: usize,
    held_max: usize,
    next_id: u64,
}

#[derive(Debug)]
struct Entry<T> {
    request: Request,
    state: State<T>,
    until: Instant,
}

#[derive(Debug)]
enum State<T> {
    Waiting(T),
    Answered(SocketId),
    Bypassed,
}

/// What [`HeldRequests::hold`] made of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold<T> {
    /// It waits: newly, or in the place of an earlier SYN of the same connection.
    Waits,
    /// Its request has been answered: this SYN belongs to the handshake.
    Answered(T),
    /// Its connection bypasses the gateway.
    Bypassed(T),
    /// There is no room: the SYN is lost, and the client repeats it.
    Full,
}

impl<T> HeldRequests<T> {
    /// An empty table with room for so many requests that wait or are answered.
    #[must_use]
    pub fn new(held_max: usize) -> HeldRequests<T> {
        HeldRequests {
            entries: BTreeMap::new(),
            by_ends: BTreeMap::new(),
            expiries: BTreeSet::new(),
            unseen: VecDeque::new(),
            bypassed: VecDeque::new(),
            bypassed_count: 0,
            held_max,
            next_id: 0,
        }
    }

    /// Holds a SYN until `until`. A repeated one replaces the first, as it has the newer timestamp or belongs to a newer
    /// attempt, but not its time limit.
    pub fn hold(&mut self, ends: Endpoints, traffic_class: u8, syn: T, until: Instant) -> Hold<T> {
        let known = self.by_ends.get(&ends).and_then(|id| self.entries.get_mut(id));
        if let Some(entry) = known {
            entry.request.traffic_class = traffic_class;
            return match &mut entry.state {
                State::Waiting(first) => {
                    *first = syn;
                    Hold::Waits
                }
                State::Answered(_) => Hold::Answered(syn),
                State::Bypassed => Hold::Bypassed(syn),
            };
        }
        if self.entries.len() - self.bypassed_count >= self.held_max {
            return Hold::Full;
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.put(Request { id, client: ends.0, server: ends.1, traffic_class }, State::Waiting(syn), until);
        self.unseen.push_back(id);
        Hold::Waits
    }

    /// The next request that waits and was not given before.
    pub fn next_request(&mut self) -> Option<Request> {
        while let Some(id) = self.unseen.pop_front() {
            if let Some(Entry { request, state: State::Waiting(_), .. }) = self.entries.get(&id) {
                return Some(*request);
            }
        }
        None
    }

    /// Takes a request that waits out of the table.
    pub fn take(&mut self, id: RequestId) -> Option<(Request, T)> {
        if !matches!(self.entries.get(&id)?.state, State::Waiting(_)) {
            return None;
        }
        let Entry { request, state, .. } = self.remove(id)?;
        match state {
            State::Waiting(syn) => Some((request, syn)),
            State::Answered(_) | State::Bypassed => None,
        }
    }

    /// Remembers until `until` that a request that was taken is answered, and as which socket.
    pub fn answered(&mut self, request: Request, socket: SocketId, until: Instant) {
        self.put(request, State::Answered(socket), until);
    }

    /// Remembers until `until` that the connection of a request that was taken bypasses the gateway.
    pub fn bypassed(&mut self, request: Request, until: Instant) {
        self.put(request, State::Bypassed, until);
        self.bypassed.push_back(request.id);
        self.bypassed_count += 1;
        while self.bypassed.len() > BYPASSED_MAX {
            if let Some(oldest) = self.bypassed.pop_front() {
                self.remove(oldest);
            }
        }
    }

    /// True if the connection between these ends bypasses the gateway.
    #[must_use]
    pub fn is_bypassed(&self, ends: Endpoints) -> bool {
        self.entry(ends).is_some_and(|entry| matches!(entry.state, State::Bypassed))
    }

    /// The socket that stands for an answered request between these ends.
    #[must_use]
    pub fn answered_as(&self, ends: Endpoints) -> Option<SocketId> {
        match self.entry(ends)?.state {
            State::Answered(socket) => Some(socket),
            State::Waiting(_) | State::Bypassed => None,
        }
    }

    /// Forgets an answered request, whose handshake is over, or its socket closed.
    pub fn forget_answered(&mut self, ends: Endpoints) -> Option<Request> {
        self.answered_as(ends)?;
        let id = *self.by_ends.get(&ends)?;
        self.remove(id).map(|entry| entry.request)
    }

    /// Ends of answered requests.
    pub fn handshakes(&self) -> impl Iterator<Item = Endpoints> {
        let is_answered = |entry: &&Entry<T>| matches!(entry.state, State::Answered(_));
        self.entries.values().filter(is_answered).map(|entry| (entry.request.client, entry.request.server))
    }

    /// Forgets the entries whose time has come; the sockets of answered ones.
    pub fn expire(&mut self, now: Instant) -> Vec<SocketId> {
        let mut sockets = Vec::new();
        while let Some((_, id)) = self.expiries.first().copied().filter(|(at, _)| *at <= now) {
            if let Some(Entry { state: State::Answered(socket), .. }) = self.remove(id) {
                sockets.push(socket);
            }
        }
        sockets
    }

    /// When [`HeldRequests::expire`] has something to do.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }

    fn entry(&self, ends: Endpoints) -> Option<&Entry<T>> {
        self.entries.get(self.by_ends.get(&ends)?)
    }

    fn put(&mut self, request: Request, state: State<T>, until: Instant) {
        self.by_ends.insert((request.client, request.server), request.id);
        self.expiries.insert((until, request.id));
        self.entries.insert(request.id, Entry { request, state, until });
    }

    fn remove(&mut self, id: RequestId) -> Option<Entry<T>> {
        let entry = self.entries.remove(&id)?;
        self.by_ends.remove(&(entry.request.client, entry.request.server));
        self.expiries.remove(&(entry.until, id));
        if matches!(entry.state, State::Bypassed) {
            self.bypassed_count -= 1;
            // Most are forgotten in their order.
            while self.bypassed.front().is_some_and(|first| !self.entries.contains_key(first)) {
                self.bypassed.pop_front();
            }
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn ends(client: u16) -> Endpoints {
        (([10, 0, 0, 1], client).into(), ([10, 1, 0, 1], 80).into())
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_repeated_syn_makes_no_second_request() {
        let mut table = HeldRequests::new(10);
        assert_eq!(table.hold(ends(1), 0, "first", at(10)), Hold::Waits);
        assert_eq!(table.hold(ends(1), 8, "second", at(20)), Hold::Waits);
        let request = table.next_request().unwrap();
        assert_eq!((request.traffic_class, table.next_request()), (8, None));
        assert_eq!(table.next_expiry(), Some(at(10)));
        assert_eq!(table.take(request.id), Some((request, "second")));
        assert_eq!((table.take(request.id), table.next_expiry()), (None, None));
        table.answered(request, SocketId(7), at(16));
        assert_eq!(table.hold(ends(1), 0, "third", at(30)), Hold::Answered("third"));
        assert_eq!((table.take(request.id), table.next_request()), (None, None));
        assert_eq!(table.handshakes().collect::<Vec<_>>(), [ends(1)]);
        assert_eq!(table.expire(at(16)), [SocketId(7)]);
        assert_eq!(table.answered_as(ends(1)), None);
    }

    #[test]
    fn room_is_for_what_waits_or_is_answered() {
        let mut table = HeldRequests::new(2);
        assert_eq!(table.hold(ends(1), 0, (), at(10)), Hold::Waits);
        assert_eq!(table.hold(ends(2), 0, (), at(10)), Hold::Waits);
        assert_eq!(table.hold(ends(3), 0, (), at(10)), Hold::Full);
        let (request, ()) = table.take(RequestId(0)).unwrap();
        table.bypassed(request, Instant::FAR);
        assert!(table.is_bypassed(ends(1)));
        assert_eq!(table.hold(ends(1), 0, (), at(10)), Hold::Bypassed(()));
        assert_eq!(table.hold(ends(3), 0, (), at(10)), Hold::Waits);
        assert_eq!(table.expire(at(10)), []);
        assert_eq!(table.next_request(), None, "all others have expired");
        assert!(table.is_bypassed(ends(1)));
    }

    #[test]
    fn the_oldest_bypassed_connection_is_forgotten_first() {
        let mut table = HeldRequests::new(1);
        for number in 0..=BYPASSED_MAX as u32 {
            let client = SocketAddr::from((number.to_be_bytes(), 1));
            table.hold((client, ends(1).1), 0, (), at(10));
            let request = table.next_request().unwrap();
            table.take(request.id);
            table.bypassed(request, at(10 + u64::from(number)));
        }
        let is_bypassed = |number: u32| table.is_bypassed((SocketAddr::from((number.to_be_bytes(), 1)), ends(1).1));
        assert!(!is_bypassed(0) && is_bypassed(1) && is_bypassed(BYPASSED_MAX as u32));
        assert_eq!(table.entries.len(), BYPASSED_MAX);
        table.expire(Instant::FAR);
        assert!(table.entries.is_empty() && table.bypassed.is_empty() && table.expiries.is_empty());
    }
}
