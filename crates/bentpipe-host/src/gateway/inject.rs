//! Packets that are put into the kernel by hand: a held SYN admitted, sent on, or answered in its server's name.

use super::firewall::Marks;
use super::syn::Syn;
use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

/// The sockets for it.
pub struct Injector {
    loopback: u32,
    /// A packet socket: what it sends to the loopback device comes in there, with our mark.
    admit: Socket,
    ipv4: Family,
    ipv6: Option<Family>,
}

struct Family {
    /// Sends packets with the header that they have.
    packets: Socket,
    icmp: Socket,
}

impl Injector {
    /// Opens the sockets in the calling thread's namespace.
    pub fn open(marks: Marks, ipv6: bool) -> io::Result<Injector> {
        // Protocol 0: it receives nothing.
        let admit = new(Domain::PACKET, Type::DGRAM, None)?;
        admit.set_mark(marks.local)?;
        let ipv4 = Family {
            packets: new(Domain::IPV4, Type::RAW, Some(libc::IPPROTO_RAW))?,
            icmp: new(Domain::IPV4, Type::RAW, Some(libc::IPPROTO_ICMP))?,
        };
        ipv4.packets.set_mark(marks.sent_on)?;
        deaf(&ipv4.icmp)?;
        let ipv6 = if ipv6 {
            let family = Family {
                packets: new(Domain::IPV6, Type::RAW, Some(libc::IPPROTO_RAW))?,
                icmp: new(Domain::IPV6, Type::RAW, Some(libc::IPPROTO_ICMPV6))?,
            };
            family.packets.set_header_included_v6(true)?;
            family.packets.set_mark(marks.sent_on)?;
            deaf(&family.icmp)?;
            Some(family)
        } else {
            None
        };
        Ok(Injector { loopback: crate::netlink::index_of("lo")?, admit, ipv4, ipv6 })
    }

    /// Lets the kernel see the packet as if it had just come in.
    pub fn admit(&self, syn: &Syn) -> io::Result<()> {
        let protocol = if syn.client.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let to = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (protocol as u16).to_be(),
            sll_ifindex: self.loopback as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        };
        let packet = syn.packet();
        // SAFETY: the packet and the address live through the call, and the lengths are theirs.
        let sent = unsafe {
            libc::sendto(
                self.admit.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
                (&raw const to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends the packet on as a router would.
    pub fn send_on(&self, syn: &Syn) -> io::Result<()> {
        match syn.forwarded() {
            Some(packet) => self.send(&packet, syn.server.ip()),
            None => Ok(()),
        }
    }

    /// Resets the connection attempt in its server's name.
    pub fn refuse(&self, syn: &Syn) -> io::Result<()> {
        self.send(&syn.refusal(), syn.client.ip())
    }

    /// Says that there is no way to the server.
    pub fn unreachable(&self, syn: &Syn) -> io::Result<()> {
        let client = syn.client.ip();
        self.family(client)?.icmp.send_to(&syn.unreachable(), &address(client)).map(drop)
    }

    fn send(&self, packet: &[u8], to: IpAddr) -> io::Result<()> {
        self.family(to)?.packets.send_to(packet, &address(to)).map(drop)
    }

    fn family(&self, address: IpAddr) -> io::Result<&Family> {
        match address {
            IpAddr::V4(_) => Ok(&self.ipv4),
            IpAddr::V6(_) => self.ipv6.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Raw sockets know no ports.
fn address(address: IpAddr) -> SockAddr {
    SocketAddr::new(address, 0).into()
}

fn new(domain: Domain, kind: Type, protocol: Option<i32>) -> io::Result<Socket> {
    Socket::new(domain, kind.nonblocking().cloexec(), protocol.map(Protocol::from))
}

/// A raw ICMP socket receives a copy of all ICMP, which nobody here reads: a filter that keeps nothing.
fn deaf(socket: &Socket) -> io::Result<()> {
    socket.attach_filter(&[SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0)])
}
