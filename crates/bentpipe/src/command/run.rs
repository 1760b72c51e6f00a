//! Runs a scenario, live or in virtual time.

use super::BadInput;
use crate::cli::{Compare, RunArguments};
use crate::results::{RECORD, REPORT, ResultsFolder, SUMMARY, Saved};
use crate::{stop, terminal};
use anyhow::Context;
use bentpipe_host::namespace::{Privilege, acquire_privilege};
use bentpipe_lab::events::{CaseStarted, Event, Sink, Snapshot, WorkloadSnapshot};
use bentpipe_lab::files::{TEXT_BYTES_MAX, read_text};
use bentpipe_lab::live::{self, LiveError, LiveOptions};
use bentpipe_lab::record::Record;
use bentpipe_lab::report;
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedError, SimulatedOptions};
use bentpipe_lab::thinning::SeriesPoints;
use bentpipe_net::text::printable;
use bentpipe_net::time;
use bentpipe_study::sweep::seeds::SeedResults;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A run that was later than its limits.
const EXIT_INVALID: u8 = 3;
/// Confidence of the intervals over several seeds, in percent.
const CONFIDENCE: f64 = 99.0;

/// Runs the scenario and leaves record.json and report.html.
pub fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let name = arguments.scenario.display().to_string();
    let text = read_text(&arguments.scenario, TEXT_BYTES_MAX)
        .map_err(|error| BadInput(format!("cannot read {name}: {error}")))?;
    let mut scenario = Scenario::parse(&name, &text, &arguments.set).map_err(BadInput::from)?;
    if !arguments.cases.is_empty() {
        scenario = scenario.with_cases(&arguments.cases).map_err(BadInput::from)?;
    }
    if arguments.compare == Some(Compare::Gateway) {
        scenario = scenario.compare_gateway().map_err(BadInput::from)?;
    }
    let left_out = check(&scenario, &arguments)?;
    let seeds = arguments.seeds.map(|count| scenario.run_seeds(count)).transpose().map_err(BadInput::from)?;
    if arguments.check {
        let workloads: usize = scenario.cases.iter().map(|case| case.workloads.len()).sum();
        let left_out = if left_out.is_empty() { String::new() } else { format!("; left out: {}", left_out.join(", ")) };
        let cases = scenario.cases.len();
        terminal::print(&format!("{name}: fine; {cases} case(s), {workloads} workload(s){left_out}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything is started: the rights (one thread only), and a folder that takes the results.
    let privilege = match arguments.virtual_time {
        true => None,
        false => Some(acquire_privilege().map_err(|error| BadInput(error.to_string()))?),
    };
    let out = match &arguments.out {
        Some(out) => ResultsFolder::open(out.clone())?,
        None => ResultsFolder::open_new(&default_folder(&arguments.scenario))?,
    };
    let stop = stop::flag_on_signals()?;
    let series = if arguments.raw_series { SeriesPoints::All } else { SeriesPoints::Bounded };
    let run = Run { privilege, pcap: arguments.pcap, skip_live: arguments.skip_live, series, stop: &stop };
    match seeds {
        Some(seeds) => run.seeds(&mut scenario, out, seeds, arguments.json),
        None => run.one(&scenario, out, arguments.json),
    }
}

/// Options that all runs of one command share.
struct Run<'a> {
    /// Of a live run.
    privilege: Option<Privilege>,
    pcap: bool,
    skip_live: bool,
    series: SeriesPoints,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    /// Runs a scenario once.
    fn record(&self, scenario: &Scenario, out: &mut ResultsFolder) -> anyhow::Result<Record> {
        let names = scenario.cases.iter().enumerate().map(|(number, case)| case.capture_name(number));
        out.keep_captures(&names.collect::<Vec<_>>())?;
        let mut display = ProgressDisplay::new(self.privilege.is_some());
        let capture_directory = self.pcap.then(|| out.path().to_owned());
        let record = match self.privilege {
            Some(privilege) => {
                let options = LiveOptions { privilege, capture_directory, series: self.series };
                live::run(scenario, &options, self.stop, &mut display).map_err(live_problem)
            }
            None => {
                let options = SimulatedOptions { capture_directory, skip_live: self.skip_live, series: self.series };
                simulated::run_with_events(scenario, &options, self.stop, &mut display).map_err(simulated_problem)
            }
        };
        display.clear();
        record
    }

    /// Runs a scenario once and saves what comes out.
    fn finish(&self, scenario: &Scenario, mut out: ResultsFolder) -> anyhow::Result<Finished> {
        let record = self.record(scenario, &mut out)?;
        let json = record.to_json().context("cannot write the record as JSON")?;
        let saved = out.save(json.as_bytes(), report::html(&record).as_bytes());
        Ok(Finished { record, json, saved })
    }

    /// Runs a scenario once, and leaves record.json and report.html.
    fn one(&self, scenario: &Scenario, out: ResultsFolder, as_json: bool) -> anyhow::Result<ExitCode> {
        let Finished { record, json, saved } = self.finish(scenario, out)?;
        let printed = if as_json {
            terminal::print_json(&json)
        } else {
            let table = report::text(&record, terminal::width(), terminal::colour());
            let mut places = String::new();
            if let Some(earlier) = &saved.earlier {
                places.push_str(&format!("earlier record: {}\n", earlier.display()));
            }
            if let Some(folder) = &saved.folder {
                places.push_str(&format!("record: {0}/{RECORD}\nreport: {0}/{REPORT}\n", folder.display()));
            }
            std::io::stdout().write_all((table + &printable(&places)).as_bytes())
        };
        let not_saved = saved.problem.is_some();
        report_problem(saved);
        unless_closed(printed)?;
        Ok(if not_saved { ExitCode::FAILURE } else { ExitCode::from(End::of(&record).status()) })
    }

    /// Runs a scenario with several seeds, and leaves each run's results in a folder of its own, and their summary.
    fn seeds(
        &self,
        scenario: &mut Scenario,
        out: ResultsFolder,
        seeds: Range<u64>,
        as_json: bool,
    ) -> anyhow::Result<ExitCode> {
        let (first, wanted, own) = (seeds.start, seeds.end - seeds.start, scenario.overrides.clone());
        let (mut results, mut worst, mut failed) = (SeedResults::default(), 0, false);
        for seed in seeds {
            scenario.seed = seed;
            scenario.overrides = [&own[..], &[format!("seed={seed}")]].concat();
            let folder = out.inner(&format!("seed-{seed}")).map_err(anyhow::Error::from);
            let Finished { record, saved, .. } = match folder.and_then(|folder| self.finish(scenario, folder)) {
                Ok(finished) => finished,
                Err(error) if seed == first => return Err(error),
                Err(error) => {
                    terminal::print_line(format_args!("bentpipe: seed {seed}: {error:#}"));
                    failed = true;
                    break;
                }
            };
            failed |= saved.problem.is_some();
            report_problem(saved);
            let end = End::of(&record);
            worst = worst.max(end.status());
            match end {
                End::Complete => results.insert(scenario, &record),
                End::Incomplete => terminal::print_line(format_args!("seed {seed}: the run failed and does not count")),
                End::Invalid => {
                    terminal::print_line(format_args!("seed {seed}: the run is invalid and does not count"));
                }
                End::Interrupted => break,
            }
        }
        let summary = results.summary(&scenario.title, wanted as u32, CONFIDENCE);
        let saved = out.save_summary(summary.to_csv().as_bytes());
        unless_closed(if as_json {
            terminal::print_json(&summary.to_json().context("cannot write the summary as JSON")?)
        } else {
            let (count, folder, mut text) = (results.count(), out.path().display(), summary.to_text());
            text.push_str(&format!("\n{count} seed(s), from {first}.\nresults: {folder}/seed-*/{RECORD}\n"));
            if let Ok(Some(earlier)) = &saved {
                text.push_str(&format!("earlier summary: {}\n", earlier.display()));
            }
            if saved.is_ok() {
                text.push_str(&format!("summary: {folder}/{SUMMARY}\n"));
            }
            terminal::print(&text)
        })?;
        saved?;
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::from(worst) })
    }
}

/// A run that ended, and where its results are.
struct Finished {
    record: Record,
    /// The record as JSON.
    json: String,
    saved: Saved,
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    /// A case did not run to its end.
    Incomplete,
    /// It was later than its limits.
    Invalid,
    /// A signal stopped it.
    Interrupted,
}

impl End {
    fn of(record: &Record) -> End {
        if record.interrupted {
            End::Interrupted
        } else if record.cases.iter().any(|case| !case.validity.valid) {
            End::Invalid
        } else if record.complete {
            End::Complete
        } else {
            End::Incomplete
        }
    }

    /// The exit status; that of several runs is the highest.
    fn status(self) -> u8 {
        match self {
            End::Complete => 0,
            End::Incomplete => 1,
            End::Invalid => EXIT_INVALID,
            End::Interrupted => stop::EXIT_INTERRUPTED,
        }
    }
}

/// Says why results are not in the folder that was asked for.
fn report_problem(saved: Saved) {
    if let Some(problem) = saved.problem {
        let kept = saved.folder.map_or_else(
            || "the record is lost; this is all that is left of the run".to_owned(),
            |folder| format!("the results are in {}", folder.display()),
        );
        terminal::print_line(format_args!("bentpipe: {problem:#}; {kept}"));
    }
}

/// A reader that went away is no failure; the status still says how the run ended.
fn unless_closed(printed: std::io::Result<()>) -> anyhow::Result<()> {
    match printed {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Refuses what the way of running cannot do; what will be left out.
fn check(scenario: &Scenario, arguments: &RunArguments) -> Result<Vec<String>, BadInput> {
    if arguments.virtual_time {
        return simulated::check(scenario, arguments.skip_live).map_err(BadInput::from);
    }
    live::check(scenario)?;
    Ok(Vec::new())
}

fn live_problem(error: LiveError) -> anyhow::Error {
    match error {
        LiveError::Scenario(problem) => BadInput::from(problem).into(),
        other => other.into(),
    }
}

fn simulated_problem(error: SimulatedError) -> anyhow::Error {
    match error {
        SimulatedError::Scenario(problem) => BadInput::from(problem).into(),
        other => other.into(),
    }
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
    interval: time::Duration,
    case: CaseStarted,
    last_shown: Instant,
    /// The number of the case of the last plain line; none was printed yet.
    last_case: Option<usize>,
}

/// Time between plain progress lines; once there was one, a new case gets its line at once.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Time between changes of the bar.
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// Workloads that a line names.
const WORKLOADS_SHOWN: usize = 8;
/// Model time between snapshots in a live and in a virtual run.
const SNAPSHOT_LIVE: time::Duration = time::Duration::from_millis(250);
const SNAPSHOT_VIRTUAL: time::Duration = time::Duration::from_secs(1);

impl ProgressDisplay {
    fn new(live: bool) -> ProgressDisplay {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            // The template is a constant; a bad one would only change the looks.
            bar.set_style(
                ProgressStyle::with_template("{spinner} {wide_msg}").unwrap_or(ProgressStyle::default_spinner()),
            );
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        let interval = if live { SNAPSHOT_LIVE } else { SNAPSHOT_VIRTUAL };
        let case = CaseStarted::default();
        ProgressDisplay { bar, interval, case, last_shown: Instant::now(), last_case: None }
    }

    fn show(&mut self, snapshot: &Snapshot) {
        let CaseStarted { number, cases, name, .. } = &self.case;
        let mut running: Vec<String> = snapshot.workloads.iter().map(how_far).collect();
        let more = snapshot.running - snapshot.workloads.len();
        if more > 0 {
            running.push(format!("{more} more"));
        }
        let running = if running.is_empty() { "starting".to_owned() } else { running.join("; ") };
        let waiting =
            if snapshot.waiting > 0 { format!("; {} still to start", snapshot.waiting) } else { String::new() };
        let text = format!("case {number} of {cases} ({name}), {:.0} s: {running}{waiting}", snapshot.at);
        match &self.bar {
            Some(bar) => bar.set_message(printable(&text)),
            None => terminal::print_line(text),
        }
        (self.last_shown, self.last_case) = (Instant::now(), Some(*number));
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Sink for ProgressDisplay {
    fn event(&mut self, event: &Event) {
        match event {
            Event::CaseStarted(case) => self.case = case.clone(),
            Event::Snapshot(snapshot) => self.show(snapshot),
            _ => {}
        }
    }

    fn interval(&self) -> Option<time::Duration> {
        Some(self.interval)
    }

    fn workloads_max(&self) -> usize {
        WORKLOADS_SHOWN
    }

    fn wants_snapshot(&mut self) -> bool {
        let new_case = self.last_case.is_some_and(|last| last != self.case.number);
        let every = if self.bar.is_some() { SHOW_EVERY } else { LINE_EVERY };
        new_case || self.last_shown.elapsed() >= every
    }
}

/// A workload, with what it has received so far where that is known.
fn how_far(snapshot: &WorkloadSnapshot) -> String {
    let workload = &snapshot.run.workload;
    match &snapshot.progress {
        Some(progress) => format!("{workload}: {} {}", progress.value, progress.noun),
        None => workload.to_string(),
    }
}
