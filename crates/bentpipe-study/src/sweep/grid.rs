//! The argument of `--vary`: a key and its values.
//!
//! ```text
//! KEY=a,b,c                   a list; each value as --set takes it
//! KEY=a..b log N              N values from a to b, evenly spaced by ratio
//! KEY=a..b lin N              N values from a to b, evenly spaced by difference
//! hosts.*.tcp.KEY=…           every site; likewise links.*, workloads.* and services.*
//! ```

use bentpipe_lab::scenario::Scenario;
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, DataSize, Percent};
use std::collections::BTreeSet;

/// Values of one range.
const RANGE_STEPS_MAX: usize = 10_000;
/// The syntax of a value list.
const ALLOWED: &str =
    "allowed: KEY=a,b,c or KEY=a..b log N or KEY=a..b lin N, such as 'links.sat.noise.ratio=1e-9..1e-3 log 13'";

/// One `--vary`: a key and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    /// As it was written.
    pub text: String,
    /// The key as it was written, a `*` included.
    pub key: String,
    /// The values as `--set` takes them.
    pub values: Vec<String>,
}

/// A number with its base unit (`s`, `B`, `bit/s`, or `1` for plain numbers and shares).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Quantity {
    /// In the base unit.
    pub value: f64,
    /// The base unit.
    pub unit: &'static str,
}

/// A mistake in a `--vary`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--vary '{vary}': {message}")]
pub struct GridError {
    /// The option as it was written.
    pub vary: String,
    /// The mistake and the allowed values.
    pub message: String,
}

impl Vary {
    /// Reads one `KEY=VALUES`.
    pub fn parse(text: &str) -> Result<Vary, GridError> {
        let fail = |message: String| GridError { vary: text.to_owned(), message };
        let (key, values) = text.split_once('=').ok_or_else(|| fail(format!("is not KEY=VALUES; {ALLOWED}")))?;
        let (key, values) = (key.trim(), values.trim());
        if key.is_empty() || key.split('.').any(str::is_empty) {
            return Err(fail("has an empty key; allowed: names joined by dots, such as links.sat.rate".to_owned()));
        }
        for (i, part) in key.split('.').enumerate() {
            if part.contains('*') && (part != "*" || i != 1) {
                return Err(fail(format!("{part:?} in the key: {STAR_ALLOWED}")));
            }
        }
        if key == "seed" {
            return Err(fail("the seed is not varied; --seeds N runs every point with N seeds".to_owned()));
        }
        let values = read_values(values).map_err(fail)?;
        for (i, value) in values.iter().enumerate() {
            if values[..i].contains(value) {
                return Err(fail(format!("gives {value} twice")));
            }
        }
        Ok(Vary { text: text.to_owned(), key: key.to_owned(), values })
    }

    /// The keys of the scenario that it sets: its own, or one for each name that `*` stands for.
    pub fn keys(&self, scenario: &Scenario) -> Result<Vec<String>, GridError> {
        let fail = |message: String| GridError { vary: self.text.clone(), message };
        let Some((first, rest)) = self.key.split_once(".*") else { return Ok(vec![self.key.clone()]) };
        if rest.is_empty() {
            return Err(fail(format!("names no key after the *: {STAR_ALLOWED}")));
        }
        let links = || scenario.cases.iter().flat_map(|case| &case.links);
        let names: BTreeSet<String> = match first {
            "links" => links().map(|link| link.name.clone()).collect(),
            "hosts" => links().flat_map(|link| link.sites.clone()).collect(),
            // By number: a workload's name may hold a dot.
            "workloads" => numbers(scenario.cases.iter().map(|case| case.workloads.len()).max()),
            "services" => numbers(scenario.cases.iter().map(|case| case.services.len()).max()),
            _ => return Err(fail(STAR_ALLOWED.to_owned())),
        };
        if names.is_empty() {
            return Err(fail(format!("the scenario has no {first} that * could stand for")));
        }
        Ok(names.iter().map(|name| format!("{first}.{name}{rest}")).collect())
    }

    /// The values as numbers of one unit, if they all are.
    pub fn quantities(&self) -> Option<Vec<Quantity>> {
        let all: Option<Vec<Quantity>> = self.values.iter().map(|value| quantity(value)).collect();
        all.filter(|all| all.iter().all(|one| one.unit == all[0].unit))
    }
}

const STAR_ALLOWED: &str =
    "* may stand for the name after links, hosts, workloads or services, such as hosts.*.tcp.sack";

fn numbers(count: Option<usize>) -> BTreeSet<String> {
    (0..count.unwrap_or(0)).map(|i| i.to_string()).collect()
}

/// A text as a number with a unit, if it is one: `1e-6`, `"8 KiB"`, `250 ms`, `1 %`.
pub fn quantity(text: &str) -> Option<Quantity> {
    let text = text.trim();
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let found = |value: f64, unit| value.is_finite().then_some(Quantity { value, unit });
    if let Ok(value) = text.replace('_', "").parse::<f64>() {
        return found(value, "1");
    }
    if let Ok(time) = text.parse::<Duration>() {
        return found(time.ns as f64 / 1e9, "s");
    }
    if let Ok(size) = text.parse::<DataSize>() {
        return found(size.bytes as f64, "B");
    }
    if let Ok(rate) = text.parse::<BitRate>() {
        return found(rate.bps as f64, "bit/s");
    }
    text.parse::<Percent>().ok().and_then(|share| found(share.fraction(), "1"))
}

fn read_values(text: &str) -> Result<Vec<String>, String> {
    let spaced = |text: &str| {
        let mut words = text.split_whitespace().rev();
        let count = words.next().is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit()));
        count && words.next().is_some_and(|word| matches!(word, "log" | "lin"))
    };
    // "../links/mine.toml" is a value, no range.
    if let Some((from, rest)) = text.split_once("..")
        && (End::parse(from).is_ok() || spaced(rest))
    {
        return read_range(from, rest);
    }
    let values = split_list(text)?;
    if values.iter().any(String::is_empty) {
        return Err(format!("has an empty value; {ALLOWED}"));
    }
    Ok(values)
}

/// Splits at commas outside of quotes, brackets and braces.
fn split_list(text: &str) -> Result<Vec<String>, String> {
    let mut values = vec![String::new()];
    let mut quote = None;
    let mut depth = 0_i32;
    for c in text.chars() {
        match (c, quote) {
            (',', None) if depth == 0 => {
                values.push(String::new());
                continue;
            }
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth -= 1,
            _ => {}
        }
        if let Some(value) = values.last_mut() {
            value.push(c);
        }
    }
    if quote.is_some() || depth != 0 {
        return Err("leaves a quote, bracket or brace open".to_owned());
    }
    Ok(values.iter().map(|value| value.trim().to_owned()).collect())
}

/// One end of a range.
struct End {
    text: String,
    number: f64,
    unit: String,
}

impl End {
    fn parse(text: &str) -> Result<End, String> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || "._+-eE".contains(c))).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        match number.trim().replace('_', "").parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(End { text: text.to_owned(), number, unit: unit.trim().to_owned() }),
            _ => Err(format!("{text:?} is no number with a unit; {ALLOWED}")),
        }
    }

    /// An end without a unit has the other's.
    fn take_unit(&mut self, other: &str) {
        if self.unit.is_empty() && !other.is_empty() {
            other.clone_into(&mut self.unit);
            self.text = format!("{} {other}", self.text);
        }
    }
}

/// The base unit of `unit` and how many of it one is.
fn scale(unit: &str) -> Result<(&'static str, f64), String> {
    match (unit, quantity(&format!("1 {unit}"))) {
        ("", _) => Ok(("1", 1.0)),
        ("%", _) => Ok(("1", 0.01)),
        (_, Some(one)) => Ok((one.unit, one.value)),
        _ => Err(format!("there is no unit {unit:?}; allowed: those of scenario files, such as ms, KiB, Mbit/s")),
    }
}

fn read_range(from: &str, rest: &str) -> Result<Vec<String>, String> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [to @ .., spacing, count] = words.as_slice() else { return Err(no_spacing()) };
    let by_ratio = match *spacing {
        "log" => true,
        "lin" => false,
        _ => return Err(no_spacing()),
    };
    let count: usize = count.parse().map_err(|_| no_spacing())?;
    if !(2..=RANGE_STEPS_MAX).contains(&count) {
        return Err(format!("{count} values; allowed: 2 to {RANGE_STEPS_MAX}"));
    }
    let (mut from, mut to) = (End::parse(from)?, End::parse(&to.join(" "))?);
    // "10..500 ms": the unit is that of both.
    from.take_unit(&to.unit);
    to.take_unit(&from.unit);
    let ((base, from_scale), (other, to_scale)) = (scale(&from.unit)?, scale(&to.unit)?);
    if base != other || (from.unit == "%") != (to.unit == "%") {
        return Err(format!("{} and {} do not measure the same", from.text, to.text));
    }
    let (first, last) = (from.number, to.number * to_scale / from_scale);
    if first == last {
        return Err(format!("starts and ends at {}", from.text));
    }
    if by_ratio && !(first > 0.0 && last > 0.0) {
        return Err("log needs both ends above 0; allowed: lin, or other ends".to_owned());
    }
    let between = |i: usize| {
        let part = i as f64 / (count - 1) as f64;
        if by_ratio { first * (last / first).powf(part) } else { first + (last - first) * part }
    };
    let mut values = vec![from.text.clone()];
    values.extend((1..count - 1).map(|i| with_unit(between(i), &from.unit)));
    values.push(to.text);
    Ok(values)
}

fn no_spacing() -> String {
    format!("a range ends in log N or lin N (how the N values are spaced); {ALLOWED}")
}

/// Six significant digits: what is printed is what runs.
fn with_unit(value: f64, unit: &str) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    let plain = rounded == 0.0 || (1e-3..1e9).contains(&rounded.abs());
    let number = if plain { rounded.to_string() } else { format!("{rounded:e}") };
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        Vary::parse(text).unwrap().values
    }

    #[test]
    fn reads_lists_and_ranges() {
        for (text, expected) in [
            ("a.b=1,2, 3", "1|2|3"),
            ("a.b=8KiB,64 KiB", "8KiB|64 KiB"),
            ("a.b=one", "one"),
            ("a.kind=../x.toml,../y.toml", "../x.toml|../y.toml"),
            (r#"a.noise={ profile = "wander", dwell = "1 s" },1e-6"#, r#"{ profile = "wander", dwell = "1 s" }|1e-6"#),
            (r#"a.b="x, y",[1, 2]"#, r#""x, y"|[1, 2]"#),
            ("a.b=1e-9..1e-6 log 4", "1e-9|1e-8|1e-7|1e-6"),
            ("a.b=1e-9..1e-8 log 3", "1e-9|3.16228e-9|1e-8"),
            ("a.b=10 ms..500 ms lin 5", "10 ms|132.5 ms|255 ms|377.5 ms|500 ms"),
            ("a.b=10..500ms lin 2", "10 ms|500ms"),
            ("a.b=10 ms..1 s lin 3", "10 ms|505 ms|1 s"),
            ("a.b=1..10 lin 4", "1|4|7|10"),
            ("a.b=10..1 lin 4", "10|7|4|1"),
            ("a.b=-1..1 lin 3", "-1|0|1"),
            ("a.b=1 KiB..1 MiB log 3", "1 KiB|32 KiB|1 MiB"),
            ("a.b=1 %..3 % lin 3", "1 %|2 %|3 %"),
            ("a.b=64 kbit/s..2 Mbit/s lin 2", "64 kbit/s|2 Mbit/s"),
        ] {
            assert_eq!(values(text).join("|"), expected, "{text}");
        }
        assert_eq!(values("links.sat.noise.ratio=1e-9..1e-3 log 13").len(), 13);
        assert_eq!(values("links.sat.noise.ratio=1e-9..1e-3 log 13")[6], "1e-6");
    }

    #[test]
    fn each_mistake_says_what_is_allowed() {
        for (text, part) in [
            ("nothing", "KEY=VALUES"),
            ("=1", "empty key"),
            ("a..b=1", "empty key"),
            ("a.b=", "empty value"),
            ("a.b=1,,2", "empty value"),
            ("a.b=1,1", "1 twice"),
            ("a.b=1..2", "log N or lin N"),
            ("a.b=1..2 log", "log N or lin N"),
            ("a.b=1..2 cubic 3", "log N or lin N"),
            ("a.b=1..2 lin 1", "2 to 10000"),
            ("a.b=1..2 lin 99999", "2 to 10000"),
            ("a.b=0..2 log 3", "above 0"),
            ("a.b=2..2 lin 3", "starts and ends"),
            ("a.b=1 s..2 B lin 3", "do not measure the same"),
            ("a.b=1 s..2 lin x", "log N or lin N"),
            ("a.b=1 parsec..2 parsec lin 3", "no unit"),
            ("a.b=x..2 lin 3", "no number"),
            ("a.b=[1,2", "open"),
            ("*.b=1", "* may stand"),
            ("hosts.h*.b=1", "* may stand"),
            ("seed=1,2", "--seeds"),
        ] {
            let error = Vary::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.starts_with("--vary '"), "{text}: {error}");
        }
    }

    #[test]
    fn a_star_stands_for_every_name() {
        let scenario = Scenario::parse("x.toml", crate::sweep::tests::SCENARIO, &[]).unwrap();
        let keys = |text: &str| Vary::parse(text).unwrap().keys(&scenario).map(|keys| keys.join(" "));
        assert_eq!(keys("hosts.*.tcp.sack=true,false").unwrap(), "hosts.hub.tcp.sack hosts.site.tcp.sack");
        assert_eq!(keys("links.*.rate=1 Mbit/s").unwrap(), "links.sat.rate");
        assert_eq!(keys("workloads.*.bytes=1 kB").unwrap(), "workloads.0.bytes");
        assert_eq!(keys("links.sat.rate=1 Mbit/s").unwrap(), "links.sat.rate");
        assert!(keys("cases.*.name=x").unwrap_err().to_string().contains("* may stand"));
        assert!(keys("services.*.port=1").unwrap_err().to_string().contains("no services"));
        assert!(keys("links.*=1").unwrap_err().to_string().contains("no key"));
    }

    #[test]
    fn values_have_base_units() {
        for (text, value, unit) in [
            ("64 KiB", 65_536.0, "B"),
            ("\"8 KiB\"", 8192.0, "B"),
            ("250 ms", 0.25, "s"),
            ("2 Mbit/s", 2e6, "bit/s"),
            ("1 %", 0.01, "1"),
            ("1e-6", 1e-6, "1"),
            ("1_000", 1000.0, "1"),
        ] {
            assert_eq!(quantity(text), Some(Quantity { value, unit }), "{text}");
        }
        assert_eq!(quantity("true"), None);
        assert_eq!(quantity("nan"), None);
        assert_eq!(Vary::parse("a.b=1 s,1 B").unwrap().quantities(), None);
    }
}
