//! Bandwidth on demand: how many channels of a bundle the load asks for.
//!
//! The rule and its default values are those of the routers that put ISDN channels together (Multilink Protocol Plus,
//! RFC 1934; *MAX 6000/3000 Network Configuration Guide*, p. 4-47: Sec History 15, Add Pers 5, Sub Pers 10, Target
//! Util 70): the average utilisation over the last seconds is held against a target; one call more while it stays above,
//! one less, the newest, while it stays below. Two things are ours: every second of the history counts the same, and a call
//! is dropped only when those that would be left stay below the target, so that it is not called again at once. RFC 2125
//! leaves the rule to each implementation.

use bentpipe_net::time::{Duration, Instant};
use std::collections::VecDeque;

/// Most looks that one average may be made of.
pub const POLLS_MAX: u64 = 4096;

/// When a circuit of several calls makes another, and when it drops one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnDemand {
    /// Calls at most: the channels of the larger direction.
    pub channels: usize,
    /// Calls that stay as long as the circuit is up; at least one.
    pub least: usize,
    /// Calls that may be set up at the same time; at least one.
    pub at_once: usize,
    /// A call is reported as connected this long before it carries anything; what is sent over it until then is lost.
    pub connects_late: Duration,
    /// Of the calls, this share is late; the others carry packets at once.
    pub late_share: f64,
    /// Utilisation, as a share of the channels that are up.
    pub target: f64,
    /// The utilisation is averaged over this time.
    pub history: Duration,
    /// Time between two looks at it.
    pub interval: Duration,
    /// Above the target for this long: one call more.
    pub call_after: Duration,
    /// The channels that would be left are below the target for this long: one call less.
    pub release_after: Duration,
}

impl OnDemand {
    /// Target utilisation of the MAX 6000's guide.
    pub const TARGET: f64 = 0.7;
    /// "Sec History" there.
    pub const HISTORY: Duration = Duration::from_secs(15);
    /// It counts in seconds.
    pub const INTERVAL: Duration = Duration::from_secs(1);
    /// "Add Pers" there.
    pub const CALL_AFTER: Duration = Duration::from_secs(5);
    /// "Sub Pers" there.
    pub const RELEASE_AFTER: Duration = Duration::from_secs(10);
}

/// The change that the load calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// One call more.
    Call,
    /// One call less.
    Release,
    /// Neither.
    Nothing,
}

/// Looks at the load of a circuit that is up.
#[derive(Debug)]
pub(crate) struct Demand {
    config: OnDemand,
    /// [`Instant::FAR`]: nothing is sent, and nothing could be released.
    next_poll: Instant,
    /// Airtime of each direction at each look, the oldest one `history` ago; the first is from the start.
    polls: VecDeque<(Instant, Vec<u64>)>,
    above_since: Option<Instant>,
    below_since: Option<Instant>,
}

impl Demand {
    pub(crate) fn new(config: OnDemand) -> Demand {
        Demand { config, next_poll: Instant::FAR, polls: VecDeque::new(), above_since: None, below_since: None }
    }

    pub(crate) fn next_poll(&self) -> Instant {
        self.next_poll
    }

    /// Starts to look, unless it does already; `airtime`: of each direction, nanoseconds of all its channels so far.
    pub(crate) fn start(&mut self, now: Instant, airtime: &[u64]) {
        if self.next_poll == Instant::FAR {
            self.polls = VecDeque::from([(now, airtime.to_vec())]);
            (self.above_since, self.below_since) = (None, None);
            self.next_poll = now + self.config.interval;
        }
    }

    pub(crate) fn stop(&mut self) {
        self.next_poll = Instant::FAR;
    }

    /// The change that the load calls for at `now`, with `up` channels up.
    pub(crate) fn poll(&mut self, now: Instant, airtime: &[u64], up: usize) -> Asks {
        let OnDemand { target, history, interval, call_after, release_after, .. } = self.config;
        while self.polls.get(1).is_some_and(|(at, _)| *at + history <= now) {
            self.polls.pop_front();
        }
        let busy = self.polls.front().map_or(0.0, |(since, before)| {
            let most = airtime.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).max();
            most.unwrap_or(0) as f64 / now.since(*since).ns.max(1) as f64
        });
        self.polls.push_back((now, airtime.to_vec()));
        self.next_poll = now + interval;
        let lasting = |is: bool, since: &mut Option<Instant>, long: Duration| {
            *since = is.then(|| since.unwrap_or(now));
            since.is_some_and(|since| now.since(since) >= long)
        };
        let above = lasting(busy > target * up as f64, &mut self.above_since, call_after);
        let is_below = up > self.config.least && busy < target * (up - 1) as f64;
        let below = lasting(is_below, &mut self.below_since, release_after);
        if above {
            Asks::Call
        } else if below {
            Asks::Release
        } else {
            if busy == 0.0 && up == self.config.least {
                self.stop();
            }
            Asks::Nothing
        }
    }

    /// The change has been made: the load must last as long again before the next one.
    pub(crate) fn done(&mut self) {
        (self.above_since, self.below_since) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn demand(call_after: u64, release_after: u64, history: u64) -> Demand {
        Demand::new(OnDemand {
            channels: 8,
            least: 1,
            at_once: 1,
            connects_late: Duration::ZERO,
            late_share: 1.0,
            target: 0.7,
            history: Duration::from_secs(history),
            interval: Duration::from_secs(1),
            call_after: Duration::from_secs(call_after),
            release_after: Duration::from_secs(release_after),
        })
    }

    /// Looks each second with so many busy channels; what was asked for, by second.
    fn requested(demand: &mut Demand, busy: &[f64], up: usize) -> Vec<(u64, Asks)> {
        let mut airtime = 0;
        demand.start(Instant::ZERO, &[0, 0]);
        let mut requested = Vec::new();
        for (i, busy) in busy.iter().enumerate() {
            airtime += (busy * SECOND as f64) as u64;
            let at = Instant { ns: (i as u64 + 1) * SECOND };
            match demand.poll(at, &[airtime, 0], up) {
                Asks::Nothing => {}
                asks => requested.push((i as u64 + 1, asks)),
            }
        }
        requested
    }

    #[test]
    fn a_call_is_asked_for_while_the_load_stays_above_the_target() {
        assert_eq!(requested(&mut demand(0, 9, 1), &[0.7, 0.8], 1), [(2, Asks::Call)]);
        assert_eq!(requested(&mut demand(2, 9, 1), &[0.8, 0.8, 0.8], 1), [(3, Asks::Call)]);
        assert_eq!(requested(&mut demand(2, 9, 1), &[0.8, 0.8, 0.6, 0.8, 0.8], 1), [], "not for long enough");
        assert_eq!(requested(&mut demand(0, 9, 1), &[2.7, 2.9], 4), [(2, Asks::Call)], "2.8 of four channels");
    }

    #[test]
    fn a_call_is_released_when_the_others_would_do() {
        assert_eq!(requested(&mut demand(9, 0, 1), &[2.2, 2.0], 4), [(2, Asks::Release)], "2.1 of three channels");
        assert_eq!(requested(&mut demand(9, 2, 1), &[0.0, 0.0, 0.0], 2), [(3, Asks::Release)]);
        assert_eq!(requested(&mut demand(9, 0, 1), &[0.0, 0.0], 1), [], "one stays");
    }

    #[test]
    fn the_load_is_averaged() {
        // Over three seconds 0.66 and less, over one 1.0.
        let busy = [1.0, 0.0, 1.0, 0.0, 1.0];
        assert_eq!(requested(&mut demand(0, 9, 1), &busy, 1).len(), 3);
        assert_eq!(
            requested(&mut demand(0, 9, 3), &busy, 1),
            [(1, Asks::Call)],
            "the first second has nothing before it"
        );
    }

    #[test]
    fn it_polls_no_more_when_nothing_is_sent() {
        let mut demand = demand(0, 0, 2);
        assert_eq!(requested(&mut demand, &[0.1, 0.0, 0.0], 1), []);
        assert_eq!(demand.next_poll(), Instant::FAR);
        demand.start(Instant { ns: 9 * SECOND }, &[5, 0]);
        assert_eq!(demand.next_poll(), Instant { ns: 10 * SECOND });
    }
}
