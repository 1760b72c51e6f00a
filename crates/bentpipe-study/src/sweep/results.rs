//! Measurements of a sweep's runs, small enough for a million runs.

use super::journal::RunLine;
use super::subject::Subject;
use bentpipe_lab::record::{Status, Unit};
use std::collections::BTreeMap;

/// Every run's figures.
#[derive(Clone, Debug, Default)]
pub struct Results {
    names: Names,
    runs: BTreeMap<(u32, u32), Run>,
}

/// One run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// Why it could not be done.
    pub error: Option<String>,
    /// Its figures, in the record's order.
    pub rows: Box<[Row]>,
}

/// One figure of one run. Names are numbers of [`Results::name`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The case.
    pub case: NameId,
    /// The workload, direction or host.
    pub subject: SubjectId,
    /// Which repetition.
    pub repeat: u32,
    /// The workload's end.
    pub status: Status,
    /// Why the workload failed.
    pub error: Option<NameId>,
    /// The quantity; none if the workload measured nothing at all.
    pub measurement: Option<NameId>,
    /// The unit: see [`Results::unit`].
    pub unit: NameId,
    /// The value; none if it was no finite number.
    pub value: Option<f64>,
}

/// A subject whose names are numbers.
pub type SubjectId = Subject<NameId>;

/// A name, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NameId(u32);

#[derive(Clone, Debug, Default)]
struct Names {
    texts: Vec<String>,
    ids: BTreeMap<String, NameId>,
}

impl Names {
    fn id(&mut self, text: &str) -> NameId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = NameId(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

impl Results {
    /// Takes in a run; a later line of the same run replaces an earlier one.
    pub fn insert(&mut self, line: &RunLine) {
        let names = &mut self.names;
        let mut rows = Vec::new();
        for workload in &line.workloads {
            let row = Row {
                case: names.id(&workload.case),
                subject: Subject::Workload { workload: names.id(&workload.workload), copy: workload.copy },
                repeat: workload.repeat,
                status: workload.status,
                error: workload.error.as_deref().map(|error| names.id(error)),
                measurement: None,
                unit: names.id(""),
                value: None,
            };
            if workload.measurements.is_empty() {
                rows.push(row);
            }
            for (name, unit, value) in &workload.measurements {
                rows.push(Row { measurement: Some(names.id(name)), unit: names.id(unit.name()), value: *value, ..row });
            }
        }
        for counters in &line.counters {
            let subject = counters.subject.map(|name| names.id(name));
            let case = names.id(&counters.case);
            for (counter, value) in &counters.values {
                rows.push(Row {
                    case,
                    subject,
                    repeat: 1,
                    status: Status::Done,
                    error: None,
                    measurement: Some(names.id(counter.id())),
                    unit: names.id(counter.unit().name()),
                    value: *value,
                });
            }
        }
        let run = Run { seed: line.seed, error: line.error.clone(), rows: rows.into() };
        self.runs.insert((line.point, line.run), run);
    }

    /// A name's text.
    pub fn name(&self, id: NameId) -> &str {
        self.names.texts.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The unit of this name.
    pub fn unit(&self, id: NameId) -> Unit {
        Unit::from(self.name(id))
    }

    /// The number of a name, if it occurs.
    pub fn id(&self, text: &str) -> Option<NameId> {
        self.names.ids.get(text).copied()
    }

    /// A run, if it was done.
    pub fn run(&self, point: u32, run: u32) -> Option<&Run> {
        self.runs.get(&(point, run))
    }

    /// The first `count` runs of a point, as far as they were done, with their numbers.
    pub fn runs_of(&self, point: u32, count: u32) -> impl Iterator<Item = (u32, &Run)> {
        self.runs.range((point, 0)..(point, count)).map(|((_, run), result)| (*run, result))
    }

    /// Every run with its point and number, in order.
    pub fn all(&self) -> impl Iterator<Item = (u32, u32, &Run)> {
        self.runs.iter().map(|((point, run), result)| (*point, *run, result))
    }

    /// The samples of each (case, subject, measurement) in the first `count` runs of a point, with the unit. A run
    /// gives one sample, the mean over its repetitions; what a failed workload measured is left out.
    pub fn samples(&self, point: u32, count: u32) -> BTreeMap<(NameId, SubjectId, NameId), (NameId, Vec<f64>)> {
        let mut all: BTreeMap<_, (NameId, Vec<f64>)> = BTreeMap::new();
        for (_, run) in self.runs_of(point, count) {
            let mut sums: BTreeMap<_, (NameId, f64, f64)> = BTreeMap::new();
            for row in run.rows.iter().filter(|row| row.status != Status::Failed) {
                if let (Some(measurement), Some(value)) = (row.measurement, row.value) {
                    let sum = sums.entry((row.case, row.subject, measurement)).or_insert((row.unit, 0.0, 0.0));
                    (sum.1, sum.2) = (sum.1 + value, sum.2 + 1.0);
                }
            }
            for (key, (unit, sum, count)) in sums {
                all.entry(key).or_insert((unit, Vec::new())).1.push(sum / count);
            }
        }
        all
    }
}
