//! The report of an experiment as one HTML file that loads nothing from anywhere: the table, and the paper's figure with
//! published points and ours. Everything shown is treated as hostile text.

use super::chart::{Chart, Line, charts};
use super::engine::Outcome;
use super::judge::{Lookup, Verdict};
use super::load::Experiment;
use super::table::Table;
use crate::report::assets;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value};
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
    let data = json(&charts);
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
    let own = |text: &str| Value::from_safe_string(text.to_string());
    let context = minijinja::context! {
        view => Value::from(Serde(view)),
        css => own(&assets::css()),
        uplot => own(assets::UPLOT_JS),
        js => own(assets::JS),
        data => own(&data),
    };
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the usual delimiters"));
    environment.add_filter("tone", |verdict: String| tone(&verdict));
    environment.add_filter("words", |verdict: String| verdict.replace('-', " "));
    // The name ends in .html: autoescape is on.
    let rendered = environment
        .add_template("experiment.html", TEMPLATE)
        .and_then(|()| environment.get_template("experiment.html")?.render(context));
    rendered.expect("the template is part of the program, and a test renders it")
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

fn json(charts: &[Chart]) -> String {
    #[derive(Serialize)]
    struct WithLines<'a> {
        #[serde(flatten)]
        chart: &'a Chart,
        lines: &'a [Line],
    }
    let whole: Vec<WithLines> = charts.iter().map(|chart| WithLines { chart, lines: &chart.lines }).collect();
    assets::script_safe(&serde_json::to_string(&whole).expect("numbers and text only"))
}

const TEMPLATE: &str = include_str!("../../assets/experiment.html");
