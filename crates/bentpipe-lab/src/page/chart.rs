//! A chart as the page's script reads it.

use super::assets;
use serde::Serialize;

/// A chart with its data.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Chart {
    /// The element it is drawn in.
    pub id: String,
    /// Says what is drawn.
    pub title: String,
    /// A remark on lines that were left out; empty if none were.
    pub note: String,
    /// Label of the vertical axis.
    pub y_label: String,
    /// Unit of the values, for the legend.
    pub unit: String,
    /// The quantity of the horizontal axis, with its unit; empty: seconds since the start.
    pub x_label: String,
    /// Left end of the horizontal axis.
    pub x_min: f64,
    /// Its right end.
    pub x_max: f64,
    /// The horizontal axis is logarithmic.
    pub x_log: bool,
    /// A value holds until the next point.
    pub step: bool,
    /// Charts with the same group share their cursor and zoom.
    pub group: String,
    /// The lines: in `json` only, a template has no use for them.
    #[serde(skip)]
    pub lines: Vec<Line>,
}

/// One line, or points that were published.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// On the horizontal axis, strictly growing.
    pub x: Vec<f64>,
    /// Values, in the chart's unit.
    pub y: Vec<f64>,
    /// Symbols only: these points were published.
    pub published: bool,
}

/// The charts as JSON that may stand inside `<script>`: no character of it can end the element or a line.
pub fn json(charts: &[&Chart]) -> String {
    #[derive(Serialize)]
    struct WithLines<'a> {
        #[serde(flatten)]
        chart: &'a Chart,
        lines: &'a [Line],
    }
    let whole: Vec<WithLines> = charts.iter().map(|chart| WithLines { chart, lines: &chart.lines }).collect();
    assets::script_safe(&serde_json::to_string(&whole).expect("numbers and text only"))
}
