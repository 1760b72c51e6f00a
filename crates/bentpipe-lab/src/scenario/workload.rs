//! Workloads and services: what runs in the sites, from `[[workloads]]` and `[[services]]`.
//!
//! The keys here are those that every workload has. A kind's own keys are read where the kind is defined.

use super::known_site;
use super::text::{ObjectiveText, RepeatText, UNTIL_THE_END, WorkloadText};
use crate::registry::Registry;
use bentpipe_apps::kind::{Keys, Kind, PortNeed, Role, Setting, Sites};
use bentpipe_apps::quantity::{COMPLETION_TIME, GOODPUT, LOSS, Quantity};
use bentpipe_net::distribution::Drawn;
use bentpipe_net::problem::{self, KeyProblem};
use bentpipe_net::time::Duration;
use bentpipe_net::topology::Plan;
use bentpipe_net::units::{BitRate, Percent};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use toml::{Table, Value};

/// A workload of a case, and what is wanted of it.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Which one it is.
    pub id: WorkloadId,
    /// Its entry's number under `[[workloads]]`, from 0.
    pub entry: usize,
    /// What runs, and where.
    pub placement: Placement,
    /// When it starts.
    pub start: Duration,
    /// It starts at a moment of its own within this time after `start`, drawn from the seed. Zero: at `start`.
    pub spread: Duration,
    /// Its runs, one after the other.
    pub repeat: Repeat,
    /// Time between the runs.
    pub pause: Drawn<Duration>,
    /// Ends with the others instead of being waited for.
    pub background: bool,
    /// The objective.
    pub objective: Option<Objective>,
}

/// The number of a workload's runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// So many.
    Times(u32),
    /// Until the case's `duration` is over, which cuts the last one off; at most 100,000.
    UntilTheEnd,
}

impl Repeat {
    /// The most runs that there may be.
    #[must_use]
    pub fn most(self) -> u32 {
        match self {
            Repeat::Times(times) => times,
            Repeat::UntilTheEnd => RUNS_MAX,
        }
    }
}

/// Identifies a workload in its case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct WorkloadId {
    /// Its name.
    pub name: String,
    /// Which copy, from 1; `None`: it is the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<u32>,
}

/// A server that stays for real programs to talk to.
#[derive(Clone, Debug)]
pub struct Service {
    /// What runs, and where: one party.
    pub placement: Placement,
}

/// A program of some kind, with its parties' places.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Its kind.
    pub kind: Arc<dyn Kind>,
    /// What the kind made of its keys.
    pub workload: Arc<dyn bentpipe_apps::Workload>,
    /// Its parties, in the order of the kind's roles.
    pub parties: Vec<Party>,
}

/// A party's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Party {
    /// Its role's number.
    pub role: usize,
    /// Its site.
    pub site: String,
    /// The ports that it listens on.
    pub ports: Vec<u16>,
}

/// The objective of a workload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Objective {
    /// Complete within this time.
    Within(Duration),
    /// At least this goodput.
    Goodput(BitRate),
    /// At most this loss.
    Loss(Percent),
}

impl fmt::Display for WorkloadId {
    /// `page`, or `page (3)` for a copy. Random streams are keyed by this text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.copy {
            Some(copy) => write!(f, "{} ({copy})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Workload {
    /// Reads `[[workloads]]` and `[[services]]`: every copy of every workload, and the services.
    pub(super) fn read_all(
        workloads: &[Table],
        services: &[Table],
        registry: &Registry,
        sites: &BTreeSet<&str>,
    ) -> Result<(Vec<Workload>, Vec<Service>), KeyProblem> {
        let mut read_services = Vec::new();
        for (i, table) in services.iter().enumerate() {
            let service = Service::read(table.clone(), registry, sites);
            read_services.push(service.map_err(|p| p.under(&format!("services.{i}")))?);
        }
        let mut all: Vec<Workload> = Vec::new();
        let mut labels = BTreeSet::new();
        for (entry, table) in workloads.iter().enumerate() {
            let under = |p: KeyProblem| p.under(&format!("workloads.{entry}"));
            let (workload, copies) = Workload::read(table.clone(), entry, registry, sites).map_err(under)?;
            for copy in 1..=copies {
                let id = WorkloadId { name: workload.id.name.clone(), copy: (copies > 1).then_some(copy) };
                let label = id.to_string();
                if labels.contains(&label) {
                    return Err(under(KeyProblem::new("name", format!("there is a workload {label:?} already"))));
                }
                labels.insert(label);
                // The first copy starts at `start`, so one alone has nothing to be spread.
                let spread = if copy == 1 { Duration::ZERO } else { workload.spread };
                all.push(Workload { id, spread, ..workload.clone() });
            }
        }
        assign_ports(&mut all, &mut read_services, sites)?;
        Ok((all, read_services))
    }

    /// The addresses and ports on which the parties of each workload listen in a network, all copies together. A site that
    /// has several addresses listens on each.
    pub(super) fn endpoints_by_name(workloads: &[Workload], plan: &Plan) -> BTreeMap<String, Vec<SocketAddr>> {
        let mut endpoints: BTreeMap<String, Vec<SocketAddr>> = BTreeMap::new();
        for workload in workloads {
            let of_name = endpoints.entry(workload.id.name.clone()).or_default();
            for party in &workload.placement.parties {
                let interfaces = plan.site(&party.site).map(|site| &plan.sites[site].interfaces);
                for address in interfaces.into_iter().flatten().filter_map(|interface| interface.address) {
                    of_name.extend(party.ports.iter().map(|port| SocketAddr::from((address, *port))));
                }
            }
        }
        endpoints
    }

    /// One entry, and how many copies it asks for.
    fn read(
        mut table: Table,
        entry: usize,
        registry: &Registry,
        sites: &BTreeSet<&str>,
    ) -> Result<(Workload, u32), KeyProblem> {
        let shared = problem::keys_of::<WorkloadText>();
        let text: WorkloadText = problem::read(take(&mut table, shared))?;
        let kind = registry.workloads.workload(&text.app).ok_or_else(|| {
            let names: Vec<&str> = registry.workloads.workloads().collect();
            let meant = problem::did_you_mean(&text.app, names.iter().copied());
            KeyProblem::new(
                "app",
                format!("{:?} is no kind of workload{meant}; allowed: {}", text.app, names.join(", ")),
            )
        })?;
        let copies = text.copies.unwrap_or(1);
        if !(1..=COPIES_MAX).contains(&copies) {
            let what = format!("{copies} is out of range; allowed: 1 to {COPIES_MAX}");
            return Err(KeyProblem::new("copies", what));
        }
        let repeat = match text.repeat {
            None => Repeat::Times(1),
            Some(RepeatText::UntilTheEnd) if text.background => {
                let what =
                    "a workload in the background ends with the others; allowed: a number, or background = false";
                return Err(KeyProblem::new("repeat", what));
            }
            Some(RepeatText::UntilTheEnd) => Repeat::UntilTheEnd,
            Some(RepeatText::Times(times)) => {
                let allowed = u32::try_from(times).ok().filter(|times| (1..=REPEAT_MAX).contains(times));
                let what = || format!("{times} is out of range; allowed: 1 to {REPEAT_MAX}, or {UNTIL_THE_END:?}");
                Repeat::Times(allowed.ok_or_else(|| KeyProblem::new("repeat", what()))?)
            }
        };
        let spread = text.spread.unwrap_or_default();
        let placement = Placement::read(kind, table, shared, spread, sites)?;
        let objective = text.objective.map(|text| Objective::from_text(&text, kind.as_ref())).transpose();
        let name = text.name.unwrap_or_else(|| format!("{} {}", kind.name(), entry + 1));
        let workload = Workload {
            id: WorkloadId { name, copy: None },
            entry,
            placement,
            start: text.start,
            spread,
            repeat,
            pause: text.pause.unwrap_or(Drawn::Fixed(Duration::ZERO)),
            background: text.background,
            objective: objective.map_err(|p| p.under("objective"))?,
        };
        Ok((workload, copies))
    }
}

impl Service {
    fn read(mut table: Table, registry: &Registry, sites: &BTreeSet<&str>) -> Result<Service, KeyProblem> {
        let kinds = &registry.workloads;
        let allowed = || {
            let names: Vec<&str> = kinds.services().filter(|name| *name != COMMAND).collect();
            format!("allowed: either app ({}) or command", names.join(", "))
        };
        let kind = match (table.remove("app"), table.contains_key(COMMAND)) {
            (Some(Value::String(app)), false) => kinds.service(&app),
            (None, true) => kinds.service(COMMAND),
            _ => None,
        };
        let kind = kind.ok_or_else(|| KeyProblem::new("app", allowed()))?;
        Ok(Service { placement: Placement::read(kind, table, &["app"], Duration::ZERO, sites)? })
    }
}

impl Placement {
    /// `table`: the keys that name sites, and the kind's own. `shared`: names of other keys, for messages.
    fn read(
        kind: &Arc<dyn Kind>,
        mut table: Table,
        shared: &[&'static str],
        spread: Duration,
        sites: &BTreeSet<&str>,
    ) -> Result<Placement, KeyProblem> {
        let mut parties: Vec<Party> = Vec::new();
        for (number, role) in kind.roles().iter().enumerate() {
            for site in sites_of(role, table.remove(role.key)).map_err(|p| p.under(role.key))? {
                known_site(sites, &site).map_err(|p| p.under(role.key))?;
                if let Some(other) = parties.iter().find(|party| party.site == site) {
                    let other = kind.roles()[other.role].name;
                    let what = format!("{site:?} is named as {other} already; allowed: another site");
                    return Err(KeyProblem::new(role.key, what));
                }
                parties.push(Party { role: number, site, ports: Vec::new() });
            }
        }
        let shared = kind.roles().iter().map(|role| role.key).chain(shared.iter().copied()).collect();
        let workload = kind.read(Keys { kind: kind.name(), table, shared, spread })?;
        Ok(Placement { kind: Arc::clone(kind), workload, parties })
    }

    /// The ports that its parties need: the party's number, and the need.
    fn needs(&self) -> Vec<(usize, PortNeed)> {
        let needs = self.workload.ports();
        let of_role = |role: usize| needs.iter().filter(move |need| need.role == role);
        let parties = self.parties.iter().enumerate();
        parties.flat_map(|(number, party)| of_role(party.role).map(move |need| (number, *need))).collect()
    }

    /// The role of party `number`.
    #[must_use]
    pub fn role(&self, number: usize) -> &'static Role {
        &self.kind.roles()[self.parties[number].role]
    }

    /// The site of the first party of a role.
    #[must_use]
    pub fn site(&self, role: &Role) -> Option<&str> {
        let number = self.kind.roles().iter().position(|other| other.name == role.name)?;
        self.parties.iter().find(|party| party.role == number).map(|party| party.site.as_str())
    }

    /// Where its parties are in a network.
    #[must_use]
    pub fn setting(&self, plan: &Plan, seed: u64) -> Setting {
        let address = |site: &str| plan.site(site).and_then(|site| plan.address(site));
        let party = |party: &Party| bentpipe_apps::kind::Party {
            role: party.role,
            site: party.site.clone(),
            address: address(&party.site).map_or(IpAddr::from([127, 0, 0, 1]), IpAddr::from),
            ports: party.ports.clone(),
        };
        Setting { parties: self.parties.iter().map(party).collect(), seed }
    }
}

/// The kind that runs a program of the machine, which a service names by its key alone.
const COMMAND: &str = "command";
/// Runs of a workload that a file may ask for, and of one that lasts until the end.
const REPEAT_MAX: u32 = 10_000;
const RUNS_MAX: u32 = 100_000;
/// Copies of a workload.
const COPIES_MAX: u32 = 100_000;
/// Ports below are not given to anything that did not ask for one (RFC 6335 §6: system ports).
const PORT_MIN: u16 = 1_024;

/// The keys of a table that are among `keys`, removed from it.
fn take(table: &mut Table, keys: &[&str]) -> Table {
    keys.iter().filter_map(|key| table.remove_entry(*key)).collect()
}

/// The names of a role's sites.
fn sites_of(role: &Role, value: Option<Value>) -> Result<Vec<String>, KeyProblem> {
    let problem = |what: String| Err(KeyProblem::new("", what));
    match (role.sites, value) {
        (Sites::One | Sites::Optional, Some(Value::String(site))) => Ok(vec![site]),
        (Sites::One | Sites::Optional, Some(_)) => problem(format!("must be text; allowed: {}", role.what)),
        (Sites::Optional, None) => Ok(Vec::new()),
        (Sites::One, None) => problem(format!("is missing; allowed: {}", role.what)),
        (Sites::Several { min, max }, value) => {
            let allowed = format!("allowed: a list of {min} to {max}: {}", role.what);
            match value.map(Value::try_into::<Vec<String>>) {
                Some(Ok(names)) if (min..=max).contains(&names.len()) => Ok(names),
                Some(Ok(names)) => problem(format!("names {} sites; {allowed}", names.len())),
                Some(Err(_)) => problem(format!("must be a list of names; {allowed}")),
                None if min == 0 => Ok(Vec::new()),
                None => problem(format!("is missing; {allowed}")),
            }
        }
    }
}

/// The ports of one site.
#[derive(Default)]
struct SitePorts {
    taken: BTreeSet<u16>,
    /// By default port: none of so many first ones from there on is free.
    next: BTreeMap<u16, u32>,
}

impl SitePorts {
    /// The first free port from `default` on, or from [`PORT_MIN`] on where there is none.
    fn take(&mut self, default: u16) -> Option<u16> {
        let next = self.next.entry(default).or_default();
        let above = u32::from(u16::MAX - default) + 1;
        let all = above + u32::from(default.saturating_sub(PORT_MIN));
        while *next < all {
            let nth = if *next < above { u32::from(default) + *next } else { u32::from(PORT_MIN) + *next - above };
            *next += 1;
            let port = nth as u16;
            if self.taken.insert(port) {
                return Some(port);
            }
        }
        None
    }
}

/// The ports of a site that was checked to exist.
fn site_ports<'a>(ports: &'a mut BTreeMap<&str, SitePorts>, site: &str) -> &'a mut SitePorts {
    ports.get_mut(site).unwrap_or_else(|| unreachable!("site {site} was checked"))
}

/// Gives every party the ports that it needs, each port of a site once: those that the file chose first.
fn assign_ports(
    workloads: &mut [Workload],
    services: &mut [Service],
    sites: &BTreeSet<&str>,
) -> Result<(), KeyProblem> {
    let mut ports: BTreeMap<&str, SitePorts> = sites.iter().map(|site| (*site, SitePorts::default())).collect();
    for service in services {
        for (party, need) in service.placement.needs() {
            let party = &mut service.placement.parties[party];
            let port = need.chosen.unwrap_or(need.default);
            party.ports.push(port);
            site_ports(&mut ports, &party.site).taken.insert(port);
        }
    }
    for workload in workloads.iter() {
        for (party, need) in workload.placement.needs() {
            let site = &workload.placement.parties[party].site;
            if let Some(port) = need.chosen
                && !site_ports(&mut ports, site).taken.insert(port)
            {
                let key = format!("workloads.{}.{}", workload.entry, need.key);
                return Err(KeyProblem::new(key, format!("{port} is taken at {site} already; allowed: another port")));
            }
        }
    }
    for workload in workloads {
        for (party, need) in workload.placement.needs() {
            let party = &mut workload.placement.parties[party];
            let port =
                need.chosen.or_else(|| site_ports(&mut ports, &party.site).take(need.default)).ok_or_else(|| {
                    let what = format!(
                        "each copy needs a port of its own, and no more are free at {}; allowed: fewer copies, or \
                         several servers",
                        party.site
                    );
                    KeyProblem::new(format!("workloads.{}.{}", workload.entry, need.key), what)
                })?;
            party.ports.push(port);
        }
    }
    Ok(())
}

impl Objective {
    fn from_text(text: &ObjectiveText, kind: &dyn Kind) -> Result<Objective, KeyProblem> {
        let objective = match (text.within, text.goodput, text.loss) {
            (Some(time), None, None) => Objective::Within(time),
            (None, Some(rate), None) => Objective::Goodput(rate),
            (None, None, Some(share)) => Objective::Loss(share),
            _ => return Err(KeyProblem::new("", "allowed: one of within, goodput and loss")),
        };
        if kind.quantities().contains(&objective.quantity()) {
            return Ok(objective);
        }
        let what = format!("cannot be judged of app = {:?}, which has no {}", kind.name(), objective.quantity().name);
        Err(KeyProblem::new(objective.key(), what))
    }

    fn key(&self) -> &'static str {
        match self {
            Objective::Within(_) => "within",
            Objective::Goodput(_) => "goodput",
            Objective::Loss(_) => "loss",
        }
    }

    /// The quantity that it is judged by.
    #[must_use]
    pub fn quantity(&self) -> Quantity {
        match self {
            Objective::Within(_) => COMPLETION_TIME,
            Objective::Goodput(_) => GOODPUT,
            Objective::Loss(_) => LOSS,
        }
    }

    /// The limit, in the quantity's unit.
    #[must_use]
    pub fn limit(&self) -> f64 {
        match self {
            Objective::Within(time) => time.as_secs_f64(),
            Objective::Goodput(rate) => rate.bps as f64,
            Objective::Loss(share) => share.fraction(),
        }
    }
}
