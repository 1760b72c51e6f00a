//! Nothing that a network or a peer does makes a connection panic, deliver a wrong byte, or hang when it should end.

use super::*;
use bentpipe_link::datagram::{SackBlocks, SynOptions};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const MSS: u64 = 1448;

/// What happens to one segment.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Late(u64),
    Twice,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Arrives),
        2 => Just(Fate::Lost),
        1 => (1u64..2000).prop_map(Fate::Late),
        1 => Just(Fate::Twice),
    ]
}

fn stack() -> impl Strategy<Value = String> {
    let on = any::<bool>;
    (on(), on(), on(), on(), on(), 1u32..12, 0usize..4, 0usize..3, 1u32..5).prop_map(
        |(sack, timestamps, scaling, rack, prr, initial, control, recovery, every)| {
            let control = ["reno", "cubic", "hybla", "bbr"][control];
            let recovery = ["tahoe", "reno", "newreno"][recovery];
            let rack = rack && sack;
            format!(
                "sack = {sack}\ntimestamps = {timestamps}\nwindow_scaling = {scaling}\nrack = {rack}\n\
                 tail_loss_probe = {rack}\nproportional_rate_reduction = {prr}\ninitial_window = {initial}\n\
                 congestion_control = '{control}'\nrecovery = '{recovery}'\nack_every = {every}\n\
                 receive_window = '40 KB'\nrto_max = '10 s'"
            )
        },
    )
}

/// A segment as an attacker or a broken stack might make it.
fn segment() -> impl Strategy<Value = Segment> {
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

/// A transfer through a network that is well again after the first segments; both ends close.
fn transfer(client: &str, server: &str, fates: &[Fate], segments: u64, predicts: bool) -> Result<Pipe, TestCaseError> {
    let mut pipe = Pipe::new(client, server, 100);
    pipe.predicts = predicts;
    let lost: Vec<bool> = fates.iter().map(|fate| matches!(fate, Fate::Lost)).collect();
    let mut number = 0;
    pipe.drop = Box::new(move |_, _, _| {
        number += 1;
        lost.get(number - 1).copied().unwrap_or(false)
    });
    let mut others = fates.iter().filter(|fate| !matches!(fate, Fate::Lost));
    let bytes = segments * MSS - 100;
    let mut given = 0;
    let mut steps = 0;
    let limit = Instant::ZERO + Duration::from_secs(3000);
    while pipe.received < bytes {
        if given < bytes && pipe.ends[0].as_ref().is_some_and(|c| c.state() == State::Established) {
            given += pipe.write(given, bytes);
            if given == bytes {
                pipe.with(0, |connection, output| connection.finish(output));
            }
        }
        // The newest segment may be delayed or doubled.
        if let Some(last) = pipe.flying.last().cloned()
            && let Some(fate) = others.next()
        {
            match fate {
                Fate::Late(ms) => {
                    let last = pipe.flying.len() - 1;
                    pipe.flying[last].0 += Duration::from_millis(*ms);
                }
                Fate::Twice => {
                    pipe.count += 1;
                    pipe.flying.push((last.0 + Duration::from_millis(30), pipe.count, last.2, last.3));
                }
                _ => {}
            }
        }
        steps += 1;
        prop_assert!(steps < 100_000, "too many steps");
        let gave_up = pipe.ends.iter().flatten().any(|c| c.state() == State::Closed);
        prop_assert!(!gave_up, "gave up at {:?} with {} of {bytes}", pipe.now, pipe.received);
        prop_assert!(pipe.step(limit), "hangs at {:?} with {} of {bytes}", pipe.now, pipe.received);
    }
    prop_assert_eq!(pipe.wrong, 0);
    pipe.with(1, |connection, output| connection.close(output));
    pipe.run(limit + Duration::from_secs(1000));
    Ok(pipe)
}

/// A connection that gets segments from nowhere; then the peer is gone.
fn disturbed(text: &str, rounds: &[(Segment, u64, usize)], predicts: bool) -> Pipe {
    let mut pipe = Pipe::new(text, text, 50);
    pipe.predicts = predicts;
    pipe.run(Instant::ZERO + Duration::from_millis(200));
    pipe.write(0, 20_000);
    for (segment, wait, end) in rounds {
        pipe.with(*end, |connection, output| connection.segment(&mut segment.clone(), 0, output));
        let until = pipe.now + Duration::from_millis(*wait);
        for _ in 0..10_000 {
            if !pipe.step(until) {
                break;
            }
        }
    }
    // What is unacknowledged must not keep the connection for ever.
    pipe.drop = Box::new(|_, _, _| true);
    pipe.flying.clear();
    for end in 0..2 {
        if pipe.ends[end].is_some() {
            pipe.with(end, |connection, output| connection.close(output));
        }
    }
    let limit = pipe.now + Duration::from_secs(100_000);
    for _ in 0..100_000 {
        if !pipe.step(limit) {
            break;
        }
    }
    pipe
}

/// Everything that both ends sent, and all that they know in the end.
fn story(pipe: &Pipe) -> String {
    let ends = format!("{:?}", pipe.ends).replace("predicts: false", "predicts: true");
    format!("{:?} {ends}", pipe.log)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// Whatever happens to the first segments, all bytes arrive once the network is well again; and it is the same whether
    /// segments are predicted or not.
    #[test]
    fn every_byte_arrives_in_the_end(
        client in stack(),
        server in stack(),
        fates in proptest::collection::vec(fate(), 0..300),
        segments in 1u64..120,
    ) {
        let pipe = transfer(&client, &server, &fates, segments, true)?;
        for end in pipe.ends.iter().flatten() {
            prop_assert!(end.is_closed() || end.state() == State::TimeWait || end.state() == State::FinWait2, "{:?}", end.state());
        }
        prop_assert_eq!(story(&pipe), story(&transfer(&client, &server, &fates, segments, false)?));
    }

    /// Segments from nowhere: no panic, and the connection still ends by itself, predicted or not.
    #[test]
    fn segments_from_nowhere_do_no_harm(
        text in stack(),
        rounds in proptest::collection::vec((segment(), 0u64..3000, 0usize..2), 1..80),
    ) {
        let pipe = disturbed(&text, &rounds, true);
        for end in pipe.ends.iter().flatten() {
            prop_assert!(end.is_closed(), "{:?}", end.state());
        }
        prop_assert_eq!(story(&pipe), story(&disturbed(&text, &rounds, false)));
    }
}
