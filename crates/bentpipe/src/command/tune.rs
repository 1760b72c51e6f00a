//! Settings of ordinary hosts for a link.

use super::{BadInput, links, predict};
use crate::cli::{TransferDirection, TuneArguments};
use crate::stop;
use crate::terminal::{self, print_line};
use bentpipe_host::namespace::acquire_privilege;
use bentpipe_lab::events::Sink;
use bentpipe_lab::report::quantity;
use bentpipe_study::predict::Direction;
use bentpipe_study::runner::{Event, Live, Runner, Subject};
use bentpipe_study::tune::{
    self, DEVICE, Effect, Measured, MtuRow, PathInputs, Predicted, Question, QueueRow, ROUTE_COMMAND, ROUTE_EXPLAINED,
    SetUp, Setting, Side, Summary, TuneError, Tuning, Verdict, Verified, VerifiedQueue, VerifyError, VerifyQuestion,
};
use std::num::NonZeroUsize;
use std::process::ExitCode;

/// A live run was later than its limits.
const EXIT_INVALID: u8 = 3;
/// Live transfers of the default sizes take up to a minute each before tuning.
const VERIFY_SECONDS_MAX: f64 = 60.0;

/// Prints the answer as tables or as JSON.
pub fn run(arguments: &TuneArguments) -> anyhow::Result<ExitCode> {
    let (of_tcp, of_link): (Vec<String>, Vec<String>) =
        arguments.set.iter().cloned().partition(|text| text.trim_start().starts_with("tcp."));
    let (file, link) = links::load(&arguments.link, &of_link)?;
    let tcp = predict::tcp_config(&arguments.tcp, &of_tcp)?;
    // Before the process has a second thread.
    let privilege = match arguments.verify {
        true => Some(acquire_privilege().map_err(|error| BadInput(error.to_string()))?),
        false => None,
    };
    let directions = match arguments.direction {
        Some(TransferDirection::Download) => vec![Direction::Download],
        Some(TransferDirection::Upload) => vec![Direction::Upload],
        None => vec![Direction::Download, Direction::Upload],
    };
    let question = Question {
        name: &file.name,
        link: &link,
        tcp: &tcp,
        directions,
        sizes: arguments.bytes.clone(),
        connections: arguments.connections,
    };
    let mut tuning = tune::tune(&question).map_err(bad_question)?;
    let mut code = ExitCode::SUCCESS;
    if let Some(privilege) = privilege {
        let stop = stop::flag_on_signals()?;
        let seconds_max = if arguments.bytes.is_empty() { VERIFY_SECONDS_MAX } else { f64::INFINITY };
        let question = VerifyQuestion { kind: &arguments.link, set: &of_link, seconds_max };
        let (world, workers) = (&Live(privilege), NonZeroUsize::MIN);
        let mut runner = Runner { world, workers, attempts: 1, stop: &stop, sink: &mut RunLines };
        match tuning.verify(&question, &mut runner) {
            Ok(()) => {}
            Err(VerifyError::Interrupted) => return Ok(ExitCode::from(stop::EXIT_INTERRUPTED)),
            Err(VerifyError::Scenario(problem)) => {
                return Err(BadInput(format!("--verify: {problem}")).into());
            }
            Err(error) => return Err(error.into()),
        }
        let late = |row: &Verified| !(row.before.invalid.is_empty() && row.after.invalid.is_empty());
        let late_queue = |row: &VerifiedQueue| !(row.before.invalid.is_empty() && row.after.invalid.is_empty());
        if tuning.verified.iter().flatten().any(late) || tuning.verified_queues.iter().flatten().any(late_queue) {
            code = ExitCode::from(EXIT_INVALID);
        }
    }
    let text = if arguments.json { tuning.to_json()? } else { tables(&tuning) };
    if arguments.json { terminal::print_json(&text) } else { terminal::print(&text) }?;
    Ok(code)
}

/// A line on standard error for each run.
struct RunLines;

impl Sink<Event> for RunLines {
    fn event(&mut self, event: &Event) {
        let Event::RunStarted { run } = event else { return };
        if let Subject::Transfer { direction, bytes, tuned, runs } = &run.subject {
            let (state, number) = (if *tuned { "tuned" } else { "as it is" }, run.number);
            print_line(format_args!(
                "bentpipe: measuring: {direction} of {bytes} bytes, {state}, run {number} of {runs}"
            ));
        }
    }
}

fn bad_question(error: TuneError) -> BadInput {
    let option = match &error {
        TuneError::TooLong { .. } | TuneError::Sizes(_) => "--bytes: ",
        _ => "",
    };
    BadInput(format!("{option}{error}"))
}

fn tables(tuning: &Tuning) -> String {
    let connections = match tuning.connections {
        1 => String::new(),
        n => format!(", {n} connections"),
    };
    let mut text = format!("{}: what to set on hosts that are now {:?}{connections}\n\n", tuning.link, tuning.tcp);
    for path in &tuning.paths {
        text.push_str(&path_line(path));
    }
    text.push_str(&set_up_line(tuning.set_up.as_ref()));
    let (recommended, others): (Vec<&Setting>, Vec<&Setting>) =
        tuning.settings.iter().partition(|setting| setting.verdict == Verdict::Recommended);
    text.push_str("\nRECOMMENDED\n");
    if recommended.is_empty() {
        text.push_str("  nothing: no setting makes a transfer of these sizes faster\n");
    }
    for setting in recommended {
        text.push_str(&recommended_lines(setting));
    }
    if !others.is_empty() {
        text.push_str("\nNOT RECOMMENDED\n");
        for setting in others {
            text.push_str(&other_lines(setting));
        }
    }
    if !tuning.left_alone.is_empty() {
        text.push_str("\nRIGHT AS IT IS\n");
        for what in &tuning.left_alone {
            text.push_str(&wrapped("  ", what));
        }
    }
    text.push_str(&command_lines(tuning));
    if !tuning.linux_cannot.is_empty() {
        text.push_str("\nWHAT LINUX CANNOT SET\n");
        for what in &tuning.linux_cannot {
            text.push_str(&wrapped("  ", what));
        }
    }
    if !tuning.mtu.is_empty() {
        text.push_str(&mtu_table(&tuning.mtu));
    }
    if !tuning.queues.is_empty() {
        text.push_str(&queue_table(&tuning.queues));
    }
    text.push_str(&predicted_table(&tuning.predicted));
    if let Some(verified) = &tuning.verified {
        text.push_str(&verified_table(verified));
    }
    if let Some(queues) = tuning.verified_queues.as_ref().filter(|queues| !queues.is_empty()) {
        text.push_str(&verified_queue_table(queues));
    }
    for note in &tuning.notes {
        text.push_str(&wrapped("", &format!("Note: {note}")));
    }
    text.replace('\u{a0}', " ")
}

fn path_line(path: &PathInputs) -> String {
    let inputs = &path.inputs;
    let limit = path.acknowledged_bps.map_or_else(String::new, |limit| {
        format!("; its acknowledgements fit for {} (RFC 3449 §2)", quantity::rate(limit as f64))
    });
    let line = format!(
        "{}: {}, {} of it application data; round trip {}; {} fill it{limit}",
        path.direction,
        quantity::rate(inputs.rate_bps as f64),
        quantity::rate(inputs.payload_rate_bps as f64),
        quantity::seconds(inputs.rtt_seconds),
        quantity::bytes(inputs.bandwidth_delay_product_bytes as f64)
    );
    wrapped("  ", &line)
}

fn set_up_line(set_up: Option<&SetUp>) -> String {
    let Some(set_up) = set_up else { return String::new() };
    let advice = match set_up.syn_retries_needed {
        Some(retries) => format!("too early: {retries} retries outlast twice the set-up"),
        None => "late enough".to_owned(),
    };
    let line = format!(
        "set-up: {}; meanwhile the terminal sends {} SYNs and, with {} retries, gives up after {}: {advice}",
        quantity::seconds(set_up.seconds),
        set_up.syns,
        set_up.syn_retries,
        quantity::seconds(set_up.gives_up_seconds)
    );
    wrapped("  ", &line)
}

/// `initial_window = 40 at the hub, which sends`.
fn values(setting: &Setting) -> String {
    let mut parts = Vec::new();
    for side in Side::BOTH {
        let own: Vec<String> = setting.values.iter().filter(|atom| atom.host == side).map(tune::Atom::text).collect();
        if own.is_empty() {
            continue;
        }
        let role = match setting.directions[..] {
            ["download"] if side == Side::Hub => " (sender)",
            ["upload"] if side == Side::Terminal => " (sender)",
            [_] => " (receiver)",
            _ => "",
        };
        parts.push(format!("{}{role}: {}", side.name(), own.join(", ")));
    }
    parts.join("; ")
}

fn recommended_lines(setting: &Setting) -> String {
    let name = format!("{}, {}", setting.name, setting.directions.join(" and "));
    let mut text = wrapped("  ", &format!("{name}  [{}]", values(setting)));
    if setting.values.iter().any(Tuning::is_allowed_anyway) {
        text.push_str(&wrapped("      ", "Linux needs no command for a window within its default limits."));
    }
    text.push_str(&wrapped("      ", &format!("why: {} ({})", setting.why, setting.source)));
    text.push_str(&wrapped("      ", &format!("gain with the others: {}", effects(&setting.effects))));
    text
}

fn other_lines(setting: &Setting) -> String {
    let verdict = match setting.verdict {
        Verdict::NoCommand => "faster, but no command",
        Verdict::Loss => "a loss",
        _ => "no gain",
    };
    let name = format!("{}, {}  [{}]", setting.name, setting.directions.join(" and "), values(setting));
    let mut text = wrapped("  ", &format!("{name}: {verdict}: {}", effects(&setting.effects)));
    text.push_str(&wrapped("      ", &format!("tried because: {} ({})", setting.why, setting.source)));
    text
}

fn effects(effects: &[Effect]) -> String {
    if effects.is_empty() {
        return "the others cannot be without it".to_owned();
    }
    let one = |effect: &Effect| {
        let idle = if effect.after_idle { " after a pause" } else { "" };
        let percent = (effect.ratio.ratio - 1.0) * 100.0;
        let size = quantity::bytes(effect.bytes as f64);
        format!("{} {size}{idle} {}", effect.direction, change(percent))
    };
    effects.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `−38 %` of the time.
fn change(percent: f64) -> String {
    let rounded = percent.round();
    match rounded {
        _ if percent.abs() < 0.05 => "±0\u{a0}%".to_owned(),
        _ if rounded == 0.0 => format!("{}{:.1}\u{a0}%", sign(percent), percent.abs()),
        _ => format!("{}{:.0}\u{a0}%", sign(percent), rounded.abs()),
    }
}

fn sign(value: f64) -> char {
    if value < 0.0 { '−' } else { '+' }
}

fn command_lines(tuning: &Tuning) -> String {
    if tuning.commands.is_empty() {
        return "\nCOMMANDS FOR LINUX\n  none\n".to_owned();
    }
    let mut text = "\nCOMMANDS FOR LINUX (as root; they last until the next boot)\n".to_owned();
    let route = tuning.commands.iter().any(|command| command.text.contains("$ROUTE"));
    if route {
        text.push_str(&format!("  # {ROUTE_EXPLAINED}; here: the default route\n"));
    }
    for side in Side::BOTH {
        let own: Vec<_> = tuning.commands.iter().filter(|command| command.host == side).collect();
        if own.is_empty() {
            continue;
        }
        text.push_str(&format!("  # at the {}\n", side.name()));
        if own.iter().any(|command| command.text.contains("$ROUTE")) {
            text.push_str(&format!("  {ROUTE_COMMAND}\n"));
        }
        for command in own {
            text.push_str(&format!("  {}\n", command.text));
        }
    }
    text
}

fn mtu_table(rows: &[MtuRow]) -> String {
    let mut text = format!(
        "\n{:<9} {:>5} {:>11} {:>12} {:>14} {:>18}\n",
        "MTU", "BYTES", "EFFICIENCY", "ONE PACKET", "THE TRANSFER", "A PING DURING IT"
    );
    let seconds = |value: Option<f64>| value.map_or("-".to_owned(), quantity::seconds);
    for row in rows {
        let efficiency = row.efficiency.map_or("changes".to_owned(), |share| format!("{:.1} %", share * 100.0));
        text.push_str(&format!(
            "{:<9} {:>5} {efficiency:>11} {:>12} {:>14} {:>18}\n",
            row.direction,
            row.mtu,
            quantity::seconds(row.packet_seconds),
            seconds(row.seconds),
            seconds(row.ping_seconds)
        ));
    }
    text.push_str(&wrapped(
        "",
        "Efficiency is the closed form: application bits that arrive ÷ link bits, headers, framing and damaged packets taken \
         off. The transfer is the largest of the sizes, simulated with all that is recommended; the ping waits in the same \
         queue.",
    ));
    text
}

fn queue_table(rows: &[QueueRow]) -> String {
    let mut text = format!(
        "\n{:<9} {:<28} {:>13} {:>17}  {}\n",
        "QUEUE", "AT THE SENDER'S TRANSMITTER", "THE TRANSFER", "A PING DURING IT", "VERDICT"
    );
    let seconds = |value: Option<f64>| value.map_or("-".to_owned(), quantity::seconds);
    for row in rows {
        let verdict = match row.verdict {
            _ if row.is_present => "now",
            Verdict::Recommended => "recommended",
            Verdict::Loss => "a loss",
            Verdict::NoGain | Verdict::NoCommand => "no gain",
        };
        text.push_str(&format!(
            "{:<9} {:<28} {:>13} {:>17}  {verdict}\n",
            row.direction,
            row.discipline.text(),
            seconds(row.seconds),
            seconds(row.ping_seconds)
        ));
    }
    let recommended: Vec<&QueueRow> = rows.iter().filter(|row| row.verdict == Verdict::Recommended).collect();
    for row in &recommended {
        text.push_str(&format!("  # {}, in the link's file\n  {}\n", row.direction, row.keys));
        text.push_str(&format!("  # or on Linux, where {DEVICE} of the {} is the transmitter\n", row.host.name()));
        text.push_str(&format!("  {}\n", row.command));
    }
    text.push_str(&wrapped(
        "",
        "The transfer is the largest of the sizes, simulated with all that is recommended on the hosts. Recommended is what has most \
         power, 1 ÷ (transfer · ping), if that is a tenth more than now and no transfer takes a tenth longer.",
    ));
    text
}

fn verified_queue_table(rows: &[VerifiedQueue]) -> String {
    let mut text = format!(
        "\n{:<9} {:<28} {:>12} {:>12} {:>12} {:>12}\n",
        "QUEUE", "MEASURED LIVE", "TRANSFER", "(predicted)", "PING", "(predicted)"
    );
    let seconds = |value: Option<f64>| value.map_or("-".to_owned(), quantity::seconds);
    for row in rows {
        for measured in [&row.before, &row.after] {
            text.push_str(&format!(
                "{:<9} {:<28} {:>12} {:>12} {:>12} {:>12}\n",
                row.direction,
                measured.discipline.text(),
                seconds(measured.measured.0),
                seconds(measured.predicted.0),
                seconds(measured.measured.1),
                seconds(measured.predicted.1)
            ));
            for why in &measured.invalid {
                text.push_str(&wrapped("  ", &format!("invalid: {why}")));
            }
        }
    }
    text
}

fn predicted_table(rows: &[Predicted]) -> String {
    let mut text = format!(
        "\n{:<31} {:>11} {:>14} {:>11} {:>11} {:>7}\n",
        "PREDICTED (simulated)", "NOW", "TERMINAL ONLY", "HUB ONLY", "BOTH", "GAIN"
    );
    for row in rows {
        let idle = if row.after_idle { " after a pause" } else { "" };
        let what = format!("{} {}{idle}", row.direction, quantity::bytes(row.bytes as f64));
        text.push_str(&format!(
            "{what:<31} {:>11} {:>14} {:>11} {:>11} {:>7}\n",
            summary(&row.before),
            summary(&row.terminal_only),
            summary(&row.hub_only),
            summary(&row.after),
            gain(row.before.seconds, row.after.seconds)
        ));
    }
    if let Some(runs) = rows.iter().map(|row| row.before.runs).max().filter(|runs| *runs > 1) {
        text.push_str(&format!("Medians of up to {runs} runs.\n"));
    }
    text
}

fn summary(summary: &Summary) -> String {
    match (summary.seconds, summary.failed) {
        (Some(seconds), 0) => quantity::seconds(seconds),
        (Some(seconds), failed) => format!("{} ({failed} failed)", quantity::seconds(seconds)),
        (None, _) => "fails".to_owned(),
    }
}

fn gain(before: Option<f64>, after: Option<f64>) -> String {
    match (before, after) {
        (Some(before), Some(after)) => change((after / before - 1.0) * 100.0),
        (None, Some(_)) => "works".to_owned(),
        _ => "-".to_owned(),
    }
}

fn verified_table(rows: &[Verified]) -> String {
    let mut text = format!(
        "\n{:<26} {:>10} {:>14} {:>10} {:>14} {:>12}\n",
        "MEASURED LIVE", "NOW", "(PREDICTED)", "TUNED", "(PREDICTED)", "GAIN"
    );
    let median = |measured: &Measured| {
        let mut all: Vec<f64> = measured.seconds.iter().map(|seconds| seconds.unwrap_or(f64::INFINITY)).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len().saturating_sub(1) / 2).copied().filter(|seconds| seconds.is_finite())
    };
    let seconds = |value: Option<f64>| value.map_or("fails".to_owned(), quantity::seconds);
    let result = |measured: &Measured| match measured.invalid.is_empty() {
        true => seconds(median(measured)),
        false => "INVALID".to_owned(),
    };
    for row in rows {
        let (before, after) = (median(&row.before), median(&row.after));
        let valid = row.before.invalid.is_empty() && row.after.invalid.is_empty();
        text.push_str(&format!(
            "{:<26} {:>10} {:>14} {:>10} {:>14} {:>12}\n",
            format!("{} {}", row.direction, quantity::bytes(row.bytes as f64)),
            result(&row.before),
            format!("({})", seconds(row.before.predicted)),
            result(&row.after),
            format!("({})", seconds(row.after.predicted)),
            if valid { gain(before, after) } else { "-".to_owned() }
        ));
        for reason in row.before.invalid.iter().chain(&row.after.invalid) {
            text.push_str(&format!("  INVALID: {reason}\n"));
        }
    }
    if rows.iter().any(|row| row.before.seconds.len() > 1) {
        text.push_str("Medians of the live runs; three on a link with errors.\n");
    }
    text
}

/// Lines of at most 100 characters, the first after `indent`, the others two further in.
fn wrapped(indent: &str, words: &str) -> String {
    const WIDTH: usize = 100;
    let mut text = String::new();
    let mut line = indent.to_owned();
    let mut empty = true;
    // A quantity's no-break space holds it together here too.
    for word in words.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = format!("{indent}  ");
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_short() {
        assert_eq!(change(-38.4), "−38\u{a0}%");
        assert_eq!(change(0.01), "±0\u{a0}%");
        assert_eq!(change(-0.3), "−0.3\u{a0}%");
        assert_eq!(change(2.6), "+3\u{a0}%");
        assert_eq!(gain(None, Some(1.0)), "works");
    }

    #[test]
    fn an_invalid_verification_gives_no_result() {
        let measured = |seconds: &[f64], invalid: &[&str]| Measured {
            predicted: Some(1.0),
            seconds: seconds.iter().map(|seconds| Some(*seconds)).collect(),
            invalid: invalid.iter().map(|reason| (*reason).to_owned()).collect(),
        };
        let (before, after) = (measured(&[2.0], &[]), measured(&[], &["a packet left 30 ms late"]));
        let text = verified_table(&[Verified { direction: "download", bytes: 1000, before, after }]);
        let row: Vec<&str> =
            text.lines().nth(2).unwrap().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
        assert_eq!(row[1..].join(" | "), "2.00\u{a0}s | (1.00\u{a0}s) | INVALID | (1.00\u{a0}s) | -", "{text}");
        assert!(text.contains("INVALID: a packet left 30 ms late"), "{text}");
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        let text = wrapped("  ", &"four ".repeat(40));
        assert!(text.lines().all(|line| line.chars().count() <= 100) && text.lines().count() == 3, "{text}");
        assert_eq!(wrapped("", "a b"), "a b\n");
    }
}
