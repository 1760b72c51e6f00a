//! A transmitter for tests of one discipline: packets in at given times, departures and drops out with theirs.

use super::{Departure, Drops, QueueConfig, QueueDiscipline, Ticket};
use crate::registry::{QueueContext, Registry};
use bentpipe_net::flow::FlowKey;
use bentpipe_net::headers::{Headers, TcpSummary, protocol};
use bentpipe_net::seed::Seed;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use std::net::IpAddr;

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub at: Instant,
    pub bytes: u32,
    pub headers: Option<Headers>,
}

/// The end of a packet in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its number among the offers.
    pub id: usize,
    /// When it left the queue, or was dropped.
    pub at: Instant,
    pub fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Sent,
    SentMarked,
    Dropped,
}

/// The link of a context with this rate.
pub(super) fn context(bps: u64) -> QueueContext {
    let rate = BitRate::from_bps(bps);
    QueueContext::new(1500, rate, rate.bytes_in(Duration::from_millis(600)).max(15_000))
}

/// The discipline that the text of a `queue` table names.
pub(super) fn discipline(keys: &str, bps: u64) -> Box<dyn QueueDiscipline> {
    match Registry::standard().queue(toml::from_str(keys).unwrap(), &context(bps)).unwrap() {
        QueueConfig::Discipline(spec) => spec.build(Seed(1).stream("queue")),
        QueueConfig::Fifo(_) => panic!("a FIFO: {keys}"),
    }
}

/// A UDP packet's headers; hosts are 10.0.0.N.
pub(super) fn udp(source: u8, destination: u8, port: u16, is_ecn_capable: bool) -> Option<Headers> {
    let host = |number| IpAddr::from([10, 0, 0, number]);
    let flow = FlowKey {
        source: host(source),
        destination: host(destination),
        protocol: protocol::UDP,
        source_port: 1000,
        destination_port: port,
    };
    Some(Headers { flow, traffic_class: if is_ecn_capable { 2 } else { 0 }, tcp: None })
}

/// A TCP segment's headers, of a flow with no other properties.
pub(super) fn tcp(summary: TcpSummary) -> Option<Headers> {
    let mut headers = udp(1, 2, 80, false)?;
    headers.flow.protocol = protocol::TCP;
    headers.tcp = Some(summary);
    Some(headers)
}

/// Packets of `bytes` at this rate, from `from` to `to`.
pub(super) fn constant(bytes: u32, bps: u64, from: Instant, to: Instant, headers: Option<Headers>) -> Vec<Offer> {
    let gap = u128::from(bytes) * 8_000_000_000;
    let times = (0u128..).map(|n| from + Duration { ns: (n * gap / u128::from(bps)) as u64 });
    times.take_while(|at| *at < to).map(|at| Offer { at, bytes, headers }).collect()
}

/// Several sources as one, in the order of time.
pub(super) fn together(sources: impl IntoIterator<Item = Vec<Offer>>) -> Vec<Offer> {
    let mut offers: Vec<Offer> = sources.into_iter().flatten().collect();
    offers.sort_by_key(|offer| offer.at);
    offers
}

/// Sends the offers over a link of this rate until the queue is empty.
pub(super) fn run(discipline: &mut dyn QueueDiscipline, bps: u64, offers: &[Offer]) -> Vec<Event> {
    let rate = BitRate::from_bps(bps);
    let (mut events, mut drops) = (Vec::new(), Drops::default());
    let (mut now, mut free) = (Instant::ZERO, None);
    let mut coming = offers.iter().enumerate().peekable();
    let note = |drops: &mut Drops, at, events: &mut Vec<Event>| {
        let ids = drops.tickets.drain(..).map(|ticket| ticket.slot as usize);
        events.extend(ids.map(|id| Event { id, at, fate: Fate::Dropped }));
    };
    loop {
        // As a link does, it asks whenever a packet is out, and for packets that are held back when they may leave.
        let ready = free.unwrap_or_else(|| discipline.next_departure().max(now));
        if let Some((id, offer)) = coming.next_if(|(_, offer)| offer.at <= ready) {
            now = offer.at;
            let ticket = Ticket { slot: id as u32, bytes: offer.bytes, arrival: now };
            discipline.enqueue(now, ticket, offer.headers.as_ref(), &mut drops);
            note(&mut drops, now, &mut events);
            continue;
        }
        if ready == Instant::FAR {
            return events;
        }
        now = ready;
        let departure = discipline.dequeue(now, &mut drops);
        note(&mut drops, now, &mut events);
        free = departure.as_ref().map(|sent| now + rate.time_for_bits(u64::from(sent.ticket.bytes) * 8));
        if let Some(Departure { ticket, mark }) = departure {
            let fate = if mark { Fate::SentMarked } else { Fate::Sent };
            events.push(Event { id: ticket.slot as usize, at: now, fate });
        }
    }
}

/// Bytes sent of each flow, by destination port, of packets that left in a span of time.
pub(super) fn sent_bytes(offers: &[Offer], events: &[Event], port: u16, from: Instant, to: Instant) -> u64 {
    let sent = events.iter().filter(|event| event.fate != Fate::Dropped && (from..to).contains(&event.at));
    let of_port =
        sent.filter(|event| offers[event.id].headers.is_some_and(|headers| headers.flow.destination_port == port));
    of_port.map(|event| u64::from(offers[event.id].bytes)).sum()
}
