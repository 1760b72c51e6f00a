//! The simulator against samples of live runs that are kept with the scenarios.

use crate::place::{Place, WaitLimited, root, users};
use serde_json::Value;

/// Every scenario of the list, against what the kernel did: none that counts differs, and none is left without
/// samples.
#[test]
fn the_simulator_still_does_what_the_kernel_did() {
    let place = Place::new(users()[0]);
    let (list, live) = (root("scenarios/parity/parity.toml"), root("scenarios/parity/live"));
    let names: Vec<String> = std::fs::read_to_string(&list)
        .unwrap()
        .lines()
        .filter_map(|line| Some(line.strip_prefix("file = \"")?.strip_suffix(".toml\"")?.to_owned()))
        .collect();
    assert!(names.len() > 50, "{names:?}");
    // A few at a time: each command has a time limit.
    for some in names.chunks(12) {
        let mut arguments = vec!["parity", &list, "--only", "virtual", "--live-from", &live, "--out", "out", "--json"];
        arguments.extend(some.iter().map(String::as_str));
        let ended = place.bentpipe(&arguments).ends();
        let rows: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(rows.len(), some.len(), "{}", ended.stderr);
        for row in rows.iter().filter(|row| row["informative"] == false) {
            assert_eq!(row["verdict"], "agrees", "{row:#}\n{}", ended.stderr);
        }
        ended.expect(0);
    }
}
