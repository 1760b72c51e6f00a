//! Events of a gateway for the operator's log; the driver writes them.

use crate::dial::LineNotice;
use crate::satellite::{Loss, RefusedPeer};
use bentpipe_net::socket::SocketError;
use bentpipe_net::units::BitRate;
use std::fmt;
use std::net::SocketAddr;

/// Who is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// By address.
    Address(SocketAddr),
    /// By name and port, looked up at the far side.
    Name(String, u16),
}

impl Server {
    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Server::Address(address) => address.port(),
            Server::Name(_, port) => *port,
        }
    }
}

/// The outcome of a connection request at the far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The server answered.
    Open,
    /// The server refused.
    Refused,
    /// There is no way to the server.
    Unreachable,
    /// The server did not answer.
    TimedOut,
    /// The far gateway does not connect there.
    Denied,
    /// The far gateway has no room for more connections.
    Busy,
}

/// Why the terminal has no connection to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Nothing came back.
    Silent,
    /// A machine on the path, or the hub's, answered with ICMP, or the kernel has no route.
    Icmp(SocketError),
    /// The hub answered, but the handshake was not completed.
    Incomplete,
}

/// A direction of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDirection {
    /// From the hub to the terminal.
    Forward,
    /// From the terminal to the hub.
    Return,
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The pair is connected.
    Connected,
    /// The other gateway is silent.
    Silent,
    /// The other gateway is heard again.
    Heard,
    /// The pair's connection is over; so many relayed connections were reset.
    Lost {
        /// Why.
        why: Loss,
        /// Relayed connections that were reset.
        connections: usize,
    },
    /// A peer whose key is not known tried to connect, or does not know ours.
    Unauthenticated {
        /// So many attempts so far.
        count: u64,
        /// The last of them.
        peer: Option<RefusedPeer>,
    },
    /// The terminal has no connection: an attempt has ended without one. Logged again at intervals.
    Unanswered {
        /// The address that was called.
        hub: SocketAddr,
        /// The reason.
        why: Unanswered,
    },
    /// Two gateways with one key end each other's connection, from these addresses.
    SharedKey([SocketAddr; 2]),
    /// The two gateways are configured with different rates of the same direction.
    RatesDiffer {
        /// Of the link.
        direction: LinkDirection,
        /// The rate in this gateway's file.
        here: BitRate,
        /// The rate in the other's.
        there: BitRate,
    },
    /// A gateway of another version tried to connect; so many attempts so far.
    OtherVersion(u64),
    /// So many packets so far that are not the pair's; said at most once a minute, and for a hundred of them.
    UnauthenticatedPackets(u64),
    /// The declared rate is too high for the link: the rate is throttled.
    Throttled {
        /// The declared rate.
        declared: BitRate,
        /// The rate in use now.
        now: BitRate,
    },
    /// The rate is no longer throttled.
    Released,
    /// The line that the gateway dials.
    Line(LineNotice),
    /// A request did not become a connection.
    NotOpened {
        /// Who asked.
        client: Option<SocketAddr>,
        /// Who was asked for.
        server: Server,
        /// Its outcome.
        outcome: Outcome,
    },
    /// New requests pass the gateway by from now on (`fail = "open"`), or are refused (`fail = "closed"`).
    Failing {
        /// They pass by.
        bypass: bool,
    },
    /// New requests are relayed again.
    Relaying,
    /// A limit of requests, connections or memory was reached; the same is said again only after it was left.
    LimitReached(&'static str),
    /// The other gateway sent something that is not the protocol on one stream, which was reset.
    Malformed {
        /// The mistake.
        what: &'static str,
    },
    /// Servers see this site's address instead of their clients'.
    AddressesHidden,
    /// A listener or the satellite side's socket could not be opened.
    NoSocket {
        /// UDP of the satellite side, SOCKS, CONNECT.
        what: &'static str,
        /// Its port.
        port: u16,
        /// Why.
        why: SocketError,
    },
    /// So many log events were dropped, because nobody took them.
    Dropped(u64),
}

impl LogEvent {
    /// Its name for programs that read the log.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            LogEvent::Connected => "connected",
            LogEvent::Silent => "silent",
            LogEvent::Heard => "heard",
            LogEvent::Lost { .. } => "lost",
            LogEvent::Unauthenticated { .. } => "unauthenticated_peer",
            LogEvent::OtherVersion(_) => "other_version",
            LogEvent::Unanswered { .. } => "unanswered",
            LogEvent::SharedKey(_) => "shared_key",
            LogEvent::RatesDiffer { .. } => "rates_differ",
            LogEvent::UnauthenticatedPackets(_) => "unauthenticated_packets",
            LogEvent::Throttled { .. } => "throttled",
            LogEvent::Released => "released",
            LogEvent::NotOpened { .. } => "not_opened",
            LogEvent::Failing { .. } => "failing",
            LogEvent::Relaying => "relaying",
            LogEvent::LimitReached(_) => "limit_reached",
            LogEvent::Malformed { .. } => "malformed",
            LogEvent::AddressesHidden => "addresses_hidden",
            LogEvent::NoSocket { .. } => "no_socket",
            LogEvent::Line(_) => "line",
            LogEvent::Dropped(_) => "dropped",
        }
    }

    /// Unauthenticated peers, clients or the other gateway can make as many of these as they like.
    pub(crate) fn is_frequent(&self) -> bool {
        matches!(
            self,
            LogEvent::Unauthenticated { .. }
                | LogEvent::OtherVersion(_)
                | LogEvent::NotOpened { .. }
                | LogEvent::Malformed { .. }
        )
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Address(address) => write!(f, "{address}"),
            Server::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl fmt::Display for LinkDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkDirection::Forward => "forward",
            LinkDirection::Return => "return",
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Open => "open",
            Outcome::Refused => "refused",
            Outcome::Unreachable => "unreachable",
            Outcome::TimedOut => "timed out",
            Outcome::Denied => "not allowed by the far gateway",
            Outcome::Busy => "no room for more connections",
        })
    }
}

impl fmt::Display for LogEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogEvent::Connected => f.write_str("connected to the other gateway"),
            LogEvent::Silent => f.write_str("the other gateway is silent"),
            LogEvent::Heard => f.write_str("the other gateway is heard again"),
            LogEvent::Lost { why, connections } => write!(f, "{why}; {connections} connections were reset"),
            LogEvent::Unauthenticated { count, peer: None } => {
                write!(f, "refused a gateway with an unknown key ({count} so far)")
            }
            LogEvent::Unauthenticated { count, peer: Some(RefusedPeer { from, key: Some(key) }) } => {
                write!(
                    f,
                    "refused a gateway with an unknown key at {from}: {key} is not the configured peer_key ({count} so far)"
                )
            }
            LogEvent::Unauthenticated { count, peer: Some(RefusedPeer { from, key: None }) } => {
                write!(f, "the gateway at {from} does not know this one's key, or has no key ({count} attempts so far)")
            }
            LogEvent::Unanswered { hub, why } => {
                write!(f, "no connection to the hub at {hub}: ")?;
                match why {
                    Unanswered::Silent => {
                        f.write_str("nothing answers; does it run, and do its UDP packets get through?")
                    }
                    Unanswered::Icmp(SocketError::Refused) => {
                        f.write_str("nothing listens there (ICMP port unreachable)")
                    }
                    Unanswered::Icmp(why) => write!(f, "{why} (ICMP, or this machine's routes)"),
                    Unanswered::Incomplete => f.write_str(
                        "it answers, but the handshake was not completed; do packets of the link's mtu get through?",
                    ),
                }
            }
            LogEvent::SharedKey([one, other]) => write!(
                f,
                "gateways at {one} and {other} end each other's connection: two with the same key? Each needs a hub, and a \
                 key, of its own"
            ),
            LogEvent::RatesDiffer { direction, here, there } => write!(
                f,
                "the two gateways' files differ: the {direction} link has {here} here and {there} at the other gateway; \
                 transfers are slow until both state the link's rate"
            ),
            LogEvent::OtherVersion(count) => write!(
                f,
                "refused a gateway of another version ({count} so far): both need one that speaks version {} of the pair's \
                 protocol",
                crate::protocol::VERSION
            ),
            LogEvent::UnauthenticatedPackets(count) => {
                write!(f, "packets come in that are of no connection of the pair ({count} so far)")
            }
            LogEvent::Throttled { declared, now } => {
                write!(f, "the link does not carry the declared {declared}: throttled to {now}")
            }
            LogEvent::Released => f.write_str("the link carries the declared rate again"),
            LogEvent::NotOpened { client, server, outcome } => match client {
                Some(client) => write!(f, "{client} to {server}: {outcome}"),
                None => write!(f, "to {server}: {outcome}"),
            },
            LogEvent::Failing { bypass: true } => f.write_str("new connections bypass the gateway"),
            LogEvent::Failing { bypass: false } => f.write_str("new connections are refused"),
            LogEvent::Relaying => f.write_str("new connections are relayed again"),
            LogEvent::LimitReached(what) => write!(f, "the limit of {what} is reached"),
            LogEvent::Malformed { what } => write!(f, "reset a stream that broke the protocol: {what}"),
            LogEvent::AddressesHidden => {
                f.write_str("servers see this gateway's address, not their clients': no right to use foreign addresses")
            }
            LogEvent::NoSocket { what, port, why } => write!(f, "cannot open the {what} port {port}: {why}"),
            LogEvent::Line(notice) => write!(f, "line: {notice}"),
            LogEvent::Dropped(count) => write!(f, "{count} log events were dropped"),
        }
    }
}
