//! `bentpipe tune`: what it prints is what a kernel keeps, and what a bad question gets is an answer.

use crate::place::{Place, WaitLimited, have, users};
use serde_json::Value;

/// Fast to simulate, and different from what any host is set to.
const LINK: &str = "title = 'a test link'\nrate = '8 Mbit/s'\none_way_delay = '250 ms'\n";

/// Everything that becomes a command, asked of a host that has none of it.
const HOST: [&str; 9] = [
    "tcp.sack=false",
    "tcp.timestamps=false",
    "tcp.window_scaling=false",
    "tcp.receive_window=8 KiB",
    "tcp.send_buffer=8 KiB",
    "tcp.initial_window=1",
    "tcp.congestion_control=reno",
    "tcp.slow_start_after_idle=true",
    "tcp.syn_retries=2",
];

fn tune(place: &Place, link: &str, more: &[&str]) -> Value {
    let arguments = [&["tune", link, "--json"], more].concat();
    let ended = place.bentpipe(&arguments).ends().expect(0);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn commands(tuning: &Value, host: &str) -> Vec<String> {
    let all = tuning["commands"].as_array().unwrap().iter();
    all.filter(|c| c["host"] == host).map(|c| c["text"].as_str().unwrap().to_owned()).collect()
}

fn setting<'a>(tuning: &'a Value, name: &str) -> &'a Value {
    let all = tuning["settings"].as_array().unwrap();
    all.iter().find(|s| s["name"] == name).unwrap_or_else(|| panic!("no {name}: {all:#?}"))
}

/// Runs commands in a host behind a link and reads each of them back: what it says the kernel must then say.
fn run_and_read_back(place: &Place, commands: &[String]) {
    // Sites of a link have one route, the link's.
    let mut script = "set -e\nPATH=$PATH:/usr/sbin:/sbin\nROUTE=$(ip -4 route show | head -n 1)\n".to_owned();
    for command in commands {
        script += &format!("{command} >/dev/null\n");
    }
    script += "echo ROUTE $(ip -4 route show | head -n 1)\n";
    let sysctls: Vec<(&str, &str)> =
        commands.iter().filter_map(|c| c.strip_prefix("sysctl -w ")?.split_once('=')).collect();
    for (name, _) in &sysctls {
        script += &format!("echo SYSCTL {name} $(sysctl -n {name})\n");
    }
    let ended = place.bentpipe(&["shell", "lan", "-q", "--", "sh", "-c", &script]).ends().expect(0);
    assert_eq!(ended.stderr, "", "{script}");
    for (name, value) in sysctls {
        let kept = format!("SYSCTL {name} {}", value.trim_matches('\''));
        assert!(ended.stdout.lines().any(|line| line == kept), "{kept}: {}", ended.stdout);
    }
    let route = ended.stdout.lines().find(|line| line.starts_with("ROUTE")).unwrap();
    for command in commands {
        let Some(attributes) = command.strip_prefix("ip route change $ROUTE ") else { continue };
        let words: Vec<&str> = attributes.split(' ').collect();
        assert!(words.len().is_multiple_of(2), "{attributes}");
        for pair in words.chunks(2) {
            // A least time-out is always locked, and shown in seconds when it is some.
            let kept = match pair {
                ["rto_min", "1000ms"] => "rto_min lock 1s".to_owned(),
                [key, value] => format!("{key} {value}"),
                _ => unreachable!(),
            };
            assert!(route.contains(&kept), "{kept}: {route}");
        }
    }
    assert_eq!(
        commands.iter().filter(|c| !c.starts_with("sysctl -w ") && !c.starts_with("ip route change ")).count(),
        0
    );
}

#[test]
fn printed_commands_are_kept_by_the_kernel() {
    if !have(&["ip", "sysctl"]) {
        return;
    }
    let place = Place::new(users()[0]);
    // Errors, a circuit that takes longer than the host waits, and jitter: reasons for every setting there is.
    let text = format!(
        "{LINK}noise = 3e-6\nframing = 'ppp'\njitter = '60 ms'\n[circuit]\nstages = [{{ name = 'call', time = '40 s' }}]\n"
    );
    place.write("link.toml", text);
    let mut arguments: Vec<&str> = HOST.iter().flat_map(|set| ["--set", set]).collect();
    arguments.extend(["--bytes", "200 kB", "--bytes", "1 MB"]);
    let tuning = tune(&place, "./link.toml", &arguments);
    let (hub, terminal) = (commands(&tuning, "hub"), commands(&tuning, "terminal"));
    let all = [hub.clone(), terminal.clone()].concat().join("\n");
    for part in ["tcp_window_scaling=1", "tcp_sack=1", "initcwnd ", "congctl bbr"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(terminal.iter().any(|c| c.contains("tcp_syn_retries=")), "the terminal connects: {terminal:?}");
    assert!(!hub.iter().any(|c| c.contains("tcp_syn_retries=")), "{hub:?}");
    // A second place could wait for a test that waits for the first to end.
    drop(place);
    for user in users() {
        let place = Place::new(user);
        run_and_read_back(&place, &hub);
        run_and_read_back(&place, &terminal);
        // What this link gives no reason for.
        let others = [
            "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
            "sysctl -w net.ipv4.tcp_timestamps=0",
            "sysctl -w net.ipv4.tcp_ecn=1",
            "sysctl -w net.ipv4.tcp_rmem='4096 131072 83886080'",
            "sysctl -w net.ipv4.tcp_wmem='4096 16384 83886080'",
            "ip route change $ROUTE initcwnd 30 congctl cubic quickack 1 mtu 576 rto_min 1000ms",
        ];
        run_and_read_back(&place, &others.map(str::to_owned));
    }
}

/// What stands under COMMANDS FOR LINUX, pasted into a shell of a host whose default route is the link.
#[test]
fn printed_commands_can_be_pasted() {
    if !have(&["ip", "sysctl"]) {
        return;
    }
    let place = Place::new(users()[0]);
    place.write("link.toml", LINK);
    let arguments = ["--set", "tcp.sack=false", "--set", "tcp.initial_window=1", "--bytes", "200 kB"];
    let text = place.bentpipe(&[&["tune", "./link.toml"], &arguments[..]].concat()).ends().expect(0).stdout;
    let commands = text.split_once("COMMANDS FOR LINUX").unwrap().1.split("\n\n").next().unwrap();
    let (_, commands) = commands.split_once('\n').unwrap();
    for host in ["hub", "terminal"] {
        let (_, own) = commands.split_once(&format!("# at the {host}\n")).unwrap();
        let own = own.split("  # at the").next().unwrap();
        let script = format!(
            "set -e\nPATH=$PATH:/usr/sbin:/sbin\n\
             ip route add default dev $(ip -4 route show | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p' | head -n 1)\n\
             {own}\nip -4 route show default\n"
        );
        let ended = place.bentpipe(&["shell", "lan", "-q", "--", "sh", "-c", &script]).ends().expect(0);
        assert_eq!(ended.stderr, "", "{script}");
        let route = ended.stdout.lines().last().unwrap();
        assert!(route.starts_with("default") && route.contains("initcwnd"), "{script}{route}");
    }
}

#[test]
fn windows_gain_what_the_closed_form_says() {
    let place = Place::new(users()[0]);
    place.write("link.toml", LINK);
    let arguments = ["--tcp", "windows-95", "--direction", "download", "--bytes", "2 MB"];
    let tuning = tune(&place, "./link.toml", &arguments);
    let window = setting(&tuning, "window");
    assert_eq!(window["verdict"], "recommended");
    let hosts: Vec<(&str, &str)> = window["values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|atom| (atom["host"].as_str().unwrap(), atom["key"].as_str().unwrap()))
        .collect();
    assert!(hosts.contains(&("terminal", "receive_window")) && hosts.contains(&("hub", "send_buffer")), "{hosts:?}");
    assert!(!hosts.contains(&("hub", "receive_window")), "a download's receiver is the terminal: {hosts:?}");
    let row = &tuning["predicted"][0];
    let seconds = |case: &str| row[case]["seconds"].as_f64().unwrap();
    // Five whole segments a round trip of 0.5 s, the last of which waits for its acknowledgement: 2 MB in 137 s and more.
    assert!((137.0..170.0).contains(&seconds("before")), "{row}");
    // Tuned, 2 s of sending and the start.
    assert!(seconds("after") < 6.5, "{row}");
    // One host alone does not help: the other's window limits.
    assert!(seconds("terminal_only") > 100.0 && seconds("hub_only") > 100.0, "{row}");
}

#[test]
fn what_gains_nothing_is_not_printed() {
    let place = Place::new(users()[0]);
    let arguments = ["--direction", "upload", "--bytes", "1 MB"];
    let tuning = tune(&place, "lan", &arguments);
    for setting in tuning["settings"].as_array().unwrap() {
        let ratios = setting["effects"].as_array().unwrap().iter().map(|e| e["ratio"].as_f64().unwrap());
        let best = ratios.fold(f64::INFINITY, f64::min);
        if setting["verdict"] == "recommended" {
            assert!(best < 0.98, "{setting}");
        }
        if setting["name"] == "explicit congestion notification" {
            assert_eq!(setting["verdict"], "no-gain", "{setting}");
        }
    }
    let text = place.bentpipe(&["tune", "lan", "--direction", "upload", "--bytes", "1 MB"]).ends().expect(0).stdout;
    assert!(text.contains("NOT RECOMMENDED") && !text.contains("tcp_ecn"), "{text}");
}

#[test]
fn the_gain_is_measured() {
    if !have(&["ip", "sysctl"]) {
        return;
    }
    for user in users() {
        let place = Place::alone(user);
        let arguments = [
            "--tcp",
            "windows-98-tuned",
            "--direction",
            "download",
            "--bytes",
            "400 kB",
            "--set",
            "rate=4 Mbit/s",
            "--verify",
        ];
        place.write("link.toml", LINK);
        let arguments = [&["tune", "./link.toml", "--json"], &arguments[..]].concat();
        let ended = place.bentpipe(&arguments).ends();
        assert!([0, 3].contains(&ended.code()), "{}", ended.stderr);
        let tuning: Value = serde_json::from_str(&ended.stdout).unwrap();
        let row = &tuning["verified"][0];
        for case in ["before", "after"] {
            if ended.code() == 3 && !row[case]["invalid"].as_array().unwrap().is_empty() {
                assert_eq!(row[case]["seconds"].as_array().unwrap().len(), 0, "an invalid run gives no result: {row}");
                continue;
            }
            let (predicted, measured) = (&row[case]["predicted"], &row[case]["seconds"][0]);
            let (predicted, measured) = (predicted.as_f64().unwrap(), measured.as_f64().unwrap());
            eprintln!("{user:?} {case}: predicted {predicted:.3} s, measured {measured:.3} s");
            // No packet is early, so a measurement far below is a mistake; one far above may be a busy machine.
            assert!(measured > predicted * 0.9, "{row}");
            if ended.code() == 0 {
                assert!(measured < predicted * 1.25, "{row}");
            }
        }
        if let (Some(after), Some(before)) = (row["after"]["seconds"][0].as_f64(), row["before"]["seconds"][0].as_f64())
        {
            assert!(after < before, "{row}");
        } else {
            assert_eq!(ended.code(), 3, "{row}");
        }
        assert_eq!(place.leftovers(), [""; 0]);
    }
}

/// Each is given to `tc`, which refuses words that it does not know before it asks the kernel; a kernel may lack a discipline.
#[test]
fn commands_for_queues_are_those_of_tc() {
    if !have(&["tc"]) {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        place.write("link.toml", LINK);
        let tuning = tune(&place, "link.toml", &["--direction", "download", "--bytes", "1 MB"]);
        let rows = tuning["queues"].as_array().unwrap();
        let kinds: Vec<&str> = rows.iter().map(|row| row["discipline"]["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["fifo", "fifo", "fifo", "fq-codel", "fq-codel", "cake"]);
        let mut script = "PATH=$PATH:/usr/sbin:/sbin\nDEVICE=lo\n".to_owned();
        for row in rows {
            script += &format!("{} 2>&1; echo \"status $?\"\n", row["command"].as_str().unwrap());
        }
        let ended = place.bentpipe(&["shell", "lan", "-q", "--", "sh", "-c", &script]).ends().expect(0);
        let statuses: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("status ")).collect();
        assert_eq!(statuses.len(), rows.len(), "{ended:?}");
        assert!(statuses[..3].iter().all(|status| *status == "status 0"), "every kernel has bfifo: {ended:?}");
        assert!(!statuses.contains(&"status 1") && !ended.stdout.contains("What is"), "{ended:?}");
    }
}

/// What is recommended for a link's queue is a key of its file, and does in a scenario what was predicted.
#[test]
fn a_queue_is_recommended_with_its_gain() {
    let place = Place::new(users()[0]);
    place.write("link.toml", format!("{LINK}queue = {{ bytes = '2 MB' }}\n"));
    let tuning = tune(&place, "link.toml", &["--direction", "download", "--bytes", "10 MB"]);
    let rows = tuning["queues"].as_array().unwrap();
    let best: Vec<&Value> = rows.iter().filter(|row| row["verdict"] == "recommended").collect();
    let [best] = best[..] else { panic!("{rows:#?}") };
    let [now, then] = [&rows[0], best].map(|row| row["ping_seconds"].as_f64().unwrap());
    assert!(then < now * 0.7, "{now} s, {then} s");
    let keys = best["keys"].as_str().unwrap().replacen(" = ", "=", 1);
    let again = tune(&place, "link.toml", &["--direction", "download", "--bytes", "10 MB", "--set", &keys]);
    assert!(again["queues"].as_array().unwrap().iter().all(|row| row["verdict"] != "recommended"), "{again:#}");
}

#[test]
fn bad_questions_are_refused() {
    let place = Place::new(users()[0]);
    for (arguments, part) in [
        (&["no-such-link"][..], "there is no link"),
        (&["lan", "--tcp", "beos"], "there is no preset"),
        (&["lan", "--set", "tcp.window=8 KiB"], "tcp.window"),
        (&["lan", "--bytes", "0 B"], "nothing to send"),
        (&["lan", "--bytes", "1000 GB"], "too long"),
        (&["lan", "--connections", "0"], "0 connections"),
        (&["lan", "--set", "rate=0 bit/s"], "rate"),
    ] {
        let ended = place.bentpipe(&[&["tune"], arguments].concat()).ends().expect(2);
        assert!(ended.stderr.contains(part) && ended.stdout.is_empty(), "{arguments:?}: {}", ended.stderr);
    }
}
