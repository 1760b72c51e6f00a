//! Experiments: what they refuse, what a run leaves, and that docs/results.md is what they give.

use crate::place::{Place, User, WaitLimited, have, root, users};

/// A small experiment of one claim.
fn write(place: &Place, published: &str) {
    std::fs::create_dir_all(place.at("e/one")).unwrap();
    place.write(
        "e/one/scenario.toml",
        "title = 'One'\n[links.sat]\nkind = 'acts-t1'\nbetween = ['hub', 'site']\n\
         [[workloads]]\nname = 'file'\napp = 'bulk'\nclient = 'site'\nserver = 'hub'\nbytes = '100 kB'\n\
         [[axes]]\nname = 'size'\nkeys = ['workloads.file.bytes']\nvalues = '100 kB, 200 kB'\n",
    );
    place.write(
        "e/one/published.toml",
        format!(
            "paper = 'P'\ncitation = 'C'\nfigure = 'F'\n[[claims]]\nid = 'P-1'\nwhere = 'there'\nsays = 'so'\n\
             workload = 'file'\nmeasurement = 'completion_time'\nat = {{ size = '100 kB' }}\n{published}\n\
             [[charts]]\ntitle = 'x'\nx = 'size'\nworkload = 'file'\nmeasurements = ['completion_time']\n"
        ),
    );
    place.write("e/one/README.md", "# One\n\n## Validation\n");
}

#[test]
fn verdicts_follow_from_the_figures() {
    let place = Place::new(users()[0]);
    for (check, verdict) in [
        ("at_most = '1 min'", "within"),
        ("at_most = '1 ms'", "outside"),
        ("value = '1 h'\ntolerance = '10 %'", "outside"),
        ("at_most = '1 min'\nbecause = 'words'", "trend-holds"),
        ("at_most = '1 Mbit/s'", "cannot-be-compared"),
        ("along = 'size'\ntrend = 'rises'", "trend-holds"),
        ("along = 'size'\ntrend = 'falls'", "outside"),
        ("along = 'size'\npeak = ['150 kB', '250 kB']", "trend-holds"),
        ("along = 'size'\npeak = ['50 kB', '150 kB']", "outside"),
    ] {
        write(&place, check);
        let ended = place.bentpipe(&["experiments", "--folder", "e", "run", "one", "--json"]).ends().expect(0);
        let tables: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(tables[0]["rows"][0]["verdict"], verdict, "{check}: {}", ended.stdout);
    }
}

#[test]
fn each_mistake_is_named() {
    let place = Place::new(users()[0]);
    for (check, parts) in [
        ("", &["claims.0", "one check"] as &[&str]),
        ("value = '1 s'", &["tolerance", "is missing"]),
        ("value = '1 s'\ntolerance = '10 %'\nat_most = '2 s'", &["one check"]),
        ("at_most = 'much'", &["at_most", "no quantity"]),
        ("trend = 'rises'", &["along", "is missing"]),
        ("at_most = '1 s'\nalong = 'colour'", &["no axis \"colour\"", "size"]),
        ("at_most = '1 s'\ncase = 'other'", &["no case \"other\"", "One"]),
        ("at_most = '1 s'\nover = { at = { size = '7 kB' } }", &["7 kB is no value", "100 kB"]),
        ("verdict = 'within'", &["verdict"]),
        ("value = '1 s'\ntolerance = '50 %'", &["tolerance", "because", "10 %, 20 %"]),
    ] {
        write(&place, check);
        let ended = place.bentpipe(&["experiments", "--folder", "e", "run", "one"]).ends().expect(2);
        assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{check}: {}", ended.stderr);
    }
    write(&place, "at_most = '1 s'");
    for (arguments, part) in
        [(&["run", "two"] as &[&str], "no experiment \"two\""), (&["run", "one", "--jobs", "0"], "--jobs 0")]
    {
        let ended = place.bentpipe(&[&["experiments", "--folder", "e"], arguments].concat()).ends().expect(2);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    let ended = place.bentpipe(&["experiments", "--folder", "elsewhere", "run", "all"]).ends().expect(2);
    assert!(ended.stderr.contains("elsewhere: is no folder here; --folder DIR"), "{}", ended.stderr);
    place.write("e/one/README.md", "# One\n\n## Method\n");
    let ended = place.bentpipe(&["experiments", "--folder", "e"]).ends().expect(2);
    assert!(ended.stderr.contains("## Validation"), "{}", ended.stderr);
}

#[test]
fn a_run_leaves_a_report_that_loads_nothing() {
    let place = Place::new(users()[0]);
    write(&place, "value = '1.5 s'\ntolerance = '50 %'\nbecause = 'A test.'");
    place.bentpipe(&["experiments", "--folder", "e", "run", "all", "--out", "out"]).ends().expect(0);
    let html = place.read("out/one/report.html");
    for part in ["P-1", "figure-1", "published, P-1", "data", "## Validation"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("src=") && !html.contains("@import"));
    serde_json::from_str::<serde_json::Value>(&place.read("out/one/results.json")).unwrap();
}

/// Not after the runs, which may take hours.
#[test]
fn a_folder_that_takes_no_reports_is_reported_before_the_runs() {
    let place = Place::new(users()[0]);
    write(&place, "at_most = '1 min'");
    for out in ["e/one/README.md/out", "/proc/self"] {
        let ended = place.bentpipe(&["experiments", "--folder", "e", "run", "one", "--out", out]).ends().expect(1);
        assert!(ended.stderr.contains("cannot ") && ended.stderr.contains(out), "{}", ended.stderr);
        assert_eq!(ended.stdout, "", "nothing was run");
    }
}

/// The disk is full when the runs are over: their table is printed all the same.
#[test]
fn the_table_outlives_the_reports() {
    if !have(&["mount", "unshare"]) {
        return;
    }
    let place = Place::new(users()[0]);
    write(&place, "at_most = '1 min'");
    let own = if place.user == User::Root { "-m" } else { "-rm" };
    let line = format!(
        "mount -t tmpfs -o size=8k none tmp && {} experiments --folder e run one --out tmp; status=$?; ls -A tmp/one; exit $status",
        env!("CARGO_BIN_EXE_bentpipe")
    );
    let ended = place.command("unshare").args([own, "sh", "-c", &line]).ends().expect(1);
    assert!(ended.stderr.contains("report.html"), "{}", ended.stderr);
    assert!(ended.stdout.contains("P-1") && ended.stdout.contains("within"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("report.html"), "nothing half-written: {}", ended.stdout);
}

#[test]
fn an_experiment_runs_over_real_packets() {
    for user in users() {
        let place = Place::alone(user);
        write(&place, "at_most = '1 min'");
        let run = ["experiments", "--folder", "e", "run", "one", "--live", "--json", "--out", "out"];
        let ended = place.bentpipe(&run).ends();
        let tables: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
        assert_eq!(tables[0]["mode"], "live");
        // A run that was late three times is not used: it "could not be done". It may be the row's, or a remedy's.
        let row = &tables[0]["rows"][0];
        let was_late = ended.stderr.contains("the run is invalid");
        assert_eq!(ended.code(), i32::from(was_late), "{row} {}", ended.stderr);
        let expected = if was_late && row["value"].is_null() { "cannot-be-compared" } else { "within" };
        assert_eq!(row["verdict"], expected, "{row} {}", ended.stderr);
        assert!(place.read("out/one/report.html").contains("--live"));
    }
}

/// Two channels that are called up as the load asks for them: the same calls and much the same transfer in both worlds.
#[test]
fn channels_are_called_up_live_as_in_virtual_time() {
    for user in users() {
        let place = Place::alone(user);
        place.write(
            "demand.toml",
            "title = 'On demand'\n[links.sat]\nkind = 'acts-frame-relay'\nbetween = ['hub', 'site']\n\
             bundle = { channels = 2, rate = '256 kbit/s' }\none_way_delay = '20 ms'\n\
             [links.sat.circuit]\nstages = [{ name = 'call', time = '1 s' }]\n\
             on_demand = { history = '500 ms', interval = '500 ms', call_after = '0 s', release_after = '1 s' }\n\
             [[workloads]]\nname = 'file'\napp = 'bulk'\nclient = 'site'\nserver = 'hub'\nbytes = '250 kB'\ncontent = 'text'\n",
        );
        let circuit = |more: &[&str]| {
            let run = [&["run", "demand.toml", "--json", "--out", "out"], more].concat();
            let ended = place.bentpipe(&run).ends();
            let record: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
            let case = &record["cases"][0];
            let of = |name: &str| {
                let measurements = case["workloads"][0]["measurements"].as_array().unwrap();
                measurements.iter().find(|m| m["quantity"] == name).and_then(|m| m["value"].as_f64()).unwrap()
            };
            assert_eq!((of("bytes"), of("wrong_bytes")), (250_000.0, 0.0), "text, verified byte by byte");
            (case["links"][0]["circuit"].clone(), of("completion_time"))
        };
        let (simulated, simulated_time) = circuit(&["--virtual"]);
        let (live, live_time) = circuit(&[]);
        for circuit in [&simulated, &live] {
            assert_eq!((&circuit["calls"], &circuit["channels_most"]), (&2.into(), &2.into()), "{circuit}");
            let changes = circuit["changes"].as_array().unwrap().iter();
            let changes: Vec<_> =
                changes.map(|c| (c["state"].as_str().unwrap(), &c["channel"], &c["channels"])).collect();
            let (none, two) = (serde_json::Value::Null, 2.into());
            let expected = [
                ("setting_up", &none, &none),
                ("up", &none, &none),
                ("setting_up", &two, &none),
                ("channels_up", &none, &two),
            ];
            assert_eq!(changes[..4], expected, "{circuit}");
        }
        // 250 kB take 5 s over both channels and 1 s for the first call; the second comes after the first look.
        let both = (live_time, simulated_time);
        assert!(live_time > 4.0 + 1.0 && (live_time / simulated_time - 1.0).abs() < 0.2, "{both:?}");
    }
}

/// Experiments in which chance has a part, small enough to be run again: the same seed gives the same means, intervals and
/// verdicts.
const RANDOM_ONES: [&str; 1] = ["ntia-4-ping"];

/// Every experiment loads; those without chance, and some with, give what docs/results.md says, word for word. Of the
/// others the page holds what they are made from.
#[test]
fn the_results_page_is_not_stale() {
    let place = Place::new(users()[0]);
    let (folder, page) = (root("experiments"), std::fs::read_to_string(root("docs/results.md")).unwrap());
    let list = place.bentpipe(&["experiments", "--folder", &folder]).ends().expect(0).stdout;
    let ids: Vec<&str> =
        list.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next()).collect();
    assert!(ids.len() >= 18, "{list}");
    // What the page says of each: a wrong word there shows in the comparison.
    let certain: Vec<&str> = page
        .split("\n### ")
        .filter(|section| section.contains("nothing is left to chance"))
        .filter_map(|section| section.split_once("<!-- ")?.1.split(' ').next())
        .collect();
    assert!(certain.len() >= 9, "{certain:?}");
    for id in RANDOM_ONES {
        assert!(ids.contains(&id) && !certain.contains(&id), "{id} is none of those that chance has a part in");
    }
    // One by one: each has the time limit of a command to itself.
    for id in certain.into_iter().chain(RANDOM_ONES) {
        let fresh =
            place.bentpipe(&["experiments", "--folder", &folder, "run", "--markdown", id]).ends().expect(0).stdout;
        let sections: Vec<&str> = fresh.split("\n### ").skip(1).collect();
        let [section] = sections[..] else { panic!("{id}: {} sections", sections.len()) };
        assert!(page.contains(section.trim_end()), "stale; make results writes it again:\n{section}");
    }
    for id in ids {
        let text = |name: &str| std::fs::read(format!("{folder}/{id}/{name}")).unwrap();
        let digest = digest(&[text("scenario.toml"), text("published.toml")]);
        assert!(page.contains(&format!("<!-- {id} {digest} -->")), "{id} is stale; make results writes it again");
    }
}

/// FNV-1a as the page holds it: <http://www.isthe.com/chongo/tech/comp/fnv/>
fn digest(texts: &[Vec<u8>]) -> String {
    let bytes = texts.iter().flat_map(|text| text.iter().copied().chain([0]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}
