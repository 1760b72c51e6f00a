//! Instructions for each packet through a link with each queue discipline, compared with first in, first out: `cargo bench -p
//! bentpipe-link --bench queues`. Needs valgrind, whose counts other load does not affect.
//!
//! Twenty flows of full-size TCP segments load a link of 1 Gbit/s completely, in bursts of one packet each, so that queues
//! fill and run empty and nothing is dropped. Each run is counted at two lengths: the difference leaves out what is done once.

use bentpipe_link::catalogue::LinkFile;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::datagram::{Body, Datagram, Payload, Segment, flag};
use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::{Duration, Instant};
use std::process::Command;

const FLOWS: u64 = 20;
/// 1500 B at 1 Gbit/s.
const PACKET_TIME: Duration = Duration::from_micros(12);
const SHORT: u64 = 20_000;
const LONG: u64 = 120_000;
/// Instructions of the simulator for a packet (docs/reference/performance.md, one flow, 1 Gbit/s).
const SIMULATOR: f64 = 2157.0;

const KINDS: [(&str, &str); 12] = [
    ("fifo", "packets = 1000"),
    ("drr", "kind = 'drr', packets = 1000"),
    ("scfq", "kind = 'scfq', packets = 1000"),
    ("wfq", "kind = 'wfq', packets = 1000"),
    ("wfq-classes", "kind = 'wfq', packets = 1000, classes = [{ ports = ['1-5'], weight = 3 }, { ports = ['6-9'] }]"),
    ("priority", "kind = 'priority', packets = 1000, classes = [{ ports = ['1-5'] }, { ports = ['6-9'] }]"),
    ("red", "kind = 'red', min = '100 kB'"),
    ("codel", "kind = 'codel', packets = 1000"),
    ("fq-codel", "kind = 'fq-codel'"),
    ("pie", "kind = 'pie', packets = 1000"),
    ("cake", "kind = 'cake', packets = 1000"),
    ("cake-acks", "kind = 'cake', packets = 1000, ack_filter = 'aggressive'"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [word, kind, packets] = arguments.as_slice()
        && word == "run"
        && let Some((_, queue)) = KINDS.iter().find(|(name, _)| name == kind)
    {
        run(queue, packets.parse().unwrap_or(SHORT));
        return;
    }
    let mut fifo = None;
    println!(
        "{:<14}{:>26}{:>22}{:>30}",
        "queue", "instructions a packet", "more than fifo", "simulator's rate of fifo's"
    );
    for (kind, _) in KINDS {
        let Some((short, long)) = count(kind, SHORT).zip(count(kind, LONG)) else {
            println!("skipped: valgrind did not count");
            return;
        };
        let each = (long - short) as f64 / (LONG - SHORT) as f64;
        let more = each - *fifo.get_or_insert(each);
        println!("{kind:<14}{each:>26.0}{more:>22.0}{:>28.1} %", 100.0 * SIMULATOR / (SIMULATOR + more));
    }
}

/// Instructions of a run.
fn count(kind: &str, packets: u64) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let valgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let output =
        Command::new("valgrind").args(valgrind).arg(program).args(["run", kind, &packets.to_string()]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}

fn run(queue: &str, packets: u64) {
    let text = format!("rate = '1 Gbit/s'\none_way_delay = '250 ms'\nqueue = {{ {queue} }}\n");
    let config = LinkFile::parse("bench", "bench.toml", &text).and_then(|file| file.config());
    let config = config.unwrap_or_else(|problem| panic!("{problem}"));
    let mut link: Link<DatagramPacket> = Link::new(&config, 1, Seed(1));
    let packet = |flow: u64, number: u64| {
        let segment = Segment {
            source_port: 80,
            destination_port: flow as u16,
            sequence: number as u32 * 1460,
            flags: flag::ACK,
            payload: Payload::Pattern { pattern: 1, offset: number * 1460, length: 1460 },
            ..Segment::default()
        };
        DatagramPacket::new(Datagram::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Body::Tcp(segment)))
    };
    let (mut at, mut arrived) = (Instant::ZERO, 0);
    for number in 0..packets / FLOWS {
        for flow in 0..FLOWS {
            link.receive(at, Port(0), packet(flow, number));
        }
        at += Duration::from_nanos(PACKET_TIME.ns * FLOWS);
        arrived += deliver(&mut link, at);
    }
    arrived += deliver(&mut link, at + Duration::from_secs(10));
    assert_eq!(arrived, packets / FLOWS * FLOWS, "nothing is dropped");
}

fn deliver(link: &mut Link<DatagramPacket>, until: Instant) -> u64 {
    let mut arrived = 0;
    while let Some(due) = Some(link.next_wake()).filter(|due| *due <= until && *due != Instant::FAR) {
        while link.next_arrival(due).is_some() {
            arrived += 1;
        }
    }
    arrived
}
