//! A line that a gateway dials: set up and ended by it, in a model, by a command or by a modem.

use crate::datagram::{Body, Datagram};
use crate::flow::FlowKey;
use crate::headers::protocol;
use std::fmt;

/// A line, as the gateway that dials it sees it. No call blocks but [`Line::record`], which waits for the disk.
pub trait Line {
    /// Appends a line of text to the ledger so that it outlives a crash. What an entry announces may only be done once this
    /// has returned.
    fn record(&mut self, entry: &str) -> Result<(), LedgerError>;
    /// Begins to set the line up; [`LineEvent::Up`] or [`LineEvent::Failed`] follows.
    fn dial(&mut self, call: u64);
    /// Begins to end the call, up or not; [`LineEvent::Down`] follows.
    fn hang_up(&mut self);
    /// The next change of the line.
    fn poll_event(&mut self) -> Option<LineEvent>;
    /// Packets that would have passed the gateway while the line was down, and went nowhere.
    fn unwanted(&self, _: Unwanted) -> u64 {
        0
    }
    /// Wall time at model time zero: nanoseconds since 1970-01-01 00:00 UTC. In virtual time zero.
    fn epoch_ns(&self) -> u64 {
        0
    }
}

/// A change of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineEvent {
    /// Packets can flow.
    Up,
    /// The call did not come up; there is none now.
    Failed(LineFailure),
    /// The call has ended: as was asked, or by itself.
    Down,
}

/// Why a call did not come up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineFailure {
    /// The called line is busy (BUSY).
    Busy,
    /// The modems did not connect (NO CARRIER).
    NoCarrier,
    /// There is no dial tone (NO DIALTONE).
    NoDialTone,
    /// Nobody answers (NO ANSWER).
    NoAnswer,
    /// The network refused the call.
    Refused,
    /// The hook command failed, or the modem answered something else.
    Failed,
    /// It took too long.
    TimedOut,
}

/// The ledger could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the ledger cannot be written")]
pub struct LedgerError;

impl fmt::Display for LineFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LineFailure::Busy => "busy",
            LineFailure::NoCarrier => "no carrier",
            LineFailure::NoDialTone => "no dial tone",
            LineFailure::NoAnswer => "no answer",
            LineFailure::Refused => "refused by the network",
            LineFailure::Failed => "the hook or the modem failed",
            LineFailure::TimedOut => "took too long",
        })
    }
}

/// Traffic of others that finds the line down, by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unwanted {
    /// Clocks (UDP port 123).
    Ntp,
    /// Names of neighbours (UDP port 5353).
    Mdns,
    /// Names of neighbours (UDP port 5355).
    Llmnr,
    /// Names of Windows machines (UDP ports 137 and 138).
    NetBios,
    /// Addresses of hosts (UDP ports 67 and 68).
    Dhcp,
    /// Names (UDP port 53).
    Dns,
    /// Echo requests (ICMP).
    Ping,
    /// Other datagrams.
    Udp,
    /// TCP connections that are not relayed.
    Tcp,
    /// Anything else.
    Other,
}

impl Unwanted {
    /// All of them.
    pub const ALL: [Unwanted; 10] = [
        Unwanted::Ntp,
        Unwanted::Mdns,
        Unwanted::Llmnr,
        Unwanted::NetBios,
        Unwanted::Dhcp,
        Unwanted::Dns,
        Unwanted::Ping,
        Unwanted::Udp,
        Unwanted::Tcp,
        Unwanted::Other,
    ];

    /// The name of a datagram that passes.
    #[must_use]
    pub fn of(datagram: &Datagram) -> Unwanted {
        match &datagram.body {
            Body::Udp { destination_port, .. } => Unwanted::of_port(*destination_port),
            Body::Tcp(_) => Unwanted::Tcp,
            Body::Echo { .. } => Unwanted::Ping,
            _ => Unwanted::Other,
        }
    }

    /// The name of a packet of a flow.
    #[must_use]
    pub fn of_flow(flow: &FlowKey) -> Unwanted {
        match flow.protocol {
            protocol::UDP => Unwanted::of_port(flow.destination_port),
            protocol::TCP => Unwanted::Tcp,
            protocol::ICMP => Unwanted::Ping,
            _ => Unwanted::Other,
        }
    }

    /// The name of a UDP datagram to this port.
    #[must_use]
    pub fn of_port(destination: u16) -> Unwanted {
        match destination {
            123 => Unwanted::Ntp,
            5353 => Unwanted::Mdns,
            5355 => Unwanted::Llmnr,
            137 | 138 => Unwanted::NetBios,
            67 | 68 => Unwanted::Dhcp,
            53 => Unwanted::Dns,
            _ => Unwanted::Udp,
        }
    }
}

impl fmt::Display for Unwanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unwanted::Ntp => "ntp",
            Unwanted::Mdns => "mdns",
            Unwanted::Llmnr => "llmnr",
            Unwanted::NetBios => "netbios",
            Unwanted::Dhcp => "dhcp",
            Unwanted::Dns => "dns",
            Unwanted::Ping => "ping",
            Unwanted::Udp => "udp",
            Unwanted::Tcp => "tcp",
            Unwanted::Other => "other",
        })
    }
}
