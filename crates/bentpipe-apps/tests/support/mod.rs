//! Two hosts in virtual time: a pipe of fixed rate and delay between them, streams with limited buffers, and faults.
//!
//! Changes are announced once, as the contract of `Sockets` says: a program that stops before a socket would block is
//! not polled again and its test hangs (the world stops and the report says `Running`).
#![allow(dead_code, reason = "each test file uses its part")]

pub mod script;

use bentpipe_apps::{App, Report, Status};
use bentpipe_net::socket::{
    Arrival, Connection, Received, ReceivedPattern, Segments, SocketError, SocketId, SocketOption, Sockets,
    count_wrong, fill_pattern,
};
use bentpipe_net::time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;
pub const SEED: u64 = 7;

pub fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + host as u8))
}

pub fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Something that goes wrong with a connection.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which connection of the run, in the order of connecting.
    pub connection: usize,
    /// It happens on the way to this host.
    pub to: usize,
    /// After so many bytes were delivered there.
    pub after: u64,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The receiver sees an end of data that the sender never sent; the sender is reset.
    End,
    /// Both sides are reset.
    Reset,
    /// Nothing passes any more, either way.
    Blackhole,
    /// One byte is inverted.
    Damage,
    /// The connection request is answered with a reset.
    Refuse,
}

/// What becomes of an echo request: replies, each after a time, with the number and data as changed.
pub type EchoFate = Box<dyn FnMut(u64, u16, &[u8]) -> Vec<(Duration, u16, Vec<u8>)> + Send>;

/// What becomes of a datagram, given its number among all of the run, its sending host and its data: copies, each
/// delivered after a time.
pub type DatagramFate = Box<dyn FnMut(u64, usize, &[u8]) -> Vec<(Duration, Vec<u8>)> + Send>;

pub struct World {
    pub net: Net,
    pub programs: Vec<(usize, Box<dyn App>)>,
    pub limit: Instant,
}

pub struct Net {
    pub now: Instant,
    pub one_way_delay: Duration,
    pub rate_bps: u64,
    /// Of each sending and receiving socket.
    pub buffer_bytes: usize,
    /// A send call takes no more.
    pub send_call_max: usize,
    pub faults: Vec<Fault>,
    pub echo: Option<EchoFate>,
    pub echo_denied: bool,
    /// `None`: each datagram arrives once, after the one-way delay.
    pub datagram: Option<DatagramFate>,
    /// Ports that are taken.
    pub ports_in_use: Vec<u16>,
    sockets: Vec<Socket>,
    events: BTreeMap<(Instant, u64), Event>,
    scheduled: u64,
    busy: [Instant; 2],
    dirty: [bool; 2],
    connections: usize,
    echoes: u64,
    datagrams: u64,
}

enum Socket {
    Listener { host: usize, port: u16, backlog: VecDeque<SocketId>, closed: bool },
    Stream(Stream),
    Echo { host: usize, replies: VecDeque<(u16, Vec<u8>, Instant)> },
    Datagram(DatagramSocket),
}

#[derive(Default)]
struct DatagramSocket {
    host: usize,
    port: u16,
    traffic_class: u8,
    waiting: VecDeque<(Arrival, Vec<u8>)>,
    error: Option<SocketError>,
    closed: bool,
}

struct Stream {
    host: usize,
    connection: usize,
    local: SocketAddr,
    remote: SocketAddr,
    peer: Option<SocketId>,
    open: bool,
    error: Option<SocketError>,
    received: VecDeque<u8>,
    received_end: bool,
    delivered: u64,
    /// Pieces sent and received.
    segments: u64,
    arrivals: u64,
    unsent: VecDeque<u8>,
    in_flight: usize,
    finishing: bool,
    fin_sent: bool,
    closed: bool,
}

enum Event {
    Syn(SocketId),
    SynAck(SocketId),
    Arrive(SocketId, Vec<u8>),
    Fin(SocketId),
    Fail(SocketId, SocketError),
    Writable(usize),
    EchoReply(SocketId, u16, Vec<u8>),
    Datagram { from: SocketId, to: SocketAddr, data: Vec<u8> },
    Unreachable(SocketId),
}

impl World {
    /// 100 ms each way, 1 Mbit/s, 64 KiB buffers, an hour.
    pub fn new() -> World {
        let net = Net {
            now: Instant::ZERO,
            one_way_delay: Duration::from_millis(100),
            rate_bps: 1_000_000,
            buffer_bytes: 65_536,
            send_call_max: usize::MAX,
            faults: Vec::new(),
            echo: None,
            echo_denied: false,
            datagram: None,
            ports_in_use: Vec::new(),
            sockets: Vec::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            busy: [Instant::ZERO; 2],
            dirty: [true; 2],
            connections: 0,
            echoes: 0,
            datagrams: 0,
        };
        World { net, programs: Vec::new(), limit: Instant::ZERO + Duration::from_secs(3600) }
    }

    pub fn with_fault(mut self, connection: usize, to: usize, after: u64, kind: FaultKind) -> World {
        self.net.faults.push(Fault { connection, to, after, kind });
        self
    }

    pub fn add(&mut self, host: usize, program: Box<dyn App>) {
        self.programs.push((host, program));
    }

    /// Runs until the client's programs, and the servers' if they succeeded, are done; or nothing can happen any more.
    pub fn run(&mut self) {
        let mut turns_now = 0;
        loop {
            loop {
                let now = self.net.now;
                let mut polled = false;
                for (host, program) in &mut self.programs {
                    if self.net.dirty[*host] || program.next_wake().is_some_and(|due| due <= now) {
                        polled = true;
                        program.poll(now, &mut View { net: &mut self.net, host: *host });
                    }
                }
                // Sockets change by events only, never within a poll.
                self.net.dirty = [false; 2];
                turns_now += 1;
                assert!(turns_now < 1_000_000, "programs are polled for ever at {:?}", self.net.now);
                if !polled {
                    break;
                }
            }
            let done = |wanted| self.programs.iter().filter(|(host, _)| *host == wanted).all(|(_, p)| p.is_done());
            let failed = || {
                let mut clients = self.programs.iter().filter(|(host, _)| *host == CLIENT);
                clients.any(|(_, p)| matches!(p.report(self.net.now).status, Status::Failed(_)))
            };
            if done(CLIENT) && (done(SERVER) || failed()) {
                return;
            }
            let timers = self.programs.iter().filter_map(|(_, program)| program.next_wake());
            let events = self.net.events.keys().next().map(|(at, _)| *at);
            let Some(next) = timers.chain(events).min().filter(|next| *next <= self.limit) else { return };
            if next > self.net.now {
                self.net.now = next;
                turns_now = 0;
            }
            while let Some(entry) = self.net.events.first_entry().filter(|entry| entry.key().0 <= self.net.now) {
                let event = entry.remove();
                self.net.happen(event);
            }
        }
    }

    pub fn report(&self, index: usize) -> Report {
        self.programs[index].1.report(self.net.now)
    }

    /// Listeners and streams that no program has closed.
    pub fn sockets_open(&self, host: usize) -> usize {
        let is_open = |socket: &&Socket| match socket {
            Socket::Listener { host: at, closed, .. } => *at == host && !closed,
            Socket::Stream(stream) => stream.host == host && !stream.closed,
            Socket::Datagram(socket) => socket.host == host && !socket.closed,
            Socket::Echo { .. } => false,
        };
        self.net.sockets.iter().filter(is_open).count()
    }

    pub fn connections(&self) -> usize {
        self.net.connections
    }
}

impl Net {
    fn at(&mut self, when: Instant, event: Event) {
        self.scheduled += 1;
        self.events.insert((when, self.scheduled), event);
    }

    fn stream(&mut self, id: SocketId) -> Result<&mut Stream, SocketError> {
        match self.sockets.get_mut(id.0 as usize) {
            Some(Socket::Stream(stream)) if !stream.closed => Ok(stream),
            _ => Err(SocketError::Closed),
        }
    }

    fn raw(&mut self, id: SocketId) -> &mut Stream {
        match &mut self.sockets[id.0 as usize] {
            Socket::Stream(stream) => stream,
            _ => unreachable!("events are for streams"),
        }
    }

    fn push(&mut self, socket: Socket) -> SocketId {
        self.sockets.push(socket);
        SocketId(self.sockets.len() as u32 - 1)
    }

    fn fault(&self, connection: usize, to: usize, kind: FaultKind, delivered: u64) -> Option<u64> {
        let hit = |f: &&Fault| f.connection == connection && f.to == to && f.kind == kind && f.after < delivered;
        self.faults.iter().find(hit).map(|f| f.after)
    }

    fn is_black(&self, connection: usize) -> bool {
        let black = |f: &&Fault| f.connection == connection && f.kind == FaultKind::Blackhole;
        let reached = |f: &Fault| {
            self.sockets.iter().any(|socket| match socket {
                Socket::Stream(end) => end.connection == connection && end.host == f.to && end.delivered >= f.after,
                _ => false,
            })
        };
        self.faults.iter().filter(black).any(|f| f.after == 0 || reached(f))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Writable(host) => self.dirty[host] = true,
            Event::EchoReply(id, number, data) => {
                let now = self.now;
                if let Socket::Echo { host, replies } = &mut self.sockets[id.0 as usize] {
                    replies.push_back((number, data, now));
                    self.dirty[*host] = true;
                }
            }
            Event::Datagram { from, to, data } => self.deliver(from, to, data),
            Event::Unreachable(id) => {
                if let Socket::Datagram(socket) = &mut self.sockets[id.0 as usize] {
                    socket.error = Some(SocketError::Refused);
                    self.dirty[socket.host] = true;
                }
            }
            Event::Syn(id) => self.syn(id),
            Event::SynAck(id) => {
                let stream = self.raw(id);
                stream.open = true;
                let host = stream.host;
                self.dirty[host] = true;
                self.pump(id);
            }
            Event::Fail(id, error) => {
                let stream = self.raw(id);
                stream.error = stream.error.or(Some(error));
                let host = stream.host;
                self.dirty[host] = true;
            }
            Event::Fin(id) => {
                let connection = self.raw(id).connection;
                if !self.is_black(connection) {
                    let stream = self.raw(id);
                    stream.received_end = true;
                    let host = stream.host;
                    self.dirty[host] = true;
                }
            }
            Event::Arrive(id, data) => self.arrive(id, data),
        }
    }

    fn deliver(&mut self, from: SocketId, to: SocketAddr, data: Vec<u8>) {
        let Socket::Datagram(DatagramSocket { host, port, traffic_class, .. }) = self.sockets[from.0 as usize] else {
            return;
        };
        let (at, back) = (self.now, self.now + self.one_way_delay);
        let receiver = self.sockets.iter_mut().find_map(|socket| match socket {
            Socket::Datagram(socket)
                if address(socket.host) == to.ip() && socket.port == to.port() && !socket.closed =>
            {
                Some(socket)
            }
            _ => None,
        });
        let Some(receiver) = receiver else { return self.at(back, Event::Unreachable(from)) };
        let from = SocketAddr::new(address(host), port);
        receiver.waiting.push_back((Arrival { bytes: data.len(), from, at, traffic_class }, data));
        self.dirty[receiver.host] = true;
    }

    fn syn(&mut self, id: SocketId) {
        let (connection, remote, local) = {
            let stream = self.raw(id);
            (stream.connection, stream.remote, stream.local)
        };
        let refused = self.faults.iter().any(|f| f.connection == connection && f.kind == FaultKind::Refuse);
        if self.is_black(connection) {
            return;
        }
        let host = usize::from(remote.ip() == address(SERVER));
        let listener = self.sockets.iter().position(|socket| {
            matches!(socket, Socket::Listener { host: at, port, closed: false, .. } if *at == host && *port == remote.port())
        });
        let back = self.now + self.one_way_delay;
        let Some(listener) = listener.filter(|_| !refused) else {
            return self.at(back, Event::Fail(id, SocketError::Refused));
        };
        let mut accepted = Stream::new(host, connection, remote, local);
        (accepted.open, accepted.peer) = (true, Some(id));
        let accepted = self.push(Socket::Stream(accepted));
        self.raw(id).peer = Some(accepted);
        if let Socket::Listener { backlog, .. } = &mut self.sockets[listener] {
            backlog.push_back(accepted);
        }
        self.dirty[host] = true;
        self.at(back, Event::SynAck(id));
    }

    fn arrive(&mut self, id: SocketId, mut data: Vec<u8>) {
        let (host, connection, delivered, peer) = {
            let stream = self.raw(id);
            (stream.host, stream.connection, stream.delivered, stream.peer)
        };
        if self.is_black(connection) {
            return;
        }
        let back = self.now + self.one_way_delay;
        if let Some(peer) = peer {
            let sender = self.raw(peer);
            sender.in_flight = sender.in_flight.saturating_sub(data.len());
        }
        if self.raw(id).closed {
            peer.into_iter().for_each(|peer| self.at(back, Event::Fail(peer, SocketError::Reset)));
            return;
        }
        let end = delivered + data.len() as u64;
        if let Some(offset) = self.fault(connection, host, FaultKind::Damage, end).filter(|offset| *offset >= delivered)
        {
            data[(offset - delivered) as usize] ^= 0xff;
        }
        for kind in [FaultKind::End, FaultKind::Reset, FaultKind::Blackhole] {
            if let Some(offset) = self.fault(connection, host, kind, end) {
                data.truncate(offset.saturating_sub(delivered) as usize);
                let now = self.now;
                match kind {
                    FaultKind::End => self.raw(id).received_end = true,
                    FaultKind::Reset => self.at(now, Event::Fail(id, SocketError::Reset)),
                    _ => {}
                }
                if let Some(peer) = peer.filter(|_| kind != FaultKind::Blackhole) {
                    self.at(back, Event::Fail(peer, SocketError::Reset));
                }
            }
        }
        let stream = self.raw(id);
        stream.delivered += data.len() as u64;
        stream.arrivals += 1;
        stream.received.extend(data);
        self.dirty[host] = true;
        peer.into_iter().for_each(|peer| self.pump(peer));
    }

    /// Sends what the peer's buffer has room for.
    fn pump(&mut self, id: SocketId) {
        let (now, delay, rate, buffer) = (self.now, self.one_way_delay, self.rate_bps, self.buffer_bytes);
        loop {
            let stream = self.raw(id);
            let (Some(peer), true, None) = (stream.peer, stream.open, stream.error) else { return };
            let (host, in_flight) = (stream.host, stream.in_flight);
            let held = self.raw(peer).received.len();
            let room = buffer.saturating_sub(held + in_flight).min(1460);
            let start = self.busy[host].max(now);
            let stream = self.raw(id);
            let count = stream.unsent.len().min(room);
            if count == 0 {
                if stream.finishing && !stream.fin_sent && stream.unsent.is_empty() {
                    stream.fin_sent = true;
                    self.at(start + delay, Event::Fin(peer));
                }
                return;
            }
            let data: Vec<u8> = stream.unsent.drain(..count).collect();
            stream.in_flight += count;
            stream.segments += 1;
            self.busy[host] = start + Duration::from_nanos(count as u64 * 8_000_000_000 / rate);
            let arrives = self.busy[host] + delay;
            self.at(arrives, Event::Arrive(peer, data));
            self.at(now, Event::Writable(host));
        }
    }
}

impl Stream {
    fn new(host: usize, connection: usize, local: SocketAddr, remote: SocketAddr) -> Stream {
        Stream {
            host,
            connection,
            local,
            remote,
            peer: None,
            open: false,
            error: None,
            received: VecDeque::new(),
            received_end: false,
            delivered: 0,
            segments: 0,
            arrivals: 0,
            unsent: VecDeque::new(),
            in_flight: 0,
            finishing: false,
            fin_sent: false,
            closed: false,
        }
    }
}

/// One host's view.
struct View<'a> {
    net: &'a mut Net,
    host: usize,
}

impl Sockets for View<'_> {
    fn connect(&mut self, to: SocketAddr) -> Result<SocketId, SocketError> {
        let connection = self.net.connections;
        self.net.connections += 1;
        let local = SocketAddr::new(address(self.host), 32_768 + connection as u16);
        let id = self.net.push(Socket::Stream(Stream::new(self.host, connection, local, to)));
        let arrives = self.net.now + self.net.one_way_delay;
        self.net.at(arrives, Event::Syn(id));
        Ok(id)
    }

    fn connection(&mut self, socket: SocketId) -> Result<Connection, SocketError> {
        let stream = self.net.stream(socket)?;
        match (stream.error, stream.open) {
            (Some(error), _) => Err(error),
            (None, true) => Ok(Connection::Open),
            (None, false) => Ok(Connection::Opening),
        }
    }

    fn listen(&mut self, port: u16) -> Result<SocketId, SocketError> {
        let host = self.host;
        let taken = |socket: &Socket| matches!(socket, Socket::Listener { host: at, port: p, closed: false, .. } if *at == host && *p == port);
        if self.net.ports_in_use.contains(&port) || self.net.sockets.iter().any(taken) {
            return Err(SocketError::AddressInUse);
        }
        Ok(self.net.push(Socket::Listener { host, port, backlog: VecDeque::new(), closed: false }))
    }

    fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, SocketError> {
        match self.net.sockets.get_mut(listener.0 as usize) {
            Some(Socket::Listener { backlog, closed: false, .. }) => Ok(backlog.pop_front()),
            _ => Err(SocketError::Closed),
        }
    }

    fn local_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        Ok(self.net.stream(socket)?.local)
    }

    fn peer_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        Ok(self.net.stream(socket)?.remote)
    }

    fn send(&mut self, socket: SocketId, data: &[u8]) -> Result<usize, SocketError> {
        let (now, buffer, most, host) = (self.net.now, self.net.buffer_bytes, self.net.send_call_max, self.host);
        let stream = self.net.stream(socket)?;
        if let Some(error) = stream.error {
            return Err(error);
        }
        if stream.finishing {
            return Err(SocketError::Closed);
        }
        let taken = data.len().min(buffer - stream.unsent.len()).min(most);
        stream.unsent.extend(&data[..taken]);
        if taken == most {
            self.net.at(now + Duration::from_micros(10), Event::Writable(host));
        }
        self.net.pump(socket);
        Ok(taken)
    }

    fn send_pattern(&mut self, socket: SocketId, pattern: u64, offset: u64, length: u64) -> Result<u64, SocketError> {
        let mut data = vec![0; length.min(65_536) as usize];
        fill_pattern(pattern, offset, &mut data);
        let taken = self.send(socket, &data)? as u64;
        if taken == 65_536 && length > taken {
            return Ok(taken + self.send_pattern(socket, pattern, offset + taken, length - taken)?);
        }
        Ok(taken)
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Received, SocketError> {
        let stream = self.net.stream(socket)?;
        let taken = into.len().min(stream.received.len());
        if taken > 0 {
            for (to, byte) in into.iter_mut().zip(stream.received.drain(..taken)) {
                *to = byte;
            }
            let peer = stream.peer;
            peer.into_iter().for_each(|peer| self.net.pump(peer));
            return Ok(Received::Bytes(taken));
        }
        match (stream.error, stream.received_end) {
            (_, true) => Ok(Received::End),
            (Some(error), _) => Err(error),
            (None, false) => Ok(Received::Nothing),
        }
    }

    fn receive_pattern(
        &mut self,
        socket: SocketId,
        pattern: u64,
        offset: u64,
        max: u64,
    ) -> Result<ReceivedPattern, SocketError> {
        let mut buffer = vec![0; max.min(65_536) as usize];
        Ok(match self.receive(socket, &mut buffer)? {
            Received::Bytes(n) => {
                let wrong = count_wrong(pattern, offset, &buffer[..n]);
                ReceivedPattern::Bytes { bytes: n as u64, wrong, more: true }
            }
            Received::Nothing => ReceivedPattern::Nothing,
            Received::End => ReceivedPattern::End,
        })
    }

    fn finish(&mut self, socket: SocketId) {
        if let Ok(stream) = self.net.stream(socket) {
            stream.finishing = true;
            self.net.pump(socket);
        }
    }

    fn close(&mut self, socket: SocketId) {
        match self.net.sockets.get_mut(socket.0 as usize) {
            Some(Socket::Listener { closed, .. }) => *closed = true,
            Some(Socket::Stream(stream)) => {
                stream.closed = true;
                stream.finishing = true;
                stream.received.clear();
                self.net.pump(socket);
            }
            Some(Socket::Datagram(socket)) => socket.closed = true,
            _ => {}
        }
    }

    fn abort(&mut self, socket: SocketId) {
        let back = self.net.now + self.net.one_way_delay;
        if let Ok(stream) = self.net.stream(socket) {
            stream.closed = true;
            stream.unsent.clear();
            stream.error = Some(SocketError::Closed);
            let (peer, connection) = (stream.peer, stream.connection);
            if let Some(peer) = peer.filter(|_| !self.net.is_black(connection)) {
                self.net.at(back, Event::Fail(peer, SocketError::Reset));
            }
        }
    }

    fn segments(&mut self, socket: SocketId) -> Result<Segments, SocketError> {
        let stream = self.net.stream(socket)?;
        Ok(Segments { sent: stream.segments, received: stream.arrivals })
    }

    fn set_option(&mut self, socket: SocketId, option: SocketOption) -> Result<(), SocketError> {
        if let (Some(Socket::Datagram(socket)), SocketOption::Dscp(dscp)) =
            (self.net.sockets.get_mut(socket.0 as usize), option)
        {
            socket.traffic_class = dscp.traffic_class();
        }
        Ok(())
    }

    fn open_datagram(&mut self, port: u16) -> Result<SocketId, SocketError> {
        if self.net.ports_in_use.contains(&port) {
            return Err(SocketError::AddressInUse);
        }
        Ok(self.net.push(Socket::Datagram(DatagramSocket { host: self.host, port, ..DatagramSocket::default() })))
    }

    fn send_to(&mut self, socket: SocketId, to: SocketAddr, data: &[u8]) -> Result<bool, SocketError> {
        let (number, delay) = (self.net.datagrams, self.net.one_way_delay);
        self.net.datagrams += 1;
        let copies = match &mut self.net.datagram {
            Some(fate) => fate(number, self.host, data),
            None => vec![(delay, data.to_vec())],
        };
        for (after, data) in copies {
            self.net.at(self.net.now + after, Event::Datagram { from: socket, to, data });
        }
        Ok(true)
    }

    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Option<Arrival>, SocketError> {
        let Some(Socket::Datagram(socket)) = self.net.sockets.get_mut(socket.0 as usize) else {
            return Err(SocketError::Closed);
        };
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        Ok(socket.waiting.pop_front().map(|(arrival, data)| {
            let bytes = data.len().min(into.len());
            into[..bytes].copy_from_slice(&data[..bytes]);
            Arrival { bytes, ..arrival }
        }))
    }

    fn open_echo(&mut self) -> Result<SocketId, SocketError> {
        if self.net.echo_denied {
            return Err(SocketError::Denied);
        }
        Ok(self.net.push(Socket::Echo { host: self.host, replies: VecDeque::new() }))
    }

    fn send_echo(&mut self, socket: SocketId, _to: IpAddr, number: u16, data: &[u8]) -> Result<bool, SocketError> {
        let index = self.net.echoes;
        self.net.echoes += 1;
        let round_trip = self.net.one_way_delay + self.net.one_way_delay;
        let replies = match &mut self.net.echo {
            Some(fate) => fate(index, number, data),
            None => vec![(round_trip, number, data.to_vec())],
        };
        let now = self.net.now;
        for (after, number, data) in replies {
            self.net.at(now + after, Event::EchoReply(socket, number, data));
        }
        Ok(true)
    }

    fn receive_echo(
        &mut self,
        socket: SocketId,
        into: &mut [u8],
    ) -> Result<Option<(u16, usize, Instant)>, SocketError> {
        let Some(Socket::Echo { replies, .. }) = self.net.sockets.get_mut(socket.0 as usize) else {
            return Err(SocketError::Closed);
        };
        Ok(replies.pop_front().map(|(number, data, at)| {
            let held = data.len().min(into.len());
            into[..held].copy_from_slice(&data[..held]);
            (number, held, at)
        }))
    }
}
