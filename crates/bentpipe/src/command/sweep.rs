//! Runs a scenario over a grid of settings and several seeds.

use super::BadInput;
use crate::cli::SweepArguments;
use crate::files::write_whole;
use crate::stop;
use crate::terminal::{self, RunsDisplay, print_line};
use anyhow::Context;
use bentpipe_lab::files::{TEXT_BYTES_MAX, read_text};
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated;
use bentpipe_net::problem::Problem;
use bentpipe_study::pool;
use bentpipe_study::runner::{Runner, Virtual};
use bentpipe_study::sweep::engine::{self, Outcome, Shard, SweepOptions};
use bentpipe_study::sweep::plan::{Plan, Request, SeedRule};
use bentpipe_study::sweep::summary::{Summary, summarise};
use bentpipe_study::sweep::{SweepError, counters, parquet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Refuses the parts of a scenario that virtual runs cannot do.
fn check_virtually(scenario: &Scenario) -> Result<(), Problem> {
    simulated::check(scenario, false).map(|_| ())
}

/// Runs the sweep and leaves results.parquet and summary.csv.
pub fn run(arguments: SweepArguments) -> anyhow::Result<ExitCode> {
    let name = arguments.scenario.display().to_string();
    let text = read_text(&arguments.scenario, TEXT_BYTES_MAX)
        .map_err(|error| BadInput(format!("cannot read {name}: {error}")))?;
    let shard = arguments.shard.as_deref().map(Shard::parse).transpose().map_err(explained)?;
    let workers = workers(arguments.jobs)?;
    let SweepArguments { until: limits, seeds_min: min, seeds_max: max, .. } = &arguments;
    let seeds = match limits.is_empty() {
        true => SeedRule::Count(arguments.seeds),
        false => SeedRule::Until { limits: limits.clone(), min: *min, max: *max },
    };
    let measure = counters::parse_all(&arguments.measure).map_err(explained)?;
    let request = Request {
        source_name: name.clone(),
        text,
        set: arguments.set.clone(),
        vary: arguments.vary.clone(),
        seeds,
        confidence: arguments.confidence,
        measure,
    };
    let plan = Plan::new(request, &Arc::default(), &check_virtually).map_err(explained)?;
    let (points, (least, most)) = (plan.points.len(), plan.seeds());
    if arguments.check {
        let seeds = if least == most { least.to_string() } else { format!("{least} to {most}") };
        terminal::print(&format!("{name}: fine; {points} point(s), {seeds} seed(s) each\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = SweepOptions {
        out: arguments.out.unwrap_or_else(|| default_folder(&arguments.scenario)),
        shard,
        merge: arguments.merge,
    };
    let stop = stop::flag_on_signals()?;
    let mut display = RunsDisplay::new();
    let mut runner = Runner { world: &Virtual, workers, attempts: 1, stop: &stop, sink: &mut display };
    let outcome = engine::run(&plan, &options, &mut runner);
    display.clear();
    let continues = |error: SweepError| match error.is_bad_input() {
        true => explained(error),
        false => {
            anyhow::anyhow!("{error}; what was done is kept in {}: the same command continues", options.out.display())
        }
    };
    let outcome = outcome.map_err(continues)?;
    let (done, total) = outcome.done;
    if let Some(shard) = options.shard {
        terminal::print(&format!("shard {} of {}: {done} of {total} runs done\n", shard.part, shard.parts))?;
        return end(&outcome, &options.out);
    }
    parquet::write(&options.out.join("results.parquet"), &plan, &outcome).map_err(continues)?;
    let summary = summarise(&plan, &outcome);
    write_whole(&options.out.join("summary.csv"), summary.to_csv().as_bytes())?;
    let text = if arguments.json {
        summary.to_json().context("cannot write the summary as JSON")?
    } else {
        let out = options.out.display();
        format!("{}\n{done} runs.\nresults: {out}/results.parquet\nsummary: {out}/summary.csv\n", summary.to_text())
    };
    let printed = if arguments.json { terminal::print_json(&text) } else { terminal::print(&text) };
    match printed {
        // Nobody reads the table any more; the status still tells.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        other => other.context("cannot write to standard output")?,
    }
    check_measured(&plan, &summary, &outcome)?;
    end(&outcome, &options.out)
}

/// The exit status of the runs.
fn end(outcome: &Outcome, out: &Path) -> anyhow::Result<ExitCode> {
    let (done, total) = outcome.done;
    if !outcome.complete && done < total {
        print_line(format_args!(
            "bentpipe: stopped; {done} of {total} runs are kept in {}; the same command continues",
            out.display()
        ));
        return Ok(ExitCode::from(stop::EXIT_INTERRUPTED));
    }
    if let Some(first) = &outcome.first_error {
        anyhow::bail!(
            "{} of {total} runs could not be done; the first: {first}; the same command tries them again",
            outcome.errors
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A stopping rule over something that nothing measures would say nothing.
fn check_measured(plan: &Plan, summary: &Summary, outcome: &Outcome) -> anyhow::Result<()> {
    for limit in plan.limits.iter().filter(|_| outcome.complete && outcome.errors == 0) {
        if !summary.measured(&limit.measurement) {
            anyhow::bail!(
                "--until {}: no workload measured that; measured: {}",
                limit.measurement,
                summary.measurements().join(", ")
            );
        }
    }
    Ok(())
}

fn explained(error: SweepError) -> anyhow::Error {
    if error.is_bad_input() { BadInput(error.to_string()).into() } else { error.into() }
}

/// `runs/SCENARIO-sweep`: always the same, so that the same command continues.
fn default_folder(scenario: &Path) -> PathBuf {
    let stem = scenario.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Path::new("runs").join(format!("{stem}-sweep"))
}

/// Runs at a time: as asked with `--jobs`, or as many as there are cores.
pub fn workers(jobs: Option<usize>) -> Result<NonZeroUsize, BadInput> {
    let Some(jobs) = jobs else { return Ok(pool::cores()) };
    NonZeroUsize::new(jobs).ok_or_else(|| BadInput("--jobs 0: allowed: 1 or more".to_owned()))
}
