//! `bentpipe get`: killed, interrupted, started twice; and over a link.

use crate::ftp_server::{self, FtpServer};
use crate::place::{Ended, Place, User, WaitLimited, have, users, wait};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that differ at every place.
fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Serves ranges of `bytes`, each connection at `rate` bytes a second.
fn slow_server(bytes: Vec<u8>, rate: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://user:secret@{}/file", listener.local_addr().unwrap());
    let bytes = Arc::new(bytes);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (bytes, stream) = (Arc::clone(&bytes), stream.unwrap());
            // A client that is killed ends its connection.
            std::thread::spawn(move || answer(stream, &bytes, rate));
        }
    });
    url
}

fn answer(mut stream: TcpStream, bytes: &[u8], rate: usize) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    loop {
        let mut range = None;
        loop {
            let Some(line) = lines.next() else { return Ok(()) };
            let line = line?.to_lowercase();
            if line.is_empty() {
                break;
            }
            range = line.strip_prefix("range: bytes=").map(str::to_owned).or(range);
        }
        let range = range.expect("a range");
        let (first, last) = range.split_once('-').unwrap();
        let (first, total): (usize, usize) = (first.parse().unwrap(), bytes.len());
        let last = last.parse().unwrap_or(total - 1).min(total - 1);
        let length = last + 1 - first;
        let head = format!(
            "HTTP/1.1 206 P\r\nContent-Length: {length}\r\nContent-Range: bytes {first}-{last}/{total}\r\nETag: \"1\"\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        for chunk in bytes[first..=last].chunks(rate / 200) {
            stream.write_all(chunk)?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn killed_a_hundred_times_the_file_is_right() {
    let bytes = content(6_000_000);
    let url = slow_server(bytes.clone(), 400_000);
    let place = Place::new(User::Ordinary);
    let get = ["get", &url, "-n", "3", "-q"];
    let mut kills = 0;
    while kills < 100 {
        let mut child =
            place.bentpipe(&get).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Some are killed before the state is first saved, most after.
        std::thread::sleep(Duration::from_millis(20 + kills % 7 * 20));
        assert!(child.try_wait().unwrap().is_none(), "it finished after {kills} kills");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!place.at("file").exists());
        kills += 1;
    }
    let json = place.bentpipe(&["get", &url, "-n", "16", "-q", "--json"]).ends().expect(0).stdout;
    let outcome: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(outcome["resumed_from"].as_u64().unwrap() > 500_000, "{json}");
    assert!(std::fs::read(place.at("file")).unwrap() == bytes, "the content differs");
    assert!(!json.contains("secret"));
}

#[test]
fn killed_again_and_again_over_ftp_the_file_is_right() {
    let place = Place::new(User::Ordinary);
    let Some(server) = FtpServer::start(&place, "anon_max_rate=300000") else { return };
    let bytes = content(6_000_000);
    place.write("files/file", &bytes);
    let url = format!("{}file", server.url);
    let get = ["get", &url, "-n", "3", "-q", "--json"];
    for kill in 0..12 {
        let mut child =
            place.bentpipe(&get).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + kill % 4 * 100));
        assert!(child.try_wait().unwrap().is_none(), "it finished after {kill} kills");
        child.kill().unwrap();
        child.wait().unwrap();
        if kill % 2 == 0 {
            server.end_sessions();
        }
        assert!(!place.at("file").exists());
    }
    FtpServer::configure(&place, "");
    let json = place.bentpipe(&get).ends().expect(0).stdout;
    let outcome: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(outcome["resumed_from"].as_u64().unwrap() > 200_000, "{json}");
    assert!(std::fs::read(place.at("file")).unwrap() == bytes, "the content differs");
}

#[test]
fn ctrl_c_keeps_what_came_and_a_second_process_waits_its_turn() {
    let bytes = content(2_000_000);
    let url = slow_server(bytes.clone(), 400_000);
    let place = Place::new(User::Ordinary);
    let first = place.bentpipe(&["get", &url, "-n", "2"]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    while !place.at(".file.bentpipe-state").exists() {
        assert!(Instant::now() < give_up, "no state is saved");
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = place.bentpipe(&["get", &url]).ends().expect(5);
    assert!(second.stderr.contains("another process") && !second.stderr.contains("secret"), "{}", second.stderr);
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = wait(first).expect(130);
    assert!(ended.stderr.contains("goes on from there") && !ended.stderr.contains("secret"), "{}", ended.stderr);
    let json = place.bentpipe(&["get", &url, "-n", "8", "-q", "--json"]).ends().expect(0).stdout;
    let outcome: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(outcome["resumed_from"].as_u64().unwrap() > 0, "{json}");
    assert!(std::fs::read(place.at("file")).unwrap() == bytes, "the content differs");
    let again = place.bentpipe(&["get", &url]).ends().expect(5);
    assert!(again.stderr.contains("exists"), "{}", again.stderr);
}

#[test]
fn bad_input_is_refused_before_anything_starts() {
    let place = Place::new(User::Ordinary);
    let long = format!("http://h/{}", "n".repeat(256));
    for (arguments, expected) in [
        (&["get", "gopher://user:secret@h/a"][..], "allowed: ftp, http, https"),
        (&["get", "http://h/"], "names no file"),
        (&["get", "http://h/a", "http://i/a"], "two URLs"),
        (&["get", "http://h/a", &long], "256 bytes; allowed: 255"),
        (&["get", "http://h/a", "--digest", "md5:00"], "allowed: sha256"),
        (&["get", "http://h/a", "--link", "no-such-link"], "no-such-link"),
        (&["get", "http://h/a", "-n", "0"], "1..=64"),
        (&["put", "no-such-file", "ftp://h/"], "is no file here"),
        (&["put", "tmp", "tmp", "ftp://user:secret@h/a"], "must be a folder"),
    ] {
        let ended = place.bentpipe(arguments).ends().expect(2);
        assert!(ended.stderr.contains(expected) && !ended.stderr.contains("secret"), "{arguments:?}: {}", ended.stderr);
    }
    assert_eq!(place.list(""), ["tmp"]);
}

/// Runs a line of shell in a folder with room for 1 MiB.
fn with_a_mebibyte(place: &Place, line: &str) -> Ended {
    let line = format!("mount -t tmpfs -o size=1m none tmp && cd tmp && {line}");
    // An ordinary user may mount in a user namespace of its own.
    let own = if matches!(place.user, User::Root) { "-m" } else { "-rm" };
    place.command("unshare").args([own, "sh", "-c", &line]).ends()
}

#[test]
fn a_full_disk_is_reported_at_the_start() {
    if !have(&["mount", "unshare"]) {
        return;
    }
    let url = slow_server(content(3_000_000), 4_000_000);
    for user in users() {
        let place = Place::new(user);
        let line = format!("{} get -q {url}; status=$?; ls -A; exit $status", env!("CARGO_BIN_EXE_bentpipe"));
        let ended = with_a_mebibyte(&place, &line).expect(5);
        assert!(ended.stderr.contains("disk is full") && !ended.stderr.contains("secret"), "{}", ended.stderr);
        assert_eq!(ended.stdout, "", "nothing stays and takes room");
    }
}

/// What is kept for an interruption takes room, too; the file comes first.
#[test]
fn a_file_may_take_the_last_of_the_disk() {
    if !have(&["mount", "unshare"]) {
        return;
    }
    let bytes = content(1 << 20);
    let url = slow_server(bytes.clone(), 1 << 20);
    for user in users() {
        let place = Place::new(user);
        let line =
            format!("{} get -n 2 {url} && cp file ..; status=$?; ls -A; exit $status", env!("CARGO_BIN_EXE_bentpipe"));
        let ended = with_a_mebibyte(&place, &line).expect(0);
        assert!(ended.stderr.contains("no room to save what has arrived"), "{}", ended.stderr);
        assert_eq!(ended.stdout, "file\n");
        assert!(std::fs::read(place.at("file")).unwrap() == bytes, "the content differs");
    }
}

/// `bentpipe get … --json 2>&1 | head -1`: whoever reads goes away, the files come.
#[test]
fn nobody_needs_to_read_what_is_said() {
    let bytes = content(100_000);
    let (one, two) = (slow_server(bytes.clone(), 4_000_000), slow_server(bytes.clone(), 4_000_000));
    let place = Place::new(User::Ordinary);
    let two = two.replace("/file", "/second");
    let mut child = place
        .bentpipe(&["get", &one, &two, "--json", "-n", "2"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    wait(child).expect(0);
    for name in ["file", "second"] {
        assert!(std::fs::read(place.at(name)).unwrap() == bytes, "{name}: the content differs");
    }
    // A disk that cannot take the lines is reported, after the work.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let arguments = ["get", &one, &two, "--json", "-q", "--overwrite"];
    let child = place.bentpipe(&arguments).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let ended = wait(child).expect(1);
    assert!(ended.stderr.contains("cannot write to standard output"), "{}", ended.stderr);
}

#[test]
fn from_a_real_ftp_server_over_a_satellite_link() {
    for user in users() {
        let place = Place::alone(user);
        let Some(hub) = ftp_server::at_the_hub(&place) else { return };
        let bytes = content(600_000);
        place.write("files/file", &bytes);
        let get = format!("{} get ftp://hub/file --json -q --link acts-t1", env!("CARGO_BIN_EXE_bentpipe"));
        // The server may not listen yet.
        let line = format!("for n in 1 2 3 4 5; do {get} && exit 0; sleep 1; done; exit 1");
        let shell = ["shell", "acts-t1", "-q", "--tcp", "windows-98-tuned", "--hub", &hub, "--", "sh", "-c", &line];
        let ended = place.bentpipe(&shell).ends().expect(0);
        let outcome: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
        // 94 kB fill the link, a window holds 64 KiB.
        assert_eq!(outcome["connections"], 2, "{outcome}");
        let round_trip = outcome["round_trip_seconds"].as_f64().unwrap();
        assert!(round_trip >= 0.5, "a packet came early: {outcome}");
        assert!(std::fs::read(place.at("file")).unwrap() == bytes, "the content differs");
    }
}
