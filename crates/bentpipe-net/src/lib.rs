//! The ground floor: units, time and seeds; datagrams and their bytes; addresses; what a socket promises.
//!
//! Nothing here reads a clock, opens a socket or owns a thread.

pub mod buffer;
pub mod content;
pub mod datagram;
pub mod distribution;
pub mod dscp;
pub mod flow;
pub mod hdlc;
pub mod headers;
pub mod held_requests;
pub mod interception;
pub mod line;
pub mod packet;
pub mod pcapng;
pub mod problem;
pub mod quantity;
pub mod seed;
pub mod selector;
pub mod socket;
pub mod stack;
pub mod text;
pub mod time;
pub mod topology;
pub mod units;
pub mod wire;
