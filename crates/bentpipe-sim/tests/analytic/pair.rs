//! Two hosts, one link, and a tap between the first host and the link that sees every packet and may lose it.

use bentpipe_apps::ClientServer as _;
use bentpipe_apps::bulk::{Amount, BulkSpec};
use bentpipe_apps::report::App;
use bentpipe_link::config::LinkConfig;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::datagram::{Body, Segment};
use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::seed::Seed;
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::{LinkSpec, Plan};
use bentpipe_sim::host::Host;
use bentpipe_sim::host::ip::Ip;
use bentpipe_sim::tcp::settings::Settings;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The host at the hub, which sends the data, and the one at the terminal.
pub const SENDER: usize = 0;
pub const RECEIVER: usize = 1;

/// A tap that looks away.
pub struct Open;

impl Tap for Open {
    fn sent(&mut self, _now: Instant, _segment: &Segment) -> bool {
        true
    }
    fn arrived(&mut self, _now: Instant, _segment: &Segment) {}
    fn woken(&mut self, _now: Instant) {}
}

/// What stands between the sender and the link.
pub trait Tap {
    /// The sender puts out a segment; `false`: it is lost before the link.
    fn sent(&mut self, now: Instant, segment: &Segment) -> bool;
    /// A segment reaches the sender.
    fn arrived(&mut self, now: Instant, segment: &Segment);
    /// The sender is woken: what it sends next is not an answer.
    fn woken(&mut self, now: Instant);
}

/// Two hosts at a link. As in `Network`, the link goes first when several are due.
pub struct Pair {
    hosts: [Host<Box<dyn App>>; 2],
    link: Link<DatagramPacket>,
    /// Link, sender, receiver.
    due: [Instant; 3],
    now: Instant,
}

/// A link from the text of a link file.
pub fn link(text: &str) -> LinkConfig {
    LinkConfig::from_table(toml::from_str(text).unwrap()).unwrap()
}

/// Reno of the nineties, as the models assume it: slow start from one segment, one segment an acknowledgement, every second
/// segment acknowledged, RFC 6298; nothing that is younger. `more`: settings on top.
pub fn reno(more: &str) -> TcpConfig {
    let mut table: toml::Table = toml::from_str(RENO).unwrap();
    table.extend(toml::from_str::<toml::Table>(more).unwrap());
    TcpConfig::from_table(table).unwrap()
}

const RENO: &str = "congestion_control = 'reno'\nrecovery = 'reno'\nsack = false\nlimited_transmit = false\nfrto = false\n\
    rack = false\ntail_loss_probe = false\nproportional_rate_reduction = false\nrto_estimator = 'rfc6298'\n\
    byte_counting = 0\nack_every = 2\ndelayed_ack = '200 ms'\nquick_acks = 0\ninitial_window = 1\n\
    slow_start_after_idle = false\ntimestamps = false\nwindow_scaling = false\nreceive_window = '65535 B'";

/// A T1 of 600 ms, with a queue that never overflows here.
pub const T1: &str = "rate = '1.536 Mbit/s'\none_way_delay = '300 ms'\nqueue = { bytes = '1 MB' }";

/// Data in a full packet of 1500 bytes, without options.
pub const MSS: u64 = 1460;

/// Its round trip on [`T1`]: both delays, 1500 bytes out, 40 back; rounded up as the link does.
pub const T1_ROUND_TRIP: Duration = Duration::from_nanos(600_000_000 + 7_812_500 + 208_334);

/// A link's ends as a network wants them.
pub fn spec(config: &LinkConfig) -> LinkSpec {
    LinkSpec {
        name: "sat".into(),
        sites: vec!["hub".into(), "terminal".into()],
        carries_ethernet: config.carries_ethernet,
        mtu: config.mtu,
    }
}

impl Pair {
    /// A download of `amount` that starts at once.
    pub fn download(config: &LinkConfig, tcp: &TcpConfig, amount: Amount, seed: u64, tap: &mut dyn Tap) -> Pair {
        let plan = Plan::new(&[spec(config)], &BTreeMap::new()).unwrap();
        let settings = Settings::new(tcp).unwrap();
        let seed = Seed(seed);
        let host = |site: usize| {
            let ip = Ip::new(&plan.sites[site], &[(config.carries_ethernet, false)], settings.mtu);
            Host::new(ip, settings.clone(), seed.child(&plan.sites[site].name))
        };
        let mut pair = Pair {
            hosts: [host(SENDER), host(RECEIVER)],
            link: Link::new(config, 1, seed.child("link")),
            due: [Instant::FAR; 3],
            now: Instant::ZERO,
        };
        let spec = BulkSpec { amount, ..BulkSpec::default() };
        pair.hosts[SENDER].start(pair.now, spec.server(7));
        pair.drain(SENDER, tap);
        let server = IpAddr::from(plan.address(SENDER).unwrap());
        pair.hosts[RECEIVER].start(pair.now, spec.client(server, 7));
        pair.drain(RECEIVER, tap);
        pair
    }

    /// Runs every event up to `until`; returns early when the client is done.
    pub fn run_until(&mut self, until: Instant, tap: &mut dyn Tap) -> bool {
        loop {
            let (node, at) =
                self.due.iter().copied().enumerate().min_by_key(|(node, at)| (*at, *node)).expect("three nodes");
            if at > until {
                self.now = until;
                return false;
            }
            self.now = self.now.max(at);
            match node {
                0 => self.run_link(tap),
                node => {
                    let host = node - 1;
                    if host == SENDER {
                        tap.woken(self.now);
                    }
                    self.hosts[host].wake(self.now);
                    self.drain(host, tap);
                }
            }
            if self.hosts[RECEIVER].program(0).expect("it runs").is_done() {
                return true;
            }
        }
    }

    /// What the program at the receiver measured.
    pub fn measured(&self, name: &str) -> Option<f64> {
        let report = self.hosts[RECEIVER].program(0).expect("it runs").report(self.now);
        report
            .measurements
            .iter()
            .find(|measurement| measurement.quantity.name == name)
            .map(|measurement| measurement.value)
    }

    fn run_link(&mut self, tap: &mut dyn Tap) {
        self.link.wake(self.now);
        while let Some((port, packet)) = self.link.poll_transmit(self.now) {
            if port.0 == SENDER
                && let Some(segment) = segment(&packet)
            {
                tap.arrived(self.now, segment);
            }
            self.hosts[port.0].receive(self.now, Port(0), packet);
            self.drain(port.0, tap);
        }
        self.due[0] = self.link.next_wake();
    }

    fn drain(&mut self, host: usize, tap: &mut dyn Tap) {
        while let Some((_, packet)) = self.hosts[host].poll_transmit(self.now) {
            let kept = host != SENDER || segment(&packet).is_none_or(|segment| tap.sent(self.now, segment));
            if kept {
                self.link.receive(self.now, Port(host), packet);
            }
        }
        self.due[0] = self.link.next_wake();
        self.due[host + 1] = self.hosts[host].next_wake();
    }
}

/// The TCP segment in a packet of a simulated host.
pub fn segment(packet: &DatagramPacket) -> Option<&Segment> {
    match &packet.datagram().0.body {
        Body::Tcp(segment) => Some(segment),
        _ => None,
    }
}
