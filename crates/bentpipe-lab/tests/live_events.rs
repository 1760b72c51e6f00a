//! Events of live runs. The process has one thread at its start, as making namespaces asks for.

use bentpipe_host::namespace::{Privilege, acquire_privilege};
use bentpipe_lab::events::{Event, Sink, Snapshot};
use bentpipe_lab::live::{self, LiveOptions};
use bentpipe_lab::record::Record;
use bentpipe_lab::scenario::Scenario;
use bentpipe_net::time::Duration;
use std::sync::atomic::{AtomicBool, Ordering};

const SCENARIO: &str = "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n\
    [[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'pc'\nserver = 'hub'\ncount = 20\ninterval = '100 ms'\n\
    [[workloads]]\nname = 'nap'\napp = 'command'\nclient = 'pc'\ncommand = 'sleep 0.7'\n";

/// Keeps every event, and ends the run at snapshot number `stop_at`, from 1.
struct Heard<'a> {
    events: Vec<Event>,
    snapshots: usize,
    stop_at: usize,
    stop: &'a AtomicBool,
}

impl Sink for Heard<'_> {
    fn event(&mut self, event: &Event) {
        self.events.push(event.clone());
        self.snapshots += usize::from(matches!(event, Event::Snapshot(_)));
        self.stop.fetch_or(self.snapshots == self.stop_at, Ordering::Relaxed);
    }
    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(250))
    }
}

fn run(privilege: Privilege, stop_at: usize) -> (Record, Vec<Event>) {
    let stop = AtomicBool::new(false);
    let mut heard = Heard { events: Vec::new(), snapshots: 0, stop_at, stop: &stop };
    let scenario = Scenario::parse("x.toml", SCENARIO, &[]).unwrap();
    let options = LiveOptions { privilege, capture_directory: None, series: Default::default() };
    let record = live::run(&scenario, &options, &stop, &mut heard).unwrap();
    (record, heard.events)
}

fn main() {
    let Ok(privilege) = acquire_privilege() else {
        eprintln!("live_events: left out: no right to make namespaces");
        return;
    };
    snapshots_come_at_the_chosen_interval(privilege);
    a_stopped_run_keeps_what_was_measured(privilege);
}

fn snapshots_come_at_the_chosen_interval(privilege: Privilege) {
    let (record, events) = run(privilege, usize::MAX);
    let snapshots: Vec<&Snapshot> = events
        .iter()
        .filter_map(|event| match event {
            Event::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        })
        .collect();
    // One at the start, one for each quarter of a second; a busy machine may be late for some.
    assert!((6..=10).contains(&snapshots.len()), "{}", snapshots.len());
    for (early, late) in snapshots.iter().zip(&snapshots[1..]) {
        assert!((early.at / 0.25).floor() < (late.at / 0.25).floor(), "{} and {}", early.at, late.at);
        let delivered = |snapshot: &Snapshot| snapshot.links[0].directions[0].delivered_packets;
        assert!(delivered(early) <= delivered(late));
    }
    let last = snapshots[snapshots.len() - 1];
    assert!(last.links[0].directions.iter().all(|d| d.delivered_packets >= 8 && d.rate > 0.0), "{last:?}");
    assert!(last.punctuality.is_some() && last.workloads.iter().any(|workload| workload.run.workload.name == "echo"));
    // The command's end is announced, not found out a while later.
    let nap = record.cases[0].workloads.iter().find(|workload| workload.name == "nap").unwrap();
    let noticed = events.iter().find_map(|event| match event {
        Event::WorkloadEnded(ended) if ended.run.workload.name == "nap" => Some(ended.at),
        _ => None,
    });
    assert!((nap.end.unwrap() - noticed.unwrap()).abs() < 0.05, "{nap:?} {noticed:?}");
}

fn a_stopped_run_keeps_what_was_measured(privilege: Privilege) {
    let (record, _) = run(privilege, 4);
    assert!(record.interrupted && record.cases[0].seconds < 1.5, "{}", record.cases[0].seconds);
    let echo = record.cases[0].workloads.iter().find(|workload| workload.name == "echo").unwrap();
    assert!(echo.measurements.iter().any(|m| m.quantity == "received" && m.value > 3.0), "{echo:?}");
}
