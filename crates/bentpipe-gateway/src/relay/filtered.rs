//! The sockets of a site with a filter between one of them and the relay.

use crate::front_end::{Filter, Filtered};
use bentpipe_net::delegate_sockets;
use bentpipe_net::interception::{Bypassed, GatewaySockets, Interception, Named, Refusal, Request, RequestId};
use bentpipe_net::socket::{Received, SocketError, SocketId, Sockets};
use bentpipe_net::time::Instant;
use std::net::{IpAddr, SocketAddr};

/// A filter and the bytes that wait on either side of it.
pub(crate) struct FilterState {
    filter: Box<dyn Filter>,
    filtered: Filtered,
    begun: bool,
    host_ended: bool,
    /// The relay has ended its direction; the host sees it once it has been sent everything.
    finishing: bool,
    /// The next byte of the host is urgent: it passes the filter by.
    urgent: bool,
}

impl FilterState {
    /// `first`: bytes of the host that have been read already.
    pub(crate) fn new(mut filter: Box<dyn Filter>, now: Instant, first: &[u8]) -> FilterState {
        let mut filtered = Filtered::default();
        filter.host_sent(now, first, &mut filtered);
        FilterState { filter, filtered, begun: false, host_ended: false, finishing: false, urgent: false }
    }

    /// Bytes held.
    pub(crate) fn buffered(&self) -> usize {
        self.filtered.to_link.capacity() + self.filtered.to_host.capacity()
    }

    /// It has been between the socket and the relay before.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Bytes that wait for the relay.
    pub(crate) fn to_link(&self) -> usize {
        self.filtered.to_link.len()
    }

    /// When [`FilterState::wake`] is due though nothing changes.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        self.filter.next_wake()
    }

    /// Does what is due, and gives the host what waits for it.
    pub(crate) fn wake(
        &mut self,
        now: Instant,
        sockets: &mut dyn GatewaySockets,
        socket: SocketId,
    ) -> Result<(), SocketError> {
        self.begun = true;
        if self.filter.next_wake().is_some_and(|at| at <= now) {
            self.filter.wake(now, &mut self.filtered);
        }
        self.flush(sockets, socket).map(drop)
    }

    /// Gives the host what waits for it; `false`: its socket is full.
    fn flush(&mut self, sockets: &mut dyn GatewaySockets, socket: SocketId) -> Result<bool, SocketError> {
        while !self.filtered.to_host.is_empty() {
            match sockets.send(socket, &self.filtered.to_host)? {
                0 => return Ok(false),
                sent => take(&mut self.filtered.to_host, sent),
            }
        }
        if std::mem::take(&mut self.finishing) {
            sockets.finish(socket);
        }
        Ok(true)
    }
}

/// Removes the first bytes. Nothing left: no memory is kept.
fn take(bytes: &mut Vec<u8>, count: usize) {
    if count == bytes.len() {
        *bytes = Vec::new();
    } else {
        bytes.drain(..count);
    }
}

/// The site's sockets; `socket` is the filtered one.
pub(crate) struct FilteredSockets<'a> {
    pub sockets: &'a mut dyn GatewaySockets,
    pub socket: SocketId,
    pub state: &'a mut FilterState,
    pub now: Instant,
}

impl Sockets for FilteredSockets<'_> {
    delegate_sockets!(sockets: connect connection listen accept local_address peer_address patterns);
    delegate_sockets!(sockets: close abort segments set_option open_datagram send_to receive_from echoes);

    fn send(&mut self, socket: SocketId, data: &[u8]) -> Result<usize, SocketError> {
        if socket != self.socket {
            return self.sockets.send(socket, data);
        }
        if !self.state.flush(self.sockets, socket)? {
            return Ok(0);
        }
        self.state.filter.link_sent(self.now, data, &mut self.state.filtered);
        self.state.flush(self.sockets, socket)?;
        Ok(data.len())
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Received, SocketError> {
        let state = &mut *self.state;
        if socket != self.socket || std::mem::take(&mut state.urgent) {
            return self.sockets.receive(socket, into);
        }
        loop {
            if !state.filtered.to_link.is_empty() {
                let count = state.filtered.to_link.len().min(into.len());
                into[..count].copy_from_slice(&state.filtered.to_link[..count]);
                take(&mut state.filtered.to_link, count);
                return Ok(Received::Bytes(count));
            }
            if state.host_ended {
                return Ok(Received::End);
            }
            match self.sockets.receive(socket, into)? {
                Received::Bytes(count) => state.filter.host_sent(self.now, &into[..count], &mut state.filtered),
                Received::Nothing => return Ok(Received::Nothing),
                Received::End => {
                    state.host_ended = true;
                    state.filter.host_ended(self.now, &mut state.filtered);
                }
            }
            // An answer of the filter itself; an error is seen by whoever reads or sends next.
            let _ = state.flush(self.sockets, socket);
        }
    }

    fn finish(&mut self, socket: SocketId) {
        if socket != self.socket {
            return self.sockets.finish(socket);
        }
        self.state.filter.link_ended(self.now, &mut self.state.filtered);
        self.state.finishing = true;
        let _ = self.state.flush(self.sockets, socket);
    }
}

impl Interception for FilteredSockets<'_> {
    fn next_request(&mut self) -> Option<Request> {
        self.sockets.next_request()
    }
    fn answer(&mut self, request: RequestId) -> Result<SocketId, SocketError> {
        self.sockets.answer(request)
    }
    fn refuse(&mut self, request: RequestId, how: Refusal) {
        self.sockets.refuse(request, how);
    }
    fn bypassed(&mut self, peer: Option<IpAddr>) -> Bypassed {
        self.sockets.bypassed(peer)
    }
}

impl GatewaySockets for FilteredSockets<'_> {
    fn take_changed(&mut self, into: &mut Vec<SocketId>) {
        self.sockets.take_changed(into);
    }
    fn listen_at(&mut self, address: SocketAddr) -> Result<SocketId, SocketError> {
        self.sockets.listen_at(address)
    }
    fn connect_as(
        &mut self,
        client: Option<SocketAddr>,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError> {
        self.sockets.connect_as(client, to, traffic_class)
    }
    fn connect_to_name(&mut self, server: Named<'_>) -> Result<SocketId, SocketError> {
        self.sockets.connect_to_name(server)
    }
    fn keeps_addresses(&self) -> bool {
        self.sockets.keeps_addresses()
    }
    fn next_is_urgent(&mut self, socket: SocketId) -> bool {
        let waits = socket == self.socket && !self.state.filtered.to_link.is_empty();
        let urgent = !waits && self.sockets.next_is_urgent(socket);
        if socket == self.socket {
            self.state.urgent = urgent;
        }
        urgent
    }
    fn send_urgent(&mut self, socket: SocketId, byte: u8) -> Result<bool, SocketError> {
        if socket == self.socket && !self.state.flush(self.sockets, socket)? {
            return Ok(false);
        }
        self.sockets.send_urgent(socket, byte)
    }
    fn unacknowledged(&mut self, socket: SocketId) -> u64 {
        let waits = if socket == self.socket { self.state.filtered.to_host.len() as u64 } else { 0 };
        waits + self.sockets.unacknowledged(socket)
    }
}
