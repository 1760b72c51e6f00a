//! The limit of a program's unacknowledged data: Linux's send buffer, which counts the memory of its
//! packet buffers and grows with the congestion window only while that is not full (tcp_sndbuf_expand).

use super::settings::Settings;

/// The size of the buffer. What it holds is counted by [`super::scoreboard`] and [`super::send_queue`].
#[derive(Debug)]
pub struct SendBuffer {
    size: u64,
    most: u64,
    /// First byte of the last packet buffer that the program began.
    last: u64,
}

/// The contents of the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Bytes given and not acknowledged.
    pub bytes: u64,
    /// Of those, bytes not sent.
    pub unsent: u64,
    /// Packet buffers of what was sent.
    pub buffers: u64,
}

/// Segments sent at once that share a packet buffer (Linux: tcp_min_tso_segs).
pub const SEGMENTS_SHARED: u32 = 2;
/// Memory of a packet buffer besides its payload: sk_buff, skb_shared_info and room for headers. This and
/// [`HEADER_ROOM`] depend on the kernel's configuration; they are those of the kernel of the parity runs, as `ss -m` shows.
const BUFFER_OVERHEAD: u64 = 832;
/// Linux's addition to a segment's payload when it accounts memory: MAX_TCP_HEADER and skb_shared_info, and, after
/// rounding up to a power of two, sk_buff (tcp_sndbuf_expand).
const HEADER_ROOM: u64 = 576;
const HEADER: u64 = 256;
/// Segments of the first window (TCP_INIT_CWND), for which there is always room.
const FIRST_SEGMENTS: u32 = 10;
/// Largest buffer, unless `send_buffer` asks for more (Linux: tcp_wmem; live sites are given four times `send_buffer`).
const SIZE_MAX: u64 = 4 << 20;
const PER_WINDOW: u64 = 4;
/// Payload that one packet buffer takes at most (GSO_LEGACY_MAX_SIZE without headers).
const PAYLOAD_MAX: u64 = 65_279;
/// A window that is not halved (TCP_MSS_DEFAULT).
const WINDOW_SMALL: u64 = 536;

impl SendBuffer {
    /// The buffer of a connection that is about to open.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let most = settings.send_limit.map_or(SIZE_MAX, |limit| SIZE_MAX.max(limit.saturating_mul(PER_WINDOW)));
        SendBuffer { size: 0, most, last: 0 }
    }

    /// The congestion window of `window` segments of `segment` bytes is not full, or the connection has opened: the buffer
    /// holds `factor` windows from now on.
    pub fn expand(&mut self, window: u32, factor: u64, segment: u64) {
        let memory = (segment + HEADER_ROOM).next_power_of_two() + HEADER;
        let wanted = factor * u64::from(window.max(FIRST_SEGMENTS)) * memory;
        self.size = self.size.max(wanted.min(self.most));
    }

    /// Of `length` bytes that the program gives at once after byte `end`, those that there is room for. A packet buffer that is
    /// not full may be filled in any case. `window`: what the peer offers, of which a packet buffer holds at most half
    /// (tcp_bound_to_half_wnd); `sendable`: unsent bytes that may leave at once.
    ///
    /// While the program gives, data leave already (tcp_sendmsg): from a full packet buffer that is the first two segments, which
    /// makes room for as much in it, and after each half window all that may.
    pub fn take(&mut self, length: u64, end: u64, held: Held, segment: u64, window: u64, mut sendable: u64) -> u64 {
        let most = if window > WINDOW_SMALL { PAYLOAD_MAX.min(window / 2) } else { PAYLOAD_MAX };
        let goal = (most / segment).max(1) * segment;
        let shared = u64::from(SEGMENTS_SHARED) * segment;
        let (mut memory, mut unsent) = (held.memory(), held.unsent);
        let (mut taken, mut pushed) = (0, 0);
        // In the last packet buffer, and not sent.
        let mut begun = unsent.min(end.saturating_sub(self.last));
        while taken < length {
            if begun == 0 || begun >= goal {
                if memory >= self.size {
                    break;
                }
                memory += BUFFER_OVERHEAD;
                begun = 0;
            }
            let piece = (goal - begun).min(length - taken);
            taken += piece;
            memory += piece;
            begun += piece;
            unsent += piece;
            if begun < goal || sendable < segment {
                continue;
            }
            let leaves = if taken - pushed > window / 2 {
                pushed = taken;
                unsent
            } else if unsent == begun {
                shared.min(unsent)
            } else {
                0
            };
            let leaves = leaves.min(sendable / segment * segment);
            sendable -= leaves;
            unsent -= leaves;
            memory += BUFFER_OVERHEAD * (leaves.div_ceil(shared)).saturating_sub(u64::from(unsent == 0));
            begun = begun.min(unsent);
        }
        if taken > 0 {
            self.last = end + taken - begun;
        }
        taken
    }

    /// True if a program that was refused room hears of more: a third must be free (sk_stream_is_writeable).
    #[must_use]
    pub fn is_writeable(&self, held: Held) -> bool {
        let memory = held.memory();
        self.size.saturating_sub(memory) >= memory / 2
    }
}

impl Held {
    fn memory(self) -> u64 {
        self.bytes + BUFFER_OVERHEAD * (self.buffers + self.unsent.div_ceil(PAYLOAD_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::stack::TcpConfig;

    const EMPTY: Held = Held { bytes: 0, unsent: 0, buffers: 0 };

    fn buffer() -> SendBuffer {
        SendBuffer::new(&Settings::new(&TcpConfig::from_table(toml::Table::new()).unwrap()).unwrap())
    }

    /// `ss -m` of a transfer over a T1 (tb, Send-Q): 46 080 B at first, 110 592 B when a window of 24 was not full.
    #[test]
    fn sizes_are_those_of_linux() {
        let mut buffer = buffer();
        buffer.expand(4, 2, 1460);
        assert_eq!(buffer.size, 46_080);
        buffer.expand(24, 2, 1460);
        assert_eq!(buffer.size, 110_592);
        buffer.expand(12, 2, 1460);
        assert_eq!(buffer.size, 110_592, "it never shrinks");
        buffer.expand(100_000, 2, 1460);
        assert_eq!(buffer.size, 4 << 20);
    }

    /// A packet buffer of half the window, 39 segments, overfills a buffer of 46 080 B; a third must be free again.
    #[test]
    fn the_last_packet_buffer_is_filled() {
        let mut buffer = buffer();
        buffer.expand(4, 2, 1460);
        assert_eq!(buffer.take(1 << 20, 1, EMPTY, 1460, 113_880, 0), 39 * 1460);
        let full = 39 * 1460;
        let sent = Held { bytes: full, unsent: full - 4 * 1460, buffers: 2 };
        assert_eq!(buffer.take(1 << 20, 1 + full, sent, 1460, 113_880, 0), 4 * 1460);
        assert_eq!(buffer.take(1 << 20, 1 + full, Held { unsent: 0, ..sent }, 1460, 113_880, 0), 0);
        assert!(!buffer.is_writeable(sent));
        assert!(buffer.is_writeable(Held { bytes: 28_000, unsent: 0, buffers: 3 }));
        assert!(!buffer.is_writeable(Held { bytes: 28_000, unsent: 0, buffers: 4 }));
    }

    /// Linux 6.18, `ss -m`: 134,789 B are taken at once where the window of 99 segments is empty and the buffer has 124,416 B; without
    /// room in the window, two packet buffers of 65,160 B are.
    #[test]
    fn what_leaves_while_the_program_gives_makes_room() {
        let mut buffer = buffer();
        buffer.expand(27, 2, 1460);
        assert_eq!(buffer.size, 124_416);
        // A small segment of 137 B is on its way.
        let held = Held { bytes: 137, unsent: 0, buffers: 1 };
        assert_eq!(buffer.take(134_789, 138, held, 1448, 159_280, 98 * 1448), 134_789);
        assert_eq!(buffer.take(134_789, 138, held, 1448, 159_280, 0), 2 * 65_160);
    }
}
