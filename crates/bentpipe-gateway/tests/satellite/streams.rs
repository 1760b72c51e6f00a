//! What a relay sees of streams.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::quic::Crypto;
use bentpipe_gateway::satellite::{Class, Event, Satellite, StreamError, StreamId};

fn world() -> World {
    let mut world = World::new(GEO, 1);
    world.connect();
    world
}

#[test]
fn each_direction_ends_by_itself_and_delivery_is_told() {
    let mut world = world();
    world.hub().answer = 30_000;
    let now = world.now;
    let id = world.terminal().open(now, Class::Interactive, 10_000);
    world.pump();
    world.run(now + seconds(5.0), |world| world.stations[HUB].flows.get(&id).is_some_and(|f| f.delivered.is_some()));
    let (hub, terminal) = (world.stations[HUB].flows[&id], world.stations[TERMINAL].flows[&id]);
    assert_eq!((hub.read, hub.wrong, terminal.read, terminal.wrong), (10_000, 0, 30_000, 0));
    assert!(terminal.delivered.is_some() && hub.ended.is_some() && terminal.ended.is_some());
    // Both directions are over on both sides: nothing is kept.
    let until = world.now + seconds(3.0);
    world.run(until, |_| false);
    for station in &mut world.stations {
        assert_eq!(station.satellite.write(until, id, b"x"), Err(StreamError::Unknown));
        assert_eq!(station.satellite.read(until, id, &mut Vec::new(), 1), Err(StreamError::Unknown));
    }
    let statistics = world.hub().satellite.statistics();
    assert_eq!(statistics.delivered_bytes, 30_000);
}

#[test]
fn a_reset_and_a_stop_arrive_with_their_codes() {
    let mut world = world();
    let now = world.now;
    let id = world.terminal().open(now, Class::Bulk, 3_000_000);
    world.run(now + seconds(1.0), |_| false);
    let now = world.now;
    world.terminal().satellite.reset(now, id, 17);
    world.pump();
    world.run(now + seconds(1.0), |_| false);
    assert_eq!(world.hub().flows[&id].reset, Some(17));
    let now = world.now;
    let id = world.terminal().open(now, Class::Bulk, 3_000_000);
    world.run(now + seconds(1.0), |_| false);
    let now = world.now;
    world.hub().satellite.stop(now, id, 18);
    world.pump();
    world.run(now + seconds(1.0), |_| false);
    assert_eq!(world.terminal().flows[&id].stopped, Some(18));
    let now = world.now;
    assert_eq!(world.terminal().satellite.write(now, id, b"x").ok(), None);
}

#[test]
fn the_memory_of_streams_is_counted_and_given_back() {
    let mut world = World::new(&GEO.replace("framing", "loss = \"1 %\"\nframing"), 1);
    world.connect();
    let held = |world: &World, side: usize| {
        let seen = world.stations[side].satellite.statistics();
        (seen.queued_bytes, seen.unacknowledged_bytes, seen.unread_bytes)
    };
    assert_eq!([HUB, TERMINAL].map(|side| held(&world, side)), [(0, 0, 0); 2]);
    let start = world.now;
    // Nobody reads for three seconds; one of the streams is reset and one stopped in the middle.
    world.stations[HUB].read_from = start + seconds(3.0);
    let ids = [(); 4].map(|()| world.terminal().open(start, Class::Bulk, 2_000_000));
    world.pump();
    world.run(start + seconds(2.0), |_| false);
    let (queued, unacknowledged, _) = held(&world, TERMINAL);
    // What waits is little on purpose; a round trip of 10 Mbit/s is on its way (750 kB), and what lost packets hold back.
    assert!((1..=64 << 10).contains(&queued), "{queued}");
    assert!((600_000..=1_600_000).contains(&unacknowledged), "{unacknowledged}");
    // What has arrived waits for the reader: all that has been delivered, and what came after lost packets.
    let (.., unread) = held(&world, HUB);
    let delivered = world.stations[TERMINAL].satellite.statistics().delivered_bytes;
    assert!(unread > delivered && unread < delivered + 1_000_000, "{unread} of {delivered}");
    let now = world.now;
    world.terminal().satellite.reset(now, ids[0], 1);
    world.hub().satellite.stop(now, ids[1], 2);
    world.pump();
    world.run(now + seconds(30.0), |_| false);
    for id in &ids[2..] {
        assert_eq!(world.stations[HUB].flows[id].read, 2_000_000);
    }
    assert_eq!([HUB, TERMINAL].map(|side| held(&world, side)), [(0, 0, 0); 2]);
}

#[test]
fn a_slow_reader_holds_its_sender_back_and_nobody_else() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let start = world.now;
    world.terminal().read_from = start + seconds(150.0);
    let slow = world.hub().open(start, Class::Bulk, 200_000_000);
    world.run(start + seconds(10.0), |_| false);
    world.terminal().read_from = bentpipe_net::time::Instant::ZERO;
    let now = world.now;
    let quick = world.hub().open(now, Class::Bulk, 2_000_000);
    world.run(now + seconds(30.0), |world| {
        world.stations[TERMINAL].flows.get(&quick).is_some_and(|flow| flow.ended.is_some())
    });
    assert!(world.terminal().flows[&quick].ended.is_some());
    let until = world.now + seconds(60.0);
    world.run(until, |_| false);
    let before = world.link_bytes()[0];
    world.run(until + seconds(30.0), |_| false);
    assert!(world.link_bytes()[0] - before < 20_000, "the window is closed");
    let written = world.hub().flows[&slow].written;
    println!("{written} bytes taken for a reader that reads nothing");
    assert!(written < 140_000_000);
}

#[test]
fn more_gaps_than_the_library_keeps_do_not_end_the_connection() {
    // "too many gaps in stream buffer": 1024 pieces of a stream, at 250 Mbit/s and 6 % loss.
    let text = "one_way_delay = \"300 ms\"\nmtu = \"1500 B\"\nframing = \"none\"\nrate = \"250 Mbit/s\"\n\
                queue = { bytes = \"4 MB\" }\n[forward]\nloss = \"6 %\"\n";
    let mut world =
        World::with(text, 1, bentpipe_gateway::satellite::quic::Crypto::Model(7), |config| config.loss = 0.06);
    world.connect();
    let times = world.fetch(1, 100, 25_000_000, 60.0);
    println!("{times:?}");
    assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![], vec![]));
    // Nor when nobody reads, and what comes has to wait in the library.
    let text = text.replace("6 %", "3 %");
    let mut world =
        World::with(&text, 1, bentpipe_gateway::satellite::quic::Crypto::Model(7), |config| config.loss = 0.03);
    world.connect();
    let start = world.now;
    world.terminal().read_from = start + seconds(12.0);
    let id = world.hub().open(start, Class::Bulk, 120_000_000);
    world.run(start + seconds(60.0), |world| {
        world.stations[TERMINAL].flows.get(&id).is_some_and(|flow| flow.ended.is_some())
    });
    assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![], vec![]));
    let flow = world.terminal().flows[&id];
    assert_eq!((flow.read, flow.wrong), (120_000_000, 0));
}

#[test]
fn equal_seeds_give_equal_bytes() {
    let run = |seed| {
        let mut world = World::with(
            &format!("{GEO}loss = \"1 %\"\n"),
            seed,
            bentpipe_gateway::satellite::quic::Crypto::Model(7),
            |_| {},
        );
        world.hub().trace = Some(Vec::new());
        world.terminal().trace = Some(Vec::new());
        world.connect();
        world.fetch(3, 100, 100_000, 20.0);
        [HUB, TERMINAL].map(|side| world.stations[side].trace.take())
    };
    let first = run(1);
    assert!(first == run(1), "the same run twice");
    assert!(first != run(2), "another seed");
}

#[test]
fn a_stream_that_nobody_knows_is_harmless() {
    let mut world = world();
    let now = world.now;
    for id in [0, 1, 4, 1 << 40, u64::MAX, (1 << 40) | 4_000_000].map(StreamId) {
        let satellite = &mut world.hub().satellite;
        assert_eq!(satellite.write(now, id, b"x"), Err(StreamError::Unknown));
        assert_eq!(satellite.read(now, id, &mut Vec::new(), 1), Err(StreamError::Unknown));
        assert_eq!(satellite.room(id), 0);
        satellite.set_class(id, Class::Bulk);
        satellite.finish(now, id);
        satellite.reset(now, id, 1);
        satellite.stop(now, id, 1);
    }
    assert_eq!(world.fetch(1, 10, 10, 5.0).len(), 1);
}

#[test]
fn a_thousand_streams_are_kept_apart() {
    let mut world = world();
    let times = world.fetch(1000, 500, 2000, 60.0);
    assert_eq!(times.len(), 1000);
    assert_eq!(world.hub().events.iter().filter(|(_, event)| matches!(event, Event::Opened(_))).count(), 1000);
}

#[test]
fn as_many_streams_may_be_open_as_connections_and_some_more() {
    for connections in [10, 9_000] {
        let mut world = World::with(GEO, 1, Crypto::Model(7), |config| config.connections = connections);
        world.connect();
        for side in [HUB, TERMINAL] {
            let satellite = &mut world.stations[side].satellite;
            let open = std::iter::from_fn(|| satellite.open(Class::Control)).count();
            // Those that end or are refused are beyond the limit of connections.
            assert_eq!(open, connections + 1024, "side {side}");
        }
    }
}
