//! Two simulated hosts at the ends of one link, and a transfer between them that several connections share.

use bentpipe_apps::Direction;
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::report::App;
use bentpipe_link::config::LinkConfig;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::LinkSpec;
use bentpipe_sim::network::{Network, NetworkError, Setup, Stop};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The hosts, hub and terminal, in the order of their numbers.
pub const SITES: [&str; 2] = ["hub", "terminal"];
/// The hub's number.
pub const HUB: usize = 0;
/// The terminal's.
pub const TERMINAL: usize = 1;

/// Port of the first connection; the others follow.
const PORT: u16 = 5001;
/// Longest time let pass between two checks of the programs.
const SLICE: Duration = Duration::from_secs(60);

/// Two hosts and their programs in virtual time.
pub type Hosts = Network<Box<dyn App>>;

/// The hub and the terminal, each with its TCP, at the ends of a link.
pub fn hosts(link: &LinkConfig, tcp: [TcpConfig; 2], seed: u64) -> Result<Hosts, NetworkError> {
    let sites = SITES.map(str::to_owned);
    let spec = LinkSpec {
        name: "link".to_owned(),
        sites: sites.to_vec(),
        carries_ethernet: link.carries_ethernet,
        mtu: link.mtu,
    };
    let tcp = sites.into_iter().zip(tcp).collect();
    Network::new(&Setup { links: vec![(spec, link.clone())], roles: BTreeMap::new(), tcp, seed })
}

/// A host's address.
pub fn address(network: &Hosts, site: usize) -> Ipv4Addr {
    network.plan().address(site).unwrap_or_else(|| unreachable!("both hosts are at a link that carries IP"))
}

/// Each connection's port and its even share of `bytes`; connections that would get nothing are left out.
pub fn shares(bytes: u64, connections: u32) -> impl Iterator<Item = (u16, u64)> {
    let all = u64::from(connections);
    (0..all)
        .map(move |number| (PORT + number as u16, bytes / all + u64::from(number < bytes % all)))
        .filter(|(_, bytes)| *bytes > 0)
}

/// One connection's part of a transfer.
pub fn bulk(direction: Direction, port: u16, bytes: u64) -> BulkSpec {
    // Samples over time are not wanted.
    let sample_every = Duration::from_secs(30 * 86_400);
    BulkSpec { direction, amount: Amount::Bytes(bytes), port, sample_every, timeout: None }
}

/// Lets time pass while `is_running`, `longest` at most, or until nothing can happen any more.
pub fn run(network: &mut Hosts, longest: Duration, is_running: impl Fn(&Hosts) -> bool) {
    let end = Instant::ZERO + longest;
    while is_running(network) {
        let until = (network.now() + SLICE).min(end);
        if network.run_until(until) == Stop::Idle || network.now() >= end {
            return;
        }
    }
}
