//! The daemon's log: lines on standard error, as text or JSON, never more than a bounded number a second.

use crate::cli::LogFormat;
use std::io::{self, Write};
use std::time::{Duration, Instant};
use tracing::Level;

/// Lines a second; more are counted and summed up in one.
const LINES_MAX: u32 = 50;
const PERIOD: Duration = Duration::from_secs(1);

/// What is logged, and how often.
pub struct Log {
    period: Instant,
    lines: u32,
    left_out: u64,
}

/// Standard error, whatever becomes of it: a full disk or a closed pipe stops no gateway.
struct Standing;

impl Write for Standing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Starts the process's log.
    pub fn start(format: LogFormat) -> Log {
        let builder = tracing_subscriber::fmt().with_target(false).with_ansi(false).with_writer(|| Standing);
        // Fails only if there is a log already.
        let _ = match format {
            LogFormat::Text => builder.try_init(),
            LogFormat::Json => builder.json().try_init(),
        };
        Log { period: Instant::now(), lines: 0, left_out: 0 }
    }

    /// Writes a line.
    pub fn line(&mut self, level: Level, text: &str) {
        let now = Instant::now();
        if now.duration_since(self.period) >= PERIOD {
            if self.left_out > 0 {
                tracing::warn!(lines = self.left_out, "lines were left out of the log");
            }
            (self.period, self.lines, self.left_out) = (now, 0, 0);
        }
        if self.lines == LINES_MAX {
            self.left_out += 1;
            return;
        }
        self.lines += 1;
        if level == Level::ERROR {
            tracing::error!("{text}");
        } else if level == Level::WARN {
            tracing::warn!("{text}");
        } else {
            tracing::info!("{text}");
        }
    }
}
