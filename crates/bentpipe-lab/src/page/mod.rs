//! A page of ours: one HTML file that loads nothing from anywhere, with charts that its own script draws. The report of a
//! run and that of an experiment are such pages.
//!
//! Everything shown is treated as hostile text: the templates escape it all. Only what is part of the program (`assets`)
//! and the charts, as JSON that cannot end its element, stand there as they are.

mod assets;
mod chart;

pub use chart::{Chart, Line};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde::Serialize;

/// A filter for a template's texts.
pub type Filter = fn(String) -> String;

/// The parts of a page.
pub struct Page<'a> {
    /// Its template, which extends `page.html`.
    pub template: &'static str,
    /// The charts it has, in the order in which they stand there.
    pub charts: Vec<&'a Chart>,
    /// Filters that only this page has.
    pub filters: &'a [(&'static str, Filter)],
}

impl Page<'_> {
    /// The page, with `view` as what the template shows.
    pub fn render(&self, view: impl Serialize) -> String {
        let own = |text: &str| Value::from_safe_string(text.to_string());
        let context = minijinja::context! {
            view => Value::from(Serde(view)),
            css => own(&assets::css()),
            uplot => own(assets::UPLOT_JS),
            js => own(assets::JS),
            data => own(&chart::json(&self.charts)),
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the default delimiters"));
        for (name, filter) in self.filters {
            environment.add_filter(*name, *filter);
        }
        // The names end in .html: autoescape is on.
        let rendered = environment
            .add_template("page.html", BASE)
            .and_then(|()| environment.add_template("charts.html", CHARTS))
            .and_then(|()| environment.add_template("own.html", self.template))
            .and_then(|()| environment.get_template("own.html")?.render(context));
        rendered.expect("the templates are part of the program, and tests render all of them")
    }
}

const BASE: &str = include_str!("../../assets/page.html");
const CHARTS: &str = include_str!("../../assets/charts.html");
