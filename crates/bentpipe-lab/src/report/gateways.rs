//! Gateway pairs: what they did, and every workload without and with them.

use super::layout::{Cell, Section, Table};
use super::quantity;
use super::repetitions::{group_label, grouped, spread};
use super::summary::{Tone, written};
use crate::record::{Better, CaseRecord, GatewayRecord, GatewaySideRecord, Record, Status, TimedEvent, WorkloadRecord};

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
    /// Better, worse or neither.
    pub tone: Tone,
}

/// A difference below this share is none.
const SAME: f64 = 0.01;

/// Every workload without and with gateways; empty unless the run compared them.
pub fn compared(record: &Record) -> Vec<Compared> {
    let halves = |pair: &[CaseRecord]| match (&pair[0].compared, &pair[1].compared) {
        (Some(without), Some(with)) => without.case == with.case,
        _ => false,
    };
    let pairs: Vec<&[CaseRecord]> = record.cases.windows(2).filter(|pair| halves(pair)).collect();
    let several = pairs.len() > 1;
    pairs
        .iter()
        .flat_map(|pair| {
            let case = pair[0].compared.as_ref().filter(|_| several).map(|half| half.case.clone()).unwrap_or_default();
            compared_case(&case, &pair[0], &pair[1])
        })
        .collect()
}

fn compared_case(case: &str, without: &CaseRecord, with: &CaseRecord) -> Vec<Compared> {
    let halves = [without, with].map(|case| grouped(&case.workloads));
    let mut rows = Vec::new();
    for (key, both) in grouped(without.workloads.iter().chain(&with.workloads)) {
        let workload = both[0];
        let runs = halves.each_ref().map(|half| half.get(key).map(Vec::as_slice).unwrap_or_default());
        let label = group_label(if runs[0].len() >= runs[1].len() { runs[0] } else { runs[1] });
        let before = rows.len();
        for measure in &workload.shown.compared {
            let found = runs.map(|runs| spread(runs, measure).map(|spread| spread.median));
            let Some(better) = found[0].or(found[1]).map(|m| m.better) else { continue };
            let [without, with] = [0, 1].map(|side| found[side].map_or_else(|| state(runs[side]), written));
            let ratio = match found {
                [Some(a), Some(b)] if a.value != 0.0 => Some(b.value / a.value),
                _ => None,
            };
            rows.push(Compared {
                case: case.to_owned(),
                workload: label.clone(),
                measurement: quantity::name(measure),
                without,
                with,
                ratio: ratio.map(|ratio| quantity::number(quantity::round_to_digits(ratio, 3))).unwrap_or_default(),
                tone: tone(ratio, better),
            });
        }
        if rows.len() == before {
            let [without, with] = runs.map(state);
            let (case, workload) = (case.to_owned(), label);
            let (measurement, ratio, tone) = ("Status".to_owned(), String::new(), Tone::Plain);
            rows.push(Compared { case, workload, measurement, without, with, ratio, tone });
        }
    }
    rows
}

fn tone(ratio: Option<f64>, better: Better) -> Tone {
    let rose = ratio.filter(|ratio| ratio.is_finite() && (ratio - 1.0).abs() > SAME).map(|ratio| ratio > 1.0);
    match (rose, better) {
        (Some(true), Better::Higher) | (Some(false), Better::Lower) => Tone::Good,
        (Some(true), Better::Lower) | (Some(false), Better::Higher) => Tone::Bad,
        (None, _) | (_, Better::Neither) => Tone::Plain,
    }
}

/// The status of runs without measurements.
fn state(runs: &[&WorkloadRecord]) -> String {
    match runs.iter().find(|run| run.status != Status::Done).or(runs.first()) {
        Some(run) => run.status.to_string(),
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

/// The section of a case's gateways.
pub fn section(case: &CaseRecord) -> Section {
    let mut tables = Vec::new();
    for pair in &case.gateways {
        tables.push(figures(pair));
        let settings =
            pair.settings.iter().map(|setting| vec![Cell::text(&setting.name), Cell::text(&setting.value).end()]);
        let head = vec![Cell::text("Setting"), Cell::text("Value").end()];
        let caption = format!("Gateway pair on {}: settings", pair.link);
        tables.push(Table { caption, head, rows: settings.collect(), fold: true, ..Table::default() });
        let events = pair.sides.iter().flat_map(|side| side.events.iter().map(move |event| (side, event)));
        let mut events: Vec<(&GatewaySideRecord, &TimedEvent)> = events.collect();
        events.sort_by(|a, b| a.1.at.total_cmp(&b.1.at));
        let row = |(side, TimedEvent { at, event }): (&GatewaySideRecord, &TimedEvent)| {
            vec![Cell::num(quantity::seconds(*at)), Cell::text(&side.site), Cell::text(event.to_string())]
        };
        let rows: Vec<Vec<Cell>> = events.into_iter().map(row).collect();
        if !rows.is_empty() {
            let head = vec![Cell::num("At"), Cell::text("Gateway"), Cell::text("Said")];
            let caption = format!("Gateway pair on {}: what happened", pair.link);
            let fold = rows.len() > EVENTS_OPEN;
            tables.push(Table { caption, head, rows, fold, ..Table::default() });
        }
    }
    Section { title: "Gateways".into(), tables, ..Section::default() }
}

/// Longer lists of events are folded away.
const EVENTS_OPEN: usize = 12;

/// A row for each figure, a column for each side.
fn figures(pair: &GatewayRecord) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for measurement in pair.sides.iter().flat_map(|side| &side.measurements) {
        if !names.contains(&measurement.quantity.as_str()) {
            names.push(&measurement.quantity);
        }
    }
    let cell = |side: &GatewaySideRecord, name: &str| {
        Cell::num(side.measurements.iter().find(|m| m.quantity == name).map_or("–".to_owned(), written))
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

/// Explanations of quantities whose names do not explain them.
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
        "throttled" => "1: the declared rate was too high at the end",
        "bypass_packets" | "bypass_bytes" => "went past the gateway",
        _ => "",
    }
}

fn value(side: &GatewaySideRecord, name: &str) -> f64 {
    side.measurements.iter().find(|m| m.quantity == name).map_or(0.0, |m| m.value)
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
