//! Gateway pairs: what they did, and every workload without and with them.

use super::quantity;
use super::sections::{Cell, Section, Table};
use super::summary::{Tone, written};
use crate::record::{CaseRecord, GatewayRecord, GatewaySideRecord, Record, WorkloadRecord};

/// One measurement of one workload, without and with gateways.
pub struct Compared {
    /// The scenario's case; empty where it has only one.
    pub case: String,
    /// The workload.
    pub workload: String,
    /// The measurement, for people.
    pub measurement: String,
    /// Without gateways.
    pub without: String,
    /// With.
    pub with: String,
    /// With ÷ without; empty where one of them is missing.
    pub ratio: String,
    /// Whether that is better or worse.
    pub tone: Tone,
}

/// Measurements that are compared, and whether more is better.
const MEASURES: &[(&str, bool)] = &[
    ("completion_time", false),
    ("first_byte", false),
    ("goodput", true),
    ("object_time_mean", false),
    ("rtt_median", false),
    ("loss", false),
];
/// A difference below this share is none.
const SAME: f64 = 0.01;

/// Every workload without and with gateways; empty unless the run compared them.
pub fn compared(record: &Record) -> Vec<Compared> {
    let halves = |pair: &[CaseRecord]| pair[0].compared.is_some() && pair[0].compared == pair[1].compared;
    let pairs: Vec<&[CaseRecord]> = record.cases.windows(2).filter(|pair| halves(pair)).collect();
    let several = pairs.len() > 1;
    pairs
        .iter()
        .flat_map(|pair| {
            let case = if several { pair[0].compared.clone().unwrap_or_default() } else { String::new() };
            compared_case(&case, &pair[0], &pair[1])
        })
        .collect()
}

fn compared_case(case: &str, without: &CaseRecord, with: &CaseRecord) -> Vec<Compared> {
    let mut names: Vec<&str> = Vec::new();
    for workload in without.workloads.iter().chain(&with.workloads) {
        if !names.contains(&workload.name.as_str()) {
            names.push(&workload.name);
        }
    }
    let mut rows = Vec::new();
    for name in names {
        let runs = [without, with].map(|case| case.workloads.iter().filter(|w| w.name == name).collect::<Vec<_>>());
        let before = rows.len();
        for (measure, more_is_better) in MEASURES {
            let found = [median(&runs[0], measure), median(&runs[1], measure)];
            if found == [None, None] {
                continue;
            }
            let [without, with] = [0, 1].map(|side| match &found[side] {
                Some((value, unit)) => quantity::measurement(measure, unit, *value),
                None => state(&runs[side]),
            });
            let values = found.map(|found| found.map(|(value, _)| value));
            let ratio = match values {
                [Some(a), Some(b)] if a != 0.0 => Some(b / a),
                _ => None,
            };
            rows.push(Compared {
                case: case.to_owned(),
                workload: name.to_owned(),
                measurement: quantity::name(measure),
                without,
                with,
                ratio: ratio.map(|ratio| quantity::number(quantity::round_to_digits(ratio, 3))).unwrap_or_default(),
                tone: tone(ratio, *more_is_better),
            });
        }
        if rows.len() == before {
            let [without, with] = runs.map(|runs| state(&runs));
            let (case, workload) = (case.to_owned(), name.to_owned());
            let (measurement, ratio, tone) = ("Status".to_owned(), String::new(), Tone::Plain);
            rows.push(Compared { case, workload, measurement, without, with, ratio, tone });
        }
    }
    rows
}

fn tone(ratio: Option<f64>, more_is_better: bool) -> Tone {
    match ratio {
        Some(ratio) if ratio.is_finite() && (ratio - 1.0).abs() > SAME => {
            if (ratio > 1.0) == more_is_better {
                Tone::Good
            } else {
                Tone::Bad
            }
        }
        _ => Tone::Plain,
    }
}

/// The median of the runs that have this measurement, with its unit.
fn median(runs: &[&WorkloadRecord], measure: &str) -> Option<(f64, String)> {
    let found = |run: &&WorkloadRecord| run.measurements.iter().find(|m| m.name == measure).cloned();
    let mut values: Vec<_> = runs.iter().filter_map(found).collect();
    values.sort_by(|a, b| a.value.total_cmp(&b.value));
    let middle = values.get(values.len() / 2)?;
    Some((middle.value, middle.unit.clone()))
}

/// How runs ended that have no figures.
fn state(runs: &[&WorkloadRecord]) -> String {
    match runs.iter().find(|run| run.status != "done").or(runs.first()) {
        Some(run) => run.status.clone(),
        None => "did not run".to_owned(),
    }
}

/// The same as a table.
pub fn compared_table(rows: &[Compared]) -> Option<Table> {
    let several = rows.iter().any(|row| !row.case.is_empty());
    let cells = |row: &Compared| {
        let heading = Cell { sub: if several { row.case.clone() } else { String::new() }, ..Cell::text(&row.workload) };
        let ratio = if row.ratio.is_empty() { "–".to_owned() } else { row.ratio.clone() };
        let mut ratio = Cell::tone(ratio, row.tone);
        ratio.class = "end";
        vec![heading, Cell::text(&row.measurement), Cell::num(&row.without), Cell::num(&row.with), ratio]
    };
    let head = vec![
        Cell::text("Workload"),
        Cell::text("Measurement"),
        Cell::num("Without"),
        Cell::num("With gateway"),
        Cell { class: "end", ..Cell::text("With ÷ without") },
    ];
    let caption = "Without and with the gateway pair".to_owned();
    (!rows.is_empty()).then(|| Table { caption, head, rows: rows.iter().map(cells).collect(), ..Table::default() })
}

/// What a case's gateways did, for a page.
pub fn section(case: &CaseRecord) -> Section {
    let mut tables = Vec::new();
    for pair in &case.gateways {
        tables.push(figures(pair));
        let settings = pair.settings.iter().map(|(key, value)| vec![Cell::text(key), Cell::text(value).end()]);
        let head = vec![Cell::text("Setting"), Cell::text("Value").end()];
        let caption = format!("Gateway pair on {}: settings", pair.link);
        tables.push(Table { caption, head, rows: settings.collect(), fold: true, ..Table::default() });
        let said = pair.sides.iter().flat_map(|side| side.notices.iter().map(move |(at, text)| (*at, side, text)));
        let mut said: Vec<_> = said.collect();
        said.sort_by(|a, b| a.0.total_cmp(&b.0));
        let row = |(at, side, text): (f64, &GatewaySideRecord, &String)| {
            vec![Cell::num(quantity::seconds(at)), Cell::text(&side.site), Cell::text(text)]
        };
        let rows: Vec<Vec<Cell>> = said.into_iter().map(row).collect();
        if !rows.is_empty() {
            let head = vec![Cell::num("At"), Cell::text("Gateway"), Cell::text("Said")];
            let caption = format!("Gateway pair on {}: what happened", pair.link);
            let fold = rows.len() > NOTICES_OPEN;
            tables.push(Table { caption, head, rows, fold, ..Table::default() });
        }
    }
    Section { title: "Gateways".into(), tables, ..Section::default() }
}

/// Longer lists of notices are folded away.
const NOTICES_OPEN: usize = 12;

/// A row for each figure, a column for each side.
fn figures(pair: &GatewayRecord) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for measurement in pair.sides.iter().flat_map(|side| &side.measurements) {
        if !names.contains(&measurement.name.as_str()) {
            names.push(&measurement.name);
        }
    }
    let cell = |side: &GatewaySideRecord, name: &str| {
        Cell::num(side.measurements.iter().find(|m| m.name == name).map_or("–".to_owned(), written))
    };
    let row = |name: &str| {
        let heading = Cell { sub: meaning(name).to_owned(), ..Cell::text(quantity::name(name)) };
        std::iter::once(heading).chain(pair.sides.iter().map(|side| cell(side, name))).collect()
    };
    let mut rows: Vec<Vec<Cell>> = names.iter().map(|name| row(name)).collect();
    let overheads = pair.sides.iter().map(|side| Cell::num(overhead(side)));
    let heading = Cell { sub: "link bytes ÷ delivered bytes".into(), ..Cell::text("Overhead") };
    rows.push(std::iter::once(heading).chain(overheads).collect());
    let mut head = vec![Cell::text("Figure")];
    head.extend(pair.sides.iter().map(|side| Cell { sub: format!("before {}", side.before), ..Cell::num(&side.site) }));
    Table { caption: format!("Gateway pair on {}", pair.link), head, rows, ..Table::default() }
}

/// What figures mean whose names do not say it.
fn meaning(name: &str) -> &'static str {
    match name {
        "connected_after" => "when the pair was first connected",
        "relayed" => "connections asked for here and opened",
        "refused" => "by the server, or nobody answered",
        "turned_away" => "not allowed, or over a limit",
        "bypassed" => "connections that passed unaccelerated",
        "lost_connections" => "reset because the pair was apart for too long",
        "bytes_taken" => "from hosts at this side",
        "bytes_given" => "to hosts at this side",
        "stream_bytes" => "what was taken, after compression",
        "compression_factor" => "how much shorter it made what it was given",
        "link_bytes" => "sent, framing included",
        "delivered_bytes" => "of streams, arrived at the other gateway",
        "rate" => "at the end",
        "held_down" => "1: the declared rate was too high at the end",
        "beside_packets" | "beside_bytes" => "went past the gateway",
        _ => "",
    }
}

fn value(side: &GatewaySideRecord, name: &str) -> f64 {
    side.measurements.iter().find(|m| m.name == name).map_or(0.0, |m| m.value)
}

/// `1.045`, or a dash where nothing was delivered.
fn overhead(side: &GatewaySideRecord) -> String {
    match value(side, "delivered_bytes") {
        delivered if delivered > 0.0 => format!("{:.3}", value(side, "link_bytes") / delivered),
        _ => "–".to_owned(),
    }
}

/// The same for a terminal: a line for each gateway.
pub fn lines(pair: &GatewayRecord) -> Vec<String> {
    let line = |side: &GatewaySideRecord| {
        let count = |name: &str| value(side, name).max(0.0) as u64;
        let mut line = format!(
            "gateway {} ({}): relayed {}, sent {} over the link for {} delivered ({}), {} of {} sent again, compression {:.2}",
            side.site,
            pair.link,
            quantity::counted(count("relayed"), "connection"),
            quantity::bytes(value(side, "link_bytes")),
            quantity::bytes(value(side, "delivered_bytes")),
            overhead(side),
            quantity::count(count("packets_sent_again")),
            quantity::counted(count("packets_sent"), "packet"),
            value(side, "compression_factor"),
        );
        if count("bypassed") > 0 {
            line.push_str(&format!(", {} bypassed", quantity::counted(count("bypassed"), "connection")));
        }
        if count("lost_connections") > 0 {
            line.push_str(&format!(", {} lost", quantity::counted(count("lost_connections"), "connection")));
        }
        line
    };
    pair.sides.iter().map(line).collect()
}
