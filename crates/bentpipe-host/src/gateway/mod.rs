//! A gateway at a site of this machine: the kernel's side of [`bentpipe_net::capture::Capture`], and the thread that drives
//! the gateway.
//!
//! The way of a captured connection: a client's SYN → the firewall logs and drops it ([`firewall`]) → [`netfilter`] →
//! [`site`] holds it and tells the program → the program answers → [`inject`] admits it to the kernel → the listener's
//! accepted connection becomes a socket of the program ([`crate::sockets`]).

pub mod driver;
pub mod firewall;
pub mod inject;
pub mod netfilter;
pub(crate) mod network;
pub mod resolver;
pub mod rights;
pub(crate) mod site;
pub mod syn;

pub use driver::GatewayDriver;
pub use site::CaptureOptions;
