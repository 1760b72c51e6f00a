//! Kernel sockets as the workloads see them: [`bentpipe_link::socket::Sockets`] over non-blocking descriptors, watched by
//! an edge-triggered epoll.

use crate::clock::Clock;
use bentpipe_link::socket::{
    Connection, Received, ReceivedPattern, SocketError, SocketId, Sockets, count_wrong, fill_pattern,
};
use bentpipe_link::time::Instant;
use rustix::event::epoll;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Bytes of pattern made or compared at once.
const PATTERN_CHUNK: usize = 256 << 10;

/// The sockets of one program.
pub struct ProgramSockets {
    /// Number of the program, the high half of epoll's data.
    program: u32,
    open: BTreeMap<SocketId, Entry>,
    next: u32,
}

struct Entry {
    socket: Socket,
    /// The error that ended it, kept because the kernel tells it only once.
    error: Option<SocketError>,
    connected: bool,
}

impl ProgramSockets {
    /// No sockets yet.
    #[must_use]
    pub fn new(program: u32) -> ProgramSockets {
        ProgramSockets { program, open: BTreeMap::new(), next: 0 }
    }
}

/// A program's sockets during one poll, with what all programs of a site share.
pub struct SocketsView<'a> {
    /// The program's own.
    pub own: &'a mut ProgramSockets,
    /// Tells which sockets changed.
    pub epoll: &'a OwnedFd,
    /// Model time.
    pub clock: Clock,
    /// Scratch space for patterns, [`PATTERN_CHUNK`] bytes.
    pub scratch: &'a mut Vec<u8>,
}

impl SocketsView<'_> {
    fn add(&mut self, socket: Socket, connected: bool) -> Result<SocketId, SocketError> {
        let id = SocketId(self.own.next);
        self.own.next += 1;
        let data = epoll::EventData::new_u64(u64::from(self.own.program) << 32 | u64::from(id.0));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(self.epoll, socket.as_fd(), data, flags).map_err(|e| error_of(&e.into()))?;
        self.own.open.insert(id, Entry { socket, error: None, connected });
        Ok(id)
    }

    fn entry(&mut self, id: SocketId) -> Result<&mut Entry, SocketError> {
        let entry = self.own.open.get_mut(&id).ok_or(SocketError::Closed)?;
        if entry.error.is_none()
            && let Ok(Some(error)) = entry.socket.take_error()
        {
            entry.error = Some(error_of(&error));
        }
        Ok(entry)
    }
}

impl Entry {
    /// Notes a failed call; `None` when it would only have blocked.
    fn failed(&mut self, error: &io::Error) -> Option<SocketError> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => None,
            io::ErrorKind::NotConnected if !self.connected => None,
            _ => Some(*self.error.get_or_insert(error_of(error))),
        }
    }
}

fn error_of(error: &io::Error) -> SocketError {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => SocketError::Refused,
        Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => SocketError::Reset,
        Some(libc::ETIMEDOUT) => SocketError::TimedOut,
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN) => SocketError::Unreachable,
        Some(libc::EADDRINUSE) => SocketError::AddressInUse,
        Some(libc::EACCES | libc::EPERM) => SocketError::Denied,
        Some(code) => SocketError::Other(code),
        None => SocketError::Other(0),
    }
}

fn new_socket(domain: Domain, kind: Type, protocol: Option<Protocol>) -> Result<Socket, SocketError> {
    Socket::new(domain, kind.nonblocking().cloexec(), protocol).map_err(|e| error_of(&e))
}

/// Views bytes as what socket2 writes into. Sound because the kernel only ever writes.
fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: u8 and MaybeUninit<u8> have the same layout, and recv never writes uninitialised bytes.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}

impl Sockets for SocketsView<'_> {
    fn connect(&mut self, to: SocketAddr) -> Result<SocketId, SocketError> {
        let socket = new_socket(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        match socket.connect(&SockAddr::from(to)) {
            Ok(()) => self.add(socket, true),
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => self.add(socket, false),
            Err(error) => Err(error_of(&error)),
        }
    }

    fn connection(&mut self, socket: SocketId) -> Result<Connection, SocketError> {
        let entry = self.entry(socket)?;
        if let Some(error) = entry.error {
            return Err(error);
        }
        if !entry.connected {
            entry.connected = entry.socket.peer_addr().is_ok();
        }
        Ok(if entry.connected { Connection::Open } else { Connection::Opening })
    }

    fn listen(&mut self, port: u16) -> Result<SocketId, SocketError> {
        let socket = new_socket(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        let listen = || {
            socket.set_reuse_address(true)?;
            socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))))?;
            socket.listen(BACKLOG)
        };
        listen().map_err(|e| error_of(&e))?;
        self.add(socket, true)
    }

    fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, SocketError> {
        let accepted = self.entry(listener)?.socket.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        match accepted {
            Ok((socket, _)) => self.add(socket, true).map(Some),
            // A connection that ended before it was taken is no fault of the listener.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED | libc::EPROTO)
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error_of(&error)),
        }
    }

    fn local_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        let address = self.entry(socket)?.socket.local_addr().map_err(|e| error_of(&e))?;
        address.as_socket().ok_or(SocketError::Closed)
    }

    fn peer_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        let address = self.entry(socket)?.socket.peer_addr().map_err(|e| error_of(&e))?;
        address.as_socket().ok_or(SocketError::Closed)
    }

    fn send(&mut self, socket: SocketId, data: &[u8]) -> Result<usize, SocketError> {
        let entry = self.entry(socket)?;
        match entry.socket.send_with_flags(data, libc::MSG_NOSIGNAL) {
            Ok(n) => Ok(n),
            Err(error) => entry.failed(&error).map_or(Ok(0), Err),
        }
    }

    fn send_pattern(&mut self, socket: SocketId, pattern: u64, offset: u64, length: u64) -> Result<u64, SocketError> {
        let mut sent = 0;
        while sent < length {
            let chunk = usize::try_from(length - sent).unwrap_or(PATTERN_CHUNK).min(PATTERN_CHUNK);
            let mut scratch = std::mem::take(self.scratch);
            scratch.resize(PATTERN_CHUNK, 0);
            fill_pattern(pattern, offset + sent, &mut scratch[..chunk]);
            let taken = self.send(socket, &scratch[..chunk]);
            *self.scratch = scratch;
            // What was taken before an error was still sent; the next call tells of the error.
            let taken = match taken {
                Err(_) if sent > 0 => return Ok(sent),
                other => other?,
            };
            sent += taken as u64;
            if taken < chunk {
                break;
            }
        }
        Ok(sent)
    }

    fn receive(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Received, SocketError> {
        // An error does not hide what arrived before it: ask the socket first.
        let entry = self.own.open.get_mut(&socket).ok_or(SocketError::Closed)?;
        match (entry.socket.recv(as_uninit(into)), entry.error) {
            (Ok(n), _) if n > 0 => Ok(Received::Bytes(n)),
            (_, Some(error)) => Err(error),
            (Ok(_), None) => Ok(Received::End),
            (Err(error), None) => entry.failed(&error).map_or(Ok(Received::Nothing), Err),
        }
    }

    fn receive_pattern(
        &mut self,
        socket: SocketId,
        pattern: u64,
        offset: u64,
        max: u64,
    ) -> Result<ReceivedPattern, SocketError> {
        let mut scratch = std::mem::take(self.scratch);
        scratch.resize(PATTERN_CHUNK, 0);
        let chunk = usize::try_from(max).unwrap_or(PATTERN_CHUNK).min(PATTERN_CHUNK);
        let received = self.receive(socket, &mut scratch[..chunk]).map(|received| match received {
            Received::Bytes(n) => {
                ReceivedPattern::Bytes { bytes: n as u64, wrong: count_wrong(pattern, offset, &scratch[..n]) }
            }
            Received::Nothing => ReceivedPattern::Nothing,
            Received::End => ReceivedPattern::End,
        });
        *self.scratch = scratch;
        received
    }

    fn finish(&mut self, socket: SocketId) {
        if let Some(entry) = self.own.open.get(&socket) {
            // Fails only when the connection is gone already, which receive() tells.
            let _ = entry.socket.shutdown(std::net::Shutdown::Write);
        }
    }

    fn close(&mut self, socket: SocketId) {
        self.own.open.remove(&socket);
    }

    fn abort(&mut self, socket: SocketId) {
        if let Some(entry) = self.own.open.remove(&socket) {
            // Lingering for no time makes close() send a reset.
            let _ = entry.socket.set_linger(Some(std::time::Duration::ZERO));
        }
    }

    fn open_datagram(&mut self, port: u16) -> Result<SocketId, SocketError> {
        let socket = new_socket(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        let address = SockAddr::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
        socket.bind(&address).map_err(|e| error_of(&e))?;
        self.add(socket, true)
    }

    fn send_to(&mut self, socket: SocketId, to: SocketAddr, data: &[u8]) -> Result<bool, SocketError> {
        let entry = self.entry(socket)?;
        match entry.socket.send_to_with_flags(data, &SockAddr::from(to), libc::MSG_NOSIGNAL) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(false),
            Err(error) => entry.failed(&error).map_or(Ok(false), Err),
        }
    }

    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Option<(usize, SocketAddr)>, SocketError> {
        let entry = self.entry(socket)?;
        match entry.socket.recv_from(as_uninit(into)) {
            Ok((n, from)) => Ok(from.as_socket().map(|from| (n, from))),
            Err(error) => entry.failed(&error).map_or(Ok(None), Err),
        }
    }

    fn open_echo(&mut self) -> Result<SocketId, SocketError> {
        let socket = new_socket(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))?;
        let on: libc::c_int = 1;
        // SAFETY: the kernel reads four bytes of a live integer.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPNS,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        self.add(socket, true)
    }

    fn send_echo(&mut self, socket: SocketId, to: IpAddr, sequence: u16, data: &[u8]) -> Result<bool, SocketError> {
        // Type 8, code 0; the kernel fills in checksum and identifier (RFC 792).
        let mut message = vec![8, 0, 0, 0, 0, 0];
        message.extend(sequence.to_be_bytes());
        message.extend_from_slice(data);
        self.send_to(socket, SocketAddr::new(to, 0), &message)
    }

    fn receive_echo(
        &mut self,
        socket: SocketId,
        into: &mut [u8],
    ) -> Result<Option<(u16, usize, Instant)>, SocketError> {
        let clock = self.clock;
        let entry = self.entry(socket)?;
        loop {
            let (header, n, stamp) = match receive_stamped(&entry.socket, into) {
                Ok(received) => received,
                Err(error) => return entry.failed(&error).map_or(Ok(None), Err),
            };
            // Type 0: a reply.
            if header[0] == 0 {
                let at = stamp.map_or_else(|| clock.now(), |real| clock.at_real(real));
                return Ok(Some((u16::from_be_bytes([header[6], header[7]]), n, at)));
            }
        }
    }
}

/// Receives an ICMP message: its eight-byte header, the rest into `into`, and the kernel's stamp.
fn receive_stamped(socket: &Socket, into: &mut [u8]) -> io::Result<([u8; 8], usize, Option<u64>)> {
    let mut header = [0u8; 8];
    let mut control = [0u64; 8];
    let mut parts = [
        libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
        libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() },
    ];
    // SAFETY: an all-zero msghdr is valid; every pointer set lives through the call; the control message is read only as
    // far as the kernel says it wrote.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let n = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        let stamp = if !first.is_null() && (*first).cmsg_type == libc::SCM_TIMESTAMPNS {
            let time = std::ptr::read_unaligned(libc::CMSG_DATA(first).cast::<libc::timespec>());
            Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
        } else {
            None
        };
        Ok((header, (n as usize).saturating_sub(header.len()), stamp))
    }
}
