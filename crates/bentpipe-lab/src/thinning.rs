//! Series of a bounded number of points: a record's length follows what was measured, not how long it took.
//!
//! A series that is too long keeps the least and the largest value of each of equally long parts, at their times, and its
//! first and last point: extremes stay, averages of the points do not. What is judged (measurements, counters) is never
//! made from thinned series.

use crate::record::{Record, Series, WorkloadRecord};

/// Points of a series that a record keeps at most: more than a chart has pixels.
pub const POINTS_MAX: usize = 2_000;
/// Points of all series that a record keeps at most. One takes about 20 bytes of its file.
pub const RECORD_POINTS_MAX: usize = 500_000;

/// The points of series that a run keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SeriesPoints {
    /// All that are measured. Hosts' TCP state is sampled less often in long runs, at most some thousand times.
    #[default]
    All,
    /// At most [`POINTS_MAX`] of each, and [`RECORD_POINTS_MAX`] of all together: the longest lose most.
    Bounded,
}

impl SeriesPoints {
    /// Thins the series of a whole run.
    pub fn apply(self, record: &mut Record) {
        if self == SeriesPoints::All {
            return;
        }
        let mut all: Vec<&mut Series> = Vec::new();
        for case in &mut record.cases {
            all.extend(case.workloads.iter_mut().flat_map(|workload| &mut workload.series));
            let directions = case.links.iter_mut().flat_map(|link| &mut link.directions);
            all.extend(directions.flat_map(|direction| &mut direction.series));
            all.extend(case.tcp_samples.iter_mut().flat_map(|flow| &mut flow.series));
        }
        thin(all, RECORD_POINTS_MAX);
    }
}

/// Records of workloads' runs. While a case runs, their series are kept to twice what a whole record may have.
pub struct WorkloadRecords {
    records: Vec<WorkloadRecord>,
    series: SeriesPoints,
    points: usize,
}

impl WorkloadRecords {
    /// None yet.
    pub fn new(series: SeriesPoints) -> WorkloadRecords {
        WorkloadRecords { records: Vec::new(), series, points: 0 }
    }

    /// Adds a record.
    pub fn push(&mut self, mut record: WorkloadRecord) {
        if self.series == SeriesPoints::Bounded {
            thin(record.series.iter_mut().collect(), RECORD_POINTS_MAX);
            self.points += record.series.iter().map(|series| series.points.len()).sum::<usize>();
        }
        self.records.push(record);
        if self.points > 2 * RECORD_POINTS_MAX {
            let all = self.records.iter_mut().flat_map(|record| &mut record.series);
            self.points = thin(all.collect(), RECORD_POINTS_MAX);
        }
    }

    /// All records, in the order in which they came.
    pub fn finish(self) -> Vec<WorkloadRecord> {
        self.records
    }
}

/// Thins series to [`POINTS_MAX`] points each and to `points_max` together, as far as [`POINTS_LEAST`] allows; the number
/// of points that are left.
fn thin(mut all: Vec<&mut Series>, points_max: usize) -> usize {
    let total = |most: usize| all.iter().map(|series| series.points.len().min(most)).sum::<usize>();
    // The largest bound with which all fit.
    let (mut fits, mut beyond) = (POINTS_LEAST, POINTS_MAX + 1);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        if total(middle) <= points_max { fits = middle } else { beyond = middle }
    }
    let mut left = 0;
    for series in &mut all {
        let measured = series.points.len();
        if measured > fits {
            series.points = decimate(&series.points, fits);
            series.points_measured.get_or_insert(measured as u64);
        }
        left += series.points.len();
    }
    left
}

/// At most `points_max` points, each bucket's least and largest kept, in order of time; what cannot be drawn is gone.
pub fn decimate(points: &[(f64, f64)], points_max: usize) -> Vec<(f64, f64)> {
    let mut clean: Vec<(f64, f64)> = points.iter().copied().filter(can_be_drawn).collect();
    clean.sort_by(|a, b| a.0.total_cmp(&b.0));
    if clean.len() <= points_max.max(4) {
        return clean;
    }
    let (first, last) = (clean[0], clean[clean.len() - 1]);
    let inner = &clean[1..clean.len() - 1];
    let buckets = (points_max.max(4) - 2) / 2;
    let mut kept = Vec::with_capacity(2 * buckets + 2);
    kept.push(first);
    for bucket in 0..buckets {
        let part = &inner[bucket * inner.len() / buckets..(bucket + 1) * inner.len() / buckets];
        let by_value = |(_, a): &(usize, &(f64, f64)), (_, b): &(usize, &(f64, f64))| a.1.total_cmp(&b.1);
        let least = part.iter().enumerate().min_by(by_value);
        let largest = part.iter().enumerate().max_by(by_value);
        if let (Some((i, low)), Some((j, high))) = (least, largest) {
            let both = match i.cmp(&j) {
                std::cmp::Ordering::Less => [Some(*low), Some(*high)],
                std::cmp::Ordering::Equal => [Some(*low), None],
                std::cmp::Ordering::Greater => [Some(*high), Some(*low)],
            };
            kept.extend(both.into_iter().flatten());
        }
    }
    kept.push(last);
    kept
}

/// A number at a time; far beyond any run's, either would overflow when it is scaled.
pub fn can_be_drawn((x, y): &(f64, f64)) -> bool {
    x.abs() < 1e9 && y.abs() < 1e30
}

/// No series is thinned below this: a thousand times more series than a chart has lines would say nothing at all.
const POINTS_LEAST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{CaseRecord, Unit};

    fn series(points: usize) -> Series {
        let points = (0..points).map(|i| (i as f64, (i * 7919 % 1000) as f64)).collect();
        Series::new("goodput", Unit::BitsPerSecond, points)
    }

    fn record(runs: usize, points: usize) -> WorkloadRecord {
        WorkloadRecord { repeat: runs as u32, series: vec![series(points), series(10)], ..WorkloadRecord::default() }
    }

    fn points<'a>(records: impl IntoIterator<Item = &'a WorkloadRecord>) -> usize {
        records.into_iter().flat_map(|record| &record.series).map(|series| series.points.len()).sum()
    }

    #[test]
    fn a_record_never_has_more_points_than_its_bound_and_short_series_stay_whole() {
        for (runs, long) in [(1, 1_000_000), (50, 36_000), (10_000, 640), (40_000, 30)] {
            let mut kept = WorkloadRecords::new(SeriesPoints::Bounded);
            for run in 1..=runs {
                kept.push(record(run, long));
                assert!(kept.points <= 2 * RECORD_POINTS_MAX + POINTS_MAX + 10);
            }
            let case = CaseRecord { workloads: kept.finish(), ..CaseRecord::default() };
            let mut record = Record { cases: vec![case], ..Record::default() };
            SeriesPoints::Bounded.apply(&mut record);
            let workloads = &record.cases[0].workloads;
            let all = points(workloads);
            assert!(all <= RECORD_POINTS_MAX.max(runs * 2 * POINTS_LEAST), "{runs} runs: {all}");
            assert!(all >= RECORD_POINTS_MAX / 2 || all >= runs * POINTS_MAX.min(long) / 2, "{runs} runs: {all}");
            for workload in workloads {
                let [thinned, whole] = &workload.series[..] else { panic!() };
                assert!(thinned.points.len() <= POINTS_MAX && thinned.points_measured == Some(long as u64));
                // Ten points are fewer than each series' part, but where there are 40,000 runs.
                assert_eq!(whole.points_measured.is_none(), runs < 40_000, "{runs} runs");
                let values = thinned.points.iter().map(|(_, value)| *value);
                assert_eq!(values.fold(0.0, f64::max), series(long).points.iter().map(|p| p.1).fold(0.0, f64::max));
            }
        }
    }

    #[test]
    fn all_points_stay_on_request() {
        let mut kept = WorkloadRecords::new(SeriesPoints::All);
        (0..3).for_each(|run| kept.push(record(run, 400_000)));
        let case = CaseRecord { workloads: kept.finish(), ..CaseRecord::default() };
        let mut record = Record { cases: vec![case], ..Record::default() };
        SeriesPoints::All.apply(&mut record);
        assert_eq!(points(&record.cases[0].workloads), 3 * 400_010);
        assert!(record.cases[0].workloads.iter().flat_map(|w| &w.series).all(|s| s.points_measured.is_none()));
    }
}
