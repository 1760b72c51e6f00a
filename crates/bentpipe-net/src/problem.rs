//! Mistakes in a file or an option: where, what, and what is allowed.

use std::fmt;
use toml::de::{DeTable, DeValue};

/// One mistake in what a user wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// File (or option) it stands in.
    pub source_name: String,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// The key, dotted (`links.sat.rate`); empty when the text is not even TOML.
    pub key: String,
    /// The mistake and the allowed values.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source_name)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A mistake at a key, not yet placed in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyProblem {
    /// The dotted key.
    pub key: String,
    /// The mistake and the allowed values.
    pub message: String,
}

impl KeyProblem {
    /// A mistake at `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        KeyProblem { key: key.into(), message: message.into() }
    }

    /// The same, with `prefix.` before the key.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.key = if self.key.is_empty() { prefix.to_owned() } else { format!("{prefix}.{}", self.key) };
        self
    }

    /// Places the mistake in a file's text.
    #[must_use]
    pub fn within(self, source_name: &str, text: &str) -> Problem {
        let line = line_of_key(text, &self.key);
        Problem { source_name: source_name.to_owned(), line, key: self.key, message: self.message }
    }
}

/// A mistake that keeps a text from being TOML at all.
#[must_use]
pub fn syntax_problem(source_name: &str, text: &str, error: &toml::de::Error) -> Problem {
    Problem {
        source_name: source_name.to_owned(),
        line: error.span().map(|span| line_at(text, span.start)),
        key: String::new(),
        message: format!("not TOML: {}", error.message().trim().replace('\n', "; ")),
    }
}

/// The line on which `key` (dotted; array elements by number, `workloads.0.bytes`) stands, or the nearest table above it
/// that the text has.
#[must_use]
pub fn line_of_key(text: &str, key: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut found = None;
    let mut parts = key.split('.');
    while let Some(part) = parts.next() {
        let Some((name, value)) = table.get_key_value(part) else { break };
        found = Some(name.span().start);
        let mut value = value;
        while let DeValue::Array(items) = value.get_ref() {
            let Some(item) = parts.next().and_then(|n| n.parse::<usize>().ok()).and_then(|n| items.get(n)) else {
                return found.map(|at| line_at(text, at));
            };
            found = Some(item.span().start);
            value = item;
        }
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    found.map(|at| line_at(text, at))
}

fn line_at(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

/// Reads `table` as a `T`; the problem names the key.
pub fn read<'de, T: serde::Deserialize<'de>>(table: toml::Table) -> Result<T, KeyProblem> {
    serde_path_to_error::deserialize(toml::Value::Table(table)).map_err(|error| {
        let path = error.path().to_string().replace('[', ".").replace(']', "");
        let key = if path == "." { String::new() } else { path.trim_start_matches('.').to_owned() };
        let message = error.inner().to_string();
        // Only the first line: the rest repeats the path.
        KeyProblem::new(key, message.lines().next().unwrap_or_default())
    })
}

/// The keys that a struct reads: the names of its fields as serde has them. Empty for other types.
#[must_use]
pub fn keys_of<'de, T: serde::Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // Always an error: nothing is read.
    let _ = T::deserialize(FieldNames(&mut fields));
    fields
}

/// A deserializer that takes note of a struct's fields and reads nothing.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> serde::Deserializer<'de> for FieldNames<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("nothing to read"))
    }

    fn deserialize_struct<V: serde::de::Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(serde::de::Error::custom("nothing to read"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_line_of_a_key() {
        let text =
            "title = \"x\"\n\n[links.sat]\nrate = \"1\"\n[[workloads]]\nname = \"a\"\n[[workloads]]\nbytes = 3\n";
        assert_eq!(line_of_key(text, "links.sat.rate"), Some(4));
        assert_eq!(line_of_key(text, "links.sat.delay"), Some(3));
        assert_eq!(line_of_key(text, "workloads.1.bytes"), Some(8));
        assert_eq!(line_of_key(text, "workloads.0.bytes"), Some(5));
        assert_eq!(line_of_key(text, "nothing"), None);
    }

    #[test]
    fn the_keys_of_a_struct() {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code)]
        struct Keys {
            bytes: u64,
            #[serde(rename = "return")]
            back: Option<String>,
        }
        assert_eq!(keys_of::<Keys>(), ["bytes", "return"]);
        assert_eq!(keys_of::<u32>(), [""; 0]);
    }
}
