//! The server's reading of requests.

use super::{HEAD_BYTES_MAX, HEADERS_MAX};

/// A request, as far as the server cares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub method: Method,
    pub path: String,
    /// The connection goes on after the response.
    pub keep_alive: bool,
    pub range: Option<Range>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Get,
    Head,
    Other,
}

/// A single byte range as it was asked for (RFC 9110 §14.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Range {
    /// From an offset to an offset, both included.
    FromTo(u64, u64),
    /// From an offset to the end.
    From(u64),
    /// So many bytes before the end.
    Last(u64),
}

/// The state of parsing after the bytes received so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Parsed {
    /// Not a whole head yet.
    Partial,
    /// A request, and the length of its head.
    Request(Request, usize),
    /// None; the status to refuse it with.
    Refused(u16),
}

/// Reads the head at the start of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(431),
        Err(httparse::Error::Version) => return Parsed::Refused(505),
        Err(_) => return Parsed::Refused(400),
    };
    let is_http_11 = head.version == Some(1);
    let (Some(method), Some(target)) = (head.method, head.path) else { return Parsed::Refused(400) };
    let mut request = Request {
        method: match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        },
        path: path_of(target).to_owned(),
        keep_alive: is_http_11,
        range: None,
    };
    let (mut hosts, mut has_body, mut if_range) = (0, false, false);
    for header in head.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or("").trim();
        match header.name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "connection" if has_token(value, "close") => request.keep_alive = false,
            "connection" if has_token(value, "keep-alive") => request.keep_alive = true,
            "content-length" => has_body |= value != "0",
            "transfer-encoding" => has_body = true,
            "range" => request.range = parse_range(value),
            "if-range" => if_range = true,
            _ => {}
        }
    }
    if is_http_11 && hosts != 1 {
        return Parsed::Refused(400); // RFC 9112 §3.2
    }
    if has_body {
        // Nothing here takes one; what follows would be read as a request.
        request.keep_alive = false;
    }
    if if_range {
        request.range = None; // There is no validator that could match (RFC 9110 §13.1.5).
    }
    Parsed::Request(request, length)
}

impl Range {
    /// First offset and the one behind the last, in `bytes` bytes; `None` when it cannot be satisfied.
    pub fn within(self, bytes: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Range::FromTo(first, last) => (first, last.saturating_add(1).min(bytes)),
            Range::From(first) => (first, bytes),
            Range::Last(count) => (bytes.saturating_sub(count), bytes),
        };
        (start < end).then_some((start, end))
    }
}

/// True if a comma-separated header value has `token`.
pub(super) fn has_token(value: &str, token: &str) -> bool {
    value.split(',').any(|part| part.trim().eq_ignore_ascii_case(token))
}

/// `None` for what is to be ignored: several ranges, other units, nonsense.
fn parse_range(value: &str) -> Option<Range> {
    let (unit, range) = value.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    match (unit.trim().eq_ignore_ascii_case("bytes"), first, last) {
        (false, ..) => None,
        (true, "", last) => number(last).map(Range::Last),
        (true, first, "") => number(first).map(Range::From),
        (true, first, last) => match (number(first)?, number(last)?) {
            (first, last) if first <= last => Some(Range::FromTo(first, last)),
            _ => None,
        },
    }
}

/// The path of a target, which may be a whole address when a proxy's client asks (RFC 9112 §3.2.2).
fn path_of(target: &str) -> &str {
    let rest = match target.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http://") => &target[7..],
        _ => return target,
    };
    rest.find('/').map_or("/", |start| &rest[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Request(request, length) if length == text.len() => request,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    #[test]
    fn persistence_follows_version_and_header() {
        assert!(get("GET / HTTP/1.1\r\nHost: a\r\n\r\n").keep_alive);
        assert!(!get("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n").keep_alive);
        assert!(!get("GET / HTTP/1.0\r\n\r\n").keep_alive);
        assert!(get("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
        assert!(!get("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n").keep_alive);
        assert_eq!(get("GET http://a:80/b?c HTTP/1.1\r\nHost: a\r\n\r\n").path, "/b?c");
        assert_eq!(get("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n").path, "/");
    }

    #[test]
    fn refusals() {
        let status = |text: &str| match parse(text.as_bytes()) {
            Parsed::Refused(status) => status,
            other => panic!("{text:?} is {other:?}"),
        };
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("GET / HTTP/2.0\r\n\r\n"), 505);
        assert_eq!(status("\u{0}\r\n\r\n"), 400);
        assert_eq!(status(&format!("GET /{} HTTP/1.1", "a".repeat(HEAD_BYTES_MAX))), 431);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1))), 431);
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHost:"), Parsed::Partial);
    }

    #[test]
    fn ranges() {
        assert_eq!(parse_range("bytes=0-9").and_then(|r| r.within(5)), Some((0, 5)));
        assert_eq!(parse_range("bytes=3-").and_then(|r| r.within(5)), Some((3, 5)));
        assert_eq!(parse_range("bytes=-2").and_then(|r| r.within(5)), Some((3, 5)));
        assert_eq!(parse_range("bytes=-9").and_then(|r| r.within(5)), Some((0, 5)));
        assert_eq!(parse_range("bytes=5-").map(|r| r.within(5)), Some(None));
        assert_eq!(parse_range("bytes=-0").map(|r| r.within(5)), Some(None));
        for ignored in ["bytes=9-3", "bytes=0-1,3-4", "lines=0-1", "bytes=-", "bytes=+1-2", "0-1", ""] {
            assert_eq!(parse_range(ignored), None, "{ignored}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn any_range_stays_inside(first in any::<u64>(), last in any::<u64>(), bytes in any::<u64>()) {
            for range in [Range::FromTo(first, last), Range::From(first), Range::Last(last)] {
                if let Some((start, end)) = range.within(bytes) {
                    prop_assert!(start < end && end <= bytes);
                }
            }
        }

        #[test]
        fn any_header_is_read(text in "GET [ -~é]{0,20} HTTP/1.[01]\r\n(Host|Range|Connection): ?[ -~]{0,30}\r\n\r\n") {
            let _ = parse(text.as_bytes());
        }
    }
}
