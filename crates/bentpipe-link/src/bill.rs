//! The bill of a link's use: its calls by the [`crate::tariff`], and whose packets each of them carried.

use crate::circuit::{CallDetail, Circuit};
use crate::tariff::{Account, Currency, Money, Tariff, Usage, shares};
use bentpipe_net::flow::FlowKey;
use bentpipe_net::packet::Packet;
use bentpipe_net::time::Instant;
use std::collections::BTreeMap;

/// The bill of a link up to one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bill {
    /// Of every amount.
    pub currency: Currency,
    /// The calls, in the order of their beginnings. On a link without a circuit one, which lasts from the start.
    pub calls: Vec<BilledCall>,
    /// What they cost together.
    pub total: Money,
    /// The parts of those whose packets the calls carried. With `unattributed` they add up to `total`.
    pub flows: Vec<FlowShare>,
    /// The cost of calls that carried nobody's packets.
    pub unattributed: Money,
}

/// A call and its price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BilledCall {
    /// The call.
    pub call: CallDetail,
    /// Time on air, and bytes.
    pub usage: Usage,
    /// Its price by the tariff; of one in progress, as it stands.
    pub cost: Money,
}

/// One flow's part of a bill, in proportion to the bytes that it had the link carry, call by call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowShare {
    /// As the end that sent first has it.
    pub flow: FlowKey,
    /// Bytes of its packets handed to the link, forward and return, framing not included.
    pub bytes: [u64; 2],
    /// Its part.
    pub cost: Money,
}

/// The bytes of one flow.
#[derive(Clone, Copy, Debug)]
struct FlowBytes {
    flow: FlowKey,
    bytes: [u64; 2],
}

/// By flow, whichever end sends.
type Flows = BTreeMap<FlowKey, FlowBytes>;

/// Counts whose packets a link is given.
#[derive(Debug)]
pub(crate) struct Meter {
    tariff: Tariff,
    carries_ethernet: bool,
    /// Of the calls that are over, in the order of their beginnings.
    calls: Vec<Flows>,
    /// Since the last call's end.
    current: Flows,
}

impl Meter {
    pub(crate) fn new(tariff: Tariff, carries_ethernet: bool) -> Meter {
        Meter { tariff, carries_ethernet, calls: Vec::new(), current: Flows::new() }
    }

    /// The link is handed a packet; `direction`: 0 forward, 1 return.
    pub(crate) fn offer(&mut self, direction: usize, packet: &impl Packet) {
        let Some(headers) = packet.headers(self.carries_ethernet) else { return };
        let flow = headers.flow;
        let of = self.current.entry(flow.min(flow.reversed())).or_insert(FlowBytes { flow, bytes: [0; 2] });
        of.bytes[direction] += packet.bytes();
    }

    /// Calls have ended, or not: each gets what the link was handed since the last one. What a call that never came up was
    /// meant for is carried by the next.
    pub(crate) fn assign(&mut self, circuit: &Circuit) {
        if circuit.config().on_demand.is_some() {
            return;
        }
        while let Some(call) = circuit.call(self.calls.len()).filter(|call| call.ended.is_some()) {
            let flows = if call.up_at.is_some() { std::mem::take(&mut self.current) } else { self.current.clone() };
            self.calls.push(flows);
        }
    }

    /// The bill at `now`; `carried`: bytes sent so far, forward and return.
    pub(crate) fn bill(&self, now: Instant, circuit: Option<&Circuit>, carried: [u64; 2]) -> Bill {
        let calls = match circuit {
            Some(circuit) => circuit.calls(carried),
            None => {
                let start = Some(Instant::ZERO);
                vec![CallDetail { set_up_from: Instant::ZERO, charged_from: start, up_at: start, ended: None, carried }]
            }
        };
        let mut account = Account::new(self.tariff.clone());
        let billed = |call: CallDetail| {
            let end = call.ended.map_or(now, |(at, _)| at);
            let [forward, back] = call.carried;
            let time = call.charged_from.map_or_else(Default::default, |from| end.since(from));
            let usage = Usage { time, forward, back };
            let cost = call.charged_from.map_or(Money::ZERO, |from| account.settle(from, &usage));
            BilledCall { call, usage, cost }
        };
        let calls: Vec<BilledCall> = calls.into_iter().map(billed).collect();
        let total = calls.iter().map(|call| call.cost).sum();
        // A call after the other has its own flows; calls at the same time share all.
        let mut parts = Parts::default();
        if circuit.is_some_and(|circuit| circuit.config().on_demand.is_none()) {
            for (number, call) in calls.iter().enumerate() {
                let flows = self.calls.get(number).unwrap_or(&self.current);
                parts.add(call.cost, flows, call.call.up_at.is_some());
            }
            if calls.last().is_none_or(|last| last.call.ended.is_some()) {
                parts.add(Money::ZERO, &self.current, true);
            }
        } else {
            parts.add(total, &self.current, true);
        }
        let Parts { flows, unattributed } = parts;
        let flows = flows.into_values().collect();
        Bill { currency: self.tariff.currency, calls, total, flows, unattributed }
    }
}

#[derive(Default)]
struct Parts {
    flows: BTreeMap<FlowKey, FlowShare>,
    unattributed: Money,
}

impl Parts {
    /// Divides `cost` among `flows`; `counts`: their bytes are counted with it.
    fn add(&mut self, cost: Money, flows: &Flows, counts: bool) {
        let weights: Vec<u64> = flows.values().map(|flow| flow.bytes[0] + flow.bytes[1]).collect();
        if weights.is_empty() {
            self.unattributed += cost;
        }
        for ((key, flow), cost) in flows.iter().zip(shares(cost, &weights)) {
            let share =
                self.flows.entry(*key).or_insert(FlowShare { flow: flow.flow, bytes: [0; 2], cost: Money::ZERO });
            share.cost += cost;
            if counts {
                share.bytes = [0, 1].map(|direction| share.bytes[direction] + flow.bytes[direction]);
            }
        }
    }
}
