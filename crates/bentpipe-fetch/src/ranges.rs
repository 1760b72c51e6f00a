//! Sets of byte ranges.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent half-open ranges of bytes, in order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds `start..end`; what is already there stays. An empty range adds nothing.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        // From the back: every range that begins at or before `end` and reaches `start` becomes part of the new one.
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ranges.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
    }

    /// Removes `start..end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&s, &e)) = self.ranges.range(..end).next_back() {
            if e <= start {
                break;
            }
            self.ranges.remove(&s);
            if e > end {
                self.ranges.insert(end, e);
            }
            if s < start {
                self.ranges.insert(s, start);
            }
        }
    }

    /// Takes out the lowest range, at most `most` bytes of it.
    pub fn take_first(&mut self, most: u64) -> Option<(u64, u64)> {
        let (start, end) = self.iter().next()?;
        let end = end.min(start.saturating_add(most));
        self.remove(start, end);
        Some((start, end))
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&start, &end)| (start, end))
    }

    /// Bytes in all ranges together.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|(start, end)| end - start).sum()
    }

    /// The parts of `0..size` that are missing.
    pub fn missing(&self, size: u64) -> RangeSet {
        let mut missing = RangeSet::default();
        missing.insert(0, size);
        for (start, end) in self.iter() {
            missing.remove(start, end);
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_bytes(steps in proptest::collection::vec((any::<bool>(), 0u64..64, 0u64..64), 0..40)) {
            let (mut ranges, mut bytes) = (RangeSet::default(), [false; 64]);
            for (add, start, end) in steps {
                if add { ranges.insert(start, end) } else { ranges.remove(start, end) }
                for at in start..end {
                    bytes[at as usize] = add;
                }
                let mut seen = [false; 64];
                let mut last = None;
                for (start, end) in ranges.iter() {
                    prop_assert!(start < end && last.is_none_or(|last| last < start), "joined and in order");
                    last = Some(end);
                    seen[start as usize..end as usize].fill(true);
                }
                prop_assert_eq!(seen, bytes);
                prop_assert_eq!(ranges.bytes() + ranges.missing(64).bytes(), 64);
            }
        }
    }
}
