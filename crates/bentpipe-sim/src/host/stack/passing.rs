//! A site with a gateway: its IP layer hands every packet that would pass to this module, which holds the connection
//! requests towards the link, gives the gateway's connections what is theirs, and lets the rest pass.
//!
//! The gateway answers a request in its server's name and connects in its client's: packets to addresses that are not
//! the site's belong to its connections all the same ([`Stack::passing`]).

use super::Stack;
use crate::host::interceptor::{Endpoints, HeldSyn, sent_ends};
use crate::host::ip::Up;
use crate::tcp::{Connection, Output};
use bentpipe_net::datagram::{Body, Datagram, Segment, flag};
use bentpipe_net::headers::protocol;
use bentpipe_net::held_requests::Hold;
use bentpipe_net::line::Unwanted;
use bentpipe_net::socket::SocketError;
use bentpipe_net::time::Instant;
use bentpipe_net::wire;
use std::net::SocketAddrV4;
use std::sync::Arc;

impl Stack {
    /// A packet for somebody else came in at `interface` of a site with a gateway.
    pub(in crate::host) fn passing(&mut self, now: Instant, interface: usize, mut datagram: Box<Datagram>) {
        if self.belongs_here(&datagram) {
            self.take_up(now, Up::Datagram(datagram));
            return;
        }
        let Some(gateway) = self.gateway.as_mut() else { return };
        // What comes over the link goes to whom it is for.
        if interface != gateway.place.link && self.ip.way(datagram.destination) == Some(gateway.place.link) {
            if let Body::Tcp(segment) = &datagram.body
                && segment.flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN
            {
                let (client, server) = sent_ends(&datagram, segment);
                let ends = (client.into(), server.into());
                let traffic_class = datagram.traffic_class;
                match gateway.held.hold(ends, traffic_class, HeldSyn { datagram, interface }, Instant::FAR) {
                    Hold::Bypassed(syn) => datagram = syn.datagram,
                    Hold::Waits | Hold::Answered(_) | Hold::Full => {
                        let program = gateway.program;
                        self.ready.push(program);
                        return;
                    }
                }
            }
            if gateway.place.dials && !gateway.line_up {
                // There is no route while the line is down, and nothing that passes by sets it up.
                *gateway.line.unwanted.entry(Unwanted::of(&datagram)).or_default() += 1;
                let program = gateway.program;
                self.ready.push(program);
                return;
            }
            gateway.bypassed.packets += 1;
            gateway.bypassed.bytes += datagram.bytes();
        }
        self.ip.forward(now, interface, datagram);
    }

    /// True if a packet to a foreign address is for a connection of the gateway.
    fn belongs_here(&self, datagram: &Datagram) -> bool {
        match &datagram.body {
            Body::Tcp(segment) => {
                let (remote, local) = sent_ends(datagram, segment);
                self.has_connection(local, remote)
            }
            Body::Unreachable { about, .. } => wire::quoted_ports(about).is_some_and(|quoted| {
                let local = SocketAddrV4::new(quoted.source, quoted.source_port);
                let remote = SocketAddrV4::new(quoted.destination, quoted.destination_port);
                quoted.protocol == protocol::TCP && self.has_connection(local, remote)
            }),
            _ => false,
        }
    }

    /// Answers a held request: a connection between these ends (ours first) of program `owner`.
    pub(in crate::host) fn accept_as(
        &mut self,
        now: Instant,
        owner: u32,
        (local, remote): Endpoints,
        syn: &Segment,
    ) -> Result<usize, SocketError> {
        self.make_room(local, remote)?;
        let parameters = self.parameters(now, local, remote).ok_or(SocketError::Unreachable)?;
        let settings = Arc::clone(&self.settings);
        let connection = {
            let mut output = Output { now, datagrams: self.output() };
            Connection::accept(&settings, parameters, syn, &mut output)
        };
        Ok(self.take_in(connection, owner))
    }

    /// Opens a connection, in the name of `client` if one is given: from its address and, where that is free, its port.
    pub(in crate::host) fn connect_from(
        &mut self,
        now: Instant,
        owner: u32,
        client: Option<SocketAddrV4>,
        to: SocketAddrV4,
    ) -> Result<usize, SocketError> {
        let Some(client) = client else { return self.connect(now, owner, to) };
        let local = match self.make_room(client, to) {
            Ok(()) => client,
            Err(_) => self.pick_port(*client.ip(), to).ok_or(SocketError::AddressInUse)?,
        };
        let parameters = self.parameters(now, local, to).ok_or(SocketError::Unreachable)?;
        let settings = Arc::clone(&self.settings);
        let connection = {
            let mut output = Output { now, datagrams: self.output() };
            Connection::connect(&settings, parameters, &mut output)
        };
        Ok(self.take_in(connection, owner))
    }
}
