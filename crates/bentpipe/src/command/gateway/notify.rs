//! Tells systemd how a service is, and its watchdog that it works (sd_notify(3), sd_watchdog_enabled(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Connections are captured, or what was read again is in force.
pub const READY: &str = "READY=1";
/// No new connections are taken.
pub const STOPPING: &str = "STOPPING=1";

/// The file is read again. Since systemd 253 a service of the type `notify-reload` says when it began, too.
#[must_use]
pub fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    format!("RELOADING=1\nMONOTONIC_USEC={microseconds}")
}

/// Sends `state`, if a service manager wants to know.
pub fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::new(&*String::from_utf8_lossy(name))),
    };
    // Whoever asked has gone, or gave no address: the gateway works all the same.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

/// Signs of life for a service manager that ends and restarts who gives none (`WatchdogSec=`).
#[derive(Debug)]
pub struct Watchdog {
    /// `None`: nobody watches.
    every: Option<Duration>,
    next: Option<Instant>,
}

impl Watchdog {
    /// As the service manager asked.
    #[must_use]
    pub fn from_environment() -> Watchdog {
        let text = |name| std::env::var(name).ok();
        let every = interval(text("WATCHDOG_USEC").as_deref(), text("WATCHDOG_PID").as_deref(), std::process::id());
        Watchdog { every, next: None }
    }

    /// Gives a sign of life if one is due, and says in a line how things are. Only for a thread that has just done, or
    /// seen done, what the service is for.
    pub fn ping(&mut self, now: Instant, status: impl FnOnce() -> String) {
        let Some(every) = self.every else { return };
        if self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + every);
            tell(&format!("WATCHDOG=1\nSTATUS={}", status()));
        }
    }
}

/// Half of the time in which a sign of life must come, as sd_watchdog_enabled(3) advises. `None`: it is not asked of us.
fn interval(microseconds: Option<&str>, process: Option<&str>, own: u32) -> Option<Duration> {
    if process.is_some_and(|process| process.parse() != Ok(own)) {
        return None;
    }
    let microseconds: u64 = microseconds?.parse().ok()?;
    (microseconds > 0).then(|| Duration::from_micros(microseconds) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_asked_gives_no_signs_of_life() {
        assert_eq!(interval(Some("30000000"), None, 7), Some(Duration::from_secs(15)));
        assert_eq!(interval(Some("30000000"), Some("7"), 7), Some(Duration::from_secs(15)));
        assert_eq!(interval(Some("30000000"), Some("8"), 7), None, "a parent of ours");
        for nonsense in [None, Some("0"), Some(""), Some("-1"), Some("30 s"), Some("99999999999999999999999")] {
            assert_eq!(interval(nonsense, None, 7), None, "{nonsense:?}");
        }
        assert_eq!(interval(Some("30000000"), Some("me"), 7), None);
    }
}
