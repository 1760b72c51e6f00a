//! Runs a scenario live: real packets, the wall clock, the kernel's own TCP.

mod collect;
mod commands;
mod gateways;
mod tcp_samplers;

use crate::collect::workloads::EndedCommand;
use crate::events::{Punctuality, Sink, WorldState, link_state};
use crate::record::{CaseRecord, Machine, Mode, Record};
use crate::scenario::{Case, CommandUse, LatenessLimits, Scenario};
use crate::schedule::{Advance, Ended, Schedule, ScheduleOptions, World, empty_record, run_cases};
use crate::thinning::SeriesPoints;
use bentpipe_apps::report::{App, Report};
use bentpipe_host::driver::{RunningApp, SiteDriver};
use bentpipe_host::emulation::{Emulation, EmulationError, Setup};
use bentpipe_host::namespace::Privilege;
use bentpipe_host::tcp_stack;
use bentpipe_host::waker::{Waker, wait_for_any};
use bentpipe_net::problem::{KeyProblem, Problem};
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::Plan;
use commands::{RunningCommand, check_program};
use gateways::Pairs;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use tcp_samplers::TcpSamplers;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The rights the process has.
    pub privilege: Privilege,
    /// Write a capture of each case here: `DIR/NAME.pcapng`.
    pub capture_directory: Option<PathBuf>,
    /// The points of series that the record keeps.
    pub series: SeriesPoints,
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

/// Longest sleep: a stop takes effect after this time at most.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Checks what only a live run needs, before anything starts: settings this kernel keeps, programs that exist.
pub fn check(scenario: &Scenario) -> Result<(), Problem> {
    let place = |problem: KeyProblem| problem.within(&scenario.source_name, &scenario.text);
    for case in &scenario.cases {
        let links: Vec<_> = case.network_links().into_iter().map(|(link, _)| link).collect();
        let plan = Plan::new(&links, &case.network_roles());
        let plan = plan.map_err(|error| place(KeyProblem::new("links", error.to_string())))?;
        scenario.check_routes(case, &plan)?;
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
    sink: &mut dyn Sink,
) -> Result<Record, LiveError> {
    check(scenario)?;
    let mut record = empty_record(scenario, Mode::Live);
    record.created = Some(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    record.machine = Some(machine(options.privilege));
    let mut record = run_cases::<LiveError>(scenario, record, stop, sink, |number, case, sink| {
        let mut run = CaseRun::start(scenario, case, number, options)?;
        run.schedule.drive(&mut run.world, stop, sink);
        Ok(run.finish())
    })?;
    options.series.apply(&mut record);
    Ok(record)
}

/// One case under way.
struct CaseRun<'a> {
    case: &'a Case,
    // Dropped in this order: programs end before the network they use.
    schedule: Schedule<'a, LiveWorld>,
    tcp: TcpSamplers,
    world: LiveWorld,
    notes: Vec<String>,
}

/// Real sites and the wall clock.
struct LiveWorld {
    gateways: Pairs,
    drivers: BTreeMap<usize, SiteDriver>,
    emulation: Emulation,
    limits: LatenessLimits,
    /// Woken when a program becomes done.
    ends: Waker,
    /// Ends of commands (pidfd) that were not announced yet.
    commands: Vec<OwnedFd>,
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
        let (tcp, notes) = TcpSamplers::start(case, &emulation);
        let gateways = Pairs::start(case, scenario.seed, &emulation)
            .map_err(|(site, source)| LiveError::Gateway { site, source })?;
        let ends = Waker::new().map_err(|error| LiveError::Emulation(EmulationError::Start(error)))?;
        let (drivers, commands) = (BTreeMap::new(), Vec::new());
        let mut world = LiveWorld { gateways, drivers, emulation, limits: case.lateness, ends, commands };
        let schedule_options = ScheduleOptions { skip_commands: false, series: options.series };
        let schedule = Schedule::start(case, scenario.seed, schedule_options, &mut world)?;
        Ok(CaseRun { case, schedule, tcp, world, notes })
    }

    fn finish(mut self) -> CaseRecord {
        let Ended { workloads, notes } = self.schedule.finish(&mut self.world);
        self.notes.extend(notes);
        let LiveWorld { gateways, drivers, emulation, .. } = self.world;
        let (left, remarks) = gateways.finish();
        self.notes.extend(remarks);
        drop(drivers);
        let samples = self.tcp.finish();
        let plan = emulation.plan.clone();
        let effective = (0..plan.sites.len()).map(|site| emulation.effective_settings(site).to_vec()).collect();
        let outcome = emulation.finish();
        collect::case_record(collect::Collected {
            case: self.case,
            plan,
            effective,
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
            let driver = SiteDriver::start(self.emulation.namespace(site), self.emulation.clock(), self.ends.clone());
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

    fn start_app(&mut self, site: usize, app: Box<dyn App>, _task: Option<usize>) -> Result<RunningApp, LiveError> {
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
        let started = RunningCommand::start(&self.emulation, site, argv);
        let (command, end) = started.map_err(|source| LiveError::Command {
            command: argv.join(" "),
            site: self.emulation.plan.sites[site].name.clone(),
            source,
        })?;
        self.commands.push(end);
        Ok(command)
    }

    fn command_has_ended(&mut self, command: &mut RunningCommand) -> bool {
        command.has_ended()
    }

    fn end_command(&mut self, command: RunningCommand, end: bool) -> EndedCommand {
        command.finish(end)
    }

    /// Sleeps until a program or a command ends.
    fn advance(&mut self, until: Instant, snapshot: Instant) -> Advance {
        let sleep = until.min(snapshot).since(self.now()).min(SLEEP_MAX);
        let ends: Vec<_> = std::iter::once(self.ends.as_fd()).chain(self.commands.iter().map(AsFd::as_fd)).collect();
        let mut ended = wait_for_any(&ends, sleep.to_std()).into_iter();
        if ended.next() == Some(true) {
            self.ends.clear();
        }
        // Each end is announced once.
        self.commands.retain(|_| ended.next() != Some(true));
        Advance::Went
    }

    fn state(&mut self) -> WorldState {
        let limits = self.limits;
        let seen = self.emulation.control().with(move |pump| {
            let lateness = pump.lateness();
            let (p99, worst) =
                (lateness.quantile(0.99), lateness.worst().first().map_or(Duration::ZERO, |(late, _)| *late));
            let (missed_packets, refused_packets) = (pump.missed_frames(), pump.send_failures());
            let punctuality = Punctuality {
                valid: p99 <= limits.p99 && worst <= limits.worst && missed_packets + refused_packets == 0,
                p99: p99.as_secs_f64(),
                worst: worst.as_secs_f64(),
                missed_packets,
                refused_packets,
            };
            (pump.links().map(|link| link_state(link, pump.now)).collect(), punctuality)
        });
        let (links, punctuality) = seen.unzip();
        WorldState { links: links.unwrap_or_default(), log: self.gateways.new_log_events(), punctuality }
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
