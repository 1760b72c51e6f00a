//! The report as one HTML file: a [`Page`].

use super::charts;
use super::layout::{self, Cell, Section, Table};
use super::sections;
use super::summary::{Row, Summary, Tone, summarise};
use super::{gateways, quantity};
use crate::page::{Chart, Page};
use crate::record::{Mode, Record};
use bentpipe_net::text::printable;
use serde::Serialize;

/// Everything the template shows.
#[derive(Serialize)]
struct View {
    title: String,
    facts: Vec<(&'static str, String)>,
    verdict: &'static str,
    verdict_class: &'static str,
    verdict_sentence: &'static str,
    reasons: Vec<String>,
    paragraph: String,
    summary: Option<Table>,
    gateways: Option<Table>,
    compared: Option<Compared>,
    cases: Vec<CaseView>,
    scenario_file: String,
    scenario: String,
    run_again: Vec<String>,
    provenance: Vec<(&'static str, String)>,
}

#[derive(Serialize)]
struct Compared {
    table: Option<Table>,
    charts: Vec<Chart>,
    /// The number of charts left out; empty if none were.
    note: String,
}

#[derive(Serialize)]
struct CaseView {
    id: String,
    name: String,
    seconds: String,
    valid: bool,
    reasons: Vec<String>,
    sections: Vec<Section>,
}

pub fn render(record: &Record) -> String {
    let mut view = view(record);
    charts::fit(view.charts_mut().collect());
    Page { template: TEMPLATE, charts: view.charts().collect(), filters: &[] }.render(&view)
}

impl View {
    /// In the order in which they stand on the page.
    fn charts(&self) -> impl Iterator<Item = &Chart> {
        let compared = self.compared.iter().flat_map(|compared| &compared.charts);
        let sections = self.cases.iter().flat_map(|case| &case.sections);
        compared.chain(sections.flat_map(|section| &section.charts))
    }

    fn charts_mut(&mut self) -> impl Iterator<Item = &mut Chart> {
        let compared = self.compared.iter_mut().flat_map(|compared| &mut compared.charts);
        let sections = self.cases.iter_mut().flat_map(|case| &mut case.sections);
        compared.chain(sections.flat_map(|section| &mut section.charts))
    }
}

fn view(record: &Record) -> View {
    let summary = summarise(record);
    let several = summary.several_cases;
    let cases = record.cases.iter().enumerate().map(|(i, case)| {
        let id = format!("case-{}", i + 1);
        CaseView {
            name: if case.name.trim().is_empty() { format!("Case {}", i + 1) } else { case.name.clone() },
            seconds: quantity::seconds(case.seconds),
            valid: case.validity.valid,
            reasons: case.validity.reasons.clone(),
            sections: sections::of_case(case, &id, record.mode == Mode::Virtual),
            id,
        }
    });
    let (charts, left_out) = charts::compared(record);
    let note = match left_out {
        0 => String::new(),
        _ => {
            format!("Charts of the first {} series; {left_out} more are in the cases and in the record.", charts.len())
        }
    };
    let compared = Compared { table: sections::compared(record), charts, note };
    View {
        title: summary.title.clone(),
        facts: facts(record),
        verdict: summary.verdict.text(),
        verdict_class: layout::class(summary.verdict.tone()),
        verdict_sentence: summary.verdict.sentence(),
        reasons: summary.reasons.clone(),
        paragraph: summary.paragraph.clone(),
        summary: summary_table(&summary),
        gateways: gateways::compared_table(&gateways::compared(record)),
        compared: (several && (compared.table.is_some() || !compared.charts.is_empty())).then_some(compared),
        cases: cases.collect(),
        scenario_file: record.scenario_file.clone(),
        scenario: printable(&record.scenario),
        run_again: vec![run_again(record)],
        provenance: provenance(record),
    }
}

fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let mode = match record.mode {
        Mode::Live => "live: real packets, wall clock",
        Mode::Virtual => "virtual: simulated packets, virtual time",
    };
    let facts = [
        ("Run", record.created.as_deref().map(moment).unwrap_or_default()),
        ("Mode", mode.to_string()),
        ("Seed", record.seed.to_string()),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// RFC 3339 in UTC, easier on the eye; anything else as it stands.
fn moment(created: &str) -> String {
    match created.strip_suffix('Z').and_then(|utc| utc.split_once('T')) {
        Some((day, time)) => format!("{day} {time} UTC"),
        None => created.to_string(),
    }
}

fn provenance(record: &Record) -> Vec<(&'static str, String)> {
    // A virtual run gives the same results on any machine.
    let machine = record.machine.as_ref().map(|machine| {
        let cores = quantity::counted(u64::from(machine.cores), "core");
        let user = if machine.privileged { "as root" } else { "in an own user namespace" };
        format!("{}, {cores}, run {user}", machine.kernel)
    });
    let facts = [
        ("Machine", machine.unwrap_or_default()),
        ("Bentpipe", record.bentpipe.clone()),
        ("Record", format!("{} version {}", record.format, record.version)),
        ("Seed", record.seed.to_string()),
        ("Overrides", record.overrides.join(", ")),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

fn run_again(record: &Record) -> String {
    let mut command = "bentpipe run".to_string();
    if record.mode == Mode::Virtual {
        command.push_str(" --virtual");
    }
    if record.cases.iter().any(|case| case.compared.is_some()) {
        command.push_str(" --compare gateway");
    }
    if !record.left_out.is_empty() {
        command.push_str(" --skip-live");
    }
    let file = if record.scenario_file.is_empty() { "FILE" } else { &record.scenario_file };
    command.push_str(&format!(" {}", quoted(file)));
    let cases = record.chosen_cases.iter().map(|case| ("--case", case));
    for (option, value) in cases.chain(record.overrides.iter().map(|set| ("--set", set))) {
        command.push_str(&format!(" {option} {}", quoted(value)));
    }
    command
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn summary_table(summary: &Summary) -> Option<Table> {
    let mut head = vec![Cell::text("Workload")];
    if summary.several_cases {
        head.push(Cell::text("Case"));
    }
    let shown = Shown {
        case: summary.several_cases,
        p95: summary.rows.iter().any(|row| !row.p95.is_empty()),
        loss: summary.rows.iter().any(|row| !row.loss.is_empty()),
    };
    head.extend(["Who", "Objective"].map(Cell::text));
    head.push(if shown.p95 { Cell::num("Result").sub("median of several runs") } else { Cell::num("Result") });
    head.extend(shown.p95.then(|| Cell::num("P95").sub("95 % of the runs reach it or better")));
    head.push(Cell::num("Goodput"));
    head.extend(shown.loss.then(|| Cell::num("Loss")));
    head.push(Cell::text("Verdict"));
    let rows: Vec<Vec<Cell>> = summary.rows.iter().map(|row| summary_row(row, shown)).collect();
    let caption = "Each workload, its objective and what it got".to_string();
    (!rows.is_empty()).then(|| Table { caption, head, rows, cards: true, sorts: true, ..Table::default() })
}

/// Columns of the summary that stand there only where they say something.
#[derive(Clone, Copy)]
struct Shown {
    case: bool,
    p95: bool,
    loss: bool,
}

fn summary_row(row: &Row, shown: Shown) -> Vec<Cell> {
    let or_dash = |text: &str| if text.is_empty() { "–".to_string() } else { text.to_string() };
    let (verdict, tone) = match row.case_valid {
        true => (row.verdict.clone(), row.tone),
        false => (format!("{} (case INVALID)", row.verdict), Tone::Bad),
    };
    let mut cells = vec![Cell { sub: row.app.clone(), ..Cell::text(&row.workload) }];
    if shown.case {
        cells.push(Cell::text(&row.case));
    }
    let number = |text: &str, value: Option<f64>| Cell::num(or_dash(text)).order(value.unwrap_or(f64::NAN));
    let [result, p95, goodput] = row.values;
    cells.extend([
        Cell { sub: row.direction.clone(), ..Cell::text(or_dash(&row.who)) },
        Cell::text(or_dash(&row.objective)),
        number(&row.result, result).sub(&row.result_name),
    ]);
    cells.extend(shown.p95.then(|| number(&row.p95, p95)));
    cells.push(number(&row.goodput, goodput));
    cells.extend(shown.loss.then(|| Cell::num(or_dash(&row.loss))));
    cells.push(Cell::tone(verdict, tone));
    cells
}

const TEMPLATE: &str = include_str!("../../assets/report.html");
