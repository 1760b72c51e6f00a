//! A site in memory: its connections have one end at the gateway and the other in the test's hands.

use bentpipe_net::held_requests::{HeldRequests, Hold};
use bentpipe_net::interception::{Bypassed, GatewaySockets, Interception, Named, Refusal, Request, RequestId};
use bentpipe_net::socket::{
    Arrival, Connection, Received, ReceivedPattern, Segments, SocketError, SocketId, SocketOption, Sockets,
};
use bentpipe_net::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// What a server does with connection attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    Accepts,
    Fails(SocketError),
    /// The handshake stays open until the test says otherwise.
    Waits,
}

/// One way of a connection.
#[derive(Default)]
pub struct Pipe {
    pub bytes: VecDeque<u8>,
    pub fin: bool,
    /// Offset of an urgent byte, counted from the first byte ever.
    urgent: Option<u64>,
    passed: u64,
}

/// A connection between a host (the test) and the gateway.
pub struct Tcp {
    pub to_gateway: Pipe,
    pub to_host: Pipe,
    pub opening: bool,
    /// What the gateway sees of a broken connection.
    pub error: Option<SocketError>,
    /// The gateway has reset it.
    pub aborted: bool,
    /// The gateway has closed it.
    pub closed: bool,
    pub urgent_bytes: Vec<u8>,
    /// Where they stand in what the host is given, and how much that is so far.
    pub urgent_at: Vec<usize>,
    given: usize,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub traffic_class: u8,
    pub name: Option<String>,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Pending,
    Answered(SocketId),
    Refused(Refusal),
}

/// The site.
pub struct Site {
    pub address: SocketAddr,
    pub sockets: BTreeMap<SocketId, Tcp>,
    requests: HeldRequests<()>,
    /// Requests that the gateway has not seen yet.
    pub unseen: usize,
    pub fates: BTreeMap<RequestId, Fate>,
    pub changed: BTreeSet<SocketId>,
    pub servers: BTreeMap<SocketAddr, Server>,
    pub names: BTreeMap<String, Server>,
    /// Connections that the gateway made, in order.
    pub made: Vec<SocketId>,
    pub listeners: BTreeMap<u16, (SocketId, VecDeque<SocketId>)>,
    /// Most bytes in a pipe towards a host, and most that one call moves.
    pub buffer: usize,
    pub piece: usize,
    pub keeps_addresses: bool,
    pub past: Bypassed,
    /// Datagrams: for the gateway, and from it.
    pub incoming: VecDeque<(SocketAddr, Vec<u8>)>,
    pub outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Errors of the datagram socket, before what is incoming.
    pub receive_errors: VecDeque<SocketError>,
    next_socket: u32,
}

impl Site {
    pub fn new(address: &str) -> Site {
        Site {
            address: address.parse().unwrap(),
            sockets: BTreeMap::new(),
            requests: HeldRequests::new(usize::MAX),
            unseen: 0,
            fates: BTreeMap::new(),
            changed: BTreeSet::new(),
            servers: BTreeMap::new(),
            names: BTreeMap::new(),
            made: Vec::new(),
            listeners: BTreeMap::new(),
            buffer: 64 << 10,
            piece: usize::MAX,
            keeps_addresses: true,
            past: Bypassed::default(),
            incoming: VecDeque::new(),
            outgoing: VecDeque::new(),
            receive_errors: VecDeque::new(),
            next_socket: 0,
        }
    }

    /// A client asks for `server`.
    pub fn request(&mut self, client: &str, server: &str, traffic_class: u8) -> RequestId {
        let ends = (client.parse().unwrap(), server.parse().unwrap());
        assert_eq!(self.requests.hold(ends, traffic_class, (), Instant::FAR), Hold::Waits);
        let id = RequestId(self.fates.len() as u64);
        self.fates.insert(id, Fate::Pending);
        self.unseen += 1;
        id
    }

    /// The gateway is gone, and what it held with it.
    pub fn forget_requests(&mut self) {
        for (id, fate) in self.fates.iter_mut().filter(|(_, fate)| **fate == Fate::Pending) {
            self.requests.take(*id).unwrap();
            *fate = Fate::Refused(Refusal::Ignored);
        }
        self.unseen = 0;
    }

    /// A client connects to a proxy's port.
    pub fn dial(&mut self, port: u16) -> SocketId {
        let socket = self.add("127.0.0.1:50000".parse().unwrap(), self.address, 0, false);
        self.listeners.get_mut(&port).unwrap().1.push_back(socket);
        socket
    }

    fn add(&mut self, peer: SocketAddr, local: SocketAddr, traffic_class: u8, opening: bool) -> SocketId {
        let id = SocketId(self.next_socket);
        self.next_socket += 1;
        self.sockets.insert(
            id,
            Tcp {
                to_gateway: Pipe::default(),
                to_host: Pipe::default(),
                opening,
                error: None,
                aborted: false,
                closed: false,
                urgent_bytes: Vec::new(),
                urgent_at: Vec::new(),
                given: 0,
                peer,
                local,
                traffic_class,
                name: None,
            },
        );
        self.changed.insert(id);
        id
    }

    pub fn answered(&self, request: RequestId) -> Option<SocketId> {
        match self.fates[&request] {
            Fate::Answered(socket) => Some(socket),
            _ => None,
        }
    }

    // What a host does with its end.

    pub fn host_send(&mut self, socket: SocketId, data: &[u8]) -> usize {
        let (buffer, piece) = (self.buffer, self.piece);
        let pipe = &mut self.sockets.get_mut(&socket).unwrap().to_gateway;
        let taken = data.len().min(buffer.saturating_sub(pipe.bytes.len())).min(piece);
        pipe.bytes.extend(&data[..taken]);
        self.changed.insert(socket);
        taken
    }

    pub fn host_urgent(&mut self, socket: SocketId, byte: u8) {
        let pipe = &mut self.sockets.get_mut(&socket).unwrap().to_gateway;
        pipe.urgent = Some(pipe.passed + pipe.bytes.len() as u64);
        pipe.bytes.push_back(byte);
        self.changed.insert(socket);
    }

    /// An urgent byte has not been taken yet: another would take its place.
    pub fn urgent_waits(&self, socket: SocketId) -> bool {
        self.sockets[&socket].to_gateway.urgent.is_some()
    }

    pub fn host_receive(&mut self, socket: SocketId, most: usize) -> Vec<u8> {
        let pipe = &mut self.sockets.get_mut(&socket).unwrap().to_host;
        let count = pipe.bytes.len().min(most);
        if count > 0 {
            self.changed.insert(socket);
        }
        pipe.bytes.drain(..count).collect()
    }

    pub fn host_finish(&mut self, socket: SocketId) {
        self.sockets.get_mut(&socket).unwrap().to_gateway.fin = true;
        self.changed.insert(socket);
    }

    pub fn host_reset(&mut self, socket: SocketId) {
        let tcp = self.sockets.get_mut(&socket).unwrap();
        tcp.error = Some(SocketError::Reset);
        self.changed.insert(socket);
    }

    /// The host has seen the end of what comes to it, and has taken all of it.
    pub fn host_sees_end(&self, socket: SocketId) -> bool {
        let tcp = &self.sockets[&socket];
        tcp.to_host.bytes.is_empty() && tcp.to_host.fin && !tcp.aborted
    }

    pub fn host_sees_reset(&self, socket: SocketId) -> bool {
        self.sockets[&socket].aborted
    }

    fn live(&mut self, socket: SocketId) -> Result<&mut Tcp, SocketError> {
        let tcp = self.sockets.get_mut(&socket).ok_or(SocketError::Closed)?;
        if tcp.closed || tcp.aborted {
            return Err(SocketError::Closed);
        }
        match tcp.error {
            Some(error) => Err(error),
            None => Ok(tcp),
        }
    }
}

impl Sockets for Site {
    fn connect(&mut self, _: SocketAddr) -> Result<SocketId, SocketError> {
        unreachable!("a gateway connects with connect_as")
    }
    fn connection(&mut self, socket: SocketId) -> Result<Connection, SocketError> {
        self.live(socket).map(|tcp| if tcp.opening { Connection::Opening } else { Connection::Open })
    }
    fn listen(&mut self, port: u16) -> Result<SocketId, SocketError> {
        let id = SocketId(self.next_socket);
        self.next_socket += 1;
        self.listeners.insert(port, (id, VecDeque::new()));
        Ok(id)
    }
    fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, SocketError> {
        let queue = self.listeners.values_mut().find(|(id, _)| *id == listener);
        Ok(queue.ok_or(SocketError::Closed)?.1.pop_front())
    }
    fn local_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        self.live(socket).map(|tcp| tcp.local)
    }
    fn peer_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        self.live(socket).map(|tcp| tcp.peer)
    }
    fn send(&mut self, socket: SocketId, data: &[u8]) -> Result<usize, SocketError> {
        let (buffer, piece) = (self.buffer, self.piece);
        let tcp = self.live(socket)?;
        let pipe = &mut tcp.to_host;
        assert!(!pipe.fin, "bytes after the end");
        let taken = data.len().min(buffer.saturating_sub(pipe.bytes.len())).min(piece);
        pipe.bytes.extend(&data[..taken]);
        tcp.given += taken;
        Ok(taken)
    }
    fn send_pattern(&mut self, _: SocketId, _: u64, _: u64, _: u64) -> Result<u64, SocketError> {
        unreachable!("a gateway has bytes")
    }
    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Received, SocketError> {
        let piece = self.piece;
        let pipe = &mut self.live(socket)?.to_gateway;
        let mut count = pipe.bytes.len().min(into.len()).min(piece);
        // Never across the urgent mark.
        if let Some(urgent) = pipe.urgent {
            count = if urgent == pipe.passed { count.min(1) } else { count.min((urgent - pipe.passed) as usize) };
        }
        for (to, byte) in into.iter_mut().zip(pipe.bytes.drain(..count)) {
            *to = byte;
        }
        pipe.passed += count as u64;
        if pipe.urgent.is_some_and(|urgent| urgent < pipe.passed) {
            pipe.urgent = None;
        }
        Ok(match count {
            0 if pipe.fin => Received::End,
            0 => Received::Nothing,
            count => Received::Bytes(count),
        })
    }
    fn receive_pattern(&mut self, _: SocketId, _: u64, _: u64, _: u64) -> Result<ReceivedPattern, SocketError> {
        unreachable!("a gateway has bytes")
    }
    fn finish(&mut self, socket: SocketId) {
        if let Ok(tcp) = self.live(socket) {
            tcp.to_host.fin = true;
        }
    }
    fn close(&mut self, socket: SocketId) {
        if let Ok(tcp) = self.live(socket) {
            // A kernel resets a connection that is closed with bytes unread (RFC 2525 §2.17).
            tcp.aborted = !tcp.to_gateway.bytes.is_empty();
            tcp.to_host.fin = true;
            tcp.closed = true;
        }
    }
    fn abort(&mut self, socket: SocketId) {
        if let Some(tcp) = self.sockets.get_mut(&socket).filter(|tcp| !tcp.closed) {
            tcp.aborted = true;
            tcp.to_host.bytes.clear();
        }
    }
    fn segments(&mut self, _: SocketId) -> Result<Segments, SocketError> {
        Ok(Segments::default())
    }
    fn set_option(&mut self, _: SocketId, _: SocketOption) -> Result<(), SocketError> {
        Ok(())
    }
    fn open_datagram(&mut self, _: u16) -> Result<SocketId, SocketError> {
        Ok(SocketId(u32::MAX))
    }
    fn send_to(&mut self, _: SocketId, to: SocketAddr, data: &[u8]) -> Result<bool, SocketError> {
        self.outgoing.push_back((to, data.to_vec()));
        Ok(true)
    }
    fn receive_from(&mut self, _: SocketId, into: &mut [u8]) -> Result<Option<Arrival>, SocketError> {
        if let Some(error) = self.receive_errors.pop_front() {
            return Err(error);
        }
        Ok(self.incoming.pop_front().map(|(from, data)| {
            into[..data.len()].copy_from_slice(&data);
            Arrival { bytes: data.len(), from, at: Instant::ZERO, traffic_class: 0 }
        }))
    }
    fn open_echo(&mut self) -> Result<SocketId, SocketError> {
        Err(SocketError::Denied)
    }
    fn send_echo(&mut self, _: SocketId, _: IpAddr, _: u16, _: &[u8]) -> Result<bool, SocketError> {
        Err(SocketError::Closed)
    }
    fn receive_echo(&mut self, _: SocketId, _: &mut [u8]) -> Result<Option<(u16, usize, Instant)>, SocketError> {
        Err(SocketError::Closed)
    }
}

impl Interception for Site {
    fn next_request(&mut self) -> Option<Request> {
        let request = self.requests.next_request();
        self.unseen -= usize::from(request.is_some());
        request
    }
    fn answer(&mut self, request: RequestId) -> Result<SocketId, SocketError> {
        assert_eq!(self.fates[&request], Fate::Pending);
        self.requests.take(request).unwrap();
        let socket = self.add("10.0.0.2:40000".parse().unwrap(), self.address, 0, false);
        self.fates.insert(request, Fate::Answered(socket));
        Ok(socket)
    }
    fn refuse(&mut self, request: RequestId, how: Refusal) {
        assert_eq!(self.fates[&request], Fate::Pending);
        self.requests.take(request).unwrap();
        self.fates.insert(request, Fate::Refused(how));
    }
    fn bypassed(&mut self, _: Option<IpAddr>) -> Bypassed {
        self.past
    }
}

impl GatewaySockets for Site {
    fn take_changed(&mut self, into: &mut Vec<SocketId>) {
        into.extend(std::mem::take(&mut self.changed));
    }
    fn connect_as(
        &mut self,
        client: Option<SocketAddr>,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError> {
        let server = self.servers.get(&to).copied().unwrap_or(Server::Fails(SocketError::Refused));
        let socket = self.add(to, client.unwrap_or(self.address), traffic_class, server == Server::Waits);
        if let Server::Fails(error) = server {
            self.sockets.get_mut(&socket).unwrap().error = Some(error);
        }
        self.made.push(socket);
        Ok(socket)
    }
    fn connect_to_name(&mut self, named: Named<'_>) -> Result<SocketId, SocketError> {
        let Named { name, port, traffic_class, may_connect, .. } = named;
        let server = self.names.get(name).copied().unwrap_or(Server::Fails(SocketError::Unreachable));
        let to = SocketAddr::new(name.parse().unwrap_or([192, 0, 2, 1].into()), port);
        if !may_connect(to.ip()) {
            return Err(SocketError::Denied);
        }
        let socket = self.add(to, self.address, traffic_class, false);
        let tcp = self.sockets.get_mut(&socket).unwrap();
        tcp.name = Some(name.to_owned());
        if let Server::Fails(error) = server {
            tcp.error = Some(error);
        }
        self.made.push(socket);
        Ok(socket)
    }
    fn keeps_addresses(&self) -> bool {
        self.keeps_addresses
    }
    fn next_is_urgent(&mut self, socket: SocketId) -> bool {
        self.live(socket).is_ok_and(|tcp| tcp.to_gateway.urgent == Some(tcp.to_gateway.passed))
    }
    fn send_urgent(&mut self, socket: SocketId, byte: u8) -> Result<bool, SocketError> {
        let tcp = self.live(socket)?;
        tcp.to_host.bytes.push_back(byte);
        tcp.urgent_bytes.push(byte);
        tcp.urgent_at.push(tcp.given);
        tcp.given += 1;
        Ok(true)
    }
    fn unacknowledged(&mut self, socket: SocketId) -> u64 {
        self.sockets[&socket].to_host.bytes.len() as u64
    }
}
