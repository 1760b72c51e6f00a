//! Stream → socket.

use super::credit::Grant;
use super::frame::{Credit, DATA_MAX, Kind, Malformed, Opening, Reply, UNIT, cost, take_header};
use super::outbound::Broken;
use super::{Site, Waiting};
use crate::compression::Unpacker;
use crate::satellite::{Read, StreamError, StreamId};
use bentpipe_net::socket::SocketId;

/// Bytes to read at once before the opening is complete.
const OPENING_READ: usize = 320;

/// Bytes to read at once while the total of memory is used up.
const LEAST: usize = 2048;

/// The other side has sent more than it may.
pub(crate) const OVERRUN: Malformed = Malformed("more data than there was credit for");

/// Why this direction stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// Nothing more has arrived.
    Starved,
    /// The socket is full.
    Full,
    /// The other side's answer to the opening has arrived.
    Replied(Reply),
    /// The end has been given to the socket, and nothing follows.
    Over,
}

/// Why this direction cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// One of the two ends broke.
    Broken(Broken),
    /// The stream stopped without an end.
    Short,
    /// The other gateway sent what is not the protocol.
    Malformed(Malformed),
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Fault {
        Fault::Malformed(malformed)
    }
}

/// Data from the other gateway for the site.
#[derive(Default)]
pub(crate) struct Inbound {
    /// Bytes of the stream that have not been looked at.
    arrived: Waiting,
    /// Of a data frame's payload, what has not passed yet.
    left: usize,
    /// Bytes for the socket that were unpacked, or are our own (a proxy's reply).
    unpacked: Waiting,
    /// An urgent byte for the socket.
    urgent: Option<u8>,
    /// The end frame has come.
    ended: bool,
    /// The end has been given to the socket, and the stream is at its end.
    over: bool,
    /// The first frame must be a reply.
    reply_due: bool,
    /// Room to unpack was promised; its context once it is used.
    unpacker: Option<Unpacker>,
    grant: Grant,
}

impl Inbound {
    /// The first frame must be a reply. `promised`: the other side may pack.
    pub(crate) fn await_reply(&mut self, promised: bool) {
        self.reply_due = true;
        self.unpacker = promised.then(Unpacker::new);
    }

    /// Bytes held.
    pub(crate) fn buffered(&self) -> usize {
        self.arrived.buffered() + self.unpacked.buffered()
    }

    /// The first credit, in units: part of the opening or the reply.
    pub(crate) fn first_credit(&mut self, site: &mut Site<'_>, stream: StreamId) -> u32 {
        let trip = site.satellite.round_trip_bytes();
        let units = self.grant.open(site.now, trip, &mut site.shared.budget);
        site.satellite.set_limit(stream, self.grant.limit());
        units.unwrap_or(0)
    }

    /// Gives the other side the credit that is due, and holds it to what it has.
    pub(crate) fn renew_credit(&mut self, site: &mut Site<'_>, stream: StreamId) {
        let unread = site.satellite.unread(stream);
        let trip = site.satellite.round_trip_bytes();
        let budget = &mut site.shared.budget;
        if unread.complete {
            self.grant.note_complete(unread.all + self.arrived.rest().len() as u64, budget);
        }
        self.grant.account(budget);
        if let Some(units) = self.grant.renew(trip, unread.ready, budget) {
            site.satellite.signal(site.now, stream, Credit::Grant(units).word());
        }
        site.satellite.set_limit(stream, self.grant.limit());
    }

    /// The other side gives credit back.
    pub(crate) fn take_back(&mut self, site: &mut Site<'_>, stream: StreamId, units: u32) -> Result<(), Malformed> {
        self.grant.take_back(u64::from(units) * UNIT, &mut site.shared.budget)?;
        site.satellite.set_limit(stream, self.grant.limit());
        Ok(())
    }

    /// True if the other side is to be asked for credit that it has not used for long.
    pub(crate) fn asks_back(&mut self, site: &Site<'_>, stream: StreamId) -> bool {
        self.grant.asks_back(site.now, site.satellite.unread(stream))
    }

    /// The connection is over: gives all shared memory back.
    pub(crate) fn close(&mut self, site: &mut Site<'_>) {
        self.forget(site);
        self.grant.close(&mut site.shared.budget);
    }

    fn read(&mut self, site: &mut Site<'_>, stream: StreamId, most: usize) -> Result<Read, Fault> {
        let read = site.satellite.read(site.now, stream, &mut self.arrived.bytes, most);
        if let Ok(Read::Bytes(count)) = read {
            site.shared.metrics.bytes_received += count as u64;
        }
        match read {
            Err(StreamError::Overrun) => Err(OVERRUN.into()),
            other => other.map_err(|error| Fault::Broken(Broken::Stream(error))),
        }
    }

    /// Bytes for the socket before anything of the stream's.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.unpacked.push(bytes);
    }

    /// Gives memory of compression back.
    pub(crate) fn forget(&mut self, site: &mut Site<'_>) {
        if self.unpacker.take().is_some() {
            site.shared.contexts.release();
        }
    }

    /// Drops waiting data and asks the other side to stop unless it has ended.
    pub(crate) fn stop(&mut self, site: &mut Site<'_>, stream: StreamId, code: u32) {
        self.forget(site);
        self.arrived = Waiting::default();
        self.unpacked = Waiting::default();
        self.urgent = None;
        if !std::mem::replace(&mut self.over, true) {
            site.satellite.stop(site.now, stream, code);
        }
    }

    /// Reads as far as the opening that begins the stream; what follows stays.
    pub(crate) fn opening(&mut self, site: &mut Site<'_>, stream: StreamId) -> Result<Option<Opening>, Fault> {
        loop {
            let rest = self.arrived.rest();
            if let Some((kind, length, own)) = take_header(rest)? {
                if kind != Kind::Opening {
                    return Err(Malformed("a stream without an opening").into());
                }
                if let Some(payload) = rest.get(own..own + length) {
                    let opening = Opening::take(payload)?;
                    self.arrived.advance(own + length);
                    return Ok(Some(opening));
                }
            }
            match self.read(site, stream, OPENING_READ)? {
                Read::Bytes(_) => {}
                Read::Nothing => return Ok(None),
                Read::End => return Err(Fault::Short),
            }
        }
    }

    /// The other side may pack: room to unpack was promised.
    pub(crate) fn promise(&mut self) {
        self.unpacker = Some(Unpacker::new());
    }

    /// Gives the socket the bytes that are our own. `false`: it is full.
    pub(crate) fn flush_own(&mut self, site: &mut Site<'_>, socket: SocketId) -> Result<bool, Fault> {
        while !self.unpacked.is_empty() {
            let sent = site.sockets.send(socket, self.unpacked.rest()).map_err(broken)?;
            if sent == 0 {
                return Ok(false);
            }
            site.shared.metrics.bytes_given += sent as u64;
            self.unpacked.advance(sent);
        }
        Ok(true)
    }

    /// Moves what has arrived, as far as the socket has room. Without a socket, goes as far as the reply.
    pub(crate) fn work(
        &mut self,
        site: &mut Site<'_>,
        socket: Option<SocketId>,
        stream: StreamId,
    ) -> Result<Blocked, Fault> {
        if self.over {
            return Ok(Blocked::Over);
        }
        // The shared buffers serve while nothing stays behind.
        if self.arrived.buffered() == 0 {
            self.arrived.bytes = std::mem::take(&mut site.shared.arrived);
        }
        if self.unpacked.buffered() == 0 {
            self.unpacked.bytes = std::mem::take(&mut site.shared.unpacked);
        }
        let halt = self.pass(site, socket, stream);
        settle(&mut self.arrived, &mut site.shared.arrived);
        settle(&mut self.unpacked, &mut site.shared.unpacked);
        halt
    }

    fn pass(&mut self, site: &mut Site<'_>, socket: Option<SocketId>, stream: StreamId) -> Result<Blocked, Fault> {
        loop {
            if let Some(socket) = socket
                && !self.give(site, socket)?
            {
                return Ok(Blocked::Full);
            }
            match self.peek(site, socket)? {
                Peeked::Again => continue,
                Peeked::Replied(reply) => return Ok(Blocked::Replied(reply)),
                Peeked::More => {}
            }
            if self.arrived.at > 0 {
                self.arrived.bytes.drain(..self.arrived.at);
                self.arrived.at = 0;
            }
            let buffered = self.arrived.bytes.len();
            let most = match site.shared.is_full() {
                true => LEAST,
                false => DATA_MAX,
            };
            match self.read(site, stream, most)? {
                Read::Bytes(_) => {}
                Read::Nothing => return Ok(Blocked::Starved),
                Read::End if self.ended && buffered == 0 => {
                    self.over = true;
                    self.forget(site);
                    return Ok(Blocked::Over);
                }
                Read::End => return Err(Fault::Short),
            }
        }
    }

    /// Gives the socket what is ready. `false`: it is full.
    fn give(&mut self, site: &mut Site<'_>, socket: SocketId) -> Result<bool, Fault> {
        if !self.flush_own_kept(site, socket)? {
            return Ok(false);
        }
        if let Some(byte) = self.urgent {
            if !site.sockets.send_urgent(socket, byte).map_err(broken)? {
                return Ok(false);
            }
            site.shared.metrics.bytes_given += 1;
            self.urgent = None;
        }
        while self.left > 0 && !self.arrived.is_empty() {
            let rest = self.arrived.rest();
            let sent = site.sockets.send(socket, &rest[..rest.len().min(self.left)]).map_err(broken)?;
            if sent == 0 {
                return Ok(false);
            }
            site.shared.metrics.bytes_given += sent as u64;
            self.arrived.at += sent;
            self.left -= sent;
            self.grant.note_consumed(site.now, sent)?;
        }
        Ok(true)
    }

    /// As [`Inbound::flush_own`], but keeps the buffer for the next frame.
    fn flush_own_kept(&mut self, site: &mut Site<'_>, socket: SocketId) -> Result<bool, Fault> {
        while !self.unpacked.is_empty() {
            let sent = site.sockets.send(socket, self.unpacked.rest()).map_err(broken)?;
            if sent == 0 {
                return Ok(false);
            }
            site.shared.metrics.bytes_given += sent as u64;
            self.unpacked.at += sent;
        }
        self.unpacked.bytes.clear();
        self.unpacked.at = 0;
        Ok(true)
    }

    /// Looks at the next frame.
    fn peek(&mut self, site: &mut Site<'_>, socket: Option<SocketId>) -> Result<Peeked, Fault> {
        if self.left > 0 {
            return Ok(Peeked::More);
        }
        let rest = self.arrived.rest();
        let Some((kind, length, own)) = take_header(rest)? else { return Ok(Peeked::More) };
        if self.ended {
            return Err(Malformed("a frame after the end").into());
        }
        if self.reply_due != (kind == Kind::Reply) {
            return Err(Malformed("a frame before the reply, or a second reply").into());
        }
        if kind == Kind::Data {
            self.arrived.at += own;
            self.left = length;
            self.grant.note_consumed(site.now, own)?;
            return Ok(Peeked::Again);
        }
        let Some(payload) = rest.get(own..own + length) else { return Ok(Peeked::More) };
        match kind {
            Kind::Data => {}
            Kind::Opening => return Err(Malformed("an opening in the middle of a stream").into()),
            Kind::Packed => {
                let unpacker = self.unpacker.as_mut().ok_or(Malformed("a packed frame that was not allowed"))?;
                let before = self.unpacked.bytes.len();
                unpacker.unpack(payload, &mut self.unpacked.bytes)?;
                let plain = self.unpacked.bytes.len() - before;
                self.grant.note_consumed(site.now, cost(own + length, plain))?;
            }
            Kind::Urgent => {
                self.urgent = Some(payload[0]);
                self.grant.note_consumed(site.now, own + length)?;
            }
            Kind::Reply => {
                let reply = Reply::take(payload)?;
                self.reply_due = false;
                self.arrived.at += own + length;
                return Ok(Peeked::Replied(reply));
            }
            Kind::Plain => self.forget(site),
            Kind::End => {
                self.ended = true;
                if let Some(socket) = socket {
                    site.sockets.finish(socket);
                }
            }
        }
        self.arrived.at += own + length;
        Ok(Peeked::Again)
    }
}

enum Peeked {
    /// Something was done; look again.
    Again,
    /// The frame is not complete.
    More,
    Replied(Reply),
}

/// Keeps what stays behind in as little memory as it needs, and gives the shared buffer back.
fn settle(waiting: &mut Waiting, shared: &mut Vec<u8>) {
    let rest = waiting.rest().to_vec();
    let mut bytes = std::mem::take(&mut waiting.bytes);
    bytes.clear();
    if bytes.capacity() > shared.capacity() {
        *shared = bytes;
    }
    *waiting = Waiting { bytes: rest, at: 0 };
}

fn broken(error: bentpipe_net::socket::SocketError) -> Fault {
    Fault::Broken(Broken::Socket(error))
}
