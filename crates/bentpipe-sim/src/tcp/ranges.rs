//! Sets of sequence numbers as ranges without overlap.

/// Rising ranges, each (first, past), that neither overlap nor touch.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ranges: Vec<(u64, u64)>,
}

impl Ranges {
    /// The end of the highest range; 0: there is none.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |(_, past)| *past)
    }

    /// True if all of `first` to `past` is in the set.
    #[must_use]
    pub fn contains(&self, first: u64, past: u64) -> bool {
        let after = self.ranges.partition_point(|(start, _)| *start <= first);
        after > 0 && self.ranges[after - 1].1 >= past
    }

    /// The range that `first` to `past` becomes part of when it is added.
    #[must_use]
    pub fn joined_with(&self, first: u64, past: u64) -> (u64, u64) {
        let from = self.ranges.partition_point(|(_, end)| *end < first);
        let to = self.ranges.partition_point(|(start, _)| *start <= past);
        match self.ranges.get(from..to) {
            Some([one]) => (one.0.min(first), one.1.max(past)),
            Some([low, .., high]) => (low.0.min(first), high.1.max(past)),
            _ => (first, past),
        }
    }

    /// Adds `first` to `past` and calls `new` for each part that was not in the set.
    pub fn insert(&mut self, first: u64, past: u64, mut new: impl FnMut(u64, u64)) {
        if first >= past {
            return;
        }
        // Ranges that overlap or touch the new one.
        let from = self.ranges.partition_point(|(_, end)| *end < first);
        let mut to = from;
        let mut at = first;
        let mut joined = (first, past);
        while let Some((start, end)) = self.ranges.get(to).copied()
            && start <= past
        {
            if start > at {
                new(at, start);
            }
            at = at.max(end);
            joined = (joined.0.min(start), joined.1.max(end));
            to += 1;
        }
        if at < past {
            new(at, past);
        }
        if to == from + 1 {
            self.ranges[from] = joined;
        } else {
            self.ranges.splice(from..to, [joined]);
        }
    }

    /// Takes out everything below `until`.
    pub fn remove_below(&mut self, until: u64) {
        let Some((start, _)) = self.ranges.first() else { return };
        if *start >= until {
            return;
        }
        let gone = self.ranges.partition_point(|(_, past)| *past <= until);
        self.ranges.drain(..gone);
        if let Some((start, _)) = self.ranges.first_mut() {
            *start = (*start).max(until);
        }
    }

    /// The ranges, rising.
    #[must_use]
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn it_is_the_set_of_its_numbers(steps in proptest::collection::vec((0u64..60, 0u64..12, any::<bool>()), 1..40)) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for (first, length, remove) in steps {
                if remove && length == 0 {
                    ranges.remove_below(first);
                    set.retain(|n| *n >= first);
                } else {
                    let mut new = vec![];
                    let joined = ranges.joined_with(first, first + length);
                    ranges.insert(first, first + length, |from, to| new.extend(from..to));
                    let expected: Vec<u64> = (first..first + length).filter(|n| set.insert(*n)).collect();
                    prop_assert_eq!(new, expected);
                    prop_assert!(length == 0 || ranges.as_slice().contains(&joined));
                }
                let flat: Vec<u64> = ranges.as_slice().iter().flat_map(|(a, b)| *a..*b).collect();
                prop_assert_eq!(&flat, &set.iter().copied().collect::<Vec<_>>());
                prop_assert!(ranges.as_slice().windows(2).all(|w| w[0].1 < w[1].0));
            }
        }
    }
}
