//! Wakes a thread that waits for one of several things.

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// An event counter of the kernel (eventfd), readable once it was woken until it is cleared. Clones are the same counter.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// One that nobody has woken.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes it readable.
    pub fn wake(&self) {
        // A full counter is readable already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable until the next wake.
    pub fn clear(&self) {
        // Empty already: nothing to clear.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of the descriptors is readable or its other end is gone, for `limit` at most; which are. A signal ends the
/// wait early.
pub fn wait_for_any(descriptors: &[BorrowedFd<'_>], limit: Duration) -> Vec<bool> {
    let mut watched: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit =
        Timespec { tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: limit.subsec_nanos().into() };
    match rustix::event::poll(&mut watched, Some(&limit)) {
        Ok(_) => watched.iter().map(|watched| !watched.revents().is_empty()).collect(),
        Err(_) => vec![false; descriptors.len()],
    }
}
