//! Received data: in order for the program, out of order for later, and the SACK blocks that report it.

use super::ranges::Ranges;
use bentpipe_net::datagram::Payload;
use bentpipe_net::socket::{Received, ReceivedPattern};
use std::collections::{BTreeMap, VecDeque};

/// The receiver's buffer.
#[derive(Debug)]
pub struct ReceiveBuffer {
    ready: VecDeque<Payload>,
    ready_bytes: u64,
    next: u64,
    later: BTreeMap<u64, Payload>,
    ranges: Ranges,
    /// A sequence number in each SACK block sent lately, the newest first.
    recent: Vec<u64>,
    /// Where the peer's FIN is, once it came, in order or not.
    fin: Option<u64>,
    fin_reached: bool,
}

/// The effect of a received segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The next expected byte moved on.
    pub advanced: bool,
    /// A hole was filled completely: nothing waits out of order any more.
    pub filled: bool,
    /// It waits out of order.
    pub out_of_order: bool,
    /// Bytes that had come before (RFC 2883).
    pub duplicate: Option<(u64, u64)>,
}

/// Most blocks remembered for SACK.
const BLOCKS_MAX: usize = 4;

impl ReceiveBuffer {
    /// Nothing came; `next` is the first byte expected.
    #[must_use]
    pub fn new(next: u64) -> Self {
        ReceiveBuffer {
            ready: VecDeque::new(),
            ready_bytes: 0,
            next,
            later: BTreeMap::new(),
            ranges: Ranges::default(),
            recent: Vec::new(),
            fin: None,
            fin_reached: false,
        }
    }

    /// The next byte expected, the FIN included.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next + u64::from(self.fin_reached)
    }

    /// Bytes that the program has not read.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.ready_bytes
    }

    /// True if something waits out of order.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        !self.later.is_empty() || (self.fin.is_some() && !self.fin_reached)
    }

    /// Bytes from the next one expected to the end of what waits out of order.
    #[must_use]
    pub fn later(&self) -> u64 {
        self.later.last_key_value().map_or(0, |(first, payload)| (first + payload.length()).saturating_sub(self.next))
    }

    /// True if the peer has finished and all of it is here.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.fin_reached
    }

    /// A segment's data from `first` on, inside the window. `fin`: the peer's last.
    #[inline(always)]
    pub fn insert(&mut self, first: u64, payload: Payload, fin: bool) -> Arrival {
        if first == self.next && !fin && !self.has_holes() && !self.fin_reached {
            let advanced = payload.length() > 0;
            self.take(payload);
            return Arrival { advanced, ..Arrival::default() };
        }
        self.insert_out_of_order(first, payload, fin)
    }

    /// Inserts data that does not simply follow.
    fn insert_out_of_order(&mut self, first: u64, payload: Payload, fin: bool) -> Arrival {
        let length = payload.length();
        let past = first + length;
        // An end before what has come already is no end.
        if fin && self.fin.is_none() && past >= self.next.max(self.ranges.end()) {
            self.fin = Some(past);
        }
        let mut arrival = Arrival::default();
        let before = self.next();
        if length > 0 {
            // Nothing follows the peer's end.
            let past = self.fin.map_or(past, |end| past.min(end));
            if past <= first {
                // All of it lies beyond the end.
            } else if past <= self.next {
                arrival.duplicate = Some((first, past));
            } else if first <= self.next && self.later.is_empty() {
                let skip = self.next - first;
                if skip > 0 {
                    arrival.duplicate = Some((first, self.next));
                }
                self.take(payload.part(skip, past - self.next));
            } else {
                self.insert_later(first.max(self.next), past, first, &payload, &mut arrival);
            }
        }
        if self.fin == Some(self.next) {
            self.fin_reached = true;
            self.later.clear();
        }
        arrival.advanced = self.next() > before;
        // An end without data waits out of order like data.
        arrival.out_of_order |= fin && length == 0 && !self.fin_reached && self.fin.is_some();
        arrival
    }

    /// Puts what is new among what waits, then takes what has become ready.
    fn insert_later(&mut self, first: u64, past: u64, start: u64, payload: &Payload, arrival: &mut Arrival) {
        let ReceiveBuffer { later, ranges, recent, .. } = self;
        let block = ranges.joined_with(first, past);
        let mut new_bytes = 0;
        ranges.insert(first, past, |from, to| {
            new_bytes += to - from;
            let part = payload.part(from - start, to - from);
            let before = later.range_mut(..from).next_back().filter(|(at, piece)| *at + piece.length() == from);
            let joined = before.is_some_and(|(_, piece)| piece.join(&part));
            if !joined {
                later.insert(from, part);
            }
        });
        if new_bytes < past - start {
            arrival.duplicate = Some((start, if new_bytes == 0 { past } else { start + (past - start - new_bytes) }));
        }
        recent.retain(|at| *at < block.0 || *at >= block.1);
        recent.insert(0, first);
        recent.truncate(BLOCKS_MAX);
        while let Some(entry) = self.later.first_entry()
            && *entry.key() == self.next
        {
            let piece = entry.remove();
            self.take(piece);
        }
        self.ranges.remove_below(self.next);
        arrival.filled = self.later.is_empty();
        arrival.out_of_order = !arrival.filled && new_bytes > 0 && first > self.next;
    }

    #[inline]
    fn take(&mut self, piece: Payload) {
        let length = piece.length();
        self.next += length;
        self.ready_bytes += length;
        if length > 0 && !self.ready.back_mut().is_some_and(|last| last.join(&piece)) {
            self.ready.push_back(piece);
        }
    }

    /// The blocks to send, the newest first (RFC 2018 §4).
    pub fn blocks(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let lone_end = self.fin.filter(|end| !self.fin_reached && self.ranges.end() != *end);
        let ReceiveBuffer { recent, ranges, next, fin, .. } = self;
        recent.retain(|at| *at > *next);
        if let (true, Some((lowest, _))) = (recent.is_empty(), ranges.as_slice().first()) {
            // Only older ones are left, and forgotten.
            recent.push(*lowest);
        }
        let blocks = recent.iter().filter_map(|at| {
            let ranges = ranges.as_slice();
            let index = ranges.partition_point(|(start, _)| start <= at);
            let (first, past) = ranges.get(index.checked_sub(1)?).copied().filter(|(_, past)| at < past)?;
            // The end takes a number of its own.
            Some((first, past + u64::from(*fin == Some(past))))
        });
        lone_end.map(|end| (end, end + 1)).into_iter().chain(blocks)
    }

    /// Copies bytes out.
    pub fn read(&mut self, into: &mut [u8]) -> Received {
        let mut at = 0;
        while at < into.len()
            && let Some(piece) = self.ready.front_mut()
        {
            let count = piece.copy_to(&mut into[at..]);
            at += count;
            self.drop_front(count as u64);
        }
        match at {
            0 if self.fin_reached && self.ready.is_empty() => Received::End,
            0 => Received::Nothing,
            count => Received::Bytes(count),
        }
    }

    /// Takes up to `max` bytes that should be `pattern` from `offset`.
    #[inline]
    pub fn read_pattern(&mut self, pattern: u64, offset: u64, max: u64) -> ReceivedPattern {
        // Mostly one piece waits, and is what it should be.
        if let Some(Payload::Pattern { pattern: own, offset: at, length }) = self.ready.front()
            && self.ready.len() == 1
            && (*own, *at) == (pattern, offset)
            && u64::from(*length) <= max
        {
            let bytes = u64::from(*length);
            self.ready.clear();
            self.ready_bytes = 0;
            return ReceivedPattern::Bytes { bytes, wrong: 0, more: self.fin_reached };
        }
        let (mut bytes, mut wrong) = (0, 0);
        while bytes < max
            && let Some(piece) = self.ready.front()
        {
            let count = piece.length().min(max - bytes);
            wrong += piece.count_wrong(count, pattern, offset + bytes);
            bytes += count;
            self.drop_front(count);
        }
        match bytes {
            0 if self.fin_reached && self.ready.is_empty() => ReceivedPattern::End,
            0 => ReceivedPattern::Nothing,
            bytes => ReceivedPattern::Bytes { bytes, wrong, more: self.fin_reached || !self.ready.is_empty() },
        }
    }

    #[inline]
    fn drop_front(&mut self, count: u64) {
        self.ready_bytes -= count;
        if let Some(piece) = self.ready.front_mut() {
            if count == piece.length() {
                self.ready.pop_front();
                return;
            }
            let rest = piece.part(count, u64::MAX);
            if rest == Payload::Empty {
                self.ready.pop_front();
            } else {
                *piece = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(first: u64, past: u64) -> Payload {
        Payload::Pattern { pattern: 3, offset: first - 1, length: (past - first) as u32 }
    }

    #[test]
    fn sack_blocks_tell_the_newest_first() {
        let mut buffer = ReceiveBuffer::new(1);
        buffer.insert(11, part(11, 21), false);
        buffer.insert(31, part(31, 41), false);
        buffer.insert(51, part(51, 61), false);
        assert_eq!(buffer.blocks().collect::<Vec<_>>(), [(51, 61), (31, 41), (11, 21)]);
        assert!(buffer.insert(21, part(21, 31), false).out_of_order);
        assert_eq!(buffer.blocks().collect::<Vec<_>>(), [(11, 41), (51, 61)]);
        let arrival = buffer.insert(1, part(1, 11), false);
        assert!(arrival.advanced && !arrival.filled && !arrival.out_of_order);
        assert_eq!((buffer.next(), buffer.blocks().collect::<Vec<_>>()), (41, vec![(51, 61)]));
        assert_eq!(buffer.insert(35, part(35, 41), false).duplicate, Some((35, 41)));
        let arrival = buffer.insert(41, part(41, 51), true);
        assert!(arrival.advanced && arrival.filled);
        assert!(!buffer.is_finished(), "an end before what has come already is no end");
        assert!(buffer.insert(61, part(61, 71), true).advanced && buffer.is_finished());
        assert_eq!(buffer.next(), 72, "the end counts");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_order_gives_the_bytes_once(order in proptest::collection::vec((0u64..200, 1u64..40), 1..120), reads: u8) {
            let mut buffer = ReceiveBuffer::new(1);
            let mut read = 0;
            for (n, (first, length)) in order.into_iter().enumerate() {
                let first = first + 1;
                buffer.insert(first, part(first, first + length), false);
                if (n as u8).is_multiple_of(reads % 7 + 1)
                    && let ReceivedPattern::Bytes { bytes, wrong, .. } = buffer.read_pattern(3, read, 25)
                {
                    prop_assert_eq!(wrong, 0);
                    read += bytes;
                }
                prop_assert_eq!(read + buffer.unread(), buffer.next() - 1);
                let blocks: Vec<_> = buffer.blocks().collect();
                prop_assert!(blocks.iter().all(|(a, b)| *a > buffer.next() && a < b));
                prop_assert!(buffer.has_holes() != blocks.is_empty());
            }
        }
    }
}
