//! Runs the parity scenarios live and in the simulator, and prints how they compare.

use super::BadInput;
use crate::cli::{ParityArguments, Side};
use crate::files::write_whole;
use crate::stop;
use crate::terminal::{self, print_line};
use anyhow::Context;
use bentpipe_host::namespace::acquire_privilege;
use bentpipe_lab::events::Sink;
use bentpipe_lab::files::read_text;
use bentpipe_lab::live;
use bentpipe_lab::record::Record;
use bentpipe_lab::scenario::Scenario;
use bentpipe_study::parity::campaign::{Campaign, CampaignOptions, Row, compare};
use bentpipe_study::parity::index::{Entry, read_index};
use bentpipe_study::parity::random;
use bentpipe_study::parity::replicate::replicate;
use bentpipe_study::parity::samples::{SampleFile, file_name};
use bentpipe_study::parity::table;
use bentpipe_study::pool;
use bentpipe_study::runner::{Event, Live, Subject, Virtual};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The list that is read when none is named.
const DEFAULT_INDEX: &str = "scenarios/parity/parity.toml";

/// Runs and compares.
pub fn run(arguments: &ParityArguments) -> anyhow::Result<ExitCode> {
    let entries = match arguments.random {
        Some(count) => random::entries(count, arguments.seed).map_err(BadInput::from)?,
        None => chosen(&arguments.what)?,
    };
    let options = CampaignOptions {
        live: arguments.only != Some(Side::Virtual),
        simulate: arguments.only != Some(Side::Live),
        max_rounds: arguments.max_rounds,
    };
    // Before anything is started: what this kernel cannot keep, stored samples, the rights, a folder for the results.
    let mut stored = Vec::new();
    for entry in &entries {
        let scenario = replicate(&entry.file, &entry.text, 1, 1).map_err(|error| BadInput(error.to_string()))?;
        if options.live {
            live::check(&scenario).map_err(BadInput::from)?;
        }
        stored.push(match &arguments.live_from {
            Some(folder) => stored_samples(folder, entry)?,
            None => None,
        });
    }
    let privilege =
        if options.live { Some(acquire_privilege().map_err(|error| BadInput(error.to_string()))?) } else { None };
    let out = &arguments.out;
    std::fs::create_dir_all(out).map_err(|error| BadInput(format!("cannot make {}: {error}", out.display())))?;
    let stop = stop::flag_on_signals()?;
    let live = privilege.map(Live);
    let mut rows: Vec<Row> = Vec::new();
    for (entry, stored) in entries.iter().zip(stored) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut save = |file: &SampleFile| {
            let path = out.join(file_name(&file.name, &file.side));
            write_whole(&path, file.to_json().as_bytes()).map_err(|error| format!("{error:#}"))
        };
        let mut campaign = Campaign {
            live: match &live {
                Some(live) => live,
                None => &not_wanted,
            },
            simulator: &Virtual,
            workers: pool::cores(),
            stop: &stop,
            save: &mut save,
            sink: &mut RunLines::default(),
        };
        rows.push(compare(entry, stored, options, &mut campaign));
    }
    let text = if arguments.json {
        serde_json::to_string_pretty(&rows).context("cannot write the table as JSON")? + "\n"
    } else if arguments.markdown {
        table::markdown(&rows)
    } else {
        table::text(&rows)
    };
    if arguments.json { terminal::print_json(&text) } else { terminal::print(&text) }?;
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(stop::EXIT_INTERRUPTED));
    }
    let fine = match arguments.only {
        // One side alone has nothing to agree with.
        Some(Side::Live) => rows.iter().all(|row| row.problem.is_none() && row.live.is_some()),
        _ => {
            let totals = table::totals(&rows);
            totals.other + totals.missing == 0
        }
    };
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Stands for the kernels when nobody asked for live runs.
fn not_wanted(_: &Scenario, _: &AtomicBool) -> Result<Record, String> {
    Err("not asked for".to_owned())
}

/// Lines on standard error about the runs of one scenario.
#[derive(Default)]
struct RunLines {
    /// Its simulations were announced.
    simulating: bool,
}

impl Sink<Event> for RunLines {
    fn event(&mut self, event: &Event) {
        let (Event::RunStarted { run } | Event::RunInvalid { run, .. }) = event else { return };
        match (&run.subject, event) {
            (Subject::Modelled { scenario, .. }, _) if !self.simulating => {
                self.simulating = true;
                print_line(format_args!("{scenario}: simulating"));
            }
            (Subject::Measured { scenario, .. }, Event::RunInvalid { reasons, .. }) => {
                print_line(format_args!("{scenario}: not valid: {}", reasons.join("; ")));
            }
            (Subject::Measured { scenario, copies }, _) => {
                print_line(format_args!("{scenario}: live run {}, {copies} copies", run.number));
            }
            _ => {}
        }
    }
}

/// The scenarios that the command line names: all of a list, or some of one.
fn chosen(what: &[String]) -> anyhow::Result<Vec<Entry>> {
    let (files, names): (Vec<&String>, Vec<&String>) = what.iter().partition(|word| word.ends_with(".toml"));
    let index = match files.as_slice() {
        [] => DEFAULT_INDEX,
        [file] => file.as_str(),
        _ => return Err(BadInput("more than one list; allowed: one FILE.toml, and names from it".to_owned()).into()),
    };
    let mut entries = read_index(index).map_err(BadInput::from)?;
    if let Some(unknown) = names.iter().find(|name| entries.iter().all(|entry| entry.name != ***name)) {
        let all: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        return Err(BadInput(format!("{index} lists no {unknown:?}; allowed: {}", all.join(", "))).into());
    }
    if !names.is_empty() {
        entries.retain(|entry| names.iter().any(|name| **name == entry.name));
    }
    Ok(entries)
}

/// Live samples of an earlier campaign, if they are of this very scenario.
fn stored_samples(folder: &Path, entry: &Entry) -> anyhow::Result<Option<SampleFile>> {
    let path = folder.join(file_name(&entry.name, "live"));
    let text = match read_text(&path, u64::MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder.is_dir() => return Ok(None),
        other => other.map_err(|error| BadInput(format!("cannot read {}: {error}", path.display())))?,
    };
    let file = SampleFile::parse(&text).map_err(|why| BadInput(format!("{}: {why}", path.display())))?;
    if !file.fits(entry) {
        print_line(format_args!(
            "{}: its samples are of another version of the scenario and are not used",
            path.display()
        ));
        return Ok(None);
    }
    Ok(Some(file))
}
