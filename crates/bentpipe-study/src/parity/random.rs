//! Random parity scenarios: links, settings, directions and workloads that nobody chose by hand.
//!
//! A scenario depends on the campaign's seed and its own number alone, so that each can be run again. Every value is
//! within what a live run can do: the settings are those that Linux can keep, the link is slow enough for the emulator, and the
//! transfer takes about 2 to 12 s at the rate that its link or its windows allow.

use super::index::{Entry, Kind};
use bentpipe_lab::scenario::Scenario;
use bentpipe_net::problem::Problem;
use bentpipe_net::seed::{Seed, Stream, unit};
use toml::{Table, Value};

/// Lowest and highest rate of a direction, in bit/s.
const RATES: (f64, f64) = (64e3, 10e6);
/// Lowest rate of a return link, in bit/s.
const RETURN_MIN: f64 = 32e3;
/// Shortest and longest one-way delay, in seconds.
const DELAYS: (f64, f64) = (0.02, 0.3);
/// Smallest and largest windows, in bytes.
const WINDOWS: (f64, f64) = (4096.0, 262_144.0);
/// Bit error ratios, and shares of packets lost.
const RATIOS: (f64, f64) = (1e-7, 1e-5);
const LOSSES: (f64, f64) = (0.001, 0.02);
/// Shortest and longest transfer at full rate, in seconds, and the fewest bytes.
const SECONDS: (f64, f64) = (2.0, 12.0);
const BYTES_MIN: f64 = 10e3;
/// Copies of the network in one live run, if they carry no more than this together, in bit/s.
const COPIES: usize = 3;
const COPIES_RATE_MAX: f64 = 12e6;

/// `count` scenarios of a campaign.
pub fn entries(count: u32, seed: u64) -> Result<Vec<Entry>, Problem> {
    (1..=count).map(|number| entry(number, seed)).collect()
}

fn entry(number: u32, seed: u64) -> Result<Entry, Problem> {
    let drawn = Drawn::new(Draw(Seed(seed).stream(&format!("parity/random/{number}"))));
    let name = format!("random-{seed}-{number}");
    let entry = Entry {
        file: format!("{name}.toml"),
        name,
        title: drawn.title(),
        text: drawn.text(),
        workloads: drawn.workloads(),
        measurement: "completion_time".to_owned(),
        kind: if drawn.leaves_to_chance() { Kind::Random } else { Kind::Exact },
        copies: if drawn.forward * COPIES as f64 <= COPIES_RATE_MAX { COPIES } else { 1 },
        rounds: 1,
        informative: false,
        note: None,
    };
    // A scenario that does not read is a mistake here, found by the test below.
    Scenario::parse(&entry.file, &entry.text, &[])?;
    Ok(entry)
}

/// Draws from one stream.
struct Draw(Stream);

impl Draw {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(unit(&mut self.0) * all.len() as f64) as usize]
    }

    fn between(&mut self, (least, most): (f64, f64)) -> f64 {
        least + unit(&mut self.0) * (most - least)
    }

    /// Uniform in the logarithm, to two digits.
    fn magnitude(&mut self, (least, most): (f64, f64)) -> f64 {
        let value = self.between((least.ln(), most.ln())).exp();
        let digit = 10f64.powf(value.log10().floor() - 1.0);
        ((value / digit).round() * digit).clamp(least, most)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Errors {
    None,
    /// Bit error ratio.
    Bits(f64),
    /// Share of packets.
    Packets(f64),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Load {
    /// One file.
    File,
    /// Several at once.
    Files(usize),
    /// A page with so many objects.
    Page(usize),
}

/// A scenario.
#[derive(Debug)]
struct Drawn {
    /// Rates of both directions, in bit/s.
    forward: f64,
    back: f64,
    /// In seconds.
    delay: f64,
    mtu: u32,
    framing: &'static str,
    errors: Errors,
    /// Packets that the queue holds; none: the link's default.
    queue: Option<u32>,
    congestion_control: &'static str,
    /// In bytes; none: as Linux has it.
    window: Option<u64>,
    initial_window: u32,
    sack: bool,
    timestamps: bool,
    after_idle: bool,
    download: bool,
    load: Load,
    bytes: u64,
}

impl Drawn {
    fn new(mut draw: Draw) -> Drawn {
        let forward = draw.magnitude(RATES);
        let back = (forward / draw.one_of(&[1.0, 1.0, 4.0, 16.0])).max(RETURN_MIN).min(forward);
        let delay = draw.magnitude(DELAYS);
        let errors = match draw.one_of(&[0, 0, 1, 2]) {
            1 => Errors::Bits(draw.magnitude(RATIOS)),
            2 => Errors::Packets(draw.magnitude(LOSSES)),
            _ => Errors::None,
        };
        let window = draw.one_of(&[true, true, false]).then(|| draw.magnitude(WINDOWS) as u64);
        let download = draw.one_of(&[true, true, false]);
        let load = match draw.one_of(&[0, 0, 1, 2]) {
            1 => Load::Files(draw.one_of(&[2, 3, 4])),
            2 => Load::Page(draw.one_of(&[3, 6, 12])),
            _ => Load::File,
        };
        let rate = if download || matches!(load, Load::Page(_)) { forward } else { back };
        let by_window = window.map_or(f64::INFINITY, |window| window as f64 * 8.0 / (2.0 * delay));
        let bytes = (rate.min(by_window) * draw.between(SECONDS) / 8.0).max(BYTES_MIN) as u64;
        Drawn {
            forward,
            back,
            delay,
            mtu: draw.one_of(&[1500, 1500, 1500, 1006, 576, 296]),
            framing: draw.one_of(&["none", "ppp", "ethernet"]),
            errors,
            queue: draw.one_of(&[true, false]).then(|| draw.magnitude((10.0, 100.0)) as u32),
            congestion_control: draw.one_of(&["reno", "cubic"]),
            window,
            initial_window: draw.one_of(&[1, 2, 4, 10, 10]),
            sack: draw.one_of(&[true, true, false]),
            timestamps: draw.one_of(&[true, true, false]),
            after_idle: draw.one_of(&[true, false]),
            download,
            load,
            bytes,
        }
    }

    /// Several flows share a queue in an order that depends on microseconds.
    fn leaves_to_chance(&self) -> bool {
        self.errors != Errors::None || self.load != Load::File
    }

    fn title(&self) -> String {
        let errors = match self.errors {
            Errors::None => String::new(),
            Errors::Bits(ratio) => format!(", BER {ratio:.1e}"),
            Errors::Packets(share) => format!(", {:.2} % lost", share * 100.0),
        };
        let load = match self.load {
            Load::File => "a file".to_owned(),
            Load::Files(count) => format!("{count} files"),
            Load::Page(objects) => format!("a page of {objects} objects"),
        };
        let direction = if self.download || matches!(self.load, Load::Page(_)) { "down" } else { "up" };
        let kbit = |rate: f64| (rate / 1e3).round();
        format!(
            "{load} {direction}, {}/{} kbit/s, {} ms, {} B{errors}, {}{}",
            kbit(self.forward),
            kbit(self.back),
            (self.delay * 1e3).round(),
            self.mtu,
            self.congestion_control,
            if self.sack { "" } else { " without SACK" }
        )
    }

    fn workloads(&self) -> Vec<String> {
        match self.load {
            Load::Files(count) => (1..=count).map(|number| format!("file-{number}")).collect(),
            Load::File => vec!["file".to_owned()],
            Load::Page(_) => vec!["page".to_owned()],
        }
    }

    /// The scenario's text; it stands in the files of samples, so that each can be run by itself.
    fn text(&self) -> String {
        let mut link = toml::toml! { between = ["hub", "pc"] };
        put(&mut link, "one_way_delay", format!("{} us", (self.delay * 1e6).round()));
        put(&mut link, "mtu", format!("{} B", self.mtu));
        put(&mut link, "framing", self.framing);
        if let Some(packets) = self.queue {
            put(&mut link, "queue", table("packets", packets));
        }
        match self.errors {
            Errors::None => {}
            Errors::Bits(ratio) => put(&mut link, "noise", ratio),
            Errors::Packets(share) => put(&mut link, "loss", format!("{} %", share * 100.0)),
        }
        for (side, rate) in [("forward", self.forward), ("return", self.back)] {
            put(&mut link, side, table("rate", format!("{} bit/s", rate.round())));
        }
        let mut tcp = Table::new();
        put(&mut tcp, "congestion_control", self.congestion_control);
        put(&mut tcp, "initial_window", self.initial_window);
        put(&mut tcp, "sack", self.sack);
        put(&mut tcp, "timestamps", self.timestamps);
        put(&mut tcp, "slow_start_after_idle", self.after_idle);
        if let Some(window) = self.window {
            put(&mut tcp, "receive_window", format!("{window} B"));
            put(&mut tcp, "send_buffer", format!("{window} B"));
            put(&mut tcp, "window_scaling", true);
        }
        let hosts: Table =
            ["hub", "pc"].map(|host| (host.to_owned(), table("tcp", tcp.clone()).into())).into_iter().collect();
        let mut scenario = Table::new();
        put(&mut scenario, "title", self.title());
        put(&mut scenario, "links", table("sat", link));
        put(&mut scenario, "hosts", hosts);
        put(&mut scenario, "workloads", self.workload_tables());
        scenario.to_string()
    }

    fn workload_tables(&self) -> Vec<Table> {
        let names = self.workloads();
        let parts = match self.load {
            Load::File | Load::Files(_) => names.len() as u64,
            Load::Page(objects) => objects as u64 + 1,
        };
        let each = format!("{} B", self.bytes / parts);
        let workload = |name: &String| {
            let mut workload = toml::toml! { client = "pc" server = "hub" };
            put(&mut workload, "name", name.as_str());
            put(&mut workload, "bytes", each.as_str());
            match self.load {
                Load::File | Load::Files(_) => {
                    put(&mut workload, "app", "bulk");
                    put(&mut workload, "direction", if self.download { "download" } else { "upload" });
                }
                Load::Page(objects) => {
                    put(&mut workload, "app", "page");
                    put(&mut workload, "objects", vec![each.clone(); objects]);
                }
            }
            workload
        };
        names.iter().map(workload).collect()
    }
}

fn put(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

/// A table of one key.
fn table(key: &str, value: impl Into<Value>) -> Table {
    Table::from_iter([(key.to_owned(), value.into())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::replicate::replicate;

    #[test]
    fn every_drawn_scenario_reads_and_can_run_live() {
        let all = entries(300, 1).unwrap_or_else(|problem| panic!("{problem}"));
        for entry in &all {
            let scenario = replicate(&entry.file, &entry.text, entry.copies, 7).unwrap_or_else(|e| panic!("{e}"));
            bentpipe_lab::live::check(&scenario).unwrap_or_else(|problem| panic!("{}: {problem}", entry.text));
            let names: Vec<&str> = entry.workloads.iter().map(String::as_str).collect();
            assert!(!names.is_empty() && entry.title.len() < 100, "{}", entry.title);
        }
        // Of everything some.
        let with = |part: &str| all.iter().filter(|entry| entry.text.contains(part)).count();
        for part in ["noise = ", "loss = ", "app = \"page\"", "file-4", "upload", "296 B", "sack = false", "packets = "]
        {
            assert!((5..=250).contains(&with(part)), "{part}: {}", with(part));
        }
        let exact = all.iter().filter(|entry| entry.kind == Kind::Exact).count();
        assert!((60..90).contains(&exact), "{exact}");
    }

    #[test]
    fn a_scenario_depends_on_the_seed_and_its_number_alone() {
        let (few, many) = (entries(3, 5).unwrap(), entries(30, 5).unwrap());
        assert!(few.iter().zip(&many).all(|(a, b)| (&a.name, &a.text) == (&b.name, &b.text)));
        assert_ne!(entries(1, 6).unwrap()[0].text, few[0].text);
    }
}
