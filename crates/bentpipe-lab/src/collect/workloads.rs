//! What workloads did.

use crate::record::{
    Bound, CommandRecord, Measurement, Objective as ObjectiveRecord, Party, Role, Series, Status, Unit, WorkloadRecord,
    v1,
};
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
    let (name, copy) = v1::CopyNames::default().split(&workload.name);
    let mut parties = vec![Party { role: Role::Client, site: workload.client.clone() }];
    parties.extend(workload.server.clone().map(|site| Party { role: Role::Server, site }));
    WorkloadRecord {
        name: name.to_owned(),
        copy,
        app: workload.program.name().to_owned(),
        parties,
        direction: v1::word("direction", workload.direction()).ok(),
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
        .map(|m| Measurement::new(m.name, v1::unit(m.name, m.unit), v1::better(m.name), m.value))
        .collect();
    record.series = report
        .series
        .iter()
        .map(|s| {
            let points = s.points.iter().map(|(at, value)| (at.as_secs_f64(), *value));
            Series::new(s.name.as_str(), v1::unit(&s.name, s.unit), points.collect())
        })
        .collect();
}

/// Puts how a command ended into its record; `cut`: the status it gets because it was ended.
pub fn put_command(record: &mut WorkloadRecord, ended: &EndedCommand, cut: Option<Status>) {
    match (cut, ended.exit) {
        (Some(status), _) => record.status = status,
        (None, 0) => record.status = Status::Done,
        (None, code) => {
            record.status = Status::Failed;
            let last = ended.stderr.lines().rev().find(|line| !line.trim().is_empty());
            record.error = Some(match last {
                Some(line) => format!("exit status {code}: {line}"),
                None => format!("exit status {code}"),
            });
        }
    }
    if cut.is_none() {
        record.end = Some(record.start + ended.seconds);
        let name = "completion_time";
        record.measurements.push(Measurement::new(name, Unit::Seconds, v1::better(name), ended.seconds));
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
    let (quantity, bound, limit, unit) = match objective {
        Objective::Within(time) => ("completion_time", Bound::AtMost, time.as_secs_f64(), Unit::Seconds),
        Objective::Goodput(rate) => ("goodput", Bound::AtLeast, rate.bps as f64, Unit::BitsPerSecond),
        Objective::Loss(share) => ("loss", Bound::AtMost, share.fraction(), Unit::Share),
    };
    let met = match record.status {
        Status::Failed => Some(false),
        Status::Done => Some(record.measurement(quantity).is_some_and(|m| bound.allows(m.value, limit))),
        // Cut off: missed for certain only if the time was up already, which only the caller's end time could tell.
        Status::Interrupted => None,
    };
    record.objective = Some(ObjectiveRecord { quantity: quantity.to_owned(), bound, limit, unit, met });
}
