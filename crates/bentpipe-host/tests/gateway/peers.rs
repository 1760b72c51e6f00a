//! What a client and a server see of each other, whatever stands between them, and how their namespaces are joined. The tests
//! of the interception (`bentpipe-host/tests/gateway.rs`) and of the daemons (`bentpipe/tests/gateway`) both use it.

use bentpipe_host::gateway::rights::lend;
use bentpipe_host::namespace::Namespace;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

pub const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// A test waits at most so long for what must happen.
pub const WAIT: Duration = Duration::from_secs(20);

/// The two ends of a connection: the client's and the server's.
pub type ConnectionPair = (TcpStream, TcpStream);

/// Runs `ip` in the calling thread's namespace.
pub fn ip(arguments: &str) -> io::Result<()> {
    let output = lend(Command::new("ip").args(arguments.split(' ')).env("PATH", PATH)).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

/// Joins the calling thread's namespace to another. The other is standard input: a program with fewer rights may not look
/// into our descriptors.
pub fn add_veth(name: &str, peer: &str, other: &Namespace) -> io::Result<()> {
    let arguments = format!("link add {name} type veth peer name {peer} netns /proc/self/fd/0");
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).env("PATH", PATH).stdin(other.as_fd().try_clone_to_owned()?);
    match lend(&mut command).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments}"))),
    }
}

pub fn socket_address(address: &str, port: u16) -> SocketAddr {
    SocketAddr::from((address.parse::<IpAddr>().unwrap(), port))
}

pub fn listen(site: &Namespace, address: &str, port: u16) -> TcpListener {
    site.run(|| TcpListener::bind(socket_address(address, port))).unwrap()
}

pub fn connect(site: &Namespace, address: &str, port: u16) -> io::Result<TcpStream> {
    let connect = || {
        let stream = TcpStream::connect_timeout(&socket_address(address, port), WAIT)?;
        stream.set_read_timeout(Some(WAIT))?;
        Ok(stream)
    };
    // An error of the work itself is the caller's.
    site.run(|| Ok(connect())).unwrap()
}

/// The first byte of each of `words` numbers tells little of the others.
fn words(words: u32) -> Vec<u8> {
    (0..words).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// Every byte arrives, then the end; `first` (the client or the server) ends its direction before the other begins.
pub fn every_byte_in_both_directions((near, far): ConnectionPair, count: u32, client_first: bool) {
    let (mut first, mut second) = if client_first { (near, far) } else { (far, near) };
    for end in [&first, &second] {
        end.set_read_timeout(Some(WAIT)).unwrap();
    }
    let data = words(count);
    let sent = data.clone();
    let one_way = std::thread::spawn(move || {
        first.write_all(&sent).unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        first.read_to_end(&mut answer).unwrap();
        answer
    });
    let mut received = Vec::new();
    second.read_to_end(&mut received).unwrap();
    assert!(received == data, "to the one that ends last, client first: {client_first}");
    // The first direction has ended; the other has not.
    second.write_all(&data).unwrap();
    drop(second);
    assert!(one_way.join().unwrap() == data, "to the one that ends first, client first: {client_first}");
}

/// What one end resets, the other sees reset.
pub fn a_reset_is_a_reset((near, far): ConnectionPair, by_client: bool) {
    far.set_read_timeout(Some(WAIT)).unwrap();
    let (gone, mut left) = if by_client { (near, far) } else { (far, near) };
    SockRef::from(&gone).set_linger(Some(Duration::ZERO)).unwrap();
    drop(gone);
    assert_eq!(left.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset, "by client: {by_client}");
}

/// An urgent byte (RFC 9293 §3.8.5) among others is urgent at the other end, too.
pub fn an_urgent_byte_arrives((mut from, mut to): ConnectionPair) {
    from.write_all(b"plain").unwrap();
    SockRef::from(&from).send_out_of_band(b"!").unwrap();
    let mut seen = [0; 5];
    to.set_read_timeout(Some(WAIT)).unwrap();
    to.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"plain");
    let mut urgent = [std::mem::MaybeUninit::uninit()];
    let deadline = Instant::now() + WAIT;
    while SockRef::from(&to).recv_out_of_band(&mut urgent).is_err() {
        assert!(Instant::now() < deadline, "no urgent byte came");
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: the call that succeeded wrote one byte.
    assert_eq!(unsafe { urgent[0].assume_init() }, b'!');
    // Those behind it are plain again.
    from.write_all(b"after").unwrap();
    to.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"after");
}

/// The traffic class that the server sees in the SYN of a client that connects with `class`, and the ends.
pub fn class_of_syn(client: &Namespace, listener: &TcpListener, class: u8) -> (u8, (Socket, TcpStream)) {
    let (on, size) = (1 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    let option = (&raw const on).cast();
    // SAFETY: the kernel reads four bytes of a live integer.
    let kept = unsafe { libc::setsockopt(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, option, size) };
    assert_eq!(kept, 0);
    let to = listener.local_addr().unwrap();
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        match to {
            SocketAddr::V4(_) => socket.set_tos_v4(class.into())?,
            SocketAddr::V6(_) => socket.set_tclass_v6(class.into())?,
        }
        socket.connect_timeout(&to.into(), WAIT)?;
        Ok(socket)
    };
    let near = client.run(connect).unwrap();
    let far = listener.accept().unwrap().0;
    let mut header = [0u8; 120];
    let mut length = header.len() as libc::socklen_t;
    let into = header.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `length` bytes to a live array.
    let saved =
        unsafe { libc::getsockopt(far.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_SAVED_SYN, into, &raw mut length) };
    assert_eq!(saved, 0);
    // RFC 791 §3.1 and RFC 8200 §3.
    let seen = if to.is_ipv4() { header[1] } else { header[0] << 4 | header[1] >> 4 };
    (seen, (near, far))
}
