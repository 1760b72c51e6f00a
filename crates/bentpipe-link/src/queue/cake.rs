//! A queue after CAKE (common applications kept enhanced).
//!
//! T. Høiland-Jørgensen, D. Täht and J. Morton, "Piece of CAKE: a comprehensive queue management solution for home gateways",
//! LANMAN 2018: a shaper without a burst (§III-A), fair shares for hosts and, within a host's, for its flows (§III-B), flows
//! told apart by a table of sets of eight (§III-C), a filter for acknowledgements (§III-E). Each flow's queue has a CoDel
//! (RFC 8289), without the BLUE that CAKE's COBALT adds, and there is one priority tin instead of CAKE's four.

use super::codel::{Codel, CodelConfig, CodelQueue};
use super::flows::{FlowTable, read_flows};
use super::fq_codel::read_quantum;
use super::turns::Turns;
use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueLimit, QueueSpec, Ticket};
use crate::registry::QueueContext;
use bentpipe_net::datagram::flag;
use bentpipe_net::headers::{Headers, TcpSummary};
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::seed::Stream;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::{BitRate, DataSize};
use std::collections::BTreeMap;
use std::net::IpAddr;
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
    rate: Option<BitRate>,
    overhead: Option<DataSize>,
    #[serde(default)]
    hosts: Hosts,
    #[serde(default)]
    ack_filter: AckFilter,
}

/// Between which hosts the link is shared, before each one's flows share its part.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Hosts {
    /// Flows alone.
    None,
    /// Senders.
    Source,
    /// Receivers.
    Destination,
    /// Both: a flow's part is the smaller one.
    #[default]
    Both,
}

/// Which acknowledgements that wait a newer one of the flow replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum AckFilter {
    /// None.
    #[default]
    None,
    /// All but the last two of those in a row.
    Conservative,
    /// All but the last of those in a row.
    Aggressive,
}

#[derive(Clone, Copy, Debug)]
struct CakeConfig {
    limit: QueueLimit,
    codel: CodelConfig,
    flows: usize,
    quantum: i64,
    rate: Option<BitRate>,
    overhead: u64,
    hosts: Hosts,
    ack_filter: AckFilter,
}

/// Reads the table of `kind = "cake"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let keys: Keys = read_keys(keys)?;
    if keys.rate.is_some_and(|rate| rate.bps == 0) {
        return Err(KeyProblem::new("rate", "0 bit/s carries nothing; allowed: 1 bit/s or more"));
    }
    let overhead = keys.overhead.map_or(0, |overhead| overhead.bytes);
    if overhead > 256 {
        return Err(KeyProblem::new("overhead", format!("{overhead} B is out of range; allowed: 0 B to 256 B")));
    }
    let config = CakeConfig {
        limit: QueueLimit::read(keys.bytes, keys.packets, context)?,
        codel: CodelConfig::new(keys.target, keys.interval, keys.ecn, &shaped(context, keys.rate))?,
        flows: read_flows(keys.flows)?,
        quantum: read_quantum(keys.quantum, context)?,
        rate: keys.rate,
        overhead,
        hosts: keys.hosts,
        ack_filter: keys.ack_filter,
    };
    let make = move |random| Box::new(Cake::new(config, random)) as Box<_>;
    Ok(QueueConfig::Discipline(QueueSpec::new("cake", make)))
}

/// The link as its packets find it behind the shaper.
fn shaped(context: &QueueContext, rate: Option<BitRate>) -> QueueContext {
    let rate = rate.map_or(context.rate, |rate| rate.min(context.rate));
    QueueContext { rate, ..context.clone() }
}

#[derive(Debug)]
struct Cake {
    config: CakeConfig,
    table: FlowTable,
    /// One for each place of the table, and one for flows without a place.
    flows: Vec<Flow>,
    turns: Turns,
    sources: HostTable,
    destinations: HostTable,
    packets: u64,
    bytes: u64,
    /// When the shaper lets the next packet leave.
    next_slot: Instant,
}

#[derive(Debug, Default)]
struct Flow {
    queue: CodelQueue<Option<Ack>>,
    control: Codel,
    credit: i64,
    /// While it has turns: its hosts.
    listed: Option<FlowHosts>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct FlowHosts {
    source: Option<usize>,
    destination: Option<usize>,
}

/// Counts the listed flows of each host that has any.
#[derive(Debug, Default)]
struct HostTable {
    numbers: BTreeMap<IpAddr, usize>,
    hosts: Vec<Host>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Host {
    address: IpAddr,
    flows: i64,
}

impl HostTable {
    fn add_flow(&mut self, address: IpAddr) -> usize {
        let HostTable { numbers, hosts, free } = self;
        let number = *numbers.entry(address).or_insert_with(|| {
            let host = Host { address, flows: 0 };
            match free.pop() {
                Some(number) => {
                    hosts[number] = host;
                    number
                }
                None => {
                    hosts.push(host);
                    hosts.len() - 1
                }
            }
        });
        self.hosts[number].flows += 1;
        number
    }

    fn remove_flow(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        host.flows -= 1;
        if host.flows == 0 {
            self.numbers.remove(&host.address);
            self.free.push(number);
        }
    }

    fn flows_of(&self, number: Option<usize>) -> i64 {
        number.map_or(1, |number| self.hosts[number].flows)
    }
}

/// A TCP segment that does nothing but acknowledge.
#[derive(Clone, Copy, Debug)]
struct Ack {
    acknowledgement: u32,
    flags: u8,
    has_sack: bool,
}

impl Ack {
    fn of(headers: &Headers) -> Option<Ack> {
        let TcpSummary { acknowledgement, flags, has_sack, .. } = headers.tcp.filter(|_| headers.is_pure_ack())?;
        Some(Ack { acknowledgement, flags, has_sack })
    }

    /// `newer`, which follows it, tells its receiver everything that it does. One that repeats an acknowledgement, carries SACK
    /// blocks or reports congestion differently is kept: it tells something of its own.
    fn is_replaced_by(&self, newer: &Ack) -> bool {
        const CONGESTION: u8 = flag::ECE | flag::CWR;
        let advance = newer.acknowledgement.wrapping_sub(self.acknowledgement);
        (1..1 << 31).contains(&advance) && self.flags & CONGESTION == newer.flags & CONGESTION && !self.has_sack
    }
}

impl Cake {
    fn new(config: CakeConfig, mut random: Stream) -> Cake {
        Cake {
            config,
            table: FlowTable::new(config.flows, &mut random),
            flows: std::iter::repeat_with(Flow::default).take(config.flows + 1).collect(),
            turns: Turns::default(),
            sources: HostTable::default(),
            destinations: HostTable::default(),
            packets: 0,
            bytes: 0,
            next_slot: Instant::ZERO,
        }
    }

    /// Its place, or the queue for those without one. As in [`super::backlog`] a flow is never in both.
    fn flow_of(&mut self, headers: Option<&Headers>) -> usize {
        let shared = self.table.len();
        let may_add = self.flows[shared].queue.len() == 0;
        self.table.place_of(headers, may_add).unwrap_or(shared)
    }

    /// Drops what `ack`, the newest packet of its flow, makes superfluous.
    fn filter_acks(&mut self, number: usize, ack: &Ack, drops: &mut Drops) {
        let queue = &mut self.flows[number].queue;
        let kept = match self.config.ack_filter {
            AckFilter::None => return,
            AckFilter::Conservative => 1,
            AckFilter::Aggressive => 0,
        };
        // Those before were filtered when they came: one more at most is superfluous now.
        let Some(place) = queue.len().checked_sub(2 + kept) else { return };
        let replaced =
            |place: usize| queue.get(place).and_then(|entry| entry.kept).is_some_and(|old| old.is_replaced_by(ack));
        if (place..=place + kept).all(replaced)
            && let Some(ticket) = queue.remove(place)
        {
            self.packets -= 1;
            self.bytes -= u64::from(ticket.bytes);
            drops.push(ticket);
        }
    }

    fn list(&mut self, number: usize, headers: Option<&Headers>) {
        let (by_source, by_destination) = match self.config.hosts {
            Hosts::None => (false, false),
            Hosts::Source => (true, false),
            Hosts::Destination => (false, true),
            Hosts::Both => (true, true),
        };
        // Flows without a place of their own have no host.
        let flow = headers.map(|headers| headers.flow).filter(|_| number < self.table.len());
        let hosts = FlowHosts {
            source: flow.filter(|_| by_source).map(|flow| self.sources.add_flow(flow.source)),
            destination: flow.filter(|_| by_destination).map(|flow| self.destinations.add_flow(flow.destination)),
        };
        let flow = &mut self.flows[number];
        flow.listed = Some(hosts);
        flow.credit = self.config.quantum;
        self.turns.add(number);
    }

    fn unlist(&mut self, number: usize) {
        if let Some(hosts) = self.flows[number].listed.take() {
            hosts.source.into_iter().for_each(|host| self.sources.remove_flow(host));
            hosts.destination.into_iter().for_each(|host| self.destinations.remove_flow(host));
        }
        self.flows[number].control = Codel::default();
        self.table.release(number);
    }

    /// A flow's part of the quantum: its hosts' flows share one.
    fn grant(&self, number: usize) -> i64 {
        let flows = self.flows[number]
            .listed
            .map_or(1, |hosts| self.sources.flows_of(hosts.source).max(self.destinations.flows_of(hosts.destination)));
        (self.config.quantum / flows.max(1)).max(1)
    }

    /// Drops packets from the head of the longest queue.
    fn make_room(&mut self, drops: &mut Drops) {
        if let Some(longest) = self.turns.iter().max_by_key(|flow| self.flows[*flow].queue.bytes()) {
            let (packets, bytes) = self.flows[longest].queue.drop_half(drops);
            self.packets -= packets;
            self.bytes -= bytes;
        }
    }

    fn next_of_a_flow(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure> {
        loop {
            let number = self.turns.first()?;
            if self.flows[number].credit <= 0 {
                self.flows[number].credit += self.grant(number);
                self.turns.rotate();
                continue;
            }
            let flow = &mut self.flows[number];
            let before = (flow.queue.len() as u64, flow.queue.bytes());
            let departure = flow.control.dequeue(&self.config.codel, now, &mut flow.queue, drops);
            self.packets -= before.0 - flow.queue.len() as u64;
            self.bytes -= before.1 - flow.queue.bytes();
            if let Some(departure) = departure {
                flow.credit -= i64::from(departure.ticket.bytes);
                return Some(departure);
            }
            if self.turns.end_first() {
                self.unlist(number);
            }
        }
    }
}

impl QueueDiscipline for Cake {
    fn enqueue(&mut self, _now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        let number = self.flow_of(headers);
        let ack = if self.config.ack_filter == AckFilter::None { None } else { headers.and_then(Ack::of) };
        self.packets += 1;
        self.bytes += u64::from(ticket.bytes);
        self.flows[number].queue.push(ticket, headers, ack);
        if let Some(ack) = &ack {
            self.filter_acks(number, ack, drops);
        }
        if self.flows[number].listed.is_none() {
            self.list(number, headers);
        }
        while !self.config.limit.holds(self.packets, self.bytes) {
            self.make_room(drops);
        }
    }

    fn dequeue(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure> {
        if self.next_slot > now {
            return None;
        }
        let departure = self.next_of_a_flow(now, drops)?;
        if let Some(rate) = self.config.rate {
            let bits = (u64::from(departure.ticket.bytes) + self.config.overhead) * 8;
            self.next_slot = now + rate.time_for_bits(bits);
        }
        Some(departure)
    }

    fn next_departure(&self) -> Instant {
        if self.packets == 0 { Instant::FAR } else { self.next_slot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::harness::{
        Event, Fate, Offer, constant, context, discipline, run, sent_bytes, tcp, together, udp,
    };

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Host 1 has nine flows, host 2 one, each at the rate of the link; each flow has a receiver of its own.
    fn share_of_host_2(hosts: &str) -> f64 {
        let flows = (1..=10u8).map(|number| {
            let source = if number == 10 { 2 } else { 1 };
            constant(1000, 2_000_000, at(0), at(20_000), udp(source, 100 + number, u16::from(number), false))
        });
        let offers = together(flows);
        let mut cake = discipline(&format!("kind = 'cake'\npackets = 100000\nhosts = '{hosts}'"), 2_000_000);
        let events = run(&mut *cake, 2_000_000, &offers);
        sent_bytes(&offers, &events, 10, at(1000), at(20_000)) as f64 / (19.0 * 250_000.0)
    }

    #[test]
    fn hosts_have_equal_shares_whatever_their_flows() {
        for (hosts, expected) in [("both", 0.5), ("source", 0.5), ("destination", 0.1), ("none", 0.1)] {
            let share = share_of_host_2(hosts);
            assert!((share - expected).abs() < 0.01 * expected + 0.002, "{hosts}: {share}");
        }
    }

    #[test]
    fn the_shaper_lets_packets_leave_at_its_rate_without_a_burst() {
        let offers = constant(980, 2_000_000, at(0), at(1000), udp(1, 2, 3, false));
        let mut cake = discipline("kind = 'cake'\nrate = '800 kbit/s'\noverhead = '20 B'", 10_000_000);
        let events = run(&mut *cake, 10_000_000, &offers);
        let sent: Vec<Instant> = events.iter().filter(|event| event.fate == Fate::Sent).map(|event| event.at).collect();
        assert!(sent.len() > 100);
        assert!(sent.windows(2).all(|pair| pair[1].since(pair[0]) == Duration::from_millis(10)), "{sent:?}");
    }

    fn ack(acknowledgement: u32) -> TcpSummary {
        TcpSummary { sequence: 1, acknowledgement, flags: flag::ACK, data_bytes: 0, has_sack: false }
    }

    /// The numbers of those left of segments that all wait at once behind another flow's packet.
    fn left(filter: &str, segments: &[TcpSummary]) -> Vec<usize> {
        let mut offers = vec![Offer { at: at(0), bytes: 1500, headers: udp(1, 2, 3, false) }];
        offers.extend(segments.iter().map(|segment| Offer { at: at(0), bytes: 40, headers: tcp(*segment) }));
        let mut cake = discipline(&format!("kind = 'cake'\nack_filter = '{filter}'"), 1_000_000);
        let events: Vec<Event> = run(&mut *cake, 1_000_000, &offers);
        assert_eq!(events.len(), offers.len());
        let sent = events.iter().filter(|event| event.fate == Fate::Sent && event.id > 0);
        sent.map(|event| event.id - 1).collect()
    }

    #[test]
    fn a_newer_acknowledgement_replaces_those_that_wait() {
        let row = [ack(1000), ack(2000), ack(3000), ack(4000)];
        assert_eq!(left("none", &row), [0, 1, 2, 3]);
        assert_eq!(left("conservative", &row), [2, 3]);
        assert_eq!(left("aggressive", &row), [3]);
        assert_eq!(left("aggressive", &[ack(u32::MAX - 5), ack(20)]), [1], "numbers wrap");
    }

    #[test]
    fn what_tells_something_of_its_own_is_kept() {
        let all =
            |segments: &[TcpSummary]| assert_eq!(left("aggressive", segments).len(), segments.len(), "{segments:?}");
        all(&[ack(1000), ack(1000), ack(1000)]); // duplicates ask for a retransmission
        all(&[TcpSummary { has_sack: true, ..ack(1000) }, ack(2000)]);
        all(&[TcpSummary { flags: flag::ACK | flag::ECE, ..ack(1000) }, ack(2000)]);
        all(&[TcpSummary { data_bytes: 1, ..ack(1000) }, ack(2000)]);
        all(&[TcpSummary { flags: flag::ACK | flag::FIN, ..ack(1000) }, ack(2000)]);
        all(&[ack(2000), ack(1000)]);
        all(&[ack(1000), TcpSummary { data_bytes: 5, ..ack(2000) }]);
    }

    #[test]
    fn a_host_without_flows_is_forgotten() {
        let flows = (1..=200u8).map(|host| {
            constant(100, 8_000, at(u64::from(host) * 100), at(u64::from(host) * 100 + 1), udp(host, 250, 1, false))
        });
        let offers = together(flows);
        let config = CakeConfig {
            limit: QueueLimit::Packets(10),
            codel: CodelConfig::new(None, None, None, &context(1_000_000)).unwrap(),
            flows: 64,
            quantum: 1500,
            rate: None,
            overhead: 0,
            hosts: Hosts::Both,
            ack_filter: AckFilter::None,
        };
        let mut cake = Cake::new(config, bentpipe_net::seed::Seed(1).stream("cake"));
        run(&mut cake, 1_000_000, &offers);
        assert!(cake.sources.numbers.is_empty() && cake.sources.hosts.len() == 1, "{:?}", cake.sources);
        assert_eq!(cake.turns.first(), None);
    }

    #[test]
    fn mistakes_name_their_key() {
        for (keys, key) in [
            ("rate = '0 bit/s'", "rate"),
            ("overhead = '300 B'", "overhead"),
            ("hosts = 'all'", "hosts"),
            ("ack_filter = true", "ack_filter"),
            ("flows = 9", "flows"),
        ] {
            assert_eq!(read(toml::from_str(keys).unwrap(), &context(1_000_000)).unwrap_err().key, key, "{keys}");
        }
    }
}
