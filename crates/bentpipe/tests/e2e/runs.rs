//! `bentpipe run`: a scenario in, a record and a report out, whatever happens on the way.

use crate::place::{Place, User, WaitLimited, is_root, users, wait};
use crate::processes;
use crate::recorded::{Recorded, array, count, expect_framed, measured};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use std::time::Duration;

const EVERYTHING: &str = r#"
title = "Everything"
seed = 5

[links.sat]
kind = "link.toml"
between = ["hub", "clinic"]

[hosts.clinic.tcp]
preset = "windows-98-tuned"

[[workloads]]
name = "files"
app = "ftp"
client = "clinic"
server = "hub"
bytes = "100 kB"
files = 2

[[workloads]]
name = "page"
app = "page"
client = "clinic"
server = "hub"
bytes = "5 kB"
objects = ["10 kB", "20 kB", "1 kB"]
objective = { within = "30 s" }

[[workloads]]
name = "report"
app = "bulk"
client = "clinic"
server = "hub"
direction = "upload"
bytes = "150 kB"
repeat = 2
pause = "300 ms"
start = "400 ms"
objective = { goodput = "9 Mbit/s" }

[[workloads]]
name = "program"
app = "command"
client = "clinic"
server = "hub"
command = "echo $BENTPIPE_HUB; echo oops >&2; exit 3"

[[workloads]]
name = "echo"
app = "ping"
client = "clinic"
server = "hub"
count = 1000
interval = "50 ms"
background = true
objective = { loss = "1 %" }

[[cases]]
name = "as it is"

[[cases]]
name = "slower"
set = { "links.sat.one_way_delay" = "60 ms", "hosts.clinic.tcp.receive_window" = "8 KiB" }
"#;

/// The queue has room for everything, however late a busy machine empties it.
const LINK: &str =
    "title = 'quick'\nrate = '10 Mbit/s'\none_way_delay = '20 ms'\nframing = 'ppp'\nqueue = { bytes = '2 MB' }\n";

#[test]
fn every_workload_is_recorded() {
    for user in users() {
        let place = Place::new(user);
        place.write("link.toml", LINK);
        place.write("s.toml", EVERYTHING);
        let arguments = ["run", "s.toml", "--out", "out", "--set", "workloads.files.files=3"];
        let ended = place.bentpipe(&arguments).ends();
        assert!([0, 3].contains(&ended.code()), "{}", ended.stderr);
        assert!(ended.stdout.contains("out/record.json") && ended.stdout.contains("as it is"), "{}", ended.stdout);
        assert_eq!(place.list("out"), ["record.json", "report.html"]);
        assert_eq!(place.leftovers(), [""; 0]);
        let recorded = Recorded::read(&place, "out");
        check_head(&recorded, user == User::Root);
        for (case, one_way, window) in [(0, 0.020, 64_240), (1, 0.060, 7_300)] {
            check_case(&recorded, case, one_way, window);
        }
        check_report(&place, &recorded);
    }
}

fn check_head(recorded: &Recorded, privileged: bool) {
    let json = &recorded.json;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!((&json["format"], &json["version"]), (&"bentpipe-record".into(), &2.into()));
    assert_eq!((&json["seed"], &json["mode"]), (&5.into(), &"live".into()));
    assert!(json["machine"]["kernel"].as_str().unwrap().contains(kernel.trim()));
    assert_eq!(json["machine"]["privileged"], privileged);
    assert_eq!((&json["complete"], &json["interrupted"]), (&true.into(), &false.into()));
    assert_eq!(json["scenario"], EVERYTHING);
    assert_eq!(json["overrides"][0], "workloads.files.files=3");
    assert_eq!(array(&json["cases"]).len(), 2);
}

fn check_case(recorded: &Recorded, case: usize, one_way: f64, window: u64) {
    let lateness = &recorded.case(case)["lateness"];
    assert!(count(lateness, "packets") > 500 && lateness["worst"].as_f64() >= lateness["p99"].as_f64(), "{lateness}");
    assert_eq!(count(lateness, "missed_packets"), 0);
    for (name, bytes) in [("files", 300_000.0), ("page", 36_000.0), ("report", 150_000.0)] {
        let workload = recorded.workload(case, name);
        assert_eq!(workload["status"], "done", "{workload:#}");
        assert_eq!((measured(workload, "bytes"), measured(workload, "wrong_bytes")), (bytes, 0.0), "{name}");
        // A connection and a request: two round trips at least.
        assert!(measured(workload, "completion_time") >= 3.0 * one_way, "{name}");
    }
    assert_eq!(recorded.workload(case, "page")["objective"]["met"], true);
    assert_eq!(recorded.workload(case, "report")["objective"]["met"], false, "9 of 10 Mbit/s in 150 kB");
    let all = array(&recorded.case(case)["workloads"]);
    let reports: Vec<_> = all.iter().filter(|w| w["name"] == "report").collect();
    assert_eq!(reports.iter().map(|w| w["repeat"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    let time = |w: &serde_json::Value, key: &str| w[key].as_f64().unwrap();
    assert!(time(reports[0], "start") >= 0.4, "{}", reports[0]["start"]);
    assert!(
        time(reports[1], "start") >= time(reports[0], "end") + 0.3,
        "{} after {}",
        reports[1]["start"],
        reports[0]["end"]
    );
    let program = recorded.workload(case, "program");
    assert_eq!((&program["status"], &program["error"]), (&"failed".into(), &"exit status 3: oops".into()));
    assert_eq!((&program["command"]["stdout"], &program["command"]["exit"]), (&"198.18.0.1\n".into(), &3.into()));
    let echo = recorded.workload(case, "echo");
    assert_eq!((&echo["status"], &echo["objective"]["met"]), (&"done".into(), &true.into()), "{echo:#}");
    assert!(measured(echo, "rtt_min") >= 2.0 * one_way, "{}", measured(echo, "rtt_min"));
    let setting = recorded.setting(case, "clinic", "receive_window");
    assert_eq!(setting["observed"], serde_json::json!({ "kind": "window", "bytes": window }), "{setting}");
    for name in ["sack", "timestamps", "window_scaling"] {
        let setting = recorded.setting(case, "clinic", name);
        let on = setting["configured"] == "true";
        assert!(setting["kernel"].as_str().unwrap().ends_with(if on { "= 1" } else { "= 0" }), "{setting}");
        assert!(setting["broken"] == false && setting["observed"]["kind"] == "offered", "{setting}");
    }
    for counters in recorded.counters(case, "sat") {
        assert_eq!(count(counters, "dropped_packets"), 0, "{counters}");
        expect_framed(counters, 7);
    }
}

fn check_report(place: &Place, recorded: &Recorded) {
    let html = place.read("out/report.html");
    assert!(html.starts_with("<!") && html.trim_end().ends_with("</html>") && html.contains("slower"));
    // The same again from the record alone; the folder stands for its record.
    let ended = place.bentpipe(&["report", "out", "--out", "again.html"]).ends().expect(0);
    assert!(ended.stdout.contains("report: again.html"), "{}", ended.stdout);
    assert!(place.read("again.html") == html, "the report of a record is always the same");
    // An older record, without what was added since, and a later one with what we do not know.
    let mut old = recorded.json.clone();
    let fields = old.as_object_mut().unwrap();
    ["overrides", "interrupted"].iter().for_each(|key| drop(fields.remove(*key)));
    fields.insert("from_the_future".to_owned(), serde_json::json!({ "a": [1] }));
    for case in fields["cases"].as_array_mut().unwrap() {
        let case = case.as_object_mut().unwrap();
        ["lateness", "tcp_samples", "flows", "notes"].iter().for_each(|key| drop(case.remove(*key)));
    }
    place.write("old.json", old.to_string());
    place.bentpipe(&["report", "old.json", "--out", "old.html"]).ends().expect(0);
    assert!(place.read("old.html").contains("slower"));
    let mut newer = recorded.json.clone();
    newer["version"] = 99.into();
    place.write("newer.json", newer.to_string());
    let ended = place.bentpipe(&["report", "newer.json", "--out", "newer.html"]).ends().expect(2);
    assert!(ended.stderr.contains("newer.json") && ended.stderr.contains("version 99"), "{}", ended.stderr);
    assert!(!place.at("newer.html").exists());
}

const SHORT: &str = "title = 'short'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n\
    [[workloads]]\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\ncount = 2\ninterval = '20 ms'\n";

#[test]
fn json_is_all_there_is_on_standard_output() {
    for user in users() {
        let place = Place::new(user);
        place.write("s.toml", SHORT);
        let ended = place.bentpipe(&["run", "s.toml", "--json", "--out", "out"]).ends();
        assert!([0, 3].contains(&ended.code()), "{}", ended.stderr);
        assert_eq!(ended.stdout, place.read("out/record.json"));
        Recorded::parse(&ended.stdout);
        // Without --out, the folder has the scenario's name.
        place.bentpipe(&["run", "s.toml"]).ends();
        let folders = place.list("runs");
        assert!(folders.len() == 1 && folders[0].starts_with("s-2"), "{folders:?}");
    }
}

#[test]
fn an_interrupted_run_keeps_what_it_measured() {
    let scenario = "title = 'long'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n\
        [[workloads]]\nname = 'quick'\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\ncount = 3\ninterval = '10 ms'\n\
        [[workloads]]\nname = 'long'\napp = 'bulk'\nclient = 'pc'\nserver = 'hub'\nseconds = '500 s'\nstart = '300 ms'\n\
        objective = { goodput = '1 kbit/s' }\n\
        [[workloads]]\nname = 'stubborn'\napp = 'command'\nclient = 'pc'\ncommand = \"trap '' TERM; echo here; touch up; sleep 1000\"\n\
        [[cases]]\nname = 'first'\n[[cases]]\nname = 'second'\n";
    for user in users() {
        for (signal, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM")] {
            let place = Place::new(user);
            place.write("s.toml", scenario);
            let mut command = place.bentpipe(&["run", "s.toml", "--out", "out", "--set", "links.sat.rate=2 Mbit/s"]);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            wait_for(&place, "up");
            std::thread::sleep(Duration::from_secs(1));
            kill_process(Pid::from_child(&child), signal).unwrap();
            let ended = wait(child).expect(130);
            assert!(ended.stdout.contains("record.json"), "{}", ended.stdout);
            let recorded = Recorded::read(&place, "out");
            let what = format!("{user:?} {name}");
            assert_eq!(
                (&recorded.json["interrupted"], &recorded.json["complete"]),
                (&true.into(), &false.into()),
                "{what}"
            );
            assert_eq!(array(&recorded.json["cases"]).len(), 1, "{what}");
            assert_eq!(recorded.workload(0, "quick")["status"], "done", "{what}");
            let long = recorded.workload(0, "long");
            assert_eq!((&long["status"], long["objective"].get("met")), (&"interrupted".into(), None), "{what}");
            assert!(measured(long, "bytes") > 0.0 && long.get("end").is_none(), "{what}");
            let stubborn = recorded.workload(0, "stubborn");
            assert_eq!(stubborn["status"], "interrupted", "{what}");
            assert_eq!(stubborn["command"]["stdout"], "here\n", "{what}");
            processes::all_gone(&place).unwrap();
            assert_eq!(place.leftovers(), [""; 0], "{what}");
        }
    }
}

/// Waits for a file that a workload makes.
fn wait_for(place: &Place, file: &str) {
    let give_up = std::time::Instant::now() + Duration::from_secs(30);
    while !place.at(file).exists() {
        assert!(std::time::Instant::now() < give_up, "no {file}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn results_that_cannot_be_written_are_reported() {
    for user in users() {
        let place = Place::new(user);
        place.write("s.toml", SHORT);
        place.write("file", "");
        let ended = place.bentpipe(&["run", "s.toml", "--out", "file/out"]).ends().expect(2);
        assert!(ended.stderr.contains("cannot make file/out") && ended.stdout.is_empty(), "{}", ended.stderr);
        let ended = place.bentpipe(&["run", "s.toml", "--out", "/proc/nothing"]).ends().expect(2);
        assert!(ended.stderr.contains("cannot make /proc/nothing"), "{}", ended.stderr);
        assert_eq!(place.list(""), ["file", "s.toml", "tmp"]);
        place.bentpipe(&["run", "s.toml", "--out", "out"]).ends();
        let ended = place.bentpipe(&["report", "out", "--out", "file/report.html"]).ends().expect(1);
        assert!(ended.stderr.contains("cannot write file/report.html"), "{}", ended.stderr);
        let ended = place.bentpipe(&["shell", "lan", "--pcap", "file/x.pcapng", "--", "true"]).ends();
        assert!(ended.code() != 0 && ended.stderr.contains("file/x.pcapng"), "{}", ended.stderr);
    }
}

#[test]
fn a_full_disk_leaves_no_half_record() {
    if !is_root() {
        eprintln!("skipped: only root can mount a small disk");
        return;
    }
    let place = Place::new(User::Root);
    place.write("s.toml", SHORT);
    place.make_folder("full");
    // One page: the folder and its files fit, what they hold does not.
    let line = "mount -t tmpfs -o size=4k none full || exit 99; \"$0\" run s.toml --out full/out >out.txt 2>err.txt; \
        echo $?; ls -A full/out";
    let ended = place.command("unshare").args(["-m", "sh", "-c", line, env!("CARGO_BIN_EXE_bentpipe")]).ends();
    if ended.stdout.starts_with("99") || ended.code() == 99 || ended.stderr.contains("unshare") {
        eprintln!("skipped: no mounts here: {}", ended.stderr);
        return;
    }
    assert_eq!(ended.stdout, "1\n", "exit status, then whatever is in the folder; {}", place.read("err.txt"));
    let message = place.read("err.txt");
    assert!(message.contains("cannot write full/out/record.json") && message.contains("No space left"), "{message}");
}
