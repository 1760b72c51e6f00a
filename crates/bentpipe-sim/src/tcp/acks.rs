//! When the receiver acknowledges: every second full segment, at once, or after a delay (RFC 1122 §4.2.3.2, RFC 5681
//! §4.2), with Linux's quick acknowledgements at the start and after pauses.

use super::clock::TimerClock;
use super::settings::Settings;
use bentpipe_net::time::{Duration, Instant};

/// Linux: least and most delay of an acknowledgement (TCP_DELACK_MIN, TCP_DELACK_MAX), and the start of its estimate.
const DELAY_MIN: Duration = Duration::from_millis(40);
const DELAY_MAX: Duration = Duration::from_millis(200);
/// The estimate of the peer's full segments begins with no more (TCP_MSS_DEFAULT) and no less (TCP_MIN_MSS, net/tcp.h).
const SEGMENT_FIRST: u64 = 536;
const SEGMENT_LEAST: u64 = 88;
/// Full segments that Linux acknowledges together.
const EVERY_LINUX: u64 = 2;
/// Length of a TCP header without options.
const HEADER: u64 = 20;

/// A data segment as the policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Bytes of data.
    pub length: u64,
    /// Bytes of the TCP header with its options.
    pub header: u64,
    /// The peer had no more to send for now (PSH or FIN): it may be short for that reason.
    pub last: bool,
}

/// The policy of acknowledging: pending acknowledgements and their timer.
#[derive(Debug)]
pub struct AckPolicy {
    every: u64,
    fixed_delay: Option<Duration>,
    quick_total: u32,
    quick: u32,
    /// The peer's pace as estimated (Linux's ATO); zero: no data yet.
    pace: Duration,
    /// Data goes both ways: wait for data of our own to carry the acknowledgement.
    interactive: bool,
    /// Data of the peer's full segments as estimated (Linux's rcv_mss), and what it cannot exceed (advmss).
    segment: u64,
    segment_max: u64,
    /// The header of a segment with no options but those that each has (tcp_header_len).
    header: u64,
    /// The size of the last segment, if that was below the estimate and yet may have been a full one (last_seg_size).
    suspected: Option<u64>,
    /// The acknowledgement field that the peer has last been sent.
    acknowledged: u64,
    last_data: Option<Instant>,
    /// A segment that was small, or the last that the peer had to send, is not acknowledged yet (ICSK_ACK_PUSHED).
    pushed: bool,
    owed: bool,
    at_once: bool,
    /// When the delay ends; [`Instant::FAR`]: nothing waits for that.
    due: Instant,
    /// When the timer for it fires.
    fires: Instant,
}

impl AckPolicy {
    /// Nothing came yet.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        AckPolicy {
            every: u64::from(settings.ack_every.max(1)),
            fixed_delay: settings.delayed_ack,
            quick_total: settings.quick_acks,
            quick: 0,
            pace: Duration::ZERO,
            interactive: false,
            segment: SEGMENT_FIRST,
            segment_max: u64::MAX,
            header: HEADER,
            suspected: None,
            acknowledged: 0,
            last_data: None,
            pushed: false,
            owed: false,
            at_once: false,
            due: Instant::FAR,
            fires: Instant::FAR,
        }
    }

    /// The handshake has settled the options that each segment has, in bytes, and the data of full segments: `receive` of
    /// the peer's at most, `send` of our own. The peer's are taken to be no larger than either (tcp_initialize_rcv_mss; its
    /// third limit, half of the window, is below 536 B only for windows of less than 1072 B).
    pub fn agreed(&mut self, options: u64, receive: u64, send: u64) {
        self.header = HEADER + options;
        self.segment = receive.min(send).clamp(SEGMENT_LEAST, SEGMENT_FIRST);
        self.segment_max = receive;
    }

    /// Data of the peer's full segments, as far as it has shown (rcv_mss).
    #[must_use]
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// Data of the peer's full segments at most.
    #[must_use]
    pub fn segment_max(&self) -> u64 {
        self.segment_max
    }

    /// Learns the size of the peer's full segments, and whether this is a small one, as far as can be told; `true`: this is
    /// larger than any (tcp_measure_rcv_mss).
    #[inline(always)]
    fn measure(&mut self, arrived: Arrived) -> bool {
        let suspected = self.suspected.take();
        if arrived.length >= self.segment {
            // A full segment may be the last of a write, or all that the peer's window allows: acknowledged as soon as the
            // program has read everything (Linux from 6.7 on). A host that is to answer for more than Linux does waits for those.
            self.pushed |= arrived.last && self.every <= EVERY_LINUX;
            let larger = arrived.length > self.segment;
            self.segment = arrived.length.min(self.segment_max);
            return larger;
        }
        // Smaller than assumed. Large enough for a path's usual packets, or not the end of what the peer had to send: it may
        // be full. Two alike are.
        let whole = arrived.header + arrived.length;
        if whole >= HEADER + SEGMENT_FIRST || (whole >= HEADER + SEGMENT_LEAST && !arrived.last) {
            // SACK blocks take room that data would have.
            let length = whole.saturating_sub(self.header);
            if suspected == Some(length) {
                self.segment = length;
                self.suspected = suspected;
                return false;
            }
            self.suspected = Some(length);
        }
        self.pushed = true;
        false
    }

    /// The next data came; whether the segment is larger than those before seemed to be.
    #[inline(always)]
    pub fn data(&mut self, now: Instant, arrived: Arrived, rto: Duration) -> bool {
        let larger = self.measure(arrived);
        self.owed = true;
        if self.pace == Duration::ZERO {
            self.quick = self.quick_total;
            self.pace = DELAY_MIN;
        } else {
            let gap = now.since(self.last_data.unwrap_or(now));
            if gap.ns <= DELAY_MIN.ns / 2 {
                self.pace = Duration { ns: self.pace.ns / 2 + DELAY_MIN.ns / 2 };
            } else if gap < self.pace {
                self.pace = Duration { ns: self.pace.ns / 2 + gap.ns }.min(rto);
            } else if gap > rto {
                // A pause: the sender may be in slow start again.
                self.quick = self.quick_total;
            }
        }
        self.last_data = Some(now);
        larger
    }

    /// The window on offer grew with the last segment: Linux acknowledges it at once (tcp_grow_window).
    pub fn window_grew(&mut self) {
        if self.quick_total > 0 {
            self.quick |= 1;
        }
    }

    /// The peer must hear from us now: a hole, a duplicate, the end of a hole, an end.
    pub fn urgent(&mut self) {
        self.owed = true;
        self.at_once = true;
    }

    /// The peer repeats itself, so it may be missing acknowledgements (Linux's quick-ACK mode).
    pub fn quicken(&mut self) {
        self.urgent();
        self.quick = self.quick.max(self.quick_total);
        self.interactive = false;
        self.pace = DELAY_MIN;
    }

    /// Whether to acknowledge now. `next`: the next byte expected; otherwise the timer runs.
    pub fn decide(&mut self, now: Instant, next: u64, smoothed_rtt: Duration, clock: TimerClock) -> bool {
        if !self.owed {
            return false;
        }
        let quick = self.quick > 0 && !self.interactive;
        if self.at_once || quick || next.saturating_sub(self.acknowledged) > (self.every - 1) * self.segment {
            return true;
        }
        // About to expire: not worth waiting (Linux).
        if self.fixed_delay.is_none() && self.due <= now + Duration::from_nanos(self.pace.ns / 4) {
            return true;
        }
        let delay = self.delay(smoothed_rtt);
        let due = now + delay;
        if due < self.due {
            self.due = due;
            // A delay that is set is the stack's own, by a clock of its own.
            self.fires = if self.fixed_delay.is_some() { due } else { clock.expiry(now, delay) };
        }
        false
    }

    fn delay(&self, smoothed_rtt: Duration) -> Duration {
        if let Some(delay) = self.fixed_delay {
            return delay;
        }
        let mut delay = self.pace;
        if delay > DELAY_MIN {
            let mut most = if self.interactive || self.pushed { DELAY_MAX } else { Duration::from_millis(500) };
            if smoothed_rtt > Duration::ZERO {
                most = most.min(smoothed_rtt.max(DELAY_MIN));
            }
            delay = delay.min(most);
        }
        delay.min(DELAY_MAX)
    }

    /// The program has read everything. Whether to acknowledge now: after a small segment Linux does, unless data goes
    /// both ways.
    #[must_use]
    pub fn drained(&self) -> bool {
        self.owed && self.pushed && !self.interactive && self.fixed_delay.is_none()
    }

    /// A segment with this acknowledgement leaves.
    pub fn sent(&mut self, next: u64) {
        if self.owed {
            self.quick = self.quick.saturating_sub(1);
        }
        self.acknowledged = self.acknowledged.max(next);
        self.owed = false;
        self.at_once = false;
        self.pushed = false;
        self.due = Instant::FAR;
        self.fires = Instant::FAR;
    }

    /// Data of our own leaves at `now`: soon after the peer's, it is a conversation.
    pub fn own_data(&mut self, now: Instant) {
        if self.last_data.is_some_and(|at| now.since(at) < self.pace) {
            self.interactive = true;
        }
    }

    /// The acknowledgement field that the peer has last been sent.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// When the timer of the delay fires; [`Instant::FAR`]: nothing waits for that.
    #[must_use]
    pub fn fires(&self) -> Instant {
        self.fires
    }

    /// The delay has ended; an acknowledgement goes out.
    pub fn expired(&mut self, rto: Duration) {
        if self.interactive {
            self.interactive = false;
            self.pace = DELAY_MIN;
        } else {
            self.pace = Duration { ns: self.pace.ns * 2 }.min(rto);
        }
        self.at_once = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::stack::TcpConfig;

    const RTO: Duration = Duration::from_secs(1);
    /// A header with timestamps.
    const WITH_TIMESTAMPS: u64 = 32;

    /// Segments of (data, header, true if the last one of what the peer had) come a millisecond apart to a host that may
    /// get full ones of `receive` bytes and sends such of `send`; how many it acknowledges at once after Linux's quick
    /// acknowledgements at the start.
    fn acknowledged(receive: u64, send: u64, segments: impl Iterator<Item = (u64, u64, bool)>) -> usize {
        let settings = Settings::new(&TcpConfig { quick_acks: Some(0), ..TcpConfig::default() }).unwrap();
        let mut acks = AckPolicy::new(&settings);
        acks.agreed(12, receive, send);
        let (mut now, mut next, mut count) = (Instant::ZERO, 1, 0);
        acks.sent(next);
        for (length, header, last) in segments {
            now += Duration::from_millis(1);
            next += length;
            acks.data(now, Arrived { length, header, last }, RTO);
            // The program reads at once.
            if acks.decide(now, next, RTO, TimerClock::Exact) || acks.drained() {
                acks.sent(next);
                count += 1;
            }
        }
        count
    }

    fn alike(length: u64, last: bool) -> impl Iterator<Item = (u64, u64, bool)> {
        std::iter::repeat_n((length, WITH_TIMESTAMPS, last), 100)
    }

    #[test]
    fn every_second_full_segment_is_acknowledged_whatever_their_size() {
        for length in [60, 88, 100, 524, 536, 954, 1448] {
            // Both ends know the link's MTU: nothing to learn. Linux takes none below 88 B for full.
            let count = acknowledged(length, length, alike(length, false));
            assert_eq!(count, if length < 88 { 100 } else { 50 }, "{length}");
            // One that is the last for now is acknowledged as soon as it is read, full or not.
            assert_eq!(acknowledged(length, length, alike(length, true)), 100, "{length}");
            let every_third_last =
                alike(length, false).enumerate().map(|(n, (data, header, _))| (data, header, n % 3 == 2));
            let count = acknowledged(length, length, every_third_last);
            assert_eq!(count, if length < 88 { 100 } else { 66 }, "{length}");
        }
        // The peer's own limit, which the SYN does not tell: two alike show it. The first segment is acknowledged as small.
        for (length, last, expected) in [
            (524, false, 50),
            // As long as a full packet of the least MTU that paths have, timestamps included; each is the last for now, but not
            // the one that shows their size is acknowledged for that.
            (524, true, 99),
            // Shorter ones only while more follows.
            (448, false, 50),
            (448, true, 100),
            (60, false, 100),
        ] {
            assert_eq!(acknowledged(1448, 1448, alike(length, last)), expected, "{length} {last}");
        }
    }

    #[test]
    fn sack_blocks_and_short_ends_do_not_make_segments_small() {
        // From the second on, SACK blocks take 12 B of each segment.
        let with_blocks = (0..100).map(|n| if n == 0 { (524, 32, false) } else { (512, 44, false) });
        assert_eq!(acknowledged(1448, 1448, with_blocks), 50);
        let short_end = alike(524, false).chain([(100, WITH_TIMESTAMPS, true)]).chain(alike(524, false));
        assert_eq!(acknowledged(524, 524, short_end), 101);
    }
}
