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
    next: Option<Instant>,
    bytes_before: u64,
    received: Vec<(Instant, f64)>,
    goodput: Vec<(Instant, f64)>,
}

impl Arrivals {
    /// `every`: the sample interval; `None` keeps no samples (a service that runs for ever).
    pub fn new(every: Option<Duration>) -> Self {
        let samples = every.map(|every| Samples {
            every,
            next: None,
            bytes_before: 0,
            received: Vec::new(),
            goodput: Vec::new(),
        });
        Arrivals { bytes: 0, wrong: 0, first: None, last: None, samples }
    }

    /// Samples are taken at `now`, one interval later, and so on. Later calls do nothing.
    pub fn start(&mut self, now: Instant) {
        if let Some(samples) = self.samples.as_mut().filter(|s| s.next.is_none()) {
            samples.received.push((now, 0.0));
            samples.next = Some(now + samples.every);
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
        let Some(mut samples) = self.samples.clone() else { return };
        samples.advance(until, self.bytes);
        if samples.received.last().is_some_and(|(at, _)| *at < until) {
            samples.received.push((until, self.bytes as f64));
        }
        report.series.push(Series { quantity: quantity::RECEIVED_BYTES, points: samples.received });
        report.series.push(Series { quantity: quantity::GOODPUT, points: samples.goodput });
    }
}

impl Samples {
    /// Takes every sample that is due by `now`; `bytes` have arrived before.
    fn advance(&mut self, now: Instant, bytes: u64) {
        let Some(mut next) = self.next else { return };
        while next <= now {
            let rate = (bytes - self.bytes_before) as f64 * 8.0 / self.every.as_secs_f64();
            self.received.push((next, bytes as f64));
            self.goodput.push((next, rate));
            self.bytes_before = bytes;
            next += self.every;
        }
        self.next = Some(next);
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
