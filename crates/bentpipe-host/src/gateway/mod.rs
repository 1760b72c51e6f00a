//! A gateway at a site of this machine: the kernel's side of [`bentpipe_net::interception::GatewaySockets`], and the thread that drives
//! the gateway.
//!
//! The path of an intercepted connection: a client's SYN → the firewall logs and drops it ([`firewall`]) → [`netfilter`] →
//! `site` holds it for the program → the program answers → `inject` admits it to the kernel → the listener's accepted
//! connection becomes a socket of the program (`sockets`).

pub mod driver;
pub mod findings;
pub mod firewall;
pub mod inject;
pub mod netfilter;
mod network;
mod options;
mod relay_socket;
pub mod resolver;
pub mod rights;
mod site;
mod sockets;
pub mod syn;
mod token;

pub use driver::GatewayDriver;
pub use options::SiteOptions;
