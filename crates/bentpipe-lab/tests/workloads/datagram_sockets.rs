//! What a program may rely on of UDP sockets: one body, over kernel sockets and simulated ones.

use crate::support;
use bentpipe_apps::kind::{Keys, Kind, PartyProgram, PortNeed, Setting, Workload};
use bentpipe_apps::quantity::{Quantity, Unit};
use bentpipe_apps::report::{App, Report, Status};
use bentpipe_lab::record::Record;
use bentpipe_lab::registry::Registry;
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use bentpipe_net::dscp::Dscp;
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::socket::{Program, SocketError, SocketId, SocketOption, Sockets};
use bentpipe_net::time::{Duration, Instant};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Datagrams that are sent in one poll.
const BURST: usize = 20;
/// Each is one fragment and a half.
const BYTES: usize = 2200;
const PATIENCE: Duration = Duration::from_secs(2);

const ARRIVED: Quantity = Quantity::higher("arrived", Unit::Number);
const IN_ORDER: Quantity = Quantity::higher("in_order", Unit::Number);
const MARKED: Quantity = Quantity::higher("marked", Unit::Number);
/// From the first arrival to the last, by the stack's stamps.
const SPAN: Quantity = Quantity::neutral("span", Unit::Seconds);
/// From the sender's poll to the first arrival.
const DELAY: Quantity = Quantity::neutral("delay", Unit::Seconds);
const REFUSED: Quantity = Quantity::neutral("refused", Unit::Number);
const REFUSED_AFTER: Quantity = Quantity::neutral("refused_after", Unit::Seconds);

/// The client sends a burst to the server, which answers none, then one datagram to a port that nobody has, and then a
/// last one to the server.
#[derive(Debug)]
struct Probe;

#[derive(Debug)]
struct ProbeWorkload;

impl Kind for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }
    fn quantities(&self) -> &'static [Quantity] {
        &[ARRIVED, IN_ORDER, MARKED, SPAN, DELAY, REFUSED, REFUSED_AFTER]
    }
    fn read(&self, _: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        Ok(Arc::new(ProbeWorkload))
    }
}

impl Workload for ProbeWorkload {
    fn ports(&self) -> Vec<PortNeed> {
        vec![PortNeed { role: 1, key: "port", chosen: None, default: 7000 }]
    }
    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        let server = setting.first(1);
        let to = SocketAddr::new(server.address, server.ports[0]);
        PartyProgram::App(match number {
            0 => Box::new(Sender { to, socket: None, started: Instant::ZERO, refused: None, ended: None }),
            _ => Box::new(Receiver { port: to.port(), socket: None, arrivals: Vec::new() }),
        })
    }
}

struct Sender {
    to: SocketAddr,
    socket: Option<SocketId>,
    started: Instant,
    refused: Option<Instant>,
    ended: Option<Instant>,
}

impl Program for Sender {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        let Some(socket) = self.socket else {
            let socket = *self.socket.insert(sockets.open_datagram(0).unwrap());
            self.started = now;
            sockets.set_option(socket, SocketOption::Dscp(Dscp::EF)).unwrap();
            assert!(sockets.set_option(socket, SocketOption::NoDelay).is_err(), "an option of TCP");
            for number in 0..BURST {
                let data: Vec<u8> = now.ns.to_be_bytes().into_iter().chain(vec![number as u8; BYTES - 8]).collect();
                assert_eq!(sockets.send_to(socket, self.to, &data), Ok(true));
            }
            assert_eq!(sockets.send_to(socket, SocketAddr::new(self.to.ip(), 9), b"nobody"), Ok(true));
            return;
        };
        match sockets.receive_from(socket, &mut [0; 64]) {
            Err(SocketError::Refused) => {
                // It is reported once, and the socket serves on.
                self.refused = Some(now);
                assert_eq!(sockets.receive_from(socket, &mut [0; 64]), Ok(None));
                assert_eq!(sockets.send_to(socket, self.to, &[0; 8]), Ok(true));
            }
            other => assert_eq!(other, Ok(None)),
        }
        if now >= self.started + PATIENCE {
            self.ended = Some(now);
        }
    }
    fn next_wake(&self) -> Option<Instant> {
        match (self.socket, self.ended) {
            (None, _) => Some(Instant::ZERO),
            (Some(_), None) => Some(self.started + PATIENCE),
            (Some(_), Some(_)) => None,
        }
    }
    fn is_done(&self) -> bool {
        self.ended.is_some()
    }
}

impl App for Sender {
    fn report(&self, _: Instant) -> Report {
        let mut report = Report::new(if self.is_done() { Status::Done } else { Status::Running }, self.ended);
        report.put(REFUSED, f64::from(u8::from(self.refused.is_some())));
        if let Some(at) = self.refused {
            report.put(REFUSED_AFTER, at.since(self.started).as_secs_f64());
        }
        report
    }
}

struct Receiver {
    port: u16,
    socket: Option<SocketId>,
    /// Sent, arrived, number, traffic class.
    arrivals: Vec<(Instant, Instant, u8, u8)>,
}

impl Program for Receiver {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        let socket = *self.socket.get_or_insert_with(|| sockets.open_datagram(self.port).unwrap());
        let mut data = [0; 65_535];
        while let Ok(Some(arrival)) = sockets.receive_from(socket, &mut data) {
            assert!(arrival.at <= now + Duration::from_millis(1), "{arrival:?} at {now:?}");
            if arrival.bytes == BYTES {
                let sent = Instant { ns: u64::from_be_bytes(data[..8].try_into().unwrap()) };
                self.arrivals.push((sent, arrival.at, data[8], arrival.traffic_class));
            }
        }
    }
    fn next_wake(&self) -> Option<Instant> {
        self.socket.is_none().then_some(Instant::ZERO)
    }
    fn is_done(&self) -> bool {
        true
    }
}

impl App for Receiver {
    fn report(&self, _: Instant) -> Report {
        let mut report = Report::new(Status::Running, None);
        report.put(ARRIVED, self.arrivals.len() as f64);
        report.put(IN_ORDER, f64::from(u8::from(self.arrivals.is_sorted_by_key(|(_, at, number, _)| (*at, *number)))));
        report.put(MARKED, self.arrivals.iter().filter(|arrival| arrival.3 == 46 << 2).count() as f64);
        if let (Some((sent, first, ..)), Some((_, last, ..))) = (self.arrivals.first(), self.arrivals.last()) {
            report.put(SPAN, last.since(*first).as_secs_f64());
            report.put(DELAY, first.since(*sent).as_secs_f64());
        }
        report
    }
}

/// 1 Mbit/s, so that what was sent at once arrives one after the other.
const SCENARIO: &str = "title = 'x'\n[links.l]\nkind = 'lan'\nrate = '1 Mbit/s'\none_way_delay = '50 ms'\n\
    queue = { packets = 1000 }\nbetween = ['hub', 'ship']\n[[workloads]]\napp = 'probe'\nclient = 'ship'\nserver = 'hub'\n";

fn scenario() -> Scenario {
    let registry = Registry::default().with_workloads(bentpipe_apps::Registry::standard().with(Probe));
    Scenario::parse_with(&Arc::new(registry), "s.toml", SCENARIO, &[]).unwrap()
}

/// `tolerance`: of times, in seconds.
fn check(record: &Record, tolerance: f64) {
    let workload = &record.cases[0].workloads[0];
    let value = |quantity: Quantity| workload.measurement(quantity.name).unwrap().value;
    let counts = [ARRIVED, IN_ORDER, MARKED, REFUSED].map(value);
    assert_eq!(counts, [BURST as f64, 1.0, BURST as f64, 1.0], "{workload:#?}");
    // Two packets: 2200 B of data and 8 B of UDP header, each with an IP header; what the link adds is its framing's.
    let each = (BYTES as f64 + 8.0 + 40.0) * 8.0 / 1e6;
    let link = value(DELAY) - 0.05;
    assert!(link >= each - 1e-9 && link < each * 1.05 + tolerance, "{link}");
    let span = value(SPAN);
    assert!((span - (BURST - 1) as f64 * link).abs() < tolerance + 1e-6 * BURST as f64, "{span}");
    // The refused one is behind the burst; its answer is short and comes at once.
    let refused = value(REFUSED_AFTER);
    assert!(refused > span + 0.1 && refused < span + 0.1 + 2.0 * each + tolerance, "{refused}");
}

#[test]
fn in_virtual_time() {
    let record = simulated::run(&scenario(), &SimulatedOptions::default(), &AtomicBool::new(false)).unwrap();
    check(&record, 0.0);
}

#[test]
fn live() {
    if let Some(record) = support::live_scenario(&scenario(), None) {
        check(&record, 0.02);
    }
}
