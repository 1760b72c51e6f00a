//! Queues of reserved flows before one queue for everything else.
//!
//! Reserved flows and the rest share the link by worst-case fair weighted fair queueing, WF²Q+ (J. C. R. Bennett and H. Zhang,
//! "Hierarchical packet fair queueing algorithms", IEEE/ACM Transactions on Networking 5(5), 1997): each reserved flow gets the
//! rate of its reservation, the rest what is left of the link's, and what one does not use is the others'. A packet leaves at most
//! the time of one longest packet later than it would alone at its rate. Within the rest, each flow has its turn
//! (deficit round robin).
//!
//! A reserved flow has room for its token bucket, and two packets more: one that keeps to its reservation never overflows it.
//! What it sends beyond waits for what others leave, and is dropped where there is no room: the packets of a flow stay in
//! order, and nobody else is harmed (RFC 2211 §3.3, RFC 2212 §3.3).
//!
//! Reservations stand in the link's file, as in routers that are configured as if somebody had signalled, and they are refused
//! there when they are more than the share of the link's rate that may be reserved; or whoever drives the link makes and ends
//! them while it runs ([`ReservedQueue::install`]). Messages of RSVP (RFC 2205) go before everything else, so that a full link
//! does not end reservations.

use super::classes::{ClassText, Classifier};
use super::{Departure, Drops, QueueConfig, QueueDiscipline, QueueSpec, Ticket, drr};
use crate::registry::QueueContext;
use bentpipe_net::flow::FlowKey;
use bentpipe_net::headers::{Headers, protocol};
use bentpipe_net::problem::{KeyProblem, read as read_keys};
use bentpipe_net::seed::Stream;
use bentpipe_net::time::Instant;
use bentpipe_net::units::{BitRate, DataSize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;
use toml::{Table, Value};

/// The part of a link's rate that may be reserved unless its file says otherwise: Cisco IOS' `ip rsvp bandwidth`, as in the
/// ASI/CNIT trial.
const SHARE_DEFAULT: f64 = 0.75;
const SHARE_MAX: f64 = 0.99;
/// RSVP messages that may wait.
const MESSAGES_MAX: usize = 256;
/// The class of what has no reservation.
const REST: usize = 0;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    share: Option<f64>,
    reservations: Option<Vec<Table>>,
    // Of the rest, read there.
    bytes: Option<Value>,
    packets: Option<Value>,
    flows: Option<Value>,
}

/// The keys of one of `reservations`, besides those that say which packets it is for.
#[derive(serde::Deserialize)]
struct ReservationKeys {
    rate: BitRate,
    burst: Option<DataSize>,
}

/// A reservation in a link's file.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Reservation {
    /// In bytes a second.
    rate: f64,
    /// In bytes.
    burst: f64,
}

/// Reads the table of `kind = "reservations"`.
pub(crate) fn read(keys: Table, context: &QueueContext) -> Result<QueueConfig, KeyProblem> {
    let Keys { share, reservations, bytes, packets, flows } = read_keys(keys)?;
    let rest = [("bytes", bytes), ("packets", packets), ("flows", flows)];
    let rest: Table = rest.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    let share = share.unwrap_or(SHARE_DEFAULT);
    if !(0.0..=SHARE_MAX).contains(&share) {
        return Err(KeyProblem::new("share", format!("{share} is out of range; allowed: 0 to {SHARE_MAX}")));
    }
    let capacity = Capacity { rate: context.rate, share };
    let fixed = reservations.map(|tables| read_reservations(tables, capacity, context)).transpose()?;
    let (classifier, fixed) = fixed.unzip();
    let fixed = fixed.unwrap_or_default();
    let QueueConfig::Discipline(rest) = drr::read(rest, context)? else { unreachable!("drr is a discipline") };
    let longest = context.packet_bytes_max as u32;
    let make = move |random: Stream| {
        let queue = ReservedQueue::new(capacity, longest, rest.build(random));
        Box::new(queue.with_fixed(classifier.clone(), &fixed)) as Box<_>
    };
    Ok(QueueConfig::Discipline(QueueSpec::new("reservations", make)))
}

/// The packets of each reservation, and what it has.
fn read_reservations(
    tables: Vec<Table>,
    capacity: Capacity,
    context: &QueueContext,
) -> Result<(Classifier, Vec<Reservation>), KeyProblem> {
    let mut classes = Vec::new();
    let mut fixed = Vec::new();
    for (number, table) in tables.into_iter().enumerate() {
        let under = |problem: KeyProblem| problem.under(&format!("reservations.{number}"));
        let (own, conditions): (Table, Table) =
            table.into_iter().partition(|(key, _)| ["rate", "burst"].contains(&key.as_str()));
        let ReservationKeys { rate, burst } = read_keys(own).map_err(under)?;
        let class: ClassText = read_keys(conditions).map_err(under)?;
        if !class.has_conditions() {
            let what = "does not say which packets it is for; allowed: addresses, source, destination, ports, protocol, \
                        dscp or workload";
            return Err(under(KeyProblem::new("", what)));
        }
        classes.push(class);
        let burst = burst.map_or(2 * context.packet_bytes_max, |burst| burst.bytes);
        fixed.push(Reservation { rate: rate.bps as f64 / 8.0, burst: burst as f64 });
    }
    let reserved: f64 = fixed.iter().map(|reservation| reservation.rate).sum();
    if reserved > capacity.reservable() * (1.0 + 1e-9) {
        let what = format!(
            "are {} altogether; allowed: share × the link's rate = {}",
            BitRate::from_bps((reserved * 8.0).round() as u64),
            BitRate::from_bps((capacity.reservable() * 8.0).round() as u64),
        );
        return Err(KeyProblem::new("reservations", what));
    }
    Ok((Classifier::read_list("reservations", classes, false, context)?, fixed))
}

/// The rate of a link, and how much of it may be reserved.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Capacity {
    /// All channels together.
    pub rate: BitRate,
    /// From 0 to 1.
    pub share: f64,
}

impl Capacity {
    /// The most that may be reserved, in bytes a second.
    #[must_use]
    pub fn reservable(self) -> f64 {
        self.rate.bps as f64 / 8.0 * self.share
    }
}

/// Identifies a reservation of a queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ReservationId(pub u32);

/// The packets that a reservation is for (RFC 2205 §1.1): those to an address and port, from one sender or from any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowFilter {
    /// See [`protocol`].
    pub protocol: u8,
    /// The receiver, or the group. Port 0: any.
    pub destination: SocketAddrV4,
    /// The sender, port 0 for any; `None`: any sender.
    pub source: Option<SocketAddrV4>,
}

/// A queue discipline whose flows can be given a rate while it runs.
#[derive(Debug)]
pub struct ReservedQueue {
    capacity: Capacity,
    longest: u32,
    /// The first one is the rest; free places are `None`.
    classes: Vec<Option<Class>>,
    free: Vec<usize>,
    by_id: BTreeMap<ReservationId, usize>,
    filters: BTreeMap<FlowFilter, usize>,
    /// Of the file's reservations, the first of which has place 1; its last class is the rest.
    classifier: Option<Classifier>,
    fixed: usize,
    rest: Box<dyn QueueDiscipline>,
    messages: VecDeque<Ticket>,
    /// Virtual time, in seconds of the whole link.
    now: f64,
    /// Classes with packets whose first one may not start yet, by its start.
    waiting: BTreeSet<(Key, usize)>,
    /// The others, by the first one's finish.
    eligible: BTreeSet<(Key, usize)>,
}

#[derive(Debug)]
struct Class {
    /// In bytes a second.
    rate: f64,
    packets: VecDeque<Ticket>,
    bytes: u64,
    room: u64,
    start: f64,
    finish: f64,
    /// Has packets, and an entry in `waiting` or `eligible`.
    is_backlogged: bool,
    /// Ends when it is empty.
    is_closing: bool,
}

/// A virtual time as a key; times are finite and not negative, so their bits are in their order.
type Key = u64;

fn key(time: f64) -> Key {
    time.to_bits()
}

impl Class {
    fn new(rate: f64, room: u64) -> Class {
        let (packets, bytes) = (VecDeque::new(), 0);
        Class { rate, packets, bytes, room, start: 0.0, finish: 0.0, is_backlogged: false, is_closing: false }
    }
}

impl ReservedQueue {
    fn new(capacity: Capacity, longest: u32, rest: Box<dyn QueueDiscipline>) -> ReservedQueue {
        ReservedQueue {
            capacity,
            longest,
            classes: vec![Some(Class::new(capacity.rate.bps as f64 / 8.0, u64::MAX))],
            free: Vec::new(),
            by_id: BTreeMap::new(),
            filters: BTreeMap::new(),
            classifier: None,
            fixed: 0,
            rest,
            messages: VecDeque::new(),
            now: 0.0,
            waiting: BTreeSet::new(),
            eligible: BTreeSet::new(),
        }
    }

    /// The same with reservations that stay.
    fn with_fixed(mut self, classifier: Option<Classifier>, fixed: &[Reservation]) -> ReservedQueue {
        let class = |Reservation { rate, burst }: &Reservation| Some(Class::new(*rate, self.room(*burst)));
        let classes: Vec<_> = fixed.iter().map(class).collect();
        self.classes.extend(classes);
        (self.classifier, self.fixed) = (classifier, fixed.len());
        self.share_out();
        self
    }

    /// Bytes that a reservation with room for such a burst may have waiting.
    fn room(&self, burst: f64) -> u64 {
        burst as u64 + 2 * u64::from(self.longest)
    }

    /// The link's rate and the share that may be reserved.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The rates that are reserved now, in bytes a second.
    #[must_use]
    pub fn reserved(&self) -> f64 {
        let places = (1..=self.fixed).chain(self.by_id.values().copied());
        places.filter_map(|place| self.classes[place].as_ref()).map(|class| class.rate).sum()
    }

    /// Gives flows a rate in bytes a second, and room for a burst of `depth` bytes; or changes what a reservation of this
    /// identity has. Whether it fits the link is for whoever calls to know ([`Capacity::reservable`]).
    pub fn install(&mut self, id: ReservationId, filters: &[FlowFilter], rate: f64, depth: f64) {
        let rate = rate.max(1.0);
        let room = self.room(depth);
        let place = match self.by_id.get(&id) {
            Some(place) => *place,
            None => {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.classes.push(None);
                    self.classes.len() - 1
                });
                self.classes[place] = Some(Class::new(rate, room));
                self.by_id.insert(id, place);
                place
            }
        };
        if let Some(class) = &mut self.classes[place] {
            (class.rate, class.room) = (rate, room);
        }
        self.filters.retain(|_, of| *of != place);
        self.filters.extend(filters.iter().map(|filter| (*filter, place)));
        self.share_out();
    }

    /// Ends a reservation. What waits still leaves in its order; what comes from now on belongs to the rest.
    pub fn remove(&mut self, id: ReservationId) {
        let Some(place) = self.by_id.remove(&id) else { return };
        self.filters.retain(|_, of| *of != place);
        if let Some(class) = &mut self.classes[place] {
            class.is_closing = true;
            if !class.is_backlogged {
                self.close(place);
            }
        }
        self.share_out();
    }

    fn close(&mut self, place: usize) {
        self.classes[place] = None;
        self.free.push(place);
    }

    /// The rest gets what is not reserved, a hundredth of the link at least.
    fn share_out(&mut self) {
        let all = self.capacity.rate.bps as f64 / 8.0;
        let left = (all - self.reserved()).max(all / 100.0);
        if let Some(rest) = &mut self.classes[REST] {
            rest.rate = left;
        }
    }

    /// The class of a packet.
    fn class_of(&self, headers: Option<&Headers>) -> usize {
        if self.filters.is_empty() {
            return self.fixed_class_of(headers);
        }
        let Some(Headers { flow, .. }) = headers else { return REST };
        let FlowKey { source, destination, protocol, source_port, destination_port } = flow;
        let (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) = (source, destination) else {
            return REST;
        };
        let ports = |from: u16, to: u16, any: bool| FlowFilter {
            protocol: *protocol,
            destination: SocketAddrV4::new(*destination, to),
            source: (!any).then(|| SocketAddrV4::new(*source, from)),
        };
        // From the narrowest filter to the widest.
        let (from, to) = (*source_port, *destination_port);
        let tries =
            [ports(from, to, false), ports(0, to, false), ports(0, 0, false), ports(0, to, true), ports(0, 0, true)];
        let found = tries.iter().find_map(|filter| self.filters.get(filter)).copied();
        found.unwrap_or_else(|| self.fixed_class_of(headers))
    }

    /// The same by the file's reservations.
    fn fixed_class_of(&self, headers: Option<&Headers>) -> usize {
        let number = self.classifier.as_ref().map(|classifier| classifier.class_of(headers));
        number.filter(|number| *number < self.fixed).map_or(REST, |number| number + 1)
    }

    /// A class has a packet at its head, after it had none or another one.
    fn enter(&mut self, place: usize, bytes: u32, was_idle: bool) {
        let Some(class) = &mut self.classes[place] else { return };
        class.start = if was_idle { class.finish.max(self.now) } else { class.finish };
        class.finish = class.start + f64::from(bytes) / class.rate;
        class.is_backlogged = true;
        if class.start <= self.now {
            self.eligible.insert((key(class.finish), place));
        } else {
            self.waiting.insert((key(class.start), place));
        }
    }

    /// The class whose packet leaves next.
    fn choose(&mut self) -> Option<usize> {
        if self.eligible.is_empty() {
            let (start, _) = self.waiting.first()?;
            self.now = self.now.max(f64::from_bits(*start));
        }
        while let Some((start, place)) = self.waiting.first().copied()
            && start <= key(self.now)
        {
            self.waiting.pop_first();
            if let Some(class) = &self.classes[place] {
                self.eligible.insert((key(class.finish), place));
            }
        }
        self.eligible.pop_first().map(|(_, place)| place)
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.eligible.is_empty()
    }

    /// The link has sent so much for a class.
    fn work(&mut self, bytes: u32) {
        self.now += f64::from(bytes) / (self.capacity.rate.bps as f64 / 8.0);
        if self.is_empty() {
            // A busy period is over: numbers stay small, and so exact.
            self.now = 0.0;
            self.classes.iter_mut().flatten().for_each(|class| class.finish = 0.0);
        }
    }

    fn dequeue_rest(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure> {
        let departure = self.rest.dequeue(now, drops);
        let bytes = departure.as_ref().map_or(0, |departure| departure.ticket.bytes);
        if let Some(class) = &mut self.classes[REST] {
            // Its finish was that of a longest packet: nobody knows which one the discipline will choose.
            class.finish = class.start + f64::from(bytes) / class.rate;
            class.is_backlogged = false;
        }
        if self.rest.next_departure() != Instant::FAR {
            self.enter(REST, self.longest, false);
        }
        departure
    }

    fn dequeue_reserved(&mut self, place: usize) -> Option<Departure> {
        let class = self.classes[place].as_mut()?;
        let ticket = class.packets.pop_front()?;
        class.bytes -= u64::from(ticket.bytes);
        class.is_backlogged = false;
        match class.packets.front().map(|next| next.bytes) {
            Some(bytes) => self.enter(place, bytes, false),
            None if class.is_closing => self.close(place),
            None => {}
        }
        Some(ticket.into())
    }
}

impl QueueDiscipline for ReservedQueue {
    fn enqueue(&mut self, now: Instant, ticket: Ticket, headers: Option<&Headers>, drops: &mut Drops) {
        if headers.is_some_and(|headers| headers.flow.protocol == protocol::RSVP) {
            if self.messages.len() < MESSAGES_MAX {
                self.messages.push_back(ticket);
            } else {
                drops.push(ticket);
            }
            return;
        }
        let place = self.class_of(headers);
        let bytes = ticket.bytes;
        if place == REST {
            self.rest.enqueue(now, ticket, headers, drops);
            let is_idle = self.classes[REST].as_ref().is_some_and(|class| !class.is_backlogged);
            if is_idle && self.rest.next_departure() != Instant::FAR {
                self.enter(REST, self.longest, true);
            }
            return;
        }
        let Some(class) = &mut self.classes[place] else { return drops.push(ticket) };
        if class.bytes + u64::from(bytes) > class.room {
            return drops.push(ticket);
        }
        class.bytes += u64::from(bytes);
        class.packets.push_back(ticket);
        if !class.is_backlogged {
            self.enter(place, bytes, true);
        }
    }

    fn dequeue(&mut self, now: Instant, drops: &mut Drops) -> Option<Departure> {
        if let Some(message) = self.messages.pop_front() {
            return Some(message.into());
        }
        while let Some(place) = self.choose() {
            let departure = if place == REST { self.dequeue_rest(now, drops) } else { self.dequeue_reserved(place) };
            if let Some(departure) = departure {
                self.work(departure.ticket.bytes);
                return Some(departure);
            }
        }
        None
    }

    fn next_departure(&self) -> Instant {
        if self.messages.is_empty() && self.is_empty() { Instant::FAR } else { Instant::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::harness::{Fate, constant, context, discipline, run, sent_bytes, together, udp};
    use bentpipe_net::time::Duration;
    use std::any::Any;

    const LINK: u64 = 512_000;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn reserved(queue: &mut dyn QueueDiscipline) -> &mut ReservedQueue {
        (queue as &mut dyn Any).downcast_mut().unwrap()
    }

    /// Flows of [`udp`] to this port.
    fn to(port: u16, sender: Option<u8>) -> FlowFilter {
        FlowFilter {
            protocol: protocol::UDP,
            destination: SocketAddrV4::new([10, 0, 0, 2].into(), port),
            source: sender.map(|host| SocketAddrV4::new([10, 0, 0, host].into(), 1000)),
        }
    }

    #[test]
    fn a_reserved_flow_that_keeps_to_it_loses_nothing_and_others_take_what_it_leaves() {
        let video = constant(1028, 320_000, at(0), at(20_000), udp(1, 2, 5, false));
        let jam = constant(1500, 2_000_000, at(0), at(20_000), udp(3, 2, 9, false));
        let offers = together([video, jam]);
        let mut queue = discipline("kind = 'reservations'\npackets = 40", LINK);
        reserved(&mut *queue).install(ReservationId(1), &[to(5, Some(1))], 40_000.0, 2056.0);
        let events = run(&mut *queue, LINK, &offers);
        let lost = events.iter().filter(|event| event.fate == Fate::Dropped && offers[event.id].bytes == 1028).count();
        assert_eq!(lost, 0);
        for event in events.iter().filter(|event| offers[event.id].bytes == 1028) {
            // Its own time at 320 kbit/s, and that of a longest packet of the link.
            assert!(event.at.since(offers[event.id].at) <= Duration::from_micros(25_700 + 23_500), "{event:?}");
        }
        let (from, until) = (at(1000), at(19_000));
        let all: u64 = [5, 9].map(|port| sent_bytes(&offers, &events, port, from, until)).iter().sum();
        assert!(all as f64 >= 0.999 * 18.0 * LINK as f64 / 8.0, "{all}");
    }

    #[test]
    fn idle_reserved_capacity_is_used_by_others() {
        let jam = constant(1500, 2_000_000, at(0), at(20_000), udp(3, 2, 9, false));
        let mut queue = discipline("kind = 'reservations'\npackets = 40", LINK);
        reserved(&mut *queue).install(ReservationId(1), &[to(5, None)], 48_000.0, 2056.0);
        let events = run(&mut *queue, LINK, &jam);
        let sent = sent_bytes(&jam, &events, 9, at(1000), at(19_000));
        assert!(sent as f64 >= 0.99 * 18.0 * LINK as f64 / 8.0, "{sent}");
    }

    #[test]
    fn what_exceeds_a_reservation_is_held_to_its_rate_while_others_wait() {
        let video = constant(1028, 600_000, at(0), at(20_000), udp(1, 2, 5, false));
        let jam = constant(1500, 2_000_000, at(0), at(20_000), udp(3, 2, 9, false));
        let offers = together([video, jam]);
        let mut queue = discipline("kind = 'reservations'\npackets = 40", LINK);
        reserved(&mut *queue).install(ReservationId(1), &[to(5, Some(1))], 40_000.0, 2056.0);
        let events = run(&mut *queue, LINK, &offers);
        let sent = sent_bytes(&offers, &events, 5, at(1000), at(19_000)) as f64 / 18.0;
        assert!((sent / 40_000.0 - 1.0).abs() < 0.01, "{sent}");
        // In order, without another packet of the flow before it.
        let of_flow: Vec<usize> = events
            .iter()
            .filter(|event| event.fate == Fate::Sent && offers[event.id].bytes == 1028)
            .map(|event| event.id)
            .collect();
        assert!(of_flow.is_sorted());
    }

    #[test]
    fn reservations_change_and_end_while_packets_wait() {
        let offers = together([5, 6, 9].map(|port| constant(1000, 400_000, at(0), at(10_000), udp(1, 2, port, false))));
        let mut queue = discipline("kind = 'reservations'\npackets = 1000", LINK);
        for round in 0..1000_u32 {
            let queue = reserved(&mut *queue);
            queue.install(ReservationId(round), &[to(5, Some(1))], 20_000.0, 4000.0);
            queue.install(ReservationId(round + 10_000), &[to(6, None)], 10_000.0, 4000.0);
            queue.install(ReservationId(round), &[to(5, Some(1))], 24_000.0, 4000.0);
            assert!((queue.reserved() - 34_000.0).abs() < 1e-6);
            queue.remove(ReservationId(round));
            queue.remove(ReservationId(round + 10_000));
            assert!(queue.reserved() == 0.0 && queue.filters.is_empty());
        }
        assert!(reserved(&mut *queue).classes.len() <= 3);
        reserved(&mut *queue).install(ReservationId(1), &[to(5, Some(1))], 40_000.0, 4000.0);
        let half = offers.len() / 2;
        let mut events = run(&mut *queue, LINK, &offers[..half]);
        reserved(&mut *queue).remove(ReservationId(1));
        events.extend(
            run(&mut *queue, LINK, &offers[half..])
                .iter()
                .map(|event| super::super::harness::Event { id: event.id + half, ..*event }),
        );
        assert_eq!(events.len(), offers.len());
    }

    #[test]
    fn messages_of_rsvp_go_first() {
        let mut message = udp(1, 2, 0, false);
        message.as_mut().unwrap().flow.protocol = protocol::RSVP;
        let jam = constant(1500, 2_000_000, at(0), at(2000), udp(3, 2, 9, false));
        let signal = constant(200, 1600, at(100), at(2000), message);
        let offers = together([jam, signal]);
        let mut queue = discipline("kind = 'reservations'\npackets = 40", LINK);
        for event in run(&mut *queue, LINK, &offers).iter().filter(|event| offers[event.id].bytes == 200) {
            assert!(event.at.since(offers[event.id].at) <= Duration::from_micros(23_500), "{event:?}");
        }
    }

    #[test]
    fn reservations_of_the_file() {
        let video = constant(1028, 320_000, at(0), at(20_000), udp(1, 2, 5, false));
        let voice = constant(200, 64_000, at(1), at(20_000), udp(1, 2, 6, false));
        let jam = constant(1500, 2_000_000, at(0), at(20_000), udp(3, 2, 9, false));
        let offers = together([video, voice, jam]);
        let keys = "kind = 'reservations'\npackets = 40\nreservations = [{ ports = [5], rate = '320 kbit/s' }, \
                    { ports = [6], rate = '64 kbit/s' }]";
        let mut queue = discipline(keys, LINK);
        assert_eq!(reserved(&mut *queue).reserved(), 48_000.0);
        let events = run(&mut *queue, LINK, &offers);
        for (bytes, expected) in [(1028, true), (200, true), (1500, false)] {
            let all_sent =
                events.iter().filter(|event| offers[event.id].bytes == bytes).all(|event| event.fate == Fate::Sent);
            assert_eq!(all_sent, expected, "{bytes} B");
        }
    }

    #[test]
    fn mistakes_name_their_key() {
        for (keys, key) in [
            ("share = 1.5", "share"),
            ("share = -0.1", "share"),
            ("bytes = '1 B'", "bytes"),
            ("x = 1", "x"),
            ("reservations = []", "reservations"),
            ("reservations = [{ rate = '1 kbit/s' }]", "reservations.0"),
            ("reservations = [{ ports = [5] }]", "reservations.0"),
            ("reservations = [{ ports = [0], rate = '1 kbit/s' }]", "reservations.0.ports.0"),
            ("reservations = [{ ports = [5], weight = 2, rate = '1 kbit/s' }]", "reservations.0.weight"),
            (
                "reservations = [{ ports = [5], rate = '200 kbit/s' }, { ports = [6], rate = '185 kbit/s' }]",
                "reservations",
            ),
        ] {
            assert_eq!(read(toml::from_str(keys).unwrap(), &context(LINK)).unwrap_err().key, key, "{keys}");
        }
    }
}
