//! Data of a gateway's own descriptors in epoll, apart from the program's sockets, whose numbers stay below.

pub(super) const WAKE: u64 = u64::MAX;
pub(super) const LOG: u64 = u64::MAX - 1;
pub(super) const LISTENER: u64 = u64::MAX - 2;
pub(super) const RESOLVER: u64 = u64::MAX - 3;
pub(super) const RULES: u64 = u64::MAX - 4;
pub(super) const LINE: u64 = u64::MAX - 5;
