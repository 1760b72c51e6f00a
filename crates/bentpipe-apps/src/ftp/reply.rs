//! The client's reading of replies (RFC 959 §4.2), and of the addresses in them.

use crate::line::LineBuffer;

/// A complete reply; of one with several lines, the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The three digits.
    pub code: u16,
    /// The line, code included.
    pub line: String,
}

/// Takes replies out of the control connection's bytes.
#[derive(Debug)]
pub struct ReplyReader {
    lines: LineBuffer,
    /// The code of a reply of several lines that has begun.
    open: Option<u16>,
}

impl Default for ReplyReader {
    fn default() -> Self {
        ReplyReader::new()
    }
}

impl ReplyReader {
    /// A reader that has seen nothing.
    pub fn new() -> Self {
        ReplyReader { lines: LineBuffer::new(REPLY_LINE_MAX), open: None }
    }

    /// Takes what the control connection received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// The next reply, or an error when this is no FTP.
    pub fn next_reply(&mut self) -> Option<Result<Reply, String>> {
        loop {
            let Ok(line) = self.lines.next_line()? else {
                return Some(Err("server sent a reply line of excessive length".to_owned()));
            };
            let line = String::from_utf8_lossy(&line).into_owned();
            let (code, mark) = (code_of(&line), line.as_bytes().get(3).copied());
            match (self.open, code, mark) {
                (None, Some(code), None | Some(b' ')) => return Some(Ok(Reply { code, line })),
                (None, Some(code), Some(b'-')) => self.open = Some(code),
                (None, ..) => return Some(Err(format!("server sent {line:?}, which is no FTP reply"))),
                (Some(open), Some(code), None | Some(b' ')) if open == code => {
                    self.open = None;
                    return Some(Ok(Reply { code, line }));
                }
                (Some(_), ..) => {}
            }
        }
    }
}

/// The port in `229 Entering Extended Passive Mode (|||6446|)` (RFC 2428 §3; any delimiter).
pub fn extended_passive_port(line: &str) -> Option<u16> {
    let inside = line.split_once('(')?.1.split_once(')')?.0;
    let delimiter = inside.chars().next().filter(|c| !c.is_ascii_digit())?;
    let mut fields = inside.split(delimiter);
    let port = fields.nth(3)?;
    port.parse().ok().filter(|port| *port != 0 && fields.next() == Some(""))
}

/// The port in `227 Entering Passive Mode (h1,h2,h3,h4,p1,p2)`; some servers leave out the brackets (RFC 1123
/// §4.1.2.6 says to scan for digits).
pub fn passive_port(line: &str) -> Option<u16> {
    let text = line.get(3..)?;
    let first = text.find(|c: char| c.is_ascii_digit())?;
    let rest = &text[first..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(rest.len());
    let mut fields = rest[..end].split(',').map(|field| field.parse::<u8>().ok());
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = fields.next()??;
    }
    Some(u16::from_be_bytes([numbers[4], numbers[5]])).filter(|port| *port != 0)
}

fn code_of(line: &str) -> Option<u16> {
    let digits = line.get(..3)?;
    let is_code = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|code| is_code && (100..600).contains(code))
}

const REPLY_LINE_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_of_one_and_several_lines() {
        let mut reader = ReplyReader::new();
        reader.push(b"220 hello\r\n211-Features:\r\n EPSV\r\n212 no end\r\n211-nor this\r\n211 End\r\n200\r\nHTTP/1.1");
        let mut next = || reader.next_reply();
        assert_eq!(next(), Some(Ok(Reply { code: 220, line: "220 hello".to_owned() })));
        assert_eq!(next().map(|reply| reply.map(|r| r.line)), Some(Ok("211 End".to_owned())));
        assert_eq!(next().map(|reply| reply.map(|r| r.code)), Some(Ok(200)));
        assert_eq!(next(), None);
        reader.push(b" 400 Bad Request\r\n");
        assert!(reader.next_reply().is_some_and(|reply| reply.is_err()));
    }

    #[test]
    fn passive_addresses() {
        assert_eq!(extended_passive_port("229 Entering Extended Passive Mode (|||6446|)"), Some(6446));
        assert_eq!(extended_passive_port("229 ok (!!!21!)"), Some(21));
        for bad in ["229 (|||)", "229 (|||70000|)", "229 |||6446|", "229 (|||0|)", "229 (|||1"] {
            assert_eq!(extended_passive_port(bad), None, "{bad}");
        }
        assert_eq!(passive_port("227 Entering Passive Mode (10,0,0,1,195,80)."), Some(50_000));
        assert_eq!(passive_port("227 =127,0,0,1,4,1"), Some(1025));
        for bad in ["227", "227 Entering Passive Mode", "227 (1,2,3,4,5)", "227 (1,2,3,4,256,1)", "227 (1,2,3,4,0,0)"] {
            assert_eq!(passive_port(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..6000)) {
            let mut reader = ReplyReader::new();
            reader.push(&bytes);
            while let Some(Ok(_)) = reader.next_reply() {}
            prop_assert!(reader.lines.len() <= bytes.len());
        }

        #[test]
        fn any_address_is_read(text in "227[ (|,0-9)é]{0,40}") {
            let _ = passive_port(&text);
            let _ = extended_passive_port(&text);
        }
    }
}
