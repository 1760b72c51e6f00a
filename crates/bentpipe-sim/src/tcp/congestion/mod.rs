//! Congestion control: how the congestion window moves. Loss detection and repair are elsewhere (`super::recovery`).
//!
//! Windows are counted in segments, as Linux counts them: with full segments that is RFC 5681 in units of SMSS.

mod bbr;
mod cubic;
mod hybla;
mod hystart;
mod reno;
#[cfg(test)]
mod toy_path;

pub use bbr::Bbr;
pub use cubic::Cubic;
pub use hybla::Hybla;
pub use reno::Reno;

use bentpipe_net::seed::Stream;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;

/// The algorithms there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic {
        /// Leave slow start when the round-trip time rises or the acknowledgements of a window last half of it (HyStart).
        hystart: bool,
    },
    /// Caini and Firrincieli 2004.
    Hybla,
    /// BBR, version 1.
    Bbr,
}

impl Algorithm {
    /// The names that [`Self::parse`] knows.
    pub const NAMES: [&'static str; 4] = ["reno", "cubic", "hybla", "bbr"];

    /// The algorithm called `name`; CUBIC comes with HyStart, as in Linux.
    #[must_use]
    pub fn parse(name: &str) -> Option<Algorithm> {
        match name {
            "reno" => Some(Algorithm::Reno),
            "cubic" => Some(Algorithm::Cubic { hystart: true }),
            "hybla" => Some(Algorithm::Hybla),
            "bbr" => Some(Algorithm::Bbr),
            _ => None,
        }
    }

    /// A controller for one connection; `stream` is the connection's own.
    #[must_use]
    pub fn make(self, stream: Stream) -> Box<dyn CongestionControl> {
        match self {
            Algorithm::Reno => Box::new(Reno),
            Algorithm::Cubic { hystart } => Box::new(Cubic::new(hystart)),
            Algorithm::Hybla => Box::new(Hybla::new()),
            Algorithm::Bbr => Box::new(Bbr::new(stream)),
        }
    }
}

/// The window that a controller moves; the connection owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Congestion window, in segments; at least 1.
    pub cwnd: u32,
    /// Slow-start threshold, in segments; `u32::MAX`: not yet known.
    pub ssthresh: u32,
    /// Acknowledged segments towards the next step of congestion avoidance.
    pub credit: u32,
}

impl Window {
    /// True if the window is below the threshold.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start for `segments` newly delivered: one more segment for each (RFC 5681 §3.1), up to the threshold.
    /// Returns those left over at the threshold, for congestion avoidance to count.
    #[must_use]
    pub fn slow_start(&mut self, segments: u32) -> u32 {
        let grown = self.cwnd.saturating_add(segments).min(self.ssthresh).max(self.cwnd);
        let used = grown - self.cwnd;
        self.cwnd = grown;
        segments - used
    }

    /// Congestion avoidance for `segments` newly delivered: one more segment for every `per` of them. Counting them
    /// is what RFC 5681 §3.1 recommends, with segments for bytes as Linux has it.
    pub fn additive_increase(&mut self, per: u32, segments: u32) {
        let per = per.max(1);
        // Credit from when a segment cost more is worth one segment, not a burst.
        if self.credit >= per {
            self.credit = 0;
            self.cwnd = self.cwnd.saturating_add(1);
        }
        self.credit = self.credit.saturating_add(segments);
        self.cwnd = self.cwnd.saturating_add(self.credit / per);
        self.credit %= per;
    }
}

/// The facts that one acknowledgement brought.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When it came.
    pub now: Instant,
    /// Segments it acknowledged for the first time (cumulatively or selectively).
    pub newly_delivered: u32,
    /// Segments it acknowledged cumulatively.
    pub acked: u32,
    /// Most of `newly_delivered` that slow start may count (byte counting, RFC 3465). Windows grow by what is newly
    /// delivered, as in Linux: a hole that fills does not count again what SACK had reported.
    pub growth_limit: u32,
    /// As `growth_limit`, in congestion avoidance.
    pub avoidance_limit: u32,
    /// Segments newly found lost with it.
    pub newly_lost: u32,
    /// Segments in flight before it.
    pub in_flight_before: u32,
    /// Segments in flight after it.
    pub in_flight: u32,
    /// Round-trip time measured by it (never from a retransmitted segment): of the newest segment it acknowledged, so
    /// that a delayed acknowledgement adds nothing.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time; zero: none yet.
    pub smoothed_rtt: Duration,
    /// Bytes of a full segment.
    pub mss: u32,
    /// The window was the limit of what was sent, so it may grow (RFC 7661, RFC 2861).
    pub window_limited: bool,
    /// Delivery over the last round trip, for controllers that model the path.
    pub delivery: Delivery,
    /// Sequence number acknowledged now, in bytes since the start of the stream.
    pub acknowledged: u64,
    /// Next sequence number to be sent, in bytes since the start of the stream.
    pub next: u64,
}

/// A sample of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    /// Segments delivered so far, in total.
    pub total: u64,
    /// `total` when the segment that gave this sample was sent; `None`: no sample.
    pub prior: Option<u64>,
    /// Segments delivered between then and now.
    pub segments: u32,
    /// The time that took: the longer of the sending and the acknowledging interval.
    pub interval: Duration,
    /// The sender had less to send than it might have.
    pub app_limited: bool,
}

/// The state of loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nothing is wrong.
    Open,
    /// Reducing the window in recovery, or because of an ECN echo.
    Recovery,
    /// After a retransmission time-out.
    Loss,
}

/// A congestion control algorithm.
pub trait CongestionControl: Send + std::fmt::Debug {
    /// Its name, as in `congestion_control = "…"`.
    fn name(&self) -> &'static str;
    /// The connection is open; `smoothed_rtt` is zero when the handshake measured nothing.
    fn open(&mut self, _now: Instant, _window: &mut Window, _smoothed_rtt: Duration) {}
    /// An acknowledgement that may let the window grow (never during recovery, unless [`Self::paces`]; after a time-out
    /// it is called, so that the window slow-starts).
    fn on_ack(&mut self, ack: &Ack, window: &mut Window);
    /// The slow-start threshold after a loss (or an ECN echo) found now.
    fn ssthresh(&mut self, now: Instant, window: &Window) -> u32;
    /// A phase begins.
    fn phase(&mut self, _now: Instant, _phase: Phase, _window: &mut Window) {}
    /// The window to return to when the last reduction turns out to have been a mistake; `before`: the window then.
    fn undo(&mut self, window: &Window, before: u32) -> u32 {
        window.cwnd.max(before)
    }
    /// Sending starts again after nothing was in flight.
    fn restart(&mut self, _now: Instant, _window: &mut Window) {}
    /// The controller decides the window in recovery too, and at what rate to send.
    fn paces(&self) -> bool {
        false
    }
    /// The rate at which to send, if it paces: bits of TCP payload a second (headers not counted, as in Linux). `None`
    /// before the first acknowledgement. Linux does not pace a connection's first ten segments in any case.
    fn pacing_rate(&self) -> Option<BitRate> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::seed::Seed;

    #[test]
    fn every_name_makes_its_algorithm() {
        for name in Algorithm::NAMES {
            let algorithm = Algorithm::parse(name).unwrap();
            assert_eq!(algorithm.make(Seed(1).stream(name)).name(), name);
        }
        assert_eq!(Algorithm::parse("vegas"), None);
    }

    /// (cwnd, ssthresh, segments) → (cwnd, left over).
    #[test]
    fn slow_start_stops_at_the_threshold() {
        for (before, expected) in [
            ((10, u32::MAX, 2), (12, 0)),
            ((10, 11, 2), (11, 1)),
            ((10, 10, 2), (10, 2)),
            ((10, 4, 2), (10, 2)),
            ((u32::MAX - 1, u32::MAX, 9), (u32::MAX, 8)),
        ] {
            let mut window = Window { cwnd: before.0, ssthresh: before.1, credit: 0 };
            let left = window.slow_start(before.2);
            assert_eq!((window.cwnd, left), expected, "{before:?}");
        }
    }

    /// (cwnd, credit, per, segments) → (cwnd, credit).
    #[test]
    fn additive_increase_keeps_its_remainder() {
        for (before, expected) in [
            ((10, 0, 10, 9), (10, 9)),
            ((10, 9, 10, 1), (11, 0)),
            ((10, 0, 10, 25), (12, 5)),
            ((10, 40, 10, 1), (11, 1)),
            ((10, 0, 0, 1), (11, 0)),
        ] {
            let mut window = Window { cwnd: before.0, ssthresh: 1, credit: before.1 };
            window.additive_increase(before.2, before.3);
            assert_eq!((window.cwnd, window.credit), expected, "{before:?}");
        }
    }

    /// Any input, in any order: no panic, and a window of at least one segment.
    #[test]
    fn extreme_input_is_survived() {
        let extremes = [0, 1, 3, u32::MAX];
        for name in Algorithm::NAMES {
            for start in [1, 2, u32::MAX] {
                let mut cc = Algorithm::parse(name).unwrap().make(Seed(1).stream(name));
                let mut window = Window { cwnd: start, ssthresh: u32::MAX, credit: 0 };
                cc.open(Instant::ZERO, &mut window, Duration::ZERO);
                for step in 0..4096_usize {
                    let pick = |shift: usize| extremes[(step >> shift) % 4];
                    let wide = |shift: usize| u64::from(pick(shift)) << 32;
                    let time = Duration::from_nanos(wide(2));
                    let now = Instant { ns: if step % 7 == 0 { u64::MAX } else { wide(4) } };
                    cc.on_ack(
                        &Ack {
                            now,
                            newly_delivered: pick(0),
                            acked: pick(2),
                            growth_limit: pick(4),
                            avoidance_limit: u32::MAX,
                            newly_lost: pick(6),
                            in_flight_before: pick(8),
                            in_flight: pick(10),
                            rtt: (step % 3 > 0).then_some(time),
                            smoothed_rtt: time,
                            mss: pick(1),
                            window_limited: true,
                            delivery: Delivery {
                                total: wide(0),
                                prior: (step % 5 > 0).then_some(wide(6)),
                                segments: pick(8),
                                interval: time,
                                app_limited: step % 2 > 0,
                            },
                            acknowledged: wide(10),
                            next: wide(0),
                        },
                        &mut window,
                    );
                    assert!(window.cwnd >= 1, "{name}, step {step}");
                    let _ = cc.pacing_rate();
                    if step % 11 == 0 {
                        window.ssthresh = cc.ssthresh(now, &window);
                        cc.phase(now, [Phase::Open, Phase::Recovery, Phase::Loss][step % 3], &mut window);
                    }
                    if step % 13 == 0 {
                        cc.restart(now, &mut window);
                        window.cwnd = cc.undo(&window, start).max(1);
                    }
                }
            }
        }
    }
}
