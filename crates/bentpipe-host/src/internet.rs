//! The machine's own network for the sites: terminal, link, hub, `pasta`, machine.
//!
//! `pasta` (Debian's package `passt`) turns the packets of a tap device into ordinary sockets of the machine, so nothing
//! of the machine is changed and no right over it is needed. It answers to the last source address it has seen, hence
//! one `pasta` for each site, each with a tap of its own in the hub; the hub chooses by source address, and no address is
//! translated.
//!
//! What crosses the link over TCP does not take this way: passt's own TCP (passt(1), LIMITATIONS) sends whatever the
//! receiver's window allows, repeats all of it for one loss, and on a 2 Mbit/s geostationary link delivered a fifth of
//! the rate. The hub's kernel faces the link instead: see `internet/tcp.rs`.

mod tcp;

use crate::emulation::Emulation;
use crate::namespace::{NamespaceError, write_sysctl};
use crate::netlink::{MAIN_TABLE, Netlink, Route, Rule};
use crate::program::Program;
use crate::sites::interface_mtu;
use crate::spawn::{CommandSpec, Output};
use crate::tcp_stack::route_metrics;
use bentpipe_net::topology::{Plan, network};
use netlink_packet_route::route::RouteMetric;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{ChildStdout, Command};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tcp::{Intercepted, TcpExit};

/// Destinations that the sites may reach in addition to the Internet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InternetOptions {
    /// [`GATEWAY`] stands for the machine's loopback address, where services listen that are meant for the machine alone.
    pub reach_machine_loopback: bool,
}

/// The sites' way out, as long as this value lives.
#[derive(Debug)]
pub struct Internet {
    options: InternetOptions,
    tcp: Option<TcpExit>,
    helpers: Vec<Helper>,
    version: String,
    echo: bool,
}

/// Why there is no way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InternetError {
    /// No `pasta`, or no `nft`.
    #[error("the program {program} is missing: install Debian's package {package} (apt-get install {package})")]
    Absent {
        /// The program.
        program: &'static str,
        /// Who has it.
        package: &'static str,
    },
    /// The device that pasta makes its tap with cannot be opened.
    #[error(
        "cannot open {TUN} ({0}), which pasta needs: it must exist and this user may read and write it (often crw-rw-rw-)"
    )]
    Tun(io::Error),
    /// Something could not be started.
    #[error("cannot start the way to the machine's network: {0}")]
    Start(io::Error),
    /// No firewall rule.
    #[error("nft cannot make the hub take connections (this needs Linux with CONFIG_NFT_TPROXY): {0}")]
    Intercept(String),
    /// It ended, or never said that it was ready.
    #[error("pasta gave {site} no way to the machine's network: {cause}{}{errors}", if errors.is_empty() { "" } else { "; it said: " })]
    NotUp {
        /// For whom.
        site: String,
        /// The cause.
        cause: &'static str,
        /// Its standard error.
        errors: String,
    },
    /// The site cannot use the hub as its router.
    #[error("{0} reaches the Internet only if it has an IP address on a link to the hub")]
    NoRoute(String),
    /// The kernel refused an address or a route.
    #[error("cannot route to the machine's network: {0}")]
    Routes(#[from] NamespaceError),
}

/// The sites' router on the machine's side. The last addresses of 198.18.0.0/15, whose segments are counted from below.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);

/// 198.18.0.0/15, which is nowhere on the Internet (RFC 2544).
const RANGE_PREFIX: u8 = 15;
/// The resolver's address for programs where the machine's is on its loopback.
const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 253);
/// tuntap.rst of the kernel's documentation.
const TUN: &str = "/dev/net/tun";
const RESOLVER_PORT: u16 = 53;
const RESOLVER_KEYWORD: &str = "nameserver";
/// pasta's end of every tap; locally administered.
const GATEWAY_HARDWARE: [u8; 6] = [0x02, 0x62, 0x70, 0xff, 0xff, 0xfe];
/// The largest packet of an ordinary Internet path. pasta's own choice, 65,520, would cross the link in fragments.
const MTU: u32 = 1500;
const ABSENT: InternetError = InternetError::Absent { program: "pasta", package: "passt" };
const START_LIMIT: Duration = Duration::from_secs(5);
/// Rules before the main table's (32766), and the tables they lead to.
const RULE_NEAR: u32 = 1000;
const RULE_TCP: u32 = 1001;
const RULE_TERMINAL: u32 = 1002;
const RULE_HUB: u32 = 1003;
const TABLE_TCP: u32 = 999;
const TABLE_SITE: u32 = 1000;
/// Of what pasta says we keep this much.
const ERRORS_BYTES_MAX: usize = 4096;

/// Gives the hub and the terminals the machine's network. Ready when this returns.
pub fn start(
    emulation: &Emulation,
    hub: usize,
    terminals: &[usize],
    options: InternetOptions,
) -> Result<Internet, InternetError> {
    let version = version()?;
    std::fs::File::options().read(true).write(true).open(TUN).map_err(InternetError::Tun)?;
    let routes =
        terminals.iter().map(|terminal| route(&emulation.plan, hub, *terminal)).collect::<Result<Vec<_>, _>>()?;
    let hub_address =
        emulation.plan.address(hub).ok_or_else(|| InternetError::NoRoute(emulation.plan.sites[hub].name.clone()))?;
    let deadline = Instant::now() + START_LIMIT;
    let mut internet = Internet { options, tcp: None, helpers: Vec::new(), version, echo: echo_is_open() };
    let clients = routes.iter().map(|route| (route.terminal, route.address)).chain([(hub, hub_address)]);
    for (site, address) in clients {
        let name = &emulation.plan.sites[site].name;
        let helper = Helper::start(emulation, hub, site, address, options).map_err(InternetError::Start)?;
        internet.helpers.push(helper);
        let helper = internet.helpers.last_mut().expect("just pushed");
        if let Err(cause) = helper.wait_until_ready(deadline) {
            return Err(InternetError::NotUp { site: name.clone(), cause, errors: helper.end() });
        }
    }
    let intercepted: Vec<Intercepted> = routes.iter().map(|route| route.intercepted(emulation)).collect();
    let resolver = first_resolver(&machine_resolver_text());
    let translate = move |requested| machine_address(requested, options, resolver);
    let tcp = tcp::start(emulation, hub, &intercepted, translate)?;
    internet.tcp = Some(tcp);
    emulation.namespace(hub).run(|| route_hub(emulation, hub, hub_address, &routes, options))?;
    for route in &routes {
        emulation.namespace(route.terminal).run(|| route_terminal(emulation, route))?;
    }
    Ok(internet)
}

/// The programs' /etc/resolv.conf; `None`: the machine's will do.
#[must_use]
pub fn resolver_text() -> Option<String> {
    translate_resolver(&machine_resolver_text())
}

impl Internet {
    /// The path between the link and the Internet, for the record.
    #[must_use]
    pub fn description(&self) -> String {
        let echo =
            if self.echo { "" } else { "; ping goes unanswered (the machine's net.ipv4.ping_group_range forbids it)" };
        let loopback = if self.options.reach_machine_loopback {
            format!("what listens on this machine's loopback (127.0.0.1) is at {GATEWAY}")
        } else {
            "what listens on this machine's loopback (127.0.0.1) is not reached".to_owned()
        };
        format!(
            "TCP connections to the Internet are ended at the hub, whose kernel's TCP, with the hub's settings, faces the \
             link; they open before the Internet has answered, and a refusal arrives as a reset. UDP and ping pass through \
             passt ({}), which drops fragments{echo}; {loopback}",
            self.version
        )
    }

    /// Takes the way out away.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        self.tcp = None;
        for helper in &mut self.helpers {
            helper.end();
        }
    }
}

/// One pasta.
#[derive(Debug)]
struct Helper {
    child: Program,
    ready: Option<ChildStdout>,
    errors: Option<JoinHandle<String>>,
}

impl Helper {
    fn start(
        emulation: &Emulation,
        hub: usize,
        site: usize,
        address: Ipv4Addr,
        options: InternetOptions,
    ) -> io::Result<Helper> {
        let spec = CommandSpec {
            argv: arguments(&tap_device(site), address, options),
            environment: Vec::new(),
            output: Output::Capture,
            own_group: true,
        };
        let mut child = emulation.spawn_helper(hub, spec)?;
        let ready = child.stdout.take();
        let errors = child.stderr.take();
        let mut helper = Helper { child, ready, errors: None };
        if let Some(errors) = errors {
            let thread = std::thread::Builder::new().spawn(move || collect_errors(errors));
            helper.errors = Some(thread.inspect_err(|_| drop(helper.child.kill()))?);
        }
        Ok(helper)
    }

    /// pasta writes its process number when its tap stands and its sandbox is closed.
    fn wait_until_ready(&mut self, deadline: Instant) -> Result<(), &'static str> {
        let Some(mut ready) = self.ready.take() else { return Err("it has no output") };
        let mut text = [0u8; 32];
        while !text.contains(&b'\n') {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Err("it was not ready within 5 s"),
                Err(rustix::io::Errno::INTR) => continue,
                Ok(_) | Err(_) => {}
            }
            match ready.read(&mut text) {
                Ok(0) | Err(_) => return Err("it ended"),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Ends it and returns what it said.
    fn end(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default()
    }
}

/// A terminal's way to the hub.
struct TerminalRoute {
    terminal: usize,
    interface: usize,
    address: Ipv4Addr,
    hub_address: Ipv4Addr,
}

impl TerminalRoute {
    fn mtu(&self, emulation: &Emulation) -> u64 {
        let interface = &emulation.plan.sites[self.terminal].interfaces[self.interface];
        interface_mtu(interface, &emulation.tcp_config(self.terminal))
    }

    fn intercepted(&self, emulation: &Emulation) -> Intercepted {
        Intercepted { address: self.address, mtu: self.mtu(emulation) }
    }
}

fn route(plan: &Plan, hub: usize, terminal: usize) -> Result<TerminalRoute, InternetError> {
    for (number, interface) in plan.sites[terminal].interfaces.iter().enumerate() {
        let opposite = plan.sites[hub].interfaces.iter().find(|other| other.segment == interface.segment);
        if let (Some(address), Some(hub_address)) = (interface.address, opposite.and_then(|other| other.address)) {
            return Ok(TerminalRoute { terminal, interface: number, address, hub_address });
        }
    }
    Err(InternetError::NoRoute(plan.sites[terminal].name.clone()))
}

/// Packets of a terminal leave by its own tap, the hub's by the hub's; what is near still goes the near way.
fn route_hub(
    emulation: &Emulation,
    hub: usize,
    hub_address: Ipv4Addr,
    routes: &[TerminalRoute],
    options: InternetOptions,
) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    write_sysctl("net.ipv4.ip_forward", "1")?;
    netlink.add_rule(&Rule { priority: RULE_NEAR, table: MAIN_TABLE, not_default: true, ..Rule::default() })?;
    netlink.add_local_default(TABLE_TCP, false)?;
    for route in routes {
        let table = add_exit(&mut netlink, route.terminal, None, Vec::new(), options)?;
        let rule = Rule { priority: RULE_TERMINAL, source: Some(route.address), table, ..Rule::default() };
        netlink.add_rule(&rule)?;
        netlink.add_rule(&Rule { priority: RULE_TCP, only_tcp: true, table: TABLE_TCP, ..rule })?;
    }
    let metrics = route_metrics(&emulation.tcp_config(hub), u64::from(MTU));
    let table = add_exit(&mut netlink, hub, Some(hub_address), metrics, options)?;
    netlink.add_rule(&Rule { priority: RULE_HUB, table, ..Rule::default() })
}

/// The table by which the packets of a site leave. Of the range that the sites' addresses are from, only what stands for
/// something of the machine.
fn add_exit(
    netlink: &mut Netlink,
    site: usize,
    source: Option<Ipv4Addr>,
    metrics: Vec<RouteMetric>,
    options: InternetOptions,
) -> io::Result<u32> {
    let table = TABLE_SITE + site as u32;
    let device = tap_device(site);
    netlink.set_mtu(&device, MTU)?;
    netlink.set_up(&device)?;
    netlink.add_neighbour(&device, GATEWAY, GATEWAY_HARDWARE)?;
    netlink.add_unreachable(network(0), RANGE_PREFIX, table)?;
    let loopback = options.reach_machine_loopback.then_some((GATEWAY, 32));
    let resolver = resolver_text().map(|_| (RESOLVER, 32));
    for (destination, prefix) in [Some((Ipv4Addr::UNSPECIFIED, 0)), loopback, resolver].into_iter().flatten() {
        let (via, device, metrics) = (Some(GATEWAY), device.clone(), metrics.clone());
        netlink.add_on_link_route(&Route { destination, prefix, via, device, source, metrics }, table)?;
    }
    Ok(table)
}

fn route_terminal(emulation: &Emulation, route: &TerminalRoute) -> io::Result<()> {
    let interface = &emulation.plan.sites[route.terminal].interfaces[route.interface];
    Netlink::open()?.add_route(&Route {
        destination: Ipv4Addr::UNSPECIFIED,
        prefix: 0,
        via: Some(route.hub_address),
        device: interface.device.clone(),
        source: Some(route.address),
        metrics: route_metrics(&emulation.tcp_config(route.terminal), route.mtu(emulation)),
    })
}

/// The machine's address behind the one that a terminal requested; `None`: it is refused.
fn machine_address(
    requested: SocketAddrV4,
    options: InternetOptions,
    resolver: Option<Ipv4Addr>,
) -> Option<SocketAddrV4> {
    let address = match (*requested.ip(), requested.port()) {
        (GATEWAY, _) => options.reach_machine_loopback.then_some(Ipv4Addr::LOCALHOST),
        (RESOLVER, RESOLVER_PORT) => resolver,
        (other, _) => (!other.is_loopback() && !other.is_unspecified() && !is_of_range(other)).then_some(other),
    };
    address.map(|address| SocketAddrV4::new(address, requested.port()))
}

fn is_of_range(address: Ipv4Addr) -> bool {
    (u32::from(address) ^ u32::from(network(0))) >> (32 - RANGE_PREFIX) == 0
}

fn tap_device(site: usize) -> String {
    format!("internet{site}")
}

/// pasta(1). No port of the machine is opened for a site, none of a site for the machine. Addresses are given, so that
/// pasta asks the machine for none (`-i lo`).
fn arguments(device: &str, address: Ipv4Addr, options: InternetOptions) -> Vec<OsString> {
    let hardware = GATEWAY_HARDWARE.map(|byte| format!("{byte:02x}")).join(":");
    let mut words: Vec<String> = ["pasta", "--foreground", "--stderr", "--quiet", "--ipv4-only", "--no-dhcp"]
        .into_iter()
        .chain(["-t", "none", "-u", "none", "-T", "none", "-U", "none", "-i", "lo", "-n", "32"])
        .map(str::to_owned)
        .collect();
    words.extend(["-a".into(), address.to_string(), "-g".into(), GATEWAY.to_string(), "-M".into(), hardware]);
    words.extend(["-I".into(), device.to_owned(), "-m".into(), MTU.to_string()]);
    // The namespace is standard input; it has no name whose removal could be watched for.
    words.extend(["--netns".into(), "/proc/self/fd/0".into(), "--netns-only".into(), "--no-netns-quit".into()]);
    // The process number goes to standard output.
    words.extend(["--pid".into(), "/proc/self/fd/1".into()]);
    if rustix::process::geteuid().is_root() {
        // As its default user "nobody" it could not enter the hub.
        words.extend(["--runas".into(), "0:0".into()]);
    }
    if resolver_text().is_some() {
        words.extend(["--dns-forward".into(), RESOLVER.to_string()]);
    }
    if !options.reach_machine_loopback {
        words.push("--no-map-gw".into());
    }
    words.into_iter().map(OsString::from).collect()
}

fn version() -> Result<String, InternetError> {
    let output = match Command::new("pasta").arg("--version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ABSENT),
        other => other.map_err(InternetError::Start)?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    Ok(line.strip_prefix("pasta ").unwrap_or(line).to_owned())
}

/// True if the machine lets this user send echo requests without further rights, as pasta does.
fn echo_is_open() -> bool {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)).is_ok()
}

/// Collects pasta's error output, without its complaints that a machine has no system log. Ends with it.
fn collect_errors(mut errors: impl Read) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0u8; 1024];
    while let Ok(bytes @ 1..) = errors.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..bytes]);
        kept.drain(..kept.len().saturating_sub(ERRORS_BYTES_MAX));
    }
    let text = String::from_utf8_lossy(&kept);
    let lines = text.lines().filter(|line| !line.ends_with("bytes to syslog"));
    lines.collect::<Vec<_>>().join("; ")
}

fn machine_resolver_text() -> String {
    std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()
}

/// A resolver on the machine's loopback is out of the sites' reach: they ask [`RESOLVER`], and pasta asks the machine's.
fn translate_resolver(machine: &str) -> Option<String> {
    if !machine.lines().filter_map(resolver_address).any(|address| address.is_loopback()) {
        return None;
    }
    let others = machine.lines().filter(|line| !line.starts_with(RESOLVER_KEYWORD));
    Some(others.map(|line| format!("{line}\n")).chain([format!("{RESOLVER_KEYWORD} {RESOLVER}\n")]).collect())
}

/// The one that pasta asks.
fn first_resolver(machine: &str) -> Option<Ipv4Addr> {
    machine.lines().find_map(resolver_address)
}

fn resolver_address(line: &str) -> Option<Ipv4Addr> {
    line.strip_prefix(RESOLVER_KEYWORD)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loopback_resolver_is_translated() {
        assert_eq!(translate_resolver("nameserver 192.0.2.1\nsearch example.org\n"), None);
        assert_eq!(translate_resolver(""), None);
        assert_eq!(
            translate_resolver("# stub\nnameserver 127.0.0.53\noptions edns0\nsearch example.org\n").unwrap(),
            "# stub\noptions edns0\nsearch example.org\nnameserver 198.19.255.253\n"
        );
    }

    #[test]
    fn only_what_was_opened_of_the_machine_is_reached() {
        let closed = InternetOptions::default();
        let open = InternetOptions { reach_machine_loopback: true };
        let reached = |address: Ipv4Addr, port, options| {
            machine_address(SocketAddrV4::new(address, port), options, first_resolver("nameserver 127.0.0.53\n"))
                .map(|reached| reached.to_string())
        };
        assert_eq!(reached(GATEWAY, 80, closed), None);
        assert_eq!(reached(GATEWAY, 80, open).unwrap(), "127.0.0.1:80");
        assert_eq!(reached(RESOLVER, 53, closed).unwrap(), "127.0.0.53:53");
        assert_eq!(reached(RESOLVER, 80, open), None);
        assert_eq!(reached(Ipv4Addr::new(198, 19, 7, 7), 80, open), None);
        assert_eq!(reached(Ipv4Addr::new(198, 20, 0, 1), 80, open).unwrap(), "198.20.0.1:80");
        assert_eq!(reached(Ipv4Addr::LOCALHOST, 80, open), None);
        assert_eq!(reached(Ipv4Addr::new(192, 0, 2, 1), 443, closed).unwrap(), "192.0.2.1:443");
    }

    #[test]
    fn nothing_is_forwarded_by_default() {
        let words = |reach_machine_loopback| {
            let options = InternetOptions { reach_machine_loopback };
            let words = arguments("internet1", Ipv4Addr::new(198, 18, 0, 2), options);
            words.join(" ".as_ref()).into_string().unwrap()
        };
        assert!(words(false).contains("-t none -u none -T none -U none"));
        assert!(words(false).contains("--no-map-gw"));
        assert!(!words(true).contains("--no-map-gw"));
    }
}
