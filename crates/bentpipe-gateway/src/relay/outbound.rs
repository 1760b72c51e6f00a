//! Socket → stream.

use super::class::Meter;
use super::credit::BASE;
use super::frame::{Credit, DATA_MAX, HEADER_MAX, HEADROOM, Kind, UNIT, cost, put_header};
use super::{Site, Waiting};
use crate::compression::{Packed, Packer};
use crate::satellite::{StreamError, StreamId};
use bentpipe_net::socket::{Received, SocketError, SocketId};
use bentpipe_net::time::{Duration, Instant};

/// Least bytes to take from a socket at once, though the stream has less room: a packet's worth.
const LEAST: usize = 1400;
/// Blocks of at least this length that become much shorter are gathered: whoever sends so much at once waits for no answer
/// to every piece.
const GATHERED_FROM: usize = 4096;
/// How long they wait for others, at most: little next to any round trip over a satellite.
const GATHERED_FOR: Duration = Duration::from_millis(10);
/// Most bytes by which a packed frame exceeds its content, in addition to 1/256 of that ([`PACKED_MAX`](super::frame::PACKED_MAX)).
const PACKED_EXCESS: u64 = 128 + HEADER_MAX as u64;

/// Why a direction cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    /// The site's side ended abruptly.
    Socket(SocketError),
    /// The other gateway reads no more, or the stream is gone.
    Stream(StreamError),
}

/// Data from the site to the other gateway.
pub(crate) struct Outbound {
    /// Framed bytes that the satellite side did not take yet. But for a packet's worth that is gathered, nothing is read
    /// from the socket before they are gone, so that at most one frame waits here and a full link closes the client's window.
    waiting: Waiting,
    /// Until then `waiting` is kept back, for more to come in one packet with it.
    gathers_until: Option<Instant>,
    /// The end frame has been framed.
    ended: bool,
    /// The stream's end has been given to the satellite side.
    finished: bool,
    /// Compresses, if the other side keeps room to unpack.
    packer: Option<Packer>,
    meter: Meter,
    /// Bytes of frames that the other side still has room for.
    credit: u64,
}

impl Outbound {
    pub(crate) fn new(meter: Meter) -> Outbound {
        Outbound {
            waiting: Waiting::default(),
            gathers_until: None,
            ended: false,
            finished: false,
            packer: None,
            meter,
            credit: BASE,
        }
    }

    /// The other side has room for more.
    pub(crate) fn grant(&mut self, units: u32) {
        self.credit = self.credit.saturating_add(u64::from(units) * UNIT);
    }

    /// Gives back what goes beyond [`BASE`].
    pub(crate) fn return_credit(&mut self, site: &mut Site<'_>, stream: StreamId) {
        let units = u32::try_from(self.credit.saturating_sub(BASE) / UNIT).unwrap_or(Credit::MOST).min(Credit::MOST);
        if units > 0 && !self.finished {
            self.credit -= u64::from(units) * UNIT;
            site.satellite.signal(site.now, stream, Credit::Return(units).word());
        }
    }

    /// Most bytes of data whose frame the credit is enough for, however it is packed.
    fn affordable(&self) -> usize {
        let most = self.credit.saturating_sub(self.credit / 256 + 1 + PACKED_EXCESS);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// The other side keeps room to unpack.
    pub(crate) fn may_pack(&mut self) {
        self.packer = Some(Packer::new());
    }

    /// When what is kept back goes out, if nothing follows it.
    pub(crate) fn gathers_until(&self) -> Option<Instant> {
        self.gathers_until
    }

    /// Everything, and the end, has been given to the satellite side.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The site has ended its direction, and everything it said was taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes held.
    pub(crate) fn buffered(&self) -> usize {
        self.waiting.buffered()
    }

    /// Frames to go before anything of the socket's.
    pub(crate) fn put(&mut self, frames: &[u8]) {
        self.waiting.push(frames);
    }

    /// Data to go as if the socket had given them (at most [`DATA_MAX`] at once).
    pub(crate) fn put_data(&mut self, data: &[u8]) {
        for chunk in data.chunks(DATA_MAX) {
            let mut header = Vec::with_capacity(HEADER_MAX);
            put_header(Kind::Data, chunk.len(), &mut header);
            self.credit = self.credit.saturating_sub((header.len() + chunk.len()) as u64);
            self.waiting.push(&header);
            self.waiting.push(chunk);
        }
    }

    /// Drops waiting data and resets the stream unless it has ended.
    pub(crate) fn reset(&mut self, site: &mut Site<'_>, stream: StreamId, code: u32) {
        self.forget(site);
        self.waiting = Waiting::default();
        self.gathers_until = None;
        if !std::mem::replace(&mut self.finished, true) {
            site.satellite.reset(site.now, stream, code);
        }
    }

    /// Gives memory of compression back.
    pub(crate) fn forget(&mut self, site: &mut Site<'_>) {
        if let Some(packer) = self.packer.take() {
            site.shared.contexts.count(packer.has_context(), false);
        }
    }

    /// Gives the satellite side what waits. `false`: it has no room; it will say when it has.
    pub(crate) fn flush(&mut self, site: &mut Site<'_>, stream: StreamId) -> Result<bool, Broken> {
        self.gathers_until = None;
        while !self.waiting.is_empty() {
            let taken = site.satellite.write(site.now, stream, self.waiting.rest()).map_err(Broken::Stream)?;
            if taken == 0 {
                return Ok(false);
            }
            site.shared.metrics.bytes_sent += taken as u64;
            self.waiting.advance(taken);
        }
        Ok(true)
    }

    /// Ends the stream once everything is out. `false`: not yet.
    pub(crate) fn finish(&mut self, site: &mut Site<'_>, stream: StreamId) -> Result<bool, Broken> {
        if self.flush(site, stream)? && !std::mem::replace(&mut self.finished, true) {
            site.satellite.finish(site.now, stream);
        }
        Ok(self.finished)
    }

    /// Moves what the socket has, as far as the satellite side has room and the other side has given credit.
    pub(crate) fn work(&mut self, site: &mut Site<'_>, socket: SocketId, stream: StreamId) -> Result<(), Broken> {
        loop {
            let affordable = self.affordable();
            let gathers = self.gathers_until.is_some_and(|until| until > site.now) && affordable >= LEAST;
            if !gathers && !self.flush(site, stream)? {
                return Ok(());
            }
            if self.ended {
                self.finish(site, stream)?;
                return Ok(());
            }
            if affordable < LEAST {
                return Ok(());
            }
            let urgent = site.sockets.next_is_urgent(socket);
            let room = site.satellite.room(stream).saturating_sub(HEADER_MAX);
            let most = match (urgent, site.shared.is_full()) {
                (true, _) => 1,
                (false, true) => LEAST,
                (false, false) => room.clamp(LEAST, DATA_MAX).min(affordable),
            };
            let buffer = &mut site.shared.taken[HEADROOM..HEADROOM + most];
            match site.sockets.receive(socket, buffer).map_err(Broken::Socket)? {
                Received::Bytes(count) => self.send(site, stream, count, urgent)?,
                Received::Nothing => return Ok(()),
                Received::End => {
                    self.forget(site);
                    let mut end = Vec::with_capacity(HEADER_MAX);
                    put_header(Kind::End, 0, &mut end);
                    self.put(&end);
                    self.ended = true;
                    self.gathers_until = None;
                }
            }
        }
    }

    /// Frames the `count` bytes that were taken and gives them to the satellite side.
    fn send(&mut self, site: &mut Site<'_>, stream: StreamId, count: usize, urgent: bool) -> Result<(), Broken> {
        let shared = &mut *site.shared;
        shared.metrics.bytes_taken += count as u64;
        if let Some(class) = self.meter.note(&shared.policy, site.now, count) {
            site.satellite.set_class(stream, class);
        }
        let mut header = Vec::with_capacity(HEADROOM);
        let mut packed = Packed::No;
        if urgent {
            put_header(Kind::Urgent, 1, &mut header);
        } else {
            if let Some(packer) = &mut self.packer {
                shared.packed.clear();
                shared.packed.resize(HEADROOM, 0);
                let plain = &shared.taken[HEADROOM..HEADROOM + count];
                let had = packer.has_context();
                packed = packer.pack(plain, shared.contexts.has_room(), &mut shared.trial, &mut shared.packed);
                shared.contexts.count(had, packer.has_context());
            }
            match packed {
                Packed::Yes => {
                    let length = shared.packed.len() - HEADROOM;
                    shared.metrics.compressed_from += count as u64;
                    shared.metrics.compressed_to += length as u64;
                    put_header(Kind::Packed, length, &mut header);
                }
                Packed::No => put_header(Kind::Data, count, &mut header),
                Packed::Never => {
                    self.packer = None;
                    put_header(Kind::Plain, 0, &mut header);
                    put_header(Kind::Data, count, &mut header);
                }
            }
        }
        let buffer = match packed {
            Packed::Yes => &mut shared.packed[..],
            _ => &mut shared.taken[..HEADROOM + count],
        };
        let start = HEADROOM - header.len();
        buffer[start..HEADROOM].copy_from_slice(&header);
        let frame = &buffer[start..];
        let free = usize::from(packed == Packed::Never);
        let cost = if packed == Packed::Yes { cost(frame.len(), count) } else { frame.len() - free };
        self.credit = self.credit.saturating_sub(cost as u64);
        let gathered = self.waiting.rest().len() + frame.len();
        if packed == Packed::Yes && count >= GATHERED_FROM && gathered < LEAST {
            self.waiting.push(frame);
            self.gathers_until.get_or_insert(site.now + GATHERED_FOR);
            return Ok(());
        }
        if !self.waiting.is_empty() {
            self.waiting.push(frame);
            self.gathers_until = None;
            return Ok(());
        }
        let taken = site.satellite.write(site.now, stream, frame).map_err(Broken::Stream)?;
        shared.metrics.bytes_sent += taken as u64;
        if taken < frame.len() {
            self.waiting.push(&frame[taken..]);
        }
        Ok(())
    }
}
