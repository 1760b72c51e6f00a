//! Charts: which there are, and their data small enough to draw.

use super::quantity;
use super::repetitions::{grouped, labelled, number};
use crate::page::{Chart, Line};
use crate::record::{CaseRecord, DirectionRecord, Record, Series, TcpFlowSamples, Unit, WorkloadRecord};
use crate::thinning::{POINTS_MAX, can_be_drawn, decimate};
use bentpipe_apps::quantity::RTT;
use indexmap::IndexMap;

/// The charts of what users felt: one for each kind of series that workloads have.
pub fn workloads(case: &CaseRecord, id: &str) -> Vec<Chart> {
    let all: Vec<(String, &WorkloadRecord)> = labelled(case).collect();
    let mut names: IndexMap<&str, Vec<(String, &Series)>> = IndexMap::new();
    // What the kinds draw comes first, in their order.
    for name in all.iter().flat_map(|(_, workload)| &workload.shown.series) {
        names.entry(name).or_default();
    }
    for (label, workload) in &all {
        for series in &workload.series {
            names.entry(&series.quantity).or_default().push((label.clone(), series));
        }
    }
    let mut charts = Vec::new();
    for (name, mut lines) in names {
        if name == RTT.name {
            lines.extend(sampled(case, "srtt").into_iter().map(|(label, s)| (format!("srtt {label}"), s)));
        }
        let title = match name {
            _ if name == RTT.name => "Round-trip time".to_string(),
            _ => quantity::name(name),
        };
        charts.extend(chart(format!("{id}-users-{}", charts.len()), &title, false, id, case.seconds, &lines, 0));
    }
    charts
}

/// The charts of links: the queue, and errors where there were any, with a line per direction.
pub fn links(case: &CaseRecord, id: &str) -> Vec<Chart> {
    let mut charts = Vec::new();
    for link in &case.links {
        let rates: Vec<(String, Series)> = link.directions.iter().flat_map(delivered_rate).collect();
        let lines: Vec<(String, &Series)> = rates.iter().map(|(label, s)| (label.clone(), s)).collect();
        let title = format!("{DELIVERED}, {}", link.name);
        charts.extend(chart(format!("{id}-links-{}", charts.len()), &title, false, id, case.seconds, &lines, 0));
        for (name, title, step) in LINK_CHARTS {
            let lines: Vec<(String, &Series)> =
                link.directions.iter().flat_map(|d| of_direction(d, name)).filter(|(_, s)| any_above_zero(s)).collect();
            let title = if case.links.len() > 1 { format!("{title}, {}", link.name) } else { (*title).to_string() };
            charts.extend(chart(format!("{id}-links-{}", charts.len()), &title, *step, id, case.seconds, &lines, 0));
        }
    }
    charts
}

/// The charts of TCP as its host sees it.
pub fn tcp(case: &CaseRecord, id: &str) -> Vec<Chart> {
    let lines = sampled(case, "cwnd");
    chart(format!("{id}-tcp"), "TCP congestion window", true, id, case.seconds, &lines, 0).into_iter().collect()
}

/// The same workload's series in every case, where at least two cases have them, and the number of charts left out.
pub fn compared<'a>(record: &'a Record) -> (Vec<Chart>, usize) {
    let cases: Vec<_> = record.cases.iter().map(|case| (case, grouped(&case.workloads))).collect();
    let all = grouped(record.cases.iter().flat_map(|case| &case.workloads));
    let x_max = record.cases.iter().map(|case| case.seconds).fold(0.0, f64::max);
    let (mut charts, mut left_out) = (Vec::new(), 0);
    let drawn = |runs: &[&'a WorkloadRecord]| runs[0].shown.series.iter();
    for (key, runs, series) in all.iter().flat_map(|(key, runs)| drawn(runs).map(move |series| (key, runs, series))) {
        let having = |runs: &[&WorkloadRecord]| runs.iter().any(|w| w.series.iter().any(|s| s.quantity == *series));
        let runs_of: Vec<&[&'a WorkloadRecord]> =
            cases.iter().map(|(_, groups)| groups.get(key).map(Vec::as_slice).unwrap_or_default()).collect();
        if runs_of.iter().filter(|runs| having(runs)).count() < 2 {
            continue;
        }
        if charts.len() >= COMPARED_MAX {
            left_out += 1;
            continue;
        }
        let (mut lines, mut lines_left_out) = (Vec::new(), 0);
        // Of many runs the first of each case: the others stand in the case's own charts, or in the record.
        let each = (LINES_MAX / cases.len()).max(1);
        for ((case, _), runs) in cases.iter().zip(runs_of) {
            let several = runs.len() > 1;
            let with = |w: &&'a WorkloadRecord| Some((*w, w.series.iter().find(|s| s.quantity == *series)?));
            let mut drawn = 0;
            for (w, series) in runs.iter().filter_map(with) {
                if drawn == each {
                    lines_left_out += 1;
                    continue;
                }
                let label = if several { format!("{} {}", case.name, number(w)) } else { case.name.clone() };
                lines.push((label, series));
                drawn += 1;
            }
        }
        let name = if runs.iter().all(|run| run.copy == runs[0].copy) { runs[0].label() } else { runs[0].name.clone() };
        let title = format!("{name}: {}", quantity::name(series));
        let id = format!("compared-{}", charts.len());
        charts.extend(chart(id, &title, false, "compared", x_max, &lines, lines_left_out));
    }
    charts.extend(delivered_compared(record, x_max));
    (charts, left_out)
}

/// Thins the lines of a page's charts so that all together have at most [`PAGE_POINTS_MAX`] points, as far as
/// [`POINTS_LEAST`] allows.
pub fn fit(charts: Vec<&mut Chart>) {
    let mut lines: Vec<&mut Line> = charts.into_iter().flat_map(|chart| &mut chart.lines).collect();
    let total: usize = lines.iter().map(|line| line.x.len()).sum();
    if total <= PAGE_POINTS_MAX {
        return;
    }
    let each = (PAGE_POINTS_MAX / lines.len()).max(POINTS_LEAST);
    for line in lines.iter_mut().filter(|line| line.x.len() > each) {
        let points: Vec<(f64, f64)> = line.x.iter().copied().zip(line.y.iter().copied()).collect();
        (line.x, line.y) = decimate(&points, each).into_iter().unzip();
    }
}

/// The delivery of each link's busier direction, a line for each case.
fn delivered_compared(record: &Record, x_max: f64) -> Vec<Chart> {
    let mut charts = Vec::new();
    let Some(first) = record.cases.first().filter(|_| record.cases.len() > 1) else { return charts };
    for link in &first.links {
        let same = |case: &CaseRecord| {
            let link = case.links.iter().find(|l| l.name == link.name)?;
            let busiest = link.directions.iter().max_by_key(|d| d.counters.delivered_bytes)?;
            let (_, rate) = delivered_rate(busiest)?;
            Some((case.name.clone(), rate))
        };
        let rates: Vec<(String, Series)> = record.cases.iter().filter_map(same).collect();
        let lines: Vec<(String, &Series)> = rates.iter().map(|(label, s)| (label.clone(), s)).collect();
        let title = format!("{DELIVERED}, {}", link.name);
        charts.extend(chart(format!("compared-link-{}", charts.len()), &title, false, "compared", x_max, &lines, 0));
    }
    charts
}

/// Bits a second that a direction delivered, from its cumulative bytes, in steps of at least [`RATE_STEP_S`].
fn delivered_rate(direction: &DirectionRecord) -> Option<(String, Series)> {
    let bytes = direction.series.iter().find(|s| s.quantity == "delivered_bytes")?;
    let mut points = Vec::new();
    let mut last = *bytes.points.first()?;
    for point in bytes.points.iter().filter(|point| can_be_drawn(point)) {
        let span = point.0 - last.0;
        if span >= RATE_STEP_S {
            points.push((point.0, (point.1 - last.1) * 8.0 / span));
            last = *point;
        }
    }
    Some((direction.label(), Series::new("delivered_rate", Unit::BitsPerSecond, points)))
}

/// `left_out`: lines that there are besides `lines`, of which the first [`LINES_MAX`] are drawn.
fn chart(
    id: String,
    title: &str,
    step: bool,
    group: &str,
    seconds: f64,
    lines: &[(String, &Series)],
    left_out: usize,
) -> Option<Chart> {
    let mut drawable: Vec<&(String, &Series)> = lines.iter().filter(|(_, s)| has_points(s)).collect();
    let total = drawable.len() + left_out;
    drawable.truncate(LINES_MAX);
    let drawn = drawable.len();
    let note =
        if total > drawn { format!("{drawn} of {total} lines drawn; the record holds all.") } else { String::new() };
    let unit = &drawable.first()?.1.unit;
    let values = || drawable.iter().flat_map(|(_, s)| &s.points).filter(|point| can_be_drawn(point));
    let largest = values().map(|(_, y)| y.abs()).fold(0.0, f64::max);
    let (shown_unit, factor) = quantity::axis_unit(unit, largest);
    let end = values().map(|(x, _)| *x).fold(if seconds.is_finite() { seconds } else { 0.0 }, f64::max);
    let lines = drawable.iter().map(|(label, series)| line(label, series, factor)).collect();
    let y_label = if shown_unit.is_empty() { title.to_string() } else { shown_unit.clone() };
    let (title, group) = (title.to_string(), group.to_string());
    Some(Chart {
        id,
        title,
        note,
        y_label,
        unit: shown_unit,
        x_max: end.max(1e-3),
        step,
        group,
        lines,
        ..Chart::default()
    })
}

fn line(label: &str, series: &Series, factor: f64) -> Line {
    let mut line = Line { label: label.to_string(), ..Line::default() };
    let mut last = f64::NEG_INFINITY;
    for (x, y) in decimate(&series.points, POINTS_MAX) {
        // uPlot joins lines by time: two points at one instant would hide one of them.
        let rounded = (x * 1e6).round() / 1e6;
        let x = if rounded > last { rounded } else { ((last + 1e-6) * 1e6).round() / 1e6 };
        last = x;
        line.x.push(x);
        line.y.push(quantity::round_to_digits(y * factor, 5));
    }
    line
}

fn of_direction<'a>(direction: &'a DirectionRecord, name: &'a str) -> impl Iterator<Item = (String, &'a Series)> {
    direction.series.iter().filter(move |s| s.quantity == name).map(|s| (direction.label(), s))
}

/// The hosts' samples of one name, flows with the most samples first: of a page's many, the ones that last.
fn sampled<'a>(case: &'a CaseRecord, name: &str) -> Vec<(String, &'a Series)> {
    let all = case.tcp_samples.iter().flat_map(|t| t.series.iter().map(move |s| (flow_label(t), s)));
    let mut lines: Vec<(String, &Series)> = all.filter(|(_, s)| s.quantity == name).collect();
    lines.sort_by_key(|(_, s)| std::cmp::Reverse(s.points.len()));
    lines
}

fn flow_label(samples: &TcpFlowSamples) -> String {
    format!("{}: {}", samples.host, samples.flow)
}

fn has_points(series: &Series) -> bool {
    series.points.iter().any(can_be_drawn)
}

fn any_above_zero(series: &Series) -> bool {
    series.points.iter().any(|(_, y)| *y > 0.0)
}

/// Title of the charts of what links delivered: IP packets or frames, headers included.
const DELIVERED: &str = "Delivered over the link";
/// Shorter steps would show single packets on thin links.
const RATE_STEP_S: f64 = 0.95;
/// Series of a link's direction that are drawn: name, title, whether a value holds until the next.
const LINK_CHARTS: &[(&str, &str, bool)] = &[
    ("queue", "Queue", false),
    ("bit_errors", "Bit errors so far", true),
    ("damaged_packets", "Damaged packets so far", true),
    ("lost_packets", "Lost packets so far", true),
    ("dropped_packets", "Packets dropped by the full queue so far", true),
];
/// Charts that compare workloads' series between cases.
const COMPARED_MAX: usize = 24;
/// Points of all lines of a page: about 20 bytes each.
const PAGE_POINTS_MAX: usize = 400_000;
/// Points of a line at least.
const POINTS_LEAST: usize = 50;
/// More lines cannot be told apart; the first ones are drawn.
pub const LINES_MAX: usize = 12;
