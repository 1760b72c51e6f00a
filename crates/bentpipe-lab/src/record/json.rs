//! JSON that people can read and that does not grow with its white space: a field a line, as in pretty JSON, but a series'
//! points on one line, and each measurement on one.

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// `value` as JSON with a final newline.
pub fn text(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, Lines::default()))?;
    out.push(b'\n');
    String::from_utf8(out).map_err(serde::ser::Error::custom)
}

/// Lists that stand on one line as a whole.
const ON_ONE_LINE: &[&str] = &["points", "histogram", "worst_hundred"];
/// Lists each element of which stands on one line, and objects that stand on one.
const ELEMENTS_ON_ONE_LINE: &[&str] = &["measurements", "parties", "changes", "events"];
/// Objects that stand on one line.
const OBJECTS_ON_ONE_LINE: &[&str] = &["shown", "flow", "objective"];

/// Pretty JSON, compact inside of certain keys' values.
#[derive(Default)]
struct Lines<'a> {
    pretty: PrettyFormatter<'a>,
    /// The key whose value comes next.
    key: String,
    in_key: bool,
    /// Depth inside of a list whose elements stand on one line each: 1 in the list itself.
    in_list: usize,
    /// Depth inside of what stands on one line.
    compact: usize,
}

impl Lines<'_> {
    /// True if what opens now stands on one line.
    fn open(&mut self, is_list: bool) -> bool {
        let key = std::mem::take(&mut self.key);
        let key = key.as_str();
        if self.compact > 0 || self.in_list > 0 || ON_ONE_LINE.contains(&key) || OBJECTS_ON_ONE_LINE.contains(&key) {
            self.compact += 1;
            return true;
        }
        if is_list && ELEMENTS_ON_ONE_LINE.contains(&key) {
            self.in_list = 1;
        }
        false
    }

    /// True if what closes now stands on one line.
    fn close(&mut self) -> bool {
        let compact = self.compact > 0;
        if compact {
            self.compact -= 1;
        } else {
            self.in_list = 0;
        }
        compact
    }
}

/// `"a": 1, "b": 2`: what separates elements on one line.
fn separate<W: ?Sized + Write>(writer: &mut W, first: bool) -> io::Result<()> {
    if first { Ok(()) } else { writer.write_all(b",") }
}

impl Formatter for Lines<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.open(true) { writer.write_all(b"[") } else { self.pretty.begin_array(writer) }
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.close() { writer.write_all(b"]") } else { self.pretty.end_array(writer) }
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.key.clear();
        if self.compact > 0 { separate(writer, first) } else { self.pretty.begin_array_value(writer, first) }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.compact > 0 { Ok(()) } else { self.pretty.end_array_value(writer) }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.open(false) { writer.write_all(b"{") } else { self.pretty.begin_object(writer) }
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.close() { writer.write_all(b"}") } else { self.pretty.end_object(writer) }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.key.clear();
        self.in_key = true;
        if self.compact > 0 { separate(writer, first) } else { self.pretty.begin_object_key(writer, first) }
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.in_key = false;
        Ok(())
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.compact > 0 { writer.write_all(b":") } else { self.pretty.begin_object_value(writer) }
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.compact > 0 { Ok(()) } else { self.pretty.end_object_value(writer) }
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if self.in_key {
            self.key.push_str(fragment);
        }
        writer.write_all(fragment.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn points_and_measurements_take_a_line_each() {
        let value = json!({
            "name": "a",
            "empty": [],
            "measurements": [{ "quantity": "goodput", "value": 1.5 }, { "quantity": "loss", "value": 0 }],
            "series": [{ "quantity": "rtt", "points": [[0.5, 1.0], [1.0, null]] }],
            "shown": { "main": ["rtt"] },
            "deep": { "points": [], "sites": ["a", "b"] }
        });
        let expected = r#"{
  "name": "a",
  "empty": [],
  "measurements": [
    {"quantity":"goodput","value":1.5},
    {"quantity":"loss","value":0}
  ],
  "series": [
    {
      "quantity": "rtt",
      "points": [[0.5,1.0],[1.0,null]]
    }
  ],
  "shown": {"main":["rtt"]},
  "deep": {
    "points": [],
    "sites": [
      "a",
      "b"
    ]
  }
}
"#;
        let text = super::text(&value).unwrap();
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
