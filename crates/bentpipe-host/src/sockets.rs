//! Kernel sockets as programs see them: [`bentpipe_net::socket::Sockets`] over non-blocking descriptors, watched by an
//! edge-triggered epoll.

use crate::clock::Clock;
use crate::datagram;
use bentpipe_net::socket::{
    Arrival, Connection, Received, ReceivedPattern, Segments, SocketError, SocketId, SocketOption, Sockets,
    count_wrong, fill_pattern,
};
use bentpipe_net::time::Instant;
use rustix::event::epoll;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Bytes of pattern made or compared at once.
const PATTERN_CHUNK: usize = 256 << 10;
/// Of a UDP or echo socket: a program that is kept waiting for a moment must lose nothing.
const DATAGRAM_BUFFER: usize = 4 << 20;

/// The sockets of one program.
pub struct ProgramSockets {
    /// Number of the program, the high half of epoll's data.
    program: u32,
    pub(crate) open: BTreeMap<SocketId, Entry>,
    /// The next call to receive finds nothing here: a byte that arrives after the urgent mark was
    /// polled may be urgent itself, and waits for the next poll.
    pub(crate) found_empty: Option<SocketId>,
    next: u32,
}

/// One socket.
pub(crate) struct Entry {
    /// `None`: the kernel has none yet (a client's handshake or a name's lookup is under way).
    pub socket: Option<Socket>,
    /// The error that ended it, kept because the kernel reports it only once; of a datagram socket, the one that is to be
    /// reported next.
    pub error: Option<SocketError>,
    pub connected: bool,
}

impl ProgramSockets {
    /// No sockets yet.
    #[must_use]
    pub fn new(program: u32) -> ProgramSockets {
        ProgramSockets { program, open: BTreeMap::new(), found_empty: None, next: 0 }
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
    /// Scratch space for patterns, `PATTERN_CHUNK` bytes.
    pub scratch: &'a mut Vec<u8>,
}

impl SocketsView<'_> {
    pub(crate) fn add(&mut self, socket: Socket, connected: bool) -> Result<SocketId, SocketError> {
        let id = self.reserve();
        self.attach(id, socket, connected).inspect_err(|_| self.close(id))?;
        Ok(id)
    }

    /// A socket that the kernel does not have yet.
    pub(crate) fn reserve(&mut self) -> SocketId {
        let id = SocketId(self.own.next);
        self.own.next = self.own.next.wrapping_add(1);
        self.own.open.insert(id, Entry { socket: None, error: None, connected: false });
        id
    }

    /// Puts the kernel's socket behind a reserved one.
    pub(crate) fn attach(&mut self, id: SocketId, socket: Socket, connected: bool) -> Result<(), SocketError> {
        let data = epoll::EventData::new_u64(u64::from(self.own.program) << 32 | u64::from(id.0));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(self.epoll, socket.as_fd(), data, flags).map_err(|e| error_of(&e.into()))?;
        let entry = self.own.open.get_mut(&id).ok_or(SocketError::Closed)?;
        entry.socket = Some(socket);
        entry.connected = connected;
        Ok(())
    }

    pub(crate) fn entry(&mut self, id: SocketId) -> Result<&mut Entry, SocketError> {
        let entry = self.own.open.get_mut(&id).ok_or(SocketError::Closed)?;
        if entry.error.is_none()
            && let Some(socket) = &entry.socket
            && let Ok(Some(error)) = socket.take_error()
        {
            entry.error = Some(error_of(&error));
        }
        Ok(entry)
    }

    /// The kernel's socket behind `id`.
    pub(crate) fn kernel(&mut self, id: SocketId) -> Result<&Socket, SocketError> {
        self.own.open.get(&id).and_then(|entry| entry.socket.as_ref()).ok_or(SocketError::Closed)
    }

    /// Listens at `address`; `prepare` sets what accepted connections inherit.
    pub(crate) fn listen_at(
        &mut self,
        address: SocketAddr,
        prepare: impl FnOnce(&Socket),
    ) -> Result<SocketId, SocketError> {
        let socket = bound(address, Type::STREAM, Protocol::TCP)?;
        prepare(&socket);
        socket.listen(BACKLOG).map_err(|e| error_of(&e))?;
        self.add(socket, true)
    }
}

/// A socket that is bound to `address`. All addresses of IPv6 are those of IPv4 too.
pub(crate) fn bound(address: SocketAddr, kind: Type, protocol: Protocol) -> Result<Socket, SocketError> {
    let socket = new_socket(Domain::for_address(address), kind, Some(protocol))?;
    let bind = || {
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        if kind == Type::STREAM {
            socket.set_reuse_address(true)?;
        }
        socket.bind(&SockAddr::from(address))
    };
    bind().map(|()| socket).map_err(|e| error_of(&e))
}

/// All IPv4 addresses of this host.
fn any(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
}

/// The IPv4 address inside an IPv4-mapped one (RFC 4291 §2.5.5.2).
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Entry {
    /// Notes a failed call; `None` when it would only have blocked.
    pub(crate) fn failed(&mut self, error: &io::Error) -> Option<SocketError> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => None,
            io::ErrorKind::NotConnected if !self.connected => None,
            _ => Some(*self.error.get_or_insert(error_of(error))),
        }
    }
}

/// Bytes that the peer has not acknowledged (`SIOCOUTQ` of tcp(7)): 0 for a connection that is gone.
pub(crate) fn bytes_unacknowledged(connection: BorrowedFd<'_>) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int.
    let result = unsafe { libc::ioctl(connection.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 { 0 } else { u64::try_from(bytes).unwrap_or(0) }
}

/// What `struct tcp_info` (linux/tcp.h) counts; the numbers are its offsets of `tcpi_segs_out` and `tcpi_segs_in`, which it has
/// had since Linux 4.2.
fn segments_of(connection: &Socket) -> io::Result<Segments> {
    let mut info = [0u8; 144];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of a live array.
    let result = unsafe {
        let into = info.as_mut_ptr().cast();
        libc::getsockopt(connection.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let at = |offset: usize| info[offset..].first_chunk().map_or(0, |bytes| u64::from(u32::from_ne_bytes(*bytes)));
    Ok(Segments { sent: at(136), received: at(140) })
}

pub(crate) fn error_of(error: &io::Error) -> SocketError {
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

pub(crate) fn new_socket(domain: Domain, kind: Type, protocol: Option<Protocol>) -> Result<Socket, SocketError> {
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
            entry.connected = entry.socket.as_ref().is_some_and(|socket| socket.peer_addr().is_ok());
        }
        Ok(if entry.connected { Connection::Open } else { Connection::Opening })
    }

    fn listen(&mut self, port: u16) -> Result<SocketId, SocketError> {
        self.listen_at(any(port), |_| {})
    }

    fn accept(&mut self, listener: SocketId) -> Result<Option<SocketId>, SocketError> {
        match self.kernel(listener)?.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
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
        let address = self.kernel(socket)?.local_addr().map_err(|e| error_of(&e))?;
        address.as_socket().map(canonical).ok_or(SocketError::Closed)
    }

    fn peer_address(&mut self, socket: SocketId) -> Result<SocketAddr, SocketError> {
        let address = self.kernel(socket)?.peer_addr().map_err(|e| error_of(&e))?;
        address.as_socket().map(canonical).ok_or(SocketError::Closed)
    }

    fn send(&mut self, socket: SocketId, data: &[u8]) -> Result<usize, SocketError> {
        let entry = self.entry(socket)?;
        let Some(kernel) = &entry.socket else { return entry.error.map_or(Ok(0), Err) };
        match kernel.send_with_flags(data, libc::MSG_NOSIGNAL) {
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
        let Some(kernel) = &entry.socket else { return entry.error.map_or(Ok(Received::Nothing), Err) };
        if self.own.found_empty.take() == Some(socket) {
            return Ok(Received::Nothing);
        }
        match (kernel.recv(as_uninit(into)), entry.error) {
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
                let wrong = count_wrong(pattern, offset, &scratch[..n]);
                ReceivedPattern::Bytes { bytes: n as u64, wrong, more: true }
            }
            Received::Nothing => ReceivedPattern::Nothing,
            Received::End => ReceivedPattern::End,
        });
        *self.scratch = scratch;
        received
    }

    fn finish(&mut self, socket: SocketId) {
        if let Ok(kernel) = self.kernel(socket) {
            // Fails only when the connection is gone already, which receive() tells.
            let _ = kernel.shutdown(std::net::Shutdown::Write);
        }
    }

    fn close(&mut self, socket: SocketId) {
        self.own.open.remove(&socket);
    }

    fn abort(&mut self, socket: SocketId) {
        if let Ok(kernel) = self.kernel(socket) {
            // Lingering for no time makes close() send a reset.
            let _ = kernel.set_linger(Some(std::time::Duration::ZERO));
        }
        self.own.open.remove(&socket);
    }

    fn segments(&mut self, socket: SocketId) -> Result<Segments, SocketError> {
        segments_of(self.kernel(socket)?).map_err(|e| error_of(&e))
    }

    fn set_option(&mut self, socket: SocketId, option: SocketOption) -> Result<(), SocketError> {
        let kernel = self.kernel(socket)?;
        let set = match option {
            SocketOption::NoDelay => kernel.set_tcp_nodelay(true),
            SocketOption::Dscp(dscp) => datagram::set_dscp(kernel, dscp),
        };
        set.map_err(|e| error_of(&e))
    }

    fn open_datagram(&mut self, port: u16) -> Result<SocketId, SocketError> {
        let socket = bound(any(port), Type::DGRAM, Protocol::UDP)?;
        datagram::prepare(&socket, DATAGRAM_BUFFER);
        datagram::describe_arrivals(&socket);
        self.add(socket, true)
    }

    fn send_to(&mut self, socket: SocketId, to: SocketAddr, data: &[u8]) -> Result<bool, SocketError> {
        let entry = self.own.open.get_mut(&socket).ok_or(SocketError::Closed)?;
        let Some(kernel) = &entry.socket else { return Err(SocketError::Closed) };
        let to = SockAddr::from(to);
        let mut earlier = None;
        loop {
            let Err(error) = kernel.send_to_with_flags(data, &to, libc::MSG_NOSIGNAL) else {
                entry.error = entry.error.or(earlier);
                return Ok(true);
            };
            match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR) => return Ok(false),
                // It may be ICMP's about an earlier datagram, which the kernel reports once; this one was not sent.
                _ if earlier.is_none() => {
                    datagram::drain_errors(kernel);
                    earlier = Some(error_of(&error));
                }
                _ => return Err(error_of(&error)),
            }
        }
    }

    fn receive_from(&mut self, socket: SocketId, into: &mut [u8]) -> Result<Option<Arrival>, SocketError> {
        let entry = self.own.open.get_mut(&socket).ok_or(SocketError::Closed)?;
        if let Some(error) = entry.error.take() {
            return Err(error);
        }
        let Some(kernel) = &entry.socket else { return Err(SocketError::Closed) };
        match datagram::receive(kernel, into) {
            Ok(datagram) => {
                let at = datagram.stamp.map_or_else(|| self.clock.now(), |stamp| self.clock.at_real(stamp));
                Ok(datagram.from.as_socket().map(|from| Arrival {
                    bytes: datagram.bytes,
                    from: canonical(from),
                    at,
                    traffic_class: datagram.traffic_class,
                }))
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(None),
            Err(error) => {
                datagram::drain_errors(kernel);
                Err(error_of(&error))
            }
        }
    }

    fn open_echo(&mut self) -> Result<SocketId, SocketError> {
        let socket = new_socket(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))?;
        datagram::set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
        // Replies wait there while a busy machine does not run the program: the link would seem to lose them.
        datagram::set_buffers(&socket, DATAGRAM_BUFFER);
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
        let Some(kernel) = &entry.socket else { return Err(SocketError::Closed) };
        loop {
            let (header, n, stamp) = match receive_stamped(kernel, into) {
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
