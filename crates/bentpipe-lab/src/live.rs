//! Runs a scenario live: real packets, the wall clock, the kernel's own TCP.

mod collect;
mod commands;
mod gateways;

use crate::collect::workloads::EndedCommand;
use crate::record::{CaseRecord, Machine, Mode, Record};
use crate::scenario::{Case, CommandUse, Scenario};
use crate::schedule::{Advance, Ended, Progress, Schedule, World, empty_record, run_cases};
use bentpipe_apps::report::{App, Report};
use bentpipe_host::driver::{RunningApp, SiteDriver};
use bentpipe_host::emulation::{Emulation, EmulationError, Setup};
use bentpipe_host::namespace::Privilege;
use bentpipe_host::tcp_samples::TcpSampler;
use bentpipe_host::tcp_stack;
use bentpipe_net::problem::{KeyProblem, Problem};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::Plan;
use commands::{RunningCommand, check_program};
use gateways::Pairs;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// How to run.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The rights the process has.
    pub privilege: Privilege,
    /// Write a capture of each case here: `DIR/NAME.pcapng`.
    pub capture_directory: Option<PathBuf>,
}

/// Why a live run could not start. What had been measured before is lost only if nothing had.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The scenario asks for what a live run cannot do.
    #[error(transparent)]
    Scenario(#[from] Problem),
    /// The network could not be built.
    #[error(transparent)]
    Emulation(#[from] EmulationError),
    /// A workload's thread could not be started.
    #[error("cannot start the workloads of {site}: {source}")]
    Site {
        /// The site.
        site: String,
        /// Why.
        source: io::Error,
    },
    /// A gateway could not be started.
    #[error("cannot start the gateway {site}: {source}")]
    Gateway {
        /// Its site.
        site: String,
        /// Why.
        source: io::Error,
    },
    /// A command could not be started.
    #[error("cannot start {command:?} at {site}: {source}")]
    Command {
        /// The program.
        command: String,
        /// The site.
        site: String,
        /// Why.
        source: io::Error,
    },
}

/// How often the schedule is looked at.
const TICK: std::time::Duration = std::time::Duration::from_millis(3);
/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// How often the kernel's TCP state is sampled.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Checks what only a live run needs, before anything starts: settings this kernel keeps, programs that exist.
pub fn check(scenario: &Scenario) -> Result<(), Problem> {
    let place = |problem: KeyProblem| problem.within(&scenario.source_name, &scenario.text);
    for case in &scenario.cases {
        for (host, tcp) in &case.tcp {
            tcp_stack::check(tcp).map_err(|p| place(p.under(&format!("hosts.{host}.tcp"))))?;
        }
        for CommandUse { key, argv, .. } in case.commands() {
            check_program(argv).map_err(|what| place(KeyProblem::new(key, what)))?;
        }
    }
    Ok(())
}

/// Runs every case. `stop` ends the run early; what was measured by then is in the record.
pub fn run(
    scenario: &Scenario,
    options: &LiveOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Record, LiveError> {
    check(scenario)?;
    let mut record = empty_record(scenario, Mode::Live);
    record.created = Some(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    record.machine = Some(machine(options.privilege));
    run_cases(scenario, record, stop, |number, case, mut shown| {
        let mut run = CaseRun::start(scenario, case, number, options)?;
        run.schedule.drive(&mut run.world, stop, &mut |seconds, running, waiting| {
            (shown.seconds, shown.running, shown.waiting) = (seconds, running, waiting);
            progress(&shown);
        });
        Ok(run.finish())
    })
}

/// One case under way.
struct CaseRun<'a> {
    case: &'a Case,
    // Dropped in this order: programs end before the network they use.
    schedule: Schedule<'a, LiveWorld>,
    samplers: Vec<(String, TcpSampler)>,
    gateways: Pairs,
    world: LiveWorld,
    notes: Vec<String>,
}

/// Real sites and the wall clock.
struct LiveWorld {
    drivers: BTreeMap<usize, SiteDriver>,
    emulation: Emulation,
    next_progress: Instant,
}

impl<'a> CaseRun<'a> {
    fn start(
        scenario: &Scenario,
        case: &'a Case,
        number: usize,
        options: &LiveOptions,
    ) -> Result<CaseRun<'a>, LiveError> {
        let setup = Setup {
            links: case.network_links(),
            roles: case.network_roles(),
            tcp: case.network_tcp(),
            seed: scenario.seed,
            capture: options.capture_directory.as_ref().map(|dir| dir.join(case.capture_name(number))),
            resolver: None,
        };
        let emulation = Emulation::start(&setup, options.privilege)?;
        let clock = emulation.clock();
        let mut samplers = Vec::new();
        let mut notes = Vec::new();
        for (site, plan) in emulation.plan.sites.iter().enumerate() {
            // A site that only forwards has no connections of its own, but a command may make some.
            match TcpSampler::start(emulation.namespace(site), clock, SAMPLE_EVERY) {
                Ok(sampler) => samplers.push((plan.name.clone(), sampler)),
                Err(error) => notes.push(format!("no samples of the TCP state of {}: {error}", plan.name)),
            }
        }
        let gateways = Pairs::start(case, scenario.seed, &emulation)
            .map_err(|(site, source)| LiveError::Gateway { site, source })?;
        let mut world = LiveWorld { drivers: BTreeMap::new(), emulation, next_progress: Instant::ZERO };
        let schedule = Schedule::start(case, scenario.seed, false, &mut world)?;
        Ok(CaseRun { case, schedule, samplers, gateways, world, notes })
    }

    fn finish(mut self) -> CaseRecord {
        let Ended { workloads, notes } = self.schedule.finish(&mut self.world);
        self.notes.extend(notes);
        let (left, remarks) = self.gateways.finish();
        self.notes.extend(remarks);
        let LiveWorld { drivers, emulation, .. } = self.world;
        drop(drivers);
        let samples = self.samplers.into_iter().map(|(site, sampler)| (site, sampler.finish())).collect();
        let plan = emulation.plan.clone();
        let held = (0..plan.sites.len()).map(|site| emulation.held_settings(site).to_vec()).collect();
        let outcome = emulation.finish();
        collect::case_record(collect::Collected {
            case: self.case,
            plan,
            held,
            samples,
            outcome,
            workloads,
            left,
            notes: self.notes,
        })
    }
}

impl LiveWorld {
    fn driver(&mut self, site: usize) -> Result<&SiteDriver, LiveError> {
        if !self.drivers.contains_key(&site) {
            let driver = SiteDriver::start(self.emulation.namespace(site), self.emulation.clock());
            let name = self.emulation.plan.sites[site].name.clone();
            self.drivers.insert(site, driver.map_err(|source| LiveError::Site { site: name, source })?);
        }
        Ok(&self.drivers[&site])
    }
}

impl World for LiveWorld {
    type App = RunningApp;
    type Command = RunningCommand;
    type Error = LiveError;

    fn now(&self) -> Instant {
        self.emulation.clock().now()
    }

    fn plan(&self) -> &Plan {
        &self.emulation.plan
    }

    fn start_app(&mut self, site: usize, app: Box<dyn App>) -> Result<RunningApp, LiveError> {
        Ok(self.driver(site)?.run(app))
    }

    fn has_ended(&mut self, app: &mut RunningApp) -> bool {
        app.has_ended()
    }

    fn report(&self, app: &RunningApp) -> Option<Report> {
        app.report()
    }

    fn stop_app(&mut self, app: RunningApp) -> Option<Report> {
        app.stop()
    }

    fn start_command(&mut self, site: usize, argv: &[String]) -> Result<RunningCommand, LiveError> {
        RunningCommand::start(&self.emulation, site, argv).map_err(|source| LiveError::Command {
            command: argv.join(" "),
            site: self.emulation.plan.sites[site].name.clone(),
            source,
        })
    }

    fn command_has_ended(&mut self, command: &mut RunningCommand) -> bool {
        command.has_ended()
    }

    fn end_command(&mut self, command: RunningCommand, end: bool) -> EndedCommand {
        command.finish(end)
    }

    /// The wall clock goes on by itself; nobody tells when a program ends.
    fn advance(&mut self, _until: Instant) -> Advance {
        std::thread::sleep(TICK);
        Advance::Went
    }

    fn progress_due(&mut self) -> bool {
        let now = self.now();
        let due = now >= self.next_progress;
        if due {
            self.next_progress = now + PROGRESS_EVERY;
        }
        due
    }
}

fn machine(privilege: Privilege) -> Machine {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    let (kind, release) = (read("ostype"), read("osrelease"));
    Machine {
        kernel: format!("{} {} {}", kind.trim(), release.trim(), std::env::consts::ARCH),
        cores: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        privileged: privilege == Privilege::Root,
    }
}
