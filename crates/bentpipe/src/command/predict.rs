//! The analytic models' predictions for a transfer.

use super::BadInput;
use super::links;
use crate::cli::{PredictArguments, TransferDirection};
use crate::terminal;
use bentpipe_lab::report::quantity;
use bentpipe_link::catalogue;
use bentpipe_link::config::merge;
use bentpipe_net::stack::TcpConfig;
use bentpipe_study::predict::{self, Direction, Inputs, Kind, Outcome, Prediction, Question, Simulated};
use std::process::ExitCode;
use toml::{Table, Value};

/// Prints the prediction as a table or as JSON.
pub fn run(arguments: &PredictArguments) -> anyhow::Result<ExitCode> {
    let (of_tcp, of_link): (Vec<String>, Vec<String>) =
        arguments.set.iter().cloned().partition(|text| text.trim_start().starts_with("tcp."));
    let (file, link) = links::load(&arguments.link, &of_link)?;
    let tcp = tcp_config(&arguments.tcp, &of_tcp)?;
    let question = Question {
        name: &file.name,
        link: &link,
        tcp: &tcp,
        direction: match arguments.direction {
            TransferDirection::Download => Direction::Download,
            TransferDirection::Upload => Direction::Upload,
        },
        bytes: arguments.bytes,
        loss: arguments.loss,
        connections: arguments.connections,
    };
    let mut prediction = predict::predict(&question).map_err(|error| BadInput(error.to_string()))?;
    if !arguments.formulas_only {
        prediction.simulate(&question);
    }
    let text = if arguments.json { prediction.to_json()? } else { table(&prediction, &arguments.tcp) };
    if arguments.json { terminal::print_json(&text) } else { terminal::print(&text) }?;
    Ok(ExitCode::SUCCESS)
}

/// The preset with `tcp.KEY=VALUE` of the command line on top.
pub fn tcp_config(preset: &str, set: &[String]) -> Result<TcpConfig, BadInput> {
    let mut settings = Table::from_iter([("preset".to_owned(), Value::String(preset.to_owned()))]);
    for text in set {
        if let Some(Value::Table(own)) = catalogue::parse_override(text)?.remove("tcp") {
            merge(&mut settings, own);
        }
    }
    TcpConfig::from_table(settings).map_err(|problem| {
        let place = match problem.key.as_str() {
            "preset" => format!("--tcp {preset}"),
            key => format!("--tcp {preset} --set {}: tcp.{key}", set.join(" --set ")),
        };
        BadInput(format!("{place}: {}", problem.message))
    })
}

fn table(prediction: &Prediction, preset: &str) -> String {
    let inputs = &prediction.inputs;
    let mut text = format!(
        "{} of {} over {}, TCP {preset}\n\n",
        prediction.direction,
        quantity::bytes(prediction.bytes as f64),
        prediction.link
    );
    for (name, value) in facts(inputs) {
        text.push_str(&format!("  {name:<12} {value}\n"));
    }
    let simulated = prediction.simulated.as_ref();
    text.push_str(&format!("\n{:<12} {:<9} {:>12} {:>14}  SOURCE\n", "MODEL", "KIND", "TIME", "GOODPUT"));
    for row in &prediction.rows {
        let kind = match row.kind {
            Kind::Bound => "bound",
            Kind::Steady => "steady",
            Kind::Transfer => "transfer",
        };
        text.push_str(&format!("{:<12} {kind:<9} ", row.model));
        match &row.outcome {
            Outcome::Predicted { seconds, goodput_bps } => {
                let (time, rate) = (quantity::seconds(*seconds), quantity::rate(*goodput_bps as f64));
                text.push_str(&format!("{time:>12} {rate:>14}  {}\n", row.source));
            }
            Outcome::NotApplicable { not_applicable } => {
                text.push_str(&format!("not applicable: {not_applicable}\n"));
            }
        }
    }
    if let Some(Simulated { runs, seconds, seconds_range: (least, most), goodput_bps }) = simulated {
        let (time, rate) = (quantity::seconds(*seconds), quantity::rate(*goodput_bps as f64));
        let runs = match runs {
            1 => "one run".to_owned(),
            runs => format!("median of {runs} runs, {} to {}", quantity::seconds(*least), quantity::seconds(*most)),
        };
        text.push_str(&format!("{:<12} {:<9} {time:>12} {rate:>14}  {runs}\n", "simulated", "transfer"));
    }
    text.push_str(
        "\nbound: no transfer is faster. steady: the rate of a transfer without end, its start left out. transfer: from \
         the\nclient's SYN until it has the last byte (download) or the last acknowledgement (upload).\n",
    );
    for note in &prediction.notes {
        text.push_str(&format!("Note: {note}\n"));
    }
    text.replace('\u{a0}', " ")
}

/// The inputs of the models, for people.
fn facts(inputs: &Inputs) -> Vec<(&'static str, String)> {
    let bytes = |bytes: u64| quantity::bytes(bytes as f64);
    let ratio = |ratio: Option<f64>| ratio.map_or("changes over time".to_owned(), |ratio| format!("{ratio:.3e}"));
    let window = match inputs.window_bytes {
        Some(window) => format!("{} ({} segments)", bytes(window), window / inputs.segment_bytes),
        None => "left to the system".to_owned(),
    };
    vec![
        (
            "rate",
            format!(
                "{}, {} of it application data; {} back",
                quantity::rate(inputs.rate_bps as f64),
                quantity::rate(inputs.payload_rate_bps as f64),
                quantity::rate(inputs.return_rate_bps as f64)
            ),
        ),
        (
            "segment",
            format!(
                "{} B of data in {} bits; an acknowledgement {} bits",
                inputs.segment_bytes, inputs.segment_bits, inputs.ack_bits
            ),
        ),
        (
            "round trip",
            format!(
                "{}: {} of delay, the rest is sending",
                quantity::seconds(inputs.rtt_seconds),
                quantity::seconds(inputs.delay_seconds)
            ),
        ),
        ("window", format!("{window}; {} fill the link", bytes(inputs.bandwidth_delay_product_bytes))),
        (
            "errors",
            format!("bit error ratio {}, segments lost {}", ratio(inputs.bit_error_ratio), ratio(inputs.segment_loss)),
        ),
        (
            "sender",
            format!(
                "{}, {} connection(s), initial window {}, slow start × {:.3} a round trip, an acknowledgement for {} \
                 segments",
                inputs.congestion_control,
                inputs.connections,
                inputs.initial_window,
                inputs.slow_start_growth,
                inputs.segments_per_ack
            ),
        ),
        (
            "time-outs",
            format!(
                "{}; of the SYN {}",
                quantity::seconds(inputs.timeout_seconds),
                quantity::seconds(inputs.syn_timeout_seconds)
            ),
        ),
    ]
}
