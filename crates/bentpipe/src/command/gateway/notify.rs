//! Signs of life for a service manager that ends and restarts a service that gives none (sd_watchdog_enabled(3)).

use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// Tells the service manager, if there is one. One that has gone is no reason to stop: the gateway works all the same.
pub fn tell(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// The watchdog of the service manager (`WatchdogSec=`).
#[derive(Debug)]
pub struct Watchdog {
    /// Half of the time in which a sign of life must come. `None`: nobody watches.
    every: Option<Duration>,
    next: Option<Instant>,
}

impl Watchdog {
    /// As the environment has it.
    #[must_use]
    pub fn from_environment() -> Watchdog {
        let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
        Watchdog { every: limit.map(|limit| limit / 2), next: None }
    }

    /// Gives a sign of life if one is due, with the state in a line. Only for a thread that has just done, or seen done,
    /// what the service is for.
    pub fn ping(&mut self, now: Instant, status: impl FnOnce() -> String) {
        let Some(every) = self.every else { return };
        if self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + every);
            tell(&[NotifyState::Watchdog, NotifyState::Status(&status())]);
        }
    }
}
