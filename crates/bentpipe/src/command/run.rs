//! Runs a scenario live.

use super::BadInput;
use crate::cli::RunArguments;
use crate::files::write_whole;
use crate::{stop, terminal};
use anyhow::Context;
use bentpipe_host::namespace::acquire_privilege;
use bentpipe_lab::Progress;
use bentpipe_lab::live::{self, LiveError, LiveOptions};
use bentpipe_lab::report;
use bentpipe_lab::scenario::Scenario;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A run that was later than its limits.
const EXIT_INVALID: u8 = 3;

/// Runs the scenario and leaves record.json and report.html.
pub fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let name = arguments.scenario.display().to_string();
    let text = std::fs::read_to_string(&arguments.scenario)
        .map_err(|error| BadInput(format!("cannot read {name}: {error}")))?;
    let scenario = Scenario::parse(&name, &text, &arguments.set).map_err(BadInput::from)?;
    live::check(&scenario).map_err(BadInput::from)?;
    if arguments.check {
        let workloads: usize = scenario.cases.iter().map(|case| case.workloads.len()).sum();
        writeln!(std::io::stdout(), "{name}: fine; {} case(s), {workloads} workload(s)", scenario.cases.len())?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything is started: the rights (one thread only), and a folder that takes the results.
    let privilege = acquire_privilege().map_err(|error| BadInput(error.to_string()))?;
    let out = arguments.out.unwrap_or_else(|| default_folder(&arguments.scenario));
    std::fs::create_dir_all(&out).map_err(|error| BadInput(format!("cannot make {}: {error}", out.display())))?;
    let stop = stop::flag_on_signals()?;
    let display = ProgressDisplay::new();
    let options = LiveOptions { privilege, capture_directory: arguments.pcap.then(|| out.clone()) };
    let record = live::run(&scenario, &options, &stop, &mut |progress| display.show(progress));
    display.clear();
    let record = record.map_err(|error| match error {
        LiveError::Scenario(problem) => anyhow::Error::new(BadInput::from(problem)),
        other => anyhow::Error::new(other),
    })?;
    let json = record.to_json().context("cannot write the record as JSON")?;
    write_whole(&out.join("record.json"), json.as_bytes())?;
    write_whole(&out.join("report.html"), report::html(&record).as_bytes())?;
    let code = if record.interrupted {
        ExitCode::from(stop::EXIT_INTERRUPTED)
    } else if record.cases.iter().any(|case| !case.validity.valid) {
        ExitCode::from(EXIT_INVALID)
    } else if record.complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    let text = if arguments.json {
        json
    } else {
        let table = report::text(&record, terminal::width(), terminal::colour());
        format!("{table}record: {0}/record.json\nreport: {0}/report.html\n", out.display())
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Nobody reads the table any more; the status still tells.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        other => other.context("cannot write to standard output")?,
    }
    Ok(code)
}

/// `runs/SCENARIO-DATE-TIME`.
fn default_folder(scenario: &Path) -> PathBuf {
    let stem = scenario.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    Path::new("runs").join(format!("{stem}-{now}"))
}

/// A line on standard error that says where the run is; plain lines now and then when that is no terminal.
struct ProgressDisplay {
    bar: Option<ProgressBar>,
    last_line: std::cell::Cell<f64>,
}

/// Seconds between plain progress lines.
const LINE_EVERY: f64 = 10.0;

impl ProgressDisplay {
    fn new() -> ProgressDisplay {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            // The template is a constant; a bad one would only change the looks.
            bar.set_style(
                ProgressStyle::with_template("{spinner} {wide_msg}").unwrap_or(ProgressStyle::default_spinner()),
            );
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        ProgressDisplay { bar, last_line: std::cell::Cell::new(0.0) }
    }

    fn show(&self, progress: &Progress) {
        let (case, cases) = progress.case;
        let running = if progress.running.is_empty() { "starting".to_owned() } else { progress.running.join("; ") };
        let waiting =
            if progress.waiting > 0 { format!("; {} still to start", progress.waiting) } else { String::new() };
        let text =
            format!("case {case} of {cases} ({}), {:.0} s: {running}{waiting}", progress.case_name, progress.seconds);
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None if progress.seconds < self.last_line.get()
                || progress.seconds >= self.last_line.get() + LINE_EVERY =>
            {
                self.last_line.set(progress.seconds);
                eprintln!("{text}");
            }
            None => {}
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
