//! Gateway pairs: `[gateways.LINK]`, and the network that follows from it.
//!
//! A pair on link `sat` between `hub` and `clinic` makes two more sites and two more links:
//! hub – sat-hub-lan – hub-gateway – sat – clinic-gateway – sat-clinic-lan – clinic. The sites of the file keep their
//! names, programs and TCP settings.

use super::{Case, LinkUse, Role, Scenario};
use bentpipe_gateway::config::LineFacts;
use bentpipe_gateway::front_end::{FrontEndSettings, Registry};
use bentpipe_gateway::satellite::{SatelliteConfig, Side};
use bentpipe_gateway::{Compression, Fail, GatewayConfig, Open, Rate};
use bentpipe_link::config::LinkConfig;
use bentpipe_net::problem::{KeyProblem, Problem};
use bentpipe_net::topology::Plan;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use toml::Table;

/// A gateway pair on a link.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Number of its link in the case.
    pub link: usize,
    /// Names of its sites, hub first.
    pub sites: [String; 2],
    /// Names of the links between the file's sites and its own, hub first.
    pub lans: [String; 2],
    /// How both sides are set.
    pub settings: Settings,
}

/// Settings of a pair: those of both gateways, and their rates where these differ.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Of both gateways.
    pub gateway: bentpipe_gateway::Settings,
    /// Of both gateways.
    pub front_ends: Vec<FrontEndSettings>,
    /// Declared rates, forward and return.
    pub rates: [Rate; 2],
}

/// Keys of `[gateways.LINK]` that a daemon's file does not have.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PairText {
    forward: DirectionText,
    #[serde(rename = "return")]
    back: DirectionText,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectionText {
    rate: Option<Rate>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            gateway: bentpipe_gateway::Settings::default(),
            front_ends: Registry::standard().without_keys(),
            rates: [Rate::default(); 2],
        }
    }
}

/// UDP port on which the hub's gateway waits for the terminal's, in a scenario: of the dynamic range (RFC 6335 §6), so that
/// no service of a workload is there.
pub const HUB_PORT: u16 = 50_300;

/// The link between a file's site and its gateway: a short cable. Its queue holds any burst of a host, so that it never
/// loses a packet; its MTU is that of the pair's link, so that what passes the pair by needs no fragments.
const LAN: &str = "title = \"Between a site and its gateway\"\n\
    summary = \"1 Gbit/s, one switch; not what is measured, so nothing is lost on it\"\n\
    rate = \"1 Gbit/s\"\none_way_delay = \"50 us\"\nqueue = { bytes = \"16 MiB\" }\n";

/// The catalogue's place of `LAN`, for reports.
pub const LAN_KIND: &str = "gateway LAN";

/// Least MTU of a pair's link: what the satellite side can be configured with.
const MTU_MIN: u64 = 256;
impl Pair {
    /// What the gateway at the hub's (0) or the terminal's side (1) is told. `plan`: of the network that it stands in.
    pub fn config(&self, side: usize, link: &LinkUse, plan: &Plan) -> GatewayConfig {
        let hub = || {
            let site = plan.site(&self.sites[0])?;
            Some(SocketAddr::new(IpAddr::V4(plan.address(site)?), HUB_PORT))
        };
        let place = match side {
            0 => Side::Hub,
            _ => Side::Terminal(hub().unwrap_or_else(|| unreachable!("the plan has every gateway's site"))),
        };
        let mut settings = self.settings.gateway.clone();
        settings.rate = self.settings.rates[side];
        GatewayConfig {
            line: LineFacts::of_link(&link.config),
            local_port: if side == 0 { HUB_PORT } else { 0 },
            front_ends: self.settings.front_ends.clone(),
            ..GatewayConfig::with_settings(SatelliteConfig::of_link(&link.config, place), settings)
        }
    }

    /// The links between the file's sites and the pair's: hub first.
    pub(super) fn lan_links(&self, link: &LinkUse) -> [LinkUse; 2] {
        let of = |side: usize| {
            let table: toml::Table = LAN.parse().unwrap_or_else(|_| unreachable!("a constant that a test reads"));
            let mut config =
                LinkConfig::from_table(table).unwrap_or_else(|_| unreachable!("a constant that a test reads"));
            config.mtu = link.config.mtu;
            LinkUse {
                name: self.lans[side].clone(),
                kind: Some(LAN_KIND.to_owned()),
                sites: vec![link.sites[side].clone(), self.sites[side].clone()],
                config,
            }
        };
        [of(0), of(1)]
    }
}

impl Settings {
    fn read(table: &Table, registry: &Registry) -> Result<Settings, KeyProblem> {
        let (gateway, front_ends, pair) = bentpipe_gateway::Settings::read_with::<PairText>(table.clone(), registry)?;
        let rates = [pair.forward, pair.back].map(|direction| direction.rate.unwrap_or(gateway.rate));
        Ok(Settings { gateway, front_ends, rates })
    }

    /// As the record states them: key and value.
    pub fn listed(&self) -> Vec<(&'static str, String)> {
        let rate = |rate: Rate| match rate {
            Rate::OfLink => "of the link".to_owned(),
            Rate::Declared(rate) => rate.to_string(),
            Rate::Measured => "measured".to_owned(),
        };
        let listed = [
            ("open", if self.gateway.open == Open::Early { "early" } else { "answered" }.to_owned()),
            ("fail", if self.gateway.fail == Fail::Closed { "closed" } else { "open" }.to_owned()),
            ("compression", if self.gateway.compression == Compression::Off { "off" } else { "auto" }.to_owned()),
            ("hold", self.gateway.hold.to_string()),
            ("forward rate", rate(self.rates[0])),
            ("return rate", rate(self.rates[1])),
        ];
        listed.to_vec()
    }
}

/// The pairs of a case: of each link that the file puts one on.
pub(super) fn pairs<'a>(
    tables: impl Iterator<Item = (&'a String, &'a Table)>,
    registry: &Registry,
    links: &[LinkUse],
    roles: &std::collections::BTreeMap<String, Role>,
) -> Result<Vec<Pair>, KeyProblem> {
    let mut wanted = Vec::new();
    for (name, table) in tables {
        let under = |p: KeyProblem| p.under(&format!("gateways.{name}"));
        let Some(link) = links.iter().position(|link| link.name == *name) else {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(under(KeyProblem::new(
                "",
                format!("there is no link {name:?}; allowed: {}", names.join(", ")),
            )));
        };
        can_stand(&links[link], roles).map_err(|what| under(KeyProblem::new("", what)))?;
        let settings = Settings::read(table, registry).map_err(under)?;
        if let Some(dial) = &settings.gateway.dial {
            let is_circuit = links[link].config.circuit.is_some();
            let what = || format!("link {name} has no circuit; allowed: on a link with [links.{name}.circuit]");
            is_circuit.then_some(()).ok_or_else(|| under(KeyProblem::new("dial", what())))?;
            dial.check_scenario().map_err(|problem| under(problem.under("dial")))?;
        }
        wanted.push((link, settings));
    }
    wanted.sort_by_key(|(link, _)| *link);
    Ok(place(wanted, links))
}

/// Whether a pair can stand on a link, and if not, why.
fn can_stand(link: &LinkUse, roles: &std::collections::BTreeMap<String, Role>) -> Result<(), String> {
    let name = &link.name;
    if link.sites.len() != 2 {
        let n = link.sites.len();
        return Err(format!("link {name} joins {n} sites; allowed: a gateway pair on a link between two"));
    }
    if link.config.carries_ethernet {
        return Err(format!("link {name} carries Ethernet frames; allowed: a gateway pair on a link that carries IP"));
    }
    if link.config.mtu < MTU_MIN {
        let mtu = link.config.mtu;
        return Err(format!(
            "link {name} has an MTU of {mtu} B; allowed: a gateway pair on one of {MTU_MIN} B or more"
        ));
    }
    if let Some(site) = link.sites.iter().find(|site| roles.get(*site) == Some(&Role::Bridge)) {
        return Err(format!("site {site} bridges frames; allowed: a gateway pair between hosts and routers"));
    }
    Ok(())
}

/// Names for the sites and links of pairs on the given links.
fn place(wanted: Vec<(usize, Settings)>, links: &[LinkUse]) -> Vec<Pair> {
    let mut sites: BTreeSet<String> = links.iter().flat_map(|link| link.sites.iter().cloned()).collect();
    let mut names: BTreeSet<String> = links.iter().map(|link| link.name.clone()).collect();
    let pair = |(link, settings): (usize, Settings)| {
        let LinkUse { name, sites: ends, .. } = &links[link];
        let own_sites = [0, 1].map(|side| free(&mut sites, &ends[side], "-gateway"));
        let lans = [0, 1].map(|side| free(&mut names, &format!("{name}-{}", ends[side]), "-lan"));
        Pair { link, sites: own_sites, lans, settings }
    };
    wanted.into_iter().map(pair).collect()
}

/// `NAME-gateway`, or with a number behind it what is not taken yet; at most 63 characters (RFC 1123 §2.1).
fn free(taken: &mut BTreeSet<String>, name: &str, suffix: &str) -> String {
    const NAME_MAX: usize = 63;
    let with = |number: usize| {
        let suffix = if number == 1 { suffix.to_owned() } else { format!("{suffix}-{number}") };
        let mut end = name.len().min(NAME_MAX - suffix.len());
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        format!("{}{suffix}", &name[..end])
    };
    let name = (1..).map(with).find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(name.clone());
    name
}

/// The suffix that `--compare gateway` adds to a case's name; the whole name where the file lists no cases.
const WITHOUT: &str = "without gateway";
const WITH: &str = "with gateway";

impl Scenario {
    /// The same scenario with every case twice: without a gateway pair and with. Where the file puts a pair on no link, one
    /// with the default settings stands on the link with the longest round trip.
    pub fn compare_gateway(mut self) -> Result<Scenario, Problem> {
        let mut cases = Vec::new();
        let listed = self.cases.len() > 1 || self.cases.iter().any(|case| case.name != self.title);
        for case in std::mem::take(&mut self.cases) {
            let name = |which: &str| if listed { format!("{}, {which}", case.name) } else { which.to_owned() };
            let pairs = match case.pairs.is_empty() {
                false => case.pairs.clone(),
                true => default_pair(&case).map_err(|problem| problem.within(&self.source_name, &self.text))?,
            };
            let of = Some(case.name.clone());
            cases.push(Case { name: name(WITHOUT), compared: of.clone(), pairs: Vec::new(), ..case.clone() });
            cases.push(Case { name: name(WITH), compared: of, pairs, ..case.clone() });
        }
        self.cases = cases;
        Ok(self)
    }
}

/// A pair with the default settings on the link with the longest round trip; of several, the first.
fn default_pair(case: &Case) -> Result<Vec<Pair>, KeyProblem> {
    let candidates = || case.links.iter().enumerate().filter(|(_, link)| can_stand(link, &case.roles).is_ok());
    let longest = candidates().map(|(_, link)| link.config.round_trip()).max();
    let Some((link, _)) = candidates().find(|(_, link)| Some(link.config.round_trip()) == longest) else {
        let why: Vec<String> = case.links.iter().filter_map(|link| can_stand(link, &case.roles).err()).collect();
        return Err(KeyProblem::new("links", format!("no link can have a gateway pair: {}", why.join("; "))));
    };
    Ok(place(vec![(link, Settings::default())], &case.links))
}
