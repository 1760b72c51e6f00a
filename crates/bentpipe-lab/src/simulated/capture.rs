//! Captures of virtual runs: as live ones, but a stamp is the time since the case's start, so that two runs write the
//! same bytes.

use bentpipe_net::packet::DatagramPacket;
use bentpipe_net::pcapng::{LinkType, Passing, enhanced_packet, interface_description, section_header};
use bentpipe_net::time::Instant;
use bentpipe_net::topology::Plan;
use bentpipe_sim::network::Observer;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

/// A capture being written.
pub struct Capture {
    writer: Arc<Mutex<Writer>>,
}

struct Writer {
    out: BufWriter<File>,
    /// Number of an interface in the file, by site and interface.
    numbers: BTreeMap<(usize, usize), u32>,
    frame: Vec<u8>,
    block: Vec<u8>,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

/// The network's side of a capture.
struct Port {
    writer: Arc<Mutex<Writer>>,
}

impl Capture {
    /// Starts to write `path`, with one interface for each port of each link.
    pub fn create(path: &Path, plan: &Plan) -> io::Result<Capture> {
        let mut head = Vec::new();
        section_header(&mut head);
        let mut numbers = BTreeMap::new();
        for (link, (site, interface)) in plan.links.iter().flat_map(|link| link.ports.iter().map(move |p| (link, *p))) {
            numbers.insert((site, interface), numbers.len() as u32);
            let at = &plan.sites[site];
            // A link that carries IP has no frames to show.
            let kind = if at.interfaces[interface].fixed_neighbours { LinkType::Ip } else { LinkType::Ethernet };
            interface_description(&mut head, &format!("{}/{}", at.name, link.name), kind);
        }
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(&head)?;
        let writer = Writer { out, numbers, frame: Vec::new(), block: Vec::new(), error: None };
        Ok(Capture { writer: Arc::new(Mutex::new(writer)) })
    }

    /// The observer of the network's packets.
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(Port { writer: Arc::clone(&self.writer) })
    }

    /// Writes what waits; the first error of all.
    pub fn finish(self) -> io::Result<()> {
        let mut writer = self.writer.lock();
        match writer.error.take() {
            Some(error) => Err(error),
            None => writer.out.flush(),
        }
    }
}

impl Observer for Port {
    fn packet(&mut self, now: Instant, site: usize, interface: usize, outbound: bool, packet: &DatagramPacket) {
        let mut writer = self.writer.lock();
        let Writer { out, numbers, frame, block, error } = &mut *writer;
        let Some(number) = numbers.get(&(site, interface)).filter(|_| error.is_none()) else { return };
        frame.clear();
        packet.write(frame);
        block.clear();
        let passing = if outbound { Passing::Outbound } else { Passing::Inbound };
        enhanced_packet(block, *number, now.ns, passing, frame);
        *error = out.write_all(block).err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::datagram::{Body, Datagram};
    use bentpipe_net::packet::Packet;
    use bentpipe_net::topology::LinkSpec;

    /// A packet of so many bytes of data, and 28 of headers.
    fn packet(length: usize) -> DatagramPacket {
        let body = Body::Udp { source_port: 1, destination_port: 2, data: vec![7; length].into() };
        DatagramPacket::new(Datagram::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), body))
    }

    fn plan() -> Plan {
        let link = |name: &str, ethernet| LinkSpec {
            name: name.to_owned(),
            sites: vec!["hub".to_owned(), "pc".to_owned()],
            carries_ethernet: ethernet,
            mtu: 1500,
        };
        Plan::new(&[link("sat", false), link("lan", true)], &BTreeMap::new()).unwrap()
    }

    #[test]
    fn stamps_are_model_time_and_bits_are_inverted() {
        let path = std::env::temp_dir().join(format!("bentpipe-capture-test-{}.pcapng", std::process::id()));
        let capture = Capture::create(&path, &plan()).unwrap();
        let mut observer = capture.observer();
        let whole = packet(12);
        let mut damaged = whole.clone();
        damaged.invert_bit(9);
        observer.packet(Instant { ns: (5 << 32) + 6 }, 1, 0, true, &damaged);
        observer.packet(Instant { ns: 7 }, 0, 1, false, &whole);
        observer.packet(Instant { ns: 8 }, 0, 9, false, &whole);
        drop(observer);
        capture.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut expected = Vec::new();
        section_header(&mut expected);
        for (name, kind) in [
            ("hub/sat", LinkType::Ip),
            ("pc/sat", LinkType::Ip),
            ("hub/lan", LinkType::Ethernet),
            ("pc/lan", LinkType::Ethernet),
        ] {
            interface_description(&mut expected, name, kind);
        }
        let mut frame = Vec::new();
        whole.write(&mut frame);
        frame[1] ^= 0x40;
        enhanced_packet(&mut expected, 1, (5 << 32) + 6, Passing::Outbound, &frame);
        frame[1] ^= 0x40;
        enhanced_packet(&mut expected, 2, 7, Passing::Inbound, &frame);
        assert!(bytes == expected, "an interface that the plan lacks is passed over");
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end() {
        let Ok(capture) = Capture::create(Path::new("/dev/full"), &plan()) else { return };
        let mut observer = capture.observer();
        for _ in 0..100 {
            observer.packet(Instant::ZERO, 0, 0, true, &packet(972));
        }
        drop(observer);
        assert!(capture.finish().unwrap_err().to_string().contains("No space left"));
        assert!(Capture::create(Path::new("/proc/nothing/x"), &plan()).is_err());
    }
}
