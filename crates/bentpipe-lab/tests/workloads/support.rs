//! Runs of a scenario in both worlds.

use bentpipe_host::namespace::Privilege;
use bentpipe_lab::live::{self, LiveOptions};
use bentpipe_lab::record::{Record, WorkloadRecord};
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// Live runs before a test gives up.
const TRIES: usize = 3;

pub fn scenario(text: &str) -> Scenario {
    Scenario::parse("s.toml", text, &[]).unwrap()
}

pub fn virtually(text: &str) -> Record {
    simulated::run(&scenario(text), &SimulatedOptions::default(), &AtomicBool::new(false)).unwrap()
}

/// `None`, with a reason printed: only root may, as bentpipe itself need not be (it enters a user namespace before it has
/// threads); or the machine was too busy for a valid run each time.
pub fn live(text: &str, capture: Option<&Path>) -> Option<Record> {
    live_scenario(&scenario(text), capture)
}

/// The same of a scenario that has been read.
pub fn live_scenario(scenario: &Scenario, capture: Option<&Path>) -> Option<Record> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    let _guard = ONE_AT_A_TIME.lock();
    for _ in 0..TRIES {
        let capture_directory = capture.map(Path::to_owned);
        let options = LiveOptions { privilege: Privilege::Root, capture_directory, series: Default::default() };
        let record = live::run(scenario, &options, &AtomicBool::new(false), &mut ()).unwrap();
        let validity = &record.cases[0].validity;
        if validity.valid {
            return Some(record);
        }
        println!("again: {:?}", validity.reasons);
    }
    println!("skipped: the machine is too busy");
    None
}

#[track_caller]
pub fn value(workload: &WorkloadRecord, name: &str) -> f64 {
    let found = workload.measurement(name);
    found.unwrap_or_else(|| panic!("no {name}: {workload:#?}")).value
}

#[track_caller]
pub fn assert_within(name: &str, measured: f64, expected: f64, tolerance: f64) {
    assert!((measured / expected - 1.0).abs() <= tolerance, "{name}: {measured} instead of {expected}");
}
