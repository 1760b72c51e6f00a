//! Samples of the kernel's TCP state at the sites that have connections.

use crate::scenario::Case;
use bentpipe_host::emulation::Emulation;
use bentpipe_host::tcp_samples::{SampledConnection, TcpSampler};
use bentpipe_net::time::Duration;
use std::collections::BTreeSet;

/// Interval between samples.
const INTERVAL: Duration = Duration::from_millis(100);
/// Sites that are sampled so often; of twice as many, each is half as often.
const SITES_MAX: usize = 8;

/// One sampler for each site, by the site's name.
pub struct TcpSamplers(Vec<(String, TcpSampler)>);

impl TcpSamplers {
    /// Starts sampling, and says what a reader of the samples must know.
    pub fn start(case: &Case, emulation: &Emulation) -> (TcpSamplers, Vec<String>) {
        let (mut samplers, mut notes) = (Vec::new(), Vec::new());
        let sites = sites(case);
        let interval = interval(sites.len());
        if interval > INTERVAL {
            notes.push(format!("the TCP state of {} sites was sampled every {interval}", sites.len()));
        }
        for (site, plan) in emulation.plan.sites.iter().enumerate().filter(|(_, plan)| sites.contains(&*plan.name)) {
            match TcpSampler::start(emulation.namespace(site), emulation.clock(), interval) {
                Ok(sampler) => samplers.push((plan.name.clone(), sampler)),
                Err(error) => notes.push(format!("no samples of the TCP state of {}: {error}", plan.name)),
            }
        }
        (TcpSamplers(samplers), notes)
    }

    /// Ends sampling; the samples of each site.
    pub fn finish(self) -> Vec<(String, Vec<SampledConnection>)> {
        self.0.into_iter().map(|(site, sampler)| (site, sampler.finish())).collect()
    }
}

/// Sites that have TCP connections of their own: those of workloads, services and gateways.
fn sites(case: &Case) -> BTreeSet<&str> {
    let workloads = case.workloads.iter().map(|workload| &workload.placement);
    let placements = workloads.chain(case.services.iter().map(|service| &service.placement));
    let parties = placements.flat_map(|placement| placement.parties.iter().map(|party| party.site.as_str()));
    parties.chain(case.pairs.iter().flat_map(|pair| pair.sites.iter().map(String::as_str))).collect()
}

/// Time between samples of each of so many sites: each costs a walk through all the machine's connections.
fn interval(sites: usize) -> Duration {
    let shares = sites.div_ceil(SITES_MAX).max(1);
    Duration { ns: INTERVAL.ns * shares as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn only_sites_with_connections_are_sampled_and_many_of_them_less_often() {
        let text = "title = 'x'\n[links.a]\nkind = 'lan'\nbetween = ['hub', 'one', 'two']\n\
            [links.b]\nkind = 'lan'\nbetween = ['hub', 'three']\n[hosts.hub]\nrole = 'router'\n\
            [[services]]\nsite = 'two'\napp = 'http'\n\
            [[workloads]]\napp = 'bulk'\nclient = 'one'\nserver = 'three'\nbytes = '1 kB'\n";
        let scenario = Scenario::parse("x.toml", text, &[]).unwrap();
        assert_eq!(sites(&scenario.cases[0]).into_iter().collect::<Vec<_>>(), ["one", "three", "two"]);
        let every = [0, 1, 8, 9, 300].map(|sites| interval(sites).as_secs_f64());
        assert_eq!(every, [0.1, 0.1, 0.1, 0.2, 3.8]);
    }
}
