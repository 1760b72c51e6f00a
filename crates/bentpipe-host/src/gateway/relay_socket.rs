//! Kernel sockets of relayed connections, and of the pair.

use super::firewall::Marks;
use crate::sockets::{error_of, new_socket};
use bentpipe_net::socket::SocketError;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

/// Of the pair's UDP socket: a quarter of a second at 128 Mbit/s. The kernel gives what net.core.rmem_max allows.
const PAIR_BUFFER: usize = 4 << 20;

/// ICMP messages that are dropped at once; the kernel's limit is the receive buffer.
const ERRORS_MAX: usize = 1024;

/// Sets what a relayed connection needs: bytes go on as they come, urgent ones in their place (RFC 6093 §3.2), a peer that
/// has vanished is noticed in the end (the kernel's keep-alive), and packets carry the DSCP of `traffic_class`; the ECN bits
/// are TCP's own. Lingering for no time makes the kernel send a reset when this process dies, not the end of a stream that
/// was cut short; closing in order takes it back.
pub(super) fn prepare_for_relay(socket: &Socket, traffic_class: Option<u8>) {
    const DSCP: u8 = 0xfc;
    // None of these is vital: a socket that has ended meanwhile refuses them.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_out_of_band_inline(true);
    let _ = socket.set_keepalive(true);
    let _ = socket.set_linger(Some(std::time::Duration::ZERO));
    let class = u32::from(traffic_class.unwrap_or(0) & DSCP);
    if class != 0 {
        // An IPv6 socket may carry IPv4.
        let _ = socket.set_tclass_v6(class);
        let _ = socket.set_tos_v4(class);
    }
}

/// The socket may have an address that is not this host's; the firewall knows it by its mark.
pub(super) fn set_transparent(socket: &Socket, address: SocketAddr, marks: Marks) -> io::Result<()> {
    socket.set_mark(marks.relayed)?;
    if address.is_ipv4() { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) }
}

/// Starts a connection, in the name of a client if one is given; `true`: it is open already.
pub(super) fn begin(
    client: Option<(SocketAddr, Marks)>,
    to: SocketAddr,
    traffic_class: u8,
) -> Result<(Socket, bool), SocketError> {
    let socket = new_socket(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    prepare_for_relay(&socket, Some(traffic_class));
    let connect = || {
        if let Some((client, marks)) = client {
            set_transparent(&socket, client, marks)?;
            socket.set_reuse_address(true)?;
            socket.bind(&client.into())?;
        }
        socket.connect(&SockAddr::from(to))
    };
    match connect() {
        Ok(()) => Ok((socket, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error_of(&error)),
    }
}

/// Prepares the UDP socket of the pair: for bursts, and for what ICMP says.
pub(super) fn prepare_pair(socket: &Socket) {
    // The limits of ordinary users; with the right to, beyond them.
    let _ = socket.set_recv_buffer_size(PAIR_BUFFER);
    let _ = socket.set_send_buffer_size(PAIR_BUFFER);
    let size = PAIR_BUFFER as libc::c_int;
    for (level, option, size) in [
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size),
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size),
        // ICMP messages are errors of the socket (ip(7)): they explain why there is no connection.
        (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
    ] {
        // SAFETY: the kernel reads four bytes of a live integer.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                option,
                (&raw const size).cast(),
                size_of_val(&size) as libc::socklen_t,
            )
        };
    }
}

/// Empties the queue of ICMP messages (`MSG_ERRQUEUE` of recvmsg(2)), whose first has been reported as the socket's error.
pub(super) fn drain_errors(socket: &Socket) {
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
