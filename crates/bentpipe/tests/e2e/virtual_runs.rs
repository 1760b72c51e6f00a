//! `bentpipe run --virtual`: the same files, no packets, no rights, the same bytes each time.

use crate::place::{Place, WaitLimited, users};
use crate::recorded::{Recorded, array};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A command and TCP settings that this kernel cannot keep: either run refuses what it cannot do.
const SCENARIO: &str = "title = 'simulated'\nseed = 9\nduration = '20 min'\n\
    [links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'pc']\n\
    [hosts.pc.tcp]\npreset = 'windows-95'\nrto_initial = '3 s'\n\
    [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\ncount = 5\n\
    [[workloads]]\nname = 'image'\napp = 'page'\nclient = 'pc'\nserver = 'hub'\nbytes = '100 kB'\nstart = '10 min'\n\
    [[workloads]]\nname = 'program'\napp = 'command'\nclient = 'pc'\ncommand = 'touch ran'\n";

#[test]
fn a_virtual_run_needs_no_time_and_leaves_the_same_bytes() {
    for user in users() {
        let place = Place::new(user);
        place.write("s.toml", SCENARIO);
        let run = |out: &str| {
            let arguments = ["run", "s.toml", "--virtual", "--skip-live", "--pcap", "--json", "--out", out];
            let ended = place.bentpipe(&arguments).ends().expect(0);
            assert_eq!(ended.stdout, place.read(&format!("{out}/record.json")));
            assert_eq!(place.list(out), ["1-simulated.pcapng", "record.json", "report.html"]);
            ended.stdout
        };
        let (one, two) = (run("one"), run("two"));
        assert!(one == two, "two runs differ");
        let bytes = |out: &str| std::fs::read(place.at(&format!("{out}/1-simulated.pcapng"))).unwrap();
        assert!(bytes("one") == bytes("two") && !bytes("one").is_empty(), "two captures differ");
        let recorded = Recorded::parse(&one);
        let json = &recorded.json;
        assert_eq!((&json["mode"], json.get("created")), (&"virtual".into(), None));
        assert_eq!((&json["complete"], &json["left_out"][0]), (&true.into(), &"workload \"program\"".into()));
        let case = recorded.case(0);
        assert!(case.get("lateness").is_none() && recorded.valid());
        assert!(case["seconds"].as_f64().unwrap() >= 600.0, "{}", case["seconds"]);
        assert_eq!(array(&case["workloads"]).len(), 2);
        assert!(!place.at("ran").exists());
        let window = recorded.setting(0, "pc", "receive_window");
        assert_eq!((&window["configured"], window.get("kernel")), (&"8 KiB".into(), None));
        let table = place.bentpipe(&["report", "one"]).ends().expect(0).stdout;
        assert!(table.contains("Simulated in virtual time") && !table.contains("lateness"), "{table}");
        assert!(place.read("one/report.html").contains("bentpipe run --virtual --skip-live s.toml"));
    }
}

const CHANCE: &str = "title = 'chance'\nseed = 9\n\
    [links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'pc']\nnoise = 1e-6\n\
    [[workloads]]\nname = 'image'\napp = 'bulk'\nclient = 'pc'\nserver = 'hub'\nbytes = '200 kB'\n\
    [[cases]]\nname = 'as it is'\n[[cases]]\nname = 'quiet'\nset = { 'links.sat.noise' = 0 }\n";

#[test]
fn a_case_runs_with_several_seeds() {
    let place = Place::new(users()[0]);
    place.write("s.toml", CHANCE);
    let arguments = ["run", "s.toml", "--virtual", "--case", "as it is", "--seeds", "5", "--out", "out"];
    let table = place.bentpipe(&arguments).ends().expect(0).stdout;
    for part in ["image\n", "median", "Completion time", "5 seed(s), from 9.", "summary: out/summary.csv"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert_eq!(place.list("out"), ["seed-10", "seed-11", "seed-12", "seed-13", "seed-9", "summary.csv"]);
    let recorded = Recorded::read(&place, "out/seed-11");
    assert_eq!((&recorded.json["seed"], &recorded.json["chosen_cases"][0]), (&11.into(), &"as it is".into()));
    assert_eq!(array(&recorded.json["cases"]).len(), 1);
    // The report says how to have the same run again, and that gives the same.
    assert!(place.read("out/seed-11/report.html").contains("s.toml --case &#x27;as it is&#x27; --set seed=11"));
    let again = ["run", "s.toml", "--virtual", "--case", "as it is", "--set", "seed=11", "--json", "--out", "again"];
    assert_eq!(place.bentpipe(&again).ends().expect(0).stdout, place.read("out/seed-11/record.json"));
    let times = place.read("out/summary.csv");
    let row = times.lines().find(|line| line.contains(",image,,,,,completion_time,s,99,5,")).expect("a row");
    let cells: Vec<f64> = row.split(',').skip(11).map(|cell| cell.parse().unwrap()).collect();
    let [mean, median, half_width, least, most, failed, errors] = cells[..] else { panic!("{row}") };
    assert!(least < median && median < most && least < mean && half_width > 0.0, "{row}");
    assert_eq!((failed, errors), (0.0, 0.0));
    // Earlier results are kept, those of seeds and their summary.
    let table = place.bentpipe(&[&arguments[..6], &["2", "--out", "out"]].concat()).ends().expect(0).stdout;
    assert!(table.contains("earlier summary: out/summary-1.csv"), "{table}");
    assert_eq!(place.read("out/summary-1.csv"), times);
    assert!(place.read("out/summary.csv").contains(",completion_time,s,99,2,"));
    assert_eq!(place.list("out/seed-10"), ["record-1.json", "record.json", "report-1.html", "report.html"]);
    let last = ["--set", "seed=9223372036854775806", "--seeds", "3"];
    let wrong = place.bentpipe(&[&arguments[..3], &last].concat()).ends().expect(2);
    assert!(wrong.stderr.contains("seed: 9223372036854775806 is too high for 3 runs"), "{}", wrong.stderr);
    let wrong = place.bentpipe(&["run", "s.toml", "--virtual", "--case", "quite"]).ends().expect(2);
    assert!(wrong.stderr.contains("there is no case \"quite\" (did you mean quiet?)"), "{}", wrong.stderr);
}

#[test]
fn each_way_of_running_checks_what_it_can_do() {
    let place = Place::new(users()[0]);
    place.write("s.toml", SCENARIO);
    let ended = place.bentpipe(&["run", "s.toml", "--check"]).ends().expect(2);
    assert!(ended.stderr.contains("rto_initial"), "{}", ended.stderr);
    let ended = place.bentpipe(&["run", "s.toml", "--check", "--virtual"]).ends().expect(2);
    assert!(ended.stderr.contains("s.toml:27: workloads.2.command"), "{}", ended.stderr);
    let ended = place.bentpipe(&["run", "s.toml", "--check", "--virtual", "--skip-live"]).ends().expect(0);
    assert_eq!(ended.stdout, "s.toml: fine; 1 case(s), 3 workload(s); left out: workload \"program\"\n");
    assert_eq!(place.list(""), ["s.toml", "tmp"]);
}

#[test]
fn captures_that_cannot_be_written_are_reported() {
    let place = Place::new(users()[0]);
    place.write("s.toml", SCENARIO);
    place.make_folder("out");
    place.make_folder("out/1-simulated.pcapng");
    let arguments = ["run", "s.toml", "--virtual", "--skip-live", "--pcap", "--out", "out"];
    let ended = place.bentpipe(&arguments).ends().expect(1);
    assert!(ended.stderr.contains("cannot write out/1-simulated.pcapng: Is a directory"), "{}", ended.stderr);
}

/// Shipped scenarios that have something to run without commands.
fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<PathBuf> = [folder.clone(), folder.join("parity")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        // A list of scenarios, not one.
        .filter(|path| path.file_name().is_some_and(|name| name != "parity.toml"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_shipped_scenario_runs_in_virtual_time() {
    let place = Place::new(users()[0]);
    let files = shipped();
    assert!(files.len() > 40, "{files:?}");
    for (number, path) in files.iter().enumerate() {
        let (path, out) = (path.display().to_string(), format!("out{number}"));
        let started = Instant::now();
        let arguments = ["run", &path, "--virtual", "--skip-live", "--json", "--out", &out];
        let recorded = Recorded::parse(&place.bentpipe(&arguments).ends().expect(0).stdout);
        assert!(started.elapsed() < Duration::from_secs(60), "{path} took {:?}", started.elapsed());
        assert_eq!((&recorded.json["complete"], recorded.valid()), (&true.into(), true), "{path}");
        let cases = array(&recorded.json["cases"]);
        for workload in cases.iter().flat_map(|case| array(&case["workloads"])) {
            assert_eq!(workload["status"], "done", "{path}: {workload:.300}");
        }
    }
}

#[test]
fn a_shipped_scenario_leaves_the_same_bytes_each_time() {
    let place = Place::new(users()[0]);
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/ship.toml").display().to_string();
    let run = |out: &str| {
        place.bentpipe(&["run", &scenario, "--virtual", "--pcap", "--out", out]).ends().expect(0);
        let files = place.list(out);
        let bytes = files.iter().map(|name| std::fs::read(place.at(&format!("{out}/{name}"))).unwrap());
        let bytes: Vec<Vec<u8>> = bytes.collect();
        assert!(files.iter().filter(|name| name.ends_with(".pcapng")).count() == 2, "{files:?}");
        assert!(bytes.iter().all(|bytes| !bytes.is_empty()));
        (files, bytes)
    };
    assert!(run("one") == run("two"), "two runs differ");
}

#[test]
fn the_demo_without_its_programs_takes_no_time() {
    let place = Place::new(users()[0]);
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/clinic.toml").display().to_string();
    let refused = place.bentpipe(&["run", &scenario, "--virtual", "--out", "out"]).ends().expect(2);
    assert!(refused.stderr.contains("--skip-live"), "{}", refused.stderr);
    let started = Instant::now();
    let arguments = ["run", &scenario, "--virtual", "--skip-live", "--out", "out"];
    let ended = place.bentpipe(&arguments).ends().expect(0);
    // It simulates 200 s. A second is what it takes on a machine that does nothing else.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(ended.stdout.contains("left out: workload \"MRI image\""), "{}", ended.stdout);
}
