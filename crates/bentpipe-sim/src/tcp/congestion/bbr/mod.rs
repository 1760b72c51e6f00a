//! BBR, version 1: sends at the bandwidth and with the delay that it measures, not by losses. Cardwell et al., "BBR:
//! congestion-based congestion control", ACM Queue 14 (2016); draft-cardwell-iccrg-bbr-congestion-control-00; behaviour
//! and constants as in Linux (`tcp_bbr.c`).
//!
//! Left out: the detection of policers (long-term bandwidth), which needs more than 20 % of losses; and knowledge of
//! when the next paced segment leaves (a sender's queue below TCP), for which Linux takes off at most one burst.
//! Whether an acknowledgement was delayed is not known here, so an expired minimum of the round-trip time may be followed
//! by a delayed one. A reduction because of ECN counts as recovery.

mod filter;

use super::{Ack, CongestionControl, Phase, Window};
use bentpipe_net::seed::{self, Stream};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use filter::{Bandwidth, MaxFilter};

/// Gains are counted in 1/256.
const UNIT: u32 = 256;
/// 2/ln 2: the least gain that doubles the rate each round.
const HIGH_GAIN: u32 = UNIT * 2885 / 1000 + 1;
/// Its inverse takes the queue away again, in about a round.
const DRAIN_GAIN: u32 = UNIT * 1000 / 2885;
/// Two bandwidth-delay products allow for delayed acknowledgements.
const CWND_GAIN: u32 = UNIT * 2;
/// Pacing gains of the phases of bandwidth probing: more, less, then six of cruising.
const CYCLE: [u32; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// Rounds that the largest bandwidth is from.
const BANDWIDTH_ROUNDS: u64 = CYCLE.len() as u64 + 2;
/// The lowest round-trip time is measured again when it is older than this…
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
/// … for at least so long, …
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// … with this window, which is also the smallest otherwise.
const CWND_MIN: u32 = 4;
/// Window while no round-trip time is known (RFC 6928).
const CWND_UNMEASURED: u32 = 10;
/// Pacing stays this much below the bandwidth, so that queues shrink: per cent.
const PACING_MARGIN: u32 = 1;
/// The pipe is full when the bandwidth did not grow by a quarter…
const FULL_GROWTH: (u32, u32) = (5, 4);
/// … in this many rounds.
const FULL_ROUNDS: u32 = 3;
/// Rounds in each half of the window of the largest aggregation.
const AGGREGATION_ROUNDS: u32 = 5;
/// Most that aggregation may add to the window, as time at the bandwidth.
const AGGREGATION_TIME_MAX: Duration = Duration::from_millis(100);
/// Segments after which aggregation is counted from the start again.
const AGGREGATION_EPOCH_MAX: u32 = 1 << 20;
/// Below this rate a burst may be a single segment: bytes per second (1.2 Mbit/s).
const SINGLE_SEGMENT_RATE: u64 = 150_000;
/// Bytes of the largest burst: 64 KiB less headers.
const BURST_BYTES_MAX: u64 = 65_535 - 320;
/// Segments of the largest burst.
const BURST_SEGMENTS_MAX: u64 = 127;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Grow quickly until the pipe is full.
    Startup,
    /// Take away the queue that this made.
    Drain,
    /// Cycle through [`CYCLE`].
    ProbeBandwidth { phase: usize },
    /// A small window, to see the round-trip time without a queue.
    ProbeRtt,
}

/// BBR's own state.
#[derive(Clone, Debug)]
pub struct Bbr {
    stream: Stream,
    mode: Mode,
    pacing_gain: u32,
    cwnd_gain: u32,
    /// Rate of sending, gain and margin included.
    pacing: Bandwidth,
    /// Bytes of a full segment; 0: not yet known.
    mss: u32,
    seen_rtt: bool,

    bandwidth: MaxFilter,
    /// Rounds so far; a round ends when a segment sent after its start is acknowledged.
    rounds: u64,
    round_start: bool,
    /// Segments delivered when the round began.
    round_delivered: u64,
    /// Last time that anything was delivered.
    delivered_at: Instant,

    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    /// When probing for the round-trip time may end; `None`: the window is not yet down.
    probe_rtt_end: Option<Instant>,
    probe_rtt_round_done: bool,
    /// Segments sent while so many were delivered (from, to) went out slowly because of probing, not of the path.
    held_back: Option<(u64, u64)>,

    full: bool,
    full_bandwidth: Bandwidth,
    full_rounds: u32,

    cycle_start: Instant,
    restarted: bool,

    phase: Phase,
    /// The phase at the last acknowledgement.
    last_phase: Phase,
    conserving: bool,
    /// The window to return to.
    saved_cwnd: u32,

    aggregation: Aggregation,
}

/// Aggregation of acknowledgements: bytes acknowledged at once in excess of the bandwidth.
#[derive(Clone, Debug, Default)]
struct Aggregation {
    since: Instant,
    segments: u32,
    /// Largest excess of the last five to ten rounds, in two halves.
    excess: [u32; 2],
    half: usize,
    half_rounds: u32,
}

impl Bbr {
    /// `stream` chooses the phases in which probing starts, so that flows do not probe together.
    #[must_use]
    pub fn new(stream: Stream) -> Bbr {
        Bbr {
            stream,
            mode: Mode::Startup,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            pacing: Bandwidth::default(),
            mss: 0,
            seen_rtt: false,
            bandwidth: MaxFilter::default(),
            rounds: 0,
            round_start: false,
            round_delivered: 0,
            delivered_at: Instant::ZERO,
            min_rtt: None,
            min_rtt_at: Instant::ZERO,
            probe_rtt_end: None,
            probe_rtt_round_done: false,
            held_back: None,
            full: false,
            full_bandwidth: Bandwidth::default(),
            full_rounds: 0,
            cycle_start: Instant::ZERO,
            restarted: false,
            phase: Phase::Open,
            last_phase: Phase::Open,
            conserving: false,
            saved_cwnd: 0,
            aggregation: Aggregation::default(),
        }
    }

    // The model of the path, from each acknowledgement.

    fn app_limited(&self, ack: &Ack) -> bool {
        let held_back = |(from, to): (u64, u64)| ack.delivery.prior.is_some_and(|prior| (from..=to).contains(&prior));
        ack.delivery.app_limited || self.held_back.is_some_and(held_back)
    }

    fn update_bandwidth(&mut self, ack: &Ack) {
        self.round_start = false;
        let Some(prior) = valid_sample(ack) else { return };
        if prior >= self.round_delivered {
            self.round_delivered = ack.delivery.total;
            self.rounds += 1;
            self.round_start = true;
            self.conserving = false;
        }
        // A sender with little to send shows its own rate, which counts only if the path is at least that good.
        let sample = Bandwidth::of(ack.delivery.segments, ack.delivery.interval);
        if !self.app_limited(ack) || sample >= self.bandwidth.max() {
            self.bandwidth.add(BANDWIDTH_ROUNDS, self.rounds, sample);
        }
    }

    fn update_aggregation(&mut self, ack: &Ack, cwnd: u32) {
        if ack.newly_delivered == 0 || valid_sample(ack).is_none() {
            return;
        }
        let aggregation = &mut self.aggregation;
        if self.round_start {
            aggregation.half_rounds += 1;
            if aggregation.half_rounds >= AGGREGATION_ROUNDS {
                aggregation.half_rounds = 0;
                aggregation.half ^= 1;
                aggregation.excess[aggregation.half] = 0;
            }
        }
        let mut expected = self.bandwidth.max().segments_in(self.delivered_at.since(aggregation.since));
        let total = aggregation.segments.saturating_add(ack.newly_delivered);
        if aggregation.segments <= expected || total >= AGGREGATION_EPOCH_MAX {
            aggregation.segments = 0;
            aggregation.since = self.delivered_at;
            expected = 0;
        }
        aggregation.segments = aggregation.segments.saturating_add(ack.newly_delivered).min(AGGREGATION_EPOCH_MAX - 1);
        let excess = aggregation.segments.saturating_sub(expected).min(cwnd);
        let largest = &mut aggregation.excess[aggregation.half];
        *largest = (*largest).max(excess);
    }

    fn update_cycle(&mut self, ack: &Ack) {
        let Mode::ProbeBandwidth { phase } = self.mode else { return };
        let in_net = self.in_flight_at_next_burst(ack.in_flight_before);
        let long_enough = self.min_rtt.is_some_and(|min_rtt| self.delivered_at.since(self.cycle_start) > min_rtt);
        let over = if self.pacing_gain > UNIT {
            // Until the flight has grown as asked, or does not fit.
            long_enough && (ack.newly_lost > 0 || in_net >= self.flight(self.pacing_gain))
        } else if self.pacing_gain < UNIT {
            // Until the queue is gone.
            long_enough || in_net <= self.flight(UNIT)
        } else {
            long_enough
        };
        if over {
            self.start_cycle_phase(phase + 1);
        }
    }

    fn start_cycle_phase(&mut self, phase: usize) {
        self.mode = Mode::ProbeBandwidth { phase: phase % CYCLE.len() };
        self.cycle_start = self.delivered_at;
    }

    /// Probing starts in any phase but the one that sends less.
    fn start_cycle(&mut self) {
        let random = (seed::unit(&mut self.stream) * (CYCLE.len() - 1) as f64) as usize;
        self.start_cycle_phase(CYCLE.len() - random);
    }

    fn update_full(&mut self, ack: &Ack) {
        if self.full || !self.round_start || self.app_limited(ack) {
            return;
        }
        if self.bandwidth.max() >= self.full_bandwidth.scaled(FULL_GROWTH.0, FULL_GROWTH.1) {
            self.full_bandwidth = self.bandwidth.max();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.full = self.full_rounds >= FULL_ROUNDS;
    }

    fn update_drain(&mut self, ack: &Ack, window: &mut Window) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
            window.ssthresh = self.flight(UNIT);
        }
        if self.mode == Mode::Drain && self.in_flight_at_next_burst(ack.in_flight) <= self.flight(UNIT) {
            self.start_cycle();
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack, window: &mut Window) {
        let expired = ack.now > self.min_rtt_at + MIN_RTT_AGE;
        if let Some(rtt) = ack.rtt.map(whole_micros)
            && (expired || self.min_rtt.is_none_or(|min_rtt| rtt <= min_rtt))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = ack.now;
        }
        if expired && !self.restarted && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd(window);
            self.probe_rtt_end = None;
            self.held_back = Some((ack.delivery.total, ack.delivery.total));
        }
        if self.mode == Mode::ProbeRtt {
            if let Some((_, to)) = &mut self.held_back {
                *to = ack.delivery.total.saturating_add(u64::from(ack.in_flight));
            }
            if self.probe_rtt_end.is_some() {
                self.probe_rtt_round_done |= self.round_start;
                if self.probe_rtt_round_done {
                    self.finish_probe_rtt(ack.now, window);
                }
            } else if ack.in_flight <= CWND_MIN {
                self.probe_rtt_end = Some(ack.now + PROBE_RTT_TIME);
                self.probe_rtt_round_done = false;
                self.round_delivered = ack.delivery.total;
            }
        }
        if ack.delivery.segments > 0 && ack.delivery.prior.is_some() {
            self.restarted = false;
        }
    }

    fn finish_probe_rtt(&mut self, now: Instant, window: &mut Window) {
        if self.probe_rtt_end.is_some_and(|end| now > end) {
            self.min_rtt_at = now;
            window.cwnd = window.cwnd.max(self.saved_cwnd);
            if self.full {
                self.start_cycle();
            } else {
                self.mode = Mode::Startup;
            }
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth { phase } => (CYCLE[phase], CWND_GAIN),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    // What follows from the model.

    /// `gain` bandwidth-delay products, rounded up.
    fn product(&self, gain: u32) -> u32 {
        match self.min_rtt {
            Some(min_rtt) => self.bandwidth.max().scaled(gain, UNIT).segments_in_rounded_up(min_rtt),
            None => CWND_UNMEASURED,
        }
    }

    /// Segments of the bursts that Linux would send at this rate: a millisecond's worth.
    fn burst(&self) -> u32 {
        let rate = self.pacing.bytes_per_second(self.mss);
        let least = if rate < SINGLE_SEGMENT_RATE { 1 } else { 2 };
        let segments = (rate >> 10).min(BURST_BYTES_MAX) / u64::from(self.mss.max(1));
        segments.max(least).min(BURST_SEGMENTS_MAX) as u32
    }

    /// Allows for three bursts on their way through both hosts, and for acknowledgements of every second segment.
    fn with_bursts(&self, segments: u32) -> u32 {
        let even = segments.saturating_add(3 * self.burst()).saturating_add(1) & !1;
        // A gain of 5/4 has to show even on a short path.
        if self.mode == (Mode::ProbeBandwidth { phase: 0 }) { even.saturating_add(2) } else { even }
    }

    fn flight(&self, gain: u32) -> u32 {
        self.with_bursts(self.product(gain))
    }

    /// While the flight is to grow, the burst that leaves next counts.
    fn in_flight_at_next_burst(&self, in_flight: u32) -> u32 {
        if self.pacing_gain > UNIT { in_flight.saturating_add(self.burst()) } else { in_flight }
    }

    fn first_pacing(&mut self, cwnd: u32, smoothed_rtt: Duration) {
        self.seen_rtt = smoothed_rtt != Duration::ZERO;
        let rtt = if self.seen_rtt { smoothed_rtt.max(Duration::from_micros(1)) } else { Duration::from_millis(1) };
        self.pacing = with_margin(Bandwidth::of(cwnd, rtt), HIGH_GAIN);
    }

    fn set_pacing(&mut self, gain: u32) {
        let pacing = with_margin(self.bandwidth.max(), gain);
        // In startup the rate only rises: few samples say little.
        if self.full || pacing > self.pacing {
            self.pacing = pacing;
        }
    }

    fn save_cwnd(&mut self, window: &Window) {
        let undisturbed = self.last_phase == Phase::Open && self.mode != Mode::ProbeRtt;
        self.saved_cwnd = if undisturbed { window.cwnd } else { self.saved_cwnd.max(window.cwnd) };
    }

    fn set_cwnd(&mut self, ack: &Ack, window: &mut Window) {
        if ack.newly_delivered > 0 {
            window.cwnd = self.next_cwnd(ack, window.cwnd);
        }
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(CWND_MIN);
        }
    }

    fn next_cwnd(&mut self, ack: &Ack, before: u32) -> u32 {
        let conserved = ack.in_flight.saturating_add(ack.newly_delivered);
        let mut cwnd = before.saturating_sub(ack.newly_lost).max(1);
        if self.phase == Phase::Recovery && self.last_phase != Phase::Recovery {
            // The first round of recovery sends as much as was delivered.
            self.conserving = true;
            self.round_delivered = ack.delivery.total;
            cwnd = conserved;
        } else if self.phase == Phase::Open && self.last_phase != Phase::Open {
            self.conserving = false;
            cwnd = cwnd.max(self.saved_cwnd);
        }
        self.last_phase = self.phase;
        if self.conserving {
            return cwnd.max(conserved);
        }

        let grown = cwnd.saturating_add(ack.newly_delivered);
        let mut target = self.product(self.cwnd_gain);
        if self.full {
            let [one, other] = self.aggregation.excess;
            target = target.saturating_add(one.max(other).min(self.bandwidth.max().segments_in(AGGREGATION_TIME_MAX)));
        }
        let target = self.with_bursts(target);
        if self.full {
            cwnd = grown.min(target);
        } else if cwnd < target || ack.delivery.total < u64::from(CWND_UNMEASURED) {
            cwnd = grown;
        }
        cwnd.max(CWND_MIN)
    }
}

/// Segments delivered when the segment that gave the sample was sent; `None`: no sample.
fn valid_sample(ack: &Ack) -> Option<u64> {
    ack.delivery.prior.filter(|_| ack.delivery.interval != Duration::ZERO)
}

/// Linux's resolution: a minimum that comes again, to the microsecond, counts as young again.
fn whole_micros(rtt: Duration) -> Duration {
    Duration::from_micros(rtt.ns / 1_000)
}

fn with_margin(bandwidth: Bandwidth, gain: u32) -> Bandwidth {
    bandwidth.scaled(gain, UNIT).scaled(100 - PACING_MARGIN, 100)
}

impl CongestionControl for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn open(&mut self, now: Instant, window: &mut Window, smoothed_rtt: Duration) {
        window.ssthresh = u32::MAX;
        self.min_rtt = (smoothed_rtt != Duration::ZERO).then_some(whole_micros(smoothed_rtt));
        self.min_rtt_at = now;
        self.aggregation.since = now;
        self.first_pacing(window.cwnd, smoothed_rtt);
    }

    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.mss = ack.mss;
        if ack.newly_delivered > 0 {
            self.delivered_at = ack.now;
        }
        self.update_bandwidth(ack);
        self.update_aggregation(ack, window.cwnd);
        self.update_cycle(ack);
        self.update_full(ack);
        self.update_drain(ack, window);
        self.update_min_rtt(ack, window);
        self.update_gains();
        if !self.seen_rtt && ack.smoothed_rtt != Duration::ZERO {
            self.first_pacing(window.cwnd, ack.smoothed_rtt);
        }
        self.set_pacing(self.pacing_gain);
        self.set_cwnd(ack, window);
    }

    /// Losses do not move the threshold; the window is kept for after the recovery.
    fn ssthresh(&mut self, _now: Instant, window: &Window) -> u32 {
        self.save_cwnd(window);
        window.ssthresh
    }

    fn phase(&mut self, _now: Instant, phase: Phase, _window: &mut Window) {
        self.phase = phase;
        if phase == Phase::Loss {
            self.last_phase = Phase::Loss;
            self.full_bandwidth = Bandwidth::default();
            self.round_start = true;
        }
    }

    fn undo(&mut self, window: &Window, _before: u32) -> u32 {
        self.full_bandwidth = Bandwidth::default();
        self.full_rounds = 0;
        window.cwnd
    }

    fn restart(&mut self, now: Instant, window: &mut Window) {
        self.restarted = true;
        self.aggregation.since = now;
        self.aggregation.segments = 0;
        match self.mode {
            // No faster than the path, for nothing waits.
            Mode::ProbeBandwidth { .. } => self.set_pacing(UNIT),
            Mode::ProbeRtt => self.finish_probe_rtt(now, window),
            Mode::Startup | Mode::Drain => {}
        }
    }

    fn paces(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        let bytes = self.pacing.bytes_per_second(self.mss);
        (self.mss > 0).then(|| BitRate::from_bps(bytes.saturating_mul(8).max(1)))
    }
}

#[cfg(test)]
mod tests;
