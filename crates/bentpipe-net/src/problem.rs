//! Mistakes in a file or an option: where, what, and what is allowed.

use std::fmt;
use strsim::osa_distance;
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
    let parts: Vec<&str> = key.split('.').collect();
    let mut at = 0;
    while at < parts.len() {
        // A key of the text may have dots itself: `"links.sat.rate" = …`.
        let entry = (at + 1..=parts.len())
            .find_map(|end| table.get_key_value(parts[at..end].join(".").as_str()).map(|entry| (end, entry)));
        let Some((end, (name, value))) = entry else { break };
        at = end;
        found = Some(name.span().start);
        let mut value = value;
        while let DeValue::Array(items) = value.get_ref() {
            let item = parts.get(at).and_then(|n| n.parse::<usize>().ok()).and_then(|n| items.get(n));
            let Some(item) = item else { return found.map(|at| line_at(text, at)) };
            at += 1;
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
        let message = in_plain_words(message.lines().next().unwrap_or_default(), &key);
        KeyProblem::new(key, message)
    })
}

/// A message of serde about `key` in words that know nothing of Rust's types.
fn in_plain_words(message: &str, key: &str) -> String {
    if let Some((word, names)) = unknown(message, "unknown field `") {
        // Of a table whose form one of its keys decides, serde names only the table.
        let named = key.rsplit('.').next() == Some(word);
        let which = if named { String::new() } else { format!(" {word}") };
        let meant = did_you_mean(word, names.iter().copied());
        return format!("unknown key{which}{meant}; allowed: {}", names.join(", "));
    }
    if let Some((word, names)) = unknown(message, "unknown variant `") {
        let meant = did_you_mean(word, names.iter().copied());
        return format!("{word:?} is unknown{meant}; allowed: {}", names.join(", "));
    }
    if let Some(key) = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        return format!("{key} is missing");
    }
    let found = ["invalid type: ", "invalid value: "].into_iter().find_map(|lead| message.strip_prefix(lead));
    if let Some((found, allowed)) = found.and_then(|rest| rest.split_once(", expected ")) {
        return format!("is {}; allowed: {}", found_in_words(found), type_in_words(allowed));
    }
    if let Some((length, allowed)) =
        message.strip_prefix("invalid length ").and_then(|rest| rest.split_once(", expected "))
    {
        return format!("has {length} entries; allowed: {}", type_in_words(allowed));
    }
    message.to_owned()
}

/// The unknown word of a message that begins like this, and the words that are allowed.
fn unknown<'a>(message: &'a str, lead: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let (word, rest) = message.strip_prefix(lead)?.split_once('`')?;
    Some((word, rest.split('`').skip(1).step_by(2).collect()))
}

fn found_in_words(found: &str) -> String {
    let bare = |text: &str| text.trim_matches('`').to_owned();
    match found.split_once(' ') {
        _ if found == "map" => "a table".to_owned(),
        _ if found == "sequence" => "a list".to_owned(),
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "boolean", value)) => bare(value),
        Some(("floating", rest)) => bare(rest.trim_start_matches("point ")),
        _ => found.to_owned(),
    }
}

fn type_in_words(expected: &str) -> String {
    let (first, rest) = expected.split_once(' ').unwrap_or((expected, ""));
    match first {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "struct" => "a table".to_owned(),
        "internally" | "adjacently" | "enum" => "text or a table".to_owned(),
        "tuple" => "a list".to_owned(),
        "a" => match rest {
            "boolean" => "true or false".to_owned(),
            "string" | "borrowed string" => "text".to_owned(),
            "map" => "a table".to_owned(),
            "sequence" => "a list".to_owned(),
            _ => match rest.strip_prefix("tuple of size ") {
                Some(size) => format!("a list of {size}"),
                None => expected.to_owned(),
            },
        },
        _ => expected.to_owned(),
    }
}

/// ` (did you mean leo?)` where some of `names` are close to `word`: the same but for their case, longer, or misspelt.
#[must_use]
pub fn did_you_mean<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> String {
    let word = word.to_lowercase();
    let distance = |name: &str| match name.to_lowercase() {
        name if name == word => Some(0),
        name if word.len() >= 3 && name.starts_with(&word) => Some(1),
        name if word.len() >= 3 && name.contains(&word) => Some(2),
        name if word.len() >= 3 && osa_distance(&name, &word) <= (word.len() / 4).clamp(1, 2) => Some(3),
        _ => None,
    };
    let mut close: Vec<(u32, &str)> = names.filter_map(|name| Some((distance(name)?, name))).collect();
    close.sort_by_key(|(distance, _)| *distance);
    let best = close.first().map(|(distance, _)| *distance);
    let names: Vec<&str> =
        close.iter().filter(|(distance, _)| Some(*distance) == best).map(|(_, name)| *name).take(MEANT_MAX).collect();
    if names.is_empty() { String::new() } else { format!(" (did you mean {}?)", names.join(" or ")) }
}

/// Names that a message suggests.
const MEANT_MAX: usize = 4;

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
        let dotted = "[[cases]]\nname = \"a\"\n[cases.set]\n\"links.sat.mtu\" = 1\n\"links.sat.rate\" = 1\n";
        assert_eq!(line_of_key(dotted, "cases.0.set.links.sat.rate"), Some(5));
    }

    #[test]
    fn messages_name_no_type_of_rust() {
        #[derive(serde::Deserialize, Debug)]
        #[serde(rename_all = "lowercase")]
        enum Colour {
            Red,
            Green,
        }
        #[derive(serde::Deserialize, Debug)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code)]
        struct Inner {
            after: f64,
        }
        #[derive(serde::Deserialize, Debug)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code)]
        struct Keys {
            one_way_delay: Option<u32>,
            colour: Option<Colour>,
            gives_up: Option<Inner>,
            at: Option<(f64, f64)>,
            names: Option<Vec<String>>,
        }
        for (text, expected) in [
            (
                "delay = 1",
                "delay: unknown key (did you mean one_way_delay?); allowed: one_way_delay, colour, gives_up, at, names",
            ),
            (
                "color = 'red'",
                "color: unknown key (did you mean colour?); allowed: one_way_delay, colour, gives_up, at, names",
            ),
            ("x = 1", "x: unknown key; allowed: one_way_delay, colour, gives_up, at, names"),
            ("colour = 'Red'", "colour: \"Red\" is unknown (did you mean red?); allowed: red, green"),
            ("gives_up = 3", "gives_up: is 3; allowed: a table"),
            ("gives_up = {}", "gives_up: after is missing"),
            ("one_way_delay = -1", "one_way_delay: is -1; allowed: a whole number, 0 or more"),
            ("one_way_delay = 'x'", "one_way_delay: is the text \"x\"; allowed: a whole number, 0 or more"),
            ("one_way_delay = 1.5", "one_way_delay: is 1.5; allowed: a whole number, 0 or more"),
            ("at = [1.0]", "at: has 1 entries; allowed: a list of 2"),
            ("names = { a = 1 }", "names: is a table; allowed: a list"),
            ("names = [true]", "names.0: is true; allowed: text"),
        ] {
            let problem = read::<Keys>(toml::from_str(text).unwrap()).unwrap_err();
            assert_eq!(format!("{}: {}", problem.key, problem.message), expected, "{text}");
        }
    }

    #[test]
    fn a_name_that_is_nearly_right_is_suggested() {
        let links = ["acts-t1", "geo-50-5", "geo-two-way", "leo", "inmarsat-b"];
        for (word, expected) in [
            ("geo", " (did you mean geo-50-5 or geo-two-way?)"),
            ("Leo", " (did you mean leo?)"),
            ("inmarsatb", " (did you mean inmarsat-b?)"),
            ("acts-1t", " (did you mean acts-t1?)"),
            ("mars", " (did you mean inmarsat-b?)"),
            ("moon", ""),
            ("", ""),
        ] {
            assert_eq!(did_you_mean(word, links.into_iter()), expected, "{word}");
        }
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
