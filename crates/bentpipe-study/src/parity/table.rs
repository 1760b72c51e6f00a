//! The table of a campaign, for a terminal and for the docs.

use super::campaign::Row;
use super::verdict::Verdict;
use crate::statistics::Summary;

/// The number of scenarios by verdict, informative ones not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Within the tolerance.
    pub agree: usize,
    /// Outside of it, or undecided.
    pub other: usize,
    /// Without samples of both sides.
    pub missing: usize,
}

/// Counts the verdicts.
#[must_use]
pub fn totals(rows: &[Row]) -> Totals {
    let counted = rows.iter().filter(|row| !row.informative);
    let count = |verdict| counted.clone().filter(|row| row.verdict == verdict).count();
    let other = count(Verdict::Differs) + count(Verdict::Undecided);
    Totals { agree: count(Verdict::Agrees), other, missing: count(Verdict::Missing) }
}

const HEADINGS: [&str; 8] =
    ["scenario", "measurement", "live", "virtual", "live ÷ virtual", "95 % interval", "ρ", "verdict"];

/// For a terminal.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let mut lines: Vec<Vec<String>> = vec![HEADINGS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(cells));
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for line in &lines {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        out.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out.push_str(&problems(rows).concat());
    out.push_str(&summary(rows));
    out
}

/// For the docs: a Markdown table, with when and where the live samples were taken below.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut out = format!("| {} |\n|{}\n", HEADINGS.join(" | "), "---|".repeat(HEADINGS.len()));
    for row in rows {
        out.push_str(&format!("| {} |\n", cells(row).join(" | ")));
    }
    let problems = problems(rows);
    if !problems.is_empty() {
        out.push('\n');
        out.extend(problems.iter().map(|problem| format!("- {problem}")));
    }
    let mut places: Vec<(String, String, String)> = rows
        .iter()
        .filter(|row| row.live.is_some())
        .map(|row| {
            let day = row.live_created.split('T').next().unwrap_or_default().to_owned();
            (day, row.kernel.clone(), row.machine.clone())
        })
        .collect();
    places.sort();
    places.dedup();
    for (day, kernel, machine) in places {
        out.push_str(&format!("\nLive samples: {day}, {kernel}, {machine}.\n"));
    }
    out.push_str(&format!("\n{}", summary(rows)));
    out
}

/// `37 agree, 1 does not.`
fn summary(rows: &[Row]) -> String {
    let Totals { agree, other, missing } = totals(rows);
    let missing = if missing > 0 { format!(", {missing} without both sides") } else { String::new() };
    format!("{agree} agree, {other} do not{missing}.\n")
}

fn cells(row: &Row) -> Vec<String> {
    let dash = || "–".to_owned();
    let shown = |summary: Option<Summary>| summary.map_or_else(dash, |s| side(&s, &row.unit));
    vec![
        row.name.clone(),
        row.measurement.replace('_', " "),
        shown(row.live),
        shown(row.simulated),
        row.ratio.map_or_else(dash, |ratio| format!("{ratio:.4}")),
        row.interval.map_or_else(dash, |(low, high)| format!("{low:.3} … {high:.3}")),
        row.correlation.map_or_else(dash, |correlation| format!("{correlation:.2}")),
        verdict(row),
    ]
}

fn verdict(row: &Row) -> String {
    let word = match row.verdict {
        Verdict::Agrees => "agrees",
        Verdict::Differs => "differs",
        Verdict::Undecided => "undecided",
        Verdict::Missing => "–",
    };
    if row.informative { format!("{word} (not counted)") } else { word.to_owned() }
}

/// `1234.5 kbit/s ± 0.1 % (n = 3)`: the mean, the samples' standard deviation and their number.
fn side(summary: &Summary, unit: &str) -> String {
    let mean = value(summary.mean, unit);
    format!("{mean} ± {:.1} % (n = {})", summary.spread() * 100.0, summary.n)
}

fn value(value: f64, unit: &str) -> String {
    match unit {
        "bit/s" => format!("{:.1} kbit/s", value / 1e3),
        "s" if value < 1.0 => format!("{:.2} ms", value * 1e3),
        "s" => format!("{value:.3} s"),
        other => format!("{value:.3} {other}"),
    }
}

/// The problems, a line each.
fn problems(rows: &[Row]) -> Vec<String> {
    rows.iter().filter_map(|row| Some(format!("{}: {}\n", row.name, row.problem.as_ref()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::index::Kind;

    fn row(verdict: Verdict, informative: bool) -> Row {
        Row {
            name: "t1".to_owned(),
            title: "T1".to_owned(),
            measurement: "completion_time".to_owned(),
            unit: "s".to_owned(),
            kind: Kind::Random,
            informative,
            live: Summary::of(&[2.0, 2.2]),
            simulated: Summary::of(&[2.1]),
            ratio: Some(1.0),
            interval: Some((0.95, 1.05)),
            correlation: Some(0.9),
            verdict,
            problem: None,
            note: None,
            live_created: "2026-11-21T10:00:00Z".to_owned(),
            kernel: "Linux 6.18".to_owned(),
            machine: "AMD EPYC, 2 cores".to_owned(),
        }
    }

    #[test]
    fn the_tables_say_the_same() {
        let rows = [row(Verdict::Agrees, false), row(Verdict::Undecided, false), row(Verdict::Differs, true)];
        assert_eq!(totals(&rows), Totals { agree: 1, other: 1, missing: 0 });
        for table in [text(&rows), markdown(&rows)] {
            for part in
                ["2.100 s ± 6.7 % (n = 2)", "0.950 … 1.050", "undecided", "differs (not counted)", "1 agree, 1 do not."]
            {
                assert!(table.contains(part), "{part}: {table}");
            }
        }
        assert!(markdown(&rows).contains("2026-11-21, Linux 6.18, AMD EPYC, 2 cores"));
    }
}
