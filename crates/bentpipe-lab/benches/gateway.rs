//! What a gateway pair reaches, in virtual time, beside end-to-end TCP in the same run: `make bench`.
//!
//! Medians over the seeds. `cargo bench -p bentpipe-lab --bench gateway -- SEEDS` takes another number of seeds than ten.

use bentpipe_lab::record::{CaseRecord, Record, WorkloadRecord};
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use bentpipe_link::config::LinkConfig;
use bentpipe_link::packet::{Buffer, Packet};
use std::sync::atomic::AtomicBool;

/// Who carries the data, as keys of a scenario.
struct Way {
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

const WAYS: [Way; 4] = [
    Way { name: "pair, 64 KB hosts", keys: "[gateways.sat]\n" },
    Way { name: "pair, open = early", keys: "[gateways.sat]\nopen = 'early'\n" },
    Way { name: "CUBIC, large buffers", keys: CUBIC },
    Way { name: "BBR, large buffers", keys: BBR },
];

/// The link: 10 Mbit/s, 300 ms each way, a queue of 750 kB.
const GEO: &str = "kind = 'geo-two-way'\nbetween = ['hub', 'ship']\nrate = '10 Mbit/s'\none_way_delay = '300 ms'\n\
    queue = { bytes = '750 kB' }\nframing = 'none'\n";
/// When transfers start: the pair is connected by then.
const START_S: f64 = 5.0;
/// Bit error ratios on the ACTS T1, and the least share of the best achievable that the issue asks for.
const RATIOS: [f64; 4] = [0.0, 1e-7, 1e-6, 1e-5];
const SHARE_MIN: f64 = 0.97;

fn main() {
    let seeds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(10_u64);
    long_transfer(seeds);
    acts(seeds);
    fast(seeds);
    outage();
    thin_return(seeds);
}

fn long_transfer(seeds: u64) {
    println!("20 MB over 10 Mbit/s, 300 ms each way, queue 750 kB, {seeds} seeds, medians");
    println!("{:<22}{:>8}{:>12}{:>14}{:>20}", "", "lost", "Mbit/s", "first byte", "link bytes/payload");
    for loss in [0.0, 0.1, 1.0] {
        for way in &WAYS {
            let link = format!("{GEO}loss = '{loss} %'\n");
            let runs = runs(&link, way, "20 MB", seeds);
            let goodput = median(runs.iter().map(|case| measure(case, "goodput") / 1e6));
            let first = median(runs.iter().map(|case| measure(case, "first_byte")));
            let sent = median(runs.iter().map(|case| link_bytes(case) / 20e6));
            println!("{:<22}{loss:>6} %{goodput:>12.3}{first:>12.3} s{sent:>20.4}", way.name);
        }
    }
    println!(
        "asked of the pair: 8.9 Mbit/s at 0 and 0.1 %, 8.6 at 1 %; first byte 1.25 s (0.65 s with open = early)\n"
    );
}

/// Best achievable at the link's packet size: of every packet of MTU bytes, MTU − 40 are data (TCP/IP's own headers); it takes
/// the framed packet's bits ÷ rate; a share 1 − (1 − ratio)^bits of the packets is damaged, and each is sent again until it
/// arrives and not once more. The best goodput is rate · (MTU − 40) · 8 ÷ bits · (1 − ratio)^bits.
fn acts(seeds: u64) {
    println!("20 MB over the ACTS T1, {seeds} seeds, medians");
    println!("{:>10}{:>14}{:>14}{:>10}", "ratio", "best kbit/s", "pair kbit/s", "share");
    for ratio in RATIOS {
        let link =
            format!("kind = 'acts-t1'\nbetween = ['hub', 'ship']\nnoise = {ratio:e}\nqueue = {{ bytes = '750 kB' }}\n");
        let runs = runs(&link, &WAYS[0], "20 MB", seeds);
        let goodput = median(runs.iter().map(|case| measure(case, "goodput")));
        let best = best_achievable(&scenario(&link, &WAYS[0], "1 B", 1).cases[0].links[0].config, ratio);
        let share = goodput / best;
        let verdict = if share >= SHARE_MIN { "" } else { "  below 0.97" };
        println!("{ratio:>10.0e}{:>14.1}{:>14.1}{share:>10.4}{verdict}", best / 1e3, goodput / 1e3);
    }
    println!("best: rate x (MTU - 40) x 8 / framed bits x (1 - ratio)^(framed bits)\n");
}

fn best_achievable(link: &LinkConfig, ratio: f64) -> f64 {
    let packet = Packet::from_buffer(0, Buffer::from_vec(vec![0; link.mtu as usize]));
    let bits = link.forward.framing.bits(&packet, link.carries_ethernet) as f64;
    let rate = link.forward.rate.highest().bps as f64;
    rate * (link.mtu as f64 - 40.0) * 8.0 / bits * (1.0 - ratio).powf(bits)
}

fn fast(seeds: u64) {
    let link = "kind = 'geo-250-3'\nbetween = ['hub', 'ship']\none_way_delay = '300 ms'\nloss = '1 %'\n";
    println!("100 MB over 250/3 Mbit/s, 300 ms each way, 1 % lost both ways, {seeds} seeds, medians");
    for way in &WAYS {
        let runs = runs(link, way, "100 MB", seeds);
        println!("{:<22}{:>8.2} s", way.name, median(runs.iter().map(|case| measure(case, "completion_time"))));
    }
    println!("asked of the pair: 5.5 s\n");
}

fn outage() {
    const AT: f64 = 12.0;
    const LASTS: f64 = 30.0;
    println!("20 MB over 10 Mbit/s with an outage of {LASTS} s in mid-transfer: when data flow again after its end");
    for way in &WAYS {
        let link = format!("{GEO}outages = [{{ at = '{AT} s', lasts = '{LASTS} s' }}]\n");
        let case = &runs(&link, way, "20 MB", 1)[0];
        let received = workload(case).series.iter().find(|series| series.name == "received");
        let points = received.map_or(&[][..], |series| &series.points[..]);
        let before = points.iter().take_while(|(at, _)| *at <= AT + LASTS).last().map_or(0.0, |(_, bytes)| *bytes);
        let again = points.iter().find(|(at, bytes)| *at > AT + LASTS && *bytes > before);
        match again {
            Some((at, _)) => println!("{:<22}{:>8.2} s", way.name, at - AT - LASTS),
            None => println!("{:<22}   never", way.name),
        }
    }
    println!("asked of the pair: 1.5 s\n");
}

fn thin_return(seeds: u64) {
    let link = format!("{GEO}[links.sat.return]\nrate = '50 kbit/s'\n");
    println!("20 MB over 10/0.05 Mbit/s, {seeds} seeds, medians");
    for way in &WAYS {
        let runs = runs(&link, way, "20 MB", seeds);
        println!("{:<22}{:>8.3} Mbit/s", way.name, median(runs.iter().map(|case| measure(case, "goodput") / 1e6)));
    }
    println!();
}

fn scenario(link: &str, way: &Way, bytes: &str, seed: u64) -> Scenario {
    let hosts = if way.keys.contains("gateways") { UNTUNED } else { "" };
    let text = format!(
        "title = 'bench'\nseed = {seed}\n[links.sat]\n{link}{}{hosts}[[workloads]]\nname = 'transfer'\napp = 'bulk'\n\
         client = 'ship'\nserver = 'hub'\nbytes = '{bytes}'\nstart = '{START_S} s'\n",
        way.keys
    );
    Scenario::parse("bench.toml", &text, &[]).unwrap_or_else(|problem| panic!("{problem}"))
}

/// The case of each seed.
fn runs(link: &str, way: &Way, bytes: &str, seeds: u64) -> Vec<CaseRecord> {
    let run = |seed| {
        let scenario = scenario(link, way, bytes, seed);
        let record: Record = simulated::run(&scenario, &SimulatedOptions::default(), &AtomicBool::new(false))
            .unwrap_or_else(|error| panic!("{error}"));
        record.cases.into_iter().next().unwrap_or_default()
    };
    (1..=seeds).map(run).collect()
}

fn workload(case: &CaseRecord) -> &WorkloadRecord {
    &case.workloads[0]
}

/// A measurement of the transfer; not a number where it did not come so far.
fn measure(case: &CaseRecord, name: &str) -> f64 {
    workload(case).measurements.iter().find(|m| m.name == name).map_or(f64::NAN, |m| m.value)
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
