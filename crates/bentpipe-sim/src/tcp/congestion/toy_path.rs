//! Paths for the tests of the controllers: acknowledgements at fixed times, without a network or a connection.

use super::{Ack, CongestionControl, Delivery, Window};
use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;

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
                    avoidance_limit: u32::MAX,
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

/// A bottleneck with an endless queue, and a sender that paces and always has something to send.
#[derive(Debug)]
pub struct Pipe {
    pub now: Instant,
    pub window: Window,
    pub delivered: u64,
    /// Round trip without queue and service.
    pub delay: Duration,
    pub app_limited: bool,
    /// Least time between two segments, whatever the controller allows.
    pub pause_between: Duration,
    service: Duration,
    free_at: Instant,
    next_send: Instant,
    delivered_at: Instant,
    first_sent: Instant,
    flight: VecDeque<Flying>,
}

/// A segment in flight, with the delivery as it was when it was sent.
#[derive(Debug)]
struct Flying {
    sent: Instant,
    back: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited: bool,
}

impl Pipe {
    /// `service`: the time that the bottleneck needs for a segment.
    pub fn new(service: Duration, delay: Duration) -> Pipe {
        Pipe {
            now: Instant::ZERO,
            window: Window { cwnd: 10, ssthresh: u32::MAX, credit: 0 },
            delivered: 0,
            delay,
            app_limited: false,
            pause_between: Duration::ZERO,
            service,
            free_at: Instant::ZERO,
            next_send: Instant::ZERO,
            delivered_at: Instant::ZERO,
            first_sent: Instant::ZERO,
            flight: VecDeque::new(),
        }
    }

    /// Runs to `until`; `look` sees the controller after each acknowledgement.
    pub fn run<C: CongestionControl>(&mut self, cc: &mut C, until: Instant, mut look: impl FnMut(&C, &Window)) {
        loop {
            let open = self.flight.len() < self.window.cwnd as usize;
            let send = if open { self.next_send.max(self.now) } else { Instant::FAR };
            let back = self.flight.front().map_or(Instant::FAR, |segment| segment.back);
            if send.min(back) > until {
                self.now = until;
                return;
            }
            self.now = send.min(back);
            if send < back {
                self.send(cc);
            } else if let Some(segment) = self.flight.pop_front() {
                self.acknowledge(cc, &segment);
                look(cc, &self.window);
            }
        }
    }

    fn send(&mut self, cc: &dyn CongestionControl) {
        if self.flight.is_empty() {
            (self.first_sent, self.delivered_at) = (self.now, self.now);
        }
        self.free_at = self.free_at.max(self.now) + self.service;
        self.flight.push_back(Flying {
            sent: self.now,
            back: self.free_at + self.delay,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            app_limited: self.app_limited,
        });
        let pace = cc.pacing_rate().map_or(Duration::ZERO, |rate| rate.time_for_bits(u64::from(MSS) * 8));
        self.next_send = self.now + pace.max(self.pause_between);
    }

    fn acknowledge(&mut self, cc: &mut dyn CongestionControl, segment: &Flying) {
        self.delivered += 1;
        self.delivered_at = self.now;
        self.first_sent = segment.sent;
        let in_flight = self.flight.len() as u32;
        let rtt = self.now.since(segment.sent);
        let ack = Ack {
            now: self.now,
            newly_delivered: 1,
            acked: 1,
            growth_limit: u32::MAX,
            avoidance_limit: u32::MAX,
            newly_lost: 0,
            in_flight_before: in_flight + 1,
            in_flight,
            rtt: Some(rtt),
            smoothed_rtt: rtt,
            mss: MSS,
            window_limited: true,
            delivery: Delivery {
                total: self.delivered,
                prior: Some(segment.delivered),
                segments: (self.delivered - segment.delivered) as u32,
                interval: segment.sent.since(segment.first_sent).max(self.now.since(segment.delivered_at)),
                app_limited: segment.app_limited,
            },
            acknowledged: self.delivered * u64::from(MSS),
            next: (self.delivered + u64::from(in_flight)) * u64::from(MSS),
        };
        cc.on_ack(&ack, &mut self.window);
    }
}
