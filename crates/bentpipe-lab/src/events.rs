//! Events of a run: the begin and end of its cases and workloads, and snapshots of its state.
//!
//! Live and virtual runs emit the same events through one [`Sink`]. Times are model time in seconds since the start of
//! their case, quantities are base units (bits per second, bytes, seconds), as in the record. Events serialise with
//! serde, each with its name under the key `event`; variants and fields will be added.
//!
//! Snapshots come at the start of a case and then at each multiple of [`Sink::interval`]. In virtual time they are
//! exactly then, and the record does not depend on whether there are any; in a live run they are a moment late.

mod emitter;

pub(crate) use emitter::{Emitter, WorldState, link_state};

use crate::record::{Measurement, Status, TimedEvent, WorkloadRecord};
use crate::scenario::workload::WorkloadId;
use bentpipe_net::time::{Duration, Instant};
use serde::Serialize;

/// Takes the events of a run; with another `E`, those of something else.
pub trait Sink<E: ?Sized = Event> {
    /// Takes an event.
    fn event(&mut self, event: &E);

    /// Model time between snapshots, a millisecond at least. `None`: no snapshots are made, which costs nothing.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// The workloads that a snapshot lists at most: the first ones that run. Listing one costs the time of a report.
    fn workloads_max(&self) -> usize {
        usize::MAX
    }

    /// The snapshot that is due now is to be made: a display may leave out some.
    fn wants_snapshot(&mut self) -> bool {
        true
    }
}

/// Takes events and forgets them.
impl<E: ?Sized> Sink<E> for () {
    fn event(&mut self, _event: &E) {}
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A case begins.
    CaseStarted(CaseStarted),
    /// A run of a workload began.
    WorkloadStarted(WorkloadStarted),
    /// The case's state.
    Snapshot(Snapshot),
    /// A run of a workload is over, or could not start.
    WorkloadEnded(WorkloadEnded),
    /// The workloads of a case are over. Its record is complete.
    CaseEnded(CaseEnded),
}

/// A case begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CaseStarted {
    /// The case's number, from 1.
    pub number: usize,
    /// Number of cases.
    pub cases: usize,
    /// Its name.
    pub name: String,
}

/// Identifies a run of a workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct WorkloadRun {
    /// The workload.
    #[serde(flatten)]
    pub workload: WorkloadId,
    /// The repetition's number, from 1.
    pub repeat: u32,
}

/// A run of a workload began.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkloadStarted {
    /// Time of it.
    pub at: f64,
    /// The run of a workload.
    pub run: WorkloadRun,
}

/// A run of a workload is over.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkloadEnded {
    /// Time at which the schedule ended it.
    pub at: f64,
    /// The run of a workload.
    pub run: WorkloadRun,
    /// As in its record.
    pub status: Status,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// As in its record.
    pub measurements: Vec<Measurement>,
}

/// The workloads of a case are over.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CaseEnded {
    /// Its length.
    pub at: f64,
    /// The case's number, from 1.
    pub number: usize,
    /// Its figures can be trusted.
    pub valid: bool,
}

/// A case's state at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Time of it.
    pub at: f64,
    /// Every link of the case, in the scenario's order.
    pub links: Vec<LinkSnapshot>,
    /// The workloads that run, at most [`Sink::workloads_max`] of them.
    pub workloads: Vec<WorkloadSnapshot>,
    /// Number of workloads that run.
    pub running: usize,
    /// Workloads that will run and have not begun, or pause.
    pub waiting: usize,
    /// Gateways' log events since the snapshot before.
    pub log: Vec<SiteEvent>,
    /// The emulator's lateness until now; absent in virtual time, in which nothing is late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub punctuality: Option<Punctuality>,
}

/// A link's state at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LinkSnapshot {
    /// Its name in the scenario.
    pub name: String,
    /// Its circuit is up, or it has none.
    pub up: bool,
    /// Forward first, then one return a terminal.
    pub directions: Vec<DirectionSnapshot>,
}

/// The state of a direction of a link. Totals count from the start of the case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DirectionSnapshot {
    /// Bits per second sent since the snapshot before, framing included.
    pub rate: f64,
    /// Bits per second delivered since the snapshot before, framing not included; all receivers together.
    pub delivered_rate: f64,
    /// Bytes that wait.
    pub queue_bytes: u64,
    /// Seconds until a packet that comes now begins to arrive: what waits at the rate of all channels, and the one-way
    /// delay. Absent while the rate is zero or the circuit is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<f64>,
    /// Total of bytes sent, framing included, rounded up.
    pub link_bytes: u64,
    /// Total of bytes delivered, framing not included.
    pub delivered_bytes: u64,
    /// Total of packets delivered.
    pub delivered_packets: u64,
    /// Total of packets that the full queue refused.
    pub dropped_packets: u64,
    /// Total of packets with bit errors that the framing's check discarded.
    pub damaged_packets: u64,
    /// Total of bits inverted.
    pub bit_errors: u64,
    /// Total of packets lost as a whole: packet loss, outage, a lost circuit.
    pub lost_packets: u64,
}

/// The state of a run of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkloadSnapshot {
    /// The run of a workload.
    pub run: WorkloadRun,
    /// The data received so far; absent for a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<WorkloadProgress>,
    /// Measurements so far, of all parties combined; none of a command.
    pub measurements: Vec<Measurement>,
}

/// The quantity that shows how far a run of a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkloadProgress {
    /// Its value, the largest of all parties.
    pub value: f64,
    /// The noun that it counts: `B`, `replies`.
    pub noun: &'static str,
}

/// An event of a gateway.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SiteEvent {
    /// The gateway's own site.
    pub site: String,
    /// The event and its time, as in the record.
    #[serde(flatten)]
    pub event: TimedEvent,
}

/// Lateness of packets leaving the emulator until now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Punctuality {
    /// No limit is broken.
    pub valid: bool,
    /// Seconds that 99 % of the packets were late at most.
    pub p99: f64,
    /// The same for all packets.
    pub worst: f64,
    /// Packets lost between a host and the emulator.
    pub missed_packets: u64,
    /// Packets that could not be handed to a host.
    pub refused_packets: u64,
}

impl WorkloadRun {
    fn of(record: &WorkloadRecord) -> WorkloadRun {
        WorkloadRun { workload: WorkloadId { name: record.name.clone(), copy: record.copy }, repeat: record.repeat }
    }
}

impl SiteEvent {
    pub(crate) fn of(site: &str, events: Vec<TimedEvent>) -> impl Iterator<Item = SiteEvent> {
        events.into_iter().map(|event| SiteEvent { site: site.to_owned(), event })
    }
}

/// The first multiple of `interval` after `now`.
fn after(now: Instant, interval: Duration) -> Instant {
    Instant { ns: (now.ns / interval.ns).saturating_add(1).saturating_mul(interval.ns) }
}
