//! STAND-IN for the network of simulated hosts, replaced by the real one: the same interface, but no packet moves.
//! Programs are polled, their connections stay in the handshake for ever, and what they time by themselves happens.

use bentpipe_link::config::LinkConfig;
use bentpipe_link::flow::FlowFacts;
use bentpipe_link::link::Link;
use bentpipe_link::packet::Packet;
use bentpipe_link::seed::Seed;
use bentpipe_link::socket::{Connection, Program, Received, ReceivedPattern, SocketError, SocketId, Sockets};
use bentpipe_link::stack::TcpConfig;
use bentpipe_link::time::{Duration, Instant};
use bentpipe_link::topology::{self, LinkSpec, Plan};
use bentpipe_link::units::BitRate;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// What to simulate.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Links with their models.
    pub links: Vec<(LinkSpec, LinkConfig)>,
    /// Roles other than the usual.
    pub roles: BTreeMap<String, topology::Role>,
    /// TCP settings by site.
    pub tcp: BTreeMap<String, TcpConfig>,
    /// Seed of every random stream.
    pub seed: u64,
}

/// Why there is no such network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The links make no network.
    #[error(transparent)]
    Plan(#[from] topology::PlanError),
}

/// A program that runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProgramId {
    /// Where.
    pub site: usize,
    /// Which one there.
    pub number: u32,
}

/// Why a run stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// The time was reached.
    Reached,
    /// A program became done; it is that time now.
    ProgramDone,
    /// Nothing will ever happen again.
    Idle,
}

/// Sees every packet at every interface.
pub trait Observer {
    /// A packet leaves a site (`outbound`) or reaches it.
    fn packet(&mut self, now: Instant, site: usize, interface: usize, outbound: bool, packet: &Packet);
}

/// One end of a TCP connection.
#[derive(Clone, Debug)]
pub struct ConnectionView {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Its congestion control.
    pub congestion_control: &'static str,
    /// It has not ended.
    pub open: bool,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow-start threshold, in segments; `None` while infinite.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time; zero before the first measurement.
    pub srtt: Duration,
    /// Retransmission time-out.
    pub rto: Duration,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Segments sent and not yet acknowledged.
    pub unacked_segments: u32,
    /// As last estimated.
    pub delivery_rate: BitRate,
    /// What its packets showed.
    pub facts: FlowFacts,
}

/// Sites, links and programs in virtual time.
pub struct Network<P> {
    plan: Plan,
    links: Vec<Link>,
    now: Instant,
    programs: BTreeMap<ProgramId, P>,
    started: u32,
}

impl<P: Program> Network<P> {
    /// An idle network at time zero.
    pub fn new(setup: &Setup) -> Result<Network<P>, NetworkError> {
        let specs: Vec<LinkSpec> = setup.links.iter().map(|(spec, _)| spec.clone()).collect();
        let plan = Plan::new(&specs, &setup.roles)?;
        let seed = |spec: &LinkSpec| Seed(setup.seed).child(&format!("links/{}", spec.name));
        let link = |(spec, config): &(LinkSpec, LinkConfig)| Link::new(config, spec.sites.len() - 1, seed(spec));
        let links = setup.links.iter().map(link).collect();
        Ok(Network { plan, links, now: Instant::ZERO, programs: BTreeMap::new(), started: 0 })
    }

    /// Sites and addresses.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Starts a program, which is polled at once.
    pub fn start(&mut self, site: usize, mut program: P) -> ProgramId {
        self.started += 1;
        let id = ProgramId { site, number: self.started };
        program.poll(self.now, &mut NoPackets { next: 0 });
        self.programs.insert(id, program);
        id
    }

    /// A program that was not stopped.
    #[must_use]
    pub fn program(&self, id: ProgramId) -> Option<&P> {
        self.programs.get(&id)
    }

    /// Ends a program; its sockets are closed as at a process's end.
    pub fn stop(&mut self, id: ProgramId) -> Option<P> {
        self.programs.remove(&id)
    }

    /// Lets everything happen that is due by `until`; returns early when a program becomes done.
    pub fn run_until(&mut self, until: Instant) -> Halt {
        while let Some(due) = self.programs.values().filter_map(Program::next_wake).min() {
            if due > until {
                self.now = self.now.max(until);
                return Halt::Reached;
            }
            self.now = self.now.max(due);
            let mut done = false;
            for program in self.programs.values_mut().filter(|p| p.next_wake().is_some_and(|wake| wake <= due)) {
                let before = program.is_done();
                program.poll(self.now, &mut NoPackets { next: 0 });
                done |= !before && program.is_done();
            }
            if done {
                return Halt::ProgramDone;
            }
        }
        self.now = self.now.max(until);
        Halt::Idle
    }

    /// In the order of the setup.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Connections of a site, live and ended ones.
    #[must_use]
    pub fn connections(&self, _site: usize) -> Vec<ConnectionView> {
        Vec::new()
    }

    /// Shows every packet from now on to `observer`.
    pub fn observe(&mut self, _observer: Box<dyn Observer>) {}
}

/// Sockets through which nothing goes.
struct NoPackets {
    next: u32,
}

impl NoPackets {
    fn open(&mut self) -> SocketId {
        self.next += 1;
        SocketId(self.next)
    }
}

impl Sockets for NoPackets {
    fn connect(&mut self, _to: SocketAddr) -> Result<SocketId, SocketError> {
        Ok(self.open())
    }
    fn connection(&mut self, _socket: SocketId) -> Result<Connection, SocketError> {
        Ok(Connection::Opening)
    }
    fn listen(&mut self, _port: u16) -> Result<SocketId, SocketError> {
        Ok(self.open())
    }
    fn accept(&mut self, _listener: SocketId) -> Result<Option<SocketId>, SocketError> {
        Ok(None)
    }
    fn local_address(&mut self, _socket: SocketId) -> Result<SocketAddr, SocketError> {
        Err(SocketError::Closed)
    }
    fn peer_address(&mut self, _socket: SocketId) -> Result<SocketAddr, SocketError> {
        Err(SocketError::Closed)
    }
    fn send(&mut self, _socket: SocketId, _data: &[u8]) -> Result<usize, SocketError> {
        Ok(0)
    }
    fn send_pattern(&mut self, _: SocketId, _pattern: u64, _offset: u64, _length: u64) -> Result<u64, SocketError> {
        Ok(0)
    }
    fn receive(&mut self, _socket: SocketId, _into: &mut [u8]) -> Result<Received, SocketError> {
        Ok(Received::Nothing)
    }
    fn receive_pattern(
        &mut self,
        _socket: SocketId,
        _pattern: u64,
        _offset: u64,
        _max: u64,
    ) -> Result<ReceivedPattern, SocketError> {
        Ok(ReceivedPattern::Nothing)
    }
    fn finish(&mut self, _socket: SocketId) {}
    fn close(&mut self, _socket: SocketId) {}
    fn abort(&mut self, _socket: SocketId) {}
    fn open_datagram(&mut self, _port: u16) -> Result<SocketId, SocketError> {
        Ok(self.open())
    }
    fn send_to(&mut self, _socket: SocketId, _to: SocketAddr, _data: &[u8]) -> Result<bool, SocketError> {
        Ok(true)
    }
    fn receive_from(&mut self, _: SocketId, _into: &mut [u8]) -> Result<Option<(usize, SocketAddr)>, SocketError> {
        Ok(None)
    }
    fn open_echo(&mut self) -> Result<SocketId, SocketError> {
        Ok(self.open())
    }
    fn send_echo(&mut self, _: SocketId, _to: IpAddr, _sequence: u16, _data: &[u8]) -> Result<bool, SocketError> {
        Ok(true)
    }
    fn receive_echo(&mut self, _: SocketId, _: &mut [u8]) -> Result<Option<(u16, usize, Instant)>, SocketError> {
        Ok(None)
    }
}
