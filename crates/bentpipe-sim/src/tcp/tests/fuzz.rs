//! Nothing that a network or a peer does makes a connection panic, deliver a wrong byte, or hang when it should end.

use super::*;
use bentpipe_net::datagram::{SackBlocks, SynOptions};
use bentpipe_net::socket::fill_pattern;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Cases of each property, and the seed they are drawn with; `BENTPIPE_FUZZ_CASES` and `BENTPIPE_FUZZ_SEED` ask for others.
const CASES: u64 = 400;
const SEED: u64 = 1;

pub(super) fn campaign() -> ProptestConfig {
    let requested = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}: allowed: a whole number")),
        Err(_) => default,
    };
    ProptestConfig {
        cases: u32::try_from(requested("BENTPIPE_FUZZ_CASES", CASES)).unwrap_or(u32::MAX),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(requested("BENTPIPE_FUZZ_SEED", SEED)),
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    }
}

/// What happens to one segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Arrives,
    Lost,
    Late(u64),
    Twice,
    /// It meets congestion (RFC 3168).
    Marked,
}

pub(super) fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Arrives),
        2 => Just(Fate::Lost),
        1 => (1u64..2000).prop_map(Fate::Late),
        1 => Just(Fate::Twice),
        1 => Just(Fate::Marked),
    ]
}

fn one_of(values: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(values)
}

fn switches(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<bool>(), names.len())
        .prop_map(|on| names.iter().zip(on).map(|(name, on)| format!("{name} = {on}\n")).collect())
}

pub(super) fn stack() -> impl Strategy<Value = String> {
    let switches = switches(&[
        "timestamps",
        "paws",
        "ecn",
        "nagle",
        "frto",
        "limited_transmit",
        "fast_retransmit",
        "slow_start_after_idle",
        "proportional_rate_reduction",
    ]);
    let losses = one_of(&[
        "sack = true",
        "sack = true\nrack = false\ntail_loss_probe = false",
        "sack = true\nrack = false",
        "sack = false\nrack = false\ntail_loss_probe = false\nrecovery = 'newreno'",
        "sack = false\nrack = false\ntail_loss_probe = false\nrecovery = 'reno'",
        "sack = false\nrack = false\ntail_loss_probe = false\nrecovery = 'tahoe'",
    ]);
    let control = one_of(&["reno", "cubic", "hybla", "bbr"]).prop_map(|name| format!("congestion_control = '{name}'"));
    let window = one_of(&[
        "",
        "window_scaling = false",
        "receive_window = '1000 B'",
        "receive_window = '8 KiB'",
        "window_scaling = false\nreceive_window = '40 KB'",
        "receive_window = '1 MB'",
    ]);
    let sending = one_of(&["", "send_buffer = '5 KB'", "send_buffer = '64 KB'"]);
    let timeout = one_of(&[
        "",
        "rto_estimator = 'rfc6298'",
        "rto_estimator = 'rfc6298'\nrto_initial = '3 s'\nrto_granularity = '500 ms'",
        "rto_granularity = '100 ms'",
    ]);
    let counting = one_of(&["", "byte_counting = 0", "byte_counting = 1", "byte_counting = 2"]);
    let acks =
        (1u32..5, one_of(&["", "delayed_ack = '100 ms'", "delayed_ack = '500 ms'"]), one_of(&["", "quick_acks = 0"]))
            .prop_map(|(every, delay, quick)| format!("ack_every = {every}\n{delay}\n{quick}"));
    let silence = one_of(&["", "keep_alive = '2 s'\nkeep_alive_interval = '1 s'"]);
    let initial = (1u32..12).prop_map(|segments| format!("initial_window = {segments}"));
    (switches, losses, control, window, sending, timeout, counting, acks, silence, initial).prop_map(|all| {
        let (switches, losses, control, window, sending, timeout, counting, acks, silence, initial) = all;
        [&switches, losses, &control, window, sending, timeout, counting, &acks, silence, &initial, "rto_max = '10 s'"]
            .join("\n")
    })
}

/// What a host's program does: it sends some bytes, finishes, and reads all that comes, with pauses.
#[derive(Clone, Debug)]
struct Program {
    bytes: u64,
    /// Most bytes written at a time, and the time between two writes.
    piece: u64,
    every: Duration,
    /// Finishes only when the peer has.
    last: bool,
    /// Most bytes read at a time.
    read: u64,
    /// After so many bytes it reads nothing for so long; the last one comes first.
    pauses: Vec<(u64, Duration)>,

    given: u64,
    writes_at: Instant,
    received: u64,
    reads_at: Instant,
    finished: bool,
    ended: bool,
}

fn program() -> impl Strategy<Value = Program> {
    let bytes = prop_oneof![1 => Just(0), 1 => 1u64..3000, 4 => 1u64..170_000];
    let piece = prop_oneof![Just(u64::MAX), 200u64..5000];
    let read = prop_oneof![Just(u64::MAX), 1000u64..5000];
    let pauses = proptest::collection::vec((0u64..170_000, 1u64..20_000), 0..4);
    (bytes, piece, 0u64..300, read, pauses).prop_map(|(bytes, piece, every, read, mut pauses)| {
        pauses.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        Program {
            bytes,
            piece,
            every: Duration::from_millis(every),
            last: false,
            read,
            pauses: pauses.into_iter().map(|(at, ms)| (at, Duration::from_millis(ms))).collect(),
            given: 0,
            writes_at: Instant::ZERO,
            received: 0,
            reads_at: Instant::ZERO,
            finished: false,
            ended: false,
        }
    })
}

/// The pattern that an end sends.
fn pattern(end: usize) -> u64 {
    9 + end as u64
}

impl Program {
    /// Does what can be done at `end` now. What it reads must be what the other end wrote.
    fn work(&mut self, pipe: &mut Pipe, end: usize) -> Result<(), TestCaseError> {
        let Some(state) = pipe.ends[end].as_ref().map(Connection::state) else { return Ok(()) };
        if !matches!(state, State::SynSent | State::SynReceived) {
            self.read(pipe, end)?;
        }
        if matches!(state, State::Established | State::CloseWait) {
            self.write(pipe, end);
        }
        Ok(())
    }

    fn write(&mut self, pipe: &mut Pipe, end: usize) {
        while self.given < self.bytes && pipe.now >= self.writes_at {
            let (from, requested) = (self.given, self.piece.min(self.bytes - self.given));
            let taken = pipe.with(end, |connection, output| {
                let piece = |taken: u64| Payload::Pattern { pattern: pattern(end), offset: from, length: taken as u32 };
                let taken = connection.send(requested, piece).unwrap_or(0);
                connection.flush(output);
                taken
            });
            self.given += taken;
            if taken < requested {
                break;
            }
            self.writes_at = pipe.now + self.every;
        }
        if self.given == self.bytes && !self.finished && (!self.last || self.ended) {
            self.finished = true;
            pipe.with(end, |connection, output| connection.finish(output));
        }
    }

    fn read(&mut self, pipe: &mut Pipe, end: usize) -> Result<(), TestCaseError> {
        while pipe.now >= self.reads_at && !self.ended {
            if let Some((_, pause)) = self.pauses.pop_if(|(at, _)| *at <= self.received) {
                self.reads_at = pipe.now + pause;
                break;
            }
            let (at, most) = (self.received, self.read);
            let got = pipe.with(end, |connection, output| {
                let got = connection.receive_pattern(pattern(1 - end), at, most);
                connection.flush(output);
                got
            });
            match got {
                Ok(ReceivedPattern::Bytes { bytes, wrong, .. }) => {
                    prop_assert_eq!(wrong, 0, "end {} after byte {}", end, at);
                    self.received += bytes;
                }
                Ok(ReceivedPattern::End) => self.ended = true,
                Ok(ReceivedPattern::Nothing) | Err(_) => break,
            }
        }
        Ok(())
    }

    /// When it goes on by itself, if it is after `now`.
    fn next(&self, now: Instant) -> Instant {
        let writes = if self.given < self.bytes { self.writes_at } else { Instant::FAR };
        let reads = if self.ended { Instant::FAR } else { self.reads_at };
        [writes, reads].into_iter().filter(|at| *at > now).min().unwrap_or(Instant::FAR)
    }
}

/// A segment as an attacker or a broken stack might make it.
pub(super) fn segment() -> impl Strategy<Value = Segment> {
    let near = || prop_oneof![4 => (0u32..200_000).prop_map(|n| n.wrapping_sub(60_000)), 1 => any::<u32>()];
    (
        near(),
        near(),
        any::<u8>(),
        any::<u16>(),
        0u32..3000,
        proptest::collection::vec((near(), near()), 0..4),
        any::<bool>(),
    )
        .prop_map(|(sequence, acknowledgement, flags, window, length, blocks, stamped)| {
            let mut sack = SackBlocks::default();
            blocks.iter().for_each(|(first, past)| sack.push(*first, *past));
            Segment {
                source_port: 1,
                destination_port: 2,
                sequence,
                acknowledgement,
                // Resets rarely, or nothing else would be tried.
                flags: flags & !flag::RST | if window == 77 { flag::RST } else { 0 },
                window,
                timestamps: stamped.then_some((sequence, acknowledgement)),
                syn: (flags & flag::SYN != 0).then(SynOptions::default),
                sack: (!blocks.is_empty()).then(|| Box::new(sack)),
                payload: if length == 0 { Payload::Empty } else { Payload::Pattern { pattern: 1, offset: 0, length } },
            }
        })
}

/// The segment with data that is right where it stands in the stream of `end`; what lies before the stream is not.
fn with_right_bytes(mut segment: Segment, end: usize) -> Segment {
    let length = segment.payload.length();
    let position = i64::from(segment.sequence.wrapping_sub(initial_sequence(end).wrapping_add(1)) as i32);
    if position >= 0 {
        let (pattern, offset, length) = (pattern(end), position as u64, length as u32);
        segment.payload = Payload::Pattern { pattern, offset, length };
    } else {
        let before = position.unsigned_abs().min(length) as usize;
        let mut bytes = vec![0; length as usize];
        fill_pattern(pattern(end), 0, &mut bytes[before..]);
        bytes[..before].fill(0xAA);
        segment.payload = Payload::from_vec(bytes);
    }
    if length == 0 {
        segment.payload = Payload::Empty;
    }
    segment
}

proptest! {
    #![proptest_config(campaign())]

    /// Whatever happens to the first segments, all bytes arrive in both directions once the network is well again, and both
    /// ends close.
    #[test]
    fn every_byte_arrives_in_the_end(
        stacks in (stack(), stack()),
        programs in (program(), program()),
        last in any::<bool>(),
        fates in proptest::collection::vec(fate(), 0..300),
    ) {
        let mut pipe = Pipe::with_coarse_timers(&stacks.0, &stacks.1, 100);
        pipe.reads = false;
        let mut programs = [programs.0, programs.1];
        programs[1].last = last;
        let lost: Vec<bool> = fates.iter().map(|fate| matches!(fate, Fate::Lost)).collect();
        let (mut number, mut openings) = (0, 0);
        pipe.drop = Box::new(move |_, _, segment| {
            number += 1;
            let lost = lost.get(number - 1).copied().unwrap_or(false);
            // A listener gives up after a few answers.
            openings += usize::from(lost && segment.has(flag::SYN));
            lost && !(segment.has(flag::SYN) && openings > 4)
        });
        let mut others = fates.into_iter().filter(|fate| !matches!(fate, Fate::Lost));
        let limit = Instant::ZERO + Duration::from_secs(3000);
        for steps in 0.. {
            for (end, program) in programs.iter_mut().enumerate() {
                program.work(&mut pipe, end)?;
            }
            let done = |end: usize| {
                let program: &Program = &programs[end];
                program.finished && program.ended && program.received == programs[1 - end].bytes
            };
            if done(0) && done(1) {
                break;
            }
            let at = || format!("at {:?} with {programs:?}", pipe.now);
            prop_assert!(steps < 100_000, "too many steps {}", at());
            let over = pipe.ends.iter().flatten().find(|c| c.state() == State::Closed && c.error.is_some());
            prop_assert!(over.is_none(), "{:?} {}", over.and_then(|c| c.error), at());
            // The newest segment may be delayed, doubled or marked.
            if let (Some(fate), Some((at, number, to, segment))) = (others.next(), pipe.flying.last().cloned()) {
                match fate {
                    Fate::Late(ms) => pipe.flying.last_mut().unwrap().0 = at + Duration::from_millis(ms),
                    Fate::Twice => {
                        pipe.count += 1;
                        pipe.flying.push((at + Duration::from_millis(30), pipe.count, to, segment));
                    }
                    Fate::Marked => drop(pipe.marked.insert(number)),
                    Fate::Arrives | Fate::Lost => {}
                }
            }
            let wakes = programs[0].next(pipe.now).min(programs[1].next(pipe.now));
            prop_assert!(pipe.step(wakes.min(limit)) || wakes < limit, "hangs at {:?} with {programs:?}", pipe.now);
        }
        // TIME-WAIT outlasts only so many losses of the last segments.
        let (mut before, mut left) = (std::mem::replace(&mut pipe.drop, Box::new(|_, _, _| false)), 3);
        pipe.drop = Box::new(move |end, number, segment| {
            let lost = left > 0 && before(end, number, segment);
            left -= u32::from(lost);
            lost
        });
        for end in 0..2 {
            pipe.with(end, |connection, output| connection.close(output));
        }
        pipe.run(limit + Duration::from_secs(1000));
        for end in pipe.ends.iter().flatten() {
            prop_assert!(end.is_closed(), "{:?}", end.state());
            prop_assert_eq!(end.error, None);
        }
    }

    /// Segments from nowhere: no panic, no wrong byte, and the connection still ends by itself.
    #[test]
    fn segments_from_nowhere_do_no_harm(
        stacks in (stack(), stack()),
        programs in (program(), program()),
        rounds in proptest::collection::vec((segment(), 0u64..3000, 0usize..2, 0u8..4), 1..80),
    ) {
        let mut pipe = Pipe::with_coarse_timers(&stacks.0, &stacks.1, 50);
        pipe.reads = false;
        let mut programs = [programs.0, programs.1];
        pipe.run(Instant::ZERO + Duration::from_millis(200));
        for (segment, wait, end, class) in rounds {
            // Where it says it stands, its bytes are right: a receiver cannot know better.
            let segment = with_right_bytes(segment, 1 - end);
            if pipe.ends[end].is_some() {
                pipe.with(end, |connection, output| connection.segment(&mut segment.clone(), class, output));
            }
            let until = pipe.now + Duration::from_millis(wait);
            for _ in 0..10_000 {
                for (end, program) in programs.iter_mut().enumerate() {
                    program.work(&mut pipe, end)?;
                }
                let wakes = programs[0].next(pipe.now).min(programs[1].next(pipe.now));
                if !pipe.step(wakes.min(until)) && wakes >= until {
                    break;
                }
            }
        }
        pipe.lose_peer();
        for end in pipe.ends.iter().flatten() {
            prop_assert!(end.is_closed(), "{:?}", end.state());
        }
    }
}
