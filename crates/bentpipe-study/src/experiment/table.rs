//! The table of experiments: for a terminal, for the docs, as JSON.

use super::judge::{Row, Verdict};
use super::load::Experiment;
use serde::Serialize;
use std::fmt::Write as _;

/// The runs and their results.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The experiment's folder.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The paper's short name.
    pub paper: String,
    /// The paper.
    pub citation: String,
    /// Which of its figures and tables.
    pub figure: String,
    /// `virtual` or `live`.
    pub mode: &'static str,
    /// True if chance has no part in it.
    pub certain: bool,
    /// First seed.
    pub seed: u64,
    /// Digest of what it was made from: scenario and published values.
    pub inputs: String,
    /// A line for each published statement.
    pub rows: Vec<Row>,
}

/// The number of rows by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Within.
    pub within: usize,
    /// Trend holds.
    pub trend: usize,
    /// Outside.
    pub outside: usize,
    /// Cannot be compared because noise is larger than what is to be distinguished.
    pub noisy: usize,
    /// Cannot be compared though there were no noise: the paper does not say enough, or nothing here measures it.
    pub cannot: usize,
}

impl Table {
    /// Names an experiment's rows.
    #[must_use]
    pub fn of(experiment: &Experiment, mode: &'static str, rows: Vec<Row>) -> Table {
        let published = &experiment.published;
        Table {
            id: experiment.id.clone(),
            title: experiment.scenario.title.clone(),
            paper: published.paper.clone(),
            citation: published.citation.clone(),
            figure: published.figure.clone(),
            mode,
            certain: experiment.certain(),
            seed: experiment.scenario.seed,
            inputs: digest(&[&experiment.scenario.text, &experiment.published_text]),
            rows,
        }
    }

    /// Counts the verdicts.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let count = |verdict| self.rows.iter().filter(|row| row.verdict == verdict).count();
        Totals {
            within: count(Verdict::Within),
            trend: count(Verdict::TrendHolds),
            outside: count(Verdict::Outside),
            noisy: self.rows.iter().filter(|row| row.is_noisy()).count(),
            cannot: count(Verdict::CannotBeCompared) - self.rows.iter().filter(|row| row.is_noisy()).count(),
        }
    }
}

/// FNV-1a, 64 bits: tells whether a text is the one that it was, nothing more.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn digest(texts: &[&str]) -> String {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn headings(table: &Table) -> Vec<String> {
    let mut headings: Vec<String> =
        ["result", "ours is", "published", "ours", "ratio", "verdict"].map(str::to_owned).to_vec();
    headings.extend(table.rows.first().into_iter().flat_map(|row| row.remedies.iter().map(|(name, _)| name.clone())));
    headings
}

fn cells(row: &Row) -> Vec<String> {
    let ratio = row.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    let verdict = match (row.verdict, row.why.as_str()) {
        (Verdict::CannotBeCompared, why) if !why.is_empty() => format!("{}: {why}", row.verdict.text()),
        _ => row.verdict.text().to_owned(),
    };
    let mut cells =
        vec![row.id.clone(), row.parameters.clone(), row.published.clone(), row.ours.clone(), ratio, verdict];
    cells.extend(row.remedies.iter().map(|(_, text)| text.clone()));
    cells
}

/// For a terminal.
#[must_use]
pub fn text(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        let _ = writeln!(out, "{}: {}\n{}, {} ({})\n", table.id, table.title, table.paper, table.figure, table.mode);
        let mut lines = vec![headings(table)];
        lines.extend(table.rows.iter().map(cells));
        let widths: Vec<usize> = (0..lines[0].len())
            .map(|column| {
                lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            // Series and reasons may be long: they push their own line only.
            .map(|width| width.min(CELL_MAX))
            .collect();
        for line in &lines {
            let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let _ = writeln!(out, "  {}", padded.collect::<Vec<_>>().join("  ").trim_end());
        }
        out.push('\n');
    }
    let _ = writeln!(out, "{}", summary(tables));
    out.replace('\u{a0}', " ")
}

/// Columns are this wide at most.
const CELL_MAX: usize = 60;

/// `12 within, 8 trends hold, 3 outside; 5 cannot be compared: 2 for noise, 3 for what a paper does not say or nothing
/// here measures.`
#[must_use]
pub fn summary(tables: &[Table]) -> String {
    let sum = |what: fn(Totals) -> usize| tables.iter().map(|table| what(table.totals())).sum::<usize>();
    format!(
        "{} within, {} trends hold, {} outside; {} cannot be compared: {} for noise (more runs would tell), {} for what a \
         paper does not say or nothing here measures.",
        sum(|t| t.within),
        sum(|t| t.trend),
        sum(|t| t.outside),
        sum(|t| t.noisy + t.cannot),
        sum(|t| t.noisy),
        sum(|t| t.cannot)
    )
}

/// One experiment's section of docs/results.md.
#[must_use]
pub fn section(table: &Table) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "### {}\n\n<!-- {} {} -->\n", table.title, table.id, table.inputs);
    let how = match (table.mode, table.certain) {
        ("live", _) => "live, one run of each point".to_owned(),
        (_, true) => format!("virtual time, seed {}, nothing is left to chance", table.seed),
        (_, false) => format!("virtual time, seed {}, means with 95 % intervals (runs)", table.seed),
    };
    let _ = writeln!(
        out,
        "[`experiments/{0}`](../experiments/{0}/README.md), {1}, {2}; {how}.\n",
        table.id, table.paper, table.figure
    );
    let head = headings(table);
    let _ = writeln!(out, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for row in &table.rows {
        let cells: Vec<String> = cells(row).iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
    out
}

/// All sections; of all experiments in virtual time, docs/results.md.
#[must_use]
pub fn markdown(tables: &[Table]) -> String {
    let (made, how) = match tables.iter().any(|table| table.mode == "live") {
        true => ("", "live"),
        false => (MADE, "in virtual time"),
    };
    let head = MARKDOWN_HEAD.replace("{how}", how);
    let mut out = format!("# Results\n\n{made}{head}\n{}\n\n", summary(tables));
    let mut papers: Vec<&str> = tables.iter().map(|table| table.paper.as_str()).collect();
    papers.dedup();
    for paper in papers {
        let of_paper: Vec<&Table> = tables.iter().filter(|table| table.paper == paper).collect();
        let citation = of_paper.first().map_or("", |table| table.citation.as_str());
        let _ = writeln!(out, "## {paper}\n\n{citation}\n");
        out.extend(of_paper.into_iter().map(section));
    }
    format!("{}\n", out.trim_end())
}

const MADE: &str = "\
<!-- Made by `bentpipe experiments run all --markdown`; a test rejects a stale one. Not to be edited. -->

";
const MARKDOWN_HEAD: &str = "\
What the five papers published and what the same cases measure here, {how}. [experiments.md](reference/experiments.md) states the
rules behind the verdicts; each experiment's README says what was assumed, and what we believe where ours differs. The last columns
show what the authors could have had: the same case with today's stack at both ends, and with a gateway pair on the link (a dash: not
measured). For a ratio (÷) they show a ratio: both of its parts are with the remedy. *(÷ published)* behind it: the remedy makes no
difference between the two parts, so it is held against the divisor as published.
";
