//! Properties of this machine that do not fit a gateway's file: sentences for its operator.

use crate::namespace::read_sysctl;
use crate::netlink::index_of;
use crate::port::device_request;
use bentpipe_gateway::InterceptRules;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// The sysctls that let this machine forward packets, by address family.
const FORWARDING: [&str; 2] = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];

/// Interfaces that the file names and this machine lacks.
pub fn interfaces(rules: Option<&InterceptRules>) -> Vec<String> {
    let names = rules.iter().flat_map(|rules| &rules.interfaces).filter(|name| index_of(name).is_err());
    let missing = |name: &String| {
        format!(
            "there is no interface {name:?}: nothing is intercepted there until there is one; there are: {}",
            devices().join(", ")
        )
    };
    names.map(missing).collect()
}

/// Address families that this machine does not forward, of those that it uses.
pub fn forwarding() -> Vec<String> {
    let used = [true, has_global_ipv6()];
    let off = FORWARDING.into_iter().zip(used);
    let off = off.filter(|(name, used)| *used && read_sysctl(name).is_ok_and(|value| value == "0"));
    let warning = |(name, _)| {
        format!(
            "the sysctl {name} is 0: what is not relayed is not forwarded either, such as UDP and connections that bypass \
             the gateway; `sysctl -w {name}=1`"
        )
    };
    off.map(warning).collect()
}

/// The link's MTU is larger than this machine sends to the hub, or at a hub than any of its interfaces does.
pub fn mtu(mtu: u64, hub: Option<SocketAddr>) -> Option<String> {
    let (most, of) = match hub {
        Some(hub) => (path_mtu(hub)?, format!("the route to the hub at {hub}")),
        None => {
            let devices = devices().into_iter().filter(|name| name != "lo");
            let mtus = devices.filter_map(|name| Some((device_mtu(&name)?, name)));
            let (most, name) = mtus.max()?;
            (most, format!("the interface {name:?}, the largest here,"))
        }
    };
    (mtu > most).then(|| {
        format!(
            "the link's mtu is {mtu} B, but {of} has {most} B: the pair's packets would go in fragments; allowed: at most \
             the smallest MTU between the gateways"
        )
    })
}

/// An address that is neither this machine's own loopback nor of one link only: scope 0 in /proc/net/if_inet6.
fn has_global_ipv6() -> bool {
    // Of the thread's namespace.
    let text = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    text.lines().any(|line| line.split_whitespace().nth(3) == Some("00"))
}

/// The MTU of the route, as far as the kernel knows it. No packet is sent.
fn path_mtu(to: SocketAddr) -> Option<u64> {
    let any = if to.is_ipv4() { "0.0.0.0:0".parse().ok()? } else { SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)) };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    let (level, option) =
        if to.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let (mut mtu, mut length) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes, four, of a live integer.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut length) };
    u64::try_from(mtu).ok().filter(|_| result == 0)
}

/// By netdevice(7): sysfs may show another namespace.
fn device_mtu(name: &str) -> Option<u64> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    let mut request = device_request(name);
    // SAFETY: the request is live and names a device; the kernel fills in the number that is read.
    let mtu = unsafe {
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) < 0 {
            return None;
        }
        request.ifr_ifru.ifru_mtu
    };
    u64::try_from(mtu).ok()
}

/// The names of this namespace's network devices.
fn devices() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list ends with an entry whose index is 0, every other entry has a C string, and it is freed once.
    unsafe {
        let list = libc::if_nameindex();
        let mut entry = list;
        while !entry.is_null() && (*entry).if_index != 0 {
            names.push(std::ffi::CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}
