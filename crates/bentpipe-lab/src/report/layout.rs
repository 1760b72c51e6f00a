//! The parts of a page that any reader can lay out: sections, tables, cells, output of commands.

use super::summary::Tone;
use crate::page::Chart;
use serde::Serialize;

/// A part of the report with a heading.
#[derive(Default, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Paragraphs.
    pub texts: Vec<String>,
    /// Charts.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Output of commands.
    pub outputs: Vec<Output>,
}

/// A table.
#[derive(Default, Serialize)]
pub struct Table {
    /// Its heading.
    pub caption: String,
    /// Column headings.
    pub head: Vec<Cell>,
    /// Rows, the first cell each row's heading.
    pub rows: Vec<Vec<Cell>>,
    /// Long: folded away until asked for.
    pub fold: bool,
    /// Each row becomes a card on a narrow screen.
    pub cards: bool,
    /// Each row stands alone: its columns can be sorted.
    pub sorts: bool,
}

/// A table's cell.
#[derive(Clone, Default, Serialize)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// A second line, smaller.
    pub sub: String,
    /// `num`, `end`, `bar` or nothing.
    pub class: &'static str,
    /// `good`, `bad`, `warn` or nothing.
    pub tone: &'static str,
    /// Rows it spans, where more than one.
    pub rows: usize,
    /// A bar behind the cell, in per cent; drawn where above zero.
    pub bar: u32,
    /// The value by which its column is sorted, where the text would not do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
}

/// Output of a command.
#[derive(Serialize)]
pub struct Output {
    /// Which command, and how it ended.
    pub title: String,
    /// The command line.
    pub command: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Cell {
    /// Text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }
    /// A number, set to the right.
    pub fn num(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), class: "num", ..Cell::default() }
    }
    /// A verdict.
    pub fn tone(text: impl Into<String>, tone: Tone) -> Cell {
        // Rows that need attention come first.
        let order = match tone {
            Tone::Bad => 0.0,
            Tone::Warn => 1.0,
            Tone::Plain => 2.0,
            Tone::Good => 3.0,
        };
        Cell { text: text.into(), tone: class(tone), order: Some(order), ..Cell::default() }
    }
    /// Set to the right.
    pub fn end(self) -> Cell {
        Cell { class: "end", ..self }
    }
    /// Sorted by this value.
    pub fn order(self, value: f64) -> Cell {
        Cell { order: Some(value).filter(|value| value.is_finite()), ..self }
    }
    /// With a second line.
    pub fn sub(self, sub: impl Into<String>) -> Cell {
        Cell { sub: sub.into(), ..self }
    }
}

/// The style's name for a tone.
pub fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warn => "warn",
        Tone::Plain => "",
    }
}
