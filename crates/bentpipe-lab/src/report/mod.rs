//! The report: a record made readable, as one offline HTML file and as text for a terminal.
//!
//! Both say the same: `summary` decides what a run amounts to, [`quantity`] how a number is written; `html` and
//! `text` only lay it out. Everything shown comes from the record, and all of it is treated as hostile text.

mod bills;
mod charts;
mod gateways;
mod html;
mod layout;
pub mod quantity;
mod repetitions;
mod sections;
mod summary;
mod text;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use crate::record::Record;

/// The record as one HTML file that loads nothing from anywhere.
#[must_use]
pub fn html(record: &Record) -> String {
    html::render(record)
}

/// The record as text at most `width` columns wide, with ANSI colours if `colour`.
#[must_use]
pub fn text(record: &Record, width: usize, colour: bool) -> String {
    text::render(record, width, colour)
}
