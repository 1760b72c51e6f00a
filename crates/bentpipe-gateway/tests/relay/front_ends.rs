//! Front ends and filters in virtual time.

use crate::own_front_end;
use crate::site::Server;
use crate::world::{FAR, NEAR, World};
use bentpipe_gateway::front_end::Registry;
use bentpipe_net::socket::SocketId;

/// Both gateways have the front ends of this table.
fn world(table: &str) -> World {
    let registry = Registry::standard().with(own_front_end::KIND).with(own_front_end::SHOUT);
    let front_ends = registry.take(&mut table.parse().unwrap()).unwrap();
    let mut world = World::new(|config| config.front_ends.clone_from(&front_ends));
    world.run_ms(10);
    world.sites[FAR].servers.insert("10.1.0.2:80".parse().unwrap(), Server::Accepts);
    world
}

/// A client of the front end at `port` says this; what it hears by then, and the server's end.
fn ask(world: &mut World, port: u16, request: &[u8]) -> (SocketId, Vec<u8>) {
    let client = world.sites[NEAR].dial(port);
    world.sites[NEAR].host_send(client, request);
    world.run_ms(700);
    let heard = world.sites[NEAR].host_receive(client, 100);
    (client, heard)
}

#[test]
fn a_front_end_of_ones_own_relays_and_refuses() {
    let mut world = world("go = '0.0.0.0:7000'");
    let (client, heard) = ask(&mut world, 7000, b"GO 10.1.0.2 80\nfirst ");
    assert_eq!(heard, b"OK\n");
    let server = world.sites[FAR].made[0];
    world.run_ms(400);
    assert_eq!(world.sites[FAR].host_receive(server, 100), b"first ");
    assert_eq!(world.transfer((NEAR, client), (FAR, server), b"second"), b"second");
    assert_eq!(world.transfer((FAR, server), (NEAR, client), b"answer"), b"answer");
    assert_eq!(ask(&mut world, 7000, b"GO 10.1.0.9 80\n").1, b"NO\n");
    assert_eq!(ask(&mut world, 7000, b"STOP\n").1, b"");
    assert_eq!(world.gateways[NEAR].metrics().bad_requests, 1);
}

#[test]
fn a_filter_sees_and_changes_the_bytes_at_both_ends() {
    let mut world = world("shout = '0.0.0.0:7001'");
    let (client, heard) = ask(&mut world, 7001, b"GO 10.1.0.2 80\nfirst? ");
    // The filter answers before the far side does; the front end's own reply is not for it.
    assert_eq!(heard, b"OK\n0 s");
    let server = world.sites[FAR].made[0];
    world.run_ms(300);
    assert_eq!(world.sites[FAR].host_receive(server, 100), b"FIRST ");
    world.sites[NEAR].host_send(client, b"second?");
    world.run_ms(10);
    assert_eq!(world.sites[NEAR].host_receive(client, 100), b"1 s");
    world.run_ms(1_000);
    assert_eq!(world.sites[FAR].host_receive(server, 100), b"SECOND");
    world.sites[FAR].host_send(server, b"answer");
    world.sites[FAR].host_finish(server);
    world.run_ms(1_000);
    assert_eq!(world.sites[NEAR].host_receive(client, 100), b"ANSWER (end)");
    assert!(world.sites[NEAR].host_sees_end(client));
    world.sites[NEAR].host_finish(client);
    world.run_ms(1_000);
    assert_eq!(world.sites[FAR].host_receive(server, 100), b" (end)");
    assert!(world.sites[FAR].host_sees_end(server));
    world.run_ms(1_000);
    for gateway in &world.gateways {
        assert_eq!((gateway.metrics().ended, gateway.metrics().memory_buffered), (1, 0));
    }
}

#[test]
fn a_filter_has_timers() {
    let mut world = world("shout = '0.0.0.0:7001'");
    let (client, heard) = ask(&mut world, 7001, b"GO 10.1.0.2 80\n");
    assert_eq!(heard, b"OK\n");
    world.run_ms(6_000);
    assert_eq!(world.sites[NEAR].host_receive(client, 100), b"hello ");
}

#[test]
fn a_slow_host_holds_a_filtered_connection_back() {
    let mut world = world("shout = '0.0.0.0:7001'");
    let (client, _) = ask(&mut world, 7001, b"GO 10.1.0.2 80\n");
    let server = world.sites[FAR].made[0];
    world.sites[NEAR].buffer = 1000;
    let data = vec![b'x'; 400_000];
    assert!(world.transfer((FAR, server), (NEAR, client), &data).len() >= 400_000);
}

#[test]
fn two_front_ends_do_not_share_a_port() {
    let registry = Registry::standard().with(own_front_end::KIND);
    let take = |table: &str| registry.take(&mut table.parse().unwrap()).map_err(|problem| problem.message);
    assert!(take("socks = '0.0.0.0:7000'\ngo = '0.0.0.0:7000'").unwrap_err().contains("the port of socks"));
    assert!(take("go = 'here'").unwrap_err().contains("allowed: such as"));
}
