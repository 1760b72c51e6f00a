//! Sites and links as addresses and routes. Pure: what follows from a list of links, before any device exists.
//!
//! Links that carry Ethernet, and sites that bridge, join ports into one segment; every segment is a /24 of 198.18.0.0/15,
//! the range set aside for tests of network devices (RFC 2544, RFC 6815), which collides with no real network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// A site's treatment of packets that are not for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Nothing.
    #[default]
    Host,
    /// Forwards IP packets between its links.
    Router,
    /// Forwards Ethernet frames between its links (all of which must carry Ethernet).
    Bridge,
}

/// A link to be: the hub's site first, then the terminals'.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// Sites, hub first.
    pub sites: Vec<String>,
    /// Carries Ethernet frames.
    pub carries_ethernet: bool,
    /// Largest IP packet.
    pub mtu: u64,
}

/// The plan of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Sites in the order they were first named.
    pub sites: Vec<SitePlan>,
    /// Links as given, with the interfaces of each port.
    pub links: Vec<LinkPlan>,
    /// Number of segments.
    pub segments: usize,
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePlan {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its interfaces, in the order of its links.
    pub interfaces: Vec<InterfacePlan>,
    /// Routes to the segments it is not on.
    pub routes: Vec<RoutePlan>,
}

/// One interface of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlan {
    /// Device name: the link's, cut to what the kernel allows.
    pub device: String,
    /// Its hardware address.
    pub hardware: [u8; 6],
    /// Its address (none on a bridge).
    pub address: Option<Ipv4Addr>,
    /// Number of its segment.
    pub segment: usize,
    /// Largest IP packet.
    pub mtu: u64,
    /// The link carries IP only, so neighbours are fixed instead of asked for.
    pub fixed_neighbours: bool,
    /// At a terminal of a broadcast link: the hub's hardware address. Terminals hear only the hub, so packets for each
    /// other go there and come back.
    pub hub_hardware: Option<[u8; 6]>,
}

/// A route to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// The segment's network.
    pub network: Ipv4Addr,
    /// Next hop.
    pub via: Ipv4Addr,
    /// Number of the interface.
    pub interface: usize,
}

/// A route as a host's table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRoute {
    /// The destination network.
    pub network: Ipv4Addr,
    /// Its prefix length.
    pub prefix: u8,
    /// Next hop.
    pub via: Ipv4Addr,
    /// Number of the interface.
    pub interface: usize,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// (site number, interface number) of each port, hub first.
    pub ports: Vec<(usize, usize)>,
}

/// Prefix length of a segment.
pub const SEGMENT_PREFIX: u8 = 24;
/// Longest device name (IFNAMSIZ − 1).
const DEVICE_NAME_MAX: usize = 15;
/// Beginnings of device names that mean something else: the loopback device, what sysctls mean by every device, ours.
const RESERVED_DEVICES: [&str; 5] = ["lo", "default", "all", "bridge", "internet"];
/// Prefix length of the block that holds all segments.
const BLOCK_PREFIX: u8 = 15;
/// Segments that fit 198.18.0.0/15.
const SEGMENTS_MAX: usize = 512;
/// Hosts that fit a segment.
const HOSTS_MAX: u32 = 254;

/// Why a list of links makes no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A link with fewer than two ends, or the same site twice.
    #[error("link {0}: needs a hub and at least one terminal, all different sites")]
    Endpoints(String),
    /// A bridge on a link that carries IP packets.
    #[error(
        "site {site}: bridges frames, but link {link} carries IP packets; allowed on its links: carries = \"ethernet\""
    )]
    BridgeNeedsEthernet {
        /// The bridging site.
        site: String,
        /// The link.
        link: String,
    },
    /// More sites or links than addresses.
    #[error("too many sites or links: at most {SEGMENTS_MAX} segments of {HOSTS_MAX} interfaces")]
    TooMany,
    /// A role for a site that no link names.
    #[error("site {0}: no link names it")]
    UnknownSite(String),
}

impl Plan {
    /// The routes of a site for its host's table: one for the whole block where the site reaches every other segment over
    /// the same next hop, so that a star of n sites has n routes at its edge and not n².
    #[must_use]
    pub fn table_routes(&self, site: usize) -> Vec<TableRoute> {
        let SitePlan { interfaces, routes, .. } = &self.sites[site];
        let own: BTreeSet<usize> = interfaces.iter().map(|interface| interface.segment).collect();
        let hop = |route: &RoutePlan| (route.via, route.interface);
        match &routes[..] {
            [first, rest @ ..]
                if !rest.is_empty()
                    && rest.iter().all(|route| hop(route) == hop(first))
                    && routes.len() + own.len() == self.segments =>
            {
                let (via, interface) = hop(first);
                vec![TableRoute { network: network(0), prefix: BLOCK_PREFIX, via, interface }]
            }
            _ => {
                let table = |route: &RoutePlan| TableRoute {
                    network: route.network,
                    prefix: SEGMENT_PREFIX,
                    via: route.via,
                    interface: route.interface,
                };
                routes.iter().map(table).collect()
            }
        }
    }

    /// Plans addresses and routes. `roles` overrides the defaults: a site on several links, and the hub of a broadcast
    /// link, is a router; others are hosts.
    pub fn new(links: &[LinkSpec], roles: &BTreeMap<String, Role>) -> Result<Plan, PlanError> {
        let mut plan = Plan::default();
        for link in links {
            let distinct = (0..link.sites.len()).all(|i| !link.sites[..i].contains(&link.sites[i]));
            if link.sites.len() < 2 || !distinct {
                return Err(PlanError::Endpoints(link.name.clone()));
            }
            let ports: Vec<(usize, usize)> = link.sites.iter().map(|site| plan.add_interface(site, link)).collect();
            if ports.len() > 2 {
                let hub = plan.sites[ports[0].0].interfaces[ports[0].1].hardware;
                for (site, interface) in &ports[1..] {
                    plan.sites[*site].interfaces[*interface].hub_hardware = Some(hub);
                }
            }
            plan.links.push(LinkPlan { name: link.name.clone(), ports });
        }
        let stars: Vec<usize> =
            plan.links.iter().filter(|link| link.ports.len() > 2).map(|link| link.ports[0].0).collect();
        for (number, site) in plan.sites.iter_mut().enumerate() {
            let forwards = site.interfaces.len() > 1 || stars.contains(&number);
            let default = if forwards { Role::Router } else { Role::Host };
            site.role = roles.get(&site.name).copied().unwrap_or(default);
        }
        if let Some(unknown) = roles.keys().find(|name| plan.site(name).is_none()) {
            return Err(PlanError::UnknownSite(unknown.clone()));
        }
        plan.join_segments(links)?;
        plan.give_addresses()?;
        plan.find_routes();
        Ok(plan)
    }

    /// The number of the site called `name`.
    #[must_use]
    pub fn site(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site.name == name)
    }

    /// The address under which other sites reach site number `site`: that of its first interface that has one.
    #[must_use]
    pub fn address(&self, site: usize) -> Option<Ipv4Addr> {
        self.sites[site].interfaces.iter().find_map(|interface| interface.address)
    }

    /// True if packets of site number `from` find their route to the address of site number `to`. A site that bridges has
    /// no address: it neither reaches another nor is reached.
    #[must_use]
    pub fn reaches(&self, from: usize, to: usize) -> bool {
        let site = &self.sites[from];
        let addressed = site.interfaces.iter().filter(|interface| interface.address.is_some());
        let target = self.sites[to].interfaces.iter().find(|interface| interface.address.is_some());
        let mut segments = addressed.map(|interface| interface.segment).peekable();
        match (segments.peek().is_some(), target) {
            (true, Some(target)) => {
                segments.any(|segment| segment == target.segment)
                    || site.routes.iter().any(|route| route.network == network(target.segment))
            }
            _ => false,
        }
    }

    /// Sites by name and address, as lines of a hosts file.
    #[must_use]
    pub fn hosts_file(&self) -> String {
        let mut text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n".to_owned();
        for site in &self.sites {
            if let Some(address) = site.interfaces.iter().find_map(|interface| interface.address) {
                text.push_str(&format!("{address}\t{}\n", site.name));
            }
        }
        text
    }

    fn add_interface(&mut self, name: &str, link: &LinkSpec) -> (usize, usize) {
        let site = self.site(name).unwrap_or_else(|| {
            self.sites.push(SitePlan {
                name: name.to_owned(),
                role: Role::Host,
                interfaces: Vec::new(),
                routes: Vec::new(),
            });
            self.sites.len() - 1
        });
        let interfaces = &mut self.sites[site].interfaces;
        let number = interfaces.len();
        let mut device: String =
            link.name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').collect();
        device.truncate(DEVICE_NAME_MAX);
        let taken = |device: &str| {
            device.is_empty()
                || RESERVED_DEVICES.iter().any(|reserved| device.starts_with(reserved))
                || interfaces.iter().any(|other| other.device == device)
        };
        let mut other = number;
        while taken(&device) {
            device = format!("link{other}");
            other += 1;
        }
        interfaces.push(InterfacePlan {
            device,
            hardware: [0x02, 0x62, 0x70, (site >> 8) as u8, site as u8, number as u8],
            address: None,
            segment: 0,
            mtu: link.mtu,
            fixed_neighbours: !link.carries_ethernet,
            hub_hardware: None,
        });
        (site, number)
    }

    /// Numbers the segments: a link's ports share one; a bridge joins those of its links.
    fn join_segments(&mut self, links: &[LinkSpec]) -> Result<(), PlanError> {
        let mut segment: Vec<usize> = (0..self.links.len()).collect();
        for (s, site) in self.sites.iter().enumerate().filter(|(_, site)| site.role == Role::Bridge) {
            let of_site: Vec<usize> =
                (0..self.links.len()).filter(|l| self.links[*l].ports.iter().any(|(owner, _)| *owner == s)).collect();
            if let Some(l) = of_site.iter().find(|l| !links[**l].carries_ethernet) {
                return Err(PlanError::BridgeNeedsEthernet { site: site.name.clone(), link: links[*l].name.clone() });
            }
            for pair in of_site.windows(2) {
                let (keep, give) = (segment[pair[0]], segment[pair[1]]);
                segment.iter_mut().filter(|number| **number == give).for_each(|number| *number = keep);
            }
        }
        // Numbers without gaps, in the order of the links.
        let mut order: Vec<usize> = Vec::new();
        for number in &segment {
            if !order.contains(number) {
                order.push(*number);
            }
        }
        if order.len() > SEGMENTS_MAX {
            return Err(PlanError::TooMany);
        }
        self.segments = order.len();
        for (l, link) in self.links.iter().enumerate() {
            let number = order.iter().position(|n| *n == segment[l]).unwrap_or(0);
            for (site, interface) in &link.ports {
                self.sites[*site].interfaces[*interface].segment = number;
            }
        }
        Ok(())
    }

    fn give_addresses(&mut self) -> Result<(), PlanError> {
        let mut used = vec![0u32; SEGMENTS_MAX];
        for site in self.sites.iter_mut().filter(|site| site.role != Role::Bridge) {
            for interface in &mut site.interfaces {
                used[interface.segment] += 1;
                let host = used[interface.segment];
                if host > HOSTS_MAX {
                    return Err(PlanError::TooMany);
                }
                interface.address = Some(Ipv4Addr::from(u32::from(network(interface.segment)) + host));
            }
        }
        Ok(())
    }

    /// Shortest ways, by segments crossed, through sites that route.
    fn find_routes(&mut self) {
        let mut found: Vec<Vec<RoutePlan>> = vec![Vec::new(); self.sites.len()];
        for (start, routes) in found.iter_mut().enumerate() {
            if self.sites[start].role == Role::Bridge {
                continue;
            }
            let mut reached = vec![false; SEGMENTS_MAX];
            let mut queue = VecDeque::new();
            for (number, interface) in self.sites[start].interfaces.iter().enumerate() {
                reached[interface.segment] = true;
                queue.push_back((interface.segment, None, number));
            }
            while let Some((segment, first_hop, out)) = queue.pop_front() {
                for (s, site) in self.sites.iter().enumerate() {
                    let here = site.interfaces.iter().find(|i| i.segment == segment && i.address.is_some());
                    let Some(address) = here.and_then(|interface| interface.address) else { continue };
                    if s == start || site.role != Role::Router {
                        continue;
                    }
                    let via = first_hop.unwrap_or(address);
                    for next in site.interfaces.iter().map(|interface| interface.segment) {
                        if !std::mem::replace(&mut reached[next], true) {
                            routes.push(RoutePlan { network: network(next), via, interface: out });
                            queue.push_back((next, Some(via), out));
                        }
                    }
                }
            }
        }
        for (site, routes) in self.sites.iter_mut().zip(found) {
            site.routes = routes;
        }
    }
}

/// The network of a segment.
#[must_use]
pub fn network(segment: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + ((segment as u32) << 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, sites: &[&str], carries_ethernet: bool) -> LinkSpec {
        let sites = sites.iter().map(|s| (*s).to_owned()).collect();
        LinkSpec { name: name.to_owned(), sites, carries_ethernet, mtu: 1500 }
    }

    #[test]
    fn two_sites_share_a_segment() {
        let plan = Plan::new(&[link("sat", &["hub", "clinic"], false)], &BTreeMap::new()).unwrap();
        assert_eq!(plan.address(0), Some(Ipv4Addr::new(198, 18, 0, 1)));
        assert_eq!(plan.address(1), Some(Ipv4Addr::new(198, 18, 0, 2)));
        assert!(plan.hosts_file().contains("198.18.0.2\tclinic\n"));
        assert_eq!(plan.sites[0].interfaces[0].device, "sat");
    }

    #[test]
    fn a_site_between_links_routes() {
        let links = [
            link("lan", &["server", "hub"], false),
            link("sat", &["hub", "ship"], false),
            link("wifi", &["ship", "tablet"], false),
        ];
        let plan = Plan::new(&links, &BTreeMap::new()).unwrap();
        let server = &plan.sites[plan.site("server").unwrap()];
        let hub_lan = plan.sites[plan.site("hub").unwrap()].interfaces[0].address.unwrap();
        assert_eq!(server.routes.len(), 2);
        assert!(server.routes.iter().all(|route| route.via == hub_lan && route.interface == 0));
        let block = TableRoute { network: network(0), prefix: 15, via: hub_lan, interface: 0 };
        assert_eq!(plan.table_routes(plan.site("server").unwrap()), [block]);
        let ship = &plan.sites[plan.site("ship").unwrap()];
        assert_eq!(ship.role, Role::Router);
        assert_eq!(ship.routes, [RoutePlan { network: network(0), via: Ipv4Addr::new(198, 18, 1, 1), interface: 0 }]);
    }

    #[test]
    fn sites_reach_each_other_over_sites_that_route() {
        let links = [link("lan", &["server", "hub"], false), link("sat", &["hub", "ship"], false)];
        let routed = Plan::new(&links, &BTreeMap::new()).unwrap();
        let broken = Plan::new(&links, &BTreeMap::from([("hub".to_owned(), Role::Host)])).unwrap();
        let apart = Plan::new(&[links[0].clone(), link("sat", &["gate", "ship"], false)], &BTreeMap::new()).unwrap();
        let joined = |plan: &Plan| {
            let (a, b) = (plan.site("server").unwrap(), plan.site("ship").unwrap());
            (plan.reaches(a, b), plan.reaches(b, a))
        };
        assert_eq!([&routed, &broken, &apart].map(joined), [(true, true), (false, false), (false, false)]);
        // The hub's address is that on the other link.
        assert!(!broken.reaches(broken.site("ship").unwrap(), broken.site("hub").unwrap()));
    }

    #[test]
    fn bridges_make_two_lans_one() {
        let links = [
            link("lan-a", &["bridge-a", "pc-a"], true),
            link("sat", &["bridge-a", "bridge-b"], true),
            link("lan-b", &["bridge-b", "pc-b"], true),
        ];
        let roles = BTreeMap::from([("bridge-a".to_owned(), Role::Bridge), ("bridge-b".to_owned(), Role::Bridge)]);
        let plan = Plan::new(&links, &roles).unwrap();
        let (a, b) = (plan.site("pc-a").unwrap(), plan.site("pc-b").unwrap());
        assert_eq!(plan.sites[a].interfaces[0].segment, plan.sites[b].interfaces[0].segment);
        assert_eq!(plan.address(plan.site("bridge-a").unwrap()), None);
        assert!(plan.sites[a].routes.is_empty());
        let ip = [link("sat", &["bridge-a", "bridge-b"], false)];
        assert!(matches!(Plan::new(&ip, &roles), Err(PlanError::BridgeNeedsEthernet { .. })));
    }

    #[test]
    fn device_names_never_collide() {
        let links = [
            link("link1", &["hub", "a"], false),
            link("lo", &["hub", "b"], false),
            link("a-very-long-name-of-a-link", &["hub", "c"], false),
            link("a-very-long-name-of-another", &["hub", "d"], false),
        ];
        let plan = Plan::new(&links, &BTreeMap::new()).unwrap();
        let devices: Vec<&str> = plan.sites[0].interfaces.iter().map(|i| i.device.as_str()).collect();
        assert_eq!(devices, ["link1", "link2", "a-very-long-nam", "link3"]);
    }

    #[test]
    fn impossible_networks_are_refused() {
        assert!(matches!(Plan::new(&[link("x", &["a"], false)], &BTreeMap::new()), Err(PlanError::Endpoints(_))));
        assert!(matches!(Plan::new(&[link("x", &["a", "a"], false)], &BTreeMap::new()), Err(PlanError::Endpoints(_))));
        let roles = BTreeMap::from([("ghost".to_owned(), Role::Router)]);
        assert!(matches!(Plan::new(&[link("x", &["a", "b"], false)], &roles), Err(PlanError::UnknownSite(_))));
    }
}
