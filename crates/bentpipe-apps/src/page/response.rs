//! The client's reading of responses: heads, and the three ways a body ends (RFC 9112 §6.3).

use super::request::has_token;
use super::{HEAD_BYTES_MAX, HEADERS_MAX};
use crate::line::LineBuffer;

/// Reads one response to GET. Holds at most a head.
#[derive(Debug)]
pub(super) struct ResponseReader {
    state: State,
    /// Bytes of a head that is not whole yet.
    head: Vec<u8>,
    /// Anything has come.
    begun: bool,
    keep_alive: bool,
}

#[derive(Debug)]
enum State {
    Head,
    /// So many bytes are missing.
    Length(u64),
    Chunked(Chunks),
    /// The body ends with the connection.
    ToEnd,
    Complete,
}

#[derive(Debug)]
struct Chunks {
    lines: LineBuffer,
    /// Bytes missing of the current chunk.
    left: u64,
    /// The next line ends a chunk, or is a size, or is the trailer's.
    expects: Expects,
    trailer_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expects {
    Size,
    Data,
    DataEnd,
    Trailer,
}

impl ResponseReader {
    pub fn new() -> Self {
        ResponseReader { state: State::Head, head: Vec::new(), begun: false, keep_alive: false }
    }

    /// True if any byte of a response has come.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// True if the connection can carry another request once this response is complete.
    pub fn is_reusable(&self) -> bool {
        self.keep_alive && self.is_complete()
    }

    /// Body bytes that come next as they are; they may be taken off the connection without `push`.
    pub fn plain_bytes(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::ToEnd => Some(u64::MAX),
            _ => None,
        }
    }

    /// So many of the `plain_bytes` were taken.
    pub fn took_plain(&mut self, bytes: u64) {
        if let State::Length(left) = &mut self.state {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.state = State::Complete;
            }
        }
    }

    /// Takes bytes off the connection; gives those of the body to `body`.
    pub fn push(&mut self, bytes: &[u8], body: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        self.begun |= !bytes.is_empty();
        if !matches!(self.state, State::Head) {
            return self.push_body(bytes, body);
        }
        self.head.extend_from_slice(bytes);
        loop {
            let Some((length, state)) = self.read_head()? else { return Ok(()) };
            let rest = self.head.split_off(length.min(self.head.len()));
            match state {
                Some(state) => {
                    self.state = state;
                    self.head = Vec::new();
                    return self.push_body(&rest, body);
                }
                None => self.head = rest, // An interim response; the final one follows.
            }
        }
    }

    /// The peer has finished sending.
    pub fn end(&mut self) -> Result<(), String> {
        match &self.state {
            State::Complete => Ok(()),
            State::ToEnd => {
                self.state = State::Complete;
                Ok(())
            }
            State::Head if !self.begun => Err("connection ended without a response".to_owned()),
            State::Head => Err("connection ended inside the response's header".to_owned()),
            State::Length(left) => Err(format!("connection ended {left} bytes before the end of the body")),
            State::Chunked(_) => Err("connection ended inside a chunked body".to_owned()),
        }
    }

    /// The head's length and what follows it; nothing for an interim response. `None`: not a whole head yet.
    fn read_head(&mut self) -> Result<Option<(usize, Option<State>)>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(&self.head) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
            Ok(httparse::Status::Partial) if self.head.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(_) => return Err(format!("response header is longer than {HEAD_BYTES_MAX} bytes")),
            Err(error) => return Err(format!("response is not HTTP: {error}")),
        };
        let status = head.code.unwrap_or(0);
        if (100..200).contains(&status) && status != 101 {
            return Ok(Some((length, None)));
        }
        if !(200..300).contains(&status) {
            return Err(format!("status {status} {}", head.reason.unwrap_or("")).trim_end().to_owned());
        }
        self.keep_alive = head.version == Some(1);
        let (mut content_length, mut chunked) = (None, false);
        for header in head.headers.iter() {
            let value = std::str::from_utf8(header.value).unwrap_or("").trim();
            match header.name.to_ascii_lowercase().as_str() {
                "connection" if has_token(value, "close") => self.keep_alive = false,
                "connection" if has_token(value, "keep-alive") => self.keep_alive = true,
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") && !chunked => chunked = true,
                "transfer-encoding" => return Err(format!("transfer encoding {value:?} is not supported")),
                "content-length" => {
                    let is_number = value.bytes().all(|b| b.is_ascii_digit());
                    let bytes = value.parse::<u64>().ok().filter(|_| is_number);
                    if bytes.is_none() || content_length.is_some_and(|other| Some(other) != bytes) {
                        return Err(format!("content length {value:?} is not a number, or not the only one"));
                    }
                    content_length = bytes;
                }
                _ => {}
            }
        }
        let state = match (chunked, content_length) {
            _ if matches!(status, 204 | 205) => State::Complete,
            (true, _) => State::Chunked(Chunks::new()),
            (false, Some(0)) => State::Complete,
            (false, Some(bytes)) => State::Length(bytes),
            (false, None) => {
                self.keep_alive = false;
                State::ToEnd
            }
        };
        Ok(Some((length, Some(state))))
    }

    fn push_body(&mut self, bytes: &[u8], body: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        match &mut self.state {
            _ if bytes.is_empty() => {}
            State::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                body(&bytes[..take]);
                self.took_plain(take as u64);
                if take < bytes.len() {
                    self.keep_alive = false;
                }
            }
            State::ToEnd => body(bytes),
            State::Chunked(chunks) => {
                if let Some(behind) = chunks.push(bytes, body)? {
                    self.keep_alive &= behind == 0;
                    self.state = State::Complete;
                }
            }
            // Nobody asked for more: do not trust this connection with another request.
            State::Complete | State::Head => self.keep_alive = false,
        }
        Ok(())
    }
}

impl Chunks {
    fn new() -> Self {
        Chunks { lines: LineBuffer::new(LINE_MAX), left: 0, expects: Expects::Size, trailer_bytes: 0 }
    }

    /// Decodes; when the body is complete, how many bytes were behind it.
    fn push(&mut self, bytes: &[u8], body: &mut dyn FnMut(&[u8])) -> Result<Option<usize>, String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.expects == Expects::Data {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                body(&rest[..take]);
                self.left -= take as u64;
                rest = &rest[take..];
                if self.left == 0 {
                    self.expects = Expects::DataEnd;
                }
                continue;
            }
            let take = rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |end| end + 1);
            self.lines.push(&rest[..take]);
            rest = &rest[take..];
            let Some(line) = self.lines.next_line() else { continue };
            let line = line.map_err(|_| "chunk line of excessive length".to_owned())?;
            match self.expects {
                Expects::Size => {
                    self.left = chunk_size(&line).ok_or("chunk size is not a hexadecimal number")?;
                    self.expects = if self.left == 0 { Expects::Trailer } else { Expects::Data };
                }
                Expects::DataEnd if line.is_empty() => self.expects = Expects::Size,
                Expects::DataEnd | Expects::Data => return Err("chunk is longer than its size".to_owned()),
                Expects::Trailer if line.is_empty() => return Ok(Some(rest.len())),
                Expects::Trailer => {
                    self.trailer_bytes += line.len();
                    if self.trailer_bytes > HEAD_BYTES_MAX {
                        return Err(format!("trailer is longer than {HEAD_BYTES_MAX} bytes"));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// The number before an extension; at most 15 digits, so it fits.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let digits = text.split(';').next()?.trim_matches([' ', '\t']);
    let is_number = (1..16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_number)
}

/// A chunk's size with its extension, or a line of the trailer.
const LINE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The body, and whether another request may follow; fed `step` bytes at a time.
    fn read(text: &str, step: usize) -> Result<(String, bool), String> {
        let mut reader = ResponseReader::new();
        let mut body = Vec::new();
        for part in text.as_bytes().chunks(step.max(1)) {
            reader.push(part, &mut |bytes| body.extend_from_slice(bytes))?;
        }
        if !reader.is_complete() {
            reader.end()?;
        }
        Ok((String::from_utf8_lossy(&body).into_owned(), reader.is_reusable()))
    }

    #[test]
    fn bodies_end_in_three_ways() {
        for step in 1..80 {
            let ok = |body: &str, reusable| Ok((body.to_owned(), reusable));
            assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", step), ok("hello", true));
            assert_eq!(read("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", step), ok("hello", false));
            assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nto the end", step), ok("to the end", false));
            assert_eq!(
                read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", step),
                ok("", true)
            );
            let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                           4;x=y\r\nWiki\r\n0A\r\npedia in\r\n\r\n0\r\nTrailer: x\r\n\r\n";
            assert_eq!(read(chunked, step), ok("Wikipedia in\r\n", true));
        }
    }

    #[test]
    fn failures_say_what_is_wrong() {
        let error = |text: &str| read(text, 7).unwrap_err();
        assert_eq!(error("HTTP/1.1 404 Not Found\r\n\r\n"), "status 404 Not Found");
        assert_eq!(error("HTTP/1.1 302\r\nLocation: /\r\n\r\n"), "status 302");
        assert_eq!(
            error("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"),
            "connection ended 2 bytes before the end of the body"
        );
        assert_eq!(error(""), "connection ended without a response");
        assert_eq!(error("HTTP/1.1 200 O"), "connection ended inside the response's header");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(error(&format!("{chunked}4\r\nWik")), "connection ended inside a chunked body");
        assert_eq!(error(&format!("{chunked}4\r\nWikis\r\n")), "chunk is longer than its size");
        assert_eq!(error(&format!("{chunked}-4\r\n")), "chunk size is not a hexadecimal number");
        assert!(error("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n").contains("content length"));
        assert!(error("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n").contains("gzip"));
        assert!(error(&format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(HEAD_BYTES_MAX))).contains("longer than"));
        assert!(error("220 ftp.example\r\n").contains("not HTTP"));
    }

    #[test]
    fn a_talkative_server_is_not_asked_again() {
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi there", 100), Ok(("hi".to_owned(), false)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..3000), step in 1usize..500) {
            let mut reader = ResponseReader::new();
            for part in bytes.chunks(step) {
                if reader.push(part, &mut |_| ()).is_err() {
                    break;
                }
                prop_assert!(reader.head.len() < HEAD_BYTES_MAX);
            }
        }

        #[test]
        fn any_chunking_is_decoded_or_refused(text in "([0-9a-f]{1,3}[;\r\n]{1,3}[ -~]{0,20}\r?\n?){0,8}", step in 1usize..50) {
            let whole = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{text}");
            prop_assert_eq!(read(&whole, step), read(&whole, usize::MAX));
        }
    }
}
