//! Rates that are wrong, unknown or change.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_gateway::satellite::{Class, Satellite};
use bentpipe_net::units::BitRate;

fn declared(bps: Option<u64>) -> World {
    World::with(GEO, 1, Crypto::Model(7), |config| {
        if config.side == bentpipe_gateway::satellite::Side::Hub {
            config.rate = bps.map(BitRate::from_bps);
        }
    })
}

#[test]
fn a_rate_three_times_too_high_is_noticed_and_throttled() {
    let mut world = declared(Some(30_000_000));
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 100_000_000);
    world.run(start + seconds(6.0), |world| world.stations[HUB].satellite.statistics().throttled);
    println!("throttled after {:.2} s", world.now.since(start).as_secs_f64());
    assert!(world.now < start + seconds(6.0));
    world.run(start + seconds(20.0), |_| false);
    let (sent, read) = (world.link_bytes()[0], total_read(&world));
    world.run(start + seconds(50.0), |_| false);
    let sent = (world.link_bytes()[0] - sent) as f64;
    let read = (total_read(&world) - read) as f64;
    println!("then {:.2} Mbit/s, sent {:.3} times as much", read * 8.0 / 30.0 / 1e6, sent / read);
    assert!(read * 8.0 / 30.0 > 8.3e6, "{read}");
    assert!(sent / read < 1.12, "{}", sent / read);
    let statistics = world.hub().satellite.statistics();
    assert!(statistics.throttled && statistics.declared_bps == 30_000_000, "{statistics:?}");
}

fn total_read(world: &World) -> u64 {
    world.stations[TERMINAL].flows.values().map(|flow| flow.read).sum()
}

#[test]
fn a_rate_halved_in_mid_transfer_is_followed_down_and_up() {
    let text = GEO.replace(
        "rate = \"10 Mbit/s\"\n",
        "rate_schedule = { steps = [{ at = \"0 s\", rate = \"10 Mbit/s\" }, { at = \"10 s\", rate = \"5 Mbit/s\" }, \
         { at = \"30 s\", rate = \"10 Mbit/s\" }] }\n",
    );
    let mut world = World::new(&text, 1);
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 200_000_000);
    world.run(at(10.0), |_| false);
    assert!(!world.hub().satellite.statistics().throttled);
    world.run(at(15.0), |world| world.stations[HUB].satellite.statistics().throttled);
    println!("noticed after {:.2} s", world.now.since(at(10.0)).as_secs_f64());
    assert!(world.now < at(15.0));
    world.run(at(18.0), |_| false);
    let before = total_read(&world);
    world.run(at(30.0), |_| false);
    let rate = (total_read(&world) - before) as f64 * 8.0 / 12.0;
    println!("at half rate {:.2} Mbit/s", rate / 1e6);
    assert!(rate > 4.0e6, "{rate}");
    world.run(at(100.0), |world| !world.stations[HUB].satellite.statistics().throttled);
    println!("whole again {:.1} s after", world.now.since(at(30.0)).as_secs_f64());
    assert!(world.now < at(100.0), "{:?}", world.hub().satellite.statistics());
}

#[test]
fn an_undeclared_rate_is_measured() {
    let mut world = declared(None);
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 100_000_000);
    world.run(start + seconds(20.0), |_| false);
    let before = total_read(&world);
    world.run(start + seconds(50.0), |_| false);
    let rate = (total_read(&world) - before) as f64 * 8.0 / 30.0;
    println!("{:.2} Mbit/s", rate / 1e6);
    assert!(rate > 8.0e6, "{rate}");
    assert_eq!(world.hub().satellite.statistics().declared_bps, 0);
}

#[test]
fn a_newly_declared_rate_counts_at_once() {
    let mut world = declared(Some(10_000_000));
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 100_000_000);
    world.run(start + seconds(2.0), |_| false);
    let (now, before) = (world.now, world.link_bytes()[0]);
    world.hub().satellite.set_rate(now, Some(BitRate::from_bps(2_000_000)));
    world.run(now + seconds(10.0), |_| false);
    let bits = (world.link_bytes()[0] - before) * 8;
    // What was on its way at the old rate has to arrive first.
    assert!((19_000_000..20_100_000).contains(&bits), "{bits}");
}

/// Bytes a second of 6 MB from the hub, when both sides are configured with 1 Mbit/s at first and of 10 then, or of 10
/// from the start.
fn told_of_ten(reload: bool) -> f64 {
    let ten = Some(BitRate::from_bps(10_000_000));
    let first = if reload { Some(BitRate::from_bps(1_000_000)) } else { ten };
    let mut world = World::with(GEO, 1, Crypto::Model(7), |config| config.rate = first);
    for side in [HUB, TERMINAL] {
        let config = world.config_of(side).clone();
        let satellite = QuicSatellite::with_incoming(world.now, config, first, Crypto::Model(7), side as u64);
        world.stations[side].satellite = satellite.unwrap();
    }
    world.connect();
    let now = world.now;
    for station in world.stations.iter_mut().filter(|_| reload) {
        station.satellite.set_rate(now, ten);
        station.satellite.set_incoming(now, ten);
    }
    6e6 / world.fetch(1, 100, 6_000_000, 60.0)[0]
}

#[test]
fn a_higher_rate_counts_for_windows_too() {
    let (reloaded, started) = (told_of_ten(true), told_of_ten(false));
    println!("reloaded {reloaded:.0} B/s, started {started:.0} B/s");
    assert!(reloaded > 0.95 * started, "{reloaded} and {started}");
}
