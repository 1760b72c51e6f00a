//! Clients that ask: SOCKS5 and HTTP CONNECT.

use crate::site::Server;
use crate::world::{FAR, NEAR, World, noise};
use bentpipe_link::socket::{SocketError, SocketId};

fn world() -> World {
    let mut world = World::new(|config| {
        config.socks_port = Some(1080);
        config.connect_port = Some(8080);
    });
    world.settle();
    world.sites[FAR].names.insert("example.com".to_owned(), Server::Accepts);
    world
}

fn say(world: &mut World, client: SocketId, bytes: &[u8], ms: u64) -> Vec<u8> {
    assert_eq!(world.sites[NEAR].host_send(client, bytes), bytes.len());
    world.run_ms(ms);
    world.sites[NEAR].host_receive(client, usize::MAX)
}

#[test]
fn a_socks_client_is_connected_by_name() {
    let mut world = world();
    let client = world.sites[NEAR].dial(1080);
    assert_eq!(say(&mut world, client, b"\x05\x01\x00", 1), [5, 0]);
    assert_eq!(say(&mut world, client, b"\x05\x01\x00\x03\x0bexample.com\x00\x50early", 599), []);
    assert_eq!(say(&mut world, client, b"", 5), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
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
        let reply = say(&mut world, client, b"\x05\x01\x00\x05\x01\x00\x01\x0a\x01\x00\x02\x00\x50", 700);
        assert_eq!(reply, [5, 0, 5, socks, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert!(world.sites[NEAR].host_sees_end(client));
        let client = world.sites[NEAR].dial(8080);
        let reply = say(&mut world, client, b"CONNECT 10.1.0.2:80 HTTP/1.1\r\n\r\n", 700);
        assert!(reply.starts_with(format!("HTTP/1.1 {http} ").as_bytes()));
        world.run_ms(120_000);
        assert_eq!(world.gateways[NEAR].figures().memory_held, 0);
        assert!(world.sites[NEAR].sockets[&client].aborted || world.sites[NEAR].sockets[&client].closed);
    }
}

#[test]
fn an_http_client_is_connected_and_sees_no_more_than_the_reply() {
    let mut world = world();
    let client = world.sites[NEAR].dial(8080);
    let reply = say(&mut world, client, b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", 700);
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
    say(&mut world, nonsense, b"GET / HTTP/1.1\r\n\r\n", 10);
    assert!(world.sites[NEAR].host_sees_end(nonsense));
    world.sites[NEAR].host_finish(gone);
    world.run_ms(10);
    assert!(world.sites[NEAR].sockets[&gone].closed);
    world.run_ms(10_000);
    assert!(world.sites[NEAR].host_sees_reset(silent));
    assert_eq!(world.gateways[NEAR].figures().bad_requests, 2);
    assert!(world.sites[FAR].made.is_empty());
}

#[test]
fn a_client_that_leaves_while_it_waits_frees_the_server() {
    let mut world = world();
    world.sites[FAR].servers.insert("10.1.0.2:80".parse().unwrap(), Server::Waits);
    let client = world.sites[NEAR].dial(1080);
    say(&mut world, client, b"\x05\x01\x00\x05\x01\x00\x01\x0a\x01\x00\x02\x00\x50", 700);
    world.sites[NEAR].host_reset(client);
    world.run_ms(400);
    let server = world.sites[FAR].made[0];
    assert!(world.sites[FAR].host_sees_reset(server));
    assert_eq!(world.gateways[NEAR].figures().abandoned, 1);
}
