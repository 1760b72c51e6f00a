//! Delivery traces of mahimahi as a rate over time.
//!
//! A line holds a time in milliseconds at which the link could deliver one packet of 1500 bytes; a time may stand on
//! several lines, and after the last one the trace starts again (mahimahi, `mm-link(1)`). Within a bin the opportunities
//! are spread evenly here: bin × 1500 B × 8 ÷ bin length, so that framing, queues and packets of any size work as on
//! every other link.

use crate::transmitter::RateSchedule;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;

/// Bytes of one opportunity.
const OPPORTUNITY_BYTES: u64 = 1500;
/// Lines of one trace.
const LINES_MAX: usize = 10_000_000;
/// Steps of one schedule.
const STEPS_MAX: u64 = 1_000_000;

/// Reads a trace; `bin` is the time over which opportunities are averaged.
pub fn rate_schedule(text: &str, bin: Duration) -> Result<RateSchedule, String> {
    if bin.ns < 1_000_000 {
        return Err(format!("a bin of {bin} is shorter than the trace's milliseconds; allowed: 1 ms or more"));
    }
    let mut times: Vec<u64> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fail = |what: &str| format!("line {}: {:?} {what}", number + 1, line.trim());
        let time: u64 = line.trim().parse().map_err(|_| fail("is no time; allowed: whole milliseconds"))?;
        if times.last().is_some_and(|last| time < *last) {
            return Err(fail("is before the line above; allowed: times that do not fall"));
        }
        if times.len() >= LINES_MAX {
            return Err(format!("more than {LINES_MAX} lines; allowed: fewer"));
        }
        times.push(time);
    }
    let length = times.last().copied().unwrap_or(0);
    if length == 0 {
        return Err("never goes on after 0 ms; allowed: a trace that ends later than that".to_owned());
    }
    let length = length.checked_mul(1_000_000).ok_or_else(|| format!("{length} ms is too long"))?;
    let bins = length.div_ceil(bin.ns);
    if bins > STEPS_MAX {
        return Err(format!("{bins} bins of {bin}; allowed: up to {STEPS_MAX}, with a longer bin"));
    }
    let mut steps: Vec<(Instant, BitRate)> = Vec::new();
    let mut next = times.iter().peekable();
    for number in 0..bins {
        let (start, end) = (number * bin.ns, ((number + 1) * bin.ns).min(length));
        // A time belongs to the bin that it ends: the last one to the last bin.
        let mut count = 0;
        while next.peek().is_some_and(|time| **time * 1_000_000 <= end) {
            next.next();
            count += 1;
        }
        let bits = u128::from(count * OPPORTUNITY_BYTES * 8) * 1_000_000_000;
        let rate = BitRate::from_bps(u64::try_from(bits / u128::from(end - start)).unwrap_or(u64::MAX));
        if steps.last().is_none_or(|(_, last)| *last != rate) {
            steps.push((Instant { ns: start }, rate));
        }
    }
    Ok(RateSchedule::steps(steps, Some(Duration::from_nanos(length))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(schedule: &RateSchedule, ms: u64) -> u64 {
        schedule.at(Instant { ns: ms * 1_000_000 }).0.bps
    }

    #[test]
    fn opportunities_become_rates_and_start_again() {
        // One packet a millisecond for 10 ms, nothing for 10 ms, then two at once in the last 10 ms.
        let text = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n30\n30\n";
        let schedule = rate_schedule(text, Duration::from_millis(10)).unwrap();
        assert_eq!([at(&schedule, 0), at(&schedule, 10), at(&schedule, 20)], [12_000_000, 0, 2_400_000]);
        assert_eq!([at(&schedule, 30), at(&schedule, 45)], [12_000_000, 0], "after 30 ms from the start");
        // A last bin that is cut short keeps its rate.
        assert_eq!(at(&rate_schedule("10\n15\n", Duration::from_millis(10)).unwrap(), 12), 2_400_000);
    }

    #[test]
    fn mistakes_are_named() {
        let bin = Duration::from_millis(10);
        for (text, part) in [
            ("", "ends later"),
            ("0\n", "ends later"),
            ("5\n4\n", "line 2"),
            ("x\n", "line 1"),
            ("-1\n", "milliseconds"),
        ] {
            let why = rate_schedule(text, bin).unwrap_err();
            assert!(why.contains(part), "{text:?}: {why}");
        }
        assert!(rate_schedule("1\n", Duration::from_nanos(1)).unwrap_err().contains("1 ms or more"));
        assert!(rate_schedule("18446744073709551615\n", bin).unwrap_err().contains("too long"));
        assert!(rate_schedule("99999999999\n", bin).unwrap_err().contains("longer bin"));
    }

    proptest! {
        /// Whatever a file holds, it is read or refused; what is read carries the trace's bits in each round.
        #[test]
        fn nothing_is_lost(mut times in proptest::collection::vec(0u64..5000, 1..200), bin in 1u64..500) {
            times.sort_unstable();
            let text: String = times.iter().map(|time| format!("{time}\n")).collect();
            if let Ok(schedule) = rate_schedule(&text, Duration::from_millis(bin)) {
                let length = times[times.len() - 1];
                let bits: f64 = (0..length).map(|ms| at(&schedule, ms) as f64 / 1000.0).sum();
                let offered = times.len() as f64 * 12_000.0;
                // Each bin's rate is rounded down to a bit a second.
                prop_assert!((bits - offered).abs() <= 1.0 + length as f64 / 1000.0, "{bits} {offered}");
            }
        }

        #[test]
        fn reading_never_panics(text in "[0-9 \n-]{0,80}", bin in 0u64..1 << 50) {
            let _ = rate_schedule(&text, Duration::from_nanos(bin));
        }
    }
}
