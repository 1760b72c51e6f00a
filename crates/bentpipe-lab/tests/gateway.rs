//! Gateway pairs in virtual runs, from scenario to record.

#![allow(missing_docs)]

use bentpipe_lab::record::{CaseRecord, Record, WorkloadRecord};
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use std::sync::atomic::AtomicBool;

/// 10 Mbit/s, 300 ms each way, a queue of 750 kB, hosts with a window of 64 KB, 20 MB: the same link in all cases.
const GEO: &str = "title = 'x'\n[links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'ship']\nrate = '10 Mbit/s'\n\
    one_way_delay = '300 ms'\nqueue = { bytes = '750 kB' }\nframing = 'none'\n\
    [hosts.hub.tcp]\nreceive_window = '65535 B'\nwindow_scaling = false\n\
    [hosts.ship.tcp]\nreceive_window = '65535 B'\nwindow_scaling = false\n";
const DOWNLOAD: &str = "[[workloads]]\nname = 'download'\napp = 'bulk'\nclient = 'ship'\nserver = 'hub'\n\
    bytes = '20 MB'\nstart = '5 s'\n";
const PAIR: &str = "[gateways.sat]\n";

fn scenario(text: &str, overrides: &[&str]) -> Scenario {
    let overrides: Vec<String> = overrides.iter().map(|over| (*over).to_owned()).collect();
    Scenario::parse("s.toml", text, &overrides).unwrap()
}

fn run(text: &str, overrides: &[&str]) -> Record {
    run_scenario(&scenario(text, overrides))
}

fn run_scenario(scenario: &Scenario) -> Record {
    let record = simulated::run(scenario, &SimulatedOptions::default(), &AtomicBool::new(false)).unwrap();
    assert!(record.complete);
    record
}

fn workload<'a>(case: &'a CaseRecord, name: &str) -> &'a WorkloadRecord {
    case.workloads.iter().find(|workload| workload.name == name).unwrap()
}

#[track_caller]
fn value(workload: &WorkloadRecord, name: &str) -> f64 {
    let found = workload.measurements.iter().find(|m| m.quantity == name);
    found.unwrap_or_else(|| panic!("no {name}: {workload:#?}")).value
}

fn figure(case: &CaseRecord, side: usize, name: &str) -> f64 {
    case.gateways[0].sides[side].measurements.iter().find(|m| m.quantity == name).unwrap().value
}

/// What a series was at `at` seconds.
fn at(series: &[(f64, f64)], at: f64) -> f64 {
    series.iter().take_while(|(x, _)| *x <= at).last().map_or(0.0, |(_, y)| *y)
}

#[test]
fn an_untuned_host_gets_the_links_rate_whatever_is_lost() {
    let mut table = String::new();
    for (loss, seeds, goodput_min) in [(0.0, 1..=1, 8.9), (0.1, 1..=5, 8.9), (1.0, 1..=5, 8.6)] {
        let mut goodputs = Vec::new();
        for seed in seeds {
            let loss_key = format!("links.sat.loss={loss} %");
            let record = run(&format!("{GEO}{PAIR}{DOWNLOAD}"), &[&loss_key, &format!("seed={seed}")]);
            let case = &record.cases[0];
            let download = workload(case, "download");
            assert_eq!((download.status.name(), value(download, "wrong_bytes")), ("done", 0.0));
            let (goodput, first_byte) = (value(download, "goodput") / 1e6, value(download, "first_byte"));
            let link_bytes = case.links[0].directions[0].counters.link_bytes as f64 / 20e6;
            table +=
                &format!("{loss} % seed {seed}: {goodput:.3} Mbit/s, first byte {first_byte:.3} s, {link_bytes:.4}\n");
            goodputs.push(goodput);
            assert!(first_byte <= 1.25, "{table}");
            // What is lost is sent again, and a twentieth is for headers.
            assert!(link_bytes <= 1.05 + 1.5 * loss / 100.0, "{table}");
            let (delivered, relayed) = (figure(case, 0, "delivered_bytes"), figure(case, 1, "relayed"));
            assert!(delivered >= 20e6 && relayed == 1.0, "{delivered} B, {relayed} connections");
        }
        // A packet lost among the last ones costs up to two round trips of the eighteen seconds: the median counts.
        goodputs.sort_by(f64::total_cmp);
        assert!(goodputs[goodputs.len() / 2] >= goodput_min, "{table}");
    }
}

#[test]
fn an_early_answer_saves_a_round_trip() {
    let record = run(&format!("{GEO}{PAIR}open = 'early'\n{DOWNLOAD}"), &["workloads.download.bytes=1 MB"]);
    let first_byte = value(workload(&record.cases[0], "download"), "first_byte");
    assert!(first_byte <= 0.65, "{first_byte}");
}

#[test]
fn a_comparison_leaves_both_halves_and_shows_them_side_by_side() {
    let compared = scenario(&format!("{GEO}{DOWNLOAD}"), &["workloads.download.bytes=5 MB"]).compare_gateway().unwrap();
    let record = run_scenario(&compared);
    let names: Vec<&str> = record.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["without gateway", "with gateway"]);
    let goodput = |case: usize| value(workload(&record.cases[case], "download"), "goodput");
    assert!(goodput(1) > 5.0 * goodput(0), "{} and {}", goodput(0), goodput(1));
    assert!(record.cases[0].gateways.is_empty() && record.cases[1].gateways.len() == 1);
    // The scenario's sites and links only.
    assert_eq!(record.cases[1].links.len(), 1);
    assert_eq!(record.cases[1].links[0].directions[0].from, "hub");
    assert!(record.cases[1].settings.iter().all(|setting| ["hub", "ship"].contains(&setting.host.as_str())));
    let again = Record::from_json(&record.to_json().unwrap()).unwrap();
    assert_eq!(again, record);
    let table = bentpipe_lab::report::text(&record, 100, false);
    assert!(table.contains("WITH/WITHOUT") && table.contains("gateway hub-gateway (sat): relayed"), "{table}");
    let page = bentpipe_lab::report::html(&record);
    assert!(page.contains("With ÷ without") && page.contains("Gateway pair on sat"));
}

#[test]
fn two_runs_with_a_pair_leave_the_same_bytes() {
    let text = format!("{GEO}{PAIR}{DOWNLOAD}{PAGE}");
    let scenario = scenario(&text, &["links.sat.loss=1 %", "workloads.download.bytes=2 MB"]);
    let folder = std::env::temp_dir().join(format!("bentpipe-gateway-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = || {
        let options = SimulatedOptions { capture_directory: Some(folder.clone()), ..Default::default() };
        let record = simulated::run(&scenario, &options, &AtomicBool::new(false)).unwrap();
        (record.to_json().unwrap(), std::fs::read(folder.join("1-x.pcapng")).unwrap())
    };
    let (first, second) = (run(), run());
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(first.0 == second.0, "two records differ");
    assert!(first.1 == second.1 && first.1.len() > 2_000_000, "two captures differ");
}

const PAGE: &str = "[[workloads]]\nname = 'page'\napp = 'page'\nclient = 'ship'\nserver = 'hub'\nbytes = '20 kB'\n\
    objects = ['10 kB', '30 kB', '5 kB']\nstart = '6 s'\n";

#[test]
fn a_pair_changes_nothing_elsewhere() {
    let other = "[links.other]\nkind = 'geo-two-way'\nbetween = ['a', 'b']\nloss = '1 %'\n\
        [[workloads]]\nname = 'other'\napp = 'bulk'\nclient = 'b'\nserver = 'a'\nbytes = '1 MB'\nstart = '1 s'\n";
    let text = |pair: &str| format!("{GEO}{pair}{other}{DOWNLOAD}");
    let over = ["workloads.download.bytes=1 MB"];
    let (without, with) = (run(&text(""), &over), run(&text(PAIR), &over));
    assert_eq!(workload(&without.cases[0], "other").measurements, workload(&with.cases[0], "other").measurements);
    assert_eq!(workload(&without.cases[0], "other").series, workload(&with.cases[0], "other").series);
}

#[test]
fn data_flows_again_soon_after_an_outage() {
    let over = ["links.sat.outages=[{ at = \"12 s\", lasts = \"30 s\" }]"];
    let record = run(&format!("{GEO}{PAIR}{DOWNLOAD}"), &over);
    let download = workload(&record.cases[0], "download");
    assert_eq!((download.status.name(), value(download, "wrong_bytes")), ("done", 0.0));
    let received = &download.series.iter().find(|series| series.quantity == "received").unwrap().points;
    let before = at(received, 41.9);
    let again = received.iter().find(|(x, y)| *x > 42.0 && *y > before).unwrap().0;
    assert!(again <= 43.5, "the outage ended at 42 s, data came at {again} s");
    let lost = figure(&record.cases[0], 0, "lost_connections");
    assert_eq!(lost, 0.0);
}

#[test]
fn an_idle_pair_leaves_a_circuit_down() {
    let text = "title = 'x'\n[links.sat]\nkind = 'inmarsat-b'\nbetween = ['hub', 'ship']\nnoise = 0.0\n\
        [links.sat.circuit]\nstages = [{ name = 'set-up', time = '50 s' }]\nidle_hang_up = '30 s'\n\
        [gateways.sat]\n\
        [[workloads]]\nname = 'mail'\napp = 'bulk'\nclient = 'ship'\nserver = 'hub'\nbytes = '40 kB'\nstart = '10 min'\n\
        repeat = 2\npause = '30 min'\n";
    let record = run(text, &[]);
    let case = &record.cases[0];
    for mail in &case.workloads {
        assert_eq!((mail.status.name(), value(mail, "wrong_bytes")), ("done", 0.0), "{mail:#?}");
        assert!(value(mail, "completion_time") < 75.0, "a set-up and what 40 kB take at 64 kbit/s");
    }
    let circuit = case.links[0].circuit.as_ref().unwrap();
    // One call for each mail, and at most one when the pair first meets.
    assert!((2..=3).contains(&circuit.calls), "{circuit:#?}");
    assert!(circuit.on_air < 180.0, "{circuit:#?}");
}

#[test]
fn a_workload_that_starts_before_the_pair_says_so() {
    let over = ["workloads.download.bytes=1 MB", "workloads.download.start=0 s"];
    let record = run(&format!("{GEO}{PAIR}{DOWNLOAD}"), &over);
    let notes = &record.cases[0].notes;
    assert!(notes.iter().any(|note| note.contains("\"download\" began")), "{notes:?}");
}

#[test]
fn records_from_before_gateways_load() {
    let text = r#"{"format":"bentpipe-record","version":1,"bentpipe":"0.1.0","created":"","mode":"virtual",
        "machine":{"kernel":"","cores":0,"privileged":false},"title":"x","scenario_file":"s.toml","scenario":"",
        "seed":1,"complete":true,"cases":[{"name":"x","seconds":1.0,"validity":{"valid":true},"settings":[],
        "workloads":[],"links":[]}]}"#;
    let record = Record::from_json(text).unwrap();
    assert!(record.cases[0].gateways.is_empty() && record.cases[0].compared.is_none());
    assert!(!record.to_json().unwrap().contains("gateways"), "a run without gateways says nothing of them");
}
