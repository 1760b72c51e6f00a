//! The results of workloads.

use crate::record::{
    self, Bound, CommandRecord, DataDirection, Measurement, Objective, Party, Role, Series, WorkloadRecord,
};
use crate::scenario::workload::Workload;
use bentpipe_apps::Direction;
use bentpipe_apps::quantity::{Better, COMPLETION_TIME, Quantity, Unit};
use bentpipe_apps::report::{Report, Status};
use bentpipe_net::time::{Duration, Instant};

/// The end of a program.
#[derive(Clone, Debug)]
pub struct EndedCommand {
    /// Its command line.
    pub command: String,
    /// Its duration, in seconds.
    pub seconds: f64,
    /// Exit status, 128 + signal when it was killed.
    pub exit: i32,
    /// The same, if it ended before it was told to.
    pub ended_by_itself: Option<i32>,
    /// Its output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// An empty record of one run of a workload.
pub fn workload_record(workload: &Workload, repeat: u32, start: Instant) -> WorkloadRecord {
    let Workload { id, placement, .. } = workload;
    let parties = placement.parties.iter().enumerate();
    let parties = parties.map(|(number, party)| {
        let role = Role::named(placement.role(number).name);
        Party { role, site: party.site.clone() }
    });
    WorkloadRecord {
        name: id.name.clone(),
        copy: id.copy,
        app: placement.kind.name().to_owned(),
        parties: parties.collect(),
        direction: placement.workload.direction().map(DataDirection::from),
        repeat,
        start: start.as_secs_f64(),
        shown: placement.kind.shown().into(),
        ..WorkloadRecord::default()
    }
}

/// Puts a report into the record.
pub fn put_report(record: &mut WorkloadRecord, report: &Report) {
    record.end = report.ended.map(Instant::as_secs_f64);
    let measurements = report.measurements.iter();
    record.measurements = measurements
        .map(|m| Measurement::new(m.quantity.name, m.quantity.unit.into(), m.quantity.better.into(), m.value))
        .collect();
    record.series = report
        .series
        .iter()
        .map(|s| {
            let points = s.points.iter().map(|(at, value)| (at.as_secs_f64(), *value));
            Series::new(s.quantity.name, s.quantity.unit.into(), points.collect())
        })
        .collect();
}

/// A command's result as a report; one that was stopped has none.
pub fn command_report(ended: &EndedCommand, started: Instant, stopped: bool) -> Report {
    if stopped {
        return Report::new(Status::Running, None);
    }
    let status = if ended.exit == 0 {
        Status::Done
    } else {
        let last = ended.stderr.lines().rev().find(|line| !line.trim().is_empty());
        Status::Failed(match last {
            Some(line) => format!("exit status {}: {line}", ended.exit),
            None => format!("exit status {}", ended.exit),
        })
    };
    let mut report = Report::new(status, Some(started + Duration::from_secs_f64(ended.seconds)));
    report.put(COMPLETION_TIME, ended.seconds);
    report
}

/// A command's output and exit status.
pub fn command_record(ended: EndedCommand) -> CommandRecord {
    let EndedCommand { command, ended_by_itself, stdout, stderr, .. } = ended;
    CommandRecord { command, exit: ended_by_itself, stdout, stderr }
}

/// Holds the record against the workload's objective.
pub fn judge(record: &mut WorkloadRecord, workload: &Workload) {
    let Some(objective) = workload.objective else { return };
    let Quantity { name, unit, better } = objective.quantity();
    let bound = if better == Better::Higher { Bound::AtLeast } else { Bound::AtMost };
    let limit = objective.limit();
    let met = match record.status {
        record::Status::Failed => Some(false),
        record::Status::Done => Some(record.measurement(name).is_some_and(|m| bound.allows(m.value, limit))),
        // Cut off: missed for certain only if the time was up already, which only the caller's end time could tell.
        record::Status::Interrupted => None,
    };
    record.objective = Some(Objective { quantity: name.to_owned(), bound, limit, unit: unit.into(), met });
}

impl From<Direction> for DataDirection {
    fn from(direction: Direction) -> DataDirection {
        match direction {
            Direction::Download => DataDirection::Download,
            Direction::Upload => DataDirection::Upload,
        }
    }
}

impl From<Unit> for record::Unit {
    fn from(unit: Unit) -> record::Unit {
        match unit {
            Unit::BitsPerSecond => record::Unit::BitsPerSecond,
            Unit::Seconds => record::Unit::Seconds,
            Unit::Bytes => record::Unit::Bytes,
            Unit::Share => record::Unit::Share,
            Unit::Number => record::Unit::Number,
            other => record::Unit::from(other.symbol()),
        }
    }
}

impl From<Better> for record::Better {
    fn from(better: Better) -> record::Better {
        match better {
            Better::Higher => record::Better::Higher,
            Better::Lower => record::Better::Lower,
            Better::Neither => record::Better::Neither,
        }
    }
}
