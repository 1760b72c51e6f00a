//! When the link has room for the next packet: each takes the time that its bits take at the rate.

use bentpipe_link::framing::Framing;
use bentpipe_net::buffer::Buffer;
use bentpipe_net::time::{Duration, Instant};
use std::net::SocketAddr;

/// Most time that the pacer catches up: a driver that wakes this late, as on a busy machine, loses nothing of the rate, and
/// no queue ever gets a longer burst.
const CATCH_UP: Duration = Duration::from_millis(10);

/// UDP header (RFC 768).
const UDP_HEADER: u64 = 8;

/// Bytes of IP and UDP headers around a datagram to `to`.
pub(super) fn headers(to: SocketAddr) -> u64 {
    UDP_HEADER + if to.ip().to_canonical().is_ipv4() { 20 } else { 40 }
}

/// Bits on the wire of a datagram to `to`, whatever the link wraps around it included. A packet longer than `mtu` goes
/// in fragments, each with an IP header of its own.
pub(super) fn wire_bits(framing: &Framing, mtu: u64, to: SocketAddr, datagram: &[u8]) -> u64 {
    let header = headers(to);
    let length = header + datagram.len() as u64;
    let length = length + (header - UDP_HEADER) * (length.saturating_sub(1) / mtu.max(header + 8));
    if !framing.reads_content() {
        return framing.bits(length, false);
    }
    let mut bytes = vec![0x45; (length as usize).saturating_sub(datagram.len())];
    bytes.extend(datagram);
    framing.bits_of(&Buffer::from_vec(bytes), false)
}

/// Slots at a rate. The long-run rate is exact: what a nanosecond's rounding leaves over is carried on.
#[derive(Debug)]
pub(super) struct Pacer {
    bps: u64,
    next: Instant,
    /// Billionths of a bit that the last slots were too short by, below `bps`.
    carry: u64,
    /// Nothing waited when last asked: what is late now is no reason to catch up.
    idle: bool,
}

impl Pacer {
    pub(super) fn new(now: Instant, bps: u64) -> Pacer {
        Pacer { bps: bps.max(1), next: now, carry: 0, idle: true }
    }

    /// Changes the rate from the next slot on.
    pub(super) fn set_rate(&mut self, bps: u64) {
        if bps.max(1) != self.bps {
            self.bps = bps.max(1);
            self.carry = 0;
        }
    }

    /// Bits per second.
    pub(super) fn rate(&self) -> u64 {
        self.bps
    }

    /// The link has room for a packet.
    pub(super) fn has_room(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// When it will.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// A packet of so many bits leaves.
    pub(super) fn sent(&mut self, now: Instant, bits: u64) {
        let earliest = if self.idle { now } else { Instant { ns: now.ns.saturating_sub(CATCH_UP.ns) } };
        if self.next < earliest {
            self.next = earliest;
            self.carry = 0;
        }
        let billionths = u128::from(bits) * 1_000_000_000 + u128::from(self.carry);
        let ns = u64::try_from(billionths / u128::from(self.bps)).unwrap_or(u64::MAX / 4);
        self.carry = u64::try_from(billionths % u128::from(self.bps)).unwrap_or(0);
        self.next += Duration::from_nanos(ns);
        self.idle = false;
    }

    /// Nothing waits.
    pub(super) fn rest(&mut self) {
        self.idle = true;
    }

    /// The time that so many bits take.
    pub(super) fn time_for(&self, bits: u64) -> Duration {
        let ns = u128::from(bits) * 1_000_000_000 / u128::from(self.bps);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_link::framing::{AsyncPpp, Ppp};

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(us)
    }

    #[test]
    fn the_long_run_rate_is_exact() {
        let mut pacer = Pacer::new(Instant::ZERO, 1_536_000);
        for _ in 0..1_536 {
            let now = pacer.next();
            assert!(pacer.has_room(now));
            pacer.sent(now, 12_000);
            assert!(!pacer.has_room(now));
        }
        assert_eq!(pacer.next(), Instant::ZERO + Duration::from_secs(12));
    }

    #[test]
    fn a_late_driver_loses_nothing_and_an_idle_one_gains_nothing() {
        let mut pacer = Pacer::new(Instant::ZERO, 12_000_000);
        pacer.sent(at(0), 12_000);
        // The slot was at 1 ms; the driver comes at 2.5 ms.
        pacer.sent(at(2_500), 12_000);
        assert_eq!(pacer.next(), at(2_000));
        assert!(pacer.has_room(at(2_500)), "the next slot is past already");
        pacer.sent(at(2_500), 12_000);
        assert_eq!(pacer.next(), at(3_000));
        // Thirty milliseconds late: ten are caught up.
        pacer.sent(at(33_000), 12_000);
        assert_eq!(pacer.next(), at(24_000));
        pacer.rest();
        pacer.sent(at(50_000), 12_000);
        assert_eq!(pacer.next(), at(51_000), "after idleness a slot is a slot");
    }

    #[test]
    fn headers_framing_and_fragments_count() {
        let v4 = "10.0.0.1:1".parse().unwrap();
        let v6 = "[fd00::1]:1".parse().unwrap();
        assert_eq!(wire_bits(&Framing::None, 1500, v4, &[0; 1000]), 1028 * 8);
        assert_eq!(wire_bits(&Framing::None, 1500, v6, &[0; 1000]), 1048 * 8);
        assert_eq!(wire_bits(&Framing::Ppp(Ppp::PLAIN), 1500, v4, &[0; 1472]), 1507 * 8);
        assert_eq!(wire_bits(&Framing::None, 500, v4, &[0; 1200]), (1228 + 2 * 20) * 8, "three fragments");
        let line = AsyncPpp { frame: Ppp::PLAIN, bits_per_byte: 10, escape_map: 0 };
        let plain = wire_bits(&Framing::AsyncPpp(line), 1500, v4, &[0x55; 10]);
        assert_eq!(wire_bits(&Framing::AsyncPpp(line), 1500, v4, &[0x7e; 10]), plain + 100, "flags are escaped");
    }
}
