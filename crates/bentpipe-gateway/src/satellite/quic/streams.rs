//! The streams of one connection: what waits to be sent, in what order it goes, and what has come, put in order.
//!
//! Bytes wait here, not in the library: it is given about one packet more than it can send at once, so that a stream that
//! has something urgent waits for one packet and not for what others wrote before. Classes go strictly in order; streams
//! of one class take turns.
//!
//! What comes is read from the library at once and out of order, and put in order here, for the library ends a connection
//! whose stream has more than 1024 gaps ("too many gaps in stream buffer", quinn-proto 0.11.19 `assembler.rs`), and that many
//! are in flight on a fast link that loses 3 %. So the library's windows hold nobody back; what may be unread of a stream
//! the relay says ([`Streams::set_limit`]), and who sends more loses the stream.

use super::control::{Control, NUMBER_BITS};
use super::settings::{OVERHEAD, Sizes};
use crate::satellite::{Class, DeclaredRates, Event, Read, StreamError, StreamId, UNREAD_FIRST, Unread};
use bytes::{Bytes, BytesMut};
use quinn_proto::{Connection, Dir, FinishError, ReadError, StreamEvent, VarInt, WriteError};
use std::collections::{BTreeMap, VecDeque};

/// The bits of [`NUMBER_BITS`].
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Code of the end of a stream that sent more than may be unread.
const OVERRUN: u32 = 5;
/// [`Class`]es.
const CLASSES: usize = 3;
/// Shorter pieces are copied together: kept as they are, each would hold the memory of the datagram that it came in.
const SMALL: usize = 700;
/// Bytes copied together before a piece of their own begins.
const GATHERED: usize = 16 << 10;
/// Gaps that a stream may have: so many, and one for each of these bytes of its limit. Each takes about 150 bytes of memory.
const GAPS: (usize, u64) = (64, 256);

/// The streams of one connection.
#[derive(Debug)]
pub(super) struct Streams {
    /// The connection's number, in every [`StreamId`].
    connection: u64,
    streams: BTreeMap<StreamId, Stream>,
    /// Streams of each class that have something for the library, in the order of their turns.
    turns: [VecDeque<StreamId>; CLASSES],
    /// Streams of each class that have bytes waiting.
    waiting: [usize; CLASSES],
    /// Bytes of each class given to the library and not yet seen leaving, about.
    unsent: [u64; CLASSES],
    /// Bytes that the library sends again, about.
    resend: u64,
    payload: u64,
    /// Packets are shorter than the library would make them: the link's are, or bit errors are frequent.
    short: bool,
    /// Bytes given to the library in one turn.
    turn: u64,
    /// Bytes that may wait here in all; shared by the streams of a class.
    room: usize,
    control: Control,
    /// Bytes given to the library, ever.
    written: u64,
    /// Bytes that wait here to be given to the library, all streams.
    queued: usize,
    /// Bytes that came and were not read, all streams; what the library still has is not known.
    unread: usize,
}

#[derive(Debug)]
struct Stream {
    class: Class,
    out: Outgoing,
    inc: Incoming,
}

#[derive(Debug, Default)]
struct Outgoing {
    buffer: BytesMut,
    /// The end comes after the buffer.
    finish: bool,
    /// It stands in `turns`.
    queued: bool,
    /// The other side's window is closed.
    blocked: bool,
    /// The writer was refused and waits for word.
    refused: bool,
    /// Nothing more can be written; why.
    over: Option<StreamError>,
    /// The library needs this direction no more.
    gone: bool,
}

#[derive(Debug, Default)]
struct Incoming {
    /// Bytes that may be here.
    limit: u64,
    /// In order, to be read.
    ready: VecDeque<Bytes>,
    /// After `ready`: small pieces.
    gathered: BytesMut,
    /// Of both.
    ready_bytes: usize,
    /// Came too early, by offset.
    parts: BTreeMap<u64, Bytes>,
    parts_bytes: usize,
    /// The offset after `ready`.
    next: u64,
    /// All bytes up to the end are here.
    complete: bool,
    /// The reader knows that there is something.
    announced: bool,
    /// Nothing more can be read; why.
    over: Option<StreamError>,
    /// The library has nothing more.
    gone: bool,
}

impl Streams {
    pub(super) fn new(connection: u64, sizes: &Sizes, rate: u64) -> Streams {
        let mut streams = Streams {
            connection,
            streams: BTreeMap::new(),
            turns: Default::default(),
            waiting: [0; CLASSES],
            unsent: [0; CLASSES],
            resend: 0,
            payload: sizes.payload,
            short: sizes.payload + OVERHEAD < sizes.datagram,
            turn: sizes.payload,
            room: 0,
            control: Control::default(),
            written: 0,
            queued: 0,
            unread: 0,
        };
        streams.set_rate(rate);
        streams
    }

    /// Sets the queue's size by the rate: a tenth of a second on a thin link, 32 kB on most, 12 ms on a fast one, which a
    /// late driver must be able to fill (`pacer.rs`).
    pub(super) fn set_rate(&mut self, rate: u64) {
        let bytes = |milliseconds: u64| u128::from(rate) * u128::from(milliseconds) / 8000;
        let thin = bytes(100).clamp(u128::from(3 * self.payload), 32 << 10);
        self.room = usize::try_from(thin.max(bytes(12)).min(4 << 20)).unwrap_or(4 << 20);
        // Larger pieces cost the library less; 4 ms are not noticed. But it would fill its packets with them.
        let large = u64::try_from(bytes(4)).unwrap_or(u64::MAX).clamp(self.payload, 16 << 10);
        self.turn = if self.short { self.payload } else { large };
    }

    fn id(&self, id: quinn_proto::StreamId) -> StreamId {
        StreamId(self.connection << NUMBER_BITS | VarInt::from(id).into_inner())
    }

    fn theirs(id: StreamId) -> Option<quinn_proto::StreamId> {
        VarInt::from_u64(id.0 & NUMBER_MASK).ok().map(quinn_proto::StreamId::from)
    }

    /// No stream is open.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Bytes of streams given to the library so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that wait here to be sent.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes that came and wait here to be read, those behind a gap included.
    pub(super) fn unread(&self) -> usize {
        self.unread
    }

    /// Something waits to be given to the library, or was given and has not left.
    pub(super) fn is_sending(&self) -> bool {
        self.control.is_waiting()
            || self.resend > 0
            || self.unsent.iter().any(|bytes| *bytes > 0)
            || self.turns.iter().any(|turn| !turn.is_empty())
    }

    /// Opens a stream.
    pub(super) fn open(&mut self, connection: &mut Connection, class: Class) -> Option<StreamId> {
        let number = connection.streams().open(Dir::Bi)?;
        Some(self.insert(connection, number, class))
    }

    fn insert(&mut self, connection: &mut Connection, number: quinn_proto::StreamId, class: Class) -> StreamId {
        let id = self.id(number);
        // Both fail only for a stream that is gone already, which then does nothing.
        let _ = connection.send_stream(number).set_priority(priority(class));
        let inc = Incoming { limit: UNREAD_FIRST, ..Incoming::default() };
        self.streams.insert(id, Stream { class, out: Outgoing::default(), inc });
        id
    }

    /// Moves a stream to another class.
    pub(super) fn set_class(&mut self, connection: &mut Connection, id: StreamId, class: Class) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.class == class {
            return;
        }
        let waits = usize::from(!stream.out.buffer.is_empty());
        self.waiting[stream.class as usize] -= waits;
        self.waiting[class as usize] += waits;
        if stream.out.queued {
            self.turns[stream.class as usize].retain(|other| *other != id);
            self.turns[class as usize].push_back(id);
        }
        stream.class = class;
        if let Some(number) = Self::theirs(id).filter(|_| !stream.out.gone) {
            let _ = connection.send_stream(number).set_priority(priority(class));
        }
    }

    /// Most bytes that one stream of `class` may have waiting.
    fn share(&self, class: Class) -> usize {
        let streams = self.waiting[class as usize].max(1);
        (self.room / streams).max(2 * self.payload as usize)
    }

    /// Bytes that `write` would take.
    pub(super) fn room(&self, id: StreamId) -> usize {
        let Some(stream) = self.streams.get(&id) else { return 0 };
        if stream.out.over.is_some() || stream.out.finish {
            return 0;
        }
        self.share(stream.class).saturating_sub(stream.out.buffer.len())
    }

    /// Takes bytes as far as there is room.
    pub(super) fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, StreamError> {
        let room = self.room(id);
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        if let Some(error) = stream.out.over {
            return Err(error);
        }
        if stream.out.finish {
            return Err(StreamError::Unknown);
        }
        let taken = room.min(data.len());
        if taken > 0 {
            if stream.out.buffer.is_empty() {
                self.waiting[stream.class as usize] += 1;
            }
            stream.out.buffer.extend_from_slice(&data[..taken]);
            self.queued += taken;
        }
        stream.out.refused |= taken < data.len();
        self.queue(id);
        Ok(taken)
    }

    /// No more will be written.
    pub(super) fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.out.over.is_none()
            && !stream.out.finish
        {
            stream.out.finish = true;
            self.queue(id);
        }
    }

    /// Gives the stream a turn if it has something for the library.
    fn queue(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let out = &mut stream.out;
        let has = !out.buffer.is_empty() || out.finish;
        if has && !out.queued && !out.blocked && !out.gone && out.over.is_none() {
            out.queued = true;
            self.turns[stream.class as usize].push_back(id);
        }
    }

    /// Ends our direction abruptly.
    pub(super) fn reset(&mut self, connection: &mut Connection, id: StreamId, code: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.out.gone
            && let Some(number) = Self::theirs(id)
        {
            let _ = connection.send_stream(number).reset(VarInt::from_u32(code));
        }
        self.end_sending(id, StreamError::Ended(code));
    }

    fn end_sending(&mut self, id: StreamId, why: StreamError) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.out.buffer.is_empty() {
            self.waiting[stream.class as usize] -= 1;
            self.queued -= stream.out.buffer.len();
            stream.out.buffer = BytesMut::new();
        }
        if stream.out.queued {
            stream.out.queued = false;
            self.turns[stream.class as usize].retain(|other| *other != id);
        }
        stream.out.over.get_or_insert(why);
        stream.out.gone = true;
        stream.out.finish = false;
        self.forget(id);
    }

    /// Asks the other side to send no more.
    pub(super) fn stop(&mut self, connection: &mut Connection, id: StreamId, code: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !stream.inc.gone
            && let Some(number) = Self::theirs(id)
        {
            let _ = connection.recv_stream(number).stop(VarInt::from_u32(code));
        }
        self.unread -= stream.inc.buffered();
        stream.inc = Incoming { over: Some(StreamError::Ended(code)), gone: true, ..Incoming::default() };
        self.forget(id);
    }

    /// Drops a stream of which nothing more can go, and whose end the reader has seen.
    fn forget(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(|stream| stream.out.gone && stream.inc.over.is_some()) {
            self.streams.remove(&id);
        }
    }

    /// Gives the library enough for the next packet, most urgent first. `events`: writers that have room again.
    pub(super) fn feed(&mut self, connection: &mut Connection, events: &mut VecDeque<Event>) {
        let words = self.control.flush(connection);
        self.unsent[0] += words;
        self.written += words;
        let mut ahead = self.resend;
        for class in 0..CLASSES {
            ahead += self.unsent[class];
            while ahead < self.payload {
                let Some(id) = self.turns[class].pop_front() else { break };
                let given = self.give(connection, id, events);
                ahead += given;
                self.unsent[class] += given;
                self.written += given;
            }
        }
    }

    /// One turn of one stream: bytes given to the library.
    fn give(&mut self, connection: &mut Connection, id: StreamId, events: &mut VecDeque<Event>) -> u64 {
        let share = self.streams.get(&id).map_or(0, |stream| self.share(stream.class));
        let class = self.streams.get(&id).map(|stream| stream.class);
        // Many take shorter turns, so that a short stream's end does not depend on where in the round it stands.
        let others = class.map_or(1, |class| self.turns[class as usize].len() as u64 + 1);
        let turn = (self.turn / others).max(self.payload) as usize;
        let (Some(stream), Some(number), Some(class)) = (self.streams.get_mut(&id), Self::theirs(id), class) else {
            return 0;
        };
        let out = &mut stream.out;
        out.queued = false;
        let mut given = 0;
        if !out.buffer.is_empty() {
            let before = out.buffer.len();
            let mut piece = [out.buffer.split_to(turn.min(out.buffer.len())).freeze()];
            match connection.send_stream(number).write_chunks(&mut piece) {
                Ok(written) => given = written.bytes,
                Err(WriteError::Blocked) => out.blocked = true,
                // What ended it comes as an event.
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => out.gone = true,
            }
            let [rest] = piece;
            if !rest.is_empty() {
                // The other side's window: what did not fit goes back in front.
                let mut whole = BytesMut::from(rest.as_ref());
                whole.unsplit(std::mem::take(&mut out.buffer));
                out.buffer = whole;
                out.blocked = true;
            }
            self.queued = self.queued + out.buffer.len() - before;
            if out.buffer.is_empty() {
                self.waiting[class as usize] -= 1;
            }
            if out.refused && out.buffer.len() * 2 <= share {
                out.refused = false;
                events.push_back(Event::Writable(id));
            }
        }
        if out.buffer.is_empty() && out.finish && !out.gone {
            match connection.send_stream(number).finish() {
                Ok(()) | Err(FinishError::ClosedStream | FinishError::Stopped(_)) => out.finish = false,
            }
            out.over.get_or_insert(StreamError::Unknown);
        }
        self.queue(id);
        given as u64
    }

    /// A datagram left; `full`: nothing more fitted.
    pub(super) fn on_sent(&mut self, bytes: u64, full: bool) {
        if !full {
            self.nothing_left();
            return;
        }
        let mut rest = bytes.saturating_sub(super::settings::OVERHEAD - 12);
        for waiting in std::iter::once(&mut self.resend).chain(&mut self.unsent) {
            let taken = rest.min(*waiting);
            *waiting -= taken;
            rest -= taken;
        }
    }

    /// The library has nothing more to send.
    pub(super) fn nothing_left(&mut self) {
        self.resend = 0;
        self.unsent = [0; CLASSES];
    }

    /// Bytes were lost: the library sends them again.
    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.resend += bytes;
    }

    /// Handles what the library says of a stream.
    pub(super) fn on_event(&mut self, connection: &mut Connection, event: StreamEvent, events: &mut VecDeque<Event>) {
        match event {
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(number) = connection.streams().accept(Dir::Uni) {
                    self.control.accept(number);
                }
                self.hear(connection, events);
            }
            StreamEvent::Readable { id } if id.dir() == Dir::Uni => self.hear(connection, events),
            StreamEvent::Stopped { id, .. } if id.dir() == Dir::Uni => self.control.set_broken(),
            StreamEvent::Opened { dir: Dir::Bi } => {
                while let Some(number) = connection.streams().accept(Dir::Bi) {
                    let id = self.insert(connection, number, Class::default());
                    events.push_back(Event::Opened(id));
                    self.pull(connection, id, events);
                }
            }
            StreamEvent::Readable { id } => {
                let id = self.id(id);
                self.pull(connection, id, events);
            }
            StreamEvent::Writable { id } => {
                let id = self.id(id);
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.out.blocked = false;
                }
                self.queue(id);
            }
            StreamEvent::Finished { id } => {
                let id = self.id(id);
                if self.streams.contains_key(&id) {
                    events.push_back(Event::Delivered(id));
                    self.end_sending(id, StreamError::Unknown);
                }
            }
            StreamEvent::Stopped { id, error_code } => {
                let id = self.id(id);
                let code = u32::try_from(error_code.into_inner()).unwrap_or(u32::MAX);
                if self.streams.contains_key(&id) {
                    events.push_back(Event::Stopped(id, code));
                    // RFC 9000 §3.5: who is asked to stop sending resets.
                    self.reset(connection, id, code);
                }
            }
            StreamEvent::Available { .. } => {}
        }
    }

    /// Sends a word about a stream.
    pub(super) fn signal(&mut self, id: StreamId, word: u32) {
        if self.streams.contains_key(&id) {
            self.control.push(id.0 & NUMBER_MASK, word);
        }
    }

    /// Declares the rates of this side.
    pub(super) fn declare(&mut self, rates: DeclaredRates) {
        self.control.declare(rates);
    }

    /// The other side does not keep to the protocol of the control stream.
    pub(super) fn is_broken(&self) -> bool {
        self.control.is_broken()
    }

    /// Takes words of the other side.
    fn hear(&mut self, connection: &mut Connection, events: &mut VecDeque<Event>) {
        let (streams, own) = (&self.streams, self.connection << NUMBER_BITS);
        let mut others = Vec::new();
        self.control.pull(connection, |number, word| {
            let id = StreamId(own | number);
            if number > NUMBER_MASK {
                others.push((number, word));
            } else if streams.contains_key(&id) {
                events.push_back(Event::Signal(id, word));
            }
        });
        let declared = others.into_iter().filter_map(|(number, word)| self.control.declared(number, word));
        events.extend(declared.map(Event::Declared));
    }

    /// Bytes of a stream that may be unread from now on.
    pub(super) fn set_limit(&mut self, id: StreamId, bytes: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.inc.limit = bytes;
        }
    }

    /// What has come of a stream and was not read.
    pub(super) fn unread_of(&self, id: StreamId) -> Unread {
        self.streams.get(&id).map_or_else(Unread::default, |stream| {
            let inc = &stream.inc;
            Unread { ready: inc.ready_bytes as u64, all: inc.buffered() as u64, complete: inc.complete }
        })
    }

    /// Takes what the library has for a stream.
    fn pull(&mut self, connection: &mut Connection, id: StreamId, events: &mut VecDeque<Event>) {
        let (Some(stream), Some(number)) = (self.streams.get_mut(&id), Self::theirs(id)) else { return };
        let inc = &mut stream.inc;
        if inc.gone {
            return;
        }
        let before = inc.buffered();
        let mut receiver = connection.recv_stream(number);
        let mut chunks = match receiver.read(false) {
            Ok(chunks) => chunks,
            Err(_) => return,
        };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => inc.insert(chunk.offset, chunk.bytes),
                Ok(None) => {
                    inc.complete = true;
                    inc.gone = true;
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(ReadError::Reset(code)) => {
                    let code = u32::try_from(code.into_inner()).unwrap_or(u32::MAX);
                    *inc = Incoming { over: Some(StreamError::Ended(code)), gone: true, ..Incoming::default() };
                    events.push_back(Event::Reset(id, code));
                    break;
                }
            }
            if inc.is_overrun() {
                break;
            }
        }
        // Room for what was read is announced with the next packet; `poll_transmit` is due anyway.
        let _ = chunks.finalize();
        if inc.is_overrun() {
            let _ = connection.recv_stream(number).stop(VarInt::from_u32(OVERRUN));
            *inc = Incoming { over: Some(StreamError::Overrun), gone: true, ..Incoming::default() };
            events.push_back(Event::Overrun(id));
        }
        self.unread = self.unread + inc.buffered() - before;
        if (inc.ready_bytes > 0 || inc.complete) && !inc.announced {
            inc.announced = true;
            events.push_back(Event::Readable(id));
        }
        if inc.over.is_some() {
            self.forget(id);
        }
    }

    /// Reads in order.
    pub(super) fn read(&mut self, id: StreamId, into: &mut Vec<u8>, most: usize) -> Result<Read, StreamError> {
        let inc = &mut self.streams.get_mut(&id).ok_or(StreamError::Unknown)?.inc;
        if let Some(error) = inc.over {
            return Err(error);
        }
        let taken = inc.take(into, most);
        self.unread -= taken;
        if taken > 0 || most == 0 {
            inc.announced = inc.ready_bytes > 0 || inc.complete;
            return Ok(if taken > 0 { Read::Bytes(taken) } else { Read::Nothing });
        }
        if inc.complete && inc.ready_bytes == 0 {
            inc.over = Some(StreamError::Unknown);
            self.forget(id);
            return Ok(Read::End);
        }
        inc.announced = false;
        Ok(Read::Nothing)
    }
}

impl Incoming {
    /// Adds a piece, which may overlap what is here.
    fn insert(&mut self, mut offset: u64, mut bytes: Bytes) {
        if offset < self.next {
            let known = usize::try_from(self.next - offset).unwrap_or(usize::MAX).min(bytes.len());
            bytes = bytes.slice(known..);
            offset = self.next;
        }
        if bytes.is_empty() {
            return;
        }
        if offset == self.next {
            self.append(bytes);
            while let Some(entry) = self.parts.first_entry().filter(|entry| *entry.key() <= self.next) {
                let (offset, bytes) = entry.remove_entry();
                self.parts_bytes -= bytes.len();
                let known = usize::try_from(self.next - offset).unwrap_or(usize::MAX).min(bytes.len());
                if known < bytes.len() {
                    self.append(bytes.slice(known..));
                }
            }
            return;
        }
        if self.parts.get(&offset).is_some_and(|known| known.len() >= bytes.len()) {
            return;
        }
        if bytes.len() < SMALL {
            bytes = Bytes::copy_from_slice(&bytes);
        }
        self.parts_bytes += bytes.len();
        if let Some(shorter) = self.parts.insert(offset, bytes) {
            self.parts_bytes -= shorter.len();
        }
    }

    fn append(&mut self, mut bytes: Bytes) {
        self.next += bytes.len() as u64;
        self.ready_bytes += bytes.len();
        if bytes.len() < SMALL {
            self.gathered.extend_from_slice(&bytes);
            if self.gathered.len() < GATHERED {
                return;
            }
            bytes = Bytes::new();
        }
        if !self.gathered.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.gathered).freeze());
        }
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }

    /// More has come than may.
    fn is_overrun(&self) -> bool {
        let gaps = GAPS.0 + usize::try_from(self.limit / GAPS.1).unwrap_or(usize::MAX);
        !self.gone && (self.buffered() as u64 > self.limit || self.parts.len() > gaps)
    }

    /// Bytes that came and were not read.
    fn buffered(&self) -> usize {
        self.ready_bytes + self.parts_bytes
    }

    /// Moves up to `most` bytes in order to `into`.
    fn take(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let mut taken = 0;
        while taken < most
            && let Some(first) = self.ready.front_mut()
        {
            let piece = first.split_to((most - taken).min(first.len()));
            into.extend_from_slice(&piece);
            taken += piece.len();
            if first.is_empty() {
                self.ready.pop_front();
            }
        }
        let more = (most - taken).min(self.gathered.len());
        into.extend_from_slice(&self.gathered.split_to(more));
        if self.gathered.is_empty() {
            self.gathered = BytesMut::new();
        }
        taken += more;
        self.ready_bytes -= taken;
        taken
    }
}

fn priority(class: Class) -> i32 {
    match class {
        Class::Control => 2,
        Class::Interactive => 1,
        Class::Bulk => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_in_any_order_make_the_whole(
            pieces in proptest::collection::vec((0usize..200, 1usize..60), 0..60),
            order in any::<u64>(),
        ) {
            let content: Vec<u8> = (0..260).map(|i| (i * 7 % 251) as u8).collect();
            let mut all: Vec<(usize, usize)> = pieces;
            all.extend((0..260).step_by(20).map(|at| (at, 20)));
            let rotation = (order as usize) % all.len();
            all.rotate_left(rotation);
            let mut incoming = Incoming::default();
            for (at, length) in all {
                let bytes = Bytes::copy_from_slice(&content[at..at + length]);
                incoming.insert(at as u64, bytes);
                let parts: usize = incoming.parts.values().map(Bytes::len).sum();
                prop_assert_eq!(parts, incoming.parts_bytes);
            }
            let mut out = Vec::new();
            while incoming.take(&mut out, 17) > 0 {}
            prop_assert_eq!(out, content);
            prop_assert_eq!((incoming.ready_bytes, incoming.parts_bytes), (0, 0));
        }
    }
}
