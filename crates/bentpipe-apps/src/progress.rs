//! Progress over time, and the time-out of an application that makes none.

use crate::SpecError;
use crate::quantity;
use crate::report::{Report, Series};
use bentpipe_net::time::{Duration, Instant};

/// Data bytes as their receiver saw them.
///
/// Samples need no timer: a sample's value is known as soon as the next byte arrives or a report is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    pub bytes: u64,
    pub wrong: u64,
    pub first: Option<Instant>,
    pub last: Option<Instant>,
    samples: Option<Samples>,
}

#[derive(Clone, Debug)]
struct Samples {
    every: Duration,
    start: Option<Instant>,
    /// Bytes that had arrived one interval after the start, and so on: thousands of transfers have long ones.
    received: Vec<u64>,
}

impl Arrivals {
    /// `every`: the sample interval; `None` keeps no samples (a service that runs for ever).
    pub fn new(every: Option<Duration>) -> Self {
        let samples = every.map(|every| Samples { every, start: None, received: Vec::new() });
        Arrivals { bytes: 0, wrong: 0, first: None, last: None, samples }
    }

    /// Samples are taken at `now`, one interval later, and so on. Later calls do nothing.
    pub fn start(&mut self, now: Instant) {
        if let Some(samples) = &mut self.samples {
            samples.start.get_or_insert(now);
        }
    }

    /// `bytes` arrived at `now`.
    pub fn add(&mut self, now: Instant, bytes: u64, wrong: u64) {
        if bytes == 0 {
            return;
        }
        self.start(now);
        if let Some(samples) = &mut self.samples {
            samples.advance(now, self.bytes);
        }
        self.bytes += bytes;
        self.wrong += wrong;
        self.first = self.first.or(Some(now));
        self.last = Some(now);
    }

    /// Puts bytes, times and series into `report`. `received` ends with a point at `until`; `goodput` has whole
    /// intervals only, as the last packet alone in a sliver of an interval would show a rate that never was.
    pub fn fill(&self, until: Instant, report: &mut Report) {
        report.put(quantity::BYTES, self.bytes as f64);
        report.put(quantity::WRONG_BYTES, self.wrong as f64);
        report.moments.first_byte = self.first;
        report.moments.last_byte = self.last;
        let Some(samples) = &self.samples else { return };
        let (mut received, mut goodput) = (Vec::new(), Vec::new());
        if let Some(start) = samples.start {
            received.push((start, 0.0));
            let (mut at, mut before) = (start, 0);
            let due = samples.due_by(until).saturating_sub(samples.received.len());
            for bytes in samples.received.iter().copied().chain(std::iter::repeat_n(self.bytes, due)) {
                at += samples.every;
                received.push((at, bytes as f64));
                goodput.push((at, (bytes - before) as f64 * 8.0 / samples.every.as_secs_f64()));
                before = bytes;
            }
            if at < until {
                received.push((until, self.bytes as f64));
            }
        }
        report.series.push(Series { quantity: quantity::RECEIVED_BYTES, points: received });
        report.series.push(Series { quantity: quantity::GOODPUT, points: goodput });
    }
}

impl Samples {
    /// Takes every sample that is due by `now`; `bytes` have arrived before.
    fn advance(&mut self, now: Instant, bytes: u64) {
        let due = self.due_by(now);
        if due > self.received.len() {
            self.received.resize(due, bytes);
        }
    }

    /// Number of samples that are due by `now`.
    fn due_by(&self, now: Instant) -> usize {
        let since = self.start.map_or(0, |start| now.since(start).ns);
        usize::try_from(since / self.every.ns.max(1)).unwrap_or(usize::MAX)
    }
}

/// Ends what makes no progress for too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    timeout: Duration,
    since: Instant,
}

impl Stall {
    pub fn new(timeout: Duration, now: Instant) -> Self {
        Stall { timeout, since: now }
    }

    pub fn progress(&mut self, now: Instant) {
        self.since = now;
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When it is over unless there is progress.
    pub fn due(&self) -> Instant {
        self.since + self.timeout
    }

    pub fn expired(&self, now: Instant) -> bool {
        self.due() <= now
    }
}

/// Checks a spec's sample interval.
pub(crate) fn check_sample_every(every: Duration) -> Result<(), SpecError> {
    SpecError::unless(
        every >= SAMPLE_EVERY_MIN,
        "sample_every",
        format!("{every} is too short; allowed: {SAMPLE_EVERY_MIN} or longer"),
    )
}

/// Checks a spec's time-out.
pub(crate) fn check_timeout(timeout: Duration) -> Result<(), SpecError> {
    SpecError::unless(timeout > Duration::ZERO, "timeout", "is zero; allowed: longer than zero, such as 60 s")
}

/// Checks a spec's TCP port.
pub(crate) fn check_port(port: u16) -> Result<(), SpecError> {
    SpecError::unless(port != 0, "port", "is 0; allowed: 1 to 65535")
}

const SAMPLE_EVERY_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Status;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn samples_fall_on_the_grid_without_a_timer() {
        let mut arrivals = Arrivals::new(Some(Duration::from_millis(500)));
        arrivals.start(at(100));
        arrivals.add(at(200), 1000, 0);
        arrivals.add(at(600), 1000, 3); // On a sample: belongs to the interval it begins.
        arrivals.add(at(1700), 500, 0);
        let mut report = Report::new(Status::Running, None);
        arrivals.fill(at(1800), &mut report);
        assert_eq!(
            report.points(quantity::RECEIVED_BYTES),
            [(at(100), 0.0), (at(600), 1000.0), (at(1100), 2000.0), (at(1600), 2000.0), (at(1800), 2500.0)]
        );
        assert_eq!(report.points(quantity::GOODPUT), [(at(600), 16000.0), (at(1100), 16000.0), (at(1600), 0.0)]);
        assert_eq!(report.value(quantity::WRONG_BYTES), Some(3.0));
    }
}
