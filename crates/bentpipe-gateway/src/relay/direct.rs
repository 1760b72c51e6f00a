//! Socket → socket: a proxy's client that is connected from here, because the other gateway cannot be reached.

use super::frame::DATA_MAX;
use super::{Site, Waiting};
use bentpipe_net::socket::{Received, SocketError, SocketId};

/// Both ways between a proxy's client and its server.
#[derive(Debug)]
pub(crate) struct Direct {
    /// The server's end.
    pub(crate) server: SocketId,
    up: Half,
    down: Half,
}

/// One way.
#[derive(Debug, Default)]
struct Half {
    /// Taken, and not yet given: nothing is taken before it has gone, so at most [`DATA_MAX`] bytes wait.
    waiting: Waiting,
    urgent: Option<u8>,
    ended: bool,
    finished: bool,
}

impl Direct {
    /// `first`: what the client said after its request.
    pub(crate) fn new(server: SocketId, first: &[u8]) -> Direct {
        let mut up = Half::default();
        up.waiting.push(first);
        Direct { server, up, down: Half::default() }
    }

    /// Bytes held.
    pub(crate) fn buffered(&self) -> usize {
        self.up.waiting.buffered() + self.down.waiting.buffered()
    }

    /// Moves what can be moved; `true`: both ways are at their end.
    pub(crate) fn work(&mut self, site: &mut Site<'_>, client: SocketId) -> Result<bool, SocketError> {
        self.up.work(site, client, self.server)?;
        self.down.work(site, self.server, client)?;
        Ok(self.up.finished && self.down.finished)
    }
}

impl Half {
    fn work(&mut self, site: &mut Site<'_>, from: SocketId, to: SocketId) -> Result<(), SocketError> {
        while self.give(site, to)? && !self.finished {
            if self.ended {
                site.sockets.finish(to);
                self.finished = true;
                return Ok(());
            }
            let urgent = site.sockets.next_is_urgent(from);
            let most = if urgent { 1 } else { DATA_MAX };
            let buffer = &mut site.shared.taken[..most];
            match site.sockets.receive(from, buffer)? {
                Received::Bytes(_) if urgent => self.urgent = Some(buffer[0]),
                Received::Bytes(count) => {
                    let sent = site.sockets.send(to, &buffer[..count])?;
                    self.waiting.push(&buffer[sent..count]);
                }
                Received::Nothing => return Ok(()),
                Received::End => self.ended = true,
            }
        }
        Ok(())
    }

    /// Gives what waits. `false`: the socket is full.
    fn give(&mut self, site: &mut Site<'_>, to: SocketId) -> Result<bool, SocketError> {
        while !self.waiting.is_empty() {
            let sent = site.sockets.send(to, self.waiting.rest())?;
            if sent == 0 {
                return Ok(false);
            }
            self.waiting.advance(sent);
        }
        if let Some(byte) = self.urgent {
            if !site.sockets.send_urgent(to, byte)? {
                return Ok(false);
            }
            self.urgent = None;
        }
        Ok(true)
    }
}
