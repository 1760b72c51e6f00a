//! Flow queueing with controlled delay.
//!
//! RFC 8290: packets of each flow have a queue with a CoDel of its own; queues take turns by deficit round robin, and one that has
//! just become busy goes before those that stay busy. Flows are told apart by a hash of their addresses, protocol and ports;
//! two of them may share a queue.

use super::codel::{Codel, CodelConfig, CodelQueue};
use super::flows::{FlowHash, read_flows};
use super::turns::Turns;
use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueLimit, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::seed::Stream;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::DataSize;
use toml::Table;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    bytes: Option<DataSize>,
    packets: Option<u64>,
    flows: Option<u64>,
    quantum: Option<DataSize>,
    target: Option<Duration>,
    interval: Option<Duration>,
    ecn: Option<bool>,
}

/// Packets that may wait unless the file states another limit (RFC 8290 §5.2).
const PACKETS_DEFAULT: u64 = 10_240;

/// Reads the table of `kind = "fq-codel"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { bytes, packets, flows, quantum, target, interval, ecn } = read_keys(keys)?;
    let packets = if bytes.is_none() { packets.or(Some(PACKETS_DEFAULT)) } else { packets };
    let limit = QueueLimit::read(bytes, packets, context)?;
    let flows = read_flows(flows)?;
    let quantum = read_quantum(quantum, context)?;
    let codel = CodelConfig::new(target, interval, ecn, context)?;
    let make = move |random| Box::new(FqCodel::new(codel, limit, quantum, flows, random)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("fq-codel", make)))
}

/// Reads the key `quantum`: bytes in a turn, a packet of the largest size by default.
pub(super) fn read_quantum(quantum: Option<DataSize>, context: &QueueContext) -> Result<i64, KeyProblem> {
    let quantum = quantum.map_or(context.packet_bytes_max, |quantum| quantum.bytes);
    // RFC 8290 §5.2: 300 B favours small packets; less only makes for more turns without a packet.
    if !(256..=1 << 20).contains(&quantum) && quantum != context.packet_bytes_max {
        let what = format!("{quantum} B is out of range; allowed: 256 B to 1 MiB");
        return Err(KeyProblem::new("quantum", what));
    }
    Ok(quantum as i64)
}

#[derive(Debug)]
struct FqCodel {
    codel: CodelConfig,
    limit: QueueLimit,
    quantum: i64,
    hash: FlowHash,
    flows: Vec<Flow>,
    turns: Turns,
    packets: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Flow {
    queue: CodelQueue<()>,
    control: Codel,
    /// Bytes that it may still send in its turn.
    credit: i64,
    /// It has turns.
    is_listed: bool,
}

impl FqCodel {
    fn new(codel: CodelConfig, limit: QueueLimit, quantum: i64, flows: usize, mut random: Stream) -> FqCodel {
        FqCodel {
            codel,
            limit,
            quantum,
            hash: FlowHash::new(&mut random),
            flows: std::iter::repeat_with(Flow::default).take(flows).collect(),
            turns: Turns::default(),
            packets: 0,
            bytes: 0,
        }
    }

    fn flow_of(&self, headers: Option<&Headers>) -> usize {
        self.hash.of(headers) as usize & (self.flows.len() - 1)
    }

    /// Drops packets from the head of the longest queue.
    fn make_room(&mut self, drops: &mut Drops) {
        if let Some(longest) = self.turns.iter().max_by_key(|flow| self.flows[*flow].queue.bytes()) {
            let (packets, bytes) = self.flows[longest].queue.drop_half(drops);
            self.packets -= packets;
            self.bytes -= bytes;
        }
    }
}

impl QueueDiscipline for FqCodel {
    fn enqueue(&mut self, _now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        let number = self.flow_of(headers);
        let flow = &mut self.flows[number];
        self.packets += 1;
        self.bytes += u64::from(ticket.bytes);
        flow.queue.push(ticket, headers, ());
        if !flow.is_listed {
            flow.is_listed = true;
            flow.credit = self.quantum;
            self.turns.add(number);
        }
        while !self.limit.holds(self.packets, self.bytes) {
            self.make_room(drops);
        }
    }

    fn dequeue(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure> {
        loop {
            let number = self.turns.first()?;
            let flow = &mut self.flows[number];
            if flow.credit <= 0 {
                flow.credit += self.quantum;
                self.turns.rotate();
                continue;
            }
            let before = (flow.queue.len() as u64, flow.queue.bytes());
            let departure = flow.control.dequeue(&self.codel, now, &mut flow.queue, drops);
            self.packets -= before.0 - flow.queue.len() as u64;
            self.bytes -= before.1 - flow.queue.bytes();
            if let Some(departure) = departure {
                flow.credit -= i64::from(departure.ticket.bytes);
                return Some(departure);
            }
            flow.is_listed = !self.turns.end_first();
        }
    }

    fn next_departure(&self) -> Instant {
        if self.packets == 0 { Instant::FAR } else { Instant::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::codel::DROP_BATCH;
    use crate::queue::harness::{Fate, Offer, constant, context, discipline, run, sent_bytes, together, udp};

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Four flows fill 10 Mbit/s; a fifth sends 200 B every 20 ms, longer than a round of the others. Each of its packets goes
    /// before theirs: it waits for the packet being sent, 1.2 ms at most.
    #[test]
    fn a_sparse_flow_waits_for_one_packet() {
        let bulk = (1..=4).map(|port| constant(1500, 5_000_000, at(0), at(10_000), udp(1, 2, port, false)));
        let voice = constant(200, 80_000, at(100), at(10_000), udp(1, 2, 5, false));
        let offers = together(bulk.chain([voice]));
        let mut queue = discipline("kind = 'fq-codel'", 10_000_000);
        let events = run(&mut *queue, 10_000_000, &offers);
        let of_voice = events.iter().filter(|event| offers[event.id].bytes == 200);
        let waits: Vec<Duration> = of_voice
            .map(|event| {
                assert_eq!(event.fate, Fate::Sent);
                event.at.since(offers[event.id].at)
            })
            .collect();
        assert_eq!(waits.len(), 495);
        assert!(waits.iter().all(|wait| *wait <= Duration::from_micros(1200)), "{:?}", waits.iter().max());
        for port in 1..=4 {
            let share = sent_bytes(&offers, &events, port, at(1000), at(10_000)) as f64 / (9.0 * 1_240_000.0);
            assert!((share - 0.25).abs() < 0.0025, "flow {port}: {share}");
        }
    }

    /// The control law of RFC 8289 in each queue for itself: one flow at twice its share, another far below it.
    #[test]
    fn only_the_flow_that_builds_a_queue_is_dropped() {
        let greedy = constant(1500, 20_000_000, at(0), at(2000), udp(1, 2, 1, false));
        let modest = constant(1500, 4_000_000, at(0), at(2000), udp(1, 2, 2, false));
        let offers = together([greedy, modest]);
        let mut queue = discipline("kind = 'fq-codel'", 10_000_000);
        let events = run(&mut *queue, 10_000_000, &offers);
        let drops: Vec<_> = events.iter().filter(|event| event.fate == Fate::Dropped && event.at < at(2000)).collect();
        assert!(drops.iter().all(|event| offers[event.id].headers == udp(1, 2, 1, false)));
        let steps: Vec<f64> = drops.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_secs_f64()).collect();
        for (number, step) in steps.iter().enumerate().take(40).skip(1) {
            let law = 0.1 / (number as f64 + 1.0).sqrt();
            assert!((step - law).abs() < 0.0036, "step {number}: {step} for {law}");
        }
        assert!(steps.len() > 80, "{}", steps.len());
    }

    #[test]
    fn too_many_packets_cost_the_longest_queue_half_of_it_up_to_a_batch() {
        let offers = [Offer { at: at(0), bytes: 1000, headers: udp(1, 2, 1, false) }; 201];
        let mut queue = discipline("kind = 'fq-codel'\npackets = 200", 1_000_000_000);
        let events = run(&mut *queue, 1_000_000_000, &offers);
        let dropped: Vec<usize> =
            events.iter().filter(|event| event.fate == Fate::Dropped).map(|event| event.id).collect();
        assert_eq!(dropped.len(), DROP_BATCH);
        assert_eq!(dropped.iter().min(), Some(&0), "from the head");
    }

    #[test]
    fn mistakes_name_their_key() {
        for (keys, key) in [
            ("flows = 1000", "flows"),
            ("flows = 4", "flows"),
            ("quantum = '255 B'", "quantum"),
            ("quantum = '2 MiB'", "quantum"),
            ("interval = '0 s'", "interval"),
        ] {
            assert_eq!(read(toml::from_str(keys).unwrap(), &context(1_000_000)).unwrap_err().key, key, "{keys}");
        }
    }
}
