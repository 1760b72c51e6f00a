//! Runs a scenario, live or in virtual time.

use super::BadInput;
use crate::cli::{Compare, RunArguments};
use crate::files::write_whole;
use crate::results::{RECORD, REPORT, ResultsFolder, Saved};
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
use bentpipe_study::sweep::summary::Summary;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A run that was later than its limits.
const EXIT_INVALID: u8 = 3;
/// Confidence of the intervals over several seeds, in percent.
const CONFIDENCE: f64 = 99.0;
/// The summary of several seeds.
const SUMMARY: &str = "summary.csv";

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
    match arguments.seeds {
        Some(seeds) => run.seeds(&mut scenario, out, seeds, arguments.json),
        None => run.one(&scenario, out, arguments.json),
    }
}

/// What all runs of one command share.
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

    /// Runs a scenario once, and leaves record.json and report.html.
    fn one(&self, scenario: &Scenario, mut out: ResultsFolder, as_json: bool) -> anyhow::Result<ExitCode> {
        let record = self.record(scenario, &mut out)?;
        let json = record.to_json().context("cannot write the record as JSON")?;
        let saved = out.save(json.as_bytes(), report::html(&record).as_bytes());
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
        Ok(if not_saved { ExitCode::FAILURE } else { ExitCode::from(status(&record)) })
    }

    /// Runs a scenario with several seeds, and leaves each run's results in a folder of its own, and their summary.
    fn seeds(
        &self,
        scenario: &mut Scenario,
        out: ResultsFolder,
        seeds: u32,
        as_json: bool,
    ) -> anyhow::Result<ExitCode> {
        let (first, own) = (scenario.seed, scenario.overrides.clone());
        let (mut records, mut worst, mut not_saved) = (Vec::new(), 0, 0);
        for number in 0..seeds {
            scenario.seed = first.wrapping_add(u64::from(number));
            scenario.overrides = [&own[..], &[format!("seed={}", scenario.seed)]].concat();
            let mut folder = out.inner(&format!("seed-{}", scenario.seed))?;
            let record = self.record(scenario, &mut folder)?;
            let json = record.to_json().context("cannot write the record as JSON")?;
            let saved = folder.save(json.as_bytes(), report::html(&record).as_bytes());
            not_saved += usize::from(saved.problem.is_some());
            report_problem(saved);
            let code = status(&record);
            if code == EXIT_INVALID {
                terminal::print_line(format_args!("seed {}: the run is invalid and does not count", scenario.seed));
            }
            worst = worst.max(code);
            match code {
                stop::EXIT_INTERRUPTED => break,
                EXIT_INVALID => {}
                _ => records.push(record),
            }
        }
        let summary = Summary::of_seeds(scenario, CONFIDENCE, &records);
        let table = out.path().join(SUMMARY);
        write_whole(&table, summary.to_csv().as_bytes())?;
        unless_closed(if as_json {
            terminal::print_json(&summary.to_json().context("cannot write the summary as JSON")?)
        } else {
            let (seeds, folder, text) = (records.len(), out.path().display(), summary.to_text());
            let places = format!("results: {folder}/seed-*/{RECORD}\nsummary: {folder}/{SUMMARY}\n");
            terminal::print(&format!("{text}\n{seeds} seed(s), from {first}.\n{places}"))
        })?;
        Ok(if not_saved > 0 { ExitCode::FAILURE } else { ExitCode::from(worst) })
    }
}

/// The exit status of a record that was saved.
fn status(record: &Record) -> u8 {
    if record.interrupted {
        stop::EXIT_INTERRUPTED
    } else if record.cases.iter().any(|case| !case.validity.valid) {
        EXIT_INVALID
    } else {
        u8::from(!record.complete)
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
