//! Runs a scenario live: real packets, the wall clock, the kernel's own TCP.

mod collect;
mod commands;

use crate::collect::workloads;
use crate::record::{CaseRecord, FORMAT, Machine, Record, VERSION, WorkloadRecord};
use crate::scenario::workload::{Program, Service, ServiceProgram, Workload};
use crate::scenario::{Case, Role, Scenario};
use bentpipe_apps::report::{Report, Status};
use bentpipe_host::driver::{RunningApp, SiteDriver};
use bentpipe_host::emulation::{Emulation, EmulationError, Setup};
use bentpipe_host::namespace::Privilege;
use bentpipe_host::tcp_samples::TcpSampler;
use bentpipe_host::tcp_stack;
use bentpipe_link::problem::{KeyProblem, Problem};
use bentpipe_link::seed::Seed;
use bentpipe_link::time::{Duration, Instant};
use bentpipe_link::topology;
use commands::{RunningCommand, check_program};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// How to run.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The rights the process has.
    pub privilege: Privilege,
    /// Write a capture of each case here: `DIR/NAME.pcapng`.
    pub capture_directory: Option<PathBuf>,
}

/// What a progress display may show.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// The case's number, from 1, and how many there are.
    pub case: (usize, usize),
    /// Its name.
    pub case_name: String,
    /// Seconds since it started.
    pub seconds: f64,
    /// Workloads that run, with how far they are.
    pub running: Vec<String>,
    /// Workloads still to start.
    pub waiting: usize,
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
/// How long a server may need after its client succeeded.
const SERVER_GRACE: Duration = Duration::from_secs(120);

/// Checks what only a live run needs, before anything starts: settings this kernel keeps, programs that exist.
pub fn check(scenario: &Scenario) -> Result<(), Problem> {
    let place = |problem: KeyProblem| problem.within(&scenario.source_name, &scenario.text);
    for case in &scenario.cases {
        for (host, tcp) in &case.tcp {
            tcp_stack::check(tcp).map_err(|p| place(p.under(&format!("hosts.{host}.tcp"))))?;
        }
        for (i, workload) in case.workloads.iter().enumerate() {
            if let Program::Command(argv) = &workload.program {
                check_program(argv).map_err(|what| place(KeyProblem::new(format!("workloads.{i}.command"), what)))?;
            }
        }
        for (i, service) in case.services.iter().enumerate() {
            if let ServiceProgram::Command(argv) = &service.program {
                check_program(argv).map_err(|what| place(KeyProblem::new(format!("services.{i}.command"), what)))?;
            }
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
    let mut record = Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        bentpipe: env!("CARGO_PKG_VERSION").to_owned(),
        created: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        mode: "live".to_owned(),
        machine: machine(options.privilege),
        title: scenario.title.clone(),
        scenario_file: scenario.source_name.clone(),
        scenario: scenario.text.clone(),
        overrides: scenario.overrides.clone(),
        seed: scenario.seed,
        ..Record::default()
    };
    for (number, case) in scenario.cases.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut shown =
            Progress { case: (number + 1, scenario.cases.len()), case_name: case.name.clone(), ..Progress::default() };
        let result = CaseRun::start(scenario, case, number, options).map(|mut run| {
            run.drive(stop, &mut |seconds, running, waiting| {
                (shown.seconds, shown.running, shown.waiting) = (seconds, running, waiting);
                progress(&shown);
            });
            run.finish()
        });
        match result {
            Ok(case) => record.cases.push(case),
            // What earlier cases measured must not be lost.
            Err(error) if !record.cases.is_empty() => {
                record.cases.push(CaseRecord {
                    name: case.name.clone(),
                    notes: vec![format!("could not run: {error}")],
                    ..CaseRecord::default()
                });
                record.cases.last_mut().into_iter().for_each(|c| c.validity.reasons.push(error.to_string()));
                return Ok(record);
            }
            Err(error) => return Err(error),
        }
    }
    record.interrupted = stop.load(Ordering::Relaxed);
    record.complete = !record.interrupted && record.cases.len() == scenario.cases.len();
    Ok(record)
}

/// One case under way.
struct CaseRun<'a> {
    case: &'a Case,
    seed: Seed,
    // Dropped in this order: programs end before the network they use.
    tasks: Vec<Task<'a>>,
    services: Vec<RunningService>,
    drivers: BTreeMap<usize, SiteDriver>,
    samplers: Vec<(String, TcpSampler)>,
    emulation: Emulation,
    records: Vec<WorkloadRecord>,
    notes: Vec<String>,
    interrupted: bool,
}

struct RunningService {
    site: String,
    what: ServiceState,
}

enum ServiceState {
    App(RunningApp),
    Command(RunningCommand),
}

/// A workload with its place in the schedule.
struct Task<'a> {
    workload: &'a Workload,
    /// Runs finished.
    done: u32,
    /// When the next run starts.
    next_start: Instant,
    running: Option<Running>,
}

struct Running {
    started: Instant,
    what: RunningProgram,
}

enum RunningProgram {
    App {
        client: RunningApp,
        server: Option<RunningApp>,
        /// When the client said that it is done.
        client_ended: Option<Instant>,
    },
    Command(RunningCommand),
}

impl<'a> CaseRun<'a> {
    fn start(
        scenario: &Scenario,
        case: &'a Case,
        number: usize,
        options: &LiveOptions,
    ) -> Result<CaseRun<'a>, LiveError> {
        let setup = Setup {
            links: case
                .links
                .iter()
                .map(|link| {
                    let spec = topology::LinkSpec {
                        name: link.name.clone(),
                        sites: link.sites.clone(),
                        carries_ethernet: link.config.carries_ethernet,
                        mtu: link.config.mtu,
                    };
                    (spec, link.config.clone())
                })
                .collect(),
            roles: case.roles.iter().map(|(site, role)| (site.clone(), (*role).into())).collect(),
            tcp: case.tcp.clone(),
            seed: scenario.seed,
            capture: options.capture_directory.as_ref().map(|dir| dir.join(capture_name(number, &case.name))),
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
        let tasks = case
            .workloads
            .iter()
            .map(|workload| Task { workload, done: 0, next_start: Instant::ZERO + workload.start, running: None })
            .collect();
        let mut run = CaseRun {
            case,
            seed: Seed(scenario.seed),
            tasks,
            services: Vec::new(),
            drivers: BTreeMap::new(),
            samplers,
            emulation,
            records: Vec::new(),
            notes,
            interrupted: false,
        };
        for service in &case.services {
            run.start_service(service)?;
        }
        // The case's time starts when everything stands.
        let now = clock.now();
        run.tasks.iter_mut().for_each(|task| task.next_start += now - Instant::ZERO);
        Ok(run)
    }

    fn start_service(&mut self, service: &Service) -> Result<(), LiveError> {
        let site = self.site(&service.site);
        let what = match &service.program {
            ServiceProgram::Command(argv) => {
                ServiceState::Command(RunningCommand::start(&self.emulation, site, argv).map_err(|source| {
                    LiveError::Command { command: argv.join(" "), site: service.site.clone(), source }
                })?)
            }
            ServiceProgram::App(..) => {
                let seed = self.seed.child(&format!("services/{}", self.services.len())).0;
                let Some(app) = service.app(seed) else { return Ok(()) };
                ServiceState::App(self.driver(site)?.run(app))
            }
        };
        self.services.push(RunningService { site: service.site.clone(), what });
        Ok(())
    }

    /// The number of a site that the scenario has checked to exist.
    fn site(&self, name: &str) -> usize {
        self.emulation.plan.site(name).unwrap_or_else(|| unreachable!("site {name} was checked when the file was read"))
    }

    fn driver(&mut self, site: usize) -> Result<&SiteDriver, LiveError> {
        if !self.drivers.contains_key(&site) {
            let driver = SiteDriver::start(self.emulation.namespace(site), self.emulation.clock());
            let name = self.emulation.plan.sites[site].name.clone();
            self.drivers.insert(site, driver.map_err(|source| LiveError::Site { site: name, source })?);
        }
        Ok(&self.drivers[&site])
    }

    /// Starts, watches and ends the workloads until all are done.
    fn drive(&mut self, stop: &AtomicBool, progress: &mut dyn FnMut(f64, Vec<String>, usize)) {
        let clock = self.emulation.clock();
        let end = self.case.duration.map_or(Instant::FAR, |duration| clock.now() + duration);
        let mut next_progress = clock.now();
        loop {
            let now = clock.now();
            for i in 0..self.tasks.len() {
                self.step(i, now);
            }
            let foreground_left =
                self.tasks.iter().any(|t| !t.workload.background && (t.running.is_some() || t.runs_left()));
            let only_background = self.tasks.iter().all(|task| task.workload.background);
            let background_left = self.tasks.iter().any(|task| task.running.is_some() || task.runs_left());
            let over = if only_background { !background_left } else { !foreground_left };
            if over || now >= end || stop.load(Ordering::Relaxed) {
                self.interrupted = !over && now < end;
                break;
            }
            if now >= next_progress {
                next_progress = now + PROGRESS_EVERY;
                let running = self.tasks.iter().filter_map(Task::describe).collect();
                let waiting = self.tasks.iter().filter(|task| task.running.is_none() && task.runs_left()).count();
                progress(now.as_secs_f64(), running, waiting);
            }
            std::thread::sleep(TICK);
        }
        let now = clock.now();
        for i in 0..self.tasks.len() {
            if let Some(running) = self.tasks[i].running.take() {
                self.end(i, running, now, true);
            }
        }
    }

    /// Starts or ends workload `i` if its time has come.
    fn step(&mut self, i: usize, now: Instant) {
        let task = &mut self.tasks[i];
        if let Some(running) = &mut task.running {
            if running.is_over(now)
                && let Some(running) = task.running.take()
            {
                self.end(i, running, now, false);
            }
        } else if task.runs_left() && now >= task.next_start {
            let workload = task.workload;
            match self.begin(workload, i) {
                Ok(running) => self.tasks[i].running = Some(running),
                Err(error) => {
                    self.tasks[i].done = workload.repeat;
                    let mut record = workloads::workload_record(workload, 1, now);
                    (record.status, record.error) = ("failed".to_owned(), Some(error.to_string()));
                    self.records.push(record);
                }
            }
        }
    }

    fn begin(&mut self, workload: &Workload, i: usize) -> Result<Running, LiveError> {
        let client_site = self.site(&workload.client);
        let what = if let Program::Command(argv) = &workload.program {
            let started = RunningCommand::start(&self.emulation, client_site, argv);
            RunningProgram::Command(started.map_err(|source| LiveError::Command {
                command: argv.join(" "),
                site: workload.client.clone(),
                source,
            })?)
        } else {
            let server_site = self.site(workload.server.as_deref().unwrap_or(&workload.client));
            let address = self.emulation.plan.address(server_site).map_or(IpAddr::from([127, 0, 0, 1]), IpAddr::from);
            let seed = self.seed.child(&format!("workloads/{}/{}", workload.name, self.tasks[i].done)).0;
            let server = match workload.program.server(seed) {
                Some(app) => Some(self.driver(server_site)?.run(app)),
                None => None,
            };
            let app = workload
                .program
                .client(address, seed)
                .unwrap_or_else(|| unreachable!("every program but a command has a client"));
            let client = self.driver(client_site)?.run(app);
            RunningProgram::App { client, server, client_ended: None }
        };
        Ok(Running { started: self.emulation.clock().now(), what })
    }

    /// Notes how a run of workload `i` went; `cut`: it had not ended by itself.
    fn end(&mut self, i: usize, running: Running, now: Instant, cut: bool) {
        let task = &mut self.tasks[i];
        task.done += 1;
        task.next_start = now + task.workload.pause;
        let mut record = workloads::workload_record(task.workload, task.done, running.started);
        // What stops with the others has done what it was there for.
        let cut_status = if task.workload.background && !self.interrupted { "done" } else { "interrupted" };
        match running.what {
            RunningProgram::App { client, server, .. } => {
                let server_report = server.and_then(RunningApp::stop);
                let Some(client) = client.stop() else {
                    (record.status, record.error) = ("failed".to_owned(), Some("its thread ended".to_owned()));
                    self.records.push(record);
                    return;
                };
                let report: Report = task.workload.program.combine(client, server_report);
                match &report.status {
                    Status::Done => record.status = "done".to_owned(),
                    Status::Running => record.status = if cut { cut_status } else { "interrupted" }.to_owned(),
                    Status::Failed(why) => {
                        (record.status, record.error) = ("failed".to_owned(), Some(why.clone()));
                    }
                }
                workloads::put_report(&mut record, &report);
            }
            RunningProgram::Command(command) => {
                let ended = command.finish(cut);
                workloads::put_command(&mut record, &ended, cut.then_some(cut_status));
            }
        }
        workloads::judge(&mut record, task.workload);
        self.records.push(record);
    }

    fn finish(mut self) -> CaseRecord {
        for service in std::mem::take(&mut self.services) {
            match service.what {
                ServiceState::App(app) => {
                    if let Some(Report { status: Status::Failed(why), .. }) = app.stop() {
                        self.notes.push(format!("a service at {} failed: {why}", service.site));
                    }
                }
                ServiceState::Command(command) => {
                    let ended = command.finish(true);
                    if let Some(exit) = ended.ended_by_itself {
                        let why = ended.stderr.lines().last().unwrap_or_default();
                        self.notes.push(format!("the service {:?} ended early with {exit}: {why}", ended.command));
                    }
                }
            }
        }
        self.drivers.clear();
        let samples = self.samplers.into_iter().map(|(site, sampler)| (site, sampler.finish())).collect();
        let plan = self.emulation.plan.clone();
        let held = (0..plan.sites.len()).map(|site| self.emulation.held_settings(site).to_vec()).collect();
        let outcome = self.emulation.finish();
        collect::case_record(collect::Collected {
            case: self.case,
            plan,
            held,
            samples,
            outcome,
            workloads: self.records,
            notes: self.notes,
        })
    }
}

impl Task<'_> {
    fn runs_left(&self) -> bool {
        self.done < self.workload.repeat
    }

    fn describe(&self) -> Option<String> {
        let running = self.running.as_ref()?;
        let name = &self.workload.name;
        let RunningProgram::App { client, server, .. } = &running.what else { return Some(name.clone()) };
        // Progress stands where data is received.
        let reports = [client.report(), server.as_ref().and_then(RunningApp::report)];
        let received =
            reports.iter().flatten().filter_map(|r| r.value("bytes").or(r.value("received"))).fold(0.0, f64::max);
        let unit = if matches!(self.workload.program, Program::Ping(_)) { "replies" } else { "B" };
        Some(format!("{name}: {received} {unit}"))
    }
}

impl Running {
    /// Nothing is left to wait for.
    fn is_over(&mut self, now: Instant) -> bool {
        match &mut self.what {
            RunningProgram::Command(command) => command.has_ended(),
            RunningProgram::App { client, server, client_ended } => {
                if !client.has_ended() {
                    return false;
                }
                let since = *client_ended.get_or_insert(now);
                // A client that failed has nothing to wait for; an upload's server may still be receiving.
                let failed = client.report().is_none_or(|report| matches!(report.status, Status::Failed(_)));
                failed || server.as_mut().is_none_or(RunningApp::has_ended) || now.since(since) > SERVER_GRACE
            }
        }
    }
}

impl From<Role> for topology::Role {
    fn from(role: Role) -> topology::Role {
        match role {
            Role::Host => topology::Role::Host,
            Role::Router => topology::Role::Router,
            Role::Bridge => topology::Role::Bridge,
        }
    }
}

/// A file name for the capture of a case.
fn capture_name(number: usize, name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    format!("{}-{}.pcapng", number + 1, plain.trim_matches('-'))
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
