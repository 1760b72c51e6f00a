//! What a gateway's site can do besides having sockets: [`Capture`] in the kernel.

use super::firewall::{self, Firewall, Marks};
use super::network::{EARLY_DEMUX, EarlyDemux, Network, interfaces, set_transparent, stop_early_demux};
use super::resolver::Resolver;
use super::syn::Syn;
use crate::netlink::index_of;
use crate::sockets::{SocketsView, bytes_unacknowledged, error_of, new_socket, prepare_for_relay};
use bentpipe_gateway::file::CaptureRules;
use bentpipe_net::capture::{Bypassed, Capture, Named, Refusal, Request, RequestId};
use bentpipe_net::socket::{Connection, SocketError, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use rustix::event::epoll;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What a gateway does at its site.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Which connections are captured; `None`: the gateway is only asked.
    pub rules: Option<CaptureRules>,
    /// When the gateway is gone without having been stopped, what it would capture is refused instead of passing by.
    pub closed: bool,
    /// Connections are made in their clients' names.
    pub keep_addresses: bool,
    /// Where the program's UDP socket is bound; `None`: to all addresses.
    pub pair: Option<SocketAddr>,
    /// Where the program's listeners are bound, by port; others to all addresses.
    pub listeners: Vec<SocketAddr>,
    /// Requests that may be held at once; further ones are lost, and their clients ask again.
    pub held_max: usize,
    /// Requests a second that are looked at; the rest are lost.
    pub rate_max: u32,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        CaptureOptions {
            rules: None,
            closed: false,
            keep_addresses: true,
            pair: None,
            listeners: Vec::new(),
            held_max: 4096,
            rate_max: 2000,
        }
    }
}

/// The state behind [`Capture`].
pub(crate) struct CaptureSite {
    options: CaptureOptions,
    /// The kernel has IPv6.
    pub(crate) ipv6: bool,
    network: Option<Network>,
    /// What is given back at the end.
    early_demux: Option<EarlyDemux>,
    held: BTreeMap<Ends, Held>,
    by_request: BTreeMap<RequestId, Ends>,
    relayed: BTreeMap<Ends, SocketId>,
    /// Connections that were made in a client's name, by that name and their server.
    named: BTreeMap<Ends, SocketId>,
    caught: VecDeque<RequestId>,
    deadlines: BTreeSet<(Instant, Ends)>,
    requests: u64,
    resolver: Resolver,
    lookups: BTreeMap<SocketId, Lookup>,
    lookup_deadlines: BTreeSet<(Instant, SocketId)>,
    bypassed: Bypassed,
    bypassed_read: Option<Instant>,
    accept_again: Option<Instant>,
    check_rules: Instant,
    remarks: VecDeque<String>,
}

/// Who asks, and who is asked.
pub(super) type Ends = (SocketAddr, SocketAddr);

struct Held {
    request: RequestId,
    syn: Syn,
    state: State,
    until: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody has decided.
    Waiting,
    /// Admitted to the kernel, whose handshake with the client is under way.
    Answered(SocketId),
    /// Its packets pass by.
    Bypassed,
}

/// A connection to a name.
struct Lookup {
    /// Addresses to try, the next last; `None`: not known yet.
    addresses: Option<Vec<SocketAddr>>,
    may_connect: fn(IpAddr) -> bool,
    traffic_class: u8,
    until: Instant,
}

/// Data of this site's own descriptors in epoll, apart from the program's sockets.
pub(crate) mod token {
    pub const LOG: u64 = u64::MAX - 1;
    pub const LISTENER: u64 = u64::MAX - 2;
    pub const RESOLVER: u64 = u64::MAX - 3;
    pub const RULES: u64 = u64::MAX - 4;
}

/// Longer than a client asks: 127 s with Linux's `tcp_syn_retries` = 6, and a set-up of a circuit before.
const WAIT_MAX: Duration = Duration::from_secs(200);
/// A client answers within the kernel's first four repetitions (1 + 2 + 4 + 8 s), or it has gone.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(16);
/// As long as a client may repeat its SYN.
const BYPASS_KEPT: Duration = Duration::from_secs(130);
/// One address of a name, while there are others.
const ADDRESS_LIMIT: Duration = Duration::from_secs(5);
const COUNTER_INTERVAL: Duration = Duration::from_secs(1);
const RULES_INTERVAL: Duration = Duration::from_secs(2);
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Datagrams of the firewall's log taken in one turn.
const BATCHES_MAX: usize = 64;
const REMARKS_MAX: usize = 100;
/// Handshakes that outlive the end of `nft`.
const ADMITTED_AGAIN: usize = 256;
/// Of the pair's UDP socket: a quarter of a second at 128 Mbit/s. The kernel gives what net.core.rmem_max allows.
const PAIR_BUFFER: usize = 4 << 20;
/// `SIOCATMARK` (linux/sockios.h).
const SIOCATMARK: libc::Ioctl = 0x8905;

impl CaptureSite {
    /// Prepares the calling thread's namespace.
    pub(crate) fn open(options: CaptureOptions, epoll: &OwnedFd, now: Instant) -> io::Result<CaptureSite> {
        let any_v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let ipv6 = Socket::new(Domain::IPV6, Type::DGRAM, None).and_then(|s| s.bind(&any_v6.into())).is_ok();
        let mut remarks = VecDeque::new();
        let wanted = options.rules.is_some() || options.keep_addresses;
        let network = match wanted.then(|| Network::open(&options, ipv6)) {
            None => None,
            Some(Ok(network)) => Some(network),
            Some(Err(error)) if options.rules.is_some() => return Err(error),
            Some(Err(error)) => {
                remarks.push_back(format!("connections cannot be made in their clients' names: {error}"));
                None
            }
        };
        let early_demux = match network.as_ref().map(|_| stop_early_demux()) {
            Some(Ok(stopped)) => stopped,
            Some(Err(error)) => {
                remarks.push_back(format!(
                    "the sysctl {EARLY_DEMUX} stays on ({error}): a client that passes by and uses a port again within a \
                     minute may be heard late"
                ));
                None
            }
            None => None,
        };
        for name in options.rules.iter().flat_map(|rules| &rules.interfaces).filter(|name| index_of(name).is_err()) {
            remarks.push_back(format!(
                "there is no interface {name:?}: nothing is captured there until there is one; there are: {}",
                interfaces().join(", ")
            ));
        }
        let resolver = Resolver::start()?;
        let watch = |fd, token| epoll::add(epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN);
        watch(resolver.as_fd(), token::RESOLVER)?;
        if let Some(network) = &network {
            watch(network.log.as_fd(), token::LOG)?;
            if let Some(firewall) = &network.firewall {
                watch(firewall.as_fd(), token::RULES)?;
            }
            for listener in network.listeners() {
                watch(listener.as_fd(), token::LISTENER)?;
            }
        }
        Ok(CaptureSite {
            options,
            ipv6,
            network,
            early_demux,
            held: BTreeMap::new(),
            by_request: BTreeMap::new(),
            relayed: BTreeMap::new(),
            named: BTreeMap::new(),
            caught: VecDeque::new(),
            deadlines: BTreeSet::new(),
            requests: 0,
            resolver,
            lookups: BTreeMap::new(),
            lookup_deadlines: BTreeSet::new(),
            bypassed: Bypassed::default(),
            bypassed_read: None,
            accept_again: None,
            check_rules: now + RULES_INTERVAL,
            remarks,
        })
    }

    /// Where a listener of the program with this port is bound.
    pub(crate) fn listener_address(&self, port: u16) -> SocketAddr {
        let asked = self.options.listeners.iter().find(|address| address.port() == port);
        asked.copied().unwrap_or_else(|| self.any(port))
    }

    /// Where its UDP socket with this port is bound. One socket sends to either family, so that an IPv4 address is a mapped
    /// one (RFC 4291 §2.5.5.2); so is "all of IPv4".
    pub(crate) fn pair_address(&self, port: u16) -> SocketAddr {
        match self.options.pair.map(|asked| asked.ip()) {
            None => self.any(port),
            Some(IpAddr::V4(v4)) if self.ipv6 => SocketAddr::from((v4.to_ipv6_mapped(), port)),
            // The default, where the kernel has no IPv6.
            Some(IpAddr::V6(v6)) if v6.is_unspecified() => self.any(port),
            Some(asked) => SocketAddr::new(asked, port),
        }
    }

    /// All addresses of this host.
    fn any(&self, port: u16) -> SocketAddr {
        let any = if self.ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv4Addr::UNSPECIFIED) };
        SocketAddr::new(any, port)
    }

    /// Prepares the UDP socket of the pair for bursts.
    pub(crate) fn prepare_pair(&self, socket: &Socket) {
        // The limits of ordinary users; with the right to, beyond them.
        let _ = socket.set_recv_buffer_size(PAIR_BUFFER);
        let _ = socket.set_send_buffer_size(PAIR_BUFFER);
        for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
            let size = PAIR_BUFFER as libc::c_int;
            // SAFETY: the kernel reads four bytes of a live integer.
            unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const size).cast(),
                    size_of_val(&size) as libc::socklen_t,
                )
            };
        }
    }

    /// What an operator wants to know, since the last call.
    pub(crate) fn take_remarks(&mut self) -> Vec<String> {
        self.remarks.drain(..).collect()
    }

    /// The program has closed a socket.
    pub(crate) fn closed(&mut self, socket: SocketId, answers: Option<Ends>, asked: Option<Ends>) {
        if let Some(ends) = asked.filter(|ends| self.named.get(ends) == Some(&socket)) {
            self.named.remove(&ends);
        }
        if let Some(lookup) = self.lookups.remove(&socket) {
            self.lookup_deadlines.remove(&(lookup.until, socket));
        }
        let Some(ends) = answers else { return };
        if self.relayed.get(&ends) == Some(&socket) {
            self.relayed.remove(&ends);
        }
        if self.held.get(&ends).is_some_and(|held| held.state == State::Answered(socket)) {
            self.forget(ends);
        }
    }

    /// When [`SocketsView::site_is_due`] has something to do.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let rules = self.network.as_ref().map(|_| self.check_rules);
        let held = self.deadlines.first().map(|(at, _)| *at);
        let lookups = self.lookup_deadlines.first().map(|(at, _)| *at);
        [rules, held, lookups, self.accept_again].into_iter().flatten().min()
    }

    fn remark(&mut self, what: String) {
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push_back(what);
        }
    }

    fn forget(&mut self, ends: Ends) -> Option<Held> {
        let held = self.held.remove(&ends)?;
        self.by_request.remove(&held.request);
        self.deadlines.remove(&(held.until, ends));
        Some(held)
    }

    fn set_state(&mut self, ends: Ends, state: State, until: Instant) {
        if let Some(held) = self.held.get_mut(&ends) {
            self.deadlines.remove(&(held.until, ends));
            held.state = state;
            held.until = until;
            self.deadlines.insert((until, ends));
        }
    }

    /// A SYN was caught.
    fn take(&mut self, syn: Syn, now: Instant) {
        let Some(network) = &self.network else { return };
        let ends = (syn.client, syn.server);
        if let Some(held) = self.held.get_mut(&ends) {
            // Repeated: the last one has the newest timestamp, or belongs to a newer attempt.
            held.syn = syn;
            match held.state {
                State::Waiting => {}
                State::Answered(_) => drop(network.injector.admit(&held.syn)),
                State::Bypassed => drop(network.injector.send_on(&held.syn)),
            }
        } else if self.relayed.contains_key(&ends) {
            // The kernel knows what to do with a SYN in a connection (RFC 5961 §4).
            drop(network.injector.admit(&syn));
        } else if self.held.len() < self.options.held_max {
            let request = RequestId(self.requests);
            self.requests += 1;
            let until = now + WAIT_MAX;
            self.deadlines.insert((until, ends));
            self.by_request.insert(request, ends);
            self.held.insert(ends, Held { request, syn, state: State::Waiting, until });
            self.caught.push_back(request);
        }
    }
}

impl SocketsView<'_> {
    /// Somebody has ended `nft`.
    pub(crate) fn rules_are_gone(&mut self) {
        if let Some(site) = &mut self.own.site {
            site.check_rules = self.clock.now();
        }
        self.site_is_due();
    }

    /// Reads what the firewall caught.
    pub(crate) fn take_caught(&mut self) {
        let now = self.clock.now();
        let Some(site) = &mut self.own.site else { return };
        let (mut caught, mut passing, mut unreachable) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..BATCHES_MAX {
            let Some(network) = &mut site.network else { return };
            let more = network.log.receive(|prefix, packet| match Syn::parse(packet) {
                Some(syn) if prefix == firewall::PASSING.as_bytes() => passing.push((syn.client, syn.server)),
                Some(syn) => caught.push(syn),
                None => unreachable.extend(bentpipe_net::headers::unreachable_ends(packet)),
            });
            if !more {
                break;
            }
        }
        for syn in caught {
            site.take(syn, now);
        }
        let [unreachable, forgotten] = [unreachable, passing]
            .map(|all| all.iter().filter_map(|ends| site.named.get(ends).copied()).collect::<Vec<SocketId>>());
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
    pub(crate) fn accept_admitted(&mut self) {
        let now = self.clock.now();
        let Some(site) = &mut self.own.site else { return };
        site.accept_again = None;
        let mut accepted = Vec::new();
        for listener in site.network.iter().flat_map(Network::listeners) {
            loop {
                match listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
                    Ok(taken) => accepted.push(taken),
                    Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        // No descriptor left, as a rule.
                        site.accept_again = Some(now + ACCEPT_AGAIN);
                        site.remarks.truncate(REMARKS_MAX - 1);
                        site.remarks.push_back(format!("cannot take a connection: {error}"));
                        break;
                    }
                }
            }
        }
        for (socket, client) in accepted {
            self.take_accepted(socket, &client);
        }
    }

    fn take_accepted(&mut self, socket: Socket, client: &SockAddr) {
        // The socket itself no longer knows its client if that has reset the connection meanwhile.
        let ends = || Some((client.as_socket()?, socket.local_addr().ok()?.as_socket()?));
        let found = ends().and_then(|ends| {
            let site = self.own.site.as_mut()?;
            match site.held.get(&ends)?.state {
                State::Answered(id) => site.forget(ends).map(|held| (ends, id, held.syn.traffic_class)),
                State::Waiting | State::Bypassed => None,
            }
        });
        let Some((ends, id, class)) = found else {
            // Somebody's who found the port by himself, or whose program has given up meanwhile.
            let _ = SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
            return;
        };
        prepare_for_relay(&socket, Some(class));
        match self.attach(id, socket, true) {
            Ok(()) => {
                if let Some(site) = &mut self.own.site {
                    site.relayed.insert(ends, id);
                }
            }
            Err(error) => self.fail(id, error),
        }
        self.own.note_change(id);
    }

    fn fail(&mut self, id: SocketId, error: SocketError) {
        if let Some(entry) = self.own.open.get_mut(&id) {
            entry.error.get_or_insert(error);
        }
        self.own.note_change(id);
    }

    /// Uses the addresses that were found.
    pub(crate) fn take_looked_up(&mut self) {
        while let Some(answer) = self.own.site.as_ref().and_then(|site| site.resolver.next_answer()) {
            let Some(site) = &mut self.own.site else { return };
            let Some(lookup) = site.lookups.get_mut(&answer.socket) else { continue };
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
    pub(crate) fn lookup_goes_on(&mut self, id: SocketId) -> bool {
        if !self.own.site.as_ref().is_some_and(|site| site.lookups.contains_key(&id)) {
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
            let Some(site) = &mut self.own.site else { return };
            let Some(lookup) = site.lookups.get_mut(&id) else { return };
            let Some(to) = lookup.addresses.as_mut().and_then(Vec::pop) else {
                return self.end_lookup(id, Some(error));
            };
            let others = lookup.addresses.as_ref().is_some_and(|left| !left.is_empty());
            site.lookup_deadlines.remove(&(lookup.until, id));
            let class = lookup.traffic_class;
            if others {
                lookup.until = self.clock.now() + ADDRESS_LIMIT;
                site.lookup_deadlines.insert((lookup.until, id));
            }
            if let Some(entry) = self.own.open.get_mut(&id) {
                // Closing a descriptor takes it out of epoll.
                entry.socket = None;
                entry.error = None;
            }
            let connected = begin(None, to, class, self.own.site.is_some());
            match connected.and_then(|(socket, open)| self.attach(id, socket, open).map(|()| open)) {
                Ok(true) => return self.end_lookup(id, None),
                Ok(false) => return,
                Err(why) => error = why,
            }
        }
    }

    fn end_lookup(&mut self, id: SocketId, error: Option<SocketError>) {
        if let Some(site) = &mut self.own.site
            && let Some(lookup) = site.lookups.remove(&id)
        {
            site.lookup_deadlines.remove(&(lookup.until, id));
        }
        match error {
            Some(error) => self.fail(id, error),
            None => self.own.note_change(id),
        }
    }

    /// Ends what has waited too long.
    pub(crate) fn site_is_due(&mut self) {
        let now = self.clock.now();
        let Some(site) = &mut self.own.site else { return };
        if site.check_rules <= now {
            site.check_rules = now + RULES_INTERVAL;
            // Another gateway of this machine may have given it back at its end.
            if site.network.is_some()
                && let Ok(Some(stopped)) = stop_early_demux()
            {
                // Given back once, at the end.
                std::mem::forget(site.early_demux.replace(stopped));
            }
            if let Some(network) = &mut site.network
                && network.firewall.as_mut().is_none_or(Firewall::is_gone)
            {
                let is_admitted = |held: &Held| matches!(held.state, State::Answered(_));
                let admitted = site.held.iter().filter(|(_, held)| is_admitted(held)).map(|(ends, _)| *ends);
                let admitted: Vec<Ends> = admitted.take(ADMITTED_AGAIN).collect();
                let again = network.install_again(&site.options, &admitted, self.epoll);
                site.remark(match again {
                    Ok(()) => "somebody ended nft, and the firewall's rules with it: installed again".into(),
                    Err(error) => {
                        format!("somebody ended nft, and the firewall's rules cannot be installed again: {error}")
                    }
                });
            }
        }
        let mut given_up = Vec::new();
        while let Some((_, ends)) = site.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            if let Some(Held { state: State::Answered(id), .. }) = site.forget(ends) {
                given_up.push(id);
            }
        }
        let late = site.lookup_deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id);
        let late: Vec<SocketId> = late.collect();
        let accept = site.accept_again.is_some_and(|at| at <= now);
        for id in given_up {
            self.fail(id, SocketError::TimedOut);
        }
        for id in late {
            self.try_next_address(id, SocketError::TimedOut);
        }
        if accept {
            self.accept_admitted();
        }
    }
}

/// Starts a connection, in the name of a client if one is given.
fn begin(
    client: Option<(SocketAddr, Marks)>,
    to: SocketAddr,
    traffic_class: u8,
    relayed: bool,
) -> Result<(Socket, bool), SocketError> {
    let socket = new_socket(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if relayed {
        prepare_for_relay(&socket, Some(traffic_class));
    }
    let connect = || {
        if let Some((client, marks)) = client {
            set_transparent(&socket, client, marks)?;
            socket.set_reuse_address(true)?;
            socket.bind(&client.into())?;
        }
        socket.connect(&SockAddr::from(to))
    };
    match connect() {
        Ok(()) => Ok((socket, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error_of(&error)),
    }
}

impl Capture for SocketsView<'_> {
    fn take_changed(&mut self, into: &mut Vec<SocketId>) {
        for id in self.own.changed.drain(..) {
            if let Some(entry) = self.own.open.get_mut(&id) {
                entry.changed = false;
                into.push(id);
            }
        }
    }

    fn next_request(&mut self) -> Option<Request> {
        let site = self.own.site.as_mut()?;
        while let Some(id) = site.caught.pop_front() {
            if let Some((client, server)) = site.by_request.get(&id).copied()
                && let Some(held) = site.held.get(&(client, server))
            {
                return Some(Request { id, client, server, traffic_class: held.syn.traffic_class });
            }
        }
        None
    }

    fn answer(&mut self, request: RequestId) -> Result<SocketId, SocketError> {
        let site = self.own.site.as_ref().ok_or(SocketError::Denied)?;
        let ends = *site.by_request.get(&request).ok_or(SocketError::Closed)?;
        let (network, held) = site.network.as_ref().zip(site.held.get(&ends)).ok_or(SocketError::Closed)?;
        if held.state != State::Waiting {
            return Err(SocketError::Closed);
        }
        network.injector.admit(&held.syn).map_err(|e| error_of(&e))?;
        let id = self.reserve();
        if let Some(entry) = self.own.open.get_mut(&id) {
            entry.answers = Some(ends);
        }
        let until = self.clock.now() + HANDSHAKE_MAX;
        if let Some(site) = &mut self.own.site {
            site.set_state(ends, State::Answered(id), until);
        }
        Ok(id)
    }

    fn refuse(&mut self, request: RequestId, how: Refusal) {
        let until = self.clock.now() + BYPASS_KEPT;
        let Some(site) = &mut self.own.site else { return };
        let Some(ends) = site.by_request.get(&request).copied() else { return };
        let Some((network, held)) = site.network.as_ref().zip(site.held.get(&ends)) else { return };
        if held.state != State::Waiting {
            return;
        }
        let told = match how {
            Refusal::Refused => network.injector.refuse(&held.syn),
            Refusal::Unreachable => network.injector.unreachable(&held.syn),
            Refusal::Ignored => Ok(()),
            Refusal::Bypassed => network.injector.send_on(&held.syn),
        };
        if let Err(error) = told {
            site.remark(format!("cannot tell {} what became of its request: {error}", ends.0));
        }
        if how == Refusal::Bypassed {
            site.set_state(ends, State::Bypassed, until);
        } else {
            site.forget(ends);
        }
    }

    fn connect_as(
        &mut self,
        client: Option<SocketAddr>,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError> {
        let keeps = self.keeps_addresses();
        let client = client.filter(|client| keeps && client.is_ipv4() == to.is_ipv4());
        let marks = self.own.site.as_ref().and_then(|site| Some(site.network.as_ref()?.marks));
        let named = client.zip(marks).into_iter();
        let mut named = named.flat_map(|(client, marks)| [client, SocketAddr::new(client.ip(), 0)].map(|a| (a, marks)));
        let begun = loop {
            match named.next() {
                None => {
                    let begun = begin(None, to, traffic_class, true);
                    if let (Some(client), Ok(_), Some(site)) = (client, &begun, &mut self.own.site) {
                        site.remark(format!("{to} sees this gateway's address instead of {client}: it cannot be used"));
                    }
                    break begun;
                }
                client => match begin(client, to, traffic_class, true) {
                    Err(SocketError::AddressInUse | SocketError::Denied) => {}
                    Err(SocketError::Other(libc::EADDRNOTAVAIL | libc::EINVAL)) => {}
                    other => break other,
                },
            }
        };
        let (socket, open) = begun?;
        let own = socket.local_addr().ok().and_then(|address| address.as_socket());
        let id = self.add(socket, open)?;
        if let (Some(own), Some(_)) = (own, client) {
            if let Some(entry) = self.own.open.get_mut(&id) {
                entry.asked = Some((own, to));
            }
            if let Some(site) = &mut self.own.site {
                site.named.insert((own, to), id);
            }
        }
        Ok(id)
    }

    fn connect_to_name(&mut self, server: Named<'_>) -> Result<SocketId, SocketError> {
        let Named { name, port, traffic_class, client, may_connect } = server;
        let id = self.reserve();
        let Some(site) = &mut self.own.site else { return Err(SocketError::Denied) };
        if !site.resolver.ask(client, id, name, port) {
            self.close(id);
            return Err(SocketError::Other(libc::EAGAIN));
        }
        let until = Instant { ns: u64::MAX };
        site.lookups.insert(id, Lookup { addresses: None, may_connect, traffic_class, until });
        Ok(id)
    }

    fn keeps_addresses(&self) -> bool {
        self.own.site.as_ref().is_some_and(|site| site.options.keep_addresses && site.network.is_some())
    }

    fn next_is_urgent(&mut self, socket: SocketId) -> bool {
        let Ok(kernel) = self.kernel(socket) else { return false };
        let mut at_mark: libc::c_int = 0;
        // SAFETY: the request writes one int.
        let result = unsafe { libc::ioctl(kernel.as_raw_fd(), SIOCATMARK, &raw mut at_mark) };
        result == 0 && at_mark != 0
    }

    fn send_urgent(&mut self, socket: SocketId, byte: u8) -> Result<bool, SocketError> {
        let entry = self.entry(socket)?;
        let Some(kernel) = &entry.socket else { return entry.error.map_or(Ok(false), Err) };
        match kernel.send_with_flags(&[byte], libc::MSG_NOSIGNAL | libc::MSG_OOB) {
            Ok(sent) => Ok(sent == 1),
            Err(error) => entry.failed(&error).map_or(Ok(false), Err),
        }
    }

    fn unacknowledged(&mut self, socket: SocketId) -> u64 {
        self.kernel(socket).map_or(0, |kernel| bytes_unacknowledged(kernel.as_fd()))
    }

    fn bypassed(&mut self, peer: Option<IpAddr>) -> Bypassed {
        let now = self.clock.now();
        let Some(site) = &mut self.own.site else { return Bypassed::default() };
        if site.bypassed_read.is_none_or(|at| at + COUNTER_INTERVAL <= now) {
            site.bypassed_read = Some(now);
            let mut changed = None;
            if let Some(network) = &mut site.network {
                // Where the way is lost for a moment, the last one counts.
                let firewall = network.firewall.as_mut().zip(peer);
                changed = firewall.and_then(|(firewall, peer)| firewall.count_towards(peer).ok().flatten());
                if let Ok(seen) = network.counter.read() {
                    site.bypassed = seen;
                }
            }
            let to_site = |name: &String| site.options.rules.iter().any(|rules| rules.interfaces.contains(name));
            if let Some(way) = changed.filter(|way| to_site(&way.device)) {
                let hop = way.next_hop.map_or("a router of the other family".to_owned(), |hop| hop.to_string());
                site.remark(format!(
                    "{:?} leads to the clients and to the other gateway: of what passes by, only what goes to {hop} counts \
                     against the link's rate, and of the other family of addresses all",
                    way.device
                ));
            }
        }
        site.bypassed
    }
}
