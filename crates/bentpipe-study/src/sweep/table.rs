//! A sweep's summary for a terminal: one block for each workload and measurement, one line for each point.

use super::summary::{Summary, SummaryRow};
use crate::statistics::differ;
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
    let mut blocks: IndexMap<_, Vec<&SummaryRow>> = IndexMap::new();
    for row in &summary.rows {
        // Where no key varies, the measurements of one subject share a block.
        let measurement = (!summary.vary.is_empty()).then_some(&row.measurement);
        blocks.entry((&row.case, &row.subject, measurement)).or_default().push(row);
    }
    let mut lines = 0;
    let mut left_out = 0;
    for block in blocks.values() {
        if lines > 0 && lines + block.len() > LINES_MAX {
            left_out += 1;
            continue;
        }
        let text = render_block(summary, block, cases);
        lines += text.lines().count();
        out.push_str(&text);
    }
    if left_out > 0 {
        out.push_str(&format!("\n{left_out} more measurements are in summary.csv.\n"));
    }
    out.replace('\u{a0}', " ")
}

fn render_block(summary: &Summary, rows: &[&SummaryRow], cases: bool) -> String {
    let first = rows[0];
    let place = if cases { format!("{}, {}", first.case, first.label()) } else { first.label() };
    if summary.vary.is_empty() && first.unit.is_some() {
        return render_subject(summary, rows, &place);
    }
    let Some(unit) = &first.unit else {
        let failed: usize = rows.iter().map(|row| row.failed).sum();
        return format!("\n{place}: measured nothing; failed {failed} times\n");
    };
    let write = |value: f64| quantity::measurement(unit, value);
    let name = quantity::name(&first.measurement);
    // What no setting moves needs no table.
    let known: Vec<&&SummaryRow> = rows.iter().filter(|row| row.n > 0).collect();
    let constant = known
        .first()
        .and_then(|row| row.mean)
        .filter(|mean| known.len() > 1 && known.iter().all(|row| [row.minimum, row.maximum] == [Some(*mean); 2]));
    if let Some(mean) = constant {
        let failed: usize = rows.iter().map(|row| row.failed + row.errors).sum();
        let failed = if failed > 0 { format!(" that did not fail ({failed} did)") } else { String::new() };
        return format!("\n{place}: {name}: {} in every run{failed}\n", write(mean));
    }
    let mut table = vec![summary.vary.iter().cloned().chain(head(summary)).collect()];
    for row in rows {
        let values = row.values.iter().map(|value| value.text.clone());
        table.push(values.chain(numbers(row, &write)).collect());
    }
    format!("\n{place}: {name}\n{}", aligned(&table, summary.vary.len()))
}

/// The measurements of one subject, a line each.
fn render_subject(summary: &Summary, rows: &[&SummaryRow], place: &str) -> String {
    let mut table: Vec<Vec<String>> = vec![std::iter::once(String::new()).chain(head(summary)).collect()];
    for row in rows {
        let Some(unit) = &row.unit else { continue };
        let name = quantity::name(&row.measurement);
        let write = |value: f64| quantity::measurement(unit, value);
        table.push(std::iter::once(name).chain(numbers(row, &write)).collect());
    }
    format!("\n{place}\n{}", aligned(&table, 1))
}

fn head(summary: &Summary) -> [String; 7] {
    let spread = format!("± ({} %)", summary.confidence);
    ["median", "mean", &spread, "least", "most", "runs", "failed"].map(str::to_owned)
}

/// The cells under [`head`].
fn numbers(row: &SummaryRow, write: &dyn Fn(f64) -> String) -> [String; 7] {
    let number = |value: Option<f64>| value.map_or("–".to_owned(), write);
    let same = row.half_width.zip(row.mean).is_some_and(|(half, mean)| !differ(half, mean));
    let spread = if same { "the same in every run".to_owned() } else { number(row.half_width) };
    let [median, mean, least, most] = [row.median, row.mean, row.minimum, row.maximum].map(number);
    [median, mean, spread, least, most, row.n.to_string(), (row.failed + row.errors).to_string()]
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
