//! A server's listening socket.

use bentpipe_net::socket::{SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};

/// Listens from its first use on and hands out connections.
#[derive(Debug)]
pub(crate) struct Acceptor {
    port: u16,
    listener: Option<SocketId>,
    failure: Option<String>,
    retry: Option<Instant>,
}

impl Acceptor {
    pub fn new(port: u16) -> Self {
        Acceptor { port, listener: None, failure: None, retry: None }
    }

    /// Listens and not failed.
    pub fn is_listening(&self) -> bool {
        self.listener.is_some()
    }

    /// Why it cannot listen.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The next waiting connection. The first call listens.
    pub fn accept(&mut self, now: Instant, sockets: &mut dyn Sockets) -> Option<SocketId> {
        if self.failure.is_some() {
            return None;
        }
        let listener = match self.listener {
            Some(listener) => listener,
            None => match sockets.listen(self.port) {
                Ok(listener) => *self.listener.insert(listener),
                Err(error) => {
                    self.failure = Some(format!("cannot listen on port {}: {error}", self.port));
                    return None;
                }
            },
        };
        self.retry = None;
        // A connection that failed before it was accepted (ECONNABORTED) must not hide those behind it; when the
        // process is out of descriptors every attempt fails, so try again later.
        for _ in 0..ACCEPT_ATTEMPTS {
            if let Ok(accepted) = sockets.accept(listener) {
                return accepted;
            }
        }
        self.retry = Some(now + ACCEPT_RETRY);
        None
    }

    /// When to poll though nothing happened.
    pub fn next_wake(&self) -> Option<Instant> {
        self.retry
    }

    pub fn close(&mut self, sockets: &mut dyn Sockets) {
        if let Some(listener) = self.listener.take() {
            sockets.close(listener);
        }
    }
}

const ACCEPT_ATTEMPTS: u32 = 8;
const ACCEPT_RETRY: Duration = Duration::from_secs(1);
