//! The gain measured: real namespaces and kernels, the hosts as they are now and with the printed commands run in them.

use super::hosts::{Atom, Hosts, Side};
use super::measure::Summary;
use super::queue::{Discipline, Row as QueueRow};
use super::{Tuning, Verdict, commands};
use crate::runner::{Ran, RunId, Runner, Subject};
use bentpipe_lab::live;
use bentpipe_lab::record::{CaseRecord, WorkloadRecord};
use bentpipe_lab::scenario::Scenario;
use bentpipe_net::problem::Problem;
use serde::Serialize;
use std::sync::atomic::Ordering;
use toml::{Table, Value};

/// The measurement to make.
#[derive(Clone, Debug)]
pub struct VerifyQuestion<'a> {
    /// The link as a scenario names it: of the catalogue, or a file.
    pub kind: &'a str,
    /// Overrides of the link, as `--set` takes them.
    pub set: &'a [String],
    /// Transfers predicted to take longer than this many seconds before tuning are left out, unless none is shorter.
    pub seconds_max: f64,
}

/// A transfer measured, and what was predicted.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// `download` or `upload`.
    pub direction: &'static str,
    /// Application bytes.
    pub bytes: u64,
    /// Both hosts as they are now.
    pub before: Measured,
    /// With the commands run.
    pub after: Measured,
}

/// Live runs of one transfer.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The prediction.
    pub predicted: Option<f64>,
    /// The measured times, in seconds, one a run; absent for a transfer that did not finish. None at all when a run is
    /// invalid.
    pub seconds: Vec<Option<f64>>,
    /// Why runs do not count: the emulator was late.
    pub invalid: Vec<String>,
}

/// A recommended queue discipline measured: the transfer by which it was judged, and a ping during it.
#[derive(Clone, Debug, Serialize)]
pub struct VerifiedQueue {
    /// `download` or `upload`.
    pub direction: &'static str,
    /// Application bytes.
    pub bytes: u64,
    /// With the present queue; the hosts are tuned.
    pub before: MeasuredQueue,
    /// With the recommended one.
    pub after: MeasuredQueue,
}

/// One live run with a queue discipline.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredQueue {
    /// The discipline.
    pub discipline: Discipline,
    /// Predicted time of the transfer and median round trip of the ping, in seconds.
    pub predicted: (Option<f64>, Option<f64>),
    /// The same, measured; absent for what did not finish. Neither when the run is invalid.
    pub measured: (Option<f64>, Option<f64>),
    /// Why the run does not count: the emulator was late.
    pub invalid: Vec<String>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The hosts ask for what a live run cannot do.
    #[error(transparent)]
    Scenario(#[from] Problem),
    /// A run could not be done.
    #[error("{0}")]
    Run(String),
    /// A printed command failed.
    #[error("at the {host} a command failed with status {status}: {errors}")]
    Command {
        /// The host.
        host: &'static str,
        /// Its exit status.
        status: i32,
        /// Its output.
        errors: String,
    },
    /// The transfers began before the commands were through.
    #[error("the commands took longer than the transfer waited for them; the machine is too busy")]
    Busy,
    /// The user ended it.
    #[error("ended by a signal")]
    Interrupted,
}

/// Live runs of a link on which something is left to chance.
const RUNS_CHANCE: u64 = 3;
/// When transfers start: the commands are through by then.
const START: &str = "2 s";
const TRANSFER: &str = "transfer";
const PING: &str = "ping";
/// Pings during a transfer; those left when it ends are not sent.
const PINGS: i64 = 10_000;

impl Tuning {
    /// Measures the predicted transfers live, before and after.
    pub fn verify(&mut self, question: &VerifyQuestion<'_>, runner: &mut Runner<'_>) -> Result<(), VerifyError> {
        let fits = |row: &super::Predicted| {
            !row.after_idle && row.before.seconds.is_some_and(|seconds| seconds <= question.seconds_max)
        };
        let mut rows: Vec<super::Predicted> = self.predicted.iter().filter(|row| fits(row)).copied().collect();
        if rows.is_empty() {
            rows.extend(self.predicted.iter().filter(|row| !row.after_idle).take(1));
        }
        let mut verified = Vec::new();
        for row in rows {
            let mut measure = |tuned: bool, predicted: &Summary| {
                let mut measured = Measured { predicted: predicted.seconds, seconds: Vec::new(), invalid: Vec::new() };
                let runs = if predicted.runs > 1 { RUNS_CHANCE } else { 1 };
                for seed in 1..=runs {
                    let subject = Subject::Transfer { direction: row.direction, bytes: row.bytes, tuned, runs };
                    let atoms: &[Atom] = if tuned { &self.atoms } else { &[] };
                    let (transfer, hosts) = ((row.direction, row.bytes), &self.hosts.0);
                    let text = scenario(question.kind, hosts, atoms, transfer, self.connections, seed, false);
                    let id = RunId::new(subject, u32::try_from(seed).unwrap_or(u32::MAX));
                    let case = self.run(question, &text, None, &id, runner)?;
                    if !case.validity.valid {
                        measured.invalid.extend(case.validity.reasons.iter().cloned());
                    }
                    measured.seconds.push(completion_of_all(&case));
                }
                if !measured.invalid.is_empty() {
                    measured.seconds.clear();
                }
                Ok::<Measured, VerifyError>(measured)
            };
            let before = measure(false, &row.before)?;
            let after = measure(true, &row.after)?;
            verified.push(Verified { direction: row.direction, bytes: row.bytes, before, after });
        }
        self.verified = Some(verified);
        self.verified_queues = Some(self.verify_queues(question, runner)?);
        Ok(())
    }

    /// Measures what is recommended for the link's queues, on tuned hosts, where the transfer is short enough.
    fn verify_queues(
        &self,
        question: &VerifyQuestion<'_>,
        runner: &mut Runner<'_>,
    ) -> Result<Vec<VerifiedQueue>, VerifyError> {
        let mut verified = Vec::new();
        for after in self.queues.iter().filter(|row| row.verdict == Verdict::Recommended) {
            let present = |row: &&QueueRow| row.is_present && row.direction == after.direction;
            let Some(before) = self.queues.iter().find(present) else { continue };
            if before.seconds.is_none_or(|seconds| seconds > question.seconds_max) {
                continue;
            }
            let mut measure = |row: &QueueRow| {
                let (direction, bytes) = (row.direction, row.bytes);
                let subject = Subject::Transfer { direction, bytes, tuned: true, runs: 1 };
                let transfer = (direction, bytes);
                let text = scenario(question.kind, &self.hosts.0, &self.atoms, transfer, self.connections, 1, true);
                let case = self.run(question, &text, Some(row), &RunId::new(subject, 1), runner)?;
                let valid = case.validity.valid;
                let ping = case.workloads.iter().find(|workload| workload.name == PING);
                let ping = ping.and_then(|ping| ping.measurement("rtt_median")).map(|m| m.value);
                Ok::<MeasuredQueue, VerifyError>(MeasuredQueue {
                    discipline: row.discipline,
                    predicted: (row.seconds, row.ping_seconds),
                    measured: if valid { (completion_of_all(&case), ping) } else { (None, None) },
                    invalid: if valid { Vec::new() } else { case.validity.reasons },
                })
            };
            let (before, after_measured) = (measure(before)?, measure(after)?);
            verified.push(VerifiedQueue {
                direction: after.direction,
                bytes: after.bytes,
                before,
                after: after_measured,
            });
        }
        Ok(verified)
    }

    /// One live run of a scenario, with another queue discipline on the link if `queue` is not the present one.
    fn run(
        &self,
        question: &VerifyQuestion<'_>,
        text: &str,
        queue: Option<&QueueRow>,
        id: &RunId,
        runner: &mut Runner<'_>,
    ) -> Result<CaseRecord, VerifyError> {
        let mut overrides: Vec<String> = question.set.iter().map(|set| format!("links.link.{}", set.trim())).collect();
        overrides.extend(queue.filter(|row| !row.is_present).map(|row| format!("links.link.{}", row.keys)));
        if self.set_up.is_some() {
            overrides.push("links.link.circuit.stages=[]".to_owned());
        }
        if let Some(channels) = self.on_demand {
            overrides.push(format!("links.link.circuit.on_demand.least={channels}"));
            overrides.push("links.link.circuit.on_demand.connects_late=\"0 s\"".to_owned());
        }
        // There is no file whose folder a link's path could be relative to.
        let scenario = Scenario::parse("tune", text, &overrides)?;
        live::check(&scenario)?;
        let Ran { record, .. } = runner.one(id, &scenario).map_err(VerifyError::Run)?;
        if runner.stop.load(Ordering::Relaxed) {
            return Err(VerifyError::Interrupted);
        }
        let Some(case) = record.cases.into_iter().next() else { return Err(VerifyError::Interrupted) };
        check_commands(&case)?;
        Ok(case)
    }
}

/// When the last of the transfers was done; `None`: one was not.
fn completion_of_all(case: &CaseRecord) -> Option<f64> {
    let data = transfers(case).filter(|workload| workload.name != PING);
    data.map(completion).reduce(|a, b| a.zip(b).map(|(a, b)| f64::max(a, b))).flatten()
}

/// What is measured: everything but the commands that set the hosts up.
fn transfers(case: &CaseRecord) -> impl Iterator<Item = &WorkloadRecord> {
    case.workloads.iter().filter(|workload| workload.command.is_none())
}

fn completion(workload: &WorkloadRecord) -> Option<f64> {
    workload.measurement("completion_time").map(|m| m.value)
}

fn check_commands(case: &CaseRecord) -> Result<(), VerifyError> {
    let first = transfers(case).map(|workload| workload.start).fold(f64::MAX, f64::min);
    for side in Side::BOTH {
        let Some(workload) = case.workloads.iter().find(|workload| workload.name == side.name()) else { continue };
        if let Some(command) = &workload.command
            && command.exit != Some(0)
        {
            let (status, errors) = (command.exit.unwrap_or(-1), command.stderr.trim().to_owned());
            return Err(VerifyError::Command { host: side.name(), status, errors });
        }
        if workload.end.is_none_or(|end| end > first) {
            return Err(VerifyError::Busy);
        }
    }
    Ok(())
}

/// The scenario of one transfer: the hosts as they are, the commands, and then the transfer, with a ping during it or not.
fn scenario(
    kind: &str,
    before: &Hosts,
    atoms: &[Atom],
    (direction, bytes): (&str, u64),
    connections: u32,
    seed: u64,
    with_ping: bool,
) -> String {
    let table = |pairs: Vec<(&str, Value)>| {
        Value::Table(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Table>())
    };
    let text = |text: &str| Value::String(text.to_owned());
    let sites = Side::BOTH.map(|side| text(side.name())).to_vec();
    let link = table(vec![("kind", text(kind)), ("between", Value::Array(sites))]);
    let hosts = Side::BOTH.map(|side| (side.name(), table(vec![("tcp", Value::Table(settings(before, atoms, side)))])));
    let mut workloads: Vec<Value> = Side::BOTH
        .into_iter()
        .map(|side| {
            table(vec![
                ("name", text(side.name())),
                ("app", text("command")),
                ("client", text(side.name())),
                ("command", text(&script(before, atoms, side))),
            ])
        })
        .collect();
    for number in 0..u64::from(connections) {
        let connections = u64::from(connections);
        let bytes = bytes / connections + u64::from(number < bytes % connections);
        if bytes == 0 {
            continue;
        }
        workloads.push(table(vec![
            ("name", text(&format!("{TRANSFER} {number}"))),
            ("app", text("bulk")),
            ("client", text(Side::Terminal.name())),
            ("server", text(Side::Hub.name())),
            ("direction", text(direction)),
            ("bytes", text(&format!("{bytes} B"))),
            ("start", text(START)),
        ]));
    }
    if with_ping {
        workloads.push(table(vec![
            ("name", text(PING)),
            ("app", text("ping")),
            ("client", text(Side::Terminal.name())),
            ("server", text(Side::Hub.name())),
            ("count", Value::Integer(PINGS)),
            ("background", Value::Boolean(true)),
            ("start", text(START)),
        ]));
    }
    let whole = table(vec![
        ("title", text("tune")),
        ("seed", Value::Integer(i64::try_from(seed).unwrap_or(1))),
        ("links", table(vec![("link", link)])),
        ("hosts", table(hosts.to_vec())),
        ("workloads", Value::Array(workloads)),
    ]);
    whole.as_table().map_or_else(String::new, Table::to_string)
}

/// A host as it is now, but for windows that the commands open: the emulator would hold those whatever the kernel does.
fn settings(before: &Hosts, atoms: &[Atom], side: Side) -> Table {
    let mut settings = Table::try_from(before.of(side)).unwrap_or_default();
    let changed = |key: &str| atoms.iter().any(|atom| atom.host == side && atom.key == key);
    // A preset would bring its window back; all that it says is spelt out.
    settings.remove("preset");
    for key in ["receive_window", "send_buffer"] {
        if changed(key) {
            settings.remove(key);
        }
    }
    settings
}

/// The limits of a simulated host, so that machines whose kernels differ measure what was predicted, and then the commands as printed.
fn script(before: &Hosts, atoms: &[Atom], side: Side) -> String {
    let now = settings(before, atoms, side);
    let mut lines = vec!["set -e".to_owned(), "PATH=$PATH:/usr/sbin:/sbin".to_owned()];
    let [receive, send] = commands::default_limits();
    let limits = [("receive_window", receive), ("send_buffer", send)];
    lines.extend(limits.into_iter().filter(|(key, _)| !now.contains_key(*key)).map(|(_, line)| line));
    // The only route here is the link's.
    lines.push("ROUTE=$(ip -4 route show | head -n 1)".to_owned());
    lines.extend(commands::commands(atoms).into_iter().filter(|c| c.host == side).map(|c| c.text));
    lines.join("\n")
}
