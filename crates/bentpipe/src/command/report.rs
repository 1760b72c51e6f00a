//! The report of a record, again.

use super::BadInput;
use crate::cli::ReportArguments;
use crate::files::write_whole;
use crate::terminal;
use anyhow::Context;
use bentpipe_lab::files::read_text;
use bentpipe_lab::record::Record;
use bentpipe_lab::report;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Reads a record, writes its HTML report, prints its table; or prints it as the current version.
pub fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let path: PathBuf =
        if arguments.record.is_dir() { arguments.record.join("record.json") } else { arguments.record.clone() };
    let out = arguments.out.clone().unwrap_or_else(|| path.with_file_name("report.html"));
    if is_same_file(&path, &out) {
        return Err(BadInput(format!("--out {}: this is the record itself; it would be lost", out.display())).into());
    }
    // A record is as long as its run.
    let text =
        read_text(&path, u64::MAX).map_err(|error| BadInput(format!("cannot read {}: {error}", path.display())))?;
    let record = Record::from_json(&text).map_err(|error| BadInput(format!("{}: {error}", path.display())))?;
    if arguments.json {
        if arguments.out.is_some() {
            write_whole(&out, report::html(&record).as_bytes())?;
        }
        let json = record.to_json().context("cannot write the record as JSON")?;
        terminal::print_json(&json)?;
        return Ok(ExitCode::SUCCESS);
    }
    write_whole(&out, report::html(&record).as_bytes())?;
    let table = report::text(&record, terminal::width(), terminal::colour());
    std::io::stdout().write_all(table.as_bytes())?;
    terminal::print(&format!("report: {}\n", out.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// True if both names, links included, lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    file(one).is_some_and(|one| Some(one) == file(other))
}
