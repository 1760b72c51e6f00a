//! Clients that ask: SOCKS5 and HTTP CONNECT.

use crate::site::Server;
use crate::world::{FAR, NEAR, World, noise};
use bentpipe_gateway::Fail;
use bentpipe_gateway::front_end::{connect, socks};
use bentpipe_gateway::satellite::Loss;
use bentpipe_net::socket::{SocketError, SocketId};

fn world() -> World {
    failing(Fail::Open)
}

fn failing(fail: Fail) -> World {
    let mut world = World::new(|config| {
        config.front_ends.push(socks::at("0.0.0.0:1080".parse().unwrap()));
        config.front_ends.push(connect::at("0.0.0.0:8080".parse().unwrap()));
        config.settings.fail = fail;
    });
    world.settle();
    world.sites[FAR].names.insert("example.com".to_owned(), Server::Accepts);
    world
}

fn exchange(world: &mut World, client: SocketId, bytes: &[u8], ms: u64) -> Vec<u8> {
    assert_eq!(world.sites[NEAR].host_send(client, bytes), bytes.len());
    world.run_ms(ms);
    world.sites[NEAR].host_receive(client, usize::MAX)
}

#[test]
fn a_socks_client_is_connected_by_name() {
    let mut world = world();
    let client = world.sites[NEAR].dial(1080);
    assert_eq!(exchange(&mut world, client, b"\x05\x01\x00", 1), [5, 0]);
    assert_eq!(exchange(&mut world, client, b"\x05\x01\x00\x03\x0bexample.com\x00\x50early", 599), [0u8; 0]);
    assert_eq!(exchange(&mut world, client, b"", 5), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let server = world.sites[FAR].made[0];
    assert_eq!(world.sites[FAR].sockets[&server].name.as_deref(), Some("example.com"));
    world.run_ms(400);
    assert_eq!(world.sites[FAR].host_receive(server, 100), b"early");
    let answer = noise(1, 100_000);
    assert!(world.transfer((FAR, server), (NEAR, client), &answer) == answer);
    world.sites[FAR].host_finish(server);
    world.sites[NEAR].host_finish(client);
    world.run_ms(1_000);
    assert!(world.sites[NEAR].sockets[&client].closed && world.sites[NEAR].host_sees_end(client));
}

#[test]
fn replies_are_what_the_outcome_demands() {
    for (error, socks, http) in
        [(SocketError::Refused, 5, "502"), (SocketError::Unreachable, 4, "502"), (SocketError::TimedOut, 6, "504")]
    {
        let mut world = world();
        world.sites[FAR].servers.insert("10.1.0.2:80".parse().unwrap(), Server::Fails(error));
        let client = world.sites[NEAR].dial(1080);
        let reply = exchange(&mut world, client, b"\x05\x01\x00\x05\x01\x00\x01\x0a\x01\x00\x02\x00\x50", 700);
        assert_eq!(reply, [5, 0, 5, socks, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert!(world.sites[NEAR].host_sees_end(client));
        let client = world.sites[NEAR].dial(8080);
        let reply = exchange(&mut world, client, b"CONNECT 10.1.0.2:80 HTTP/1.1\r\n\r\n", 700);
        assert!(reply.starts_with(format!("HTTP/1.1 {http} ").as_bytes()));
        world.run_ms(120_000);
        assert_eq!(world.gateways[NEAR].metrics().memory_buffered, 0);
        assert!(world.sites[NEAR].sockets[&client].aborted || world.sites[NEAR].sockets[&client].closed);
    }
}

#[test]
fn an_http_client_is_connected_and_sees_no_more_than_the_reply() {
    let mut world = world();
    let client = world.sites[NEAR].dial(8080);
    let reply = exchange(&mut world, client, b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", 700);
    assert_eq!(reply, b"HTTP/1.1 200 Connection established\r\n\r\n");
    let server = world.sites[FAR].made[0];
    assert_eq!(world.transfer((FAR, server), (NEAR, client), b"hello"), b"hello");
}

#[test]
fn a_client_that_says_nothing_or_nonsense_is_let_go() {
    let mut world = world();
    let silent = world.sites[NEAR].dial(1080);
    let nonsense = world.sites[NEAR].dial(1080);
    let gone = world.sites[NEAR].dial(8080);
    exchange(&mut world, nonsense, b"GET / HTTP/1.1\r\n\r\n", 10);
    assert!(world.sites[NEAR].host_sees_end(nonsense));
    world.sites[NEAR].host_finish(gone);
    world.run_ms(10);
    assert!(world.sites[NEAR].sockets[&gone].closed);
    world.run_ms(10_000);
    assert!(world.sites[NEAR].host_sees_reset(silent));
    assert_eq!(world.gateways[NEAR].metrics().bad_requests, 2);
    assert!(world.sites[FAR].made.is_empty());
}

#[test]
fn a_client_that_leaves_while_it_waits_frees_the_server() {
    let mut world = world();
    world.sites[FAR].servers.insert("10.1.0.2:80".parse().unwrap(), Server::Waits);
    let client = world.sites[NEAR].dial(1080);
    exchange(&mut world, client, b"\x05\x01\x00\x05\x01\x00\x01\x0a\x01\x00\x02\x00\x50", 700);
    world.sites[NEAR].host_reset(client);
    world.run_ms(400);
    let server = world.sites[FAR].made[0];
    assert!(world.sites[FAR].host_sees_reset(server));
    assert_eq!(world.gateways[NEAR].metrics().abandoned, 1);
}

const SOCKS: &[u8] = b"\x05\x01\x00\x05\x01\x00\x01\x0a\x01\x00\x02\x00\x50";
const CONNECT: &[u8] = b"CONNECT 10.1.0.2:80 HTTP/1.1\r\n\r\n";

#[test]
fn without_the_pair_clients_are_connected_from_this_side_or_get_the_reason() {
    let mut world = failing(Fail::Closed);
    world.pair.lose(Loss::Silence);
    let client = world.sites[NEAR].dial(1080);
    assert_eq!(exchange(&mut world, client, SOCKS, 10), [5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
    let client = world.sites[NEAR].dial(8080);
    assert!(exchange(&mut world, client, CONNECT, 10).starts_with(b"HTTP/1.1 503 "));
    assert!(world.sites[NEAR].made.is_empty());

    for (port, request, reply) in [
        (1080, SOCKS, &[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0][..]),
        (8080, CONNECT, b"HTTP/1.1 200 Connection established\r\n\r\n"),
    ] {
        let mut world = failing(Fail::Open);
        world.sites[NEAR].servers.insert("10.1.0.2:80".parse().unwrap(), Server::Accepts);
        world.pair.lose(Loss::Silence);
        let client = world.sites[NEAR].dial(port);
        let request = [request, b"early"].concat();
        assert_eq!(exchange(&mut world, client, &request, 10), reply);
        let server = world.sites[NEAR].made[0];
        assert_eq!(world.sites[NEAR].host_receive(server, 100), b"early");
        let (up, down) = (noise(1, 300_000), noise(2, 300_000));
        assert!(world.transfer((NEAR, client), (NEAR, server), &up) == up);
        world.sites[NEAR].host_finish(client);
        world.run_ms(10);
        assert!(world.sites[NEAR].host_sees_end(server) && !world.sites[NEAR].host_sees_end(client));
        assert!(world.transfer((NEAR, server), (NEAR, client), &down) == down);
        world.sites[NEAR].host_urgent(server, b'!');
        world.run_ms(10);
        assert_eq!(world.sites[NEAR].sockets[&client].urgent_bytes, b"!");
        world.sites[NEAR].host_receive(client, 1);
        // When the pair is back, it stays where it is, and new ones go over the pair.
        world.pair.connect();
        world.run_ms(100);
        world.sites[FAR].servers.insert("10.1.0.2:80".parse().unwrap(), Server::Accepts);
        let other = world.sites[NEAR].dial(port);
        exchange(&mut world, other, &request, 700);
        assert_eq!(world.sites[FAR].made.len(), 1);
        world.sites[NEAR].host_finish(server);
        world.run_ms(10);
        assert!(world.sites[NEAR].host_sees_end(client));
        let metrics = world.gateways[NEAR].metrics();
        assert_eq!((metrics.bypassed, metrics.ended, metrics.memory_buffered), (1, 1, 0));
    }
}

#[test]
fn without_the_relay_a_refusal_is_a_refusal_and_a_reset_a_reset() {
    let mut world = failing(Fail::Open);
    world.pair.lose(Loss::Silence);
    let client = world.sites[NEAR].dial(1080);
    assert_eq!(exchange(&mut world, client, SOCKS, 10), [5, 0, 5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
    // Loopback is the gateway's own, here as at the far side.
    let client = world.sites[NEAR].dial(1080);
    let own = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50";
    assert_eq!(exchange(&mut world, client, own, 10)[..4], [5, 0, 5, 2]);
    world.sites[NEAR].servers.insert("10.1.0.2:80".parse().unwrap(), Server::Waits);
    let slow = world.sites[NEAR].dial(8080);
    let gone = world.sites[NEAR].dial(8080);
    exchange(&mut world, gone, CONNECT, 10);
    assert_eq!(exchange(&mut world, slow, CONNECT, 10), b"");
    world.sites[NEAR].host_reset(gone);
    world.run_ms(10);
    let made = world.sites[NEAR].made.clone();
    assert!(made.iter().any(|server| world.sites[NEAR].host_sees_reset(*server)));
    world.run_ms(127_000);
    assert!(world.sites[NEAR].host_receive(slow, 100).starts_with(b"HTTP/1.1 504 "));

    world.sites[NEAR].servers.insert("10.1.0.2:80".parse().unwrap(), Server::Accepts);
    for side in 0..2 {
        let client = world.sites[NEAR].dial(1080);
        exchange(&mut world, client, SOCKS, 10);
        let ends = [client, *world.sites[NEAR].made.last().unwrap()];
        world.sites[NEAR].host_reset(ends[side]);
        world.run_ms(10);
        assert!(world.sites[NEAR].host_sees_reset(ends[1 - side]));
    }
    assert_eq!((world.gateways[NEAR].metrics().reset, world.gateways[NEAR].metrics().memory_buffered), (2, 0));
    let client = world.sites[NEAR].dial(1080);
    exchange(&mut world, client, SOCKS, 10);
    world.gateways[NEAR].end();
    world.run_ms(10);
    assert!(world.sites[NEAR].host_sees_reset(client));
}
