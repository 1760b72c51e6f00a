//! Linux's default limits of socket buffers, and what they let be in flight.

/// Linux's default upper limit of a send buffer (tcp_wmem).
pub const SEND_BUFFER_DEFAULT: u64 = 4 << 20;
/// Bytes that such a buffer keeps in flight: two segments of 1448 bytes take 3728 bytes of it, and a program that was refused room
/// fills it again once a third is free, so that five sixths are full on average.
pub const SEND_LIMIT_DEFAULT: u64 = SEND_BUFFER_DEFAULT / 3728 * 2896 / 6 * 5;
/// Linux's default upper limit of a receive buffer (tcp_rmem) before 6.16.
pub const RECEIVE_BUFFER_DEFAULT: u64 = 6 << 20;
/// And since then.
pub const RECEIVE_BUFFER_RECENT: u64 = 32 << 20;
/// The window that such a buffer allows: a segment of 1448 bytes takes 2304 bytes of it.
pub const RECEIVE_LIMIT_DEFAULT: u64 = RECEIVE_BUFFER_DEFAULT / 256 * 160;
