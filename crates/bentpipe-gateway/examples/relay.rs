//! A pair of gateways between two sites in memory: a client's request is intercepted at one and relayed to a server at the
//! other, over a link that delays each datagram by 300 ms.
//!
//! `cargo run -p bentpipe-gateway --example relay`

#[path = "../tests/relay/site.rs"]
#[allow(dead_code)] // the relay's tests use more of it
mod site;

use bentpipe_gateway::satellite::quic::{Crypto, QuicSatellite};
use bentpipe_gateway::satellite::{SatelliteConfig, Side};
use bentpipe_gateway::{Gateway, GatewayConfig, Settings};
use bentpipe_link::framing::Framing;
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::units::BitRate;
use site::{Server, Site};
use std::collections::BTreeMap;
use std::error::Error;

const ADDRESSES: [&str; 2] = ["198.51.100.2:4433", "198.51.100.1:4433"];
const DELAY: Duration = Duration::from_millis(300);

fn gateway(side: Side) -> Result<Gateway, Box<dyn Error>> {
    let settings = Settings::default();
    let satellite = SatelliteConfig {
        side,
        rate: Some(BitRate::from_bps(10_000_000)),
        framing: Framing::None,
        round_trip: DELAY + DELAY,
        mtu: 1500,
        loss: 0.0,
        dial_up: false,
        dials: false,
        hold: settings.hold,
        connections: settings.connections,
        memory: settings.memory.total,
    };
    let mut config = GatewayConfig::with_settings(satellite, settings);
    config.local_port = 4433;
    // A model of the handshake, which both sides seed alike: virtual runs draw no random numbers of the system.
    let quic = QuicSatellite::new(Instant::ZERO, config.satellite.clone(), Crypto::Model(7), 1)?;
    Ok(Gateway::new(config, Box::new(quic)))
}

/// Polls both gateways at their times, and carries their datagrams, until `end`.
fn run(
    gateways: &mut [Gateway; 2],
    sites: &mut [Site; 2],
    link: &mut BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    now: &mut Instant,
    end: Instant,
) -> Result<(), Box<dyn Error>> {
    let mut sent = link.len() as u64;
    loop {
        for side in 0..2 {
            gateways[side].poll(*now, &mut sites[side]);
            for (_, datagram) in sites[side].outgoing.drain(..) {
                sent += 1;
                link.insert((*now + DELAY, sent), (1 - side, datagram));
            }
        }
        let arrival = link.keys().next().map(|(at, _)| *at);
        let due = gateways.iter().filter_map(GatewayProgram::next_wake).chain(arrival).min();
        let Some(due) = due.filter(|due| *due <= end) else {
            *now = end;
            return Ok(());
        };
        *now = due.max(*now);
        while let Some(entry) = link.first_entry().filter(|entry| entry.key().0 <= *now) {
            let (side, datagram) = entry.remove();
            sites[side].incoming.push_back((ADDRESSES[1 - side].parse()?, datagram));
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut gateways = [gateway(Side::Terminal(ADDRESSES[1].parse()?))?, gateway(Side::Hub)?];
    let mut sites = ADDRESSES.map(Site::new);
    let (mut link, mut now) = (BTreeMap::new(), Instant::ZERO);
    let seconds = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    run(&mut gateways, &mut sites, &mut link, &mut now, seconds(3))?;
    println!("connected after 3 s: {}", gateways[0].metrics().connected);

    sites[1].servers.insert("10.1.0.2:80".parse()?, Server::Accepts);
    let request = sites[0].request("10.0.0.2:40000", "10.1.0.2:80", 0);
    run(&mut gateways, &mut sites, &mut link, &mut now, seconds(4))?;
    let client = sites[0].answered(request).ok_or("the request was not answered")?;
    let server = sites[1].made[0];
    println!("the server sees {}", sites[1].sockets[&server].local);

    sites[0].host_send(client, b"hello");
    run(&mut gateways, &mut sites, &mut link, &mut now, seconds(5))?;
    println!("the server hears {:?}", String::from_utf8_lossy(&sites[1].host_receive(server, 100)));
    let metrics = gateways[0].metrics();
    println!(
        "{} connection relayed, {} B taken, {} B on the link",
        metrics.relayed, metrics.bytes_taken, metrics.satellite.link_bytes_sent
    );
    Ok(())
}
