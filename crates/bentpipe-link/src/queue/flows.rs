//! Flows of a queue discipline, by a salted hash of addresses, protocol and ports.

use bentpipe_net::flow::FlowKey;
use bentpipe_net::headers::Headers;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::seed::Stream;
use rand_core::Rng;
use std::net::IpAddr;

/// Queues for flows that a discipline has unless its file states another number (RFC 8290 §5.2).
const FLOWS_DEFAULT: u64 = 1024;
/// Most of them.
const FLOWS_MAX: u64 = 65_536;

/// Flows that share a set of places: where a hash leads to (CAKE has as many).
const WAYS: usize = 8;

/// Reads the key `flows`.
pub(super) fn read_flows(flows: Option<u64>) -> Result<usize, KeyProblem> {
    let flows = flows.unwrap_or(FLOWS_DEFAULT);
    if !flows.is_power_of_two() || !(WAYS as u64..=FLOWS_MAX).contains(&flows) {
        let what = format!("{flows} is out of range; allowed: a power of two from {WAYS} to {FLOWS_MAX}");
        return Err(KeyProblem::new("flows", what));
    }
    Ok(flows as usize)
}

/// A hash of flows. The salt comes from the queue's random stream, so that nobody can choose flows that collide.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowHash {
    salt: u64,
}

impl FlowHash {
    /// With a salt of its own.
    pub fn new(random: &mut Stream) -> FlowHash {
        FlowHash { salt: random.next_u64() }
    }

    /// The hash of a packet's flow, in all 64 bits. Packets without headers are one flow.
    #[inline]
    pub fn of(self, headers: Option<&Headers>) -> u64 {
        let Some(Headers { flow, .. }) = headers else { return self.salt | 1 };
        let FlowKey { source, destination, protocol, source_port, destination_port } = flow;
        let addresses = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                mix(self.salt, u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()))
            }
            (source, destination) => fold(fold(self.salt, source), destination),
        };
        let ports = u64::from(*source_port) << 16 | u64::from(*destination_port);
        mix(addresses, u64::from(*protocol) << 32 | ports)
    }
}

fn fold(hash: u64, address: &IpAddr) -> u64 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    mix(mix(hash, (bits >> 64) as u64), bits as u64)
}

/// One step: the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let mut mixed = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Places for a limited number of flows, a place for each while it is in use: a hash table of sets of eight, as CAKE's
/// (Høiland-Jørgensen, Täht and Morton, "Piece of CAKE", 2018, §III-C). Two flows share a place only if all 64 bits of their
/// hashes are equal.
#[derive(Debug)]
pub(super) struct FlowTable {
    hash: FlowHash,
    /// The hash of the flow of each place; 0: free.
    places: Vec<u64>,
}

impl FlowTable {
    /// For so many flows, a multiple of eight and a power of two.
    pub fn new(flows: usize, random: &mut Stream) -> FlowTable {
        FlowTable { hash: FlowHash::new(random), places: vec![0; flows] }
    }

    /// Places, and so the number of the queue for flows without a place.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The place of a packet's flow, a new one if `may_add`. `None`: it has none.
    #[inline]
    pub fn place_of(&mut self, headers: Option<&Headers>, may_add: bool) -> Option<usize> {
        let hash = self.hash.of(headers).max(1);
        let first = (hash as usize & (self.places.len() - 1)) & !(WAYS - 1);
        let set = &mut self.places[first..first + WAYS];
        if let Some(way) = set.iter().position(|place| *place == hash) {
            return Some(first + way);
        }
        let way = set.iter().position(|place| *place == 0).filter(|_| may_add)?;
        set[way] = hash;
        Some(first + way)
    }

    /// Frees a place.
    #[inline]
    pub fn release(&mut self, place: usize) {
        if let Some(place) = self.places.get_mut(place) {
            *place = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::seed::Seed;
    use std::collections::BTreeSet;

    fn headers(number: u32, ipv6: bool) -> Headers {
        let source = if ipv6 { IpAddr::V6(u128::from(number).into()) } else { IpAddr::V4(number.into()) };
        let flow =
            FlowKey { source, destination: source, protocol: 6, source_port: 1, destination_port: number as u16 };
        Headers { flow, traffic_class: 0, tcp: None }
    }

    #[test]
    fn hashes_spread_evenly() {
        for ipv6 in [false, true] {
            let hash = FlowHash::new(&mut Seed(1).stream("q"));
            let mut buckets = [0u32; 64];
            for number in 0..6400 {
                buckets[(hash.of(Some(&headers(number, ipv6))) % 64) as usize] += 1;
            }
            // 63 degrees of freedom: above 103 with a chance of 0.1 %.
            let chi: f64 = buckets.iter().map(|count| (f64::from(*count) - 100.0).powi(2) / 100.0).sum();
            assert!(chi < 103.0, "{chi}");
        }
    }

    #[test]
    fn a_flow_keeps_its_place_until_it_is_released() {
        let mut table = FlowTable::new(64, &mut Seed(1).stream("q"));
        let placed: Vec<(u32, usize)> =
            (0..200).filter_map(|n| Some((n, table.place_of(Some(&headers(n, false)), true)?))).collect();
        assert_eq!(placed.iter().map(|(_, place)| place).collect::<BTreeSet<_>>().len(), placed.len());
        assert!(placed.len() > 56, "{} of 64", placed.len());
        for (number, place) in &placed {
            assert_eq!(table.place_of(Some(&headers(*number, false)), false), Some(*place));
        }
        let (number, place) = placed[3];
        table.release(place);
        assert_eq!(table.place_of(Some(&headers(number, false)), false), None);
        assert_eq!(table.place_of(Some(&headers(number, false)), true), Some(place));
    }
}
