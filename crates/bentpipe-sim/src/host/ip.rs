//! A site's interfaces: addresses, routes, neighbours, fragments, forwarding and bridging.

use bentpipe_link::node::Port;
use bentpipe_net::datagram::{BROADCAST, Body, Datagram, Ethernet, IP_HEADER};
use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::{Role, SEGMENT_PREFIX, SitePlan};
use bentpipe_net::wire;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The IP layer of a site.
#[derive(Debug)]
pub struct Ip {
    role: Role,
    interfaces: Vec<Interface>,
    routes: Vec<(Ipv4Addr, Ipv4Addr, usize)>,
    /// The last answer of the routing table.
    cached: Option<(Ipv4Addr, usize, Ipv4Addr)>,
    /// Frames ready to leave.
    ready: VecDeque<(Port, DatagramPacket)>,
    fragments: BTreeMap<(Ipv4Addr, u16), Reassembly>,
    identification: u16,
    /// Bridge: at which interface an address was seen.
    seen: BTreeMap<[u8; 6], usize>,
    /// When an unanswered question is repeated; [`Instant::FAR`]: none is out.
    asking: Instant,
    shows_passing: bool,
}

/// One interface.
#[derive(Debug)]
struct Interface {
    address: Option<Ipv4Addr>,
    hardware: [u8; 6],
    mtu: u64,
    carries_ethernet: bool,
    /// A terminal of a broadcast link hears what is for others.
    hears_others: bool,
    hub_hardware: Option<[u8; 6]>,
    neighbours: BTreeMap<Ipv4Addr, Neighbour>,
}

/// The state of a neighbour's hardware address (RFC 826).
#[derive(Debug)]
enum Neighbour {
    At([u8; 6]),
    SweepRequest {
        times: u32,
        again: Instant,
        #[allow(clippy::vec_box)]
        waiting: Vec<Box<Datagram>>,
    },
}

/// Fragments of one packet.
#[derive(Debug)]
struct Reassembly {
    /// Bytes still missing.
    missing: u64,
    seen: Vec<u16>,
    since: Instant,
}

/// The IP layer's output to the transport layer.
#[derive(Debug)]
pub enum Up {
    /// For this site.
    Datagram(Box<Datagram>),
    /// The site's own packet could not be delivered; as [`Body::Unreachable`] would tell.
    Unreachable(Box<Datagram>),
    /// For somebody else, at a site whose gateway sees it first ([`Ip::show_passing`]): the interface it came in at.
    Passing(usize, Box<Datagram>),
}

/// Questions before a neighbour counts as absent, their interval, and packets that wait for the answer (Linux:
/// mcast_solicit, retrans_time, and about as many packets as unres_qlen_bytes holds).
const ARP_TRIES: u32 = 3;
const ARP_INTERVAL: Duration = Duration::from_secs(1);
const ARP_WAITING: usize = 101;
/// Longest wait of fragments for the rest, and most incomplete packets (Linux: ipfrag_time).
const REASSEMBLY: Duration = Duration::from_secs(30);
const REASSEMBLIES_MAX: usize = 1024;

impl Ip {
    /// The interfaces of a planned site. `links`: of each, whether it carries Ethernet and has more than two ends;
    /// `mtu_max`: the host's own limit.
    #[must_use]
    pub fn new(plan: &SitePlan, links: &[(bool, bool)], mtu_max: Option<u64>) -> Ip {
        let interfaces = plan
            .interfaces
            .iter()
            .zip(links)
            .map(|(interface, (carries_ethernet, shared))| Interface {
                address: interface.address,
                hardware: interface.hardware,
                mtu: mtu_max.map_or(interface.mtu, |most| most.min(interface.mtu)),
                carries_ethernet: *carries_ethernet,
                hears_others: *shared && interface.hub_hardware.is_some(),
                hub_hardware: interface.hub_hardware,
                neighbours: BTreeMap::new(),
            })
            .collect();
        Ip {
            role: plan.role,
            interfaces,
            routes: plan.routes.iter().map(|route| (route.network, route.via, route.interface)).collect(),
            cached: None,
            ready: VecDeque::new(),
            fragments: BTreeMap::new(),
            identification: 0,
            seen: BTreeMap::new(),
            asking: Instant::FAR,
            shows_passing: false,
        }
    }

    /// From now on, packets for others are handed up instead of forwarded; [`Ip::forward`] forwards them.
    pub fn show_passing(&mut self) {
        self.shows_passing = true;
    }

    /// The interface towards `destination`.
    pub fn way(&mut self, destination: Ipv4Addr) -> Option<usize> {
        self.route(destination).map(|(interface, _)| interface)
    }

    /// True if `address` is this site's.
    #[must_use]
    #[inline]
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        // The cached route leads to somebody else.
        self.cached.is_none_or(|(other, ..)| other != address) && self.holds(address)
    }

    fn holds(&self, address: Ipv4Addr) -> bool {
        self.interfaces.iter().any(|interface| interface.address == Some(address))
    }

    /// The address and MTU of the interface towards `destination`.
    pub fn source_for(&mut self, destination: Ipv4Addr) -> Option<(Ipv4Addr, u64)> {
        if self.is_own(destination) {
            return Some((destination, u64::from(u16::MAX)));
        }
        let (interface, _) = self.route(destination)?;
        let interface = &self.interfaces[interface];
        Some((interface.address?, interface.mtu))
    }

    /// Interface and next hop.
    #[inline]
    fn route(&mut self, destination: Ipv4Addr) -> Option<(usize, Ipv4Addr)> {
        match self.cached {
            Some((known, interface, via)) if known == destination => Some((interface, via)),
            _ => self.find_route(destination),
        }
    }

    fn find_route(&mut self, destination: Ipv4Addr) -> Option<(usize, Ipv4Addr)> {
        let network = |address: Ipv4Addr| u32::from(address) >> (32 - SEGMENT_PREFIX);
        let on_link =
            self.interfaces.iter().position(|i| i.address.is_some_and(|own| network(own) == network(destination)));
        let found = match on_link {
            Some(interface) => Some((interface, destination)),
            None => self
                .routes
                .iter()
                .find(|(route, ..)| network(*route) == network(destination))
                .map(|(_, via, interface)| (*interface, *via)),
        };
        let (interface, via) = found?;
        if !self.holds(destination) {
            self.cached = Some((destination, interface, via));
        }
        Some((interface, via))
    }

    /// A frame or packet comes in at `interface`; what is for this site.
    #[inline]
    pub fn receive(&mut self, now: Instant, interface: usize, packet: DatagramPacket) -> Option<Up> {
        if self.role == Role::Bridge {
            self.bridge(interface, packet);
            return None;
        }
        let mut datagram = packet.into_datagram()?;
        if let Some(ethernet) = datagram.ethernet.take()
            && !self.unwrap_frame(now, interface, ethernet, &datagram)
        {
            return None;
        }
        if self.interfaces[interface].address == Some(datagram.destination) || self.is_own(datagram.destination) {
            return self.reassemble(now, datagram).map(Up::Datagram);
        }
        if self.shows_passing {
            return Some(Up::Passing(interface, datagram));
        }
        self.forward(now, interface, datagram);
        None
    }

    /// The content of an Ethernet frame; whether it is a packet for this interface.
    fn unwrap_frame(&mut self, now: Instant, interface: usize, ethernet: Ethernet, datagram: &Datagram) -> bool {
        if ethernet.destination != self.interfaces[interface].hardware && ethernet.destination != BROADCAST {
            return false;
        }
        if let Body::Arp { reply, sender, .. } = &datagram.body {
            self.arp(now, interface, datagram, *reply, *sender);
            return false;
        }
        true
    }

    /// A packet for somebody else (RFC 1812 §5.2).
    pub fn forward(&mut self, now: Instant, from: usize, mut datagram: Box<Datagram>) {
        if self.role != Role::Router || datagram.ttl <= 1 {
            return;
        }
        let Some((out, _)) = self.route(datagram.destination) else { return };
        if out == from && self.interfaces[from].hears_others {
            return;
        }
        datagram.ttl -= 1;
        let mtu = self.interfaces[out].mtu;
        if datagram.bytes() > mtu && datagram.identification == 0 {
            // It must not be fragmented: say what would pass (RFC 1191 §4).
            let Some(source) = self.interfaces[from].address else { return };
            let body = Body::Unreachable {
                code: 4,
                mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
                about: wire::quote(&datagram),
            };
            let answer = Datagram::new(source, datagram.source, body);
            let _ = self.send(now, Box::new(answer));
            return;
        }
        let _ = self.send(now, datagram);
    }

    /// Sends a packet, this site's own or a forwarded one. What cannot be sent comes back.
    #[inline]
    pub fn send(&mut self, now: Instant, datagram: Box<Datagram>) -> Option<Up> {
        let Some((interface, via)) = self.route(datagram.destination) else {
            return Some(Up::Unreachable(datagram));
        };
        let Interface { mtu, carries_ethernet, .. } = self.interfaces[interface];
        let bytes = datagram.bytes();
        if bytes <= mtu && !carries_ethernet {
            self.ready.push_back((Port(interface), DatagramPacket::of_length(datagram, bytes)));
            return None;
        }
        self.send_otherwise(now, datagram, interface, via)
    }

    /// In fragments, or in an Ethernet frame.
    fn send_otherwise(&mut self, now: Instant, datagram: Box<Datagram>, interface: usize, via: Ipv4Addr) -> Option<Up> {
        let mtu = self.interfaces[interface].mtu;
        if datagram.bytes() > mtu {
            if matches!(datagram.body, Body::Tcp(_)) {
                return Some(Up::Unreachable(datagram));
            }
            self.send_fragments(now, *datagram, mtu, interface, via);
            return None;
        }
        self.send_to_neighbour(now, datagram, interface, via)
    }

    fn send_fragments(&mut self, now: Instant, datagram: Datagram, mtu: u64, interface: usize, via: Ipv4Addr) {
        // Pieces of a piece point into the same whole.
        let (whole, first, length, more_after) = match &datagram.body {
            Body::Fragment { whole, offset, length, more } => {
                (Arc::clone(whole), u64::from(*offset), u64::from(*length), *more)
            }
            _ => {
                self.identification = self.identification.wrapping_add(1).max(1);
                let whole = Arc::new(Datagram { identification: self.identification, ..datagram.clone() });
                let length = whole.body.bytes();
                (whole, 0, length, false)
            }
        };
        let room = (mtu.saturating_sub(IP_HEADER) / 8 * 8).max(8);
        let mut at = 0;
        while at < length {
            let piece = room.min(length - at);
            let fragment = Datagram {
                identification: whole.identification,
                body: Body::Fragment {
                    whole: Arc::clone(&whole),
                    offset: (first + at) as u16,
                    length: piece as u16,
                    more: more_after || at + piece < length,
                },
                ..datagram.clone()
            };
            let _ = self.send_to_neighbour(now, Box::new(fragment), interface, via);
            at += piece;
        }
    }

    #[inline]
    fn send_to_neighbour(
        &mut self,
        now: Instant,
        mut datagram: Box<Datagram>,
        interface: usize,
        via: Ipv4Addr,
    ) -> Option<Up> {
        let own = &mut self.interfaces[interface];
        if own.carries_ethernet {
            let at = own.hub_hardware.or(match own.neighbours.get(&via) {
                Some(Neighbour::At(hardware)) => Some(*hardware),
                _ => None,
            });
            let Some(destination) = at else {
                self.ask(now, interface, via, datagram);
                return None;
            };
            datagram.ethernet = Some(Ethernet { destination, source: own.hardware });
        }
        self.put(interface, datagram);
        None
    }

    #[inline]
    fn put(&mut self, interface: usize, datagram: impl Into<Box<Datagram>>) {
        self.ready.push_back((Port(interface), DatagramPacket::new(datagram)));
    }

    /// Asks who has `via`; the packet waits.
    fn ask(&mut self, now: Instant, interface: usize, via: Ipv4Addr, datagram: Box<Datagram>) {
        let own = &mut self.interfaces[interface];
        if let Some(Neighbour::SweepRequest { waiting, .. }) = own.neighbours.get_mut(&via) {
            if waiting.len() < ARP_WAITING {
                waiting.push(datagram);
            }
            return;
        }
        let again = now + ARP_INTERVAL;
        own.neighbours.insert(via, Neighbour::SweepRequest { times: 1, again, waiting: vec![datagram] });
        self.asking = self.asking.min(again);
        self.put_question(interface, via);
    }

    fn put_question(&mut self, interface: usize, via: Ipv4Addr) {
        let own = &self.interfaces[interface];
        let Some(source) = own.address else { return };
        let datagram = Datagram {
            ethernet: Some(Ethernet { destination: BROADCAST, source: own.hardware }),
            source,
            destination: via,
            ttl: 0,
            traffic_class: 0,
            identification: 0,
            body: Body::Arp { reply: false, sender: own.hardware, target: [0; 6] },
        };
        self.put(interface, datagram);
    }

    /// An ARP message for this interface (RFC 826).
    fn arp(&mut self, now: Instant, interface: usize, message: &Datagram, reply: bool, sender: [u8; 6]) {
        let own = &mut self.interfaces[interface];
        if own.address != Some(message.destination) {
            return;
        }
        let before = own.neighbours.insert(message.source, Neighbour::At(sender));
        let (hardware, address) = (own.hardware, message.destination);
        if !reply {
            let answer = Datagram {
                ethernet: Some(Ethernet { destination: sender, source: hardware }),
                source: address,
                destination: message.source,
                ttl: 0,
                traffic_class: 0,
                identification: 0,
                body: Body::Arp { reply: true, sender: hardware, target: sender },
            };
            self.put(interface, answer);
        }
        if let Some(Neighbour::SweepRequest { waiting, .. }) = before {
            for datagram in waiting {
                let _ = self.send_to_neighbour(now, datagram, interface, message.source);
            }
        }
    }

    /// Asks again, or gives up; what waited in vain comes back.
    pub fn wake(&mut self, now: Instant) -> Vec<Up> {
        let mut failed = Vec::new();
        if self.asking > now {
            return failed;
        }
        let mut next = Instant::FAR;
        let mut questions = Vec::new();
        for (number, interface) in self.interfaces.iter_mut().enumerate() {
            let mut absent = Vec::new();
            for (via, neighbour) in &mut interface.neighbours {
                let Neighbour::SweepRequest { times, again, waiting } = neighbour else { continue };
                if *again <= now {
                    if *times >= ARP_TRIES {
                        failed.extend(waiting.drain(..).map(Up::Unreachable));
                        absent.push(*via);
                        continue;
                    }
                    *times += 1;
                    *again = now + ARP_INTERVAL;
                    questions.push((number, *via));
                }
                next = next.min(*again);
            }
            absent.iter().for_each(|via| {
                interface.neighbours.remove(via);
            });
        }
        self.asking = next;
        questions.into_iter().for_each(|(interface, via)| self.put_question(interface, via));
        failed
    }

    /// When [`Ip::wake`] is due; [`Instant::FAR`]: never.
    #[must_use]
    pub fn next_wake(&self) -> Instant {
        self.asking
    }

    /// The next frame to leave.
    #[inline]
    pub fn take(&mut self) -> Option<(Port, DatagramPacket)> {
        self.ready.pop_front()
    }

    /// A whole packet, now or once its last fragment is here (RFC 791 §3.2).
    #[inline]
    fn reassemble(&mut self, now: Instant, datagram: Box<Datagram>) -> Option<Box<Datagram>> {
        if matches!(datagram.body, Body::Fragment { .. }) { self.join(now, &datagram) } else { Some(datagram) }
    }

    fn join(&mut self, now: Instant, datagram: &Datagram) -> Option<Box<Datagram>> {
        let Body::Fragment { whole, offset, length, .. } = &datagram.body else { return None };
        self.fragments.retain(|_, reassembly| now.since(reassembly.since) < REASSEMBLY);
        let key = (datagram.source, whole.identification);
        if self.fragments.len() >= REASSEMBLIES_MAX && !self.fragments.contains_key(&key) {
            return None;
        }
        let reassembly = self.fragments.entry(key).or_insert_with(|| Reassembly {
            missing: whole.body.bytes(),
            seen: Vec::new(),
            since: now,
        });
        if reassembly.seen.contains(offset) {
            return None;
        }
        reassembly.seen.push(*offset);
        reassembly.missing = reassembly.missing.saturating_sub(u64::from(*length));
        if reassembly.missing > 0 {
            return None;
        }
        self.fragments.remove(&key);
        Some(Box::new(Datagram { ethernet: None, ttl: datagram.ttl, ..(**whole).clone() }))
    }

    /// Forwards a frame as a transparent bridge does (IEEE 802.1D §7): to where its receiver was seen, else everywhere.
    fn bridge(&mut self, from: usize, packet: DatagramPacket) {
        let Some(ethernet) = packet.datagram().0.ethernet else { return };
        self.seen.insert(ethernet.source, from);
        match self.seen.get(&ethernet.destination) {
            Some(to) if *to == from => {}
            Some(to) => self.ready.push_back((Port(*to), packet)),
            None => {
                for to in (0..self.interfaces.len()).filter(|to| *to != from) {
                    self.ready.push_back((Port(to), packet.clone()));
                }
            }
        }
    }
}
