//! How connections begin and end.

use crate::site::{Fate, Server};
use crate::world::{CLIENT, FAR, NEAR, TRAFFIC_CLASS, World, noise};
use bentpipe_gateway::satellite::Loss;
use bentpipe_gateway::{LogEvent, Open, Outcome};
use bentpipe_net::interception::Refusal;
use bentpipe_net::socket::SocketError;

#[test]
fn a_client_is_answered_only_when_the_server_has_answered() {
    let mut world = World::new(|_| {});
    let request = world.ask(Server::Waits);
    world.run_ms(5_000);
    assert_eq!(world.sites[NEAR].fates[&request], Fate::Pending);
    let server = world.sites[FAR].made[0];
    let tcp = world.sites[FAR].sockets.get_mut(&server).unwrap();
    assert_eq!((tcp.local.to_string().as_str(), tcp.traffic_class), (CLIENT, TRAFFIC_CLASS));
    tcp.opening = false;
    world.sites[FAR].changed.insert(server);
    world.run_ms(299);
    assert_eq!(world.sites[NEAR].fates[&request], Fate::Pending);
    world.run_ms(2);
    assert!(matches!(world.sites[NEAR].fates[&request], Fate::Answered(_)));
}

#[test]
fn failures_are_shown_as_what_they_are() {
    for (error, refusal, outcome) in [
        (SocketError::Refused, Refusal::Refused, Outcome::Refused),
        (SocketError::Unreachable, Refusal::Unreachable, Outcome::Unreachable),
        (SocketError::TimedOut, Refusal::Ignored, Outcome::TimedOut),
        (SocketError::Other(5), Refusal::Unreachable, Outcome::Unreachable),
    ] {
        let mut world = World::new(|_| {});
        let request = world.ask(Server::Fails(error));
        world.run_ms(599);
        assert_eq!(world.sites[NEAR].fates[&request], Fate::Pending);
        world.run_ms(10);
        assert_eq!(world.sites[NEAR].fates[&request], Fate::Refused(refusal));
        let reported = world.gateways[NEAR].take_log();
        assert!(
            reported.iter().any(|n| matches!(n, LogEvent::NotOpened { outcome: reported, .. } if *reported == outcome)),
            "{reported:?}"
        );
        world.run_ms(1_000);
        for gateway in &world.gateways {
            let metrics = gateway.metrics();
            assert_eq!((metrics.requests_pending, metrics.connections_open, metrics.memory_buffered), (0, 0, 0));
        }
    }
}

#[test]
fn nobody_waits_for_ever() {
    let mut world = World::new(|_| {});
    let request = world.ask(Server::Waits);
    world.run_ms(128_000);
    assert_eq!(world.sites[NEAR].fates[&request], Fate::Refused(Refusal::Ignored));
    let server = world.sites[FAR].made[0];
    assert!(world.sites[FAR].host_sees_reset(server));
    assert_eq!(world.gateways[NEAR].metrics().timed_out, 1);
}

#[test]
fn forbidden_servers_are_refused_by_the_far_side() {
    for (server, loopback, refused) in [
        ("127.0.0.1:80", false, true),
        ("[::1]:80", false, true),
        ("[::ffff:127.0.0.1]:80", false, true),
        ("127.0.0.1:80", true, false),
        ("[::1]:80", true, false),
        ("0.0.0.0:80", true, true),
        ("224.0.0.1:80", true, true),
    ] {
        let mut world = World::new(|config| config.settings.loopback = loopback);
        world.sites[FAR].servers.insert(server.parse().unwrap(), Server::Accepts);
        let request = world.sites[NEAR].request(CLIENT, server, 0);
        world.run_ms(1_000);
        let expected = world.sites[NEAR].fates[&request] == Fate::Refused(Refusal::Unreachable);
        assert_eq!(expected, refused, "{server}");
        assert_eq!(world.sites[FAR].made.is_empty(), refused, "{server}");
    }
}

/// A service may trust its own machine: no terminal speaks in that name.
#[test]
fn forbidden_clients_are_refused_by_the_far_side() {
    for (client, refused) in [
        ("127.0.0.1:4000", true),
        ("127.9.9.9:4000", true),
        ("0.0.0.0:4000", true),
        ("224.0.0.1:4000", true),
        (CLIENT, false),
    ] {
        let mut world = World::new(|config| config.settings.loopback = true);
        let server = "192.0.2.80:80";
        world.sites[FAR].servers.insert(server.parse().unwrap(), Server::Accepts);
        let request = world.sites[NEAR].request(client, server, 0);
        world.run_ms(1_000);
        assert_eq!(world.sites[NEAR].fates[&request] == Fate::Refused(Refusal::Unreachable), refused, "{client}");
        assert_eq!(world.sites[FAR].made.is_empty(), refused, "{client}");
        assert_eq!(world.gateways[NEAR].metrics().denied, u64::from(refused), "{client}");
    }
}

#[test]
fn each_direction_ends_for_itself() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    world.sites[NEAR].host_send(client, b"question");
    world.sites[NEAR].host_finish(client);
    world.run_ms(400);
    assert_eq!(world.sites[FAR].host_receive(server, 100), b"question");
    assert!(world.sites[FAR].host_sees_end(server));
    assert!(!world.sites[NEAR].host_sees_end(client));
    // The other way still works, for as long as it likes.
    world.run_ms(1_000_000);
    let answer = noise(1, 300_000);
    assert_eq!(world.transfer((FAR, server), (NEAR, client), &answer), answer);
    world.sites[FAR].host_finish(server);
    world.run_ms(400);
    assert!(world.sites[NEAR].host_sees_end(client));
    world.run_ms(1_000);
    for (end, socket) in [(NEAR, client), (FAR, server)] {
        assert!(world.sites[end].sockets[&socket].closed);
        let metrics = world.gateways[end].metrics();
        assert_eq!((metrics.ended, metrics.reset, metrics.connections_open, metrics.memory_buffered), (1, 0, 0, 0));
    }
}

/// An orderly end is no reason to leave a reader alone with the kernel: it gets a reset if the gateway ends before it
/// has all.
#[test]
fn what_has_ended_stays_until_its_reader_has_everything() {
    for dies in [false, true] {
        let mut world = World::new(|_| {});
        let (client, server) = world.connect();
        let page = noise(5, 20_000);
        world.sites[FAR].host_send(server, &page);
        world.sites[FAR].host_finish(server);
        world.run_ms(1_000);
        world.sites[NEAR].host_finish(client);
        world.run_ms(1_000);
        let metrics = world.gateways[NEAR].metrics();
        assert_eq!((metrics.ended, metrics.connections_open, metrics.memory_buffered), (1, 0, 0));
        assert!(world.sites[FAR].sockets[&server].closed && !world.sites[NEAR].sockets[&client].closed);
        // It needs the pair no more.
        world.pair.lose(Loss::Restarted);
        world.run_ms(500_000);
        assert!(!world.sites[NEAR].host_sees_reset(client));
        if dies {
            world.gateways[NEAR].end();
            world.run_ms(1);
            assert!(world.sites[NEAR].host_sees_reset(client));
            continue;
        }
        assert_eq!(world.sites[NEAR].host_receive(client, page.len()), page);
        assert!(world.sites[NEAR].host_sees_end(client));
        world.run_ms(10_000);
        assert!(world.sites[NEAR].sockets[&client].closed);
        assert_eq!(world.gateways[NEAR].metrics().reset, 0);
    }
}

#[test]
fn the_server_may_end_first() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    world.sites[FAR].host_send(server, b"banner");
    world.sites[FAR].host_finish(server);
    world.run_ms(400);
    assert_eq!(world.sites[NEAR].host_receive(client, 100), b"banner");
    assert!(world.sites[NEAR].host_sees_end(client));
    let upload = noise(2, 200_000);
    assert_eq!(world.transfer((NEAR, client), (FAR, server), &upload), upload);
    world.sites[NEAR].host_finish(client);
    world.run_ms(1_000);
    assert!(world.sites[FAR].host_sees_end(server));
}

#[test]
fn a_reset_is_a_reset_on_the_other_side() {
    for (from, to) in [(NEAR, FAR), (FAR, NEAR)] {
        let mut world = World::new(|_| {});
        let (client, server) = world.connect();
        let sockets = [client, server];
        world.sites[from].host_send(sockets[from], &noise(3, 50_000));
        world.run_ms(100);
        world.sites[from].host_reset(sockets[from]);
        world.run_ms(1_000);
        assert!(world.sites[to].host_sees_reset(sockets[to]));
        assert!(!world.sites[to].host_sees_end(sockets[to]));
        for gateway in &world.gateways {
            let metrics = gateway.metrics();
            assert_eq!((metrics.reset, metrics.connections_open, metrics.memory_buffered), (1, 0, 0));
        }
    }
}

/// A server that answers, closes, and resets what still comes in: as one that refuses an upload half way.
#[test]
fn an_answer_that_is_complete_arrives_before_the_reset() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    let answer = noise(4, 20_000);
    world.sites[FAR].host_send(server, &answer);
    world.sites[FAR].host_finish(server);
    world.settle();
    world.sites[FAR].host_reset(server);
    world.sites[NEAR].host_send(client, &noise(5, 60_000));
    world.run_ms(1_000);
    assert_eq!(world.sites[NEAR].host_receive(client, usize::MAX), answer);
    assert!(world.sites[NEAR].sockets[&client].to_host.fin);
    world.run_ms(1_000);
    assert!(world.sites[NEAR].host_sees_reset(client));
    assert_eq!(world.gateways[NEAR].metrics().memory_buffered, 0);
}

#[test]
fn early_opening_answers_at_once_and_sends_data_along() {
    let mut world = World::new(|config| config.settings.open = Open::Early);
    let request = world.ask(Server::Accepts);
    world.settle();
    let client = world.sites[NEAR].answered(request).unwrap();
    world.sites[NEAR].host_send(client, b"GET /");
    world.run_ms(301);
    let server = world.sites[FAR].made[0];
    assert_eq!(world.sites[FAR].host_receive(server, 100), b"GET /");
    world.sites[FAR].host_send(server, b"200");
    world.run_ms(301);
    assert_eq!(world.sites[NEAR].host_receive(client, 100), b"200");
}

#[test]
fn a_refusal_after_an_early_answer_is_a_reset() {
    let mut world = World::new(|config| config.settings.open = Open::Early);
    let request = world.ask(Server::Fails(SocketError::Refused));
    world.settle();
    let client = world.sites[NEAR].answered(request).unwrap();
    world.sites[NEAR].host_send(client, b"GET /");
    world.run_ms(700);
    assert!(world.sites[NEAR].host_sees_reset(client));
    assert_eq!(world.gateways[NEAR].metrics().refused, 1);
}

#[test]
fn a_client_that_gives_up_during_its_handshake_frees_the_server() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    // As a client whose SYN was answered after it had left: its kernel resets the answer.
    world.sites[NEAR].host_reset(client);
    world.run_ms(700);
    assert!(world.sites[FAR].host_sees_reset(server));
}
