//! The virtual clock: sites and links, and a time that jumps from one event to the next.

pub use crate::host::ModelLine;
use crate::host::ip::Ip;
use crate::host::{GatewayPlace, Host, LineOrder};
use crate::tcp::Connection;
use crate::tcp::settings::Settings;
pub use crate::view::ConnectionView;
use bentpipe_link::agenda::Agenda;
use bentpipe_link::circuit::{Circuit, LineState};
use bentpipe_link::config::LinkConfig;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::datagram::Datagram;
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::line::{LineEvent, LineFailure};
use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::seed::Seed;
use bentpipe_net::socket::Program;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::time::Instant;
use bentpipe_net::topology::{LinkSpec, Plan, PlanError, Role};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

/// The setup of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The links, and what they do.
    pub links: Vec<(LinkSpec, LinkConfig)>,
    /// Roles of sites that are not the default ones.
    pub roles: BTreeMap<String, Role>,
    /// TCP settings by site; a site that is missing has the "linux" ones.
    pub tcp: BTreeMap<String, TcpConfig>,
    /// Seed of every random stream.
    pub seed: u64,
}

/// Why a network cannot be simulated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The links make no network.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A TCP setting that the simulator does not know.
    #[error("hosts.{site}.tcp.{key}: {message}")]
    Tcp {
        /// The site.
        site: String,
        /// The setting's key.
        key: &'static str,
        /// The mistake and the allowed values.
        message: String,
    },
}

/// A gateway was to stand between a site and a link that has no end there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the gateway's site is not at the link")]
pub struct NotAtLink;

/// A program of a site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProgramId {
    /// The site's number.
    pub site: usize,
    /// The program's number there.
    pub number: u32,
}

/// Why [`Network::run_until`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stop {
    /// The time has come.
    Reached,
    /// A program became done.
    ProgramDone,
    /// Nothing will ever happen again by itself.
    Idle,
}

/// A line that a site's gateway dials, and its state as the gateway knows it.
#[derive(Clone, Copy, Debug)]
struct DialledLine {
    link: usize,
    site: usize,
    state: LineState,
}

/// Sees every packet that leaves or reaches a site.
pub trait Observer {
    /// A packet passes interface number `interface` of site number `site`.
    fn packet(&mut self, now: Instant, site: usize, interface: usize, outbound: bool, packet: &DatagramPacket);
}

/// Sites and links in virtual time; sites have programs of workloads (`P`) and gateways (`G`).
pub struct Network<P, G = Infallible> {
    plan: Plan,
    links: Vec<Link<DatagramPacket>>,
    hosts: Vec<Host<P, G>>,
    /// (link, port) of each interface of each site.
    attached: Vec<Vec<(usize, Port)>>,
    /// When each node is due: links first, then hosts.
    due: Agenda,
    now: Instant,
    /// A program has become done since [`Network::run_until`] last returned.
    done: bool,
    /// Programs that have become done and were not asked for yet.
    done_programs: Vec<ProgramId>,
    observers: Vec<Box<dyn Observer>>,
    /// Lines that gateways dial.
    lines: Vec<DialledLine>,
    /// Free list that sites share: one that receives more packets than it sends feeds one that sends more.
    #[allow(clippy::vec_box)] // the allocations are what is reused
    free_list: Vec<Box<Datagram>>,
}

impl<P: Program, G: GatewayProgram> Network<P, G> {
    /// Builds the network; its time is zero.
    pub fn new(setup: &Setup) -> Result<Network<P, G>, NetworkError> {
        let specs: Vec<LinkSpec> = setup.links.iter().map(|(spec, _)| spec.clone()).collect();
        let plan = Plan::new(&specs, &setup.roles)?;
        let seed = Seed(setup.seed);
        let links: Vec<Link<DatagramPacket>> = setup
            .links
            .iter()
            .map(|(spec, config)| Link::new(config, spec.sites.len() - 1, seed.child(&format!("links/{}", spec.name))))
            .collect();
        let mut attached: Vec<Vec<(usize, Port)>> = plan.sites.iter().map(|_| Vec::new()).collect();
        for (number, link) in plan.links.iter().enumerate() {
            for (port, (site, interface)) in link.ports.iter().enumerate() {
                debug_assert_eq!(attached[*site].len(), *interface, "interfaces are in the order of the links");
                attached[*site].push((number, Port(port)));
            }
        }
        let default = TcpConfig::from_table(toml::Table::new()).unwrap_or_default();
        let mut hosts = Vec::new();
        for (site, attached) in plan.sites.iter().zip(&attached) {
            let config = setup.tcp.get(&site.name).unwrap_or(&default);
            let settings = Settings::new(config).map_err(|message| NetworkError::Tcp {
                site: site.name.clone(),
                key: "congestion_control",
                message,
            })?;
            let kinds: Vec<(bool, bool)> = attached
                .iter()
                .map(|(link, _)| (specs[*link].carries_ethernet, plan.links[*link].ports.len() > 2))
                .collect();
            let ip = Ip::new(site, &kinds, settings.mtu);
            hosts.push(Host::new(ip, settings, seed.child(&format!("sites/{}", site.name))));
        }
        let due = Agenda::new(links.len() + hosts.len());
        Ok(Network {
            plan,
            links,
            hosts,
            attached,
            due,
            now: Instant::ZERO,
            done: false,
            done_programs: Vec::new(),
            observers: Vec::new(),
            lines: Vec::new(),
            free_list: Vec::new(),
        })
    }

    /// Addresses and routes.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Starts a program at a site; it is polled at once.
    pub fn start(&mut self, site: usize, program: P) -> ProgramId {
        let number = self.hosts[site].start(self.now, program);
        self.drain(site);
        ProgramId { site, number }
    }

    /// Starts the gateway of a site (one at most), which sees what others send towards link number `link`; it is polled
    /// at once. `dials`: the link's circuit is set up and ended by it only.
    pub fn start_gateway(&mut self, site: usize, link: usize, gateway: G, dials: bool) -> Result<ProgramId, NotAtLink> {
        let interface = self.attached[site].iter().position(|(at, _)| *at == link).ok_or(NotAtLink)?;
        let address = |number: usize| Some((self.plan.sites[number].name.clone(), self.plan.address(number)?));
        let names = Arc::new((0..self.plan.sites.len()).filter_map(address).collect());
        if dials {
            self.links[link].set_commanded();
            self.lines.push(DialledLine { link, site, state: LineState::Down });
        }
        let place = GatewayPlace { link: interface, dials, names };
        let number = self.hosts[site].start_gateway(self.now, gateway, place);
        self.drain(site);
        Ok(ProgramId { site, number })
    }

    /// A program that runs.
    #[must_use]
    pub fn program(&self, id: ProgramId) -> Option<&P> {
        self.hosts.get(id.site)?.program(id.number)
    }

    /// A gateway that runs.
    #[must_use]
    pub fn gateway(&self, id: ProgramId) -> Option<&G> {
        self.hosts.get(id.site)?.gateway(id.number)
    }

    /// Ends a program: its sockets are closed as at a process's end. `None`: there was none, or it was a gateway.
    pub fn stop(&mut self, id: ProgramId) -> Option<P> {
        let program = self.hosts.get_mut(id.site)?.stop(self.now, id.number);
        self.drain(id.site);
        program
    }

    /// Runs every event up to and including `until`; returns early when a program becomes done.
    pub fn run_until(&mut self, until: Instant) -> Stop {
        if self.take_done() {
            return Stop::ProgramDone;
        }
        loop {
            let (node, at) = self.due.first();
            if at > until {
                self.now = self.now.max(until);
                self.wake_links();
                return if at == Instant::FAR { Stop::Idle } else { Stop::Reached };
            }
            self.now = self.now.max(at);
            if node < self.links.len() {
                self.run_link(node);
            } else {
                let site = node - self.links.len();
                self.hosts[site].wake(self.now);
                self.drain(site);
            }
            if self.take_done() {
                self.wake_links();
                return Stop::ProgramDone;
            }
        }
    }

    /// Brings the counters of all links up to now.
    fn wake_links(&mut self) {
        for (number, link) in self.links.iter_mut().enumerate() {
            link.wake(self.now);
            self.due.set(number, link.next_wake());
        }
    }

    /// Programs that have become done since the last call, in the order in which they did.
    pub fn take_done_programs(&mut self) -> Vec<ProgramId> {
        std::mem::take(&mut self.done_programs)
    }

    fn take_done(&mut self) -> bool {
        std::mem::take(&mut self.done)
    }

    fn run_link(&mut self, number: usize) {
        let now = self.now;
        while let Some((port, packet)) = self.links[number].next_arrival(now) {
            let (site, interface) = self.plan.links[number].ports[port.0];
            for observer in &mut self.observers {
                observer.packet(now, site, interface, false, &packet);
            }
            self.hosts[site].receive(now, Port(interface), packet);
            self.hand_over(site, number);
        }
        self.due.set(number, self.links[number].next_wake());
        if !self.lines.is_empty() {
            for number in 0..self.lines.len() {
                self.obey(self.lines[number].site);
            }
            self.tell_lines();
        }
    }

    /// Hands what a site sends to its links.
    fn drain(&mut self, site: usize) {
        self.hand_over(site, usize::MAX);
    }

    /// The same; the caller asks link number `running` itself when it is due.
    fn hand_over(&mut self, site: usize, running: usize) {
        let now = self.now;
        let mut last = usize::MAX;
        while let Some((interface, packet)) = self.hosts[site].poll_transmit(now) {
            for observer in &mut self.observers {
                observer.packet(now, site, interface.0, true, &packet);
            }
            let (link, port) = self.attached[site][interface.0];
            self.links[link].receive(now, port, packet);
            if last != link && last != usize::MAX && last != running {
                self.due.set(last, self.links[last].next_wake());
            }
            last = link;
        }
        if last != usize::MAX && last != running {
            self.due.set(last, self.links[last].next_wake());
        }
        self.hosts[site].share_free_lists(&mut self.free_list);
        if self.hosts[site].has_done() {
            self.done = true;
            self.done_programs.extend(self.hosts[site].take_done().map(|number| ProgramId { site, number }));
        }
        self.due.set(self.links.len() + site, self.hosts[site].next_wake());
        if !self.lines.is_empty() && running == usize::MAX {
            self.obey(site);
        }
    }

    /// Does what the gateway of `site` asks of its line.
    fn obey(&mut self, site: usize) {
        let Some(order) = self.hosts[site].take_line_order() else { return };
        let Some(link) = self.lines.iter().find(|line| line.site == site).map(|line| line.link) else { return };
        match order {
            LineOrder::Dial => self.links[link].dial(self.now),
            LineOrder::HangUp => self.links[link].hang_up(self.now),
        }
        self.due.set(link, self.links[link].next_wake());
        self.tell_lines();
    }

    /// Tells gateways how their lines have changed.
    fn tell_lines(&mut self) {
        for number in 0..self.lines.len() {
            let DialledLine { link, site, state: before } = self.lines[number];
            let Some(state) = self.links[link].circuit().map(Circuit::state) else { continue };
            let event = match (before, state) {
                (LineState::Dialling | LineState::Down, LineState::Up) => LineEvent::Up,
                (LineState::Dialling, LineState::Down) => LineEvent::Failed(LineFailure::Refused),
                (LineState::Up, LineState::Down | LineState::Dialling) => LineEvent::Down,
                _ => {
                    self.lines[number].state = state;
                    continue;
                }
            };
            self.lines[number].state = state;
            self.hosts[site].on_line(self.now, event, state == LineState::Up);
            self.drain(site);
        }
    }

    /// The line that the gateway of a site dials.
    #[must_use]
    pub fn line(&self, site: usize) -> Option<&ModelLine> {
        self.hosts.get(site)?.line()
    }

    /// The links, in the order they were given; their counters are as of [`Network::now`] after [`Network::run_until`].
    #[must_use]
    pub fn links(&self) -> &[Link<DatagramPacket>] {
        &self.links
    }

    /// The connections of a site: those that are over, then those that are not.
    #[must_use]
    pub fn connections(&self, site: usize) -> Vec<ConnectionView> {
        let over = self.ended_connections(site, 0).iter().cloned();
        over.chain(self.open_connections(site, |_, _, _| true)).collect()
    }

    /// Connections of a site that are over but for the first `ended` of them, as they were at their end.
    #[must_use]
    pub fn ended_connections(&self, site: usize, ended: usize) -> &[ConnectionView] {
        self.hosts.get(site).and_then(|host| host.ended_connections().get(ended..)).unwrap_or_default()
    }

    /// Connections of a site that are not over and that `wanted` chooses by when they began, their own end and the other.
    pub fn open_connections(
        &self,
        site: usize,
        mut wanted: impl FnMut(Instant, SocketAddr, SocketAddr) -> bool,
    ) -> impl Iterator<Item = ConnectionView> {
        let open = self.hosts.get(site).into_iter().flat_map(Host::open_connections);
        let wanted = move |connection: &&Connection| {
            wanted(connection.facts().start, connection.local().into(), connection.remote().into())
        };
        open.filter(wanted).map(ConnectionView::of)
    }

    /// Shows every packet from now on to `observer`.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }
}

impl<P, G> std::fmt::Debug for Network<P, G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("now", &self.now).field("plan", &self.plan).finish_non_exhaustive()
    }
}
