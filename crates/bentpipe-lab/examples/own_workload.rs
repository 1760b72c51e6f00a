//! A kind of workload of one's own: a sensor that sends readings by datagram, simulated over a noisy satellite link.
//!
//! `cargo run -p bentpipe-lab --example own_workload`

use bentpipe_apps::kind::{CLIENT, Keys, Kind, PartyProgram, PortNeed, Role, SERVER, Setting, Workload};
use bentpipe_apps::quantity::{LOSS, Quantity, RECEIVED, SENT};
use bentpipe_apps::report::{App, Report, Status};
use bentpipe_apps::{Direction, Registry};
use bentpipe_lab::scenario::Scenario;
use bentpipe_lab::simulated::{self, SimulatedOptions};
use bentpipe_net::problem::KeyProblem;
use bentpipe_net::socket::{Program, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const SCENARIO: &str = r#"
title = "A buoy"
[links.sat]
kind = "geo-two-way"
between = ["station", "buoy"]
noise = 1e-5

[[workloads]]
name = "temperature"
app = "sensor"
client = "buoy"
server = "station"
readings = 500
every = "1 s"
"#;

/// The kind: its name, its roles, what it measures, how its keys are read.
#[derive(Debug)]
struct Sensor;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Readings {
    readings: u32,
    every: Duration,
    port: Option<u16>,
}

impl Kind for Sensor {
    fn name(&self) -> &'static str {
        "sensor"
    }

    fn roles(&self) -> &'static [Role] {
        const { &[CLIENT, SERVER] }
    }

    fn quantities(&self) -> &'static [Quantity] {
        &[SENT, RECEIVED, LOSS]
    }

    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem> {
        let readings: Readings = keys.read()?;
        if readings.every == Duration::ZERO {
            return Err(KeyProblem::new("every", "is zero; allowed: longer than zero"));
        }
        Ok(Arc::new(readings))
    }
}

/// One workload of the kind: its ports, a program for each party, how their reports become one.
impl Workload for Readings {
    fn ports(&self) -> Vec<PortNeed> {
        vec![PortNeed { role: 1, key: "port", chosen: self.port, default: 9000 }]
    }

    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        let station = setting.first(1);
        PartyProgram::App(if number == 0 {
            let to = SocketAddr::new(station.address, station.ports[0]);
            Box::new(Buoy { plan: self.clone(), to, socket: None, sent: 0, next: Instant::ZERO, ended: None })
        } else {
            Box::new(Station { port: station.ports[0], socket: None, received: 0 })
        })
    }

    fn combine(&self, parties: Vec<bentpipe_apps::kind::PartyReport>) -> Report {
        let mut joined = bentpipe_apps::kind::join(parties);
        if let (Some(sent), Some(received)) = (joined.value(SENT), joined.value(RECEIVED)) {
            joined.put(LOSS, 1.0 - received / sent.max(1.0));
        }
        joined
    }

    fn direction(&self) -> Option<Direction> {
        Some(Direction::Upload)
    }
}

struct Buoy {
    plan: Readings,
    to: SocketAddr,
    socket: Option<SocketId>,
    sent: u32,
    next: Instant,
    ended: Option<Instant>,
}

/// The buoy waits as long after its last reading, so that it can arrive.
impl Program for Buoy {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        if self.is_done() || now < self.next {
            return;
        }
        if self.socket.is_none() {
            self.socket = sockets.open_datagram(0).ok();
        }
        if let Some(socket) = self.socket.filter(|_| self.sent < self.plan.readings) {
            // No room, or no route now: the reading is lost.
            let _ = sockets.send_to(socket, self.to, &[0; 100]);
        }
        self.sent += 1;
        self.next = now + self.plan.every;
        self.ended = self.is_done().then_some(now);
    }

    fn next_wake(&self) -> Option<Instant> {
        (!self.is_done()).then_some(self.next)
    }

    fn is_done(&self) -> bool {
        self.sent > self.plan.readings
    }
}

impl App for Buoy {
    fn report(&self, _now: Instant) -> Report {
        let status = if self.is_done() { Status::Done } else { Status::Running };
        let mut report = Report::new(status, self.ended);
        report.put(SENT, f64::from(self.sent.min(self.plan.readings)));
        report
    }
}

struct Station {
    port: u16,
    socket: Option<SocketId>,
    received: u32,
}

impl Program for Station {
    fn poll(&mut self, _now: Instant, sockets: &mut dyn Sockets) {
        if self.socket.is_none() {
            self.socket = sockets.open_datagram(self.port).ok();
        }
        while let Some(socket) = self.socket
            && let Ok(Some(_)) = sockets.receive_from(socket, &mut [0; 100])
        {
            self.received += 1;
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.socket.is_none().then_some(Instant::ZERO)
    }

    /// Nobody waits for it: it ends with the buoy.
    fn is_done(&self) -> bool {
        true
    }
}

impl App for Station {
    fn report(&self, _now: Instant) -> Report {
        let mut report = Report::new(Status::Running, None);
        report.put(RECEIVED, f64::from(self.received));
        report
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kinds = bentpipe_lab::registry::Registry::default().with_workloads(Registry::standard().with(Sensor));
    let scenario = Scenario::parse_with(&Arc::new(kinds), "buoy.toml", SCENARIO, &[])?;
    let record = simulated::run(&scenario, &SimulatedOptions::default(), &AtomicBool::new(false))?;
    println!("{}", serde_json::to_string_pretty(&record.cases[0].workloads)?);
    Ok(())
}
