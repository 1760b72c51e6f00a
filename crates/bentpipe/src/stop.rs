//! Ctrl-C and its kin: once to stop cleanly, twice to stop at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit status after Ctrl-C (128 + SIGINT).
pub const EXIT_INTERRUPTED: u8 = 130;

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets; the second ends the process at once.
pub fn flag_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, i32::from(EXIT_INTERRUPTED), Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Signals received while a command shares our terminal.
pub struct EndFlags {
    /// Ctrl-C or Ctrl-\ at the terminal.
    pub interrupt: Arc<AtomicBool>,
    /// SIGTERM or SIGHUP to us.
    pub end: Arc<AtomicBool>,
}

impl EndFlags {
    /// True once any signal has come.
    pub fn any(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed) || self.end.load(Ordering::Relaxed)
    }
}

/// For a command that shares our terminal: none of these signals ends us by itself. Handlers, not "ignore", which the
/// command would inherit.
pub fn flag_on_end() -> io::Result<EndFlags> {
    let flags = EndFlags { interrupt: Arc::new(AtomicBool::new(false)), end: Arc::new(AtomicBool::new(false)) };
    for signal in [SIGINT, signal_hook::consts::SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&flags.interrupt))?;
    }
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flags.end))?;
    }
    Ok(flags)
}
