//! Which runs belong to the same workload, and how each is labelled. Linear in the runs.

use crate::record::{CaseRecord, WorkloadRecord};
use indexmap::IndexMap;

/// What tells workloads apart: name and number of the copy. Repetitions share it.
pub type Key<'a> = (&'a str, Option<u32>);

/// The key of one run.
pub fn key(workload: &WorkloadRecord) -> Key<'_> {
    (&workload.name, workload.copy)
}

/// The runs of each workload, in the order in which workloads come first.
pub fn grouped<'a>(
    workloads: impl IntoIterator<Item = &'a WorkloadRecord>,
) -> IndexMap<Key<'a>, Vec<&'a WorkloadRecord>> {
    let mut groups: IndexMap<Key<'_>, Vec<&WorkloadRecord>> = IndexMap::new();
    for workload in workloads {
        groups.entry(key(workload)).or_default().push(workload);
    }
    groups
}

/// A case's runs, each with the workload's name, and its repetition where the case has several.
pub fn labelled(case: &CaseRecord) -> impl Iterator<Item = (String, &WorkloadRecord)> {
    let groups = grouped(&case.workloads);
    case.workloads.iter().map(move |workload| {
        let repeated = groups.get(&key(workload)).is_some_and(|runs| runs.len() > 1);
        let label = workload.label();
        (if repeated && workload.repeat > 0 { format!("{label} #{}", workload.repeat) } else { label }, workload)
    })
}
