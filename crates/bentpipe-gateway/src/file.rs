//! The file of a gateway daemon.
//!
//! ```toml
//! hub = "203.0.113.5:4433"            # terminal only: where the hub is
//! key = "/etc/bentpipe/gateway.key"
//! peer_key = "..."                    # as the other side's `bentpipe gateway keys` shows it
//! fail = "open"
//!
//! [link]                              # as in a link file or a scenario
//! kind = "iperspace"
//!
//! [capture]
//! interfaces = ["eth1"]
//! except_ports = ["22"]
//! ```

use crate::config::{Compression, Fail, GatewayConfig, Interactive, Open};
use crate::satellite::{SatelliteConfig, Side};
use bentpipe_link::catalogue;
use bentpipe_link::config::LinkConfig;
use bentpipe_net::problem::{KeyProblem, Problem, read, syntax_problem};
use bentpipe_net::time::Duration;
use bentpipe_net::units::{BitRate, DataSize};
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

/// What a daemon's file says, complete and checked.
#[derive(Clone, Debug)]
pub struct GatewayFile {
    /// UDP address that the satellite side is bound to.
    pub listen: SocketAddr,
    /// The file of this gateway's private key.
    pub key: PathBuf,
    /// The other gateway's public key: its text, as `bentpipe gateway keys` shows it.
    pub peer_key: String,
    /// The gateway itself; its side and the hub's address are in `gateway.satellite.side`.
    pub gateway: GatewayConfig,
    /// The rate of the direction in which this side receives, as the link says it: what credit and windows are sized for.
    pub incoming: Option<BitRate>,
    /// What is captured; `None`: nothing, the gateway is only asked.
    pub capture: Option<CaptureRules>,
    /// Where the SOCKS5 listener is bound, if there is one.
    pub socks: Option<SocketAddr>,
    /// Where the HTTP CONNECT listener is bound, if there is one.
    pub connect: Option<SocketAddr>,
    /// Where metrics are served, if they are.
    pub metrics: Option<SocketAddr>,
    /// The user to become once everything that needs rights is open.
    pub user: Option<String>,
    /// How long a shutdown waits for connections to end.
    pub drain: Duration,
}

impl GatewayFile {
    /// Takes from `new` what takes effect without a new start: the link's rates and the time for draining. Whether more than
    /// that has changed.
    pub fn reload(&mut self, new: &GatewayFile) -> bool {
        self.gateway.satellite.rate = new.gateway.satellite.rate;
        self.incoming = new.incoming;
        self.drain = new.drain;
        // Every field prints itself.
        format!("{self:?}") != format!("{new:?}")
    }
}

/// Which connections are captured: those that come in on one of the interfaces, from and to the given networks and ports,
/// and match no exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureRules {
    /// Interfaces towards the site; at least one.
    pub interfaces: Vec<String>,
    /// Server ports; empty: all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Server networks; empty: all.
    pub to: Vec<Network>,
    /// Client networks; empty: all.
    pub from: Vec<Network>,
    /// Server ports that are left alone.
    pub except_ports: Vec<RangeInclusive<u16>>,
    /// Server networks that are left alone.
    pub except_to: Vec<Network>,
    /// Client networks that are left alone.
    pub except_from: Vec<Network>,
}

/// A network: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Length of the prefix.
    pub prefix: u8,
}

/// What a file may hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    hub: Option<String>,
    listen: Option<String>,
    key: PathBuf,
    peer_key: String,
    link: Table,
    rate: Option<String>,
    #[serde(default)]
    open: OpenText,
    #[serde(default)]
    fail: FailText,
    #[serde(default)]
    compression: CompressionText,
    hold: Option<Duration>,
    grace: Option<Duration>,
    answer: Option<Duration>,
    pending: Option<usize>,
    connections: Option<usize>,
    loopback: Option<bool>,
    drain: Option<Duration>,
    user: Option<String>,
    metrics: Option<String>,
    socks: Option<String>,
    connect: Option<String>,
    #[serde(default)]
    memory: MemoryText,
    #[serde(default)]
    interactive: InteractiveText,
    capture: Option<CaptureText>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OpenText {
    #[default]
    Answered,
    Early,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FailText {
    #[default]
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CompressionText {
    #[default]
    Auto,
    Off,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryText {
    total: Option<DataSize>,
    compression: Option<DataSize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InteractiveText {
    bytes: Option<DataSize>,
    period: Option<Duration>,
    idle: Option<Duration>,
    ports: Option<Vec<u16>>,
    bulk_ports: Option<Vec<u16>>,
    dscp: Option<Vec<u8>>,
    bulk_dscp: Option<Vec<u8>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CaptureText {
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
        let table: Table = toml::from_str(text).map_err(|error| syntax_problem(source_name, text, &error))?;
        read::<FileText>(table).and_then(|file| file.resolve(role)).map_err(|problem| problem.within(source_name, text))
    }
}

impl FileText {
    fn resolve(self, role: Role) -> Result<GatewayFile, KeyProblem> {
        let side = match (role, &self.hub) {
            (Role::Hub, None) => Side::Hub,
            (Role::Hub, Some(_)) => {
                return Err(KeyProblem::new(
                    "hub",
                    "a hub waits for its terminal; only a terminal's file has this key",
                ));
            }
            (Role::Terminal, Some(hub)) => {
                Side::Terminal(address("hub", hub, &["203.0.113.5:4433", "[2001:db8::5]:4433"])?)
            }
            (Role::Terminal, None) => {
                return Err(KeyProblem::new(
                    "hub",
                    "missing; allowed: the hub's address and port, such as \"203.0.113.5:4433\"",
                ));
            }
        };
        let port = if role == Role::Hub { PORT } else { 0 };
        let listen = match &self.listen {
            Some(listen) => address("listen", listen, &["0.0.0.0:4433", "[::]:4433"])?,
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
        let mut satellite = SatelliteConfig::of_link(&link, side);
        let other = if role == Role::Hub { Side::Terminal(listen) } else { Side::Hub };
        let incoming = SatelliteConfig::of_link(&link, other).rate;
        match self.rate.as_deref() {
            None => {}
            Some("measured") => satellite.rate = None,
            Some(rate) => {
                let fail = || {
                    let what =
                        format!("{rate:?} is not a rate; allowed: \"measured\", or a rate such as \"9.5 Mbit/s\"");
                    KeyProblem::new("rate", what)
                };
                satellite.rate = Some(rate.parse::<BitRate>().ok().filter(|rate| rate.bps > 0).ok_or_else(fail)?);
            }
        }
        if let Some(hold) = self.hold {
            satellite.hold = not_zero("hold", hold)?;
        }
        let mut gateway = GatewayConfig::new(satellite);
        gateway.local_port = listen.port();
        gateway.open = match self.open {
            OpenText::Answered => Open::Answered,
            OpenText::Early => Open::Early,
        };
        gateway.fail = match self.fail {
            FailText::Open => Fail::Open,
            FailText::Closed => Fail::Closed,
        };
        gateway.compression = match self.compression {
            CompressionText::Auto => Compression::Auto,
            CompressionText::Off => Compression::Off,
        };
        gateway.grace = self.grace.unwrap_or(gateway.grace);
        gateway.answer = self.answer.map_or(Ok(gateway.answer), |answer| not_zero("answer", answer))?;
        gateway.pending = self.pending.map_or(Ok(gateway.pending), |count| at_least_one("pending", count))?;
        gateway.connections =
            self.connections.map_or(Ok(gateway.connections), |count| at_least_one("connections", count))?;
        gateway.loopback = self.loopback.unwrap_or(gateway.loopback);
        gateway.memory.total = self.memory.total.unwrap_or(gateway.memory.total);
        gateway.memory.compression = self.memory.compression.unwrap_or(gateway.memory.compression);
        (gateway.satellite.connections, gateway.satellite.memory) = (gateway.connections, gateway.memory.total);
        gateway.interactive = self.interactive.resolve().map_err(|problem| problem.under("interactive"))?;
        let proxy = |key: &str, text: &Option<String>| {
            text.as_deref().map(|text| address(key, text, &["127.0.0.1:1080", "[::1]:1080"])).transpose()
        };
        let (socks, connect) = (proxy("socks", &self.socks)?, proxy("connect", &self.connect)?);
        let metrics = proxy("metrics", &self.metrics)?;
        for (key, found) in [("socks", socks), ("connect", connect), ("metrics", metrics)] {
            if found.is_some_and(|address| address.port() == 0) {
                return Err(KeyProblem::new(key, "port 0 is no port to listen on; allowed: 1 to 65535"));
            }
        }
        gateway.socks_port = socks.map(|address| address.port());
        gateway.connect_port = connect.map(|address| address.port());
        if gateway.socks_port.is_some() && gateway.socks_port == gateway.connect_port {
            return Err(KeyProblem::new("connect", "has the port of socks; allowed: another one"));
        }
        let capture = self.capture.map(CaptureText::resolve).transpose().map_err(|problem| problem.under("capture"))?;
        if role == Role::Terminal && capture.is_none() && socks.is_none() && connect.is_none() {
            let what = "missing: nothing would be relayed; allowed: [capture], or socks or connect with an address";
            return Err(KeyProblem::new("capture", what));
        }
        Ok(GatewayFile {
            listen,
            key: self.key,
            peer_key: self.peer_key.trim().to_owned(),
            gateway,
            incoming,
            capture,
            socks,
            connect,
            metrics,
            user: self.user,
            drain: self.drain.unwrap_or(Duration::from_secs(30)),
        })
    }
}

impl InteractiveText {
    fn resolve(self) -> Result<Interactive, KeyProblem> {
        let default = Interactive::default();
        let dscp = |key: &str, given: Option<Vec<u8>>, default: Vec<u8>| match given {
            Some(values) => match values.iter().find(|value| **value > 63) {
                Some(value) => Err(KeyProblem::new(key, format!("{value} is no DSCP; allowed: 0 to 63 (RFC 2474)"))),
                None => Ok(values),
            },
            None => Ok(default),
        };
        Ok(Interactive {
            bytes: self.bytes,
            period: self.period.map_or(Ok(default.period), |period| not_zero("period", period))?,
            idle: self.idle.unwrap_or(default.idle),
            ports: self.ports.unwrap_or(default.ports),
            bulk_ports: self.bulk_ports.unwrap_or(default.bulk_ports),
            dscp: dscp("dscp", self.dscp, default.dscp)?,
            bulk_dscp: dscp("bulk_dscp", self.bulk_dscp, default.bulk_dscp)?,
        })
    }
}

impl CaptureText {
    fn resolve(self) -> Result<CaptureRules, KeyProblem> {
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
        Ok(CaptureRules {
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

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let fail =
            || format!("{text:?} is no network; allowed: such as \"10.0.0.0/8\", \"2001:db8::/32\" or one address");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| fail())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(fail)?,
        };
        let network = Network { address, prefix };
        if !network.host_bits_are_zero() {
            return Err(format!("{text:?} has bits set behind its prefix; allowed: the network's first address"));
        }
        Ok(network)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Network {
    fn host_bits_are_zero(self) -> bool {
        let (address, bits) = match self.address {
            IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
            IpAddr::V6(ip) => (ip.to_bits(), 128),
        };
        let host = bits - u32::from(self.prefix);
        host == 0 || address.trailing_zeros() >= host || address == 0
    }
}

/// The link: of the catalogue with changes, or described in full.
fn link(mut table: Table) -> Result<LinkConfig, KeyProblem> {
    match table.remove("kind") {
        None => LinkConfig::from_table(table),
        Some(Value::String(kind)) => match catalogue::named(&kind) {
            Some(Ok(file)) => file.with(table),
            Some(Err(problem)) => Err(KeyProblem::new("kind", problem.to_string())),
            None => {
                let names: Vec<&str> = catalogue::names().collect();
                Err(KeyProblem::new("kind", format!("there is no link {kind:?}; allowed: {}", names.join(", "))))
            }
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

fn not_zero(key: &str, time: Duration) -> Result<Duration, KeyProblem> {
    if time.ns == 0 { Err(KeyProblem::new(key, "must be longer than \"0 s\"")) } else { Ok(time) }
}

fn at_least_one(key: &str, count: usize) -> Result<usize, KeyProblem> {
    if count == 0 { Err(KeyProblem::new(key, "must be 1 or more")) } else { Ok(count) }
}

/// Ports: `443`, `"443"` or `"8000-8100"`.
fn ports(key: &str, values: &[Value]) -> Result<Vec<RangeInclusive<u16>>, KeyProblem> {
    let one = |value: &Value| {
        let text = match value {
            Value::Integer(port) => port.to_string(),
            Value::String(text) => text.clone(),
            _ => return None,
        };
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        let (first, last) = (first.trim().parse::<u16>().ok()?, last.trim().parse::<u16>().ok()?);
        (1 <= first && first <= last).then_some(first..=last)
    };
    let all = values.iter().enumerate().map(|(index, value)| {
        let what = || format!("{value} is no port; allowed: 1 to 65535, or a range such as \"8000-8100\"");
        one(value).ok_or_else(|| KeyProblem::new(format!("{key}.{index}"), what()))
    });
    all.collect()
}

fn networks(key: &str, texts: &[String]) -> Result<Vec<Network>, KeyProblem> {
    let all = texts
        .iter()
        .enumerate()
        .map(|(index, text)| text.parse().map_err(|what: String| KeyProblem::new(format!("{key}.{index}"), what)));
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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

[capture]
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
        assert_eq!((file.gateway.open, file.gateway.fail), (Open::Early, Fail::Closed));
        assert_eq!(file.gateway.socks_port, Some(1080));
        assert_eq!(file.gateway.memory.total.bytes, 32 << 20);
        assert_eq!(file.gateway.interactive.bulk_dscp, [8]);
        let capture = file.capture.unwrap();
        assert_eq!(capture.ports, [80..=80, 443..=443, 8000..=8100]);
        let six = TERMINAL.replace("203.0.113.5:4433", "[2001:db8::5]:4433");
        let six = GatewayFile::parse(Role::Terminal, "t.toml", &six).unwrap();
        assert_eq!(six.listen.to_string(), "[::]:0");
        let networks: Vec<String> = capture.except_to.iter().map(Network::to_string).collect();
        assert_eq!(networks, ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]);
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
        let rest_changed = file.reload(&read(text("10 Mbit/s", "2 Mbit/s", "connections = 100\ndrain = \"5 s\"\n")));
        assert!(!rest_changed);
        assert_eq!(file.gateway.satellite.rate, Some(BitRate::from_bps(10_000_000)));
        assert_eq!((file.incoming, file.drain), (Some(BitRate::from_bps(2_000_000)), Duration::from_secs(5)));
        assert!(file.reload(&read(text("3 Mbit/s", "2 Mbit/s", "connections = 99\n"))), "this needs a new start");
        assert_eq!((file.gateway.satellite.rate, file.gateway.connections), (Some(BitRate::from_bps(3_000_000)), 100));
    }

    #[test]
    fn a_hub_needs_little() {
        let text = "key = \"k\"\npeer_key = \"abc\"\nrate = \"measured\"\n[link]\nrate = \"2 Mbit/s\"\none_way_delay = \"250 ms\"\n";
        let file = GatewayFile::parse(Role::Hub, "h.toml", text).unwrap();
        assert_eq!((file.listen.to_string().as_str(), file.gateway.local_port), ("[::]:4433", 4433));
        assert_eq!(file.gateway.satellite.rate, None);
        assert_eq!(file.capture, None);
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
            (
                "fail = \"closed\"",
                "fail = \"maybe\"",
                "t.toml:7: fail: unknown variant `maybe`, expected `open` or `closed`",
            ),
            ("hold = \"2 min\"", "hold = 2", "t.toml:8: hold: "),
            ("hold = \"2 min\"", "holds = \"2 min\"", "t.toml:8: holds: unknown field `holds`"),
            ("hub = \"203.0.113.5:4433\"", "hub = \"ship\"", "t.toml:2: hub: \"ship\" is not an address with a port"),
            ("hub = \"203.0.113.5:4433\"", "", "t.toml: hub: missing; allowed: "),
            ("kind = \"iperspace\"", "kind = \"moon\"", "t.toml:12: link.kind: there is no link \"moon\"; allowed: "),
            ("rate = \"9.5 Mbit/s\"", "rate = \"fast\"", "t.toml:5: rate: \"fast\" is not a rate; allowed: "),
            ("\"8000-8100\"", "\"8100-8000\"", "t.toml:23: capture.ports.2: \"8100-8000\" is no port; allowed: "),
            ("10.0.0.0/8", "10.0.0.1/8", "t.toml:24: capture.except_to.0: "),
            ("[\"eth1\"]", "[]", "t.toml:22: capture.interfaces: missing; allowed: "),
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
}
