//! Means, their spread and confidence intervals, and how many runs a wanted interval needs.
//!
//! The half-width of a mean's interval is that of NTIA 98-354 §2.3.1: t(n−1, (1+c)/2) · √(s² ÷ n), with s² the sample variance and c the
//! confidence (0.99 there).

use serde::Serialize;

/// Statistics of one measurement's samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The number of samples.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Half the width of the mean's confidence interval; none below two samples.
    pub half_width: Option<f64>,
    /// The least sample.
    pub minimum: f64,
    /// The greatest.
    pub maximum: f64,
    /// Sample variance; 0 below two samples.
    pub variance: f64,
}

impl Estimate {
    /// The interval is wider than what sums of binary fractions leave: see [`differ`].
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.half_width.is_some_and(|half_width| differ(half_width, self.mean))
    }
}

/// Mean and spread of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (n − 1); 0 for one sample.
    pub deviation: f64,
}

impl Summary {
    /// Of samples; `None` without any.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let Estimate { n, mean, variance, .. } = estimate(samples, CONFIDENCE)?;
        Some(Summary { n, mean, deviation: variance.sqrt() })
    }

    /// Standard deviation ÷ mean.
    #[must_use]
    pub fn spread(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.deviation / self.mean.abs() }
    }

    /// Half the width of the mean's 95 % confidence interval ÷ the mean; `None` with fewer than two samples.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        let t = || t_quantile((self.n - 1) as f64, CONFIDENCE);
        (self.n > 1).then(|| t() * self.spread() / (self.n as f64).sqrt())
    }
}

/// Of a [`Summary`]'s interval.
const CONFIDENCE: f64 = 0.95;

/// Estimates a mean; none without samples. `confidence` is a share, such as 0.99.
pub fn estimate(samples: &[f64], confidence: f64) -> Option<Estimate> {
    let n = samples.len();
    if n == 0 {
        return None;
    }
    let (minimum, maximum) =
        samples.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(*x), b.max(*x)));
    // Equal samples have exactly their mean and no variance, whatever rounding would say.
    let mean = if minimum == maximum { minimum } else { samples.iter().sum::<f64>() / n as f64 };
    let variance = match n {
        1 => 0.0,
        _ => samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64,
    };
    let half_width = (n > 1).then(|| half_width(variance, n, confidence));
    Some(Estimate { n, mean, half_width, minimum, maximum, variance })
}

/// True if samples with this mean and half-width differ, and not only by what sums of binary fractions leave.
#[must_use]
pub fn differ(half_width: f64, mean: f64) -> bool {
    half_width > mean.abs() * ROUNDING
}

/// The share of the mean that rounding leaves at most.
const ROUNDING: f64 = 1e-9;

/// The median; of an even number of samples, the mean of the middle two. `None` without samples.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// Estimates the share of runs that succeeded, of samples that are 0 or 1; none of others, and below two. The half-width is the
/// farther side of Wilson's score interval (E. B. Wilson, Journal of the American Statistical Association 22, 1927): all of 40
/// runs are not all of all.
pub fn proportion(samples: &[f64], confidence: f64) -> Option<Estimate> {
    let plain = estimate(samples, confidence).filter(|plain| plain.n > 1)?;
    if samples.iter().any(|x| *x != 0.0 && *x != 1.0) {
        return None;
    }
    let (n, share) = (plain.n as f64, plain.mean);
    // The normal quantile: Student's t with very many degrees of freedom.
    let z = t_quantile(1e6, confidence);
    let scale = 1.0 + z * z / n;
    let centre = (share + z * z / (2.0 * n)) / scale;
    let half = z / scale * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    let farther = (share - (centre - half)).max(centre + half - share);
    Some(Estimate { half_width: Some(farther), ..plain })
}

/// t(n−1, (1+c)/2) · √(s² ÷ n), for two samples or more.
pub fn half_width(variance: f64, n: usize, confidence: f64) -> f64 {
    if variance == 0.0 {
        return 0.0;
    }
    t_quantile((n - 1) as f64, confidence) * (variance / n as f64).sqrt()
}

/// The least number of samples, at least `from` and at most `most`, whose half-width would be `limit` or less if the
/// variance stayed what it is.
pub fn samples_needed(variance: f64, limit: f64, confidence: f64, from: usize, most: usize) -> usize {
    // The half-width falls as n grows: halve the interval.
    let (mut low, mut high) = (from.max(2), most.max(2));
    while low < high {
        let middle = low + (high - low) / 2;
        if half_width(variance, middle, confidence) <= limit { high = middle } else { low = middle + 1 }
    }
    low
}

/// The t for which |T| ≤ t has probability `confidence` at `freedom` degrees of freedom: the (1+c)/2 critical point. Below one
/// degree it is that of one; between two whole numbers it goes straight in 1 ÷ ν (to 0.01 % from five degrees on).
pub fn t_quantile(freedom: f64, confidence: f64) -> f64 {
    // Beyond this the distribution is that of fewer degrees to five digits, and the series below is long.
    let freedom = freedom.clamp(1.0, 100_000.0);
    let (below, above) = (freedom.floor(), freedom.ceil());
    let t = t_of_whole(below as usize, confidence);
    if below == above {
        return t;
    }
    let share = (1.0 / below - 1.0 / freedom) / (1.0 / below - 1.0 / above);
    t + (t_of_whole(above as usize, confidence) - t) * share
}

fn t_of_whole(freedom: usize, confidence: f64) -> f64 {
    let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if probability_within(middle, freedom) < confidence { low = middle } else { high = middle }
    }
    (freedom as f64).sqrt() * ((low + high) / 2.0).tan()
}

/// P(|T| ≤ t) with θ = arctan(t ÷ √ν): Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
fn probability_within(angle: f64, freedom: usize) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    let square = cosine * cosine;
    let odd = freedom % 2 == 1;
    // Odd: cos θ + 2/3 cos³ θ + 2·4/(3·5) cos⁵ θ + …; even: 1 + 1/2 cos² θ + 1·3/(2·4) cos⁴ θ + …; to cos^(ν−2) θ.
    let mut sum = 0.0;
    let mut term = if odd { cosine } else { 1.0 };
    let mut power = usize::from(odd);
    while power + 2 <= freedom && term > f64::MIN_POSITIVE {
        sum += term;
        term *= square * (power + 1) as f64 / (power + 2) as f64;
        power += 2;
    }
    if odd { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Degrees of freedom, then t for 90, 95, 99 and 99.9 % two-sided: NIST/SEMATECH e-Handbook of Statistical Methods,
    /// 1.3.6.7.2.
    const TABLE: &[(usize, [f64; 4])] = &[
        (1, [6.314, 12.706, 63.657, 636.619]),
        (2, [2.920, 4.303, 9.925, 31.599]),
        (3, [2.353, 3.182, 5.841, 12.924]),
        (4, [2.132, 2.776, 4.604, 8.610]),
        (5, [2.015, 2.571, 4.032, 6.869]),
        (9, [1.833, 2.262, 3.250, 4.781]),
        (10, [1.812, 2.228, 3.169, 4.587]),
        (29, [1.699, 2.045, 2.756, 3.659]),
        (30, [1.697, 2.042, 2.750, 3.646]),
        (100, [1.660, 1.984, 2.626, 3.390]),
        (100_000, [1.645, 1.960, 2.576, 3.291]),
        (10_000_000, [1.645, 1.960, 2.576, 3.291]),
    ];

    #[test]
    fn a_share_of_all_runs_is_not_certain() {
        // Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81 of 263: 0.2553 to 0.3662; 0 of 20: up to 0.1611.
        let of = |ones: usize, n: usize| {
            let samples: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i < ones))).collect();
            proportion(&samples, 0.95).unwrap()
        };
        assert!((of(81, 263).half_width.unwrap() - (0.3662 - 81.0 / 263.0)).abs() < 1e-3);
        assert!((of(0, 20).half_width.unwrap() - 0.1611).abs() < 1e-3);
        assert!((of(20, 20).half_width.unwrap() - 0.1611).abs() < 1e-3);
        assert_eq!(proportion(&[0.5, 1.0], 0.95), None);
        assert_eq!(proportion(&[1.0], 0.95), None);
    }

    #[test]
    fn quantiles_are_those_of_the_table() {
        for (freedom, row) in TABLE {
            for (confidence, expected) in [0.90, 0.95, 0.99, 0.999].into_iter().zip(row) {
                let t = t_quantile(*freedom as f64, confidence);
                assert!((t - expected).abs() < 0.000_6, "{freedom} {confidence}: {t}, not {expected}");
            }
        }
        // Closed form for one degree: tan(π c ÷ 2).
        assert!((t_quantile(1.0, 0.99) - (std::f64::consts::FRAC_PI_2 * 0.99).tan()).abs() < 1e-9);
    }

    #[test]
    fn between_whole_degrees_quantiles_are_those_of_the_series() {
        // Abramowitz and Stegun, 26.7.5.
        let series = |v: f64| {
            let z = 1.959_963_985_f64;
            z + (z.powi(3) + z) / (4.0 * v)
                + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v.powi(2))
                + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * v.powi(3))
        };
        for (freedom, within) in [(7.5, 5e-4), (19.3, 2e-5), (60.7, 1e-6), (1234.5, 1e-6)] {
            let (t, expected) = (t_quantile(freedom, 0.95), series(freedom));
            assert!((t / expected - 1.0).abs() < within, "{freedom}: {t}, not {expected}");
        }
    }

    #[test]
    fn summaries() {
        assert_eq!(Summary::of(&[]), None);
        let summary = Summary::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((summary.n, summary.mean, summary.deviation), (3, 2.0, 1.0));
        assert_eq!(Summary::of(&[5.0]).unwrap().precision(), None);
    }

    #[test]
    fn estimates_by_hand() {
        let e = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.99).unwrap();
        assert_eq!((e.n, e.mean, e.variance, e.minimum, e.maximum), (5, 3.0, 2.5, 1.0, 5.0));
        // 4.604 · √(2.5 ÷ 5)
        assert!((e.half_width.unwrap() - 3.2555).abs() < 1e-3, "{e:?}");
        let same = estimate(&[0.1; 7], 0.99).unwrap();
        assert_eq!((same.mean, same.half_width), (0.1, Some(0.0)));
        assert_eq!(estimate(&[4.0], 0.99).unwrap().half_width, None);
        assert_eq!(estimate(&[], 0.99), None);
    }

    #[test]
    fn medians() {
        for (samples, expected) in [
            (&[][..], None),
            (&[4.0], Some(4.0)),
            (&[9.0, 1.0], Some(5.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[9.0, 1.0, 2.0, 4.0], Some(3.0)),
        ] {
            assert_eq!(median(samples), expected, "{samples:?}");
        }
    }

    #[test]
    fn sums_of_binary_fractions_do_not_differ() {
        let sums: Vec<f64> = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]].iter().map(|all| all.iter().sum()).collect();
        assert_ne!(sums[0], sums[1]);
        assert!(!estimate(&sums, 0.99).unwrap().is_uncertain());
        assert!(!estimate(&[1.0], 0.99).unwrap().is_uncertain());
        assert!(estimate(&[1.0, 1.000_01], 0.99).unwrap().is_uncertain());
    }

    #[test]
    fn the_samples_needed_are_the_least_that_do() {
        for limit in [0.1, 0.5, 2.0, 10.0] {
            let n = samples_needed(2.5, limit, 0.99, 2, 100_000);
            assert!(half_width(2.5, n, 0.99) <= limit, "{limit}: {n}");
            assert!(n == 2 || half_width(2.5, n - 1, 0.99) > limit, "{limit}: {n}");
        }
        assert_eq!(samples_needed(2.5, 0.0, 0.99, 5, 40), 40);
    }
}
