//! The whole way: hosts, relay, QUIC, a link that loses packets.

use crate::site::Server;
use crate::world::{FAR, NEAR, World, noise, text};
use bentpipe_gateway::{Fail, LinkDirection, LogEvent, Unanswered};
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::socket::SocketError;
use bentpipe_net::time::Duration;
use bentpipe_net::units::BitRate;

#[test]
fn a_pair_connects_relays_and_ends() {
    let mut world = World::quic(1, 0.01, |_| {});
    world.run_ms(3_000);
    assert!(world.gateways.iter().all(|gateway| gateway.metrics().connected));
    assert!(world.gateways[NEAR].take_log().contains(&LogEvent::Connected));
    let (client, server) = world.connect();
    let (up, down) = (noise(1, 1_000_000), text(2_000_000));
    assert!(world.transfer((NEAR, client), (FAR, server), &up) == up);
    assert!(world.transfer((FAR, server), (NEAR, client), &down) == down);
    world.sites[NEAR].host_finish(client);
    world.run_ms(2_000);
    assert!(world.sites[FAR].host_sees_end(server) && !world.sites[NEAR].host_sees_end(client));
    world.sites[FAR].host_finish(server);
    world.run_ms(2_000);
    assert!(world.sites[NEAR].host_sees_end(client));
    world.gateways[NEAR].drain();
    world.run_ms(3_000);
    assert!(world.gateways[NEAR].is_done() && !world.gateways[FAR].metrics().connected);
}

#[test]
fn a_pair_that_was_idle_from_the_start_relays_and_bypasses_nothing() {
    for (round_trip, rate) in [(600, 10_000_000), (600, 50_000_000), (300, 10_000_000), (300, 50_000_000)] {
        for idle_s in [5, 60, 3600] {
            let mut world = World::quic(1, 0.0, |config| {
                config.satellite.round_trip = Duration::from_millis(round_trip);
                config.satellite.rate = Some(BitRate::from_bps(rate));
                config.settings.fail = Fail::Closed;
            });
            world.set_round_trip(Duration::from_millis(round_trip));
            world.run_ms(2_000 + 1_000 * idle_s);
            let request = world.ask(Server::Accepts);
            world.run_ms(round_trip + 100);
            assert!(world.sites[NEAR].answered(request).is_some(), "{round_trip} ms, {rate} bit/s, {idle_s} s");
            for gateway in &mut world.gateways {
                let (log, metrics) = (gateway.take_log(), gateway.metrics());
                let bad = |event: &&LogEvent| matches!(event, LogEvent::Silent | LogEvent::Failing { .. });
                assert_eq!(log.iter().find(bad), None, "{round_trip} ms, {rate} bit/s, {idle_s} s");
                assert_eq!((metrics.bypassed, metrics.turned_away), (0, 0));
            }
        }
    }
}

#[test]
fn declared_rates_that_differ_are_logged_by_both_gateways() {
    let bps = |mbps: u64| BitRate::from_bps(1_000_000 * mbps);
    let mut world = World::quic(1, 0.0, |_| {});
    world.gateways[NEAR].set_incoming(Some(bps(1)));
    world.run_ms(3_000);
    let differ = |world: &mut World, end: usize| -> Vec<LogEvent> {
        let log = world.gateways[end].take_log();
        log.into_iter().filter(|event| matches!(event, LogEvent::RatesDiffer { .. })).collect()
    };
    let direction = LinkDirection::Forward;
    let expected = LogEvent::RatesDiffer { direction, here: bps(1), there: bps(10) };
    assert_eq!(
        expected.to_string(),
        "the two gateways' files differ: the forward link has 1 Mbit/s here and 10 Mbit/s at the other gateway; transfers \
         are slow until both state the link's rate"
    );
    assert_eq!(differ(&mut world, NEAR), [expected]);
    assert_eq!(differ(&mut world, FAR), [LogEvent::RatesDiffer { direction, here: bps(10), there: bps(1) }]);
    // A reload with a mistake in the other direction, and one that mends both.
    for (rates, expected) in [([10, 3], 1), ([10, 10], 0)] {
        world.gateways[NEAR].set_incoming(Some(bps(rates[0])));
        world.gateways[NEAR].set_rate(Some(bps(rates[1])));
        world.gateways[NEAR].declare_rates();
        world.run_ms(1_000);
        assert_eq!(differ(&mut world, FAR).len(), expected);
    }
}

#[test]
fn a_hub_that_does_not_answer_is_logged_at_intervals() {
    let mut world = World::quic(1, 1.0, |_| {});
    let unanswered = |world: &mut World| {
        let log = world.gateways[NEAR].take_log();
        log.into_iter().filter(|event| matches!(event, LogEvent::Unanswered { .. })).collect::<Vec<_>>()
    };
    world.run_ms(10_000);
    let hub = "198.51.100.1:4433".parse().unwrap();
    assert_eq!(unanswered(&mut world), [LogEvent::Unanswered { hub, why: Unanswered::Silent }]);
    world.run_ms(600_000);
    let again = unanswered(&mut world).len();
    assert!((8..=10).contains(&again), "{again} in ten minutes");
}

/// An error while the pair was connected, or before an earlier attempt, explains no later one.
#[test]
fn an_error_explains_only_the_attempt_that_it_came_in() {
    let mut world = World::quic(1, 0.0, |config| config.satellite.hold = Duration::from_secs(5));
    world.run_ms(3_000);
    assert!(world.gateways[NEAR].metrics().connected);
    world.sites[NEAR].receive_errors.push_back(SocketError::Unreachable);
    world.run_ms(1_000);
    world.set_loss(1.0);
    let reasons = |world: &mut World, ms: u64| -> Vec<Unanswered> {
        world.run_ms(ms);
        let log = world.gateways[NEAR].take_log().into_iter();
        log.filter_map(|event| if let LogEvent::Unanswered { why, .. } = event { Some(why) } else { None }).collect()
    };
    let silent = reasons(&mut world, 120_000);
    assert!(!silent.is_empty() && silent.iter().all(|why| *why == Unanswered::Silent), "{silent:?}");
    world.sites[NEAR].receive_errors.push_back(SocketError::Refused);
    let (first, later) = (Unanswered::Icmp(SocketError::Refused), reasons(&mut world, 60_000));
    assert_eq!(later[..2], [first, Unanswered::Silent]);
}

#[test]
fn many_connections_at_once_are_not_mixed_up() {
    let mut world = World::quic(2, 0.01, |_| {});
    world.run_ms(3_000);
    let ends: Vec<_> = (0..50).map(|_| world.connect()).collect();
    for (index, (client, server)) in ends.iter().enumerate() {
        world.sites[FAR].host_send(*server, &noise(index as u64, 20_000));
        world.sites[FAR].host_finish(*server);
        world.sites[NEAR].host_finish(*client);
    }
    world.run_ms(20_000);
    for (index, (client, _)) in ends.iter().enumerate() {
        assert!(world.sites[NEAR].host_receive(*client, usize::MAX) == noise(index as u64, 20_000));
        assert!(world.sites[NEAR].host_sees_end(*client));
    }
    for gateway in &world.gateways {
        assert_eq!((gateway.metrics().ended, gateway.metrics().memory_buffered), (50, 0));
    }
}
