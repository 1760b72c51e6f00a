//! What passes through a connection, and what it costs.

use crate::world::{FAR, NEAR, World, noise, text};
use bentpipe_gateway::Memory;
use bentpipe_gateway::satellite::Class;
use bentpipe_gateway::{Compression, Gateway};
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::units::{BitRate, DataSize};

#[test]
fn every_byte_arrives_in_both_directions_in_any_pieces() {
    for (piece, length) in [(usize::MAX, 3_000_000), (1, 3_000), (7, 30_000), (1461, 500_000)] {
        let mut world = World::new(|_| {});
        let (client, server) = world.connect();
        for site in &mut world.sites {
            site.piece = piece;
        }
        let (up, down) = (noise(1, length), text(length));
        assert!(world.transfer((NEAR, client), (FAR, server), &up) == up, "up in pieces of {piece}");
        assert!(world.transfer((FAR, server), (NEAR, client), &down) == down, "down in pieces of {piece}");
        let metrics = world.gateways[NEAR].metrics();
        assert_eq!((metrics.bytes_taken, metrics.bytes_given), (length as u64, length as u64));
    }
}

#[test]
fn a_reader_that_stands_still_holds_its_sender_back_and_nobody_else() {
    let mut world = World::new(|config| config.settings.compression = Compression::Off);
    let (stuck_client, stuck_server) = world.connect();
    let data = noise(1, 1_000_000);
    let mut sent = 0;
    for _ in 0..1000 {
        sent += world.sites[FAR].host_send(stuck_server, &data[sent..]);
        world.run_ms(10);
    }
    // The host's buffer at the client, four windows of credit, two relays, the buffer at the server.
    let most = 2 * (64 << 10) + 400_000 + 2 * Memory::CONNECTION.bytes as usize;
    assert!(sent < most, "{sent} bytes were taken though nobody reads");
    for gateway in &world.gateways {
        assert!(gateway.metrics().memory_buffered <= 400_000 + Memory::CONNECTION.bytes, "{:?}", gateway.metrics());
    }
    let (client, server) = world.connect();
    let other = noise(2, 2_000_000);
    assert!(world.transfer((FAR, server), (NEAR, client), &other) == other);
    // Once it reads again, everything arrives.
    let mut got = Vec::new();
    while got.len() < data.len() {
        let before = got.len();
        got.extend(world.sites[NEAR].host_receive(stuck_client, usize::MAX));
        sent += world.sites[FAR].host_send(stuck_server, &data[sent..]);
        world.run_ms(100);
        assert!(world.now.as_secs_f64() < 1000.0, "{before} bytes and no more");
    }
    assert!(got == data);
    world.run_ms(1_000);
    assert!(world.gateways.iter().all(|gateway| gateway.metrics().memory_buffered == 0));
}

#[test]
fn urgent_bytes_stay_urgent_and_in_their_place() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    world.sites[NEAR].host_send(client, b"before");
    world.sites[NEAR].host_urgent(client, b'!');
    world.sites[NEAR].host_send(client, b"after");
    world.run_ms(400);
    assert_eq!(world.sites[FAR].host_receive(server, 100), b"before!after");
    assert_eq!(world.sites[FAR].sockets[&server].urgent_bytes, b"!");
}

#[test]
fn text_shrinks_on_the_link_and_noise_costs_little_more() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    let page = text(500_000);
    assert!(world.transfer((FAR, server), (NEAR, client), &page) == page);
    let far = world.gateways[FAR].metrics();
    assert!(far.bytes_sent * 3 < 500_000, "{} bytes for 500 kB of text", far.bytes_sent);
    assert!(far.compression_ratio() > 3.0);
    assert_eq!((far.compressed_from, far.contexts > 0), (500_000, true));

    let image = noise(3, 2_000_000);
    assert!(world.transfer((FAR, server), (NEAR, client), &image) == image);
    let noise_cost = world.gateways[FAR].metrics().bytes_sent - far.bytes_sent;
    assert!(noise_cost < 2_000_000 * 1002 / 1000, "{noise_cost}");

    world.sites[FAR].host_finish(server);
    world.sites[NEAR].host_finish(client);
    world.run_ms(1_000);
    assert!(world.gateways.iter().all(|gateway| gateway.metrics().contexts == 0));
}

#[test]
fn compression_is_off_where_configured_or_where_there_is_no_memory() {
    for change in [
        |config: &mut bentpipe_gateway::GatewayConfig| config.settings.compression = Compression::Off,
        |config: &mut bentpipe_gateway::GatewayConfig| config.settings.memory.compression = DataSize::from_bytes(0),
    ] {
        let mut world = World::new(change);
        let (client, server) = world.connect();
        let page = text(200_000);
        assert!(world.transfer((FAR, server), (NEAR, client), &page) == page);
        let metrics = world.gateways[FAR].metrics();
        assert_eq!(
            (metrics.compressed_from, metrics.contexts > 0),
            (0, world.gateways[FAR].config().settings.memory.compression.bytes > 0)
        );
        assert!(metrics.bytes_sent > 200_000);
    }
}

#[test]
fn a_tls_connection_gives_its_room_for_compression_back() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    let before = world.gateways[FAR].metrics().contexts;
    let mut hello = vec![0x16, 3, 1, 2, 0];
    hello.extend(text(500));
    assert!(world.transfer((NEAR, client), (FAR, server), &hello) == hello);
    assert_eq!((before, world.gateways[FAR].metrics().contexts), (1, 0));
    assert_eq!(world.gateways[NEAR].metrics().compressed_from, 0);
}

#[test]
fn a_connection_moves_between_classes() {
    let mut world = World::new(|_| {});
    let (client, server) = world.connect();
    let long = noise(4, 200_000);
    world.transfer((FAR, server), (NEAR, client), &long);
    world.run_ms(10_000);
    world.transfer((FAR, server), (NEAR, client), &noise(5, 100));
    let classes: Vec<Class> = world.pair.channel().classes.iter().map(|(_, class)| *class).collect();
    assert_eq!(classes, [Class::Control, Class::Interactive, Class::Bulk, Class::Interactive]);
}

#[test]
fn idle_connections_cost_neither_time_nor_memory() {
    let mut world = World::new(|_| {});
    for _ in 0..200 {
        let (client, server) = world.connect();
        let page = text(3_000);
        assert!(world.transfer((FAR, server), (NEAR, client), &page) == page);
    }
    world.run_ms(10_000);
    let polls = world.polls;
    for gateway in &world.gateways {
        assert_eq!(gateway.next_wake(), None);
        assert_eq!((gateway.metrics().connections_open, gateway.metrics().memory_buffered), (200, 0));
    }
    world.run_ms(7 * 86_400_000);
    assert_eq!(world.polls, polls);
    let (client, server) = (world.sites[NEAR].sockets.keys().nth(5).copied(), world.sites[FAR].made[5]);
    assert_eq!(world.transfer((FAR, server), (NEAR, client.unwrap()), b"still here"), b"still here");
}

#[test]
fn what_goes_past_is_measured_while_something_does() {
    let mut world = World::new(|_| {});
    world.run_ms(200);
    // 1000 packets of 1000 bytes in a second: 8 Mbit/s.
    for _ in 0..100 {
        world.sites[NEAR].past.packets += 10;
        world.sites[NEAR].past.bytes += 10_000;
        world.sites[NEAR].changed.insert(bentpipe_net::socket::SocketId(u32::MAX));
        world.run_ms(10);
    }
    let seen = world.pair.channel().bypass.last().copied().unwrap();
    assert!((6_000_000..8_100_000).contains(&seen.bps), "{seen}");
    assert_eq!(world.gateways[NEAR].metrics().bypass_packets, 1000);
    world.run_ms(10_000);
    assert_eq!(world.pair.channel().bypass.last().copied(), Some(BitRate::from_bps(0)));
    assert_eq!(world.gateways[NEAR].next_wake(), None);
}

#[test]
fn a_new_rate_reaches_the_satellite_side() {
    let mut world = World::new(|_| {});
    let rate = Some(BitRate::from_bps(2_000_000));
    world.gateways[NEAR].set_rate(rate);
    let incoming = Some(BitRate::from_bps(20_000_000));
    world.gateways[NEAR].set_incoming(incoming);
    world.settle();
    assert_eq!(world.pair.channel().rates, [rate]);
    assert_eq!(world.pair.channel().incoming, [incoming]);
    assert_eq!(world.gateways[NEAR].config().satellite.rate, rate);
}

#[test]
fn the_total_of_memory_is_kept() {
    let mut world = World::new(|config| {
        config.settings.memory.total = DataSize::from_bytes(100_000);
        config.settings.compression = Compression::Off;
    });
    let mut ends = Vec::new();
    for _ in 0..40 {
        ends.push(world.connect());
    }
    let data = noise(6, 300_000);
    let mut sent = vec![0; ends.len()];
    for _ in 0..200 {
        for ((_, server), sent) in ends.iter().zip(&mut sent) {
            *sent += world.sites[FAR].host_send(*server, &data[*sent..]);
        }
        world.run_ms(20);
    }
    let buffered = world.gateways.each_ref().map(|gateway: &Gateway| gateway.metrics().memory_buffered);
    assert!(buffered.iter().all(|buffered| *buffered < 100_000 + 40 * Memory::CONNECTION.bytes), "{buffered:?}");
    // The gateway that is full takes no more connections; the client asks again.
    if buffered[NEAR] > 100_000 {
        let request = world.ask(crate::site::Server::Accepts);
        world.run_ms(700);
        assert_eq!(world.sites[NEAR].answered(request), None);
    }
    for ((client, _), _) in ends.iter().zip(&sent) {
        world.sites[NEAR].host_receive(*client, usize::MAX);
    }
    for ((client, server), sent) in ends.into_iter().zip(sent) {
        let (mut sent, mut rest) = (sent, 0);
        while sent < data.len() || rest == 0 {
            sent += world.sites[FAR].host_send(server, &data[sent..]);
            rest = world.sites[NEAR].host_receive(client, usize::MAX).len();
            world.run_ms(50);
            if sent == data.len() && rest == 0 {
                break;
            }
        }
        assert_eq!(sent, data.len());
    }
}
