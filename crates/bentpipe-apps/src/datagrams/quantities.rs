//! The quantities of a stream of datagrams: by their plain names where one direction is sent, with the direction's name
//! behind where both are.

use crate::Direction;
use crate::quantity::{Quantity, Unit};

/// Which names a direction's quantities have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// It is the only direction.
    Plain,
    /// It is one of two.
    Of(Direction),
}

macro_rules! measured {
    ($($(#[$doc:meta])* $variant:ident = $better:ident($name:literal, $unit:ident);)*) => {
        /// A quantity of one direction.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Measured {
            $($(#[$doc])* $variant,)*
        }

        impl Names {
            /// The quantity by its name here.
            #[must_use]
            pub const fn of(self, measured: Measured) -> Quantity {
                match (measured, self) {
                    $(
                        (Measured::$variant, Names::Plain) => Quantity::$better($name, Unit::$unit),
                        (Measured::$variant, Names::Of(Direction::Upload)) => {
                            Quantity::$better(concat!($name, "_upload"), Unit::$unit)
                        }
                        (Measured::$variant, Names::Of(Direction::Download)) => {
                            Quantity::$better(concat!($name, "_download"), Unit::$unit)
                        }
                    )*
                }
            }
        }

        /// All of them, by all their names.
        pub(super) const QUANTITIES: &[Quantity] = &[
            $(Names::Plain.of(Measured::$variant),)*
            $(Names::Of(Direction::Upload).of(Measured::$variant),)*
            $(Names::Of(Direction::Download).of(Measured::$variant),)*
        ];
    };
}

measured! {
    /// Datagrams sent.
    Sent = neutral("sent", Number);
    /// Different datagrams received undamaged.
    Received = neutral("received", Number);
    /// Sent, and possibly on their way: an unfinished run's.
    Pending = neutral("pending", Number);
    /// Lost ÷ (sent − pending).
    Loss = lower("loss", Share);
    /// Runs of consecutive datagrams lost.
    LossBursts = lower("loss_bursts", Number);
    /// Mean length of these runs.
    LossBurstMean = lower("loss_burst_mean", Number);
    /// Length of the longest run.
    LossBurstMax = lower("loss_burst_max", Number);
    /// Received after one that was sent later.
    Reordered = lower("reordered", Number);
    /// Further copies received.
    Duplicates = lower("duplicates", Number);
    /// Received with other data than were sent.
    Damaged = lower("damaged", Number);
    /// Received, but not of this run.
    Unknown = lower("unknown", Number);
    /// ICMP messages to the sender: nobody has the port, no route.
    Refused = lower("refused", Number);
    /// Series: mean one-way delay in an interval.
    Delay = lower("delay", Seconds);
    /// Shortest one-way delay.
    DelayMin = lower("delay_min", Seconds);
    /// Mean one-way delay.
    DelayMean = lower("delay_mean", Seconds);
    /// Median one-way delay.
    DelayMedian = lower("delay_median", Seconds);
    /// 95th percentile of the one-way delays.
    DelayP95 = lower("delay_p95", Seconds);
    /// 99th percentile of the one-way delays.
    DelayP99 = lower("delay_p99", Seconds);
    /// Longest one-way delay.
    DelayMax = lower("delay_max", Seconds);
    /// Interarrival jitter (RFC 3550 §6.4.1) at the end.
    Jitter = lower("jitter", Seconds);
    /// Its largest value.
    JitterMax = lower("jitter_max", Seconds);
    /// Mean difference between the delays of one arrival and the next.
    DelayVariation = lower("delay_variation", Seconds);
    /// Data sent per time, from the first datagram to the last.
    OfferedRate = neutral("offered_rate", BitsPerSecond);
    /// Data received per time, from the first arrival to the last; also as a series.
    ReceivedRate = higher("goodput", BitsPerSecond);
    /// Bytes of data received.
    Bytes = neutral("bytes", Bytes);
}
