//! Samples of a virtual network over time.

use crate::collect::tcp::{TcpPoint, tcp_flow};
use crate::record::TcpFlowSamples;
use crate::thinning::SeriesPoints;
use bentpipe_link::direction::Sample;
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::socket::Program;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_sim::network::{ConnectionView, Network};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// First distance of samples, as in a live run; doubled whenever there are too many.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Samples kept of anything: as many as a chart can show.
const SAMPLES_MAX: usize = 2_000;
/// Connections followed in a case, as in a live run.
const CONNECTIONS_MAX: usize = 1_024;
/// Samples kept of all connections together where a record's points are bounded: seven points each.
const CONNECTION_SAMPLES_MAX: usize = 40_000;

/// The samples so far.
pub struct Samples {
    links: Grid,
    /// Each link's directions.
    directions: Vec<Vec<Vec<Sample>>>,
    connections: Grid,
    /// Samples of all connections together, and how many there may be.
    taken: usize,
    taken_max: usize,
    followed: BTreeMap<Identity, Followed>,
    /// Connections of each site that were over at the last sample: they stand as they ended.
    ended: Vec<usize>,
    /// One more was there than is followed.
    not_all: bool,
}

/// The times of samples: multiples of a distance that grows.
#[derive(Clone, Copy)]
struct Grid {
    every: Duration,
    next: Instant,
    rounds: usize,
}

/// A connection that uses the addresses of an earlier one is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Identity {
    start: Instant,
    site: usize,
    local: SocketAddr,
    remote: SocketAddr,
}

struct Followed {
    congestion_control: &'static str,
    points: Vec<TcpPoint>,
}

impl Grid {
    fn new() -> Grid {
        Grid { every: SAMPLE_EVERY, next: Instant::ZERO, rounds: 0 }
    }

    /// A sample was taken at `now`.
    fn advance(&mut self, now: Instant) {
        self.rounds += 1;
        self.set_next(now);
    }

    fn widen(&mut self, now: Instant) {
        self.every += self.every;
        self.rounds = self.rounds.div_ceil(2);
        self.set_next(now);
    }

    fn set_next(&mut self, now: Instant) {
        self.next = Instant { ns: (now.ns / self.every.ns).saturating_add(1).saturating_mul(self.every.ns) };
    }
}

impl Samples {
    /// Nothing yet; the first sample is due at once.
    pub fn new<P: Program, G: GatewayProgram>(network: &Network<P, G>, series: SeriesPoints) -> Samples {
        let taken_max = match series {
            SeriesPoints::All => usize::MAX,
            SeriesPoints::Bounded => CONNECTION_SAMPLES_MAX,
        };
        Samples {
            links: Grid::new(),
            directions: network.links().iter().map(|link| vec![Vec::new(); link.directions().len()]).collect(),
            connections: Grid::new(),
            taken: 0,
            taken_max,
            followed: BTreeMap::new(),
            ended: vec![0; network.plan().sites.len()],
            not_all: false,
        }
    }

    /// When the next sample is due.
    pub fn next(&self) -> Instant {
        self.links.next.min(self.connections.next)
    }

    /// Takes the samples that are due.
    pub fn take<P: Program, G: GatewayProgram>(&mut self, network: &Network<P, G>) {
        if network.now() >= self.links.next {
            self.take_links(network);
        }
        if network.now() >= self.connections.next {
            self.take_connections(network);
        }
    }

    /// The samples of each link's directions, the connections', and whether those are all; those of now are the last ones.
    pub fn finish<P: Program, G: GatewayProgram>(
        mut self,
        network: &Network<P, G>,
    ) -> (Vec<Vec<Vec<Sample>>>, Vec<TcpFlowSamples>, bool) {
        self.take_links(network);
        self.take_connections(network);
        let flow = |(id, followed): (&Identity, &Followed)| {
            let host = &network.plan().sites[id.site].name;
            tcp_flow(host, (id.local, id.remote), followed.congestion_control, &followed.points)
        };
        let connections = self.followed.iter().map(flow).collect();
        (self.directions, connections, !self.not_all)
    }

    fn take_links<P: Program, G: GatewayProgram>(&mut self, network: &Network<P, G>) {
        let now = network.now();
        let directions = network.links().iter().flat_map(|link| link.directions());
        for (samples, direction) in self.directions.iter_mut().flatten().zip(directions) {
            if samples.last().is_none_or(|last| last.at < now) {
                samples.push(direction.sample(now));
            }
        }
        self.links.advance(now);
        if self.links.rounds >= SAMPLES_MAX {
            self.links.widen(now);
            let every = self.links.every;
            self.directions.iter_mut().flatten().for_each(|samples| thin(samples, every, |sample| sample.at));
        }
    }

    fn take_connections<P: Program, G: GatewayProgram>(&mut self, network: &Network<P, G>) {
        let now = network.now();
        for site in 0..network.plan().sites.len() {
            let ended = network.ended_connections(site, self.ended[site]);
            ended.iter().for_each(|view| self.follow(site, view, now));
            self.ended[site] += ended.len();
            let (followed, not_all) = (&self.followed, &mut self.not_all);
            let mut left = CONNECTIONS_MAX.saturating_sub(followed.len());
            let open = network.open_connections(site, |start, local, remote| {
                let is_followed = followed.contains_key(&Identity { start, site, local, remote });
                *not_all |= !is_followed && left == 0;
                is_followed || {
                    let has_room = left > 0;
                    left -= usize::from(has_room);
                    has_room
                }
            });
            let open: Vec<ConnectionView> = open.collect();
            open.iter().for_each(|view| self.follow(site, view, now));
        }
        self.connections.advance(now);
        while self.connections.rounds >= SAMPLES_MAX || self.taken > self.taken_max {
            let before = self.taken;
            self.connections.widen(now);
            let every = self.connections.every;
            self.followed.values_mut().for_each(|followed| thin(&mut followed.points, every, |point| point.at));
            self.taken = self.followed.values().map(|followed| followed.points.len()).sum();
            // Thousands of connections that are over keep their last sample each.
            if self.taken == before {
                break;
            }
        }
    }

    fn follow(&mut self, site: usize, view: &ConnectionView, now: Instant) {
        let ConnectionView { local, remote, facts, .. } = view;
        let identity = Identity { start: facts.start, site, local: *local, remote: *remote };
        if self.followed.len() >= CONNECTIONS_MAX && !self.followed.contains_key(&identity) {
            self.not_all = true;
            return;
        }
        let new = || Followed { congestion_control: view.congestion_control, points: Vec::new() };
        let points = &mut self.followed.entry(identity).or_insert_with(new).points;
        // One that has ended stands as it stood then.
        let at = if view.open { now } else { facts.end };
        if points.last().is_none_or(|last| last.at < at) {
            self.taken += 1;
            points.push(TcpPoint {
                at,
                cwnd: view.cwnd,
                ssthresh: view.ssthresh,
                srtt_s: view.srtt.as_secs_f64(),
                rto_s: view.rto.as_secs_f64(),
                retransmissions: view.retransmissions,
                unacked: view.unacked_segments,
                delivery_rate_bps: view.delivery_rate.bps,
            });
        }
    }
}

/// Drops the samples between multiples of `every`; the last always stays.
fn thin<T>(samples: &mut Vec<T>, every: Duration, at: impl Fn(&T) -> Instant) {
    let last = samples.last().map(&at);
    samples.retain(|sample| at(sample).ns.is_multiple_of(every.ns) || Some(at(sample)) == last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::flow::FlowFacts;
    use bentpipe_net::units::BitRate;

    fn view(open: bool, end: Instant) -> ConnectionView {
        ConnectionView {
            local: "198.18.0.1:80".parse().unwrap(),
            remote: "198.18.0.2:5000".parse().unwrap(),
            congestion_control: "reno",
            open,
            cwnd: 1,
            ssthresh: None,
            srtt: Duration::ZERO,
            rto: Duration::from_secs(1),
            retransmissions: 0,
            unacked_segments: 0,
            delivery_rate: BitRate::from_bps(0),
            facts: FlowFacts { end, ..FlowFacts::default() },
        }
    }

    /// The samples of an hour in which `connections` exist, all of which end at its end.
    fn an_hour(connections: u16, series: SeriesPoints) -> (Vec<Vec<Vec<Sample>>>, Vec<TcpFlowSamples>, bool) {
        let scenario = "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['a', 'b']\n";
        let scenario = crate::scenario::Scenario::parse("x", scenario, &[]).unwrap();
        let setup = super::super::setup(&scenario, &scenario.cases[0]);
        let mut network: super::super::pairs::SimulatedNetwork = Network::new(&setup).unwrap();
        let mut samples = Samples::new(&network, series);
        let end = Instant::ZERO + Duration::from_secs(3_600);
        let of = |port: u16, mut view: ConnectionView| {
            view.local.set_port(port);
            view
        };
        while network.now() < end {
            if network.now() >= samples.connections.next {
                (0..connections)
                    .for_each(|port| samples.follow(0, &of(port, view(true, Instant::ZERO)), network.now()));
            }
            samples.take(&network);
            assert!(samples.next() > network.now());
            network.run_until(samples.next().min(end));
        }
        for at in [end + Duration::from_secs(1), end + Duration::from_secs(1)] {
            (0..connections)
                .for_each(|port| samples.follow(0, &of(port, view(false, at)), at + Duration::from_secs(5)));
        }
        samples.finish(&network)
    }

    #[test]
    fn a_long_run_has_no_more_samples_than_a_chart_can_show() {
        for series in [SeriesPoints::All, SeriesPoints::Bounded] {
            let (links, connections, all) = an_hour(1, series);
            let direction = &links[0][0];
            assert!((1_000..=2_000).contains(&direction.len()), "{}", direction.len());
            assert!(direction.is_sorted_by(|a, b| a.at < b.at));
            assert_eq!((direction[0].at.ns, direction[direction.len() - 1].at.ns), (0, 3_600_000_000_000));
            let cwnd = &connections[0].series[0];
            assert!(all && connections.len() == 1 && (1_000..=2_001).contains(&cwnd.points.len()));
            assert_eq!(cwnd.points[cwnd.points.len() - 1], (3_601.0, 1.0), "once, when it ended");
        }
    }

    #[test]
    fn many_connections_share_a_bounded_number_of_samples() {
        let (links, connections, all) = an_hour(1_100, SeriesPoints::Bounded);
        assert!(!all && connections.len() == CONNECTIONS_MAX);
        let taken: usize = connections.iter().map(|flow| flow.series[0].points.len()).sum();
        assert!((CONNECTION_SAMPLES_MAX / 2 - CONNECTIONS_MAX..=CONNECTION_SAMPLES_MAX).contains(&taken), "{taken}");
        assert!((1_000..=2_000).contains(&links[0][0].len()), "the links' samples are as before");
    }
}
