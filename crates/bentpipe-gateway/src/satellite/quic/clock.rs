//! Model time for a library that insists on the standard library's: one epoch plus the model's offset.

use bentpipe_net::time::{Duration, Instant};
use quinn_proto::TimeSource;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant as StdInstant, SystemTime};

/// Translates times.
#[derive(Debug)]
pub(super) struct Clock {
    epoch: StdInstant,
    now_ns: Arc<AtomicU64>,
}

/// The time of day for the lifetime of address tokens; begins in 1970 with the model's time.
#[derive(Debug)]
pub(super) struct TimeOfDay(Arc<AtomicU64>);

impl Clock {
    // The epoch stands for the model's time zero; only differences to it are ever used.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn new() -> Clock {
        Clock { epoch: StdInstant::now(), now_ns: Arc::new(AtomicU64::new(0)) }
    }

    /// Model time as the library's; later is the time of day too.
    pub(super) fn at(&self, now: Instant) -> StdInstant {
        self.now_ns.store(now.ns, Ordering::Relaxed);
        self.epoch + Duration::from_nanos(now.ns).to_std()
    }

    /// The library's time as model time.
    pub(super) fn model(&self, at: StdInstant) -> Instant {
        Instant::ZERO + Duration::from(at.saturating_duration_since(self.epoch))
    }

    pub(super) fn time_of_day(&self) -> Arc<TimeOfDay> {
        Arc::new(TimeOfDay(Arc::clone(&self.now_ns)))
    }
}

impl TimeSource for TimeOfDay {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
