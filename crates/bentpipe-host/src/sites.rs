//! Sites as network namespaces: devices, addresses, neighbours, routes and TCP settings, as planned.

use crate::namespace::{Namespace, NamespaceError, write_sysctl};
use crate::netlink::{Netlink, Route};
use crate::port::switch_offloads_off;
use crate::tcp_stack::{self, EffectiveSetting};
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::topology::{InterfacePlan, Plan, Role, SEGMENT_PREFIX, SitePlan, network};
use std::collections::BTreeMap;
use std::io;

/// The namespaces of a plan: one a site, and the engine's, which holds the emulator's ends of the veth pairs.
#[derive(Debug)]
pub struct Sites {
    /// In the order of the plan's sites.
    pub namespaces: Vec<Namespace>,
    /// Where the ports are.
    pub engine: Namespace,
    /// TCP settings of each site, as the kernel took them.
    pub effective: Vec<Vec<EffectiveSetting>>,
}

/// Why the sites could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// No namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A step inside one failed.
    #[error("site {site}: cannot be set up")]
    Step {
        /// The site.
        site: String,
        /// The failure.
        source: NamespaceError,
    },
}

/// The bridge device of a bridging site.
const BRIDGE: &str = "bridge";

impl Sites {
    /// Builds every site of `plan`. `tcp` holds the settings of the sites that have any.
    pub fn build(plan: &Plan, tcp: &BTreeMap<String, TcpConfig>) -> Result<Sites, SiteError> {
        let engine = Namespace::new()?;
        engine.run(switch_ipv6_off)?;
        let mut sites = Sites { namespaces: Vec::new(), engine, effective: Vec::new() };
        for (number, site) in plan.sites.iter().enumerate() {
            let namespace = Namespace::new()?;
            let config = tcp.get(&site.name).cloned().unwrap_or_default();
            let step = |source| SiteError::Step { site: site.name.clone(), source };
            namespace.run(|| prepare(site)).map_err(step)?;
            sites
                .engine
                .run(|| {
                    let mut netlink = Netlink::open()?;
                    for (i, interface) in site.interfaces.iter().enumerate() {
                        let port = port_device(number, i);
                        let mtu = u32::try_from(interface.mtu).unwrap_or(u32::MAX);
                        netlink.add_veth(&port, &interface.device, namespace.as_fd(), mtu)?;
                        switch_offloads_off(&port)?;
                        netlink.set_up(&port)?;
                    }
                    Ok(())
                })
                .map_err(step)?;
            let effective = namespace.run(|| tcp_stack::apply_sysctls(&config)).map_err(step)?;
            namespace.run(|| configure(plan, number, &config)).map_err(step)?;
            sites.namespaces.push(namespace);
            sites.effective.push(effective);
        }
        Ok(sites)
    }
}

/// The name of the emulator's end of an interface.
#[must_use]
pub fn port_device(site: usize, interface: usize) -> String {
    format!("p{site}x{interface}")
}

/// The largest IP packet on an interface, the host's own limit included.
pub(crate) fn interface_mtu(interface: &InterfacePlan, config: &TcpConfig) -> u64 {
    config.mtu.map_or(interface.mtu, |mtu| mtu.bytes.min(interface.mtu))
}

/// Preparation that is the same for every site, before it has devices.
fn prepare(site: &SitePlan) -> io::Result<()> {
    switch_ipv6_off()?;
    // Every group of this namespace may open ping sockets; inside a user namespace only the mapped one exists.
    let gid = rustix::process::getgid().as_raw();
    write_sysctl("net.ipv4.ping_group_range", &format!("{gid} {gid}"))?;
    write_sysctl("net.ipv4.ip_unprivileged_port_start", "0")?;
    for name in ["net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"] {
        write_sysctl(name, "0")?;
    }
    for name in ["net.ipv4.conf.all.send_redirects", "net.ipv4.conf.default.send_redirects"] {
        write_sysctl(name, "0")?;
    }
    write_sysctl("net.ipv4.ip_forward", if site.role == Role::Router { "1" } else { "0" })?;
    Netlink::open()?.set_up("lo")
}

fn configure(plan: &Plan, number: usize, config: &TcpConfig) -> io::Result<()> {
    let site = &plan.sites[number];
    let mut netlink = Netlink::open()?;
    if site.role == Role::Bridge {
        netlink.add_bridge(BRIDGE)?;
    }
    for interface in &site.interfaces {
        netlink.set_address(&interface.device, interface.hardware)?;
        switch_offloads_off(&interface.device)?;
        let mtu = interface_mtu(interface, config);
        if mtu < interface.mtu {
            netlink.set_mtu(&interface.device, u32::try_from(mtu).unwrap_or(u32::MAX))?;
        }
        if site.role == Role::Bridge {
            netlink.set_bridge(&interface.device, BRIDGE)?;
        }
        netlink.set_up(&interface.device)?;
        let Some(address) = interface.address else { continue };
        netlink.add_ip(&interface.device, address, SEGMENT_PREFIX)?;
        netlink.add_route(&Route {
            destination: network(interface.segment),
            prefix: SEGMENT_PREFIX,
            via: None,
            device: interface.device.clone(),
            source: Some(address),
            metrics: tcp_stack::route_metrics(config, mtu),
        })?;
        if interface.fixed_neighbours {
            let others = plan.sites.iter().filter(|other| other.name != site.name).flat_map(|other| &other.interfaces);
            for other in others.filter(|other| other.segment == interface.segment) {
                if let Some(address) = other.address {
                    let hardware = interface.hub_hardware.unwrap_or(other.hardware);
                    netlink.add_neighbour(&interface.device, address, hardware)?;
                }
            }
        }
    }
    if site.role == Role::Bridge {
        netlink.set_up(BRIDGE)?;
    }
    for route in plan.table_routes(number) {
        let interface = &site.interfaces[route.interface];
        netlink.add_route(&Route {
            destination: route.network,
            prefix: route.prefix,
            via: Some(route.via),
            device: interface.device.clone(),
            source: interface.address,
            metrics: tcp_stack::route_metrics(config, interface_mtu(interface, config)),
        })?;
    }
    Ok(())
}

/// No router solicitations, no multicast reports: an idle link must stay idle. A kernel without IPv6 needs nothing.
fn switch_ipv6_off() -> io::Result<()> {
    for name in ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"] {
        match write_sysctl(name, "1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}
