//! `bentpipe shell`: one real program behind a link.

use crate::capture;
use crate::place::{Ended, Place, User, WaitLimited, have, is_root, users, wait};
use crate::processes;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// Serves one page, for ever; Perl is on every Debian.
const SERVER: &str = "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalPort => 80, Listen => 5, ReuseAddr => 1) \
    or die; while ($c = $s->accept) { $l = <$c>; print $c qq(HTTP/1.0 200 OK\\r\\n\\r\\n), qq(from the hub\\n) x 2000; close $c }'";
const FETCH: &str = "curl -sS --retry 20 --retry-connrefused --retry-delay 1 http://hub/";
/// A link too quick to wait for.
const QUICK: &[&str] = &["shell", "lan", "-q", "--"];

fn quick(place: &Place, line: &str) -> Ended {
    place.bentpipe(&[QUICK, &["sh", "-c", line]].concat()).ends()
}

/// What `ping` said each round trip took, in milliseconds.
fn round_trips(output: &str) -> Vec<f64> {
    let times = output.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    times.collect()
}

/// The latest departure that the program says there was, in milliseconds.
fn latest(stderr: &str) -> f64 {
    let text = stderr.split_once("packets left at most ").and_then(|(_, rest)| rest.split(' ').next());
    text.and_then(|ms| ms.parse().ok()).unwrap_or_else(|| panic!("no lateness: {stderr}"))
}

#[track_caller]
fn expect_round_trips(ended: &Ended, count: usize, configured_ms: f64) {
    let times = round_trips(&ended.stdout);
    assert_eq!(times.len(), count, "{}", ended.stdout);
    for time in times {
        // ping(8) prints three digits, rounded down.
        assert!(time >= configured_ms * 0.998, "{time} ms of {configured_ms}");
        if latest(&ended.stderr) < configured_ms * 0.05 {
            assert!(time < configured_ms * 1.2, "{time} ms of {configured_ms}");
        } else {
            eprintln!("not judged: packets were {} ms late", latest(&ended.stderr));
        }
    }
}

#[test]
fn a_ping_takes_the_link_s_time() {
    if !have(&["ping"]) {
        return;
    }
    for user in users() {
        let place = Place::alone(user);
        let ping = ["--", "ping", "-c", "2", "-i", "0.2", "hub"];
        let ended = place.bentpipe(&[&["shell", "geo-two-way"], &ping[..]].concat()).ends().expect(0);
        expect_round_trips(&ended, 2, 480.0);
        assert!(ended.stderr.contains("forward: 2 packets delivered, 0 dropped"), "{}", ended.stderr);
        assert!(ended.stderr.contains("204 B on the link"), "two of 84 + 18 bytes: {}", ended.stderr);
        let set = ["shell", "geo-two-way", "--set", "one_way_delay=100 ms", "--set", "return.one_way_delay=50 ms"];
        let ended = place.bentpipe(&[&set, &ping[..]].concat()).ends().expect(0);
        expect_round_trips(&ended, 2, 150.0);
    }
}

/// `bentpipe shell LINK &` would take the terminal from the shell that started it, or be stopped.
#[test]
fn a_shell_in_the_background_is_refused() {
    if !have(&["script", "bash"]) {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        let line = format!("set -m; {} shell lan & wait $!; echo status $?", env!("CARGO_BIN_EXE_bentpipe"));
        let arguments = ["-qec", &format!("bash -c '{line}'"), "/dev/null"];
        let ended = place.command("script").args(arguments).ends_given(b"").expect(0);
        assert!(ended.stdout.contains("has no terminal; run it in the foreground"), "{}", ended.stdout);
        assert!(ended.stdout.contains("status 2"), "{}", ended.stdout);
    }
}

#[test]
fn exit_status_and_streams_pass_through() {
    for user in users() {
        let place = Place::new(user);
        for (line, code) in [
            ("exit 0", 0),
            ("exit 3", 3),
            ("exit 255", 255),
            ("kill -KILL $$", 128 + 9),
            ("kill -TERM $$", 128 + 15),
            ("no-such-program-here", 127),
        ] {
            assert_eq!(quick(&place, line).code(), code, "{user:?}: {line}");
        }
        let missing = place.bentpipe(&[QUICK, &["no-such-program-here"]].concat()).ends().expect(2);
        assert!(missing.stderr.contains("no-such-program-here") && missing.stdout.is_empty(), "{}", missing.stderr);
        let ended = quick(&place, "echo out; echo err >&2").expect(0);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
        // Bytes, not text; and more than a pipe holds.
        let input: String = (0..40_000).map(|n| format!("{n} €\n")).collect();
        let ended = place.bentpipe(&[QUICK, &["cat"]].concat()).ends_given(input.as_bytes()).expect(0);
        assert!(ended.stdout == input, "{} bytes of {} came back", ended.stdout.len(), input.len());
    }
}

#[test]
fn a_site_sees_the_link_and_nothing_else() {
    let machine = std::fs::read_to_string("/etc/hosts").ok();
    for user in users() {
        let place = Place::new(user);
        let line = "echo $BENTPIPE_HUB $BENTPIPE_TERMINAL $BENTPIPE_LINK; getent hosts hub terminal localhost; \
            echo devices; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort; \
            echo routes; tail -n +2 /proc/net/route | cut -f1,2; echo user; id -u";
        let text = quick(&place, line).expect(0).stdout;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "198.18.0.1 198.18.0.2 lan", "{user:?}");
        let hosts: Vec<Vec<&str>> = lines[1..4].iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(hosts[0], ["198.18.0.1", "hub"], "{user:?}");
        assert_eq!(hosts[1], ["198.18.0.2", "terminal"], "{user:?}");
        assert_eq!(hosts[2][1], "localhost", "{user:?}");
        // One route, to the link's own network; none to the rest of the world.
        let id = quick_id(&place);
        assert_eq!(lines[4..], ["devices", "lo", "sat", "routes", "sat\t000012C6", "user", &id], "{user:?}");
        assert_eq!(std::fs::read_to_string("/etc/hosts").ok(), machine, "the machine's own hosts file");
    }
}

/// The user's number outside, which a program keeps inside.
fn quick_id(place: &Place) -> String {
    place.command("id").arg("-u").ends().expect(0).stdout.trim().to_owned()
}

#[test]
fn a_server_at_the_hub() {
    if !have(&["curl", "perl"]) {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        let link = ["shell", "lan", "--set", "one_way_delay=10 ms", "--hub", SERVER];
        let ended = place.bentpipe(&[&link, &["--", "sh", "-c", FETCH][..]].concat()).ends().expect(0);
        assert_eq!(ended.stdout, "from the hub\n".repeat(2000), "{user:?}: {}", ended.stderr);
        // A server's output must not mix with the command's.
        let chatty = ["shell", "lan", "-q", "--hub", "echo a server speaks; sleep 1000", "--", "sleep", "1"];
        let ended = place.bentpipe(&chatty).ends().expect(0);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", "a server speaks\n"), "{user:?}");
    }
}

#[test]
fn a_capture_opens_in_tshark() {
    if !have(&["ping", "tshark"]) {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        let arguments = ["shell", "geo-two-way", "--pcap", "x.pcapng", "--", "ping", "-c", "4", "-i", "0.2", "hub"];
        place.bentpipe(&arguments).ends().expect(0);
        let fields =
            ["frame.interface_name", "frame.time_epoch", "icmp.type", "icmp.seq", "frame.packet_flags_direction"];
        let mut tshark = place.command("tshark");
        tshark.args(["-r", "x.pcapng", "-T", "fields"]).args(fields.iter().flat_map(|field| ["-e", field]));
        let ended = tshark.ends().expect(0);
        let rows: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(rows.len(), 16, "four requests and answers, each at both ends: {}", ended.stdout);
        let seconds = |row: &[&str]| -> (u64, u64) {
            let (whole, part) = row[1].split_once('.').expect("a fraction");
            assert_eq!(part.len(), 9, "nanoseconds: {}", row[1]);
            (whole.parse().unwrap(), part.parse().unwrap())
        };
        let find = |end: &str, kind: &str, number: usize| -> u64 {
            let (end, number) = (format!("{end}/sat"), number.to_string());
            let found: Vec<_> = rows.iter().filter(|r| r[0] == end && r[2] == kind && r[3] == number).collect();
            assert_eq!(found.len(), 1, "{end}, type {kind}, number {number}: {}", ended.stdout);
            let (whole, part) = seconds(found[0]);
            whole * 1_000_000_000 + part
        };
        for number in 1..=4 {
            for (from, to, kind) in [("terminal", "hub", "8"), ("hub", "terminal", "0")] {
                let taken = find(to, kind, number) - find(from, kind, number);
                assert!(taken >= 240_000_000, "{from} to {to} in {taken} ns");
            }
        }
        assert!(rows.iter().any(|row| seconds(row).1 % 1_000 != 0), "every stamp is whole microseconds");
        // The same by a reader that knows only the format.
        let packets = capture::read(&std::fs::read(place.at("x.pcapng")).unwrap());
        let count =
            |name: &str, outbound| packets.iter().filter(|p| p.interface == name && p.outbound == outbound).count();
        for name in ["hub/sat", "terminal/sat"] {
            assert_eq!((count(name, true), count(name, false)), (4, 4), "{name}");
        }
    }
}

#[test]
fn a_preset_shows_on_the_wire() {
    if !have(&["curl", "perl", "tshark"]) {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        for (preset, large) in [("windows-95", false), ("linux", true)] {
            let arguments =
                ["shell", "lan", "--tcp", preset, "--pcap", "x.pcapng", "--hub", SERVER, "--", "sh", "-c", FETCH];
            place.bentpipe(&arguments).ends().expect(0);
            let tshark = |filter: &str, field: &str| {
                let filter = format!("{filter} and frame.interface_name == \"hub/sat\"");
                let arguments = [
                    "-r",
                    "x.pcapng",
                    "-o",
                    "tcp.analyze_sequence_numbers:TRUE",
                    "-Y",
                    &filter,
                    "-T",
                    "fields",
                    "-e",
                    field,
                ];
                place.command("tshark").args(arguments).ends().expect(0).stdout
            };
            for option in ["tcp.options.wscale.shift", "tcp.options.sack_perm", "tcp.options.timestamp.tsval"] {
                let offered = tshark("tcp.flags.syn == 1", option);
                assert_eq!(offered.lines().all(|line| !line.is_empty()), large, "{preset} {option}: {offered:?}");
                assert_eq!(offered.lines().any(|line| !line.is_empty()), large, "{preset} {option}: {offered:?}");
            }
            let windows = tshark("tcp.flags.reset == 0", "tcp.window_size");
            let largest = windows.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap();
            // Five whole segments of 1460 bytes are in 8 KiB.
            assert_eq!(largest > 7_300, large, "{preset}: {largest}");
        }
    }
}

#[test]
fn two_shells_at_once_do_not_meet() {
    if !have(&["ping"]) {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        let start = |delay: &str| -> Child {
            let delay = format!("one_way_delay={delay}");
            let arguments = ["shell", "geo-two-way", "--set", &delay, "--", "ping", "-c", "4", "-i", "0.2", "hub"];
            let mut command = place.bentpipe(&arguments);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let children = [(start("20 ms"), 40.0), (start("300 ms"), 600.0)];
        for (child, configured_ms) in children {
            let ended = wait(child).expect(0);
            assert!(ended.stderr.contains("forward: 4 packets delivered, 0 dropped"), "{}", ended.stderr);
            expect_round_trips(&ended, 4, configured_ms);
        }
        assert_eq!(place.leftovers(), [""; 0]);
    }
}

/// The hub's command is under way when something fails; bentpipe ends it and itself.
#[test]
fn what_fails_beside_a_running_hub_ends() {
    const HUB: &str = "echo up >&2; exec sleep 1006";
    for user in users() {
        let place = Place::new(user);
        let ended = place.bentpipe(&["shell", "lan", "--hub", HUB, "--", "no-such-program-here"]).ends().expect(2);
        assert!(ended.stderr.contains("no-such-program-here"), "{}", ended.stderr);
        let mut command = place.bentpipe(&["shell", "lan", "--hub", HUB]);
        let ended = command.env("SHELL", "/nonexistent").ends().expect(2);
        assert!(ended.stderr.contains("cannot start \"/nonexistent\""), "{}", ended.stderr);
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let mut command = place.bentpipe(&["shell", "lan", "--hub", HUB, "--", "sleep", "1007"]);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            let mut stderr = BufReader::new(child.stderr.take().unwrap());
            stderr.read_line(&mut line).unwrap();
            assert_eq!(line, "up\n");
            kill_process(Pid::from_child(&child), signal).unwrap();
            let code = wait(child).code();
            // The command may just have been started: then the signal is for it.
            assert!([130, 128 + signal.as_raw()].contains(&code), "{user:?} {signal:?}: {code}");
        }
        processes::all_gone(&place).unwrap();
        assert_eq!(place.leftovers(), [""; 0]);
    }
}

/// A server that takes a while to start is there when the command is.
#[test]
fn the_command_waits_for_the_hub_s_port() {
    if !have(&["perl"]) {
        return;
    }
    let server = format!("sleep 0.5; {SERVER}");
    let fetch = "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr => q(hub:80)) or die $!; print q(there)'";
    for user in users() {
        let place = Place::new(user);
        let ended = place.bentpipe(&["shell", "lan", "--hub", &server, "--", "sh", "-c", fetch]).ends().expect(0);
        assert_eq!(ended.stdout, "there", "{}", ended.stderr);
        assert!(!ended.stderr.contains("listens on no port"), "{}", ended.stderr);
        let ended = place.bentpipe(&["shell", "lan", "--hub", "sleep 1008", "--", "true"]).ends().expect(0);
        assert!(ended.stderr.contains("listens on no port after 3 s"), "{}", ended.stderr);
        // What has ended will not listen.
        let ended = place.bentpipe(&["shell", "lan", "--hub", "exit 7", "--", "true"]).ends().expect(0);
        assert!(!ended.stderr.contains("listens on no port"), "{}", ended.stderr);
    }
}

#[test]
fn the_prompt_shows_the_link() {
    if !have(&["script"]) {
        return;
    }
    let place = Place::new(User::Ordinary);
    place.write(".bashrc", "PS1='mine> '\n");
    for (shell, expected) in [("bash", "(lan) mine> "), ("dash", "(lan) $ ")] {
        if !have(&[shell]) {
            continue;
        }
        let line = format!("{} shell lan -q", env!("CARGO_BIN_EXE_bentpipe"));
        let mut command = place.command("script");
        command.args(["-qec", &line, "/dev/null"]);
        command.env("SHELL", format!("/usr/bin/{shell}")).env("HOME", place.at("")).env_remove("PS1");
        let ended = command.ends_given(b"echo $((6 * 7)); env | grep -c PROMPT_COMMAND\nexit 5\n").expect(5);
        let text = ended.stdout;
        assert!(text.contains(expected), "{shell}: {text:?}");
        assert!(text.contains("42\r\n0\r\n"), "{shell}: {text:?}");
    }
}

#[test]
fn a_closed_tun_device_is_named() {
    if !have(&["unshare", "mount"]) {
        return;
    }
    let place = Place::new(User::Root);
    if !is_root() {
        eprintln!("skipped: needs root to hide a device");
        return;
    }
    place.make_folder("bin");
    place.write("bin/pasta", "#!/bin/sh\necho pasta 0\n");
    let line = format!(
        "chmod +x bin/pasta; mount -t tmpfs none /dev/net; PATH=$PWD/bin:$PATH {} shell lan --internet -- true",
        env!("CARGO_BIN_EXE_bentpipe")
    );
    let ended = place.command("unshare").args(["-m", "sh", "-c", &line]).ends().expect(2);
    assert!(ended.stderr.contains("/dev/net/tun"), "{}", ended.stderr);
    let ended = place.bentpipe(&["shell", "lan", "--host-loopback", "--", "true"]).ends().expect(2);
    assert!(ended.stderr.contains("--internet"), "{}", ended.stderr);
}
