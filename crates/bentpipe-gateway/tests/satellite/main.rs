//! The satellite side over links in virtual time. `benches/satellite.rs` prints the same cases at full size.

mod diagnosis;
mod faults;
mod fuzz;
mod handshake;
mod idle;
mod rates;
mod security;
mod streams;
mod support;
mod throughput;

/// A geostationary link of 10 Mbit/s with a queue of about a round trip.
const GEO: &str = "rate = \"10 Mbit/s\"\none_way_delay = \"300 ms\"\nqueue = { bytes = \"750 kB\" }\nmtu = \"1500 B\"\n\
                   framing = \"none\"\n";
