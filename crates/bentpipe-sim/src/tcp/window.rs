//! The window that the receiver advertises.

use super::settings::Settings;
use bentpipe_link::time::{Duration, Instant};

/// How much the peer may send.
#[derive(Debug)]
pub struct ReceiveWindow {
    fixed: Option<u64>,
    shift: u8,
    /// Highest edge told to the peer; it is never taken back (RFC 9293 §3.8.6).
    edge: u64,
    tuning: Tuning,
}

/// Tuning to what the program reads, as Linux does (tcp_rcv_space_adjust): twice what it read in the last round trip and
/// more while that grows.
#[derive(Debug)]
struct Tuning {
    window: u64,
    space: u64,
    read: u64,
    mark: u64,
    since: Instant,
}

/// First window of a tuned connection, and the most it grows to: what Linux's default buffers of 128 KiB and 32 MiB hold.
const TUNED_FIRST: u64 = 65_535;
const TUNED_MAX: u64 = 16 << 20;
/// Shift for the tuned window: the smallest with which the largest buffer fits (RFC 7323 §2.3).
const TUNED_SHIFT: u8 = 9;

impl ReceiveWindow {
    /// The window of a new connection.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let shift = match (settings.window_scaling, settings.receive_window) {
            (false, _) => 0,
            (true, Some(limit)) => (0..14).find(|shift| limit >> shift <= 65_535).unwrap_or(14),
            (true, None) => TUNED_SHIFT,
        };
        ReceiveWindow {
            fixed: settings.receive_window,
            shift,
            edge: 0,
            tuning: Tuning { window: TUNED_FIRST, space: 14_480, read: 0, mark: 0, since: Instant::ZERO },
        }
    }

    /// The shift to offer.
    #[must_use]
    pub fn shift(&self) -> u8 {
        self.shift
    }

    /// The field of the header for the window at `next`, with `unread` bytes in the buffer. `scaled`: window scaling is in
    /// force; `segment`: data of a full segment. A fixed window is told in whole segments: a sender would fill the rest
    /// of it with one small segment a round trip (RFC 1122 §4.2.3.3).
    pub fn field(&mut self, next: u64, unread: u64, scaled: bool, segment: u64) -> u16 {
        let window = self.size(unread, segment);
        let shift = if scaled { self.shift } else { 0 };
        self.edge = self.edge.max(next + window.min(65_535 << shift));
        ((self.edge - next) >> shift).min(65_535) as u16
    }

    fn size(&self, unread: u64, segment: u64) -> u64 {
        match self.fixed {
            Some(limit) => {
                let room = limit.saturating_sub(unread);
                if limit < segment { room } else { room / segment * segment }
            }
            None => self.tuning.window.saturating_sub(unread),
        }
    }

    /// Highest edge told to the peer.
    #[must_use]
    pub fn edge(&self) -> u64 {
        self.edge
    }

    /// Whether the program's reading has made so much room that the peer should hear of it: two segments, or half of all
    /// there is (RFC 9293 §3.8.6.2.2; Linux tells when the window has doubled).
    #[must_use]
    pub fn worth_telling(&self, next: u64, unread: u64, segment: u64) -> bool {
        let told = self.edge.saturating_sub(next);
        let size = self.size(unread, segment);
        let most = self.fixed.unwrap_or(self.tuning.window);
        size > told && size - told >= (2 * segment).min(most / 2).max(1) && size >= told * 2
    }

    /// The program has read everything up to `position`; `rtt`: round-trip time as seen here, zero if unknown.
    pub fn read(&mut self, now: Instant, position: u64, rtt: Duration, segment: u64) {
        if self.fixed.is_some() || rtt == Duration::ZERO {
            return;
        }
        let tuning = &mut self.tuning;
        tuning.read = position;
        if now.since(tuning.since) < rtt {
            return;
        }
        let copied = tuning.read - tuning.mark;
        if copied > tuning.space {
            let mut window = copied * 2 + 16 * segment;
            window += 2 * (u128::from(window) * u128::from(copied - tuning.space) / u128::from(tuning.space)) as u64;
            tuning.window = tuning.window.max(window.min(TUNED_MAX));
            tuning.space = copied;
        }
        tuning.mark = tuning.read;
        tuning.since = now;
    }
}
