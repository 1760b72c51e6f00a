//! Opening, slow start, windows, Nagle, probes, closing, time-outs.

use super::*;

const LONG: Duration = Duration::from_secs(100_000);
const MSS: u64 = 1448;

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

#[test]
fn the_handshake_agrees_on_options() {
    let mut pipe = Pipe::new("", "sack = false\nreceive_window = '8 KiB'", 250);
    pipe.run(ms(800));
    let syn = pipe.log[0].2.syn.unwrap();
    assert_eq!((syn.mss, syn.sack_permitted, syn.window_scale), (Some(1460), true, Some(9)));
    let answer = &pipe.log[1].2;
    assert_eq!((answer.has(flag::SYN | flag::ACK), answer.window), (true, 8192 / 1448 * 1448));
    let client = pipe.ends[0].as_ref().unwrap();
    assert_eq!((client.state(), client.mss, client.sack, client.timestamps), (State::Established, 1448, false, true));
    assert_eq!(client.times().0, Duration::from_millis(500), "the handshake measures the round trip");
    assert_eq!(pipe.ends[1].as_ref().unwrap().state(), State::Established);
    assert_eq!(pipe.log.len(), 3);
}

/// RFC 5681 §3.1 with an ACK for every segment counted: 1, 2, 4, 8, … every round trip.
#[test]
fn slow_start_doubles_every_round_trip() {
    for initial in [1, 2, 4, 10] {
        let text = format!("initial_window = {initial}\nack_every = 1");
        let mut pipe = Pipe::new(&text, "ack_every = 1", 300);
        pipe.transfer(400 * MSS, LONG).unwrap();
        let bursts = pipe.bursts();
        let expected: Vec<(u64, usize)> = (0..5).map(|round| (600 + round * 600, initial << round)).collect();
        assert_eq!(bursts[..5].iter().take_while(|(_, n)| *n < 150).count(), {
            let full = expected.iter().take_while(|(_, n)| *n < 150).count();
            assert_eq!(bursts[..full], expected[..full], "initial window {initial}");
            full
        });
    }
}

/// With an ACK for every second segment and a window that grows by one segment an ACK, slow start grows by half.
#[test]
fn without_byte_counting_delayed_acks_slow_the_start() {
    let text = "initial_window = 2\nbyte_counting = 0\nquick_acks = 0\ncongestion_control = 'reno'";
    let mut pipe = Pipe::new(text, "quick_acks = 0\ndelayed_ack = '200 ms'", 300);
    pipe.transfer(100 * MSS, LONG).unwrap();
    let counts: Vec<usize> = pipe.bursts().iter().map(|(_, n)| *n).collect();
    assert_eq!(counts[..2], [2, 3], "{counts:?}");
    let mut counted = Pipe::new(&text.replace("byte_counting = 0", "byte_counting = 2"), "quick_acks = 0", 300);
    counted.transfer(100 * MSS, LONG).unwrap();
    let counts: Vec<usize> = counted.bursts().iter().map(|(_, n)| *n).collect();
    assert_eq!(counts[..4], [2, 4, 8, 16], "RFC 3465, L = 2: {counts:?}");
}

#[test]
fn the_window_limits_to_whole_segments_a_round_trip() {
    let server = "timestamps = false\nreceive_window = '8 KiB'\nack_every = 1";
    let mut pipe = Pipe::new("timestamps = false", server, 250);
    let end = pipe.transfer(1_000_000, LONG).unwrap();
    // ⌊8192 / 1460⌋ = 5 segments every 500 ms.
    let ideal = 1_000_000.0 / (5.0 * 1460.0) * 0.5;
    let found = (end - ms(500)).as_secs_f64();
    assert!((found / ideal - 1.0).abs() < 0.01, "{found} s for {ideal} s");
    assert!(pipe.data().iter().all(|(.., length)| *length == 1460 || *length < 1460 && *length == 1_000_000 % 1460));
}

/// Hosts that count to the byte fill a window of 8192 B: 5 whole segments and one of 892 B.
#[test]
fn a_window_may_hold_to_the_byte() {
    let exact = "timestamps = false\nwhole_segments = false\nack_every = 1\n";
    let mut pipe = Pipe::new(&format!("{exact}nagle = false"), &format!("{exact}receive_window = '8 KiB'"), 250);
    let end = pipe.transfer(1_000_000, LONG).unwrap();
    assert_eq!(pipe.log[1].2.window, 8192);
    let ideal = 1_000_000.0 / 8192.0 * 0.5;
    let found = (end - ms(500)).as_secs_f64();
    assert!((found / ideal - 1.0).abs() < 0.02, "{found} s for {ideal} s");
}

#[test]
fn acknowledgements_every_second_segment_or_after_a_delay() {
    for (server, least, most) in [
        ("quick_acks = 0", 50, 54),
        ("ack_every = 1", 100, 103),
        ("quick_acks = 0\nack_every = 4\ndelayed_ack = '500 ms'", 25, 31),
    ] {
        let mut pipe = Pipe::new("initial_window = 100", server, 100);
        pipe.transfer(100 * MSS, LONG).unwrap();
        pipe.run(pipe.now + Duration::from_secs(1));
        let acks = pipe.acks();
        assert!((least..=most).contains(&acks), "{server}: {acks} acknowledgements for 100 segments");
    }
    // One segment alone waits for the timer.
    let mut pipe = Pipe::new("", "quick_acks = 0\ndelayed_ack = '200 ms'", 100);
    pipe.run(ms(300));
    pipe.write(0, MSS);
    pipe.run(ms(2000));
    let (at, ..) = pipe.log.iter().rfind(|(_, end, _)| *end == 1).unwrap();
    assert_eq!(*at, ms(600), "sent at 300, there at 400, acknowledged 200 ms later");
}

#[test]
fn nagle_holds_small_segments_back() {
    for (text, segments) in [("", 2), ("nagle = false", 5)] {
        let mut pipe = Pipe::new(text, "", 100);
        pipe.run(ms(300));
        for n in 0..5 {
            pipe.write(n * 100, n * 100 + 100);
        }
        pipe.run(ms(2000));
        assert_eq!((pipe.data().len(), pipe.received), (segments, 500), "{text}");
    }
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut pipe = Pipe::new("", "receive_window = '16 KiB'", 100);
    pipe.reads = false;
    pipe.run(ms(300));
    let mut given = 0;
    while given < 86_000 {
        given += pipe.write(given, 86_000);
        assert!(pipe.step(ms(2000)));
    }
    pipe.run(ms(60_000));
    let probes = pipe.log.iter().filter(|(at, end, _)| *end == 0 && *at > ms(2000)).count();
    assert!((4..15).contains(&probes), "{probes} probes, further and further apart");
    assert_eq!(pipe.ends[0].as_ref().unwrap().state(), State::Established);
    pipe.reads = true;
    pipe.read();
    pipe.run(ms(62_000));
    assert_eq!((pipe.received, pipe.wrong), (86_000, 0), "the window update was enough");
}

/// Without scaling no more than 65 535 B can be advertised, however much room there is.
#[test]
fn a_window_that_cannot_be_told_is_no_news() {
    let mut pipe = Pipe::new("", "window_scaling = false", 100);
    // Enough for the receiver to tune its buffer far beyond the field.
    pipe.run(ms(300));
    let mut given = 0;
    while pipe.received < 3_000_000 {
        given += pipe.write(given, 3_000_000);
        assert!(pipe.step(ms(100_000)));
    }
    pipe.run(pipe.now + Duration::from_secs(1));
    let server = pipe.ends[1].as_ref().unwrap();
    assert!(server.receive_window.granted > 2 * 65_535, "{}", server.receive_window.granted);
    let sent = pipe.log.len();
    pipe.with(1, |connection, output| (0..10).for_each(|_| connection.flush(output)));
    assert_eq!(pipe.log.len(), sent);
}

/// SYNs at 0, 3, 9, 21, 45 s: RFC 1122's 3 s, doubled.
#[test]
fn syns_are_repeated_and_given_up() {
    let text = "rto_initial = '3 s'\nsyn_retries = 4\nsyn_linear_timeouts = 0";
    let mut pipe = Pipe::new(text, "", 100);
    pipe.drop = Box::new(|_, _, _| true);
    pipe.log.clear();
    pipe.flying.clear();
    pipe.run(ms(200_000));
    let times: Vec<u64> = pipe.log.iter().map(|(at, ..)| at.ns / 1_000_000_000).collect();
    assert_eq!(times, [3, 9, 21, 45]);
    assert_eq!(pipe.ends[0].as_ref().unwrap().progress(), Err(SocketError::TimedOut));
    // Linux 6.5 and later: four at even distances first.
    let mut pipe = Pipe::new("", "", 100);
    pipe.drop = Box::new(|_, _, _| true);
    pipe.log.clear();
    pipe.flying.clear();
    pipe.run(ms(40_000));
    let times: Vec<u64> = pipe.log.iter().map(|(at, ..)| at.ns / 1_000_000_000).collect();
    assert_eq!(times, [1, 2, 3, 4, 5, 7, 11, 19, 35]);
}

/// The tail loss probe repeats the data first, two round trips and 2 ms after it left.
#[test]
fn data_that_nobody_acknowledges_is_given_up() {
    for (text, least, most) in [
        // Linux's tcp_model_timeout: 0.2 s · (2^10 − 1) + 6 · 120 s = 924.6 s after the first repetition, and at most one
        // time-out (120 s) later.
        ("", 925.0, 1045.1),
        ("user_timeout = '30 s'", 30.4, 30.5),
        // One second after the probe, and 2, 4 and 8 s after each of three repetitions.
        ("rto_estimator = 'rfc6298'\nretries = 3", 15.4, 15.5),
    ] {
        let mut pipe = Pipe::new(text, "", 100);
        pipe.run(ms(300));
        pipe.drop = Box::new(|_, _, _| true);
        pipe.write(0, 5000);
        let start = pipe.now;
        while pipe.ends[0].as_ref().unwrap().progress().is_ok() {
            assert!(pipe.step(ms(10_000_000)), "{text}");
        }
        assert_eq!(pipe.ends[0].as_ref().unwrap().progress(), Err(SocketError::TimedOut), "{text}");
        let time = pipe.now.since(start).as_secs_f64();
        assert!((least..most).contains(&time), "{text}: given up after {time} s");
    }
}

#[test]
fn a_silent_peer_is_probed_and_given_up() {
    let text = "keep_alive = '60 s'\nkeep_alive_interval = '10 s'\nkeep_alive_probes = 3";
    let mut pipe = Pipe::new(text, "", 100);
    pipe.run(ms(300));
    let before = pipe.log.len();
    pipe.run(ms(200_000));
    assert_eq!(pipe.ends[0].as_ref().unwrap().progress(), Ok(Progress::Open), "the peer answers probes");
    assert!(pipe.log.len() > before + 4);
    pipe.drop = Box::new(|_, _, _| true);
    pipe.run(ms(400_000));
    assert_eq!(pipe.ends[0].as_ref().unwrap().progress(), Err(SocketError::TimedOut));
}

#[test]
fn each_direction_ends_by_itself() {
    let mut pipe = Pipe::new("", "", 100);
    pipe.transfer(10_000, LONG).unwrap();
    pipe.run(ms(2000));
    assert_eq!(pipe.ends[0].as_ref().unwrap().state(), State::FinWait2);
    assert_eq!(pipe.ends[1].as_ref().unwrap().state(), State::CloseWait);
    // The other direction still works.
    pipe.with(1, |connection, output| {
        connection.send(4, |_| Payload::from_vec(b"done".to_vec())).unwrap();
        connection.flush(output);
        connection.close(output);
    });
    pipe.run(ms(3000));
    let mut into = [0; 10];
    assert_eq!(pipe.with(0, |connection, _| connection.receive(&mut into)), Ok(Received::Bytes(4)));
    assert_eq!(pipe.with(0, |connection, _| connection.receive(&mut into)), Ok(Received::End));
    assert_eq!(pipe.ends[0].as_ref().unwrap().state(), State::TimeWait);
    assert_eq!(pipe.ends[1].as_ref().unwrap().state(), State::Closed);
    pipe.run(ms(100_000));
    assert_eq!(pipe.ends[0].as_ref().unwrap().state(), State::Closed);
}

#[test]
fn resets_are_resets() {
    let mut pipe = Pipe::new("", "", 100);
    pipe.transfer(10_000, LONG).unwrap();
    pipe.with(1, |connection, output| connection.abort(output));
    pipe.run(ms(5000));
    assert_eq!(pipe.ends[0].as_ref().unwrap().progress(), Err(SocketError::Reset));
    // A program that closes with unread data resets (RFC 2525 §2.17).
    let mut pipe = Pipe::new("", "", 100);
    pipe.reads = false;
    pipe.run(ms(300));
    pipe.write(0, 1000);
    pipe.run(ms(1000));
    pipe.with(1, |connection, output| connection.close(output));
    pipe.run(ms(2000));
    assert_eq!(pipe.ends[0].as_ref().unwrap().progress(), Err(SocketError::Reset));
}

#[test]
fn an_idle_connection_starts_slowly_again() {
    for (text, slow) in [("", true), ("slow_start_after_idle = false", false)] {
        let mut pipe = Pipe::new(&format!("{text}\nack_every = 1"), "", 100);
        pipe.run(ms(300));
        let mut given = 0;
        while given < 200 * MSS {
            given += pipe.write(given, 200 * MSS);
            pipe.step(ms(100_000));
        }
        pipe.run(pipe.now + Duration::from_secs(10));
        let before = pipe.data().len();
        let more = pipe.write(given, given + 40 * MSS);
        assert_eq!(more, 40 * MSS);
        let burst = pipe.data().len() - before;
        assert_eq!(burst, if slow { 10 } else { 40 }, "{text}");
    }
}

/// As `EPOLLET` has it: a program that was given all the room it asked for hears nothing of acknowledgements, and one that
/// was refused some hears once a third of the buffer is free.
#[test]
fn acknowledgements_are_news_only_for_a_program_that_waits_for_room() {
    let ready = |bytes: u64| {
        let mut pipe = Pipe::new("ack_every = 1", "ack_every = 1", 100);
        pipe.run(ms(300));
        pipe.with(0, |connection, _| connection.take_changed());
        let taken = pipe.write(0, bytes);
        let mut ready = 0;
        while pipe.step(ms(10_000)) {
            let connection = pipe.ends[0].as_mut().unwrap();
            if connection.take_changed() {
                ready += 1;
                assert!(connection.send_buffer.is_writeable(connection.held()));
            }
        }
        (taken, ready, pipe.received)
    };
    // A packet buffer holds half of the window of 65 160 B, and is filled again while ten segments leave it.
    assert_eq!(ready(20 * MSS), (20 * MSS, 0, 20 * MSS), "less than the buffer");
    let all = (10 + 22) * MSS;
    assert_eq!(ready(100 * MSS), (all, 1, all), "the rest was refused");
}
