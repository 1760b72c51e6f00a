//! UDP sockets of the kernel: what they are set to, and one datagram with what the kernel says of it.

use bentpipe_net::dscp::Dscp;
use socket2::{SockAddr, Socket};
use std::io;
use std::os::fd::AsRawFd;

/// ICMP messages that are dropped at once; the kernel's limit is the receive buffer.
const ERRORS_MAX: usize = 1024;
/// Room for the control messages asked for: a stamp and an octet, each with its header.
const CONTROL_WORDS: usize = 16;

/// A datagram's data are in the caller's buffer.
pub(crate) struct Datagram {
    pub bytes: usize,
    pub from: SockAddr,
    /// Real time, in nanoseconds since 1970; `None`: the socket does not stamp.
    pub stamp: Option<u64>,
    pub traffic_class: u8,
}

/// Buffers of so many bytes, and ICMP messages as errors of the socket (ip(7)).
pub(crate) fn prepare(socket: &Socket, buffer: usize) {
    set_buffers(socket, buffer);
    set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1);
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1);
}

/// Buffers of so many bytes each way.
pub(crate) fn set_buffers(socket: &Socket, buffer: usize) {
    // The limits of ordinary users; with the right to, beyond them.
    let _ = socket.set_recv_buffer_size(buffer);
    let _ = socket.set_send_buffer_size(buffer);
    let buffer = buffer as libc::c_int;
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, buffer);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, buffer);
}

/// Each datagram comes with its stamp and its traffic class.
pub(crate) fn describe_arrivals(socket: &Socket) {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
}

/// Marks what is sent from now on. The kernel leaves ECN's bits of a connection as they are (ip(7)).
pub(crate) fn set_dscp(socket: &Socket, dscp: Dscp) -> io::Result<()> {
    socket.set_tos_v4(u32::from(dscp.traffic_class()))
}

/// Sets an option; an error shows in what the socket then does.
pub(crate) fn set(socket: &Socket, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
    // SAFETY: the kernel reads four bytes of a live integer.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
}

/// Receives one datagram.
pub(crate) fn receive(socket: &Socket, into: &mut [u8]) -> io::Result<Datagram> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut datagram = (0, None, 0);
    // SAFETY: an all-zero msghdr is valid; every pointer set lives through the call; control messages are read only as far
    // as the kernel says it wrote, by its own macros; the kernel writes a socket address and its length.
    let (_, from) = unsafe {
        SockAddr::try_init(|address, length| {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_name = address.cast();
            message.msg_namelen = *length;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let n = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
            if n < 0 {
                return Err(io::Error::last_os_error());
            }
            *length = message.msg_namelen;
            datagram.0 = n as usize;
            let mut next = libc::CMSG_FIRSTHDR(&raw const message);
            while !next.is_null() {
                let data = libc::CMSG_DATA(next);
                match ((*next).cmsg_level, (*next).cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let time = std::ptr::read_unaligned(data.cast::<libc::timespec>());
                        datagram.1 = Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
                    }
                    (libc::IPPROTO_IP, libc::IP_TOS) => datagram.2 = *data,
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(&raw const message, next);
            }
            Ok(())
        })
    }?;
    let (bytes, stamp, traffic_class) = datagram;
    Ok(Datagram { bytes, from, stamp, traffic_class })
}

/// Empties the queue of ICMP messages (`MSG_ERRQUEUE` of recvmsg(2)), whose first has been reported as the socket's error.
pub(crate) fn drain_errors(socket: &Socket) {
    const FLAGS: libc::c_int = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let mut byte = 0u8;
    for _ in 0..ERRORS_MAX {
        // SAFETY: the kernel writes at most one byte of a live integer.
        let read = unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, FLAGS) };
        if read < 0 {
            return;
        }
    }
}
