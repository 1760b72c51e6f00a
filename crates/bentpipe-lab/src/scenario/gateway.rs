//! Gateway pairs: what `[gateways.LINK]` says, and the network that follows from it.
//!
//! A pair on link `sat` between `hub` and `clinic` makes two more sites and two more links:
//! hub – sat-hub-lan – hub-gateway – sat – clinic-gateway – sat-clinic-lan – clinic. The sites of the file keep their
//! names, programs and TCP settings.

use super::text::{CompressionText, FailText, GatewayText, MemoryText, OpenText};
use super::{Case, LinkUse, Role, Scenario};
use bentpipe_gateway::satellite::{SatelliteConfig, Side};
use bentpipe_gateway::{Compression, Fail, GatewayConfig, Memory, Open};
use bentpipe_link::config::LinkConfig;
use bentpipe_net::problem::{KeyProblem, Problem};
use bentpipe_net::time::Duration;
use bentpipe_net::topology::Plan;
use bentpipe_net::units::{BitRate, DataSize};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// A gateway pair on a link.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Number of its link in the case.
    pub link: usize,
    /// Names of its sites, hub first.
    pub sites: [String; 2],
    /// Names of the links between the file's sites and its own, hub first.
    pub lans: [String; 2],
    /// What both sides are told.
    pub settings: Settings,
}

/// What both sides of a pair are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// When connection requests are answered.
    pub open: Open,
    /// What becomes of them while the pair is apart.
    pub fail: Fail,
    /// Whether what is relayed is compressed.
    pub compression: Compression,
    /// How long connections outlive silence of the link.
    pub hold: Duration,
    /// Declared rates, forward and return.
    pub rates: [Rate; 2],
    /// What the relay may hold.
    pub memory: Memory,
}

/// A rate that a gateway is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rate {
    /// The link's own, as its file says.
    #[default]
    OfLink,
    /// Another one.
    Declared(BitRate),
    /// None: it measures.
    Measured,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            open: Open::default(),
            fail: Fail::default(),
            compression: Compression::default(),
            hold: SatelliteConfig::HOLD,
            rates: [Rate::default(); 2],
            memory: Memory::default(),
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

/// The catalogue's place of [`LAN`], for reports.
pub const LAN_KIND: &str = "gateway LAN";

/// Least memory of the relay: two connections' worth.
const TOTAL_MIN: DataSize = DataSize::from_bytes(2 * Memory::CONNECTION.bytes);
/// Least MTU of a pair's link: what the satellite side can be told.
const MTU_MIN: u64 = 256;
/// Hold times: shorter ones would end connections at a lost packet or two, longer ones keep them for ever.
const HOLD_MIN: Duration = Duration::from_secs(1);
const HOLD_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

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
        let mut satellite = SatelliteConfig::of_link(&link.config, place);
        satellite.hold = self.settings.hold;
        match self.settings.rates[side] {
            Rate::OfLink => {}
            Rate::Declared(rate) => satellite.rate = Some(rate),
            Rate::Measured => satellite.rate = None,
        }
        let mut config = GatewayConfig::new(satellite);
        config.local_port = if side == 0 { HUB_PORT } else { 0 };
        (config.open, config.fail) = (self.settings.open, self.settings.fail);
        (config.compression, config.memory) = (self.settings.compression, self.settings.memory);
        config.satellite.memory = config.memory.total;
        config
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
                kind: LAN_KIND.to_owned(),
                sites: vec![link.sites[side].clone(), self.sites[side].clone()],
                config,
            }
        };
        [of(0), of(1)]
    }
}

impl Settings {
    fn from_text(text: &GatewayText) -> Result<Settings, KeyProblem> {
        let usual = Settings::default();
        let hold = text.hold.unwrap_or(usual.hold);
        if !(HOLD_MIN..=HOLD_MAX).contains(&hold) {
            return Err(KeyProblem::new("hold", format!("{hold} is out of range; allowed: {HOLD_MIN} to {HOLD_MAX}")));
        }
        let rate = |key: &str, own: Option<&str>| match own.or(text.rate.as_deref()) {
            None => Ok(Rate::OfLink),
            Some("measured") => Ok(Rate::Measured),
            Some(rate) => match rate.parse::<BitRate>() {
                Ok(rate) if rate.bps > 0 => Ok(Rate::Declared(rate)),
                _ => {
                    let key = if own.is_some() { format!("{key}.rate") } else { "rate".to_owned() };
                    let allowed = "allowed: a rate, such as \"9 Mbit/s\", or \"measured\"";
                    Err(KeyProblem::new(key, format!("{rate:?} is no rate; {allowed}")))
                }
            },
        };
        let own = |side: &Option<super::text::GatewayDirectionText>| side.as_ref().and_then(|side| side.rate.clone());
        Ok(Settings {
            open: match text.open {
                None | Some(OpenText::Answered) => Open::Answered,
                Some(OpenText::Early) => Open::Early,
            },
            fail: match text.fail {
                None | Some(FailText::Open) => Fail::Open,
                Some(FailText::Closed) => Fail::Closed,
            },
            compression: match text.compression {
                None | Some(CompressionText::Auto) => Compression::Auto,
                Some(CompressionText::Off) => Compression::Off,
            },
            hold,
            rates: [rate("forward", own(&text.forward).as_deref())?, rate("return", own(&text.back).as_deref())?],
            memory: memory(text.memory.as_ref()).map_err(|p| p.under("memory"))?,
        })
    }

    /// As the record states them: key and value.
    pub fn told(&self) -> Vec<(&'static str, String)> {
        let rate = |rate: Rate| match rate {
            Rate::OfLink => "of the link".to_owned(),
            Rate::Declared(rate) => rate.to_string(),
            Rate::Measured => "measured".to_owned(),
        };
        let told = [
            ("open", if self.open == Open::Early { "early" } else { "answered" }.to_owned()),
            ("fail", if self.fail == Fail::Closed { "closed" } else { "open" }.to_owned()),
            ("compression", if self.compression == Compression::Off { "off" } else { "auto" }.to_owned()),
            ("hold", self.hold.to_string()),
            ("forward rate", rate(self.rates[0])),
            ("return rate", rate(self.rates[1])),
        ];
        told.to_vec()
    }
}

fn memory(text: Option<&MemoryText>) -> Result<Memory, KeyProblem> {
    let usual = Memory::default();
    let Some(text) = text else { return Ok(usual) };
    let within = |key: &str, size: Option<DataSize>, usual: DataSize, least: DataSize| match size {
        Some(size) if size.bytes < least.bytes => {
            Err(KeyProblem::new(key, format!("{size} is too little; allowed: {least} or more")))
        }
        size => Ok(size.unwrap_or(usual)),
    };
    Ok(Memory {
        total: within("total", text.total, usual.total, TOTAL_MIN)?,
        compression: within("compression", text.compression, usual.compression, DataSize::from_bytes(0))?,
    })
}

/// The pairs of a case: of each link that the file puts one on.
pub(super) fn pairs<'a>(
    texts: impl Iterator<Item = (&'a String, &'a GatewayText)>,
    links: &[LinkUse],
    roles: &std::collections::BTreeMap<String, Role>,
) -> Result<Vec<Pair>, KeyProblem> {
    let mut wanted = Vec::new();
    for (name, text) in texts {
        let under = |p: KeyProblem| p.under(&format!("gateways.{name}"));
        let Some(link) = links.iter().position(|link| link.name == *name) else {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(under(KeyProblem::new(
                "",
                format!("there is no link {name:?}; allowed: {}", names.join(", ")),
            )));
        };
        can_stand(&links[link], roles).map_err(|what| under(KeyProblem::new("", what)))?;
        wanted.push((link, Settings::from_text(text).map_err(under)?));
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

/// What `--compare gateway` adds to a case's name; the whole name where the file lists no cases.
const WITHOUT: &str = "without gateway";
const WITH: &str = "with gateway";

impl Scenario {
    /// The same scenario with every case twice: without a gateway pair and with. Where the file puts a pair on no link, one
    /// with the usual settings stands on the link with the longest round trip.
    pub fn compare_gateway(mut self) -> Result<Scenario, Problem> {
        let mut cases = Vec::new();
        let listed = self.cases.len() > 1 || self.cases.iter().any(|case| case.name != self.title);
        for case in std::mem::take(&mut self.cases) {
            let name = |which: &str| if listed { format!("{}, {which}", case.name) } else { which.to_owned() };
            let pairs = match case.pairs.is_empty() {
                false => case.pairs.clone(),
                true => usual_pair(&case).map_err(|problem| problem.within(&self.source_name, &self.text))?,
            };
            let of = Some(case.name.clone());
            cases.push(Case { name: name(WITHOUT), compared: of.clone(), pairs: Vec::new(), ..case.clone() });
            cases.push(Case { name: name(WITH), compared: of, pairs, ..case.clone() });
        }
        self.cases = cases;
        Ok(self)
    }
}

/// A pair with the usual settings on the link with the longest round trip; of several, the first.
fn usual_pair(case: &Case) -> Result<Vec<Pair>, KeyProblem> {
    let candidates = || case.links.iter().enumerate().filter(|(_, link)| can_stand(link, &case.roles).is_ok());
    let longest = candidates().map(|(_, link)| link.config.round_trip()).max();
    let Some((link, _)) = candidates().find(|(_, link)| Some(link.config.round_trip()) == longest) else {
        let why: Vec<String> = case.links.iter().filter_map(|link| can_stand(link, &case.roles).err()).collect();
        return Err(KeyProblem::new("links", format!("no link can have a gateway pair: {}", why.join("; "))));
    };
    Ok(place(vec![(link, Settings::default())], &case.links))
}
