//! The gateway's part of a site's IP layer: connection requests that are held, connections that bypass the gateway, and the
//! marks of its own.

use super::socket_table::Socket;
use bentpipe_net::datagram::{Body, Datagram, Segment};
use bentpipe_net::held_requests::HeldRequests;
use bentpipe_net::interception::Bypassed;
use bentpipe_net::line::{LedgerError, Line, LineEvent, Unwanted};
use bentpipe_net::socket::SocketId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// The two ends of a connection as its client sees them.
pub(super) type Endpoints = (SocketAddrV4, SocketAddrV4);

/// Where a gateway stands.
#[derive(Clone, Debug)]
pub struct GatewayPlace {
    /// The number of the site's interface towards the link.
    pub link: usize,
    /// The gateway dials that link.
    pub dials: bool,
    /// Addresses of all sites, by their names.
    pub names: Arc<BTreeMap<String, Ipv4Addr>>,
}

/// The state behind a gateway's sockets at one site.
#[derive(Debug)]
pub(super) struct Interceptor {
    /// The gateway's number among the programs of the site.
    pub program: u32,
    pub place: GatewayPlace,
    pub held: HeldRequests<HeldSyn>,
    pub bypassed: Bypassed,
    /// DSCP of the gateway's own connections (local end first), in the upper six bits of the octet.
    pub marks: BTreeMap<Endpoints, u8>,
    /// Sockets by what they stand for, and those that may have changed.
    pub sockets: BTreeMap<Socket, SocketId>,
    pub changed: BTreeSet<Socket>,
    /// The line that the gateway dials, and whether packets can flow.
    pub line: ModelLine,
    pub line_up: bool,
}

/// A connection request without an answer.
#[derive(Debug)]
pub(super) struct HeldSyn {
    pub datagram: Box<Datagram>,
    /// Where it came in.
    pub interface: usize,
}

/// The line of a link whose circuit a gateway dials: what the network is to do, and what it has done.
#[derive(Debug, Default)]
pub struct ModelLine {
    /// What the gateway asked for last.
    pub order: Option<LineOrder>,
    /// Changes that the gateway has not taken.
    pub events: VecDeque<LineEvent>,
    /// The ledger's text.
    pub ledger: String,
    /// Packets of others that came while the line was down, and so went nowhere, by what they were.
    pub unwanted: BTreeMap<Unwanted, u64>,
}

/// What a gateway asks of its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineOrder {
    /// Set it up.
    Dial,
    /// End its call.
    HangUp,
}

impl Line for ModelLine {
    fn record(&mut self, entry: &str) -> Result<(), LedgerError> {
        self.ledger.push_str(entry);
        Ok(())
    }

    fn dial(&mut self, _: u64) {
        self.order = Some(LineOrder::Dial);
    }

    fn hang_up(&mut self) {
        self.order = Some(LineOrder::HangUp);
    }

    fn poll_event(&mut self) -> Option<LineEvent> {
        self.events.pop_front()
    }

    fn unwanted(&self, what: Unwanted) -> u64 {
        self.unwanted.get(&what).copied().unwrap_or(0)
    }
}

/// Requests that may wait for an answer; further ones are lost, and their clients ask again (Linux: somaxconn).
const REQUESTS_MAX: usize = 4096;

impl Interceptor {
    /// Of the program with this number.
    pub fn new(program: u32, place: GatewayPlace) -> Interceptor {
        Interceptor {
            program,
            place,
            held: HeldRequests::new(REQUESTS_MAX),
            bypassed: Bypassed::default(),
            marks: BTreeMap::new(),
            sockets: BTreeMap::new(),
            changed: BTreeSet::new(),
            line: ModelLine::default(),
            line_up: false,
        }
    }

    /// A socket of program `owner` may have changed.
    pub fn note(&mut self, owner: u32, socket: Socket) {
        if owner == self.program {
            self.changed.insert(socket);
        }
    }

    /// Sets the traffic class of a packet that this site sends: its connection's DSCP.
    pub fn mark(&self, datagram: &mut Datagram) {
        if let Body::Tcp(segment) = &datagram.body
            && let Some(mark) = self.marks.get(&sent_ends(datagram, segment))
        {
            datagram.traffic_class |= mark;
        }
    }

    /// The connection between these ends, ours first, is over.
    pub fn forget(&mut self, ends: Endpoints) {
        self.marks.remove(&ends);
    }
}

/// The ends of the segment's connection, its sender first.
pub(super) fn sent_ends(datagram: &Datagram, segment: &Segment) -> Endpoints {
    let source = SocketAddrV4::new(datagram.source, segment.source_port);
    (source, SocketAddrV4::new(datagram.destination, segment.destination_port))
}
