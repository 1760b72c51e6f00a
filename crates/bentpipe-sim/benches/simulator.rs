//! The simulator's speed in packets (data and acknowledgements, counted as they leave on the link) per CPU second, with
//! all of TCP switched on, against ns-3 where that is installed: `make bench`.
//!
//! Every run is a process of its own, so that its peak of memory is its own; rounds are interleaved, medians printed.
//! `cargo bench -p bentpipe-sim --bench simulator -- ROUNDS CASE` runs fewer. A second table has the same network with each queue
//! discipline on its link, in percent of the packets per CPU second with a FIFO; `-- ROUNDS queues` makes that one alone.
//!
//! ns-3 comes from its PyPI package: `python3 -m venv target/ns3 && target/ns3/bin/pip install --no-deps ns3`.

use bentpipe_apps::ClientServer as _;
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::quantity;
use bentpipe_apps::report::App;
use bentpipe_link::catalogue::LinkFile;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::LinkSpec;
use bentpipe_sim::network::{Network, Setup, Stop};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

mod ns3;

/// One way: a geostationary satellite with the hosts' own delays.
const ONE_WAY_MS: u64 = 300;
const PORT: u16 = 5001;
/// CPU seconds that one run of ns-3 may take; what it did until then is what counts.
const NS3_SECONDS: u64 = 10;

/// A site sends bulk data to another one; all windows together are one bandwidth-delay product.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    rate_mbps: u64,
    flows: u64,
    megabytes: u64,
    /// Share of packets lost, in percent.
    loss: f64,
    /// The queue in front of the link, as a link file has it.
    queue: &'static str,
    /// Least packets per CPU second and most memory that the issue asks for.
    packets_min: f64,
    megabytes_max: f64,
}

const CASES: [Case; 4] = [
    Case {
        name: "one flow, 100 Mbit/s",
        rate_mbps: 100,
        flows: 1,
        megabytes: 6000,
        loss: 0.0,
        queue: FIFO,
        packets_min: 5e6,
        megabytes_max: f64::INFINITY,
    },
    Case {
        name: "one flow, 1 Gbit/s",
        rate_mbps: 1000,
        flows: 1,
        megabytes: 6000,
        loss: 0.0,
        queue: FIFO,
        packets_min: 5e6,
        megabytes_max: 20.0,
    },
    Case {
        name: "1000 flows, 1 Gbit/s",
        rate_mbps: 1000,
        flows: 1000,
        megabytes: 4000,
        loss: 0.0,
        queue: FIFO,
        packets_min: 2e6,
        megabytes_max: f64::INFINITY,
    },
    Case {
        name: "one flow, 100 Mbit/s, 0.1 % lost",
        rate_mbps: 100,
        flows: 1,
        megabytes: 2000,
        loss: 0.1,
        queue: FIFO,
        packets_min: 0.0,
        megabytes_max: f64::INFINITY,
    },
];

/// A queue that never drops: all windows together are shorter.
const FIFO: &str = "bytes = '1 GB'";

/// Each discipline, with limits that drop as little as a FIFO's: what is compared is the work for a packet. Those that drop early
/// get a target that is never exceeded.
const QUEUES: [(&str, &str); 11] = [
    ("fifo", FIFO),
    (FIFO_IN_PARTS, FIFO),
    ("drr", "kind = 'drr', bytes = '1 GB'"),
    ("scfq", "kind = 'scfq', bytes = '1 GB'"),
    ("wfq", "kind = 'wfq', bytes = '1 GB'"),
    ("priority", "kind = 'priority', bytes = '1 GB', classes = [{ ports = ['1-1000'] }]"),
    ("red", "kind = 'red', bytes = '1 GB', min = '100 MB'"),
    ("codel", "kind = 'codel', bytes = '1 GB', target = '2 s', interval = '20 s'"),
    ("fq-codel", "kind = 'fq-codel', bytes = '1 GB', target = '2 s', interval = '20 s'"),
    ("pie", "kind = 'pie', bytes = '1 GB', target = '2 s'"),
    ("cake", "kind = 'cake', bytes = '1 GB', target = '2 s', interval = '20 s'"),
];
/// A FIFO without the fast path, which computes a packet's arrival when it is offered: the link loses one packet in 10⁸.
const FIFO_IN_PARTS: &str = "fifo in parts";
/// Least rate of packets with a discipline, of a FIFO's.
const QUEUE_RATE_MIN: f64 = 0.9;
/// The network of the second table: twenty flows, so that flow queues have something to choose between.
const QUEUE_FLOWS: u64 = 20;
const QUEUE_MEGABYTES: u64 = 2000;

fn queue_case(name: &'static str, queue: &'static str) -> Case {
    let (flows, megabytes) = (QUEUE_FLOWS, QUEUE_MEGABYTES);
    let loss = if name == FIFO_IN_PARTS { 1e-6 } else { 0.0 };
    Case { name, flows, megabytes, queue, loss, packets_min: 0.0, megabytes_max: f64::INFINITY, ..CASES[1] }
}

/// The result of one run.
#[derive(Clone, Copy)]
struct Run {
    packets: f64,
    cpu_seconds: f64,
    virtual_seconds: f64,
    peak_megabytes: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [word, number, megabytes] = arguments.as_slice()
        && word == "run"
        && let Some(case) = number.parse().ok().and_then(|n: usize| CASES.get(n))
    {
        // Other amounts serve profilers.
        let run = Case { megabytes: megabytes.parse().unwrap_or(case.megabytes), ..*case }.simulate();
        println!("{} {} {} {}", run.packets, run.cpu_seconds, run.virtual_seconds, run.peak_megabytes);
        return;
    }
    if let [word, kind] = arguments.as_slice()
        && word == "queue"
        && let Some((name, queue)) = QUEUES.iter().find(|(name, _)| name == kind)
    {
        let run = queue_case(name, queue).simulate();
        println!("{} {} {} {}", run.packets, run.cpu_seconds, run.virtual_seconds, run.peak_megabytes);
        return;
    }
    let rounds = arguments.first().and_then(|n| n.parse().ok()).unwrap_or(5usize);
    let only = arguments.get(1);
    if only.is_some_and(|part| part == "queues") {
        return compare_queues(rounds);
    }
    let cases: Vec<(usize, &Case)> = CASES
        .iter()
        .enumerate()
        .filter(|(_, case)| only.is_none_or(|part| case.name.contains(part.as_str())))
        .collect();
    let ns3_program = ns3::build("dumbbell").inspect_err(|why| println!("ns-3 skipped: {why}")).ok();
    let mut own = vec![Vec::new(); CASES.len()];
    let mut ns3_runs = vec![Vec::new(); CASES.len()];
    for round in 0..rounds {
        for (number, case) in &cases {
            own[*number].extend(run_apart(*number));
            // It is slow and steady: one round of it is enough.
            if round == 0
                && let Some(program) = &ns3_program
            {
                ns3_runs[*number].extend(case.run_ns3(program));
            }
        }
    }
    println!(
        "\n{ONE_WAY_MS} ms each way, windows of one bandwidth-delay product in all, {rounds} interleaved rounds, medians (min \
         to max)\n\n{:<34}{:>28}{:>14}{:>12}{:>12}{:>14}",
        "", "M packets per CPU s", "virtual/CPU s", "peak MB", "ns-3", "times ns-3"
    );
    let mut short = Vec::new();
    for (number, case) in cases {
        let speed = Spread::of(&own[number], |run| run.packets / run.cpu_seconds / 1e6);
        let virtual_speed = Spread::of(&own[number], |run| run.virtual_seconds / run.cpu_seconds);
        let memory = Spread::of(&own[number], |run| run.peak_megabytes);
        let bypass = Spread::of(&ns3_runs[number], |run| run.packets / run.cpu_seconds / 1e6);
        let (theirs, times) = match ns3_runs[number].is_empty() {
            true => ("-".to_owned(), "-".to_owned()),
            false => (format!("{:.4}", bypass.median), format!("{:.0}", speed.median / bypass.median)),
        };
        println!(
            "{:<34}{:>28}{:>14.1}{:>12.1}{:>12}{:>14}",
            case.name,
            format!("{:.2} ({:.2} to {:.2})", speed.median, speed.least, speed.most),
            virtual_speed.median,
            memory.median,
            theirs,
            times
        );
        if speed.median * 1e6 < case.packets_min {
            short.push(format!("{}: below {:.0} M packets per CPU second", case.name, case.packets_min / 1e6));
        }
        if memory.median > case.megabytes_max {
            short.push(format!("{}: more than {:.0} MB", case.name, case.megabytes_max));
        }
    }
    short.iter().for_each(|text| println!("SHORT OF THE AIM: {text}"));
    if only.is_none() {
        compare_queues(rounds);
    }
}

/// Packets per CPU second with each discipline, as a share of those with a FIFO in the same round.
fn compare_queues(rounds: usize) {
    let mut shares = vec![Vec::new(); QUEUES.len()];
    let mut speeds = vec![Vec::new(); QUEUES.len()];
    let apart = |kind: &str| run_in_process(&["queue", kind]).map(|run| run.packets / run.cpu_seconds);
    for _ in 0..rounds {
        for (number, (kind, _)) in QUEUES.iter().enumerate() {
            // The FIFO before each, so that both are as much disturbed by what else runs.
            if let Some((fifo, speed)) = apart(QUEUES[0].0).zip(apart(kind)) {
                shares[number].push(speed / fifo);
                speeds[number].push(speed / 1e6);
            }
        }
    }
    println!(
        "\n{QUEUE_FLOWS} flows over {} Mbit/s with each queue discipline, {rounds} rounds, medians (min to max)\n\n{:<14}{:>22}{:>30}",
        CASES[1].rate_mbps, "", "M packets per CPU s", "of fifo's"
    );
    for (number, (kind, _)) in QUEUES.iter().enumerate() {
        let (speed, share) =
            (Spread::of(&speeds[number], |speed| *speed), Spread::of(&shares[number], |share| 100.0 * share));
        let range = format!("{:.0} % ({:.0} to {:.0})", share.median, share.least, share.most);
        println!("{kind:<14}{:>22.2}{range:>30}", speed.median);
        if share.median < 100.0 * QUEUE_RATE_MIN {
            println!("SHORT OF THE AIM: {kind}: below {:.0} % of fifo's", 100.0 * QUEUE_RATE_MIN);
        }
    }
}

/// Median, least and most of some runs.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of<R>(runs: &[R], value: impl Fn(&R) -> f64) -> Spread {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (values.len().max(1) - 1) as f64 * share;
            values.get(index.round() as usize).copied().unwrap_or(f64::NAN)
        };
        Spread { median: at(0.5), least: at(0.0), most: at(1.0) }
    }
}

impl Case {
    /// Bytes that one flow may have in flight.
    fn window(&self) -> u64 {
        self.rate_mbps * 1_000_000 / 8 * (2 * ONE_WAY_MS) / 1000 / self.flows
    }

    fn bytes_each(&self) -> u64 {
        self.megabytes * 1_000_000 / self.flows
    }

    fn setup(&self) -> Setup {
        let text = format!(
            "title = 'b'\nrate = '{} Mbit/s'\none_way_delay = '{ONE_WAY_MS} ms'\nqueue = {{ {} }}\n\
             loss = {{ share = '{} %' }}",
            self.rate_mbps, self.queue, self.loss
        );
        let config = LinkFile::parse("b", "b", &text).and_then(|file| file.config()).expect("a link");
        let sites = ["hub", "terminal"].map(str::to_owned).to_vec();
        let spec = LinkSpec { name: "sat".into(), sites, carries_ethernet: false, mtu: 1500 };
        let window = self.window();
        let tcp = format!("receive_window = '{window} B'\nsend_buffer = '{window} B'");
        let tcp = TcpConfig::from_table(toml::from_str(&tcp).expect("a table")).expect("settings");
        let tcp = ["hub", "terminal"].map(|name| (name.to_owned(), tcp.clone())).into();
        Setup { links: vec![(spec, config)], tcp, seed: 1, ..Setup::default() }
    }

    /// Runs it in this process.
    fn simulate(&self) -> Run {
        let mut network: Network<Box<dyn App>> = Network::new(&self.setup()).expect("a network");
        let hub = IpAddr::from(network.plan().address(0).expect("an address"));
        let mut clients = Vec::new();
        let before = cpu_seconds();
        for flow in 0..self.flows {
            let amount = Amount::Bytes(self.bytes_each());
            let bulk = BulkSpec { amount, port: PORT + flow as u16, ..BulkSpec::default() };
            network.start(0, bulk.server(flow));
            clients.push(network.start(1, bulk.client(hub, flow)));
        }
        let mut done = 0;
        while done < clients.len() {
            let stop = network.run_until(Instant::ZERO + Duration::from_secs(1_000_000));
            assert_eq!(stop, Stop::ProgramDone, "at {:?}", network.now());
            done = clients.iter().filter(|id| network.program(**id).is_some_and(|program| program.is_done())).count();
        }
        let cpu_seconds = cpu_seconds() - before;
        for client in &clients {
            let report = network.program(*client).expect("a program").report(network.now());
            assert_eq!(report.value(quantity::BYTES), Some(self.bytes_each() as f64), "{:?}", report.status);
        }
        let sent = |link: &bentpipe_link::link::Link<_>| {
            link.directions().iter().map(|direction| direction.sender_counters().sent_packets).sum::<u64>()
        };
        Run {
            packets: network.links().iter().map(sent).sum::<u64>() as f64,
            cpu_seconds,
            virtual_seconds: network.now().as_secs_f64(),
            peak_megabytes: peak_megabytes(),
        }
    }

    fn run_ns3(&self, program: &Path) -> Option<Run> {
        let numbers =
            [self.rate_mbps * 1_000_000, ONE_WAY_MS, self.flows, self.bytes_each(), self.window(), NS3_SECONDS];
        let mut command = Command::new(program);
        read_run(command.args(numbers.map(|n| n.to_string())).arg((self.loss / 100.0).to_string()))
    }
}

/// Runs a case in a process of its own.
fn run_apart(number: usize) -> Option<Run> {
    run_in_process(&["run", &number.to_string(), "all"])
}

fn run_in_process(arguments: &[&str]) -> Option<Run> {
    let own = std::env::current_exe().expect("this program");
    read_run(Command::new(own).args(arguments))
}

/// The four numbers that a run prints in its last line.
fn read_run(command: &mut Command) -> Option<Run> {
    let output = command.output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Option<Vec<f64>> =
        text.lines().last().unwrap_or_default().split(' ').map(|word| word.parse().ok()).collect();
    let Some(&[packets, cpu_seconds, virtual_seconds, peak_megabytes]) = numbers.as_deref() else {
        println!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    };
    Some(Run { packets, cpu_seconds, virtual_seconds, peak_megabytes })
}

/// Time that this process has had a processor.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

/// Most memory that this process has had.
fn peak_megabytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("kB") * 1024.0 / 1e6
}
