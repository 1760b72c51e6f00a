//! Whether two sets of samples agree.
//!
//! The ratio of the means, live ÷ virtual, has a 95 % confidence interval by the delta method on its logarithm: the
//! variance of ln(mean) is s² ÷ (n · mean²) for each side, the degrees of freedom follow Welch and Satterthwaite.
//! (Fieller's interval, the other common one, is nearly the same when both means are known within a few percent, as
//! here.)
//!
//! Where the live runs have twins, virtual runs with the same seeds and so the same errors on the link, what the errors
//! alone explain is taken out of the live mean: [`Twins`].

use crate::statistics::{Summary, t_quantile};
use serde::Serialize;

/// Most that an exact comparison may differ.
pub const EXACT_WITHIN: f64 = 0.03;
/// The interval of a random comparison must lie within this.
pub const RANDOM_WITHIN: f64 = 0.05;
/// Of every interval.
const CONFIDENCE: f64 = 0.95;
/// Fewest samples of each side before an interval is believed.
pub const SAMPLES_LEAST: usize = 8;

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within the tolerance.
    Agrees,
    /// Outside of it.
    Differs,
    /// Too few samples to tell.
    Undecided,
    /// One side has no samples.
    Missing,
}

/// The variance of ln(mean).
fn log_variance(summary: &Summary) -> f64 {
    summary.spread().powi(2) / summary.n as f64
}

/// The 95 % confidence interval of the ratio of two means.
#[must_use]
pub fn ratio_interval(live: &Summary, virtual_: &Summary) -> Option<(f64, f64)> {
    if live.n < 2 || virtual_.n < 2 || live.mean <= 0.0 || virtual_.mean <= 0.0 {
        return None;
    }
    let (a, b) = (log_variance(live), log_variance(virtual_));
    let ratio = live.mean / virtual_.mean;
    if a + b == 0.0 {
        return Some((ratio, ratio));
    }
    let freedom = (a + b).powi(2) / (a * a / (live.n - 1) as f64 + b * b / (virtual_.n - 1) as f64);
    let half = t_quantile(freedom, CONFIDENCE) * (a + b).sqrt();
    Some((ratio * (-half).exp(), ratio * half.exp()))
}

/// Live samples compared with virtual ones with the same seeds, as a control variate (Law, *Simulation Modeling and
/// Analysis*, 5th edition, section 11.4).
///
/// A live run and its twin meet the same random errors, so their values go together. The slope of the regression of live
/// on twin, times the distance of the twins' mean from the mean of many virtual runs, is taken off the live mean: a live
/// side that happened to meet fewer errors than on average is set right. The mean stays unbiased (but for a share of 1/n of
/// the slope's error), its variance falls to (1 − ρ²) of what it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Twins {
    /// The number of pairs.
    pub n: usize,
    /// The correlation of the pairs, ρ.
    pub correlation: f64,
    /// The mean of the twins.
    pub twin_mean: f64,
    /// The sum of the twins' squared distances from their mean.
    pub twin_squares: f64,
    /// The slope of live on twin.
    pub slope: f64,
    /// The standard deviation of the live samples about the regression line (n − 2).
    pub residual: f64,
}

impl Twins {
    /// Of pairs (live, twin); `None` below [`SAMPLES_LEAST`] pairs, and where the twins are all the same.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)]) -> Option<Twins> {
        let n = pairs.len();
        if n < SAMPLES_LEAST {
            return None;
        }
        let count = n as f64;
        let live_mean = pairs.iter().map(|pair| pair.0).sum::<f64>() / count;
        let twin_mean = pairs.iter().map(|pair| pair.1).sum::<f64>() / count;
        let sum = |f: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|p| f(p.0 - live_mean, p.1 - twin_mean)).sum::<f64>();
        let (live_squares, twin_squares) = (sum(&|x, _| x * x), sum(&|_, y| y * y));
        let products = sum(&|x, y| x * y);
        if twin_squares <= 0.0 || live_squares <= 0.0 {
            return None;
        }
        let slope = products / twin_squares;
        let correlation = products / (live_squares * twin_squares).sqrt();
        let residual = (live_squares * (1.0 - correlation.powi(2)).max(0.0) / (count - 2.0)).sqrt();
        Some(Twins { n, correlation, twin_mean, twin_squares, slope, residual })
    }

    /// Live ÷ virtual and its 95 % confidence interval, with the errors that the live runs met set right.
    #[must_use]
    pub fn ratio(&self, live: &Summary, virtual_: &Summary) -> Option<(f64, (f64, f64))> {
        let adjusted = live.mean - self.slope * (self.twin_mean - virtual_.mean);
        if adjusted <= 0.0 || virtual_.mean <= 0.0 || virtual_.n < 2 {
            return None;
        }
        let n = self.n as f64;
        // The slope is estimated too, and counts for as much as the twins' mean lies apart (Law, equation 11.11).
        let apart = (self.twin_mean - virtual_.mean).powi(2) / self.twin_squares;
        let own = (self.residual / adjusted).powi(2) * (1.0 / n + apart);
        let shared = (self.slope / adjusted - 1.0 / virtual_.mean) * virtual_.deviation;
        let variance = own + shared.powi(2) / virtual_.n as f64;
        let half = t_quantile(n - 2.0, CONFIDENCE) * variance.sqrt();
        let ratio = adjusted / virtual_.mean;
        Some((ratio, (ratio * (-half).exp(), ratio * half.exp())))
    }
}

/// For scenarios in which nothing is left to chance: the ratio of the means.
#[must_use]
pub fn judge_exact(live: &Summary, virtual_: &Summary) -> Verdict {
    let ratio = live.mean / virtual_.mean;
    if (ratio - 1.0).abs() <= EXACT_WITHIN { Verdict::Agrees } else { Verdict::Differs }
}

/// For scenarios with errors: live ÷ virtual and its interval, from the twins where there are any.
#[must_use]
pub fn random_ratio(live: &Summary, virtual_: &Summary, twins: Option<&Twins>) -> Option<(f64, (f64, f64))> {
    match twins {
        Some(twins) => twins.ratio(live, virtual_),
        None => Some((live.mean / virtual_.mean, ratio_interval(live, virtual_)?)),
    }
}

/// For scenarios with errors: where the interval lies.
#[must_use]
pub fn judge_random(live: &Summary, virtual_: &Summary, twins: Option<&Twins>) -> Verdict {
    if live.n < SAMPLES_LEAST || virtual_.n < SAMPLES_LEAST {
        return Verdict::Undecided;
    }
    match random_ratio(live, virtual_, twins).map(|(_, interval)| interval) {
        Some((low, high)) if low >= 1.0 - RANDOM_WITHIN && high <= 1.0 + RANDOM_WITHIN => Verdict::Agrees,
        Some((low, high)) if low > 1.0 + RANDOM_WITHIN || high < 1.0 - RANDOM_WITHIN => Verdict::Differs,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_comparisons_allow_three_percent() {
        let of = |value: f64| Summary::of(&[value, value]).unwrap();
        assert_eq!(judge_exact(&of(102.9), &of(100.0)), Verdict::Agrees);
        assert_eq!(judge_exact(&of(103.1), &of(100.0)), Verdict::Differs);
        assert_eq!(judge_exact(&of(96.9), &of(100.0)), Verdict::Differs);
    }

    /// Draws of which the spread is 20 %.
    fn draws(seed: u64, n: usize, mean: f64) -> Vec<f64> {
        // SplitMix64 (Steele, Lea and Flood 2014).
        let mut state = seed.wrapping_mul(0x1234_5678_9abc_def1);
        let mut uniform = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..n).map(|_| mean * (1.0 + 0.2 * (uniform() + uniform() + uniform() - 1.5) * 2.0)).collect()
    }

    #[test]
    fn the_interval_covers_the_true_ratio_95_times_in_100() {
        let covered = (0..1000)
            .filter(|seed| {
                let live = Summary::of(&draws(*seed, 20, 110.0)).unwrap();
                let virtual_ = Summary::of(&draws(seed + 5000, 100, 100.0)).unwrap();
                let (low, high) = ratio_interval(&live, &virtual_).unwrap();
                low <= 1.1 && 1.1 <= high
            })
            .count();
        assert!((930..=970).contains(&covered), "{covered} of 1000");
    }

    #[test]
    fn twins_take_out_what_the_errors_explain() {
        let virtual_ = Summary::of(&draws(77, 2000, 100.0)).unwrap();
        let (mut covered, mut widths) = (0, (0.0, 0.0));
        for seed in 0..1000 {
            let (twins, own) = (draws(seed + 10_000, 20, 100.0), draws(seed + 20_000, 20, 11.0));
            // Live is a tenth more than its twin, and a little of its own.
            let pairs: Vec<(f64, f64)> =
                twins.iter().zip(&own).map(|(v, e)| (1.1 * v + 3.0 * (e - 11.0), *v)).collect();
            let live = Summary::of(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>()).unwrap();
            let found = Twins::of(&pairs).unwrap();
            let (_, (low, high)) = found.ratio(&live, &virtual_).unwrap();
            let (plain_low, plain_high) = ratio_interval(&live, &virtual_).unwrap();
            widths.0 += high - low;
            widths.1 += plain_high - plain_low;
            covered += usize::from(low <= 1.1 && 1.1 <= high);
        }
        assert!((925..=975).contains(&covered), "{covered} of 1000");
        // ρ is 0.96: what is left is a third.
        assert!(widths.0 < 0.4 * widths.1, "{widths:?}");
        assert_eq!(Twins::of(&[(1.0, 2.0); 7]), None);
        assert_eq!(Twins::of(&[(1.0, 2.0); 8]), None);
    }

    #[test]
    fn random_comparisons_wait_until_the_interval_decides() {
        let virtual_ = Summary::of(&draws(1, 2000, 100.0)).unwrap();
        let judge = |n, mean| judge_random(&Summary::of(&draws(2, n, mean)).unwrap(), &virtual_, None);
        assert_eq!(judge(4, 100.0), Verdict::Undecided);
        assert_eq!(judge(20, 100.0), Verdict::Undecided);
        assert_eq!(judge(500, 100.0), Verdict::Agrees);
        assert_eq!(judge(500, 110.0), Verdict::Differs);
        assert_eq!(judge(500, 105.0), Verdict::Undecided);
    }
}
