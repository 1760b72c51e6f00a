//! The sockets of one program, by their numbers.

use bentpipe_net::socket::{SocketError, SocketId};

/// The table itself.
#[derive(Debug, Default)]
pub struct SocketTable {
    sockets: Vec<Option<Socket>>,
    /// Connections that were worked on since the last flush.
    touched: Vec<usize>,
}

/// The target of a socket number: a connection's number, a port, an identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Socket {
    Tcp(usize),
    Listener(u16),
    Datagram(u16),
    Echo(u16),
}

impl SocketTable {
    /// A number for a socket.
    pub fn add(&mut self, socket: Socket) -> SocketId {
        self.sockets.push(Some(socket));
        SocketId(self.sockets.len() as u32 - 1)
    }

    #[inline]
    pub fn get(&self, socket: SocketId) -> Result<Socket, SocketError> {
        self.sockets.get(socket.0 as usize).copied().flatten().ok_or(SocketError::Closed)
    }

    #[inline]
    pub fn tcp(&self, socket: SocketId) -> Result<usize, SocketError> {
        match self.get(socket)? {
            Socket::Tcp(number) => Ok(number),
            _ => Err(SocketError::Closed),
        }
    }

    /// Forgets a socket.
    pub fn remove(&mut self, socket: SocketId) {
        self.sockets[socket.0 as usize] = None;
    }

    /// How many sockets there have been.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Connections that were worked on since the last call.
    #[inline]
    pub fn take_touched(&mut self, each: impl FnMut(usize)) {
        self.touched.iter().copied().for_each(each);
        self.touched.clear();
    }

    #[inline]
    pub fn touch(&mut self, number: usize) {
        if self.touched.last() != Some(&number) && !self.touched.contains(&number) {
            self.touched.push(number);
        }
    }
}
