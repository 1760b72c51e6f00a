//! Kernel sockets of relayed connections, and of the pair.

use super::firewall::Marks;
use crate::sockets::{error_of, new_socket};
use bentpipe_net::socket::SocketError;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;

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
