//! The window that the receiver advertises.

use super::autotuning::Autotuning;
use super::settings::Settings;
use bentpipe_net::time::Instant;

/// The receive window.
///
/// Linux's tuning of the receive buffer decides more than the window: while the granted window grows, it
/// acknowledges every segment (tcp_grow_window). So that is followed here even where the advertised window is fixed.
#[derive(Debug)]
pub struct ReceiveWindow {
    fixed: Option<u64>,
    shift: u8,
    /// Highest edge advertised to the peer; it is never taken back (RFC 9293 §3.8.6).
    edge: u64,
    /// The window that the stack grants now (Linux's rcv_ssthresh), the buffer's size (window_clamp), and the size it may
    /// grow to.
    pub(super) granted: u64,
    clamp: u64,
    clamp_max: u64,
    /// Parts of the buffer's memory that are data, of 256 (scaling_ratio).
    data_part: u64,
    /// A fixed window is advertised to the byte.
    exact: bool,
    /// Data of a full segment, and of the whole segments in a fixed window.
    whole: (u64, u64),
    tuning: Autotuning,
}

/// Linux's default buffer (tcp_rmem) and the most it is tuned to; a host with a `receive_window` has four times that
/// window, and at most 6 MiB or twice as much again (as live sites are set up).
const BUFFER: u64 = 131_072;
const BUFFER_MAX: u64 = 32 << 20;
const FIXED_BUFFER_MAX: u64 = 6 << 20;
/// Data in a buffer before any has come, of 256 parts (TCP_DEFAULT_SCALING_RATIO).
const DATA_PART_FIRST: u64 = 128;
/// The rest of a packet in memory: what a packet socket leaves free before it (LL_RESERVED_SPACE), link and IP header; what
/// the kernel adds after it (skb_shared_info) and apart from it (sk_buff), both in whole cache lines (SKB_TRUESIZE).
const BEFORE_TCP: u64 = 16 + 14 + 20;
const CACHE_LINE: u64 = 64;
const SHARED_INFO: u64 = 320;
const SK_BUFF: u64 = 256;
/// Shift for the tuned window: the smallest with which the largest buffer fits (RFC 7323 §2.3).
const TUNED_SHIFT: u8 = 9;
/// Segments smaller than this do not make the window grow.
const GROWS_FROM: u64 = 128;

impl ReceiveWindow {
    /// The window of a new connection.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let shift = match (settings.window_scaling, settings.receive_window) {
            (false, _) => 0,
            (true, Some(limit)) => (0..14).find(|shift| limit >> shift <= 65_535).unwrap_or(14),
            (true, None) => TUNED_SHIFT,
        };
        let (buffer, buffer_max) = match settings.receive_window {
            Some(limit) => {
                let buffer = BUFFER.max(limit.saturating_mul(4));
                (buffer, FIXED_BUFFER_MAX.max(buffer.saturating_mul(2)))
            }
            None => (BUFFER, BUFFER_MAX),
        };
        let data = |buffer: u64| buffer / 256 * DATA_PART_FIRST;
        ReceiveWindow {
            fixed: settings.receive_window,
            shift,
            edge: 0,
            granted: settings.receive_window.unwrap_or(65_535).min(buffer / 2),
            clamp: data(buffer),
            clamp_max: data(buffer_max),
            data_part: DATA_PART_FIRST,
            exact: !settings.whole_segments,
            whole: (1, settings.receive_window.unwrap_or(0)),
            tuning: Autotuning::default(),
        }
    }

    /// The shift to offer.
    #[must_use]
    pub fn shift(&self) -> u8 {
        self.shift
    }

    /// The field of the header for the window at `next`, with `unread` bytes in the buffer. `scaled`: window scaling is in
    /// force; `segment`: data of a full segment. A fixed window is advertised in whole segments unless settings say
    /// otherwise: a sender would fill the rest of it with one small segment a round trip (RFC 1122 §4.2.3.3).
    pub fn field(&mut self, next: u64, unread: u64, scaled: bool, segment: u64) -> u16 {
        let segment = if self.exact { 1 } else { segment };
        if self.whole.0 != segment {
            self.whole = (segment, self.fixed.unwrap_or(0) / segment.max(1) * segment);
        }
        let window = self.size(unread, segment);
        let shift = if scaled { self.shift } else { 0 };
        self.edge = self.edge.max(next + window.min(65_535 << shift));
        if self.fixed.is_none() {
            // Linux rounds up what the field's scale cannot say (__tcp_select_window, tcp_select_window): without that, duplicates of an
            // acknowledgement would not be alike.
            let offered = (self.edge - next).next_multiple_of(1 << shift).min(65_535 << shift);
            self.edge = self.edge.max(next + offered);
        }
        ((self.edge - next) >> shift).min(65_535) as u16
    }

    /// A fixed window is the limit until the program falls behind so far that the buffer has no room for it.
    fn size(&self, unread: u64, segment: u64) -> u64 {
        let room = self.clamp.saturating_sub(unread);
        match self.fixed {
            None => self.granted.min(room),
            Some(limit) if limit < segment => limit.min(room),
            Some(limit) if limit <= room && self.whole.0 == segment => self.whole.1,
            Some(limit) => limit.min(room) / segment * segment,
        }
    }

    /// Highest edge advertised to the peer.
    #[must_use]
    pub fn edge(&self) -> u64 {
        self.edge
    }

    /// A segment with `length` bytes of data came, more than any before: the share of the buffer that is data is judged anew by
    /// it (tcp_measure_rcv_mss, tcp_set_window_clamp). `header`: bytes of its TCP header.
    pub fn larger_segment(&mut self, length: u64, header: u64) {
        let part = (length * 256 / memory(length, header)).max(1);
        if part == self.data_part {
            return;
        }
        let before = self.clamp;
        for clamp in [&mut self.clamp, &mut self.clamp_max] {
            *clamp = (u128::from(*clamp) * u128::from(part) / u128::from(self.data_part)) as u64;
        }
        self.data_part = part;
        if self.clamp < before {
            self.granted = self.granted.min(self.clamp);
        }
        self.tuning.limit(self.clamp);
    }

    /// The next data came, of `length` bytes from `next` on; whether the stack grants more because of it.
    pub fn data(&mut self, now: Instant, next: u64, length: u64, unread: u64) -> bool {
        self.tuning.received(now, next + length, self.granted);
        length >= GROWS_FROM && self.grow(length, unread)
    }

    /// A segment with `length` bytes of data is no burden; whether the stack grants more because of it (tcp_grow_window).
    pub fn grow(&mut self, length: u64, unread: u64) -> bool {
        let room = self.clamp.saturating_sub(unread).saturating_sub(self.granted);
        if room == 0 {
            return false;
        }
        self.granted += room.min(2 * length);
        true
    }

    /// True if the program's reading has made so much room that the peer should hear of it: two segments, or half of all
    /// there is (RFC 9293 §3.8.6.2.2; Linux tells when the window has doubled), as far as the field of the header can
    /// say it.
    #[must_use]
    pub fn worth_telling(&self, next: u64, unread: u64, scaled: bool, segment: u64) -> bool {
        let advertised = self.edge.saturating_sub(next);
        let shift = if scaled { self.shift } else { 0 };
        let size = self.size(unread, segment).min(65_535 << shift);
        let most = self.fixed.unwrap_or(self.granted);
        size >= advertised * 2 && size > advertised && size - advertised >= (2 * segment).min(most / 2).max(1)
    }

    /// The connection is open; `segment`: data of a full segment.
    pub fn open(&mut self, now: Instant, position: u64, segment: u64) {
        self.tuning.open(now, position, segment, self.granted);
    }

    /// The estimate of the round trip, and what it makes of the buffer.
    pub fn tuning(&mut self) -> &mut Autotuning {
        &mut self.tuning
    }

    /// The program has read everything up to `position`; `unread`, `later`: see [`Autotuning::read`].
    pub fn read(&mut self, now: Instant, position: u64, unread: u64, later: u64) {
        if let Some(window) = self.tuning.read(now, position, unread, later) {
            self.clamp = self.clamp.max(window.min(self.clamp_max));
        }
    }
}

/// Memory that a received segment takes (truesize): its packet's, in a slab whose sizes are powers of two.
fn memory(length: u64, header: u64) -> u64 {
    ((BEFORE_TCP + header + length).next_multiple_of(CACHE_LINE) + SHARED_INFO).next_power_of_two() + SK_BUFF
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::stack::TcpConfig;
    use bentpipe_net::units::DataSize;

    #[test]
    fn segments_take_the_memory_of_whole_slabs() {
        // 1448 B: as Linux 6.18 counts it, ss -m.
        assert_eq!([100, 524, 954, 1448].map(|length| memory(length, 32)), [768, 1280, 2304, 2304]);
    }

    /// Segments that come until the window grows no more: each is acknowledged at once.
    #[test]
    fn the_window_grows_until_the_buffer_is_full_of_segments_such_as_came() {
        let grows = |larger: Option<u64>, length: u64| {
            let config = TcpConfig { receive_window: Some(DataSize { bytes: 1 << 20 }), ..TcpConfig::default() };
            let mut window = ReceiveWindow::new(&Settings::new(&config).unwrap());
            larger.iter().for_each(|length| window.larger_segment(*length, 32));
            (0..).take_while(|n| window.data(Instant::ZERO, 1 + n * length, length, 0)).count() as u64
        };
        // A buffer of 4 MiB, of which a window of 1 MiB is granted. Segments that are no larger than assumed teach nothing:
        // half of the buffer is data.
        assert_eq!(grows(None, 524), ((2u64 << 20) - (1 << 20)).div_ceil(2 * 524));
        assert_eq!(grows(Some(954), 954), ((4u64 << 12) * 106 - (1 << 20)).div_ceil(2 * 954));
        assert_eq!(grows(Some(1448), 1448), ((4u64 << 12) * 160 - (1 << 20)).div_ceil(2 * 1448));
    }
}
