//! Bills: the section of the report, and the lines on the terminal.

use super::layout::{Cell, Section, Table};
use super::quantity;
use crate::record::{BillRecord, CaseRecord, Payer};
use bentpipe_link::tariff::Money;

/// Rows of a table that are not folded away.
const FOLD_ROWS: usize = 20;

/// An amount with its currency.
pub fn amount(nano: u64, currency: &str) -> String {
    format!("{} {currency}", Money { nano })
}

fn payer(payer: &Payer) -> &str {
    match payer {
        Payer::Workload { name } => name,
        Payer::Other => "(other traffic)",
        Payer::Nobody => "(calls without traffic)",
    }
}

/// The bill of each link without a circuit, and the parts of every bill.
pub fn lines(case: &CaseRecord) -> Vec<String> {
    let mut lines = Vec::new();
    for (link, bill) in case.links.iter().filter_map(|link| Some((link, link.bill.as_ref()?))) {
        if link.circuit.is_none() {
            let bytes: u64 = bill.calls.iter().map(|call| call.forward_bytes + call.return_bytes).sum();
            let (cost, bytes) = (amount(bill.total_nano, &bill.currency), quantity::bytes(bytes as f64));
            lines.push(format!("{}: {bytes} cost {cost}", link.name));
        }
        if bill.workloads.len() > 1 {
            let part = |share: &crate::record::WorkloadShare| {
                format!("{} {}", payer(&share.payer), amount(share.cost_nano, &bill.currency))
            };
            let parts: Vec<String> = bill.workloads.iter().map(part).collect();
            lines.push(format!("{}: cost of {}", link.name, parts.join(", ")));
        }
    }
    lines
}

/// The section; no tables where no link has a tariff.
pub fn section(case: &CaseRecord) -> Section {
    let bills = case.links.iter().filter_map(|link| Some((&link.name, link.bill.as_ref()?)));
    let tables = bills.flat_map(|(name, bill)| [calls(name, bill), workloads(name, bill), connections(name, bill)]);
    Section { title: "Cost".into(), tables: tables.collect(), ..Section::default() }
}

fn calls(link: &str, bill: &BillRecord) -> Table {
    let or_dash = |seconds: Option<f64>| seconds.map_or_else(|| "–".to_owned(), quantity::seconds);
    let rows = bill.calls.iter().map(|call| {
        vec![
            Cell::num(quantity::seconds(call.at)),
            Cell::num(or_dash(call.set_up)),
            Cell::num(or_dash(call.end)),
            Cell::num(quantity::seconds(call.on_air)),
            Cell::num(quantity::bytes(call.forward_bytes as f64)),
            Cell::num(quantity::bytes(call.return_bytes as f64)),
            Cell::num(amount(call.cost_nano, &bill.currency)),
        ]
    });
    let mut rows: Vec<Vec<Cell>> = rows.collect();
    let fold = rows.len() > FOLD_ROWS;
    let mut total = vec![Cell::text("All"); 1];
    total.extend(vec![Cell::num(""); 5]);
    total.push(Cell::num(amount(bill.total_nano, &bill.currency)));
    rows.push(total);
    let head = ["At", "Set-up", "End", "On air", "Forward", "Return", "Cost"].map(Cell::num).to_vec();
    Table { caption: format!("Calls of {link}"), head, rows, fold, ..Table::default() }
}

fn workloads(link: &str, bill: &BillRecord) -> Table {
    let rows = bill.workloads.iter();
    let rows =
        rows.map(|share| vec![Cell::text(payer(&share.payer)), Cell::num(amount(share.cost_nano, &bill.currency))]);
    let head = vec![Cell::text("Workload"), Cell::num("Cost")];
    Table { caption: format!("Cost of {link} by workload"), head, rows: rows.collect(), ..Table::default() }
}

fn connections(link: &str, bill: &BillRecord) -> Table {
    let rows = bill.connections.iter().map(|share| {
        vec![
            Cell::text(share.flow.to_string()),
            Cell::text(share.workload.clone().unwrap_or_else(|| "–".to_owned())),
            Cell::num(quantity::bytes(share.bytes as f64)).order(share.bytes as f64),
            Cell::num(amount(share.cost_nano, &bill.currency)).order(share.cost_nano as f64),
        ]
    });
    let head = vec![Cell::text("Connection"), Cell::text("Workload"), Cell::num("Bytes"), Cell::num("Cost")];
    let rows: Vec<Vec<Cell>> = rows.collect();
    let fold = rows.len() > FOLD_ROWS;
    Table { caption: format!("Cost of {link} by connection"), head, rows, fold, sorts: true, ..Table::default() }
}
