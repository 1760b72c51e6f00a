//! Data that a program has written and the peer has not acknowledged.

use bentpipe_net::datagram::Payload;
use std::collections::VecDeque;

/// Bytes by sequence number. A pattern, however long, is one entry.
#[derive(Debug)]
pub struct SendQueue {
    /// First sequence number of each piece, and the piece.
    pieces: VecDeque<(u64, Payload)>,
    end: u64,
}

impl SendQueue {
    /// Empty; the first byte will have sequence number `start`.
    #[must_use]
    pub fn new(start: u64) -> Self {
        SendQueue { pieces: VecDeque::new(), end: start }
    }

    /// The sequence number of the next byte given.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Adds to the end.
    pub fn push(&mut self, piece: Payload) {
        let length = piece.length();
        if length == 0 {
            return;
        }
        let joined = self.pieces.back_mut().is_some_and(|(_, last)| last.join(&piece));
        if !joined {
            self.pieces.push_back((self.end, piece));
        }
        self.end += length;
    }

    /// Bytes `from` to `to`, which must be there.
    #[must_use]
    #[inline]
    pub fn get(&self, from: u64, to: u64) -> Payload {
        if let Some((start, Payload::Pattern { pattern, offset, length })) = self.pieces.front()
            && *start <= from
            && to <= *start + u64::from(*length)
        {
            return Payload::Pattern { pattern: *pattern, offset: offset + (from - start), length: (to - from) as u32 };
        }
        self.get_from_any(from, to)
    }

    fn get_from_any(&self, from: u64, to: u64) -> Payload {
        let index = self.pieces.partition_point(|(start, _)| *start <= from).saturating_sub(1);
        let Some((start, piece)) = self.pieces.get(index) else { return Payload::Empty };
        debug_assert!(*start <= from && to <= self.end, "bytes {from} to {to} are not queued");
        let part = piece.part(from - start, to - from);
        if part.length() == to - from {
            return part;
        }
        // Across a seam: real bytes.
        let mut bytes = vec![0; (to - from) as usize];
        let mut at = part.copy_to(&mut bytes);
        for (_, piece) in self.pieces.iter().skip(index + 1) {
            at += piece.copy_to(&mut bytes[at..]);
        }
        Payload::from_vec(bytes)
    }

    /// Forgets bytes below `until`.
    pub fn release(&mut self, until: u64) {
        while let Some((start, piece)) = self.pieces.front()
            && start + piece.length() <= until
        {
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::socket::fill_pattern;

    fn pattern(offset: u64, length: u32) -> Payload {
        Payload::Pattern { pattern: 7, offset, length }
    }

    #[test]
    fn pieces_join_and_seams_read() {
        let mut queue = SendQueue::new(1);
        queue.push(Payload::from_vec(b"HTTP".to_vec()));
        (0..1000).for_each(|i| queue.push(pattern(i * 1000, 1000)));
        assert_eq!((queue.pieces.len(), queue.end()), (2, 1_000_005));
        assert_eq!(queue.get(5, 1005), pattern(0, 1000));
        assert_eq!(queue.get(205, 305), pattern(200, 100));
        let mut expected = b"TP".to_vec();
        expected.resize(10, 0);
        fill_pattern(7, 0, &mut expected[2..]);
        assert_eq!(queue.get(3, 13), Payload::from_vec(expected));
        queue.release(500);
        assert_eq!(queue.pieces.len(), 1);
        assert_eq!(queue.get(500, 600), pattern(495, 100));
    }
}
