//! The whole way: hosts, relay, QUIC, a link that loses packets.

use crate::world::{FAR, NEAR, World, noise, text};
use bentpipe_gateway::LogEvent;
use bentpipe_net::interception::GatewayProgram;

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
