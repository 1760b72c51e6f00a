//! The file of a gateway daemon: TOML to a checked [`GatewayFile`].

use super::super::BadInput;
use super::Role;
use bentpipe_gateway::file::{CaptureRules, Network};
use bentpipe_gateway::satellite::{SatelliteConfig, Side};
use bentpipe_gateway::{Compression, Fail, GatewayConfig, GatewayFile, Open};
use bentpipe_lab::scenario::find_link;
use bentpipe_link::config::LinkConfig;
use bentpipe_link::problem::{self, KeyProblem, Problem};
use bentpipe_link::time::Duration;
use bentpipe_link::units::DataSize;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The hub's UDP port unless the file names another.
const PORT: u16 = 4370;
const DRAIN: Duration = Duration::from_secs(30);
/// What the kernel takes for a device's name (IFNAMSIZ, without the end).
const INTERFACE_NAME_MAX: usize = 15;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    hub: Option<SocketAddr>,
    listen: Option<SocketAddr>,
    key: PathBuf,
    peer_key: String,
    user: Option<String>,
    metrics: Option<SocketAddr>,
    socks: Option<SocketAddr>,
    connect: Option<SocketAddr>,
    open: Option<OpenText>,
    fail: Option<FailText>,
    drain: Option<Duration>,
    hold: Option<Duration>,
    connections: Option<usize>,
    memory: Option<DataSize>,
    compression: Option<bool>,
    loopback: Option<bool>,
    measure_rate: Option<bool>,
    capture: Option<CaptureText>,
    link: Table,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum OpenText {
    Answered,
    Early,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum FailText {
    Open,
    Closed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaptureText {
    interfaces: Vec<String>,
    #[serde(default)]
    ports: Vec<PortText>,
    #[serde(default)]
    to: Vec<String>,
    #[serde(default)]
    from: Vec<String>,
    #[serde(default)]
    except_ports: Vec<PortText>,
    #[serde(default)]
    except_to: Vec<String>,
    #[serde(default)]
    except_from: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PortText {
    Number(u16),
    Range(String),
}

/// Reads the file at `path`, which must be for `role`.
pub fn read(path: &Path, role: Role) -> Result<GatewayFile, BadInput> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| BadInput(format!("cannot read {name}: {error}")))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    Ok(parse(&name, &text, folder, role)?)
}

/// Reads the text of a file; other files are looked for from `folder`.
fn parse(name: &str, text: &str, folder: &Path, role: Role) -> Result<GatewayFile, Problem> {
    let table: Table = toml::from_str(text).map_err(|error| problem::syntax_problem(name, text, &error))?;
    problem::read::<FileText>(table).and_then(|file| resolve(file, folder, role)).map_err(|p| p.within(name, text))
}

fn resolve(file: FileText, folder: &Path, role: Role) -> Result<GatewayFile, KeyProblem> {
    let side = match (role, file.hub) {
        (Role::Hub, None) => Side::Hub,
        (Role::Terminal, Some(hub)) if hub.port() != 0 && !hub.ip().is_unspecified() => Side::Terminal(hub),
        (Role::Terminal, Some(_)) => {
            return Err(KeyProblem::new("hub", "must be an address and a port that can be called"));
        }
        (Role::Hub, Some(_)) => return Err(KeyProblem::new("hub", "belongs into the terminal's file, not the hub's")),
        (Role::Terminal, None) => {
            return Err(KeyProblem::new(
                "",
                format!("hub is missing: the hub's address and port, such as \"192.0.2.1:{PORT}\""),
            ));
        }
    };
    let port = if role == Role::Hub { PORT } else { 0 };
    let listen = file.listen.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    let link = link(file.link, folder).map_err(|p| p.under("link"))?;
    let mut satellite = SatelliteConfig::of_link(&link, side);
    if file.measure_rate == Some(true) {
        satellite.rate = None;
    }
    satellite.hold = file.hold.unwrap_or(satellite.hold);
    let mut gateway = GatewayConfig::new(satellite);
    gateway.local_port = listen.port();
    gateway.socks_port = file.socks.map(|address| address.port());
    gateway.connect_port = file.connect.map(|address| address.port());
    if let Some(open) = file.open {
        gateway.open = match open {
            OpenText::Answered => Open::Answered,
            OpenText::Early => Open::Early,
        };
    }
    if let Some(fail) = file.fail {
        gateway.fail = match fail {
            FailText::Open => Fail::Open,
            FailText::Closed => Fail::Closed,
        };
    }
    if file.compression == Some(false) {
        gateway.compression = Compression::Off;
    }
    gateway.connections = file.connections.unwrap_or(gateway.connections);
    gateway.memory.total = file.memory.unwrap_or(gateway.memory.total);
    gateway.loopback = file.loopback.unwrap_or(gateway.loopback);
    let addresses = [("listen", Some(listen)), ("socks", file.socks), ("connect", file.connect)];
    for (key, address) in addresses.iter().skip(1) {
        if address.is_some_and(|address| address.port() == 0) {
            return Err(KeyProblem::new(*key, "needs a port other than 0"));
        }
    }
    if file.socks.is_some() && file.socks.map(|a| a.port()) == file.connect.map(|a| a.port()) {
        return Err(KeyProblem::new("connect", "needs another port than socks"));
    }
    Ok(GatewayFile {
        listen,
        key: folder.join(file.key),
        peer_key: file.peer_key,
        gateway,
        capture: file.capture.map(capture).transpose().map_err(|p| p.under("capture"))?,
        socks: file.socks,
        connect: file.connect,
        metrics: file.metrics,
        user: file.user,
        drain: file.drain.unwrap_or(DRAIN),
    })
}

/// A link as in a scenario: of the catalogue or a file, with other values on top, or all of them here.
fn link(mut table: Table, folder: &Path) -> Result<LinkConfig, KeyProblem> {
    match table.remove("kind") {
        None => LinkConfig::from_table(table),
        Some(Value::String(kind)) => {
            find_link(&kind, folder).map_err(|message| KeyProblem::new("kind", message))?.with(table)
        }
        Some(_) => Err(KeyProblem::new("kind", "must be text: a name of the catalogue, or a file")),
    }
}

fn capture(text: CaptureText) -> Result<CaptureRules, KeyProblem> {
    if text.interfaces.is_empty() {
        return Err(KeyProblem::new(
            "interfaces",
            "must name at least one interface towards the site, such as [\"lan0\"]",
        ));
    }
    for name in &text.interfaces {
        // What has no meaning of its own in a firewall rule.
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
        if name.is_empty() || name.len() > INTERFACE_NAME_MAX || !name.chars().all(allowed) || name == "lo" {
            let what =
                format!("'{name}' is no interface towards a site; allowed: up to 15 letters, digits and . _ - @");
            return Err(KeyProblem::new("interfaces", what));
        }
    }
    Ok(CaptureRules {
        interfaces: text.interfaces,
        ports: ports("ports", &text.ports)?,
        to: networks("to", &text.to)?,
        from: networks("from", &text.from)?,
        except_ports: ports("except_ports", &text.except_ports)?,
        except_to: networks("except_to", &text.except_to)?,
        except_from: networks("except_from", &text.except_from)?,
    })
}

fn ports(key: &str, texts: &[PortText]) -> Result<Vec<RangeInclusive<u16>>, KeyProblem> {
    let one = |text: &PortText| match text {
        PortText::Number(port) => Some(*port..=*port),
        PortText::Range(text) => {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last).then_some(first..=last)
        }
    };
    let ranges: Option<Vec<_>> = texts.iter().map(one).collect();
    let mut ranges =
        ranges.ok_or_else(|| KeyProblem::new(key, "allowed: ports and ranges, such as [22, \"8000-8010\"]"))?;
    // nft refuses ranges that overlap.
    ranges.sort_by_key(|range| *range.start());
    match ranges.windows(2).any(|two| two[1].start() <= two[0].end()) {
        true => Err(KeyProblem::new(key, "two of these overlap")),
        false => Ok(ranges),
    }
}

fn networks(key: &str, texts: &[String]) -> Result<Vec<Network>, KeyProblem> {
    let one = |text: &String| {
        let (address, prefix) = text.split_once('/').map_or((text.as_str(), None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |p| p.parse().ok())?;
        (prefix <= bits).then_some(Network { address, prefix })
    };
    let networks: Option<Vec<_>> = texts.iter().map(one).collect();
    networks.ok_or_else(|| KeyProblem::new(key, "allowed: networks, such as [\"10.0.0.0/8\", \"2001:db8::/32\"]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "[link]\nmtu = \"1500 B\"\nrate = \"10 Mbit/s\"\none_way_delay = \"300 ms\"\n";

    fn parsed(top: &str, bottom: &str, role: Role) -> Result<GatewayFile, String> {
        let text = format!("key = \"x.key\"\npeer_key = \"y\"\n{top}\n{LINK}{bottom}");
        parse("x.toml", &text, Path::new("/etc"), role).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_file_says_all_or_what_is_usual() {
        let hub = parsed("", "", Role::Hub).unwrap();
        assert_eq!((hub.listen.to_string(), hub.key.as_path()), ("0.0.0.0:4370".into(), Path::new("/etc/x.key")));
        assert_eq!(hub.gateway.satellite.rate.unwrap().bps, 10_000_000);
        assert_eq!(hub.gateway.satellite.round_trip, Duration::from_millis(600));
        assert_eq!((hub.gateway.fail, hub.capture, hub.drain), (Fail::Open, None, DRAIN));
        let capture =
            "[capture]\ninterfaces = [\"lan0\"]\nexcept_ports = [\"8000-8010\", 22]\nto = [\"10.0.0.0/8\", \"::1\"]";
        let terminal =
            parsed("hub = \"192.0.2.1:4370\"\nfail = \"closed\"\nmeasure_rate = true", capture, Role::Terminal);
        let terminal = terminal.unwrap();
        assert_eq!(Role::of(&terminal.gateway.satellite.side), Role::Terminal);
        assert_eq!((terminal.gateway.satellite.rate, terminal.gateway.fail), (None, Fail::Closed));
        let capture = terminal.capture.unwrap();
        assert_eq!(capture.except_ports, [22..=22, 8000..=8010]);
        assert_eq!(capture.to[1], Network { address: "::1".parse().unwrap(), prefix: 128 });
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (top, bottom, role, said) in [
            ("", "", Role::Terminal, "x.toml: hub is missing"),
            ("hub = \"192.0.2.1:1\"", "", Role::Hub, "x.toml:3: hub: belongs into the terminal's file"),
            ("hub = \"0.0.0.0:1\"", "", Role::Terminal, "x.toml:3: hub: must be an address"),
            ("fial = \"open\"", "", Role::Hub, "x.toml:3"),
            ("fail = \"maybe\"", "", Role::Hub, "x.toml:3: fail"),
            ("", "one_way_dealy = \"1 s\"", Role::Hub, "x.toml:8"),
            ("", "[capture]\ninterfaces = []", Role::Hub, "x.toml:9: capture.interfaces: must name"),
            ("", "[capture]\ninterfaces = [\"a; b\"]", Role::Hub, "x.toml:9: capture.interfaces: 'a; b' is no"),
            ("", "[capture]\ninterfaces = [\"a\"]\nports = [\"9-1\"]", Role::Hub, "x.toml:10: capture.ports: allowed"),
            ("", "[capture]\ninterfaces = [\"a\"]\nfrom = [\"10.0.0.0/40\"]", Role::Hub, "x.toml:10: capture.from"),
            ("socks = \"127.0.0.1:0\"", "", Role::Hub, "x.toml:3: socks: needs a port"),
        ] {
            let problem = parsed(top, bottom, role).unwrap_err();
            assert!(problem.starts_with(said), "{problem}, not {said}");
        }
    }
}
