//! The sections of a case and the tables in them, laid out for any reader.

use super::charts;
use super::layout::{Cell, Output, Section, Table};
use super::repetitions::{group_label, grouped, labelled, spread};
use super::summary::{Tone, group_verdict, main_measurement, workload_verdict, written};
use super::{bills, gateways, quantity};
use crate::record::{
    CaseRecord, Counters, DirectionRecord, FlowRecord, Lateness, LinkRecord, Record, Status, TcpFlowSamples,
    WorkloadRecord,
};
use bentpipe_net::text::printable;
use indexmap::{IndexMap, IndexSet};

/// The sections of a case that have something to show.
pub fn of_case(case: &CaseRecord, id: &str, simulated: bool) -> Vec<Section> {
    let mut sections =
        vec![users(case, id), links(case, id), circuits(case), bills::section(case), gateways::section(case)];
    sections.push(tcp(case, id, simulated));
    sections.extend(case.lateness.as_ref().map(timing));
    sections.push(outputs(case));
    sections.push(Section { title: "Notes".into(), texts: case.notes.clone(), ..Section::default() });
    sections.retain(|s| !(s.texts.is_empty() && s.charts.is_empty() && s.tables.is_empty() && s.outputs.is_empty()));
    sections
}

/// Every measurement with a column per case; of copies and repetitions, the median.
pub fn compared(record: &Record) -> Option<Table> {
    if record.cases.len() < 2 {
        return None;
    }
    let cases: Vec<_> = record.cases.iter().map(|case| grouped(&case.workloads)).collect();
    let mut all: IndexMap<&str, (usize, IndexSet<&str>)> = IndexMap::new();
    for (name, runs) in cases.iter().flatten() {
        let (most, quantities) = all.entry(name).or_default();
        *most = (*most).max(runs.len());
        quantities.extend(runs.iter().flat_map(|run| &run.measurements).map(|m| m.quantity.as_str()));
    }
    let mut rows = Vec::new();
    for (name, (most, quantities)) in &all {
        let runs: Vec<&[&WorkloadRecord]> =
            cases.iter().map(|groups| groups.get(name).map(Vec::as_slice).unwrap_or_default()).collect();
        let longest = runs.iter().max_by_key(|runs| runs.len()).copied().unwrap_or_default();
        let mains: Vec<Option<String>> = runs.iter().map(|runs| judged_quantity(runs)).collect();
        for (i, quantity) in quantities.iter().enumerate() {
            let mut row = Vec::new();
            if i == 0 {
                let sub = if *most > 1 { "median of the runs" } else { "" };
                row.push(Cell { rows: quantities.len(), ..Cell::text(group_label(longest)).sub(sub) });
            }
            row.push(Cell::text(quantity::name(quantity)));
            for (runs, main) in runs.iter().zip(&mains) {
                let text = spread(runs, quantity).map_or("–".to_string(), |spread| written(spread.median));
                let is_main = main.as_deref() == Some(*quantity);
                row.push(Cell::num(text).sub(if is_main { group_verdict(runs).0 } else { String::new() }));
            }
            rows.push(row);
        }
    }
    let mut head = vec![Cell::text("Workload"), Cell::text("Measurement")];
    head.extend(record.cases.iter().map(|case| {
        let name = if case.validity.valid { case.name.clone() } else { format!("{} (invalid)", case.name) };
        Cell::num(name)
    }));
    let caption = "Every measurement, a column for each case".to_string();
    let fold = rows.len() > FOLD_GROUPED;
    (!rows.is_empty()).then(|| Table { caption, head, rows, fold, ..Table::default() })
}

/// The quantity next to which the verdict on runs stands.
fn judged_quantity(runs: &[&WorkloadRecord]) -> Option<String> {
    let judged = runs.iter().filter(|run| run.objective.is_some());
    judged.filter_map(|run| main_measurement(run)).map(|(quantity, _)| quantity).next()
}

fn users(case: &CaseRecord, id: &str) -> Section {
    let groups = grouped(&case.workloads);
    let several = groups.values().any(|runs| runs.len() > 1);
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for runs in groups.values() {
        let (times, facts) = match &runs[..] {
            [one] => facts_of_one(one),
            runs => facts_of_several(runs),
        };
        let heading = Cell { rows: facts.len(), ..Cell::text(group_label(runs)).sub(times) };
        for (i, mut fact) in facts.into_iter().enumerate() {
            fact.truncate(if several { 3 } else { 2 });
            if several && fact.len() < 3 {
                fact.push(Cell::default());
            }
            let heading = (i == 0).then(|| heading.clone());
            rows.push(heading.into_iter().chain(fact).collect());
        }
    }
    let mut head = vec![Cell::text("Workload"), Cell::text("Measurement"), Cell::num("Value")];
    if several {
        head[2] = Cell::num("Value").sub("median of several runs");
        head.push(Cell::num("P95").sub("95 % of the runs reach it or better"));
    }
    let fold = rows.len() > FOLD_GROUPED;
    let table = Table { caption: "Measurements".into(), head, rows, fold, ..Table::default() };
    let mut tables = if table.rows.is_empty() { vec![] } else { vec![table] };
    if several {
        tables.extend(every_run(case, &groups));
    }
    Section { title: "What users felt".into(), charts: charts::workloads(case, id), tables, ..Section::default() }
}

/// When a run was, and its measurements.
fn facts_of_one(workload: &WorkloadRecord) -> (String, Vec<Vec<Cell>>) {
    let (verdict, tone) = workload_verdict(workload);
    let until = workload.end.map_or("cut off".to_string(), |end| format!("to {}", quantity::seconds(end)));
    let times = format!("{}, {} {until}", workload.app, quantity::seconds(workload.start));
    let mut facts: Vec<Vec<Cell>> = Vec::new();
    if let Some(objective) = &workload.objective {
        facts.push(vec![Cell::text(format!("Objective: {objective}")), Cell::tone(verdict, tone).end()]);
    } else if workload.status != Status::Done {
        facts.push(vec![Cell::text("Status"), Cell::tone(verdict, tone).end()]);
    }
    if let Some(error) = &workload.error {
        facts.push(vec![Cell::text("Error"), Cell::text(error.clone()).end()]);
    }
    for measurement in &workload.measurements {
        facts.push(vec![Cell::text(quantity::name(&measurement.quantity)), Cell::num(written(measurement))]);
    }
    if facts.is_empty() {
        facts.push(vec![Cell::text("Status"), Cell::text(workload.status.to_string()).end()]);
    }
    (times, facts)
}

/// When copies and repetitions were, and their measurements: the median with the least and the largest, and P95.
fn facts_of_several(runs: &[&WorkloadRecord]) -> (String, Vec<Vec<Cell>>) {
    let start = runs.iter().map(|run| run.start).fold(f64::INFINITY, f64::min);
    let end = runs.iter().filter_map(|run| run.end).fold(start, f64::max);
    let times = format!("{}, {} to {}", runs[0].app, quantity::seconds(start), quantity::seconds(end));
    let (verdict, tone) = group_verdict(runs);
    let mut facts = Vec::new();
    match runs.iter().find_map(|run| run.objective.as_ref()) {
        Some(objective) => {
            facts.push(vec![Cell::text(format!("Objective: {objective}")), Cell::tone(verdict, tone).end()]);
        }
        None => facts.push(vec![Cell::text("Status"), Cell::tone(verdict, tone).end()]),
    }
    let mut errors: IndexMap<&str, usize> = IndexMap::new();
    runs.iter().filter_map(|run| run.error.as_deref()).for_each(|error| *errors.entry(error).or_default() += 1);
    for (error, times) in errors.iter().take(ERRORS_SHOWN) {
        let times = quantity::counted(*times as u64, "run");
        facts.push(vec![Cell::text("Error"), Cell::text(format!("{times}: {error}")).end()]);
    }
    let quantities: IndexSet<&str> =
        runs.iter().flat_map(|run| &run.measurements).map(|m| m.quantity.as_str()).collect();
    for spread in quantities.iter().filter_map(|quantity| spread(runs, quantity)) {
        let between = match (written(spread.least), written(spread.most)) {
            (least, most) if least == most => String::new(),
            (least, most) => format!("{least} to {most}"),
        };
        facts.push(vec![
            Cell::text(quantity::name(&spread.median.quantity)),
            Cell::num(written(spread.median)).sub(between),
            Cell::num(written(spread.p95)),
        ]);
    }
    (times, facts)
}

/// Each run of the workloads that have several, folded away: a table for each workload.
fn every_run(case: &CaseRecord, groups: &IndexMap<&str, Vec<&WorkloadRecord>>) -> Vec<Table> {
    let mut labels: IndexMap<&str, Vec<(String, &WorkloadRecord)>> = IndexMap::new();
    for (label, run) in labelled(case).filter(|(_, run)| groups[run.name.as_str()].len() > 1) {
        labels.entry(&run.name).or_default().push((label, run));
    }
    let mut room = RUNS_MAX;
    let mut tables = Vec::new();
    for (name, mut runs) in labels {
        let total = runs.len();
        let take = total.min(room.max(RUNS_LEAST));
        room = room.saturating_sub(take);
        let cut = take < total;
        if cut {
            // Those that need attention, then the longest.
            let badness = |run: &WorkloadRecord| match workload_verdict(run).1 {
                Tone::Bad => 0,
                Tone::Warn => 1,
                Tone::Plain | Tone::Good => 2,
            };
            let length = |run: &WorkloadRecord| run.end.map_or(f64::INFINITY, |end| end - run.start);
            runs.sort_by(|(_, a), (_, b)| badness(a).cmp(&badness(b)).then_with(|| length(b).total_cmp(&length(a))));
            runs.truncate(take);
        }
        let quantities: IndexSet<&str> =
            runs.iter().flat_map(|(_, run)| &run.measurements).map(|m| m.quantity.as_str()).collect();
        let mut head = vec![Cell::text("Run"), Cell::num("Start"), Cell::text("Verdict")];
        head.extend(quantities.iter().map(|quantity| Cell::num(quantity::name(quantity))));
        let row = |(label, run): &(String, &WorkloadRecord)| {
            let (verdict, tone) = workload_verdict(run);
            let verdict = Cell::tone(verdict, tone).sub(run.error.clone().unwrap_or_default());
            let mut cells = vec![Cell::text(label), Cell::num(quantity::seconds(run.start)).order(run.start), verdict];
            cells.extend(quantities.iter().map(|quantity| match run.measurement(quantity) {
                Some(measurement) => Cell::num(written(measurement)).order(measurement.value),
                None => Cell::num("–"),
            }));
            cells
        };
        let caption = match cut {
            false => format!("{name}: every run"),
            true => format!("{name}: the {take} runs of {total} that need attention first; the record holds all"),
        };
        let rows = runs.iter().map(row).collect();
        tables.push(Table { caption, head, rows, fold: true, sorts: true, ..Table::default() });
    }
    tables
}

fn links(case: &CaseRecord, id: &str) -> Section {
    let tables = case.links.iter().map(counters).collect();
    Section { title: "Links".into(), charts: charts::links(case, id), tables, ..Section::default() }
}

/// A row per counter and a column per direction: few columns, so it fits a phone.
fn counters(link: &LinkRecord) -> Table {
    let mut head = vec![Cell::text("Counter")];
    head.extend(link.directions.iter().map(|d| Cell::num(d.label())));
    let packets = |count: u64, bytes: u64| Cell::num(quantity::count(count)).sub(quantity::bytes(bytes as f64));
    let row = |name: &str, sub: &str, cell: &dyn Fn(&Counters) -> Cell| -> Vec<Cell> {
        let cells = link.directions.iter().map(|d| cell(&d.counters));
        std::iter::once(Cell::text(name).sub(sub)).chain(cells).collect()
    };
    let plain = |count: u64| Cell::num(quantity::count(count));
    let mut rows = vec![
        row("Offered", "packets; bytes without framing", &|c| packets(c.offered_packets, c.offered_bytes)),
        row("Dropped", "packets the full queue refused", &|c| plain(c.dropped_packets)),
        row("Longest queue", "", &|c| Cell::num(quantity::bytes(c.queue_bytes_max as f64))),
        row("Sent", "packets", &|c| plain(c.sent_packets)),
        row("Link bytes", "sent, framing included", &|c| Cell::num(quantity::bytes(c.link_bytes as f64))),
        row("Bit errors", "bits the medium inverted", &|c| plain(c.bit_errors)),
        row("Damaged", "packets the framing's check discarded", &|c| plain(c.damaged_packets)),
        row("Delivered damaged", "packets with bit errors and no check", &|c| plain(c.delivered_damaged_packets)),
        row("Lost", "packets lost as a whole", &|c| plain(c.lost_packets)),
        row("Delivered", "packets; bytes without framing", &|c| packets(c.delivered_packets, c.delivered_bytes)),
    ];
    let overheads = link.directions.iter().map(|d| Cell::num(overhead(d)));
    rows.push(
        std::iter::once(Cell::text("Overhead").sub("link bytes ÷ bytes delivered to a receiver"))
            .chain(overheads)
            .collect(),
    );
    let about: Vec<&str> = [link.kind.as_str(), link.summary.as_str()].into_iter().filter(|t| !t.is_empty()).collect();
    let caption = format!("Link {}: {}", link.name, about.join(", "));
    Table { caption: caption.trim_end_matches(": ").to_string(), head, rows, ..Table::default() }
}

/// `1.07`, or a dash where nothing was delivered. A broadcast's bytes are sent once and delivered to each receiver.
pub fn overhead(direction: &DirectionRecord) -> String {
    let counters = &direction.counters;
    if counters.delivered_bytes == 0 {
        return "–".to_string();
    }
    let receivers = direction.to.len().max(1);
    format!("{:.3}", counters.link_bytes as f64 * receivers as f64 / counters.delivered_bytes as f64)
}

fn circuits(case: &CaseRecord) -> Section {
    let mut tables = Vec::new();
    for (link, circuit) in case.links.iter().filter_map(|link| Some((link, link.circuit.as_ref()?))) {
        let mut rows = vec![
            vec![Cell::text("Calls set up"), Cell::num(quantity::count(circuit.calls))],
            vec![Cell::text("Calls lost to errors"), Cell::num(quantity::count(circuit.calls_lost))],
            vec![Cell::text("Setting up"), Cell::num(quantity::seconds(circuit.setting_up))],
            vec![Cell::text("On air"), Cell::num(quantity::seconds(circuit.on_air))],
        ];
        if let Some(most) = circuit.channels_most {
            rows.push(vec![Cell::text("Most channels up at a time"), Cell::num(quantity::count(most))]);
        }
        if let Some(cost) = circuit.cost.filter(|_| link.bill.is_none()) {
            let currency = circuit.currency.as_deref().unwrap_or("(currency not stated)");
            rows.push(vec![Cell::text("Cost"), Cell::num(format!("{cost:.2} {currency}"))]);
        }
        let head = vec![Cell::text("Circuit"), Cell::num("Value")];
        tables.push(Table { caption: format!("Circuit {}", link.name), head, rows, ..Table::default() });
        if !circuit.changes.is_empty() {
            let rows = circuit.changes.iter();
            let rows = rows.map(|c| vec![Cell::num(quantity::seconds(c.at)), Cell::text(c.state.to_string())]);
            let rows: Vec<Vec<Cell>> = rows.collect();
            let caption = format!("Circuit {}: state over time", link.name);
            let (head, fold) = (vec![Cell::num("At"), Cell::text("State")], rows.len() > FOLD_ROWS);
            tables.push(Table { caption, head, rows, fold, ..Table::default() });
        }
    }
    Section { title: "Circuits and airtime".into(), tables, ..Section::default() }
}

fn tcp(case: &CaseRecord, id: &str, simulated: bool) -> Section {
    let tables = [settings(case, simulated), flows(case), samples(&case.tcp_samples, simulated)];
    let tables = tables.into_iter().flatten().collect();
    Section { title: "TCP".into(), charts: charts::tcp(case, id), tables, ..Section::default() }
}

/// No kernel is asked in a simulated run.
fn settings(case: &CaseRecord, simulated: bool) -> Option<Table> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_string());
    let row = |s: &crate::record::Setting| {
        let held = match (s.broken, &s.observed) {
            (true, _) => Cell::tone("✗ broken", Tone::Bad),
            (false, Some(_)) => Cell::tone("✓ held", Tone::Good),
            (false, None) => Cell::text("not shown"),
        };
        let name = Cell::text(s.name.clone()).sub(s.host.clone());
        let observed = s.observed.map(|observed| observed.to_string());
        let texts = [s.configured.clone(), or_dash(s.kernel.clone()), or_dash(observed)];
        std::iter::once(name).chain(texts.map(Cell::text)).chain([held]).collect()
    };
    let mut rows: Vec<Vec<Cell>> = case.settings.iter().map(row).collect();
    let mut head = ["Setting", "Asked", "Kernel says", "Seen on the wire", "Verdict"].map(Cell::text).to_vec();
    let mut caption = "Settings: asked, set and seen";
    if simulated {
        rows.iter_mut().chain([&mut head]).for_each(|row| drop(row.remove(KERNEL_COLUMN)));
        caption = "Settings: asked and seen";
    }
    let caption = caption.to_string();
    (!rows.is_empty()).then(|| Table { caption, head, rows, cards: true, ..Table::default() })
}

fn flows(case: &CaseRecord) -> Option<Table> {
    let yes = |on: bool| Cell::text(if on { "yes" } else { "no" });
    let row = |f: &FlowRecord| {
        vec![
            Cell::text(f.flow.to_string()).sub(format!("sent by {}", f.host)),
            Cell::num(quantity::seconds(f.start)).sub(format!("to {}", quantity::seconds(f.end))).order(f.start),
            Cell::num(f.mss.map_or("–".to_string(), |mss| mss.to_string())),
            Cell::num(f.window_scale.map_or("–".to_string(), |shift| shift.to_string())),
            yes(f.sack),
            yes(f.timestamps),
            Cell::num(quantity::bytes(f.window_max as f64)).order(f.window_max as f64),
            Cell::num(quantity::count(f.data_segments))
                .sub(quantity::bytes(f.data_bytes as f64))
                .order(f.data_segments as f64),
            Cell::num(quantity::bytes(f.repeated_bytes as f64)).order(f.repeated_bytes as f64),
            Cell::num(quantity::count(f.initial_burst)),
            Cell::num(quantity::count(f.pure_acks)),
        ]
    };
    let mut shown: Vec<&FlowRecord> = case.flows.iter().collect();
    let total = shown.len();
    if total > FLOWS_MAX {
        // Those that sent most, in the order in which they began.
        shown.sort_by_key(|flow| std::cmp::Reverse(flow.data_bytes));
        shown.truncate(FLOWS_MAX);
        shown.sort_by(|a, b| a.start.total_cmp(&b.start));
    }
    let rows: Vec<Vec<Cell>> = shown.into_iter().map(row).collect();
    let head = vec![
        Cell::text("Flow"),
        Cell::num("Time"),
        Cell::num("MSS"),
        Cell::num("Window scale"),
        Cell::text("SACK"),
        Cell::text("Timestamps"),
        Cell::num("Largest window"),
        Cell::num("Data sent").sub("segments; bytes"),
        Cell::num("Sent again"),
        Cell::num("Initial burst").sub("segments"),
        Cell::num("Pure ACKs"),
    ];
    let fold = rows.len() > FOLD_ROWS;
    let caption = match total {
        0..=FLOWS_MAX => "TCP connections seen on the wire".to_string(),
        _ => format!("TCP connections seen on the wire: the {FLOWS_MAX} of {total} that sent most"),
    };
    (!rows.is_empty()).then(|| Table { caption, head, rows, fold, sorts: true, ..Table::default() })
}

/// Median and largest of each series, so that the charts' content is there without charts.
fn samples(flows: &[TcpFlowSamples], simulated: bool) -> Option<Table> {
    let names: IndexSet<&str> = flows.iter().flat_map(|flow| &flow.series).map(|s| s.quantity.as_str()).collect();
    let cell = |flow: &TcpFlowSamples, name: &str| -> Cell {
        let Some(series) = flow.series.iter().find(|series| series.quantity == name) else { return Cell::num("–") };
        let mut values: Vec<f64> = series.points.iter().map(|(_, y)| *y).filter(|y| y.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let text = |value: f64| quantity::measurement(&series.unit, value);
        match (values.get(values.len() / 2), values.last()) {
            (Some(median), Some(largest)) => {
                Cell::num(text(*median)).sub(format!("max. {}", text(*largest))).order(*median)
            }
            _ => Cell::num("–"),
        }
    };
    let row = |flow: &TcpFlowSamples| {
        let by = format!("{}, {}", flow.host, flow.congestion_control);
        let heading = Cell::text(flow.flow.to_string()).sub(by.trim_end_matches(", "));
        std::iter::once(heading).chain(names.iter().map(|name| cell(flow, name))).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<Cell>> = flows.iter().map(row).collect();
    let mut head = vec![Cell::text("Flow")];
    head.extend(names.iter().map(|name| Cell::num(quantity::name(name))));
    let fold = rows.len() > FOLD_ROWS;
    let who = if simulated { "simulated hosts" } else { "kernel" };
    let caption = format!("TCP as the {who} saw it: median and largest of its samples");
    (!rows.is_empty()).then(|| Table { caption, head, rows, fold, sorts: true, ..Table::default() })
}

fn timing(lateness: &Lateness) -> Section {
    let row = |name: &str, value: f64, limit: Option<f64>| {
        let limit_text = limit.map_or("–".to_string(), quantity::seconds);
        let verdict = match limit {
            Some(limit) if value > limit => Cell::tone("✗ above the limit", Tone::Bad),
            Some(_) => Cell::tone("✓ within", Tone::Good),
            None => Cell::text("–"),
        };
        vec![Cell::text(name), Cell::num(quantity::seconds(value)), Cell::num(limit_text), verdict]
    };
    let missed = if lateness.missed_packets > 0 {
        Cell::tone("✗ above the limit", Tone::Bad)
    } else {
        Cell::tone("✓ within", Tone::Good)
    };
    let rows = vec![
        row("Median", lateness.p50, None),
        row("99th percentile", lateness.p99, Some(lateness.limit_p99)),
        row("99.9th percentile", lateness.p999, None),
        row("Worst", lateness.worst, Some(lateness.limit_worst)),
        vec![Cell::text("Packets missed"), Cell::num(quantity::count(lateness.missed_packets)), Cell::num("0"), missed],
    ];
    let head = vec![Cell::text("Lateness"), Cell::num("Measured"), Cell::num("Limit"), Cell::text("Verdict")];
    let caption = format!("Lateness of {}", quantity::counted(lateness.packets, "packet"));
    let mut tables = vec![Table { caption, head, rows, ..Table::default() }];
    tables.extend(histogram(lateness));
    if !lateness.worst_hundred.is_empty() {
        let mut worst = lateness.worst_hundred.clone();
        worst.sort_by(|a, b| b.1.total_cmp(&a.1));
        let row =
            |(at, late): &(f64, f64)| vec![Cell::num(quantity::seconds(*late)), Cell::num(quantity::seconds(*at))];
        let rows: Vec<Vec<Cell>> = worst.iter().take(LATEST_SHOWN).map(row).collect();
        let caption = format!("The {} latest packets", rows.len());
        let head = vec![Cell::num("Late by"), Cell::num("At")];
        tables.push(Table { caption, head, rows, ..Table::default() });
    }
    let what = "How long after its time each packet left the emulator: the measuring instrument's own error.";
    Section { title: "Emulator timing".into(), texts: vec![what.into()], tables, ..Section::default() }
}

/// Bars on a logarithmic scale: the tail is what matters, and it is a few packets among thousands.
fn histogram(lateness: &Lateness) -> Option<Table> {
    let mut bins: Vec<(f64, u64)> = lateness.histogram.iter().copied().filter(|(edge, _)| !edge.is_nan()).collect();
    bins.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = bins.iter().position(|(_, packets)| *packets > 0)?;
    let last = bins.iter().rposition(|(_, packets)| *packets > 0)?;
    let bins = &bins[first..=last];
    let merged: Vec<(f64, u64)> = bins
        .chunks(bins.len().div_ceil(BARS_MAX))
        .filter_map(|chunk| Some((chunk.last()?.0, chunk.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n)))))
        .collect();
    let log = |packets: u64| (packets as f64 + 1.0).ln();
    let largest = merged.iter().map(|(_, packets)| log(*packets)).fold(0.0, f64::max);
    let row = |(edge, packets): &(f64, u64)| {
        let bar = (log(*packets) / largest * 100.0).round() as u32;
        vec![
            Cell::num(quantity::seconds(*edge)),
            Cell::num(quantity::count(*packets)),
            Cell { bar, class: "bar", ..Cell::default() },
        ]
    };
    let rows = merged.iter().map(row).collect();
    let head = vec![Cell::num("Late by up to"), Cell::num("Packets"), Cell::text("Packets, logarithmic scale")];
    Some(Table { caption: "Lateness, how often".into(), head, rows, ..Table::default() })
}

fn outputs(case: &CaseRecord) -> Section {
    let output = |(label, workload): (String, &WorkloadRecord)| {
        let command = workload.command.as_ref()?;
        let ended = command.exit.map_or("cut off".to_string(), |exit| format!("exit status {exit}"));
        Some(Output {
            title: format!("{label}: {ended}"),
            command: command.command.clone(),
            stdout: printable(&command.stdout),
            stderr: printable(&command.stderr),
        })
    };
    let outputs = labelled(case).filter_map(output).collect();
    Section { title: "Command output".into(), outputs, ..Section::default() }
}

/// "Kernel says" in the table of settings.
const KERNEL_COLUMN: usize = 2;
/// Tables longer than this are folded away.
const FOLD_ROWS: usize = 12;
/// Tables in which a workload has several rows are folded away if they are longer than this.
const FOLD_GROUPED: usize = 200;
/// Single runs shown of a case's workloads that have several, and of each workload at least.
const RUNS_MAX: usize = 2_000;
const RUNS_LEAST: usize = 20;
/// Different errors shown of a workload's runs.
const ERRORS_SHOWN: usize = 3;
/// Connections shown.
const FLOWS_MAX: usize = 2_000;
/// Packets shown of the worst hundred that the record holds.
const LATEST_SHOWN: usize = 5;
/// Bars of the lateness histogram.
const BARS_MAX: usize = 16;
