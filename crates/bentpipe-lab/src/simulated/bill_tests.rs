//! Bills of virtual runs: calls, prices, and parts that add up.

use super::*;
use crate::record::{BillRecord, Payer};
use bentpipe_link::tariff::Money;

/// Set-up takes 2 s and is free, a call ends after 5 s without a packet; 0.60 a minute in steps of 10 s.
const DIAL_UP: &str = "title = 'x'\n[links.sat]\nrate = '64 kbit/s'\none_way_delay = '250 ms'\nbetween = ['hub', 'ship']\n\
    circuit = { stages = [{ name = 'dial', time = '2 s' }], idle_hang_up = '5 s' }\n\
    tariff = { currency = 'EUR', time = { price = '0.60', first = '10 s' } }\n";

const WORKLOADS: &str = "[[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'ship'\nserver = 'hub'\ncount = 3\ntimeout = '9 s'\n\
    [[workloads]]\nname = 'page'\napp = 'page'\nclient = 'ship'\nserver = 'hub'\nbytes = '20 kB'\nstart = '100 s'\n\
    [[workloads]]\nname = 'note'\napp = 'bulk'\nclient = 'ship'\nserver = 'hub'\nbytes = '3 kB'\ndirection = 'upload'\nstart = '101 s'\n";

fn bill_of(text: &str) -> BillRecord {
    let scenario = Scenario::parse("s.toml", text, &[]).unwrap_or_else(|problem| panic!("{problem}"));
    let record = run(&scenario, &SimulatedOptions::default(), &AtomicBool::new(false)).unwrap();
    record.cases[0].links.iter().find(|link| link.name == "sat").unwrap().bill.clone().unwrap()
}

fn adds_up(bill: &BillRecord) {
    assert_eq!(bill.calls.iter().map(|call| call.cost_nano).sum::<u64>(), bill.total_nano);
    assert_eq!(bill.workloads.iter().map(|share| share.cost_nano).sum::<u64>(), bill.total_nano);
    let connections: u64 = bill.connections.iter().map(|share| share.cost_nano).sum();
    assert_eq!(connections + bill.connections_left_out_nano + bill.nobody_nano, bill.total_nano);
}

fn share(bill: &BillRecord, name: &str) -> u64 {
    let payer = Payer::Workload { name: name.to_owned() };
    bill.workloads.iter().find(|share| share.payer == payer).map_or(0, |share| share.cost_nano)
}

#[test]
fn each_call_is_paid_by_those_whose_packets_it_carried() {
    let bill = bill_of(&format!("{DIAL_UP}{WORKLOADS}"));
    adds_up(&bill);
    assert_eq!(bill.calls.len(), 2);
    let pings = &bill.calls[0];
    assert_eq!((pings.at, pings.set_up), (0.0, Some(2.0)));
    assert_eq!((pings.forward_bytes, pings.return_bytes), (3 * 84, 3 * 84), "three echoes of 56 B");
    // Up from 2 s; the last of three pings a second apart, all waiting, comes back soon after; 5 s later it hangs up.
    assert!((5.0..10.0).contains(&pings.on_air), "{pings:?}");
    assert_eq!(Money { nano: pings.cost_nano }.to_string(), "0.10");
    assert_eq!(share(&bill, "echo"), pings.cost_nano, "the whole first call and nothing of the second");
    assert_eq!(share(&bill, "page") + share(&bill, "note"), bill.calls[1].cost_nano);
    assert!(share(&bill, "page") > 3 * share(&bill, "note") && share(&bill, "note") > 0, "{:?}", bill.workloads);
}

#[test]
fn behind_a_gateway_pair_the_connections_pay() {
    let bill = bill_of(&format!("{DIAL_UP}[gateways.sat]\ncompression = 'off'\n{WORKLOADS}"));
    adds_up(&bill);
    assert!(share(&bill, "page") > 3 * share(&bill, "note") && share(&bill, "note") > 0, "{:?}", bill.workloads);
    assert!(bill.connections.iter().all(|share| share.workload.is_some()), "{:?}", bill.connections);
}

#[test]
fn a_link_that_is_always_there_is_charged_by_the_byte() {
    let text = "title = 'x'\n[links.sat]\nkind = 'direcpc'\nbetween = ['hub', 'pc']\n[[workloads]]\nname = 'file'\n\
        app = 'bulk'\nclient = 'pc'\nserver = 'hub'\ndirection = 'download'\nbytes = '1 MB'\n";
    let bill = bill_of(text);
    adds_up(&bill);
    let [call] = &bill.calls[..] else { panic!("{:?}", bill.calls) };
    // 1 MB and a header of 52 B (or 40 B) to each of 685 segments or more.
    assert!((1_027_000..1_045_000).contains(&call.forward_bytes), "{call:?}");
    assert_eq!(bill.total_nano, call.forward_bytes * 500, "0.50 a megabyte, forward only");
    assert_eq!(share(&bill, "file"), bill.total_nano);
}
