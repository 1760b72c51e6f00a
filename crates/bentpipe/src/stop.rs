//! Ctrl-C and its kin: once to stop cleanly, twice to stop at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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

/// For a command that shares our terminal: Ctrl-C is the command's business; SIGTERM and SIGHUP set the flag.
pub fn flag_on_end() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    // A handler, not "ignore", which the command would inherit.
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
    signal_hook::flag::register(signal_hook::consts::SIGQUIT, Arc::new(AtomicBool::new(false)))?;
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
