//! `bentpipe put`: to a real FTP server that takes, refuses, and is full; killed and resumed; and over HTTP.

use crate::ftp_server::{self, FtpServer};
use crate::place::{Ended, Place, User, WaitLimited, users};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

/// Bytes that differ at every place.
fn content(length: usize, salt: u64) -> Vec<u8> {
    (0..length as u64).map(|n| ((n + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn objects(ended: &Ended) -> Vec<serde_json::Value> {
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn same(place: &Place, name: &str, bytes: &[u8]) {
    assert!(std::fs::read(place.at(name)).unwrap() == bytes, "{name}: the content differs");
}

#[test]
fn several_files_go_in_parallel_and_keep_their_names() {
    let place = Place::new(User::Ordinary);
    let Some(server) = FtpServer::start(&place, "") else { return };
    place.make_folder("files/deep er");
    let names = ["empty", "one byte", "ümlaut", "percent%41", "large", "-dash"];
    for (salt, name) in names.iter().enumerate() {
        place.write(name, content([0, 1, 70_000, 1_000, 3_000_000, 20][salt], salt as u64));
    }
    let url = format!("{}deep%20er/", server.url);
    let put = [&["put", "-n", "3", "--json", "--"], &names[..], &[&url]].concat();
    let ended = place.bentpipe(&put).ends().expect(0);
    let outcomes = objects(&ended);
    assert!(outcomes.iter().all(|o| o["ok"] == true && o["resumed_from"] == 0), "{outcomes:?}");
    let files: Vec<&str> = outcomes.iter().map(|o| o["file"].as_str().unwrap()).collect();
    assert_eq!(files, names, "in the order of the arguments");
    let mut there: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    there.sort();
    assert_eq!(place.list("files/deep er"), there, "and no partial file");
    for name in names {
        same(&place, &format!("files/deep er/{name}"), &std::fs::read(place.at(name)).unwrap());
    }
    // One file under another name, over one that is there.
    let url = format!("{}deep%20er/large", server.url);
    place.bentpipe(&["put", "-q", "ümlaut", &url]).ends().expect(0);
    same(&place, "files/deep er/large", &content(70_000, 2));
}

#[test]
fn killed_again_and_again_the_file_at_the_server_is_right() {
    let place = Place::new(User::Ordinary);
    let Some(server) = FtpServer::start(&place, "anon_max_rate=8000000") else { return };
    let bytes = content(40_000_000, 0);
    place.write("file", &bytes);
    let put = ["put", "-q", "--json", "file", &server.url];
    for kill in 0..12 {
        let mut child =
            place.bentpipe(&put).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + kill % 4 * 200));
        assert!(child.try_wait().unwrap().is_none(), "it finished after {kill} kills");
        child.kill().unwrap();
        child.wait().unwrap();
        // With its session, the server loses what it has not read; without, it goes on writing while the next run begins.
        if kill % 2 == 0 {
            server.end_sessions();
        }
        assert!(!place.at("files/file").exists());
    }
    FtpServer::configure(&place, "");
    let outcomes = objects(&place.bentpipe(&put).ends().expect(0));
    assert!(outcomes[0]["resumed_from"].as_u64().unwrap() > 1_000_000, "{outcomes:?}");
    assert_eq!(place.list("files"), ["file"]);
    same(&place, "files/file", &bytes);
}

#[test]
fn another_version_of_the_file_is_not_appended_to_the_first() {
    let place = Place::new(User::Ordinary);
    let Some(server) = FtpServer::start(&place, "anon_max_rate=8000000") else { return };
    place.write("file", content(20_000_000, 0));
    let put = ["put", "-q", "--json", "file", &server.url];
    let mut child = place.bentpipe(&put).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    while place.list("files").is_empty() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    server.end_sessions();
    FtpServer::configure(&place, "");
    place.write("file", content(20_000_000, 1));
    let outcomes = objects(&place.bentpipe(&put).ends().expect(0));
    assert_eq!(outcomes[0]["resumed_from"], 0, "{outcomes:?}");
    same(&place, "files/file", &content(20_000_000, 1));
}

#[test]
fn ctrl_c_keeps_what_the_server_has() {
    let place = Place::new(User::Ordinary);
    let Some(server) = FtpServer::start(&place, "anon_max_rate=8000000") else { return };
    place.write("file", content(30_000_000, 0));
    let child = place.bentpipe(&["put", "file", &server.url]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    while place.list("files").is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = crate::place::wait(child).expect(130);
    assert!(ended.stderr.contains("interrupted") && ended.stderr.contains("goes on from there"), "{}", ended.stderr);
    FtpServer::configure(&place, "");
    let outcomes = objects(&place.bentpipe(&["put", "-q", "--json", "file", &server.url]).ends().expect(0));
    assert!(outcomes[0]["resumed_from"].as_u64().unwrap() > 0, "{outcomes:?}");
    same(&place, "files/file", &content(30_000_000, 0));
}

/// What the server forbids, and what must be said.
#[test]
fn refusals_say_what_the_server_says() {
    let place = Place::new(User::Ordinary);
    let Some(server) = FtpServer::start(&place, "") else { return };
    place.write("file", "text");
    place.write("banned", "secret\n");
    let folder = place.make_folder("files/closed");
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    let url = server.url.replace("ftp://", "ftp://anonymous:secret@");
    for (config, target, code, parts) in [
        ("", "closed/", 4, &["the server says 553"][..]),
        ("", "no-such-folder/", 4, &["the server says 553"]),
        ("write_enable=NO", "", 4, &["not allowed", "550 Permission denied"]),
        ("no_anon_password=NO\ndeny_email_enable=YES\nbanned_email_file=banned", "", 4, &["not allowed", "530"]),
        // All is sent, and cannot get its name: the message must say under which it is.
        ("cmds_denied=RNFR,RNTO", "", 4, &["550 Permission denied", "did not rename", ".bentpipe-part"]),
    ] {
        FtpServer::configure(&place, config);
        let ended = place.bentpipe(&["put", "--json", "file", &format!("{url}{target}")]).ends().expect(code);
        for part in parts {
            assert!(ended.stderr.contains(part), "{config} {target}: {part}: {}", ended.stderr);
        }
        let all = ended.stderr + &ended.stdout;
        assert!(!all.contains("secret") && !all.contains("not found"), "{config} {target}: {all}");
        assert!(!place.at("files/file").exists());
    }
    // Nothing listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ended = place.bentpipe(&["put", "file", &format!("ftp://127.0.0.1:{port}/")]).ends().expect(1);
    assert!(ended.stderr.contains("connection refused"), "{}", ended.stderr);
}

#[test]
fn a_server_that_can_write_no_more_is_quoted() {
    let place = Place::new(User::Ordinary);
    // A file may have 500 kB: the write fails as on a full disk.
    let Some(server) = FtpServer::start_after(&place, "", "trap '' XFSZ; ulimit -f 1000") else { return };
    place.write("file", content(3_000_000, 0));
    let ended = place.bentpipe(&["put", "--retries", "1", "file", &server.url]).ends().expect(1);
    assert!(ended.stderr.contains("Failure writing to local file"), "{}", ended.stderr);
    assert!(!place.at("files/file").exists());
}

/// The second would replace the first, or be mixed with it.
#[test]
fn two_files_of_one_name_are_refused() {
    let place = Place::new(User::Ordinary);
    for name in ["a", "b"] {
        place.make_folder(name);
        place.write(&format!("{name}/file"), name);
    }
    let ended = place.bentpipe(&["put", "a/file", "b/file", "ftp://user:secret@h/in/"]).ends().expect(2);
    assert!(ended.stderr.contains("two files would be sent to ftp://h/in/file"), "{}", ended.stderr);
}

#[test]
fn several_files_fill_a_satellite_link() {
    for user in users() {
        let place = Place::alone(user);
        let Some(hub) = ftp_server::at_the_hub(&place) else { return };
        let names = ["one", "two", "three"];
        for (salt, name) in names.iter().enumerate() {
            place.write(name, content(300_000, salt as u64));
        }
        let put = format!("{} put -n 3 --json -q one two three ftp://hub/", env!("CARGO_BIN_EXE_bentpipe"));
        // The server may not listen yet.
        let line = format!("for n in 1 2 3 4 5; do {put} && exit 0; sleep 1; done; exit 1");
        let shell = ["shell", "acts-t1", "-q", "--tcp", "windows-98-tuned", "--hub", &hub, "--", "sh", "-c", &line];
        let ended = place.bentpipe(&shell).ends().expect(0);
        let outcomes = &objects(&ended)[..];
        let [.., first, second, third] = outcomes else { panic!("{outcomes:?}") };
        for (outcome, name) in [first, second, third].into_iter().zip(names) {
            assert_eq!((&outcome["file"], &outcome["ok"]), (&name.into(), &true.into()), "{outcome}");
            // The T1 alone takes 1.6 s for one of them; the dialogue of FTP takes more round trips of half a second
            // than that.
            assert!(outcome["seconds"].as_f64().unwrap() > 1.6 + 5.0 * 0.5, "{outcome}");
        }
        assert_eq!(place.list("files").len(), 3, "no partial file");
        for (salt, name) in names.iter().enumerate() {
            same(&place, &format!("files/{name}"), &content(300_000, salt as u64));
        }
    }
}

#[test]
fn http_put_sends_the_file_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://user:secret@{}/in/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            head.push(line.trim().to_lowercase());
        }
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = vec![0; 500_000];
        reader.read_exact(&mut body).unwrap();
        stream.write_all(b"HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n").unwrap();
        (head, body)
    });
    let place = Place::new(User::Ordinary);
    place.write("a file", content(500_000, 0));
    let ended = place.bentpipe(&["put", "a file", &url]).ends().expect(0);
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    let (head, body) = server.join().unwrap();
    assert!(head[0].starts_with("put /in/a%20file "), "{head:?}");
    assert!(head.iter().any(|line| line == "content-length: 500000"), "{head:?}");
    assert!(body == content(500_000, 0));
}
