//! HTTP servers of all kinds.

use crate::place::{Place, content, http, options, serve};
use bentpipe_fetch::{Failure, Options};
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const ETAG: &str = "ETag: \"one\"\r\n";

#[test]
fn several_connections_fetch_one_file() {
    let bytes = content(3_000_001);
    let (served, first) = (bytes.clone(), AtomicU32::new(0));
    let url = http(move |_, request, stream| {
        first.fetch_add(1, Ordering::Relaxed);
        serve(request, stream, &served, ETAG)
    });
    for connections in [1, 4, 16] {
        let outcome = Place::new().expect(&url, &options(connections), &bytes);
        assert!(outcome.size_checked && outcome.resumed_from == 0 && outcome.bytes == 3_000_001);
    }
    Place::new().expect(&url, &Options::default(), &bytes);
}

#[test]
fn small_and_empty_files() {
    for length in [0, 1, 100] {
        let bytes = content(length);
        let served = bytes.clone();
        Place::new().expect(
            &http(move |_, request, stream| serve(request, stream, &served, ETAG)),
            &options(4),
            &bytes,
        );
    }
}

#[test]
fn a_server_without_ranges_gets_one_connection() {
    let bytes = content(2_000_000);
    let served = bytes.clone();
    let url = http(move |_, request, stream| {
        let request =
            crate::place::Request { method: request.method.clone(), path: String::new(), headers: Default::default() };
        serve(&request, stream, &served, ETAG)
    });
    let outcome = Place::new().expect(&url, &options(4), &bytes);
    assert!(outcome.notes.iter().any(|note| note.contains("no ranges")), "{:?}", outcome.notes);
    assert_eq!(outcome.connections, 1);
}

#[test]
fn lengths_that_nobody_says() {
    let bytes = content(300_000);
    let (plain, chunked) = (bytes.clone(), bytes.clone());
    let until_closed = http(move |_, _, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
        stream.write_all(&plain).unwrap();
        false
    });
    let outcome = Place::new().expect(&until_closed, &options(4), &bytes);
    assert!(!outcome.size_checked);
    let in_chunks = http(move |_, _, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        for chunk in chunked.chunks(10_000) {
            stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).unwrap();
            stream.write_all(chunk).unwrap();
            stream.write_all(b"\r\n").unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
        true
    });
    Place::new().expect(&in_chunks, &options(4), &bytes);
}

#[test]
fn wrong_answers_never_become_a_file() {
    let answers: [(&str, &str); 7] = [
        ("206 P\r\nContent-Length: 5\r\nContent-Range: bytes 7-11/100\r\n\r\nhello", "Content-Range"),
        ("206 P\r\nContent-Length: 5\r\n\r\nhello", "Content-Range"),
        ("206 P\r\nContent-Length: 3\r\nContent-Range: bytes 0-4/5\r\n\r\nhel", "Content-Length"),
        ("206 P\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/3\r\n\r\nhello", "Content-Range"),
        ("200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nhello", "gzip"),
        ("404 Not Found\r\nContent-Length: 5\r\n\r\nhello", "404"),
        ("401 No\r\nContent-Length: 5\r\n\r\nhello", "401"),
    ];
    for (answer, expected) in answers {
        let text = format!("HTTP/1.1 {answer}");
        let url = http(move |_, _, stream| stream.write_all(text.as_bytes()).is_ok());
        let place = Place::new();
        let failure = place.fails(&url, &options(2));
        assert!(failure.to_string().contains(expected), "{answer}: {failure}");
        assert!(place.names().is_empty(), "{:?}", place.names());
    }
}

#[test]
fn huge_headers_and_other_protocols_are_refused() {
    let url = http(|_, _, stream| {
        // Until nobody listens any more.
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        let line = format!("X-Filler: {}\r\n", "a".repeat(1000));
        while stream.write_all(line.as_bytes()).is_ok() {}
        false
    });
    let failure = Place::new().fails(&url, &options(1));
    assert!(matches!(failure, Failure::Protocol(_)), "{failure}");
    let url = http(|_, _, stream| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH\r\n\r\n");
        false
    });
    let failure = Place::new().fails(&url, &options(1));
    assert!(matches!(failure, Failure::Protocol(_)), "{failure}");
}

#[test]
fn short_bodies_and_resets_are_made_up_for() {
    let bytes = content(1_000_000);
    let served = bytes.clone();
    let url = http(move |number, request, stream| {
        if number % 2 == 0 {
            // Half of what is announced, then the end.
            let (first, last) = request.range().unwrap();
            let last = last.unwrap_or(served.len() - 1);
            let head = format!(
                "HTTP/1.1 206 P\r\nContent-Length: {}\r\nContent-Range: bytes {first}-{last}/{}\r\n{ETAG}\r\n",
                last + 1 - first,
                served.len()
            );
            let half = first + (last + 1 - first) / 2;
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&served[first..half]));
            return false;
        }
        serve(request, stream, &served, ETAG)
    });
    let outcome = Place::new().expect(&url, &options(3), &bytes);
    assert!(outcome.failed_attempts > 0);
}

#[test]
fn a_server_that_never_gives_more_is_given_up_and_what_came_is_kept() {
    let bytes = content(500_000);
    let (served, generous) = (bytes.clone(), Arc::new(AtomicBool::new(false)));
    let is_generous = Arc::clone(&generous);
    let url = http(move |number, request, stream| {
        if number == 0 {
            let head = format!(
                "HTTP/1.1 206 P\r\nContent-Length: 500000\r\nContent-Range: bytes 0-499999/500000\r\n{ETAG}\r\n"
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&served[..200_000]));
            return false;
        }
        is_generous.load(Ordering::Relaxed) && serve(request, stream, &served, ETAG)
    });
    let place = Place::new();
    let failure = place.fails(&url, &Options { retries: 1, ..options(1) });
    assert!(matches!(failure, Failure::ClosedEarly(_)), "{failure}");
    assert_eq!(place.names(), [".file.bentpipe-part", ".file.bentpipe-state"]);
    generous.store(true, Ordering::Relaxed);
    let outcome = place.expect(&url, &options(2), &bytes);
    assert_eq!(outcome.resumed_from, 200_000);
}

#[test]
fn a_changed_file_is_fetched_again() {
    let (old, new) = (content(800_000), content(700_000).into_iter().rev().collect::<Vec<u8>>());
    let served = new.clone();
    let url = http(move |number, request, stream| match number {
        0 => {
            let head = format!(
                "HTTP/1.1 206 P\r\nContent-Length: 800000\r\nContent-Range: bytes 0-799999/800000\r\n{ETAG}\r\n"
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&old[..300_000]));
            false
        }
        _ => serve(request, stream, &served, "ETag: \"two\"\r\n"),
    });
    let outcome = Place::new().expect(&url, &options(2), &new);
    assert!(outcome.notes.iter().any(|note| note.contains("changed")), "{:?}", outcome.notes);
}

#[test]
fn a_stalled_connection_does_not_hold_the_rest() {
    let bytes = content(2_000_000);
    let served = bytes.clone();
    let url = http(move |number, request, stream| {
        if number == 1 {
            let (first, last) = request.range().unwrap();
            let last = last.unwrap_or(served.len() - 1);
            let head = format!(
                "HTTP/1.1 206 P\r\nContent-Length: {}\r\nContent-Range: bytes {first}-{last}/{}\r\n{ETAG}\r\n",
                last + 1 - first,
                served.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&served[first..first + 1000]));
            // Silent until the client goes away.
            let _ = std::io::Read::read(stream, &mut [0]);
            return false;
        }
        serve(request, stream, &served, ETAG)
    });
    Place::new().expect(&url, &Options { timeout: Duration::from_secs(60), ..options(3) }, &bytes);
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let bytes = content(100_000);
    let served = bytes.clone();
    let to_file = |path: &str| format!("HTTP/1.1 302 F\r\nLocation: {path}\r\nContent-Length: 0\r\n\r\n");
    let url = http(move |_, request, stream| match request.path.as_str() {
        "/file" => stream.write_all(to_file("/b").as_bytes()).is_ok(),
        "/b" => serve(request, stream, &served, ETAG),
        _ => stream.write_all(to_file("/circle").as_bytes()).is_ok(),
    });
    Place::new().expect(&url, &options(2), &bytes);
    let failure = Place::new().fails(&url.replace("/file", "/circle"), &options(2));
    assert!(matches!(failure, Failure::Redirects(_)), "{failure}");
}

#[test]
fn digests_are_verified() {
    let bytes = b"{\"hello\": \"world\"}\n".to_vec();
    // RFC 9530 §B.1.
    let right = "Repr-Digest: sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:\r\n";
    let wrong = "Digest: SHA-256=AAAAqy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=\r\n";
    let (one, two) = (bytes.clone(), bytes.clone());
    let outcome = Place::new().expect(&http(move |_, r, s| serve(r, s, &one, right)), &options(1), &bytes);
    assert_eq!(outcome.digest.unwrap().1, "says the server");
    let place = Place::new();
    let url = http(move |_, r, s| serve(r, s, &two, wrong));
    assert!(matches!(place.fails(&url, &options(1)), Failure::Digest { .. }));
    assert!(place.names().is_empty(), "what is wrong is not kept");
}

#[test]
fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for scheme in ["http", "ftp"] {
        let place = Place::new();
        let failure = place.fails(&format!("{scheme}://127.0.0.1:{port}/file"), &options(2));
        assert!(matches!(failure, Failure::Refused(_)), "{failure}");
        let failure = place.fails(&format!("{scheme}://no-such-host.invalid/file"), &options(2));
        assert!(matches!(failure, Failure::NameNotFound(_) | Failure::Unreachable(_)), "{failure}");
        assert!(place.names().is_empty());
    }
    // Accepts, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/file", silent.local_addr().unwrap());
    let failure = Place::new().fails(&url, &Options { timeout: Duration::from_millis(100), retries: 1, ..options(1) });
    assert!(matches!(failure, Failure::TimedOut(_)), "{failure}");
}

#[test]
fn files_that_are_there_are_not_replaced_unasked() {
    let bytes = content(1000);
    let served = bytes.clone();
    let url = http(move |_, request, stream| serve(request, stream, &served, ETAG));
    let place = Place::new();
    std::fs::write(place.0.join("file"), "mine").unwrap();
    assert!(matches!(place.get(&url, &options(1)), Err(Failure::Exists(_))));
    place.expect(&url, &Options { overwrite: true, ..options(1) }, &bytes);
}
