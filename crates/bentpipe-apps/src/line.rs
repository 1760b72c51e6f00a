//! Lines out of a byte stream, of bounded length.

/// Collects bytes and gives lines. Holds at most its limit plus one push.
#[derive(Debug)]
pub(crate) struct LineBuffer {
    bytes: Vec<u8>,
    length_max: usize,
    too_long: bool,
}

/// A line longer than the limit; it was skipped up to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineTooLong;

impl LineBuffer {
    /// `length_max`: the longest line taken, its end included.
    pub fn new(length_max: usize) -> Self {
        LineBuffer { bytes: Vec::new(), length_max, too_long: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The next whole line as it stands, without taking it.
    pub fn peek(&self) -> Option<&[u8]> {
        let end = self.bytes.iter().position(|b| *b == b'\n')?;
        let line = &self.bytes[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// The next whole line without its LF or CR LF.
    pub fn next_line(&mut self) -> Option<Result<Vec<u8>, LineTooLong>> {
        let Some(end) = self.bytes.iter().position(|b| *b == b'\n') else {
            if self.bytes.len() >= self.length_max {
                self.bytes.clear();
                self.too_long = true;
            }
            return None;
        };
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        if std::mem::take(&mut self.too_long) || line.len() > self.length_max {
            return Some(Err(LineTooLong));
        }
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(Ok(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_end_with_lf_or_crlf_and_long_ones_are_skipped_whole() {
        let mut lines = LineBuffer::new(8);
        lines.push(b"one\r\ntwo\n123456\r\n1234567\r\n1234567890");
        assert_eq!(lines.next_line(), Some(Ok(b"one".to_vec())));
        assert_eq!(lines.next_line(), Some(Ok(b"two".to_vec())));
        assert_eq!(lines.next_line(), Some(Ok(b"123456".to_vec())));
        assert_eq!(lines.next_line(), Some(Err(LineTooLong)));
        assert_eq!(lines.next_line(), None);
        lines.push(b"still the long one\r\nnext\r\n");
        assert_eq!(lines.next_line(), Some(Err(LineTooLong)));
        assert_eq!(lines.next_line(), Some(Ok(b"next".to_vec())));
        assert_eq!(lines.next_line(), None);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_lines(text in "[a-c\r\n]{0,80}", cut in 0usize..80) {
            let all = |parts: &[&[u8]]| {
                let mut lines = LineBuffer::new(10);
                let mut found = Vec::new();
                for part in parts {
                    lines.push(part);
                    while let Some(line) = lines.next_line() {
                        found.push(line);
                    }
                    prop_assert!(lines.len() < 10);
                }
                Ok(found)
            };
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            prop_assert_eq!(all(&[bytes])?, all(&[&bytes[..cut], &bytes[cut..]])?);
        }
    }
}
