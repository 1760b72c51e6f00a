//! Sending files.

use super::BadInput;
use super::get::{Display, exit_code, options};
use crate::cli::PutArguments;
use crate::stop::EXIT_INTERRUPTED;
use crate::terminal::{Lines, print_line};
use anyhow::Context;
use bentpipe_fetch::{Kind, PutOutcome};
use bentpipe_lab::report::quantity;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Sends every file.
pub fn run(arguments: &PutArguments) -> anyhow::Result<ExitCode> {
    let (url, files) = arguments.what.split_last().ok_or_else(|| BadInput("there is nothing to send".to_owned()))?;
    let url = url.to_str().ok_or_else(|| BadInput("the last argument is no URL: not UTF-8".to_owned()))?;
    let url = bentpipe_fetch::parse_url(url).map_err(|error| BadInput(format!("the last argument: {error}")))?;
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    if files.len() > 1 && !url.path().ends_with('/') {
        let shown = bentpipe_fetch::shown(&url);
        return Err(BadInput(format!("{shown}: for several files this must be a folder, and end in a slash")).into());
    }
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        return Err(BadInput(format!("{}: is no file here", missing.display())).into());
    }
    if url.path().ends_with('/') {
        let mut names = BTreeSet::new();
        if let Some(twice) = files.iter().filter_map(|file| file.file_name()).find(|name| !names.insert(*name)) {
            let shown = bentpipe_fetch::shown(&url);
            return Err(BadInput(format!("two files would be sent to {shown}{}", twice.display())).into());
        }
    }
    let common = &arguments.common;
    let options = options(common)?;
    let connections = usize::from(arguments.connections);
    let mut display = Display::new(common.quiet, "put");
    let outcomes = bentpipe_fetch::put(&files, &url, &options, connections, &mut |progress| {
        display.draw(Some(progress.size), progress.done, progress.done, progress.connections, &progress.notes);
    });
    display.end();
    let (mut worst, mut lines) = (0, Lines::default());
    let mut is_ftp_open = false;
    for outcome in &outcomes {
        let shown = bentpipe_fetch::shown(&outcome.url);
        if common.json {
            lines.print(to_json(&shown, outcome));
        }
        match &outcome.result {
            Ok(()) if common.quiet => {}
            Ok(()) => print_line(done(&shown, outcome)),
            Err(failure) => {
                print_line(format_args!("bentpipe: {} to {shown}: {failure}", outcome.file.display()));
                is_ftp_open |= url.scheme() == "ftp" && matches!(failure.kind(), Kind::Transient | Kind::Stopped);
                worst = worst.max(exit_code(failure));
            }
        }
    }
    if is_ftp_open {
        print_line("What the server has is kept: the same command goes on from there.");
    }
    lines.end().context("cannot write to standard output")?;
    let stopped = options.stop.load(Ordering::Relaxed);
    Ok(ExitCode::from(if stopped { EXIT_INTERRUPTED } else { worst }))
}

fn done(shown: &str, outcome: &PutOutcome) -> String {
    let seconds = outcome.elapsed.as_secs_f64();
    let rate = outcome.bytes.saturating_sub(outcome.resumed_from) as f64 * 8.0 / seconds.max(1e-9);
    let mut text = format!(
        "{} to {shown}: {} in {}, {}",
        outcome.file.display(),
        quantity::bytes(outcome.bytes as f64),
        quantity::seconds(seconds),
        quantity::rate(rate)
    );
    if outcome.resumed_from > 0 {
        text.push_str(&format!(", {} from an earlier run", quantity::bytes(outcome.resumed_from as f64)));
    }
    text.replace('\u{a0}', " ")
}

fn to_json(url: &str, outcome: &PutOutcome) -> serde_json::Value {
    let file = outcome.file.display().to_string();
    match &outcome.result {
        Ok(()) => json!({
            "url": url,
            "file": file,
            "ok": true,
            "bytes": outcome.bytes,
            "resumed_from": outcome.resumed_from,
            "seconds": outcome.elapsed.as_secs_f64(),
        }),
        Err(failure) => json!({
            "url": url,
            "file": file,
            "ok": false,
            "error": failure.word(),
            "message": failure.to_string(),
        }),
    }
}
