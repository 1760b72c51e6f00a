//! The sender's scoreboard: every segment sent and not acknowledged, and what became of it (RFC 6675 §3; counts as in
//! Linux: in flight = out − sacked − lost + retransmitted).

use super::ranges::Ranges;
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;

/// A segment on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// First sequence number.
    pub start: u64,
    /// Last one + 1.
    pub end: u64,
    /// When it was sent last.
    pub at: Instant,
    /// Its number among all segments sent; a repetition counts as a new one.
    pub order: u64,
    /// The number of retransmissions (at least; a short number keeps this to 64 bytes, a cache line).
    pub retransmissions: u16,
    /// Selectively acknowledged.
    pub sacked: bool,
    /// Held to be lost.
    pub lost: bool,
    /// A retransmission is on its way.
    pub retransmitted: bool,
    /// It begins a packet buffer of the sender's, which may hold more than one segment.
    pub leads: bool,
    /// The sender had less to send than it might have.
    pub app_limited: bool,
    /// Segments delivered when it was sent.
    pub delivered: u64,
    /// When the last of them was.
    pub delivered_at: Instant,
    /// When the first segment of that flight had been sent.
    pub flight_started: Instant,
}

/// All segments between the first unacknowledged byte and the last sent one.
#[derive(Debug, Default)]
pub struct Scoreboard {
    segments: VecDeque<Sent>,
    sacked_ranges: Ranges,
    /// Selectively acknowledged segments; without SACK, duplicate acknowledgements stand for them.
    pub sacked: u32,
    /// Segments held to be lost.
    pub lost: u32,
    /// Retransmissions on their way.
    pub retransmitted: u32,
    /// Packet buffers that hold the segments.
    buffers: u32,
    /// Below this sequence number, every segment never retransmitted is sacked or lost.
    undecided: u64,
    /// Below this, no segment waits for retransmission.
    repaired: u64,
    /// Retransmissions in the order of sending: first sequence number, number among all segments.
    repairs: VecDeque<(u64, u64)>,
}

/// The changes that an acknowledgement made to the scoreboard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Segments acknowledged cumulatively.
    pub acked: u32,
    /// Segments delivered that were not known to be: cumulatively and not sacked before, or sacked now.
    pub delivered: u32,
    /// Of those, segments sacked now.
    pub sacked: u32,
    /// The newest never-retransmitted segment acknowledged cumulatively: when it was sent.
    pub newest_original: Option<Instant>,
    /// The newest delivered segment by time of sending.
    pub newest: Option<Sent>,
    /// The newest never-retransmitted segment sacked now: when it was sent.
    pub newest_sacked: Option<Instant>,
    /// The lowest never-retransmitted segment delivered now.
    pub lowest_original: Option<u64>,
    /// A retransmitted segment was acknowledged cumulatively.
    pub retransmission_acked: bool,
}

impl Progress {
    fn note(&mut self, sent: &Sent) {
        self.delivered += 1;
        let newer = self.newest.is_none_or(|best| sent.order > best.order);
        if newer {
            self.newest = Some(*sent);
        }
        if sent.retransmissions == 0 {
            self.lowest_original = Some(self.lowest_original.map_or(sent.start, |low| low.min(sent.start)));
        }
    }
}

impl Scoreboard {
    /// Segments between the first unacknowledged byte and the last sent one.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Segments believed to be in the network.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        (self.out() + self.retransmitted).saturating_sub(self.sacked + self.lost)
    }

    /// Nothing is unacknowledged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Packet buffers that hold these segments.
    #[must_use]
    pub fn buffers(&self) -> u64 {
        u64::from(self.buffers)
    }

    /// Segment `index`, if there is one, begins a packet buffer from now on.
    fn lead(&mut self, index: usize) {
        if let Some(sent) = self.segments.get_mut(index)
            && !sent.leads
        {
            sent.leads = true;
            self.buffers += 1;
        }
    }

    /// The oldest unacknowledged segment.
    #[must_use]
    pub fn head(&self) -> Option<&Sent> {
        self.segments.front()
    }

    /// The newest one.
    #[must_use]
    pub fn tail(&self) -> Option<&Sent> {
        self.segments.back()
    }

    /// Highest sequence number selectively acknowledged + 1; 0: none.
    #[must_use]
    pub fn sacked_until(&self) -> u64 {
        self.sacked_ranges.end()
    }

    /// A new segment was sent.
    pub fn push(&mut self, sent: Sent) {
        self.buffers += u32::from(sent.leads);
        self.segments.push_back(sent);
    }

    /// Segment number `index`, if there is one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Sent> {
        self.segments.get(index)
    }

    /// The number of the segment that holds `sequence` (one past the last: none).
    fn index_of(&self, sequence: u64) -> usize {
        self.segments.partition_point(|sent| sent.end <= sequence)
    }

    /// Everything below `acknowledged` arrived. `needless` says of a repetition that what it repeated had arrived before
    /// (the timestamp echo is older).
    pub fn acknowledge(
        &mut self,
        acknowledged: u64,
        has_sack: bool,
        needless: impl Fn(&Sent) -> bool,
        progress: &mut Progress,
    ) {
        while let Some(sent) = self.segments.front()
            && sent.end <= acknowledged
        {
            progress.acked += 1;
            if sent.retransmissions > 0 {
                progress.retransmission_acked = true;
                self.retransmitted -= u32::from(sent.retransmitted);
            } else if !sent.sacked {
                progress.newest_original = Some(sent.at);
            }
            self.lost -= u32::from(sent.lost);
            if sent.sacked {
                self.sacked -= 1;
            } else if sent.retransmissions > 0 && needless(sent) {
                progress.delivered += u32::from(has_sack);
            } else if has_sack {
                progress.note(sent);
            } else {
                // Without SACK the caller settles how many duplicate acknowledgements stood for these.
                let before = progress.delivered;
                progress.note(sent);
                progress.delivered = before;
            }
            let led = sent.leads;
            self.segments.pop_front();
            if led {
                self.buffers -= 1;
                self.lead(0);
            }
        }
        // A segment acknowledged in part keeps what is left.
        if let Some(sent) = self.segments.front_mut()
            && sent.start < acknowledged
        {
            sent.start = acknowledged;
        }
        self.sacked_ranges.remove_below(acknowledged);
        if self.segments.is_empty() {
            self.repairs.clear();
        }
    }

    /// As [`Scoreboard::acknowledge`] with SACK, while everything is in order: nothing is held to be lost or sacked,
    /// and whole segments that were sent once arrived. `None`: it is not so, and nothing was done. Also when the oldest
    /// of them left.
    #[inline]
    pub fn acknowledge_in_order(&mut self, acknowledged: u64) -> Option<(Progress, Instant)> {
        if self.sacked + self.lost + self.retransmitted > 0 {
            return None;
        }
        let oldest = *self.segments.front()?;
        let mut newest = None;
        let (mut acked, mut led) = (0, 0);
        for sent in &self.segments {
            if sent.end > acknowledged {
                if sent.start < acknowledged {
                    return None;
                }
                break;
            }
            if sent.retransmissions > 0 {
                return None;
            }
            acked += 1;
            led += u32::from(sent.leads);
            newest = Some(sent);
        }
        let newest = *newest?;
        for _ in 0..acked {
            self.segments.pop_front();
        }
        if led > 0 {
            self.buffers -= led;
            self.lead(0);
        }
        self.sacked_ranges.remove_below(acknowledged);
        if self.segments.is_empty() {
            self.repairs.clear();
        }
        let progress = Progress {
            acked,
            delivered: acked,
            newest_original: Some(newest.at),
            newest: Some(newest),
            lowest_original: Some(oldest.start),
            ..Progress::default()
        };
        Some((progress, oldest.at))
    }

    /// Bytes `first` to `past` arrived out of order.
    pub fn sack(&mut self, first: u64, past: u64, progress: &mut Progress) {
        let Scoreboard { segments, sacked_ranges, sacked, lost, retransmitted, .. } = self;
        let (low, high) = sacked_ranges.joined_with(first, past);
        sacked_ranges.insert(first, past, |from, to| {
            let start = segments.partition_point(|sent| sent.end <= from);
            for sent in segments.range_mut(start..) {
                if sent.start >= to {
                    break;
                }
                // Only whole segments count (RFC 6675 §3).
                if sent.sacked || sent.start < low || sent.end > high {
                    continue;
                }
                sent.sacked = true;
                *sacked += 1;
                *lost -= u32::from(std::mem::take(&mut sent.lost));
                *retransmitted -= u32::from(std::mem::take(&mut sent.retransmitted));
                progress.note(sent);
                if sent.retransmissions == 0 {
                    progress.newest_sacked = progress.newest_sacked.max(Some(sent.at));
                }
            }
        });
    }

    fn mark(&mut self, index: usize) -> bool {
        let Some(sent) = self.segments.get_mut(index) else { return false };
        if sent.sacked || (sent.lost && !sent.retransmitted) {
            return false;
        }
        if !sent.lost {
            sent.lost = true;
            self.lost += 1;
        }
        // A retransmission that was lost again.
        self.retransmitted -= u32::from(std::mem::take(&mut sent.retransmitted));
        self.repaired = self.repaired.min(sent.start);
        true
    }

    /// The oldest segment is lost. `false`: it was held to be already.
    pub fn mark_head_lost(&mut self) -> bool {
        self.segments.front().is_some_and(|head| !head.lost) && self.mark(0)
    }

    /// Marks lost what `lost` says of each segment that is not sacked; returns how many.
    pub fn mark_lost_if(&mut self, mut lost: impl FnMut(usize, &Sent) -> bool) -> u32 {
        let mut count = 0;
        for index in 0..self.segments.len() {
            if lost(index, &self.segments[index]) {
                count += u32::from(self.mark(index));
            }
        }
        count
    }

    /// RACK (RFC 8985 §6.2 step 5): marks lost whatever was sent before segment number `newest` (see [`Sent::order`])
    /// and is overdue at `now`: sent more than `patience` ago. Returns how many were marked, and when the last of the
    /// others is overdue.
    pub fn mark_overdue(&mut self, newest: u64, now: Instant, patience: Duration) -> (u32, Option<Instant>) {
        let mut count = 0;
        let mut next: Option<Instant> = None;
        // Retransmissions, in the order of sending.
        let mut kept = 0;
        while let Some((start, order)) = self.repairs.get(kept).copied() {
            let index = self.index_of(start);
            let current = self.segments.get(index).filter(|s| s.start <= start && s.order == order && s.retransmitted);
            let Some(sent) = current else {
                self.repairs.remove(kept);
                continue;
            };
            if sent.order >= newest {
                break;
            }
            let due = sent.at + patience;
            if due <= now {
                count += u32::from(self.mark(index));
                self.repairs.remove(kept);
            } else {
                // The last to be overdue decides when to look again.
                next = next.max(Some(due));
                kept += 1;
            }
        }
        // Segments sent once, in the order of sending, which is that of their numbers.
        let mut index = self.index_of(self.undecided);
        let mut advance = true;
        while let Some(sent) = self.segments.get(index).copied() {
            if !sent.sacked && !sent.lost && !sent.retransmitted {
                let due = sent.at + patience;
                if sent.order >= newest {
                    if sent.retransmissions == 0 {
                        break;
                    }
                    // Repeated, and then held not to be lost after all: out of order in time.
                    advance = false;
                } else if due <= now {
                    count += u32::from(self.mark(index));
                } else {
                    next = next.max(Some(due));
                    advance = false;
                }
            }
            if advance {
                self.undecided = sent.end;
            }
            index += 1;
        }
        (count, next)
    }

    /// RFC 6675 §4 IsLost: marks lost the segments with at least `duplicates` sacked ones above them; returns how many.
    pub fn mark_below_sacked(&mut self, duplicates: u32, limit: u64) -> u32 {
        let mut count = 0;
        let Some(mut above) = self.sacked.checked_sub(duplicates) else { return 0 };
        let mut index = 0;
        // `above` more sacked segments may be passed; what is not sacked before that is lost.
        while let Some(sent) = self.segments.get(index) {
            if sent.start >= limit || sent.start >= self.sacked_ranges.end() {
                break;
            }
            if sent.sacked {
                if above == 0 {
                    break;
                }
                above -= 1;
            } else if !sent.lost && sent.retransmissions == 0 {
                count += u32::from(self.mark(index));
            }
            index += 1;
        }
        count
    }

    /// The first segment that waits for retransmission.
    pub fn next_repair(&mut self) -> Option<usize> {
        if self.lost <= self.retransmitted {
            return None;
        }
        let mut index = self.index_of(self.repaired);
        while let Some(sent) = self.segments.get(index) {
            if sent.lost && !sent.retransmitted && !sent.sacked {
                return Some(index);
            }
            self.repaired = sent.end;
            index += 1;
        }
        None
    }

    /// Segment `index` is sent again.
    pub fn retransmit(&mut self, index: usize, stamp: impl FnOnce(&mut Sent)) {
        let Some(sent) = self.segments.get_mut(index) else { return };
        stamp(sent);
        sent.retransmissions = sent.retransmissions.saturating_add(1);
        if !sent.retransmitted {
            sent.retransmitted = true;
            self.retransmitted += 1;
        }
        self.repairs.push_back((sent.start, sent.order));
        // It gets a packet buffer of its own.
        self.lead(index);
        self.lead(index + 1);
    }

    /// Cuts segment `index` so that its first part has `bytes` bytes.
    pub fn split(&mut self, index: usize, bytes: u64) {
        let Some(sent) = self.segments.get_mut(index) else { return };
        let rest = Sent { start: sent.start + bytes, leads: true, ..*sent };
        if rest.start >= rest.end {
            return;
        }
        sent.end = rest.start;
        self.buffers += 1;
        self.sacked += u32::from(rest.sacked);
        self.lost += u32::from(rest.lost);
        self.retransmitted += u32::from(rest.retransmitted);
        self.segments.insert(index + 1, rest);
    }

    /// No segment is lost after all.
    pub fn forget_losses(&mut self) {
        self.segments.iter_mut().for_each(|sent| sent.lost = false);
        self.lost = 0;
        self.undecided = 0;
    }

    /// The receiver dropped what it had selectively acknowledged (RFC 2018 §8).
    pub fn forget_sacks(&mut self) {
        self.segments.iter_mut().for_each(|sent| sent.sacked = false);
        self.sacked = 0;
        self.sacked_ranges = Ranges::default();
        self.undecided = 0;
    }

    /// True if any segment in flight has been sent more than once.
    #[must_use]
    pub fn any_retransmitted(&self) -> bool {
        self.segments.front().is_some_and(|head| head.retransmissions > 0) || self.retransmitted > 0
    }

    /// Checks the counts against the segments.
    #[cfg(test)]
    pub fn check(&self, has_sack: bool) {
        let count = |f: fn(&Sent) -> bool| self.segments.iter().filter(|s| f(s)).count() as u32;
        if has_sack {
            assert_eq!(self.sacked, count(|s| s.sacked), "sacked");
        }
        assert_eq!(self.lost, count(|s| s.lost), "lost");
        assert_eq!(self.buffers, count(|s| s.leads), "packet buffers");
        assert_eq!(self.retransmitted, count(|s| s.retransmitted), "retransmitted");
        assert!(self.segments.iter().all(|s| !(s.sacked && s.lost)));
    }
}
