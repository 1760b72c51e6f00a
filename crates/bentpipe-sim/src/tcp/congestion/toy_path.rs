//! Paths for the tests of the controllers: acknowledgements at fixed times, without a network or a connection.

use super::{Ack, CongestionControl, Delivery, Window};
use bentpipe_link::time::{Duration, Instant};

/// A window a round trip, its acknowledgements spread evenly over it; nothing queues, nothing is lost.
#[derive(Debug)]
pub struct Rounds {
    pub now: Instant,
    pub rtt: Duration,
    pub window: Window,
    pub segments_per_ack: u32,
    pub growth_limit: u32,
    pub window_limited: bool,
    /// Time between a round's acknowledgements, if not an even share of the round trip.
    pub spacing: Option<Duration>,
    acknowledged: u64,
}

const MSS: u32 = 1448;

impl Rounds {
    pub fn new(rtt: Duration, window: Window) -> Rounds {
        Rounds {
            now: Instant::ZERO + rtt,
            rtt,
            window,
            segments_per_ack: 1,
            growth_limit: u32::MAX,
            window_limited: true,
            spacing: None,
            acknowledged: 0,
        }
    }

    /// Acknowledges the window as it is now; returns the window then.
    pub fn round(&mut self, cc: &mut dyn CongestionControl) -> u32 {
        let start = self.now;
        let flight = self.window.cwnd;
        let acks = flight.div_ceil(self.segments_per_ack);
        let spacing = self.spacing.unwrap_or(Duration::from_nanos(self.rtt.ns / u64::from(acks)));
        let mut left = flight;
        for _ in 0..acks {
            let segments = left.min(self.segments_per_ack);
            left -= segments;
            self.acknowledged += u64::from(segments) * u64::from(MSS);
            let before = self.window.cwnd;
            cc.on_ack(
                &Ack {
                    now: self.now,
                    newly_delivered: segments,
                    acked: segments,
                    growth_limit: self.growth_limit,
                    newly_lost: 0,
                    in_flight_before: before,
                    in_flight: before - segments.min(before),
                    rtt: Some(self.rtt),
                    smoothed_rtt: self.rtt,
                    mss: MSS,
                    window_limited: self.window_limited,
                    delivery: Delivery::default(),
                    acknowledged: self.acknowledged,
                    next: self.acknowledged + u64::from(before - segments.min(before)) * u64::from(MSS),
                },
                &mut self.window,
            );
            self.now += spacing;
        }
        self.now = Instant { ns: self.now.ns.max((start + self.rtt).ns) };
        self.window.cwnd
    }

    /// A loss found now: the controller's threshold becomes the window.
    pub fn lose(&mut self, cc: &mut dyn CongestionControl) {
        self.window.ssthresh = cc.ssthresh(self.now, &self.window);
        self.window.cwnd = self.window.ssthresh;
        self.window.credit = 0;
    }
}
