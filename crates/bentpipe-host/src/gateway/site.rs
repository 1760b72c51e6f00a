//! The state behind a gateway's sockets in the kernel: requests that are held, connections in others' names, look-ups of
//! names, the firewall.

use super::findings;
use super::firewall::Firewall;
use super::network::{EARLY_DEMUX, EarlyDemux, Network};
use super::options::SiteOptions;
use super::resolver::Resolver;
use super::syn::Syn;
use super::token;
use crate::line::LineDevice;
use bentpipe_net::held_requests::{Endpoints, HeldRequests, Hold};
use bentpipe_net::interception::Bypassed;
use bentpipe_net::socket::SocketId;
use bentpipe_net::time::{Duration, Instant};
use rustix::event::epoll;
use socket2::{Domain, Socket, Type};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// A gateway's site.
pub(super) struct Site {
    pub options: SiteOptions,
    /// The kernel has IPv6.
    pub ipv6: bool,
    pub network: Option<Network>,
    /// Given back at the end.
    early_demux: EarlyDemux,
    pub held: HeldRequests<Syn>,
    /// Client and server of each socket that answers a request.
    pub answers: BTreeMap<SocketId, Endpoints>,
    /// Answered requests whose connection is open.
    pub relayed: BTreeMap<Endpoints, SocketId>,
    /// Connections that were made in a client's name, by that name and their server, and the reverse.
    pub named: BTreeMap<Endpoints, SocketId>,
    pub names: BTreeMap<SocketId, Endpoints>,
    /// Sockets that changed since the program was last given them.
    pub changed: BTreeSet<SocketId>,
    pub resolver: Resolver,
    pub lookups: BTreeMap<SocketId, Lookup>,
    pub lookup_deadlines: BTreeSet<(Instant, SocketId)>,
    pub bypassed: Bypassed,
    pub bypassed_read: Option<Instant>,
    pub accept_again: Option<Instant>,
    check_rules: Instant,
    remarks: VecDeque<String>,
    /// The line that the gateway dials.
    pub line: Option<Box<dyn LineDevice>>,
}

/// A connection to a name.
pub(super) struct Lookup {
    /// Addresses to try, the next last; `None`: not known yet.
    pub addresses: Option<Vec<SocketAddr>>,
    pub may_connect: fn(IpAddr) -> bool,
    pub traffic_class: u8,
    pub until: Instant,
}

/// Longer than a client asks: 127 s with Linux's `tcp_syn_retries` = 6, and a set-up of a circuit before.
const WAIT_MAX: Duration = Duration::from_secs(200);
/// A client answers within the kernel's first four repetitions (1 + 2 + 4 + 8 s), or it has gone.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(16);
const RULES_INTERVAL: Duration = Duration::from_secs(2);
const REMARKS_MAX: usize = 100;
/// Handshakes that outlive the end of `nft`.
const ADMITTED_AGAIN: usize = 256;

impl Site {
    /// Prepares the calling thread's namespace.
    pub(super) fn open(
        options: SiteOptions,
        line: Option<Box<dyn LineDevice>>,
        epoll: &OwnedFd,
        now: Instant,
    ) -> io::Result<Site> {
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
        let mut early_demux = EarlyDemux::default();
        if network.is_some()
            && let Err(error) = early_demux.stop()
        {
            remarks.push_back(format!(
                "the sysctl {EARLY_DEMUX} stays on ({error}): a client that passes by and uses a port again within a \
                 minute may be heard late"
            ));
        }
        remarks.extend(findings::interfaces(options.rules.as_ref()));
        let resolver = Resolver::start()?;
        let watch = |fd, token| epoll::add(epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN);
        watch(resolver.as_fd(), token::RESOLVER)?;
        if let Some(line) = &line {
            watch(line.as_fd(), token::LINE)?;
        }
        if let Some(network) = &network {
            watch(network.log.as_fd(), token::LOG)?;
            if let Some(firewall) = &network.firewall {
                watch(firewall.as_fd(), token::RULES)?;
            }
            for listener in network.listeners() {
                watch(listener.as_fd(), token::LISTENER)?;
            }
        }
        Ok(Site {
            held: HeldRequests::new(options.held_max),
            options,
            ipv6,
            network,
            early_demux,
            answers: BTreeMap::new(),
            relayed: BTreeMap::new(),
            named: BTreeMap::new(),
            names: BTreeMap::new(),
            changed: BTreeSet::new(),
            resolver,
            lookups: BTreeMap::new(),
            lookup_deadlines: BTreeSet::new(),
            bypassed: Bypassed::default(),
            bypassed_read: None,
            accept_again: None,
            check_rules: now + RULES_INTERVAL,
            remarks,
            line,
        })
    }

    /// Where the program's UDP socket with this port is bound. One socket sends to either family, so that an IPv4 address is
    /// a mapped one (RFC 4291 §2.5.5.2); so is "all of IPv4".
    pub(super) fn pair_address(&self, port: u16) -> SocketAddr {
        match self.options.pair.map(|pair| pair.ip()) {
            None => self.any(port),
            Some(IpAddr::V4(v4)) if self.ipv6 => SocketAddr::from((v4.to_ipv6_mapped(), port)),
            // The default, where the kernel has no IPv6.
            Some(IpAddr::V6(v6)) if v6.is_unspecified() => self.any(port),
            Some(pair) => SocketAddr::new(pair, port),
        }
    }

    /// All addresses of this host.
    pub(super) fn any(&self, port: u16) -> SocketAddr {
        let any = if self.ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv4Addr::UNSPECIFIED) };
        SocketAddr::new(any, port)
    }

    /// Messages for an operator since the last call.
    pub(super) fn take_remarks(&mut self) -> Vec<String> {
        self.remarks.drain(..).collect()
    }

    /// Adds a message for an operator, unless there are too many.
    pub(super) fn remark(&mut self, what: String) {
        if self.remarks.len() < REMARKS_MAX {
            self.remarks.push_back(what);
        }
    }

    /// The program has closed a socket.
    pub(super) fn closed(&mut self, socket: SocketId) {
        self.changed.remove(&socket);
        if let Some(ends) = self.names.remove(&socket).filter(|ends| self.named.get(ends) == Some(&socket)) {
            self.named.remove(&ends);
        }
        self.end_lookup(socket);
        let Some(ends) = self.answers.remove(&socket) else { return };
        if self.relayed.get(&ends) == Some(&socket) {
            self.relayed.remove(&ends);
        }
        if self.held.answered_as(ends) == Some(socket) {
            self.held.forget_answered(ends);
        }
    }

    /// A look-up is over, if there was one.
    pub(super) fn end_lookup(&mut self, socket: SocketId) {
        if let Some(lookup) = self.lookups.remove(&socket) {
            self.lookup_deadlines.remove(&(lookup.until, socket));
        }
    }

    /// When something here is due though no descriptor is ready.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let rules = self.network.as_ref().map(|_| self.check_rules);
        let lookups = self.lookup_deadlines.first().map(|(at, _)| *at);
        [rules, self.held.next_expiry(), lookups, self.accept_again].into_iter().flatten().min()
    }

    /// A SYN was intercepted.
    pub(super) fn take(&mut self, syn: Syn, now: Instant) {
        let Some(network) = &self.network else { return };
        let ends = (syn.client, syn.server);
        if self.relayed.contains_key(&ends) {
            // The kernel knows what to do with a SYN in a connection (RFC 5961 §4).
            drop(network.injector.admit(&syn));
            return;
        }
        match self.held.hold(ends, syn.traffic_class, syn, now + WAIT_MAX) {
            Hold::Waits | Hold::Full => {}
            Hold::Answered(syn) => drop(network.injector.admit(&syn)),
            Hold::Bypassed(syn) => drop(network.injector.send_on(&syn)),
        }
    }

    /// Somebody has ended `nft`: the rules are looked at next.
    pub(super) fn rules_are_gone(&mut self, now: Instant) {
        self.check_rules = now;
    }

    /// Looks after the rules and the sysctl, at their times.
    pub(super) fn check_rules(&mut self, now: Instant, epoll: &OwnedFd) {
        if self.check_rules > now {
            return;
        }
        self.check_rules = now + RULES_INTERVAL;
        let Some(network) = &mut self.network else { return };
        // Another gateway of this machine may have given it back at its end.
        let _ = self.early_demux.stop();
        if network.firewall.as_mut().is_none_or(Firewall::is_gone) {
            let admitted: Vec<Endpoints> = self.held.handshakes().take(ADMITTED_AGAIN).collect();
            let again = network.install_again(&self.options, &admitted, epoll);
            self.remark(match again {
                Ok(()) => "somebody ended nft, and the firewall's rules with it: installed again".into(),
                Err(error) => {
                    format!("somebody ended nft, and the firewall's rules cannot be installed again: {error}")
                }
            });
        }
    }
}
