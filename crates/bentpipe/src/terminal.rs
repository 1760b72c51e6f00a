//! What is known of the user's terminal, and how far many runs are.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

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

/// How far many runs are, on standard error; plain lines now and then when that is no terminal.
pub struct RunsDisplay {
    bar: Option<ProgressBar>,
    last_line: Instant,
}

/// Time between plain progress lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

impl RunsDisplay {
    /// Nothing is shown yet.
    pub fn new() -> RunsDisplay {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            // The template is a constant; a bad one would only change the looks.
            bar.set_style(ProgressStyle::with_template("{wide_bar} {msg}").unwrap_or(ProgressStyle::default_bar()));
            bar
        });
        RunsDisplay { bar, last_line: Instant::now() }
    }

    /// `done` of `total` runs, in words `text`.
    pub fn show(&mut self, done: usize, total: usize, text: String) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                bar.set_message(text);
            }
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                eprintln!("{text}");
            }
            None => {}
        }
    }

    /// Leaves no trace of the bar.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
