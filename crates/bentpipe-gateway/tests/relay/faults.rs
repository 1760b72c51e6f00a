//! The pair's connection lost, silent or late; a peer that breaks the protocol; limits; the end.

use crate::site::{Fate, Server};
use crate::world::{CLIENT, FAR, NEAR, SERVER, World, noise};
use bentpipe_gateway::satellite::{Class, Loss, Statistics};
use bentpipe_gateway::{Fail, LogEvent};
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::interception::Refusal;
use bentpipe_net::time::Instant;
use bentpipe_net::units::BitRate;
use proptest::prelude::*;

const POLICIES: [(Fail, Refusal); 2] = [(Fail::Open, Refusal::Bypassed), (Fail::Closed, Refusal::Refused)];

#[test]
fn when_the_pair_is_lost_every_connection_is_reset_and_requests_follow_the_policy() {
    for (fail, refusal) in POLICIES {
        let mut world = World::new(|config| config.settings.fail = fail);
        let (client, server) = world.connect();
        world.sites[FAR].host_send(server, &noise(1, 60_000));
        let (half_client, half_server) = world.connect();
        world.sites[FAR].host_finish(half_server);
        world.run_ms(1_000);
        let pending = world.ask(Server::Waits);
        world.run_ms(400);
        world.pair.lose(Loss::Silence);
        world.settle();
        for (end, socket) in [(NEAR, client), (FAR, server), (NEAR, half_client), (FAR, half_server)] {
            assert!(world.sites[end].host_sees_reset(socket));
        }
        assert_eq!(world.sites[NEAR].fates[&pending], Fate::Refused(refusal));
        let reported = world.gateways[NEAR].take_log();
        assert!(reported.contains(&LogEvent::Lost { why: Loss::Silence, connections: 2 }), "{reported:?}");
        assert!(reported.contains(&LogEvent::Failing { bypass: fail == Fail::Open }), "{reported:?}");
        let later = world.ask(Server::Accepts);
        world.settle();
        assert_eq!(world.sites[NEAR].fates[&later], Fate::Refused(refusal));
        world.pair.connect();
        world.settle();
        let again = world.ask(Server::Accepts);
        world.run_ms(700);
        assert!(world.sites[NEAR].answered(again).is_some());
        assert!(world.gateways[NEAR].take_log().contains(&LogEvent::Relaying));
    }
}

/// The other gateway was restarted: requests wait for the pair's next connection, and are made again.
#[test]
fn a_pair_that_connects_again_soon_keeps_its_requests() {
    for (fail, refusal) in POLICIES {
        let mut world = World::new(|config| config.settings.fail = fail);
        let requested = world.ask(Server::Waits);
        world.run_ms(400);
        assert_eq!(world.sites[FAR].made.len(), 1);
        world.sites[FAR].servers.insert(SERVER.parse().unwrap(), Server::Accepts);
        world.pair.lose(Loss::Restarted);
        let later = world.ask(Server::Accepts);
        // In one poll, as it happens when the next connection is there already; and in the last moment of the grace.
        if fail == Fail::Closed {
            world.run_ms(2_990);
            assert_eq!([&world.sites[NEAR].fates[&requested], &world.sites[NEAR].fates[&later]], [&Fate::Pending; 2]);
        }
        world.pair.connect();
        world.run_ms(700);
        for request in [requested, later] {
            assert!(world.sites[NEAR].answered(request).is_some());
        }
        let reported = world.gateways[NEAR].take_log();
        assert!(
            !reported.iter().any(|log_event| matches!(log_event, LogEvent::Failing { .. } | LogEvent::Relaying)),
            "{reported:?}"
        );
        // The grace ends though nothing else happens.
        let requested = world.ask(Server::Waits);
        world.run_ms(400);
        world.pair.lose(Loss::Restarted);
        world.run_ms(2_990);
        assert_eq!(world.sites[NEAR].fates[&requested], Fate::Pending);
        world.run_ms(20);
        assert_eq!(world.sites[NEAR].fates[&requested], Fate::Refused(refusal));
        let late = world.ask(Server::Accepts);
        world.settle();
        assert_eq!(world.sites[NEAR].fates[&late], Fate::Refused(refusal));
    }
}

#[test]
fn silence_is_waited_out_by_connections_and_for_a_grace_by_requests() {
    for (fail, refusal) in POLICIES {
        let mut world = World::new(|config| config.settings.fail = fail);
        let (client, server) = world.connect();
        world.pair.silence(true);
        let request = world.ask(Server::Accepts);
        world.sites[FAR].host_send(server, b"held");
        world.run_ms(2_990);
        assert_eq!(world.sites[NEAR].fates[&request], Fate::Pending);
        world.run_ms(20);
        assert_eq!(world.sites[NEAR].fates[&request], Fate::Refused(refusal));
        let late = world.ask(Server::Accepts);
        world.settle();
        assert_eq!(world.sites[NEAR].fates[&late], Fate::Refused(refusal));
        world.run_ms(200_000);
        world.pair.silence(false);
        world.run_ms(700);
        assert_eq!(world.sites[NEAR].host_receive(client, 10), b"held");
        let request = world.ask(Server::Accepts);
        world.run_ms(700);
        assert!(world.sites[NEAR].answered(request).is_some());
    }
}

#[test]
fn before_the_pair_is_connected_requests_wait_for_the_grace_alone() {
    let mut world = World::unconnected(|_| {});
    let early = world.ask(Server::Accepts);
    world.run_ms(1_000);
    world.pair.connect();
    world.run_ms(700);
    assert!(world.sites[NEAR].answered(early).is_some());

    let mut world = World::unconnected(|_| {});
    let early = world.ask(Server::Accepts);
    world.run_ms(3_001);
    assert_eq!(world.sites[NEAR].fates[&early], Fate::Refused(Refusal::Bypassed));
}

#[test]
fn a_circuit_that_is_set_up_for_50_s_is_no_failure() {
    let mut world = World::unconnected(|config| config.satellite.dial_up = true);
    let request = world.ask(Server::Accepts);
    world.run_ms(50_000);
    assert_eq!(world.sites[NEAR].fates[&request], Fate::Pending);
    world.pair.connect();
    world.run_ms(700);
    assert!(world.sites[NEAR].answered(request).is_some());
    world.run_ms(10_000);
    assert_eq!(world.gateways.each_ref().map(|gateway| gateway.next_wake()), [None, None]);
}

#[test]
fn a_request_outlives_the_loss_of_a_circuit() {
    let mut world = World::new(|config| config.satellite.dial_up = true);
    let request = world.ask(Server::Waits);
    world.run_ms(400);
    assert_eq!(world.sites[FAR].made.len(), 1);
    world.pair.lose(Loss::Silence);
    world.run_ms(50_000);
    assert_eq!(world.sites[NEAR].fates[&request], Fate::Pending);
    assert!(world.sites[FAR].host_sees_reset(world.sites[FAR].made[0]));
    world.sites[FAR].servers.insert(SERVER.parse().unwrap(), Server::Accepts);
    world.pair.connect();
    world.run_ms(700);
    let (client, server) = (world.sites[NEAR].answered(request).unwrap(), world.sites[FAR].made[1]);
    let page = noise(4, 50_000);
    assert!(world.transfer((FAR, server), (NEAR, client), &page) == page);
}

#[test]
fn requests_and_connections_are_limited() {
    let mut world = World::new(|config| {
        config.settings.pending = 3;
        config.settings.connections = 5;
    });
    let waiting: Vec<_> = (0..4).map(|_| world.ask(Server::Waits)).collect();
    world.run_ms(1_000);
    assert_eq!(world.sites[NEAR].fates[&waiting[3]], Fate::Refused(Refusal::Ignored));
    assert!(world.gateways[NEAR].take_log().contains(&LogEvent::LimitReached("waiting requests")));
    let servers = world.sites[FAR].made.clone();
    assert_eq!(servers.len(), 3);
    for server in servers {
        world.sites[FAR].sockets.get_mut(&server).unwrap().opening = false;
        world.sites[FAR].changed.insert(server);
    }
    world.run_ms(1_000);
    let more: Vec<_> = (0..3).map(|_| world.ask(Server::Accepts)).collect();
    world.run_ms(1_000);
    let fates = more.iter().filter(|request| world.sites[NEAR].answered(**request).is_some()).count();
    assert_eq!(fates, 2);
    assert_eq!(world.gateways[NEAR].metrics().over_limit, 2);
}

#[test]
fn draining_lets_connections_end_and_then_is_done() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    world.gateways[NEAR].drain();
    world.settle();
    let late = world.sites[NEAR].request(CLIENT, SERVER, 0);
    world.settle();
    assert_eq!(world.sites[NEAR].fates[&late], Fate::Refused(Refusal::Bypassed));
    let data = noise(2, 100_000);
    assert!(world.transfer((FAR, server), (NEAR, client), &data) == data);
    assert!(!world.gateways[NEAR].is_done());
    world.sites[NEAR].host_finish(client);
    world.sites[FAR].host_finish(server);
    world.run_ms(1_000);
    assert!(world.gateways[NEAR].is_done() && world.pair.channel().closed);
    assert!(world.sites[NEAR].host_sees_end(client));
}

#[test]
fn ending_resets_what_is_open() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    let pending = world.ask(Server::Waits);
    world.run_ms(700);
    world.gateways[NEAR].end();
    world.run_ms(1_000);
    assert!(world.gateways[NEAR].is_done());
    assert!(world.sites[NEAR].host_sees_reset(client) && world.sites[FAR].host_sees_reset(server));
    assert_eq!(world.sites[NEAR].fates[&pending], Fate::Refused(Refusal::Bypassed));
}

/// What the near gateway says once its satellite side has seen this.
fn emitted(world: &mut World, change: impl FnOnce(&mut Statistics)) -> Vec<LogEvent> {
    change(&mut world.pair.channel().statistics);
    // Something for the gateway to wake up for, which is said too.
    world.pair.silence(false);
    world.run_ms(10);
    let mut log = world.gateways[NEAR].take_log();
    log.retain(|log_event| *log_event != LogEvent::Heard);
    log
}

#[test]
fn what_the_satellite_side_sees_is_logged_once() {
    let mut world = World::new(|_| {});
    world.run_ms(10);
    world.gateways[NEAR].take_log();
    assert_eq!(emitted(&mut world, |_| {}), []);
    let bps = BitRate::from_bps;
    let throttled = |seen: &mut Statistics| {
        (seen.throttled, seen.declared_bps, seen.rate_bps) = (true, 30_000_000, 9_500_000);
    };
    let expected = LogEvent::Throttled { declared: bps(30_000_000), now: bps(9_500_000) };
    assert_eq!(emitted(&mut world, throttled), [expected]);
    assert_eq!(emitted(&mut world, |seen| seen.rate_bps = 9_600_000), []);
    assert_eq!(emitted(&mut world, |seen| seen.throttled = false), [LogEvent::Released]);
    assert_eq!(
        emitted(&mut world, |seen| seen.unauthenticated_peers = 2),
        [LogEvent::Unauthenticated { count: 2, peer: None }]
    );
    assert_eq!(emitted(&mut world, |_| {}), []);
    assert_eq!(
        emitted(&mut world, |seen| seen.unauthenticated_peers = 3),
        [LogEvent::Unauthenticated { count: 3, peer: None }]
    );
}

#[test]
fn unauthenticated_packets_are_logged_rarely() {
    let mut world = World::new(|_| {});
    world.run_ms(10);
    world.gateways[NEAR].take_log();
    assert_eq!(emitted(&mut world, |seen| seen.unauthenticated_packets = 99), [], "a few are nothing");
    assert_eq!(emitted(&mut world, |seen| seen.unauthenticated_packets = 150), [LogEvent::UnauthenticatedPackets(150)]);
    assert_eq!(emitted(&mut world, |seen| seen.unauthenticated_packets = 100_000), [], "within a minute");
    world.run_ms(60_000);
    assert_eq!(emitted(&mut world, |_| {}), [LogEvent::UnauthenticatedPackets(100_000)]);
    world.run_ms(60_000);
    assert_eq!(emitted(&mut world, |_| {}), []);
}

/// A peer that opens a stream at the far gateway and says this on it.
fn intrude(world: &mut World, bytes: &[u8], finish: bool) {
    let [mut peer, _] = world.pair.ends();
    let stream = peer.open(Class::Interactive).unwrap();
    let now: Instant = world.now;
    peer.write(now, stream, bytes).unwrap();
    if finish {
        peer.finish(now, stream);
    }
    world.run_ms(700);
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_that_stream_alone() {
    let opening = |rest: &[u8]| [&[0x54_u8, 2, 0, 0, 0, 10, 1, 0, 2, 0, 80][..], rest].concat();
    for (bytes, malformed) in [
        (vec![7], 1),
        (vec![0x54, 9, 0, 0, 0, 10, 1, 0, 2, 0, 80], 1),
        (opening(&[0x0d, 0x80]), 1),
        (opening(&[0x03, 0x08, b'x']), 1),
        (opening(&[0x19, 0x08, 0, 0]), 1),
        (opening(&[0x54, 2, 0, 0, 0, 10, 1, 0, 2, 0, 80]), 1),
        (opening(&[0x0f, 0x00]), 1),
        // Not wrong, but never ended: a reset, and no end of file at the server.
        (opening(b"\x10ab"), 0),
    ] {
        let mut world = World::new(|_| {});
        let (client, server) = world.connect();
        let made = world.sites[FAR].made.len();
        intrude(&mut world, &bytes, true);
        assert_eq!(world.gateways[FAR].metrics().malformed, malformed, "{bytes:?}");
        for socket in world.sites[FAR].made[made..].iter().copied() {
            assert!(world.sites[FAR].host_sees_reset(socket) && !world.sites[FAR].host_sees_end(socket), "{bytes:?}");
        }
        let data = noise(3, 50_000);
        assert!(world.transfer((FAR, server), (NEAR, client), &data) == data);
        assert_eq!(world.gateways[FAR].metrics().connections_open, 1);
    }
}

#[test]
fn words_about_credit_that_make_no_sense_cost_that_stream_alone() {
    // Nothing granted, an unknown kind, a question with an amount; more than there can be, or was, given back.
    for word in [0, 3, 6, u32::MAX, (1 << 21) - 3] {
        let mut world = World::new(|_| {});
        let (client, server) = world.connect();
        let [mut peer, _] = world.pair.ends();
        let stream = peer.open(Class::Interactive).unwrap();
        peer.write(world.now, stream, &[0x54, 2, 0, 0, 0, 10, 1, 0, 2, 0, 80]).unwrap();
        // One that is in order, before.
        peer.signal(world.now, stream, 2);
        world.run_ms(700);
        assert_eq!(world.gateways[FAR].metrics().malformed, 0);
        peer.signal(world.now, stream, word);
        world.run_ms(700);
        assert_eq!(world.gateways[FAR].metrics().malformed, 1, "{word}");
        assert!(world.sites[FAR].host_sees_reset(*world.sites[FAR].made.last().unwrap()));
        let data = noise(3, 50_000);
        assert!(world.transfer((FAR, server), (NEAR, client), &data) == data);
    }
}

#[test]
fn a_peer_that_oversteps_its_credit_loses_that_stream_alone() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    let [mut peer, _] = world.pair.ends();
    let stream = peer.open(Class::Interactive).unwrap();
    peer.write(world.now, stream, &[0x54, 2, 0, 0, 0, 10, 1, 0, 2, 0, 80]).unwrap();
    world.run_ms(700);
    // Data frames of 2000 bytes, to a server that reads none of them: credit for four windows of 100 kB.
    let frame = [&[0x80, 0x7d][..], &[7; 2000]].concat();
    let mut most = 0;
    for _ in 0..500 {
        let _ = peer.write(world.now, stream, &frame);
        world.run_ms(30);
        most = most.max(world.gateways[FAR].metrics().memory_buffered);
    }
    assert_eq!(world.gateways[FAR].metrics().malformed, 1);
    assert!((380_000..420_000).contains(&most), "{most}");
    assert!(world.sites[FAR].host_sees_reset(*world.sites[FAR].made.last().unwrap()));
    let data = noise(3, 50_000);
    assert!(world.transfer((FAR, server), (NEAR, client), &data) == data);
}

/// A far gateway that says this on the stream that the near one has opened last.
fn answer(world: &mut World, bytes: &[u8]) {
    let stream = world.pair.channel().classes.last().unwrap().0;
    let [_, mut peer] = world.pair.ends();
    // The gateway may have refused the stream already.
    let _ = peer.write(world.now, stream, bytes);
    world.run_ms(700);
}

/// A whole frame, as a relay writes it, whatever may come before it.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let whole = |kind: u32, payload: Vec<u8>| {
        let mut bytes = Vec::new();
        let mut header = (payload.len() as u32) << 3 | kind;
        while header >= 0x80 {
            bytes.push(header as u8 | 0x80);
            header >>= 7;
        }
        bytes.push(header as u8);
        bytes.extend(payload);
        bytes
    };
    let noise = |most| proptest::collection::vec(any::<u8>(), 1..most);
    prop_oneof![
        noise(300).prop_map(move |payload| whole(0, payload)),
        (noise(300), 0_u8..64).prop_map(move |(payload, length)| whole(1, [vec![length], payload].concat())),
        any::<u8>().prop_map(move |byte| whole(2, vec![byte])),
        Just(whole(3, vec![])),
        Just(whole(4, vec![2, 0, 0, 0, 10, 1, 0, 2, 0, 80])),
        (0_u8..8).prop_map(move |outcome| whole(5, vec![outcome, 1])),
        Just(whole(6, vec![])),
    ]
}

/// Frames in any order, one of them cut short.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    (proptest::collection::vec(frame(), 1..12), any::<proptest::sample::Index>(), 0_usize..400).prop_map(
        |(mut frames, which, cut)| {
            let which = which.index(frames.len());
            let length = frames[which].len();
            frames[which].truncate(if cut == 0 { length } else { cut.min(length) });
            frames.concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_frames_of_a_peer_make_a_far_gateway_panic(bytes in frames(), finish: bool) {
        let mut world = World::new(|_| {});
        let (client, server) = world.connect();
        intrude(&mut world, &[&[0x54, 2, 0, 0, 0, 10, 1, 0, 2, 0, 80][..], &bytes].concat(), finish);
        let data = noise(3, 5_000);
        prop_assert!(world.transfer((FAR, server), (NEAR, client), &data) == data);
        world.run_ms(200_000);
    }

    #[test]
    fn nothing_that_a_peer_answers_makes_a_near_gateway_panic(
        answered: bool, bytes in prop_oneof![frames(), proptest::collection::vec(any::<u8>(), 0..200)],
    ) {
        let mut world = World::new(|_| {});
        let (client, server) = world.connect();
        // The true server waits, or has answered: what comes stands for a reply, or follows it.
        world.ask(if answered { Server::Accepts } else { Server::Waits });
        world.run_ms(700);
        answer(&mut world, &bytes);
        let data = noise(3, 5_000);
        prop_assert!(world.transfer((FAR, server), (NEAR, client), &data) == data);
        world.run_ms(200_000);
        prop_assert!(world.gateways[NEAR].metrics().requests_pending == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_bytes_of_a_peer_make_a_gateway_panic(
        opened: bool, bytes in proptest::collection::vec(any::<u8>(), 0..200), finish: bool,
    ) {
        let mut world = World::new(|_| {});
        let (client, server) = world.connect();
        let start: &[u8] = if opened { &[0x54, 2, 0, 0, 0, 10, 1, 0, 2, 0, 80] } else { &[] };
        intrude(&mut world, &[start, &bytes].concat(), finish);
        let data = noise(3, 5_000);
        prop_assert!(world.transfer((FAR, server), (NEAR, client), &data) == data);
        world.run_ms(200_000);
    }
}
