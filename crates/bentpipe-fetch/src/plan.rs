//! Who fetches which bytes: no byte twice, no connection idle while another has much left.

use crate::ranges::RangeSet;

/// A worker thread's number.
pub(crate) type WorkerId = usize;

/// A piece that a worker is fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The next byte to come.
    at: u64,
    /// The first byte that is not its own; `u64::MAX` while the size is unknown.
    end: u64,
    /// The end as first requested, and so how far the server's answer goes.
    requested: u64,
}

/// The file as pieces: done, being fetched, free.
#[derive(Debug)]
pub(crate) struct Plan {
    size: Option<u64>,
    done: RangeSet,
    free: RangeSet,
    /// By worker.
    pieces: Vec<Option<Piece>>,
    /// The longest free range that one worker gets at once.
    share: Option<u64>,
}

impl Plan {
    /// Nothing is known but what is done already. Until the size is known there is one piece, to the end.
    pub fn new(done: RangeSet) -> Plan {
        let first = done.iter().next().filter(|(start, _)| *start == 0).map_or(0, |(_, end)| end);
        let mut free = RangeSet::default();
        free.insert(first, u64::MAX);
        Plan { size: None, done, free, pieces: Vec::new(), share: None }
    }

    /// Bytes done.
    pub fn bytes_done(&self) -> u64 {
        self.done.bytes()
    }

    /// The ranges done.
    pub fn done(&self) -> &RangeSet {
        &self.done
    }

    /// True if every byte is there.
    pub fn is_complete(&self) -> bool {
        self.size.is_some_and(|size| self.done.bytes() == size)
    }

    /// The size is known: what is missing is cut into `parts` pieces of about the same length. The worker that learnt it
    /// goes on with the first.
    pub fn set_size(&mut self, size: u64, parts: usize) {
        self.size = Some(size);
        let mut missing = self.done.missing(size);
        for piece in self.pieces.iter_mut().flatten() {
            piece.end = piece.end.min(size);
            missing.remove(piece.at, piece.end);
        }
        self.free = missing;
        let Some(piece) = self.pieces.iter_mut().flatten().next() else { return };
        // The first piece runs to the next byte that is done.
        let next_done = self.done.iter().map(|(start, _)| start).find(|start| *start >= piece.at).unwrap_or(size);
        if next_done < piece.end {
            self.free.insert(next_done, piece.end);
            for (start, end) in self.done.iter() {
                self.free.remove(start, end);
            }
            piece.end = next_done;
        }
        let left = piece.end - piece.at;
        let share = (left + self.free.bytes()).div_ceil(parts.max(1) as u64).max(PIECE_MIN);
        if left > share {
            self.free.insert(piece.at + share, piece.end);
            piece.end = piece.at + share;
        }
        self.share = Some(share);
    }

    /// The server gives the whole file only, from its first byte: all is to be fetched again, by this worker.
    pub fn start_over(&mut self, worker: WorkerId) {
        self.done = RangeSet::default();
        self.free = RangeSet::default();
        self.pieces.fill(None);
        let end = self.size.unwrap_or(u64::MAX);
        *self.slot(worker) = Some(Piece { at: 0, end, requested: end });
    }

    /// Something to fetch for a worker that has nothing: the lowest free range; else the second half of the largest piece, if
    /// `worth` says of its owner and what is left that this gains anything.
    pub fn assign(&mut self, worker: WorkerId, worth: impl Fn(WorkerId, u64) -> bool) -> Option<(u64, Option<u64>)> {
        let most = self.share.unwrap_or(u64::MAX);
        let (start, end) = match self.free.take_first(most) {
            Some(range) => range,
            None => self.halve(worker, worth)?,
        };
        *self.slot(worker) = Some(Piece { at: start, end, requested: end });
        Some((start, (end != u64::MAX).then_some(end)))
    }

    fn halve(&mut self, worker: WorkerId, worth: impl Fn(WorkerId, u64) -> bool) -> Option<(u64, u64)> {
        self.size?;
        let others = self.pieces.iter().enumerate().filter(|(owner, _)| *owner != worker);
        let left = others.filter_map(|(owner, piece)| piece.map(|piece| (piece.end - piece.at, owner)));
        let (left, owner) = left.filter(|(left, owner)| *left >= 2 * PIECE_MIN && worth(*owner, *left)).max()?;
        let piece = self.pieces[owner].as_mut()?;
        let end = std::mem::replace(&mut piece.end, piece.at + left.div_ceil(2));
        Some((piece.end, end))
    }

    /// The worker has received `length` bytes: where they belong, and how many of them are its own. `None`: its piece
    /// was taken from it.
    pub fn claim(&mut self, worker: WorkerId, length: u64) -> Option<(u64, u64)> {
        let piece = self.pieces.get_mut(worker)?.as_mut()?;
        let length = length.min(piece.end - piece.at);
        let at = piece.at;
        piece.at += length;
        Some((at, length))
    }

    /// Claimed bytes are in the file.
    pub fn written(&mut self, at: u64, length: u64) {
        self.done.insert(at, at + length);
    }

    /// The rest of a worker's piece: its position and the piece's end.
    pub fn rest(&self, worker: WorkerId) -> Option<(u64, u64)> {
        self.pieces.get(worker).copied().flatten().map(|piece| (piece.at, piece.end))
    }

    /// The worker has, or gets, nothing more: what is left of its piece is free for others.
    pub fn release(&mut self, worker: WorkerId) {
        if let Some(piece) = self.slot(worker).take() {
            self.free.insert(piece.at, piece.end);
        }
    }

    /// The worker stops, early after its beginning. If its piece was the second half of another's and no more than `most` bytes of
    /// it have come, the other one has it again, all of it: its answer goes on there anyway, which costs less than a new beginning.
    pub fn give_back(&mut self, worker: WorkerId, most: u64) {
        let Some(piece) = self.slot(worker).take() else { return };
        self.free.insert(piece.at, piece.end);
        let precedes = |other: &&mut Piece| {
            // One that is at its end is about to ask for something else.
            other.at < other.end
                && other.end <= piece.at
                && piece.end <= other.requested
                && piece.at - other.end <= most
                && self.done.missing(piece.at).iter().all(|(_, end)| end <= other.end)
        };
        if let Some(other) = self.pieces.iter_mut().flatten().find(precedes) {
            self.done.remove(other.end, piece.at);
            self.free.remove(piece.at, piece.end);
            other.end = piece.end;
        }
    }

    /// A file of unknown size ends where the worker is.
    pub fn end_of_file(&mut self, worker: WorkerId) {
        if let (None, Some(piece)) = (self.size, self.slot(worker).take()) {
            self.size = Some(piece.at);
            self.free = RangeSet::default();
        }
    }

    /// The worker's answer goes on past its piece, and so does the piece, as far as nobody else has what follows.
    pub fn extend(&mut self, worker: WorkerId) {
        let Some(Some(piece)) = self.pieces.get_mut(worker) else { return };
        let next = self.free.iter().find(|(start, _)| *start == piece.end);
        if let Some((start, end)) = next {
            self.free.remove(start, end);
            piece.end = end;
        }
    }

    fn slot(&mut self, worker: WorkerId) -> &mut Option<Piece> {
        if self.pieces.len() <= worker {
            self.pieces.resize(worker + 1, None);
        }
        &mut self.pieces[worker]
    }
}

/// Smaller pieces are not worth a request of their own: about the data of one initial window (RFC 6928: 10 segments).
pub(crate) const PIECE_MIN: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Assign,
        Receive(u64),
        Fail,
        GiveBack,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![2 => Just(Step::Assign), 5 => (1u64..200_000).prop_map(Step::Receive), 1 => Just(Step::Fail), 1 => Just(Step::GiveBack)]
    }

    proptest! {
        /// Whatever workers do in whatever order: no byte is claimed twice unless it was given back, none is forgotten.
        #[test]
        fn every_byte_once(
            size in 0u64..2_000_000,
            parts in 1usize..6,
            done in proptest::collection::vec((0u64..2_000_000, 0u64..300_000), 0..4),
            steps in proptest::collection::vec((0usize..5, step()), 0..200),
        ) {
            let mut before = RangeSet::default();
            for (start, length) in done {
                before.insert(start.min(size), (start + length).min(size));
            }
            let mut plan = Plan::new(before.clone());
            let mut fetched = RangeSet::default();
            let first = plan.assign(0, |_, _| true);
            prop_assert!(first.is_some());
            plan.set_size(size, parts);
            let receive = |plan: &mut Plan, fetched: &mut RangeSet, before: &RangeSet, worker, length| {
                if let Some((at, own)) = plan.claim(worker, length) {
                    let total = fetched.bytes();
                    fetched.insert(at, at + own);
                    assert_eq!(fetched.bytes(), total + own, "claimed twice: {at}+{own}");
                    assert!(before.missing(size).iter().any(|(s, e)| own == 0 || s <= at && at + own <= e));
                    plan.written(at, own);
                }
            };
            for (worker, step) in steps {
                match step {
                    Step::Receive(length) => receive(&mut plan, &mut fetched, &before, worker, length),
                    Step::Fail => plan.release(worker),
                    Step::GiveBack => {
                        plan.give_back(worker, 150_000);
                        for (start, end) in plan.done().missing(size).iter() {
                            fetched.remove(start, end);
                            before.remove(start, end);
                        }
                    }
                    Step::Assign => {
                        if plan.rest(worker).is_none_or(|(at, end)| at == end) {
                            plan.release(worker);
                            plan.assign(worker, |_, _| true);
                        }
                    }
                }
            }
            // One worker ends it all.
            for worker in 0..5 {
                plan.release(worker);
            }
            while plan.assign(0, |_, _| true).is_some() {
                receive(&mut plan, &mut fetched, &before, 0, u64::MAX / 2);
                plan.release(0);
            }
            prop_assert!(plan.is_complete(), "{plan:?}");
        }
    }

    #[test]
    fn a_free_worker_takes_half_of_the_largest_rest() {
        let mut plan = Plan::new(RangeSet::default());
        assert_eq!(plan.assign(0, |_, _| true), Some((0, None)));
        plan.set_size(1 << 20, 1);
        assert_eq!(plan.assign(1, |_, _| false), None, "not worth it");
        assert_eq!(plan.assign(1, |owner, left| owner == 0 && left == 1 << 20), Some((1 << 19, Some(1 << 20))));
        assert_eq!(plan.claim(0, 1 << 20), Some((0, 1 << 19)), "the rest is no longer its own");
    }

    #[test]
    fn what_was_just_begun_can_be_given_back() {
        let mut plan = Plan::new(RangeSet::default());
        plan.assign(0, |_, _| true);
        plan.set_size(1 << 20, 1);
        let begin = |plan: &mut Plan| {
            let (from, to) = plan.assign(1, |_, _| true).unwrap();
            plan.claim(1, 1000);
            plan.written(from, 1000);
            (from, to.unwrap())
        };
        let (from, to) = begin(&mut plan);
        plan.give_back(1, 999);
        assert_eq!((plan.rest(0), plan.bytes_done()), (Some((0, from)), 1000), "too much to fetch again: free");
        assert_eq!(plan.assign(1, |_, _| true), Some((from + 1000, Some(to))));
        plan.give_back(1, 1000);
        assert_eq!((plan.rest(0), plan.bytes_done()), (Some((0, to)), 0));
        // A worker whose answer ends where the next piece begins cannot go on there.
        let (from, to) = begin(&mut plan);
        plan.release(0);
        plan.assign(0, |_, _| true);
        plan.give_back(1, 1000);
        assert_eq!((plan.rest(0), plan.assign(2, |_, _| true)), (Some((0, from)), Some((from + 1000, Some(to)))));
    }

    #[test]
    fn a_known_number_of_connections_shares_from_the_start() {
        let mut plan = Plan::new(RangeSet::default());
        plan.assign(0, |_, _| true);
        plan.set_size(4 << 20, 4);
        let starts: Vec<u64> = (1..4).map(|worker| plan.assign(worker, |_, _| false).unwrap().0).collect();
        assert_eq!(starts, [1 << 20, 2 << 20, 3 << 20]);
        assert_eq!(plan.rest(0), Some((0, 1 << 20)));
    }

    #[test]
    fn without_a_size_the_end_is_where_the_data_ends() {
        let mut plan = Plan::new(RangeSet::default());
        assert_eq!(plan.assign(0, |_, _| true), Some((0, None)));
        assert_eq!(plan.claim(0, 5), Some((0, 5)));
        plan.written(0, 5);
        assert!(!plan.is_complete());
        assert_eq!(plan.assign(1, |_, _| true), None);
        plan.end_of_file(0);
        assert!(plan.is_complete() && plan.bytes_done() == 5);
    }
}
