//! Everything that is shipped loads.

use crate::place::{Place, WaitLimited, have, users};
use std::path::{Path, PathBuf};

fn shipped(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn every_scenario_passes_its_check() {
    if !have(&["curl"]) {
        return;
    }
    // As whoever we are: an ordinary user of our making may not see the folder.
    let place = Place::new(users()[0]);
    for path in shipped("scenarios") {
        let ended = place.bentpipe(&["run", path.to_str().unwrap(), "--check"]).ends().expect(0);
        assert!(ended.stdout.contains("fine") && ended.stderr.is_empty(), "{}", ended.stdout);
    }
    assert_eq!(place.list(""), ["tmp"], "a check makes nothing");
}

#[test]
fn every_link_is_listed_and_explained() {
    let place = Place::new(users()[0]);
    let list = place.bentpipe(&["links"]).ends().expect(0).stdout;
    for path in shipped("links") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(list.lines().any(|line| line.split(' ').next() == Some(name)), "{name}: {list}");
        let text = place.bentpipe(&["links", "show", name]).ends().expect(0).stdout;
        let by_file = place.bentpipe(&["links", "show", path.to_str().unwrap()]).ends().expect(0).stdout;
        let after_name = |text: &str| text.split_once(": ").unwrap().1.to_owned();
        assert_eq!(after_name(&text), after_name(&by_file), "{name}: the file on disk is the one built in");
        for part in ["forward", "return", "round trip", "source"] {
            assert!(text.contains(part), "{name}: {text}");
        }
        let changed = place.bentpipe(&["links", "show", name, "--set", "one_way_delay=123 ms"]).ends().expect(0).stdout;
        assert!(changed.contains("round trip 246 ms"), "{name}: {changed}");
    }
}

#[test]
fn a_trace_is_read_from_the_folder_of_the_file_that_names_it() {
    let place = Place::new(users()[0]);
    place.make_folder("links");
    place.write("links/own.trace", "1\n2\n3\n10\n");
    place.write("here.trace", "1\n10\n");
    place.write("links/own.toml", "one_way_delay = '10 ms'\nrate_trace = { file = 'own.trace', bin = '10 ms' }\n");
    let forward = |more: &[&str]| {
        let shown = place.bentpipe(&[&["links", "show", "links/own.toml"], more].concat()).ends().expect(0).stdout;
        shown.lines().find(|line| line.contains("forward")).unwrap_or_default().to_owned()
    };
    assert!(forward(&[]).contains("4.8 Mbit/s"), "{}", forward(&[]));
    let other = ["--set", "rate_trace.file=here.trace"];
    assert!(forward(&other).contains("2.4 Mbit/s"), "{}", forward(&other));
    let elsewhere = ["links", "show", "links/own.toml", "--set", "rate_trace.file=own.trace"];
    let missing = place.bentpipe(&elsewhere).ends().expect(2).stderr;
    assert!(missing.contains("with --set: rate_trace.file: cannot read own.trace"), "{missing}");
}
