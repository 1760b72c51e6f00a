//! Queue disciplines as a link has them: shares, the bounds of fair queueing, order within flows.

use crate::driver::file;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::datagram::{Body, Datagram, Payload, Segment, flag};
use bentpipe_net::headers::Headers;
use bentpipe_net::packet::{DatagramPacket, Packet};
use bentpipe_net::seed::Seed;
use bentpipe_net::time::{Duration, Instant};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand_core::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

type Packets = Link<DatagramPacket>;

fn link(text: &str) -> Packets {
    Link::new(&file(&format!("one_way_delay = '0 s'\n{text}")).config().unwrap(), 1, Seed(1))
}

/// Packets of flows by number, which is their destination port. `data` is long enough for any of them.
struct Source {
    data: Vec<Arc<[u8]>>,
}

impl Source {
    fn new() -> Source {
        Source { data: (0..=1500).map(|bytes| vec![0; bytes].into()).collect() }
    }

    /// A UDP packet of `bytes` in all; `number` is what it is known by afterwards.
    fn packet(&self, flow: u16, number: u16, bytes: u32) -> DatagramPacket {
        let data = Arc::clone(&self.data[bytes as usize - 28]);
        let body = Body::Udp { source_port: 1000, destination_port: flow, data };
        let mut datagram = Datagram::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), body);
        datagram.identification = number;
        DatagramPacket::new(datagram)
    }
}

fn flow_of(packet: &DatagramPacket) -> u16 {
    packet.headers(false).map_or(0, |headers: Headers| headers.flow.destination_port)
}

/// Takes what arrives by `until`, each with its time.
fn arrivals(link: &mut Packets, until: Instant, mut take: impl FnMut(Instant, DatagramPacket)) {
    while let Some(due) = Some(link.next_wake()).filter(|due| *due <= until && *due != Instant::FAR) {
        link.wake(due);
        while let Some((_, packet)) = link.poll_transmit(due) {
            take(due, packet);
        }
    }
}

/// Three flows offer the whole rate each, in packets of random lengths: their shares, measured after the first seconds.
#[test]
fn saturated_shares_are_those_of_the_weights() {
    const CLASSES: &str = "classes = [{ ports = [1] }, { ports = [2], weight = 2 }, { ports = [4], weight = 4 }]";
    for (kind, limit, keys, weights) in [
        ("drr", "64 kB", CLASSES, [1.0, 2.0, 4.0]),
        ("scfq", "64 kB", CLASSES, [1.0, 2.0, 4.0]),
        ("wfq", "64 kB", CLASSES, [1.0, 2.0, 4.0]),
        // Room for hardly more than one packet of each.
        ("wfq", "12 kB", CLASSES, [1.0, 2.0, 4.0]),
        ("drr", "64 kB", "flows = 64", [1.0; 3]),
        ("scfq", "64 kB", "flows = 64", [1.0; 3]),
        ("wfq", "64 kB", "flows = 64", [1.0; 3]),
        ("fq-codel", "64 kB", "flows = 1024", [1.0; 3]),
        ("cake", "64 kB", "flows = 64", [1.0; 3]),
    ] {
        let mut link = link(&format!("rate = '1 Mbit/s'\nqueue = {{ kind = '{kind}', bytes = '{limit}', {keys} }}"));
        let source = Source::new();
        let mut random = Seed(7).stream("lengths");
        let mut next = [Instant::ZERO; 3];
        let mut delivered = BTreeMap::from([(1, 0), (2, 0), (4, 0)]);
        let mut count = |at: Instant, packet: DatagramPacket| {
            if at > Instant::ZERO + Duration::from_secs(5) {
                *delivered.get_mut(&flow_of(&packet)).unwrap() += packet.bytes();
            }
        };
        loop {
            let flow = (0..3).min_by_key(|flow| next[*flow]).unwrap();
            let at = next[flow];
            arrivals(&mut link, at, &mut count);
            if at > Instant::ZERO + Duration::from_secs(65) {
                break;
            }
            let bytes = 64 + random.next_u32() % 1437;
            link.receive(at, Port(0), source.packet([1, 2, 4][flow], 0, bytes));
            next[flow] = at + Duration::from_nanos(u64::from(bytes) * 8000);
        }
        let total: u64 = delivered.values().sum();
        assert!((total as f64 / 7.5e6 - 1.0).abs() < 0.001, "{kind}: the link is full: {total}");
        for ((flow, bytes), weight) in delivered.iter().zip(weights) {
            let (share, expected) = (*bytes as f64 / total as f64, weight / weights.iter().sum::<f64>());
            assert!((share / expected - 1.0).abs() < 0.01, "{kind} {limit}: {flow} has {share}, expected {expected}");
        }
    }
}

/// Generalized processor sharing, by its definition: at any time each queue with packets is sent at the speed of its weight.
struct Gps {
    bytes_per_ns: f64,
    weights: Vec<f64>,
    /// What is left of each packet.
    queues: Vec<VecDeque<f64>>,
    now: f64,
    /// When packets were over, in the order of each flow.
    finished: Vec<Vec<f64>>,
}

impl Gps {
    fn advance(&mut self, until: f64) {
        loop {
            let busy = |flow: &usize| !self.queues[*flow].is_empty();
            let flows: Vec<usize> = (0..self.weights.len()).filter(busy).collect();
            let weights: f64 = flows.iter().map(|flow| self.weights[*flow]).sum();
            let speed = |flow: usize| self.weights[flow] / weights * self.bytes_per_ns;
            let first = flows.iter().map(|flow| self.queues[*flow][0] / speed(*flow)).fold(f64::INFINITY, f64::min);
            let span = first.min(until - self.now);
            for flow in &flows {
                let sent = span * speed(*flow);
                let queue = &mut self.queues[*flow];
                queue[0] -= sent;
                // Less than a millionth of a byte is rounding.
                if queue[0] < 1e-6 {
                    queue.pop_front();
                    self.finished[*flow].push(self.now + span);
                }
            }
            self.now += span;
            if self.now >= until || flows.is_empty() {
                self.now = until;
                return;
            }
        }
    }
}

const GPS_FLOWS: usize = 6;
/// 1500 B at 10 Mbit/s.
const LONGEST_NS: f64 = 1_200_000.0;

/// How much later than under GPS packets are over, at most, in nanoseconds: bursts of random packets on flows of random
/// weights, most of the time more than the link can carry and sometimes nothing.
fn latest_after_gps(kind: &str, packets: u64) -> f64 {
    let mut random = Seed(3).stream("gps");
    let weights: Vec<u64> = (0..GPS_FLOWS).map(|_| 1 + random.next_u64() % 9).collect();
    let classes =
        weights.iter().enumerate().map(|(flow, weight)| format!("{{ ports = [{}], weight = {weight} }}", flow + 1));
    let classes = classes.collect::<Vec<_>>().join(", ");
    let mut link =
        link(&format!("rate = '10 Mbit/s'\nqueue = {{ kind = '{kind}', packets = 1000000, classes = [{classes}] }}"));
    let mut gps = Gps {
        bytes_per_ns: 10e6 / 8e9,
        weights: weights.iter().map(|weight| *weight as f64).collect(),
        queues: vec![VecDeque::new(); GPS_FLOWS],
        now: 0.0,
        finished: vec![Vec::new(); GPS_FLOWS],
    };
    let source = Source::new();
    let (mut over, mut at) = (vec![Vec::new(); GPS_FLOWS], Instant::ZERO);
    let mut numbers = [0u16; GPS_FLOWS];
    let mut note = |at: Instant, packet: DatagramPacket| {
        let times: &mut Vec<u64> = &mut over[usize::from(flow_of(&packet)) - 1];
        assert_eq!(packet.datagram().0.identification, times.len() as u16, "{kind}: a flow out of order");
        times.push(at.ns);
    };
    let mut offered = 0;
    while offered < packets {
        let flow = (random.next_u64() % GPS_FLOWS as u64) as usize;
        let burst = 1 + random.next_u64() % 12;
        for _ in 0..burst {
            let bytes = if random.next_u32().is_multiple_of(3) { 64 } else { 28 + random.next_u32() % 1473 };
            gps.queues[flow].push_back(f64::from(bytes));
            link.receive(at, Port(0), source.packet(flow as u16 + 1, numbers[flow], bytes));
            numbers[flow] = numbers[flow].wrapping_add(1);
            offered += 1;
        }
        // Mean of a burst: 6.5 packets of 530 B, 2.8 ms. Sometimes there is a long pause.
        let pause = if random.next_u32().is_multiple_of(200) { 60_000_000 } else { random.next_u64() % 5_200_000 };
        at += Duration::from_nanos(pause);
        arrivals(&mut link, at, &mut note);
        gps.advance(at.ns as f64);
    }
    arrivals(&mut link, at + Duration::from_secs(3600), &mut note);
    gps.advance(at.ns as f64 + 3600e9);
    let pairs = over.iter().flatten().zip(gps.finished.iter().flatten());
    assert_eq!(
        (over.iter().flatten().count() as u64, gps.finished.iter().flatten().count() as u64),
        (offered, offered)
    );
    let latest = pairs.map(|(over, fluid)| *over as f64 - fluid).fold(f64::NEG_INFINITY, f64::max);
    println!("{kind}: {:.3} times the longest packet later than GPS at most", latest / LONGEST_NS);
    latest
}

/// Parekh and Gallager, theorem 1: at most the time of the longest packet later.
#[test]
fn weighted_fair_queueing_is_a_packet_behind_the_fluid_model_at_most() {
    let latest = latest_after_gps("wfq", 1_000_000);
    assert!(latest <= LONGEST_NS + 10.0, "{latest} ns later than GPS");
    assert!(latest > 0.5 * LONGEST_NS, "far from the bound: {latest} ns");
}

/// Golestani, theorem 1, for delays: at most the time of the longest packet of each other queue later.
#[test]
fn self_clocked_fair_queueing_is_a_packet_of_each_other_queue_behind_at_most() {
    let latest = latest_after_gps("scfq", 1_000_000);
    assert!(latest <= (GPS_FLOWS - 1) as f64 * LONGEST_NS + 10.0, "{latest} ns later than GPS");
    assert!(latest > 0.5 * LONGEST_NS, "far from the bound: {latest} ns");
}

/// Every discipline, with little room.
const DISCIPLINES: &[&str] = &[
    "packets = 6",
    "kind = 'cake', bytes = '9 kB', flows = 8",
    "kind = 'cake', bytes = '9 kB', rate = '300 kbit/s', ack_filter = 'conservative', interval = '20 ms'",
    "kind = 'cake', ack_filter = 'aggressive', hosts = 'source'",
    "kind = 'codel', interval = '20 ms'",
    "kind = 'drr', packets = 6",
    "kind = 'drr', bytes = '9 kB', flows = 8",
    "kind = 'fq-codel', bytes = '9 kB', flows = 8, interval = '20 ms'",
    "kind = 'pie', burst = '0 ms'",
    "kind = 'priority', packets = 6, classes = [{ ports = [3] }, { ports = ['5-9'] }]",
    "kind = 'red', min = '2 kB', max = '6 kB', weight = 0.1",
    "kind = 'scfq', packets = 6",
    "kind = 'scfq', bytes = '9 kB', flows = 8",
    "kind = 'wfq', packets = 6",
    "kind = 'wfq', bytes = '9 kB', flows = 8",
    "kind = 'wfq', packets = 6, classes = [{ ports = [1], weight = 5 }, { ports = ['2-4'] }]",
];

/// A segment that only acknowledges, of flow `flow`.
fn acknowledgement(flow: u16, number: u16) -> DatagramPacket {
    let segment = Segment {
        source_port: 1000,
        destination_port: flow,
        acknowledgement: u32::from(number) * 1000,
        flags: flag::ACK,
        payload: Payload::Empty,
        ..Segment::default()
    };
    let mut datagram = Datagram::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Body::Tcp(segment));
    (datagram.identification, datagram.traffic_class) = (number, 2);
    DatagramPacket::new(datagram)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn packets_of_a_flow_keep_their_order_and_none_is_lost_from_sight(
        discipline in prop::sample::select(DISCIPLINES),
        offers in prop::collection::vec((0u64..40, 1u16..20, 28u32..1501, 0u8..4), 1..300),
        channels in 1usize..3,
    ) {
        let rate = format!("bundle = {{ channels = {channels}, rate = '500 kbit/s' }}");
        let mut link = link(&format!("{rate}\nqueue = {{ {discipline} }}"));
        let source = Source::new();
        let mut last: BTreeMap<(u8, u16), u16> = BTreeMap::new();
        let mut wrong = None;
        let mut check = |_: Instant, packet: DatagramPacket| {
            let Some(Headers { flow, .. }) = packet.headers(false) else { return };
            let number = packet.datagram().0.identification;
            let before = last.insert((flow.protocol, flow.destination_port), number);
            // On a bundle a short packet overtakes.
            if before.is_some_and(|before| before >= number) && channels == 1 {
                wrong = Some((flow, number));
            }
        };
        let mut at = Instant::ZERO;
        for (number, (gap_ms, flow, bytes, kind)) in offers.iter().enumerate() {
            at += Duration::from_millis(gap_ms / 4);
            arrivals(&mut link, at, &mut check);
            let packet = match kind {
                0 => acknowledgement(*flow, number as u16),
                _ => source.packet(*flow, number as u16, *bytes),
            };
            link.receive(at, Port(0), packet);
        }
        arrivals(&mut link, at + Duration::from_secs(3600), &mut check);
        prop_assert_eq!(wrong, None);
        let sender = link.directions()[0].sender_counters();
        prop_assert_eq!(sender.offered_packets, offers.len() as u64);
        prop_assert_eq!(sender.sent_packets + sender.dropped_packets, sender.offered_packets, "{:?}", sender);
        prop_assert_eq!((sender.queue_packets, sender.queue_bytes), (0, 0));
    }
}

/// The packets of a discipline keep their places however many flows there were before: idle ones are forgotten.
#[test]
fn a_flow_has_a_queue_of_its_own_after_any_number_of_others() {
    for kind in ["drr", "scfq", "wfq", "cake"] {
        let mut link = link(&format!("rate = '1 Mbit/s'\nqueue = {{ kind = '{kind}', bytes = '64 kB', flows = 8 }}"));
        let source = Source::new();
        let mut at = Instant::ZERO;
        for flow in 0..1000 {
            link.receive(at, Port(0), source.packet(flow + 10, 0, 100));
            at += Duration::from_millis(2);
            arrivals(&mut link, at, |_, _| {});
        }
        // A short packet behind ten long ones of another flow waits for two of them at most.
        for _ in 0..10 {
            link.receive(at, Port(0), source.packet(1, 0, 1500));
        }
        link.receive(at, Port(0), source.packet(2, 0, 100));
        let mut order = Vec::new();
        arrivals(&mut link, at + Duration::from_secs(1), |_, packet| order.push(flow_of(&packet)));
        let place = order.iter().position(|flow| *flow == 2).unwrap();
        assert!(order.len() == 11 && place <= 2, "{kind}: {order:?}");
    }
}
