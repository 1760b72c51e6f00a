//! Tells systemd how far a service is (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Connections are captured.
pub const READY: &str = "READY=1";
/// No new connections are taken.
pub const STOPPING: &str = "STOPPING=1";

/// Sends `state`, if a service manager wants to know.
pub fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.as_encoded_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::new(&*String::from_utf8_lossy(name))),
    };
    // Whoever asked has gone, or gave no address: the gateway works all the same.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
