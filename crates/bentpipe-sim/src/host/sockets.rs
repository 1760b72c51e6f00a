//! A program's view of its simulated host.

use super::socket_table::{Socket, SocketTable};
use super::stack::{Listener, Stack, WaitingDatagram};
use crate::tcp::Output;
use bentpipe_net::datagram::{Body, Payload};
use bentpipe_net::socket::{
    Arrival, Connection as Progress, Received, ReceivedPattern, Segments, SocketError, SocketId, SocketOption, Sockets,
};
use bentpipe_net::time::Instant;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// The sockets of one program during one poll.
pub struct View<'a> {
    pub now: Instant,
    pub program: u32,
    pub table: &'a mut SocketTable,
    pub stack: &'a mut Stack,
}

impl View<'_> {
    /// Closes every socket, as the end of a process does.
    pub fn close_all(&mut self) {
        for number in 0..self.table.len() {
            self.close(SocketId(number as u32));
        }
    }

    fn connection(&mut self, socket: SocketId) -> Result<&mut crate::tcp::Connection, SocketError> {
        let number = self.table.tcp(socket)?;
        self.stack.connections[number].as_mut().map(|slot| &mut slot.connection).ok_or(SocketError::Closed)
    }

    /// The connection, to look at.
    pub(super) fn connection_of(&mut self, socket: SocketId) -> Option<&crate::tcp::Connection> {
        View::connection(self, socket).ok().map(|connection| &*connection)
    }

    /// The connection, which the caller is about to work on.
    #[inline(always)]
    fn work(&mut self, socket: SocketId) -> Result<&mut crate::tcp::Connection, SocketError> {
        let number = self.table.tcp(socket)?;
        let slot = self.stack.connections[number].as_mut().ok_or(SocketError::Closed)?;
        self.table.touch(number);
        Ok(&mut slot.connection)
    }
}

pub(super) fn v4(address: SocketAddr) -> Result<SocketAddrV4, SocketError> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(SocketError::Unreachable),
    }
}

impl Sockets for View<'_> {
    fn connect(&mut self, to: SocketAddr) -> Result<SocketId, SocketError> {
        let number = self.stack.connect(self.now, self.program, v4(to)?)?;
        Ok(self.table.add(Socket::Tcp(number)))
    }

    fn connection(&mut self, socket: SocketId) -> Result<Progress, SocketError> {
        View::connection(self, socket)?.progress()
    }

    fn listen(&mut self, port: u16) -> Result<SocketId, SocketError> {
        if port == 0 {
            let port = (20_000..30_000).find(|port| !self.stack.listeners.contains_key(port));
            return self.listen(port.ok_or(SocketError::AddressInUse)?);
        }
        if self.stack.listeners.contains_key(&port) {
            return Err(SocketError::AddressInUse);
        }
        self.stack.listeners.insert(port, Listener { owner: self.program, ready: VecDeque::new() });
        Ok(self.table.add(Socket::Listener(port)))
    }

    fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, SocketError> {
        let Socket::Listener(port) = self.table.get(listener)? else { return Err(SocketError::Closed) };
        let Some(waiting) = self.stack.listeners.get_mut(&port) else { return Err(SocketError::Closed) };
        while let Some(number) = waiting.ready.pop_front() {
            if let Some(slot) = self.stack.connections[number].as_mut()
                && slot.owner == Some(self.program)
            {
                return Ok(Some(self.table.add(Socket::Tcp(number))));
            }
        }
        Ok(None)
    }

    fn local_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        match self.table.get(socket)? {
            Socket::Tcp(_) => Ok(View::connection(self, socket)?.local().into()),
            Socket::Listener(port) | Socket::Datagram(port) => {
                Ok(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into())
            }
            Socket::Echo(_) => Err(SocketError::Closed),
        }
    }

    fn peer_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        Ok(View::connection(self, socket)?.remote().into())
    }

    fn send(&mut self, socket: SocketId, data: &[u8]) -> Result<usize, SocketError> {
        // Each call pushes, as a kernel's does: what it gave may leave as a small segment of its own. What has left makes
        // room in the last packet buffer.
        let number = self.table.tcp(socket)?;
        let send = |connection: &mut crate::tcp::Connection, output: &mut Output<'_>| {
            let mut rest = data;
            loop {
                let taken =
                    connection.send(rest.len() as u64, |taken| Payload::from_vec(rest[..taken as usize].to_vec()));
                connection.flush(output);
                rest = &rest[taken? as usize..];
                if rest.is_empty() || taken == Ok(0) {
                    return Ok(data.len() - rest.len());
                }
            }
        };
        self.stack.with(self.now, number, send).unwrap_or(Err(SocketError::Closed))
    }

    fn send_pattern(&mut self, socket: SocketId, pattern: u64, offset: u64, length: u64) -> Result<u64, SocketError> {
        let number = self.table.tcp(socket)?;
        let length = length.min(u64::from(u32::MAX));
        let send = |connection: &mut crate::tcp::Connection, output: &mut Output<'_>| {
            let mut given = 0;
            loop {
                let offset = offset + given;
                let piece = |taken| Payload::Pattern { pattern, offset, length: taken as u32 };
                let taken = connection.send(length - given, piece);
                connection.flush(output);
                given += taken?;
                if given == length || taken == Ok(0) {
                    return Ok(given);
                }
            }
        };
        self.stack.with(self.now, number, send).unwrap_or(Err(SocketError::Closed))
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Received, SocketError> {
        self.work(socket)?.receive(into)
    }

    fn receive_pattern(
        &mut self,
        socket: SocketId,
        pattern: u64,
        offset: u64,
        max: u64,
    ) -> Result<ReceivedPattern, SocketError> {
        self.work(socket)?.receive_pattern(pattern, offset, max)
    }

    fn finish(&mut self, socket: SocketId) {
        if let Ok(number) = self.table.tcp(socket) {
            self.stack.with(self.now, number, |connection, output| {
                connection.flush(output);
                connection.finish(output);
            });
        }
    }

    fn close(&mut self, socket: SocketId) {
        let Ok(kind) = self.table.get(socket) else { return };
        self.table.remove(socket);
        match kind {
            Socket::Tcp(number) => {
                self.stack.with(self.now, number, |connection, output| {
                    connection.flush(output);
                    connection.close(output);
                });
            }
            Socket::Listener(port) => {
                if let Some(listener) = self.stack.listeners.remove(&port) {
                    for number in self.stack.opening_through(port).into_iter().chain(listener.ready) {
                        self.stack.with(self.now, number, |connection, output| connection.abort(output));
                    }
                }
            }
            Socket::Datagram(port) => {
                self.stack.datagrams.remove(&port);
            }
            Socket::Echo(identifier) => {
                self.stack.echoes.remove(&identifier);
            }
        }
    }

    fn abort(&mut self, socket: SocketId) {
        let Ok(number) = self.table.tcp(socket) else { return self.close(socket) };
        self.table.remove(socket);
        self.stack.with(self.now, number, |connection, output| connection.abort(output));
    }

    fn segments(&mut self, socket: SocketId) -> Result<Segments, SocketError> {
        Ok(View::connection(self, socket)?.segments())
    }

    fn set_option(&mut self, socket: SocketId, option: SocketOption) -> Result<(), SocketError> {
        match (option, self.table.get(socket)?) {
            (SocketOption::NoDelay, _) => View::connection(self, socket)?.set_no_delay(),
            (SocketOption::Dscp(dscp), Socket::Datagram(port)) => self.stack.set_datagram_dscp(port, dscp),
            (SocketOption::Dscp(dscp), _) => View::connection(self, socket)?.set_dscp(dscp),
        }
        Ok(())
    }

    fn open_datagram(&mut self, port: u16) -> Result<SocketId, SocketError> {
        let port = self.stack.open_datagram(self.program, port)?;
        Ok(self.table.add(Socket::Datagram(port)))
    }

    fn send_to(&mut self, socket: SocketId, to: SocketAddr, data: &[u8]) -> Result<bool, SocketError> {
        let Socket::Datagram(source_port) = self.table.get(socket)? else { return Err(SocketError::Closed) };
        let to = v4(to)?;
        let traffic_class = self.stack.datagram_dscp(source_port).traffic_class();
        let body = Body::Udp { source_port, destination_port: to.port(), data: data.into() };
        self.stack.send(*to.ip(), body, traffic_class)
    }

    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Option<Arrival>, SocketError> {
        let Socket::Datagram(port) = self.table.get(socket)? else { return Err(SocketError::Closed) };
        Ok(self.stack.take_datagram(port)?.map(|WaitingDatagram { from, data, at, traffic_class }| {
            let bytes = data.len().min(into.len());
            into[..bytes].copy_from_slice(&data[..bytes]);
            Arrival { bytes, from: from.into(), at, traffic_class }
        }))
    }

    fn open_echo(&mut self) -> Result<SocketId, SocketError> {
        let identifier = self.stack.open_echo(self.program);
        Ok(self.table.add(Socket::Echo(identifier)))
    }

    fn send_echo(&mut self, socket: SocketId, to: IpAddr, sequence: u16, data: &[u8]) -> Result<bool, SocketError> {
        let Socket::Echo(identifier) = self.table.get(socket)? else { return Err(SocketError::Closed) };
        let IpAddr::V4(to) = to else { return Err(SocketError::Unreachable) };
        self.stack.send(to, Body::Echo { reply: false, identifier, sequence, data: data.into() }, 0)
    }

    fn receive_echo(
        &mut self,
        socket: SocketId,
        into: &mut [u8],
    ) -> Result<Option<(u16, usize, Instant)>, SocketError> {
        let Socket::Echo(identifier) = self.table.get(socket)? else { return Err(SocketError::Closed) };
        let Some(echo) = self.stack.echoes.get_mut(&identifier) else { return Err(SocketError::Closed) };
        Ok(echo.waiting.pop_front().map(|(sequence, data, at)| {
            let count = data.len().min(into.len());
            into[..count].copy_from_slice(&data[..count]);
            (sequence, data.len(), at)
        }))
    }
}
