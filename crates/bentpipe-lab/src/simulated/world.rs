//! Simulated sites and a clock that jumps.

use super::SimulatedError;
use super::pairs::{Pairs, SimulatedNetwork};
use super::samples::Samples;
use crate::collect::workloads::EndedCommand;
use crate::events::{WorldState, link_state};
use crate::schedule::{Advance, EndedTasks, World};
use crate::thinning::SeriesPoints;
use bentpipe_apps::report::{App, Report};
use bentpipe_net::socket::Program;
use bentpipe_net::time::{Duration, Instant};
use bentpipe_net::topology::Plan;
use bentpipe_sim::network::{ProgramId, Stop};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Longest time let pass at once, so that a stop is noticed.
const SLICE: Duration = Duration::from_secs(1);

/// A simulated network under way.
pub struct VirtualWorld {
    pub network: SimulatedNetwork,
    pub samples: Samples,
    pub pairs: Pairs,
    /// The task of each program under way that has one.
    tasks: BTreeMap<ProgramId, usize>,
    /// End of the slice that a snapshot broke off.
    slice: Option<Instant>,
}

impl VirtualWorld {
    pub fn new(network: SimulatedNetwork, pairs: Pairs, series: SeriesPoints) -> VirtualWorld {
        let samples = Samples::new(&network, series);
        VirtualWorld { network, samples, pairs, tasks: BTreeMap::new(), slice: None }
    }

    fn sample_if_due(&mut self) {
        if self.network.now() >= self.samples.next() {
            self.samples.take(&self.network);
        }
    }
}

impl World for VirtualWorld {
    type App = ProgramId;
    type Command = Infallible;
    type Error = SimulatedError;

    fn now(&self) -> Instant {
        self.network.now()
    }

    fn plan(&self) -> &Plan {
        self.network.plan()
    }

    fn start_app(&mut self, site: usize, app: Box<dyn App>, task: Option<usize>) -> Result<ProgramId, SimulatedError> {
        let program = self.network.start(site, app);
        self.tasks.extend(task.map(|task| (program, task)));
        Ok(program)
    }

    fn take_ended(&mut self) -> EndedTasks {
        let done = self.network.take_done_programs();
        EndedTasks::These(done.iter().filter_map(|program| self.tasks.get(program).copied()).collect())
    }

    fn has_ended(&mut self, app: &mut ProgramId) -> bool {
        self.network.program(*app).is_none_or(|program| program.is_done())
    }

    fn report(&self, app: &ProgramId) -> Option<Report> {
        Some(self.network.program(*app)?.report(self.network.now()))
    }

    fn stop_app(&mut self, app: ProgramId) -> Option<Report> {
        self.tasks.remove(&app);
        Some(self.network.stop(app)?.report(self.network.now()))
    }

    fn start_command(&mut self, _site: usize, argv: &[String]) -> Result<Infallible, SimulatedError> {
        Err(SimulatedError::Command { command: argv.join(" ") })
    }

    fn command_has_ended(&mut self, command: &mut Infallible) -> bool {
        match *command {}
    }

    fn end_command(&mut self, command: Infallible, _end: bool) -> EndedCommand {
        match command {}
    }

    fn advance(&mut self, until: Instant, snapshot: Instant) -> Advance {
        self.sample_if_due();
        let slice = self.slice.take().unwrap_or(self.network.now() + SLICE);
        let end = until.min(self.samples.next()).min(slice);
        let mut stop = self.network.run_until(end.min(snapshot));
        if snapshot < end && stop != Stop::ProgramDone {
            if stop == Stop::Idle && until == Instant::FAR {
                // The case ends at the time at which it ends without snapshots.
                stop = self.network.run_until(end);
            } else {
                self.slice = Some(slice);
            }
        }
        self.sample_if_due();
        if stop == Stop::Idle { Advance::Idle } else { Advance::Went }
    }

    fn state(&mut self) -> WorldState {
        let now = self.network.now();
        WorldState {
            links: self.network.links().iter().map(|link| link_state(link, now)).collect(),
            log: self.pairs.new_log_events(&self.network),
            punctuality: None,
        }
    }
}
