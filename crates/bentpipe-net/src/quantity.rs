//! Kinds of measurement: a name, a unit, and which direction is good.

use std::fmt;

/// The unit of a measurement or of a series' values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// Bits per second.
    BitsPerSecond,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// A part of a whole, from 0 to 1.
    Share,
    /// A count, or any other number without a unit.
    Number,
}

/// Which direction is good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: a fact.
    Neither,
}

/// Something that is measured. Two quantities are the same when all three fields are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Quantity {
    /// Identifier and name in records, in snake case, such as `completion_time`. Unique among the measurements, and
    /// among the series, of one workload.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
}

impl Unit {
    /// As records write it: `bit/s`, `s`, `B`; `1` for shares and numbers.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::BitsPerSecond => "bit/s",
            Unit::Seconds => "s",
            Unit::Bytes => "B",
            Unit::Share | Unit::Number => "1",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

impl Quantity {
    /// A quantity of which more is better.
    #[must_use]
    pub const fn higher(name: &'static str, unit: Unit) -> Quantity {
        Quantity { name, unit, better: Better::Higher }
    }

    /// A quantity of which less is better.
    #[must_use]
    pub const fn lower(name: &'static str, unit: Unit) -> Quantity {
        Quantity { name, unit, better: Better::Lower }
    }

    /// A quantity that is neither good nor bad.
    #[must_use]
    pub const fn neutral(name: &'static str, unit: Unit) -> Quantity {
        Quantity { name, unit, better: Better::Neither }
    }
}
