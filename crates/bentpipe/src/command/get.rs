//! Fetching files.

use super::{BadInput, links};
use crate::cli::{GetArguments, TransferArguments};
use crate::stop::{self, EXIT_INTERRUPTED};
use crate::terminal::{Lines, print_line};
use anyhow::Context;
use bentpipe_fetch::{Connections, Failure, Kind, MEASURED_MOST, Options, Outcome, Progress};
use bentpipe_lab::report::quantity;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::text::printable;
use bentpipe_study::predict::{self, Direction, Question};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use toml::{Table, Value};

/// Fetches every URL, one after another.
pub fn run(arguments: &GetArguments) -> anyhow::Result<ExitCode> {
    let mut jobs = Vec::new();
    for text in &arguments.url {
        let url =
            bentpipe_fetch::parse_url(text).map_err(|error| BadInput(format!("URL {}: {error}", jobs.len() + 1)))?;
        let target = target(&url, arguments)?;
        bentpipe_fetch::check_name(&target).map_err(|failure| BadInput(format!("{failure}; -o FILE names another")))?;
        if jobs.iter().any(|(_, other)| *other == target) {
            return Err(BadInput(format!("two URLs would be written to {}", target.display())).into());
        }
        jobs.push((url, target));
    }
    let digest = match &arguments.digest {
        None => None,
        Some(_) if jobs.len() > 1 => return Err(BadInput("--digest is for one URL".to_owned()).into()),
        Some(text) => Some(text.parse().map_err(|error| BadInput(format!("--digest {text}: {error}")))?),
    };
    let connections = match (&arguments.link, arguments.connections) {
        (Some(link), _) => Connections::Fixed(for_link(link, arguments)?),
        (None, Some(connections)) => Connections::Fixed(usize::from(connections)),
        (None, None) => Connections::Measured { most: MEASURED_MOST },
    };
    let options = Options { connections, digest, overwrite: arguments.overwrite, ..options(&arguments.common)? };
    let (mut worst, mut lines) = (0, Lines::default());
    for (url, target) in &jobs {
        let mut display = Display::new(arguments.common.quiet, &name(target));
        let result = bentpipe_fetch::get(url, target, &options, &mut |progress| display.show(progress));
        display.end();
        let shown = bentpipe_fetch::shown(url);
        if arguments.common.json {
            lines.print(to_json(&shown, target, &result));
        }
        match &result {
            Ok(outcome) if !arguments.common.quiet => print_line(done(target, outcome)),
            Ok(_) => {}
            Err(failure) => {
                print_line(format_args!("bentpipe: {shown}: {failure}"));
                let goes_on = matches!(failure.kind(), Kind::Transient | Kind::Stopped);
                if (goes_on || matches!(failure, Failure::DiskFull { .. })) && bentpipe_fetch::is_kept(target) {
                    print_line("What has arrived is kept: the same command goes on from there.");
                }
                worst = worst.max(exit_code(failure));
            }
        }
        if options.stop.load(Ordering::Relaxed) {
            worst = EXIT_INTERRUPTED;
            break;
        }
    }
    lines.end().context("cannot write to standard output")?;
    Ok(ExitCode::from(worst))
}

/// The options that `get` and `put` share.
pub fn options(common: &TransferArguments) -> anyhow::Result<Options> {
    if common.timeout.ns == 0 {
        return Err(BadInput("--timeout 0 s: allowed: more than 0, such as '60 s'".to_owned()).into());
    }
    let stop = stop::flag_on_signals()?;
    let (timeout, retries, ca) = (common.timeout.to_std(), common.retries, common.ca.clone());
    Ok(Options { timeout, retries, ca, stop, ..Options::default() })
}

/// The exit status that `--help` documents.
pub fn exit_code(failure: &Failure) -> u8 {
    match failure.kind() {
        Kind::Transient => 1,
        Kind::Refused => 4,
        Kind::Local => 5,
        Kind::Content => 6,
        Kind::Stopped => EXIT_INTERRUPTED,
    }
}

fn target(url: &bentpipe_fetch::Url, arguments: &GetArguments) -> Result<PathBuf, BadInput> {
    let from_url = || {
        bentpipe_fetch::file_name(url)
            .ok_or_else(|| BadInput(format!("{}: names no file; -o FILE names it", bentpipe_fetch::shown(url))))
    };
    match &arguments.output {
        None => from_url(),
        Some(path) if path.is_dir() => Ok(path.join(from_url()?)),
        Some(path) if arguments.url.len() > 1 => {
            Err(BadInput(format!("-o {}: with several URLs this must be a folder", path.display())))
        }
        Some(path) => Ok(path.clone()),
    }
}

/// As many windows as fill the link.
fn for_link(link: &str, arguments: &GetArguments) -> Result<usize, BadInput> {
    let (file, config) = links::load(link, &[])?;
    let window = arguments.window;
    if window.bytes == 0 {
        return Err(BadInput("--window 0: allowed: 1 B or more".to_owned()));
    }
    let preset = Table::from_iter([("preset".to_owned(), Value::String("linux".to_owned()))]);
    let tcp = TcpConfig::from_table(preset).map_err(|problem| BadInput(problem.message))?;
    let question = Question {
        name: &file.name,
        link: &config,
        tcp: &tcp,
        direction: Direction::Download,
        bytes: bentpipe_net::units::DataSize { bytes: 1_000_000 },
        loss: None,
        connections: 1,
    };
    let prediction = predict::predict(&question).map_err(|error| BadInput(format!("--link {link}: {error}")))?;
    let product = prediction.inputs.bandwidth_delay_product_bytes;
    let connections = product.div_ceil(window.bytes).clamp(1, bentpipe_fetch::CONNECTIONS_MOST as u64);
    if !arguments.common.quiet {
        print_line(format_args!(
            "{}: {} fill the link, {} a window: {connections} connection(s)",
            file.name,
            quantity::bytes(product as f64).replace('\u{a0}', " "),
            quantity::bytes(window.bytes as f64).replace('\u{a0}', " "),
        ));
    }
    Ok(connections as usize)
}

fn done(target: &Path, outcome: &Outcome) -> String {
    let rate = outcome.received as f64 * 8.0 / outcome.elapsed.as_secs_f64().max(1e-9);
    let mut text = format!(
        "{}: {} in {}, {}, {} connection(s)",
        target.display(),
        quantity::bytes(outcome.bytes as f64),
        quantity::seconds(outcome.elapsed.as_secs_f64()),
        quantity::rate(rate),
        outcome.connections.max(1)
    );
    if outcome.resumed_from > 0 {
        text.push_str(&format!(", {} from an earlier run", quantity::bytes(outcome.resumed_from as f64)));
    }
    match &outcome.digest {
        Some((digest, source)) => text.push_str(&format!("; {} verified ({source})", digest.algorithm.name())),
        None if !outcome.size_checked => text.push_str("; nothing tells whether that is all of it"),
        None => text.push_str("; size verified"),
    }
    text.replace('\u{a0}', " ")
}

fn to_json(url: &str, target: &Path, result: &Result<Outcome, Failure>) -> serde_json::Value {
    let file = target.display().to_string();
    match result {
        Ok(outcome) => json!({
            "url": url,
            "file": file,
            "ok": true,
            "bytes": outcome.bytes,
            "resumed_from": outcome.resumed_from,
            "received": outcome.received,
            "seconds": outcome.elapsed.as_secs_f64(),
            "goodput_bps": ((outcome.bytes - outcome.resumed_from.min(outcome.bytes)) as f64 * 8.0
                / outcome.elapsed.as_secs_f64().max(1e-9)).round(),
            "connections": outcome.connections,
            "round_trip_seconds": outcome.round_trip.map(|time| time.as_secs_f64()),
            "failed_attempts": outcome.failed_attempts,
            "size_checked": outcome.size_checked,
            "digest": outcome.digest.as_ref().map(|(digest, source)| {
                json!({ "algorithm": digest.algorithm.name(), "value": digest.hex(), "source": source })
            }),
            "notes": outcome.notes,
        }),
        Err(failure) => json!({
            "url": url,
            "file": file,
            "ok": false,
            "error": failure.word(),
            "message": failure.to_string(),
            "kept": bentpipe_fetch::is_kept(target),
        }),
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Progress on standard error: a bar on a terminal, else a line now and then.
pub struct Display {
    bar: Option<ProgressBar>,
    quiet: bool,
    name: String,
    last_line: Instant,
    /// When and with how many bytes the run began: the rate over the last seconds.
    recent: std::collections::VecDeque<(Instant, u64)>,
}

impl Display {
    /// For one file, or several under one name.
    pub fn new(quiet: bool, name: &str) -> Display {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && is_terminal).then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let template = if colour { "{bar:16.green} {msg}" } else { "{bar:16} {msg}" };
            bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
            bar
        });
        let recent = std::collections::VecDeque::new();
        Display { bar, quiet, name: name.to_owned(), last_line: Instant::now(), recent }
    }

    fn show(&mut self, progress: &Progress) {
        self.draw(progress.size, progress.done, progress.received, progress.connections, &progress.notes);
    }

    /// Draws the progress. `moved`: bytes that this run has transferred.
    pub fn draw(&mut self, size: Option<u64>, done: u64, moved: u64, connections: usize, notes: &[String]) {
        for note in notes.iter().filter(|_| !self.quiet) {
            let line = format!("{}: {note}", self.name);
            match &self.bar {
                Some(bar) => bar.suspend(|| print_line(line)),
                None => print_line(line),
            }
        }
        let now = Instant::now();
        self.recent.push_back((now, moved));
        while self.recent.len() > 2 && self.recent.front().is_some_and(|(then, _)| now - *then > RATE_OVER) {
            self.recent.pop_front();
        }
        let (then, before) = self.recent.front().copied().unwrap_or((now, moved));
        let time = (now - then).as_secs_f64();
        let rate = if time > 0.0 { moved.saturating_sub(before) as f64 / time } else { 0.0 };
        let due = now - self.last_line >= LINE_EVERY;
        if self.quiet || (self.bar.is_none() && !due) {
            return;
        }
        let text = progress(size, done, rate, connections);
        match &self.bar {
            Some(bar) => {
                // Of an unknown whole, nothing is done.
                bar.set_length(size.unwrap_or(u64::MAX));
                bar.set_position(done);
                let terminal = rustix::termios::tcgetwinsize(std::io::stderr());
                let columns = terminal.map(|size| usize::from(size.ws_col)).ok().filter(|columns| *columns > 0);
                let columns = columns.unwrap_or(80);
                // One line: what wraps is not cleared. The name last: of what does not fit, it is the least needed.
                let room = columns.saturating_sub(BAR_COLUMNS + 1);
                let line = printable(&format!("{text}, {}", self.name)).replace(['\n', '\t'], " ");
                bar.set_message(line.chars().take(room).collect::<String>());
            }
            None => {
                self.last_line = now;
                print_line(format_args!("{}: {text}", self.name));
            }
        }
    }

    /// Takes the bar away.
    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// `1.00 of 4.00 MB, 800 kbit/s, 0:30 left, 2 conn.`; what is left is known with the size and a rate (in bytes per
/// second). What people look for comes first: narrow terminals show the beginning.
fn progress(size: Option<u64>, done: u64, rate: f64, connections: usize) -> String {
    let mut text = format!("{}, {}", amount(size, done), quantity::rate(rate * 8.0));
    if let (Some(size), true) = (size, rate > 0.0) {
        let left = (size.saturating_sub(done) as f64 / rate).ceil() as u64;
        let (hours, minutes, seconds) = (left / 3600, left / 60 % 60, left % 60);
        match hours {
            0 => text.push_str(&format!(", {minutes}:{seconds:02} left")),
            _ => text.push_str(&format!(", {hours}:{minutes:02}:{seconds:02} left")),
        }
    }
    text.push_str(&format!(", {connections} conn."));
    text.replace('\u{a0}', " ")
}

/// Both numbers in one unit, which does not change during the transfer.
fn amount(size: Option<u64>, done: u64) -> String {
    let whole = size.unwrap_or(done);
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let (scale, unit) = units.into_iter().find(|(scale, _)| whole >= *scale).unwrap_or((1, "B"));
    let decimals = match whole / scale {
        _ if scale == 1 => 0,
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let figure = |bytes: u64| format!("{:.decimals$}", bytes as f64 / scale as f64);
    match size {
        Some(size) => format!("{} of {} {unit}", figure(done), figure(size)),
        None => format!("{} {unit}", figure(done)),
    }
}

const BAR_COLUMNS: usize = 16;
const RATE_OVER: Duration = Duration::from_secs(5);
const LINE_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_the_time_left_where_it_can() {
        let (size, rate) = (Some(4_000_000), 100_000.0);
        for (size, done, rate, expected) in [
            (size, 1_000_000, rate, "1.00 of 4.00 MB, 800 kbit/s, 0:30 left, 2 conn."),
            // A multiple of 1024, as most are.
            (size, 983_040, rate, "0.98 of 4.00 MB, 800 kbit/s, 0:31 left, 2 conn."),
            (size, 3_950_001, rate, "3.95 of 4.00 MB, 800 kbit/s, 0:01 left, 2 conn."),
            (size, 0, 1000.0, "0.00 of 4.00 MB, 8.00 kbit/s, 1:06:40 left, 2 conn."),
            (size, 4_000_000, rate, "4.00 of 4.00 MB, 800 kbit/s, 0:00 left, 2 conn."),
            // More than the server said there was.
            (size, 4_000_001, rate, "4.00 of 4.00 MB, 800 kbit/s, 0:00 left, 2 conn."),
            (size, 0, 0.0, "0.00 of 4.00 MB, 0 bit/s, 2 conn."),
            (Some(0), 0, 0.0, "0 of 0 B, 0 bit/s, 2 conn."),
            (Some(98_765_432_100), 1_234_567_890, rate, "1.2 of 98.8 GB, 800 kbit/s, 270:55:09 left, 2 conn."),
            (None, 1_000_000, rate, "1.00 MB, 800 kbit/s, 2 conn."),
        ] {
            assert_eq!(progress(size, done, rate, 2), expected);
        }
    }
}
