//! What workloads did.

use crate::record::{CommandRecord, Measurement, Objective as ObjectiveRecord, Series, WorkloadRecord};
use crate::scenario::workload::{Objective, Workload};
use bentpipe_apps::report::Report;
use bentpipe_net::time::Instant;

/// How a program ended.
#[derive(Clone, Debug)]
pub struct EndedCommand {
    /// Its command line.
    pub command: String,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// Exit status, 128 + signal when it was killed.
    pub exit: i32,
    /// The same, if it ended before it was told to.
    pub ended_by_itself: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it printed as errors.
    pub stderr: String,
}

/// An empty record of one run of a workload.
pub fn workload_record(workload: &Workload, repeat: u32, start: Instant) -> WorkloadRecord {
    WorkloadRecord {
        name: workload.name.clone(),
        app: workload.program.name().to_owned(),
        client: workload.client.clone(),
        server: workload.server.clone().unwrap_or_default(),
        direction: workload.direction().to_owned(),
        repeat,
        start: start.as_secs_f64(),
        ..WorkloadRecord::default()
    }
}

/// Puts what a program reported into its record.
pub fn put_report(record: &mut WorkloadRecord, report: &Report) {
    record.end = report.ended.map(Instant::as_secs_f64);
    record.measurements = report
        .measurements
        .iter()
        .filter(|m| !m.name.ends_with("_at"))
        .map(|m| Measurement { name: m.name.to_owned(), unit: m.unit.to_owned(), value: m.value })
        .collect();
    record.series = report
        .series
        .iter()
        .map(|s| Series {
            name: s.name.clone(),
            unit: s.unit.to_owned(),
            points: s.points.iter().map(|(at, value)| (at.as_secs_f64(), *value)).collect(),
        })
        .collect();
}

/// Puts how a command ended into its record; `cut`: the status it gets because it was ended.
pub fn put_command(record: &mut WorkloadRecord, ended: &EndedCommand, cut: Option<&str>) {
    match (cut, ended.exit) {
        (Some(status), _) => record.status = status.to_owned(),
        (None, 0) => record.status = "done".to_owned(),
        (None, code) => {
            record.status = "failed".to_owned();
            let last = ended.stderr.lines().rev().find(|line| !line.trim().is_empty());
            record.error = Some(match last {
                Some(line) => format!("exit status {code}: {line}"),
                None => format!("exit status {code}"),
            });
        }
    }
    if cut.is_none() {
        record.end = Some(record.start + ended.seconds);
        record.measurements.push(Measurement {
            name: "completion_time".to_owned(),
            unit: "s".to_owned(),
            value: ended.seconds,
        });
    }
    record.command = Some(CommandRecord {
        command: ended.command.clone(),
        exit: ended.ended_by_itself,
        stdout: ended.stdout.clone(),
        stderr: ended.stderr.clone(),
    });
}

/// Holds the record against the workload's objective.
pub fn judge(record: &mut WorkloadRecord, workload: &Workload) {
    let Some(objective) = workload.objective else { return };
    let value = |name: &str| record.measurements.iter().find(|m| m.name == name).map(|m| m.value);
    let met = match record.status.as_str() {
        "failed" => Some(false),
        "done" => Some(match objective {
            Objective::Within(time) => value("completion_time").is_some_and(|s| s <= time.as_secs_f64()),
            Objective::Goodput(rate) => value("goodput").is_some_and(|bps| bps >= rate.bps as f64),
            Objective::Loss(share) => value("loss").is_some_and(|loss| loss <= share.fraction()),
        }),
        // Cut off: missed for certain only if the time was up already, which only the caller's end time could tell.
        _ => None,
    };
    record.objective = Some(ObjectiveRecord { text: objective.text(), met });
}
