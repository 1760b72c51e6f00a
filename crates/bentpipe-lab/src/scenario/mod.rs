//! The scenario: what a TOML file asks for, complete and checked before anything starts.
//!
//! `text` is the file as written, [`workload`] what its programs are; here both become [`Scenario`], case by case.

pub mod gateway;
mod text;
mod traces;
pub mod workload;

use crate::files::{TEXT_BYTES_MAX, read_text};
use crate::registry::Registry;
use bentpipe_apps::kind::Part;
use bentpipe_link::catalogue::{self, LinkFile};
use bentpipe_link::config::{LinkConfig, merge};
use bentpipe_link::registry::{Registry as LinkKinds, Workloads};
use bentpipe_net::problem::{KeyProblem, Problem, did_you_mean, read, syntax_problem};
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::time::Duration;
use bentpipe_net::topology;
use gateway::Pair;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use text::{AxisText, CaseText, HostText, RoleText, ScenarioText};
use toml::{Table, Value};
pub use traces::read_traces;
use workload::{Repeat, Service, Workload};

/// A scenario, complete.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its title.
    pub title: String,
    /// Seed of every random stream.
    pub seed: u64,
    /// The cases to run, at least one.
    pub cases: Vec<Case>,
    /// Its file's name.
    pub source_name: String,
    /// Its text.
    pub text: String,
    /// Overrides from the command line.
    pub overrides: Vec<String>,
    /// The cases chosen of the file's; empty: all.
    pub chosen_cases: Vec<String>,
    /// The kinds that it may name.
    pub registry: Arc<Registry>,
    /// The axes of an experiment. A plain run ignores them.
    pub axes: Vec<Axis>,
    /// Runs of each point of an experiment, each with a seed of its own; one if the file does not say.
    pub seeds: Option<u32>,
    /// Choices that the scenario's source leaves open: the key, and the reason.
    pub assumptions: BTreeMap<String, String>,
}

/// Something that an experiment varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The name in tables and charts.
    pub name: String,
    /// The keys that all get the value; `*` stands for every name, as in `hosts.*.tcp.mtu`.
    pub keys: Vec<String>,
    /// The values as `--vary` takes them: `8 KiB,64 KiB` or `1e-9..1e-3 log 7`.
    pub values: String,
    /// Only these cases vary; none: all do.
    pub cases: Option<Vec<String>>,
}

/// One case: the network and what runs on it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name; the scenario's title when the file lists no cases.
    pub name: String,
    /// With `--compare gateway`: the name of the case that this one is half of.
    pub compared: Option<String>,
    /// Links in the order of the file.
    pub links: Vec<LinkUse>,
    /// Gateway pairs, in the order of their links.
    pub pairs: Vec<Pair>,
    /// Roles that the file states.
    pub roles: BTreeMap<String, Role>,
    /// TCP settings of every site.
    pub tcp: BTreeMap<String, TcpConfig>,
    /// Servers that stay.
    pub services: Vec<Service>,
    /// Workloads in the order of the file.
    pub workloads: Vec<Workload>,
    /// Ends the case though workloads still run.
    pub duration: Option<Duration>,
    /// When a live run counts as invalid.
    pub lateness: LatenessLimits,
}

/// A command that a case runs.
#[derive(Clone, Debug)]
pub struct CommandUse<'a> {
    /// Its key in the file.
    pub key: String,
    /// The workload or service, for messages.
    pub what: String,
    /// The program and its arguments.
    pub argv: &'a [String],
}

/// A link between sites.
#[derive(Clone, Debug)]
pub struct LinkUse {
    /// Its name in the scenario.
    pub name: String,
    /// The catalogue's name, or a file's path; none where the scenario itself has all keys.
    pub kind: Option<String>,
    /// Hub first, then terminals.
    pub sites: Vec<String>,
    /// Its configuration.
    pub config: LinkConfig,
}

/// A site's treatment of packets for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Nothing.
    Host,
    /// Forwards IP packets.
    Router,
    /// Forwards frames.
    Bridge,
}

/// A live run that is later than this is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatenessLimits {
    /// For 99 % of the packets.
    pub p99: Duration,
    /// For every packet.
    pub worst: Duration,
}

impl Default for LatenessLimits {
    fn default() -> Self {
        LatenessLimits { p99: Duration::from_millis(2), worst: Duration::from_millis(25) }
    }
}

impl Scenario {
    /// Reads a scenario's text. `overrides` are `key=value` texts, such as `links.sat.one_way_delay=250 ms`.
    pub fn parse(source_name: &str, text: &str, overrides: &[String]) -> Result<Scenario, Problem> {
        Scenario::parse_with(&Arc::default(), source_name, text, overrides)
    }

    /// The same file and kinds, with further overrides.
    pub fn overridden(&self, further: &[String]) -> Result<Scenario, Problem> {
        let overrides = [&self.overrides, further].concat();
        let all = Scenario::parse_with(&self.registry, &self.source_name, &self.text, &overrides)?;
        if self.chosen_cases.is_empty() { Ok(all) } else { all.with_cases(&self.chosen_cases) }
    }

    /// The same with the kinds of a registry.
    pub fn parse_with(
        registry: &Arc<Registry>,
        source_name: &str,
        text: &str,
        overrides: &[String],
    ) -> Result<Scenario, Problem> {
        let mut table: Table = toml::from_str(text).map_err(|error| syntax_problem(source_name, text, &error))?;
        for over in overrides {
            for (key, value) in flatten("", &catalogue::parse_override(over)?) {
                set(&mut table, &key, value).map_err(|p| p.within(&format!("--set '{over}'"), ""))?;
            }
        }
        let place = |problem: KeyProblem| problem.within(source_name, text);
        let whole: ScenarioText = read(table.clone()).map_err(place)?;
        let folder = Path::new(source_name).parent().unwrap_or(Path::new(""));
        let mut cases = Vec::new();
        if whole.cases.is_empty() {
            cases.push(Case::from_text(&whole.title, &whole, folder, registry).map_err(place)?);
        }
        for (i, CaseText { name, set: changes }) in whole.cases.iter().enumerate() {
            if whole.cases[..i].iter().any(|other| other.name == *name) {
                return Err(place(KeyProblem::new(
                    format!("cases.{i}.name"),
                    format!("there is a case {name:?} already"),
                )));
            }
            let mut changed = table.clone();
            changed.remove("cases");
            for (key, value) in flatten("", changes) {
                let at = |p: KeyProblem| {
                    let what = format!("case {name:?}: {}", p.message);
                    place(KeyProblem::new(format!("cases.{i}.set.{key}"), what))
                };
                set(&mut changed, &key, value).map_err(at)?;
            }
            let read_case = |table: Table| {
                read(table).and_then(|text: ScenarioText| Case::from_text(name, &text, folder, registry))
            };
            let case = read_case(changed).map_err(|problem| {
                // The mistake may be the file's own, which all cases share.
                let mut shared = table.clone();
                shared.remove("cases");
                if read_case(shared).is_err_and(|other| other == problem) {
                    return place(problem);
                }
                // Its key in the case, or the case's one key that has most in common with it.
                let own = flatten("", changes).into_iter().map(|(key, _)| key);
                let own = own.filter(|key| problem.key.starts_with(key) || key.starts_with(&problem.key));
                let own = own.max_by_key(String::len).map_or(String::new(), |key| format!(".{key}"));
                let what = format!("case {name:?}: {}: {}", problem.key, problem.message);
                place(KeyProblem::new(format!("cases.{i}.set{own}"), what))
            })?;
            cases.push(case);
        }
        Ok(Scenario {
            title: whole.title,
            seed: whole.seed,
            cases,
            source_name: source_name.to_owned(),
            text: text.to_owned(),
            overrides: overrides.to_vec(),
            chosen_cases: Vec::new(),
            registry: Arc::clone(registry),
            axes: whole.axes.into_iter().map(Axis::from).collect(),
            seeds: whole.seeds,
            assumptions: whole.assumptions,
        })
    }
}

/// Highest seed that a file can state: integers of TOML have 63 bits.
const SEED_MAX: u64 = i64::MAX as u64;

impl Scenario {
    /// The seeds of `count` runs: the scenario's own and those after it. The problem: there are not so many.
    pub fn run_seeds(&self, count: u32) -> Result<Range<u64>, Problem> {
        let more = u64::from(count.saturating_sub(1));
        if self.seed > SEED_MAX - more {
            let allowed = SEED_MAX - more;
            let what =
                format!("{} is too high for {count} runs, each with the next seed; allowed: 0 to {allowed}", self.seed);
            return Err(KeyProblem::new("seed", what).within(&self.source_name, &self.text));
        }
        Ok(self.seed..self.seed + u64::from(count))
    }

    /// The scenario with only the cases of these names, in its own order.
    pub fn with_cases(mut self, names: &[String]) -> Result<Scenario, Problem> {
        let all: Vec<&str> = self.cases.iter().map(|case| case.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !all.contains(&name.as_str())) {
            let meant = did_you_mean(name, all.iter().copied());
            let what = format!("there is no case {name:?}{meant}; allowed: {}", all.join(", "));
            return Err(KeyProblem::new("--case", what).within(&self.source_name, ""));
        }
        self.cases.retain(|case| names.contains(&case.name));
        self.chosen_cases = names.to_vec();
        Ok(self)
    }

    /// Refuses a workload of `case` whose parties cannot reach each other in `plan`, the plan of its network.
    pub fn check_routes(&self, case: &Case, plan: &topology::Plan) -> Result<(), Problem> {
        for Workload { entry, placement, .. } in &case.workloads {
            let of = |part| {
                let parties = placement.parties.iter().enumerate();
                parties
                    .filter(move |(number, _)| placement.role(*number).part == part)
                    .map(|(number, party)| (placement.role(number).key, &party.site, plan.site(&party.site)))
            };
            for (_, client, from) in of(Part::Leads) {
                for (key, server, to) in of(Part::Serves) {
                    let (Some(from), Some(to)) = (from, to) else { continue };
                    if !plan.reaches(from, to) || !plan.reaches(to, from) {
                        let lead = if self.cases.len() > 1 { format!("case {:?}: ", case.name) } else { String::new() };
                        let what = format!(
                            "{lead}there is no route between {client} and {server}; allowed: sites that links join, \
                             over sites that route or bridge"
                        );
                        let problem = KeyProblem::new(format!("workloads.{entry}.{key}"), what);
                        return Err(problem.within(&self.source_name, &self.text));
                    }
                }
            }
        }
        Ok(())
    }
}

impl From<AxisText> for Axis {
    fn from(text: AxisText) -> Axis {
        Axis { name: text.name, keys: text.keys, values: text.values, cases: text.cases }
    }
}

impl Case {
    fn from_text(name: &str, text: &ScenarioText, folder: &Path, registry: &Registry) -> Result<Case, KeyProblem> {
        let read_link = |name: &str, kinds: &LinkKinds| {
            LinkUse::from_table(name, &text.links[name], folder, kinds).map_err(|p| p.under(&format!("links.{name}")))
        };
        let kinds = registry.links.clone().with_workloads(Workloads::Any);
        let links: Vec<LinkUse> =
            text.links.keys().map(|name| read_link(name, &kinds)).collect::<Result<_, KeyProblem>>()?;
        if links.is_empty() {
            return Err(KeyProblem::new("links", "no link; allowed: at least one, such as [links.sat]"));
        }
        let sites: BTreeSet<&str> = links.iter().flat_map(|link| &link.sites).map(String::as_str).collect();
        let mut roles = BTreeMap::new();
        let mut tcp = BTreeMap::new();
        for (host, HostText { role, tcp: settings }) in &text.hosts {
            known_site(&sites, host).map_err(|p| p.under(&format!("hosts.{host}")))?;
            if let Some(role) = role {
                roles.insert(host.clone(), Role::from(*role));
            }
            let config = TcpConfig::from_table(settings.clone().unwrap_or_default());
            tcp.insert(host.clone(), config.map_err(|p| p.under(&format!("hosts.{host}.tcp")))?);
        }
        for site in &sites {
            if !tcp.contains_key(*site) {
                tcp.insert((*site).to_owned(), TcpConfig::from_table(Table::new())?);
            }
        }
        let pairs = gateway::pairs(text.gateways.iter(), &registry.front_ends, &links, &roles)?;
        let (workloads, services) = Workload::read_all(&text.workloads, &text.services, registry, &sites)?;
        if text.duration.is_none()
            && let Some(endless) = workloads.iter().find(|workload| workload.repeat == Repeat::UntilTheEnd)
        {
            let what = "needs the scenario's duration; allowed: such as duration = \"10 min\" at the top of the file";
            return Err(KeyProblem::new(format!("workloads.{}.repeat", endless.entry), what));
        }
        let default = LatenessLimits::default();
        let lateness = text.lateness.as_ref().map_or(default, |limits| LatenessLimits {
            p99: limits.p99.unwrap_or(default.p99),
            worst: limits.worst.unwrap_or(default.worst),
        });
        let mut case = Case {
            name: name.to_owned(),
            compared: None,
            links,
            pairs,
            roles,
            tcp,
            services,
            workloads,
            duration: text.duration,
            lateness,
        };
        if case.links.iter().any(LinkUse::may_have_classes) {
            // Addresses follow from the links, and ports from the sites' workloads: only now can a class name one.
            let specs: Vec<topology::LinkSpec> = case.network_links().into_iter().map(|(spec, _)| spec).collect();
            let plan = topology::Plan::new(&specs, &case.network_roles());
            let plan = plan.map_err(|error| KeyProblem::new("links", error.to_string()))?;
            let endpoints = Workloads::Known(Arc::new(Workload::endpoints_by_name(&case.workloads, &plan)));
            let kinds = registry.links.clone().with_workloads(endpoints);
            for link in case.links.iter_mut().filter(|link| link.may_have_classes()) {
                *link = read_link(&link.name, &kinds)?;
            }
        }
        Ok(case)
    }
}

impl Case {
    /// Its links as a network is made of them: those of the file in their order, then those of gateway pairs.
    #[must_use]
    pub fn network_links(&self) -> Vec<(topology::LinkSpec, LinkConfig)> {
        let mut links = self.links.clone();
        for pair in &self.pairs {
            let lans = pair.lan_links(&links[pair.link]);
            links[pair.link].sites = pair.sites.to_vec();
            links.extend(lans);
        }
        let spec = |link: &LinkUse| topology::LinkSpec {
            name: link.name.clone(),
            sites: link.sites.clone(),
            carries_ethernet: link.config.carries_ethernet,
            mtu: link.config.mtu,
        };
        links.iter().map(|link| (spec(link), link.config.clone())).collect()
    }

    /// Its workloads and services that are commands, which only a live run can run.
    pub fn commands(&self) -> impl Iterator<Item = CommandUse<'_>> {
        let services = self.services.iter().enumerate().filter_map(|(i, Service { placement })| {
            let (key, what) = (format!("services.{i}.command"), format!("a service at {}", placement.parties[0].site));
            placement.workload.command().map(|argv| CommandUse { key, what, argv })
        });
        let workloads = self.workloads.iter().filter_map(|Workload { id, entry, placement, .. }| {
            let (key, what) = (format!("workloads.{entry}.command"), format!("workload {:?}", id.to_string()));
            placement.workload.command().map(|argv| CommandUse { key, what, argv })
        });
        services.chain(workloads)
    }

    /// The roles that its file states, as a network is made of them.
    #[must_use]
    pub fn network_roles(&self) -> BTreeMap<String, topology::Role> {
        self.roles.iter().map(|(site, role)| (site.clone(), (*role).into())).collect()
    }

    /// TCP settings of every site of the network; those of gateways have a modern host's ("linux").
    #[must_use]
    pub fn network_tcp(&self) -> BTreeMap<String, TcpConfig> {
        let mut tcp = self.tcp.clone();
        for site in self.pairs.iter().flat_map(|pair| &pair.sites) {
            let default = TcpConfig::from_table(Table::new());
            tcp.insert(site.clone(), default.unwrap_or_else(|_| unreachable!("the default preset is valid")));
        }
        tcp
    }

    /// A file name for its capture; `number` counts the scenario's cases from 0.
    #[must_use]
    pub fn capture_name(&self, number: usize) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = self.name.chars().map(plain).collect();
        format!("{}-{}.pcapng", number + 1, name.trim_matches('-'))
    }
}

impl From<Role> for topology::Role {
    fn from(role: Role) -> topology::Role {
        match role {
            Role::Host => topology::Role::Host,
            Role::Router => topology::Role::Router,
            Role::Bridge => topology::Role::Bridge,
        }
    }
}

impl LinkUse {
    fn from_table(name: &str, table: &Table, folder: &Path, kinds: &LinkKinds) -> Result<LinkUse, KeyProblem> {
        let mut over = table.clone();
        let kind = match over.remove("kind") {
            Some(Value::String(kind)) => Some(kind),
            Some(_) => return Err(KeyProblem::new("kind", "must be text: a name of the catalogue, or a file")),
            None => None,
        };
        let sites = match over.remove("between").map(Value::try_into::<Vec<String>>) {
            Some(Ok(sites)) if sites.len() >= 2 => sites,
            _ => return Err(KeyProblem::new("between", "allowed: [\"hub site\", \"terminal site\", …]")),
        };
        for (i, site) in sites.iter().enumerate() {
            if sites[..i].contains(site) {
                return Err(KeyProblem::new("between", format!("names {site} twice")));
            }
            check_site_name(site).map_err(|p| p.under("between"))?;
        }
        read_traces(&mut over, folder)?;
        let config = match &kind {
            Some(kind) => {
                let file = find_link_with(kind, folder, kinds).map_err(|message| KeyProblem::new("kind", message))?;
                file.with(over)?
            }
            None if over.is_empty() => {
                let what =
                    "is missing; allowed: a name of the catalogue, or a file; or the link's own keys, at least rate";
                return Err(KeyProblem::new("kind", what));
            }
            None => LinkConfig::with_kinds(over, kinds)?,
        };
        if sites.len() > 2 && config.circuit.is_some() {
            return Err(KeyProblem::new("between", "a circuit joins two sites; allowed: [\"hub\", \"terminal\"]"));
        }
        Ok(LinkUse { name: name.to_owned(), kind, sites, config })
    }

    /// True if a queue may tell classes of packets apart: any but a FIFO.
    fn may_have_classes(&self) -> bool {
        [&self.config.forward, &self.config.back].iter().any(|direction| direction.queue.fifo_limit().is_none())
    }
}

impl From<RoleText> for Role {
    fn from(text: RoleText) -> Role {
        match text {
            RoleText::Host => Role::Host,
            RoleText::Router => Role::Router,
            RoleText::Bridge => Role::Bridge,
        }
    }
}

/// A link by its catalogue name or, with a `/` or `.toml` in it, from a file (relative to `folder`).
pub fn find_link(kind: &str, folder: &Path) -> Result<LinkFile, String> {
    find_link_with(kind, folder, &LinkKinds::standard())
}

/// The same with the queue disciplines and impairments of a registry.
pub fn find_link_with(kind: &str, folder: &Path, kinds: &LinkKinds) -> Result<LinkFile, String> {
    if let Some(file) = catalogue::named_with(kind, kinds) {
        return file.map_err(|problem| problem.to_string());
    }
    if !kind.contains('/') && !kind.ends_with(".toml") {
        return Err(format!("{}; or a file (a path with / or .toml)", catalogue::unknown(kind)));
    }
    let path = if Path::new(kind).is_absolute() { kind.into() } else { folder.join(kind) };
    let text = read_text(&path, TEXT_BYTES_MAX).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let traces = path.parent().unwrap_or(Path::new(""));
    LinkFile::parse_resolved(kind, &path.display().to_string(), &text, kinds, |table| read_traces(table, traces))
        .map_err(|problem| problem.to_string())
}

fn known_site(sites: &BTreeSet<&str>, name: &str) -> Result<(), KeyProblem> {
    if sites.contains(name) {
        return Ok(());
    }
    let names: Vec<&str> = sites.iter().copied().collect();
    Err(KeyProblem::new("", format!("no link names a site {name:?}; allowed: {}", names.join(", "))))
}

/// Site names resolve as host names (RFC 1123 §2.1).
fn check_site_name(name: &str) -> Result<(), KeyProblem> {
    let fits = (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && name != "localhost";
    if fits {
        return Ok(());
    }
    let what = format!("{name:?} is no host name; allowed: up to 63 of a-z, 0-9 and - (not first or last)");
    Err(KeyProblem::new("", what))
}

/// A table as (dotted key, value) of everything that is not a table.
pub fn flatten(prefix: &str, table: &Table) -> Vec<(String, Value)> {
    let join = |key: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
    table
        .iter()
        .flat_map(|(key, value)| match value {
            Value::Table(inner) => flatten(&join(key), inner),
            other => vec![(join(key), other.clone())],
        })
        .collect()
}

/// Sets one dotted key. `workloads.NAME.key` and `services.N.key` reach into lists; keys of a link replace their
/// alternatives there.
fn set(root: &mut Table, key: &str, value: Value) -> Result<(), KeyProblem> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let nested = |path: &str, value: Value| {
        path.rsplit('.').fold(value, |inner, part| Value::Table(Table::from_iter([(part.to_owned(), inner)])))
    };
    match (first, rest.split_once('.')) {
        ("links", Some((link, inner))) => {
            let links = root.get_mut("links").and_then(Value::as_table_mut);
            let Some(table) = links.and_then(|links| links.get_mut(link)).and_then(Value::as_table_mut) else {
                return Err(KeyProblem::new(key, format!("there is no link {link:?}")));
            };
            if let Value::Table(over) = nested(inner, value) {
                merge(table, over);
            }
            Ok(())
        }
        ("workloads" | "services", Some((which, inner))) => {
            let items = root.get_mut(first).and_then(Value::as_array_mut);
            let found = items.and_then(|items| {
                let named = |item: &&mut Value| item.get("name").and_then(Value::as_str) == Some(which);
                let at = which.parse::<usize>().ok();
                match at {
                    Some(at) if at < items.len() => items.get_mut(at),
                    _ => items.iter_mut().find(named),
                }
            });
            match found {
                Some(Value::Table(table)) => {
                    table.insert(inner.to_owned(), value);
                    Ok(())
                }
                _ => Err(KeyProblem::new(key, format!("there is no entry {which:?} under [[{first}]]"))),
            }
        }
        _ => {
            let mut table = root;
            let mut parts = key.split('.').peekable();
            while let Some(part) = parts.next() {
                if parts.peek().is_none() {
                    table.insert(part.to_owned(), value);
                    return Ok(());
                }
                let next = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
                let Value::Table(inner) = next else {
                    return Err(KeyProblem::new(key, format!("{part} is not a table")));
                };
                table = inner;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
