//! Impairments: what happens to packets between a transmitter and a receiver. Bit errors are in [`crate::noise`].

use crate::noise::RatioSchedule;
use bentpipe_net::seed::{Stream, unit};
use bentpipe_net::time::{Duration, Instant};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Something that happens to the packets on their way to one receiver: errors, losses, delay.
pub trait Impairment: Any + fmt::Debug + Send {
    /// Decides about one packet. Calls come in the order of transmission; the impairments of a medium stand in a row, and each
    /// sees in `fate` what those before it did.
    fn apply(&mut self, transmission: &Transmission, fate: &mut Fate<'_>);

    /// Its bit error ratio over time, which the switch of a circuit watches ([`crate::circuit`]).
    fn error_ratio(&self) -> Option<&RatioSchedule> {
        None
    }
}

/// A packet's transmission.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Transmission {
    /// When its first bit left.
    pub start: Instant,
    /// When its last bit left.
    pub end: Instant,
    /// Bits on the wire, framing included.
    pub bits: u64,
}

/// What becomes of a packet.
pub struct Fate<'a> {
    /// Inverts a bit of the packet; `None`: the framing's check discards it if one is wrong.
    invert: Option<&'a mut dyn FnMut(u64)>,
    bit_errors: u64,
    lost: bool,
    delay: Duration,
}

impl<'a> Fate<'a> {
    pub(crate) fn new(invert: Option<&'a mut dyn FnMut(u64)>) -> Self {
        Fate { invert, bit_errors: 0, lost: false, delay: Duration::ZERO }
    }

    /// The packet is lost as a whole.
    pub fn lose(&mut self) {
        self.lost = true;
    }

    /// It takes so much longer. Packets never overtake each other: one that would waits for the one before.
    pub fn delay(&mut self, by: Duration) {
        self.delay += by;
    }

    /// So many of its bits are wrong, wherever. For packets of which [`Fate::needs_positions`] does not ask where.
    pub fn damage(&mut self, bits: u64) {
        self.bit_errors += bits;
    }

    /// Bit number `bit` is wrong, counted from the first.
    pub fn invert(&mut self, bit: u64) {
        self.bit_errors += 1;
        if let Some(invert) = &mut self.invert {
            invert(bit);
        }
    }

    /// The packet will arrive with its errors, so it matters which bits are wrong.
    #[must_use]
    pub fn needs_positions(&self) -> bool {
        self.invert.is_some() && !self.lost
    }

    /// Lost as a whole by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// It will not arrive: lost, or discarded by the framing's check.
    #[must_use]
    pub fn is_discarded(&self) -> bool {
        self.lost || (self.bit_errors > 0 && self.invert.is_none())
    }

    /// Bits that are wrong by now.
    #[must_use]
    pub fn bit_errors(&self) -> u64 {
        self.bit_errors
    }

    /// The delay besides the medium's own.
    #[must_use]
    pub fn added_delay(&self) -> Duration {
        self.delay
    }
}

/// An impairment with its settings, ready to be made for each receiver.
#[derive(Clone)]
pub struct ImpairmentSpec {
    kind: &'static str,
    make: Arc<dyn Fn(Stream) -> Box<dyn Impairment> + Send + Sync>,
}

impl ImpairmentSpec {
    /// `make` gets the random stream of the impairment at one receiver.
    pub fn new(kind: &'static str, make: impl Fn(Stream) -> Box<dyn Impairment> + Send + Sync + 'static) -> Self {
        ImpairmentSpec { kind, make: Arc::new(make) }
    }

    /// Its name in link files.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The impairment at one receiver.
    #[must_use]
    pub fn build(&self, random: Stream) -> Box<dyn Impairment> {
        (self.make)(random)
    }
}

impl fmt::Debug for ImpairmentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ImpairmentSpec").field(&self.kind).finish()
    }
}

/// Loss of whole packets as a share and a mean burst length (Gilbert 1960, with certain loss in the bad state).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PacketLoss {
    /// Share of packets lost, 0 to 1.
    pub share: f64,
    /// Packets lost in a row, on average; 1 / (1 − share) is what independent losses make.
    pub burst_mean: f64,
}

impl PacketLoss {
    /// Independent losses.
    #[must_use]
    pub fn independent(share: f64) -> Self {
        PacketLoss { share, burst_mean: 1.0 / (1.0 - share).max(f64::MIN_POSITIVE) }
    }
}

/// The two-state chain of [`PacketLoss`].
#[derive(Debug)]
pub struct LossProcess {
    random: Stream,
    losing: bool,
    /// Probability that a packet is the last of a run, of lost packets and of others.
    leave: f64,
    enter: f64,
}

impl LossProcess {
    /// Starts in the bad state with the probability of the share.
    #[must_use]
    pub fn new(loss: PacketLoss, mut random: Stream) -> LossProcess {
        let losing = unit(&mut random) < loss.share;
        let leave = 1.0 / loss.burst_mean;
        let enter = loss.share * leave / (1.0 - loss.share).max(f64::MIN_POSITIVE);
        LossProcess { random, losing, leave, enter }
    }
}

impl Impairment for LossProcess {
    fn apply(&mut self, _: &Transmission, fate: &mut Fate<'_>) {
        if self.losing {
            fate.lose();
        }
        let change = if self.losing { self.leave } else { self.enter };
        if unit(&mut self.random) < change {
            self.losing = !self.losing;
        }
    }
}

/// Times at which nothing gets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it starts.
    pub at: Instant,
    /// Its duration.
    pub lasts: Duration,
    /// Time from one start to the next; `None`: once.
    pub every: Option<Duration>,
}

impl Outage {
    /// True if any part of a transmission from `start` to `end` falls into the outage.
    #[must_use]
    pub fn touches(&self, start: Instant, end: Instant) -> bool {
        let overlaps = |begin: Instant| start < begin + self.lasts && end > begin;
        match self.every {
            None => overlaps(self.at),
            Some(every) => {
                // The last round begun before the transmission, and the one after.
                let round = start.since(self.at).ns / every.ns.max(1);
                let begin = self.at + Duration { ns: round * every.ns };
                overlaps(begin) || overlaps(begin + every)
            }
        }
    }
}

impl Impairment for Outage {
    fn apply(&mut self, transmission: &Transmission, fate: &mut Fate<'_>) {
        if self.touches(transmission.start, transmission.end) {
            fate.lose();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }

    #[test]
    fn outages_take_packets_that_touch_them() {
        let once = Outage { at: ms(100), lasts: Duration::from_millis(50), every: None };
        assert!(!once.touches(ms(90), ms(100)), "the last bit just made it");
        assert!(once.touches(ms(90), ms(101)));
        assert!(once.touches(ms(149), ms(160)));
        assert!(!once.touches(ms(150), ms(160)));
        let again = Outage { every: Some(Duration::from_millis(1000)), ..once };
        assert!(again.touches(ms(5120), ms(5121)) && !again.touches(ms(5200), ms(5201)));
        assert!(again.touches(ms(5090), ms(5101)), "across the start of a round");
    }
}
