//! A link of the emulator's between terminal and hub, in the place of a pair of devices: thin, slow or asymmetric as its
//! text says, on any kernel.

use super::peers::{add_veth, ip};
use bentpipe_host::namespace::{Namespace, write_sysctl};
use bentpipe_host::port::{ETHERNET_HEADER, PacketPort, switch_offloads_off};
use bentpipe_host::pump::{Pump, PumpControl, PumpLink, PumpOutcome, PumpPort};
use bentpipe_host::tap::{Tap, WindowLimits};
use bentpipe_link::catalogue::LinkFile;
use bentpipe_link::config::LinkConfig;
use bentpipe_link::link::Link;
use bentpipe_net::buffer::Buffer;
use bentpipe_net::seed::Seed;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The device, the address and the hardware address of either end: the hub's, as the first of the link's ports, and the
/// terminal's.
const ENDS: [(&str, &str, &str); 2] =
    [("left", "10.2.0.2", "02:00:00:00:00:02"), ("right", "10.2.0.1", "02:00:00:00:00:01")];
const RING_BYTES: usize = 4 << 20;
/// Packets whose buffers are made beforehand.
const BUFFERS: usize = 1024;
/// Lateness in milliseconds that a live run may have to be valid, by default.
const MOST_LATE_P99_MS: f64 = 2.0;
const MOST_LATE_MS: f64 = 25.0;

/// Moves packets until it is dropped.
pub struct EmulatedLink {
    control: Arc<PumpControl>,
    pump: Option<JoinHandle<PumpOutcome>>,
    _engine: Namespace,
}

/// What the text says, as it would in a link's file.
pub fn config_of(text: &str) -> LinkConfig {
    let text = format!("title = \"test\"\nsummary = \"test\"\n{text}");
    let file = LinkFile::parse("test", "test.toml", &text).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
    file.config().unwrap_or_else(|problem| panic!("{problem}"))
}

impl EmulatedLink {
    /// Gives the terminal a device `right` and the hub one that is `left`.
    pub fn between(terminal: &Namespace, hub: &Namespace, text: &str) -> EmulatedLink {
        let config = config_of(text);
        let engine = Namespace::new().unwrap();
        // What is not of the sites is not on their link.
        engine.run(|| write_sysctl("net.ipv6.conf.default.disable_ipv6", "1")).unwrap();
        let mtu = config.mtu as usize;
        let ports = [hub, terminal].into_iter().zip(ENDS).enumerate().map(|(n, (site, (device, _, hardware)))| {
            let own = format!("port{n}");
            let build = || {
                add_veth(&own, device, site)?;
                switch_offloads_off(&own)?;
                ip(&format!("link set {own} up"))?;
                PacketPort::open(&own, mtu + ETHERNET_HEADER + 4, RING_BYTES)
            };
            let socket = engine.run(build).unwrap();
            // The link carries IP, and no questions for hardware addresses.
            let (_, other, its_hardware) = ENDS[1 - n];
            let dress = || {
                switch_offloads_off(device)?;
                ip(&format!("link set {device} address {hardware} mtu {mtu} up"))?;
                ip(&format!("neigh add {other} lladdr {its_hardware} dev {device} nud permanent"))
            };
            site.run(dress).unwrap();
            PumpPort { socket, tap: Tap::new(Vec::new(), WindowLimits::default()), mtu, capture_interface: 0 }
        });
        let ports = ports.collect();
        let link = PumpLink { link: Link::new(&config, 1, Seed(1)), ports, carries_ethernet: false };
        let pump = Pump::new(vec![link], BUFFERS, None).unwrap();
        let control = pump.control();
        EmulatedLink { control, pump: Some(std::thread::spawn(|| pump.run())), _engine: engine }
    }
}

impl EmulatedLink {
    /// It has no circuit, or that is up.
    pub fn is_up(&self) -> bool {
        self.control.with(|pump| pump.links().all(|link| link.circuit().is_none_or(|c| c.is_up()))).unwrap()
    }

    /// Why times measured over this link say nothing, if so: the machine was too busy to move its packets when they were due. The
    /// limits are those of a live run's record.
    pub fn lateness(&self) -> Option<String> {
        let (p99, worst) = self
            .control
            .with(|pump| {
                let worst = pump.lateness().worst().first().map_or(0.0, |(late, _)| late.as_millis_f64());
                (pump.lateness().quantile(0.99).as_millis_f64(), worst)
            })
            .unwrap();
        (p99 > MOST_LATE_P99_MS || worst > MOST_LATE_MS)
            .then(|| format!("1 % of the packets left more than {p99:.1} ms late, one {worst:.1} ms"))
    }

    /// Packets that it has delivered, both ways.
    pub fn packets(&self) -> u64 {
        let delivered = |link: &Link<Buffer>| -> u64 {
            link.directions()
                .iter()
                .flat_map(|d| d.receiver_counters())
                .map(|receiver| receiver.delivered_packets)
                .sum()
        };
        self.control.with(move |pump| pump.links().map(delivered).sum()).unwrap()
    }
}

impl Drop for EmulatedLink {
    fn drop(&mut self) {
        self.control.stop();
        self.pump.take().map(JoinHandle::join);
    }
}
