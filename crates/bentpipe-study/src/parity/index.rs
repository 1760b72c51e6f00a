//! The list of parity scenarios: what is run and what is compared.
//!
//! ```toml
//! [[scenario]]
//! file = "t1-window-8k.toml"   # in this file's folder
//! workload = "transfer"        # or a list, of which the mean is compared
//! measurement = "goodput"
//! kind = "exact"               # within 3 %; or "random": the ratio's 95 % interval within ±5 %
//! copies = 3                   # of the network, side by side in one live run
//! rounds = 1                   # live runs to begin with
//! note = "why it is here"
//! ```

use bentpipe_lab::files::{TEXT_BYTES_MAX, read_text};
use bentpipe_lab::scenario::Scenario;
use bentpipe_net::problem::{KeyProblem, Problem, read, syntax_problem};
use serde::{Deserialize, Serialize};
use std::path::Path;
use toml::Table;

/// The comparison of one scenario.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The file's name without its ending.
    pub name: String,
    /// The scenario's file.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Its title.
    pub title: String,
    /// The workloads of which the measurement is taken; with several, their mean.
    pub workloads: Vec<String>,
    /// The measurement's name in the record.
    pub measurement: String,
    /// The kind of comparison.
    pub kind: Kind,
    /// Copies of the network in one live run.
    pub copies: usize,
    /// Live runs to begin with.
    pub rounds: u32,
    /// Shown, but not counted.
    pub informative: bool,
    /// A remark for the table.
    pub note: Option<String>,
}

/// The kind of comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nothing is left to chance: the means agree within 3 %.
    Exact,
    /// Errors fall at random: the 95 % confidence interval of the ratio lies within ±5 %.
    Random,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexText {
    scenario: Vec<EntryText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    file: String,
    workload: OneOrMore,
    measurement: String,
    kind: Kind,
    copies: usize,
    rounds: Option<u32>,
    #[serde(default)]
    informative: bool,
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Most copies that one live run can carry.
const COPIES_MAX: usize = 32;
/// The measurements by which a workload may be compared; the record's names.
const MEASUREMENTS: [&str; 7] =
    ["goodput", "completion_time", "first_byte", "rtt_median", "rtt_mean", "rtt_min", "rtt_max"];

/// Reads the list and the scenarios it names, which are in its folder.
pub fn read_index(source_name: &str) -> Result<Vec<Entry>, Problem> {
    let text = read_text(Path::new(source_name), TEXT_BYTES_MAX)
        .map_err(|error| KeyProblem::new("", format!("cannot read it: {error}")).within(source_name, ""))?;
    let table: Table = toml::from_str(&text).map_err(|error| syntax_problem(source_name, &text, &error))?;
    let place = |problem: KeyProblem| problem.within(source_name, &text);
    let whole: IndexText = read(table).map_err(place)?;
    let folder = Path::new(source_name).parent().unwrap_or(Path::new(""));
    let mut entries: Vec<Entry> = Vec::new();
    for (i, entry) in whole.scenario.into_iter().enumerate() {
        let entry = Entry::from_text(entry, folder).map_err(|p| place(p.under(&format!("scenario.{i}"))))?.checked(
            i,
            source_name,
            &text,
        )?;
        if entries.iter().any(|other| other.name == entry.name) {
            let what = format!("{:?} is listed twice", entry.file);
            return Err(place(KeyProblem::new(format!("scenario.{i}.file"), what)));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl Entry {
    fn from_text(text: EntryText, folder: &Path) -> Result<Entry, KeyProblem> {
        let file = folder.join(&text.file);
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let scenario = read_text(&file, TEXT_BYTES_MAX)
            .map_err(|error| KeyProblem::new("file", format!("cannot read {}: {error}", file.display())))?;
        if !(1..=COPIES_MAX).contains(&text.copies) {
            return Err(KeyProblem::new("copies", format!("is out of range; allowed: 1 to {COPIES_MAX}")));
        }
        if !MEASUREMENTS.contains(&text.measurement.as_str()) {
            let allowed = MEASUREMENTS.join(", ");
            let what = format!("there is no {:?} to compare; allowed: {allowed}", text.measurement);
            return Err(KeyProblem::new("measurement", what));
        }
        let workloads = match text.workload {
            OneOrMore::One(name) => vec![name],
            OneOrMore::More(names) => names,
        };
        Ok(Entry {
            name,
            file: file.display().to_string(),
            text: scenario,
            title: String::new(),
            workloads,
            measurement: text.measurement,
            kind: text.kind,
            copies: text.copies,
            rounds: text.rounds.unwrap_or(1).max(1),
            informative: text.informative,
            note: text.note,
        })
    }

    /// With the scenario read and its workloads found.
    fn checked(mut self, i: usize, source_name: &str, index: &str) -> Result<Entry, Problem> {
        let scenario = Scenario::parse(&self.file, &self.text, &[])?;
        let workloads: Vec<&str> = scenario.cases[0].workloads.iter().map(|w| w.id.name.as_str()).collect();
        if let Some(unknown) = self.workloads.iter().find(|name| !workloads.contains(&name.as_str())) {
            let what = format!("{} has no workload {unknown:?}; allowed: {}", self.file, workloads.join(", "));
            return Err(KeyProblem::new(format!("scenario.{i}.workload"), what).within(source_name, index));
        }
        if self.workloads.is_empty() {
            let what = format!("is empty; allowed: {}", workloads.join(", "));
            return Err(KeyProblem::new(format!("scenario.{i}.workload"), what).within(source_name, index));
        }
        self.title = scenario.title;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::replicate::replicate;

    #[test]
    fn the_shipped_list_reads_and_its_scenarios_can_be_copied() {
        let index = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/parity/parity.toml");
        let entries = read_index(index).unwrap_or_else(|problem| panic!("{problem}"));
        assert!(entries.iter().filter(|entry| !entry.informative).count() >= 24);
        for entry in &entries {
            let scenario = replicate(&entry.file, &entry.text, entry.copies, 7);
            let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.cases[0].links.len(), entry.copies, "{}", entry.name);
        }
        let folder = Path::new(index).parent().unwrap();
        let files = std::fs::read_dir(folder).unwrap().count();
        // The folder also holds the list and the folder of live samples.
        assert_eq!(files, entries.len() + 2, "every scenario in the folder is in the list");
    }

    #[test]
    fn mistakes_are_named() {
        let folder = std::env::temp_dir().join(format!("bentpipe-parity-index-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let scenario = "title = 'x'\n[links.sat]\nkind = 'acts-t1'\nbetween = ['hub', 'pc']\n\
                        [[workloads]]\nname = 'w'\napp = 'bulk'\nclient = 'pc'\nserver = 'hub'\nbytes = '1 kB'\n";
        std::fs::write(folder.join("s.toml"), scenario).unwrap();
        let good =
            "[[scenario]]\nfile = 's.toml'\nworkload = 'w'\nmeasurement = 'goodput'\nkind = 'exact'\ncopies = 2\n";
        let file = folder.join("list.toml");
        let name = file.display().to_string();
        std::fs::write(&file, good).unwrap();
        assert_eq!(read_index(&name).unwrap()[0].title, "x");
        for (from, to, parts) in [
            ("'s.toml'", "'t.toml'", &["list.toml:2", "t.toml"][..]),
            ("'w'", "'v'", &["list.toml:3", "\"v\"", "allowed: w"]),
            ("'w'", "[]", &["list.toml:3", "is empty"]),
            ("'goodput'", "'speed'", &["list.toml:4", "speed", "goodput, completion_time"]),
            ("'exact'", "'vague'", &["list.toml", "vague", "exact"]),
            ("copies = 2", "copies = 0", &["list.toml:6", "1 to 32"]),
            ("copies = 2", "copys = 2", &["list.toml", "copys", "copies"]),
        ] {
            std::fs::write(&file, good.replacen(from, to, 1)).unwrap();
            let problem = read_index(&name).unwrap_err().to_string();
            assert!(parts.iter().all(|part| problem.contains(part)), "{to}: {problem}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
