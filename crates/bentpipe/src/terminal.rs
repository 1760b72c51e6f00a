//! What is known of the user's terminal.

use std::io::IsTerminal;

/// Columns of standard output; 100 when it is no terminal.
pub fn width() -> usize {
    const USUAL: usize = 100;
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col >= 40 => usize::from(size.ws_col),
        _ => USUAL,
    }
}

/// Whether to colour standard output (<https://no-color.org>).
pub fn colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stdout().is_terminal()
}
