//! Anything may happen in any order: every host sees all bytes and a clean end, or an error, never less with a clean end.

use crate::site::Server;
use crate::world::{FAR, NEAR, World, noise, text};
use bentpipe_gateway::satellite::Loss;
use bentpipe_gateway::{Compression, Open};
use bentpipe_net::socket::SocketId;
use proptest::prelude::*;

/// What one side of a connection does over its life.
#[derive(Clone, Debug)]
struct Host {
    bytes: usize,
    compressible: bool,
    /// Resets after so many bytes instead of ending.
    resets_after: Option<usize>,
    /// Reads at most so much a turn, and starts after so many turns.
    reads: usize,
    reads_from: usize,
    writes: usize,
    /// Offsets of bytes that are sent as urgent, rising.
    urgent: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Plan {
    hosts: [Host; 2],
    starts: usize,
}

fn host() -> impl Strategy<Value = Host> {
    (
        0_usize..60_000,
        any::<bool>(),
        proptest::option::weighted(0.15, 0_usize..60_000),
        100_usize..20_000,
        0_usize..20,
        100_usize..20_000,
        proptest::collection::btree_set(0_usize..60_000, 0..4),
    )
        .prop_map(|(bytes, compressible, resets_after, reads, reads_from, writes, urgent)| Host {
            bytes,
            compressible,
            resets_after: resets_after.filter(|at| *at < bytes),
            reads,
            reads_from,
            writes,
            urgent: urgent.into_iter().filter(|at| *at < bytes).collect(),
        })
}

fn plan() -> impl Strategy<Value = Plan> {
    (host(), host(), 0_usize..30).prop_map(|(client, server, starts)| Plan { hosts: [client, server], starts })
}

struct Run {
    plan: Plan,
    data: [Vec<u8>; 2],
    sockets: Option<[SocketId; 2]>,
    request: Option<bentpipe_net::interception::RequestId>,
    sent: [usize; 2],
    got: [Vec<u8>; 2],
    finished: [bool; 2],
    reset: [bool; 2],
    age: usize,
}

impl Run {
    fn new(index: usize, plan: Plan) -> Run {
        let data = [0, 1].map(|side| {
            let host = &plan.hosts[side];
            if host.compressible { text(host.bytes) } else { noise((index * 2 + side) as u64, host.bytes) }
        });
        Run {
            plan,
            data,
            sockets: None,
            request: None,
            sent: [0; 2],
            got: Default::default(),
            finished: [false; 2],
            reset: [false; 2],
            age: 0,
        }
    }

    fn turn(&mut self, index: usize, world: &mut World) {
        let server: std::net::SocketAddr = format!("10.1.0.2:{}", 1000 + index).parse().unwrap();
        self.age += 1;
        let Some(request) = self.request else {
            if self.age > self.plan.starts {
                world.sites[FAR].servers.insert(server, Server::Accepts);
                self.request = Some(world.sites[NEAR].request("10.0.0.2:40000", &server.to_string(), 0));
                self.age = 0;
            }
            return;
        };
        if self.sockets.is_none() {
            // The last one: a request that was under way when a gateway was killed is asked again.
            let far = &world.sites[FAR];
            let made = far.made.iter().rev().find(|id| far.sockets[*id].peer == server).copied();
            if let (Some(client), Some(server)) = (world.sites[NEAR].answered(request), made) {
                self.sockets = Some([client, server]);
            }
        }
        let Some(sockets) = self.sockets else { return };
        for side in [NEAR, FAR] {
            let (host, socket) = (&self.plan.hosts[side], sockets[side]);
            let site = &mut world.sites[side];
            if self.reset[side] || site.host_sees_reset(socket) {
                continue;
            }
            if host.resets_after.is_some_and(|at| self.sent[side] >= at) {
                site.host_reset(socket);
                self.reset[side] = true;
                continue;
            }
            let urgent = host.urgent.iter().copied().find(|at| *at >= self.sent[side]);
            if urgent == Some(self.sent[side]) {
                if !site.urgent_waits(socket) {
                    site.host_urgent(socket, self.data[side][self.sent[side]]);
                    self.sent[side] += 1;
                }
            } else if self.sent[side] < host.bytes {
                let end = (self.sent[side] + host.writes).min(urgent.unwrap_or(host.bytes));
                self.sent[side] += site.host_send(socket, &self.data[side][self.sent[side]..end]);
            } else if !self.finished[side] {
                site.host_finish(socket);
                self.finished[side] = true;
            }
            if self.age > host.reads_from {
                self.got[side].extend(site.host_receive(socket, host.reads));
            }
        }
    }

    fn check(&self, world: &World) -> Result<bool, TestCaseError> {
        let Some(sockets) = self.sockets else { return Ok(false) };
        let mut complete = true;
        for side in [NEAR, FAR] {
            let site = &world.sites[side];
            let sent = &self.data[1 - side];
            // What arrives is what was sent, from the start.
            prop_assert!(sent.starts_with(&self.got[side]), "wrong bytes");
            // So is what is urgent, in its place.
            let (urgent, seen) = (&self.plan.hosts[1 - side].urgent, &site.sockets[&sockets[side]].urgent_at);
            prop_assert!(urgent.starts_with(seen), "urgent bytes at {seen:?}, sent at {urgent:?}");
            if self.reset[side] {
                complete = false;
                continue;
            }
            if site.sockets[&sockets[side]].to_host.fin && !site.host_sees_reset(sockets[side]) {
                let waiting = site.sockets[&sockets[side]].to_host.bytes.len();
                prop_assert_eq!(self.got[side].len() + waiting, sent.len(), "a short file with a clean end");
                prop_assert!(self.finished[1 - side], "an end that nobody sent");
            }
            let all = self.got[side].len() == sent.len() && urgent == seen && site.host_sees_end(sockets[side]);
            complete &= all;
        }
        Ok(complete)
    }
}

/// Plays the plans to their end, with what `fault` does before each turn.
fn play(world: &mut World, runs: &mut [Run], mut fault: impl FnMut(usize, &mut World)) -> Result<(), TestCaseError> {
    for turn in 0..3000 {
        fault(turn, world);
        for (index, run) in runs.iter_mut().enumerate() {
            run.turn(index, world);
        }
        world.run_ms(40);
        let mut done = true;
        for run in runs.iter() {
            done &= run.check(world)? || run.reset != [false; 2];
        }
        if done && turn > 150 {
            break;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// The same over QUIC and a link that loses packets, with a gateway that is killed and restarted.
    #[test]
    fn nor_over_quic_when_a_gateway_is_killed(
        plans in proptest::collection::vec(plan(), 1..5),
        loss in 0.0..0.05,
        seed: u64,
        buffer in 2_000_usize..20_000,
        kill in proptest::option::weighted(0.7, (0_usize..100, 0_usize..2)),
    ) {
        let mut world = World::quic(seed, loss, |_| {});
        world.run_ms(2_500);
        for site in &mut world.sites {
            site.buffer = buffer;
        }
        let mut runs: Vec<Run> = plans.into_iter().enumerate().map(|(index, plan)| Run::new(index, plan)).collect();
        play(&mut world, &mut runs, |turn, world| {
            if let Some((at, end)) = kill && turn == at {
                world.kill(end);
            }
        })?;
        if kill.is_none() {
            for run in &runs {
                prop_assert!(run.sockets.is_some());
                if run.plan.hosts.iter().all(|host| host.resets_after.is_none()) {
                    prop_assert!(run.check(&world)?, "not everything arrived: {:?} of {:?}", run.got.each_ref().map(Vec::len), run.plan);
                }
            }
        }
        // Beyond the hold time nothing of what was broken is left.
        world.run_ms(400_000);
        for run in &runs {
            run.check(&world)?;
        }
        // A connection that has ended stays with its gateway until its host has read everything.
        for site in &mut world.sites {
            let sockets: Vec<_> = site.sockets.keys().copied().collect();
            for socket in sockets {
                site.host_receive(socket, usize::MAX);
            }
        }
        world.run_ms(20_000);
        for gateway in &world.gateways {
            if kill.is_some() {
                prop_assert_eq!(gateway.metrics().connections_open, 0);
                prop_assert_eq!(gateway.metrics().memory_buffered, 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    #[test]
    fn no_host_ever_sees_a_short_file_with_a_clean_end(
        plans in proptest::collection::vec(plan(), 1..6),
        early: bool,
        packs: bool,
        pieces in (100_usize..3000, 100_usize..3000),
        buffer in 100_usize..20_000,
        silence in proptest::option::of((0_usize..60, 1_usize..60)),
        kill in proptest::option::weighted(0.4, 0_usize..120),
    ) {
        let mut world = World::new(|config| {
            config.settings.open = if early { Open::Early } else { Open::Answered };
            config.settings.compression = if packs { Compression::Auto } else { Compression::Off };
        });
        world.pair.channel().window = 5 * buffer;
        (world.sites[NEAR].piece, world.sites[FAR].piece) = pieces;
        for site in &mut world.sites {
            site.buffer = buffer;
        }
        let mut runs: Vec<Run> = plans.into_iter().enumerate().map(|(index, plan)| Run::new(index, plan)).collect();
        play(&mut world, &mut runs, |turn, world| {
            if let Some((at, lasts)) = silence {
                if turn == at {
                    world.pair.silence(true);
                } else if turn == at + lasts {
                    world.pair.silence(false);
                }
            }
            if kill == Some(turn) {
                world.pair.lose(Loss::Restarted);
            }
        })?;
        // Without faults, whoever was answered got everything.
        if kill.is_none() {
            for run in &runs {
                if run.sockets.is_some() && run.plan.hosts.iter().all(|host| host.resets_after.is_none()) {
                    prop_assert!(run.check(&world)?, "not everything arrived: {:?} of {:?}", run.got.each_ref().map(Vec::len), run.plan);
                }
            }
        }
        world.run_ms(200_000);
        for gateway in &world.gateways {
            if kill.is_some() {
                prop_assert_eq!(gateway.metrics().memory_buffered, 0);
                prop_assert_eq!(gateway.metrics().connections_open, 0);
            }
        }
    }
}
