//! The performance of a gateway pair in virtual time, next to end-to-end TCP in the same run: `make bench`.
//!
//! Medians over the seeds, unless a line says otherwise. A figure that something is asked of has a verdict after it;
//! the bench fails when one is missed. `cargo bench -p bentpipe-lab --bench gateway -- SEEDS` takes another number of
//! seeds than ten.

use bentpipe_apps::bulk::BulkSpec;
use bentpipe_apps::client_server::ClientServerWorkload;
use bentpipe_lab::record::{CaseRecord, Record, WorkloadRecord};
use bentpipe_lab::scenario::{Case, Scenario};
use bentpipe_lab::simulated::{self, SimulatedOptions};
use bentpipe_link::config::LinkConfig;
use bentpipe_net::time::Duration;
use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Who carries the data, as keys of a scenario.
struct Carrier {
    name: &'static str,
    keys: &'static str,
}

/// Hosts that nobody tuned: a window of 64 KB, no scaling.
const UNTUNED: &str = "[hosts.hub.tcp]\nreceive_window = '65535 B'\nwindow_scaling = false\n\
    [hosts.ship.tcp]\nreceive_window = '65535 B'\nwindow_scaling = false\n";
const CUBIC: &str =
    "[hosts.hub.tcp]\npreset = 'linux-large-buffers'\n[hosts.ship.tcp]\npreset = 'linux-large-buffers'\n";
const BBR: &str = "[hosts.hub.tcp]\npreset = 'linux-large-buffers'\ncongestion_control = 'bbr'\n\
    [hosts.ship.tcp]\npreset = 'linux-large-buffers'\n";

const PAIR: Carrier = Carrier { name: "pair, 64 KB hosts", keys: "[gateways.sat]\n" };
const EARLY: Carrier = Carrier { name: "pair, open = early", keys: "[gateways.sat]\nopen = 'early'\n" };
const CARRIERS: [Carrier; 4] = [
    PAIR,
    EARLY,
    Carrier { name: "CUBIC, large buffers", keys: CUBIC },
    Carrier { name: "BBR, large buffers", keys: BBR },
];

impl Carrier {
    fn is_pair(&self) -> bool {
        self.keys.contains("gateways")
    }
}

/// The link: 10 Mbit/s, 300 ms each way, a queue of 750 kB.
const GEO: &str = "kind = 'geo-two-way'\nbetween = ['hub', 'ship']\nrate = '10 Mbit/s'\none_way_delay = '300 ms'\n\
    queue = { bytes = '750 kB' }\nframing = 'none'\n";
/// When transfers start: the pair is connected by then.
const START_S: f64 = 5.0;
/// Shares of packets that are lost, in percent, and the goodput that is asked of the pair, Mbit/s.
const LOSSES: [(f64, f64); 3] = [(0.0, 8.9), (0.1, 8.9), (1.0, 8.6)];
/// Bytes on the link for a byte of payload at most, but for what the loss costs: each byte is sent 1 ÷ (1 − loss) times.
const LINK_BYTES_MAX: f64 = 1.05;
/// First byte at most: a connection request that is answered when the server has, and one that is answered at once.
const FIRST_BYTE_MAX_S: f64 = 1.25;
const FIRST_BYTE_EARLY_MAX_S: f64 = 0.65;
/// Bit error ratios on the ACTS T1, and the least share of the best achievable.
const RATIOS: [f64; 4] = [0.0, 1e-7, 1e-6, 1e-5];
const SHARE_MIN: f64 = 0.97;
/// 100 MB over 250/3 Mbit/s at most.
const FAST_MAX_S: f64 = 5.5;
/// From the end of an outage to the next data at the client at most, whatever the seed.
const RESUMED_MAX_S: f64 = 1.5;
/// Arrivals are sampled this often where the time of one matters.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// The aims for the pair, and its results.
#[derive(Default)]
struct Aims {
    met: u32,
    missed: Vec<String>,
}

impl Aims {
    fn at_least(&mut self, what: &str, value: f64, least: f64) -> &'static str {
        self.judge(what, value, value >= least, &format!("at least {least}"))
    }

    fn at_most(&mut self, what: &str, value: f64, most: f64) -> &'static str {
        self.judge(what, value, value <= most, &format!("at most {most}"))
    }

    fn judge(&mut self, what: &str, value: f64, met: bool, requested: &str) -> &'static str {
        if met {
            self.met += 1;
            return "met";
        }
        self.missed.push(format!("{what}: {value}, asked: {requested}"));
        "MISSED"
    }
}

fn main() -> ExitCode {
    let seeds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(10_u64).max(1);
    let mut aims = Aims::default();
    long_transfer(seeds, &mut aims);
    requested_transfer(seeds, &mut aims);
    acts(seeds, &mut aims);
    fast(seeds, &mut aims);
    outage(seeds, &mut aims);
    thin_return(seeds, &mut aims);
    println!("{} aims met, {} missed", aims.met, aims.missed.len());
    for missed in &aims.missed {
        println!("missed: {missed}");
    }
    if aims.missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The server speaks first, as it does in FTP, mail and remote shells.
fn long_transfer(seeds: u64, aims: &mut Aims) {
    println!("20 MB over 10 Mbit/s, 300 ms each way, queue 750 kB, {seeds} seeds, medians; the server speaks first");
    println!("{:<22}{:>7}{:>10}{:>19}{:>28}", "", "lost", "Mbit/s", "first byte", "link bytes/payload");
    for (loss, least) in LOSSES {
        for carrier in &CARRIERS {
            let what = format!("20 MB, {loss} % lost, {}", carrier.name);
            let runs = runs(&lossy(loss), carrier, &transfer("20 MB"), seeds);
            let goodput = median(runs.iter().map(|case| measure(case, "goodput") / 1e6));
            let first = median(runs.iter().map(|case| measure(case, "first_byte")));
            let sent = median(runs.iter().map(|case| link_bytes(case) / 20e6));
            let verdicts = if carrier.is_pair() {
                let link_bytes_max = LINK_BYTES_MAX / (1.0 - loss / 100.0);
                [
                    aims.at_least(&format!("{what}, goodput"), goodput, least),
                    aims.at_most(&format!("{what}, first byte"), first, first_byte_max(carrier)),
                    aims.at_most(&format!("{what}, link bytes"), sent, link_bytes_max),
                ]
            } else {
                [""; 3]
            };
            let [a, b, c] = verdicts;
            println!("{:<22}{loss:>5} %{goodput:>10.3} {a:<6}{first:>9.3} s {b:<6}{sent:>14.4} {c}", carrier.name);
        }
    }
    println!(
        "asked of the pair: 8.9 Mbit/s at 0 and 0.1 %, 8.6 at 1 %; first byte {FIRST_BYTE_MAX_S} s \
         ({FIRST_BYTE_EARLY_MAX_S} s with open = early); link bytes {LINK_BYTES_MAX} / (1 - lost)\n"
    );
}

/// The client speaks first, as it does in HTTP and TLS.
fn requested_transfer(seeds: u64, aims: &mut Aims) {
    println!("The same where the client asks first (HTTP)");
    println!("{:<22}{:>7}{:>10}{:>19}", "", "lost", "Mbit/s", "first byte");
    for (loss, least) in LOSSES {
        for carrier in &CARRIERS {
            let what = format!("20 MB asked for, {loss} % lost, {}", carrier.name);
            let runs = runs(&lossy(loss), carrier, "app = 'page'\nbytes = '20 MB'\n", seeds);
            let goodput = median(runs.iter().map(|case| measure(case, "goodput") / 1e6));
            let first = median(runs.iter().map(|case| measure(case, "first_byte")));
            let (a, b) = if carrier.is_pair() {
                let goodput = aims.at_least(&format!("{what}, goodput"), goodput, least);
                (goodput, aims.at_most(&format!("{what}, first byte"), first, first_byte_max(carrier)))
            } else {
                ("", "")
            };
            println!("{:<22}{loss:>5} %{goodput:>10.3} {a:<6}{first:>9.3} s {b}", carrier.name);
        }
    }
    println!();
}

fn first_byte_max(carrier: &Carrier) -> f64 {
    if carrier.keys == EARLY.keys { FIRST_BYTE_EARLY_MAX_S } else { FIRST_BYTE_MAX_S }
}

/// Best achievable: of every packet of SIZE bytes, SIZE − 40 are data (TCP/IP's own headers); it takes its framed bits
/// on the link, and is sent again with the chance that a bit of them is wrong, for every copy has to arrive and not
/// once more. The best goodput is the greatest over all sizes up to the MTU of rate · (SIZE − 40) · 8 ÷ bits · (1 −
/// ratio)^bits.
fn acts(seeds: u64, aims: &mut Aims) {
    println!("20 MB over the ACTS T1, {seeds} seeds, medians");
    println!("{:>10}{:>14}{:>10}{:>14}{:>10}", "ratio", "best kbit/s", "at", "pair kbit/s", "share");
    for ratio in RATIOS {
        let link =
            format!("kind = 'acts-t1'\nbetween = ['hub', 'ship']\nnoise = {ratio:e}\nqueue = {{ bytes = '750 kB' }}\n");
        let runs = runs(&link, &PAIR, &transfer("20 MB"), seeds);
        let goodput = median(runs.iter().map(|case| measure(case, "goodput")));
        let (best, size) =
            best_achievable(&scenario(&link, &PAIR, &transfer("1 B"), 1).cases[0].links[0].config, ratio);
        let share = goodput / best;
        let verdict = aims.at_least(&format!("ACTS T1 at {ratio:e}, share of the best"), share, SHARE_MIN);
        println!("{ratio:>10.0e}{:>14.1}{size:>8} B{:>14.1}{share:>10.4} {verdict}", best / 1e3, goodput / 1e3);
    }
    println!(
        "best: over all packet sizes, rate x (size - 40) x 8 / framed bits x (1 - ratio)^(framed bits); asked: {SHARE_MIN} of it\n"
    );
}

/// The best goodput in bit/s, and the packet size that it takes.
fn best_achievable(link: &LinkConfig, ratio: f64) -> (f64, usize) {
    let rate = link.forward.rate.highest().bps as f64;
    let goodput = |size: usize| {
        let bits = link.forward.framing.bits(size as u64, link.carries_ethernet) as f64;
        rate * (size as f64 - 40.0) * 8.0 / bits * (1.0 - ratio).powf(bits)
    };
    let sizes = 41..=usize::try_from(link.mtu).unwrap_or(usize::MAX);
    sizes.map(|size| (goodput(size), size)).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

fn fast(seeds: u64, aims: &mut Aims) {
    let link = "kind = 'geo-250-3'\nbetween = ['hub', 'ship']\none_way_delay = '300 ms'\nloss = '1 %'\n";
    println!("100 MB over 250/3 Mbit/s, 300 ms each way, 1 % lost both ways, {seeds} seeds, medians");
    for carrier in &CARRIERS {
        let runs = runs(link, carrier, &transfer("100 MB"), seeds);
        let time = median(runs.iter().map(|case| measure(case, "completion_time")));
        let verdict =
            if carrier.is_pair() { aims.at_most(&format!("100 MB, {}", carrier.name), time, FAST_MAX_S) } else { "" };
        println!("{:<22}{time:>8.2} s {verdict}", carrier.name);
    }
    println!("asked of the pair: {FAST_MAX_S} s\n");
}

/// The outage begins at another moment with each seed.
fn outage(seeds: u64, aims: &mut Aims) {
    const LASTS: f64 = 30.0;
    println!(
        "20 MB over 10 Mbit/s with an outage of {LASTS} s in mid-transfer: when data flow again after its end, {seeds} seeds"
    );
    println!("{:<22}{:>10}{:>10}", "", "median", "worst");
    for carrier in &CARRIERS {
        let resumed = (1..=seeds).map(|seed| {
            let ends = 12.0 + 0.1 * seed as f64 + LASTS;
            let link = format!("{GEO}outages = [{{ at = '{:.1} s', lasts = '{LASTS} s' }}]\n", ends - LASTS);
            resumed(&run(&link, carrier, &transfer("20 MB"), seed), ends)
        });
        let resumed: Vec<f64> = resumed.collect();
        let worst = resumed.iter().copied().fold(0.0, f64::max);
        let verdict = if carrier.is_pair() {
            aims.at_most(&format!("outage, {}", carrier.name), worst, RESUMED_MAX_S)
        } else {
            ""
        };
        println!("{:<22}{:>8.2} s{worst:>8.2} s {verdict}", carrier.name, median(resumed.into_iter()));
    }
    println!("asked of the pair: {RESUMED_MAX_S} s; sampled every {SAMPLE_EVERY}\n");
}

/// Seconds from `end` to the first data after it; infinite if none come.
fn resumed(case: &CaseRecord, end: f64) -> f64 {
    let received = workload(case).series.iter().find(|series| series.quantity == "received");
    let points = received.map_or(&[][..], |series| &series.points[..]);
    let before = points.iter().take_while(|(at, _)| *at <= end).last().map_or(0.0, |(_, bytes)| *bytes);
    let again = points.iter().find(|(at, bytes)| *at > end && *bytes > before);
    again.map_or(f64::INFINITY, |(at, _)| at - end)
}

fn thin_return(seeds: u64, aims: &mut Aims) {
    let link = format!("{GEO}[links.sat.return]\nrate = '50 kbit/s'\n");
    let least = LOSSES[0].1;
    println!("20 MB over 10/0.05 Mbit/s, {seeds} seeds, medians");
    for carrier in &CARRIERS {
        let runs = runs(&link, carrier, &transfer("20 MB"), seeds);
        let goodput = median(runs.iter().map(|case| measure(case, "goodput") / 1e6));
        let verdict = if carrier.is_pair() {
            aims.at_least(&format!("10/0.05 Mbit/s, {}", carrier.name), goodput, least)
        } else {
            ""
        };
        println!("{:<22}{goodput:>8.3} Mbit/s {verdict}", carrier.name);
    }
    println!("asked of the pair: {least} Mbit/s, as with a return link of 10 Mbit/s\n");
}

fn lossy(percent: f64) -> String {
    format!("{GEO}loss = '{percent} %'\n")
}

fn transfer(bytes: &str) -> String {
    format!("app = 'bulk'\nbytes = '{bytes}'\n")
}

/// `app`: the keys of the workload.
fn scenario(link: &str, carrier: &Carrier, app: &str, seed: u64) -> Scenario {
    let hosts = if carrier.is_pair() { UNTUNED } else { "" };
    let text = format!(
        "title = 'bench'\nseed = {seed}\n[links.sat]\n{link}{}{hosts}[[workloads]]\nname = 'transfer'\n\
         client = 'ship'\nserver = 'hub'\nstart = '{START_S} s'\n{app}",
        carrier.keys
    );
    let mut scenario = Scenario::parse("bench.toml", &text, &[]).unwrap_or_else(|problem| panic!("{problem}"));
    scenario.cases.iter_mut().for_each(sample);
    scenario
}

fn sample(case: &mut Case) {
    for workload in &mut case.workloads {
        let any: &dyn Any = &*workload.placement.workload;
        if let Some(mut bulk) = any.downcast_ref::<ClientServerWorkload<BulkSpec>>().cloned() {
            bulk.spec.sample_every = SAMPLE_EVERY;
            workload.placement.workload = Arc::new(bulk);
        }
    }
}

fn run(link: &str, carrier: &Carrier, app: &str, seed: u64) -> CaseRecord {
    let scenario = scenario(link, carrier, app, seed);
    let record: Record = simulated::run(&scenario, &SimulatedOptions::default(), &AtomicBool::new(false))
        .unwrap_or_else(|error| panic!("{error}"));
    record.cases.into_iter().next().unwrap_or_default()
}

/// The case of each seed.
fn runs(link: &str, carrier: &Carrier, app: &str, seeds: u64) -> Vec<CaseRecord> {
    (1..=seeds).map(|seed| run(link, carrier, app, seed)).collect()
}

fn workload(case: &CaseRecord) -> &WorkloadRecord {
    &case.workloads[0]
}

/// A measurement of the transfer; not a number where it did not come so far.
fn measure(case: &CaseRecord, name: &str) -> f64 {
    workload(case).measurements.iter().find(|m| m.quantity == name).map_or(f64::NAN, |m| m.value)
}

fn link_bytes(case: &CaseRecord) -> f64 {
    case.links[0].directions[0].counters.link_bytes as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
