//! The bill of a link's use. Amounts are integers, billionths of the currency's unit, so that parts add up exactly.

use super::Flow;
use serde::{Deserialize, Serialize};

/// The bill of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct BillRecord {
    /// Currency of every amount (ISO 4217).
    pub currency: String,
    /// The whole bill.
    pub total_nano: u64,
    /// The calls, in order of time; the first ten thousand. On a link without a circuit one, which lasts as long as the case.
    pub calls: Vec<CallRecord>,
    /// Calls that are not listed; their cost is in the total.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls_left_out: u64,
    /// Its parts by workload, which add up to the total.
    pub workloads: Vec<WorkloadShare>,
    /// Its parts by connection, the dearest first; the first ten thousand. With `nobody` and the parts left out they add up
    /// to the total.
    pub connections: Vec<ConnectionShare>,
    /// Cost of the connections that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connections_left_out_nano: u64,
    /// Cost of calls that carried no packet of anybody.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nobody_nano: u64,
}

/// A call and its price.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CallRecord {
    /// Its set-up began.
    pub at: f64,
    /// From the beginning of its set-up until it carried packets, in seconds; absent: it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up: Option<f64>,
    /// It ended; absent: it was still there at the end of the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<f64>,
    /// Time on air, in seconds, before any rounding.
    pub on_air: f64,
    /// Bytes of packets sent from the hub, framing not included.
    pub forward_bytes: u64,
    /// Bytes of packets sent to the hub, framing not included.
    pub return_bytes: u64,
    /// Its price.
    pub cost_nano: u64,
}

/// A workload's part of a bill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkloadShare {
    /// Whose part it is.
    #[serde(flatten)]
    pub payer: Payer,
    /// Its part.
    pub cost_nano: u64,
}

/// Whose part of a bill one is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "payer", rename_all = "snake_case")]
pub enum Payer {
    /// All copies and repetitions of a workload.
    Workload {
        /// Its name.
        name: String,
    },
    /// Traffic that is of no workload, or of which it cannot be told.
    Other,
    /// Nobody's: calls that carried no packet.
    Nobody,
}

/// A connection's part of a bill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ConnectionShare {
    /// From the end that sent first.
    pub flow: Flow,
    /// IP protocol number: 6 TCP, 17 UDP, 1 ICMP.
    pub protocol: u8,
    /// The workload; absent where it cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Both ends' bytes by which the bill was divided: of its packets that the link was handed. Behind a gateway pair, the
    /// data bytes that its ends sent.
    pub bytes: u64,
    /// Its part.
    pub cost_nano: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
