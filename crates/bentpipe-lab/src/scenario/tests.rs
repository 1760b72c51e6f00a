use super::*;

const GOOD: &str = r#"
title = "test"
seed = 7

[links.sat]
kind = "geo-two-way"
between = ["hub", "clinic"]
rate = "2 Mbit/s"

[hosts.clinic.tcp]
preset = "windows-95"

[[workloads]]
name = "image"
app = "http"
client = "clinic"
server = "hub"
bytes = "524288 B"
objective = { within = "10 s" }

[[workloads]]
app = "ping"
client = "clinic"
server = "hub"
background = true

[[cases]]
name = "8 KB"

[[cases]]
name = "64 KB"
set = { "hosts.clinic.tcp.receive_window" = "65535 B", "links.sat.noise.ratio" = 1e-6 }
"#;

#[test]
fn reads_a_scenario_and_its_cases() {
    let scenario = Scenario::parse("x.toml", GOOD, &[]).unwrap();
    assert_eq!(scenario.cases.len(), 2);
    let window = |case: &Case| case.tcp["clinic"].receive_window.unwrap().bytes;
    assert_eq!((window(&scenario.cases[0]), window(&scenario.cases[1])), (8192, 65_535));
    assert_eq!(scenario.cases[0].tcp["hub"].preset.as_deref(), Some("linux"));
    assert_eq!(scenario.cases[1].workloads[1].name, "ping 2");
    let changed = ["workloads.image.bytes=1 MB".to_owned(), "links.sat.one_way_delay=100 ms".to_owned()];
    let scenario = Scenario::parse("x.toml", GOOD, &changed).unwrap();
    assert_eq!(scenario.cases[0].links[0].config.round_trip(), Duration::from_millis(200));
    let workload::Program::Page(spec) = &scenario.cases[0].workloads[0].program else { panic!("a page") };
    assert_eq!((spec.html_bytes, spec.path.as_str(), spec.port), (1_000_000, "/bytes/1000000", 80));
}

/// Each mistake: what replaces what, and what the message must hold.
const BAD: &[(&str, &str, &[&str])] = &[
    ("seed = 7", "sede = 7", &["x.toml:3", "sede", "seed"]),
    ("rate = \"2 Mbit/s\"", "rate = \"2 Mbits\"", &["x.toml:8", "links.sat.rate", "kbit/s"]),
    ("rate = \"2 Mbit/s\"", "rate = 2", &["x.toml:8", "links.sat.rate", "kbit/s"]),
    ("kind = \"geo-two-way\"", "kind = \"mars\"", &["x.toml:6", "links.sat.kind", "geo-two-way"]),
    ("\"clinic\"]", "\"hub\"]", &["x.toml:7", "hub twice"]),
    ("\"clinic\"]", "\"Clinic!\"]", &["x.toml:7", "host name"]),
    ("preset = \"windows-95\"", "preset = \"windows-3\"", &["x.toml:11", "hosts.clinic.tcp.preset", "solaris-2"]),
    (
        "client = \"clinic\"\nserver = \"hub\"\nbytes",
        "client = \"moon\"\nserver = \"hub\"\nbytes",
        &["workloads.0.client", "moon", "clinic, hub"],
    ),
    ("bytes = \"524288 B\"", "bytes = 524288", &["x.toml:18", "workloads.0.bytes", "KiB"]),
    ("bytes = \"524288 B\"", "count = 3", &["x.toml:18", "workloads.0.count", "is not for app"]),
    ("within = \"10 s\"", "loss = \"1 %\"", &["x.toml:19", "loss"]),
    ("background = true", "background = 1", &["x.toml:25", "workloads.1.background"]),
    ("name = \"64 KB\"", "name = \"8 KB\"", &["x.toml:31", "already"]),
    ("\"65535 B\"", "\"65536 B\"", &["hosts.clinic.tcp.receive_window", "window_scaling"]),
    ("seed = 7", "seed = 7\n[", &["x.toml:4", "not TOML"]),
];

#[test]
fn each_mistake_is_named_with_its_line() {
    for (from, to, expected) in BAD {
        assert!(GOOD.contains(from), "{from:?} is in the scenario");
        let problem = Scenario::parse("x.toml", &GOOD.replacen(from, to, 1), &[]).unwrap_err().to_string();
        for part in *expected {
            assert!(problem.contains(part), "{to:?}: {problem:?} lacks {part:?}");
        }
        assert_eq!(problem.lines().count(), 1, "{problem}");
    }
}

#[test]
fn bad_overrides_name_themselves() {
    for (over, part) in [
        ("links.moon.rate=1 Mbit/s", "no link \"moon\""),
        ("workloads.nothing.bytes=1 B", "no entry"),
        ("nonsense", "KEY=VALUE"),
    ] {
        let problem = Scenario::parse("x.toml", GOOD, &[over.to_owned()]).unwrap_err().to_string();
        assert!(problem.contains("--set") && problem.contains(part), "{problem}");
    }
}

#[test]
fn a_trace_may_lie_in_a_file_beside_the_scenario() {
    let folder = std::env::temp_dir().join(format!("bentpipe-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("up.trace"), "1\n2\n10\n").unwrap();
    let name = folder.join("x.toml").display().to_string();
    let text = GOOD.replace("rate = \"2 Mbit/s\"", "rate_trace = { file = \"up.trace\", bin = \"10 ms\" }");
    let scenario = Scenario::parse(&name, &text, &[]).unwrap();
    assert_eq!(scenario.cases[0].links[0].config.forward.rate.highest().bps, 3_600_000);
    let missing = Scenario::parse(&name, &text.replace("up.trace", "down.trace"), &[]).unwrap_err().to_string();
    assert!(missing.contains("rate_trace.file") && missing.contains("down.trace"), "{missing}");
    std::fs::remove_dir_all(&folder).unwrap();
}
