//! Statistics of delays.

/// Delays, in seconds. Percentiles by the nearest rank; the median of an even number is the mean of the middle two.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Delays {
    /// Shortest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl Delays {
    /// Of these, in seconds and in any order; `None`: there are none.
    #[must_use]
    pub fn of(seconds: impl IntoIterator<Item = f64>) -> Option<Delays> {
        let mut sorted: Vec<f64> = seconds.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let rank = |percent: usize| sorted[(count * percent).div_ceil(100).max(1) - 1];
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        Some(Delays { min, mean, median, p95: rank(95), p99: rank(99), max })
    }
}
