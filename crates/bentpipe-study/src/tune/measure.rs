//! The simulation of one transfer between two given hosts, and whether one pair of hosts is faster than another.

use super::hosts::{Hosts, Side};
use super::idle;
use crate::{pool, transfer};
use bentpipe_apps::ClientServer as _;
use bentpipe_apps::Direction;
use bentpipe_apps::bulk::BulkSpec;
use bentpipe_apps::ping::PingSpec;
use bentpipe_apps::quantity;
use bentpipe_apps::report::{Report, Status};
use bentpipe_link::config::LinkConfig;
use bentpipe_net::time::Duration;
use bentpipe_sim::network::{NetworkError, ProgramId};
use serde::Serialize;

/// The timed transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Which way the data goes.
    pub direction: Direction,
    /// Application bytes, shared evenly by the connections.
    pub bytes: u64,
    /// Connections.
    pub connections: u32,
    /// The bytes a second time over the same connection, after [`idle::PAUSE`]; that is what is timed.
    pub after_idle: bool,
}

/// The runs of a transfer, one a seed, in the order of the seeds; a run that TCP gave up is infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct Times(pub Vec<f64>);

/// The runs of a transfer in short.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Median time in seconds; absent when half of the runs or more did not finish.
    pub seconds: Option<f64>,
    /// Least and most of those that finished.
    pub range: Option<(f64, f64)>,
    /// Runs, each with its own seed.
    pub runs: u32,
    /// Of them, those that did not finish.
    pub failed: u32,
}

/// Longest that a run is followed.
const TIME_MAX: Duration = Duration::from_secs(7 * 86_400);
/// A run that did not finish counts as this many times slower than one that did.
const FAILED_FACTOR: f64 = 100.0;

/// Times a transfer once for each seed from 1 on, several at once.
pub fn times(link: &LinkConfig, hosts: &Hosts, transfer: &Transfer, seeds: u64) -> Result<Times, NetworkError> {
    let one = |seed| run(link, hosts, transfer, seed, None).map(|ended| ended.0);
    pool::map(pool::cores(), 1..=seeds, one).into_iter().collect::<Result<_, _>>().map(Times)
}

/// The median round trip of a ping during the transfer, in seconds.
pub fn ping_during_transfer(
    link: &LinkConfig,
    hosts: &Hosts,
    transfer: &Transfer,
) -> Result<Option<f64>, NetworkError> {
    // Enough for any transfer; what is left when it ends is not sent.
    let ping = PingSpec { count: 10_000, ..PingSpec::default() };
    run(link, hosts, transfer, 1, Some(&ping)).map(|ended| ended.1)
}

/// One run: seconds from the client's call to connect until the last byte is in, and the ping's median round trip.
fn run(
    link: &LinkConfig,
    hosts: &Hosts,
    transfer: &Transfer,
    seed: u64,
    ping: Option<&PingSpec>,
) -> Result<(f64, Option<f64>), NetworkError> {
    // Settings that a host leaves open are as `predict` and `run --virtual` have it.
    let tcp = Side::BOTH.map(|side| hosts.of(side).clone());
    let mut network = transfer::hosts(link, tcp, seed)?;
    // The sides are numbered as the hosts are.
    let site = |side: Side| side as usize;
    let hub = transfer::address(&network, site(Side::Hub));
    let sender = transfer::address(&network, site(Side::sender(transfer.direction)));
    let mut pairs: Vec<(ProgramId, ProgramId, BulkSpec)> = Vec::new();
    for (port, bytes) in transfer::shares(transfer.bytes, transfer.connections) {
        let bulk = transfer::bulk(transfer.direction, port, bytes);
        // A connection is used again by the side that receives: it asks twice.
        let (server, client, at) = match transfer.after_idle {
            true => (Side::sender(transfer.direction), Side::receiver(transfer.direction), sender),
            false => (Side::Hub, Side::Terminal, hub),
        };
        let (serving, connecting) = match transfer.after_idle {
            true => (idle::server(port, bytes), idle::client((at, port).into(), bytes)),
            false => (bulk.server(seed), bulk.client(at.into(), seed)),
        };
        let serving = network.start(site(server), serving);
        pairs.push((serving, network.start(site(client), connecting), bulk));
    }
    let ping = ping.map(|ping| network.start(site(Side::Terminal), ping.client(hub.into(), seed)));
    transfer::run(&mut network, TIME_MAX, |network| {
        pairs.iter().any(|(server, client, _)| {
            let open = |id| network.program(id).is_some_and(|program| !program.is_done());
            open(*client) || (transfer.direction == Direction::Upload && !transfer.after_idle && open(*server))
        })
    });
    let now = network.now();
    let report = |id: ProgramId| network.program(id).map(|program| program.report(now));
    let mut last = 0.0_f64;
    for (server, client, bulk) in &pairs {
        let (Some(server), Some(client)) = (report(*server), report(*client)) else { continue };
        let joined: Report = if transfer.after_idle { client } else { bulk.combine(client, server) };
        last = match (&joined.status, joined.value(quantity::COMPLETION_TIME)) {
            (Status::Done, Some(took)) => last.max(took),
            _ => f64::INFINITY,
        };
    }
    let round_trip = ping.and_then(report).and_then(|report| report.value(quantity::RTT_MEDIAN));
    Ok((last, round_trip))
}

impl Times {
    /// In short.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let finished: Vec<f64> = sorted.iter().copied().filter(|time| time.is_finite()).collect();
        let median = sorted.get(sorted.len().saturating_sub(1) / 2).copied().filter(|time| time.is_finite());
        Summary {
            seconds: median,
            range: finished.first().copied().zip(finished.last().copied()),
            runs: self.0.len() as u32,
            failed: (self.0.len() - finished.len()) as u32,
        }
    }
}

/// The comparison of one set of runs with another with the same seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Time after ÷ time before: the geometric mean over the seeds.
    pub ratio: f64,
    /// Standard error of its logarithm; zero for one run.
    pub error: f64,
}

/// A change below this is none: 2 %.
const COUNTS: f64 = 0.02;

impl Ratio {
    /// `after` ÷ `before`, seed by seed.
    #[must_use]
    pub fn of(after: &Times, before: &Times) -> Ratio {
        let logs: Vec<f64> = after.0.iter().zip(&before.0).map(|(a, b)| log_ratio(*a, *b)).collect();
        let n = logs.len().max(1) as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let error = if logs.len() > 1 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
        Ratio { ratio: mean.exp(), error }
    }

    /// Faster, beyond chance (two standard errors) and by more than 2 %.
    #[must_use]
    pub fn is_gain(self) -> bool {
        self.ratio.ln() < -COUNTS.max(2.0 * self.error)
    }

    /// Slower, likewise.
    #[must_use]
    pub fn is_loss(self) -> bool {
        self.ratio.ln() > COUNTS.max(2.0 * self.error)
    }
}

fn log_ratio(after: f64, before: f64) -> f64 {
    match (after.is_finite(), before.is_finite()) {
        (true, true) => (after / before.max(f64::MIN_POSITIVE)).ln(),
        (true, false) => -FAILED_FACTOR.ln(),
        (false, true) => FAILED_FACTOR.ln(),
        (false, false) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_no_gain() {
        let before = Times(vec![10.0, 20.0, 30.0, 40.0]);
        let faster = Times(before.0.iter().map(|t| t * 0.9).collect());
        assert!(Ratio::of(&faster, &before).is_gain());
        let scattered = Times(vec![5.0, 40.0, 25.0, 41.0]);
        let ratio = Ratio::of(&scattered, &before);
        assert!(!ratio.is_gain() && !ratio.is_loss(), "{ratio:?}");
        let little = Times(before.0.iter().map(|t| t * 0.99).collect());
        assert!(!Ratio::of(&little, &before).is_gain());
    }

    /// Linux's send buffer of 4 MiB is what holds 50 MB over 50 Mbit/s at 600 ms up; both commands must know.
    #[test]
    fn default_hosts_are_those_of_a_prediction() {
        let link = bentpipe_link::catalogue::named("geo-50-5").unwrap().unwrap().config().unwrap();
        let tcp = bentpipe_net::stack::TcpConfig::from_table(toml::Table::new()).unwrap();
        let (bytes, direction) = (50_000_000, Direction::Download);
        let transfer = Transfer { direction, bytes, connections: 1, after_idle: false };
        let ours = times(&link, &Hosts::alike(&tcp), &transfer, 1).unwrap().0[0];
        let question = crate::predict::Question {
            name: "geo-50-5",
            link: &link,
            tcp: &tcp,
            direction,
            bytes: bentpipe_net::units::DataSize::from_bytes(bytes),
            loss: None,
            connections: 1,
        };
        let mut prediction = crate::predict::predict(&question).unwrap();
        prediction.simulate(&question);
        let predicted = prediction.simulated.unwrap().seconds;
        assert!((ours / predicted - 1.0).abs() < 0.001, "{ours} s, predicted {predicted} s");
        let open = [super::super::Atom::size(Side::Hub, "send_buffer", 8 << 20)];
        let raised = times(&link, &Hosts::alike(&tcp).with(&open).unwrap(), &transfer, 1).unwrap().0[0];
        assert!(raised < ours * 0.85, "{raised} s with a larger send buffer, {ours} s without");
    }

    #[test]
    fn a_run_that_fails_is_a_loss() {
        let (done, failed) = (Times(vec![10.0]), Times(vec![f64::INFINITY]));
        assert!(Ratio::of(&failed, &done).is_loss() && Ratio::of(&done, &failed).is_gain());
        assert!(!Ratio::of(&failed, &failed).is_gain());
        assert_eq!(failed.summary().seconds, None);
        assert_eq!((failed.summary().failed, failed.summary().runs), (1, 1));
    }
}
