//! The catalogue: list it, explain a link.

use super::BadInput;
use crate::cli::LinksAction;
use crate::terminal;
use bentpipe_lab::report::quantity;
use bentpipe_lab::scenario::{find_link, read_traces};
use bentpipe_link::catalogue::{self, LinkFile};
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_link::queue::QueueLimit;
use bentpipe_net::stack::PRESETS;
use bentpipe_net::time::Instant;
use bentpipe_net::units::BitRate;
use std::path::Path;
use std::process::ExitCode;
use toml::Table;

/// Lists the catalogue or explains one link.
pub fn run(action: Option<LinksAction>) -> anyhow::Result<ExitCode> {
    let text = match action {
        None => list()?,
        Some(LinksAction::Show { link, set }) => show(&link, &set)?,
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the TCP presets.
pub fn presets() -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for preset in PRESETS {
        text.push_str(&format!("{:<20} {}\n", preset.name, preset.about));
    }
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A link with overrides from the command line.
pub fn load(link: &str, set: &[String]) -> Result<(LinkFile, LinkConfig), BadInput> {
    let file = find_link(link, Path::new("")).map_err(BadInput)?;
    let mut over = Table::new();
    for text in set {
        let one = catalogue::parse_override(text)?;
        bentpipe_link::config::merge(&mut over, one);
    }
    read_traces(&mut over, Path::new(""))
        .map_err(|problem| BadInput(format!("{link} with --set: {}: {}", problem.key, problem.message)))?;
    let config = file.with(over).map_err(|problem| {
        let source = if set.is_empty() {
            file.source_name.clone()
        } else {
            format!("{link} with --set {}", set.join(" --set "))
        };
        BadInput(format!("{source}: {}: {}", problem.key, problem.message))
    })?;
    Ok((file, config))
}

fn list() -> Result<String, BadInput> {
    let mut rows = vec![["NAME", "FORWARD", "RETURN", "ROUND TRIP", "WHAT"].map(str::to_owned)];
    for name in catalogue::names() {
        let (_, config) = load(name, &[])?;
        rows.push([
            name.to_owned(),
            rate(&config.forward).to_string(),
            rate(&config.back).to_string(),
            config.round_trip().to_string(),
            config.title,
        ]);
    }
    let widths: Vec<usize> = (0..4).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(&row[4]);
        text.push('\n');
    }
    text.push_str("\nbentpipe links show NAME explains one, with the source of every value.\n");
    Ok(text)
}

/// The queue's limit if it is a FIFO, else the name of its discipline.
fn queue(direction: &DirectionConfig) -> String {
    match direction.queue.fifo_limit() {
        Some(QueueLimit::Bytes(bytes)) => quantity::bytes(bytes as f64).replace('\u{a0}', " "),
        _ => direction.queue.to_string(),
    }
}

fn show(link: &str, set: &[String]) -> Result<String, BadInput> {
    let (file, config) = load(link, set)?;
    let mut text = format!("{}: {}\n\n{}\n\n", file.name, config.title, config.summary.trim());
    text.push_str(&format!(
        "It carries {}; MTU {} B; configured round trip {}.\n",
        if config.carries_ethernet { "Ethernet frames (a bridge)" } else { "IP packets" },
        config.mtu,
        config.round_trip()
    ));
    for (name, direction) in [("forward", &config.forward), ("return", &config.back)] {
        text.push_str(&format!(
            "  {name:<8} {}{}, {} one way, queue {}, a full packet: {}\n",
            rate(direction),
            if direction.channels > 1 { format!(" in {} channels", direction.channels) } else { String::new() },
            direction.medium.one_way_delay,
            queue(direction),
            framed(direction, &config),
        ));
    }
    if let Some(circuit) = &config.circuit {
        let total: f64 = circuit.stages.iter().map(|stage| stage.time.as_secs_f64()).sum();
        let stages: Vec<String> = circuit.stages.iter().map(|s| format!("{} {}", s.name, s.time)).collect();
        text.push_str(&format!("  circuit  set-up {total:.2} s ({})\n", stages.join(", ")));
        if let Some(rule) = &circuit.on_demand {
            text.push_str(&format!(
                "           a call for each channel, {} to {}: one more when {:.0} % of those that are up are busy for {} \
                 (mean over {}), {} at once; one less after {}\n",
                rule.least,
                rule.channels,
                rule.target * 100.0,
                rule.call_after,
                rule.history,
                rule.at_once,
                rule.release_after
            ));
        }
    }
    if !set.is_empty() {
        text.push_str(&format!("\nWith --set {}. The file says:\n", set.join(" --set ")));
    }
    text.push_str("\nValues and their sources (! = an assumption of ours):\n");
    for value in file.provenance() {
        let mark = if value.assumed { '!' } else { ' ' };
        text.push_str(&format!("{mark} {} = {}\n      {}\n", value.key, value.value, value.source));
    }
    Ok(text)
}

fn rate(direction: &DirectionConfig) -> BitRate {
    BitRate::from_bps(direction.rate.highest().bps.saturating_mul(direction.channels as u64))
}

/// A full packet's size on the wire, and its transmission time on one channel.
fn framed(direction: &DirectionConfig, config: &LinkConfig) -> String {
    let length = config.mtu + if config.carries_ethernet { 14 } else { 0 };
    let bits = direction.framing.bits(length, config.carries_ethernet);
    let time = direction.rate.at(Instant::ZERO).0.time_for_bits(bits);
    format!("{} B framed, {:.3} ms", bits.div_ceil(8), time.as_millis_f64())
}
