//! What happens to lost segments.

use super::*;

const LONG: Duration = Duration::from_secs(100_000);
const MSS: u64 = 1448;

/// The client's transfer of `segments` with the data segments numbered `lost` dropped (counting repetitions).
fn lossy(text: &str, segments: u64, lost: &'static [u64]) -> (Pipe, Duration) {
    let mut pipe = Pipe::new(text, text, 100);
    pipe.drop =
        Box::new(move |end, number, segment| end == 0 && segment.payload.length() > 0 && lost.contains(&number));
    let end = pipe.transfer(segments * MSS, LONG).unwrap();
    (pipe, end - Instant::ZERO)
}

/// How often the client sent each data byte's segment more than once.
fn repeats(pipe: &Pipe) -> usize {
    let data = pipe.data();
    let mut seen = std::collections::BTreeSet::new();
    data.iter().filter(|(_, first, _)| !seen.insert(*first)).count()
}

#[test]
fn one_loss_costs_one_retransmission() {
    for text in [
        "",
        "rack = false",
        "sack = false",
        "sack = false\nrecovery = 'reno'",
        "proportional_rate_reduction = false",
        "rack = false\nlimited_transmit = false",
        "congestion_control = 'bbr'",
    ] {
        let (pipe, time) = lossy(text, 200, &[30]);
        assert_eq!(repeats(&pipe), 1, "{text}");
        assert!(time < Duration::from_millis(2400), "{text}: {time}");
    }
}

/// Duplicates need the window to stay as it is (RFC 5681 §2). Linux lets one that it tunes itself grow with data that waits out
/// of order only where SACK tells of losses (tcp_data_queue_ofo).
#[test]
fn a_window_left_to_the_system_does_not_hide_duplicates() {
    for sack in [true, false] {
        let took = |window: &str| {
            let (pipe, time) = lossy(&format!("sack = {sack}\n{window}"), 10, &[3]);
            assert_eq!(repeats(&pipe), 1, "{sack} {window}");
            time
        };
        let (tuned, fixed) = (took(""), took("receive_window = '64 KiB'"));
        assert_eq!(tuned, fixed, "SACK {sack}");
        assert!(tuned < Duration::from_millis(700), "SACK {sack}: {tuned}: a time-out");
    }
}

/// What the client did about one lost segment of 400 while each acknowledgement came by itself.
struct OneLoss {
    /// Window at the loss, threshold after it, in segments.
    window: u32,
    threshold: u32,
    /// Data segments sent at each acknowledgement during recovery, the first one's repetition included.
    sends: Vec<usize>,
}

fn one_loss(text: &str, lost: u64) -> OneLoss {
    let text = format!("{text}\nack_every = 1");
    let mut pipe = Pipe::new(&text, &text, 100);
    pipe.drop = Box::new(move |end, number, segment| end == 0 && segment.payload.length() > 0 && number == lost);
    pipe.run(Instant::ZERO + Duration::from_millis(300));
    let mut given = pipe.write(0, 400 * MSS);
    let mut seen = OneLoss { window: 0, threshold: 0, sends: Vec::new() };
    while pipe.received < 400 * MSS {
        let client = pipe.ends[0].as_ref().unwrap();
        let (window, was) = (client.window(), client.repair);
        let to = pipe.flying.iter().min_by_key(|(at, number, ..)| (*at, *number)).map(|(_, _, to, _)| *to);
        let sent = pipe.data().len();
        assert!(pipe.step(Instant::ZERO + LONG));
        given += pipe.write(given, 400 * MSS);
        let client = pipe.ends[0].as_ref().unwrap();
        let begins = was < Repair::Recovery && client.repair == Repair::Recovery;
        if begins {
            assert!(seen.sends.is_empty(), "{text}: one recovery");
            (seen.window, seen.threshold) = (window.cwnd, client.window().ssthresh);
        }
        if to == Some(0) && (begins || was == Repair::Recovery && client.repair == Repair::Recovery) {
            seen.sends.push(pipe.data().len() - sent);
        }
    }
    assert_eq!(pipe.ends[0].as_ref().unwrap().window().ssthresh, seen.threshold, "{text}");
    seen
}

/// RFC 5681 §3.1: half of the window; RFC 9438 §4.6: 70 % of it.
#[test]
fn the_window_falls_as_the_controller_says() {
    for (text, share) in [("congestion_control = 'reno'", 0.5), ("", 0.7)] {
        for lost in [30, 100] {
            let seen = one_loss(text, lost);
            assert!(seen.window > 30, "{text}: {}", seen.window);
            let expected = f64::from(seen.window) * share;
            let found = f64::from(seen.threshold);
            assert!((found - expected).abs() <= 1.0, "{text}: {found} of {}", seen.window);
        }
    }
}

/// RFC 6937 §1: with proportional rate reduction, a recovery that halves the window sends at every second acknowledgement;
/// without it, nothing until half of the window has left the network (RFC 6675 §5), then at every one.
#[test]
fn proportional_rate_reduction_spreads_what_recovery_sends() {
    let sends = |on: bool| {
        let seen = one_loss(&format!("congestion_control = 'reno'\nproportional_rate_reduction = {on}"), 100);
        assert!(seen.window >= 60 && seen.sends.len() >= 60, "{} {:?}", seen.window, seen.sends);
        // RFC 6675 §5 step 4.3, RFC 6937 §3.
        assert_eq!(seen.sends[0], 1, "the repetition goes at once: {:?}", seen.sends);
        (seen.window as usize, seen.sends)
    };
    let longest_silence = |sends: &[usize]| sends.split(|n| *n > 0).map(<[usize]>::len).max();
    let (window, on) = sends(true);
    assert!(longest_silence(&on) <= Some(2) && on.iter().all(|n| *n <= 1), "{on:?}");
    assert!(on.iter().sum::<usize>().abs_diff(window / 2) <= 3, "{window}: {on:?}");
    let (window, off) = sends(false);
    let silence = off[1..].iter().take_while(|n| **n == 0).count();
    assert!((window / 2 - 6..=window / 2).contains(&silence), "{window}: {off:?}");
    assert!(off[1 + silence..].iter().all(|n| *n == 1), "{off:?}");
}

#[test]
fn many_losses_in_one_window_are_repaired_without_a_timeout() {
    let lost: &[u64] = &[40, 42, 44, 46, 48, 50];
    for (text, most_ms) in [("", 2000), ("rack = false", 2000), ("sack = false", 3000)] {
        let (pipe, time) = lossy(text, 200, lost);
        assert_eq!(repeats(&pipe), 6, "{text}");
        assert!(time < Duration::from_millis(most_ms), "{text}: {time}");
    }
    // Reno leaves recovery at the first partial acknowledgement and needs a time-out or several recoveries; Tahoe starts
    // over and repeats more than was lost.
    let (_, newreno) = lossy("sack = false", 200, lost);
    let (_, reno) = lossy("sack = false\nrecovery = 'reno'", 200, lost);
    let (tahoe, time) = lossy("sack = false\nrecovery = 'tahoe'", 200, lost);
    assert!(reno > newreno, "{reno} after {newreno}");
    assert!(repeats(&tahoe) > 6 && time < reno, "{} repeats, {time} and {reno}", repeats(&tahoe));
}

#[test]
fn tahoe_starts_over() {
    let (pipe, _) = lossy("sack = false\nrecovery = 'tahoe'\nack_every = 1", 300, &[30]);
    let data = pipe.data();
    let again = data.iter().position(|(_, first, _)| data.iter().filter(|d| d.1 == *first).count() > 1);
    let at = data.iter().rposition(|d| d.1 == data[again.unwrap()].1).unwrap();
    // The repetition goes alone: a window of one segment.
    assert!(data.get(at + 1).is_none_or(|next| next.0 > data[at].0), "{:?}", &data[at - 2..at + 3]);
}

#[test]
fn a_lost_retransmission_is_found_by_rack_and_costs_others_a_timeout() {
    // Segment 30 and its first repetition (whose number is what had been sent by then).
    let first = lossy("ack_every = 1", 300, &[30]).0;
    let data = first.data();
    let repeated = data.iter().enumerate().rfind(|(_, d)| d.1 == 30 * MSS).unwrap().0 as u64;
    let lost: &'static [u64] = Box::leak(Box::new([30, repeated]));
    let (_, rack) = lossy("ack_every = 1", 300, lost);
    let (_, without) = lossy("ack_every = 1\nrack = false", 300, lost);
    assert!(rack < Duration::from_millis(3000), "{rack}");
    assert!(without > rack, "{without} after {rack}");
}

#[test]
fn a_lost_tail_is_probed() {
    let tail_lost = |text: &str| {
        let mut pipe = Pipe::new(text, text, 20);
        // The last two of 30 segments.
        pipe.drop = Box::new(|end, number, segment| end == 0 && segment.payload.length() > 0 && number / 2 == 14);
        pipe.transfer(30 * MSS, LONG).unwrap() - Instant::ZERO
    };
    let (with, without) = (tail_lost(""), tail_lost("tail_loss_probe = false"));
    // Linux's time-out is the round trip and 200 ms more; a probe goes after two round trips (80 ms), unless
    // one segment is all there is.
    assert!(with + Duration::from_millis(50) < without, "{with} with, {without} without");
}

#[test]
fn limited_transmit_gets_small_windows_out_of_trouble() {
    // A fixed window: a changed one would not count as a duplicate (RFC 5681 §2).
    // Four segments, the first two lost: two duplicates are not enough without new segments.
    let text = "sack = false\ninitial_window = 2\nack_every = 1\ncongestion_control = 'reno'\n\
                receive_window = '60 KB'";
    let (_, with) = lossy(text, 40, &[2, 3]);
    let (_, without) = lossy(&format!("{text}\nlimited_transmit = false"), 40, &[2, 3]);
    assert!(with < without, "{with} with, {without} without");
}

#[test]
fn without_fast_retransmit_every_loss_is_a_timeout() {
    let text = "sack = false\nfast_retransmit = false\nrto_estimator = 'rfc6298'\nfrto = false";
    let (pipe, time) = lossy(text, 100, &[30]);
    assert!(time > Duration::from_millis(1500), "{time}: at least the time-out of 1 s");
    assert!(repeats(&pipe) >= 1);
}

/// The link stands still until 2.4 s, but loses nothing. The client has ten segments on their way; returns its slow-start
/// threshold afterwards and how many segments it sent twice.
fn after_a_pause(text: &str) -> (u32, usize) {
    let text = format!("{text}\ntail_loss_probe = false\nack_every = 1");
    let mut pipe = Pipe::new(&text, &text, 100);
    pipe.run(Instant::ZERO + Duration::from_millis(300));
    pipe.hold = Instant::ZERO + Duration::from_millis(2400);
    let mut given = pipe.write(0, 300 * MSS);
    while pipe.received < 300 * MSS {
        given += pipe.write(given, 300 * MSS);
        assert!(pipe.step(Instant::ZERO + LONG));
    }
    assert_eq!(pipe.wrong, 0);
    (pipe.ends[0].as_ref().unwrap().window().ssthresh, repeats(&pipe))
}

#[test]
fn a_timeout_that_was_too_early_is_taken_back() {
    for (frto, timestamps, taken_back) in [
        (true, false, true),
        // Eifel (RFC 3522) needs no more than the echo of a timestamp.
        (false, true, true),
        (true, true, true),
        (false, false, false),
    ] {
        for sack in [true, false] {
            let text = format!("sack = {sack}\ntimestamps = {timestamps}\nfrto = {frto}");
            let (threshold, repeats) = after_a_pause(&text);
            // The timer fires twice. Without a sign that this was too early, all ten segments go again.
            assert_eq!(
                (threshold == u32::MAX, repeats == 2),
                (taken_back, taken_back),
                "{text}: {threshold}, {repeats}"
            );
            assert!(taken_back || threshold < 10 && repeats >= 10, "{text}: {threshold}, {repeats}");
        }
    }
}

#[test]
fn a_narrower_path_cuts_segments() {
    let mut pipe = Pipe::new("", "", 100);
    pipe.run(Instant::ZERO + Duration::from_millis(300));
    pipe.drop = Box::new(|_, _, segment| segment.payload.length() > 948);
    pipe.write(0, 20 * MSS);
    pipe.run(Instant::ZERO + Duration::from_millis(320));
    pipe.with(0, |connection, output| connection.lower_mtu(1000, output));
    pipe.run(Instant::ZERO + Duration::from_secs(10));
    assert_eq!((pipe.received, pipe.wrong), (20 * MSS, 0));
}

#[test]
fn ecn_halves_the_window_once_a_round_trip() {
    let text = "ecn = true\ncongestion_control = 'reno'";
    let mut pipe = Pipe::new(text, text, 100);
    pipe.run(Instant::ZERO + Duration::from_millis(300));
    assert!(pipe.log[0].2.has(flag::ECE | flag::CWR) && pipe.log[1].2.has(flag::ECE));
    pipe.write(0, 20 * MSS);
    let index = pipe.flying.iter().position(|(_, _, to, s)| *to == 1 && s.payload.length() > 0).unwrap();
    let (_, _, _, segment) = pipe.flying.remove(index);
    pipe.now += Duration::from_millis(100);
    pipe.with(1, |connection, output| connection.segment(&mut segment.clone(), 3, output));
    pipe.run(pipe.now + Duration::from_secs(2));
    let window = pipe.ends[0].as_ref().unwrap().window();
    assert!(window.ssthresh <= 12, "{window:?}");
    assert!(pipe.log.iter().any(|(_, end, s)| *end == 0 && s.has(flag::CWR) && !s.has(flag::SYN)));
    assert_eq!(pipe.received, 20 * MSS);
}

/// A whole flight is lost. What is sent after the time-out arrives, which says nothing of what was sent before it.
#[test]
fn new_data_after_a_timeout_is_no_sign_of_a_needless_one() {
    for text in ["tail_loss_probe = false\nack_every = 1", "sack = false\nack_every = 1"] {
        let (pipe, _) =
            lossy(text, 200, &[10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29]);
        let window = pipe.ends[0].as_ref().unwrap().window();
        assert!(window.ssthresh < 20, "{text}: the reduction stays: {window:?}");
    }
}

/// The client has sent ten segments; the acknowledgement of all of them tells of a duplicate.
fn told_of_a_duplicate(prepare: impl FnOnce(&mut Connection)) -> Pipe {
    let mut pipe = Pipe::new("", "", 100);
    pipe.run(Instant::ZERO + Duration::from_millis(300));
    pipe.write(0, 10 * MSS);
    pipe.flying.clear();
    pipe.with(0, |connection, output| {
        prepare(connection);
        let first = connection.initial_sequence.wrapping_add(1);
        let past = first.wrapping_add(10 * MSS as u32);
        let mut blocks = bentpipe_net::datagram::SackBlocks::default();
        blocks.push(first, first.wrapping_add(MSS as u32));
        let segment = Segment {
            sequence: connection.peer_sequence.wrapping_add(1),
            acknowledgement: past,
            flags: flag::ACK,
            window: 1000,
            timestamps: Some((connection.recent_timestamp, output::clock(output.now))),
            sack: Some(Box::new(blocks)),
            ..Segment::default()
        };
        connection.segment(&mut segment.clone(), 0, output);
        assert_eq!(connection.una, 1 + 10 * MSS);
    });
    pipe
}

#[test]
fn duplicates_widen_the_reordering_window_only_where_something_was_reordered() {
    let rack = |prepare: fn(&mut Connection)| {
        let pipe = told_of_a_duplicate(prepare);
        let rack = &pipe.ends[0].as_ref().unwrap().rack;
        (rack.reordering_seen, rack.steps)
    };
    assert_eq!(rack(|_| {}), (false, 1));
    assert_eq!(rack(|connection| connection.rack.reordering_seen = true), (true, 2));
    assert_eq!(
        rack(|connection| {
            connection.rack.reordering_seen = true;
            // A probe that repeated the first segment.
            connection.probe = Some(LossProbe { high: 1 + MSS, repeats: true });
        }),
        (true, 1)
    );
}

/// The peer takes its window back with ten segments on their way: a probe that cannot be sent is none, and the
/// retransmission timer takes over.
#[test]
fn a_window_taken_back_lets_no_probe_out() {
    let mut pipe = Pipe::new("", "", 100);
    pipe.run(Instant::ZERO + Duration::from_millis(300));
    pipe.write(0, 10 * MSS);
    pipe.flying.clear();
    pipe.now += Duration::from_millis(100);
    let sent = pipe.data().len();
    pipe.with(0, |connection, output| {
        let segment = Segment {
            sequence: connection.peer_sequence.wrapping_add(1),
            acknowledgement: connection.initial_sequence.wrapping_add(1 + MSS as u32),
            flags: flag::ACK,
            window: 0,
            timestamps: Some((connection.recent_timestamp, output::clock(output.now))),
            ..Segment::default()
        };
        connection.segment(&mut segment.clone(), 0, output);
    });
    let (timer, at) = pipe.ends[0].as_ref().unwrap().timer.unwrap();
    assert_eq!(timer, Timer::LossProbe);
    pipe.now = at;
    pipe.with(0, |connection, output| connection.wake(output));
    assert_eq!(pipe.data().len(), sent);
    let connection = pipe.ends[0].as_ref().unwrap();
    assert!(connection.probe.is_none());
    assert!(matches!(connection.timer, Some((Timer::Retransmit, _))), "{:?}", connection.timer);
}
