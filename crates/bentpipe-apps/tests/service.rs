//! The services that run for ever.

mod support;

use bentpipe_apps::service::{FtpService, HttpService, SinkService, SourceService};
use bentpipe_apps::{Status, quantity};
use bentpipe_net::socket::count_wrong;
use support::script::{Act, Script, say};
use support::{CLIENT, SEED, SERVER, World, address, at_ms};

#[test]
fn the_sink_takes_everything_and_ends_with_the_client() {
    let (client, _) = Script::program(
        address(SERVER),
        vec![Act::Open(9), Act::Say(0, vec![7; 100_000]), Act::Finish(0), Act::HearEnd(0), Act::Close(0)],
    );
    let mut world = World::new();
    world.add(SERVER, SinkService { port: 9 }.server());
    world.add(CLIENT, client);
    world.limit = at_ms(60_000);
    world.run();
    assert!(world.programs[1].1.is_done());
    assert_eq!(world.report(0).value(quantity::BYTES), Some(100_000.0));
    assert_eq!(world.sockets_open(SERVER), 1, "the listener alone");
}

#[test]
fn the_source_sends_until_the_client_leaves() {
    let (client, heard) = Script::program(address(SERVER), vec![Act::Open(19), Act::Accept(1)]);
    let mut world = World::new();
    world.add(SERVER, SourceService { port: 19, seed: SEED }.server());
    world.add(CLIENT, client);
    world.limit = at_ms(2200);
    world.run();
    let heard = heard.lock().unwrap();
    assert!((240_000..250_100).contains(&heard[0].len()), "{}", heard[0].len());
    assert_eq!(count_wrong(SEED, 0, &heard[0]), 0);
}

#[test]
fn a_source_left_alone_closes() {
    let (client, _) = Script::program(address(SERVER), vec![Act::Open(19), say(0, "x"), Act::Abort(0), Act::Open(19)]);
    let mut world = World::new();
    world.add(SERVER, SourceService { port: 19, seed: SEED }.server());
    world.add(CLIENT, client);
    world.limit = at_ms(5000);
    world.run();
    assert_eq!(world.sockets_open(SERVER), 2, "the listener and the second connection");
}

#[test]
fn services_are_never_done_unless_they_cannot_listen() {
    let all = || {
        [
            HttpService { port: 80, seed: SEED }.server(),
            FtpService { port: 80, seed: SEED }.server(),
            SinkService { port: 80 }.server(),
            SourceService { port: 80, seed: SEED }.server(),
        ]
    };
    for service in all() {
        let mut world = World::new();
        world.add(SERVER, service);
        world.limit = at_ms(1000);
        world.run();
        assert!(!world.programs[0].1.is_done());
        assert_eq!(world.report(0).status, Status::Running);
    }
    for service in all() {
        let mut world = World::new();
        world.net.ports_in_use.push(80);
        world.add(SERVER, service);
        world.run();
        assert!(world.programs[0].1.is_done());
        let error = "cannot listen on port 80: address already in use".to_owned();
        assert_eq!(world.report(0).status, Status::Failed(error));
    }
}
