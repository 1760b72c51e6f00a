//! The waits of packets in FQ-CoDel, CoDel and PIE, next to those in ns-3's disciplines of the same names: `make bench-queues`.
//!
//! The same TCP transfers twice in this simulator: with its own discipline in front of the link, and with ns-3's, which runs in
//! another process and is asked for each packet. So the disciplines alone make the difference. CoDel's `MinBytes` of 1501 gives
//! ns-3 the rule of RFC 8289 §5.6 (no drop while one packet of 1500 bytes remains); its default of 1500 drops one packet earlier.
//! ns-3 comes from its PyPI package (see `ns3`). A line says where a
//! median of FQ-CoDel with the rule of the RFC differs by more than 10 %.

use bentpipe_apps::ClientServer as _;
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::report::App;
use bentpipe_link::catalogue::LinkFile;
use bentpipe_link::queue::{Departure, Drops, QueueConfig, QueueDiscipline, QueueSpec, Ticket};
use bentpipe_net::headers::Headers;
use bentpipe_net::seed::Stream;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::LinkSpec;
use bentpipe_sim::network::{Network, Setup};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};

mod ns3;

const PORT: u16 = 5001;
/// The limit of the sockets' buffers: more than any of the links holds.
const WINDOW: u64 = 1 << 24;
/// Waits of packets that arrived before are left out: the transfers start.
const SETTLED: Duration = Duration::from_secs(10);
/// How far a median may be from ns-3's, as a share of it.
const DIFFERENCE_MAX: f64 = 0.1;

#[derive(Clone, Copy)]
struct Case {
    kind: &'static str,
    rate_bps: u64,
    one_way_ms: u64,
    flows: u64,
    /// Both must be those that the discipline takes, at this rate.
    target: Duration,
    interval: Duration,
    seconds: u64,
}

const TERRESTRIAL: Case = Case {
    kind: "fq-codel",
    rate_bps: 10_000_000,
    one_way_ms: 25,
    flows: 4,
    target: Duration::from_millis(5),
    interval: Duration::from_millis(100),
    seconds: 120,
};
const SATELLITE: Case =
    Case { one_way_ms: 300, target: Duration::from_millis(30), interval: Duration::from_millis(600), ..TERRESTRIAL };
/// A packet of 1500 bytes takes 23.4375 ms (RFC 8290 §5.2: the target is no less).
const SLOW: Case = Case { rate_bps: 512_000, target: Duration::from_nanos(23_437_500), ..TERRESTRIAL };

const CASES: [Case; 10] = [
    Case { flows: 1, ..TERRESTRIAL },
    TERRESTRIAL,
    Case { flows: 16, ..TERRESTRIAL },
    Case { flows: 1, ..SATELLITE },
    SATELLITE,
    SLOW,
    Case { kind: "codel", ..TERRESTRIAL },
    Case { kind: "codel", ..SATELLITE },
    Case { kind: "pie", target: Duration::from_millis(15), ..TERRESTRIAL },
    Case { kind: "pie", flows: 16, target: Duration::from_millis(15), ..TERRESTRIAL },
];

/// What happened in a queue.
#[derive(Debug, Default)]
struct Log {
    arrivals: usize,
    /// Arrival and wait of those that left.
    departures: Vec<(Instant, Duration)>,
}

impl Log {
    fn drops(&self) -> usize {
        self.arrivals - self.departures.len()
    }
}

/// A discipline whose packets are written down.
#[derive(Debug)]
struct Logged {
    discipline: Box<dyn QueueDiscipline>,
    log: Arc<Mutex<Log>>,
}

impl QueueDiscipline for Logged {
    fn enqueue(&mut self, now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        self.log.lock().expect("one thread").arrivals += 1;
        self.discipline.enqueue(now, ticket, headers, drops);
    }

    fn dequeue(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure> {
        let departure = self.discipline.dequeue(now, drops)?;
        let arrival = departure.ticket.arrival;
        self.log.lock().expect("one thread").departures.push((arrival, now.since(arrival)));
        Some(departure)
    }

    fn next_departure(&self) -> Instant {
        self.discipline.next_departure()
    }
}

/// A discipline of ns-3 in another process: `ns3/queues.cc` has the protocol.
#[derive(Debug)]
struct Ns3 {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The packets that wait, by their numbers.
    waiting: BTreeMap<i64, Ticket>,
    arrivals: i64,
}

impl Ns3 {
    fn start(program: &Path, case: &Case, min_bytes: u64) -> Ns3 {
        let mut command = Command::new(program);
        command.arg(case.kind).args([case.target.ns, case.interval.ns, min_bytes].map(|n| n.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let commands = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Ns3 { child, commands, answers, waiting: BTreeMap::new(), arrivals: 0 }
    }

    /// Sends a command; returns the packet that leaves.
    fn ask(&mut self, command: &str, drops: &mut Drops) -> Option<Ticket> {
        self.commands.write_all(command.as_bytes()).expect("ns-3 reads");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("ns-3 answers");
        let mut numbers = answer.split_whitespace().map(|word| word.parse().expect("a number"));
        let leaves = numbers.next().expect("an answer");
        for number in numbers {
            drops.push(self.waiting.remove(&number).expect("a packet that waits"));
        }
        self.waiting.remove(&leaves)
    }
}

impl QueueDiscipline for Ns3 {
    fn enqueue(&mut self, now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        let (source, destination) =
            headers.map_or((0, 0), |headers| (headers.flow.source_port, headers.flow.destination_port));
        let command = format!("e {} {} {source} {destination}\n", now.ns, ticket.bytes);
        self.waiting.insert(self.arrivals, ticket);
        self.arrivals += 1;
        self.ask(&command, drops);
    }

    fn dequeue(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure> {
        self.ask(&format!("d {}\n", now.ns), drops).map(Departure::from)
    }

    fn next_departure(&self) -> Instant {
        if self.waiting.is_empty() { Instant::FAR } else { Instant::ZERO }
    }
}

impl Drop for Ns3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The discipline in front of a case's link.
#[derive(Clone)]
enum Origin {
    Own,
    /// ns-3's, with this `MinBytes`.
    Ns3(PathBuf, u64),
}

fn main() -> ExitCode {
    let program = match ns3::build("queues") {
        Ok(program) => program,
        Err(why) => {
            println!("no ns-3: {why}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "| discipline, target, interval | link, round trip | transfers | bentpipe | ns-3, `MinBytes` 1501 | ns-3, default |"
    );
    println!("|---|---|---|---|---|---|");
    for case in CASES {
        let own = case.simulate(Origin::Own);
        let theirs = case.simulate(Origin::Ns3(program.clone(), 1501));
        let default = case.simulate(Origin::Ns3(program.clone(), 1500));
        println!(
            "| `{}`, {:.1} ms, {} | {} Mbit/s, {} ms | {} | {} | {} | {} |",
            case.kind,
            case.target.as_millis_f64(),
            case.interval,
            case.rate_bps as f64 / 1e6,
            2 * case.one_way_ms,
            case.flows,
            own.cell(),
            theirs.cell(),
            default.cell(),
        );
        let difference = own.median() / theirs.median() - 1.0;
        if difference.abs() > DIFFERENCE_MAX && case.kind == "fq-codel" {
            println!("SHORT OF THE AIM: medians differ by {:+.1} %", 100.0 * difference);
        }
    }
    ExitCode::SUCCESS
}

impl Log {
    /// The waits, sorted, in milliseconds, of packets that came when the transfers had started.
    fn settled(&self) -> Vec<f64> {
        let late = self.departures.iter().filter(|(arrival, _)| *arrival >= Instant::ZERO + SETTLED);
        let mut waits: Vec<f64> = late.map(|(_, wait)| wait.as_millis_f64()).collect();
        waits.sort_by(f64::total_cmp);
        waits
    }

    fn at(&self, share: f64) -> f64 {
        let waits = self.settled();
        waits.get((waits.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN)
    }

    fn median(&self) -> f64 {
        self.at(0.5)
    }

    /// Median and 95th percentile of waits, and the number of drops.
    fn cell(&self) -> String {
        format!("{:.2} ms, p95 {:.1} ms, {} drops", self.median(), self.at(0.95), self.drops())
    }
}

impl Case {
    fn setup(self, origin: Origin, log: &Arc<Mutex<Log>>) -> Setup {
        let interval = if self.kind == "pie" { String::new() } else { format!(", interval = '{}'", self.interval) };
        let text = format!(
            "title = 'b'\nrate = '{} bit/s'\none_way_delay = '{} ms'\n[forward]\n\
             queue = {{ kind = '{}', packets = 10240, target = '{}'{interval} }}",
            self.rate_bps, self.one_way_ms, self.kind, self.target
        );
        let mut config = LinkFile::parse("b", "b", &text).and_then(|file| file.config()).expect("a link");
        let QueueConfig::Discipline(spec) = config.forward.queue else { panic!("a FIFO") };
        let log = Arc::clone(log);
        let make = move |random: Stream| {
            let discipline = match &origin {
                Origin::Own => spec.build(random),
                Origin::Ns3(program, min_bytes) => Box::new(Ns3::start(program, &self, *min_bytes)),
            };
            Box::new(Logged { discipline, log: Arc::clone(&log) }) as Box<dyn QueueDiscipline>
        };
        config.forward.queue = QueueConfig::Discipline(QueueSpec::new(self.kind, make));
        let sites = ["hub", "terminal"].map(str::to_owned).to_vec();
        let spec = LinkSpec { name: "sat".into(), sites, carries_ethernet: false, mtu: 1500 };
        let tcp = format!("congestion_control = 'cubic'\nreceive_window = '{WINDOW} B'\nsend_buffer = '{WINDOW} B'");
        let tcp = TcpConfig::from_table(toml::from_str(&tcp).expect("a table")).expect("settings");
        let tcp = ["hub", "terminal"].map(|name| (name.to_owned(), tcp.clone())).into();
        Setup { links: vec![(spec, config)], tcp, seed: 1, ..Setup::default() }
    }

    /// Transfers from the hub, each 100 ms after the one before.
    fn simulate(self, origin: Origin) -> Log {
        let log = Arc::<Mutex<Log>>::default();
        let mut network: Network<Box<dyn App>> = Network::new(&self.setup(origin, &log)).expect("a network");
        let hub = IpAddr::from(network.plan().address(0).expect("an address"));
        for flow in 0..self.flows {
            let amount = Amount::Time(Duration::from_secs(2 * self.seconds));
            let bulk = BulkSpec { amount, port: PORT + flow as u16, ..BulkSpec::default() };
            network.start(0, bulk.server(flow));
            network.start(1, bulk.client(hub, flow));
            network.run_until(Instant::ZERO + Duration::from_millis(100 * (flow + 1)));
        }
        network.run_until(Instant::ZERO + Duration::from_secs(self.seconds));
        drop(network);
        std::mem::take(&mut *log.lock().expect("one thread"))
    }
}
