//! What runs on the machine: processes of a test by the marker in their environment, and who holds a namespace.

use crate::place::{MARKER, Place};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Processes that `place` started, directly or not, zombies excepted.
pub fn of(place: &Place) -> Vec<u32> {
    let marker = format!("{MARKER}={}", place.marker());
    pids()
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
        })
        .collect()
}

/// The command lines of processes, for messages.
pub fn describe(pids: &[u32]) -> Vec<String> {
    let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
    pids.iter().map(|pid| format!("{pid}: {}", line(pid))).collect()
}

/// Waits until no process of the place is left.
pub fn all_gone(place: &Place) -> Result<(), Vec<String>> {
    let give_up = Instant::now() + GONE_WITHIN;
    loop {
        let left = of(place);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > give_up {
            return Err(describe(&left));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The network namespaces, other than our own, in which the processes are or which they hold open.
pub fn network_namespaces(pids: &[u32]) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = pids.iter().flat_map(|pid| held_by(*pid)).collect();
    for own in held_by(std::process::id()) {
        found.remove(&own);
    }
    found
}

/// Who, of the processes as old as `since` (clock ticks after boot), holds one of the namespaces. A younger process may
/// have got a new namespace with an old one's number.
pub fn holders(namespaces: &BTreeSet<String>, since: u64) -> Vec<String> {
    let old = pids().filter(|pid| started(*pid).is_some_and(|at| at <= since));
    let holding: Vec<u32> = old.filter(|pid| held_by(*pid).iter().any(|n| namespaces.contains(n))).collect();
    describe(&holding)
}

/// Clock ticks since boot, as `/proc/PID/stat` counts when a process started.
pub fn ticks() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = text.split(' ').next().and_then(|s| s.parse().ok()).unwrap();
    (seconds * TICKS_PER_SECOND) as u64
}

/// How long after the program's end something of it may still be seen.
pub const GONE_WITHIN: Duration = Duration::from_secs(3);
/// USER_HZ, the same on every architecture Linux has today.
const TICKS_PER_SECOND: f64 = 100.0;

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Where its threads are, and what its descriptors hold.
fn held_by(pid: u32) -> Vec<String> {
    let mut links: Vec<PathBuf> = Vec::new();
    let folder = |path: String| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    links.extend(folder(format!("/proc/{pid}/task")).map(|thread| thread.join("ns/net")));
    links.extend(folder(format!("/proc/{pid}/fd")));
    let targets = links.into_iter().filter_map(|link| fs::read_link(link).ok());
    targets.map(|target| target.to_string_lossy().into_owned()).filter(|target| target.starts_with("net:[")).collect()
}

fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; what follows is field 3.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
