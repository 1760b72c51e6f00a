//! `bentpipe run --virtual`: the same files, no packets, no rights, the same bytes each time.

use crate::place::{Ends, Place, users};
use crate::recorded::{Recorded, array};

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
        assert_eq!((&json["mode"], &json["created"]), (&"virtual".into(), &"".into()));
        assert_eq!((&json["complete"], &json["left_out"][0]), (&true.into(), &"workload \"program\"".into()));
        let case = recorded.case(0);
        assert!(case.get("lateness").is_none() && recorded.valid());
        assert!(case["seconds"].as_f64().unwrap() >= 600.0, "{}", case["seconds"]);
        assert_eq!(array(&case["workloads"]).len(), 2);
        assert!(!place.at("ran").exists());
        let window = recorded.setting(0, "pc", "receive_window");
        assert_eq!((&window["asked"], window.get("kernel")), (&"8 KiB".into(), None));
        let table = place.bentpipe(&["report", "one"]).ends().expect(0).stdout;
        assert!(table.contains("Simulated in virtual time") && !table.contains("lateness"), "{table}");
        assert!(place.read("one/report.html").contains("bentpipe run --virtual --skip-live s.toml"));
    }
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
fn captures_that_cannot_be_written_are_said() {
    let place = Place::new(users()[0]);
    place.write("s.toml", SCENARIO);
    place.make_folder("out");
    place.make_folder("out/1-simulated.pcapng");
    let arguments = ["run", "s.toml", "--virtual", "--skip-live", "--pcap", "--out", "out"];
    let ended = place.bentpipe(&arguments).ends().expect(1);
    assert!(ended.stderr.contains("cannot write out/1-simulated.pcapng: Is a directory"), "{}", ended.stderr);
}
