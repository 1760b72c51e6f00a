//! What relaying costs the processor: downloads through both gateways over the satellite side, in virtual time, without a kernel.
//!
//! `cargo bench -p bentpipe-gateway --bench relay [MEGABYTES]`

#![allow(dead_code)]

#[path = "../tests/relay/pair.rs"]
mod pair;
#[path = "../tests/relay/site.rs"]
mod site;
#[path = "../tests/relay/world.rs"]
mod world;

use bentpipe_gateway::Compression;
use bentpipe_net::socket::SocketId;
use bentpipe_net::units::BitRate;
use world::{FAR, NEAR, World, noise};

/// Seconds that this process has used (proc(5), the fields utime and stime, in hundredths).
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = text.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn main() {
    let megabytes = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(400_usize);
    for (streams, loss) in [(1, 0.0), (1, 0.01), (32, 0.0), (32, 0.01)] {
        let mut world = World::quic(1, loss, |config| {
            config.settings.compression = Compression::Off;
            config.satellite.loss = loss;
            config.satellite.rate = Some(BitRate::from_bps(250_000_000));
        });
        world.run_ms(3_000);
        for site in &mut world.sites {
            site.buffer = 1 << 20;
        }
        let ends: Vec<(SocketId, SocketId)> = (0..streams)
            .map(|_| {
                let made = world.sites[FAR].made.len();
                let request = world.ask(site::Server::Accepts);
                while world.sites[NEAR].answered(request).is_none() {
                    world.run_ms(50);
                }
                (world.sites[NEAR].answered(request).unwrap(), world.sites[FAR].made[made])
            })
            .collect();
        let each = megabytes * 1_000_000 / streams;
        let data = noise(1, 1 << 20);
        let (begun, mut sent, mut got) = (processor(), vec![0; streams], vec![0; streams]);
        while got.iter().any(|got| *got < each) {
            for (index, (client, server)) in ends.iter().enumerate() {
                let rest = (each - sent[index]).min(data.len());
                sent[index] += world.sites[FAR].host_send(*server, &data[..rest]);
                got[index] += world.sites[NEAR].host_receive(*client, usize::MAX).len();
            }
            world.run_ms(5);
        }
        let seconds = (processor() - begun) * 1000.0 / megabytes as f64;
        println!("{streams} streams, loss {:.0} %: {seconds:.2} s a gigabyte, both gateways", loss * 100.0);
    }
}
