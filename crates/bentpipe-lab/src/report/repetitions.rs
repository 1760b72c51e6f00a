//! Which runs belong to the same workload, how each is labelled, and what they have in common. Linear in the runs.

use crate::record::{Better, CaseRecord, Measurement, Status, WorkloadRecord};
use indexmap::IndexMap;
use std::collections::BTreeMap;

/// The runs of each workload by its name, copies and repetitions together, in the order in which workloads come first.
pub fn grouped<'a>(
    workloads: impl IntoIterator<Item = &'a WorkloadRecord>,
) -> IndexMap<&'a str, Vec<&'a WorkloadRecord>> {
    let mut groups: IndexMap<&str, Vec<&WorkloadRecord>> = IndexMap::new();
    for workload in workloads {
        groups.entry(&workload.name).or_default().push(workload);
    }
    groups
}

/// A case's runs, each with the workload's name, its copy, and its repetition where the copy has several.
pub fn labelled(case: &CaseRecord) -> impl Iterator<Item = (String, &WorkloadRecord)> {
    let mut runs: BTreeMap<(&str, Option<u32>), u32> = BTreeMap::new();
    for workload in &case.workloads {
        *runs.entry((&workload.name, workload.copy)).or_default() += 1;
    }
    case.workloads.iter().map(move |workload| {
        let repeated = runs.get(&(workload.name.as_str(), workload.copy)).is_some_and(|runs| *runs > 1);
        let label = workload.label();
        (if repeated && workload.repeat > 0 { format!("{label} #{}", workload.repeat) } else { label }, workload)
    })
}

/// One run's number: `#2`, `(3)`, `(3) #2`.
pub fn number(run: &WorkloadRecord) -> String {
    match run.copy {
        None => format!("#{}", run.repeat),
        Some(copy) if run.repeat <= 1 => format!("({copy})"),
        Some(copy) => format!("({copy}) #{}", run.repeat),
    }
}

/// `web` for one run, `web × 240` for several.
pub fn group_label(runs: &[&WorkloadRecord]) -> String {
    match runs {
        [one] => one.label(),
        several => format!("{} ×\u{a0}{}", several[0].name, several.len()),
    }
}

/// A measurement over several runs.
pub struct Spread<'a> {
    /// The least value.
    pub least: &'a Measurement,
    /// The middle one; of an even number, the greater of the two.
    pub median: &'a Measurement,
    /// The largest value.
    pub most: &'a Measurement,
    /// The value that 95 % of the runs reach or better: of what is better higher, it is below the median.
    pub p95: &'a Measurement,
    /// Number of runs that have it.
    pub runs: usize,
}

/// A quantity over the runs that measured it; `None`: none did.
pub fn spread<'a>(runs: &[&'a WorkloadRecord], quantity: &str) -> Option<Spread<'a>> {
    let mut values: Vec<&Measurement> = runs.iter().filter_map(|run| run.measurement(quantity)).collect();
    values.sort_by(|a, b| a.value.total_cmp(&b.value));
    let (least, most) = (*values.first()?, *values.last()?);
    // Nearest rank: at least 95 % of the values are as good or better.
    let rank = (values.len() * 95).div_ceil(100);
    let p95 = match least.better {
        Better::Higher => values[values.len() - rank],
        Better::Lower | Better::Neither => values[rank - 1],
    };
    Some(Spread { least, median: values[values.len() / 2], most, p95, runs: values.len() })
}

/// The ends of runs.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Runs.
    pub runs: usize,
    /// Those with an objective.
    pub judged: usize,
    /// Those that met it.
    pub met: usize,
    /// Those of which that is not known.
    pub undecided: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those that were cut off.
    pub cut_off: usize,
}

impl Tally {
    /// Counts.
    pub fn of(runs: &[&WorkloadRecord]) -> Tally {
        let mut tally = Tally { runs: runs.len(), ..Tally::default() };
        for run in runs {
            let met = run.objective.as_ref().map(|objective| objective.met);
            tally.judged += usize::from(met.is_some());
            tally.met += usize::from(met == Some(Some(true)));
            tally.undecided += usize::from(met == Some(None));
            tally.failed += usize::from(run.status == Status::Failed);
            tally.cut_off += usize::from(run.status == Status::Interrupted);
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Unit;

    fn run(repeat: u32, better: Better, value: f64) -> WorkloadRecord {
        let measurements = vec![Measurement::new("x", Unit::Seconds, better, value)];
        WorkloadRecord { name: "w".into(), repeat, measurements, ..WorkloadRecord::default() }
    }

    #[test]
    fn ninety_five_per_cent_of_the_runs_reach_p95_or_better() {
        for (runs, better, p95, median) in [
            (1, Better::Lower, 1.0, 1.0),
            (20, Better::Lower, 19.0, 11.0),
            (100, Better::Lower, 95.0, 51.0),
            (100, Better::Higher, 6.0, 51.0),
            (101, Better::Higher, 6.0, 51.0),
        ] {
            let all: Vec<WorkloadRecord> = (1..=runs).rev().map(|i| run(i, better, f64::from(i))).collect();
            let all: Vec<&WorkloadRecord> = all.iter().collect();
            let spread = spread(&all, "x").unwrap();
            assert_eq!((spread.p95.value, spread.median.value), (p95, median), "{runs} {better:?}");
            assert_eq!((spread.least.value, spread.most.value), (1.0, f64::from(runs)));
            let reach = |value: f64| if better == Better::Higher { value >= p95 } else { value <= p95 };
            let reached = all.iter().filter(|run| reach(run.measurements[0].value)).count();
            assert!(reached * 100 >= 95 * all.len());
        }
        assert!(spread(&[], "x").is_none());
    }
}
