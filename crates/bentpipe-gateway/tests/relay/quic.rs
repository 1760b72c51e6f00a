//! The whole way: hosts, relay, QUIC, a link that loses packets.

use crate::site::Server;
use crate::world::{FAR, NEAR, World, noise, text};
use bentpipe_gateway::{Fail, LogEvent};
use bentpipe_net::interception::GatewayProgram;
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
