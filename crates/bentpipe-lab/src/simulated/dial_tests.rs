//! A pair that dials: connections while the line is down, what sets it up, what it costs.

use super::pairs::{Pairs, SimulatedNetwork};
use super::setup;
use crate::scenario::Scenario;
use bentpipe_apps::report::{App, Report, Status};
use bentpipe_gateway::Metrics;
use bentpipe_gateway::dial::ledger::Ledger;
use bentpipe_net::line::Unwanted;
use bentpipe_net::socket::{Connection, Program, Received, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_sim::network::{Network, ProgramId};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// The Coast Guard's line with the dial-on-demand router's time on the network (CG-T2, T3), at a price.
const MINI_M: &str = "title = 'x'\n[links.sat]\nkind = 'inmarsat-mini-m'\nbetween = ['hub', 'ship']\n\
    circuit = { charged_from = 'modems', stages = [{ name = 'LES', time = '6.8 s' }, { name = 'data', time = '11.01 s' }, \
    { name = 'modems', time = '10.28 s' }, { name = 'network', time = '3.386 s' }] }\n\
    tariff = { currency = 'USD', time = { price = '1.44', first = '20 s' } }\n\
    [hosts.ship.tcp]\npreset = 'linux'\n";
const SET_UP: Duration = Duration::from_millis(31_476);
const PORT: u16 = 7;

struct World {
    network: SimulatedNetwork,
    pairs: Pairs,
    hub: SocketAddr,
}

/// Sends a byte at each of its times and counts what comes back; a connection of 75 s keep-alives.
struct Client {
    to: SocketAddr,
    sends: Vec<Instant>,
    socket: Option<SocketId>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    open: bool,
    over: bool,
    answers: Vec<Instant>,
}

/// Gives back each byte.
#[derive(Default)]
struct Echo {
    listener: Option<SocketId>,
    sockets: Vec<SocketId>,
    heard: Arc<Mutex<Vec<Instant>>>,
}

impl Program for Client {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        let socket = *self.socket.get_or_insert_with(|| sockets.connect(self.to).unwrap());
        let mut seen = self.seen.lock().unwrap();
        match sockets.connection(socket) {
            Ok(Connection::Opening) => return,
            Ok(_) => seen.open = true,
            Err(_) => seen.over = true,
        }
        while !seen.over && self.sends.first().is_some_and(|at| *at <= now) {
            self.sends.remove(0);
            assert_eq!(sockets.send(socket, b"x"), Ok(1));
        }
        let mut byte = [0];
        loop {
            match sockets.receive(socket, &mut byte) {
                Ok(Received::Bytes(_)) => seen.answers.push(now),
                Ok(Received::Nothing) => break,
                Ok(Received::End) | Err(_) => {
                    seen.over = true;
                    break;
                }
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.sends.first().copied().filter(|_| self.seen.lock().unwrap().open)
    }

    fn is_done(&self) -> bool {
        false
    }
}

impl Program for Echo {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        let listener = *self.listener.get_or_insert_with(|| sockets.listen(PORT).unwrap());
        while let Ok(Some(socket)) = sockets.accept(listener) {
            self.sockets.push(socket);
        }
        for socket in &self.sockets {
            let mut byte = [0];
            while let Ok(Received::Bytes(_)) = sockets.receive(*socket, &mut byte) {
                self.heard.lock().unwrap().push(now);
                let _ = sockets.send(*socket, &byte);
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn is_done(&self) -> bool {
        false
    }
}

impl App for Client {
    fn report(&self, _: Instant) -> Report {
        Report::new(Status::Running, None)
    }
}

impl App for Echo {
    fn report(&self, _: Instant) -> Report {
        Report::new(Status::Running, None)
    }
}

impl World {
    fn new(text: &str) -> (World, Arc<Mutex<Vec<Instant>>>) {
        let scenario = Scenario::parse("x", text, &[]).unwrap_or_else(|problem| panic!("{problem}"));
        let case = &scenario.cases[0];
        let mut network = Network::new(&setup(&scenario, case)).unwrap();
        let pairs = Pairs::start(case, scenario.seed, &mut network).unwrap();
        let hub = network.plan().address(network.plan().site("hub").unwrap()).unwrap();
        let mut world = World { network, pairs, hub: SocketAddr::new(hub.into(), PORT) };
        let echo = Echo::default();
        let heard = Arc::clone(&echo.heard);
        world.start("hub", echo);
        (world, heard)
    }

    fn start(&mut self, site: &str, app: impl App + 'static) -> ProgramId {
        let site = self.network.plan().site(site).unwrap();
        self.network.start(site, Box::new(app))
    }

    fn client(&mut self, sends: &[u64]) -> Arc<Mutex<Seen>> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let sends = sends.iter().map(|seconds| at(*seconds)).collect();
        let client = Client { to: self.hub, sends, socket: None, seen: Arc::clone(&seen) };
        self.start("ship", client);
        seen
    }

    fn run_until(&mut self, until: Instant) {
        while self.network.now() < until {
            self.network.run_until(until);
        }
    }

    fn terminal(&self) -> Metrics {
        self.pairs.left(&self.network)[0][1].metrics
    }

    /// Packets and link bytes of both directions.
    fn link_bytes(&self) -> [u64; 2] {
        let link = &self.network.links()[0];
        let bits = |number: usize| link.directions()[number].sender_counters().link_bits / 8;
        [bits(0), bits(1)]
    }

    fn ledger(&self) -> Ledger {
        let site = self.network.plan().site("ship-gateway").unwrap();
        Ledger::read(self.network.line(site).unwrap().ledger.as_bytes()).unwrap()
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn pair(dial: &str) -> String {
    format!("{MINI_M}[gateways.sat.dial]\n{dial}")
}

#[test]
fn idle_connections_cost_nothing_for_a_day() {
    let text = pair("").replace("preset = 'linux'", "preset = 'linux'\nkeep_alive = '75 s'");
    let (mut world, _) = World::new(&text);
    world.run_until(at(600));
    assert_eq!((world.terminal().line.dialled, world.link_bytes()), (0, [0, 0]), "nobody asks for anything");
    let clients: Vec<_> = (0..20).map(|_| world.client(&[])).collect();
    world.run_until(at(1000));
    assert!(clients.iter().all(|client| client.lock().unwrap().open));
    let (calls, bytes) = (world.terminal().line.dialled, world.link_bytes());
    assert!(calls >= 1 && !world.terminal().line.up, "{:?}", world.terminal().line);
    world.run_until(at(1000 + 24 * 3600));
    assert_eq!((world.terminal().line.dialled, world.link_bytes()), (calls, bytes), "0 calls, 0 link bytes");
    assert!(clients.iter().all(|client| !client.lock().unwrap().over), "all alive");
    // And alive they are: each sends a byte and gets it back, in one call.
    let late = world.client(&[]);
    world.run_until(at(1000 + 25 * 3600));
    assert!(late.lock().unwrap().open);
    assert_eq!(world.terminal().line.dialled, calls + 1);
    assert_eq!(world.terminal().lost, 0);
}

#[test]
fn a_byte_on_a_waiting_connection_needs_the_set_up_and_one_way() {
    let (mut world, heard) = World::new(&pair(""));
    let client = world.client(&[100, 4000, 90_000]);
    world.run_until(at(91_000));
    let heard = heard.lock().unwrap().clone();
    let answers = client.lock().unwrap().answers.clone();
    assert_eq!((heard.len(), answers.len()), (3, 3));
    for (sent, heard, answered) in [(4000, heard[1], answers[1]), (90_000, heard[2], answers[2])] {
        let (first_byte, answer) = (heard.since(at(sent)), answered.since(at(sent)));
        // A packet of about 80 B takes 0.37 s, and 0.442 s on its way; back the same.
        assert!(first_byte >= SET_UP + Duration::from_millis(442));
        assert!(first_byte <= SET_UP + Duration::from_millis(884 + 450), "{first_byte}");
        assert!(answer <= SET_UP + Duration::from_millis(2 * 884 + 900), "{answer}");
    }
    let ledger = world.ledger();
    assert_eq!(ledger.calls.len(), 4, "to open it, and for each byte: {ledger:?}");
    assert!(ledger.calls.iter().all(|call| call.end.is_some()), "{ledger:?}");
    // The ledger and the link's own bill agree: same calls, same money.
    let bill = world.network.links()[0].bill(world.network.now()).unwrap();
    assert_eq!(bill.calls.len(), 4);
    for (ours, its) in ledger.calls.iter().zip(&bill.calls) {
        let difference = ours.airtime().ns.abs_diff(its.usage.time.ns);
        assert!(difference <= 1_000_000, "{ours:?} {its:?}");
    }
    assert_eq!(world.terminal().line.cost, bill.total);
}

#[test]
fn what_does_not_ask_for_the_line_is_counted_by_name() {
    let text = pair("")
        + "[[workloads]]\nname = 'echo'\napp = 'ping'\nclient = 'ship'\nserver = 'hub'\ncount = 5\n\
        timeout = '20 s'\n[[workloads]]\nname = 'clock'\napp = 'datagrams'\nclient = 'ship'\nserver = 'hub'\n\
        direction = 'upload'\nport = 123\nbytes = '48 B'\ninterval = '1 s'\nduration = '7 s'\n";
    let scenario = Scenario::parse("x", &text, &[]);
    let scenario = match scenario {
        Ok(scenario) => scenario,
        Err(problem) => panic!("{problem}"),
    };
    let record = super::run(&scenario, &Default::default(), &Default::default()).unwrap();
    let case = &record.cases[0];
    assert_eq!(case.links.iter().find(|link| link.name == "sat").unwrap().circuit.as_ref().unwrap().calls, 0);
    let terminal = &case.gateways[0].sides[1];
    let count = |name: &str| terminal.measurements.iter().find(|m| m.quantity == name).map(|m| m.value);
    assert_eq!((count("dropped_ping"), count("dropped_ntp")), (Some(5.0), Some(7.0)), "{:?}", terminal.measurements);
    assert_eq!(Unwanted::Ping.to_string(), "ping");
}

#[test]
fn at_the_cap_requests_are_refused_and_the_reason_is_logged() {
    let text = pair("").replace("first = '20 s' }", "first = '20 s' }, caps = { day = '1.50' }");
    let (mut world, _) = World::new(&text);
    let first = world.client(&[]);
    world.run_until(at(1000));
    assert!(first.lock().unwrap().open);
    assert!(world.terminal().line.cost > "0.48".parse().unwrap());
    let second = world.client(&[]);
    world.run_until(at(2000));
    let third = world.client(&[]);
    world.run_until(at(2001));
    let refused = [&second, &third].map(|client| client.lock().unwrap().over);
    assert!(refused[1], "at once");
    let log = world.pairs.left(&world.network)[0][1].log.clone();
    assert!(format!("{log:?}").contains("CapReached"), "{log:?}");
    assert!(world.terminal().line.cost <= "1.50".parse().unwrap(), "{:?}", world.terminal().line.cost);
    assert!(!first.lock().unwrap().over, "what is open stays open");
}

#[test]
fn a_scenario_dials_circuits_only() {
    let problem = |text: &str| Scenario::parse("x.toml", text, &[]).unwrap_err().to_string();
    let fixed = "title = 'x'\n[links.sat]\nkind = 'geo-two-way'\nbetween = ['hub', 'ship']\n[gateways.sat.dial]\n";
    assert!(problem(fixed).contains("gateways.sat.dial: link sat has no circuit"), "{}", problem(fixed));
    let hook = pair("hook = ['line']\n");
    assert!(problem(&hook).contains("gateways.sat.dial.hook: only a daemon's file"), "{}", problem(&hook));
}
