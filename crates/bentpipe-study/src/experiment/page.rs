//! The report of an experiment as one HTML file that loads nothing from anywhere: the table, and the paper's figure with
//! published points and ours: a [`Page`].

use super::chart::charts;
use super::engine::Outcome;
use super::judge::{Lookup, Verdict};
use super::load::Experiment;
use super::table::Table;
use bentpipe_lab::page::{Chart, Filter, Page};
use serde::Serialize;

#[derive(Serialize)]
struct View<'a> {
    table: &'a Table,
    summary: String,
    class: &'static str,
    remedies: Vec<&'a str>,
    charts: Vec<Chart>,
    assumptions: Vec<(&'a str, &'a str)>,
    scenario: &'a str,
    published: &'a str,
    readme: &'a str,
    again: String,
    version: &'static str,
}

/// The report.
#[must_use]
pub fn html(experiment: &Experiment, outcome: &Outcome, table: &Table) -> String {
    let charts = charts(Lookup { experiment, outcome }, &table.rows);
    let totals = table.totals();
    let view = View {
        summary: super::table::summary(std::slice::from_ref(table)),
        class: if totals.outside > 0 { "warn" } else { "good" },
        remedies: experiment.published.remedies.iter().map(String::as_str).collect(),
        charts,
        assumptions: experiment.scenario.assumptions.iter().map(|(key, why)| (key.as_str(), why.as_str())).collect(),
        scenario: &experiment.scenario.text,
        published: &experiment.published_text,
        readme: &experiment.readme,
        again: format!(
            "bentpipe experiments run {}{}",
            experiment.id,
            if table.mode == "live" { " --live" } else { "" }
        ),
        version: env!("CARGO_PKG_VERSION"),
        table,
    };
    let filters: &[(&str, Filter)] =
        &[("tone", |verdict| tone(&verdict).to_owned()), ("words", |verdict| verdict.replace('-', " "))];
    Page { template: TEMPLATE, charts: view.charts.iter().collect(), filters }.render(&view)
}

fn tone(verdict: &str) -> &'static str {
    let is = |v: Verdict| serde_json::to_value(v).is_ok_and(|name| name == verdict);
    if is(Verdict::Outside) {
        "bad"
    } else if is(Verdict::CannotBeCompared) {
        "warn"
    } else {
        "good"
    }
}

const TEMPLATE: &str = include_str!("../../assets/experiment.html");
