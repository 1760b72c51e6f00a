//! TCP between the link and the Internet: the hub's kernel ends the terminals' connections, and each is continued from
//! the machine by a connection of its own. So the hub's TCP, as the scenario set it, faces the link.
//!
//! A firewall rule of the hub (`tproxy`) hands every connection of a terminal to one listening socket, which keeps the
//! address that was asked for. The kernel answers before the far side has: a refusal arrives as a reset after the opening.

use super::InternetError;
use crate::emulation::Emulation;
use crate::sockets::bytes_unacknowledged;
use crate::spawn::{CommandSpec, Output};
use bentpipe_net::topology::{SEGMENT_PREFIX, network};
use parking_lot::Mutex;
use socket2::{Domain, SockRef, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The listening socket and the connections behind it.
#[derive(Debug)]
pub(super) struct TcpExit {
    listener: TcpListener,
    connections: Arc<Connections>,
    thread: Option<JoinHandle<()>>,
}

/// As long as the kernel's own six repetitions of a SYN (1 + 2 + 4 + … + 64 s, tcp_syn_retries).
const CONNECT_LIMIT: Duration = Duration::from_secs(127);
const BACKLOG: i32 = 1024;
/// A link may be silent for this long before what it has not carried is given up.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// A terminal whose connections are taken.
pub(super) struct Intercepted {
    pub address: Ipv4Addr,
    /// Its largest packet on the link.
    pub mtu: u64,
}

/// Starts to take the terminals' connections at the hub. `translate` says where each is continued; `None`: it is refused.
pub(super) fn start(
    emulation: &Emulation,
    hub: usize,
    terminals: &[Intercepted],
    translate: impl Fn(SocketAddrV4) -> Option<SocketAddrV4> + Send + Sync + 'static,
) -> Result<TcpExit, InternetError> {
    let listener = emulation.namespace(hub).run(listen)?;
    let port = listener.local_addr().map_err(InternetError::Start)?.port();
    intercept(emulation, hub, terminals, port)?;
    let connections = Arc::new(Connections::default());
    let accepting = listener.try_clone().map_err(InternetError::Start)?;
    let accepted = connections.clone();
    let thread = std::thread::Builder::new()
        .name("internet".into())
        .spawn(move || accept(&accepting, &accepted, &Arc::new(translate)))
        .map_err(InternetError::Start)?;
    Ok(TcpExit { listener, connections, thread: Some(thread) })
}

impl Drop for TcpExit {
    fn drop(&mut self) {
        // Wakes the thread that accepts.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.connections.end();
    }
}

fn listen() -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_ip_transparent_v4(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The firewall's rules. Packets between sites are left alone. `tproxy` makes the kernel put fragments together, and
/// passt would take the first for the whole: what was in fragments is dropped.
fn intercept(emulation: &Emulation, hub: usize, terminals: &[Intercepted], port: u16) -> Result<(), InternetError> {
    let interfaces = emulation.plan.sites.iter().flat_map(|site| &site.interfaces);
    let segments: BTreeSet<Ipv4Addr> = interfaces.map(|interface| network(interface.segment)).collect();
    let near: Vec<String> = segments.iter().map(|segment| format!("{segment}/{SEGMENT_PREFIX}")).collect();
    let mut rules = "add table ip internet; \
                     add chain ip internet intercepted { type filter hook prerouting priority mangle; };"
        .to_owned();
    for Intercepted { address, mtu } in terminals {
        let far = format!("add rule ip internet intercepted ip saddr {address} ip daddr != {{ {} }}", near.join(", "));
        rules.push_str(&format!("{far} meta l4proto tcp tproxy to 127.0.0.1:{port} accept;"));
        rules.push_str(&format!("{far} ip length > {mtu} drop;"));
    }
    let spec = CommandSpec {
        argv: vec!["nft".into(), rules.into()],
        // Debian does not let ordinary users look there.
        environment: vec![("PATH".into(), format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))],
        output: Output::Capture,
        own_group: true,
    };
    let mut nft = emulation.spawn(hub, spec).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => InternetError::Absent { program: "nft", package: "nftables" },
        _ => InternetError::Start(error),
    })?;
    // It prints nothing but errors.
    drop(nft.stdout.take());
    let mut errors = Vec::new();
    if let Some(mut stderr) = nft.stderr.take() {
        stderr.read_to_end(&mut errors).map_err(InternetError::Start)?;
    }
    if !nft.wait().map_err(InternetError::Start)?.success() {
        return Err(InternetError::Intercept(String::from_utf8_lossy(&errors).trim().replace('\n', "; ")));
    }
    Ok(())
}

fn accept<T>(listener: &TcpListener, connections: &Arc<Connections>, translate: &Arc<T>)
where
    T: Fn(SocketAddrV4) -> Option<SocketAddrV4> + Send + Sync + 'static,
{
    loop {
        let near = match listener.accept() {
            Ok((near, _)) => near,
            // The connection ended before we took it, or the process has no descriptor left for it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
            Err(_) => return,
        };
        let (connections, translate) = (connections.clone(), translate.clone());
        // A thread that cannot be made drops the connection.
        let _ = std::thread::Builder::new().name("internet-tcp".into()).spawn(move || {
            if open(&near, &connections, translate.as_ref()).is_err() {
                reset(&near);
            }
        });
    }
}

/// Continues a connection from the machine, until both directions have ended.
fn open(
    near: &TcpStream,
    connections: &Connections,
    translate: &dyn Fn(SocketAddrV4) -> Option<SocketAddrV4>,
) -> io::Result<()> {
    let SocketAddr::V4(requested) = near.local_addr()? else { return Err(io::ErrorKind::Unsupported.into()) };
    let address = translate(requested).ok_or(io::ErrorKind::ConnectionRefused)?;
    let far = TcpStream::connect_timeout(&address.into(), CONNECT_LIMIT)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let _held = connections.hold(near, &far)?;
    let broken = std::thread::scope(|scope| -> io::Result<bool> {
        let there = std::thread::Builder::new().spawn_scoped(scope, || carry(near, &far))?;
        let back = carry(&far, near);
        Ok(back.or(there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).is_some())
    })?;
    if broken {
        // What was sent before a reset arrives before it.
        wait_until_acknowledged(near);
        wait_until_acknowledged(&far);
        reset(&far);
        reset(near);
    }
    Ok(())
}

/// Carries one direction to its end of file; says what broke it.
fn carry(mut from: &TcpStream, mut to: &TcpStream) -> Option<io::Error> {
    let result = io::copy(&mut from, &mut to);
    match result {
        Ok(_) => {
            let _ = to.shutdown(Shutdown::Write);
            None
        }
        Err(error) => {
            // The other direction reads to the end of what it has.
            let _ = from.shutdown(Shutdown::Read);
            let _ = to.shutdown(Shutdown::Read);
            Some(error)
        }
    }
}

/// Waits as long as the peer goes on acknowledging.
fn wait_until_acknowledged(connection: &TcpStream) {
    let mut left = bytes_unacknowledged(connection.as_fd());
    let mut waited = Duration::ZERO;
    while left > 0 && waited < PROGRESS_LIMIT {
        std::thread::sleep(PROGRESS_INTERVAL);
        let now = bytes_unacknowledged(connection.as_fd());
        waited = if now < left { Duration::ZERO } else { waited + PROGRESS_INTERVAL };
        left = now;
    }
}

/// When its last descriptor closes, the connection ends with a reset.
fn reset(connection: &TcpStream) {
    let _ = SockRef::from(connection).set_linger(Some(Duration::ZERO));
}

/// Open connections, so that they can be ended from outside.
#[derive(Debug, Default)]
struct Connections {
    open: Mutex<BTreeMap<u64, [TcpStream; 2]>>,
}

struct Held<'a> {
    connections: &'a Connections,
    number: u64,
}

impl Connections {
    fn hold(&self, near: &TcpStream, far: &TcpStream) -> io::Result<Held<'_>> {
        let ends = [near.try_clone()?, far.try_clone()?];
        let mut open = self.open.lock();
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        open.insert(number, ends);
        Ok(Held { connections: self, number })
    }

    fn end(&self) {
        for end in self.open.lock().values().flatten() {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.number);
    }
}
