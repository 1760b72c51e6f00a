//! Protection against wrapped sequence numbers: old timestamps mark old segments (RFC 7323 §5).

use super::*;

const MSS: u64 = 1448;

fn days(n: u64) -> Duration {
    Duration::from_secs(n * 24 * 3600)
}

fn seconds(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}

/// A connection whose client has sent two segments, the last of them at two seconds.
fn used(server: &str) -> Pipe {
    let mut pipe = Pipe::new("", server, 100);
    pipe.run(seconds(1));
    pipe.write(0, MSS);
    pipe.run(seconds(2));
    pipe.write(MSS, 2 * MSS);
    pipe.run(seconds(3));
    assert_eq!(pipe.received, 2 * MSS);
    pipe
}

/// The server is handed the next segment in order, stamped so much later than the last one; whether it takes it.
fn takes_next(pipe: &mut Pipe, later: i32) -> bool {
    let (had, log) = (pipe.received, pipe.log.len());
    let server = pipe.ends[1].as_ref().unwrap();
    let segment = Segment {
        sequence: server.peer_sequence.wrapping_add(1 + had as u32),
        acknowledgement: server.initial_sequence.wrapping_add(1),
        flags: flag::ACK,
        window: 1000,
        timestamps: Some((server.recent_timestamp.wrapping_add_signed(later), output::clock(pipe.now))),
        payload: Payload::Pattern { pattern: 9, offset: had, length: 100 },
        ..Segment::default()
    };
    pipe.with(1, |connection, output| connection.segment(&mut segment.clone(), 0, output));
    pipe.read();
    let taken = pipe.received > had;
    if !taken {
        // RFC 7323 §5.3 R1: dropped, and answered.
        let (_, _, answer) = &pipe.log[log];
        assert_eq!((answer.flags, answer.acknowledgement), (flag::ACK, segment.sequence));
    }
    assert_eq!((pipe.received - had, pipe.wrong), (if taken { 100 } else { 0 }, 0));
    taken
}

#[test]
fn segments_with_old_timestamps_are_dropped_by_paws_alone() {
    for (server, later, taken) in [
        ("", -1, false),
        ("", i32::MIN + 1, false),
        ("", 0, true),
        ("", 1, true),
        ("", i32::MAX, true),
        ("paws = false", -1, true),
        ("paws = false", 0, true),
        ("timestamps = false", -1, true),
    ] {
        assert_eq!(takes_next(&mut used(server), later), taken, "{server:?}, {later} ms");
    }
}

/// RFC 7323 §5.5: after 24 days the clock of the peer may have passed half of its range, and looks old.
#[test]
fn after_24_days_of_silence_no_timestamp_is_old() {
    let mut pipe = used("");
    pipe.now += days(23);
    assert!(!takes_next(&mut pipe, -1));
    pipe.now += days(2);
    assert!(takes_next(&mut pipe, -1));
    assert!(!takes_next(&mut pipe, -1), "the timestamp that came then counts again");
    // Both ends speak again after 25 days, in both directions, and data follows.
    let mut pipe = used("");
    pipe.now += days(25);
    pipe.write(2 * MSS, 30 * MSS);
    pipe.run(pipe.now + Duration::from_secs(10));
    assert_eq!((pipe.received, pipe.wrong), (30 * MSS, 0));
    assert_eq!(pipe.ends[0].as_ref().unwrap().unacknowledged(), 0);
    assert_eq!(pipe.ends[0].as_ref().unwrap().retransmissions(), 0);
}
