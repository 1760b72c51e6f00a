//! The control stream: words about streams, outside of them, which wait for no data.
//!
//! Each side opens one unidirectional stream for its words when it has the first. A word is two numbers, each in groups of
//! seven bits, lowest first, the eighth bit set on all but the last (LEB128): QUIC's number of the stream, and the word.
//! The rates that a side declares are words, too, about numbers that no stream has.

use crate::satellite::DeclaredRates;
use bentpipe_net::units::BitRate;
use quinn_proto::{Connection, Dir, ReadError, StreamId, WriteError};

/// Bits of a [`StreamId`](crate::satellite::StreamId) that are the library's own number; above stands the connection's.
pub(super) const NUMBER_BITS: u32 = 40;
/// Most bytes of a number: 63 bits.
const NUMBER_MAX: usize = 9;
/// Before the streams of every class.
const PRIORITY: i32 = 3;

/// Both directions of the control stream.
#[derive(Debug, Default)]
pub(super) struct Control {
    out: Option<StreamId>,
    /// Words that were not given to the library yet.
    waiting: Vec<u8>,
    inc: Option<StreamId>,
    /// The start of a word whose rest has not come.
    partial: Vec<u8>,
    /// The rates that the other side has declared so far.
    peer: DeclaredRates,
    broken: bool,
}

impl Control {
    /// Stands where a stream's number stands, for the rate in which a side sends; the next number, for that in which it
    /// receives. The word is bytes per second; 0: measured. No stream has these numbers, and who does not know them ignores
    /// them.
    const DECLARED: u64 = 1 << NUMBER_BITS;

    /// Adds a word about the stream of this number.
    pub(super) fn push(&mut self, number: u64, word: u32) {
        put(number, &mut self.waiting);
        put(u64::from(word), &mut self.waiting);
    }

    /// Adds the rates that this side declares.
    pub(super) fn declare(&mut self, rates: DeclaredRates) {
        let number = Self::DECLARED;
        for (number, rate) in [(number, rates.sending), (number + 1, rates.receiving)] {
            let bytes = rate.map_or(0, |rate| rate.bps.div_ceil(8));
            self.push(number, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Takes a word as a part of the rates that the other side declares. The second of the two makes them complete.
    pub(super) fn declared(&mut self, number: u64, word: u32) -> Option<DeclaredRates> {
        let rate = (word > 0).then(|| BitRate::from_bps(8 * u64::from(word)));
        match number.checked_sub(Self::DECLARED) {
            Some(0) => {
                self.peer.sending = rate;
                None
            }
            Some(1) => {
                self.peer.receiving = rate;
                Some(self.peer)
            }
            _ => None,
        }
    }

    /// Words wait to be given to the library.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The other side ended the stream, or sent something else than words.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Gives the library what waits: so many bytes.
    pub(super) fn flush(&mut self, connection: &mut Connection) -> u64 {
        if self.waiting.is_empty() || self.broken {
            return 0;
        }
        let Some(number) = self.out.or_else(|| connection.streams().open(Dir::Uni)) else { return 0 };
        if self.out.replace(number).is_none() {
            // Fails only for a stream that is gone, which the write finds out.
            let _ = connection.send_stream(number).set_priority(PRIORITY);
        }
        match connection.send_stream(number).write(&self.waiting) {
            Ok(count) => {
                self.waiting.drain(..count);
                count as u64
            }
            Err(WriteError::Blocked) => 0,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                self.broken = true;
                0
            }
        }
    }

    /// The other side has opened its own.
    pub(super) fn accept(&mut self, number: StreamId) {
        self.broken |= self.inc.replace(number).is_some();
    }

    /// Reads what has come: `heard` gets the number of a stream and the word about it.
    pub(super) fn pull(&mut self, connection: &mut Connection, mut heard: impl FnMut(u64, u32)) {
        let Some(number) = self.inc.filter(|_| !self.broken) else { return };
        let mut receiver = connection.recv_stream(number);
        let Ok(mut chunks) = receiver.read(true) else { return };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.partial.extend_from_slice(&chunk.bytes),
                Err(ReadError::Blocked) => break,
                Ok(None) | Err(ReadError::Reset(_)) => {
                    self.broken = true;
                    break;
                }
            }
        }
        // Credit for what was read goes out with the next packet.
        let _ = chunks.finalize();
        let mut at = 0;
        let bytes = std::mem::take(&mut self.partial);
        loop {
            match take_word(&bytes[at..]) {
                Ok(Some((number, word, length))) => {
                    heard(number, word);
                    at += length;
                }
                Ok(None) => break,
                Err(Malformed) => {
                    self.broken = true;
                    break;
                }
            }
        }
        self.partial = bytes[at..].to_vec();
    }
}

/// No number, or none that has a meaning here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Malformed;

fn put(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// The number at the start of `bytes`, and its length; `None`: it is cut off.
fn take(bytes: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    let mut value = 0;
    for (i, byte) in bytes.iter().take(NUMBER_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok(Some((value, i + 1)));
        }
    }
    if bytes.len() < NUMBER_MAX { Ok(None) } else { Err(Malformed) }
}

/// The stream's number, the word and the length of both.
fn take_word(bytes: &[u8]) -> Result<Option<(u64, u32, usize)>, Malformed> {
    let Some((number, first)) = take(bytes)? else { return Ok(None) };
    let Some((word, second)) = take(&bytes[first..])? else { return Ok(None) };
    let word = u32::try_from(word).map_err(|_| Malformed)?;
    Ok(Some((number, word, first + second)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_read_as_they_were_written(words in proptest::collection::vec((0_u64..1 << 62, any::<u32>()), 0..50)) {
            let mut control = Control::default();
            for (number, word) in &words {
                control.push(*number, *word);
            }
            let (mut at, mut read) = (0, Vec::new());
            while let Some((number, word, length)) = take_word(&control.waiting[at..]).unwrap() {
                prop_assert_eq!(take_word(&control.waiting[at..at + length - 1]), Ok(None));
                read.push((number, word));
                at += length;
            }
            prop_assert_eq!((read, at), (words, control.waiting.len()));
        }

        #[test]
        fn declared_rates_arrive(sending in 0_u64..30_000_000_000, receiving in 0_u64..30_000_000_000) {
            let rate = |bps: u64| (bps > 0).then(|| BitRate::from_bps(bps / 8 * 8 + 8));
            let rates = DeclaredRates { sending: rate(sending), receiving: rate(receiving) };
            let (mut control, mut other) = (Control::default(), Control::default());
            control.declare(rates);
            let (mut at, mut read) = (0, None);
            while let Some((number, word, length)) = take_word(&control.waiting[at..]).unwrap() {
                at += length;
                read = other.declared(number, word);
            }
            prop_assert_eq!(read, Some(rates));
            prop_assert_eq!(other.declared(4, 7), None);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(Some((_, _, length))) = take_word(&bytes) {
                prop_assert!(length <= bytes.len());
            } else {
                prop_assert!(take_word(&bytes).is_err() || bytes.len() < 2 * NUMBER_MAX);
            }
        }
    }
}
