//! Bytes that wait for room in a socket: commands, replies, headers.

use bentpipe_net::socket::{SocketError, SocketId, Sockets};

/// A queue of bytes for one connection. Its owner stops producing while it is long.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands over what the socket takes; returns how many bytes that were.
    pub fn flush(&mut self, sockets: &mut dyn Sockets, socket: SocketId) -> Result<usize, SocketError> {
        if self.is_empty() {
            return Ok(0);
        }
        let taken = sockets.send(socket, &self.bytes[self.sent..])?;
        self.sent += taken;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
        Ok(taken)
    }
}
