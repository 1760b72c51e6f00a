//! Whatever comes in: no panic, and every byte of every stream once and in order.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::Satellite;
use bentpipe_gateway::satellite::quic::Crypto;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_datagrams_are_harmless(
        datagrams in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..1400)), 1..20),
        known in any::<bool>(),
    ) {
        let mut world = World::new(GEO, 1);
        world.connect();
        for (hub, datagram) in datagrams {
            let side = if hub { HUB } else { TERMINAL };
            let from = if known { world.stations[1 - side].address } else { "10.9.9.9:9".parse().unwrap() };
            world.hand(side, from, datagram);
            world.pump();
        }
        prop_assert_eq!(world.fetch(1, 100, 10_000, 20.0).len(), 1);
    }

    #[test]
    fn changed_datagrams_are_harmless(
        seed in any::<u64>(),
        changes in proptest::collection::vec((any::<u16>(), any::<u16>(), any::<u8>(), any::<bool>()), 1..60),
    ) {
        let mut world = World::new(GEO, seed);
        world.hub().trace = Some(Vec::new());
        world.terminal().trace = Some(Vec::new());
        world.connect();
        world.fetch(1, 100, 20_000, 20.0);
        let traces = [HUB, TERMINAL].map(|side| world.stations[side].trace.take().unwrap_or_default());
        for (which, place, value, cut) in changes {
            for side in [HUB, TERMINAL] {
                let trace = &traces[1 - side];
                let mut datagram = trace[usize::from(which) % trace.len()].1.clone();
                let place = usize::from(place) % datagram.len();
                if cut {
                    datagram.truncate(place);
                } else {
                    datagram[place] ^= value;
                }
                let from = world.stations[1 - side].address;
                world.hand(side, from, datagram);
            }
            world.pump();
        }
        prop_assert_eq!(world.fetch(1, 100, 10_000, 60.0).len(), 1);
    }

    #[test]
    fn every_byte_arrives_once_and_in_order(
        seed in any::<u64>(),
        lose in 0.0..0.2f64,
        duplicate in 0.0..0.3f64,
        reorder in 0.0..0.3f64,
        corrupt in 0.0..0.1f64,
        streams in 1usize..8,
        bytes in 0u64..60_000,
    ) {
        let mut world = World::with(GEO, seed, Crypto::Model(7), |config| config.loss = 0.2);
        world.mischief = Mischief { duplicate, reorder, corrupt, lose };
        world.connect();
        // `fetch` holds every byte against what was written.
        prop_assert_eq!(world.fetch(streams, 1000, bytes, 300.0).len(), streams);
        prop_assert!(world.hub().satellite.is_connected());
    }
}
