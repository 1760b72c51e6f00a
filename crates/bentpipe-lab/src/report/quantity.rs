//! Numbers as text: three significant digits and the unit in which they are short, with a no-break space between.

use crate::record::Unit;

/// A value in the record's base unit, written for people.
pub fn measurement(unit: &Unit, value: f64) -> String {
    match unit {
        Unit::BitsPerSecond => rate(value),
        Unit::Seconds => seconds(value),
        Unit::Bytes => bytes(value),
        Unit::Share => share(value),
        Unit::Number => number(value),
        Unit::Segments | Unit::Other(_) => format!("{}\u{a0}{}", number(value), unit.symbol()),
    }
}

/// `1.54 Mbit/s`.
pub fn rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")])
}

/// `612 ms`, `26.1 s`, `12 min 05 s`.
pub fn seconds(seconds: f64) -> String {
    // Up to ten minutes a plain number of seconds compares best with an objective.
    if !(600.0..1e9).contains(&seconds) {
        return scaled(seconds, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]);
    }
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{hours}\u{a0}h\u{a0}{minutes:02}\u{a0}min\u{a0}{rest:02}\u{a0}s")
    } else {
        format!("{minutes}\u{a0}min\u{a0}{rest:02}\u{a0}s")
    }
}

/// `1.25 MB`, whatever the number, so that sizes can be compared; a setting is written as files have it
/// ([`DataSize`](bentpipe_net::units::DataSize)).
pub fn bytes(bytes: f64) -> String {
    if bytes.abs() < 1000.0 && bytes.fract() == 0.0 {
        return format!("{bytes:.0}\u{a0}B");
    }
    scaled(bytes, &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
}

/// `1.5 %`; a ratio too small for that as `2.0e-6`.
pub fn share(ratio: f64) -> String {
    if ratio != 0.0 && ratio.abs() < 1e-4 && ratio.is_finite() {
        return format!("{ratio:.1e}");
    }
    format!("{}\u{a0}%", number(ratio * 100.0))
}

/// A plain number: whole ones with thousands set apart, others with three significant digits.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        let digits = count(value.abs() as u64);
        return if value < 0.0 { format!("−{digits}") } else { digits };
    }
    digits(value)
}

/// `12,345`.
pub fn count(value: u64) -> String {
    let plain = value.to_string();
    if plain.len() < 5 {
        return plain;
    }
    let mut out = String::new();
    for (i, digit) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `2,001 packets`, `1 packet`.
pub fn counted(value: u64, one: &str) -> String {
    if value == 1 { format!("1 {one}") } else { format!("{} {one}s", count(value)) }
}

/// A measurement's or series' name for people: `rtt_median` → `RTT median`.
pub fn name(machine: &str) -> String {
    let words = machine.split('_').filter(|word| !word.is_empty());
    let spelt = words.map(|word| if ACRONYMS.contains(&word) { word.to_ascii_uppercase() } else { word.to_string() });
    let mut text = spelt.collect::<Vec<_>>().join(" ");
    if let Some(first) = text.get(..1) {
        let upper = first.to_ascii_uppercase();
        text.replace_range(..1, &upper);
    }
    text
}

/// The unit in which `largest` is short: its name and what to multiply base values by. For a chart's axis.
pub fn axis_unit(unit: &Unit, largest: f64) -> (String, f64) {
    let pick = |steps: &[(f64, &str)]| {
        let (scale, unit) =
            steps.iter().find(|(scale, _)| largest >= *scale).or(steps.last()).copied().unwrap_or((1.0, ""));
        (unit.to_string(), 1.0 / scale)
    };
    match unit {
        Unit::BitsPerSecond => pick(&[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")]),
        // Round-trip times of one to a few seconds stay in ms, where they compare with the figures that people know.
        Unit::Seconds if (1e-3..10.0).contains(&largest) => ("ms".to_string(), 1e3),
        Unit::Seconds => pick(&[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")]),
        Unit::Bytes => pick(&[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")]),
        Unit::Number | Unit::Share => (String::new(), 1.0),
        Unit::Segments | Unit::Other(_) => (unit.symbol().to_owned(), 1.0),
    }
}

fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let base = steps.iter().find(|(scale, _)| *scale == 1.0).map_or("", |(_, unit)| unit);
    if value == 0.0 || !value.is_finite() {
        return format!("{}\u{a0}{base}", digits(value));
    }
    let rounded = round_to_digits(value, 3);
    let (scale, unit) = steps
        .iter()
        .find(|(scale, _)| rounded.abs() >= *scale * 0.999_999)
        .or(steps.last())
        .copied()
        .unwrap_or((1.0, base));
    format!("{}\u{a0}{unit}", digits(rounded / scale))
}

/// Three significant digits.
fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".to_string();
    }
    let text = match value.abs() {
        0.0 => "0".to_string(),
        v if !(1e-3..1e15).contains(&v) => format!("{value:.2e}"),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    text.replace('-', "−").replace("e−", "e-")
}

/// `value` rounded to `digits` significant digits.
pub fn round_to_digits(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value)
}

const ACRONYMS: &[&str] = &["rtt", "tcp", "dns", "mos", "mss"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_the_unit_that_fits() {
        let cases: &[(&Unit, f64, &str)] = &[
            (&Unit::BitsPerSecond, 0.0, "0 bit/s"),
            (&Unit::BitsPerSecond, 160_700.0, "161 kbit/s"),
            (&Unit::BitsPerSecond, 1_540_000.0, "1.54 Mbit/s"),
            (&Unit::BitsPerSecond, 999_990.0, "1.00 Mbit/s"),
            (&Unit::Seconds, 26.13, "26.1 s"),
            (&Unit::Seconds, 725.0, "12 min 05 s"),
            (&Unit::Seconds, 7384.0, "2 h 03 min 04 s"),
            (&Unit::Seconds, 0.6123, "612 ms"),
            (&Unit::Seconds, 0.000_042, "42.0 µs"),
            (&Unit::Bytes, 524_288.0, "524 kB"),
            (&Unit::Bytes, 524_289.0, "524 kB"),
            (&Unit::Bytes, 12.0, "12 B"),
            (&Unit::Share, 0.015, "1.50 %"),
            (&Unit::Share, 0.000_002, "2.0e-6"),
            (&Unit::Number, 12_345.0, "12,345"),
            (&Unit::Number, 3.456, "3.46"),
            (&Unit::Segments, 10.0, "10 segments"),
            (&Unit::BitsPerSecond, f64::NAN, "not a number bit/s"),
            (&Unit::BitsPerSecond, f64::INFINITY, "not a number bit/s"),
        ];
        for (unit, value, expected) in cases {
            assert_eq!(measurement(unit, *value).replace('\u{a0}', " "), *expected, "{value} {}", unit.symbol());
        }
    }

    #[test]
    fn names_read_as_words() {
        assert_eq!(name("completion_time"), "Completion time");
        assert_eq!(name("rtt_median"), "RTT median");
        assert_eq!(name("µ"), "µ");
        assert_eq!(name(""), "");
    }

    #[test]
    fn an_axis_takes_the_unit_of_its_largest_value() {
        assert_eq!(axis_unit(&Unit::BitsPerSecond, 2.0e6), ("Mbit/s".to_string(), 1e-6));
        assert_eq!(axis_unit(&Unit::Seconds, 0.7), ("ms".to_string(), 1e3));
        assert_eq!(axis_unit(&Unit::Seconds, 45.0), ("s".to_string(), 1.0));
        assert_eq!(axis_unit(&Unit::Number, 45.0), (String::new(), 1.0));
    }
}
