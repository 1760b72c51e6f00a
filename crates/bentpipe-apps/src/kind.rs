//! Kinds of workload: what one file of this crate, or of anyone else's, defines.
//!
//! A [`Kind`] has a name, roles, and a table of its own in a scenario. Reading that table gives a [`Workload`]: complete,
//! checked and immutable. Each party of a workload runs at a site: a state machine, a command, or nothing but the host's
//! own stack.

use crate::quantity::{BYTES, Quantity};
use crate::report::{App, Report, Status};
use crate::{Direction, SpecError};
use bentpipe_net::problem::{self, KeyProblem};
use bentpipe_net::time::Duration;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A kind of workload, or of service.
pub trait Kind: fmt::Debug + Send + Sync {
    /// The name in scenarios (`app = "bulk"`) and records.
    fn name(&self) -> &'static str;

    /// Other names in scenarios.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Its parties, in the order of their numbers.
    fn roles(&self) -> &'static [Role] {
        const { &[CLIENT, SERVER] }
    }

    /// The quantities that it may measure. An objective is possible where its quantity is among them.
    fn quantities(&self) -> &'static [Quantity];

    /// What a report shows of it.
    fn shown(&self) -> Shown {
        Shown::default()
    }

    /// Reads its keys.
    fn read(&self, keys: Keys) -> Result<Arc<dyn Workload>, KeyProblem>;
}

/// A workload of some kind, complete and checked.
pub trait Workload: Any + fmt::Debug + Send + Sync {
    /// The ports that its parties need, in the order in which the parties of a role get them.
    fn ports(&self) -> Vec<PortNeed> {
        Vec::new()
    }

    /// What runs at party `number` of `setting`.
    fn program(&self, number: usize, setting: &Setting) -> PartyProgram;

    /// One report out of the parties', in their order.
    fn combine(&self, parties: Vec<PartyReport>) -> Report {
        join(parties)
    }

    /// The direction of its data between a client and a server; `None`: both, neither, or unknown.
    fn direction(&self) -> Option<Direction> {
        None
    }

    /// The single transfer that it comes to, if it does.
    fn transfer(&self) -> Option<Transfer> {
        None
    }

    /// True if what it does depends on its seed, the data's pattern aside.
    fn is_random(&self) -> bool {
        false
    }

    /// The command that one of its parties is; only a live run has commands.
    fn command(&self) -> Option<&[String]> {
        None
    }
}

/// A role in a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Role {
    /// The name in records: `client`, `server`.
    pub name: &'static str,
    /// The key of a scenario that names its site, or its sites.
    pub key: &'static str,
    /// For messages: `the site that connects`.
    pub what: &'static str,
    /// How many parties have it.
    pub sites: Sites,
    /// Its part in the course of a workload.
    pub part: Part,
}

/// How many parties have a role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sites {
    /// One; its key holds a name.
    One,
    /// One or none; its key holds a name.
    Optional,
    /// So many; its key holds a list of names, no name twice.
    Several {
        /// At least.
        min: usize,
        /// At most.
        max: usize,
    },
}

/// A party's part in the course of a workload. Those that serve are started first, each kind in the order of the
/// parties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The workload is over when all that lead have ended.
    Leads,
    /// Ended when the workload is over; a party that still has something to do then is waited for.
    Serves,
}

/// The party that connects.
pub const CLIENT: Role =
    Role { name: "client", key: "client", what: "the site that connects", sites: Sites::One, part: Part::Leads };
/// The party that answers.
pub const SERVER: Role =
    Role { name: "server", key: "server", what: "the site that answers", sites: Sites::One, part: Part::Serves };

/// A port that the parties of a role listen on, each at its own site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortNeed {
    /// The role's number.
    pub role: usize,
    /// The key that chooses it.
    pub key: &'static str,
    /// As the scenario chose it: refused when it is taken.
    pub chosen: Option<u16>,
    /// If it did not: this one, or the next higher that is free.
    pub default: u16,
}

/// Where the parties of a workload are.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The parties, in the order of the kind's roles; those of one role in the order of their list.
    pub parties: Vec<Party>,
    /// The seed of this run of the workload.
    pub seed: u64,
}

/// One party of a workload.
#[derive(Clone, Debug)]
pub struct Party {
    /// Its role's number.
    pub role: usize,
    /// The site's name, which resolves there and everywhere else.
    pub site: String,
    /// The site's address.
    pub address: IpAddr,
    /// Its ports, in the order of the role's [`PortNeed`]s.
    pub ports: Vec<u16>,
}

/// What a party of a workload is.
pub enum PartyProgram {
    /// A state machine over the site's sockets.
    App(Box<dyn App>),
    /// A program and its arguments, run at the site; only in a live run.
    Command(Vec<String>),
    /// Nothing: the host's own stack answers.
    Stack,
}

/// What a party reported at its end.
#[derive(Clone, Debug)]
pub struct PartyReport {
    /// Its role.
    pub role: &'static Role,
    /// Its report; `None`: the host's own stack answered, or the party is gone.
    pub report: Option<Report>,
}

/// A transfer of a known size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Its direction.
    pub direction: Direction,
    /// Bytes of data, all connections.
    pub bytes: u64,
    /// Connections at once that carry equal parts of it.
    pub connections: u32,
}

/// What a report shows of a kind of workload.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Shown {
    /// The one number that says most: the first of these that was measured.
    pub main: &'static [Quantity],
    /// Measurements that are compared without and with a gateway pair.
    pub compared: &'static [Quantity],
    /// Series that are drawn first, and compared between cases.
    pub series: &'static [Quantity],
    /// What shows how far it is, and the noun that it counts.
    pub progress: (Quantity, &'static str),
}

impl Default for Shown {
    fn default() -> Shown {
        Shown::new(&[], &[])
    }
}

impl Shown {
    /// The numbers, which are compared too, and the series; progress in bytes.
    #[must_use]
    pub const fn new(main: &'static [Quantity], series: &'static [Quantity]) -> Shown {
        Shown { main, compared: main, series, progress: (BYTES, "B") }
    }

    /// The same with other measurements that are compared.
    #[must_use]
    pub const fn with_compared(self, compared: &'static [Quantity]) -> Shown {
        Shown { compared, ..self }
    }

    /// The same with another quantity for the progress.
    #[must_use]
    pub const fn with_progress(self, quantity: Quantity, noun: &'static str) -> Shown {
        Shown { progress: (quantity, noun), ..self }
    }
}

/// The keys of one workload in a scenario that are its kind's own.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The kind's name, for messages.
    pub kind: &'static str,
    /// The keys and their values.
    pub table: toml::Table,
    /// The names of the keys that are not the kind's own and are read already, for messages.
    pub shared: Vec<&'static str>,
    /// The key `spread`, which every workload has: the time within which starts are spread.
    pub spread: Duration,
}

impl Keys {
    /// The keys as a struct with a field for each. A key that it lacks is refused with a list of those that it has.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, KeyProblem> {
        let own = problem::keys_of::<T>();
        if let Some(key) = self.table.keys().find(|key| !own.contains(&key.as_str())) {
            let shared = self.shared.join(", ");
            let meant = problem::did_you_mean(key, own.iter().chain(&self.shared).copied());
            let what =
                format!("is not for app = {:?}{meant}; allowed: {}; and always: {shared}", self.kind, own.join(", "));
            return Err(KeyProblem::new(key, what));
        }
        problem::read(self.table)
    }
}

impl Setting {
    /// The first party of a role.
    ///
    /// # Panics
    /// When no party has it: only of a role that is optional.
    #[must_use]
    pub fn first(&self, role: usize) -> &Party {
        self.parties.iter().find(|party| party.role == role).unwrap_or_else(|| panic!("no party has role {role}"))
    }
}

/// Joins the reports of any number of parties. It has failed when one has; otherwise it stands as those that lead do:
/// done when all of them are, and ended with the last. A quantity has the value of the first party that has one.
#[must_use]
pub fn join(parties: Vec<PartyReport>) -> Report {
    let mut joined = Report::new(Status::Done, None);
    for PartyReport { role, report } in parties {
        let Some(report) = report else { continue };
        joined.status = match (joined.status, report.status) {
            (Status::Failed(mine), Status::Failed(theirs)) => {
                Status::Failed(format!("{mine}; {}: {theirs}", role.name))
            }
            (Status::Failed(why), _) => Status::Failed(why),
            (_, Status::Failed(why)) if role.part == Part::Leads => Status::Failed(why),
            (_, Status::Failed(why)) => Status::Failed(format!("{}: {why}", role.name)),
            (_, Status::Running) if role.part == Part::Leads => Status::Running,
            (status, _) => status,
        };
        if role.part == Part::Leads {
            joined.ended = joined.ended.max(report.ended);
        }
        for m in report.measurements {
            if joined.value(m.quantity).is_none() {
                joined.put(m.quantity, m.value);
            }
        }
        for series in report.series {
            if joined.series.iter().all(|mine| mine.quantity != series.quantity) {
                joined.series.push(series);
            }
        }
    }
    joined
}

impl From<SpecError> for KeyProblem {
    /// Fields of specs that have another name in scenarios get it.
    fn from(error: SpecError) -> KeyProblem {
        let key = match error.field {
            "data_bytes" | "html_bytes" | "amount" => "bytes",
            other => other,
        };
        KeyProblem::new(key, error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_net::time::Instant;

    fn party(role: &'static Role, status: Status, seconds: u64, bytes: f64) -> PartyReport {
        let ended = (status != Status::Running).then_some(Instant { ns: seconds * 1_000_000_000 });
        let mut report = Report::new(status, ended);
        report.put(BYTES, bytes);
        PartyReport { role, report: Some(report) }
    }

    #[test]
    fn many_parties_are_done_when_those_that_lead_are() {
        let first = party(&CLIENT, Status::Done, 3, 1.0);
        let server = party(&SERVER, Status::Running, 0, 2.0);
        let joined = join(vec![first.clone(), party(&CLIENT, Status::Done, 5, 3.0), server.clone()]);
        let five = Some(Instant { ns: 5_000_000_000 });
        assert_eq!((joined.status, joined.ended), (Status::Done, five));
        assert_eq!(joined.measurements.len(), 1);
        assert_eq!(joined.measurements[0].value, 1.0);
        let running = join(vec![first.clone(), party(&CLIENT, Status::Running, 0, 0.0), server.clone()]);
        assert_eq!(running.status, Status::Running);
        let failed = |text: &str| Status::Failed(text.to_owned());
        let broken = party(&SERVER, failed("no"), 9, 0.0);
        assert_eq!(join(vec![first, broken.clone()]).status, failed("server: no"));
        assert_eq!(join(vec![party(&CLIENT, failed("a"), 1, 0.0), broken]).status, failed("a; server: no"));
    }
}
