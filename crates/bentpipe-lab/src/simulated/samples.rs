//! Samples of a virtual network over time.

use crate::collect::tcp::{TcpPoint, tcp_flow};
use crate::record::TcpFlowSamples;
use bentpipe_link::direction::Sample;
use bentpipe_net::interception::GatewayProgram;
use bentpipe_net::socket::Program;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::Plan;
use bentpipe_sim::network::{ConnectionView, Network};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// First distance of samples, as in a live run; doubled whenever [`SAMPLES_MAX`] are reached.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Samples kept of anything: as many as a chart can show.
const SAMPLES_MAX: usize = 2_000;
/// Connections followed in a case, as in a live run.
const CONNECTIONS_MAX: usize = 1_024;

/// The samples so far.
pub struct Samples {
    every: Duration,
    next: Instant,
    rounds: usize,
    /// Each link's directions.
    links: Vec<Vec<Vec<Sample>>>,
    connections: BTreeMap<Identity, Followed>,
    /// Connections of each site that were over at the last sample: they stand as they ended.
    ended: Vec<usize>,
    /// One more was there than is followed.
    not_all: bool,
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

impl Samples {
    /// Nothing yet; the first sample is due at once.
    pub fn new<P: Program, G: GatewayProgram>(network: &Network<P, G>) -> Samples {
        Samples {
            every: SAMPLE_EVERY,
            next: Instant::ZERO,
            rounds: 0,
            links: network.links().iter().map(|link| vec![Vec::new(); link.directions().len()]).collect(),
            connections: BTreeMap::new(),
            ended: vec![0; network.plan().sites.len()],
            not_all: false,
        }
    }

    /// When the next sample is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Takes a sample.
    pub fn take<P: Program, G: GatewayProgram>(&mut self, network: &Network<P, G>) {
        let now = network.now();
        let directions = network.links().iter().flat_map(|link| link.directions());
        for (samples, direction) in self.links.iter_mut().flatten().zip(directions) {
            if samples.last().is_none_or(|last| last.at < now) {
                samples.push(direction.sample(now));
            }
        }
        for site in 0..network.plan().sites.len() {
            for view in network.connections_after(site, self.ended[site]) {
                self.follow(site, &view, now);
            }
            self.ended[site] = network.ended(site);
        }
        self.rounds += 1;
        if self.rounds >= SAMPLES_MAX {
            self.thin();
        }
        self.next = Instant { ns: (now.ns / self.every.ns).saturating_add(1).saturating_mul(self.every.ns) };
    }

    /// The samples of each link's directions, the connections', and whether those are all.
    pub fn finish(self, plan: &Plan) -> (Vec<Vec<Vec<Sample>>>, Vec<TcpFlowSamples>, bool) {
        let flow = |(id, followed): (&Identity, &Followed)| {
            let host = &plan.sites[id.site].name;
            tcp_flow(host, (id.local, id.remote), followed.congestion_control, &followed.points)
        };
        let connections = self.connections.iter().map(flow).collect();
        (self.links, connections, !self.not_all)
    }

    fn follow(&mut self, site: usize, view: &ConnectionView, now: Instant) {
        let ConnectionView { local, remote, facts, .. } = view;
        let identity = Identity { start: facts.start, site, local: *local, remote: *remote };
        if self.connections.len() >= CONNECTIONS_MAX && !self.connections.contains_key(&identity) {
            self.not_all = true;
            return;
        }
        let new = || Followed { congestion_control: view.congestion_control, points: Vec::new() };
        let points = &mut self.connections.entry(identity).or_insert_with(new).points;
        // One that has ended stands as it stood then.
        let at = if view.open { now } else { facts.end };
        if points.last().is_none_or(|last| last.at < at) {
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

    /// Doubles the distance of samples and drops those that are then in between; the last of each always stays.
    fn thin(&mut self) {
        self.every += self.every;
        self.rounds = self.rounds.div_ceil(2);
        let every = self.every;
        self.links.iter_mut().flatten().for_each(|samples| thin(samples, every, |sample| sample.at));
        self.connections.values_mut().for_each(|followed| thin(&mut followed.points, every, |point| point.at));
    }
}

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

    #[test]
    fn a_long_run_has_no_more_samples_than_a_chart_can_show() {
        let scenario = "title = 'x'\n[links.sat]\nkind = 'lan'\nbetween = ['a', 'b']\n";
        let scenario = crate::scenario::Scenario::parse("x", scenario, &[]).unwrap();
        let setup = super::super::setup(&scenario, &scenario.cases[0]);
        let mut network: super::super::pairs::SimulatedNetwork = Network::new(&setup).unwrap();
        let mut samples = Samples::new(&network);
        let end = Instant::ZERO + Duration::from_secs(3_600);
        while network.now() < end {
            samples.take(&network);
            samples.follow(0, &view(true, Instant::ZERO), network.now());
            assert!(samples.next() > network.now());
            network.run_until(samples.next().min(end));
        }
        samples.take(&network);
        for at in [end + Duration::from_secs(1), end + Duration::from_secs(1)] {
            samples.follow(0, &view(false, at), at + Duration::from_secs(5));
        }
        let (links, connections, all) = samples.finish(network.plan());
        let direction = &links[0][0];
        assert!((1_000..=2_000).contains(&direction.len()), "{}", direction.len());
        assert!(direction.is_sorted_by(|a, b| a.at < b.at));
        assert_eq!((direction[0].at, direction[direction.len() - 1].at), (Instant::ZERO, end));
        let cwnd = &connections[0].series[0];
        assert!(all && connections.len() == 1 && (1_000..=2_001).contains(&cwnd.points.len()));
        assert_eq!(cwnd.points[cwnd.points.len() - 1], (3_601.0, 1.0), "once, when it ended");
    }
}
