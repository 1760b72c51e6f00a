//! Bit errors: independent ones with geometric gaps that run on across packet boundaries, at a ratio that may change
//! with time.

use crate::impairment::{Fate, Impairment, Transmission};
use bentpipe_net::seed::{Stream, exponential};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitErrorRatio;
use rand_distr::{Binomial, Distribution};

/// A bit error ratio over time.
#[derive(Clone, Debug, PartialEq)]
pub enum RatioSchedule {
    /// One ratio for ever.
    Constant(BitErrorRatio),
    /// A ratio for each step; the last one stays, or the sequence starts again.
    Steps {
        /// (start, ratio), the first at zero, starts rising.
        steps: Vec<(Instant, BitErrorRatio)>,
        /// Length of a round when the sequence repeats.
        repeat: Option<Duration>,
    },
}

impl RatioSchedule {
    /// Periodic bursts: `gap` of background, then `burst`, again and again (NTIA 98-354 Table 3.3: the gap is from the
    /// end of one burst to the start of the next).
    #[must_use]
    pub fn bursts(background: BitErrorRatio, burst: BitErrorRatio, duration: Duration, gap: Duration) -> Self {
        RatioSchedule::Steps {
            steps: vec![(Instant::ZERO, background), (Instant::ZERO + gap, burst)],
            repeat: Some(gap + duration),
        }
    }

    /// A sequence of ratios, each held for `dwell`; the last one stays, or the sequence repeats.
    #[must_use]
    pub fn sequence(ratios: &[BitErrorRatio], dwell: Duration, repeats: bool) -> Self {
        let at = |i: usize| Instant { ns: dwell.ns.saturating_mul(i as u64) };
        RatioSchedule::Steps {
            steps: ratios.iter().enumerate().map(|(i, ratio)| (at(i), *ratio)).collect(),
            repeat: repeats.then(|| at(ratios.len()) - Instant::ZERO),
        }
    }

    /// The ratio at `now` and the time at which that may change ([`Instant::FAR`]: never).
    #[must_use]
    pub fn at(&self, now: Instant) -> (BitErrorRatio, Instant) {
        match self {
            RatioSchedule::Constant(ratio) => (*ratio, Instant::FAR),
            RatioSchedule::Steps { steps, repeat } => {
                let round = repeat.map_or(0, |length| now.ns / length.ns.max(1) * length.ns.max(1));
                let inside = Instant { ns: now.ns - round };
                let next = steps.partition_point(|(start, _)| *start <= inside);
                let ratio = steps.get(next.saturating_sub(1)).map_or(BitErrorRatio::ZERO, |step| step.1);
                let until = match (steps.get(next), repeat) {
                    (Some((start, _)), _) => Instant { ns: round.saturating_add(start.ns) },
                    (None, Some(length)) => Instant { ns: round.saturating_add(length.ns) },
                    (None, None) => Instant::FAR,
                };
                (ratio, until)
            }
        }
    }

    /// No errors, ever.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        match self {
            RatioSchedule::Constant(ratio) => ratio.ratio() == 0.0,
            RatioSchedule::Steps { steps, .. } => steps.iter().all(|(_, ratio)| ratio.ratio() == 0.0),
        }
    }

    /// The first time, at or after `from`, at which the ratio has been above `limit` for `span` without a break (time
    /// before `from` does not count). Looks a bounded number of steps ahead; beyond them the answer is `None`.
    #[must_use]
    pub fn first_excess(&self, from: Instant, limit: BitErrorRatio, span: Duration) -> Option<Instant> {
        const STEPS_AHEAD: usize = 10_000;
        let mut since = None;
        let mut now = from;
        for _ in 0..STEPS_AHEAD {
            let (ratio, until) = self.at(now);
            if ratio > limit {
                let start = *since.get_or_insert(now);
                if until.since(start) >= span {
                    return Some(start + span);
                }
            } else {
                since = None;
            }
            if until == Instant::FAR {
                return None;
            }
            now = until;
        }
        None
    }
}

/// The errors of one receiver.
#[derive(Debug)]
pub struct NoiseProcess {
    schedule: RatioSchedule,
    random: Stream,
    /// Exponential with mean 1; an error happens where the hazard passed so far reaches it. Exactly geometric for each
    /// ratio, and carries over from one ratio to the next.
    hazard_left: f64,
}

impl NoiseProcess {
    /// The errors that `schedule` makes, from an own random stream.
    #[must_use]
    pub fn new(schedule: RatioSchedule, mut random: Stream) -> Self {
        let hazard_left = exponential(&mut random);
        NoiseProcess { schedule, random, hazard_left }
    }

    /// Passes `bits` bits sent from `start` to `end` and returns how many are wrong.
    pub fn count(&mut self, start: Instant, end: Instant, bits: u64) -> u64 {
        let mut errors = 0;
        let NoiseProcess { schedule, random, hazard_left, .. } = self;
        each_segment(schedule, start, end, bits, |_, length, ratio| {
            let hazard = -f64::ln_1p(-ratio);
            let before = (*hazard_left / hazard) as u64;
            if before >= length {
                *hazard_left -= hazard * length as f64;
                return;
            }
            // The rest of the segment is independent of the first error: count it in one draw, then start afresh.
            let rest = length - before - 1;
            errors += 1 + Binomial::new(rest, ratio).map_or(0, |b| b.sample(random));
            *hazard_left = exponential(random);
        });
        errors
    }

    /// Passes `bits` bits sent from `start` to `end` and calls `error` with the position of each wrong one.
    pub fn positions(&mut self, start: Instant, end: Instant, bits: u64, mut error: impl FnMut(u64)) {
        let NoiseProcess { schedule, random, hazard_left, .. } = self;
        each_segment(schedule, start, end, bits, |first, length, ratio| {
            let hazard = -f64::ln_1p(-ratio);
            let mut at = 0;
            while at < length {
                let before = (*hazard_left / hazard) as u64;
                if before >= length - at {
                    *hazard_left -= hazard * (length - at) as f64;
                    return;
                }
                at += before;
                error(first + at);
                at += 1;
                *hazard_left = exponential(random);
            }
        });
    }
}

impl Impairment for NoiseProcess {
    fn apply(&mut self, transmission: &Transmission, fate: &mut Fate<'_>) {
        let Transmission { start, end, bits } = *transmission;
        if fate.needs_positions() {
            self.positions(start, end, bits, |bit| fate.invert(bit));
        } else {
            fate.damage(self.count(start, end, bits));
        }
    }

    fn error_ratio(&self) -> Option<&RatioSchedule> {
        Some(&self.schedule)
    }
}

/// Cuts `bits` sent evenly from `start` to `end` where the ratio changes; calls `segment(first bit, bits, ratio)` for
/// each piece whose ratio is above zero.
fn each_segment(
    schedule: &RatioSchedule,
    start: Instant,
    end: Instant,
    bits: u64,
    mut segment: impl FnMut(u64, u64, f64),
) {
    let span = end.since(start).ns.max(1);
    let mut now = start;
    let mut first = 0;
    while first < bits {
        let (ratio, until) = schedule.at(now);
        let past = if until >= end {
            bits
        } else {
            let share = u128::from(bits) * u128::from(until.since(start).ns) / u128::from(span);
            u64::try_from(share).unwrap_or(bits)
        };
        if ratio.ratio() > 0.0 && past > first {
            segment(first, past - first, ratio.ratio());
        }
        first = past;
        now = until;
    }
}

/// NTIA 98-354 Table 2.4: bit error ratios of a strong to severe thunderstorm over an earth station.
pub const THUNDERSTORM: [f64; 24] = [
    7e-7, 3e-1, 2e-8, 4e-3, 6e-6, 2e-4, 4e-8, 7e-2, 5e-3, 3e-4, 3e-4, 2e-6, 1e-7, 4e-9, 1e-8, 4e-6, 2e-6, 3e-8, 3e-5,
    4e-8, 4e-2, 3e-3, 3e-8, 3e-4,
];

/// NTIA 98-354 Table 2.5: uplink bit error ratios in 15-minute steps while ACTS wandered, 21 January 1995.
pub const WANDER: [f64; 24] = [
    2e-6, 2e-6, 3e-6, 9e-6, 9e-6, 9e-6, 8e-6, 1e-4, 3e-4, 1e-4, 8e-5, 2e-4, 2e-5, 1e-4, 5e-5, 2e-5, 1e-5, 3e-6, 1e-6,
    9e-7, 7e-7, 5e-7, 3e-7, 1e-7,
];

/// NTIA 98-354 §2.3.2: the downlink's constant ratio during the wander, which adds to the uplink's.
pub const WANDER_DOWNLINK: f64 = 5e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::seed::Seed;

    fn ratio(r: f64) -> BitErrorRatio {
        BitErrorRatio::new(r).unwrap()
    }
    fn s(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// Half-width of the binomial's 99.9 % interval (normal approximation).
    fn allowed(trials: f64, p: f64) -> f64 {
        3.29 * (trials * p * (1.0 - p)).sqrt()
    }

    #[test]
    fn damaged_packets_follow_the_binomial() {
        for p in [1e-6, 1e-5, 1e-4, 1e-3] {
            let mut noise = NoiseProcess::new(RatioSchedule::Constant(ratio(p)), Seed(1).stream("x"));
            let (packets, bits) = (20_000u64, 12_056u64);
            let mut damaged = 0;
            let mut errors = 0;
            for i in 0..packets {
                let count = noise.count(s(i), s(i + 1), bits);
                damaged += u64::from(count > 0);
                errors += count;
            }
            let per = ratio(p).packet_error_ratio(bits);
            let off = (damaged as f64 - packets as f64 * per).abs();
            assert!(off <= allowed(packets as f64, per), "{p}: {damaged} damaged, expected {}", packets as f64 * per);
            let total = (packets * bits) as f64;
            assert!((errors as f64 - total * p).abs() <= allowed(total, p), "{p}: {errors} bit errors");
        }
    }

    #[test]
    fn positions_are_uniform_and_gaps_cross_packets() {
        let mut noise = NoiseProcess::new(RatioSchedule::Constant(ratio(1e-3)), Seed(2).stream("x"));
        let bits = 100u64;
        let mut buckets = [0u64; 10];
        let mut gaps_over_1000 = 0;
        let (mut last, mut total) = (0, 0u64);
        for packet in 0..200_000u64 {
            noise.positions(s(packet), s(packet + 1), bits, |at| {
                buckets[(at / 10) as usize] += 1;
                let absolute = packet * bits + at;
                gaps_over_1000 += u64::from(absolute - last > 1000);
                last = absolute;
                total += 1;
            });
        }
        let mean = total as f64 / 10.0;
        for (i, count) in buckets.iter().enumerate() {
            assert!((*count as f64 - mean).abs() < 3.9 * mean.sqrt(), "tenth {i}: {count}, mean {mean}");
        }
        // P(gap > 1000) = 0.999^1000, far longer than a packet: the gap really runs on.
        let p = 0.999f64.powi(1000);
        let off = (gaps_over_1000 as f64 - total as f64 * p).abs();
        assert!(off <= allowed(total as f64, p), "{gaps_over_1000} of {total} gaps above 1000 bits");
    }

    #[test]
    fn errors_move_with_the_ratio_inside_a_packet() {
        let bursts =
            RatioSchedule::bursts(BitErrorRatio::ZERO, ratio(0.5), Duration::from_secs(1), Duration::from_secs(1));
        let mut noise = NoiseProcess::new(bursts, Seed(3).stream("x"));
        let mut low = 0;
        let mut high = 0;
        noise.positions(s(0), s(2), 20_000, |at| if at < 10_000 { low += 1 } else { high += 1 });
        assert_eq!(low, 0, "the first second is clean");
        assert!((4800..5200).contains(&high), "{high} errors in the second half");
    }

    #[test]
    fn schedules_step_repeat_and_end() {
        let bursts = RatioSchedule::bursts(ratio(1e-6), ratio(1e-3), Duration::from_secs(5), Duration::from_secs(10));
        assert_eq!(bursts.at(s(0)), (ratio(1e-6), s(10)));
        assert_eq!(bursts.at(s(10)), (ratio(1e-3), s(15)));
        assert_eq!(bursts.at(s(15)), (ratio(1e-6), s(25)));
        let ratios: Vec<_> = THUNDERSTORM.iter().map(|r| ratio(*r)).collect();
        let storm = RatioSchedule::sequence(&ratios, Duration::from_secs(30), false);
        assert_eq!(storm.at(s(30)).0, ratio(3e-1));
        assert_eq!(storm.at(s(100_000)), (ratio(3e-4), Instant::FAR), "the last step stays");
    }

    #[test]
    fn the_profiles_are_the_papers() {
        assert_eq!(THUNDERSTORM.iter().filter(|r| **r >= 1e-3).count(), 6);
        assert_eq!(THUNDERSTORM.iter().filter(|r| **r >= 1e-2).count(), 3);
        assert_eq!(WANDER.iter().fold(0.0f64, |a, b| a.max(*b)), 3e-4);
    }

    #[test]
    fn a_switch_sees_when_the_ratio_stayed_too_high() {
        let bursts = RatioSchedule::bursts(ratio(1e-6), ratio(1e-2), Duration::from_secs(5), Duration::from_secs(10));
        let limit = ratio(1e-3);
        assert_eq!(bursts.first_excess(s(0), limit, Duration::from_secs(3)), Some(s(13)));
        assert_eq!(bursts.first_excess(s(0), limit, Duration::from_secs(5)), Some(s(15)));
        assert_eq!(
            bursts.first_excess(s(12), limit, Duration::from_secs(4)),
            Some(s(29)),
            "3 s of the first do not do"
        );
        assert_eq!(bursts.first_excess(s(0), limit, Duration::from_secs(6)), None);
        let bad = RatioSchedule::Constant(ratio(0.1));
        assert_eq!(bad.first_excess(s(7), limit, Duration::from_secs(2)), Some(s(9)));
    }
}
