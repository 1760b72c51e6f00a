//! Devices, addresses, neighbours and routes of the calling thread's network namespace, over netlink.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::IpProtocol;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A route socket.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// The routing table that is consulted last, and as a rule alone (RT_TABLE_MAIN in linux/rtnetlink.h).
pub const MAIN_TABLE: u32 = 254;

/// The way of packets to an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The name of the device by which they leave.
    pub device: String,
    /// The next router, or the address itself where none is between. `None`: a router that has no address of this family.
    pub next_hop: Option<IpAddr>,
}

/// Where a route leads.
#[derive(Clone, Debug)]
pub struct Route {
    /// Destination network.
    pub destination: Ipv4Addr,
    /// Its prefix length; 0 for the default route.
    pub prefix: u8,
    /// Next hop; `None`: directly on the device.
    pub via: Option<Ipv4Addr>,
    /// The device's name.
    pub device: String,
    /// Source address for connections opened over it.
    pub source: Option<Ipv4Addr>,
    /// TCP attributes of the route.
    pub metrics: Vec<RouteMetric>,
}

/// Which packets are looked up in which table. Rules are tried in the order of their priority.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rule {
    /// Lower is earlier; the main table's own is 32,766.
    pub priority: u32,
    /// Packets from this address; `None`: from all.
    pub source: Option<Ipv4Addr>,
    /// Only TCP.
    pub only_tcp: bool,
    /// Packets that carry this mark; `None`: all.
    pub mark: Option<u32>,
    /// Of IPv6, not IPv4.
    pub ipv6: bool,
    /// The table.
    pub table: u32,
    /// Its default route does not count.
    pub not_default: bool,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace, where it stays.
    pub fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Makes a veth pair: `name` here, `peer` in the namespace `peer_namespace`.
    pub fn add_veth(&mut self, name: &str, peer: &str, peer_namespace: BorrowedFd<'_>, mtu: u32) -> io::Result<()> {
        let mut other = LinkMessage::default();
        other.attributes.push(LinkAttribute::IfName(peer.to_owned()));
        other.attributes.push(LinkAttribute::Mtu(mtu));
        other.attributes.push(LinkAttribute::NetNsFd(peer_namespace.as_raw_fd()));
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        link.attributes.push(LinkAttribute::Mtu(mtu));
        link.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
        ]));
        self.create(RouteNetlinkMessage::NewLink(link))
    }

    /// Makes a bridge device.
    pub fn add_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        self.create(RouteNetlinkMessage::NewLink(link))
    }

    /// Makes `device` a port of `bridge`.
    pub fn set_bridge(&mut self, device: &str, bridge: &str) -> io::Result<()> {
        let bridge = index_of(bridge)?;
        self.change_link(device, |link| link.attributes.push(LinkAttribute::Controller(bridge)))
    }

    /// Gives `device` a hardware address.
    pub fn set_address(&mut self, device: &str, address: [u8; 6]) -> io::Result<()> {
        self.change_link(device, |link| link.attributes.push(LinkAttribute::Address(address.to_vec())))
    }

    /// Sets the largest IP packet of `device`.
    pub fn set_mtu(&mut self, device: &str, mtu: u32) -> io::Result<()> {
        self.change_link(device, |link| link.attributes.push(LinkAttribute::Mtu(mtu)))
    }

    /// Switches `device` on.
    pub fn set_up(&mut self, device: &str) -> io::Result<()> {
        self.change_link(device, |link| {
            link.header.flags |= LinkFlags::Up;
            link.header.change_mask |= LinkFlags::Up;
        })
    }

    /// Gives `device` an IP address, without the route that the kernel adds with it.
    pub fn add_ip(&mut self, device: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix;
        message.header.scope = AddressScope::Universe;
        message.header.index = index_of(device)?;
        message.attributes.push(AddressAttribute::Address(address.into()));
        message.attributes.push(AddressAttribute::Local(address.into()));
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Noprefixroute));
        self.create(RouteNetlinkMessage::NewAddress(message))
    }

    /// Fixes the hardware address behind an IP address, so that it is never asked for over the link.
    pub fn add_neighbour(&mut self, device: &str, address: Ipv4Addr, hardware: [u8; 6]) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = index_of(device)?;
        message.header.state = NeighbourState::Permanent;
        message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(address)));
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(hardware.to_vec()));
        self.request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Adds a route to the main table.
    pub fn add_route(&mut self, route: &Route) -> io::Result<()> {
        self.request(RouteNetlinkMessage::NewRoute(route_message(route)?), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Adds a route to `table` whose next hop is on its device, though no other route says so.
    pub fn add_on_link_route(&mut self, route: &Route, table: u32) -> io::Result<()> {
        let mut message = route_message(route)?;
        message.header.table = 0;
        message.header.flags |= RouteFlags::Onlink;
        message.attributes.push(RouteAttribute::Table(table));
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Sends what no other route of `table` names to this host itself, whatever its address.
    pub fn add_local_default(&mut self, table: u32, ipv6: bool) -> io::Result<()> {
        let message = local_default(table, ipv6)?;
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Undoes [`Netlink::add_local_default`].
    pub fn delete_local_default(&mut self, table: u32, ipv6: bool) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelRoute(local_default(table, ipv6)?), 0)
    }

    /// Answers packets to a network as unreachable, where `table` has no longer prefix.
    pub fn add_unreachable(&mut self, destination: Ipv4Addr, prefix: u8, table: u32) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.destination_prefix_length = prefix;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unreachable;
        message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(destination)));
        message.header.address_family = AddressFamily::Inet;
        message.header.protocol = RouteProtocol::Static;
        message.attributes.push(RouteAttribute::Table(table));
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// The way of packets to `address`.
    pub fn route_to(&mut self, address: IpAddr) -> io::Result<NextHop> {
        let mut message = RouteMessage::default();
        let (family, prefix, destination) = match address {
            IpAddr::V4(v4) => (AddressFamily::Inet, 32, RouteAddress::Inet(v4)),
            IpAddr::V6(v6) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(v6)),
        };
        message.header.address_family = family;
        message.header.destination_prefix_length = prefix;
        message.attributes.push(RouteAttribute::Destination(destination));
        let Some(RouteNetlinkMessage::NewRoute(route)) = self.ask(RouteNetlinkMessage::GetRoute(message), 0)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let index = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
        let device = rustix::net::netdevice::index_to_name(&socket, index.ok_or(io::ErrorKind::NotFound)?)?;
        let next_hop = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some(Some(IpAddr::V4(*v4))),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some(Some(IpAddr::V6(*v6))),
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => Some(None),
            _ => None,
        });
        Ok(NextHop { device, next_hop: next_hop.unwrap_or(Some(address)) })
    }

    /// Adds a rule.
    pub fn add_rule(&mut self, rule: &Rule) -> io::Result<()> {
        self.create(RouteNetlinkMessage::NewRule(rule_message(rule)))
    }

    /// Deletes a rule.
    pub fn delete_rule(&mut self, rule: &Rule) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelRule(rule_message(rule)), 0)
    }

    fn change_link(&mut self, device: &str, change: impl FnOnce(&mut LinkMessage)) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index_of(device)?;
        change(&mut link);
        self.request(RouteNetlinkMessage::SetLink(link), 0)
    }

    fn create(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sends one request and waits for its acknowledgement.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, flags).map(drop)
    }

    /// Sends one request and waits for its acknowledgement; what came before that.
    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut found = None;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            match answer.payload {
                NetlinkPayload::InnerMessage(message) => found = Some(message),
                NetlinkPayload::Error(error) => {
                    return match error.code {
                        None => Ok(found),
                        Some(code) => Err(io::Error::from_raw_os_error(-code.get())),
                    };
                }
                _ => {}
            }
        }
    }
}

/// The request that adds `route` to the main table.
fn route_message(route: &Route) -> io::Result<RouteMessage> {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = route.prefix;
    message.header.table = MAIN_TABLE as u8;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = if route.via.is_some() { RouteScope::Universe } else { RouteScope::Link };
    message.header.kind = RouteType::Unicast;
    if route.prefix > 0 {
        message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(route.destination)));
    }
    message.attributes.push(RouteAttribute::Oif(index_of(&route.device)?));
    if let Some(via) = route.via {
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(via)));
    }
    if let Some(source) = route.source {
        message.attributes.push(RouteAttribute::PrefSource(RouteAddress::Inet(source)));
    }
    if !route.metrics.is_empty() {
        message.attributes.push(RouteAttribute::Metrics(route.metrics.clone()));
    }
    Ok(message)
}

fn local_default(table: u32, ipv6: bool) -> io::Result<RouteMessage> {
    let mut message = RouteMessage::default();
    message.header.address_family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.scope = if ipv6 { RouteScope::Universe } else { RouteScope::Host };
    message.header.kind = RouteType::Local;
    message.header.protocol = RouteProtocol::Static;
    message.attributes.push(RouteAttribute::Oif(index_of("lo")?));
    message.attributes.push(RouteAttribute::Table(table));
    Ok(message)
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.header.action = RuleAction::ToTable;
    message.attributes.push(RuleAttribute::Priority(rule.priority));
    message.attributes.push(RuleAttribute::Table(rule.table));
    if let Some(source) = rule.source {
        message.header.src_len = 32;
        message.attributes.push(RuleAttribute::Source(source.into()));
    }
    if rule.only_tcp {
        message.attributes.push(RuleAttribute::IpProtocol(IpProtocol::Tcp));
    }
    if let Some(mark) = rule.mark {
        message.attributes.push(RuleAttribute::FwMark(mark));
    }
    if rule.not_default {
        message.attributes.push(RuleAttribute::SuppressPrefixLen(0));
    }
    message
}

/// The number of a device in the calling thread's namespace.
pub fn index_of(device: &str) -> io::Result<u32> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&socket, device)?)
}
