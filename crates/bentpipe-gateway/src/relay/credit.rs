//! Credit: how much the other relay may send before more of it has been given to the site.
//!
//! Each direction of a connection has its own, so that a reader who rests holds back its own sender and nobody else: what
//! arrives is taken from the satellite side at once and waits here, never in the windows that all streams share. Every
//! direction may have [`BASE`] on its way; what goes beyond it comes from one [`Budget`]. Data, packed and urgent frames
//! cost their whole length, header included; all others are free.

use super::frame::{Credit, Kind, Malformed, UNIT, take_header};
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;

/// What every direction may have on its way without being told: four frames, and a request of any usual length.
pub(crate) const BASE: u64 = 64 << 10;
/// Round trips' worth of a direction that is drained: one on its way, one while a lost packet is sent again, one more when
/// that is lost too, one for the credit's own way and what is given at once.
const TRIPS: u64 = 4;
/// A direction that has drained its whole window has four times that next: from [`BASE`] to the window of 10 Mbit/s and
/// 600 ms in three round trips.
const GROWTH: u64 = 4;
/// Credit goes out when this part of the window is missing.
const PIECE: u64 = 8;
/// Silence after which unused credit may be asked back.
const IDLE: Duration = Duration::from_secs(2);

/// Credit beyond [`BASE`], of all connections together.
pub(crate) struct Budget {
    most: u64,
    reserved: u64,
    short: bool,
}

impl Budget {
    /// Three quarters of `total`: the rest is for what waits on its way out, and for [`BASE`].
    pub(crate) fn new(total: u64) -> Budget {
        Budget { most: total / 4 * 3, reserved: 0, short: false }
    }

    /// Somebody got less than was wanted since this was last asked.
    pub(crate) fn take_short(&mut self) -> bool {
        std::mem::take(&mut self.short)
    }

    fn free(&self) -> u64 {
        self.most.saturating_sub(self.reserved)
    }

    /// For a new connection that could use `full`: that, or half of what is left, of the half that is for new ones. The
    /// other half is for those that have shown that they drain.
    fn for_new(&self, full: u64) -> u64 {
        let left = (self.most / 2).saturating_sub(self.reserved);
        if left >= full { full } else { left / 2 }
    }

    #[cfg(test)]
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }
}

/// What the receiver of a direction keeps. All numbers count bytes from the start of the stream.
#[derive(Debug)]
pub(crate) struct Grant {
    granted: u64,
    /// Frames that cost and have arrived, the last perhaps in part.
    used: u64,
    /// Of these, what has been given to the site.
    consumed: u64,
    /// What is to be granted beyond `consumed`.
    window: u64,
    /// `consumed` when the window was last made larger.
    grown: u64,
    /// Counted in the budget.
    reserved: u64,
    /// Nothing that costs will come any more.
    ended: bool,
    active: Instant,
    asked: bool,
}

impl Default for Grant {
    fn default() -> Grant {
        Grant {
            granted: BASE,
            used: 0,
            consumed: 0,
            window: BASE,
            grown: 0,
            reserved: 0,
            ended: false,
            active: Instant::ZERO,
            asked: false,
        }
    }
}

impl Grant {
    /// A frame of this length has begun to arrive.
    pub(crate) fn note_used(&mut self, bytes: usize) -> Result<(), Malformed> {
        self.used += bytes as u64;
        if self.used > self.granted {
            return Err(Malformed("more data than there was credit for"));
        }
        Ok(())
    }

    /// So much has been given to the site.
    pub(crate) fn note_consumed(&mut self, now: Instant, bytes: usize) {
        self.consumed += bytes as u64;
        self.active = now;
    }

    /// Nothing that costs will come.
    pub(crate) fn note_ended(&mut self, budget: &mut Budget) {
        self.ended = true;
        self.granted = self.used;
        self.account(budget);
    }

    /// The other side gives credit back.
    pub(crate) fn take_back(&mut self, bytes: u64, budget: &mut Budget) -> Result<(), Malformed> {
        if self.ended {
            return Ok(());
        }
        if bytes > self.granted - self.used {
            return Err(Malformed("more credit given back than there was"));
        }
        self.granted -= bytes;
        self.window = (self.granted - self.consumed).max(BASE);
        self.grown = self.consumed;
        self.account(budget);
        Ok(())
    }

    /// The first credit beyond [`BASE`], in units; `trip`: bytes of a round trip at the link's rate.
    pub(crate) fn open(&mut self, now: Instant, trip: u64, budget: &mut Budget) -> Option<u32> {
        self.active = now;
        let full = (TRIPS * trip).max(BASE);
        self.window = full.min(BASE + budget.for_new(full));
        // What is left is kept for those that drain; it is scarce once they have taken half of it.
        budget.short |= self.window < full && budget.free() < budget.most / 4;
        self.give(self.window - BASE, budget)
    }

    /// Credit that is due, in units. `waits`: of what has arrived, what the site has no room for.
    pub(crate) fn renew(&mut self, trip: u64, waits: u64, budget: &mut Budget) -> Option<u32> {
        if self.ended {
            return None;
        }
        let full = (TRIPS * trip).max(BASE);
        if self.consumed - self.grown >= self.window && self.window < full && waits == 0 {
            self.window = full.min(self.window * GROWTH);
            self.grown = self.consumed;
        }
        let outstanding = self.granted - self.consumed;
        let mut want = self.window.saturating_sub(outstanding);
        if want < self.window / PIECE {
            return None;
        }
        if waits > self.window / 2 && budget.free() < budget.most / 4 {
            // A reader slower than the link needs less, and others need it more.
            self.window = BASE.max(self.window / 2);
            self.grown = self.consumed;
            want = self.window.saturating_sub(outstanding);
        }
        // Never all that is left: whoever comes next has something to grow into.
        let may = want.min((budget.free() / 2).max(BASE.saturating_sub(outstanding)));
        if may < want {
            budget.short = true;
            self.window = BASE.max(outstanding + may);
            if may < self.window / PIECE {
                return None;
            }
        }
        self.asked = false;
        self.give(may, budget)
    }

    fn give(&mut self, bytes: u64, budget: &mut Budget) -> Option<u32> {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).min(Credit::MOST);
        self.granted += u64::from(units) * UNIT;
        self.account(budget);
        (units > 0).then_some(units)
    }

    /// Keeps the budget in step.
    pub(crate) fn account(&mut self, budget: &mut Budget) {
        let reserved = (self.granted - self.consumed).saturating_sub(BASE);
        budget.reserved = budget.reserved + reserved - self.reserved;
        self.reserved = reserved;
    }

    /// Gives everything back to the budget: the connection is over.
    pub(crate) fn close(&mut self, budget: &mut Budget) {
        budget.reserved -= self.reserved;
        *self = Grant { ended: true, ..Grant::default() };
    }

    /// Whether the other side is to be asked for what it does not use; said once for each credit.
    pub(crate) fn asks_back(&mut self, now: Instant) -> bool {
        let unused = (self.granted - self.used).saturating_sub(BASE).min(self.reserved);
        unused >= UNIT && now.since(self.active) >= IDLE && !std::mem::replace(&mut self.asked, true)
    }
}

/// Looks at the frames of a stream as they arrive, long before their turn: credit must not wait behind data.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    head: [u8; 8],
    have: usize,
    /// Bytes of a payload that pass unseen.
    skip: usize,
}

/// What the scanner has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// A frame begins, so long with its header.
    Frame(Kind, usize),
    Credit(Credit),
}

impl Scanner {
    /// Looks at the next bytes of the stream as far as the next finding; how many bytes that took.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<(usize, Option<Found>), Malformed> {
        let mut at = self.skip.min(bytes.len());
        self.skip -= at;
        while let Some(byte) = bytes.get(at) {
            at += 1;
            self.head[self.have] = *byte;
            self.have += 1;
            let Some((kind, length, own)) = take_header(&self.head[..self.have])? else { continue };
            if kind != Kind::Credit {
                (self.have, self.skip) = (0, length);
                return Ok((at, Some(Found::Frame(kind, own + length))));
            }
            if self.have == own + length {
                let credit = Credit::take(&self.head[own..self.have])?;
                self.have = 0;
                return Ok((at, Some(Found::Credit(credit))));
            }
        }
        Ok((at, None))
    }
}

/// Bytes that have arrived and wait for the site, in pieces.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    pieces: VecDeque<Vec<u8>>,
    /// Of the first piece, what has gone.
    at: usize,
    held: usize,
}

impl Backlog {
    /// Most bytes of a piece.
    const PIECE: usize = 64 << 10;

    /// Memory in use.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        if let Some(last) = self.pieces.back_mut() {
            // Small amounts are gathered; a piece doubles as a vector does, up to its limit.
            let (fits, rest) = bytes.split_at(bytes.len().min(Backlog::PIECE - last.len().min(Backlog::PIECE)));
            let before = last.capacity();
            if last.len() + fits.len() > before {
                let more = (2 * before).clamp(last.len() + fits.len(), Backlog::PIECE);
                last.reserve_exact(more - last.len());
            }
            last.extend_from_slice(fits);
            self.held += last.capacity() - before;
            bytes = rest;
        }
        for piece in bytes.chunks(Backlog::PIECE) {
            let piece = piece.to_vec();
            self.held += piece.capacity();
            self.pieces.push_back(piece);
        }
    }

    /// Moves up to `most` bytes to the end of `into`; how many.
    pub(crate) fn take(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let Some(first) = self.pieces.front() else { return 0 };
        let rest = &first[self.at..];
        let taken = rest.len().min(most);
        into.extend_from_slice(&rest[..taken]);
        self.at += taken;
        if self.at == first.len() {
            self.held -= first.capacity();
            self.pieces.pop_front();
            self.at = 0;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(scanner: &mut Scanner, mut bytes: &[u8], into: &mut Vec<Found>) -> Result<(), Malformed> {
        while !bytes.is_empty() {
            let (taken, found) = scanner.next(bytes)?;
            into.extend(found);
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn the_scanner_finds_the_same_in_any_pieces(
            bytes in proptest::collection::vec(any::<u8>(), 0..400), cuts in proptest::collection::vec(1_usize..20, 1..400),
        ) {
            let (mut whole, mut pieces) = (Vec::new(), Vec::new());
            let one = scan(&mut Scanner::default(), &bytes, &mut whole);
            let mut scanner = Scanner::default();
            let (mut rest, mut other) = (&bytes[..], Ok(()));
            for cut in cuts.iter().cycle() {
                if rest.is_empty() || other.is_err() {
                    break;
                }
                let (piece, after) = rest.split_at(rest.len().min(*cut));
                other = scan(&mut scanner, piece, &mut pieces);
                rest = after;
            }
            prop_assert_eq!((one, whole), (other, pieces));
        }

        #[test]
        fn a_backlog_gives_what_it_was_given(
            pieces in proptest::collection::vec((0_usize..100_000, 1_usize..100_000), 0..12),
        ) {
            let (mut backlog, mut given, mut taken) = (Backlog::default(), Vec::new(), Vec::new());
            for (length, most) in pieces {
                let piece: Vec<u8> = (0..length).map(|i| (given.len() + i) as u8).collect();
                backlog.push(&piece);
                given.extend(piece);
                backlog.take(&mut taken, most);
                let held: usize = backlog.pieces.iter().map(Vec::capacity).sum();
                prop_assert_eq!(held, backlog.held());
                prop_assert!(held <= 2 * (given.len() - taken.len()) + 2 * Backlog::PIECE);
            }
            while backlog.take(&mut taken, 7_001) > 0 {}
            prop_assert!(given == taken);
            prop_assert_eq!((backlog.held(), backlog.pieces.is_empty()), (0, true));
        }

        #[test]
        fn a_sender_that_keeps_to_its_credit_never_oversteps_it_and_the_budget_is_kept(
            steps in proptest::collection::vec((0_usize..6, 0_usize..4, 0_u64..400_000), 1..300),
            total in 0_u64..4_000_000,
        ) {
            let mut budget = Budget::new(total);
            let mut grants: Vec<Grant> = (0..6).map(|_| Grant::default()).collect();
            let mut credit = [BASE; 6];
            let trip = 300_000;
            for (i, what, amount) in steps {
                let grant = &mut grants[i];
                match what {
                    0 => {
                        let sent = amount.min(credit[i]);
                        prop_assert!(grant.note_used(sent as usize).is_ok());
                        credit[i] -= sent;
                    }
                    1 => {
                        let read = amount.min(grant.used - grant.consumed);
                        grant.note_consumed(Instant::ZERO, read as usize);
                        grant.account(&mut budget);
                    }
                    2 => {
                        let waits = grant.used - grant.consumed;
                        credit[i] += u64::from(grant.renew(trip, waits, &mut budget).unwrap_or(0)) * UNIT;
                    }
                    _ => {
                        let back = credit[i].saturating_sub(BASE).min(amount);
                        prop_assert!(grant.take_back(back, &mut budget).is_ok());
                        credit[i] -= back;
                    }
                }
                prop_assert_eq!(grants[i].granted - grants[i].used, credit[i]);
                prop_assert!(grants[i].granted - grants[i].consumed <= (TRIPS * trip).max(BASE));
                prop_assert!(budget.reserved() <= budget.most, "{} of {}", budget.reserved(), budget.most);
            }
            for (grant, credit) in grants.iter_mut().zip(credit) {
                prop_assert!(grant.note_used(credit as usize + 1).is_err());
                grant.close(&mut budget);
            }
            prop_assert_eq!(budget.reserved(), 0);
        }
    }

    #[test]
    fn a_direction_that_drains_gets_the_whole_window_in_three_round_trips() {
        let mut budget = Budget::new(64 << 20);
        let mut grant = Grant::default();
        let trip = 812_500;
        let (mut credit, mut trips) = (BASE, 0);
        while grant.window < TRIPS * trip {
            grant.note_used(credit as usize).unwrap();
            grant.note_consumed(Instant::ZERO, credit as usize);
            credit = u64::from(grant.renew(trip, 0, &mut budget).unwrap()) * UNIT;
            trips += 1;
        }
        assert_eq!(trips, 3);
        // A slow one keeps its window, and gives half of it back where memory is short.
        let mut slow = Grant::default();
        slow.note_used(BASE as usize).unwrap();
        slow.note_consumed(Instant::ZERO, BASE as usize);
        assert_eq!(slow.renew(trip, 1, &mut budget), Some(64));
        let mut scarce = Budget { most: 16 << 20, reserved: 15 << 20, short: false };
        slow.window = 1 << 20;
        slow.consumed += BASE / 2;
        assert_eq!(slow.renew(trip, 600_000, &mut scarce), Some(480));
        assert_eq!(slow.window, 512 << 10);
    }
}
