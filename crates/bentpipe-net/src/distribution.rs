//! Quantities drawn from distributions: think times, sizes, delays.

use crate::seed::{Stream, unit};
use crate::time::Duration;
use crate::units::DataSize;
use rand_distr::{Distribution as _, Exp, Gamma, LogNormal, Normal};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A distribution of numbers, in the base unit of whatever they count.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Evenly between two numbers.
    Uniform {
        /// The least.
        least: f64,
        /// The bound above.
        most: f64,
    },
    /// Exponential: gaps between events that do not depend on each other.
    Exponential(Exp<f64>),
    /// Normal; a draw below zero counts as zero, which moves the mean where the deviation is large.
    Normal(Normal<f64>),
    /// Gamma: never below zero, with a long tail.
    Gamma(Gamma<f64>),
    /// Log-normal: never below zero, with a heavier tail, as sizes of files have.
    Lognormal(LogNormal<f64>),
}

impl Distribution {
    /// The exponential distribution of this mean; `None` unless it is above zero.
    #[must_use]
    pub fn exponential(mean: f64) -> Option<Distribution> {
        Exp::new(1.0 / mean).ok().filter(|_| mean > 0.0).map(Distribution::Exponential)
    }

    /// The normal distribution of this mean and standard deviation; `None` if the numbers make none.
    #[must_use]
    pub fn normal(mean: f64, deviation: f64) -> Option<Distribution> {
        Normal::new(mean, deviation).ok().map(Distribution::Normal)
    }

    /// The gamma distribution of this mean and standard deviation; `None` unless both are above zero.
    #[must_use]
    pub fn gamma(mean: f64, deviation: f64) -> Option<Distribution> {
        let scale = deviation * deviation / mean;
        Gamma::new(mean / scale, scale).ok().map(Distribution::Gamma)
    }

    /// The log-normal distribution of this mean and standard deviation (its own, not those of its logarithm); `None` unless both
    /// are above zero.
    #[must_use]
    pub fn lognormal(mean: f64, deviation: f64) -> Option<Distribution> {
        let is_possible = mean > 0.0 && deviation > 0.0;
        let variance = (1.0 + (deviation / mean).powi(2)).ln();
        let made = is_possible.then(|| LogNormal::new(mean.ln() - variance / 2.0, variance.sqrt()).ok());
        made.flatten().map(Distribution::Lognormal)
    }

    /// A draw, never below zero.
    pub fn sample(&self, random: &mut Stream) -> f64 {
        let drawn = match self {
            Distribution::Uniform { least, most } => least + unit(random) * (most - least),
            Distribution::Exponential(exponential) => exponential.sample(random),
            Distribution::Normal(normal) => normal.sample(random),
            Distribution::Gamma(gamma) => gamma.sample(random),
            Distribution::Lognormal(lognormal) => lognormal.sample(random),
        };
        drawn.max(0.0)
    }
}

/// A quantity that can be drawn.
pub trait Amount: Copy + PartialEq + fmt::Debug + fmt::Display {
    /// In its base unit.
    fn to_base(self) -> f64;
    /// From its base unit; rounded down.
    fn from_base(base: f64) -> Self;
}

impl Amount for Duration {
    /// In seconds.
    fn to_base(self) -> f64 {
        self.as_secs_f64()
    }

    fn from_base(base: f64) -> Duration {
        Duration { ns: (base * 1e9) as u64 }
    }
}

impl Amount for DataSize {
    /// In bytes.
    fn to_base(self) -> f64 {
        self.bytes as f64
    }

    fn from_base(base: f64) -> DataSize {
        DataSize { bytes: base as u64 }
    }
}

/// A quantity that is the same whenever it is used, or drawn for each use. In a file: `"30 s"`, or a table:
/// `{ distribution = "exponential", mean = "30 s" }`, with `deviation` for `"normal"`, `"gamma"` and `"lognormal"`, and `least` and
/// `most` for `"uniform"`; elsewhere these two limit the draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drawn<T> {
    /// Always this.
    Fixed(T),
    /// Drawn, and limited to these bounds.
    Random {
        /// Where from, in the quantity's base unit.
        distribution: Distribution,
        /// No draw counts as less.
        least: Option<T>,
        /// No draw counts as more.
        most: Option<T>,
    },
}

impl<T: Amount> Drawn<T> {
    /// The value for one use; `random` is drawn from only if it is random.
    pub fn draw(&self, random: impl FnOnce() -> Stream) -> T {
        match self {
            Drawn::Fixed(value) => *value,
            Drawn::Random { distribution, least, most } => {
                let drawn = distribution.sample(&mut random());
                let above = least.map_or(drawn, |least| drawn.max(least.to_base()));
                T::from_base(most.map_or(above, |most| above.min(most.to_base())))
            }
        }
    }

    /// The value, if it is always the same.
    #[must_use]
    pub fn fixed(&self) -> Option<T> {
        match self {
            Drawn::Fixed(value) => Some(*value),
            Drawn::Random { .. } => None,
        }
    }

    /// The least value that can be drawn.
    #[must_use]
    pub fn least(&self) -> T {
        match self {
            Drawn::Fixed(value) => *value,
            Drawn::Random { least, .. } => least.unwrap_or_else(|| T::from_base(0.0)),
        }
    }

    /// The largest value that can be drawn; `None`: there is no bound.
    #[must_use]
    pub fn most(&self) -> Option<T> {
        match self {
            Drawn::Fixed(value) => Some(*value),
            Drawn::Random { most, .. } => *most,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawnText<T> {
    distribution: Kind,
    mean: Option<T>,
    deviation: Option<T>,
    least: Option<T>,
    most: Option<T>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Uniform,
    Exponential,
    Normal,
    Gamma,
    Lognormal,
}

impl<T: Amount> DrawnText<T> {
    fn resolve(self) -> Result<Drawn<T>, String> {
        if let (Some(least), Some(most)) = (self.least, self.most)
            && least.to_base() > most.to_base()
        {
            return Err(format!("least is {least}, above most, {most}"));
        }
        let [mean, deviation, least, most] =
            [self.mean, self.deviation, self.least, self.most].map(|value| value.map(Amount::to_base));
        let (made, keys) = match (self.distribution, mean, deviation) {
            (Kind::Uniform, None, None) => {
                let both = least.zip(most).map(|(least, most)| Distribution::Uniform { least, most });
                (both, "least and most")
            }
            (Kind::Exponential, Some(mean), None) => (Distribution::exponential(mean), "a mean above 0"),
            (Kind::Normal, Some(mean), Some(deviation)) => {
                (Distribution::normal(mean, deviation), "a mean and a deviation")
            }
            (Kind::Gamma, Some(mean), Some(deviation)) => {
                (Distribution::gamma(mean, deviation), "a mean and a deviation above 0")
            }
            (Kind::Lognormal, Some(mean), Some(deviation)) => {
                (Distribution::lognormal(mean, deviation), "a mean and a deviation above 0")
            }
            (Kind::Uniform, ..) => (None, "least and most"),
            (Kind::Exponential, ..) => (None, "a mean, and least or most if draws are to be limited"),
            _ => (None, "a mean and a deviation, and least or most if draws are to be limited"),
        };
        let distribution = made.ok_or_else(|| format!("this distribution needs other keys; allowed: {keys}"))?;
        Ok(Drawn::Random { distribution, least: self.least, most: self.most })
    }
}

impl<'de, T: Amount + serde::de::DeserializeOwned> Deserialize<'de> for Drawn<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            table @ toml::Value::Table(_) => {
                let text: DrawnText<T> = table.try_into().map_err(first_line::<D::Error>)?;
                text.resolve().map_err(D::Error::custom)
            }
            value => value.try_into().map(Drawn::Fixed).map_err(first_line::<D::Error>),
        }
    }
}

/// The same error for the caller, without its place: the caller knows a better one.
fn first_line<E: serde::de::Error>(error: toml::de::Error) -> E {
    E::custom(error.message().lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use std::collections::BTreeMap;

    fn mean_and_deviation(distribution: Distribution) -> (f64, f64) {
        let mut random = Seed(3).stream("test");
        let all: Vec<f64> = (0..200_000).map(|_| distribution.sample(&mut random)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn each_distribution_has_its_moments() {
        for (distribution, mean, deviation) in [
            (Distribution::Uniform { least: 10.0, most: 40.0 }, 25.0, 30.0 / 12f64.sqrt()),
            (Distribution::exponential(30.0).unwrap(), 30.0, 30.0),
            (Distribution::normal(50.0, 10.0).unwrap(), 50.0, 10.0),
            (Distribution::gamma(16.0, 10.5).unwrap(), 16.0, 10.5),
            (Distribution::lognormal(50.0, 40.0).unwrap(), 50.0, 40.0),
        ] {
            let found = mean_and_deviation(distribution);
            let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.02;
            assert!(close(found.0, mean) && close(found.1, deviation), "{distribution:?}: {found:?}");
        }
        assert!(Distribution::gamma(0.0, 1.0).is_none() && Distribution::gamma(1.0, 0.0).is_none());
        assert!(Distribution::exponential(0.0).is_none() && Distribution::lognormal(1.0, 0.0).is_none());
    }

    fn read<T: Amount + serde::de::DeserializeOwned>(value: &str) -> Result<Drawn<T>, String> {
        let table = toml::from_str(&format!("value = {value}")).unwrap();
        let read = crate::problem::read::<BTreeMap<String, Drawn<T>>>(table);
        read.map(|values| values["value"]).map_err(|problem| format!("{}: {}", problem.key, problem.message))
    }

    #[test]
    fn a_value_or_a_table_is_read() {
        assert_eq!(read::<Duration>("'30 s'"), Ok(Drawn::Fixed(Duration::from_secs(30))));
        let drawn =
            read::<DataSize>("{ distribution = 'lognormal', mean = '50 kB', deviation = '80 kB', most = '1 MB' }");
        assert_eq!(drawn.unwrap().most(), Some(DataSize { bytes: 1_000_000 }));
        for (wrong, expected) in [
            ("'30'", "30"),
            ("{ distribution = 'uniform', least = '5 s' }", "least and most"),
            ("{ distribution = 'uniform', least = '5 s', most = '1 s' }", "above most"),
            ("{ distribution = 'exponential' }", "a mean"),
            ("{ distribution = 'gamma', mean = '5 s', deviation = '0 s' }", "above 0"),
            ("{ distribution = 'pareto', mean = '5 s' }", "pareto"),
            ("{ distribution = 'exponential', mean = '5 s', size = 3 }", "size"),
        ] {
            let problem = read::<Duration>(wrong).unwrap_err();
            assert!(problem.contains(expected) && problem.starts_with("value"), "{wrong}: {problem}");
        }
    }

    #[test]
    fn draws_are_limited_and_follow_from_their_stream() {
        let drawn =
            read::<Duration>("{ distribution = 'exponential', mean = '30 s', least = '10 s', most = '60 s' }").unwrap();
        let draw = |n: u64| drawn.draw(|| Seed(n).stream("pause"));
        assert!((0..1000).all(|n| draw(n) >= Duration::from_secs(10) && draw(n) <= Duration::from_secs(60)));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
