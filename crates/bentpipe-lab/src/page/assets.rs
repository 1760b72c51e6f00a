//! Assets inside of every page: style, script, and uPlot.

/// Draws the charts whose JSON is in the same page.
pub const JS: &str = include_str!("../../assets/page.js");
/// The library that draws.
pub const UPLOT_JS: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const CSS: &str = include_str!("../../assets/page.css");
const UPLOT_CSS: &str = include_str!("../../assets/uplot/uPlot.min.css");

/// The page's style.
pub fn css() -> String {
    format!("{UPLOT_CSS}\n{CSS}")
}

/// JSON that may stand inside `<script>`: no character of it can end the element or a line.
pub fn script_safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            other => safe.push(other),
        }
    }
    safe
}
