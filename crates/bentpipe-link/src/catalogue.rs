//! The catalogue: links by name, each value with its source. The files of `links/` are part of the program.

use crate::config::{LinkConfig, merge};
use crate::registry::Registry;
use bentpipe_net::problem::{KeyProblem, Problem, did_you_mean, syntax_problem};
use include_dir::{Dir, include_dir};
use toml::{Table, Value};

static LINKS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/links");

/// A link file before overrides: its text as written, and parsed.
#[derive(Clone, Debug)]
pub struct LinkFile {
    /// Catalogue name, or the path it was read from.
    pub name: String,
    /// Where messages about it point: `links/NAME.toml` or the path.
    pub source_name: String,
    /// As it was written.
    pub text: String,
    /// The keys as they were written.
    table: Table,
    /// The same with names of files resolved.
    resolved: Table,
    registry: Registry,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The key (`forward.rate`).
    pub key: String,
    /// Its value as written.
    pub value: String,
    /// The citation; empty if the file gives none.
    pub source: String,
    /// It is an assumption of ours, not a published value.
    pub assumed: bool,
}

/// Names of the catalogue, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    let mut names: Vec<_> = LINKS.files().filter_map(|file| file.path().to_str()?.strip_suffix(".toml")).collect();
    names.sort_unstable();
    names.into_iter()
}

/// The message that no link has this name: similar names, and all.
#[must_use]
pub fn unknown(name: &str) -> String {
    let names: Vec<&str> = names().collect();
    format!("there is no link {name:?}{}; allowed: {}", did_you_mean(name, names.iter().copied()), names.join(", "))
}

/// The catalogue's link of that name.
pub fn named(name: &str) -> Option<Result<LinkFile, Problem>> {
    named_with(name, &Registry::standard())
}

/// The same; what is put on top of it may name the kinds of `registry`.
pub fn named_with(name: &str, registry: &Registry) -> Option<Result<LinkFile, Problem>> {
    let text = LINKS.get_file(format!("{name}.toml"))?.contents_utf8()?;
    Some(LinkFile::parse_with(name, &format!("links/{name}.toml"), text, registry))
}

impl LinkFile {
    /// Reads the text of a link file; `source_name` is how messages call it.
    pub fn parse(name: &str, source_name: &str, text: &str) -> Result<LinkFile, Problem> {
        LinkFile::parse_with(name, source_name, text, &Registry::standard())
    }

    /// The same with the kinds of queues and impairments of `registry`.
    pub fn parse_with(name: &str, source_name: &str, text: &str, registry: &Registry) -> Result<LinkFile, Problem> {
        LinkFile::parse_resolved(name, source_name, text, registry, |_| Ok(()))
    }

    /// The same; `resolve` replaces names of files among the keys by what is read from them.
    pub fn parse_resolved(
        name: &str,
        source_name: &str,
        text: &str,
        registry: &Registry,
        resolve: impl FnOnce(&mut Table) -> Result<(), KeyProblem>,
    ) -> Result<LinkFile, Problem> {
        let table: Table = toml::from_str(text).map_err(|error| syntax_problem(source_name, text, &error))?;
        let mut resolved = table.clone();
        resolve(&mut resolved).map_err(|problem| problem.within(source_name, text))?;
        let file = LinkFile {
            name: name.to_owned(),
            source_name: source_name.to_owned(),
            text: text.to_owned(),
            table,
            resolved,
            registry: registry.clone(),
        };
        file.config()?;
        Ok(file)
    }

    /// The configuration of the file alone.
    pub fn config(&self) -> Result<LinkConfig, Problem> {
        LinkConfig::with_kinds(self.resolved.clone(), &self.registry)
            .map_err(|p| p.within(&self.source_name, &self.text))
    }

    /// The configuration with `over` merged on top: keys as in a link file.
    pub fn with(&self, over: Table) -> Result<LinkConfig, KeyProblem> {
        let mut table = self.resolved.clone();
        merge(&mut table, over);
        LinkConfig::with_kinds(table, &self.registry)
    }

    /// Every value of the file with its source.
    #[must_use]
    pub fn provenance(&self) -> Vec<Provenance> {
        let mut leaves = Vec::new();
        for (key, value) in &self.table {
            if !["title", "summary", "sources", "assumptions"].contains(&key.as_str()) {
                collect_leaves(key, value, &mut leaves);
            }
        }
        leaves
            .into_iter()
            .map(|(key, value)| {
                let source = self.cited("sources", &key);
                let assumption = self.cited("assumptions", &key);
                let assumed = source.is_none() && assumption.is_some();
                Provenance { key, value, source: source.or(assumption).unwrap_or_default(), assumed }
            })
            .collect()
    }

    /// The entry of `[sources]` or `[assumptions]` for `key`: its own, or that of the nearest key above it.
    fn cited(&self, table: &str, key: &str) -> Option<String> {
        let entries = self.table.get(table)?.as_table()?;
        let mut part = key;
        loop {
            if let Some(text) = entries.get(part).and_then(Value::as_str) {
                return Some(text.to_owned());
            }
            part = part.rsplit_once('.')?.0;
        }
    }
}

fn collect_leaves(key: &str, value: &Value, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(inner, value)| collect_leaves(&format!("{key}.{inner}"), value, leaves));
        }
        Value::String(text) => leaves.push((key.to_owned(), text.clone())),
        other => leaves.push((key.to_owned(), other.to_string())),
    }
}

/// Reads one `key=value` of the command line (`one_way_delay=250 ms`): a TOML value, or a plain string.
pub fn parse_override(text: &str) -> Result<Table, Problem> {
    let fail = |message: &str| Problem {
        source_name: format!("--set '{text}'"),
        line: None,
        key: String::new(),
        message: message.to_owned(),
    };
    let (key, value) = text.split_once('=').ok_or_else(|| fail("is not KEY=VALUE, such as 'one_way_delay=250 ms'"))?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err(fail("has an empty key; allowed: names joined by dots, such as forward.rate"));
    }
    let value = toml::from_str::<Table>(&format!("v = {value}"))
        .ok()
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| Value::String(value.to_owned()));
    let nested = key.rsplit('.').fold(value, |inner, part| Value::Table(Table::from_iter([(part.to_owned(), inner)])));
    match nested {
        Value::Table(table) => Ok(table),
        _ => Err(fail("has no key")),
    }
}
