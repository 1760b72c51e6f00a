//! Times that a formula gives, to the nanosecond.

use crate::driver::{Arrival, HUB, TERMINAL, burst, drain, file, link, ms, ns, run, s, times, wake_until};
use bentpipe_link::link::Link;
use bentpipe_link::node::Node;
use bentpipe_link::queue::QueueLimit;
use bentpipe_net::buffer::Buffer;
use bentpipe_net::packet::Dummy;
use bentpipe_net::seed::Seed;
use bentpipe_net::time::Instant;

const GEO: &str = "rate = '2 Mbit/s'\none_way_delay = '250 ms'\n";

#[test]
fn one_packet_takes_propagation_plus_its_framed_bits() {
    // (framing, carries Ethernet, packet bytes, bytes (or bits) on the wire)
    let table: &[(&str, bool, usize, u64)] = &[
        ("{ type = 'none' }", false, 1500, 1500 * 8),
        ("{ type = 'ppp' }", false, 1500, 1507 * 8),
        ("{ type = 'ppp' }", true, 1514, 1523 * 8),
        ("{ type = 'ppp', flag_bytes = 2, fcs_bytes = 4 }", false, 1500, 1510 * 8),
        ("{ type = 'ppp', address_control_bytes = 0, protocol_bytes = 1 }", false, 1500, 1504 * 8),
        // Address and control make ten ones in a row, 1500 bytes of 0x55 and the protocol 0x0021 none: two stuffed bits.
        ("{ type = 'ppp', bit_stuffing = true }", false, 1500, 1507 * 8 + 2),
        // Control 0x03 and the protocol's 0x00 are escaped.
        ("{ type = 'async-ppp' }", false, 1500, 1509 * 10),
        ("{ type = 'async-ppp', escape_map = 0, bits_per_byte = 11 }", false, 1500, 1507 * 11),
        ("{ type = 'ethernet' }", false, 1500, 1538 * 8),
        ("{ type = 'ethernet' }", true, 1514, 1538 * 8),
        ("{ type = 'ethernet' }", false, 40, 84 * 8),
        ("{ type = 'ethernet', preamble_and_gap = false, minimum = false }", false, 40, 58 * 8),
        ("{ type = 'frame-relay' }", false, 1500, 1507 * 8),
        ("{ type = 'frame-relay', address_bytes = 4 }", true, 1514, 1529 * 8),
        ("{ type = 'frame-relay', trunk = { payload = '248 B', overhead = '8 B' } }", false, 1452, 1504 * 8),
    ];
    for (framing, ethernet, bytes, bits) in table {
        let carries = if *ethernet { "ethernet" } else { "ip" };
        // 7 Mbit/s: no packet takes a whole number of nanoseconds.
        let text = format!("carries = '{carries}'\nrate = '7 Mbit/s'\none_way_delay = '250 ms'\nframing = {framing}\n");
        let mut link: Link<Buffer> = Link::new(&file(&text).config().unwrap(), 1, Seed(1));
        link.receive(ms(5), HUB, Buffer::from_vec(vec![0x55; *bytes]));
        let mut now = link.next_wake();
        let arrival = loop {
            link.wake(now);
            match link.poll_transmit(now) {
                Some((port, packet)) => break (now, port, packet.as_slice().len()),
                None => now = link.next_wake(),
            }
        };
        let sending = (bits * 1_000_000_000).div_ceil(7_000_000);
        assert_eq!(arrival, (ns(5_000_000 + sending + 250_000_000), TERMINAL, *bytes), "{framing}");
        assert_eq!(link.directions()[0].sender_counters().link_bits, *bits, "{framing}");
    }
}

#[test]
fn a_train_leaves_at_the_exact_rate() {
    // 1000 packets of 12,056 bits at 7 Mbit/s: each ends at the ceiling of the exact time, with no error adding up.
    let mut link = link("rate = '7 Mbit/s'\none_way_delay = '250 ms'\nframing = 'ppp'\nqueue = { packets = 2000 }");
    let arrivals = run(&mut link, &burst(ms(0), HUB, 1, 1000, 1500), s(10));
    let times = times(&arrivals, TERMINAL);
    for id in 1..=1000u64 {
        let exact = (id * 12_056 * 1_000_000_000).div_ceil(7_000_000);
        assert_eq!(times[&id].ns, exact + 250_000_000, "packet {id}");
    }
}

#[test]
fn a_window_limits_the_rate_to_window_over_round_trip() {
    // Four packets of 1500 B in flight, each answered with 40 B: the cycle is 250 + 250 ms and both serialisations.
    let mut link = link(GEO);
    let mut sent = Vec::new();
    for id in 0..4 {
        link.receive(ms(0), HUB, Dummy::new(id, 1500));
        sent.push(ms(0));
    }
    let mut next = 4;
    let mut answered = Vec::new();
    while answered.len() < 40 {
        let due = link.next_wake();
        link.wake(due);
        while let Some((port, packet)) = link.poll_transmit(due) {
            if port == TERMINAL {
                link.receive(due, TERMINAL, Dummy::new(packet.id, 40));
            } else {
                answered.push((packet.id, due));
                link.receive(due, HUB, Dummy::new(next, 1500));
                next += 1;
            }
        }
    }
    // 12,000 bits take 6 ms at 2 Mbit/s, 320 bits 0.16 ms: packet n of a round is 6 ms after packet n - 1.
    let cycle = 500_000_000 + 6_000_000 + 160_000;
    for (i, (id, at)) in answered.iter().enumerate() {
        let (round, place) = (i as u64 / 4, i as u64 % 4);
        assert_eq!((*id, at.ns), (i as u64, (round + 1) * cycle + place * 6_000_000));
    }
}

#[test]
fn each_packet_of_a_bundle_takes_one_channel() {
    // 24 × 64 kbit/s: 30 packets of 1504 B. The first 24 end together at 188 ms, the other six 188 ms later.
    let mut link =
        link("bundle = { channels = 24, rate = '64 kbit/s' }\none_way_delay = '300 ms'\nqueue = { packets = 100 }");
    let arrivals = run(&mut link, &burst(ms(0), HUB, 0, 30, 1504), s(10));
    let expected: Vec<_> =
        (0..30).map(|id| Arrival { at: ms(if id < 24 { 488 } else { 676 }), port: TERMINAL, id }).collect();
    assert_eq!(arrivals, expected);
}

#[test]
fn a_short_packet_overtakes_on_a_bundle_and_only_there() {
    for (rate, first) in [("bundle = { channels = 2, rate = '64 kbit/s' }", 2), ("rate = '64 kbit/s'", 1)] {
        let mut link = link(&format!("{rate}\none_way_delay = '0 s'\n"));
        let mut offers = burst(ms(0), HUB, 1, 1, 1504);
        offers.extend(burst(ms(1), HUB, 2, 1, 40));
        assert_eq!(run(&mut link, &offers, s(1))[0].id, first);
    }
}

#[test]
fn a_full_queue_drops_exactly_what_does_not_fit() {
    // (limit, packets that may wait behind the one being sent)
    for (limit, waiting) in [("bytes = '15000 B'", 10), ("bytes = '14999 B'", 9), ("packets = 7", 7)] {
        let mut link = link(&format!("{GEO}queue = {{ {limit} }}\n"));
        let arrivals = run(&mut link, &burst(ms(0), HUB, 0, 20, 1500), s(10));
        let ids: Vec<u64> = arrivals.iter().map(|arrival| arrival.id).collect();
        assert_eq!(ids, (0..=waiting).collect::<Vec<_>>(), "{limit}: the tail is dropped");
        let counters = link.directions()[0].sender_counters();
        assert_eq!((counters.offered_packets, counters.dropped_packets), (20, 19 - waiting), "{limit}");
        assert_eq!(counters.queue_bytes_max, waiting * 1500, "{limit}");
    }
}

#[test]
fn a_small_packet_still_fits_where_a_large_one_does_not() {
    let mut link = link(&format!("{GEO}queue = {{ bytes = '3000 B' }}\n"));
    let mut offers = burst(ms(0), HUB, 0, 4, 1400);
    offers.extend(burst(ms(0), HUB, 4, 1, 200));
    let ids: Vec<u64> = run(&mut link, &offers, s(2)).iter().map(|arrival| arrival.id).collect();
    assert_eq!(ids, [0, 1, 2, 4]);
}

#[test]
fn a_queue_has_room_again_when_a_transmission_ends() {
    let mut link = link(&format!("{GEO}queue = {{ packets = 1 }}\n"));
    let mut offers = burst(ms(0), HUB, 0, 2, 1500);
    offers.extend(burst(ns(5_999_999), HUB, 2, 1, 1500));
    offers.extend(burst(ms(6), HUB, 3, 1, 1500));
    let arrivals = times(&run(&mut link, &offers, s(2)), TERMINAL);
    assert_eq!(arrivals.into_iter().collect::<Vec<_>>(), [(0, ms(256)), (1, ms(262)), (3, ms(268))]);
}

#[test]
fn the_default_queue_is_the_bandwidth_delay_product_or_ten_packets() {
    let queue = |text: &str| {
        let config = file(text).config().unwrap();
        (config.forward.queue.fifo_limit().unwrap(), config.back.queue.fifo_limit().unwrap())
    };
    // 2 Mbit/s × 0.5 s = 125,000 B; 64 kbit/s × 0.5 s = 4000 B is less than ten packets.
    let (forward, back) = queue("one_way_delay = '250 ms'\nforward.rate = '2 Mbit/s'\nreturn.rate = '64 kbit/s'\n");
    assert_eq!((forward, back), (QueueLimit::Bytes(125_000), QueueLimit::Bytes(15_000)));
    // The round trip counts, not twice the own delay.
    let (forward, back) =
        queue("rate = '8 Mbit/s'\nforward.one_way_delay = '300 ms'\nreturn.one_way_delay = '100 ms'\n");
    assert_eq!((forward, back), (QueueLimit::Bytes(400_000), QueueLimit::Bytes(400_000)));
    // All channels of a bundle, the highest rate of a schedule, whole frames on a bridge.
    assert_eq!(
        queue("bundle = { channels = 24, rate = '64 kbit/s' }\none_way_delay = '300 ms'").0,
        QueueLimit::Bytes(115_200)
    );
    let steps = "rate_schedule.steps = [{ at = '0 s', rate = '1 Mbit/s' }, { at = '9 s', rate = '8 Mbit/s' }]";
    assert_eq!(queue(&format!("{steps}\none_way_delay = '250 ms'")).0, QueueLimit::Bytes(500_000));
    assert_eq!(queue("carries = 'ethernet'\nrate = '1 kbit/s'\none_way_delay = '1 ms'").0, QueueLimit::Bytes(15_180));
    assert_eq!(queue("mtu = '500 B'\nrate = '2400 bit/s'\none_way_delay = '1 ms'").0, QueueLimit::Bytes(5_000));
}

#[test]
fn a_rate_step_takes_effect_inside_a_packet() {
    // 12,000 bits: 6000 of them at 1 Mbit/s, a second's pause, the rest at 3 Mbit/s.
    let mut link = link(
        "one_way_delay = '100 ms'\n[rate_schedule]\nrepeat = '10 s'\nsteps = [{ at = '0 s', rate = '1 Mbit/s' },
         { at = '6 ms', rate = '0 bit/s' }, { at = '1006 ms', rate = '3 Mbit/s' }]",
    );
    let mut offers = burst(ms(0), HUB, 0, 1, 1500);
    offers.extend(burst(s(20), HUB, 1, 1, 1500));
    let arrivals = times(&run(&mut link, &offers, s(60)), TERMINAL);
    assert_eq!((arrivals[&0], arrivals[&1]), (ms(1108), ms(21_108)), "and again in the third round");
}

#[test]
fn a_packet_is_lost_if_any_bit_of_it_falls_into_an_outage() {
    // 12,000 bits take 6 ms. The outage runs from 100 to 150 ms, and every second again.
    let text = format!("{GEO}outages = [{{ at = '100 ms', lasts = '50 ms', every = '1 s' }}]");
    // (offered, arrives)
    for (at, arrives) in [
        (ms(94), true),
        (ns(94_000_001), false),
        (ms(120), false),
        (ns(149_999_999), false),
        (ms(150), true),
        (ms(1094), true),
        (ns(1_094_000_001), false),
        (ms(5150), true),
        (ns(5_149_999_999), false),
    ] {
        let mut link = link(&text);
        let arrivals = run(&mut link, &burst(at, HUB, 0, 1, 1500), s(10));
        assert_eq!(!arrivals.is_empty(), arrives, "offered at {at:?}");
        let lost: u64 = link.directions()[0].receiver_counters().map(|c| c.lost_packets).sum();
        assert_eq!(lost, u64::from(!arrives));
    }
}

#[test]
fn a_link_with_nothing_to_do_is_idle_and_early_wakes_do_nothing() {
    let mut link = link(GEO);
    assert_eq!(link.next_wake(), Instant::FAR);
    link.receive(ms(0), HUB, Dummy::new(0, 1500));
    let mut arrivals = Vec::new();
    for at in [0, 1, 5_999_999] {
        link.wake(ns(at));
        drain(&mut link, ns(at), &mut arrivals);
        // The end of the transmission, after 6 ms, is seen by nobody.
        assert_eq!(link.next_wake(), ms(256));
    }
    wake_until(&mut link, Instant::FAR, &mut arrivals);
    assert_eq!(arrivals, [Arrival { at: ms(256), port: TERMINAL, id: 0 }]);
    assert_eq!(link.next_wake(), Instant::FAR);
}
