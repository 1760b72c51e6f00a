//! What becomes of a run's results where they cannot go.

use crate::place::{Ended, Place, User, WaitLimited, have, users};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;

const SCENARIO: &str = "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['hub', 'pc']\n\
    [[workloads]]\nname = 'w'\napp = 'bulk'\nclient = 'pc'\nserver = 'hub'\nbytes = '10 kB'\n";
const RUN: &[&str] = &["run", "s.toml", "--virtual", "--out", "out"];

fn place(user: User) -> Place {
    let place = Place::new(user);
    place.write("s.toml", SCENARIO);
    place
}

#[test]
fn a_folder_that_takes_nothing_is_refused_before_the_run() {
    let place = place(User::Ordinary);
    let out = place.make_folder("out");
    std::fs::set_permissions(&out, Permissions::from_mode(0o555)).unwrap();
    if File::create(out.join("probe")).is_ok() && !crate::place::is_root() {
        eprintln!("skipped: this user may write anywhere");
        return;
    }
    let _ = std::fs::remove_file(out.join("probe"));
    let ended = place.bentpipe(RUN).ends().expect(2);
    assert!(ended.stderr.contains("cannot write in out: Permission denied"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

/// Runs with `out` on a disk that has room for the folder and nothing else; temporary files go to `temporary`.
fn with_a_full_disk(place: &Place, temporary: &str, options: &str) -> Ended {
    let line = format!(
        "mkdir out && mount -t tmpfs -o size=64k none out && head -c 65536 /dev/zero >out/fill; \
         TMPDIR={temporary} {} run s.toml --virtual --out out {options}; status=$?; ls -A out; exit $status",
        env!("CARGO_BIN_EXE_bentpipe")
    );
    // An ordinary user may mount in a user namespace of its own.
    let own = if matches!(place.user, User::Root) { "-m" } else { "-rm" };
    place.command("unshare").args([own, "sh", "-c", &line]).ends()
}

#[test]
fn a_full_disk_does_not_cost_the_run() {
    if !have(&["mount", "unshare"]) {
        return;
    }
    for user in users() {
        let place = place(user);
        let temporary = place.at("tmp").display().to_string();
        let ended = with_a_full_disk(&place, &temporary, "").expect(1);
        assert!(ended.stderr.contains("No space left") && ended.stderr.contains("results are in"), "{}", ended.stderr);
        assert!(ended.stdout.contains("WORKLOAD"), "the table: {}", ended.stdout);
        let elsewhere = place.list("tmp").pop().expect("a folder among the temporary files");
        assert_eq!(place.list(&format!("tmp/{elsewhere}")), ["record.json", "report.html"]);
        assert!(ended.stdout.contains(&format!("{elsewhere}/record.json")), "{}", ended.stdout);
        assert!(ended.stdout.ends_with("fill\n"), "nothing half written: {}", ended.stdout);
        // No other place either: the table is all there is.
        std::fs::remove_dir(place.at("out")).unwrap();
        let ended = with_a_full_disk(&place, "/nonexistent", "").expect(1);
        assert!(ended.stderr.contains("the record is lost"), "{}", ended.stderr);
        assert!(ended.stdout.contains("WORKLOAD"), "the table: {}", ended.stdout);
        // Each of several runs has a folder of its own, and the table of them all is printed.
        std::fs::remove_dir(place.at("out")).unwrap();
        let before = place.list("tmp").len();
        let ended = with_a_full_disk(&place, &temporary, "--seeds 3").expect(1);
        assert_eq!(place.list("tmp").len() - before, 3, "{:?}", place.list("tmp"));
        assert!(ended.stdout.contains("Completion time") && ended.stdout.contains("3 seed(s)"), "{}", ended.stdout);
        assert!(ended.stderr.contains("cannot write out/summary.csv: No space left"), "{}", ended.stderr);
    }
}

#[test]
fn no_run_takes_another_s_place() {
    let place = place(users()[0]);
    place.bentpipe(RUN).ends().expect(0);
    let first = place.read("out/record.json");
    let ended = place.bentpipe(&[RUN, &["--set", "seed=2"]].concat()).ends().expect(0);
    assert!(ended.stdout.contains("earlier record: out/record-1.json"), "{}", ended.stdout);
    assert_eq!(place.list("out"), ["record-1.json", "record.json", "report-1.html", "report.html"]);
    assert_eq!(place.read("out/record-1.json"), first);
    assert_ne!(place.read("out/record.json"), first);
    // One that is under way.
    let lock = File::open(place.at("out")).unwrap();
    lock.lock().unwrap();
    let ended = place.bentpipe(RUN).ends().expect(2);
    assert!(ended.stderr.contains("another run") && ended.stderr.contains("--out"), "{}", ended.stderr);
    // Without --out each has a folder of its own, however soon they follow each other.
    for _ in 0..3 {
        place.bentpipe(&RUN[..3]).ends().expect(0);
    }
    assert_eq!(place.list("runs").len(), 3, "{:?}", place.list("runs"));
}

#[test]
fn an_earlier_capture_is_kept_with_its_record() {
    let place = place(users()[0]);
    let captured = |more: &[&str]| place.bentpipe(&[RUN, &["--pcap"], more].concat()).ends().expect(0);
    let bytes = |name: &str| std::fs::read(place.at(&format!("out/{name}"))).unwrap();
    captured(&[]);
    let first = bytes("1-x.pcapng");
    captured(&["--set", "workloads.w.bytes=20 kB"]);
    let second = bytes("1-x.pcapng");
    assert!(bytes("1-x-1.pcapng") == first && second != first);
    // A run without captures must not seem to have those of the run before.
    place.bentpipe(RUN).ends().expect(0);
    let kept = ["1-x-1.pcapng", "1-x-2.pcapng", "record-1.json", "record-2.json", "record.json"];
    assert_eq!(place.list("out"), [&kept[..], &["report-1.html", "report-2.html", "report.html"]].concat());
    assert!(bytes("1-x-2.pcapng") == second);
}

#[test]
fn a_report_does_not_replace_its_record() {
    let place = place(users()[0]);
    place.bentpipe(RUN).ends().expect(0);
    let record = place.read("out/record.json");
    std::os::unix::fs::symlink("out/record.json", place.at("link.json")).unwrap();
    for out in ["out/record.json", "./out/../out/record.json", "link.json"] {
        let ended = place.bentpipe(&["report", "out", "--out", out]).ends().expect(2);
        assert!(ended.stderr.contains("the record itself"), "{out}: {}", ended.stderr);
        assert_eq!(place.read("out/record.json"), record);
    }
    place.bentpipe(&["report", "out", "--out", "again.html"]).ends().expect(0);
    assert_eq!(place.read("again.html"), place.read("out/report.html"));
}
