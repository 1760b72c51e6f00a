//! A sweep's summary for a terminal: one block for each workload and measurement, one line for each point.

use super::summary::{Summary, SummaryRow};
use bentpipe_lab::report::quantity;

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
    let mut blocks: Vec<Vec<&SummaryRow>> = Vec::new();
    for row in &summary.rows {
        let same = |other: &SummaryRow| {
            (&other.case, &other.workload, other.copy, &other.measurement)
                == (&row.case, &row.workload, row.copy, &row.measurement)
        };
        match blocks.iter_mut().find(|block| same(block[0])) {
            Some(block) => block.push(row),
            None => blocks.push(vec![row]),
        }
    }
    let mut lines = 0;
    let mut left_out = 0;
    for block in blocks {
        if lines > 0 && lines + block.len() > LINES_MAX {
            left_out += 1;
            continue;
        }
        let text = render_block(summary, &block, cases);
        lines += text.lines().count();
        out.push_str(&text);
    }
    if left_out > 0 {
        out.push_str(&format!("\n{left_out} more measurements are in summary.csv.\n"));
    }
    out.replace('\u{a0}', " ")
}

/// An interval below this share of its mean is what sums of binary fractions leave, not a difference between runs.
const SAME: f64 = 1e-9;

fn render_block(summary: &Summary, rows: &[&SummaryRow], cases: bool) -> String {
    let first = rows[0];
    let place = if cases { format!("{}, {}", first.case, first.label()) } else { first.label() };
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
    let mut head: Vec<String> = summary.vary.clone();
    head.extend([format!("± ({} %)", summary.confidence)]);
    head.insert(summary.vary.len(), "mean".to_owned());
    head.extend(["least", "most", "runs", "failed"].map(str::to_owned));
    let mut table = vec![head];
    for row in rows {
        let number = |value: Option<f64>| value.map_or("–".to_owned(), write);
        let mut cells: Vec<String> = row.values.iter().map(|value| value.text.clone()).collect();
        let same = row.half_width.zip(row.mean).is_some_and(|(half, mean)| half <= mean.abs() * SAME);
        let spread = if same { "the same in every run".to_owned() } else { number(row.half_width) };
        cells.extend([number(row.mean), spread, number(row.minimum), number(row.maximum)]);
        cells.extend([row.n.to_string(), (row.failed + row.errors).to_string()]);
        table.push(cells);
    }
    let varied = summary.vary.len();
    let widths: Vec<usize> =
        (0..table[0].len()).map(|i| table.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let mut out = format!("\n{place}: {name}\n");
    for row in &table {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = if i < varied { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") };
            line.push_str(&cell);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
