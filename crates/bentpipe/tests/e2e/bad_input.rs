//! Every mistake is answered in one line that says where, what and what is allowed; nothing is started or left behind.

use crate::place::{Place, WaitLimited, users};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::File;

const GOOD: &str = r#"title = "x"
seed = 7

[links.sat]
kind = "geo-two-way"
between = ["hub", "pc"]
rate = "2 Mbit/s"

[hosts.pc.tcp]
sack = false

[[workloads]]
name = "w"
app = "bulk"
client = "pc"
server = "hub"
bytes = "1 MB"
"#;

/// What replaces what in the scenario, and what the message must hold.
const SCENARIOS: &[(&str, &str, &[&str])] = &[
    ("seed = 7", "sede = 7", &["s.toml:2", "sede", "seed"]),
    ("\"2 Mbit/s\"", "\"2 Mbits\"", &["s.toml:7", "links.sat.rate", "Mbit/s"]),
    ("\"2 Mbit/s\"", "2", &["s.toml:7", "links.sat.rate", "Mbit/s"]),
    ("rate = \"2 Mbit/s\"", "speed = \"2 Mbit/s\"", &["s.toml:7", "links.sat.speed", "rate"]),
    ("\"geo-two-way\"", "\"mars\"", &["s.toml:5", "mars", "geo-two-way", "iperspace"]),
    ("\"geo-two-way\"", "\"mars.toml\"", &["s.toml:5", "mars.toml", "No such file"]),
    ("\"geo-two-way\"", "\"geo\"", &["s.toml:5", "did you mean geo-250-3 or geo-50-5 or geo-two-way?", "leo"]),
    ("\"geo-two-way\"", "\"Leo\"", &["s.toml:5", "did you mean leo?"]),
    ("rate = \"2 Mbit/s\"", "delay = \"250 ms\"", &["s.toml:7", "links.sat.delay", "did you mean one_way_delay?"]),
    ("sack = false", "preset = \"windows95\"", &["s.toml:10", "did you mean windows-95?"]),
    ("rate = \"2 Mbit/s\"", "circuit.gives_up = 3", &["links.sat.circuit.gives_up", "is 3; allowed: a table"]),
    ("rate = \"2 Mbit/s\"", "loss = 1", &["s.toml:7", "links.sat.loss", "1 %"]),
    ("client = \"pc\"", "client = \"moon\"", &["s.toml:15", "moon", "hub, pc"]),
    ("[hosts.pc.tcp]", "[hosts.moon.tcp]", &["s.toml:9", "moon", "hub, pc"]),
    ("sack = false", "rto_initial = \"3 s\"", &["s.toml:10", "hosts.pc.tcp.rto_initial", "Linux"]),
    ("sack = false", "delayed_ack = \"500 ms\"", &["s.toml:10", "hosts.pc.tcp.delayed_ack", "Linux"]),
    ("sack = false", "quick_acks = 2", &["s.toml:10", "hosts.pc.tcp.quick_acks", "allowed: 16"]),
    ("sack = false", "recovery = \"tahoe\"", &["s.toml:10", "hosts.pc.tcp.recovery", "newreno"]),
    ("sack = false", "keep_alive = \"1 min\"", &["s.toml:10", "hosts.pc.tcp.keep_alive", "SO_KEEPALIVE"]),
    ("sack = false", "ack_every = 4", &["s.toml:10", "hosts.pc.tcp.ack_every", "1, 2"]),
    ("sack = false", "congestion_control = \"vegas-9\"", &["s.toml:10", "congestion_control", "cubic"]),
    ("\"1 MB\"", "\"1 MB\"\ncount = 3", &["s.toml:18", "count", "direction, bytes"]),
    (
        "app = \"bulk\"\nclient = \"pc\"\nserver = \"hub\"\nbytes = \"1 MB\"",
        "app = \"command\"\nclient = \"pc\"\ncommand = [\"no-such-program\", \"-x\"]",
        &["s.toml:16", "no-such-program"],
    ),
    ("title = \"x\"", "title = \"x", &["s.toml:1", "not TOML"]),
    ("title = \"x\"\n", "", &["s.toml", "title"]),
];

#[test]
fn each_mistake_in_a_scenario_is_named() {
    let place = Place::new(users()[0]);
    for (from, to, parts) in SCENARIOS {
        assert!(GOOD.contains(from), "{from:?} is in the scenario");
        place.write("s.toml", GOOD.replacen(from, to, 1));
        expect_refusal(&place, &["run", "s.toml"], parts);
        expect_refusal(&place, &["run", "s.toml", "--check"], parts);
    }
    assert_eq!(place.list(""), ["s.toml", "tmp"], "nothing was made");
    assert_eq!(place.leftovers(), [""; 0]);
}

/// Command lines, and what the message must hold.
const COMMANDS: &[(&[&str], &[&str])] = &[
    (&["run", "none.toml"], &["none.toml", "No such file"]),
    (&["run", "folder"], &["folder", "directory"]),
    (&["run", "garbage"], &["garbage"]),
    (&["run", "/dev/zero"], &["/dev/zero", "no ordinary file"]),
    (&["run", "fifo"], &["fifo", "no ordinary file"]),
    (&["run", "fifo", "--virtual", "--check"], &["fifo", "no ordinary file"]),
    (&["run", "large.toml"], &["large.toml", "more than 16777216 B"]),
    (&["run", "links.toml", "--check"], &["links.toml:2", "too many sites or links"]),
    (&["run", "links.toml", "--check", "--virtual"], &["links.toml", "too many sites or links"]),
    (&["sweep", "fifo"], &["fifo", "no ordinary file"]),
    (&["links", "show", "./fifo"], &["fifo", "no ordinary file"]),
    (&["report", "fifo"], &["fifo", "no ordinary file"]),
    (&["gateway", "hub", "fifo"], &["fifo", "no ordinary file"]),
    (&["run", "s.toml", "--set", "nonsense"], &["--set", "nonsense", "KEY=VALUE"]),
    (&["run", "s.toml", "--set", "links.sat.rate=fast"], &["links.sat.rate", "fast", "Mbit/s"]),
    (&["run", "s.toml", "--set", "links.moon.rate=1 Mbit/s"], &["--set", "moon"]),
    (&["run", "s.toml", "--set", "workloads.none.bytes=1 B"], &["--set", "none"]),
    (&["run", "circuit.toml"], &["circuit.toml:4", "between", "circuit"]),
    (&["shell", "mars", "--", "true"], &["mars", "geo-two-way"]),
    (&["shell", "none.toml", "--", "true"], &["none.toml", "No such file"]),
    (&["shell", "./folder", "--", "true"], &["folder", "directory"]),
    (&["shell", "./garbage", "--", "true"], &["garbage"]),
    (&["shell", "broken.toml", "--", "true"], &["broken.toml:2", "one_way_delay", "ms"]),
    (&["shell", "lan", "--set", "rate=fast", "--", "true"], &["--set rate=fast", "Mbit/s"]),
    (&["shell", "lan", "--set", "=1", "--", "true"], &["--set", "key"]),
    (&["shell", "lan", "--tcp", "beos", "--", "true"], &["--tcp", "beos", "windows-95"]),
    (&["shell", "lan", "--seed", "x", "--", "true"], &["--seed", "x"]),
    (&["parity"], &["scenarios/parity/parity.toml", "No such file"]),
    (&["parity", "none.toml"], &["none.toml", "No such file"]),
    (&["parity", "none.toml", "s.toml"], &["more than one list"]),
    (&["parity", "garbage.toml"], &["garbage.toml"]),
    (&["parity", "--only", "sideways"], &["sideways", "live", "virtual"]),
    (&["parity", "--max-rounds", "0"], &["--max-rounds", "1..=1000"]),
    (&["links", "show", "mars"], &["mars", "geo-two-way"]),
    (&["predict", "mars"], &["mars", "geo-two-way"]),
    (&["predict", "lan", "--set", "rate=fast"], &["--set rate=fast", "Mbit/s"]),
    (&["predict", "lan", "--tcp", "beos"], &["--tcp beos", "windows-95"]),
    (&["predict", "lan", "--set", "tcp.receive_window=big"], &["tcp.receive_window", "big", "64 KiB"]),
    (&["predict", "lan", "--set", "tcp.windows=1"], &["tcp.windows", "receive_window"]),
    (&["predict", "lan", "--bytes", "0 B"], &["nothing to send"]),
    (&["predict", "lan", "--bytes", "5"], &["--bytes", "64 KiB"]),
    (&["predict", "lan", "--loss", "1"], &["--loss", "1 %"]),
    (&["predict", "lan", "--connections", "0"], &["0 connections", "1 to 1000"]),
    (&["predict", "lan", "--direction", "sideways"], &["--direction", "upload"]),
    (&["report", "none"], &["none", "No such file"]),
    (&["report", "folder"], &["folder/record.json", "No such file"]),
    (&["report", "garbage"], &["garbage"]),
    (&["report", "s.toml"], &["s.toml", "not a bentpipe record"]),
    (&["report", "other.json"], &["other.json", "not a bentpipe record"]),
    (&["frobnicate"], &["frobnicate", "--help"]),
    (&["run"], &["SCENARIO", "--help"]),
    (&["run", "s.toml", "--fast"], &["--fast", "--help"]),
    (&["run", "s.toml", "--skip-live"], &["--virtual"]),
    (&["run", "commands.toml", "--virtual"], &["commands.toml:8", "workload \"w\"", "live", "--skip-live"]),
    (&["run", "commands.toml", "--virtual", "--check"], &["commands.toml:8", "--skip-live"]),
    (&["run", "service.toml", "--virtual"], &["service.toml:6", "a service at a", "live", "--skip-live"]),
    (&["run", "bridge.toml", "--virtual"], &["bridge.toml", "site b", "ethernet"]),
];

#[test]
fn each_mistake_on_the_command_line_is_named() {
    let place = Place::new(users()[0]);
    place.write("s.toml", GOOD);
    place.write("garbage", [0x7f, b'E', b'L', b'F', 0, 0xff, 0xfe, b'\n', 0x80]);
    place.write("other.json", "{\"format\": \"other\"}");
    place.write("broken.toml", "rate = '1 Mbit/s'\none_way_delay = '250'\n");
    place.write("circuit.toml", "title = 'x'\n[links.sat]\nkind = 'inmarsat-b'\nbetween = ['a', 'b', 'c']\n");
    let lan = "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['a', 'b']\n";
    let command = "[[workloads]]\nname = 'w'\napp = 'command'\ncommand = 'true'\nclient = 'a'\n";
    place.write("commands.toml", format!("{lan}{command}"));
    place.write("service.toml", format!("{lan}[[services]]\ncommand = 'true'\nsite = 'a'\n"));
    place.write("bridge.toml", format!("{lan}[hosts.b]\nrole = 'bridge'\n").replace("'lan'", "'geo-two-way'"));
    let link = |number: u32| format!("[links.l{number}]\nkind = 'lan'\nbetween = ['a', 'b{number}']\n");
    place.write("links.toml", format!("title = 'x'\n{}", (0..10_000).map(link).collect::<String>()));
    File::create(place.at("large.toml")).unwrap().set_len(1 << 40).unwrap();
    mknodat(CWD, place.at("fifo"), FileType::Fifo, Mode::from(0o666), 0).unwrap();
    place.make_folder("folder");
    for (arguments, parts) in COMMANDS {
        expect_refusal(&place, arguments, parts);
    }
    let files = ["bridge.toml", "broken.toml", "circuit.toml", "commands.toml", "fifo", "folder", "garbage"];
    let more = ["large.toml", "links.toml", "other.json", "s.toml", "service.toml", "tmp"];
    assert_eq!(place.list(""), [&files[..], &more].concat());
    assert_eq!(place.list("folder"), [""; 0]);
    assert_eq!(place.leftovers(), [""; 0]);
}

#[track_caller]
fn expect_refusal(place: &Place, arguments: &[&str], parts: &[&str]) {
    let ended = place.bentpipe(arguments).ends();
    let message = &ended.stderr;
    assert_eq!((ended.code(), ended.stdout.as_str()), (2, ""), "{arguments:?}: {message}");
    for rust in ["struct ", "expected ident", "expected value", "u32", "u64", "f64", "enum "] {
        assert!(
            !message.starts_with("bentpipe: ") || !message.contains(rust),
            "{arguments:?}: {message:?} has {rust:?}"
        );
    }
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: {message:?} lacks {part:?}");
    }
    // What the command line's own parser refuses comes with its usage.
    let ours = message.starts_with("bentpipe: ");
    assert!(message.lines().count() == 1 || (!ours && message.starts_with("error: ")), "{arguments:?}: {message}");
    assert!(!message.contains("panicked"), "{message}");
}

/// A terminal obeys what it is sent; nothing of a file is sent to it as it stands there.
#[test]
fn no_text_from_a_file_moves_the_terminal() {
    const ESCAPES: &str = r"\u001b[2J\u001b]0;title\u0007\u009b1m\r\u202e";
    let place = Place::new(users()[0]);
    let link = "title = 'T@'\nsummary = 'S@'\nrate = '1 Mbit/s'\none_way_delay = '1 ms'\n\
        [sources]\nrate = 'R@'\n[assumptions]\none_way_delay = 'D@'\n";
    let scenario = "title = 'T@'\n[links.sat]\nkind = './link.toml'\nbetween = ['a', 'b']\n\
        [[workloads]]\nname = 'W@'\napp = 'bulk'\nclient = 'a'\nserver = 'b'\nbytes = '1 kB'\n";
    let escaped = |text: &str| text.replace('\'', "\"").replace('@', ESCAPES);
    place.write("link.toml", escaped(link));
    place.write("good.toml", escaped(scenario));
    place.write("key.toml", escaped("'k@' = 1\n"));
    place.write("app.toml", escaped(&scenario.replace("'bulk'", "'@'")));
    place.write("kind.toml", escaped(&scenario.replace("./link.toml", "@")));
    place.write("between.toml", escaped(&scenario.replace("['a', 'b']", "['@', 'b']")));
    place.write("named \u{1b}[2J.toml", escaped(scenario));
    place.write("record.json", "{\"format\": \"bentpipe \u{9b}1m\"}");
    for (arguments, code) in [
        (&["links", "show", "./link.toml"][..], 0),
        (&["predict", "./link.toml"], 0),
        (&["predict", "./link.toml", "--json"], 0),
        (&["run", "good.toml", "--check"], 0),
        (&["run", "good.toml", "--virtual", "--out", "out\u{1b}[2J"], 0),
        (&["run", "good.toml", "--virtual", "--json", "--out", "out"], 0),
        (&["report", "out"], 0),
        (&["run", "named \u{1b}[2J.toml", "--check"], 0),
        (&["run", "key.toml"], 2),
        (&["run", "app.toml"], 2),
        (&["run", "kind.toml"], 2),
        (&["run", "between.toml"], 2),
        (&["run", "none\u{1b}[2J.toml"], 2),
        (&["report", "record.json"], 2),
    ] {
        let ended = place.bentpipe(arguments).ends();
        let text = format!("{}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.code(), code, "{arguments:?}: {text}");
        let moves = |c: char| c.is_control() && !"\n\t".contains(c) || c == '\u{202e}';
        assert!(!text.contains(moves), "{arguments:?}: {text:?}");
    }
}
