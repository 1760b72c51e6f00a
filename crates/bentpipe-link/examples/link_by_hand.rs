//! A catalogue link driven by hand: packets in, arrivals out, the clock jumping from one event to the next.

use bentpipe_link::catalogue;
use bentpipe_link::link::Link;
use bentpipe_link::node::{Node, Port};
use bentpipe_net::packet::Dummy;
use bentpipe_net::problem::Problem;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::{Duration, Instant};

fn main() -> Result<(), Problem> {
    let Some(file) = catalogue::named("geo-two-way") else { return Ok(()) };
    let mut link: Link<Dummy> = Link::new(&file?.config()?, 1, Seed(7));
    // Ten full packets from the hub (port 0), one every millisecond.
    let mut offers = (0..10).map(|id| (Instant::ZERO + Duration::from_millis(id), Dummy::new(id, 1500))).peekable();
    loop {
        let offered = offers.peek().map_or(Instant::FAR, |(at, _)| *at);
        let now = offered.min(link.next_wake());
        if now == Instant::FAR {
            break;
        }
        link.wake(now);
        if let Some((_, packet)) = offers.next_if(|(at, _)| *at <= now) {
            link.receive(now, Port(0), packet);
        }
        while let Some((Port(port), packet)) = link.poll_transmit(now) {
            println!("packet {} reaches port {port} at {:.3} ms", packet.id, now.as_secs_f64() * 1e3);
        }
    }
    Ok(())
}
