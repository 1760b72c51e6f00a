//! The file of a gateway daemon.
//!
//! ```toml
//! hub = "203.0.113.5:4433"            # terminal only: where the hub is; or "hub.example:4433"
//! key = "/etc/bentpipe/gateway.key"
//! peer_key = "..."                    # as the other side's `bentpipe gateway keys` shows it
//! fail = "open"
//!
//! [link]                              # as in a link file or a scenario
//! kind = "iperspace"
//!
//! [intercept]
//! interfaces = ["eth1"]
//! except_ports = ["22"]
//! ```

use crate::config::{GatewayConfig, LineFacts};
use crate::front_end::{FrontEndSettings, Registry};
use crate::satellite::{MTU, SatelliteConfig, Side};
use crate::settings::{Settings, differing};
use bentpipe_link::catalogue;
use bentpipe_link::config::LinkConfig;
use bentpipe_net::problem::{KeyProblem, Problem, syntax_problem};
use bentpipe_net::selector::{Prefix, port_range};
use bentpipe_net::time::Duration;
use bentpipe_net::units::BitRate;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use toml::{Table, Value};

/// The hub's port unless the file says otherwise.
pub const PORT: u16 = 4433;

/// Which of the pair a file is for; the command says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The well-connected side.
    Hub,
    /// The remote side.
    Terminal,
}

/// A daemon's file, complete and checked.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayFile {
    /// A terminal whose hub has a name: the address in `gateway.satellite.side` is unspecified then, and looked up later.
    pub hub: Option<HubName>,
    /// UDP address that the satellite side is bound to.
    pub listen: SocketAddr,
    /// The file of this gateway's private key.
    pub key: PathBuf,
    /// The other gateway's public key: its text, as `bentpipe gateway keys` shows it.
    pub peer_key: String,
    /// The gateway itself; its side and the hub's address, if it has no name, are in `gateway.satellite.side`.
    pub gateway: GatewayConfig,
    /// The rate of the direction in which this side receives, as the link says it: what credit and windows are sized for.
    pub incoming: Option<BitRate>,
    /// What is intercepted; `None`: nothing, the gateway is an explicit proxy only.
    pub intercept: Option<InterceptRules>,
    /// Where metrics are served, if they are.
    pub metrics: Option<SocketAddr>,
    /// The user to become once everything that needs rights is open.
    pub user: Option<String>,
    /// Longest time that a shutdown waits for connections to end.
    pub drain: Duration,
}

impl GatewayFile {
    /// Takes from `new` what takes effect without a new start: the link's rates and the time for draining. Names of the keys
    /// that have changed and need one.
    pub fn reload(&mut self, new: &GatewayFile) -> Vec<&'static str> {
        let old = &mut self.gateway;
        (old.satellite.rate, old.settings.rate) = (new.gateway.satellite.rate, new.gateway.settings.rate);
        self.incoming = new.incoming;
        self.drain = new.drain;
        let file = differing!(
            &*self,
            new,
            GatewayFile { hub, listen, key, peer_key, gateway, incoming, intercept, metrics, user, drain }
        );
        let mut names: Vec<&'static str> = file.into_iter().filter(|name| *name != "gateway").collect();
        let (old, new) = (&self.gateway, &new.gateway);
        let gateway = differing!(old, new, GatewayConfig { satellite, local_port, front_ends, settings, line });
        for name in gateway {
            match name {
                // The port is that of `listen`.
                "local_port" => {}
                "line" => names.push("link"),
                "settings" => names.extend(old.settings.differing(&new.settings)),
                "front_ends" => {
                    let only = |one: &GatewayConfig, other: &GatewayConfig| -> Vec<&'static str> {
                        let differs = |front_end: &&FrontEndSettings| !other.front_ends.contains(front_end);
                        one.front_ends.iter().filter(differs).map(|front_end| front_end.key).collect()
                    };
                    names.extend(only(old, new));
                    names.extend(only(new, old));
                }
                // What a setting sets there is named by the setting.
                _ => {
                    if old.satellite.side != new.satellite.side {
                        names.push("hub");
                    }
                    let mut link = new.satellite.clone();
                    let own = &old.satellite;
                    (link.side, link.hold, link.connections, link.memory) =
                        (own.side, own.hold, own.connections, own.memory);
                    if *own != link {
                        names.push("link");
                    }
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The hub by its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HubName {
    /// As the terminal's resolver knows it.
    pub name: String,
    /// Its UDP port.
    pub port: u16,
}

/// Which connections are intercepted: those that come in on one of the interfaces, from and to the given networks and ports,
/// and match no exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterceptRules {
    /// Interfaces towards the site; at least one.
    pub interfaces: Vec<String>,
    /// Server ports; empty: all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Server networks; empty: all.
    pub to: Vec<Prefix>,
    /// Client networks; empty: all.
    pub from: Vec<Prefix>,
    /// Server ports that are left alone.
    pub except_ports: Vec<RangeInclusive<u16>>,
    /// Server networks that are left alone.
    pub except_to: Vec<Prefix>,
    /// Client networks that are left alone.
    pub except_from: Vec<Prefix>,
}

/// The keys that only a daemon's file has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    hub: Option<String>,
    listen: Option<String>,
    key: PathBuf,
    peer_key: String,
    link: Table,
    drain: Option<Duration>,
    user: Option<String>,
    metrics: Option<String>,
    intercept: Option<InterceptText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct InterceptText {
    interfaces: Vec<String>,
    ports: Vec<Value>,
    to: Vec<String>,
    from: Vec<String>,
    except_ports: Vec<Value>,
    except_to: Vec<String>,
    except_from: Vec<String>,
}

impl GatewayFile {
    /// Reads a daemon's file; `source_name` is how messages call it.
    pub fn parse(role: Role, source_name: &str, text: &str) -> Result<GatewayFile, Problem> {
        GatewayFile::parse_with(role, source_name, text, &Registry::standard())
    }

    /// The same with these front ends.
    pub fn parse_with(role: Role, source_name: &str, text: &str, registry: &Registry) -> Result<GatewayFile, Problem> {
        let table: Table = toml::from_str(text).map_err(|error| syntax_problem(source_name, text, &error))?;
        let file = Settings::read_with::<FileText>(table, registry);
        file.and_then(|(settings, front_ends, own)| own.resolve(role, settings, front_ends))
            .map_err(|problem| problem.within(source_name, text))
    }
}

impl FileText {
    fn resolve(
        self,
        role: Role,
        settings: Settings,
        front_ends: Vec<FrontEndSettings>,
    ) -> Result<GatewayFile, KeyProblem> {
        let port = if role == Role::Hub { PORT } else { 0 };
        let listen = self.listen.as_deref();
        let listen = listen.map(|text| address("listen", text, &["0.0.0.0:4433", "[::]:4433"])).transpose()?;
        let mut name = None;
        let side = match (role, &self.hub) {
            (Role::Hub, None) => Side::Hub,
            (Role::Hub, Some(_)) => {
                return Err(KeyProblem::new(
                    "hub",
                    "a hub waits for its terminal; only a terminal's file has this key",
                ));
            }
            (Role::Terminal, Some(hub)) => {
                name = hub_name(hub);
                Side::Terminal(match &name {
                    // Whichever family its address will have.
                    Some(name) => {
                        let any = listen.map_or(Ipv6Addr::UNSPECIFIED.into(), |listen| match listen {
                            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
                            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
                        });
                        SocketAddr::new(any, name.port)
                    }
                    None => hub_address(hub)?,
                })
            }
            (Role::Terminal, None) => {
                return Err(KeyProblem::new(
                    "hub",
                    "missing; allowed: the hub's address or name, and port, such as \"203.0.113.5:4433\"",
                ));
            }
        };
        let listen = match listen {
            Some(listen) => listen,
            // Of the hub's family; a hub listens with both.
            None => match side {
                Side::Terminal(SocketAddr::V4(_)) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port),
                Side::Terminal(SocketAddr::V6(_)) | Side::Hub => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port),
            },
        };
        if let Side::Terminal(hub) = side
            && hub.is_ipv4() != listen.is_ipv4()
        {
            return Err(KeyProblem::new(
                "listen",
                format!("{listen} cannot reach {hub}: both must be IPv4, or both IPv6"),
            ));
        }
        if self.peer_key.trim().is_empty() {
            return Err(KeyProblem::new(
                "peer_key",
                "is empty; allowed: the key that `bentpipe gateway keys` shows at the other side",
            ));
        }
        let link = link(self.link).map_err(|problem| problem.under("link"))?;
        if !MTU.contains(&link.mtu) {
            let what = format!("{} B cannot work; allowed: {} B to {} B", link.mtu, MTU.start(), MTU.end());
            return Err(KeyProblem::new("link.mtu", what));
        }
        let satellite = SatelliteConfig::of_link(&link, side);
        let other = if role == Role::Hub { Side::Terminal(listen) } else { Side::Hub };
        let incoming = SatelliteConfig::of_link(&link, other).rate;
        let gateway = GatewayConfig::with_settings(satellite, settings);
        check_line(&gateway.settings, &link, role)?;
        let line = LineFacts::of_link(&link);
        let gateway = GatewayConfig { local_port: listen.port(), front_ends, line, ..gateway };
        let metrics = self.metrics.as_deref();
        let metrics = metrics.map(|text| address("metrics", text, &["127.0.0.1:9464", "[::1]:9464"])).transpose()?;
        if metrics.is_some_and(|address| address.port() == 0) {
            return Err(KeyProblem::new("metrics", "port 0 is no port to listen on; allowed: 1 to 65535"));
        }
        let intercept =
            self.intercept.map(InterceptText::resolve).transpose().map_err(|problem| problem.under("intercept"))?;
        let listens = gateway.front_ends.iter().any(|front_end| front_end.address.is_some());
        if role == Role::Terminal && intercept.is_none() && !listens {
            let what = "missing: nothing would be relayed; allowed: [intercept], or socks or connect with an address";
            return Err(KeyProblem::new("intercept", what));
        }
        Ok(GatewayFile {
            hub: name,
            listen,
            key: self.key,
            peer_key: self.peer_key.trim().to_owned(),
            gateway,
            incoming,
            intercept,
            metrics,
            user: self.user,
            drain: self.drain.unwrap_or(Duration::from_secs(30)),
        })
    }
}

impl InterceptText {
    fn resolve(self) -> Result<InterceptRules, KeyProblem> {
        if self.interfaces.is_empty() {
            return Err(KeyProblem::new(
                "interfaces",
                "missing; allowed: the interfaces towards the site, such as [\"eth1\"]",
            ));
        }
        for (index, name) in self.interfaces.iter().enumerate() {
            // IFNAMSIZ is 16 with the closing zero; what the kernel's dev_valid_name allows.
            let valid = (1..=15).contains(&name.len())
                && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
                && name != "."
                && name != "..";
            if !valid {
                let what =
                    format!("{name:?} is no name of an interface; allowed: 1 to 15 characters, such as \"eth1\"");
                return Err(KeyProblem::new(format!("interfaces.{index}"), what));
            }
        }
        Ok(InterceptRules {
            interfaces: self.interfaces,
            ports: ports("ports", &self.ports)?,
            to: networks("to", &self.to)?,
            from: networks("from", &self.from)?,
            except_ports: ports("except_ports", &self.except_ports)?,
            except_to: networks("except_to", &self.except_to)?,
            except_from: networks("except_from", &self.except_from)?,
        })
    }
}

impl std::fmt::Display for HubName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// A line is dialled by a terminal, by a hook or a modem, and its calls are written down.
fn check_line(settings: &Settings, link: &LinkConfig, role: Role) -> Result<(), KeyProblem> {
    let Some(dial) = &settings.dial else { return Ok(()) };
    if link.circuit.is_none() {
        return Err(KeyProblem::new(
            "dial",
            "the link has no circuit; allowed: a [link] with one, such as \"iridium\"",
        ));
    }
    let hook = dial.hook.is_some() || dial.modem.is_some();
    match role {
        Role::Terminal if !hook => Err(KeyProblem::new(
            "dial.hook",
            "missing; allowed: a command that sets the line up, or modem = { device, number }",
        )),
        Role::Terminal if dial.ledger.is_none() => Err(KeyProblem::new(
            "dial.ledger",
            "missing; allowed: the file that calls are written to, such as \"/var/lib/bentpipe/ledger\"",
        )),
        Role::Hub if hook || dial.ledger.is_some() => {
            let key = if dial.ledger.is_some() { "dial.ledger" } else { "dial.hook" };
            Err(KeyProblem::new(key, "a hub waits for its terminal's calls; only a terminal's file has this key"))
        }
        _ => Ok(()),
    }
}

/// The link: of the catalogue with changes, or described in full.
fn link(mut table: Table) -> Result<LinkConfig, KeyProblem> {
    match table.remove("kind") {
        None => LinkConfig::from_table(table),
        Some(Value::String(kind)) => match catalogue::named(&kind) {
            Some(Ok(file)) => file.with(table),
            Some(Err(problem)) => Err(KeyProblem::new("kind", problem.to_string())),
            None => Err(KeyProblem::new("kind", catalogue::unknown(&kind))),
        },
        Some(_) => Err(KeyProblem::new("kind", "must be a name of the catalogue, such as \"iperspace\"")),
    }
}

fn address(key: &str, text: &str, examples: &[&str]) -> Result<SocketAddr, KeyProblem> {
    text.parse().map_err(|_| {
        let examples: Vec<String> = examples.iter().map(|example| format!("{example:?}")).collect();
        let what = format!("{text:?} is not an address with a port; allowed: such as {}", examples.join(" or "));
        KeyProblem::new(key, what)
    })
}

/// `hub.example:4433`; `None`: an address, or nothing.
fn hub_name(text: &str) -> Option<HubName> {
    let (name, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    // RFC 952 and 1123, and the underscore of DNS; the last label of an address is a number, that of a name is not.
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let labels = name.strip_suffix('.').unwrap_or(name);
    let last = labels.rsplit('.').next()?;
    let valid = labels.len() <= 253 && labels.split('.').all(label) && !last.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| HubName { name: name.to_owned(), port })
}

fn hub_address(text: &str) -> Result<SocketAddr, KeyProblem> {
    let examples = ["203.0.113.5:4433", "[2001:db8::5]:4433", "hub.example:4433"];
    let hub = address("hub", text, &examples)?;
    if hub.port() == 0 || hub.ip().is_unspecified() {
        let what = format!("{text:?} is no address of a machine and a port; allowed: such as {:?}", examples[0]);
        return Err(KeyProblem::new("hub", what));
    }
    Ok(hub)
}

fn ports(key: &str, values: &[Value]) -> Result<Vec<RangeInclusive<u16>>, KeyProblem> {
    let all = values.iter().enumerate().map(|(index, value)| {
        let what = || format!("{value} is no port; allowed: 1 to 65535, or a range such as \"8000-8100\"");
        port_range(value).ok_or_else(|| KeyProblem::new(format!("{key}.{index}"), what()))
    });
    all.collect()
}

fn networks(key: &str, texts: &[String]) -> Result<Vec<Prefix>, KeyProblem> {
    let all = texts
        .iter()
        .enumerate()
        .map(|(index, text)| network(text).map_err(|what| KeyProblem::new(format!("{key}.{index}"), what)));
    all.collect()
}

fn network(text: &str) -> Result<Prefix, String> {
    let none = || format!("{text:?} is no network; allowed: such as \"10.0.0.0/8\", \"2001:db8::/32\" or one address");
    let network = Prefix::parse(text).ok_or_else(none)?;
    if !network.starts_with_its_address() {
        return Err(format!("{text:?} has bits set behind its prefix; allowed: the network's first address"));
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Fail, Open};
    use proptest::prelude::*;

    const TERMINAL: &str = r#"
hub = "203.0.113.5:4433"
key = "/etc/bentpipe/gateway.key"
peer_key = "abc"
rate = "9.5 Mbit/s"
open = "early"
fail = "closed"
hold = "2 min"
socks = "127.0.0.1:1080"

[link]
kind = "iperspace"
one_way_delay = "300 ms"

[memory]
total = "32 MiB"

[interactive]
bulk_dscp = [8]

[intercept]
interfaces = ["eth1"]
ports = [80, "443", "8000-8100"]
except_to = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"]
"#;

    #[test]
    fn a_file_is_read() {
        let file = GatewayFile::parse(Role::Terminal, "t.toml", TERMINAL).unwrap();
        assert_eq!(file.gateway.satellite.side, Side::Terminal("203.0.113.5:4433".parse().unwrap()));
        assert_eq!(file.listen.to_string(), "0.0.0.0:0");
        assert_eq!(file.gateway.satellite.rate, Some(BitRate::from_bps(9_500_000)));
        assert_eq!(file.gateway.satellite.round_trip, Duration::from_millis(600));
        assert_eq!(file.gateway.satellite.hold, Duration::from_secs(120));
        let settings = &file.gateway.settings;
        assert_eq!((settings.open, settings.fail), (Open::Early, Fail::Closed));
        let listening: Vec<_> = file.gateway.front_ends.iter().filter_map(|front_end| front_end.address).collect();
        assert_eq!(listening, ["127.0.0.1:1080".parse().unwrap()]);
        assert_eq!((settings.memory.total.bytes, file.gateway.satellite.memory.bytes), (32 << 20, 32 << 20));
        assert_eq!(settings.interactive.bulk_dscp, [8]);
        let intercept = file.intercept.unwrap();
        assert_eq!(intercept.ports, [80..=80, 443..=443, 8000..=8100]);
        let six = TERMINAL.replace("203.0.113.5:4433", "[2001:db8::5]:4433");
        let six = GatewayFile::parse(Role::Terminal, "t.toml", &six).unwrap();
        assert_eq!(six.listen.to_string(), "[::]:0");
        let networks: Vec<String> = intercept.except_to.iter().map(Prefix::to_string).collect();
        assert_eq!(networks, ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]);
    }

    #[test]
    fn a_hub_may_have_a_name() {
        let named = TERMINAL.replace("203.0.113.5:4433", "hub.example:4433");
        let file = GatewayFile::parse(Role::Terminal, "t.toml", &named).unwrap();
        assert_eq!(file.hub, Some(HubName { name: "hub.example".into(), port: 4433 }));
        assert_eq!(file.gateway.satellite.side, Side::Terminal("[::]:4433".parse().unwrap()));
        assert_eq!(file.listen.to_string(), "[::]:0", "either family");
        let four = named.replace("fail =", "listen = \"0.0.0.0:0\"\nfail =");
        let mut four = GatewayFile::parse(Role::Terminal, "t.toml", &four).unwrap();
        assert_eq!(four.gateway.satellite.side, Side::Terminal("0.0.0.0:4433".parse().unwrap()));
        let mut other = four.clone();
        other.hub = Some(HubName { name: "hub2.example".into(), port: 4433 });
        assert_eq!(four.reload(&other), ["hub"]);
    }

    #[test]
    fn a_reload_takes_both_rates_and_nothing_else() {
        let text = |forward: &str, back: &str, rest: &str| {
            let link = "mtu = \"1500 B\"\nforward = { rate = \"FORWARD\", one_way_delay = \"300 ms\" }\n\
                        return = { rate = \"BACK\", one_way_delay = \"300 ms\" }\n";
            let link = link.replace("FORWARD", forward).replace("BACK", back);
            format!("key = \"k\"\npeer_key = \"abc\"\n{rest}[link]\n{link}")
        };
        let read = |text: String| GatewayFile::parse(Role::Hub, "h.toml", &text).unwrap();
        let mut file = read(text("1 Mbit/s", "1 Mbit/s", "connections = 100\n"));
        assert_eq!((file.gateway.satellite.connections, file.gateway.satellite.memory.bytes), (100, 256 << 20));
        let rest = file.reload(&read(text("10 Mbit/s", "2 Mbit/s", "connections = 100\ndrain = \"5 s\"\n")));
        assert!(rest.is_empty(), "{rest:?}");
        assert_eq!(file.gateway.satellite.rate, Some(BitRate::from_bps(10_000_000)));
        assert_eq!((file.incoming, file.drain), (Some(BitRate::from_bps(2_000_000)), Duration::from_secs(5)));
        let rest = "connections = 99\nsocks = \"127.0.0.1:1080\"\nmemory = { total = \"1 MiB\" }\n";
        let rest = file.reload(&read(text("3 Mbit/s", "2 Mbit/s", rest)));
        assert_eq!(rest, ["connections", "memory", "socks"], "these need a new start");
        let longer = text("3 Mbit/s", "2 Mbit/s", "connections = 100\n").replacen("300 ms", "301 ms", 1);
        assert_eq!(file.reload(&read(longer)), ["link"]);
        assert_eq!(
            (file.gateway.satellite.rate, file.gateway.settings.connections),
            (Some(BitRate::from_bps(3_000_000)), 100)
        );
    }

    #[test]
    fn a_hub_needs_little() {
        let text = "key = \"k\"\npeer_key = \"abc\"\nrate = \"measured\"\n[link]\nrate = \"2 Mbit/s\"\none_way_delay = \"250 ms\"\n";
        let file = GatewayFile::parse(Role::Hub, "h.toml", text).unwrap();
        assert_eq!((file.listen.to_string().as_str(), file.gateway.local_port), ("[::]:4433", 4433));
        assert_eq!(file.gateway.satellite.rate, None);
        assert_eq!(file.intercept, None);
    }

    #[test]
    fn each_side_knows_both_directions() {
        let common = "key = \"k\"\npeer_key = \"abc\"\n";
        let link = "[link]\none_way_delay = \"300 ms\"\n[link.forward]\nrate = \"250 Mbit/s\"\n\
                    [link.return]\nrate = \"3 Mbit/s\"\n";
        let rates = |role, more: &str| {
            let file = GatewayFile::parse(role, "t.toml", &format!("{common}{more}{link}")).unwrap();
            [file.gateway.satellite.rate, file.incoming].map(|rate| rate.map(|rate| rate.bps))
        };
        assert_eq!(rates(Role::Hub, ""), [Some(250_000_000), Some(3_000_000)]);
        let terminal = "hub = \"203.0.113.5:4433\"\nsocks = \"127.0.0.1:1080\"\n";
        assert_eq!(rates(Role::Terminal, terminal), [Some(3_000_000), Some(250_000_000)]);
    }

    #[test]
    fn every_link_of_the_catalogue_makes_a_gateway() {
        for name in catalogue::names() {
            let text = format!("key = \"k\"\npeer_key = \"abc\"\n[link]\nkind = {name:?}\n");
            let file = GatewayFile::parse(Role::Hub, "h.toml", &text).unwrap_or_else(|problem| panic!("{problem}"));
            let satellite = file.gateway.satellite;
            assert!(satellite.rate.is_some() && (0.0..1.0).contains(&satellite.loss), "{name}: {satellite:?}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line_and_what_is_allowed() {
        for (from, to, expected) in [
            ("fail = \"closed\"", "fail = \"maybe\"", "t.toml:7: fail: \"maybe\" is unknown; allowed: open, closed"),
            ("hold = \"2 min\"", "hold = 2", "t.toml:8: hold: "),
            ("hold = \"2 min\"", "hold = \"1 ms\"", "t.toml:8: hold: 1 ms is out of range; allowed: 1 s to "),
            ("total = \"32 MiB\"", "total = \"1 B\"", "t.toml:16: memory.total: 1 B is too little; allowed: "),
            ("127.0.0.1:1080", "127.0.0.1:0", "t.toml:9: socks: port 0 is no port to listen on; allowed: "),
            ("hold = \"2 min\"", "holds = \"2 min\"", "t.toml:8: holds: unknown key (did you mean hold?); allowed: "),
            ("hub = \"203.0.113.5:4433\"", "hub = \"ship\"", "t.toml:2: hub: \"ship\" is not an address with a port"),
            (
                "hub = \"203.0.113.5:4433\"",
                "hub = \"203.0.113.300:4433\"",
                "t.toml:2: hub: \"203.0.113.300:4433\" is not an",
            ),
            (
                "hub = \"203.0.113.5:4433\"",
                "hub = \"hub.example:0\"",
                "t.toml:2: hub: \"hub.example:0\" is not an address",
            ),
            (
                "hub = \"203.0.113.5:4433\"",
                "hub = \"0.0.0.0:4433\"",
                "t.toml:2: hub: \"0.0.0.0:4433\" is no address of",
            ),
            (
                "one_way_delay = \"300 ms\"",
                "mtu = \"200 B\"",
                "t.toml:13: link.mtu: 200 B cannot work; allowed: 256 B ",
            ),
            ("hub = \"203.0.113.5:4433\"", "", "t.toml: hub: missing; allowed: "),
            ("kind = \"iperspace\"", "kind = \"moon\"", "t.toml:12: link.kind: there is no link \"moon\"; allowed: "),
            ("rate = \"9.5 Mbit/s\"", "rate = \"fast\"", "t.toml:5: rate: \"fast\" is not a rate; allowed: "),
            ("\"8000-8100\"", "\"8100-8000\"", "t.toml:23: intercept.ports.2: \"8100-8000\" is no port; allowed: "),
            ("10.0.0.0/8", "10.0.0.1/8", "t.toml:24: intercept.except_to.0: "),
            ("[\"eth1\"]", "[]", "t.toml:22: intercept.interfaces: missing; allowed: "),
            ("bulk_dscp = [8]", "bulk_dscp = [64]", "t.toml:19: interactive.bulk_dscp: 64 is no DSCP; allowed: "),
            ("one_way_delay = \"300 ms\"", "one_way_delay = \"300\"", "t.toml:13: link.one_way_delay: "),
        ] {
            let text = TERMINAL.replace(from, to);
            assert_ne!(text, TERMINAL);
            let problem = GatewayFile::parse(Role::Terminal, "t.toml", &text).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}\nshould start with\n{expected}");
        }
        let problem = GatewayFile::parse(Role::Hub, "t.toml", TERMINAL).unwrap_err().to_string();
        assert!(problem.starts_with("t.toml:2: hub: a hub waits"), "{problem}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(at in 0_usize..600, cut in 0_usize..20, insert in ".{0,12}") {
            let start = (0..=at.min(TERMINAL.len())).rev().find(|at| TERMINAL.is_char_boundary(*at)).unwrap_or(0);
            let end = (start + cut).min(TERMINAL.len());
            let text = format!("{}{insert}{}", &TERMINAL[..start], &TERMINAL[end..]);
            let _ = GatewayFile::parse(Role::Terminal, "t.toml", &text);
        }
    }

    /// A line: its link has a circuit, a terminal has a hook or a modem and a ledger, a hub neither.
    #[test]
    fn a_file_with_dialling_says_who_dials_and_where_it_is_written() {
        let text = |dial: &str, link: &str| {
            let own = "hub = '203.0.113.5:4433'\nkey = 'k'\npeer_key = 'abc'\nsocks = '127.0.0.1:1080'\n";
            format!("{own}dial = {{ {dial} }}\n[link]\nkind = '{link}'\n")
        };
        let good = text("hook = ['line', 'sat'], ledger = 'l', raise = ['open'], linger = '20 s'", "iridium");
        let file = GatewayFile::parse(Role::Terminal, "t.toml", &good).unwrap();
        let settings = &file.gateway.settings;
        let dial = settings.dial.as_ref().unwrap();
        assert_eq!((dial.linger, &dial.raise[..]), (Duration::from_secs(20), &[crate::dial::Raise::Open][..]));
        assert_eq!((settings.fail, file.gateway.satellite.dials), (Fail::Closed, true));
        // Charged from the stage "network", the last one.
        assert_eq!(file.gateway.line.charged_before, Duration::from_secs(8));
        assert!(file.gateway.line.tariff.is_some());
        for (dial, link, key, what) in [
            ("hook = ['x'], ledger = 'l'", "geo-two-way", "dial", "no circuit"),
            ("ledger = 'l'", "iridium", "dial.hook", "missing"),
            ("hook = ['x']", "iridium", "dial.ledger", "missing"),
            ("hook = [], ledger = 'l'", "iridium", "dial.hook", "names no command"),
            ("hook = ['x'], modem = { device = '/d', number = '1' }", "iridium", "dial.modem", "only one of"),
            ("hook = ['x'], ledger = 'l', linger = '0 s'", "iridium", "dial.linger", "1 s or more"),
            ("hook = ['x'], ledger = 'l', back_off_most = '2 s'", "iridium", "dial.back_off_most", "15 s or more"),
            ("hook = ['x'], ledger = 'l', calls_per_hour = 0", "iridium", "dial.calls_per_hour", "1 to 100000"),
            ("hook = ['x'], ledger = 'l', raise = ['ntp']", "iridium", "dial.raise.0", "open"),
            ("hook = ['x'], ledger = 'l', raises = []", "iridium", "dial.raises", "raise"),
        ] {
            let problem = GatewayFile::parse(Role::Terminal, "t.toml", &text(dial, link)).unwrap_err();
            assert_eq!(problem.key, key, "{dial}: {problem}");
            assert!(problem.message.contains(what), "{dial}: {problem}");
        }
        let hub = good.replace("hub = '203.0.113.5:4433'\n", "");
        let problem = GatewayFile::parse(Role::Hub, "h.toml", &hub).unwrap_err();
        assert!(problem.key == "dial.ledger" && problem.message.contains("only a terminal's"), "{problem}");
        let hub = hub.replace("hook = ['line', 'sat'], ledger = 'l', raise = ['open'], ", "");
        GatewayFile::parse(Role::Hub, "h.toml", &hub).unwrap();
    }
}
