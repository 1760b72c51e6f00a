//! Servers that mean no harm, and do some: what they say is true as far as it goes.

use crate::place::{Place, Request, content, http, options, serve};
use bentpipe_fetch::{Failure, Options, parse_url, put};
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const ETAG: &str = "ETag: \"one\"\r\n";

/// The beginning of an answer with the whole file, and then the end.
fn cut_off(stream: &mut TcpStream, bytes: &[u8], at: usize, more: &str) -> bool {
    let (total, last) = (bytes.len(), bytes.len() - 1);
    let head =
        format!("HTTP/1.1 206 P\r\nContent-Length: {total}\r\nContent-Range: bytes 0-{last}/{total}\r\n{more}\r\n");
    // The client may be gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes[..at]));
    false
}

fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

/// Ctrl-C while the digest of a whole file is computed must not cost the file.
#[test]
fn what_is_whole_is_not_fetched_again() {
    let bytes = content(400_000);
    let served = bytes.clone();
    let url = http(move |_, request, stream| serve(request, stream, &served, ETAG));
    let (place, stop) = (Place::new(), Arc::new(AtomicBool::new(false)));
    let digest = "sha256:e7f100511e8649de33cf5893f333e94177e94a89ca8e3d48c2783eecff251f5f".parse().unwrap();
    let first = Options { stop: Arc::clone(&stop), digest: Some(digest), ..options(2) };
    let ended = bentpipe_fetch::get(&parse_url(&url).unwrap(), &place.0.join("file"), &first, &mut |progress| {
        stop.store(progress.checking, Ordering::Relaxed);
    });
    assert!(matches!(ended, Err(Failure::Stopped)), "{ended:?}");
    let outcome = place.expect(&url, &options(2), &bytes);
    assert_eq!((outcome.resumed_from, outcome.received), (399_999, 1), "{:?}", outcome.notes);
}

#[test]
fn a_server_may_give_less_than_was_asked_for() {
    let bytes = content(1_000_000);
    let served = bytes.clone();
    let url = http(move |_, request, stream| {
        let (first, last) = request.range().unwrap();
        let last = last.unwrap_or(served.len() - 1).min(first + 99_999);
        let headers = [("range".to_owned(), format!("bytes={first}-{last}"))].into();
        serve(&Request { method: String::new(), path: String::new(), headers }, stream, &served, ETAG)
    });
    for connections in [1, 3] {
        let outcome = Place::new().expect(&url, &options(connections), &bytes);
        assert_eq!(outcome.failed_attempts, 0, "{:?}", outcome.notes);
    }
}

/// `bytes 0-999/*` may be all there is, or not.
#[test]
fn a_range_of_nobody_knows_what_is_no_file() {
    let bytes = content(50_000);
    let served = bytes.clone();
    let part = |stream: &mut TcpStream, bytes: &[u8]| {
        stream.write_all(b"HTTP/1.1 206 P\r\nContent-Length: 1000\r\nContent-Range: bytes 0-999/*\r\n\r\n").unwrap();
        stream.write_all(&bytes[..1000]).is_ok()
    };
    let url = http(move |_, request, stream| match request.range() {
        Some(_) => part(stream, &served),
        None => serve(request, stream, &served, ETAG),
    });
    Place::new().expect(&url, &options(2), &bytes);
    let url = http(move |_, _, stream| part(stream, &bytes));
    let place = Place::new();
    assert!(matches!(place.fails(&url, &options(2)), Failure::Protocol(_)));
    assert!(place.names().is_empty());
}

/// Apache's `AddEncoding x-gzip .gz`: who asks for an archive wants it as it lies there.
#[test]
fn an_archive_may_be_called_coded() {
    let bytes = content(300_000);
    let served = bytes.clone();
    let url =
        http(move |_, request, stream| serve(request, stream, &served, "ETag: \"a\"\r\nContent-Encoding: x-gzip\r\n"));
    Place::new().expect(&format!("{url}.TAR.GZ"), &options(2), &bytes);
    let failure = Place::new().fails(&format!("{url}.txt"), &options(2));
    assert!(failure.to_string().contains("x-gzip"), "{failure}");
}

#[test]
fn credentials_stay_with_their_server() {
    let bytes = content(200_000);
    let (here, there) = (bytes.clone(), bytes.clone());
    let other = http(move |_, request, stream| {
        assert!(!request.headers.contains_key("authorization"), "{:?}", request.headers);
        serve(request, stream, &there, ETAG)
    });
    let elsewhere = other.replace("http://", "http://from:them@");
    let url = http(move |_, request, stream| {
        // someone:secret
        if request.headers.get("authorization").map(String::as_str) != Some("Basic c29tZW9uZTpzZWNyZXQ=") {
            return stream.write_all(b"HTTP/1.1 401 Who?\r\nContent-Length: 0\r\n\r\n").is_ok();
        }
        match request.path.as_str() {
            "/file" => stream.write_all(redirect("folder/file?x#y").as_bytes()).is_ok(),
            "/folder/file?x" => serve(request, stream, &here, ETAG),
            "/away" => stream.write_all(redirect(&elsewhere).as_bytes()).is_ok(),
            _ => stream.write_all(redirect("ftp://somewhere/else").as_bytes()).is_ok(),
        }
    });
    assert!(matches!(Place::new().fails(&url, &options(1)), Failure::Unauthorised(_)));
    let url = url.replace("http://", "http://someone:secret@");
    Place::new().expect(&url, &options(3), &bytes);
    Place::new().expect(&url.replace("/file", "/away"), &options(3), &bytes);
    let failure = Place::new().fails(&url.replace("/file", "/ftp"), &options(1));
    assert!(failure.to_string().contains("allowed: http, https"), "{failure}");
}

/// A redirected PUT that ends as a GET would look like a success.
#[test]
fn a_redirected_put_is_no_success() {
    for status in [301, 302, 303, 307, 308] {
        let url = http(move |_, request, stream| {
            let answer = match request.method.as_str() {
                "PUT" => format!(
                    "HTTP/1.1 {status} There\r\nLocation: /there\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                ),
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            let _ = stream.write_all(answer.as_bytes());
            false
        });
        let place = Place::new();
        let file = place.0.join("name");
        std::fs::write(&file, "text").unwrap();
        let outcomes = put(&[file], &parse_url(&url).unwrap(), &options(1), 1, &mut |_| {});
        assert!(
            matches!(&outcomes[0].result, Err(Failure::Redirects(text)) if text.contains("/there")),
            "{status}: {outcomes:?}"
        );
    }
}

/// Several machines under one name, each with an ETag of its own.
#[test]
fn servers_that_disagree_are_asked_once() {
    let bytes = content(2_000_000);
    let served = bytes.clone();
    let url =
        http(move |number, request, stream| serve(request, stream, &served, &format!("ETag: \"{}\"\r\n", number % 3)));
    let outcome = Place::new().expect(&url, &options(3), &bytes);
    assert!(outcome.notes.iter().any(|note| note.contains("over one connection")), "{:?}", outcome.notes);
}

/// Two files that agree in all that a server says of them.
#[test]
fn another_address_is_another_file() {
    let (one, two) = (content(500_000), content(500_000).into_iter().rev().collect::<Vec<u8>>());
    let served = two.clone();
    let url = http(move |number, request, stream| match number {
        0 => cut_off(stream, &one, 200_000, ETAG),
        _ => serve(request, stream, &served, ETAG),
    });
    let place = Place::new();
    place.fails(&url, &Options { retries: 0, ..options(1) });
    let outcome = place.expect(&url.replace("/file", "/other/file"), &options(2), &two);
    assert!(outcome.resumed_from == 0 && outcome.notes[0].contains("another address"), "{:?}", outcome.notes);
}

/// The size alone tells nothing, and a weak ETag promises no bytes.
#[test]
fn what_no_validator_confirms_is_fetched_again() {
    let (dated, weak) = ("Last-Modified: Sun, 22 Nov 2026 00:00:00 GMT\r\n", "ETag: W/\"one\"\r\n");
    for (before, now) in [(ETAG, dated), (dated, ETAG), (ETAG, ""), (weak, weak)] {
        let (one, two) = (content(500_000), content(500_000).into_iter().rev().collect::<Vec<u8>>());
        let served = two.clone();
        let url = http(move |number, request, stream| match number {
            0 => cut_off(stream, &one, 200_000, before),
            _ => serve(request, stream, &served, now),
        });
        let place = Place::new();
        place.fails(&url, &Options { retries: 0, ..options(1) });
        let outcome = place.expect(&url, &options(2), &two);
        assert_eq!(outcome.resumed_from, 0, "{before} {now} {:?}", outcome.notes);
        let is_said = outcome.notes.iter().any(|note| note.contains("does not say which version"));
        assert_eq!(is_said, now.is_empty() || now == weak, "{:?}", outcome.notes);
    }
}

#[test]
fn what_is_no_file_is_not_replaced() {
    let requests = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&requests);
    let url = http(move |_, request, stream| {
        seen.fetch_add(1, Ordering::Relaxed);
        serve(request, stream, b"text", ETAG)
    });
    let overwrite = Options { overwrite: true, ..options(1) };
    let place = Place::new();
    let get = |target: PathBuf| bentpipe_fetch::get(&parse_url(&url).unwrap(), &target, &overwrite, &mut |_| {});
    std::fs::create_dir(place.0.join("folder")).unwrap();
    let failure = get(place.0.join("folder")).unwrap_err();
    assert!(failure.to_string().contains("is a folder"), "{failure}");
    let failure = get("/dev/null".into()).unwrap_err();
    assert!(failure.to_string().contains("is no ordinary file"), "{failure}");
    let failure = get(place.0.join("folder/none/file")).unwrap_err();
    assert!(matches!(failure, Failure::Local { .. }), "{failure}");
    let failure = Options { ca: Some(place.0.join("none.pem")), ..options(1) };
    let failure = place.fails(&url, &failure);
    assert!(failure.to_string().contains("none.pem"), "{failure}");
    assert_eq!((place.names(), requests.load(Ordering::Relaxed)), (vec!["folder".to_owned()], 0));
    // A link is replaced, what it leads to is not.
    std::fs::write(place.0.join("mine"), "mine").unwrap();
    std::os::unix::fs::symlink("mine", place.0.join("file")).unwrap();
    place.get(&url, &overwrite).unwrap();
    assert_eq!(std::fs::read(place.0.join("mine")).unwrap(), b"mine");
    assert_eq!(std::fs::read(place.0.join("file")).unwrap(), b"text");
}

#[test]
fn a_header_that_never_ends_is_not_waited_for() {
    let url = http(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    });
    let failure = Place::new().fails(&url, &Options { timeout: Duration::from_millis(300), retries: 0, ..options(1) });
    assert!(matches!(failure, Failure::TimedOut(_)), "{failure}");
}

/// Answers that only announce an answer (RFC 9110 §15.2) do not go on for ever either.
#[test]
fn hints_without_end_are_not_waited_for() {
    let url = http(|_, _, stream| {
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n").is_ok() {}
        false
    });
    let failure = Place::new().fails(&url, &Options { timeout: Duration::from_millis(500), retries: 0, ..options(1) });
    assert!(matches!(failure, Failure::TimedOut(_) | Failure::Protocol(_)), "{failure}");
}

/// A reset is no end, even where nobody said how long the file is.
#[test]
fn a_reset_does_not_end_a_file() {
    let url = http(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf of it");
        std::thread::sleep(Duration::from_millis(50));
        // What lingers for no time is reset (socket(7), SO_LINGER).
        socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Read);
        false
    });
    let place = Place::new();
    let failure = place.fails(&url, &Options { retries: 0, ..options(1) });
    assert!(matches!(failure, Failure::ClosedEarly(_)), "{failure}");
    assert!(place.names().is_empty());
}

/// Each attempt would cost the whole file again.
#[test]
fn a_file_that_always_ends_early_is_given_up() {
    let bytes = content(300_000);
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 301000\r\n\r\n".to_owned();
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n493e0\r\n".to_owned();
    for head in [head, chunked] {
        let (served, requests) = (bytes.clone(), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&requests);
        let url = http(move |_, _, stream| {
            count.fetch_add(1, Ordering::Relaxed);
            // The client may be gone.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&served));
            false
        });
        let place = Place::new();
        let failure = place.fails(&url, &options(1));
        assert!(matches!(&failure, Failure::ClosedEarly(text) if text.contains("3 times in a row")), "{failure}");
        assert_eq!(requests.load(Ordering::Relaxed), 3);
        assert!(place.names().is_empty(), "nothing to go on from: {:?}", place.names());
    }
}

/// Bytes that were here before are no progress.
#[test]
fn attempts_that_get_no_further_are_counted() {
    let (bytes, requests) = (content(300_000), Arc::new(AtomicU32::new(0)));
    let (served, count) = (bytes.clone(), Arc::clone(&requests));
    let url = http(move |number, _, stream| {
        count.fetch_add(1, Ordering::Relaxed);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n";
        // The second gets further than the first, none after it does; the sixth would.
        let end = [100_000, 200_000, 150_000, 110_000, 120_000].get(number as usize).copied().unwrap_or(300_000);
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&served[..end]));
        end == 300_000
    });
    let failure = Place::new().fails(&url, &Options { retries: 2, ..options(1) });
    assert!(matches!(failure, Failure::ClosedEarly(_)), "{failure}");
    // The third and the fourth bring nothing new, after the second's own failure.
    assert_eq!(requests.load(Ordering::Relaxed), 4);
    let url = url.replace("/file", "/again");
    Place::new().expect(&url, &options(1), &bytes);
}

#[test]
fn a_name_that_no_file_can_have_costs_no_request() {
    let requests = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&requests);
    let url = http(move |_, request, stream| {
        count.fetch_add(1, Ordering::Relaxed);
        serve(request, stream, b"text", ETAG)
    });
    let place = Place::new();
    for name in ["n".repeat(256), "é".repeat(128)] {
        let target = place.0.join(name);
        let failure = bentpipe_fetch::get(&parse_url(&url).unwrap(), &target, &options(1), &mut |_| {}).unwrap_err();
        assert!(failure.to_string().contains("256 bytes; allowed: 255"), "{failure}");
    }
    assert_eq!((place.names(), requests.load(Ordering::Relaxed)), (vec![], 0));
    let target = place.0.join("n".repeat(255));
    bentpipe_fetch::get(&parse_url(&url).unwrap(), &target, &options(1), &mut |_| {}).unwrap();
}

/// Certificates from what never ends, or from what nobody writes to.
#[test]
fn certificates_come_from_a_file() {
    let url = http(|_, request, stream| serve(request, stream, b"text", ETAG));
    let place = Place::new();
    let large = place.0.join("large.pem");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    for (path, expected) in [("/dev/zero".into(), "no ordinary file"), (large, "allowed: 16777216")] {
        let failure = place.fails(&url, &Options { ca: Some(path), ..options(1) });
        assert!(failure.to_string().contains(expected), "{failure}");
    }
}
