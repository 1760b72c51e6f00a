//! Sweeps: what they refuse, and that nothing is lost whatever ends them.

use crate::place::{Place, WaitLimited, users, wait};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const SCENARIO: &str = r#"title = "x"
seed = 7

[links.sat]
kind = "acts-t1"
between = ["hub", "site"]

[[workloads]]
name = "w"
app = "bulk"
client = "site"
server = "hub"
bytes = "200 kB"
"#;

const NOISE: &str = "links.sat.noise.ratio=1e-9..1e-6 log 4";

#[test]
fn each_mistake_is_named_and_nothing_is_made() {
    let place = Place::new(users()[0]);
    place.write("s.toml", SCENARIO);
    for (options, parts) in [
        (&["--vary", "links.sat.noise.ratio=1e-9..1e-3"] as &[&str], &["log N or lin N"] as &[&str]),
        (&["--vary", "links.sat.rate=1 Mbit/s,fast"], &["links.sat.rate = fast", "Mbit/s"]),
        (&["--vary", "links.moon.rate=1 Mbit/s"], &["links.moon.rate", "no link \"moon\""]),
        (&["--vary", "hosts.*.tcp.colour=red"], &["colour", "receive_window"]),
        (&["--set", "links.sat.rate=fast"], &["links.sat.rate", "Mbit/s"]),
        (&["--until", "goodput"], &["--until 'goodput'", "goodput=2%"]),
        (&["--until", "goodput=2%", "--seeds-min", "1"], &["--seeds-min 1", "2 to"]),
        (&["--seeds", "0"], &["--seeds 0", "1 to"]),
        (&["--confidence", "100"], &["--confidence 100", "below 100"]),
        (&["--shard", "5/4"], &["--shard 5/4", "PART/PARTS"]),
        (&["--jobs", "0"], &["--jobs 0", "1 or more"]),
        (&["--merge", "nowhere"], &["nowhere", "no sweep"]),
    ] {
        let arguments = [&["sweep", "s.toml", "--out", "out"] as &[&str], options].concat();
        let ended = place.bentpipe(&arguments).ends().expect(2);
        assert!(ended.stderr.starts_with("bentpipe: ") && ended.stderr.lines().count() == 1, "{}", ended.stderr);
        assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{options:?}: {}", ended.stderr);
    }
    for vary in [&[] as &[&str], &["--vary", NOISE]] {
        let command =
            format!("{SCENARIO}[[workloads]]\nname = \"p\"\napp = \"command\"\nclient = \"site\"\ncommand = \"ls\"\n");
        place.write("c.toml", &command);
        let ended = place.bentpipe(&[&["sweep", "c.toml"], vary].concat()).ends().expect(2);
        assert!(ended.stderr.starts_with("bentpipe: c.toml:18: workloads.1.command: "), "{}", ended.stderr);
    }
    std::fs::remove_file(place.at("c.toml")).unwrap();
    let ended = place.bentpipe(&["sweep", "none.toml"]).ends().expect(2);
    assert!(ended.stderr.contains("none.toml"), "{}", ended.stderr);
    assert_eq!(place.list(""), ["s.toml", "tmp"], "nothing was made");
}

#[test]
fn a_check_counts_the_runs() {
    let place = Place::new(users()[0]);
    place.write("s.toml", SCENARIO);
    let ended = place
        .bentpipe(&["sweep", "s.toml", "--vary", NOISE, "--vary", "hosts.*.tcp.sack=true,false", "--check"])
        .ends()
        .expect(0);
    assert_eq!(ended.stdout, "s.toml: fine; 8 point(s), 10 seed(s) each\n");
    let ended = place.bentpipe(&["sweep", "s.toml", "--until", "goodput=2%", "--check"]).ends().expect(0);
    assert_eq!(ended.stdout, "s.toml: fine; 1 point(s), 5 to 1000 seed(s) each\n");
}

/// What a finished sweep leaves.
fn results(place: &Place, out: &str) -> (Vec<u8>, String) {
    let parquet = std::fs::read(place.at(&format!("{out}/results.parquet"))).unwrap();
    (parquet, place.read(&format!("{out}/summary.csv")))
}

#[test]
fn a_sweep_survives_signals_and_gives_the_same_as_if_nothing_had_happened() {
    let place = Place::new(users()[0]);
    place.write("s.toml", SCENARIO);
    let arguments = |out| ["sweep", "s.toml", "--vary", NOISE, "--seeds", "250", "--out", out];
    let whole = place.bentpipe(&arguments("whole")).ends().expect(0);
    assert!(whole.stdout.contains("1000 runs."), "{}", whole.stdout);
    for (out, signal, code) in [("int", Signal::INT, Some(130)), ("kill", Signal::KILL, None)] {
        let mut command = place.bentpipe(&arguments(out));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let journal = place.at(&format!("{out}/journal.jsonl"));
        let started = Instant::now();
        while std::fs::metadata(&journal).map_or(0, |file| file.len()) < 1000 {
            assert!(started.elapsed() < Duration::from_secs(60), "no run ends");
            std::thread::sleep(Duration::from_millis(2));
        }
        let second = place.bentpipe(&arguments(out)).ends().expect(2);
        assert!(second.stderr.contains("another sweep works in"), "{}", second.stderr);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = wait(child);
        assert_eq!(ended.status.code(), code, "{}", ended.stderr);
        assert!(code.is_none() || ended.stderr.contains("the same command continues"), "{}", ended.stderr);
        let kept = place.read(&format!("{out}/journal.jsonl")).lines().count();
        assert!(kept > 0 && kept < 1000, "{kept} runs before the signal");
        place.bentpipe(&arguments(out)).ends().expect(0);
        assert!(results(&place, out) == results(&place, "whole"), "{out}");
    }
    let other = place.bentpipe(&["sweep", "s.toml", "--seeds", "3", "--out", "whole"]).ends().expect(2);
    assert!(other.stderr.contains("another sweep"), "{}", other.stderr);
    for (part, out) in [("1/2", "p1"), ("2/2", "p2")] {
        place.bentpipe(&[&arguments(out) as &[&str], &["--shard", part]].concat()).ends().expect(0);
    }
    place.bentpipe(&[&arguments("merged") as &[&str], &["--merge", "p1", "--merge", "p2"]].concat()).ends().expect(0);
    assert!(results(&place, "merged") == results(&place, "whole"));
}

/// The cells of a summary's column, for the rows whose `key` is `value`.
fn column<'a>(summary: &'a str, (key, value): (&str, &str), name: &str) -> Vec<&'a str> {
    let rows: Vec<Vec<&str>> = summary.lines().map(|line| line.split(',').collect()).collect();
    let at = |name: &str| rows[0].iter().position(|cell| *cell == name).unwrap_or_else(|| panic!("{name}: {summary}"));
    let (key, column) = (at(key), at(name));
    rows.iter().filter(|row| row[key] == value).map(|row| row[column]).collect()
}

/// As in docs/how-to/sweep.md, with fewer seeds: at 1e-3 nothing gets through, and the runs end by themselves.
#[test]
fn a_sweep_up_to_noise_that_nothing_passes_ends_and_is_the_same_with_any_jobs() {
    let place = Place::new(users()[0]);
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/sweep.toml").display().to_string();
    let started = Instant::now();
    for jobs in ["1", "2"] {
        let windows = "hosts.*.tcp.receive_window=8KiB,64KiB,1MiB";
        let vary = ["--vary", "links.sat.noise.ratio=1e-9..1e-3 log 13", "--vary", windows, "--seeds", "2"];
        let arguments = [&["sweep", &scenario][..], &vary, &["--jobs", jobs, "--out", jobs]].concat();
        let ended = place.bentpipe(&arguments).ends().expect(0);
        assert!(ended.stdout.contains("78 runs."), "{}", ended.stdout);
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert!(results(&place, "1") == results(&place, "2"));
    let summary = place.read("1/summary.csv");
    let key = "links.sat.noise.ratio";
    for (ratio, failed) in [("0.000000001", "0"), ("0.001", "2")] {
        let all = column(&summary, (key, ratio), "failed");
        assert!(all.len() >= 3 && all.iter().all(|cell| *cell == failed), "{ratio}: {all:?}\n{summary}");
    }
}

#[test]
fn a_stopping_rule_asks_for_more_runs_where_chance_is_at_work() {
    let place = Place::new(users()[0]);
    place.write("s.toml", SCENARIO);
    let vary = "links.sat.noise.ratio=0,1e-6";
    let arguments = ["sweep", "s.toml", "--vary", vary, "--until", "goodput=20%", "--seeds-max", "40", "--json"];
    let ended = place.bentpipe(&[&arguments[..], &["--out", "out"]].concat()).ends().expect(0);
    let summary = place.read("out/summary.csv");
    let runs = |ratio| column(&summary, ("links.sat.noise.ratio", ratio), "n")[0].parse::<u32>().unwrap();
    assert_eq!(runs("0"), 5, "{summary}");
    assert!((10..=40).contains(&runs("0.000001")), "{summary}");
    serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap();
}
