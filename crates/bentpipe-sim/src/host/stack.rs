//! A site's transport: TCP connections and listeners, datagram sockets, echo.

mod passing;

use super::interceptor::Interceptor;
use super::ip::{Ip, Up};
use super::socket_table::Socket;
use crate::tcp::clock::TimerClock;
use crate::tcp::outbox::Outbox;
use crate::tcp::settings::Settings;
use crate::tcp::{Connection, Output, Parameters, State};
use crate::view::ConnectionView;
use bentpipe_net::datagram::{Body, Datagram, Payload, Segment, flag};
use bentpipe_net::dscp::Dscp;
use bentpipe_net::headers::protocol;
use bentpipe_net::seed::Seed;
use bentpipe_net::socket::SocketError;
use bentpipe_net::time::Instant;
use bentpipe_net::wire;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// The transport layer of a site.
#[derive(Debug)]
pub struct Stack {
    pub(super) ip: Ip,
    pub(super) settings: Arc<Settings>,
    seed: Seed,
    clock: TimerClock,
    pub(super) connections: Vec<Option<Slot>>,
    free: Vec<usize>,
    index: IndexMap<(SocketAddrV4, SocketAddrV4), usize, FxBuildHasher>,
    pub(super) listeners: BTreeMap<u16, Listener>,
    /// Connections that are still opening, by the port of the listener that they came through.
    opening: BTreeSet<(u16, usize)>,
    pub(super) datagrams: BTreeMap<u16, DatagramSocket>,
    pub(super) echoes: BTreeMap<u16, EchoSocket>,
    next_port: u16,
    next_echo: u16,
    /// Datagrams of this site on their way to its IP layer.
    out: Outbox,
    /// Connections by the time of their next timer; entries may be too early.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The connection that was worked on last, whose timer may not stand there yet: most events work on one more than once.
    unscheduled: usize,
    /// Ready queue: programs with something to do; one may stand here more than once, and is then polled once more than
    /// it needs.
    pub(super) ready: Vec<u32>,
    /// Connections that are over, for the record.
    pub(super) ended: Vec<ConnectionView>,
    /// What intercepts connections for the site's gateway, if there is one.
    pub(super) gateway: Option<Box<Interceptor>>,
}

/// A connection and whose it is.
#[derive(Debug)]
pub(super) struct Slot {
    pub connection: Connection,
    pub owner: Option<u32>,
    /// The listener that it came through, until it is accepted.
    listener: Option<u16>,
    scheduled: Instant,
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    pub owner: u32,
    pub ready: VecDeque<usize>,
}

/// A datagram socket.
#[derive(Debug)]
pub(super) struct DatagramSocket {
    owner: u32,
    waiting: VecDeque<WaitingDatagram>,
    waiting_bytes: usize,
    /// An ICMP message's, not reported yet.
    error: Option<SocketError>,
    dscp: Dscp,
}

/// A datagram that a program has not taken.
#[derive(Debug)]
pub(super) struct WaitingDatagram {
    pub from: SocketAddrV4,
    pub data: Arc<[u8]>,
    pub at: Instant,
    pub traffic_class: u8,
}

/// An echo socket.
#[derive(Debug)]
pub(super) struct EchoSocket {
    pub owner: u32,
    pub waiting: VecDeque<(u16, Arc<[u8]>, Instant)>,
}

/// Ports that a host picks (Linux: net.ipv4.ip_local_port_range).
const PORTS_PICKED: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Bytes that may wait in a datagram socket (Linux: net.core.rmem_default).
const DATAGRAMS_WAITING: usize = 212_992;
/// Connections that may wait to be accepted (Linux: somaxconn).
const BACKLOG: usize = 4096;

impl Stack {
    pub fn new(ip: Ip, settings: Settings, seed: Seed) -> Stack {
        Stack {
            ip,
            clock: TimerClock::new(&settings, seed.child("timer wheel").0),
            settings: Arc::new(settings),
            seed,
            connections: Vec::new(),
            free: Vec::new(),
            index: IndexMap::default(),
            listeners: BTreeMap::new(),
            opening: BTreeSet::new(),
            datagrams: BTreeMap::new(),
            echoes: BTreeMap::new(),
            next_port: *PORTS_PICKED.start(),
            next_echo: 1,
            out: Outbox::default(),
            timers: BinaryHeap::new(),
            unscheduled: usize::MAX,
            ready: Vec::new(),
            ended: Vec::new(),
            gateway: None,
        }
    }

    /// Takes the IP layer's output.
    #[inline]
    pub fn take_up(&mut self, now: Instant, up: Up) {
        match up {
            Up::Datagram(mut datagram) => {
                let (source, destination, class) = (datagram.source, datagram.destination, datagram.traffic_class);
                match &mut datagram.body {
                    Body::Tcp(segment) => {
                        self.segment(now, source, destination, segment, class);
                        self.out.recycle(datagram);
                    }
                    _ => self.datagram(now, *datagram),
                }
            }
            Up::Unreachable(datagram) => self.undeliverable(now, &datagram),
            Up::Passing(interface, datagram) => self.passing(now, interface, datagram),
        }
    }

    fn datagram(&mut self, now: Instant, datagram: Datagram) {
        let Datagram { source, destination, traffic_class, body, .. } = datagram;
        match body {
            Body::Udp { source_port, destination_port, data } => match self.datagrams.get_mut(&destination_port) {
                Some(socket) => {
                    if socket.waiting_bytes + data.len() <= DATAGRAMS_WAITING {
                        socket.waiting_bytes += data.len();
                        let from = SocketAddrV4::new(source, source_port);
                        socket.waiting.push_back(WaitingDatagram { from, data, at: now, traffic_class });
                        let owner = socket.owner;
                        self.notify(owner, Socket::Datagram(destination_port));
                    }
                }
                None => {
                    let refused = Datagram {
                        traffic_class,
                        ..Datagram::new(source, destination, Body::Udp { source_port, destination_port, data })
                    };
                    self.refuse(&refused, 3);
                }
            },
            Body::Echo { reply: false, identifier, sequence, data } => {
                self.out.push(Datagram {
                    traffic_class,
                    ..Datagram::new(destination, source, Body::Echo { reply: true, identifier, sequence, data })
                });
            }
            Body::Echo { reply: true, identifier, sequence, data } => {
                if let Some(socket) = self.echoes.get_mut(&identifier) {
                    socket.waiting.push_back((sequence, data, now));
                    let owner = socket.owner;
                    self.ready.push(owner);
                }
            }
            Body::Unreachable { code, mtu, about } => self.receive_unreachable(now, code, mtu, &about),
            Body::Tcp(_) | Body::Fragment { .. } | Body::Arp { .. } => {}
        }
    }

    /// An ICMP "destination unreachable" for `about` goes back.
    fn refuse(&mut self, about: &Datagram, code: u8) {
        let body = Body::Unreachable { code, mtu: 0, about: wire::quote(about) };
        self.out.push(Datagram::new(about.destination, about.source, body));
    }

    fn receive_unreachable(&mut self, now: Instant, code: u8, mtu: u16, about: &[u8; 28]) {
        let Some(quoted) = wire::quoted_ports(about) else { return };
        match quoted.protocol {
            protocol::TCP => {}
            protocol::UDP => return self.datagram_unreachable(quoted.source_port, code),
            _ => return,
        }
        let local = SocketAddrV4::new(quoted.source, quoted.source_port);
        let remote = SocketAddrV4::new(quoted.destination, quoted.destination_port);
        let Some(number) = self.index.get(&(local, remote)).copied() else { return };
        self.with(now, number, |connection, output| match code {
            4 => connection.lower_mtu(u64::from(mtu), output),
            _ => connection.unreachable(code == 3),
        });
    }

    /// An ICMP message about a datagram that was sent from `port` (Linux's answers: net/ipv4/icmp.c).
    fn datagram_unreachable(&mut self, port: u16, code: u8) {
        let Some(socket) = self.datagrams.get_mut(&port) else { return };
        socket.error = Some(match code {
            3 => SocketError::Refused,
            4 => SocketError::Other(EMSGSIZE),
            _ => SocketError::Unreachable,
        });
        let owner = socket.owner;
        self.notify(owner, Socket::Datagram(port));
    }

    /// One of our own packets has nowhere to go.
    fn undeliverable(&mut self, now: Instant, datagram: &Datagram) {
        if let Body::Tcp(segment) = &datagram.body {
            let parameters = (
                SocketAddrV4::new(datagram.source, segment.source_port),
                SocketAddrV4::new(datagram.destination, segment.destination_port),
            );
            if let Some(number) = self.index.get(&parameters).copied() {
                self.with(now, number, |connection, _| connection.unreachable(false));
            }
        }
    }

    #[inline]
    fn segment(&mut self, now: Instant, source: Ipv4Addr, destination: Ipv4Addr, segment: &mut Segment, class: u8) {
        let local = SocketAddrV4::new(destination, segment.destination_port);
        let remote = SocketAddrV4::new(source, segment.source_port);
        let number = self.index.get(&(local, remote)).copied();
        if let Some(number) = number
            && let Some(slot) = &mut self.connections[number]
            && !matches!(slot.connection.state(), State::Closed | State::TimeWait | State::SynSent)
        {
            slot.connection.segment(segment, class, &mut Output { now, datagrams: &mut self.out });
            self.settle(number);
            return;
        }
        self.stray_segment(now, (local, remote), number, segment, class);
    }

    /// A segment that no open connection takes for certain. `number`: the connection between its ends, ours first.
    fn stray_segment(
        &mut self,
        now: Instant,
        (local, remote): (SocketAddrV4, SocketAddrV4),
        number: Option<usize>,
        segment: &mut Segment,
        class: u8,
    ) {
        if let Some(number) = number {
            let state = self.connections[number].as_ref().map_or(State::Closed, |slot| slot.connection.state());
            let reopens = state == State::TimeWait && segment.has(flag::SYN) && !segment.has(flag::ACK);
            if state == State::Closed || reopens {
                // The old connection gives way to a new one (RFC 9293 §3.6.1, RFC 6191); its program may still hold it.
                self.index.swap_remove(&(local, remote));
                if self.connections[number].as_ref().is_some_and(|slot| slot.connection.is_released()) {
                    self.forget(number);
                }
            } else {
                let stale = state == State::SynSent
                    && segment.has(flag::ACK)
                    && self.connections[number].as_ref().is_some_and(|s| !s.connection.is_answered_by(segment));
                if stale {
                    self.reset(local, remote, segment);
                    return;
                }
                self.with(now, number, |connection, output| connection.segment(segment, class, output));
                return;
            }
        }
        let is_open = segment.flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN;
        if is_open && let Some(listener) = self.listeners.get(&local.port()) {
            if listener.ready.len() >= BACKLOG {
                return;
            }
            let Some(parameters) = self.parameters(now, local, remote) else { return };
            let settings = Arc::clone(&self.settings);
            let mut output = Output { now, datagrams: &mut self.out };
            let connection = Connection::accept(&settings, parameters, segment, &mut output);
            let number = self.add(connection, None, Some(local.port()));
            self.settle(number);
            return;
        }
        self.reset(local, remote, segment);
    }

    /// RFC 9293 §3.10.7.1: a reset for a segment that belongs to no connection.
    pub(super) fn reset(&mut self, local: SocketAddrV4, remote: SocketAddrV4, segment: &Segment) {
        if segment.has(flag::RST) {
            return;
        }
        let mut answer = Segment {
            source_port: local.port(),
            destination_port: remote.port(),
            flags: flag::RST,
            payload: Payload::Empty,
            ..Segment::default()
        };
        if segment.has(flag::ACK) {
            answer.sequence = segment.acknowledgement;
        } else {
            answer.flags |= flag::ACK;
            answer.acknowledgement = segment.sequence.wrapping_add(segment.sequence_length() as u32);
        }
        self.out.push(Datagram::new(*local.ip(), *remote.ip(), Body::Tcp(answer)));
    }

    /// Connections through the listener of `port` that are still opening.
    pub fn opening_through(&self, port: u16) -> Vec<usize> {
        self.opening.range((port, 0)..=(port, usize::MAX)).map(|(_, number)| *number).collect()
    }

    /// The parameters of a new connection between these ends; `None`: there is no route.
    pub(super) fn parameters(&mut self, now: Instant, local: SocketAddrV4, remote: SocketAddrV4) -> Option<Parameters> {
        let (_, mtu) = self.ip.source_for(*remote.ip())?;
        // Keyed by the two endpoints and the time of connecting, so that one connection shifts no other's (RFC 6528 §3
        // makes a first sequence number of the same two).
        let seed = self.seed.child(&format!("{local} {remote} {}", now.ns));
        Some(Parameters {
            local,
            remote,
            mtu,
            sequence: seed.child("sequence").0 as u32,
            random: seed.stream("control"),
            clock: self.clock,
        })
    }

    fn add(&mut self, connection: Connection, owner: Option<u32>, listener: Option<u16>) -> usize {
        let key = (connection.local(), connection.remote());
        let slot = Some(Slot { connection, owner, listener, scheduled: Instant::FAR });
        let number = match self.free.pop() {
            Some(number) => {
                self.connections[number] = slot;
                number
            }
            None => {
                self.connections.push(slot);
                self.connections.len() - 1
            }
        };
        self.index.insert(key, number);
        self.opening.extend(listener.map(|port| (port, number)));
        number
    }

    /// Opens a connection for a program.
    pub fn connect(&mut self, now: Instant, owner: u32, remote: SocketAddrV4) -> Result<usize, SocketError> {
        let (address, _) = self.ip.source_for(*remote.ip()).ok_or(SocketError::Unreachable)?;
        let local = self.pick_port(address, remote).ok_or(SocketError::AddressInUse)?;
        let parameters = self.parameters(now, local, remote).ok_or(SocketError::Unreachable)?;
        let settings = Arc::clone(&self.settings);
        let connection = Connection::connect(&settings, parameters, &mut Output { now, datagrams: &mut self.out });
        let number = self.add(connection, Some(owner), None);
        self.settle(number);
        Ok(number)
    }

    pub(super) fn pick_port(&mut self, address: Ipv4Addr, remote: SocketAddrV4) -> Option<SocketAddrV4> {
        for _ in PORTS_PICKED {
            let port = self.next_port;
            self.next_port = if port == *PORTS_PICKED.end() { *PORTS_PICKED.start() } else { port + 1 };
            let local = SocketAddrV4::new(address, port);
            if !self.index.contains_key(&(local, remote)) && !self.listeners.contains_key(&port) {
                return Some(local);
            }
        }
        None
    }

    /// Opens a datagram socket; port 0 picks one.
    pub fn open_datagram(&mut self, owner: u32, port: u16) -> Result<u16, SocketError> {
        let free = |port: &u16| !self.datagrams.contains_key(port);
        let port = if port == 0 { PORTS_PICKED.rev().find(free).ok_or(SocketError::AddressInUse)? } else { port };
        if !free(&port) {
            return Err(SocketError::AddressInUse);
        }
        let socket =
            DatagramSocket { owner, waiting: VecDeque::new(), waiting_bytes: 0, error: None, dscp: Dscp::default() };
        self.datagrams.insert(port, socket);
        Ok(port)
    }

    /// The next datagram that came, or what an ICMP message said of one that was sent.
    pub(super) fn take_datagram(&mut self, port: u16) -> Result<Option<WaitingDatagram>, SocketError> {
        let Some(socket) = self.datagrams.get_mut(&port) else { return Err(SocketError::Closed) };
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let datagram = socket.waiting.pop_front();
        socket.waiting_bytes -= datagram.as_ref().map_or(0, |datagram| datagram.data.len());
        Ok(datagram)
    }

    /// The DSCP of what a datagram socket sends.
    pub fn datagram_dscp(&self, port: u16) -> Dscp {
        self.datagrams.get(&port).map_or(Dscp::default(), |socket| socket.dscp)
    }

    /// Sets it.
    pub fn set_datagram_dscp(&mut self, port: u16, dscp: Dscp) {
        if let Some(socket) = self.datagrams.get_mut(&port) {
            socket.dscp = dscp;
        }
    }

    /// Opens an echo socket; its identifier.
    pub fn open_echo(&mut self, owner: u32) -> u16 {
        while self.echoes.contains_key(&self.next_echo) {
            self.next_echo = self.next_echo.wrapping_add(1);
        }
        let identifier = self.next_echo;
        self.next_echo = self.next_echo.wrapping_add(1);
        self.echoes.insert(identifier, EchoSocket { owner, waiting: VecDeque::new() });
        identifier
    }

    /// Sends a packet of a datagram or echo socket.
    pub fn send(&mut self, destination: Ipv4Addr, body: Body, traffic_class: u8) -> Result<bool, SocketError> {
        let (source, _) = self.ip.source_for(destination).ok_or(SocketError::Unreachable)?;
        if body.bytes() > 65_515 {
            return Err(SocketError::Other(EMSGSIZE));
        }
        self.out.push(Datagram { traffic_class, ..Datagram::new(source, destination, body) });
        Ok(true)
    }

    /// Works on a connection and takes note of what changed.
    #[inline]
    pub fn with<T>(
        &mut self,
        now: Instant,
        number: usize,
        work: impl FnOnce(&mut Connection, &mut Output<'_>) -> T,
    ) -> Option<T> {
        let slot = self.connections.get_mut(number)?.as_mut()?;
        let result = work(&mut slot.connection, &mut Output { now, datagrams: &mut self.out });
        self.settle(number);
        Some(result)
    }

    /// After work on a connection: its program becomes ready, or it ends. Its timer follows with [`Stack::schedule`].
    #[inline(always)]
    pub fn settle(&mut self, number: usize) {
        let Some(slot) = self.connections[number].as_mut() else { return };
        let closed = slot.connection.is_closed();
        if slot.connection.take_changed() {
            match slot.owner {
                Some(owner) if slot.listener.is_none() && self.gateway.is_none() => self.ready.push(owner),
                _ => self.announce(number),
            }
        }
        if self.unscheduled != number {
            if self.unscheduled != usize::MAX {
                self.schedule();
            }
            self.unscheduled = number;
        }
        if closed {
            self.forget_if_over(number);
        }
    }

    fn forget_if_over(&mut self, number: usize) {
        if let Some(slot) = &self.connections[number]
            && (slot.owner.is_none() || slot.connection.is_over())
        {
            self.forget(number);
        }
    }

    /// Takes note of the next timer of the connection that was worked on last. To be called before [`Stack::next_wake`].
    #[inline]
    pub fn schedule(&mut self) {
        let number = std::mem::replace(&mut self.unscheduled, usize::MAX);
        if let Some(Some(slot)) = self.connections.get_mut(number) {
            let at = slot.connection.next_wake();
            if at < slot.scheduled {
                slot.scheduled = at;
                self.timers.push(Reverse((at, number)));
            }
        }
    }

    /// Marks ready whoever has a connection or listens for it, and for the gateway.
    fn announce(&mut self, number: usize) {
        let Some(slot) = self.connections[number].as_mut() else { return };
        if let Some(port) = slot.listener {
            match slot.connection.state() {
                State::SynReceived => {}
                State::Closed => {
                    slot.listener = None;
                    self.opening.remove(&(port, number));
                }
                _ => {
                    slot.listener = None;
                    self.opening.remove(&(port, number));
                    if let Some(listener) = self.listeners.get_mut(&port) {
                        listener.ready.push_back(number);
                        slot.owner = Some(listener.owner);
                        if let Some(gateway) = &mut self.gateway {
                            gateway.note(listener.owner, Socket::Listener(port));
                        }
                    }
                }
            }
        }
        self.ready.extend(slot.owner);
        if let (Some(gateway), Some(owner)) = (&mut self.gateway, slot.owner) {
            gateway.note(owner, Socket::Tcp(number));
        }
    }

    /// A connection is over: its ends may be used again.
    fn forget(&mut self, number: usize) {
        let Some(slot) = self.connections[number].take() else { return };
        let parameters = (slot.connection.local(), slot.connection.remote());
        // The ends may belong to a later connection by now.
        if self.index.get(&parameters) == Some(&number) {
            self.index.swap_remove(&parameters);
        }
        if let Some(port) = slot.listener {
            self.opening.remove(&(port, number));
        }
        if let Some(owner) = slot.owner {
            self.ready.push(owner);
        }
        if let Some(gateway) = &mut self.gateway {
            gateway.forget(parameters);
        }
        self.ended.push(ConnectionView::of(&slot.connection));
        self.free.push(number);
    }

    /// Runs the timers that are due.
    pub fn wake(&mut self, now: Instant) {
        while let Some(Reverse((at, number))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            let Some(slot) = self.connections[number].as_mut() else { continue };
            if slot.scheduled != at {
                continue;
            }
            slot.scheduled = Instant::FAR;
            if slot.connection.next_wake() <= now {
                slot.connection.wake(&mut Output { now, datagrams: &mut self.out });
            }
            self.settle(number);
            self.schedule();
        }
        for up in self.ip.wake(now) {
            self.take_up(now, up);
        }
    }

    /// When [`Stack::wake`] is due; it may turn out to have been too early.
    #[inline]
    pub fn next_wake(&self) -> Instant {
        let timer = self.timers.peek().map_or(Instant::FAR, |Reverse((at, _))| *at);
        timer.min(self.ip.next_wake())
    }

    /// Hands what the transport made to the IP layer; what is for this site itself comes straight back.
    #[inline]
    pub fn send_out(&mut self, now: Instant) {
        while let Some(mut datagram) = self.out.pop() {
            if let Some(gateway) = &self.gateway {
                gateway.mark(&mut datagram);
            }
            let up = if self.ip.is_own(datagram.destination) {
                Some(Up::Datagram(datagram))
            } else {
                self.ip.send(now, datagram)
            };
            if let Some(up) = up {
                self.take_up(now, up);
            }
        }
    }

    /// True if there is a connection between these ends, ours first.
    pub(super) fn has_connection(&self, local: SocketAddrV4, remote: SocketAddrV4) -> bool {
        self.index.contains_key(&(local, remote))
    }

    /// Frees these ends, ours first, if what has them is over (RFC 9293 §3.6.1).
    pub(super) fn make_room(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> Result<(), SocketError> {
        let Some(number) = self.index.get(&(local, remote)).copied() else { return Ok(()) };
        let old = self.connections[number].as_ref().map(|slot| &slot.connection);
        if old.is_some_and(|old| !matches!(old.state(), State::TimeWait | State::Closed)) {
            return Err(SocketError::AddressInUse);
        }
        let released = old.is_some_and(Connection::is_released);
        self.index.swap_remove(&(local, remote));
        if released {
            self.forget(number);
        }
        Ok(())
    }

    /// Takes in a connection of program `owner` that was made elsewhere.
    pub(super) fn take_in(&mut self, connection: Connection, owner: u32) -> usize {
        let number = self.add(connection, Some(owner), None);
        self.settle(number);
        number
    }

    /// Where a connection that is made elsewhere puts its packets.
    pub(super) fn output(&mut self) -> &mut Outbox {
        &mut self.out
    }

    /// Tells a program that one of its sockets is ready.
    fn notify(&mut self, owner: u32, socket: Socket) {
        self.ready.push(owner);
        if let Some(gateway) = &mut self.gateway {
            gateway.note(owner, socket);
        }
    }

    /// As [`Outbox::balance`].
    #[inline]
    #[allow(clippy::vec_box)]
    pub fn share_free_lists(&mut self, shared: &mut Vec<Box<Datagram>>) {
        self.out.balance(shared);
    }

    /// True if the transport has something for the IP layer.
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }
}

/// "Message too long" of the operating system.
const EMSGSIZE: i32 = 90;
