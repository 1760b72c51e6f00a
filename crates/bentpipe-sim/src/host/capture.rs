//! A site with a gateway: its IP layer hands every packet that would pass to this module, which holds the connection
//! requests towards the link, gives the gateway's connections what is theirs, and lets the rest pass.
//!
//! The gateway answers a request in its server's name and connects in its client's: packets to addresses that are not
//! the site's belong to its connections all the same ([`Stack::passing`]).

use super::ip::Up;
use super::sockets::{Socket, View, v4};
use super::stack::Stack;
use crate::tcp::Output;
use bentpipe_net::capture::{Bypassed, Capture, Named, Refusal, Request, RequestId};
use bentpipe_net::datagram::{Body, Datagram, Segment, flag};
use bentpipe_net::headers::protocol;
use bentpipe_net::socket::{SocketError, SocketId, Sockets};
use bentpipe_net::time::Instant;
use bentpipe_net::wire;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

/// The two ends of a connection as its client sees them.
type Ends = (SocketAddrV4, SocketAddrV4);

/// Where a gateway stands.
#[derive(Clone, Debug)]
pub struct GatewayPlace {
    /// The number of the site's interface towards the link.
    pub link: usize,
    /// Addresses of all sites, by their names.
    pub names: Arc<BTreeMap<String, Ipv4Addr>>,
}

/// What a site with a gateway keeps for it.
#[derive(Debug)]
pub struct Gateway {
    /// The gateway, as a program of the site.
    program: u32,
    place: GatewayPlace,
    /// Requests without an answer, by their ends and by their numbers.
    held: BTreeMap<Ends, RequestId>,
    requests: BTreeMap<RequestId, Held>,
    /// Requests that the gateway has not seen yet.
    fresh: VecDeque<RequestId>,
    next_request: u64,
    /// Connections that pass unchanged, and the order in which they came.
    bypassed: BTreeSet<Ends>,
    bypassed_order: VecDeque<Ends>,
    passed: Bypassed,
    /// DSCP of the gateway's own connections (local end first), in the upper six bits of the octet.
    marks: BTreeMap<Ends, u8>,
    /// Sockets by what they stand for, and those that may have changed.
    pub(super) sockets: BTreeMap<Socket, SocketId>,
    changed: BTreeSet<Socket>,
}

/// A connection request without an answer.
#[derive(Debug)]
struct Held {
    datagram: Box<Datagram>,
    /// Where it came in.
    interface: usize,
}

/// Requests that may wait for an answer; further ones are lost, and their clients ask again (Linux: somaxconn).
const REQUESTS_MAX: usize = 4096;
/// Connections remembered as bypassed; the oldest is forgotten first (Linux: nf_conntrack_max of a small machine).
const BYPASSED_MAX: usize = 65_536;
/// The bits of the traffic class that are ECN's (RFC 3168 §5).
const ECN: u8 = 0b11;

impl Gateway {
    /// Of the program with this number.
    pub fn new(program: u32, place: GatewayPlace) -> Gateway {
        Gateway {
            program,
            place,
            held: BTreeMap::new(),
            requests: BTreeMap::new(),
            fresh: VecDeque::new(),
            next_request: 0,
            bypassed: BTreeSet::new(),
            bypassed_order: VecDeque::new(),
            passed: Bypassed::default(),
            marks: BTreeMap::new(),
            sockets: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// A socket of program `owner` may have changed.
    pub fn note(&mut self, owner: u32, socket: Socket) {
        if owner == self.program {
            self.changed.insert(socket);
        }
    }

    /// The traffic class of a packet that this site sends: with its connection's DSCP.
    pub fn mark(&self, datagram: &mut Datagram) {
        if let Body::Tcp(segment) = &datagram.body
            && let Some(mark) = self.marks.get(&sent_ends(datagram, segment))
        {
            datagram.traffic_class |= mark;
        }
    }

    /// The connection between these ends, ours first, is over.
    pub fn forget(&mut self, ends: Ends) {
        self.marks.remove(&ends);
    }

    fn take(&mut self, id: RequestId) -> Option<Held> {
        let held = self.requests.remove(&id)?;
        if let Body::Tcp(segment) = &held.datagram.body {
            self.held.remove(&sent_ends(&held.datagram, segment));
        }
        Some(held)
    }

    /// Holds a connection request. One that is repeated takes the place of the first.
    fn hold(&mut self, ends: Ends, held: Held) {
        if let Some(id) = self.held.get(&ends) {
            self.requests.insert(*id, held);
            return;
        }
        if self.requests.len() >= REQUESTS_MAX {
            return;
        }
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.held.insert(ends, id);
        self.requests.insert(id, held);
        self.fresh.push_back(id);
    }

    fn bypass(&mut self, ends: Ends) {
        if self.bypassed.insert(ends) {
            self.bypassed_order.push_back(ends);
        }
        if self.bypassed_order.len() > BYPASSED_MAX
            && let Some(oldest) = self.bypassed_order.pop_front()
        {
            self.bypassed.remove(&oldest);
        }
    }
}

/// The ends of the segment's connection, its sender first.
fn sent_ends(datagram: &Datagram, segment: &Segment) -> Ends {
    let source = SocketAddrV4::new(datagram.source, segment.source_port);
    (source, SocketAddrV4::new(datagram.destination, segment.destination_port))
}

impl Stack {
    /// A packet for somebody else came in at `interface` of a site with a gateway.
    pub(super) fn passing(&mut self, now: Instant, interface: usize, datagram: Box<Datagram>) {
        if self.belongs_here(&datagram) {
            self.take_up(now, Up::Datagram(datagram));
            return;
        }
        let Some(gateway) = self.gateway.as_mut() else { return };
        // What comes over the link goes to whom it is for.
        if interface != gateway.place.link && self.ip.way(datagram.destination) == Some(gateway.place.link) {
            if let Body::Tcp(segment) = &datagram.body
                && segment.flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN
                && !gateway.bypassed.contains(&sent_ends(&datagram, segment))
            {
                gateway.hold(sent_ends(&datagram, segment), Held { datagram, interface });
                let program = gateway.program;
                self.news.push(program);
                return;
            }
            gateway.passed.packets += 1;
            gateway.passed.bytes += datagram.bytes();
        }
        self.ip.forward(now, interface, datagram);
    }

    /// Whether a packet to a foreign address is for a connection of the gateway.
    fn belongs_here(&self, datagram: &Datagram) -> bool {
        match &datagram.body {
            Body::Tcp(segment) => {
                let (remote, local) = sent_ends(datagram, segment);
                self.has_connection(local, remote)
            }
            Body::Unreachable { about, .. } => wire::quoted_ports(about).is_some_and(|quoted| {
                let local = SocketAddrV4::new(quoted.source, quoted.source_port);
                let remote = SocketAddrV4::new(quoted.destination, quoted.destination_port);
                quoted.protocol == protocol::TCP && self.has_connection(local, remote)
            }),
            _ => false,
        }
    }
}

impl View<'_> {
    fn gateway(&mut self) -> Option<&mut Gateway> {
        let program = self.program;
        self.stack.gateway.as_deref_mut().filter(|gateway| gateway.program == program)
    }

    /// Whether this program is the site's gateway.
    pub(super) fn is_gateway(&self) -> bool {
        self.stack.gateway.as_ref().is_some_and(|gateway| gateway.program == self.program)
    }

    fn connect_marked(
        &mut self,
        client: Option<SocketAddrV4>,
        to: SocketAddrV4,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError> {
        let mark = traffic_class & !ECN;
        // The SYN leaves when this call is over, so that it finds the mark.
        let number = self.stack.connect_from(self.now, self.program, client, to)?;
        if mark != 0
            && let Some(slot) = self.stack.connections[number].as_ref()
        {
            let ends = (slot.connection.local(), slot.connection.remote());
            if let Some(gateway) = self.gateway() {
                gateway.marks.insert(ends, mark);
            }
        }
        Ok(self.add(Socket::Tcp(number)))
    }
}

impl Capture for View<'_> {
    fn take_changed(&mut self, into: &mut Vec<SocketId>) {
        if let Some(gateway) = self.gateway() {
            let changed = std::mem::take(&mut gateway.changed);
            into.extend(changed.iter().filter_map(|socket| gateway.sockets.get(socket)));
        }
    }

    fn next_request(&mut self) -> Option<Request> {
        let gateway = self.gateway()?;
        while let Some(id) = gateway.fresh.pop_front() {
            if let Some(Held { datagram, .. }) = gateway.requests.get(&id)
                && let Body::Tcp(segment) = &datagram.body
            {
                let (client, server) = sent_ends(datagram, segment);
                let traffic_class = datagram.traffic_class;
                return Some(Request { id, client: client.into(), server: server.into(), traffic_class });
            }
        }
        None
    }

    fn answer(&mut self, request: RequestId) -> Result<SocketId, SocketError> {
        let held = self.gateway().and_then(|gateway| gateway.take(request)).ok_or(SocketError::Closed)?;
        let Body::Tcp(segment) = &held.datagram.body else { return Err(SocketError::Closed) };
        let (client, server) = sent_ends(&held.datagram, segment);
        let number = self.stack.accept_as(self.now, self.program, (server, client), segment)?;
        Ok(self.add(Socket::Tcp(number)))
    }

    fn refuse(&mut self, request: RequestId, how: Refusal) {
        let Some(held) = self.gateway().and_then(|gateway| gateway.take(request)) else { return };
        let Held { datagram, interface } = held;
        let Body::Tcp(segment) = &datagram.body else { return };
        let (client, server) = sent_ends(&datagram, segment);
        match how {
            Refusal::Refused => self.stack.reset(server, client, segment),
            Refusal::Unreachable => {
                let Some((source, _)) = self.stack.ip.source_for(datagram.source) else { return };
                let body = Body::Unreachable { code: 1, mtu: 0, about: wire::quote(&datagram) };
                self.stack.output().push(Datagram::new(source, datagram.source, body));
            }
            Refusal::Ignored => {}
            Refusal::Bypassed => {
                if let Some(gateway) = self.gateway() {
                    gateway.bypass((client, server));
                }
                self.stack.passing(self.now, interface, datagram);
            }
        }
    }

    fn connect_as(
        &mut self,
        client: Option<SocketAddr>,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError> {
        let client = client.map(v4).transpose()?;
        self.connect_marked(client, v4(to)?, traffic_class)
    }

    fn connect_to_name(&mut self, server: Named<'_>) -> Result<SocketId, SocketError> {
        let Named { name, port, traffic_class, may_connect, .. } = server;
        let address = match name.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => Some(address),
            Ok(IpAddr::V6(_)) => None,
            Err(_) => self.gateway().and_then(|gateway| gateway.place.names.get(name).copied()),
        };
        let address = address.ok_or(SocketError::Unreachable)?;
        if !may_connect(address.into()) {
            return Err(SocketError::Denied);
        }
        self.connect_marked(None, SocketAddrV4::new(address, port), traffic_class)
    }

    fn keeps_addresses(&self) -> bool {
        true
    }

    /// The simulated TCP has no urgent data.
    fn next_is_urgent(&mut self, _socket: SocketId) -> bool {
        false
    }

    fn send_urgent(&mut self, socket: SocketId, byte: u8) -> Result<bool, SocketError> {
        Ok(self.send(socket, &[byte])? == 1)
    }

    fn unacknowledged(&mut self, socket: SocketId) -> u64 {
        self.connection_of(socket).map_or(0, |connection| connection.unacknowledged_bytes())
    }

    fn bypassed(&mut self, _: Option<IpAddr>) -> Bypassed {
        self.gateway().map(|gateway| gateway.passed).unwrap_or_default()
    }
}

impl Stack {
    /// Answers a held request: a connection between these ends (ours first) of program `owner`.
    fn accept_as(
        &mut self,
        now: Instant,
        owner: u32,
        (local, remote): Ends,
        syn: &Segment,
    ) -> Result<usize, SocketError> {
        self.make_way(local, remote)?;
        let ends = self.ends(now, local, remote).ok_or(SocketError::Unreachable)?;
        let settings = Arc::clone(&self.settings);
        let connection = {
            let mut output = Output { now, datagrams: self.output() };
            crate::tcp::Connection::accept(&settings, ends, syn, &mut output)
        };
        Ok(self.take_in(connection, owner))
    }

    /// Opens a connection, in the name of `client` if one is given: from its address and, where that is free, its port.
    fn connect_from(
        &mut self,
        now: Instant,
        owner: u32,
        client: Option<SocketAddrV4>,
        to: SocketAddrV4,
    ) -> Result<usize, SocketError> {
        let Some(client) = client else { return self.connect(now, owner, to) };
        let local = match self.make_way(client, to) {
            Ok(()) => client,
            Err(_) => self.pick_port(*client.ip(), to).ok_or(SocketError::AddressInUse)?,
        };
        let ends = self.ends(now, local, to).ok_or(SocketError::Unreachable)?;
        let settings = Arc::clone(&self.settings);
        let connection = {
            let mut output = Output { now, datagrams: self.output() };
            crate::tcp::Connection::connect(&settings, ends, &mut output)
        };
        Ok(self.take_in(connection, owner))
    }
}
