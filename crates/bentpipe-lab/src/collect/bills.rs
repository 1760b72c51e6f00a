//! Bills: what a link's use cost, and the parts of workloads and connections.

use crate::record::{BillRecord, CallRecord, ConnectionShare, Endpoint, Flow, FlowRecord, Payer, WorkloadShare};
use crate::scenario::Case;
use crate::scenario::gateway::HUB_PORT;
use bentpipe_link::bill::{Bill, BilledCall, FlowShare};
use bentpipe_link::tariff::{Money, shares};
use bentpipe_net::headers::protocol;
use bentpipe_net::topology::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Calls, and connections, that a record lists.
const LISTED_MAX: usize = 10_000;

/// The record of a bill of link number `link`; `flows`: TCP connections as the sites saw them.
pub fn bill_record(case: &Case, plan: &Plan, link: usize, bill: &Bill, flows: &[FlowRecord]) -> BillRecord {
    let payers = Payers::of(case, plan);
    let has_pair = case.pairs.iter().any(|pair| pair.link == link);
    let relayed = if has_pair { relayed(case, flows) } else { BTreeMap::new() };
    let mut connections = Vec::new();
    for share in &bill.flows {
        if is_tunnel(share) && !relayed.is_empty() {
            let weights: Vec<u64> = relayed.values().map(|(_, bytes)| *bytes).collect();
            let parts = shares(share.cost, &weights);
            for ((flow, bytes), cost) in relayed.values().zip(parts) {
                let workload = payers.workload(protocol::TCP, flow.source, flow.destination);
                let (flow, cost_nano) = (*flow, cost.nano);
                connections.push(ConnectionShare { flow, protocol: protocol::TCP, workload, bytes: *bytes, cost_nano });
            }
            continue;
        }
        let of = share.flow;
        let flow = Flow {
            source: Endpoint { address: of.source, port: of.source_port },
            destination: Endpoint { address: of.destination, port: of.destination_port },
        };
        let workload = payers.workload(of.protocol, flow.source, flow.destination);
        let (bytes, cost_nano) = (share.bytes[0] + share.bytes[1], share.cost.nano);
        connections.push(ConnectionShare { flow, protocol: of.protocol, workload, bytes, cost_nano });
    }
    connections.sort_by_key(|connection| std::cmp::Reverse(connection.cost_nano));
    let mut workloads: BTreeMap<Payer, u64> = BTreeMap::new();
    for connection in &connections {
        let payer = connection.workload.clone().map_or(Payer::Other, |name| Payer::Workload { name });
        *workloads.entry(payer).or_default() += connection.cost_nano;
    }
    if bill.unattributed > Money::ZERO {
        workloads.insert(Payer::Nobody, bill.unattributed.nano);
    }
    let left_out = connections.iter().skip(LISTED_MAX).map(|connection| connection.cost_nano).sum();
    connections.truncate(LISTED_MAX);
    BillRecord {
        currency: bill.currency.to_string(),
        total_nano: bill.total.nano,
        calls: bill.calls.iter().take(LISTED_MAX).map(call).collect(),
        calls_left_out: bill.calls.len().saturating_sub(LISTED_MAX) as u64,
        workloads: workloads.into_iter().map(|(payer, cost_nano)| WorkloadShare { payer, cost_nano }).collect(),
        connections,
        connections_left_out_nano: left_out,
        nobody_nano: bill.unattributed.nano,
    }
}

fn call(BilledCall { call, usage, cost }: &BilledCall) -> CallRecord {
    CallRecord {
        at: call.set_up_from.as_secs_f64(),
        set_up: call.up_at.map(|up| up.since(call.set_up_from).as_secs_f64()),
        end: call.ended.map(|(at, _)| at.as_secs_f64()),
        on_air: usage.time.as_secs_f64(),
        forward_bytes: usage.forward,
        return_bytes: usage.back,
        cost_nano: cost.nano,
    }
}

/// The connection of a gateway pair.
fn is_tunnel(share: &FlowShare) -> bool {
    let of = share.flow;
    of.protocol == protocol::UDP && [of.source_port, of.destination_port].contains(&HUB_PORT)
}

/// Connections between the file's sites, and the data bytes of both their ends.
fn relayed(case: &Case, flows: &[FlowRecord]) -> BTreeMap<[(IpAddr, u16); 2], (Flow, u64)> {
    let gateways: BTreeSet<&String> = case.pairs.iter().flat_map(|pair| &pair.sites).collect();
    let mut relayed = BTreeMap::new();
    for of in flows.iter().filter(|of| !gateways.contains(&of.host)) {
        let mut ends = [of.flow.source, of.flow.destination].map(|end| (end.address, end.port));
        ends.sort_unstable();
        let (_, bytes) = relayed.entry(ends).or_insert((of.flow, 0));
        *bytes += of.data_bytes;
    }
    relayed
}

/// Which workload a connection is of.
struct Payers {
    by_endpoint: BTreeMap<SocketAddr, String>,
    /// By the addresses of two sites, the workloads between them.
    by_sites: BTreeMap<[IpAddr; 2], BTreeSet<String>>,
}

impl Payers {
    fn of(case: &Case, plan: &Plan) -> Payers {
        let mut payers = Payers { by_endpoint: BTreeMap::new(), by_sites: BTreeMap::new() };
        let addresses = |site: &str| -> Vec<IpAddr> {
            let interfaces = plan.site(site).map(|site| &plan.sites[site].interfaces);
            interfaces.into_iter().flatten().filter_map(|interface| interface.address).map(IpAddr::from).collect()
        };
        for workload in &case.workloads {
            let name = &workload.id.name;
            let parties = &workload.placement.parties;
            for party in parties {
                for address in addresses(&party.site) {
                    for port in &party.ports {
                        payers.by_endpoint.insert(SocketAddr::new(address, *port), name.clone());
                    }
                    let others = parties.iter().flat_map(|other| addresses(&other.site));
                    for other in others.filter(|other| *other != address) {
                        payers.by_sites.entry(sorted(address, other)).or_default().insert(name.clone());
                    }
                }
            }
        }
        payers
    }

    /// By the port that one end listens on; where no workload has it, the only workload between the two sites.
    fn workload(&self, protocol: u8, a: Endpoint, b: Endpoint) -> Option<String> {
        let of_port = |end: Endpoint| self.by_endpoint.get(&SocketAddr::new(end.address, end.port));
        let has_ports = protocol == protocol::TCP || protocol == protocol::UDP;
        if has_ports && let Some(name) = of_port(b).or_else(|| of_port(a)) {
            return Some(name.clone());
        }
        let names = self.by_sites.get(&sorted(a.address, b.address))?;
        let mut names = names.iter().filter(|name| has_ports || !self.by_endpoint.values().any(|with| with == *name));
        let only = names.next()?;
        names.next().is_none().then(|| only.clone())
    }
}

fn sorted(a: IpAddr, b: IpAddr) -> [IpAddr; 2] {
    [a.min(b), a.max(b)]
}
