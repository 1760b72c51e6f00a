//! A queue discipline and an impairment that exist nowhere else, one file and one registry line each, over real packets and in
//! virtual time.

#[path = "../../bentpipe-link/examples/own_kinds/every_nth.rs"]
mod every_nth;
#[path = "../../bentpipe-link/examples/own_kinds/newest_first.rs"]
mod newest_first;

use bentpipe_host::emulation::{self, Emulation};
use bentpipe_host::namespace::Privilege;
use bentpipe_link::catalogue::LinkFile;
use bentpipe_link::config::LinkConfig;
use bentpipe_link::registry::Registry;
use bentpipe_net::socket::{Program, SocketId, Sockets};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::LinkSpec;
use bentpipe_sim::network::{Network, Setup};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

const PORT: u16 = 7000;
const PACKETS: u8 = 8;
/// Packet 0 is transmitted at once; 1 is the oldest when the eighth comes; of the others, each third transmission is lost.
const EXPECTED: [u8; 5] = [0, 7, 5, 4, 2];

fn link() -> (LinkSpec, LinkConfig) {
    let registry = Registry::standard()
        .with_queue("newest-first", newest_first::read)
        .with_impairment("every-nth", every_nth::read);
    let text = "title = 't'\nrate = '64 kbit/s'\none_way_delay = '100 ms'\n[return]\n\
                queue = { kind = 'newest-first', packets = 6 }\n\
                [[return.impairments]]\nkind = 'every-nth'\npackets = 3\ndelay = '50 ms'\n";
    let config = LinkFile::parse_with("own", "own.toml", text, &registry).and_then(|file| file.config()).unwrap();
    let sites = ["hub", "ship"].map(str::to_owned).to_vec();
    (LinkSpec { name: "sat".into(), sites, carries_ethernet: false, mtu: 1500 }, config)
}

fn datagram(number: u8) -> Vec<u8> {
    vec![number; 972]
}

/// Sends all datagrams at once, or receives them.
enum Udp {
    Sender { to: SocketAddr, done: bool },
    Receiver { socket: Option<SocketId>, arrived: Arc<Mutex<Vec<(u8, Instant)>>> },
}

impl Program for Udp {
    fn poll(&mut self, now: Instant, sockets: &mut dyn Sockets) {
        match self {
            Udp::Sender { to, done } => {
                let socket = sockets.open_datagram(0).unwrap();
                for number in 0..PACKETS {
                    assert_eq!(sockets.send_to(socket, *to, &datagram(number)), Ok(true));
                }
                *done = true;
            }
            Udp::Receiver { socket, arrived } => {
                let socket = *socket.get_or_insert_with(|| sockets.open_datagram(PORT).unwrap());
                let mut data = [0; 2000];
                while let Ok(Some(_)) = sockets.receive_from(socket, &mut data) {
                    arrived.lock().unwrap().push((data[0], now));
                }
            }
        }
    }
    fn next_wake(&self) -> Option<Instant> {
        None
    }
    fn is_done(&self) -> bool {
        matches!(self, Udp::Sender { done: true, .. })
    }
}

#[test]
fn own_kinds_run_in_virtual_time() {
    let mut network: Network<Udp> = Network::new(&Setup { links: vec![link()], seed: 1, ..Setup::default() }).unwrap();
    let hub = SocketAddr::new(network.plan().address(0).unwrap().into(), PORT);
    let arrived = Arc::new(Mutex::new(Vec::new()));
    network.start(0, Udp::Receiver { socket: None, arrived: Arc::clone(&arrived) });
    network.start(1, Udp::Sender { to: hub, done: false });
    for second in 1..5 {
        network.run_until(Instant::ZERO + Duration::from_secs(second));
    }
    let arrived = arrived.lock().unwrap();
    assert_eq!(arrived.iter().map(|(number, _)| *number).collect::<Vec<_>>(), EXPECTED);
    // 1000 B at 64 kbit/s, then 100 ms and the impairment's 50 ms.
    assert_eq!(arrived[0].1, Instant::ZERO + Duration::from_millis(125 + 150));
    let counters = network.links()[0].directions()[1].sender_counters();
    assert_eq!((counters.dropped_packets, counters.sent_packets), (1, 7));
}

#[test]
fn own_kinds_run_over_real_packets() {
    let setup = emulation::Setup { links: vec![link()], seed: 1, ..emulation::Setup::default() };
    let emulation = match Emulation::start(&setup, Privilege::Root) {
        Ok(emulation) => emulation,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let hub = emulation.plan.address(0).unwrap();
    let receiver = emulation.namespace(0).run(|| UdpSocket::bind((hub, PORT))).unwrap();
    receiver.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    let send = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        (0..PACKETS).try_for_each(|number| socket.send_to(&datagram(number), (hub, PORT)).map(drop))
    };
    emulation.namespace(1).run(send).unwrap();
    let mut data = [0; 2000];
    let arrived: Vec<u8> = std::iter::from_fn(|| receiver.recv(&mut data).ok().map(|_| data[0])).collect();
    let outcome = emulation.finish();
    assert_eq!(arrived, EXPECTED);
    assert_eq!(outcome.pump.links[0].link.directions()[1].sender_counters().dropped_packets, 1);
}
