//! Credit: how much the other relay may send before more of it has been given to the site.
//!
//! Each direction of a connection has its own, so that a reader who rests holds back its own sender and nobody else: what
//! has arrived waits in the satellite side, stream by stream, and never in the windows that all streams share. Every
//! direction may have [`BASE`] on its way; what goes beyond it comes from one [`Budget`]. Data, packed and urgent frames
//! cost their whole length, header included, or a quarter of what is in them ([`cost`](super::frame::cost)); all others are free, and [`FREE`] bytes of them may wait. Credit goes on the
//! pair's control stream, so what arrives need not be looked at before its turn: the satellite side holds the other
//! relay to its credit by the bytes that it keeps ([`Grant::limit`]).

use super::frame::{Credit, Malformed, UNIT};
use crate::satellite::{UNREAD_FIRST, Unread};
use bentpipe_net::time::{Duration, Instant};

/// Bytes that every direction may have in flight without credit: four frames, and a request of any ordinary length.
pub(crate) const BASE: u64 = 64 << 10;
/// Bytes of frames that cost nothing: an opening with the longest name, or a reply, and the end.
const FREE: u64 = 1 << 10;
// Nobody oversteps before a relay has seen the stream.
const _: () = assert!(BASE + FREE == UNREAD_FIRST);
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

/// What the receiver of a direction keeps. All numbers count bytes of frames that cost, from the start of the stream.
#[derive(Debug)]
pub(crate) struct Grant {
    granted: u64,
    /// What has been given to the site.
    consumed: u64,
    /// The bytes to grant beyond `consumed`.
    window: u64,
    /// `consumed` when the window was last made larger.
    grown: u64,
    /// Counted in the budget.
    reserved: u64,
    /// Nothing that costs will come any more.
    ended: bool,
    active: Instant,
    requested: bool,
}

impl Default for Grant {
    fn default() -> Grant {
        Grant {
            granted: BASE,
            consumed: 0,
            window: BASE,
            grown: 0,
            reserved: 0,
            ended: false,
            active: Instant::ZERO,
            requested: false,
        }
    }
}

impl Grant {
    /// So much has been given to the site.
    pub(crate) fn note_consumed(&mut self, now: Instant, bytes: usize) -> Result<(), Malformed> {
        self.consumed += bytes as u64;
        self.active = now;
        if self.consumed > self.granted && !self.ended {
            return Err(Malformed("more data than there was credit for"));
        }
        Ok(())
    }

    /// Bytes of the stream that may wait to be read.
    pub(crate) fn limit(&self) -> u64 {
        self.granted.saturating_sub(self.consumed) + FREE
    }

    /// All that will come is there: `rest` bytes more.
    pub(crate) fn note_complete(&mut self, rest: u64, budget: &mut Budget) {
        if !std::mem::replace(&mut self.ended, true) {
            self.granted = self.granted.min(self.consumed + rest);
            self.account(budget);
        }
    }

    /// The other side gives credit back.
    pub(crate) fn take_back(&mut self, bytes: u64, budget: &mut Budget) -> Result<(), Malformed> {
        if self.ended {
            return Ok(());
        }
        if bytes > self.granted.saturating_sub(self.consumed) {
            return Err(Malformed("more credit given back than there was"));
        }
        self.granted -= bytes;
        self.window = (self.granted.saturating_sub(self.consumed)).max(BASE);
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
        let outstanding = self.granted.saturating_sub(self.consumed);
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
        self.requested = false;
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
        let reserved = (self.granted.saturating_sub(self.consumed)).saturating_sub(BASE);
        budget.reserved = budget.reserved + reserved - self.reserved;
        self.reserved = reserved;
    }

    /// Gives everything back to the budget: the connection is over.
    pub(crate) fn close(&mut self, budget: &mut Budget) {
        budget.reserved -= self.reserved;
        *self = Grant { ended: true, ..Grant::default() };
    }

    /// True if the other side is to be asked for what it does not use; said once for each credit.
    pub(crate) fn asks_back(&mut self, now: Instant, unread: Unread) -> bool {
        let unused = (self.granted.saturating_sub(self.consumed)).saturating_sub(BASE + unread.all).min(self.reserved);
        unused >= UNIT && now.since(self.active) >= IDLE && !std::mem::replace(&mut self.requested, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sender_that_keeps_to_its_credit_never_oversteps_it_and_the_budget_is_kept(
            steps in proptest::collection::vec((0_usize..6, 0_usize..4, 0_u64..400_000), 1..300),
            total in 0_u64..4_000_000,
        ) {
            let mut budget = Budget::new(total);
            let mut grants: Vec<Grant> = (0..6).map(|_| Grant::default()).collect();
            let (mut credit, mut unread) = ([BASE; 6], [0; 6]);
            let trip = 300_000;
            for (i, what, amount) in steps {
                let grant = &mut grants[i];
                match what {
                    0 => {
                        let sent = amount.min(credit[i]);
                        credit[i] -= sent;
                        unread[i] += sent;
                    }
                    1 => {
                        let read = amount.min(unread[i]);
                        unread[i] -= read;
                        prop_assert!(grant.note_consumed(Instant::ZERO, read as usize).is_ok());
                        grant.account(&mut budget);
                    }
                    2 => {
                        credit[i] += u64::from(grant.renew(trip, unread[i], &mut budget).unwrap_or(0)) * UNIT;
                    }
                    _ => {
                        let back = credit[i].saturating_sub(BASE).min(amount);
                        prop_assert!(grant.take_back(back, &mut budget).is_ok());
                        credit[i] -= back;
                    }
                }
                prop_assert_eq!(grants[i].limit(), credit[i] + unread[i] + FREE);
                prop_assert!(grants[i].limit() <= (TRIPS * trip).max(BASE) + FREE);
                prop_assert!(budget.reserved() <= budget.most, "{} of {}", budget.reserved(), budget.most);
            }
            for (grant, credit) in grants.iter_mut().zip(credit) {
                grant.note_complete(credit / 2, &mut budget);
                prop_assert!(grant.limit() <= credit / 2 + FREE);
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
            grant.note_consumed(Instant::ZERO, credit as usize).unwrap();
            credit = u64::from(grant.renew(trip, 0, &mut budget).unwrap()) * UNIT;
            trips += 1;
        }
        assert_eq!(trips, 3);
        // A slow one keeps its window, and gives half of it back where memory is short.
        let mut slow = Grant::default();
        slow.note_consumed(Instant::ZERO, BASE as usize).unwrap();
        assert_eq!(slow.renew(trip, 1, &mut budget), Some(64));
        let mut scarce = Budget { most: 16 << 20, reserved: 15 << 20, short: false };
        slow.window = 1 << 20;
        slow.consumed += BASE / 2;
        assert_eq!(slow.renew(trip, 600_000, &mut scarce), Some(480));
        assert_eq!(slow.window, 512 << 10);
    }
}
