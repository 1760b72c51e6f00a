//! The file of a gateway daemon.

use crate::config::GatewayConfig;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// What a daemon's file says, complete and checked.
#[derive(Clone, Debug)]
pub struct GatewayFile {
    /// UDP address that the satellite side is bound to.
    pub listen: SocketAddr,
    /// The file of this gateway's private key.
    pub key: PathBuf,
    /// The other gateway's public key: its text, as `bentpipe gateway keys` shows it.
    pub peer_key: String,
    /// The gateway itself; its side and the hub's address are in `gateway.satellite.side`.
    pub gateway: GatewayConfig,
    /// What is captured; `None`: nothing, the gateway is only asked.
    pub capture: Option<CaptureRules>,
    /// Where the SOCKS5 listener is bound, if there is one.
    pub socks: Option<SocketAddr>,
    /// Where the HTTP CONNECT listener is bound, if there is one.
    pub connect: Option<SocketAddr>,
    /// Where metrics are served, if they are.
    pub metrics: Option<SocketAddr>,
    /// The user to become once everything that needs rights is open.
    pub user: Option<String>,
    /// How long a shutdown waits for connections to end.
    pub drain: bentpipe_link::time::Duration,
}

/// Which connections are captured: those that come in on one of the interfaces, from and to the given networks and ports,
/// and match no exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureRules {
    /// Interfaces towards the site; at least one.
    pub interfaces: Vec<String>,
    /// Server ports; empty: all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Server networks; empty: all.
    pub to: Vec<Network>,
    /// Client networks; empty: all.
    pub from: Vec<Network>,
    /// Server ports that are left alone.
    pub except_ports: Vec<RangeInclusive<u16>>,
    /// Server networks that are left alone.
    pub except_to: Vec<Network>,
    /// Client networks that are left alone.
    pub except_from: Vec<Network>,
}

/// A network: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Length of the prefix.
    pub prefix: u8,
}
