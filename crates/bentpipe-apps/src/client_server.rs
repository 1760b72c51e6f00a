//! What workloads of one client and one server with one port have in common.

use crate::Direction;
use crate::kind::{Party, PartyProgram, PartyReport, PortNeed, Setting, Shown, Transfer, Workload};
use crate::quantity::{COMPLETION_TIME, FIRST_BYTE, GOODPUT, RECEIVED_BYTES};
use crate::report::{App, Report, Status};
use bentpipe_net::content::Content;
use bentpipe_net::seed::Seed;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The specification of a client and a server.
pub trait ClientServer: Clone + fmt::Debug + Send + Sync + 'static {
    /// The port that the server listens on.
    fn port(&self) -> u16;

    /// The same for the server of a scenario, whose site and port are known.
    #[must_use]
    fn served_by(&self, server: &Party) -> Self;

    /// The side that connects to the address `server`. Its data is made from `seed`.
    #[must_use]
    fn client(&self, server: IpAddr, seed: u64) -> Box<dyn App>;

    /// The side that listens.
    #[must_use]
    fn server(&self, seed: u64) -> Box<dyn App>;

    /// One report out of both sides'.
    #[must_use]
    fn combine(&self, client: Report, server: Report) -> Report;

    /// The direction of its data.
    fn direction(&self) -> Direction;

    /// The single transfer that it comes to, if it does.
    fn transfer(&self) -> Option<Transfer> {
        None
    }

    /// True if what it does depends on its seed, the data's pattern aside.
    fn is_random(&self) -> bool {
        false
    }
}

/// Such a workload in a scenario.
#[derive(Clone, Debug)]
pub struct ClientServerWorkload<S> {
    /// The specification; its port is the default where none was chosen.
    pub spec: S,
    /// What the data is made of.
    pub content: Content,
    /// The port that the scenario chose.
    pub port: Option<u16>,
}

/// A client and a server of which each run is drawn, from the run's seed.
#[derive(Clone)]
pub(crate) struct Varied<S> {
    /// Without what is drawn.
    base: S,
    draw: Draw<S>,
}

/// Makes the specification of one run.
type Draw<S> = Arc<dyn Fn(&S, Seed) -> S + Send + Sync>;

impl<S: ClientServer> Varied<S> {
    /// `draw` makes the specification of a run out of `base`, on both sides alike.
    pub fn new(base: S, draw: impl Fn(&S, Seed) -> S + Send + Sync + 'static) -> Varied<S> {
        Varied { base, draw: Arc::new(draw) }
    }

    fn drawn(&self, seed: u64) -> S {
        (self.draw)(&self.base, Seed(seed))
    }
}

impl<S: fmt::Debug> fmt::Debug for Varied<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Varied").field("base", &self.base).finish_non_exhaustive()
    }
}

impl<S: ClientServer> ClientServer for Varied<S> {
    fn port(&self) -> u16 {
        self.base.port()
    }

    fn served_by(&self, server: &Party) -> Varied<S> {
        Varied { base: self.base.served_by(server), draw: Arc::clone(&self.draw) }
    }

    fn client(&self, server: IpAddr, seed: u64) -> Box<dyn App> {
        self.drawn(seed).client(server, seed)
    }

    fn server(&self, seed: u64) -> Box<dyn App> {
        self.drawn(seed).server(seed)
    }

    fn combine(&self, client: Report, server: Report) -> Report {
        self.base.combine(client, server)
    }

    fn direction(&self) -> Direction {
        self.base.direction()
    }

    fn is_random(&self) -> bool {
        true
    }
}

/// What a report shows of a transfer.
pub(crate) const SHOWN: Shown = Shown::new(&[COMPLETION_TIME, GOODPUT], &[GOODPUT, RECEIVED_BYTES]).with_compared(&[
    COMPLETION_TIME,
    FIRST_BYTE,
    GOODPUT,
]);

impl<S: ClientServer> Workload for ClientServerWorkload<S> {
    fn ports(&self) -> Vec<PortNeed> {
        vec![PortNeed { role: 1, key: "port", chosen: self.port, default: self.spec.port() }]
    }

    fn program(&self, number: usize, setting: &Setting) -> PartyProgram {
        let server = setting.first(1);
        let spec = self.spec.served_by(server);
        let seed = self.content.pattern(setting.seed);
        PartyProgram::App(if number == 0 { spec.client(server.address, seed) } else { spec.server(seed) })
    }

    fn combine(&self, parties: Vec<PartyReport>) -> Report {
        let mut reports = parties.into_iter().map(|party| party.report);
        let client = reports.next().flatten().unwrap_or_else(|| Report::new(Status::Running, None));
        match reports.next().flatten() {
            Some(server) => self.spec.combine(client, server),
            None => client,
        }
    }

    fn direction(&self) -> Option<Direction> {
        Some(self.spec.direction())
    }

    fn transfer(&self) -> Option<Transfer> {
        self.spec.transfer()
    }

    fn is_random(&self) -> bool {
        self.spec.is_random()
    }
}
