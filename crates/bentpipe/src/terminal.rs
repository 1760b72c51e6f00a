//! The user's terminal, and the progress of many runs.

use bentpipe_lab::events::Sink;
use bentpipe_net::text::{printable, printable_json};
use bentpipe_study::runner::{Event, Progress};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Columns of standard output; 100 when it is no terminal.
pub fn width() -> usize {
    const DEFAULT: usize = 100;
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col >= 40 => usize::from(size.ws_col),
        _ => DEFAULT,
    }
}

/// Whether to colour standard output (<https://no-color.org>).
pub fn colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stdout().is_terminal()
}

/// A line for people, on standard error. Whether anyone still reads it makes no difference to the work: `eprintln!` would
/// end it when a pipe or a terminal is gone.
pub fn print_line(line: impl Display) {
    let _ = io::stderr().write_all(format!("{}\n", printable(&line.to_string())).as_bytes());
}

/// Text for people, on standard output. It may hold what files and other machines say.
pub fn print(text: &str) -> io::Result<()> {
    io::stdout().write_all(printable(text).as_bytes())
}

/// JSON, on standard output.
pub fn print_json(text: &str) -> io::Result<()> {
    io::stdout().write_all(printable_json(text).as_bytes())
}

/// Lines of JSON for programs, on standard output. When they cannot be written, the work goes on.
#[derive(Default)]
pub struct Lines {
    failed: Option<io::Error>,
}

impl Lines {
    /// Writes one.
    pub fn print(&mut self, line: impl Display) {
        if let Err(error) = print_json(&format!("{line}\n")) {
            self.failed.get_or_insert(error);
        }
    }

    /// The error that kept a line from being written, unless the reader has gone: then the exit status still tells.
    pub fn end(self) -> io::Result<()> {
        match self.failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

/// The progress of many runs, on standard error; plain lines now and then when that is no terminal.
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

    fn show(&mut self, progress: &Progress) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(progress.total as u64);
                bar.set_position(progress.done as u64);
                bar.set_message(words(progress));
            }
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                print_line(words(progress));
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

impl Sink<Event> for RunsDisplay {
    fn event(&mut self, event: &Event) {
        if let Event::Progress(progress) = event {
            self.show(progress);
        }
    }
}

/// Progress in words.
fn words(progress: &Progress) -> String {
    let Progress { done, total, open_ended, errors, seconds_left, .. } = progress;
    let least = if *open_ended { "at least " } else { "" };
    let mut text = format!("{done} of {least}{total} runs");
    if let Some(left) = seconds_left {
        let left = HumanDuration(Duration::from_secs(*left as u64));
        text.push_str(&format!(", {least}{left} left"));
    }
    if *errors > 0 {
        text.push_str(&format!(", {errors} could not be done"));
    }
    text
}
