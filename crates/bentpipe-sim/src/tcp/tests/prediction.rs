//! Header prediction is a shorter way to the same place: with and without it, a connection sends the same and knows the same.

use super::fuzz::{Fate, campaign, fate, segment, stack};
use super::*;
use proptest::prelude::*;

const MSS: u64 = 1448;

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
    pipe.lose_peer();
    pipe
}

/// Everything that both ends sent, and all that they know in the end.
fn story(pipe: &Pipe) -> String {
    let ends = format!("{:?}", pipe.ends).replace("predicts: false", "predicts: true");
    format!("{:?} {ends}", pipe.log)
}

proptest! {
    #![proptest_config(campaign())]

    #[test]
    fn a_transfer_is_the_same_with_and_without_prediction(
        client in stack(),
        server in stack(),
        fates in proptest::collection::vec(fate(), 0..300),
        segments in 1u64..60,
    ) {
        let predicted = story(&transfer(&client, &server, &fates, segments, true)?);
        prop_assert_eq!(predicted, story(&transfer(&client, &server, &fates, segments, false)?));
    }

    #[test]
    fn segments_from_nowhere_do_the_same_with_and_without_prediction(
        text in stack(),
        rounds in proptest::collection::vec((segment(), 0u64..3000, 0usize..2), 1..80),
    ) {
        prop_assert_eq!(story(&disturbed(&text, &rounds, true)), story(&disturbed(&text, &rounds, false)));
    }
}
