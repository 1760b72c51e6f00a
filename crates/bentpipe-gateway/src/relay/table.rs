//! The connections of a gateway, and the indices by which they are found.

use super::Site;
use super::connection::Connection;
use crate::satellite::StreamId;
use bentpipe_net::socket::SocketId;
use bentpipe_net::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Names a connection; rises with each.
pub(crate) type Key = u64;

/// Connections by key, socket, stream and deadline.
#[derive(Default)]
pub(crate) struct ConnectionTable {
    connections: BTreeMap<Key, Connection>,
    next_key: Key,
    by_socket: BTreeMap<SocketId, Key>,
    by_stream: BTreeMap<StreamId, Key>,
    /// Connections with something to do.
    ready: BTreeSet<Key>,
    /// Connections that wait for the pair or the far side.
    pending: BTreeSet<Key>,
    deadlines: BTreeSet<(Instant, Key)>,
}

/// What the indices know of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Indexed {
    sockets: [Option<SocketId>; 2],
    stream: Option<StreamId>,
    deadline: Option<Instant>,
    pending: bool,
}

impl Indexed {
    fn of(connection: &Connection) -> Indexed {
        Indexed {
            sockets: [connection.socket(), connection.other_socket()],
            stream: connection.stream(),
            deadline: connection.deadline(),
            pending: connection.is_pending(),
        }
    }
}

impl ConnectionTable {
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// All keys, in order.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.connections.keys().copied().collect()
    }

    /// Those with a stream, and how many of them are relayed.
    pub(crate) fn with_streams(&self) -> (Vec<Key>, usize) {
        let keys: Vec<Key> = self.by_stream.values().copied().collect();
        let relayed = keys.iter().filter(|key| self.connections[key].is_relayed()).count();
        (keys, relayed)
    }

    pub(crate) fn of_stream(&self, stream: StreamId) -> Option<Key> {
        self.by_stream.get(&stream).copied()
    }

    /// Adds a connection, which is ready.
    pub(crate) fn add(&mut self, connection: Connection) -> Key {
        let key = self.next_key;
        self.next_key += 1;
        self.reindex(key, Indexed::default(), Indexed::of(&connection));
        self.connections.insert(key, connection);
        self.ready.insert(key);
        key
    }

    /// Does `work` with a connection and keeps the indices in step with what it came to.
    pub(crate) fn with(&mut self, key: Key, site: &mut Site<'_>, work: impl FnOnce(&mut Connection, &mut Site<'_>)) {
        let Some(connection) = self.connections.get_mut(&key) else { return };
        let before = Indexed::of(connection);
        work(connection, site);
        if connection.is_gone() {
            self.connections.remove(&key);
            self.reindex(key, before, Indexed::default());
        } else {
            let after = Indexed::of(connection);
            self.reindex(key, before, after);
        }
    }

    fn reindex(&mut self, key: Key, before: Indexed, after: Indexed) {
        for (before, after) in before.sockets.into_iter().zip(after.sockets).filter(|(before, after)| before != after) {
            before.map(|socket| self.by_socket.remove(&socket));
            after.map(|socket| self.by_socket.insert(socket, key));
        }
        if before.stream != after.stream {
            before.stream.map(|stream| self.by_stream.remove(&stream));
            after.stream.map(|stream| self.by_stream.insert(stream, key));
        }
        if before.deadline != after.deadline {
            before.deadline.map(|at| self.deadlines.remove(&(at, key)));
            after.deadline.map(|at| self.deadlines.insert((at, key)));
        }
        if after.pending {
            self.pending.insert(key);
        } else {
            self.pending.remove(&key);
        }
    }

    /// A connection has something to do.
    pub(crate) fn mark(&mut self, key: Key) {
        self.ready.insert(key);
    }

    /// The connection of this socket has something to do, if there is one.
    pub(crate) fn mark_socket(&mut self, socket: SocketId) {
        self.ready.extend(self.by_socket.get(&socket));
    }

    /// The connection of this stream has something to do, if there is one.
    pub(crate) fn mark_stream(&mut self, stream: StreamId) {
        self.ready.extend(self.by_stream.get(&stream));
    }

    /// All that wait for the pair have something to do.
    pub(crate) fn mark_pending(&mut self) {
        self.ready.extend(&self.pending);
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Those with something to do, once.
    pub(crate) fn take_ready(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.ready)
    }

    /// Those that wait for the pair or the far side.
    pub(crate) fn pending(&self) -> Vec<Key> {
        self.pending.iter().copied().collect()
    }

    /// The next connection whose deadline has come, once.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Key> {
        let (at, key) = self.deadlines.first().copied().filter(|(at, _)| *at <= now)?;
        self.deadlines.remove(&(at, key));
        Some(key)
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}
