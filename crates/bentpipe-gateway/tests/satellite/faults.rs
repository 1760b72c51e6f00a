//! Outages, restarts, sleep, and packets that are lost, doubled, damaged or late.

use super::GEO;
use super::support::*;
use bentpipe_gateway::satellite::quic::Crypto;
use bentpipe_gateway::satellite::{Class, Event, Loss, Satellite};
use bentpipe_net::time::Duration;

#[test]
fn after_an_outage_of_thirty_seconds_data_flows_again_soon() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let start = world.now;
    let id = world.hub().open(start, Class::Bulk, 20_000_000);
    world.run(start + seconds(3.0), |_| false);
    let over = world.now + seconds(30.0);
    world.outage_until = over;
    world.run(over, |_| false);
    let before = world.terminal().flows[&id].read;
    world.run(over + seconds(10.0), |world| world.stations[TERMINAL].flows[&id].read > before + 10_000);
    let resumed = world.now.since(over).as_secs_f64();
    println!("resumed after {resumed:.3} s");
    assert!(resumed < 1.5, "{resumed}");
    assert!(world.stations.iter().any(|station| station.count(&Event::Silent) == 1));
    world.run(over + seconds(40.0), |world| world.stations[TERMINAL].flows[&id].ended.is_some());
    let flow = world.terminal().flows[&id];
    assert_eq!((flow.read, flow.wrong), (20_000_000, 0));
    let statistics = world.hub().satellite.statistics();
    assert!(!statistics.throttled, "{statistics:?}");
    assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![], vec![]));
}

#[test]
fn an_outage_does_not_fill_memory_or_the_link() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 50_000_000);
    world.run(start + seconds(2.0), |_| false);
    world.outage_until = world.now + seconds(200.0);
    let until = world.now + seconds(2.0);
    world.run(until, |_| false);
    let before = world.link_bytes()[0];
    let until = world.now + seconds(120.0);
    world.run(until, |_| false);
    let sent = world.link_bytes()[0] - before;
    assert!(sent < 800_000, "{sent} bytes into an outage of two minutes");
}

#[test]
fn silence_beyond_the_hold_time_ends_the_connection_and_the_terminal_calls_again() {
    let mut world = World::with(GEO, 1, Crypto::Model(7), |config| config.hold = Duration::from_secs(20));
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 50_000_000);
    world.terminal().open(start, Class::Bulk, 50_000_000);
    world.run(start + seconds(2.0), |_| false);
    world.outage_until = world.now + seconds(60.0);
    let lost_by = world.now + seconds(25.0);
    world.run(lost_by, |_| false);
    assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![Loss::Silence], vec![Loss::Silence]));
    let over = world.outage_until;
    world.run(over + seconds(20.0), |world| world.stations.iter().all(|s| s.satellite.is_connected()));
    println!("connected again after {:.1} s", world.now.since(over).as_secs_f64());
    assert!(world.stations.iter().all(|station| station.count(&Event::Connected) == 2));
    assert_eq!(world.fetch(1, 100, 100_000, 10.0).len(), 1);
}

#[test]
fn one_side_asleep_for_ten_minutes_loses_nothing() {
    for side in [HUB, TERMINAL] {
        let mut world = World::with(GEO, 1, Crypto::Model(7), |config| config.hold = Duration::from_secs(900));
        world.connect();
        let start = world.now;
        let id = world.hub().open(start, Class::Bulk, 5_000_000);
        world.run(start + seconds(1.5), |_| false);
        let over = world.now + seconds(600.0);
        world.stations[side].frozen_until = over;
        world.run(over + seconds(20.0), |world| {
            world.stations[TERMINAL].flows.get(&id).is_some_and(|flow| flow.ended.is_some())
        });
        let flow = world.terminal().flows[&id];
        assert_eq!((flow.read, flow.wrong), (5_000_000, 0), "side {side}");
        println!("side {side}: whole {:.2} s after", world.now.since(over).as_secs_f64());
        assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![], vec![]));
    }
}

#[test]
fn a_restarted_terminal_replaces_its_old_connection() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 50_000_000);
    world.run(start + seconds(2.0), |_| false);
    world.restart(TERMINAL);
    let now = world.now;
    world.run(now + seconds(5.0), |world| world.stations.iter().all(|s| s.saw_since(now, &Event::Connected)));
    println!("connected after {:.2} s", world.now.since(now).as_secs_f64());
    assert_eq!(world.lost(HUB), vec![Loss::Restarted]);
    assert_eq!(world.hub().count(&Event::Connected), 2);
    assert_eq!(world.fetch(1, 100, 100_000, 10.0).len(), 1);
}

#[test]
fn a_terminal_notices_soon_that_the_hub_was_restarted() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let start = world.now;
    world.terminal().open(start, Class::Bulk, 50_000_000);
    world.run(start + seconds(2.0), |_| false);
    world.restart(HUB);
    let now = world.now;
    world.run(now + seconds(10.0), |world| world.stations.iter().all(|s| s.saw_since(now, &Event::Connected)));
    println!("connected after {:.2} s", world.now.since(now).as_secs_f64());
    assert_eq!(world.lost(TERMINAL), vec![Loss::Restarted]);
    assert!(world.now < now + seconds(3.0));
    assert_eq!(world.fetch(1, 100, 100_000, 10.0).len(), 1);
}

#[test]
fn a_terminal_that_only_receives_notices_it_too() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let start = world.now;
    world.hub().open(start, Class::Bulk, 50_000_000);
    world.run(start + seconds(2.0), |_| false);
    world.restart(HUB);
    let now = world.now;
    world.run(now + seconds(10.0), |world| world.stations.iter().all(|s| s.saw_since(now, &Event::Connected)));
    println!("connected after {:.2} s", world.now.since(now).as_secs_f64());
    assert_eq!(world.lost(TERMINAL), vec![Loss::Restarted]);
    assert!(world.now < now + seconds(6.0));
}

#[test]
fn an_orderly_end_is_seen_as_one() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let now = world.now;
    world.hub().satellite.close(now);
    world.pump();
    world.run(now + seconds(1.0), |_| false);
    assert_eq!(world.lost(TERMINAL), vec![Loss::Closed]);
    assert!(!world.hub().satellite.is_connected());
}

#[test]
fn a_terminal_may_move_to_another_address() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let start = world.now;
    let id = world.terminal().open(start, Class::Bulk, 5_000_000);
    world.run(start + seconds(1.0), |_| false);
    world.terminal().address = "10.0.0.3:50000".parse().unwrap();
    world.run(start + seconds(20.0), |world| {
        world.stations[HUB].flows.get(&id).is_some_and(|flow| flow.ended.is_some())
    });
    let flow = world.hub().flows[&id];
    assert_eq!((flow.read, flow.wrong), (5_000_000, 0));
    assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![], vec![]));
    assert!(world.now < start + seconds(8.0), "{:?}", world.now.since(start));
}

#[test]
fn packets_doubled_damaged_and_late_change_nothing() {
    let mut world = World::with(GEO, 5, Crypto::Model(7), |config| config.loss = 0.02);
    world.connect();
    world.mischief = Mischief { duplicate: 0.05, reorder: 0.05, corrupt: 0.01, lose: 0.01 };
    let times = world.fetch(5, 1000, 500_000, 60.0);
    println!("{times:?}");
    let statistics = world.terminal().satellite.statistics();
    assert!(statistics.forged > 5, "{statistics:?}");
    assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![], vec![]));
    assert!(!world.hub().satellite.statistics().throttled);
}

#[test]
fn an_idle_pair_on_a_circuit_sends_nothing_and_a_set_up_is_no_failure() {
    let text = "rate = \"9600 bit/s\"\none_way_delay = \"300 ms\"\nqueue = { bytes = \"20 kB\" }\nmtu = \"1500 B\"\n\
                framing = \"ppp\"\n[circuit]\nstages = [{ name = \"set-up\", time = \"50 s\" }]\nidle_hang_up = \"30 s\"\n";
    let mut world = World::new(text, 1);
    world.run(at(200.0), |world| world.stations.iter().all(|s| s.satellite.is_connected()));
    println!("connected after {:.1} s, {:?} bytes", world.now.as_secs_f64(), world.link_bytes());
    assert!(world.now < at(65.0), "{:?}", world.now);
    let settled = world.now + seconds(60.0);
    world.run(settled, |_| false);
    let before = world.link_bytes();
    world.run(settled + seconds(3600.0), |_| false);
    assert_eq!(world.link_bytes(), before, "an idle hour");
    assert!(world.stations.iter().all(|station| station.satellite.is_connected()));
    // The circuit has hung up: the next exchange sets it up again.
    let times = world.fetch(1, 100, 1000, 200.0);
    let bytes: Vec<u64> = world.link_bytes().iter().zip(before).map(|(now, before)| now - before).collect();
    println!("an exchange of 1.1 kB after {:.1} s with {bytes:?} bytes on the wire", times[0]);
    assert!(times[0] < 54.0, "{times:?}");
    assert!(bytes.iter().sum::<u64>() < 3000, "{bytes:?}");
    assert_eq!((world.lost(HUB), world.lost(TERMINAL)), (vec![], vec![]));
    assert!(world.stations.iter().all(|station| station.count(&Event::Silent) == 0));
}

#[test]
fn an_idle_pair_hardly_sends() {
    let mut world = World::new(GEO, 1);
    world.connect();
    let before: u64 = world.link_bytes().iter().sum();
    let until = world.now + seconds(3600.0);
    world.run(until, |_| false);
    let sent = world.link_bytes().iter().sum::<u64>() - before;
    assert!(sent < 60 * 150, "{sent} bytes in an idle hour");
}

#[test]
fn transfers_are_reset_when_the_silence_has_lasted_the_hold_time() {
    for hold in [2, 10, 60] {
        for uploads in [true, false] {
            let mut world = World::with(GEO, 1, Crypto::Model(7), |config| config.hold = Duration::from_secs(hold));
            world.connect();
            let start = world.now;
            let from = if uploads { TERMINAL } else { HUB };
            world.stations[from].open(start, Class::Bulk, 50_000_000);
            world.run(start + seconds(3.0), |_| false);
            let death = world.now;
            world.hub().frozen_until = death + seconds(10_000.0);
            world.run(death + seconds(200.0), |world| !world.stations[TERMINAL].satellite.is_connected());
            let took = world.now.since(death).as_secs_f64() - hold as f64;
            println!("hold {hold} s, {}: hold and {took:.1} s", if uploads { "upload" } else { "download" });
            assert_eq!(world.lost(TERMINAL), [Loss::Silence]);
            // The time of packets on their way when the hub dies, and the spacing of questions; a receiver asks after three seconds.
            let least = if uploads { -0.1 } else { 2.5 };
            assert!((least..least + 4.0).contains(&took), "{took}");
        }
    }
}

#[test]
fn a_hub_with_nothing_to_send_notices_that_the_terminal_is_dead() {
    let mut world = World::with(GEO, 1, Crypto::Model(7), |config| config.hold = Duration::from_secs(5));
    world.connect();
    let start = world.now;
    // A connection that stays open and idle.
    let id = world.terminal().open(start, Class::Bulk, 0);
    world.run(start + seconds(600.0), |_| false);
    assert!(world.lost(HUB).is_empty() && world.hub().flows.contains_key(&id), "alive");
    let death = world.now;
    world.terminal().frozen_until = death + seconds(10_000.0);
    world.run(death + seconds(200.0), |world| !world.stations[HUB].satellite.is_connected());
    let noticed = world.now.since(death).as_secs_f64();
    println!("noticed after {noticed:.1} s");
    assert_eq!(world.lost(HUB), [Loss::Silence]);
    // Two minutes, the hold time, and the last of the questions.
    assert!(noticed < 130.0, "{noticed}");
}

#[test]
fn a_hub_asks_nothing_while_the_terminal_asks_and_on_a_circuit_never() {
    for dial_up in [false, true] {
        let mut world = World::with(GEO, 1, Crypto::Model(7), |config| config.dial_up = dial_up);
        world.connect();
        // The handshake's last packets are acknowledged late.
        let until = world.now + seconds(30.0);
        world.run(until, |_| false);
        let (start, before) = (world.now, world.offered);
        world.run(start + seconds(3600.0), |_| false);
        let sent = [world.offered[HUB] - before[HUB], world.offered[TERMINAL] - before[TERMINAL]];
        println!("in an hour {sent:?}");
        if dial_up {
            assert_eq!(sent, [0, 0]);
        } else {
            // A question a minute, an answer to each.
            assert!(sent.iter().all(|bytes| (1_200..3_000).contains(bytes)), "{sent:?}");
        }
    }
}
