//! A running emulation: sites, links between them, programs inside.

use crate::clock::Clock;
use crate::line::LineDevice;
use crate::listening::{Listener, listeners};
use crate::namespace::{Namespace, NamespaceError, Privilege};
use crate::pcap::Capture;
use crate::port::{ETHERNET_HEADER, PacketPort, PortRequest};
use crate::program::Program;
use crate::pump::{Pump, PumpControl, PumpLink, PumpOutcome, PumpPort};
use crate::sites::{SiteError, Sites, port_device};
use crate::spawn::{CommandSpec, Spawner};
use crate::tap::Tap;
use crate::tcp_stack::{EffectiveSetting, window_limits};
use bentpipe_link::config::{DirectionConfig, LinkConfig};
use bentpipe_link::link::Link;
use bentpipe_net::seed::Seed;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::topology::{LinkSpec, Plan, PlanError, Role};
use bentpipe_net::units::BitRate;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The network to emulate.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Links with their models.
    pub links: Vec<(LinkSpec, LinkConfig)>,
    /// Roles other than the default ones.
    pub roles: BTreeMap<String, Role>,
    /// TCP settings by site.
    pub tcp: BTreeMap<String, TcpConfig>,
    /// Seed of every random stream.
    pub seed: u64,
    /// Where to write a capture.
    pub capture: Option<PathBuf>,
    /// Text of the programs' /etc/resolv.conf, if not the machine's.
    pub resolver: Option<String>,
}

/// Sites and links that run until [`Emulation::finish`] (or until this process ends).
pub struct Emulation {
    /// Addresses and routes.
    pub plan: Plan,
    tcp: BTreeMap<String, TcpConfig>,
    sites: Sites,
    spawner: Spawner,
    control: Arc<PumpControl>,
    clock: Clock,
    pump: Option<JoinHandle<PumpOutcome>>,
    capture: Option<Capture>,
}

/// The results of an emulation.
#[non_exhaustive]
pub struct EmulationOutcome {
    /// The pump's results.
    pub pump: PumpOutcome,
    /// Packets left out of the capture because the disk was too slow; or why the capture is broken.
    pub capture: Option<io::Result<u64>>,
}

/// Why an emulation could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulationError {
    /// The links make no network.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A site could not be built.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// A port could not be opened.
    #[error("cannot open a packet socket: {0}")]
    Port(NamespaceError),
    /// The capture could not be created.
    #[error("cannot write {0}: {1}")]
    Capture(PathBuf, io::Error),
    /// Something else the kernel refused.
    #[error("cannot start the emulator: {0}")]
    Start(io::Error),
}

/// Rings of received frames by link rate: a host may send far faster than its link for a moment, the more so on a fast one.
const RING_BYTES: [(u64, usize); 3] = [(500_000_000, 64 << 20), (50_000_000, 16 << 20), (0, 4 << 20)];
/// All rings together, as long as each has [`RING_BYTES_LEAST`]: 600 ports of 100 Mbit/s still hold 50 ms each.
const RINGS_BYTES_MAX: usize = 512 << 20;
const RING_BYTES_LEAST: usize = 512 << 10;
/// Buffers made beforehand for a run, in packets and bytes; more are made when they are needed.
const BUFFERS_MAX: u64 = 49_152;
const BUFFER_BYTES_MAX: u64 = 128 << 20;
const BUFFERS_LEAST: u64 = 256;

impl Emulation {
    /// Builds the sites and starts to move packets.
    pub fn start(setup: &Setup, privilege: Privilege) -> Result<Emulation, EmulationError> {
        let specs: Vec<LinkSpec> = setup.links.iter().map(|(spec, _)| spec.clone()).collect();
        let plan = Plan::new(&specs, &setup.roles)?;
        let sites = Sites::build(&plan, &setup.tcp)?;
        let spawner =
            Spawner::start(privilege, &plan.hosts_file(), setup.resolver.as_deref()).map_err(EmulationError::Start)?;
        let ring_most = (RINGS_BYTES_MAX / plan.links.iter().map(|link| link.ports.len()).sum::<usize>().max(1))
            .max(RING_BYTES_LEAST);
        let requests = setup.links.iter().zip(&plan.links).flat_map(|((_, config), link)| {
            let ring_bytes = ring_bytes(config).min(ring_most);
            let frame_bytes = config.mtu as usize + ETHERNET_HEADER + 4;
            let request = move |(site, interface): &(usize, usize)| PortRequest {
                device: port_device(*site, *interface),
                frame_bytes,
                ring_bytes,
            };
            link.ports.iter().map(request)
        });
        let requests = requests.collect();
        let sockets = sites.engine.run(|| PacketPort::open_all(requests)).map_err(EmulationError::Port)?;
        let mut sockets = sockets.into_iter();
        let mut interfaces = Vec::new();
        let mut links = Vec::new();
        let (mut buffers, mut mtu_max) = (0, 1);
        for ((spec, config), link) in setup.links.iter().zip(&plan.links) {
            // What may be under way at once: a round trip at the full rate, and the same again in queues.
            let under_way = BitRate::from_bps(highest_bps(config)).bytes_in(config.round_trip()).saturating_mul(2);
            buffers += under_way / config.mtu + BUFFERS_LEAST;
            mtu_max = mtu_max.max(config.mtu);
            let mut ports = Vec::new();
            for ((site, _), socket) in link.ports.iter().zip(&mut sockets) {
                let capture_interface = interfaces.len() as u32;
                interfaces.push(format!("{}/{}", plan.sites[*site].name, spec.name));
                let addresses = plan.sites[*site].interfaces.iter().filter_map(|i| i.address.map(IpAddr::V4)).collect();
                let limits = setup.tcp.get(&plan.sites[*site].name).map(window_limits).unwrap_or_default();
                let mtu = config.mtu as usize;
                ports.push(PumpPort { socket, tap: Tap::new(addresses, limits), mtu, capture_interface });
            }
            let seed = Seed(setup.seed).child(&format!("links/{}", spec.name));
            let link = Link::new(config, spec.sites.len() - 1, seed);
            links.push(PumpLink { link, ports, carries_ethernet: config.carries_ethernet });
        }
        let capture = match &setup.capture {
            None => None,
            Some(path) => {
                let capture = Capture::create(path, &interfaces);
                Some(capture.map_err(|error| EmulationError::Capture(path.clone(), error))?)
            }
        };
        let buffers = buffers.min(BUFFERS_MAX).min(BUFFER_BYTES_MAX / mtu_max) as usize;
        let mut pump = Pump::new(links, buffers, capture.as_ref().map(Capture::sink)).map_err(EmulationError::Start)?;
        let control = pump.control();
        let clock = pump.restart_clock();
        let pump =
            std::thread::Builder::new().name("pump".into()).spawn(move || pump.run()).map_err(EmulationError::Start)?;
        Ok(Emulation { plan, tcp: setup.tcp.clone(), sites, spawner, control, clock, pump: Some(pump), capture })
    }

    /// Model time.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The running pump's handle.
    #[must_use]
    pub fn control(&self) -> &PumpControl {
        &self.control
    }

    /// The circuit of link number `link`, for a gateway that dials it.
    pub fn line(&self, link: usize) -> io::Result<Box<dyn LineDevice>> {
        Ok(Box::new(self.control.line(link)?))
    }

    /// The namespace of a site.
    #[must_use]
    pub fn namespace(&self, site: usize) -> &Namespace {
        &self.sites.namespaces[site]
    }

    /// The sockets that wait for others in a site.
    pub fn listeners(&self, site: usize) -> Result<BTreeSet<Listener>, NamespaceError> {
        self.sites.namespaces[site].run(listeners)
    }

    /// The TCP settings of a site as its kernel took them.
    #[must_use]
    pub fn effective_settings(&self, site: usize) -> &[EffectiveSetting] {
        &self.sites.effective[site]
    }

    /// Starts a program in a site; it finds every site's address in `BENTPIPE_NAME`.
    pub fn spawn(&self, site: usize, mut spec: CommandSpec) -> io::Result<Program> {
        spec.environment.extend(self.site_variables());
        self.spawner.spawn(&self.sites.namespaces[site], spec)
    }

    /// Starts a helper in the machine's network with the namespace of `site` as its standard input.
    pub(crate) fn spawn_helper(&self, site: usize, spec: CommandSpec) -> io::Result<Program> {
        self.spawner.spawn_helper(&self.sites.namespaces[site], spec)
    }

    /// The TCP settings asked for a site.
    pub(crate) fn tcp_config(&self, site: usize) -> TcpConfig {
        self.tcp.get(&self.plan.sites[site].name).cloned().unwrap_or_default()
    }

    /// `BENTPIPE_NAME=address` of every site.
    fn site_variables(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.plan.sites.iter().enumerate().filter_map(|(number, site)| {
            let name: String = site
                .name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
                .collect();
            let address: Ipv4Addr = self.plan.address(number)?;
            Some((format!("BENTPIPE_{name}"), address.to_string()))
        })
    }

    /// Ends the programs, then the links, and says what happened.
    pub fn finish(mut self) -> EmulationOutcome {
        self.control.stop();
        let pump = self.pump.take().map(JoinHandle::join);
        let pump = match pump {
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("the pump is only taken here"),
        };
        let capture = self.capture.take().map(Capture::finish);
        EmulationOutcome { pump, capture }
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(pump) = self.pump.take() {
            let _ = pump.join();
        }
    }
}

/// The length of the ring of each of a link's ports, if there is memory for it.
fn ring_bytes(config: &LinkConfig) -> usize {
    let bps = highest_bps(config);
    RING_BYTES.iter().find(|(from, _)| bps >= *from).map_or(4 << 20, |(_, bytes)| *bytes)
}

fn highest_bps(config: &LinkConfig) -> u64 {
    let of = |direction: &DirectionConfig| direction.rate.highest().bps.saturating_mul(direction.channels as u64);
    of(&config.forward).max(of(&config.back))
}
