//! What needs no network: help, presets, completions, man pages, and closed pipes.

use crate::place::{Place, WaitLimited, have, users, wait};
use crate::processes;
use std::fs::File;
use std::process::Stdio;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["links"],
    &["links", "show"],
    &["presets"],
    &["predict"],
    &["shell"],
    &["get"],
    &["put"],
    &["run"],
    &["report"],
    &["completions"],
    &["man"],
];

#[test]
fn every_command_has_help() {
    let place = Place::new(users()[0]);
    for command in COMMANDS {
        let ended = place.bentpipe(&[command, &["--help"][..]].concat()).ends().expect(0);
        assert!(ended.stdout.contains("Usage: bentpipe") && ended.stderr.is_empty(), "{command:?}: {}", ended.stdout);
    }
    let version = place.bentpipe(&["--version"]).ends().expect(0).stdout;
    assert_eq!(version, format!("bentpipe {}\n", env!("CARGO_PKG_VERSION")));
    assert!(place.bentpipe(&[]).ends().expect(2).stderr.contains("Usage"));
    let presets = place.bentpipe(&["presets"]).ends().expect(0).stdout;
    for name in ["linux", "windows-95", "windows-98-tuned", "solaris-2", "tcp-lfn", "linux-large-buffers"] {
        assert!(presets.lines().any(|line| line.split(' ').next() == Some(name)), "{name}: {presets}");
    }
}

#[test]
fn completions_and_man_pages_are_written() {
    let place = Place::new(users()[0]);
    for shell in ["bash", "zsh", "fish"] {
        let script = place.bentpipe(&["completions", shell]).ends().expect(0).stdout;
        assert!(script.contains("bentpipe") && script.contains("report"), "{shell}");
    }
    let script = place.bentpipe(&["completions", "bash"]).ends().stdout;
    if have(&["bash"]) {
        place.command("bash").arg("-n").ends_given(script.as_bytes()).expect(0);
    }
    place.bentpipe(&["man", "--out", "man/deep"]).ends().expect(0);
    let pages = place.list("man/deep");
    let expected = [
        "bentpipe-completions.1",
        "bentpipe-experiments-list.1",
        "bentpipe-experiments-run.1",
        "bentpipe-experiments.1",
        "bentpipe-gateway-cost.1",
        "bentpipe-gateway-hub.1",
        "bentpipe-gateway-keys.1",
        "bentpipe-gateway-terminal.1",
        "bentpipe-gateway.1",
        "bentpipe-get.1",
        "bentpipe-links-show.1",
        "bentpipe-links.1",
        "bentpipe-man.1",
        "bentpipe-parity.1",
        "bentpipe-predict.1",
        "bentpipe-presets.1",
        "bentpipe-put.1",
        "bentpipe-report.1",
        "bentpipe-run.1",
        "bentpipe-shell.1",
        "bentpipe-sweep.1",
        "bentpipe-tune.1",
        "bentpipe.1",
    ];
    assert_eq!(pages, expected);
    for page in pages {
        assert!(place.read(&format!("man/deep/{page}")).contains(".SH SYNOPSIS"), "{page}");
    }
}

#[test]
fn predictions_are_a_table_or_json() {
    let formulas = Place::new(users()[0]).bentpipe(&["predict", "acts-t1", "--formulas-only"]).ends().expect(0).stdout;
    assert!(formulas.contains("Cardwell") && !formulas.contains("simulated "), "{formulas}");
    let place = Place::new(users()[0]);
    let requested =
        ["predict", "acts-t1", "--tcp", "windows-95", "--set", "tcp.receive_window=16 KiB", "--bytes", "5 MB"];
    let table = place.bentpipe(&requested).ends().expect(0);
    let parts =
        ["segment", "round trip", "Kruse", "Cardwell", "not applicable: nothing is lost", "simulated", "one run"];
    for part in parts {
        assert!(table.stdout.contains(part), "{part}: {}", table.stdout);
    }
    let json = place.bentpipe(&[&requested[..], &["--json", "--loss", "1 %"]].concat()).ends().expect(0).stdout;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["bytes"], &value["inputs"]["segment_loss"]), (&5_000_000.into(), &0.01.into()));
    // The lesser of the two buffers: windows-95 sends from 8 KiB.
    assert_eq!(value["inputs"]["window_bytes"], 8192);
    assert_eq!(value["rows"].as_array().unwrap().len(), 7);
    assert_eq!(value["simulated"]["runs"], 25);
    let (least, most) = (&value["simulated"]["seconds_range"][0], &value["simulated"]["seconds_range"][1]);
    assert!(least.as_f64().unwrap() < most.as_f64().unwrap(), "{value}");
    assert_eq!(place.list(""), ["tmp"], "a prediction makes nothing");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new(users()[0]);
    place.write("s.toml", "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['a', 'b']\n");
    let ended = place.bentpipe(&["run", "s.toml", "--out", "out"]).ends();
    assert!([0, 3].contains(&ended.code()), "{}", ended.stderr);
    let commands: &[&[&str]] = &[
        &["links"],
        &["links", "show", "inmarsat-b"],
        &["presets"],
        &["predict", "acts-t1"],
        &["completions", "bash"],
        &["--help"],
        &["run", "--help"],
        &["run", "s.toml", "--check"],
        &["report", "out"],
        &["run", "s.toml", "--out", "out"],
        &["run", "s.toml", "--out", "out", "--json"],
    ];
    for command in commands {
        // A pipe that nobody reads, from the start.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = place.bentpipe(command).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn();
        let ended = wait(child.unwrap());
        assert!(
            [0, 3].contains(&ended.code()) && ended.stderr.is_empty(),
            "{command:?}: {} {}",
            ended.code(),
            ended.stderr
        );
    }
    // As users write it.
    let line = "\"$0\" links | head -n 1";
    let binary = env!("CARGO_BIN_EXE_bentpipe");
    let ended = place.command("sh").args(["-c", line, binary]).ends().expect(0);
    assert!(ended.stdout.starts_with("NAME") && ended.stderr.is_empty(), "{}", ended.stderr);
    processes::all_gone(&place).unwrap();
}

#[test]
fn a_full_standard_output_is_a_failure() {
    let place = Place::new(users()[0]);
    for command in [&["links"][..], &["presets"], &["completions", "bash"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut bentpipe = place.bentpipe(command);
        let child = bentpipe.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).spawn();
        let ended = wait(child.unwrap()).expect(1);
        assert!(ended.stderr.contains("No space left"), "{command:?}: {}", ended.stderr);
    }
}
