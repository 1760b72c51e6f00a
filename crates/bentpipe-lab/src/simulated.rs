//! Runs a scenario in virtual time: simulated hosts, the same links and workloads, a clock that jumps.
//!
//! Two runs of the same scenario leave the same record, byte for byte.

mod capture;
mod pairs;
mod samples;
mod world;

#[cfg(test)]
mod bill_tests;
#[cfg(test)]
mod dial_tests;
#[cfg(test)]
mod pair_tests;
#[cfg(test)]
mod tests;

use crate::collect::bills::bill_record;
use crate::collect::gateways;
use crate::collect::links::link_record;
use crate::collect::tcp::{self, ConfiguredSetting, ObservedFlow};
use crate::events::Sink;
use crate::record::{CaseRecord, LinkRecord, Mode, Record, Setting, Validity};
use crate::scenario::{Case, CommandUse, Scenario};
use crate::schedule::{Ended, Schedule, ScheduleOptions, empty_record, run_cases};
use crate::thinning::SeriesPoints;
use bentpipe_gateway::satellite::quic::SetupError;
use bentpipe_net::flow::FlowFacts;
use bentpipe_net::problem::{KeyProblem, Problem};
use bentpipe_net::stack::TcpConfig;
use bentpipe_net::topology::Plan;
use bentpipe_sim::network::{ConnectionView, NetworkError, Setup, Stop};
use capture::Capture;
use indexmap::IndexSet;
use pairs::{Pairs, SimulatedNetwork};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use world::VirtualWorld;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct SimulatedOptions {
    /// Write a capture of each case here: `DIR/NAME.pcapng`. Time 0 of a case is 1970-01-01.
    pub capture_directory: Option<PathBuf>,
    /// Leave out what only a live run can do instead of refusing it.
    pub skip_live: bool,
    /// The points of series that the record keeps.
    pub series: SeriesPoints,
}

/// Why a virtual run could not start.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    /// The scenario asks for what a virtual run cannot do.
    #[error(transparent)]
    Scenario(#[from] Problem),
    /// There is no such network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The capture could not be created.
    #[error("cannot write {0}: {1}")]
    Capture(PathBuf, io::Error),
    /// A gateway could not be made.
    #[error("cannot start a gateway: {0}")]
    Gateway(#[from] SetupError),
    /// Only real hosts have programs.
    #[error("cannot run {command:?}: only a live run can")]
    Command {
        /// The program.
        command: String,
    },
}

/// Checks what only a virtual run needs, before anything starts: no commands, a network that can be simulated. With
/// `skip_live`, commands are left out instead of refused; the answer names them.
pub fn check(scenario: &Scenario, skip_live: bool) -> Result<Vec<String>, Problem> {
    let mut left_out = IndexSet::new();
    for case in &scenario.cases {
        for CommandUse { key, what, .. } in case.commands() {
            if !skip_live {
                let message = format!(
                    "{what} runs a command: only a live run can; `bentpipe run --virtual --skip-live` leaves it out"
                );
                return Err(KeyProblem::new(key, message).within(&scenario.source_name, &scenario.text));
            }
            left_out.insert(what);
        }
        let network = SimulatedNetwork::new(&setup(scenario, case)).map_err(|error| place(scenario, case, error))?;
        scenario.check_routes(case, network.plan())?;
    }
    Ok(left_out.into_iter().collect())
}

/// Names of the workloads with an objective that are commands.
fn unjudged(scenario: &Scenario) -> Vec<String> {
    let mut names = IndexSet::new();
    for workload in scenario.cases.iter().flat_map(|case| &case.workloads) {
        let (name, is_command) = (workload.id.to_string(), workload.placement.workload.command().is_some());
        if is_command && workload.objective.is_some() {
            names.insert(name);
        }
    }
    names.into_iter().collect()
}

/// Where in the file a network that cannot be simulated is asked for.
fn place(scenario: &Scenario, case: &Case, error: NetworkError) -> Problem {
    let lead = if scenario.cases.len() > 1 { format!("case {:?}: ", case.name) } else { String::new() };
    let (key, message) = match error {
        NetworkError::Tcp { site, key, message } => (format!("hosts.{site}.tcp.{key}"), message),
        other => (String::new(), other.to_string()),
    };
    KeyProblem::new(key, format!("{lead}{message}")).within(&scenario.source_name, &scenario.text)
}

/// Runs every case. `stop` ends the run early; what was measured by then is in the record.
pub fn run(scenario: &Scenario, options: &SimulatedOptions, stop: &AtomicBool) -> Result<Record, SimulatedError> {
    run_with_events(scenario, options, stop, &mut ())
}

/// The same, with the run's events. They make no difference to the record.
pub fn run_with_events(
    scenario: &Scenario,
    options: &SimulatedOptions,
    stop: &AtomicBool,
    sink: &mut dyn Sink,
) -> Result<Record, SimulatedError> {
    let mut record = empty_record(scenario, Mode::Virtual);
    record.left_out = check(scenario, options.skip_live)?;
    if options.skip_live {
        record.left_out_objectives = unjudged(scenario);
    }
    let mut record = run_cases(scenario, record, stop, sink, |number, case, sink| {
        run_case(scenario, case, number, options, stop, sink)
    })?;
    options.series.apply(&mut record);
    Ok(record)
}

fn run_case(
    scenario: &Scenario,
    case: &Case,
    number: usize,
    options: &SimulatedOptions,
    stop: &AtomicBool,
    sink: &mut dyn Sink,
) -> Result<CaseRecord, SimulatedError> {
    let mut network = SimulatedNetwork::new(&setup(scenario, case))?;
    let path = options.capture_directory.as_ref().map(|folder| folder.join(case.capture_name(number)));
    let capture = match &path {
        None => None,
        Some(path) => {
            let created = Capture::create(path, network.plan());
            let capture = created.map_err(|error| SimulatedError::Capture(path.clone(), error))?;
            network.observe(capture.observer());
            Some((path, capture))
        }
    };
    let pairs = Pairs::start(case, scenario.seed, &mut network)?;
    let mut world = VirtualWorld::new(network, pairs, options.series);
    let schedule_options = ScheduleOptions { skip_commands: options.skip_live, series: options.series };
    let mut schedule = Schedule::start(case, scenario.seed, schedule_options, &mut world)?;
    schedule.drive(&mut world, stop, sink);
    let Ended { workloads, mut notes } = schedule.finish(&mut world);
    let VirtualWorld { mut network, samples, pairs, .. } = world;
    let end = network.now();
    // The links' counters are as of now once nothing is left to do now.
    while network.run_until(end) == Stop::ProgramDone {}
    let (link_samples, tcp_samples, all_followed) = samples.finish(&network);
    if !all_followed {
        notes.push("there were more TCP connections than are sampled".to_owned());
    }
    if let Some((path, capture)) = capture
        && let Err(error) = capture.finish()
    {
        notes.push(format!("the capture is broken: {}: {error}", path.display()));
    }
    if options.skip_live {
        let left_out = case
            .commands()
            .map(|CommandUse { what, .. }| format!("left out: {what}, a command, which only a live run can run"));
        notes.extend(left_out);
    }
    let left = pairs.left(&network);
    notes.extend(gateways::early_workloads(case, &left, &workloads));
    let connections = Connections::of(&network);
    let flows = tcp::flows(connections.seen());
    let links = case.links.iter().zip(network.links()).zip(&link_samples).enumerate();
    let links = links.map(|(number, ((used, link), samples))| {
        let bill = link.bill(end).map(|bill| bill_record(case, network.plan(), number, &bill, &flows));
        LinkRecord { bill, ..link_record(used, link, samples, end) }
    });
    Ok(CaseRecord {
        name: case.name.clone(),
        seconds: end.as_secs_f64(),
        // Nothing is ever late in virtual time.
        validity: Validity { valid: true, reasons: Vec::new() },
        settings: connections.settings(case, network.plan()),
        workloads,
        links: links.collect(),
        lateness: None,
        tcp_samples,
        flows,
        compared: gateways::compared(case),
        gateways: gateways::gateway_records(case, &left),
        notes,
    })
}

fn setup(scenario: &Scenario, case: &Case) -> Setup {
    Setup { links: case.network_links(), roles: case.network_roles(), tcp: case.network_tcp(), seed: scenario.seed }
}

/// The connections of a network, with their sites' names.
struct Connections {
    views: Vec<(String, ConnectionView)>,
}

impl Connections {
    fn of(network: &SimulatedNetwork) -> Connections {
        let sites = network.plan().sites.iter().enumerate();
        let views = sites
            .flat_map(|(number, site)| network.connections(number).into_iter().map(|view| (site.name.clone(), view)));
        Connections { views: views.collect() }
    }

    fn seen(&self) -> impl Iterator<Item = ObservedFlow<'_>> {
        self.views.iter().map(|(host, view)| ObservedFlow {
            host,
            own: view.local,
            peer: view.remote,
            facts: &view.facts,
        })
    }

    /// The settings of each host: configured, and as observed in its connections.
    fn settings(&self, case: &Case, plan: &Plan) -> Vec<Setting> {
        let mut settings = Vec::new();
        for host in plan.sites.iter().map(|site| &site.name) {
            let Some(config) = case.tcp.get(host) else { continue };
            let seen: Vec<&FlowFacts> = self.seen().filter(|flow| flow.host == host).map(|flow| flow.facts).collect();
            settings.extend(tcp::settings(host, config, &configured(config), &seen));
        }
        settings
    }
}

/// Every setting that is configured, and the windows even if they are not, as in a live run.
fn configured(config: &TcpConfig) -> Vec<ConfiguredSetting> {
    let setting = |key, configured| ConfiguredSetting { key, configured, kernel: None };
    let configured = config.configured();
    let windows =
        ["receive_window", "send_buffer"].into_iter().filter(|key| configured.iter().all(|(name, _)| name != key));
    let windows: Vec<ConfiguredSetting> = windows.map(|key| setting(key, "(left to the host)".to_owned())).collect();
    let configured =
        configured.into_iter().filter(|(key, _)| *key != "preset").map(|(key, configured)| setting(key, configured));
    configured.chain(windows).collect()
}
