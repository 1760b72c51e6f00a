//! A sweep's summary for a terminal: one block for each workload and measurement, one line for each point. Copies of a workload
//! are one line together.

use super::summary::{Summary, SummaryRow};
use crate::statistics::{differ, median};
use bentpipe_lab::report::quantity;
use indexmap::IndexMap;

/// Lines after which a reader is better served by summary.csv.
const LINES_MAX: usize = 400;

impl Summary {
    /// The summary as a table for a terminal.
    pub fn to_text(&self) -> String {
        render(self)
    }
}

fn render(summary: &Summary) -> String {
    let mut out = format!("{}\n", summary.title);
    let cases = summary.rows.iter().any(|row| row.case != summary.rows[0].case);
    let mut blocks: IndexMap<_, Block<'_>> = IndexMap::new();
    for row in &summary.rows {
        // Where no key varies, the measurements of one subject share a block; copies of a workload always do.
        let measurement = (!summary.vary.is_empty()).then_some(&row.measurement);
        let block = blocks.entry((&row.case, row.subject.all_copies(), measurement)).or_default();
        block.lines.entry((row.point, &row.measurement)).or_default().push(row);
    }
    let mut lines = 0;
    let mut left_out = 0;
    for ((case, subject, _), block) in &blocks {
        if lines > 0 && lines + block.lines.len() > LINES_MAX {
            left_out += 1;
            continue;
        }
        let place = match (cases, block.copies()) {
            (false, 1) => block.first().label(),
            (true, 1) => format!("{case}, {}", block.first().label()),
            (false, copies) => format!("{}, {copies} copies", subject.label()),
            (true, copies) => format!("{case}, {}, {copies} copies", subject.label()),
        };
        let text = render_block(summary, block, &place);
        lines += text.lines().count();
        out.push_str(&text);
    }
    if left_out > 0 {
        out.push_str(&format!("\n{left_out} more measurements are in summary.csv.\n"));
    }
    out.replace('\u{a0}', " ")
}

/// Rows of one subject that stand together.
#[derive(Default)]
struct Block<'a> {
    /// By point and measurement: the row, or that of each copy.
    lines: IndexMap<(u32, &'a String), Vec<&'a SummaryRow>>,
}

impl<'a> Block<'a> {
    fn rows(&self) -> impl Iterator<Item = &'a SummaryRow> + '_ {
        self.lines.values().flatten().copied()
    }

    fn first(&self) -> &'a SummaryRow {
        self.lines[0][0]
    }

    /// Copies of the workload; 1: it is the only one, or no workload.
    fn copies(&self) -> usize {
        self.lines.values().map(Vec::len).max().unwrap_or(1)
    }
}

fn render_block(summary: &Summary, block: &Block<'_>, place: &str) -> String {
    let first = block.first();
    let head = if block.copies() > 1 { HEAD_OF_COPIES.map(str::to_owned) } else { head(summary) };
    if summary.vary.is_empty() && first.unit.is_some() {
        let mut table: Vec<Vec<String>> = vec![std::iter::once(String::new()).chain(head).collect()];
        for ((_, measurement), rows) in &block.lines {
            table.extend(numbers(rows).map(|numbers| {
                let name = quantity::name(measurement);
                std::iter::once(name).chain(numbers).collect()
            }));
        }
        return format!("\n{place}\n{}", aligned(&table, 1));
    }
    let Some(unit) = block.rows().find_map(|row| row.unit.as_ref()) else {
        let failed: usize = block.rows().map(|row| row.failed).sum();
        return format!("\n{place}: measured nothing; failed {failed} times\n");
    };
    let name = quantity::name(&first.measurement);
    // What no setting moves needs no table.
    let known: Vec<&SummaryRow> = block.rows().filter(|row| row.n > 0).collect();
    let constant = known
        .first()
        .and_then(|row| row.mean)
        .filter(|mean| known.len() > 1 && known.iter().all(|row| [row.minimum, row.maximum] == [Some(*mean); 2]));
    if let Some(mean) = constant {
        let failed: usize = block.rows().map(|row| row.failed + row.errors).sum();
        let failed = if failed > 0 { format!(" that did not fail ({failed} did)") } else { String::new() };
        return format!("\n{place}: {name}: {} in every run{failed}\n", quantity::measurement(unit, mean));
    }
    let mut table = vec![summary.vary.iter().cloned().chain(head).collect()];
    for rows in block.lines.values() {
        let values = rows[0].values.iter().map(|value| value.text.clone());
        let nothing = || std::array::from_fn(|_| "–".to_owned());
        table.push(values.chain(numbers(rows).unwrap_or_else(nothing)).collect());
    }
    format!("\n{place}: {name}\n{}", aligned(&table, summary.vary.len()))
}

fn head(summary: &Summary) -> [String; 7] {
    let spread = format!("± ({} %)", summary.confidence);
    ["median", "mean", &spread, "least", "most", "runs", "failed"].map(str::to_owned)
}

/// Of the copies' means the median, and what 5 % and 95 % of them do not exceed; of all runs the least and the most.
const HEAD_OF_COPIES: [&str; 7] = ["median", "P5", "P95", "least", "most", "runs", "failed"];

/// The cells under the head; `None`: nothing was measured.
fn numbers(rows: &[&SummaryRow]) -> Option<[String; 7]> {
    let unit = rows.iter().find_map(|row| row.unit.as_ref())?;
    let write = |value: f64| quantity::measurement(unit, value);
    let number = |value: Option<f64>| value.map_or("–".to_owned(), write);
    let [row] = rows else {
        let mut means: Vec<f64> = rows.iter().filter_map(|row| row.mean).collect();
        means.sort_by(f64::total_cmp);
        // Nearest rank.
        let rank = |percent: usize| means.get((means.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        let least = rows.iter().filter_map(|row| row.minimum).reduce(f64::min);
        let most = rows.iter().filter_map(|row| row.maximum).reduce(f64::max);
        let runs = rows.iter().map(|row| row.n).max().unwrap_or(0);
        // A run that could not be done is missing of each copy, but is one run.
        let failed = rows.iter().map(|row| row.failed).sum::<usize>() + rows[0].errors;
        let [median, low, high, least, most] = [median(&means), rank(5), rank(95), least, most].map(number);
        return Some([median, low, high, least, most, runs.to_string(), failed.to_string()]);
    };
    let same = row.half_width.zip(row.mean).is_some_and(|(half, mean)| !differ(half, mean));
    let spread = if same { "the same in every run".to_owned() } else { number(row.half_width) };
    let [median, mean, least, most] = [row.median, row.mean, row.minimum, row.maximum].map(number);
    Some([median, mean, spread, least, most, row.n.to_string(), (row.failed + row.errors).to_string()])
}

/// Lines of a table; the first `left` columns are aligned to the left.
fn aligned(table: &[Vec<String>], left: usize) -> String {
    let columns = table.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|i| table.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in table {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = if i < left { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") };
            line.push_str(&cell);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::subject::Subject;
    use super::super::summary::VariedValue;
    use super::*;
    use bentpipe_lab::record::Unit;

    fn row(point: u32, copy: u32) -> SummaryRow {
        SummaryRow {
            point,
            values: vec![VariedValue { text: format!("{point} Mbit/s"), value: None, unit: None }],
            case: "x".into(),
            subject: Subject::Workload { workload: "page".into(), copy: Some(copy) },
            measurement: "completion_time".into(),
            unit: Some(Unit::Seconds),
            n: 5,
            mean: Some(f64::from(copy)),
            median: Some(f64::from(copy)),
            half_width: Some(0.5),
            minimum: Some(f64::from(copy) - 0.5),
            maximum: Some(f64::from(copy) + 0.5),
            failed: usize::from(copy == 7),
            errors: 2,
        }
    }

    fn summary(vary: &[&str], rows: Vec<SummaryRow>) -> Summary {
        Summary {
            format: String::new(),
            version: 2,
            title: "A cabin".into(),
            complete: true,
            runs: (10, 10),
            errors: 0,
            confidence: 95.0,
            vary: vary.iter().map(|key| (*key).to_owned()).collect(),
            rows,
        }
    }

    #[test]
    fn copies_are_one_line_for_each_point() {
        let rows = (1..=2).flat_map(|point| (1..=99).map(move |copy| row(point, copy))).collect();
        let expected = "A cabin\n\npage, 99 copies: Completion time\n  \
                        links.sat.rate  median      P5     P95   least    most  runs  failed\n  \
                        1 Mbit/s        50.0 s  5.00 s  95.0 s  500 ms  99.5 s     5       3\n  \
                        2 Mbit/s        50.0 s  5.00 s  95.0 s  500 ms  99.5 s     5       3\n";
        assert_eq!(summary(&["links.sat.rate"], rows).to_text(), expected);
        let rows = (1..=99).map(|copy| row(1, copy)).collect();
        let expected = "A cabin\n\npage, 99 copies\n                   \
                        median      P5     P95   least    most  runs  failed\n  \
                        Completion time  50.0 s  5.00 s  95.0 s  500 ms  99.5 s     5       3\n";
        assert_eq!(summary(&[], rows).to_text(), expected);
    }
}
