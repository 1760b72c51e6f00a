//! Gateway pairs: settings, measurements, events.

use super::{Endpoint, Measurement};
use bentpipe_net::units::BitRate;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A pair of gateways on a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GatewayRecord {
    /// The link's name in the scenario.
    pub link: String,
    /// The settings of both sides.
    pub settings: Vec<GatewaySetting>,
    /// The hub's side, then the terminal's.
    pub sides: Vec<GatewaySideRecord>,
}

/// One setting of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GatewaySetting {
    /// Its key under `[gateways.LINK]`, or a name for what follows from the link.
    pub name: String,
    /// Its value as files write it.
    pub value: String,
}

/// One gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GatewaySideRecord {
    /// The gateway's own site.
    pub site: String,
    /// The scenario's site whose connections it relays.
    pub before: String,
    /// Its totals: `link_bytes` (sent, framing included), `delivered_bytes` (of streams, that arrived at the other),
    /// `packets_sent_again`, `compression_factor`, …
    pub measurements: Vec<Measurement>,
    /// Its log, in order of time.
    #[serde(default)]
    pub events: Vec<TimedEvent>,
}

/// An event of a gateway and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimedEvent {
    /// When.
    pub at: f64,
    /// The event.
    #[serde(flatten)]
    pub event: GatewayEvent,
}

/// An event of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum GatewayEvent {
    /// The pair is connected.
    Connected,
    /// The other gateway is silent.
    Silent,
    /// The other gateway is heard again.
    Heard,
    /// The pair's connection is over.
    Lost {
        /// Why.
        why: PairLoss,
        /// Relayed connections that were reset.
        connections: u64,
    },
    /// A peer without the right key tried to connect.
    UnauthenticatedPeer {
        /// The number of attempts so far.
        count: u64,
    },
    /// Packets came in that are not the pair's.
    UnauthenticatedPackets {
        /// Their number so far.
        count: u64,
    },
    /// The declared rate is too high for the link: a lower one is used.
    Throttled {
        /// The declared rate, in bits per second.
        declared: u64,
        /// The rate in use, in bits per second.
        now: u64,
    },
    /// The declared rate is used again.
    Released,
    /// A request did not become a connection.
    NotOpened {
        /// The client, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<Endpoint>,
        /// The server's address or name.
        host: String,
        /// The server's port.
        port: u16,
        /// Why.
        why: RefusedBecause,
    },
    /// The pair is apart: new connections bypass it, or are refused.
    Failing {
        /// They bypass it.
        bypass: bool,
    },
    /// New connections are relayed again.
    Relaying,
    /// A limit was reached.
    LimitReached {
        /// Of what: `connections`, `memory`, …
        limit: String,
    },
    /// The other gateway broke the protocol on one stream, which was reset.
    Malformed {
        /// The fault.
        what: String,
    },
    /// Servers see this site's address instead of their clients'.
    AddressesHidden,
    /// A socket could not be opened.
    NoSocket {
        /// Its purpose.
        socket: String,
        /// Its port.
        port: u16,
        /// Why.
        why: String,
    },
    /// The site cannot intercept connections.
    NoInterception,
    /// Events were dropped by the gateway, because nobody took them.
    Dropped {
        /// Their number.
        count: u64,
    },
    /// Further events are not in the record.
    NotKept {
        /// Their number.
        count: u64,
    },
    /// An event that has no type of its own.
    Other {
        /// Its text.
        text: String,
    },
}

/// Why a pair's connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PairLoss {
    /// Silence for longer than the hold time.
    Silence,
    /// The other gateway was started again.
    Restarted,
    /// The other gateway closed it.
    Closed,
    /// The keys do not fit.
    Unauthenticated,
    /// The other gateway broke the protocol.
    Protocol,
}

/// Why a request did not become a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusedBecause {
    /// The server refused.
    Refused,
    /// There is no route to the server.
    Unreachable,
    /// The server did not answer.
    TimedOut,
    /// The far gateway does not allow it.
    Denied,
    /// The far gateway has no room for more connections.
    Busy,
}

impl fmt::Display for PairLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairLoss::Silence => "the other gateway was silent for longer than the hold time",
            PairLoss::Restarted => "the other gateway was restarted",
            PairLoss::Closed => "the other gateway ended the connection",
            PairLoss::Unauthenticated => {
                "the other gateway's key is not the configured one, or the other does not know ours"
            }
            PairLoss::Protocol => "the other gateway broke the protocol",
        })
    }
}

impl fmt::Display for RefusedBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefusedBecause::Refused => "refused",
            RefusedBecause::Unreachable => "unreachable",
            RefusedBecause::TimedOut => "timed out",
            RefusedBecause::Denied => "not allowed by the far gateway",
            RefusedBecause::Busy => "no room for more connections",
        })
    }
}

impl fmt::Display for GatewayEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |bps: &u64| BitRate { bps: *bps };
        match self {
            GatewayEvent::Connected => f.write_str("connected to the other gateway"),
            GatewayEvent::Silent => f.write_str("the other gateway is silent"),
            GatewayEvent::Heard => f.write_str("the other gateway is heard again"),
            GatewayEvent::Lost { why, connections } => write!(f, "{why}; {connections} connections were reset"),
            GatewayEvent::UnauthenticatedPeer { count } => {
                write!(f, "refused a gateway with an unknown key ({count} so far)")
            }
            GatewayEvent::UnauthenticatedPackets { count } => {
                write!(f, "packets come in that are of no connection of the pair ({count} so far)")
            }
            GatewayEvent::Throttled { declared, now } => {
                write!(f, "the link does not carry the declared {}: throttled to {}", rate(declared), rate(now))
            }
            GatewayEvent::Released => f.write_str("the link carries the declared rate again"),
            GatewayEvent::NotOpened { client, host, port, why } => {
                if let Some(client) = client {
                    write!(f, "{client} ")?;
                }
                match host.contains(':') {
                    true => write!(f, "to [{host}]:{port}: {why}"),
                    false => write!(f, "to {host}:{port}: {why}"),
                }
            }
            GatewayEvent::Failing { bypass: true } => f.write_str("new connections bypass the gateway"),
            GatewayEvent::Failing { bypass: false } => f.write_str("new connections are refused"),
            GatewayEvent::Relaying => f.write_str("new connections are relayed again"),
            GatewayEvent::LimitReached { limit } => write!(f, "the limit of {limit} is reached"),
            GatewayEvent::Malformed { what } => write!(f, "reset a stream that broke the protocol: {what}"),
            GatewayEvent::AddressesHidden => {
                f.write_str("servers see this gateway's address, not their clients': no right to use foreign addresses")
            }
            GatewayEvent::NoSocket { socket, port, why } => write!(f, "cannot open the {socket} port {port}: {why}"),
            GatewayEvent::NoInterception => f.write_str("this site has nothing to intercept connections with"),
            GatewayEvent::Dropped { count } => write!(f, "{count} log events were dropped"),
            GatewayEvent::NotKept { count } => write!(f, "{count} more log events are not kept"),
            GatewayEvent::Other { text } => f.write_str(text),
        }
    }
}
