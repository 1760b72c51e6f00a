//! A queue discipline and an impairment of one's own: one file each, one line of the registry each.

mod every_nth;
mod newest_first;

use bentpipe_link::catalogue::LinkFile;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_link::registry::Registry;
use bentpipe_net::packet::Dummy;
use bentpipe_net::problem::Problem;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::Instant;

const LINK: &str = r#"
title = "64 kbit/s over a satellite"
rate = "64 kbit/s"
one_way_delay = "250 ms"
queue = { kind = "newest-first", packets = 6 }
impairments = [{ kind = "every-nth", packets = 3, delay = "50 ms" }]
"#;

fn main() -> Result<(), Problem> {
    let registry = Registry::standard()
        .with_queue("newest-first", newest_first::read)
        .with_impairment("every-nth", every_nth::read);
    let config = LinkFile::parse_with("example", "example.toml", LINK, &registry)?.config()?;
    let mut link: Link<Dummy> = Link::new(&config, 1, Seed(1));
    for id in 0..8 {
        link.receive(Instant::ZERO, Port(0), Dummy::new(id, 1000));
    }
    let mut now = link.next_wake();
    while now != Instant::FAR {
        link.wake(now);
        while let Some((_, packet)) = link.poll_transmit(now) {
            println!("packet {} arrives at {:.3} s", packet.id, now.as_secs_f64());
        }
        now = link.next_wake();
    }
    println!("{:?}", link.directions()[0].sender_counters());
    Ok(())
}
