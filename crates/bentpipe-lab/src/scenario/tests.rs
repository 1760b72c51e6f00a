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
    assert_eq!(scenario.cases[1].workloads[1].id.name, "ping 2");
    let changed = ["workloads.image.bytes=1 MB".to_owned(), "links.sat.one_way_delay=100 ms".to_owned()];
    let scenario = Scenario::parse("x.toml", GOOD, &changed).unwrap();
    assert_eq!(scenario.cases[0].links[0].config.round_trip(), Duration::from_millis(200));
    let placement = &scenario.cases[0].workloads[0].placement;
    let any: &dyn std::any::Any = &*placement.workload;
    let page = any
        .downcast_ref::<bentpipe_apps::client_server::ClientServerWorkload<bentpipe_apps::page::PageSpec>>()
        .unwrap();
    assert_eq!((page.spec.html_bytes, page.spec.path.as_str()), (1_000_000, "/bytes/1000000"));
    assert_eq!((placement.parties[1].site.as_str(), &placement.parties[1].ports[..]), ("hub", &[80][..]));
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
    (
        "bytes = \"524288 B\"",
        "bytes = \"1 B\"\nrepeat = \"until the end\"",
        &["x.toml:19", "workloads.0.repeat", "needs the scenario's duration"],
    ),
    ("bytes = \"524288 B\"", "bytes = \"1 B\"\nrepeat = 0", &["x.toml:19", "workloads.0.repeat", "1 to 10000"]),
    ("bytes = \"524288 B\"", "bytes = \"1 B\"\nrepeat = \"often\"", &["x.toml:19", "until the end"]),
    (
        "bytes = \"524288 B\"",
        "pages = [{ bytes = \"1 B\" }, { weight = -1 }]",
        &["x.toml:18", "workloads.0.pages.1.weight", "above 0"],
    ),
    (
        "bytes = \"524288 B\"",
        "bytes = \"1 B\"\npause = { distribution = \"gamma\", mean = \"1 s\" }",
        &["x.toml:19", "workloads.0.pause", "a mean and a deviation"],
    ),
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
fn a_class_of_packets_can_name_a_workload() {
    let with = |workload: &str| {
        let queue = format!("queue = {{ kind = \"wfq\", classes = [{{ workload = \"{workload}\", weight = 4 }}] }}");
        GOOD.replace("rate = \"2 Mbit/s\"", &format!("rate = \"2 Mbit/s\"\n{queue}"))
    };
    let scenario = Scenario::parse("x.toml", &with("image"), &[]).unwrap();
    let case = &scenario.cases[0];
    let specs: Vec<topology::LinkSpec> = case.network_links().into_iter().map(|(spec, _)| spec).collect();
    let plan = topology::Plan::new(&specs, &case.network_roles()).unwrap();
    let server = std::net::SocketAddr::from((plan.address(plan.site("hub").unwrap()).unwrap(), 80));
    let endpoints = Workload::endpoints_by_name(&case.workloads, &plan);
    assert_eq!(endpoints, [("image".into(), vec![server]), ("ping 2".into(), vec![])].into());
    for (name, expected) in [
        ("imago", "there is no workload \"imago\" (did you mean image?); allowed: image, ping 2"),
        ("ping 2", "\"ping 2\" listens on no port; allowed: a workload with ports"),
    ] {
        let problem = Scenario::parse("x.toml", &with(name), &[]).unwrap_err();
        assert_eq!(problem.line, Some(9), "{problem}");
        assert!(problem.message.ends_with(expected), "{problem}");
    }
}

/// [`GOOD`] with a pair on its link.
fn with_gateway(keys: &str) -> String {
    GOOD.replace("[hosts.clinic.tcp]", &format!("[gateways.sat]\n{keys}\n[hosts.clinic.tcp]"))
}

#[test]
fn a_gateway_pair_stands_between_the_sites_and_the_link() {
    let text = with_gateway("open = 'early'\nhold = '2 min'\nrate = '1 Mbit/s'\nforward = { rate = 'measured' }");
    let scenario = Scenario::parse("x.toml", &text, &[]).unwrap();
    let case = &scenario.cases[0];
    let links = case.network_links();
    let shape: Vec<String> = links.iter().map(|(spec, _)| format!("{}: {}", spec.name, spec.sites.join(" "))).collect();
    assert_eq!(
        shape,
        ["sat: hub-gateway clinic-gateway", "sat-hub-lan: hub hub-gateway", "sat-clinic-lan: clinic clinic-gateway"]
    );
    let specs: Vec<topology::LinkSpec> = links.into_iter().map(|(spec, _)| spec).collect();
    let plan = topology::Plan::new(&specs, &case.network_roles()).unwrap();
    for (from, to) in [("hub", "clinic"), ("clinic", "hub")] {
        let site = &plan.sites[plan.site(from).unwrap()];
        let far = plan.sites[plan.site(to).unwrap()].interfaces[0].segment;
        assert!(site.routes.iter().any(|route| route.network == topology::network(far)), "{from} reaches {to}");
    }
    let tcp = case.network_tcp();
    assert_eq!(tcp["clinic"].preset.as_deref(), Some("windows-95"));
    assert_eq!(tcp["clinic-gateway"].preset.as_deref(), Some("linux"));
    let [pair] = &case.pairs[..] else { panic!("one pair") };
    let config = [0, 1].map(|side| pair.config(side, &case.links[0], &plan));
    assert_eq!(config[0].satellite.rate, None);
    assert_eq!(config[1].satellite.rate, Some(bentpipe_net::units::BitRate::from_bps(1_000_000)));
    assert_eq!(config[1].satellite.hold, Duration::from_secs(120));
    assert_eq!(config[0].settings.open, bentpipe_gateway::Open::Early);
    let hub = plan.address(plan.site("hub-gateway").unwrap()).unwrap();
    let bentpipe_gateway::satellite::Side::Terminal(at) = config[1].satellite.side else { panic!("a terminal") };
    assert_eq!((at.ip(), at.port()), (hub.into(), config[0].local_port));
    // The file's own sites and names stay what they are.
    assert_eq!(case.links[0].sites, ["hub", "clinic"]);
}

#[test]
fn two_pairs_at_one_site_have_names_of_their_own() {
    let text = "title = 'x'\n[links.a]\nkind = 'geo-two-way'\nbetween = ['hub', 'ship']\n\
        [links.b]\nkind = 'leo'\nbetween = ['hub', 'hub-gateway']\n[gateways.a]\n[gateways.b]\n";
    let scenario = Scenario::parse("x.toml", text, &[]).unwrap();
    let names: Vec<&str> = scenario.cases[0].pairs.iter().flat_map(|pair| &pair.sites).map(String::as_str).collect();
    assert_eq!(names, ["hub-gateway-2", "ship-gateway", "hub-gateway-3", "hub-gateway-gateway"]);
}

#[test]
fn each_mistake_of_a_gateway_is_named_with_its_line() {
    let bad: &[(&str, &[&str])] = &[
        ("opne = 'early'", &["x.toml:11", "gateways.sat.opne", "open"]),
        ("open = 'soon'", &["x.toml:11", "gateways.sat.open", "early"]),
        ("fail = 'shut'", &["x.toml:11", "gateways.sat.fail", "closed"]),
        ("compression = 'on'", &["x.toml:11", "gateways.sat.compression", "off"]),
        ("hold = '1 ms'", &["x.toml:11", "gateways.sat.hold", "out of range"]),
        ("rate = 'fast'", &["x.toml:11", "gateways.sat.rate", "measured"]),
        ("rate = '0 bit/s'", &["x.toml:11", "gateways.sat.rate", "measured"]),
        ("return = { rate = '1' }", &["x.toml:11", "gateways.sat.return.rate", "measured"]),
        ("memory = { total = '1 B' }", &["x.toml:11", "gateways.sat.memory.total", "or more"]),
    ];
    for (keys, expected) in bad {
        let problem = Scenario::parse("x.toml", &with_gateway(keys), &[]).unwrap_err().to_string();
        for part in *expected {
            assert!(problem.contains(part), "{keys:?}: {problem:?} lacks {part:?}");
        }
    }
    let reported = |text: &str| Scenario::parse("x.toml", text, &[]).unwrap_err().to_string();
    let other = with_gateway("").replace("[gateways.sat]", "[gateways.moon]");
    assert!(reported(&other).contains("there is no link \"moon\"; allowed: sat"), "{}", reported(&other));
    let broadcast = with_gateway("").replace("\"clinic\"]", "\"clinic\", \"ship\"]");
    assert!(
        reported(&broadcast).contains("x.toml:10: gateways.sat: link sat joins 3 sites"),
        "{}",
        reported(&broadcast)
    );
    let ethernet = with_gateway("").replace("rate = \"2 Mbit/s\"", "carries = 'ethernet'");
    assert!(reported(&ethernet).contains("carries Ethernet"), "{}", reported(&ethernet));
}

#[test]
fn a_comparison_runs_every_case_twice() {
    let parse = |text: &str| Scenario::parse("x.toml", text, &[]).unwrap();
    let names = |scenario: &Scenario| -> Vec<String> { scenario.cases.iter().map(|case| case.name.clone()).collect() };
    let compared = parse(&with_gateway("open = 'early'")).compare_gateway().unwrap();
    let expected = ["8 KB, without gateway", "8 KB, with gateway", "64 KB, without gateway", "64 KB, with gateway"];
    assert_eq!(names(&compared), expected);
    for (number, case) in compared.cases.iter().enumerate() {
        assert_eq!(case.pairs.len(), number % 2);
        assert_eq!(case.compared.as_deref(), Some(["8 KB", "64 KB"][number / 2]));
    }
    assert_eq!(compared.cases[1].pairs[0].settings.gateway.open, bentpipe_gateway::Open::Early);
    // Without [gateways]: on the link with the longest round trip.
    let plain = "title = 'x'\n[links.lan]\nkind = 'lan'\nbetween = ['pc', 'hub']\n\
        [links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'ship']\n";
    let compared = parse(plain).compare_gateway().unwrap();
    assert_eq!(names(&compared), ["without gateway", "with gateway"]);
    assert_eq!(compared.cases[1].pairs[0].lans[1], "sat-ship-lan");
    assert_eq!(compared.cases[1].pairs[0].settings, gateway::Settings::default());
    let bridged = format!("{plain}carries = 'ethernet'\n").replace("[links.sat]", "carries = 'ethernet'\n[links.sat]");
    let reported = parse(&bridged).compare_gateway().unwrap_err().to_string();
    assert!(reported.contains("no link can have a gateway pair: link lan carries Ethernet"), "{reported}");
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
fn a_link_may_be_written_in_the_scenario() {
    let text = GOOD.replace("kind = \"geo-two-way\"\n", "one_way_delay = \"270 ms\"\n");
    let scenario = Scenario::parse("x.toml", &text, &[]).unwrap();
    let link = &scenario.cases[0].links[0];
    assert_eq!((&link.kind, link.config.round_trip()), (&None, Duration::from_millis(540)));
    assert_eq!(link.config.forward.rate.highest().bps, 2_000_000);
    let none = GOOD.replace("kind = \"geo-two-way\"\n", "").replace("rate = \"2 Mbit/s\"\n", "");
    let problem = Scenario::parse("x.toml", &none, &[]).unwrap_err().to_string();
    assert!(
        problem.starts_with("x.toml:5: links.sat.kind: is missing; allowed: ") && problem.contains("at least rate")
    );
    let wrong = text.replace("270 ms", "270");
    let problem = Scenario::parse("x.toml", &wrong, &[]).unwrap_err().to_string();
    assert!(problem.starts_with("x.toml:6: links.sat.one_way_delay: "), "{problem}");
}

#[test]
fn a_mistake_in_a_case_names_the_case_and_its_line() {
    let case = "\n[[cases]]\nname = \"C\"\n[cases.set]\n\"links.sat.mtu\" = \"576 B\"\n";
    for (set, expected) in [
        ("\"links.sat.rate\" = \"fast\"", "x.toml:38: cases.2.set.links.sat.rate: case \"C\": links.sat.rate: "),
        ("\"links.sat.rat\" = 3", "x.toml:38: cases.2.set.links.sat.rat: case \"C\": links.sat.rat: unknown key"),
        ("\"workloads.image.bytes\" = 3", "case \"C\": workloads.0.bytes: "),
        ("\"links.moon.rate\" = 3", "x.toml:38: cases.2.set.links.moon.rate: case \"C\": there is no link \"moon\""),
    ] {
        let problem = Scenario::parse("x.toml", &format!("{GOOD}{case}{set}\n"), &[]).unwrap_err().to_string();
        assert!(problem.starts_with("x.toml:3") && problem.contains(expected), "{problem}");
    }
    // A mistake of all cases stays the file's own.
    let problem = Scenario::parse("x.toml", &GOOD.replace("2 Mbit/s", "fast"), &[]).unwrap_err().to_string();
    assert!(problem.starts_with("x.toml:8: links.sat.rate: "), "{problem}");
}

#[test]
fn cases_are_chosen_by_name() {
    let scenario = Scenario::parse("x.toml", GOOD, &[]).unwrap();
    let chosen = scenario.clone().with_cases(&["64 KB".to_owned()]).unwrap();
    let names = |scenario: &Scenario| scenario.cases.iter().map(|case| case.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(&chosen), &chosen.chosen_cases), (vec!["64 KB".to_owned()], &vec!["64 KB".to_owned()]));
    assert_eq!(names(&chosen.overridden(&["seed=4".to_owned()]).unwrap()), ["64 KB"]);
    let problem = scenario.with_cases(&["64KB".to_owned()]).unwrap_err().to_string();
    assert_eq!(problem, "x.toml: --case: there is no case \"64KB\" (did you mean 64 KB?); allowed: 8 KB, 64 KB");
}

#[test]
fn a_trace_may_be_a_file_in_the_folder_of_the_scenario() {
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

#[test]
fn a_trace_may_be_a_file_in_the_folder_of_a_link_file() {
    let folder = std::env::temp_dir().join(format!("bentpipe-link-trace-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("links")).unwrap();
    std::fs::write(folder.join("links/up.trace"), "1\n2\n10\n").unwrap();
    let link = "one_way_delay = '10 ms'\nrate = '1 Mbit/s'\njitter = { file = 'up.trace' }\n\
        impairments = [{ kind = 'loss', share = '1 %' }, { kind = 'jitter', file = 'up.trace', every = '15 s' }]\n\
        [forward]\nrate_trace = { file = 'up.trace', bin = '10 ms' }\n";
    let file = folder.join("links/own.toml");
    std::fs::write(&file, link).unwrap();
    let name = folder.join("x.toml").display().to_string();
    let text = GOOD.replace("kind = \"geo-two-way\"", "kind = \"links/own.toml\"").replace("rate = \"2 Mbit/s\"", "");
    let config = Scenario::parse(&name, &text, &[]).unwrap().cases.swap_remove(0).links.swap_remove(0).config;
    assert_eq!(config.forward.rate.highest().bps, 3_600_000);
    assert!(config.forward.medium.jitter.is_some() && config.back.impairments.len() == 2);
    // A user sees the file's name, not what it holds.
    let shown = find_link(&file.display().to_string(), Path::new("")).unwrap().provenance();
    assert!(shown.iter().any(|value| value.key == "forward.rate_trace.file" && value.value == "up.trace"), "{shown:?}");
    std::fs::write(&file, link.replace("jitter', file = 'up.trace'", "jitter', file = 'down.trace'")).unwrap();
    let missing = Scenario::parse(&name, &text, &[]).unwrap_err().to_string();
    assert!(missing.contains("own.toml:4: impairments.1.file") && missing.contains("down.trace"), "{missing}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Copies of `app`, from two servers.
fn copies(app: &str, numbers: [u32; 2]) -> Result<Scenario, Problem> {
    let mut text = "title = 'x'\n[links.a]\nkind = 'lan'\nbetween = ['hub', 'pc']\n[links.b]\nkind = 'lan'\n\
                    between = ['other', 'pc']\n"
        .to_owned();
    for (server, copies) in ["hub", "other"].into_iter().zip(numbers) {
        text.push_str(&format!(
            "[[workloads]]\nname = '{server}'\napp = '{app}'\nclient = 'pc'\nserver = '{server}'\ncopies = {copies}\n{}",
            if app == "bulk" { "bytes = '1 B'\n" } else { "" }
        ));
    }
    Scenario::parse("x.toml", &text, &[])
}

/// A hundred thousand copies in well under a second: nothing is compared with all the others.
#[test]
fn a_hundred_thousand_copies_get_ports_of_their_own() {
    let scenario = copies("bulk", [50_000, 50_000]).unwrap();
    let workloads = &scenario.cases[0].workloads;
    assert_eq!(workloads.len(), 100_000);
    let mut ports: Vec<(&str, u16)> = workloads
        .iter()
        .flat_map(|w| &w.placement.parties)
        .flat_map(|party| party.ports.iter().map(|port| (party.site.as_str(), *port)))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 100_000, "each site's ports once");
    assert!(ports.iter().all(|(_, port)| *port >= 1024));
    assert_eq!(copies("ping", [100_000, 1]).unwrap().cases[0].workloads.len(), 100_001);
    let problem = copies("bulk", [100_000, 1]).unwrap_err().to_string();
    assert!(problem.contains("each copy needs a port of its own, and no more are free at hub"), "{problem}");
    let problem = copies("ping", [100_001, 1]).unwrap_err().to_string();
    assert!(problem.contains("allowed: 1 to 100000"), "{problem}");
}
