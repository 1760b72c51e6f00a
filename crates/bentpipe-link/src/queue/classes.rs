//! Traffic classes of a queue discipline: which packets belong to one, and its weight.

use crate::registry::{QueueContext, Workloads};
use bentpipe_net::dscp::{Dscp, DscpError};
use bentpipe_net::flow::FlowKey;
use bentpipe_net::headers::{Headers, protocol};
use bentpipe_net::problem::{KeyProblem, did_you_mean};
use bentpipe_net::selector::{Prefix, port_range};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use toml::Value;

/// Classes that a discipline may have, the one for all other packets included.
const CLASSES_MAX: usize = 64;
/// Highest weight of a class.
const WEIGHT_MAX: u64 = 1000;

/// The keys of one of `classes`. All conditions must hold; within a list, one entry must.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassText {
    weight: Option<u64>,
    addresses: Option<Vec<String>>,
    source: Option<Vec<String>>,
    destination: Option<Vec<String>>,
    ports: Option<Vec<Value>>,
    protocol: Option<Value>,
    dscp: Option<Vec<Value>>,
    workload: Option<String>,
}

impl ClassText {
    /// It says which packets belong to the class.
    pub fn has_conditions(&self) -> bool {
        let ClassText { weight: _, addresses, source, destination, ports, protocol, dscp, workload } = self;
        let lists = [addresses, source, destination];
        lists.iter().any(|list| list.is_some())
            || ports.is_some()
            || protocol.is_some()
            || dscp.is_some()
            || workload.is_some()
    }
}

/// Assigns each packet to the first class whose conditions hold.
#[derive(Clone, Debug)]
pub(super) struct Classifier {
    /// The last one has no conditions.
    classes: Vec<Class>,
}

#[derive(Clone, Debug, PartialEq)]
struct Class {
    weight: u64,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    /// Source or destination is in one of these.
    Address(Vec<Prefix>),
    Source(Vec<Prefix>),
    Destination(Vec<Prefix>),
    /// Source or destination port is in one of these.
    Port(Vec<RangeInclusive<u16>>),
    /// Source or destination, address and port together, is one of these; sorted.
    Endpoint(Vec<SocketAddr>),
    Protocol(u8),
    /// One bit for each code point.
    Dscp(u64),
}

impl Classifier {
    /// Reads `classes`. `weighted`: the discipline knows weights.
    pub fn read(texts: Vec<ClassText>, weighted: bool, context: &QueueContext) -> Result<Classifier, KeyProblem> {
        Classifier::read_list("classes", texts, weighted, context)
    }

    /// Reads a list of classes that stands under another key.
    pub fn read_list(
        key: &str,
        texts: Vec<ClassText>,
        weighted: bool,
        context: &QueueContext,
    ) -> Result<Classifier, KeyProblem> {
        if texts.is_empty() {
            return Err(KeyProblem::new(key, "is empty; allowed: at least one class"));
        }
        let count = texts.len();
        let mut classes = Vec::new();
        for (number, text) in texts.into_iter().enumerate() {
            let under = |problem: KeyProblem| problem.under(&format!("{key}.{number}"));
            let class = Class::read(text, weighted, context).map_err(under)?;
            if class.conditions.is_empty() && number + 1 < count {
                let what =
                    "has no condition, so that no packet would reach the classes after it; allowed: the last class";
                return Err(under(KeyProblem::new("", what)));
            }
            classes.push(class);
        }
        if classes.last().is_some_and(|class| !class.conditions.is_empty()) {
            classes.push(Class { weight: 1, conditions: Vec::new() });
        }
        if classes.len() > CLASSES_MAX {
            let what = format!("are {count}; allowed: {CLASSES_MAX}, the one for all other packets included");
            return Err(KeyProblem::new(key, what));
        }
        Ok(Classifier { classes })
    }

    /// The weight of each class.
    pub fn weights(&self) -> impl Iterator<Item = u64> + '_ {
        self.classes.iter().map(|class| class.weight)
    }

    /// The number of a packet's class. `None`: a packet without headers; it belongs to the last class.
    #[inline]
    pub fn class_of(&self, headers: Option<&Headers>) -> usize {
        let last = self.classes.len() - 1;
        let Some(headers) = headers else { return last };
        let holds = |class: &Class| class.conditions.iter().all(|condition| condition.holds(headers));
        self.classes.iter().position(holds).unwrap_or(last)
    }
}

impl Class {
    fn read(text: ClassText, weighted: bool, context: &QueueContext) -> Result<Class, KeyProblem> {
        let weight = match text.weight {
            None => 1,
            Some(_) if !weighted => {
                return Err(KeyProblem::new(
                    "weight",
                    "has no effect: classes are served in their order; allowed: none",
                ));
            }
            Some(weight) if (1..=WEIGHT_MAX).contains(&weight) => weight,
            Some(weight) => {
                return Err(KeyProblem::new("weight", format!("{weight} is out of range; allowed: 1 to {WEIGHT_MAX}")));
            }
        };
        let mut conditions = Vec::new();
        for (key, list, condition) in [
            ("addresses", text.addresses, Condition::Address as fn(_) -> _),
            ("source", text.source, Condition::Source),
            ("destination", text.destination, Condition::Destination),
        ] {
            if let Some(list) = list {
                conditions.push(condition(read_list(key, &list, read_network)?));
            }
        }
        if let Some(list) = text.ports {
            conditions.push(Condition::Port(read_list("ports", &list, read_ports)?));
        }
        if let Some(value) = text.protocol {
            let number = read_protocol(&value).map_err(|what| KeyProblem::new("protocol", what))?;
            conditions.push(Condition::Protocol(number));
        }
        if let Some(list) = text.dscp {
            let points = read_list("dscp", &list, read_dscp)?;
            conditions.push(Condition::Dscp(points.into_iter().fold(0, |set, point| set | 1 << point)));
        }
        if let Some(name) = text.workload {
            conditions.push(Condition::Endpoint(workload_endpoints(&name, context)?));
        }
        Ok(Class { weight, conditions })
    }
}

impl Condition {
    #[inline]
    fn holds(&self, headers: &Headers) -> bool {
        let FlowKey { source, destination, protocol, source_port, destination_port } = &headers.flow;
        let has = |prefixes: &[Prefix], address: &IpAddr| prefixes.iter().any(|prefix| prefix.contains(*address));
        match self {
            Condition::Address(prefixes) => has(prefixes, source) || has(prefixes, destination),
            Condition::Source(prefixes) => has(prefixes, source),
            Condition::Destination(prefixes) => has(prefixes, destination),
            Condition::Port(ranges) => {
                matches!(*protocol, protocol::TCP | protocol::UDP)
                    && ranges.iter().any(|range| range.contains(source_port) || range.contains(destination_port))
            }
            Condition::Endpoint(endpoints) => {
                let has = |address: &IpAddr, port: &u16| endpoints.binary_search(&(*address, *port).into()).is_ok();
                matches!(*protocol, protocol::TCP | protocol::UDP)
                    && (has(source, source_port) || has(destination, destination_port))
            }
            Condition::Protocol(number) => protocol == number,
            Condition::Dscp(points) => points >> headers.dscp() & 1 == 1,
        }
    }
}

fn read_list<T, V>(key: &str, list: &[T], read: impl Fn(&T) -> Result<V, String>) -> Result<Vec<V>, KeyProblem> {
    if list.is_empty() {
        return Err(KeyProblem::new(key, "is empty, so that no packet would match; allowed: at least one entry"));
    }
    let entries = list.iter().enumerate();
    entries.map(|(i, entry)| read(entry).map_err(|what| KeyProblem::new(format!("{key}.{i}"), what))).collect()
}

fn read_network(text: &String) -> Result<Prefix, String> {
    let what = || format!("{text:?} is no address; allowed: such as \"10.0.0.1\", \"10.0.0.0/8\" or \"2001:db8::/32\"");
    Prefix::parse(text).ok_or_else(what)
}

/// `5004`, or `"6000-6010"`.
fn read_ports(value: &Value) -> Result<RangeInclusive<u16>, String> {
    port_range(value)
        .ok_or_else(|| format!("{value} is no port; allowed: 1 to 65535, or a range such as \"6000-6010\""))
}

fn read_protocol(value: &Value) -> Result<u8, String> {
    let number = match value {
        Value::Integer(number) => u8::try_from(*number).ok(),
        Value::String(name) => match name.as_str() {
            "tcp" => Some(protocol::TCP),
            "udp" => Some(protocol::UDP),
            "icmp" => Some(protocol::ICMP),
            _ => None,
        },
        _ => None,
    };
    number.ok_or_else(|| {
        format!("{value} is no protocol; allowed: \"tcp\", \"udp\", \"icmp\", or a number from 0 to 255")
    })
}

fn read_dscp(value: &Value) -> Result<u8, String> {
    let point = Dscp::deserialize(value.clone()).map_err(|_| DscpError { found: value.to_string() }.to_string())?;
    Ok(point.number())
}

/// The addresses and ports on which the parties of a scenario's workload listen, sorted.
fn workload_endpoints(name: &str, context: &QueueContext) -> Result<Vec<SocketAddr>, KeyProblem> {
    let problem = |what: String| Err(KeyProblem::new("workload", what));
    let workloads = match &context.workloads {
        Workloads::None => {
            return problem(format!("{name:?}: only a scenario has workloads; allowed: ports instead of workload"));
        }
        Workloads::Any => return Ok(Vec::new()),
        Workloads::Known(workloads) => workloads,
    };
    match workloads.get(name).map(Vec::as_slice) {
        None => {
            let names: Vec<&str> = workloads.keys().map(String::as_str).collect();
            let meant = did_you_mean(name, names.iter().copied());
            problem(format!("there is no workload {name:?}{meant}; allowed: {}", names.join(", ")))
        }
        Some([]) => problem(format!("{name:?} listens on no port; allowed: a workload with ports")),
        Some(endpoints) => {
            let mut endpoints = endpoints.to_vec();
            endpoints.sort_unstable();
            endpoints.dedup();
            Ok(endpoints)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::harness;
    use std::sync::Arc;

    fn context() -> QueueContext {
        let voice = ["10.0.0.3:7001", "10.0.0.2:7000"].map(|endpoint| endpoint.parse().unwrap());
        let workloads = [("voice".to_owned(), voice.to_vec()), ("ping".to_owned(), vec![])];
        QueueContext { workloads: Workloads::Known(Arc::new(workloads.into())), ..harness::context(1_000_000) }
    }

    fn read(text: &str) -> Result<Classifier, KeyProblem> {
        #[derive(Deserialize)]
        struct Keys {
            classes: Vec<ClassText>,
        }
        let keys: Keys = bentpipe_net::problem::read(toml::from_str(text).unwrap())?;
        Classifier::read(keys.classes, true, &context())
    }

    fn headers(source: &str, destination: &str, protocol: u8, ports: (u16, u16), dscp: u8) -> Headers {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        let flow = FlowKey { source, destination, protocol, source_port: ports.0, destination_port: ports.1 };
        Headers { flow, traffic_class: dscp << 2 | 1, tcp: None }
    }

    #[test]
    fn the_first_class_whose_conditions_all_hold() {
        let classes = read(
            "classes = [
                { dscp = ['EF', 'AF41', 10], protocol = 'udp' },
                { workload = 'voice', weight = 4 },
                { ports = [80, '6000-6010'], addresses = ['10.1.0.0/16'] },
                { source = ['10.0.0.1'] },
                { destination = ['2001:db8::/32', '0.0.0.0/0'], protocol = 1 },
            ]",
        )
        .unwrap();
        assert_eq!(classes.weights().collect::<Vec<_>>(), [1, 4, 1, 1, 1, 1]);
        let (tcp, udp, icmp) = (protocol::TCP, protocol::UDP, protocol::ICMP);
        for (class, source, destination, protocol, ports, dscp) in [
            (0, "10.0.0.2", "10.0.0.3", udp, (1, 2), 46),
            (0, "10.0.0.2", "10.0.0.3", udp, (1, 2), 34),
            (0, "10.0.0.2", "10.0.0.3", udp, (1, 2), 10),
            (5, "10.0.0.2", "10.0.0.3", tcp, (1, 2), 46),
            (1, "10.0.0.2", "10.0.0.3", udp, (9, 7001), 0),
            (1, "10.0.0.2", "10.0.0.3", tcp, (7000, 9), 0),
            (5, "10.0.0.2", "10.0.0.3", udp, (7001, 7000), 0),
            (5, "10.0.0.4", "10.0.0.5", udp, (7000, 7001), 0),
            (2, "10.1.2.3", "10.0.0.3", tcp, (9, 80), 0),
            (2, "10.0.0.2", "10.1.255.255", tcp, (6010, 9), 0),
            (5, "10.2.0.0", "10.0.0.3", tcp, (9, 80), 0),
            (5, "10.1.2.3", "10.0.0.3", tcp, (9, 6011), 0),
            (3, "10.0.0.1", "10.0.0.3", tcp, (1, 2), 0),
            (5, "10.0.0.3", "10.0.0.1", tcp, (1, 2), 0),
            (4, "10.0.0.3", "10.0.0.1", icmp, (0, 0), 0),
            (4, "fe80::1", "2001:db8:1::1", icmp, (0, 0), 0),
            (5, "fe80::1", "2001:db9::1", icmp, (0, 0), 0),
        ] {
            let headers = headers(source, destination, protocol, ports, dscp);
            assert_eq!(classes.class_of(Some(&headers)), class, "{headers:?}");
        }
        assert_eq!(classes.class_of(None), 5);
    }

    #[test]
    fn mistakes_name_their_key() {
        for (text, expected) in [
            ("classes = []", "classes: is empty; allowed: at least one class"),
            (
                "classes = [{}, { ports = [1] }]",
                "classes.0: has no condition, so that no packet would reach the classes after it; allowed: the last class",
            ),
            ("classes = [{ weight = 0 }]", "classes.0.weight: 0 is out of range; allowed: 1 to 1000"),
            (
                "classes = [{ source = ['10.0.0.0/33'] }]",
                "classes.0.source.0: \"10.0.0.0/33\" is no address; allowed: such as \"10.0.0.1\", \"10.0.0.0/8\" or \
                 \"2001:db8::/32\"",
            ),
            (
                "classes = [{ ports = [80, 0] }]",
                "classes.0.ports.1: 0 is no port; allowed: 1 to 65535, or a range such as \"6000-6010\"",
            ),
            (
                "classes = [{ ports = ['9-8'] }]",
                "classes.0.ports.0: \"9-8\" is no port; allowed: 1 to 65535, or a range such as \"6000-6010\"",
            ),
            (
                "classes = [{ dscp = ['AF44'] }]",
                "classes.0.dscp.0: \"AF44\" is no DSCP; allowed: 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA or LE",
            ),
            (
                "classes = [{ dscp = [] }]",
                "classes.0.dscp: is empty, so that no packet would match; allowed: at least one entry",
            ),
            (
                "classes = [{ protocol = 'sctp' }]",
                "classes.0.protocol: \"sctp\" is no protocol; allowed: \"tcp\", \"udp\", \"icmp\", or a number from 0 to 255",
            ),
            (
                "classes = [{ workload = 'voise' }]",
                "classes.0.workload: there is no workload \"voise\" (did you mean voice?); allowed: ping, voice",
            ),
            (
                "classes = [{ workload = 'ping' }]",
                "classes.0.workload: \"ping\" listens on no port; allowed: a workload with ports",
            ),
        ] {
            let problem = read(text).unwrap_err();
            assert_eq!(format!("{}: {}", problem.key, problem.message), expected, "{text}");
        }
    }
}
