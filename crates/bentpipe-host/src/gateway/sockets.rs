//! Sockets of a gateway's site: a program's kernel sockets ([`SocketsView`]) with what relaying needs, and the requests
//! that the firewall holds.

use super::firewall;
use super::network::Network;
use super::relay_socket::{begin, prepare_for_relay};
use super::site::{HANDSHAKE_MAX, Lookup, Site};
use super::syn::Syn;
use crate::datagram;
use crate::sockets::{SocketsView, bound, bytes_unacknowledged, error_of};
use bentpipe_net::delegate_sockets;
use bentpipe_net::held_requests::Endpoints;
use bentpipe_net::interception::{Bypassed, GatewaySockets, Interception, Named, Refusal, Request, RequestId};
use bentpipe_net::line::Line;
use bentpipe_net::socket::{Connection, SocketError, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use socket2::{Protocol, SockAddr, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

/// A gateway's sockets during one poll.
pub(super) struct GatewayView<'a> {
    pub sockets: SocketsView<'a>,
    pub site: &'a mut Site,
}

/// As long as a client may repeat its SYN.
const BYPASS_KEPT: Duration = Duration::from_secs(130);
/// One address of a name, while there are others.
const ADDRESS_LIMIT: Duration = Duration::from_secs(5);
const COUNTER_INTERVAL: Duration = Duration::from_secs(1);
/// Of the pair's UDP socket: a quarter of a second at 128 Mbit/s. The kernel gives what net.core.rmem_max allows.
const PAIR_BUFFER: usize = 4 << 20;
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Datagrams of the firewall's log taken in one turn.
const BATCHES_MAX: usize = 64;
/// `SIOCATMARK` (linux/sockios.h).
const SIOCATMARK: libc::Ioctl = 0x8905;

impl GatewayView<'_> {
    /// A socket may have changed.
    pub(super) fn note_change(&mut self, id: SocketId) {
        if self.sockets.own.open.contains_key(&id) {
            self.site.changed.insert(id);
        }
    }

    /// Somebody has ended `nft`.
    pub(super) fn rules_are_gone(&mut self) {
        self.site.rules_are_gone(self.sockets.clock.now());
        self.site_is_due();
    }

    /// Reads what the firewall intercepted.
    pub(super) fn take_intercepted(&mut self) {
        let now = self.sockets.clock.now();
        let (mut intercepted, mut passing, mut unreachable) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..BATCHES_MAX {
            let Some(network) = &mut self.site.network else { return };
            let more = network.log.receive(|prefix, packet| match Syn::parse(packet) {
                Some(syn) if prefix == firewall::PASSING.as_bytes() => passing.push((syn.client, syn.server)),
                Some(syn) => intercepted.push(syn),
                None => unreachable.extend(bentpipe_net::headers::unreachable_ends(packet)),
            });
            if !more {
                break;
            }
        }
        for syn in intercepted {
            self.site.take(syn, now);
        }
        let [unreachable, forgotten] = [unreachable, passing]
            .map(|all| all.iter().filter_map(|ends| self.site.named.get(ends).copied()).collect::<Vec<SocketId>>());
        for id in forgotten {
            self.fail(id, SocketError::Reset);
        }
        for id in unreachable {
            if self.connection(id) == Ok(Connection::Opening) {
                self.fail(id, SocketError::Unreachable);
            }
        }
    }

    /// Takes the connections whose clients have answered.
    pub(super) fn accept_admitted(&mut self) {
        let now = self.sockets.clock.now();
        self.site.accept_again = None;
        let (mut accepted, mut failed) = (Vec::new(), None);
        for listener in self.site.network.iter().flat_map(Network::listeners) {
            loop {
                match listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
                    Ok(taken) => accepted.push(taken),
                    Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
        }
        if let Some(error) = failed {
            // No descriptor left, as a rule.
            self.site.accept_again = Some(now + ACCEPT_AGAIN);
            self.site.remark(format!("cannot take a connection: {error}"));
        }
        for (socket, client) in accepted {
            self.take_accepted(socket, &client);
        }
    }

    fn take_accepted(&mut self, socket: Socket, client: &SockAddr) {
        // The socket itself no longer knows its client if that has reset the connection meanwhile.
        let ends = || Some((client.as_socket()?, socket.local_addr().ok()?.as_socket()?));
        let found = ends().and_then(|ends| {
            let id = self.site.held.answered_as(ends)?;
            self.site.held.forget_answered(ends).map(|request| (ends, id, request.traffic_class))
        });
        let Some((ends, id, class)) = found else {
            // Somebody's who found the port by himself, or whose program has given up meanwhile.
            let _ = SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
            return;
        };
        prepare_for_relay(&socket, Some(class));
        match self.sockets.attach(id, socket, true) {
            Ok(()) => drop(self.site.relayed.insert(ends, id)),
            Err(error) => self.fail(id, error),
        }
        self.note_change(id);
    }

    fn fail(&mut self, id: SocketId, error: SocketError) {
        if let Some(entry) = self.sockets.own.open.get_mut(&id) {
            entry.error.get_or_insert(error);
        }
        self.note_change(id);
    }

    /// Uses the addresses that were found.
    pub(super) fn take_looked_up(&mut self) {
        while let Some(answer) = self.site.resolver.next_answer() {
            let Some(lookup) = self.site.lookups.get_mut(&answer.socket) else { continue };
            match answer.addresses {
                Ok(mut addresses) if !addresses.is_empty() => {
                    addresses.reverse();
                    addresses.retain(|address| (lookup.may_connect)(address.ip()));
                    lookup.addresses = Some(addresses);
                    // The outcome where none is left.
                    self.try_next_address(answer.socket, SocketError::Denied);
                }
                _ => self.end_lookup(answer.socket, Some(SocketError::Other(libc::ENOENT))),
            }
        }
    }

    /// Of a connection to a name, something has changed; `true`: not for the program to know.
    pub(super) fn lookup_goes_on(&mut self, id: SocketId) -> bool {
        if !self.site.lookups.contains_key(&id) {
            return false;
        }
        match self.connection(id) {
            Ok(Connection::Opening) => {}
            Ok(Connection::Open) => self.end_lookup(id, None),
            Err(error) => self.try_next_address(id, error),
        }
        true
    }

    /// Goes on with the next address of a name, or ends with `error` if there is none.
    fn try_next_address(&mut self, id: SocketId, mut error: SocketError) {
        loop {
            let Some(lookup) = self.site.lookups.get_mut(&id) else { return };
            let Some(to) = lookup.addresses.as_mut().and_then(Vec::pop) else {
                return self.end_lookup(id, Some(error));
            };
            let others = lookup.addresses.as_ref().is_some_and(|left| !left.is_empty());
            self.site.lookup_deadlines.remove(&(lookup.until, id));
            let class = lookup.traffic_class;
            if others {
                lookup.until = self.sockets.clock.now() + ADDRESS_LIMIT;
                self.site.lookup_deadlines.insert((lookup.until, id));
            }
            if let Some(entry) = self.sockets.own.open.get_mut(&id) {
                // Closing a descriptor takes it out of epoll.
                entry.socket = None;
                entry.error = None;
            }
            let connected = begin(None, to, class);
            match connected.and_then(|(socket, open)| self.sockets.attach(id, socket, open).map(|()| open)) {
                Ok(true) => return self.end_lookup(id, None),
                Ok(false) => return,
                Err(why) => error = why,
            }
        }
    }

    fn end_lookup(&mut self, id: SocketId, error: Option<SocketError>) {
        self.site.end_lookup(id);
        match error {
            Some(error) => self.fail(id, error),
            None => self.note_change(id),
        }
    }

    /// Ends what has waited too long.
    pub(super) fn site_is_due(&mut self) {
        let now = self.sockets.clock.now();
        self.site.check_rules(now, self.sockets.epoll);
        for id in self.site.held.expire(now) {
            self.fail(id, SocketError::TimedOut);
        }
        let late = self.site.lookup_deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id);
        for id in late.collect::<Vec<SocketId>>() {
            self.try_next_address(id, SocketError::TimedOut);
        }
        if self.site.accept_again.is_some_and(|at| at <= now) {
            self.accept_admitted();
        }
    }
}

impl Sockets for GatewayView<'_> {
    delegate_sockets!(sockets: connection send receive patterns finish segments set_option receive_from echoes);

    fn connect(&mut self, to: SocketAddr) -> Result<SocketId, SocketError> {
        self.connect_as(None, to, 0)
    }

    fn listen(&mut self, port: u16) -> Result<SocketId, SocketError> {
        self.listen_at(self.site.any(port))
    }

    fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, SocketError> {
        let accepted = self.sockets.accept(listener)?;
        if let Some(id) = accepted {
            prepare_for_relay(self.sockets.kernel(id)?, None);
        }
        Ok(accepted)
    }

    fn local_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        match self.site.answers.get(&socket) {
            Some((_, server)) => Ok(*server),
            None => self.sockets.local_address(socket),
        }
    }

    fn peer_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        match self.site.answers.get(&socket) {
            Some((client, _)) => Ok(*client),
            None => self.sockets.peer_address(socket),
        }
    }

    fn close(&mut self, socket: SocketId) {
        if let Ok(kernel) = self.sockets.kernel(socket) {
            let _ = kernel.set_linger(None);
        }
        self.sockets.close(socket);
        self.site.closed(socket);
    }

    fn abort(&mut self, socket: SocketId) {
        self.sockets.abort(socket);
        self.site.closed(socket);
    }

    fn open_datagram(&mut self, port: u16) -> Result<SocketId, SocketError> {
        let socket = bound(self.site.pair_address(port), Type::DGRAM, Protocol::UDP)?;
        datagram::prepare(&socket, PAIR_BUFFER);
        self.sockets.add(socket, true)
    }

    fn send_to(&mut self, socket: SocketId, to: SocketAddr, data: &[u8]) -> Result<bool, SocketError> {
        let to = match to {
            SocketAddr::V4(v4) if self.site.ipv6 => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
            _ => to,
        };
        self.sockets.send_to(socket, to, data)
    }
}

impl Interception for GatewayView<'_> {
    fn next_request(&mut self) -> Option<Request> {
        self.site.held.next_request()
    }

    fn answer(&mut self, request: RequestId) -> Result<SocketId, SocketError> {
        let (request, syn) = self.site.held.take(request).ok_or(SocketError::Closed)?;
        let network = self.site.network.as_ref().ok_or(SocketError::Closed)?;
        network.injector.admit(&syn).map_err(|e| error_of(&e))?;
        let id = self.sockets.reserve();
        self.site.answers.insert(id, (request.client, request.server));
        self.site.held.answered(request, id, self.sockets.clock.now() + HANDSHAKE_MAX);
        Ok(id)
    }

    fn refuse(&mut self, request: RequestId, how: Refusal) {
        let Some((request, syn)) = self.site.held.take(request) else { return };
        let Some(network) = &self.site.network else { return };
        let sent = match how {
            Refusal::Refused => network.injector.refuse(&syn),
            Refusal::Unreachable => network.injector.unreachable(&syn),
            Refusal::Ignored => Ok(()),
            Refusal::Bypassed => network.injector.send_on(&syn),
        };
        if let Err(error) = sent {
            self.site.remark(format!("cannot answer the request of {}: {error}", request.client));
        }
        if how == Refusal::Bypassed {
            self.site.held.bypassed(request, self.sockets.clock.now() + BYPASS_KEPT);
        }
    }

    fn bypassed(&mut self, peer: Option<IpAddr>) -> Bypassed {
        let now = self.sockets.clock.now();
        let site = &mut self.site;
        if site.bypassed_read.is_none_or(|at| at + COUNTER_INTERVAL <= now) {
            site.bypassed_read = Some(now);
            let mut changed = None;
            if let Some(network) = &mut site.network {
                // Where the route is lost for a moment, the last one counts.
                let firewall = network.firewall.as_mut().zip(peer);
                changed = firewall.and_then(|(firewall, peer)| firewall.count_towards(peer).ok().flatten());
                if let Ok(seen) = network.counter.read() {
                    site.bypassed = seen;
                }
            }
            let to_site = |name: &String| site.options.rules.iter().any(|rules| rules.interfaces.contains(name));
            if let Some(route) = changed.filter(|route| to_site(&route.device)) {
                let hop = route.next_hop.map_or("a router of the other family".to_owned(), |hop| hop.to_string());
                site.remark(format!(
                    "{:?} leads to the clients and to the other gateway: of what passes by, only what goes to {hop} counts \
                     against the link's rate, and of the other family of addresses all",
                    route.device
                ));
            }
        }
        site.bypassed
    }
}

impl GatewaySockets for GatewayView<'_> {
    fn line(&mut self) -> Option<&mut dyn Line> {
        self.site.line.as_mut().map(|line| line.as_line())
    }

    fn take_changed(&mut self, into: &mut Vec<SocketId>) {
        into.extend(std::mem::take(&mut self.site.changed));
    }

    fn listen_at(&mut self, address: SocketAddr) -> Result<SocketId, SocketError> {
        // An accepted connection has it from its first moment.
        self.sockets.listen_at(address, |socket| prepare_for_relay(socket, None))
    }

    fn connect_as(
        &mut self,
        client: Option<SocketAddr>,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError> {
        let keeps = self.keeps_addresses();
        let client = client.filter(|client| keeps && client.is_ipv4() == to.is_ipv4());
        let marks = self.site.network.as_ref().map(|network| network.marks);
        let named = client.zip(marks).into_iter();
        let mut named = named.flat_map(|(client, marks)| [client, SocketAddr::new(client.ip(), 0)].map(|a| (a, marks)));
        let begun = loop {
            match named.next() {
                None => {
                    let begun = begin(None, to, traffic_class);
                    if let (Some(client), Ok(_)) = (client, &begun) {
                        let what = format!("{to} sees this gateway's address instead of {client}: it cannot be used");
                        self.site.remark(what);
                    }
                    break begun;
                }
                client => match begin(client, to, traffic_class) {
                    Err(SocketError::AddressInUse | SocketError::Denied) => {}
                    Err(SocketError::Other(libc::EADDRNOTAVAIL | libc::EINVAL)) => {}
                    other => break other,
                },
            }
        };
        let (socket, open) = begun?;
        let own = socket.local_addr().ok().and_then(|address| address.as_socket());
        let id = self.sockets.add(socket, open)?;
        if let (Some(own), Some(_)) = (own, client) {
            let ends: Endpoints = (own, to);
            self.site.names.insert(id, ends);
            self.site.named.insert(ends, id);
        }
        Ok(id)
    }

    fn connect_to_name(&mut self, server: Named<'_>) -> Result<SocketId, SocketError> {
        let Named { name, port, traffic_class, client, may_connect } = server;
        let id = self.sockets.reserve();
        if !self.site.resolver.ask(client, id, name, port) {
            self.close(id);
            return Err(SocketError::Other(libc::EAGAIN));
        }
        let until = Instant { ns: u64::MAX };
        self.site.lookups.insert(id, Lookup { addresses: None, may_connect, traffic_class, until });
        Ok(id)
    }

    fn keeps_addresses(&self) -> bool {
        self.site.options.keep_addresses && self.site.network.is_some()
    }

    fn next_is_urgent(&mut self, socket: SocketId) -> bool {
        let Some(entry) = self.sockets.own.open.get_mut(&socket) else { return false };
        let Some(kernel) = &entry.socket else { return false };
        // The kernel sets the mark before it queues the urgent byte: only what is in the queue can be judged.
        if let Err(error) = kernel.peek(&mut [std::mem::MaybeUninit::uninit()]) {
            // The kernel reports an error once: receive gives what is kept here.
            if entry.failed(&error).or(entry.error).is_none() {
                self.sockets.own.found_empty = Some(socket);
            }
            return false;
        }
        let Some(kernel) = &entry.socket else { return false };
        let mut at_mark: libc::c_int = 0;
        // SAFETY: the request writes one int.
        let result = unsafe { libc::ioctl(kernel.as_raw_fd(), SIOCATMARK, &raw mut at_mark) };
        result == 0 && at_mark != 0
    }

    fn send_urgent(&mut self, socket: SocketId, byte: u8) -> Result<bool, SocketError> {
        let entry = self.sockets.entry(socket)?;
        let Some(kernel) = &entry.socket else { return entry.error.map_or(Ok(false), Err) };
        match kernel.send_with_flags(&[byte], libc::MSG_NOSIGNAL | libc::MSG_OOB) {
            Ok(sent) => Ok(sent == 1),
            Err(error) => entry.failed(&error).map_or(Ok(false), Err),
        }
    }

    fn unacknowledged(&mut self, socket: SocketId) -> u64 {
        self.sockets.kernel(socket).map_or(0, |kernel| bytes_unacknowledged(kernel.as_fd()))
    }
}
