//! The parts of a gateway's site that need rights over the network: the firewall's rules, the packets that it logs, sockets with
//! addresses of others.

use super::firewall::{self, Firewall, Marks, Rules};
use super::inject::Injector;
use super::netfilter::{Counter, PacketLog};
use super::options::SiteOptions;
use super::relay_socket::{prepare_for_relay, set_transparent};
use super::rights::Rights;
use super::token;
use crate::namespace::{read_sysctl, write_sysctl};
use bentpipe_net::held_requests::Endpoints;
use rustix::event::epoll;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// The parts that need rights over the network.
pub(super) struct Network {
    pub log: PacketLog,
    pub marks: Marks,
    pub injector: Injector,
    /// Where intercepted connections come in; `None`: none are intercepted.
    listener_v4: Option<Socket>,
    listener_v6: Option<Socket>,
    /// Clients may have addresses of IPv6.
    ipv6: bool,
    pub counter: Counter,
    /// `None`: somebody ended the last, and the next could not be installed.
    pub firewall: Option<Firewall>,
}

const BACKLOG: i32 = 4096;

impl Network {
    pub fn open(options: &SiteOptions, ipv6: bool) -> io::Result<Network> {
        if !Rights::now().network {
            let what = "this needs root, or the capabilities CAP_NET_ADMIN and CAP_NET_RAW";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        if options.rules.is_some() {
            check_filter()?;
        }
        let log = PacketLog::open().map_err(|e| explain("cannot receive what the firewall logs", e))?;
        let marks = Marks::of(&log);
        let injector = Injector::open(marks, ipv6).map_err(|e| explain("cannot open raw sockets", e))?;
        let intercepts = options.rules.is_some();
        let listener_v4 = intercepts.then(|| listener(Ipv4Addr::LOCALHOST.into(), marks)).transpose()?;
        // Where IPv6 is switched off, as at the emulator's sites, its routes are refused.
        let off = read_sysctl("net.ipv6.conf.lo.disable_ipv6").is_ok_and(|value| value == "1");
        let ipv6 = ipv6 && !off;
        let listener_v6 = if intercepts && ipv6 { listener(Ipv6Addr::LOCALHOST.into(), marks).ok() } else { None };
        let counter = Counter::open(&firewall::table(log.group()), firewall::COUNTER)?;
        let mut network = Network { log, marks, injector, listener_v4, listener_v6, ipv6, counter, firewall: None };
        network.firewall = Some(Firewall::install(&network.rules(options, &[])?)?);
        Ok(network)
    }

    fn rules<'a>(&self, options: &'a SiteOptions, admitted: &'a [Endpoints]) -> io::Result<Rules<'a>> {
        Ok(Rules {
            intercept: options.rules.as_ref(),
            closed: options.closed,
            port_v4: self.listener_v4.as_ref().map(port_of).transpose()?,
            port_v6: self.listener_v6.as_ref().map(port_of).transpose()?,
            ipv6: self.ipv6,
            group: self.log.group(),
            rate_max: options.rate_max,
            held_max: options.held_max,
            admitted,
        })
    }

    pub fn listeners(&self) -> impl Iterator<Item = &Socket> {
        self.listener_v4.iter().chain(&self.listener_v6)
    }

    /// After somebody ended `nft`. `admitted`: whose handshakes are under way.
    pub fn install_again(&mut self, options: &SiteOptions, admitted: &[Endpoints], epoll: &OwnedFd) -> io::Result<()> {
        // Its routes have the same names as the next one's.
        self.firewall = None;
        let firewall = Firewall::install(&self.rules(options, admitted)?)?;
        self.firewall = Some(watched(firewall, epoll)?);
        Ok(())
    }
}

/// Tells the driver when `nft` ends.
fn watched(firewall: Firewall, epoll: &OwnedFd) -> io::Result<Firewall> {
    epoll::add(epoll, firewall.as_fd(), epoll::EventData::new_u64(token::RULES), epoll::EventFlags::IN)?;
    Ok(firewall)
}

/// Accepted connections have its mark, and are reset if this process dies before it takes them (`prepare_for_relay`).
fn listener(address: IpAddr, marks: Marks) -> io::Result<Socket> {
    let address = SocketAddr::new(address, 0);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    set_transparent(&socket, address, marks)?;
    prepare_for_relay(&socket, None);
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn port_of(socket: &Socket) -> io::Result<u16> {
    Ok(socket.local_addr()?.as_socket().map_or(0, |address| address.port()))
}

/// Admitted SYNs come in on the loopback device with a foreign source, which a strict reverse-path filter (RFC 3704 §2.2)
/// drops.
fn check_filter() -> io::Result<()> {
    for name in ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.lo.rp_filter"] {
        let value = read_sysctl(name).unwrap_or_default();
        if value == "1" {
            let what = format!(
                "the sysctl {name} is 1 (strict), with which connections cannot be intercepted: set it to 2 or 0"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    }
    Ok(())
}

pub(super) const EARLY_DEMUX: &str = "net.ipv4.tcp_early_demux";

/// Keeps the sysctl at 0 and gives it back at its end, in the namespace of the thread that drops it.
///
/// Before it routes a packet, the kernel looks for a connection with the packet's addresses and ports, IPv6 too, and then
/// drops the packet instead of forwarding it (`ip_forward`: a packet that has a socket). What is left of a relayed
/// connection for a minute (TIME-WAIT), whoever made it, would stop a client that uses its port again and passes by.
#[derive(Default)]
pub(super) struct EarlyDemux {
    /// Its value before; `None`: it was 0.
    before: Option<String>,
}

impl EarlyDemux {
    /// Sets it to 0, if it is something else.
    pub fn stop(&mut self) -> io::Result<()> {
        let value = read_sysctl(EARLY_DEMUX)?;
        if value != "0" {
            write_sysctl(EARLY_DEMUX, "0")?;
            self.before = Some(value);
        }
        Ok(())
    }
}

impl Drop for EarlyDemux {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = write_sysctl(EARLY_DEMUX, before);
        }
    }
}

fn explain(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
