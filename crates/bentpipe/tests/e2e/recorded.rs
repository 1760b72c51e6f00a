//! A run and its record, read as plain JSON: what other programs see.

use crate::place::{Place, WaitLimited};
use serde_json::Value;

/// A record.json.
#[derive(Debug)]
pub struct Recorded {
    pub json: Value,
}

impl Recorded {
    pub fn parse(text: &str) -> Recorded {
        Recorded { json: serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:.300}")) }
    }

    /// The record in a folder of the place.
    pub fn read(place: &Place, folder: &str) -> Recorded {
        Recorded::parse(&place.read(&format!("{folder}/record.json")))
    }

    pub fn case(&self, number: usize) -> &Value {
        &self.json["cases"][number]
    }

    /// True if every case was as punctual as its limits ask.
    pub fn valid(&self) -> bool {
        array(&self.json["cases"]).iter().all(|case| case["validity"]["valid"] == true)
    }

    /// A workload's first run in a case.
    #[track_caller]
    pub fn workload(&self, case: usize, name: &str) -> &Value {
        let all = array(&self.case(case)["workloads"]);
        all.iter().find(|w| w["name"] == name).unwrap_or_else(|| panic!("no workload {name}: {all:#?}"))
    }

    /// What the wire showed of a host's setting, and whether that contradicts it.
    #[track_caller]
    pub fn setting(&self, case: usize, host: &str, name: &str) -> &Value {
        let all = array(&self.case(case)["settings"]);
        all.iter()
            .find(|s| s["host"] == host && s["name"] == name)
            .unwrap_or_else(|| panic!("no {host} {name}: {all:#?}"))
    }

    /// A link's counters: forward, then each return.
    #[track_caller]
    pub fn counters(&self, case: usize, link: &str) -> Vec<&Value> {
        let links = array(&self.case(case)["links"]);
        let link = links.iter().find(|l| l["name"] == link).unwrap_or_else(|| panic!("no link {link}"));
        array(&link["directions"]).iter().map(|direction| &direction["counters"]).collect()
    }
}

/// The elements of a JSON array.
#[track_caller]
pub fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("no array: {value}"))
}

/// A workload's measurement.
#[track_caller]
pub fn measured(workload: &Value, name: &str) -> f64 {
    let all = array(&workload["measurements"]);
    let found = all.iter().find(|m| m["quantity"] == name).and_then(|m| m["value"].as_f64());
    found.unwrap_or_else(|| panic!("no {name}: {workload:#}"))
}

/// A counter.
#[track_caller]
pub fn count(counters: &Value, name: &str) -> u64 {
    counters[name].as_u64().unwrap_or_else(|| panic!("no {name}: {counters}"))
}

/// Holds a direction's bytes on the link against its packets, each with so many bytes of framing.
#[track_caller]
pub fn expect_framed(counters: &Value, framing: u64) {
    let sent = count(counters, "sent_packets");
    // Dropped by the queue, or still in it at the end of the case.
    let not_sent = count(counters, "offered_packets") - sent;
    let most = count(counters, "offered_bytes") + framing * sent;
    let link = count(counters, "link_bytes");
    assert!(link <= most && link + 1_500 * not_sent >= most, "{counters}");
}

/// Runs a scenario whose times nobody judges, and leaves its results in `out`.
#[track_caller]
pub fn run(place: &Place, scenario: &str, options: &[&str]) -> Recorded {
    place.write("scenario.toml", scenario);
    run_into(place, "out", options)
}

#[track_caller]
fn run_into(place: &Place, out: &str, options: &[&str]) -> Recorded {
    let ended = place.bentpipe(&[&["run", "scenario.toml", "--out", out][..], options].concat()).ends();
    assert!([0, 3].contains(&ended.code()), "{}\n{}", ended.stdout, ended.stderr);
    let recorded = Recorded::read(place, out);
    assert_eq!(ended.code() == 0, recorded.valid(), "the exit status says whether the run is valid");
    recorded
}

/// Runs a scenario that must be punctual to be judged: again when it says that it was not, and nothing when the machine
/// is too busy each time.
pub fn punctual_run(place: &Place, scenario: &str, options: &[&str]) -> Option<Recorded> {
    place.write("scenario.toml", scenario);
    for _ in 0..TRIES {
        let recorded = run_into(place, "out", options);
        if recorded.valid() {
            return Some(recorded);
        }
        eprintln!("again: {}", recorded.json["cases"][0]["validity"]["reasons"]);
    }
    eprintln!("not judged: the machine was too busy {TRIES} times");
    None
}

const TRIES: usize = 3;
