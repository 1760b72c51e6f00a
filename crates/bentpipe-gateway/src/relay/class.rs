//! Which connections go before the rest: short ones and marked ones.

use crate::satellite::Class;
use crate::settings::Interactive;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;

/// The policy of [`Interactive`], with the allowance worked out for the link.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    bytes: u64,
    period: Duration,
    idle: Duration,
    ports: Vec<u16>,
    bulk_ports: Vec<u16>,
    dscp: Vec<u8>,
    bulk_dscp: Vec<u8>,
}

impl Policy {
    pub(crate) fn new(config: &Interactive, rate: Option<BitRate>) -> Policy {
        let carried = rate.map_or(u64::MAX, |rate| rate.bytes_in(Duration::from_secs(2)));
        Policy {
            bytes: config.bytes.map_or(carried.clamp(2_000, 32_000), |size| size.bytes),
            period: config.period,
            idle: config.idle,
            ports: config.ports.clone(),
            bulk_ports: config.bulk_ports.clone(),
            dscp: config.dscp.clone(),
            bulk_dscp: config.bulk_dscp.clone(),
        }
    }
}

/// One direction of one connection. It needs no timer: time is looked at when bytes pass.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The mark decides, once and for all.
    fixed: Option<Class>,
    class: Class,
    /// Bytes above the allowance's renewal.
    level: u64,
    last: Instant,
}

impl Meter {
    /// For a connection to `port` with this traffic class octet. The DSCP decides before the port. Its opening or reply
    /// goes as [`Class::Control`].
    pub(crate) fn new(policy: &Policy, port: u16, traffic_class: u8) -> Meter {
        let dscp = traffic_class >> 2;
        let fixed = if policy.dscp.contains(&dscp) {
            Some(Class::Interactive)
        } else if policy.bulk_dscp.contains(&dscp) {
            Some(Class::Bulk)
        } else if policy.ports.contains(&port) {
            Some(Class::Interactive)
        } else if policy.bulk_ports.contains(&port) {
            Some(Class::Bulk)
        } else {
            None
        };
        Meter { fixed, class: Class::Control, level: 0, last: Instant::ZERO }
    }

    /// `bytes` are about to be sent; the class that the stream must move to, if it must.
    pub(crate) fn note(&mut self, policy: &Policy, now: Instant, bytes: usize) -> Option<Class> {
        let quiet = now.since(self.last);
        self.last = now;
        let class = match self.fixed {
            Some(class) => class,
            None => {
                let renewed = u128::from(policy.bytes) * u128::from(quiet.ns) / u128::from(policy.period.ns.max(1));
                if quiet >= policy.idle {
                    self.level = 0;
                } else {
                    self.level = self.level.saturating_sub(u64::try_from(renewed).unwrap_or(u64::MAX));
                }
                self.level = self.level.saturating_add(bytes as u64);
                let stays_bulk = self.class == Class::Bulk && quiet < policy.idle;
                if stays_bulk || self.level > policy.bytes { Class::Bulk } else { Class::Interactive }
            }
        };
        (class != std::mem::replace(&mut self.class, class)).then_some(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rate: u64) -> Policy {
        Policy::new(&Interactive::default(), Some(BitRate::from_bps(rate)))
    }

    #[test]
    fn a_connection_becomes_bulk_by_what_it_sends_and_interactive_again_by_silence() {
        let policy = policy(1_000_000_000);
        let mut meter = Meter::new(&policy, 80, 0);
        let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(meter.note(&policy, ms(0), 100), Some(Class::Interactive));
        assert_eq!(meter.note(&policy, ms(10), 30_000), None);
        assert_eq!(meter.note(&policy, ms(20), 3_000), Some(Class::Bulk));
        assert_eq!(meter.note(&policy, ms(1_900), 1), None);
        assert_eq!(meter.note(&policy, ms(3_900), 1), Some(Class::Interactive));
        // A slow trickle with pauses below the idle time never becomes bulk: 2 kB a second are renewed.
        for second in 4..400 {
            assert_eq!(meter.note(&policy, ms(second * 1000), 2_000), None);
        }
    }

    #[test]
    fn marks_decide() {
        let policy = policy(10_000_000);
        let mut ssh = Meter::new(&policy, 22, 0);
        assert_eq!(ssh.note(&policy, Instant::ZERO, 1_000_000), Some(Class::Interactive));
        let mut scavenger = Meter::new(&policy, 22, 8 << 2);
        assert_eq!(scavenger.note(&policy, Instant::ZERO, 1), Some(Class::Bulk));
    }

    #[test]
    fn a_thin_link_has_a_small_allowance() {
        let policy = policy(9_600);
        let mut meter = Meter::new(&policy, 80, 0);
        assert_eq!(meter.note(&policy, Instant::ZERO, 2_400), Some(Class::Interactive));
        assert_eq!(meter.note(&policy, Instant::ZERO, 1), Some(Class::Bulk));
    }
}
