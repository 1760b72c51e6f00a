//! Sending files.

use crate::place::{Place, content, http, options};
use bentpipe_fetch::{Failure, parse_url, put};
use std::io::{Read, Write};

#[test]
fn http_takes_a_put() {
    let bytes = content(400_000);
    let expected = bytes.clone();
    let url = http(move |_, request, stream| {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("PUT", "/folder/name"));
        assert_eq!(request.headers["content-length"], "400000");
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = vec![0; 400_000];
        stream.read_exact(&mut body).unwrap();
        assert!(body == expected);
        stream.write_all(b"HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n").is_ok()
    });
    let place = Place::new();
    let file = place.0.join("name");
    std::fs::write(&file, &bytes).unwrap();
    let url = parse_url(&url.replace("/file", "/folder/")).unwrap();
    let outcomes = put(&[file], &url, &options(1), 1, &mut |_| {});
    assert_eq!(outcomes[0].result, Ok(()));
}

#[test]
fn a_refused_put_says_why() {
    let url = http(|_, _, stream| {
        let _ = stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        false
    });
    let place = Place::new();
    let file = place.0.join("name");
    std::fs::write(&file, "text").unwrap();
    let outcomes = put(&[file], &parse_url(&url).unwrap(), &options(1), 1, &mut |_| {});
    assert!(matches!(&outcomes[0].result, Err(Failure::Unauthorised(text)) if text.contains("403")), "{outcomes:?}");
}

#[test]
fn a_file_that_changes_during_the_transfer_is_reported() {
    let place = Place::new();
    let file = place.0.join("name");
    std::fs::write(&file, content(300_000)).unwrap();
    let changing = file.clone();
    let url = http(move |_, request, stream| {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = vec![0; request.headers["content-length"].parse().unwrap()];
        stream.read_exact(&mut body[..1]).unwrap();
        std::fs::OpenOptions::new().append(true).open(&changing).unwrap().write_all(b"more").unwrap();
        stream.read_exact(&mut body[1..]).unwrap();
        stream.write_all(b"HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n").is_ok()
    });
    let outcomes = put(&[file], &parse_url(&url).unwrap(), &options(1), 1, &mut |_| {});
    assert!(
        matches!(&outcomes[0].result, Err(Failure::Local { reason, .. }) if reason.contains("changed")),
        "{outcomes:?}"
    );
}
