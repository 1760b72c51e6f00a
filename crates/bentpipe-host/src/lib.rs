//! The emulator: real programs' packets through modelled links, against the wall clock.

pub mod clock;
pub mod driver;
pub mod emulation;
pub mod gateway;
pub mod internet;
pub mod lateness;
pub mod line;
pub mod listening;
pub mod namespace;
pub mod netlink;
pub mod pcap;
pub mod port;
pub mod program;
pub mod pump;
pub mod sites;
pub mod sockets;
pub mod spawn;
pub mod tap;
pub mod tcp_samples;
pub mod tcp_stack;
pub mod waker;

mod datagram;
