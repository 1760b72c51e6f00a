//! What a gateway's calls have cost, from its ledger.

use super::super::BadInput;
use super::daemon;
use crate::cli::CostArguments;
use crate::terminal;
use bentpipe_gateway::dial::ledger::{CallEnd, Ending, LedgerCall};
use bentpipe_gateway::file::Role;
use bentpipe_host::line::ledger;
use bentpipe_link::tariff::{Currency, Money, Period};
use bentpipe_net::time::Instant;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Prints the calls of the ledger that a terminal's file names.
pub fn run(arguments: &CostArguments) -> anyhow::Result<ExitCode> {
    let path = arguments.file.display();
    let file = daemon::read(&arguments.file, Role::Terminal)?;
    let dial = file.gateway.settings.dial.as_ref();
    let Some(place) = dial.and_then(|dial| dial.ledger.clone()) else {
        return Err(
            BadInput(format!("{path}: the gateway dials nothing; allowed: a file with [dial] and a ledger")).into()
        );
    };
    let ledger = ledger::read(&place).map_err(|error| BadInput(error.to_string()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Instant { ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX) };
    let mut rows = Rows { calls: Vec::new(), bill: None };
    match &file.gateway.line.tariff {
        Some(tariff) => {
            let (priced, account) = ledger.bill(tariff);
            let spent = [Period::Day, Period::Month].map(|period| account.spent(period, now));
            rows.bill =
                Some(Bill { currency: tariff.currency, today: spent[0], month: spent[1], all: account.total() });
            rows.calls = priced;
        }
        None => rows.calls = ledger.calls.iter().map(|call| (*call, Money::ZERO)).collect(),
    }
    if arguments.json {
        terminal::print_json(&rows.json())?;
    } else {
        terminal::print(&rows.table())?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Rows {
    calls: Vec<(LedgerCall, Money)>,
    bill: Option<Bill>,
}

struct Bill {
    currency: Currency,
    today: Money,
    month: Money,
    all: Money,
}

/// As `2026-11-23 10:31:05Z`.
fn time(at: Instant) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(at.ns)).unwrap_or_default();
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn end(call: &LedgerCall) -> String {
    match call.end {
        None => "in progress".to_owned(),
        Some(CallEnd::Failed(why)) => why.to_string(),
        Some(CallEnd::Ended(why)) => ending(why).to_owned(),
    }
}

fn ending(why: Ending) -> &'static str {
    match why {
        Ending::Idle => "idle",
        Ending::Cap => "cap reached",
        Ending::Dropped => "dropped",
        Ending::Stopped => "gateway stopped",
        Ending::Crashed => "gateway ended",
    }
}

impl Rows {
    fn table(&self) -> String {
        let head = ["CALL", "DIALLED", "BY", "SET-UP", "ON AIR", "FORWARD", "RETURN", "COST", "END"].map(str::to_owned);
        let row = |(call, cost): &(LedgerCall, Money)| {
            let set_up =
                call.up.map_or("–".to_owned(), |(at, _)| format!("{:.1} s", at.since(call.dialled).as_secs_f64()));
            let on_air = format!("{:.1} s", call.airtime().as_secs_f64());
            let cost = if self.bill.is_some() { cost.to_string() } else { "–".to_owned() };
            let (forward, back) = (format!("{} B", call.forward), format!("{} B", call.back));
            let (number, by) = (call.call.to_string(), call.by.to_string());
            [number, time(call.dialled), by, set_up, on_air, forward, back, cost, end(call)]
        };
        let rows: Vec<[String; 9]> = [head].into_iter().chain(self.calls.iter().map(row)).collect();
        let widths: Vec<usize> =
            (0..9).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                let room = " ".repeat(width - cell.chars().count());
                if (3..8).contains(&column) { format!("{room}{cell}") } else { format!("{cell}{room}") }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        if let Some(Bill { currency, today, month, all }) = &self.bill {
            text += &format!("{all} {currency} in all; {today} today and {month} this month (UTC)\n");
        }
        text
    }

    fn json(&self) -> String {
        let call = |(call, cost): &(LedgerCall, Money)| {
            serde_json::json!({
                "call": call.call,
                "dialled_ns": call.dialled.ns,
                "by": call.by,
                "up_ns": call.up.map(|(at, _)| at.ns),
                "charged_from_ns": call.up.map(|(_, from)| from.ns),
                "last_ns": call.last.ns,
                "airtime_ns": call.airtime().ns,
                "forward_bytes": call.forward,
                "return_bytes": call.back,
                "cost_nano": self.bill.is_some().then_some(cost.nano),
                "end": end(call),
            })
        };
        let calls: Vec<serde_json::Value> = self.calls.iter().map(call).collect();
        let bill = self.bill.as_ref().map(|bill| {
            serde_json::json!({
                "currency": bill.currency.code(),
                "today_nano": bill.today.nano,
                "this_month_nano": bill.month.nano,
                "all_nano": bill.all.nano,
            })
        });
        serde_json::to_string_pretty(&serde_json::json!({ "calls": calls, "bill": bill })).unwrap_or_default()
    }
}
