use super::counters::parse_all;
use super::engine::{self, Outcome, Shard, SweepOptions};
use super::journal::{Folder, SweepRequest};
use super::plan::{Plan, Request, SeedRule};
use super::summary::{Summary, summarise};
use super::*;
use crate::runner::{Event, Progress, Runner, Virtual, World};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;
use bentpipe_lab::events::Sink;
use bentpipe_lab::record::{Better, CaseRecord, Measurement, Record, Status, Unit, WorkloadRecord};
use bentpipe_lab::scenario::Scenario;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub const SCENARIO: &str = r#"
title = "sweep test"
seed = 7

[links.sat]
kind = "geo-two-way"
between = ["hub", "site"]
noise = 1e-9

[[workloads]]
name = "transfer"
app = "bulk"
client = "site"
server = "hub"
bytes = "100 kB"
"#;

pub fn request(vary: &[&str]) -> Request {
    Request {
        source_name: "x.toml".to_owned(),
        text: SCENARIO.to_owned(),
        set: Vec::new(),
        vary: vary.iter().map(|text| (*text).to_owned()).collect(),
        seeds: SeedRule::Count(4),
        confidence: 99.0,
        measure: Vec::new(),
    }
}

pub fn planned(request: Request) -> Plan {
    Plan::new(request, &Arc::default(), &|_| Ok(())).unwrap()
}

const NOISE: &str = "links.sat.noise.ratio=1e-9,1e-6,1e-4";
const WINDOW: &str = "hosts.*.tcp.receive_window=8KiB,64 KiB";

fn noise(scenario: &Scenario) -> f64 {
    let text = scenario.overrides.iter().find_map(|over| over.strip_prefix("links.sat.noise.ratio="));
    text.map_or(0.0, |text| text.parse().unwrap())
}

/// Stands for the simulator: goodput scatters more the more noise there is, and the noisiest link fails every other seed.
fn fake(scenario: &Scenario, _: &AtomicBool) -> Result<Record, String> {
    let mut state = scenario.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state ^= state >> 29;
    let random = (state.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1_u64 << 53) as f64;
    let ratio = noise(scenario);
    let failed = ratio > 5e-5 && scenario.seed.is_multiple_of(2);
    let goodput = 1e6 * (1.0 + (random - 0.5) * (ratio * 1e5).min(1.0));
    let mut workload = WorkloadRecord::default();
    (workload.name, workload.repeat) = ("transfer".into(), 1);
    workload.status = if failed { Status::Failed } else { Status::Done };
    workload.error = failed.then(|| "timed out".to_owned());
    workload.measurements.push(Measurement::new("bytes", Unit::Bytes, Better::Neither, 100_000.0));
    if !failed {
        workload.measurements.push(Measurement::new("goodput", Unit::BitsPerSecond, Better::Higher, goodput));
    }
    let mut case = CaseRecord::default();
    (case.name, case.workloads) = (scenario.cases[0].name.clone(), vec![workload]);
    let mut record = Record::default();
    (record.complete, record.seed, record.cases) = (true, scenario.seed, vec![case]);
    Ok(record)
}

fn options(out: &Path) -> SweepOptions {
    SweepOptions { out: out.to_owned(), shard: None, merge: Vec::new() }
}

/// Keeps the last progress.
#[derive(Default)]
struct Last(Progress);

impl Sink<Event> for Last {
    fn event(&mut self, event: &Event) {
        if let Event::Progress(progress) = event {
            self.0 = progress.clone();
        }
    }
}

fn run_on(
    workers: usize,
    plan: &Plan,
    options: &SweepOptions,
    world: &dyn World,
    stop: &AtomicBool,
) -> Result<(Outcome, Progress), SweepError> {
    let mut last = Last::default();
    let workers = NonZeroUsize::new(workers).unwrap();
    let outcome = engine::run(plan, options, &mut Runner { world, workers, attempts: 1, stop, sink: &mut last })?;
    Ok((outcome, last.0))
}

fn run(plan: &Plan, options: &SweepOptions, world: &dyn World) -> Result<Outcome, SweepError> {
    run_on(3, plan, options, world, &AtomicBool::new(false)).map(|(outcome, _)| outcome)
}

fn sweep(plan: &Plan, options: &SweepOptions) -> Outcome {
    run(plan, options, &fake).unwrap()
}

/// The results as bytes.
fn written(plan: &Plan, outcome: &Outcome, folder: &Path) -> (Vec<u8>, String) {
    let path = folder.join("results.parquet");
    parquet::write(&path, plan, outcome).unwrap();
    (std::fs::read(path).unwrap(), summarise(plan, outcome).to_csv())
}

/// A folder of its own that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("bentpipe-sweep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let scratch = Scratch::new("threads");
    let until = SeedRule::Until { limits: vec!["goodput=5%".into()], min: 5, max: 200 };
    for seeds in [SeedRule::Count(6), until] {
        let plan = planned(Request { seeds, ..request(&[NOISE, WINDOW]) });
        let all: Vec<_> = [1, 2, 7]
            .map(|workers| {
                let out = scratch.at(&format!("{workers}-{}", plan.limits.len()));
                let outcome = run_on(workers, &plan, &options(&out), &fake, &AtomicBool::new(false)).unwrap().0;
                assert!(outcome.complete);
                written(&plan, &outcome, &out)
            })
            .into();
        assert!(all.iter().all(|one| *one == all[0]));
    }
}

#[test]
fn a_stopped_sweep_continues_where_it_was() {
    let scratch = Scratch::new("resume");
    let plan = planned(request(&[NOISE, WINDOW]));
    let whole = written(&plan, &sweep(&plan, &options(&scratch.at("whole"))), &scratch.at("whole"));
    let out = scratch.at("cut");
    let (stop, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
    let counting = |scenario: &Scenario, cancel: &AtomicBool| {
        if runs.fetch_add(1, Ordering::Relaxed) == 9 {
            stop.store(true, Ordering::Relaxed);
            while !cancel.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let mut record = Record::default();
            record.interrupted = true;
            return Ok(record);
        }
        fake(scenario, cancel)
    };
    let outcome = run_on(1, &plan, &options(&out), &counting, &stop).unwrap().0;
    assert_eq!((outcome.complete, outcome.done), (false, (9, 24)));
    // Killed in the middle of a line: that run counts as not done.
    let journal = out.join("journal.jsonl");
    let text = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &text[..text.len() - 20]).unwrap();
    runs.store(100, Ordering::Relaxed);
    let (outcome, last) = run_on(3, &plan, &options(&out), &counting, &AtomicBool::new(false)).unwrap();
    assert_eq!((outcome.complete, runs.load(Ordering::Relaxed) - 100), (true, 24 - 8));
    assert_eq!(written(&plan, &outcome, &out), whole);
    assert_eq!((last.done, last.total), (24, 24));
    // Nothing is left to do.
    run(&plan, &options(&out), &counting).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 100 + 16);
}

#[test]
fn a_folder_belongs_to_one_sweep() {
    let scratch = Scratch::new("asked");
    let plan = planned(request(&[NOISE]));
    sweep(&plan, &options(&scratch.0));
    let before = std::fs::read(scratch.at("journal.jsonl")).unwrap();
    let base = request(&[NOISE]);
    for (other, part) in [
        (request(&[WINDOW]), "--vary"),
        (Request { seeds: SeedRule::Count(5), ..base.clone() }, "seeds: 4 there, 5 now"),
        (Request { confidence: 95.0, ..base.clone() }, "--confidence"),
        (Request { set: vec!["links.sat.rate=1 Mbit/s".into()], ..base.clone() }, "--set: none there"),
        (Request { text: format!("{SCENARIO}# changed\n"), ..base.clone() }, "x.toml has changed"),
    ] {
        let plan = planned(other);
        let error = run(&plan, &options(&scratch.0), &fake).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains(part), "{error}");
    }
    let mut request = SweepRequest::of(&plan);
    request.bentpipe = "0.0.1".to_owned();
    assert!(Folder::open(&scratch.0, &request).unwrap_err().to_string().contains("version"));
    assert_eq!(std::fs::read(scratch.at("journal.jsonl")).unwrap(), before);
    let open = Folder::open(&scratch.0, &SweepRequest::of(&plan)).unwrap();
    let error = run(&plan, &options(&scratch.0), &fake).unwrap_err();
    assert!(matches!(error, SweepError::Busy(_)), "{error}");
    drop(open);
    std::fs::write(scratch.at("journal.jsonl"), "{}\n").unwrap();
    let error = run(&plan, &options(&scratch.0), &fake).unwrap_err();
    assert!(error.to_string().contains("journal.jsonl:1: is damaged"), "{error}");
    std::fs::remove_file(scratch.at("sweep.json")).unwrap();
    let error = run(&plan, &options(&scratch.0), &fake).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("sweep.json"), "{error}");
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let scratch = Scratch::new("full");
    let plan = planned(request(&[NOISE]));
    drop(Folder::open(&scratch.0, &SweepRequest::of(&plan)).unwrap());
    let full = std::fs::OpenOptions::new().append(true).open("/dev/full").unwrap();
    let error = Folder::onto(&scratch.0, full).append(&journal::RunLine::failed(0, 0, 7, "x".to_owned())).unwrap_err();
    assert!(!error.is_bad_input());
    assert!(error.to_string().contains("journal.jsonl") && error.to_string().contains("No space left"), "{error}");
}

#[test]
fn the_stopping_rule_runs_until_the_interval_is_narrow() {
    let scratch = Scratch::new("until");
    let until = |max| SeedRule::Until { limits: vec!["goodput=5%".into()], min: 5, max };
    let plan = planned(Request { seeds: until(1000), ..request(&[NOISE]) });
    let outcome = sweep(&plan, &options(&scratch.at("a")));
    let summary = summarise(&plan, &outcome);
    let goodput: Vec<_> = summary.rows.iter().filter(|row| row.measurement == "goodput").collect();
    assert_eq!(goodput.len(), 3);
    for row in &goodput {
        assert!(row.half_width.unwrap() <= 0.05 * row.mean.unwrap(), "{row:?}");
    }
    // The quiet link is known after the least number of seeds; the noisiest also fails every other run.
    assert_eq!((outcome.targets[0], goodput[0].n), (5, 5));
    assert!(outcome.targets[2] > 20 && outcome.targets[2].is_multiple_of(5), "{:?}", outcome.targets);
    assert_eq!(goodput[2].failed + goodput[2].n, outcome.targets[2] as usize);
    let plan = planned(Request { seeds: until(8), ..request(&[NOISE]) });
    assert_eq!(sweep(&plan, &options(&scratch.at("b"))).targets, [5, 8, 8]);
}

#[test]
fn shards_make_up_the_whole() {
    let scratch = Scratch::new("shards");
    let until = SeedRule::Until { limits: vec!["goodput=5%".into()], min: 5, max: 200 };
    for (i, seeds) in [SeedRule::Count(5), until].into_iter().enumerate() {
        let plan = planned(Request { seeds, ..request(&[NOISE, WINDOW]) });
        let whole = scratch.at(&format!("whole{i}"));
        let expected = written(&plan, &sweep(&plan, &options(&whole)), &whole);
        let merge: Vec<PathBuf> = (1..=4)
            .map(|part| {
                let out = scratch.at(&format!("{i}-{part}"));
                let shard = Some(Shard { part, parts: 4 });
                let outcome = sweep(&plan, &SweepOptions { shard, ..options(&out) });
                assert_eq!(outcome.done.0, outcome.done.1);
                out
            })
            .collect();
        let out = scratch.at(&format!("merged{i}"));
        let none = |_: &Scenario, _: &AtomicBool| Err("every run is there already".to_owned());
        let merged = SweepOptions { merge, ..options(&out) };
        let outcome = run(&plan, &merged, &none).unwrap();
        assert!(outcome.complete && outcome.errors == 0);
        assert_eq!(written(&plan, &outcome, &out), expected);
    }
    assert_eq!(Shard::parse("3/16").unwrap(), Shard { part: 3, parts: 16 });
    for bad in ["0/4", "5/4", "3", "a/b", "1/0"] {
        assert!(Shard::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_run_that_breaks_is_reported_and_tried_again() {
    let scratch = Scratch::new("errors");
    let plan = planned(request(&[NOISE]));
    let breaking = |scenario: &Scenario, cancel: &AtomicBool| match (noise(scenario) > 1e-5, scenario.seed) {
        (true, 8) => Err("no route".to_owned()),
        (true, 9) => Ok(Record::default()),
        _ => fake(scenario, cancel),
    };
    let outcome = run(&plan, &options(&scratch.0), &breaking).unwrap();
    assert_eq!((outcome.complete, outcome.errors), (true, 2));
    let text = summarise(&plan, &outcome).to_csv();
    // Of the seeds 7 to 10 two broke, and of the others 10 failed.
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("2,0.0001,1e-4,sweep test,transfer,,,,,goodput,bit/s,99,1,") && last.ends_with(",1,2"),
        "{text}"
    );
    parquet::write(&scratch.at("results.parquet"), &plan, &outcome).unwrap();
    let rows = read(&scratch.at("results.parquet"));
    let broken: Vec<_> = rows.iter().filter(|row| row["status"] == Field::Str("error".into())).collect();
    assert_eq!(broken.len(), 2);
    assert!(broken.iter().all(|row| row["case"] == Field::Null && row["value"] == Field::Null));
    let outcome = sweep(&plan, &options(&scratch.0));
    assert_eq!((outcome.complete, outcome.errors), (true, 0));
    let broken = |_: &Scenario, _: &AtomicBool| Err("nothing works".to_owned());
    let plan = planned(Request { seeds: SeedRule::Count(30), ..request(&[]) });
    let error = run(&plan, &options(&scratch.at("b")), &broken).unwrap_err();
    assert!(error.to_string().contains("all failed") && error.to_string().contains("nothing works"), "{error}");
}

fn read(path: &Path) -> Vec<BTreeMap<String, Field>> {
    let reader = SerializedFileReader::try_from(path).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().into_columns().into_iter().collect()).collect()
}

#[test]
fn the_parquet_file_reads_back_with_units() {
    let scratch = Scratch::new("parquet");
    let plan = planned(request(&[NOISE, WINDOW, "hosts.hub.tcp.sack=true,false"]));
    let outcome = sweep(&plan, &options(&scratch.0));
    let path = scratch.at("results.parquet");
    parquet::write(&path, &plan, &outcome).unwrap();
    let rows = read(&path);
    // 12 points of 4 seeds: bytes and goodput, but two seeds of four noisy points give no goodput.
    assert_eq!(rows.len(), 12 * 4 * 2 - 4 * 2);
    let row = &rows[1];
    for (column, expected) in [
        ("point", Field::Int(0)),
        ("links.sat.noise.ratio", Field::Double(1e-9)),
        ("links.sat.noise.ratio.text", Field::Str("1e-9".into())),
        ("hosts.*.tcp.receive_window", Field::Double(8192.0)),
        ("hosts.*.tcp.receive_window.text", Field::Str("8KiB".into())),
        ("hosts.hub.tcp.sack", Field::Str("true".into())),
        ("case", Field::Str("sweep test".into())),
        ("workload", Field::Str("transfer".into())),
        ("copy", Field::Null),
        ("repeat", Field::Int(1)),
        ("seed", Field::ULong(7)),
        ("measurement", Field::Str("goodput".into())),
        ("unit", Field::Str("bit/s".into())),
        ("status", Field::Str("done".into())),
        ("error", Field::Null),
    ] {
        assert_eq!(row[column], expected, "{column}");
    }
    let Field::Double(goodput) = row["value"] else { panic!("a number") };
    let scenario = plan.scenario(0, 0).unwrap();
    assert_eq!(goodput, fake(&scenario, &AtomicBool::new(false)).unwrap().cases[0].workloads[0].measurements[1].value);
    let failed = rows.iter().find(|row| row["status"] == Field::Str("failed".into())).unwrap();
    assert_eq!(failed["error"], Field::Str("timed out".into()));
    let reader = SerializedFileReader::try_from(path.as_path()).unwrap();
    let metadata = reader.metadata().file_metadata();
    let value = |key: &str| {
        let pairs = metadata.key_value_metadata().unwrap();
        pairs.iter().find(|pair| pair.key == key).unwrap().value.clone().unwrap()
    };
    let units: BTreeMap<String, String> = serde_json::from_str(&value("bentpipe.units")).unwrap();
    assert_eq!((units["hosts.*.tcp.receive_window"].as_str(), units["links.sat.noise.ratio"].as_str()), ("B", "1"));
    assert_eq!(serde_json::from_str::<SweepRequest>(&value("bentpipe.sweep")).unwrap(), SweepRequest::of(&plan));
}

#[test]
fn the_summary_reads_well() {
    let scratch = Scratch::new("summary");
    let plan = planned(request(&[NOISE]));
    let summary: Summary = summarise(&plan, &sweep(&plan, &options(&scratch.0)));
    let text = summary.to_text();
    assert!(text.contains("transfer: Goodput\n"), "{text}");
    assert!(text.contains("links.sat.noise.ratio"), "{text}");
    assert_eq!(summary.measurements(), ["bytes", "goodput"]);
    assert!(summary.measured("goodput") && !summary.measured("goodputt"));
    let csv = summary.to_csv();
    assert!(csv.starts_with("point,links.sat.noise.ratio,links.sat.noise.ratio.text,case,workload,copy,"), "{csv}");
    assert!(
        csv.contains("\n1,0.000001,1e-6,sweep test,transfer,,,,,bytes,B,99,4,100000,100000,0,100000,100000,0,0\n"),
        "{csv}"
    );
    let json: serde_json::Value = serde_json::from_str(&summary.to_json().unwrap()).unwrap();
    assert_eq!(json["rows"][1]["values"][0]["value"], 1e-9);
    // By hand from the samples: t(3, 0.995) = 5.841.
    let samples: Vec<f64> = (0..4)
        .map(|run| {
            let record = fake(&plan.scenario(1, run).unwrap(), &AtomicBool::new(false)).unwrap();
            record.cases[0].workloads[0].measurements[1].value
        })
        .collect();
    let mean = samples.iter().sum::<f64>() / 4.0;
    let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 3.0;
    let row = summary.rows.iter().find(|row| row.point == 1 && row.measurement == "goodput").unwrap();
    assert_eq!((row.n, row.mean), (4, Some(mean)));
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    assert_eq!(row.median, Some((sorted[1] + sorted[2]) / 2.0));
    assert!(text.contains("median"), "{text}");
    assert!((row.half_width.unwrap() / (5.841 * (variance / 4.0).sqrt()) - 1.0).abs() < 1e-4);
}

/// Over the real simulator: counters of both directions and both hosts, next to what the workload measures.
#[test]
fn links_and_hosts_are_measured_where_asked() {
    let scratch = Scratch::new("counters");
    let measure = parse_all(&["link_bytes", " utilization", "pure_acks"].map(str::to_owned)).unwrap();
    let mut asked = Request { measure, ..request(&["links.sat.noise.ratio=1e-9,1e-5"]) };
    asked.seeds = SeedRule::Count(2);
    let plan = planned(asked.clone());
    let outcome = run(&plan, &options(&scratch.0), &Virtual).unwrap();
    let summary = summarise(&plan, &outcome);
    let mean = |point: u32, label: &str, measurement: &str| {
        let rows = summary.rows.iter().filter(|row| row.point == point && row.label() == label);
        rows.filter(|row| row.measurement == measurement).find_map(|row| row.mean).unwrap()
    };
    // 100 kB of a file in segments of 1448 bytes, every second one acknowledged, and what was sent again.
    for (point, more) in [(0, 0.0), (1, 1.0)] {
        assert!((100_000.0..130_000.0).contains(&mean(point, "sat from hub", "link_bytes")));
        let share = mean(point, "sat from hub", "utilization");
        assert!(share > 0.0 && share < 1.0, "{share}");
        assert!((35.0..120.0 + more * 40.0).contains(&mean(point, "site", "pure_acks")));
        assert!(mean(point, "hub", "pure_acks") <= 4.0 && mean(point, "transfer", "goodput") > 0.0);
    }
    assert!(mean(1, "sat from hub", "link_bytes") > mean(0, "sat from hub", "link_bytes"));
    let csv = summary.to_csv();
    assert!(csv.contains(",sat,hub,,link_bytes,B,99,2,") && csv.contains(",site,pure_acks,1,99,2,"), "{csv}");
    // A folder belongs to one request.
    asked.measure.clear();
    let other = run(&planned(asked), &options(&scratch.0), &Virtual).unwrap_err().to_string();
    assert!(other.contains("--measure: link_bytes; utilization; pure_acks there, none now"), "{other}");
    let wrong = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        parse_all(&texts).unwrap_err().to_string()
    };
    let twice = wrong(&["pure_acks", "link_bytes", "pure_acks "]);
    assert_eq!(twice, "--measure pure_acks: is there twice; allowed: each counter once");
    let wrong = wrong(&["droped_packets"]);
    assert!(wrong.contains("did you mean dropped_packets?") && wrong.contains("utilization"), "{wrong}");
}

/// A folder that bentpipe 0.1.0 left: copies in names, shares and counts with the same unit.
#[test]
fn a_journal_of_version_1_is_read_and_continued() {
    let scratch = Scratch::new("version-1");
    let text = include_str!("version-1/sweep.json");
    std::fs::write(scratch.at("sweep.json"), text).unwrap();
    std::fs::write(scratch.at("journal.jsonl"), include_str!("version-1/journal.jsonl")).unwrap();
    let request = SweepRequest { version: 2, ..serde_json::from_str(text).unwrap() };
    for _ in 0..2 {
        let (mut folder, lines) = Folder::open(&scratch.0, &request).unwrap();
        assert!(std::fs::read_to_string(scratch.at("sweep.json")).unwrap().contains("\"version\": 2"));
        let first: Vec<_> = lines[0].workloads.iter().map(|w| (w.workload.as_str(), w.copy, w.repeat)).collect();
        let copies = [("file", Some(1), 1), ("file", Some(2), 1)];
        assert_eq!(first, [&copies[..], &[("echo (2)", None, 1), ("echo (2)", None, 2), ("mail", None, 1)]].concat());
        let echo = &lines[0].workloads[2];
        let unit = |name: &str| echo.measurements.iter().find(|(quantity, ..)| quantity == name).unwrap().1.clone();
        assert_eq!((unit("loss"), unit("sent"), echo.status), (Unit::Share, Unit::Number, Status::Done));
        // Lines of this version behind those of the other.
        folder.append(&lines[0]).unwrap();
        let mut results = super::results::Results::default();
        lines.iter().for_each(|line| results.insert(line));
        assert_eq!((results.all().count(), lines[lines.len() - 1].workloads.len()), (4, 5));
    }
}
