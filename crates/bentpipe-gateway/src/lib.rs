//! The accelerator: a pair of gateways that relay other sites' TCP connections over one warm connection between them.
//!
//! Pure: the gateway is a [`bentpipe_link::socket::Program`], told the time by whoever drives it. The way of a byte:
//! a captured connection → relay → [`satellite`] → the link → the other gateway's [`satellite`] → its relay → the server.

pub mod satellite;
