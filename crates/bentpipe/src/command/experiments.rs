//! Lists the experiments, or runs some and holds them against their papers.

use super::BadInput;
use super::sweep::workers;
use crate::cli::{ExperimentsAction, ExperimentsArguments, ExperimentsRunArguments};
use crate::files::write_whole;
use crate::stop;
use crate::terminal::{self, RunsDisplay, print_line};
use anyhow::Context;
use bentpipe_host::namespace::acquire_privilege;
use bentpipe_host::tcp_stack;
use bentpipe_lab::events::Sink;
use bentpipe_lab::record::Record;
use bentpipe_lab::scenario::Scenario;
use bentpipe_net::stack::TcpConfig;
use bentpipe_study::experiment::engine;
use bentpipe_study::experiment::{Experiment, LoadError, judge, list, load, page, table};
use bentpipe_study::runner::{Live, Runner, Virtual, World};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Attempts at a live run of a point that is later than its limits.
const LIVE_TRIES: usize = 3;

/// Lists or runs.
pub fn run(arguments: &ExperimentsArguments) -> anyhow::Result<ExitCode> {
    if !arguments.folder.is_dir() {
        let what = format!(
            "{}: is no folder here; --folder DIR names the one with the experiments",
            arguments.folder.display()
        );
        return Err(BadInput(what).into());
    }
    let ids = list(&arguments.folder).map_err(explained)?;
    match &arguments.action {
        None | Some(ExperimentsAction::List) => show(&arguments.folder, &ids),
        Some(ExperimentsAction::Run(run)) => run_some(&arguments.folder, &ids, run),
    }
}

/// A line an experiment: its name, its paper and figure, its results.
fn show(folder: &Path, ids: &[String]) -> anyhow::Result<ExitCode> {
    let mut lines = Vec::new();
    for id in ids {
        let experiment = load(folder, id).map_err(explained)?;
        let mut results: Vec<&str> = experiment.published.claims.iter().map(|claim| claim.id.as_str()).collect();
        results.dedup();
        let published = &experiment.published;
        let paper = format!("{}, {}", published.paper, published.figure);
        lines.push([id.clone(), paper, experiment.scenario.title.clone(), results.join(" ")]);
    }
    let widths: Vec<usize> =
        (0..3).map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    for [id, paper, title, results] in &lines {
        terminal::print(&format!("{id:<a$}  {paper:<b$}  {title}\n", a = widths[0], b = widths[1]))?;
        terminal::print(&format!("{:<1$}  {results}\n", "", widths[0]))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_some(folder: &Path, ids: &[String], arguments: &ExperimentsRunArguments) -> anyhow::Result<ExitCode> {
    let all = arguments.ids.iter().any(|id| id == "all");
    if let Some(unknown) = arguments.ids.iter().find(|id| *id != "all" && !ids.contains(id)) {
        let what = format!("{} has no experiment {unknown:?}; allowed: all, {}", folder.display(), ids.join(", "));
        return Err(BadInput(what).into());
    }
    // Live runs share the machine's clock: one at a time, so that none makes another late.
    let workers = if arguments.live { NonZeroUsize::MIN } else { workers(arguments.jobs)? };
    let mut experiments = Vec::new();
    for id in ids.iter().filter(|id| all || arguments.ids.contains(id)) {
        experiments.push(load(folder, id).map_err(explained)?);
    }
    // Papers side by side in the docs.
    experiments.sort_by(|a, b| (&a.published.paper, &a.id).cmp(&(&b.published.paper, &b.id)));
    // Found out now rather than when the runs, which may take hours, are over.
    let made = match &arguments.out {
        Some(out) => make_writable(out)?,
        None => false,
    };
    // Namespaces are made before there is a second thread.
    let privilege = match arguments.live {
        false => None,
        true => Some(acquire_privilege().map_err(|error| BadInput(error.to_string()))?),
    };
    let stop = stop::flag_on_signals()?;
    let mut display = RunsDisplay::new();
    if arguments.live {
        note_left_out(&experiments);
    }
    let live = privilege.map(|privilege| Kept(Live(privilege)));
    let (world, attempts): (&dyn World, usize) = match &live {
        Some(live) => (live, LIVE_TRIES),
        None => (&Virtual, 1),
    };
    let mut runner = Runner { world, workers, attempts, stop: &stop, sink: &mut display };
    let outcomes = engine::run(&experiments, arguments.live, &mut runner);
    display.clear();
    let Some(outcomes) = outcomes else {
        print_line("bentpipe: stopped; nothing was written");
        if let (true, Some(out)) = (made, &arguments.out) {
            // Ours, and empty; if somebody put something into it, it stays.
            let _ = std::fs::remove_dir(out);
        }
        return Ok(ExitCode::from(stop::EXIT_INTERRUPTED));
    };
    let mode = if arguments.live { "live" } else { "virtual" };
    let tables: Vec<table::Table> = experiments
        .iter()
        .zip(&outcomes)
        .map(|(experiment, outcome)| table::Table::of(experiment, mode, judge::rows(experiment, outcome)))
        .collect();
    let (mut written, mut unwritten) = (Vec::new(), Ok(()));
    if let Some(out) = &arguments.out {
        for ((experiment, outcome), table) in experiments.iter().zip(&outcomes).zip(&tables) {
            match write_reports(out, experiment, outcome, table) {
                Ok(report) => written.push(report),
                // The table below is worth its runs all the same.
                Err(error) => unwritten = unwritten.and(Err(error)),
            }
        }
    }
    let text = if arguments.json {
        serde_json::to_string_pretty(&tables).context("cannot write the table as JSON")? + "\n"
    } else if arguments.markdown {
        table::markdown(&tables)
    } else {
        let reports: String = written.iter().map(|path| format!("report: {path}\n")).collect();
        table::text(&tables) + &reports
    };
    let printed = if arguments.json { terminal::print_json(&text) } else { terminal::print(&text) };
    match printed {
        // Nobody reads the table any more; the status still tells.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        other => other.context("cannot write to standard output")?,
    }
    unwritten?;
    let broken = outcomes.iter().flat_map(|outcome| &outcome.points).flat_map(|point| &point.runs);
    let mut broken = broken.filter_map(|run| run.as_ref().err());
    if let Some(first) = broken.next() {
        anyhow::bail!("{} run(s) could not be done; the first: {first}", 1 + broken.count());
    }
    Ok(ExitCode::SUCCESS)
}

/// Live runs without the settings that no Linux lets us set.
struct Kept(Live);

impl World for Kept {
    fn run(&self, scenario: &Scenario, stop: &AtomicBool, sink: &mut dyn Sink) -> Result<Record, String> {
        let mut kept = scenario.clone();
        kept.cases.iter_mut().flat_map(|case| case.tcp.values_mut()).for_each(|tcp| drop(keep_live(tcp)));
        self.0.run(&kept, stop, sink)
    }
}

/// Leaves out what no Linux lets us set; the keys.
fn keep_live(tcp: &mut TcpConfig) -> Vec<String> {
    let mut left_out = Vec::new();
    while let Err(problem) = tcp_stack::check(tcp) {
        if !tcp.leave_open(&problem.key) {
            break;
        }
        left_out.push(problem.key);
    }
    left_out
}

/// Says on standard error which settings live runs do without: there the kernel's own are in force.
fn note_left_out(experiments: &[Experiment]) {
    for experiment in experiments {
        let mut all = BTreeSet::new();
        for tcp in experiment.scenario.cases.iter().flat_map(|case| case.tcp.values()) {
            all.extend(keep_live(&mut tcp.clone()));
        }
        if !all.is_empty() {
            let keys: Vec<String> = all.into_iter().collect();
            print_line(format_args!("{}: the kernel's own: {}", experiment.id, keys.join(", ")));
        }
    }
}

/// Makes sure that files can be made in a folder; true if it was not there before.
fn make_writable(folder: &Path) -> anyhow::Result<bool> {
    let is_new = !folder.exists();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let probe = folder.join(format!(".bentpipe-{}", std::process::id()));
    std::fs::write(&probe, b"").with_context(|| format!("cannot write in {}", folder.display()))?;
    std::fs::remove_file(&probe).with_context(|| format!("cannot write in {}", folder.display()))?;
    Ok(is_new)
}

/// `OUT/ID/results.json` and `report.html`; the report's path.
fn write_reports(
    out: &Path,
    experiment: &Experiment,
    outcome: &engine::Outcome,
    table: &table::Table,
) -> anyhow::Result<String> {
    let folder = out.join(&experiment.id);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let json = serde_json::to_string_pretty(table).context("cannot write the table as JSON")? + "\n";
    write_whole(&folder.join("results.json"), json.as_bytes())?;
    let report = folder.join("report.html");
    write_whole(&report, page::html(experiment, outcome, table).as_bytes())?;
    Ok(report.display().to_string())
}

fn explained(error: LoadError) -> anyhow::Error {
    BadInput(error.to_string()).into()
}
