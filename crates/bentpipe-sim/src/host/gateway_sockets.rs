//! What a gateway sees of its simulated host: a program's sockets, and the requests of other hosts.

use super::interceptor::{HeldSyn, Interceptor, sent_ends};
use super::socket_table::Socket;
use super::sockets::{View, v4};
use bentpipe_net::datagram::{Body, Datagram};
use bentpipe_net::delegate_sockets;
use bentpipe_net::interception::{Bypassed, GatewaySockets, Interception, Named, Refusal, Request, RequestId};
use bentpipe_net::line::Line;
use bentpipe_net::socket::{SocketError, SocketId, Sockets};
use bentpipe_net::time::Instant;
use bentpipe_net::wire;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};

/// The bits of the traffic class that are ECN's (RFC 3168 §5).
const ECN: u8 = 0b11;

/// The sockets of a gateway; its site has an [`Interceptor`].
pub(super) struct GatewayView<'a> {
    pub view: View<'a>,
}

impl GatewayView<'_> {
    fn interceptor(&mut self) -> Option<&mut Interceptor> {
        self.view.stack.gateway.as_deref_mut()
    }

    /// Changes of a new socket are announced.
    fn watch(&mut self, id: SocketId) -> SocketId {
        if let Ok(socket) = self.view.table.get(id)
            && let Some(interceptor) = self.interceptor()
        {
            interceptor.sockets.insert(socket, id);
        }
        id
    }

    /// Changes of a socket that ends are no longer announced.
    fn unwatch(&mut self, id: SocketId) {
        if let Ok(socket) = self.view.table.get(id)
            && let Some(interceptor) = self.interceptor()
        {
            interceptor.sockets.remove(&socket);
        }
    }

    fn connect_marked(
        &mut self,
        client: Option<SocketAddrV4>,
        to: SocketAddrV4,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError> {
        let mark = traffic_class & !ECN;
        let View { now, program, stack, .. } = &mut self.view;
        // The SYN leaves when this call is over, so that it finds the mark.
        let number = stack.connect_from(*now, *program, client, to)?;
        if mark != 0
            && let Some(slot) = stack.connections[number].as_ref()
        {
            let ends = (slot.connection.local(), slot.connection.remote());
            if let Some(interceptor) = self.interceptor() {
                interceptor.marks.insert(ends, mark);
            }
        }
        let id = self.view.table.add(Socket::Tcp(number));
        Ok(self.watch(id))
    }
}

impl Sockets for GatewayView<'_> {
    delegate_sockets!(view: connection local_address peer_address send receive patterns finish segments set_option);
    delegate_sockets!(view: send_to receive_from echoes);

    fn connect(&mut self, to: SocketAddr) -> Result<SocketId, SocketError> {
        self.connect_as(None, to, 0)
    }

    fn listen(&mut self, port: u16) -> Result<SocketId, SocketError> {
        self.view.listen(port).map(|id| self.watch(id))
    }

    fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, SocketError> {
        Ok(self.view.accept(listener)?.map(|id| self.watch(id)))
    }

    fn open_datagram(&mut self, port: u16) -> Result<SocketId, SocketError> {
        self.view.open_datagram(port).map(|id| self.watch(id))
    }

    fn close(&mut self, socket: SocketId) {
        self.unwatch(socket);
        self.view.close(socket);
    }

    fn abort(&mut self, socket: SocketId) {
        self.unwatch(socket);
        self.view.abort(socket);
    }
}

impl GatewayView<'_> {
    /// The line, where the gateway dials.
    fn model_line(&mut self) -> Option<&mut dyn Line> {
        let interceptor = self.interceptor().filter(|interceptor| interceptor.place.dials)?;
        Some(&mut interceptor.line)
    }
}

impl Interception for GatewayView<'_> {
    fn next_request(&mut self) -> Option<Request> {
        self.interceptor()?.held.next_request()
    }

    fn answer(&mut self, request: RequestId) -> Result<SocketId, SocketError> {
        let held = self.interceptor().and_then(|interceptor| interceptor.held.take(request));
        let (_, HeldSyn { datagram, .. }) = held.ok_or(SocketError::Closed)?;
        let Body::Tcp(segment) = &datagram.body else { return Err(SocketError::Closed) };
        let (client, server) = sent_ends(&datagram, segment);
        let number = self.view.stack.accept_as(self.view.now, self.view.program, (server, client), segment)?;
        let id = self.view.table.add(Socket::Tcp(number));
        Ok(self.watch(id))
    }

    fn refuse(&mut self, request: RequestId, how: Refusal) {
        let Some(interceptor) = self.interceptor() else { return };
        let Some((request, HeldSyn { datagram, interface })) = interceptor.held.take(request) else { return };
        let Body::Tcp(segment) = &datagram.body else { return };
        match how {
            Refusal::Refused => {
                let (client, server) = sent_ends(&datagram, segment);
                self.view.stack.reset(server, client, segment);
            }
            Refusal::Unreachable => {
                let stack = &mut self.view.stack;
                let Some((source, _)) = stack.ip.source_for(datagram.source) else { return };
                let body = Body::Unreachable { code: 1, mtu: 0, about: wire::quote(&datagram) };
                stack.output().push(Datagram::new(source, datagram.source, body));
            }
            Refusal::Ignored => {}
            Refusal::Bypassed => {
                interceptor.held.bypassed(request, Instant::FAR);
                self.view.stack.passing(self.view.now, interface, datagram);
            }
        }
    }

    fn bypassed(&mut self, _: Option<IpAddr>) -> Bypassed {
        self.interceptor().map(|interceptor| interceptor.bypassed).unwrap_or_default()
    }
}

impl GatewaySockets for GatewayView<'_> {
    fn line(&mut self) -> Option<&mut dyn Line> {
        self.model_line()
    }

    fn take_changed(&mut self, into: &mut Vec<SocketId>) {
        if let Some(interceptor) = self.interceptor() {
            let changed = std::mem::take(&mut interceptor.changed);
            into.extend(changed.iter().filter_map(|socket| interceptor.sockets.get(socket)));
        }
    }

    fn connect_as(
        &mut self,
        client: Option<SocketAddr>,
        to: SocketAddr,
        traffic_class: u8,
    ) -> Result<SocketId, SocketError> {
        let client = client.map(v4).transpose()?;
        self.connect_marked(client, v4(to)?, traffic_class)
    }

    fn connect_to_name(&mut self, server: Named<'_>) -> Result<SocketId, SocketError> {
        let Named { name, port, traffic_class, may_connect, .. } = server;
        let address = match name.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => Some(address),
            Ok(IpAddr::V6(_)) => None,
            Err(_) => self.interceptor().and_then(|interceptor| interceptor.place.names.get(name).copied()),
        };
        let address = address.ok_or(SocketError::Unreachable)?;
        if !may_connect(address.into()) {
            return Err(SocketError::Denied);
        }
        self.connect_marked(None, SocketAddrV4::new(address, port), traffic_class)
    }

    fn keeps_addresses(&self) -> bool {
        true
    }

    /// The simulated TCP has no urgent data.
    fn next_is_urgent(&mut self, _socket: SocketId) -> bool {
        false
    }

    fn send_urgent(&mut self, socket: SocketId, byte: u8) -> Result<bool, SocketError> {
        Ok(self.send(socket, &[byte])? == 1)
    }

    fn unacknowledged(&mut self, socket: SocketId) -> u64 {
        self.view.connection_of(socket).map_or(0, |connection| connection.unacknowledged_bytes())
    }
}
