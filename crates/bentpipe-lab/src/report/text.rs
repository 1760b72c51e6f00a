//! The report as text for a terminal.

use super::gateways::{self, Compared};
use super::sections::overhead;
use super::summary::{Row, Summary, Tone, summarise};
use super::{bills, quantity};
use crate::record::{CaseRecord, DirectionRecord, LinkRecord, Record, WorkloadRecord};
use bentpipe_net::text::printable;
use indexmap::IndexMap;

pub fn render(record: &Record, width: usize, colour: bool) -> String {
    let summary = summarise(record);
    let mut page = Page { out: String::new(), width: width.max(WIDTH_MIN), colour };
    page.wrapped(&summary.title, "", "", Style::Bold);
    page.verdict(&summary);
    page.blank();
    page.table(&summary);
    page.compared(&gateways::compared(record));
    page.wrapped(&summary.paragraph, "", "", Style::Plain);
    for case in &record.cases {
        page.blank();
        page.case(case);
    }
    // It kept numbers and units together while lines were broken.
    page.out.replace('\u{a0}', " ")
}

struct Page {
    out: String,
    width: usize,
    colour: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Bold,
    Tone(Tone),
}

/// A column of the summary table.
struct Column {
    head: &'static str,
    right: bool,
    /// Least width it may be cut to; its own width where it may not.
    least: usize,
    /// The first to go where the table does not fit at all; 0 stays.
    goes: u8,
    cell: fn(&Row) -> String,
}

impl Page {
    fn blank(&mut self) {
        self.out.push('\n');
    }

    fn styled(&mut self, text: &str, style: Style) {
        let code = match style {
            Style::Bold => "1",
            Style::Tone(Tone::Good) => "32",
            Style::Tone(Tone::Bad) => "1;31",
            Style::Tone(Tone::Warn) => "33",
            Style::Plain | Style::Tone(Tone::Plain) => "",
        };
        if self.colour && !code.is_empty() {
            self.out.push_str(&format!("\u{1b}[{code}m{text}\u{1b}[0m"));
        } else {
            self.out.push_str(text);
        }
    }

    /// Text broken at spaces; `first` before its first line, `next` before the others.
    fn wrapped(&mut self, text: &str, first: &str, next: &str, style: Style) {
        for (i, line) in
            wrap(&one_line(text), self.width.saturating_sub(columns(next).max(columns(first)))).iter().enumerate()
        {
            self.out.push_str(if i == 0 { first } else { next });
            self.styled(line, style);
            self.out.push('\n');
        }
    }

    fn verdict(&mut self, summary: &Summary) {
        let tone = Style::Tone(summary.verdict.tone());
        self.wrapped(&format!("{}. {}", summary.verdict.text(), summary.verdict.sentence()), "", "  ", tone);
        for reason in &summary.reasons {
            self.wrapped(reason, "  - ", "    ", tone);
        }
    }

    fn table(&mut self, summary: &Summary) {
        if summary.rows.is_empty() {
            return;
        }
        let mut shown: Vec<&Column> = COLUMNS.iter().filter(|c| c.head != "CASE" || summary.several_cases).collect();
        shown.retain(|c| summary.rows.iter().any(|row| !(c.cell)(row).is_empty()));
        // Rather fewer columns than cut ones, rather cut ones than without goodput and objective.
        let mut widths = fit(&shown, &summary.rows, self.width, false);
        for goes in (1..=GOES_MAX).rev() {
            widths = widths.or_else(|| fit(&shown, &summary.rows, self.width, goes < SHORTEN_BEFORE));
            if widths.is_none() {
                shown.retain(|c| c.goes != goes);
            }
        }
        let widths = widths.or_else(|| fit(&shown, &summary.rows, self.width, true));
        // Not even the columns that must stay fit: their lines are cut at the edge.
        let widths = widths.unwrap_or_else(|| shown.iter().map(|c| c.least).collect());
        let head: Vec<String> = shown.iter().map(|c| c.head.to_string()).collect();
        self.row(&shown, &widths, &head, Style::Bold, Style::Bold);
        for row in &summary.rows {
            let cells: Vec<String> = shown.iter().map(|c| one_line(&(c.cell)(row))).collect();
            let tone = if row.case_valid { row.tone } else { Tone::Bad };
            self.row(&shown, &widths, &cells, Style::Plain, Style::Tone(tone));
        }
        self.blank();
    }

    /// Each measurement without and with gateways.
    fn compared(&mut self, rows: &[Compared]) {
        if rows.is_empty() {
            return;
        }
        let heads = ["CASE", "WORKLOAD", "MEASUREMENT", "WITHOUT", "WITH", "WITH/WITHOUT"];
        let mut lines = vec![(heads.map(str::to_owned), Style::Bold)];
        for row in rows {
            let ratio = if row.ratio.is_empty() { "–".to_owned() } else { row.ratio.clone() };
            let cells = [&row.case, &row.workload, &row.measurement, &row.without, &row.with, &ratio];
            lines.push((cells.map(|cell| one_line(cell)), Style::Tone(row.tone)));
        }
        let first = usize::from(rows.iter().all(|row| row.case.is_empty()));
        let widest = |i: usize| lines.iter().map(|(cells, _)| columns(&cells[i])).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..heads.len()).map(widest).collect();
        // Names give way where the figures would not fit.
        while widths[first..].iter().map(|width| width + GAP).sum::<usize>() > self.width + GAP {
            let Some(longest) = (first..3).filter(|i| widths[*i] > NAME_LEAST).max_by_key(|i| widths[*i]) else {
                break;
            };
            widths[longest] -= 1;
        }
        for (cells, style) in &lines {
            let mut used = 0;
            for i in first..heads.len() {
                let gap = if i == first { 0 } else { GAP };
                let room = widths[i].min(self.width.saturating_sub(used + gap));
                if room == 0 {
                    break;
                }
                let text = shorten(&cells[i], room);
                let pad = " ".repeat(room - columns(&text));
                let last = i + 1 == heads.len();
                self.out.push_str(&" ".repeat(gap));
                if i > 2 {
                    self.out.push_str(&pad);
                }
                self.styled(&text, if last || *style == Style::Bold { *style } else { Style::Plain });
                if i <= 2 {
                    self.out.push_str(&pad);
                }
                used += gap + room;
            }
            self.out.push('\n');
        }
        self.blank();
    }

    fn row(&mut self, shown: &[&Column], widths: &[usize], cells: &[String], style: Style, last: Style) {
        let mut used = 0;
        for (i, cell) in cells.iter().enumerate() {
            let gap = if i == 0 { 0 } else { GAP };
            let room = widths[i].min(self.width.saturating_sub(used + gap));
            if room == 0 {
                break;
            }
            let text = shorten(cell, room);
            let pad = " ".repeat(room - columns(&text));
            let is_last = i + 1 == cells.len();
            self.out.push_str(&" ".repeat(gap));
            if shown[i].right {
                self.out.push_str(&pad);
            }
            self.styled(&text, if is_last { last } else { style });
            if !shown[i].right && !is_last {
                self.out.push_str(&pad);
            }
            used += gap + room;
        }
        self.out.push('\n');
    }

    fn case(&mut self, case: &CaseRecord) {
        let name = if case.name.is_empty() { "Case" } else { &case.name };
        self.wrapped(&format!("{name} ({})", quantity::seconds(case.seconds)), "", "  ", Style::Bold);
        for link in &case.links {
            for direction in &link.directions {
                self.wrapped(&direction_line(link, direction), "  ", "    ", Style::Plain);
            }
            if let Some(circuit) = &link.circuit {
                // Records of before have a cost and no bill.
                let old = || {
                    let currency = circuit.currency.as_deref().unwrap_or("");
                    circuit.cost.map(|cost| format!(", cost {cost:.2} {currency}"))
                };
                let bill = link.bill.as_ref();
                let cost = bill.map(|bill| format!(", cost {}", bills::amount(bill.total_nano, &bill.currency)));
                let cost = cost.or_else(old);
                let line = format!(
                    "{}: {}, {} lost, {} setting up, {} on air{}",
                    link.name,
                    quantity::counted(circuit.calls, "call"),
                    quantity::count(circuit.calls_lost),
                    quantity::seconds(circuit.setting_up),
                    quantity::seconds(circuit.on_air),
                    cost.unwrap_or_default()
                );
                self.wrapped(&line, "  ", "    ", Style::Plain);
            }
        }
        for line in bills::lines(case) {
            self.wrapped(&line, "  ", "    ", Style::Plain);
        }
        for line in case.gateways.iter().flat_map(gateways::lines) {
            self.wrapped(&line, "  ", "    ", Style::Plain);
        }
        for setting in case.settings.iter().filter(|setting| setting.broken) {
            let seen = setting.observed.map_or("nothing".to_owned(), |observed| observed.to_string());
            let line = format!(
                "✗ broken setting: {} {} asked {}, seen {seen}",
                setting.host, setting.name, setting.configured
            );
            self.wrapped(&line, "  ", "    ", Style::Tone(Tone::Bad));
        }
        if let Some(late) = &case.lateness {
            let bad = late.p99 > late.limit_p99 || late.worst > late.limit_worst || late.missed_packets > 0;
            let line = format!(
                "{} lateness: 99 % within {} (limit {}), worst {} (limit {}), {}, {} missed",
                if bad { "✗" } else { "✓" },
                quantity::seconds(late.p99),
                quantity::seconds(late.limit_p99),
                quantity::seconds(late.worst),
                quantity::seconds(late.limit_worst),
                quantity::counted(late.packets, "packet"),
                quantity::count(late.missed_packets)
            );
            self.wrapped(&line, "  ", "    ", Style::Tone(if bad { Tone::Bad } else { Tone::Plain }));
        }
        match case.validity.valid {
            true => self.wrapped("✓ valid", "  ", "    ", Style::Tone(Tone::Good)),
            false => {
                let line = format!("✗ INVALID: {}", case.validity.reasons.join("; "));
                self.wrapped(line.trim_end_matches(": "), "  ", "    ", Style::Tone(Tone::Bad));
            }
        }
        let mut errors: IndexMap<(&str, &str), Vec<&WorkloadRecord>> = IndexMap::new();
        for workload in &case.workloads {
            if let Some(error) = &workload.error {
                errors.entry((&workload.name, error)).or_default().push(workload);
            }
        }
        let more = errors.len().saturating_sub(ERRORS_SHOWN);
        for ((name, error), runs) in errors.into_iter().take(ERRORS_SHOWN) {
            let line = match &runs[..] {
                [one] => format!("{}: {error}", one.label()),
                several => format!("{name}, {} runs: {error}", several.len()),
            };
            self.wrapped(&line, "  ", "    ", Style::Tone(Tone::Bad));
        }
        if more > 0 {
            self.wrapped(&format!("{more} more errors are in the record"), "  ", "    ", Style::Tone(Tone::Bad));
        }
        for note in &case.notes {
            self.wrapped(&format!("note: {note}"), "  ", "    ", Style::Plain);
        }
    }
}

fn direction_line(link: &LinkRecord, direction: &DirectionRecord) -> String {
    let c = &direction.counters;
    let mut line = format!(
        "{} {}: delivered {} ({}), dropped {}, damaged {}, lost {}, overhead {}",
        link.name,
        direction.label(),
        quantity::counted(c.delivered_packets, "packet"),
        quantity::bytes(c.delivered_bytes as f64),
        quantity::count(c.dropped_packets),
        quantity::count(c.damaged_packets),
        quantity::count(c.lost_packets),
        overhead(direction)
    );
    if c.delivered_damaged_packets > 0 {
        line.push_str(&format!(", delivered with bit errors {}", quantity::count(c.delivered_damaged_packets)));
    }
    line
}

/// Widths with which the table is at most `width` wide; none if there are none. With `shorten`, the widest columns give way.
fn fit(shown: &[&Column], rows: &[Row], width: usize, shorten: bool) -> Option<Vec<usize>> {
    let natural =
        |c: &&Column| rows.iter().map(|row| columns(&one_line(&(c.cell)(row)))).max().unwrap_or(0).max(columns(c.head));
    let mut widths: Vec<usize> = shown.iter().map(natural).collect();
    let gaps = GAP * shown.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        let can_shrink = |i: &usize| shorten && shown[*i].least < widths[*i];
        let widest = (0..shown.len()).filter(can_shrink).max_by_key(|i| widths[*i])?;
        widths[widest] -= 1;
    }
    Some(widths)
}

/// On one line, without anything a terminal would obey.
fn one_line(text: &str) -> String {
    let clean = printable(text);
    clean.split(['\n', '\t', '\u{85}', '\u{2028}', '\u{2029}']).collect::<Vec<_>>().join(" ").trim().to_string()
}

/// At most `room` columns, the last a … where something was cut.
fn shorten(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_string();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        if used + column(c) + 1 > room {
            break;
        }
        used += column(c);
        out.push(c);
    }
    out.push('…');
    out
}

/// Lines of at most `room` columns, broken at spaces, or anywhere in a word that is longer.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(2);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > room {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if columns(&line) + column(c) > room {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

fn columns(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// Columns of a character: the wide blocks of Unicode's EastAsianWidth.txt and emoji take two, combining marks none.
fn column(c: char) -> usize {
    match c as u32 {
        0x0300..=0x036f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0x00ad => 0,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

const COLUMNS: &[Column] = &[
    Column { head: "CASE", right: false, least: 8, goes: 0, cell: |row| row.case.clone() },
    Column { head: "WORKLOAD", right: false, least: 8, goes: 0, cell: |row| row.workload.clone() },
    Column { head: "APP", right: false, least: 4, goes: 3, cell: |row| row.app.clone() },
    Column { head: "WHO", right: false, least: 10, goes: 4, cell: |row| row.who.clone() },
    Column { head: "DIRECTION", right: false, least: 8, goes: 5, cell: |row| row.direction.clone() },
    Column { head: "OBJECTIVE", right: false, least: 13, goes: 1, cell: |row| row.objective.clone() },
    Column { head: "RESULT", right: true, least: 10, goes: 0, cell: |row| row.result.clone() },
    Column { head: "P95", right: true, least: 6, goes: 2, cell: |row| row.p95.clone() },
    Column { head: "GOODPUT", right: true, least: 11, goes: 2, cell: |row| row.goodput.clone() },
    Column { head: "LOSS", right: true, least: 6, goes: 1, cell: |row| row.loss.clone() },
    Column {
        head: "VERDICT",
        right: false,
        least: 9,
        goes: 0,
        cell: |row| if row.case_valid { row.verdict.clone() } else { format!("{}, INVALID", row.verdict) },
    },
];
/// The first of [`COLUMNS`] to go, and the first that goes only when cutting does not help.
const GOES_MAX: u8 = 5;
const SHORTEN_BEFORE: u8 = 3;
/// Different errors of a case that are printed.
const ERRORS_SHOWN: usize = 20;
/// A name in the table of [`Page::compared`] is not cut below this.
const NAME_LEAST: usize = 8;
/// Columns between two columns of the table.
const GAP: usize = 2;
/// A terminal that claims to be narrower is not believed.
const WIDTH_MIN: usize = 20;
