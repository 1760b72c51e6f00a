//! The firewall's rules, while a gateway runs.
//!
//! They stand in a table of its own that belongs to a running `nft` (flag `owner`, Linux 5.12), which ends when its input
//! does: however this process ends, `kill -9` included, the kernel takes the rules away, and connections pass by the
//! gateway. A second table, if asked for, stays: what refuses new connections then (`fail = "closed"`).
//!
//! A pure SYN that is to be intercepted is logged to us and dropped, in one rule, so that what we see and what is held are the
//! same. An admitted SYN comes in again on the loopback device, with our mark, and `tproxy` gives it to the listener.
//! Marked packets are routed to this host whatever their address.
//!
//! Later packets are recognised by their socket, which carries a mark too. What the kernel keeps of an ended connection
//! (TIME-WAIT) has no mark: its addresses and ports may be those of a new connection that passes by. Until a client's
//! handshake ends there is no socket yet, and a set of admitted requests stands in for it; a request that is sent on
//! leaves the set.

use super::netfilter::PacketLog;
use crate::netlink::{Netlink, NextHop, Rule};
use bentpipe_gateway::file::InterceptRules;
use bentpipe_net::selector::Prefix;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Marks of packets (`SO_MARK`). A gateway's are its own in its namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Routed to this host.
    pub local: u32,
    /// A held SYN that was sent on.
    pub sent_on: u32,
    /// Sockets with addresses of others, and what they send.
    pub relayed: u32,
}

/// The parameters of the rules.
pub(crate) struct Rules<'a> {
    /// The connections to intercept, if any.
    pub intercept: Option<&'a InterceptRules>,
    /// New connections are refused when the gateway is gone.
    pub closed: bool,
    /// Ports of the listeners for intercepted connections, on the loopback addresses; `None`: there is none.
    pub port_v4: Option<u16>,
    pub port_v6: Option<u16>,
    /// Packets of IPv6 are routed here, too.
    pub ipv6: bool,
    /// The log group that reports SYNs; its number also names the rest.
    pub group: u16,
    /// SYNs a second that are intercepted at most; the rest are lost, and their clients ask again.
    pub rate_max: u32,
    /// Requests that may be held, and so be admitted at once.
    pub held_max: usize,
    /// Clients and servers whose handshakes are under way.
    pub admitted: &'a [(SocketAddr, SocketAddr)],
}

/// The rules, as long as this value lives.
pub struct Firewall {
    nft: Child,
    ended: OwnedFd,
    orders: Option<ChildStdin>,
    /// nft's output: it repeats each order.
    output: File,
    netlink: Netlink,
    table: String,
    /// The way whose forwarded packets are counted.
    link: Option<NextHop>,
    routes: Vec<Rule>,
    leaves: String,
}

/// Before the main table's rule (32766), and before the numbers that virtual private networks use.
const PRIORITY: u32 = 100;
/// Upper half of the marks: "bp".
const MARK: u32 = 0x6270_0000;
/// Sets [`Marks::sent_on`] apart.
const SENT_ON: u32 = 0x8000;
/// Sets [`Marks::relayed`] apart; no log group has either bit.
const RELAYED: u32 = 0x1000;
/// The log prefix of a SYN that bypasses the gateway.
pub(crate) const PASSING: &str = "passing";
/// Bypassing SYNs that are reported, a second: a repeated one does as well.
const PASSING_RATE: u32 = 200;
const INSTALL_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for the rules of a predecessor to go.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(2);
/// The counter of what goes past.
pub(crate) const COUNTER: &str = "bypass";
/// The set of the device that leads to the other gateway.
const LINK: &str = "link";
/// The chain for packets that leave by that device and came in by it: where it leads to the site, too.
const TURNED: &str = "turned";

impl Marks {
    /// Those of the gateway with this log group.
    #[must_use]
    pub fn of(log: &PacketLog) -> Marks {
        let local = MARK | u32::from(log.group());
        Marks { local, sent_on: local | SENT_ON, relayed: local | RELAYED }
    }
}

/// The table's name.
pub(crate) fn table(group: u16) -> String {
    format!("bentpipe_{group}")
}

/// `nft`, with the right to change this network. Debian does not let ordinary users look where it is.
pub(crate) fn nft() -> Command {
    let mut command = Command::new("nft");
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    // A Ctrl-C at the terminal reaches only us.
    command.process_group(0);
    super::rights::lend(&mut command);
    command
}

impl Firewall {
    /// Installs the rules in the calling thread's namespace, all at once.
    pub(crate) fn install(rules: &Rules) -> io::Result<Firewall> {
        let deadline = Instant::now() + PREDECESSOR_LIMIT;
        loop {
            match Firewall::try_install(rules) {
                // The table of a predecessor that was killed just now.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                other => return other,
            }
        }
    }

    fn try_install(rules: &Rules) -> io::Result<Firewall> {
        // What would end the quotation in a rule.
        let names = rules.intercept.iter().flat_map(|intercept| &intercept.interfaces);
        if let Some(name) = names.into_iter().find(|name| name.contains(['"', '\\', '\n'])) {
            let what = format!("{name:?} cannot be named in a firewall rule");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let (output, said) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let mut command = nft();
        // It keeps a history of its input in a file at home.
        command.arg("-i").env("HOME", "/nonexistent").stdin(Stdio::piped()).stdout(said.try_clone()?).stderr(said);
        let mut nft = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                io::Error::new(error.kind(), "the program nft is missing: install Debian's package nftables")
            }
            _ => error,
        })?;
        drop(command);
        let table = table(rules.group);
        let mut orders = nft.stdin.take();
        let requested = orders.as_mut().map_or(Ok(()), |orders| {
            orders.write_all(rules.text().as_bytes())?;
            orders.write_all(b"\nlist tables\n")?;
            orders.flush()
        });
        // A broken pipe: what it said tells why.
        let mut output = File::from(output);
        let installed = wait_for(&mut output, &format!("table inet {table}\n"));
        if let Err(error) = requested.and(installed) {
            drop(orders);
            let _ = nft.kill();
            let _ = nft.wait();
            return Err(error);
        }
        let netlink = Netlink::open()?;
        let ended = pidfd_open(Pid::from_child(&nft), PidfdFlags::empty())?;
        let leaves = if rules.closed { format!("delete table inet {table}_closed\n") } else { String::new() };
        let mut firewall =
            Firewall { nft, ended, orders, output, netlink, table, link: None, routes: Vec::new(), leaves };
        firewall.route_here(rules)?;
        Ok(firewall)
    }

    /// Routes packets with our mark to this host.
    fn route_here(&mut self, rules: &Rules) -> io::Result<()> {
        let table = u32::from(rules.group);
        for ipv6 in [false, true] {
            if ipv6 && !rules.ipv6 {
                continue;
            }
            self.netlink.add_local_default(table, ipv6)?;
            let mark = Some(MARK | u32::from(rules.group));
            let rule = Rule { priority: PRIORITY, mark, table, ipv6, ..Rule::default() };
            match self.netlink.add_rule(&rule) {
                // A predecessor's.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => other?,
            }
            self.routes.push(rule);
        }
        Ok(())
    }

    /// Counts what is forwarded by the way that leads to the other gateway. `Some`: it has changed to this one.
    pub(crate) fn count_towards(&mut self, peer: IpAddr) -> io::Result<Option<NextHop>> {
        let route = self.netlink.route_to(peer)?;
        // A quoted string has no way to hold these.
        if self.link.as_ref() == Some(&route) || route.device.contains(['"', '\\']) {
            return Ok(None);
        }
        self.hear_out()?;
        if let Some(orders) = &mut self.orders {
            orders.write_all(count_order(&self.table, &route).as_bytes())?;
        }
        self.link = Some(route.clone());
        Ok(Some(route))
    }

    /// Reads what `nft` has said, so that it can say more.
    fn hear_out(&mut self) -> io::Result<()> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        while poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&at_once))? > 0 {
            if self.output.read(&mut [0; 4096])? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// True if somebody has ended `nft`, and the rules with it.
    pub(crate) fn is_gone(&mut self) -> bool {
        !matches!(self.nft.try_wait(), Ok(None))
    }
}

impl AsFd for Firewall {
    /// Readable when somebody has ended `nft`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        if let Some(orders) = &mut self.orders {
            let _ = orders.write_all(self.leaves.as_bytes());
        }
        // The end of its input is the end of nft, and of the table with it.
        self.orders = None;
        let deadline = Instant::now() + Duration::from_secs(1);
        while matches!(self.nft.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.nft.kill();
                let _ = self.nft.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for rule in &self.routes {
            let _ = self.netlink.delete_rule(rule);
            let _ = self.netlink.delete_local_default(rule.table, rule.ipv6);
        }
    }
}

/// Reads what nft says until it names the table, and it alone, on a line.
fn wait_for(output: &mut File, wanted: &str) -> io::Result<()> {
    let deadline = Instant::now() + INSTALL_LIMIT;
    let mut text = String::new();
    let mut buffer = [0u8; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let ready = match poll(&mut [PollFd::new(&*output, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if ready == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nft did not answer within 10 s"));
        }
        let length = output.read(&mut buffer)?;
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        if let Some(error) = whole.lines().find(|line| line.contains("Error")) {
            let kind = match error {
                e if e.contains("File exists") || e.contains("Operation not permitted") => io::ErrorKind::AlreadyExists,
                _ => io::ErrorKind::Other,
            };
            let hint = "this needs Linux 5.12 with CONFIG_NFT_TPROXY, CONFIG_NFT_SOCKET, CONFIG_NFT_FIB_INET and \
                        CONFIG_NETFILTER_NETLINK_LOG, and the right CAP_NET_ADMIN";
            return Err(io::Error::new(kind, format!("nft refuses the gateway's rules: {} ({hint})", error.trim())));
        }
        if text.contains(wanted) {
            return Ok(());
        }
        if length == 0 {
            return Err(io::Error::other(format!("nft ended without the rules; it said: {}", text.trim())));
        }
    }
}

impl Rules<'_> {
    /// One line: nft applies it whole or not at all. Protocols stand as numbers, because a machine may have no
    /// /etc/protocols: 6 TCP, 1 ICMP, 58 ICMPv6.
    fn text(&self) -> String {
        let table = table(self.group);
        let mark = MARK | u32::from(self.group);
        let (sent_on, relayed) = (mark | SENT_ON, mark | RELAYED);
        let mut line = format!("add table inet {table} {{ flags owner; }}; add counter inet {table} {COUNTER}; ");
        let mut add = |what: &str| {
            line.push_str("add ");
            line.push_str(what);
            line.push_str("; ");
        };
        add(&format!("chain inet {table} bypass"));
        add(&format!("chain inet {table} site"));
        add(&format!("chain inet {table} in {{ type filter hook prerouting priority mangle; policy accept; }}"));
        // What is relayed ends and begins here; what is forwarded to the link goes past.
        add(&format!("set inet {table} {LINK} {{ type ifname; }}"));
        add(&format!("chain inet {table} past {{ type filter hook forward priority mangle; policy accept; }}"));
        add(&format!("chain inet {table} {TURNED}"));
        add(&format!("rule inet {table} past oifname @{LINK} iifname @{LINK} goto {TURNED}"));
        add(&format!("rule inet {table} past oifname @{LINK} counter name {COUNTER}"));
        // Answers to connections that were made in their clients' names, packets of relayed clients, and errors about them.
        let ours = format!("socket mark {relayed:#x} meta mark set {mark:#x} accept");
        add(&format!("rule inet {table} in iifname != lo {NO_REQUEST} {ours}"));
        add(&format!("rule inet {table} in iifname != lo meta l4proto {{ 1, 58 }} {ours}"));
        if let Some(intercept) = self.intercept {
            // To the listener: SYNs that are admitted, and what ends the handshake.
            add(&format!("chain inet {table} listener"));
            add(&format!("rule inet {table} listener meta mark set {mark:#x}"));
            let to = format!("rule inet {table} listener meta l4proto 6 meta nfproto");
            if let Some(port) = self.port_v4 {
                add(&format!("{to} ipv4 tproxy ip to 127.0.0.1:{port} accept"));
            }
            if let Some(port) = self.port_v6 {
                add(&format!("{to} ipv6 tproxy ip6 to [::1]:{port} accept"));
            }
            // Without a listener, the kernel answers with a reset.
            add(&format!("rule inet {table} listener accept"));
            add(&format!("chain inet {table} out {{ type filter hook output priority mangle; policy accept; }}"));
            for (ip, is_family) in
                [("ip", SocketAddr::is_ipv4 as fn(&SocketAddr) -> bool), ("ip6", SocketAddr::is_ipv6)]
            {
                if ip == "ip6" && self.port_v6.is_none() {
                    continue;
                }
                let address = if ip == "ip" { "ipv4_addr" } else { "ipv6_addr" };
                let kind = format!("type {address} . inet_service . {address} . inet_service");
                let size = self.admitted_max();
                let limits = format!("flags dynamic, timeout; timeout {ADMITTED_SECONDS}s; size {size}");
                add(&format!("set inet {table} admitted_{ip} {{ {kind}; {limits}; }}"));
                let ends = format!("{ip} saddr . tcp sport . {ip} daddr . tcp dport");
                let known = self.admitted.iter().filter(|(client, _)| is_family(client)).map(|(client, server)| {
                    format!("{} . {} . {} . {}", client.ip(), client.port(), server.ip(), server.port())
                });
                let known: Vec<String> = known.collect();
                if !known.is_empty() {
                    add(&format!("element inet {table} admitted_{ip} {{ {} }}", known.join(", ")));
                }
                let again = format!("rule inet {table} in iifname lo meta mark {mark:#x}");
                add(&format!("{again} update @admitted_{ip} {{ {ends} }} goto listener"));
                add(&format!("rule inet {table} in iifname != lo {NO_REQUEST} {ends} @admitted_{ip} goto listener"));
                add(&format!("rule inet {table} out meta mark {sent_on:#x} delete @admitted_{ip} {{ {ends} }}"));
            }
            add(&format!("rule inet {table} in iifname {} jump site", interfaces(intercept)));
            for condition in conditions(intercept) {
                add(&format!("rule inet {table} site {condition}"));
            }
            let rate = self.rate_max;
            add(&format!("rule inet {table} site limit rate over {rate}/second burst {rate} packets drop"));
            add(&format!("rule inet {table} site log group {} queue-threshold 1 drop", self.group));
            // A SYN of a connection that passes by may not ask for longer segments than the way out carries.
            let clamp = "tcp flags syn tcp option maxseg size set rt mtu";
            add(&format!("chain inet {table} through {{ type filter hook forward priority mangle; policy accept; }}"));
            add(&format!("rule inet {table} through iifname {} {clamp}", interfaces(intercept)));
            add(&format!("rule inet {table} through oifname {} {clamp}", interfaces(intercept)));
            add(&format!("rule inet {table} out meta mark {sent_on:#x} {clamp}"));
        }
        // A client that asks past us, by the way that leads to it, has forgotten the connection that we have in its name.
        let request = "tcp flags & (fin|syn|rst|ack) == syn fib saddr . iif oif exists";
        let limit = format!("limit rate {PASSING_RATE}/second burst {PASSING_RATE} packets");
        let tell = format!("{limit} log prefix \"{PASSING}\" group {} queue-threshold 1", self.group);
        add(&format!("rule inet {table} in iifname != lo {request} {tell}"));
        // Where a server on a network of this machine does not exist, the kernel says so to the client, in whose name we
        // asked: we must hear it too.
        add(&format!("chain inet {table} reports {{ type filter hook output priority mangle; policy accept; }}"));
        let hear = format!("limit rate 200/second log group {} queue-threshold 1", self.group);
        add(&format!("rule inet {table} reports icmp type destination-unreachable {hear}"));
        add(&format!("rule inet {table} reports icmpv6 type destination-unreachable {hear}"));
        if self.closed
            && let Some(intercept) = self.intercept
        {
            let closed = format!("{table}_closed");
            add(&format!("table inet {closed}"));
            line.push_str(&format!("flush table inet {closed}; "));
            let mut add = |what: &str| line.push_str(&format!("add {what}; "));
            add(&format!("chain inet {closed} bypass"));
            add(&format!("chain inet {closed} site"));
            add(&format!("chain inet {closed} through {{ type filter hook forward priority filter; policy accept; }}"));
            add(&format!("rule inet {closed} through iifname {} jump site", interfaces(intercept)));
            for condition in conditions(intercept) {
                add(&format!("rule inet {closed} site {condition}"));
            }
            add(&format!("rule inet {closed} site reject with tcp reset"));
        }
        line
    }

    /// As many requests as can be admitted while one is remembered: the set is never full. Were it, an admitted SYN would
    /// be refused.
    fn admitted_max(&self) -> usize {
        // A burst of the limit's size counts as a second.
        (self.rate_max as usize).saturating_mul(ADMITTED_SECONDS + 1).saturating_add(self.held_max).min(ADMITTED_MAX)
    }
}

/// Counts what is forwarded by this way. Of packets that came in by the same device, those to the site have another
/// next hop; it is known of the family by which the gateways reach each other, and both directions of the other family
/// count.
fn count_order(table: &str, route: &NextHop) -> String {
    let (set, chain) = (format!("inet {table} {LINK}"), format!("inet {table} {TURNED}"));
    let counter = format!("counter name {COUNTER}");
    let rules = match route.next_hop {
        Some(IpAddr::V4(hop)) => vec![format!("rt ip nexthop {hop} {counter}"), format!("meta nfproto ipv6 {counter}")],
        Some(IpAddr::V6(hop)) => {
            vec![format!("rt ip6 nexthop {hop} {counter}"), format!("meta nfproto ipv4 {counter}")]
        }
        None => vec![counter],
    };
    let mut order = format!("flush set {set}; add element {set} {{ \"{}\" }}; flush chain {chain}", route.device);
    for rule in rules {
        order.push_str(&format!("; add rule {chain} {rule}"));
    }
    order + "\n"
}

/// The time that an admitted request is remembered: a little longer than [`super::site::HANDSHAKE_MAX`].
const ADMITTED_SECONDS: usize = 18;
/// However much is allowed: about 100 MB of the kernel's memory.
const ADMITTED_MAX: usize = 1 << 20;
const NO_REQUEST: &str = "tcp flags & (fin|syn|rst|ack) != syn";

/// The rules that all but a SYN to be intercepted leave the chain by.
fn conditions(intercept: &InterceptRules) -> Vec<String> {
    let mut rules = vec![
        "fib daddr type != unicast return".to_owned(),
        "ip6 daddr fe80::/10 return".to_owned(),
        "meta l4proto != 6 goto bypass".to_owned(),
        // TCP behind extension headers.
        "meta nfproto ipv6 ip6 nexthdr != 6 goto bypass".to_owned(),
        format!("{NO_REQUEST} goto bypass"),
    ];
    let mut leave = |condition: String| rules.push(format!("{condition} goto bypass"));
    if !intercept.ports.is_empty() {
        leave(format!("tcp dport != {}", ports(&intercept.ports)));
    }
    if !intercept.except_ports.is_empty() {
        leave(format!("tcp dport {}", ports(&intercept.except_ports)));
    }
    for (which, wanted, left_alone) in
        [("daddr", &intercept.to, &intercept.except_to), ("saddr", &intercept.from, &intercept.except_from)]
    {
        for (family, is_family) in [("ip", IpAddr::is_ipv4 as fn(&IpAddr) -> bool), ("ip6", IpAddr::is_ipv6)] {
            if let Some(networks) = networks(left_alone, is_family) {
                leave(format!("{family} {which} {networks}"));
            }
            match networks(wanted, is_family) {
                Some(networks) => leave(format!("{family} {which} != {networks}")),
                // Only networks of the other family are wanted.
                None if !wanted.is_empty() => {
                    leave(format!("meta nfproto {}", if family == "ip" { "ipv4" } else { "ipv6" }));
                }
                None => {}
            }
        }
    }
    rules
}

fn interfaces(intercept: &InterceptRules) -> String {
    let names: Vec<String> = intercept.interfaces.iter().map(|name| format!("\"{name}\"")).collect();
    format!("{{ {} }}", names.join(", "))
}

fn ports(ports: &[RangeInclusive<u16>]) -> String {
    let ranges: Vec<String> = ports.iter().map(|range| format!("{}-{}", range.start(), range.end())).collect();
    format!("{{ {} }}", ranges.join(", "))
}

fn networks(networks: &[Prefix], is_family: fn(&IpAddr) -> bool) -> Option<String> {
    let of_family = networks.iter().filter(|network| is_family(&network.address));
    let texts: Vec<String> = of_family.map(Prefix::to_string).collect();
    (!texts.is_empty()).then(|| format!("{{ {} }}", texts.join(", ")))
}
