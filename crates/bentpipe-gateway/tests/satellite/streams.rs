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
fn each_direction_ends_by_itself_and_delivery_is_reported() {
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
    // The rates that a side declares are bytes of the control stream.
    assert!((30_000..30_032).contains(&statistics.delivered_bytes), "{}", statistics.delivered_bytes);
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
    let buffered = |world: &World, side: usize| {
        let seen = world.stations[side].satellite.statistics();
        (seen.queued_bytes, seen.unacknowledged_bytes, seen.unread_bytes)
    };
    assert_eq!([HUB, TERMINAL].map(|side| buffered(&world, side)), [(0, 0, 0); 2]);
    let start = world.now;
    // Nobody reads for three seconds; one of the streams is reset and one stopped in the middle.
    world.stations[HUB].read_from = start + seconds(3.0);
    let ids = [(); 4].map(|()| world.terminal().open(start, Class::Bulk, 2_000_000));
    world.pump();
    world.run(start + seconds(2.0), |_| false);
    let (queued, unacknowledged, _) = buffered(&world, TERMINAL);
    // What waits is little on purpose; a round trip of 10 Mbit/s is on its way (750 kB), and what lost packets hold back.
    assert!((1..=64 << 10).contains(&queued), "{queued}");
    assert!((600_000..=1_600_000).contains(&unacknowledged), "{unacknowledged}");
    // What has arrived waits for the reader: all that has been delivered, and what came after lost packets.
    let (.., unread) = buffered(&world, HUB);
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
    assert_eq!([HUB, TERMINAL].map(|side| buffered(&world, side)), [(0, 0, 0); 2]);
}

#[test]
fn who_sends_more_than_may_be_unread_loses_that_stream_alone() {
    for (lost, limit) in [(0.0, 300_000), (0.01, 300_000), (0.01, 5_000_000)] {
        let mut world = world();
        let start = world.now;
        world.mischief.lose = lost;
        world.terminal().read_from = start + seconds(150.0);
        world.terminal().limit = limit;
        let slow = world.hub().open(start, Class::Bulk, 20_000_000);
        let mut most = 0;
        for step in 1..1000 {
            world.run(start + seconds(f64::from(step) / 100.0), |_| false);
            most = most.max(world.terminal().satellite.statistics().unread_bytes);
        }
        assert!(world.terminal().saw(&Event::Overrun(slow)).is_some(), "{lost} {limit}");
        let now = world.now;
        assert!(world.terminal().satellite.read(now, slow, &mut Vec::new(), 1).is_err());
        // The piece that is too much is seen when it is here.
        assert!(most <= limit && most > limit - 50_000, "{most} of {limit}");
        assert_eq!(world.terminal().satellite.statistics().unread_bytes, 0);
        world.terminal().read_from = bentpipe_net::time::Instant::ZERO;
        assert_eq!(world.fetch(1, 100, 100_000, 10.0).len(), 1);
        assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![], vec![]));
    }
}

#[test]
fn words_arrive_in_order_before_data_that_wait_and_whatever_is_lost() {
    let mut world = world();
    world.mischief.lose = 0.05;
    let start = world.now;
    let ids = [(); 3].map(|()| world.hub().open(start, Class::Bulk, 3_000_000));
    world.run(start + seconds(1.0), |_| false);
    let now = world.now;
    for word in 0..1000 {
        world.hub().satellite.signal(now, ids[word as usize % 3], word * 1_000_003);
    }
    // A stream that nobody knows.
    world.hub().satellite.signal(now, StreamId(u64::MAX), 7);
    world.pump();
    world.run(now + seconds(3.0), |_| false);
    let words: Vec<(StreamId, u32)> = world.stations[TERMINAL]
        .events
        .iter()
        .filter_map(|(_, event)| if let Event::Signal(id, word) = event { Some((*id, *word)) } else { None })
        .collect();
    let sent: Vec<(StreamId, u32)> = (0..1000).map(|word| (ids[word as usize % 3], word * 1_000_003)).collect();
    assert!(words == sent, "{} words", words.len());
    assert!(world.stations[TERMINAL].flows.values().all(|flow| flow.ended.is_none()), "the data go on");
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
