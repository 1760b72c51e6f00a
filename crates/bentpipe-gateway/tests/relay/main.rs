//! The relay between hosts in memory, over a satellite side in memory.

mod credit;
mod ends;
mod faults;
mod front_ends;
mod own_front_end;
mod pair;
mod properties;
mod proxies;
mod quic;
mod site;
mod transfers;
mod world;
