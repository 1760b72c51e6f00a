//! The report of a record, again.

use super::BadInput;
use crate::cli::ReportArguments;
use crate::files::write_whole;
use crate::terminal;
use anyhow::Context;
use bentpipe_lab::record::Record;
use bentpipe_lab::report;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Reads a record, writes its HTML report, prints its table; or prints it as the current version.
pub fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let path: PathBuf =
        if arguments.record.is_dir() { arguments.record.join("record.json") } else { arguments.record.clone() };
    let text =
        std::fs::read_to_string(&path).map_err(|error| BadInput(format!("cannot read {}: {error}", path.display())))?;
    let record = Record::from_json(&text).map_err(|error| BadInput(format!("{}: {error}", path.display())))?;
    if arguments.json {
        if let Some(out) = &arguments.out {
            write_whole(out, report::html(&record).as_bytes())?;
        }
        let json = record.to_json().context("cannot write the record as JSON")?;
        std::io::stdout().write_all(json.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let out = arguments.out.clone().unwrap_or_else(|| path.with_file_name("report.html"));
    write_whole(&out, report::html(&record).as_bytes())?;
    let table = report::text(&record, terminal::width(), terminal::colour());
    std::io::stdout().write_all(table.as_bytes())?;
    writeln!(std::io::stdout(), "report: {}", out.display())?;
    Ok(ExitCode::SUCCESS)
}
