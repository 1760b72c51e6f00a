//! Readers who rest, and everybody else.

use crate::world::{FAR, NEAR, World, noise};
use bentpipe_gateway::satellite::Side;
use bentpipe_gateway::{Compression, GatewayConfig};
use bentpipe_net::socket::SocketId;
use bentpipe_net::units::{BitRate, DataSize};

const MEMORY: u64 = 32 << 20;

fn incompressible(config: &mut GatewayConfig) {
    config.settings.compression = Compression::Off;
}

/// A connection, told apart from others that are made meanwhile.
fn connect(world: &mut World, loss: bool) -> (SocketId, SocketId) {
    if !loss {
        return world.connect();
    }
    let made = world.sites[FAR].made.len();
    let request = world.ask(crate::site::Server::Accepts);
    while world.sites[NEAR].answered(request).is_none() {
        world.run_ms(50);
    }
    (world.sites[NEAR].answered(request).unwrap(), world.sites[FAR].made[made])
}

/// Seconds that a transfer from the server takes.
fn fetch(world: &mut World, ends: (SocketId, SocketId), data: &[u8]) -> f64 {
    let start = world.now;
    assert!(world.transfer((FAR, ends.1), (NEAR, ends.0), data) == data);
    world.now.since(start).as_secs_f64()
}

#[test]
fn sixty_four_readers_who_rest_slow_nobody_down() {
    let mut world = World::quic(3, 0.0, |config| {
        incompressible(config);
        config.settings.memory.total = DataSize::from_bytes(MEMORY);
    });
    world.run_ms(3_000);
    let mut unhurried = connect(&mut world, false);
    let file = noise(100, 10_000_000);
    let alone = fetch(&mut world, unhurried, &file);

    let ends: Vec<_> = (0..64).map(|_| connect(&mut world, false)).collect();
    let data = noise(7, 8_000_000);
    let mut sent = vec![0; ends.len()];
    let mut still = 0;
    while still < 200 {
        let before: usize = sent.iter().sum();
        for ((_, server), sent) in ends.iter().zip(&mut sent) {
            *sent += world.sites[FAR].host_send(*server, &data[*sent..]);
        }
        world.run_ms(10);
        still = if sent.iter().sum::<usize>() == before { still + 1 } else { 0 };
    }
    let waiting: usize = sent.iter().sum();
    let buffered = world.gateways.each_ref().map(|gateway| gateway.metrics().memory_buffered);
    println!("{waiting} bytes wait, {buffered:?} of them in the gateways");
    assert!(buffered[NEAR] > 8_000_000, "the readers have filled their windows");
    assert!(buffered.iter().all(|buffered| *buffered < MEMORY), "{buffered:?}");

    // Another request, and another transfer, on a new connection and on the old one.
    let start = world.now;
    let short = connect(&mut world, false);
    let opened = world.now.since(start).as_secs_f64();
    let answer = noise(8, 1_000);
    world.sites[FAR].host_send(short.1, &answer);
    world.run_ms(310);
    assert!(world.sites[NEAR].host_receive(short.0, usize::MAX) == answer, "opened after {opened} s");
    let old = fetch(&mut world, unhurried, &file);
    unhurried = connect(&mut world, false);
    let new = fetch(&mut world, unhurried, &file);
    println!("10 MB alone {alone:.2} s, with the resting readers {old:.2} s and on a new connection {new:.2} s");
    assert!(old < alone * 1.02 && new < alone + 2.0, "{alone} {old} {new}");
    let buffered = world.gateways.each_ref().map(|gateway| gateway.metrics().memory_buffered);
    assert!(buffered.iter().all(|buffered| *buffered < MEMORY), "{buffered:?}");

    // They wake, and get every byte.
    let mut got: Vec<Vec<u8>> = vec![Vec::new(); ends.len()];
    while got.iter().any(|got| got.len() < 1_000_000) {
        for (index, (client, server)) in ends.iter().enumerate() {
            let rest = &data[sent[index]..sent[index].max(1_000_000)];
            sent[index] += world.sites[FAR].host_send(*server, rest);
            got[index].extend(world.sites[NEAR].host_receive(*client, usize::MAX));
        }
        world.run_ms(20);
        assert!(world.now.as_secs_f64() < 600.0);
    }
    world.run_ms(1_000);
    for (index, (client, _)) in ends.iter().enumerate() {
        got[index].extend(world.sites[NEAR].host_receive(*client, usize::MAX));
        assert!(got[index] == data[..sent[index]], "{} of {}", got[index].len(), sent[index]);
    }
}

#[test]
fn credit_is_no_limit_on_a_fast_link_that_loses_packets() {
    let mut world = World::quic(5, 0.01, |config| {
        incompressible(config);
        config.satellite.loss = 0.01;
        let rate = if config.satellite.side == Side::Hub { 250_000_000 } else { 3_000_000 };
        config.satellite.rate = Some(BitRate::from_bps(rate));
    });
    world.run_ms(3_000);
    for site in &mut world.sites {
        site.buffer = 4 << 20;
    }
    let ends = connect(&mut world, true);
    let file = noise(1, 100_000_000);
    let time = fetch(&mut world, ends, &file);
    let sent = world.gateways[NEAR].metrics().satellite.link_bytes_sent;
    println!("100 MB in {time:.2} s; {sent} bytes on the return link");
    // 3.36 s of sending, half a round trip, and what was lost last: a window of twice the size gives the same.
    assert!(time < 4.8, "{time}");
    assert!(world.gateways[NEAR].metrics().connected);
}

#[test]
fn undeclared_loss_while_a_reader_rests_on_a_fast_link_is_borne() {
    // quinn-proto 0.11.19 ends a connection whose stream has more than 1024 pieces in its buffer.
    let mut world = World::quic(6, 0.03, |config| {
        incompressible(config);
        let rate = if config.satellite.side == Side::Hub { 250_000_000 } else { 3_000_000 };
        config.satellite.rate = Some(BitRate::from_bps(rate));
    });
    world.run_ms(3_000);
    world.sites[FAR].buffer = 4 << 20;
    let ends = connect(&mut world, true);
    let data = noise(1, 100_000_000);
    let mut sent = 0;
    for _ in 0..1500 {
        sent += world.sites[FAR].host_send(ends.1, &data[sent..]);
        world.run_ms(10);
    }
    let buffered = world.gateways[NEAR].metrics().memory_buffered;
    println!("{sent} bytes sent, {buffered} wait");
    assert!(buffered > 70_000_000 && world.gateways[NEAR].metrics().connected);
    let mut got = world.sites[NEAR].host_receive(ends.0, usize::MAX);
    world.sites[NEAR].buffer = 4 << 20;
    while got.len() < data.len() {
        sent += world.sites[FAR].host_send(ends.1, &data[sent..]);
        world.run_ms(10);
        got.extend(world.sites[NEAR].host_receive(ends.0, usize::MAX));
        assert!(world.now.as_secs_f64() < 200.0, "{}", got.len());
    }
    assert!(got == data);
}

#[test]
fn idle_connections_give_their_credit_to_those_that_want_it() {
    let mut world = World::quic(7, 0.0, |config| {
        incompressible(config);
        config.settings.memory.total = DataSize::from_bytes(8 << 20);
    });
    world.run_ms(3_000);
    let ends: Vec<_> = (0..40).map(|_| connect(&mut world, false)).collect();
    world.run_ms(5_000);
    let file = noise(1, 6_000_000);
    // 4.8 s of sending at 10 Mbit/s; with nothing but the base it would take a minute.
    let first = fetch(&mut world, ends[39], &file);
    let later = fetch(&mut world, ends[20], &file);
    println!("{first:.2} s, {later:.2} s");
    assert!(first < 8.0 && later < 8.0, "{first} {later}");
}

#[test]
fn a_half_closed_connection_still_gives_credit() {
    let mut world = World::quic(8, 0.01, incompressible);
    world.run_ms(3_000);
    let ends = connect(&mut world, true);
    world.sites[NEAR].host_finish(ends.0);
    world.run_ms(1_500);
    assert!(world.sites[FAR].host_sees_end(ends.1));
    let file = noise(1, 15_000_000);
    let time = fetch(&mut world, ends, &file);
    assert!(time < 16.0, "{time}");
    world.sites[FAR].host_finish(ends.1);
    world.run_ms(2_500);
    assert!(world.sites[NEAR].host_sees_end(ends.0));
    for gateway in &world.gateways {
        assert_eq!((gateway.metrics().ended, gateway.metrics().memory_buffered), (1, 0));
    }
}

#[test]
fn a_reader_a_little_slower_than_the_link_gets_what_it_can_take() {
    let mut world = World::quic(9, 0.0, incompressible);
    world.run_ms(3_000);
    let (client, server) = connect(&mut world, false);
    let data = noise(1, 12_000_000);
    let (mut sent, mut got, start) = (0, Vec::new(), world.now);
    while got.len() < data.len() {
        sent += world.sites[FAR].host_send(server, &data[sent..]);
        world.run_ms(10);
        // 8.5 Mbit/s of 10.
        got.extend(world.sites[NEAR].host_receive(client, 10_625));
        assert!(world.now.as_secs_f64() < 60.0);
    }
    assert!(got == data);
    let time = world.now.since(start).as_secs_f64();
    println!("{time:.2} s, at best 11.3");
    assert!(time < 11.9, "{time}");
}

#[test]
fn a_reader_who_rests_holds_back_what_compresses_well_too() {
    let mut world = World::quic(10, 0.0, |_| {});
    world.run_ms(3_000);
    let (client, server) = connect(&mut world, false);
    let zeros = vec![0; 1 << 20];
    let (mut sent, mut still) = (0_u64, 0);
    while still < 200 && sent < 100_000_000 {
        let taken = world.sites[FAR].host_send(server, &zeros);
        world.run_ms(10);
        sent += taken as u64;
        still = if taken == 0 { still + 1 } else { 0 };
    }
    // Four times what it is uncompressed: four round trips' worth of 10 Mbit/s.
    println!("{sent} bytes of zeros were taken");
    assert!(sent < 16_000_000, "{sent}");
    // It all arrives.
    let mut got = 0;
    while got < sent {
        got += world.sites[NEAR].host_receive(client, usize::MAX).len() as u64;
        world.run_ms(10);
        assert!(world.now.as_secs_f64() < 100.0, "{got}");
    }
    assert_eq!(got, sent);
}

#[test]
fn what_compresses_well_goes_in_full_packets() {
    let mut world = World::quic(11, 0.0, |_| {});
    world.run_ms(3_000);
    let (client, server) = connect(&mut world, false);
    let before = world.gateways[FAR].metrics().satellite;
    let (zeros, start) = (vec![0; 40_000_000], world.now);
    assert!(world.transfer((FAR, server), (NEAR, client), &zeros) == zeros);
    let after = world.gateways[FAR].metrics().satellite;
    let packets = after.packets_sent - before.packets_sent;
    let bytes = after.link_bytes_sent - before.link_bytes_sent;
    println!("40 MB of zeros in {packets} packets, {bytes} bytes, {:.2} s", world.now.since(start).as_secs_f64());
    // 2,442 blocks of 16 kB.
    assert!(packets < 1_000 && bytes < 200_000, "{packets} packets, {bytes} bytes");
    // A short message waits for nothing.
    world.run_ms(1_000);
    let start = world.now;
    world.sites[FAR].host_send(server, &vec![b'x'; 3_000]);
    let mut got = Vec::new();
    while got.len() < 3_000 {
        world.run_ms(1);
        got.extend(world.sites[NEAR].host_receive(client, usize::MAX));
    }
    assert!(world.now.since(start).as_secs_f64() < 0.310);
}
